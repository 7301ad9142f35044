//! Turns of an element that acts once in an interval.

use crate::element::support::setting::{Setting, Time};

/// Turns at equal distances, the first an interval after the element began. What is missed is not made up for, but for one turn.
pub(super) struct Interval {
    interval: Setting<Time>,
    next_ns: Option<u64>,
}

impl Interval {
    /// Turns at this distance, of a nanosecond at least.
    pub(super) fn new(interval: Setting<Time>) -> Self {
        Self { interval, next_ns: None }
    }

    fn ns(&self) -> u64 {
        self.interval.get().ns.max(1)
    }

    /// Whether a turn is due.
    pub(super) fn is_due(&mut self, now_ns: u64) -> bool {
        let ns = self.ns();
        now_ns >= *self.next_ns.get_or_insert(now_ns.saturating_add(ns))
    }

    /// Ends a turn that was due.
    pub(super) fn end_turn(&mut self, now_ns: u64) {
        let ns = self.ns();
        let next_ns = self.next_ns.map(|next_ns| next_ns.saturating_add(ns));
        self.next_ns = next_ns.max(Some(now_ns.saturating_sub(ns)));
    }

    /// Time of the next turn, once the element has begun.
    pub(super) fn due_ns(&self) -> Option<u64> {
        self.next_ns
    }
}
