//! What is said of packets: counts of elements, ways of single packets, trials. The types are JSON as those of
//! `model.rs`; paths are beside them.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::response::Response;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use utoipa::{IntoParams, ToSchema};

use super::backend::Ask;
use super::error::{ApiError, Code, ErrorDocument};
use super::extract::{Document, Parameters};
use super::model::{Adjacency, ConfigText, DriverAnswer, RouteAnswer};
use super::streams::{LINES, lines, streamed};

/// Longest time for which elements are timed on one request, in seconds.
const LONGEST_TIMING: f64 = 60.0;
/// Workers take up what they are told within this time.
const SETTLING: Duration = Duration::from_millis(20);
/// Between two looks whether a packet was traced.
const LOOK: Duration = Duration::from_millis(20);
/// Longest wait for packets to trace, in seconds.
const LONGEST_TRACE: f64 = 3600.0;

/// Elements at work, and what became of packets in them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub(crate) struct GraphStats {
    /// The elements of each worker, and a row `(ports)` for what waits to be sent.
    pub(crate) elements: Vec<ElementStats>,
    /// For how long the elements were timed, in seconds; null where that was not asked for, or there is no clock
    /// to do it by.
    pub(crate) timed: Option<f64>,
    /// What the programs in drivers did with packets that no element saw.
    pub(crate) drivers: DriverStats,
}

/// What one element of one worker counted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub(crate) struct ElementStats {
    /// Its name.
    pub(crate) name: String,
    /// Its class; empty for the queues to ports.
    pub(crate) class: String,
    /// Number of the worker.
    pub(crate) worker: usize,
    /// Packets that reached it.
    pub(crate) packets: u64,
    /// Batches that reached it.
    pub(crate) batches: u64,
    /// Packets a batch; null where there was none.
    pub(crate) average_batch: Option<f64>,
    /// Cycles of the processor's clock a packet, while it was timed; null where it was not, or no packet came.
    pub(crate) cycles: Option<f64>,
    /// The same, all of them: its share of the worker's work.
    pub(crate) ticks: Option<u64>,
    /// Packets that ended at it.
    pub(crate) dropped: u64,
    /// The same, by reason.
    pub(crate) reasons: BTreeMap<String, u64>,
}

/// What programs in drivers did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct DriverStats {
    /// Interfaces that forward in the driver.
    pub(crate) interfaces: Vec<String>,
    /// Packets that they forwarded.
    pub(crate) forwarded: u64,
    /// Packets that ended there, by reason.
    pub(crate) dropped: BTreeMap<String, u64>,
    /// Packets that they left to the graph or the kernel, by reason.
    pub(crate) left: BTreeMap<String, u64>,
}

/// The way of one packet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub(crate) struct PacketTrace {
    /// Its number among those that were asked for, from 1.
    pub(crate) number: u64,
    /// When it came, in seconds since 1970.
    pub(crate) time: f64,
    /// By which interface.
    pub(crate) interface: String,
    /// The packet itself, and those that were made because of it: errors, fragments.
    pub(crate) packets: Vec<TracedPacket>,
    /// What happened to them, in order.
    pub(crate) steps: Vec<TraceStep>,
    /// There was more than is told.
    pub(crate) cut: bool,
}

/// A packet of a trace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct TracedPacket {
    /// In a line.
    pub(crate) summary: String,
    /// What became of it: `sent`, `dropped`, `kept` (it waits still), `written` (to a file).
    pub(crate) fate: String,
    /// Why it was dropped.
    pub(crate) reason: Option<String>,
    /// The interface that it left by.
    pub(crate) interface: Option<String>,
    /// The frame as it came or was made, in hexadecimal digits.
    pub(crate) frame: String,
    /// The frame as it was seen last.
    pub(crate) last: String,
}

/// A packet in an element.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct TraceStep {
    /// Its number among the packets of the trace, from 0.
    pub(crate) packet: u16,
    /// The element.
    pub(crate) element: String,
    /// Its class.
    pub(crate) class: String,
    /// The input that the packet came by.
    pub(crate) input: u16,
    /// `passed`, `sent`, `dropped`, `kept`, `written`.
    pub(crate) does: String,
    /// The output that it took, by number.
    pub(crate) output: Option<u16>,
    /// The same, by name, where it has one.
    pub(crate) output_name: Option<String>,
    /// The interface that it was sent by.
    pub(crate) interface: Option<String>,
    /// Why it was dropped.
    pub(crate) reason: Option<String>,
    /// The same in a line.
    pub(crate) why: Option<String>,
    /// Fields that the element rewrote.
    pub(crate) changes: Vec<FieldChange>,
    /// Of a lookup: what it found.
    pub(crate) route: Option<TraceRoute>,
    /// What an interface feature does with the packet: lists that its source is on, rules that it matches.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) notes: Vec<String>,
    /// Of an element that has a route table of its own: what is found there by now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) found: Option<TableRoute>,
    /// Numbers of packets that the element made because of it.
    pub(crate) made: Vec<u16>,
}

/// A field before and behind an element.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct FieldChange {
    /// Its name, or its bytes.
    pub(crate) field: String,
    /// Before.
    pub(crate) from: String,
    /// Behind.
    pub(crate) to: String,
}

/// What an element's own route table has for a packet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct TableRoute {
    /// The longest prefix that holds the destination; null where there is none.
    pub(crate) prefix: Option<String>,
    /// The gateway of its route, where it has one.
    pub(crate) gateway: Option<String>,
}

/// What a lookup found for a packet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct TraceRoute {
    /// Routing table.
    pub(crate) table: u32,
    /// The longest prefix that holds the destination by now; null where there is none.
    pub(crate) prefix: Option<String>,
    /// Index of the next hop or group that the lookup answered with; 0 where there is no route.
    pub(crate) nexthop: u32,
    /// What packets of this flow meet: as `forwarding action` of a route.
    pub(crate) action: String,
    /// How they leave, where they do.
    pub(crate) adjacency: Option<Adjacency>,
}

/// What would become of a packet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub(crate) struct WhyAnswer {
    /// `forward`, `drop`, `wait` (for a link address), `local` (for the host itself: the kernel takes it).
    pub(crate) does: String,
    /// The same in a sentence, with the reason.
    pub(crate) verdict: String,
    /// The interface that it was tried at.
    pub(crate) interface: String,
    /// The route of its destination; null where it has none that could be asked for.
    pub(crate) route: Option<RouteAnswer>,
    /// What the programs in drivers do with this very packet, untouched by the graph.
    pub(crate) drivers: Vec<DriverAnswer>,
    /// A run of the packet through an instance of the graph that sends nothing.
    pub(crate) trial: PacketTrace,
}

/// Parameters of `/v1/graph`.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct GraphQuestion {
    /// Time the elements for so many seconds (at most 60): the answer takes as long.
    pub(crate) cycles: Option<f64>,
}

/// Elements of the workers, what they count, and what they take.
#[utoipa::path(get, path = "/v1/graph", params(GraphQuestion), responses(
    (status = 200, body = GraphStats), (status = "default", body = ErrorDocument)))]
pub(super) async fn graph(
    State(ask): State<Ask>,
    Parameters(GraphQuestion { cycles }): Parameters<GraphQuestion>,
) -> Result<Json<GraphStats>, ApiError> {
    let Some(seconds) = cycles else {
        return Ok(Json(ask.ask(|daemon| daemon.graph_stats(None)).await?));
    };
    if !(seconds > 0.0 && seconds <= LONGEST_TIMING) {
        let words = format!("more than 0 and at most {LONGEST_TIMING} seconds");
        return Err(ApiError::at(Code::BadRequest, "cycles", words));
    }
    let time = Duration::from_secs_f64(seconds);
    ask.ask(move |daemon| daemon.time_elements(time + 10 * SETTLING)).await?;
    tokio::time::sleep(SETTLING).await;
    let before = ask.ask(|daemon| daemon.timing()).await?;
    tokio::time::sleep(time).await;
    Ok(Json(ask.ask(move |daemon| daemon.graph_stats(Some(&before))).await?))
}

/// Replaces the graph of all workers by another one in Click's language. What the elements of equal name and class
/// know stays; no packet is lost.
#[utoipa::path(put, path = "/v1/graph", request_body = ConfigText, responses(
    (status = 200, body = GraphStats), (status = "default", body = ErrorDocument)))]
pub(super) async fn swap(
    State(ask): State<Ask>,
    Document(text): Document<ConfigText>,
) -> Result<Json<GraphStats>, ApiError> {
    ask.ask(move |daemon| daemon.swap_graph(&text)).await?.map(Json)
}

/// Parameters of `/v1/trace`.
#[derive(Clone, Debug, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct TraceQuestion {
    /// How many packets, at most 1000.
    pub(crate) packets: u32,
    /// Which ones, in the language of Click's IPFilter.
    pub(crate) filter: String,
    /// For how long to wait for them, in seconds: at most 3600.
    pub(crate) seconds: f64,
}

/// The ways of the next packets that a filter takes, a JSON line each, as they come. One trace at a time.
#[utoipa::path(get, path = "/v1/trace", params(TraceQuestion), responses(
    (status = 200, body = PacketTrace, content_type = LINES), (status = "default", body = ErrorDocument)))]
pub(super) async fn trace(
    State(ask): State<Ask>,
    Parameters(question): Parameters<TraceQuestion>,
) -> Result<Response, ApiError> {
    if !(question.seconds > 0.0 && question.seconds <= LONGEST_TRACE) {
        let words = format!("more than 0 and at most {LONGEST_TRACE} seconds");
        return Err(ApiError::at(Code::BadRequest, "seconds", words));
    }
    let number = ask.ask(move |daemon| daemon.begin_trace(&question)).await??;
    let (to, body) = mpsc::channel(2);
    tokio::spawn(async move {
        while let Ok((traces, more)) = ask.ask(move |daemon| daemon.next_traces(number)).await {
            if !traces.is_empty() && to.send(Ok(lines(&traces).into())).await.is_err() {
                break;
            }
            if !more {
                return;
            }
            tokio::select! {
                () = tokio::time::sleep(LOOK) => {}
                () = to.closed() => break,
            }
        }
        // Whoever asked is gone, or the daemon is.
        let _ = ask.ask(move |daemon| daemon.end_trace(number)).await;
    });
    Ok(streamed(body))
}

/// Parameters of `/v1/why`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct WhyQuestion {
    /// To which address; a packet is made up.
    pub(crate) addr: Option<String>,
    /// Of which flow it is then: `SRC,DST,PROTOCOL,SPORT,DPORT`.
    pub(crate) flow: Option<String>,
    /// Or this frame, in hexadecimal digits, from its Ethernet header on.
    pub(crate) packet: Option<String>,
    /// The interface that it comes in by; without it, one that it may come in by.
    pub(crate) interface: Option<String>,
}

/// What would become of a packet, and why: its route, the programs in drivers, and a run through the graph that
/// sends nothing.
#[utoipa::path(get, path = "/v1/why", params(WhyQuestion), responses(
    (status = 200, body = WhyAnswer), (status = "default", body = ErrorDocument)))]
pub(super) async fn why(
    State(ask): State<Ask>,
    Parameters(question): Parameters<WhyQuestion>,
) -> Result<Json<WhyAnswer>, ApiError> {
    ask.ask(move |daemon| daemon.why(&question)).await?.map(Json)
}
