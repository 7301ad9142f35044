//! Many routers that act as one: the decisions of a cluster node, and a simulator of them.
//!
//! Source: RouteBricks (Dobrescu et al., SOSP 2009): Valiant load balancing over a full mesh of commodity servers.
//! Read `rule` first, which chooses the path of a packet from states and queue lengths alone; `flowlet` keeps the
//! packets of a flow on that path, and `sim` runs both over queues of its own. `link` is the length of a queue that
//! nobody holds, for links of the data plane.
//! `probe` finds out which nodes and links are up.
//! `plan` stands apart: it computes how many servers a capacity takes and how they are linked.

pub mod flowlet;
pub mod frame;
pub mod link;
pub mod plan;
pub mod probe;
pub mod rule;
pub mod sim;
