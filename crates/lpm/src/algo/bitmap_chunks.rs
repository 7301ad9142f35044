//! Bitmap chunks: one read of a direct table, one of a chunk that says by a bitmap where answers change.
//!
//! Source: our own. DXR's direct table (Zec, Rizzo, Mikuc, CCR 2012) in front of Lulea's run
//!         bitmaps (Degermark et al., SIGCOMM 1997), without a tag: an entry whose whole /18 has one
//!         answer leads to a chunk as well, the sink of that next hop, so no lookup branches on data.
//! Shape:  direct [u32; 2^18]: where the chunk of a /18 starts in the heap, in units of 8 bytes (u16 in
//!         the small form: that, counted from the /6's part of the heap, or the one answer);
//!         heap [u64; n]: the sinks, then the chunks; tails [64 bytes; m]: the /24s that hold longer
//!         prefixes
//! Cost:   lookup two reads in two cache lines up to /24, four with a longer prefix in the way; a change
//!         to a /p writes one chunk (p >= 18) or those of 2^(18-p) entries, each published by one store
//! Limits: IPv4; next hops below 2^22; results of 16 bits, or of 32 when next hops need them. The small
//!         form: next hops below 2^15, 256 KiB of chunks a /6
//! Wins:   full tables, uniform and announced addresses alike; changed in place. bc18 in batches, with
//!         2.5 bytes a prefix; bc18_small one packet at a time, with 1.9
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

mod draft;
mod space;
mod write;

use alloc::sync::Arc;
use core::marker::PhantomData;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicU16, AtomicU32, AtomicU64};

use crate::head::{HEAD, Head, stamp};
use crate::lookup::{
    Algorithm, FormatError, Limits, Lookup, Module, NextHopId, Origin, Step, TableStats, check_out,
};
use crate::mem::{Cell, Cells, Masked, Region, region_named};
use crate::simd::{BitOps, Job};

/// The rows of this file.
pub(super) const MODULE: Module = Module {
    v4: &[
        Algorithm {
            name: "bc18",
            summary: "direct table on 18 bits, then a chunk with a bitmap of where answers change",
            source: "Fingerpost",
            origin: Origin::Own,
            limits: Limits { next_hop: MAX_HOP, prefix_len: 32, note: "" },
            fitness,
            make: write::make,
            open: Some(open),
        },
        Algorithm {
            name: "bc18_small",
            summary: "the same with entries of 16 bits, a quarter smaller",
            source: "Fingerpost",
            origin: Origin::Own,
            limits: Limits {
                next_hop: AtomicU16::TAIL - 1,
                prefix_len: 32,
                note: "256 KiB of chunks a /6; 2 MiB of /24s with longer prefixes",
            },
            fitness: fitness_small,
            make: write::make_small,
            open: Some(open_as::<Small>),
        },
    ],
    v6: &[],
};

/// Sinks of all of them take 64 MiB of addresses; only those in use take memory.
const MAX_HOP: u32 = (1 << 22) - 1;

fn fitness(stats: &TableStats) -> u8 {
    // Below some hundred routes a sorted array in a few lines is as fast and takes no mebibyte.
    if stats.prefixes < 100 { 100 } else { 220 }
}

fn fitness_small(_: &TableStats) -> u8 {
    // Packets come in batches, in which it takes half as long again.
    170
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
const SINK_WORDS: u32 = 2;

/// How wide a result is.
trait Width: Cell + Send + Sync + 'static {
    /// Results in a word of 8 bytes.
    const PER_WORD: usize;
    /// Bit of a result that is the number of a tail.
    const TAIL: u32;
    fn get(&self) -> u32;
    fn put(&self, result: u32);
}

impl Width for AtomicU16 {
    const PER_WORD: usize = 4;
    const TAIL: u32 = 1 << 15;
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
    #[inline(always)]
    fn get(&self) -> u32 {
        self.load(Relaxed)
    }
    fn put(&self, result: u32) {
        self.store(result, Relaxed);
    }
}

/// An entry of the direct table.
trait Entry: Cell + Send + Sync + 'static {
    /// Pairs with [`Entry::publish`].
    fn read(&self) -> u32;
    /// Makes all visible that was written before.
    fn publish(&self, entry: u32);
}

impl Entry for AtomicU32 {
    #[inline(always)]
    fn read(&self) -> u32 {
        self.load(Acquire)
    }
    fn publish(&self, entry: u32) {
        self.store(entry, Release);
    }
}

impl Entry for AtomicU16 {
    #[inline(always)]
    fn read(&self) -> u32 {
        u32::from(self.load(Acquire))
    }
    fn publish(&self, entry: u32) {
        self.store(u16::try_from(entry).expect("offsets of small tables have 15 bits"), Release);
    }
}

/// Which form a table has: how an entry leads to a chunk or to an answer.
trait Form: Send + Sync + 'static {
    type Entry: Entry;
    type Result: Width;
    const LAYOUT: u64;
    /// Whether next hops have sinks in the heap.
    const SINKS: bool;
    /// /18s that share a part of the heap, as a shift of their index; 18 when all do.
    const PART_SHIFT: u32;
    /// Where the chunk starts that an entry leads to; any chunk where the entry is the answer.
    fn chunk(entry: u32, addr: u32) -> u32;
    /// The result, given what stands in that chunk.
    fn result(entry: u32, result: u32) -> u32;
    /// The answer of an entry that shows it, for lookups one at a time.
    fn answer(entry: u32) -> Option<u32>;
    /// The entry of a /18 whose chunk starts at `place`.
    fn entry(place: u32) -> u32;
    /// The entry of a /18 with one answer.
    fn uniform(hop: u32) -> u32;
    /// The answer of such an entry; `sinks` have a place of their own in the heap.
    fn hop(entry: u32, sinks: u32) -> Option<u32>;
}

/// Entries of 32 bits that all lead to a chunk, so that no lookup has to choose.
struct Flat<W>(PhantomData<fn() -> W>);
type Narrow = Flat<AtomicU16>;
type Wide = Flat<AtomicU32>;

impl<W: Width> Form for Flat<W> {
    type Entry = AtomicU32;
    type Result = W;
    const LAYOUT: u64 = stamp(b"fpbc", if W::PER_WORD == 4 { 16 } else { 32 }, 1);
    const SINKS: bool = true;
    const PART_SHIFT: u32 = 18;
    #[inline(always)]
    fn chunk(entry: u32, _: u32) -> u32 {
        entry
    }
    #[inline(always)]
    fn result(_: u32, result: u32) -> u32 {
        result
    }
    #[inline(always)]
    fn answer(_: u32) -> Option<u32> {
        None
    }
    fn entry(place: u32) -> u32 {
        place
    }
    fn uniform(hop: u32) -> u32 {
        hop * SINK_WORDS
    }
    fn hop(entry: u32, sinks: u32) -> Option<u32> {
        (entry < sinks * SINK_WORDS).then_some(entry / SINK_WORDS)
    }
}

/// Entries of 16 bits: the next hop under a set bit, or an offset in the part of the heap that belongs
/// to the /6. A quarter smaller; one at a time half as fast again among random addresses, because
/// most entries are in the second cache and are answers; in batches slower, as it selects.
struct Small;

impl Small {
    const ANSWER: u32 = 1 << 15;
    /// All ones where the entry is the answer.
    #[inline(always)]
    fn mask(entry: u32) -> u32 {
        (entry >> 15).wrapping_neg()
    }
}

impl Form for Small {
    type Entry = AtomicU16;
    type Result = AtomicU16;
    const LAYOUT: u64 = stamp(b"fpbs", 16, 1);
    const SINKS: bool = false;
    const PART_SHIFT: u32 = 12;
    #[inline(always)]
    fn chunk(entry: u32, addr: u32) -> u32 {
        (addr >> 26 << 15 | entry) & !Self::mask(entry)
    }
    #[inline(always)]
    fn result(entry: u32, result: u32) -> u32 {
        result & !Self::mask(entry) | entry & !Self::ANSWER & Self::mask(entry)
    }
    #[inline(always)]
    fn answer(entry: u32) -> Option<u32> {
        (entry & Self::ANSWER != 0).then_some(entry & !Self::ANSWER)
    }
    fn entry(place: u32) -> u32 {
        place & !Self::ANSWER & 0xffff
    }
    fn uniform(hop: u32) -> u32 {
        Self::ANSWER | hop
    }
    fn hop(entry: u32, _: u32) -> Option<u32> {
        Self::answer(entry)
    }
}

/// Words of a block of `head` words and as many results.
const fn words<W: Width>(head: usize, results: usize) -> usize {
    head + results.div_ceil(W::PER_WORD)
}

struct Reader<F: Form> {
    bit_ops: Option<BitOps>,
    head: Counts,
    regions: [Region; 4],
    /// The heap, as bitmaps and as results.
    bitmaps: Cells<AtomicU64>,
    results: Cells<F::Result>,
    tail_words: Cells<AtomicU64>,
    tail_results: Cells<F::Result>,
}

/// What a lookup up to /24 reads, as a batch keeps it in registers.
struct View<'a, F: Form> {
    direct: &'a [F::Entry; ENTRIES],
    bitmaps: Masked<'a, AtomicU64>,
    results: Masked<'a, F::Result>,
}

/// The greatest power of two of words in a region, less one.
fn mask_of(region: &Region) -> Option<usize> {
    region.u64s().len().checked_ilog2().map(|bits| (1 << bits) - 1)
}

impl<F: Form> Reader<F> {
    /// `None` when a region is too small. What a mask leaves of a region is not used.
    fn new(head: Counts, direct: Region, heap: Region, tails: Region) -> Option<Self> {
        if F::Entry::slice(&direct).len() < ENTRIES {
            return None;
        }
        let (words, tail_words) = (mask_of(&heap)?, mask_of(&tails)?);
        let results = |mask: usize| (mask + 1) * F::Result::PER_WORD - 1;
        Some(Self {
            bit_ops: BitOps::detect(),
            bitmaps: Cells::new(&heap, words),
            results: Cells::new(&heap, results(words)),
            tail_words: Cells::new(&tails, tail_words),
            tail_results: Cells::new(&tails, results(tail_words)),
            regions: [head.region().clone(), direct, heap, tails],
            head,
        })
    }

    #[inline(always)]
    fn view(&self) -> View<'_, F> {
        View {
            direct: F::Entry::slice(&self.regions[DIRECT])
                .first_chunk()
                .expect("seen when it was made"),
            bitmaps: self.bitmaps.view(),
            results: self.results.view(),
        }
    }

    /// The answer that a tail has for an address.
    #[cold]
    fn tail(&self, result: u32, addr: u32) -> NextHopId {
        let (words, results) = (self.tail_words.view(), self.tail_results.view());
        let at = (result & !F::Result::TAIL) as usize * LINE_WORDS;
        let word = addr as usize >> 6 & 3;
        let runs = words.at(at + word).load(Relaxed) << (!addr & 63);
        let before = words.at(at + 4).load(Relaxed) >> (16 * word) & 0xffff;
        let rank = before as usize + runs.count_ones() as usize;
        // A damaged tail may have no run before the address; a wrong answer is all it may give.
        NextHopId(
            results.at(((at + TAIL_HEAD) * F::Result::PER_WORD + rank).saturating_sub(1)).get(),
        )
    }
}

/// Keys that go through the stages together: enough for the prefetches of a group to arrive before its
/// second stage. On Cascade Lake 32 were as fast and 128 a tenth slower, on Zen 3 128 a tenth faster.
const GROUP: usize = 64;
/// What is left of a batch goes in groups of so many, then one by one.
const FEW: usize = 8;

impl<F: Form> View<'_, F> {
    #[inline(always)]
    fn entry(&self, addr: u32) -> u32 {
        self.direct[(addr >> SHIFT) as usize].read()
    }

    /// The result for an address whose /18 has this entry.
    #[inline(always)]
    fn result(&self, entry: u32, addr: u32) -> u32 {
        let chunk = F::chunk(entry, addr) as usize;
        // Bits up to the slot of the address, moved to the top; bit 0 of the bitmap is among them.
        let runs = self.bitmaps.at(chunk).load(Relaxed) << (!(addr >> 8) & 63);
        // The first result stands a word after the bitmap, and counts one.
        let first = (chunk + 1) * F::Result::PER_WORD - 1;
        F::result(entry, self.results.at(first + runs.count_ones() as usize).get())
    }
}

/// One lookup.
struct One<'a, F: Form>(&'a Reader<F>, u32);

impl<F: Form> Job for One<'_, F> {
    type Out = NextHopId;

    #[inline(always)]
    fn run(self) -> NextHopId {
        let Self(reader, addr) = self;
        let view = reader.view();
        let entry = view.entry(addr);
        if let Some(hop) = F::answer(entry) {
            return NextHopId(hop);
        }
        let result = view.result(entry, addr);
        if result & F::Result::TAIL == 0 { NextHopId(result) } else { reader.tail(result, addr) }
    }
}

/// A batch of them; `out` is as long as `addrs`.
struct Batch<'a, F: Form> {
    reader: &'a Reader<F>,
    addrs: &'a [u32],
    out: &'a mut [NextHopId],
}

impl<F: Form> Batch<'_, F> {
    /// All entries, then all chunks, then the few that end in a tail.
    #[inline(always)]
    fn group<const N: usize>(
        &self,
        view: &View<'_, F>,
        addrs: &[u32; N],
        out: &mut [NextHopId; N],
    ) {
        let entries = addrs.map(|addr| {
            let entry = view.entry(addr);
            view.bitmaps.prefetch(F::chunk(entry, addr) as usize);
            entry
        });
        let mut all = 0;
        for ((&entry, &addr), out) in entries.iter().zip(addrs).zip(out.iter_mut()) {
            let result = view.result(entry, addr);
            all |= result;
            *out = NextHopId(result);
        }
        if all & F::Result::TAIL != 0 {
            for (&addr, out) in addrs.iter().zip(out) {
                if out.0 & F::Result::TAIL != 0 {
                    *out = self.reader.tail(out.0, addr);
                }
            }
        }
    }
}

impl<F: Form> Job for Batch<'_, F> {
    type Out = ();

    #[inline(always)]
    fn run(mut self) {
        let view = self.reader.view();
        let out = core::mem::take(&mut self.out);
        let (groups, rest) = self.addrs.as_chunks::<GROUP>();
        let (outs, rest_out) = out.as_chunks_mut::<GROUP>();
        groups.iter().zip(outs).for_each(|(addrs, out)| self.group(&view, addrs, out));
        let (groups, rest) = rest.as_chunks::<FEW>();
        let (outs, rest_out) = rest_out.as_chunks_mut::<FEW>();
        groups.iter().zip(outs).for_each(|(addrs, out)| self.group(&view, addrs, out));
        for (&addr, out) in rest.iter().zip(rest_out) {
            self.group(&view, &[addr], core::array::from_mut(out));
        }
    }
}

impl<F: Form> Lookup<u32> for Reader<F> {
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
        let entry = view.entry(addr);
        let mut tell = |region: usize, offset, value, note| {
            step(&Step { region: NAMES[region], offset, value, note });
        };
        let offset = index * size_of::<F::Entry>();
        if F::result(entry, 0) == F::result(entry, 1) {
            tell(DIRECT, offset, u64::from(entry), "the next hop of this /18");
            return NextHopId(F::result(entry, 0));
        }
        tell(DIRECT, offset, u64::from(entry), "where the chunk of this /18 starts");
        let entry = F::chunk(entry, addr) as usize;
        // One slot after another, unlike the lookup: two ways to the same answer.
        let runs = view.bitmaps.at(entry).load(Relaxed);
        tell(HEAP, entry * 8, runs, "where answers change in this /18, a bit a /24");
        let slot = addr >> 8 & 63;
        let run = (1..=slot).filter(|i| runs >> i & 1 == 1).count();
        let at = entry * F::Result::PER_WORD + F::Result::PER_WORD + run;
        let result = view.results.at(at).get();
        let size = size_of::<F::Result>();
        if result & F::Result::TAIL == 0 {
            tell(HEAP, at * size, u64::from(result), "the next hop of the run");
            return NextHopId(result);
        }
        tell(HEAP, at * size, u64::from(result), "the tail of a /24 with longer prefixes");
        let tail = (result & !F::Result::TAIL) as usize * LINE_WORDS;
        let mut run = 0;
        for word in 0..=(addr as usize >> 6 & 3) {
            let runs = self.tail_words.view().at(tail + word).load(Relaxed);
            tell(TAIL, (tail + word) * 8, runs, "where answers change in this /24");
            let last = if word == addr as usize >> 6 & 3 { addr & 63 } else { 63 };
            run += (0..=last).filter(|i| runs >> i & 1 == 1).count();
        }
        let at = ((tail + TAIL_HEAD) * F::Result::PER_WORD + run).saturating_sub(1);
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
        let words = count(CHUNK_WORDS)
            + count(SINKS) * SINK_WORDS as usize
            + count(TAIL_LINES) * LINE_WORDS;
        Counts::BYTES + ENTRIES * size_of::<F::Entry>() + words * 8
    }
}

fn open(saved: &[Region]) -> Result<Arc<dyn Lookup<u32>>, FormatError> {
    match open_as::<Narrow>(saved) {
        Err(FormatError::Version { got, .. }) if got == Wide::LAYOUT => open_as::<Wide>(saved),
        result => result,
    }
}

fn open_as<F: Form>(saved: &[Region]) -> Result<Arc<dyn Lookup<u32>>, FormatError> {
    let head = Counts::open(saved, F::LAYOUT)?;
    let [direct, heap, tails] = [DIRECT, HEAP, TAIL].map(|at| region_named(saved, NAMES[at]));
    let reader = Reader::<F>::new(head, direct?, heap?, tails?);
    let reader = reader.ok_or(FormatError::Bounds(NAMES[DIRECT]))?;
    let view = reader.view();
    let heap_words = reader.regions[HEAP].u64s().len();
    let tail_words = reader.regions[TAIL].u64s().len();
    let whole = |(index, entry): (usize, &F::Entry)| {
        let entry = entry.read();
        if F::result(entry, 0) == F::result(entry, 1) {
            return Ok(());
        }
        let addr = u32::try_from(index << SHIFT).expect("2^18 entries");
        let entry = F::chunk(entry, addr) as usize;
        if entry >= heap_words {
            return Err(FormatError::Bounds(NAMES[HEAP]));
        }
        let runs = view.bitmaps.at(entry).load(Relaxed);
        let results = runs.count_ones() as usize;
        if runs & 1 == 0 || words::<F::Result>(1, results) > heap_words - entry {
            return Err(FormatError::Bounds(NAMES[HEAP]));
        }
        for run in 0..results {
            let result = view.results.at((entry + 1) * F::Result::PER_WORD + run).get();
            if result & F::Result::TAIL != 0 {
                let at = (result & !F::Result::TAIL) as usize * LINE_WORDS;
                let end = at.saturating_add(words::<F::Result>(TAIL_HEAD, 256));
                let first = reader.tail_words.view().at(at).load(Relaxed);
                // The last tail's results may end before the region does; masks keep reads inside.
                if first & 1 == 0 || end > tail_words + words::<F::Result>(0, 256) {
                    return Err(FormatError::Bounds(NAMES[TAIL]));
                }
            }
        }
        Ok(())
    };
    let mut entries = F::Entry::slice(&reader.regions[DIRECT])[..ENTRIES].iter().enumerate();
    entries.try_for_each(whole)?;
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
        for (store, layout) in [(narrow, Narrow::LAYOUT), (wide, Wide::LAYOUT)] {
            let saved = write::make(&store, &mut Heap).unwrap().publish().regions().to_vec();
            assert_eq!(saved[0].u64s()[0].load(Relaxed), layout);
            let answers = |bit_ops| {
                let [head, direct, heap, tails] = [0, 1, 2, 3].map(|i| saved[i].clone());
                let mut out = vec![NextHopId::NONE; addrs.len()];
                if layout == Narrow::LAYOUT {
                    let head = Counts::open(&[head], layout).unwrap();
                    let reader = Reader::<Narrow>::new(head, direct, heap, tails).unwrap();
                    Reader { bit_ops, ..reader }.lookup_batch(&addrs, &mut out);
                } else {
                    let head = Counts::open(&[head], layout).unwrap();
                    let reader = Reader::<Wide>::new(head, direct, heap, tails).unwrap();
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
