//! The registry of route sources.

mod bmp;
#[cfg(test)]
mod event_words;
pub mod file;
mod fixed;
mod fpm;
#[cfg(any(test, feature = "testing"))]
#[doc(hidden)]
pub mod fuzz;
pub mod kernel;
pub mod line;
pub mod mrt;
#[cfg(test)]
pub(crate) mod real;
#[cfg(test)]
#[cfg(target_endian = "little")]
mod recorded;
mod replay;
mod rtnetlink;
pub mod table;
pub mod words;

use std::time::{Duration, Instant};

use crate::bgp::ribs::Limits;
use crate::event::{RouteEvent, RouteKey};

/// All sources, in the order that `--help` lists them.
pub static SOURCES: &[SourceKind] =
    &[fixed::KIND, file::KIND, kernel::KIND, fpm::KIND, bmp::KIND, mrt::KIND];

/// The source that configuration calls by this name.
pub fn find(name: &str) -> Option<&'static SourceKind> {
    SOURCES.iter().find(|kind| kind.name == name)
}

/// Turns bytes into events. No I/O of its own: bytes and time go in, events come out; the daemon
/// owns the sockets and files.
pub trait RouteSource: Send {
    /// Consumes whole messages of `bytes` and returns how many bytes that were. A message that
    /// makes no sense is counted in [`RouteSource::rejected`] and skipped, the rest is applied.
    ///
    /// # Errors
    /// When nothing after this point can be understood.
    fn input(
        &mut self,
        bytes: &[u8],
        now: Instant,
        sink: &mut dyn FnMut(RouteEvent),
    ) -> Result<usize, SourceError>;
    /// Completes the input: sends what was kept back, then [`RouteEvent::EndOfTable`] for a table
    /// that is read once, and reports an input that was cut short.
    ///
    /// # Errors
    /// When the input is incomplete inside a message; everything before it has reached the sink.
    fn finish(&mut self, sink: &mut dyn FnMut(RouteEvent)) -> Result<(), SourceError> {
        let _ = sink;
        Ok(())
    }
    /// Time passes. A source whose input has no end of table finds it by the clock: call this some times a second.
    fn tick(&mut self, now: Instant, sink: &mut dyn FnMut(RouteEvent)) {
        let _ = (now, sink);
    }
    /// When the next message is due, of a source that keeps the times of a record: until then [`RouteSource::input`] takes
    /// nothing. Also the time of an input that stopped behind a message which took long: the rest is to be given again. `None`
    /// when it takes more bytes.
    fn due(&self) -> Option<Instant> {
        None
    }
    /// Requests and acknowledgements to send: a datagram each, or the next bytes of a session.
    fn output(&mut self, out: &mut Vec<Vec<u8>>) {
        let _ = out;
    }
    /// A message was lost before it was read (a full socket buffer): repeat everything, by a dump
    /// between [`RouteEvent::StartOfTable`] and [`RouteEvent::EndOfTable`].
    fn lost(&mut self, now: Instant) {
        let _ = now;
    }
    /// Routes of these protocols (`RTPROT_*`) are left out from now on, as another source has them: those that
    /// were sent before follow as withdrawn, and others as new, when the table was read again.
    fn leave_out(&mut self, protocols: &[u8]) {
        let _ = protocols;
    }
    /// Readers now see everything up to [`RouteEvent::Commit`] of this number, except what was `refused`.
    fn visible(&mut self, commit: u64, refused: &[Refused]) {
        let _ = (commit, refused);
    }
    /// Which of its routes the peer sends, where it has several kinds of them: the next session begins with those
    /// ([`SessionSpec::monitored`]).
    fn monitored(&self) -> Option<Monitored> {
        None
    }
    /// End-of-RIB markers that came so far (RFC 4724 section 2).
    fn ends(&self) -> u64 {
        0
    }
    /// Messages or lines that were refused so far, and the reason of the latest.
    fn rejected(&self) -> Rejected {
        Rejected::default()
    }
}

/// Which of its routes a router sends. Those of a later kind replace those of all before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Monitored {
    /// Those of its peers, as they came.
    PrePolicy,
    /// Those of its peers that its policy accepts.
    PostPolicy,
    /// Those that it chose.
    LocRib,
}

/// A route that the control side did not take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Number of the [`RouteEvent::Commit`] behind it: a later one may have the route in a form that is taken.
    pub commit: u64,
    /// The route.
    pub key: RouteKey,
}

/// What a source could not understand.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rejected {
    /// How many.
    pub count: u64,
    /// The first few, in words, each naming its place (`line 17: ...`).
    pub samples: Vec<String>,
}

impl Rejected {
    /// How many are kept in words.
    const SAMPLES: usize = 8;

    fn add(&mut self, words: impl FnOnce() -> String) {
        self.count += 1;
        if self.samples.len() < Self::SAMPLES {
            self.samples.push(words());
        }
    }
}

/// How a source is fed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// The configuration itself has its data.
    None,
    /// A file, read once.
    File,
    /// Files of records, one behind the other, which are taken when they are due ([`RouteSource::due`]).
    Replay,
    /// Two netlink sockets (NETLINK_ROUTE) joined to these groups. Requests go to the one and are answered there; the
    /// other is read empty before anything of the first is given to the source.
    Netlink {
        /// RTNLGRP numbers.
        groups: &'static [u32],
        /// Those of the socket that is read first.
        first: &'static [u32],
    },
    /// A listening socket, whose peers connect and send: each connection is a session, with a [`RouteSource`] of its
    /// own, which sends [`RouteEvent::StartOfTable`] first. A peer that comes back continues as the source that it was.
    Sessions {
        /// Address and port unless configured.
        listen: &'static str,
    },
}

/// What a source is opened with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceSpec {
    /// A file's name, for messages and to guess its format; empty when there is none.
    pub name: String,
    /// Static routes, `PREFIX via GATEWAY [dev NAME] [weight N] ...`, for `fixed`.
    pub routes: Vec<String>,
    /// Names of links that static routes may use, with their kernel index.
    pub links: Vec<(String, u32)>,
    /// Which peer's routes of MRT files are taken.
    pub peer: table::PeerChoice,
    /// Speed of a replay.
    pub speed: mrt::Speed,
    /// Settings of a session.
    pub session: SessionSpec,
}

/// Settings of the sessions of a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionSpec {
    /// Silence after which the table of a new session is complete, where the peer sends no end: routes of the session
    /// before that were not repeated are withdrawn then.
    pub sweep_after: Duration,
    /// Routes are acknowledged to the peer as readers see them.
    pub acknowledge: bool,
    /// Number of sessions of the peer before this one. Numbers of next-hop objects depend on it, and repeat after
    /// [`SessionSpec::DISTINCT`] sessions: no route of the session so many before may be left.
    pub number: u64,
    /// How much of the routes of a router's peers is kept.
    pub limits: Limits,
    /// Most tables that are made for its routes.
    pub tables: usize,
    /// Which of its routes the peer sent in the session before.
    pub monitored: Option<Monitored>,
}

impl SessionSpec {
    /// Sessions in a row that sources distinguish by their numbers.
    pub const DISTINCT: u64 = 16;
}

impl Default for SessionSpec {
    fn default() -> Self {
        // All of FRR's daemons restart together, and bgpd has to find its neighbors before there are routes.
        Self {
            sweep_after: Duration::from_secs(30),
            acknowledge: true,
            number: 0,
            limits: Limits::default(),
            // A table is never removed, and has two FIBs.
            tables: 1024,
            monitored: None,
        }
    }
}

/// Registry row.
pub struct SourceKind {
    /// What configuration calls it.
    pub name: &'static str,
    /// One line.
    pub summary: &'static str,
    /// How it is fed.
    pub transport: Transport,
    /// Administrative distance unless configured; lower wins.
    pub distance: u8,
    /// Protocols (`RTPROT_*`) whose routes in the kernel's tables repeat those of this source: they count only while
    /// it has no session.
    pub mirrored: &'static [u8],
    /// Makes one.
    pub open: fn(&SourceSpec) -> Result<Box<dyn RouteSource>, SourceError>,
}

/// Why a source stops.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// A line or message that cannot be understood, where the source stops at it.
    #[error("{place}: {what}")]
    Syntax {
        /// `FILE:LINE` or `FILE: byte N`.
        place: String,
        /// What is wrong and what would be right.
        what: String,
    },
    /// A static route that is not valid, or conflicts with an earlier one.
    #[error("{name}: route {number} `{line}`: {what}")]
    Route {
        /// The list of routes.
        name: String,
        /// Its place in the list, from 1.
        number: usize,
        /// The route as it is written.
        line: String,
        /// What is wrong and what would be right.
        what: String,
    },
    /// The input is incomplete inside a message.
    #[error("{name}: cut short {at}: {rest}")]
    Truncated {
        /// The input.
        name: String,
        /// Where (`in record 8713, at byte 12345`).
        at: String,
        /// What was kept.
        rest: String,
    },
    /// The input cannot be opened or read.
    #[error("{name}: {what}")]
    Io {
        /// The input.
        name: String,
        /// What kind of failure, for exit codes.
        kind: std::io::ErrorKind,
        /// Message of the system.
        what: String,
    },
    /// The compressed stream is damaged.
    #[error("{name}: {what}")]
    Compression {
        /// The input.
        name: String,
        /// Message of the decoder.
        what: String,
    },
}

impl SourceError {
    /// An error of the system about this input.
    pub fn io(name: &str, error: &std::io::Error) -> Self {
        Self::Io { name: name.into(), kind: error.kind(), what: error.to_string() }
    }
}
