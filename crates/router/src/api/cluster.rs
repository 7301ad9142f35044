//! The node of a cluster over the API: its state and that of the other members, and draining it.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::backend::Requests;
use super::error::ApiError;
#[cfg(test)]
use super::error::ErrorDocument;
use super::extract::Document;
use super::server::{Answer, run};

/// State of a cluster as one of its nodes has it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub(crate) struct ClusterStatus {
    /// Id of this node.
    pub(crate) node: String,
    /// Number of this node.
    pub(crate) number: u16,
    /// Number of the cluster.
    pub(crate) cluster: u8,
    /// `direct` or `vlb`.
    pub(crate) mode: String,
    /// Rule of the path choice: `vlb`, `fixed` or `adaptive`.
    pub(crate) rule: String,
    /// Milliseconds without a packet after which a flow may take another path.
    pub(crate) flowlet_ms: u64,
    /// `active`, or `draining`.
    pub(crate) state: String,
    /// Fabric interface.
    pub(crate) interface: String,
    /// Longest time until a failed link is down, in milliseconds, where its interface does not show it at once.
    pub(crate) detection_ms: f64,
    /// Store that has the members; null where they are those of the configuration.
    pub(crate) store: Option<ClusterStore>,
    /// Parameters that the store has for all nodes; null without a store.
    pub(crate) parameters: Option<ClusterParameters>,
    /// Thread that sends and receives the probes of the links.
    pub(crate) probes: ClusterProbes,
    /// What is wrong between the records of the members.
    pub(crate) conflicts: Vec<String>,
    /// Members, this node among them, by number.
    pub(crate) members: Vec<ClusterMember>,
    /// Packets by what this node did with them.
    pub(crate) packets: ClusterPackets,
    /// Dropped frames and packets of the fabric by reason, in XDP and in the graph.
    pub(crate) drops: Vec<ClusterDrops>,
    /// Frames of internal interfaces that XDP left to the graph, by reason.
    pub(crate) left_xdp: Vec<ClusterDrops>,
}

/// Thread of the probes of a node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub(crate) struct ClusterProbes {
    /// Longest time that it was late for an interval, in milliseconds.
    pub(crate) most_late_ms: f64,
    /// Intervals that it was late for by so much that other nodes may have found the links of this one down: the machine had no
    /// processor for it.
    pub(crate) late_intervals: u64,
    /// Probes that an interface did not take.
    pub(crate) unsent: u64,
    /// Frames with the EtherType of the fabric that are no probes of this cluster.
    pub(crate) refused: u64,
    /// Why the thread has no real-time priority; null where it has it.
    pub(crate) scheduling: Option<String>,
}

/// Store that has the members of a cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub(crate) struct ClusterStore {
    /// `etcd` or `nats`.
    pub(crate) kind: String,
    /// URLs of it.
    pub(crate) endpoints: Vec<String>,
    /// `in_sync`; `lost` while it does not answer: the last known members stand.
    pub(crate) state: String,
    /// Seconds since it answered last; null while it does.
    pub(crate) lost_for_s: Option<u64>,
    /// Why this node is not registered there at present.
    pub(crate) error: Option<String>,
    /// Neighbors that this node announces, with an adjacency index each.
    pub(crate) announced: usize,
}

/// Parameters of a cluster, as the store has them for all nodes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub(crate) struct ClusterParameters {
    /// Number of the change that made them; 0 while this node could read none.
    pub(crate) version: u64,
    /// Mode of the fabric. Another one than that in use becomes active when no member lags behind, or two TTLs later.
    pub(crate) mode: String,
    /// Rule of the path choice.
    pub(crate) rule: String,
    /// Milliseconds without a packet after which a flow may take another path.
    pub(crate) flowlet_ms: u32,
    /// Rate of each internal link in bit/s; null: that of the configurations.
    pub(crate) rate_bps: Option<u64>,
    /// Shares of transit by member, where they are not those of the configurations.
    pub(crate) weights: BTreeMap<String, u32>,
    /// Members that are to carry nothing for others.
    pub(crate) draining: Vec<String>,
    /// Members that have not reported this version.
    pub(crate) lagging: Vec<String>,
    /// Why the value in the store is not used.
    pub(crate) error: Option<String>,
}

/// Change of the parameters of a cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ParameterChange {
    /// Values by parameter: `mode`, `rule`, `flowlet_ms`, `rate`, `weight.NODE`, `state.NODE`. Others stay.
    pub(crate) set: BTreeMap<String, String>,
}

/// A member of a cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub(crate) struct ClusterMember {
    /// Id of the node.
    pub(crate) id: String,
    /// Number of the node.
    pub(crate) number: u16,
    /// `active`, `draining` or `down`.
    pub(crate) state: String,
    /// Share of transit.
    pub(crate) weight: u32,
    /// Addresses of the node.
    pub(crate) loopbacks: Vec<String>,
    /// Adjacency epoch of the node.
    pub(crate) epoch: u8,
    /// Version of the parameters that the node has read; null without a store.
    pub(crate) parameters: Option<u64>,
    /// Link to the node; null for this one.
    pub(crate) link: Option<MemberLink>,
}

/// An internal link.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub(crate) struct MemberLink {
    /// Interface.
    pub(crate) interface: String,
    /// Whether packets pass in both directions.
    pub(crate) up: bool,
    /// Why it is down.
    pub(crate) why: Option<String>,
    /// Rate in bit/s, 2R/N in a mesh; null where it is not limited.
    pub(crate) rate_bps: Option<u64>,
    /// Sent in the last second, in bit/s.
    pub(crate) load_bps: u64,
    /// Load as a share of the rate.
    pub(crate) load: Option<f64>,
    /// Time that the packets waiting for it take, in microseconds.
    pub(crate) backlog_us: f64,
    /// Bytes sent.
    pub(crate) bytes: u64,
    /// Dropped packets in transit, beyond the rate.
    pub(crate) transit_dropped: u64,
    /// Dropped packets of this node, beyond the rate.
    pub(crate) local_dropped: u64,
    /// Probes received.
    pub(crate) probes: u64,
    /// Times that it went down.
    pub(crate) downs: u64,
}

/// Packets of a node by what it did with them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub(crate) struct ClusterPackets {
    /// Packets sent straight to their egress node.
    pub(crate) direct: u64,
    /// Packets sent to an intermediate node.
    pub(crate) balanced: u64,
    /// Frames of other nodes sent on to their egress node.
    pub(crate) transit: u64,
    /// Packets that left by the adjacency that their frame names.
    pub(crate) output: u64,
    /// Packets looked up at this node, their egress node.
    pub(crate) looked_up: u64,
    /// Packets for this host.
    pub(crate) host: u64,
    /// Flowlets begun.
    pub(crate) flowlets: u64,
    /// Flowlets moved since their path failed.
    pub(crate) rechosen: u64,
    /// Packets of flowlets whose link was full.
    pub(crate) sprayed: u64,
    /// Share of the packets sent to other nodes that took another path than the one before in their flowlet, since its path failed
    /// or its link was full: as many as this node can have reordered, at most.
    pub(crate) path_change_share: f64,
    /// Share of transit in all frames that this node sent to others.
    pub(crate) transit_share: f64,
}

/// Frames or packets with one reason.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub(crate) struct ClusterDrops {
    /// Reason.
    pub(crate) reason: String,
    /// How many.
    pub(crate) packets: u64,
}

/// What a node is to carry.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Drain {
    /// Whether the node is to carry nothing for other nodes any more.
    pub(crate) draining: bool,
}

/// The cluster as this node has it.
#[cfg_attr(test, utoipa::path(get, path = "/v1/cluster", responses(
    (status = 200, body = ClusterStatus), (status = "default", body = ErrorDocument))))]
pub(super) async fn cluster(State(requests): State<Requests>) -> Answer<ClusterStatus> {
    requests.call(|backend| backend.cluster()).await?.map(Json)
}

/// Drains this node, or ends that.
#[cfg_attr(test, utoipa::path(post, path = "/v1/cluster/drain", request_body = Drain, responses(
    (status = 200, body = ClusterStatus), (status = "default", body = ErrorDocument))))]
pub(super) async fn drain(
    State(requests): State<Requests>,
    Document(drain): Document<Drain>,
) -> Answer<ClusterStatus> {
    let done = move |backend: &mut dyn super::backend::Backend| -> Result<_, ApiError> {
        backend.drain(drain)?;
        backend.cluster()
    };
    requests.call(done).await?.map(Json)
}

/// Longest that the answer to a change waits until this node runs by it, in looks, and the time between two.
const LOOKS: usize = 80;
const LOOK: Duration = Duration::from_millis(25);

/// Changes the parameters of the cluster in its store.
#[cfg_attr(test, utoipa::path(post, path = "/v1/cluster/parameters", request_body = ParameterChange, responses(
    (status = 200, body = ClusterStatus), (status = "default", body = ErrorDocument))))]
pub(super) async fn set_parameters(
    State(requests): State<Requests>,
    Document(change): Document<ParameterChange>,
) -> Answer<ClusterStatus> {
    let job = requests.call(move |backend| backend.change_parameters(&change)).await??;
    let version = run(job).await?;
    // The change is made: the reply must not read as if it was not.
    let cluster = || requests.call(|backend| backend.cluster());
    let mut status = cluster().await.map_err(ApiError::not_visible_if_stopping)??;
    for _ in 0..LOOKS {
        if status.parameters.as_ref().is_some_and(|parameters| parameters.version >= version) {
            break;
        }
        tokio::time::sleep(LOOK).await;
        status = cluster().await.map_err(ApiError::not_visible_if_stopping)??;
    }
    Ok(Json(status))
}
