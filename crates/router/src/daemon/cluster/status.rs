//! `cluster status`: what a node knows of itself, its links and the other members.

use std::time::{Duration, Instant};

use fingerpost_cluster::fabric::Links;
use fingerpost_cluster::probe::{Counts, LinkState, Session, Table};
use fingerpost_cluster::rule::{MAX_NODES, NodeId, NodeState};
use fingerpost_cluster::store::member::Record;
use fingerpost_io::xdp::fabric::FabricEnd;
use fingerpost_io::xdp::forward::reasons::LeftAlone;
use fingerpost_packet::frame::DropReason;
use fingerpost_packet::frame::counters::Count;
use fingerpost_packet::graph::worker::clock_start;

use super::Node;
use crate::api::cluster::{
    ClusterDrops, ClusterMember, ClusterPackets, ClusterProbes, ClusterStatus, ClusterStore,
    MemberLink,
};
use crate::daemon::workers::WorkerHandle;

/// Time over which the load of links is measured.
const SAMPLE: Duration = Duration::from_secs(1);

/// Bytes of all links at a moment, and their load until then.
pub(super) struct Loads {
    at: Instant,
    bytes: Vec<u64>,
    load_bps: Vec<u64>,
}

impl Loads {
    /// No load, from now on.
    pub(super) fn new() -> Self {
        Self { at: Instant::now(), bytes: vec![0; MAX_NODES], load_bps: vec![0; MAX_NODES] }
    }

    /// Measures the load since the last sample, if that is long enough ago.
    pub(super) fn sample(&mut self, links: &Links, nodes: impl Iterator<Item = NodeId>) {
        let time = self.at.elapsed();
        if time < SAMPLE {
            return;
        }
        self.at += time;
        for node in nodes {
            let (at, now) = (usize::from(node), links.counts(node).bytes);
            let sent = now.wrapping_sub(std::mem::replace(&mut self.bytes[at], now));
            self.load_bps[at] = per_second(sent * 8, time);
        }
    }
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "a rate for people"
)]
fn per_second(count: u64, time: Duration) -> u64 {
    (count as f64 / time.as_secs_f64()) as u64
}

/// A part of a whole, 0 of nothing.
#[allow(clippy::cast_precision_loss, reason = "a share for people")]
fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// Session of a link, copied: the thread of the probes waits for whoever reads its table.
struct Seen {
    /// Interface.
    at: usize,
    peer: NodeId,
    state: LinkState,
    counts: Counts,
}

fn sessions(table: &mut Table) -> Vec<Seen> {
    let seen = |(at, session): (usize, &Session)| Seen {
        at,
        peer: session.peer(),
        state: session.state().clone(),
        counts: session.counts(),
    };
    table.sessions().map(seen).collect()
}

impl Node {
    /// State of the cluster as this node has it. `left` are packets that the programs of external interfaces left or dropped.
    pub(in crate::daemon) fn status(
        &self,
        workers: &[WorkerHandle],
        left: &[(LeftAlone, u64)],
    ) -> ClusterStatus {
        let seen = self.probes.as_ref().map_or_else(Vec::new, |probes| probes.look(sessions));
        let (names, mut reader) = (self.ports.names(), self.fabric.reader());
        let states = reader.pin();
        let member = |record: &Record| {
            let link = |node| {
                let (interface, rate_bps) = self.ports.link(node).unwrap_or_default();
                let at = names.iter().position(|name| *name == interface);
                let seen = seen.iter().find(|seen| seen.peer == node && Some(seen.at) == at);
                self.link(node, (interface, rate_bps), seen)
            };
            self.member(record, states.node(record.number), link)
        };
        let members = self.membership.members.iter().map(member).collect();
        let paths = self.fabric.paths();
        ClusterStatus {
            node: self.config.node.clone(),
            number: self.fabric.settings.node,
            cluster: self.config.id,
            mode: paths.mode.name().to_owned(),
            rule: paths.rule.rule.name().to_owned(),
            flowlet_ms: paths.flowlet_ns / 1_000_000,
            state: if self.drain.is_on() { "draining" } else { "active" }.to_owned(),
            interface: self.config.interface.clone(),
            detection_ms: f64::from(self.config.probe_ms)
                * (f64::from(self.config.probe_multiplier) + 0.5),
            store: self.store.as_ref().map(|store| {
                let (view, config) = (store.joined.view(), &self.config);
                ClusterStore {
                    kind: config.store.clone(),
                    endpoints: config.endpoints.clone(),
                    state: if view.lost.is_some() { "lost" } else { "in_sync" }.to_owned(),
                    lost_for_s: view.lost.map(|since| since.elapsed().as_secs()),
                    error: view.error,
                    announced: store.own.record().neighbors.len(),
                }
            }),
            parameters: self.parameter_state(),
            probes: self.probes.as_ref().map_or_else(ClusterProbes::default, |probes| {
                let counts = probes.counts();
                ClusterProbes {
                    most_late_ms: microseconds(counts.most_late_ns) / 1e3,
                    late_intervals: counts.late_intervals,
                    unsent: counts.unsent,
                    refused: counts.malformed + counts.other_cluster,
                    scheduling: counts.scheduling,
                }
            }),
            conflicts: self.membership.conflicts.iter().map(ToString::to_string).collect(),
            members,
            packets: self.packets(),
            drops: self.drops(workers, left),
            left_xdp: self.left_xdp(),
        }
    }

    fn member(
        &self,
        record: &Record,
        state: NodeState,
        link: impl FnOnce(NodeId) -> MemberLink,
    ) -> ClusterMember {
        let (node, own) = (record.number, self.fabric.settings.node);
        let state = match state {
            _ if node == own && self.drain.is_on() => "draining",
            _ if node == own => "active",
            NodeState::Active => "active",
            NodeState::Draining => "draining",
            NodeState::Down => "down",
        };
        let v4 = record.loopback.map(|addr| addr.to_string());
        let v6 = record.loopback6.map(|addr| addr.to_string());
        ClusterMember {
            id: record.id.clone(),
            number: node,
            state: state.to_owned(),
            weight: record.weight,
            loopbacks: v4.into_iter().chain(v6).collect(),
            epoch: self.fabric.epoch(node),
            parameters: self.store.as_ref().map(|store| match node == own {
                true => store.parameters.parameters.version,
                false => record.parameters,
            }),
            link: (node != own).then(|| link(node)),
        }
    }

    fn link(
        &self,
        node: NodeId,
        (interface, rate_bps): (String, Option<u64>),
        seen: Option<&Seen>,
    ) -> MemberLink {
        let counts = self.fabric.links.counts(node);
        let load_bps = self.loads.load_bps[usize::from(node)];
        let now = u64::try_from(clock_start().elapsed().as_nanos()).unwrap_or(u64::MAX);
        let backlog = self.fabric.links.backlog_ns(node, self.fabric.link_time(now));
        let why = seen.and_then(|seen| match &seen.state {
            LinkState::Up => None,
            LinkState::Down(reason) => Some(reason.to_string()),
        });
        MemberLink {
            interface,
            up: seen.is_some_and(|seen| seen.state == LinkState::Up),
            why,
            rate_bps,
            load_bps,
            load: rate_bps.map(|rate| share(load_bps, rate)),
            backlog_us: microseconds(backlog),
            bytes: counts.bytes,
            transit_dropped: counts.transit_dropped,
            local_dropped: counts.local_dropped,
            probes: seen.map_or(0, |seen| seen.counts.received),
            downs: seen.map_or(0, |seen| seen.counts.downs),
        }
    }

    fn packets(&self) -> ClusterPackets {
        let counts = &self.fabric.counts;
        let program = |end| self.frames(end);
        let direct = counts.sum(|count| count.direct.read()) + self.ports.programs().entered();
        let balanced = counts.sum(|count| count.balanced.read());
        let transit = counts.sum(|count| count.transit.read()) + program(FabricEnd::Transit);
        let rechosen = counts.sum(|count| count.rechosen.read());
        let sprayed = counts.sum(|count| count.sprayed.read());
        ClusterPackets {
            direct,
            balanced,
            transit,
            output: counts.sum(|count| count.output.read()) + program(FabricEnd::Output),
            looked_up: counts.sum(|count| count.looked_up.read()),
            host: counts.sum(|count| count.host.read()),
            flowlets: counts.sum(|count| count.flowlets.read()),
            rechosen,
            sprayed,
            path_change_share: share(rechosen + sprayed, direct + balanced),
            transit_share: share(transit, direct + balanced + transit),
        }
    }

    /// Frames that ended so in XDP.
    fn frames(&self, end: FabricEnd) -> u64 {
        let counts = self.ports.programs().counts();
        counts.into_iter().find(|(known, _)| *known == end).map_or(0, |(_, count)| count)
    }

    fn drops(&self, workers: &[WorkerHandle], left: &[(LeftAlone, u64)]) -> Vec<ClusterDrops> {
        // In the graph, and by the programs of external interfaces.
        let outside = |name: &str| -> u64 {
            let reason = DropReason::ALL.iter().find(|reason| reason.name() == name);
            let Some(&reason) = reason else { return 0 };
            let graph = workers.iter().map(|worker| &worker.counters.dropped[reason as usize]);
            let programs = left.iter().filter(|(why, _)| why.drop_reason() == Some(reason));
            graph.map(Count::read).chain(programs.map(|(_, count)| *count)).sum()
        };
        let graph_alone = DropReason::FabricInternal.name();
        let in_xdp = self.ports.programs().counts().into_iter();
        let in_xdp = in_xdp.filter(|(end, _)| *end >= FabricEnd::External);
        let all = in_xdp.map(|(end, count)| (end.name(), count)).chain([(graph_alone, 0)]);
        all.map(|(name, count)| (name, count + outside(name)))
            .filter(|(_, count)| *count > 0)
            .map(|(name, packets)| ClusterDrops { reason: name.to_owned(), packets })
            .collect()
    }

    fn left_xdp(&self) -> Vec<ClusterDrops> {
        let left = self.ports.programs().counts().into_iter();
        left.filter(|(end, _)| (FabricEnd::NoTable..FabricEnd::External).contains(end))
            .filter(|(_, count)| *count > 0)
            .map(|(end, packets)| ClusterDrops { reason: end.name().to_owned(), packets })
            .collect()
    }
}

#[allow(clippy::cast_precision_loss, reason = "a time for people")]
pub(super) fn microseconds(ns: u64) -> f64 {
    ns as f64 / 1e3
}
