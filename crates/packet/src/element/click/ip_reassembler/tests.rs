//! Fragments in any order, wrong ones, and those that wait for too long.

use super::*;
use crate::frame::wire::icmp;
use crate::frame::wire::ip4::{DONT_FRAGMENT, sum_is_valid};
use crate::testing::{Rig, World, fill_ip4_checksum, frame_v4, refused};
use proptest::prelude::*;

/// A fragment with an Ethernet header: bytes from..to of a payload in which each byte holds its offset.
fn piece(from: usize, to: usize, more: bool) -> Vec<u8> {
    fragment(from, &payload(to)[from..], more)
}

fn payload(len: usize) -> Vec<u8> {
    (0..len).map(|at| u8::try_from(at / 7 % 251).unwrap()).collect()
}

fn fragment(from: usize, bytes: &[u8], more: bool) -> Vec<u8> {
    let mut frame = frame_v4("10.0.0.9", "192.0.2.1", 64, 17, bytes);
    let word = u16::try_from(from / 8).unwrap() | if more { MORE_FRAGMENTS } else { 0 };
    frame[20..22].copy_from_slice(&word.to_be_bytes());
    fill_ip4_checksum(&mut frame);
    frame
}

fn whole(len: usize) -> Vec<u8> {
    frame_v4("10.0.0.9", "192.0.2.1", 64, 17, &payload(len))
}

fn rig(config: &str) -> Rig {
    // `FromDevice` marks no headers, the check does.
    let text = format!(
        "FromDevice(a) -> Strip(14) -> CheckIPHeader -> Unstrip(14) -> r :: IPReassembler({config}) -> ToDevice(b);
         r [incomplete] -> ToDevice(late)"
    );
    Rig::new(&World::new(), &text)
}

fn frames(sent: Vec<(String, Vec<u8>)>, device: &str) -> Vec<Vec<u8>> {
    assert!(sent.iter().all(|(to, _)| to == device));
    sent.into_iter().map(|(_, frame)| frame).collect()
}

#[test]
fn the_longest_fragment_is_noted() {
    let text = "FromDevice(a) -> Strip(14) -> CheckIPHeader -> Unstrip(14) -> IPReassembler(MAX_MTU_ANNO 4)
        -> p :: PaintSwitch(ANNO 4); p [0] -> Discard; p [1] -> q :: PaintSwitch(ANNO 5); q [0] -> Discard; q [1] -> Discard;
        q [2] -> ToDevice(x); p [2] -> Discard";
    let mut rig = Rig::new(&World::new(), text);
    // 258 bytes: 1, 2.
    assert!(rig.receive("a", &[&piece(0, 8, true)]).is_empty());
    assert_eq!(rig.receive("a", &[&piece(8, 8 + 238, false)]).len(), 1);
    assert!(refused(&CLASS, "MAX_MTU_ANNO 47").contains("0 to 46"));
}

#[test]
fn fragments_become_the_packet_in_any_order() {
    let parts = [piece(0, 480, true), piece(480, 960, true), piece(960, 1003, false)];
    for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0], [1, 0, 2], [2, 0, 1], [0, 2, 1]] {
        let mut rig = rig("");
        let whole_first = whole(100);
        assert_eq!(frames(rig.receive("a", &[&whole_first]), "b"), [whole_first]);
        for at in &order[..2] {
            assert!(rig.receive("a", &[&parts[*at]]).is_empty());
        }
        assert_eq!((rig.read("r.length"), rig.graph.held().total()), ("1".into(), 1));
        let sent = frames(rig.receive("a", &[&parts[order[2]]]), "b");
        assert_eq!(sent, [whole(1003)], "{order:?}");
        assert_eq!((rig.read("r.length"), rig.read("r.reassembled")), ("0".into(), "1".into()));
        assert_eq!((rig.dropped(DropReason::Consumed), rig.read("r.drops")), (2, "0".into()));
    }
}

#[test]
fn the_header_is_that_of_the_first_fragment() {
    // With options that the others have not, another TTL, and congestion that a later one met.
    let mut first = piece(0, 16, true);
    first.splice(34..34, [7, 7, 4, 0, 0, 0, 0, 0]);
    first[14] = 0x47;
    first[16..18].copy_from_slice(&44_u16.to_be_bytes());
    (first[15], first[22], first[20]) = (0xb9, 9, first[20] | 0x40);
    fill_ip4_checksum(&mut first);
    let mut last = piece(16, 30, false);
    last[15] = 3;
    fill_ip4_checksum(&mut last);
    for order in [[&first, &last], [&last, &first]] {
        let sent = frames(rig("").receive("a", &order.map(Vec::as_slice)), "b");
        let ip = Ip4::at(&sent[0], 14).unwrap();
        assert_eq!((ip.total_len(), ip.header_len(), ip.ttl()), (58, 28, 9));
        assert_eq!((ip.fragment(), ip.traffic_class()), (DONT_FRAGMENT, 0xbb));
        assert_eq!(checksum(&sent[0][14..42]), 0);
        assert_eq!((&sent[0][..14], &sent[0][34..42]), (&first[..14], &first[34..42]));
        assert_eq!(sent[0][42..], payload(30));
    }
    // One that could not have met congestion says that somebody lies (RFC 3168, 5.3).
    let mut rig = rig("");
    assert!(rig.receive("a", &[&piece(0, 16, true), &last]).is_empty());
    assert_eq!(rig.dropped(DropReason::BadFragment), 1);
}

#[test]
fn packets_are_told_apart() {
    let mut rig = rig("");
    let change = |at: usize| {
        let mut last = piece(16, 30, false);
        last[at] ^= 1;
        fill_ip4_checksum(&mut last);
        last
    };
    // Identification, protocol, source, destination.
    let others = [18, 23, 29, 33].map(change);
    rig.receive("a", &[&piece(0, 16, true)]);
    assert!(others.iter().all(|other| rig.receive("a", &[other]).is_empty()));
    assert_eq!(rig.read("r.length"), "5");
    assert_eq!(rig.receive("a", &[&piece(16, 30, false)]).len(), 1);
}

#[test]
fn overlaps_end_the_packet() {
    let first = piece(0, 16, true);
    let mut other = fragment(16, &[0xee; 14], false);
    let overlaps = [
        piece(8, 24, true),
        piece(8, 30, false),
        fragment(0, &[0xee; 16], true),
        piece(0, 24, true),
    ];
    for overlap in &overlaps {
        let mut rig = rig("");
        assert!(rig.receive("a", &[&first, overlap]).is_empty());
        // Nor is what comes later taken.
        assert!(rig.receive("a", &[&piece(16, 30, false), &first]).is_empty());
        assert_eq!((rig.dropped(DropReason::BadFragment), rig.graph.held().total()), (4, 0));
        // The number may be used again after a while.
        rig.bench.now_ns += 30_000_000_000;
        assert!(rig.poll().is_empty());
        assert_eq!(rig.receive("a", &[&first, &piece(16, 30, false)]).len(), 1);
    }
    // Two ends, or something behind the end.
    for wrong in [piece(32, 40, false), piece(32, 48, true), piece(8, 16, false)] {
        let mut rig = rig("");
        rig.receive("a", &[&other, &wrong]);
        assert_eq!(rig.dropped(DropReason::BadFragment), 2, "{wrong:?}");
    }
    let mut rig = rig("");
    rig.receive("a", &[&first, &first]);
    assert_eq!((rig.dropped(DropReason::Consumed), rig.dropped(DropReason::BadFragment)), (1, 0));
    other[18] ^= 1;
    fill_ip4_checksum(&mut other);
    assert!(rig.receive("a", &[&other]).is_empty());
    assert_eq!(rig.receive("a", &[&piece(16, 30, false)]).len(), 1, "said twice is said once");
}

#[test]
fn what_makes_no_sense_is_dropped_alone() {
    let mut rig = rig("");
    rig.receive("a", &[&piece(0, 16, true)]);
    let uneven = piece(16, 29, true);
    let mut far = piece(0, 800, false);
    far[20..22].copy_from_slice(&0x1fff_u16.to_be_bytes());
    fill_ip4_checksum(&mut far);
    let empty = piece(16, 16, false);
    assert!(rig.receive("a", &[&uneven, &far, &empty]).is_empty());
    let reasons = [DropReason::BadFragment, DropReason::BadLength];
    // The check of headers has found what ends too far behind.
    assert_eq!(reasons.map(|reason| rig.dropped(reason)), [1, 2]);
    assert_eq!(rig.receive("a", &[&piece(16, 30, false)]).len(), 1);
}

#[test]
fn time_and_room_are_bounded() {
    let mut rig = rig("TIMEOUT 5s, HIMEM 6000");
    let numbered = |mut frame: Vec<u8>, n: u8| {
        frame[19] = n;
        fill_ip4_checksum(&mut frame);
        frame
    };
    let first = numbered(piece(0, 16, true), 1);
    rig.receive("a", &[&first, &numbered(piece(24, 32, true), 1)]);
    rig.bench.now_ns += 2_000_000_000;
    rig.receive("a", &[&numbered(piece(16, 30, false), 2)]);
    assert!(rig.poll().is_empty());
    rig.bench.now_ns += 3_000_000_000;
    let gap = [0; 8];
    let come = [&first[..], &gap[..], &payload(32)[24..]].concat();
    assert_eq!(frames(rig.poll(), "late"), [come], "behind the header of the first fragment");
    rig.bench.now_ns += 2_000_000_000;
    let last = numbered(piece(16, 30, false), 2);
    assert_eq!(frames(rig.poll(), "late"), [last], "without the first it is a fragment still");
    assert_eq!((rig.dropped(DropReason::Incomplete), rig.read("r.length")), (0, "0".into()));
    // Two places: the older packet gives way.
    let third = numbered(piece(0, 16, true), 3);
    let mut late = Vec::new();
    for n in 3..6 {
        late.extend(rig.receive("a", &[&numbered(piece(0, 16, true), n)]));
    }
    assert_eq!((frames(late, "late"), rig.read("r.length")), (vec![third], "2".into()));
    let late = rig.receive("a", &[&numbered(piece(16, 30, false), 3)]);
    assert_eq!(frames(late, "late"), [numbered(piece(0, 16, true), 4)]);
    assert_eq!(frames(rig.receive("a", &[&numbered(piece(16, 30, false), 5)]), "b").len(), 1);
    // A new configuration goes on with them; without the element they end.
    let text = "FromDevice(a) -> Strip(14) -> CheckIPHeader -> Unstrip(14) -> r :: IPReassembler -> ToDevice(b)";
    rig.replace(text).unwrap();
    assert_eq!(rig.receive("a", &[&numbered(piece(0, 16, true), 3)]).len(), 1);
    rig.receive("a", &[&numbered(piece(0, 16, true), 9)]);
    rig.graph.stop(&mut rig.bench.round());
    assert_eq!((rig.dropped(DropReason::Shutdown), rig.graph.held().total()), (1, 0));
}

#[test]
fn what_waits_is_listed() {
    let mut rig = rig("TIMEOUT 5s");
    let mut other = piece(8, 16, true);
    other[18..20].copy_from_slice(&[1, 5]);
    fill_ip4_checksum(&mut other);
    let mut ports = payload(16);
    ports[..4].copy_from_slice(&[0, 80, 0, 90]);
    let first = fragment(0, &ports, true);
    rig.receive("a", &[&piece(40, 45, false), &first, &other, &piece(24, 32, true)]);
    rig.receive("a", &[&piece(16, 29, true)]);
    let counts = |good: u8, failed: u8| {
        format!(
            "frags seen total:    5\ngood reassemblies:   {good}\nfailed reassemblies: {failed}\n\
             bad fragments seen:  1\ncached chunk data:\n"
        )
    };
    let lines = " (10.0.0.9, 0, 192.0.2.1, 0) 261 (8,16)\n (10.0.0.9, 80, 192.0.2.1, 90) 7238 (0,16) (24,32) (40,45)\n";
    assert_eq!(rig.read("r.dump"), counts(0, 0) + lines);
    rig.bench.now_ns += 5_000_000_000;
    let late = frames(rig.poll(), "late");
    assert_eq!(late.len(), 2);
    // The last fragment has come, so that none is to follow what is first, and some is what is not.
    let words = late.iter().map(|frame| Ip4::at(frame, 14).unwrap().fragment());
    assert!(words.eq([0, MORE_FRAGMENTS | 1]));
    assert!(late.iter().all(|frame| checksum(&frame[14..34]) == 0));
    assert_eq!(rig.read("r.dump"), counts(0, 2));
}

#[cfg(feature = "click")]
#[test]
fn annotations_and_times_of_packets_count() {
    use crate::element::support::console;
    let text = "FromDevice(a) -> SetTimestamp(1) -> SetAnnoByte(5, 9) -> s :: Strip(14) -> CheckIPHeader
        -> r :: IPReassembler -> c :: CheckPaint(9, 5) -> ToIPSummaryDump(-, HEADER false, FIELDS timestamp);
        FromDevice(b) -> SetTimestamp(7) -> s; FromDevice(d) -> SetTimestamp(32) -> s;
        c [1] -> ToDevice(unmarked); r [1] -> ToDevice(late)";
    let mut rig = Rig::new(&World::new(), text);
    console::collect();
    // The annotations are those of the first fragment, though it comes later; the time is that of the last to come.
    assert!(rig.receive("b", &[&piece(16, 30, false)]).is_empty());
    assert!(rig.receive("a", &[&piece(0, 16, true)]).is_empty());
    assert!(rig.receive("a", &[&piece(0, 16, true)]).is_empty());
    assert!(rig.receive("b", &[&piece(16, 30, false)]).is_empty());
    assert_eq!(console::collected().out, "1.000000\n7.000000\n");
    // By the times of packets it is late, though no time went by here.
    rig.receive("a", &[&piece(0, 16, true)]);
    let mut other = piece(0, 16, true);
    other[19] ^= 1;
    fill_ip4_checksum(&mut other);
    assert_eq!(frames(rig.receive("d", &[&other]), "late"), [piece(0, 16, true)[14..].to_vec()]);
}

#[test]
fn a_packet_fits_a_frame() {
    let mut rig = rig("");
    // The frames of tests have 1,792 bytes behind their headroom.
    let parts = [piece(0, 1480, true), piece(1480, 1758, false)];
    let sent = rig.receive("a", &[&parts[1], &parts[0]]);
    assert_eq!(sent.len(), 1);
    assert!(rig.receive("a", &[&parts[0], &piece(1480, 1768, false)]).is_empty());
    assert_eq!(rig.dropped(DropReason::Incomplete), 2);
}

#[test]
fn the_sender_is_told_in_time() {
    let text = "FromDevice(a) -> Strip(14) -> CheckIPHeader -> r :: IPReassembler -> Discard;
        r [1] -> ICMPError(10.0.0.1, timeexceeded, reassembly) -> ToDevice(b)";
    let mut rig = Rig::new(&World::new(), text);
    rig.receive("a", &[&piece(0, 64, true)]);
    rig.bench.now_ns += 30_000_000_000;
    let error = frames(rig.poll(), "b").remove(0);
    let ip = Ip4::at(&error, 0).unwrap();
    assert_eq!((ip.dst(), sum_is_valid(ip.raw_sum())), (0x0a00_0009, true));
    assert_eq!(error[20..22], [icmp::V4_TIME_EXCEEDED, 1]);
    assert_eq!(error[28..48], piece(0, 64, true)[14..34], "the header of the first fragment");
    assert!(refused(&CLASS, "HIMEM x, TIMEOUT y").contains("`y` is no time"));
}

proptest! {
    /// However a packet is cut, and whatever comes twice, it is put together again.
    #[test]
    fn what_is_cut_is_put_together(
        len in 9..1700_usize,
        cuts in prop::collection::btree_set(1..212_usize, 1..12),
        order in prop::collection::vec(any::<prop::sample::Index>(), 0..40),
    ) {
        let mut edges: Vec<usize> = cuts.into_iter().map(|cut| cut * 8).filter(|&cut| cut < len).collect();
        prop_assume!(!edges.is_empty());
        edges.insert(0, 0);
        edges.push(len);
        let parts: Vec<_> = edges.windows(2).map(|edge| piece(edge[0], edge[1], edge[1] < len)).collect();
        let mut rig = rig("");
        let mut left: Vec<usize> = (0..parts.len()).collect();
        // Some come again before the last one has come.
        let mut sent = Vec::new();
        for pick in order {
            let at = pick.index(parts.len());
            if left.len() > 1 || !left.contains(&at) {
                left.retain(|&other| other != at);
                sent.extend(rig.receive("a", &[&parts[at]]));
            }
        }
        for at in left {
            sent.extend(rig.receive("a", &[&parts[at]]));
        }
        prop_assert_eq!(frames(sent, "b"), [whole(len)]);
        prop_assert_eq!(rig.graph.held().total(), 0);
    }
}
