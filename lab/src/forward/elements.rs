//! What each element of the graph takes of a packet's time: the same path once more, with the graph
//! timed, in turns of its own.
//!
//! The processor's clock is read once a batch and element, so figures are somewhat above those of the
//! path that is not timed: their sum is to agree with it within some 15 %. `element:receive` and
//! `element:send` are the ports' part, the generator and the sinks; `element:round` is what is left of
//! the thread's own time: the worker between them, with its looks at the clock. The processor's clock
//! continues while other programs have the core: where the parts come to more than the thread's own time,
//! all are cut down alike.
//!
//! The runs of a cluster node have such parts too, named after them: `cluster-transit:transmit`. Their `graph` part is all but the
//! ports, which are `receive`, `send` and the element that sorts packets by port.

use std::time::Instant;

use fingerpost_lpm::simd::Ticks;
use fingerpost_packet::frame::counters::Count;

use super::Path;
use crate::document::{Kind, Run, Unit};
use crate::measure::{Plan, sample};

/// What is timed, and its samples.
pub(super) struct Elements {
    /// What the names of its runs begin with.
    prefix: String,
    family: u8,
    stream: String,
    names: Vec<String>,
    /// Time of each element by name, in ns a packet.
    samples: Vec<Vec<f64>>,
    /// Turns so far; the first is thrown away, as everybody's.
    turns: usize,
}

/// What is left to the worker.
const ROUND: &str = "round";

/// Parts that are the ports': they receive, packets are sorted by port, and they send.
const PORTS: [&str; 3] = ["receive", "transmit", "send"];

/// All but the ports' parts.
const GRAPH: &str = "graph";

impl Elements {
    /// Times of a path whose packets are of this family and stream, under names with this prefix.
    pub(super) fn new(path: &Path, prefix: &str, stream: &str) -> Self {
        let nodes = path.plan.nodes().iter().map(|node| node.name.to_string());
        let names: Vec<_> = nodes.chain(["receive", "send", ROUND].map(str::to_owned)).collect();
        let samples = vec![Vec::new(); names.len()];
        let (prefix, stream) = (prefix.to_owned(), stream.to_owned());
        Self { prefix, family: path.family, stream, names, samples, turns: 0 }
    }

    /// Whether they are parts of a run of this name.
    pub(super) fn are_of(&self, run: &str) -> bool {
        self.prefix == run
    }

    /// The run of all but the ports' parts.
    pub(super) fn graph(&self) -> Run {
        let mut graph = vec![0.0; self.samples.first().map_or(0, Vec::len)];
        for (name, samples) in self.names.iter().zip(&self.samples) {
            if !PORTS.contains(&&**name) {
                graph.iter_mut().zip(samples).for_each(|(sum, ns)| *sum += ns);
            }
        }
        self.run(GRAPH, graph)
    }

    fn run(&self, part: &str, samples: Vec<f64>) -> Run {
        let name = format!("{}:{part}", self.prefix);
        let mut run = Run::new(&name, Kind::Ours, &self.stream, Unit::NsPerPacket);
        run.family = Some(self.family);
        run.set_samples(samples);
        run
    }

    /// A turn; what a packet took in it, or `None` where the processor has no clock.
    #[allow(clippy::cast_precision_loss, reason = "counts stay below 2^53")]
    pub(super) fn turn(&mut self, path: &mut Path, plan: Plan) -> Option<f64> {
        let clock = Ticks::detect()?;
        if !path.worker.set_timed(true) {
            return None;
        }
        let (before, packets) = (ticks(path), path.counters.packets_in.read());
        let (wall, start) = (Instant::now(), clock.now());
        let took = sample(path, plan);
        let passed = clock.now().wrapping_sub(start).max(1);
        let tick_ns = wall.elapsed().as_nanos() as f64 / passed as f64;
        let packets = (path.counters.packets_in.read() - packets).max(1);
        path.worker.set_timed(false);
        let parts = ticks(path).into_iter().zip(before).map(|(after, before)| after - before);
        let mut parts: Vec<f64> = parts.map(|n| n as f64 * tick_ns / packets as f64).collect();
        let sum: f64 = parts.iter().sum();
        let own = (took / sum.max(f64::MIN_POSITIVE)).min(1.0);
        parts.iter_mut().for_each(|ns| *ns *= own);
        let rest = (took - sum).max(0.0);
        if self.turns > 0 {
            for (samples, ns) in self.samples.iter_mut().zip(parts.into_iter().chain([rest])) {
                samples.push(ns);
            }
        }
        self.turns += 1;
        Some(took)
    }

    /// A run for each element that packets crossed, in the order of the graph.
    pub(super) fn runs(&self) -> Vec<Run> {
        // What is left to the worker can be nothing on a busy machine, and was measured nevertheless.
        let crossed = |name: &str, samples: &[f64]| {
            let measured = name == ROUND && !samples.is_empty();
            measured || samples.iter().any(|&ns| ns > 0.0)
        };
        let parts = self.names.iter().zip(&self.samples);
        let parts = parts.filter(|(name, samples)| crossed(name, samples));
        parts.map(|(name, samples)| self.run(name, samples.clone())).collect()
    }
}

/// Times of the elements by number, then of the ports.
fn ticks(path: &Path) -> Vec<u64> {
    let nodes = path.worker.graph().counters();
    let ports = [&path.counters.receive_ticks, &path.counters.send_ticks];
    nodes.iter().map(|node| &node.ticks).chain(ports).map(Count::read).collect()
}
