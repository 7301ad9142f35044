//! Files of Unix sockets: they go with the socket, and one that a program left behind makes room.

use std::fs;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;

/// Whether a path is that of a socket.
pub(crate) fn is_socket(path: &str) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket())
}

/// File of a socket that is bound; dropping this removes it.
#[derive(Debug)]
pub(crate) struct SocketPath(PathBuf);

impl SocketPath {
    /// File of a socket that was bound by other means.
    pub(crate) fn of(path: &str) -> Self {
        Self(path.into())
    }

    /// Binds by `bind`, a second time where the file is one that nobody listens at any more.
    ///
    /// # Errors
    /// Those of `bind`; `AddrInUse` where somebody listens, or the file is no socket.
    pub(crate) fn bound<T>(
        path: &str,
        bind: impl Fn(&str) -> io::Result<T>,
    ) -> io::Result<(T, Self)> {
        let bound = match bind(path) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && is_left_behind(path) => {
                fs::remove_file(path)?;
                bind(path)
            }
            bound => bound,
        };
        bound.map(|socket| (socket, Self::of(path)))
    }
}

impl Drop for SocketPath {
    fn drop(&mut self) {
        // Nothing is lost with what cannot be removed: the next one finds that nobody listens there.
        let _ = fs::remove_file(&self.0);
    }
}

/// Whether a path is that of a socket which nobody has open. One of a stream refuses datagrams by another error.
fn is_left_behind(path: &str) -> bool {
    let tried = UnixDatagram::unbound().and_then(|socket| socket.connect(path));
    is_socket(path) && tried.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
}
