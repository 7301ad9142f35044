//! Malformed frames beside packets that are in order, by both paths, with a full table and two workers: none of the packets is
//! lost, no frame is missing in the counts, and memory stays as it is.
//!
//! In the tests a part of a table, 10,000 malformed frames a second and some seconds; `cargo xtask soak storm` has all of it
//! at 50,000 a second.

use std::fmt::Write as _;
use std::fs;
use std::process::Stdio;
use std::time::Duration;

use fingerpost_packet::testing::port_mac;
use fingerpost_tests::netns::{Line, Router, batch, command, conserved, ip, run};
use fingerpost_tests::traffic::{Traffic, overflowed};
use fingerpost_tests::{root, soak, tables};

const TRANSFER: &str = env!("CARGO_BIN_EXE_transfer");
const FRAMES: &str = env!("CARGO_BIN_EXE_frames");
/// Packets in order: by routes of one path, and one of the table.
const FLOWS: [&str; 2] = ["10.9.0.1", "10.9.0.2"];
/// Rate of these, a second.
const RATE: u64 = 4_000;
/// What a process may grow by, in KiB: pages that are touched for the first time.
const MOST_GROWTH_KIB: u64 = 8 << 10;

struct Size {
    /// One route of so many of the table.
    share: usize,
    /// Malformed frames a second.
    storm: u64,
    /// For so long, on each path.
    seconds: u64,
}

impl Size {
    fn new() -> Self {
        match soak(Duration::ZERO).as_secs() {
            0 => Self { share: 20, storm: 10_000, seconds: 5 },
            all => Self { share: 1, storm: 50_000, seconds: (all / 2).max(10) },
        }
    }
}

/// The frames of `testdata/packets/bad.pcap`, to this link address where they were for the router, in hexadecimal.
fn malformed(mac: &str) -> String {
    let bytes = fs::read(root().join("testdata/packets/bad.pcap")).expect("it is shipped");
    let ours: Vec<u8> = mac
        .trim()
        .split(':')
        .map(|part| u8::from_str_radix(part, 16).expect("a link address"))
        .collect();
    let (mut text, mut at) = (String::new(), 24);
    while let Some(record) = bytes.get(at..at + 16) {
        let len = u32::from_le_bytes(record[8..12].try_into().expect("4 bytes")) as usize;
        let mut frame = bytes[at + 16..at + 16 + len].to_vec();
        at += 16 + len;
        // What has no whole Ethernet header a packet socket does not send.
        if len <= 14 {
            continue;
        }
        if frame[..6] == port_mac(0).0 {
            frame[..6].copy_from_slice(&ours);
        }
        frame.iter().for_each(|byte| write!(text, "{byte:02x}").expect("a String"));
        text.push('\n');
    }
    assert!(text.lines().count() > 150, "{} frames", text.lines().count());
    text
}

#[test]
fn storm_of_malformed_frames_costs_no_packet() {
    let Some(line) = Line::with_queues(&["ping", "ethtool"], [2, 2]) else { return };
    let size = Size::new();
    let (s, r, d) = (&line.source, &line.router, &line.destination);
    // Checksums that a sender leaves to a card are filled in by the graph, not in XDP.
    run(s, "ethtool -K s0 gro on tx off");
    run(d, "ethtool -K d0 gro on tx off");
    let mut lines = String::from("route add 10.9.0.0/16 via 10.0.2.2\n");
    // Where malformed frames would go, as far as they are not dropped before.
    lines += "route add 192.0.2.0/24 via 10.0.2.2\nroute add default via fd02::2\n";
    batch(r, &(lines + &tables::routes_by("10.0.2.2", size.share)));
    for flow in FLOWS {
        ip(&format!("-n {d} addr add {flow}/32 dev lo"));
    }
    let file = std::env::temp_dir().join(format!("{r}.hex"));
    let mac = run(r, "cat /sys/class/net/r0/address");
    fs::write(&file, malformed(&mac)).expect("the temporary folder can be written");

    for (path, in_drivers) in [("", true), ("--path graph", false)] {
        let router = Router::start(r, path, 2);
        run(s, &format!("ping -c 2 -i 0.2 -W 2 {}", FLOWS[0]));
        let full = overflowed(d);
        let words = format!("{FRAMES} s0 {} {} {}", file.display(), size.storm, size.seconds + 1);
        let storm = command(s, &words).stdout(Stdio::piped()).spawn();
        let storm = storm.expect("the helper is built with the tests");
        let before = {
            std::thread::sleep(Duration::from_secs(1));
            router.resident_kib()
        };
        let counts = Traffic::begin(TRANSFER, &line, &FLOWS, RATE, size.seconds).end();
        let grown = router.resident_kib().saturating_sub(before);
        let sent = storm.wait_with_output().expect("it was started");
        let sent = String::from_utf8_lossy(&sent.stdout).trim().to_owned();
        let full = overflowed(d) - full;
        let report = router.stop();
        println!(
            "{path:?}: {sent} malformed, {counts:?}, {full} without room at the receiver, {grown} KiB more"
        );
        println!("{report}");
        conserved(&report);
        assert_eq!(report["workers_alive"], 2, "{report}");
        assert_eq!(report["workers"], 2, "{report}");
        assert!(counts.lost() <= full, "{path:?}: {counts:?}, {full} without room at the receiver");
        assert!(grown <= MOST_GROWTH_KIB, "{grown} KiB more after {sent}");
        let number = |value: &serde_json::Value| value.as_u64().unwrap_or_default();
        assert_eq!(number(&report["forwarded_xdp"]) > RATE, in_drivers, "{report}");
        let dropped: u64 =
            report["dropped"].as_object().expect("by reason").values().map(number).sum();
        assert!(dropped > size.storm * size.seconds / 4, "the storm came: {report}");
        // What was sent is what came in for forwarding or was left to the kernel, but for ARP, pings and the like.
        let malformed = sent.strip_prefix("sent ").and_then(|sent| sent.parse::<u64>().ok());
        let all = malformed.expect("a number") + counts.sent;
        let seen = number(&report["packets_in"]) + number(&report["punted"]);
        let others = seen.checked_sub(all);
        assert!(
            others.is_some_and(|n| n < 100 + size.seconds),
            "{all} sent, {seen} seen: {report}"
        );
    }
    let _ = fs::remove_file(file);
}
