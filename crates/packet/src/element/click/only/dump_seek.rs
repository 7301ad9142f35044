//! Handler `filepos` of `FromDump`, as it is written: packets are read on from another place of the file.
//!
//! Source: Click's `FromDump`. The handler opens the file anew and skips to the place, so that no packet waits for that.
//! A place where no record begins is not found out: what is there is read as one.

use std::fs::File;
use std::io::{self, Cursor, Read, Seek, SeekFrom};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::dump_encap::Encap;
use super::dump_window::FILE_HEADER;
use crate::device::pcap::Pcap;
use crate::element::support::plain::Plain;
use crate::graph::Made;
use crate::handler::Handler;
use crate::language::Value;
use crate::language::open_policy::OpenPolicy;

/// A reader of another place, until whoever reads the file takes it.
#[derive(Clone, Default)]
pub(crate) struct Sought(Arc<State>);

#[derive(Default)]
struct State {
    is_there: AtomicBool,
    reader: Mutex<Option<(u64, Pcap)>>,
}

impl Sought {
    fn lock(&self) -> MutexGuard<'_, Option<(u64, Pcap)>> {
        // A reader is whole whatever panicked beside it.
        self.0.reader.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The place and the reader, where there is one.
    pub(crate) fn take(&self) -> Option<(u64, Pcap)> {
        // Relaxed: the lock orders what it guards.
        let is_there = self.0.is_there.load(Relaxed) && self.0.is_there.swap(false, Relaxed);
        is_there.then(|| self.lock().take()).flatten()
    }

    /// Adds the handler, for a file of this name; `special` ones are read in one go.
    pub(crate) fn handled(
        &self,
        made: Made,
        (name, special): (String, bool),
        policy: OpenPolicy,
    ) -> Made {
        let sought = self.clone();
        made.handler(Handler::write("filepos", move |text| {
            let at = u64::read(text.trim()).map_err(|_| "argument must be file offset")?;
            if special {
                return Err(format!("{name}: it is no regular file, and has no other places"));
            }
            let file = policy.input(&name).map_err(|error| format!("{name}: {error}"))?;
            *sought.lock() = Some((at, reader_at(&name, file, at)?));
            sought.0.is_there.store(true, Relaxed);
            Ok(())
        }))
    }
}

/// A reader of the records of a file from a place in its plain bytes on.
fn reader_at(name: &str, file: File, at: u64) -> Result<Pcap, String> {
    let failed = |error: io::Error| format!("{name}: {error}");
    let beyond = || "FILEPOS out of range".to_owned();
    let mut plain_file = file.try_clone().map_err(failed)?;
    let mut bytes = Plain::of(name, file).map_err(|error| error.to_string())?;
    let mut header = Vec::new();
    bytes.by_ref().take(FILE_HEADER).read_to_end(&mut header).map_err(failed)?;
    let skipped = at.checked_sub(FILE_HEADER).ok_or_else(beyond)?;
    let rest: Box<dyn Read + Send> = if bytes.is_compressed() {
        let there = io::copy(&mut bytes.by_ref().take(skipped), &mut io::sink());
        if there.map_err(failed)? < skipped {
            return Err(beyond());
        }
        Box::new(bytes)
    } else {
        if plain_file.metadata().map_err(failed)?.len() < at {
            return Err(beyond());
        }
        plain_file.seek(SeekFrom::Start(at)).map_err(failed)?;
        Box::new(plain_file)
    };
    let input = Cursor::new(header).chain(rest);
    let is_known = |link| Encap::of_link(link).is_some();
    Pcap::reading(name, input, is_known).map_err(|error| error.to_string())
}
