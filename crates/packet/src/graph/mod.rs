//! The wiring of elements: a text in Click's language is read into a configuration; a plan is made once
//! and shared; a graph runs it, one a worker.

pub mod args;
pub mod check;
pub mod class;
pub mod expand;
pub mod flat;
pub mod language;
pub mod lex;
pub mod parse;
pub mod plan;
pub mod run;
pub mod scope;
pub mod source;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;
pub mod text;
pub mod value;
pub mod vars;

pub use args::{Args, ConfigError};
pub use class::{ClassSpec, Classes, Processing};
pub use flat::{Configuration, Connection, Declared};
pub use language::Language;
pub use plan::{Plan, PlanBuilder, PlanError};
pub use run::{Graph, NodeCounters, Round};
pub use source::{Errors, Problems, Report};
