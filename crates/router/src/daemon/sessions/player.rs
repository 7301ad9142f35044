//! Sources whose files are replayed: a thread reads and decompresses them, and a [`Session`] takes what it has read.
//!
//! The thread passes whole records only, so that a file that is cut short does not spoil those behind it. The connection between
//! both is what a session has in any case: it is bounded, and who writes to it waits.

use std::io::{self, Write};
use std::os::fd::RawFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Instant;

use fingerpost_lpm::input::{self, MOST_STREAM_BYTES};
use fingerpost_route::bgp::mrt::{HEADER_BYTES, RECORD_BYTES, Records, is_header};
use fingerpost_route::source::table::decompress::Decoded;
use fingerpost_route::source::{SourceError, SourceKind, SourceSpec};
use fingerpost_route::{Control, SourceId};
use tracing::{info, warn};

use super::session::{End, Session};
use super::socket::Stream;
use super::{BURST, SeatReport};
use crate::config::readable;

const PIECE_BYTES: usize = 64 << 10;

/// A replay.
pub(in crate::daemon) struct Player {
    name: &'static str,
    session: Session,
    /// What is wrong with the files.
    mistakes: Receiver<String>,
    begun: Instant,
    has_ended: bool,
}

impl Player {
    /// Begins a replay of these files, one behind the other.
    ///
    /// # Errors
    /// When one cannot be opened.
    pub(in crate::daemon) fn open(
        kind: &'static SourceKind,
        spec: &SourceSpec,
        files: Vec<PathBuf>,
    ) -> Result<Self, SourceError> {
        for file in &files {
            readable(file).map_err(|error| failed(file, &error))?;
        }
        let start = || {
            let (ours, theirs) = UnixStream::pair()?;
            ours.set_nonblocking(true)?;
            let (to, mistakes) = channel();
            let thread = std::thread::Builder::new().name("fingerpost-replay".into());
            thread.spawn(move || carry(&files, theirs, &to))?;
            Ok((Stream::Unix(ours), mistakes))
        };
        let begun = Instant::now();
        let (stream, mistakes) =
            start().map_err(|error: io::Error| SourceError::io(kind.name, &error))?;
        let session = Session::new(stream, (kind.open)(spec)?);
        Ok(Self { name: kind.name, session, mistakes, begun, has_ended: false })
    }

    /// Reports the begin of its table.
    pub(in crate::daemon) fn begin(&mut self, control: &mut Control, id: SourceId) {
        self.session.start(control, id, self.begun);
    }

    /// Descriptor for poll.
    pub(in crate::daemon) fn fd(&self) -> Option<RawFd> {
        (!self.has_ended).then(|| self.session.fd_to_read())?
    }

    /// Takes what is due, for a burst at most. Returns how many changes that were.
    pub(in crate::daemon) fn turn(
        &mut self,
        control: &mut Control,
        id: SourceId,
        now: Instant,
    ) -> usize {
        if self.has_ended {
            return 0;
        }
        let (taken, end) = self.session.read(control, id, now, now + BURST);
        let name = self.name;
        for what in self.mistakes.try_iter() {
            warn!(target: "source", source = name, "source {name}: {what}");
        }
        let Some(end) = end else { return taken };
        self.has_ended = true;
        let (records, errors) = (self.session.messages(), self.session.rejected().count);
        let seconds = now.saturating_duration_since(self.begun).as_secs_f64();
        match end {
            End::Closed => info!(
                target: "source", source = name, records, errors, took_ms = seconds * 1e3,
                "source {name}: {records} records are replayed, in {seconds:.1} s, {errors} of them rejected"
            ),
            End::Failed(error) => warn!(
                target: "source", source = name, records,
                "source {name}: behind record {records}: {error}"
            ),
            End::Source(error) => warn!(
                target: "source", source = name, records,
                "source {name}: {error}: the rest is not replayed"
            ),
        }
        taken.max(1)
    }

    /// Notes that readers see all routes.
    pub(in crate::daemon) fn committed(&mut self, all: bool, now: Instant) {
        self.session.committed(all, now);
    }

    /// State of the replay.
    pub(in crate::daemon) fn report(&self, now: Instant) -> SeatReport {
        let rejected = self.session.rejected();
        SeatReport {
            is_open: !self.has_ended,
            peer: String::new(),
            sessions: 1,
            messages: self.session.messages(),
            errors: rejected.count,
            ends: self.session.ends(),
            last_error: rejected.samples.last().cloned().unwrap_or_default(),
            last_message: self.session.last_message().map(|at| now.saturating_duration_since(at)),
            lag: self.session.lag(now),
        }
    }
}

fn failed(file: &Path, error: &io::Error) -> SourceError {
    SourceError::io(&file.display().to_string(), error)
}

/// Writes the records of all files, until nobody reads them.
fn carry(files: &[PathBuf], mut to: UnixStream, mistakes: &Sender<String>) {
    // Which are opened one after the other: there may be thousands.
    crate::privilege::keep_to_read_files();
    for file in files {
        match carry_one(file, &mut to) {
            // The replay was taken away.
            Err(Failure::Nobody) => return,
            // Whoever could be told is gone with it.
            Err(Failure::File(what)) => drop(mistakes.send(what)),
            Ok(()) => {}
        }
    }
}

enum Failure {
    Nobody,
    File(String),
}

fn carry_one(path: &Path, to: &mut UnixStream) -> Result<(), Failure> {
    let name = path.display().to_string();
    let file = |error: SourceError| Failure::File(error.to_string());
    let opened =
        input::open(path, MOST_STREAM_BYTES).map_err(|error| file(failed(path, &error)))?;
    let mut input = Decoded::new(&name, Box::new(opened)).map_err(file)?;
    let (mut held, mut records) = (Vec::new(), 0u64);
    let broken = loop {
        let start = held.len();
        held.resize(start + PIECE_BYTES, 0);
        let read = input.read_some(&mut held[start..]);
        held.truncate(start + *read.as_ref().unwrap_or(&0));
        let (mut all, mut whole) = (Records::new(&held), 0);
        while let Some(Ok(_)) = all.next() {
            whole = held.len() - all.rest().len();
            records += 1;
        }
        if to.write_all(&held[..whole]).is_err() {
            return Err(Failure::Nobody);
        }
        held.drain(..whole);
        if held.len() >= HEADER_BYTES && !is_header(&held) || held.len() > RECORD_BYTES {
            let what = "is none of MRT: the rest is not replayed";
            return Err(Failure::File(format!("{name}: record {} {what}", records + 1)));
        }
        match read {
            Ok(0) => break None,
            Ok(_) => {}
            Err(error) => break Some(error),
        }
    };
    match broken {
        Some(error) if !matches!(error, SourceError::Truncated { .. }) => Err(file(error)),
        None if held.is_empty() => Ok(()),
        _ => Err(Failure::File(format!(
            "{name}: cut short in record {}: the {records} records before are replayed",
            records + 1
        ))),
    }
}
