//! One connection with the source that reads it.

use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::RawFd;
use std::time::{Duration, Instant};

use fingerpost_route::source::{Monitored, Refused, Rejected, RouteSource, SourceError};
use fingerpost_route::{Control, RouteEvent, RouteKey, SourceId};

use super::socket::Stream;
use crate::sys;

/// Bytes that are read at one go: about a thousand routes, a millisecond's work.
const PIECE_BYTES: usize = 64 << 10;
/// Most events that are not visible while more is read. A commit that is put off takes a second at most.
pub(in crate::daemon) const MOST_UNSEEN: usize = 262_144;
/// Most bytes that wait to be written while more is read.
const MOST_OUTPUT: usize = 4 << 20;
/// A peer that takes no byte for so long while some wait does not read.
const LONGEST_WRITE: Duration = Duration::from_secs(30);

/// A peer that owes an acknowledgement and has shown nothing for so long is gone. The kernel alone would take a quarter of an hour:
/// its probes of silent connections are not sent while anything else is.
const LONGEST_OWED: Duration = Duration::from_secs(30);
/// Time between two looks at that.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// A connection, and what was read from it.
pub(super) struct Session {
    stream: Stream,
    source: Box<dyn RouteSource>,
    /// Bytes of a message that is not complete.
    input: Vec<u8>,
    output: Vec<u8>,
    /// When the peer last took a byte, while some wait; it is sent nothing more once it does not read.
    waits: Option<Instant>,
    deaf: bool,
    /// Number of the latest transaction.
    commit: u64,
    /// Events since all was visible, and the first of them.
    unseen: usize,
    since: Option<Instant>,
    /// Refused routes since then.
    refused: Vec<Refused>,
    /// The latest read found nothing more.
    drained: bool,
    last_message: Option<Instant>,
    /// When the peer was last looked at.
    looked: Option<Instant>,
}

/// Why a session ends.
pub(super) enum End {
    Closed,
    Failed(io::Error),
    Source(SourceError),
}

impl Session {
    pub(super) fn new(stream: Stream, source: Box<dyn RouteSource>) -> Self {
        Self {
            stream,
            source,
            input: Vec::new(),
            output: Vec::new(),
            waits: None,
            deaf: false,
            commit: 0,
            unseen: 0,
            since: None,
            refused: Vec::new(),
            drained: false,
            last_message: None,
            looked: None,
        }
    }

    /// Whether more may be taken.
    fn may_read(&self) -> bool {
        self.unseen < MOST_UNSEEN && self.output.len() < MOST_OUTPUT
    }

    /// Descriptor for poll, unless the peer has to wait.
    pub(super) fn fd_to_read(&self) -> Option<RawFd> {
        (self.may_read() && self.source.due().is_none()).then(|| self.stream.fd())
    }

    /// Whether the peer has closed the connection, even if not all that it sent was read.
    pub(super) fn is_closed(&self) -> bool {
        sys::has_hung_up(self.stream.fd())
    }

    /// Time since anything came from the peer, acknowledgements included; `None` at a Unix socket.
    pub(super) fn silent_for(&self) -> Option<Duration> {
        Some(self.stream.silence()?.lasts)
    }

    /// Has the kernel find out soon whether the peer is there.
    pub(super) fn probe_soon(&self) {
        self.stream.probe_soon();
    }

    /// Has the kernel probe the peer no more often than usual.
    pub(super) fn keep_alive(&self) {
        self.stream.keep_alive();
    }

    /// Whether the peer is gone and the kernel has not given it up.
    fn is_lost(&mut self, now: Instant) -> bool {
        let looked = *self.looked.get_or_insert(now);
        if now.saturating_duration_since(looked) < LOOK_EVERY {
            return false;
        }
        self.looked = Some(now);
        self.stream
            .silence()
            .is_some_and(|silence| silence.is_owing && silence.lasts >= LONGEST_OWED)
    }

    /// Which of its routes the peer sends, where it has several kinds.
    pub(super) fn monitored(&self) -> Option<Monitored> {
        self.source.monitored()
    }

    /// Reports the begin of the session to the source. Returns the number of its events.
    pub(super) fn start(&mut self, control: &mut Control, id: SourceId, now: Instant) -> usize {
        // Of a frame that the session before did not complete.
        control.take_refusals(id);
        self.take(control, id, now).unwrap_or(0)
    }

    /// Reads until `until`, or all there is; nothing while sources are held. Returns the number of events, and why the session ended, if it did.
    pub(super) fn read(
        &mut self,
        control: &mut Control,
        id: SourceId,
        now: Instant,
        until: Instant,
    ) -> (usize, Option<End>) {
        let mut taken = 0;
        self.drained = false;
        if self.is_lost(now) {
            return (taken, Some(End::Failed(ErrorKind::TimedOut.into())));
        }
        if control.holds_sources() {
            return (taken, None);
        }
        let mut piece = vec![0; PIECE_BYTES];
        while self.may_read() {
            // What was read and is due now comes before what is behind it.
            let read = match self.source.due() {
                Some(due) if due > now => break,
                Some(_) => Ok(None),
                None => self.stream.read(&mut piece).map(Some),
            };
            match read {
                Ok(None) => {}
                Ok(Some(0)) => return (taken, Some(self.finish(control, id))),
                Ok(Some(len)) => self.input.extend_from_slice(&piece[..len]),
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock => {
                        self.drained = true;
                        break;
                    }
                    ErrorKind::Interrupted => continue,
                    _ => return (taken, Some(End::Failed(error))),
                },
            }
            match self.take(control, id, now) {
                Ok(events) => taken += events,
                Err(error) => return (taken, Some(End::Source(error))),
            }
            if Instant::now() >= until {
                break;
            }
        }
        (taken, None)
    }

    /// The peer has closed the connection.
    fn finish(&mut self, control: &mut Control, id: SourceId) -> End {
        match self.source.finish(&mut |event| control.handle(id, event)) {
            Ok(()) => End::Closed,
            Err(error) => End::Source(error),
        }
    }

    /// Gives the source what was read.
    fn take(
        &mut self,
        control: &mut Control,
        id: SourceId,
        now: Instant,
    ) -> Result<usize, SourceError> {
        let (mut events, mut commit) = (0, self.commit);
        let (refused, mut of_commit) = (&mut self.refused, Vec::new());
        let taken = self.source.input(&self.input, now, &mut |event| match event {
            RouteEvent::Commit(number) => {
                commit = number;
                refused.extend(of_commit.drain(..).map(|key| Refused { commit, key }));
            }
            event => {
                events += 1;
                let route = route_of(&event);
                control.handle(id, event);
                if let Some(key) = route {
                    // Of several forms in one transaction the last one counts.
                    of_commit.retain(|refused| *refused != key);
                    of_commit.extend(control.take_refusals(id));
                }
            }
        });
        if commit != self.commit {
            self.commit = commit;
            self.last_message = Some(now);
        }
        if events > 0 {
            self.unseen += events;
            self.since.get_or_insert(now);
        }
        self.input.drain(..taken?);
        Ok(events)
    }

    /// Lets the source look at the clock, unless something is still to be read.
    pub(super) fn tick(&mut self, control: &mut Control, id: SourceId, now: Instant) -> usize {
        let mut events = 0;
        if self.drained {
            self.source.tick(now, &mut |event| {
                events += 1;
                control.handle(id, event);
            });
        }
        events
    }

    /// Notes after a commit whether readers see `all`, and writes what is ready. Returns what is wrong with the peer.
    pub(super) fn committed(&mut self, all: bool, now: Instant) -> Option<&'static str> {
        if all && self.unseen > 0 {
            self.source.visible(self.commit, &std::mem::take(&mut self.refused));
            (self.unseen, self.since) = (0, None);
        }
        let mut out = Vec::new();
        self.source.output(&mut out);
        if self.deaf {
            return None;
        }
        out.into_iter().for_each(|bytes| self.output.extend(bytes));
        self.write(now)
    }

    fn write(&mut self, now: Instant) -> Option<&'static str> {
        let mut written = 0;
        while written < self.output.len() {
            match self.stream.write(&self.output[written..]) {
                Ok(0) => break,
                Ok(len) => written += len,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // One that has failed is found by the next read.
                Err(_) => break,
            }
        }
        self.output.drain(..written);
        if self.output.is_empty() {
            self.output.shrink_to(PIECE_BYTES);
            self.waits = None;
            return None;
        }
        if written > 0 {
            self.waits = Some(now);
        }
        let since = *self.waits.get_or_insert(now);
        if now.saturating_duration_since(since) < LONGEST_WRITE {
            return None;
        }
        self.deaf = true;
        self.output = Vec::new();
        Some("does not read what it is sent: its routes are acknowledged no more")
    }

    /// Transactions so far.
    pub(super) fn messages(&self) -> u64 {
        self.commit
    }

    /// Time of the latest one.
    pub(super) fn last_message(&self) -> Option<Instant> {
        self.last_message
    }

    /// What the source did not understand.
    pub(super) fn rejected(&self) -> Rejected {
        self.source.rejected()
    }

    /// End-of-RIB markers that came.
    pub(super) fn ends(&self) -> u64 {
        self.source.ends()
    }

    /// Age of the first event that is not visible.
    pub(super) fn lag(&self, now: Instant) -> Duration {
        self.since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }
}

/// The route that an event has or withdraws.
fn route_of(event: &RouteEvent) -> Option<RouteKey> {
    match event {
        RouteEvent::Route(update) => Some(update.key),
        RouteEvent::Withdraw(key) => Some(*key),
        _ => None,
    }
}
