//! A run over a k-ary n-fly: plain VLB over stages of servers, where a mesh has one link.
//!
//! Source: RouteBricks, SOSP 2009, section 3.3; the wiring is that of the planner. Each phase of VLB crosses the fabric once,
//!         n links from a port server through a server of each further stage to a port server.
//! Shape:  server i of a stage has links to `(i k + d) mod S`, d = 0 .. k - 1, of the next; so n digits of d lead from each
//!         port server to each, and where `k^n > S` there are several choices of digits, of which one is drawn. A link has
//!         rate `2R k^(n-1) / S`, 2R/N in a mesh: what both phases load it with at most, whatever the admissible matrix.
//! Limits: equal nodes, no failures, a choice a packet. The adaptive rule is none for a fly: an input sees its first links
//!         alone, which k^(n-1) outputs share, and the one that is full may be any of the n.

use fingerpost_lpm::Rng;

use super::arrivals::Arrivals;
use super::links::{Links, period};
use super::outputs::Outputs;
use super::queue::{Packet, Slab};
use super::report::Report;
use super::tally::{Loss, Tally};
use super::{Config, Fair};
use crate::fabric::Class;
use crate::plan::{Topology, Wiring};
use crate::rule::{NodeId, Rule};

/// How servers are linked.
struct Fabric {
    /// Servers of a stage, S.
    servers: usize,
    stages: usize,
    degree: usize,
    /// `k^n`.
    paths: usize,
}

impl Fabric {
    fn new(wiring: Wiring) -> Self {
        let small = |number: u64| usize::try_from(number).expect("at most 1,024 nodes");
        let (servers, degree) = (small(wiring.port_servers), small(wiring.degree));
        let stages = wiring.stages as usize;
        Self { servers, stages, degree, paths: degree.pow(wiring.stages) }
    }

    /// Digits that lead from one port server to another, drawn from all that do.
    fn digits(&self, from: usize, to: NodeId, rng: &mut Rng) -> u32 {
        // n links with digits of 0 lead to the server `from * k^n`; the digits count on from there.
        let first = from * self.paths % self.servers;
        let least = (usize::from(to) + self.servers - first) % self.servers;
        let choices = (self.paths - least).div_ceil(self.servers);
        let chosen = least + self.servers * rng.below(choices);
        u32::try_from(chosen).expect("below k^n, at most S k")
    }

    /// Link out of a server for the first of these digits, and the digits after it.
    #[allow(clippy::cast_possible_truncation, reason = "digits are a u32")]
    fn link(&self, server: usize, digits: u32) -> (usize, u32) {
        let stage = server / self.servers;
        let unit = self.degree.pow((self.stages - 1 - stage) as u32);
        let (digit, rest) = (digits as usize / unit, digits as usize % unit);
        (server * self.degree + digit, rest as u32)
    }

    /// Server at the end of a link.
    fn end(&self, link: usize) -> usize {
        let (server, digit) = (link / self.degree, link % self.degree);
        let (stage, i) = (server / self.servers, server % self.servers);
        let next = (stage + 1) % self.stages;
        next * self.servers + (i * self.degree + digit) % self.servers
    }
}

/// Everything that a run changes.
struct Run {
    fabric: Fabric,
    rng: Rng,
    slab: Slab,
    /// Digits of each packet of the slab that are left of its phase.
    digits: Vec<u32>,
    links: Links,
    outputs: Outputs,
    tally: Tally,
}

/// Runs a configuration over an n-fly. Loads of links are in units of `2R k^(n-1) / S`; the first S nodes of the report are
/// those with ports.
#[allow(clippy::cast_possible_truncation, reason = "links are bounded by the nodes")]
pub(super) fn run(config: &Config, wiring: Wiring) -> Report {
    let nodes = config.matrix.nodes();
    assert_eq!(wiring.port_servers, nodes as u64, "a port server a node");
    assert_eq!(wiring.topology(), Topology::Fly, "a wiring of several stages");
    assert!(config.settings.rule == Rule::Vlb, "an n-fly has no other rule than VLB");
    assert!(config.failures.is_empty() && config.flowlets.is_none(), "a mesh has them");
    assert!(config.fair == Fair::Proportional || nodes <= 64, "max-min queues: at most 64 nodes");
    let rates = vec![1.0; nodes];
    assert!(config.rates.iter().all(|&rate| rate == config.rates[0]), "equal nodes");
    let fabric = Fabric::new(wiring);
    let all = nodes * fabric.stages;
    let rate = 2.0 * fabric.paths as f64 / fabric.degree as f64 / nodes as f64 * config.link_rate;
    let periods = vec![period(rate); all * fabric.degree];
    let mut run = Run {
        links: Links::new(&periods, fabric.degree, config, || config.fair.queue(nodes)),
        fabric,
        rng: Rng::new(config.seed),
        slab: Slab::default(),
        digits: Vec::new(),
        outputs: Outputs::new(config, &rates),
        tally: Tally::new(config, &rates, all),
    };
    let mut arrivals = Arrivals::new(config, &config.matrix, &mut run.rng);
    let mut flying: Vec<(u32, u32)> = Vec::new();
    for slot in 0..config.slots {
        for (link, id) in flying.drain(..) {
            run.land(link as usize, id, slot);
        }
        let first = run.rng.below(nodes);
        for from in (first..nodes).chain(0..first) {
            if let Some((to, flow)) = arrivals.next(from, slot, &config.matrix, &mut run.rng) {
                run.arrive(from, to, flow, slot);
            }
        }
        let Run { slab, links, outputs, tally, .. } = &mut run;
        links.serve(slab, slot, |_, link, id| flying.push((link, id)));
        outputs.serve(slab, slot, |slab, _, id| tally.deliver(slab.remove(id), slot));
        tally.slot(slot, links);
    }
    let Run { mut links, outputs, slab, tally, .. } = run;
    tally.report(&rates, &mut links, &outputs, slab.held())
}

#[allow(clippy::cast_possible_truncation, reason = "nodes are at most 1,024")]
impl Run {
    /// Takes a packet from an external port: to a port server drawn from all first, and from there to its output.
    fn arrive(&mut self, from: usize, to: NodeId, flow: u32, slot: u32) {
        let number = self.tally.input(from, to, flow, slot);
        let packet =
            Packet { flow, number, born: slot, from: from as NodeId, to, ..Packet::default() };
        let id = self.slab.add(packet);
        self.digits.resize(self.digits.len().max(id as usize + 1), 0);
        if from == usize::from(to) {
            self.output(from, id);
            return;
        }
        let drawn = self.rng.below(self.fabric.servers);
        let end = if drawn == from { to } else { drawn as NodeId };
        self.begin(from, end, Class::Local, id, slot);
    }

    /// Begins a phase at a port server.
    fn begin(&mut self, from: usize, end: NodeId, class: Class, id: u32, slot: u32) {
        self.digits[id as usize] = self.fabric.digits(from, end, &mut self.rng);
        self.push(from, class, id, slot);
    }

    /// Takes a packet at the end of a link.
    fn land(&mut self, link: usize, id: u32, slot: u32) {
        let at = self.fabric.end(link);
        let packet = self.slab.at(id);
        packet.hops += 1;
        let to = packet.to;
        if at == usize::from(to) {
            self.output(at, id);
            return;
        }
        self.tally.transit(at);
        if at < self.fabric.servers {
            self.begin(at, to, Class::Transit, id, slot);
        } else {
            self.push(at, Class::Transit, id, slot);
        }
    }

    /// Puts a packet into the queue of its next link.
    fn push(&mut self, at: usize, class: Class, id: u32, slot: u32) {
        let digits = &mut self.digits[id as usize];
        let (link, rest) = self.fabric.link(at, *digits);
        *digits = rest;
        if let Some(id) = self.links.push(&mut self.slab, link, class, id, slot) {
            let loss = match class {
                Class::Local => Loss::LinkLocal,
                Class::Transit => Loss::LinkTransit,
            };
            self.tally.lose(self.slab.remove(id).to, loss);
        }
    }

    /// Puts a packet into the queue of an output.
    fn output(&mut self, at: usize, id: u32) {
        if let Some(id) = self.outputs.push(&mut self.slab, at, id) {
            self.tally.lose(self.slab.remove(id).to, Loss::Output);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::Matrix;

    fn with(matrix: Matrix, fan_out: u64, slots: u32) -> Report {
        let fly = Some(Wiring::of_fan_out(matrix.nodes() as u64, fan_out));
        let base = Config::new(matrix, Rule::Vlb);
        // Full load for its loads; queues that a critical load does not fill in this time.
        crate::sim::run(&Config { fly, load: 1.0, queue: 4000, slots, ..base })
    }

    /// Every path of digits ends where it should, and all of several are drawn.
    #[test]
    fn digits_lead_from_each_server_to_each() {
        for (nodes, fan_out) in [(9, 3), (10, 4), (27, 3), (5, 4), (64, 8), (31, 6)] {
            let fabric = Fabric::new(Wiring::of_fan_out(nodes, fan_out));
            let mut rng = Rng::new(1);
            for from in 0..fabric.servers {
                for to in 0..fabric.servers {
                    let mut digits = fabric.digits(from, NodeId::try_from(to).unwrap(), &mut rng);
                    let mut at = from;
                    for _ in 0..fabric.stages {
                        let (link, rest) = fabric.link(at, digits);
                        (at, digits) = (fabric.end(link), rest);
                    }
                    assert_eq!(at, to, "{nodes} {fan_out} from {from}");
                }
            }
        }
    }

    /// Where `k^n` is S. A packet whose intermediate is one of its ends, two in S, crosses the fabric once: `n (2 - 2/S)` links
    /// a packet. A link is on the paths of `k^(n-1)` pairs of port servers with R/S each a phase, and has all of its
    /// `2R k^(n-1) / S` but for the pairs of a server with itself. An inner server has `R (2 - 2/S)` in transit, one with ports
    /// `R (1 - 2/S)`.
    #[test]
    fn loads_and_hops_are_those_of_the_formulas() {
        for (nodes, fan_out, stages) in [(9, 3u32, 2), (16, 4, 2), (8, 2, 3), (27, 3, 3)] {
            for matrix in [Matrix::permutation(nodes), Matrix::uniform(nodes)] {
                let report = with(matrix, u64::from(fan_out), 40_000);
                let (s, n) = (nodes as f64, f64::from(stages));
                let name = format!("{nodes} nodes, fan-out {fan_out}");
                let near = |what: &str, found: f64, expected: f64, tolerance: f64| {
                    let difference = (found - expected).abs();
                    assert!(
                        difference < tolerance,
                        "{name}, {what}: {found:.4}, not {expected:.4}"
                    );
                };
                near("hops", report.hops, n * (2.0 - 2.0 / s), 0.01);
                let fabric = Fabric::new(Wiring::of_fan_out(nodes as u64, u64::from(fan_out)));
                let mut expected = vec![1.0; report.links.len()];
                for own in 0..nodes {
                    let to = NodeId::try_from(own).unwrap();
                    let mut digits = fabric.digits(own, to, &mut Rng::new(1));
                    let mut at = own;
                    for _ in 0..stages {
                        let (link, rest) = fabric.link(at, digits);
                        expected[link] -= f64::from(fan_out) / s;
                        (at, digits) = (fabric.end(link), rest);
                    }
                }
                for (link, (load, expected)) in report.links.iter().zip(expected).enumerate() {
                    near(&format!("link {link}"), *load, expected, 0.04);
                }
                for (server, node) in report.nodes.iter().enumerate() {
                    let expected = if server < nodes { 1.0 - 2.0 / s } else { 2.0 - 2.0 / s };
                    near(&format!("server {server}"), node.transit, expected, 0.05);
                }
                assert_eq!(report.nodes.len(), nodes * stages as usize);
                assert_eq!(report.drops.link_local + report.drops.link_transit, 0, "{name}");
            }
        }
    }

    /// Where `k^n` exceeds S some servers of a stage are passed more often than others; no link is loaded beyond its rate.
    #[test]
    fn no_link_of_any_fly_has_more_than_its_rate() {
        for (nodes, fan_out) in [(10, 4), (5, 2), (31, 6), (24, 5)] {
            for matrix in [Matrix::permutation(nodes), Matrix::random(nodes, 4, 7)] {
                let report = with(matrix, fan_out, 30_000);
                assert!(report.worst_link < 1.04, "{nodes} {fan_out}: {}", report.worst_link);
                assert_eq!(report.packets, report.out + report.drops.sum() + report.held);
            }
        }
    }
}
