//! Bitmap chunks: one read of a direct table, one of a chunk that says by a bitmap where answers change.
//!
//! Source: our own (BC18). DXR's direct table (Zec, Rizzo, Mikuc, CCR 2012) in front of Lulea's run
//!         bitmaps (Degermark et al., SIGCOMM 1997), without a tag: an entry whose whole /18 has one
//!         answer leads to a chunk as well, the sink of that next hop, so no lookup branches on data.
//! Shape:  direct [u32; 2^18]: where the chunk of a /18 starts in the heap, in units of 8 bytes;
//!         heap [u64; n]: the sinks, then the chunks; tails [64 bytes; m]: the /24s that hold longer
//!         prefixes
//! Cost:   lookup two reads in two cache lines up to /24, four with a longer prefix in the way; a change
//!         to a /p writes one chunk (p >= 18) or those of 2^(18-p) entries, each published by one store
//! Limits: IPv4; next hops below 2^22; results of 16 bits, or of 32 when next hops need them
//! Wins:   full tables: both uniform and announced addresses, alone and in batches; changed in place.
//!         Weak: some 2.8 bytes a prefix where a compact form needs 2
//!
//! ```text
//! chunk      word 0: runs, bit i set: slot i (a /24) starts a run of equal answers; bit 0 is set
//!            then a result a run, 16 or 32 bits each
//! sink n     words 2n and 2n + 1: a chunk of one run with the answer n
//! result     next hop; or top bit set and the number of a tail
//! tail       5 words: runs of the 256 addresses in four words, then how many runs start before each
//!            of the four (16 bits each, the lowest first); then a result a run
//! ```
//!
//! A chunk of at most a line never straddles two, and a longer one starts on a line: packed without
//! that rule the heap is a tenth smaller and announced addresses take an eighth longer. A chunk or tail
//! never changes once readers can reach it, and is used again only when none can.

mod space;
mod write;

use alloc::sync::Arc;
use core::sync::atomic::Ordering::{Acquire, Relaxed};
use core::sync::atomic::{AtomicU16, AtomicU32, AtomicU64};

use crate::head::{HEAD, Head, stamp};
use crate::lookup::{
    Algorithm, FormatError, Limits, Lookup, Module, NextHopId, Origin, Step, TableStats, check_out,
};
use crate::mem::{Cell, Cells, Masked, Region, prefetch, region_named};
use crate::simd::{BitOps, Job};

/// The rows of this file.
pub(super) const MODULE: Module = Module {
    v4: &[Algorithm {
        name: "bc18",
        summary: "direct table on 18 bits, then a chunk with a bitmap of where answers change",
        source: "Fingerpost",
        origin: Origin::Own,
        limits: Limits { next_hop: MAX_HOP, prefix_len: 32, note: "" },
        fitness,
        make: write::make,
        open: Some(open),
    }],
    v6: &[],
};

/// Sinks of all of them take 64 MiB of addresses; only those in use take memory.
const MAX_HOP: u32 = (1 << 22) - 1;

fn fitness(stats: &TableStats) -> u8 {
    // Below some hundred routes a sorted array in a few lines is as fast and takes no mebibyte.
    if stats.prefixes < 100 { 100 } else { 220 }
}

/// Bits of an address inside a /18.
const SHIFT: u32 = 14;
const ENTRIES: usize = 1 << 18;

/// Words of the head.
const PREFIXES: usize = 0;
const CHUNKS: usize = 1;
const CHUNK_WORDS: usize = 2;
const SINKS: usize = 3;
const TAILS: usize = 4;
const TAIL_LINES: usize = 5;
const WAITING: usize = 6;
type Counts = Head<7>;

const DIRECT: usize = 1;
const HEAP: usize = 2;
const TAIL: usize = 3;
const NAMES: [&str; 4] = [HEAD, "direct", "heap", "tails"];

/// Words of 8 bytes in a cache line.
const LINE_WORDS: usize = 8;
/// Words of a tail before its results.
const TAIL_HEAD: usize = 5;
/// Words of a sink.
const SINK_WORDS: usize = 2;

/// How wide a result is.
trait Width: Cell + Send + Sync + Sized + 'static {
    /// Results in a word of 8 bytes.
    const PER_WORD: usize;
    /// Bit of a result that is the number of a tail.
    const TAIL: u32;
    const LAYOUT: u64;
    fn get(&self) -> u32;
    fn put(&self, result: u32);
}

impl Width for AtomicU16 {
    const PER_WORD: usize = 4;
    const TAIL: u32 = 1 << 15;
    const LAYOUT: u64 = stamp(b"fpbc", 16, 1);
    #[inline(always)]
    fn get(&self) -> u32 {
        u32::from(self.load(Relaxed))
    }
    fn put(&self, result: u32) {
        self.store(u16::try_from(result).expect("a table of wide results otherwise"), Relaxed);
    }
}

impl Width for AtomicU32 {
    const PER_WORD: usize = 2;
    const TAIL: u32 = 1 << 31;
    const LAYOUT: u64 = stamp(b"fpbc", 32, 1);
    #[inline(always)]
    fn get(&self) -> u32 {
        self.load(Relaxed)
    }
    fn put(&self, result: u32) {
        self.store(result, Relaxed);
    }
}

/// Words of a block of `head` words and as many results.
const fn words<W: Width>(head: usize, results: usize) -> usize {
    head + results.div_ceil(W::PER_WORD)
}

struct Reader<W: Width> {
    bit_ops: Option<BitOps>,
    head: Counts,
    regions: [Region; 4],
    direct: Cells<AtomicU32>,
    /// The heap, as bitmaps and as results.
    bitmaps: Cells<AtomicU64>,
    results: Cells<W>,
    tail_words: Cells<AtomicU64>,
    tail_results: Cells<W>,
}

/// What a lookup up to /24 reads, as a batch keeps it in registers.
struct View<'a, W> {
    direct: Masked<'a, AtomicU32>,
    bitmaps: Masked<'a, AtomicU64>,
    results: Masked<'a, W>,
}

/// The greatest power of two of words in a region, less one.
fn mask_of(region: &Region) -> Option<usize> {
    region.u64s().len().checked_ilog2().map(|bits| (1 << bits) - 1)
}

impl<W: Width> Reader<W> {
    /// `None` when a region is too small. What a mask leaves of a region is not used.
    fn new(head: Counts, direct: Region, heap: Region, tails: Region) -> Option<Self> {
        if direct.u32s().len() < ENTRIES {
            return None;
        }
        let (words, tail_words) = (mask_of(&heap)?, mask_of(&tails)?);
        let results = |mask: usize| (mask + 1) * W::PER_WORD - 1;
        Some(Self {
            bit_ops: BitOps::detect(),
            direct: Cells::new(&direct, ENTRIES - 1),
            bitmaps: Cells::new(&heap, words),
            results: Cells::new(&heap, results(words)),
            tail_words: Cells::new(&tails, tail_words),
            tail_results: Cells::new(&tails, results(tail_words)),
            regions: [head.region().clone(), direct, heap, tails],
            head,
        })
    }

    #[inline(always)]
    fn view(&self) -> View<'_, W> {
        View {
            direct: self.direct.view(),
            bitmaps: self.bitmaps.view(),
            results: self.results.view(),
        }
    }

    /// The answer that a tail has for an address.
    #[cold]
    fn tail(&self, result: u32, addr: u32) -> NextHopId {
        let (words, results) = (self.tail_words.view(), self.tail_results.view());
        let at = (result & !W::TAIL) as usize * LINE_WORDS;
        let word = addr as usize >> 6 & 3;
        let runs = words.at(at + word).load(Relaxed) << (!addr & 63);
        let before = words.at(at + 4).load(Relaxed) >> (16 * word) & 0xffff;
        let rank = before as usize + runs.count_ones() as usize;
        // A damaged tail may have no run before the address; a wrong answer is all it may give.
        NextHopId(results.at(((at + TAIL_HEAD) * W::PER_WORD + rank).saturating_sub(1)).get())
    }
}

/// Keys that go through the stages together: enough for the prefetches of a group to arrive before its
/// second stage. On Cascade Lake 32 were as fast and 128 a tenth slower, on Zen 3 128 a tenth faster.
const GROUP: usize = 64;

impl<W: Width> View<'_, W> {
    /// Where the chunk of an address starts. Acquire: pairs with the release store that publishes it.
    #[inline(always)]
    fn entry(&self, addr: u32) -> u32 {
        self.direct.at((addr >> SHIFT) as usize).load(Acquire)
    }

    /// The result for an address in the chunk at `entry`.
    #[inline(always)]
    fn result(&self, entry: u32, addr: u32) -> u32 {
        let entry = entry as usize;
        // Bits up to the slot of the address, moved to the top; bit 0 of the bitmap is among them.
        let runs = self.bitmaps.at(entry).load(Relaxed) << (!(addr >> 8) & 63);
        self.results.at(entry * W::PER_WORD + (W::PER_WORD - 1) + runs.count_ones() as usize).get()
    }

    /// The results for a group, and what their bits are together. `out` is as long as the others.
    #[inline(always)]
    fn results(&self, entries: &[u32], addrs: &[u32], out: &mut [NextHopId]) -> u32 {
        let mut all = 0;
        for ((&entry, &addr), out) in entries.iter().zip(addrs).zip(out.iter_mut()) {
            let result = self.result(entry, addr);
            all |= result;
            *out = NextHopId(result);
        }
        all
    }
}

/// One lookup.
struct One<'a, W: Width>(&'a Reader<W>, u32);

impl<W: Width> Job for One<'_, W> {
    type Out = NextHopId;

    #[inline(always)]
    fn run(self) -> NextHopId {
        let Self(reader, addr) = self;
        let view = reader.view();
        let result = view.result(view.entry(addr), addr);
        if result & W::TAIL == 0 { NextHopId(result) } else { reader.tail(result, addr) }
    }
}

/// A batch of them; `out` is as long as `addrs`.
struct Batch<'a, W: Width> {
    reader: &'a Reader<W>,
    addrs: &'a [u32],
    out: &'a mut [NextHopId],
}

impl<W: Width> Job for Batch<'_, W> {
    type Out = ();

    #[inline(always)]
    fn run(self) {
        let view = self.reader.view();
        for (addrs, out) in self.addrs.chunks(GROUP).zip(self.out.chunks_mut(GROUP)) {
            // All entries, then all chunks, then the few that end in a tail.
            let mut entries = [0u32; GROUP];
            for (&addr, kept) in addrs.iter().zip(entries.iter_mut()) {
                let entry = view.entry(addr);
                prefetch(view.bitmaps.at(entry as usize));
                *kept = entry;
            }
            let all = view.results(&entries, addrs, out);
            if all & W::TAIL != 0 {
                for (&addr, out) in addrs.iter().zip(out) {
                    if out.0 & W::TAIL != 0 {
                        *out = self.reader.tail(out.0, addr);
                    }
                }
            }
        }
    }
}

impl<W: Width> Lookup<u32> for Reader<W> {
    fn lookup(&self, addr: u32) -> NextHopId {
        BitOps::run(self.bit_ops, One(self, addr))
    }

    fn lookup_batch(&self, addrs: &[u32], out: &mut [NextHopId]) {
        let out = check_out(addrs, out);
        BitOps::run(self.bit_ops, Batch { reader: self, addrs, out });
    }

    fn explain(&self, addr: u32, step: &mut dyn FnMut(&Step)) -> NextHopId {
        let view = self.view();
        let index = (addr >> SHIFT) as usize;
        let entry = view.entry(addr) as usize;
        let mut tell = |region: usize, offset, value, note| {
            step(&Step { region: NAMES[region], offset, value, note });
        };
        tell(DIRECT, index * 4, entry as u64, "where the chunk of this /18 starts");
        // One slot after another, unlike the lookup: two ways to the same answer.
        let runs = view.bitmaps.at(entry).load(Relaxed);
        tell(HEAP, entry * 8, runs, "where answers change in this /18, a bit a /24");
        let slot = addr >> 8 & 63;
        let run = (1..=slot).filter(|i| runs >> i & 1 == 1).count();
        let at = entry * W::PER_WORD + W::PER_WORD + run;
        let result = view.results.at(at).get();
        let size = size_of::<W>();
        if result & W::TAIL == 0 {
            tell(HEAP, at * size, u64::from(result), "the next hop of the run");
            return NextHopId(result);
        }
        tell(HEAP, at * size, u64::from(result), "the tail of a /24 with longer prefixes");
        let tail = (result & !W::TAIL) as usize * LINE_WORDS;
        let mut run = 0;
        for word in 0..=(addr as usize >> 6 & 3) {
            let runs = self.tail_words.view().at(tail + word).load(Relaxed);
            tell(TAIL, (tail + word) * 8, runs, "where answers change in this /24");
            let last = if word == addr as usize >> 6 & 3 { addr & 63 } else { 63 };
            run += (0..=last).filter(|i| runs >> i & 1 == 1).count();
        }
        let at = ((tail + TAIL_HEAD) * W::PER_WORD + run).saturating_sub(1);
        let hop = self.tail_results.view().at(at).get();
        tell(TAIL, at * size, u64::from(hop), "the next hop of the run");
        NextHopId(hop)
    }

    fn stats(&self, visit: &mut dyn FnMut(&'static str, u64)) {
        visit("prefixes", self.head.get(PREFIXES));
        visit("chunks", self.head.get(CHUNKS));
        visit("chunk_words", self.head.get(CHUNK_WORDS));
        visit("sinks", self.head.get(SINKS));
        visit("tails", self.head.get(TAILS));
        visit("tail_lines", self.head.get(TAIL_LINES));
        visit("waiting_bytes", self.head.get(WAITING));
    }

    fn regions(&self) -> &[Region] {
        &self.regions
    }

    fn bytes(&self) -> usize {
        let count = |word| usize::try_from(self.head.get(word)).unwrap_or(usize::MAX / 128);
        let words = count(CHUNK_WORDS) + count(SINKS) * SINK_WORDS + count(TAIL_LINES) * LINE_WORDS;
        Counts::BYTES + ENTRIES * 4 + words * 8
    }
}

fn open(saved: &[Region]) -> Result<Arc<dyn Lookup<u32>>, FormatError> {
    match open_as::<AtomicU16>(saved) {
        Err(FormatError::Version { got, .. }) if got == AtomicU32::LAYOUT => {
            open_as::<AtomicU32>(saved)
        }
        result => result,
    }
}

fn open_as<W: Width>(saved: &[Region]) -> Result<Arc<dyn Lookup<u32>>, FormatError> {
    let head = Counts::open(saved, W::LAYOUT)?;
    let [direct, heap, tails] = [DIRECT, HEAP, TAIL].map(|at| region_named(saved, NAMES[at]));
    let reader = Reader::<W>::new(head, direct?, heap?, tails?);
    let reader = reader.ok_or(FormatError::Bounds(NAMES[DIRECT]))?;
    let view = reader.view();
    let heap_words = reader.regions[HEAP].u64s().len();
    let tail_words = reader.regions[TAIL].u64s().len();
    let whole = |entry: &AtomicU32| {
        let entry = entry.load(Acquire) as usize;
        if entry >= heap_words {
            return Err(FormatError::Bounds(NAMES[HEAP]));
        }
        let runs = view.bitmaps.at(entry).load(Relaxed);
        let results = runs.count_ones() as usize;
        if runs & 1 == 0 || words::<W>(1, results) > heap_words - entry {
            return Err(FormatError::Bounds(NAMES[HEAP]));
        }
        for run in 0..results {
            let result = view.results.at((entry + 1) * W::PER_WORD + run).get();
            if result & W::TAIL != 0 {
                let at = (result & !W::TAIL) as usize * LINE_WORDS;
                let end = at.saturating_add(words::<W>(TAIL_HEAD, 256));
                let first = reader.tail_words.view().at(at).load(Relaxed);
                // The last tail's results may end before the region does; masks keep reads inside.
                if first & 1 == 0 || end > tail_words + words::<W>(0, 256) {
                    return Err(FormatError::Bounds(NAMES[TAIL]));
                }
            }
        }
        Ok(())
    };
    reader.regions[DIRECT].u32s()[..ENTRIES].iter().try_for_each(whole)?;
    Ok(Arc::new(reader))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mem::Heap;
    use crate::routes::RouteStore;
    use crate::testing::{Addresses, Shape, Stream, table};
    use alloc::vec;

    /// Both compilations give the same answers, with results of both widths.
    #[test]
    fn twins() {
        let mut routes = table::<u32>(Shape::Hostile, 3000, 500, 3);
        let prefixes: alloc::vec::Vec<_> = routes.iter().map(|&(prefix, _)| prefix).collect();
        let addrs = Addresses::new(Stream::Edges, &prefixes, 3).take(5000);
        let narrow: RouteStore<u32> = routes.iter().copied().collect();
        routes.push((crate::Prefix::host(7), NextHopId(40_000)));
        let wide: RouteStore<u32> = routes.iter().copied().collect();
        for (store, layout) in [(narrow, AtomicU16::LAYOUT), (wide, AtomicU32::LAYOUT)] {
            let saved = write::make(&store, &mut Heap).unwrap().publish().regions().to_vec();
            assert_eq!(saved[0].u64s()[0].load(Relaxed), layout);
            let answers = |bit_ops| {
                let [head, direct, heap, tails] = [0, 1, 2, 3].map(|i| saved[i].clone());
                let mut out = vec![NextHopId::NONE; addrs.len()];
                if layout == AtomicU16::LAYOUT {
                    let head = Counts::open(&[head], layout).unwrap();
                    let reader = Reader::<AtomicU16>::new(head, direct, heap, tails).unwrap();
                    Reader { bit_ops, ..reader }.lookup_batch(&addrs, &mut out);
                } else {
                    let head = Counts::open(&[head], layout).unwrap();
                    let reader = Reader::<AtomicU32>::new(head, direct, heap, tails).unwrap();
                    Reader { bit_ops, ..reader }.lookup_batch(&addrs, &mut out);
                }
                out
            };
            let plain = answers(None);
            assert!(plain.iter().any(|hop| !hop.is_none()));
            assert_eq!(answers(BitOps::detect()), plain);
        }
    }
}
