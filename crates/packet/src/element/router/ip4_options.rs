//! What a router does about IPv4 options (RFC 791, 3.1; RFC 1812, 4.2.2.1 and 5.2.4; RFC 7126).
//!
//! Packets with options come here before the lookup and leave by output 0. Record route and timestamp
//! speak of the port by which the packet *leaves* (RFC 1812, 5.2.4.1), so the lookup is done here
//! once more. Source-routed packets are dropped, as RFC 7126 advises. An option that makes no sense
//! sends the packet, unchanged, to output 1 with [`Cause::BadOption`] as its note; the pointer is the
//! offset from the start of the header of the byte that is wrong. All others pass as they are, router
//! alert too: what it alerts is the control side's own traffic, which does not come by here.
//!
//! `IPGWOptions` is the same for a graph with tables of its own: it stands behind the lookup, before one port,
//! and has the address of that port and others of the router.
//!
//! Cost: a walk over at most 40 bytes, 10 ns; where something is written a lookup and a full header
//! checksum, 45 ns.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::element::support::source_addr::{egress, source_v4};
use crate::frame::counters::{Count, PerWorker};
use crate::frame::wire::checksum::checksum;
use crate::frame::wire::{IP4_BYTES, Ip4, Ip4Mut};
use crate::frame::{Batch, Cause, DropReason, flow};
use crate::graph::{Context, Element, ElementClass, Exit, Made};
use crate::handler::Handler;
use crate::language::{Arg, ClassSpec};

pub(crate) const CLASS: ElementClass = ElementClass {
    spec: ClassSpec::new("IP4Options", "1/2", "h/h", "x/x").outputs(&["forward", "error"]),
    summary: "checks IPv4 options, records route and time, drops source routes",
    configure: |setup| {
        setup.args.finish()?;
        let exit = setup.exit(ERROR, DropReason::BadOption);
        Ok(Made::new(move |_| Ip4Options::new(Speaks::Egress, exit, Arc::default())))
    },
};

pub(crate) const GATEWAY: ElementClass = ElementClass {
    spec: ClassSpec::new("IPGWOptions", "1/1-2", "a/ah", "x/x").outputs(&["out", "bad"]),
    summary: "records route and time in IPv4 options, checks them, drops source routes",
    configure: |setup| {
        let own = setup.args.positional::<Ipv4Addr>("MYADDR");
        let others = setup.args.optional_arg("OTHERADDRS")?;
        let others: Vec<_> = others.iter().flat_map(Arg::words).collect();
        let others: Vec<Result<Ipv4Addr, _>> =
            others.iter().map(|word| setup.args.read(word, "OTHERADDRS")).collect();
        setup.args.finish()?;
        let all = std::iter::once(own).chain(others).map(|addr| addr.map(Ipv4Addr::to_bits));
        let all: Arc<[u32]> = all.collect::<Result<_, _>>()?;
        let exit = setup.exit(ERROR, DropReason::BadOption);
        let counts = setup.keep::<PerWorker<Counts>>();
        let (drops, recorded) = (counts.clone(), counts.clone());
        let make =
            move |instance| Ip4Options::new(Speaks::As(all.clone()), exit, counts.add(instance));
        let drops = Handler::read("drops", move || drops.sum(|c| c.bad.read()).to_string());
        let count = move || recorded.sum(|c| c.recorded.read()).to_string();
        Ok(Made::new(make).handler(drops).handler(Handler::read("recorded", count)))
    },
};

/// Output to the error element.
const ERROR: u16 = 1;

pub(crate) const END: u8 = 0;
pub(crate) const NOP: u8 = 1;
const RECORD_ROUTE: u8 = 7;
const TIMESTAMP: u8 = 68;
pub(crate) const LOOSE_SOURCE_ROUTE: u8 = 131;
pub(crate) const STRICT_SOURCE_ROUTE: u8 = 137;

/// Milliseconds since midnight UTC.
type Clock = fn() -> u32;

/// Who the router is in an option.
enum Speaks {
    /// The port by which the packet will leave, which is looked up.
    Egress,
    /// The first of these addresses; all are the router's.
    As(Arc<[u32]>),
}

#[derive(Default)]
struct Counts {
    recorded: Count,
    bad: Count,
}

/// The element.
pub(crate) struct Ip4Options {
    clock: Clock,
    speaks: Speaks,
    exit: Exit,
    counts: Arc<Counts>,
}

impl Ip4Options {
    fn new(speaks: Speaks, exit: Exit, counts: Arc<Counts>) -> Self {
        Self { clock: utc_ms, speaks, exit, counts }
    }
}

/// Read from the vDSO, and only for packets with a timestamp option.
fn utc_ms() -> u32 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u32::try_from(now.as_millis() % 86_400_000).expect("below a day")
}

/// What is to be written, found in a first walk, so that a packet with an error stays as it came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Edits {
    /// Record route: offsets of the pointer, and of where our address goes.
    route: Option<(usize, usize)>,
    /// Timestamp: offset of the option, and what to do with it.
    time: Option<(usize, Stamp)>,
}

/// What to do with a timestamp option. Offsets of what is to be filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stamp {
    /// The time alone.
    Time(usize),
    /// Our address, then the time.
    AddressTime(usize),
    /// The time behind an address, if that is ours.
    IfOurs(usize),
    /// There is no room: one more that did not fit.
    Overflow,
}

/// Why a packet does not pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refused {
    /// Bad option at this offset of the header.
    Bad(u8),
    SourceRouted,
}

/// Reads the options of a header, whose length is that of the slice.
fn read(header: &[u8]) -> Result<Edits, Refused> {
    let bad = |at: usize| Refused::Bad(u8::try_from(at).expect("a header has at most 60 bytes"));
    let mut edits = Edits::default();
    let mut at = IP4_BYTES;
    while let Some(&kind) = header.get(at) {
        match kind {
            END => break,
            NOP => {
                at += 1;
                continue;
            }
            _ => {}
        }
        let len = usize::from(*header.get(at + 1).ok_or(bad(at))?);
        let option = header.get(at..at + len).filter(|o| o.len() >= 2).ok_or(bad(at + 1))?;
        match kind {
            LOOSE_SOURCE_ROUTE | STRICT_SOURCE_ROUTE => return Err(Refused::SourceRouted),
            RECORD_ROUTE => {
                // RFC 791: appears at most once.
                if edits.route.is_some() {
                    return Err(bad(at));
                }
                let &pointer = option.get(2).ok_or(bad(at + 1))?;
                let slot = free(option, pointer, 4, 4).map_err(|()| bad(at + 2))?;
                edits.route = slot.map(|slot| (at + 2, at + slot));
            }
            TIMESTAMP => {
                if edits.time.is_some() {
                    return Err(bad(at));
                }
                let (Some(&pointer), Some(&word)) = (option.get(2), option.get(3)) else {
                    return Err(bad(at + 1));
                };
                let bytes = match word & 15 {
                    0 => 4,
                    1 | 3 => 8,
                    _ => return Err(bad(at + 3)),
                };
                let slot = free(option, pointer, 5, bytes).map_err(|()| bad(at + 2))?;
                edits.time = match (slot, word & 15) {
                    (Some(slot), 0) => Some((at, Stamp::Time(at + slot))),
                    (Some(slot), 1) => Some((at, Stamp::AddressTime(at + slot))),
                    (Some(slot), _) => Some((at, Stamp::IfOurs(at + slot))),
                    // A list of named hosts that is done has not overflowed.
                    (None, 3) => None,
                    (None, _) if word >> 4 == 15 => return Err(bad(at + 3)),
                    (None, _) => Some((at, Stamp::Overflow)),
                };
            }
            _ => {}
        }
        at += len;
    }
    Ok(edits)
}

/// Where in an option the next entry of `bytes` goes, by its pointer, which counts from 1 and is at
/// least `first`; `None` when it is full.
fn free(option: &[u8], pointer: u8, first: u8, bytes: usize) -> Result<Option<usize>, ()> {
    if pointer < first {
        return Err(());
    }
    let slot = usize::from(pointer) - 1;
    if slot >= option.len() {
        return Ok(None);
    }
    if slot + bytes > option.len() { Err(()) } else { Ok(Some(slot)) }
}

impl Ip4Options {
    /// Carries the edits out. `packet` begins with its header; `port` is its ingress.
    fn write(&self, packet: &mut [u8], port: u16, edits: Edits, cx: &Context<'_>) {
        let Some(ip) = Ip4::at(packet, 0) else { return };
        let (dst, header_len) = (ip.dst(), ip.header_len());
        let ports = &cx.forwarding.ports;
        // None when it goes to the host itself, or nowhere: then there is nothing to record.
        let own = match &self.speaks {
            Speaks::As(addrs) => addrs.first().copied(),
            Speaks::Egress => {
                let hash = || flow::of_ip4(cx.flow_seed, packet);
                egress(cx.forwarding, port, dst, hash).and_then(|port| source_v4(ports, port, dst))
            }
        };
        let Some(own) = own else { return };
        let mut written = false;
        if let Some((pointer, slot)) = edits.route {
            packet[slot..slot + 4].copy_from_slice(&own.to_be_bytes());
            packet[pointer] += 4;
            written = true;
        }
        if let Some((at, stamp)) = edits.time {
            let mut time = |packet: &mut [u8], slot: usize, taken: u8| {
                packet[slot..slot + 4].copy_from_slice(&(self.clock)().to_be_bytes());
                packet[at + 2] += taken;
                written = true;
            };
            match stamp {
                Stamp::Time(slot) => time(packet, slot, 4),
                Stamp::AddressTime(slot) => {
                    packet[slot..slot + 4].copy_from_slice(&own.to_be_bytes());
                    time(packet, slot + 4, 8);
                }
                Stamp::IfOurs(slot) => {
                    let named = packet[slot..].first_chunk().map(|&b| u32::from_be_bytes(b));
                    let is_ours = |addr| match &self.speaks {
                        Speaks::As(addrs) => addrs.contains(&addr),
                        Speaks::Egress => ports.own_v4.binary_search(&addr).is_ok(),
                    };
                    if named.is_some_and(is_ours) {
                        time(packet, slot + 4, 8);
                    }
                }
                Stamp::Overflow => {
                    packet[at + 3] += 0x10;
                    written = true;
                }
            }
        }
        if written {
            packet[10..12].fill(0);
            let sum = checksum(&packet[..header_len]);
            if let Some(mut ip) = Ip4Mut::at(packet, 0) {
                ip.set_checksum(sum);
            }
            self.counts.recorded.add(1);
        }
    }
}

impl Ip4Options {
    /// One that counts for itself, and speaks for these addresses.
    pub(crate) fn speaking(addrs: Arc<[u32]>, exit: Exit) -> Self {
        Self::new(Speaks::As(addrs), exit, Arc::default())
    }

    /// Processes the options of packet `i`; returns whether it continues.
    #[inline]
    pub(crate) fn pass(&self, batch: &mut Batch, i: usize, cx: &Context<'_>) -> bool {
        let network = usize::from(batch.meta()[i].network);
        let frame = batch.bytes(i);
        let header = Ip4::at(frame, network)
            .and_then(|ip| frame.get(network..network + ip.header_len().max(IP4_BYTES)));
        let Some(header) = header else {
            batch.discard(i, DropReason::BadHeaderLength);
            return false;
        };
        match read(header) {
            Ok(edits) => {
                if edits != Edits::default() {
                    let port = batch.meta()[i].port;
                    self.write(&mut batch.bytes_mut(i)[network..], port, edits, cx);
                }
                return true;
            }
            Err(Refused::SourceRouted) => batch.discard(i, DropReason::SourceRouted),
            Err(Refused::Bad(at)) => {
                self.counts.bad.add(1);
                batch.meta_mut()[i].note = Cause::BadOption(at).note();
                self.exit.take(batch, i);
            }
        }
        false
    }
}

impl Element for Ip4Options {
    fn process(&mut self, _: u16, batch: &mut Batch, cx: &mut Context<'_>) {
        for i in 0..batch.len() {
            self.pass(batch, i, cx);
        }
    }

    fn stats(&self, visit: &mut dyn FnMut(&'static str, u64)) {
        visit("recorded", self.counts.recorded.read());
        visit("bad", self.counts.bad.read());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cases::Stage;
    use crate::frame::Note;
    use proptest::prelude::*;

    fn element() -> Ip4Options {
        let exit = Exit::by(ERROR, DropReason::BadOption);
        Ip4Options {
            clock: || 0x0102_0304,
            ..Ip4Options::new(Speaks::Egress, exit, Arc::default())
        }
    }

    /// Options in, what became of them: their bytes, or the cause, or the drop.
    fn go(dst: &str, options: &str) -> String {
        let mut stage = Stage::default();
        let text = format!("eth lan.host > lan\nip4 10.1.0.2 > {dst} opts {options}\nudp 1 > 2");
        let frame = stage.frame(&text);
        let packet = stage.packet("lan", &frame, Note::default());
        let left = stage.run(&mut element(), vec![packet]);
        let Some(left) = left.first() else { return stage.drops()[0].0.name().into() };
        let header = Ip4::at(&left.frame, 14).unwrap().header_len();
        assert_eq!(checksum(&left.frame[14..14 + header]), 0, "header checksum");
        assert_eq!(left.frame[14 + header..], frame[14 + header..], "nothing behind it changes");
        if left.output == ERROR {
            assert_eq!(left.frame, frame, "an error is told about the packet as it came");
            return format!("{:?}", left.meta.note.cause().unwrap());
        }
        left.frame[34..14 + header].iter().map(|b| format!("{b:02x}")).collect()
    }

    const FAR: &str = "198.51.100.7";

    #[test]
    fn record_route_takes_the_egress_address() {
        assert_eq!(go(FAR, "07070400000000"), "0707080a02000100");
        assert_eq!(go(FAR, "070b08c0a8000100000000"), "070b0cc0a800010a02000100");
        assert_eq!(go("10.1.1.2", "0107070400000000"), "010707080a010101", "same subnet first");
        // Full, and a fuller pointer than any: as it was.
        assert_eq!(go(FAR, "070708c0a80001"), "070708c0a8000100");
        assert_eq!(go(FAR, "0707ffc0a80001"), "0707ffc0a8000100");
        assert_eq!(go(FAR, "070304"), "07030400", "no room for any");
        // To us, or to nowhere: nothing to record.
        assert_eq!(go("10.2.0.1", "07070400000000"), "0707040000000000");
        assert_eq!(go("192.0.2.1", "07070400000000"), "0707040000000000");
    }

    #[test]
    fn timestamps() {
        // Flag 0: times.
        assert_eq!(go(FAR, "44080500"), "BadOption(21)");
        assert_eq!(go(FAR, "4408050000000000"), "4408090001020304");
        assert_eq!(go(FAR, "440c09001111111100000000"), "440c0d001111111101020304");
        // Flag 1: address and time.
        assert_eq!(go(FAR, "440c05010000000000000000"), "440c0d010a02000101020304");
        // Flag 3: only behind our own address.
        assert_eq!(go(FAR, "440c05030a01000100000000"), "440c0d030a01000101020304");
        assert_eq!(go(FAR, "440c0503c000020900000000"), "440c0503c000020900000000");
        assert_eq!(go(FAR, "440c0d030a01000101020304"), "440c0d030a01000101020304", "done");
        // Full: counted, until the count is full.
        assert_eq!(go(FAR, "4408090011111111"), "4408091011111111");
        assert_eq!(go(FAR, "440809e011111111"), "440809f011111111");
        assert_eq!(go(FAR, "440809f011111111"), "BadOption(23)");
        assert_eq!(go(FAR, "440c0d110a02000101020304"), "440c0d210a02000101020304");
    }

    #[test]
    fn nonsense_is_pointed_at() {
        let cases = [
            ("01010194", 23, "a type alone"),
            ("94000000", 21, "length 0"),
            ("94010000", 21, "length 1"),
            ("94050000", 21, "past the end"),
            ("07020000", 21, "no pointer"),
            ("07070300000000", 22, "pointer into the option's head"),
            ("07070700000000", 22, "a slot that is not whole"),
            ("44030500", 21, "no flags"),
            ("4408040000000000", 22, "pointer into the head"),
            ("4408060000000000", 22, "a slot that is not whole"),
            ("4408050100000000", 22, "no room for address and time"),
            ("4408050200000000", 23, "flag 2"),
            ("4408054f00000000", 23, "flag 15"),
            ("070704000000000707040000000000", 27, "twice"),
            ("44080900111111114408090011111111", 28, "twice"),
        ];
        for (options, at, what) in cases {
            assert_eq!(go(FAR, options), format!("BadOption({at})"), "{what}");
        }
    }

    #[test]
    fn others() {
        assert_eq!(go(FAR, "83070400000000"), "source_routed");
        assert_eq!(go(FAR, "01890704c0000201"), "source_routed");
        assert_eq!(go(FAR, "94040000"), "94040000", "router alert");
        assert_eq!(go(FAR, "99031200"), "99031200", "unknown");
        assert_eq!(go(FAR, "82040011"), "82040011", "security");
        // Behind the end of the list nothing is an option.
        assert_eq!(go(FAR, "0083070400000000"), "0083070400000000");
        // Route and time at once.
        assert_eq!(go(FAR, "070704000000000144080500"), "BadOption(29)");
        assert_eq!(go(FAR, "07070400000000014408050000000000"), "0707080a020001014408090001020304");
    }

    #[test]
    fn the_clock_counts_from_midnight() {
        assert!(utc_ms() < 86_400_000);
    }

    proptest! {
        /// Whatever stands there: no panic, the header stays whole, and what leaves is right.
        #[test]
        fn any_bytes(options in prop::collection::vec(prop_oneof![
            any::<u8>(), Just(7_u8), Just(68), Just(1), Just(4), Just(5), Just(8)
        ], 4..40)) {
            let hex: String = options.iter().map(|b| format!("{b:02x}")).collect();
            go(FAR, &hex);
        }
    }

    #[test]
    fn a_graph_tells_its_addresses() {
        let mut stage = Stage::default();
        let run = |stage: &mut Stage, config: &str, options: &str| {
            let text =
                format!("eth lan.host > lan\nip4 10.1.0.2 > 192.0.2.9 opts {options}\nudp 1 > 2");
            let frame = stage.frame(&text);
            let packet = stage.packet("lan", &frame, Note::default());
            stage.run(&mut *crate::testing::element(&GATEWAY, config), vec![packet]).remove(0)
        };
        let own = "198.51.100.1, 203.0.113.1 203.0.113.9";
        let left = run(&mut stage, own, "07070400000000");
        assert_eq!((left.output, &left.frame[34..41]), (0, &[7, 7, 8, 198, 51, 100, 1][..]));
        assert_eq!(checksum(&left.frame[14..42]), 0);
        // A timestamp that names one of the others, and one that names nobody here.
        let left = run(&mut stage, own, "440c0503cb00710900000000");
        assert_eq!((left.output, left.frame[36]), (0, 13));
        assert_ne!(left.frame[42..46], [0; 4]);
        let left =
            run(&mut stage, "OTHERADDRS 203.0.113.1, 198.51.100.1", "440c0503cb00710900000000");
        assert_eq!((left.output, left.frame[36]), (0, 5));
        let left = run(&mut stage, own, "07070300000000");
        assert_eq!((left.output, left.meta.note), (1, Cause::BadOption(22).note()));
        assert!(crate::testing::refused(&GATEWAY, "1.2.3.4, 5.6.7.8 x").contains("`x`"));
    }
}
