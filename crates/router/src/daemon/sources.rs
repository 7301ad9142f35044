//! Route sources: the kernel, the configured ones, and commands. Configured sources are opened, read, and exchanged while
//! the router runs.

use std::os::fd::RawFd;
use std::time::{Duration, Instant};

use fingerpost_route::source::{
    RouteSource, SessionSpec, SourceError, SourceKind, SourceSpec, Transport, file, find,
};
use fingerpost_route::{Control, RouteEvent, SourceId};

use super::kernel::KernelSource;
use super::sessions::{self, Listener, SeatReport, Turn};
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
    /// It was read to its end.
    Reading(SourceId),
    Sessions(Box<Listener>),
}

/// All route sources of a run.
pub(super) struct Sources {
    pub(super) kernel: KernelSource,
    pub(super) configured: Configured,
    /// Source of routes that commands make.
    pub(super) command: SourceId,
}

impl Sources {
    /// Descriptors for poll.
    pub(super) fn fds(&self) -> impl Iterator<Item = RawFd> {
        self.kernel.fds().into_iter().chain(self.configured.listeners().flat_map(Listener::fds))
    }

    /// Takes what peers have sent, and has the kernel's routes left out that they send, too. Returns how many changes
    /// that were.
    pub(super) fn take_sessions(
        &mut self,
        control: &mut Control,
        now: Instant,
        said: &mut Vec<String>,
    ) -> usize {
        let taken = self.configured.turn(control, now, said);
        let mut mirrored =
            self.configured.listeners().filter_map(|source| source.mirrored(control));
        let mirrored = mirrored.find(|protocols| !protocols.is_empty());
        self.kernel.leave_out(mirrored.unwrap_or_default());
        taken
    }

    /// Notes after a commit whether readers see `all` routes.
    pub(super) fn committed(
        &mut self,
        control: &mut Control,
        all: bool,
        now: Instant,
        said: &mut Vec<String>,
    ) {
        self.kernel.committed(all);
        for listener in self.configured.listeners_mut() {
            listener.committed(control, all, now, said);
        }
    }
}

/// Configured sources that are in use, and numbers of those that were removed.
#[derive(Default)]
pub(super) struct Configured {
    pub(super) fed: Vec<Fed>,
    idle: Idle,
}

/// Numbers by kind and distance: a number cannot be returned, but it can be used again.
#[derive(Default)]
struct Idle(Vec<(&'static str, u8, SourceId)>);

impl Idle {
    /// A number for a source of this kind, which has a name of its own.
    fn number(&mut self, control: &mut Control, kind: &SourceKind, distance: u8) -> SourceId {
        let same = |&(name, at, _): &(&str, u8, SourceId)| name == kind.name && at == distance;
        if let Some(at) = self.0.iter().position(same) {
            return self.0.swap_remove(at).2;
        }
        let mut names = (1..).map(|n| match n {
            1 => kind.name.to_owned(),
            n => format!("{}-{n}", kind.name),
        });
        let known = |name: &String| control.sources().any(|source| source.name == *name);
        let name = names.find(|name| !known(name)).expect("names do not end");
        control.add_source(&name, distance)
    }
}

/// State of a configured source.
pub(super) struct ConfiguredState {
    pub(super) kind: &'static str,
    /// State of the peer, of a source with sessions.
    pub(super) seat: Option<SeatReport>,
}

impl Configured {
    fn listeners(&self) -> impl Iterator<Item = &Listener> {
        self.fed.iter().filter_map(|fed| match &fed.by {
            By::Sessions(listener) => Some(&**listener),
            By::Reading(_) => None,
        })
    }

    fn listeners_mut(&mut self) -> impl Iterator<Item = &mut Listener> {
        self.fed.iter_mut().filter_map(|fed| match &mut fed.by {
            By::Sessions(listener) => Some(&mut **listener),
            By::Reading(_) => None,
        })
    }

    fn turn(&mut self, control: &mut Control, now: Instant, said: &mut Vec<String>) -> usize {
        let Self { fed, idle } = self;
        let mut taken = 0;
        for fed in fed {
            let By::Sessions(listener) = &mut fed.by else { continue };
            let number = &mut |control: &mut Control, settings: &sessions::Settings| {
                idle.number(control, settings.kind, settings.distance)
            };
            taken += listener.turn(&mut Turn { control, now, number, said });
        }
        taken
    }

    /// Reads a source to its end, or listens for its peers; returns messages for the log.
    ///
    /// # Errors
    /// When it cannot be opened: nothing changed then. One that breaks off later is used as far as it
    /// could be read.
    pub(super) fn feed(
        &mut self,
        control: &mut Control,
        source: &Source,
    ) -> Result<Vec<String>, SourceError> {
        let kind = kind_of(source);
        if let Some(settings) = settings(source) {
            let distance = settings.distance;
            let mut listener = Listener::open(settings)?;
            // The source is there before its first peer.
            let id = self.idle.number(control, kind, distance);
            listener.add_seat(control, id);
            self.fed.push(Fed { source: source.clone(), by: By::Sessions(Box::new(listener)) });
            return Ok(Vec::new());
        }
        let mut open = open(control, source)?;
        let id = self.idle.number(control, kind, source.distance.unwrap_or(kind.distance));
        let said = say(control, source, id, open.as_mut());
        self.fed.push(Fed { source: source.clone(), by: By::Reading(id) });
        Ok(said)
    }

    /// Reads a source again in the place of `at`: routes that it no longer has are withdrawn. Of a source with sessions
    /// those that begin from now on have the new settings.
    ///
    /// # Errors
    /// When it cannot be opened: nothing changed then.
    pub(super) fn feed_again(
        &mut self,
        control: &mut Control,
        at: usize,
        source: &Source,
    ) -> Result<Vec<String>, SourceError> {
        let fed = &mut self.fed[at];
        let said = match &mut fed.by {
            By::Sessions(listener) => {
                listener.set(settings(source).expect("it is of the same kind"));
                Vec::new()
            }
            By::Reading(id) => {
                let mut open = open(control, source)?;
                say(control, source, *id, open.as_mut())
            }
        };
        fed.source = source.clone();
        Ok(said)
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
    ) -> Result<Vec<String>, SourceError> {
        self.remove(control, at);
        let said = self.feed(control, source)?;
        // Others keep their places.
        let last = self.fed.pop().expect("it was just added");
        self.fed.insert(at, last);
        Ok(said)
    }

    /// Takes a source away with its routes.
    pub(super) fn remove(&mut self, control: &mut Control, at: usize) {
        let Fed { source, by } = self.fed.remove(at);
        let kind = kind_of(&source);
        let distance = source.distance.unwrap_or(kind.distance);
        let ids = match by {
            By::Reading(id) => vec![id],
            By::Sessions(listener) => listener.close().collect(),
        };
        for id in ids {
            control.handle(id, RouteEvent::StartOfTable);
            control.handle(id, RouteEvent::EndOfTable);
            self.idle.0.push((kind.name, distance, id));
        }
    }

    /// Whether the source of this number was taken away.
    pub(super) fn is_idle(&self, number: usize) -> bool {
        self.idle.0.iter().any(|(_, _, id)| id.index() == number)
    }

    /// State of the source of this number, if it is a configured one.
    pub(super) fn state(&self, number: usize, now: Instant) -> Option<ConfiguredState> {
        self.fed.iter().find_map(|fed| {
            let kind = kind_of(&fed.source).name;
            match &fed.by {
                By::Reading(id) => {
                    (id.index() == number).then_some(ConfiguredState { kind, seat: None })
                }
                By::Sessions(listener) => {
                    let seat = listener.seats().find(|seat| seat.id.index() == number)?;
                    Some(ConfiguredState { kind, seat: Some(seat.report(now)) })
                }
            }
        })
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
    let session = SessionSpec {
        sweep_after: source.sweep_s.map_or(usual.sweep_after, seconds),
        acknowledge: source.acknowledge.unwrap_or(usual.acknowledge),
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

type Opened = Box<dyn RouteSource>;

fn open(control: &Control, source: &Source) -> Result<Opened, SourceError> {
    let name = source.path.as_ref().map_or(String::new(), |path| path.display().to_string());
    let links = control.links().map(|(link, _, state)| (state.name.clone(), link)).collect();
    let routes = source.routes.clone();
    (kind_of(source).open)(&SourceSpec { name, routes, links, ..SourceSpec::default() })
}

/// Reads all routes of an open source.
fn say(
    control: &mut Control,
    source: &Source,
    id: SourceId,
    open: &mut dyn RouteSource,
) -> Vec<String> {
    let sink = &mut |event| control.handle(id, event);
    let ended = match &source.path {
        Some(path) => file::feed(open, path, sink),
        None => open.input(&[], Instant::now(), sink).and_then(|_| open.finish(sink)),
    };
    let mut said = Vec::new();
    // What could be read is used; the rest is reported.
    if let Err(error) = ended {
        said.push(format!("source {}: {error}", source.kind));
    }
    let rejected = open.rejected();
    if rejected.count > 0 {
        let samples = rejected.samples.join("; ");
        said.push(format!("source {}: {} rejected: {samples}", source.kind, rejected.count));
    }
    said
}
