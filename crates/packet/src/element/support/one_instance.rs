//! The instance of an element that works where only one worker may.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::graph::Instance;

/// Whether the instance that works was made.
#[derive(Default)]
pub(crate) struct OneInstance(AtomicBool);

impl OneInstance {
    /// Whether an instance that is being made is the one that works: the first one, never that of a dry run.
    pub(crate) fn is(&self, instance: Instance) -> bool {
        // Relaxed: instances are made by one thread, that of the first worker first.
        !instance.is_dry_run() && !self.0.swap(true, Relaxed)
    }
}
