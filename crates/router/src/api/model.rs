//! Documents of the API: every struct is a JSON object, its fields a promise to scripts.
//!
//! The command line reads the same types back, so that a command prints as text what a program reads as JSON. Addresses
//! and prefixes are strings in their usual notation.

use std::collections::BTreeMap;

use fingerpost_route::MAIN_TABLE;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::access::Requester;

/// Route table of a request: the main one where it names none, or table 0, as the kernel does.
pub(crate) fn table_or_main(table: Option<u32>) -> u32 {
    table.filter(|table| *table != 0).unwrap_or(MAIN_TABLE)
}

/// One path of a route.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct Path {
    /// Address of the gateway; null where the destination itself is on the link.
    pub(crate) gateway: Option<String>,
    /// Egress interface; null where the route to the gateway decides.
    pub(crate) dev: Option<String>,
    /// Share among the paths of the route.
    pub(crate) weight: u32,
    /// Seconds until the path of a route expires; left out where it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) expires: Option<u64>,
    /// Number of the next-hop object that is this member of a group of objects; left out elsewhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) object: Option<u32>,
}

/// A route: a prefix with its paths from one source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct Route {
    /// Destination prefix.
    pub(crate) prefix: String,
    /// Route table; 254 is the main one.
    pub(crate) table: u32,
    /// Name of the route source.
    pub(crate) source: String,
    /// Administrative distance; lower wins.
    pub(crate) distance: u8,
    /// Metric, which decides between equal distances; lower wins.
    pub(crate) metric: u32,
    /// Whether it is the best route of its prefix, which packets take.
    pub(crate) best: bool,
    /// Kind of route: `via`, `object` (by a next-hop object of its source, except one that drops packets), `local`,
    /// `blackhole`, `unreachable`, `prohibit`.
    pub(crate) kind: String,
    /// Number of the next-hop object that it names, of its source; left out where it names none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) object: Option<u32>,
    /// Its paths, or those of its next-hop object; empty where it does not forward.
    pub(crate) paths: Vec<Path>,
    /// MTU of the route, in bytes; null for that of the link.
    pub(crate) mtu: Option<u16>,
    /// Index of its next hop or group.
    pub(crate) nexthop: u32,
    /// Seconds until a route without paths expires; left out where it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) expires: Option<u64>,
}

/// Parameters of `/v1/route`.
#[derive(Clone, Debug, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct RouteQuery {
    /// Destination address.
    pub(crate) addr: String,
    /// Whether the answer has the steps of the lookup.
    #[serde(default)]
    pub(crate) explain: bool,
    /// Flow whose member of a group is wanted: `SRC,DST,PROTOCOL,SPORT,DPORT`.
    pub(crate) flow: Option<String>,
    /// Route table; the main one by default.
    pub(crate) table: Option<u32>,
}

/// The answer to `route get`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub(crate) struct RouteAnswer {
    /// Address that was looked up.
    pub(crate) addr: String,
    /// Route table.
    pub(crate) table: u32,
    /// Longest matching prefix in the RIB; null where there is no route.
    pub(crate) prefix: Option<String>,
    /// All routes of that prefix, the best first.
    pub(crate) candidates: Vec<Route>,
    /// Index of the next hop or group that the live lookup returned; 0 where there is no route.
    pub(crate) nexthop: u32,
    /// Whether lookup and RIB agree.
    pub(crate) agrees: bool,
    /// Best-path changes of the table that the lookup does not have yet: until it has them, the two may differ.
    #[serde(default)]
    pub(crate) pending: usize,
    /// Lookup algorithm.
    pub(crate) algorithm: String,
    /// The group, where the answer is one, with its members.
    pub(crate) group: Option<GroupAnswer>,
    /// Forwarding action: `adjacency`, `glean` (the destination is on the link, and its link address is resolved first),
    /// `local`, `blackhole`, `unreachable`, `prohibit`, `vrf` (looked up again in the VRF of its interface), `none`;
    /// null for a group without a flow.
    pub(crate) action: Option<String>,
    /// Adjacency that packets leave by; null where they do not leave.
    pub(crate) adjacency: Option<Adjacency>,
    /// Memory reads of the lookup, with `explain`.
    #[serde(default)]
    pub(crate) steps: Vec<Step>,
    /// What the XDP datapath does with such a packet, with `explain`.
    #[serde(default)]
    pub(crate) drivers: Vec<DriverAnswer>,
}

/// Dry run of a packet in the XDP datapath of some interfaces.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct DriverAnswer {
    /// Interfaces whose XDP programs have this result.
    pub(crate) interfaces: Vec<String>,
    /// Route table of these programs.
    pub(crate) table: u32,
    /// Flow of the packet: `SRC,DST,PROTOCOL,SPORT,DPORT`.
    pub(crate) packet: String,
    /// Index of the next hop or group that the programs' own lookup returns; null where they read no table of this
    /// family.
    pub(crate) nexthop: Option<u32>,
    /// `forward`, `drop`, `leave` (unchanged, to the graph or the kernel), `none` (there is no program).
    pub(crate) does: String,
    /// Adjacency that the packet leaves by; null where it does not leave.
    pub(crate) adjacency: Option<Adjacency>,
    /// Name of the reason of `drop` and `leave`.
    pub(crate) reason: Option<String>,
    /// Description of that reason, or why there is no program.
    pub(crate) why: Option<String>,
}

/// Next-hop group of a lookup.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub(crate) struct GroupAnswer {
    /// Number of slots; 0 while one member takes all flows.
    pub(crate) slots: u32,
    /// Flow hash of the flow in the request.
    pub(crate) hash: Option<u32>,
    /// Slot of that flow, from 0.
    pub(crate) slot: Option<u32>,
    /// Members, with their present share of flows.
    #[serde(default)]
    pub(crate) members: Vec<Member>,
}

/// What a packet needs to leave: interface, MTU and link addresses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct Adjacency {
    /// Index of the adjacency.
    pub(crate) index: u32,
    /// Egress interface.
    pub(crate) interface: String,
    /// Address of the neighbor; null on links without link addresses.
    pub(crate) neighbor: Option<String>,
    /// Whether the neighbor's link address is known.
    pub(crate) resolved: bool,
    /// Whether resolution failed: the neighbor did not reply.
    pub(crate) failed: bool,
    /// Link address of the neighbor.
    pub(crate) dst_mac: Option<String>,
    /// Link address of the interface.
    pub(crate) src_mac: Option<String>,
    /// MTU, in bytes.
    pub(crate) mtu: Option<u16>,
}

/// One memory read of a lookup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct Step {
    /// Region of the structure.
    pub(crate) region: String,
    /// Offset of the read in the region, in bytes.
    pub(crate) offset: usize,
    /// Value that was read.
    pub(crate) value: u64,
    /// Meaning of the value.
    pub(crate) note: String,
}

/// A next hop, after the columns of FreeBSD's `netstat -4onW`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct NextHop {
    /// Index that lookups return.
    pub(crate) index: u32,
    /// `v4/gw`, `v6/gw` (by the gateway's family), `resolve` (the destination is on the link),
    /// `ranked` (the best of several that leads anywhere), `object`, `local`, `blackhole`, `unreachable`, `prohibit`.
    #[serde(rename = "type")]
    pub(crate) kind: String,
    /// ID of the source's next-hop object; null where it is none.
    #[serde(default)]
    pub(crate) object: Option<u32>,
    /// Present egress interface; null where there is none, or more than one.
    pub(crate) interface: Option<String>,
    /// Address of the gateway.
    pub(crate) gateway: Option<String>,
    /// Flags of `netstat`: `G` gateway, `H` host, `R` reject, `B` blackhole, `D` redirect, `b` broadcast;
    /// and `M` group, `d` default route.
    pub(crate) flags: String,
    /// Packets that left by its adjacencies.
    #[serde(rename = "use")]
    pub(crate) used: u64,
    /// MTU, in bytes: the least of the link and the routes.
    pub(crate) mtu: Option<u16>,
    /// Routes and groups that name it.
    pub(crate) references: u32,
    /// Lists of alternatives, so far, that it stands for alone, as there were too many.
    #[serde(default)]
    pub(crate) shortened: u32,
}

/// A group of weighted next hops.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub(crate) struct Group {
    /// Index that lookups return.
    pub(crate) index: u32,
    /// `group`, or `object` for a group of the source's own making.
    #[serde(rename = "type")]
    pub(crate) kind: String,
    /// ID of the source's next-hop object; null where it is none.
    #[serde(default)]
    pub(crate) object: Option<u32>,
    /// Slots that flows are spread over; 0 while one member takes all flows.
    pub(crate) slots: u32,
    /// Packets that left by its members' adjacencies.
    #[serde(rename = "use")]
    pub(crate) used: u64,
    /// Routes that name it.
    pub(crate) references: u32,
    /// Members, with their present share of flows: a member that is down has no slots.
    pub(crate) members: Vec<Member>,
}

/// A member of a group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub(crate) struct Member {
    /// Address of the gateway.
    pub(crate) gateway: Option<String>,
    /// Egress interface.
    pub(crate) interface: Option<String>,
    /// Configured weight.
    pub(crate) weight: u32,
    /// Slots of the member.
    pub(crate) slots: u32,
    /// Share of flows that take the member, 0 to 1.
    #[serde(default)]
    pub(crate) share: f64,
    /// ID of the next-hop object; null where the group is not made of objects.
    #[serde(default)]
    pub(crate) object: Option<u32>,
    /// MTU, in bytes: the least of the link and the routes.
    pub(crate) mtu: Option<u16>,
}

/// Lookup table of one family.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub(crate) struct Fib {
    /// 4 or 6.
    pub(crate) family: u8,
    /// Route table; 254 is the main one.
    pub(crate) table: u32,
    /// Whether the table holds all paths of the route table, not only the best ones: for feasible uRPF.
    pub(crate) paths: bool,
    /// Lookup algorithm in use.
    pub(crate) algorithm: String,
    /// `auto`, `measured`, or the name of the algorithm that is pinned.
    pub(crate) choice: String,
    /// Generation that readers see.
    pub(crate) generation: u64,
    /// Prefixes with a route.
    pub(crate) prefixes: usize,
    /// Routes, those that are not the best included.
    pub(crate) routes: usize,
    /// Bytes that lookups can touch.
    pub(crate) bytes: usize,
    /// Bytes per prefix; null for fewer than 1,000 prefixes, where the fixed parts of a structure prevail.
    pub(crate) bytes_per_prefix: Option<f64>,
    /// Bytes of all candidates.
    pub(crate) rib_bytes: usize,
    /// Bytes of RIB and lookup structure per route; null for fewer than 1,000 routes.
    pub(crate) bytes_per_route: Option<f64>,
    /// Best-path changes that readers do not see yet.
    pub(crate) pending: usize,
    /// Age of the oldest change that readers do not see, in milliseconds; null where there is none.
    pub(crate) behind_ms: Option<f64>,
    /// Changes applied in place so far.
    pub(crate) applied: u64,
    /// Structures built so far.
    pub(crate) builds: u64,
    /// Builds and changes that failed.
    pub(crate) failures: u64,
    /// Routes with wrong lookup results, as far as the auditor has found.
    pub(crate) mismatch_routes: usize,
    /// Routes among them with wrong results in the XDP datapath.
    #[serde(default)]
    pub(crate) mismatch_routes_xdp: usize,
    /// Addresses that the auditor has compared so far.
    pub(crate) audited: u64,
    /// Addresses among them that were looked up in the XDP datapath as well.
    #[serde(default)]
    pub(crate) audited_xdp: u64,
    /// Complete passes of the auditor.
    pub(crate) audit_passes: u64,
    /// Duration of the latest build, in milliseconds.
    pub(crate) last_build_ms: f64,
    /// Longest time from a change until readers saw it, in milliseconds.
    pub(crate) longest_delay_ms: f64,
    /// Algorithms that failed for this table and are not tried again.
    pub(crate) banned: Vec<String>,
    /// Fitness of each algorithm for the table as it is.
    #[serde(default)]
    pub(crate) fitness: Vec<Fitness>,
    /// Memory that the XDP datapath reads as well; null where it reads none of the table.
    #[serde(default)]
    pub(crate) shared: Option<SharedMemory>,
    /// Whether the XDP datapath reads the table: packets of tables that it does not read leave it for the graph. Null
    /// where no interface has an XDP program that forwards.
    #[serde(default)]
    pub(crate) in_xdp: Option<bool>,
}

/// Fitness of an algorithm for a table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct Fitness {
    /// Name of the algorithm.
    pub(crate) name: String,
    /// Its score, 0 to 255: the highest is chosen, unless one is pinned.
    pub(crate) fitness: u8,
}

impl Fib {
    /// Warning that packets of the table leave the XDP datapath, if they do.
    pub(crate) fn leaves_xdp(&self) -> Option<String> {
        let Self { family, table, algorithm, .. } = self;
        (self.in_xdp == Some(false) && !self.paths).then(|| {
            format!(
                "IPv{family} packets of table {table} leave XDP for the graph: the XDP datapath reads no table of \
                 {algorithm}"
            )
        })
    }
}

/// Memory of a table that the XDP datapath reads as well.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub(crate) struct SharedMemory {
    /// Bytes of this table in use.
    pub(crate) used: usize,
    /// Bytes in use per prefix; null for fewer than 1,000 prefixes.
    pub(crate) used_per_prefix: Option<f64>,
    /// Bytes reserved for this table, including room for growth.
    pub(crate) reserved: usize,
    /// Bytes reserved in all: tables of both families, tables being replaced, next hops.
    pub(crate) total_reserved: usize,
    /// Limit of all reserved bytes (`[xdp] memory`).
    pub(crate) cap: usize,
}

/// Request of `fib algorithm`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AlgorithmChange {
    /// 4 or 6; null for the families that have an algorithm of that name.
    #[serde(default)]
    pub(crate) family: Option<u8>,
    /// `auto`, `measured` (by calibration on the live table), or the name of an algorithm.
    pub(crate) name: String,
}

/// An interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct Interface {
    /// Interface name.
    pub(crate) name: String,
    /// Interface index of the kernel.
    pub(crate) index: u32,
    /// Port number of the router.
    pub(crate) port: u16,
    /// Route table of packets that arrive there.
    pub(crate) table: u32,
    /// Whether it is up, with carrier.
    pub(crate) up: bool,
    /// MTU, in bytes.
    pub(crate) mtu: u32,
    /// Link address; null where the link has none.
    pub(crate) mac: Option<String>,
    /// Kind of interface (`veth`, `vlan`); empty for hardware.
    pub(crate) kind: String,
    /// Addresses of the host, with their prefix length.
    pub(crate) addresses: Vec<String>,
    /// Packet path: `xdp` (the XDP datapath forwards, the rest is for the graph), `afxdp` (the graph forwards), `kernel`
    /// (the interface stays with the kernel).
    pub(crate) path: String,
    /// Description of the path, or why the interface stays with the kernel.
    pub(crate) mode: String,
    /// Policy of the kernel for forwarded packets, with its override: the interface stays with the kernel because of it,
    /// entirely or for the packets of a family, or is taken over in spite of it (`takeover.on_change`). Null without
    /// one.
    pub(crate) policy: Option<String>,
    /// Remedy where the driver does not send what XDP programs redirect to it; left out where it does, or where nothing
    /// is forwarded in XDP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) remedy: Option<String>,
    /// Features that it applies to its packets.
    #[serde(default)]
    pub(crate) features: Vec<InterfaceFeature>,
    /// Frames received for forwarding, by workers and in XDP.
    pub(crate) rx_packets: u64,
    /// Bytes received for forwarding.
    pub(crate) rx_bytes: u64,
    /// Frames sent, by workers and in XDP.
    pub(crate) tx_packets: u64,
    /// Bytes sent.
    pub(crate) tx_bytes: u64,
    /// Frames left to the kernel.
    pub(crate) punted: u64,
    /// Frames received there and dropped, by workers and in XDP, by drop reason; reasons without a drop are left out.
    #[serde(default)]
    pub(crate) dropped: BTreeMap<String, u64>,
    /// Counts of the device itself, of all queues, such as frames that found a full ring.
    #[serde(default)]
    pub(crate) device: BTreeMap<String, u64>,
}

/// A feature that an interface applies to its packets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct InterfaceFeature {
    /// Name of the feature.
    pub(crate) name: String,
    /// Its settings, in a few words.
    pub(crate) settings: String,
    /// Where it is applied: `xdp`, `graph`; `kernel`: nowhere, since the interface stays with the kernel.
    pub(crate) path: String,
    /// Why packets of the interface leave the XDP datapath for it, or which of them do; or what the kernel does in its
    /// place; null where nothing of that is so.
    pub(crate) why: Option<String>,
}

/// A neighbor on a link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct Neighbor {
    /// Address of the neighbor.
    pub(crate) addr: String,
    /// Interface of the neighbor.
    pub(crate) interface: String,
    /// Link address; null while it is not resolved.
    pub(crate) mac: Option<String>,
    /// `permanent` (set by a command, neither resolved nor confirmed), `suspended` (set by a command, while its interface
    /// is down), `reachable`, `stale`, `incomplete`, `failed`.
    pub(crate) state: String,
    /// Source of the entry: `command`, which takes precedence over `kernel`.
    pub(crate) source: String,
}

/// Action on a neighbor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum NeighborAction {
    /// Adds a neighbor; refused where a command has set it already.
    Add,
    /// Adds a neighbor, or changes its link address.
    Replace,
    /// Deletes a neighbor that a command has set.
    Delete,
}

/// One change of one neighbor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NeighborChange {
    /// Action.
    pub(crate) action: NeighborAction,
    /// Address of the neighbor.
    pub(crate) addr: String,
    /// Interface of the neighbor.
    pub(crate) dev: String,
    /// Link address; none for `delete`.
    #[serde(default)]
    pub(crate) mac: Option<String>,
}

/// Result of a change of a neighbor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct NeighborChanged {
    /// `added`, `changed`, `deleted`.
    pub(crate) done: String,
    /// Address of the neighbor.
    pub(crate) addr: String,
    /// Interface of the neighbor.
    pub(crate) interface: String,
    /// Sequence number of its event, or of the latest event where nothing changed.
    pub(crate) sequence: u64,
    /// Generation since which readers see the change.
    pub(crate) generation: u64,
    /// Neighbor after the change; null where there is none.
    pub(crate) now: Option<Neighbor>,
}

/// A route source.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub(crate) struct Source {
    /// Name of the source.
    pub(crate) name: String,
    /// Kind of source: of the configuration, or `host`, `neighbor`, `command`.
    pub(crate) kind: String,
    /// Administrative distance; lower wins.
    pub(crate) distance: u8,
    /// Routes of the source in the RIB.
    pub(crate) routes: u64,
    /// New, changed and withdrawn routes that it has sent.
    pub(crate) updates: u64,
    /// Routes and messages that were refused or not understood.
    pub(crate) errors: u64,
    /// Reason of an error; empty without one.
    pub(crate) last_error: String,
    /// Routes that were refused.
    pub(crate) refused: u64,
    /// Reason of the latest refusal; empty without one.
    pub(crate) last_refusal: String,
    /// Messages received; null for a source without messages.
    pub(crate) messages: Option<u64>,
    /// Time since the latest message, in ms; null without one.
    pub(crate) last_message_ms: Option<f64>,
    /// Resynchronizations after messages were lost, or a session began again.
    pub(crate) resyncs: Option<u64>,
    /// Whole tables that were read again, for a loss or for a change of a link; null for a source other than the kernel.
    pub(crate) dumps: Option<u64>,
    /// Duration of the latest resynchronization that is complete, in ms; null without one.
    pub(crate) resync_ms: Option<f64>,
    /// Reason of that resynchronization: lost messages, or a change whose consequences the kernel does not report.
    pub(crate) resync_reason: String,
    /// Complete comparisons of its routes with those that the kernel has; null where there are none.
    pub(crate) comparisons: Option<u64>,
    /// Time of the control thread that the latest comparison took, in ms; null without one.
    pub(crate) compare_ms: Option<f64>,
    /// Whether its table is complete, and it has a session where it needs one.
    pub(crate) in_sync: bool,
    /// Complete tables received: a dump or file was read to its end, all End-of-RIB markers came, or nothing came for the
    /// sweep time.
    pub(crate) tables: u64,
    /// End-of-RIB markers that it has sent, one a peer and family; null for a source without sessions.
    pub(crate) end_of_rib: Option<u64>,
    /// Age of the first message that packets do not follow yet, in ms.
    pub(crate) lag_ms: f64,
    /// Sessions so far; null for a source without sessions.
    pub(crate) sessions: Option<u64>,
    /// Address of the peer; null for a source without sessions.
    pub(crate) peer: Option<String>,
    /// Static routes that the kernel has from it, too; null for a source that is not exported.
    pub(crate) exported: Option<u64>,
    /// Static routes that the kernel refused; null for a source that is not exported.
    pub(crate) export_refused: Option<u64>,
}

/// State of the daemon.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub(crate) struct Status {
    /// Version of the program.
    pub(crate) version: String,
    /// Process ID.
    pub(crate) pid: u32,
    /// Seconds since the start.
    pub(crate) seconds: f64,
    /// IPv4 prefixes with a route.
    pub(crate) routes_v4: usize,
    /// IPv6 prefixes with a route.
    pub(crate) routes_v6: usize,
    /// Interfaces that are taken over.
    pub(crate) interfaces: usize,
    /// Workers: threads that forward.
    pub(crate) workers: usize,
    /// Workers that have not failed: fewer only while the run ends because of a failure.
    pub(crate) workers_alive: usize,
    /// Memory of the process, in KiB.
    pub(crate) resident_kib: u64,
    /// Turns of the control thread since the start.
    pub(crate) turns: Turns,
    /// Times from a change of a source to its visibility: from the first message of a turn that waited.
    pub(crate) visible: Quantiles,
    /// Configuration that waits for its confirmation; null where none does.
    #[serde(default)]
    pub(crate) waiting: Option<WaitingConfig>,
}

/// A configuration that waits for its confirmation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct WaitingConfig {
    /// Number of the configuration.
    pub(crate) number: u64,
    /// Seconds until the configuration before is restored.
    pub(crate) seconds_left: u64,
}

/// Turns of the control thread: what one takes delays every event behind it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub(crate) struct Turns {
    /// CPU time of the thread itself.
    pub(crate) cpu: Quantiles,
    /// Time by the clock, with what other threads took of the core and waits for the kernel.
    pub(crate) wall: Quantiles,
    /// Stage that took most of the longest turn.
    pub(crate) longest_stage: String,
    /// CPU time of that stage, in ms.
    pub(crate) longest_stage_ms: f64,
    /// Longest CPU time of each stage, in ms.
    #[serde(default)]
    pub(crate) stages: BTreeMap<String, f64>,
}

/// Durations: how many, and their quantiles, at most a quarter too large.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub(crate) struct Quantiles {
    /// Number of durations.
    pub(crate) count: u64,
    /// Median, in ms.
    pub(crate) p50_ms: f64,
    /// Duration that one of a hundred exceeds, in ms.
    pub(crate) p99_ms: f64,
    /// Longest duration, in ms.
    pub(crate) longest_ms: f64,
}

/// Action on a route of the source `command`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Action {
    /// Adds a route; refused where there is one.
    Add,
    /// Changes the path of a route; of several paths, the one of that gateway.
    Change,
    /// Adds a route, or paths to one.
    Append,
    /// Adds a route, or replaces all of its paths.
    Replace,
    /// Deletes a route, or some of its paths.
    Delete,
}

/// A path in a request: a gateway, an interface, or both.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PathChange {
    /// Address of the gateway; none where the destination itself is on the link.
    #[serde(default)]
    pub(crate) gateway: Option<String>,
    /// Egress interface; none where the route to the gateway decides.
    #[serde(default)]
    pub(crate) dev: Option<String>,
    /// Share among the paths of the route; 1 by default.
    #[serde(default = "usual_weight")]
    pub(crate) weight: u32,
}

fn usual_weight() -> u32 {
    1
}

/// One change of one route.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RouteChange {
    /// Action.
    pub(crate) action: Action,
    /// Destination prefix; host bits must be zero.
    pub(crate) prefix: String,
    /// Route table, which is created where there is none; the main one by default.
    #[serde(default)]
    pub(crate) table: Option<u32>,
    /// Metric, 0 by default. Routes that differ in it are different routes.
    #[serde(default)]
    pub(crate) metric: Option<u32>,
    /// MTU of the route, in bytes, at least 68 for IPv4 and 1280 for IPv6; 0 for that of the link, which is a limit in any
    /// case. By default `change` and `append` keep the MTU, `add` and `replace` clear it.
    #[serde(default)]
    pub(crate) mtu: Option<u16>,
    /// Paths of the route; for `delete`, the paths to remove.
    #[serde(default, alias = "ways")]
    pub(crate) paths: Vec<PathChange>,
    /// `blackhole`, `unreachable` or `prohibit` instead of paths.
    #[serde(default)]
    pub(crate) kind: Option<String>,
    /// Seconds after which the paths of this request, or the action in their place, expire.
    #[serde(default)]
    pub(crate) expires: Option<u64>,
    /// Whether `delete` removes all paths of a route that has several.
    #[serde(default)]
    pub(crate) all: bool,
}

/// Result of a change of a route.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct RouteChanged {
    /// `added`, `changed` (also when only some paths were deleted) or `deleted`.
    pub(crate) done: String,
    /// Destination prefix.
    pub(crate) prefix: String,
    /// Route table.
    pub(crate) table: u32,
    /// Sequence number of its event.
    pub(crate) sequence: u64,
    /// Generation since which readers see the change.
    pub(crate) generation: u64,
    /// All routes of the prefix after the change, the best first.
    pub(crate) candidates: Vec<Route>,
}

/// A line of `monitor`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct Event {
    /// Sequence number, one more than that of the event before; `--since` continues after it.
    pub(crate) sequence: u64,
    /// Time of the event in UTC, by RFC 3339 with milliseconds.
    #[serde(default)]
    pub(crate) time: String,
    /// Content of the event.
    #[serde(flatten)]
    pub(crate) what: EventKind,
}

/// Content of an event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(crate) enum EventKind {
    /// The stream begins after this number.
    Start,
    /// Older events are lost to this reader, which lists the routes and continues from here.
    Gap {
        /// Sequence number of the oldest event that is left.
        oldest: u64,
    },
    /// A route was added, changed or deleted.
    Route {
        /// `added`, `changed`, `deleted`.
        done: String,
        /// Destination prefix.
        prefix: String,
        /// Route table.
        table: u32,
        /// Metric of the route.
        metric: u32,
        /// Name of the route source.
        source: String,
        /// Whether the best path of the prefix changed.
        best: bool,
        /// Route before; null when it was added.
        old: Option<Hop>,
        /// Route after; null when it was deleted.
        new: Option<Hop>,
    },
    /// A next-hop object of a source was added, changed or deleted. Routes that refer to it change with it, without events
    /// of their own.
    Object {
        /// `added`, `changed`, `deleted`.
        done: String,
        /// ID of the object.
        object: u32,
        /// Name of the route source.
        source: String,
        /// Object before, in the form of `old` of a route; kind `group` for several members.
        old: Option<Hop>,
        /// Object after; null when it was deleted.
        new: Option<Hop>,
    },
    /// A link was added or deleted, went up or down, or has another name, MTU or link address.
    Link {
        /// `added`, `changed`, `deleted`.
        done: String,
        /// Interface name, or the last name of a deleted one.
        interface: String,
        /// Interface index of the kernel.
        index: u32,
        /// Whether it is up, with carrier.
        up: bool,
        /// MTU, in bytes.
        mtu: u32,
        /// Link address; null where the link has none.
        mac: Option<String>,
    },
    /// An interface was taken over, or returned to the kernel.
    Interface {
        /// `taken_over` (also when the path of its packets changes), `kernel` (it stays with the kernel),
        /// `released` (the kernel has it again), `closed` (it was deleted or renamed, or is about to be taken
        /// over again). One that goes down stays taken over: only `link` reports it.
        done: String,
        /// Interface name.
        interface: String,
        /// Packet path, as `path` of `/v1/interfaces`; null when it is closed.
        path: Option<String>,
        /// Description of the path, or why the interface stays with the kernel.
        mode: String,
    },
    /// A neighbor that a command has set was added, changed or deleted, or was suspended or resumed with its interface.
    Neighbor {
        /// `added`, `changed`, `deleted`.
        done: String,
        /// Address of the neighbor.
        addr: String,
        /// Interface of the neighbor.
        interface: String,
        /// Link address, or the last one of a deleted neighbor.
        mac: String,
        /// `permanent`, or `suspended` while its interface is down; null where it was deleted.
        state: Option<String>,
    },
    /// A user requested a change, over the control socket.
    Request {
        /// User, process and command.
        #[serde(flatten)]
        by: Requester,
        /// Method and path of the request.
        request: String,
        /// Why it was refused; null where it was carried out.
        error: Option<String>,
    },
    /// A configuration was applied, confirmed, or rolled back.
    Configuration {
        /// Number of the configuration.
        number: u64,
        /// `applied`, `waiting` (applied, to be confirmed), `confirmed`, `rolled_back` (the one before runs again).
        done: String,
        /// Who or why, and what changed.
        text: String,
    },
    /// Readers see all changes up to here.
    Visible {
        /// Generation that readers see.
        generation: u64,
    },
    /// The FIB decided about a lookup structure.
    Decision {
        /// Decision with its numbers, in a line.
        text: String,
    },
}

/// Kind and paths of a route at an event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct Hop {
    /// Kind, as `kind` of a route.
    pub(crate) kind: String,
    /// Next-hop object, as `object` of a route.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) object: Option<u32>,
    /// Paths, as `paths` of a route; empty for an object that has changed since.
    pub(crate) paths: Vec<Path>,
    /// MTU, as `mtu` of a route.
    pub(crate) mtu: Option<u16>,
}

/// A configuration file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ConfigText {
    /// File name, for messages.
    pub(crate) file: String,
    /// Content of the file.
    pub(crate) text: String,
}

/// A difference between the running configuration and another one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct ConfigChange {
    /// Item that differs.
    pub(crate) item: String,
    /// Running value; null for a new item.
    pub(crate) from: Option<String>,
    /// Value in the file; null for an item that is removed.
    pub(crate) to: Option<String>,
    /// Whether the change needs a restart.
    pub(crate) restart: bool,
    /// Whether the change was applied.
    pub(crate) applied: bool,
}

impl std::fmt::Display for ConfigChange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { item, from, to, restart, applied } = self;
        write!(f, "{item}: ")?;
        match (from, to) {
            (Some(from), Some(new)) => write!(f, "{from} -> {new}")?,
            (Some(from), None) => write!(f, "- {from}")?,
            (None, Some(new)) => write!(f, "+ {new}")?,
            (None, None) => {}
        }
        f.write_str(match (restart, applied) {
            (true, _) => " (needs a restart)",
            (false, true) => " (applied)",
            (false, false) => "",
        })
    }
}

/// A comparison of the live lookups with the RIB.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub(crate) struct Verification {
    /// Addresses compared: the ends of every range of one route, and some in between.
    pub(crate) addresses: u64,
    /// Addresses left out because a change of their route was not visible yet.
    pub(crate) skipped: u64,
    /// Number of addresses whose results differ.
    pub(crate) mismatches: u64,
    /// First differences.
    pub(crate) differences: Vec<Difference>,
    /// Duration of the comparison.
    pub(crate) seconds: f64,
}

/// An address for which lookup and RIB differ.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct Difference {
    /// Route table.
    pub(crate) table: u32,
    /// Whether the lookup of the XDP datapath differs, and not that of the process.
    pub(crate) in_xdp: bool,
    /// Address that was looked up.
    pub(crate) addr: String,
    /// Longest matching prefix in the RIB.
    pub(crate) prefix: Option<String>,
    /// Next hop by the RIB; 0 for none.
    pub(crate) rib: u32,
    /// Next hop by the lookup; 0 for none.
    pub(crate) fib: u32,
}
