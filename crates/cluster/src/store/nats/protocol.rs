//! The text protocol of NATS and the messages of JetStream, as far as they are sent and received here.
//!
//! Source: NATS client protocol; JetStream's API, JSON by request and reply.
//! Shape:  parsers over the bytes that were received so far, and writers of the lines that are sent.
//! Cost:   a message is copied once, and its base64 once more.
//! Limits: control lines of 64 KiB, messages of 8 MiB.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::{Deserialize, Deserializer, de};

use super::super::wire::{Parsed, line, shown};

/// Longest control line; the first one of a server names all servers of its cluster.
const MOST_LINE: usize = 64 << 10;
/// Largest message; a server has a limit of 1 MiB unless it is configured.
const MOST_MESSAGE: usize = 8 << 20;
/// Largest operation.
pub(super) const MOST: usize = MOST_LINE + MOST_MESSAGE;

/// What a server sends.
#[derive(Debug)]
pub(super) enum Operation {
    Info(Info),
    Message(Message),
    Ping,
    Pong,
    Error(String),
    Nothing,
}

/// How a server introduces itself.
#[derive(Debug, Deserialize)]
pub(super) struct Info {
    #[serde(default)]
    pub(super) headers: bool,
    #[serde(default)]
    pub(super) tls_required: bool,
    #[serde(default)]
    pub(super) tls_available: bool,
    pub(super) max_payload: usize,
}

/// A message to a subscription of ours.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) subject: String,
    pub(super) subscription: u64,
    pub(super) headers: Vec<u8>,
    pub(super) payload: Vec<u8>,
}

/// An answer of JetStream: a message or an error.
#[derive(Debug, Deserialize)]
pub(super) struct Answer<T> {
    pub(super) error: Option<Fault>,
    #[serde(flatten)]
    pub(super) answer: Option<T>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Fault {
    pub(super) err_code: u32,
    #[serde(default)]
    pub(super) description: String,
}

/// A message that a stream holds.
#[derive(Debug, Deserialize)]
pub(super) struct Stored {
    pub(super) subject: String,
    pub(super) seq: u64,
    #[serde(default, deserialize_with = "bytes")]
    pub(super) data: Vec<u8>,
    #[serde(default, deserialize_with = "bytes")]
    hdrs: Vec<u8>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Got {
    pub(super) message: Stored,
}

#[derive(Debug, Deserialize)]
pub(super) struct Published {
    pub(super) seq: u64,
}

#[derive(Debug, Deserialize)]
pub(super) struct Stream {
    /// When it was made: it is another one if that differs.
    pub(super) created: String,
}

/// Header that has the session of a leased key.
pub(super) const LEASE: &str = "Fingerpost-Lease";

impl Stored {
    /// A marker of a deletion, as all clients of key-value buckets write it.
    pub(super) fn is_deleted(&self) -> bool {
        header(&self.hdrs, "KV-Operation").is_some()
    }

    /// Session of a leased key.
    pub(super) fn lease(&self) -> Option<&str> {
        header(&self.hdrs, LEASE)
    }
}

/// The value of a header.
pub(super) fn header<'a>(headers: &'a [u8], name: &str) -> Option<&'a str> {
    let text = std::str::from_utf8(headers).ok()?;
    let mut fields = text.lines().skip(1).filter_map(|line| line.split_once(':'));
    fields.find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
}

/// The status of a message without payload, such as 503: nobody answers such requests.
pub(super) fn status(headers: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(headers).ok()?;
    text.lines().next()?.strip_prefix("NATS/1.0")?.split_whitespace().next()
}

/// A publication with a subject for the answer.
pub(super) fn publication(
    subject: &str,
    reply: &str,
    fields: &[(&str, String)],
    payload: &[u8],
) -> Vec<u8> {
    let mut headers = String::new();
    if !fields.is_empty() {
        headers.push_str("NATS/1.0\r\n");
        for (name, value) in fields {
            headers.push_str(&format!("{name}: {value}\r\n"));
        }
        headers.push_str("\r\n");
    }
    let total = headers.len() + payload.len();
    let line = match headers.len() {
        0 => format!("PUB {subject} {reply} {total}\r\n"),
        length => format!("HPUB {subject} {reply} {length} {total}\r\n"),
    };
    [line.as_bytes(), headers.as_bytes(), payload, b"\r\n"].concat()
}

/// The next operation, once it is whole, and its length.
pub(super) fn operation(bytes: &[u8]) -> Parsed<Operation> {
    const WORDS: [&str; 7] = ["INFO", "MSG", "HMSG", "PING", "PONG", "-ERR", "+OK"];
    // What speaks another protocol may never send a line.
    let begins = |word: &&str| {
        let length = bytes.len().min(word.len());
        bytes[..length].eq_ignore_ascii_case(&word.as_bytes()[..length])
    };
    let unknown = || format!("{:?} is not the protocol of NATS", shown(bytes));
    let word = WORDS.iter().find(|word| begins(word)).ok_or_else(unknown)?;
    let Some((text, at)) = line(bytes, MOST_LINE)? else { return Ok(None) };
    let rest = text.get(word.len()..).ok_or_else(unknown)?.trim();
    let operation = match *word {
        "INFO" => Operation::Info(serde_json::from_str(rest).map_err(|error| error.to_string())?),
        "PING" => Operation::Ping,
        "PONG" => Operation::Pong,
        "-ERR" => Operation::Error(rest.trim_matches('\'').to_owned()),
        "+OK" => Operation::Nothing,
        word => return message(bytes, rest, at, word == "HMSG").ok_or_else(unknown)?,
    };
    Ok(Some((operation, at)))
}

/// The message that follows a control line, which ends at `at`; nothing for a line that makes no sense.
fn message(bytes: &[u8], control: &str, at: usize, has_headers: bool) -> Option<Parsed<Operation>> {
    let mut words: Vec<&str> = control.split_ascii_whitespace().collect();
    let total: usize = words.pop()?.parse().ok()?;
    let header_bytes: usize = if has_headers { words.pop()?.parse().ok()? } else { 0 };
    // The subject for an answer is of no use here.
    let (subject, subscription) = match words[..] {
        [subject, subscription] | [subject, subscription, _] => (subject, subscription),
        _ => return None,
    };
    let subscription = subscription.parse().ok()?;
    if total > MOST_MESSAGE {
        return Some(Err(format!("a message of {total} bytes, at most {MOST_MESSAGE}")));
    }
    if header_bytes > total {
        return None;
    }
    let end = at + total;
    let Some(after) = bytes.get(end..end + 2) else { return Some(Ok(None)) };
    if after != b"\r\n" {
        return Some(Err("a message that is longer than its size".to_owned()));
    }
    let message = Message {
        subject: subject.to_owned(),
        subscription,
        headers: bytes[at..at + header_bytes].to_vec(),
        payload: bytes[at + header_bytes..end].to_vec(),
    };
    Some(Ok(Some((Operation::Message(message), end + 2))))
}

fn bytes<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
    BASE64.decode(String::deserialize(from)?).map_err(de::Error::custom)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn whole(bytes: &[u8]) -> Operation {
        for end in 0..bytes.len() {
            assert!(operation(&bytes[..end]).unwrap().is_none(), "{end}");
        }
        let (found, length) = operation(&[bytes, b"more"].concat()).unwrap().unwrap();
        assert_eq!(length, bytes.len());
        found
    }

    #[test]
    fn operations_are_read_at_their_last_byte() {
        assert!(matches!(whole(b"PING\r\n"), Operation::Ping));
        assert!(matches!(whole(b"-ERR 'No'\r\n"), Operation::Error(why) if why == "No"));
        let info = whole(b"INFO {\"headers\":true,\"max_payload\":1048576,\"x\":[1]} \r\n");
        assert!(matches!(
            info,
            Operation::Info(Info { headers: true, max_payload: 1_048_576, .. })
        ));
        let message = |headers: &[u8], payload: &[u8]| Message {
            subject: "a.b".to_owned(),
            subscription: 9,
            headers: headers.to_vec(),
            payload: payload.to_vec(),
        };
        let Operation::Message(found) = whole(b"MSG a.b 9 5\r\nhello\r\n") else { panic!() };
        assert_eq!(found, message(b"", b"hello"));
        let with = b"HMSG a.b 9 reply 22 24\r\nNATS/1.0\r\nName: A\r\n\r\n12\r\n";
        let with = String::from_utf8(with.to_vec()).unwrap().replace("22 24", "21 23");
        let Operation::Message(found) = whole(with.as_bytes()) else { panic!() };
        assert_eq!(found, message(b"NATS/1.0\r\nName: A\r\n\r\n", b"12"));
        assert_eq!(header(&found.headers, "name"), Some("A"));
        assert_eq!(status(&found.headers), None);
        assert_eq!(status(b"NATS/1.0 503\r\n\r\n"), Some("503"));
    }

    #[test]
    fn what_is_written_is_what_servers_read() {
        assert_eq!(publication("a", "_INBOX.1", &[], b"xy"), b"PUB a _INBOX.1 2\r\nxy\r\n");
        let with = publication("a", "r", &[("K", "v".to_owned())], b"xy");
        assert_eq!(with, b"HPUB a r 18 20\r\nNATS/1.0\r\nK: v\r\n\r\nxy\r\n");
    }

    #[test]
    fn nonsense_is_named() {
        let message = |bytes: &[u8]| operation(bytes).unwrap_err();
        assert_eq!(message(b"HTTP"), "\"HTTP\" is not the protocol of NATS");
        assert_eq!(message(b"MSG a\r\n"), "\"MSG a\\r\\n\" is not the protocol of NATS");
        assert_eq!(
            message(b"MSG a 1 99999999\r\n"),
            "a message of 99999999 bytes, at most 8388608"
        );
        assert_eq!(message(b"MSG a 1 1\r\nabc"), "a message that is longer than its size");
        assert!(message(b"INFO banana\r\n").contains("expected value"));
        assert!(message(b"HMSG a 1 5 4\r\n").contains("is not the protocol"));
    }

    proptest! {
        #[test]
        fn hostile_bytes_never_panic(
            bytes in proptest::collection::vec(any::<u8>(), 0..40),
            at in any::<prop::sample::Index>(),
        ) {
            let mut changed = b"HMSG a.b 9 reply 21 23\r\nNATS/1.0\r\nName: A\r\n\r\n12\r\n".to_vec();
            let at = at.index(changed.len());
            changed.splice(at..=at, bytes.iter().copied());
            for text in [&bytes, &changed] {
                let _ = operation(text);
                let _ = (header(text, "a"), status(text));
            }
        }
    }
}
