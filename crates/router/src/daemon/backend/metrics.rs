//! Counters for metrics: those of workers as they are shared, those of the control side in sum.

use std::collections::{BTreeMap, HashMap};

use fingerpost_packet::DropReason;
use fingerpost_packet::feature::sampling::{Sampled, Sampling};
use fingerpost_route::Durations;

use super::View;
use super::hops::is_group;
use super::neighbors::{permanent, state};
use crate::api::metrics::{Counts, InterfaceCounts};
use crate::daemon::ports::numbers::Counted;

impl View<'_> {
    /// Counters that no document of the API has.
    pub(super) fn counts(&self) -> Counts {
        let left = self.interfaces.left_xdp();
        let dropped = left.iter().filter_map(|(why, n)| Some((why.drop_reason()?.name(), *n)));
        let held_back = [(DropReason::NoWorker.name(), self.interfaces.held_back())];
        let dropped = dropped.chain(self.interfaces.dropped_fabric()).chain(held_back);
        let passed = left.iter().filter(|(why, _)| why.drop_reason().is_none());
        let mut builds = [("4", Durations::default()), ("6", Durations::default())];
        for table in self.control.tables() {
            let (fib_v4, fib_v6) = self.control.fibs(table).expect("tables stay");
            builds[0].1.add_all(&fib_v4.counts().build_times);
            builds[1].1.add_all(&fib_v6.counts().build_times);
        }
        let forwarder = self.interfaces.forwarder();
        let turns = &self.progress.turns;
        Counts {
            workers: self
                .workers
                .iter()
                .map(|worker| (worker.counters.clone(), worker.nodes.clone(), worker.pool.clone()))
                .collect(),
            elements: self
                .graph
                .plan()
                .nodes()
                .iter()
                .map(|node| (node.name.to_string(), node.class.spec.name))
                .collect(),
            interfaces: self.interface_counts(),
            forwarded_xdp: self.interfaces.forwarded_packets(),
            dropped_xdp: dropped.collect(),
            left_xdp: passed.map(|(why, n)| (why.name(), *n)).collect(),
            xdp_memory: forwarder.map(|f| (f.reserved_bytes() as u64, f.cap_bytes() as u64)),
            generation: self.progress.generation(),
            next_hops: self.hop_counts(),
            shortened: self.control.next_hops().counts().shortened,
            adjacencies: self.adjacency_counts(),
            neighbors: self.neighbor_counts(),
            turns: [turns.cpu, turns.wall],
            visible: self.sources.visible,
            builds,
            sampled: self.sampled(),
            reported: self.reported(),
        }
    }

    fn sampled(&self) -> Vec<(String, [u64; 3])> {
        self.graph.features.note_sampled();
        let sampling = self.graph.features.states().of::<Sampling>();
        let interfaces = sampling.iter().flat_map(|sampling| sampling.interfaces());
        let counts = |Sampled { packets, samples, lost }| [packets, samples, lost];
        interfaces.map(|(name, _, sampled)| (name.to_owned(), counts(sampled))).collect()
    }

    fn reported(&self) -> Vec<(String, &'static str, [u64; 3])> {
        let sent = self.graph.reports.sent().map(|(collector, sent)| {
            let counts = [sent.datagrams, sent.failed, sent.lost];
            (collector.address.to_string(), collector.protocol.name(), counts)
        });
        sent.collect()
    }

    fn interface_counts(&self) -> Vec<InterfaceCounts> {
        let received = self.interfaces.received_xdp();
        let report = self.interfaces.report();
        let held_back: HashMap<u16, u64> =
            report.iter().map(|row| (row.port, row.held_back)).collect();
        let links = self.control.links();
        let counts = links.map(|(_, port, state)| {
            let Counted { received, sent, .. } =
                self.interfaces.counted(port, self.workers, &received);
            InterfaceCounts {
                name: state.name.clone(),
                port,
                before: self.interfaces.counted_before(port).graph,
                rx_xdp: [received.packets, received.bytes],
                tx_xdp: [sent.packets, sent.bytes],
                left: received.left,
                dropped_xdp: received
                    .dropped()
                    .filter_map(|(why, count)| Some((why.drop_reason()?.name(), count)))
                    .chain([(
                        DropReason::NoWorker.name(),
                        held_back.get(&port).copied().unwrap_or(0),
                    )])
                    .collect(),
                device: self.device_counts(port),
                held_back: held_back.get(&port).copied().unwrap_or(0),
            }
        });
        counts.collect()
    }

    /// Next hops without groups, and groups.
    fn hop_counts(&self) -> [u64; 2] {
        let view = self.control.hop_view();
        let mut counts = [0; 2];
        for (key, slots) in view.hops.keys() {
            counts[usize::from(is_group(key, slots, view))] += 1;
        }
        counts
    }

    fn adjacency_counts(&self) -> [(&'static str, u64); 3] {
        let hops = self.control.next_hops();
        let mut counts = [("resolved", 0), ("unresolved", 0), ("failed", 0)];
        for (index, _) in hops.adjacencies() {
            let now = hops.table().adjacency(index);
            let at = if now.resolved() { 0 } else { 1 + usize::from(now.failed()) };
            counts[at].1 += 1;
        }
        counts
    }

    fn neighbor_counts(&self) -> Vec<(&'static str, u64)> {
        let up: HashMap<u32, bool> =
            self.control.links().map(|(link, _, state)| (link, state.up)).collect();
        let is_up = |link: u32| up.get(&link).copied().unwrap_or(false);
        let states =
            [permanent(true), permanent(false), "reachable", "stale", "incomplete", "failed"];
        let mut counts: BTreeMap<&'static str, u64> = states.map(|state| (state, 0)).into();
        for row in self.control.neighbors().filter(|row| !row.addr.is_multicast()) {
            *counts.entry(state(row.state, || is_up(row.link))).or_default() += 1;
        }
        counts.into_iter().collect()
    }
}
