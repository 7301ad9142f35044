//! HTTP/1.1 as far as etcd's JSON gateway needs it: one POST at a time, answers with a length or in chunks.
//!
//! Source: RFC 9112. Our own, for a call has to block, to end at a deadline, and to be bounded in memory.
//! Shape:  parsers over the bytes that were received so far, and the connection that runs them.
//! Cost:   an answer is copied twice.
//! Limits: no redirects, compression, informational answers or bodies that end with the connection.

use std::time::Instant;

use super::super::StoreError;
use super::super::wire::{Parsed, Wire, line, shown};

/// Largest head of an answer.
const MOST_HEAD: usize = 16 << 10;
/// Largest body of an answer, and largest chunk of one.
pub(super) const MOST_BODY: usize = 32 << 20;

/// A connection to one server.
pub(super) struct Connection {
    pub(super) wire: Wire,
    pub(super) host: String,
}

/// The head of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) status: u16,
    pub(super) length: Length,
    /// The server closes the connection after this answer.
    pub(super) last: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Length {
    Bytes(usize),
    Chunks,
}

impl Connection {
    /// Sends a request and reads the head of its answer.
    pub(super) fn post(
        &mut self,
        path: &str,
        token: Option<&str>,
        body: &[u8],
        until: Instant,
    ) -> Result<Head, StoreError> {
        let host =
            if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        let token = token.map_or(String::new(), |token| format!("Authorization: {token}\r\n"));
        let mut request = format!(
            "POST {path} HTTP/1.1\r\nHost: {host}\r\n{token}Content-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n",
            body.len()
        )
        .into_bytes();
        request.extend_from_slice(body);
        self.wire.send(&request, until)?;
        let head = self.wire.next(until, MOST_HEAD, head)?;
        head.ok_or_else(|| self.wire.unreachable("no answer in time"))
    }

    /// The whole body of an answer.
    pub(super) fn body(&mut self, head: Head, until: Instant) -> Result<Vec<u8>, StoreError> {
        let late = |wire: &Wire| wire.unreachable("no whole answer in time");
        if let Length::Bytes(length) = head.length {
            let exact = |bytes: &[u8]| Ok(bytes.get(..length).map(|body| (body.to_vec(), length)));
            return self.wire.next(until, length, exact)?.ok_or_else(|| late(&self.wire));
        }
        let mut body = Vec::new();
        loop {
            let chunk = self.chunk(until)?.ok_or_else(|| late(&self.wire))?;
            if chunk.is_empty() {
                return Ok(body);
            }
            body.extend_from_slice(&chunk);
            if body.len() > MOST_BODY {
                return Err(self.wire.nonsense(format!("more than {MOST_BODY} bytes")));
            }
        }
    }

    /// The next chunk of an answer in chunks, empty at its end; nothing when it is not there at the deadline.
    pub(super) fn chunk(&mut self, until: Instant) -> Result<Option<Vec<u8>>, StoreError> {
        self.wire.next(until, MOST_BODY + MOST_HEAD, chunk)
    }
}

/// The head of an answer, once it is whole, and its length.
fn head(bytes: &[u8]) -> Parsed<Head> {
    let Some((status_line, mut at)) = line(bytes, MOST_HEAD)? else {
        // What speaks another protocol may never send a line.
        let known = b"HTTP/1.";
        let begun = bytes.len().min(known.len());
        return if bytes[..begun] == known[..begun] { Ok(None) } else { Err(no_head(bytes)) };
    };
    let status = status_line.strip_prefix("HTTP/1.").and_then(|rest| rest.get(2..5));
    let status: u16 =
        status.and_then(|status| status.parse().ok()).ok_or_else(|| no_head(bytes))?;
    let (mut length, mut last) = (None, false);
    loop {
        let Some((field, taken)) = line(&bytes[at..], MOST_HEAD)? else { return Ok(None) };
        at += taken;
        if field.is_empty() {
            break;
        }
        let (name, value) = field.split_once(':').ok_or_else(|| no_head(field.as_bytes()))?;
        let value = value.trim();
        if name.eq_ignore_ascii_case("content-length") {
            let bytes = value.parse().ok().filter(|bytes| *bytes <= MOST_BODY);
            let bytes =
                bytes.ok_or_else(|| format!("a body of {} bytes", shown(value.as_bytes())))?;
            length = length.or(Some(Length::Bytes(bytes)));
        } else if name.eq_ignore_ascii_case("transfer-encoding") {
            length = Some(Length::Chunks);
        } else if name.eq_ignore_ascii_case("connection") {
            last = value.eq_ignore_ascii_case("close");
        }
    }
    let length = length.ok_or_else(|| {
        format!("a body without a length, after {:?}", shown(status_line.as_bytes()))
    })?;
    Ok(Some((Head { status, length, last }, at)))
}

fn no_head(bytes: &[u8]) -> String {
    format!("{:?} is not HTTP/1.1", shown(bytes))
}

/// A chunk, once it is whole, and its length with size and ends; the last chunk is empty and has the trailer with it.
fn chunk(bytes: &[u8]) -> Parsed<Vec<u8>> {
    let Some((size_line, mut at)) = line(bytes, MOST_HEAD)? else { return Ok(None) };
    let size = size_line.split(';').next().unwrap_or_default().trim();
    let size = usize::from_str_radix(size, 16).ok().filter(|size| *size <= MOST_BODY);
    let size = size.ok_or_else(|| format!("a chunk of size {:?}", shown(size_line.as_bytes())))?;
    if size == 0 {
        loop {
            if at > MOST_HEAD {
                return Err(format!("a trailer of more than {MOST_HEAD} bytes"));
            }
            let Some((field, taken)) = line(&bytes[at..], MOST_HEAD)? else { return Ok(None) };
            at += taken;
            if field.is_empty() {
                return Ok(Some((Vec::new(), at)));
            }
        }
    }
    match bytes.get(at + size..at + size + 2) {
        None => Ok(None),
        Some(b"\r\n") => Ok(Some((bytes[at..at + size].to_vec(), at + size + 2))),
        Some(_) => Err("a chunk that is longer than its size".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// An answer is not whole, but for its last byte.
    fn whole<T>(parse: impl Fn(&[u8]) -> Parsed<T>, bytes: &[u8]) -> T {
        for end in 0..bytes.len() {
            assert!(parse(&bytes[..end]).unwrap().is_none(), "{end}");
        }
        let (found, length) = parse(&[bytes, b"more"].concat()).unwrap().unwrap();
        assert_eq!(length, bytes.len());
        found
    }

    #[test]
    fn an_answer_is_read_at_its_last_byte() {
        let found =
            whole(head, b"HTTP/1.1 200 OK\r\nContent-Type: a\r\ncontent-length: 12\r\n\r\n");
        assert_eq!(found, Head { status: 200, length: Length::Bytes(12), last: false });
        let found = whole(
            head,
            b"HTTP/1.1 503 X\r\nTransfer-Encoding: chunked\r\nContent-Length: 1\r\nConnection: close\r\n\r\n",
        );
        assert_eq!(found, Head { status: 503, length: Length::Chunks, last: true });
        assert_eq!(whole(chunk, b"a;x=y\r\n0123456789\r\n"), b"0123456789");
        assert_eq!(whole(chunk, b"0\r\nGrpc-Status: 0\r\n\r\n"), b"");
    }

    #[test]
    fn nonsense_is_named() {
        let message = |bytes: &[u8]| head(bytes).unwrap_err();
        assert_eq!(message(b"220 mail"), "\"220 mail\" is not HTTP/1.1");
        assert_eq!(message(b"HTTP/1.1 abc\r\n"), "\"HTTP/1.1 abc\\r\\n\" is not HTTP/1.1");
        assert_eq!(
            message(b"HTTP/1.0 400 Bad Request\r\n\r\n"),
            "a body without a length, after \"HTTP/1.0 400 Bad Request\""
        );
        assert_eq!(
            message(b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n"),
            "a body of 99999999999 bytes"
        );
        assert_eq!(chunk(b"-1\r\n").unwrap_err(), "a chunk of size \"-1\"");
        assert_eq!(chunk(b"1\r\nabc").unwrap_err(), "a chunk that is longer than its size");
        assert!(chunk(&[b'0'; MOST_HEAD]).is_err());
    }

    proptest! {
        #[test]
        fn hostile_bytes_never_panic(
            bytes in proptest::collection::vec(any::<u8>(), 0..40),
            at in any::<prop::sample::Index>(),
        ) {
            for valid in [
                &b"HTTP/1.1 200 OK\r\nContent-Length: 12\r\nTransfer-Encoding: chunked\r\n\r\n"[..],
                b"a\r\n0123456789\r\n0\r\nTrailer: x\r\n\r\n",
            ] {
                let mut changed = valid.to_vec();
                let at = at.index(changed.len());
                changed.splice(at..=at, bytes.iter().copied());
                for text in [&bytes, &changed] {
                    let _ = head(text);
                    let _ = chunk(text);
                }
            }
        }
    }
}
