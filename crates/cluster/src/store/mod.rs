//! Membership and parameters in a store that exists: the seam, its registry, and what a node does with it.
//!
//! Source: the small consistent store of SDN controllers; etcd and NATS JetStream KV, for both have compare-and-set,
//!         changes in order from a revision, and keys that vanish with the node that wrote them.
//! Shape:  `Store` is the seam and `KINDS` its rows; `member` is the record of a node, `agent` keeps it in a store and
//!         the membership out of one; `fixed` makes a membership from the configuration, without a store. `parameters` is what
//!         the nodes do alike, `adopt` how a node comes to it.
//! Cost:   blocking calls, made by a thread of their own. Nothing that forwards waits for a store.
//! Limits: small slow data: a record a node, never a table of routes.
//!
//! Keys are relative to the prefix of the cluster, of parts between slashes: `member/a`, `number/2`, `parameters`. A store handle is one
//! session: keys that are put with [`Keep::Leased`] vanish together once the session was not kept alive for its TTL.

pub mod adopt;
pub mod agent;
#[cfg(feature = "etcd")]
mod etcd;
pub mod fixed;
pub mod member;
#[cfg(any(test, feature = "testing"))]
pub mod memory;
#[cfg(feature = "nats")]
mod nats;
pub mod parameters;
#[cfg(any(feature = "etcd", feature = "nats"))]
mod tls;
pub mod value;
#[cfg(any(feature = "etcd", feature = "nats"))]
mod wire;

use std::path::PathBuf;
use std::time::Duration;

/// Kinds of stores in this build.
pub static KINDS: &[StoreKind] = &[
    #[cfg(feature = "etcd")]
    etcd::KIND,
    #[cfg(feature = "nats")]
    nats::KIND,
];

/// Names that need a feature of this crate, named as they are.
const FEATURES: [&str; 2] = ["etcd", "nats"];

/// A row of the registry: a kind of store that can hold the membership.
pub struct StoreKind {
    /// Name in the configuration.
    pub name: &'static str,
    /// What it is, in one line.
    pub summary: &'static str,
    /// Reads the files of the options. The first call connects, so that a node starts without its store.
    pub open: fn(&Options) -> Result<Box<dyn Store>, StoreError>,
}

/// The kind of store that the configuration calls by this name.
///
/// # Errors
/// When no kind of store has this name, or this build is without it.
pub fn find(name: &str) -> Result<&'static StoreKind, StoreError> {
    if let Some(kind) = KINDS.iter().find(|kind| kind.name == name) {
        return Ok(kind);
    }
    Err(StoreError::Configuration(if FEATURES.contains(&name) {
        format!("this build is without the store {name} (cargo feature `{name}`)")
    } else {
        format!("there is no store {name:?}; the stores are {}", FEATURES.join(" and "))
    }))
}

/// Where a store is and how to get in. It has secrets in it, so nothing prints it.
#[derive(Clone)]
pub struct Options {
    /// URLs, tried in order.
    pub endpoints: Vec<String>,
    /// What the keys of this cluster have in common: `fingerpost/1`.
    pub prefix: String,
    /// TTL of the session.
    pub ttl: Duration,
    /// Longest time that a call may take, watches left out.
    pub timeout: Duration,
    /// PEM file with the certificates that the store's must lead to.
    pub ca: Option<PathBuf>,
    /// PEM files with a certificate and its key, for stores that want one.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// User and password.
    pub user: Option<(String, String)>,
    /// Token, for stores that have these.
    pub token: Option<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            endpoints: Vec::new(),
            prefix: "fingerpost/1".to_owned(),
            ttl: Duration::from_secs(5),
            timeout: Duration::from_secs(2),
            ca: None,
            identity: None,
            user: None,
            token: None,
        }
    }
}

/// How long a key stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// Lifetime without an end, but for a deletion.
    Forever,
    /// Lifetime of the session, or less if it is deleted.
    Leased,
}

/// A key with its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Key, relative to the prefix.
    pub key: String,
    /// Value.
    pub value: Vec<u8>,
    /// Revision of its latest change; grows with every change of the store. A store may count keeping alive as one.
    pub revision: u64,
}

/// A change of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Key, relative to the prefix.
    pub key: String,
    /// New value; absent: the key was deleted or its session ended.
    pub value: Option<Vec<u8>>,
    /// Revision of the change.
    pub revision: u64,
}

/// What a list or a watch found, and from which revision a watch continues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found<T> {
    /// In the order of keys in a list, of revisions in a watch.
    pub items: Vec<T>,
    /// Every change up to this revision is among the items.
    pub revision: u64,
}

/// A session with a store. All calls block; a call that failed may be repeated, and connects anew where that is needed.
pub trait Store: Send {
    /// Value of a key.
    ///
    /// # Errors
    /// When the store does not answer, or not in its language.
    fn get(&mut self, key: &str) -> Result<Option<Entry>, StoreError>;
    /// All keys that begin with `prefix`, which is empty or ends in a slash.
    ///
    /// # Errors
    /// As for `get`.
    fn list(&mut self, prefix: &str) -> Result<Found<Entry>, StoreError>;
    /// Changes below `prefix` after revision `after`, as soon as there are some, none after `timeout`. A put that leaves
    /// the value as it is may be missing, so may all but the latest of the changes to a key before the watch began.
    ///
    /// # Errors
    /// As for `get`; [`StoreError::Compacted`] when the changes after that revision are no longer known.
    fn watch(
        &mut self,
        prefix: &str,
        after: u64,
        timeout: Duration,
    ) -> Result<Found<Event>, StoreError>;
    /// Puts a value, whatever was there. Returns its revision.
    ///
    /// # Errors
    /// As for `get`.
    fn put(&mut self, key: &str, value: &[u8], keep: Keep) -> Result<u64, StoreError>;
    /// Puts a value if the key still is at revision `expected`, 0: does not exist. Returns its revision, or nothing when
    /// somebody else was first.
    ///
    /// # Errors
    /// As for `get`.
    fn swap(
        &mut self,
        key: &str,
        expected: u64,
        value: &[u8],
        keep: Keep,
    ) -> Result<Option<u64>, StoreError>;
    /// Keeps the session alive for another TTL.
    ///
    /// # Errors
    /// As for `get`; [`StoreError::LeaseLost`] when it has ended. The next leased put begins another one.
    fn keep_alive(&mut self) -> Result<(), StoreError>;
    /// Deletes a key, if it is there.
    ///
    /// # Errors
    /// As for `get`.
    fn delete(&mut self, key: &str) -> Result<(), StoreError>;
}

/// Why a call of a store failed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// No connection, or none that answers in time.
    #[error("the store at {endpoint} is unreachable: {why}")]
    Unreachable {
        /// Which.
        endpoint: String,
        /// Message of the operating system, or a description.
        why: String,
    },
    /// An answer that is not in the language of the store.
    #[error("the store at {endpoint} answers nonsense: {why}")]
    Nonsense {
        /// Which.
        endpoint: String,
        /// What was wrong.
        why: String,
    },
    /// User, password, token or certificate are not accepted.
    #[error("the store at {endpoint} denies access: {why}")]
    Denied {
        /// Which.
        endpoint: String,
        /// Message of the store.
        why: String,
    },
    /// Any other refusal, in the words of the store.
    #[error("the store at {endpoint} refuses: {why}")]
    Refused {
        /// Which.
        endpoint: String,
        /// Message of the store.
        why: String,
    },
    /// Changes since a revision are gone: list again.
    #[error("the store no longer knows the changes since revision {after}")]
    Compacted {
        /// The revision.
        after: u64,
    },
    /// The session ended, and its keys with it.
    #[error("the session ended: it was not kept alive")]
    LeaseLost,
    /// Options that cannot work.
    #[error("{0}")]
    Configuration(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_that_is_not_there_is_named() {
        let message = |name| find(name).err().map(|error| error.to_string());
        assert_eq!(
            message("zookeeper").unwrap(),
            "there is no store \"zookeeper\"; the stores are etcd and nats"
        );
        for name in FEATURES {
            match message(name) {
                None => assert!(KINDS.iter().any(|kind| kind.name == name)),
                Some(message) => assert!(message.contains("cargo feature"), "{message}"),
            }
        }
    }
}
