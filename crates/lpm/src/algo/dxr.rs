//! DXR: one read of a direct table, then a search in a short sorted chunk.
//!
//! Source: Zec, Rizzo, Mikuc, CCR 2012; FreeBSD's in_fib_dxr.c (M. Zec). Differs: the direct table is
//!         flat; the search does not branch on the key; a change builds the chunks it touches
//!         aside and publishes each by one store, so that no snapshot is ever copied.
//! Shape:  direct [u32; 2^K]: what the first K bits of the address say (K from 16 to 24, a row each);
//!         heap [u32; n]: chunks, at most 2^22 - 1 words. Equal chunks are stored once and counted.
//! Cost:   lookup 1 read for most of the address space, else 1 + log2(ranges) in about one line; a
//!         change to a /p writes one chunk (p >= K) or those of 2^(K-p) entries that change
//! Limits: IPv4; next hops below 2^K and 2^22; 2^22 - 1 words of chunks
//! Wins:   full IPv4 tables in some 2 bytes a prefix. Weak: traffic to long prefixes (the search)
//!
//! ```text
//! direct entry   31           10 9        0
//!                [ base         | fragments ]   M = 2^(23-K) - 1, or 0 for K = 24
//!                                               P = 1023 without the bits of M
//!     fragments  P ..= 1023   short chunk at word base, of (fragments & M) + 1 words
//!                P - 1        long chunk too long for this field: its first word is ranges - 1
//!                P - 2        no chunk: base is the next hop
//!                ..= P - 3    long chunk at word base, of fragments + 1 words
//!
//! long range     u32  [ start, 32 - K bits | next hop, K bits ]
//! short range    u16  [ start >> 8, 24 - K bits | next hop, K - 8 bits ]; an odd list ends twice
//! ```
//!
//! The first range of a chunk starts at 0. A range compares as a whole: with all ones in place of the
//! next hop, the key is not below any range that starts at or before it. So the search needs no masks,
//! and both widths are one code.

mod write;

use alloc::sync::Arc;
use core::hint::select_unpredictable;
use core::sync::atomic::Ordering::{Acquire, Relaxed};
use core::sync::atomic::{AtomicU16, AtomicU32};

use crate::head::{HEAD, Head, stamp};
use crate::lookup::{
    Algorithm, FormatError, Limits, Lookup, Module, NextHopId, Origin, Step, TableStats, check_out,
};
use crate::mem::{Cells, Masked, Region, prefetch, region_named};

/// The rows of this file.
pub(super) const MODULE: Module = Module {
    v4: &[
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
    v6: &[],
};

const fn row<const K: u32>(name: &'static str) -> Algorithm<u32> {
    Algorithm {
        name,
        summary: "direct table on the first bits, then sorted ranges in shared chunks",
        source: "Zec, Rizzo, Mikuc, CCR 2012",
        origin: Origin::Published,
        limits: Limits {
            next_hop: Format::<K>::MAX_HOP,
            prefix_len: 32,
            note: "4,194,303 words of ranges",
        },
        fitness: fitness::<K>,
        make: write::make::<K>,
        open: Some(open::<K>),
    }
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

/// The bits of an entry and of a range, all of which follow from K.
struct Format<const K: u32>;

impl<const K: u32> Format<K> {
    /// Bits of an address inside a chunk.
    const SHIFT: u32 = 32 - K;
    /// Mask of a short chunk's count.
    const M: u32 = if K == 24 { 0 } else { (1 << (23 - K)) - 1 };
    /// The least `fragments` of a short chunk.
    const P: u32 = 1023 & !Self::M;
    const XL: u32 = Self::P - 1;
    const HIT: u32 = Self::P - 2;
    /// Next-hop bits of a long range.
    const LONG_HOP: u32 = (1 << K) - 1;
    /// Next-hop bits of a short range.
    const SHORT_HOP: u32 = (1 << (K - 8)) - 1;
    /// K = 24 leaves no bits for the start of a short range.
    const SHORT: bool = K < 24;
    /// Long ranges have K bits for a next hop, direct entries 22.
    const MAX_HOP: u32 = if K < 22 { Self::LONG_HOP } else { (1 << 22) - 1 };
    #[allow(clippy::cast_possible_truncation, reason = "K is at most 24")]
    const LAYOUT: u64 = stamp(b"fpdx", K as u8, 1);

    /// The key as the greatest long range that starts at or before it.
    #[inline(always)]
    fn long_key(addr: u32) -> u32 {
        addr << K | Self::LONG_HOP
    }

    /// The key as the greatest short range that starts at or before it.
    #[inline(always)]
    fn short_key(addr: u32) -> u32 {
        (addr << K) >> 16 | Self::SHORT_HOP
    }
}

/// Words of the head.
const PREFIXES: usize = 0;
const CHUNKS: usize = 1;
const REFERENCES: usize = 2;
const WORDS: usize = 3;
const WAITING: usize = 4;
type Counts = Head<5>;

const DIRECT: usize = 1;
const HEAP: usize = 2;
const NAMES: [&str; 3] = [HEAD, "direct", "heap"];

/// What an entry of the direct table means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Entry {
    Hit(u32),
    /// Word where the ranges start, and how many 16-bit ranges there are.
    Short(usize, usize),
    /// Word where the ranges start, and how many 32-bit ranges there are.
    Long(usize, usize),
}

struct Reader<const K: u32> {
    head: Counts,
    regions: [Region; 3],
    direct: Cells<AtomicU32>,
    /// The heap, as long ranges and as short ones.
    words: Cells<AtomicU32>,
    halves: Cells<AtomicU16>,
}

/// The arrays of a reader, as a batch keeps them in registers.
#[derive(Clone, Copy)]
struct View<'a, const K: u32> {
    direct: Masked<'a, AtomicU32>,
    words: Masked<'a, AtomicU32>,
    halves: Masked<'a, AtomicU16>,
}

impl<const K: u32> Reader<K> {
    /// The heap has at least `mask + 1` words, a power of two.
    fn new(head: Counts, direct: Region, heap: Region, mask: usize) -> Self {
        Self {
            direct: Cells::new(&direct, (1 << K) - 1),
            words: Cells::new(&heap, mask),
            halves: Cells::new(&heap, 2 * mask + 1),
            regions: [head.region().clone(), direct, heap],
            head,
        }
    }

    #[inline(always)]
    fn view(&self) -> View<'_, K> {
        View { direct: self.direct.view(), words: self.words.view(), halves: self.halves.view() }
    }
}

impl<'a, const K: u32> View<'a, K> {
    /// The entry of an address. Acquire: pairs with the release store that publishes a chunk.
    #[inline(always)]
    fn entry(&self, addr: u32) -> u32 {
        self.direct.at((addr >> Format::<K>::SHIFT) as usize).load(Acquire)
    }

    #[inline(always)]
    fn decode(&self, entry: u32) -> Entry {
        let (base, fragments) = (entry >> 10, entry & 1023);
        if fragments == Format::<K>::HIT {
            return Entry::Hit(base);
        }
        let base = base as usize;
        if Format::<K>::SHORT && fragments >= Format::<K>::P {
            Entry::Short(base, 2 * ((fragments & Format::<K>::M) as usize + 1))
        } else if fragments == Format::<K>::XL {
            Entry::Long(base + 1, self.words.at(base).load(Relaxed) as usize + 1)
        } else {
            Entry::Long(base, fragments as usize + 1)
        }
    }

    #[inline(always)]
    fn answer(&self, addr: u32, entry: u32) -> NextHopId {
        NextHopId(match self.decode(entry) {
            Entry::Hit(hop) => hop,
            Entry::Short(base, count) => {
                let read = |i: usize| u32::from(self.halves.at(2 * base + i).load(Relaxed));
                last_at_most(count, Format::<K>::short_key(addr), read) & Format::<K>::SHORT_HOP
            }
            Entry::Long(base, count) => {
                let read = |i: usize| self.words.at(base + i).load(Relaxed);
                last_at_most(count, Format::<K>::long_key(addr), read) & Format::<K>::LONG_HOP
            }
        })
    }
}

/// Keys that go through the stages together: enough for the loads of a stage to overlap. 64 and 256
/// were within 5 %, 32 was 15 % slower.
const GROUP: usize = 128;
/// Searches that halve side by side; 4 were as fast, 16 slower.
const LANES: usize = 8;

impl<const K: u32> View<'_, K> {
    /// All entries, then the chunks of those that have one. Nothing branches on an address.
    fn group(&self, addrs: &[u32], out: &mut [NextHopId]) {
        let mut entries = [0; GROUP];
        let entries = &mut entries[..addrs.len()];
        if K >= 20 {
            // From 4 MiB on the table is not in the second cache: 1.1 to 1.4 times as fast so.
            for &addr in addrs {
                prefetch(self.direct.at((addr >> Format::<K>::SHIFT) as usize));
            }
        }
        for ((&addr, out), kept) in addrs.iter().zip(out.iter_mut()).zip(entries.iter_mut()) {
            let entry = self.entry(addr);
            *out = NextHopId(entry >> 10);
            *kept = entry;
        }
        // Not in the loop above: stores whose place depends on a load that missed held the next
        // loads up, which took dxr24 to a seventh.
        let mut chunked = Slots::new();
        for (slot, &entry) in entries.iter().enumerate() {
            chunked.push(slot, entry & 1023 != Format::<K>::HIT);
        }
        let (mut short, mut long) = (Slots::new(), Slots::new());
        for &slot in chunked.list() {
            let entry = entries[slot];
            prefetch(self.words.at((entry >> 10) as usize));
            let is_short = Format::<K>::SHORT && entry & 1023 >= Format::<K>::P;
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
    fn search_short(&self, slots: &[usize], addrs: &[u32], entries: &[u32]) -> [NextHopId; LANES] {
        let (mut at, mut left, mut keys) = ([0; LANES], [0; LANES], [0; LANES]);
        let mut most = 1;
        for lane in 0..LANES {
            // Lanes without a search of their own do the last one again.
            let slot = slots[lane.min(slots.len() - 1)];
            let entry = entries[slot];
            at[lane] = 2 * (entry >> 10) as usize;
            left[lane] = 2 * ((entry & Format::<K>::M) as usize + 1);
            keys[lane] = Format::<K>::short_key(addrs[slot]);
            most = left[lane].max(most);
        }
        let read = |at: usize| u32::from(self.halves.at(at).load(Relaxed));
        while most > 1 {
            for lane in 0..LANES {
                let half = left[lane] / 2;
                let middle = at[lane] + half;
                at[lane] = select_unpredictable(read(middle) <= keys[lane], middle, at[lane]);
                left[lane] -= half;
            }
            most -= most / 2;
        }
        at.map(|at| NextHopId(read(at) & Format::<K>::SHORT_HOP))
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
fn last_at_most(count: usize, key: u32, read: impl Fn(usize) -> u32) -> u32 {
    let mut at = 0;
    let mut left = count;
    while left > 1 {
        let half = left / 2;
        at = select_unpredictable(read(at + half) <= key, at + half, at);
        left -= half;
    }
    read(at)
}

impl<const K: u32> Lookup<u32> for Reader<K> {
    fn lookup(&self, addr: u32) -> NextHopId {
        let view = self.view();
        view.answer(addr, view.entry(addr))
    }

    fn lookup_batch(&self, addrs: &[u32], out: &mut [NextHopId]) {
        let out = check_out(addrs, out);
        let view = self.view();
        for (addrs, out) in addrs.chunks(GROUP).zip(out.chunks_mut(GROUP)) {
            view.group(addrs, out);
        }
    }

    fn explain(&self, addr: u32, step: &mut dyn FnMut(&Step)) -> NextHopId {
        let view = self.view();
        let entry = view.entry(addr);
        let offset = (addr >> Format::<K>::SHIFT) as usize * 4;
        let decoded = view.decode(entry);
        let note = match decoded {
            Entry::Hit(_) => "direct entry: a next hop",
            Entry::Short(..) => "direct entry: a short chunk",
            Entry::Long(..) => "direct entry: a long chunk",
        };
        step(&Step { region: NAMES[DIRECT], offset, value: u64::from(entry), note });
        let (base, count, width, key, mask) = match decoded {
            Entry::Hit(hop) => return NextHopId(hop),
            Entry::Short(base, count) => {
                (2 * base, count, 2, Format::<K>::short_key(addr), Format::<K>::SHORT_HOP)
            }
            Entry::Long(base, count) => {
                (base, count, 4, Format::<K>::long_key(addr), Format::<K>::LONG_HOP)
            }
        };
        // One after another, unlike the lookup: two ways to the same answer.
        let mut hop = 0;
        for index in base..base + count {
            let range = match width {
                2 => u32::from(view.halves.at(index).load(Relaxed)),
                _ => view.words.at(index).load(Relaxed),
            };
            if range > key {
                break;
            }
            hop = range & mask;
            let note = "a range that starts at or before the address";
            let value = u64::from(range);
            step(&Step { region: NAMES[HEAP], offset: index * width, value, note });
        }
        NextHopId(hop)
    }

    fn stats(&self, visit: &mut dyn FnMut(&'static str, u64)) {
        visit("prefixes", self.head.get(PREFIXES));
        visit("chunks", self.head.get(CHUNKS));
        visit("chunk_references", self.head.get(REFERENCES));
        visit("chunk_words", self.head.get(WORDS));
        visit("waiting_words", self.head.get(WAITING));
    }

    fn regions(&self) -> &[Region] {
        &self.regions
    }

    fn bytes(&self) -> usize {
        let words = usize::try_from(self.head.get(WORDS)).unwrap_or(usize::MAX);
        words.saturating_mul(4).saturating_add(Counts::BYTES + (4 << K))
    }
}

fn open<const K: u32>(saved: &[Region]) -> Result<Arc<dyn Lookup<u32>>, FormatError> {
    let head = Counts::open(saved, Format::<K>::LAYOUT)?;
    let direct = region_named(saved, NAMES[DIRECT])?;
    let heap = region_named(saved, NAMES[HEAP])?;
    if direct.u32s().len() < 1 << K {
        return Err(FormatError::Bounds(NAMES[DIRECT]));
    }
    // The greatest power of two that is there; a saved heap is one.
    let words = heap.u32s().len();
    let mask = words.checked_ilog2().map(|bits| (1 << bits) - 1);
    let mask = mask.ok_or(FormatError::Bounds(NAMES[HEAP]))?;
    let reader = Reader::<K>::new(head, direct, heap, mask);
    let view = reader.view();
    let held = |entry: &AtomicU32| {
        let entry = entry.load(Acquire);
        let base = (entry >> 10) as usize;
        let words = mask + 1;
        // The count of a very long chunk is read from the heap before anything is known of it.
        if entry & 1023 == Format::<K>::XL && base >= words {
            return false;
        }
        match view.decode(entry) {
            Entry::Hit(_) => true,
            Entry::Short(base, count) => base + count / 2 <= words,
            Entry::Long(base, count) => base <= words && count <= words - base,
        }
    };
    if reader.regions[DIRECT].u32s()[..1 << K].iter().all(held) {
        Ok(Arc::new(reader))
    } else {
        Err(FormatError::Bounds(NAMES[HEAP]))
    }
}
