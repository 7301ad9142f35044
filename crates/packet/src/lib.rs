//! Packets in, elements, packets out.

mod apart;
mod blocks;
#[allow(unsafe_code, reason = "frames are owned by number; its invariants are numbered there")]
pub mod buf;
#[cfg(any(test, feature = "testing"))]
pub mod cases;
pub mod cause;
mod classes;
pub mod control_socket;
pub mod counters;
pub mod device;
pub mod drops;
pub mod element;
pub mod feature;
pub mod filter;
pub mod flow;
pub mod gateways;
pub mod graph;
pub mod handler;
pub mod open_policy;
pub mod own_addrs;
mod port_set;
mod prefix_sets;
pub mod rate_limit;
mod route_table;
pub mod router_graph;
mod source_addr;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod trace;
pub mod wire;
pub mod worker;

pub use buf::{Batch, Meta, Packet, Pool};
pub use cause::Cause;
pub use classes::ELEMENTS;
pub use counters::WorkerCounters;
pub use device::{DeviceError, Port};
pub use drops::DropReason;
pub use element::{Context, Element, ElementClass, Held, Registry, Transmit};
pub use graph::{Graph, Plan, Round};
pub use handler::{Handler, HandlerError, Handlers};
pub use open_policy::{Folder, OpenPolicy};
pub use route_table::FoundRoute;
pub use worker::{Command, Event, Heartbeat, Worker, WorkerOptions};
