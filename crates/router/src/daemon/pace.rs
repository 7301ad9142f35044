//! How often a turn of the daemon does all of its work.
//!
//! Shape:  after an event every turn is a full one for [`ALERT`]; in silence only one of [`EVERY`] is.
//! Cost:   a full turn without an event compares all interfaces with their state, which costs more than the wait for
//!         events does. Events of the kernel and of workers are taken in every turn.

use std::time::{Duration, Instant};

/// Time after an event during which every turn is a full one: what follows from an event may take several.
const ALERT: Duration = Duration::from_millis(500);

/// Time between two full turns in silence.
const EVERY: Duration = Duration::from_millis(50);

/// Times of the last event and of the last full turn.
pub(super) struct Pace {
    last_event: Instant,
    last_full: Instant,
}

impl Pace {
    /// Pace of a run that begins now: alert.
    pub(super) fn new(now: Instant) -> Self {
        Self { last_event: now, last_full: now }
    }

    /// Makes the turns from now on full ones.
    pub(super) fn alert(&mut self, now: Instant) {
        self.last_event = now;
    }

    /// Whether the turn at this time is a full one, which is noted then.
    pub(super) fn is_full(&mut self, now: Instant) -> bool {
        let alert = now.saturating_duration_since(self.last_event) < ALERT;
        let full = alert || now.saturating_duration_since(self.last_full) >= EVERY;
        if full {
            self.last_full = now;
        }
        full
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_are_full_after_an_event_and_rare_in_silence() {
        let start = Instant::now();
        let mut pace = Pace::new(start);
        let tick = Duration::from_millis(10);
        let full = |pace: &mut Pace, from: Instant| {
            (0..50).filter(|&turn| pace.is_full(from + tick * turn)).count()
        };
        assert_eq!(full(&mut pace, start), 50);
        let silent = start + ALERT;
        assert_eq!(full(&mut pace, silent), 10);
        pace.alert(silent + ALERT);
        assert_eq!(full(&mut pace, silent + ALERT), 50);
    }
}
