//! The wiring of elements: a text in Click's language is read into a configuration; a plan is made once
//! and shared; a graph runs it, one a worker.

pub mod args;
pub mod lex;
pub mod plan;
pub mod run;
pub mod source;
pub mod text;
pub mod value;

pub use args::{Args, ConfigError};
pub use plan::{Plan, PlanBuilder, PlanError};
pub use run::{Graph, NodeCounters, Round};
pub use source::{Errors, Report};
