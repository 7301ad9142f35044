//! The wiring of elements: what an element is; a plan is made once of a configuration and shared; a graph runs it, one a
//! worker, and records the traces that are requested.

mod dry_run;
mod element;
mod ending;
mod live;
pub mod plan;
mod port_set;
pub mod run;
mod setup;
pub mod trace;
pub mod worker;

pub use crate::frame::counters::{Instance, NodeCounters};
pub use dry_run::{DryRun, DryRunError};
pub(crate) use element::Passing;
pub use element::{Context, Element, Held, Inputs, Transmit};
pub use ending::Ending;
pub use live::LiveArg;
pub(crate) use live::configured;
pub use plan::Plan;
pub use run::{Graph, RECEIVED, Round};
pub(crate) use setup::{Around, Devices, Kept, Relay, Shown};
pub use setup::{Device, ElementClass, Exit, Installed, Made, Receives, Registry, Setup};
