//! Bsearch: the table as a sorted list of intervals, found by halving.
//!
//! Source: bsearch4 of FreeBSD 13 (A. Chernikov); here for both families. Differs: starts and next
//!         hops in arrays of their own, no branch on the key, batches in lock-step.
//! Shape:  high [u32; n] (IPv4) or high [u64; n], low [u64; n] (IPv6): where each interval starts
//!         hops [u32; n]: its answer. The first interval starts at address 0, so one always matches.
//! Cost:   log2(n) dependent reads; any change builds anew
//! Limits: none
//! Wins:   tables of some dozens of routes, which stay in the first cache. Weak: everything that
//!         changes often, and large tables, where each of 20 steps may miss

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::hint::select_unpredictable;
use core::marker::PhantomData;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicU32, AtomicU64};

use crate::addr::{Addr, Prefix};
use crate::error::{FormatError, UpdateError};
use crate::head::{HEAD, Head, stamp};
use crate::intervals::sweep;
use crate::lookup::{
    Algorithm, Limits, Lookup, Module, Origin, Routes, Step, Table, TableStats, check_out,
};
use crate::mem::{Memory, Region, region_named};
use crate::next_hop_id::NextHopId;
use crate::toolkit::unchanging::Unchanging;

/// The rows of this file.
pub(super) const MODULE: Module = Module { v4: &[row::<u32>()], v6: &[row::<u128>()] };

const fn row<A: Split>() -> Algorithm<A> {
    Algorithm {
        name: "bsearch",
        summary: "sorted intervals, found by halving",
        source: "bsearch4, FreeBSD 13",
        origin: Origin::Published,
        limits: Limits { next_hop: u32::MAX, prefix_len: A::BITS, note: "" },
        fitness,
        make: make::<A>,
        open: Some(open::<A>),
        kernel_layout: None,
    }
}

/// Up to 30 routes, as in FreeBSD, it is the best there is. Up to 1,000 a new table takes less than
/// 0.1 ms, so that it still serves a family that has nothing faster; beyond, a stream of changes would
/// do nothing but build.
fn fitness(stats: &TableStats) -> u8 {
    match stats.prefixes {
        n @ 0..=30 => 253 - u8::try_from(n).expect("at most 30"),
        31..=1000 => 60,
        _ => 1,
    }
}

const fn layout<A: Split>() -> u64 {
    stamp(b"fpbs", A::FAMILY, 1)
}
/// Words of the head.
const PREFIXES: usize = 0;
const INTERVALS: usize = 1;
/// Where each region stands in `Reader::regions`, after the head; IPv4 has no `LOW`.
const HIGH: usize = 1;
const HOPS: usize = 2;
const LOW: usize = 3;
const NAMES: [&str; 4] = [HEAD, "high", "hops", "low"];
/// Keys searched in lock-step: enough loads in flight to hide a second-level cache.
const LANES: usize = 16;

/// An address as one or two words, the first of which decides almost every comparison.
trait Split: Addr {
    /// The first word.
    type High: Copy + Ord + Default;
    /// How the first word lies in memory.
    type Cell;
    /// How many regions: IPv4 needs no second word.
    const REGIONS: usize;
    fn high(self) -> Self::High;
    fn low(self) -> u64;
    fn cells(region: &Region) -> &[Self::Cell];
    fn read(cell: &Self::Cell) -> Self::High;
    fn write(cell: &Self::Cell, high: Self::High);
}

impl Split for u32 {
    type High = u32;
    type Cell = AtomicU32;
    const REGIONS: usize = 3;
    fn high(self) -> u32 {
        self
    }
    fn low(self) -> u64 {
        0
    }
    fn cells(region: &Region) -> &[AtomicU32] {
        region.u32s()
    }
    #[inline]
    fn read(cell: &AtomicU32) -> u32 {
        cell.load(Relaxed)
    }
    fn write(cell: &AtomicU32, high: u32) {
        cell.store(high, Relaxed);
    }
}

#[allow(clippy::cast_possible_truncation, reason = "the two halves of an address")]
impl Split for u128 {
    type High = u64;
    type Cell = AtomicU64;
    const REGIONS: usize = 4;
    fn high(self) -> u64 {
        (self >> 64) as u64
    }
    fn low(self) -> u64 {
        self as u64
    }
    fn cells(region: &Region) -> &[AtomicU64] {
        region.u64s()
    }
    #[inline]
    fn read(cell: &AtomicU64) -> u64 {
        cell.load(Relaxed)
    }
    fn write(cell: &AtomicU64, high: u64) {
        cell.store(high, Relaxed);
    }
}

/// Immutable once built, so every load is relaxed: whoever hands the reader over orders the bytes.
struct Reader<A: Split> {
    head: Head<2>,
    regions: Vec<Region>,
    count: usize,
    family: PhantomData<A>,
}

impl<A: Split> Reader<A> {
    fn highs(&self) -> &[A::Cell] {
        &A::cells(&self.regions[HIGH])[..self.count]
    }

    fn hop(&self, index: usize) -> NextHopId {
        NextHopId(self.regions[HOPS].u32s()[index].load(Relaxed))
    }

    /// The interval of `addr`, given the last whose first word is at most that of `addr`.
    #[inline]
    fn settle(&self, addr: A, index: usize) -> usize {
        if A::REGIONS > LOW && A::read(&self.highs()[index]) == addr.high() {
            return self.settle_low(addr, index);
        }
        index
    }

    /// Several intervals may share the first word; they stand together and end at `index`.
    #[cold]
    fn settle_low(&self, addr: A, index: usize) -> usize {
        let highs = &self.highs()[..=index];
        let lows = &self.regions[LOW].u64s()[..=index];
        let first = highs.partition_point(|cell| A::read(cell) < addr.high());
        let below = lows[first..].partition_point(|low| low.load(Relaxed) <= addr.low());
        // With none below, the interval before the first of them holds the address. Address 0 starts
        // the first interval, so there is one.
        first + below - 1
    }
}

/// Index of the last of `cells` that is at most `key`, for each of `keys`; the first cell always is.
#[inline(always)]
fn last_at_most<A: Split, const N: usize>(cells: &[A::Cell], keys: &[A::High; N]) -> [usize; N] {
    let mut at = [0; N];
    let mut left = cells.len();
    while left > 1 {
        let half = left / 2;
        for lane in 0..N {
            let middle = at[lane] + half;
            let right = A::read(&cells[middle]) <= keys[lane];
            at[lane] = select_unpredictable(right, middle, at[lane]);
        }
        left -= half;
    }
    at
}

impl<A: Split> Lookup<A> for Reader<A> {
    fn lookup(&self, addr: A) -> NextHopId {
        let [index] = last_at_most::<A, 1>(self.highs(), &[addr.high()]);
        self.hop(self.settle(addr, index))
    }

    fn lookup_batch(&self, addrs: &[A], out: &mut [NextHopId]) {
        let out = check_out(addrs, out);
        let highs = self.highs();
        let (groups, rest) = addrs.as_chunks::<LANES>();
        let (group_outs, rest_out) = out.as_chunks_mut::<LANES>();
        for (group, out) in groups.iter().zip(group_outs) {
            let mut keys = [A::High::default(); LANES];
            for (key, addr) in keys.iter_mut().zip(group) {
                *key = addr.high();
            }
            let found = last_at_most::<A, LANES>(highs, &keys);
            for lane in 0..LANES {
                out[lane] = self.hop(self.settle(group[lane], found[lane]));
            }
        }
        for (&addr, out) in rest.iter().zip(rest_out) {
            *out = self.lookup(addr);
        }
    }

    fn explain(&self, addr: A, step: &mut dyn FnMut(&Step)) -> NextHopId {
        let highs = self.highs();
        let index = highs.partition_point(|cell| A::read(cell) <= addr.high()) - 1;
        let index = self.settle(addr, index);
        for (region, note) in [(HIGH, "start of the interval"), (LOW, "its second half")] {
            if region < A::REGIONS {
                let width = size_of::<A::Cell>();
                let value = if width == 8 {
                    self.regions[region].u64s()[index].load(Relaxed)
                } else {
                    u64::from(self.regions[region].u32s()[index].load(Relaxed))
                };
                step(&Step { region: NAMES[region], offset: index * width, value, note });
            }
        }
        let hop = self.hop(index);
        let note = "its next hop";
        step(&Step { region: NAMES[HOPS], offset: index * 4, value: u64::from(hop.0), note });
        hop
    }

    fn stats(&self, visit: &mut dyn FnMut(&'static str, u64)) {
        visit("prefixes", self.head.get(PREFIXES));
        visit("intervals", self.count as u64);
    }

    fn regions(&self) -> &[Region] {
        &self.regions
    }

    fn bytes(&self) -> usize {
        Head::<2>::BYTES + self.count * (size_of::<A>() + 4)
    }
}

fn make<A: Split>(
    routes: &dyn Routes<A>,
    memory: &mut dyn Memory,
) -> Result<Box<dyn Table<A>>, UpdateError> {
    let mut cuts = Vec::new();
    sweep(Prefix::ALL, routes, &mut |start: A, hop| cuts.push((start, hop)));
    let head = Head::new(memory, layout::<A>())?;
    let mut regions = vec![head.region().clone()];
    for (region, name) in NAMES.iter().enumerate().take(A::REGIONS).skip(1) {
        let width = if region == HOPS { 4 } else { size_of::<A::Cell>() };
        regions.push(memory.region(name, cuts.len() * width)?);
    }
    for (index, &(start, hop)) in cuts.iter().enumerate() {
        A::write(&A::cells(&regions[HIGH])[index], start.high());
        regions[HOPS].u32s()[index].store(hop.0, Relaxed);
        if A::REGIONS > LOW {
            regions[LOW].u64s()[index].store(start.low(), Relaxed);
        }
    }
    head.set(PREFIXES, routes.stats().prefixes);
    head.set(INTERVALS, cuts.len());
    let reader = Reader { head, regions, count: cuts.len(), family: PhantomData };
    let reader = Arc::new(reader);
    Ok(Box::new(Unchanging { reader, max_hop: u32::MAX }))
}

fn open<A: Split>(saved: &[Region]) -> Result<Arc<dyn Lookup<A>>, FormatError> {
    let head = Head::open(saved, layout::<A>())?;
    let mut regions = vec![head.region().clone()];
    let count = usize::try_from(head.get(INTERVALS)).unwrap_or(usize::MAX);
    for (region, name) in NAMES.iter().enumerate().take(A::REGIONS).skip(1) {
        let width = if region == HOPS { 4 } else { size_of::<A::Cell>() };
        regions.push(region_named(saved, name)?);
        if count == 0 || regions[region].bytes() / width < count {
            return Err(FormatError::Bounds(name));
        }
    }
    let reader = Reader::<A> { head, regions, count, family: PhantomData };
    if !ascending(&reader) {
        return Err(FormatError::Bounds(NAMES[HIGH]));
    }
    Ok(Arc::new(reader))
}

/// Whether the starts begin at address 0 and rise: what every search relies on.
fn ascending<A: Split>(reader: &Reader<A>) -> bool {
    let start = |index: usize| {
        let low =
            if A::REGIONS > LOW { reader.regions[LOW].u64s()[index].load(Relaxed) } else { 0 };
        (A::read(&reader.highs()[index]), low)
    };
    start(0) == (A::MIN.high(), 0) && (1..reader.count).all(|i| start(i - 1) < start(i))
}
