//! The messages of etcd's JSON gateway, as far as they are read.
//!
//! Source: etcd's `rpc.proto` in the JSON form of protocol buffers: absent fields are zero, 64-bit numbers are strings.
//! Shape:  a struct a message. What streams comes as `{"result": MESSAGE}` or `{"error": REFUSAL}`, a line each.
//! Cost:   that of serde_json, and of base64.
//! Limits: unknown fields are ignored.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::de::Error;
use serde::{Deserialize, Deserializer};

use super::super::StoreError;

/// Codes of gRPC.
const PERMISSION_DENIED: u32 = 7;
const UNAVAILABLE: u32 = 14;
const UNAUTHENTICATED: u32 = 16;

/// The part of every answer.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Header {
    #[serde(default, deserialize_with = "number")]
    pub(super) revision: u64,
}

/// A key with its value.
#[derive(Debug, Deserialize)]
pub(super) struct Kv {
    #[serde(deserialize_with = "bytes")]
    pub(super) key: Vec<u8>,
    #[serde(default, deserialize_with = "bytes")]
    pub(super) value: Vec<u8>,
    #[serde(default, deserialize_with = "number")]
    pub(super) mod_revision: u64,
}

#[derive(Debug, Deserialize)]
pub(super) struct Range {
    pub(super) header: Header,
    #[serde(default)]
    pub(super) kvs: Vec<Kv>,
}

/// The answer to a put, a deletion or a transaction.
#[derive(Debug, Deserialize)]
pub(super) struct Written {
    pub(super) header: Header,
    /// The conditions of a transaction were met.
    #[serde(default)]
    pub(super) succeeded: bool,
}

#[derive(Debug, Deserialize)]
pub(super) struct Lease {
    #[serde(rename = "ID", deserialize_with = "number")]
    pub(super) id: u64,
    /// Zero: it has ended.
    #[serde(rename = "TTL", default, deserialize_with = "number")]
    pub(super) ttl: u64,
}

#[derive(Debug, Deserialize)]
pub(super) struct Token {
    pub(super) token: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct Change {
    /// `DELETE`, or absent for a put.
    #[serde(rename = "type", default)]
    pub(super) kind: String,
    pub(super) kv: Kv,
}

#[derive(Debug, Deserialize)]
pub(super) struct Watch {
    #[serde(default)]
    pub(super) canceled: bool,
    #[serde(default)]
    pub(super) cancel_reason: String,
    /// Changes up to this revision are gone, if it is not zero.
    #[serde(default, deserialize_with = "number")]
    pub(super) compact_revision: u64,
    #[serde(default)]
    pub(super) events: Vec<Change>,
}

/// A message of a stream.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Streamed<T> {
    Result(T),
    Error(Refusal),
}

/// An answer without success.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Refusal {
    #[serde(default, alias = "grpc_code")]
    code: u32,
    message: String,
}

impl Refusal {
    /// The refusal in the body of an answer: itself, or wrapped as in a stream.
    pub(super) fn read(body: &[u8]) -> Option<Self> {
        let wrapped = serde_json::from_slice::<Streamed<serde::de::IgnoredAny>>(body);
        match wrapped {
            Ok(Streamed::Error(refusal)) => Some(refusal),
            _ => serde_json::from_slice(body).ok(),
        }
    }

    /// The refusal of a watch, which has no code.
    pub(super) fn canceled(reason: String) -> Self {
        let denied = reason.contains("ermission") || reason.contains("user name is empty");
        Self { code: if denied { PERMISSION_DENIED } else { 0 }, message: reason }
    }

    /// A new token can help.
    pub(super) fn is_old_token(&self) -> bool {
        self.code == UNAUTHENTICATED || self.message.contains("revision of auth store is old")
    }

    pub(super) fn is_denied(&self) -> bool {
        let denied = [PERMISSION_DENIED, UNAUTHENTICATED].contains(&self.code);
        let words = ["authentication failed", "user name is empty", "invalid auth"];
        denied || words.iter().any(|words| self.message.contains(words))
    }

    pub(super) fn is_lost_lease(&self) -> bool {
        self.message.contains("requested lease not found")
    }

    pub(super) fn into_error(self, endpoint: String) -> StoreError {
        let why = self.message.clone();
        if self.is_denied() {
            return StoreError::Denied { endpoint, why };
        }
        if self.code == UNAVAILABLE {
            return StoreError::Unreachable { endpoint, why };
        }
        StoreError::Refused { endpoint, why }
    }
}

/// A number, or one in a string.
fn number<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Any {
        Text(String),
        Number(u64),
    }
    match Any::deserialize(from)? {
        Any::Number(number) => Ok(number),
        Any::Text(text) => text.parse().map_err(|_| D::Error::custom("not a number")),
    }
}

fn bytes<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
    BASE64.decode(String::deserialize(from)?).map_err(D::Error::custom)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_as_etcd_writes_them() {
        let range: Range = serde_json::from_str(
            r#"{"header":{"cluster_id":"14841639068965178418","revision":"7","raft_term":"2"},
                "kvs":[{"key":"YQ==","create_revision":"5","mod_revision":"6","version":"2","value":"Yg=="}],"count":"1"}"#,
        )
        .unwrap();
        assert_eq!(range.header.revision, 7);
        assert_eq!((&range.kvs[0].key[..], range.kvs[0].mod_revision), (&b"a"[..], 6));
        let watch = r#"{"result":{"header":{},"events":[{"type":"DELETE","kv":{"key":"YQ==","mod_revision":"9"}}]}}"#;
        let Streamed::Result(watch) = serde_json::from_str::<Streamed<Watch>>(watch).unwrap()
        else {
            panic!("a result");
        };
        assert_eq!(watch.events[0].kind, "DELETE");
        assert!(serde_json::from_str::<Range>("{}").is_err());
    }

    #[test]
    fn a_refusal_has_two_forms() {
        for body in [
            r#"{"error":"etcdserver: invalid auth token","message":"etcdserver: invalid auth token","code":16}"#,
            r#"{"error":{"grpc_code":16,"http_code":401,"message":"etcdserver: invalid auth token","http_status":"Unauthorized"}}"#,
        ] {
            let refusal = Refusal::read(body.as_bytes()).unwrap();
            assert!(refusal.is_old_token() && refusal.is_denied());
            let message = refusal.into_error("x".to_owned()).to_string();
            assert_eq!(message, "the store at x denies access: etcdserver: invalid auth token");
        }
        assert!(Refusal::read(b"404 page not found").is_none());
    }
}
