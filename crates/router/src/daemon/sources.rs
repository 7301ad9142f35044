//! Route sources: the kernel, the configured ones, and commands. Configured sources are opened, read, and exchanged while
//! the router runs. Routes of sources that are taken away stay until the files and static routes that replace them are taken: packets
//! find a route at any moment.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::RawFd;
use std::time::{Duration, Instant};

use fingerpost_route::bgp::ribs::Limits;
use fingerpost_route::source::{SessionSpec, SourceError, SourceKind, SourceSpec, Transport, find};
use fingerpost_route::{Control, Durations, RouteEvent, SourceId};
use tracing::warn;

use super::export::{ExportState, Exporter};
use super::kernel::KernelSource;
use super::sessions::{self, Listener, Player, SeatReport, Turn};
use super::static_routes::{Probes, Read, StaticRoutes};
use super::table_file::TableFile;
use crate::config::{Listen, Source};

/// Time for which routes stay without a session, unless configured: as long as a restart of a large router's daemons takes.
const STALE_AFTER: Duration = Duration::from_secs(120);

/// A source that is in use.
pub(super) struct Fed {
    pub(super) source: Source,
    by: By,
}

/// How it is fed.
enum By {
    /// The file, until it is read to its end.
    File(SourceId, Option<TableFile>),
    Static(StaticRoutes),
    Sessions(Box<Listener>),
    Replay(SourceId, Box<Player>),
}

/// All route sources of a run.
pub(super) struct Sources {
    pub(super) kernel: KernelSource,
    pub(super) configured: Configured,
    /// Source of routes that commands make.
    pub(super) command: SourceId,
    /// Times from a change to its visibility.
    pub(super) visible: Durations,
}

impl Sources {
    /// Descriptors for poll, without those of sources that are held.
    pub(super) fn fds(&self, held: bool) -> impl Iterator<Item = RawFd> {
        let listeners = self.configured.listeners().flat_map(move |listener| listener.fds(held));
        let players = self.configured.players().filter(move |_| !held).filter_map(Player::fd);
        self.kernel.fds(held).chain(listeners).chain(players)
    }

    /// Takes what peers have sent, and has the kernel's routes left out that they send, too. Returns how many changes
    /// that were.
    pub(super) fn take_sessions(&mut self, control: &mut Control, now: Instant) -> usize {
        let mut probes = Probes::default();
        let taken = self.configured.turn(control, now, &mut probes);
        self.kernel.probe(&probes.known);
        self.kernel.ask(&probes.unknown);
        let listeners = self.configured.listeners();
        let mirrored: Vec<&[u8]> =
            listeners.filter_map(|source| source.mirrored(control)).collect();
        let first = mirrored.into_iter().find(|protocols| !protocols.is_empty());
        // Our own static routes are no routes of the kernel.
        let mut left_out = first.unwrap_or_default().to_vec();
        left_out.extend(self.configured.fed.iter().filter_map(|fed| fed.source.exports_as()));
        self.kernel.leave_out(&left_out);
        self.configured.export(control);
        taken
    }

    /// Notes after a commit whether readers see `all` routes.
    pub(super) fn committed(&mut self, all: bool, now: Instant) {
        let seats = self.configured.listeners().flat_map(|listener| listener.lags(now));
        for lag in seats.chain([self.kernel.lag(now)]) {
            if all && !lag.is_zero() {
                self.visible.add(lag);
            }
        }
        self.kernel.committed(all);
        for fed in &mut self.configured.fed {
            match &mut fed.by {
                By::Sessions(listener) => listener.committed(all, now),
                By::Replay(_, player) => player.committed(all, now),
                By::File(_, Some(file)) if all => file.all_seen(),
                By::Static(routes) if all => routes.all_seen(),
                By::File(..) | By::Static(_) => {}
            }
        }
    }
}

/// Configured sources that are in use, and numbers of those that were removed.
#[derive(Default)]
pub(super) struct Configured {
    pub(super) fed: Vec<Fed>,
    /// Those that were taken away, whose routes stay while files are read.
    leaving: Vec<Leaving>,
    idle: Idle,
    /// Static routes in the kernel, by their protocol number.
    exporters: BTreeMap<u8, Exporter>,
    /// Exported routes may have changed.
    unexported: bool,
    /// Changes of links and addresses when the exporters looked last.
    looked: (u64, u64),
}

/// Number of a source that was taken away, with its kind and distance.
struct Leaving {
    kind: &'static str,
    distance: u8,
    id: SourceId,
}

/// Numbers by kind and distance: a number cannot be returned, but it can be used again.
#[derive(Default)]
struct Idle {
    numbers: Vec<(&'static str, u8, SourceId)>,
    /// How many names of each kind were tried.
    named: BTreeMap<&'static str, u32>,
}

impl Idle {
    /// A number for a source of this kind, which has a name of its own.
    fn number(&mut self, control: &mut Control, kind: &SourceKind, distance: u8) -> SourceId {
        let same = |&(name, at, _): &(&str, u8, SourceId)| name == kind.name && at == distance;
        if let Some(at) = self.numbers.iter().position(same) {
            return self.numbers.swap_remove(at).2;
        }
        let tried = self.named.entry(kind.name).or_default();
        let name = loop {
            *tried += 1;
            let name = match *tried {
                1 => kind.name.to_owned(),
                n => format!("{}-{n}", kind.name),
            };
            if !control.sources().any(|source| source.name == name) {
                break name;
            }
        };
        control.add_source(&name, distance)
    }
}

/// State of a configured source.
pub(super) struct ConfiguredState {
    pub(super) kind: &'static str,
    /// State of the peer, of a source with sessions.
    pub(super) seat: Option<SeatReport>,
    /// What the kernel made of its routes, where they are exported.
    pub(super) exported: Option<ExportState>,
    /// Links that its routes wait for, in words.
    pub(super) waiting: Option<String>,
}

impl Configured {
    fn listeners(&self) -> impl Iterator<Item = &Listener> {
        self.fed.iter().filter_map(|fed| match &fed.by {
            By::Sessions(listener) => Some(&**listener),
            _ => None,
        })
    }

    fn players(&self) -> impl Iterator<Item = &Player> {
        self.fed.iter().filter_map(|fed| match &fed.by {
            By::Replay(_, player) => Some(&**player),
            _ => None,
        })
    }

    fn turn(&mut self, control: &mut Control, now: Instant, probes: &mut Probes) -> usize {
        let Self { fed, idle, unexported, .. } = self;
        let (mut taken, held) = (0, control.holds_sources());
        // One file a turn, and the static routes of one source: these do not wait for a file that takes seconds.
        let (mut file_until, mut takes_routes) = ((!held).then(TableFile::until), !held);
        for Fed { source, by } in fed {
            let number = &mut |control: &mut Control, settings: &sessions::Settings| {
                idle.number(control, settings.kind, settings.distance)
            };
            match by {
                By::File(id, file) => {
                    let Some((reading, until)) = file.as_mut().zip(file_until) else { continue };
                    file_until = None;
                    let (routes, ended) = reading.turn(control, *id, &source.kind, until);
                    taken += routes;
                    if ended {
                        *file = None;
                    }
                }
                By::Static(routes) => {
                    let is_next = routes.is_read() && std::mem::take(&mut takes_routes);
                    let until = is_next.then(TableFile::until);
                    let (changed, whole) = routes.turn(control, now, probes, until);
                    *unexported |= whole;
                    taken += changed;
                }
                By::Replay(id, player) => taken += player.turn(control, *id, now),
                By::Sessions(listener) => {
                    taken += listener.turn(&mut Turn { control, now, number });
                }
            }
        }
        taken + self.withdraw_replaced(control)
    }

    /// Whether routes of a file, or static routes, are still to be taken.
    pub(super) fn is_reading(&self) -> bool {
        self.fed.iter().any(|fed| match &fed.by {
            By::File(_, file) => file.is_some(),
            By::Static(routes) => routes.is_reading(),
            By::Sessions(_) | By::Replay(..) => false,
        })
    }

    /// Whether routes of a file, or static routes, are there that may be taken.
    pub(super) fn is_behind(&self) -> bool {
        self.fed.iter().any(|fed| match &fed.by {
            By::File(_, Some(file)) => file.is_behind(),
            By::Static(routes) => routes.is_behind(),
            _ => false,
        })
    }

    /// Takes all routes of files and all static routes, and waits for them.
    ///
    /// # Errors
    /// When static routes are not valid, with the kind of their source.
    pub(super) fn take_all(&mut self, control: &mut Control) -> Result<(), (String, SourceError)> {
        for fed in &mut self.fed {
            match &mut fed.by {
                By::File(id, file) => {
                    if let Some(file) = file.take() {
                        file.take_all(control, *id, &fed.source.kind);
                    }
                }
                By::Static(routes) => {
                    let taken = routes.take_all(control);
                    taken.map_err(|error| (fed.source.kind.clone(), error))?;
                }
                By::Sessions(_) | By::Replay(..) => {}
            }
        }
        self.withdraw_replaced(control);
        Ok(())
    }

    /// Static routes of all sources.
    fn static_routes(&self) -> impl Iterator<Item = &StaticRoutes> {
        self.fed.iter().filter_map(|fed| match &fed.by {
            By::Static(routes) => Some(routes),
            _ => None,
        })
    }

    /// Ends a change that was carried out, or taken back: sends few static routes of it, and withdraws what was replaced. Nothing
    /// of a change is sent before, as it may be refused. Returns how many tables of static routes have ended.
    pub(super) fn end_change(&mut self, control: &mut Control) -> usize {
        for fed in &mut self.fed {
            if let By::Static(routes) = &mut fed.by {
                routes.take_few(control);
            }
        }
        self.withdraw_replaced(control)
    }

    /// Withdraws static routes that were replaced, once all static routes that replace others are sent: a prefix that moves
    /// from one source to another has a route at any moment. Also withdraws the routes of sources that were taken away, once
    /// neither files nor static routes are being read. Belongs at the end of a change: in the midst of one, routes that later
    /// steps replace or restore would be withdrawn. Returns how many tables of static routes have ended.
    fn withdraw_replaced(&mut self, control: &mut Control) -> usize {
        let mut ended = 0;
        if !self.static_routes().any(StaticRoutes::is_reading) {
            for fed in &mut self.fed {
                if let By::Static(routes) = &mut fed.by {
                    ended += usize::from(routes.end_table(control));
                }
            }
        }
        if self.is_reading() {
            return ended;
        }
        for Leaving { kind, distance, id } in self.leaving.drain(..) {
            control.handle(id, RouteEvent::StartOfTable);
            control.handle(id, RouteEvent::EndOfTable);
            self.idle.numbers.push((kind, distance, id));
        }
        ended
    }

    /// Has the kernel have the static routes that it is to have.
    fn export(&mut self, control: &Control) {
        let changes = (control.link_changes(), control.address_changes());
        if std::mem::replace(&mut self.looked, changes) != changes {
            self.exporters.values().for_each(Exporter::look);
        }
        for exporter in self.exporters.values() {
            for what in exporter.take_messages() {
                warn!(target: "source", "{what}");
            }
        }
        // Those of a table that is only partly taken would replace more than they are.
        let is_partial = self.static_routes().any(StaticRoutes::is_reading);
        if is_partial || !std::mem::take(&mut self.unexported) {
            return;
        }
        let exported = self.fed.iter().filter_map(|fed| fed.source.exports_as());
        let protocols: BTreeSet<u8> = exported.collect();
        // One without a source stays, with no routes: to end it would wait for the kernel.
        let left = self.exporters.iter().filter(|(protocol, _)| !protocols.contains(protocol));
        left.for_each(|(_, exporter)| exporter.set(Vec::new()));
        for protocol in protocols {
            let of = self.fed.iter().filter(|fed| fed.source.exports_as() == Some(protocol));
            let routes = of.filter_map(|fed| match &fed.by {
                By::Static(routes) => Some(routes.announced()),
                _ => None,
            });
            let wanted = routes.collect();
            match self.exporters.entry(protocol) {
                std::collections::btree_map::Entry::Occupied(known) => known.get().set(wanted),
                std::collections::btree_map::Entry::Vacant(free) => match Exporter::new(protocol) {
                    Ok(exporter) => free.insert(exporter).set(wanted),
                    Err(error) => {
                        warn!(target: "source", "static routes stay out of the kernel: {error}")
                    }
                },
            }
        }
    }

    /// Leaves exported routes in the kernel at the end.
    pub(super) fn keep_exported(&self) {
        self.exporters.values().for_each(Exporter::keep);
    }

    /// Opens a source: begins to read its file or its static routes, unless these were read before, or listens for its peers.
    ///
    /// # Errors
    /// When it cannot be opened: nothing changed then. One that breaks off later is used as far as it
    /// could be read.
    pub(super) fn feed(
        &mut self,
        control: &mut Control,
        source: &Source,
        read: Option<Read>,
    ) -> Result<(), SourceError> {
        let kind = kind_of(source);
        if let Some(settings) = settings(source) {
            let distance = settings.distance;
            let mut listener = Listener::open(settings)?;
            // The source is there before its first peer.
            let id = self.idle.number(control, kind, distance);
            listener.add_seat(control, id);
            self.fed.push(Fed { source: source.clone(), by: By::Sessions(Box::new(listener)) });
            return Ok(());
        }
        let distance = source.distance.unwrap_or(kind.distance);
        if kind.transport == Transport::Replay {
            let mut player = play(source)?;
            let id = self.idle.number(control, kind, distance);
            player.begin(control, id);
            self.fed.push(Fed { source: source.clone(), by: By::Replay(id, Box::new(player)) });
            return Ok(());
        }
        if kind.transport == Transport::File {
            let file = read_file(source)?;
            let id = self.idle.number(control, kind, distance);
            self.fed.push(Fed { source: source.clone(), by: By::File(id, Some(file)) });
            return Ok(());
        }
        let id = self.idle.number(control, kind, distance);
        let mut routes = StaticRoutes::new(id);
        if let Err(error) = routes.set(control, source, read) {
            self.idle.numbers.push((kind.name, distance, id));
            return Err(error);
        }
        self.unexported = true;
        self.fed.push(Fed { source: source.clone(), by: By::Static(routes) });
        Ok(())
    }

    /// Opens a source again in the place of `at`: routes that it no longer has are withdrawn once it is read. Of a source
    /// with sessions those that begin from now on have the new settings.
    ///
    /// # Errors
    /// When it cannot be opened: nothing changed then.
    pub(super) fn feed_again(
        &mut self,
        control: &mut Control,
        at: usize,
        source: &Source,
        read: Option<Read>,
    ) -> Result<(), SourceError> {
        let fed = &mut self.fed[at];
        match &mut fed.by {
            By::Sessions(listener) => {
                listener.set(settings(source).expect("it is of the same kind"));
            }
            By::Replay(id, player) => {
                **player = play(source)?;
                player.begin(control, *id);
            }
            By::File(_, file) => *file = Some(read_file(source)?),
            By::Static(routes) => {
                routes.set(control, source, read)?;
                self.unexported = true;
            }
        }
        fed.source = source.clone();
        Ok(())
    }

    /// Opens a source in the place of `at`, which is taken away before: both have one address.
    ///
    /// # Errors
    /// When it cannot be opened: the one before is gone then.
    pub(super) fn reopen(
        &mut self,
        control: &mut Control,
        at: usize,
        source: &Source,
    ) -> Result<(), SourceError> {
        self.remove(at);
        self.insert(control, at, source)
    }

    /// Opens a source at a place; those behind it move.
    ///
    /// # Errors
    /// When it cannot be opened: nothing changed then.
    pub(super) fn insert(
        &mut self,
        control: &mut Control,
        at: usize,
        source: &Source,
    ) -> Result<(), SourceError> {
        self.feed(control, source, None)?;
        // Others keep their places.
        let last = self.fed.pop().expect("it was just added");
        self.fed.insert(at, last);
        Ok(())
    }

    /// Takes a source away; [`Configured::end_change`] withdraws its routes.
    pub(super) fn remove(&mut self, at: usize) {
        let Fed { source, by } = self.fed.remove(at);
        let kind = kind_of(&source);
        let distance = source.distance.unwrap_or(kind.distance);
        let ids = match by {
            By::File(id, _) | By::Replay(id, _) => vec![id],
            By::Static(routes) => {
                self.unexported = true;
                vec![routes.id()]
            }
            By::Sessions(listener) => listener.close().collect(),
        };
        let leaving = ids.into_iter().map(|id| Leaving { kind: kind.name, distance, id });
        self.leaving.extend(leaving);
    }

    /// Whether the source of this number was taken away.
    pub(super) fn is_idle(&self, number: usize) -> bool {
        self.idle.numbers.iter().any(|(_, _, id)| id.index() == number)
    }

    /// State of the source of this number, if it is a configured one.
    pub(super) fn state(&self, number: usize, now: Instant) -> Option<ConfiguredState> {
        if let Some(left) = self.leaving.iter().find(|left| left.id.index() == number) {
            let (kind, exported, waiting) = (left.kind, None, None);
            return Some(ConfiguredState { kind, seat: None, exported, waiting });
        }
        self.fed.iter().find_map(|fed| {
            let kind = kind_of(&fed.source).name;
            let (mut seat, mut exported, mut waiting) = (None, None, None);
            let id = match &fed.by {
                By::File(id, _) => *id,
                By::Static(routes) => {
                    exported = self.export_state(&fed.source, routes);
                    waiting = routes.waiting();
                    routes.id()
                }
                By::Replay(id, player) => {
                    seat = Some(player.report(now));
                    *id
                }
                By::Sessions(listener) => {
                    let found = listener.seats().find(|seat| seat.id.index() == number)?;
                    seat = Some(found.report(now));
                    found.id
                }
            };
            let state = ConfiguredState { kind, seat, exported, waiting };
            (id.index() == number).then_some(state)
        })
    }

    /// What the kernel made of the routes of a source.
    fn export_state(&self, source: &Source, routes: &StaticRoutes) -> Option<ExportState> {
        let exporter = self.exporters.get(&source.exports_as()?)?;
        Some(exporter.exported(routes.id().index()))
    }
}

fn kind_of(source: &Source) -> &'static SourceKind {
    find(&source.kind).expect("checked with the configuration")
}

/// Settings of a source with sessions; `None` for others.
fn settings(source: &Source) -> Option<sessions::Settings> {
    let kind = kind_of(source);
    let Transport::Sessions { listen } = kind.transport else { return None };
    let seconds = |seconds: u32| Duration::from_secs(seconds.into());
    let usual = SessionSpec::default();
    let most = |set: Option<u32>, usual| set.map_or(usual, |most| most as usize);
    let session = SessionSpec {
        sweep_after: source.sweep_s.map_or(usual.sweep_after, seconds),
        acknowledge: source.acknowledge.unwrap_or(usual.acknowledge),
        limits: Limits {
            peers: most(source.max_peers, usual.limits.peers),
            prefixes: most(source.max_prefixes, usual.limits.prefixes),
            paths: most(source.max_paths, usual.limits.paths),
            ..usual.limits
        },
        tables: most(source.max_tables, usual.tables),
        ..usual
    };
    let listen = source.listen.as_deref().unwrap_or(listen);
    Some(sessions::Settings {
        kind,
        listen: Listen::parse(listen, source.remote).expect("checked with the configuration"),
        spec: SourceSpec { session, ..SourceSpec::default() },
        distance: source.distance.unwrap_or(kind.distance),
        stale_after: source.stale_s.map_or(STALE_AFTER, seconds),
    })
}

/// Begins to read the file of a source.
fn read_file(source: &Source) -> Result<TableFile, SourceError> {
    let path = source.path.as_ref().expect("checked with the configuration");
    let (name, peer) = (path.display().to_string(), source.peer_choice());
    let open = (kind_of(source).open)(&SourceSpec { name, peer, ..SourceSpec::default() })?;
    TableFile::open(path, open)
}

/// Opens the files of a replay.
fn play(source: &Source) -> Result<Player, SourceError> {
    let (peer, speed) = (source.peer_choice(), source.replay_speed());
    let files = source.path.iter().chain(&source.updates).cloned().collect();
    Player::open(kind_of(source), &SourceSpec { peer, speed, ..SourceSpec::default() }, files)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use fingerpost_lpm::{Routes, v4, v6};
    use fingerpost_route::ControlOptions;

    use super::*;
    use crate::config::Config;

    /// Static routes to the /24 prefixes of these numbers in 10/8, and to one more where it is given.
    fn fixed(numbers: std::ops::Range<usize>, further: Option<&str>) -> Source {
        let prefixes = numbers.map(|n| format!("10.{}.{}.0/24", n / 256, n % 256));
        let lines: Vec<String> = prefixes
            .chain(further.map(str::to_owned))
            .map(|prefix| format!("\"{prefix} blackhole\""))
            .collect();
        let text = format!("[[source]]\nkind = \"fixed\"\nroutes = [{}]\n", lines.join(", "));
        Config::of_text(Path::new("r.toml"), &text, None).unwrap().source.remove(0)
    }

    fn control() -> Control {
        let (v4, v6) = (v4().collect(), v6().collect());
        Control::new(ControlOptions { v4, v6, connected_from_addresses: true }).unwrap()
    }

    /// Takes all that is read, in turns, after each of which the address has a route.
    fn has_a_route_at_any_moment(configured: &mut Configured, control: &mut Control, address: u32) {
        let until = Instant::now() + Duration::from_secs(60);
        while configured.is_reading() {
            let now = Instant::now();
            assert!(now < until && control.rib_v4().best(address).is_some());
            configured.turn(control, now, &mut Probes::default());
            control.commit_now(now).unwrap();
            for fed in &mut configured.fed {
                if let By::Static(routes) = &mut fed.by {
                    routes.all_seen();
                }
            }
        }
        assert!(control.rib_v4().best(address).is_some());
    }

    #[test]
    fn a_prefix_that_moves_between_static_sources_has_a_route_at_any_moment() {
        const MOVED: &str = "192.0.2.0/24";
        let (few, many, more) = (0..9, 1000..6000, 10_000..20_000);
        for (from, to) in [(many.clone(), more.clone()), (more, many.clone()), (few.clone(), many)]
        {
            let (mut control, mut configured) = (control(), Configured::default());
            configured.feed(&mut control, &fixed(from.clone(), Some(MOVED)), None).unwrap();
            configured.feed(&mut control, &fixed(to.clone(), None), None).unwrap();
            configured.take_all(&mut control).unwrap();
            control.commit_now(Instant::now()).unwrap();
            configured.feed_again(&mut control, 0, &fixed(from.clone(), None), None).unwrap();
            configured.feed_again(&mut control, 1, &fixed(to.clone(), Some(MOVED)), None).unwrap();
            assert_eq!(configured.end_change(&mut control), 0, "one of them is read");
            has_a_route_at_any_moment(&mut configured, &mut control, 0xc000_0201);
            assert_eq!(control.rib_v4().candidates(), from.len() + to.len() + 1);
        }
    }

    #[test]
    fn a_refused_change_neither_sends_nor_withdraws_static_routes() {
        let (mut control, mut configured) = (control(), Configured::default());
        configured.feed(&mut control, &fixed(1000..6000, None), None).unwrap();
        configured.take_all(&mut control).unwrap();
        control.commit_now(Instant::now()).unwrap();
        // Few routes in the place of many, and a further source: both are taken back, the last one first.
        configured.feed_again(&mut control, 0, &fixed(0..9, None), None).unwrap();
        configured.feed(&mut control, &fixed(20..30, None), None).unwrap();
        assert_eq!(control.rib_v4().candidates(), 5000, "it may still be refused");
        configured.remove(1);
        configured.feed_again(&mut control, 0, &fixed(1000..6000, None), None).unwrap();
        assert_eq!(configured.end_change(&mut control), 0, "they are read again");
        control.commit_now(Instant::now()).unwrap();
        assert_eq!(control.rib_v4().candidates(), 5000, "packets follow none of the refused ones");
        // 10.3.232.0/24, the first one.
        has_a_route_at_any_moment(&mut configured, &mut control, 0x0a03_e801);
        assert_eq!(control.rib_v4().candidates(), 5000);
    }
}
