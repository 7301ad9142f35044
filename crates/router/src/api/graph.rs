//! Graph and packets over the API: counters of elements, traces of packets, dry runs. The types are JSON, as those of
//! `model.rs`; the handlers are beside them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Json;
use axum::extract::{Extension, State};
use axum::response::Response;
use fingerpost_io::xdp::forward::reasons::LeftAlone;
use fingerpost_packet::DropReason;
use serde::{Deserialize, Serialize};
use tokio::sync::{Semaphore, SemaphorePermit, mpsc};
use utoipa::{IntoParams, ToSchema};

use super::backend::Requests;
use super::connections::{Connection, Streaming};
#[cfg(test)]
use super::error::ErrorDocument;
use super::error::{ApiError, Code};
use super::extract::{Document, Parameters};
use super::model::{Adjacency, ConfigText, DriverAnswer, RouteAnswer};
use super::server::Answer;
#[cfg(test)]
use super::streams::LINES;
use super::streams::{lines, streamed};

/// Longest time for which elements are timed on one request, in seconds.
const LONGEST_TIMING: f64 = 60.0;
/// Time within which workers carry out a command.
const SETTLING: Duration = Duration::from_millis(20);
/// Interval of polling for traces.
const LOOK: Duration = Duration::from_millis(20);
/// Longest wait for packets to trace, in seconds.
const LONGEST_TRACE: f64 = 3600.0;

/// Timings of elements at one time on requests of clients that may not change anything: each takes as long as it wants.
const MOST_TIMINGS: usize = 4;

/// Timings of elements in progress.
#[derive(Clone)]
pub(super) struct Timings(Arc<Semaphore>);

impl Default for Timings {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(MOST_TIMINGS)))
    }
}

impl Timings {
    /// Begins one; clients that may change something always may.
    ///
    /// # Errors
    /// When there are too many.
    fn begin(&self, connection: &Connection) -> Result<Option<SemaphorePermit<'_>>, ApiError> {
        if connection.reader().is_none() {
            return Ok(None);
        }
        self.0.try_acquire().map(Some).map_err(|_| {
            let words = format!("{MOST_TIMINGS} other requests time elements: try again later");
            ApiError::new(Code::Busy, words)
        })
    }
}

/// Counters of the elements of the graph.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub(crate) struct GraphStats {
    /// Elements of each worker, and a row `(ports)` for packets that wait to be sent.
    pub(crate) elements: Vec<ElementStats>,
    /// Seconds for which the elements were timed; null where they were not, or there is no clock for it.
    pub(crate) timed: Option<f64>,
    /// Packets that the XDP datapath handled without the graph.
    pub(crate) drivers: DriverStats,
    /// Edges of the graph.
    #[serde(default)]
    pub(crate) edges: Vec<GraphEdge>,
}

/// Edge of the graph, from an output to an element.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct GraphEdge {
    /// Name of the element that sends.
    pub(crate) from: String,
    /// Output of that element, by number.
    pub(crate) output: usize,
    /// Name of the output, where it has one.
    pub(crate) output_name: Option<String>,
    /// Name of the element that receives.
    pub(crate) to: String,
    /// Whether it closes a cycle.
    pub(crate) back: bool,
    /// Whether it is a pull edge: the receiving element requests packets.
    pub(crate) pulls: bool,
}

/// Reason for which packets are dropped, or leave the XDP datapath.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct ReasonRow {
    /// Name in counters.
    pub(crate) name: String,
    /// Meaning, in a sentence.
    pub(crate) meaning: String,
    /// Whether the XDP datapath counts it; else the graph does.
    pub(crate) xdp: bool,
}

/// All reasons for which packets are dropped, or leave the XDP datapath.
#[cfg_attr(test, utoipa::path(get, path = "/v1/drop-reasons", responses(
    (status = 200, body = Vec<ReasonRow>), (status = "default", body = ErrorDocument))))]
pub(super) async fn drop_reasons() -> Answer<Vec<ReasonRow>> {
    let row = |name: &str, meaning: &str, xdp| ReasonRow {
        name: name.to_owned(),
        meaning: meaning.to_owned(),
        xdp,
    };
    let graph = DropReason::ALL.iter().map(|reason| row(reason.name(), reason.summary(), false));
    let xdp = LeftAlone::ALL.iter().map(|reason| row(reason.name(), reason.summary(), true));
    Ok(Json(graph.chain(xdp).collect()))
}

/// Counters of one element of one worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub(crate) struct ElementStats {
    /// Name of the element.
    pub(crate) name: String,
    /// Class of the element; empty for the queues to ports.
    pub(crate) class: String,
    /// Number of the worker.
    pub(crate) worker: usize,
    /// Packets received.
    pub(crate) packets: u64,
    /// Batches received.
    pub(crate) batches: u64,
    /// Packets per batch; null without a batch.
    pub(crate) average_batch: Option<f64>,
    /// Clock cycles per packet, while it was timed; null where it was not, or received no packet.
    pub(crate) cycles: Option<f64>,
    /// Clock cycles in all, while it was timed: its share of the worker's time.
    pub(crate) ticks: Option<u64>,
    /// Packets dropped.
    pub(crate) dropped: u64,
    /// Packets dropped, by reason.
    pub(crate) reasons: BTreeMap<String, u64>,
}

/// Counters of the XDP datapath.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct DriverStats {
    /// Interfaces that forward in XDP.
    pub(crate) interfaces: Vec<String>,
    /// Packets forwarded.
    pub(crate) forwarded: u64,
    /// Packets dropped, by reason.
    pub(crate) dropped: BTreeMap<String, u64>,
    /// Packets left to the graph or the kernel, by reason.
    pub(crate) left: BTreeMap<String, u64>,
}

/// Packets and clock ticks of every element at one moment, by worker.
pub(crate) struct ElementTimes {
    /// When they were read.
    pub(crate) at: Instant,
    /// Packets and ticks of each element, in the order of the graph.
    pub(crate) workers: Vec<Vec<(u64, u64)>>,
}

/// Path of one packet through the graph.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub(crate) struct PacketTrace {
    /// Number of the packet in the trace, from 1.
    pub(crate) number: u64,
    /// Arrival time, in seconds since 1970.
    pub(crate) time: f64,
    /// Ingress interface.
    pub(crate) interface: String,
    /// The packet, and packets made because of it: ICMP errors, fragments.
    pub(crate) packets: Vec<TracedPacket>,
    /// Steps of these packets, in order.
    pub(crate) steps: Vec<TraceStep>,
    /// Whether steps or packets were left out.
    pub(crate) cut: bool,
}

/// A packet of a trace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct TracedPacket {
    /// Description of the packet, in a line.
    pub(crate) summary: String,
    /// Result: `sent`, `dropped`, `kept` (it still waits), `written` (to a file).
    pub(crate) fate: String,
    /// Drop reason.
    pub(crate) reason: Option<String>,
    /// Egress interface.
    pub(crate) interface: Option<String>,
    /// Frame as it arrived or was made, in hexadecimal digits.
    pub(crate) frame: String,
    /// Frame after the last step.
    pub(crate) last: String,
}

/// A packet in an element.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct TraceStep {
    /// Number of the packet in the trace, from 0.
    pub(crate) packet: u16,
    /// Name of the element.
    pub(crate) element: String,
    /// Class of the element.
    pub(crate) class: String,
    /// Input of the element.
    pub(crate) input: u16,
    /// `passed`, `sent`, `dropped`, `kept`, `written`.
    pub(crate) does: String,
    /// Output of the element, by number.
    pub(crate) output: Option<u16>,
    /// Name of the output, where it has one.
    pub(crate) output_name: Option<String>,
    /// Egress interface of a sent packet.
    pub(crate) interface: Option<String>,
    /// Drop reason.
    pub(crate) reason: Option<String>,
    /// Description of the drop reason.
    pub(crate) why: Option<String>,
    /// Fields that the element rewrote.
    pub(crate) changes: Vec<FieldChange>,
    /// Result of a route lookup.
    pub(crate) route: Option<TraceRoute>,
    /// Results of the lookups in VRFs that the route leads to, in their order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) vrf_routes: Vec<TraceRoute>,
    /// Notes of an interface feature on the packet: lists that match its source, rules that it matches.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) notes: Vec<String>,
    /// Path in the cluster: the node that the packet is from, or its egress node, the link to it, and the reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cluster: Option<String>,
    /// Present route in the element's own route table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) found: Option<TableRoute>,
    /// Numbers of packets that the element made because of this one.
    pub(crate) made: Vec<u16>,
}

/// A field that an element rewrote.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct FieldChange {
    /// Name of the field, or its offset.
    pub(crate) field: String,
    /// Value before the element.
    pub(crate) from: String,
    /// Value after the element.
    pub(crate) to: String,
}

/// Route of a packet in an element's own route table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct TableRoute {
    /// Longest matching prefix; null where there is none.
    pub(crate) prefix: Option<String>,
    /// Gateway of the route, where it has one.
    pub(crate) gateway: Option<String>,
}

/// Result of a route lookup for a packet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct TraceRoute {
    /// Route table.
    pub(crate) table: u32,
    /// Longest prefix that matches the destination at present; null where there is none.
    pub(crate) prefix: Option<String>,
    /// Index of the next hop or group that the lookup returned; 0 where there is no route.
    pub(crate) nexthop: u32,
    /// Forwarding action for packets of this flow, as `action` of `/v1/route`.
    pub(crate) action: String,
    /// Adjacency that packets leave by; null where they do not leave.
    pub(crate) adjacency: Option<Adjacency>,
}

/// Result of the dry run of a packet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub(crate) struct WhyAnswer {
    /// `forward`, `drop`, `wait` (for a link address), `local` (for the host itself: the kernel takes it).
    pub(crate) does: String,
    /// Result in a sentence, with its reason.
    pub(crate) verdict: String,
    /// Ingress interface of the dry run.
    pub(crate) interface: String,
    /// Route of the destination; null where the packet has no IP destination.
    pub(crate) route: Option<RouteAnswer>,
    /// Dry runs of the packet in the XDP datapath.
    pub(crate) drivers: Vec<DriverAnswer>,
    /// Dry run of the packet through the graph.
    #[serde(alias = "trial")]
    pub(crate) dry_run: PacketTrace,
}

/// Parameters of `/v1/graph`.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct GraphQuery {
    /// Seconds for which elements are timed, at most 60; the answer takes as long. Clients that may not change anything have 4
    /// such requests in progress in all.
    pub(crate) cycles: Option<f64>,
}

/// Elements of the workers, with their counters and clock cycles.
#[cfg_attr(test, utoipa::path(get, path = "/v1/graph", params(GraphQuery), responses(
    (status = 200, body = GraphStats), (status = "default", body = ErrorDocument))))]
pub(super) async fn graph(
    State(requests): State<Requests>,
    Extension(connection): Extension<Arc<Connection>>,
    Extension(timings): Extension<Timings>,
    Parameters(GraphQuery { cycles }): Parameters<GraphQuery>,
) -> Answer<GraphStats> {
    let Some(seconds) = cycles else {
        return requests.call(|backend| backend.graph_stats(None)).await.map(Json);
    };
    if !(seconds > 0.0 && seconds <= LONGEST_TIMING) {
        let words = format!("more than 0 and at most {LONGEST_TIMING} seconds");
        return Err(ApiError::at(Code::BadRequest, "cycles", words));
    }
    let _timing = timings.begin(&connection)?;
    // Nothing is lost with it that its client cannot request again.
    let gives_way = Streaming::begin(&connection);
    let time = Duration::from_secs_f64(seconds);
    requests.call(move |backend| backend.time_elements(time + 10 * SETTLING)).await?;
    tokio::time::sleep(SETTLING).await;
    let before = requests.call(|backend| backend.element_times()).await?;
    tokio::time::sleep(time).await;
    drop(gives_way);
    requests.call(move |backend| backend.graph_stats(Some(&before))).await.map(Json)
}

/// Replaces the graph of all workers by another one in Click's language. Elements of equal name and class keep their
/// state; no packet is lost.
#[cfg_attr(test, utoipa::path(put, path = "/v1/graph", request_body = ConfigText, responses(
    (status = 200, body = GraphStats), (status = "default", body = ErrorDocument))))]
pub(super) async fn swap(
    State(requests): State<Requests>,
    Document(text): Document<ConfigText>,
) -> Answer<GraphStats> {
    requests.call(move |backend| backend.swap_graph(&text)).await?.map(Json)
}

/// Parameters of `/v1/trace`.
#[derive(Clone, Debug, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct TraceQuery {
    /// Number of packets to trace, at most 1000.
    pub(crate) packets: u32,
    /// Packets to trace, in the language of Click's IPFilter.
    pub(crate) filter: String,
    /// Longest wait for packets, in seconds: at most 3600.
    pub(crate) seconds: f64,
}

/// Paths of the next packets that a filter matches, a JSON line each, as they arrive. One trace at a time.
#[cfg_attr(test, utoipa::path(get, path = "/v1/trace", params(TraceQuery), responses(
    (status = 200, body = PacketTrace, content_type = LINES), (status = "default", body = ErrorDocument))))]
pub(super) async fn trace(
    State(requests): State<Requests>,
    Extension(connection): Extension<Arc<Connection>>,
    Parameters(query): Parameters<TraceQuery>,
) -> Result<Response, ApiError> {
    if !(query.seconds > 0.0 && query.seconds <= LONGEST_TRACE) {
        let words = format!("more than 0 and at most {LONGEST_TRACE} seconds");
        return Err(ApiError::at(Code::BadRequest, "seconds", words));
    }
    let session = requests.call(move |backend| backend.open_trace(&query)).await??;
    let (to, body) = mpsc::channel(2);
    tokio::spawn(async move {
        let number = session.number();
        let next = || requests.call(move |backend| backend.next_traces(number));
        while let Ok((traces, more)) = next().await {
            if !traces.is_empty() && to.send(Ok(lines(&traces).into())).await.is_err() {
                return;
            }
            if !more {
                return;
            }
            tokio::select! {
                () = tokio::time::sleep(LOOK) => {}
                () = to.closed() => return,
            }
        }
    });
    Ok(streamed(body, &connection))
}

/// Parameters of `/v1/why`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct WhyQuery {
    /// Destination address of a packet that is made up.
    pub(crate) addr: Option<String>,
    /// Flow of that packet: `SRC,DST,PROTOCOL,SPORT,DPORT`.
    pub(crate) flow: Option<String>,
    /// Frame in hexadecimal digits, from its Ethernet header on, instead of `addr`.
    pub(crate) packet: Option<String>,
    /// Ingress interface; by default one that the packet may arrive on.
    pub(crate) interface: Option<String>,
}

/// Dry run of a packet: what the router does with it, and why. Nothing is sent, and no state changes.
#[cfg_attr(test, utoipa::path(get, path = "/v1/why", params(WhyQuery), responses(
    (status = 200, body = WhyAnswer), (status = "default", body = ErrorDocument))))]
pub(super) async fn why(
    State(requests): State<Requests>,
    Parameters(query): Parameters<WhyQuery>,
) -> Answer<WhyAnswer> {
    requests.call(move |backend| backend.why(&query)).await?.map(Json)
}
