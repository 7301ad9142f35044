//! The wiring of elements: a text in Click's language is read into a configuration; a plan is made once
//! and shared; a graph runs it, one a worker.

mod args;
mod check;
mod class;
mod draw;
mod expand;
mod flat;
mod language;
mod lex;
mod parse;
pub mod plan;
pub mod run;
mod scope;
mod source;
pub(crate) mod splice;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;
mod text;
mod value;
mod vars;

pub use crate::counters::NodeCounters;
pub use args::{Arg, Args, ConfigError};
pub use class::{ClassSpec, Classes, Processing};
pub use draw::TooLarge;
pub use flat::{Configuration, Connection, Declared};
pub use language::Language;
pub use plan::Plan;
pub use run::{Graph, Round};
#[cfg(any(test, feature = "testing"))]
pub(crate) use source::Sources;
pub use source::{Errors, Place, Problems, Report, Span};
pub use text::Text;
pub use value::{Around, Bandwidth, Value};
