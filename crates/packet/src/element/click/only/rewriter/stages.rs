//! Packets of known flows, a batch at a time in stages: what lookups read is prefetched for all of them, first of the
//! index, then of the flows, before the first one is rewritten.
//!
//! Of a table in several parts a batch takes each lock once for all of its packets there: they are sorted by the part whose
//! index has their key, and those whose flow is in another part, as most replies are, once more by that. Cost: a packet
//! reads a line of the index and one of its flow, which it writes; a batch takes two locks a part at most.

use super::packet::{self, PLAIN_BYTES, plain_ends};
use super::pattern::FlowId;
use super::table::{Flow, Hasher, Line, MOST_PARTS, Number, Parts, Session, Shard};
use super::{Config, PROTOCOL_TCP, PROTOCOL_UDP};
use crate::frame::{BATCH, Batch, Hop, View};

/// Packets of a table in one part that are in a stage together: as many as a port receives at once.
const TOGETHER: usize = 128;

/// Packets of one of several parts.
const TOGETHER_IN_PART: usize = 32;

/// A plain packet of this hash, one of 2^64, is looked at as others are.
const NO_HASH: u64 = 0;

/// The stages, with room for a batch.
pub(super) struct Stages {
    /// Hashes of the keys of plain packets (see [`plain_ends`]), and [`NO_HASH`] of others.
    hashes: Box<[u64; BATCH]>,
    /// Numbers that are most likely those of their flows.
    numbers: Box<[Number; BATCH]>,
    sorted: Box<Sorted>,
    plain: Vec<u8>,
    /// Packets whose flow is in another part than their key.
    elsewhere: Vec<u8>,
    /// Packets that are to be looked at more closely, in order.
    pub(super) special: Vec<usize>,
}

impl Default for Stages {
    fn default() -> Self {
        Self {
            hashes: Box::new([0; BATCH]),
            numbers: Box::new([Number::NONE; BATCH]),
            sorted: Box::default(),
            plain: Vec::with_capacity(BATCH),
            elsewhere: Vec::with_capacity(BATCH),
            special: Vec::with_capacity(BATCH),
        }
    }
}

impl Stages {
    /// Protocol and ends of a packet that the rewriter changes, and the hash of its key where that is known.
    #[inline]
    pub(super) fn ends(
        &self,
        config: &Config,
        i: usize,
        (frame, network): (&[u8], usize),
    ) -> Option<(u8, FlowId, Option<u64>)> {
        let hash = self.hashes[i];
        if hash != NO_HASH {
            let (protocol, ends) = plain_ends(frame, network)?;
            return Some((protocol, FlowId::of_words(ends), Some(hash)));
        }
        let (protocol, id) = packet::ends(frame, network, config.kind.has_ports())?;
        config.kind.is_for(protocol).then_some((protocol, id, None))
    }

    /// Rewrites the plain packets of known flows, which nearly all are, and chooses their outputs. The others are in
    /// `special` then, with nothing changed.
    pub(super) fn run(
        &mut self,
        config: &Config,
        session: &mut Session<'_>,
        batch: &mut Batch,
        now_ns: u64,
    ) {
        // A panic may have left some.
        self.special.clear();
        let parts = session.parts();
        if parts != Parts::ONE {
            return self.run_in_parts(config, session, batch, now_ns);
        }
        let Self { hashes, special, .. } = self;
        let shard = &*session.shard(0);
        let (read, rewrite) = (Read::new(config), Rewrite::new(config, shard, now_ns));
        let len = batch.len().min(BATCH);
        for begin in (0..len).step_by(TOGETHER) {
            let which = begin..len.min(begin + TOGETHER);
            let mut lines = [&Line::EMPTY; TOGETHER];
            batch.each_of(which.clone(), |i, one| {
                hashes[i] = NO_HASH;
                if let Some(hash) = read.hash(&one) {
                    hashes[i] = hash;
                    lines[i % TOGETHER] = shard.line(hash);
                }
            });
            let mut flows = [(&rewrite.none, false); TOGETHER];
            for ((&hash, &line), flow) in hashes[which.clone()].iter().zip(&lines).zip(&mut flows) {
                *flow = rewrite.ahead(shard.number(line, hash), parts);
            }
            batch.each_of(which, |i, one| rewrite.or_special(i, one, flows[i % TOGETHER], special));
        }
    }

    /// [`Self::run`] with a table in several parts.
    fn run_in_parts(
        &mut self,
        config: &Config,
        session: &mut Session<'_>,
        batch: &mut Batch,
        now_ns: u64,
    ) {
        let Self { hashes, numbers, sorted, plain, elsewhere, special } = self;
        let (parts, read) = (session.parts(), Read::new(config));
        batch.each(|i, one| match read.hash(&one) {
            Some(hash) => {
                hashes[i] = hash;
                plain.push(byte(i));
            }
            None => {
                hashes[i] = NO_HASH;
                special.push(i);
            }
        });
        sorted.sort(parts.count(), plain, |i| parts.of(hashes[i]));
        plain.clear();
        for (part, which) in sorted.parts(parts.count()) {
            let shard = &*session.shard(part);
            let rewrite = Rewrite::new(config, shard, now_ns);
            for which in which.chunks(TOGETHER_IN_PART) {
                let mut lines = [&Line::EMPTY; TOGETHER_IN_PART];
                for (&i, line) in which.iter().zip(&mut lines) {
                    *line = shard.line(hashes[usize::from(i)]);
                }
                let mut flows = [(&rewrite.none, false); TOGETHER_IN_PART];
                let (mut here, mut count) = ([0; TOGETHER_IN_PART], 0);
                for (&i, &line) in which.iter().zip(&lines) {
                    let at = usize::from(i);
                    let number = shard.number(line, hashes[at]);
                    if number.part(parts) == part {
                        here[count] = i;
                        flows[count] = rewrite.ahead(number, parts);
                        count += 1;
                    } else {
                        numbers[at] = number;
                        elsewhere.push(i);
                    }
                }
                rewrite.each(batch, &here[..count], &flows, special);
            }
        }
        sorted.sort(parts.count(), elsewhere, |i| numbers[i].part(parts));
        elsewhere.clear();
        for (part, which) in sorted.parts(parts.count()) {
            let shard = &*session.shard(part);
            let rewrite = Rewrite::new(config, shard, now_ns);
            for which in which.chunks(TOGETHER_IN_PART) {
                let mut flows = [(&rewrite.none, false); TOGETHER_IN_PART];
                for (&i, flow) in which.iter().zip(&mut flows) {
                    *flow = rewrite.ahead(numbers[usize::from(i)], parts);
                }
                rewrite.each(batch, which, &flows, special);
            }
        }
        // So that packets behind the first one of a new flow find it.
        special.sort_unstable();
    }
}

/// The first stage.
struct Read {
    hasher: Hasher,
    /// [`super::Key::kind`] without the protocol.
    owner: u32,
    /// [`PROTOCOLS`] whose packets are plain.
    protocols: u8,
}

/// Bits of protocols that have ports.
static PROTOCOLS: [u8; 256] = {
    let mut bits = [0; 256];
    bits[PROTOCOL_UDP as usize] = 1;
    bits[PROTOCOL_TCP as usize] = 2;
    bits
};

impl Read {
    fn new(config: &Config) -> Self {
        let [udp, tcp] = config.plain();
        let protocols = u8::from(udp) | u8::from(tcp) << 1;
        Self { hasher: config.table.hasher(), owner: u32::from(config.owner) << 8, protocols }
    }

    /// Hash of the key of a packet, if it is plain and the rewriter changes such.
    #[inline(always)]
    fn hash(&self, one: &View<'_>) -> Option<u64> {
        let (protocol, ends) = plain_ends(one.frame, one.meta.network.into())?;
        let is_for = PROTOCOLS[usize::from(protocol)] & self.protocols != 0;
        is_for.then(|| self.hasher.hash(self.owner | u32::from(protocol), ends))
    }
}

/// The last stage, with a part of the table.
struct Rewrite<'a> {
    /// [`super::Key::kind`] without the protocol.
    owner: u32,
    outputs: &'a [[u16; 2]],
    reply_paint: bool,
    shard: &'a Shard,
    now_ns: u64,
    /// Who is silent for longer is looked at more closely: that needs no look at the list of each flow.
    silent_ns: u64,
    /// Stands for the flow of a packet for which none was found: no packet is its.
    none: Flow,
}

impl<'a> Rewrite<'a> {
    fn new(config: &'a Config, shard: &'a Shard, now_ns: u64) -> Self {
        Self {
            owner: u32::from(config.owner) << 8,
            outputs: &config.outputs,
            reply_paint: config.reply_paint,
            shard,
            now_ns,
            silent_ns: shard.least_silent_ns(),
            none: Flow::default(),
        }
    }

    /// Prefetches the flow of a number of this part, and gives it with the direction.
    #[inline(always)]
    fn ahead(&self, number: Number, parts: Parts) -> (&Flow, bool) {
        let found = self.shard.ahead(number, parts);
        found.map_or((&self.none, false), |flow| (flow, number.is_reply()))
    }

    /// Rewrites packets of these flows.
    #[inline(always)]
    fn each(
        &self,
        batch: &mut Batch,
        which: &[u8],
        flows: &[(&Flow, bool)],
        special: &mut Vec<usize>,
    ) {
        let mut flows = flows.iter();
        batch.each_of(which.iter().map(|&i| i.into()), |i, one| {
            if let Some(&flow) = flows.next() {
                self.or_special(i, one, flow, special);
            }
        });
    }

    /// Rewrites a packet, or leaves it to a closer look.
    #[inline(always)]
    fn or_special(
        &self,
        i: usize,
        mut one: View<'_>,
        flow: (&Flow, bool),
        special: &mut Vec<usize>,
    ) {
        match self.one(&mut one, flow) {
            // That of packets without a label.
            Some(0) => {}
            // Outputs of flows are the rewriter's: it has read them.
            Some(output) => one.output(output),
            None => special.push(i),
        }
    }

    /// Output of a plain packet of a known flow, which is rewritten. `None` leaves it to a closer look, with nothing changed.
    #[inline(always)]
    fn one(&self, one: &mut View<'_>, (flow, reply): (&Flow, bool)) -> Option<u16> {
        let Self { owner, outputs, reply_paint, now_ns, silent_ns, .. } = *self;
        let ip = one.frame.get_mut(usize::from(one.meta.network)..)?;
        let head = ip.first_chunk::<PLAIN_BYTES>()?;
        let kind = owner | u32::from(head[9]);
        if !flow.is_settled(kind, packet::words(head), reply) || !flow.stays(now_ns, silent_ns) {
            return None;
        }
        let output = outputs.get(usize::from(flow.input))?[usize::from(reply)];
        if !packet::rewrite_plain(ip, flow.to_words(reply), flow.sums, reply) {
            return None;
        }
        flow.pass(now_ns);
        // The route is that of the new destination.
        one.meta.hop = Hop::NONE;
        if reply && reply_paint {
            one.meta.paint = flow.reply_anno;
        }
        Some(output)
    }
}

/// Packets by the part of a table that has something of them, those of a part in order.
struct Sorted {
    order: [u8; BATCH],
    /// Where the packets of a part end, and those of the next begin.
    ends: [usize; MOST_PARTS],
}

// The number of a packet is a byte.
const _: () = assert!(BATCH <= 1 << u8::BITS);

#[inline(always)]
fn byte(i: usize) -> u8 {
    u8::try_from(i).unwrap_or(u8::MAX)
}

impl Default for Sorted {
    fn default() -> Self {
        Self { order: [0; BATCH], ends: [0; MOST_PARTS] }
    }
}

impl Sorted {
    fn sort(&mut self, parts: usize, which: &[u8], part: impl Fn(usize) -> usize) {
        let Self { order, ends } = self;
        let part = |&i: &u8| part(i.into()) % MOST_PARTS;
        let ends = &mut ends[..parts];
        ends.fill(0);
        which.iter().for_each(|i| ends[part(i)] += 1);
        let mut begin = 0;
        for end in ends.iter_mut() {
            begin += std::mem::replace(end, begin);
        }
        for i in which {
            let end = &mut ends[part(i)];
            order[*end % BATCH] = *i;
            *end += 1;
        }
    }

    /// The parts that have packets, with those.
    fn parts(&self, parts: usize) -> impl Iterator<Item = (usize, &[u8])> {
        (0..parts).map(|part| (part, self.of(part))).filter(|(_, which)| !which.is_empty())
    }

    /// Packets of a part.
    fn of(&self, part: usize) -> &[u8] {
        let begin = part.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.order[begin..self.ends[part]]
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::super::workers_test::config;
    use super::super::{Core, Work};
    use super::*;
    use crate::frame::wire::protocol::UDP;
    use crate::frame::{Decision, Pool};

    const NETWORK: usize = 14;
    const FLOWS: u32 = 120;

    type Frame = [u8; 54];

    fn id(frame: &Frame) -> FlowId {
        packet::ends(frame, NETWORK, true).expect("it has ends").1
    }

    /// A packet of a flow: every third of TCP, some of UDP without a checksum.
    fn frame(flow: u32) -> Frame {
        let mut frame = [7; 54];
        let ip = &mut frame[NETWORK..];
        ip[..2].copy_from_slice(&[0x45, 0]);
        ip[2..4].copy_from_slice(&40_u16.to_be_bytes());
        ip[6..8].fill(0);
        ip[9] = if flow.is_multiple_of(3) { PROTOCOL_TCP } else { UDP };
        ip[12..16].copy_from_slice(&(0x0a00_0000 + flow / 2).to_be_bytes());
        ip[33] = 0x10;
        if flow % 3 == 1 {
            ip[26..28].fill(0);
        }
        ip[20..22].copy_from_slice(&u16::try_from(5 + flow % 2).unwrap().to_be_bytes());
        frame
    }

    /// A packet with other ends.
    fn rewritten(mut frame: Frame, to: FlowId) -> Frame {
        let from = id(&frame);
        packet::rewrite(&mut frame[NETWORK..], from, to, true);
        frame
    }

    /// What becomes of packets, and how many of them the stages leave to a closer look.
    fn sent(
        core: &Core,
        stages: &mut Stages,
        frames: &[Frame],
        now_ns: u64,
    ) -> (usize, Vec<(Decision, Frame)>) {
        let pool = Pool::new(256, 2048);
        let (mut batch, mut next) = (Batch::new(&pool), frames.iter());
        let filled = batch.fill(frames.len(), 54, |bytes| {
            bytes.copy_from_slice(next.next().expect("as many"));
        });
        assert_eq!(filled, frames.len());
        batch.meta_mut().iter_mut().for_each(|meta| meta.network = 14);
        let config = core.config.get().unwrap();
        let mut session = config.table.session();
        stages.run(config, &mut session, &mut batch, now_ns);
        assert!(stages.special.is_sorted());
        let special = stages.special.len();
        let mut work = Work { core, config, session, input: 0, now_ns };
        for i in std::mem::take(&mut stages.special) {
            let output = work.one(&mut batch, i, stages).expect("it is mapped");
            batch.output(i, output);
        }
        let out = |i| (batch.decision(i), *batch.bytes(i).first_chunk().unwrap());
        (special, (0..filled).map(out).collect())
    }

    #[test]
    fn known_flows_are_rewritten_in_stages_by_one_worker_and_by_several() {
        for workers in [1, 4] {
            let core = Core::default();
            assert!(core.config.set(config("1.0.0.1 1024-3023# - -", workers, 1 << 20)).is_ok());
            let mut stages = Stages::default();
            let frames: Vec<Frame> = (0..FLOWS).map(frame).collect();
            let all = FLOWS as usize;
            let mut left = Vec::new();
            for (now_ns, special) in (1..).zip([all, 0, all, 0]) {
                let sent = sent(&core, &mut stages, &frames, now_ns);
                assert_eq!(sent.0, special, "{workers} workers, at {now_ns}");
                let ends: HashSet<_> = sent.1.iter().map(|(_, frame)| id(frame)).collect();
                assert_eq!(ends.len(), all);
                assert!(now_ns == 1 || left == sent.1);
                left = sent.1;
            }
            let reply = |&(_, frame): &(_, Frame)| rewritten(frame, id(&frame).reverse());
            let mut both = frames.clone();
            both.extend(left.iter().map(reply));
            for (now_ns, special) in [(5, all), (6, 0), (7, 0)] {
                let sent = sent(&core, &mut stages, &both, now_ns);
                assert_eq!(sent.0, special, "{workers} workers, at {now_ns}");
                assert_eq!(sent.1[..all], left);
                for ((from, reply), left) in frames.iter().zip(&both[all..]).zip(&sent.1[all..]) {
                    let want = rewritten(*reply, id(from).reverse());
                    assert_eq!(*left, (Decision::Output(1), want));
                }
            }
            for ((from, _), left) in frames.iter().zip(&both).zip(&left) {
                assert_eq!(*left, (Decision::Output(0), rewritten(*from, id(&left.1))));
            }
            // Segments that end a flow, and all packets of those that have ended.
            let mut ends = frames.clone();
            ends.iter_mut().for_each(|frame| frame[NETWORK + 33] |= packet::FIN);
            assert_eq!(sent(&core, &mut stages, &ends, 8).0, all.div_ceil(3));
            assert_eq!(sent(&core, &mut stages, &frames, 9).0, 0);
            assert_eq!(sent(&core, &mut stages, &frames, 1009).0, all);
        }
    }

    #[test]
    fn packets_are_sorted_by_part_and_stay_in_order() {
        let mut sorted = Sorted::default();
        let some: Vec<u8> = (0..=u8::MAX).filter(|i| i % 3 != 0).collect();
        sorted.sort(8, &some, |i| i % 4 + 2);
        for part in 0..8 {
            let want = (0..=u8::MAX).filter(|&i| i % 3 != 0 && usize::from(i % 4) + 2 == part);
            assert_eq!(sorted.of(part), want.collect::<Vec<_>>());
        }
        sorted.sort(2, &[], |_| 0);
        assert_eq!((sorted.of(0).len(), sorted.of(1).len()), (0, 0));
    }
}
