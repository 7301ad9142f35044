//! The slots of a run over a mesh: arrivals, decisions, links, outputs.
//!
//! In a slot packets that crossed a link are taken first, then those of the external ports, so that transit is charged
//! before local packets. Then the links send, then the outputs. A packet that is sent is at the next node a slot later.

use fingerpost_lpm::Rng;

use super::arrivals::Arrivals;
use super::failure::World;
use super::inputs::{Arrival, Inputs};
use super::links::{Links, ends, period};
use super::outputs::Outputs;
use super::queue::{Packet, Slab};
use super::report::Report;
use super::tally::{Loss, Tally};
use super::{Config, Fair, fly};
use crate::fabric::Class;
use crate::rule::{self, Members, NodeId, Path, Phase, Refusal, Step};

/// Packets, and where they are.
struct Fabric {
    slab: Slab,
    links: Links,
    outputs: Outputs,
    /// Link and packet of what arrives in the next slot.
    flying: Vec<(u32, u32)>,
}

/// Everything that a run changes.
struct Run {
    nodes: usize,
    rng: Rng,
    world: World,
    inputs: Inputs,
    fabric: Fabric,
    tally: Tally,
}

/// Runs a configuration. Equal configurations have equal results.
///
/// # Panics
/// When the rates are not those of the matrix's nodes, or max-min queues are for more than 64 nodes; in an n-fly when nodes
/// are unequal, the rule is not VLB, or there are failures or flowlets.
pub fn run(config: &Config) -> Report {
    if let Some(wiring) = config.fly {
        return fly::run(config, wiring);
    }
    let nodes = config.matrix.nodes();
    assert_eq!(config.rates.len(), nodes, "one rate a node");
    assert!(config.fair == Fair::Proportional || nodes <= 64, "max-min queues: at most 64 nodes");
    let most = f64::from(config.rates.iter().copied().max().unwrap_or(1).max(1));
    let rates: Vec<f64> = config.rates.iter().map(|&rate| f64::from(rate) / most).collect();
    let equal = rates.iter().all(|&rate| rate == 1.0);
    let matrix = if equal { config.matrix.clone() } else { config.matrix.scaled(&rates) };
    let mut run = Run::new(config, &rates);
    let mut arrivals = Arrivals::new(config, &matrix, &mut run.rng);
    for slot in 0..config.slots {
        for node in run.world.advance(slot) {
            run.die(node);
        }
        run.land(slot);
        // Who comes first in a slot is random, or equal inputs would not be equal in full queues.
        let first = run.rng.below(nodes);
        for from in (first..nodes).chain(0..first) {
            if run.world.silent(from) {
                continue;
            }
            if let Some((to, flow)) = arrivals.next(from, slot, &matrix, &mut run.rng) {
                run.arrive(from, to, flow, slot);
            }
        }
        let Fabric { slab, links, outputs, flying } = &mut run.fabric;
        links.serve(slab, slot, |_, link, id| flying.push((link, id)));
        outputs.serve(slab, slot, |slab, _, id| run.tally.deliver(slab.remove(id), slot));
        run.tally.slot(slot, links);
    }
    let Run { world, fabric: Fabric { slab, mut links, outputs, .. }, tally, .. } = run;
    let report = tally.report(&rates, &mut links, &outputs, slab.held());
    Report { detection_slots: world.detection_slots(), ..report }
}

/// Links of a mesh of nodes of these rates, in R, and shares as an intermediate.
fn mesh(config: &Config, rates: &[f64], shares: &[f64]) -> Links {
    let nodes = rates.len();
    let of_pair = |pair: usize| {
        let (from, to) = (pair / nodes, pair % nodes);
        let rate = (rates[from] * shares[to] + rates[to] * shares[from]) * config.link_rate;
        if from == to { 0 } else { period(rate) }
    };
    let periods: Vec<u32> = (0..nodes * nodes).map(of_pair).collect();
    Links::new(&periods, nodes, config, || config.fair.queue(nodes))
}

impl Run {
    fn new(config: &Config, rates: &[f64]) -> Self {
        let nodes = rates.len();
        let weights = config.weights.as_ref().unwrap_or(&config.rates);
        let sum: f64 = weights.iter().map(|&weight| f64::from(weight)).sum();
        let shares: Vec<f64> = weights.iter().map(|&weight| f64::from(weight) / sum).collect();
        let links = mesh(config, rates, &shares);
        Self {
            nodes,
            rng: Rng::new(config.seed),
            world: World::new(Members::new(weights), &config.failures, config.seed),
            inputs: Inputs::new(config, rates, &links),
            fabric: Fabric {
                slab: Slab::default(),
                links,
                outputs: Outputs::new(config, rates),
                flying: Vec::new(),
            },
            tally: Tally::new(config, rates, nodes),
        }
    }

    /// Drops what a node held when it died.
    fn die(&mut self, node: NodeId) {
        let row = usize::from(node) * self.nodes;
        let mut held = Vec::new();
        let Fabric { slab, links, outputs, .. } = &mut self.fabric;
        for link in row..row + self.nodes {
            links.drain(slab, link, |id| held.push(id));
        }
        outputs.drain(slab, usize::from(node), |id| held.push(id));
        for id in held {
            self.fail(id, node, node);
        }
    }

    /// Takes the packets that crossed a link in the slot before.
    fn land(&mut self, slot: u32) {
        let mut flying = std::mem::take(&mut self.fabric.flying);
        for (link, id) in flying.drain(..) {
            let (from, at) = ends(link, self.nodes);
            let packet = self.fabric.slab.at(id);
            let (input, to) = (packet.from, packet.to);
            packet.hops += 1;
            if self.world.broken(from, at) {
                self.fail(id, from, at);
                continue;
            }
            // A packet is in phase 1 on a link from its input to another node than its output.
            let phase = if from == input && at != to { Phase::First } else { Phase::Second };
            match rule::forward(self.world.members(usize::from(at)), at, to, phase) {
                Step::Output => self.output(usize::from(at), id),
                Step::Transit => {
                    self.tally.transit(usize::from(at));
                    self.push(at, to, Class::Transit, id, slot);
                }
                // The input does not see yet what the intermediate sees.
                Step::Drop(Refusal::LinkDown) => self.fail(id, at, to),
                Step::Drop(refusal) => {
                    unreachable!("the simulator makes no such packet: {refusal:?}")
                }
            }
        }
        self.fabric.flying = flying;
    }

    /// Drops a packet for the loss of a link; of a node, if both ends are one.
    fn fail(&mut self, id: u32, from: NodeId, to: NodeId) {
        let packet = self.fabric.slab.remove(id);
        self.tally.lose(packet.to, Loss::Failed);
        if self.world.late(packet.from, packet.born, from, to) {
            self.tally.late();
        }
    }

    /// Takes a packet from an external port.
    #[inline]
    #[allow(clippy::cast_possible_truncation, reason = "a node is a u16")]
    fn arrive(&mut self, input: usize, to: NodeId, flow: u32, slot: u32) {
        if self.world.withdrawn(input, to) {
            self.tally.withdraw();
            return;
        }
        let number = self.tally.input(input, to, flow, slot);
        let from = input as NodeId;
        let arrival = Arrival { from, to, flow, slot };
        let links = self.fabric.links.of(input);
        let word = self.rng.word();
        let found = self.inputs.path(self.world.members(input), links, arrival, word);
        let Some((path, outcome)) = found else {
            self.tally.lose(to, Loss::Unreachable);
            return;
        };
        self.tally.flowlet(outcome);
        let packet = Packet { flow, number, born: slot, from, to, ..Packet::default() };
        let id = self.fabric.slab.add(packet);
        match path {
            Path::Local => self.output(input, id),
            _ => self.push(from, path.first(to), Class::Local, id, slot),
        }
    }

    /// Puts a packet into the queue of a link.
    #[inline]
    fn push(&mut self, from: NodeId, to: NodeId, class: Class, id: u32, slot: u32) {
        let Fabric { slab, links, .. } = &mut self.fabric;
        let link = usize::from(from) * self.nodes + usize::from(to);
        if let Some(id) = links.push(slab, link, class, id, slot) {
            let loss = match class {
                Class::Local => Loss::LinkLocal,
                Class::Transit => Loss::LinkTransit,
            };
            self.tally.lose(slab.remove(id).to, loss);
        }
    }

    /// Puts a packet into the queue of an output.
    #[inline]
    fn output(&mut self, at: usize, id: u32) {
        let Fabric { slab, outputs, .. } = &mut self.fabric;
        if let Some(id) = outputs.push(slab, at, id) {
            self.tally.lose(slab.remove(id).to, Loss::Output);
        }
    }
}
