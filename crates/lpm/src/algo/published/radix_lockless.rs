//! Lockless radix: BSD's radix tree as an immutable array of entries of a cache line each.
//!
//! Source: radix4_lockless and radix6_lockless of FreeBSD 13 (A. Chernikov), over BSD's radix tree.
//!         Differs: an entry links to the route that covers its own, which a copy that never changes
//!         can know; so no lists of masks hang above a leaf, and a failed match climbs covers only.
//! Shape:  entries [[u64; 8]; n + 1]: one a route, by address, then length; entry 0 holds the root
//!
//! ```text
//! word 0   [ right link, 32 | left link, 32 ]      of the branching that this entry brought
//! word 1   [ next hop, 32 | -, 16 | length of the prefix, 8 | bit that the branching tests, 8 ]
//! word 2   [ entry of the covering route, 32 ]     0: none
//! word 3, 4  address, first and second half (IPv4: in word 3)
//! link     LEAF | entry, or the entry of the next branching
//! ```
//!
//! Cost:   lookup a bit test and a line a branching, some 20 in a full table, then a compare and as many
//!         covers as are too long; any change builds anew
//! Limits: 2^31 - 2 routes
//! Wins:   small tables that hold still. Weak: everything larger: each step may miss
//!
//! The descent only tests bits, so the leaf at its end need not hold the address. But every prefix that
//! holds the address also holds the leaf's: up to its length, no branching of the descent separates the two.
//! So the answer is the longest cover of the leaf that is no longer than what they have in common.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::marker::PhantomData;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

use crate::addr::{Addr, Prefix};
use crate::error::{FormatError, UpdateError};
use crate::head::{HEAD, Head, stamp};
use crate::lookup::{
    Algorithm, Limits, Lookup, Module, Origin, Routes, Step, Table, TableStats, check_out,
};
use crate::mem::{Memory, Region, prefetch, region_named};
use crate::next_hop_id::NextHopId;
use crate::toolkit::unchanging::Unchanging;

/// The rows of this file.
pub(super) const MODULE: Module = Module { v4: &[row::<u32>()], v6: &[row::<u128>()] };

const fn row<A: Addr>() -> Algorithm<A> {
    Algorithm {
        name: "radix_lockless",
        summary: "BSD's radix tree, copied to lines of its own for each change",
        source: "radix4_lockless, FreeBSD 13; BSD radix tree",
        origin: Origin::Published,
        limits: Limits { next_hop: u32::MAX, prefix_len: A::BITS, note: "2,147,483,646 routes" },
        fitness,
        make: make::<A>,
        open: Some(open::<A>),
        kernel_layout: None,
    }
}

/// FreeBSD takes it for IPv4 below some ten routes and for IPv6 below some thousands, where it has no
/// bsearch. Here there is one, which reads a tenth of the memory.
fn fitness(stats: &TableStats) -> u8 {
    if stats.prefixes < 1000 { 40 } else { 1 }
}

const fn layout<A: Addr>() -> u64 {
    stamp(b"fprl", A::FAMILY, 1)
}

/// Words of the head.
const PREFIXES: usize = 0;
const BRANCHINGS: usize = 1;
type Counts = Head<2>;

const ENTRIES: usize = 1;
const NAMES: [&str; 2] = [HEAD, "entries"];
/// Flag of a link: the rest is an entry, not a branching.
const LEAF: u32 = 1 << 31;
/// No entry, and no branching; entry 0 is the root's.
const NIL: u32 = 0;
/// Walks side by side: their loads overlap.
const GROUP: usize = 32;

/// An entry as it is made.
#[derive(Clone, Copy)]
struct Entry<A: Addr> {
    prefix: Prefix<A>,
    hop: NextHopId,
    cover: u32,
    links: [u32; 2],
    bit: u8,
}

#[allow(clippy::cast_possible_truncation, reason = "the fields of a word")]
mod fields {
    use super::{AtomicU64, Relaxed};

    pub(super) type Line = [AtomicU64; 8];

    #[inline(always)]
    pub(super) fn link(line: &Line, side: u32) -> u32 {
        (line[0].load(Relaxed) >> (32 * side)) as u32
    }
    #[inline(always)]
    pub(super) fn bit(line: &Line) -> u8 {
        line[1].load(Relaxed) as u8
    }
    #[inline(always)]
    pub(super) fn len(line: &Line) -> u8 {
        (line[1].load(Relaxed) >> 8) as u8
    }
    #[inline(always)]
    pub(super) fn hop(line: &Line) -> u32 {
        (line[1].load(Relaxed) >> 32) as u32
    }
    #[inline(always)]
    pub(super) fn cover(line: &Line) -> u32 {
        line[2].load(Relaxed) as u32
    }
    #[inline(always)]
    pub(super) fn key(line: &Line) -> u128 {
        u128::from(line[4].load(Relaxed)) << 64 | u128::from(line[3].load(Relaxed))
    }
    pub(super) fn write(line: &Line, words: [u64; 3], key: u128) {
        let [links, meta, cover] = words;
        let all = [links, meta, cover, key as u64, (key >> 64) as u64];
        line.iter().zip(all).for_each(|(cell, word)| cell.store(word, Relaxed));
    }
}
use fields::Line;

/// Immutable once built, so every load is relaxed: whoever hands the reader over orders the bytes.
struct Reader<A: Addr> {
    head: Counts,
    regions: [Region; 2],
    family: PhantomData<A>,
}

impl<A: Addr> Reader<A> {
    fn lines(&self) -> &[Line] {
        self.regions[ENTRIES].u64s().as_chunks().0
    }
}

/// Bits that an address and an entry's own have in common from the first on.
#[inline(always)]
fn common<A: Addr>(line: &Line, addr: A) -> u8 {
    A::from_u128(fields::key(line)).common_len(addr)
}

#[inline(always)]
fn next<A: Addr>(line: &Line, addr: A) -> u32 {
    fields::link(line, addr.bits(fields::bit(line), 1))
}

/// Answer from a leaf upwards.
#[inline(always)]
fn climb<A: Addr>(lines: &[Line], mut at: u32, addr: A) -> NextHopId {
    let common = common(&lines[at as usize], addr);
    loop {
        let line = &lines[at as usize];
        if fields::len(line) <= common {
            return NextHopId(fields::hop(line));
        }
        at = fields::cover(line);
        if at == NIL {
            return NextHopId::NONE;
        }
    }
}

impl<A: Addr> Lookup<A> for Reader<A> {
    fn lookup(&self, addr: A) -> NextHopId {
        let lines = self.lines();
        let mut at = fields::link(&lines[0], 0);
        if at == NIL {
            return NextHopId::NONE;
        }
        while at & LEAF == 0 {
            at = next(&lines[at as usize], addr);
        }
        climb(lines, at & !LEAF, addr)
    }

    fn lookup_batch(&self, addrs: &[A], out: &mut [NextHopId]) {
        let out = check_out(addrs, out);
        let lines = self.lines();
        let root = fields::link(&lines[0], 0);
        if root == NIL {
            out.fill(NextHopId::NONE);
            return;
        }
        for (addrs, out) in addrs.chunks(GROUP).zip(out.chunks_mut(GROUP)) {
            let mut at = [root; GROUP];
            // Which walks go on; those that reached a leaf drop out without a branch.
            let mut walking: [usize; GROUP] = core::array::from_fn(|lane| lane);
            let mut left = if root & LEAF == 0 { addrs.len() } else { 0 };
            while left > 0 {
                let mut kept = 0;
                for turn in 0..left {
                    let lane = walking[turn];
                    let link = next(&lines[at[lane] as usize], addrs[lane]);
                    if let Some(line) = lines.get((link & !LEAF) as usize) {
                        prefetch(line);
                    }
                    at[lane] = link;
                    walking[kept] = lane;
                    kept += usize::from(link & LEAF == 0);
                }
                left = kept;
            }
            for ((&addr, out), at) in addrs.iter().zip(out).zip(at) {
                *out = climb(lines, at & !LEAF, addr);
            }
        }
    }

    fn explain(&self, addr: A, step: &mut dyn FnMut(&Step)) -> NextHopId {
        let lines = self.lines();
        let mut tell = |at: u32, value: u64, note: &'static str| {
            step(&Step { region: NAMES[ENTRIES], offset: at as usize * 64, value, note });
        };
        let mut at = fields::link(&lines[0], 0);
        tell(0, u64::from(at), "the root");
        if at == NIL {
            return NextHopId::NONE;
        }
        while at & LEAF == 0 {
            let line = &lines[at as usize];
            tell(at, u64::from(fields::bit(line)), "a branching: the bit that it tests");
            at = next(line, addr);
        }
        at &= !LEAF;
        let common = common(&lines[at as usize], addr);
        while at != NIL {
            let line = &lines[at as usize];
            let holds = fields::len(line) <= common;
            let note = if holds { "a route that holds the address" } else { "a longer route" };
            tell(at, u64::from(fields::len(line)), note);
            if holds {
                return NextHopId(fields::hop(line));
            }
            at = fields::cover(line);
        }
        NextHopId::NONE
    }

    fn stats(&self, visit: &mut dyn FnMut(&'static str, u64)) {
        visit("prefixes", self.head.get(PREFIXES));
        visit("branchings", self.head.get(BRANCHINGS));
    }

    fn regions(&self) -> &[Region] {
        &self.regions
    }

    fn bytes(&self) -> usize {
        let entries = usize::try_from(self.head.get(PREFIXES)).unwrap_or(usize::MAX);
        entries.saturating_add(1).saturating_mul(64).saturating_add(Counts::BYTES)
    }
}

fn make<A: Addr>(
    routes: &dyn Routes<A>,
    memory: &mut dyn Memory,
) -> Result<Box<dyn Table<A>>, UpdateError> {
    let prefixes = routes.stats().prefixes;
    if prefixes >= LEAF as usize - 1 {
        let (max, got) = (u64::from(LEAF) - 2, prefixes as u64);
        return Err(UpdateError::Limit { what: "routes", max, got });
    }
    let mut entries: Vec<Entry<A>> = Vec::with_capacity(prefixes);
    let mut open: Vec<u32> = Vec::new();
    routes.walk(A::MIN, A::MAX, &mut |prefix, hop| {
        while open.pop_if(|top| !entries[*top as usize - 1].prefix.covers(prefix)).is_some() {}
        let cover = open.last().copied().unwrap_or(NIL);
        entries.push(Entry { prefix, hop, cover, links: [NIL; 2], bit: u8::MAX });
        open.push(u32::try_from(entries.len()).expect("below 2^31"));
    });
    let (root, branchings) = branch(&mut entries);
    let head = Counts::new(memory, layout::<A>())?;
    let region = memory.region(NAMES[ENTRIES], (entries.len() + 1) * 64)?;
    let lines: &[Line] = region.u64s().as_chunks().0;
    lines[0][0].store(u64::from(root), Relaxed);
    for (line, entry) in lines[1..].iter().zip(&entries) {
        let links = u64::from(entry.links[1]) << 32 | u64::from(entry.links[0]);
        let lens = u64::from(entry.prefix.len()) << 8 | u64::from(entry.bit);
        let meta = u64::from(entry.hop.0) << 32 | lens;
        let key = entry.prefix.addr().to_u128();
        fields::write(line, [links, meta, u64::from(entry.cover)], key);
    }
    head.set(PREFIXES, entries.len());
    head.set(BRANCHINGS, branchings);
    let regions = [head.region().clone(), region];
    let reader = Arc::new(Reader::<A> { head, regions, family: PhantomData });
    Ok(Box::new(Unchanging { reader, max_hop: u32::MAX }))
}

/// Links the branchings: between two neighbours of different address there is one, at the first bit in
/// which they differ, kept in the entry of the right one. Returns the root, and how many there are.
fn branch<A: Addr>(entries: &mut [Entry<A>]) -> (u32, usize) {
    // Branchings on the right edge of what is linked so far, bits ascending.
    let mut edge: Vec<u32> = Vec::new();
    let mut branchings = 0;
    for index in 1..entries.len() {
        let (left, right) = (entries[index - 1].prefix, entries[index].prefix);
        if left.addr() == right.addr() {
            continue;
        }
        // Of equal addresses the last, whose prefix is the longest, is the leaf.
        let at = u32::try_from(index + 1).expect("below 2^31");
        let bit = left.addr().common_len(right.addr());
        let mut below = LEAF | (at - 1);
        while let Some(top) = edge.pop_if(|top| entries[*top as usize - 1].bit > bit) {
            entries[top as usize - 1].links[1] = below;
            below = top;
        }
        entries[index].bit = bit;
        entries[index].links[0] = below;
        edge.push(at);
        branchings += 1;
    }
    let last = u32::try_from(entries.len()).expect("below 2^31");
    let mut root = if last == 0 { NIL } else { LEAF | last };
    while let Some(top) = edge.pop() {
        entries[top as usize - 1].links[1] = root;
        root = top;
    }
    (root, branchings)
}

/// Bits that grow along every link, and covers that stand before what they cover, make each walk end.
fn open<A: Addr>(saved: &[Region]) -> Result<Arc<dyn Lookup<A>>, FormatError> {
    let head = Counts::open(saved, layout::<A>())?;
    let regions = [head.region().clone(), region_named(saved, NAMES[ENTRIES])?];
    let reader = Reader::<A> { head, regions, family: PhantomData };
    let lines = reader.lines();
    let bounds = FormatError::Bounds(NAMES[ENTRIES]);
    let count = usize::try_from(reader.head.get(PREFIXES)).unwrap_or(usize::MAX);
    if lines.len() <= count {
        return Err(bounds);
    }
    let is_linked = |link: u32, above: Option<u8>| {
        let at = (link & !LEAF) as usize;
        let Some(line) = lines.get(at).filter(|_| (1..=count).contains(&at)) else { return false };
        let bit = fields::bit(line);
        link & LEAF != 0 || bit < A::BITS && above.is_none_or(|above| bit > above)
    };
    let root = fields::link(&lines[0], 0);
    let rooted = if count == 0 { root == NIL } else { is_linked(root, None) };
    let sound = lines.iter().enumerate().take(count + 1).skip(1).all(|(at, line)| {
        let bit = fields::bit(line);
        let branching = bit == u8::MAX
            || bit < A::BITS
                && [0, 1].iter().all(|&side| is_linked(fields::link(line, side), Some(bit)));
        branching && (fields::cover(line) as usize) < at
    });
    if rooted && sound { Ok(Arc::new(reader)) } else { Err(bounds) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mem::Heap;
    use crate::routes::RouteStore;
    use crate::testing::{Shape, table};

    /// One branching fewer than there are addresses, whatever the lengths of their prefixes.
    fn branchings<A: Addr>() {
        let routes = table::<A>(Shape::Hostile, 3000, 100, 41);
        let store: RouteStore<A> = routes.iter().copied().collect();
        let mut addrs: Vec<A> = routes.iter().map(|&(prefix, _)| prefix.addr()).collect();
        addrs.dedup();
        assert!(addrs.len() < routes.len());
        let mut found = Vec::new();
        let lookup = make(&store, &mut Heap).unwrap().publish();
        lookup.stats(&mut |name, count| found.push((name, count)));
        let want = [("prefixes", routes.len() as u64), ("branchings", addrs.len() as u64 - 1)];
        assert_eq!(found, want);
    }

    #[test]
    fn a_branching_fewer_than_addresses() {
        branchings::<u32>();
        branchings::<u128>();
    }

    #[test]
    fn a_cover_answers_where_the_leaf_does_not() {
        let routes =
            [("10.0.0.0/8", 1), ("10.0.0.0/16", 2), ("10.0.0.0/24", 3), ("10.0.1.1/32", 4)];
        let store: RouteStore<u32> =
            routes.iter().map(|&(p, hop)| (p.parse().unwrap(), NextHopId(hop))).collect();
        let lookup = make(&store, &mut Heap).unwrap().publish();
        for (addr, want) in [(0x0a00_0001, 3), (0x0a00_0100, 2), (0x0a00_0102, 2), (0x0a01_0000, 1)]
        {
            assert_eq!(lookup.lookup(addr), NextHopId(want), "{addr:#x}");
            let mut climbed = 0;
            lookup.explain(addr, &mut |step| climbed += usize::from(step.note == "a longer route"));
            assert_eq!(climbed > 0, want < 3, "{addr:#x}");
        }
        assert_eq!(lookup.lookup(0x0b00_0000), NextHopId::NONE);
    }
}
