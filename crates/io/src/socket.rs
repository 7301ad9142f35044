//! Sockets that carry a packet in each datagram, or the bytes of packets in a stream (Click's `Socket`).
//!
//! Source: the manual page of Click's `Socket`; `tcp(7)`, `udp(7)`, `unix(7)`, `socket(7)`. A device is named by
//!         KIND,ROLE,REMOTE[,LOCAL][,OPTION=VALUE...]: KIND is tcp, udp, unix or unix-datagram, ROLE server or client,
//!         addresses are ADDRESS:PORT or a path. A client sends from LOCAL. Options are snaplen (bytes of a packet of a
//!         stream at most), nodelay (false: TCP gathers what is sent), sndbuf and rcvbuf (bytes of the kernel's buffers).
//! Shape:  non-blocking sockets of the standard library. A stream server has one client at a time; a datagram server sends to whom it
//!         received from last. The rest of a packet that a stream took in part is sent before the next one.
//! Cost:   a system call and a copy a packet: for what other programs give and take.
//!
//! No error of a peer closes the port. Packets without a peer, for one that is not reached, and those too long for a
//! frame or a datagram are dropped and counted. A stream that ends or fails is closed: a server takes the next client,
//! a client connects again, once a second. The file of a Unix socket goes with it, and one that was left behind is
//! replaced.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, ToSocketAddrs, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::{SocketAddr as Path, UnixDatagram, UnixListener};
use std::time::{Duration, Instant};

use fingerpost_packet::device::{DeviceError, Driver, Port};
use fingerpost_packet::frame::Batch;

use crate::frame_each_call;
use crate::socket_call::{Address, connect, set_number};
use crate::socket_path::SocketPath;

pub(crate) const DRIVER: Driver = Driver {
    name: "socket",
    summary: "packets in datagrams, or their bytes in a stream: tcp|udp|unix|unix-datagram,server|client,REMOTE[,LOCAL][,OPTION=VALUE]",
    in_rings: 0,
    external: true,
    open: |spec| Ok(vec![Box::new(Socket::open(spec.name)?)]),
};

/// A socket, open.
struct Socket {
    ends: Ends,
    options: Options,
    name: String,
    counts: Counts,
    /// File of a Unix socket that this one made.
    _path: Option<SocketPath>,
}

/// What sockets are to be like.
#[derive(Clone, Copy, Debug)]
struct Options {
    /// Bytes of a packet of a stream at most.
    snap_len: usize,
    /// TCP sends packets at once.
    no_delay: bool,
    /// Bytes of the kernel's buffers, where they are given.
    send_bytes: Option<i32>,
    receive_bytes: Option<i32>,
}

impl Default for Options {
    fn default() -> Self {
        Self { snap_len: usize::MAX, no_delay: true, send_bytes: None, receive_bytes: None }
    }
}

impl Options {
    /// Takes the option of a part of a name; `None` where it is none.
    fn take(&mut self, part: &str) -> Option<()> {
        let (name, value) = part.split_once('=')?;
        match name {
            "snaplen" => self.snap_len = value.parse().ok().filter(|bytes| *bytes > 0)?,
            "nodelay" => self.no_delay = value.parse().ok()?,
            "sndbuf" => self.send_bytes = Some(value.parse().ok()?),
            "rcvbuf" => self.receive_bytes = Some(value.parse().ok()?),
            _ => return None,
        }
        Some(())
    }

    /// Sets them on a socket, which may be a stream.
    fn set(&self, socket: &impl AsFd) -> io::Result<()> {
        let buffers = [(libc::SO_SNDBUF, self.send_bytes), (libc::SO_RCVBUF, self.receive_bytes)];
        for (option, bytes) in buffers {
            if let Some(bytes) = bytes {
                set_number(socket, (libc::SOL_SOCKET, option), bytes)?;
            }
        }
        if self.no_delay {
            // Another socket than one of TCP has no such option, and needs none.
            let _ = set_number(socket, (libc::IPPROTO_TCP, libc::TCP_NODELAY), 1);
        }
        Ok(())
    }
}

/// Packets that were lost.
#[derive(Default)]
struct Counts {
    /// None was free to read into.
    no_buffer: u64,
    /// There was nobody to send to.
    no_client: u64,
    /// A datagram was longer than a frame, or a frame than a datagram may be.
    too_long: u64,
    /// The kernel did not send it to this peer.
    refused: u64,
}

enum Ends {
    Stream {
        source: Source,
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

/// Where connections come from.
enum Source {
    Tcp(TcpListener),
    Unix(UnixListener),
    Dial {
        local: Option<Address>,
        remote: Address,
        /// When the connection was last tried.
        tried: Instant,
    },
}

/// Time from one attempt to connect to the next.
const REDIAL: Duration = Duration::from_secs(1);

impl Source {
    /// The next connection; `WouldBlock` while there is none.
    fn next(&mut self, options: &Options) -> io::Result<File> {
        let stream = match self {
            Self::Tcp(listener) => {
                let (stream, _) = listener.accept()?;
                stream.set_nonblocking(true)?;
                OwnedFd::from(stream)
            }
            Self::Unix(listener) => {
                let (stream, _) = listener.accept()?;
                stream.set_nonblocking(true)?;
                OwnedFd::from(stream)
            }
            Self::Dial { tried, .. } if tried.elapsed() < REDIAL => {
                return Err(ErrorKind::WouldBlock.into());
            }
            Self::Dial { local, remote, tried } => {
                *tried = Instant::now();
                connect(local.as_ref(), remote, false)?
            }
        };
        options.set(&stream)?;
        Ok(File::from(stream))
    }

    fn fd(&self) -> Option<RawFd> {
        match self {
            Self::Tcp(listener) => Some(listener.as_raw_fd()),
            Self::Unix(listener) => Some(listener.as_raw_fd()),
            Self::Dial { .. } => None,
        }
    }
}

/// The first address that a text stands for.
fn address(text: &str) -> io::Result<SocketAddr> {
    text.to_socket_addrs()?.next().ok_or_else(|| ErrorKind::AddrNotAvailable.into())
}

impl Ends {
    fn open(
        (kind, server): (&str, bool),
        remote: &str,
        local: Option<&str>,
        options: &Options,
    ) -> io::Result<(Self, Option<SocketPath>)> {
        let stream = |source| Self::Stream { source, active: None, rest: Vec::new() };
        match (kind, server) {
            ("tcp", true) => {
                let listener = TcpListener::bind(remote)?;
                listener.set_nonblocking(true)?;
                Ok((stream(Source::Tcp(listener)), None))
            }
            ("unix", true) => {
                let (listener, path) = SocketPath::bound(remote, |path| UnixListener::bind(path))?;
                listener.set_nonblocking(true)?;
                Ok((stream(Source::Unix(listener)), Some(path)))
            }
            ("tcp" | "unix", false) => {
                let to = |text: &str| match kind {
                    "unix" => Address::path(text),
                    _ => address(text).map(Address::from),
                };
                let (remote, from) = (to(remote)?, local.map(to).transpose()?);
                let dial = || connect(from.as_ref(), &remote, true);
                let (active, path) = match local.filter(|_| kind == "unix") {
                    Some(local) => {
                        let (active, path) = SocketPath::bound(local, |_| dial())?;
                        (active, Some(path))
                    }
                    None => (dial()?, None),
                };
                options.set(&active)?;
                let active = File::from(active);
                set_nonblocking(&active)?;
                // The file of its own address is there already when a Unix socket connects again.
                let local = from.filter(|_| path.is_none());
                let source = Source::Dial { local, remote, tried: Instant::now() };
                Ok((Self::Stream { source, active: Some(active), rest: Vec::new() }, path))
            }
            ("udp", _) => {
                let any = || if remote.starts_with('[') { "[::]:0" } else { "0.0.0.0:0" };
                let own = if server { remote } else { local.unwrap_or_else(any) };
                let socket = UdpSocket::bind(own)?;
                let mut peer = None;
                if !server {
                    socket.connect(remote)?;
                    peer = Some(socket.peer_addr()?);
                }
                options.set(&socket)?;
                socket.set_nonblocking(true)?;
                Ok((Self::Udp { socket, peer, server }, None))
            }
            ("unix-datagram", _) => {
                let (socket, path) = match if server { Some(remote) } else { local } {
                    Some(path) => {
                        let bound = SocketPath::bound(path, |path| UnixDatagram::bind(path))?;
                        (bound.0, Some(bound.1))
                    }
                    None => (UnixDatagram::unbound()?, None),
                };
                options.set(&socket)?;
                socket.set_nonblocking(true)?;
                let peer = if server { None } else { Some(Path::from_pathname(remote)?) };
                Ok((Self::Unix { socket, peer, server }, path))
            }
            _ => Err(io::Error::new(ErrorKind::InvalidInput, "no such kind of socket")),
        }
    }

    /// Fills a packet; `None` where a datagram was too long for it.
    fn read(&mut self, bytes: &mut [u8], options: &Options) -> io::Result<Option<usize>> {
        let length = match self {
            Self::Stream { source, active, rest } => loop {
                let stream = match active {
                    Some(stream) => stream,
                    // One that left before it was accepted, or is not there: the next one is looked for later.
                    None => match source.next(options) {
                        Ok(stream) => {
                            rest.clear();
                            active.insert(stream)
                        }
                        Err(_) => return Err(ErrorKind::WouldBlock.into()),
                    },
                };
                let most = bytes.len().min(options.snap_len);
                match stream.read(&mut bytes[..most]) {
                    Err(error) if passes(&error) => return Err(error),
                    Ok(0) | Err(_) => *active = None,
                    Ok(length) => return Ok(Some(length)),
                }
            },
            Self::Udp { socket, peer, server } => {
                let (length, from) = socket.recv_from(bytes)?;
                if *server {
                    *peer = Some(from);
                }
                length
            }
            Self::Unix { socket, peer, server } => {
                let (length, from) = socket.recv_from(bytes)?;
                if *server && !from.is_unnamed() {
                    *peer = Some(from);
                }
                length
            }
        };
        // The rest of a longer one is cut off.
        Ok(Some(length).filter(|&length| length < bytes.len()))
    }

    /// Sends a packet; whether there was somebody to send it to.
    fn write(&mut self, bytes: &[u8]) -> io::Result<bool> {
        match self {
            Self::Stream { active, rest, .. } => {
                let Some(stream) = active else { return Ok(false) };
                match push(stream, rest, bytes) {
                    Err(error) if !passes(&error) => {
                        *active = None;
                        rest.clear();
                        Ok(false)
                    }
                    sent => sent.map(|()| true),
                }
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

fn set_nonblocking(stream: &File) -> io::Result<()> {
    // Any socket of the standard library sets the flag of its descriptor.
    let socket = UdpSocket::from(OwnedFd::from(stream.try_clone()?));
    socket.set_nonblocking(true)
}

/// Whether the call is to be repeated, now or later.
fn passes(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
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

impl Socket {
    fn open(name: &str) -> Result<Self, DeviceError> {
        let mut options = Options::default();
        let mut parts: Vec<&str> = name.split(',').map(str::trim).collect();
        while parts.last().is_some_and(|part| options.take(part).is_some()) {
            parts.pop();
        }
        let (kind, role, remote, local) = match parts[..] {
            [kind, role, remote] => (kind, role, remote, None),
            [kind, "client", remote, local] => (kind, "client", remote, Some(local)),
            _ => ("", "", "", None),
        };
        if !matches!(kind, "tcp" | "udp" | "unix" | "unix-datagram")
            || !matches!(role, "server" | "client")
        {
            return Err(DeviceError::Unfit {
                device: name.into(),
                what: "expected KIND,ROLE,REMOTE[,LOCAL of a client][,OPTION=VALUE], as tcp,server,0.0.0.0:80 or udp,client,10.0.0.1:53".into(),
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
        let opened = Ends::open((kind, role == "server"), remote, local, &options);
        let (ends, path) = opened.map_err(failed)?;
        Ok(Self { ends, options, name: name.into(), counts: Counts::default(), _path: path })
    }

    fn failed(&self, call: &'static str, source: io::Error) -> DeviceError {
        DeviceError::System { device: self.name.clone(), call, source, hint: "" }
    }
}

impl Port for Socket {
    fn recv(&mut self, into: &mut Batch) -> Result<usize, DeviceError> {
        use ErrorKind::{ConnectionRefused, HostUnreachable, NetworkUnreachable};
        let Self { ends, options, counts: Counts { no_buffer, too_long, .. }, .. } = self;
        let read = |bytes: &mut [u8]| match ends.read(bytes, options) {
            Ok(None) => {
                *too_long += 1;
                Ok(None)
            }
            // The error of an earlier datagram: the peer, or a router on the path, reported it.
            Err(error) => match error.kind() {
                ConnectionRefused | HostUnreachable | NetworkUnreachable => Ok(None),
                _ => Err(error),
            },
            read => read,
        };
        let received = frame_each_call::receive(into, no_buffer, read);
        received.map_err(|error| self.failed("read", error))
    }

    fn send(&mut self, from: &mut Batch) -> Result<usize, DeviceError> {
        let Self { ends, counts, .. } = self;
        let sent = frame_each_call::send(from, |bytes| {
            match ends.write(bytes) {
                Ok(true) => {}
                Ok(false) => counts.no_client += 1,
                Err(error) if passes(&error) => return Err(error),
                Err(error) if error.raw_os_error() == Some(libc::EMSGSIZE) => counts.too_long += 1,
                // An error of this peer, which may be any that sent something: the next packet is for another, perhaps.
                Err(_) => counts.refused += 1,
            }
            Ok(())
        });
        sent.map_err(|error| self.failed("write", error))
    }

    fn tend(&mut self) -> Result<(), DeviceError> {
        // Where nobody takes what it receives, a stream needs its connection all the same.
        if let Ends::Stream { source, active, rest } = &mut self.ends
            && active.is_none()
            && let Ok(stream) = source.next(&self.options)
        {
            rest.clear();
            *active = Some(stream);
        }
        Ok(())
    }

    fn wait_fds(&self, fds: &mut Vec<RawFd>) {
        match &self.ends {
            Ends::Stream { source, active, .. } => {
                // Another client waits until this one leaves.
                fds.extend(
                    active.as_ref().map_or_else(|| source.fd(), |file| Some(file.as_raw_fd())),
                );
            }
            Ends::Udp { socket, .. } => fds.push(socket.as_raw_fd()),
            Ends::Unix { socket, .. } => fds.push(socket.as_raw_fd()),
        }
    }

    fn mode(&self) -> String {
        format!("socket {}", self.name)
    }

    fn stats(&self, visit: &mut dyn FnMut(&'static str, u64)) {
        let Counts { no_buffer, no_client, too_long, refused } = self.counts;
        visit("no_buffer", no_buffer);
        visit("no_client", no_client);
        visit("too_long", too_long);
        visit("refused", refused);
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::socket_call::number;
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

    /// A new folder for the files of a test.
    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("fpsocket{}{name}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        folder
    }

    #[test]
    fn packets_cross_both_ways() {
        exchange("tcp", &free(), "");
        exchange("tcp", &free(), ",127.0.0.9:0");
        exchange("udp", &free(), "");
        let folder = folder("both");
        let path = |name: &str| folder.join(name).display().to_string();
        exchange("unix", &path("stream"), &format!(",{}", path("own")));
        exchange("unix-datagram", &path("datagram"), &format!(",{}", path("client")));
        let left: Vec<_> = std::fs::read_dir(&folder).unwrap().collect();
        assert!(left.is_empty(), "files go with their sockets: {left:?}");
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn sockets_are_as_their_options_require() {
        let pool = Pool::new(64, 2048);
        let addr = free();
        let name = format!("tcp,server,{addr},snaplen=3,nodelay=false,sndbuf=20000,rcvbuf=30000");
        let mut server = Socket::open(&name).unwrap();
        let mut client = Socket::open(&format!("tcp,client,{addr}")).unwrap();
        client.send(&mut batch(&pool, 0, [&b"hello"[..]])).unwrap();
        let begin = Instant::now();
        let mut packets: Vec<Vec<u8>> = Vec::new();
        while packets.concat() != b"hello" {
            assert!(begin.elapsed() < Duration::from_secs(5), "{packets:?}");
            let mut batch = Batch::new(&pool);
            server.recv(&mut batch).unwrap();
            packets.extend((0..batch.len()).map(|i| batch.bytes(i).to_vec()));
        }
        assert_eq!(packets, [&b"hel"[..], b"lo"]);
        let stream = |socket: &Socket| match &socket.ends {
            Ends::Stream { active: Some(stream), .. } => stream.try_clone().unwrap(),
            _ => panic!("no connection"),
        };
        let (served, dialled) = (stream(&server), stream(&client));
        let option = |stream: &File, option| number(stream, option).unwrap();
        let no_delay = (libc::IPPROTO_TCP, libc::TCP_NODELAY);
        assert_eq!((option(&served, no_delay), option(&dialled, no_delay)), (0, 1));
        // The kernel doubles them.
        let buffers = [libc::SO_SNDBUF, libc::SO_RCVBUF];
        let bytes = buffers.map(|buffer| option(&served, (libc::SOL_SOCKET, buffer)));
        assert_eq!(bytes, [40_000, 60_000]);
        for wrong in ["snaplen=0", "nodelay=x", "color=7"] {
            assert!(Socket::open(&format!("tcp,server,{},{wrong}", free())).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_client_sends_from_its_own_address() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let to = listener.local_addr().unwrap();
        let _client = Socket::open(&format!("tcp,client,{to},127.0.0.9:0")).unwrap();
        assert_eq!(listener.accept().unwrap().1.ip().to_string(), "127.0.0.9");
        assert!(Socket::open(&format!("tcp,server,{},127.0.0.9:0", free())).is_err());
    }

    #[test]
    fn the_file_of_a_socket_that_is_gone_makes_room() {
        let folder = folder("left");
        for (kind, make) in [("unix", left_stream as fn(&str)), ("unix-datagram", left_datagrams)] {
            let path = folder.join(kind).display().to_string();
            make(&path);
            let name = format!("{kind},server,{path}");
            let server = Socket::open(&name).unwrap();
            let error = Socket::open(&name).err().unwrap().to_string();
            assert!(error.contains("another program has it"), "{error}");
            drop(server);
            assert!(!std::fs::exists(&path).unwrap());
            std::fs::write(&path, "a file of somebody").unwrap();
            assert!(Socket::open(&name).is_err() && std::fs::exists(&path).unwrap(), "{kind}");
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }

    fn left_stream(path: &str) {
        drop(UnixListener::bind(path).unwrap());
    }

    fn left_datagrams(path: &str) {
        drop(UnixDatagram::bind(path).unwrap());
    }

    #[test]
    fn a_peer_that_is_gone_is_counted() {
        let folder = folder("gone");
        let (path, own) = (folder.join("s"), folder.join("c"));
        let pool = Pool::new(64, 2048);
        let mut server = Socket::open(&format!("unix-datagram,server,{}", path.display())).unwrap();
        let client = format!("unix-datagram,client,{},{}", path.display(), own.display());
        let mut client = Socket::open(&client).unwrap();
        client.send(&mut batch(&pool, 0, [&b"hello"[..]])).unwrap();
        received(&mut server, &pool);
        drop(client);
        assert_eq!(server.send(&mut batch(&pool, 0, [&[1_u8][..], &[2]])).unwrap(), 2);
        assert_eq!(server.counts.refused, 2);
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_client_connects_again() {
        let pool = Pool::new(64, 2048);
        let addr = free();
        let mut server = Socket::open(&format!("tcp,server,{addr}")).unwrap();
        let mut client = Socket::open(&format!("tcp,client,{addr}")).unwrap();
        client.send(&mut batch(&pool, 0, [&b"one"[..]])).unwrap();
        assert_eq!(received(&mut server, &pool), b"one");
        drop(server);
        let mut other = Batch::new(&pool);
        assert_eq!(client.recv(&mut other).unwrap(), 0, "its stream has ended");
        client.send(&mut batch(&pool, 0, [&b"two"[..]])).unwrap();
        assert_eq!(client.counts.no_client, 1);
        let mut server = Socket::open(&format!("tcp,server,{addr}")).unwrap();
        let start = Instant::now();
        // What comes by the new connection; nobody receives by the client but to keep it.
        let again = loop {
            client.tend().unwrap();
            client.send(&mut batch(&pool, 0, [&b"three"[..]])).unwrap();
            let mut batch = Batch::new(&pool);
            if server.recv(&mut batch).unwrap() > 0 || start.elapsed() > Duration::from_secs(10) {
                break (0..batch.len()).flat_map(|i| batch.bytes(i).to_vec()).collect::<Vec<_>>();
            }
        };
        assert!(again.starts_with(b"three"), "{again:?}");
    }

    #[test]
    fn datagrams_that_are_too_long_are_counted() {
        let pool = Pool::new(64, 2048);
        let addr = free();
        let mut server = Socket::open(&format!("udp,server,{addr}")).unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        sender.send_to(&[7; 3000], &addr).unwrap();
        sender.send_to(&[7; 3], &addr).unwrap();
        assert_eq!(received(&mut server, &pool), [7; 3]);
        assert_eq!((server.counts.too_long, pool.free()), (1, 64));
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
