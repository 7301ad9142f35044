//! What a graph, or a write handler, may open: files, devices and control sockets.
//!
//! A configuration comes from somebody. The router's own file, and what its owner sends by a Unix socket, may name
//! whatever the process can open. What comes over TCP may not, since whoever may exchange queues and routes is not
//! thereby root: it opens what the router's own file named before, and files below folders that were given at the start.
//! Nor does it get the contents of a file that it did not send. `graph check` opens nothing for writing and nothing that
//! waits.
//!
//! A policy goes with a configuration from its text ([`Language`](crate::language::Language)) to each element's
//! [`Setup`](crate::graph::Setup), and with each call of a write handler.
//!
//! Below a folder no symbolic link is followed and `..` is refused ([`Folder`]). A name that begins with `~/` is in the home
//! directory of the process, as in Click.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::{Arc, Mutex, PoisonError};

pub use fingerpost_lpm::input::Folder;
use fingerpost_lpm::input::{self, MOST_STREAM_BYTES, MOST_TEXT_BYTES};

/// What may be opened. The default is whatever the process can open.
#[derive(Clone, Debug, Default)]
pub struct OpenPolicy {
    extent: Extent,
    /// Whether FIFOs and devices are read without `SPECIAL true`.
    waits: bool,
    known: Arc<Known>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Extent {
    /// Everything; what is opened is known from then on.
    #[default]
    All,
    /// What is to be read, and is a regular file.
    Check,
    /// What is known, and files below the folders.
    Known,
}

#[derive(Debug, Default)]
struct Known {
    named: Mutex<HashSet<Named>>,
    folders: Vec<Folder>,
}

/// What a configuration named, as it was written there.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Named {
    Input(String),
    Output(String),
    Device { driver: String, name: String },
    ControlSocket(String),
}

impl OpenPolicy {
    /// Everything; and policies made of it by [`known_only`](Self::known_only) have the files below these folders.
    pub fn with_folders(folders: Vec<Folder>) -> Self {
        Self { known: Arc::new(Known { folders, ..Known::default() }), ..Self::default() }
    }

    /// Everything, FIFOs and devices as well: of a program that has nothing else to do than to wait for them.
    pub fn waiting() -> Self {
        Self { waits: true, ..Self::default() }
    }

    /// Regular files to read, and nothing else.
    pub fn check() -> Self {
        Self { extent: Extent::Check, ..Self::default() }
    }

    /// What was opened by this one, or will be, and files below the folders.
    #[must_use]
    pub fn known_only(&self) -> Self {
        Self { extent: Extent::Known, waits: false, known: self.known.clone() }
    }

    /// Whether messages may have text of files: not to somebody who may not read them.
    pub fn shows_text(&self) -> bool {
        self.extent != Extent::Known
    }

    /// Whether processes may be sent signals: by whoever may open everything.
    #[cfg(feature = "click")]
    pub(crate) fn may_signal(&self) -> bool {
        self.extent == Extent::All
    }

    /// Opens a regular file to read it.
    ///
    /// # Errors
    /// As [`input::open`]; [`ErrorKind::PermissionDenied`] where it may not be opened.
    pub fn input(&self, name: &str) -> io::Result<File> {
        let name = &*at_home(name);
        if self.allows(Named::Input(name.to_owned())) {
            return input::open(name, MOST_STREAM_BYTES);
        }
        let file = self.below(name, OpenOptions::new().read(true))?;
        input::regular(file, MOST_STREAM_BYTES)
    }

    /// The text of a regular file.
    ///
    /// # Errors
    /// As [`input::read_text`]; [`ErrorKind::PermissionDenied`] where it may not be opened.
    pub fn text(&self, name: &str) -> io::Result<String> {
        input::text(self.input(name)?, MOST_TEXT_BYTES)
    }

    /// Whether a name is for [`special_input`](Self::special_input) without `SPECIAL true`.
    pub fn is_special(&self, name: &str) -> bool {
        let name = &*at_home(name);
        let is_other = |found: Metadata| !found.is_file() && !found.is_dir();
        name == "-" || self.waits && fs::metadata(name).is_ok_and(is_other)
    }

    /// Opens whatever is there to read it: a FIFO, for which it waits until somebody writes to it, a device, or with `-`
    /// standard input. `None` where such is not opened: it would take what it reads from somebody else.
    ///
    /// # Errors
    /// As [`File::open`]; [`ErrorKind::PermissionDenied`] where it may not be opened.
    pub fn special_input(&self, name: &str) -> io::Result<Option<File>> {
        let name = &*at_home(name);
        match self.extent {
            Extent::Check => Ok(None),
            _ if !self.allows(Named::Input(name.to_owned())) => Err(refused()),
            _ if name == "-" => input::open_or_stdin(name, MOST_STREAM_BYTES).map(Some),
            _ => File::open(name).map(Some),
        }
    }

    /// Opens a file to append to it, and makes it where there is none; what is in it stays. `None` where nothing is
    /// opened for writing.
    ///
    /// # Errors
    /// As [`OpenOptions::open`]; [`ErrorKind::PermissionDenied`] where it may not be opened.
    pub fn output(&self, name: &str) -> io::Result<Option<File>> {
        let name = &*at_home(name);
        let mut options = OpenOptions::new();
        options.create(true).append(true);
        match self.extent {
            Extent::Check => Ok(None),
            _ if self.allows(Named::Output(name.to_owned())) => options.open(name).map(Some),
            _ => {
                let file = self.below(name, options.mode(0o600))?;
                input::regular(file, MOST_STREAM_BYTES).map(Some)
            }
        }
    }

    /// Opens a file to write it from its start: as [`output`](Self::output), and what is in a regular file is removed.
    ///
    /// # Errors
    /// As [`output`](Self::output); the file cannot be emptied.
    pub fn new_output(&self, name: &str) -> io::Result<Option<File>> {
        let Some(file) = self.output(name)? else { return Ok(None) };
        // Devices and FIFOs have no length.
        if file.metadata()?.is_file() {
            file.set_len(0)?;
        }
        Ok(Some(file))
    }

    /// Opens a file to write it from its start: as [`new_output`](Self::new_output), and where everything may be opened
    /// makes the folders that it is to be in.
    ///
    /// # Errors
    /// As [`new_output`](Self::new_output); a folder cannot be made.
    #[cfg(feature = "click")]
    pub(crate) fn new_output_in_folder(&self, name: &str) -> io::Result<Option<File>> {
        let name = &*at_home(name);
        let opened = self.new_output(name);
        let parent = std::path::Path::new(name).parent();
        match (&opened, parent) {
            (Err(error), Some(parent))
                if error.kind() == ErrorKind::NotFound && self.extent == Extent::All =>
            {
                std::fs::create_dir_all(parent)?;
                self.new_output(name)
            }
            _ => opened,
        }
    }

    /// Whether a driver may open a device.
    ///
    /// # Errors
    /// [`ErrorKind::PermissionDenied`] where not.
    pub fn device(&self, driver: &str, name: &str) -> io::Result<()> {
        let named = Named::Device { driver: driver.to_owned(), name: name.to_owned() };
        if self.allows(named) { Ok(()) } else { Err(refused()) }
    }

    /// Whether a control socket may be opened, at a place as it is written.
    ///
    /// # Errors
    /// [`ErrorKind::PermissionDenied`] where not.
    pub fn control_socket(&self, place: &str) -> io::Result<()> {
        if self.allows(Named::ControlSocket(place.to_owned())) { Ok(()) } else { Err(refused()) }
    }

    /// Whether this may be opened by its name; from then on it is known where everything may be.
    fn allows(&self, named: Named) -> bool {
        // Whole whatever panicked beside it.
        let mut known = self.known.named.lock().unwrap_or_else(PoisonError::into_inner);
        match self.extent {
            Extent::All => {
                known.insert(named);
                true
            }
            Extent::Check => true,
            Extent::Known => known.contains(&named),
        }
    }

    /// Opens a file below one of the folders.
    fn below(&self, name: &str, options: &mut OpenOptions) -> io::Result<File> {
        let path = std::path::absolute(name)?;
        for folder in &self.known.folders {
            if let Some(file) = folder.open_below(&path, options)? {
                return Ok(file);
            }
        }
        Err(refused())
    }
}

/// A name with the home directory in the place of its `~`.
fn at_home(name: &str) -> Cow<'_, str> {
    in_home(name, || std::env::var("HOME").ok())
}

/// A name with this home directory in the place of its `~`.
fn in_home(name: &str, home: impl FnOnce() -> Option<String>) -> Cow<'_, str> {
    let below = name.strip_prefix('~').filter(|below| below.is_empty() || below.starts_with('/'));
    let named = below.and_then(|below| Some(home()? + below));
    named.map_or(Cow::Borrowed(name), Cow::Owned)
}

fn refused() -> io::Error {
    let words = "not opened for what comes over TCP: the file that the router runs has to name it, or --open-below a \
                 folder around it";
    io::Error::new(ErrorKind::PermissionDenied, words)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::{Read, Write};
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;

    use super::*;

    struct Tree(PathBuf);

    impl Tree {
        /// `in/deep/list` and `in/up -> ..`, `in/link -> ../out`; `out`; `fifo`.
        fn new(name: &str) -> Self {
            let root = std::env::temp_dir().join(format!("fp-{name}-{}", std::process::id()));
            fs::create_dir_all(root.join("in/deep")).unwrap();
            fs::write(root.join("in/deep/list"), "inside").unwrap();
            fs::write(root.join("out"), "outside").unwrap();
            symlink("..", root.join("in/up")).unwrap();
            symlink("../out", root.join("in/link")).unwrap();
            let fifo = root.join("in/fifo");
            assert!(std::process::Command::new("mkfifo").arg(fifo).status().unwrap().success());
            Self(root)
        }

        fn path(&self, name: &str) -> String {
            self.0.join(name).display().to_string()
        }
    }

    impl Drop for Tree {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn denied<T>(result: io::Result<T>) -> bool {
        result.is_err_and(|error| error.kind() == ErrorKind::PermissionDenied)
    }

    #[test]
    fn over_tcp_only_what_was_named_before_is_opened() {
        let tree = Tree::new("named");
        let own = OpenPolicy::default();
        let others = own.known_only();
        let out = tree.path("out");
        assert!(denied(others.input(&out)) && denied(others.text(&out)));
        assert_eq!(own.text(&out).unwrap(), "outside");
        assert_eq!(others.text(&out).unwrap(), "outside");
        // To read, and as it was written.
        assert!(denied(others.output(&out)));
        assert!(denied(others.input(&tree.path("in/../out"))));
        assert!(denied(others.output(&tree.path("new"))) && !tree.0.join("new").exists());
        assert!(own.output(&out).unwrap().is_some() && others.output(&out).unwrap().is_some());
        assert!(denied(others.device("afxdp", "eth0")));
        own.device("afxdp", "eth0").unwrap();
        others.device("afxdp", "eth0").unwrap();
        assert!(denied(others.device("tap", "eth0")) && denied(others.device("afxdp", "eth1")));
        own.control_socket("TCP, 1").unwrap();
        others.control_socket("TCP, 1").unwrap();
        assert!(denied(others.control_socket("TCP, 2")));
        assert!(denied(others.special_input("-")));
        assert!(own.shows_text() && !others.shows_text());
        #[cfg(feature = "click")]
        assert!(own.may_signal() && !others.may_signal() && !OpenPolicy::check().may_signal());
        // What the one knows another one does not.
        assert!(denied(OpenPolicy::default().known_only().input(&out)));
    }

    #[test]
    fn names_may_begin_at_home() {
        let named = |name: &'static str| in_home(name, || Some("/home/a".to_owned()));
        for name in ["~user/x", "a~", "./~/x", ""] {
            assert_eq!(named(name), name);
        }
        assert_eq!([named("~"), named("~/x~")], ["/home/a", "/home/a/x~"]);
        assert_eq!(in_home("~/x", || None), "~/x");
    }

    #[test]
    fn below_a_folder_nothing_leads_out_of_it() {
        let tree = Tree::new("below");
        let folder = Folder::new(&tree.0.join("in")).unwrap();
        let others = OpenPolicy::with_folders(vec![folder]).known_only();
        assert_eq!(others.text(&tree.path("in/deep/list")).unwrap(), "inside");
        assert_eq!(others.text(&tree.path("in/./deep//list")).unwrap(), "inside");
        for name in [
            "in/../out",
            "in/deep/../../out",
            "in/up/out",
            "in/link",
            "in/fifo",
            "in/deep",
            "in",
            "in/none",
            "inner",
            "out",
        ] {
            let name = tree.path(name);
            assert!(others.input(&name).is_err(), "{name}");
        }
        for name in ["in/../new", "in/up/new", "in/link", "in/fifo", "in", "new"] {
            let name = tree.path(name);
            assert!(others.output(&name).is_err(), "{name}");
        }
        assert!(!tree.0.join("new").exists());
        assert_eq!(fs::read_to_string(tree.0.join("out")).unwrap(), "outside");
        let made = tree.path("in/deep/new");
        others.output(&made).unwrap().unwrap().write_all(b"a").unwrap();
        others.output(&made).unwrap().unwrap().write_all(b"b").unwrap();
        let mut text = String::new();
        others.input(&made).unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "ab");
        assert!(
            Folder::new(&tree.0.join("out")).is_err() && Folder::new(&tree.0.join("x")).is_err()
        );
    }

    #[test]
    fn a_check_opens_nothing_to_write_and_nothing_that_waits() {
        let tree = Tree::new("check");
        let check = OpenPolicy::check();
        assert!(check.output(&tree.path("new")).unwrap().is_none());
        assert!(!tree.0.join("new").exists());
        assert_eq!(check.text(&tree.path("out")).unwrap(), "outside");
        assert!(check.input(&tree.path("in/fifo")).is_err());
        assert!(check.special_input(&tree.path("in/fifo")).unwrap().is_none());
        assert!(check.input("/dev/zero").is_err() && check.special_input("-").unwrap().is_none());
    }
}
