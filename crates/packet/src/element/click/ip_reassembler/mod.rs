//! Puts the fragments of IPv4 packets together again: `IPReassembler`.
//!
//! Source: Click's `IPReassembler`; RFC 791, 3.2, RFC 1122, 3.3.2; what has come is noted in a map of units of 8 bytes
//! rather than in RFC 815's list of holes, so that its size is known. Whole packets pass. The fragment of a packet
//! that comes first keeps its frame, and gets the payload of the others; when all is there the packet leaves by
//! output 0 with the header of its first fragment, and what is known of that. A packet must fit a frame.
//!
//! A packet that is not complete after `TIMEOUT` (30 seconds) leaves by output 1, where it is used, as its first
//! fragment came, for `ICMPError(ADDR, timeexceeded, reassembly)`; without first fragment it is dropped. At most
//! `HIMEM` bytes (262,144, of which each packet takes 2,048) are kept; the oldest packet makes room.
//!
//! `MAX_MTU_ANNO` names an annotation of two bytes for the length of the longest fragment of a packet.
//!
//! A fragment that overlaps others is dropped with its packet, and all that comes of it later (RFC 5722, which Linux
//! applies to IPv4 as well); one that is there already is ignored. Congestion that a fragment met its packet met (RFC
//! 3168, 5.3).
//!
//! Cost: a hash table, a copy of each fragment's payload but one; nothing is allocated after the start.

use std::any::Any;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use crate::element::support::byte_anno::WordAnno;
use crate::element::support::time::nanoseconds;
use crate::frame::counters::{Count, PerWorker};
use crate::frame::wire::checksum::checksum;
use crate::frame::wire::ip4::{FRAGMENT_OFFSET, MORE_FRAGMENTS};
use crate::frame::wire::{Ip4, Ip4Mut};
use crate::frame::{Batch, DropReason, FLAG_GENERATED, Meta, Packet};
use crate::graph::{Context, Element, ElementClass, Exit, Held, Inputs, Made};
use crate::handler::Handler;
use crate::language::ClassSpec;

pub(crate) const CLASS: ElementClass = ElementClass {
    spec: ClassSpec::new("IPReassembler", "1/1-2", "h/h", "x/x").outputs(&["out", "incomplete"]),
    summary: "puts the fragments of IPv4 packets together",
    configure: |setup| {
        let bytes = setup.args.keyword::<u32>("HIMEM");
        let timeout = setup.args.keyword::<Duration>("TIMEOUT");
        let noted = setup.args.keyword_arg("MAX_MTU_ANNO")?;
        setup.args.finish()?;
        let noted = noted.map(|arg| WordAnno::read(setup, &arg, "MAX_MTU_ANNO")).transpose()?;
        let places = (bytes?.unwrap_or(HIMEM) / PLACE_BYTES).clamp(1, MOST_PLACES);
        let places = u16::try_from(places).expect("clamped");
        let timeout_ns = nanoseconds(timeout?.unwrap_or(TIMEOUT));
        let exit = setup.exit(1, DropReason::Incomplete);
        let counts = setup.keep::<PerWorker<Counts>>();
        let read = |name, value: fn(&Counts) -> u64| {
            let counts = counts.clone();
            Handler::read(name, move || counts.sum(value).to_string())
        };
        let handlers = [
            read("length", |counts| counts.length.read()),
            read("reassembled", |counts| counts.reassembled.read()),
            read("drops", |counts| counts.drops.read()),
        ];
        let made = Made::new(move |instance| IpReassembler {
            timeout_ns,
            noted,
            exit,
            store: Store::new(places),
            counts: counts.add(instance),
        });
        let made = made.polled().holds(places.into());
        Ok(handlers.into_iter().fold(made, Made::handler))
    },
};

/// Click's.
const HIMEM: u32 = 256 * 1024;
/// What a packet counts for: a usual frame.
const PLACE_BYTES: u32 = 2048;
/// Packets at most, in 64 MiB of maps.
const MOST_PLACES: u32 = 65_534;
/// Click's and Linux's; RFC 1122 would wait a minute.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Packets looked at in a round for their age.
const TURNS: usize = 16;

#[derive(Default)]
struct Counts {
    /// Packets that are not complete.
    length: Count,
    reassembled: Count,
    /// Fragments that ended, but for those that became part of a packet.
    drops: Count,
}

/// What the fragments of a packet have in common (RFC 791, 3.2).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
struct Key {
    src: u32,
    dst: u32,
    id: u16,
    protocol: u8,
}

/// Where a fragment belongs.
#[derive(Clone, Copy)]
struct Piece {
    key: Key,
    /// Bytes before its payload in the frame, link header included.
    front: usize,
    /// Offset in the packet's payload.
    offset: usize,
    len: usize,
    more: bool,
    ecn: u8,
    /// Its whole length.
    total: u16,
}

/// No place.
const NIL: u16 = u16::MAX;
/// Bytes that offsets count.
const UNIT: usize = 8;
/// Words of a map of all units that an offset can hold.
const WORDS: usize = (FRAGMENT_OFFSET as usize + 1) / 64;

/// A packet of which something is missing.
struct Place {
    key: Key,
    /// The frame; none when the packet was refused.
    packet: Option<Packet>,
    /// Bytes before the payload in the frame.
    front: usize,
    /// End of the payload so far: that of the last fragment, where it has come.
    end: usize,
    last_seen: bool,
    /// Payload of the first fragment; 0 before it has come.
    first: usize,
    /// Units that have come.
    units: usize,
    map: [u64; WORDS],
    /// ECN codepoints of its fragments, a bit each.
    ecn: u8,
    /// Length of the longest of its fragments.
    longest: u16,
    since_ns: u64,
    /// The next older and the next younger one; of a free place the next free one.
    older: u16,
    younger: u16,
}

/// All of them: a hash table, and a list by age.
struct Store {
    places: Box<[Place]>,
    known: HashMap<Key, u16>,
    free: u16,
    oldest: u16,
    youngest: u16,
    held: Held,
}

impl Store {
    fn new(places: u16) -> Self {
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
            since_ns: 0,
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

    fn at(&mut self, at: u16) -> &mut Place {
        &mut self.places[usize::from(at)]
    }

    /// A place for a packet that is not known; there is a free one.
    fn open(&mut self, key: Key, now_ns: u64) -> u16 {
        let (at, older) = (self.free, self.youngest);
        let place = self.at(at);
        let next = std::mem::replace(&mut place.younger, NIL);
        (place.key, place.since_ns, place.older) = (key, now_ns, older);
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
    fn close(&mut self, at: u16) -> Option<Packet> {
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
    fn hold(&mut self, at: u16, packet: Packet) {
        self.held.add(packet.meta.flags & FLAG_GENERATED != 0);
        self.at(at).packet = Some(packet);
    }

    /// Gives the frame of a packet.
    fn release(&mut self, at: u16) -> Option<Packet> {
        let packet = self.at(at).packet.take()?;
        self.held.remove(packet.meta.flags & FLAG_GENERATED != 0);
        Some(packet)
    }
}

/// What comes of a fragment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fit {
    /// It fills a gap.
    New,
    /// It is there already, byte by byte.
    Known,
    /// It contradicts what has come.
    Wrong,
}

impl Place {
    /// How a fragment fits what has come.
    fn fit(&self, piece: &Piece, payload: &[u8]) -> Fit {
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

    /// Takes a fragment that fills a gap. `false` where it does not fit the frame: the packet is of no use then.
    fn add(&mut self, piece: &Piece, frame: &[u8], meta: &Meta) -> bool {
        let Some(packet) = &mut self.packet else { return false };
        if piece.offset == 0 {
            if !set_front(packet, self.front, &frame[..piece.front]) {
                return false;
            }
            self.front = piece.front;
            // It stays received or of our own making, as it is counted.
            let generated = packet.meta.flags & FLAG_GENERATED;
            let flags = meta.flags & !FLAG_GENERATED | generated;
            packet.meta = Meta { flags, ..*meta };
        }
        let (at, end) = (self.front + piece.offset, self.end.max(piece.offset + piece.len));
        if !packet.set_len(self.front + end) {
            return false;
        }
        let payload = &frame[piece.front..piece.front + piece.len];
        packet.bytes_mut()[at..at + piece.len].copy_from_slice(payload);
        self.note(piece);
        true
    }

    /// Notes a fragment that fills a gap, whose payload is in place.
    fn note(&mut self, piece: &Piece) {
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

    fn is_complete(&self) -> bool {
        self.last_seen && self.units == self.end.div_ceil(UNIT)
    }
}

/// The units that a fragment covers.
fn units(piece: &Piece) -> std::ops::Range<usize> {
    piece.offset / UNIT..(piece.offset + piece.len).div_ceil(UNIT)
}

/// Makes the frame of the fragment that came first that of the packet: its payload moves to where it belongs.
fn begin(packet: &mut Packet, piece: &Piece) -> bool {
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

/// The header of a packet that is whole. `false` where its fragments contradict each other about congestion.
fn finish(packet: &mut Packet, len: usize, ecn: u8) -> bool {
    let network = usize::from(packet.meta.network);
    let Some(mut ip) = Ip4Mut::at(packet.bytes_mut(), network) else { return false };
    let (header, word, class) =
        (ip.view().header_len(), ip.view().fragment(), ip.view().traffic_class());
    let Ok(total) = u16::try_from(header + len) else { return false };
    const NONE: u8 = 1;
    const MET: u8 = 1 << 3;
    if ecn & MET != 0 {
        if ecn & NONE != 0 {
            return false;
        }
        ip.set_traffic_class(class | 3);
    }
    ip.set_total_len(total);
    ip.set_fragment(word & !(MORE_FRAGMENTS | FRAGMENT_OFFSET));
    ip.set_checksum(0);
    let bytes = packet.bytes_mut();
    let sum = checksum(&bytes[network..network + header]);
    if let Some(mut ip) = Ip4Mut::at(bytes, network) {
        ip.set_checksum(sum);
    }
    true
}

/// What a packet is.
enum Seen {
    Whole,
    Fragment(Piece),
    /// A fragment that makes no sense.
    Bad(DropReason),
}

fn look(frame: &[u8], meta: &Meta) -> Seen {
    let network = usize::from(meta.network);
    let Some(ip) = Ip4::at(frame, network).filter(|ip| ip.version() == 4) else {
        return Seen::Whole;
    };
    if !ip.is_fragment() {
        return Seen::Whole;
    }
    let (header, total) = (ip.header_len(), ip.total_len());
    if header < 20 || total <= header || frame.len() < network + total {
        return Seen::Bad(DropReason::BadLength);
    }
    let (len, more) = (total - header, ip.fragment() & MORE_FRAGMENTS != 0);
    let offset = usize::from(ip.fragment() & FRAGMENT_OFFSET) * UNIT;
    if more && !len.is_multiple_of(UNIT) || header + offset + len > usize::from(u16::MAX) {
        return Seen::Bad(DropReason::BadFragment);
    }
    let key = Key { src: ip.src(), dst: ip.dst(), id: ip.id(), protocol: ip.protocol() };
    let (front, ecn) = (network + header, ip.traffic_class() & 3);
    let total = u16::try_from(total).unwrap_or(u16::MAX);
    Seen::Fragment(Piece { key, front, offset, len, more, ecn, total })
}

struct IpReassembler {
    timeout_ns: u64,
    /// Annotation for the length of a packet's longest fragment.
    noted: Option<WordAnno>,
    exit: Exit,
    store: Store,
    counts: Arc<Counts>,
}

impl IpReassembler {
    /// Ends the packet at a place, which a new one is to take or which has waited too long.
    fn give_up(&mut self, at: u16, late: bool, cx: &mut Context<'_>) {
        let Place { front, first, .. } = *self.store.at(at);
        let Some(mut packet) = self.store.close(at) else { return };
        self.counts.drops.add(1);
        if late && first > 0 && packet.set_len(front + first) {
            self.exit.emit(packet, cx);
        } else {
            cx.drop_packet(packet, DropReason::Incomplete);
        }
    }

    /// Ends what has come of a packet, and remembers that it did.
    fn refuse(&mut self, at: u16, reason: DropReason, cx: &mut Context<'_>) {
        if let Some(packet) = self.store.release(at) {
            self.counts.drops.add(1);
            cx.drop_packet(packet, reason);
        }
    }

    /// What becomes of a fragment.
    fn fragment(&mut self, piece: &Piece, batch: &mut Batch, i: usize, cx: &mut Context<'_>) {
        let end = |this: &Self, batch: &mut Batch, reason| {
            this.counts.drops.add(1);
            batch.discard(i, reason);
        };
        let Some(&at) = self.store.known.get(&piece.key) else {
            if self.store.free == NIL {
                self.give_up(self.store.oldest, false, cx);
            }
            let at = self.store.open(piece.key, cx.now_ns);
            let mut packet = batch.take(i);
            if begin(&mut packet, piece) {
                self.store.hold(at, packet);
                let place = self.store.at(at);
                place.front = piece.front;
                place.note(piece);
            } else {
                // Longer than a frame; so nothing of it is of use.
                self.counts.drops.add(1);
                cx.drop_packet(packet, DropReason::Incomplete);
            }
            return;
        };
        let (frame, meta) = (batch.bytes(i), batch.meta()[i]);
        let place = self.store.at(at);
        match place.fit(piece, &frame[piece.front..piece.front + piece.len]) {
            // Of a packet that was refused nothing is taken.
            _ if place.packet.is_none() => end(self, batch, DropReason::BadFragment),
            Fit::Known => end(self, batch, DropReason::Consumed),
            Fit::Wrong => {
                end(self, batch, DropReason::BadFragment);
                self.refuse(at, DropReason::BadFragment, cx);
            }
            Fit::New if place.add(piece, frame, &meta) => {
                batch.discard(i, DropReason::Consumed);
                if place.is_complete() {
                    self.complete(at, cx);
                }
            }
            Fit::New => {
                end(self, batch, DropReason::Incomplete);
                self.refuse(at, DropReason::Incomplete, cx);
            }
        }
    }

    /// Sends a packet on.
    fn complete(&mut self, at: u16, cx: &mut Context<'_>) {
        let Place { end, ecn, longest, .. } = *self.store.at(at);
        let Some(mut packet) = self.store.close(at) else { return };
        if finish(&mut packet, end, ecn) {
            if let Some(noted) = self.noted {
                noted.set_packet(&mut packet, longest);
            }
            self.counts.reassembled.add(1);
            cx.emit(0, packet);
        } else {
            self.counts.drops.add(1);
            cx.drop_packet(packet, DropReason::BadFragment);
        }
    }

    fn count_length(&self) {
        self.counts.length.set(self.store.known.len() as u64);
    }
}

impl Element for IpReassembler {
    fn process(&mut self, _: u16, batch: &mut Batch, cx: &mut Context<'_>) {
        for i in 0..batch.len() {
            match look(batch.bytes(i), &batch.meta()[i]) {
                Seen::Whole => {}
                Seen::Fragment(piece) => self.fragment(&piece, batch, i, cx),
                Seen::Bad(reason) => {
                    self.counts.drops.add(1);
                    batch.discard(i, reason);
                }
            }
        }
        self.count_length();
    }

    fn poll(&mut self, _: &mut Batch, _: &mut dyn Inputs, cx: &mut Context<'_>) {
        for _ in 0..TURNS {
            let at = self.store.oldest;
            let old = |place: &Place| cx.now_ns.saturating_sub(place.since_ns) >= self.timeout_ns;
            if at == NIL || !old(&self.store.places[usize::from(at)]) {
                break;
            }
            self.give_up(at, true, cx);
        }
        self.count_length();
    }

    fn held(&self) -> Held {
        self.store.held
    }

    fn hand_over(&mut self) -> Option<Box<dyn Any + Send>> {
        let store = std::mem::replace(&mut self.store, Store::new(0));
        self.count_length();
        Some(Box::new(store))
    }

    fn take_over(&mut self, state: Box<dyn Any + Send>) {
        if let Ok(store) = state.downcast::<Store>() {
            self.store = *store;
            self.count_length();
        }
    }

    fn stop(&mut self, cx: &mut Context<'_>) {
        while self.store.oldest != NIL {
            if let Some(packet) = self.store.close(self.store.oldest) {
                cx.drop_packet(packet, DropReason::Shutdown);
            }
        }
        self.count_length();
    }
}

#[cfg(test)]
mod tests;
