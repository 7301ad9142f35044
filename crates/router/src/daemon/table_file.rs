//! Tables in files: a thread reads, decompresses and parses a file, and the control thread takes its routes in pieces.
//!
//! Shape:  [`MOST_WAITING`] pieces of [`PIECE`] routes wait at most, however long the file is; then the thread waits.
//! Cost:   a turn takes routes for [`BURST`], and none while [`MOST_UNSEEN`] of them are not visible.

use std::io;
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::time::Instant;

use fingerpost_route::source::file::FileReader;
use fingerpost_route::source::{Rejected, RouteSource, SourceError};
use fingerpost_route::{Control, RouteEvent, SourceId};
use tracing::warn;

use super::sessions::{BURST, MOST_UNSEEN};
use crate::privilege;

/// Routes of a piece: less than a millisecond's work.
const PIECE: usize = 512;
/// Pieces that wait for the control thread: more than it takes between two turns without other events.
const MOST_WAITING: usize = 64;

/// Routes of a file in the order of its lines, or its end.
enum Piece {
    Routes(Vec<RouteEvent>),
    End(Result<(), SourceError>, Rejected),
}

/// A file whose routes are being taken.
pub(super) struct TableFile {
    pieces: Receiver<Piece>,
    /// The next piece, where it is there already.
    next: Option<Piece>,
    /// Routes since all were visible.
    unseen: usize,
}

impl TableFile {
    /// Opens a file, and has a thread give its bytes to `source`.
    ///
    /// # Errors
    /// When the file cannot be opened.
    pub(super) fn open(path: &Path, source: Box<dyn RouteSource>) -> Result<Self, SourceError> {
        let reader = FileReader::open(path)?;
        let (to, pieces) = sync_channel(MOST_WAITING);
        let thread = std::thread::Builder::new().name("fingerpost-file".into());
        let started = thread.spawn(move || {
            privilege::keep_to_read_files();
            read(reader, source, &to);
        });
        let failed = |error: io::Error| SourceError::io(&path.display().to_string(), &error);
        started.map_err(failed)?;
        Ok(Self { pieces, next: None, unseen: 0 })
    }

    /// Whether routes are there that may be taken.
    pub(super) fn is_behind(&self) -> bool {
        self.next.is_some() && self.unseen < MOST_UNSEEN
    }

    /// Takes routes until `until`, or all that are there. Returns how many those were, the end of the file
    /// counted as one, and whether the file has ended.
    pub(super) fn turn(
        &mut self,
        control: &mut Control,
        id: SourceId,
        kind: &str,
        until: Instant,
    ) -> (usize, bool) {
        let mut taken = 0;
        while self.unseen < MOST_UNSEEN {
            let piece = match self.next.take().map_or_else(|| self.pieces.try_recv(), Ok) {
                Ok(piece) => piece,
                Err(TryRecvError::Empty) => return (taken, false),
                Err(TryRecvError::Disconnected) => {
                    broke_off(control, id, kind);
                    return (taken + 1, true);
                }
            };
            match self.take(control, id, kind, piece) {
                Some(routes) => taken += routes,
                None => return (taken + 1, true),
            }
            if Instant::now() >= until {
                self.next = self.pieces.try_recv().ok();
                break;
            }
        }
        (taken, false)
    }

    /// Time at which a turn that begins now stops taking routes.
    pub(super) fn until() -> Instant {
        Instant::now() + BURST
    }

    /// Takes all routes, and waits for them.
    pub(super) fn take_all(mut self, control: &mut Control, id: SourceId, kind: &str) {
        loop {
            let ended = match self.pieces.recv() {
                Ok(piece) => self.take(control, id, kind, piece).is_none(),
                Err(_) => {
                    broke_off(control, id, kind);
                    true
                }
            };
            if ended {
                return;
            }
        }
    }

    /// Notes that readers see all routes.
    pub(super) fn all_seen(&mut self) {
        self.unseen = 0;
    }

    /// Takes a piece; `None` at the end of the file.
    fn take(
        &mut self,
        control: &mut Control,
        id: SourceId,
        kind: &str,
        piece: Piece,
    ) -> Option<usize> {
        match piece {
            Piece::Routes(routes) => {
                let count = routes.len();
                routes.into_iter().for_each(|event| control.handle(id, event));
                self.unseen += count;
                Some(count)
            }
            Piece::End(ended, rejected) => {
                // What could be read is used; the rest is reported.
                if let Err(error) = ended {
                    warn!(target: "source", source = kind, "source {kind}: {error}");
                }
                let Rejected { count, samples } = rejected;
                if count > 0 {
                    let samples = samples.join("; ");
                    warn!(target: "source", source = kind, rejected = count, "source {kind}: {count} rejected: {samples}");
                }
                None
            }
        }
    }
}

/// Ends the table after a panic of the thread, which the panic hook has printed: the routes so far are the table.
fn broke_off(control: &mut Control, id: SourceId, kind: &str) {
    warn!(target: "source", source = kind, "source {kind}: the rest of the file is not read");
    control.handle(id, RouteEvent::EndOfTable);
}

/// Routes for the control thread.
struct Pieces<'a> {
    to: &'a SyncSender<Piece>,
    routes: Vec<RouteEvent>,
    /// Somebody takes them.
    wanted: bool,
}

impl Pieces<'_> {
    fn push(&mut self, event: RouteEvent) {
        self.routes.push(event);
        if self.routes.len() == PIECE {
            self.send();
        }
    }

    fn send(&mut self) {
        let routes = std::mem::replace(&mut self.routes, Vec::with_capacity(PIECE));
        self.wanted = self.wanted && self.to.send(Piece::Routes(routes)).is_ok();
    }
}

/// Sends all routes of a file, until nobody takes them.
fn read(mut reader: FileReader, mut source: Box<dyn RouteSource>, to: &SyncSender<Piece>) {
    let mut pieces = Pieces { to, routes: Vec::with_capacity(PIECE), wanted: true };
    while reader.step(source.as_mut(), &mut |event| pieces.push(event)) {
        if !pieces.wanted {
            return;
        }
    }
    let ended = reader.finish(source.as_mut(), &mut |event| pieces.push(event));
    pieces.send();
    // The source was taken away, if nobody takes it.
    let _ = to.send(Piece::End(ended, source.rejected()));
}
