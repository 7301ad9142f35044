//! One runner for every published number.
//!
//! A benchmark fills a [`Document`]: the machine, the tables, and the runs with their raw samples. Runs
//! of one document are measured [alternating](runner::alternate), so that ratios between them hold on a
//! machine that is not quiet. The program behind it is `fingerpost bench`.

pub mod document;
pub mod machine;
pub mod runner;

pub use document::{Answers, Document, Kind, Mode, Run, TableInfo, Unit};
pub use machine::Machine;
