//! PlanB: all intervals of an IPv6 table in one static tree of nodes of a cache line, without pointers.
//!
//! Source: PlanB, NSDI 2026 (its linearised B+-tree; from its description and an independent
//!         re-implementation's measurements). Differs: prefixes longer than /64 are answered, by a second
//!         structure for each /64 that has some; of the last level only what is filled is stored.
//! Shape:  keys [[u64; 8]; lines]: level by level, 9^k nodes of 8 keys on level k. Node `l` has the
//!         children `9 l + 1` to `9 l + 9`. Leaves hold where intervals start: first halves of addresses
//!         hops [u32; n]: the answer of each leaf key, or DEEP | number of a group
//!         groups [u32; g + 1], lows [u64; d], low_hops [u32; d]: intervals inside one /64
//! Cost:   lookup a line a level (6 in a full table, 9^6 * 8 keys), then the answer; any change builds
//!         anew
//! Limits: IPv6; next hops 2^31 - 1
//! Wins:   steady batches whatever the lengths of prefixes. Weak: each level may miss; changes; a level
//!         more from 472,392 intervals on
//!
//! Keys are kept with their top bit flipped, because vectors compare signed. Places past the last leaf
//! hold the greatest key, in inner nodes too: a key of all ones descends past the end, which is why
//! the place found is cut to the last one that is there.

mod build;
#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code, reason = "the vector twins; their invariants are numbered there")]
mod planb_fast;

use alloc::sync::Arc;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicU32, AtomicU64};

use crate::error::FormatError;
use crate::head::{HEAD, Head, stamp};
use crate::lookup::{Algorithm, Limits, Lookup, Module, Origin, Step, TableStats, check_out};
use crate::mem::{Cells, Masked, Region, prefetch, region_named};
use crate::next_hop_id::NextHopId;
use crate::simd::Simd;

/// The rows of this file.
pub(super) const MODULE: Module = Module {
    v4: &[],
    v6: &[Algorithm {
        name: "planb",
        summary: "sorted intervals as a static tree of cache lines",
        source: "PlanB, NSDI 2026",
        origin: Origin::Published,
        limits: Limits { next_hop: MAX_HOP, prefix_len: 128, note: "" },
        fitness,
        make: build::make,
        open: Some(open),
        kernel_layout: None,
    }],
};

/// Faster than radix, but any change builds anew: a choice of whoever has a table that stands still.
fn fitness(stats: &TableStats) -> u8 {
    if stats.prefixes < 1000 { 30 } else { 45 }
}

/// Flag of an answer: the rest is the number of a group of intervals inside one /64.
const DEEP: u32 = 1 << 31;
const MAX_HOP: u32 = DEEP - 1;
/// Keys of a line.
const KEYS: usize = 8;
/// Turns the order of signed numbers into that of addresses, and back.
const FLIP: u64 = 1 << 63;
const LAYOUT: u64 = stamp(b"fppb", 6, 1);

/// Words of the head.
const PREFIXES: usize = 0;
const INTERVALS: usize = 1;
const GROUPS: usize = 2;
const LOWS: usize = 3;
type Counts = Head<4>;

const TREE: usize = 1;
const HOPS: usize = 2;
const DEEP_GROUPS: usize = 3;
const DEEP_LOWS: usize = 4;
const DEEP_HOPS: usize = 5;
const NAMES: [&str; 6] = [HEAD, "keys", "hops", "groups", "lows", "low_hops"];

type Line = [AtomicU64; KEYS];

/// Levels above the leaves, and the first line of these, for so many intervals.
fn shape(intervals: usize) -> (usize, usize) {
    let (mut levels, mut first, mut nodes) = (0, 0, 1usize);
    while nodes * KEYS < intervals {
        levels += 1;
        first += nodes;
        nodes *= KEYS + 1;
    }
    (levels, first)
}

/// Immutable once built, so every load is relaxed: whoever hands the reader over orders the bytes.
struct Reader {
    head: Counts,
    regions: [Region; 6],
    tree: Tree,
    hops: Cells<AtomicU32>,
    /// Number of the last interval.
    last: usize,
    simd: Simd,
}

/// The part in which a key is searched.
struct Tree {
    lines: Cells<Line>,
    levels: usize,
    first_leaf: usize,
}

/// Keys that are searched level by level together; 16 and 64 were slower.
const LANES: usize = 32;

impl Tree {
    /// The leaf place after the last key that is at most `key`, for each of `keys` (signed).
    fn find<const N: usize>(&self, keys: &[i64; N]) -> [usize; N] {
        let lines = self.lines.view();
        let mut at = [0; N];
        for _ in 0..self.levels {
            for (at, &key) in at.iter_mut().zip(keys) {
                *at = *at * (KEYS + 1) + 1 + count(lines.at(*at), key);
                prefetch(lines.at(*at));
            }
        }
        for (at, &key) in at.iter_mut().zip(keys) {
            *at = (*at - self.first_leaf) * KEYS + count(lines.at(*at), key);
        }
        at
    }
}

/// How many keys of a line are at most `key`. They ascend, but no order is relied on.
#[inline(always)]
#[allow(clippy::cast_possible_wrap, reason = "keys are kept flipped, to be compared as signed")]
fn count(line: &Line, key: i64) -> usize {
    line.iter().map(|cell| usize::from(cell.load(Relaxed) as i64 <= key)).sum()
}

/// First half of an address, to be compared as signed.
#[inline(always)]
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    reason = "the upper half, flipped to be compared as signed"
)]
fn key(addr: u128) -> i64 {
    ((addr >> 64) as u64 ^ FLIP) as i64
}

impl Reader {
    fn new(head: Counts, regions: [Region; 5], intervals: usize, simd: Simd) -> Option<Self> {
        let [keys, hops, groups, lows, low_hops] = regions;
        // The greatest power of two that is there, as indices are masked.
        let mask = |cells: usize| cells.checked_ilog2().map(|bits| (1 << bits) - 1);
        let (levels, first_leaf) = shape(intervals);
        let lines = Cells::new(&keys, mask(keys.bytes() / 64)?);
        Some(Self {
            tree: Tree { lines, levels, first_leaf },
            hops: Cells::new(&hops, mask(hops.bytes() / 4)?),
            last: intervals.checked_sub(1)?,
            simd,
            regions: [head.region().clone(), keys, hops, groups, lows, low_hops],
            head,
        })
    }

    #[inline(always)]
    fn find<const N: usize>(&self, keys: &[i64; N]) -> [usize; N] {
        #[cfg(target_arch = "x86_64")]
        match self.simd {
            Simd::Avx512 => return planb_fast::find_avx512(&self.tree, keys),
            Simd::Avx2 => return planb_fast::find_avx2(&self.tree, keys),
            Simd::Scalar => {}
        }
        self.tree.find(keys)
    }

    /// The interval that ends at a leaf place.
    #[inline(always)]
    fn interval(&self, place: usize) -> usize {
        place.wrapping_sub(1).min(self.last)
    }

    #[inline(always)]
    fn settle(&self, addr: u128, hop: u32) -> NextHopId {
        if hop & DEEP == 0 { NextHopId(hop) } else { self.deep(addr, (hop & !DEEP) as usize) }
    }

    /// Inside one /64: its first interval starts at the /64's own address. `NONE` for a group that is
    /// not there, which only damaged memory names.
    #[cold]
    #[allow(clippy::cast_possible_truncation, reason = "the lower half is what counts here")]
    fn deep(&self, addr: u128, group: usize) -> NextHopId {
        let bounds = self.regions[DEEP_GROUPS].u32s();
        let bound =
            |group: usize| bounds.get(group).map_or(0, |bound| bound.load(Relaxed) as usize);
        let (from, to) = (bound(group), bound(group + 1));
        let lows = self.regions[DEEP_LOWS].u64s().get(from..to).unwrap_or(&[]);
        let below = lows.partition_point(|low| low.load(Relaxed) <= addr as u64);
        let hops = self.regions[DEEP_HOPS].u32s().get(from..to).unwrap_or(&[]);
        let hop = below.checked_sub(1).and_then(|index| hops.get(index));
        hop.map_or(NextHopId::NONE, |hop| NextHopId(hop.load(Relaxed)))
    }
}

impl Lookup<u128> for Reader {
    fn lookup(&self, addr: u128) -> NextHopId {
        let [place] = self.find(&[key(addr)]);
        self.settle(addr, self.hops.view().at(self.interval(place)).load(Relaxed))
    }

    fn lookup_batch(&self, addrs: &[u128], out: &mut [NextHopId]) {
        let out = check_out(addrs, out);
        let hops: Masked<'_, AtomicU32> = self.hops.view();
        for (addrs, out) in addrs.chunks(LANES).zip(out.chunks_mut(LANES)) {
            // Lanes without a key of their own search for 0, whose way is hot.
            let mut keys = [i64::MIN; LANES];
            for (key, &addr) in keys.iter_mut().zip(addrs) {
                *key = self::key(addr);
            }
            let mut places = self.find(&keys);
            for place in &mut places {
                *place = self.interval(*place);
                prefetch(hops.at(*place));
            }
            let mut deep = 0;
            for (out, &place) in out.iter_mut().zip(&places) {
                let hop = hops.at(place).load(Relaxed);
                deep |= hop;
                *out = NextHopId(hop);
            }
            if deep & DEEP != 0 {
                for (out, &addr) in out.iter_mut().zip(addrs) {
                    *out = self.settle(addr, out.0);
                }
            }
        }
    }

    fn explain(&self, addr: u128, step: &mut dyn FnMut(&Step)) -> NextHopId {
        let lines = self.tree.lines.view();
        let key = key(addr);
        let mut at = 0;
        for level in 0..=self.tree.levels {
            let below = count(lines.at(at), key);
            let leaf = level == self.tree.levels;
            let note = if leaf { "keys at most this, in a leaf" } else { "in an inner node" };
            step(&Step { region: NAMES[TREE], offset: at * 64, value: below as u64, note });
            at = if leaf {
                (at - self.tree.first_leaf) * KEYS + below
            } else {
                at * (KEYS + 1) + 1 + below
            };
        }
        let interval = self.interval(at);
        let hop = self.hops.view().at(interval).load(Relaxed);
        let deep = hop & DEEP != 0;
        let note = if deep { "a /64 with longer prefixes" } else { "next hop of the interval" };
        let value = u64::from(hop & !DEEP);
        step(&Step { region: NAMES[HOPS], offset: interval * 4, value, note });
        let found = self.settle(addr, hop);
        if deep {
            let note = "next hop inside the /64";
            let offset = (hop & !DEEP) as usize * 4;
            step(&Step { region: NAMES[DEEP_GROUPS], offset, value: u64::from(found.0), note });
        }
        found
    }

    fn stats(&self, visit: &mut dyn FnMut(&'static str, u64)) {
        visit("prefixes", self.head.get(PREFIXES));
        visit("intervals", self.head.get(INTERVALS));
        visit("levels", self.tree.levels as u64 + 1);
        visit("deep_64s", self.head.get(GROUPS));
        visit("deep_intervals", self.head.get(LOWS));
    }

    fn regions(&self) -> &[Region] {
        &self.regions
    }

    fn bytes(&self) -> usize {
        let count = |word| usize::try_from(self.head.get(word)).unwrap_or(usize::MAX);
        let lines = self.tree.first_leaf + self.last / KEYS + 1;
        let deep = count(LOWS).saturating_mul(12).saturating_add(count(GROUPS).saturating_mul(4));
        (lines * 64 + (self.last + 1) * 4 + 4 + Counts::BYTES).saturating_add(deep)
    }
}

fn open(saved: &[Region]) -> Result<Arc<dyn Lookup<u128>>, FormatError> {
    let head = Counts::open(saved, LAYOUT)?;
    let mut regions = NAMES.iter().skip(1).map(|name| region_named(saved, name));
    let mut next = || regions.next().expect("five names");
    let regions = [next()?, next()?, next()?, next()?, next()?];
    let intervals = usize::try_from(head.get(INTERVALS)).unwrap_or(usize::MAX);
    let [keys, hops, groups, lows, low_hops] = &regions;
    let short =
        |region: &Region, cells: u64, width: usize| (region.bytes() / width) as u64 <= cells;
    if intervals == 0 || hops.bytes() / 4 < intervals {
        return Err(FormatError::Bounds(NAMES[HOPS]));
    }
    let (_, first_leaf) = shape(intervals);
    if keys.bytes() / 64 <= first_leaf + (intervals - 1) / KEYS {
        return Err(FormatError::Bounds(NAMES[TREE]));
    }
    if short(groups, head.get(GROUPS), 4) {
        return Err(FormatError::Bounds(NAMES[DEEP_GROUPS]));
    }
    let lacking = head.get(LOWS).saturating_sub(1);
    if short(lows, lacking, 8) || short(low_hops, lacking, 4) {
        return Err(FormatError::Bounds(NAMES[DEEP_LOWS]));
    }
    let name = NAMES[TREE];
    let reader = Reader::new(head, regions, intervals, Simd::detect());
    reader.map(|reader| Arc::new(reader) as _).ok_or(FormatError::Bounds(name))
}
