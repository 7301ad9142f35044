//! How the one writer and many readers meet: a published value, and epochs for reuse in place.
//!
//! Readers keep a shared pointer to the value and look once a batch whether there is a newer one;
//! looking is two loads and a store, never a wait: when the writer is in the middle of putting a new
//! value down, the reader keeps the one it has. The value itself is freed by its reference
//! count. What the writer changes *inside* a value that readers share (a chunk of a lookup table, an
//! index that will mean something else) is reused by epochs: every pin announces the epoch that it
//! saw, and an epoch has passed when every reader announced it or a later one (quiescent-state
//! reclamation). A sleeping reader announces that it holds nothing.
//!
//! Cost: a pin is two loads of a shared and rarely written line, and a store to the reader's own.

use std::fmt;

use fingerpost_lpm::{Epoch, Grace, KernelReader};

use super::sync::{Arc, AtomicU64, Mutex, Ordering, fence};

/// The reader is not reading: nothing waits for it.
const OFFLINE: u64 = u64::MAX;

/// A line of its own: a reader's announcements must not slow its neighbors.
#[repr(align(128))]
struct Announced(AtomicU64);

struct Latest<T> {
    value: Arc<T>,
    generation: u64,
}

struct Shared<T> {
    /// Counts retirements; the writer alone advances it.
    epoch: AtomicU64,
    /// Generation of the latest value.
    generation: AtomicU64,
    latest: Mutex<Latest<T>>,
    readers: Mutex<Vec<Arc<Announced>>>,
}

/// The writer's end. There is one.
pub struct Publisher<T> {
    shared: Arc<Shared<T>>,
    kernel_reader: Option<Box<dyn KernelReader<T>>>,
    /// Values that some reader may still hold. They are freed here: giving a large table back takes
    /// milliseconds, which a reader must not pay for letting go of it last.
    replaced: Vec<Arc<T>>,
}

/// A reader's end: one a thread.
pub struct Reader<T> {
    shared: Arc<Shared<T>>,
    announced: Arc<Announced>,
    value: Arc<T>,
    generation: u64,
    online: bool,
}

/// Makes readers while the writer is elsewhere.
pub struct Subscribe<T> {
    shared: Arc<Shared<T>>,
}

impl<T> Publisher<T> {
    /// Begins with `value`, as generation 1.
    pub fn new(value: T) -> Self {
        Self {
            shared: Arc::new(Shared {
                epoch: AtomicU64::new(1),
                generation: AtomicU64::new(1),
                latest: Mutex::new(Latest { value: Arc::new(value), generation: 1 }),
                readers: Mutex::new(Vec::new()),
            }),
            kernel_reader: None,
            replaced: Vec::new(),
        }
    }

    /// Brings a reader of another kind to the present value, and to each that follows.
    pub fn set_kernel_reader(&mut self, mut kernel_reader: Box<dyn KernelReader<T>>) {
        kernel_reader.follow(&self.value());
        self.kernel_reader = Some(kernel_reader);
    }

    /// Replaces the value; readers see it at their next pin. Returns its generation.
    pub fn set(&mut self, value: T) -> u64 {
        let value = Arc::new(value);
        let mut latest = self.shared.latest.lock().expect("no panic while holding it");
        latest.generation += 1;
        let old = std::mem::replace(&mut latest.value, value);
        let generation = latest.generation;
        // Release pairs with the acquire in `pin`.
        self.shared.generation.store(generation, Ordering::Release);
        let value = latest.value.clone();
        drop(latest);
        if let Some(kernel_reader) = &mut self.kernel_reader {
            kernel_reader.follow(&value);
        }
        self.replaced.push(old);
        self.sweep();
        generation
    }

    /// Frees replaced values that no reader holds any more; called by [`Publisher::set`], and worth
    /// calling now and then. Returns how many are still held.
    pub fn sweep(&mut self) -> usize {
        self.replaced.retain(|value| Arc::strong_count(value) > 1);
        self.replaced.len()
    }

    /// The present value.
    pub fn value(&self) -> impl std::ops::Deref<Target = T> + Clone + use<T> {
        self.shared.latest.lock().expect("no panic while holding it").value.clone()
    }

    /// A new reader, asleep until its first pin.
    pub fn reader(&self) -> Reader<T> {
        self.subscribe().reader()
    }

    /// A handle that makes readers.
    pub fn subscribe(&self) -> Subscribe<T> {
        Subscribe { shared: self.shared.clone() }
    }
}

impl<T> Grace for Publisher<T> {
    fn retire(&mut self) -> Epoch {
        // SeqCst orders it after the unlinking stores and before the reads in `passed`; it pairs with
        // the load in `Reader::pin`.
        let epoch = Epoch(self.shared.epoch.fetch_add(1, Ordering::SeqCst) + 1);
        if let Some(kernel_reader) = &mut self.kernel_reader {
            kernel_reader.mark(epoch);
        }
        epoch
    }

    fn passed(&self, epoch: Epoch) -> bool {
        // Pairs with the fence in `Reader::wake`: either we see the waking reader's announcement, or
        // it sees what was unlinked before.
        fence(Ordering::SeqCst);
        let readers = self.shared.readers.lock().expect("no panic while holding it");
        // Acquire pairs with the release in `pin`: what the reader read, it read before.
        readers.iter().all(|r| r.0.load(Ordering::Acquire) >= epoch.0)
            && self.kernel_reader.as_ref().is_none_or(|kernel_reader| kernel_reader.passed(epoch))
    }
}

impl<T> Subscribe<T> {
    /// A new reader, asleep until its first pin.
    pub fn reader(&self) -> Reader<T> {
        let announced = Arc::new(Announced(AtomicU64::new(OFFLINE)));
        self.shared.readers.lock().expect("no panic while holding it").push(announced.clone());
        let latest = self.shared.latest.lock().expect("no panic while holding it");
        let (value, generation) = (latest.value.clone(), latest.generation);
        drop(latest);
        Reader { shared: self.shared.clone(), announced, value, generation, online: false }
    }
}

impl<T> Clone for Subscribe<T> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone() }
    }
}

impl<T> Reader<T> {
    /// Takes the latest value for one batch, and lets go of all that the last batch held. Wait-free
    /// while awake; the first pin after [`Reader::sleep`] may wait for a writer that is just putting
    /// a value down.
    #[inline]
    pub fn pin(&mut self) -> &T {
        if !self.online {
            self.wake();
            return &self.value;
        }
        // Acquire pairs with `retire`: having seen the epoch, what was unlinked before is not found.
        let epoch = self.shared.epoch.load(Ordering::Acquire);
        let generation = self.shared.generation.load(Ordering::Acquire);
        if generation == self.generation || self.refresh() {
            // Release pairs with `passed`.
            self.announced.0.store(epoch, Ordering::Release);
        }
        &self.value
    }

    /// The value that the last pin gave.
    pub fn pinned(&self) -> &T {
        &self.value
    }

    /// The generation of the value that the last pin gave.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Holds nothing until the next pin, so that nothing waits for this reader.
    pub fn sleep(&mut self) {
        self.announced.0.store(OFFLINE, Ordering::Release);
        self.online = false;
    }

    /// Takes the newer value unless the writer is at it just now; then the old one stays, and the
    /// caller announces nothing, so that it stays whole.
    #[cold]
    fn refresh(&mut self) -> bool {
        let Ok(latest) = self.shared.latest.try_lock() else { return false };
        let old = std::mem::replace(&mut self.value, latest.value.clone());
        self.generation = latest.generation;
        drop(latest);
        drop(old);
        true
    }

    #[cold]
    fn wake(&mut self) {
        let epoch = self.shared.epoch.load(Ordering::SeqCst);
        self.announced.0.store(epoch, Ordering::SeqCst);
        // From here on the writer waits for us; what it reused before, the latest value does not name.
        fence(Ordering::SeqCst);
        let latest = self.shared.latest.lock().expect("no panic while holding it");
        self.value = latest.value.clone();
        self.generation = latest.generation;
        drop(latest);
        self.online = true;
    }
}

impl<T> Drop for Reader<T> {
    fn drop(&mut self) {
        if let Ok(mut readers) = self.shared.readers.lock() {
            readers.retain(|r| !Arc::ptr_eq(r, &self.announced));
        }
    }
}

impl<T> fmt::Debug for Publisher<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Publisher").finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for Reader<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader").field("generation", &self.generation).finish_non_exhaustive()
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    #[test]
    fn an_epoch_passes_when_every_reader_moved_on_or_sleeps() {
        let mut publisher = Publisher::new(1);
        let (mut a, mut b) = (publisher.reader(), publisher.reader());
        a.pin();
        let epoch = publisher.retire();
        assert!(!publisher.passed(epoch), "a still holds the batch of before");
        a.pin();
        assert!(publisher.passed(epoch), "b sleeps, a moved on");
        b.pin();
        let epoch = publisher.retire();
        a.pin();
        assert!(!publisher.passed(epoch));
        b.sleep();
        assert!(publisher.passed(epoch));
        a.pin();
        let epoch = publisher.retire();
        drop(a);
        assert!(publisher.passed(epoch), "a reader that is gone holds nothing");
    }

    /// Has read until `over` is set.
    struct Slow {
        seen: std::sync::Arc<std::sync::Mutex<Vec<i32>>>,
        over: std::sync::Arc<std::sync::atomic::AtomicU64>,
    }

    impl KernelReader<i32> for Slow {
        fn follow(&mut self, value: &i32) {
            self.seen.lock().unwrap().push(*value);
        }
        fn mark(&mut self, _: Epoch) {}
        fn passed(&self, epoch: Epoch) -> bool {
            self.over.load(std::sync::atomic::Ordering::SeqCst) >= epoch.0
        }
    }

    #[test]
    fn a_kernel_reader_follows_and_is_waited_for() {
        let mut publisher = Publisher::new(1);
        let kernel_reader = Slow { seen: Default::default(), over: Default::default() };
        let (seen, over) = (kernel_reader.seen.clone(), kernel_reader.over.clone());
        publisher.set_kernel_reader(Box::new(kernel_reader));
        publisher.set(2);
        assert_eq!(*seen.lock().unwrap(), [1, 2]);
        let mut reader = publisher.reader();
        reader.pin();
        let epoch = publisher.retire();
        reader.pin();
        assert!(!publisher.passed(epoch), "the kernel reader is still reading");
        over.store(epoch.0, std::sync::atomic::Ordering::SeqCst);
        assert!(publisher.passed(epoch));
        let epoch = publisher.retire();
        over.store(epoch.0, std::sync::atomic::Ordering::SeqCst);
        assert!(!publisher.passed(epoch), "the other reader is, too");
    }

    #[test]
    fn readers_see_the_latest_value_at_their_next_pin() {
        let mut publisher = Publisher::new(1);
        let mut reader = publisher.reader();
        assert_eq!((*reader.pin(), reader.generation()), (1, 1));
        assert_eq!(publisher.set(2), 2);
        assert_eq!((*reader.pin(), reader.generation()), (2, 2));
        reader.sleep();
        publisher.set(3);
        assert_eq!(publisher.sweep(), 1, "the sleeping reader still holds 2");
        assert_eq!(*reader.pin(), 3);
        assert_eq!(publisher.sweep(), 0);
    }

    #[test]
    fn a_reader_continues_while_the_writer_holds_the_lock() {
        let publisher = Publisher::new(1);
        let mut reader = publisher.reader();
        reader.pin();
        let mut latest = publisher.shared.latest.lock().unwrap();
        latest.value = Arc::new(2);
        latest.generation = 2;
        publisher.shared.generation.store(2, Ordering::Release);
        let before = reader.announced.0.load(Ordering::Acquire);
        publisher.shared.epoch.fetch_add(5, Ordering::SeqCst);
        assert_eq!(*reader.pin(), 1, "kept the old value");
        assert_eq!(reader.announced.0.load(Ordering::Acquire), before, "and announced nothing");
        drop(latest);
        assert_eq!(*reader.pin(), 2);
    }
}

#[cfg(test)]
#[cfg(loom)]
mod loom_tests {
    use super::*;
    use loom::thread;

    fn cells() -> (Arc<AtomicU64>, Arc<[AtomicU64; 2]>) {
        (Arc::new(AtomicU64::new(0)), Arc::new([AtomicU64::new(7), AtomicU64::new(7)]))
    }

    /// Follows the link; what it leads to must never be content that was put there for later.
    fn follow(link: &AtomicU64, cells: &[AtomicU64; 2]) {
        let at = usize::try_from(link.load(Ordering::Relaxed)).unwrap();
        assert_eq!(cells[at].load(Ordering::Relaxed), 7);
    }

    /// Moves the link from cell 0 to cell 1, and reuses cell 0 once its epoch has passed.
    fn unlink_and_reuse(publisher: &mut Publisher<()>, link: &AtomicU64, cells: &[AtomicU64; 2]) {
        link.store(1, Ordering::Relaxed);
        let epoch = publisher.retire();
        if publisher.passed(epoch) {
            cells[0].store(666, Ordering::Relaxed);
        }
    }

    #[test]
    fn loom_reuse_waits_for_readers() {
        loom::model(|| {
            let (link, cells) = cells();
            let mut publisher = Publisher::new(());
            let mut reader = publisher.reader();
            let (l, c) = (link.clone(), cells.clone());
            let thread = thread::spawn(move || {
                for _ in 0..2 {
                    reader.pin();
                    follow(&l, &c);
                }
            });
            unlink_and_reuse(&mut publisher, &link, &cells);
            thread.join().unwrap();
        });
    }

    #[test]
    fn loom_a_waking_reader_is_waited_for() {
        loom::model(|| {
            let (link, cells) = cells();
            let mut publisher = Publisher::new(());
            let mut reader = publisher.reader();
            reader.pin();
            reader.sleep();
            let (l, c) = (link.clone(), cells.clone());
            let thread = thread::spawn(move || {
                reader.pin();
                follow(&l, &c);
            });
            unlink_and_reuse(&mut publisher, &link, &cells);
            thread.join().unwrap();
        });
    }

    #[test]
    fn loom_values_are_whole_and_never_go_back() {
        loom::model(|| {
            let mut publisher = Publisher::new((1, 1));
            let mut reader = publisher.reader();
            let thread = thread::spawn(move || {
                let mut last = 0;
                for _ in 0..2 {
                    let (a, b) = *reader.pin();
                    assert!(a == b && a >= last);
                    last = a;
                }
            });
            publisher.set((2, 2));
            thread.join().unwrap();
        });
    }
}
