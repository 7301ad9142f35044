//! What readers get: the published value, its generation, and the wait for readers.

use std::time::{Duration, Instant};

use fingerpost_lpm::{Grace, KernelReader};

use crate::fib::{Publisher, Reader, Subscribe};
use crate::forwarding::Forwarding;
use crate::nexthop::NextHops;

/// A worker that does not pin for this long is not forwarding: do not wait for it.
const LONGEST_GRACE: Duration = Duration::from_millis(200);
/// Ids that are not reused because a table is behind wait for so long before all tables are made to
/// catch up together: each alone may be ahead at another time.
const LONGEST_HOLD: Duration = Duration::from_secs(1);

/// After so long they are brought up to date by the writer itself: a table that is built for each change is never in step
/// while routes change, and the writer's build takes as long as that of another thread.
const LONGEST_BEHIND: Duration = Duration::from_secs(30);

/// The publisher of the control side.
pub(super) struct Output {
    publisher: Publisher<Forwarding>,
    generation: u64,
    /// Ports or tables changed: readers must have them before a table names them.
    outdated: bool,
    /// Time from which ids wait to be reused because some table may still name them.
    held: Option<Instant>,
}

impl Output {
    pub(super) fn new(value: Forwarding) -> Self {
        Self { publisher: Publisher::new(value), generation: 1, outdated: false, held: None }
    }

    pub(super) fn reader(&self) -> Reader<Forwarding> {
        self.publisher.reader()
    }

    pub(super) fn subscribe(&self) -> Subscribe<Forwarding> {
        self.publisher.subscribe()
    }

    pub(super) fn set_kernel_reader(&mut self, kernel_reader: Box<dyn KernelReader<Forwarding>>) {
        self.publisher.set_kernel_reader(kernel_reader);
    }

    /// The published value.
    pub(super) fn value(&self) -> impl std::ops::Deref<Target = Forwarding> + Clone + use<> {
        self.publisher.value()
    }

    /// Generation of the published value.
    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    /// Notes a change of ports or tables: the next commit publishes before it changes tables.
    pub(super) fn outdate(&mut self) {
        self.outdated = true;
    }

    /// Whether ports or tables changed since the last call.
    pub(super) fn take_outdated(&mut self) -> bool {
        std::mem::take(&mut self.outdated)
    }

    pub(super) fn publish(&mut self, value: Forwarding) {
        self.generation = self.publisher.set(value);
    }

    /// Waits until all readers have passed this moment, for a bounded time.
    pub(super) fn wait_for_readers(&mut self) {
        let epoch = self.publisher.retire();
        let start = Instant::now();
        while !self.publisher.passed(epoch) && start.elapsed() < LONGEST_GRACE {
            std::thread::yield_now();
        }
    }

    /// Grace periods of the readers.
    pub(super) fn grace(&mut self) -> &mut dyn Grace {
        &mut self.publisher
    }

    /// Whether ids have waited for their reuse too long, so that all tables must catch up.
    pub(super) fn is_overdue(&self, now: Instant) -> bool {
        self.held.is_some_and(|since| now.saturating_duration_since(since) > LONGEST_HOLD)
    }

    /// Whether they have waited so long that a commit must leave nothing to later ones.
    pub(super) fn is_long_overdue(&self, now: Instant) -> bool {
        self.held.is_some_and(|since| now.saturating_duration_since(since) > LONGEST_BEHIND)
    }

    /// Returns ids to `hops` that no reader names any more, unless a table is `behind`: it still names ids
    /// that no route has. Frees replaced values.
    pub(super) fn reclaim(&mut self, hops: &mut NextHops, behind: bool, now: Instant) {
        if !behind {
            hops.reclaim(&mut self.publisher);
            self.held = None;
        } else if hops.waiting() > 0 {
            self.held.get_or_insert(now);
        }
        self.publisher.sweep();
    }
}
