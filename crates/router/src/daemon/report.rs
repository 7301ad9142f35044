//! What a run did, as people and programs read it.

use std::collections::BTreeMap;
use std::time::Duration;

use fingerpost_lpm::{Addr, Lookup};
use fingerpost_packet::DropReason;
use fingerpost_route::SourceReport;
use serde::Serialize;

use super::backend::View;
use super::ports::InterfaceReport;

/// A run so far. Field names are part of the command line's contract.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) routes_v4: usize,
    pub(crate) routes_v6: usize,
    pub(crate) next_hops: usize,
    pub(crate) load_ms: f64,
    pub(crate) routes_per_second: f64,
    /// Memory of the process, all in.
    pub(crate) resident_kib: u64,
    pub(crate) algorithm_v4: &'static str,
    pub(crate) algorithm_v6: &'static str,
    pub(crate) bytes_v4: usize,
    pub(crate) bytes_v6: usize,
    /// `None` for fewer prefixes than [`FEWEST`].
    pub(crate) bytes_per_prefix_v4: Option<f64>,
    pub(crate) bytes_per_prefix_v6: Option<f64>,
    pub(crate) packets_in: u64,
    pub(crate) packets_out: u64,
    /// Packets among them that the XDP datapath forwarded, which no worker received.
    pub(crate) forwarded_xdp: u64,
    /// Packets that the XDP datapath left to the graph or the kernel, by reason.
    pub(crate) left_xdp: BTreeMap<&'static str, u64>,
    pub(crate) dropped: BTreeMap<&'static str, u64>,
    pub(crate) held: u64,
    pub(crate) originated: u64,
    pub(crate) punted: u64,
    /// Time that workers spent in the graph, in nanoseconds.
    pub(crate) path_ns: u64,
    pub(crate) seconds: f64,
    pub(crate) workers: usize,
    /// Workers that have not failed.
    pub(crate) workers_alive: usize,
    /// Resynchronizations after the kernel lost messages.
    pub(crate) resyncs: u64,
    pub(crate) interfaces: Vec<InterfaceReport>,
    pub(crate) sources: Vec<Source>,
}

/// A source of routes.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Source {
    pub(crate) name: String,
    pub(crate) routes: u64,
    pub(crate) refused: u64,
    pub(crate) last_refusal: String,
}

impl From<SourceReport> for Source {
    fn from(s: SourceReport) -> Self {
        Self { name: s.name, routes: s.routes, refused: s.refused, last_refusal: s.last_refusal }
    }
}

impl Report {
    pub(super) fn new(run: View<'_>) -> Self {
        let sum = |of: &dyn Fn(&fingerpost_packet::WorkerCounters) -> u64| -> u64 {
            run.workers.iter().map(|worker| of(&worker.counters)).sum()
        };
        let mut dropped: BTreeMap<&'static str, u64> = DropReason::ALL
            .iter()
            .map(|&reason| (reason.name(), sum(&|c| c.dropped[reason as usize].read())))
            .collect();
        let forwarded_xdp = run.interfaces.forwarded_packets();
        let mut left_xdp = BTreeMap::new();
        for (why, count) in run.interfaces.left_xdp() {
            match why.drop_reason() {
                Some(reason) => *dropped.entry(reason.name()).or_default() += count,
                None if count > 0 => drop(left_xdp.insert(why.name(), count)),
                None => {}
            }
        }
        for (reason, count) in run.interfaces.dropped_fabric() {
            *dropped.entry(reason).or_default() += count;
        }
        // Of these no worker knows.
        let held_back = run.interfaces.held_back();
        *dropped.entry(DropReason::NoWorker.name()).or_default() += held_back;
        dropped.retain(|_, count| *count > 0);
        let received_in_drivers = run.interfaces.received_xdp();
        let ended_in_drivers = received_in_drivers.values().map(|received| received.packets);
        let control = run.control;
        let (routes_v4, bytes_v4, each_v4) =
            size(control.rib_v4().len(), control.fib_v4().lookup());
        let (routes_v6, bytes_v6, each_v6) =
            size(control.rib_v6().len(), control.fib_v6().lookup());
        Self {
            routes_v4,
            routes_v6,
            next_hops: control.next_hops().len(),
            load_ms: run.progress.load().as_secs_f64() * 1e3,
            routes_per_second: rate(routes_v4 + routes_v6, run.progress.load()),
            resident_kib: resident_kib(),
            algorithm_v4: control.fib_v4().algorithm(),
            algorithm_v6: control.fib_v6().algorithm(),
            bytes_v4,
            bytes_v6,
            bytes_per_prefix_v4: each_v4,
            bytes_per_prefix_v6: each_v6,
            packets_in: sum(&|c| c.packets_in.read()) + ended_in_drivers.sum::<u64>() + held_back,
            packets_out: sum(&|c| c.packets_out.read()) + forwarded_xdp,
            forwarded_xdp,
            left_xdp,
            dropped,
            held: sum(&|c| c.held.read()),
            originated: sum(&|c| c.generated_sent.read()),
            punted: run.interfaces.punted(),
            path_ns: run.workers.path_ns(),
            seconds: run.progress.elapsed().as_secs_f64(),
            workers: run.workers.len(),
            workers_alive: run.workers.alive(),
            resyncs: run.sources.kernel.resyncs().lost,
            interfaces: run.interfaces.report(),
            sources: control.sources().map(Source::from).collect(),
        }
    }

    /// All drops together.
    pub(crate) fn dropped_total(&self) -> u64 {
        self.dropped.values().sum()
    }
}

#[allow(clippy::cast_precision_loss, reason = "a rate for people")]
fn rate(routes: usize, time: Duration) -> f64 {
    routes as f64 / time.as_secs_f64().max(1e-9)
}

/// Resident memory, as the kernel counts it; 0 where it does not report it.
pub(super) fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

fn size<A: Addr>(
    routes: usize,
    lookup: &std::sync::Arc<dyn Lookup<A>>,
) -> (usize, usize, Option<f64>) {
    let bytes = lookup.bytes();
    (routes, bytes, each(bytes, routes))
}

/// Structures have parts of a fixed size, up to a few MiB. Divided among fewer prefixes than this they mean nothing
/// of what a prefix takes.
pub(crate) const FEWEST: usize = 1000;

/// Bytes per prefix or route; `None` where there are too few.
#[allow(clippy::cast_precision_loss, reason = "a ratio for people")]
pub(crate) fn each(bytes: usize, of: usize) -> Option<f64> {
    (of >= FEWEST).then(|| bytes as f64 / of as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handful_of_routes_has_no_bytes_a_route() {
        assert_eq!([each(1 << 20, 0), each(1 << 20, 4), each(1 << 20, FEWEST - 1)], [None; 3]);
        assert_eq!(each(3000, FEWEST), Some(3.0));
    }
}
