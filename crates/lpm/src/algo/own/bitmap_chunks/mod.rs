//! Bitmap chunks: one read of a direct table, one of a chunk whose bitmap marks where answers change.
//!
//! Source: our own. DXR's direct table (Zec, Rizzo, Mikuc, CCR 2012) in front of Lulea's run
//!         bitmaps (Degermark et al., SIGCOMM 1997), without a tag: an entry whose whole /18 has one
//!         answer leads to a chunk as well, the sink of that next hop, so no batch branches on data.
//! Shape:  direct [u16; 2^18]: where the chunk of a /18 starts in the heap, in words of 8 bytes, a sink
//!         if below the end of the sinks, else counted from the base of the /6 (u32, counted from the
//!         start, where a /6 or the sinks take more than 512 KiB); bases [u32; 64]; heap [u64; n]: the
//!         sinks, then the chunks by /6; tails [64 bytes; m]: the /24s that hold longer prefixes
//! Cost:   lookup two reads in two cache lines up to /24, four with a longer prefix; a change
//!         to a /p writes one chunk (p >= 18) or those of 2^(18-p) entries, each published by one store
//! Limits: IPv4; next hops below 2^22; results of 16 bits, or of 32 when next hops need them
//! Wins:   full tables, uniform and announced addresses alike, in batches and one at a time; changed in
//!         place; 1.9 bytes a prefix
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
//! never changes once readers can reach it, and is used again only when none can. Entries of 16 bits
//! make the direct table half a mebibyte, which the second cache keeps: worth more than the addition
//! they cost (docs/decisions/0006).

#[allow(
    unsafe_code,
    reason = "reads at places known to be inside; its invariants are numbered there"
)]
mod chunks_fast;
mod draft;
mod open;
mod write;

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicU16, AtomicU32, AtomicU64};

use crate::head::{HEAD, Head, stamp};
use crate::lookup::{Algorithm, Limits, Lookup, Module, Origin, Step, TableStats, check_out};
use crate::mem::{Cell, Cells, Region};
use crate::next_hop_id::NextHopId;
use crate::one_by_one::{Chain, Each};
use crate::simd::{BitOps, Job, each};
use crate::toolkit::line_space::LINE_WORDS;
use chunks_fast::{Chunks, Heap, Staged, entry};

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
        open: Some(open::open),
        kernel_layout: Some(&open::KERNEL_LAYOUT),
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
/// Words of the heap before the first chunk.
const SINK_END: usize = 7;
type Counts = Head<8>;

const DIRECT: usize = 1;
const HEAP: usize = 2;
const TAIL: usize = 3;
const BASE: usize = 4;
const NAMES: [&str; 5] = [HEAD, "direct", "heap", "tails", "bases"];

/// The heap's parts: a /6 each.
const PARTS: usize = 64;
/// Entries of a part, as a shift of their index.
const PART_SHIFT: u32 = 12;

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
    /// Only before readers can reach it.
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
    /// The greatest.
    const MAX: u32;
    /// Pairs with [`Entry::publish`].
    fn read(&self) -> u32;
    /// Makes all visible that was written before.
    fn publish(&self, entry: u32);
}

impl Entry for AtomicU32 {
    const MAX: u32 = u32::MAX;
    #[inline(always)]
    fn read(&self) -> u32 {
        self.load(Acquire)
    }
    fn publish(&self, entry: u32) {
        self.store(entry, Release);
    }
}

impl Entry for AtomicU16 {
    const MAX: u32 = u16::MAX as u32;
    #[inline(always)]
    fn read(&self) -> u32 {
        u32::from(self.load(Acquire))
    }
    fn publish(&self, entry: u32) {
        self.store(u16::try_from(entry).expect("of a part that was measured"), Release);
    }
}

/// Words of a block of `head` words and as many results.
const fn words_of<W: Width>(head: usize, results: usize) -> usize {
    head + results.div_ceil(W::PER_WORD)
}

/// A table with entries `E` and results `W`.
struct Reader<E, W> {
    bit_ops: Option<BitOps>,
    head: Counts,
    regions: [Region; 5],
    heap: Heap<E, W>,
    tail_words: Cells<AtomicU64>,
    tail_results: Cells<W>,
}

/// What nearly all tables are.
type Near = Reader<AtomicU16, AtomicU16>;
/// Too large for entries of 16 bits.
type Far = Reader<AtomicU32, AtomicU16>;
/// More than 2^15 next hops or lines of tails.
type Wide = Reader<AtomicU32, AtomicU32>;

/// What a lookup up to /24 reads, as a batch keeps it in registers.
struct View<'a, E, W> {
    direct: &'a [E; ENTRIES],
    chunks: Chunks<'a, E, W>,
}

impl<E: Entry, W: Width> Reader<E, W> {
    #[allow(clippy::cast_possible_truncation, reason = "bytes of an integer")]
    const LAYOUT: u64 = stamp(b"fpbc", (16 * size_of::<E>() + size_of::<W>()) as u8, 2);

    /// `None` when a region is too small for the others.
    fn new(head: Counts, [direct, heap, tails, bases]: [Region; 4]) -> Option<Self> {
        if E::slice(&direct).len() < ENTRIES {
            return None;
        }
        let bases_of = bases.u32s().first_chunk::<PARTS>()?.each_ref();
        let sink_end = u32::try_from(head.get(SINK_END)).ok()?;
        // What a mask leaves of a region is not used.
        let tail_words = (1 << tails.u64s().len().checked_ilog2()?) - 1;
        Some(Self {
            bit_ops: BitOps::detect(),
            heap: Heap::new(&heap, bases_of.map(|base| base.load(Relaxed)), sink_end)?,
            tail_words: Cells::new(&tails, tail_words),
            tail_results: Cells::new(&tails, (tail_words + 1) * W::PER_WORD - 1),
            regions: [head.region().clone(), direct, heap, tails, bases],
            head,
        })
    }

    #[inline(always)]
    fn view(&self) -> View<'_, E, W> {
        View {
            direct: E::slice(&self.regions[DIRECT]).first_chunk().expect("seen when it was made"),
            chunks: self.heap.view(),
        }
    }

    /// The answer that a tail has for an address.
    #[inline(always)]
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

    /// Prefetches what [`Reader::tail`] reads first.
    #[inline(always)]
    fn ask_for_tail(&self, result: u32) {
        self.tail_words.view().prefetch((result & !W::TAIL) as usize * LINE_WORDS);
    }
}

/// Keys that go through the stages together, the first stage of a group before the second of the one
/// before it: 32 so were the fastest among announced addresses, and 64 without that lost a seventh.
const GROUP: usize = 32;
/// What is left of a span goes in groups of so many.
const FEW: usize = 8;
/// Keys whose tails are read at the end, all together.
const SPAN: usize = 256;

impl<'a, E: Entry, W: Width> View<'a, E, W> {
    #[inline(always)]
    fn entry(&self, addr: u32) -> u32 {
        entry(self.direct, addr)
    }

    /// Place for what the addresses of a group lead to.
    #[inline(always)]
    fn stage<const N: usize>(&self) -> Staged<'a, E, W, N> {
        self.chunks.stage()
    }
}

/// One lookup.
struct One<'a, E, W>(&'a Reader<E, W>, u32);

impl<E: Entry, W: Width> Job for One<'_, E, W> {
    type Out = NextHopId;

    #[inline(always)]
    fn run(self) -> NextHopId {
        let Self(reader, addr) = self;
        let view = reader.view();
        let entry = view.entry(addr);
        // A branch: alone, the wait for the sink would be longer than most of what it gets wrong.
        if entry < view.chunks.sink_end() {
            return NextHopId(entry / SINK_WORDS);
        }
        let mut staged = view.stage::<1>();
        staged.ask(&[addr], |_| entry);
        let mut out = [NextHopId::NONE];
        let result = staged.results(&[addr], &mut out);
        if result & W::TAIL == 0 { NextHopId(result) } else { reader.tail(result, addr) }
    }
}

/// A batch of them; `out` is as long as `addrs`.
struct Batch<'a, E, W> {
    reader: &'a Reader<E, W>,
    addrs: &'a [u32],
    out: &'a mut [NextHopId],
}

/// Which results of a span are tails, a bit each.
type Tails = [u64; SPAN / 64];

impl<E: Entry, W: Width> Reader<E, W> {
    /// Reads the entries of a group and prefetches their chunks.
    #[inline(always)]
    fn ask<const N: usize>(&self, staged: &mut Staged<'_, E, W, N>, addrs: &[u32; N]) {
        let view = self.view();
        staged.ask(addrs, |addr| view.entry(addr));
    }

    /// The chunks of a group that starts at `at` of its span.
    #[inline(always)]
    fn finish<const N: usize>(
        &self,
        staged: &Staged<'_, E, W, N>,
        addrs: &[u32; N],
        out: &mut [NextHopId; N],
        at: usize,
        tails: &mut Tails,
    ) {
        let all = staged.results(addrs, out);
        if all & W::TAIL == 0 {
            return;
        }
        let bit = |(slot, out): (usize, &NextHopId)| u64::from(out.0 & W::TAIL != 0) << slot;
        let having = out.iter().enumerate().map(bit).fold(0, |all, bit| all | bit);
        each(having, |slot| self.ask_for_tail(out[slot % N].0));
        // A group never stands across two words.
        tails[at / 64 % tails.len()] |= having << (at % 64);
    }

    /// All groups of a span, then its tails.
    #[inline(always)]
    fn span(&self, addrs: &[u32], out: &mut [NextHopId]) {
        let mut tails = Tails::default();
        let (groups, rest) = addrs.as_chunks::<GROUP>();
        let (outs, rest_out) = out.as_chunks_mut::<GROUP>();
        self.groups(groups, outs, &mut tails);
        let mut at = groups.len() * GROUP;
        let mut staged = self.view().stage();
        for (addrs, out) in rest.chunks(FEW).zip(rest_out.chunks_mut(FEW)) {
            // The last few are filled up with the first of them.
            let (mut keys, mut answers) = ([addrs[0]; FEW], [NextHopId::NONE; FEW]);
            keys[..addrs.len()].copy_from_slice(addrs);
            self.ask(&mut staged, &keys);
            self.finish(&staged, &keys, &mut answers, at, &mut tails);
            out.copy_from_slice(&answers[..out.len()]);
            at += FEW;
        }
        for (word, having) in tails.into_iter().enumerate() {
            each(having, |bit| {
                let place = 64 * word + bit;
                // The places of what a group was filled up with are beyond.
                if let (Some(&addr), Some(out)) = (addrs.get(place), out.get_mut(place)) {
                    *out = self.tail(out.0, addr);
                }
            });
        }
    }

    /// Each group is prefetched before the one ahead of it is finished.
    #[inline(always)]
    fn groups(&self, groups: &[[u32; GROUP]], outs: &mut [[NextHopId; GROUP]], tails: &mut Tails) {
        let (mut even, mut odd) = (self.view().stage(), self.view().stage());
        if let Some(first) = groups.first() {
            self.ask(&mut even, first);
        }
        let mut finish = |staged: &_, group: usize, out| {
            self.finish(staged, &groups[group], out, group * GROUP, tails);
        };
        for (pair, outs) in outs.chunks_mut(2).enumerate() {
            let [first, rest @ ..] = outs else { continue };
            let group = 2 * pair;
            if let Some(next) = groups.get(group + 1) {
                self.ask(&mut odd, next);
            }
            finish(&even, group, first);
            let [second] = rest else { continue };
            if let Some(next) = groups.get(group + 2) {
                self.ask(&mut even, next);
            }
            finish(&odd, group + 1, second);
        }
    }
}

impl<E: Entry, W: Width> Job for Batch<'_, E, W> {
    type Out = ();

    #[inline(always)]
    fn run(self) {
        let Self { reader, addrs, out } = self;
        for (addrs, out) in addrs.chunks(SPAN).zip(out.chunks_mut(SPAN)) {
            reader.span(addrs, out);
        }
    }
}

impl<E: Entry, W: Width> Lookup<u32> for Reader<E, W> {
    fn lookup(&self, addr: u32) -> NextHopId {
        BitOps::run(self.bit_ops, One(self, addr))
    }

    fn lookup_batch(&self, addrs: &[u32], out: &mut [NextHopId]) {
        let out = check_out(addrs, out);
        BitOps::run(self.bit_ops, Batch { reader: self, addrs, out });
    }

    fn lookup_each(&self, addrs: &[u32], out: &mut [NextHopId]) {
        let out = check_out(addrs, out);
        BitOps::run(self.bit_ops, Each { addrs, out, one: |addr| One(self, addr).run() });
    }

    fn lookup_chain(&self, addrs: &[u32], mask: u32, out: &mut [NextHopId]) {
        let out = check_out(addrs, out);
        BitOps::run(self.bit_ops, Chain { addrs, mask, out, one: |addr| One(self, addr).run() });
    }

    fn explain(&self, addr: u32, step: &mut dyn FnMut(&Step)) -> NextHopId {
        let index = (addr >> SHIFT) as usize;
        let entry = self.view().entry(addr);
        let mut tell = |region: usize, offset, value, note| {
            step(&Step { region: NAMES[region], offset, value, note });
        };
        let offset = index * size_of::<E>();
        if entry < self.view().chunks.sink_end() {
            tell(DIRECT, offset, u64::from(entry), "the sink of the next hop of this /18");
            return NextHopId(entry / SINK_WORDS);
        }
        tell(DIRECT, offset, u64::from(entry), "where the chunk of this /18 starts");
        let place = self.heap.place(entry, addr) as usize;
        // In ways unlike the lookup's, to the same answer: slot by slot, and each read checked.
        let runs = self.regions[HEAP].u64s()[place].load(Relaxed);
        tell(HEAP, place * 8, runs, "where answers change in this /18, a bit a /24");
        let slot = addr >> 8 & 63;
        let run = (1..=slot).filter(|i| runs >> i & 1 == 1).count();
        let at = (place + 1) * W::PER_WORD + run;
        let result = W::slice(&self.regions[HEAP])[at].get();
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
        // Saturating, as the counts may be those of a damaged copy.
        let of = |word, size: u64| self.head.get(word).saturating_mul(size);
        let sinks = of(SINKS, u64::from(SINK_WORDS) * 8);
        let tails = of(TAIL_LINES, LINE_WORDS as u64 * 8);
        let heap = of(CHUNK_WORDS, 8).saturating_add(sinks).saturating_add(tails);
        let fixed = Counts::BYTES + ENTRIES * size_of::<E>() + PARTS * 4;
        usize::try_from(heap).unwrap_or(usize::MAX).saturating_add(fixed)
    }
}

#[cfg(test)]
mod tests {
    use super::open::open;
    use super::*;
    use crate::FormatError;
    use crate::mem::{Heap, Memory};
    use crate::routes::RouteStore;
    use crate::testing::{Addresses, Shape, Stream, table};
    use alloc::vec;
    use alloc::vec::Vec;

    /// The regions of a table, and which form it has.
    fn made(routes: &RouteStore<u32>) -> (Vec<Region>, u64) {
        let regions = write::make(routes, &mut Heap).unwrap().publish().regions().to_vec();
        let layout = regions[0].u64s()[0].load(Relaxed);
        (regions, layout)
    }

    type Ask = fn(&[Region], Option<BitOps>, &[u32]) -> Vec<NextHopId>;

    fn answers<E: Entry, W: Width>(
        saved: &[Region],
        bit_ops: Option<BitOps>,
        addrs: &[u32],
    ) -> Vec<NextHopId> {
        let head = Counts::open(saved, Reader::<E, W>::LAYOUT).unwrap();
        let reader = Reader::<E, W>::new(head, [1, 2, 3, 4].map(|i| saved[i].clone())).unwrap();
        let mut out = vec![NextHopId::NONE; addrs.len()];
        Reader { bit_ops, ..reader }.lookup_batch(addrs, &mut out);
        out
    }

    /// Both compilations give the same answers as the steps of `explain`, in each form; and batches
    /// of all lengths as whole ones.
    #[test]
    fn twins() {
        let mut routes = table::<u32>(Shape::Hostile, 3000, 500, 3);
        let prefixes: Vec<_> = routes.iter().map(|&(prefix, _)| prefix).collect();
        let addrs = Addresses::new(Stream::Edges, &prefixes, 3).take(5000);
        let near: RouteStore<u32> = routes.iter().copied().collect();
        routes.push((crate::Prefix::host(7), NextHopId(30_000)));
        let far: RouteStore<u32> = routes.iter().copied().collect();
        routes.push((crate::Prefix::host(9), NextHopId(40_000)));
        let wide: RouteStore<u32> = routes.iter().copied().collect();
        let forms: [(_, _, Ask); 3] = [
            (near, Near::LAYOUT, answers::<AtomicU16, AtomicU16>),
            (far, Far::LAYOUT, answers::<AtomicU32, AtomicU16>),
            (wide, Wide::LAYOUT, answers::<AtomicU32, AtomicU32>),
        ];
        for (store, layout, answers) in forms {
            let (saved, got) = made(&store);
            assert_eq!(got, layout);
            let plain = answers(&saved, None, &addrs);
            assert!(plain.iter().any(|hop| !hop.is_none()));
            assert_eq!(answers(&saved, BitOps::detect(), &addrs), plain);
            let reader = open(&saved).unwrap();
            for (&addr, &hop) in addrs.iter().zip(&plain) {
                assert_eq!(reader.explain(addr, &mut |_| {}), hop, "{addr:#x}");
            }
            for len in 0..2 * SPAN + 2 {
                let mut out = vec![NextHopId::NONE; len];
                reader.lookup_batch(&addrs[..len], &mut out);
                assert_eq!(out, plain[..len], "a batch of {len}");
            }
        }
    }

    /// What could lead outside is refused: the reads have no check of their own.
    #[test]
    fn entries_that_could_lead_outside() {
        let routes = table::<u32>(Shape::Hostile, 300, 50, 3).into_iter().collect();
        let (saved, _) = made(&routes);
        assert!(open(&saved).is_ok());
        let last = &saved[BASE].u32s()[PARTS - 1];
        let base = last.load(Relaxed);
        let beyond = saved[HEAP].u64s().len() - chunks_fast::reach::<AtomicU16>() - 0xffff + 1;
        last.store(u32::try_from(beyond).unwrap(), Relaxed);
        assert!(matches!(open(&saved), Err(FormatError::Bounds("heap"))));
        last.store(base, Relaxed);
        let mut shorter = saved.clone();
        shorter[HEAP] = Memory::region(&mut Heap, "heap", 65_535 * 8).unwrap();
        assert!(matches!(open(&shorter), Err(FormatError::Bounds("heap"))));
        shorter = saved.clone();
        shorter[BASE] = Memory::region(&mut Heap, "bases", 8).unwrap();
        assert!(matches!(open(&shorter), Err(FormatError::Bounds(_))));
    }
}
