//! Puts the fragments of IPv4 packets together again: `IPReassembler`.
//!
//! Source: Click's `IPReassembler`; RFC 791, 3.2, RFC 1122, 3.3.2. Whole packets pass. The fragment of a packet
//! that comes first keeps its frame, and gets the payload of the others; when all is there the packet leaves by
//! output 0 with the header of its first fragment, what is known of that, and the time of the last one. A packet must fit a
//! frame.
//!
//! A packet that is not complete after `TIMEOUT` (30 seconds, by the worker's clock, or by the times of packets when a
//! fragment comes) leaves by output 1, where it is used, for `ICMPError(ADDR, timeexceeded, reassembly)`: all of it that has
//! come in its place, with zeros between, behind the header of its first fragment, whose length stays as it is. Without its
//! first fragment it has the header of the one that came first, and the offset of what has come, so that no error is
//! sent about it (RFC 1122, 3.3.2). At most `HIMEM` bytes (262,144, of which each packet takes 2,048) are kept; the oldest
//! packet makes room, and leaves like one that is too old.
//!
//! `MAX_MTU_ANNO` names an annotation of two bytes for the length of the longest fragment of a packet. The handler `dump` has
//! counts, and a line for each packet that is not complete, with the runs of its bytes that have come.
//!
//! A fragment that overlaps others is dropped with its packet, and all that comes of it later (RFC 5722, which Linux
//! applies to IPv4 as well); one that is there already is ignored. Congestion that a fragment met its packet met (RFC
//! 3168, 5.3).
//!
//! Cost: a hash table, a copy of each fragment's payload but one; after the start only a packet that is given up allocates, a
//! list of its gaps. A lock that `dump` alone contends for is taken once a batch; `dump` holds it for a line a packet.

mod store;

use std::any::Any;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::element::support::byte_anno::WordAnno;
use crate::element::support::time::nanoseconds;
use crate::frame::counters::{Count, PerWorker};
use crate::frame::wire::checksum::checksum;
use crate::frame::wire::ip4::{FRAGMENT_OFFSET, MORE_FRAGMENTS};
use crate::frame::wire::{Ip4, Ip4Mut};
use crate::frame::{Batch, DropReason, Meta, Packet};
use crate::graph::{Context, Element, ElementClass, Exit, Held, Inputs, Made};
use crate::handler::Handler;
use crate::language::ClassSpec;

use store::{Fit, Key, Moment, NIL, Piece, Store, UNIT, begin};

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
        let shared = setup.keep::<PerWorker<Shared>>();
        let (listed, workers) = (shared.clone(), shared.clone());
        let read = |name, value: fn(&Shared) -> u64| {
            let shared = shared.clone();
            Handler::read(name, move || shared.sum(value).to_string())
        };
        let handlers = [
            read("length", |shared| shared.length.read()),
            read("reassembled", |shared| shared.reassembled.read()),
            read("drops", |shared| shared.drops.read()),
            Handler::read("dump", move || dump(&listed)),
        ];
        let made = Made::new(move |instance| {
            let shared = workers.add(instance);
            *shared.lock() = Store::new(places);
            IpReassembler { rules: Rules { timeout_ns, noted, exit }, shared }
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

/// Counts of a worker, and the packets that are not complete.
#[derive(Default)]
struct Shared {
    /// Packets that are not complete.
    length: Count,
    /// Fragments that came.
    seen: Count,
    reassembled: Count,
    /// Packets that were given up.
    failed: Count,
    /// Fragments that make no sense.
    bad: Count,
    /// Fragments that ended, but for those that became part of a packet.
    drops: Count,
    store: Mutex<Store>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Store> {
        // A worker that panicked within ends, and its successor begins with an empty one.
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count_length(&self, store: &Store) {
        self.length.set(store.len() as u64);
    }
}

/// Counts and packets of all workers, as Click writes them.
fn dump(workers: &PerWorker<Shared>) -> String {
    let counts: [fn(&Shared) -> u64; 4] = [
        |shared| shared.seen.read(),
        |shared| shared.reassembled.read(),
        |shared| shared.failed.read(),
        |shared| shared.bad.read(),
    ];
    let [seen, good, failed, bad] = counts.map(|count| workers.sum(count));
    let mut text = format!(
        "frags seen total:    {seen}\ngood reassemblies:   {good}\nfailed reassemblies: {failed}\n\
         bad fragments seen:  {bad}\ncached chunk data:\n"
    );
    workers.each(|shared| text += &shared.lock().dump());
    text
}

/// The time of packet `i`, or that of the day.
#[cfg(feature = "click")]
fn stamp_ns(batch: &Batch, i: usize, now_ns: u64) -> i64 {
    use crate::element::click::only::{annotations::Annotations, clock};
    match Annotations::of(batch, i).timestamp_ns {
        0 => clock::time_of_day(now_ns),
        stamp_ns => stamp_ns,
    }
}

/// Packets have no times where no element gives them any.
#[cfg(not(feature = "click"))]
fn stamp_ns(_: &Batch, _: usize, _: u64) -> i64 {
    0
}

/// Gives a packet a time.
#[cfg(feature = "click")]
fn stamp(packet: &mut Packet, stamp_ns: i64) {
    use crate::element::click::only::annotations::Annotations;
    Annotations { timestamp_ns: stamp_ns, ..Annotations::of_packet(packet) }.set_packet(packet);
}

#[cfg(not(feature = "click"))]
fn stamp(_: &mut Packet, _: i64) {}

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
    fill_sum(packet);
    true
}

/// The header of a packet of which something is missing: `before` bytes are, before what has come. The checksum stays where
/// nothing changes.
fn leave_open(packet: &mut Packet, before: usize, last_seen: bool) {
    let network = usize::from(packet.meta.network);
    let Some(mut ip) = Ip4Mut::at(packet.bytes_mut(), network) else { return };
    let word = ip.view().fragment();
    let offset = u16::try_from(before / UNIT).unwrap_or(0) & FRAGMENT_OFFSET;
    let more = if last_seen { 0 } else { MORE_FRAGMENTS };
    let new = word & !(MORE_FRAGMENTS | FRAGMENT_OFFSET) | more | offset;
    if new != word {
        ip.set_fragment(new);
        fill_sum(packet);
    }
}

/// Makes the checksum of a header right.
fn fill_sum(packet: &mut Packet) {
    let network = usize::from(packet.meta.network);
    let bytes = packet.bytes_mut();
    let Some(mut ip) = Ip4Mut::at(bytes, network) else { return };
    ip.set_checksum(0);
    let header = ip.view().header_len();
    let sum = checksum(&bytes[network..network + header]);
    if let Some(mut ip) = Ip4Mut::at(bytes, network) {
        ip.set_checksum(sum);
    }
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

/// How long packets wait, what is noted in them, and where they leave that are not complete.
struct Rules {
    timeout_ns: u64,
    /// Annotation for the length of a packet's longest fragment.
    noted: Option<WordAnno>,
    exit: Exit,
}

struct IpReassembler {
    rules: Rules,
    shared: Arc<Shared>,
}

/// The element while it works.
struct Work<'a> {
    rules: &'a Rules,
    shared: &'a Shared,
    store: &'a mut Store,
}

impl Work<'_> {
    /// Ends the packet at a place, which a new one is to take or which has waited too long.
    fn give_up(&mut self, at: u16, cx: &mut Context<'_>) {
        let place = self.store.at(at);
        let before = place.close_gaps();
        let (last_seen, longest) = (place.last_seen, place.longest);
        let Some(mut packet) = self.store.close(at) else { return };
        self.shared.failed.add(1);
        self.shared.drops.add(1);
        leave_open(&mut packet, before, last_seen);
        if let Some(noted) = self.rules.noted {
            noted.set_packet(&mut packet, longest);
        }
        self.rules.exit.emit(packet, cx);
    }

    /// Gives up packets for which it is late, some at most.
    fn give_up_old(&mut self, is_late: impl Fn(&Moment) -> bool, cx: &mut Context<'_>) {
        for _ in 0..TURNS {
            let at = self.store.oldest();
            if at == NIL || !is_late(&self.store.at(at).since) {
                break;
            }
            self.give_up(at, cx);
        }
    }

    /// Ends what has come of a packet, and remembers that it did.
    fn refuse(&mut self, at: u16, reason: DropReason, cx: &mut Context<'_>) {
        if let Some(packet) = self.store.release(at) {
            self.shared.failed.add(1);
            self.shared.drops.add(1);
            cx.drop_packet(packet, reason);
        }
    }

    /// What becomes of a fragment.
    fn fragment(&mut self, piece: &Piece, batch: &mut Batch, i: usize, cx: &mut Context<'_>) {
        let came = Moment { now_ns: cx.now_ns, stamp_ns: stamp_ns(batch, i, cx.now_ns) };
        let most = i64::try_from(self.rules.timeout_ns).unwrap_or(i64::MAX);
        let is_late = |since: &Moment| came.stamp_ns.saturating_sub(since.stamp_ns) > most;
        self.give_up_old(is_late, cx);
        let end = |this: &Self, batch: &mut Batch, reason| {
            this.shared.drops.add(1);
            batch.discard(i, reason);
        };
        let Some(at) = self.store.find(&piece.key) else {
            return self.begin(piece, batch.take(i), came, cx);
        };
        let place = self.store.at(at);
        match place.fit(piece, &batch.bytes(i)[piece.front..piece.front + piece.len]) {
            // Of a packet that was refused nothing is taken.
            _ if place.packet.is_none() => end(self, batch, DropReason::BadFragment),
            Fit::Known => end(self, batch, DropReason::Consumed),
            Fit::Wrong => {
                end(self, batch, DropReason::BadFragment);
                self.refuse(at, DropReason::BadFragment, cx);
            }
            Fit::New if place.add(piece, batch, i) => {
                batch.discard(i, DropReason::Consumed);
                if place.is_complete() {
                    self.complete(at, came.stamp_ns, cx);
                }
            }
            Fit::New => {
                end(self, batch, DropReason::Incomplete);
                self.refuse(at, DropReason::Incomplete, cx);
            }
        }
    }

    /// Keeps the fragment of a packet that comes first.
    fn begin(&mut self, piece: &Piece, mut packet: Packet, came: Moment, cx: &mut Context<'_>) {
        if self.store.is_full() {
            self.give_up(self.store.oldest(), cx);
        }
        let at = self.store.open(piece.key, came);
        if begin(&mut packet, piece) {
            self.store.hold(at, packet);
            let place = self.store.at(at);
            place.front = piece.front;
            place.note(piece);
        } else {
            // Longer than a frame; so nothing of it is of use.
            self.shared.failed.add(1);
            self.shared.drops.add(1);
            cx.drop_packet(packet, DropReason::Incomplete);
        }
    }

    /// Sends a packet on.
    fn complete(&mut self, at: u16, stamp_ns: i64, cx: &mut Context<'_>) {
        let place = self.store.at(at);
        let (end, ecn, longest) = (place.end, place.ecn, place.longest);
        let Some(mut packet) = self.store.close(at) else { return };
        if finish(&mut packet, end, ecn) {
            stamp(&mut packet, stamp_ns);
            if let Some(noted) = self.rules.noted {
                noted.set_packet(&mut packet, longest);
            }
            self.shared.reassembled.add(1);
            cx.emit(0, packet);
        } else {
            self.shared.failed.add(1);
            self.shared.drops.add(1);
            cx.drop_packet(packet, DropReason::BadFragment);
        }
    }
}

impl Element for IpReassembler {
    fn process(&mut self, _: u16, batch: &mut Batch, cx: &mut Context<'_>) {
        let (rules, shared) = (&self.rules, &*self.shared);
        let store = &mut *shared.lock();
        let mut work = Work { rules, shared, store };
        for i in 0..batch.len() {
            match look(batch.bytes(i), &batch.meta()[i]) {
                Seen::Whole => {}
                Seen::Fragment(piece) => {
                    shared.seen.add(1);
                    work.fragment(&piece, batch, i, cx);
                }
                Seen::Bad(reason) => {
                    shared.seen.add(1);
                    shared.bad.add(1);
                    shared.drops.add(1);
                    batch.discard(i, reason);
                }
            }
        }
        shared.count_length(work.store);
    }

    fn poll(&mut self, _: &mut Batch, _: &mut dyn Inputs, cx: &mut Context<'_>) {
        let (rules, shared) = (&self.rules, &*self.shared);
        let store = &mut *shared.lock();
        let mut work = Work { rules, shared, store };
        let (now_ns, timeout_ns) = (cx.now_ns, rules.timeout_ns);
        work.give_up_old(|since| now_ns.saturating_sub(since.now_ns) >= timeout_ns, cx);
        shared.count_length(work.store);
    }

    fn held(&self) -> Held {
        self.shared.lock().held()
    }

    fn hand_over(&mut self) -> Option<Box<dyn Any + Send>> {
        let store = std::mem::take(&mut *self.shared.lock());
        self.shared.length.set(0);
        Some(Box::new(store))
    }

    fn take_over(&mut self, state: Box<dyn Any + Send>) {
        if let Ok(store) = state.downcast::<Store>() {
            self.shared.count_length(&store);
            *self.shared.lock() = *store;
        }
    }

    fn stop(&mut self, cx: &mut Context<'_>) {
        let store = &mut *self.shared.lock();
        while store.oldest() != NIL {
            if let Some(packet) = store.close(store.oldest()) {
                cx.drop_packet(packet, DropReason::Shutdown);
            }
        }
        self.shared.count_length(store);
    }
}

impl Drop for IpReassembler {
    /// Frames return with their element, though counts stay.
    fn drop(&mut self) {
        *self.shared.lock() = Store::default();
    }
}

#[cfg(test)]
mod tests;
