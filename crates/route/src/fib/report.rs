//! Report of a FIB: plain numbers for commands, metrics and pages.

use std::time::{Duration, Instant};

use fingerpost_lpm::{Addr, Routes};

use super::{AuditCounts, Choice, Difference, Fib, FibCounts, FibOptions};

/// The state of one table's FIB of one family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FibReport {
    /// 4 or 6.
    pub family: u8,
    /// Algorithm in use; `none` before the first build.
    pub algorithm: &'static str,
    /// How it is chosen.
    pub choice: Choice,
    /// Algorithms that were given up for this table.
    pub banned: Vec<&'static str>,
    /// Bytes that lookups can touch.
    pub bytes: usize,
    /// Prefixes that the RIB holds.
    pub prefixes: usize,
    /// Changes that readers do not see yet.
    pub pending: usize,
    /// Time since readers last saw everything.
    pub behind: Option<Duration>,
    /// Time until the next round without further changes, a failed one included.
    pub due_in: Option<Duration>,
    /// Failed rounds since the last that succeeded.
    pub failures_in_row: u32,
    /// What an applied change costs of late.
    pub cost_per_change: Duration,
    /// What was done so far.
    pub counts: FibCounts,
    /// What the auditor did so far.
    pub audit: AuditCounts,
    /// `fib_mismatch_routes`: routes that readers are answered wrongly for, as far as is known.
    pub mismatch_routes: usize,
    /// Those of them that the kernel reader gets wrongly.
    pub mismatch_routes_kernel: usize,
    /// The first differences that stand.
    pub differences: Vec<Difference>,
    /// The knobs.
    pub options: FibOptions,
}

impl<A: Addr> Fib<A> {
    /// The present state; `routes` are those that the table follows.
    pub fn report(&self, routes: &dyn Routes<A>, now: Instant) -> FibReport {
        FibReport {
            family: A::FAMILY,
            algorithm: self.algorithm(),
            choice: self.chooser.choice(),
            banned: self.chooser.banned().collect(),
            bytes: self.served.lookup().bytes(),
            prefixes: routes.prefixes(),
            pending: self.pending(),
            behind: self.batching.diverged().map(|t| now.saturating_duration_since(t)),
            due_in: self.state.due().map(|t| t.saturating_duration_since(now)),
            failures_in_row: self.state.failed_rounds(),
            cost_per_change: self.batching.cost_per_change(),
            counts: self.counts,
            audit: self.repair.auditor().counts(),
            mismatch_routes: self.repair.auditor().mismatch_routes(),
            mismatch_routes_kernel: self.repair.auditor().mismatch_routes_kernel(),
            differences: self.repair.auditor().known().copied().collect(),
            options: self.options,
        }
    }
}
