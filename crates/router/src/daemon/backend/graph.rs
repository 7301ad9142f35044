//! `graph stats` and `graph swap`: the elements of the workers, counted, timed and replaced.

use std::collections::BTreeMap;

use fingerpost_lpm::simd::Ticks;
use fingerpost_packet::router_graph::plan_of;
use fingerpost_packet::{DropReason, OpenPolicy, Plan};

use super::View;
use crate::api::error::{ApiError, Code, Detail};
use crate::api::graph::{DriverStats, ElementStats, ElementTimes, GraphEdge, GraphStats};
use crate::api::model::ConfigText;
use crate::click;
use crate::daemon::workers::WorkerHandle;

impl View<'_> {
    /// What elements counted, with what they took since `before`.
    pub(super) fn counters(&self, before: Option<&ElementTimes>) -> GraphStats {
        let before = before.filter(|_| Ticks::detect().is_some());
        let mut elements = Vec::new();
        for (number, worker) in self.workers.iter().enumerate() {
            let first = before.and_then(|before| before.workers.get(number)).map(Vec::as_slice);
            elements.extend(self.element_stats(number, worker, first));
            elements.push(at_ports(number, worker));
        }
        let left = self.interfaces.left_xdp();
        let counted = |wanted: bool| {
            let those =
                left.iter().filter(move |(why, n)| *n > 0 && why.drop_reason().is_some() == wanted);
            those.map(|(why, n)| (why.drop_reason().map_or(why.name(), DropReason::name), *n))
        };
        let mut dropped = BTreeMap::new();
        let held_back = [(DropReason::NoWorker.name(), self.interfaces.held_back())];
        let all = counted(true)
            .chain(self.interfaces.dropped_fabric())
            .chain(held_back.into_iter().filter(|(_, n)| *n > 0));
        all.for_each(|(name, n)| *dropped.entry(name.to_owned()).or_default() += n);
        GraphStats {
            elements,
            timed: before.map(|before| before.at.elapsed().as_secs_f64()),
            drivers: DriverStats {
                interfaces: self.in_driver(),
                forwarded: self.interfaces.forwarded_packets(),
                dropped,
                left: counted(false).map(|(name, n)| (name.to_owned(), n)).collect(),
            },
            edges: self.edges(),
        }
    }

    /// Edges between the elements: of each one its push outputs, then its pull inputs.
    fn edges(&self) -> Vec<GraphEdge> {
        let nodes = self.graph.plan().nodes();
        let edge = |from: usize, output: usize, to: usize, back, pulls| GraphEdge {
            from: nodes[from].name.to_string(),
            output,
            output_name: nodes[from].class.spec.output_names.get(output).map(|name| (*name).into()),
            to: nodes[to].name.to_string(),
            back,
            pulls,
        };
        let mut edges = Vec::new();
        for (at, node) in nodes.iter().enumerate() {
            for (output, to) in node.outputs.iter().enumerate() {
                let edge = to.map(|to| edge(at, output, usize::from(to.node), to.back, false));
                edges.extend(edge);
            }
            for from in node.inputs.iter().flatten() {
                edges.push(edge(usize::from(from.node), usize::from(from.output), at, false, true));
            }
        }
        edges
    }

    /// Interfaces whose drivers forward.
    pub(super) fn in_driver(&self) -> Vec<String> {
        let report = self.interfaces.report().into_iter();
        report.filter(|row| row.path == "xdp").map(|row| row.name).collect()
    }

    #[allow(clippy::cast_precision_loss, reason = "averages for people")]
    fn element_stats(
        &self,
        number: usize,
        worker: &WorkerHandle,
        before: Option<&[(u64, u64)]>,
    ) -> Vec<ElementStats> {
        let ratio = |sum: u64, of: u64| (of > 0).then(|| sum as f64 / of as f64);
        let rows = self.graph.plan().nodes().iter().zip(worker.nodes.iter()).enumerate();
        rows.map(|(at, (node, counts))| {
            let (packets, batches) = (counts.packets.read(), counts.batches.read());
            // Another graph may have taken the place of the one that was looked at first.
            let spent = before.and_then(|before| before.get(at)).map(|(packets_before, ticks)| {
                let ticks = counts.ticks.read().saturating_sub(*ticks);
                (ticks, packets.saturating_sub(*packets_before))
            });
            let reasons = DropReason::ALL.iter().map(|&why| (why, counts.dropped(why)));
            ElementStats {
                name: node.name.to_string(),
                class: node.class.spec.name.to_owned(),
                worker: number,
                packets,
                batches,
                average_batch: ratio(packets, batches),
                cycles: spent.and_then(|(ticks, packets)| ratio(ticks, packets)),
                ticks: spent.map(|(ticks, _)| ticks),
                dropped: counts.drops(),
                reasons: named(reasons),
            }
        })
        .collect()
    }

    /// Plan of another graph that can take the place of the running one.
    pub(super) fn plan_swap(&self, text: &ConfigText) -> Result<Plan, ApiError> {
        let refuse = |words: String| ApiError::at(Code::Refused, "graph", words);
        let wrong = |errors: fingerpost_packet::language::Errors| {
            let detail = |report: &fingerpost_packet::language::Report| Detail {
                message: report.message.clone(),
                place: Some(report.place.to_string()),
            };
            let errors: Vec<Detail> = errors.reports.iter().map(detail).collect();
            let words = format!("{}: {} mistakes", text.file, errors.len());
            ApiError { errors, ..ApiError::at(Code::Refused, "graph", words) }
        };
        // Who sends it is the daemon's user, or root.
        let policy = OpenPolicy::default();
        let configuration =
            click::configuration(&text.file, &text.text, &click::Given::default(), &policy)
                .map_err(wrong)?;
        let states = self.graph.features.states();
        let plan = plan_of(Some(self.graph.plan()), &configuration, states).map_err(wrong)?;
        if let Some(device) = plan.devices().iter().find(|device| device.used) {
            let words = "its packets come by FromPorts and leave by ToPorts";
            return Err(refuse(format!(
                "it opens `{}`, and a graph of the daemon opens nothing: {words}",
                device.name
            )));
        }
        if plan.control_sockets().next().is_some() {
            return Err(refuse("a graph of the daemon has no control socket of its own".into()));
        }
        if plan.entry(0).is_none() {
            return Err(refuse("it has no FromPorts, so that no packet would enter it".into()));
        }
        // Elements that keep packets could keep all frames there are.
        let most = self.graph.most_holds();
        if plan.holds() > most {
            let words = format!(
                "its elements may keep {} packets, and there is room for {most}",
                plan.holds()
            );
            return Err(refuse(words));
        }
        if let [first, ..] = &self.in_driver()[..] {
            let words = format!(
                "{first} forwards in XDP, past the graph: what the graph does would hold for \
                 some packets only; start the daemon with --path afxdp"
            );
            return Err(refuse(words));
        }
        Ok(plan)
    }
}

/// Packets between the last element and a port.
#[allow(clippy::cast_precision_loss, reason = "averages for people")]
fn at_ports(number: usize, worker: &WorkerHandle) -> ElementStats {
    let counters = &worker.counters;
    let reasons = DropReason::ALL.iter().map(|&why| (why, counters.at_ports.dropped(why)));
    let reasons = named(reasons);
    let dropped = counters.at_ports.drops();
    ElementStats {
        name: "(ports)".to_owned(),
        class: String::new(),
        worker: number,
        packets: counters.packets_out.read() + counters.generated_sent.read() + dropped,
        batches: 0,
        average_batch: None,
        cycles: None,
        ticks: None,
        dropped,
        reasons,
    }
}

/// Those that there are, by name.
fn named(counts: impl Iterator<Item = (DropReason, u64)>) -> BTreeMap<String, u64> {
    counts.filter(|(_, n)| *n > 0).map(|(why, n)| (why.name().to_owned(), n)).collect()
}
