//! Nonsense in: `testdata/packets/bad.pcap`, frame by frame and all at once, through the built-in router.
//! Each frame must end as `bad.toml` states, nothing may panic, and every frame of the pool must come back.
//!
//! The files are made by this test, without chance; `FINGERPOST_ACCEPT=1` writes them anew.

#![allow(clippy::unwrap_used, reason = "a test: what fails here fails the test")]

use std::fs::File;
use std::path::PathBuf;
use std::time::Duration;

use fingerpost_packet::testing::frames::{V4, V6, bench, check};
use fingerpost_packet::testing::{Bench, batch, fill_ip4_checksum, frame_v4, frame_v6};
use fingerpost_packet::{DropReason, Graph, router_graph};
use pcap_file::pcap::{PcapPacket, PcapReader, PcapWriter};
use proptest::prelude::*;
use serde::{Deserialize, Serialize};

/// Expected of a frame that a router has no right to drop.
const SENT: &str = "sent";

#[derive(Serialize, Deserialize)]
struct Record {
    frame: Vec<Expected>,
}

#[derive(Serialize, Deserialize, PartialEq, Debug)]
struct Expected {
    name: String,
    /// A drop reason, or `sent`.
    ends: String,
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../testdata/packets")
}

const ETHERNET: usize = 14;

fn v4() -> Vec<u8> {
    frame_v4(V4[0], V4[1], 64, 17, &[7; 26])
}

fn v6() -> Vec<u8> {
    frame_v6(V6[0], V6[1], 64, 17, &[7; 26])
}

/// Changes a good IPv4 frame and makes its checksum right again.
fn changed(change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut frame = v4();
    change(&mut frame);
    fill_ip4_checksum(&mut frame);
    frame
}

/// An IPv4 frame with these options, padded.
fn options(options: &[u8]) -> Vec<u8> {
    changed(|frame| {
        let mut padded = options.to_vec();
        padded.resize(options.len().next_multiple_of(4), 0);
        let words = u8::try_from(5 + padded.len() / 4).unwrap();
        let total = u16::try_from(frame.len() - ETHERNET + padded.len()).unwrap();
        frame[ETHERNET] = 0x40 | words;
        frame[ETHERNET + 2..ETHERNET + 4].copy_from_slice(&total.to_be_bytes());
        frame.splice(ETHERNET + 20..ETHERNET + 20, padded);
    })
}

struct Corpus(Vec<(Expected, Vec<u8>)>);

impl Corpus {
    fn add(&mut self, ends: &str, name: impl Into<String>, frame: Vec<u8>) {
        self.0.push((Expected { name: name.into(), ends: ends.into() }, frame));
    }
}

fn corpus() -> Vec<(Expected, Vec<u8>)> {
    let mut c = Corpus(Vec::new());
    for len in 0..34 {
        c.add("too_short", format!("IPv4 cut to {len}"), v4()[..len].to_vec());
    }
    for len in ETHERNET..54 {
        c.add("too_short", format!("IPv6 cut to {len}"), v6()[..len].to_vec());
    }
    for version in (0..16u8).filter(|v| *v != 4) {
        let frame = changed(|f| f[ETHERNET] = version << 4 | 5);
        c.add("bad_version", format!("IPv4 of version {version}"), frame);
    }
    for version in (0..16u8).filter(|v| *v != 6) {
        let mut frame = v6();
        frame[ETHERNET] = version << 4;
        c.add("bad_version", format!("IPv6 of version {version}"), frame);
    }
    for words in 0..5u8 {
        let mut frame = v4();
        frame[ETHERNET] = 0x40 | words;
        c.add("bad_header_length", format!("header of {words} words"), frame);
    }
    for len in 0..20u16 {
        let frame = changed(|f| f[16..18].copy_from_slice(&len.to_be_bytes()));
        c.add("bad_length", format!("total length {len}"), frame);
    }
    for len in [47u16, 146, 1500, 65_535] {
        let frame = changed(|f| f[16..18].copy_from_slice(&len.to_be_bytes()));
        c.add("bad_length", format!("total length {len} of 46"), frame);
    }
    for len in [27u16, 100, 65_535] {
        let mut frame = v6();
        frame[18..20].copy_from_slice(&len.to_be_bytes());
        c.add("bad_length", format!("payload length {len} of 26"), frame);
    }
    for bit in 0..16 {
        let mut frame = v4();
        frame[24 + bit / 8] ^= 1 << (bit % 8);
        c.add("bad_checksum", format!("checksum bit {bit}"), frame);
    }
    addresses(&mut c);
    link_layer(&mut c);
    for ttl in [0, 1] {
        c.add("ttl_expired", format!("TTL {ttl}"), changed(|f| f[22] = ttl));
        let mut frame = v6();
        frame[21] = ttl;
        c.add("ttl_expired", format!("hop limit {ttl}"), frame);
    }
    for (name, bytes) in [
        ("of length 0", &[148u8, 0, 0, 0][..]),
        ("of length 1", &[148, 1, 0, 0]),
        ("longer than the header", &[148, 9, 0, 0]),
        ("cut after its type", &[1, 1, 1, 148]),
        ("a record route that points before its addresses", &[7, 7, 3, 0, 0, 0, 0, 0]),
        ("a timestamp that points before its data", &[68, 8, 4, 0, 0, 0, 0, 0]),
        ("a timestamp with flags that mean nothing", &[68, 8, 5, 7, 0, 0, 0, 0]),
    ] {
        c.add("bad_option", format!("option {name}"), options(bytes));
    }
    for (name, kind) in [("loose", 131), ("strict", 137)] {
        let bytes = [kind, 7, 4, 192, 0, 2, 9, 0];
        c.add("source_routed", format!("{name} source route"), options(&bytes));
    }
    extension_headers(&mut c);
    c.0
}

fn addresses(c: &mut Corpus) {
    for source in
        ["0.1.2.3", "127.0.0.1", "169.254.1.1", "224.0.0.1", "240.0.0.1", "255.255.255.255"]
    {
        c.add(
            "martian_source",
            format!("from {source}"),
            frame_v4(source, V4[1], 64, 17, &[0; 26]),
        );
    }
    for source in ["10.0.0.1", "10.0.1.1", "10.0.2.1"] {
        c.add("own_source", format!("from {source}"), frame_v4(source, V4[1], 64, 17, &[0; 26]));
    }
    for to in ["0.1.2.3", "127.0.0.1", "169.254.1.1", "240.0.0.1", "255.255.255.255"] {
        c.add("martian_destination", format!("to {to}"), frame_v4(V4[0], to, 64, 17, &[0; 26]));
    }
    for to in ["224.0.0.5", "239.255.255.255"] {
        c.add("multicast", format!("to {to}"), frame_v4(V4[0], to, 64, 17, &[0; 26]));
    }
    for to in ["10.0.0.255", "10.0.1.255", "10.0.2.0"] {
        c.add("directed_broadcast", format!("to {to}"), frame_v4(V4[0], to, 64, 17, &[0; 26]));
    }
    for source in ["::", "::1", "ff02::1", "::ffff:192.0.2.1", "::192.0.2.1"] {
        c.add(
            "martian_source",
            format!("from {source}"),
            frame_v6(source, V6[1], 64, 17, &[0; 26]),
        );
    }
    c.add("own_source", "from 2001:db8:1::1", frame_v6("2001:db8:1::1", V6[1], 64, 17, &[0; 26]));
    for to in ["::", "::1", "::ffff:192.0.2.1"] {
        c.add("martian_destination", format!("to {to}"), frame_v6(V6[0], to, 64, 17, &[0; 26]));
    }
    for to in ["ff02::1", "ff0e::1"] {
        c.add("multicast", format!("to {to}"), frame_v6(V6[0], to, 64, 17, &[0; 26]));
    }
    c.add("scope", "to a link-local address", frame_v6(V6[0], "fe80::77", 64, 17, &[0; 26]));
    c.add("scope", "from a link-local address", frame_v6("fe80::9", V6[1], 64, 17, &[0; 26]));
}

fn link_layer(c: &mut Corpus) {
    for kind in [0x0000u16, 0x0026, 0x05ff, 0x0806, 0x8100, 0x88a8, 0x88cc, 0xffff] {
        let mut frame = v4();
        frame[12..14].copy_from_slice(&kind.to_be_bytes());
        c.add("bad_ether_type", format!("type {kind:#06x}"), frame);
    }
    for last in 1..6u8 {
        let mut frame = v4();
        frame[..6].copy_from_slice(&[2, 0x77, 0, 0, 0, last]);
        c.add("not_for_us", format!("to station {last}"), frame);
    }
    for (mac, base) in [
        ([0xff; 6], v4()),
        ([1, 0, 0x5e, 0, 0, 1], v4()),
        ([0xff; 6], v6()),
        ([0x33, 0x33, 0, 0, 0, 1], v6()),
    ] {
        let mut frame = base;
        frame[..6].copy_from_slice(&mac);
        c.add("link_broadcast", format!("unicast in a frame to {mac:02x?}"), frame);
    }
}

/// A transit router looks at the fixed header alone (RFC 8200, 7045): however broken the chain behind it
/// is, the packet is not for us to judge.
fn extension_headers(c: &mut Corpus) {
    for first in [0u8, 43, 44, 50, 51, 60, 135, 139, 140, 253] {
        for (name, len) in [("short", 0u8), ("endless", 255)] {
            let mut payload = vec![0; 64];
            // Each says that another of its kind follows.
            for header in payload.chunks_mut(8) {
                header[0] = first;
                header[1] = len;
            }
            let frame = frame_v6(V6[0], V6[1], 64, first, &payload);
            c.add(SENT, format!("a chain of {name} headers {first}"), frame);
        }
    }
}

fn write(corpus: &[(Expected, Vec<u8>)]) {
    let file = File::create(folder().join("bad.pcap")).unwrap();
    let mut writer = PcapWriter::new(file).unwrap();
    for (second, (_, frame)) in (0..).zip(corpus) {
        let len = u32::try_from(frame.len()).unwrap();
        writer.write_packet(&PcapPacket::new(Duration::from_secs(second), len, frame)).unwrap();
    }
    let mut text = String::from(
        "# How each frame of bad.pcap ends, in its order: a drop reason, or sent.\n\n",
    );
    for (expected, _) in corpus {
        text += &format!("[[frame]]\nname = {:?}\nends = {:?}\n\n", expected.name, expected.ends);
    }
    std::fs::write(folder().join("bad.toml"), text).unwrap();
}

fn read() -> Vec<(Expected, Vec<u8>)> {
    let file = File::open(folder().join("bad.pcap")).expect("FINGERPOST_ACCEPT=1 writes it");
    let mut reader = PcapReader::new(file).unwrap();
    let mut frames = Vec::new();
    while let Some(packet) = reader.next_packet() {
        frames.push(packet.unwrap().data.into_owned());
    }
    let text = std::fs::read_to_string(folder().join("bad.toml")).unwrap();
    let record: Record = toml::from_str(&text).unwrap();
    assert_eq!(record.frame.len(), frames.len());
    record.frame.into_iter().zip(frames).collect()
}

/// Runs frames in one batch; returns the reasons of received packets that were dropped, and how many
/// received ones were sent.
fn run(bench: &mut Bench, graph: &mut Graph, frames: &[&[u8]]) -> (Vec<DropReason>, usize) {
    let reasons = |bench: &Bench| {
        DropReason::ALL
            .iter()
            .map(|&r| bench.counters.dropped[r as usize].read())
            .collect::<Vec<_>>()
    };
    let before = reasons(bench);
    bench.sent.frames.clear();
    let packets = batch(&bench.pool, 0, frames.iter().copied());
    graph.receive(0, packets, &mut bench.round());
    let mut dropped = Vec::new();
    for ((&reason, after), before) in DropReason::ALL.iter().zip(reasons(bench)).zip(before) {
        dropped.extend((before..after).map(|_| reason));
    }
    let generated = |flags: u8| flags & fingerpost_packet::frame::FLAG_GENERATED != 0;
    let sent = bench.sent.frames.iter().filter(|f| !generated(f.2.flags)).count();
    assert_eq!(
        dropped.len() + sent + graph.held().received,
        frames.len(),
        "in = out + dropped + held"
    );
    assert_eq!(graph.held().received, 0, "nonsense waits for nobody");
    assert_eq!(bench.pool.free(), bench.pool.frames(), "every frame came back");
    (dropped, sent)
}

#[test]
fn every_bad_frame_ends_with_its_reason() {
    let made = corpus();
    if std::env::var_os("FINGERPOST_ACCEPT").is_some() {
        write(&made);
    }
    let corpus = read();
    assert!(corpus.len() >= 200, "{} frames", corpus.len());
    assert_eq!(corpus.len(), made.len(), "FINGERPOST_ACCEPT=1 writes the files anew");
    for (read, made) in corpus.iter().zip(&made) {
        assert_eq!(read, made, "FINGERPOST_ACCEPT=1 writes the files anew");
    }
    let mut bench = bench();
    let plan = router_graph::plan().unwrap();
    let mut graph = Graph::new(&plan, &bench.pool);
    let mut wrong = Vec::new();
    for (expected, frame) in &corpus {
        let (dropped, sent) = run(&mut bench, &mut graph, &[frame]);
        let got = dropped.first().map_or(SENT, |reason| reason.name());
        assert_eq!(dropped.len() + sent, 1);
        if got != expected.ends {
            wrong.push(format!("{}: {got}, not {}", expected.name, expected.ends));
        }
    }
    assert!(wrong.is_empty(), "{} frames:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn all_at_once_they_end_the_same() {
    let corpus = read();
    let mut bench = bench();
    let mut graph = Graph::new(&router_graph::plan().unwrap(), &bench.pool);
    for part in corpus.chunks(256) {
        let frames: Vec<&[u8]> = part.iter().map(|(_, frame)| &frame[..]).collect();
        let (dropped, sent) = run(&mut bench, &mut graph, &frames);
        let mut got: Vec<&str> = dropped.iter().map(|reason| reason.name()).collect();
        got.extend((0..sent).map(|_| SENT));
        let mut want: Vec<&str> = part.iter().map(|(expected, _)| &expected.ends[..]).collect();
        got.sort_unstable();
        want.sort_unstable();
        assert_eq!(got, want);
    }
}

/// Every good frame and every bad one with each of its first 64 bytes damaged: anything may come of it but
/// a panic or a lost frame.
#[test]
fn damage_anywhere_loses_nothing() {
    let mut bench = bench();
    let mut graph = Graph::new(&router_graph::plan().unwrap(), &bench.pool);
    let bad = read();
    let frames = [v4(), v6()].into_iter().chain(bad.into_iter().map(|(_, frame)| frame).step_by(5));
    for frame in frames {
        for at in 0..frame.len().min(64) {
            for value in [0, 0xff, frame[at] ^ 1, frame[at].wrapping_add(0x40)] {
                let mut frame = frame.clone();
                frame[at] = value;
                let packets = batch(&bench.pool, 0, [&frame[..]]);
                graph.receive(0, packets, &mut bench.round());
                bench.sent.frames.clear();
            }
        }
        // What waits for a link address is dropped, and counted, at the end.
        graph.stop(&mut bench.round());
        assert_eq!(bench.pool.free(), bench.pool.frames());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    /// Frames of the fuzzer's property.
    #[test]
    fn any_frames_are_sent_dropped_or_held(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        check(&bytes);
    }
}
