//! Frames, packets and batches.
//!
//! A [`Pool`] is one block of memory cut into frames of equal size; all ports of a worker share it,
//! so that forwarding copies nothing. A [`Packet`] owns a frame and gives it back when dropped; a
//! [`Batch`] owns up to 256 of them, as parallel arrays, without a pool pointer each.
//!
//! Layout of a frame: [`HEADROOM`] bytes that a longer header may grow into, then the frame as it came
//! from the wire, beginning with its Ethernet header.
//!
//! Cost: taking or giving back frames in bulk costs one uncontended lock a batch (a pool belongs to one
//! worker); moving a packet between batches copies about 20 bytes.
//!
//! Invariants that the unsafe code of this file relies on:
//! 1. `Block::base` points to `frames * frame_bytes` bytes that live as long as the block.
//! 2. Every frame number below `frames` is owned by exactly one of: the free list, a `Slot` (in a
//!    packet or a batch), a `RawFrame`, or a ring of the kernel on whose behalf a `RawFrame` was
//!    forgotten. Numbers are minted once, in `Pool::new`, and only move.
//! 3. Of a slot, `start + len <= frame_bytes`.
//! 4. The memory is reached only through the slot that owns the frame, so `&Batch` gives `&[u8]` and
//!    `&mut Batch` gives `&mut [u8]`.
//! 5. A slot whose frame is `frames`, the number of no frame, is a hole: it owns nothing, and its length is 0
//!    for as long as it is one. Its place is the end of the block.
//! 6. Slots at and above `Batch::len` own nothing. While a caller's function runs that may panic, `len` leaves
//!    out all slots that are being moved: their frames are then lost, never owned twice.

mod annotations;
mod ends;
mod meta;
mod queue;

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::fmt;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fingerpost_lpm::prefetch_at;

use super::DropReason;

pub use annotations::ANNOTATION_BYTES;
pub(crate) use annotations::{AGGREGATE_AT, NUMBERED_AT};
pub use meta::{
    FLAG_COPY, FLAG_FIX_SOURCE, FLAG_GENERATED, FLAG_LINK_MULTICAST, Hop, Meta, Note, ROUNDS_SHIFT,
};
pub use queue::PacketQueue;

/// Packets a batch holds at most.
pub const BATCH: usize = 256;

/// Free bytes before a frame, as XDP leaves them.
pub const HEADROOM: u16 = 256;

/// Alignment of the pool's memory: AF_XDP registers whole pages.
const PAGE_BYTES: usize = 4096;

/// Pools made so far.
static POOLS: AtomicU64 = AtomicU64::new(0);

struct Block {
    base: NonNull<u8>,
    /// What was allocated with this layout; `base` is its first page.
    allocation: NonNull<u8>,
    layout: Layout,
    frames: u32,
    frame_bytes: u16,
    /// Which pool of the process this is.
    number: u64,
    free: Mutex<Vec<u32>>,
}

// SAFETY: by invariants 2 and 4 a frame is reached only through its one owner; the list is locked.
unsafe impl Send for Block {}
// SAFETY: as above.
unsafe impl Sync for Block {}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: invariant 1; allocated with this very layout.
        unsafe { dealloc(self.allocation.as_ptr(), self.layout) }
    }
}

/// A block of frames. Clones share it.
#[derive(Clone)]
pub struct Pool(Arc<Block>);

impl Pool {
    /// `frames` frames of `frame_bytes` bytes, at least 2,048 and whole cache lines. AF_XDP takes powers of two
    /// only; any odd number of lines is better for the caches, since then the beginnings of frames do not
    /// lie in the same few sets of them.
    ///
    /// # Panics
    /// On other sizes, and when the memory cannot be had.
    pub fn new(frames: u32, frame_bytes: u16) -> Self {
        // An allocator writes the zeros of memory with a large alignment: no packet waits for a page later.
        Self::aligned(frames, frame_bytes, (0, PAGE_BYTES))
    }

    /// [`Pool::new`] whose pages the host provides when frames are first used: for many large frames of which few are.
    pub fn untouched(frames: u32, frame_bytes: u16) -> Self {
        Self::aligned(frames, frame_bytes, (PAGE_BYTES, 16))
    }

    /// A pool in memory of `more` bytes besides the frames, with an alignment.
    fn aligned(frames: u32, frame_bytes: u16, (more, align): (usize, usize)) -> Self {
        let is_whole = frame_bytes.is_multiple_of(64) && frame_bytes >= 2048;
        assert!(is_whole, "frame of {frame_bytes} bytes");
        let bytes = (frames as usize * usize::from(frame_bytes)).max(PAGE_BYTES) + more;
        let layout = Layout::from_size_align(bytes, align).expect("less than the address space");
        // SAFETY: the size is not zero.
        let allocation = unsafe { alloc_zeroed(layout) };
        let allocation = NonNull::new(allocation).unwrap_or_else(|| handle_alloc_error(layout));
        let before = allocation.align_offset(PAGE_BYTES);
        assert!(before <= more, "the first page lies in what was allocated besides the frames");
        // SAFETY: inside of the allocation, as just checked, with all frames behind it.
        let base = unsafe { allocation.add(before) };
        // The last numbers are taken first: begin with the low addresses.
        let free = Mutex::new((0..frames).rev().collect());
        // Relaxed: only that no two are equal matters.
        let number = POOLS.fetch_add(1, Relaxed);
        Self(Arc::new(Block { base, allocation, layout, frames, frame_bytes, number, free }))
    }

    /// Frames in all.
    pub fn frames(&self) -> usize {
        self.0.frames as usize
    }

    /// Size of a frame, headroom included.
    pub fn frame_bytes(&self) -> u16 {
        self.0.frame_bytes
    }

    /// Longest frame, from its Ethernet header on, that fits behind the headroom.
    pub fn max_len(&self) -> u16 {
        self.0.frame_bytes - HEADROOM
    }

    /// Frames that nobody owns.
    pub fn free(&self) -> usize {
        self.lock().len()
    }

    /// The memory, for registering it with the kernel: address and size in bytes.
    pub fn memory(&self) -> (NonNull<u8>, usize) {
        (self.0.base, self.frames() * usize::from(self.0.frame_bytes))
    }

    /// Whether both are the same block.
    pub fn same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// An empty packet of length 0 behind the headroom; `None` when no frame is free.
    pub fn alloc(&self) -> Option<Packet> {
        let frame = self.lock().pop()?;
        Some(Packet {
            pool: self.clone(),
            slot: Slot { frame, start: HEADROOM, len: 0 },
            meta: Meta::default(),
        })
    }

    /// Up to `count` free frames, for a ring of the kernel.
    pub fn take_raw(&self, count: usize, mut each: impl FnMut(RawFrame)) -> usize {
        let mut free = self.lock();
        let count = count.min(free.len());
        let at = free.len() - count;
        for frame in free.drain(at..) {
            each(self.mint(frame));
        }
        count
    }

    /// Gives a frame back.
    ///
    /// # Panics
    /// When it is another pool's.
    pub fn give_raw(&self, frame: RawFrame) {
        assert!(frame.is_of(self), "a frame goes back to its own pool");
        self.lock().push(frame.frame);
    }

    /// Gives many frames back.
    ///
    /// # Panics
    /// When one is another pool's.
    pub fn give_many(&self, frames: impl Iterator<Item = RawFrame>) {
        let number = |frame: RawFrame| {
            assert!(frame.is_of(self), "a frame goes back to its own pool");
            frame.frame
        };
        self.lock().extend(frames.map(number));
    }

    /// The frame in which `offset` (from the start of the memory) lies; `None` past the end.
    ///
    /// # Safety
    /// The caller must own that frame by invariant 2: a `RawFrame` of it was forgotten in favour of a
    /// ring of the kernel, and the kernel has just given it back.
    pub unsafe fn claim(&self, offset: u64) -> Option<RawFrame> {
        let frame = u32::try_from(offset / u64::from(self.0.frame_bytes)).ok()?;
        (frame < self.0.frames).then(|| self.mint(frame))
    }

    /// Only for a number that has just left its last owner.
    #[inline]
    fn mint(&self, frame: u32) -> RawFrame {
        RawFrame { frame, bytes: self.0.frame_bytes, pool: self.0.number }
    }

    /// Numbers come and go one at a time, so a list whose holder panicked has each at most once.
    fn lock(&self) -> MutexGuard<'_, Vec<u32>> {
        self.0.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is left of a slot whose frame went elsewhere.
    #[inline]
    fn hole(&self) -> Slot {
        Slot { frame: self.0.frames, start: 0, len: 0 }
    }

    #[inline(always)]
    fn slice(&self, slot: Slot) -> *mut u8 {
        self.place().of(slot)
    }

    #[inline(always)]
    fn place(&self) -> Place {
        Place { base: self.0.base, frame_bytes: self.0.frame_bytes.into() }
    }
}

/// Where a pool's frames are: read once for a whole batch. Used only while the pool is held.
#[derive(Clone, Copy)]
struct Place {
    base: NonNull<u8>,
    frame_bytes: usize,
}

impl Place {
    #[inline(always)]
    fn of(self, slot: Slot) -> *mut u8 {
        let at = slot.frame as usize * self.frame_bytes + usize::from(slot.start);
        // SAFETY: invariants 1 to 3 and 5: the offset lies in the block, or is its end.
        unsafe { self.base.as_ptr().add(at) }
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pool({} x {})", self.0.frames, self.0.frame_bytes)
    }
}

/// Frame that passes into or out of a ring of the kernel. Not dropped by itself: give it
/// back, or forget it in favour of the ring.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a raw frame that is not given back is lost"]
pub struct RawFrame {
    frame: u32,
    bytes: u16,
    /// Number of the pool: in another, the same number would be another frame.
    pool: u64,
}

impl RawFrame {
    /// Whether it belongs to that pool.
    #[inline]
    pub fn is_of(&self, pool: &Pool) -> bool {
        self.pool == pool.0.number
    }

    /// Where the frame begins, from the start of the pool's memory.
    pub fn offset(&self) -> u64 {
        u64::from(self.frame) * u64::from(self.bytes)
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    frame: u32,
    start: u16,
    len: u16,
}

/// One packet. Its frame returns to the pool when it is dropped.
pub struct Packet {
    pool: Pool,
    slot: Slot,
    /// What is known of it.
    pub meta: Meta,
}

impl Packet {
    /// The frame, from its Ethernet header on.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: invariants 1 to 4.
        unsafe { std::slice::from_raw_parts(self.pool.slice(self.slot), self.slot.len.into()) }
    }

    /// The frame, for writing.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: invariants 1 to 4.
        unsafe { std::slice::from_raw_parts_mut(self.pool.slice(self.slot), self.slot.len.into()) }
    }

    /// Sets the length; new bytes hold whatever was there. `false` when it does not fit.
    pub fn set_len(&mut self, len: usize) -> bool {
        match u16::try_from(len) {
            Ok(len)
                if usize::from(self.slot.start) + usize::from(len)
                    <= self.pool.0.frame_bytes.into() =>
            {
                self.slot.len = len;
                true
            }
            _ => false,
        }
    }

    /// Grows the frame at its front into the headroom, `false` when there is no room.
    pub fn push_front(&mut self, bytes: u16) -> bool {
        self.slot.push_front(bytes)
    }

    /// Cuts bytes off at the front; `false` when there are fewer.
    pub fn pull_front(&mut self, bytes: u16) -> bool {
        self.slot.pull_front(bytes)
    }

    /// The pool that the frame belongs to.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Number of the frame in its pool: no other packet that is alive has it.
    pub(crate) fn frame_number(&self) -> u32 {
        self.slot.frame
    }

    fn into_slot(self) -> Slot {
        let slot = self.slot;
        let mut this = std::mem::ManuallyDrop::new(self);
        // SAFETY: the packet is not used again, so its pool handle is dropped exactly once.
        unsafe { std::ptr::drop_in_place(&raw mut this.pool) };
        slot
    }
}

impl Drop for Packet {
    fn drop(&mut self) {
        self.pool.lock().push(self.slot.frame);
    }
}

impl fmt::Debug for Packet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Packet({} bytes, {:?})", self.slot.len, self.meta)
    }
}

impl Slot {
    fn push_front(&mut self, bytes: u16) -> bool {
        if self.start < bytes {
            return false;
        }
        self.start -= bytes;
        self.len += bytes;
        true
    }

    fn pull_front(&mut self, bytes: u16) -> bool {
        if self.len < bytes {
            return false;
        }
        self.start += bytes;
        self.len -= bytes;
        true
    }
}

/// What an element decided for a packet: an output, or the end.
///
/// Outputs are below `DROP`; from there on it is `DROP` plus the number of a reason.
pub type Label = u16;

const DROP: Label = 0xff00;
/// The greatest number of an output: what lies above are reasons to drop.
pub(crate) const MOST_OUTPUT: u16 = DROP - 1;

/// Where the packets of a batch go that is distributed.
pub trait Places {
    /// The batch for a packet, which has room.
    ///
    /// # Errors
    /// Why there is none.
    fn place(&mut self, meta: &Meta) -> Result<&mut Batch, DropReason>;
}

/// Frames ahead that [`Batch::each_ahead`] prefetches.
const FRAMES_AHEAD: usize = 4;

/// One packet of a batch, while a pass goes over it.
pub struct View<'a> {
    /// The frame.
    pub frame: &'a mut [u8],
    /// What is known of it.
    pub meta: &'a mut Meta,
    len: &'a mut u16,
    label: &'a mut Label,
    labeled: &'a mut bool,
}

impl View<'_> {
    /// [`Batch::truncate`] of one packet.
    #[inline]
    pub fn truncate(&mut self, len: usize) {
        *self.len = (*self.len).min(u16::try_from(len).unwrap_or(u16::MAX));
    }

    /// [`Batch::output`] of one packet.
    #[inline]
    pub fn output(&mut self, output: u16) {
        debug_assert!(output < DROP);
        *self.label = output;
        *self.labeled |= output != 0;
    }

    /// [`Batch::discard`] of one packet.
    #[inline]
    pub fn discard(&mut self, reason: DropReason) {
        *self.label = DROP + reason as Label;
        *self.labeled = true;
    }
}

impl fmt::Debug for View<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "View({} bytes, {:?})", self.frame.len(), self.meta)
    }
}

/// Up to [`BATCH`] packets of one pool, in order.
pub struct Batch {
    pool: Pool,
    len: usize,
    /// Most packets, at most [`BATCH`].
    limit: usize,
    slots: [Slot; BATCH],
    meta: [Meta; BATCH],
    labels: [Label; BATCH],
    /// Whether any label may not be 0, or there is a hole.
    labeled: bool,
    /// Slots whose frames went elsewhere.
    holes: usize,
}

impl Batch {
    /// An empty batch for packets of `pool`.
    pub fn new(pool: &Pool) -> Box<Self> {
        Box::new(Self {
            pool: pool.clone(),
            len: 0,
            limit: BATCH,
            slots: [Slot::default(); BATCH],
            meta: [Meta::default(); BATCH],
            labels: [0; BATCH],
            labeled: false,
            holes: 0,
        })
    }

    /// The pool that all its packets belong to.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Packets in it.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Packets that still fit.
    #[inline]
    pub fn room(&self) -> usize {
        self.limit.saturating_sub(self.len)
    }

    /// Lets fewer packets in than fit: a port that receives fills what room there is.
    pub fn set_limit(&mut self, packets: usize) {
        self.limit = packets.min(BATCH);
    }

    /// What is known of the packets.
    #[inline]
    pub fn meta(&self) -> &[Meta] {
        &self.meta[..self.len]
    }

    /// The same, for writing.
    #[inline]
    pub fn meta_mut(&mut self) -> &mut [Meta] {
        &mut self.meta[..self.len]
    }

    /// [`Packet::frame_number`] of packet `i`.
    pub(crate) fn frame_number(&self, i: usize) -> u32 {
        self.slots[..self.len][i].frame
    }

    /// Length of packet `i`'s frame.
    #[inline]
    pub fn frame_len(&self, i: usize) -> usize {
        self.slots[..self.len][i].len.into()
    }

    /// The frame of packet `i`; nothing where it was taken.
    #[inline]
    pub fn bytes(&self, i: usize) -> &[u8] {
        let slot = self.slots[..self.len][i];
        // SAFETY: invariants 1 to 5.
        unsafe { std::slice::from_raw_parts(self.pool.slice(slot), slot.len.into()) }
    }

    /// The frame of packet `i`, for writing; nothing where it was taken.
    #[inline]
    pub fn bytes_mut(&mut self, i: usize) -> &mut [u8] {
        let slot = self.slots[..self.len][i];
        // SAFETY: invariants 1 to 5.
        unsafe { std::slice::from_raw_parts_mut(self.pool.slice(slot), slot.len.into()) }
    }

    /// Shows each packet to `visit`, in order, with its number: what a pass over a whole batch is to use,
    /// since nothing is looked up or checked twice for a packet.
    #[inline(always)]
    pub fn each(&mut self, visit: impl FnMut(usize, View<'_>)) {
        self.walk::<false>(0..self.len.min(BATCH), visit);
    }

    /// [`Self::each`] of these packets, in their order. Numbers that no packet has are skipped.
    #[inline(always)]
    pub fn each_of(
        &mut self,
        which: impl IntoIterator<Item = usize>,
        visit: impl FnMut(usize, View<'_>),
    ) {
        self.walk::<false>(which, visit);
    }

    /// Visits each packet and prefetches the first line of a later frame: for the first that
    /// reads them.
    #[inline(always)]
    pub fn each_ahead(&mut self, visit: impl FnMut(usize, View<'_>)) {
        self.walk::<true>(0..self.len.min(BATCH), visit);
    }

    #[inline(always)]
    fn walk<const AHEAD: bool>(
        &mut self,
        which: impl IntoIterator<Item = usize>,
        mut visit: impl FnMut(usize, View<'_>),
    ) {
        let place = self.pool.place();
        // At most `BATCH`, but the compiler does not know it.
        let len = self.len.min(BATCH);
        // A copy of its own can stay in a register: what is written into frames might else be it.
        let mut labeled = self.labeled;
        for i in which {
            // Of a whole batch only its end, so that nothing is checked a packet.
            if i >= len {
                continue;
            }
            if AHEAD {
                // Past the end there is an older frame, which does no harm.
                prefetch_at(place.of(self.slots[(i + FRAMES_AHEAD) % BATCH]));
            }
            let slot = &mut self.slots[i];
            let at = place.of(*slot);
            // SAFETY: invariants 1 to 5: the batch is borrowed as a whole, and this is the frame's one slot.
            let frame = unsafe { std::slice::from_raw_parts_mut(at, slot.len.into()) };
            visit(
                i,
                View {
                    frame,
                    meta: &mut self.meta[i],
                    len: &mut slot.len,
                    label: &mut self.labels[i],
                    labeled: &mut labeled,
                },
            );
        }
        self.labeled = labeled;
    }

    /// Appends free frames of the pool with `len` bytes each, up to `count` of them and as far as there is
    /// room, and shows each to `visit`, which writes those bytes. Returns how many came.
    ///
    /// # Panics
    /// When frames of that length do not fit the pool's.
    #[inline(always)]
    pub fn fill(&mut self, count: usize, len: u16, mut visit: impl FnMut(&mut [u8])) -> usize {
        assert!(len <= self.pool.max_len(), "{len} bytes behind the headroom");
        let (first, room) = (self.len, self.room());
        {
            let mut free = self.pool.lock();
            let count = count.min(room).min(free.len());
            let at = free.len() - count;
            let slots = &mut self.slots[first..first + count];
            for (slot, frame) in slots.iter_mut().zip(free.drain(at..)) {
                *slot = Slot { frame, start: HEADROOM, len };
            }
            self.len += count;
        }
        self.meta[first..self.len].fill(Meta::default());
        self.labels[first..self.len].fill(0);
        self.walk::<false>(first..self.len.min(BATCH), |_, one| visit(one.frame));
        self.len - first
    }

    /// Bytes of all frames together.
    #[inline]
    pub fn total_bytes(&self) -> u64 {
        self.slots[..self.len].iter().map(|slot| u64::from(slot.len)).sum()
    }

    /// Prefetches the cache line in which the frame of packet `i` begins; nothing past the end.
    #[inline(always)]
    pub fn prefetch(&self, i: usize) {
        if i < self.len {
            prefetch_at(self.pool.slice(self.slots[i]));
        }
    }

    /// What was decided for packet `i`.
    pub fn decision(&self, i: usize) -> Decision {
        if self.slots[..self.len][i].frame == self.pool.0.frames {
            return Decision::Taken;
        }
        Decision::of(self.labels[i])
    }

    /// Sends packet `i` to an output of the present element, unless it was taken. Unlabeled packets go to output 0.
    #[inline]
    pub fn output(&mut self, i: usize, output: u16) {
        debug_assert!(output < DROP);
        self.labels[..self.len][i] = output;
        self.labeled |= output != 0;
    }

    /// Ends packet `i`, unless it was taken.
    #[inline]
    pub fn discard(&mut self, i: usize, reason: DropReason) {
        self.labels[..self.len][i] = DROP + reason as Label;
        self.labeled = true;
    }

    /// Takes packet `i` out, leaving a hole that the next regrouping closes. The batch reaches the frame no longer,
    /// and a label that is given to the hole has no effect.
    ///
    /// # Panics
    /// When it was taken before.
    pub fn take(&mut self, i: usize) -> Packet {
        Packet { slot: self.lift(i), pool: self.pool.clone(), meta: self.meta[i] }
    }

    /// The slot of packet `i`, with a hole in its place.
    #[inline]
    fn lift(&mut self, i: usize) -> Slot {
        let hole = self.pool.hole();
        let slot = std::mem::replace(&mut self.slots[..self.len][i], hole);
        assert!(slot.frame != hole.frame, "packet {i} was taken before");
        self.holes += 1;
        self.labeled = true;
        slot
    }

    /// Closes up where packets were taken.
    #[inline]
    fn close_holes(&mut self) {
        if self.holes > 0 {
            self.squeeze();
        }
    }

    // Not inlined: batches without a hole have nothing of it.
    #[inline(never)]
    fn squeeze(&mut self) {
        let (mut kept, len) = (0, if self.holes == self.len { 0 } else { self.len });
        for i in 0..len {
            if self.slots[i].frame != self.pool.0.frames {
                self.slots[kept] = self.slots[i];
                self.meta[kept] = self.meta[i];
                self.labels[kept] = self.labels[i];
                kept += 1;
            }
        }
        (self.len, self.holes) = (kept, 0);
    }

    /// A packet with the same bytes and metadata, flagged as a copy of a received one where it is that; `None` when
    /// no frame is free.
    pub fn copy(&self, i: usize) -> Option<Packet> {
        let mut packet = self.pool.alloc()?;
        // Bytes that were cut off can be brought back, so they are copied as well.
        let (cut, slot) = (self.cut_off(i), self.slots[i]);
        let whole = Slot { start: slot.start - cut, len: slot.len + cut, ..slot };
        // SAFETY: invariants 1 to 5: these are the bytes of the packet, and those between the headroom and it.
        let bytes = unsafe { std::slice::from_raw_parts(self.pool.slice(whole), whole.len.into()) };
        (packet.slot.start, packet.slot.len) = (whole.start, whole.len);
        packet.bytes_mut().copy_from_slice(bytes);
        packet.slot.pull_front(cut);
        packet.meta = self.meta[i];
        if !packet.meta.is_ours() {
            packet.meta.flags |= FLAG_COPY;
        }
        if packet.meta.annotated {
            self.copy_annotations(i, &mut packet);
        }
        Some(packet)
    }

    /// Appends a packet of the same pool. Gives it back when there is no room.
    pub fn push(&mut self, packet: Packet) -> Result<(), Packet> {
        assert!(packet.pool.same(&self.pool), "a batch holds packets of one pool");
        if self.room() == 0 {
            return Err(packet);
        }
        self.labels[self.len] = 0;
        self.meta[self.len] = packet.meta;
        self.slots[self.len] = packet.into_slot();
        self.len += 1;
        Ok(())
    }

    /// Appends a frame that the kernel filled: `len` bytes from `start` on.
    ///
    /// # Panics
    /// When there is no room, the bytes leave the frame, or the frame is another pool's.
    #[inline]
    pub fn push_raw(&mut self, frame: RawFrame, start: u16, len: u16, meta: Meta) {
        assert!(self.len < BATCH, "batch is full");
        assert!(frame.is_of(&self.pool), "a batch holds packets of one pool");
        assert!(u32::from(start) + u32::from(len) <= u32::from(self.pool.0.frame_bytes));
        self.labels[self.len] = 0;
        self.meta[self.len] = meta;
        self.slots[self.len] = Slot { frame: frame.frame, start, len };
        self.len += 1;
    }

    /// Hands up to `count` packets from the front to a ring of the kernel: the frame, where its bytes
    /// start in the pool's memory, and their number.
    pub fn take_front_raw(
        &mut self,
        count: usize,
        mut each: impl FnMut(RawFrame, u64, u16, &Meta),
    ) {
        self.close_holes();
        // Invariant 6.
        let len = std::mem::take(&mut self.len);
        let count = count.min(len);
        for i in 0..count {
            let slot = self.slots[i];
            let frame = self.pool.mint(slot.frame);
            let offset = frame.offset() + u64::from(slot.start);
            each(frame, offset, slot.len, &self.meta[i]);
        }
        self.len = len;
        self.remove_front(count);
    }

    /// Moves packet `i` to the end of another batch, leaving a hole as [`Batch::take`] does.
    ///
    /// # Panics
    /// When `to` is full or of another pool, or the packet was taken before.
    #[inline]
    pub fn move_to(&mut self, i: usize, to: &mut Self) {
        assert!(to.len < BATCH && to.pool.same(&self.pool));
        to.slots[to.len] = self.lift(i);
        to.meta[to.len] = self.meta[i];
        to.labels[to.len] = 0;
        to.len += 1;
    }

    /// Moves each packet to the end of the batch that is its place; order is kept. Those that have none stay, labeled
    /// with the reason.
    ///
    /// # Panics
    /// When a place is full or of another pool, or a packet was taken before.
    #[inline(always)]
    pub fn distribute<P: Places>(&mut self, places: &mut P) {
        assert!(!self.labeled, "regroup before distributing");
        let mut left = 0;
        // Invariant 6.
        for i in 0..std::mem::take(&mut self.len).min(BATCH) {
            let (slot, meta) = (self.slots[i], self.meta[i]);
            match places.place(&meta) {
                Ok(to) => {
                    assert!(to.len < BATCH && to.pool.same(&self.pool));
                    to.slots[to.len] = slot;
                    to.meta[to.len] = meta;
                    to.labels[to.len] = 0;
                    to.len += 1;
                }
                Err(reason) => {
                    self.slots[left] = slot;
                    self.meta[left] = meta;
                    self.labels[left] = DROP + reason as Label;
                    left += 1;
                }
            }
        }
        self.len = left;
        self.labeled = left > 0;
    }

    /// Gives up to `count` packets from the front back to the pool, of those that were not taken.
    pub fn free_front(&mut self, count: usize) {
        self.close_holes();
        let count = count.min(self.len);
        // Usually none are left of a batch, and the pool need not be asked.
        if count > 0 {
            self.pool.lock().extend(self.slots[..count].iter().map(|s| s.frame));
        }
        self.remove_front(count);
    }

    /// Gives all packets back to the pool that were not taken.
    pub fn clear(&mut self) {
        self.free_front(self.len);
    }

    fn remove_front(&mut self, count: usize) {
        if count == self.len {
            (self.len, self.labeled) = (0, false);
            return;
        }
        self.slots.copy_within(count..self.len, 0);
        self.meta.copy_within(count..self.len, 0);
        self.labels.copy_within(count..self.len, 0);
        self.len -= count;
    }

    /// The label that all packets share, if they do: then nothing has to move. An empty batch
    /// shares 0.
    #[inline]
    pub fn uniform(&self) -> Option<Decision> {
        if !self.labeled {
            return Some(Decision::Output(0));
        }
        if self.holes > 0 {
            return (self.holes == self.len).then_some(Decision::Taken);
        }
        let first = *self.labels[..self.len].first()?;
        self.labels[..self.len].iter().all(|&l| l == first).then(|| Decision::of(first))
    }

    /// The output that all packets share which are not dropped, if there is one and none was taken: then the others can
    /// close up.
    #[inline]
    pub fn shared_output(&self) -> Option<u16> {
        if self.holes > 0 {
            return None;
        }
        let labels = &self.labels[..self.len];
        let shared = *labels.iter().find(|&&label| label < DROP)?;
        // All of them without a branch, as vectors do it.
        let other = |label: Label| (label < DROP) & (label != shared);
        (!labels.iter().fold(false, |any, &label| any | other(label))).then_some(shared)
    }

    /// Passes the dropped packets to `dropped` and frees them; the others close up in order, where they are, for output 0
    /// of the next element. What a filter does to most batches: cheaper than [`Batch::scatter`], which moves them all.
    pub fn close_up(&mut self, mut dropped: impl FnMut(DropReason, &Meta)) {
        self.close_holes();
        // Which are dropped, without a branch: they come as they like.
        let (mut dropping, mut count) = ([0_u16; BATCH], 0);
        for (&label, i) in self.labels[..self.len].iter().zip(0..) {
            dropping[count % BATCH] = i;
            count += usize::from(label >= DROP);
        }
        let dropping = &dropping[..count];
        let Some(&first) = dropping.first() else { return self.unlabel() };
        let (mut freed, mut kept) = ([0_u32; BATCH], usize::from(first));
        // Invariant 6.
        let len = std::mem::take(&mut self.len);
        for ((&at, freed), nth) in dropping.iter().zip(&mut freed).zip(1..) {
            let at = usize::from(at);
            if let Decision::Drop(reason) = Decision::of(self.labels[at]) {
                dropped(reason, &self.meta[at]);
            }
            *freed = self.slots[at].frame;
            let run = at + 1..dropping.get(nth).map_or(len, |&next| next.into());
            self.slots.copy_within(run.clone(), kept);
            self.meta.copy_within(run.clone(), kept);
            kept += run.len();
        }
        self.len = kept;
        self.unlabel();
        self.pool.lock().extend_from_slice(&freed[..count]);
    }

    /// Empties the batch by label: packets for an output go to the batch that `to` names (which must
    /// have room), dropped ones are passed to `dropped` and freed. Order is kept.
    pub fn scatter(
        &mut self,
        mut dropped: impl FnMut(DropReason, &Meta),
        mut to: impl FnMut(u16, &mut dyn FnMut(&mut Batch)),
    ) {
        self.close_holes();
        let mut freed: [u32; BATCH] = [0; BATCH];
        let mut count = 0;
        // Invariant 6.
        for i in 0..std::mem::take(&mut self.len) {
            let (slot, meta) = (self.slots[i], self.meta[i]);
            match Decision::of(self.labels[i]) {
                Decision::Output(output) => {
                    let mut moved = false;
                    to(output, &mut |batch: &mut Batch| {
                        assert!(!moved && batch.len < BATCH && batch.pool.same(&self.pool));
                        batch.slots[batch.len] = slot;
                        batch.meta[batch.len] = meta;
                        batch.labels[batch.len] = 0;
                        batch.len += 1;
                        moved = true;
                    });
                    if !moved {
                        dropped(DropReason::Unwired, &meta);
                        freed[count] = slot.frame;
                        count += 1;
                    }
                }
                Decision::Drop(reason) => {
                    dropped(reason, &meta);
                    freed[count] = slot.frame;
                    count += 1;
                }
                Decision::Taken => unreachable!("holes were closed"),
            }
        }
        self.labeled = false;
        if count > 0 {
            self.pool.lock().extend_from_slice(&freed[..count]);
        }
    }

    /// Forgets the labels: all packets go to output 0 of the next element.
    pub fn unlabel(&mut self) {
        if self.labeled {
            self.close_holes();
            self.labels[..self.len].fill(0);
            self.labeled = false;
        }
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        self.clear();
    }
}

impl fmt::Debug for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Batch({} of {BATCH})", self.len)
    }
}

/// A label, read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Decision {
    /// The packet leaves by this output of the element.
    Output(u16),
    /// The packet is dropped.
    Drop(DropReason),
    /// Taken out by the element.
    Taken,
}

impl Decision {
    /// Label of a packet that is there.
    #[inline]
    fn of(label: Label) -> Self {
        match label.checked_sub(DROP) {
            Some(reason) => Self::Drop(DropReason::ALL[usize::from(reason)]),
            None => Self::Output(label),
        }
    }
}

#[cfg(test)]
mod tests;
