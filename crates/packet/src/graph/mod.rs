//! The wiring of elements: a plan is made once and shared, a graph runs it, one a worker.

pub mod plan;
pub mod run;

pub use plan::{Plan, PlanBuilder, PlanError};
pub use run::{Graph, NodeCounters, Round};
