//! Where a control socket listens: a TCP port or a Unix socket, open.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::{UnixListener, UnixStream};

use fingerpost_packet::handler::control_socket::{Access, Client, Listen, SocketRequest};

use super::{Service, peer};
use crate::api::socket::{Claimed, SocketError};
use crate::sys;

/// Why nobody can be listened to.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ListenError {
    /// No such TCP port is free.
    #[error("control socket: TCP port {0}: {1}")]
    Tcp(String, io::Error),
    /// No Unix socket.
    #[error(transparent)]
    Unix(#[from] SocketError),
    /// No thread, or no file descriptors.
    #[error("control socket: {0}")]
    Start(#[from] io::Error),
}

impl ListenError {
    /// Whether somebody else has the place.
    pub(crate) fn is_taken(&self) -> bool {
        let in_use = |error: &io::Error| error.kind() == ErrorKind::AddrInUse;
        match self {
            Self::Tcp(_, error) | Self::Unix(SocketError::Io { error, .. }) => in_use(error),
            Self::Unix(SocketError::Taken { .. }) => true,
            Self::Unix(_) | Self::Start(_) => false,
        }
    }
}

/// A socket that listens.
pub(super) struct Opened {
    pub(super) listener: Listener,
    /// Where it is: `127.0.0.1:1234`, or a path.
    pub(super) place: String,
    /// Its Unix socket, whose file goes with it.
    pub(super) claimed: Option<Claimed>,
}

impl Opened {
    /// The socket of a request, which notes its port.
    ///
    /// # Errors
    /// When it cannot listen there.
    pub(super) fn new(request: &SocketRequest) -> Result<Self, ListenError> {
        match &request.listen {
            Listen::Unix(path) => {
                let claimed = Claimed::new(path.into())?;
                let listener = Listener::Unix(claimed.listener()?);
                Ok(Self { listener, place: path.clone(), claimed: Some(claimed) })
            }
            listen @ Listen::Tcp { everywhere, .. } => {
                let listener = bind(listen, *everywhere)?;
                listener.set_nonblocking(true)?;
                let place = listener.local_addr()?;
                request.note_port(place.port());
                let listener = Listener::Tcp(listener);
                Ok(Self { listener, place: place.to_string(), claimed: None })
            }
        }
    }
}

/// The first free one of the ports, on all addresses of both families or for this host alone.
fn bind(listen: &Listen, everywhere: bool) -> Result<TcpListener, ListenError> {
    let addresses: &[IpAddr] = match everywhere {
        // A host without IPv6 has IPv4 left.
        true => &[IpAddr::V6(Ipv6Addr::UNSPECIFIED), IpAddr::V4(Ipv4Addr::UNSPECIFIED)],
        false => &[IpAddr::V4(Ipv4Addr::LOCALHOST)],
    };
    let mut failed = io::Error::from(ErrorKind::InvalidInput);
    for port in listen.ports() {
        for &address in addresses {
            match TcpListener::bind(SocketAddr::new(address, port)) {
                Ok(listener) => return Ok(listener),
                // What is taken is taken on all addresses.
                Err(error) if error.kind() == ErrorKind::AddrInUse => {
                    failed = error;
                    break;
                }
                Err(error) => failed = error,
            }
        }
    }
    let (first, last) = (*listen.ports().start(), *listen.ports().end());
    let ports = if first == last { first.to_string() } else { format!("{first} to {last}") };
    Err(ListenError::Tcp(ports, failed))
}

/// A client that is to be served.
pub(super) struct Accepted {
    pub(super) stream: UnixStream,
    /// What it may do.
    pub(super) client: Client,
    /// Where it is, over TCP.
    pub(super) from: Option<SocketAddr>,
}

#[derive(Debug)]
pub(super) enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Listener {
    /// The next client, and what it may do; `None` for one that is not served. A TCP connection becomes a stream socket
    /// like any other: reads, writes, limits of time and shutdown are the same system calls for both.
    pub(super) fn accept(&self, service: &Service) -> io::Result<Option<Accepted>> {
        let owns = |user: u32| user == 0 || user == sys::user();
        match self {
            Self::Unix(listener) => {
                let (stream, _) = listener.accept()?;
                // The mode of the socket's file has the same effect, unless somebody changed it.
                let served = sys::peer_user(&stream).is_ok_and(owns);
                let client = service.client(Access::Write, service.policy.clone());
                Ok(served.then_some(Accepted { stream, client, from: None }))
            }
            Self::Tcp(listener) => {
                let (stream, from) = listener.accept()?;
                let writes = peer::user(&stream).is_some_and(owns);
                let access = if writes { Access::Write } else { Access::Read };
                // One that is gone by now is found to be when it is read from.
                let _ = stream.set_nodelay(true);
                let client = service.client(access, service.policy.known_only());
                let stream = UnixStream::from(OwnedFd::from(stream));
                Ok(Some(Accepted { stream, client, from: Some(from) }))
            }
        }
    }

    /// Descriptor for poll.
    pub(super) fn fd(&self) -> RawFd {
        match self {
            Self::Tcp(listener) => listener.as_raw_fd(),
            Self::Unix(listener) => listener.as_raw_fd(),
        }
    }
}
