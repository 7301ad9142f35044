//! The writer of bitmap tries: makes what a change touches aside, then publishes it entry by entry.
//!
//! A step goes down from the direct table to the chunks whose slots it changes, with only the routes of
//! the changed prefix, and up again: a chunk whose runs are where they were stays, and gets other entries;
//! one with other runs is written anew, which is a change of one entry of the chunk above it, or an edge
//! moved there as well. All of it is only noted at first, so that a step that finds no room has changed
//! nothing. The trie depends on its routes alone, not on the order of changes.

mod cut;

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::mem;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{Relaxed, Release};

use super::{
    CHUNK, CHUNK_WORDS, CHUNKS, Counts, DEFAULT, DIRECT, ENTRIES, GLOBAL, HEAP, LAST_ENTRY,
    LAST_SLOT, LAYOUT, NAMES, PREFIXES, Reader, STRIDE, TABLE, TOP, TOPS, WAITING, start, words_of,
};
use crate::addr::{Addr, Prefix};
use crate::error::UpdateError;
use crate::intervals::{Specific, sweep};
use crate::lookup::{Change, Grace, Lookup, NoReaders, Routes, Table};
use crate::mem::Memory;
use crate::simd::ones;
use crate::toolkit::line_space::LineSpace;
use crate::toolkit::retired::Retired;
use crate::toolkit::runs::{Runs, SLOTS, spliced};
use cut::{Content, Pieces, cut};

/// Extents for growth beside a quarter of what is in use: 16 KiB.
const SLACK_WORDS: usize = 1 << 11;

/// A chunk: where it starts, and its words.
type Block = (u32, u32);

/// What is changed under readers.
#[derive(Clone, Copy)]
enum Cell {
    Direct(usize),
    Heap(usize),
}

struct Writer {
    reader: Arc<Reader>,
    space: LineSpace,
    waiting: Retired<Block>,
    prefixes: usize,
    chunks: usize,
    /// Words of chunks that readers may come to, and of those that they may still hold.
    words: usize,
    waiting_words: usize,
    /// Stores of the step at hand, blocks taken, and blocks to unlink.
    stores: Vec<(Cell, u32)>,
    fresh: Vec<Block>,
    stale: Vec<Block>,
    /// Kept for their memory.
    parts: Vec<Prefix<u128>>,
    pieces: Vec<(u128, u32)>,
}

pub(super) fn make(
    routes: &dyn Routes<u128>,
    memory: &mut dyn Memory,
) -> Result<Box<dyn Table<u128>>, UpdateError> {
    Ok(Box::new(build(routes, memory)?))
}

fn build(routes: &dyn Routes<u128>, memory: &mut dyn Memory) -> Result<Writer, UpdateError> {
    let mut pieces = Vec::new();
    answers(Prefix::ALL, routes, &mut pieces);
    let mut needed = 0;
    entries(Prefix::ALL, &pieces, &mut |_, bit, content| {
        needed += content.words(bit);
        Some(())
    });
    // The rule that chunks keep to lines costs at most a word in eight.
    let needed = needed * 9 / 8;
    let words = (needed + needed / 4 + SLACK_WORDS).next_power_of_two();
    if words > CHUNK as usize {
        let (max, got) = (u64::from(CHUNK), words as u64);
        return Err(UpdateError::Limit { what: "words of chunks", max, got });
    }
    let heap = memory.region(NAMES[HEAP], words * 8)?;
    let direct = memory.region(NAMES[DIRECT], ENTRIES * 4)?;
    let head = Counts::new(memory, LAYOUT)?;
    // Perhaps the region is larger than what was asked for: a map of a fixed size.
    let words = 1 << heap.u64s().len().ilog2().min(CHUNK.ilog2());
    let reader = Reader::new(head, direct, heap).expect("regions of the requested sizes");
    let mut writer = Writer {
        reader: Arc::new(reader),
        space: LineSpace::new(words, 0),
        waiting: Retired::default(),
        prefixes: routes.prefixes(),
        chunks: 0,
        words: 0,
        waiting_words: 0,
        stores: Vec::new(),
        fresh: Vec::new(),
        stale: Vec::new(),
        parts: Vec::new(),
        pieces: Vec::new(),
    };
    if writer.renew(Prefix::ALL, &pieces).is_none() {
        // Cannot be: the heap was measured for these routes.
        return Err(UpdateError::Memory { name: NAMES[HEAP], bytes: words * 8 });
    }
    // ::/0 covers a /1, and nothing else does.
    let default = routes.parent(Prefix::masked(0, 1)).map_or(0, |(_, hop)| hop.0);
    writer.stores.push((Cell::Direct(DEFAULT), default));
    writer.publish_staged(&mut NoReaders);
    (writer.stores, writer.fresh) = (Vec::new(), Vec::new());
    writer.count();
    Ok(writer)
}

/// The answers inside a block: where each starts, and the next hop from there on.
fn answers(block: Prefix<u128>, routes: &dyn Routes<u128>, pieces: &mut Vec<(u128, u32)>) {
    pieces.clear();
    sweep(block, &Specific(routes), &mut |start, hop| pieces.push((start, hop.0)));
}

/// Calls `visit` for each entry of the direct table that is inside `block`: its index, the bit behind it,
/// and what it is to hold by the pieces of the block. Ends when `visit` gives `None`.
fn entries(
    block: Prefix<u128>,
    pieces: &Pieces,
    visit: &mut dyn FnMut(usize, u8, Content<'_>) -> Option<()>,
) -> Option<()> {
    let (first, last) = (block.first(), block.last());
    if block.len() > TOP {
        return table((first.bits(TOP, TABLE), last.bits(TOP, TABLE)), 0, pieces, visit);
    }
    cut(0, TOP, (first.bits(0, TOP), last.bits(0, TOP)), 0, pieces, &mut |from, to, content| {
        (from..=to).try_for_each(|top| {
            if top == GLOBAL {
                let (carry, pieces) = content.parts();
                return table((0, LAST_ENTRY), carry, pieces, visit);
            }
            visit(TOPS + top as usize, TOP, content)
        })
    })
}

/// Fills the entries of 2000::/3 alone, the first to the last; `carry` is the next hop before the first
/// piece.
fn table(
    range: (u32, u32),
    carry: u32,
    pieces: &Pieces,
    visit: &mut dyn FnMut(usize, u8, Content<'_>) -> Option<()>,
) -> Option<()> {
    cut(TOP, TABLE, range, carry, pieces, &mut |from, to, content| {
        (from..=to).try_for_each(|index| visit(index as usize, TOP + TABLE, content))
    })
}

impl Writer {
    fn words(&self) -> &[AtomicU32] {
        self.reader.regions[HEAP].u32s()
    }

    fn direct(&self, index: usize) -> u32 {
        self.reader.regions[DIRECT].u32s()[index].load(Relaxed)
    }

    /// Start of a chunk, and its runs; `None` for a next hop.
    fn chunk(&self, entry: u32) -> Option<(u32, u64)> {
        let place = entry & !CHUNK;
        let runs = || self.reader.regions[HEAP].u64s()[place as usize].load(Relaxed);
        (entry & CHUNK != 0).then(|| (place, runs()))
    }

    /// The cells of the entries of a chunk of so many runs.
    fn cells(place: u32, runs: u64) -> core::ops::Range<usize> {
        let first = 2 * place as usize + 2;
        first..first + runs.count_ones() as usize
    }

    /// What the slots below an entry hold.
    fn runs(&self, entry: u32) -> Runs {
        let mut runs = Runs::one(entry);
        if let Some((place, bits)) = self.chunk(entry) {
            let cells = &self.words()[Self::cells(place, bits)];
            runs.bits = bits;
            runs.count = cells.len();
            for (to, cell) in runs.results.iter_mut().zip(cells) {
                *to = cell.load(Relaxed);
            }
        }
        runs
    }

    /// The entry for a chunk of these runs that takes the place of `old`, which is unlinked if it does
    /// not stay. `None` when there is no room.
    fn finish(&mut self, old: u32, runs: &Runs) -> Option<u32> {
        let old_chunk = self.chunk(old);
        if let Some((place, bits)) = old_chunk.filter(|&(_, bits)| bits == runs.bits) {
            for (cell, &entry) in Self::cells(place, bits).zip(runs.as_slice()) {
                if self.words()[cell].load(Relaxed) != entry {
                    self.stores.push((Cell::Heap(cell), entry));
                }
            }
            return Some(old);
        }
        let mut entry = runs.results[0];
        if runs.count > 1 {
            let size = size_of_chunk(runs.bits);
            let place = self.space.take(size as usize)?;
            self.fresh.push((place, size));
            self.reader.regions[HEAP].u64s()[place as usize].store(runs.bits, Relaxed);
            let cells = &self.words()[Self::cells(place, runs.bits)];
            for (cell, &entry) in cells.iter().zip(runs.as_slice()) {
                cell.store(entry, Relaxed);
            }
            entry = CHUNK | place;
        }
        self.stale.extend(old_chunk.map(|(place, bits)| (place, size_of_chunk(bits))));
        Some(entry)
    }

    /// Unlinks a chunk and all below it.
    fn unlink(&mut self, entry: u32) {
        if let Some((place, runs)) = self.chunk(entry) {
            self.stale.push((place, size_of_chunk(runs)));
            for cell in Self::cells(place, runs) {
                let below = self.words()[cell].load(Relaxed);
                self.unlink(below);
            }
        }
    }

    /// The entry that takes the place of `old` where bits up to `bit` are spent. `None` when there is no
    /// room.
    fn replace(&mut self, old: u32, bit: u8, content: Content<'_>) -> Option<u32> {
        match content {
            Content::Hop(hop) => {
                self.unlink(old);
                Some(hop)
            }
            Content::Deep(carry, pieces) => {
                let fresh = self.fill(&self.runs(old), bit, (0, LAST_SLOT), carry, pieces)?;
                self.finish(old, &fresh)
            }
        }
    }

    /// The runs of slots that start at `bit` with those in `range` from the pieces, and the others as
    /// they were. `None` when there is no room.
    fn fill(
        &mut self,
        old: &Runs,
        bit: u8,
        range: (u32, u32),
        carry: u32,
        pieces: &Pieces,
    ) -> Option<Runs> {
        let (mut new, mut count) = ([(0, 0); SLOTS], 0);
        cut(bit, STRIDE, range, carry, pieces, &mut |from, to, content| {
            // What leads to a chunk is a run of one slot.
            let inside = u64::MAX >> (63 - to) & u64::MAX << from;
            new[count] = (from, self.replace(old.at(from), bit + STRIDE, content)?);
            count += 1;
            for slot in ones(old.bits & inside & !(1 << from)) {
                self.unlink(old.at(slot));
            }
            Some(())
        })?;
        Some(spliced(old, range.0, range.1, &new[..count], CHUNK))
    }

    /// Makes the entries of the direct table anew that are in a block.
    fn renew(&mut self, block: Prefix<u128>, pieces: &Pieces) -> Option<()> {
        entries(block, pieces, &mut |index, bit, content| {
            let old = self.direct(index);
            let new = self.replace(old, bit, content)?;
            if new != old {
                self.stores.push((Cell::Direct(index), new));
            }
            Some(())
        })
    }

    /// The entry that takes the place of `old`, of which `parts` are changed: each longer than `bit`, in
    /// order, none inside another. `None` when there is no room.
    fn touch(
        &mut self,
        old: u32,
        bit: u8,
        parts: &[Prefix<u128>],
        routes: &dyn Routes<u128>,
    ) -> Option<u32> {
        let slot_of = |part: &Prefix<u128>| part.addr().bits(bit, STRIDE);
        let below = bit + STRIDE;
        let (Some(first), Some(last)) = (parts.first(), parts.last()) else { return Some(old) };
        let slot = slot_of(first);
        if first.len() > below && slot == slot_of(last) {
            let (cell, entry) = self.slot(old, slot);
            let new = self.touch(entry, below, parts, routes)?;
            if new == entry {
                return Some(old);
            }
            // What leads to a chunk is a run alone, so the runs stay.
            if let Some(cell) = cell.filter(|_| entry & new & CHUNK != 0) {
                self.stores.push((Cell::Heap(cell), new));
                return Some(old);
            }
            let fresh = spliced(&self.runs(old), slot, slot, &[(slot, new)], CHUNK);
            return self.finish(old, &fresh);
        }
        let mut runs = self.runs(old);
        for parts in parts.chunk_by(|a, b| slot_of(a) == slot_of(b)) {
            let (first, slot) = (parts[0], slot_of(&parts[0]));
            if first.len() > below {
                let new = self.touch(runs.at(slot), below, parts, routes)?;
                runs = spliced(&runs, slot, slot, &[(slot, new)], CHUNK);
                continue;
            }
            let mut pieces = mem::take(&mut self.pieces);
            answers(first, routes, &mut pieces);
            // Of the last chunk the bits past the end of an address count as well.
            let end = slot + (1 << (below - first.len())) - 1;
            let filled = self.fill(&runs, bit, (slot, end), 0, &pieces);
            self.pieces = pieces;
            runs = filled?;
        }
        self.finish(old, &runs)
    }

    /// The entry of a slot below `entry`, and where it stands if that leads to a chunk.
    fn slot(&self, entry: u32, slot: u32) -> (Option<usize>, u32) {
        let Some((place, runs)) = self.chunk(entry) else { return (None, entry) };
        let cell = 2 * place as usize + 1 + (runs << (63 - slot)).count_ones() as usize;
        (Some(cell), self.words()[cell].load(Relaxed))
    }

    /// Makes all parts of a step, but publishes nothing. `None` when there is no room.
    fn stage(&mut self, parts: &[Prefix<u128>], routes: &dyn Routes<u128>) -> Option<()> {
        let mut rest = parts;
        while let [first, ..] = *rest {
            let (index, bit) = start(first.addr());
            if first.len() <= bit {
                let mut pieces = mem::take(&mut self.pieces);
                answers(first, routes, &mut pieces);
                let renewed = self.renew(first, &pieces);
                self.pieces = pieces;
                renewed?;
                rest = &rest[1..];
                continue;
            }
            let inside = rest.iter().take_while(|part| start(part.addr()).0 == index).count();
            let (these, after) = rest.split_at(inside);
            let old = self.direct(index);
            let new = self.touch(old, bit, these, routes)?;
            if new != old {
                self.stores.push((Cell::Direct(index), new));
            }
            rest = after;
        }
        Some(())
    }

    /// Lets readers see the step.
    fn publish_staged(&mut self, grace: &mut dyn Grace) {
        for (cell, entry) in self.stores.drain(..) {
            let (region, index) = match cell {
                Cell::Direct(index) => (DIRECT, index),
                Cell::Heap(index) => (HEAP, index),
            };
            // Release: pairs with the loads of `View`; what the entry leads to was stored before.
            self.reader.regions[region].u32s()[index].store(entry, Release);
        }
        self.chunks += self.fresh.len();
        self.words += self.fresh.drain(..).map(|(_, words)| words as usize).sum::<usize>();
        if self.stale.is_empty() {
            return;
        }
        let epoch = grace.retire();
        for block in self.stale.drain(..) {
            self.chunks -= 1;
            self.words -= block.1 as usize;
            self.waiting_words += block.1 as usize;
            self.waiting.push(epoch, block);
        }
    }

    /// Forgets a step that found no room. No reader has seen any of it.
    fn forget(&mut self) {
        self.fresh.drain(..).for_each(|(place, words)| self.space.give(place, words as usize));
        self.stores.clear();
        self.stale.clear();
    }

    /// Frees what has passed its grace period.
    fn reclaim(&mut self, grace: &dyn Grace) {
        let mut passed = None;
        while let Some((place, words)) = self.waiting.pop(grace, &mut passed) {
            self.waiting_words -= words as usize;
            self.space.give(place, words as usize);
        }
    }

    fn count(&self) {
        let head = &self.reader.head;
        head.set(PREFIXES, self.prefixes);
        head.set(CHUNKS, self.chunks);
        head.set(CHUNK_WORDS, self.words);
        head.set(WAITING, self.waiting_words * 8);
    }
}

/// Words of a chunk of these runs.
#[allow(clippy::cast_possible_truncation, reason = "at most 33")]
fn size_of_chunk(runs: u64) -> u32 {
    words_of(runs.count_ones() as usize) as u32
}

/// The prefixes that changed, none inside another.
fn touched(changes: &[Change<u128>], parts: &mut Vec<Prefix<u128>>) {
    parts.clear();
    parts.extend(changes.iter().filter(|change| change.old != change.new).map(|c| c.prefix));
    if parts.len() > 1 {
        parts.sort_unstable();
        parts.dedup_by(|next, kept| kept.covers(*next));
    }
}

impl Table<u128> for Writer {
    fn apply(
        &mut self,
        changes: &[Change<u128>],
        routes: &dyn Routes<u128>,
        grace: &mut dyn Grace,
    ) -> Result<(), UpdateError> {
        Change::greatest_hop(changes, CHUNK - 1)?;
        let prefixes = Change::prefixes_after(changes, self.prefixes);
        self.reclaim(grace);
        let mut parts = mem::take(&mut self.parts);
        touched(changes, &mut parts);
        let staged = match parts[..] {
            // One store, for which all addresses that nothing longer covers look.
            [Prefix::ALL] if changes.iter().all(|change| change.prefix.len() == 0) => {
                let hop = changes.last().map_or(0, |change| change.new.0);
                self.stores.push((Cell::Direct(DEFAULT), hop));
                Some(())
            }
            // With others in one step an address could see one change and not the other.
            [Prefix::ALL] => None,
            _ => self.stage(&parts, routes),
        };
        self.parts = parts;
        if staged.is_none() {
            self.forget();
            return Err(UpdateError::Rebuild);
        }
        self.publish_staged(grace);
        self.reclaim(grace);
        self.prefixes = prefixes;
        self.count();
        Ok(())
    }

    fn publish(&mut self) -> Arc<dyn Lookup<u128>> {
        self.reader.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NextHopId;
    use crate::mem::{Heap, Region};
    use crate::routes::RouteStore;
    use crate::testing::{HeldGrace, Rng, Shape, set, table};

    fn prefix(text: &str) -> Prefix<u128> {
        text.parse().unwrap()
    }

    /// All that readers see but the head.
    fn seen(writer: &Writer) -> Vec<Vec<u32>> {
        let words = |region: &Region| region.u32s().iter().map(|word| word.load(Relaxed)).collect();
        writer.reader.regions[1..].iter().map(words).collect()
    }

    #[test]
    fn what_moves_no_edge_is_a_store() {
        let mut routes: RouteStore<u128> = [
            (prefix("2001:db8:1::/48"), NextHopId(1)),
            (prefix("2001:db8:2::/48"), NextHopId(2)),
            (prefix("2001:db8:2:8000::/49"), NextHopId(3)),
        ]
        .into_iter()
        .collect();
        let mut writer = build(&routes, &mut Heap).unwrap();
        let mut grace = HeldGrace::default();
        let words = writer.words;
        for (at, hop) in
            [("2001:db8:1::/48", 9), ("2001:db8:2::/48", 8), ("::/0", 7), ("2001:db8:1::/48", 3)]
        {
            let before = seen(&writer);
            let change = set(&mut routes, prefix(at), NextHopId(hop));
            writer.apply(&[change], &routes, &mut grace).unwrap();
            assert!(writer.waiting.is_empty() && writer.words == words, "{at}");
            let changed = before.iter().flatten().zip(seen(&writer).into_iter().flatten());
            assert_eq!(changed.filter(|(before, now)| **before != *now).count(), 1, "{at}");
            assert_eq!(writer.reader.lookup(prefix(at).first()), NextHopId(hop));
        }
        // An edge less: the chunk of the /45 is another, and the one above it leads there.
        let change = set(&mut routes, prefix("2001:db8:2:8000::/49"), NextHopId(8));
        writer.apply(&[change], &routes, &mut grace).unwrap();
        assert!(!writer.waiting.is_empty() && writer.words < words);
        // With others in one step an address could see one and not the other.
        let changes = [
            set(&mut routes, Prefix::ALL, NextHopId(1)),
            set(&mut routes, prefix("2001:db8:1::/48"), NextHopId::NONE),
        ];
        assert_eq!(writer.apply(&changes, &routes, &mut grace), Err(UpdateError::Rebuild));
    }

    #[test]
    fn a_step_without_room_changes_nothing_and_nothing_is_lost() {
        let all = table::<u128>(Shape::Hostile, 3000, 100, 8);
        let mut routes: RouteStore<u128> = all.iter().copied().collect();
        let mut writer = build(&routes, &mut Heap).unwrap();
        let mut rng = Rng::new(8);
        let mut grace = HeldGrace::default();
        let mut full = 0;
        for _ in 0..300 {
            let tally = (writer.chunks, writer.words, writer.waiting_words);
            let mut change = || {
                let (prefix, _) = all[1 + rng.below(all.len() - 1)];
                set(&mut routes, prefix, NextHopId(u32::from(rng.chance(50))))
            };
            let changes: Vec<_> = (0..40).map(|_| change()).collect();
            let before = seen(&writer);
            match writer.apply(&changes, &routes, &mut grace) {
                Ok(()) => {}
                error => {
                    full += 1;
                    assert_eq!(error, Err(UpdateError::Rebuild));
                    assert_eq!((writer.chunks, writer.words, writer.waiting_words), tally);
                    let direct = |seen: &[Vec<u32>]| seen[0].clone();
                    assert!(direct(&before) == direct(&seen(&writer)));
                    for done in changes.iter().rev() {
                        set(&mut routes, done.prefix, done.old);
                    }
                    grace.release();
                }
            }
        }
        assert!(full > 1, "{full} steps without room");
        grace.release();
        writer.reclaim(&grace);
        let rebuilt = build(&routes, &mut Heap).unwrap();
        assert_eq!((writer.chunks, writer.words), (rebuilt.chunks, rebuilt.words));
        assert_eq!(writer.waiting_words, 0);
        // All that is not in use is free: withdrawn, the heap is whole again.
        let changes: Vec<_> =
            all.iter().map(|&(prefix, _)| set(&mut routes, prefix, NextHopId::NONE)).collect();
        let changes: Vec<_> =
            changes.into_iter().filter(|change| change.prefix.len() > 0).collect();
        writer.apply(&changes, &routes, &mut NoReaders).unwrap();
        let whole = writer.reader.regions[HEAP].u64s().len();
        assert_eq!((writer.chunks, writer.words, writer.space.take(whole)), (0, 0, Some(0)));
    }

    /// A map of the kernel may be larger than requested; all of it is used.
    #[test]
    fn a_larger_region_is_room_to_grow() {
        struct Roomy;
        impl Memory for Roomy {
            fn region(&mut self, name: &'static str, bytes: usize) -> Result<Region, UpdateError> {
                Heap.region(name, 8 * bytes)
            }
        }
        let mut routes = RouteStore::new();
        let mut writer = build(&routes, &mut Roomy).unwrap();
        assert_eq!(writer.reader.regions[HEAP].u64s().len(), 8 * SLACK_WORDS);
        let all = table::<u128>(Shape::Hostile, 3000, 100, 2);
        for &(prefix, hop) in all.iter().step_by(2).filter(|(prefix, _)| prefix.len() > 0) {
            let change = set(&mut routes, prefix, hop);
            writer.apply(&[change], &routes, &mut NoReaders).unwrap();
        }
        assert!(writer.words > SLACK_WORDS);
    }
}
