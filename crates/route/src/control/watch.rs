//! What changed, in order: numbered notices of routes, neighbors that users set, commits and decisions, kept
//! for a while.
//!
//! Every change of a candidate or of such a neighbor is a notice with the next number; a subscriber asks for
//! those after the last one it saw, and so goes on where it was cut off. The log is a ring: who falls behind
//! by more than it holds is told so, and begins anew from a snapshot ([`super::snapshot`]).
//!
//! A notice holds what its next hops stand for, and not their ids: those may mean something else by the
//! time it is read.
//!
//! Cost:   112 bytes a notice and two reference counts; the ring is allocated as it fills
//! Limits: see [`KEPT`]

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;

use super::Control;
use super::action::Done;
use crate::event::{Mac, RouteKey};
use crate::nexthop::HopKey;

/// Notices kept, 7 MiB: a full table's load passes, a burst of a session's routes is held.
const KEPT: usize = 65_536;
const _: () = assert!(size_of::<Notice>() <= 112);

/// A numbered notice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// One more than that of the notice before; begins at 1.
    pub sequence: u64,
    /// What happened.
    pub what: Happened,
}

/// What a notice tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Happened {
    /// A route of a source was added, changed or deleted in the RIB.
    Route {
        /// In a word.
        done: Done,
        /// Number of the source.
        source: u16,
        /// The route.
        key: RouteKey,
        /// Its next hop before, unless it was added. A change may take just a path away.
        old: Option<Arc<HopKey>>,
        /// Its next hop now, unless it was deleted.
        new: Option<Arc<HopKey>>,
        /// Its MTU before and now, in bytes; 0 for what the link carries.
        mtus: (u16, u16),
        /// The best route of the prefix is another one now, or leads elsewhere.
        best: bool,
    },
    /// A neighbor that users set came, changed, was suspended with its link or taken up again, or went.
    Neighbor {
        /// In a word.
        done: Done,
        /// Name of the link at that time.
        interface: Box<str>,
        /// The station.
        addr: IpAddr,
        /// Its link address now, or before it was deleted.
        mac: Mac,
        /// The link is up: packets go there.
        up: bool,
    },
    /// Readers see everything up to here, as this generation.
    Visible(u64),
    /// The FIB decided something: a line with its numbers.
    Decision(String),
}

/// Notices were lost to a subscriber that fell behind: the log begins after what it asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("notices up to {asked} are no longer kept: the oldest is {oldest}; begin from a snapshot")]
pub struct Gap {
    /// The first number that was asked for.
    pub asked: u64,
    /// The oldest that there is.
    pub oldest: u64,
}

/// The ring of notices.
#[derive(Debug, Default)]
pub(super) struct Log {
    last: u64,
    kept: VecDeque<Notice>,
}

impl Log {
    fn push(&mut self, what: Happened) {
        self.last += 1;
        if self.kept.len() == KEPT {
            self.kept.pop_front();
        }
        self.kept.push_back(Notice { sequence: self.last, what });
    }
}

impl Control {
    /// Number of the latest notice; 0 before the first.
    pub fn sequence(&self) -> u64 {
        self.log.last
    }

    /// The notices after number `since`, the oldest first.
    ///
    /// # Errors
    /// [`Gap`] when some of them are no longer kept, or `since` is of another run's time: it lies ahead.
    pub fn notices(&self, since: u64) -> Result<impl Iterator<Item = &Notice>, Gap> {
        let oldest = self.log.kept.front().map_or(self.log.last + 1, |notice| notice.sequence);
        if since.checked_add(1).is_none_or(|first| first < oldest) || since > self.log.last {
            return Err(Gap { asked: since, oldest });
        }
        let skip = usize::try_from(since + 1 - oldest).expect("at most what is kept");
        Ok(self.log.kept.range(skip..))
    }

    pub(super) fn notice(&mut self, what: Happened) {
        self.log.push(what);
    }
}
