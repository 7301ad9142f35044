//! Static routes of one configured source, which follow their links by name, with liveness of their next hops.
//!
//! A path whose link is not there is not used, and a route without another path waits. A link that is made anew has another
//! number: its routes follow within a turn.
//!
//! With liveness a path is used while its link is up and its neighbor replies: the kernel probes it every `probe_ms`, and
//! reports it as failed after three probes without a reply, `retrans_time_ms` of the link's neighbor table apart (a second,
//! unless configured). A route is left with its other paths, and is withdrawn with the last one: a route of a
//! larger distance, metric or shorter prefix takes its place.
//!
//! Detection: at once for a link; for a neighbor at most `probe_ms` + 3 `retrans_time_ms` + 20 ms (see
//!            `control/neighbors/unconfirmed.rs`). A next hop that is back is used again within `probe_ms`.
//! Cost:      a request and two messages of the kernel a next hop and `probe_ms`.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use fingerpost_route::source::line::ABSENT_LINK;
use fingerpost_route::{
    Control, NeighborRequest, NextHopState, Path, RouteEvent, RouteUpdate, SourceId, Target,
};
use tracing::{info, warn};

use super::export::Wanted;

/// A next hop: table of its routes, gateway and link.
type Hop = (u32, Option<IpAddr>, Option<u32>);

/// Requests to the kernel about neighbors.
#[derive(Debug, Default)]
pub(super) struct Probes {
    /// Neighbors to confirm.
    pub(super) known: Vec<NeighborRequest>,
    /// Neighbors to resolve.
    pub(super) unknown: Vec<NeighborRequest>,
}

/// A next hop that is watched.
#[derive(Clone, Copy, Debug, Default)]
struct Watched {
    alive: bool,
    probed: Option<Instant>,
}

/// Links that routes name, with their numbers: from [`ABSENT_LINK`] for those that are not there.
#[derive(Debug, Default)]
struct Links {
    all: BTreeMap<String, u32>,
    /// Changes of links when they were looked for last.
    looked: u64,
}

impl Links {
    /// Looks for the links by name; returns new numbers of those whose number is another, by the old one.
    fn follow(&mut self, control: &Control) -> BTreeMap<u32, u32> {
        let changes = control.link_changes();
        if self.all.is_empty() || std::mem::replace(&mut self.looked, changes) == changes {
            return BTreeMap::new();
        }
        let links = control.links().map(|(link, _, state)| (&*state.name, link));
        let there: BTreeMap<&str, u32> = links.collect();
        let mut moved = BTreeMap::new();
        for ((name, link), absent) in self.all.iter_mut().zip(ABSENT_LINK..) {
            let now = there.get(&**name).copied();
            match (now, *link >= ABSENT_LINK) {
                (None, true) => continue,
                (Some(now), false) if now == *link => continue,
                (None, false) => {
                    warn!(target: "source", "interface {name} is gone: static routes wait for it")
                }
                (Some(_), _) => {
                    info!(target: "source", "interface {name} appeared: static routes use it")
                }
            }
            let now = now.unwrap_or(absent);
            moved.insert(std::mem::replace(link, now), now);
        }
        moved
    }

    /// Names of those that are not there.
    fn absent(&self) -> impl Iterator<Item = &str> {
        self.all.iter().filter(|(_, link)| **link >= ABSENT_LINK).map(|(name, _)| &**name)
    }
}

/// The routes of one source.
pub(super) struct StaticRoutes {
    id: SourceId,
    routes: Vec<RouteUpdate>,
    links: Links,
    /// Target of each as the control side has it; `None` while no next hop replies.
    sent: Vec<Option<Target>>,
    /// Time between two probes; `None` without liveness.
    probe: Option<Duration>,
    hops: BTreeMap<Hop, Watched>,
}

impl StaticRoutes {
    /// No routes yet, of the source of this number.
    pub(super) fn new(id: SourceId) -> Self {
        let (routes, sent) = (Vec::new(), Vec::new());
        Self { id, routes, links: Links::default(), sent, probe: None, hops: BTreeMap::new() }
    }

    /// Number of the source.
    pub(super) fn id(&self) -> SourceId {
        self.id
    }

    /// Replaces the routes, which name these links. Those that are not there any more are withdrawn.
    pub(super) fn set(
        &mut self,
        control: &mut Control,
        (routes, links): (Vec<RouteUpdate>, BTreeMap<String, u32>),
        probe: Option<Duration>,
    ) {
        self.links = Links { all: links, looked: control.link_changes() };
        let hops = routes
            .iter()
            .flat_map(|route| paths(&route.target).iter().map(|path| hop(route, path)));
        let hops: BTreeMap<Hop, Watched> = match probe {
            Some(_) => {
                hops.map(|hop| (hop, self.hops.get(&hop).copied().unwrap_or_default())).collect()
            }
            None => BTreeMap::new(),
        };
        (self.routes, self.probe, self.hops) = (routes, probe, hops);
        self.judge(control);
        self.sent = self.routes.iter().map(|route| self.target(route)).collect();
        control.handle(self.id, RouteEvent::StartOfTable);
        for (route, target) in self.routes.iter().zip(&self.sent) {
            if let Some(target) = target {
                control.handle(self.id, event(route, target));
            }
        }
        control.handle(self.id, RouteEvent::EndOfTable);
        if let Some(what) = self.waiting() {
            warn!(target: "source", "{what}");
        }
    }

    /// The interfaces that routes wait for, in words; `None` where none does.
    pub(super) fn waiting(&self) -> Option<String> {
        let names: Vec<&str> = self.links.absent().collect();
        if names.is_empty() {
            return None;
        }
        let absent = |path: &Path| path.link.is_some_and(|link| link >= ABSENT_LINK);
        let waits = |route: &&RouteUpdate| {
            let paths = paths(&route.target);
            !paths.is_empty() && paths.iter().all(absent)
        };
        let routes = self.routes.iter().filter(waits).count();
        Some(format!("no such interface yet: {}; routes that wait: {routes}", names.join(", ")))
    }

    /// Follows links and the state of the next hops, and has those probed that are due. Returns how many routes changed.
    pub(super) fn turn(
        &mut self,
        control: &mut Control,
        now: Instant,
        probes: &mut Probes,
    ) -> usize {
        let moved = self.links.follow(control);
        self.renumber(&moved);
        let changed = self.judge(control);
        for (&(table, gateway, link), watched) in &mut self.hops {
            let every = self.probe.expect("hops are watched with liveness");
            if watched.probed.is_some_and(|at| now.saturating_duration_since(at) < every) {
                continue;
            }
            watched.probed = Some(now);
            match control.next_hop_state(table, &Path { gateway, link, weight: 1 }) {
                NextHopState::Replies(request) => probes.known.push(request),
                NextHopState::Silent(request) | NextHopState::Unknown(request) => {
                    probes.unknown.push(request);
                }
                NextHopState::Down | NextHopState::Up => {}
            }
        }
        if changed.is_empty() && moved.is_empty() {
            return 0;
        }
        let mut taken = 0;
        for at in 0..self.routes.len() {
            let (route, target) = (&self.routes[at], self.target(&self.routes[at]));
            if self.sent[at] == target {
                continue;
            }
            control.handle(
                self.id,
                match &target {
                    Some(target) => event(route, target),
                    None => RouteEvent::Withdraw(route.key),
                },
            );
            self.sent[at] = target;
            taken += 1;
        }
        for ((_, gateway, link), alive) in changed {
            let name = link.and_then(|link| control.links().find(|(number, ..)| *number == link));
            let name = name.map(|(.., state)| format!(" on {}", state.name)).unwrap_or_default();
            let gateway = gateway.map_or("the link".to_owned(), |gateway| gateway.to_string());
            let what = if alive { "replies" } else { "is lost" };
            info!(target: "source", routes = taken, "next hop {gateway}{name} {what}; static routes changed: {taken}");
        }
        taken
    }

    /// Routes that packets follow now, by their key in the kernel.
    pub(super) fn wanted(&self) -> Wanted {
        let sent = self.routes.iter().zip(&self.sent);
        let routes = sent.filter_map(|(route, target)| {
            Some(RouteUpdate { target: target.clone()?, ..route.clone() })
        });
        routes.map(|route| (fingerpost_route::netlink::export::key(&route.key), route)).collect()
    }

    /// Gives paths and next hops the new numbers of their links.
    fn renumber(&mut self, moved: &BTreeMap<u32, u32>) {
        if moved.is_empty() {
            return;
        }
        let new = |link: &mut Option<u32>| {
            if let Some(now) = link.and_then(|link| moved.get(&link)) {
                *link = Some(*now);
            }
        };
        for route in &mut self.routes {
            match &mut route.target {
                Target::Path(path) => new(&mut path.link),
                Target::Paths(paths) => paths.iter_mut().for_each(|path| new(&mut path.link)),
                _ => {}
            }
        }
        let hops = std::mem::take(&mut self.hops).into_iter();
        self.hops = hops
            .map(|((table, gateway, mut link), watched)| {
                new(&mut link);
                ((table, gateway, link), watched)
            })
            .collect();
    }

    /// Looks at each next hop; returns those that are lost or back.
    fn judge(&mut self, control: &Control) -> Vec<(Hop, bool)> {
        let mut changed = Vec::new();
        for (&hop, watched) in &mut self.hops {
            let (table, gateway, link) = hop;
            let alive = match control.next_hop_state(table, &Path { gateway, link, weight: 1 }) {
                NextHopState::Replies(_) | NextHopState::Up => true,
                NextHopState::Silent(_) | NextHopState::Down => false,
                NextHopState::Unknown(_) => watched.alive,
            };
            if alive != watched.alive {
                watched.alive = alive;
                changed.push((hop, alive));
            }
        }
        changed
    }

    /// What a route does by the paths whose links are there and whose next hops reply.
    fn target(&self, route: &RouteUpdate) -> Option<Target> {
        let alive = |path: &&Path| {
            path.link.is_none_or(|link| link < ABSENT_LINK)
                && self.hops.get(&hop(route, path)).is_none_or(|watched| watched.alive)
        };
        match &route.target {
            Target::Path(path) => Some(path).filter(alive).map(|path| Target::Path(*path)),
            Target::Paths(paths) => {
                let left: Vec<Path> = paths.iter().filter(alive).copied().collect();
                match left[..] {
                    [] => None,
                    [path] => Some(Target::Path(Path { weight: 1, ..path })),
                    _ => Some(Target::Paths(left)),
                }
            }
            other => Some(other.clone()),
        }
    }
}

fn hop(route: &RouteUpdate, path: &Path) -> Hop {
    (route.key.table, path.gateway, path.link)
}

fn paths(target: &Target) -> &[Path] {
    match target {
        Target::Path(path) => std::slice::from_ref(path),
        Target::Paths(paths) => paths,
        _ => &[],
    }
}

fn event(route: &RouteUpdate, target: &Target) -> RouteEvent {
    RouteEvent::Route(RouteUpdate { target: target.clone(), ..route.clone() })
}
