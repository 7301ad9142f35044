//! Saved bitmap tries: known by their stamp, and refused when what readers rely on does not hold.

use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::sync::atomic::Ordering::{Acquire, Relaxed};

use super::{
    CHUNK, Counts, DEFAULT, DIRECT, HEAP, LAYOUT, NAMES, Reader, STRIDE, TABLE, TOP, TOPS, words_of,
};
use crate::error::FormatError;
use crate::kernel_layout::{KernelLayout, KernelRegion};
use crate::lookup::Lookup;
use crate::mem::{Region, region_named};

/// Layout for the XDP datapath.
pub(super) static KERNEL_LAYOUT: KernelLayout = KernelLayout {
    regions: &[
        KernelRegion { region: "direct", arrays: &["v6_direct"], last: None },
        KernelRegion { region: "heap", arrays: &["v6_heap"], last: Some("v6_heap_last") },
    ],
    names: &["v6_form"],
    constants: |regions| Counts::open(regions, LAYOUT).is_ok().then(|| vec![1]),
};

/// The reader of saved regions.
///
/// # Errors
/// [`FormatError`] when one is missing, too small, of another layout, or leads outside.
pub(super) fn open(saved: &[Region]) -> Result<Arc<dyn Lookup<u128>>, FormatError> {
    let head = Counts::open(saved, LAYOUT)?;
    let (direct, heap) = (region_named(saved, NAMES[DIRECT])?, region_named(saved, NAMES[HEAP])?);
    let reader = Reader::new(head, direct, heap).ok_or(FormatError::Bounds(NAMES[DIRECT]))?;
    reader.check()?;
    Ok(Arc::new(reader))
}

impl Reader {
    /// That every chunk is inside the heap, starts with a run, and is no deeper than an address is long.
    /// Readers are safe without: they mask each index and count their steps.
    fn check(&self) -> Result<(), FormatError> {
        let heap = &self.regions[HEAP];
        let (words, entries) = (heap.u64s(), heap.u32s());
        let places = 1usize << words.len().ilog2();
        let bounds = |fits: bool| fits.then_some(()).ok_or(FormatError::Bounds(NAMES[HEAP]));
        let direct = self.view().direct;
        bounds(direct[DEFAULT].load(Relaxed) & CHUNK == 0)?;
        // No chunk is reached twice, so all of them together are no more than the heap.
        let mut left = places;
        let mut ways: Vec<(u32, u8)> = Vec::new();
        for (entry, index) in direct[..TOPS + 8].iter().zip(0..) {
            let from = if index < TOPS { TOP + TABLE } else { TOP };
            ways.push((entry.load(Acquire), from));
            while let Some((entry, from)) = ways.pop() {
                if entry & CHUNK == 0 {
                    continue;
                }
                let place = (entry & !CHUNK) as usize;
                bounds(from < 128 && place < places)?;
                let runs = words[place].load(Relaxed);
                let count = runs.count_ones() as usize;
                bounds(runs & 1 == 1 && place + words_of(count) <= places)?;
                left = left.checked_sub(words_of(count)).ok_or(FormatError::Bounds(NAMES[HEAP]))?;
                let entries = &entries[2 * place + 2..2 * place + 2 + count];
                ways.extend(entries.iter().map(|entry| (entry.load(Acquire), from + STRIDE)));
            }
        }
        Ok(())
    }
}
