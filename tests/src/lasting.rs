//! A line whose router leaves its programs attached: drivers forward on while it is away.

use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::process::{Child, Stdio};
use std::time::Duration;

use fingerpost_io::xdp::Pins;

use crate::netns::{Line, Router, command, command_beside, exec, ip, run};
use crate::{program, skip};

/// Packets a second: few enough that a busy machine loses none before the router.
pub const RATE: u64 = 3_000;

/// Programs that it needs.
const TOOLS: &[&str] = &["ping", "ethtool", "nsenter"];

/// A line whose routers keep what they pin. It is released at the end.
#[derive(Debug)]
pub struct Lasting {
    /// The line.
    pub line: Line,
    transfer: &'static str,
}

impl Lasting {
    /// Makes the line, with a route to 10.9.0.0/16 behind the destination. `None`, with a skip line, as [`Line::new`], and
    /// without a file system of type bpf. `transfer` is the program that sends and counts.
    ///
    /// # Panics
    /// When a command of the set-up fails.
    pub fn new(transfer: &'static str) -> Option<Self> {
        Self::of(Line::new(TOOLS)?, transfer)
    }

    /// Makes the line around the host itself: [`Line::around_host`].
    ///
    /// # Panics
    /// When a command of the set-up fails.
    pub fn around_host(transfer: &'static str) -> Option<Self> {
        Self::of(Line::around_host(TOOLS)?, transfer)
    }

    fn of(line: Line, transfer: &'static str) -> Option<Self> {
        // A veth takes what programs send while its other end has GRO or a program; and checksums that a
        // sender leaves to a card are filled by the graph, not by drivers.
        run(&line.source, "ethtool -K s0 gro on tx off");
        run(&line.destination, "ethtool -K d0 gro on tx off");
        ip(&format!("-n {} addr add 10.9.0.1/32 dev lo", line.destination));
        ip(&format!("-n {} route add 10.9.0.0/16 via 10.0.2.2", line.router));
        let line = Self { line, transfer };
        if let Err(error) = Pins::make(&line.name()) {
            skip(&format!("a file system of type bpf: {error}"));
            return None;
        }
        Some(line)
    }

    /// Part of the router's folder: the number of its namespace.
    fn name(&self) -> String {
        let namespace = std::fs::metadata(format!("/run/netns/{}", self.line.router));
        namespace.expect("it was made").ino().to_string()
    }

    /// What its router has pinned.
    pub fn pins(&self) -> Option<Pins> {
        Pins::of(&self.name())
    }

    /// Starts a router that forwards in both drivers.
    ///
    /// # Panics
    /// When it does not within 20 s.
    pub fn start(&self, words: &str) -> Router {
        let router = Router::start_by(command_beside, &self.line.router, words, 2);
        router.wait_for("to forward in drivers", |said| {
            said.iter().filter(|line| line.contains("forwarded in XDP")).count() == 2
        });
        router
    }

    /// Runs `fingerpost release` there; returns what it wrote.
    ///
    /// # Panics
    /// When it fails.
    pub fn release(&self) -> String {
        let program = program().expect("the line was made with it");
        let words = format!("{} release", program.display());
        let done = command_beside(&self.line.router, &words).output().expect("it was found before");
        assert!(done.status.success(), "{done:?}");
        String::from_utf8_lossy(&done.stdout).into_owned()
    }

    /// Whether an address replies to the source.
    pub fn pings(&self, addr: &str) -> bool {
        exec(&self.line.source, &format!("ping -c 1 -W 1 {addr}")).status.success()
    }

    /// Sends in both directions until all neighbors are resolved.
    ///
    /// # Panics
    /// When the destination does not reply.
    pub fn warm_up(&self) {
        run(&self.line.source, "ping -c 3 -i 0.1 -W 2 10.9.0.1");
        run(&self.line.source, "ping -6 -c 3 -i 0.1 -W 2 fd02::2");
    }

    /// Whether an interface of the router has an XDP program.
    pub fn has_program(&self, link: &str) -> bool {
        let shown = ip(&format!("-n {} -o link show dev {link}", self.line.router));
        shown.contains(" xdp")
    }

    /// Begins to send [`RATE`] packets a second for so many seconds.
    ///
    /// # Panics
    /// When that cannot be started.
    pub fn traffic(&self, seconds: u64) -> Traffic<'_> {
        self.traffic_to("10.9.0.1:7200", RATE, seconds)
    }

    /// Begins to send packets to an address of the destination, at most one such traffic of each family at a time.
    ///
    /// # Panics
    /// When that cannot be started.
    pub fn traffic_to(&self, addr: &str, rate: u64, seconds: u64) -> Traffic<'_> {
        let is_v6 = addr.parse::<SocketAddr>().expect("an address and a port").is_ipv6();
        let listen = format!("{} count {addr} 1 {}", self.transfer, seconds + 10);
        let mut receiver = command(&self.line.destination, &listen);
        let receiver = receiver.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        std::thread::sleep(Duration::from_millis(200));
        let before = self.arrived(is_v6);
        let blast = format!("{} blast {addr} {rate} {seconds}", self.transfer);
        let sender = command(&self.line.source, &blast).stdout(Stdio::piped()).spawn();
        let (receiver, sender) = (receiver.expect("it is built"), sender.expect("it is built"));
        Traffic { line: self, receiver, sender, is_v6, before }
    }

    /// UDP packets of a family that the destination had, whether there was room for them at their socket or not.
    fn arrived(&self, is_v6: bool) -> u64 {
        if is_v6 {
            let counts = run(&self.line.destination, "cat /proc/net/snmp6");
            let wanted = ["Udp6InDatagrams", "Udp6NoPorts", "Udp6RcvbufErrors"];
            let rows = counts.lines().filter_map(|line| line.split_once(char::is_whitespace));
            let found = rows.filter(|(name, _)| wanted.contains(name));
            return found.map(|(_, count)| count.trim().parse::<u64>().expect("a number")).sum();
        }
        let counts = run(&self.line.destination, "cat /proc/net/snmp");
        let mut lines = counts.lines().filter_map(|line| line.strip_prefix("Udp: "));
        let names = lines.next().expect("names first").split(' ');
        let counts = lines.next().expect("then numbers").split(' ');
        let wanted = ["InDatagrams", "NoPorts", "RcvbufErrors"];
        let found = names.zip(counts).filter(|(name, _)| wanted.contains(name));
        found.map(|(_, count)| count.parse::<u64>().expect("a number")).sum()
    }
}

impl Drop for Lasting {
    fn drop(&mut self) {
        if let Some(pins) = self.pins() {
            let _ = pins.release();
        }
    }
}

/// UDP packets that cross the line.
#[derive(Debug)]
pub struct Traffic<'a> {
    line: &'a Lasting,
    receiver: Child,
    sender: Child,
    is_v6: bool,
    before: u64,
}

impl Traffic<'_> {
    /// Waits for the end; returns how many packets were sent, and how many of them arrived.
    ///
    /// # Panics
    /// When the sender or the receiver failed.
    pub fn end(self) -> (u64, u64) {
        let sent = self.sender.wait_with_output().expect("it was started");
        let done = self.receiver.wait_with_output().expect("it was started");
        assert!(sent.status.success() && done.status.success(), "{sent:?} {done:?}");
        let sent = String::from_utf8_lossy(&sent.stdout).into_owned();
        let sent = sent.trim().strip_prefix("sent ").expect("its one line").to_owned();
        (sent.parse().expect("a number"), self.line.arrived(self.is_v6) - self.before)
    }
}
