//! What is counted during a run, and the report of it.

use super::links::{Link, Links, SLOT};
use super::outputs::Outputs;
use super::queue::Packet;
use super::reorder::{Order, Totals};
use super::report::{Latency, Processed, Report, Served, WINDOW};
use super::{Config, fairness};
use crate::flowlet::Outcome;
use crate::rule::NodeId;

/// Longest time through the cluster that the histogram resolves, in slots.
const LONGEST: usize = 1 << 16;

/// Why a packet was dropped.
#[derive(Clone, Copy)]
pub(super) enum Loss {
    LinkLocal,
    LinkTransit,
    Output,
    Unreachable,
    Failed,
}

/// Packets that a node processed.
#[derive(Clone, Copy, Default)]
struct Work {
    input: u64,
    transit: u64,
    output: u64,
}

/// Next number of each flow, and the order of its arrivals.
#[derive(Default)]
struct Flows {
    numbers: Vec<u32>,
    orders: Vec<Order>,
    totals: Totals,
}

/// Packets of each pair of port nodes, and what would wait at an output that all packets reached at once.
struct Pairs {
    offered: Vec<u32>,
    out: Vec<u32>,
    dropped_to: Vec<u64>,
    /// Time that a packet takes at each output, when the last one would have left, and the longest time ahead.
    ideal: Vec<(u64, u64, u64)>,
}

/// Paths of the packets that were delivered.
struct Paths {
    histogram: Vec<u64>,
    links: u64,
    through_links: u64,
}

/// All counts of a run.
pub(super) struct Tally {
    /// Port nodes.
    nodes: usize,
    /// Rate of a link in the unit of loads.
    link_rate: f64,
    slots: u32,
    flows: Flows,
    pairs: Pairs,
    paths: Paths,
    work: Vec<Work>,
    /// Sum and number of the indexes of balance.
    balance: (f64, u32),
    report: Report,
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "counts and shares of a run that is bounded by its slots"
)]
impl Tally {
    /// Counts of a run over `all` nodes, the first of which have ports of these rates, in R.
    pub(super) fn new(config: &Config, rates: &[f64], all: usize) -> Self {
        let nodes = rates.len();
        let pairs = nodes * nodes;
        Self {
            nodes,
            link_rate: config.link_rate,
            slots: config.slots,
            flows: Flows::default(),
            pairs: Pairs {
                offered: vec![0; pairs],
                out: vec![0; pairs],
                dropped_to: vec![0; nodes],
                ideal: rates.iter().map(|rate| ((SLOT as f64 / rate) as u64, 0, 0)).collect(),
            },
            paths: Paths { histogram: vec![0; LONGEST], links: 0, through_links: 0 },
            work: vec![Work::default(); all],
            balance: (0.0, 0),
            report: Report::default(),
        }
    }

    /// Counts a packet of an input; returns its number in the flow.
    #[inline]
    pub(super) fn input(&mut self, from: usize, to: NodeId, flow: u32, slot: u32) -> u32 {
        self.report.packets += 1;
        self.work[from].input += 1;
        self.pairs.offered[from * self.nodes + usize::from(to)] += 1;
        let now = u64::from(slot) * SLOT;
        let (period, until, worst) = &mut self.pairs.ideal[usize::from(to)];
        *until = (*until).max(now) + *period;
        *worst = (*worst).max(*until - now);
        let Flows { numbers, orders, .. } = &mut self.flows;
        let flow = flow as usize;
        if numbers.len() <= flow {
            numbers.resize(flow + 1, 0);
            orders.resize(flow + 1, Order::default());
        }
        numbers[flow] += 1;
        numbers[flow] - 1
    }

    /// Counts a packet that an input did not take, because its output drains.
    pub(super) fn withdraw(&mut self) {
        self.report.withdrawn += 1;
    }

    /// Counts what the table of flowlets did.
    #[inline]
    pub(super) fn flowlet(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Local | Outcome::Kept => {}
            Outcome::Began => self.report.flowlets += 1,
            Outcome::Lost => self.report.flowlets_lost += 1,
            Outcome::Sprayed => self.report.sprayed += 1,
        }
    }

    /// Counts a packet in transit at a node.
    #[inline]
    pub(super) fn transit(&mut self, at: usize) {
        self.work[at].transit += 1;
    }

    /// Counts a dropped packet.
    pub(super) fn lose(&mut self, to: NodeId, loss: Loss) {
        self.pairs.dropped_to[usize::from(to)] += 1;
        let drops = &mut self.report.drops;
        *match loss {
            Loss::LinkLocal => &mut drops.link_local,
            Loss::LinkTransit => &mut drops.link_transit,
            Loss::Output => &mut drops.output,
            Loss::Unreachable => &mut drops.unreachable,
            Loss::Failed => &mut drops.failed,
        } += 1;
    }

    /// Counts a packet that a failure took after its input saw it.
    pub(super) fn late(&mut self) {
        self.report.failed_after_detection += 1;
    }

    /// Counts a packet that left by its output.
    #[inline]
    pub(super) fn deliver(&mut self, packet: Packet, slot: u32) {
        let at = usize::from(packet.to);
        self.work[at].output += 1;
        self.report.out += 1;
        self.paths.links += u64::from(packet.hops);
        self.paths.through_links += u64::from(packet.hops > 0);
        self.paths.histogram[((slot - packet.born) as usize).min(LONGEST - 1)] += 1;
        self.pairs.out[usize::from(packet.from) * self.nodes + at] += 1;
        let Flows { orders, totals, .. } = &mut self.flows;
        orders[packet.flow as usize].arrive(packet.number, totals);
    }

    /// Ends a slot, and with it perhaps a window in which the balance of the links is measured.
    #[inline]
    pub(super) fn slot(&mut self, slot: u32, links: &mut Links) {
        if (slot + 1).is_multiple_of(WINDOW) {
            self.window(WINDOW, links);
        }
    }

    fn window(&mut self, slots: u32, links: &mut Links) {
        let (sum, count) = &mut self.balance;
        let worst = links.window(f64::from(slots), |jain| {
            *sum += jain;
            *count += 1;
        });
        self.report.worst_window = self.report.worst_window.max(worst * self.link_rate);
    }

    /// The report, with `held` packets still in queues.
    pub(super) fn report(
        mut self,
        rates: &[f64],
        links: &mut Links,
        outputs: &Outputs,
        held: usize,
    ) -> Report {
        // A run that is shorter than a window is one.
        if self.slots < WINDOW {
            self.window(self.slots.max(1), links);
        }
        let slots = f64::from(self.slots.max(1));
        let share = |part: u64, of: u64| part as f64 / of.max(1) as f64;
        let mut report = std::mem::take(&mut self.report);
        report.held = held as u64;
        let decided = report.out + report.drops.sum();
        report.delivered = if decided == 0 { 1.0 } else { share(report.out, decided) };
        report.hops = share(self.paths.links, self.paths.through_links);
        let load = |link: &Link| {
            f64::from(link.offered) * f64::from(link.period) * self.link_rate / SLOT as f64 / slots
        };
        report.links = links.all.iter().map(load).collect();
        report.worst_link = report.links.iter().copied().fold(0.0, f64::max);
        // The last slots may be no whole window.
        report.worst_window = report.worst_window.max(report.worst_link);
        let (sum, count) = self.balance;
        report.link_jain = if count == 0 { 1.0 } else { sum / f64::from(count) };
        report.queues = links.all.iter().map(|link| link.worst).collect();
        report.worst_queue = report.queues.iter().copied().max().unwrap_or(0);
        report.worst_output_queue = outputs.worst();
        let ideal = |&(period, _, worst): &(u64, u64, u64)| worst.div_ceil(period) as u32;
        report.worst_ideal_queue = self.pairs.ideal.iter().map(ideal).max().unwrap_or(0);
        let processed = |work: &Work| Processed {
            input: work.input as f64 / slots,
            transit: work.transit as f64 / slots,
            output: work.output as f64 / slots,
        };
        report.nodes = self.work.iter().map(processed).collect();
        report.worst_node = report.nodes.iter().map(Processed::sum).fold(0.0, f64::max);
        let totals = self.flows.totals;
        report.reordered_sequences = share(totals.sequences, totals.packets);
        report.reordered_rfc4737 = share(totals.reordered, totals.packets);
        report.extent_3 = share(totals.extent_3, totals.packets);
        report.extent = totals.extent;
        report.latency = Latency::of(&self.paths.histogram);
        let latencies = &mut self.paths.histogram;
        latencies.truncate(latencies.iter().rposition(|&count| count > 0).map_or(0, |at| at + 1));
        report.latencies = std::mem::take(latencies);
        report.outputs = (0..self.nodes).map(|to| self.served(to)).collect();
        self.fairness(&mut report, rates);
        report
    }

    /// Packets of an output.
    fn served(&self, to: usize) -> Served {
        let sum = |counts: &[u32]| {
            (0..self.nodes).map(|from| u64::from(counts[from * self.nodes + to])).sum()
        };
        Served {
            offered: sum(&self.pairs.offered),
            out: sum(&self.pairs.out),
            dropped: self.pairs.dropped_to[to],
        }
    }

    /// Shares of the output that most was offered to, against those that are max-min fair.
    fn fairness(&self, report: &mut Report, rates: &[f64]) {
        let slots = f64::from(self.slots.max(1));
        let of_pair = |from: usize, to: usize| {
            let pair = from * self.nodes + to;
            (f64::from(self.pairs.offered[pair]), f64::from(self.pairs.out[pair]))
        };
        let totals: Vec<f64> =
            report.outputs.iter().zip(rates).map(|(at, rate)| at.offered as f64 / rate).collect();
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
