//! Files that are read again once they change: the token, the files of TLS, and tables of AS numbers.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// Least time between two looks at the files.
const LOOK: Duration = Duration::from_secs(1);

/// Inode of a file, and time of its last change, its rights included; `None` where it is not there.
type Stamp = Option<(u64, i64, i64)>;

/// Files as they were when they were last looked at.
#[derive(Debug)]
pub(crate) struct Stamps {
    seen: Vec<Stamp>,
    looked: Instant,
}

impl Stamps {
    /// The files as they are now. What is read of them is read later, so that no change is missed.
    pub(crate) fn of<'a>(files: impl IntoIterator<Item = &'a Path>) -> Self {
        Self { seen: stamps(files), looked: Instant::now() }
    }

    /// Whether one of the files has changed since the last look, which is a second ago or longer.
    pub(crate) fn have_changed<'a>(&mut self, files: impl IntoIterator<Item = &'a Path>) -> bool {
        if self.looked.elapsed() < LOOK {
            return false;
        }
        self.looked = Instant::now();
        let seen = stamps(files);
        std::mem::replace(&mut self.seen, seen) != self.seen
    }

    /// Has the next call look at the files.
    #[cfg(test)]
    pub(crate) fn expire(&mut self) {
        self.looked = Instant::now().checked_sub(LOOK).expect("the host runs for a second");
    }
}

fn stamps<'a>(files: impl IntoIterator<Item = &'a Path>) -> Vec<Stamp> {
    let stamp = |data: Metadata| (data.ino(), data.ctime(), data.ctime_nsec());
    files.into_iter().map(|file| file.metadata().ok().map(stamp)).collect()
}
