//! Membership and parameters in a store that exists: the seam, and what a node does with it.
//!
//! Source: the small consistent store of SDN controllers; etcd and NATS JetStream KV, for both have compare-and-set,
//!         changes in order from a revision, and keys that vanish with the node that wrote them.
//! Shape:  `Store` is the seam; `member` is the record of a node, `agent` keeps it in a store and
//!         the membership out of one; `fixed` makes a membership from the configuration, without a store.
//! Cost:   blocking calls, made by a thread of their own. Nothing that forwards waits for a store.
//! Limits: small slow data: a record a node, never a table of routes.
//!
//! Keys are relative to the prefix of the cluster, of parts between slashes: `member/a`, `number/2`. A store handle is one
//! session: keys that are put with [`Keep::Leased`] vanish together once the session was not kept alive for its TTL.

pub mod agent;
pub mod fixed;
pub mod member;
#[cfg(any(test, feature = "testing"))]
pub mod memory;

use std::time::Duration;

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
}
