//! Memory of routes that are gone, returned to the system.
//!
//! The allocator keeps what a large table has left. It is returned by a thread of its own, which takes tens of milliseconds, once
//! the changes are over.

use std::time::{Duration, Instant};

/// So many changes leave memory that is worth returning.
const LARGE_TABLE: usize = 65_536;
/// Time without changes, after which builds and acknowledgements have ended that have memory of their own.
const QUIET: Duration = Duration::from_secs(2);

/// Changes since memory was last returned to the system, and the time of the last one.
#[derive(Clone, Copy, Default)]
pub(super) struct Memory {
    changes: usize,
    last: Option<Instant>,
}

impl Memory {
    /// Notes changes that a commit made.
    pub(super) fn changed(&mut self, changes: usize, now: Instant) {
        if changes > 0 {
            self.changes += changes;
            self.last = Some(now);
        }
    }

    /// Returns the allocator's memory to the system once as many routes as a large table has are gone or were changed, and a
    /// few seconds have been quiet.
    pub(super) fn trim(&mut self, now: Instant) {
        let Self { changes, last } = *self;
        if changes < LARGE_TABLE || last.is_none_or(|last| now < last + QUIET) {
            return;
        }
        *self = Self::default();
        // It takes tens of ms. Without a thread memory is kept for later.
        let thread = std::thread::Builder::new().name("fingerpost-free".into());
        let _ = thread.spawn(crate::sys::trim_memory);
    }
}
