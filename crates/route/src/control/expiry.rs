//! Lifetimes: paths of routes that end by themselves (FreeBSD's temporal routes, RTV_EXPIRE).
//!
//! Source: sys/net/route/nhop.h of FreeBSD's main branch, where the end belongs to the next hop, so that one
//! member of a group ends alone (a router that RAs announced). Differs: here next hops are shared by routes
//! that end at different times, so the end belongs to the path of a route.
//!
//! Few routes have an end, so it is kept beside the RIB: by time for finding what is due, by name for
//! what is replaced before that. Cost: nothing for routes without one but a test of an empty map.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::sources::SourceId;
use crate::event::{Path, RouteKey};
use crate::nexthop::HopKey;

/// Delay of the next attempt when there is no room for the group that is left.
const RETRY: Duration = Duration::from_secs(1);

/// Gateway and link of a path; `None` stands for the whole of a route without paths.
pub(super) type PathName = Option<(Option<IpAddr>, Option<u32>)>;

/// Ends of the paths of each source's route.
type ByName = HashMap<(u16, RouteKey), Vec<(PathName, Instant)>>;

/// Name of a path.
pub(super) fn name(path: &Path) -> PathName {
    Some((path.gateway, path.link))
}

fn names(of: &HopKey) -> Vec<PathName> {
    match of.paths() {
        [] => vec![None],
        paths => paths.iter().map(name).collect(),
    }
}

/// Ends of paths at one moment.
#[derive(Clone, Debug, Default)]
pub struct Ends(Arc<ByName>);

impl Ends {
    /// End of a path of a source's route, if it has one; `None` names a route without paths.
    pub fn of(&self, source: u16, key: RouteKey, path: Option<&Path>) -> Option<Instant> {
        let wanted = path.and_then(name);
        let mut ends = self.0.get(&(source, key))?.iter();
        ends.find(|(path, _)| *path == wanted).map(|&(_, at)| at)
    }
}

/// Ends of all paths that have one.
#[derive(Debug, Default)]
pub(super) struct Expiry {
    /// Copied for a change only while an older state is in use.
    by_name: Ends,
    by_time: BTreeSet<(Instant, u16, RouteKey, PathName)>,
}

impl Expiry {
    /// Ends as of now.
    pub(super) fn ends(&self) -> Ends {
        self.by_name.clone()
    }

    /// The next end.
    pub(super) fn next(&self) -> Option<Instant> {
        Some(self.by_time.first()?.0)
    }

    /// Forgets the ends of a route's paths.
    pub(super) fn forget(&mut self, source: SourceId, key: &RouteKey) {
        self.keep(source, key, |_| false);
    }

    /// Takes over a change of a route: its paths are `now`, and those of `set` end at `at` or (`None`)
    /// never; other paths keep their ends.
    pub(super) fn change(
        &mut self,
        source: SourceId,
        key: RouteKey,
        now: &HopKey,
        set: &HopKey,
        at: Option<Instant>,
    ) {
        if at.is_none() && self.by_name.0.is_empty() {
            return;
        }
        let (have, set) = (names(now), names(set));
        self.keep(source, &key, |path| have.contains(&path) && !set.contains(&path));
        for path in set {
            if let Some(at) = at {
                self.set(source, key, path, at);
            }
        }
    }

    /// Forgets the ends of paths that are not in `left`.
    pub(super) fn retain(&mut self, source: SourceId, key: &RouteKey, left: &HopKey) {
        let have = names(left);
        self.keep(source, key, |path| have.contains(&path));
    }

    /// Has the paths end again a little later, as their route could not be changed.
    pub(super) fn retry(
        &mut self,
        source: SourceId,
        key: RouteKey,
        paths: Vec<PathName>,
        now: Instant,
    ) {
        for path in paths {
            self.set(source, key, path, now + RETRY);
        }
    }

    /// Forgets the ends of those paths of a route for which `keep` does not hold.
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

    /// Sets the end of a path that has none so far.
    fn set(&mut self, source: SourceId, key: RouteKey, path: PathName, at: Instant) {
        let by_name = Arc::make_mut(&mut self.by_name.0);
        by_name.entry((source.0, key)).or_default().push((path, at));
        self.by_time.insert((at, source.0, key, path));
    }

    /// Takes the due paths of one route.
    pub(super) fn take_due(&mut self, now: Instant) -> Option<(SourceId, RouteKey, Vec<PathName>)> {
        let &(at, source, key, _) = self.by_time.first().filter(|(at, ..)| *at <= now)?;
        let ends = &self.by_name.0[&(source, key)];
        let due: Vec<PathName> =
            ends.iter().filter(|(_, end)| *end <= now).map(|&(path, _)| path).collect();
        debug_assert!(ends.iter().any(|(_, end)| *end == at), "both indexes hold the same ends");
        let source = SourceId(source);
        self.keep(source, &key, |path| !due.contains(&path));
        Some((source, key, due))
    }
}
