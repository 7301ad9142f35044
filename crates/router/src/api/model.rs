//! What is said over the API: every struct is a JSON object, its fields a promise to scripts.
//!
//! The same types are read back by the command line, so that what a command prints as text is what
//! a program reads. Addresses and prefixes are strings as people write them.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// One path of a route.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct Path {
    /// The next router; null where the destination itself is on the link.
    pub(crate) gateway: Option<String>,
    /// The interface; null where the route to the gateway decides.
    pub(crate) dev: Option<String>,
    /// Share among the paths of the route.
    pub(crate) weight: u32,
    /// Of a route: it ends by itself in so many seconds; left out where it stays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) expires: Option<u64>,
    /// Number of the next-hop object that is this member of a group of objects; left out elsewhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) object: Option<u32>,
}

/// A route: a prefix, and one source's way to reach it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct Route {
    /// Where it leads.
    pub(crate) prefix: String,
    /// Routing table; 254 is the main one.
    pub(crate) table: u32,
    /// Who said it: the name of a feed.
    pub(crate) source: String,
    /// How far that is believed; lower wins.
    pub(crate) distance: u8,
    /// Decides between equal distances; lower wins.
    pub(crate) metric: u32,
    /// Packets take it: it is the best of its prefix.
    pub(crate) best: bool,
    /// What it does: `via`, `object` (as a next-hop object of its source, one that drops packets excepted),
    /// `local`, `blackhole`, `unreachable`, `prohibit`.
    pub(crate) kind: String,
    /// Number of the next-hop object that it names, of its source; left out where it names none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) object: Option<u32>,
    /// Its paths, or those of its next-hop object; empty where it does not forward.
    pub(crate) paths: Vec<Path>,
    /// Largest IP packet that it states, in bytes; null for what the link carries.
    pub(crate) mtu: Option<u16>,
    /// Index of its next hop or group.
    pub(crate) nexthop: u32,
    /// Seconds until a route without paths expires; left out where it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) expires: Option<u64>,
}

/// The answer to `route get`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub(crate) struct RouteAnswer {
    /// What was asked.
    pub(crate) addr: String,
    /// In which table.
    pub(crate) table: u32,
    /// The longest prefix that holds it, by the RIB; null where there is no route.
    pub(crate) prefix: Option<String>,
    /// All routes of that prefix, the best first.
    pub(crate) candidates: Vec<Route>,
    /// What the live lookup answered: index of a next hop or group; 0 where there is no route.
    pub(crate) nexthop: u32,
    /// Lookup and RIB say the same.
    pub(crate) agrees: bool,
    /// The algorithm that answered.
    pub(crate) algorithm: String,
    /// The group, where the answer is one, with its members.
    pub(crate) group: Option<GroupAnswer>,
    /// What packets meet in the end: `adjacency`, `glean` (the destination is on the link and must be
    /// found first), `local`, `blackhole`, `unreachable`, `prohibit`, `none`; null for a group without
    /// a flow.
    pub(crate) action: Option<String>,
    /// How packets leave, where they do.
    pub(crate) adjacency: Option<Adjacency>,
    /// Each read of the lookup, if that was asked for.
    #[serde(default)]
    pub(crate) steps: Vec<Step>,
    /// What the programs in the drivers do with such a packet, if that was asked for.
    #[serde(default)]
    pub(crate) drivers: Vec<DriverAnswer>,
}

/// What the programs of some interfaces do with a packet, tried on one that goes nowhere.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct DriverAnswer {
    /// By the program of each it goes alike.
    pub(crate) interfaces: Vec<String>,
    /// The table that these programs read.
    pub(crate) table: u32,
    /// The packet: `SRC,DST,PROTOCOL,SPORT,DPORT`; of the flow that was named, else of any.
    pub(crate) packet: String,
    /// What the programs' own lookup answers: index of a next hop or group; null where they read no table of
    /// this family.
    pub(crate) nexthop: Option<u32>,
    /// `forward`, `drop`, `leave` (untouched, to the graph or the kernel), `none` (there is no program).
    pub(crate) does: String,
    /// How it leaves, where it does.
    pub(crate) adjacency: Option<Adjacency>,
    /// The name of why it is dropped or left.
    pub(crate) reason: Option<String>,
    /// The same in a line, or why there is no program.
    pub(crate) why: Option<String>,
}

/// A group as a packet meets it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub(crate) struct GroupAnswer {
    /// How many slots it has; 0 while one member takes all.
    pub(crate) slots: u32,
    /// Hash of the flow that was named.
    pub(crate) hash: Option<u32>,
    /// Slot of that flow, from 0.
    pub(crate) slot: Option<u32>,
    /// Its members, as flows are spread at the moment.
    #[serde(default)]
    pub(crate) members: Vec<Member>,
}

/// Port and addresses of the link: all that a packet needs to leave.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct Adjacency {
    /// Its index.
    pub(crate) index: u32,
    /// The interface.
    pub(crate) interface: String,
    /// The neighbor; null on links without link addresses.
    pub(crate) neighbor: Option<String>,
    /// The neighbor's link address is known.
    pub(crate) resolved: bool,
    /// The neighbor did not answer.
    pub(crate) failed: bool,
    /// The neighbor's link address.
    pub(crate) dst_mac: Option<String>,
    /// Our own.
    pub(crate) src_mac: Option<String>,
    /// Largest IP packet, in bytes.
    pub(crate) mtu: Option<u16>,
}

/// One read on the way of a lookup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct Step {
    /// Which part of the structure was read.
    pub(crate) region: String,
    /// Offset of the read, in bytes.
    pub(crate) offset: usize,
    /// What stood there.
    pub(crate) value: u64,
    /// What it meant.
    pub(crate) note: String,
}

/// A next hop, after the columns of FreeBSD's `netstat -4onW`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct NextHop {
    /// The index that lookups answer with.
    pub(crate) index: u32,
    /// `v4/gw`, `v6/gw` (by the gateway's family), `resolve` (the destination is on the link),
    /// `object`, `local`, `blackhole`, `unreachable`, `prohibit`.
    #[serde(rename = "type")]
    pub(crate) kind: String,
    /// Number of the next-hop object that it is, of its source; null where it is none.
    #[serde(default)]
    pub(crate) object: Option<u32>,
    /// The interface that packets leave by at the moment; null where there is none, or more than one.
    pub(crate) interface: Option<String>,
    /// The gateway that was named.
    pub(crate) gateway: Option<String>,
    /// As netstat has them: `G` gateway, `H` host, `R` reject, `B` blackhole, `D` redirect, `b` broadcast;
    /// and `M` group, `d` default route.
    pub(crate) flags: String,
    /// Packets that left by its adjacencies.
    #[serde(rename = "use")]
    pub(crate) used: u64,
    /// Largest IP packet that can leave by it, in bytes: the least of link and routes.
    pub(crate) mtu: Option<u16>,
    /// Routes and groups that name it.
    pub(crate) references: u32,
}

/// A group of weighted next hops.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub(crate) struct Group {
    /// The index that lookups answer with.
    pub(crate) index: u32,
    /// `group`, or `object` for a group of the source's own making.
    #[serde(rename = "type")]
    pub(crate) kind: String,
    /// Number of the next-hop object that it is, of its source; null where it is none.
    #[serde(default)]
    pub(crate) object: Option<u32>,
    /// Slots that flows are spread over; 0 while one member takes all.
    pub(crate) slots: u32,
    /// Packets that left by its members' adjacencies.
    #[serde(rename = "use")]
    pub(crate) used: u64,
    /// Routes that name it.
    pub(crate) references: u32,
    /// As flows are spread at the moment: a member that is down has no slots.
    pub(crate) members: Vec<Member>,
}

/// A member of a group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub(crate) struct Member {
    /// The gateway.
    pub(crate) gateway: Option<String>,
    /// The interface.
    pub(crate) interface: Option<String>,
    /// Its share, as configured.
    pub(crate) weight: u32,
    /// Slots that it has.
    pub(crate) slots: u32,
    /// Share of the flows that take it, 0 to 1.
    #[serde(default)]
    pub(crate) share: f64,
    /// Number of the next-hop object that it is; null where the group is not made of objects.
    #[serde(default)]
    pub(crate) object: Option<u32>,
    /// Largest IP packet that can leave by it, in bytes: the least of link and routes.
    pub(crate) mtu: Option<u16>,
}

/// One family's lookup table and what is known of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub(crate) struct Fib {
    /// 4 or 6.
    pub(crate) family: u8,
    /// Routing table; 254 is the main one.
    pub(crate) table: u32,
    /// Holds all paths of the routing table, not the best ones alone: for feasible source checks.
    pub(crate) paths: bool,
    /// The algorithm that answers.
    pub(crate) algorithm: String,
    /// `auto`, `measured`, or the name that was asked for.
    pub(crate) choice: String,
    /// Generation that readers see.
    pub(crate) generation: u64,
    /// Prefixes with a route.
    pub(crate) prefixes: usize,
    /// Routes, those that are not the best included.
    pub(crate) routes: usize,
    /// Bytes that lookups can touch.
    pub(crate) bytes: usize,
    /// The same, a prefix; null for fewer than 1,000, which the fixed parts of a structure would be shared among.
    pub(crate) bytes_per_prefix: Option<f64>,
    /// Bytes of all candidates.
    pub(crate) rib_bytes: usize,
    /// RIB and lookup structure together, a route; null for fewer than 1,000.
    pub(crate) bytes_per_route: Option<f64>,
    /// Changes of best routes that readers do not see yet.
    pub(crate) pending: usize,
    /// For how long readers have not seen everything, in milliseconds; null while they do.
    pub(crate) behind_ms: Option<f64>,
    /// Changes applied in place so far.
    pub(crate) applied: u64,
    /// Structures built so far.
    pub(crate) builds: u64,
    /// Builds and changes that failed.
    pub(crate) failures: u64,
    /// Routes that are answered wrongly, as far as the auditor has found.
    pub(crate) mismatch_routes: usize,
    /// Of these, those that programs in drivers answer wrongly.
    #[serde(default)]
    pub(crate) mismatch_routes_in_drivers: usize,
    /// Addresses that the auditor compared so far.
    pub(crate) audited: u64,
    /// Of these, those that programs in drivers were asked for as well.
    #[serde(default)]
    pub(crate) audited_in_drivers: u64,
    /// Times that it went through all of them.
    pub(crate) audit_passes: u64,
    /// How long the latest build took, in milliseconds.
    pub(crate) last_build_ms: f64,
    /// Longest time from a change until readers saw it, in milliseconds.
    pub(crate) longest_delay_ms: f64,
    /// Algorithms that were given up for this table.
    pub(crate) banned: Vec<String>,
    /// What it takes of the memory that drivers' programs read as well; null where none can read it.
    #[serde(default)]
    pub(crate) shared: Option<SharedMemory>,
}

/// Kernel memory of a table that drivers' programs read as well.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub(crate) struct SharedMemory {
    /// Bytes of this table in use.
    pub(crate) used: usize,
    /// The same, a prefix; null for fewer than 1,000.
    pub(crate) used_per_prefix: Option<f64>,
    /// Bytes reserved for this table, room for growth included.
    pub(crate) reserved: usize,
    /// Bytes reserved in all: tables of both families, those being replaced, next hops.
    pub(crate) total_reserved: usize,
    /// How many these may be at most (`[xdp] memory`).
    pub(crate) cap: usize,
}

/// What `fib algorithm` asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AlgorithmChange {
    /// 4 or 6; null for both, as far as they have an algorithm of that name.
    #[serde(default)]
    pub(crate) family: Option<u8>,
    /// `auto`, `measured` (by a trial on the live table), or the name of an algorithm.
    pub(crate) name: String,
}

/// An interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct Interface {
    /// Its name.
    pub(crate) name: String,
    /// The kernel's number.
    pub(crate) index: u32,
    /// Our number of it.
    pub(crate) port: u16,
    /// The routing table that its packets ask.
    pub(crate) table: u32,
    /// Up, with carrier.
    pub(crate) up: bool,
    /// Largest IP packet, in bytes.
    pub(crate) mtu: u32,
    /// Link address; null where the link has none.
    pub(crate) mac: Option<String>,
    /// Kind of device (`veth`, `vlan`); empty for hardware.
    pub(crate) kind: String,
    /// Addresses of the host, with the length of their subnet.
    pub(crate) addresses: Vec<String>,
    /// `xdp`: forwarded in the driver, the rest comes to us; `afxdp`: its frames come to us; `kernel`: it stays
    /// with the kernel.
    pub(crate) path: String,
    /// How it is driven, or why it stays with the kernel.
    pub(crate) mode: String,
    /// What the kernel does to forwarded packets of it, with the override: for that it stays with the kernel, as a whole
    /// or with the packets of a family, or is taken over in spite of it (`takeover.on_change`); null where nothing is in
    /// the way.
    pub(crate) policy: Option<String>,
    /// What would let packets leave by it in XDP, where its driver takes none from programs; left out where it
    /// does, or nothing is forwarded in XDP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) remedy: Option<String>,
    /// Features that it applies to its packets.
    #[serde(default)]
    pub(crate) features: Vec<InterfaceFeature>,
    /// Frames received for forwarding, by workers and in XDP.
    pub(crate) rx_packets: u64,
    /// Bytes of them.
    pub(crate) rx_bytes: u64,
    /// Frames sent, by workers and in XDP.
    pub(crate) tx_packets: u64,
    /// Bytes of them.
    pub(crate) tx_bytes: u64,
    /// Frames left to the kernel.
    pub(crate) punted: u64,
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
    /// Why packets of the interface leave the XDP datapath for it, or what the kernel does in its place; null where
    /// neither is so.
    pub(crate) why: Option<String>,
}

/// A neighbor on a link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct Neighbor {
    /// Its address.
    pub(crate) addr: String,
    /// The interface.
    pub(crate) interface: String,
    /// Its link address.
    pub(crate) mac: Option<String>,
    /// `permanent` (set by somebody, neither asked for nor ever confirmed), `suspended` (the same, while its
    /// interface is down), `reachable`, `stale`, `incomplete`, `failed`.
    pub(crate) state: String,
    /// Who says so: `command`, which holds before what the `kernel` says.
    pub(crate) source: String,
}

/// What is to be done with a neighbor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum NeighborAction {
    /// A new one; refused where a command has set it already.
    Add,
    /// A new one, or another link address.
    Replace,
    /// Take back what a command has set.
    Delete,
}

/// One change of one neighbor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NeighborChange {
    /// What is to be done.
    pub(crate) action: NeighborAction,
    /// Its address.
    pub(crate) addr: String,
    /// The interface.
    pub(crate) dev: String,
    /// Its link address; none for deleting.
    #[serde(default)]
    pub(crate) mac: Option<String>,
}

/// What a change of a neighbor did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct NeighborChanged {
    /// `added`, `changed`, `deleted`.
    pub(crate) done: String,
    /// Its address.
    pub(crate) addr: String,
    /// The interface.
    pub(crate) interface: String,
    /// Number of the notice of it, or of the latest one where nothing changed.
    pub(crate) sequence: u64,
    /// Readers see it since this generation.
    pub(crate) generation: u64,
    /// What holds now; null where nothing is known of it.
    pub(crate) now: Option<Neighbor>,
}

/// A source of routes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct Feed {
    /// Its name.
    pub(crate) name: String,
    /// How far it is believed; lower wins.
    pub(crate) distance: u8,
    /// Routes that it has in the RIB.
    pub(crate) routes: u64,
    /// Routes that were refused.
    pub(crate) refused: u64,
    /// Why the latest was; empty when none was.
    pub(crate) last_refusal: String,
    /// Messages taken, where it speaks in messages.
    pub(crate) messages: Option<u64>,
    /// Times that messages were lost and all was said again.
    pub(crate) resyncs: Option<u64>,
}

/// The daemon itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub(crate) struct Status {
    /// Of the program.
    pub(crate) version: String,
    /// Its process.
    pub(crate) pid: u32,
    /// Since it started.
    pub(crate) seconds: f64,
    /// IPv4 prefixes with a route.
    pub(crate) routes_v4: usize,
    /// IPv6 prefixes with a route.
    pub(crate) routes_v6: usize,
    /// Interfaces whose frames come to it.
    pub(crate) interfaces: usize,
    /// Threads that forward.
    pub(crate) workers: usize,
    /// Workers that have not failed: fewer only while the run ends because of a failure.
    pub(crate) workers_alive: usize,
    /// Memory of the process, in KiB.
    pub(crate) resident_kib: u64,
}

/// What is to be done with a route of the feed `command`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Action {
    /// A new route; refused where there is one.
    Add,
    /// Another way for a route that is there; of several, the one of that gateway.
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
    /// The next router; none where the destination itself is on the link.
    #[serde(default)]
    pub(crate) gateway: Option<String>,
    /// The interface; none where the route to the gateway decides.
    #[serde(default)]
    pub(crate) dev: Option<String>,
    /// Share among the paths of the route; 1 unless named.
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
    /// What is to be done.
    pub(crate) action: Action,
    /// Of which prefix; host bits must be zero.
    pub(crate) prefix: String,
    /// In which table, which is made where there is none; the main one unless named.
    #[serde(default)]
    pub(crate) table: Option<u32>,
    /// Routes of other metrics are other routes; 0 unless named.
    #[serde(default)]
    pub(crate) metric: Option<u32>,
    /// Largest IP packet along it, in bytes, at least 68 for IPv4 and 1280 for IPv6; 0 for what the link
    /// carries, which is a limit in any case. Unless named, a route that is changed or appended to keeps
    /// its own, and one that is added or replaced has none.
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
    /// For `delete`: removes all paths of a route that has several.
    #[serde(default)]
    pub(crate) all: bool,
}

/// What was done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct RouteChanged {
    /// `added`, `changed` (also when only some paths were deleted) or `deleted`.
    pub(crate) done: String,
    /// Of which prefix.
    pub(crate) prefix: String,
    /// In which table.
    pub(crate) table: u32,
    /// Number of the notice of it.
    pub(crate) sequence: u64,
    /// Readers see it since this generation.
    pub(crate) generation: u64,
    /// All routes of the prefix now, the best first.
    pub(crate) candidates: Vec<Route>,
}

/// A line of `monitor`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct Event {
    /// Its number, one more than that of the event before; to go on behind it, `--since` it.
    pub(crate) sequence: u64,
    /// When it happened, in UTC: RFC 3339 with milliseconds.
    #[serde(default)]
    pub(crate) time: String,
    /// What it is about.
    #[serde(flatten)]
    pub(crate) what: EventKind,
}

/// What an event is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(crate) enum EventKind {
    /// The stream begins behind this number.
    Start,
    /// Some events before are lost to who asked: list the routes, and go on from here.
    Gap {
        /// The oldest that there still is.
        oldest: u64,
    },
    /// A route was added, changed or deleted.
    Route {
        /// `added`, `changed`, `deleted`.
        done: String,
        /// Of which prefix.
        prefix: String,
        /// In which table.
        table: u32,
        /// Of which metric.
        metric: u32,
        /// Of which feed.
        source: String,
        /// The best route of the prefix is another one now, or leads elsewhere.
        best: bool,
        /// What it did before; null when it was added.
        old: Option<Hop>,
        /// What it does now; null when it was deleted.
        new: Option<Hop>,
    },
    /// A next-hop object was announced by its source, announced otherwise, or is gone. Routes that name it
    /// lead elsewhere without events of their own.
    Object {
        /// `added`, `changed`, `deleted`.
        done: String,
        /// Its number.
        object: u32,
        /// Of which feed.
        source: String,
        /// What it led to before, as `old` of a route; kind `group` for several members.
        old: Option<Hop>,
        /// What it leads to now; null when it was deleted.
        new: Option<Hop>,
    },
    /// A link came, went up or down, has another name, MTU or link address, or went.
    Link {
        /// `added`, `changed`, `deleted`.
        done: String,
        /// Its name now, or before it was deleted.
        interface: String,
        /// The kernel's number.
        index: u32,
        /// Up, with carrier.
        up: bool,
        /// Largest IP packet, in bytes.
        mtu: u32,
        /// Link address; null where the link has none.
        mac: Option<String>,
    },
    /// An interface was taken over, or given back.
    Interface {
        /// `taken_over` (also when the path of its packets changes), `kernel` (it stays with the kernel),
        /// `released` (the kernel has it again), `closed` (it was deleted or renamed, or is about to be taken
        /// over again). One that goes down stays taken over: only `link` reports it.
        done: String,
        /// Its name.
        interface: String,
        /// As `path` of `/v1/interfaces`; null when it is closed.
        path: Option<String>,
        /// How it is driven, or why not.
        mode: String,
    },
    /// A neighbor that a command has set came, changed, was suspended with its interface or taken up again,
    /// or went.
    Neighbor {
        /// `added`, `changed`, `deleted`.
        done: String,
        /// Its address.
        addr: String,
        /// The interface.
        interface: String,
        /// Its link address; before, where it was deleted.
        mac: String,
        /// `permanent`, or `suspended` while its interface is down; null where it was deleted.
        state: Option<String>,
    },
    /// Readers see everything up to here.
    Visible {
        /// As this generation.
        generation: u64,
    },
    /// Something was decided about a lookup structure.
    Decision {
        /// A line with its numbers.
        text: String,
    },
}

/// What a route does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct Hop {
    /// As `kind` of a route.
    pub(crate) kind: String,
    /// As `object` of a route.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) object: Option<u32>,
    /// As `paths` of a route; none of an object that has changed since.
    pub(crate) paths: Vec<Path>,
    /// As `mtu` of a route.
    pub(crate) mtu: Option<u16>,
}

/// A configuration file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ConfigText {
    /// Its name, for messages.
    pub(crate) file: String,
    /// What stands in it.
    pub(crate) text: String,
}

/// A difference between the running configuration and another one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct ConfigChange {
    /// What differs.
    pub(crate) item: String,
    /// As it runs; null for what is new.
    pub(crate) from: Option<String>,
    /// As the file says; null for what goes.
    pub(crate) to: Option<String>,
    /// Cannot be changed while running.
    pub(crate) restart: bool,
    /// It was done.
    pub(crate) applied: bool,
}

/// A comparison of the live lookups with the RIB.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub(crate) struct Verification {
    /// Addresses compared: the ends of every stretch of one route, and some in between.
    pub(crate) addresses: u64,
    /// Addresses left out because a change of theirs was about to become visible.
    pub(crate) skipped: u64,
    /// How many answers differ.
    pub(crate) mismatches: u64,
    /// The first of them.
    pub(crate) differences: Vec<Difference>,
    /// How long it took.
    pub(crate) seconds: f64,
}

/// An address for which lookup and RIB differ.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct Difference {
    /// In which table.
    pub(crate) table: u32,
    /// It is a driver's program that differs, not the lookup of the process itself.
    pub(crate) in_driver: bool,
    /// The address.
    pub(crate) addr: String,
    /// The longest prefix that holds it, by the RIB.
    pub(crate) prefix: Option<String>,
    /// Next hop by the RIB; 0 for none.
    pub(crate) rib: u32,
    /// Next hop by the lookup; 0 for none.
    pub(crate) fib: u32,
}
