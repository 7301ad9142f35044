//! The topology of the packet cases as network namespaces: what sends to it, and what listens beyond its ports.

use std::fmt::Write as _;
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use fingerpost_packet::cases::Built;
use fingerpost_packet::cases::topology::{NeighborSpec, RouteSpec};

use crate::netns::{Line, batch, command, ip, run};

/// Ethernet addresses, both.
pub const MACS: usize = 12;

/// The topology in two namespaces: `router` with the ports, `destination` with their other ends, whose names
/// begin with an `h`.
///
/// # Panics
/// When a command of the set-up fails.
pub fn build(line: &Line, built: &Built) {
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
#[derive(Debug)]
pub struct Listener {
    child: Child,
    file: PathBuf,
}

impl Listener {
    /// Starts it, and waits until it listens.
    ///
    /// # Panics
    /// When it does not within 10 s.
    pub fn start(namespace: &str, interface: &str) -> Self {
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

    /// Frames received so far, each with the time of day.
    ///
    /// # Panics
    /// When tcpdump has cut a frame off, or written something else than a capture.
    pub fn frames(&self) -> Vec<(Duration, Vec<u8>)> {
        let bytes = std::fs::read(&self.file).expect("tcpdump writes it");
        let (mut frames, mut at) = (Vec::new(), 24);
        while let Some(record) = bytes.get(at..at + 16) {
            let word =
                |at: usize| u32::from_ne_bytes(record[at..at + 4].try_into().expect("4 bytes"));
            assert_eq!(word(8), word(12), "cut off");
            let len = word(8) as usize;
            let Some(frame) = bytes.get(at + 16..at + 16 + len) else { break };
            let time = Duration::from_secs(word(0).into()) + Duration::from_micros(word(4).into());
            frames.push((time, frame.to_vec()));
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

/// Sends frames by the other end of a port with `program`, which is `frames`, `gap_ms` apart; the time of day before
/// each.
///
/// # Panics
/// When one cannot be sent.
pub fn send<'a>(
    program: &str,
    line: &Line,
    port: &str,
    frames: impl Iterator<Item = &'a [u8]>,
    gap_ms: u64,
) -> Vec<Duration> {
    let text = frames.fold(String::new(), |mut all, frame| {
        frame.iter().for_each(|byte| write!(all, "{byte:02x}").expect("a String"));
        all + "\n"
    });
    let file = std::env::temp_dir().join(format!("{}-{port}.hex", line.destination));
    std::fs::write(&file, &text).expect("the temporary folder can be written");
    let words = format!("{program} h{port} {} {gap_ms}", file.display());
    let said = run(&line.destination, &words);
    let _ = std::fs::remove_file(&file);
    let times: Vec<Duration> =
        said.lines().map_while(|line| line.parse().ok()).map(Duration::from_micros).collect();
    assert_eq!(times.len(), text.lines().count(), "{said}");
    times
}

/// Whether a group of next hops has to choose for this packet.
pub fn chosen(built: &Built, frame: &[u8]) -> bool {
    let hop = match (frame.get(MACS..MACS + 2), frame.get(30..34), frame.get(38..54)) {
        (Some([8, 0]), Some(to), _) => {
            built.forwarding.v4.lookup(u32::from_be_bytes(to.try_into().expect("4 bytes")))
        }
        (Some([0x86, 0xdd]), _, Some(to)) => {
            built.forwarding.v6.lookup(u128::from_be_bytes(to.try_into().expect("16 bytes")))
        }
        _ => return false,
    };
    built.forwarding.hops.group(hop).is_some()
}

/// Whether a frame that left by `port` has the link addresses of the port and of a neighbor behind it.
pub fn leads_on(built: &Built, port: u16, frame: &[u8]) -> bool {
    let name = built.port_name(port);
    let mut behind = built.topology.neighbors.iter().filter(|n| n.port == name && n.mac.is_some());
    frame[6..MACS] == built.mac(name).0
        && behind.any(|neighbor| frame[..6] == built.mac(&neighbor.name).0)
}
