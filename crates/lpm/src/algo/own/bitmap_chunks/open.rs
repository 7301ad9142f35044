//! Saved bitmap chunks: known by their stamp, and refused when what readers rely on does not hold.

use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicU16, AtomicU32};

use super::{
    BASE, Counts, DIRECT, ENTRIES, Entry, Far, HEAP, LINE_WORDS, NAMES, Near, Reader, SHIFT,
    SINK_END, SINK_WORDS, TAIL, TAIL_HEAD, Wide, Width, words_of,
};
use crate::error::FormatError;
use crate::kernel_layout::{KernelLayout, KernelRegion};
use crate::lookup::Lookup;
use crate::mem::{Region, region_named};

/// Layout for the XDP datapath, which has a reader for each of the three forms.
pub(super) static KERNEL_LAYOUT: KernelLayout = KernelLayout {
    regions: &[
        region("direct", &["v4_direct16", "v4_direct32"], None),
        region("bases", &["v4_bases"], None),
        region("heap", &["v4_heap"], Some("v4_heap_last")),
        region("tails", &["v4_tails"], Some("v4_tails_last")),
    ],
    names: &["v4_form", "v4_sink_end"],
    constants,
};

const fn region(
    region: &'static str,
    arrays: &'static [&'static str],
    last: Option<&'static str>,
) -> KernelRegion {
    KernelRegion { region, arrays, last }
}

/// Number of the form, and the first word of the heap that is no sink.
fn constants(regions: &[Region]) -> Option<Vec<u64>> {
    let forms = [(Near::LAYOUT, 1), (Far::LAYOUT, 2), (Wide::LAYOUT, 3)];
    forms.into_iter().find_map(|(layout, number)| {
        let sink_end = Counts::open(regions, layout).ok()?.get(SINK_END);
        Some(vec![number, sink_end])
    })
}

/// The reader of saved regions, in whichever of the three forms.
///
/// # Errors
/// [`FormatError`] when one is missing, too small, of another layout, or leads outside.
pub(super) fn open(saved: &[Region]) -> Result<Arc<dyn Lookup<u32>>, FormatError> {
    match Counts::open(saved, Near::LAYOUT) {
        Err(FormatError::Version { got, .. }) if got == Far::LAYOUT => {
            open_as::<AtomicU32, AtomicU16>(Counts::open(saved, got)?, saved)
        }
        Err(FormatError::Version { got, .. }) if got == Wide::LAYOUT => {
            open_as::<AtomicU32, AtomicU32>(Counts::open(saved, got)?, saved)
        }
        head => open_as::<AtomicU16, AtomicU16>(head?, saved),
    }
}

fn open_as<E: Entry, W: Width>(
    head: Counts,
    saved: &[Region],
) -> Result<Arc<dyn Lookup<u32>>, FormatError> {
    let [direct, heap, tails, bases] =
        [DIRECT, HEAP, TAIL, BASE].map(|at| region_named(saved, NAMES[at]));
    let reader = Reader::<E, W>::new(head, [direct?, heap?, tails?, bases?]);
    let reader = reader.ok_or(FormatError::Bounds(NAMES[HEAP]))?;
    reader.check()?;
    Ok(Arc::new(reader))
}

impl<E: Entry, W: Width> Reader<E, W> {
    /// Checks that every sink holds its next hop, and that every chunk and tail lies inside its region and starts with
    /// a run.
    fn check(&self) -> Result<(), FormatError> {
        let (words, results) = (self.regions[HEAP].u64s(), W::slice(&self.regions[HEAP]));
        let tail_words = self.regions[TAIL].u64s().len();
        for (entry, index) in E::slice(&self.regions[DIRECT])[..ENTRIES].iter().zip(0..) {
            let entry = entry.read();
            let place = self.heap.place(entry, index << SHIFT) as usize;
            let runs = words[place].load(Relaxed);
            let first = (place + 1) * W::PER_WORD;
            let sink = entry < self.view().chunks.sink_end();
            let hop = entry / SINK_WORDS;
            let whole = match sink {
                true => entry % SINK_WORDS == 0 && runs == 1 && results[first].get() == hop,
                false => runs & 1 == 1,
            };
            if !whole {
                return Err(FormatError::Bounds(NAMES[HEAP]));
            }
            for result in &results[first..first + runs.count_ones() as usize] {
                let result = result.get();
                if result & W::TAIL != 0 {
                    let at = (result & !W::TAIL) as usize * LINE_WORDS;
                    let end = at.saturating_add(words_of::<W>(TAIL_HEAD, 256));
                    let first = self.tail_words.view().at(at).load(Relaxed);
                    // The last tail's results may end before the region does; masks keep reads inside.
                    if first & 1 == 0 || end > tail_words + words_of::<W>(0, 256) {
                        return Err(FormatError::Bounds(NAMES[TAIL]));
                    }
                }
            }
        }
        Ok(())
    }
}
