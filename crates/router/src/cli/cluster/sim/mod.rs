//! `fingerpost cluster sim`: traffic through a simulated cluster, on the decision code of the data plane.
//!
//! Source: RouteBricks; the simulator is `fingerpost_cluster::sim`. Cost: a million packets a second and more; some 200 MiB
//! at 1,024 nodes.

mod result;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::{Args, ValueEnum};
use fingerpost_cluster::plan::{Topology, Wiring};
use fingerpost_cluster::rule::{Rule, Settings};
use fingerpost_cluster::sim::{
    self, Config, FlowletSettings, Lost, Matrix, Mix, Trace, TraceError,
};
use fingerpost_packet::DeviceError;

use self::result::{Capture, Fly, Setting, Simulated, drawing};
use crate::cli::command::{Exit, Failure};
use crate::cli::output::Output;

pub(super) const EXAMPLES: &str = "Examples:
  $ fingerpost cluster sim --nodes 4 --matrix permutation
  $ fingerpost cluster sim --nodes 8 --matrix adversarial --rule fixed --json
  $ fingerpost cluster sim --nodes 64 --matrix uniform --fail node --detection 500 --back 3000
  $ fingerpost cluster sim --nodes 64 --matrix uniform --load 0.8 --fail drain
  $ fingerpost cluster sim --nodes 8 --matrix random --seed 7 --burst 8 --flows 16 --delta 400
  $ fingerpost cluster sim --nodes 6 --matrix uniform --weights 4,4,2,1,1,1
  $ fingerpost cluster sim --nodes 8 --mix --delta 1800 --slots 200000
  $ fingerpost cluster sim --nodes 8 --pcap trace.pcap --delta 1800 --svg loads.svg
  $ fingerpost cluster sim --nodes 16 --matrix permutation --topology fly --fan-out 4

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
    /// Node 0 to the last node, so that other nodes carry what exceeds their link
    Pair,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// A link from each node to each other
    Mesh,
    /// A k-ary n-fly: further stages of servers, each with --fan-out links to the next stage
    Fly,
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
    /// Traffic matrix; with --mix `pair` is the default
    #[arg(long, value_enum, value_name = "NAME")]
    #[arg(required_unless_present_any = ["mix", "pcap"])]
    matrix: Option<Traffic>,
    /// Send a mix of flows like that of a trace, in bursts, in slots of 0.56 us
    #[arg(long, conflicts_with_all = ["burst", "flows"])]
    mix: bool,
    /// Send the packets of a capture file: the hash of the addresses picks the nodes of each, and time is stretched until the
    /// busiest port has --load; the file repeats
    #[arg(long, value_name = "FILE")]
    #[arg(conflicts_with_all = ["matrix", "mix", "burst", "flows", "weights", "offered", "permutations"])]
    pcap: Option<PathBuf>,
    /// Rule of the path; adaptive, or in an n-fly vlb, without it
    #[arg(long, value_enum, value_name = "NAME")]
    rule: Option<RuleName>,
    /// Fabric between the nodes
    #[arg(long, value_enum, value_name = "NAME", default_value = "mesh")]
    topology: Kind,
    /// Links of a server to the next stage of an n-fly
    #[arg(long, value_name = "F", default_value_t = 4)]
    #[arg(value_parser = clap::value_parser!(u16).range(2..=1024))]
    fan_out: u16,
    /// Share of the matrix that is offered, 0 to 1
    #[arg(long, value_name = "SHARE", default_value = "0.95", value_parser = share)]
    load: f64,
    /// Slots to simulate; without it 20000, or the length of the file of --pcap
    #[arg(long, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    slots: Option<u32>,
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
    /// Also print the load of each node, output and link
    #[arg(long)]
    loads: bool,
    /// Write a drawing: the load of each link as a heat map, of each node as bars, latency and queues as curves
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
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

/// Default slots of a run.
const SLOTS: u32 = 20_000;

fn usage(words: String) -> Failure {
    Failure::new(Exit::Usage, words)
}

pub(super) fn run(arguments: &Arguments, output: &mut Output) -> Result<(), Failure> {
    check(arguments).map_err(usage)?;
    let config = config(arguments)?;
    let start = Instant::now();
    let report = sim::run(&config);
    let seconds = start.elapsed().as_secs_f64();
    let fly = config.fly.map(|wiring| Fly {
        stages: wiring.stages,
        degree: wiring.degree,
        servers: wiring.servers(),
    });
    let setting = Setting {
        nodes: arguments.nodes,
        matrix: traffic(arguments),
        rule: name(&rule_name(arguments)),
        fly,
        capture: config.trace.as_ref().map(Capture::from),
    };
    if let Some(path) = &arguments.svg {
        let svg = drawing(&setting, &report).to_string();
        fs::write(path, svg).map_err(|error| {
            Failure::outside(error.kind(), format_args!("{}: {error}", path.display()))
        })?;
    }
    Ok(output.print(&Simulated::new(setting, &report, seconds, arguments.loads))?)
}

/// Name of a value of an option.
fn name(value: &impl ValueEnum) -> String {
    value.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

/// Name of the traffic.
fn traffic(arguments: &Arguments) -> String {
    match (&arguments.pcap, arguments.mix) {
        (Some(path), _) => path.display().to_string(),
        (None, true) => format!("mix over {}", name(&matrix_name(arguments))),
        (None, false) => name(&matrix_name(arguments)),
    }
}

fn matrix_name(arguments: &Arguments) -> Traffic {
    arguments.matrix.unwrap_or(Traffic::Pair)
}

fn rule_name(arguments: &Arguments) -> RuleName {
    let fly = arguments.topology == Kind::Fly;
    arguments.rule.unwrap_or(if fly { RuleName::Vlb } else { RuleName::Adaptive })
}

/// Why the arguments contradict each other.
fn check(arguments: &Arguments) -> Result<(), String> {
    let nodes = arguments.nodes as usize;
    if matches!(arguments.fair, Fair::MaxMin) && nodes > 64 {
        return Err(format!("--fair max-min: {nodes} nodes, at most 64"));
    }
    if !arguments.weights.is_empty() && arguments.weights.len() != nodes {
        return Err(format!("--weights: {} rates for {nodes} nodes", arguments.weights.len()));
    }
    if nodes * nodes * arguments.flows as usize > MOST_FLOWS {
        return Err(format!("--flows: more than {MOST_FLOWS} in all"));
    }
    let least = match arguments.matrix {
        Some(Traffic::Hotspot) => 3,
        Some(Traffic::Adversarial) => 4,
        _ => 2,
    };
    if nodes < least {
        let matrix = name(&matrix_name(arguments));
        return Err(format!("--matrix {matrix}: {nodes} nodes, at least {least}"));
    }
    if arguments.topology == Kind::Mesh {
        return Ok(());
    }
    let mesh_only = [
        ("--rule", !matches!(rule_name(arguments), RuleName::Vlb)),
        ("--fail", arguments.fail.is_some()),
        ("--delta", arguments.delta.is_some()),
        ("--weights", !arguments.weights.is_empty()),
    ];
    if let Some((option, _)) = mesh_only.into_iter().find(|option| option.1) {
        let rule = if option == "--rule" { ": an n-fly has vlb alone" } else { "" };
        return Err(format!("--topology fly: {option} is for a mesh{rule}"));
    }
    let wiring = Wiring::of_fan_out(nodes as u64, u64::from(arguments.fan_out));
    if wiring.topology() == Topology::Mesh {
        let fan_out = arguments.fan_out;
        return Err(format!("--topology fly: {nodes} nodes are a mesh with --fan-out {fan_out}"));
    }
    Ok(())
}

/// Packets of a capture file.
fn capture(path: &Path, arguments: &Arguments) -> Result<Trace, Failure> {
    let name = path.to_str().ok_or_else(|| usage("--pcap: the name is no UTF-8".into()))?;
    Trace::read(name, arguments.nodes as usize, arguments.load).map_err(|error| match error {
        TraceError::File(DeviceError::System { ref source, .. }) => {
            Failure::outside(source.kind(), &error)
        }
        other => Failure::new(Exit::Failed, other),
    })
}

/// Configuration of a run.
fn config(arguments: &Arguments) -> Result<Config, Failure> {
    let nodes = arguments.nodes as usize;
    let trace = arguments.pcap.as_ref().map(|path| capture(path, arguments)).transpose()?;
    let matrix = match (&trace, matrix_name(arguments)) {
        (Some(trace), _) => trace.matrix(),
        (None, Traffic::Uniform) => Matrix::uniform(nodes),
        (None, Traffic::Permutation) => Matrix::permutation(nodes),
        (None, Traffic::Hotspot) => Matrix::hot_spot(nodes, arguments.offered),
        (None, Traffic::Adversarial) => Matrix::adversarial(nodes),
        (None, Traffic::Random) => {
            Matrix::random(nodes, arguments.permutations as usize, arguments.seed)
        }
        (None, Traffic::Pair) => Matrix::overload(nodes, &[1.0]),
    };
    let rule = match rule_name(arguments) {
        RuleName::Vlb => Rule::Vlb,
        RuleName::Fixed => Rule::Fixed,
        RuleName::Adaptive => Rule::Adaptive,
    };
    let pass = trace.as_ref().map(|trace| u32::try_from(trace.slots()).unwrap_or(u32::MAX));
    let slots = arguments.slots.or(pass).unwrap_or(SLOTS);
    let fly = (arguments.topology == Kind::Fly)
        .then(|| Wiring::of_fan_out(nodes as u64, u64::from(arguments.fan_out)));
    let equal = Config::new(matrix, rule);
    Ok(Config {
        rates: if arguments.weights.is_empty() { equal.rates } else { arguments.weights.clone() },
        load: arguments.load,
        settings: Settings { rule, threshold: u64::from(arguments.threshold) },
        slots,
        seed: arguments.seed,
        queue: arguments.queue,
        link_rate: arguments.link_rate,
        burst: arguments.burst,
        flows: arguments.flows,
        mix: arguments.mix.then(Mix::default),
        trace,
        flowlets: arguments
            .delta
            .map(|delta_slots| FlowletSettings { delta_slots, entries: 1 << 14 }),
        fair: match arguments.fair {
            Fair::Proportional => sim::Fair::Proportional,
            Fair::MaxMin => sim::Fair::MaxMin,
        },
        failures: failures(arguments, slots),
        fly,
        ..equal
    })
}

/// What fails after a third of the slots; a drain is followed by the stop of the node.
fn failures(arguments: &Arguments, slots: u32) -> Vec<sim::Failure> {
    let Some(fail) = arguments.fail else { return Vec::new() };
    let last = u16::try_from(arguments.nodes - 1).unwrap_or(u16::MAX);
    let start = slots / 3;
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
