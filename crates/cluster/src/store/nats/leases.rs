//! Lives of sessions in a bucket that knows none: each has a key that it puts again and again.
//!
//! Source: our own. NATS 2.9 has no time to live of a key.
//! Shape:  `lease/ID` has the TTL and a number that grows. Who sees no renewal for a TTL, by the own monotonic clock since the
//!         latest one that came, suspects the session: it reads the key, and ends the session if the number is the same.
//! Cost:   every session receives every renewal: N sessions with a TTL of 5 s are N * N * 0.6 small messages a second.
//! Limits: 65,536 sessions. One that no other session watches lasts until one does, and a TTL more.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

/// Most sessions that are followed.
const MOST: usize = 65_536;

/// What the key of a session has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Life {
    pub(super) ttl_ms: u64,
    /// Grows with every renewal.
    pub(super) renewal: u64,
}

struct Seen {
    life: Life,
    at: Instant,
}

/// The sessions that a connection knows of.
#[derive(Default)]
pub(super) struct Leases(BTreeMap<String, Seen>);

impl Leases {
    /// What the subjects of all sessions begin with.
    pub(super) fn subject(bucket: &str) -> String {
        format!("$KV.{bucket}.lease")
    }

    /// A renewal was received. The end of a session is no news: who ended it deletes its keys, or another one will after a TTL.
    pub(super) fn note(&mut self, subject: &str, value: &[u8], now: Instant) {
        let Some((_, id)) = subject.rsplit_once('.') else { return };
        let Ok(life) = serde_json::from_slice::<Life>(value) else { return };
        self.renewed(id, life, now);
    }

    pub(super) fn renewed(&mut self, id: &str, life: Life, now: Instant) {
        if self.0.len() < MOST || self.0.contains_key(id) {
            self.0.insert(id.to_owned(), Seen { life, at: now });
        }
    }

    pub(super) fn forget(&mut self, id: &str) {
        self.0.remove(id);
    }

    pub(super) fn knows(&self, id: &str) -> bool {
        self.0.contains_key(id)
    }

    /// A session without a renewal for its TTL.
    pub(super) fn suspect(&self, now: Instant) -> Option<(String, Life)> {
        let mut all = self.0.iter();
        let (id, seen) = all.find(|(_, seen)| now.duration_since(seen.at) > ttl(seen.life))?;
        Some((id.clone(), seen.life))
    }

    /// When the next session is suspect, if it is not renewed.
    pub(super) fn due(&self) -> Option<Instant> {
        self.0.values().map(|seen| seen.at + ttl(seen.life)).min()
    }
}

/// The TTL of a session, a day at most.
fn ttl(life: Life) -> Duration {
    Duration::from_millis(life.ttl_ms.min(86_400_000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_suspect_after_its_ttl_without_a_renewal() {
        let mut leases = Leases::default();
        let (start, second) = (Instant::now(), Duration::from_secs(1));
        leases.note("$KV.b.lease.x", br#"{"ttl_ms":2000,"renewal":1}"#, start);
        leases.note("$KV.b.lease.y", br#"{"ttl_ms":3000,"renewal":1}"#, start);
        for nonsense in [&b""[..], b"{}", b"\xff"] {
            leases.note("$KV.b.lease.z", nonsense, start);
        }
        assert!(leases.knows("x") && !leases.knows("z"));
        assert_eq!(leases.due(), Some(start + 2 * second));
        assert_eq!(leases.suspect(start + 2 * second), None);
        let suspect = leases.suspect(start + second * 5 / 2).unwrap();
        assert_eq!(suspect, ("x".to_owned(), Life { ttl_ms: 2000, renewal: 1 }));
        leases.note("$KV.b.lease.x", br#"{"ttl_ms":2000,"renewal":2}"#, start + 2 * second);
        assert_eq!(leases.suspect(start + second * 5 / 2), None);
        leases.forget("y");
        assert_eq!(leases.due(), Some(start + 4 * second));
        leases.renewed("w", Life { ttl_ms: u64::MAX, renewal: 0 }, start);
        assert!(leases.due().is_some());
    }
}
