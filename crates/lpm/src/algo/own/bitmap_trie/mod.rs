//! Bitmap trie: a direct table on 18 bits, then chunks of 6 bits whose bitmap marks where answers change.
//!
//! Source: our own. Lulea's run bitmaps (Degermark et al., SIGCOMM 1997) in a trie of one stride, behind a
//!         direct table as DXR has it (Zec, Rizzo, Mikuc, CCR 2012). Made so that a program in the kernel
//!         can read it: plain loads at plain indices, a count of bits, a loop with a bound, no vectors.
//! Shape:  direct [u32; 2^18 + 16]: an entry for each /21 of 2000::/3, then one for each of the eight /3,
//!         of which that of 2000::/3 is the next hop of ::/0 instead; heap [u64; 2^n]: chunks
//! Cost:   lookup one read, and one more line for each 6 bits behind the 21 (or behind the first 3
//!         elsewhere) that longer prefixes take: six in all to a /48, 19 (22) at most. A change is a store
//!         where it moves no edge, else one chunk written and a store; ::/0 is a store
//! Limits: IPv6; next hops below 2^31
//! Wins:   where a program in the kernel reads the same memory; small and quick to change. Weak: announced
//!         addresses in user space, where `rl32` reads half as many lines
//!
//! ```text
//! entry    bit 31 set: the word of the heap where a chunk starts; else a next hop, 0 what ::/0 says
//! chunk    word 0: runs, bit i set: slot i starts a run of equal entries; bit 0 is set
//!          then an entry a run, 32 bits each. A slot that leads to a chunk is a run of its own
//!
//! at = addr >> 125; i = at == 1 ? addr >> 107 & 0x3ffff : 2^18 + at; key = addr << (at == 1 ? 21 : 3)
//! e = direct[i]
//! 21 times while e >> 31:     c = &heap[e & 0x7fffffff]; slot = key >> 122; key <<= 6
//!                             e = ((u32 *)c)[1 + popcount(c[0] << (63 - slot))]
//! return e ? e : direct[2^18 + 1]
//! ```
//!
//! A chunk of at most a line never straddles two. The bitmap of a chunk never changes while readers can
//! reach it; an entry may, by one store, for one that leads elsewhere. So each address sees a change by
//! one store. What was unlinked is used again only when no reader can hold it.

mod open;
mod write;

use core::hint::select_unpredictable;
use core::sync::atomic::Ordering::{Acquire, Relaxed};
use core::sync::atomic::{AtomicU32, AtomicU64};

use crate::addr::Addr;
use crate::head::{HEAD, Head, stamp};
use crate::lookup::{Algorithm, Limits, Lookup, Module, Origin, Step, TableStats, check_out};
use crate::mem::{Cells, Masked, Region, prefetch};
use crate::next_hop_id::NextHopId;
use crate::one_by_one::{Chain, Each};
use crate::simd::{BitOps, Job};

/// The rows of this file.
pub(super) const MODULE: Module = Module {
    v4: &[],
    v6: &[Algorithm {
        name: "bt18",
        summary: "direct table on 18 bits, then a trie of chunks that programs in the kernel can read",
        source: "Fingerpost",
        origin: Origin::Own,
        limits: Limits { next_hop: CHUNK - 1, prefix_len: 128, note: "" },
        fitness,
        make: write::make,
        open: Some(open::open),
        kernel_layout: Some(&open::KERNEL_LAYOUT),
    }],
};

fn fitness(stats: &TableStats) -> u8 {
    // Below `rl32`, which user space reads in half the lines; and a mebibyte for a few routes.
    if stats.prefixes < 100 { 10 } else { 150 }
}

/// Top bit of an entry: the rest is where a chunk starts.
const CHUNK: u32 = 1 << 31;
/// First bits of an address, which choose between the direct table and the entries behind it.
const TOP: u8 = 3;
/// What they are in the space that the direct table is for.
const GLOBAL: u32 = 1;
/// Bits of the direct table.
const TABLE: u8 = 18;
/// Bits of a chunk, and the last of its slots.
const STRIDE: u8 = 6;
const LAST_SLOT: u32 = (1 << STRIDE) - 1;
/// Where in the direct table the entries of the /3s start.
const TOPS: usize = 1 << TABLE;
const LAST_ENTRY: u32 = (1 << TABLE) - 1;
/// The one that would be that of 2000::/3: the next hop of ::/0.
const DEFAULT: usize = TOPS + GLOBAL as usize;
/// Entries, to the end of a line.
const ENTRIES: usize = TOPS + 16;
/// Most chunks of a lookup: from bit 3 on.
const LEVELS: u8 = (128 - TOP).div_ceil(STRIDE);

const LAYOUT: u64 = stamp(b"fpbt", TABLE, 1);

/// Words of the head.
const PREFIXES: usize = 0;
const CHUNKS: usize = 1;
const CHUNK_WORDS: usize = 2;
const WAITING: usize = 3;
type Counts = Head<4>;

const DIRECT: usize = 1;
const HEAP: usize = 2;
const NAMES: [&str; 3] = [HEAD, "direct", "heap"];

struct Reader {
    bit_ops: Option<BitOps>,
    head: Counts,
    regions: [Region; 3],
    /// The heap, as all that stands in it.
    words: Cells<AtomicU64>,
    entries: Cells<AtomicU32>,
}

/// The arrays of a reader, as a batch keeps them in registers.
#[derive(Clone, Copy)]
struct View<'a> {
    direct: &'a [AtomicU32; ENTRIES],
    words: Masked<'a, AtomicU64>,
    entries: Masked<'a, AtomicU32>,
}

/// The entry of an address, and how many of its bits come before the first chunk.
#[inline(always)]
fn start(addr: u128) -> (usize, u8) {
    let top = addr.bits(0, TOP);
    let global = top == GLOBAL;
    let index = select_unpredictable(global, addr.bits(TOP, TABLE) as usize, TOPS + top as usize);
    (index, select_unpredictable(global, TOP + TABLE, TOP))
}

/// The words that a chunk of so many runs takes.
const fn words_of(runs: usize) -> usize {
    1 + runs.div_ceil(2)
}

impl Reader {
    /// `None` when a region is too small for any table.
    fn new(head: Counts, direct: Region, heap: Region) -> Option<Self> {
        if direct.u32s().len() < ENTRIES {
            return None;
        }
        // What a mask leaves of a region is not used.
        let words = 1usize << heap.u64s().len().checked_ilog2()?;
        Some(Self {
            bit_ops: BitOps::detect(),
            words: Cells::new(&heap, words - 1),
            entries: Cells::new(&heap, 2 * words - 1),
            regions: [head.region().clone(), direct, heap],
            head,
        })
    }

    #[inline(always)]
    fn view(&self) -> View<'_> {
        View {
            direct: self.regions[DIRECT].u32s().first_chunk().expect("seen when it was made"),
            words: self.words.view(),
            entries: self.entries.view(),
        }
    }
}

impl View<'_> {
    #[inline(always)]
    fn entry(&self, index: usize) -> u32 {
        // Acquire here and below: each pairs with the release store that published the entry.
        self.direct[index].load(Acquire)
    }

    /// The entry that a chunk has for a slot.
    #[inline(always)]
    fn below(&self, entry: u32, slot: u64) -> u32 {
        let place = (entry & !CHUNK) as usize;
        // Bits up to the slot, moved to the top.
        let runs = self.words.at(place).load(Relaxed) << (63 - slot);
        self.entries.at(2 * place + 1 + runs.count_ones() as usize).load(Acquire)
    }

    /// Answer of the last entry of a lookup. An entry that still refers to a chunk is damaged.
    #[inline(always)]
    fn settle(&self, entry: u32) -> u32 {
        let hop = select_unpredictable(entry == 0, self.direct[DEFAULT].load(Relaxed), entry);
        select_unpredictable(hop & CHUNK == 0, hop, 0)
    }
}

/// The next [`WINDOW`] slots of an address, from its bit `from` on. Bits past the end are 0.
#[inline(always)]
#[allow(clippy::cast_possible_truncation, reason = "the upper half")]
fn window(addr: u128, from: u8) -> u64 {
    (addr.checked_shl(from.into()).unwrap_or(0) >> 64) as u64
}

/// Slots that 64 bits have.
const WINDOW: u8 = 64 / STRIDE;

/// The slot that a window starts with.
#[inline(always)]
fn slot(window: u64) -> u64 {
    window >> (64 - STRIDE)
}

/// One lookup.
struct One<'a>(&'a Reader, u128);

impl Job for One<'_> {
    type Out = NextHopId;

    #[inline(always)]
    fn run(self) -> NextHopId {
        let Self(reader, addr) = self;
        let view = reader.view();
        let (index, mut from) = start(addr);
        let mut entry = view.entry(index);
        'down: for _ in 0..LEVELS.div_ceil(WINDOW) {
            let mut key = window(addr, from);
            for _ in 0..WINDOW {
                if entry & CHUNK == 0 {
                    break 'down;
                }
                entry = view.below(entry, slot(key));
                key <<= STRIDE;
            }
            from += WINDOW * STRIDE;
        }
        NextHopId(view.settle(entry))
    }
}

/// Keys that go down together, each level for all of them before the next.
const GROUP: usize = 128;
/// What is left of a batch goes in groups of so many.
const FEW: usize = 8;

/// A batch of lookups; `out` is as long as `addrs`.
struct Batch<'a> {
    reader: &'a Reader,
    addrs: &'a [u128],
    out: &'a mut [NextHopId],
}

impl View<'_> {
    /// Prefetches the entries of a group.
    #[inline(always)]
    fn ask(&self, addrs: &[u128]) {
        addrs.iter().for_each(|&addr| prefetch(&self.direct[start(addr).0]));
    }

    #[inline(always)]
    fn group<const N: usize>(&self, addrs: &[u128; N], out: &mut [NextHopId; N]) {
        // Those whose entry leads to a chunk, by their number in the group, and the slots to come. Each
        // is written down and counted or not, so that nothing branches on an entry. There are never more
        // than before: the remainders are for the compiler.
        let (mut going, mut keys, mut count) = ([0u8; N], [0; N], 0);
        for ((&addr, out), number) in addrs.iter().zip(out.iter_mut()).zip(0..) {
            let entry = self.entry(start(addr).0);
            self.words.prefetch((entry & !CHUNK) as usize);
            out.0 = entry;
            going[count % N] = number;
            count += (entry >> 31) as usize;
        }
        let mut level = 0;
        while count > 0 && level < LEVELS.next_multiple_of(WINDOW) {
            if level.is_multiple_of(WINDOW) {
                // At the first, and for the few prefixes that are longer than a window.
                for (key, &number) in keys.iter_mut().zip(&going[..count]) {
                    let addr = addrs[usize::from(number) % N];
                    *key = window(addr, start(addr).1 + level * STRIDE);
                }
            }
            let before = core::mem::take(&mut count);
            for at in 0..before {
                let (number, key) = (going[at % N], keys[at % N]);
                let out = &mut out[usize::from(number) % N];
                let entry = self.below(out.0, slot(key));
                self.words.prefetch((entry & !CHUNK) as usize);
                out.0 = entry;
                going[count % N] = number;
                keys[count % N] = key << STRIDE;
                count += (entry >> 31) as usize;
            }
            level += 1;
        }
        out.iter_mut().for_each(|out| out.0 = self.settle(out.0));
    }
}

impl Job for Batch<'_> {
    type Out = ();

    #[inline(always)]
    fn run(self) {
        let Self { reader, addrs, out } = self;
        let view = reader.view();
        let (groups, rest) = addrs.as_chunks::<GROUP>();
        let (outs, rest_out) = out.as_chunks_mut::<GROUP>();
        // Each group's entries are asked for before the group ahead of it.
        view.ask(groups.first().map_or(rest, |first| first));
        for (at, (addrs, out)) in groups.iter().zip(outs).enumerate() {
            view.ask(groups.get(at + 1).map_or(rest, |next| next));
            view.group(addrs, out);
        }
        for (addrs, out) in rest.chunks(FEW).zip(rest_out.chunks_mut(FEW)) {
            // The last few are filled up with the first of them.
            let (mut keys, mut answers) = ([addrs[0]; FEW], [NextHopId::NONE; FEW]);
            keys[..addrs.len()].copy_from_slice(addrs);
            view.group(&keys, &mut answers);
            out.copy_from_slice(&answers[..out.len()]);
        }
    }
}

impl Lookup<u128> for Reader {
    fn lookup(&self, addr: u128) -> NextHopId {
        BitOps::run(self.bit_ops, One(self, addr))
    }

    fn lookup_batch(&self, addrs: &[u128], out: &mut [NextHopId]) {
        let out = check_out(addrs, out);
        BitOps::run(self.bit_ops, Batch { reader: self, addrs, out });
    }

    fn lookup_each(&self, addrs: &[u128], out: &mut [NextHopId]) {
        let out = check_out(addrs, out);
        BitOps::run(self.bit_ops, Each { addrs, out, one: |addr| One(self, addr).run() });
    }

    fn lookup_chain(&self, addrs: &[u128], mask: u32, out: &mut [NextHopId]) {
        let out = check_out(addrs, out);
        BitOps::run(self.bit_ops, Chain { addrs, mask, out, one: |addr| One(self, addr).run() });
    }

    fn explain(&self, addr: u128, step: &mut dyn FnMut(&Step)) -> NextHopId {
        let mut tell = |region: usize, offset, value, note| {
            step(&Step { region: NAMES[region], offset, value, note });
        };
        // In ways unlike the lookup's, to the same answer: bit by bit, and each read checked.
        let (view, heap) = (self.view(), &self.regions[HEAP]);
        let places = (heap.u64s().len() + 1).next_power_of_two() / 2;
        let (top, table) = (addr.bits(0, TOP) as usize, addr.bits(TOP, TABLE) as usize);
        let global = top == GLOBAL as usize;
        let index = if global { table } else { TOPS + top };
        let mut entry = view.entry(index);
        tell(DIRECT, index * 4, u64::from(entry), if global { "a /21" } else { "a /3" });
        let mut from = if global { TOP + TABLE } else { TOP };
        for _ in 0..LEVELS.next_multiple_of(WINDOW) {
            if entry & CHUNK == 0 {
                break;
            }
            let place = (entry & !CHUNK) as usize % places;
            let runs = heap.u64s()[place].load(Relaxed);
            tell(HEAP, place * 8, runs, "where answers change in the chunk, a bit a slot");
            let count = (0..=addr.bits(from, STRIDE)).filter(|i| runs >> i & 1 == 1).count();
            let at = (2 * place + 1 + count) % (2 * places);
            entry = heap.u32s()[at].load(Acquire);
            tell(HEAP, at * 4, u64::from(entry), "the entry of the run");
            from = 128.min(from + STRIDE);
        }
        let hop = view.settle(entry);
        if entry == 0 {
            tell(DIRECT, DEFAULT * 4, u64::from(hop), "no route but perhaps the default");
        }
        NextHopId(hop)
    }

    fn stats(&self, visit: &mut dyn FnMut(&'static str, u64)) {
        visit("prefixes", self.head.get(PREFIXES));
        visit("chunks", self.head.get(CHUNKS));
        visit("chunk_words", self.head.get(CHUNK_WORDS));
        visit("waiting_bytes", self.head.get(WAITING));
    }

    fn regions(&self) -> &[Region] {
        &self.regions
    }

    fn bytes(&self) -> usize {
        // Saturating, as the counts may be those of a damaged copy.
        let heap = usize::try_from(self.head.get(CHUNK_WORDS)).unwrap_or(usize::MAX);
        heap.saturating_mul(8).saturating_add(Counts::BYTES + 4 * ENTRIES)
    }
}

#[cfg(test)]
mod tests {
    use super::open::open;
    use super::*;
    use crate::FormatError;
    use crate::addr::Prefix;
    use crate::mem::Heap;
    use crate::routes::RouteStore;
    use crate::testing::{Addresses, Shape, Stream, copy_regions, table};
    use alloc::vec;
    use alloc::vec::Vec;

    fn saved(routes: &[(Prefix<u128>, NextHopId)]) -> Vec<Region> {
        let routes: RouteStore<u128> = routes.iter().copied().collect();
        copy_regions(write::make(&routes, &mut Heap).unwrap().publish().regions())
    }

    /// The lookup as the head of this file draws it, for a program that has but the memory.
    fn foreign(saved: &[Region], addr: u128) -> u32 {
        let (direct, heap) = (saved[DIRECT].u32s(), &saved[HEAP]);
        let at = (addr >> 125) as usize;
        let index = if at == 1 { (addr >> 107) as usize & 0x3ffff } else { (1 << 18) + at };
        let mut key = addr << if at == 1 { 21 } else { 3 };
        let mut e = direct[index].load(Relaxed);
        for _ in 0..21 {
            if e >> 31 == 0 {
                break;
            }
            let c = (e & 0x7fff_ffff) as usize;
            let slot = key >> 122;
            key <<= 6;
            let run = (heap.u64s()[c].load(Relaxed) << (63 - slot)).count_ones() as usize;
            e = heap.u32s()[2 * c + 1 + run].load(Relaxed);
        }
        if e == 0 { direct[(1 << 18) + 1].load(Relaxed) } else { e }
    }

    /// Both compilations, the steps of `explain` and the drawing give the same answers; batches of all
    /// lengths the same as whole ones.
    #[test]
    fn twins() {
        let mut routes = table::<u128>(Shape::Hostile, 3000, 70_000, 3);
        routes.retain(|(prefix, _)| prefix.len() > 0);
        routes.push((Prefix::ALL, NextHopId(CHUNK - 1)));
        let prefixes: Vec<_> = routes.iter().map(|&(prefix, _)| prefix).collect();
        let mut addrs = Addresses::new(Stream::Edges, &prefixes, 3).take(4000);
        addrs.extend(Addresses::new(Stream::Uniform, &prefixes, 3).take(500));
        addrs.extend([0, u128::MAX, 1 << 125, (1 << 125) - 1, 1 << 126]);
        let saved = saved(&routes);
        let answers = |bit_ops| {
            let head = Counts::open(&saved, LAYOUT).unwrap();
            let reader = Reader::new(head, saved[DIRECT].clone(), saved[HEAP].clone()).unwrap();
            let mut out = vec![NextHopId::NONE; addrs.len()];
            Reader { bit_ops, ..reader }.lookup_batch(&addrs, &mut out);
            out
        };
        let plain = answers(None);
        assert_eq!(answers(BitOps::detect()), plain);
        let reader = open(&saved).unwrap();
        for (&addr, &hop) in addrs.iter().zip(&plain) {
            assert_eq!(reader.explain(addr, &mut |_| {}), hop, "{addr:#x}");
            assert_eq!(foreign(&saved, addr), hop.0, "{addr:#x}");
        }
        for len in 0..2 * GROUP + 2 {
            let mut out = vec![NextHopId::NONE; len];
            reader.lookup_batch(&addrs[..len], &mut out);
            assert_eq!(out, plain[..len], "a batch of {len}");
        }
    }

    /// A lookup of a host route takes as many steps as the head states, on both sides of the direct table.
    #[test]
    fn the_longest_ways() {
        for (addr, chunks) in [("2001:db8::1", 18), ("fe80::1", 21), ("::", 21), ("3fff::", 18)] {
            let addr = addr.parse::<core::net::Ipv6Addr>().unwrap().to_bits();
            let reader = open(&saved(&[(Prefix::host(addr), NextHopId(5))])).unwrap();
            let mut steps = 0;
            assert_eq!(reader.explain(addr, &mut |_| steps += 1), NextHopId(5));
            assert_eq!(steps, 1 + 2 * chunks, "{addr:#x}");
            for other in [addr ^ 1, addr ^ 2, addr ^ 1 << 64, addr ^ 1 << 106] {
                assert_eq!(reader.lookup(other), NextHopId::NONE, "{other:#x}");
            }
        }
    }

    /// Entries that refer to nothing, too deep, outside, or to the chunk of another.
    #[test]
    fn damaged_ways_are_refused() {
        let host = |addr| (Prefix::host(addr), NextHopId(5));
        let saved = saved(&[host(1 << 125), host(7 << 125)]);
        let constants = open::KERNEL_LAYOUT.constants;
        assert!(constants(&saved).is_some() && constants(&saved[1..]).is_none());
        let opened = |index: usize, entry: u32| {
            let direct = &saved[DIRECT].u32s()[index];
            let old = direct.swap(entry, Relaxed);
            let opened = open(&saved);
            direct.store(old, Relaxed);
            opened.map(|_| ())
        };
        let [table, top] = [0, TOPS + 7].map(|index| saved[DIRECT].u32s()[index].load(Relaxed));
        let refused = Err(FormatError::Bounds(NAMES[HEAP]));
        assert_eq!((opened(0, table), opened(5, 6)), (Ok(()), Ok(())));
        assert_eq!(opened(0, top), refused, "a way that is too long");
        assert_eq!(opened(DEFAULT, table), refused);
        let words = u32::try_from(saved[HEAP].u64s().len()).unwrap();
        assert_eq!(opened(1, CHUNK | words), refused);
        // Not used, so no run.
        assert_eq!(opened(1, CHUNK | (words - 40)), refused);
        // More chunks than the heap could hold.
        saved[DIRECT].u32s()[..TOPS].iter().for_each(|entry| entry.store(table, Relaxed));
        assert_eq!(open(&saved).map(|_| ()), refused);
    }
}
