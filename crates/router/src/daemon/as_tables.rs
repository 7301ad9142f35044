//! Tables of AS numbers for samples: read beside the control thread, and read again when their file changes.
//!
//! What was read before is used until then, and stays in use where the changed file makes no sense. The control thread itself
//! looks whether a file has changed, by a system call a file and second.

use std::net::IpAddr;
use std::path::Path;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::Instant;

use fingerpost_packet::feature::sampling::AsNumbers;
use tracing::{info, warn};

use crate::privilege;
use crate::stamp::Stamps;

/// Tables of AS numbers in use, one a file.
#[derive(Default)]
pub(super) struct AsTables(Vec<AsTable>);

struct AsTable {
    file: String,
    stamps: Stamps,
    numbers: Option<AsNumbers>,
    /// The table that a thread is reading.
    coming: Option<Receiver<Result<AsNumbers, String>>>,
    began: Instant,
}

impl AsTables {
    /// Reads the tables of new files, and leaves out those that nobody names any more.
    pub(super) fn follow<'a>(&mut self, files: impl Iterator<Item = &'a str>) {
        let mut before = std::mem::take(&mut self.0);
        for file in files {
            if self.find(file).is_some() {
                continue;
            }
            let known = before.iter().position(|table| table.file == file);
            self.0.push(known.map_or_else(|| AsTable::new(file), |at| before.swap_remove(at)));
        }
    }

    /// Takes what was read, and looks for changes of the files.
    pub(super) fn turn(&mut self) {
        self.0.iter_mut().for_each(AsTable::turn);
    }

    fn find(&self, file: &str) -> Option<&AsTable> {
        self.0.iter().find(|table| table.file == file)
    }

    /// The AS numbers of these addresses; `None` before the file was read.
    pub(super) fn numbers(&self, file: &str, addrs: [IpAddr; 2]) -> Option<[u32; 2]> {
        let numbers = self.find(file)?.numbers.as_ref()?;
        Some(addrs.map(|addr| numbers.of(addr)))
    }
}

impl AsTable {
    fn new(file: &str) -> Self {
        let mut table = Self {
            file: file.to_owned(),
            stamps: Stamps::of([Path::new(file)]),
            numbers: None,
            coming: None,
            began: Instant::now(),
        };
        table.read();
        table
    }

    /// Has a thread read the file.
    fn read(&mut self) {
        let (to, coming) = channel();
        let file = self.file.clone();
        let thread = std::thread::Builder::new().name("fingerpost-as".into());
        let started = thread.spawn(move || {
            privilege::keep_to_read_files();
            // Nobody takes a table that is not in use any more.
            let _ = to.send(AsNumbers::read(&file));
        });
        self.began = Instant::now();
        match started {
            Ok(_) => self.coming = Some(coming),
            Err(error) => self.failed(&format!("{}: {error}", self.file)),
        }
    }

    fn turn(&mut self) {
        match self.coming.as_ref().map(Receiver::try_recv) {
            Some(Err(TryRecvError::Empty)) => return,
            Some(Ok(Ok(numbers))) => {
                let (file, count) = (&self.file, numbers.len());
                let took_ms = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
                info!(target: "sampling", prefixes = count, took_ms, "AS numbers of {count} prefixes of {file}, read in {took_ms} ms");
                self.numbers = Some(numbers);
            }
            Some(Ok(Err(what))) => self.failed(&what),
            Some(Err(TryRecvError::Disconnected)) => {
                self.failed(&format!("{}: it is not read", self.file));
            }
            None => {}
        }
        self.coming = None;
        if self.stamps.have_changed([Path::new(&self.file)]) {
            self.read();
        }
    }

    fn failed(&self, what: &str) {
        let then = if self.numbers.is_some() {
            "the previous table stays in use"
        } else {
            "samples have no AS numbers"
        };
        warn!(target: "sampling", "AS table {what}; {then}");
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::Duration;

    use super::*;

    /// Turns until a lookup has this result.
    fn until(tables: &mut AsTables, file: &str, want: Option<[u32; 2]>) {
        let addrs = ["10.1.2.3", "2001:db8::1"].map(|addr| addr.parse().unwrap());
        let end = Instant::now() + Duration::from_secs(20);
        while tables.numbers(file, addrs) != want {
            assert!(Instant::now() < end, "{:?}", tables.numbers(file, addrs));
            tables.0.iter_mut().for_each(|table| table.stamps.expire());
            tables.turn();
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn a_file_that_changes_is_read_again_and_one_that_is_wrong_is_not_used() {
        let file = std::env::temp_dir().join(format!("fp-as-{}.txt", std::process::id()));
        fs::write(&file, "10.0.0.0/8 64500\n2001:db8::/32 64501\n").unwrap();
        let name = file.to_str().unwrap();
        let mut tables = AsTables::default();
        tables.follow([name, name].into_iter());
        assert_eq!(tables.0.len(), 1, "one table a file");
        let addr = "10.1.2.3".parse().unwrap();
        assert_eq!(tables.numbers(name, [addr, addr]), None, "a turn takes it");
        until(&mut tables, name, Some([64_500, 64_501]));
        fs::write(&file, "10.0.0.0/8 64500 no\n").unwrap();
        tables.0[0].stamps.expire();
        tables.turn();
        assert!(tables.0[0].coming.is_some(), "the change was seen");
        until(&mut tables, name, Some([64_500, 64_501]));
        fs::write(&file, "10.1.0.0/16 4200000001\n").unwrap();
        until(&mut tables, name, Some([4_200_000_001, 0]));
        tables.follow([name].into_iter());
        assert_eq!(tables.numbers(name, [addr, addr]), Some([4_200_000_001; 2]), "it is kept");
        tables.follow(std::iter::empty());
        assert_eq!(tables.numbers(name, [addr, addr]), None);
        fs::remove_file(file).unwrap();
    }
}
