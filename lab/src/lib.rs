//! One runner for every published number.
//!
//! Runs of a document are measured alternating in one process, so that ratios between them hold on a
//! noisy machine; answers are checked before a number is printed.

mod batches;
pub mod build;
pub mod compare;
mod cores;
pub mod demo;
pub mod document;
pub mod drawings;
pub mod family;
pub mod fib;
pub mod forward;
pub mod lookup;
pub mod machine;
pub mod measure;
mod named;
mod namespace;
pub mod papers;
pub mod peer;
pub mod program;
mod scratch;
pub mod syn;
pub mod table;
pub mod trace;
pub mod traffic;
pub mod update;
pub mod wire;
mod worker;
pub mod xdp;

pub use build::{BuildOptions, build};
pub use document::{Answers, BenchDocument, Kind, Machine, Mode, Run, TableInfo, Unit};
pub use drawings::drawings;
pub use fib::{FibOptions, fib};
pub use forward::{ForwardOptions, forward};
pub use lookup::{LookupOptions, lookup};
pub use papers::{Papers, PapersOptions, papers};
pub use update::{UpdateOptions, update};
pub use wire::{WireOptions, wire};
pub use xdp::{XdpOptions, xdp};
