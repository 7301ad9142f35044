//! The packet cases of `testdata/packets` through veths, with the daemon forwarding in XDP: what arrives
//! beyond the interfaces is compared byte for byte.
//!
//! All ports of the cases' topology are veths of one namespace, with the routes and neighbors in the kernel's
//! tables; their other ends lie in a second one, where tcpdump listens. Sent are the cases of which one packet
//! comes out again, and all of them once more with a longer payload: behind a veth the programs leave packets to
//! the graph whose transport header is too short to show whether its checksum is partial. What they leave is known by
//! reason; it comes out as well.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use fingerpost_packet::cases::{Built, Case, cases, diff};
use fingerpost_packet::frame::wire::checksum::checksum;
use fingerpost_packet::frame::wire::{ETHER_BYTES, IP6_BYTES};
use fingerpost_tests::netns::{Line, Router, conserved, run};
use fingerpost_tests::world::{self, Listener, MACS};

const FRAMES: &str = env!("CARGO_BIN_EXE_frames");

/// A case, the frame that comes in, the port and frame that go out, and whether a group has to choose.
struct Crossing {
    name: String,
    port: String,
    input: Vec<u8>,
    want: (u16, Vec<u8>),
    chosen: bool,
}

/// The cases of which one packet comes out again.
fn crossings(built: &Built) -> Vec<Crossing> {
    let one = |(file, case): (String, Case)| {
        let [out] = &case.out[..] else { return None };
        out.change.as_ref()?;
        // Here every port is one behind which checksums may be open, and an unnumbered one speaks from
        // another address of the host.
        if file == "checksums.toml" && case.port != "veth" || case.name.contains("unnumbered") {
            return None;
        }
        let input = case.input(built).expect("cases make sense");
        let want = case.outputs(built).expect("cases make sense").remove(0);
        let chosen = world::chosen(built, &input);
        Some(Crossing { name: case.name, port: case.port, input, want, chosen })
    };
    let mut all: Vec<_> = cases().into_iter().filter_map(one).collect();
    // Toward `narrow` they may be as large as can be.
    let room = |crossing: &&Crossing| crossing.want.0 != built.port("narrow");
    all.extend(all.iter().filter(room).filter_map(Crossing::longer).collect::<Vec<_>>());
    all
}

impl Crossing {
    /// The case with more payload; `None` where it might not fit.
    fn longer(&self) -> Option<Self> {
        let (port, want) = &self.want;
        (self.input.len() < 600).then(|| Self {
            name: format!("{}, longer", self.name),
            port: self.port.clone(),
            input: longer(&self.input),
            want: (*port, longer(want)),
            chosen: self.chosen,
        })
    }
}

/// A frame whose packet has [`MORE`] bytes more; what padded it is gone.
fn longer(frame: &[u8]) -> Vec<u8> {
    let v4 = frame[12..14] == [8, 0];
    let (at, header) = if v4 { (16, 0) } else { (18, IP6_BYTES) };
    let length = u16::from_be_bytes([frame[at], frame[at + 1]]);
    let end = ETHER_BYTES + header + usize::from(length);
    let mut frame = [&frame[..end], &[0; MORE as usize]].concat();
    frame[at..at + 2].copy_from_slice(&(length + MORE).to_be_bytes());
    if v4 {
        let bytes = usize::from(frame[ETHER_BYTES] & 15) * 4;
        frame[24..26].fill(0);
        let sum = checksum(&frame[ETHER_BYTES..ETHER_BYTES + bytes]);
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
    }
    frame
}

const MORE: u16 = 24;

/// Whether `frame`, which left by `port`, is what was wanted. The daemon hashes by another seed than the cases,
/// so a packet for a group may go by any member.
fn fits(built: &Built, crossing: &Crossing, port: u16, frame: &[u8]) -> bool {
    let (want_port, want) = &crossing.want;
    if !crossing.chosen {
        return port == *want_port && frame == want;
    }
    frame[MACS..] == want[MACS..] && world::leads_on(built, port, frame)
}

#[test]
fn packet_cases_cross_veths_in_the_driver() {
    let Some(line) = Line::new(&["ethtool", "tcpdump"]) else { return };
    let built = Built::of_cases();
    world::build(&line, &built);
    for port in &built.topology.ports {
        // A veth takes what programs send while its other end has this.
        run(&line.destination, &format!("ethtool -K h{} gro on", port.name));
    }
    let ports: Vec<_> = built.topology.ports.iter().filter(|port| !port.down).collect();
    let listeners: BTreeMap<u16, Listener> = ports
        .iter()
        .map(|p| (built.port(&p.name), Listener::start(&line.destination, &format!("h{}", p.name))))
        .collect();
    let router = Router::start(&line.router, "--path xdp", ports.len());
    // Drivers are asked what they take before the first turn ends, and four times a second.
    std::thread::sleep(Duration::from_millis(500));
    let crossings = crossings(&built);
    for port in &ports {
        let of_port = crossings.iter().filter(|crossing| crossing.port == port.name);
        world::send(FRAMES, &line, &port.name, of_port.map(|crossing| &crossing.input[..]), 2);
    }
    let arrived = || -> Vec<(u16, Vec<u8>)> {
        let of = |(port, listener): (&u16, &Listener)| {
            listener.frames().into_iter().map(|(_, frame)| (*port, frame)).collect::<Vec<_>>()
        };
        listeners.iter().flat_map(of).collect()
    };
    let missing = |frames: &[(u16, Vec<u8>)]| -> Vec<usize> {
        let came = |c: &Crossing| frames.iter().filter(|(p, f)| fits(&built, c, *p, f)).count();
        (0..crossings.len()).filter(|&at| came(&crossings[at]) == 0).collect()
    };
    let until = Instant::now() + Duration::from_secs(5);
    while !missing(&arrived()).is_empty() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(100));
    }
    let frames = arrived();
    let rows: Vec<serde_json::Value> = router.ask("interface show");
    let sent: BTreeMap<&str, usize> =
        crossings.iter().fold(BTreeMap::new(), |mut sent, crossing| {
            *sent.entry(crossing.port.as_str()).or_default() += 1;
            sent
        });
    for (port, sent) in sent {
        let row = rows.iter().find(|row| row["name"] == port).expect("it is shown");
        // Whoever forwarded them.
        assert!(row["rx_packets"].as_u64() >= Some(sent as u64), "{sent} frames by {row}");
    }
    let received: u64 = rows.iter().filter_map(|row| row["rx_packets"].as_u64()).sum();
    let report = router.stop();
    conserved(&report);
    assert_eq!(report["packets_in"], received, "{rows:#?}");
    let sent: u64 = rows.iter().filter_map(|row| row["tx_packets"].as_u64()).sum();
    let left = ["packets_out", "originated"].map(|field| report[field].as_u64().unwrap_or(0));
    assert_eq!(left.iter().sum::<u64>(), sent, "{rows:#?}");
    let wrong = missing(&frames).into_iter().fold(String::new(), |all, at| {
        let Crossing { name, want: (port, want), .. } = &crossings[at];
        let by_port =
            frames.iter().filter(|(other, frame)| other == port && frame.len() == want.len());
        let near = by_port.map(|(_, frame)| diff(want, frame)).min_by_key(String::len);
        format!("{all}{name}, by {}:\n{}\n", built.port_name(*port), near.unwrap_or_default())
    });
    let (all, forwarded) = (crossings.len(), &report["forwarded_xdp"]);
    println!("{all} cases crossed, {forwarded} in drivers; left alone: {}", report["left_xdp"]);
    assert!(wrong.is_empty(), "{wrong}{report}");
    assert!(forwarded.as_u64() > Some(40), "{report}");
}
