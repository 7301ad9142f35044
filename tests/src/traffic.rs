//! Numbered UDP packets across a line, and what became of them.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use fingerpost_lpm::Rng;

use crate::netns::{Line, command, ip, run};

/// Addresses of one part of [`to_random`]: each is a socket of the receiver.
const ADDRS: usize = 500;

/// Packets a second of [`to_random`].
const RATE: u64 = 1_500;

/// A sender at the one end and a receiver at the other.
#[derive(Debug)]
pub struct Traffic {
    sender: Child,
    receiver: Child,
}

/// What the two counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Packets that were sent.
    pub sent: u64,
    /// Packets that arrived, each once.
    pub received: u64,
    /// Further copies of them.
    pub twice: u64,
    /// Packets of these that came behind a later one of their flow (RFC 4737).
    pub reordered: u64,
    /// Runs of such packets of a flow (RouteBricks).
    pub sequences: u64,
    /// What the flow misses that misses most, up to its last packet that arrived.
    pub worst: u64,
}

impl Counts {
    /// Packets that did not arrive.
    pub const fn lost(&self) -> u64 {
        self.sent.saturating_sub(self.received)
    }

    /// Counts on.
    pub const fn add(&mut self, more: Self) {
        self.sent += more.sent;
        self.received += more.received;
        self.twice += more.twice;
        self.reordered += more.reordered;
        self.sequences += more.sequences;
        self.worst += more.worst;
    }
}

impl Traffic {
    /// Begins to send `rate` packets a second in all, in turn to these addresses of the destination, for so many
    /// seconds. `program` is `transfer`.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn begin(program: &str, line: &Line, addrs: &[&str], rate: u64, seconds: u64) -> Self {
        Self::between(program, [&line.source, &line.destination], addrs, (rate, seconds, 24))
    }

    /// Begins to send from one namespace to another, packets of so many bytes of content: [`Traffic::begin`]. The addresses
    /// are all of one family; those of IPv6 are in brackets.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn between(
        program: &str,
        [source, destination]: [&str; 2],
        addrs: &[&str],
        numbers: (u64, u64, usize),
    ) -> Self {
        Self::sent_by(program, "blast", [source, destination], addrs, (numbers, addrs.len()))
    }

    /// Begins to send at random times, to addresses of IPv4: [`Traffic::between`].
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn scattered(
        program: &str,
        ends: [&str; 2],
        addrs: &[&str],
        numbers: (u64, u64, usize),
    ) -> Self {
        Self::sent_by(program, "scatter", ends, addrs, (numbers, addrs.len()))
    }

    /// Begins to send a mix of flows like that of a trace, `rate` packets a second in the mean, to addresses of IPv4:
    /// [`Traffic::between`].
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn mix(program: &str, ends: [&str; 2], addrs: &[&str], numbers: (u64, u64, usize)) -> Self {
        Self::sent_by(program, "mix", ends, addrs, (numbers, 1 << 20))
    }

    fn sent_by(
        program: &str,
        sender: &str,
        [source, destination]: [&str; 2],
        addrs: &[&str],
        ((rate, seconds, bytes), flows): ((u64, u64, usize), usize),
    ) -> Self {
        let start = |namespace: &str, words: &str| {
            let mut command = command(namespace, &format!("{program} {words}"));
            // The receiver's input is closed once the sender has ended.
            command
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .expect("the helper is built with the tests")
        };
        let count = addrs.len();
        let sockets = if addrs[0].contains(':') { "udp6" } else { "udp" };
        let addrs: Vec<String> = addrs.iter().map(|addr| format!("{addr}:7100")).collect();
        let addrs = addrs.join(",");
        let receiver = start(destination, &format!("count {addrs} {flows} {}", seconds + 10));
        // What comes before it listens is nobody's.
        let until = Instant::now() + Duration::from_secs(10);
        while run(destination, &format!("cat /proc/net/{sockets}")).matches(":1BBC ").count()
            < count
        {
            assert!(Instant::now() < until, "the receiver does not listen at port 7100");
            std::thread::sleep(Duration::from_millis(5));
        }
        let words = format!("{sender} {addrs} {rate} {seconds} {bytes}");
        Self { sender: start(source, &words), receiver }
    }

    /// Whether it still sends.
    ///
    /// # Panics
    /// When that cannot be found out.
    pub fn goes_on(&mut self) -> bool {
        self.sender.try_wait().expect("it was started").is_none()
    }

    /// Ends it, whatever was counted.
    pub fn stop(mut self) {
        for child in [&mut self.sender, &mut self.receiver] {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Waits for its end.
    ///
    /// # Panics
    /// When one of the two failed.
    pub fn end(self) -> Counts {
        let said = |child: Child| {
            let output = child.wait_with_output().expect("it was started");
            String::from_utf8_lossy(&output.stdout).into_owned()
        };
        let number = |text: &str, word: &str| -> u64 {
            let mut words = text.split_whitespace();
            words.find(|w| *w == word).unwrap_or_else(|| panic!("no {word} in {text:?}"));
            words.next().and_then(|n| n.parse().ok()).expect("a number")
        };
        let (sent, received) = (said(self.sender), said(self.receiver));
        Counts {
            sent: number(&sent, "sent"),
            received: number(&received, "received"),
            twice: number(&received, "twice"),
            reordered: number(&received, "reordered"),
            sequences: number(&received, "sequences"),
            worst: number(&received, "worst"),
        }
    }
}

/// Makes every address the own one of a namespace, for packets of this interface.
///
/// # Panics
/// When a command fails.
pub fn own_every_address(namespace: &str, interface: &str) {
    ip(&format!("-n {namespace} link set lo up"));
    for (version, family) in [(4, "ipv4"), (6, "ipv6")] {
        run(namespace, &format!("sysctl -qw net.{family}.ip_nonlocal_bind=1"));
        ip(&format!("-{version} -n {namespace} route add local default dev lo table 99"));
        ip(&format!("-{version} -n {namespace} rule add iif {interface} lookup 99 pref 10"));
    }
}

/// Sends some packets to each of so many addresses, chosen at random from `all`, which are of one family.
///
/// # Panics
/// When a packet is lost or overtaken by another of its flow.
pub fn to_random(program: &str, between: [&str; 2], all: &[IpAddr], count: usize) {
    let mut rng = Rng::new(0xfee1);
    let chosen: BTreeSet<IpAddr> = (0..count).map(|_| all[rng.below(all.len())]).collect();
    let chosen: Vec<String> = chosen.into_iter().map(of_host).collect();
    for addrs in chosen.chunks(ADDRS) {
        let addrs: Vec<&str> = addrs.iter().map(String::as_str).collect();
        let seconds = 1 + 2 * addrs.len() as u64 / RATE;
        let counts = Traffic::between(program, between, &addrs, (RATE, seconds, 24)).end();
        assert!(counts.sent >= addrs.len() as u64, "{counts:?}");
        assert!(counts.lost() == 0 && counts.reordered == 0, "{counts:?}");
    }
}

/// An address as [`Traffic::between`] takes it.
fn of_host(addr: IpAddr) -> String {
    let with_port = SocketAddr::new(addr, 0).to_string();
    with_port.trim_end_matches(":0").to_owned()
}

/// UDP packets that the sockets of a namespace had no room for so far.
///
/// # Panics
/// When the kernel does not report it.
pub fn overflowed(namespace: &str) -> u64 {
    let text = run(namespace, "cat /proc/net/snmp");
    let mut rows = text.lines().filter_map(|line| line.strip_prefix("Udp: "));
    let (names, values) = (rows.next().expect("names"), rows.next().expect("values"));
    let mut both = names.split(' ').zip(values.split(' '));
    let (_, value) = both.find(|(name, _)| *name == "RcvbufErrors").expect("Linux has it");
    value.parse().expect("a number")
}
