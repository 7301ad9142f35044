//! Fragments of numbered flows: a later fragment has no ports, and gets the number of the first one.

use std::collections::{HashMap, VecDeque};

use crate::frame::wire::Ip4;
use crate::frame::{FLAG_GENERATED, Packet};
use crate::graph::Held;

/// Packets that wait for their first fragments, at most.
pub(super) const MOST_WAITING: usize = 256;
/// Packets whose first fragment is remembered, at most; then all are forgotten.
const MOST_KNOWN: usize = 1 << 16;

/// What the fragments of a packet have in common (RFC 791, section 3.2).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Key {
    src: u32,
    dst: u32,
    id: u16,
    protocol: u8,
}

impl Key {
    pub(super) fn of(ip: &Ip4<'_>) -> Self {
        Self { src: ip.src(), dst: ip.dst(), id: ip.id(), protocol: ip.protocol() }
    }
}

/// What packets of a flow get.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Mark {
    pub(super) number: u32,
    /// The color: the direction.
    pub(super) paint: u8,
}

/// A later fragment that came before the first one.
struct Waiting {
    key: Key,
    since_ns: i64,
    packet: Packet,
}

/// Fragments, by the times of packets.
pub(super) struct Fragments {
    timeout_ns: i64,
    /// Marks of first fragments, and the time of the last fragment of each packet.
    known: HashMap<Key, (Mark, i64)>,
    /// The oldest first.
    waiting: VecDeque<Waiting>,
    held: Held,
}

impl Fragments {
    pub(super) fn new(timeout_ns: i64) -> Self {
        let (known, waiting) = (HashMap::new(), VecDeque::new());
        Self { timeout_ns, known, waiting, held: Held::default() }
    }

    /// Notes a first fragment.
    pub(super) fn begin(&mut self, key: Key, mark: Mark, now_ns: i64) {
        if self.known.len() >= MOST_KNOWN {
            self.known.clear();
        }
        self.known.insert(key, (mark, now_ns));
    }

    /// Mark of a later fragment, where the first one has come.
    pub(super) fn mark(&mut self, key: &Key, now_ns: i64) -> Option<Mark> {
        let (mark, last_ns) = self.known.get_mut(key)?;
        if now_ns.saturating_sub(*last_ns) >= self.timeout_ns {
            self.known.remove(key);
            return None;
        }
        *last_ns = now_ns;
        Some(*mark)
    }

    /// Keeps a later fragment; returns the oldest one where there are too many.
    pub(super) fn wait(&mut self, key: Key, now_ns: i64, packet: Packet) -> Option<Packet> {
        let oldest = (self.waiting.len() >= MOST_WAITING).then(|| self.waiting.pop_front());
        self.held.add(packet.meta.flags & FLAG_GENERATED != 0);
        self.waiting.push_back(Waiting { key, since_ns: now_ns, packet });
        oldest.flatten().map(|oldest| self.given(oldest))
    }

    /// A fragment that has waited too long.
    pub(super) fn late(&mut self, now_ns: i64) -> Option<Packet> {
        let timeout_ns = self.timeout_ns;
        let is_late = |oldest: &mut Waiting| now_ns.saturating_sub(oldest.since_ns) >= timeout_ns;
        let late = self.waiting.pop_front_if(is_late)?;
        Some(self.given(late))
    }

    /// Those that waited for a first fragment, in the order in which they came.
    pub(super) fn released(&mut self, key: &Key) -> Vec<Packet> {
        let mut released = Vec::new();
        for waiting in std::mem::take(&mut self.waiting) {
            if waiting.key == *key {
                released.push(self.given(waiting));
            } else {
                self.waiting.push_back(waiting);
            }
        }
        released
    }

    /// All that wait.
    pub(super) fn all(&mut self) -> Vec<Packet> {
        let all = std::mem::take(&mut self.waiting);
        all.into_iter().map(|waiting| self.given(waiting)).collect()
    }

    pub(super) fn held(&self) -> Held {
        self.held
    }

    fn given(&mut self, waiting: Waiting) -> Packet {
        self.held.remove(waiting.packet.meta.flags & FLAG_GENERATED != 0);
        waiting.packet
    }
}
