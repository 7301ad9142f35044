//! State machine of a FIB: how its table stands to the routes, and when the next round is due.
//!
//! ```text
//! InStep --Forced--> Forced --+                      Done, from every state
//!   |  \--Unlisted--> Outdated --Forced--> Unusable ------------------------> InStep
//!   +-----Invalidated--------------------> Unusable
//! any state --RoundFailed--> Failed: stays until a round succeeds, and always has a time of its next round
//! ```

use std::time::Instant;

use super::choose;

/// Relation of the lookup table to the routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// The table holds the routes but for the changes that the backlog lists.
    InStep {
        /// Time of the next commit that has something to do without further changes.
        due: Option<Instant>,
    },
    /// The table is in step, and the next commit applies the listed changes without delay.
    Forced,
    /// The table lacks changes that are not listed: the next round builds.
    Outdated {
        /// End of the present batch, once a commit waits for it.
        due: Option<Instant>,
    },
    /// There is no table, or it is wrong, or in the wrong memory: the next commit builds.
    Unusable,
    /// No algorithm could hold the routes in the latest round; the table before it still answers.
    Failed {
        /// Failed rounds since the last successful one.
        rounds: u32,
        /// Time of the next round; `None`: the next commit.
        retry_at: Option<Instant>,
    },
}

/// What changes the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// The next commit is to make every change visible.
    Forced,
    /// There are so many changes that a build is cheaper: they are no longer listed.
    Unlisted,
    /// The table is wrong, or readers cannot use its memory.
    Invalidated,
    /// The user chose an algorithm.
    Chosen,
    /// A commit left the changes to the end of their batch.
    Deferred(Instant),
    /// A round succeeded; the next step of a calibration is due at `again`.
    Done {
        /// `None` without a calibration.
        again: Option<Instant>,
    },
    /// A round failed at this time.
    RoundFailed(Instant),
}

impl State {
    /// State after an event.
    #[must_use]
    pub(super) fn next(self, event: Event) -> Self {
        match (self, event) {
            (_, Event::Done { again }) => Self::InStep { due: again },
            (state, Event::RoundFailed(now)) => {
                let before = state.failed_rounds();
                let retry_at = Some(now + choose::pause(before));
                Self::Failed { rounds: before + 1, retry_at }
            }
            (Self::Failed { rounds, .. }, Event::Chosen) => Self::Failed { rounds, retry_at: None },
            // Nothing shortens the pause but the user, and the next round builds in any case.
            (state @ Self::Failed { .. }, _) | (state, Event::Chosen) => state,
            (_, Event::Invalidated) | (Self::Unusable, _) => Self::Unusable,
            (Self::InStep { .. } | Self::Forced, Event::Forced) => Self::Forced,
            (Self::Outdated { .. }, Event::Forced) | (Self::Forced, Event::Unlisted) => {
                Self::Unusable
            }
            (Self::InStep { due } | Self::Outdated { due }, Event::Unlisted) => {
                Self::Outdated { due }
            }
            (Self::InStep { .. }, Event::Deferred(until)) => Self::InStep { due: Some(until) },
            (Self::Outdated { .. }, Event::Deferred(until)) => Self::Outdated { due: Some(until) },
            (Self::Forced, Event::Deferred(_)) => Self::Forced,
        }
    }

    /// Whether the backlog lists all that the table lacks, so that it can be changed in place.
    pub(super) fn is_listed(self) -> bool {
        matches!(self, Self::InStep { .. } | Self::Forced)
    }

    /// Whether the next commit does not wait for a batch.
    pub(super) fn is_urgent(self) -> bool {
        matches!(self, Self::Forced | Self::Unusable | Self::Failed { .. })
    }

    /// Whether a failed round has to wait before the next one.
    pub(super) fn is_paused(self, now: Instant) -> bool {
        matches!(self, Self::Failed { retry_at: Some(at), .. } if now < at)
    }

    /// Time of the next commit that has something to do without further changes.
    pub(super) fn due(self) -> Option<Instant> {
        match self {
            Self::InStep { due } | Self::Outdated { due } => due,
            Self::Failed { retry_at, .. } => retry_at,
            Self::Forced | Self::Unusable => None,
        }
    }

    /// Failed rounds since the last successful one.
    pub(super) fn failed_rounds(self) -> u32 {
        match self {
            Self::Failed { rounds, .. } => rounds,
            _ => 0,
        }
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_failure_stays_until_a_round_succeeds_and_has_a_time_of_its_next_round() {
        let now = Instant::now();
        let mut state = State::Unusable.next(Event::RoundFailed(now));
        let pause = |ms| Some(now + Duration::from_millis(ms));
        assert_eq!(state, State::Failed { rounds: 1, retry_at: pause(50) });
        assert!(state.is_paused(now) && !state.is_paused(now + Duration::from_millis(50)));
        for event in [Event::Forced, Event::Unlisted, Event::Invalidated, Event::Deferred(now)] {
            assert_eq!(state.next(event), state, "{event:?}");
        }
        state = state.next(Event::RoundFailed(now));
        assert_eq!(state, State::Failed { rounds: 2, retry_at: pause(100) });
        let chosen = state.next(Event::Chosen);
        assert!(!chosen.is_paused(now) && chosen.is_urgent() && chosen.failed_rounds() == 2);
        assert_eq!(chosen.next(Event::Done { again: None }), State::InStep { due: None });
    }

    #[test]
    fn what_is_not_listed_is_built_and_at_once_where_a_commit_is_forced() {
        let now = Instant::now();
        let idle = State::InStep { due: None };
        let waiting = idle.next(Event::Deferred(now));
        assert_eq!(
            (waiting.due(), waiting.is_listed(), waiting.is_urgent()),
            (Some(now), true, false)
        );
        assert!(waiting.next(Event::Forced).is_urgent() && waiting.next(Event::Forced).is_listed());
        let outdated = waiting.next(Event::Unlisted);
        assert_eq!(
            (outdated.due(), outdated.is_listed(), outdated.is_urgent()),
            (Some(now), false, false)
        );
        for urgent in [
            outdated.next(Event::Forced),
            idle.next(Event::Invalidated),
            idle.next(Event::Forced).next(Event::Unlisted),
        ] {
            assert_eq!(urgent, State::Unusable);
            assert_eq!(urgent.next(Event::Deferred(now)), State::Unusable);
        }
    }
}
