//! Link addresses that were learned: one table for all workers, of which each has its own copy.
//!
//! What changes is written to the table under a lock, and to a log; a worker looks once a batch whether there is
//! something new, and takes it over from there, or the whole table when it was away for long. So packets read a
//! table that nobody else touches. Entries are bounded in number, and so is the log. Times are given from outside.
//!
//! Cost: a lookup is one in a hash table; a change is a lock in the worker that learns and one in each other.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fingerpost_route::Mac;

/// Changes that are remembered for workers that have not seen them.
const LOG: usize = 1024;

/// Between two looks through a full table: a flood of new addresses must not cost one each.
const SWEEP_NS: u64 = 1_000_000_000;

/// When an entry was last confirmed that never grows old.
pub(super) const FOREVER: u64 = u64::MAX;

/// Entry of a neighbor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Neighbor {
    pub(super) mac: Mac,
    /// Time of its last confirmation, or [`FOREVER`].
    pub(super) heard_ns: u64,
}

impl Neighbor {
    /// Time since its last confirmation.
    pub(super) fn age_ns(&self, now_ns: u64) -> u64 {
        now_ns.saturating_sub(self.heard_ns)
    }
}

/// Address of a neighbor.
pub(super) trait Station: Copy + Eq + Hash + Ord + Default + Send + Sync + 'static {}

impl Station for u32 {}
impl Station for u128 {}

#[derive(Default)]
struct State<A> {
    entries: HashMap<A, Neighbor>,
    log: VecDeque<(A, Option<Neighbor>)>,
    /// Number of the first change in the log.
    first: u64,
    /// When old entries were last looked for.
    swept_ns: u64,
}

/// The table.
#[derive(Default)]
pub(super) struct Neighbors<A> {
    state: Mutex<State<A>>,
    /// Changes in all.
    changes: AtomicU64,
    /// Entries at most.
    capacity: AtomicUsize,
}

impl<A: Station> Neighbors<A> {
    /// Room for so many entries; more that are there stay.
    pub(super) fn set_capacity(&self, entries: usize) {
        // Relaxed: no other memory depends on it.
        self.capacity.store(entries, Ordering::Relaxed);
    }

    /// Another table, which begins with the same entries.
    pub(super) fn copy(&self) -> Self {
        let copy = Self::default();
        copy.set_capacity(self.capacity.load(Ordering::Relaxed));
        // A view sees at once that it has missed what no log tells.
        *copy.lock() = State { entries: self.lock().entries.clone(), first: 1, ..State::default() };
        copy.changes.store(1, Ordering::Release);
        copy
    }

    fn lock(&self) -> MutexGuard<'_, State<A>> {
        // An entry is whole whatever panicked beside it, and the log only repeats them.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, state: &mut State<A>, addr: A, entry: Option<Neighbor>) {
        state.log.push_back((addr, entry));
        if state.log.len() > LOG {
            state.log.pop_front();
            state.first += 1;
        }
        let changes = state.first + state.log.len() as u64;
        // Release pairs with the acquire in `follow`.
        self.changes.store(changes, Ordering::Release);
    }

    /// Learns an address. Where all room is taken, what is older than `life_ns` goes first; `false` when nothing is.
    pub(super) fn learn(&self, addr: A, entry: Neighbor, now_ns: u64, life_ns: u64) -> bool {
        let mut state = self.lock();
        if state.entries.get(&addr) == Some(&entry) {
            return true;
        }
        let full = state.entries.len() >= self.capacity.load(Ordering::Relaxed);
        if full && !state.entries.contains_key(&addr) {
            if now_ns.saturating_sub(state.swept_ns) < SWEEP_NS {
                return false;
            }
            state.swept_ns = now_ns;
            let old = |entry: &Neighbor| entry.age_ns(now_ns) >= life_ns;
            let gone: Vec<A> =
                state.entries.iter().filter(|(_, e)| old(e)).map(|(addr, _)| *addr).collect();
            if gone.is_empty() {
                return false;
            }
            for addr in gone {
                state.entries.remove(&addr);
                self.note(&mut state, addr, None);
            }
        }
        state.entries.insert(addr, entry);
        self.note(&mut state, addr, Some(entry));
        true
    }

    /// Forgets an address; whether it was known.
    pub(super) fn forget(&self, addr: A) -> bool {
        let mut state = self.lock();
        let known = state.entries.remove(&addr).is_some();
        if known {
            self.note(&mut state, addr, None);
        }
        known
    }

    /// Forgets all.
    pub(super) fn clear(&self) {
        let mut state = self.lock();
        let all: Vec<A> = state.entries.drain().map(|(addr, _)| addr).collect();
        for addr in all {
            self.note(&mut state, addr, None);
        }
    }

    /// All entries, by address.
    pub(super) fn all(&self) -> Vec<(A, Neighbor)> {
        let mut all: Vec<_> = self.lock().entries.iter().map(|(addr, e)| (*addr, *e)).collect();
        all.sort_unstable_by_key(|entry| entry.0);
        all
    }

    /// Whether an address is known.
    pub(super) fn knows(&self, addr: A) -> bool {
        self.lock().entries.contains_key(&addr)
    }
}

/// A worker's copy.
pub(super) struct View<A> {
    table: Arc<Neighbors<A>>,
    entries: HashMap<A, Neighbor>,
    /// Changes seen.
    seen: u64,
}

impl<A: Station> View<A> {
    pub(super) fn new(table: Arc<Neighbors<A>>) -> Self {
        Self { table, entries: HashMap::new(), seen: 0 }
    }

    /// Takes over what has changed; `learned` gets each address that is known now.
    #[inline]
    pub(super) fn follow(&mut self, learned: &mut dyn FnMut(A)) {
        // Acquire pairs with the release in `note`; the lock orders the rest.
        if self.table.changes.load(Ordering::Acquire) != self.seen {
            self.take_over(learned);
        }
    }

    #[cold]
    fn take_over(&mut self, learned: &mut dyn FnMut(A)) {
        let table = self.table.clone();
        let state = table.lock();
        let end = state.first + state.log.len() as u64;
        match self.seen.checked_sub(state.first).and_then(|missed| usize::try_from(missed).ok()) {
            Some(from) => {
                for &(addr, entry) in state.log.iter().skip(from) {
                    match entry {
                        Some(entry) => {
                            self.entries.insert(addr, entry);
                            learned(addr);
                        }
                        None => {
                            self.entries.remove(&addr);
                        }
                    }
                }
            }
            None => {
                self.entries.clone_from(&state.entries);
                self.entries.keys().for_each(|&addr| learned(addr));
            }
        }
        self.seen = end;
    }

    #[inline]
    pub(super) fn get(&self, addr: A) -> Option<Neighbor> {
        self.entries.get(&addr).copied()
    }

    pub(super) fn table(&self) -> &Neighbors<A> {
        &self.table
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn entry(n: u8, heard_ns: u64) -> Neighbor {
        Neighbor { mac: Mac([2, 0, 0, 0, 0, n]), heard_ns }
    }

    #[test]
    fn room_is_for_the_young() {
        let table = Neighbors::<u32>::default();
        table.set_capacity(2);
        const S: u64 = 1_000_000_000;
        let learn = |addr, entry: Neighbor, at| table.learn(addr, entry, at * S, 100 * S);
        assert!(learn(1, entry(1, 10 * S), 10) && learn(2, entry(2, 20 * S), 20));
        assert!(!learn(3, entry(3, 50 * S), 50), "nothing is old");
        assert!(learn(2, entry(4, 60 * S), 60), "one more of the same is none more");
        assert!(learn(3, entry(3, 110 * S), 110));
        assert_eq!(table.all(), [(2, entry(4, 60 * S)), (3, entry(3, 110 * S))]);
        assert!(!table.learn(4, entry(4, 0), 110 * S + 1, 1), "looked for a moment ago");
        assert!(learn(2, entry(4, FOREVER), 120) && learn(3, entry(3, FOREVER), 120));
        assert!(!learn(4, entry(4, 0), 10_000_000_000), "these never grow old");
        assert!(table.forget(2) && !table.forget(2) && table.knows(3) && !table.knows(2));
    }

    #[derive(Clone, Debug)]
    enum Op {
        Learn(u32, u8),
        Forget(u32),
        Clear,
        Follow(usize),
    }

    proptest! {
        #[test]
        fn views_become_the_table(ops in prop::collection::vec(
            prop_oneof![
                5 => (0..30_u32, any::<u8>()).prop_map(|(addr, n)| Op::Learn(addr, n)),
                3 => (0..30_u32).prop_map(Op::Forget),
                1 => Just(Op::Clear),
                2 => (0..2_usize).prop_map(Op::Follow),
            ],
            0..200,
        ), many in any::<bool>()) {
            let table = Arc::new(Neighbors::<u32>::default());
            table.set_capacity(20);
            let mut views = [View::new(table.clone()), View::new(table.clone())];
            // So many that the log has forgotten what one of them missed.
            let times = if many { 40 } else { 1 };
            for op in ops.iter().cycle().take(ops.len() * times) {
                match *op {
                    Op::Learn(addr, n) => {
                        table.learn(addr, entry(n, 0), 0, 1);
                    }
                    Op::Forget(addr) => {
                        table.forget(addr);
                    }
                    Op::Clear => table.clear(),
                    Op::Follow(n) if n == 0 || !many => views[n].follow(&mut |_| ()),
                    Op::Follow(_) => {}
                }
                prop_assert!(table.all().len() <= 20 && table.lock().log.len() <= LOG);
            }
            for view in &mut views {
                let before = view.entries.clone();
                let mut reported = Vec::new();
                view.follow(&mut |addr| reported.push(addr));
                let mut seen: Vec<_> = view.entries.clone().into_iter().collect();
                seen.sort_unstable_by_key(|entry| entry.0);
                prop_assert_eq!(&seen, &table.all());
                let new = seen.iter().filter(|(addr, entry)| before.get(addr) != Some(entry));
                prop_assert!(new.clone().all(|(addr, _)| reported.contains(addr)));
            }
        }
    }
}
