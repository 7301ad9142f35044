//! A connection to a store, with or without TLS: every call has a deadline, and every answer a largest size.
//!
//! Source: std's sockets and rustls. The protocols above are functions over the bytes that were received so far.
//! Shape:  endpoints in order, each tried with its share of the time; the one that failed is the last to be tried again.
//! Cost:   two system calls a read, for its timeout.
//! Limits: the resolver of host names has timeouts of its own, which std cannot shorten; addresses have none.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};

use super::{Options, StoreError};

/// Bytes of one read.
const READ: usize = 16 << 10;

/// What a parser finds at the beginning of the bytes, with its length; nothing while it is not whole.
pub(super) type Parsed<T> = Result<Option<(T, usize)>, String>;

/// Where a store listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Endpoint {
    /// The URL, as it is configured.
    pub(super) text: String,
    pub(super) host: String,
    port: u16,
    pub(super) tls: bool,
}

impl Endpoint {
    /// Parses `SCHEME://HOST[:PORT]`. `schemes` are the one without TLS and the one with it.
    fn parse(text: &str, schemes: [&str; 2], default_port: u16) -> Result<Self, String> {
        let wrong = || {
            format!("{text:?} is not {0}://HOST:PORT or {1}://HOST:PORT", schemes[0], schemes[1])
        };
        let (scheme, rest) = text.split_once("://").ok_or_else(wrong)?;
        let tls = schemes.iter().position(|known| *known == scheme).ok_or_else(wrong)? == 1;
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let (host, port) = match rest.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((host, "")) => (host, None),
            Some((host, port)) => (host, Some(port.strip_prefix(':').ok_or_else(wrong)?)),
            None => rest.split_once(':').map_or((rest, None), |(host, port)| (host, Some(port))),
        };
        let port = port.map_or(Ok(default_port), |port| port.parse().map_err(|_| wrong()))?;
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:%".contains(&byte);
        if host.is_empty() || !host.bytes().all(allowed) {
            return Err(wrong());
        }
        Ok(Self { text: text.to_owned(), host: host.to_owned(), port, tls })
    }
}

/// The endpoints of a store.
pub(super) struct Endpoints {
    all: Vec<Endpoint>,
    /// The one to try first.
    first: usize,
    tls: Option<Arc<ClientConfig>>,
    timeout: Duration,
}

impl Endpoints {
    /// Parses the endpoints of the options and reads their files.
    pub(super) fn new(
        options: &Options,
        schemes: [&str; 2],
        port: u16,
    ) -> Result<Self, StoreError> {
        let tls = super::tls::config(options)?;
        let parse = |text: &String| {
            let endpoint = Endpoint::parse(text, schemes, port)?;
            match (endpoint.tls, tls.is_some()) {
                (true, false) => Err(format!("{text} demands a CA file")),
                (false, true) => Err(format!(
                    "{text} is without TLS, but there is a CA file: write {}",
                    schemes[1]
                )),
                _ => Ok(endpoint),
            }
        };
        let all = options.endpoints.iter().map(parse).collect::<Result<Vec<_>, _>>();
        let all = all.map_err(StoreError::Configuration)?;
        if all.is_empty() {
            return Err(StoreError::Configuration("a store without endpoints".to_owned()));
        }
        Ok(Self { all, first: 0, tls, timeout: options.timeout })
    }

    /// When a call that begins now has to be over.
    pub(super) fn deadline(&self) -> Instant {
        Instant::now() + self.timeout
    }

    /// Connects to the first endpoint for which `begin` succeeds, with an error of the last one otherwise.
    pub(super) fn connect<T>(
        &mut self,
        until: Instant,
        mut begin: impl FnMut(Wire, &Endpoint, Instant) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let mut left = u32::try_from(self.all.len()).unwrap_or(u32::MAX);
        loop {
            let now = Instant::now();
            let share = now + until.saturating_duration_since(now) / left;
            let endpoint = &self.all[self.first];
            let begun = Wire::connect(endpoint, self.tls.clone(), share)
                .and_then(|wire| begin(wire, endpoint, share));
            left -= 1;
            match begun {
                Err(_) if left > 0 => self.failed(),
                Err(error) => {
                    self.failed();
                    return Err(error);
                }
                Ok(begun) => return Ok(begun),
            }
        }
    }

    /// The endpoint in use does not work: the next one is tried first.
    pub(super) fn failed(&mut self) {
        self.first = (self.first + 1) % self.all.len();
    }
}

/// A connection.
pub(super) struct Wire {
    stream: Stream,
    /// The URL, for messages.
    endpoint: String,
    unread: Vec<u8>,
    tls: Option<Arc<ClientConfig>>,
}

enum Stream {
    Plain(Timed),
    Tls(Box<StreamOwned<ClientConnection, Timed>>),
}

/// A socket whose reads and writes end at a deadline, however little each of them transfers.
struct Timed {
    socket: TcpStream,
    until: Instant,
}

impl Timed {
    /// Repeats `call` while it is interrupted, with the time that is left.
    fn timed(
        &mut self,
        mut call: impl FnMut(&mut TcpStream, Option<Duration>) -> io::Result<usize>,
    ) -> io::Result<usize> {
        loop {
            let left = self.until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(ErrorKind::TimedOut.into());
            }
            match call(&mut self.socket, Some(left)) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    return Err(ErrorKind::TimedOut.into());
                }
                done => return done,
            }
        }
    }
}

impl Read for Timed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.timed(|socket, left| {
            socket.set_read_timeout(left)?;
            socket.read(buffer)
        })
    }
}

impl Write for Timed {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.timed(|socket, left| {
            socket.set_write_timeout(left)?;
            socket.write(buffer)
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Wire {
    fn connect(
        endpoint: &Endpoint,
        tls: Option<Arc<ClientConfig>>,
        until: Instant,
    ) -> Result<Self, StoreError> {
        let unreachable = |error: io::Error| StoreError::Unreachable {
            endpoint: endpoint.text.clone(),
            why: error.to_string(),
        };
        let addresses = (endpoint.host.as_str(), endpoint.port).to_socket_addrs();
        let mut result = Err(io::Error::new(ErrorKind::NotFound, "the host has no address"));
        for address in addresses.map_err(unreachable)? {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            result = TcpStream::connect_timeout(&address, left);
            if result.is_ok() {
                break;
            }
        }
        let socket = result.map_err(unreachable)?;
        socket.set_nodelay(true).map_err(unreachable)?;
        Ok(Self {
            stream: Stream::Plain(Timed { socket, until }),
            endpoint: endpoint.text.clone(),
            unread: Vec::new(),
            tls,
        })
    }

    /// Begins TLS, if the endpoint demands it. What the store sent before is not to be trusted, and forgotten.
    pub(super) fn secure(self, endpoint: &Endpoint, until: Instant) -> Result<Self, StoreError> {
        let Some(config) = self.tls.clone() else { return Ok(self) };
        let Stream::Plain(socket) = self.stream else { return Ok(self) };
        let wrong =
            |error: String| StoreError::Configuration(format!("{}: {error}", self.endpoint));
        let name = ServerName::try_from(endpoint.host.clone());
        let name = name.map_err(|error| wrong(error.to_string()))?;
        let client =
            ClientConnection::new(config, name).map_err(|error| wrong(error.to_string()))?;
        let mut stream = StreamOwned::new(client, socket);
        stream.sock.until = until;
        while stream.conn.is_handshaking() {
            let done = stream.conn.complete_io(&mut stream.sock);
            done.map_err(|error| failure(&self.endpoint, &error))?;
        }
        let stream = Stream::Tls(Box::new(stream));
        Ok(Self { stream, unread: Vec::new(), ..self })
    }

    /// Sends all bytes. After an error the connection is of no use.
    pub(super) fn send(&mut self, bytes: &[u8], until: Instant) -> Result<(), StoreError> {
        let sent = match &mut self.stream {
            Stream::Plain(stream) => {
                stream.until = until;
                stream.write_all(bytes)
            }
            Stream::Tls(stream) => {
                stream.sock.until = until;
                stream.write_all(bytes).and_then(|()| stream.flush())
            }
        };
        sent.map_err(|error| failure(&self.endpoint, &error))
    }

    /// The next thing that `parse` finds in what the store sends, with its length; nothing when it was not whole at the
    /// deadline, and then a later call continues where this one ended. `most` is the largest thing.
    pub(super) fn next<T>(
        &mut self,
        until: Instant,
        most: usize,
        parse: impl Fn(&[u8]) -> Parsed<T>,
    ) -> Result<Option<T>, StoreError> {
        loop {
            let parsed = parse(&self.unread).map_err(|why| self.nonsense(why))?;
            if let Some((found, length)) = parsed {
                self.unread.drain(..length);
                return Ok(Some(found));
            }
            if self.unread.len() > most {
                return Err(self.nonsense(format!("more than {most} bytes without an end")));
            }
            match self.fill(until) {
                Ok(0) => return Err(self.unreachable("it closed the connection")),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::TimedOut => return Ok(None),
                Err(error) => return Err(failure(&self.endpoint, &error)),
            }
        }
    }

    fn fill(&mut self, until: Instant) -> io::Result<usize> {
        let length = self.unread.len();
        self.unread.resize(length + READ, 0);
        let space = &mut self.unread[length..];
        let read = match &mut self.stream {
            Stream::Plain(stream) => {
                stream.until = until;
                stream.read(space)
            }
            Stream::Tls(stream) => {
                stream.sock.until = until;
                stream.read(space)
            }
        };
        self.unread.truncate(length + *read.as_ref().unwrap_or(&0));
        read
    }

    /// The URL of the endpoint.
    #[cfg(feature = "etcd")]
    pub(super) fn name(&self) -> String {
        self.endpoint.clone()
    }

    pub(super) fn unreachable(&self, why: impl ToString) -> StoreError {
        StoreError::Unreachable { endpoint: self.endpoint.clone(), why: why.to_string() }
    }

    pub(super) fn nonsense(&self, why: impl ToString) -> StoreError {
        StoreError::Nonsense { endpoint: self.endpoint.clone(), why: why.to_string() }
    }

    #[cfg(feature = "nats")]
    pub(super) fn denied(&self, why: impl ToString) -> StoreError {
        StoreError::Denied { endpoint: self.endpoint.clone(), why: why.to_string() }
    }

    #[cfg(feature = "nats")]
    pub(super) fn refused(&self, why: impl ToString) -> StoreError {
        StoreError::Refused { endpoint: self.endpoint.clone(), why: why.to_string() }
    }
}

/// What an error of a socket is to the user of a store.
fn failure(endpoint: &str, error: &io::Error) -> StoreError {
    let endpoint = endpoint.to_owned();
    let tls = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    match tls {
        Some(error @ rustls::Error::AlertReceived(_)) => {
            StoreError::Denied { endpoint, why: format!("TLS: {error}") }
        }
        // The other end may be anybody; its certificate is not of our CA.
        Some(error @ rustls::Error::InvalidCertificate(_)) => {
            StoreError::Unreachable { endpoint, why: format!("TLS: {error}") }
        }
        Some(error) => StoreError::Nonsense { endpoint, why: format!("TLS: {error}") },
        None if error.kind() == ErrorKind::TimedOut => {
            StoreError::Unreachable { endpoint, why: "no answer in time".to_owned() }
        }
        None => StoreError::Unreachable { endpoint, why: error.to_string() },
    }
}

/// Where the first line ends and the next one begins; an error when it is longer than `most` bytes.
pub(super) fn line(bytes: &[u8], most: usize) -> Parsed<&str> {
    match bytes.iter().take(most).position(|byte| *byte == b'\n') {
        Some(end) => {
            let line = bytes[..end].strip_suffix(b"\r").unwrap_or(&bytes[..end]);
            let text = std::str::from_utf8(line);
            let text = text.map_err(|_| format!("a line {:?}", shown(line)))?;
            Ok(Some((text, end + 1)))
        }
        None if bytes.len() >= most => Err(format!("a line of more than {most} bytes")),
        None => Ok(None),
    }
}

/// The beginning of what a store sent, for a message.
pub(super) fn shown(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(120)]).into_owned();
    if bytes.len() > 120 { text + "..." } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<(String, u16, bool), String> {
        Endpoint::parse(text, ["http", "https"], 2379)
            .map(|found| (found.host, found.port, found.tls))
    }

    #[test]
    fn endpoints_are_urls() {
        let found = |host: &str, port, tls| Ok((host.to_owned(), port, tls));
        assert_eq!(parse("http://127.0.0.1:1234"), found("127.0.0.1", 1234, false));
        assert_eq!(parse("https://etcd.example/"), found("etcd.example", 2379, true));
        assert_eq!(parse("https://[::1]:5"), found("::1", 5, true));
        assert_eq!(parse("http://[::1]"), found("::1", 2379, false));
        for bad in [
            "",
            "127.0.0.1:1",
            "ftp://a",
            "http://",
            "http://a:b",
            "http://a/b",
            "http://u@a",
            "http://[::1]x",
            "http://a\r\nb",
        ] {
            let message = parse(bad).unwrap_err();
            assert!(message.contains("is not http://HOST:PORT or https://HOST:PORT"), "{message}");
        }
    }

    #[test]
    fn tls_and_the_files_go_together() {
        let options =
            |endpoint: &str| Options { endpoints: vec![endpoint.to_owned()], ..Options::default() };
        let message = |options| {
            Endpoints::new(&options, ["http", "https"], 1).err().map(|error| error.to_string())
        };
        assert_eq!(message(options("http://a")), None);
        assert_eq!(message(options("https://a")).unwrap(), "https://a demands a CA file");
        assert_eq!(message(Options::default()).unwrap(), "a store without endpoints");
    }

    #[test]
    fn a_line_has_a_largest_size() {
        assert_eq!(line(b"ab\r\ncd", 10), Ok(Some(("ab", 4))));
        assert_eq!(line(b"ab", 10), Ok(None));
        assert_eq!(line(b"abcdefghij", 10).unwrap_err(), "a line of more than 10 bytes");
        assert_eq!(line(b"\xff\n", 10).unwrap_err(), "a line \"\u{fffd}\"");
    }
}
