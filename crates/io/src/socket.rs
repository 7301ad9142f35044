//! Sockets that carry a packet in each datagram, or the bytes of packets in a stream (Click's `Socket`).
//!
//! Source: the manual page of Click's `Socket`; `tcp(7)`, `udp(7)`, `unix(7)`. A device is named by KIND,ROLE,REMOTE[,LOCAL]: KIND is tcp,
//!         udp, unix or unix-datagram, ROLE server or client, addresses are ADDRESS:PORT or a path.
//! Shape:  non-blocking sockets of the standard library. A stream server has one client at a time; a datagram server sends to whom it
//!         received from last. The rest of a packet that a stream took in part is sent before the next one.
//! Cost:   a system call and a copy a packet: for what other programs give and take.
//!
//! Packets for a server without client are dropped and counted. A client whose stream ends is closed.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::{SocketAddr as Path, UnixDatagram, UnixListener, UnixStream};

use fingerpost_packet::device::{DeviceError, Driver, Port};
use fingerpost_packet::frame::Batch;

use crate::frame_each_call;

pub(crate) const DRIVER: Driver = Driver {
    name: "socket",
    summary: "packets in datagrams, or their bytes in a stream: tcp|udp|unix|unix-datagram,server|client,REMOTE[,LOCAL]",
    in_rings: 0,
    external: true,
    open: |spec| Ok(vec![Box::new(Socket::open(spec.name)?)]),
};

/// A socket, open.
struct Socket {
    ends: Ends,
    name: String,
    counts: Counts,
}

/// Packets that were lost.
#[derive(Default)]
struct Counts {
    /// None was free to read into.
    no_buffer: u64,
    /// A server had nobody to send to.
    no_client: u64,
}

enum Ends {
    Stream {
        /// `None` for a client.
        listener: Option<Listener>,
        /// The connection, and what of a packet it has not taken yet.
        active: Option<File>,
        rest: Vec<u8>,
    },
    Udp {
        socket: UdpSocket,
        /// Where packets go; a server learns it.
        peer: Option<SocketAddr>,
        server: bool,
    },
    Unix {
        socket: UnixDatagram,
        peer: Option<Path>,
        server: bool,
    },
}

enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Listener {
    fn accept(&self) -> io::Result<File> {
        match self {
            Self::Tcp(listener) => {
                let (stream, _) = listener.accept()?;
                stream.set_nodelay(true)?;
                stream.set_nonblocking(true)?;
                Ok(File::from(OwnedFd::from(stream)))
            }
            Self::Unix(listener) => {
                let (stream, _) = listener.accept()?;
                stream.set_nonblocking(true)?;
                Ok(File::from(OwnedFd::from(stream)))
            }
        }
    }

    fn fd(&self) -> RawFd {
        match self {
            Self::Tcp(listener) => listener.as_raw_fd(),
            Self::Unix(listener) => listener.as_raw_fd(),
        }
    }
}

impl Ends {
    fn open(kind: &str, server: bool, remote: &str, local: Option<&str>) -> io::Result<Self> {
        match (kind, server) {
            ("tcp", true) => {
                let listener = TcpListener::bind(remote)?;
                listener.set_nonblocking(true)?;
                Ok(Self::stream(Some(Listener::Tcp(listener)), None))
            }
            ("tcp", false) => {
                let stream = TcpStream::connect(remote)?;
                stream.set_nodelay(true)?;
                stream.set_nonblocking(true)?;
                Ok(Self::stream(None, Some(OwnedFd::from(stream).into())))
            }
            ("unix", true) => {
                let listener = UnixListener::bind(remote)?;
                listener.set_nonblocking(true)?;
                Ok(Self::stream(Some(Listener::Unix(listener)), None))
            }
            ("unix", false) => {
                let stream = UnixStream::connect(remote)?;
                stream.set_nonblocking(true)?;
                Ok(Self::stream(None, Some(OwnedFd::from(stream).into())))
            }
            ("udp", true) => {
                let socket = UdpSocket::bind(remote)?;
                socket.set_nonblocking(true)?;
                Ok(Self::Udp { socket, peer: None, server })
            }
            ("udp", false) => {
                let socket = UdpSocket::bind(local.unwrap_or("0.0.0.0:0"))?;
                socket.connect(remote)?;
                socket.set_nonblocking(true)?;
                let peer = Some(socket.peer_addr()?);
                Ok(Self::Udp { socket, peer, server })
            }
            ("unix-datagram", _) => {
                let socket = match if server { Some(remote) } else { local } {
                    Some(path) => UnixDatagram::bind(path)?,
                    None => UnixDatagram::unbound()?,
                };
                socket.set_nonblocking(true)?;
                let peer = if server { None } else { Some(Path::from_pathname(remote)?) };
                Ok(Self::Unix { socket, peer, server })
            }
            _ => Err(io::Error::new(ErrorKind::InvalidInput, "no such kind of socket")),
        }
    }

    fn stream(listener: Option<Listener>, active: Option<File>) -> Self {
        Self::Stream { listener, active, rest: Vec::new() }
    }

    /// Fills a packet; `None` where there is none of this turn.
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Stream { listener, active, rest } => loop {
                if active.is_none()
                    && let Some(listener) = listener
                {
                    *active = Some(listener.accept()?);
                    rest.clear();
                }
                let Some(stream) = active else { return Err(ErrorKind::WouldBlock.into()) };
                match stream.read(bytes) {
                    Ok(0) if listener.is_some() => *active = None,
                    Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                    Err(error) if listener.is_some() && is_gone(&error) => *active = None,
                    read => return read,
                }
            },
            Self::Udp { socket, peer, server } => {
                let (length, from) = socket.recv_from(bytes)?;
                if *server {
                    *peer = Some(from);
                }
                Ok(length)
            }
            Self::Unix { socket, peer, server } => {
                let (length, from) = socket.recv_from(bytes)?;
                if *server && !from.is_unnamed() {
                    *peer = Some(from);
                }
                Ok(length)
            }
        }
    }

    /// Sends a packet; whether there was somebody to send it to.
    fn write(&mut self, bytes: &[u8]) -> io::Result<bool> {
        match self {
            Self::Stream { listener, active, rest } => {
                let Some(stream) = active else { return Ok(false) };
                let sent = push(stream, rest, bytes);
                if listener.is_some() && sent.as_ref().is_err_and(is_gone) {
                    *active = None;
                    rest.clear();
                    return Ok(false);
                }
                sent.map(|()| true)
            }
            Self::Udp { socket, peer, server } => match (peer, server) {
                (Some(peer), true) => socket.send_to(bytes, *peer).map(|_| true),
                (Some(_), false) => socket.send(bytes).map(|_| true),
                (None, _) => Ok(false),
            },
            Self::Unix { socket, peer, .. } => match peer {
                Some(peer) => socket.send_to_addr(bytes, peer).map(|_| true),
                None => Ok(false),
            },
        }
    }
}

/// Writes what is left of the packet before, and then a packet.
fn push(stream: &mut File, rest: &mut Vec<u8>, bytes: &[u8]) -> io::Result<()> {
    while !rest.is_empty() {
        let written = stream.write(rest)?;
        rest.drain(..written);
    }
    let written = stream.write(bytes)?;
    rest.extend_from_slice(&bytes[written..]);
    Ok(())
}

/// Whether the other end left.
fn is_gone(error: &io::Error) -> bool {
    use ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset};
    matches!(error.kind(), BrokenPipe | ConnectionAborted | ConnectionReset)
}

impl Socket {
    fn open(name: &str) -> Result<Self, DeviceError> {
        let parts: Vec<&str> = name.split(',').map(str::trim).collect();
        let (kind, role, remote, local) = match parts[..] {
            [kind, role, remote] => (kind, role, remote, None),
            [kind, role, remote, local] => (kind, role, remote, Some(local)),
            _ => ("", "", "", None),
        };
        if !matches!(kind, "tcp" | "udp" | "unix" | "unix-datagram")
            || !matches!(role, "server" | "client")
        {
            return Err(DeviceError::Unfit {
                device: name.into(),
                what: "expected KIND,ROLE,REMOTE[,LOCAL], as tcp,server,0.0.0.0:80 or udp,client,10.0.0.1:53".into(),
            });
        }
        let failed = |source: io::Error| {
            let hint = match source.kind() {
                ErrorKind::AddrInUse => " (another program has it)",
                ErrorKind::ConnectionRefused => " (nobody listens there)",
                _ => "",
            };
            let call = if role == "server" { "bind" } else { "connect" };
            DeviceError::System { device: name.into(), call, source, hint }
        };
        let ends = Ends::open(kind, role == "server", remote, local).map_err(failed)?;
        Ok(Self { ends, name: name.into(), counts: Counts::default() })
    }

    fn failed(&self, call: &'static str, source: io::Error) -> DeviceError {
        DeviceError::System { device: self.name.clone(), call, source, hint: "" }
    }
}

impl Port for Socket {
    fn recv(&mut self, into: &mut Batch) -> Result<usize, DeviceError> {
        let Self { ends, counts, .. } = self;
        let received = frame_each_call::receive(into, &mut counts.no_buffer, |bytes| {
            match ends.read(bytes) {
                // Of an earlier packet of a datagram client: nobody listened.
                Err(error) if error.kind() == ErrorKind::ConnectionRefused => Ok(None),
                read => read.map(Some),
            }
        });
        received.map_err(|error| self.failed("read", error))
    }

    fn send(&mut self, from: &mut Batch) -> Result<usize, DeviceError> {
        let Self { ends, counts, .. } = self;
        let sent = frame_each_call::send(from, |bytes| match ends.write(bytes) {
            Ok(true) => Ok(()),
            Ok(false) => {
                counts.no_client += 1;
                Ok(())
            }
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
                counts.no_client += 1;
                Ok(())
            }
            Err(error) => Err(error),
        });
        sent.map_err(|error| self.failed("write", error))
    }

    fn wait_fds(&self, fds: &mut Vec<RawFd>) {
        match &self.ends {
            Ends::Stream { listener, active, .. } => {
                fds.extend(listener.as_ref().map(Listener::fd));
                fds.extend(active.as_ref().map(AsRawFd::as_raw_fd));
            }
            Ends::Udp { socket, .. } => fds.push(socket.as_raw_fd()),
            Ends::Unix { socket, .. } => fds.push(socket.as_raw_fd()),
        }
    }

    fn mode(&self) -> String {
        format!("socket {}", self.name)
    }

    fn stats(&self, visit: &mut dyn FnMut(&'static str, u64)) {
        visit("no_buffer", self.counts.no_buffer);
        visit("no_client", self.counts.no_client);
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use fingerpost_packet::frame::Pool;
    use fingerpost_packet::testing::batch;

    fn received(port: &mut Socket, pool: &Pool) -> Vec<u8> {
        let start = Instant::now();
        loop {
            let mut batch = Batch::new(pool);
            if port.recv(&mut batch).unwrap() > 0 || start.elapsed() > Duration::from_secs(5) {
                return (0..batch.len()).flat_map(|i| batch.bytes(i).to_vec()).collect();
            }
        }
    }

    /// A server and a client of a kind exchange packets in both directions.
    fn exchange(kind: &str, remote: &str, local: &str) {
        let pool = Pool::new(64, 2048);
        let mut server = Socket::open(&format!("{kind},server,{remote}")).unwrap();
        assert_eq!(server.send(&mut batch(&pool, 0, [&[9_u8; 9][..]])).unwrap(), 1);
        assert_eq!(server.counts.no_client, 1, "{kind}");
        let mut client = Socket::open(&format!("{kind},client,{remote}{local}")).unwrap();
        client.send(&mut batch(&pool, 0, [&b"hello"[..]])).unwrap();
        assert_eq!(received(&mut server, &pool), b"hello", "{kind}");
        server.send(&mut batch(&pool, 0, [&b"world"[..]])).unwrap();
        assert_eq!(received(&mut client, &pool), b"world", "{kind}");
        assert_eq!(pool.free(), 64);
        drop(client);
        let mut again = Socket::open(&format!("{kind},client,{remote}")).unwrap();
        again.send(&mut batch(&pool, 0, [&b"again"[..]])).unwrap();
        assert_eq!(received(&mut server, &pool), b"again", "{kind}: another client");
    }

    /// A port of this host that is free now.
    fn free() -> String {
        UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
    }

    #[test]
    fn packets_cross_both_ways() {
        exchange("tcp", &free(), "");
        exchange("udp", &free(), "");
        let folder = std::env::temp_dir().join(format!("fpsocket{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = |name: &str| folder.join(name).display().to_string();
        exchange("unix", &path("stream"), "");
        exchange("unix-datagram", &path("datagram"), &format!(",{}", path("client")));
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_name_that_is_none_is_refused_with_an_example() {
        for name in ["", "tcp,server", "sctp,server,1.2.3.4:5", "tcp,both,1.2.3.4:5"] {
            let error = Socket::open(name).err().unwrap().to_string();
            assert!(error.contains("expected KIND,ROLE,REMOTE"), "{error}");
        }
        let error = Socket::open(&format!("tcp,client,{}", free())).err().unwrap().to_string();
        assert!(error.contains("nobody listens there"), "{error}");
    }
}
