//! The slots of a run: arrivals, decisions, links, outputs.
//!
//! In a slot packets that crossed a link are taken first, then those of the external ports, so that transit is charged
//! before local packets. Then the links send, then the outputs. A packet that is sent is at the next node a slot later.

use fingerpost_lpm::Rng;

use super::arrivals::Arrivals;
use super::failure::World;
use super::mesh::{Link, Mesh, SLOT, ends};
use super::queue::{Packet, Queue, Slab};
use super::reorder::{Order, Totals};
use super::report::{Drops, Latency, Report, WINDOW};
use super::{Config, Fair, fairness};
use crate::fabric::Class;
use crate::flowlet::{Flow, Flowlets, Outcome};
use crate::rule::{self, Local, Members, NodeId, Path, Phase, Refusal, Rule, Settings, Step};

/// Packets that may go direct before the fixed allowance of a pair has to recover. With 4 random arrivals waste a third of
/// the allowance of uniform traffic among eight nodes, with 32 less than a tenth.
const ALLOWANCE_BURST: u64 = 32;

/// Longest time through the cluster that the histogram resolves, in slots.
const LONGEST: usize = 1 << 16;

/// Queues of one node, for the decision.
struct Here<'a> {
    links: &'a [Link],
    /// Time from which on the allowance of each output has room, less its burst; empty without allowances.
    allowances: &'a [u64],
    now: u64,
}

impl Local for Here<'_> {
    #[inline]
    fn backlog(&self, to: NodeId) -> u64 {
        self.links[usize::from(to)].backlog()
    }

    #[inline]
    fn allowance(&self, to: NodeId) -> bool {
        self.allowances.get(usize::from(to)).is_some_and(|&from| from <= self.now)
    }
}

/// External port of a node, outward.
struct Output {
    queue: Queue,
    period: u64,
    ready: u64,
    worst: u32,
}

/// Counts of a node.
#[derive(Clone, Copy, Default)]
struct Work {
    input: u64,
    transit: u64,
    output: u64,
}

/// Everything that a run changes.
struct Run<'a> {
    config: &'a Config,
    nodes: usize,
    rng: Rng,
    world: World,
    settings: Settings,
    slab: Slab,
    mesh: Mesh,
    outputs: Vec<Output>,
    /// Link and packet of what arrives in the next slot.
    flying: Vec<(u32, u32)>,
    allowances: Vec<u64>,
    allowance_period: Vec<u64>,
    flowlets: Vec<Flowlets>,
    /// Next number of each flow, and the order of its arrivals.
    numbers: Vec<u32>,
    orders: Vec<Order>,
    /// Packets of each pair of nodes, offered and out.
    offered: Vec<u32>,
    out: Vec<u32>,
    /// Sum and number of the indexes of balance.
    balance: (f64, u32),
    totals: Totals,
    work: Vec<Work>,
    histogram: Vec<u64>,
    links_passed: u64,
    through_links: u64,
    report: Report,
}

/// Runs a configuration. Equal configurations have equal results.
///
/// # Panics
/// When the rates are not those of the matrix's nodes, or max-min queues are for more than 64 nodes.
pub fn run(config: &Config) -> Report {
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
        run.send(slot);
        run.deliver(slot);
        if (slot + 1) % WINDOW == 0 {
            run.window();
        }
    }
    run.finish(&rates)
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "counts and shares of a run that is bounded by its slots"
)]
impl<'a> Run<'a> {
    fn new(config: &'a Config, rates: &[f64]) -> Self {
        let nodes = rates.len();
        let weights = config.weights.as_ref().unwrap_or(&config.rates);
        let sum: f64 = weights.iter().map(|&weight| f64::from(weight)).sum();
        let shares: Vec<f64> = weights.iter().map(|&weight| f64::from(weight) / sum).collect();
        let mesh = Mesh::new(config, rates, &shares);
        // The threshold is in packets of a link of average rate; backlogs are times to drain.
        let periods = mesh.links.iter().map(|link| u64::from(link.period)).filter(|&time| time > 0);
        let (count, time) =
            periods.fold((0u64, 0u64), |(count, sum), time| (count + 1, sum + time));
        let threshold = config.settings.threshold * time / count.max(1);
        let output = |rate: &f64| Output {
            queue: match config.fair {
                Fair::Proportional => Queue::proportional(),
                Fair::MaxMin => Queue::max_min(nodes),
            },
            period: (SLOT as f64 / rate) as u64,
            ready: 0,
            worst: 0,
        };
        let all: f64 = rates.iter().sum();
        let pairs = nodes * nodes;
        let (mut allowances, mut allowance_period) = (Vec::new(), Vec::new());
        if config.settings.rule == Rule::Fixed {
            allowances = vec![0; pairs];
            let period = |pair| SLOT as f64 * all / (rates[pair / nodes] * rates[pair % nodes]);
            allowance_period = (0..pairs).map(|pair| period(pair) as u64).collect();
        }
        let tables = if config.flowlets.is_some() { nodes } else { 0 };
        let table = |settings: super::FlowletSettings| {
            Flowlets::new(settings.entries, settings.delta_slots)
        };
        // Flows of a mix are added as they begin.
        let flows = if config.mix.is_some() { 0 } else { pairs * config.flows.max(1) as usize };
        Self {
            config,
            nodes,
            rng: Rng::new(config.seed),
            world: World::new(Members::new(weights), &config.failures, config.seed),
            settings: Settings { threshold, ..config.settings },
            slab: Slab::default(),
            mesh,
            outputs: rates.iter().map(output).collect(),
            flying: Vec::new(),
            allowances,
            allowance_period,
            flowlets: config.flowlets.map_or(Vec::new(), |settings| vec![table(settings); tables]),
            numbers: vec![0; flows],
            orders: vec![Order::default(); flows],
            offered: vec![0; pairs],
            out: vec![0; pairs],
            balance: (0.0, 0),
            totals: Totals::default(),
            work: vec![Work::default(); nodes],
            histogram: vec![0; LONGEST],
            links_passed: 0,
            through_links: 0,
            report: Report::default(),
        }
    }

    /// Drops what a node held when it died.
    fn die(&mut self, node: NodeId) {
        let row = usize::from(node) * self.nodes;
        let mut held = Vec::new();
        for link in row..row + self.nodes {
            self.mesh.drain(&mut self.slab, link, |id| held.push(id));
        }
        while let Some(id) = self.outputs[usize::from(node)].queue.pop(&mut self.slab) {
            held.push(id);
        }
        for id in held {
            self.fail(id, node, node);
        }
    }

    /// Takes the packets that crossed a link in the slot before.
    fn land(&mut self, slot: u32) {
        let mut flying = std::mem::take(&mut self.flying);
        for (link, id) in flying.drain(..) {
            let (from, at) = ends(link, self.nodes);
            let packet = self.slab.at(id);
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
                    self.work[usize::from(at)].transit += 1;
                    let link = usize::from(at) * self.nodes + usize::from(to);
                    if let Some(id) = self.mesh.push(&mut self.slab, link, Class::Transit, id, slot)
                    {
                        self.slab.remove(id);
                        self.report.drops.link_transit += 1;
                    }
                }
                // The input does not see yet what the intermediate sees.
                Step::Drop(Refusal::LinkDown) => self.fail(id, at, to),
                Step::Drop(refusal) => {
                    unreachable!("the simulator makes no such packet: {refusal:?}")
                }
            }
        }
        self.flying = flying;
    }

    /// Drops a packet for the loss of a link; of a node, if both ends are one.
    fn fail(&mut self, id: u32, from: NodeId, to: NodeId) {
        let packet = self.slab.remove(id);
        self.report.drops.failed += 1;
        let late = self.world.late(packet.from, packet.born, from, to);
        self.report.failed_after_detection += u64::from(late);
    }

    /// Takes a packet from an external port.
    #[inline]
    fn arrive(&mut self, from: usize, to: NodeId, flow: u32, slot: u32) {
        if self.world.withdrawn(from, to) {
            self.report.withdrawn += 1;
            return;
        }
        self.report.packets += 1;
        self.work[from].input += 1;
        let pair = from * self.nodes + usize::from(to);
        self.offered[pair] += 1;
        if self.numbers.len() <= flow as usize {
            self.numbers.resize(flow as usize + 1, 0);
            self.orders.resize(flow as usize + 1, Order::default());
        }
        let number = self.numbers[flow as usize];
        self.numbers[flow as usize] += 1;
        let Some(path) = self.path(from, to, flow, slot) else {
            self.report.drops.unreachable += 1;
            return;
        };
        let packet =
            Packet { flow, number, born: slot, from: from as NodeId, to, ..Packet::default() };
        let id = self.slab.add(packet);
        if path == Path::Local {
            self.output(from, id);
            return;
        }
        if path == Path::Direct && !self.allowances.is_empty() {
            let period = self.allowance_period[pair];
            // The bucket is full when the time lies a burst back.
            let full = (u64::from(slot) * SLOT).saturating_sub(ALLOWANCE_BURST * period);
            self.allowances[pair] = self.allowances[pair].max(full) + period;
        }
        let link = from * self.nodes + usize::from(path.first(to));
        if let Some(id) = self.mesh.push(&mut self.slab, link, Class::Local, id, slot) {
            self.slab.remove(id);
            self.report.drops.link_local += 1;
        }
    }

    /// Decides the path of a packet.
    #[inline]
    fn path(&mut self, from: usize, to: NodeId, flow: u32, slot: u32) -> Option<Path> {
        let word = self.rng.word();
        let row = from * self.nodes;
        let here = Here {
            links: &self.mesh.links[row..][..self.nodes],
            allowances: if self.allowances.is_empty() {
                &[]
            } else {
                &self.allowances[row..][..self.nodes]
            },
            now: u64::from(slot) * SLOT,
        };
        let node = from as NodeId;
        let members = self.world.members(from);
        let choose = || {
            rule::choose(&self.settings, members, node, to, &here, word).map(|choice| choice.path)
        };
        let Some(flowlets) = self.flowlets.get_mut(from) else { return choose() };
        let hash = Rng::new(u64::from(flow)).word() as u32;
        let most = self.config.queue / 2;
        let overloaded = |path: Path| here.links[usize::from(path.first(to))].len() >= most;
        let found = flowlets.path(members, Flow { hash, from: node, to }, slot, overloaded, choose);
        let (path, outcome) = found?;
        match outcome {
            Outcome::Local | Outcome::Kept => {}
            Outcome::Began => self.report.flowlets += 1,
            Outcome::Lost => self.report.flowlets_lost += 1,
            Outcome::Sprayed => self.report.sprayed += 1,
        }
        Some(path)
    }

    /// Puts a packet into the queue of an output.
    fn output(&mut self, at: usize, id: u32) {
        let output = &mut self.outputs[at];
        let dropped = output.queue.push(&mut self.slab, id, self.config.queue);
        output.worst = output.worst.max(output.queue.len());
        if let Some(id) = dropped {
            self.slab.remove(id);
            self.report.drops.output += 1;
        }
    }

    /// Sends what the links have due.
    fn send(&mut self, slot: u32) {
        let flying = &mut self.flying;
        self.mesh.serve(&mut self.slab, slot, |_, link, id| flying.push((link, id)));
    }

    /// Sends what the outputs have due.
    fn deliver(&mut self, slot: u32) {
        let now = u64::from(slot) * SLOT;
        for at in 0..self.nodes {
            let output = &mut self.outputs[at];
            output.ready = output.ready.max((now + 1).saturating_sub(SLOT));
            if output.ready > now {
                continue;
            }
            let Some(id) = output.queue.pop(&mut self.slab) else { continue };
            output.ready += output.period;
            let packet = self.slab.remove(id);
            self.work[at].output += 1;
            self.report.out += 1;
            self.links_passed += u64::from(packet.hops);
            self.through_links += u64::from(packet.hops > 0);
            self.histogram[((slot - packet.born) as usize).min(LONGEST - 1)] += 1;
            self.out[usize::from(packet.from) * self.nodes + at] += 1;
            self.orders[packet.flow as usize].arrive(packet.number, &mut self.totals);
        }
    }

    /// Ends a window in which the balance of the links is measured.
    fn window(&mut self) {
        let (sum, count) = &mut self.balance;
        let worst = self.mesh.window(f64::from(WINDOW), |jain| {
            *sum += jain;
            *count += 1;
        });
        let worst = worst * self.config.link_rate;
        self.report.worst_window = self.report.worst_window.max(worst);
    }

    fn finish(mut self, rates: &[f64]) -> Report {
        let slots = f64::from(self.config.slots.max(1));
        let share = |part: u64, of: u64| part as f64 / of.max(1) as f64;
        let mut report = std::mem::take(&mut self.report);
        report.held = self.slab.held() as u64;
        report.detection_slots = self.world.detection_slots();
        let decided = report.out + report.drops.sum();
        report.delivered = if decided == 0 { 1.0 } else { share(report.out, decided) };
        report.hops = share(self.links_passed, self.through_links);
        let load = |link: &Link| {
            f64::from(link.offered) * f64::from(link.period) * self.config.link_rate
                / SLOT as f64
                / slots
        };
        report.worst_link = self.mesh.links.iter().map(load).fold(0.0, f64::max);
        let (sum, count) = self.balance;
        report.link_jain = if count == 0 { 1.0 } else { sum / f64::from(count) };
        report.worst_queue = self.mesh.links.iter().map(|link| link.worst).max().unwrap_or(0);
        report.worst_output_queue =
            self.outputs.iter().map(|output| output.worst).max().unwrap_or(0);
        let work = |work: &Work| (work.input + work.transit + work.output) as f64 / slots;
        report.worst_node = self.work.iter().map(work).fold(0.0, f64::max);
        report.transit = self.work.iter().map(|work| work.transit as f64 / slots).collect();
        report.reordered_sequences = share(self.totals.sequences, self.totals.packets);
        report.reordered_rfc4737 = share(self.totals.reordered, self.totals.packets);
        report.extent_3 = share(self.totals.extent_3, self.totals.packets);
        report.extent = self.totals.extent;
        report.latency = Latency::of(&self.histogram);
        self.fairness(&mut report, rates);
        report
    }

    /// Shares of the output that most was offered to, against those that are max-min fair.
    fn fairness(&self, report: &mut Report, rates: &[f64]) {
        let slots = f64::from(self.config.slots.max(1));
        let of_pair = |from: usize, to: usize| {
            let pair = from * self.nodes + to;
            (f64::from(self.offered[pair]), f64::from(self.out[pair]))
        };
        let offered = |to: usize| {
            let sum: f64 = (0..self.nodes).map(|from| of_pair(from, to).0).sum();
            sum / rates[to]
        };
        let totals: Vec<f64> = (0..self.nodes).map(offered).collect();
        let most = (0..self.nodes).max_by(|&one, &other| totals[one].total_cmp(&totals[other]));
        let to = most.unwrap_or(0);
        let capacity = rates[to] * slots;
        let (offers, outs): (Vec<f64>, Vec<f64>) =
            (0..self.nodes).map(|from| of_pair(from, to)).unzip();
        let fair = fairness::max_min(&offers, capacity);
        let sending = || (0..self.nodes).filter(|&from| offers[from] > 0.0);
        let ratios: Vec<f64> = sending().map(|from| outs[from] / offers[from]).collect();
        report.jain = fairness::jain(&ratios);
        let error = |from: usize| (outs[from] - fair[from]).abs() / fair[from];
        report.max_min_error = sending().map(error).fold(0.0, f64::max);
        report.shares = outs.iter().map(|out| out / capacity).collect();
    }
}

impl Drops {
    /// Drops for want of room.
    pub fn full(&self) -> u64 {
        self.link_local + self.link_transit + self.output
    }
}
