//! Admissible traffic under the adaptive rule: every packet is delivered, and no link is loaded beyond its 2R/N by more
//! than a short queue, also when the packets arrive in bursts. And how fast the simulator is.
//!
//! By Birkhoff's theorem mixtures of permutations are all matrices with row and column sums of 1. Their packets arrive at
//! random, at 95 % of them: alone, or in bursts of geometric length, each from one input to one output at R. In bursts the
//! traffic is admissible in the long run alone, and several inputs send to one output at once: an ideal router, without a
//! fabric, has a queue of B packets there. The links then have the part of it that the bound states, and never more.
//! `cargo xtask soak cluster_rule 10000` tries 10,000 matrices.

use std::time::Instant;

use fingerpost_cluster::rule::Rule;
use fingerpost_cluster::sim::{Config, Matrix, Report, run};

/// Longest queue of a link without bursts, in packets: three times the threshold. Runs had 15 at most.
const QUEUE: f64 = 24.0;

/// Longest queue of a link in bursts, for a longest ideal queue of an output: 2B/N more. A link has 2/N of the rate of an
/// output, so that in time this is what the output of an ideal router makes a packet wait.
fn bound(burst: f64, ideal: u32, nodes: usize) -> f64 {
    QUEUE + if burst > 1.0 { 2.0 * f64::from(ideal) / nodes as f64 } else { 0.0 }
}

/// Mean packets of a burst. How many there are is prime to the numbers of nodes and permutations.
const BURSTS: [f64; 4] = [1.0, 4.0, 16.0, 64.0];

/// Matrices of the short form: each number of nodes and of permutations with each burst.
const SHORT: usize = 13 * 5 * BURSTS.len();

/// What runs had at most.
#[derive(Clone, Copy, Default)]
struct Most {
    runs: u32,
    queue: u32,
    ideal: u32,
    /// Queue without the part of the ideal one: what the constant of the bound has to hold.
    rest: f64,
    /// Load of a link in a run, in 2R/N, and packets of a node, in R.
    link: f64,
    node: f64,
}

impl Most {
    fn add(&mut self, report: &Report, rest: f64) {
        self.runs += 1;
        self.queue = self.queue.max(report.worst_queue);
        self.ideal = self.ideal.max(report.worst_ideal_queue);
        self.rest = self.rest.max(rest);
        self.link = self.link.max(report.worst_link);
        self.node = self.node.max(report.worst_node);
    }
}

/// Runs a matrix of permutations and checks the bound.
fn check(nodes: usize, permutations: usize, burst: f64, seed: u64, most: &mut Most) {
    let matrix = Matrix::random(nodes, permutations, seed);
    // A node that sends to itself has links without local packets, which others find empty: its transit exceeds R.
    let own = (0..nodes).any(|node| matrix.demand(node, node) > 0.0);
    // Queues that nothing fills: the bound is on their length.
    let base = Config::new(matrix, Rule::Adaptive);
    let report = run(&Config { seed, burst, queue: 100_000, slots: 10_000, ..base });
    let name =
        format!("{nodes} nodes, {permutations} permutations, bursts of {burst}, seed {seed}");
    assert_eq!(report.drops.sum(), 0, "{name}: packets are dropped");
    let (queue, ideal) = (report.worst_queue, report.worst_ideal_queue);
    let bound = bound(burst, ideal, nodes);
    assert!(
        f64::from(queue) <= bound,
        "{name}: {queue} packets wait, at most {bound:.1}; B {ideal}"
    );
    let limit = if own { 3.5 } else { 3.0 };
    assert!(report.worst_node < limit, "{name}: a node processes {} R", report.worst_node);
    most.add(&report, f64::from(queue) - 2.0 * f64::from(ideal) / nodes as f64);
}

#[test]
fn cluster_rule_keeps_links_of_2r_over_n() {
    let matrices = std::env::var("FINGERPOST_MATRICES").ok().and_then(|text| text.parse().ok());
    let mut most = [Most::default(); BURSTS.len()];
    for tried in 0..matrices.unwrap_or(SHORT) {
        let (nodes, permutations) = (4 + tried % 13, 1 + tried / 13 % 5);
        let at = tried % BURSTS.len();
        check(nodes, permutations, BURSTS[at], tried as u64, &mut most[at]);
    }
    println!(
        "burst | matrices | queue of a link | ideal queue B | queue less 2B/N | load of a link | node"
    );
    for (burst, most) in BURSTS.iter().zip(&most) {
        let Most { runs, queue, ideal, rest, link, node } = most;
        println!("{burst} | {runs} | {queue} | {ideal} | {rest:.1} | {link:.3} | {node:.2}");
    }
}

/// Seconds that this thread had a processor; `None` where the kernel does not count them.
fn thread_seconds() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    let ns: u64 = text.split_whitespace().next()?.parse().ok()?;
    Some(std::time::Duration::from_nanos(ns).as_secs_f64())
}

/// Packets in a second of a core that the simulator has to reach at 256 nodes (`docs/benchmarks/cluster.md` has what it reaches).
const PACKETS_A_SECOND: f64 = 1e6;

/// Runs of which the best counts.
const TRIES: usize = 9;

/// The time is that of the thread, not of the wall: other programs may have the cores meanwhile, and their share of the caches.
#[test]
fn the_simulator_does_a_million_packets_a_second_at_256_nodes() {
    for (name, rule, matrix) in [
        ("adaptive, uniform", Rule::Adaptive, Matrix::uniform(256)),
        ("vlb, uniform", Rule::Vlb, Matrix::uniform(256)),
        ("adaptive, permutation", Rule::Adaptive, Matrix::permutation(256)),
    ] {
        let config = Config { slots: 2000, ..Config::new(matrix, rule) };
        let mut rates = Vec::new();
        while rates.len() < TRIES && rates.last().is_none_or(|rate| *rate < PACKETS_A_SECOND) {
            let start = (Instant::now(), thread_seconds());
            let report = run(&config);
            assert!(report.delivered > 0.999, "{report:?}");
            let of_thread = thread_seconds().zip(start.1).map(|(end, start)| end - start);
            let seconds = of_thread.unwrap_or_else(|| start.0.elapsed().as_secs_f64());
            rates.push(report.packets as f64 / seconds);
        }
        println!("{name}: {rates:.0?} packets a second of the thread");
        assert!(rates.last() >= Some(&PACKETS_A_SECOND), "{name}: {rates:.0?}");
    }
}
