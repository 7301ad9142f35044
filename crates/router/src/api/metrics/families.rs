//! Metrics by name: type, labels and meaning of each, for `/metrics` and for the reference page.
//!
//! Names are those of Prometheus' conventions, without the prefix `fingerpost_` and, for counters, without `_total`; the
//! unit is the end of the name.

use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;

/// Prefix of all names.
pub(super) const PREFIX: &str = "fingerpost";

/// A metric, with its labels.
#[derive(Debug)]
pub(super) struct Family {
    /// Name, with the unit.
    pub(super) name: &'static str,
    /// Type.
    pub(super) kind: MetricType,
    /// Names of the labels.
    pub(super) labels: &'static [&'static str],
    /// Meaning, a sentence.
    pub(super) help: &'static str,
}

impl Family {
    /// Name without its unit, and the unit.
    pub(super) fn parts(&self) -> (&'static str, Option<Unit>) {
        let units = [("_seconds", Unit::Seconds), ("_bytes", Unit::Bytes)];
        let found =
            units.into_iter().find_map(|(end, unit)| Some((self.name.strip_suffix(end)?, unit)));
        found.map_or((self.name, None), |(name, unit)| (name, Some(unit)))
    }
}

/// Defines a number for each metric, and the list of them.
macro_rules! families {
    ($($id:ident $kind:ident $name:literal [$($label:literal)*] $help:literal;)*) => {
        /// Number of a metric.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub(super) enum Id { $($id),* }

        /// All metrics, by number.
        pub(super) const FAMILIES: &[Family] = &[$(Family {
            name: $name,
            kind: MetricType::$kind,
            labels: &[$($label),*],
            help: $help,
        }),*];
    };
}

families! {
    Build Info "build" ["version"] "Version of the program.";
    Uptime Gauge "uptime_seconds" [] "Time since the start.";
    Resident Gauge "resident_memory_bytes" [] "Memory of the process.";
    ForwardingInterfaces Gauge "forwarding_interfaces" [] "Interfaces that are taken over.";
    ConfigUnconfirmed Gauge "config_unconfirmed" [] "Whether a configuration waits for its confirmation.";
    Turn Histogram "control_turn_seconds" ["clock"] "Durations of the turns of the control thread, by its own CPU time (cpu) and by the clock (wall).";
    Visible Histogram "change_to_visible_seconds" [] "Times from a change of a source to its visibility, from the first message of a turn that waited.";

    Interface Info "interface" ["interface" "path"] "Packet path of the interface: xdp, afxdp or kernel.";
    InterfaceUp Gauge "interface_up" ["interface"] "Whether the interface is up, with carrier.";
    InterfaceMtu Gauge "interface_mtu_bytes" ["interface"] "MTU of the interface.";
    RxPackets Counter "interface_receive_packets" ["interface" "path"] "Frames received for forwarding, by the XDP datapath (xdp) or by workers (graph).";
    RxBytes Counter "interface_receive_bytes" ["interface" "path"] "Bytes of these frames, link headers included.";
    TxPackets Counter "interface_transmit_packets" ["interface" "path"] "Frames sent, by the XDP datapath (xdp) or by workers (graph).";
    TxBytes Counter "interface_transmit_bytes" ["interface" "path"] "Bytes of these frames, link headers included.";
    Punted Counter "interface_punted_packets" ["interface"] "Frames punted to the kernel.";
    HeldBack Counter "interface_held_back_packets" ["interface"] "Frames dropped in XDP because no worker was there to apply the source checks; received packets include them.";
    DroppedHere Counter "interface_dropped_packets" ["interface" "path" "reason"] "Frames received there and dropped, in the XDP datapath (xdp) or by workers (graph), by drop reason; from the first one on.";
    Device Counter "interface_device_events" ["interface" "event"] "Counts of the device as workers use it, such as frames that found a full ring (rx_ring_full).";
    InRings Gauge "interface_ring_frames" ["interface" "worker"] "Frames of the worker's pool in the rings of the interface.";
    LeftHere Counter "interface_xdp_left_packets" ["interface"] "Frames that the XDP datapath left to the graph or the kernel.";

    Dropped Counter "dropped_packets" ["path" "reason"] "Received packets dropped, in the XDP datapath (xdp) or by workers (graph), by drop reason.";
    GeneratedDropped Counter "generated_dropped_packets" ["reason"] "Packets of the router itself (ICMP errors, fragments) dropped, by drop reason.";
    Left Counter "xdp_left_packets" ["reason"] "Packets that the XDP datapath left to the graph or the kernel, by reason.";
    XdpForwarded Counter "xdp_forwarded_packets" [] "Packets that the XDP datapath forwarded.";

    Workers Gauge "workers" [] "Workers.";
    WorkersFailed Gauge "workers_failed" [] "Workers that have failed.";
    WorkerIn Counter "worker_receive_packets" ["worker"] "Packets that the worker took for forwarding.";
    WorkerOut Counter "worker_transmit_packets" ["worker"] "Packets of these that it sent.";
    WorkerGenerated Counter "worker_generated_packets" ["worker"] "Packets of the router itself that it sent.";
    WorkerHeld Gauge "worker_held_packets" ["worker"] "Packets that wait inside, for a link address or in a queue.";
    WorkerGraph Counter "worker_graph_seconds" ["worker"] "Time in the graph, without sending; with worker_send_seconds_total the busy share.";
    WorkerSend Counter "worker_send_seconds" ["worker"] "Time in sending.";
    WorkerBusy Counter "worker_busy_rounds" ["worker"] "Rounds that found packets: packets by round are the batch size.";
    WorkerIdle Counter "worker_idle_rounds" ["worker"] "Rounds that found none.";
    WorkerCycles Counter "worker_port_cycles" ["worker" "direction"] "Clock cycles in receiving and sending, only while elements are timed.";
    WorkerLost Counter "worker_lost_resolve_requests" ["worker"] "Resolve requests that found the queue to the control side full; they are sent again.";
    PoolFrames Gauge "worker_pool_frames" ["worker"] "Frames of the worker's pool.";
    PoolFree Gauge "worker_pool_free_frames" ["worker"] "Frames of the pool that are in no ring, batch or queue.";

    ElementPackets Counter "element_packets" ["element" "class"] "Packets that the element received, of all workers.";
    ElementBatches Counter "element_batches" ["element" "class"] "Batches that the element received.";
    ElementDropped Counter "element_dropped_packets" ["element" "class"] "Packets that the element dropped.";
    ElementCycles Counter "element_cycles" ["element" "class"] "Clock cycles of the element, only while elements are timed.";

    Fib Info "fib" ["table" "family" "routes" "algorithm" "choice"] "Lookup algorithm in use, and how it is chosen.";
    FibGeneration Gauge "fib_generation" [] "Generation that readers see.";
    FibPrefixes Gauge "fib_prefixes" ["table" "family" "routes"] "Prefixes with a route.";
    FibRoutes Gauge "fib_routes" ["table" "family" "routes"] "Routes, those that are not the best included.";
    FibBytes Gauge "fib_lookup_bytes" ["table" "family" "routes"] "Memory that lookups can touch.";
    FibRib Gauge "fib_rib_bytes" ["table" "family" "routes"] "Memory of all routes in the RIB.";
    FibPending Gauge "fib_pending_changes" ["table" "family" "routes"] "Best-path changes that readers do not see yet.";
    FibBehind Gauge "fib_behind_seconds" ["table" "family" "routes"] "Age of the oldest change that readers do not see, 0 where there is none.";
    FibDelay Gauge "fib_longest_delay_seconds" ["table" "family" "routes"] "Longest time from a change until readers saw it.";
    FibApplied Counter "fib_changes" ["table" "family" "routes"] "Changes applied in place.";
    FibBuilds Counter "fib_builds" ["table" "family" "routes"] "Structures built.";
    FibBuildTime Histogram "fib_build_seconds" ["family"] "Durations of builds, of all tables.";
    FibFailures Counter "fib_failures" ["table" "family" "routes"] "Builds and changes that failed.";
    FibBanned Gauge "fib_banned_algorithms" ["table" "family" "routes"] "Algorithms that failed for this table and are not tried again.";
    FibMismatch Gauge "fib_mismatch_routes" ["table" "family" "routes" "reader"] "Routes with wrong lookup results, as far as the auditor has found: in any reader (all) or in the XDP datapath (xdp).";
    FibAudited Counter "fib_audited_addresses" ["table" "family" "routes" "reader"] "Addresses that the auditor has compared, in all and in the XDP datapath as well.";
    FibPasses Counter "fib_audit_passes" ["table" "family" "routes"] "Complete passes of the auditor.";
    FibXdpUsed Gauge "fib_xdp_used_bytes" ["table" "family" "routes"] "XDP memory in use by the table, where the XDP datapath reads it.";
    FibXdpReserved Gauge "fib_xdp_reserved_bytes" ["table" "family" "routes"] "XDP memory reserved for the table, room for growth included.";
    XdpReserved Gauge "xdp_memory_reserved_bytes" [] "XDP memory reserved in all.";
    XdpLimit Gauge "xdp_memory_limit_bytes" [] "Limit of the XDP memory ([xdp] memory).";

    Source Info "source" ["source" "kind"] "Kind of the route source.";
    SourceRoutes Gauge "source_routes" ["source"] "Routes of the source in the RIB.";
    SourceUpdates Counter "source_updates" ["source"] "New, changed and withdrawn routes that it has sent.";
    SourceErrors Counter "source_errors" ["source"] "Routes and messages that were refused or not understood.";
    SourceRefused Counter "source_refused_routes" ["source"] "Routes that were refused.";
    SourceMessages Counter "source_messages" ["source"] "Messages received, of sources with messages.";
    SourceResyncs Counter "source_resyncs" ["source"] "Resynchronizations after messages were lost, or a session began again.";
    SourceDumps Counter "source_dumps" ["source"] "Whole tables that were read again, for a loss or for a change of a link, of the kernel.";
    SourceSessions Counter "source_sessions" ["source"] "Sessions, of sources with sessions.";
    SourceTables Counter "source_tables" ["source"] "Complete tables received: a dump or file was read to its end, all End-of-RIB markers came, or nothing came for the sweep time.";
    SourceSync Gauge "source_in_sync" ["source"] "Whether its table is complete, and it has a session where it needs one.";
    SourceLag Gauge "source_lag_seconds" ["source"] "Age of the first message that packets do not follow yet.";
    SourceExported Gauge "source_exported_routes" ["source"] "Static routes that the kernel has from it, too.";

    NextHops Gauge "next_hops" [] "Next hops, without groups.";
    NextHopGroups Gauge "next_hop_groups" [] "Next-hop groups.";
    NextHopsShortened Counter "next_hop_lists_shortened" [] "Lists of alternatives that were shortened to their best path, as there were too many.";
    Adjacencies Gauge "adjacencies" ["state"] "Adjacencies: resolved, unresolved or failed.";
    Neighbors Gauge "neighbors" ["state"] "Neighbors by state.";

    FeaturePackets Counter "feature_packets" ["feature" "name" "direction"] "Packets that the ACL, policer, source filter or named counter took, of all its rules.";
    FeatureBytes Counter "feature_bytes" ["feature" "name" "direction"] "Bytes of these packets.";
    FeatureDropped Counter "feature_dropped_packets" ["feature" "name" "direction"] "Packets of these that were dropped, where the feature counts them.";
    FeatureExceeding Counter "feature_exceeding_packets" ["feature" "name" "direction"] "Packets of these beyond the rate of a policer.";

    SamplingPackets Counter "sampling_packets" ["interface"] "Packets of an interface that samples, which could have been sampled.";
    SamplingSamples Counter "sampling_samples" ["interface"] "Packets of these that were sampled.";
    SamplingLost Counter "sampling_lost_samples" ["interface"] "Samples of these that were lost on the path to the control thread.";
    SamplingDatagrams Counter "sampling_datagrams" ["collector" "protocol"] "Datagrams sent to the collector, by sflow or ipfix.";
    SamplingFailed Counter "sampling_failed_datagrams" ["collector" "protocol"] "Datagrams to the collector that could not be sent.";
    SamplingUnsent Counter "sampling_unsent_samples" ["collector" "protocol"] "Samples that came while the collector had no socket, or after their interface had stopped sampling.";

    Cluster Info "cluster" ["node" "mode" "rule"] "Node of the cluster; the metrics that follow are those of a node.";
    ClusterDraining Gauge "cluster_draining" [] "Whether the node is draining.";
    ClusterConflicts Gauge "cluster_conflicts" [] "Conflicts between the records of the members.";
    ClusterLate Counter "cluster_late_probe_intervals" [] "Intervals of the probes that began so late that other nodes may have found the links of this node down.";
    ClusterInSync Gauge "cluster_store_in_sync" [] "Whether the cluster store is reachable and in sync, where there is one.";
    ClusterVersion Gauge "cluster_parameters_version" [] "Version of the parameters that the node has from the store, where there is one.";
    ClusterLagging Gauge "cluster_parameters_lagging_members" [] "Members that have not reported that version.";
    ClusterMembers Gauge "cluster_members" ["state"] "Members by state.";
    LinkUp Gauge "cluster_link_up" ["member"] "Whether packets pass on the link to the member, in both directions.";
    LinkBytes Counter "cluster_link_transmit_bytes" ["member"] "Bytes sent to the member.";
    LinkLoad Gauge "cluster_link_load_ratio" ["member"] "Load of the link as a share of its rate, where that is limited.";
    LinkBacklog Gauge "cluster_link_backlog_seconds" ["member"] "Time that the packets waiting for the link take.";
    LinkDropped Counter "cluster_link_dropped_packets" ["member" "origin"] "Packets dropped beyond the rate: of other nodes (transit) or of this one (local).";
    LinkDowns Counter "cluster_link_downs" ["member"] "Times that the link went down.";
    ClusterPackets Counter "cluster_packets" ["action"] "Packets by action of the node.";
    ClusterFlowlets Counter "cluster_flowlets" ["event"] "Flowlets begun, and those moved since their path failed.";
    ClusterDropped Counter "cluster_dropped_packets" ["reason"] "Frames and packets of the fabric dropped, in XDP and in the graph.";
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;

    const MADE: &str = "<!-- Made by crates/router/src/api/metrics/families.rs; see there. -->\n\n";

    /// The reference page.
    fn page() -> String {
        let mut page = format!("# Metrics\n\n{MADE}");
        page.push_str(
            "`GET /metrics` of the control API, in OpenMetrics, and in Prometheus' text format 0.0.4 for clients that prefer\n\
             `text/plain`: [Monitor with Prometheus](../guide/monitor-with-prometheus.md). Counters start at zero with the\n\
             process. The labels `table`, `family` and `routes` name a lookup table: route table, 4 or 6, and whether it holds\n\
             the `best` routes or `all` paths (for feasible uRPF).\n\n| name | type | unit | labels | meaning |\n|---|---|---|---|---|\n",
        );
        for family in FAMILIES {
            let end = match family.kind {
                MetricType::Counter => "_total",
                MetricType::Info => "_info",
                _ => "",
            };
            let unit = family.parts().1;
            let labels: Vec<String> =
                family.labels.iter().map(|label| format!("`{label}`")).collect();
            let _ = writeln!(
                page,
                "| `{PREFIX}_{}{end}` | {} | {} | {} | {} |",
                family.name,
                family.kind.as_str(),
                unit.as_ref().map_or("", Unit::as_str),
                labels.join(", "),
                family.help
            );
        }
        page
    }

    #[test]
    fn the_description_of_metrics_in_docs_is_that_of_the_list() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/metrics.md");
        if std::env::var_os("FINGERPOST_ACCEPT").is_some() {
            std::fs::write(path, page()).unwrap();
        }
        let recorded = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            recorded == page(),
            "docs/reference/metrics.md is of another time: FINGERPOST_ACCEPT=1 cargo test -p fingerpost-router \
             description"
        );
    }

    #[test]
    fn names_follow_the_conventions() {
        for (at, family) in FAMILIES.iter().enumerate() {
            assert!(!FAMILIES[..at].iter().any(|other| other.name == family.name), "{family:?}");
            assert!(family.help.ends_with('.') && !family.name.ends_with("_total"), "{family:?}");
            assert!(family.labels.iter().all(|label| *label != "le"), "{family:?}");
        }
        let last = &FAMILIES[Id::ClusterDropped as usize];
        assert_eq!(
            (last.name, FAMILIES.len()),
            ("cluster_dropped_packets", Id::ClusterDropped as usize + 1)
        );
    }
}
