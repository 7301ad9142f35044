//! Routes in, the best ones chosen, one snapshot for forwarding out.

pub mod bgp;
pub mod control;
mod durations;
pub mod event;
pub mod fib;
pub mod forwarding;
pub mod group;
pub mod hops;
pub mod mtu;
pub mod netlink;
pub mod nexthop;
pub mod rib;
pub mod rules;
pub mod source;

pub use control::{
    COUNTED_PORTS, Committed, Control, ControlOptions, Done, Ends, Gap, Happened, HopView,
    InterfaceSet, Mark, NeighborError, NeighborRequest, NeighborRow, NextHopState, Notice,
    ObjectPath, ObjectView, Operation, Outcome, Paths, Requested, RouteError, RouteFound, RouteRow,
    SnapshotError, SnapshotId, SourceId, SourceLimits, SourceReport, Takeover,
};
pub use durations::Durations;
pub use event::{
    AddressUpdate, AnyPrefix, LinkState, LinkUpdate, MAIN_TABLE, Mac, NeighborState,
    NeighborUpdate, NextHopUpdate, ObjectTarget, Path, RouteEvent, RouteKey, RouteUpdate, TableId,
    Target, VlanState,
};
pub use fib::{Publisher, Reader, Shared, Subscribe};
pub use fingerpost_lpm::{KernelReader, MemoryMaker};
pub use forwarding::{
    FibLookup, Forwarding, FoundHop, IpFamily, MOST_VRFS, PortInfo, PortTable, ResolveRequest,
    UrpfMode,
};
pub use hops::{Adjacency, ForwardingAction, HopTable, PackedAdjacency};
pub use mtu::RouteMtu;
pub use rules::{PolicyRule, PolicyRules, RuleAction, Selected};
