//! `StoreUDPTimeSeqRecord(OFFSET)` writes a number and the time into UDP packets, and with `DELTA true` how long ago that
//! was written.
//!
//! Source: Click's `StoreUDPTimeSeqRecord`. The record is 20 bytes behind the UDP header: the number of the packet, from 1
//! on, seconds and nanoseconds of the time of day, and seconds and nanoseconds since, in network order. The UDP checksum
//! follows. The IPv4 or IPv6 header is `OFFSET` bytes into the packet; what is shorter than its record is dropped.
//! Differs: other protocols than UDP are dropped in IPv4 too, as are later fragments, and a packet without checksum has none
//! behind it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::clock::{SECOND_NS, time_of_day};
use super::seen::word;
use crate::frame::wire::checksum::update;
use crate::frame::wire::ip4::FRAGMENT_OFFSET;
use crate::frame::wire::protocol::UDP;
use crate::frame::wire::{IP4_BYTES, IP6_BYTES, Ip4, Ip6, UDP_BYTES};
use crate::frame::{Batch, DropReason};
use crate::graph::{Context, Element, ElementClass, Made};
use crate::handler::Handler;
use crate::language::ClassSpec;

pub(crate) const CLASS: ElementClass = ElementClass {
    spec: ClassSpec::new("StoreUDPTimeSeqRecord", "1/1", "a/a", "x/x"),
    summary: "writes a number and the time into UDP packets",
    configure: |setup| {
        let offset = setup.args.positional::<u16>("OFFSET");
        let delta = setup.args.keyword("DELTA");
        setup.args.finish()?;
        let (offset, delta) = (usize::from(offset?), delta?.unwrap_or(false));
        let count = setup.keep::<AtomicU64>();
        let [shown, reset] = [(); 2].map(|()| count.clone());
        let made = Made::new(move |instance| Store {
            offset,
            delta,
            count: if instance.is_dry_run() { Arc::default() } else { count.clone() },
        });
        // Relaxed: nothing depends on it.
        let made = made.handler(Handler::read("count", move || shown.load(Relaxed).to_string()));
        Ok(made.command("reset", move || reset.store(0, Relaxed)))
    },
};

/// Length of a record.
const RECORD_BYTES: usize = 20;
/// Place of the time in it, and of the time since.
const TIME_AT: usize = 4;
const SINCE_AT: usize = 12;

struct Store {
    offset: usize,
    /// The time since is written.
    delta: bool,
    /// Packets of all workers: no two have one number.
    count: Arc<AtomicU64>,
}

impl Element for Store {
    fn process(&mut self, _: u16, batch: &mut Batch, cx: &mut Context<'_>) {
        let now_ns = time_of_day(cx.now_ns);
        for i in 0..batch.len() {
            let at = match udp_at(batch.bytes(i), self.offset) {
                Ok(at) => at,
                Err(reason) => {
                    batch.discard(i, reason);
                    continue;
                }
            };
            let udp = &mut batch.bytes_mut(i)[at..];
            let [.., a, b, c, d] = (self.count.fetch_add(1, Relaxed) + 1).to_be_bytes();
            if self.delta {
                let since_ns = now_ns.saturating_sub(time(&udp[UDP_BYTES + TIME_AT..]));
                write(udp, SINCE_AT, &words(since_ns));
            } else {
                let mut record = [0; RECORD_BYTES];
                record[..TIME_AT].copy_from_slice(&[a, b, c, d]);
                record[TIME_AT..SINCE_AT].copy_from_slice(&words(now_ns));
                write(udp, 0, &record);
            }
        }
    }
}

/// Where the UDP header of a packet is that has room for a record.
fn udp_at(frame: &[u8], offset: usize) -> Result<usize, DropReason> {
    let first = *frame.get(offset).ok_or(DropReason::TooShort)?;
    let (is_udp, header, total) = match first >> 4 {
        4 => {
            let ip = Ip4::at(frame, offset).ok_or(DropReason::TooShort)?;
            let is_udp = ip.protocol() == UDP && ip.fragment() & FRAGMENT_OFFSET == 0;
            (is_udp, ip.header_len(), ip.total_len())
        }
        6 => {
            let ip = Ip6::at(frame, offset).ok_or(DropReason::TooShort)?;
            (ip.next_header() == UDP, IP6_BYTES, IP6_BYTES + ip.payload_len())
        }
        _ => return Err(DropReason::BadVersion),
    };
    if header < IP4_BYTES {
        return Err(DropReason::BadHeaderLength);
    }
    if !is_udp {
        return Err(DropReason::Unmatched);
    }
    // What is behind the datagram in its frame is none of it.
    let at = offset + header;
    let datagram = word(frame, at + 4).map_or(0, usize::from);
    let end = frame.len().min(offset + total).min(at + datagram);
    if end < at + UDP_BYTES + RECORD_BYTES {
        return Err(DropReason::TooShort);
    }
    Ok(at)
}

/// Writes an even number of bytes into the payload of a UDP packet at an even place; its checksum follows.
fn write(udp: &mut [u8], at: usize, bytes: &[u8]) {
    let (header, payload) = udp.split_at_mut(UDP_BYTES);
    let before = u16::from_be_bytes([header[6], header[7]]);
    let mut sum = before;
    for (old, new) in payload[at..].chunks_exact_mut(2).zip(bytes.chunks_exact(2)) {
        let word = |bytes: &[u8]| u16::from_be_bytes([bytes[0], bytes[1]]);
        sum = update(sum, word(old), word(new));
        old.copy_from_slice(new);
    }
    // 0 means that there is none.
    if before != 0 {
        header[6..8].copy_from_slice(&(if sum == 0 { u16::MAX } else { sum }).to_be_bytes());
    }
}

/// Seconds and nanoseconds of a time, in 32 bits each.
fn words(ns: i64) -> [u8; 8] {
    let [_, _, _, _, a, b, c, d] = ns.div_euclid(SECOND_NS).to_be_bytes();
    let [_, _, _, _, e, f, g, h] = ns.rem_euclid(SECOND_NS).to_be_bytes();
    [a, b, c, d, e, f, g, h]
}

/// The time that [`words`] wrote, from 1970 to 2106.
fn time(words: &[u8]) -> i64 {
    let word = |at: usize| {
        let bytes = words.get(at..).and_then(|rest| rest.first_chunk());
        i64::from(bytes.map_or(0, |bytes| u32::from_be_bytes(*bytes)))
    };
    word(0) * SECOND_NS + word(4)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::element::click::only::clock;
    use crate::frame::Decision;
    use crate::testing::{Rig, World, frame_v4, frame_v6, refused, run};

    #[test]
    fn a_number_and_times_are_written() {
        clock::begin(7 * SECOND_NS);
        let text = "FromDevice(a) -> MarkIPHeader(14) -> SetUDPChecksum -> s :: StoreUDPTimeSeqRecord(14) -> ToDevice(x);
            FromDevice(b) -> t :: StoreUDPTimeSeqRecord(OFFSET 14, DELTA true) -> ToDevice(x);
            FromDevice(c) -> Strip(14) -> CheckIPHeader -> CheckUDPHeader -> ToDevice(right)";
        let mut rig = Rig::new(&World::new(), text);
        // What is there already does not count.
        let udp = [&[0, 5, 0, 6, 0, 33, 0, 0][..], &[0xee; 25]].concat();
        let frame = frame_v4("10.0.0.1", "10.0.0.2", 9, 17, &udp);
        rig.bench.now_ns = 1_500_000_000;
        let first = rig.receive("a", &[&frame, &frame]).remove(1).1;
        let words = |frame: &[u8]| {
            let words = frame[42..62].chunks(4);
            let words = words.map(|word| u32::from_be_bytes(word.try_into().unwrap()));
            words.collect::<Vec<_>>()
        };
        assert_eq!(words(&first), [2, 8, 500_000_000, 0, 0]);
        rig.bench.now_ns = 3_250_000_000;
        let second = rig.receive("b", &[&first]).remove(0).1;
        assert_eq!(words(&second), [2, 8, 500_000_000, 1, 750_000_000]);
        assert_eq!(second[62..], [0xee; 5]);
        for frame in [&first, &second] {
            assert_eq!(rig.receive("c", &[frame])[0].0, "right", "the checksum follows");
        }
        assert_eq!(["s.count", "t.count"].map(|name| rig.read(name)), ["2", "1"]);
        rig.write("s.reset", "");
        assert_eq!(words(&rig.receive("a", &[&frame])[0].1)[0], 1);
    }

    #[test]
    fn what_has_no_record_is_dropped() {
        let udp = |bytes| {
            let mut udp = vec![0; UDP_BYTES + bytes];
            udp[5] = u8::try_from(udp.len()).unwrap();
            udp
        };
        let v4 = |protocol, bytes| frame_v4("10.0.0.1", "10.0.0.2", 9, protocol, &udp(bytes));
        let v6 = |next, bytes| frame_v6("fe80::1", "fe80::2", 9, next, &udp(bytes));
        let mut fragment = v4(17, 20);
        fragment[21] = 1;
        // Bytes behind a packet, and behind its datagram.
        let (mut padded, mut longer) = (v4(17, 19), v4(17, 20));
        padded.push(0);
        longer[39] = 27;
        let mut bad = v4(17, 20);
        bad[14] = 0x41;
        let drop = Decision::Drop;
        for (frame, want) in [
            (v4(17, 20), Decision::Output(0)),
            (v6(17, 20), Decision::Output(0)),
            (v4(17, 19), drop(DropReason::TooShort)),
            (v6(17, 19), drop(DropReason::TooShort)),
            (v4(6, 20), drop(DropReason::Unmatched)),
            (v6(0, 20), drop(DropReason::Unmatched)),
            (fragment, drop(DropReason::Unmatched)),
            (padded, drop(DropReason::TooShort)),
            (longer, drop(DropReason::TooShort)),
            (bad, drop(DropReason::BadHeaderLength)),
            (vec![0x50; 90], drop(DropReason::BadVersion)),
            (vec![0x45; 30], drop(DropReason::TooShort)),
            (vec![], drop(DropReason::TooShort)),
        ] {
            let batch = run(&CLASS, "14", 14, &[&frame]);
            assert_eq!(batch.decision(0), want, "{frame:?}");
            // A packet without checksum stays one.
            if want == Decision::Output(0) && frame[14] == 0x45 {
                assert_eq!(batch.bytes(0)[40..42], [0, 0]);
            }
        }
        assert!(refused(&CLASS, "").contains("OFFSET"));
    }
}
