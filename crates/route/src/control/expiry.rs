//! Paths of routes that end by themselves (FreeBSD's temporal routes, RTV_EXPIRE).
//!
//! Source: sys/net/route/nhop.h of FreeBSD's main branch, where the end belongs to the next hop, so that one
//! member of a group ends alone (a router that RAs announced). Differs: here next hops are shared by routes
//! that end at different times, so the end belongs to the path of a route.
//!
//! Few routes have an end, so it is kept beside the RIB: by time for finding what is due, by name for
//! what is replaced before that. Cost: nothing for routes without one but a look at an empty map.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Control, RouteError, SourceId};
use crate::event::{Path, RouteKey};
use crate::nexthop::HopKey;

/// When there is no room for the group that is left, it is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// Gateway and link of a path; `None` stands for the whole of a route without paths.
type PathName = Option<(Option<IpAddr>, Option<u32>)>;

/// Of each source's route the ends of its paths.
type ByName = HashMap<(u16, RouteKey), Vec<(PathName, Instant)>>;

fn name(path: &Path) -> PathName {
    Some((path.gateway, path.link))
}

fn names(of: &HopKey) -> Vec<PathName> {
    match of.paths() {
        [] => vec![None],
        paths => paths.iter().map(name).collect(),
    }
}

/// When paths of routes end, as it is at one moment.
#[derive(Clone, Debug, Default)]
pub struct Ends(Arc<ByName>);

impl Ends {
    /// When this way of a source's route ends, if it does by itself; `None` asks for a route without ways.
    pub fn of(&self, source: u16, key: RouteKey, path: Option<&Path>) -> Option<Instant> {
        let wanted = path.and_then(name);
        let mut ends = self.0.get(&(source, key))?.iter();
        ends.find(|(path, _)| *path == wanted).map(|&(_, at)| at)
    }
}

/// When paths end.
#[derive(Debug, Default)]
pub(super) struct Expiry {
    /// Copied for a change only while somebody keeps an older state.
    by_name: Ends,
    by_time: BTreeSet<(Instant, u16, RouteKey, PathName)>,
}

impl Expiry {
    /// Forgets when the paths of a route end.
    pub(super) fn forget(&mut self, source: SourceId, key: &RouteKey) {
        self.keep(source, key, |_| false);
    }

    /// Forgets when those paths of a route end for which `keep` does not hold.
    fn keep(&mut self, source: SourceId, key: &RouteKey, keep: impl Fn(PathName) -> bool) {
        if self.by_name.0.is_empty() {
            return;
        }
        let name = (source.0, *key);
        if !self.by_name.0.contains_key(&name) {
            return;
        }
        let by_name = Arc::make_mut(&mut self.by_name.0);
        let ends = by_name.get_mut(&name).expect("just seen");
        let by_time = &mut self.by_time;
        ends.retain(|&(path, at)| keep(path) || !by_time.remove(&(at, source.0, *key, path)));
        if ends.is_empty() {
            by_name.remove(&name);
        }
    }

    /// Of a path that has no end so far.
    fn set(&mut self, source: SourceId, key: RouteKey, path: PathName, at: Instant) {
        let by_name = Arc::make_mut(&mut self.by_name.0);
        by_name.entry((source.0, key)).or_default().push((path, at));
        self.by_time.insert((at, source.0, key, path));
    }

    /// Takes all that is due of one route.
    fn take_due(&mut self, now: Instant) -> Option<(SourceId, RouteKey, Vec<PathName>)> {
        let &(at, source, key, _) = self.by_time.first().filter(|(at, ..)| *at <= now)?;
        let ends = &self.by_name.0[&(source, key)];
        let due: Vec<PathName> =
            ends.iter().filter(|(_, end)| *end <= now).map(|&(path, _)| path).collect();
        debug_assert!(ends.iter().any(|(_, end)| *end == at), "both say the same");
        let source = SourceId(source);
        self.keep(source, &key, |path| !due.contains(&path));
        Some((source, key, due))
    }
}

impl Control {
    /// The route is `now` what it is; of its paths those of `said` end at that time or (`None`) stay, and
    /// the others end when they would have.
    pub(super) fn expire_at(
        &mut self,
        source: SourceId,
        key: RouteKey,
        now: &HopKey,
        said: &HopKey,
        at: Option<Instant>,
    ) {
        if at.is_none() && self.expiry.by_name.0.is_empty() {
            return;
        }
        let (have, said) = (names(now), names(said));
        self.expiry.keep(source, &key, |path| have.contains(&path) && !said.contains(&path));
        for path in said {
            if let Some(at) = at {
                self.expiry.set(source, key, path, at);
            }
        }
    }

    /// Paths of the route went, and `left` are there still.
    pub(super) fn keep_ends(&mut self, source: SourceId, key: &RouteKey, left: &HopKey) {
        let have = names(left);
        self.expiry.keep(source, key, |path| have.contains(&path));
    }

    /// When routes end.
    pub fn ends(&self) -> Ends {
        self.expiry.by_name.clone()
    }

    /// When the next path of a route ends: a commit is due then.
    pub fn next_expiry(&self) -> Option<Instant> {
        Some(self.expiry.by_time.first()?.0)
    }

    /// Takes away what is due: of each route all of it by one change. Part of each commit.
    pub(super) fn expire(&mut self, now: Instant) {
        while let Some((source, key, due)) = self.expiry.take_due(now) {
            let Some(hop) = self.present(source, &key) else { continue };
            let mut left = self.paths(hop);
            left.retain(|path| !due.contains(&name(path)));
            if left.is_empty() {
                self.withdraw(source, &key);
                continue;
            }
            let (left, mtu) = (HopKey::of_paths(left), self.mtu_of(hop));
            if let Err(error) = self.try_insert(source, key, None, &left, mtu) {
                self.refuse(source, &RouteError::NextHop { prefix: key.prefix, error });
                for path in due {
                    self.expiry.set(source, key, path, now + RETRY);
                }
            }
        }
    }
}
