//! Packets of which something is missing: what has come of each, where it belongs, and which is the oldest.
//!
//! Source: RFC 791, 3.2. What has come is noted in a map of units of 8 bytes rather than in RFC 815's list of holes, so that
//! its size is known. The fragment that comes first keeps its frame, and the payload of the others is copied into it.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::net::Ipv4Addr;
use std::ops::Range;

use crate::frame::wire::ip4::FRAGMENT_OFFSET;
use crate::frame::{Batch, FLAG_GENERATED, Meta, Packet};
use crate::graph::Held;

/// What the fragments of a packet have in common (RFC 791, 3.2).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(super) struct Key {
    pub(super) src: u32,
    pub(super) dst: u32,
    pub(super) id: u16,
    pub(super) protocol: u8,
}

/// Where a fragment belongs.
#[derive(Clone, Copy)]
pub(super) struct Piece {
    pub(super) key: Key,
    /// Bytes before its payload in the frame, link header included.
    pub(super) front: usize,
    /// Offset in the packet's payload.
    pub(super) offset: usize,
    pub(super) len: usize,
    pub(super) more: bool,
    pub(super) ecn: u8,
    /// Its whole length.
    pub(super) total: u16,
}

/// No place.
pub(super) const NIL: u16 = u16::MAX;
/// Bytes that offsets count.
pub(super) const UNIT: usize = 8;
/// Words of a map of all units that an offset can hold.
const WORDS: usize = (FRAGMENT_OFFSET as usize + 1) / 64;

/// When something came: by the worker's clock, and by the time that the packet has, or that of the day.
#[derive(Clone, Copy, Default)]
pub(super) struct Moment {
    pub(super) now_ns: u64,
    pub(super) stamp_ns: i64,
}

/// A packet of which something is missing.
pub(super) struct Place {
    key: Key,
    /// The frame; none when the packet was refused.
    pub(super) packet: Option<Packet>,
    /// Bytes before the payload in the frame.
    pub(super) front: usize,
    /// End of the payload so far: that of the last fragment, where it has come.
    pub(super) end: usize,
    pub(super) last_seen: bool,
    /// Payload of the first fragment; 0 before it has come.
    first: usize,
    /// Units that have come.
    units: usize,
    map: [u64; WORDS],
    /// ECN codepoints of its fragments, a bit each.
    pub(super) ecn: u8,
    /// Length of the longest of its fragments.
    pub(super) longest: u16,
    pub(super) since: Moment,
    /// The next older and the next younger one; of a free place the next free one.
    older: u16,
    younger: u16,
}

/// All of them: a hash table, and a list by age.
pub(super) struct Store {
    places: Box<[Place]>,
    known: HashMap<Key, u16>,
    free: u16,
    oldest: u16,
    youngest: u16,
    held: Held,
}

impl Default for Store {
    /// One without places.
    fn default() -> Self {
        Self::new(0)
    }
}

impl Store {
    pub(super) fn new(places: u16) -> Self {
        let place = |at: u16| Place {
            key: Key::default(),
            packet: None,
            front: 0,
            end: 0,
            last_seen: false,
            first: 0,
            units: 0,
            map: [0; WORDS],
            ecn: 0,
            longest: 0,
            since: Moment::default(),
            older: NIL,
            younger: if at + 1 < places { at + 1 } else { NIL },
        };
        Self {
            places: (0..places).map(place).collect(),
            known: HashMap::with_capacity(places.into()),
            free: if places == 0 { NIL } else { 0 },
            oldest: NIL,
            youngest: NIL,
            held: Held::default(),
        }
    }

    pub(super) fn at(&mut self, at: u16) -> &mut Place {
        &mut self.places[usize::from(at)]
    }

    /// Place of a packet, where it is known.
    pub(super) fn find(&self, key: &Key) -> Option<u16> {
        self.known.get(key).copied()
    }

    /// Packets in it.
    pub(super) fn len(&self) -> usize {
        self.known.len()
    }

    /// Frames in it.
    pub(super) fn held(&self) -> Held {
        self.held
    }

    /// Place of the packet that has waited longest; `NIL` where there is none.
    pub(super) fn oldest(&self) -> u16 {
        self.oldest
    }

    pub(super) fn is_full(&self) -> bool {
        self.free == NIL
    }

    /// A place for a packet that is not known; there is a free one.
    pub(super) fn open(&mut self, key: Key, since: Moment) -> u16 {
        let (at, older) = (self.free, self.youngest);
        let place = self.at(at);
        let next = std::mem::replace(&mut place.younger, NIL);
        (place.key, place.since, place.older) = (key, since, older);
        (place.front, place.end, place.first, place.units) = (0, 0, 0, 0);
        (place.last_seen, place.ecn, place.longest) = (false, 0, 0);
        place.map.fill(0);
        self.free = next;
        if older == NIL {
            self.oldest = at;
        } else {
            self.at(older).younger = at;
        }
        self.youngest = at;
        self.known.insert(key, at);
        at
    }

    /// Forgets a packet, and gives its frame.
    pub(super) fn close(&mut self, at: u16) -> Option<Packet> {
        let free = self.free;
        let place = self.at(at);
        let (key, older) = (place.key, place.older);
        let younger = std::mem::replace(&mut place.younger, free);
        self.free = at;
        self.known.remove(&key);
        match older {
            NIL => self.oldest = younger,
            older => self.at(older).younger = younger,
        }
        match younger {
            NIL => self.youngest = older,
            younger => self.at(younger).older = older,
        }
        self.release(at)
    }

    /// Keeps a frame.
    pub(super) fn hold(&mut self, at: u16, packet: Packet) {
        self.held.add(packet.meta.flags & FLAG_GENERATED != 0);
        self.at(at).packet = Some(packet);
    }

    /// Gives the frame of a packet.
    pub(super) fn release(&mut self, at: u16) -> Option<Packet> {
        let packet = self.at(at).packet.take()?;
        self.held.remove(packet.meta.flags & FLAG_GENERATED != 0);
        Some(packet)
    }

    /// A line for each packet, as `dump` of Click has them: flow, identification, and runs of bytes that have come. They are in
    /// the order of Click's 256 lists, of which the high byte of the identification names one, each with the youngest first.
    pub(super) fn dump(&self) -> String {
        let (mut lines, mut at) = (Vec::with_capacity(self.len()), self.youngest);
        while at != NIL {
            let place = &self.places[usize::from(at)];
            lines.extend(place.line().map(|line| (place.key.id >> 8, line)));
            at = place.older;
        }
        lines.sort_by_key(|&(list, _)| list);
        lines.into_iter().map(|(_, line)| line).collect()
    }
}

/// What comes of a fragment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fit {
    /// It fills a gap.
    New,
    /// It is there already, byte by byte.
    Known,
    /// It contradicts what has come.
    Wrong,
}

impl Place {
    /// How a fragment fits what has come.
    pub(super) fn fit(&self, piece: &Piece, payload: &[u8]) -> Fit {
        let end = piece.offset + piece.len;
        // The last fragment says where the packet ends.
        if self.last_seen && end > self.end || !piece.more && end < self.end {
            return Fit::Wrong;
        }
        match units(piece).filter(|&unit| self.has(unit)).count() {
            0 => Fit::New,
            count if count == units(piece).len() && self.payload(piece) == Some(payload) => {
                Fit::Known
            }
            _ => Fit::Wrong,
        }
    }

    fn has(&self, unit: usize) -> bool {
        self.map[unit / 64] & 1 << (unit % 64) != 0
    }

    /// What has come where a fragment belongs.
    fn payload(&self, piece: &Piece) -> Option<&[u8]> {
        let at = self.front + piece.offset;
        self.packet.as_ref()?.bytes().get(at..at + piece.len)
    }

    /// Takes packet `i` of a batch, a fragment that fills a gap. `false` where it does not fit the frame: the packet is of
    /// no use then.
    pub(super) fn add(&mut self, piece: &Piece, batch: &Batch, i: usize) -> bool {
        let Some(packet) = &mut self.packet else { return false };
        let (frame, meta) = (batch.bytes(i), batch.meta()[i]);
        if piece.offset == 0 {
            if !set_front(packet, self.front, &frame[..piece.front]) {
                return false;
            }
            self.front = piece.front;
            // It stays received or of our own making, as it is counted.
            let generated = packet.meta.flags & FLAG_GENERATED;
            let flags = meta.flags & !FLAG_GENERATED | generated;
            packet.meta = Meta { flags, annotated: false, ..meta };
        }
        let (at, end) = (self.front + piece.offset, self.end.max(piece.offset + piece.len));
        if !packet.set_len(self.front + end) {
            return false;
        }
        let payload = &frame[piece.front..piece.front + piece.len];
        packet.bytes_mut()[at..at + piece.len].copy_from_slice(payload);
        if piece.offset == 0
            && let Some(from) = batch.annotations(i)
            && let Some(to) = packet.annotations_mut()
        {
            *to = *from;
        }
        self.note(piece);
        true
    }

    /// Notes a fragment that fills a gap, whose payload is in place.
    pub(super) fn note(&mut self, piece: &Piece) {
        for unit in units(piece) {
            self.map[unit / 64] |= 1 << (unit % 64);
        }
        self.units += units(piece).len();
        self.end = self.end.max(piece.offset + piece.len);
        self.last_seen |= !piece.more;
        self.ecn |= 1 << piece.ecn;
        self.longest = self.longest.max(piece.total);
        if piece.offset == 0 {
            self.first = piece.len;
        }
    }

    pub(super) fn is_complete(&self) -> bool {
        self.last_seen && self.units == self.end.div_ceil(UNIT)
    }

    /// Units that have come, in runs.
    fn runs(&self) -> impl Iterator<Item = Range<usize>> {
        let last = self.end.div_ceil(UNIT);
        let mut next = 0;
        std::iter::from_fn(move || {
            let start = (next..last).find(|&unit| self.has(unit))?;
            next = (start..last).find(|&unit| !self.has(unit)).unwrap_or(last);
            Some(start..next)
        })
    }

    /// Bytes of a run.
    fn bytes(&self, run: &Range<usize>) -> Range<usize> {
        run.start * UNIT..(run.end * UNIT).min(self.end)
    }

    /// Fills the gaps between what has come with zeros, and cuts the one before off. Its bytes.
    pub(super) fn close_gaps(&mut self) -> usize {
        let runs: Vec<_> = self.runs().map(|run| self.bytes(&run)).collect();
        let (front, before) = (self.front, runs.first().map_or(0, |run| run.start));
        let Some(packet) = &mut self.packet else { return 0 };
        let bytes = &mut packet.bytes_mut()[front..];
        for gap in runs.windows(2) {
            bytes[gap[0].end..gap[1].start].fill(0);
        }
        bytes.copy_within(before.., 0);
        let len = front + bytes.len() - before;
        let fits = packet.set_len(len);
        debug_assert!(fits, "it is shorter than what it was");
        before
    }

    /// Line of the packet in a dump; `None` of one that was refused.
    fn line(&self) -> Option<String> {
        let payload = self.packet.as_ref()?.bytes().get(self.front..)?;
        let port = |at: usize| match payload.get(at..at + 2) {
            Some(&[high, low]) if self.first > 0 => u16::from_be_bytes([high, low]),
            _ => 0,
        };
        let [src, dst] = [self.key.src, self.key.dst].map(Ipv4Addr::from_bits);
        let mut line = format!(" ({src}, {}, {dst}, {}) {}", port(0), port(2), self.key.id);
        for run in self.runs() {
            let Range { start, end } = self.bytes(&run);
            write!(line, " ({start},{end})").expect("a text takes all");
        }
        line.push('\n');
        Some(line)
    }
}

/// The units that a fragment covers.
fn units(piece: &Piece) -> Range<usize> {
    piece.offset / UNIT..(piece.offset + piece.len).div_ceil(UNIT)
}

/// Makes the frame of the fragment that came first that of the packet: its payload moves to where it belongs.
pub(super) fn begin(packet: &mut Packet, piece: &Piece) -> bool {
    let Piece { front, offset, len, .. } = *piece;
    if !packet.set_len(front + offset + len) {
        return false;
    }
    packet.bytes_mut().copy_within(front..front + len, front + offset);
    true
}

/// Puts the headers of the first fragment before the payload, in place of others.
fn set_front(packet: &mut Packet, front: usize, new: &[u8]) -> bool {
    let (more, less) = (new.len().saturating_sub(front), front.saturating_sub(new.len()));
    // Headers of 75 bytes at most.
    let bytes = |bytes: usize| u16::try_from(bytes).unwrap_or(u16::MAX);
    if !packet.push_front(bytes(more)) || !packet.pull_front(bytes(less)) {
        return false;
    }
    packet.bytes_mut()[..new.len()].copy_from_slice(new);
    true
}
