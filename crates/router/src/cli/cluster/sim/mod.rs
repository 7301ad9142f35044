//! `fingerpost cluster sim`: traffic through a simulated cluster, on the decision code of the data plane.
//!
//! Source: RouteBricks; the simulator is `fingerpost_cluster::sim`. Cost: a million packets a second and more; some 200 MiB
//! at 1,024 nodes.

use std::io::{self, Write};
use std::time::Instant;

use clap::{Args, ValueEnum};
use fingerpost_cluster::rule::{Rule, Settings};
use fingerpost_cluster::sim::{self, Config, FlowletSettings, Lost, Matrix};
use serde::Serialize;

use crate::cli::command::{Exit, Failure};
use crate::cli::output::{Output, Report};

pub(super) const EXAMPLES: &str = "Examples:
  $ fingerpost cluster sim --nodes 4 --matrix permutation
  $ fingerpost cluster sim --nodes 8 --matrix adversarial --rule fixed --json
  $ fingerpost cluster sim --nodes 64 --matrix uniform --fail node --detection 500 --back 3000
  $ fingerpost cluster sim --nodes 64 --matrix uniform --load 0.8 --fail drain
  $ fingerpost cluster sim --nodes 8 --matrix random --seed 7 --burst 8 --flows 16 --delta 400
  $ fingerpost cluster sim --nodes 6 --matrix uniform --weights 4,4,2,1,1,1

A slot is the time of a packet at R, the rate of an external port. An internal link has 2R/N, or --link-rate times that. \
Reordered sequences are RouteBricks' measure.";

/// Most flows of all pairs: 1 GiB of state.
const MOST_FLOWS: usize = 1 << 24;

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Traffic {
    /// Every input to all other nodes, evenly
    Uniform,
    /// Every input to the next node
    Permutation,
    /// All inputs to one output, --offered times its rate in all, and the rest evenly
    Hotspot,
    /// The admissible matrix that loads a link with 3R/N under the fixed rule
    Adversarial,
    /// A random mixture of permutations
    Random,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum RuleName {
    /// Each packet by a node drawn from all
    Vlb,
    /// Direct within R/N a pair, the rest by other nodes
    #[value(alias = "direct")]
    Fixed,
    /// Direct while the queue is short, else by the better of two other nodes
    Adaptive,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Fail {
    /// The last node, after a third of the slots
    Node,
    /// The link from node 0 to node 1, after a third of the slots
    Link,
    /// Nothing at first: the last node drains, and stops after --wait
    Drain,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Fair {
    /// One queue: shares in proportion to what is offered
    Proportional,
    /// A queue for each input, up to 64 nodes
    MaxMin,
}

#[derive(Args)]
pub(super) struct Arguments {
    /// Nodes of the cluster
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=1024))]
    nodes: u32,
    /// Traffic matrix
    #[arg(long, value_enum, value_name = "NAME")]
    matrix: Traffic,
    /// Rule of the path
    #[arg(long, value_enum, value_name = "NAME", default_value = "adaptive")]
    rule: RuleName,
    /// Share of the matrix that is offered, 0 to 1
    #[arg(long, value_name = "SHARE", default_value = "0.95", value_parser = share)]
    load: f64,
    /// Slots to simulate
    #[arg(long, value_name = "N", default_value_t = 20_000)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    slots: u32,
    /// Start of the random sequence; equal seeds have equal results
    #[arg(long, value_name = "X", default_value_t = 1)]
    seed: u64,
    /// What fails
    #[arg(long, value_enum, value_name = "WHAT")]
    fail: Option<Fail>,
    /// Slots until the other nodes detect a failure
    #[arg(long, value_name = "SLOTS", default_value_t = 500, requires = "fail")]
    detection: u32,
    /// Most slots that a node needs beyond --detection, each node its own
    #[arg(long, value_name = "SLOTS", default_value_t = 0, requires = "fail")]
    jitter: u32,
    /// Slots after which what failed is back; without it, it stays away
    #[arg(long, value_name = "SLOTS", requires = "fail")]
    back: Option<u32>,
    /// Slots from the begin of a drain to the stop of the node
    #[arg(long, value_name = "SLOTS", default_value_t = 3000, requires = "fail")]
    wait: u32,
    /// Rates of the nodes, relative to each other, one a node; R is the largest
    #[arg(long, value_name = "RATE", value_delimiter = ',', num_args = 1)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1000))]
    weights: Vec<u32>,
    /// Load of the hot spot, in rates of its output
    #[arg(long, value_name = "TIMES", default_value = "2", value_parser = factor)]
    offered: f64,
    /// Permutations of a random matrix
    #[arg(long, value_name = "N", default_value_t = 4)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1024))]
    permutations: u32,
    /// Mean packets of a burst from one input to one output
    #[arg(long, value_name = "PACKETS", default_value = "1", value_parser = factor)]
    burst: f64,
    /// Flows of each pair of nodes
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=65_536))]
    flows: u32,
    /// Gap that ends a flowlet; without it each packet is a choice of its own
    #[arg(long, value_name = "SLOTS")]
    delta: Option<u32>,
    /// Packets in the queue of a link or an output
    #[arg(long, value_name = "PACKETS", default_value_t = 200)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    queue: u32,
    /// Packets in the queue of the direct link from which on the adaptive rule compares others
    #[arg(long, value_name = "PACKETS", default_value_t = 8)]
    threshold: u32,
    /// Rate of the internal links, in units of 2R/N
    #[arg(long, value_name = "TIMES", default_value = "1", value_parser = factor)]
    link_rate: f64,
    /// Queues of inputs that compete for an output
    #[arg(long, value_enum, value_name = "NAME", default_value = "proportional")]
    fair: Fair,
}

fn number(text: &str, from: f64, to: f64) -> Result<f64, String> {
    let number = text.parse::<f64>().ok().filter(|number| (from..=to).contains(number));
    number.ok_or_else(|| format!("no number from {from} to {to}"))
}

fn share(text: &str) -> Result<f64, String> {
    number(text, 0.0, 1.0)
}

fn factor(text: &str) -> Result<f64, String> {
    number(text, 0.01, 1000.0)
}

pub(super) fn run(arguments: &Arguments, output: &mut Output) -> Result<(), Failure> {
    let config = config(arguments).map_err(|words| Failure::new(Exit::Usage, words))?;
    let start = Instant::now();
    let report = sim::run(&config);
    let seconds = start.elapsed().as_secs_f64();
    let name = |value: Option<clap::builder::PossibleValue>| {
        value.map(|value| value.get_name().to_owned()).unwrap_or_default()
    };
    Ok(output.print(&Simulated {
        nodes: arguments.nodes,
        matrix: name(arguments.matrix.to_possible_value()),
        rule: name(arguments.rule.to_possible_value()),
        packets_per_second: (report.packets as f64 / seconds).round(),
        ..Simulated::from(&report)
    })?)
}

/// Configuration of a run, or why the arguments contradict each other.
fn config(arguments: &Arguments) -> Result<Config, String> {
    let nodes = arguments.nodes as usize;
    let least = |least, what| {
        let enough = nodes >= least;
        enough.then_some(()).ok_or_else(|| format!("{what}: {nodes} nodes, at least {least}"))
    };
    if matches!(arguments.fair, Fair::MaxMin) && nodes > 64 {
        return Err(format!("--fair max-min: {nodes} nodes, at most 64"));
    }
    if !arguments.weights.is_empty() && arguments.weights.len() != nodes {
        return Err(format!("--weights: {} rates for {nodes} nodes", arguments.weights.len()));
    }
    if nodes * nodes * arguments.flows as usize > MOST_FLOWS {
        return Err(format!("--flows: more than {MOST_FLOWS} in all"));
    }
    let matrix = match arguments.matrix {
        Traffic::Uniform => Matrix::uniform(nodes),
        Traffic::Permutation => Matrix::permutation(nodes),
        Traffic::Hotspot => {
            least(3, "--matrix hotspot")?;
            Matrix::hot_spot(nodes, arguments.offered)
        }
        Traffic::Adversarial => {
            least(4, "--matrix adversarial")?;
            Matrix::adversarial(nodes)
        }
        Traffic::Random => Matrix::random(nodes, arguments.permutations as usize, arguments.seed),
    };
    let rule = match arguments.rule {
        RuleName::Vlb => Rule::Vlb,
        RuleName::Fixed => Rule::Fixed,
        RuleName::Adaptive => Rule::Adaptive,
    };
    let equal = Config::new(matrix, rule);
    Ok(Config {
        rates: if arguments.weights.is_empty() { equal.rates } else { arguments.weights.clone() },
        load: arguments.load,
        settings: Settings { rule, threshold: u64::from(arguments.threshold) },
        slots: arguments.slots,
        seed: arguments.seed,
        queue: arguments.queue,
        link_rate: arguments.link_rate,
        burst: arguments.burst,
        flows: arguments.flows,
        flowlets: arguments
            .delta
            .map(|delta_slots| FlowletSettings { delta_slots, entries: 1 << 14 }),
        fair: match arguments.fair {
            Fair::Proportional => sim::Fair::Proportional,
            Fair::MaxMin => sim::Fair::MaxMin,
        },
        failures: failures(arguments),
        ..equal
    })
}

/// What fails after a third of the slots; a drain is followed by the stop of the node.
fn failures(arguments: &Arguments) -> Vec<sim::Failure> {
    let Some(fail) = arguments.fail else { return Vec::new() };
    let last = u16::try_from(arguments.nodes - 1).unwrap_or(u16::MAX);
    let start = arguments.slots / 3;
    let failure = |lost, slot: u32, back: Option<u32>| sim::Failure {
        lost,
        slot,
        detection_slots: arguments.detection,
        jitter_slots: arguments.jitter,
        until: back.map(|back| slot.saturating_add(back)),
    };
    match fail {
        Fail::Node => vec![failure(Lost::Node(last), start, arguments.back)],
        Fail::Link => vec![failure(Lost::Link(0, 1), start, arguments.back)],
        Fail::Drain => {
            let (stop, whole) = (
                start.saturating_add(arguments.wait),
                arguments.back.map(|back| back.saturating_add(arguments.wait)),
            );
            vec![
                failure(Lost::Drained(last), start, whole),
                failure(Lost::Node(last), stop, arguments.back),
            ]
        }
    }
}

/// The JSON of a run.
#[derive(Default, Serialize)]
struct Simulated {
    nodes: u32,
    matrix: String,
    rule: String,
    /// Share delivered of the packets that were delivered or dropped.
    delivered: f64,
    /// Load offered to the busiest link, in units of 2R/N.
    worst_link: f64,
    /// Packets that the busiest node processed, in R.
    worst_node: f64,
    /// Transit of the node that has most, in R.
    worst_transit: f64,
    /// Links that a packet passed.
    hops: f64,
    /// Longest queue of a link, in packets.
    worst_queue: u32,
    /// Longest queue of an output, in packets.
    worst_output_queue: u32,
    reordered_sequences: f64,
    reordered_rfc4737: f64,
    /// Share reordered with an extent of 3 or more.
    reordered_extent_3: f64,
    /// Jain's index at the output that most was offered to.
    jain: f64,
    /// Largest relative difference from a max-min fair share there.
    max_min_error: f64,
    latency: Latency,
    dropped: Dropped,
    /// Packets lost to a failure, and those of them that arrived after their input saw it.
    lost_in_failure: u64,
    lost_after_detection: u64,
    /// Slots until the last node saw the failure.
    detection_slots: u32,
    /// Packets not offered, because their output drains.
    withdrawn: u64,
    flowlets: u64,
    flowlets_lost: u64,
    sprayed: u64,
    /// Packets that arrived, left, and waited at the end.
    packets: u64,
    packets_out: u64,
    held: u64,
    /// Speed of the simulator.
    packets_per_second: f64,
}

/// Slots from external port to external port.
#[derive(Default, Serialize)]
struct Latency {
    p50: u32,
    p99: u32,
    p999: u32,
}

#[derive(Default, Serialize)]
struct Dropped {
    link_local: u64,
    link_transit: u64,
    output: u64,
    unreachable: u64,
    failed: u64,
}

impl From<&sim::Report> for Simulated {
    fn from(report: &sim::Report) -> Self {
        let sim::Latency { p50, p99, p999 } = report.latency;
        let sim::Drops { link_local, link_transit, output, unreachable, failed } = report.drops;
        Self {
            delivered: report.delivered,
            worst_link: report.worst_link,
            worst_node: report.worst_node,
            worst_transit: report.worst_transit(),
            hops: report.hops,
            worst_queue: report.worst_queue,
            worst_output_queue: report.worst_output_queue,
            reordered_sequences: report.reordered_sequences,
            reordered_rfc4737: report.reordered_rfc4737,
            reordered_extent_3: report.extent_3,
            jain: report.jain,
            max_min_error: report.max_min_error,
            latency: Latency { p50, p99, p999 },
            dropped: Dropped { link_local, link_transit, output, unreachable, failed },
            lost_in_failure: report.drops.failed,
            lost_after_detection: report.failed_after_detection,
            detection_slots: report.detection_slots,
            withdrawn: report.withdrawn,
            flowlets: report.flowlets,
            flowlets_lost: report.flowlets_lost,
            sprayed: report.sprayed,
            packets: report.packets,
            packets_out: report.out,
            held: report.held,
            ..Self::default()
        }
    }
}

impl Report for Simulated {
    fn text(&self, to: &mut dyn Write) -> io::Result<()> {
        let (Latency { p50, p99, p999 }, lost) = (&self.latency, &self.dropped);
        let lines = [
            ("traffic", format!("{}, {} nodes, rule {}", self.matrix, self.nodes, self.rule)),
            ("delivered", format!("{:.4}", self.delivered)),
            ("hops", format!("{:.2}", self.hops)),
            ("worst link", format!("{:.3} of 2R/N", self.worst_link)),
            (
                "worst node",
                format!("{:.3} R, {:.3} R in transit", self.worst_node, self.worst_transit),
            ),
            (
                "worst queue",
                format!("{} packets, {} at an output", self.worst_queue, self.worst_output_queue),
            ),
            ("latency", format!("{p50} slots, p99 {p99}, p99.9 {p999}")),
            (
                "reordered",
                format!(
                    "{:.3} % in sequences, {:.3} % by RFC 4737, {:.3} % of extent 3",
                    self.reordered_sequences * 100.0,
                    self.reordered_rfc4737 * 100.0,
                    self.reordered_extent_3 * 100.0
                ),
            ),
            (
                "fairness",
                format!("{:.4} by Jain, {:.4} from max-min", self.jain, self.max_min_error),
            ),
            (
                "dropped",
                format!(
                    "{} local and {} transit by links, {} by outputs, {} unreachable, {} failed",
                    lost.link_local, lost.link_transit, lost.output, lost.unreachable, lost.failed
                ),
            ),
            (
                "packets",
                format!("{} in, {} out, {} held", self.packets, self.packets_out, self.held),
            ),
            (
                "failure",
                format!(
                    "{} lost, {} of them after the detection, {} slots at most; {} withdrawn",
                    self.lost_in_failure,
                    self.lost_after_detection,
                    self.detection_slots,
                    self.withdrawn
                ),
            ),
            ("speed", format!("{} packets a second", self.packets_per_second)),
        ];
        for (name, value) in lines {
            writeln!(to, "{name:<12} {value}")?;
        }
        Ok(())
    }
}
