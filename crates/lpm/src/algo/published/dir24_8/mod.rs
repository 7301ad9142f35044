//! DIR-24-8: any IPv4 address in one or two reads; for IPv6 a read more for each further byte.
//!
//! Source: Gupta, Lin, McKeown, INFOCOM 1998; four forms as DPDK has them. `dir24_8` and `fib6` are
//!         rte_fib's and rte_fib6's tries: results only. `lpm4` and `lpm6` are rte_lpm (also Click's
//!         DirectIPLookup) and rte_lpm6: with the length of the prefix in each entry. Differs: a change
//!         is worked out from the route store in all four, so lengths are for whoever reads them and
//!         no list of rules is kept; blocks have room to grow and are built anew beyond it, not refused;
//!         the default route is a route like any other.
//! Shape:  top [u16 or u32; 2^24], 32 or 64 MiB: by the first 24 bits, an answer or number of a block
//!         low [the same; 256 n]: blocks for the next byte. `dir24_8` and `fib6` take two bytes while
//!         next hops and blocks fit 15 bits, else four; the others four. See `form.rs` for the bits.
//! Cost:   lookup 1 or 2 reads; IPv6 up to 14: 4 for a /48, 6 for a /64. A change to a /p writes
//!         2^(24-p) entries (p <= 24) or 2^((-p) mod 8) of one block. Memory is touched as it is used:
//!         an empty table takes none
//! Limits: next hops 2^31 - 1 (`dir24_8`, `fib6`), 2^24 - 1 (`lpm4`), 2^21 - 1 (`lpm6`, which also has no
//!         more than 2^21 blocks)
//! Wins:   batches with locality, as all addresses up to /24 take one read. Weak: small caches and
//!         small pages, each lookup alone, changes of short prefixes; IPv6 takes 1 KiB for each place
//!         where longer prefixes are

mod form;
mod write;

use alloc::sync::Arc;
use core::hint::select_unpredictable;
use core::marker::PhantomData;

use self::form::{Form, Lengths4, Lengths6, Narrow, Wide};
use crate::addr::Addr;
use crate::error::FormatError;
use crate::head::{HEAD, Head};
use crate::intervals::Serving;
use crate::lookup::{Algorithm, Limits, Lookup, Module, Origin, Step, TableStats, check_out};
use crate::mem::{Cells, Masked, Region, prefetch, region_named};
use crate::next_hop_id::NextHopId;
use crate::toolkit::strides::{SLOTS, Slot, Tables};

/// The rows of this file.
pub(super) const MODULE: Module = Module {
    v4: &[
        Algorithm {
            name: "dir24_8",
            summary: "24 bits at once, then a block of 256; two or four bytes an entry",
            source: "Gupta, Lin, McKeown, INFOCOM 1998; DPDK rte_fib",
            origin: Origin::Published,
            limits: Limits { next_hop: Wide::MAX_HOP, prefix_len: 32, note: "" },
            fitness: |stats| fitness(stats, 150),
            make: write::make_slim::<u32>,
            open: Some(open_slim::<u32>),
            kernel_layout: None,
        },
        Algorithm {
            name: "lpm4",
            summary: "24 bits at once, then a block of 256; entries keep the prefix length",
            source: "Gupta, Lin, McKeown, INFOCOM 1998; DPDK rte_lpm, Click DirectIPLookup",
            origin: Origin::Published,
            limits: Limits { next_hop: Lengths4::MAX_HOP, prefix_len: 32, note: "" },
            fitness: |stats| fitness(stats, 140),
            make: write::make::<u32, Lengths4>,
            open: Some(open::<u32, Lengths4>),
            kernel_layout: None,
        },
    ],
    v6: &[
        Algorithm {
            name: "fib6",
            summary: "24 bits at once, then byte by byte; two or four bytes an entry",
            source: "DPDK rte_fib6",
            origin: Origin::Published,
            limits: Limits { next_hop: Wide::MAX_HOP, prefix_len: 128, note: "" },
            fitness: |_| 48,
            make: write::make_slim::<u128>,
            open: Some(open_slim::<u128>),
            kernel_layout: None,
        },
        Algorithm {
            name: "lpm6",
            summary: "24 bits at once, then byte by byte; entries keep the prefix length",
            source: "DPDK rte_lpm6",
            origin: Origin::Published,
            limits: Limits {
                next_hop: Lengths6::MAX_HOP,
                prefix_len: 128,
                note: "2,097,152 blocks of 256",
            },
            fitness: |_| 46,
            make: write::make::<u128, Lengths6>,
            open: Some(open::<u128, Lengths6>),
            kernel_layout: None,
        },
    ],
};

/// FreeBSD prefers its DPDK tables to everything else from some 500,000 IPv4 and 100,000 IPv6 routes
/// on, and not at all below a few. Here DXR is as fast in a twentieth of the memory, so DIR-24-8 stays
/// below it even there; and the IPv6 forms below radix: some 100 MiB are for those who choose them.
fn fitness(stats: &TableStats, full: u8) -> u8 {
    match stats.prefixes {
        0..1000 => 1,
        1000..100_000 => 40,
        _ => full,
    }
}

/// Bits of the first table.
const FIRST: u8 = 24;

/// Words of the head.
const PREFIXES: usize = 0;
const BLOCKS: usize = 1;
const WAITING: usize = 2;
type Counts = Head<3>;

const TOP: usize = 1;
const LOW: usize = 2;
const NAMES: [&str; 3] = [HEAD, "top", "low"];

struct Reader<A, F: Form> {
    head: Counts,
    regions: [Region; 3],
    top: Cells<F::Cell>,
    low: Cells<F::Cell>,
    family: PhantomData<fn() -> A>,
}

/// The arrays of a reader, as a batch keeps them in registers.
struct View<'a, F: Form> {
    top: Masked<'a, F::Cell>,
    low: Masked<'a, F::Cell>,
}

impl<A, F: Form> Reader<A, F> {
    /// `low` has room for at least `blocks` blocks, a power of two.
    fn new(head: Counts, top: Region, low: Region, blocks: usize) -> Self {
        Self {
            top: Cells::new(&top, (1 << FIRST) - 1),
            low: Cells::new(&low, blocks * SLOTS - 1),
            regions: [head.region().clone(), top, low],
            head,
            family: PhantomData,
        }
    }

    #[inline(always)]
    fn view(&self) -> View<'_, F> {
        View { top: self.top.view(), low: self.low.view() }
    }
}

impl<A: Addr, F: Form> Tables<A> for Reader<A, F> {
    const FIRST: u8 = FIRST;
    const ROOMS: usize = 1;
    const MERGES: bool = F::MERGES;

    fn leaf(route: Serving<A>) -> u32 {
        F::leaf(route)
    }
    fn folds(leaf: u32, end: u8) -> bool {
        F::depth(leaf) <= end
    }
    fn room(_: usize) -> usize {
        0
    }
    #[inline(always)]
    fn read(&self, level: usize, cell: usize) -> Slot {
        let view = self.view();
        let table = if level == 0 { view.top } else { view.low };
        F::slot(F::load_relaxed(table.at(cell)))
    }
    #[inline(always)]
    fn write(&self, level: usize, cell: usize, slot: Slot) {
        let view = self.view();
        let table = if level == 0 { view.top } else { view.low };
        F::store(table.at(cell), F::entry(slot));
    }
}

/// How a family goes through the tables.
trait Walk: Addr {
    /// Levels after the first table.
    const LEVELS: usize = ((Self::BITS - FIRST) / 8) as usize;

    /// The first 24 bits.
    fn top(self) -> usize;
    /// The byte for a level, from 1 on.
    fn byte(self, level: usize) -> usize;
}

impl Walk for u32 {
    #[inline(always)]
    fn top(self) -> usize {
        (self >> 8) as usize
    }
    #[inline(always)]
    fn byte(self, _: usize) -> usize {
        (self & 0xff) as usize
    }
}

impl Walk for u128 {
    #[inline(always)]
    fn top(self) -> usize {
        (self >> 104) as usize
    }
    #[inline(always)]
    #[allow(clippy::cast_possible_truncation, reason = "one byte is wanted")]
    fn byte(self, level: usize) -> usize {
        // Bits 24 to 31 for level 1; from a half of the address, as a shift of all of it takes three.
        let half = if level <= 5 { (self >> 64) as u64 } else { self as u64 };
        usize::from((half >> (8 * (7 - (level + 2) % 8))) as u8)
    }
}

/// Keys that go through the tables together, and how far ahead of their reads the first table is
/// prefetched: 1.3 to 1.4 times as fast as without, on small and on huge pages; 16 were a tenth slower, 32 as
/// fast. A gather of AVX-512 was no faster than this on a Xeon with it.
const GROUP: usize = 64;

impl<F: Form> View<'_, F> {
    /// Cell of an address in the block of an extended entry.
    #[inline(always)]
    fn below<A: Walk>(entry: u32, addr: A, level: usize) -> usize {
        F::block(entry) as usize * SLOTS + addr.byte(level)
    }

    #[inline(always)]
    fn answer<A: Walk>(&self, addr: A) -> NextHopId {
        let mut entry = F::load(self.top.at(addr.top()));
        for level in 1..=A::LEVELS {
            if !F::is_extended(entry) {
                break;
            }
            entry = F::load(self.low.at(Self::below(entry, addr, level)));
        }
        F::hop(entry)
    }

    /// Nothing branches on a single address: only whether any of the group continues does, once a level.
    /// Prefetches the first entries of `next` meanwhile, which is shorter than the group at the end.
    #[inline(always)]
    fn group<A: Walk>(&self, addrs: &[A], next: &[A], out: &mut [NextHopId]) {
        // One bit tells of an entry that it is extended, so it tells of all of them together.
        let mut seen = 0;
        let mut read = |addr: A, out: &mut NextHopId| {
            let entry = F::load(self.top.at(addr.top()));
            seen |= entry;
            *out = NextHopId(entry);
        };
        for ((&addr, &next), out) in addrs.iter().zip(next).zip(out.iter_mut()) {
            prefetch(self.top.at(next.top()));
            read(addr, out);
        }
        for (&addr, out) in addrs.iter().zip(out.iter_mut()).skip(next.len()) {
            read(addr, out);
        }
        if F::is_extended(seen) {
            self.go_on(addrs, out);
        }
        for out in out {
            *out = F::hop(out.0);
        }
    }

    /// Takes the entries in `out` that are extended to their ends.
    fn go_on<A: Walk>(&self, addrs: &[A], out: &mut [NextHopId]) {
        let (mut going, mut cells) = ([0; GROUP], [0; GROUP]);
        let mut left = 0;
        for (slot, (&addr, &NextHopId(entry))) in addrs.iter().zip(out.iter()).enumerate() {
            going[left % GROUP] = slot;
            cells[left % GROUP] = Self::below(entry, addr, 1);
            left += usize::from(F::is_extended(entry));
        }
        for &cell in &cells[..left] {
            prefetch(self.low.at(cell));
        }
        for level in 1..=A::LEVELS {
            let mut kept = 0;
            for turn in 0..left {
                let (slot, cell) = (going[turn], cells[turn]);
                let entry = F::load(self.low.at(cell));
                out[slot] = NextHopId(entry);
                let goes_on = F::is_extended(entry);
                if level < A::LEVELS {
                    // An answer is no block: its line of the level before is at hand, and asked for again.
                    let next = Self::below(entry, addrs[slot], level + 1);
                    let next = select_unpredictable(goes_on, next, cell);
                    prefetch(self.low.at(next));
                    cells[kept] = next;
                }
                going[kept] = slot;
                kept += usize::from(goes_on);
            }
            left = kept;
            if left == 0 {
                break;
            }
        }
    }
}

impl<A: Walk, F: Form> Lookup<A> for Reader<A, F> {
    fn lookup(&self, addr: A) -> NextHopId {
        self.view().answer(addr)
    }

    fn lookup_batch(&self, addrs: &[A], out: &mut [NextHopId]) {
        let out = check_out(addrs, out);
        let view = self.view();
        for addr in addrs.iter().take(GROUP) {
            prefetch(view.top.at(addr.top()));
        }
        let (groups, rest) = addrs.as_chunks::<GROUP>();
        let (group_outs, rest_out) = out.as_chunks_mut::<GROUP>();
        for (index, (addrs, out)) in groups.iter().zip(group_outs).enumerate() {
            match groups.get(index + 1) {
                Some(next) => view.group(addrs, next, out),
                None => view.group(addrs, rest, out),
            }
        }
        view.group(rest, &[], rest_out);
    }

    fn explain(&self, addr: A, step: &mut dyn FnMut(&Step)) -> NextHopId {
        let (mut region, mut cell) = (TOP, addr.top());
        for level in 1..=A::LEVELS + 1 {
            let table = if region == TOP { self.top.view() } else { self.low.view() };
            let entry = F::load(table.at(cell));
            let note = match F::slot(entry) {
                Slot::Child(_) => "an entry that refers to a block",
                Slot::Leaf(0) => "an entry without a route",
                Slot::Leaf(_) => "an entry with a next hop",
            };
            let offset = cell * size_of::<F::Cell>();
            step(&Step { region: NAMES[region], offset, value: u64::from(entry), note });
            if level > A::LEVELS || !F::is_extended(entry) {
                return F::hop(entry);
            }
            (region, cell) = (LOW, View::<F>::below(entry, addr, level));
        }
        NextHopId::NONE
    }

    fn stats(&self, visit: &mut dyn FnMut(&'static str, u64)) {
        visit("prefixes", self.head.get(PREFIXES));
        visit("blocks", self.head.get(BLOCKS));
        visit("waiting_blocks", self.head.get(WAITING));
        visit("entry_bytes", size_of::<F::Cell>() as u64);
    }

    fn regions(&self) -> &[Region] {
        &self.regions
    }

    fn bytes(&self) -> usize {
        let blocks = usize::try_from(self.head.get(BLOCKS)).unwrap_or(usize::MAX);
        let entries = blocks.saturating_mul(SLOTS).saturating_add(1 << FIRST);
        entries.saturating_mul(size_of::<F::Cell>()).saturating_add(Counts::BYTES)
    }
}

fn open<A: Walk, F: Form>(saved: &[Region]) -> Result<Arc<dyn Lookup<A>>, FormatError> {
    let head = Counts::open(saved, F::LAYOUT)?;
    let top = region_named(saved, NAMES[TOP])?;
    let low = region_named(saved, NAMES[LOW])?;
    let width = size_of::<F::Cell>();
    if top.bytes() / width < 1 << FIRST {
        return Err(FormatError::Bounds(NAMES[TOP]));
    }
    // The greatest power of two that is there; saved blocks are one.
    let blocks = (low.bytes() / (SLOTS * width)).checked_ilog2().map(|bits| 1usize << bits);
    let blocks = blocks.ok_or(FormatError::Bounds(NAMES[LOW]))?;
    let reader = Reader::<A, F>::new(head, top, low, blocks);
    let view = reader.view();
    let inside = |entry: u32| !F::is_extended(entry) || (F::block(entry) as usize) < blocks;
    if (0..1 << FIRST).all(|cell| inside(F::load(view.top.at(cell)))) {
        Ok(Arc::new(reader))
    } else {
        Err(FormatError::Bounds(NAMES[LOW]))
    }
}

/// Whichever width was saved.
fn open_slim<A: Walk>(saved: &[Region]) -> Result<Arc<dyn Lookup<A>>, FormatError> {
    match open::<A, Narrow>(saved) {
        Err(FormatError::Version { got: Wide::LAYOUT, .. }) => open::<A, Wide>(saved),
        other => other,
    }
}
