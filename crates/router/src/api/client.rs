//! The commands' side: requests over the socket, their answers as the types of `model.rs`. Those of one command go over one
//! connection, as long as the daemon keeps it.

use std::cell::RefCell;
use std::error::Error as _;
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::runtime::Runtime;

use super::access::Group;
use super::error::{ApiError, ErrorDocument};
use super::socket;

/// Why a request has no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClientError {
    /// The runtime of the client cannot be made.
    #[error("{0}")]
    Runtime(io::Error),
    /// This user may not use the socket.
    #[error("{}: this user may not use it: {} may", path.display(), users)]
    Forbidden { path: PathBuf, users: String },
    /// No daemon listens.
    #[error(
        "no daemon answers at {}: start one with `fingerpost run`, or name its socket with --socket or \
         FINGERPOST_SOCKET", .0.display()
    )]
    NoDaemon(PathBuf),
    /// The connection cannot be made.
    #[error("{}: {error}", path.display())]
    Connect { path: PathBuf, error: io::Error },
    /// The connection broke.
    #[error("{}: the daemon closed the connection before its answer was complete: {error}", path.display())]
    Broken { path: PathBuf, error: hyper::Error },
    /// The answer is no document of this version of the API.
    #[error("{}: the daemon is of another version: {error}", path.display())]
    Version { path: PathBuf, error: serde_json::Error },
    /// The answer is an HTTP status without a document.
    #[error("{}: the daemon answered {status}", path.display())]
    Status { path: PathBuf, status: StatusCode },
    /// The daemon refuses the request.
    #[error("{0}")]
    Refused(ApiError),
}

/// A daemon that answers.
pub(crate) struct Client {
    path: PathBuf,
    runtime: Runtime,
    /// Connection of the last request, and when it was used.
    connection: RefCell<Option<(SendRequest<Full<Bytes>>, Instant)>>,
}

/// Longest silence after which a connection is used again: the daemon ends it after twice that.
const KEPT: Duration = Duration::from_secs(5);

impl Client {
    /// Client of the daemon at `socket`, or of the one of this network namespace, for one request or several.
    ///
    /// # Errors
    /// When the system has no room for it; whether there is a daemon shows at the first request.
    pub(crate) fn new(socket: Option<&Path>) -> Result<Self, ClientError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build();
        let runtime = runtime.map_err(ClientError::Runtime)?;
        Ok(Self { path: socket::path(socket), runtime, connection: RefCell::default() })
    }

    /// Requests a document.
    ///
    /// # Errors
    /// When there is no daemon, or it refuses the request.
    pub(crate) fn get<T: DeserializeOwned>(
        &self,
        path: &str,
        query: &impl Serialize,
    ) -> Result<T, ClientError> {
        self.document(Method::GET, &target(path, query), Bytes::new())
    }

    /// Sends a document, and is answered with one.
    ///
    /// # Errors
    /// When there is no daemon, or it refuses the request.
    pub(crate) fn send<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, ClientError> {
        let body = serde_json::to_vec(body).expect("writing to memory cannot fail");
        self.document(method, path, body.into())
    }

    /// Requests a stream; `each` gets its lines as they arrive, several at a time and always whole.
    ///
    /// # Errors
    /// When there is no daemon, it refuses the request, the stream breaks off, or `each` fails.
    pub(crate) fn lines<E: From<ClientError>>(
        &self,
        path: &str,
        query: &impl Serialize,
        each: &mut dyn FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        self.runtime.block_on(async {
            let response = self.request(Method::GET, &target(path, query), Bytes::new()).await?;
            let mut body = response.into_body();
            let mut rest = Vec::new();
            while let Some(frame) = body.frame().await {
                let frame = frame.map_err(|error| self.broken(error))?;
                let Ok(data) = frame.into_data() else { continue };
                rest.extend_from_slice(&data);
                let whole = rest.iter().rposition(|&b| b == b'\n').map_or(0, |at| at + 1);
                if whole > 0 {
                    each(&rest[..whole])?;
                    rest.drain(..whole);
                }
            }
            Ok(())
        })
    }

    fn document<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<T, ClientError> {
        let answer = self.answer(method, path, body)?;
        let version = |error| ClientError::Version { path: self.path.clone(), error };
        serde_json::from_slice(&answer).map_err(version)
    }

    fn answer(&self, method: Method, path: &str, body: Bytes) -> Result<Bytes, ClientError> {
        self.runtime.block_on(async {
            let response = self.request(method, path, body).await?;
            let body = response.into_body().collect().await.map_err(|error| self.broken(error))?;
            Ok(body.to_bytes())
        })
    }

    /// One request; an answer that is a refusal is a failure.
    async fn request(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<Response<Incoming>, ClientError> {
        let built = || {
            Request::builder()
                .method(method.clone())
                .uri(path)
                .header("host", "localhost")
                .header("content-type", "application/json")
                .body(Full::new(body.clone()))
                .expect("paths are constants, and parameters are encoded")
        };
        let kept = self.connection.take().filter(|(_, used)| used.elapsed() < KEPT);
        let mut sender = match kept {
            Some((sender, _)) => sender,
            None => self.connect().await?,
        };
        let mut answered = self.send_by(&mut sender, built()).await;
        // The daemon has ended the connection, or another one runs now: the request was not sent.
        let unsent = |error: &hyper::Error| error.is_canceled() || error.is_closed();
        // A request that only reads may be sent twice (RFC 9110, section 9.2.2): another client had taken the place.
        // That shows where the answer begins, or already while the request is written.
        let ended = |error: &hyper::Error| {
            let of_system = error.source().is_some_and(|source| source.is::<io::Error>());
            method == Method::GET && (error.is_incomplete_message() || of_system)
        };
        if answered.as_ref().is_err_and(|error| unsent(error) || ended(error)) {
            sender = self.connect().await?;
            answered = self.send_by(&mut sender, built()).await;
        }
        let response = answered.map_err(|error| self.broken(error))?;
        self.connection.replace(Some((sender, Instant::now())));
        if response.status().is_success() {
            return Ok(response);
        }
        let status = response.status();
        let body = response.into_body().collect().await.map_err(|error| self.broken(error))?;
        Err(self.refused(status, &body.to_bytes()))
    }

    async fn connect(&self) -> Result<SendRequest<Full<Bytes>>, ClientError> {
        // Blocking: without, the kernel refuses clients while others wait to be accepted.
        let mut stream = UnixStream::connect(&self.path);
        if stream.as_ref().is_err_and(|error| error.kind() == ErrorKind::PermissionDenied) {
            // Who may only read has a socket of its own.
            stream = UnixStream::connect(socket::for_reading(&self.path)).or(stream);
        }
        let stream = stream.and_then(|stream| {
            stream.set_nonblocking(true)?;
            tokio::net::UnixStream::from_std(stream)
        });
        let stream = stream.map_err(|error| self.unreachable(error))?;
        let connected = http1::handshake(TokioIo::new(stream)).await;
        let (sender, connection) = connected.map_err(|error| self.broken(error))?;
        self.runtime.spawn(connection);
        Ok(sender)
    }

    async fn send_by(
        &self,
        sender: &mut SendRequest<Full<Bytes>>,
        request: Request<Full<Bytes>>,
    ) -> hyper::Result<Response<Incoming>> {
        sender.ready().await?;
        sender.send_request(request).await
    }

    fn refused(&self, status: StatusCode, body: &[u8]) -> ClientError {
        match serde_json::from_slice(body) {
            Ok(ErrorDocument { error }) => ClientError::Refused(error),
            Err(_) => ClientError::Status { path: self.path.clone(), status },
        }
    }

    fn unreachable(&self, error: io::Error) -> ClientError {
        let path = self.path.clone();
        match error.kind() {
            ErrorKind::PermissionDenied => ClientError::Forbidden { users: users(&path), path },
            ErrorKind::NotFound | ErrorKind::ConnectionRefused => ClientError::NoDaemon(path),
            _ => ClientError::Connect { path, error },
        }
    }

    fn broken(&self, error: hyper::Error) -> ClientError {
        ClientError::Broken { path: self.path.clone(), error }
    }
}

/// The users of a control socket and of the one for reading, by the owners of their files.
fn users(path: &Path) -> String {
    let owners = |path: &Path, what: &str| {
        let found = std::fs::metadata(path).ok()?;
        let group = (found.mode() & 0o060 == 0o060).then(|| Group::name_of(found.gid()));
        Some((found.uid(), group.map(|name| format!("members of group {name} {what}"))))
    };
    let reading = owners(&socket::for_reading(path), "read");
    // Beside the one for reading there is no other.
    let of_path = if reading.is_some() { "read and change" } else { "read" };
    let control = owners(path, of_path);
    let uid = control.as_ref().map_or(0, |(uid, _)| *uid);
    let owner = if uid == 0 { "root".to_owned() } else { format!("root and uid {uid}") };
    let groups = [reading, control].into_iter().flatten().filter_map(|(_, group)| group);
    groups.chain([owner]).collect::<Vec<_>>().join(", ")
}

/// Path and query.
fn target(path: &str, query: &impl Serialize) -> String {
    let query = serde_urlencoded::to_string(query).expect("parameters are plain values");
    if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::Shutdown;
    use std::os::unix::net::UnixListener;

    use super::*;

    /// Reads the head of a request.
    fn read_head(stream: &mut UnixStream) {
        let (mut asked, mut byte) = (Vec::new(), [0]);
        while !asked.ends_with(b"\r\n\r\n") {
            stream.read_exact(&mut byte).unwrap();
            asked.extend(byte);
        }
    }

    /// A server that ends two connections before it answers, and answers over the third.
    #[test]
    fn a_request_that_reads_is_sent_twice_and_one_that_changes_is_not() {
        let path = std::env::temp_dir().join(format!("fpclient-again{}.sock", std::process::id()));
        let listener = UnixListener::bind(&path).unwrap();
        let served = std::thread::spawn(move || {
            for answers in [false, false, true] {
                let (mut stream, _) = listener.accept().unwrap();
                read_head(&mut stream);
                if answers {
                    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n7").unwrap();
                }
            }
        });
        let client = Client::new(Some(&path)).unwrap();
        let broken = client.send::<u32>(Method::DELETE, "/v1/number", &()).unwrap_err();
        assert!(matches!(broken, ClientError::Broken { .. }), "{broken}");
        assert_eq!(client.get::<u32>("/v1/number", &()).unwrap(), 7);
        served.join().unwrap();
        std::fs::remove_file(&path).unwrap();
    }

    /// A server that reads one request of each connection: the next one meets a broken pipe, and no end of answers.
    #[test]
    fn a_request_that_reads_is_sent_again_when_it_cannot_be_written() {
        let path = std::env::temp_dir().join(format!("fpclient-pipe{}.sock", std::process::id()));
        let listener = UnixListener::bind(&path).unwrap();
        let (closed, is_closed) = std::sync::mpsc::channel();
        let served = std::thread::spawn(move || {
            let serve = |()| {
                let (mut stream, _) = listener.accept().unwrap();
                read_head(&mut stream);
                stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n7").unwrap();
                stream.shutdown(Shutdown::Read).unwrap();
                closed.send(()).unwrap();
                stream
            };
            // All stay open until the last one is answered.
            let _open = [(); 3].map(serve);
        });
        let client = Client::new(Some(&path)).unwrap();
        for _ in 0..3 {
            assert_eq!(client.get::<u32>("/v1/number", &()).unwrap(), 7);
            is_closed.recv().unwrap();
        }
        served.join().unwrap();
        std::fs::remove_file(&path).unwrap();
    }

    /// A server that answers three requests a connection.
    #[test]
    fn several_questions_go_over_one_connection_while_it_lasts() {
        let path = std::env::temp_dir().join(format!("fpclient{}.sock", std::process::id()));
        let listener = UnixListener::bind(&path).unwrap();
        let served = std::thread::spawn(move || {
            for _ in 0..2 {
                let (mut stream, _) = listener.accept().unwrap();
                for answer in 0..3 {
                    read_head(&mut stream);
                    let last = if answer == 2 { "connection: close\r\n" } else { "" };
                    let head = format!("HTTP/1.1 200 OK\r\ncontent-length: 1\r\n{last}\r\n7");
                    stream.write_all(head.as_bytes()).unwrap();
                }
            }
        });
        let client = Client::new(Some(&path)).unwrap();
        for _ in 0..6 {
            assert_eq!(client.get::<u32>("/v1/number", &()).unwrap(), 7);
        }
        // Two connections were all that it took.
        served.join().unwrap();
        std::fs::remove_file(&path).unwrap();
        let gone = client.get::<u32>("/v1/number", &()).unwrap_err();
        assert!(matches!(gone, ClientError::NoDaemon(_)), "{gone}");
    }
}
