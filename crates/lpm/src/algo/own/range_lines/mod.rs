//! Range lines: tables to /26, a run bitmap to /32, then cache lines of sorted range starts to /48.
//!
//! Source: our own (RL32). DXR's frame of direct tables before sorted ranges (Zec, Rizzo, Mikuc, CCR
//!         2012), Lulea's run bitmaps (Degermark et al., SIGCOMM 1997) for the middle, and a vector
//!         compare of a whole line as B+-trees and PlanB do it. An entry that is an answer leads to
//!         unit 0 as well, so no batch branches on data.
//! Shape:  top [u16; 2^16]: a page of the heap for each /16; heap [u64; n]: pages of 2^10 u32 (a /26
//!         each), nodes (64 slots of /32), lines, tails; tails [u32; m]: where a tail is
//! Cost:   lookup three reads to /26, four or five to /32, one more line a level of ranges (1 to 16, to
//!         528, to 17,424 in a /32); a change to a /33 or longer writes the lines of its /32, to a /27
//!         to /32 a node as well, to a /17 to /26 the entries it covers; each is published by one store
//! Limits: IPv6; next hops below 2^31; results of 16 bits, or of 32 when next hops need them; 256 MiB
//! Wins:   full tables: announced addresses in batches, changed in place. Weak: tables of few routes;
//!         uniform addresses one after another, where Poptrie reads one place less
//!
//! ```text
//! page entry   bit 31: the answer | next hop; else the unit where the /26's node starts
//! node         u64 runs: bit i set: slot i (a /32) starts a run; bit 0 is set; then u32 a run:
//!              bit 31: the answer | next hop; else line << 2 | depth
//! line         depth 0, a leaf:  results [u16; 16], thresholds [u16; 16] of 16 ranges on bits 32..48
//!                       or wide: results [u32; 10], thresholds [u16; 12] of 10 ranges
//!              depth d, a root:  thresholds [u16; 32]; its children follow it, each a whole tree of
//!                                depth d - 1 but perhaps the last: every 1, 34 or 1,123 lines
//! result       next hop; or top bit set and the number of a tail: the /48 holds longer prefixes
//! tail         u64 count; that many u64: starts of ranges, bits 48..112; then that many u64:
//!              [ bits 112..128, 16 at the top | next hop, 32 ]
//! ```
//!
//! A threshold is the start of the next range less one; an unused one is the greatest value. The place of a key is the number of thresholds below it: so what is unused is never
//! counted, not even by a key of all ones. Next hop 0 stands for the default route, in a word of the head:
//! the default route changes by one store. A node, line or tail never changes once readers can reach it
//! (but for the entries of a node), and is used again only when none can.

#[allow(unsafe_code, reason = "vector compares of a line; its invariants are numbered there")]
mod lines_fast;
mod write;

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::hint::select_unpredictable;
use core::marker::PhantomData;
use core::sync::atomic::Ordering::{Acquire, Relaxed};
use core::sync::atomic::{AtomicU16, AtomicU32, AtomicU64};

use crate::error::FormatError;
use crate::head::{HEAD, Head, stamp};
use crate::lookup::{Algorithm, Limits, Lookup, Module, Origin, Step, TableStats, check_out};
use crate::mem::{Cells, Masked, Region, prefetch, region_named};
use crate::next_hop_id::NextHopId;
use crate::simd::{Simd, each};
use lines_fast::{Below, Line, Scalar};

/// The rows of this file.
pub(super) const MODULE: Module = Module {
    v4: &[],
    v6: &[Algorithm {
        name: "rl32",
        summary: "tables to /26, a run bitmap to /32, then cache lines of range starts",
        source: "Fingerpost",
        origin: Origin::Own,
        limits: Limits { next_hop: DIRECT - 1, prefix_len: 128, note: "256 MiB" },
        fitness,
        make: write::make,
        open: Some(open),
        kernel_layout: None,
    }],
};

fn fitness(stats: &TableStats) -> u8 {
    // Fewer routes fit a sorted array in a few lines, and the tables here take 132 KiB.
    if stats.prefixes < 50 { 60 } else { 220 }
}

/// Top bit of an entry: the rest is the answer.
const DIRECT: u32 = 1 << 31;
/// Words of 4 bytes in a page, entries of the top, and units of 8 bytes in a page.
const PAGE: usize = 1 << 10;
const TOP: usize = 1 << 16;
const PAGE_UNITS: u32 = 512;
/// Units and thresholds of a line.
const LINE_UNITS: u32 = 8;
const ROOT: usize = 32;
/// Children of a root.
const FAN: usize = ROOT + 1;
/// Lines of a whole tree of each depth.
const WHOLE: [usize; 4] = [1, 1 + FAN, 1 + FAN * (1 + FAN), 1 + FAN * (1 + FAN * (1 + FAN))];
/// A threshold that no key is above.
const UNUSED: u16 = u16::MAX;

/// Words of the head.
const PREFIXES: usize = 0;
const PAGES: usize = 1;
const NODES: usize = 2;
const LINES: usize = 3;
const TAILS: usize = 4;
const UNITS: usize = 5;
/// What next hop 0 stands for.
const DEFAULT: usize = 6;
type Counts = Head<7>;

const TOPS: usize = 1;
const HEAP: usize = 2;
const TAIL: usize = 3;
const NAMES: [&str; 4] = [HEAD, "top", "heap", "tails"];

/// How wide a result is.
trait Width: Send + Sync + 'static {
    /// Ranges of a leaf.
    const RANGES: usize;
    /// Where the thresholds of a leaf start, in units of 16 bits.
    const FIRST: usize;
    /// Bit of a result that is the number of a tail.
    const DEEP: u32;
    const LAYOUT: u64;
    fn result(heap: View<'_, Self>, line: usize, place: usize) -> u32
    where
        Self: Sized;
    /// Only before readers can reach the line.
    fn put(heap: View<'_, Self>, line: usize, place: usize, result: u32)
    where
        Self: Sized;
    /// How many thresholds of a leaf are below the key.
    fn place(below: impl Below, line: &Line, key: u16) -> usize;
}

struct Narrow;
struct Wide;

impl Width for Narrow {
    const RANGES: usize = 16;
    const FIRST: usize = 16;
    const DEEP: u32 = 1 << 15;
    const LAYOUT: u64 = stamp(b"fprl", 16, 1);
    #[inline(always)]
    fn result(heap: View<'_, Self>, line: usize, place: usize) -> u32 {
        u32::from(heap.halves.at(32 * line + place).load(Relaxed))
    }
    fn put(heap: View<'_, Self>, line: usize, place: usize, result: u32) {
        let result = u16::try_from(result).expect("a table of wide results otherwise");
        heap.halves.at(32 * line + place).store(result, Relaxed);
    }
    #[inline(always)]
    fn place(below: impl Below, line: &Line, key: u16) -> usize {
        below.upper16(line, key)
    }
}

impl Width for Wide {
    const RANGES: usize = 10;
    const FIRST: usize = 20;
    const DEEP: u32 = DIRECT;
    const LAYOUT: u64 = stamp(b"fprl", 32, 1);
    #[inline(always)]
    fn result(heap: View<'_, Self>, line: usize, place: usize) -> u32 {
        heap.words.at(16 * line + place).load(Relaxed)
    }
    fn put(heap: View<'_, Self>, line: usize, place: usize, result: u32) {
        heap.words.at(16 * line + place).store(result, Relaxed);
    }
    #[inline(always)]
    fn place(below: impl Below, line: &Line, key: u16) -> usize {
        below.upper12(line, key)
    }
}

struct Reader<W> {
    head: Counts,
    regions: [Region; 4],
    top: Cells<AtomicU16>,
    /// The heap, as all that stands in it.
    units: Cells<AtomicU64>,
    words: Cells<AtomicU32>,
    halves: Cells<AtomicU16>,
    lines: Cells<Line>,
    tails: Cells<AtomicU32>,
    simd: Simd,
    width: PhantomData<fn() -> W>,
}

/// The arrays of a reader, as a batch keeps them in registers.
struct View<'a, W> {
    top: Masked<'a, AtomicU16>,
    units: Masked<'a, AtomicU64>,
    words: Masked<'a, AtomicU32>,
    halves: Masked<'a, AtomicU16>,
    lines: Masked<'a, Line>,
    tails: Masked<'a, AtomicU32>,
    default: &'a AtomicU64,
    width: PhantomData<fn() -> W>,
}

impl<W> Clone for View<'_, W> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<W> Copy for View<'_, W> {}

impl<W: Width> Reader<W> {
    /// `units` and `tails` are the powers of two that the regions have at least.
    fn new(head: Counts, top: Region, heap: Region, tail: Region, simd: Simd) -> Self {
        let units = 1 << heap.u64s().len().ilog2();
        let tails = 1 << tail.u32s().len().ilog2();
        Self {
            top: Cells::new(&top, TOP - 1),
            units: Cells::new(&heap, units - 1),
            words: Cells::new(&heap, 2 * units - 1),
            halves: Cells::new(&heap, 4 * units - 1),
            lines: Cells::new(&heap, units / 8 - 1),
            tails: Cells::new(&tail, tails - 1),
            regions: [head.region().clone(), top, heap, tail],
            head,
            simd,
            width: PhantomData,
        }
    }

    #[inline(always)]
    fn view(&self) -> View<'_, W> {
        View {
            top: self.top.view(),
            units: self.units.view(),
            words: self.words.view(),
            halves: self.halves.view(),
            lines: self.lines.view(),
            tails: self.tails.view(),
            default: self.head.word(DEFAULT),
            width: PhantomData,
        }
    }
}

/// The first half of an address: all that lookups to /48 use.
#[inline(always)]
#[allow(clippy::cast_possible_truncation, reason = "the upper half")]
fn half(addr: u128) -> u64 {
    (addr >> 64) as u64
}

/// Bits 32..48, which thresholds are compared with.
#[inline(always)]
#[allow(clippy::cast_possible_truncation, reason = "bits 32..48")]
fn key(half: u64) -> u16 {
    (half >> 16) as u16
}

impl<'a, W: Width> View<'a, W> {
    /// Where the page entry of an address is.
    #[inline(always)]
    #[allow(clippy::cast_possible_truncation, reason = "ten bits")]
    fn page_slot(&self, half: u64) -> u32 {
        // Acquire here and below: each pairs with the release store that published the entry.
        let page = self.top.at((half >> 48) as usize).load(Acquire);
        u32::from(page) << 10 | (half >> 38) as u32 & (PAGE as u32 - 1)
    }

    #[inline(always)]
    fn page_entry(&self, half: u64) -> u32 {
        self.words.at(self.page_slot(half) as usize).load(Acquire)
    }

    /// The entry of a slot of the node at `unit`.
    #[inline(always)]
    fn node_entry(&self, unit: usize, half: u64) -> u32 {
        let runs = self.units.at(unit).load(Relaxed);
        // Bits up to the slot's, moved to the top: a shift by 63 - slot.
        let above = runs << (!(half >> 32) & 63);
        self.words.at(2 * unit + 1 + above.count_ones() as usize).load(Acquire)
    }

    /// Child of a root that holds the key: its line and depth as an entry.
    #[inline(always)]
    #[allow(clippy::cast_possible_truncation, reason = "at most 33 * 1123 lines")]
    fn child(&self, below: impl Below, entry: u32, half: u64) -> u32 {
        let place = below.count32(self.lines.at((entry >> 2) as usize), key(half));
        let stride = WHOLE[(entry as usize).wrapping_sub(1) & 3];
        entry.wrapping_add((((1 + place * stride) << 2) - 1) as u32)
    }

    /// Child of a root of depth 1, as most are.
    #[inline(always)]
    #[allow(clippy::cast_possible_truncation, reason = "at most 32")]
    fn last_child(&self, below: impl Below, entry: u32, half: u64) -> u32 {
        let place = below.count32(self.lines.at((entry >> 2) as usize), key(half)) as u32;
        entry + (place << 2) + 3
    }

    /// Answer of a leaf.
    #[inline(always)]
    fn leaf(&self, below: impl Below, line: usize, half: u64) -> u32 {
        let place = W::place(below, self.lines.at(line), key(half));
        W::result(*self, line, place)
    }

    /// Next hop of a page entry, or the number of its tail.
    #[inline(always)]
    fn descend(&self, below: impl Below, entry: u32, half: u64) -> u32 {
        if entry & DIRECT != 0 {
            return entry & !DIRECT;
        }
        let mut entry = self.node_entry(entry as usize, half);
        if entry & DIRECT != 0 {
            return entry & !DIRECT;
        }
        while entry & 3 != 0 {
            entry = self.child(below, entry, half);
        }
        self.leaf(below, (entry >> 2) as usize, half)
    }

    /// The next hop that a tail has for an address.
    #[cold]
    fn tail(&self, number: u32, addr: u128) -> u32 {
        let unit = self.tails.at(number as usize).load(Acquire) as usize;
        let count = usize::try_from(self.units.at(unit).load(Relaxed)).unwrap_or(0) & MAX_TAIL;
        let (high, low) = tail_key(addr);
        let read = |index: usize| self.units.at(unit + 1 + index).load(Relaxed);
        let mut at = 0;
        let mut left = count;
        while left > 1 {
            let middle = at + left / 2;
            if (read(middle), read(count + middle) >> 48) <= (high, low) {
                at = middle;
            }
            left -= left / 2;
        }
        u32::try_from(read(count + at) & u64::from(u32::MAX)).expect("32 bits")
    }

    /// The answer to a result of a page, node or leaf.
    #[inline(always)]
    fn settle(&self, result: u32, addr: u128) -> NextHopId {
        let mut hop = result;
        if hop & W::DEEP != 0 {
            hop = self.tail(hop & !W::DEEP, addr);
        }
        NextHopId(select_unpredictable(hop == 0, self.default(), hop))
    }

    /// What next hop 0 stands for.
    #[inline(always)]
    #[allow(clippy::cast_possible_truncation, reason = "a next hop")]
    fn default(&self) -> u32 {
        self.default.load(Relaxed) as u32
    }

    #[inline(always)]
    fn single(&self, below: impl Below, page: u32, addr: u128) -> NextHopId {
        self.settle(self.descend(below, page, half(addr)), addr)
    }

    #[inline(always)]
    fn batch(&self, below: impl Below, addrs: &[u128], out: &mut [NextHopId]) {
        let (addrs, out) = self.groups::<GROUP>(below, addrs, out);
        let (addrs, out) = self.groups::<32>(below, addrs, out);
        let (addrs, out) = self.groups::<8>(below, addrs, out);
        for (&addr, out) in addrs.iter().zip(out) {
            *out = self.single(below, self.page_entry(half(addr)), addr);
        }
    }

    /// All whole groups of `N`; the rest.
    #[inline(always)]
    fn groups<'k, const N: usize>(
        &self,
        below: impl Below,
        addrs: &'k [u128],
        out: &'k mut [NextHopId],
    ) -> (&'k [u128], &'k mut [NextHopId]) {
        let (addrs, rest) = addrs.as_chunks::<N>();
        let (out, rest_out) = out.as_chunks_mut::<N>();
        for (addrs, out) in addrs.iter().zip(out) {
            self.group(below, addrs, out);
        }
        (rest, rest_out)
    }

    /// Each stage runs for all keys and prefetches the line of the next. Nothing branches on an address. The
    /// loops that are but arithmetic are for vectors.
    #[inline(always)]
    fn group<const N: usize>(
        &self,
        below: impl Below,
        addrs: &[u128; N],
        out: &mut [NextHopId; N],
    ) {
        let mut at = [0; N];
        for (at, &addr) in at.iter_mut().zip(addrs) {
            let slot = self.page_slot(half(addr));
            prefetch(self.words.at(slot as usize));
            *at = slot;
        }
        let mut pages = [0; N];
        for (page, &at) in pages.iter_mut().zip(&at) {
            *page = self.words.at(at as usize).load(Acquire);
        }
        let mut answers = 0;
        for ((at, out), &page) in at.iter_mut().zip(out.iter_mut()).zip(&pages) {
            *at = page.cast_signed().max(0).cast_unsigned();
            out.0 = page & !DIRECT;
            answers += page >> 31;
        }
        if answers as usize * 4 >= 3 * N {
            // Uniform keys, nearly all of which end here.
            for chunk in 0..N.div_ceil(CHUNK) {
                let bounds = chunk * CHUNK..N.min((chunk + 1) * CHUNK);
                let (pages, addrs) = (&pages[bounds.clone()], &addrs[bounds.clone()]);
                let out = &mut out[bounds];
                let all = u64::MAX >> (CHUNK - out.len());
                each(all & !below.having(pages, DIRECT), |slot| {
                    let slot = slot % out.len();
                    out[slot].0 = self.descend(below, pages[slot], half(addrs[slot]));
                });
            }
        } else {
            for &at in &at {
                prefetch(self.units.at(at as usize));
            }
            self.lines(below, addrs, &pages, &at, out);
        }
        let default = self.default();
        let mut all = 0;
        for out in out.iter_mut() {
            all |= out.0;
            out.0 = if out.0 == 0 { default } else { out.0 };
        }
        if all & W::DEEP != 0 {
            for (&addr, out) in addrs.iter().zip(out) {
                if out.0 & W::DEEP != 0 {
                    *out = self.settle(out.0, addr);
                }
            }
        }
    }

    /// From page entries, and the nodes they lead to, to results.
    #[inline(always)]
    fn lines<const N: usize>(
        &self,
        below: impl Below,
        addrs: &[u128; N],
        pages: &[u32; N],
        at: &[u32; N],
        out: &mut [NextHopId; N],
    ) {
        let mut entries = [0; N];
        for ((&addr, &at), entry) in addrs.iter().zip(at.iter()).zip(&mut entries) {
            *entry = self.node_entry(at as usize, half(addr));
        }
        for ((entry, &page), out) in entries.iter_mut().zip(pages).zip(out.iter_mut()) {
            *entry = if page & DIRECT == 0 { *entry } else { page };
            out.0 = *entry & !DIRECT;
        }
        // From here on only those with lines: in a full table half of them.
        let mut with_lines = [0; GROUP / CHUNK];
        let chunks = || 0..N.div_ceil(CHUNK);
        let bounds = |chunk: usize| chunk * CHUNK..N.min((chunk + 1) * CHUNK);
        for chunk in chunks() {
            let entries = &entries[bounds(chunk)];
            let all = u64::MAX >> (CHUNK - entries.len());
            with_lines[chunk] = all & !below.having(entries, DIRECT);
            each(with_lines[chunk], |slot| {
                prefetch(self.lines.at((entries[slot % entries.len()] >> 2) as usize));
            });
        }
        for chunk in chunks() {
            let entries = &mut entries[bounds(chunk)];
            let addrs = &addrs[bounds(chunk)];
            loop {
                let roots = with_lines[chunk] & below.having(entries, 2);
                if roots == 0 {
                    break;
                }
                each(roots, |slot| {
                    let slot = slot % entries.len();
                    entries[slot] = self.child(below, entries[slot], half(addrs[slot]));
                    prefetch(self.lines.at((entries[slot] >> 2) as usize));
                });
            }
            each(with_lines[chunk] & below.having(entries, 1), |slot| {
                let slot = slot % entries.len();
                entries[slot] = self.last_child(below, entries[slot], half(addrs[slot]));
                prefetch(self.lines.at((entries[slot] >> 2) as usize));
            });
        }
        for chunk in chunks() {
            let (entries, addrs) = (&entries[bounds(chunk)], &addrs[bounds(chunk)]);
            let out = &mut out[bounds(chunk)];
            each(with_lines[chunk], |slot| {
                let slot = slot % out.len();
                out[slot].0 = self.leaf(below, (entries[slot] >> 2) as usize, half(addrs[slot]));
            });
        }
    }
}

/// Keys that a bitmap speaks of.
const CHUNK: usize = 64;

/// Keys that go through the stages together. Each stage ends in a wait, for its last stores to reach the
/// vectors of the next one: fewer keys a stage make more waits.
const GROUP: usize = 128;
/// Most ranges of a tail; a bound for damaged memory.
const MAX_TAIL: usize = (1 << 28) - 1;

/// Bits 48..112 and 112..128 of an address: how a tail is sorted.
#[inline(always)]
#[allow(clippy::cast_possible_truncation, reason = "bits 48..112")]
fn tail_key(addr: u128) -> (u64, u64) {
    ((addr >> 16) as u64, (addr & 0xffff) as u64)
}

impl<W: Width> Lookup<u128> for Reader<W> {
    fn lookup(&self, addr: u128) -> NextHopId {
        let view = self.view();
        let page = view.page_entry(half(addr));
        if page & DIRECT != 0 {
            return view.settle(page & !DIRECT, addr);
        }
        lines_fast::single(self.simd, &view, page, addr)
    }

    fn lookup_batch(&self, addrs: &[u128], out: &mut [NextHopId]) {
        let out = check_out(addrs, out);
        lines_fast::batch(self.simd, &self.view(), addrs, out);
    }

    fn explain(&self, addr: u128, step: &mut dyn FnMut(&Step)) -> NextHopId {
        self.view().explain(addr, step)
    }

    fn stats(&self, visit: &mut dyn FnMut(&'static str, u64)) {
        visit("prefixes", self.head.get(PREFIXES));
        visit("pages", self.head.get(PAGES));
        visit("nodes", self.head.get(NODES));
        visit("lines", self.head.get(LINES));
        visit("tails", self.head.get(TAILS));
        visit("result_bits", if W::DEEP == DIRECT { 32 } else { 16 });
    }

    fn regions(&self) -> &[Region] {
        &self.regions
    }

    fn bytes(&self) -> usize {
        let count = |word| usize::try_from(self.head.get(word)).unwrap_or(usize::MAX);
        let heap = count(UNITS).saturating_mul(8);
        heap.saturating_add(count(TAILS).saturating_mul(4)).saturating_add(Counts::BYTES + 2 * TOP)
    }
}

impl<W: Width> View<'_, W> {
    /// [`View::single`] with a step for each line read.
    fn explain(&self, addr: u128, step: &mut dyn FnMut(&Step)) -> NextHopId {
        let half = half(addr);
        let mut tell = |region: usize, offset: usize, value: u64, note: &'static str| {
            step(&Step { region: NAMES[region], offset, value, note });
        };
        let slot = self.page_slot(half) as usize;
        tell(TOPS, (half >> 48) as usize * 2, (slot >> 10) as u64, "page of the /16");
        let page = self.words.at(slot).load(Acquire);
        let note = if page & DIRECT != 0 { "entry of the /26: a next hop" } else { "a node" };
        tell(HEAP, slot * 4, u64::from(page), note);
        let mut result = page & !DIRECT;
        if page & DIRECT == 0 {
            result = self.explain_node(page as usize, half, &mut tell);
        }
        if result & W::DEEP != 0 {
            let number = (result & !W::DEEP) as usize;
            let unit = self.tails.at(number).load(Acquire) as usize;
            tell(TAIL, number * 4, unit as u64, "where the tail of the /48 is");
            let count = self.units.at(unit).load(Relaxed);
            tell(HEAP, unit * 8, count, "ranges of the tail, then a search");
            result = self.tail(result & !W::DEEP, addr);
        }
        if result == 0 {
            result = self.default();
            tell(0, (1 + DEFAULT) * 8, u64::from(result), "no route but perhaps the default");
        }
        NextHopId(result)
    }

    fn explain_node(
        &self,
        unit: usize,
        half: u64,
        tell: &mut dyn FnMut(usize, usize, u64, &'static str),
    ) -> u32 {
        let runs = self.units.at(unit).load(Relaxed);
        tell(HEAP, unit * 8, runs, "runs of the node");
        // Counted another way than the lookup does.
        let slot = half >> 32 & 63;
        let runs_to = (0..=slot).filter(|&slot| runs >> slot & 1 == 1).count();
        let mut entry = self.node_entry(unit, half);
        let word = 2 * unit + 1 + runs_to;
        if word / 16 != unit / 8 {
            tell(HEAP, word * 4, u64::from(entry), "entry of the /32, in another line");
        }
        if entry & DIRECT != 0 {
            return entry & !DIRECT;
        }
        while entry & 3 != 0 {
            let line = (entry >> 2) as usize;
            tell(HEAP, line * 64, u64::from(entry & 3), "a root of ranges of this depth");
            entry = self.child(Scalar, entry, half);
        }
        let line = (entry >> 2) as usize;
        let result = self.leaf(Scalar, line, half);
        tell(HEAP, line * 64, u64::from(result), "a leaf of ranges");
        result
    }
}

fn open(saved: &[Region]) -> Result<Arc<dyn Lookup<u128>>, FormatError> {
    match Counts::open(saved, Narrow::LAYOUT) {
        Err(FormatError::Version { got, .. }) if got == Wide::LAYOUT => {
            open_as::<Wide>(Counts::open(saved, Wide::LAYOUT)?, saved)
        }
        head => open_as::<Narrow>(head?, saved),
    }
}

fn open_as<W: Width>(head: Counts, saved: &[Region]) -> Result<Arc<dyn Lookup<u128>>, FormatError> {
    let [top, heap, tail] = [TOPS, HEAP, TAIL].map(|index| region_named(saved, NAMES[index]));
    let (top, heap, tail) = (top?, heap?, tail?);
    if top.u16s().len() < TOP {
        return Err(FormatError::Bounds(NAMES[TOPS]));
    }
    if heap.u64s().len() < PAGE_UNITS as usize || tail.u32s().is_empty() {
        return Err(FormatError::Bounds(NAMES[HEAP]));
    }
    let reader = Reader::<W>::new(head, top, heap, tail, Simd::detect());
    reader.check()?;
    Ok(Arc::new(reader))
}

impl<W: Width> Reader<W> {
    /// That every page, node and first line is inside the heap. What lies behind them is read by masked
    /// indices as all of it is, so that damage gives wrong answers and no harm.
    fn check(&self) -> Result<(), FormatError> {
        let units = 1usize << self.regions[HEAP].u64s().len().ilog2();
        let words = self.regions[HEAP].u32s();
        let bounds = |fits: bool| fits.then_some(()).ok_or(FormatError::Bounds(NAMES[HEAP]));
        let default = self.head.get(DEFAULT);
        bounds(default < u64::from(W::DEEP))?;
        let mut pages: Vec<u16> =
            self.regions[TOPS].u16s()[..TOP].iter().map(|page| page.load(Acquire)).collect();
        pages.sort_unstable();
        pages.dedup();
        for page in pages.into_iter().map(usize::from) {
            bounds((page + 1) * PAGE <= 2 * units)?;
            for entry in &words[page * PAGE..(page + 1) * PAGE] {
                let entry = entry.load(Acquire);
                if entry & DIRECT != 0 {
                    bounds(entry & !DIRECT < W::DEEP)?;
                    continue;
                }
                let unit = entry as usize;
                bounds(unit < units)?;
                let runs = self.regions[HEAP].u64s()[unit].load(Relaxed).count_ones() as usize;
                let from = 2 * unit + 2;
                bounds(from + runs <= 2 * units)?;
                for entry in &words[from..from + runs] {
                    let entry = entry.load(Acquire);
                    bounds(match entry & DIRECT {
                        0 => ((entry >> 2) as usize) < units / 8,
                        _ => entry & !DIRECT < W::DEEP,
                    })?;
                }
            }
        }
        Ok(())
    }
}
