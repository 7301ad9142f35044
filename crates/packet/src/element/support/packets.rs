//! Counts of packets that a handler resets: `count`, and `reset_counts`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::frame::counters::{Count, PerWorker};
use crate::graph::Made;
use crate::handler::Handler;

/// Packets of all instances of an element.
#[derive(Default)]
pub(crate) struct Packets {
    pub(crate) workers: PerWorker<Count>,
    /// What had been counted when it was last reset.
    before: AtomicU64,
}

impl Packets {
    fn count(&self) -> u64 {
        // Read first: what is counted in between is not less than that. Relaxed, as counts are.
        let before = self.before.load(Relaxed);
        self.workers.sum(Count::read) - before
    }

    /// Begins to count anew.
    pub(crate) fn reset(&self) {
        self.before.store(self.workers.sum(Count::read), Relaxed);
    }

    /// Adds the handlers.
    pub(crate) fn handled(self: &Arc<Self>, made: Made) -> Made {
        let [read, reset] = [(); 2].map(|()| self.clone());
        made.handler(Handler::read("count", move || read.count().to_string()))
            .command("reset_counts", move || reset.reset())
    }
}
