//! RIB actions: changes that users and programs request, one by one, each with a result.
//!
//! Source: FreeBSD's `rib_action` and `add_route_px` (sys/net/route/route_ctl.c): what an operation does
//! depends on whether the route exists, and is reported by its effect (add, change, delete). Differs: the
//! routes of other sources are no obstacle, as each source has a candidate of its own; only what follows
//! from the host's own addresses is pinned, as interface routes are there.
//!
//! Events of sources are handled elsewhere ([`Control::handle`]): they report what is, in any order, and are
//! never refused for what was there before. Both end in the same two functions.
//!
//! | route | operation | outcome |
//! |---|---|---|
//! | absent | without `create` | no such route |
//! | absent | `create` | added |
//! | absent, the prefix is the host's own | any without `force` | exists; in use, when it was to be deleted |
//! | present | `exclusive` | exists |
//! | present | `append`, a new path | changed: the paths together |
//! | present | `append`, a path that it has, or no paths at all | exists |
//! | present | `replace` | changed |
//! | present | delete of one path of several | changed |
//! | present | delete of the last path, or of all | deleted |

use std::time::{Duration, Instant};

use fingerpost_lpm::NextHopId;

use super::Control;
use super::links::holds;
use super::resolver::resolver;
use super::routes::{key_of, settled};
use super::sources::{HOST, SourceId};
use crate::event::{AnyPrefix, MAIN_TABLE, Path, RouteKey, Target};
use crate::nexthop::{HopError, HopKey, NextHops};

/// What an operation may do, in FreeBSD's flags (`RTM_F_*`); the usual ones have names.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Operation {
    /// Make the route when it is absent.
    pub create: bool,
    /// Fail when it is present.
    pub exclusive: bool,
    /// Put the new paths in the place of the present ones.
    pub replace: bool,
    /// Add the new paths to the present ones.
    pub append: bool,
    /// Ignore that the prefix is the host's own.
    pub force: bool,
}

impl Operation {
    const NONE: Self =
        Self { create: false, exclusive: false, replace: false, append: false, force: false };
    /// A new route: fails when there is one.
    pub const ADD: Self = Self { create: true, exclusive: true, ..Self::NONE };
    /// A new route, or further paths of one: what a routing socket's RTM_ADD does.
    pub const APPEND: Self = Self { create: true, append: true, ..Self::NONE };
    /// A new route, or new paths of one.
    pub const REPLACE: Self = Self { create: true, replace: true, ..Self::NONE };
    /// New paths of a route that is there. When it has several, and one is named by its gateway, only
    /// that one changes.
    pub const CHANGE: Self = Self { replace: true, ..Self::NONE };
}

/// Effect of an action, as in its notice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Done {
    /// The route was not there before.
    Added,
    /// It has other paths now; that may be fewer.
    Changed,
    /// It is gone.
    Deleted,
}

/// Result of an action.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Outcome {
    /// Kind of change.
    pub done: Done,
    /// Its next hop before; `NONE` when it was absent.
    pub old: NextHopId,
    /// Its next hop now; `NONE` when it is gone.
    pub new: NextHopId,
    /// Number of the notice ([`Control::sequence`]).
    pub sequence: u64,
}

/// Why an action was refused. Nothing was changed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RouteError {
    /// There is no such route or, for one that was named, no such path.
    #[error("{0}: no such route")]
    NoRoute(AnyPrefix),
    /// The route has other paths, and not this one.
    #[error("{0}: the route has no such path")]
    NoPath(AnyPrefix),
    /// Which of several paths was meant?
    #[error("{prefix}: no such route with one path: it has {paths}, name one or delete all")]
    ManyPaths {
        /// The route.
        prefix: AnyPrefix,
        /// How many it has.
        paths: usize,
    },
    /// The route, or the path that was to be added.
    #[error("{0}: exists")]
    Exists(AnyPrefix),
    /// The prefix follows from an address of the host.
    #[error("{0}: in use by an interface: it goes when the address goes")]
    InUse(AnyPrefix),
    /// Packets to these destinations are not forwarded by a route table.
    #[error("{0}: link-local and multicast destinations are not routed")]
    NotRouted(AnyPrefix),
    /// See [`Control::add_table`].
    #[error("no room for another route table: there are 65,535")]
    TooManyTables,
    /// The next hop leads nowhere, or cannot be held.
    #[error("{prefix}: {error}")]
    NextHop {
        /// The route.
        prefix: AnyPrefix,
        /// What is wrong with it.
        error: HopError,
    },
}

impl RouteError {
    /// A word for programs, the same in all versions.
    pub fn code(&self) -> &'static str {
        match self {
            Self::NoRoute(_) | Self::NoPath(_) | Self::ManyPaths { .. } => "no-such-route",
            Self::Exists(_) => "exists",
            Self::InUse(_) => "in-use",
            Self::NotRouted(_) => "not-routed",
            Self::TooManyTables => "too-many-tables",
            Self::NextHop { error, .. } => error.code(),
        }
    }
}

/// Which paths of a route are to be deleted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Paths {
    /// The only one; refused where there are several.
    Only,
    /// These, known by gateway, and by link where one is given.
    Named(Vec<Path>),
    /// All there are.
    All,
}

impl Control {
    /// Adds, changes, replaces or appends to the route `key` of a source, as `operation` allows. It is
    /// visible to readers after the next commit. Its MTU is `mtu`, 0 for the link's; with `None` that of
    /// a new route is the link's, and one that is appended to or changed keeps its own. With `lifetime`
    /// the paths of `target` are taken away by the first commit after that time, and the route with the
    /// last of its paths, unless they were put anew; without one they stay. Paths that the operation
    /// leaves alone keep their lifetime.
    ///
    /// # Errors
    /// [`RouteError`]; nothing was changed then.
    pub fn put_route(
        &mut self,
        source: SourceId,
        key: RouteKey,
        operation: Operation,
        target: &Target,
        mtu: Option<u16>,
        lifetime: Option<(Duration, Instant)>,
    ) -> Result<Outcome, RouteError> {
        let prefix = key.prefix;
        if !super::forwarded(prefix) {
            return Err(RouteError::NotRouted(prefix));
        }
        let mut target = target.clone();
        self.settle_links(&key, &mut target);
        let wanted = key_of(source, key.prefix, &target);
        let present = self.present(source, &key);
        let hop = match present {
            None if self.pinned(&key) && !operation.force => {
                return Err(RouteError::Exists(prefix));
            }
            None if !operation.create => return Err(RouteError::NoRoute(prefix)),
            None => wanted.clone(),
            Some(_) if operation.exclusive => return Err(RouteError::Exists(prefix)),
            Some(old) if operation.append => self.appended(prefix, old, &wanted)?,
            Some(old) if operation.replace => {
                if operation.create {
                    wanted.clone()
                } else {
                    self.changed(prefix, old, &wanted)?
                }
            }
            Some(_) => return Err(RouteError::Exists(prefix)),
        };
        let anew = operation.create && operation.replace;
        let kept = present.filter(|_| !anew).map_or(0, |hop| self.mtu_of(hop));
        let mtu = mtu.unwrap_or(kept);
        let failed = |error| RouteError::NextHop { prefix, error };
        NextHops::check_mtu(mtu, prefix).map_err(failed)?;
        let resolver = resolver(&self.links, &self.objects, &self.tables, &self.neighbors);
        self.hops.check(&hop, Some((key.table, prefix)), &resolver).map_err(failed)?;
        self.add_table(key.table)?;
        let new = self.try_insert(source, key, None, &hop, mtu).map_err(failed)?;
        let end = lifetime.map(|(after, now)| now + after);
        self.expiry.change(source, key, &hop, &wanted, end);
        self.force(&key);
        let done = if present.is_none() { Done::Added } else { Done::Changed };
        let old = present.unwrap_or(NextHopId::NONE);
        Ok(Outcome { done, old, new, sequence: self.sequence() })
    }

    /// Deletes the route `key` of a source, or some of its paths.
    ///
    /// # Errors
    /// [`RouteError`]; nothing was changed then.
    pub fn delete_route(
        &mut self,
        source: SourceId,
        key: RouteKey,
        paths: &Paths,
    ) -> Result<Outcome, RouteError> {
        let prefix = key.prefix;
        let Some(old) = self.present(source, &key) else {
            let pinned = self.pinned(&key);
            return Err(if pinned { RouteError::InUse } else { RouteError::NoRoute }(prefix));
        };
        let have = self.paths(old);
        let left = match paths {
            Paths::Only if have.len() > 1 => {
                return Err(RouteError::ManyPaths { prefix, paths: have.len() });
            }
            Paths::Only | Paths::All => Vec::new(),
            Paths::Named(named) => {
                let named: Vec<Path> = named.iter().map(|path| settled(prefix, *path)).collect();
                if !named.iter().all(|path| have.iter().any(|h| same_path(h, path))) {
                    return Err(RouteError::NoPath(prefix));
                }
                have.into_iter().filter(|h| !named.iter().any(|path| same_path(h, path))).collect()
            }
        };
        self.force(&key);
        if left.is_empty() {
            self.withdraw(source, &key);
            let sequence = self.sequence();
            return Ok(Outcome { done: Done::Deleted, old, new: NextHopId::NONE, sequence });
        }
        let failed = |error| RouteError::NextHop { prefix, error };
        let (left, mtu) = (HopKey::of_paths(left), self.mtu_of(old));
        let new = self.try_insert(source, key, None, &left, mtu).map_err(failed)?;
        self.expiry.retain(source, &key, &left);
        Ok(Outcome { done: Done::Changed, old, new, sequence: self.sequence() })
    }

    /// Makes the next commit apply the change: its user relies on it (FreeBSD's rule for static routes).
    fn force(&mut self, key: &RouteKey) {
        if let Some(table) = self.tables.get_mut(key.table) {
            table.force(key.prefix);
        }
    }

    /// The table of this number, made when there is none: its index among the fibs.
    ///
    /// # Errors
    /// [`RouteError::TooManyTables`].
    pub fn add_table(&mut self, number: u32) -> Result<u16, RouteError> {
        let known = self.tables.fib(number);
        let fib = self.tables.add(number).ok_or(RouteError::TooManyTables)?;
        if known.is_none() {
            // Readers get it at the next commit.
            self.output.outdate();
        }
        Ok(fib)
    }

    /// Sets the link of paths in other tables than the main one: the link whose prefix holds the gateway, as the
    /// kernel reports connected prefixes for the main table alone. A gateway in none is resolved by its route.
    pub(super) fn settle_links(&self, key: &RouteKey, target: &mut Target) {
        let paths = match target {
            _ if key.table == MAIN_TABLE => return,
            Target::Path(path) => std::slice::from_mut(path),
            Target::Paths(paths) | Target::Ranked(paths) => paths,
            _ => return,
        };
        for path in paths.iter_mut().filter(|path| path.link.is_none()) {
            let Some(gateway) = path.gateway else { continue };
            let near = self.links.addresses_of(key.table).find(|a| holds(a, gateway));
            path.link = near.map(|near| near.link);
        }
    }

    /// Whether the prefix follows from an address of the host.
    fn pinned(&self, key: &RouteKey) -> bool {
        let table = self.tables.get(key.table);
        table.is_some_and(|t| t.candidates(key.prefix).iter().any(|c| c.source == HOST.0))
    }

    fn appended(
        &self,
        prefix: AnyPrefix,
        old: NextHopId,
        wanted: &HopKey,
    ) -> Result<HopKey, RouteError> {
        let mut paths = self.paths(old);
        let new: &[Path] = match wanted {
            HopKey::Path(path) => std::slice::from_ref(path),
            HopKey::Group(paths) => paths,
            _ => &[],
        };
        // Only paths over gateways form a group: the others have the destination itself on their link.
        let joins = |path: &Path| path.gateway.is_some();
        let known = |path: &Path| paths.iter().any(|have| same_path(have, path));
        if !new.iter().all(joins) || !paths.iter().all(joins) || new.iter().any(known) {
            return Err(RouteError::Exists(prefix));
        }
        if new.is_empty() || paths.is_empty() {
            return Err(RouteError::Exists(prefix));
        }
        paths.extend_from_slice(new);
        Ok(HopKey::of_paths(paths))
    }

    /// A change of one path of several touches only that one.
    fn changed(
        &self,
        prefix: AnyPrefix,
        old: NextHopId,
        wanted: &HopKey,
    ) -> Result<HopKey, RouteError> {
        let mut paths = self.paths(old);
        let &HopKey::Path(new) = wanted else { return Ok(wanted.clone()) };
        if paths.len() < 2 {
            return Ok(HopKey::Path(new));
        }
        let path = paths.iter_mut().find(|have| same_path(have, &new));
        *path.ok_or(RouteError::NoPath(prefix))? = new;
        Ok(HopKey::of_paths(paths))
    }
}

/// Whether `path` names the path `have`.
fn same_path(have: &Path, path: &Path) -> bool {
    have.gateway == path.gateway && (path.link.is_none() || have.link == path.link)
}
