//! The commands' side of Click's control socket: handlers of a graph of a file, read and written.
//!
//! Its protocol is that of [`fingerpost_packet::handler::control_socket`]; any Click that speaks 1.0 or later is understood. Lines
//! and texts of the other side are bounded, and so is how long it may take.

use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use super::secret;

/// Longest time for an answer: `hotconfig` may take as long.
const LONGEST_ANSWER: Duration = Duration::from_secs(40);
/// What a line of a reply may have, in bytes.
const LONGEST_LINE: u64 = 64 << 10;
/// What a handler may give, in bytes: as much as the server gives.
const LONGEST_DATA: usize = 64 << 20;

/// Why a request to a graph failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ControlError {
    /// The token file cannot be used.
    #[error("{0}")]
    Token(String),
    /// The connection cannot be made.
    #[error("{place}: {error}")]
    Unreachable { place: String, error: io::Error },
    /// A privilege is missing, here or at the graph.
    #[error("{place}: {message}")]
    Denied { place: String, message: String },
    /// The connection broke.
    #[error("{place}: the graph closed the connection: {error}")]
    Broken { place: String, error: io::Error },
    /// The graph refuses the request.
    #[error("{place}: {message}")]
    Refused { place: String, message: String },
    /// The other side does not speak the protocol.
    #[error("{place}: {what}")]
    Protocol { place: String, what: String },
}

/// A graph that answers.
pub(crate) struct ControlClient {
    place: String,
    stream: BufReader<UnixStream>,
}

impl ControlClient {
    /// Connects to a control socket, and authenticates with the token of a file where one is named.
    ///
    /// # Errors
    /// When nothing answers there, or the token is refused.
    pub(crate) fn connect(place: &str, token: Option<&Path>) -> Result<Self, ControlError> {
        let stream = connected(place).and_then(|stream| {
            stream.set_read_timeout(Some(LONGEST_ANSWER))?;
            stream.set_write_timeout(Some(LONGEST_ANSWER))?;
            Ok(stream)
        });
        let stream = stream.map_err(|error| {
            let place = place.to_owned();
            match error.kind() {
                ErrorKind::PermissionDenied => {
                    ControlError::Denied { place, message: error.to_string() }
                }
                _ => ControlError::Unreachable { place, error },
            }
        })?;
        let mut client = Self { place: place.to_owned(), stream: BufReader::new(stream) };
        let greeting = client.line()?;
        if !greeting.starts_with("Click::ControlSocket/1.") {
            return Err(client.protocol("no control socket"));
        }
        if let Some(file) = token {
            let token = secret(file).map_err(ControlError::Token)?;
            client.request(format!("AUTH {token}\r\n").as_bytes())?;
        }
        Ok(client)
    }

    /// Reads a handler, with a parameter where it is not empty.
    ///
    /// # Errors
    /// There is none such, it refuses the parameter, or the connection breaks.
    pub(crate) fn read(&mut self, handler: &str, parameter: &str) -> Result<String, ControlError> {
        let space = if parameter.is_empty() { "" } else { " " };
        self.request(format!("READ {handler}{space}{parameter}\r\n").as_bytes())?;
        let words = self.line()?;
        let Some(length) = words.strip_prefix("DATA ") else {
            return Err(self.protocol("a reply without data"));
        };
        let length = length.trim().parse::<usize>().ok().filter(|length| *length <= LONGEST_DATA);
        let Some(length) = length else {
            return Err(self.protocol("a reply of no length, or too long"));
        };
        let mut data = vec![0; length];
        self.stream.read_exact(&mut data).map_err(|error| self.broken(error))?;
        String::from_utf8(data).map_err(|_| self.protocol("a reply that is no text"))
    }

    /// Writes to a handler.
    ///
    /// # Errors
    /// There is none such, it refuses the text, or the connection breaks.
    pub(crate) fn write(&mut self, handler: &str, text: &str) -> Result<(), ControlError> {
        let command = format!("WRITEDATA {handler} {}\r\n{text}", text.len());
        self.request(command.as_bytes())
    }

    /// Sends a command, and takes its reply up to the line that ends it.
    fn request(&mut self, command: &[u8]) -> Result<(), ControlError> {
        self.stream.get_mut().write_all(command).map_err(|error| self.broken(error))?;
        let mut said = Vec::new();
        loop {
            let line = self.line()?;
            let (code, words) = match (line.get(..3), line.get(4..)) {
                (Some(code), Some(words)) => (code, words),
                _ => return Err(self.protocol("no reply")),
            };
            said.push(words.trim_end().to_owned());
            if line.as_bytes()[3] == b'-' {
                continue;
            }
            if code.starts_with('2') {
                return Ok(());
            }
            // The first line of several only names the handler.
            let told = if said.len() > 1 { &said[1..] } else { &said[..] };
            let told = told.join("; ");
            // The answer of a router to a client that may only read.
            let denied = told.starts_with("Permission denied");
            let hint = if denied {
                " (root and the graph's user may write, or --write-token)"
            } else {
                ""
            };
            let (place, message) = (self.place.clone(), format!("{told}{hint}"));
            return Err(match code {
                "530" => ControlError::Denied { place, message },
                _ => ControlError::Refused { place, message },
            });
        }
    }

    fn line(&mut self) -> Result<String, ControlError> {
        let mut line = String::new();
        let read = (&mut self.stream).take(LONGEST_LINE).read_line(&mut line);
        match read {
            Ok(_) if line.ends_with('\n') => Ok(line),
            Ok(_) => Err(self.broken(ErrorKind::UnexpectedEof.into())),
            Err(error) => Err(self.broken(error)),
        }
    }

    fn broken(&self, error: io::Error) -> ControlError {
        ControlError::Broken { place: self.place.clone(), error }
    }

    /// Error for an answer that the protocol does not have.
    pub(crate) fn protocol(&self, what: impl ToString) -> ControlError {
        ControlError::Protocol { place: self.place.clone(), what: what.to_string() }
    }
}

/// A TCP connection is a stream socket as any other.
fn connected(place: &str) -> io::Result<UnixStream> {
    if place.contains('/') {
        return UnixStream::connect(place);
    }
    let here = place.parse::<u16>().map(|port| ("127.0.0.1".to_owned(), port));
    let (host, port) = match (here, place.rsplit_once(':')) {
        (Ok(here), _) => here,
        (_, Some((host, port))) => {
            let wrong = |_| io::Error::new(ErrorKind::InvalidInput, "no port");
            (host.trim_matches(['[', ']']).to_owned(), port.parse().map_err(wrong)?)
        }
        _ => {
            let words = "no place: a port, HOST:PORT, or a path with a `/`";
            return Err(io::Error::new(ErrorKind::InvalidInput, words));
        }
    };
    let mut failed = io::Error::from(ErrorKind::NotFound);
    for addr in (host.as_str(), port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&addr, Duration::from_secs(5)) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                return Ok(UnixStream::from(OwnedFd::from(stream)));
            }
            Err(error) => failed = error,
        }
    }
    Err(failed)
}
