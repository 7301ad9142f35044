//! Where the socket is, and how one daemon has it.
//!
//! The name holds the network namespace, as that is what a daemon forwards for: two namespaces, two
//! daemons, and a command finds the one of the namespace that it runs in.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::sys;

/// Where sockets lie unless they are named.
const FOLDER: &str = "/run/fingerpost";
/// Others find a socket there whose name they know; its own mode decides. They can neither list nor lock the folder.
const FOLDER_MODE: u32 = 0o711;
/// How long a daemon waits for another one that is just starting.
const LONGEST_TURN: Duration = Duration::from_secs(2);
/// Longest path that an address of a Unix socket holds, in bytes, with the name of the socket for reading.
const LONGEST: usize = 107 - READING.len();
/// What the name of the socket for reading has behind that of the other one.
const READING: &str = ".ro";

/// Why a daemon cannot have its socket.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SocketError {
    #[error(
        "a daemon{} answers at {} already: end it first, or give this one another \
         --socket",
        pid.map_or(String::new(), |pid| format!(" (process {pid})")), path.display()
    )]
    Taken { path: PathBuf, pid: Option<i32> },
    #[error("{} is no socket: it stays as it is, name another with --socket", .0.display())]
    NotASocket(PathBuf),
    #[error("{}: a path of at most {LONGEST} bytes is needed", .0.display())]
    TooLong(PathBuf),
    #[error("control socket {}: {error}{}", path.display(), remedy(error))]
    Io { path: PathBuf, error: io::Error },
}

fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::PermissionDenied => " (this user must be able to write there: see --socket)",
        _ => "",
    }
}

impl SocketError {
    /// Whether a missing privilege is the cause.
    pub(crate) fn is_permission(&self) -> bool {
        matches!(self, Self::Io { error, .. } if error.kind() == ErrorKind::PermissionDenied)
    }
}

/// The socket: as named, or the one of this network namespace.
pub(crate) fn path(named: Option<&Path>) -> PathBuf {
    if let Some(path) = named {
        return path.to_owned();
    }
    Path::new(FOLDER).join(format!("{}.sock", sys::namespace_number()))
}

/// The socket for reading beside a control socket.
pub(crate) fn for_reading(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(READING);
    name.into()
}

/// A listening socket that nobody else has. Its file is removed when this is dropped.
#[derive(Debug)]
pub(crate) struct Claimed {
    listener: UnixListener,
    path: PathBuf,
    /// Inode of the file, to remove no other one.
    inode: u64,
}

impl Claimed {
    /// Takes the socket at `path`. One that nobody answers at is replaced.
    ///
    /// # Errors
    /// When another daemon has it, or the file cannot be made.
    pub(crate) fn new(path: PathBuf) -> Result<Self, SocketError> {
        if path.as_os_str().len() > LONGEST {
            return Err(SocketError::TooLong(path));
        }
        match Self::claim(&path) {
            Ok(Ok(claimed)) => Ok(claimed),
            Ok(Err(refused)) => Err(refused),
            Err(error) => Err(SocketError::Io { path, error }),
        }
    }

    fn claim(path: &Path) -> io::Result<Result<Self, SocketError>> {
        let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        if folder == Path::new(FOLDER) {
            fs::DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(folder)?;
            // A folder of others stays as it is.
            let _ = fs::set_permissions(folder, fs::Permissions::from_mode(FOLDER_MODE));
        }
        // Two daemons that start at once take turns from looking to listening. In a folder of everybody's
        // somebody else can keep the lock: then it goes without.
        let turn = File::open(folder)?;
        let until = Instant::now() + LONGEST_TURN;
        while turn.try_lock().is_err() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(10));
        }
        match fs::symlink_metadata(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
            Ok(found) => {
                use std::os::unix::fs::FileTypeExt;
                if !found.file_type().is_socket() {
                    return Ok(Err(SocketError::NotASocket(path.to_owned())));
                }
                match UnixStream::connect(path) {
                    Ok(other) => {
                        let pid = sys::peer_process(&other).ok();
                        return Ok(Err(SocketError::Taken { path: path.to_owned(), pid }));
                    }
                    Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
                        fs::remove_file(path)?;
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        let listener = sys::for_owner_alone(|| UnixListener::bind(path))?;
        // By the mask above nobody else has had it; its owner is not to run it either.
        fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
        let inode = fs::symlink_metadata(path)?.ino();
        Ok(Ok(Self { listener, path: path.to_owned(), inode }))
    }

    /// Members of a group may connect, too.
    ///
    /// # Errors
    /// When this user cannot give the file to the group: then it stays as it was.
    pub(crate) fn admit(&self, group: u32) -> io::Result<()> {
        std::os::unix::fs::chown(&self.path, None, Some(group))?;
        fs::set_permissions(&self.path, fs::Permissions::from_mode(0o660))
    }

    /// The socket for the server: a handle that does not block.
    ///
    /// # Errors
    /// When there are no file descriptors left.
    pub(crate) fn listener(&self) -> io::Result<UnixListener> {
        let listener = self.listener.try_clone()?;
        listener.set_nonblocking(true)?;
        Ok(listener)
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Claimed {
    fn drop(&mut self) {
        if fs::symlink_metadata(&self.path).is_ok_and(|found| found.ino() == self.inode) {
            // What stays is replaced by the next daemon.
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("fp-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    #[test]
    fn the_second_is_refused_and_a_dead_one_is_replaced() {
        let folder = folder("socket");
        let path = folder.join("a.sock");
        let first = Claimed::new(path.clone()).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        let refused = Claimed::new(path.clone()).unwrap_err().to_string();
        let want = format!("a daemon (process {}) answers at", std::process::id());
        assert!(refused.starts_with(&want), "{refused}");
        drop(first);
        assert!(!path.exists(), "it takes its file along");
        // As a crash leaves it: the file, and nobody behind it.
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        let second = Claimed::new(path.clone()).unwrap();
        fs::remove_file(&path).unwrap();
        fs::write(&path, "mine").unwrap();
        let refused = Claimed::new(path.clone()).unwrap_err().to_string();
        assert!(refused.contains("is no socket: it stays"), "{refused}");
        drop(second);
        assert_eq!(fs::read_to_string(&path).unwrap(), "mine", "not ours, not removed");
        let long = folder.join("x".repeat(LONGEST));
        assert!(matches!(Claimed::new(long), Err(SocketError::TooLong(_))));
        let nowhere = Claimed::new(folder.join("none/a.sock")).unwrap_err();
        assert!(matches!(nowhere, SocketError::Io { .. }) && !nowhere.is_permission());
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn the_usual_path_names_the_namespace() {
        let usual = path(None);
        let inode: u64 = usual.file_stem().unwrap().to_str().unwrap().parse().unwrap();
        assert!(inode > 0 && usual.starts_with(FOLDER));
        assert_eq!(path(Some(Path::new("x"))), Path::new("x"));
    }
}
