//! SAIL: tables for the first 16, the next 8 and the last 8 bits; answers apart from chunk numbers.
//!
//! Source: Yang and others, SIGCOMM 2014: SAIL_L, pushed to levels 16, 24 and 32. Differs: next hops
//!         have 16 bits and chunk numbers 31 and 32 (theirs 8, 15 and 16, which a synthetic table of the
//!         Poptrie paper overflows); only chunks in use take memory; changed in place.
//! Shape:  level16 [u32; 2^16], 256 KiB: a next hop, or CHUNK | number of a chunk of level 24
//!         hops24 [u16; 256 n], 512 bytes a chunk: the answer, or 0: see
//!         chunks24 [u32; 256 n], 1 KiB a chunk: number of a chunk of level 32
//!         hops32 [u16; 256 m], 512 bytes a chunk; chunk 0 is all 0, for what has no route
//! Cost:   lookup 1 or 2 reads to a /24, 4 for longer ones and where there is no route; a change to a /p
//!         writes 2^((-p) mod 8) slots (p > 16) or 2^(16-p) and unlinks what is below
//! Limits: IPv4; next hops 65,535
//! Wins:   steady batches: no loop depends on data. Weak: some 25 MiB for a full table (the authors' form
//!         44, with its pools)

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicU16, AtomicU32};

use crate::addr::Prefix;
use crate::error::{FormatError, UpdateError};
use crate::head::{HEAD, Head, stamp};
use crate::intervals::Serving;
use crate::lookup::{
    Algorithm, Change, Grace, Limits, Lookup, Module, Origin, Routes, Step, Table, TableStats,
    check_out,
};
use crate::mem::{Cells, Masked, Memory, Region, prefetch, region_named};
use crate::next_hop_id::NextHopId;
use crate::toolkit::strides::{Cuts, Full, SLOTS, Slot, StrideWriter, Tables};

/// The rows of this file.
pub(super) const MODULE: Module = Module {
    v4: &[Algorithm {
        name: "sail",
        summary: "three tables of fixed strides, next hops apart from chunk numbers",
        source: "Yang and others, SIGCOMM 2014",
        origin: Origin::Published,
        limits: Limits { next_hop: MAX_HOP, prefix_len: 32, note: "" },
        fitness,
        make,
        open: Some(open),
        kernel_layout: None,
    }],
    v6: &[],
};

/// Below DIR-24-8, which takes less memory and one read less.
fn fitness(stats: &TableStats) -> u8 {
    match stats.prefixes {
        0..1000 => 1,
        1000..100_000 => 40,
        _ => 120,
    }
}

const MAX_HOP: u32 = 0xffff;
/// Flag of an entry of level 16: the rest is the number of a chunk.
const CHUNK: u32 = 1 << 31;
const LAYOUT: u64 = stamp(b"fpsa", 4, 1);

/// Words of the head.
const PREFIXES: usize = 0;
const CHUNKS24: usize = 1;
const CHUNKS32: usize = 2;
const WAITING: usize = 3;
type Counts = Head<4>;

const LEVEL16: usize = 1;
const HOPS24: usize = 2;
const BELOW24: usize = 3;
const HOPS32: usize = 4;
const NAMES: [&str; 5] = [HEAD, "level16", "hops24", "chunks24", "hops32"];
/// Chunks kept free on each level beside a quarter of those in use.
const SLACK_CHUNKS: usize = 64;

struct Reader {
    head: Counts,
    regions: [Region; 5],
    level16: Cells<AtomicU32>,
    hops24: Cells<AtomicU16>,
    below24: Cells<AtomicU32>,
    hops32: Cells<AtomicU16>,
}

/// The arrays of a reader, as a batch keeps them in registers.
#[derive(Clone, Copy)]
struct View<'a> {
    level16: Masked<'a, AtomicU32>,
    hops24: Masked<'a, AtomicU16>,
    below24: Masked<'a, AtomicU32>,
    hops32: Masked<'a, AtomicU16>,
}

impl Reader {
    /// For so many chunks of each level, powers of two; the zeros of level 32 are one of them.
    fn new(head: Counts, regions: [Region; 4], chunks24: usize, chunks32: usize) -> Self {
        let [level16, hops24, below24, hops32] = regions;
        Self {
            level16: Cells::new(&level16, (1 << 16) - 1),
            hops24: Cells::new(&hops24, chunks24 * SLOTS - 1),
            below24: Cells::new(&below24, chunks24 * SLOTS - 1),
            hops32: Cells::new(&hops32, chunks32 * SLOTS - 1),
            regions: [head.region().clone(), level16, hops24, below24, hops32],
            head,
        }
    }

    #[inline(always)]
    fn view(&self) -> View<'_> {
        View {
            level16: self.level16.view(),
            hops24: self.hops24.view(),
            below24: self.below24.view(),
            hops32: self.hops32.view(),
        }
    }
}

impl Tables<u32> for Reader {
    const FIRST: u8 = 16;
    const ROOMS: usize = 2;
    const MERGES: bool = true;

    fn leaf(route: Serving<u32>) -> u32 {
        route.map_or(0, |(_, hop)| hop.0)
    }
    fn folds(_: u32, _: u8) -> bool {
        true
    }
    fn room(level: usize) -> usize {
        level - 1
    }
    #[inline(always)]
    fn read(&self, level: usize, cell: usize) -> Slot {
        let view = self.view();
        match level {
            0 => match view.level16.at(cell).load(Relaxed) {
                entry if entry & CHUNK == 0 => Slot::Leaf(entry),
                entry => Slot::Child(entry & !CHUNK),
            },
            1 => match view.hops24.at(cell).load(Relaxed) {
                0 => match view.below24.at(cell).load(Relaxed) {
                    0 => Slot::Leaf(0),
                    chunk => Slot::Child(chunk - 1),
                },
                hop => Slot::Leaf(u32::from(hop)),
            },
            _ => Slot::Leaf(u32::from(view.hops32.at(cell + SLOTS).load(Relaxed))),
        }
    }
    /// Writes two arrays on level 24. A reader that finds no next hop reads the chunk number after it,
    /// so the number goes first; and where a next hop takes over, the number stays for those who are
    /// between the two.
    #[inline(always)]
    fn write(&self, level: usize, cell: usize, slot: Slot) {
        let narrow = |hop: u32| u16::try_from(hop).expect("next hops are checked");
        let view = self.view();
        match (level, slot) {
            (0, Slot::Leaf(hop)) => view.level16.at(cell).store(hop, Release),
            (0, Slot::Child(chunk)) => view.level16.at(cell).store(CHUNK | chunk, Release),
            (1, Slot::Leaf(hop)) => {
                if hop == 0 {
                    view.below24.at(cell).store(0, Release);
                }
                view.hops24.at(cell).store(narrow(hop), Release);
            }
            (1, Slot::Child(chunk)) => {
                view.below24.at(cell).store(chunk + 1, Release);
                view.hops24.at(cell).store(0, Release);
            }
            (_, Slot::Leaf(hop)) => view.hops32.at(cell + SLOTS).store(narrow(hop), Release),
            (_, Slot::Child(_)) => unreachable!("level 32 is the last"),
        }
    }
}

/// Keys that go through the levels together.
const GROUP: usize = 64;

impl View<'_> {
    /// Cell of an address in a chunk of level 24. All loads acquire: they pair with the
    /// release stores of `write`, before which what they lead to was filled.
    #[inline(always)]
    fn cell24(entry: u32, addr: u32) -> usize {
        (entry & !CHUNK) as usize * SLOTS + (addr >> 8 & 0xff) as usize
    }

    #[inline(always)]
    fn cell32(chunk: u32, addr: u32) -> usize {
        chunk as usize * SLOTS + (addr & 0xff) as usize
    }

    #[inline(always)]
    fn entry(&self, addr: u32) -> u32 {
        self.level16.at((addr >> 16) as usize).load(Acquire)
    }

    #[inline(always)]
    fn answer(&self, addr: u32) -> NextHopId {
        let entry = self.entry(addr);
        if entry & CHUNK == 0 {
            return NextHopId(entry);
        }
        let cell = Self::cell24(entry, addr);
        let hop = self.hops24.at(cell).load(Acquire);
        if hop != 0 {
            return NextHopId(u32::from(hop));
        }
        let chunk = self.below24.at(cell).load(Acquire);
        NextHopId(u32::from(self.hops32.at(Self::cell32(chunk, addr)).load(Relaxed)))
    }

    /// Looks a group up level by level; those that continue are collected without a branch.
    fn group(&self, addrs: &[u32], out: &mut [NextHopId]) {
        let mut going = [0; GROUP];
        let mut cells = [0; GROUP];
        let mut left = 0;
        for (slot, (&addr, out)) in addrs.iter().zip(out.iter_mut()).enumerate() {
            let entry = self.entry(addr);
            *out = NextHopId(entry);
            let cell = Self::cell24(entry, addr);
            going[left % GROUP] = slot;
            cells[left % GROUP] = cell;
            // Of no use, and no harm, where there is no chunk: cell of a chunk as good as any.
            prefetch(self.hops24.at(cell));
            left += usize::from(entry & CHUNK != 0);
        }
        let mut kept = 0;
        for turn in 0..left {
            let (slot, cell) = (going[turn], cells[turn]);
            let hop = self.hops24.at(cell).load(Acquire);
            out[slot] = NextHopId(u32::from(hop));
            going[kept] = slot;
            cells[kept] = cell;
            kept += usize::from(hop == 0);
        }
        for &cell in &cells[..kept] {
            prefetch(self.below24.at(cell));
        }
        for turn in 0..kept {
            let cell = Self::cell32(self.below24.at(cells[turn]).load(Acquire), addrs[going[turn]]);
            prefetch(self.hops32.at(cell));
            cells[turn] = cell;
        }
        for (&slot, &cell) in going[..kept].iter().zip(&cells) {
            out[slot] = NextHopId(u32::from(self.hops32.at(cell).load(Relaxed)));
        }
    }
}

impl Lookup<u32> for Reader {
    fn lookup(&self, addr: u32) -> NextHopId {
        self.view().answer(addr)
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
        let mut tell = |region: usize, offset: usize, value: u32, note: &'static str| {
            step(&Step { region: NAMES[region], offset, value: u64::from(value), note });
        };
        let entry = view.entry(addr);
        let at = (addr >> 16) as usize;
        if entry & CHUNK == 0 {
            tell(LEVEL16, at * 4, entry, "one next hop for the first 16 bits");
            return NextHopId(entry);
        }
        tell(LEVEL16, at * 4, entry, "a chunk of level 24");
        let cell = View::cell24(entry, addr);
        let hop = u32::from(view.hops24.at(cell).load(Acquire));
        if hop != 0 {
            tell(HOPS24, cell * 2, hop, "its next hop");
            return NextHopId(hop);
        }
        tell(HOPS24, cell * 2, hop, "no next hop here");
        let chunk = view.below24.at(cell).load(Acquire);
        let note = if chunk == 0 { "no route" } else { "a chunk of level 32" };
        tell(BELOW24, cell * 4, chunk, note);
        let cell = View::cell32(chunk, addr);
        let hop = u32::from(view.hops32.at(cell).load(Relaxed));
        tell(HOPS32, cell * 2, hop, "its next hop");
        NextHopId(hop)
    }

    fn stats(&self, visit: &mut dyn FnMut(&'static str, u64)) {
        visit("prefixes", self.head.get(PREFIXES));
        visit("chunks24", self.head.get(CHUNKS24));
        visit("chunks32", self.head.get(CHUNKS32));
        visit("waiting_chunks", self.head.get(WAITING));
    }

    fn regions(&self) -> &[Region] {
        &self.regions
    }

    fn bytes(&self) -> usize {
        let count = |word| usize::try_from(self.head.get(word)).unwrap_or(usize::MAX);
        let chunks24 = count(CHUNKS24).saturating_mul(SLOTS * 6);
        let chunks32 = count(CHUNKS32).saturating_add(1).saturating_mul(SLOTS * 2);
        chunks24.saturating_add(chunks32).saturating_add(Counts::BYTES + (4 << 16))
    }
}

struct Writer {
    plies: StrideWriter<u32, Reader>,
    prefixes: usize,
}

fn make(
    routes: &dyn Routes<u32>,
    memory: &mut dyn Memory,
) -> Result<Box<dyn Table<u32>>, UpdateError> {
    let cuts = Cuts::new::<Reader>(Prefix::ALL, routes);
    let used = cuts.blocks::<Reader>();
    // Powers of two, as readers mask their indices.
    let room = |used: usize| (used + used / 4 + SLACK_CHUNKS).next_power_of_two();
    // No table has more chunks of level 24 than level 16 has entries.
    let (chunks24, chunks32) = (room(used[0]).min(1 << 16), room(used[1] + 1));
    let regions = [
        memory.region(NAMES[LEVEL16], 4 << 16)?,
        memory.region(NAMES[HOPS24], chunks24 * SLOTS * 2)?,
        memory.region(NAMES[BELOW24], chunks24 * SLOTS * 4)?,
        memory.region(NAMES[HOPS32], chunks32 * SLOTS * 2)?,
    ];
    let head = Counts::new(memory, LAYOUT)?;
    let reader = Arc::new(Reader::new(head, regions, chunks24, chunks32));
    let capacity = |chunks: usize| u32::try_from(chunks).expect("at most 2^25 chunks");
    let capacities = [capacity(chunks24), capacity(chunks32 - 1)];
    let plies = StrideWriter::new(reader, &capacities, &cuts).expect("the chunks were counted");
    let writer = Writer { plies, prefixes: routes.stats().prefixes };
    writer.count();
    Ok(Box::new(writer))
}

impl Writer {
    fn count(&self) {
        let head = &self.plies.tables().head;
        head.set(PREFIXES, self.prefixes);
        head.set(CHUNKS24, self.plies.used(0));
        head.set(CHUNKS32, self.plies.used(1));
        head.set(WAITING, self.plies.waiting(0) + self.plies.waiting(1));
    }
}

impl Table<u32> for Writer {
    fn apply(
        &mut self,
        changes: &[Change<u32>],
        routes: &dyn Routes<u32>,
        grace: &mut dyn Grace,
    ) -> Result<(), UpdateError> {
        Change::greatest_hop(changes, MAX_HOP)?;
        self.plies.apply(changes, routes, grace).map_err(|Full| UpdateError::Rebuild)?;
        self.prefixes = Change::prefixes_after(changes, self.prefixes);
        self.count();
        Ok(())
    }

    fn publish(&mut self) -> Arc<dyn Lookup<u32>> {
        self.plies.tables().clone()
    }
}

/// The greatest power of two of whole chunks of cells of `width` bytes.
fn chunks(region: &Region, width: usize) -> Result<usize, FormatError> {
    let chunks = (region.bytes() / (SLOTS * width)).checked_ilog2();
    chunks.map(|bits| 1 << bits).ok_or(FormatError::Bounds(region.name()))
}

fn open(saved: &[Region]) -> Result<Arc<dyn Lookup<u32>>, FormatError> {
    let head = Counts::open(saved, LAYOUT)?;
    let level16 = region_named(saved, NAMES[LEVEL16])?;
    let hops24 = region_named(saved, NAMES[HOPS24])?;
    let below24 = region_named(saved, NAMES[BELOW24])?;
    let hops32 = region_named(saved, NAMES[HOPS32])?;
    if level16.bytes() < 4 << 16 {
        return Err(FormatError::Bounds(NAMES[LEVEL16]));
    }
    let chunks24 = chunks(&hops24, 2)?.min(chunks(&below24, 4)?);
    let chunks32 = chunks(&hops32, 2)?;
    let reader = Reader::new(head, [level16, hops24, below24, hops32], chunks24, chunks32);
    let inside24 = |cell| match reader.read(0, cell) {
        Slot::Child(chunk) => (chunk as usize) < chunks24,
        Slot::Leaf(hop) => hop <= MAX_HOP,
    };
    if !(0..1 << 16).all(inside24) {
        return Err(FormatError::Bounds(NAMES[HOPS24]));
    }
    // What a chunk number says beside a next hop is left from before.
    let inside32 = |cell| match reader.read(1, cell) {
        Slot::Child(chunk) => (chunk as usize) + 1 < chunks32,
        Slot::Leaf(_) => true,
    };
    if (0..chunks24 * SLOTS).all(inside32) {
        Ok(Arc::new(reader))
    } else {
        Err(FormatError::Bounds(NAMES[HOPS32]))
    }
}
