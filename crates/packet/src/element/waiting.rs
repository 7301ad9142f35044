//! Packets that wait for link addresses, by what they wait for: bounded lists in one store.
//!
//! Each key keeps packets in order, up to a bound; the store has a bound, and so has the number of keys, since a
//! sweep through a subnet must not grow without end (RFC 6583). A key says when it is time to ask (RFC 1122
//! 2.3.2.1), and keys have their turn one after the other.
//!
//! Cost: a hash table; nothing is allocated after the start.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

use super::Held;
use crate::buf::{FLAG_GENERATED, Packet};

/// Packets that wait for one key. RFC 1122 asks for one at least; 16 are a small TCP window.
pub(super) const PER_KEY: u8 = 16;
/// Keys in all.
pub(super) const KEYS: usize = 1024;
/// Between two questions for one key.
pub(super) const ASK_NS: u64 = 1_000_000_000;
/// After this long a packet's sender is told.
pub(super) const PATIENCE_NS: u64 = 3_000_000_000;

/// No slot.
const NIL: u16 = u16::MAX;

/// The store.
pub(super) struct Waiting<K> {
    /// Linked by `next`: one list a key, and one of the free ones.
    slots: Box<[Slot]>,
    free: u16,
    waits: HashMap<K, Wait>,
    /// The keys, the one to be looked at next in front.
    turns: VecDeque<K>,
    held: Held,
}

struct Slot {
    packet: Option<Packet>,
    next: u16,
}

/// What waits for one key. Without packets it only remembers when it was asked for.
pub(super) struct Wait {
    head: u16,
    tail: u16,
    count: u8,
    /// When the first of its packets came.
    pub(super) since_ns: u64,
    pub(super) asked_ns: u64,
    /// When it was given up, if it was.
    pub(super) failed_ns: Option<u64>,
}

impl Wait {
    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Whether it is time to ask, which is noted as done.
    pub(super) fn asks(&mut self, now_ns: u64) -> bool {
        let time = now_ns.saturating_sub(self.asked_ns) >= ASK_NS;
        if time {
            self.asked_ns = now_ns;
        }
        time
    }
}

impl<K: Copy + Eq + Hash> Waiting<K> {
    /// Room for so many packets, below 65,535.
    pub(super) fn new(packets: u16) -> Self {
        let slot = |i| Slot { packet: None, next: if i + 1 < packets { i + 1 } else { NIL } };
        Self {
            slots: (0..packets).map(slot).collect(),
            free: if packets == 0 { NIL } else { 0 },
            waits: HashMap::with_capacity(KEYS),
            turns: VecDeque::with_capacity(KEYS),
            held: Held::default(),
        }
    }

    /// The list of a key, made if there is room, and whether it is time to ask.
    pub(super) fn wait(&mut self, key: K, now_ns: u64) -> Option<(&mut Wait, bool)> {
        let mut ask = false;
        if !self.waits.contains_key(&key) {
            if self.waits.len() == KEYS {
                return None;
            }
            self.turns.push_back(key);
            let (head, tail, count, failed_ns) = (NIL, NIL, 0, None);
            let wait = Wait { head, tail, count, since_ns: 0, asked_ns: now_ns, failed_ns };
            self.waits.insert(key, wait);
            ask = true;
        }
        let wait = self.waits.get_mut(&key)?;
        if wait.count == 0 {
            wait.since_ns = now_ns;
        }
        let ask = wait.asks(now_ns) || ask;
        Some((wait, ask))
    }

    /// Whether one more packet may wait for a key.
    pub(super) fn has_room(&self, key: K) -> bool {
        self.free != NIL && self.waits.get(&key).is_some_and(|wait| wait.count < PER_KEY)
    }

    /// Keeps a packet of a key that has room.
    pub(super) fn keep(&mut self, key: K, packet: Packet) {
        let wait = self.waits.get_mut(&key).expect("the caller made it");
        let at = self.free;
        let slot = &mut self.slots[usize::from(at)];
        self.free = std::mem::replace(&mut slot.next, NIL);
        self.held.add(packet.meta.flags & FLAG_GENERATED != 0);
        slot.packet = Some(packet);
        if wait.count == 0 {
            wait.head = at;
        } else {
            self.slots[usize::from(wait.tail)].next = at;
        }
        wait.tail = at;
        wait.count += 1;
    }

    /// Lets all packets of a key go, in order.
    pub(super) fn release(&mut self, key: K, mut each: impl FnMut(Packet)) {
        let Some(wait) = self.waits.get_mut(&key) else { return };
        let mut at = wait.head;
        (wait.head, wait.tail, wait.count) = (NIL, NIL, 0);
        while at != NIL {
            let slot = &mut self.slots[usize::from(at)];
            let packet = slot.packet.take().expect("a listed slot holds a packet");
            let next = std::mem::replace(&mut slot.next, self.free);
            self.free = at;
            at = next;
            self.held.remove(packet.meta.flags & FLAG_GENERATED != 0);
            each(packet);
        }
    }

    /// The key whose turn it is, which goes to the end of the line, and what is known of it.
    pub(super) fn turn(&mut self) -> Option<(K, &mut Wait)> {
        let key = self.turns.pop_front()?;
        self.turns.push_back(key);
        let wait = self.waits.get_mut(&key).expect("each key in the line is known");
        Some((key, wait))
    }

    /// Forgets the key whose turn it was, and which has no packets.
    pub(super) fn forget(&mut self) {
        if let Some(key) = self.turns.pop_back() {
            self.waits.remove(&key);
        }
    }

    /// Lets all packets go.
    pub(super) fn stop(&mut self, mut each: impl FnMut(Packet)) {
        while let Some(key) = self.turns.pop_front() {
            self.release(key, &mut each);
            self.waits.remove(&key);
        }
    }

    pub(super) fn held(&self) -> Held {
        self.held
    }

    pub(super) fn keys(&self) -> usize {
        self.waits.len()
    }
}
