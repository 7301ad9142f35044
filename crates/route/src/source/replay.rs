//! End of the table that a peer sends after it has connected, where the protocol does not mark it for sure.
//!
//! Routes of the session before that were not repeated are withdrawn at the end, so it must come neither too early nor never.
//! The table is complete
//! - after a silence of [`super::SessionSpec::sweep_after`];
//! - at the peer's own mark, but not within that time from the begin: some of it may begin later;
//! - on a network that is never silent, in the first second after [`LONGEST`] that brings fewer than [`SLOW`] messages: a
//!   replay brings a hundred times as many.
//!
//! A peer that has sent nothing has no table: a connection alone withdraws no route.

use std::time::{Duration, Instant};

/// Time from which on a table is complete also without a silence; twice the silence where that is longer.
const LONGEST: Duration = Duration::from_secs(60);
/// Fewer messages a second than these are no replay.
const SLOW: u32 = 1000;
const SECOND: Duration = Duration::from_secs(1);

/// Table of a session.
#[derive(Debug)]
pub(super) struct Replay {
    sweep_after: Duration,
    state: State,
}

#[derive(Debug)]
enum State {
    New,
    Open {
        since: Instant,
        /// Whether anything was understood.
        begun: bool,
        /// When the latest message of the table came.
        last: Instant,
        /// The present second, and messages in it.
        second: (Instant, u32),
    },
    Complete,
}

impl Replay {
    /// Table of a session that has not begun.
    pub(super) fn new(sweep_after: Duration) -> Self {
        Self { sweep_after, state: State::New }
    }

    /// Begins with the session; returns whether it does so now.
    pub(super) fn begin(&mut self, now: Instant) -> bool {
        let begins = matches!(self.state, State::New);
        if begins {
            self.state = State::Open { since: now, begun: false, last: now, second: (now, 0) };
        }
        begins
    }

    /// Begins anew: what came so far is no part of the table.
    pub(super) fn restart(&mut self, now: Instant) {
        self.state = State::New;
        self.begin(now);
    }

    /// Whether the table is complete.
    pub(super) fn is_complete(&self) -> bool {
        matches!(self.state, State::Complete)
    }

    /// Notes a transaction of the peer with so many messages of the table, or with none of it.
    pub(super) fn note(&mut self, messages: u32, now: Instant) {
        if let State::Open { begun, last, second, .. } = &mut self.state {
            *begun = true;
            if messages > 0 {
                *last = now;
                second.1 = second.1.saturating_add(messages);
            }
        }
    }

    /// Whether the table becomes complete now; `marked` where the peer has sent its end.
    pub(super) fn completes(&mut self, marked: bool, now: Instant) -> bool {
        let State::Open { since, begun, last, second } = &mut self.state else { return false };
        let passed = |from: Instant, time| now.saturating_duration_since(from) >= time;
        let mut complete =
            passed(*last, self.sweep_after) || marked && passed(*since, self.sweep_after);
        if passed(second.0, SECOND) {
            complete |= second.1 < SLOW && passed(*since, LONGEST.max(2 * self.sweep_after));
            *second = (now, 0);
        }
        complete &= *begun;
        if complete {
            self.state = State::Complete;
        }
        complete
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A replay with a silence of 10 s, and what is done to it at second `at`.
    struct Run(Replay, Instant);

    impl Run {
        fn new() -> Self {
            let (mut replay, start) = (Replay::new(Duration::from_secs(10)), Instant::now());
            assert!(replay.begin(start) && !replay.begin(start));
            Self(replay, start)
        }

        fn note(&mut self, at: u64, messages: u32) {
            self.0.note(messages, self.1 + Duration::from_secs(at));
        }

        fn completes(&mut self, at: u64, marked: bool) -> bool {
            self.0.completes(marked, self.1 + Duration::from_secs(at))
        }
    }

    #[test]
    fn a_silence_ends_it_once() {
        let mut run = Run::new();
        run.note(5, 100);
        run.note(9, 0);
        assert_eq!([14, 15, 100].map(|at| run.completes(at, false)), [false, true, false]);
    }

    #[test]
    fn a_connection_alone_never_ends_it() {
        let mut run = Run::new();
        assert!(!run.completes(1_000, true));
        run.note(1_001, 0);
        assert!(run.completes(1_002, false), "an empty table is one");
    }

    #[test]
    fn a_mark_counts_from_the_silence_on() {
        let mut run = Run::new();
        (0..=11).for_each(|at| run.note(at, 5));
        assert_eq!([9, 10].map(|at| run.completes(at, true)), [false, true]);
    }

    #[test]
    fn updates_without_a_silence_end_it_after_a_minute() {
        let mut run = Run::new();
        for at in 0..90 {
            run.note(at, if at < 70 { SLOW } else { 20 });
            let complete = run.completes(at, false);
            assert_eq!(complete, at == 70, "{at}");
            if complete {
                return;
            }
        }
    }
}
