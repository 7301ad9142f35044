//! Many routers that act as one: the decisions of a cluster node, its data plane, and a simulator of both.
//!
//! Source: RouteBricks (Dobrescu et al., SOSP 2009): Valiant load balancing over a full mesh of commodity servers.
//! Read `rule` first, which chooses the path of a packet from states and queue lengths alone; `flowlet` keeps the
//! packets of a flow on that path, and `sim` runs both over queues of its own. `frame` is what internal links carry,
//! `fabric` the state that the data plane reads, `element` its elements in the graph of the router.
//! `probe` finds out which nodes and links are up.
//! `store` has the members of a cluster, from a store that holds their records or from the configuration.
//! `plan` stands apart: it computes how many servers a capacity takes and how they are linked.

pub mod element;
pub mod fabric;
pub mod flowlet;
pub mod frame;
pub mod plan;
pub mod probe;
pub mod rule;
pub mod sim;
pub mod store;
