//! The TCP listener: the paths that read, for browsers and collectors.
//!
//! What arrives here can come from any process of this host, or from a page of another site in somebody's browser. So a request
//! only reads, whatever path it names; its `Host` is an address or a known name, so that a foreign name that was pointed at this
//! address (DNS rebinding) reads nothing; pages of other sites cannot make requests; and with a token file each request needs
//! the token, except for the files of the page. The kernel disconnects a client that stops reading its response, or is gone.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, HOST, HeaderName, HeaderValue, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, Method};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use sha2::{Digest, Sha256};
use tracing::{info, warn};

use super::error::{ApiError, Code};
use super::page;
use super::tls::Tls;
use crate::stamp::Stamps;
use crate::sys;

/// Longest time for which a client may leave what was sent to it unread.
const LONGEST_UNREAD_MS: i32 = 30_000;
/// Shortest token: what is shorter can be found by trying.
const SHORTEST_TOKEN: usize = 16;
/// Headers of every response: it is for pages of this listener alone, which load nothing from elsewhere.
const HEADERS: [(&str, &str); 4] = [
    (
        "content-security-policy",
        "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    ("cross-origin-resource-policy", "same-origin"),
    ("referrer-policy", "no-referrer"),
    ("x-content-type-options", "nosniff"),
];

/// Files of a listener that speaks TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TlsFiles {
    /// Certificate of this host.
    pub(crate) certificate: PathBuf,
    /// Its private key.
    pub(crate) key: PathBuf,
    /// CA of the clients.
    pub(crate) client_ca: Option<PathBuf>,
}

/// A listening address, and which requests are admitted there.
#[derive(Debug)]
pub(crate) struct TcpServed {
    /// The socket, which must not block.
    pub(super) listener: TcpListener,
    pub(super) admission: Arc<Admission>,
    pub(super) tls: Option<Arc<Tls>>,
}

impl TcpServed {
    /// Listens at the address, which the host may get later, by TLS if there are files for it. Requests name it,
    /// `localhost` or one of `names`, and have the token of the file, if there is one.
    ///
    /// # Errors
    /// When something else listens there, the address is none of a host, or a file is not what it must be.
    pub(crate) fn new(
        address: SocketAddr,
        names: &[String],
        token_file: Option<&Path>,
        tls: Option<&TlsFiles>,
    ) -> io::Result<Self> {
        let listener = sys::listen(address)?;
        listener.set_nonblocking(true)?;
        // Connections inherit both.
        sys::keep_alive(&listener)?;
        sys::disconnect_idle_readers(&listener, LONGEST_UNREAD_MS)?;
        let names = names.iter().map(|name| name.to_ascii_lowercase()).collect();
        let token = token_file.map(Token::new).transpose()?;
        let tls = tls.map(|files| Tls::new(files).map(Arc::new)).transpose()?;
        let admission = Admission { is_loopback: address.ip().is_loopback(), names, token };
        Ok(Self { listener, admission: Arc::new(admission), tls })
    }

    /// Its URL, with the port that it has.
    pub(crate) fn url(&self) -> Option<String> {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        self.listener.local_addr().ok().map(|address| format!("{scheme}://{address}"))
    }
}

/// The token that requests need, read again once its file has changed.
#[derive(Debug)]
struct Token {
    file: PathBuf,
    state: Mutex<TokenState>,
}

#[derive(Debug)]
struct TokenState {
    /// Digest of the token: comparing digests takes no time that depends on the token.
    digest: [u8; 32],
    /// State of the file that it is of.
    seen: Stamps,
}

impl Token {
    /// The token in a file.
    ///
    /// # Errors
    /// When the file cannot be read, or has something else in it.
    fn new(file: &Path) -> io::Result<Self> {
        let seen = Stamps::of([file]);
        let state = Mutex::new(TokenState { digest: token(file)?, seen });
        warn_if_open(file);
        Ok(Self { file: file.to_owned(), state })
    }

    /// Whether this is the token.
    fn is(&self, given: &str) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let file = self.file.as_path();
        if state.seen.have_changed([file]) {
            match token(file) {
                Ok(digest) => {
                    state.digest = digest;
                    info!(target: "control", "read the token file {} again", file.display());
                    warn_if_open(file);
                }
                Err(error) => {
                    warn!(target: "control", "[listen]: {error}: the former token stays in use");
                }
            }
        }
        <[u8; 32]>::from(Sha256::digest(given)) == state.digest
    }
}

/// Warns of a file with a secret to which others than its owner have access.
fn warn_if_open(file: &Path) {
    let mode = file.metadata().map_or(0, |data| data.permissions().mode());
    if mode & 0o077 != 0 {
        let file = file.display();
        warn!(
            target: "control",
            "[listen] token_file {file}: others than its owner have access (mode {:03o}): it should belong to the daemon's user and have mode 600",
            mode & 0o777
        );
    }
}

/// Digest of the token in a file.
fn token(path: &Path) -> io::Result<[u8; 32]> {
    let failed = |error: io::Error| {
        io::Error::new(error.kind(), format!("token file {}: {error}", path.display()))
    };
    let text = fingerpost_lpm::input::read_text(path).map_err(failed)?;
    let token = text.trim_end();
    let is_token = token.len() >= SHORTEST_TOKEN && token.bytes().all(|b| b.is_ascii_graphic());
    if !is_token {
        let what = format!("a line of at least {SHORTEST_TOKEN} letters and digits is needed");
        return Err(failed(io::Error::new(io::ErrorKind::InvalidData, what)));
    }
    Ok(Sha256::digest(token).into())
}

/// Checks that a request over TCP must pass.
#[derive(Debug)]
pub(super) struct Admission {
    is_loopback: bool,
    names: Vec<String>,
    token: Option<Token>,
}

impl Admission {
    fn check(&self, request: &Request) -> Result<(), ApiError> {
        let (method, headers) = (request.method(), request.headers());
        if method != Method::GET && method != Method::HEAD {
            let words = "over TCP requests only read: GET or HEAD";
            return Err(ApiError::new(Code::MethodNotAllowed, words));
        }
        self.check_host(headers)?;
        check_site(request.uri().path(), headers)?;
        match page::is_file(request.uri().path()) {
            true => Ok(()),
            false => self.check_token(headers),
        }
    }

    fn check_host(&self, headers: &HeaderMap) -> Result<(), ApiError> {
        let host = headers.get(HOST).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let name = name(host).to_ascii_lowercase();
        let known = match name.parse::<IpAddr>() {
            Ok(addr) => addr.is_loopback() || !self.is_loopback,
            Err(_) => name == "localhost" || self.names.contains(&name),
        };
        if known {
            return Ok(());
        }
        let words = format!("`{host}` is no name of this listener: add it to `[listen] names`");
        Err(ApiError::at(Code::Forbidden, "host", words))
    }

    fn check_token(&self, headers: &HeaderMap) -> Result<(), ApiError> {
        let Some(token) = &self.token else { return Ok(()) };
        let given = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        let given = given.and_then(|text| text.strip_prefix("Bearer "));
        if given.is_some_and(|given| token.is(given)) {
            return Ok(());
        }
        let words = "the token of `[listen] token_file` is needed: Authorization: Bearer TOKEN";
        Err(ApiError::at(Code::Unauthorized, "authorization", words))
    }
}

/// Refuses what a page of another site requests. A browser names the origin of a request (Fetch Metadata); to follow a link to the
/// page of this listener is fine.
fn check_site(path: &str, headers: &HeaderMap) -> Result<(), ApiError> {
    let is = |name, value| headers.get(name).is_some_and(|given: &HeaderValue| given == value);
    let is_foreign = is("sec-fetch-site", "cross-site") || is("sec-fetch-site", "same-site");
    // Any other path is work for the router, which a foreign page could have a browser request again and again.
    if is_foreign && !(path == "/" && is("sec-fetch-mode", "navigate")) {
        return Err(ApiError::new(Code::Forbidden, "pages of other sites may not read this"));
    }
    Ok(())
}

/// Name or address in a `Host` header, without its port.
fn name(host: &str) -> &str {
    match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    }
}

/// Serves what is admitted.
pub(super) async fn admit(
    State(admission): State<Arc<Admission>>,
    request: Request,
    next: Next,
) -> Response {
    let mut response = match admission.check(&request) {
        Ok(()) => next.run(request).await,
        Err(error) => {
            let needs_token = error.code == Code::Unauthorized;
            let mut response = error.into_response();
            if needs_token {
                response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            response
        }
    };
    for (name, value) in HEADERS {
        let (name, value) = (HeaderName::from_static(name), HeaderValue::from_static(value));
        response.headers_mut().insert(name, value);
    }
    response
}

#[cfg(test)]
mod tests {
    use axum::body::Body;

    use super::*;
    use crate::log::tests::captured;

    fn request(method: &str, headers: &[(&str, &str)]) -> Request {
        request_of("/v1/status", method, headers)
    }

    fn request_of(path: &str, method: &str, headers: &[(&str, &str)]) -> Request {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(Body::empty()).unwrap()
    }

    #[test]
    fn requests_name_this_host_and_only_read() {
        let admission = |is_loopback, token: Option<&str>| Admission {
            is_loopback,
            names: vec!["r1.example".to_owned()],
            token: token.map(|token| {
                let digest = Sha256::digest(token).into();
                let state = Mutex::new(TokenState { digest, seen: Stamps::of([]) });
                Token { file: PathBuf::new(), state }
            }),
        };
        let refused = |admission: &Admission, method: &str, headers: &[(&str, &str)]| {
            admission.check(&request(method, headers)).err().map(|error| error.code)
        };
        let local = admission(true, None);
        for (host, code) in [
            ("127.0.0.1:9477", None),
            ("[::1]:9477", None),
            ("LOCALHOST", None),
            ("r1.Example:9477", None),
            ("evil.example:9477", Some(Code::Forbidden)),
            ("192.0.2.1", Some(Code::Forbidden)),
            ("localhost.evil.example", Some(Code::Forbidden)),
            ("", Some(Code::Forbidden)),
        ] {
            assert_eq!(refused(&local, "GET", &[("host", host)]), code, "{host}");
        }
        assert_eq!(refused(&local, "GET", &[]), Some(Code::Forbidden));
        assert_eq!(refused(&admission(false, None), "GET", &[("host", "192.0.2.1")]), None);
        assert_eq!(refused(&local, "HEAD", &[("host", "localhost")]), None);
        for method in ["POST", "PUT", "DELETE", "OPTIONS", "TRACE"] {
            let code = refused(&local, method, &[("host", "localhost")]);
            assert_eq!(code, Some(Code::MethodNotAllowed), "{method}");
        }
        for (path, site, mode, code) in [
            ("/v1/status", "cross-site", "no-cors", Some(Code::Forbidden)),
            ("/v1/status", "same-site", "cors", Some(Code::Forbidden)),
            ("/v1/graph?cycles=60", "cross-site", "navigate", Some(Code::Forbidden)),
            ("/metrics", "same-site", "navigate", Some(Code::Forbidden)),
            ("/", "cross-site", "navigate", None),
            ("/", "cross-site", "no-cors", Some(Code::Forbidden)),
            ("/v1/status", "same-origin", "cors", None),
            ("/v1/status", "none", "navigate", None),
        ] {
            let headers =
                [("host", "localhost"), ("sec-fetch-site", site), ("sec-fetch-mode", mode)];
            let code_of = |error: ApiError| error.code;
            let refused = local.check(&request_of(path, "GET", &headers)).err().map(code_of);
            assert_eq!(refused, code, "{path} {site} {mode}");
        }
        let with_token = admission(true, Some("0123456789abcdef"));
        for (given, code) in [
            ("Bearer 0123456789abcdef", None),
            ("Bearer 0123456789abcdeF", Some(Code::Unauthorized)),
            ("Basic 0123456789abcdef", Some(Code::Unauthorized)),
            ("", Some(Code::Unauthorized)),
        ] {
            let headers = [("host", "localhost"), ("authorization", given)];
            assert_eq!(refused(&with_token, "GET", &headers), code, "{given}");
        }
    }

    #[test]
    fn a_token_is_a_line_that_nobody_guesses() {
        let path = std::env::temp_dir().join(format!("fp-token-{}", std::process::id()));
        let write = |text: &str| std::fs::write(&path, text).unwrap();
        write("0123456789abcdef\n");
        assert_eq!(token(&path).unwrap(), <[u8; 32]>::from(Sha256::digest("0123456789abcdef")));
        for text in ["", "short\n", "0123456789 abcdef", "0123456789abcdef\nmore\n"] {
            write(text);
            assert!(token(&path).unwrap_err().to_string().contains("at least 16"), "{text:?}");
        }
        std::fs::remove_file(&path).unwrap();
        assert_eq!(token(&path).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_token_that_changes_is_read_again() {
        let path = std::env::temp_dir().join(format!("fp-token-again-{}", std::process::id()));
        // A new file each time: its inode differs, however coarse the clock of the file system is.
        let write = |text: &str, mode| {
            let other = path.with_extension("new");
            std::fs::write(&other, text).unwrap();
            std::fs::set_permissions(&other, PermissionsExt::from_mode(mode)).unwrap();
            std::fs::rename(&other, &path).unwrap();
        };
        write("0123456789abcdef\n", 0o600);
        let (made, lines) = captured(|| Token::new(&path));
        assert!(lines.is_empty(), "{lines:?}");
        let made = made.unwrap();
        assert!(made.is("0123456789abcdef"));
        let expire = || made.state.lock().unwrap().seen.expire();
        write("fedcba9876543210\n", 0o640);
        expire();
        let (_, lines) =
            captured(|| assert!(made.is("fedcba9876543210") && !made.is("0123456789abcdef")));
        assert!(lines.len() == 2 && lines[0].contains("again"), "{lines:?}");
        assert!(lines[1].contains("(mode 640)"), "{lines:?}");
        write("short\n", 0o600);
        expire();
        let (_, lines) = captured(|| assert!(made.is("fedcba9876543210")));
        assert!(
            lines.len() == 1 && lines[0].contains("the former token stays in use"),
            "{lines:?}"
        );
        std::fs::remove_file(&path).unwrap();
    }
}
