//! What changed, in order: numbered notices of routes, next-hop objects, links, interfaces, neighbors that users
//! set, commits and decisions, kept for a while.
//!
//! Every change of any of these is a notice with the next number and the time; a subscriber asks for
//! those after the last one it saw, and so goes on where it was cut off. The log is a ring: who falls behind
//! by more than it holds is told so, and begins anew from a snapshot ([`super::snapshot`]).
//!
//! A notice holds what its next hops stand for, and not their ids: those may mean something else by the
//! time it is read. Of a next-hop object that is its number, and what that leads to is known to who read the
//! notices of it; [`super::ObjectView::since`] says whether it is still the same.
//!
//! There is no clock here: who feeds the control side says what time it is ([`Control::set_time`]).
//!
//! Cost:   112 bytes a notice and two reference counts; the ring is allocated as it fills
//! Limits: see [`KEPT`]

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::Control;
use super::action::Done;
use super::objects::ObjectView;
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
    /// When, in microseconds since 1970 UTC.
    pub time_us: u64,
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
    /// A next-hop object of a source was announced, announced otherwise, or is gone. Routes that name it
    /// lead elsewhere without a notice of their own.
    Object {
        /// In a word.
        done: Done,
        /// Number of the source.
        source: u16,
        /// The source's own number of the object.
        id: u32,
        /// What it led to before, unless it was added.
        old: Option<Box<ObjectView>>,
        /// What it leads to now, unless it was deleted.
        new: Option<Box<ObjectView>>,
    },
    /// A link came, went up or down, has another name, MTU or link address, or went.
    Link {
        /// In a word.
        done: Done,
        /// Its kernel index.
        link: u32,
        /// Its name now, or before it was deleted.
        name: Box<str>,
        /// Up, with carrier.
        up: bool,
        /// Largest IP packet, in bytes.
        mtu: u32,
        /// Its link address, where it has one.
        mac: Option<Mac>,
    },
    /// An interface was taken over or given back, as who drives it reports.
    Interface {
        /// Its name.
        name: Box<str>,
        /// What was done.
        takeover: Takeover,
        /// The path of its packets in a word; empty when nobody drives it any more.
        path: &'static str,
        /// How, or why, in words.
        mode: Box<str>,
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

/// What was done with an interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Takeover {
    /// Its packets are forwarded here from now on, or by another path than before.
    Taken,
    /// It stays with the kernel.
    Kernel,
    /// It was taken, and the kernel has it again.
    Released,
    /// It was deleted or renamed, or is about to be taken over again. One that goes down stays as it is.
    Closed,
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
    time_us: u64,
    kept: VecDeque<Notice>,
}

impl Log {
    fn push(&mut self, what: Happened) {
        self.last += 1;
        if self.kept.len() == KEPT {
            self.kept.pop_front();
        }
        self.kept.push_back(Notice { sequence: self.last, time_us: self.time_us, what });
    }
}

impl Notice {
    /// When it happened.
    pub fn time(&self) -> SystemTime {
        UNIX_EPOCH + Duration::from_micros(self.time_us)
    }
}

impl Control {
    /// Notices from now on are of this time.
    pub fn set_time(&mut self, now: SystemTime) {
        let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        self.log.time_us = u64::try_from(since.as_micros()).unwrap_or(u64::MAX);
    }

    /// Notes what who drives interfaces did with one. `mode` says how, or why.
    pub fn note_interface(
        &mut self,
        name: &str,
        takeover: Takeover,
        path: &'static str,
        mode: &str,
    ) {
        let (name, mode) = (name.into(), mode.into());
        self.notice(Happened::Interface { name, takeover, path, mode });
    }

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
