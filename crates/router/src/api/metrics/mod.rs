//! `/metrics`: counters for Prometheus, read at each scrape.
//!
//! A scrape is some short requests to the backend, one after the other, so that it holds the backend's thread up for no
//! longer than any of them. Counters that workers write are shared: they are read here, in the server's thread. Nothing is
//! counted per packet for metrics alone, and no metric has labels for routes, next hops, neighbors or rules.

mod families;
mod fill;
mod samples;

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State;
use axum::http::header::{ACCEPT, CONTENT_TYPE, HeaderMap};
use axum::response::{IntoResponse, Response};
use fingerpost_packet::frame::REASONS;
use fingerpost_packet::frame::counters::PortCounters;
use fingerpost_packet::graph::NodeCounters;
use fingerpost_packet::{DropReason, Pool, WorkerCounters};
use fingerpost_route::Durations;

use super::backend::Requests;
use super::error::{ApiError, Code};
use super::server::run;
use samples::Samples;

const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const PLAIN: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Counters of the daemon that no document of the API has.
pub(crate) struct Counts {
    /// Counters of the workers, and of the elements of each, in the order of `elements`.
    pub(crate) workers: Vec<(Arc<WorkerCounters>, Arc<[NodeCounters]>, Pool)>,
    /// Name and class of each element of the graph.
    pub(crate) elements: Vec<(String, &'static str)>,
    /// Counters of the interfaces.
    pub(crate) interfaces: Vec<InterfaceCounts>,
    /// Packets that the XDP datapath forwarded.
    pub(crate) forwarded_xdp: u64,
    /// Packets that it dropped, by drop reason.
    pub(crate) dropped_xdp: Vec<(&'static str, u64)>,
    /// Packets that it left, by reason.
    pub(crate) left_xdp: Vec<(&'static str, u64)>,
    /// Bytes of XDP memory that are reserved, and their limit.
    pub(crate) xdp_memory: Option<(u64, u64)>,
    /// Generation that readers see.
    pub(crate) generation: u64,
    /// Next hops, and groups.
    pub(crate) next_hops: [u64; 2],
    /// Lists of alternatives that were shortened.
    pub(crate) shortened: u64,
    /// Adjacencies by state.
    pub(crate) adjacencies: [(&'static str, u64); 3],
    /// Neighbors by state.
    pub(crate) neighbors: Vec<(&'static str, u64)>,
    /// Turns of the control thread, by CPU time and by the clock.
    pub(crate) turns: [Durations; 2],
    /// Times from a change to its visibility.
    pub(crate) visible: Durations,
    /// Builds of the tables of both families.
    pub(crate) builds: [(&'static str, Durations); 2],
    /// Interfaces that sample: packets, samples and lost samples.
    pub(crate) sampled: Vec<(String, [u64; 3])>,
    /// Collectors with their protocols: datagrams, datagrams that could not be sent, and samples that were not sent.
    pub(crate) reported: Vec<(String, &'static str, [u64; 3])>,
}

/// What workers counted under a port number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GraphCounts {
    /// Packets and bytes received.
    pub(crate) rx: [u64; 2],
    /// Packets and bytes sent.
    pub(crate) tx: [u64; 2],
    dropped: [u64; REASONS],
}

impl Default for GraphCounts {
    fn default() -> Self {
        Self { rx: [0; 2], tx: [0; 2], dropped: [0; REASONS] }
    }
}

impl GraphCounts {
    /// Sums of all workers.
    pub(crate) fn of<'a>(workers: impl Iterator<Item = &'a WorkerCounters>, port: u16) -> Self {
        let mut sums = Self::default();
        for counters in workers.filter_map(|worker| worker.ports.get(usize::from(port))) {
            let PortCounters { rx_packets, rx_bytes, tx_packets, tx_bytes, .. } = counters;
            let [packets, bytes] = &mut sums.rx;
            *packets += rx_packets.read();
            *bytes += rx_bytes.read();
            let [packets, bytes] = &mut sums.tx;
            *packets += tx_packets.read();
            *bytes += tx_bytes.read();
            for &reason in DropReason::ALL {
                sums.dropped[reason as usize] += counters.dropped(reason);
            }
        }
        sums
    }

    /// What was counted since `before`.
    pub(crate) fn since(mut self, before: &Self) -> Self {
        let now = self.rx.iter_mut().chain(&mut self.tx).chain(&mut self.dropped);
        let before = before.rx.iter().chain(&before.tx).chain(&before.dropped);
        now.zip(before).for_each(|(now, before)| *now = now.saturating_sub(*before));
        self
    }

    /// Packets dropped for a reason.
    pub(crate) fn dropped(&self, reason: DropReason) -> u64 {
        self.dropped[reason as usize]
    }
}

/// Counters of one interface.
pub(crate) struct InterfaceCounts {
    /// Interface name.
    pub(crate) name: String,
    /// Port number of the router.
    pub(crate) port: u16,
    /// What workers counted under that number before the interface had it.
    pub(crate) before: GraphCounts,
    /// Packets and bytes that the XDP datapath received.
    pub(crate) rx_xdp: [u64; 2],
    /// Packets and bytes that it sent.
    pub(crate) tx_xdp: [u64; 2],
    /// Frames that it left to the graph or the kernel.
    pub(crate) left: u64,
    /// Frames that it dropped, by drop reason.
    pub(crate) dropped_xdp: Vec<(&'static str, u64)>,
    /// Counts of the device, of all workers.
    pub(crate) device: BTreeMap<String, u64>,
    /// Frames that the classifier dropped for want of a worker.
    pub(crate) held_back: u64,
}

/// Counters of all, in the format that the client prefers.
pub(super) async fn metrics(
    State(requests): State<Requests>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let mut samples = Samples::default();
    fill::daemon(&mut samples, &requests.call(|backend| backend.status()).await?);
    fill::interfaces(&mut samples, &requests.call(|backend| backend.interfaces()).await?);
    fill::fibs(&mut samples, &requests.call(|backend| backend.fibs()).await?);
    fill::sources(&mut samples, &requests.call(|backend| backend.sources()).await?);
    match requests.call(|backend| backend.cluster()).await? {
        Ok(cluster) => fill::cluster(&mut samples, &cluster),
        // There is none.
        Err(error) if error.code == Code::NotFound => {}
        Err(error) => return Err(error),
    }
    for feature in requests.call(|backend| backend.features()).await? {
        let name = feature.name.clone();
        if !feature.used {
            continue;
        }
        match requests.call(move |backend| backend.feature_rows(&name)).await? {
            Ok(rows) => fill::feature(&mut samples, &feature.name, &run(rows).await?),
            // A feature without rows.
            Err(error) if error.code == Code::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    fill::counts(&mut samples, &requests.call(|backend| backend.counts()).await?);
    let page = samples.openmetrics().expect("a string takes all");
    let accept = headers.get(ACCEPT).and_then(|value| value.to_str().ok());
    Ok(match prefers_plain(accept.unwrap_or("*/*")) {
        true => ([(CONTENT_TYPE, PLAIN)], samples::plain(&page)).into_response(),
        false => ([(CONTENT_TYPE, OPENMETRICS)], page).into_response(),
    })
}

/// Whether `Accept` prefers the older format (RFC 9110 12.5.1).
fn prefers_plain(accept: &str) -> bool {
    let quality = |wanted: [&str; 2]| {
        let ranges = accept.split(',').filter_map(|range| {
            let mut parts = range.split(';').map(str::trim);
            let [kind, subtype] = wanted;
            let known = parts.next()?;
            let precise = match known.split_once('/')? {
                ("*", "*") => 0,
                (other, "*") if other.eq_ignore_ascii_case(kind) => 1,
                (other, sub)
                    if other.eq_ignore_ascii_case(kind) && sub.eq_ignore_ascii_case(subtype) =>
                {
                    2
                }
                _ => return None,
            };
            let quality = parts
                .find_map(|part| part.strip_prefix("q="))
                .map_or(Some(1.0), |q| q.parse().ok());
            Some((precise, quality.unwrap_or(0.0)))
        });
        // Of ranges that are as precise, the best: versions do not matter here.
        let best = ranges.max_by(|a, b| a.partial_cmp(b).unwrap_or(std::cmp::Ordering::Equal));
        best.map_or(0.0, |(_, quality): (u8, f64)| quality)
    };
    quality(["text", "plain"]) > quality(["application", "openmetrics-text"])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_format_is_that_of_the_header() {
        for (accept, plain) in [
            ("*/*", false),
            ("text/plain", true),
            ("Text/Plain; version=0.0.4", true),
            ("text/*;q=0.5, application/openmetrics-text;q=0.4", true),
            ("text/plain;q=0.2,*/*;q=0.1", true),
            ("text/html", false),
            (
                "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,\
                 text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
                false,
            ),
        ] {
            assert_eq!(prefers_plain(accept), plain, "{accept}");
        }
    }
}
