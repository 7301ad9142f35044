//! The writer of range lines: cuts what a change touches into nodes and lines, publishes entries.
//!
//! A change is rounded up to a /48 at least. What that block has now is made anew beside the readers, in
//! a /32 together with the ranges around it, and each address of it changes its answer by one store: of
//! its entry in a node, in a page, or in the top. When space runs out the entries are put back, and the caller builds again.

mod trees;

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::mem;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{Relaxed, Release};

use super::{
    Counts, DEFAULT, DIRECT, HEAP, LINE_UNITS, LINES, NAMES, NODES, Narrow, PAGE, PAGE_UNITS,
    PAGES, PREFIXES, Reader, TAIL, TAILS, TOP, TOPS, UNITS, Wide, Width,
};
use crate::addr::Prefix;
use crate::error::UpdateError;
use crate::intervals::{Specific, sweep};
use crate::lookup::{Change, Grace, Lookup, Routes, Table, TableStats};
use crate::mem::Memory;
use crate::simd::Simd;
use crate::toolkit::buddy::Buddy;
use crate::toolkit::retired::Retired;
use trees::part_of;

/// Pages are numbered with 16 bits: 256 MiB.
const MAX_UNITS: usize = TOP * PAGE_UNITS as usize;
/// Heap that is taken at first: for each prefix, and for any table.
const PREFIX_BYTES: usize = 12;
const LEAST_UNITS: usize = 4096;
/// Parts of one /32 that are made anew one by one in a step: each writes all lines of the /32.
const MOST_PARTS: usize = 4;
/// Numbers of tails beside those that a table may need at first.
const SPARE_TAILS: usize = 1024;
/// Tails that a narrow result can name.
const NARROW_TAILS: usize = Narrow::DEEP as usize;

/// No space in the heap, or no number for a tail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Full {
    Heap,
    Tails,
}

/// Where something begins, and how many units it has; none: the number of a tail.
type Block = (u32, u32);

/// Counts of the structure in its head.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
struct Tally {
    prefixes: usize,
    pages: usize,
    nodes: usize,
    lines: usize,
    tails: usize,
    units: usize,
}

/// A page with one answer, shared by all /16s that have it.
struct Uniform {
    page: u16,
    users: u32,
}

/// What is changed under readers.
#[derive(Clone, Copy)]
enum Cell {
    Top(usize),
    Word(usize),
}

struct Writer<W> {
    reader: Arc<Reader<W>>,
    space: Buddy,
    /// Numbers of tails that are free.
    numbers: Vec<u32>,
    /// Uniform pages, by the entry that fills them.
    uniform: BTreeMap<u32, Uniform>,
    tally: Tally,
    waiting: Retired<Block>,
    /// Blocks taken and unlinked in the step at hand, and former values of cells.
    fresh: Vec<Block>,
    stale: Vec<Block>,
    undo: Vec<(Cell, u32)>,
    /// The slots of the node at hand; `kept` if they stood in a node of which the block is a part.
    slots: [u32; 64],
    kept: bool,
    /// /16s of which an entry became an answer: perhaps all are the same now.
    settled: Vec<usize>,
    /// Kept for their memory.
    edges: Vec<(u128, u32)>,
    ranges: Vec<(u32, u32)>,
    before: Vec<(u32, u32)>,
}

pub(super) fn make(
    routes: &dyn Routes<u128>,
    memory: &mut dyn Memory,
) -> Result<Box<dyn Table<u128>>, UpdateError> {
    let stats = routes.stats();
    let long: u32 = stats.lengths[49..].iter().sum();
    let tails = (long as usize + long as usize / 4 + SPARE_TAILS).next_power_of_two();
    if stats.max_next_hop < Narrow::DEEP
        && let Some(table) =
            build::<Narrow>(routes, &stats, memory, tails.min(NARROW_TAILS), Simd::detect())?
    {
        return Ok(Box::new(table));
    }
    let table = build::<Wide>(routes, &stats, memory, tails, Simd::detect())?;
    Ok(Box::new(table.expect("there are numbers for the tails of all long prefixes")))
}

/// `None` when the tails are too many.
fn build<W: Width>(
    routes: &dyn Routes<u128>,
    stats: &TableStats,
    memory: &mut dyn Memory,
    tails: usize,
    simd: Simd,
) -> Result<Option<Writer<W>>, UpdateError> {
    let mut units = (stats.prefixes * PREFIX_BYTES / 8 + LEAST_UNITS).next_power_of_two();
    loop {
        if units > MAX_UNITS {
            let (max, got) = (MAX_UNITS as u64 * 8, units as u64 * 8);
            return Err(UpdateError::Limit { what: "bytes of heap", max, got });
        }
        let mut writer = Writer::<W>::empty(memory, units, tails, simd)?;
        match writer.fill(routes, stats) {
            // A fifth stays free for changes.
            Ok(()) if writer.tally.units <= units / 5 * 4 || units == MAX_UNITS => {
                return Ok(Some(writer));
            }
            Err(Full::Tails) => return Ok(None),
            Ok(()) | Err(Full::Heap) => units *= 2,
        }
    }
}

/// The /32 of an address.
#[allow(clippy::cast_possible_truncation, reason = "the upper 32 bits")]
fn slot_of(addr: u128) -> u32 {
    (addr >> 96) as u32
}

impl<W: Width> Writer<W> {
    fn empty(
        memory: &mut dyn Memory,
        units: usize,
        tails: usize,
        simd: Simd,
    ) -> Result<Self, UpdateError> {
        let top = memory.region(NAMES[TOPS], 2 * TOP)?;
        let heap = memory.region(NAMES[HEAP], 8 * units)?;
        let tail = memory.region(NAMES[TAIL], 4 * tails)?;
        let head = Counts::new(memory, W::LAYOUT)?;
        let space = Buddy::new(units);
        let reader = Arc::new(Reader::new(head, top, heap, tail, simd));
        let numbers = u32::try_from(tails).expect("fewer tails than a route store holds prefixes");
        let mut writer = Self {
            reader,
            space,
            numbers: (0..numbers).rev().collect(),
            uniform: BTreeMap::new(),
            tally: Tally::default(),
            waiting: Retired::default(),
            fresh: Vec::new(),
            stale: Vec::new(),
            undo: Vec::new(),
            slots: [0; 64],
            kept: false,
            settled: Vec::new(),
            edges: Vec::new(),
            ranges: Vec::new(),
            before: Vec::new(),
        };
        // The first line is read, and what was read not used, for entries that are answers. Its links
        // are no matter: any bytes do.
        let roomy = "more than a page and a line";
        writer.take(LINE_UNITS).expect(roomy);
        let page = writer.uniform(DIRECT).expect(roomy);
        for entry in &writer.reader.regions[TOPS].u16s()[..TOP] {
            entry.store(page, Relaxed);
        }
        writer.uniform.get_mut(&DIRECT).expect("made above").users =
            u32::try_from(TOP).expect("2^16");
        writer.fresh.clear();
        Ok(writer)
    }

    fn fill(&mut self, routes: &dyn Routes<u128>, stats: &TableStats) -> Result<(), Full> {
        self.tally.prefixes = stats.prefixes;
        self.renew(Prefix::ALL, routes)?;
        // ::/0 covers a /1, and nothing else does.
        let default = routes.parent(Prefix::masked(0, 1)).map_or(0, |(_, hop)| hop.0);
        self.reader.head.word(DEFAULT).store(u64::from(default), Relaxed);
        self.drop_unused();
        // Nobody reads it yet.
        for block in mem::take(&mut self.stale) {
            self.give(block);
        }
        self.fresh.clear();
        self.undo.clear();
        self.count();
        Ok(())
    }

    fn words(&self) -> &[AtomicU32] {
        self.reader.regions[HEAP].u32s()
    }

    fn count(&self) {
        let (head, tally) = (&self.reader.head, &self.tally);
        head.set(PREFIXES, tally.prefixes);
        head.set(PAGES, tally.pages);
        head.set(NODES, tally.nodes);
        head.set(LINES, tally.lines);
        head.set(TAILS, tally.tails);
        head.set(UNITS, tally.units);
    }

    fn take(&mut self, units: u32) -> Result<u32, Full> {
        let base = self.space.take(units).ok_or(Full::Heap)?;
        self.tally.units += units as usize;
        self.fresh.push((base, units));
        Ok(base)
    }

    /// Unlinks a block, which is used again once no reader holds it.
    fn unlink(&mut self, base: u32, units: u32) {
        self.tally.units -= units as usize;
        self.stale.push((base, units));
    }

    fn give(&mut self, (base, units): Block) {
        if units == 0 {
            self.numbers.push(base);
        } else {
            self.space.give(base, units);
        }
    }

    /// Makes a block of the address space anew.
    fn renew(&mut self, block: Prefix<u128>, routes: &dyn Routes<u128>) -> Result<(), Full> {
        let mut edges = mem::take(&mut self.edges);
        edges.clear();
        sweep(block, &Specific(routes), &mut |start, hop| edges.push((start, hop.0)));
        let result = self.cut(block, &edges);
        self.edges = edges;
        result
    }

    fn cut(&mut self, block: Prefix<u128>, edges: &[(u128, u32)]) -> Result<(), Full> {
        if block.len() > 32 {
            return self.patch(block, edges);
        }
        let (first, last) = (slot_of(block.first()), slot_of(block.last()));
        self.kept = block.len() > 26;
        if self.kept {
            self.unpack(first);
            for slot in first..=last {
                self.drop_tree(self.slots[slot as usize % 64]);
            }
        }
        // The first slot that has no entry yet, and what serves it unless something starts there.
        let mut at = u64::from(first);
        let mut carry = edges[0].1;
        for group in edges.chunk_by(|a, b| slot_of(a.0) == slot_of(b.0)) {
            let slot = u64::from(slot_of(group[0].0));
            if at < slot {
                self.span(at, slot - 1, DIRECT | carry)?;
            }
            at = slot;
            if group.len() > 1 || group[0].0 << 32 != 0 {
                let entry = self.tree(carry, group)?;
                self.span(slot, slot, entry)?;
                at = slot + 1;
            }
            carry = group[group.len() - 1].1;
        }
        if at <= u64::from(last) {
            self.span(at, u64::from(last), DIRECT | carry)?;
        }
        if self.kept {
            self.flush(u64::from(first) >> 6)?;
        }
        self.level()
    }

    /// A change inside a /32: splices what its part has now into the ranges that are there.
    fn patch(&mut self, block: Prefix<u128>, edges: &[(u128, u32)]) -> Result<(), Full> {
        let slot = slot_of(block.first());
        let (word, old) = self.entry_at(slot);
        let parts = (part_of(block.first()), part_of(block.last()));
        let entry = self.splice(old, edges, parts)?;
        if entry == old {
            return Ok(());
        }
        self.kept = true;
        if let Some(word) = word.filter(|_| (old | entry) & DIRECT == 0) {
            self.set(Cell::Word(word), entry);
            return Ok(());
        }
        self.unpack(slot);
        self.slots[slot as usize % 64] = entry;
        self.flush(u64::from(slot) >> 6)?;
        self.level()
    }

    /// What a /26 has.
    fn page_entry(&self, slot: u32) -> u32 {
        let page = usize::from(self.reader.regions[TOPS].u16s()[slot as usize >> 16].load(Relaxed));
        self.words()[page * PAGE + (slot as usize >> 6) % PAGE].load(Relaxed)
    }

    /// What a /32 has, and where that stands, if its /26 has a node.
    fn entry_at(&self, slot: u32) -> (Option<usize>, u32) {
        let entry = self.page_entry(slot);
        if entry & DIRECT != 0 {
            return (None, entry);
        }
        let runs = self.reader.regions[HEAP].u64s()[entry as usize].load(Relaxed);
        let word = 2 * entry as usize + 1 + (runs << (63 - slot % 64)).count_ones() as usize;
        (Some(word), self.words()[word].load(Relaxed))
    }

    /// Takes over the slots of the /26 of this one.
    fn unpack(&mut self, slot: u32) {
        let entry = self.page_entry(slot);
        self.slots = [entry; 64];
        if entry & DIRECT != 0 {
            return;
        }
        let runs = self.reader.regions[HEAP].u64s()[entry as usize].load(Relaxed);
        let words = &self.reader.regions[HEAP].u32s()[2 * entry as usize + 1..];
        let mut count = 0;
        for (index, slot) in self.slots.iter_mut().enumerate() {
            count += usize::from(runs >> index & 1 == 1);
            *slot = words[count].load(Relaxed);
        }
    }

    /// Slots `from` to `to` have this entry.
    fn span(&mut self, from: u64, to: u64, entry: u32) -> Result<(), Full> {
        let mut from = from;
        while from <= to {
            if from.is_multiple_of(64) && to - from >= 63 {
                let end = (to + 1) >> 6;
                self.pages(from >> 6, end - 1, entry)?;
                from = end << 6;
                continue;
            }
            let stop = to.min(from | 63);
            let range = in_64(from)..=in_64(stop);
            self.slots[range].fill(entry);
            if stop % 64 == 63 && !self.kept {
                self.flush(stop >> 6)?;
            }
            from = stop + 1;
        }
        Ok(())
    }

    /// The slots at hand are those of this /26.
    fn flush(&mut self, index: u64) -> Result<(), Full> {
        let slots = self.slots;
        let starts = |slot: &usize| *slot == 0 || slots[*slot] != slots[slot - 1];
        let count = (0..64).filter(starts).count();
        if count == 1 && slots[0] & DIRECT != 0 {
            return self.pages(index, index, slots[0]);
        }
        let unit = self.take(node_units(count))?;
        self.tally.nodes += 1;
        let mut runs = 0u64;
        let words = &self.words()[2 * unit as usize + 2..];
        for (word, slot) in words.iter().zip((0..64).filter(starts)) {
            runs |= 1 << slot;
            word.store(slots[slot], Relaxed);
        }
        self.reader.regions[HEAP].u64s()[unit as usize].store(runs, Relaxed);
        self.pages(index, index, unit)
    }

    /// The /26s `from` to `to` have this entry.
    fn pages(&mut self, from: u64, to: u64, entry: u32) -> Result<(), Full> {
        const LAST: u64 = PAGE as u64 - 1;
        let mut from = from;
        while from <= to {
            let top = usize::try_from(from >> 10).expect("a /16");
            if from & LAST == 0 && to - from >= LAST {
                let page = self.uniform(entry)?;
                self.set_top(top, page);
                from += LAST + 1;
                continue;
            }
            let stop = to.min(from | LAST);
            let page = self.own_page(top)?;
            let base = from & LAST;
            for index in base..=stop & LAST {
                let word = page * PAGE + usize::try_from(index).expect("below 2^10");
                self.set_page_entry(word, entry);
            }
            if entry & DIRECT != 0 && self.settled.last() != Some(&top) {
                self.settled.push(top);
            }
            from = stop + 1;
        }
        Ok(())
    }

    /// The page of a /16, which is its own from now on.
    fn own_page(&mut self, top: usize) -> Result<usize, Full> {
        let page = usize::from(self.reader.regions[TOPS].u16s()[top].load(Relaxed));
        let entry = self.words()[page * PAGE].load(Relaxed);
        if self.uniform.get(&entry).is_none_or(|shared| usize::from(shared.page) != page) {
            return Ok(page);
        }
        let page = self.new_page(entry)?;
        self.set_top(top, page);
        Ok(usize::from(page))
    }

    /// The page that all /16s with this answer share.
    fn uniform(&mut self, entry: u32) -> Result<u16, Full> {
        if let Some(shared) = self.uniform.get(&entry) {
            return Ok(shared.page);
        }
        let page = self.new_page(entry)?;
        self.uniform.insert(entry, Uniform { page, users: 0 });
        Ok(page)
    }

    fn new_page(&mut self, entry: u32) -> Result<u16, Full> {
        let unit = self.take(PAGE_UNITS)?;
        self.tally.pages += 1;
        for word in &self.words()[2 * unit as usize..][..PAGE] {
            word.store(entry, Relaxed);
        }
        Ok(u16::try_from(unit / PAGE_UNITS).expect("the heap has at most 2^16 pages"))
    }

    fn set_top(&mut self, top: usize, page: u16) {
        let old = self.reader.regions[TOPS].u16s()[top].load(Relaxed);
        if old == page {
            return;
        }
        self.set(Cell::Top(top), u32::from(page));
        let mut shared = false;
        for uniform in self.uniform.values_mut() {
            if uniform.page == page {
                uniform.users += 1;
            }
            if uniform.page == old {
                uniform.users -= 1;
                shared = true;
            }
        }
        if !shared {
            let base = usize::from(old) * PAGE;
            for word in base..base + PAGE {
                let entry = self.words()[word].load(Relaxed);
                self.drop_node(entry, true);
            }
            self.drop_page(old);
        }
    }

    fn drop_page(&mut self, page: u16) {
        self.tally.pages -= 1;
        self.unlink(u32::from(page) * PAGE_UNITS, PAGE_UNITS);
    }

    fn set_page_entry(&mut self, word: usize, entry: u32) {
        let old = self.words()[word].load(Relaxed);
        if old != entry {
            self.set(Cell::Word(word), entry);
            self.drop_node(old, !self.kept);
        }
    }

    /// Pages whose entries have become one answer are shared ones again.
    fn level(&mut self) -> Result<(), Full> {
        while let Some(top) = self.settled.pop() {
            let page = usize::from(self.reader.regions[TOPS].u16s()[top].load(Relaxed));
            let words = &self.words()[page * PAGE..][..PAGE];
            let entry = words[0].load(Relaxed);
            if entry & DIRECT != 0 && words.iter().all(|word| word.load(Relaxed) == entry) {
                let page = self.uniform(entry)?;
                self.set_top(top, page);
            }
        }
        Ok(())
    }

    /// Shared pages that no /16 has any more.
    fn drop_unused(&mut self) {
        while let Some((&entry, &Uniform { page, .. })) =
            self.uniform.iter().find(|(_, shared)| shared.users == 0)
        {
            self.uniform.remove(&entry);
            self.drop_page(page);
        }
    }

    fn set(&mut self, cell: Cell, value: u32) {
        let old = self.swap(cell, value);
        self.undo.push((cell, old));
    }

    fn swap(&self, cell: Cell, value: u32) -> u32 {
        // Release: pairs with the loads of `View`; what the entry leads to was stored before.
        match cell {
            Cell::Top(index) => {
                let page = u16::try_from(value).expect("the number of a page");
                let cell = &self.reader.regions[TOPS].u16s()[index];
                let old = cell.load(Relaxed);
                cell.store(page, Release);
                u32::from(old)
            }
            Cell::Word(index) => {
                let cell = &self.words()[index];
                let old = cell.load(Relaxed);
                cell.store(value, Release);
                old
            }
        }
    }

    /// Unlinks what a page entry leads to: the node, and its trees unless another node has them.
    fn drop_node(&mut self, entry: u32, trees: bool) {
        if entry & DIRECT != 0 {
            return;
        }
        let runs = self.reader.regions[HEAP].u64s()[entry as usize].load(Relaxed);
        let count = runs.count_ones() as usize;
        let first = 2 * entry as usize + 2;
        for word in first..first + if trees { count } else { 0 } {
            let tree = self.words()[word].load(Relaxed);
            self.drop_tree(tree);
        }
        self.tally.nodes -= 1;
        self.unlink(entry, node_units(count));
    }

    /// Undoes a step that found no space.
    fn roll_back(&mut self, before: Tally, grace: &mut dyn Grace) {
        while let Some((cell, old)) = self.undo.pop() {
            self.swap(cell, old);
        }
        for shared in self.uniform.values_mut() {
            shared.users = 0;
        }
        for entry in &self.reader.regions[TOPS].u16s()[..TOP] {
            let page = entry.load(Relaxed);
            for shared in self.uniform.values_mut() {
                shared.users += u32::from(shared.page == page);
            }
        }
        self.uniform.retain(|_, shared| shared.users > 0);
        self.settled.clear();
        self.tally = before;
        // Readers may have seen some of it.
        self.stale = mem::take(&mut self.fresh);
        self.retire(grace);
    }

    /// What was unlinked waits for its readers.
    fn retire(&mut self, grace: &mut dyn Grace) {
        if !self.stale.is_empty() {
            let epoch = grace.retire();
            self.stale.drain(..).for_each(|block| self.waiting.push(epoch, block));
        }
        self.fresh.clear();
        self.undo.clear();
    }

    fn reclaim(&mut self, grace: &dyn Grace) {
        let mut passed = None;
        while let Some(block) = self.waiting.pop(grace, &mut passed) {
            self.give(block);
        }
    }
}

/// Place in a node of a /32.
#[allow(clippy::cast_possible_truncation, reason = "below 64")]
fn in_64(slot: u64) -> usize {
    (slot % 64) as usize
}

fn node_units(runs: usize) -> u32 {
    u32::try_from(1 + runs.div_ceil(2)).expect("at most 64 runs")
}

/// The blocks that `changes` touch, none inside another, each at least a /48.
fn touched(changes: &[Change<u128>]) -> Vec<Prefix<u128>> {
    let changed = changes.iter().filter(|change| change.old != change.new);
    let mut blocks: Vec<_> = changed
        .map(|change| Prefix::masked(change.prefix.addr(), change.prefix.len().min(48)))
        .collect();
    blocks.sort_unstable();
    blocks.dedup_by(|next, kept| kept.covers(*next));
    if blocks.len() <= MOST_PARTS {
        return blocks;
    }
    let by_slot = blocks.chunk_by(|a, b| a.len().min(b.len()) > 32 && in_slot(a) == in_slot(b));
    let mut wider = Vec::with_capacity(blocks.len());
    for parts in by_slot {
        match parts {
            [first, ..] if parts.len() > MOST_PARTS => {
                wider.push(Prefix::masked(first.addr(), 32));
            }
            parts => wider.extend(parts),
        }
    }
    wider
}

fn in_slot(block: &Prefix<u128>) -> u32 {
    slot_of(block.addr())
}

impl<W: Width> Table<u128> for Writer<W> {
    fn apply(
        &mut self,
        changes: &[Change<u128>],
        routes: &dyn Routes<u128>,
        grace: &mut dyn Grace,
    ) -> Result<(), UpdateError> {
        let greatest = Change::greatest_hop(changes, DIRECT - 1)?;
        let prefixes = Change::prefixes_after(changes, self.tally.prefixes);
        // Results too narrow; or wide ones in a table that no longer holds any.
        let emptied = W::DEEP == DIRECT && prefixes == 0 && self.tally.prefixes > 0;
        if greatest >= W::DEEP || emptied {
            return Err(UpdateError::Rebuild);
        }
        self.reclaim(grace);
        let blocks = touched(changes);
        match blocks[..] {
            // One store, for which all addresses that nothing longer covers look.
            [Prefix::ALL] if changes.iter().all(|change| change.prefix.len() == 0) => {
                let hop = changes.last().map_or(0, |change| change.new.0);
                // Relaxed: it leads nowhere.
                self.reader.head.word(DEFAULT).store(u64::from(hop), Relaxed);
            }
            // With others in one step an address could see one change and not the other.
            [Prefix::ALL] => return Err(UpdateError::Rebuild),
            _ => {
                let before = self.tally;
                if blocks.iter().any(|&block| self.renew(block, routes).is_err()) {
                    self.roll_back(before, grace);
                    return Err(UpdateError::Rebuild);
                }
                self.drop_unused();
                self.retire(grace);
                self.reclaim(grace);
            }
        }
        self.tally.prefixes = prefixes;
        self.count();
        Ok(())
    }

    fn publish(&mut self) -> Arc<dyn Lookup<u128>> {
        self.reader.clone()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::lookup::NoReaders;
    use crate::mem::Heap as Memory;
    use crate::next_hop_id::NextHopId;
    use crate::oracle::Oracle;
    use crate::routes::RouteStore;
    use crate::testing::{HeldGrace, Rng, Shape, probes, table};
    use alloc::vec;

    pub(super) fn built<W: Width>(routes: &RouteStore<u128>, simd: Simd) -> Writer<W> {
        build(routes, &routes.stats(), &mut Memory, 1 << 14, simd).unwrap().unwrap()
    }

    fn change(routes: &mut RouteStore<u128>, prefix: Prefix<u128>, new: NextHopId) -> Change<u128> {
        let old = routes.remove(prefix).unwrap_or_default();
        if !new.is_none() {
            routes.insert(prefix, new);
        }
        Change { prefix, old, new }
    }

    pub(super) fn verify<W: Width>(writer: &Writer<W>, routes: &RouteStore<u128>, when: &str) {
        let oracle: Oracle<u128> = routes.iter().map(|(p, &hop)| (p, hop)).collect();
        let addrs: Vec<u128> = routes.iter().flat_map(|(prefix, _)| probes(prefix)).collect();
        let mut out = vec![NextHopId::NONE; addrs.len()];
        writer.reader.lookup_batch(&addrs, &mut out);
        for (&addr, &batched) in addrs.iter().zip(&out) {
            let want = oracle.lookup(addr);
            assert_eq!((writer.reader.lookup(addr), batched), (want, want), "{when}: {addr:#x}");
        }
    }

    #[test]
    fn every_level_of_the_cpu_gives_the_same_answers() {
        let routes: RouteStore<u128> =
            table::<u128>(Shape::Hostile, 3000, 100, 3).into_iter().collect();
        for simd in Simd::available() {
            verify(&built::<Narrow>(&routes, simd), &routes, simd.name());
            verify(&built::<Wide>(&routes, simd), &routes, simd.name());
        }
    }

    #[test]
    fn the_default_route_is_one_store() {
        let all = table::<u128>(Shape::Internet, 2000, 30, 5);
        let mut routes: RouteStore<u128> = all.iter().copied().collect();
        let mut writer = built::<Narrow>(&routes, Simd::detect());
        let before = writer.tally;
        let mut grace = HeldGrace::default();
        let mut old = NextHopId::NONE;
        for new in [NextHopId(7), NextHopId(8), NextHopId::NONE] {
            let change = Change { prefix: Prefix::ALL, old, new };
            if new.is_none() {
                routes.remove(Prefix::ALL);
            } else {
                routes.insert(Prefix::ALL, new);
            }
            writer.apply(&[change], &routes, &mut grace).unwrap();
            verify(&writer, &routes, "default route");
            assert_eq!(writer.reader.lookup(u128::MAX), new);
            assert!(writer.waiting.is_empty());
            old = new;
        }
        assert_eq!(writer.tally, before);
        // Beside another change an address could see one without the other.
        let (prefix, hop) = all[0];
        let changes = [
            Change { prefix: Prefix::ALL, old, new: NextHopId(9) },
            Change { prefix, old: hop, new: NextHopId::NONE },
        ];
        assert_eq!(writer.apply(&changes, &routes, &mut grace), Err(UpdateError::Rebuild));
    }

    #[test]
    fn results_grow_by_building_again() {
        let mut routes = RouteStore::<u128>::new();
        let prefix: Prefix<u128> = "2001:db8:1::/48".parse().unwrap();
        let long: Prefix<u128> = "2001:db8:1::/128".parse().unwrap();
        let mut writer = built::<Narrow>(&routes, Simd::detect());
        let mut set = |writer: &mut Writer<Narrow>, prefix, hop| {
            let new = NextHopId(hop);
            let old = routes.insert(prefix, new).unwrap_or_default();
            let result = writer.apply(&[Change { prefix, old, new }], &routes, &mut NoReaders);
            (result, routes.clone())
        };
        assert_eq!(set(&mut writer, prefix, 32_767).0, Ok(()));
        assert_eq!(set(&mut writer, prefix, 32_768).0, Err(UpdateError::Rebuild));
        assert_eq!(set(&mut writer, prefix, 1).0, Ok(()));
        assert_eq!(set(&mut writer, long, 32_768).0, Err(UpdateError::Rebuild));
        let (_, mut routes) = set(&mut writer, prefix, 32_768);
        let mut table = make(&routes, &mut Memory).unwrap();
        assert_eq!(table.publish().lookup(long.addr()), NextHopId(32_768));
        let emptied: Vec<_> = routes
            .iter()
            .map(|(prefix, &old)| Change { prefix, old, new: NextHopId::NONE })
            .collect();
        routes.clear();
        assert_eq!(table.apply(&emptied, &routes, &mut NoReaders), Err(UpdateError::Rebuild));
    }

    #[test]
    fn more_tails_than_narrow_results_can_name() {
        let hosts = |count: u128| -> RouteStore<u128> {
            let host = |index: u128| Prefix::host(0x2001 << 112 | index << 80 | 1);
            (0..count).map(|index| (host(index), NextHopId(3))).collect()
        };
        let routes = hosts(32_768);
        let narrow =
            build::<Narrow>(&routes, &routes.stats(), &mut Memory, NARROW_TAILS, Simd::detect());
        assert_eq!(narrow.unwrap().unwrap().tally.tails, 32_768);
        let routes = hosts(32_769);
        let lookup = make(&routes, &mut Memory).unwrap().publish();
        let mut bits = 0;
        lookup.stats(&mut |name, count| bits += if name == "result_bits" { count } else { 0 });
        assert_eq!(bits, 32);
        assert_eq!(lookup.lookup(0x2001 << 112 | 32_768 << 80 | 1), NextHopId(3));
    }

    #[test]
    fn a_step_without_room_changes_nothing() {
        let all = table::<u128>(Shape::Hostile, 3000, 100, 8);
        let mut routes: RouteStore<u128> = all.iter().copied().collect();
        let mut writer = built::<Narrow>(&routes, Simd::detect());
        let mut rng = Rng::new(8);
        let mut grace = HeldGrace::default();
        let mut full = 0;
        for round in 0..200 {
            let (before, tops) = (writer.tally, writer.tops());
            let drawn: Vec<_> = (0..40)
                .map(|_| (all[rng.below(all.len())].0, NextHopId(u32::from(rng.chance(50)))))
                .filter(|(prefix, _)| prefix.len() > 0)
                .collect();
            let changes: Vec<_> =
                drawn.into_iter().map(|(prefix, new)| change(&mut routes, prefix, new)).collect();
            match writer.apply(&changes, &routes, &mut grace) {
                Ok(()) if round % 25 > 0 => {}
                Ok(()) => verify(&writer, &routes, "a step"),
                error => {
                    full += 1;
                    assert_eq!(error, Err(UpdateError::Rebuild));
                    assert_eq!((writer.tally, writer.tops()), (before, tops));
                    for done in changes.iter().rev() {
                        change(&mut routes, done.prefix, done.old);
                    }
                    verify(&writer, &routes, "no room");
                    grace.release();
                }
            }
        }
        assert!(full > 1, "{full} steps without room");
        grace.release();
        writer.reclaim(&grace);
        let rebuilt = built::<Narrow>(&routes, Simd::detect());
        assert_eq!(writer.tally, rebuilt.tally);
        // Nothing was lost on the way: all that is not in use is free.
        let mut free = 0;
        for size in (0..=18).rev() {
            while writer.space.take(1 << size).is_some() {
                free += 1 << size;
            }
        }
        let units = writer.reader.regions[HEAP].u64s().len();
        assert_eq!(writer.tally.units + free, units);
    }

    impl<W: Width> Writer<W> {
        /// The page of each /16, shared ones by their content.
        fn tops(&self) -> Vec<u16> {
            self.reader.regions[TOPS].u16s()[..TOP].iter().map(|page| page.load(Relaxed)).collect()
        }
    }
}
