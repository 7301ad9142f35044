//! Reads of the heap without a check each: what an entry leads to is known to be inside.
//!
//! Invariants that the unsafe code of this file relies on:
//! 1. Of the heap's words, those from `last` on are at least [`reach`], so that a chunk that starts at
//!    `last` or before ends inside, whatever its bitmap holds. Ensured by [`Heap::new`]; neither changes.
//! 2. Each base is at most `last` less the greatest entry, or 0 and entries are cut to `last`: so what
//!    [`Chunks::place`] gives is at most `last`. Bases are this program's own copy.
//! 3. The places of a [`Staged`] are 0 or what `place` gave for the chunks it holds.
//! 4. On x86 every load of an aligned cell is whole and acquires, so one written in assembler reads as an
//!    atomic one does.
//!
//! The safe twin is `Reader::explain`, which the conformance suite compares with every lookup.

#[cfg(all(target_arch = "x86_64", not(miri)))]
use core::arch::asm;
use core::hint::select_unpredictable;
use core::marker::PhantomData;
use core::ptr::NonNull;
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
use core::sync::atomic::Ordering::Acquire;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicU16, AtomicU64};

use super::{ENTRIES, Entry, PART_SHIFT, PARTS, SHIFT, Width};
use crate::mem::{Region, prefetch_at};
use crate::next_hop_id::NextHopId;

/// Most words of a chunk: its bitmap, and a result for each slot.
pub(super) const fn reach<W: Width>() -> usize {
    1 + 64 / W::PER_WORD
}

/// The cell at `first[index]`, an acquiring load that widens it. The compiler widens what an atomic load
/// of 16 bits gave once more, which took 7 % off batches.
///
/// # Safety
/// The cell is inside a region.
#[inline(always)]
unsafe fn widened(first: NonNull<AtomicU16>, index: usize) -> u32 {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        let cell: u32;
        // SAFETY: the caller's, and invariant 4. Not `pure`: the cell may change between two reads.
        unsafe {
            asm!(
                "movzx {cell:e}, word ptr [{first} + 2 * {index}]",
                cell = lateout(reg) cell,
                first = in(reg) first.as_ptr(),
                index = in(reg) index,
                options(readonly, nostack, preserves_flags)
            );
        }
        cell
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    {
        // SAFETY: the caller's.
        let cell = unsafe { first.add(index) };
        // SAFETY: as above; it is reached by atomics only.
        u32::from(unsafe { cell.as_ref() }.load(Acquire))
    }
}

/// The entry of the /18 that an address is in.
#[inline(always)]
pub(super) fn entry<E: Entry>(direct: &[E; ENTRIES], addr: u32) -> u32 {
    let index = (addr >> SHIFT) as usize;
    if size_of::<E>() == 2 {
        // SAFETY: 18 bits; these are cells of 16 bits.
        return unsafe { widened(NonNull::from(direct).cast(), index) };
    }
    direct[index].read()
}

/// The heap and where its parts start.
pub(super) struct Heap<E, W> {
    /// Keeps the memory.
    region: Region,
    bases: [u32; PARTS],
    sink_end: u32,
    last: u32,
    form: PhantomData<fn() -> (E, W)>,
}

impl<E: Entry, W: Width> Heap<E, W> {
    /// `None` when an entry could lead outside.
    pub(super) fn new(region: &Region, bases: [u32; PARTS], sink_end: u32) -> Option<Self> {
        let last = region.u64s().len().checked_sub(reach::<W>())?;
        let last = u32::try_from(last).unwrap_or(u32::MAX);
        let greatest = if E::MAX == u32::MAX { 0 } else { last.checked_sub(E::MAX)? };
        let fits = bases.iter().all(|&base| base <= greatest);
        fits.then(|| Self { region: region.clone(), bases, sink_end, last, form: PhantomData })
    }

    /// What an inner loop copies to its registers.
    #[inline(always)]
    pub(super) fn view(&self) -> Chunks<'_, E, W> {
        Chunks {
            first: NonNull::from(self.region.u64s()).cast(),
            bases: &self.bases,
            sink_end: self.sink_end,
            last: self.last,
            form: PhantomData,
        }
    }

    /// Where the chunk of an entry starts.
    pub(super) fn place(&self, entry: u32, addr: u32) -> u32 {
        self.view().place(entry, addr)
    }

    /// The part of the heap that the /18 with this index has, counted from its base.
    pub(super) fn base(&self, index: u32) -> u32 {
        self.bases[(index >> PART_SHIFT) as usize]
    }
}

/// A borrowed [`Heap`].
pub(super) struct Chunks<'a, E, W> {
    first: NonNull<AtomicU64>,
    bases: &'a [u32; PARTS],
    sink_end: u32,
    last: u32,
    form: PhantomData<fn() -> (E, W)>,
}

impl<E, W> Clone for Chunks<'_, E, W> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<E, W> Copy for Chunks<'_, E, W> {}

impl<'a, E: Entry, W: Width> Chunks<'a, E, W> {
    /// Entries below this one are of sinks, two words each.
    #[inline(always)]
    pub(super) fn sink_end(self) -> u32 {
        self.sink_end
    }

    #[inline(always)]
    fn place(self, entry: u32, addr: u32) -> u32 {
        let base = self.bases[(addr >> (SHIFT + PART_SHIFT)) as usize];
        let base = select_unpredictable(entry < self.sink_end, 0, base);
        if E::MAX == u32::MAX { entry.min(self.last) } else { base + entry }
    }

    /// Answer of the chunk at this word for an address.
    ///
    /// # Safety
    /// `place` is at most `last`.
    #[inline(always)]
    unsafe fn result(self, place: u32, addr: u32) -> u32 {
        // SAFETY: invariant 1 and the caller.
        let chunk = unsafe { self.first.add(place as usize) };
        // SAFETY: as above; the region is borrowed by `self`, and all of it are atomics.
        let runs = unsafe { chunk.as_ref() }.load(Relaxed);
        // Bits up to the slot of the address, moved to the top; bit 0 of the bitmap is among them.
        let run = (runs << (!(addr >> 8) & 63)).count_ones() as usize;
        // The first result stands a word after the bitmap, and counts one.
        // SAFETY: a count of at most 64, so by invariant 1 inside.
        let before = unsafe { chunk.cast::<W>().add(W::PER_WORD - 1) };
        if size_of::<W>() == 2 {
            // SAFETY: as above, and these are cells of 16 bits.
            return unsafe { widened(before.cast(), run) };
        }
        // SAFETY: as above.
        let result = unsafe { before.add(run) };
        // SAFETY: as above.
        unsafe { result.as_ref() }.get()
    }

    /// Place for the chunks of a group.
    #[inline(always)]
    pub(super) fn stage<const N: usize>(self) -> Staged<'a, E, W, N> {
        Staged { chunks: self, places: [0; N] }
    }
}

/// The chunks of a group of addresses.
pub(super) struct Staged<'a, E, W, const N: usize> {
    chunks: Chunks<'a, E, W>,
    places: [u32; N],
}

/// Keys of a loop that is written out.
const TURN: usize = 8;

impl<'a, E: Entry, W: Width, const N: usize> Staged<'a, E, W, N> {
    /// Prefetches the chunks that the entries of these addresses lead to.
    #[inline(always)]
    pub(super) fn ask(&mut self, addrs: &[u32; N], entry: impl Fn(u32) -> u32) {
        // A copy, which stays in registers; what stands beside the places would be read for each.
        let chunks = self.chunks;
        let one = |place: &mut u32, addr| {
            *place = chunks.place(entry(addr), addr);
            prefetch_at(chunks.first.as_ptr().wrapping_add(*place as usize));
        };
        let (turns, rest) = self.places.as_chunks_mut::<TURN>();
        let (addrs, rest_addrs) = addrs.as_chunks::<TURN>();
        for (places, addrs) in turns.iter_mut().zip(addrs) {
            places.iter_mut().zip(addrs).for_each(|(place, &addr)| one(place, addr));
        }
        rest.iter_mut().zip(rest_addrs).for_each(|(place, &addr)| one(place, addr));
    }

    /// Looks the addresses up in their chunks; returns the bits that any result has.
    #[inline(always)]
    pub(super) fn results(&self, addrs: &[u32; N], out: &mut [NextHopId; N]) -> u32 {
        let chunks = self.chunks;
        let mut all = 0;
        let mut one = |out: &mut NextHopId, place, addr| {
            // SAFETY: invariants 2 and 3.
            out.0 = unsafe { chunks.result(place, addr) };
            all |= out.0;
        };
        let (turns, rest) = self.places.as_chunks::<TURN>();
        let (addrs, rest_addrs) = addrs.as_chunks::<TURN>();
        let (outs, rest_out) = out.as_chunks_mut::<TURN>();
        for ((places, addrs), outs) in turns.iter().zip(addrs).zip(outs) {
            let each = outs.iter_mut().zip(places).zip(addrs);
            each.for_each(|((out, &place), &addr)| one(out, place, addr));
        }
        let rest = rest_out.iter_mut().zip(rest).zip(rest_addrs);
        rest.for_each(|((out, &place), &addr)| one(out, place, addr));
        all
    }
}
