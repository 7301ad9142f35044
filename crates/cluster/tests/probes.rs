//! Probes of three nodes over real links: how long it takes until a failure is known, and that nothing else is one.
//!
//! A failure is timed from before the command that causes it to the change of the members at the last node concerned.
//! `cargo xtask soak cluster_probe 600` is ten minutes without a failure.

#![allow(clippy::unwrap_used, reason = "a test: what fails here fails the test")]
#![allow(clippy::print_stdout, reason = "measurements and skips")]

use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use fingerpost_cluster::probe::{Interface, Local, Member, Probes, Settings};
use fingerpost_cluster::rule::{Members, NodeId, NodeState};
use fingerpost_io::namespace::{Namespace, ip, run};

const NAMES: [&str; 3] = ["a", "b", "c"];
const RUNS: usize = 9;
const BOUND: Duration = Duration::from_millis(50);

/// What a node reported, and when.
type Events = Arc<Mutex<Vec<(Instant, Members)>>>;

struct Node {
    namespace: Namespace,
    number: NodeId,
    events: Events,
    probes: Option<Probes>,
    boot: u32,
}

impl Node {
    fn start(&mut self) {
        self.boot += 0x10;
        let others = (1..).zip(NAMES).filter(|(number, _)| *number != self.number);
        let own = NAMES[usize::from(self.number) - 1];
        let settings = Settings {
            local: Local {
                number: self.number,
                name: own.into(),
                boot: self.boot,
                digest: 1,
                members: 3,
                interval_ns: 8_000_000,
                multiplier: 5,
            },
            members: (1..)
                .zip(NAMES)
                .map(|(number, name)| Member { number, name: name.into() })
                .collect(),
            interfaces: others
                .map(|(_, name)| Interface {
                    name: format!("{own}{name}"),
                    peer: Some(name.into()),
                    ready: Arc::new(true.into()),
                })
                .collect(),
            cluster: 1,
            ethertype: 0x88b5,
            real_time: Some(50),
            begin: || (),
        };
        let events = Arc::clone(&self.events);
        let members = Members::new(&[0, 1, 1, 1]);
        let start = || {
            Probes::start(settings, members, move |_, members| {
                events.lock().unwrap().push((Instant::now(), members.clone()));
            })
        };
        self.probes = Some(self.namespace.inside(start).unwrap().unwrap());
    }

    fn last(&self) -> Option<Members> {
        self.events.lock().unwrap().last().map(|(_, members)| members.clone())
    }

    /// How often a link of the node was taken down, and its probes received and missing.
    fn counts(&self) -> (u64, u64, u64) {
        self.probes.as_ref().unwrap().look(|table| {
            table.sessions().fold((0, 0, 0), |(downs, received, missing), (_, session)| {
                let counts = session.counts();
                (downs + counts.downs, received + counts.received, missing + counts.missing)
            })
        })
    }
}

/// The nodes and a link between each two; `None`, with a skip line, where they cannot be had.
fn nodes() -> Option<Vec<Node>> {
    if std::env::var_os("FINGERPOST_QUICK").is_some() {
        println!("skipped: needs time (FINGERPOST_QUICK is set)");
        return None;
    }
    if Command::new("ip").arg("-V").output().is_err() {
        println!("skipped: needs ip (iproute2)");
        return None;
    }
    let mut nodes = Vec::new();
    for number in 1..=3 {
        let Ok(namespace) = Namespace::new() else {
            println!("skipped: needs root");
            return None;
        };
        let events = Events::default();
        nodes.push(Node { namespace, number, events, probes: None, boot: number.into() });
    }
    for (first, second) in [(0, 1), (0, 2), (1, 2)] {
        let (one, other) = (NAMES[first], NAMES[second]);
        let (there, far) = (nodes[second].namespace.path(), &nodes[second].namespace);
        let words = format!("link add {one}{other} type veth peer name {other}{one} netns {there}");
        nodes[first].namespace.inside(|| ip(&words)).unwrap();
        nodes[first].namespace.inside(|| ip(&format!("link set {one}{other} up"))).unwrap();
        far.inside(|| ip(&format!("link set {other}{one} up"))).unwrap();
    }
    nodes.iter_mut().for_each(Node::start);
    Some(nodes)
}

fn all_up(nodes: &[Node]) -> bool {
    let pairs = [(1, 2), (1, 3), (2, 3), (2, 1), (3, 1), (3, 2)];
    nodes.iter().all(|node| {
        node.last().is_some_and(|last| pairs.iter().all(|&(from, to)| last.direct(from, to)))
    })
}

/// Waits, a bounded time, until a condition holds.
fn until(what: &str, condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < Duration::from_secs(10), "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Time from `start` until all these nodes reported what `failed` wants to see.
fn time(
    nodes: &[Node],
    concerned: &[usize],
    start: Instant,
    failed: impl Fn(&Members) -> bool,
) -> Duration {
    let when = |node: &Node| {
        let events = node.events.lock().unwrap();
        let mut later = events.iter().filter(|(at, members)| *at >= start && failed(members));
        later.next().map(|(at, _)| *at - start)
    };
    let all = || concerned.iter().map(|&at| when(&nodes[at])).collect::<Option<Vec<_>>>();
    until("the failure is not seen", || all().is_some());
    all().unwrap().into_iter().max().unwrap()
}

/// Fails and repairs some times, and compares the median with the bound.
fn measure(what: &str, mut once: impl FnMut() -> Duration) {
    let mut times: Vec<_> = (0..RUNS).map(|_| once()).collect();
    times.sort();
    let median = times[RUNS / 2];
    println!("{what}: median {median:.1?} of {RUNS} runs, {:.1?} to {:.1?}", times[0], times[8]);
    assert!(median <= BOUND, "{what}: {times:?}");
}

fn link_is_down(members: &Members) -> bool {
    !members.link(1, 2) && !members.link(2, 1)
}

#[test]
fn cluster_probe_failures_are_seen_in_time_and_nothing_else_is() {
    let Some(mut nodes) = nodes() else { return };
    until("links come up", || all_up(&nodes));

    let soak = std::env::var("FINGERPOST_SOAK_SECONDS").ok().and_then(|text| text.parse().ok());
    let quiet = Duration::from_secs(soak.unwrap_or(5));
    let before: Vec<_> = nodes.iter().map(Node::counts).collect();
    std::thread::sleep(quiet);
    for (node, before) in nodes.iter().zip(before) {
        let (downs, received, missing) = node.counts();
        let counts = node.probes.as_ref().unwrap().counts();
        let late = Duration::from_nanos(counts.most_late_ns);
        println!(
            "{} in {quiet:?}: {} probes received, {} missing, at most {late:.1?} late",
            NAMES[usize::from(node.number) - 1],
            received - before.1,
            missing - before.2
        );
        if let Some(why) = counts.scheduling {
            println!("no real-time priority: {why}");
        }
        assert_eq!(downs - before.0, 0, "false detections");
    }

    // The kernel reports the first change of a carrier in a second at once, and later ones with its end.
    measure("link set down", || {
        until("links come up", || all_up(&nodes));
        std::thread::sleep(Duration::from_millis(1100));
        let start = Instant::now();
        nodes[1].namespace.inside(|| ip("link set ba down")).unwrap();
        let took = time(&nodes, &[0, 1, 2], start, link_is_down);
        nodes[1].namespace.inside(|| ip("link set ba up")).unwrap();
        took
    });

    measure("node stopped", || {
        until("links come up", || all_up(&nodes));
        let start = Instant::now();
        nodes[2].probes = None;
        let down = |members: &Members| members.node(3) == NodeState::Down;
        let took = time(&nodes, &[0, 1], start, down);
        nodes[2].events.lock().unwrap().clear();
        nodes[2].start();
        took
    });

    if Command::new("tc").arg("-V").output().is_err() {
        println!("skipped: needs tc (iproute2)");
        return;
    }
    // A queue that has room for one byte drops all frames, in this direction alone; every kernel has it.
    measure("one-way link", || {
        until("links come up", || all_up(&nodes));
        let start = Instant::now();
        nodes[0].namespace.inside(|| run("tc", "qdisc add dev ab root bfifo limit 1")).unwrap();
        let took = time(&nodes, &[0, 1, 2], start, link_is_down);
        nodes[0].namespace.inside(|| run("tc", "qdisc del dev ab root")).unwrap();
        took
    });
    until("links come up", || all_up(&nodes));
}
