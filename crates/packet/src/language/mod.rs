//! Click's language: from a text to a checked configuration, and typed arguments of elements.

pub(crate) mod addresses;
pub(crate) mod annotations;
mod args;
mod check;
mod class;
mod draw;
mod expand;
mod flat;
mod lex;
pub mod open_policy;
mod parse;
pub(crate) mod ports;
mod read;
mod scope;
pub(crate) mod scoped;
mod source;
pub(crate) mod splice;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;
mod text;
mod value;
mod vars;

pub use addresses::{Interfaces, Named};
pub(crate) use args::replaced;
pub use args::{Arg, Args, ConfigError};
pub(crate) use class::Codes;
pub use class::{AnyClass, ClassSpec, Classes, Processing, Role};
pub use flat::{Configuration, Connection, Declared};
pub(crate) use parse::PACKAGES;
pub use read::Language;
pub use source::{Errors, InClick, Place, Problems, Report, Span};
pub(crate) use source::{Sources, short};
pub use text::Text;
pub(crate) use value::unquote;
pub use value::{Around, Bandwidth, Value};
