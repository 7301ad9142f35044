//! Listening sockets and connections, over TCP and at a Unix socket, that never block.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::{UnixListener, UnixStream};

use fingerpost_route::source::SourceError;

use crate::api::socket::Claimed;
use crate::config::Listen;
use crate::sys::{self, Silence};

/// A listening socket.
pub(super) enum Socket {
    Tcp(TcpListener),
    /// The second keeps the file, and removes it at the end.
    Unix {
        socket: UnixListener,
        _claimed: Claimed,
    },
}

/// A connection.
pub(super) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Socket {
    /// Listens. A Unix socket is for the user of this process alone, and one that nobody answers at is replaced.
    ///
    /// # Errors
    /// When the address cannot be had.
    pub(super) fn open(listen: &Listen) -> Result<Self, SourceError> {
        let failed = |kind: ErrorKind, what: String| SourceError::Io {
            name: format!("listening at {listen}"),
            kind,
            what,
        };
        let io = |error: io::Error| failed(error.kind(), error.to_string());
        match listen {
            Listen::Tcp(address) => {
                let socket = TcpListener::bind(address).map_err(io)?;
                socket.set_nonblocking(true).map_err(io)?;
                Ok(Self::Tcp(socket))
            }
            Listen::Unix(path) => {
                let claimed = Claimed::new(path.clone()).map_err(|error| {
                    let kind = match error.is_permission() {
                        true => ErrorKind::PermissionDenied,
                        false => ErrorKind::AddrInUse,
                    };
                    failed(kind, error.to_string())
                })?;
                Ok(Self::Unix { socket: claimed.listener().map_err(io)?, _claimed: claimed })
            }
        }
    }

    pub(super) fn fd(&self) -> RawFd {
        match self {
            Self::Tcp(socket) => socket.as_raw_fd(),
            Self::Unix { socket, .. } => socket.as_raw_fd(),
        }
    }

    /// A peer that has connected, with its address; `None` while there is no other one.
    ///
    /// # Errors
    /// When none can be accepted for want of descriptors or memory: the socket stays readable.
    pub(super) fn accept(&self) -> io::Result<Option<(Stream, Option<IpAddr>)>> {
        loop {
            let accepted = self.accept_one();
            return match accepted {
                Ok(peer) => Ok(Some(peer)),
                Err(error) => match error.raw_os_error() {
                    Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM) => Err(error),
                    _ if error.kind() == ErrorKind::WouldBlock => Ok(None),
                    // One that left before it was accepted.
                    _ => continue,
                },
            };
        }
    }

    fn accept_one(&self) -> io::Result<(Stream, Option<IpAddr>)> {
        Ok(match self {
            Self::Tcp(socket) => {
                let (stream, peer) = socket.accept()?;
                // A peer that lost its power does not close its connection.
                sys::keep_alive(&stream)?;
                stream.set_nonblocking(true)?;
                (Stream::Tcp(stream), Some(peer.ip()))
            }
            Self::Unix { socket, .. } => {
                let (stream, _) = socket.accept()?;
                stream.set_nonblocking(true)?;
                (Stream::Unix(stream), None)
            }
        })
    }
}

impl Stream {
    /// Silence of the peer; `None` at a Unix socket, whose peer cannot vanish without its end.
    pub(super) fn silence(&self) -> Option<Silence> {
        match self {
            Self::Tcp(stream) => sys::silence(stream.as_raw_fd()),
            Self::Unix(_) => None,
        }
    }

    /// Has the kernel find out soon whether the peer is there.
    pub(super) fn probe_soon(&self) {
        if let Self::Tcp(stream) = self {
            // Without it the peer is given up in any case.
            let _ = sys::probe_soon(stream);
        }
    }

    /// Has the kernel probe the peer no more often than usual.
    pub(super) fn keep_alive(&self) {
        if let Self::Tcp(stream) = self {
            let _ = sys::keep_alive(stream);
        }
    }

    pub(super) fn fd(&self) -> RawFd {
        match self {
            Self::Tcp(stream) => stream.as_raw_fd(),
            Self::Unix(stream) => stream.as_raw_fd(),
        }
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read(buffer),
            Self::Unix(stream) => stream.read(buffer),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.write(bytes),
            Self::Unix(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
