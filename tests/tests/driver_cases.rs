//! The packet cases of `testdata/packets` through veths, with the daemon forwarding in the driver: what arrives
//! beyond the interfaces is compared byte for byte.
//!
//! All ports of the cases' topology are veths of one namespace, with the routes and neighbors in the kernel's
//! tables; their other ends lie in a second one, where tcpdump listens. Sent are the cases of which one packet
//! comes out again, and all of them once more with a longer payload: behind a veth the programs leave packets to
//! the graph whose transport header is too short to tell whether its checksum is open. What they leave is told by
//! reason; it comes out as well.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::IpAddr;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use fingerpost_packet::cases::topology::{NeighborSpec, RouteSpec};
use fingerpost_packet::cases::{Built, Case, cases, diff};
use fingerpost_packet::wire::checksum::checksum;
use fingerpost_packet::wire::{ETHER_BYTES, IP6_BYTES};
use fingerpost_tests::netns::{Line, Router, batch, command, conserved, ip, run};

const FRAMES: &str = env!("CARGO_BIN_EXE_frames");

/// Ethernet addresses, both.
const MACS: usize = 12;

/// The topology in two namespaces: `router` with the ports, `destination` with their other ends, whose names
/// begin with an `h`.
fn build(line: &Line, built: &Built) {
    let (router, far) = (&line.router, &line.destination);
    let topology = &built.topology;
    run(far, "sysctl -qw net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1");
    for port in &topology.ports {
        let (name, mac, mtu) = (&port.name, &port.mac, port.mtu);
        ip(&format!("-n {router} link add name {name} type veth peer name h{name} netns {far}"));
        ip(&format!("-n {router} link set {name} address {mac} mtu {mtu} addrgenmode none up"));
        ip(&format!("-n {far} link set h{name} mtu {mtu}"));
        if !port.down {
            ip(&format!("-n {far} link set h{name} up"));
        }
        // A veth takes what programs send while its other end has this.
        run(far, &format!("ethtool -K h{name} gro on"));
        for addr in &port.addrs {
            let nodad = if addr.contains(':') { " nodad" } else { "" };
            ip(&format!("-n {router} addr add {addr} dev {name}{nodad}"));
        }
    }
    let mut lines = String::new();
    for addr in &topology.own {
        writeln!(lines, "addr add {addr} dev lo").expect("a String");
    }
    for NeighborSpec { port, addrs, mac, .. } in &topology.neighbors {
        for (addr, mac) in addrs.iter().zip(mac.iter().cycle()) {
            writeln!(lines, "neigh replace {addr} lladdr {mac} dev {port} nud permanent")
                .expect("a String");
        }
    }
    for route in &topology.routes {
        for to in &route.to {
            writeln!(lines, "route add {}", words(built, route, to)).expect("a String");
        }
    }
    // Routes by the port without carrier are refused.
    batch(router, &lines);
}

/// A route in the words of `ip route add`.
fn words(built: &Built, route: &RouteSpec, to: &str) -> String {
    if let Some(kind) = &route.kind {
        return format!("{kind} {to}");
    }
    let v6 = to.contains(':');
    let way = |name: &String| {
        let neighbors = &built.topology.neighbors;
        let neighbor = neighbors.iter().find(|n| n.name == *name).expect("routes name neighbors");
        let same = |addr: &&IpAddr| addr.is_ipv6() == v6;
        let addr = neighbor.addrs.iter().find(same).unwrap_or(&neighbor.addrs[0]);
        let family = if addr.is_ipv6() && !v6 { "inet6 " } else { "" };
        (format!("via {family}{addr} dev {}", neighbor.port), neighbor.mtu)
    };
    let ways: Vec<_> = route.via.iter().map(way).collect();
    match &ways[..] {
        [(way, None)] => format!("{to} {way}"),
        [(way, Some(mtu))] => format!("{to} {way} mtu {mtu}"),
        many => many.iter().fold(to.to_owned(), |all, (way, _)| format!("{all} nexthop {way}")),
    }
}

/// tcpdump on an interface, and the file that it writes.
struct Listener {
    child: Child,
    file: std::path::PathBuf,
}

impl Listener {
    fn start(namespace: &str, interface: &str) -> Self {
        let file = std::env::temp_dir().join(format!("{namespace}-{interface}.pcap"));
        let words = format!(
            "tcpdump -i {interface} -Q in -U -n -Z root --immediate-mode -w {}",
            file.display()
        );
        let child = command(namespace, &words).stderr(Stdio::null()).spawn();
        let listener = Self { child: child.expect("it was found before"), file };
        let until = Instant::now() + Duration::from_secs(10);
        // Its header is written once it listens.
        while std::fs::metadata(&listener.file).map_or(0, |file| file.len()) < 24 {
            assert!(Instant::now() < until, "tcpdump on {interface} does not begin");
            std::thread::sleep(Duration::from_millis(20));
        }
        listener
    }

    fn frames(&self) -> Vec<Vec<u8>> {
        let bytes = std::fs::read(&self.file).expect("tcpdump writes it");
        let (mut frames, mut at) = (Vec::new(), 24);
        while let Some(record) = bytes.get(at..at + 16) {
            let word =
                |at: usize| u32::from_ne_bytes(record[at..at + 4].try_into().expect("4 bytes"));
            assert_eq!(word(8), word(12), "cut off");
            let len = word(8) as usize;
            let Some(frame) = bytes.get(at + 16..at + 16 + len) else { break };
            frames.push(frame.to_vec());
            at += 16 + len;
        }
        frames
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_file(&self.file);
    }
}

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
        let hop = match input[12..14] {
            [8, 0] => {
                built.forwarding.v4.lookup(u32::from_be_bytes(input[30..34].try_into().ok()?))
            }
            _ => built.forwarding.v6.lookup(u128::from_be_bytes(input[38..54].try_into().ok()?)),
        };
        let chosen = built.forwarding.hops.group(hop).is_some();
        Some(Crossing { name: case.name, port: case.port, input, want, chosen })
    };
    let mut all: Vec<_> = cases().into_iter().filter_map(one).collect();
    // Toward `narrow` they may be as large as can be.
    let room = |crossing: &&Crossing| crossing.want.0 != built.port("narrow");
    all.extend(all.iter().filter(room).filter_map(Crossing::longer).collect::<Vec<_>>());
    all
}

impl Crossing {
    /// The same with more payload; `None` where it might not fit.
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
    let name = built.port_name(port);
    let mut behind = built.topology.neighbors.iter().filter(|n| n.port == name && n.mac.is_some());
    frame[MACS..] == want[MACS..]
        && frame[6..MACS] == built.mac(name).0
        && behind.any(|neighbor| frame[..6] == built.mac(&neighbor.name).0)
}

#[test]
fn packet_cases_cross_veths_in_the_driver() {
    let Some(line) = Line::new(&["ethtool", "tcpdump"]) else { return };
    let built = Built::of_cases();
    build(&line, &built);
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
        let lines = of_port.fold(String::new(), |mut all, crossing| {
            crossing.input.iter().for_each(|byte| write!(all, "{byte:02x}").expect("a String"));
            all + "\n"
        });
        let file = std::env::temp_dir().join(format!("{}-{}.hex", line.destination, port.name));
        std::fs::write(&file, &lines).expect("the temporary folder can be written");
        run(&line.destination, &format!("{FRAMES} h{} {}", port.name, file.display()));
        let _ = std::fs::remove_file(&file);
    }
    let arrived = || -> Vec<(u16, Vec<u8>)> {
        let of = |(port, listener): (&u16, &Listener)| {
            listener.frames().into_iter().map(|frame| (*port, frame)).collect::<Vec<_>>()
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
    let wrong = missing(&frames).into_iter().fold(String::new(), |all, at| {
        let Crossing { name, want: (port, want), .. } = &crossings[at];
        let by_port =
            frames.iter().filter(|(other, frame)| other == port && frame.len() == want.len());
        let near = by_port.map(|(_, frame)| diff(want, frame)).min_by_key(String::len);
        format!("{all}{name}, by {}:\n{}\n", built.port_name(*port), near.unwrap_or_default())
    });
    let (all, forwarded) = (crossings.len(), &report["forwarded_in_drivers"]);
    println!(
        "{all} cases crossed, {forwarded} in drivers; left alone: {}",
        report["left_in_drivers"]
    );
    assert!(wrong.is_empty(), "{wrong}{report}");
    assert!(forwarded.as_u64() > Some(40), "{report}");
}
