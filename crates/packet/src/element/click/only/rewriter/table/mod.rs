//! Table of the flows of rewriters: a lookup by the ends of a packet, in either direction.
//!
//! A flow stays until it was silent for a time, or until it is the first to end of a full table and nothing guarantees
//! it any more. Rewriters that share a capacity share a table.
//!
//! A rewriter changes ports and addresses, so the hash of replies has nothing of that of the first packet, and neither
//! a symmetric hash nor the hash of a NIC brings both directions to one worker, unless ports are chosen by their hash,
//! of which patterns with few ports, or one, leave no choice. So all workers share a table, in parts by the hash of a
//! key (`shard.rs`), each with its lock. A flow is in the part of its first packet; the part of its replies has its
//! number. Where one worker runs there is one part, whose lock is taken once a batch; else there are four a worker, and a
//! batch takes each at most twice for its packets of known flows (`stages.rs`). Another packet takes one lock, a reply at
//! most two, one after the other. A new flow also holds one of 64 locks, by its destination, so that nobody else takes the
//! same port. No lock of a part is waited for while another is held.
//!
//! What the index has under a hash may be gone, or another flow: each is compared with the whole key.
//!
//! Memory: 64 bytes a flow and 16 for its two keys in the index, which is 40 to 80 % full: 84 to 104 bytes in all,
//! taken as flows come and kept, for as many as the capacity allows. Cost: a packet of a known flow reads two cache
//! lines that may not be in the cache, which are prefetched a batch ahead; a new flow reads six. No step is longer than some
//! thousand lookups, whatever the table holds. A full table of several parts gives up the first to end of the new flow's own
//! part.

mod chunks;
mod flow;
mod full;
mod index;
mod search;
mod shard;
#[cfg(test)]
mod tests;

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, OnceLock};

pub(crate) use flow::{Flow, Key, Times};
pub(crate) use index::Line;

use super::lock;
use super::pattern::{FlowId, Words};
use super::tcp::Deltas;
use flow::NONE;
use full::Full;
pub(crate) use shard::Shard;

/// Flows that a table has unless configured otherwise.
const CAPACITY: usize = 1 << 20;

/// Parts for each worker, where there are several.
const SHARDS: usize = 4;
pub(crate) const MOST_PARTS: usize = 64;

/// Locks for adding flows, by destination.
const MAKERS: usize = 64;

/// Flows that have ended and are removed when one is added.
const REAPED: usize = 2;

/// Times that a new flow looks for a place, beside others who take it.
const TRIES: usize = 4;

/// A flow that was found, and whether by its replies. It is known until the session finds another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Found {
    shard: usize,
    at: u32,
    pub(crate) reply: bool,
}

/// The table.
pub(crate) struct Table {
    shards: OnceLock<Box<[Mutex<Shard>]>>,
    workers: AtomicUsize,
    capacity: AtomicUsize,
    len: AtomicUsize,
    makers: [Mutex<()>; MAKERS],
    full: Full,
    hasher: Hasher,
}

/// Hashes keys, by random seeds: a sender cannot choose flows that collide.
#[derive(Clone, Copy)]
pub(crate) struct Hasher([u64; 2]);

impl Default for Table {
    fn default() -> Self {
        let random = RandomState::new();
        Self {
            shards: OnceLock::new(),
            workers: AtomicUsize::new(1),
            capacity: AtomicUsize::new(CAPACITY),
            len: AtomicUsize::new(0),
            makers: [const { Mutex::new(()) }; MAKERS],
            full: Full::default(),
            hasher: Hasher([random.hash_one(1), random.hash_one(2) | 1]),
        }
    }
}

/// Product of two words, folded: each bit of it depends on all of theirs.
#[inline]
#[allow(clippy::cast_possible_truncation, reason = "takes the halves of the product")]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

impl Hasher {
    /// Hash of a key by its parts: [`Key::kind`], and its ends.
    #[inline(always)]
    pub(crate) fn hash(self, kind: u32, ends: Words) -> u64 {
        let rest = u64::from(ends.ports) << 32 | u64::from(kind);
        let Self([a, b]) = self;
        fold(fold(ends.addrs ^ a, rest ^ b) ^ a, b)
    }
}

impl Table {
    /// Sets the number of workers, at least; called before the first flow.
    pub(crate) fn use_workers(&self, workers: usize) {
        self.workers.fetch_max(workers, Relaxed);
    }

    pub(crate) fn len(&self) -> usize {
        self.len.load(Relaxed)
    }

    pub(crate) fn capacity(&self) -> usize {
        self.capacity.load(Relaxed)
    }

    /// Bytes of memory.
    pub(crate) fn bytes(&self) -> usize {
        self.shards.get().map_or(0, |shards| shards.iter().map(|shard| lock(shard).bytes()).sum())
    }

    /// Sets the capacity; the first to end make room.
    pub(crate) fn set_capacity(&self, capacity: usize) {
        self.capacity.store(capacity, Relaxed);
        let Some(shards) = self.shards.get() else { return };
        while self.len() > capacity {
            let firsts = shards.iter().zip(0..).filter_map(|(shard, number)| {
                lock(shard).first(None).map(|(ends_ns, at)| (ends_ns, number, at))
            });
            let Some((_, shard, at)) = firsts.min() else { return };
            self.session().remove_at(shard, at);
        }
    }

    /// All flows of an owner.
    pub(crate) fn each(&self, owner: u16, visit: &mut dyn FnMut(&Flow)) {
        for shard in self.shards.get().into_iter().flatten() {
            let shard = lock(shard);
            shard
                .each()
                .map(|(_, flow)| flow)
                .filter(|flow| flow.key().owner == owner)
                .for_each(&mut *visit);
        }
    }

    /// Ends all flows of an owner.
    pub(crate) fn clear(&self, owner: u16) {
        let shards = self.shards.get().map_or(0, |shards| shards.len());
        let mut session = self.session();
        for number in 0..shards {
            let shard = session.shard(number);
            let of = |(at, flow): (u32, &Flow)| (flow.key().owner == owner).then_some(at);
            let flows: Vec<u32> = shard.each().filter_map(of).collect();
            flows.into_iter().for_each(|at| session.remove_at(number, at));
        }
    }

    /// Use of the table for a while, by one thread.
    pub(crate) fn session(&self) -> Session<'_> {
        let shards = self.shards.get_or_init(|| {
            let count = match self.workers.load(Relaxed) {
                0 | 1 => 1,
                workers => (workers * SHARDS).next_power_of_two().min(MOST_PARTS),
            };
            (0..count).map(|_| Mutex::default()).collect()
        });
        Session {
            table: self,
            shards,
            parts: Parts { bits: shards.len().trailing_zeros() },
            held: None,
            searches: false,
            freed: Vec::new(),
            #[cfg(test)]
            looks: 0,
        }
    }

    #[inline(always)]
    pub(crate) fn hash(&self, key: &Key) -> u64 {
        self.hasher.hash(key.kind(), key.id.words())
    }

    /// Hasher of its keys.
    pub(crate) fn hasher(&self) -> Hasher {
        self.hasher
    }

    /// Who holds it alone makes flows whose packets are sent to `to`'s destination.
    pub(crate) fn maker(&self, key: &Key, to: FlowId) -> MutexGuard<'_, ()> {
        let remote = FlowId { src: 0, sport: 0, ..to };
        #[allow(clippy::cast_possible_truncation, reason = "any bits do")]
        let at = self.hash(&Key { id: remote, ..*key }) as usize % MAKERS;
        lock(&self.makers[at])
    }
}

/// What the index has of a flow, for a direction of its packets: its place above its part and the direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Number(u32);

impl Number {
    /// None that a flow has.
    pub(crate) const NONE: Self = Self(NONE);

    fn new(parts: Parts, part: usize, at: u32, reply: bool) -> Self {
        Self((at << parts.bits | u32::try_from(part).unwrap_or(0)) << 1 | u32::from(reply))
    }

    /// Whether it is for the replies.
    #[inline(always)]
    pub(crate) fn is_reply(self) -> bool {
        self.0 & 1 == 1
    }

    /// The part of the table that has the flow.
    #[inline(always)]
    pub(crate) fn part(self, parts: Parts) -> usize {
        (self.0 >> 1) as usize & (parts.count() - 1)
    }

    /// Its place in that.
    #[inline(always)]
    pub(crate) fn at(self, parts: Parts) -> u32 {
        self.0 >> 1 >> parts.bits
    }
}

/// How many parts a table has: a power of 2.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Parts {
    bits: u32,
}

impl Parts {
    /// One part alone.
    pub(crate) const ONE: Self = Self { bits: 0 };

    #[inline(always)]
    pub(crate) fn count(self) -> usize {
        1 << self.bits
    }

    /// The part whose index has a key of this hash.
    #[inline(always)]
    pub(crate) fn of(self, hash: u64) -> usize {
        halves(hash).1 & (self.count() - 1)
    }

    /// Most flows of a part: others would have no number.
    fn most_flows(self) -> u32 {
        NONE >> 1 >> self.bits
    }
}

/// Use of a table by one thread. It holds the lock of one part at a time, and keeps it until it needs another.
pub(crate) struct Session<'a> {
    table: &'a Table,
    shards: &'a [Mutex<Shard>],
    parts: Parts,
    held: Option<(usize, MutexGuard<'a, Shard>)>,
    /// Whether it is searching for a free value.
    searches: bool,
    /// Keys of the replies of flows that ended meanwhile.
    freed: Vec<Key>,
    /// Values that searches looked at.
    #[cfg(test)]
    looks: u64,
}

#[inline(always)]
#[allow(
    clippy::cast_possible_truncation,
    reason = "the low half is the tag, the high one names the part"
)]
fn halves(hash: u64) -> (u32, usize) {
    (hash as u32, (hash >> 32) as usize)
}

/// Stages of a lookup, each for many packets before the next.
impl Shard {
    /// Prefetches the line of the index that has a key's hash, and gives it for [`Self::number`].
    #[inline(always)]
    pub(crate) fn line(&self, hash: u64) -> &Line {
        self.index.ahead(halves(hash).0)
    }

    /// The number that is most likely that of a key's hash.
    #[inline(always)]
    pub(crate) fn number(&self, line: &Line, hash: u64) -> Number {
        Number(self.index.likely(line, halves(hash).0).unwrap_or(NONE))
    }

    /// Prefetches the flow of a number of this part. Of another number there may be none, or any.
    #[inline(always)]
    pub(crate) fn ahead(&self, number: Number, parts: Parts) -> Option<&Flow> {
        self.place(number.at(parts))
    }
}

impl<'a> Session<'a> {
    pub(crate) fn table(&self) -> &'a Table {
        self.table
    }

    /// Whether others may change the table meanwhile.
    pub(crate) fn is_shared(&self) -> bool {
        self.shards.len() > 1
    }

    /// Gives back the lock that it holds: before it waits for another that is none of a part.
    pub(crate) fn release(&mut self) {
        self.held = None;
    }

    /// A part, whose lock it holds from then on.
    #[inline]
    pub(crate) fn shard(&mut self, at: usize) -> &mut Shard {
        if self.held.as_ref().is_none_or(|(held, _)| *held != at) {
            // The old one first: nobody waits for one lock with another in hand.
            self.held = None;
            self.held = Some((at, lock(&self.shards[at])));
        }
        &mut self.held.as_mut().expect("just taken").1
    }

    /// Tag and part of a key, by its hash.
    #[inline]
    fn place_of(&self, hash: u64) -> (u32, usize) {
        (halves(hash).0, self.parts.of(hash))
    }

    #[inline]
    fn place(&self, key: &Key) -> (u32, usize) {
        self.place_of(self.table.hash(key))
    }

    /// Hash of a key, for [`Self::find_by`].
    #[inline]
    pub(crate) fn hash(&self, key: &Key) -> u64 {
        self.table.hash(key)
    }

    /// The parts of the table.
    pub(crate) fn parts(&self) -> Parts {
        self.parts
    }

    /// The flow of a packet, which has not ended.
    #[inline]
    pub(crate) fn find(&mut self, key: &Key, now_ns: u64) -> Option<Found> {
        self.find_by(self.hash(key), key, now_ns)
    }

    /// The flow of a packet, by the hash of its key.
    #[inline]
    pub(crate) fn find_by(&mut self, hash: u64, key: &Key, now_ns: u64) -> Option<Found> {
        loop {
            let found = self.look_up(hash, key)?;
            if self.shard(found.shard).ends_ns(found.at) > now_ns {
                return Some(found);
            }
            self.remove(found);
        }
    }

    /// The flow of a key, whose part is held then.
    #[inline]
    fn look_up(&mut self, hash: u64, key: &Key) -> Option<Found> {
        let (tag, own) = self.place_of(hash);
        let parts = self.parts;
        let shard = &*self.shard(own);
        let mut found = None;
        // Few keys share a tag.
        let mut others = [Number::NONE; 8];
        let mut other = 0;
        shard.index.find(tag, |number| {
            let number = Number(number);
            if number.part(parts) != own {
                if let Some(place) = others.get_mut(other) {
                    (*place, other) = (number, other + 1);
                }
                return false;
            }
            let at = number.at(parts);
            let is = shard.is(at, number.is_reply(), key);
            found = is.map(|reply| Found { shard: own, at, reply });
            found.is_some()
        });
        if found.is_some() {
            return found;
        }
        others[..other].iter().find_map(|&number| {
            let (shard, at) = (number.part(parts), number.at(parts));
            let is = self.shard(shard).is(at, number.is_reply(), key);
            is.map(|reply| Found { shard, at, reply })
        })
    }

    /// The flow that was found last.
    #[inline]
    pub(crate) fn flow(&mut self, found: Found) -> &mut Flow {
        self.shard(found.shard).flow(found.at)
    }

    /// Changes of the data of the flow that was found last.
    pub(crate) fn deltas(&mut self, found: Found) -> &mut [Deltas; 2] {
        self.shard(found.shard).deltas(found.at)
    }

    /// Notes that a packet of the flow that was found last came.
    #[inline]
    pub(crate) fn touch(&mut self, found: Found, times: Times, now_ns: u64) {
        self.shard(found.shard).touch(found.at, times, now_ns);
    }

    /// Adds a flow whose replies are no other's; `None` where the table is full of flows that stay. Gives the flow of
    /// the key where another worker has just added it.
    pub(crate) fn add(&mut self, flow: Flow, times: Times, now_ns: u64) -> Option<Found> {
        let (key, reply_key) = (flow.key(), flow.reply_key());
        let hash = self.hash(&key);
        let (tag, home) = self.place_of(hash);
        self.reserve(home, now_ns)?;
        for _ in 0..REAPED {
            let Some(at) = self.shard(home).ended(now_ns) else { break };
            self.end(home, at);
        }
        if self.is_shared()
            && let Some(known) = self.look_up(hash, &key).filter(|found| found.shard == home)
        {
            self.table.len.fetch_sub(1, Relaxed);
            return Some(known);
        }
        let most = self.parts.most_flows();
        let Some(at) = self.shard(home).insert(flow, times, now_ns, most) else {
            self.table.len.fetch_sub(1, Relaxed);
            return None;
        };
        let number = |reply| Number::new(self.parts, home, at, reply).0;
        let (number, reply_number) = (number(false), number(true));
        let (reply_tag, other) = self.place(&reply_key);
        let indexed = self.shard(home).index.insert(tag, number)
            && self.shard(other).index.insert(reply_tag, reply_number);
        if !indexed {
            self.remove_at(home, at);
            return None;
        }
        Some(Found { shard: home, at, reply: false })
    }

    /// Counts a flow that will be added, and makes place for it.
    fn reserve(&mut self, home: usize, now_ns: u64) -> Option<()> {
        for _ in 0..TRIES {
            if self.table.len.fetch_add(1, Relaxed) < self.table.capacity() {
                return Some(());
            }
            self.table.len.fetch_sub(1, Relaxed);
            let count = self.shards.len();
            let first = (0..count).find_map(|step| {
                let shard = (home + step) % count;
                self.shard(shard).first(Some(now_ns)).map(|(_, at)| (shard, at))
            });
            let (shard, at) = first?;
            self.end(shard, at);
        }
        None
    }

    /// Ends the first flow of a list, and prefetches what the end of the next one will read: ends come one after the
    /// other.
    fn end(&mut self, shard: usize, at: u32) {
        let list = self.shard(shard).flow(at).list;
        self.remove_at(shard, at);
        let Some(next) = self.shard(shard).head(list) else { return };
        let keys = [next.key(), next.reply_key()];
        for key in keys {
            let (tag, part) = self.place(&key);
            if part == shard {
                let _ = self.shard(shard).index.ahead(tag);
            }
        }
    }

    /// Ends a flow that was found.
    pub(crate) fn remove(&mut self, found: Found) {
        self.remove_at(found.shard, found.at);
    }

    fn remove_at(&mut self, shard: usize, at: u32) {
        let Some(flow) = self.shard(shard).take(at) else { return };
        for (key, reply) in [(flow.key(), false), (flow.reply_key(), true)] {
            let (tag, part) = self.place(&key);
            let number = Number::new(self.parts, shard, at, reply);
            self.shard(part).index.remove(tag, number.0);
        }
        self.table.len.fetch_sub(1, Relaxed);
        if self.searches {
            self.freed.push(flow.reply_key());
        } else if !self.table.full.is_idle() {
            self.release();
            self.table.full.open(flow.reply_key());
        }
    }
}
