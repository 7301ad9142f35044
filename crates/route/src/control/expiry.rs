//! Routes that end by themselves (FreeBSD's temporal routes, RTV_EXPIRE).
//!
//! Few routes have an end, so it is kept beside the RIB: by time for finding what is due, by name for
//! what is replaced before that. Cost: nothing for routes without one but a look at an empty map.

use std::collections::{BTreeSet, HashMap};
use std::time::Instant;

use super::{Control, SourceId};
use crate::event::RouteKey;

/// When routes end.
#[derive(Debug, Default)]
pub(super) struct Expiry {
    by_name: HashMap<(u16, RouteKey), Instant>,
    by_time: BTreeSet<(Instant, u16, RouteKey)>,
}

impl Expiry {
    /// Forgets when a route ends.
    pub(super) fn forget(&mut self, source: SourceId, key: &RouteKey) {
        if self.by_name.is_empty() {
            return;
        }
        if let Some(at) = self.by_name.remove(&(source.0, *key)) {
            self.by_time.remove(&(at, source.0, *key));
        }
    }

    fn set(&mut self, source: SourceId, key: RouteKey, at: Instant) {
        self.by_name.insert((source.0, key), at);
        self.by_time.insert((at, source.0, key));
    }

    /// Takes one that is due.
    fn take_due(&mut self, now: Instant) -> Option<(SourceId, RouteKey)> {
        let &(at, source, key) = self.by_time.first()?;
        (at <= now).then(|| {
            self.forget(SourceId(source), &key);
            (SourceId(source), key)
        })
    }
}

impl Control {
    /// The route ends at that time; `None`: it stays.
    pub(super) fn expire_at(&mut self, source: SourceId, key: RouteKey, at: Option<Instant>) {
        self.expiry.forget(source, &key);
        if let Some(at) = at {
            self.expiry.set(source, key, at);
        }
    }

    /// When the route of a source ends, if it does by itself.
    pub fn expires(&self, source: u16, key: RouteKey) -> Option<Instant> {
        self.expiry.by_name.get(&(source, key)).copied()
    }

    /// When the next route ends: a commit is due then.
    pub fn next_expiry(&self) -> Option<Instant> {
        Some(self.expiry.by_time.first()?.0)
    }

    /// Deletes what is due. Part of each commit.
    pub(super) fn expire(&mut self, now: Instant) {
        while let Some((source, key)) = self.expiry.take_due(now) {
            self.withdraw(source, &key);
        }
    }
}
