//! What such a router would open, and what it did: sums over its workers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use fingerpost_packet::graph::NodeCounters;
use fingerpost_packet::language::Report;
use fingerpost_packet::{DropReason, Plan, WorkerCounters};
use serde::Serialize;

use super::Planned;
use super::workers::Workers;

/// What such a router did.
#[derive(Debug, Serialize)]
pub(crate) struct ClickReport {
    #[serde(skip)]
    pub(crate) crashed: bool,
    pub(crate) packets_in: u64,
    pub(crate) packets_out: u64,
    pub(crate) dropped: BTreeMap<&'static str, u64>,
    pub(crate) originated: u64,
    pub(crate) originated_sent: u64,
    pub(crate) originated_dropped: BTreeMap<&'static str, u64>,
    pub(crate) elements: Vec<Element>,
    pub(crate) workers: Vec<Share>,
    pub(crate) seconds: f64,
}

/// What one element saw.
#[derive(Debug, Serialize)]
pub(crate) struct Element {
    pub(crate) name: String,
    pub(crate) class: &'static str,
    pub(crate) packets: u64,
    pub(crate) batches: u64,
    pub(crate) dropped: u64,
    /// Packets dropped, by reason.
    pub(crate) reasons: BTreeMap<&'static str, u64>,
}

/// What one worker did of it.
#[derive(Debug, Serialize)]
pub(crate) struct Share {
    pub(crate) packets_in: u64,
    pub(crate) packets_out: u64,
    pub(crate) dropped: u64,
    pub(crate) originated: u64,
}

impl ClickReport {
    pub(super) fn new(plan: &Plan, workers: &Workers, crashed: bool, started: Instant) -> Self {
        let named = |counts: &mut dyn Iterator<Item = (DropReason, u64)>| {
            counts.map(|(why, count)| (why.name(), count)).collect()
        };
        let share = |counters: &Arc<WorkerCounters>| Share {
            packets_in: counters.packets_in.read(),
            packets_out: counters.packets_out.read(),
            dropped: counters.dropped_total(),
            originated: counters.generated.read(),
        };
        Self {
            crashed,
            packets_in: workers.sum(|counters| &counters.packets_in),
            packets_out: workers.sum(|counters| &counters.packets_out),
            dropped: named(&mut workers.dropped(|counters| &counters.dropped)),
            originated: workers.sum(|counters| &counters.generated),
            originated_sent: workers.sum(|counters| &counters.generated_sent),
            originated_dropped: named(&mut workers.dropped(|counters| &counters.generated_dropped)),
            elements: elements(plan, &workers.nodes()).collect(),
            workers: workers.counters().map(share).collect(),
            seconds: started.elapsed().as_secs_f64(),
        }
    }
}

/// What the elements counted, in all workers.
fn elements(plan: &Plan, workers: &[Arc<[NodeCounters]>]) -> impl Iterator<Item = Element> {
    plan.nodes().iter().enumerate().map(move |(at, node)| {
        let sum = |count: &dyn Fn(&NodeCounters) -> u64| {
            workers.iter().filter_map(|worker| worker.get(at)).map(count).sum()
        };
        let reasons = DropReason::ALL.iter().map(|&why| (why.name(), sum(&|n| n.dropped(why))));
        Element {
            name: node.name.to_string(),
            class: node.class.spec.name,
            packets: sum(&|node| node.packets.read()),
            batches: sum(&|node| node.batches.read()),
            dropped: sum(&NodeCounters::drops),
            reasons: reasons.filter(|(_, count)| *count > 0).collect(),
        }
    })
}

/// What each element counted, a line each: its name and class, packets, batches, drops, and these by reason.
pub(super) fn stats(plan: &Plan, workers: &[Arc<[NodeCounters]>]) -> String {
    let mut text = String::new();
    for Element { name, class, packets, batches, dropped, reasons } in elements(plan, workers) {
        text += &format!("{name}\t{class}\t{packets}\t{batches}\t{dropped}");
        for (why, count) in reasons {
            text += &format!("\t{why} {count}");
        }
        text.push('\n');
    }
    text
}

/// What the file would open.
#[derive(Debug, Serialize)]
pub(crate) struct ClickPlan {
    pub(crate) elements: usize,
    pub(crate) devices: Vec<String>,
    pub(crate) control_sockets: usize,
}

impl Planned {
    /// What may not be meant as it is written, a line each.
    pub(crate) fn warnings(&self) -> impl Iterator<Item = String> {
        let line = |report: &Report| format!("{}: warning: {}", report.place, report.message);
        self.plan.warnings().iter().map(line)
    }

    /// What it would open.
    pub(crate) fn outline(&self) -> ClickPlan {
        ClickPlan {
            elements: self.plan.nodes().len(),
            devices: self.plan.devices().iter().map(|device| device.name.clone()).collect(),
            control_sockets: self.plan.control_sockets().count(),
        }
    }
}
