//! Packets that wait for link addresses, by what they wait for: bounded lists in one store.
//!
//! Each key keeps packets in order, up to a bound; the store has a bound, and so has the number of keys, since a
//! sweep through a prefix must not grow without end (RFC 6583). A key knows when it is due for a query (RFC 1122
//! 2.3.2.1), and keys have their turn one after the other.
//!
//! A host that finds no room replaces another one: of a random sample one of the ingress port that has most, and of these
//! the oldest. A sweep replaces itself, and hosts that answer within milliseconds are reached beside it. A quarter of the
//! keys and of the packets is reserved for next hops of routes.
//!
//! Cost: a hash table; nothing is allocated after the start.

use std::collections::HashMap;
use std::hash::Hash;

use fingerpost_lpm::Rng;

use super::time;
use crate::frame::{FLAG_GENERATED, Packet};
use crate::graph::Held;

/// Packets that wait for one key. RFC 1122 requires one at least; 16 are a small TCP window.
pub(crate) const PER_KEY: u16 = 16;
/// Keys in all.
pub(crate) const KEYS: usize = 1024;
/// Time between two queries of one key.
pub(crate) const QUERY_NS: u64 = 1_000_000_000;
/// Time after which a packet's sender gets an error.
pub(crate) const PATIENCE_NS: u64 = 3_000_000_000;

/// No slot.
const NIL: u16 = u16::MAX;
/// Keys in the sample from which one is replaced.
const SAMPLE: usize = 8;
/// Queries of one key that Click sends a tenth of a second apart; those behind them are 2 seconds apart.
const QUICK_QUERIES: u8 = 10;
const QUICK_NS: u64 = 100_000_000;
const SLOW_NS: u64 = 2_000_000_000;
/// Keys that are replaced at most for one packet: some have none.
const TRIES: usize = 4;
/// Ingress ports that are counted apart; others share a count.
const INGRESSES: usize = 256;

/// Share of the room that a key counts against.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Share {
    /// The next hop of a route: nobody takes its room.
    Gateway,
    /// Host on a link, by the ingress port of its packets.
    Host(u16),
}

impl Share {
    /// Index of its count in `hosts`.
    fn ingress(self) -> Option<usize> {
        match self {
            Self::Gateway => None,
            Self::Host(port) => Some(usize::from(port) % INGRESSES),
        }
    }
}

/// Part of `all` that hosts may take. Little room is not shared out.
const fn of_hosts(all: usize) -> usize {
    if all < 64 { all } else { all - all / 4 }
}

/// Bounds of a store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Packets in all, below 65,535.
    pub(crate) packets: u16,
    /// Keys in all, at most [`KEYS`].
    pub(crate) keys: usize,
    /// Packets that wait for one key.
    pub(crate) per_key: u16,
    /// Queries may follow as fast as Click's.
    pub(crate) quick: bool,
}

/// The store.
pub(crate) struct Waiting<K> {
    bounds: Bounds,
    /// Linked by `next`: one list a key, and one of the free ones.
    slots: Box<[Slot]>,
    free: u16,
    waits: HashMap<K, Wait>,
    /// Keys, in no order.
    keys: Vec<K>,
    /// Index of the key that had its turn last.
    next: usize,
    /// Number of keys of hosts: in all, and by ingress port.
    host_keys: usize,
    hosts: Box<[u16; INGRESSES]>,
    /// Packets that wait for hosts.
    host_packets: usize,
    random: Rng,
    held: Held,
}

struct Slot {
    packet: Option<Packet>,
    next: u16,
}

/// What waits for one key. Without packets it only remembers when it was queried.
pub(crate) struct Wait {
    head: u16,
    tail: u16,
    count: u16,
    /// Queries of it, as far as they are counted.
    queries: u8,
    share: Share,
    /// Index of its key in `keys`.
    at: usize,
    /// Time at which it was made.
    made_ns: u64,
    /// When the first of its packets came.
    pub(crate) since_ns: u64,
    pub(crate) queried_ns: u64,
    /// When it was given up, if it was.
    pub(crate) failed_ns: Option<u64>,
}

impl Wait {
    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Whether a query is due, which is noted as done.
    pub(crate) fn is_due(&mut self, now_ns: u64) -> bool {
        self.is_due_after(QUERY_NS, now_ns)
    }

    fn is_due_after(&mut self, gap_ns: u64, now_ns: u64) -> bool {
        let time = now_ns.saturating_sub(self.queried_ns) >= gap_ns;
        if time {
            self.queried_ns = now_ns;
            self.queries = self.queries.saturating_add(1);
        }
        time
    }
}

impl<K: Copy + Eq + Hash> Waiting<K> {
    /// Room for so many packets, below 65,535.
    pub(crate) fn new(packets: u16) -> Self {
        Self::bounded(Bounds { packets, keys: KEYS, per_key: PER_KEY, quick: false })
    }

    /// A store of these bounds.
    pub(crate) fn bounded(bounds: Bounds) -> Self {
        let packets = bounds.packets;
        let bounds = Bounds { keys: bounds.keys.clamp(1, KEYS), ..bounds };
        let slot = |i| Slot { packet: None, next: if i + 1 < packets { i + 1 } else { NIL } };
        Self {
            bounds,
            slots: (0..packets).map(slot).collect(),
            free: if packets == 0 { NIL } else { 0 },
            waits: HashMap::with_capacity(bounds.keys),
            keys: Vec::with_capacity(bounds.keys),
            next: 0,
            host_keys: 0,
            hosts: Box::new([0; INGRESSES]),
            host_packets: 0,
            // Who sweeps is not to know which hosts make room.
            random: Rng::new(time::secret_word()),
            held: Held::default(),
        }
    }

    /// List of a key, made if there is room, and whether a query is due. A host may replace another one, whose packets
    /// are given to `drop`.
    pub(crate) fn wait(
        &mut self,
        key: K,
        share: Share,
        now_ns: u64,
        drop: &mut dyn FnMut(Packet),
    ) -> Option<(&mut Wait, bool)> {
        let mut due = false;
        if !self.waits.contains_key(&key) {
            let most = self.bounds.keys;
            let full = match share {
                Share::Host(_) => self.keys.len() == most || self.host_keys == of_hosts(most),
                Share::Gateway => self.keys.len() == most,
            };
            if full && !self.make_room(None, drop) {
                return None;
            }
            if let Some(ingress) = share.ingress() {
                self.host_keys += 1;
                self.hosts[ingress] += 1;
            }
            let (at, made_ns, queried_ns) = (self.keys.len(), now_ns, now_ns);
            let (head, tail, count, queries, failed_ns) = (NIL, NIL, 0, 1, None);
            self.keys.push(key);
            let wait = Wait {
                head,
                tail,
                count,
                queries,
                share,
                at,
                made_ns,
                since_ns: 0,
                queried_ns,
                failed_ns,
            };
            self.waits.insert(key, wait);
            due = true;
        }
        let wait = self.waits.get_mut(&key)?;
        if wait.count == 0 {
            wait.since_ns = now_ns;
        }
        let gap_ns = match wait.queries {
            _ if !self.bounds.quick => QUERY_NS,
            queries if queries < QUICK_QUERIES => QUICK_NS,
            _ => SLOW_NS,
        };
        let due = wait.is_due_after(gap_ns, now_ns) || due;
        Some((wait, due))
    }

    /// Whether one more packet may wait for a key. Other hosts may be replaced for it, whose packets are given to `drop`.
    pub(crate) fn has_room(&mut self, key: K, drop: &mut dyn FnMut(Packet)) -> bool {
        let Some(Wait { count, share, .. }) = self.waits.get(&key) else { return false };
        let host = *share != Share::Gateway;
        if *count >= self.bounds.per_key {
            return false;
        }
        for _ in 0..TRIES {
            let full = self.free == NIL || host && self.host_packets >= of_hosts(self.slots.len());
            if !full {
                return true;
            }
            if !self.make_room(Some(key), drop) {
                return false;
            }
        }
        false
    }

    /// Gives up the first packet of a key for another one; `None` where it has none, or is full itself: the newest
    /// is the one that is wanted (RFC 1122, 2.3.2.2).
    pub(crate) fn replace_first(&mut self, key: K) -> Option<Packet> {
        let wait = self.waits.get_mut(&key)?;
        if wait.count == 0 || wait.count >= self.bounds.per_key {
            return None;
        }
        let at = wait.head;
        let slot = &mut self.slots[usize::from(at)];
        let packet = slot.packet.take().expect("a listed slot holds a packet");
        wait.head = std::mem::replace(&mut slot.next, self.free);
        wait.count -= 1;
        if wait.count == 0 {
            wait.tail = NIL;
        }
        self.free = at;
        self.host_packets -= usize::from(wait.share != Share::Gateway);
        self.held.remove(packet.meta.flags & FLAG_GENERATED != 0);
        Some(packet)
    }

    /// Forgets a host other than `keep`, with its packets; `false` where there is none.
    fn make_room(&mut self, keep: Option<K>, drop: &mut dyn FnMut(Packet)) -> bool {
        if self.host_keys == 0 {
            return false;
        }
        let mut chosen: Option<(u16, u64, K)> = None;
        for _ in 0..SAMPLE.min(self.keys.len()) {
            let key = self.keys[self.random.below(self.keys.len())];
            let wait = &self.waits[&key];
            let Some(ingress) = wait.share.ingress().filter(|_| keep != Some(key)) else {
                continue;
            };
            let (count, made_ns) = (self.hosts[ingress], wait.made_ns);
            if chosen.is_none_or(|(most, oldest, _)| (most, made_ns) < (count, oldest)) {
                chosen = Some((count, made_ns, key));
            }
        }
        // Hardly any host among many gateways: the first that is found.
        let any = || {
            let host = |key: &&K| Some(**key) != keep && self.waits[*key].share != Share::Gateway;
            self.keys.iter().find(host).copied()
        };
        let Some(key) = chosen.map(|(.., key)| key).or_else(any) else { return false };
        self.release(key, drop);
        self.remove(key);
        true
    }

    /// Keeps a packet of a key that has room.
    pub(crate) fn keep(&mut self, key: K, packet: Packet) {
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
        self.host_packets += usize::from(wait.share != Share::Gateway);
    }

    /// Lets all packets of a key go, in order.
    pub(crate) fn release(&mut self, key: K, mut each: impl FnMut(Packet)) {
        let Some(wait) = self.waits.get_mut(&key) else { return };
        let mut at = wait.head;
        if wait.share != Share::Gateway {
            self.host_packets -= usize::from(wait.count);
        }
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

    /// The key whose turn it is, and what is known of it.
    pub(crate) fn turn(&mut self) -> Option<(K, &mut Wait)> {
        self.turn_with_first().map(|(key, wait, _)| (key, wait))
    }

    /// The key whose turn it is, what is known of it, and its first packet.
    pub(crate) fn turn_with_first(&mut self) -> Option<(K, &mut Wait, Option<&Packet>)> {
        self.next = if self.next + 1 < self.keys.len() { self.next + 1 } else { 0 };
        let key = *self.keys.get(self.next)?;
        let wait = self.waits.get_mut(&key).expect("each key in the list is known");
        let first = self.slots.get(usize::from(wait.head)).and_then(|slot| slot.packet.as_ref());
        Some((key, wait, first))
    }

    /// Forgets the key whose turn it was, and which has no packets.
    pub(crate) fn forget(&mut self) {
        if let Some(&key) = self.keys.get(self.next) {
            self.remove(key);
            // Another one has its place, and its turn.
            self.next = self.next.checked_sub(1).unwrap_or(self.keys.len());
        }
    }

    /// Forgets a key that has no packets.
    fn remove(&mut self, key: K) {
        let Some(wait) = self.waits.remove(&key) else { return };
        self.keys.swap_remove(wait.at);
        if let Some(moved) = self.keys.get(wait.at) {
            self.waits.get_mut(moved).expect("each key in the list is known").at = wait.at;
        }
        if let Some(ingress) = wait.share.ingress() {
            self.host_keys -= 1;
            self.hosts[ingress] -= 1;
        }
    }

    /// Forgets a key that has no packets, if it is known.
    pub(crate) fn forget_key(&mut self, key: K) {
        if self.waits.get(&key).is_some_and(Wait::is_empty) {
            self.remove(key);
        }
    }

    /// The keys, each with the time at which it was made.
    pub(crate) fn all(&self) -> impl Iterator<Item = (K, u64)> {
        self.keys.iter().map(|key| (*key, self.waits[key].made_ns))
    }

    /// Lets all packets go.
    pub(crate) fn stop(&mut self, mut each: impl FnMut(Packet)) {
        while let Some(&key) = self.keys.last() {
            self.release(key, &mut each);
            self.remove(key);
        }
    }

    pub(crate) fn held(&self) -> Held {
        self.held
    }

    pub(crate) fn keys(&self) -> usize {
        self.waits.len()
    }
}
