//! Documents and counters as samples, a function a subject.

use fingerpost_packet::DropReason;

use super::families::Id;
use super::samples::Samples;
use super::{Counts, GraphCounts};
use crate::api::cluster::ClusterStatus;
use crate::api::features::FeatureRow;
use crate::api::model::{Fib, Interface, Source, Status};

/// The daemon itself.
pub(super) fn daemon(to: &mut Samples, status: &Status) {
    to.info(Id::Build, &[&status.version]);
    to.number(Id::Uptime, &[], status.seconds);
    to.gauge(Id::Resident, &[], status.resident_kib * 1024);
    to.gauge(Id::ForwardingInterfaces, &[], status.interfaces as u64);
    to.gauge(Id::ConfigUnconfirmed, &[], u64::from(status.waiting.is_some()));
    to.gauge(Id::Workers, &[], status.workers as u64);
    to.gauge(Id::WorkersFailed, &[], status.workers.saturating_sub(status.workers_alive) as u64);
}

/// Interfaces.
pub(super) fn interfaces(to: &mut Samples, all: &[Interface]) {
    for Interface { name, path, up, mtu, punted, .. } in all {
        to.info(Id::Interface, &[name, path]);
        to.gauge(Id::InterfaceUp, &[name], u64::from(*up));
        to.gauge(Id::InterfaceMtu, &[name], u64::from(*mtu));
        to.count(Id::Punted, &[name], *punted);
    }
}

/// Lookup tables.
pub(super) fn fibs(to: &mut Samples, all: &[Fib]) {
    for fib in all {
        let (table, family) = (fib.table.to_string(), fib.family.to_string());
        let of = [&*table, &*family, if fib.paths { "all" } else { "best" }];
        let reader = |reader| [of[0], of[1], of[2], reader];
        to.info(Id::Fib, &[of[0], of[1], of[2], &fib.algorithm, &fib.choice]);
        to.gauge(Id::FibPrefixes, &of, fib.prefixes as u64);
        to.gauge(Id::FibRoutes, &of, fib.routes as u64);
        to.gauge(Id::FibBytes, &of, fib.bytes as u64);
        to.gauge(Id::FibRib, &of, fib.rib_bytes as u64);
        to.gauge(Id::FibPending, &of, fib.pending as u64);
        to.number(Id::FibBehind, &of, fib.behind_ms.unwrap_or_default() / 1e3);
        to.number(Id::FibDelay, &of, fib.longest_delay_ms / 1e3);
        to.count(Id::FibApplied, &of, fib.applied);
        to.count(Id::FibBuilds, &of, fib.builds);
        to.count(Id::FibFailures, &of, fib.failures);
        to.gauge(Id::FibBanned, &of, fib.banned.len() as u64);
        to.gauge(Id::FibMismatch, &reader("all"), fib.mismatch_routes as u64);
        to.gauge(Id::FibMismatch, &reader("xdp"), fib.mismatch_routes_xdp as u64);
        to.count(Id::FibAudited, &reader("all"), fib.audited);
        to.count(Id::FibAudited, &reader("xdp"), fib.audited_xdp);
        to.count(Id::FibPasses, &of, fib.audit_passes);
        if let Some(shared) = fib.shared {
            to.gauge(Id::FibXdpUsed, &of, shared.used as u64);
            to.gauge(Id::FibXdpReserved, &of, shared.reserved as u64);
        }
    }
}

/// Route sources.
pub(super) fn sources(to: &mut Samples, all: &[Source]) {
    for source in all {
        let of = [&*source.name];
        to.info(Id::Source, &[of[0], &source.kind]);
        to.gauge(Id::SourceRoutes, &of, source.routes);
        to.count(Id::SourceUpdates, &of, source.updates);
        to.count(Id::SourceErrors, &of, source.errors);
        to.count(Id::SourceRefused, &of, source.refused);
        to.count(Id::SourceTables, &of, source.tables);
        to.gauge(Id::SourceSync, &of, u64::from(source.in_sync));
        to.number(Id::SourceLag, &of, source.lag_ms / 1e3);
        let some = [
            (Id::SourceMessages, source.messages),
            (Id::SourceResyncs, source.resyncs),
            (Id::SourceDumps, source.dumps),
            (Id::SourceSessions, source.sessions),
        ];
        for (id, count) in some {
            count.into_iter().for_each(|count| to.count(id, &of, count));
        }
        source.exported.into_iter().for_each(|routes| to.gauge(Id::SourceExported, &of, routes));
    }
}

/// The node of a cluster.
pub(super) fn cluster(to: &mut Samples, status: &ClusterStatus) {
    to.info(Id::Cluster, &[&status.node, &status.mode, &status.rule]);
    to.gauge(Id::ClusterDraining, &[], u64::from(status.state == "draining"));
    to.count(Id::ClusterLate, &[], status.probes.late_intervals);
    to.gauge(Id::ClusterConflicts, &[], status.conflicts.len() as u64);
    if let Some(store) = &status.store {
        to.gauge(Id::ClusterInSync, &[], u64::from(store.state == "in_sync"));
    }
    if let Some(parameters) = &status.parameters {
        to.gauge(Id::ClusterVersion, &[], parameters.version);
        to.gauge(Id::ClusterLagging, &[], parameters.lagging.len() as u64);
    }
    for state in ["active", "draining", "down"] {
        let those = status.members.iter().filter(|member| member.state == state);
        to.gauge(Id::ClusterMembers, &[state], those.count() as u64);
    }
    for member in &status.members {
        let (Some(link), id) = (&member.link, &*member.id) else { continue };
        to.gauge(Id::LinkUp, &[id], u64::from(link.up));
        to.count(Id::LinkBytes, &[id], link.bytes);
        to.number(Id::LinkBacklog, &[id], link.backlog_us / 1e6);
        to.count(Id::LinkDropped, &[id, "transit"], link.transit_dropped);
        to.count(Id::LinkDropped, &[id, "local"], link.local_dropped);
        to.count(Id::LinkDowns, &[id], link.downs);
        link.load.into_iter().for_each(|load| to.number(Id::LinkLoad, &[id], load));
    }
    let packets = status.packets;
    let actions = [
        ("direct", packets.direct),
        ("balanced", packets.balanced),
        ("transit", packets.transit),
        ("output", packets.output),
        ("looked_up", packets.looked_up),
        ("host", packets.host),
        ("sprayed", packets.sprayed),
    ];
    actions.iter().for_each(|(action, n)| to.count(Id::ClusterPackets, &[action], *n));
    to.count(Id::ClusterFlowlets, &["begun"], packets.flowlets);
    to.count(Id::ClusterFlowlets, &["moved"], packets.rechosen);
    status.drops.iter().for_each(|row| to.count(Id::ClusterDropped, &[&row.reason], row.packets));
}

/// Rows of a feature, in sum by its name: the first text of a row.
pub(super) fn feature(to: &mut Samples, feature: &str, rows: &[FeatureRow]) {
    let text = |row: &FeatureRow, field: &str| row.get(field)?.as_str().map(str::to_owned);
    for row in rows {
        let named = ["name", "acl", "rule"].iter().find_map(|field| text(row, field));
        let Some(name) = named else { continue };
        let direction = text(row, "direction").unwrap_or_default();
        let counters = [
            ("packets", Id::FeaturePackets),
            ("bytes", Id::FeatureBytes),
            ("dropped", Id::FeatureDropped),
            ("exceeding", Id::FeatureExceeding),
        ];
        for (field, id) in counters {
            if let Some(count) = row.get(field).and_then(serde_json::Value::as_u64) {
                to.count(id, &[feature, &name, &direction], count);
            }
        }
    }
}

/// Counters of workers, XDP datapath and control side.
pub(super) fn counts(to: &mut Samples, counts: &Counts) {
    interface_counts(to, counts);
    worker_counts(to, counts);
    drops(to, counts);
    to.count(Id::XdpForwarded, &[], counts.forwarded_xdp);
    if let Some((reserved, limit)) = counts.xdp_memory {
        to.gauge(Id::XdpReserved, &[], reserved);
        to.gauge(Id::XdpLimit, &[], limit);
    }
    to.gauge(Id::FibGeneration, &[], counts.generation);
    to.gauge(Id::NextHops, &[], counts.next_hops[0]);
    to.gauge(Id::NextHopGroups, &[], counts.next_hops[1]);
    to.count(Id::NextHopsShortened, &[], counts.shortened);
    counts.adjacencies.iter().for_each(|(state, n)| to.gauge(Id::Adjacencies, &[state], *n));
    counts.neighbors.iter().for_each(|(state, n)| to.gauge(Id::Neighbors, &[state], *n));
    to.durations(Id::Turn, &["cpu"], &counts.turns[0]);
    to.durations(Id::Turn, &["wall"], &counts.turns[1]);
    to.durations(Id::Visible, &[], &counts.visible);
    counts.builds.iter().for_each(|(family, all)| to.durations(Id::FibBuildTime, &[family], all));
    for (interface, [packets, samples, lost]) in &counts.sampled {
        to.count(Id::SamplingPackets, &[interface], *packets);
        to.count(Id::SamplingSamples, &[interface], *samples);
        to.count(Id::SamplingLost, &[interface], *lost);
    }
    for (collector, protocol, [datagrams, failed, unsent]) in &counts.reported {
        to.count(Id::SamplingDatagrams, &[collector, protocol], *datagrams);
        to.count(Id::SamplingFailed, &[collector, protocol], *failed);
        to.count(Id::SamplingUnsent, &[collector, protocol], *unsent);
    }
}

fn interface_counts(to: &mut Samples, counts: &Counts) {
    for interface in &counts.interfaces {
        let name = &*interface.name;
        let workers = counts.workers.iter().map(|(counters, ..)| &**counters);
        let graph = GraphCounts::of(workers, interface.port).since(&interface.before);
        for (id, xdp, graph) in [
            (Id::RxPackets, interface.rx_xdp[0] + interface.held_back, graph.rx[0]),
            (Id::RxBytes, interface.rx_xdp[1], graph.rx[1]),
            (Id::TxPackets, interface.tx_xdp[0], graph.tx[0]),
            (Id::TxBytes, interface.tx_xdp[1], graph.tx[1]),
        ] {
            to.count(id, &[name, "xdp"], xdp);
            to.count(id, &[name, "graph"], graph);
        }
        for &reason in DropReason::ALL {
            let dropped = graph.dropped(reason);
            if dropped > 0 {
                to.count(Id::DroppedHere, &[name, "graph", reason.name()], dropped);
            }
        }
        for &(reason, dropped) in interface.dropped_xdp.iter().filter(|(_, n)| *n > 0) {
            to.count(Id::DroppedHere, &[name, "xdp", reason], dropped);
        }
        for (event, count) in &interface.device {
            to.count(Id::Device, &[name, event], *count);
        }
        for (worker, (counters, ..)) in counts.workers.iter().enumerate() {
            if let Some(port) = counters.ports.get(usize::from(interface.port)) {
                to.gauge(Id::InRings, &[name, &worker.to_string()], port.in_rings.read());
            }
        }
        to.count(Id::LeftHere, &[name], interface.left);
        to.count(Id::HeldBack, &[name], interface.held_back);
    }
}

fn worker_counts(to: &mut Samples, counts: &Counts) {
    for (number, (worker, nodes, pool)) in counts.workers.iter().enumerate() {
        let number = number.to_string();
        let of = [&*number];
        to.count(Id::WorkerIn, &of, worker.packets_in.read());
        to.count(Id::WorkerOut, &of, worker.packets_out.read());
        to.count(Id::WorkerGenerated, &of, worker.generated_sent.read());
        to.gauge(Id::WorkerHeld, &of, worker.held.read());
        to.time(Id::WorkerGraph, &of, worker.path_ns.read());
        to.time(Id::WorkerSend, &of, worker.send_ns.read());
        to.count(Id::WorkerBusy, &of, worker.busy_rounds.read());
        to.count(Id::WorkerIdle, &of, worker.idle_rounds.read());
        to.count(Id::WorkerCycles, &[of[0], "receive"], worker.receive_ticks.read());
        to.count(Id::WorkerCycles, &[of[0], "send"], worker.send_ticks.read());
        to.count(Id::WorkerLost, &of, worker.requests_lost.read());
        to.gauge(Id::PoolFrames, &of, pool.frames() as u64);
        to.gauge(Id::PoolFree, &of, pool.free() as u64);
        for ((name, class), node) in counts.elements.iter().zip(nodes.iter()) {
            let of = [&**name, *class];
            to.count(Id::ElementPackets, &of, node.packets.read());
            to.count(Id::ElementBatches, &of, node.batches.read());
            to.count(Id::ElementDropped, &of, node.drops());
            to.count(Id::ElementCycles, &of, node.ticks.read());
        }
    }
}

fn drops(to: &mut Samples, counts: &Counts) {
    for &reason in DropReason::ALL {
        let (name, at) = (reason.name(), reason as usize);
        let workers = || counts.workers.iter().map(|(counters, ..)| counters);
        let received = workers().map(|worker| worker.dropped[at].read()).sum();
        to.count(Id::Dropped, &["graph", name], received);
        to.count(Id::Dropped, &["xdp", name], 0);
        let generated = workers().map(|worker| worker.generated_dropped[at].read()).sum();
        to.count(Id::GeneratedDropped, &[name], generated);
    }
    counts.dropped_xdp.iter().for_each(|(name, n)| to.count(Id::Dropped, &["xdp", name], *n));
    counts.left_xdp.iter().for_each(|(name, n)| to.count(Id::Left, &[name], *n));
}
