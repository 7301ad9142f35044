//! The commands' side: requests over the socket, their answers as the types of `model.rs`. Those of one command go over one
//! connection, as long as the daemon keeps it.

use std::cell::RefCell;
use std::io::{self, ErrorKind};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::runtime::Runtime;

use super::error::{Code, ErrorDocument};
use super::socket;
use crate::cli::command::{Exit, Failure};

/// Where to find the daemon: the options that every command has which speaks to it.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct At {
    /// Control socket of the daemon; without it the one of this network namespace
    #[arg(
        long,
        value_name = "PATH",
        env = "FINGERPOST_SOCKET",
        hide_env_values = true,
        display_order = 800
    )]
    pub(crate) socket: Option<PathBuf>,
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

impl At {
    /// For one request or several.
    ///
    /// # Errors
    /// When the system has no room for it; whether there is a daemon shows at the first request.
    pub(crate) fn client(&self) -> Result<Client, Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build();
        let runtime = runtime.map_err(|error| Failure::outside(error.kind(), error))?;
        let path = socket::path(self.socket.as_deref());
        Ok(Client { path, runtime, connection: RefCell::default() })
    }
}

impl Client {
    /// Asks for a document.
    ///
    /// # Errors
    /// When there is no daemon, or it says no.
    pub(crate) fn get<T: DeserializeOwned>(
        &self,
        path: &str,
        query: &impl Serialize,
    ) -> Result<T, Failure> {
        self.document(Method::GET, &target(path, query), Bytes::new())
    }

    /// Sends a document, and is answered with one.
    ///
    /// # Errors
    /// When there is no daemon, or it says no.
    pub(crate) fn send<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, Failure> {
        let body = serde_json::to_vec(body).expect("writing to memory cannot fail");
        self.document(method, path, body.into())
    }

    /// Asks for a stream; `each` gets its lines as they come, several at a time and always whole.
    ///
    /// # Errors
    /// When there is no daemon, it says no, the stream breaks off, or `each` fails.
    pub(crate) fn lines(
        &self,
        path: &str,
        query: &impl Serialize,
        each: &mut dyn FnMut(&[u8]) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        self.runtime.block_on(async {
            let response = self.ask(Method::GET, &target(path, query), Bytes::new()).await?;
            let mut body = response.into_body();
            let mut rest = Vec::new();
            while let Some(frame) = body.frame().await {
                let frame = frame.map_err(|error| self.broken(&error))?;
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
    ) -> Result<T, Failure> {
        self.runtime.block_on(async {
            let response = self.ask(method, path, body).await?;
            let body = response.into_body().collect().await.map_err(|error| self.broken(&error))?;
            serde_json::from_slice(&body.to_bytes()).map_err(|error| {
                let path = self.path.display();
                let words = format_args!("{path}: the daemon is of another version: {error}");
                Failure::new(Exit::Failed, words)
            })
        })
    }

    /// One request; an answer that is a refusal is a failure.
    async fn ask(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<Response<Incoming>, Failure> {
        let request = || {
            Request::builder()
                .method(method.clone())
                .uri(path)
                .header("host", "localhost")
                .header("content-type", "application/json")
                .body(Full::new(body.clone()))
                .expect("paths are written by us, and what is asked is encoded")
        };
        let kept = self.connection.take().filter(|(_, used)| used.elapsed() < KEPT);
        let mut sender = match kept {
            Some((sender, _)) => sender,
            None => self.connect().await?,
        };
        let mut answered = self.send_by(&mut sender, request()).await;
        if answered.as_ref().is_err_and(|error| error.is_canceled() || error.is_closed()) {
            // The daemon has ended the connection, or another one runs now: nothing was asked by it.
            sender = self.connect().await?;
            answered = self.send_by(&mut sender, request()).await;
        }
        let response = answered.map_err(|error| self.broken(&error))?;
        self.connection.replace(Some((sender, Instant::now())));
        if response.status().is_success() {
            return Ok(response);
        }
        let status = response.status();
        let body = response.into_body().collect().await.map_err(|error| self.broken(&error))?;
        Err(self.refused(status, &body.to_bytes()))
    }

    async fn connect(&self) -> Result<SendRequest<Full<Bytes>>, Failure> {
        let stream = tokio::net::UnixStream::connect(&self.path).await;
        let stream = stream.map_err(|error| self.unreachable(&error))?;
        let connected = http1::handshake(TokioIo::new(stream)).await;
        let (sender, connection) = connected.map_err(|error| self.broken(&error))?;
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

    fn refused(&self, status: StatusCode, body: &[u8]) -> Failure {
        let Ok(ErrorDocument { error }) = serde_json::from_slice(body) else {
            let words = format_args!("{}: the daemon said {status}", self.path.display());
            return Failure::new(Exit::Failed, words);
        };
        let exit = if error.code == Code::Forbidden { Exit::Permission } else { Exit::Failed };
        match &error.errors[..] {
            // A field's name says nothing to who typed a command.
            [] => Failure::new(exit, error.message),
            all => {
                for detail in all {
                    let place = detail.place.as_ref().map(|place| format!("{place}: "));
                    crate::cli::output::message(format_args!(
                        "{}{}",
                        place.unwrap_or_default(),
                        detail.message
                    ));
                }
                Failure::Reported(exit)
            }
        }
    }

    fn unreachable(&self, error: &io::Error) -> Failure {
        let path = self.path.display();
        match error.kind() {
            ErrorKind::PermissionDenied => Failure::new(
                Exit::Permission,
                format_args!("{path}: only root, and who runs the daemon, may ask it"),
            ),
            ErrorKind::NotFound | ErrorKind::ConnectionRefused => Failure::new(
                Exit::Unreachable,
                format_args!(
                    "no daemon answers at {path}: start one with `fingerpost run`, or name its \
                     socket with --socket or FINGERPOST_SOCKET"
                ),
            ),
            _ => Failure::new(Exit::Unreachable, format_args!("{path}: {error}")),
        }
    }

    fn broken(&self, error: &hyper::Error) -> Failure {
        let path = self.path.display();
        let words =
            format_args!("{path}: the daemon went away in the middle of its answer: {error}");
        Failure::new(Exit::Unreachable, words)
    }
}

/// Path and query.
fn target(path: &str, query: &impl Serialize) -> String {
    let query = serde_urlencoded::to_string(query).expect("parameters are plain values");
    if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixListener;

    use super::*;

    /// A server that answers three requests a connection.
    #[test]
    fn several_questions_go_over_one_connection_while_it_lasts() {
        let path = std::env::temp_dir().join(format!("fpclient{}.sock", std::process::id()));
        let listener = UnixListener::bind(&path).unwrap();
        let served = std::thread::spawn(move || {
            for _ in 0..2 {
                let (mut stream, _) = listener.accept().unwrap();
                for answer in 0..3 {
                    let (mut asked, mut byte) = (Vec::new(), [0]);
                    while !asked.ends_with(b"\r\n\r\n") {
                        stream.read_exact(&mut byte).unwrap();
                        asked.extend(byte);
                    }
                    let last = if answer == 2 { "connection: close\r\n" } else { "" };
                    let head = format!("HTTP/1.1 200 OK\r\ncontent-length: 1\r\n{last}\r\n7");
                    stream.write_all(head.as_bytes()).unwrap();
                }
            }
        });
        let client = At { socket: Some(path.clone()) }.client().unwrap();
        for _ in 0..6 {
            assert_eq!(client.get::<u32>("/v1/number", &()).unwrap(), 7);
        }
        // Two connections were all that it took.
        served.join().unwrap();
        std::fs::remove_file(&path).unwrap();
        let gone = client.get::<u32>("/v1/number", &()).unwrap_err();
        assert!(matches!(gone, Failure::Failed(Exit::Unreachable, _)), "nobody answers");
    }
}
