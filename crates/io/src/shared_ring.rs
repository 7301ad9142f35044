//! Rings of a producer and a consumer that share memory: one of them is the kernel (AF_XDP), or another process.
//!
//! Source: the kernel's `Documentation/networking/af_xdp.rst` and `net/xdp/xsk_queue.h`.
//! Shape: two counters that only grow (modulo 2^32) and a power of two of slots; a counter's low bits
//!        are a place, the difference of the two is what lies in the ring.
//! Cost:  a load of the other side's counter a batch, a store of our own a batch.
//!
//! Orderings, each with its partner in `xsk_queue.h`, or in this file:
//!
//! | here | there |
//! |---|---|
//! | producer: load `consumer` Acquire | the kernel's store-release of `consumer` after it read slots |
//! | producer: store `producer` Release | the kernel's load-acquire of `producer` before it reads slots |
//! | consumer: load `producer` Acquire | the kernel's store-release of `producer` after it wrote slots |
//! | consumer: store `consumer` Release | the kernel's load-acquire of `consumer` before it writes slots |
//! | load `flags` Relaxed | a hint only; a stale one costs a wakeup too many or a short delay |
//!
//! Invariants that the unsafe code of this file relies on:
//! 1. A `Mapping` is `bytes` bytes of readable and writable memory, page-aligned, mapped until it is
//!    dropped.
//! 2. The offsets of a ring, checked when it is made, lie in its mapping: the counters aligned for 4
//!    bytes, `mask + 1` slots of `T` aligned for 8.
//! 3. A slot is any bit pattern (`Entry` is implemented for plain integers alone), so a ring that the
//!    other side corrupts gives wrong values, never undefined ones.
//! 4. A slot is touched only between the counters' hand-overs above: by us from the load that showed
//!    it free (or filled) to the store that passes it on; and, by `change_waiting`, while the other side reads none: the
//!    kernel reads a transmit ring in copy mode only during calls of its socket's owner.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release, SeqCst},
    fence,
};

/// A descriptor of a receive or transmit ring: `struct xdp_desc`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub(crate) struct Desc {
    /// Offset from the start of the pool's memory.
    pub(crate) address: u64,
    /// Bytes.
    pub(crate) len: u32,
    /// `XDP_PKT_CONTD` and the like; 0 here.
    pub(crate) options: u32,
}

/// What a slot may be: any bit pattern is one.
pub(crate) trait Entry: Copy + Send + 'static {}
impl Entry for Desc {}
impl Entry for u64 {}

/// Memory that is mapped until it is dropped.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: invariant 1: plain memory, not bound to a thread.
unsafe impl Send for Mapping {}
// SAFETY: as above; who may touch what is invariant 4's matter.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// A ring of a socket, `offset` being its place in the kernel's list (`XDP_PGOFF_RX_RING`).
    pub(crate) fn of_socket(
        socket: BorrowedFd<'_>,
        offset: libc::off_t,
        bytes: usize,
    ) -> io::Result<Self> {
        let flags = libc::MAP_SHARED | libc::MAP_POPULATE;
        Self::new(flags, socket.as_raw_fd(), offset, bytes)
    }

    #[cfg(test)]
    fn private(bytes: usize) -> io::Result<Self> {
        Self::new(libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0, bytes)
    }

    fn new(flags: i32, fd: i32, offset: libc::off_t, bytes: usize) -> io::Result<Self> {
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at a place of the kernel's choice touches nothing that exists.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), bytes, rights, flags, fd, offset) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).expect("the kernel maps nothing at 0");
        Ok(Self { base, bytes })
    }

    /// Memory that is shared with another process, by its descriptor; the caller made sure that it cannot shrink.
    pub(crate) fn of_file(file: BorrowedFd<'_>, bytes: usize) -> io::Result<Self> {
        Self::new(libc::MAP_SHARED | libc::MAP_POPULATE, file.as_raw_fd(), 0, bytes)
    }

    /// Bytes from `offset` on, as words.
    fn words(&self, offset: usize, bytes: usize) -> &[AtomicU64] {
        assert!(offset.is_multiple_of(8) && bytes <= self.bytes - self.bytes.min(offset));
        // SAFETY: inside the mapping, as just checked.
        let first = unsafe { self.base.add(offset) }.cast::<AtomicU64>();
        // SAFETY: invariant 1; any bits are a word, and others may write it at the same time, for it is atomic.
        unsafe { std::slice::from_raw_parts(first.as_ptr(), bytes.div_ceil(8)) }
    }

    /// Copies bytes to `offset`, a multiple of 8, and up to seven more behind them.
    ///
    /// # Panics
    /// When they do not fit.
    pub(crate) fn write(&self, offset: usize, from: &[u8]) {
        let words = self.words(offset, from.len().next_multiple_of(8));
        // Whole words apart: a copy of a length that is known only then is a call each.
        let (whole, rest) = from.as_chunks();
        for (word, bytes) in words.iter().zip(whole) {
            // Relaxed: the counters hand it over.
            word.store(u64::from_ne_bytes(*bytes), Relaxed);
        }
        if let Some(word) = words.get(whole.len()) {
            let mut last = [0; 8];
            last[..rest.len()].copy_from_slice(rest);
            word.store(u64::from_ne_bytes(last), Relaxed);
        }
    }

    /// Copies bytes from `offset`.
    ///
    /// # Panics
    /// When there are fewer.
    pub(crate) fn read(&self, offset: usize, to: &mut [u8]) {
        let (aligned, skip) = (offset.next_multiple_of(8), offset % 8);
        let (head, to) = to.split_at_mut(to.len().min(aligned - offset));
        if !head.is_empty() {
            let word = self.words(offset - skip, 8)[0].load(Relaxed).to_ne_bytes();
            head.copy_from_slice(&word[skip..skip + head.len()]);
        }
        let words = self.words(aligned, to.len().next_multiple_of(8));
        let (whole, rest) = to.as_chunks_mut();
        for (bytes, word) in whole.iter_mut().zip(words) {
            *bytes = word.load(Relaxed).to_ne_bytes();
        }
        if let Some(word) = words.get(whole.len()) {
            rest.copy_from_slice(&word.load(Relaxed).to_ne_bytes()[..rest.len()]);
        }
    }

    /// A word that the other side wrote, and all that it wrote before.
    pub(crate) fn load(&self, offset: usize) -> u32 {
        // SAFETY: invariant 1.
        unsafe { self.counter(offset).as_ref() }.load(Acquire)
    }

    /// Publishes a word to the other side, and that all before it is done.
    pub(crate) fn store(&self, offset: usize, word: u32) {
        // SAFETY: invariant 1.
        unsafe { self.counter(offset).as_ref() }.store(word, Release);
    }

    fn counter(&self, offset: usize) -> NonNull<AtomicU32> {
        assert!(offset.is_multiple_of(4) && offset + 4 <= self.bytes, "counter at {offset}");
        // SAFETY: inside the mapping, as just checked.
        unsafe { self.base.add(offset) }.cast()
    }

    fn slots<T: Entry>(&self, offset: usize, entries: u32) -> NonNull<T> {
        let bytes = entries as usize * size_of::<T>();
        assert!(offset.is_multiple_of(8) && offset + bytes <= self.bytes, "slots at {offset}");
        // SAFETY: inside the mapping, as just checked.
        unsafe { self.base.add(offset) }.cast()
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: invariant 1; the rings that point into it hold it, so none is left.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

/// Where the parts of a ring lie in its mapping: `struct xdp_ring_offset`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Offsets {
    pub(crate) producer: usize,
    pub(crate) consumer: usize,
    pub(crate) flags: usize,
    pub(crate) slots: usize,
}

impl Offsets {
    /// Bytes to map for a ring of that many entries.
    pub(crate) fn bytes<T: Entry>(&self, entries: u32) -> usize {
        self.slots + entries as usize * size_of::<T>()
    }
}

/// What both sides of a ring know.
#[derive(Debug)]
struct Shared<T> {
    producer: NonNull<AtomicU32>,
    consumer: NonNull<AtomicU32>,
    flags: NonNull<AtomicU32>,
    slots: NonNull<T>,
    mask: u32,
    _memory: Arc<Mapping>,
}

// SAFETY: invariants 1 and 4: the memory is alive and handed over by the counters.
unsafe impl<T: Entry> Send for Shared<T> {}

impl<T: Entry> Shared<T> {
    fn new(memory: Arc<Mapping>, offsets: Offsets, entries: u32) -> Self {
        assert!(entries.is_power_of_two(), "a ring of {entries}");
        Self {
            producer: memory.counter(offsets.producer),
            consumer: memory.counter(offsets.consumer),
            flags: memory.counter(offsets.flags),
            slots: memory.slots(offsets.slots, entries),
            mask: entries - 1,
            _memory: memory,
        }
    }

    fn entries(&self) -> u32 {
        self.mask + 1
    }

    fn producer(&self) -> &AtomicU32 {
        // SAFETY: invariants 1 and 2.
        unsafe { self.producer.as_ref() }
    }

    fn consumer(&self) -> &AtomicU32 {
        // SAFETY: invariants 1 and 2.
        unsafe { self.consumer.as_ref() }
    }

    fn needs_wakeup(&self) -> bool {
        // SAFETY: invariants 1 and 2.
        let flags = unsafe { self.flags.as_ref() };
        flags.load(Relaxed) & libc::XDP_RING_NEED_WAKEUP != 0
    }

    fn slot(&self, count: u32) -> NonNull<T> {
        // SAFETY: invariant 2: the masked number is below the number of slots.
        unsafe { self.slots.add((count & self.mask) as usize) }
    }
}

/// The writing end: of a fill or transmit ring.
#[derive(Debug)]
pub(crate) struct Producer<T> {
    shared: Shared<T>,
    /// Slots written so far, also those not yet submitted.
    written: u32,
    /// The consumer's counter when last looked at: an old value only means fewer free slots.
    consumed: u32,
}

impl<T: Entry> Producer<T> {
    /// The writing end of a ring, which must have no other.
    pub(crate) fn new(memory: Arc<Mapping>, offsets: Offsets, entries: u32) -> Self {
        let shared = Shared::new(memory, offsets, entries);
        let written = shared.producer().load(Relaxed); // ours alone
        let consumed = shared.consumer().load(Acquire);
        Self { shared, written, consumed }
    }

    /// Free slots, at least `wanted` if there are; looks at the consumer only when it must.
    #[inline]
    pub(crate) fn free(&mut self, wanted: u32) -> u32 {
        let free =
            |consumed| self.shared.entries().saturating_sub(self.written.wrapping_sub(consumed));
        let known = free(self.consumed);
        if known >= wanted {
            return known;
        }
        self.consumed = self.shared.consumer().load(Acquire);
        free(self.consumed)
    }

    /// Slots written and not yet taken by the consumer.
    #[inline]
    pub(crate) fn waiting(&mut self) -> u32 {
        self.consumed = self.shared.consumer().load(Acquire);
        self.written.wrapping_sub(self.consumed)
    }

    /// Writes one slot.
    ///
    /// # Panics
    /// When there is none: call `free` first.
    #[inline]
    pub(crate) fn put(&mut self, entry: T) {
        assert!(self.written.wrapping_sub(self.consumed) <= self.shared.mask, "ring is full");
        let slot = self.shared.slot(self.written);
        // SAFETY: invariants 2 and 4: the slot is free and ours.
        unsafe { slot.write(entry) };
        self.written = self.written.wrapping_add(1);
    }

    /// Changes the entries that were submitted and wait, from the newest on until there is nothing to change. The consumer must
    /// not read any of them meanwhile.
    pub(crate) fn change_waiting(&mut self, mut change: impl FnMut(T) -> Option<T>) {
        for number in (0..self.waiting()).rev() {
            let slot = self.shared.slot(self.consumed.wrapping_add(number));
            // SAFETY: invariants 2, 3 and 4: the slot was written here, and nobody reads it meanwhile.
            let Some(entry) = change(unsafe { slot.read() }) else { break };
            // SAFETY: as above.
            unsafe { slot.write(entry) };
        }
    }

    /// Passes what was written to the consumer.
    #[inline]
    pub(crate) fn submit(&mut self) {
        self.shared.producer().store(self.written, Release);
    }

    /// Number of the slot that is written next.
    pub(crate) fn place(&self) -> usize {
        (self.written & self.shared.mask) as usize
    }

    /// Passes on what was written; whether the other process sleeps and must be woken.
    #[inline]
    pub(crate) fn submit_and_ask(&mut self) -> bool {
        self.submit();
        // Either we see that it sleeps, or it sees what came when it looks once more: its partner is in `sleeps`.
        fence(SeqCst);
        self.needs_wakeup()
    }

    /// Whether the kernel sleeps and must be called.
    #[inline]
    pub(crate) fn needs_wakeup(&self) -> bool {
        self.shared.needs_wakeup()
    }
}

/// The reading end: of a receive or completion ring.
#[derive(Debug)]
pub(crate) struct Consumer<T> {
    shared: Shared<T>,
    /// Slots read so far, also those not yet released.
    read: u32,
    /// The producer's counter when last looked at.
    produced: u32,
}

impl<T: Entry> Consumer<T> {
    /// The reading end of a ring, which must have no other.
    pub(crate) fn new(memory: Arc<Mapping>, offsets: Offsets, entries: u32) -> Self {
        let shared = Shared::new(memory, offsets, entries);
        let read = shared.consumer().load(Relaxed); // ours alone
        Self { shared, read, produced: read }
    }

    /// Number of the slot that is read next.
    pub(crate) fn place(&self) -> usize {
        (self.read & self.shared.mask) as usize
    }

    /// Requests wakeups of the producer from now on, or no longer. Returns whether there is something to read.
    pub(crate) fn sleeps(&self, on: bool) -> bool {
        // SAFETY: invariants 1 and 2.
        let flags = unsafe { self.shared.flags.as_ref() };
        flags.store(if on { libc::XDP_RING_NEED_WAKEUP } else { 0 }, Relaxed);
        // Its partner is in `submit_and_ask`.
        fence(SeqCst);
        self.shared.producer().load(Acquire) != self.read
    }

    /// Filled slots; looks at the producer only when none is known of.
    #[inline]
    pub(crate) fn filled(&mut self) -> u32 {
        if self.produced == self.read {
            self.produced = self.shared.producer().load(Acquire);
        }
        // A producer gone mad must not have us read the same slot twice in a batch.
        self.produced.wrapping_sub(self.read).min(self.shared.entries())
    }

    /// Reads one slot.
    ///
    /// # Panics
    /// When there is none: call `filled` first.
    #[inline]
    pub(crate) fn take(&mut self) -> T {
        assert!(self.read != self.produced, "ring is empty");
        let slot = self.shared.slot(self.read);
        self.read = self.read.wrapping_add(1);
        // SAFETY: invariants 2 to 4: the slot is filled and ours.
        unsafe { slot.read() }
    }

    /// Passes what was read back to the producer.
    #[inline]
    pub(crate) fn release(&mut self) {
        self.shared.consumer().store(self.read, Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OFFSETS: Offsets = Offsets { producer: 0, consumer: 64, flags: 128, slots: 192 };

    /// A ring whose counters start at `start`: near the end of 32 bits they wrap soon.
    fn ring<T: Entry>(entries: u32, start: u32) -> (Producer<T>, Consumer<T>) {
        let memory = Arc::new(Mapping::private(OFFSETS.bytes::<T>(entries)).unwrap());
        let shared = Shared::<T>::new(memory.clone(), OFFSETS, entries);
        shared.producer().store(start, Relaxed);
        shared.consumer().store(start, Relaxed);
        (Producer::new(memory.clone(), OFFSETS, entries), Consumer::new(memory, OFFSETS, entries))
    }

    #[test]
    fn bytes_are_copied_wherever_they_begin() {
        let memory = Mapping::private(4096).unwrap();
        let bytes: Vec<u8> = (1..=100).collect();
        memory.write(16, &bytes);
        for (skip, len) in [(0, 100), (1, 99), (2, 3), (3, 5), (7, 1), (7, 9), (8, 8), (13, 0)] {
            let mut seen = vec![0; len];
            memory.read(16 + skip, &mut seen);
            assert_eq!(seen, bytes[skip..skip + len]);
        }
        memory.store(4092, 7);
        assert_eq!((memory.load(4092), memory.load(120)), (7, 0));
    }

    #[test]
    fn entries_pass_in_order_and_not_before_they_are_submitted() {
        for start in [0, u32::MAX - 2] {
            let (mut producer, mut consumer) = ring::<u64>(4, start);
            assert_eq!((producer.free(4), consumer.filled()), (4, 0));
            for i in 0..3 {
                producer.put(i);
            }
            assert_eq!((producer.free(1), consumer.filled()), (1, 0));
            producer.submit();
            producer.put(3);
            assert_eq!((producer.free(1), consumer.filled(), producer.waiting()), (0, 3, 4));
            assert_eq!([consumer.take(), consumer.take()], [0, 1]);
            assert_eq!(producer.free(1), 0, "read is not yet released");
            consumer.release();
            assert_eq!((producer.free(1), consumer.filled()), (2, 1));
            producer.submit();
            assert_eq!([consumer.take(), consumer.filled() as u64, consumer.take()], [2, 1, 3]);
            consumer.release();
            assert_eq!((producer.free(4), producer.waiting()), (4, 0));
        }
    }

    #[test]
    #[should_panic(expected = "ring is full")]
    fn a_full_ring_takes_no_more() {
        let (mut producer, _consumer) = ring::<u64>(2, 7);
        for i in 0..3 {
            producer.put(i);
        }
    }

    #[test]
    #[should_panic(expected = "ring is empty")]
    fn an_empty_ring_gives_nothing() {
        ring::<Desc>(2, 7).1.take();
    }

    #[test]
    #[should_panic(expected = "slots at")]
    fn a_ring_past_its_mapping_is_refused() {
        let memory = Arc::new(Mapping::private(OFFSETS.bytes::<u64>(4)).unwrap());
        Producer::<Desc>::new(memory, OFFSETS, 4);
    }

    #[test]
    fn a_producer_gone_mad_cannot_have_more_than_the_ring_read() {
        let (producer, mut consumer) = ring::<u64>(4, 0);
        producer.shared.producer().store(1000, Relaxed);
        assert_eq!(consumer.filled(), 4);
    }

    /// Two threads, a small ring, counters that wrap: each number arrives once and in order, whole.
    #[test]
    fn nothing_is_lost_or_torn_between_two_threads() {
        const COUNT: u64 = 300_000;
        let (mut producer, mut consumer) = ring::<Desc>(8, u32::MAX - 1000);
        let whole = |i: u64| Desc {
            address: i,
            len: u32::try_from(i).unwrap(),
            options: !u32::try_from(i).unwrap(),
        };
        let writer = std::thread::spawn(move || {
            let mut next = 0;
            while next < COUNT {
                // Batches of changing size, some of them 0.
                let batch = u64::from(producer.free(3).min(1 + u32::try_from(next % 5).unwrap()));
                let end = COUNT.min(next + batch);
                (next..end).for_each(|i| producer.put(whole(i)));
                producer.submit();
                if next == end {
                    std::thread::yield_now();
                }
                next = end;
            }
        });
        let mut expected = 0;
        while expected < COUNT {
            let filled = consumer.filled();
            for _ in 0..filled {
                assert_eq!(consumer.take(), whole(expected));
                expected += 1;
            }
            consumer.release();
            if filled == 0 {
                std::thread::yield_now();
            }
        }
        writer.join().unwrap();
        assert_eq!(consumer.filled(), 0);
    }
}
