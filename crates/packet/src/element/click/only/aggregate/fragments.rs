//! Fragments of numbered flows: a later fragment has no ports, and gets the number of the first one.
//!
//! A later fragment that comes before the first one waits, and what comes after it between the same two addresses waits
//! behind it, so that packets of two addresses keep their order.

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

    /// The two addresses, in any direction.
    fn pair(&self) -> [u32; 2] {
        [self.src.min(self.dst), self.src.max(self.dst)]
    }
}

/// What packets of a flow get.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Mark {
    pub(super) number: u32,
    /// The color: the direction.
    pub(super) paint: u8,
}

/// A packet that waits.
struct Waiting {
    key: Key,
    since_ns: i64,
    /// `None` for a later fragment whose first one has not come.
    mark: Option<Mark>,
    packet: Packet,
}

/// A packet that waited, with its mark; without one where the first fragment did not come in time.
pub(super) type Released = (Packet, Option<Mark>);

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
        for waiting in self.waiting.iter_mut().filter(|waiting| waiting.key == key) {
            waiting.mark.get_or_insert(mark);
        }
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

    /// Whether a packet between the two addresses of a key waits.
    pub(super) fn is_waited_for(&self, key: &Key) -> bool {
        self.waiting.iter().any(|waiting| waiting.key.pair() == key.pair())
    }

    /// Keeps a packet; returns the oldest one where there are too many.
    pub(super) fn wait(
        &mut self,
        key: Key,
        mark: Option<Mark>,
        now_ns: i64,
        packet: Packet,
    ) -> Option<Released> {
        let oldest = (self.waiting.len() >= MOST_WAITING).then(|| self.take(0)).flatten();
        self.held.add(packet.meta.flags & FLAG_GENERATED != 0);
        self.waiting.push_back(Waiting { key, since_ns: now_ns, mark, packet });
        oldest
    }

    /// The next packet between the two addresses of a key that need not wait any more.
    pub(super) fn ready(&mut self, key: &Key, now_ns: i64) -> Option<Released> {
        let at = self.waiting.iter().position(|waiting| waiting.key.pair() == key.pair())?;
        let first = &self.waiting[at];
        let is_ready = first.mark.is_some() || self.is_late(first, now_ns);
        is_ready.then(|| self.take(at)).flatten()
    }

    /// Key of the oldest packet, if it has waited too long.
    pub(super) fn late(&self, now_ns: i64) -> Option<Key> {
        self.waiting.front().filter(|oldest| self.is_late(oldest, now_ns)).map(|oldest| oldest.key)
    }

    /// The oldest packet, whatever it waits for.
    pub(super) fn oldest(&mut self) -> Option<Released> {
        self.take(0)
    }

    pub(super) fn held(&self) -> Held {
        self.held
    }

    fn is_late(&self, waiting: &Waiting, now_ns: i64) -> bool {
        now_ns.saturating_sub(waiting.since_ns) >= self.timeout_ns
    }

    fn take(&mut self, at: usize) -> Option<Released> {
        let Waiting { packet, mark, .. } = self.waiting.remove(at)?;
        self.held.remove(packet.meta.flags & FLAG_GENERATED != 0);
        Some((packet, mark))
    }
}
