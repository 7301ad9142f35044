//! Static routes of one configured source, which follow their links by name, with liveness of their next hops.
//!
//! A path whose link is not there is not used, and a route without another path waits. A link that is made anew has another
//! number: its routes follow, in one turn where they are few.
//!
//! **Many routes.** Up to [`AT_ONCE`] routes are read in the turn that opens the source, and sent at the end of the change
//! that it belongs to, which may be refused until then. More are read by another thread ([`ReadAhead`], or one of their own),
//! and then each turn sends some of them. The routes before stay until the last one of all such sources is sent, as one may
//! have what another had. Changes of links and next hops are carried out likewise, a part of the routes a turn; a further
//! change begins another round behind the present route, so that no route waits for good.
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
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::{Duration, Instant};

use fingerpost_route::source::line::{ABSENT_LINK, add_absent_links};
use fingerpost_route::source::{SourceError, SourceSpec, find};
use fingerpost_route::{
    Control, NeighborRequest, NextHopState, Path, RouteEvent, RouteUpdate, SourceId, Target,
};
use tracing::{info, warn};

use super::export::Announced;
use super::sessions::MOST_UNSEEN;
use super::table_file::TableFile;
use crate::config::Source;
use crate::privilege;

/// Routes that are read and taken in one turn: some 5 ms of work.
const AT_ONCE: usize = 4096;
/// Routes between two looks at the clock.
const LOOK: usize = 64;

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

/// Routes as the configuration writes them, to be read by any thread.
pub(super) struct Lines {
    source: Source,
    /// Links that there were, and their changes until then.
    links: Vec<(String, u32)>,
    looked: u64,
}

/// Routes that were read.
pub(super) struct Read {
    routes: Vec<RouteUpdate>,
    links: Links,
    /// Next hops to watch.
    hops: BTreeMap<Hop, Watched>,
    probe: Option<Duration>,
}

impl Lines {
    fn new(control: &Control, source: &Source) -> Self {
        let links = control.links().map(|(link, _, state)| (state.name.clone(), link)).collect();
        Self::of(source, links, control.link_changes())
    }

    /// The routes of a source, by links that there were until so many changes of links.
    pub(super) fn of(source: &Source, links: Vec<(String, u32)>, looked: u64) -> Self {
        Self { source: source.clone(), links, looked }
    }

    /// Whether they are so many that they are not read in a turn of the control thread.
    pub(super) fn are_many(source: &Source) -> bool {
        source.routes.len() > AT_ONCE
    }

    /// Reads them.
    pub(super) fn read(self) -> Result<Read, SourceError> {
        let Self { source, mut links, looked } = self;
        let named = add_absent_links(&source.routes, &mut links);
        let spec = SourceSpec { routes: source.routes.to_vec(), links, ..SourceSpec::default() };
        let mut routes = Vec::with_capacity(spec.routes.len());
        let sink = &mut |event| {
            if let RouteEvent::Route(route) = event {
                routes.push(route);
            }
        };
        let kind = find(&source.kind).expect("checked with the configuration");
        (kind.open)(&spec)?.finish(sink)?;
        let hops = routes
            .iter()
            .flat_map(|route| paths(&route.target).iter().map(|path| hop(route, path)))
            .map(|hop| (hop, Watched::default()));
        let probe = source.probe();
        let hops = probe.map_or_else(BTreeMap::new, |_| hops.collect());
        Ok(Read { routes, links: Links { all: named, looked }, hops, probe })
    }
}

/// Routes of a configuration that were read before it is the running one, by their sources.
#[derive(Default)]
pub(super) struct ReadAhead(Vec<(Source, Read)>);

impl ReadAhead {
    /// Adds the routes of a source.
    pub(super) fn add(&mut self, source: Source, read: Read) {
        self.0.push((source, read));
    }

    /// The routes of a source, if they were read and not yet taken.
    pub(super) fn take(&mut self, source: &Source) -> Option<Read> {
        let at = self.0.iter().position(|(known, _)| known == source)?;
        Some(self.0.swap_remove(at).1)
    }
}

/// Routes that are to take the place of others in a later turn.
enum Reading {
    /// A thread reads them.
    Thread(Receiver<Result<Read, SourceError>>),
    Done(Box<Read>),
}

/// Routes that were sent and are looked at again, some a turn. They are gone through as a ring: a change meanwhile has all of
/// them looked at from there on, so that changes without an end keep no route waiting.
#[derive(Default)]
struct Pass {
    /// The next one.
    at: usize,
    /// How many are left.
    left: usize,
    /// Routes that were changed so far.
    taken: usize,
    /// Next hops that were lost or are back.
    changed: BTreeMap<Hop, bool>,
}

/// How much of the newest table of routes the control side has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Table {
    /// A part: the rest is sent in turns.
    Partial,
    /// All routes, beside those before.
    Sent,
    /// All routes, and no others.
    Ended,
}

/// The routes of one source.
pub(super) struct StaticRoutes {
    id: SourceId,
    /// Shared with the thread that exports them.
    routes: Arc<Vec<RouteUpdate>>,
    links: Links,
    /// Target of each as the control side has it, of those that were sent; `None` while no next hop replies.
    sent: Vec<Option<Target>>,
    /// Time between two probes; `None` without liveness.
    probe: Option<Duration>,
    hops: BTreeMap<Hop, Watched>,
    /// The routes that take the place of these.
    reading: Option<Reading>,
    table: Table,
    pass: Option<Pass>,
    /// Routes that were sent since all were visible.
    unseen: usize,
}

impl StaticRoutes {
    /// No routes yet, of the source of this number.
    pub(super) fn new(id: SourceId) -> Self {
        Self {
            id,
            routes: Arc::default(),
            links: Links::default(),
            sent: Vec::new(),
            probe: None,
            hops: BTreeMap::new(),
            reading: None,
            table: Table::Ended,
            pass: None,
            unseen: 0,
        }
    }

    /// Number of the source.
    pub(super) fn id(&self) -> SourceId {
        self.id
    }

    /// Has routes that were read before, or that are read here, replace the present ones: few by [`StaticRoutes::take_few`],
    /// many in turns. Those that are not there any more are withdrawn by [`StaticRoutes::end_table`].
    ///
    /// # Errors
    /// When one of at most [`AT_ONCE`] routes is not valid, or no thread can be started: nothing changed then. Errors of more
    /// routes that are read here are logged.
    pub(super) fn set(
        &mut self,
        control: &Control,
        source: &Source,
        read: Option<Read>,
    ) -> Result<(), SourceError> {
        let lines = || Lines::new(control, source);
        let read = match read {
            Some(read) => read,
            None if Lines::are_many(source) => return self.read_beside(lines()),
            None => lines().read()?,
        };
        // Nothing is sent yet: the change may be refused.
        self.reading = Some(Reading::Done(Box::new(read)));
        Ok(())
    }

    /// Has a thread of its own read routes.
    fn read_beside(&mut self, lines: Lines) -> Result<(), SourceError> {
        let (to, reading) = channel();
        let thread = std::thread::Builder::new().name("fingerpost-lines".into());
        let started = thread.spawn(move || {
            privilege::keep_nothing();
            // The source was taken away, if nobody takes them.
            let _ = to.send(lines.read());
        });
        let failed = |error| SourceError::io("static routes", &error);
        started.map_err(failed)?;
        self.reading = Some(Reading::Thread(reading));
        Ok(())
    }

    /// Sends routes that were read, where they are few: at the end of the change that has them.
    pub(super) fn take_few(&mut self, control: &mut Control) {
        match self.reading.take() {
            Some(Reading::Done(read)) if read.routes.len() <= AT_ONCE => {
                self.take(control, *read);
                self.send_table(control, None);
            }
            other => self.reading = other,
        }
    }

    /// Takes all routes that are to take the place of others, and waits for them.
    ///
    /// # Errors
    /// When they are not valid: those before stay.
    pub(super) fn take_all(&mut self, control: &mut Control) -> Result<(), SourceError> {
        let read = match self.reading.take() {
            None => None,
            Some(Reading::Done(read)) => Some(*read),
            Some(Reading::Thread(read)) => Some(read.recv().unwrap_or_else(|_| Err(broke_off()))?),
        };
        if let Some(read) = read {
            self.take(control, read);
        }
        self.look_again(control, None);
        self.send_table(control, None);
        Ok(())
    }

    /// Whether routes are being read or taken that take the place of others.
    pub(super) fn is_reading(&self) -> bool {
        self.reading.is_some() || self.table == Table::Partial
    }

    /// Whether there are routes to send that were read.
    pub(super) fn is_read(&self) -> bool {
        self.table == Table::Partial || matches!(self.reading, Some(Reading::Done(_)))
    }

    /// Whether routes are to be looked at that may be sent.
    pub(super) fn is_behind(&self) -> bool {
        (self.table == Table::Partial || self.pass.is_some()) && self.unseen < MOST_UNSEEN
    }

    /// Notes that readers see all routes.
    pub(super) fn all_seen(&mut self) {
        self.unseen = 0;
    }

    /// Has routes that were read take the place of the present ones.
    fn take(&mut self, control: &mut Control, read: Read) {
        let Read { routes, links, mut hops, probe } = read;
        for (hop, watched) in &mut hops {
            *watched = self.hops.get(hop).copied().unwrap_or_default();
        }
        self.routes = Arc::new(routes);
        (self.links, self.hops, self.probe) = (links, hops, probe);
        self.sent = Vec::with_capacity(self.routes.len());
        self.judge(control);
        control.handle(self.id, RouteEvent::StartOfTable);
        (self.table, self.pass) = (Table::Partial, None);
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

    /// Withdraws the routes of the table before, if the newest one was sent. Returns whether there was one to end.
    pub(super) fn end_table(&mut self, control: &mut Control) -> bool {
        let ends = self.table == Table::Sent;
        if ends {
            self.table = Table::Ended;
            control.handle(self.id, RouteEvent::EndOfTable);
        }
        ends
    }

    /// Follows links and the state of the next hops, and has those probed that are due; sends routes of a new table until
    /// `until`, or none without it. Returns how many routes changed, and whether they are those that packets are to follow.
    pub(super) fn turn(
        &mut self,
        control: &mut Control,
        now: Instant,
        probes: &mut Probes,
        until: Option<Instant>,
    ) -> (usize, bool) {
        self.take_read(control);
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
        if !changed.is_empty() || !moved.is_empty() {
            let pass = self.pass.get_or_insert_default();
            pass.left = self.sent.len();
            pass.changed.extend(changed);
        }
        let may_send = until.filter(|_| self.unseen < MOST_UNSEEN);
        let again = self.look_again(control, Some(TableFile::until()));
        let sent = if may_send.is_some() { self.send_table(control, may_send) } else { 0 };
        (again.0 + sent, (again.1 || sent > 0) && self.table != Table::Partial)
    }

    /// Takes routes that were read, if they are there.
    fn take_read(&mut self, control: &mut Control) {
        let read = match self.reading.take() {
            None => return,
            Some(Reading::Done(read)) => Ok(*read),
            Some(Reading::Thread(thread)) => match thread.try_recv() {
                Err(TryRecvError::Empty) => {
                    self.reading = Some(Reading::Thread(thread));
                    return;
                }
                Err(TryRecvError::Disconnected) => Err(broke_off()),
                Ok(read) => read,
            },
        };
        match read {
            Ok(read) => self.take(control, read),
            // A thread reads only lists that ran before: in a rollback, or where a refused change is undone.
            Err(error) => {
                warn!(target: "source", "the static routes before stay: {error}");
            }
        }
    }

    /// Sends a route if what it does is not what was sent; returns whether it is not.
    fn send(&mut self, control: &mut Control, at: usize) -> bool {
        let route = &self.routes[at];
        let (target, was) = (self.target(route), self.sent.get(at));
        if was == Some(&target) {
            return false;
        }
        match &target {
            Some(target) => control.handle(self.id, event(route, target)),
            None if was.is_none() => {}
            None => control.handle(self.id, RouteEvent::Withdraw(route.key)),
        }
        match self.sent.get_mut(at) {
            Some(sent) => *sent = target,
            None => self.sent.push(target),
        }
        self.unseen += 1;
        true
    }

    /// Looks at routes that were sent, until a time. Returns how many changed, and whether it came to the last one.
    fn look_again(&mut self, control: &mut Control, until: Option<Instant>) -> (usize, bool) {
        let Some(mut pass) = self.pass.take() else { return (0, false) };
        let (before, mut is_whole) = (pass.taken, false);
        for looked in 0.. {
            if pass.left == 0 {
                self.report(control, &pass);
                return (pass.taken - before, is_whole || pass.taken > 0);
            }
            if is_late(looked, until) {
                break;
            }
            pass.taken += usize::from(self.send(control, pass.at));
            pass.left -= 1;
            pass.at = (pass.at + 1) % self.sent.len();
            is_whole |= pass.at == 0 && pass.taken > 0;
        }
        let taken = pass.taken - before;
        self.pass = Some(pass);
        (taken, is_whole)
    }

    /// Sends routes of a new table, until a time. Returns how many, and one more with the last of them.
    fn send_table(&mut self, control: &mut Control, until: Option<Instant>) -> usize {
        if self.table != Table::Partial {
            return 0;
        }
        let before = self.sent.len();
        for looked in 0..self.routes.len() - before {
            if is_late(looked, until) {
                return looked;
            }
            self.send(control, before + looked);
            if let Some(pass) = &mut self.pass {
                // The ring has one more.
                pass.left += 1;
            }
        }
        self.table = Table::Sent;
        if let Some(what) = self.waiting() {
            warn!(target: "source", "{what}");
        }
        self.sent.len() - before + 1
    }

    /// Reports next hops that were lost or are back.
    fn report(&self, control: &Control, pass: &Pass) {
        let taken = pass.taken;
        for ((_, gateway, link), alive) in &pass.changed {
            let name = link.and_then(|link| control.links().find(|(number, ..)| *number == link));
            let name = name.map(|(.., state)| format!(" on {}", state.name)).unwrap_or_default();
            let gateway = gateway.map_or("the link".to_owned(), |gateway| gateway.to_string());
            let what = if *alive { "replies" } else { "is lost" };
            info!(target: "source", routes = taken, "next hop {gateway}{name} {what}; static routes changed: {taken}");
        }
    }

    /// All routes with their present targets, for the exporter.
    pub(super) fn announced(&self) -> Announced {
        Announced { source: self.id.index(), routes: self.routes.clone(), sent: self.sent.clone() }
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
        for route in Arc::make_mut(&mut self.routes) {
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

/// Whether it is later than `until` after so many routes.
fn is_late(looked: usize, until: Option<Instant>) -> bool {
    looked > 0 && looked.is_multiple_of(LOOK) && until.is_some_and(|until| Instant::now() >= until)
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

/// Error of a thread that has panicked, which the panic hook has printed.
fn broke_off() -> SourceError {
    SourceError::io("static routes", &std::io::Error::other("they are not read"))
}

fn event(route: &RouteUpdate, target: &Target) -> RouteEvent {
    RouteEvent::Route(RouteUpdate { target: target.clone(), ..route.clone() })
}

#[cfg(test)]
mod tests {
    use std::path::Path as FilePath;

    use fingerpost_route::{ControlOptions, LinkState, LinkUpdate};

    use super::*;
    use crate::config::Config;

    const MANY: usize = 2 * AT_ONCE;

    /// Routes over gateways, and each tenth over an interface as well.
    fn source(count: usize, gateway: &str) -> Source {
        let line = |n: usize| {
            let dev = if n.is_multiple_of(10) { " dev wan" } else { "" };
            format!("\"10.{}.{}.0/24 via {gateway}{dev}\"", n / 256, n % 256)
        };
        let lines: Vec<String> = (0..count).map(line).collect();
        let text = format!("[[source]]\nkind = \"fixed\"\nroutes = [{}]\n", lines.join(", "));
        Config::of_text(FilePath::new("r.toml"), &text, None).unwrap().source.remove(0)
    }

    struct Lab {
        control: Control,
        routes: StaticRoutes,
    }

    impl Lab {
        fn new() -> Self {
            let (v4, v6) = (fingerpost_lpm::v4().collect(), fingerpost_lpm::v6().collect());
            let options = ControlOptions { v4, v6, connected_from_addresses: true };
            let mut control = Control::new(options).unwrap();
            let id = control.add_source("fixed", 1);
            Self { control, routes: StaticRoutes::new(id) }
        }

        fn link(&mut self, link: u32) {
            let state = LinkState { name: "wan".into(), up: true, ..LinkState::default() };
            let update = LinkUpdate { link, state: Some(state) };
            let kernel = self.control.add_source("links", 0);
            self.control.handle(kernel, RouteEvent::Link(update));
        }

        /// A change to the routes of a source.
        fn set(&mut self, source: &Source) {
            self.routes.set(&self.control, source, None).unwrap();
            self.routes.take_few(&mut self.control);
        }

        /// A turn whose time is over at once.
        fn turn(&mut self, may_send: bool) -> (usize, bool) {
            let now = Instant::now();
            let until = may_send.then_some(now);
            self.routes.turn(&mut self.control, now, &mut Probes::default(), until)
        }

        fn has(&self) -> usize {
            self.control.rib_v4().candidates()
        }

        fn wait_for_thread(&mut self) {
            let until = Instant::now() + Duration::from_secs(60);
            while self.routes.reading.is_some() {
                assert!(Instant::now() < until && self.routes.is_reading());
                std::thread::sleep(Duration::from_millis(1));
                self.routes.take_read(&mut self.control);
            }
        }
    }

    #[test]
    fn few_routes_are_there_at_once_and_many_in_turns() {
        let mut lab = Lab::new();
        lab.set(&source(AT_ONCE, "192.0.2.1"));
        let waits = AT_ONCE.div_ceil(10);
        assert!(!lab.routes.is_reading());
        assert_eq!(lab.has(), AT_ONCE - waits, "those over no interface");

        lab.set(&source(MANY, "192.0.2.2"));
        assert_eq!(lab.has(), AT_ONCE - waits, "those before stay");
        lab.wait_for_thread();
        assert_eq!(lab.turn(false), (0, false), "sources are held");
        let mut turns = 0;
        let mut taken = 0;
        while lab.routes.is_reading() {
            let (changed, whole) = lab.turn(true);
            assert!(changed <= 2 * LOOK + 1 && whole != lab.routes.is_reading());
            taken += changed;
            turns += 1;
            if turns == 5 {
                // Those that were sent follow it, and the rest is sent with it.
                lab.link(7);
            }
        }
        assert!(turns >= MANY / LOOK, "{turns}");
        assert!(taken > MANY && taken <= MANY + turns, "each once, and those that waited again");
        assert_eq!((lab.has(), lab.routes.sent.len()), (MANY, MANY));
        assert!(lab.routes.sent.iter().all(Option::is_some));
        let Some(Target::Path(first)) = &lab.routes.sent[0] else {
            panic!("{:?}", lab.routes.sent)
        };
        assert_eq!(first.link, Some(7));
    }

    #[test]
    fn the_last_route_follows_while_something_changes_each_turn() {
        let mut lab = Lab::new();
        lab.set(&source(AT_ONCE, "192.0.2.1"));
        lab.link(7);
        let moved = lab.routes.links.follow(&lab.control);
        assert_eq!(moved.len(), 1);
        lab.routes.renumber(&moved);
        for _ in 0..AT_ONCE.div_ceil(LOOK) {
            lab.routes.pass.get_or_insert_default().left = AT_ONCE;
            let late = Some(Instant::now());
            assert!(lab.routes.look_again(&mut lab.control, late).0 <= LOOK);
        }
        let link = |sent: &Option<Target>| match sent {
            Some(Target::Path(path)) => path.link,
            _ => None,
        };
        let over = lab.routes.sent.iter().filter(|sent| link(sent) == Some(7)).count();
        assert_eq!((over, lab.has()), (AT_ONCE.div_ceil(10), AT_ONCE));
    }

    #[test]
    fn routes_that_are_replaced_while_they_are_read_are_never_sent() {
        let mut lab = Lab::new();
        lab.set(&source(AT_ONCE, "192.0.2.1"));
        let has = lab.has();
        lab.set(&source(MANY, "192.0.2.2"));
        lab.set(&source(AT_ONCE, "192.0.2.1"));
        assert!(!lab.routes.is_reading());
        assert_eq!((lab.turn(true), lab.has()), ((0, false), has));
    }
}
