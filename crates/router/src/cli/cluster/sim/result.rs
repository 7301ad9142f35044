//! What `cluster sim` prints of a run: text, JSON, and drawings.

use std::io::{self, Write};

use fingerpost_cluster::sim::{self, Trace};
use fingerpost_command::plot::{self, Drawing};
use serde::Serialize;

use crate::cli::output::Report;

/// The JSON of a run.
#[derive(Serialize)]
pub(super) struct Simulated {
    #[serde(flatten)]
    setting: Setting,
    /// Share delivered of the packets that were delivered or dropped.
    delivered: f64,
    /// Load offered to the busiest link, in units of 2R/N.
    worst_link: f64,
    /// Load of the busiest link in its busiest window of 4,096 slots.
    worst_window: f64,
    /// Jain's index of the loads of the links of an input.
    link_jain: f64,
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
    /// Longest queue of an output that all packets would reach at once.
    worst_ideal_queue: u32,
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
    #[serde(skip_serializing_if = "Option::is_none")]
    loads: Option<Loads>,
}

/// What was run.
#[derive(Serialize)]
pub(super) struct Setting {
    pub(super) nodes: u32,
    pub(super) matrix: String,
    pub(super) rule: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) fly: Option<Fly>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) capture: Option<Capture>,
}

/// A k-ary n-fly.
#[derive(Serialize)]
pub(super) struct Fly {
    /// Stages, n.
    pub(super) stages: u32,
    /// Links of a server, k.
    pub(super) degree: u64,
    /// Servers of all stages.
    pub(super) servers: u64,
}

/// What a capture file held.
#[derive(Serialize)]
pub(super) struct Capture {
    packets: usize,
    flows: usize,
    /// Slots of a pass through the file, and nanoseconds of one of them.
    slots: u64,
    slot_ns: f64,
}

impl From<&Trace> for Capture {
    fn from(trace: &Trace) -> Self {
        Self {
            packets: trace.packets(),
            flows: trace.flows(),
            slots: trace.slots(),
            slot_ns: trace.slot_ns(),
        }
    }
}

/// Load of each node, output and link.
#[derive(Serialize)]
struct Loads {
    nodes: Vec<NodeLoad>,
    /// A row for each node that links leave: in a mesh to each node, in an n-fly to the servers of the next stage.
    links: Vec<Vec<f64>>,
    outputs: Vec<OutputLoad>,
}

/// Packets that a node processed, in R.
#[derive(Serialize)]
struct NodeLoad {
    input: f64,
    transit: f64,
    output: f64,
}

/// Packets of an output.
#[derive(Serialize)]
struct OutputLoad {
    offered: u64,
    out: u64,
    dropped: u64,
}

impl From<&sim::Report> for Loads {
    fn from(report: &sim::Report) -> Self {
        let node =
            |&sim::Processed { input, transit, output }: &_| NodeLoad { input, transit, output };
        let output =
            |&sim::Served { offered, out, dropped }: &_| OutputLoad { offered, out, dropped };
        Self {
            nodes: report.nodes.iter().map(node).collect(),
            links: rows(report),
            outputs: report.outputs.iter().map(output).collect(),
        }
    }
}

/// Loads of the links of each node.
fn rows(report: &sim::Report) -> Vec<Vec<f64>> {
    let row = report.links.len() / report.nodes.len().max(1);
    report.links.chunks(row.max(1)).map(<[f64]>::to_vec).collect()
}

/// Drawing of a run: the load of each link, what each node processed, and how long packets and queues were.
pub(super) fn drawing(setting: &Setting, report: &sim::Report) -> Drawing {
    let (title, unit) = (setting.title(), setting.unit());
    let heat = plot::heat(
        &format!("{title}: load of each link, in {unit}"),
        "from node",
        "to node",
        &rows(report),
    );
    let nodes = report.nodes.iter().enumerate();
    let groups: Vec<(String, Vec<Option<f64>>)> = nodes
        .take(MOST_BARS)
        .map(|(at, node)| {
            let values = [node.input, node.transit, node.output, node.sum()].map(Some);
            (format!("node {at}"), values.to_vec())
        })
        .collect();
    let bars = plot::bars("packets of a node, in R", &["in", "transit", "out", "sum"], &groups);
    let curves = [
        ("slots of a packet".to_owned(), shares(&report.latencies)),
        ("longest queue of a link".to_owned(), shares(&counts(&report.queues))),
    ];
    let most = curves.iter().filter_map(|curve| curve.1.last()).map(|last| last.0);
    let most = most.fold(1.0, f64::max);
    let unit = "slots, or packets; upwards the share that has no more";
    plot::column(&[heat, bars, plot::curves("latency and queues", unit, most, &curves)])
}

/// Nodes that have bars.
const MOST_BARS: usize = 64;

/// How often each number occurs, of those above 0: an idle link has no queue.
fn counts(numbers: &[u32]) -> Vec<u64> {
    let mut counts = vec![0; numbers.iter().copied().max().unwrap_or(0) as usize + 1];
    numbers.iter().filter(|&&number| number > 0).for_each(|&number| counts[number as usize] += 1);
    counts
}

/// Share of what is counted that does not exceed each number, for at most 200 of them.
fn shares(counts: &[u64]) -> Vec<(f64, f64)> {
    let all = counts.iter().sum::<u64>().max(1) as f64;
    let step = counts.len().div_ceil(200).max(1);
    let mut below = 0;
    let mut points = vec![(0.0, 0.0)];
    for (number, count) in counts.iter().enumerate() {
        below += count;
        if number % step == 0 || number + 1 == counts.len() {
            points.push((number as f64, below as f64 / all));
        }
    }
    points
}

/// Slots from external port to external port.
#[derive(Serialize)]
struct Latency {
    p50: u32,
    p99: u32,
    p999: u32,
}

#[derive(Serialize)]
struct Dropped {
    link_local: u64,
    link_transit: u64,
    output: u64,
    unreachable: u64,
    failed: u64,
}

impl Simulated {
    /// Result of a run that took so many seconds, with the loads of all nodes and links if they are wanted.
    pub(super) fn new(setting: Setting, report: &sim::Report, seconds: f64, loads: bool) -> Self {
        let sim::Latency { p50, p99, p999 } = report.latency;
        let sim::Drops { link_local, link_transit, output, unreachable, failed } = report.drops;
        Self {
            setting,
            delivered: report.delivered,
            worst_link: report.worst_link,
            worst_window: report.worst_window,
            link_jain: report.link_jain,
            worst_node: report.worst_node,
            worst_transit: report.worst_transit(),
            hops: report.hops,
            worst_queue: report.worst_queue,
            worst_output_queue: report.worst_output_queue,
            worst_ideal_queue: report.worst_ideal_queue,
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
            packets_per_second: (report.packets as f64 / seconds).round(),
            loads: loads.then(|| Loads::from(report)),
        }
    }
}

impl Setting {
    /// Unit of the loads of links.
    pub(super) fn unit(&self) -> &'static str {
        if self.fly.is_some() { "2R k^(n-1)/S" } else { "2R/N" }
    }

    /// Traffic, nodes and rule in a few words.
    pub(super) fn title(&self) -> String {
        let fabric = self.fly.as_ref().map_or(String::new(), |fly| {
            format!(", {}-ary {}-fly of {} servers", fly.degree, fly.stages, fly.servers)
        });
        format!("{}, {} nodes{fabric}, rule {}", self.matrix, self.nodes, self.rule)
    }
}

impl Report for Simulated {
    fn text(&self, to: &mut dyn Write) -> io::Result<()> {
        let unit = self.setting.unit();
        let (Latency { p50, p99, p999 }, lost) = (&self.latency, &self.dropped);
        let lines = [
            ("traffic", self.setting.title()),
            ("delivered", format!("{:.4}", self.delivered)),
            ("hops", format!("{:.2}", self.hops)),
            (
                "worst link",
                format!(
                    "{:.3} of {unit}, {:.3} in its worst window",
                    self.worst_link, self.worst_window
                ),
            ),
            ("balance", format!("{:.4} by Jain of the links of an input", self.link_jain)),
            (
                "worst node",
                format!("{:.3} R, {:.3} R in transit", self.worst_node, self.worst_transit),
            ),
            (
                "worst queue",
                format!(
                    "{} packets, {} at an output, {} there without a fabric",
                    self.worst_queue, self.worst_output_queue, self.worst_ideal_queue
                ),
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
        if let Some(Capture { packets, flows, slots, slot_ns }) = &self.setting.capture {
            let words =
                format!("{packets} packets, {flows} flows, {slots} slots of {slot_ns:.1} ns");
            writeln!(to, "{:<12} {words}", "file")?;
        }
        if let Some(loads) = &self.loads {
            loads.text(unit, to)?;
        }
        Ok(())
    }
}

impl Loads {
    fn text(&self, unit: &str, to: &mut dyn Write) -> io::Result<()> {
        for (at, NodeLoad { input, transit, output }) in self.nodes.iter().enumerate() {
            let name = format!("node {at}");
            writeln!(
                to,
                "{name:<12} {input:.3} R in, {transit:.3} R in transit, {output:.3} R out"
            )?;
        }
        for (at, OutputLoad { offered, out, dropped }) in self.outputs.iter().enumerate() {
            let name = format!("output {at}");
            writeln!(to, "{name:<12} {offered} packets offered, {out} out, {dropped} dropped")?;
        }
        for (at, row) in self.links.iter().enumerate() {
            let name = format!("links of {at}");
            let row: Vec<String> = row.iter().map(|load| format!("{load:.3}")).collect();
            writeln!(to, "{name:<12} {} of {unit}", row.join(" "))?;
        }
        Ok(())
    }
}
