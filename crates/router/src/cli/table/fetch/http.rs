//! A file by HTTP/1.1, from a byte on.
//!
//! Source: RFC 9110, RFC 9112. One request a connection; redirects are followed. `https` takes feature `tls`: rustls, with the
//! authorities of the system (`SSL_CERT_FILE` names others).
//!
//! Limits: no proxies, no passwords.

use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::str::FromStr;
use std::time::Duration;

const MOST_REDIRECTS: usize = 5;
const MOST_HEAD_BYTES: u64 = 64 << 10;
/// Longest time to connect, and longest silence.
const PATIENCE: Duration = Duration::from_secs(30);

/// Address of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Url {
    tls: bool,
    host: String,
    port: u16,
    path: String,
}

impl FromStr for Url {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (tls, rest) = match (text.strip_prefix("http://"), text.strip_prefix("https://")) {
            (Some(rest), _) => (false, rest),
            (_, Some(rest)) => (true, rest),
            _ => return Err("a URL begins with http:// or https://"),
        };
        let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        let path = path.split('#').next().unwrap_or_default();
        if authority.contains('@') || text.contains(|c: char| c.is_control() || c == ' ') {
            return Err("a URL with a user, a blank or a control character");
        }
        let behind = authority.rfind(']').unwrap_or(0);
        let (host, port) = match authority[behind..].split_once(':') {
            Some((_, port)) => {
                let port_at = authority.len() - port.len();
                (&authority[..port_at - 1], port.parse().map_err(|_| "a URL with an odd port")?)
            }
            None => (authority, if tls { 443 } else { 80 }),
        };
        let slash = if path.starts_with('/') { "" } else { "/" };
        match host {
            "" => Err("a URL without a host"),
            host => Ok(Self { tls, host: host.into(), port, path: format!("{slash}{path}") }),
        }
    }
}

impl std::fmt::Display for Url {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { tls, host, port, path } = self;
        let (scheme, usual) = if *tls { ("https", 443) } else { ("http", 80) };
        match *port == usual {
            true => write!(f, "{scheme}://{host}{path}"),
            false => write!(f, "{scheme}://{host}:{port}{path}"),
        }
    }
}

impl Url {
    /// Last part of the path: the name of the file.
    pub(super) fn file_name(&self) -> &str {
        let path = self.path.split('?').next().unwrap_or_default();
        path.rsplit('/').next().unwrap_or_default()
    }

    /// Where a redirect from here leads.
    fn redirect(&self, to: &str) -> io::Result<Self> {
        match to.strip_prefix('/') {
            Some(_) => Ok(Self { path: to.to_owned(), ..self.clone() }),
            None => {
                to.parse().map_err(|what| io::Error::other(format!("redirect to {to}: {what}")))
            }
        }
    }

    fn connect(&self) -> io::Result<Box<dyn Connection>> {
        let host = self.host.trim_matches(['[', ']']);
        let mut error = io::Error::new(ErrorKind::NotFound, "no address");
        for addr in (host, self.port).to_socket_addrs()? {
            match TcpStream::connect_timeout(&addr, PATIENCE) {
                Ok(stream) => {
                    stream.set_read_timeout(Some(PATIENCE))?;
                    stream.set_write_timeout(Some(PATIENCE))?;
                    return if self.tls { secured(host, stream) } else { Ok(Box::new(stream)) };
                }
                Err(failed) => error = failed,
            }
        }
        Err(error)
    }
}

trait Connection: Read + Write {}

impl<T: Read + Write> Connection for T {}

#[cfg(feature = "tls")]
fn secured(host: &str, stream: TcpStream) -> io::Result<Box<dyn Connection>> {
    use rustls::pki_types::{CertificateDer, ServerName, pem::PemObject};
    use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

    let file = std::env::var_os("SSL_CERT_FILE");
    let file = file.unwrap_or_else(|| "/etc/ssl/certs/ca-certificates.crt".into());
    let unread = |error| {
        let file = file.display();
        io::Error::other(format!("{file}: {error} (SSL_CERT_FILE names another file)"))
    };
    let mut roots = RootCertStore::empty();
    let found = CertificateDer::pem_file_iter(&file).map_err(unread)?;
    roots.add_parsable_certificates(found.flatten());
    let config =
        ClientConfig::builder_with_provider(rustls::crypto::ring::default_provider().into())
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?
            .with_root_certificates(roots)
            .with_no_client_auth();
    let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
    let session = ClientConnection::new(config.into(), name).map_err(io::Error::other)?;
    Ok(Box::new(StreamOwned::new(session, stream)))
}

#[cfg(not(feature = "tls"))]
fn secured(_: &str, _: TcpStream) -> io::Result<Box<dyn Connection>> {
    let what = "https takes a build with feature `tls`; an http mirror does not (--base-url)";
    Err(io::Error::new(ErrorKind::Unsupported, what))
}

/// A reply, whose body is still to be read.
pub(super) struct Reply {
    /// Byte of the file that the body begins with.
    pub(super) start: u64,
    /// Bytes of the whole file, where the server states it.
    pub(super) len: Option<u64>,
    /// The strong validator of the file (RFC 9110, 8.8.3), where the server sends one. A time of modification is none: a
    /// file may change twice in a second.
    pub(super) validator: Option<String>,
    pub(super) body: Body,
}

/// What of a file is there: so many bytes, of the file with this validator and length.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Known {
    pub(super) have: u64,
    pub(super) validator: Option<String>,
    pub(super) len: Option<u64>,
}

impl Known {
    /// Whether a reply may be of this file, as far as both are known. A server may ignore the condition of the request.
    fn may_be(&self, validator: Option<&str>, len: Option<u64>) -> bool {
        let of_other =
            self.validator.as_deref().zip(validator).is_some_and(|(known, now)| known != now);
        let has_other_len = self.len.zip(len).is_some_and(|(known, now)| known != now);
        !of_other && !has_other_len
    }
}

/// Requests what of a file is not there, or all of it if it is another file now.
///
/// # Errors
/// When there is no such file ([`ErrorKind::NotFound`]), or the server cannot be reached or refuses.
pub(super) fn get(url: &Url, known: &Known) -> io::Result<Reply> {
    let (mut url, from) = (url.clone(), known.have);
    for _ in 0..=MOST_REDIRECTS {
        let Head { status, words, fields, input } = request(&url, known)?;
        let field = |name: &str| {
            let found = fields.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
            found.map(|(_, value)| value.as_str())
        };
        let number = |text: Option<&str>| text.and_then(|text| text.parse::<u64>().ok());
        // `bytes FIRST-LAST/ALL`, or `bytes */ALL`.
        let range = field("content-range").and_then(|range| range.strip_prefix("bytes "));
        let (first, all) = range.and_then(|range| range.split_once('/')).unzip();
        let first = number(first.and_then(|range| range.split_once('-')).map(|(first, _)| first));
        let validator = field("etag").filter(|tag| tag.starts_with('"')).map(str::to_owned);
        let (start, len) = match status {
            200 => (0, number(field("content-length"))),
            206 | 416 if from > 0 && !known.may_be(validator.as_deref(), number(all)) => {
                return get(&url, &Known::default());
            }
            206 if first == Some(from) => (from, number(all).or(known.len)),
            206 => return Err(io::Error::other("the server sent another range than requested")),
            416 if number(all) == Some(from) => {
                let body = Body { input, left: Left::Bytes(0) };
                return Ok(Reply { start: from, len: Some(from), validator: None, body });
            }
            // What is here is longer than the file there.
            416 if from > 0 => return get(&url, &Known::default()),
            301 | 302 | 303 | 307 | 308 => {
                url = url.redirect(field("location").unwrap_or_default())?;
                continue;
            }
            404 => return Err(io::Error::new(ErrorKind::NotFound, words)),
            _ => return Err(io::Error::other(words)),
        };
        let chunked =
            field("transfer-encoding").is_some_and(|how| how.eq_ignore_ascii_case("chunked"));
        let left = match number(field("content-length")) {
            _ if chunked => Left::Chunk { bytes: 0, is_first: true },
            Some(bytes) => Left::Bytes(bytes),
            None => Left::All,
        };
        return Ok(Reply { start, len, validator, body: Body { input, left } });
    }
    Err(io::Error::other("too many redirects"))
}

type Input = BufReader<Box<dyn Connection>>;

/// Status and fields of a reply.
struct Head {
    status: u16,
    words: String,
    fields: Vec<(String, String)>,
    input: Input,
}

fn request(url: &Url, known: &Known) -> io::Result<Head> {
    let mut stream = url.connect()?;
    let from = known.have;
    let same = known.validator.as_ref().map_or(String::new(), |of| format!("If-Range: {of}\r\n"));
    let range = if from > 0 { format!("Range: bytes={from}-\r\n{same}") } else { String::new() };
    let Url { host, port, path, .. } = url;
    let version = env!("CARGO_PKG_VERSION");
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\nUser-Agent: fingerpost/{version}\r\nAccept-Encoding: identity\r\n\
         Connection: close\r\n{range}\r\n"
    );
    stream.write_all(request.as_bytes())?;
    let mut input = BufReader::new(stream);
    let mut head = input.by_ref().take(MOST_HEAD_BYTES);
    let mut line = || {
        let mut line = String::new();
        head.read_line(&mut line)?;
        let ended = line.ends_with('\n').then(|| line.trim_end().to_owned());
        ended.ok_or_else(|| io::Error::other("the server sent no reply of HTTP"))
    };
    let words = line()?;
    let status = words.strip_prefix("HTTP/1.").and_then(|rest| rest.get(2..5)?.parse().ok());
    let status = status.ok_or_else(|| io::Error::other("the server sent no reply of HTTP"))?;
    let mut fields = Vec::new();
    loop {
        let line = line()?;
        let Some((name, value)) = line.split_once(':') else { break };
        fields.push((name.to_owned(), value.trim().to_owned()));
    }
    let words = words.split_once(' ').map_or(String::new(), |(_, words)| words.to_owned());
    Ok(Head { status, words, fields, input })
}

/// Body of a reply; one that ends early is an error.
pub(super) struct Body {
    input: Input,
    left: Left,
}

/// What is left of a body.
enum Left {
    Bytes(u64),
    /// Everything up to the end of the connection.
    All,
    /// So many bytes of a chunk, and further chunks.
    Chunk {
        bytes: u64,
        is_first: bool,
    },
}

impl Body {
    /// Length of the next chunk, behind the line feed of the one before.
    fn chunk(&mut self, is_first: bool) -> io::Result<u64> {
        let mut line = String::new();
        for _ in 0..=usize::from(!is_first) {
            line.clear();
            self.input.by_ref().take(MOST_HEAD_BYTES).read_line(&mut line)?;
        }
        let digits = line.trim_end().split(';').next().unwrap_or_default();
        let wrong = || io::Error::new(ErrorKind::UnexpectedEof, "the reply ends inside its chunks");
        u64::from_str_radix(digits, 16).map_err(|_| wrong())
    }
}

impl Read for Body {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if let Left::Chunk { bytes: 0, is_first } = self.left {
            self.left = match self.chunk(is_first)? {
                0 => Left::Bytes(0),
                bytes => Left::Chunk { bytes, is_first: false },
            };
        }
        let (Left::Bytes(bytes) | Left::Chunk { bytes, .. }) = &mut self.left else {
            return match self.input.read(into) {
                // Many servers end a TLS connection without its mark.
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(0),
                read => read,
            };
        };
        let most = usize::try_from(*bytes).unwrap_or(usize::MAX).min(into.len());
        if most == 0 {
            return Ok(0);
        }
        match self.input.read(&mut into[..most])? {
            0 => Err(io::Error::new(ErrorKind::UnexpectedEof, "the connection was closed")),
            len => {
                *bytes -= len as u64;
                Ok(len)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_has_host_port_and_path() {
        let url = |text: &str| {
            text.parse::<Url>()
                .map(|url| format!("{} {} {} {}", url.tls, url.host, url.port, url.path))
        };
        assert_eq!(url("http://a.example/b/c.gz"), Ok("false a.example 80 /b/c.gz".into()));
        assert_eq!(
            url("https://[2001:db8::1]:8443/b?c#d"),
            Ok("true [2001:db8::1] 8443 /b?c".into())
        );
        assert_eq!(url("https://[2001:db8::1]"), Ok("true [2001:db8::1] 443 /".into()));
        for wrong in [
            "a.example/b",
            "ftp://a/b",
            "http:///b",
            "http://a:b/c",
            "http://u@a/b",
            "http://a/b c",
        ] {
            assert!(url(wrong).is_err(), "{wrong}");
        }
        let url: Url = "http://a.example/b/c.gz?d=/e".parse().unwrap();
        assert_eq!(url.file_name(), "c.gz");
        assert_eq!(url.redirect("/f").unwrap().path, "/f");
        assert_eq!(url.redirect("https://g/h").unwrap().port, 443);
        assert!(url.redirect("h").is_err());
    }
}
