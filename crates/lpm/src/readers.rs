//! Readers of a table that is changed meanwhile, for programs without a packet loop.
//!
//! The writer changes a structure in place, and now and then replaces it. Both must not disturb a
//! lookup in progress, and no lookup may wait:
//!
//! - *In place.* A reader announces the epoch it saw when it begins and that it is away when it ends.
//!   What the writer unlinks is used again when every reader is away or announced a later epoch
//!   (epoch-based reclamation: Fraser, 2004).
//! - *Replaced.* The writer puts the new structure into a box of each reader, who takes it when it
//!   begins. Each reader has two boxes, filled in turn: while the writer is at one, the structure
//!   before, whose change has returned to its caller, is in the other.
//!
//! Cost: a lookup alone pays a fence and four accesses to lines that are rarely written by others;
//! [`LpmReader::pin`] pays it once for as many lookups as one likes. No unsafe code; the same scheme
//! as decision 0002, but for readers that come and go.
//!
//! Of a structure that was replaced the writer keeps a count, so that readers never pay for freeing
//! it. A reader that does nothing keeps the one it saw last alive, but holds up nothing else.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::ops::Deref;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use core::sync::atomic::{AtomicU64, fence};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::addr::Addr;
use crate::lookup::{Epoch, Grace, KernelReader, Lookup};
use crate::next_hop_id::NextHopId;

/// Announced by a reader that reads nothing.
const AWAY: u64 = u64::MAX;

/// What writer and one reader share. Lines of its own: a reader must not slow its neighbors.
#[repr(align(128))]
struct Desk<A: Addr> {
    announced: AtomicU64,
    /// Number of the newest structure that is in its box, `boxes[number % 2]`, or was.
    newest: AtomicU64,
    /// Structures that the reader has not taken, with their numbers.
    boxes: [Mutex<Option<Numbered<A>>>; 2],
}

/// A structure, and how many were put into the boxes of a reader up to it.
type Numbered<A> = (u64, Arc<dyn Lookup<A>>);

impl<A: Addr> Desk<A> {
    /// Puts a structure into the box whose turn it is. The count of the one before is not the last one.
    fn put(&self, lookup: Arc<dyn Lookup<A>>) {
        let number = self.newest.load(Relaxed) + 1;
        let [this, other] = [number, number + 1].map(|n| &self.boxes[(n % 2) as usize]);
        *hold(this) = Some((number, lookup));
        // Release pairs with the acquires in `pin` and `take`.
        self.newest.store(number, Release);
        // Only now: until then a reader must find the one before.
        *hold(other) = None;
    }

    /// The newest structure, if it is later than `taken`.
    fn take(&self, taken: u64) -> Option<Numbered<A>> {
        loop {
            let newest = self.newest.load(Acquire);
            if newest <= taken {
                return None;
            }
            // Where the writer is at this box or has emptied it, there is a later number, and the other box.
            let boxed = self.boxes[(newest % 2) as usize].try_lock();
            if let Some(found) = boxed.ok().and_then(|mut boxed| boxed.take()) {
                return Some(found);
            }
            core::hint::spin_loop();
        }
    }
}

struct Shared<A: Addr> {
    /// Counts retirements; the writer alone advances it.
    epoch: AtomicU64,
    desks: Mutex<Desks<A>>,
}

/// Who reads, and what a new reader begins with.
struct Desks<A: Addr> {
    latest: Arc<dyn Lookup<A>>,
    desks: Vec<Arc<Desk<A>>>,
}

/// Nothing panics while holding one of our locks, and each holds a whole value at any moment.
fn hold<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The writer's end.
pub(crate) struct Readers<A: Addr> {
    shared: Arc<Shared<A>>,
    /// What some reader may still hold.
    replaced: Vec<Arc<dyn Lookup<A>>>,
    kernel_reader: Option<Box<dyn KernelReader<Arc<dyn Lookup<A>>>>>,
}

impl<A: Addr> Readers<A> {
    /// Readers will begin with `latest`.
    pub(crate) fn new(latest: Arc<dyn Lookup<A>>) -> Self {
        let desks = Mutex::new(Desks { latest, desks: Vec::new() });
        let shared = Arc::new(Shared { epoch: AtomicU64::new(1), desks });
        Self { shared, replaced: Vec::new(), kernel_reader: None }
    }

    /// Brings a reader in the kernel to the present structure, and to each that follows, in the place of the one
    /// before.
    pub(crate) fn set_kernel_reader(
        &mut self,
        mut kernel_reader: Box<dyn KernelReader<Arc<dyn Lookup<A>>>>,
    ) {
        kernel_reader.follow(&hold(&self.shared.desks).latest.clone());
        self.kernel_reader = Some(kernel_reader);
    }

    /// Every reader that begins after this call sees `lookup`.
    pub(crate) fn replace(&mut self, lookup: Arc<dyn Lookup<A>>) {
        if let Some(kernel_reader) = &mut self.kernel_reader {
            kernel_reader.follow(&lookup);
        }
        let mut desks = hold(&self.shared.desks);
        for desk in &desks.desks {
            desk.put(Arc::clone(&lookup));
        }
        self.replaced.push(core::mem::replace(&mut desks.latest, lookup));
        drop(desks);
        self.replaced.retain(|lookup| Arc::strong_count(lookup) > 1);
    }

    /// A reader; its first lookup sees what was last put down.
    pub(crate) fn reader(&self) -> LpmReader<A> {
        LpmReader::new(Arc::clone(&self.shared))
    }
}

impl<A: Addr> Grace for Readers<A> {
    fn retire(&mut self) -> Epoch {
        // SeqCst orders it after the unlinking stores; it pairs with the load in `pin`.
        let epoch = Epoch(self.shared.epoch.fetch_add(1, SeqCst) + 1);
        if let Some(kernel_reader) = &mut self.kernel_reader {
            kernel_reader.mark(epoch);
        }
        epoch
    }

    fn passed(&self, epoch: Epoch) -> bool {
        // Pairs with the fence in `pin`: either we see what the beginning reader announced, or it
        // sees what was unlinked before.
        fence(SeqCst);
        let desks = hold(&self.shared.desks);
        // Acquire pairs with the release of `Pinned::drop`: what the reader read, it read before.
        desks.desks.iter().all(|desk| desk.announced.load(Acquire) >= epoch.0)
            && self.kernel_reader.as_ref().is_none_or(|reader| reader.passed(epoch))
    }
}

/// One reader of an [`LpmTable`](crate::LpmTable); a clone is another one, for another thread.
///
/// Lookups never wait, whatever the writer does, and see every change that returned before they
/// began.
///
/// ```
/// use fingerpost_lpm::{LpmTable, NextHopId};
/// let mut table = LpmTable::<u32>::new();
/// table.insert("10.0.0.0/8".parse()?, NextHopId(1))?;
/// let mut reader = table.reader();
/// let thread = std::thread::spawn(move || reader.lookup(0x0a01_0203));
/// assert_eq!(thread.join().unwrap(), NextHopId(1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct LpmReader<A: Addr> {
    shared: Arc<Shared<A>>,
    desk: Arc<Desk<A>>,
    /// Number of the structure, at this reader's boxes.
    taken: u64,
    lookup: Arc<dyn Lookup<A>>,
}

impl<A: Addr> LpmReader<A> {
    fn new(shared: Arc<Shared<A>>) -> Self {
        let desk = Arc::new(Desk {
            announced: AtomicU64::new(AWAY),
            newest: AtomicU64::new(0),
            boxes: [const { Mutex::new(None) }; 2],
        });
        let mut desks = hold(&shared.desks);
        desks.desks.push(Arc::clone(&desk));
        let lookup = Arc::clone(&desks.latest);
        drop(desks);
        Self { shared, desk, taken: 0, lookup }
    }

    /// The present state, for any number of lookups; take it anew to see later changes. While it is
    /// held the writer cannot use again what it unlinks, so do not keep it for long.
    #[inline]
    pub fn pin(&mut self) -> Pinned<'_, A> {
        // Acquire pairs with `retire`: having seen the epoch, what was unlinked before is not found.
        let epoch = self.shared.epoch.load(Acquire);
        self.desk.announced.store(epoch, Relaxed);
        // From here on the writer waits for us; pairs with the fence in `passed`.
        fence(SeqCst);
        // Acquire pairs with the release in `put`.
        if self.desk.newest.load(Acquire) > self.taken {
            self.refresh();
        }
        Pinned { desk: &self.desk, lookup: &*self.lookup }
    }

    /// The next hop of `addr`; [`NextHopId::NONE`] when no prefix covers it.
    #[inline]
    pub fn lookup(&mut self, addr: A) -> NextHopId {
        self.pin().lookup(addr)
    }

    /// Looks up many addresses, in order; overlaps the cache misses. All see the same state of replaced
    /// structures, and each a state of its own of one that is changed in place.
    ///
    /// # Panics
    /// If `out` is shorter than `addrs`.
    #[inline]
    pub fn lookup_batch(&mut self, addrs: &[A], out: &mut [NextHopId]) {
        self.pin().lookup_batch(addrs, out);
    }

    #[cold]
    fn refresh(&mut self) {
        if let Some(newer) = self.desk.take(self.taken) {
            // The writer has a count of the old one, so this frees nothing unless the table is gone.
            (self.taken, self.lookup) = newer;
        }
    }
}

impl<A: Addr> Clone for LpmReader<A> {
    fn clone(&self) -> Self {
        Self::new(Arc::clone(&self.shared))
    }
}

impl<A: Addr> Drop for LpmReader<A> {
    fn drop(&mut self) {
        hold(&self.shared.desks).desks.retain(|desk| !Arc::ptr_eq(desk, &self.desk));
    }
}

impl<A: Addr> fmt::Debug for LpmReader<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LpmReader").finish_non_exhaustive()
    }
}

/// A state that a reader holds for several lookups; see [`LpmReader::pin`].
pub struct Pinned<'a, A: Addr> {
    desk: &'a Desk<A>,
    lookup: &'a dyn Lookup<A>,
}

impl<'a, A: Addr> Deref for Pinned<'a, A> {
    type Target = dyn Lookup<A> + 'a;

    fn deref(&self) -> &Self::Target {
        self.lookup
    }
}

impl<A: Addr> Drop for Pinned<'_, A> {
    #[inline]
    fn drop(&mut self) {
        // Release pairs with `passed`.
        self.desk.announced.store(AWAY, Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::find_v4;
    use crate::routes::RouteStore;
    use crate::{Heap, Prefix};
    use core::sync::atomic::{AtomicBool, AtomicUsize};
    use std::thread;

    fn of(hop: u32) -> Arc<dyn Lookup<u32>> {
        let routes: RouteStore<u32> = [(Prefix::ALL, NextHopId(hop))].into_iter().collect();
        find_v4("bsearch").unwrap().build(&routes, &mut Heap).unwrap().publish()
    }

    #[test]
    fn an_epoch_passes_when_every_reader_began_later_or_is_away() {
        let mut readers = Readers::new(of(1));
        let (mut a, mut b) = (readers.reader(), readers.reader());
        let epoch = readers.retire();
        assert!(readers.passed(epoch), "nobody reads");
        let held = a.pin();
        assert!(readers.passed(epoch), "it began later");
        let epoch = readers.retire();
        assert!(!readers.passed(epoch));
        let other = b.pin();
        drop(held);
        assert!(readers.passed(epoch));
        drop(other);
        // What is forgotten holds things up until the reader ends; nothing worse.
        core::mem::forget(a.pin());
        let epoch = readers.retire();
        assert!(!readers.passed(epoch));
        drop(a);
        assert!(readers.passed(epoch));
    }

    #[test]
    fn replaced_structures_are_seen_and_freed_by_the_writer() {
        let mut readers = Readers::new(of(1));
        let mut reader = readers.reader();
        assert_eq!(reader.lookup(7), NextHopId(1));
        readers.replace(of(2));
        let mut late = reader.clone();
        assert_eq!((late.lookup(7), reader.lookup(7)), (NextHopId(2), NextHopId(2)));
        let held = reader.pin();
        readers.replace(of(3));
        assert_eq!((late.lookup(7), held.lookup(7)), (NextHopId(3), NextHopId(2)));
        drop(held);
        readers.replace(of(4));
        assert_eq!(readers.replaced.len(), 2, "one holds 2, the other 3");
        assert_eq!((late.lookup(7), reader.lookup(7)), (NextHopId(4), NextHopId(4)));
        readers.replace(of(5));
        assert_eq!(readers.replaced.len(), 1, "both hold 4");
        drop((late, reader));
        readers.replace(of(6));
        assert_eq!(readers.replaced.len(), 0);
        assert_eq!(readers.reader().lookup(7), NextHopId(6));
    }

    /// Ends what it has begun only up to an epoch.
    struct Slow(Arc<Mutex<(Vec<usize>, u64)>>);

    impl KernelReader<Arc<dyn Lookup<u32>>> for Slow {
        fn follow(&mut self, lookup: &Arc<dyn Lookup<u32>>) {
            hold(&self.0).0.push(lookup.lookup(7).index());
        }
        fn mark(&mut self, _: Epoch) {}
        fn passed(&self, epoch: Epoch) -> bool {
            hold(&self.0).1 >= epoch.0
        }
    }

    #[test]
    fn a_kernel_reader_follows_and_holds_up_reuse() {
        let mut readers = Readers::new(of(1));
        let mut reader = readers.reader();
        let state = Arc::new(Mutex::new((Vec::new(), 0)));
        readers.set_kernel_reader(Box::new(Slow(state.clone())));
        readers.replace(of(2));
        assert_eq!(hold(&state).0, [1, 2]);
        assert_eq!(reader.lookup(7), NextHopId(2));
        let epoch = readers.retire();
        assert!(!readers.passed(epoch));
        hold(&state).1 = epoch.0;
        assert!(readers.passed(epoch));
    }

    #[test]
    fn a_change_that_returned_is_seen_while_the_writer_is_at_the_next_one() {
        let mut readers = Readers::new(of(1));
        let mut reader = readers.reader();
        let desk = Arc::clone(&reader.desk);
        readers.replace(of(2));
        // The writer begins with the third.
        let writing = hold(&desk.boxes[0]);
        assert_eq!(reader.lookup(7), NextHopId(2));
        drop(writing);
        readers.replace(of(3));
        assert_eq!(reader.lookup(7), NextHopId(3));
        // It has put the fourth down, and not returned: the reader may have it, and takes it once.
        *hold(&desk.boxes[1]) = Some((3, of(4)));
        assert_eq!(reader.lookup(7), NextHopId(3));
        desk.newest.store(3, Release);
        assert_eq!((reader.lookup(7), reader.lookup(7)), (NextHopId(4), NextHopId(4)));
        assert!(desk.boxes.iter().all(|boxed| hold(boxed).is_none()), "nothing is kept");
    }

    #[test]
    fn every_change_that_returned_is_seen() {
        let (said, done) = (AtomicUsize::new(0), AtomicBool::new(false));
        let mut readers = Readers::new(of(1));
        thread::scope(|scope| {
            for _ in 0..3 {
                let mut reader = readers.reader();
                let (said, done) = (&said, &done);
                scope.spawn(move || {
                    let mut rounds = 0;
                    while rounds < 100 || !done.load(SeqCst) {
                        rounds += 1;
                        let least = said.load(SeqCst);
                        assert!(reader.lookup(rounds).index() >= least, "an answer of before");
                        if rounds % 64 == 0 {
                            reader = reader.clone();
                        }
                    }
                });
            }
            for hop in 2..2000 {
                readers.replace(of(hop));
                said.store(hop as usize, SeqCst);
            }
            done.store(true, SeqCst);
        });
    }
}
