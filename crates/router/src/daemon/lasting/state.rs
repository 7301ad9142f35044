//! State folder: files that a daemon keeps across restarts, each written whole.
//!
//! A thread of its own writes, in the order of the requests, so that the daemon's thread never waits for a disk. One daemon has
//! the folder at a time, by a lock on it. Only the owner reads the files: configurations are not for everybody.

use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fingerpost_command::save::Saved as Whole;

use crate::{privilege, sys};

/// Where state lies unless a folder is named.
const USUAL: &str = "/var/lib/fingerpost";
/// How long a daemon waits for the one before it to end.
const LONGEST_TURN: Duration = Duration::from_secs(2);

/// Where a result goes: why something could not be written.
type Done = Sender<Result<(), String>>;

/// Content of a file, which the thread makes: a long document takes a while.
type Text = Box<dyn FnOnce() -> String + Send>;

/// What the thread is to do.
enum Order {
    /// Write a file, or delete it where there is no text. Without somebody who waits for it an error is kept.
    File { name: String, text: Option<Text>, done: Option<Done> },
    /// Forget errors that were kept: a change begins.
    Begin,
    /// Report the first error of a file that was kept.
    Flush(Done),
}

/// A state folder that no other daemon has.
pub(crate) struct StateFolder {
    path: PathBuf,
    _lock: File,
    /// `None` once the thread is to end.
    orders: Option<Sender<Order>>,
    errors: Arc<Mutex<Vec<String>>>,
    thread: Option<JoinHandle<()>>,
}

impl StateFolder {
    /// The folder of this name, which is made where it is not there; without a name the usual one, if it can be written. A
    /// named network namespace (`ip netns`) has no usual folder: that is the host's.
    ///
    /// # Errors
    /// Why the folder of this name cannot be used.
    pub(crate) fn find(named: Option<&Path>) -> Result<Option<Self>, String> {
        let failed =
            |path: &Path, error: io::Error| format!("state folder {}: {error}", path.display());
        if let Some(path) = named {
            let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
            let opened = made.and_then(|()| Self::open(path));
            return opened.map(Some).map_err(|error| failed(path, error));
        }
        let usual = Path::new(USUAL);
        if !usual.is_dir() || in_named_namespace() {
            return Ok(None);
        }
        Ok(Self::open(usual)
            .inspect_err(|error| {
                fingerpost_command::output::message(format_args!(
                    "state folder {USUAL}: {error}: nothing is kept across restarts"
                ));
            })
            .ok())
    }

    fn open(path: &Path) -> io::Result<Self> {
        let lock = File::open(path)?;
        let until = Instant::now() + LONGEST_TURN;
        while lock.try_lock().is_err() {
            if Instant::now() > until {
                let words = "another daemon has it: end that one first, or name another folder with --state";
                return Err(io::Error::new(ErrorKind::AlreadyExists, words));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let (orders, queue) = mpsc::channel();
        let errors: Arc<Mutex<Vec<String>>> = Arc::default();
        let (folder, said, failed) = (path.to_owned(), errors.clone(), errors.clone());
        let thread = std::thread::Builder::new().name("state".into()).spawn(move || {
            privilege::keep_nothing();
            let ended = sys::for_owner_alone(move || {
                carry_out(&folder, &queue, &said);
                Ok(())
            });
            if let Err(error) = ended {
                failed.lock().unwrap_or_else(PoisonError::into_inner).push(error.to_string());
            }
        })?;
        let orders = Some(orders);
        let state =
            Self { path: path.to_owned(), _lock: lock, orders, errors, thread: Some(thread) };
        // Whether it can be written shows now, and not at the first change.
        let probe = state.write_now("format", || "1\n".to_owned());
        probe().map_err(io::Error::other)?;
        Ok(state)
    }

    /// Content of a file; `None` where it is not there.
    ///
    /// # Errors
    /// Why it cannot be read, with its path.
    pub(crate) fn read(&self, name: &str) -> Result<Option<String>, String> {
        let path = self.path.join(name);
        match fs::read_to_string(&path) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(format!("{}: {error}", path.display())),
        }
    }

    /// Path of a file of the folder.
    pub(crate) fn path_of(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Names of the files that begin so, in order.
    pub(super) fn names(&self, prefix: &str) -> Vec<String> {
        let entries = fs::read_dir(&self.path).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let mut names: Vec<String> = names.filter(|name| name.starts_with(prefix)).collect();
        names.sort_unstable();
        names
    }

    /// Has a file written, or deleted where there is no text. An error is a message: [`StateFolder::take_errors`].
    pub(super) fn write(&self, name: &str, text: Option<String>) {
        let text = text.map(|text| -> Text { Box::new(|| text) });
        self.order(Order::File { name: name.to_owned(), text, done: None });
    }

    /// Has a file written with what `make` returns, which the thread calls.
    pub(super) fn write_made(&self, name: &str, make: impl FnOnce() -> String + Send + 'static) {
        self.order(Order::File { name: name.to_owned(), text: Some(Box::new(make)), done: None });
    }

    /// Has a file written with what `make` returns, which the thread calls; what this returns waits until that is done.
    pub(super) fn write_now<F: FnOnce() -> String + Send + 'static>(
        &self,
        name: &str,
        make: F,
    ) -> impl FnOnce() -> Result<(), String> + Send + use<F> {
        let (done, result) = mpsc::channel();
        let text: Option<Text> = Some(Box::new(make));
        self.order(Order::File { name: name.to_owned(), text, done: Some(done) });
        result_of(result)
    }

    /// Begins a change: errors of files before it are not errors of it.
    pub(super) fn begin(&self) {
        self.order(Order::Begin);
    }

    /// Waits, when it is called, until everything that was ordered before is written; fails with the first error of a file since
    /// [`StateFolder::begin`] or the last time, which is a message as well.
    pub(super) fn flush(&self) -> impl FnOnce() -> Result<(), String> + Send + use<> {
        let (done, result) = mpsc::channel();
        self.order(Order::Flush(done));
        result_of(result)
    }

    fn order(&self, order: Order) {
        if let Some(orders) = &self.orders {
            // The thread ends with the last sender alone.
            let _ = orders.send(order);
        }
    }

    /// Errors of files since the last call.
    pub(super) fn take_errors(&self) -> Vec<String> {
        std::mem::take(&mut *self.errors.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for StateFolder {
    fn drop(&mut self) {
        drop(self.orders.take());
        if let Some(thread) = self.thread.take() {
            // What was to be written is written then; a panic has printed itself.
            let _ = thread.join();
        }
    }
}

/// Waits, when it is called, for the result of an order.
fn result_of(result: Receiver<Result<(), String>>) -> impl FnOnce() -> Result<(), String> + Send {
    move || result.recv().unwrap_or_else(|_| Err("nobody writes state any more".to_owned()))
}

/// Writes files, until nobody orders any more.
fn carry_out(folder: &Path, queue: &Receiver<Order>, errors: &Mutex<Vec<String>>) {
    let mut first = None;
    for order in queue {
        let (name, text, done) = match order {
            Order::File { name, text, done } => (name, text, done),
            Order::Begin => {
                first = None;
                continue;
            }
            Order::Flush(done) => {
                // Who does not wait any more has left, here and below.
                let _ = done.send(first.take().map_or(Ok(()), Err));
                continue;
            }
        };
        let path = folder.join(&name);
        let written = match text {
            Some(text) => whole(&path, &text()).and_then(|()| sync(folder)),
            None => match fs::remove_file(&path) {
                Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
                Err(error) => Err(format!("{}: {error}", path.display())),
                Ok(()) => sync(folder),
            },
        };
        match done {
            Some(done) => drop(done.send(written)),
            None => {
                let error = written.err();
                first = first.or_else(|| error.clone());
                let mut errors = errors.lock().unwrap_or_else(PoisonError::into_inner);
                errors.extend(error.map(|error| format!("state: {error}")));
            }
        }
    }
}

/// Has the disk have the names of the folder: a file that was renamed or deleted is not as before after a crash of the host.
fn sync(folder: &Path) -> Result<(), String> {
    match File::open(folder).and_then(|folder| folder.sync_all()) {
        // Some file systems have no such call.
        Err(error) if error.kind() != ErrorKind::InvalidInput => {
            Err(format!("{}: {error}", folder.display()))
        }
        _ => Ok(()),
    }
}

fn whole(path: &Path, text: &str) -> Result<(), String> {
    let written = Whole::create(path).and_then(|mut file| match file.write_all(text.as_bytes()) {
        Ok(()) => file.finish(),
        Err(error) => Err(file.failed(&error)),
    });
    match written {
        Ok(_) => Ok(()),
        Err(fingerpost_command::dispatch::Failure::Failed(_, words)) => Err(words),
        Err(_) => Err(format!("{}: it cannot be written", path.display())),
    }
}

/// Whether the network namespace has a name of `ip netns`.
fn in_named_namespace() -> bool {
    let own = sys::namespace_number();
    let entries = fs::read_dir("/run/netns").into_iter().flatten().flatten();
    let mut numbers = entries.filter_map(|entry| fs::metadata(entry.path()).ok());
    numbers.any(|found| found.ino() == own)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_folder_has_one_daemon_and_whole_files_of_its_owner() {
        let path = std::env::temp_dir().join(format!("fp-state-{}", std::process::id()));
        let folder = StateFolder::find(Some(&path)).unwrap().unwrap();
        let refused = StateFolder::find(Some(&path)).err().unwrap();
        assert!(refused.contains("another daemon has it"), "{refused}");
        folder.write("config-2", Some("two".into()));
        folder.write("config-1", Some("one".into()));
        folder.write_now("config-3", || "three".into())().unwrap();
        assert_eq!(folder.names("config-"), ["config-1", "config-2", "config-3"]);
        folder.flush()().unwrap();
        assert!(path.join("config-2").exists());
        folder.write("config-2", None);
        folder.write("none", None);
        folder.write("no/folder", Some(String::new()));
        let failed = folder.write_now("no/folder", String::new)().unwrap_err();
        assert!(failed.contains("no/folder: No such file"), "{failed}");
        // Who waits for all gets the error, once.
        let failed = folder.flush()().unwrap_err();
        assert!(failed.contains("no/folder: No such file"), "{failed}");
        folder.flush()().unwrap();
        // A change hours later has nothing to do with it.
        folder.write("no/folder", Some(String::new()));
        folder.begin();
        folder.write("config-1", Some("one".into()));
        folder.flush()().unwrap();
        assert_eq!(folder.take_errors().len(), 2);
        let mode = fs::metadata(path.join("config-1")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        drop(folder);
        let folder = StateFolder::find(Some(&path)).unwrap().unwrap();
        assert_eq!(folder.names("config-"), ["config-1", "config-3"]);
        assert_eq!(folder.read("config-3").unwrap().as_deref(), Some("three"));
        assert_eq!(folder.read("config-2"), Ok(None));
        drop(folder);
        fs::remove_dir_all(path).unwrap();
    }
}
