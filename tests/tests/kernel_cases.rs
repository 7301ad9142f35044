//! A second opinion: what Linux does with the packet cases of `testdata/packets`, as a router set up alike.
//!
//! All ports of the cases' topology are veths of one namespace, in which the kernel forwards. A case agrees when
//! what the kernel sends is what the case expects, byte for byte; where it does not, `kernel.toml` has what it sends
//! instead and why ours is not that, and this test fails when either of them is no longer so.
//!
//! Not compared are whether a redirect goes before its packet or behind it, the identification of ICMP errors, which
//! member of a group is chosen, and what a request for a neighbor looks like: there must be one where a packet waits,
//! and nowhere else. In ours they are the control side's.
//!
//! The kernel sends a sender at most five errors in a row for packets without a route, and then one a second. So
//! the cases are dealt out to a few routers, which also takes less time.

use std::collections::BTreeMap;
use std::time::Duration;

use fingerpost_packet::cases::{Built, Case, Out, cases, diff};
use fingerpost_tests::netns::{Line, ip, run};
use fingerpost_tests::root;
use fingerpost_tests::world::{self, Listener, MACS};
use serde::Deserialize;

const FRAMES: &str = env!("CARGO_BIN_EXE_frames");

/// Senders, so many that none gets more than five errors.
const ROUTERS: usize = 3;

/// `testdata/packets/kernel.toml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    kind: Vec<Kind>,
    case: Vec<Row>,
}

/// Why several cases differ.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Kind {
    name: String,
    why: String,
}

/// What the kernel does with a case instead.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    name: String,
    kind: String,
    #[serde(default)]
    out: Vec<Out>,
    /// Request for a neighbor.
    #[serde(default)]
    asks: bool,
    /// The case cannot be tried.
    #[serde(default)]
    untried: bool,
}

fn table() -> Table {
    let file = root().join("testdata/packets/kernel.toml");
    let text = std::fs::read_to_string(file).expect("it lies beside the cases");
    toml::from_str(&text).unwrap_or_else(|e| panic!("kernel.toml: {e}"))
}

/// The kernel as a router of RFC 1812, as far as it can be configured as one.
const SETTINGS: [&str; 17] = [
    // First: it sets others.
    "net.ipv4.ip_forward=1",
    "net.ipv6.conf.all.forwarding=1",
    // Which source a packet may have is looked at where a port says so.
    "net.ipv4.conf.all.rp_filter=0",
    "net.ipv4.conf.default.rp_filter=0",
    "net.ipv4.conf.all.accept_source_route=0",
    "net.ipv6.conf.all.accept_source_route=0",
    "net.ipv4.conf.all.send_redirects=1",
    "net.ipv4.conf.all.log_martians=0",
    "net.ipv4.conf.default.log_martians=0",
    // No error is held back for its rate: none of these is limited at all.
    "net.ipv4.icmp_ratelimit=0",
    "net.ipv4.icmp_ratemask=0",
    "net.ipv6.icmp.ratelimit=0",
    "net.ipv4.icmp_errors_use_inbound_ifaddr=0",
    // Ports count for the choice of a path, as with us.
    "net.ipv4.fib_multipath_hash_policy=1",
    "net.ipv6.fib_multipath_hash_policy=1",
    // Labels are ours to choose; 0 is what we choose.
    "net.ipv6.auto_flowlabels=0",
    "net.ipv6.conf.default.accept_dad=0",
];

/// A frame that left, and by which port.
type Frame = (u16, Vec<u8>);

/// What comes of a packet.
#[derive(Clone, Default)]
struct Outcome {
    frames: Vec<Frame>,
    /// Request for a neighbor seen.
    asked: bool,
}

impl Outcome {
    /// Without redirects of IPv6: the kernel has few for each sender and each destination, which a namespace cannot
    /// change. One that comes has to be as wanted.
    fn held_back(&self) -> Self {
        let v6 = |frame: &[u8]| frame.get(MACS..14) == Some(&[0x86, 0xdd]) && redirects(frame);
        let frames = self.frames.iter().filter(|(_, frame)| !v6(frame)).cloned();
        Self { frames: frames.collect(), asked: self.asked }
    }
}

/// A case, what goes in and what is wanted.
struct Tried<'a> {
    case: &'a Case,
    input: Vec<u8>,
    want: Outcome,
    /// What the kernel does instead.
    instead: Option<Outcome>,
    /// A group chooses its path.
    chosen: bool,
}

impl<'a> Tried<'a> {
    fn new(built: &Built, case: &'a Case, row: Option<&Row>) -> Self {
        let outcome = |out: &[Out], asked| {
            let frames = Case { out: out.to_vec(), ..case.clone() }.outputs(built);
            let frames = frames.unwrap_or_else(|e| panic!("{}: {e}", case.name));
            let frames = frames.into_iter().map(|(port, frame)| (port, masked(frame)));
            Outcome { frames: frames.collect(), asked }
        };
        let input = case.input(built).expect("cases make sense");
        Self {
            chosen: world::chosen(built, &input),
            want: outcome(&case.out, case.held),
            instead: row.map(|row| outcome(&row.out, row.asks)),
            input,
            case,
        }
    }

    /// What is wrong with an outcome; empty when nothing is.
    fn fault(&self, built: &Built, got: &Outcome) -> String {
        let exactly = |want: &Outcome| {
            want.asked == got.asked && same(built, self.chosen, &want.frames, &got.frames)
        };
        let same = |want: &Outcome| exactly(want) || exactly(&want.held_back());
        let name = &self.case.name;
        match &self.instead {
            Some(instead) if same(instead) => String::new(),
            Some(_) if same(&self.want) => {
                format!("{name} agrees, and kernel.toml says that it does not\n")
            }
            Some(instead) => {
                format!("{name}, not as kernel.toml has it:\n{}", told(built, instead, got))
            }
            None if !same(&self.want) => format!("{name}:\n{}", told(built, &self.want, got)),
            _ => String::new(),
        }
    }
}

/// Where packets come from and go to.
struct Bench<'a> {
    line: &'a Line,
    built: &'a Built,
    listeners: BTreeMap<u16, Listener>,
}

impl<'a> Bench<'a> {
    fn new(line: &'a Line, built: &'a Built) -> Self {
        // Of the line the namespaces are enough: an unnumbered port borrows what it finds first.
        ip(&format!("-n {} link del r0", line.router));
        ip(&format!("-n {} link del r1", line.router));
        run(&line.router, &format!("sysctl -qw {}", SETTINGS.join(" ")));
        world::build(line, built);
        for port in &built.topology.ports {
            let (name, filter) = match port.urpf.as_deref() {
                Some("strict") => (&port.name, 1),
                Some("loose") => (&port.name, 2),
                _ => continue,
            };
            run(&line.router, &format!("sysctl -qw net.ipv4.conf.{name}.rp_filter={filter}"));
        }
        let listen = |name: &str| Listener::start(&line.destination, &format!("h{name}"));
        let ports = built.topology.ports.iter().filter(|port| !port.down);
        let listeners = ports.map(|p| (built.port(&p.name), listen(&p.name))).collect();
        Self { line, built, listeners }
    }

    /// Requests for neighbors: how many times, and how long after one another.
    fn ask(&self, questions: u32, wait_ms: u32) {
        let one = |(family, port): (&str, &str)| {
            let at = format!("net.{family}.neigh.{port}");
            format!("{at}.mcast_solicit={questions} {at}.retrans_time_ms={wait_ms}")
        };
        let names = self.built.topology.ports.iter().map(|port| port.name.as_str());
        let all: Vec<String> =
            names.flat_map(|port| [("ipv4", port), ("ipv6", port)]).map(one).collect();
        run(&self.line.router, &format!("sysctl -qw {}", all.join(" ")));
    }

    /// Sends the packets of these cases one by one; what the kernel sends after each, and before the next.
    fn try_out(&self, cases: &[&Tried<'_>], gap_ms: u64) -> Vec<Outcome> {
        // Who was asked for before is asked for anew.
        ip(&format!("-n {} neigh flush all nud incomplete nud failed", self.line.router));
        let mut sent: Vec<(Duration, usize)> = Vec::new();
        for port in &self.built.topology.ports {
            let mine: Vec<usize> =
                (0..cases.len()).filter(|&at| cases[at].case.port == port.name).collect();
            if mine.is_empty() {
                continue;
            }
            let frames = mine.iter().map(|&at| &cases[at].input[..]);
            let times = world::send(FRAMES, self.line, &port.name, frames, gap_ms);
            sent.extend(times.into_iter().zip(mine));
        }
        // The listeners write what they have.
        std::thread::sleep(Duration::from_millis(300));
        let mut came = vec![Outcome::default(); cases.len()];
        for (&port, listener) in &self.listeners {
            for (time, frame) in listener.frames() {
                let next = sent.partition_point(|(before, _)| *before <= time);
                let Some((_, at)) = next.checked_sub(1).map(|last| sent[last]) else { continue };
                match solicits(&frame) {
                    Some(asks) => came[at].asked |= asks,
                    None => came[at].frames.push((port, masked(frame))),
                }
            }
        }
        came
    }

    /// What is wrong with these cases.
    fn judge(&self, cases: &[&Tried<'_>], gap_ms: u64) -> Vec<String> {
        let came = self.try_out(cases, gap_ms);
        let wrong =
            |(tried, came): (&&Tried<'_>, &Outcome)| !tried.fault(self.built, came).is_empty();
        let left = cases.iter().zip(&came).filter(|&both| wrong(both));
        // On a busy machine a frame may come late: what does not fit is tried once more, with all time it wants.
        let left: Vec<&Tried<'_>> = left.map(|(tried, _)| *tried).collect();
        if left.is_empty() {
            return Vec::new();
        }
        let came = self.try_out(&left, 1100);
        let faults = left.iter().zip(&came).map(|(tried, came)| tried.fault(self.built, came));
        faults.filter(|fault| !fault.is_empty()).collect()
    }

    /// Runs them again; those to a host that does not reply are apart, as they take time.
    fn judge_all(&self, cases: &[&Tried<'_>]) -> Vec<String> {
        let silent = |tried: &&Tried<'_>| tried.case.drop.as_deref() == Some("host_unreachable");
        let (silent, rest): (Vec<_>, Vec<_>) = cases.iter().partition(|tried| silent(tried));
        // Given up after one question; and never, as far as these cases go.
        self.ask(1, 10);
        let mut faults = self.judge(&silent, 100);
        self.ask(60, 60_000);
        faults.extend(self.judge(&rest, 15));
        faults
    }
}

/// Whether the kernel's own messages request a neighbor: the others show to which groups it belongs, and
/// that it is there.
fn solicits(frame: &[u8]) -> Option<bool> {
    if frame[0] & 1 == 0 {
        return None;
    }
    let kind =
        |at: usize, next: u8| (frame.get(20) == Some(&next)).then(|| frame.get(at)).flatten();
    match (&frame[MACS..14], kind(54, 58).or(kind(62, 0))) {
        ([8, 6], _) | ([0x86, 0xdd], Some(135)) => Some(true),
        ([0x86, 0xdd], Some(133 | 134 | 136 | 143)) => Some(false),
        _ => None,
    }
}

/// An IPv4 error without its identification: what precedence 6 has.
fn masked(mut frame: Vec<u8>) -> Vec<u8> {
    if frame.len() >= 34 && frame[MACS..14] == [8, 0] && frame[15] & 0xe0 == 0xc0 && frame[23] == 1
    {
        frame[18..20].fill(0);
        frame[24..26].fill(0);
    }
    frame
}

/// Whether it is an ICMP redirect: the kernel sends it before the packet, we send it behind it.
fn redirects(frame: &[u8]) -> bool {
    let kind = frame.get(MACS..14);
    kind == Some(&[8, 0]) && (frame.get(23), frame.get(34)) == (Some(&1), Some(&5))
        || kind == Some(&[0x86, 0xdd]) && (frame.get(20), frame.get(54)) == (Some(&58), Some(&137))
}

/// Whether the frames are those wanted, port by port in their order.
fn same(built: &Built, chosen: bool, want: &[Frame], got: &[Frame]) -> bool {
    let (mut want, mut got) = (want.to_vec(), got.to_vec());
    want.sort_by_key(|(port, frame)| (*port, redirects(frame)));
    got.sort_by_key(|(port, frame)| (*port, redirects(frame)));
    if !chosen {
        return want == got;
    }
    // All by one member.
    let mut ways = got.iter().map(|(port, frame)| (*port, frame[..MACS].to_vec()));
    let first = ways.next();
    let bare =
        |frames: &[Frame]| frames.iter().map(|(_, f)| f[MACS..].to_vec()).collect::<Vec<_>>();
    ways.all(|way| Some(way) == first)
        && bare(&want) == bare(&got)
        && got.iter().all(|(port, frame)| world::leads_on(built, *port, frame))
}

/// What differs, for people.
fn told(built: &Built, want: &Outcome, got: &Outcome) -> String {
    let mut text = String::new();
    if want.asked != got.asked {
        text += &format!("  asked for a neighbor: want {}, got {}\n", want.asked, got.asked);
    }
    for at in 0..want.frames.len().max(got.frames.len()) {
        let (want, got) = (want.frames.get(at), got.frames.get(at));
        let name = |frame: Option<&Frame>| frame.map_or("nothing", |(p, _)| built.port_name(*p));
        let bytes = |frame: Option<&Frame>| frame.map(|(_, f)| f.clone()).unwrap_or_default();
        text += &format!("  want {}, got {}\n", name(want), name(got));
        text += &diff(&bytes(want), &bytes(got));
    }
    text
}

/// Whether the kernel counts the errors that it sends, or would: these are dealt out first.
fn limited(tried: &Tried<'_>) -> bool {
    let drop = tried.case.drop.as_deref().unwrap_or_default();
    ["no_route", "unreachable", "prohibit", "martian_destination"].contains(&drop)
        || tried.case.name.ends_with("no route")
}

#[test]
fn the_kernel_does_the_same_or_what_is_written() {
    let built = Built::of_cases();
    let lines: Vec<Line> = (0..ROUTERS).map_while(|_| Line::new(&["ethtool", "tcpdump"])).collect();
    if lines.len() < ROUTERS {
        return;
    }
    let cases = cases();
    let Table { kind, case: rows } = table();
    for row in &rows {
        assert!(kind.iter().any(|k| k.name == row.kind), "{}: what is {}?", row.name, row.kind);
        assert!(cases.iter().any(|(_, case)| case.name == row.name), "no case is {}", row.name);
        let twins = rows.iter().filter(|other| other.name == row.name).count();
        assert_eq!(twins, 1, "{}", row.name);
    }
    for Kind { name, why } in &kind {
        let used = rows.iter().any(|row| row.kind == *name);
        assert!(used && why.contains("RFC"), "{name}: used: {used}; who says so?");
    }
    let row_of = |case: &Case| rows.iter().find(|row| row.name == case.name);
    let tried = cases.iter().map(|(_, case)| Tried::new(&built, case, row_of(case)));
    let mut all: Vec<Tried<'_>> =
        tried.filter(|tried| !row_of(tried.case).is_some_and(|row| row.untried)).collect();
    all.sort_by_key(|tried| !limited(tried));
    let faults: Vec<String> = std::thread::scope(|scope| {
        let start = |(number, line)| {
            let (all, built) = (&all, &built);
            scope.spawn(move || {
                let mine: Vec<&Tried<'_>> = all.iter().skip(number).step_by(ROUTERS).collect();
                Bench::new(line, built).judge_all(&mine)
            })
        };
        let threads: Vec<_> = lines.iter().enumerate().map(start).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect()
    });
    let (count, untried) = (cases.len(), cases.len() - all.len());
    let differ = rows.len() - untried;
    println!(
        "of {count} cases {} agree, {differ} differ as written, {untried} cannot be tried; {} do not fit",
        count - rows.len(),
        faults.len(),
    );
    assert!(faults.is_empty(), "\n{}", faults.join(""));
}
