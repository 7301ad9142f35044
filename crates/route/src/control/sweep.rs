//! Sweep: withdrawals that can wait, of routes whose next-hop object is gone, and of routes that a dump did not repeat.
//!
//! Both can be all of a full table at one moment, and neither is urgent. A route without its object leads nowhere from the
//! next refresh on; and a route that a dump did not repeat forwarded until then. So each commit
//! withdraws a bounded number, in the order of prefixes, and what is urgent (a link that fails) never waits for more
//! than that.
//!
//! Cost: a walk over all routes for each dump, and for each object that routes named when it went; about 1 ms a step

use std::time::Instant;

use super::sources::{SourceId, Sources};
use super::tables::Tables;
use crate::event::{AnyPrefix, RouteKey};
use crate::forwarding::IpFamily;
use crate::nexthop::NextHops;
use crate::rib::{Candidate, Rib};

/// Prefixes that a step visits, and routes that it withdraws, at most: about a millisecond each.
const VISITED: usize = 16_384;
const WITHDRAWN: usize = 2_048;

/// Progress of the sweep.
#[derive(Debug, Default)]
pub(super) struct Sweep {
    /// Place of the next step; `None` when no route waits.
    at: Option<Place>,
    /// More routes came up behind that place.
    again: bool,
    /// Time of the latest step, if another one follows.
    due: Option<Instant>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Place {
    /// Twice the index of the table, and one more for IPv6.
    family: usize,
    /// The last prefix that was visited.
    after: Option<AnyPrefix>,
}

/// Routes to withdraw, each with its source.
pub(super) type Withdrawals = Vec<(SourceId, RouteKey)>;

impl Sweep {
    /// Starts a sweep, or a further one behind the present one.
    pub(super) fn begin(&mut self) {
        match self.at {
            None => self.at = Some(Place::default()),
            Some(_) => self.again = true,
        }
    }

    /// Whether routes may wait.
    pub(super) fn is_pending(&self) -> bool {
        self.at.is_some()
    }

    /// Time of the next step, which is due at once.
    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Notes that a commit of this time took its step, or left it out.
    pub(super) fn stepped(&mut self, now: Instant) {
        self.due = self.is_pending().then_some(now);
    }

    fn end(&mut self) {
        self.at = std::mem::take(&mut self.again).then(Place::default);
    }

    /// Finds the routes of the next step.
    pub(super) fn step(
        &mut self,
        tables: &Tables,
        hops: &NextHops,
        sources: &Sources,
    ) -> Withdrawals {
        let mut withdrawals = Vec::new();
        let mut visits = VISITED;
        let wanted = |candidate: &Candidate, stamp: u8| {
            hops.is_orphan(candidate.hop) || sources.get(SourceId(candidate.source)).is_stale(stamp)
        };
        while let Some(place) = self.at {
            let room = WITHDRAWN.saturating_sub(withdrawals.len());
            if visits == 0 || room == 0 {
                break;
            }
            let Some(table) = tables.routes().nth(place.family / 2) else {
                self.end();
                // One round a step: what comes again comes with the next.
                break;
            };
            let limits = (visits, room);
            let (found, visited, last) = match place.family % 2 {
                0 => select(table.v4().rib(), place.after, limits, wanted),
                _ => select(table.v6().rib(), place.after, limits, wanted),
            };
            visits = visits.saturating_sub(visited.max(1));
            let number = table.number();
            withdrawals.extend(found.into_iter().map(|(prefix, candidate)| {
                let key = RouteKey { table: number, prefix, metric: candidate.metric };
                (SourceId(candidate.source), key)
            }));
            self.at = Some(match last {
                Some(last) => Place { after: Some(last), ..place },
                None => Place { family: place.family + 1, after: None },
            });
        }
        withdrawals
    }
}

/// Candidates of the next prefixes of a family, at most `room` of `visits`; how many were visited, and the last of them.
fn select<A: IpFamily>(
    rib: &Rib<A>,
    after: Option<AnyPrefix>,
    (visits, room): (usize, usize),
    wanted: impl FnMut(&Candidate, u8) -> bool,
) -> (Vec<(AnyPrefix, Candidate)>, usize, Option<AnyPrefix>) {
    let selected = rib.select(after.and_then(A::own), visits, room, wanted);
    let found = selected.found.into_iter().map(|(prefix, found)| (A::any(prefix), found));
    (found.collect(), selected.looks, selected.last.map(A::any))
}
