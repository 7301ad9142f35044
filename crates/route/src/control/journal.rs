//! Journal: numbered notices of changes of routes, next-hop objects, links, interfaces, neighbors that users
//! set, commits and decisions, kept for a while.
//!
//! Every change of any of these is a notice with the next number and the time; a subscriber reads
//! those after the last one it read, and so continues where it was cut off. The journal is a ring: a subscriber that
//! falls behind by more than it holds gets [`Gap`], and starts again from a snapshot ([`super::snapshot`]).
//!
//! A notice holds the keys of its next hops, and not their ids: those may have another meaning by the
//! time it is read. The key of a next-hop object is its number; readers of the notices know from the notices of
//! objects what it leads to, and [`super::ObjectView::since`] shows whether that still holds.
//!
//! There is no clock here: the owner of the control side sets the time ([`super::Control::set_time`]).
//!
//! Cost:   112 bytes a notice and two reference counts; the ring is allocated as it fills
//! Limits: see [`KEPT`]

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::action::Done;
use super::objects::ObjectView;
use crate::event::{Mac, RouteKey};
use crate::fib::{Decision, Severity};
use crate::nexthop::HopKey;

/// Notices kept, 7 MiB: a full table's load passes, a burst of a session's routes is held.
const KEPT: usize = 65_536;
const _: () = assert!(size_of::<Notice>() <= 112);

/// A numbered notice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// One more than that of the notice before; begins at 1.
    pub sequence: u64,
    /// Time in microseconds since 1970 UTC.
    pub time_us: u64,
    /// What happened.
    pub what: Happened,
}

/// Contents of a notice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Happened {
    /// A route of a source was added, changed or deleted in the RIB.
    Route {
        /// Kind of change.
        done: Done,
        /// Number of the source.
        source: u16,
        /// The route.
        key: RouteKey,
        /// Its next hop before, unless it was added. A change may remove just one path.
        old: Option<Arc<HopKey>>,
        /// Its next hop now, unless it was deleted.
        new: Option<Arc<HopKey>>,
        /// Its MTU before and now, in bytes; 0 for the MTU of the link.
        mtus: (u16, u16),
        /// The best route of the prefix is another one now, or leads elsewhere.
        best: bool,
    },
    /// A next-hop object of a source was added, changed or deleted. Routes that name it
    /// lead elsewhere without a notice of their own.
    Object {
        /// Kind of change.
        done: Done,
        /// Number of the source.
        source: u16,
        /// The source's own number of the object.
        id: u32,
        /// Its paths before, unless it was added.
        old: Option<Box<ObjectView>>,
        /// Its paths now, unless it was deleted.
        new: Option<Box<ObjectView>>,
    },
    /// A link was added or deleted, went up or down, or has another name, MTU or link address.
    Link {
        /// Kind of change.
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
    /// An interface was taken over or released, as its driver reports.
    Interface {
        /// Its name.
        name: Box<str>,
        /// Kind of change.
        takeover: Takeover,
        /// The path of its packets in a word; empty once no driver has it.
        path: &'static str,
        /// Mode or reason, in words.
        mode: Box<str>,
    },
    /// A neighbor that users set was added, changed or deleted, or suspended and resumed with its link.
    Neighbor {
        /// Kind of change.
        done: Done,
        /// Name of the link at that time.
        interface: Box<str>,
        /// Its address.
        addr: IpAddr,
        /// Its link address now, or before it was deleted.
        mac: Mac,
        /// The link is up: packets go there.
        up: bool,
    },
    /// A request of a user for a change was carried out, or refused.
    Request(Box<Requested>),
    /// A configuration was applied, waits for its confirmation, was confirmed, or was rolled back.
    Configuration {
        /// Its number.
        number: u64,
        /// What was done, in a word.
        done: &'static str,
        /// Who or why, and its changes, in words.
        text: Box<str>,
    },
    /// Readers see everything up to here, as this generation.
    Visible(u64),
    /// The FIB decided something: a line with its numbers.
    Decision(String),
}

/// A request for a change, and who made it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Requested {
    /// Number of the user.
    pub uid: u32,
    /// Number of the process.
    pub pid: i32,
    /// Command line of the process, as the process states it.
    pub command: String,
    /// What was requested.
    pub request: String,
    /// Why it was refused; `None` where it was carried out.
    pub error: Option<String>,
}

/// Change of an interface.
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

/// Notices were lost to a subscriber that fell behind: the journal begins after the first one that it needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("notices up to {wanted} are no longer kept: the oldest is {oldest}; begin from a snapshot")]
pub struct Gap {
    /// Number after which notices were wanted.
    pub wanted: u64,
    /// The oldest that there is.
    pub oldest: u64,
}

/// The ring of notices, and decisions that were not taken yet.
#[derive(Debug, Default)]
pub(super) struct Journal {
    last: u64,
    time_us: u64,
    kept: VecDeque<Notice>,
    decisions: Vec<Decision>,
}

impl Journal {
    pub(super) fn note(&mut self, what: Happened) {
        self.last += 1;
        if self.kept.len() == KEPT {
            self.kept.pop_front();
        }
        self.kept.push_back(Notice { sequence: self.last, time_us: self.time_us, what });
    }

    /// Notes decisions of FIBs, and keeps them for [`Journal::take_decisions`].
    pub(super) fn decide(&mut self, decisions: Vec<Decision>) {
        for decision in decisions.iter().filter(|decision| decision.severity != Severity::Routine) {
            self.note(Happened::Decision(decision.text.clone()));
        }
        self.decisions.extend(decisions);
    }

    pub(super) fn take_decisions(&mut self) -> Vec<Decision> {
        std::mem::take(&mut self.decisions)
    }

    pub(super) fn set_time(&mut self, now: SystemTime) {
        let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        self.time_us = u64::try_from(since.as_micros()).unwrap_or(u64::MAX);
    }

    /// Number of the latest notice; 0 before the first.
    pub(super) fn sequence(&self) -> u64 {
        self.last
    }

    /// The notices after number `since`, the oldest first.
    pub(super) fn after(&self, since: u64) -> Result<impl Iterator<Item = &Notice>, Gap> {
        let oldest = self.kept.front().map_or(self.last + 1, |notice| notice.sequence);
        if since.checked_add(1).is_none_or(|first| first < oldest) || since > self.last {
            return Err(Gap { wanted: since, oldest });
        }
        let skip = usize::try_from(since + 1 - oldest).expect("at most what is kept");
        Ok(self.kept.range(skip..))
    }
}

impl Notice {
    /// Time of the change.
    pub fn time(&self) -> SystemTime {
        UNIX_EPOCH + Duration::from_micros(self.time_us)
    }
}
