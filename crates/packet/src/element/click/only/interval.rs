//! Turns of an element that acts once in an interval.

use std::time::Duration;

/// Turns at equal distances, the first an interval after the element began. What is missed is not made up for, but for one turn.
pub(super) struct Interval {
    ns: u64,
    next_ns: Option<u64>,
}

impl Interval {
    /// Turns at this distance, of a nanosecond at least.
    pub(super) fn new(interval: Duration) -> Self {
        let ns = u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX).max(1);
        Self { ns, next_ns: None }
    }

    /// Whether a turn is due.
    pub(super) fn is_due(&mut self, now_ns: u64) -> bool {
        now_ns >= *self.next_ns.get_or_insert(now_ns.saturating_add(self.ns))
    }

    /// Ends a turn that was due.
    pub(super) fn end_turn(&mut self, now_ns: u64) {
        let next_ns = self.next_ns.map(|next_ns| next_ns.saturating_add(self.ns));
        self.next_ns = next_ns.max(Some(now_ns.saturating_sub(self.ns)));
    }

    /// Time of the next turn, once the element has begun.
    pub(super) fn due_ns(&self) -> Option<u64> {
        self.next_ns
    }
}
