//! Sources whose peers connect: a listening socket, and a session for each peer; and replays, which are sessions, too.
//!
//! A peer connects, sends its table and then changes (FRR's zebra, source `fpm`). A [`Session`] has the connection and the
//! source that reads it; a [`Seat`] is what stays when a session ends: the number of the source at the control side, so
//! that routes stay and are swept when the peer has sent its table again, and counts.
//!
//! **Which seat.** A peer is known by its address. A new session takes the seat of one from this address that has
//! ended, the latest first, and one that the peer has closed counts as ended even if not all of it was read. Two peers of
//! one address that both restart may so exchange their seats: each table is complete again at its end, and routes
//! of the other are missing until they are repeated. Peers with listening sockets of their own do not have this. A session
//! without routes leaves its seat to any other, and there are [`MOST_SEATS`] at most.
//!
//! **Half-open connections.** A peer that lost its power is back before the kernel gives its old connection up. So a peer
//! with an open session waits ([`pending`]) until the peer of that has shown that it is there too, or the session has ended.
//! A session in which nothing was sent leaves its seat, with routes of a session before, to a peer that comes after [`SILENCE`].
//!
//! **Back-pressure.** A turn reads for [`BURST`] at most, then the routes are committed. A session is not read while
//! [`MOST_UNSEEN`] of its events are not visible, or [`MOST_OUTPUT`] bytes wait to be written to it, and none is while a table that
//! is built beside falls behind ([`Control::holds_sources`]): the kernel's buffers fill, and the peer waits. Nothing is dropped.

mod pending;
mod player;
mod session;
mod socket;

use std::net::IpAddr;
use std::os::fd::RawFd;
use std::time::{Duration, Instant};

use fingerpost_route::source::{Monitored, SessionSpec, SourceError, SourceKind, SourceSpec};
use fingerpost_route::{Control, RouteEvent, SourceId, SourceLimits};
use tracing::{info, warn};

use crate::config::Listen;
use pending::{PendingPeer, PendingPeers};
pub(super) use player::Player;
pub(super) use session::MOST_UNSEEN;
use session::{End, Session};
use socket::{Socket, Stream};

/// Time that one turn reads for.
pub(in crate::daemon) const BURST: Duration = Duration::from_millis(4);
/// Most sessions at a time of one listening socket, and most peers that are accepted in a turn.
const MOST_SESSIONS: usize = 64;
/// Time after which a session in which nothing was sent leaves its seat to another.
const SILENCE: Duration = Duration::from_secs(5);
/// Most seats of one listening socket: each is a source of the control side, and those are never removed.
const MOST_SEATS: usize = 256;

/// Settings of a listening source.
#[derive(Clone)]
pub(super) struct Settings {
    pub(super) kind: &'static SourceKind,
    pub(super) listen: Listen,
    pub(super) spec: SourceSpec,
    pub(super) distance: u8,
    /// Time for which routes stay without a session.
    pub(super) stale_after: Duration,
}

/// A listening source.
pub(super) struct Listener {
    settings: Settings,
    socket: Socket,
    seats: Vec<Seat>,
    /// Peers that wait for a seat.
    pending: PendingPeers,
    /// The seat that is read first in the next turn.
    next: usize,
    /// No peer could be accepted, for want of descriptors: the socket, which stays readable, waits for the next turn.
    full: bool,
    /// A peer found no seat, and none has since: that was reported.
    crowded: bool,
}

/// One peer: what stays of it between its sessions.
pub(super) struct Seat {
    pub(super) id: SourceId,
    /// `None` for peers at a Unix socket.
    peer: Option<IpAddr>,
    session: Option<Session>,
    /// When the latest session began.
    begun: Option<Instant>,
    /// Routes that the control side had refused by then.
    refused_before: u64,
    /// Which of its routes the peer sent in the session before.
    monitored: Option<Monitored>,
    /// When the session ended whose table was complete, while routes of it stay.
    left: Option<Instant>,
    /// Complete tables when the latest session began, and sessions in a row without one.
    tables: u64,
    incomplete: u64,
    counts: Counts,
}

/// Work of a seat so far, without the present session.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    sessions: u64,
    messages: u64,
    errors: u64,
    ends: u64,
    last_message: Option<Instant>,
}

/// State of a seat, for reports.
#[derive(Clone, Debug, Default)]
pub(super) struct SeatReport {
    /// A session is open.
    pub(super) is_open: bool,
    /// Empty before the first session.
    pub(super) peer: String,
    pub(super) sessions: u64,
    /// Transactions: frames of FPM.
    pub(super) messages: u64,
    /// What was not understood, or refused before it became a route.
    pub(super) errors: u64,
    pub(super) last_error: String,
    /// End-of-RIB markers.
    pub(super) ends: u64,
    pub(super) last_message: Option<Duration>,
    pub(super) lag: Duration,
}

/// State that a turn needs besides the listener, with the numbers of new sources.
pub(super) struct Turn<'a> {
    pub(super) control: &'a mut Control,
    pub(super) now: Instant,
    pub(super) number: &'a mut dyn FnMut(&mut Control, &Settings) -> SourceId,
}

impl Listener {
    /// Listens.
    ///
    /// # Errors
    /// When the address cannot be had.
    pub(super) fn open(settings: Settings) -> Result<Self, SourceError> {
        let socket = Socket::open(&settings.listen)?;
        let (seats, pending) = (Vec::new(), PendingPeers::default());
        Ok(Self { settings, socket, seats, pending, next: 0, full: false, crowded: false })
    }

    /// Settings of the sessions from now on. The listening socket and the distance stay.
    pub(super) fn set(&mut self, settings: Settings) {
        let (listen, distance) = (self.settings.listen.clone(), self.settings.distance);
        self.settings = Settings { listen, distance, ..settings };
    }

    /// Numbers of the source's peers.
    pub(super) fn seats(&self) -> impl Iterator<Item = &Seat> {
        self.seats.iter()
    }

    /// Protocols of the kernel's routes that the source has at present: a session has a complete table, and of none
    /// was a route refused. Of a route that is beyond a bound only the kernel's copy is left, whoever else has a table.
    pub(super) fn mirrored(&self, control: &Control) -> Option<&'static [u8]> {
        let mut complete = false;
        for seat in self.seats.iter().filter(|seat| seat.session.is_some()) {
            let source = control.source(seat.id);
            if source.refused != seat.refused_before {
                return None;
            }
            complete |= !source.dumping;
        }
        complete.then_some(self.settings.kind.mirrored)
    }

    /// Age of the first event of each session that is not visible.
    pub(super) fn lags(&self, now: Instant) -> impl Iterator<Item = Duration> {
        let sessions = self.seats.iter().filter_map(|seat| seat.session.as_ref());
        sessions.map(move |session| session.lag(now))
    }

    /// Descriptors for poll, those of sessions unless these are held.
    pub(super) fn fds(&self, held: bool) -> impl Iterator<Item = RawFd> {
        let seats = if held { &[] } else { &self.seats[..] };
        let sessions = seats.iter().filter_map(|seat| seat.session.as_ref());
        let socket = (!self.full).then(|| self.socket.fd());
        socket.into_iter().chain(sessions.filter_map(Session::fd_to_read))
    }

    /// Reads what there is, up to a burst, and accepts peers. Returns how many changes that were.
    pub(super) fn turn(&mut self, turn: &mut Turn<'_>) -> usize {
        let until = turn.now + BURST;
        let mut taken = 0;
        // Sessions first: one that was closed makes room for its peer, which may be there again.
        let seats = self.seats.len();
        for at in 0..seats {
            let at = (self.next + at) % seats;
            let seat = &mut self.seats[at];
            taken += seat.read(turn, &self.settings, until);
            if Instant::now() >= until {
                self.next = (at + 1) % seats;
                break;
            }
        }
        self.full = false;
        for PendingPeer { stream, peer, .. } in
            self.pending.admitted(&mut self.seats, &self.settings, turn)
        {
            taken += self.seat(turn, stream, peer);
        }
        for _ in 0..MOST_SESSIONS {
            let (stream, peer) = match self.socket.accept() {
                Ok(Some(peer)) => peer,
                Ok(None) => break,
                Err(error) => {
                    self.full = true;
                    let name = self.settings.kind.name;
                    warn!(target: "source", source = name, "source {name}: no peer can be accepted: {error}");
                    break;
                }
            };
            let sessions = self.seats.iter().filter(|seat| seat.session.is_some()).count();
            if sessions + self.pending.len() >= MOST_SESSIONS {
                let name = self.settings.kind.name;
                warn!(target: "source", source = name, "source {name}: a peer was sent away: {MOST_SESSIONS} are connected");
                continue;
            }
            if let Some(stream) = self.pending.hold(&self.seats, stream, peer, turn.now) {
                taken += self.seat(turn, stream, peer);
            }
        }
        taken + self.seats.iter_mut().map(|seat| seat.tick(turn, &self.settings)).sum::<usize>()
    }

    /// Begins a session of a peer, if there is a seat. Returns the number of its events, and one for the peer.
    fn seat(&mut self, turn: &mut Turn<'_>, stream: Stream, peer: Option<IpAddr>) -> usize {
        let Some(at) = self.seat_for(peer, turn) else {
            if !std::mem::replace(&mut self.crowded, true) {
                let (name, peer, time) =
                    (self.settings.kind.name, words(peer), self.settings.stale_after.as_secs());
                warn!(target: "source", source = name, peer, "source {name}: {peer} was sent away, and other new peers will be: routes of {MOST_SEATS} peers stay, of each for {time} s (stale_s) after its session");
            }
            return 0;
        };
        self.crowded = false;
        1 + self.seats[at].begin(turn, &self.settings, stream)
    }

    /// The seat of a new session of this peer; `None` when all are taken.
    fn seat_for(&mut self, peer: Option<IpAddr>, turn: &mut Turn<'_>) -> Option<usize> {
        let seats = || self.seats.iter().enumerate();
        let closed = seats().find(|(_, seat)| {
            seat.peer == peer && seat.session.as_ref().is_some_and(Session::is_closed)
        });
        let free = || seats().filter(|(_, seat)| seat.session.is_none());
        let before = free().filter(|(_, seat)| seat.peer == peer && seat.left.is_some());
        let silent = || seats().find(|(_, seat)| seat.peer == peer && seat.is_silent(turn.now));
        let found = closed
            .or_else(|| before.max_by_key(|(_, seat)| seat.left))
            .or_else(silent)
            .or_else(|| free().find(|(_, seat)| seat.left.is_none()));
        if let Some((at, _)) = found {
            self.seats[at].take(peer);
            return Some(at);
        }
        if self.seats.len() >= MOST_SEATS {
            return None;
        }
        let id = (turn.number)(turn.control, &self.settings);
        self.add_seat(turn.control, id);
        let seat = self.seats.last_mut().expect("just added");
        seat.peer = peer;
        Some(self.seats.len() - 1)
    }

    /// Adds a seat for a peer to come.
    pub(super) fn add_seat(&mut self, control: &mut Control, id: SourceId) {
        control.note_refusals(id);
        let counts = Counts::default();
        let (session, begun, monitored) = (None, None, None);
        let (peer, left, refused_before, tables, incomplete) = (None, None, 0, 0, 0);
        self.seats.push(Seat {
            id,
            peer,
            session,
            begun,
            refused_before,
            monitored,
            left,
            tables,
            incomplete,
            counts,
        });
    }

    /// Notes whether readers see `all` of it. Then what is ready is written.
    pub(super) fn committed(&mut self, all: bool, now: Instant) {
        for seat in &mut self.seats {
            if let Some(session) = &mut seat.session
                && let Some(mistake) = session.committed(all, now)
            {
                let (name, peer) = (self.settings.kind.name, words(seat.peer));
                warn!(target: "source", source = name, peer, "source {name}: {peer} {mistake}");
            }
        }
    }

    /// Ends all sessions; returns the numbers of the sources, whose routes stay.
    pub(super) fn close(self) -> impl Iterator<Item = SourceId> {
        self.seats.into_iter().map(|seat| seat.id)
    }
}

impl Seat {
    /// Is for this peer from now on.
    fn take(&mut self, peer: Option<IpAddr>) {
        if self.peer != peer {
            (self.peer, self.monitored) = (peer, None);
        }
    }

    /// Begins a session. Returns the number of its events.
    fn begin(&mut self, turn: &mut Turn<'_>, settings: &Settings, stream: Stream) -> usize {
        let (name, peer) = (settings.kind.name, words(self.peer));
        if self.is_silent(turn.now) {
            warn!(target: "source", source = name, peer, "source {name}: the session with {peer} in which nothing was sent is closed for a newer one");
        }
        self.end();
        self.make_distinct(turn, name, &peer);
        self.begun = Some(turn.now);
        self.refused_before = turn.control.source(self.id).refused;
        let mut spec = settings.spec.clone();
        spec.session.number = self.counts.sessions;
        spec.session.monitored = self.monitored;
        let open = (settings.kind.open)(&spec);
        let source = match open {
            Ok(source) => source,
            Err(error) => {
                warn!(target: "source", source = name, peer, "source {name}: {peer} was sent away: {error}");
                return 0;
            }
        };
        info!(target: "source", source = name, peer, "source {name}: session with {peer}");
        self.counts.sessions += 1;
        let SessionSpec { limits, tables, .. } = spec.session;
        turn.control.limit(self.id, SourceLimits { routes: limits.prefixes, tables });
        let mut session = Session::new(stream, source);
        let taken = session.start(turn.control, self.id, turn.now);
        self.session = Some(session);
        taken
    }

    /// Has the routes withdrawn that may name objects by the numbers of the session that begins: those of the latest session
    /// whose table was complete, [`SessionSpec::DISTINCT`] sessions ago, and of all since.
    fn make_distinct(&mut self, turn: &mut Turn<'_>, name: &str, peer: &str) {
        let source = turn.control.source(self.id);
        let (tables, routes) = (source.tables, source.routes);
        let incomplete = tables == self.tables && self.begun.is_some();
        self.incomplete = if incomplete { self.incomplete + 1 } else { 0 };
        if self.incomplete + 1 >= SessionSpec::DISTINCT && turn.control.has_objects(self.id) {
            let ended = self.incomplete;
            warn!(target: "source", source = name, peer, routes, "source {name}: {ended} sessions with {peer} in a row have ended without a complete table: its {routes} routes are withdrawn");
            self.empty(turn);
            self.incomplete = 0;
        }
        self.tables = turn.control.source(self.id).tables;
    }

    fn read(&mut self, turn: &mut Turn<'_>, settings: &Settings, until: Instant) -> usize {
        let Some(session) = &mut self.session else { return 0 };
        let (taken, end) = session.read(turn.control, self.id, turn.now, until);
        let Some(end) = end else { return taken };
        let why = match end {
            End::Closed => "closed by the peer".to_owned(),
            End::Failed(error) => error.to_string(),
            End::Source(error) => format!("what it sends cannot be read: {error}"),
        };
        taken.max(1) + self.leave(turn, settings, &why)
    }

    /// Whether nothing was sent in its session, which has the seat of routes of another one.
    fn is_silent(&self, now: Instant) -> bool {
        let old = |begun: Instant| now.saturating_duration_since(begun) >= SILENCE;
        self.left.is_some()
            && self.session.as_ref().is_some_and(|session| session.messages() == 0)
            && self.begun.is_some_and(old)
    }

    /// Ends the session; its routes stay for a while. Returns how many events that were.
    fn leave(&mut self, turn: &mut Turn<'_>, settings: &Settings, why: &str) -> usize {
        self.end();
        let routes = turn.control.source(self.id).routes;
        let (name, peer) = (settings.kind.name, words(self.peer));
        if routes == 0 {
            self.left = None;
            self.empty(turn);
            warn!(target: "source", source = name, peer, routes, "source {name}: session with {peer} ended: {why}; it has no routes");
            return 2;
        }
        let left = *self.left.get_or_insert(turn.now);
        let time = settings.stale_after.saturating_sub(turn.now.saturating_duration_since(left));
        warn!(target: "source", source = name, peer, routes, stale_s = time.as_secs(), "source {name}: session with {peer} ended: {why}; its {routes} routes stay for {} s",
            time.as_secs());
        0
    }

    /// Adds the counts of the present session, if there is one, and closes it.
    fn end(&mut self) {
        if let Some(session) = self.session.take() {
            self.monitored = session.monitored();
            self.counts.messages += session.messages();
            self.counts.errors += session.rejected().count;
            self.counts.ends += session.ends();
            self.counts.last_message = session.last_message().or(self.counts.last_message);
        }
    }

    /// Has routes and objects withdrawn: a table of none.
    fn empty(&self, turn: &mut Turn<'_>) {
        turn.control.handle(self.id, RouteEvent::StartOfTable);
        turn.control.handle(self.id, RouteEvent::EndOfTable);
    }

    /// Does what is due: the end of a table, or that of routes without a session. Returns how many events that were.
    fn tick(&mut self, turn: &mut Turn<'_>, settings: &Settings) -> usize {
        if let Some(session) = &mut self.session {
            let events = session.tick(turn.control, self.id, turn.now);
            if !turn.control.source(self.id).dumping {
                self.left = None;
            }
            // A connection alone does not keep them.
            if session.messages() > 0 {
                return events;
            }
            let expired = self.expire(turn, settings, "has connected and sent nothing");
            if expired > 0 {
                turn.control.handle(self.id, RouteEvent::StartOfTable);
            }
            return events + expired;
        }
        self.expire(turn, settings, "has not come back")
    }

    /// Has routes withdrawn that stayed for as long as they may. Returns how many events that were.
    fn expire(&mut self, turn: &mut Turn<'_>, settings: &Settings, what: &str) -> usize {
        let over =
            |left: &mut Instant| turn.now.saturating_duration_since(*left) >= settings.stale_after;
        if self.left.take_if(over).is_none() {
            return 0;
        }
        let routes = turn.control.source(self.id).routes;
        self.empty(turn);
        let (name, peer) = (settings.kind.name, words(self.peer));
        let time = settings.stale_after.as_secs();
        warn!(target: "source", source = name, peer, routes, stale_s = time, "source {name}: {peer} {what} in {time} s: its {routes} routes are withdrawn");
        2
    }

    /// State of the seat.
    pub(super) fn report(&self, now: Instant) -> SeatReport {
        let mut report = SeatReport {
            is_open: self.session.is_some(),
            peer: if self.counts.sessions > 0 { words(self.peer) } else { String::new() },
            sessions: self.counts.sessions,
            messages: self.counts.messages,
            errors: self.counts.errors,
            ends: self.counts.ends,
            ..SeatReport::default()
        };
        let mut last = self.counts.last_message;
        if let Some(session) = &self.session {
            let rejected = session.rejected();
            report.messages += session.messages();
            report.errors += rejected.count;
            report.ends += session.ends();
            report.last_error = rejected.samples.last().cloned().unwrap_or_default();
            report.lag = session.lag(now);
            last = session.last_message().or(last);
        }
        report.last_message = last.map(|at| now.saturating_duration_since(at));
        report
    }
}

/// A peer in words.
fn words(peer: Option<IpAddr>) -> String {
    peer.map_or("the peer at the socket".to_owned(), |peer| peer.to_string())
}

#[cfg(test)]
mod tests;
