//! Decisions of a FIB: a line for people, and the numbers in it.

use std::time::Duration;

/// Attention that a decision needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// Work as expected: a table was built again with its algorithm.
    Routine,
    /// Another algorithm, or the result of a calibration.
    Choice,
    /// A build failed, or lookups were wrong.
    Alarm,
}

/// A decision of a FIB.
#[derive(Clone, Debug)]
pub struct Decision {
    /// Address family, 4 or 6.
    pub family: u8,
    /// Attention that it needs.
    pub severity: Severity,
    /// The line, with its numbers in it.
    pub text: String,
    /// The build that it was made with, if any.
    pub build: Option<Build>,
}

/// A build of a lookup table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Build {
    /// Algorithm before; `None` for the first table.
    pub before: Option<&'static str>,
    /// Algorithm of the table.
    pub algorithm: &'static str,
    /// Fitness of that for the table.
    pub fitness: u8,
    /// Prefixes in the table.
    pub prefixes: usize,
    /// Time that the build took.
    pub took: Duration,
}
