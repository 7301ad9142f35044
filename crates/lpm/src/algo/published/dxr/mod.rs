//! DXR: one or two reads of a direct table, then a search in a short sorted chunk.
//!
//! Source: Zec, Rizzo, Mikuc, CCR 2012; Zec, Mikuc, SoftCOM 2017 (two stages); FreeBSD's in_fib_dxr.c
//!         (M. Zec). IPv6 is the same frame over 128 bits, as BSIC has it (NSDI 2025). Differs: the
//!         search does not branch on the key; a change builds the chunks it touches aside and
//!         publishes each by one store, so that no snapshot is ever copied.
//! Shape:  heap [u32; n] (IPv6 [u64; n]): chunks, at most 2^22 - 1 words. Equal ones are stored once and
//!         counted. Before it, what the first K bits of the address index:
//!         `dxr16` to `dxr24`  direct [u32; 2^K]
//!         `dxr` (K = 20; 24)  directory [u16; 2^D]: number of a block; blocks [u32; 2^(K-D) * m]: entries,
//!                             equal blocks stored once and counted; D from 11 to 16 by the number of routes
//! Cost:   lookup 1 or 2 reads for most of the address space, else log2(ranges) more in about one line; a
//!         change to a /p writes one chunk (p >= K) or those of 2^(K-p) entries that change, with two
//!         stages a block of entries as well
//! Limits: next hops below 2^K and 2^22; 2^22 - 1 words of chunks
//! Wins:   full IPv4 tables in some 2 bytes a prefix. Weak: traffic to long prefixes (the search), of
//!         which IPv6 is full; `dxr` builds anew whenever the number of routes calls for another D
//!
//! `form.rs` has the bits. The first range of a chunk starts at 0.

mod form;
mod shared;
mod write;

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::array;
use core::hint::select_unpredictable;
use core::sync::atomic::Ordering::Acquire;
use core::sync::atomic::{AtomicU16, AtomicU32};

use self::form::{Entry, Form, V4, V6};
use crate::error::FormatError;
use crate::head::{HEAD, Head};
use crate::lookup::{Algorithm, Limits, Lookup, Module, Origin, Step, TableStats, check_out};
use crate::mem::{Cells, Masked, Region, prefetch, region_named};
use crate::next_hop_id::NextHopId;

/// The rows of this file.
pub(super) const MODULE: Module = Module {
    v4: &[
        two_stage::<V4<20>>(),
        row::<16>("dxr16"),
        row::<17>("dxr17"),
        row::<18>("dxr18"),
        row::<19>("dxr19"),
        row::<20>("dxr20"),
        row::<21>("dxr21"),
        row::<22>("dxr22"),
        row::<23>("dxr23"),
        row::<24>("dxr24"),
    ],
    v6: &[two_stage::<V6>()],
};

const fn row<const K: u32>(name: &'static str) -> Algorithm<u32> {
    Algorithm {
        name,
        summary: "direct table on the first bits, then sorted ranges in shared chunks",
        source: "Zec, Rizzo, Mikuc, CCR 2012",
        origin: Origin::Published,
        limits: limits::<V4<K>>(),
        fitness: fitness::<K>,
        make: write::make::<V4<K>, false>,
        open: Some(open::<V4<K>, false>),
        kernel_layout: None,
    }
}

const fn two_stage<F: Form>() -> Algorithm<F::Addr> {
    Algorithm {
        name: "dxr",
        summary: "direct table in two stages, then sorted ranges in shared chunks",
        source: "Zec, Mikuc, SoftCOM 2017; FreeBSD 14",
        origin: Origin::Published,
        limits: limits::<F>(),
        fitness: |_| 130,
        make: write::make::<F, true>,
        open: Some(open::<F, true>),
        kernel_layout: None,
    }
}

const fn limits<F: Form>() -> Limits {
    Limits { next_hop: F::MAX_HOP, prefix_len: F::BITS, note: "4,194,303 words of ranges" }
}

fn fitness<const K: u32>(_: &TableStats) -> u8 {
    // 18 is 1 MiB and stays in the second cache of current machines, and is as fast as any for uniform
    // addresses; 20 to 22 search less and win on announced ones where the third cache is our own.
    match K {
        18 => 180,
        17 | 19 => 160,
        16 | 20 => 140,
        _ => 100,
    }
}

/// Words of the head.
const PREFIXES: usize = 0;
const CHUNKS: usize = 1;
const REFERENCES: usize = 2;
const WORDS: usize = 3;
const WAITING: usize = 4;
/// Two stages: how many blocks there are, and D.
const BLOCKS: usize = 5;
const SPLIT: usize = 6;
/// Chunks as the paper counts them: see `TALLIES`.
const TALLY: usize = 7;
type Counts = Head<15>;

/// Physical is what is stored, aggregated what it stands for.
const TALLIES: [&str; 8] = [
    "physical_short_chunks",
    "physical_short_fragments",
    "physical_long_chunks",
    "physical_long_fragments",
    "aggregated_short_chunks",
    "aggregated_short_fragments",
    "aggregated_long_chunks",
    "aggregated_long_fragments",
];

/// Where each region stands in `Reader::regions`; only two stages have a directory.
const HEAP: usize = 1;
const DIRECT: usize = 2;
const DIRECTORY: usize = 3;

const fn names(two: bool) -> [&'static str; 4] {
    [HEAD, "heap", if two { "blocks" } else { "direct" }, "directory"]
}

struct Reader<F: Form, const TWO: bool> {
    head: Counts,
    regions: Vec<Region>,
    direct: Cells<AtomicU32>,
    /// Without two stages, of no meaning.
    directory: Cells<AtomicU16>,
    /// Bits of an entry inside its block.
    inside: u32,
    heap: F::Cells,
}

/// The arrays of a reader, as a batch keeps them in registers.
struct View<'a, F: Form, const TWO: bool> {
    direct: Masked<'a, AtomicU32>,
    directory: Masked<'a, AtomicU16>,
    inside: u32,
    heap: F::Heap<'a>,
}

impl<F: Form, const TWO: bool> Clone for View<'_, F, TWO> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<F: Form, const TWO: bool> Copy for View<'_, F, TWO> {}

impl<F: Form, const TWO: bool> Reader<F, TWO> {
    const NAMES: [&'static str; 4] = names(TWO);

    /// Reader of the heap and blocks that a mask of all ones reaches: all of them, or down to half.
    /// `None` where a region is too short. `split` is D.
    fn new(
        head: Counts,
        heap: Region,
        direct: Region,
        directory: Option<Region>,
        split: u32,
    ) -> Option<Self> {
        let mask = |cells: usize| cells.checked_ilog2().map(|bits| (1 << bits) - 1);
        let direct_mask = if TWO { mask(direct.u32s().len())? } else { (1 << F::K) - 1 };
        let cells = directory.as_ref().unwrap_or(head.region());
        let directory_mask = if TWO { (1 << split) - 1 } else { 0 };
        if direct.u32s().len() <= direct_mask || cells.u16s().len() <= directory_mask {
            return None;
        }
        Some(Self {
            direct: Cells::new(&direct, direct_mask),
            directory: Cells::new(cells, directory_mask),
            inside: F::K - split,
            heap: F::cells(&heap, mask(heap.bytes() / F::WORD_BYTES)?),
            regions: [head.region().clone(), heap, direct].into_iter().chain(directory).collect(),
            head,
        })
    }

    #[inline(always)]
    fn view(&self) -> View<'_, F, TWO> {
        View {
            direct: self.direct.view(),
            directory: self.directory.view(),
            inside: self.inside,
            heap: F::heap(&self.heap),
        }
    }

    /// The first word of a chunk.
    fn first(&self, base: usize) -> u64 {
        F::load(&self.regions[HEAP], base).into()
    }
}

impl<'a, F: Form, const TWO: bool> View<'a, F, TWO> {
    /// Where the entry of a chunk stands.
    #[inline(always)]
    fn place(self, chunk: usize) -> usize {
        if TWO {
            // Acquire: pairs with the release store that publishes a block.
            let block = usize::from(self.directory.at(chunk >> self.inside).load(Acquire));
            (block << self.inside) + (chunk & ((1 << self.inside) - 1))
        } else {
            chunk
        }
    }

    /// The entry of a chunk. Acquire: pairs with the release store that publishes it.
    #[inline(always)]
    fn entry(self, chunk: usize) -> u32 {
        self.direct.at(self.place(chunk)).load(Acquire)
    }

    #[inline(always)]
    fn decode(self, entry: u32) -> Entry {
        F::decode(entry, |base| F::first(self.heap, base))
    }

    #[inline(always)]
    fn answer(self, addr: F::Addr, entry: u32) -> NextHopId {
        NextHopId(match self.decode(entry) {
            Entry::Hit(hop) => hop,
            Entry::Short(first, count) => {
                let read = |i: usize| F::short_at(self.heap, first + i);
                F::short_hop(last_at_most(count, F::short_key(addr), read))
            }
            Entry::Long(base, count) => {
                let read = |i: usize| F::long_at(self.heap, base, i);
                F::long_hop(last_at_most(count, F::long_key(addr), read))
            }
        })
    }
}

/// Keys that go through the stages together: enough for the loads of a stage to overlap. 64 and 256
/// were within 5 %, 32 was 15 % slower.
const GROUP: usize = 128;
/// Searches that halve side by side; 4 were as fast, 16 slower.
const LANES: usize = 8;

impl<F: Form, const TWO: bool> View<'_, F, TWO> {
    /// All entries, then the chunks of those that have one. Nothing branches on an address.
    fn group(self, addrs: &[F::Addr], out: &mut [NextHopId]) {
        let mut entries = [0; GROUP];
        let entries = &mut entries[..addrs.len()];
        if F::K >= 20 {
            // From 4 MiB on the table is not in the second cache: 1.1 to 1.4 times as fast so.
            for &addr in addrs {
                prefetch(self.direct.at(self.place(F::chunk(addr))));
            }
        }
        for ((&addr, out), kept) in addrs.iter().zip(out.iter_mut()).zip(entries.iter_mut()) {
            let entry = self.entry(F::chunk(addr));
            *out = NextHopId(entry >> 10);
            *kept = entry;
        }
        // Not in the loop above: stores whose place depends on a load that missed held the next
        // loads up, which took dxr24 to a seventh.
        let mut chunked = Slots::new();
        for (slot, &entry) in entries.iter().enumerate() {
            chunked.push(slot, entry & 1023 != F::HIT);
        }
        let (mut short, mut long) = (Slots::new(), Slots::new());
        for &slot in chunked.list() {
            let entry = entries[slot];
            F::prefetch(self.heap, (entry >> 10) as usize);
            let is_short = F::plain_short(entry).is_some();
            short.push(slot, is_short);
            long.push(slot, !is_short);
        }
        for slots in short.list().chunks(LANES) {
            let found = self.search_short(slots, addrs, entries);
            for (&slot, hop) in slots.iter().zip(found) {
                out[slot] = hop;
            }
        }
        // Few in a real table: routes longer than /24, and next hops too large for a short range.
        for &slot in long.list() {
            out[slot] = self.answer(addrs[slot], entries[slot]);
        }
    }

    /// Halves up to `LANES` short chunks in step, as often as the longest needs: the loop ends once
    /// for all of them, so one branch is mispredicted and not one each.
    #[inline(always)]
    fn search_short(
        self,
        slots: &[usize],
        addrs: &[F::Addr],
        entries: &[u32],
    ) -> [NextHopId; LANES] {
        let (mut at, mut left) = ([0; LANES], [0; LANES]);
        // Lanes without a search of their own do the last one again.
        let keys = array::from_fn::<_, LANES, _>(|lane| {
            F::short_key(addrs[slots[lane.min(slots.len() - 1)]])
        });
        let mut most = 1;
        for lane in 0..LANES {
            let entry = entries[slots[lane.min(slots.len() - 1)]];
            // Only plain ones are in the list.
            (at[lane], left[lane]) = F::plain_short(entry).unwrap_or((0, 1));
            most = left[lane].max(most);
        }
        while most > 1 {
            for lane in 0..LANES {
                let half = left[lane] / 2;
                let middle = at[lane] + half;
                let before = F::short_at(self.heap, middle) <= keys[lane];
                at[lane] = select_unpredictable(before, middle, at[lane]);
                left[lane] -= half;
            }
            most -= most / 2;
        }
        at.map(|at| NextHopId(F::short_hop(F::short_at(self.heap, at))))
    }
}

/// Places in a group, collected without a branch.
struct Slots {
    slots: [usize; GROUP],
    len: usize,
}

impl Slots {
    fn new() -> Self {
        Self { slots: [0; GROUP], len: 0 }
    }

    /// Writes always, keeps if `keep`. At most `GROUP` times.
    #[inline(always)]
    fn push(&mut self, slot: usize, keep: bool) {
        self.slots[self.len % GROUP] = slot;
        self.len += usize::from(keep);
    }

    #[inline(always)]
    fn list(&self) -> &[usize] {
        &self.slots[..self.len]
    }
}

/// The last of `count` ranges that is at most `key`; the first always is.
#[inline(always)]
fn last_at_most<R: Copy + Ord>(count: usize, key: R, read: impl Fn(usize) -> R) -> R {
    let mut at = 0;
    let mut left = count;
    while left > 1 {
        let half = left / 2;
        at = select_unpredictable(read(at + half) <= key, at + half, at);
        left -= half;
    }
    read(at)
}

impl<F: Form, const TWO: bool> Lookup<F::Addr> for Reader<F, TWO> {
    fn lookup(&self, addr: F::Addr) -> NextHopId {
        let view = self.view();
        view.answer(addr, view.entry(F::chunk(addr)))
    }

    fn lookup_batch(&self, addrs: &[F::Addr], out: &mut [NextHopId]) {
        let out = check_out(addrs, out);
        let view = self.view();
        for (addrs, out) in addrs.chunks(GROUP).zip(out.chunks_mut(GROUP)) {
            view.group(addrs, out);
        }
    }

    fn explain(&self, addr: F::Addr, step: &mut dyn FnMut(&Step)) -> NextHopId {
        let view = self.view();
        let chunk = F::chunk(addr);
        if TWO {
            let at = chunk >> self.inside;
            let value = u64::from(view.directory.at(at).load(Acquire));
            let note = "directory: number of a block";
            step(&Step { region: Self::NAMES[DIRECTORY], offset: at * 2, value, note });
        }
        let entry = view.entry(chunk);
        let decoded = view.decode(entry);
        let note = match decoded {
            Entry::Hit(_) => "direct entry: a next hop",
            Entry::Short(..) => "direct entry: a short chunk",
            Entry::Long(..) => "direct entry: a long chunk",
        };
        let (region, offset) = (Self::NAMES[DIRECT], view.place(chunk) * 4);
        step(&Step { region, offset, value: u64::from(entry), note });
        // One after another, unlike the lookup: two ways to the same answer.
        let mut hop = 0;
        let mut tell = |found: u32, value: u64, offset: usize| {
            hop = found;
            let note = "a range that starts at or before the address";
            step(&Step { region: Self::NAMES[HEAP], offset, value, note });
        };
        match decoded {
            Entry::Hit(found) => hop = found,
            Entry::Short(first, count) => {
                let ranges = (first..first + count).map(|at| (at, F::short_at(view.heap, at)));
                for (at, range) in ranges.take_while(|&(_, range)| range <= F::short_key(addr)) {
                    tell(F::short_hop(range), F::short_value(range), at * size_of::<F::Short>());
                }
            }
            Entry::Long(base, count) => {
                let ranges = (0..count).map(|i| (i, F::long_at(view.heap, base, i)));
                for (i, range) in ranges.take_while(|&(_, range)| range <= F::long_key(addr)) {
                    let offset = base * F::WORD_BYTES + i * size_of::<F::Long>();
                    tell(F::long_hop(range), F::long_value(range), offset);
                }
            }
        }
        NextHopId(hop)
    }

    fn stats(&self, visit: &mut dyn FnMut(&'static str, u64)) {
        visit("prefixes", self.head.get(PREFIXES));
        visit("chunks", self.head.get(CHUNKS));
        visit("chunk_references", self.head.get(REFERENCES));
        visit("chunk_words", self.head.get(WORDS));
        visit("waiting_words", self.head.get(WAITING));
        for (at, name) in TALLIES.into_iter().enumerate() {
            visit(name, self.head.get(TALLY + at));
        }
        if TWO {
            visit("blocks", self.head.get(BLOCKS));
            visit("directory_bits", self.head.get(SPLIT));
        }
    }

    fn regions(&self) -> &[Region] {
        &self.regions
    }

    fn bytes(&self) -> usize {
        let count = |word| usize::try_from(self.head.get(word)).unwrap_or(usize::MAX);
        let words = count(WORDS).saturating_mul(F::WORD_BYTES);
        let direct = if TWO {
            count(BLOCKS).saturating_mul(4 << self.inside) + (2 << (F::K - self.inside))
        } else {
            4 << F::K
        };
        words.saturating_add(direct).saturating_add(Counts::BYTES)
    }
}

/// Layout number of saved tables, different for the two forms.
const fn layout<F: Form, const TWO: bool>() -> u64 {
    F::LAYOUT | if TWO { 1 << 15 } else { 0 }
}

fn open<F: Form, const TWO: bool>(
    saved: &[Region],
) -> Result<Arc<dyn Lookup<F::Addr>>, FormatError> {
    let names = Reader::<F, TWO>::NAMES;
    let head = Counts::open(saved, layout::<F, TWO>())?;
    let direct = region_named(saved, names[DIRECT])?;
    let heap = region_named(saved, names[HEAP])?;
    let directory = if TWO { Some(region_named(saved, names[DIRECTORY])?) } else { None };
    let split = if TWO { head.get(SPLIT) } else { 0 };
    let split = u32::try_from(split).ok().filter(|&split| split <= 16 && split <= F::K);
    let split = split.ok_or(FormatError::Bounds(HEAD))?;
    let reader = Reader::<F, TWO>::new(head, heap, direct, directory, split);
    let reader = reader.ok_or(FormatError::Bounds(names[DIRECT]))?;
    let view = reader.view();
    let words = reader.regions[HEAP].bytes() / F::WORD_BYTES;
    let held = |entry: u32| {
        let base = (entry >> 10) as usize;
        if entry & 1023 == F::HIT {
            return true;
        }
        // The count of a very long chunk is read from the heap before anything is known of it.
        base < words && F::size(entry, |base| reader.first(base)) as usize <= words - base
    };
    // With two stages, each block that the directory names.
    let blocks = if TWO { 1 << split } else { 1 };
    let mut known = alloc::vec![false; if TWO { 1 << 16 } else { 1 }];
    for at in 0..blocks {
        let block = if TWO { usize::from(view.directory.at(at).load(Acquire)) } else { 0 };
        if core::mem::replace(&mut known[block], true) {
            continue;
        }
        let entries =
            if TWO { block << reader.inside..(block + 1) << reader.inside } else { 0..1 << F::K };
        let entries = reader.regions[DIRECT].u32s().get(entries);
        let entries = entries.ok_or(FormatError::Bounds(names[DIRECT]))?;
        if !entries.iter().all(|entry| held(entry.load(Acquire))) {
            return Err(FormatError::Bounds(names[HEAP]));
        }
    }
    Ok(Arc::new(reader))
}
