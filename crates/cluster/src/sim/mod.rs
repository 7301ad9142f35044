//! A slotted simulator of a cluster, at the granularity of packets, on the decision code of the data plane.
//!
//! Source: the model of input-queued switch papers: a slot is the time of one packet at rate R. Packets are of one size.
//! Shape:  a full mesh; an internal link from i to j has rate `r_i p_j + r_j p_i` (2R/N with equal nodes) and a queue of two
//!         classes, transit before local; an output is served at its rate from one queue. Or a k-ary n-fly (`fly`).
//! Cost:   a slot costs the nodes and the packets that move, not the links: idle links cost nothing.
//! Limits: 1,024 nodes; 64 failures.
//!
//! `matrix` is the traffic and `closed` what formulas predict for it. `engine` runs it: `inputs` choose paths, `links` and
//! `outputs` carry and queue, `tally` counts. `report` is the result.

mod arrivals;
mod closed;
mod engine;
mod failure;
mod fairness;
mod fly;
mod inputs;
mod links;
mod matrix;
mod mix;
mod outputs;
mod queue;
mod reorder;
mod report;
mod tally;
#[cfg(test)]
mod tests;
mod trace;

pub use closed::Loads;
pub use engine::run;
pub use failure::{Failure, Lost};
pub use fairness::{jain, max_min};
pub use matrix::Matrix;
pub use mix::{Mix, SLOT_NS};
pub use reorder::{Order, Totals};
pub use report::{Drops, Latency, Processed, Report, Served, WINDOW};
pub use trace::{Trace, TraceError};

use crate::plan::Wiring;
use crate::rule::{Rule, Settings};

/// Flowlets of a run.
#[derive(Clone, Copy, Debug)]
pub struct FlowletSettings {
    /// Gap that ends a flowlet, in slots.
    pub delta_slots: u32,
    /// Entries of a node's table, a power of two.
    pub entries: usize,
}

/// Order in which packets of several inputs leave a full queue, and which of them are dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fair {
    /// One queue that drops what arrives last: shares are proportional to what is offered.
    Proportional,
    /// A queue for each input, served in turns; the longest one drops: shares are max-min fair. At most 64 nodes.
    MaxMin,
}

/// Settings of a run.
#[derive(Clone, Debug)]
pub struct Config {
    /// Rates of the external ports, relative to each other; the largest is R. One entry a node.
    pub rates: Vec<u32>,
    /// Weights as an intermediate; `None` for the rates. A node with 0 carries no transit.
    pub weights: Option<Vec<u32>>,
    /// Traffic, in shares of R.
    pub matrix: Matrix,
    /// Share of the matrix that is offered.
    pub load: f64,
    /// Rule, and its threshold in packets.
    pub settings: Settings,
    /// Slots to run.
    pub slots: u32,
    /// First number of the random sequence.
    pub seed: u64,
    /// Most packets of a class in the queue of a link, and in that of an output.
    pub queue: u32,
    /// Rate of the internal links, in units of 2R/N.
    pub link_rate: f64,
    /// Mean packets of a burst: one input to one output, a packet a slot.
    pub burst: f64,
    /// Flows of each pair of nodes.
    pub flows: u32,
    /// Traffic like that of a trace, in place of bursts and flows; `None` without.
    pub mix: Option<Mix>,
    /// Traffic of a capture file, in place of all of these; `None` without. The matrix is to be that of the trace, and the
    /// load the one that it was read for.
    pub trace: Option<Trace>,
    /// Flowlets; `None` for a choice a packet.
    pub flowlets: Option<FlowletSettings>,
    /// Queues of inputs that compete.
    pub fair: Fair,
    /// What fails, and when.
    pub failures: Vec<Failure>,
    /// Fabric between the nodes with ports: `None` for the full mesh.
    pub fly: Option<Wiring>,
}

impl Config {
    /// Equal nodes at 95 % of a matrix, queues of 200 packets, a threshold of 8: the setting of the tables in
    /// `docs/internals/cluster.md`.
    pub fn new(matrix: Matrix, rule: Rule) -> Self {
        Self {
            rates: vec![1; matrix.nodes()],
            weights: None,
            matrix,
            load: 0.95,
            settings: Settings { rule, threshold: 8 },
            slots: 20_000,
            seed: 1,
            queue: 200,
            link_rate: 1.0,
            burst: 1.0,
            flows: 1,
            mix: None,
            trace: None,
            flowlets: None,
            fair: Fair::Proportional,
            failures: Vec::new(),
            fly: None,
        }
    }
}
