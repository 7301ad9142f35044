//! Tables from files, for the commands that need no daemon, with progress by the bytes of each file.
//!
//! Cost: the route store of each family (24 bytes a node for IPv4, 48 for IPv6, fewer than two nodes
//! a route) and one entry a distinct next hop; a full IPv4 table loads in well under a second.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use fingerpost_lpm::{Addr, NextHopId, Prefix, RouteStore, Rows};
use fingerpost_route::AnyPrefix;
use fingerpost_route::source::table::{FileHop, PeerChoice, TableEntry, TableReader};
use fingerpost_route::source::{Rejected, SourceError};

use crate::dispatch::{Exit, Failure};
use crate::output::message;
use crate::progress::Progress;

/// An address family, and its routes of the tables.
pub trait Family: Rows {
    /// Its routes.
    fn of(tables: &Tables) -> &Half<Self>;
}

impl Family for u32 {
    fn of(tables: &Tables) -> &Half<Self> {
        &tables.v4
    }
}

impl Family for u128 {
    fn of(tables: &Tables) -> &Half<Self> {
        &tables.v6
    }
}

/// The routes of one family.
pub struct Half<A: Addr> {
    /// Prefix to the dense index of its next hop.
    pub routes: RouteStore<A>,
    /// The next hop of index `i + 1`, as the file names it.
    pub hops: Vec<FileHop>,
    ids: HashMap<FileHop, NextHopId>,
}

impl<A: Addr> Default for Half<A> {
    fn default() -> Self {
        Self { routes: RouteStore::new(), hops: Vec::new(), ids: HashMap::new() }
    }
}

impl<A: Addr> Half<A> {
    /// The last route of a prefix wins; true when there was one.
    pub fn insert(&mut self, prefix: Prefix<A>, hop: FileHop) -> bool {
        let id = match self.ids.entry(hop) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(new) => {
                self.hops.push(hop);
                let id = u32::try_from(self.hops.len()).expect("fewer next hops than routes");
                *new.insert(NextHopId(id))
            }
        };
        self.routes.insert(prefix, id).is_some()
    }
}

/// Routes of the files, with counts.
#[derive(Default)]
pub struct Tables {
    /// IPv4.
    pub v4: Half<u32>,
    /// IPv6.
    pub v6: Half<u128>,
    /// Routes read, those that a later one replaced included.
    pub read: u64,
    /// Routes that replaced an earlier one of the same prefix.
    pub replaced: u64,
    /// Lines or records that are not valid.
    pub rejected: u64,
    /// Time that reading took.
    pub took: Duration,
    /// Whether a file ended early: what was read is used, but the command fails in the end.
    cut: bool,
}

impl Tables {
    /// Reads `files` one after the other, as if they were one. Lines that are not valid, and a file that is cut short,
    /// are reported on standard error, and the rest is used.
    ///
    /// # Errors
    /// A file of which nothing can be read.
    pub fn load(files: &[PathBuf]) -> Result<Self, Failure> {
        Self::load_of(files, PeerChoice::First)
    }

    /// Reads `files` as [`Self::load`] does, with this choice among the peers of MRT dumps.
    ///
    /// # Errors
    /// A file of which nothing can be read.
    pub fn load_of(files: &[PathBuf], peer: PeerChoice) -> Result<Self, Failure> {
        let start = Instant::now();
        let mut tables = Self::default();
        for file in files {
            tables.read(file, peer)?;
        }
        tables.took = start.elapsed();
        Ok(tables)
    }

    fn read(&mut self, file: &Path, peer: PeerChoice) -> Result<(), Failure> {
        let mut reader = Reader::open(file, peer).map_err(|error| failed(&error))?;
        let before = self.read;
        for entry in &mut reader {
            match entry {
                Ok(entry) => {
                    self.read += 1;
                    self.replaced += u64::from(match entry.prefix {
                        AnyPrefix::V4(prefix) => self.v4.insert(prefix, entry.hop),
                        AnyPrefix::V6(prefix) => self.v6.insert(prefix, entry.hop),
                    });
                }
                Err(error) if self.read == before => return Err(failed(&error)),
                Err(error) => {
                    message(format_args!("{error}; the answers are those of this part"));
                    self.cut = true;
                }
            }
        }
        let rejected = reader.rejected();
        let name = file.display();
        for sample in &rejected.samples {
            message(format_args!("{name}: {sample}"));
        }
        if self.read == before && rejected.count > 0 {
            return Err(Failure::new(Exit::Failed, format_args!("{name}: no routes in it")));
        }
        if rejected.count > 0 {
            let count = rejected.count;
            message(format_args!("{name}: {count} rejected in all, the rest is used"));
        }
        self.rejected += rejected.count;
        Ok(())
    }

    /// The result of a command without other failures.
    ///
    /// # Errors
    /// When a table was cut short; the message is printed already.
    pub fn verdict(&self) -> Result<(), Failure> {
        if self.cut { Err(Failure::Reported(Exit::Failed)) } else { Ok(()) }
    }
}

/// Reader of the routes of a file that shows its progress.
pub struct Reader {
    table: TableReader,
    progress: Progress,
    entries: u64,
}

/// Routes between two looks at the clock.
const LOOK: u64 = 4096;

impl Reader {
    /// Opens a file as [`TableReader::open`] does.
    ///
    /// # Errors
    /// Likewise.
    pub fn open(file: &Path, peer: PeerChoice) -> Result<Self, SourceError> {
        let table = TableReader::open(file)?.with_peer(peer);
        // What is no regular file has no length.
        let len = std::fs::metadata(file).ok().filter(std::fs::Metadata::is_file);
        let name = file.file_name().unwrap_or(file.as_os_str()).display();
        let mut progress = Progress::new();
        progress.bytes(&format!("reading {name}"), 0, len.map(|file| file.len()));
        Ok(Self { table, progress, entries: 0 })
    }

    /// What made no sense so far.
    pub fn rejected(&self) -> &Rejected {
        self.table.rejected()
    }
}

impl Iterator for Reader {
    type Item = Result<TableEntry, SourceError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.entries += 1;
        if self.entries.is_multiple_of(LOOK) {
            self.progress.at(self.table.read_bytes());
        }
        let entry = self.table.next();
        if entry.is_none() {
            self.progress.done();
        }
        entry
    }
}

fn failed(error: &SourceError) -> Failure {
    match error {
        SourceError::Io { kind, .. } => Failure::outside(*kind, error),
        _ => Failure::new(Exit::Failed, error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn next_hops_are_dense_and_the_last_route_wins() {
        let mut half = Half::<u32>::default();
        let prefix = |text: &str| text.parse::<Prefix<u32>>().unwrap();
        assert!(!half.insert(prefix("10.0.0.0/8"), FileHop::Number(7)));
        assert!(!half.insert(prefix("10.1.0.0/16"), FileHop::Number(9)));
        assert!(half.insert(prefix("10.0.0.0/8"), FileHop::Number(9)));
        assert_eq!(half.hops, [FileHop::Number(7), FileHop::Number(9)]);
        assert_eq!(half.routes.get(prefix("10.0.0.0/8")), Some(&NextHopId(2)));
    }
}
