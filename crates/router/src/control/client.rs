//! The commands' side of Click's control socket: handlers of a graph of a file, read and written.
//!
//! Its protocol is that of [`fingerpost_packet::control_socket`]; any Click that speaks 1.0 or later is understood. Lines
//! and texts of the other side are bounded, and so is how long it may take.

use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use super::secret;
use crate::cli::command::{Exit, Failure};

/// For an answer: `hotconfig` may take as long.
const LONGEST_ANSWER: Duration = Duration::from_secs(40);
/// What a line of a reply may have, in bytes.
const LONGEST_LINE: u64 = 64 << 10;
/// What a handler may give, in bytes: as much as the server gives.
const LONGEST_DATA: usize = 64 << 20;

/// Where a graph of a file is asked, instead of the daemon: the option that commands have which can ask both.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct AtGraph {
    /// Ask a graph of a file instead, by its ControlSocket: PORT, HOST:PORT, or the path of a Unix socket
    #[arg(long, value_name = "PLACE", display_order = 801)]
    pub(crate) control: Option<String>,
    /// Give that graph the token of this file, so that it may be written to: see --write-token of `run`
    #[arg(long, value_name = "FILE", display_order = 802, requires = "control")]
    pub(crate) write_token: Option<PathBuf>,
}

/// A graph that answers.
pub(crate) struct ControlClient {
    place: String,
    stream: BufReader<UnixStream>,
}

impl AtGraph {
    /// The graph, where one is named.
    ///
    /// # Errors
    /// There is none.
    pub(crate) fn client(&self) -> Result<Option<ControlClient>, Failure> {
        let Some(place) = &self.control else { return Ok(None) };
        let mut client = ControlClient::connect(place)?;
        if let Some(file) = &self.write_token {
            let token = secret(file).map_err(|words| Failure::new(Exit::Failed, words))?;
            client.ask(format!("AUTH {token}\r\n").as_bytes())?;
        }
        Ok(Some(client))
    }
}

impl ControlClient {
    fn connect(place: &str) -> Result<Self, Failure> {
        let stream = connected(place).and_then(|stream| {
            stream.set_read_timeout(Some(LONGEST_ANSWER))?;
            stream.set_write_timeout(Some(LONGEST_ANSWER))?;
            Ok(stream)
        });
        let stream = stream.map_err(|error| match error.kind() {
            ErrorKind::PermissionDenied => {
                Failure::new(Exit::Permission, format_args!("{place}: {error}"))
            }
            _ => Failure::new(Exit::Unreachable, format_args!("{place}: {error}")),
        })?;
        let mut client = Self { place: place.to_owned(), stream: BufReader::new(stream) };
        let greeting = client.line()?;
        if !greeting.starts_with("Click::ControlSocket/1.") {
            return Err(client.strange("no control socket"));
        }
        Ok(client)
    }

    /// Reads a handler, with a parameter where it is not empty.
    ///
    /// # Errors
    /// There is none such, it refuses the parameter, or the connection breaks.
    pub(crate) fn read(&mut self, handler: &str, parameter: &str) -> Result<String, Failure> {
        let space = if parameter.is_empty() { "" } else { " " };
        self.ask(format!("READ {handler}{space}{parameter}\r\n").as_bytes())?;
        let words = self.line()?;
        let Some(length) = words.strip_prefix("DATA ") else {
            return Err(self.strange("a reply without data"));
        };
        let length = length.trim().parse::<usize>().ok().filter(|length| *length <= LONGEST_DATA);
        let Some(length) = length else {
            return Err(self.strange("a reply of no length, or too long"));
        };
        let mut data = vec![0; length];
        self.stream.read_exact(&mut data).map_err(|error| self.broken(&error))?;
        String::from_utf8(data).map_err(|_| self.strange("a reply that is no text"))
    }

    /// Writes to a handler.
    ///
    /// # Errors
    /// There is none such, it refuses the text, or the connection breaks.
    pub(crate) fn write(&mut self, handler: &str, text: &str) -> Result<(), Failure> {
        let command = format!("WRITEDATA {handler} {}\r\n{text}", text.len());
        self.ask(command.as_bytes())
    }

    /// Sends a command, and takes its reply up to the line that ends it.
    fn ask(&mut self, command: &[u8]) -> Result<(), Failure> {
        self.stream.get_mut().write_all(command).map_err(|error| self.broken(&error))?;
        let mut said = Vec::new();
        loop {
            let line = self.line()?;
            let (code, words) = match (line.get(..3), line.get(4..)) {
                (Some(code), Some(words)) => (code, words),
                _ => return Err(self.strange("no reply")),
            };
            said.push(words.trim_end().to_owned());
            if line.as_bytes()[3] == b'-' {
                continue;
            }
            if code.starts_with('2') {
                return Ok(());
            }
            // The first line of several says only which handler it was.
            let told = if said.len() > 1 { &said[1..] } else { &said[..] };
            let told = told.join("; ");
            let exit = if code == "530" { Exit::Permission } else { Exit::Failed };
            // What a router says to whoever may only read.
            let denied = told.starts_with("Permission denied");
            let hint = if denied {
                " (root and the graph's user may write, or --write-token)"
            } else {
                ""
            };
            return Err(Failure::new(exit, format_args!("{}: {told}{hint}", self.place)));
        }
    }

    fn line(&mut self) -> Result<String, Failure> {
        let mut line = String::new();
        let read = (&mut self.stream).take(LONGEST_LINE).read_line(&mut line);
        match read {
            Ok(_) if line.ends_with('\n') => Ok(line),
            Ok(_) => Err(self.broken(&ErrorKind::UnexpectedEof.into())),
            Err(error) => Err(self.broken(&error)),
        }
    }

    fn broken(&self, error: &io::Error) -> Failure {
        let words = format_args!("{}: the graph went away: {error}", self.place);
        Failure::new(Exit::Unreachable, words)
    }

    /// What no control socket says.
    pub(crate) fn strange(&self, what: &str) -> Failure {
        Failure::new(Exit::Failed, format_args!("{}: {what}", self.place))
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
