//! Packets of known flows, a batch at a time in stages: what lookups read is prefetched for all of them, first of the
//! index, then of the flows, before the first one is rewritten.
//!
//! Of a table in several parts a batch takes each lock once for all of its packets there: they are sorted by the part whose
//! index has their key, and those whose flow is in another part, as most replies are, once more by that. Cost: a packet
//! reads a line of the index and one of its flow, which it writes; a batch takes two locks a part at most.

use super::packet::{self, plain_ends};
use super::pattern::FlowId;
use super::table::{MOST_PARTS, Number, Parts, Session, Shard};
use super::{Config, PROTOCOL_TCP};
use crate::frame::{BATCH, Batch, Hop, View};

/// What is known of a packet before the first of its batch is looked up.
#[derive(Clone, Copy)]
pub(super) struct Ahead {
    /// Hash of its key.
    pub(super) hash: u64,
    /// Its ends, as [`FlowId::words`].
    addrs: u64,
    ports: u32,
    /// Where the index has its key.
    slots: u32,
    /// The number that is most likely its flow's.
    number: Number,
    /// For a plain packet (see [`plain_ends`]) [`super::Key::kind`], else its protocol and a mark that no flow has.
    kind: u32,
}

/// Mark of a packet that is not plain.
const OTHER: u32 = 1 << 24;
/// Mark of a packet without ends that the rewriter changes.
const NOTHING: u32 = 2 << 24;

impl Ahead {
    const NOTHING: Self =
        Self { hash: 0, addrs: 0, ports: 0, slots: 0, number: Number::NONE, kind: NOTHING };

    fn is_plain(&self) -> bool {
        self.kind < OTHER
    }

    #[inline(always)]
    fn protocol(&self) -> u8 {
        self.kind.to_le_bytes()[0]
    }

    /// Protocol and ends of the packet, if the rewriter changes such.
    pub(super) fn known(&self) -> Option<(u8, FlowId)> {
        let ends = || (self.protocol(), FlowId::of_words((self.addrs, self.ports)));
        (self.kind < NOTHING).then(ends)
    }
}

/// The stages, with room for a batch.
pub(super) struct Stages {
    pub(super) ahead: Box<[Ahead; BATCH]>,
    sorted: Box<Sorted>,
    /// Packets whose flow is in another part than their key.
    elsewhere: Vec<usize>,
    /// Packets that are to be looked at more closely, in order.
    pub(super) special: Vec<usize>,
}

impl Default for Stages {
    fn default() -> Self {
        Self {
            ahead: Box::new([Ahead::NOTHING; BATCH]),
            sorted: Box::default(),
            elsewhere: Vec::with_capacity(BATCH),
            special: Vec::with_capacity(BATCH),
        }
    }
}

impl Stages {
    /// Rewrites the plain packets of known flows, which nearly all are, and chooses their outputs. The others are in
    /// `special` then, with nothing changed.
    pub(super) fn run(
        &mut self,
        config: &Config,
        session: &mut Session<'_>,
        batch: &mut Batch,
        now_ns: u64,
    ) {
        let Self { ahead, sorted, elsewhere, special } = self;
        let parts = session.parts();
        let len = batch.len().min(BATCH);
        if parts == Parts::ONE {
            let shard = session.shard(0);
            read(ahead, config, batch, |one| one.slots = shard.slots(one.hash));
            number(ahead, shard, 0..len, Parts::ONE);
            let stage = Rewrite { config, shard, parts: Parts::ONE, now_ns };
            return stage.each(ahead, batch, 0..len, special);
        }
        read(ahead, config, batch, |_| ());
        special.extend((0..len).filter(|&i| !ahead[i].is_plain()));
        let plain = (0..len).filter(|&i| ahead[i].is_plain());
        sorted.sort(parts.count(), plain, |i| parts.of(ahead[i].hash));
        for part in 0..parts.count() {
            let which = sorted.of(part);
            if which.len() == 0 {
                continue;
            }
            let shard = session.shard(part);
            which.clone().for_each(|i| ahead[i].slots = shard.slots(ahead[i].hash));
            number(ahead, shard, which.clone(), parts);
            let is_here = |&i: &usize| ahead[i].number.part(parts) == part;
            elsewhere.extend(which.clone().filter(|i| !is_here(i)));
            let stage = Rewrite { config, shard, parts, now_ns };
            stage.each(ahead, batch, which.filter(is_here), special);
        }
        sorted.sort(parts.count(), elsewhere.drain(..), |i| ahead[i].number.part(parts));
        for part in 0..parts.count() {
            let which = sorted.of(part);
            if which.len() == 0 {
                continue;
            }
            let shard = session.shard(part);
            which.clone().for_each(|i| shard.ahead(ahead[i].number, parts));
            Rewrite { config, shard, parts, now_ns }.each(ahead, batch, which, special);
        }
        // So that packets behind the first one of a new flow find it.
        special.sort_unstable();
    }
}

/// Reads the ends of all packets, and hands on what is known of the plain ones.
#[inline(always)]
fn read(
    ahead: &mut [Ahead; BATCH],
    config: &Config,
    batch: &mut Batch,
    mut plain: impl FnMut(&mut Ahead),
) {
    let (table, [udp, tcp]) = (&*config.table, config.plain());
    let owner = u32::from(config.owner) << 8;
    batch.each(|i, one| {
        let network = one.meta.network.into();
        match plain_ends(one.frame, network) {
            Some((protocol, ends)) if if protocol == PROTOCOL_TCP { tcp } else { udp } => {
                let kind = owner | u32::from(protocol);
                let (hash, (addrs, ports)) = (table.hash_of(kind, ends), ends);
                let read = &mut ahead[i];
                *read = Ahead { hash, addrs, ports, kind, ..Ahead::NOTHING };
                plain(read);
            }
            _ => ahead[i] = other(config, one.frame, network),
        }
    });
}

/// What is known of a packet that is not plain.
#[inline(never)]
fn other(config: &Config, frame: &[u8], network: usize) -> Ahead {
    let read = packet::ends(frame, network, config.kind.has_ports());
    match read.filter(|(protocol, _)| config.kind.is_for(*protocol)) {
        Some((protocol, id)) => {
            let (hash, (addrs, ports)) = (config.table.hash(&config.key(protocol, id)), id.words());
            Ahead { hash, addrs, ports, kind: OTHER | u32::from(protocol), ..Ahead::NOTHING }
        }
        None => Ahead::NOTHING,
    }
}

/// Reads the numbers of flows from the index of a part, and prefetches those that are in it.
#[inline(always)]
fn number(
    ahead: &mut [Ahead; BATCH],
    shard: &Shard,
    which: impl Iterator<Item = usize>,
    parts: Parts,
) {
    for i in which {
        let one = &mut ahead[i];
        one.number = shard.number(one.slots, one.hash);
        // A place of another part may be one of this, which does no harm.
        shard.ahead(one.number, parts);
    }
}

/// The last stage, with a part of the table.
struct Rewrite<'a> {
    config: &'a Config,
    shard: &'a mut Shard,
    parts: Parts,
    now_ns: u64,
}

impl Rewrite<'_> {
    #[inline(always)]
    fn each(
        mut self,
        ahead: &[Ahead; BATCH],
        batch: &mut Batch,
        which: impl Iterator<Item = usize>,
        special: &mut Vec<usize>,
    ) {
        batch.each_of(which, |i, mut one| match self.one(&mut one, &ahead[i]) {
            // Outputs of flows are the rewriter's: it has read them.
            Some(output) => one.output(output),
            None => special.push(i),
        });
    }

    /// Output of a plain packet of a known flow, which is rewritten. `None` leaves it to a closer look, with nothing changed.
    #[inline(always)]
    fn one(&mut self, one: &mut View<'_>, ahead: &Ahead) -> Option<u16> {
        let Self { config, ref mut shard, parts, now_ns } = *self;
        let (number, ends) = (ahead.number, (ahead.addrs, ahead.ports));
        let flow = shard.known((number, parts), ahead.kind, ends, now_ns)?;
        let reply = number.is_reply();
        let output = config.outputs.get(usize::from(flow.input))?[usize::from(reply)];
        let ip = one.frame.get_mut(usize::from(one.meta.network)..)?;
        let to = flow.to_words(reply);
        if !packet::rewrite_plain(ip, ahead.protocol(), to, flow.sums, reply) {
            return None;
        }
        flow.pass(now_ns);
        // The route is that of the new destination.
        one.meta.hop = Hop::NONE;
        if reply && config.reply_paint {
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

impl Default for Sorted {
    fn default() -> Self {
        Self { order: [0; BATCH], ends: [0; MOST_PARTS] }
    }
}

impl Sorted {
    fn sort(
        &mut self,
        parts: usize,
        which: impl Iterator<Item = usize>,
        part: impl Fn(usize) -> usize,
    ) {
        let Self { order, ends } = self;
        let ends = &mut ends[..parts];
        ends.fill(0);
        let (mut all, mut count) = ([(0, 0); BATCH], 0);
        for (i, place) in which.zip(&mut all) {
            let part = part(i);
            *place = (i, part);
            ends[part] += 1;
            count += 1;
        }
        let mut begin = 0;
        for end in ends.iter_mut() {
            begin += std::mem::replace(end, begin);
        }
        for &(i, part) in &all[..count] {
            order[ends[part]] = u8::try_from(i).unwrap_or(u8::MAX);
            ends[part] += 1;
        }
    }

    /// Packets of a part.
    fn of(&self, part: usize) -> impl ExactSizeIterator<Item = usize> + Clone + '_ {
        let begin = part.checked_sub(1).map_or(0, |before| self.ends[before]);
        self.order[begin..self.ends[part]].iter().map(|&i| usize::from(i))
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
        for i in stages.special.drain(..) {
            let output = work.one(&mut batch, i, &stages.ahead[i]).expect("it is mapped");
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
        sorted.sort(8, (0..BATCH).filter(|i| i % 3 != 0), |i| i % 4 + 2);
        let of = |part| sorted.of(part).collect::<Vec<_>>();
        for part in 0..8 {
            let want = (0..BATCH).filter(|i| i % 3 != 0 && i % 4 + 2 == part);
            assert_eq!(of(part), want.collect::<Vec<_>>());
        }
        sorted.sort(2, std::iter::empty(), |_| 0);
        assert_eq!((sorted.of(0).len(), sorted.of(1).len()), (0, 0));
    }

    #[test]
    fn what_is_known_of_a_packet_is_half_a_line() {
        assert_eq!(size_of::<Ahead>(), 32);
    }
}
