//! Withdrawals that can wait: routes whose next-hop object is gone, and routes that a dump did not repeat.
//!
//! Both can be all of a full table at one moment, and neither is urgent. An object that is gone leads nowhere from the
//! next refresh on, whatever still names it; and what a dump did not repeat forwarded until then. So each commit
//! withdraws a bounded number, in the order of prefixes, and what is urgent (a link that fails) never waits for more
//! than that.
//!
//! Cost: a walk over all routes for each dump, and for each object that routes named when it went; about 1 ms a step

use std::time::Instant;

use super::{Control, Source, SourceId};
use crate::event::{AnyPrefix, RouteKey};

/// Prefixes that a step looks at, and routes that it withdraws, at most: about a millisecond each.
const LOOKS: usize = 16_384;
const WITHDRAWN: usize = 2_048;

/// How far the sweep has come.
#[derive(Debug, Default)]
pub(super) struct Sweep {
    /// Where it goes on; `None` when nothing waits.
    at: Option<Place>,
    /// More came up behind that place.
    again: bool,
    /// When the latest step was done, if it was not the last.
    due: Option<Instant>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Place {
    /// Twice the index of the table, and one more for IPv6.
    family: usize,
    /// The last prefix that was looked at.
    after: Option<AnyPrefix>,
}

impl Sweep {
    /// There is something to be withdrawn.
    pub(super) fn begin(&mut self) {
        match self.at {
            None => self.at = Some(Place::default()),
            Some(_) => self.again = true,
        }
    }

    /// Whether something may wait.
    pub(super) fn waits(&self) -> bool {
        self.at.is_some()
    }

    /// When the next step is due: at once.
    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }

    fn end(&mut self) {
        self.at = std::mem::take(&mut self.again).then(Place::default);
    }
}

impl Source {
    /// Whether a route that was said last in this round of dumps was missing from a later dump that is complete.
    fn is_stale(&self, stamp: u8) -> bool {
        // Rounds are counted in 8 bits, and the sweep ends long before they come round: what is ahead belongs to a dump
        // that goes on.
        (1..128).contains(&self.ended.wrapping_sub(stamp))
    }
}

impl Control {
    /// Whether routes are still to be withdrawn that lead nowhere, or that a dump did not repeat: each commit withdraws
    /// some of them.
    pub fn sweeping(&self) -> bool {
        self.sweep.waits()
    }

    /// All that waits.
    pub(super) fn sweep_all(&mut self) {
        while self.sweep.waits() {
            self.sweep_step();
        }
    }

    /// The step of a commit.
    pub(super) fn sweep_some(&mut self, now: Instant) {
        self.sweep_step();
        self.sweep.due = self.sweep.waits().then_some(now);
    }

    fn sweep_step(&mut self) {
        let (mut looks, mut room) = (LOOKS, WITHDRAWN);
        while let Some(place) = self.sweep.at {
            if looks == 0 || room == 0 {
                return;
            }
            let Some(table) = self.tables.iter().nth(place.family / 2) else {
                self.sweep.end();
                // One round a step: what comes again comes with the next.
                return;
            };
            let number = table.number;
            let wanted = |c: &crate::rib::Candidate, stamp: u8| {
                self.hops.is_orphan(c.hop) || self.sources[usize::from(c.source)].is_stale(stamp)
            };
            let (found, looked, last) = match (place.family % 2, place.after) {
                (0, after) => {
                    let after = match after {
                        Some(AnyPrefix::V4(after)) => Some(after),
                        _ => None,
                    };
                    let selected = table.v4.rib.select(after, looks, room, wanted);
                    let found = selected.found.into_iter();
                    let found: Vec<_> = found.map(|(p, c)| (AnyPrefix::V4(p), c)).collect();
                    (found, selected.looks, selected.last.map(AnyPrefix::V4))
                }
                (_, after) => {
                    let after = match after {
                        Some(AnyPrefix::V6(after)) => Some(after),
                        _ => None,
                    };
                    let selected = table.v6.rib.select(after, looks, room, wanted);
                    let found = selected.found.into_iter();
                    let found: Vec<_> = found.map(|(p, c)| (AnyPrefix::V6(p), c)).collect();
                    (found, selected.looks, selected.last.map(AnyPrefix::V6))
                }
            };
            looks = looks.saturating_sub(looked.max(1));
            room = room.saturating_sub(found.len());
            for (prefix, candidate) in found {
                let key = RouteKey { table: number, prefix, metric: candidate.metric };
                self.withdraw(SourceId(candidate.source), &key);
            }
            self.sweep.at = Some(match last {
                Some(last) => Place { after: Some(last), ..place },
                None => Place { family: place.family + 1, after: None },
            });
        }
    }
}
