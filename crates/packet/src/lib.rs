//! Packets in, elements, packets out.

#[cfg(any(test, feature = "testing"))]
pub mod cases;
mod classes;
pub mod device;
pub mod element;
pub mod feature;
pub mod filter;
pub mod frame;
pub mod graph;
pub mod handler;
pub mod language;
mod prefix_sets;
pub mod route_table;
pub mod router_graph;
pub mod sample;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use classes::ELEMENTS;
pub use device::{DeviceError, Port};
pub use frame::counters::WorkerCounters;
pub use frame::{Batch, Cause, DropReason, Meta, Packet, Pool};
pub use graph::worker::{Command, Event, Heartbeat, Worker, WorkerOptions};
pub use graph::{Context, Element, ElementClass, Graph, Held, Plan, Registry, Round, Transmit};
pub use handler::{Handler, HandlerError, Handlers};
pub use language::open_policy::{Folder, OpenPolicy};
pub use route_table::FoundRoute;
