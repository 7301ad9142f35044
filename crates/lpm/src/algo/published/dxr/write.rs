//! The writer of DXR: cuts the changed part into chunks, shares equal ones, publishes entries.
//!
//! A chunk is written into free space and stays as it is until no entry refers to it and every reader
//! has passed its grace period. Nothing a reader sees is touched before all chunks of a step have found their place;
//! then each entry changes by one store. With two stages a block of entries is treated as a chunk is,
//! and what changes by one store is its number in the directory.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::mem;
use core::sync::atomic::Ordering::{Relaxed, Release};

use super::form::{Entry, Form, Ranges};
use super::shared::Shared;
use super::{
    BLOCKS, CHUNKS, Counts, DIRECT, DIRECTORY, HEAP, PREFIXES, REFERENCES, Reader, SPLIT, TALLY,
    WAITING, WORDS, layout,
};
use crate::addr::{Addr, Prefix};
use crate::error::UpdateError;
use crate::intervals::sweep;
use crate::lookup::{Change, Grace, Lookup, Routes, Table};
use crate::mem::Memory;
use crate::next_hop_id::NextHopId;
use crate::toolkit::extents::{Block, Extents};

/// Words that entries can address.
const MAX_WORDS: usize = (1 << 22) - 1;
/// Extents for growth beside a quarter of the words in use.
const SLACK_WORDS: usize = 1 << 14;
/// Blocks that a directory can name, and room for growth beside a quarter of those in use.
const MAX_BLOCKS: usize = 1 << 16;
const SLACK_BLOCKS: usize = 256;

/// Which chunks exist, how many entries refer to each, and how many there are of each kind.
struct Chunks<F: Form> {
    shared: Shared,
    /// All references together.
    total: usize,
    /// Counts, in the order of `TALLIES`.
    tally: [usize; 8],
    form: core::marker::PhantomData<F>,
}

impl<F: Form> Chunks<F> {
    fn new() -> Self {
        Self { shared: Shared::default(), total: 0, tally: [0; 8], form: core::marker::PhantomData }
    }

    /// Counts a chunk that comes, or goes; a stored one or one that is referred to.
    fn count(&mut self, entry: u32, stored: bool, comes: bool, heap: &impl Fn(usize) -> F::Word) {
        let (long, ranges) = match F::decode(entry, |base| heap(base).into()) {
            Entry::Hit(_) => return,
            Entry::Short(_, ranges) => (false, ranges),
            Entry::Long(_, ranges) => (true, ranges),
        };
        let at = if stored { 0 } else { 4 } + if long { 2 } else { 0 };
        for (at, by) in [(at, 1), (at + 1, ranges)] {
            let count = &mut self.tally[at];
            *count = if comes { *count + by } else { *count - by };
        }
    }

    /// Refers to a chunk of these words if there is one.
    fn share(
        &mut self,
        fragments: u32,
        words: &[F::Word],
        heap: impl Fn(usize) -> F::Word,
    ) -> Option<u32> {
        // An equal `fragments` means an equal size, or that the first word tells it.
        let same = |entry: u32| {
            let base = (entry >> 10) as usize;
            entry & 1023 == fragments && words.iter().enumerate().all(|(i, &w)| heap(base + i) == w)
        };
        let entry = self.shared.share(Self::hash(fragments, words), 1, same)?;
        self.total += 1;
        self.count(entry, false, true, &heap);
        Some(entry)
    }

    /// A new chunk of these words, at `base`; its entry.
    fn add(&mut self, fragments: u32, words: &[F::Word], base: u32) -> u32 {
        let entry = base << 10 | fragments;
        self.shared.add(Self::hash(fragments, words), entry, 1);
        self.total += 1;
        for stored in [true, false] {
            // All that is read is the first word.
            self.count(entry, stored, true, &|_| words[0]);
        }
        entry
    }

    fn hash(fragments: u32, words: &[F::Word]) -> u32 {
        Shared::hash(fragments, words.iter().map(|&word| word.into()))
    }

    /// Drops one reference; the block of the chunk if it was the last.
    fn release(&mut self, entry: u32, heap: impl Fn(usize) -> F::Word) -> Option<Block> {
        if entry & 1023 == F::HIT {
            return None;
        }
        let base = entry >> 10;
        let size = F::size(entry, |base| heap(base).into());
        let words = (base..base + size).map(|index| heap(index as usize).into());
        let last = self.shared.release(Shared::hash(entry & 1023, words), entry);
        self.total -= 1;
        self.count(entry, false, false, &heap);
        if last {
            self.count(entry, true, false, &heap);
        }
        last.then_some((base, size))
    }
}

/// Cuts a block of the address space (at least one chunk) and calls `place` for each chunk that has
/// several ranges, and for each run of chunks that one next hop serves: first chunk, last, ranges.
fn cut<F: Form>(
    block: Prefix<F::Addr>,
    routes: &dyn Routes<F::Addr>,
    place: &mut dyn FnMut(usize, usize, &Ranges<F>),
) {
    let mut chunk = F::chunk(block.first());
    let mut ranges: Vec<(F::Addr, u32)> = Vec::new();
    let mut next = |ranges: &mut Vec<(F::Addr, u32)>, to: usize| {
        let carry = ranges.last().map_or(0, |&(_, hop)| hop);
        if ranges.len() > 1 {
            place(chunk, chunk, ranges);
            chunk += 1;
        }
        // `to` is one past the last chunk of the run, and past the table at its end.
        if chunk < to {
            place(chunk, to - 1, &[(F::Addr::MIN, carry)]);
        }
        chunk = to;
        ranges.clear();
        carry
    };
    let mut at = F::chunk(block.first());
    sweep(block, routes, &mut |start, NextHopId(hop)| {
        let inside = start & !F::Addr::mask(bits_of::<F>());
        if F::chunk(start) != at {
            at = F::chunk(start);
            let carry = next(&mut ranges, at);
            if inside > F::Addr::MIN {
                ranges.push((F::Addr::MIN, carry));
            }
        }
        ranges.push((inside, hop));
    });
    next(&mut ranges, F::chunk(block.last()) + 1);
}

fn bits_of<F: Form>() -> u8 {
    u8::try_from(F::K).expect("K is at most 24")
}

fn hit<F: Form>(hop: u32) -> u32 {
    hop << 10 | F::HIT
}

/// Blocks of entries, as two stages share them.
struct Blocks {
    shared: Shared,
    /// Entries a block.
    len: usize,
}

impl Blocks {
    fn hash(entries: impl Iterator<Item = u32>) -> u32 {
        Shared::hash(0, entries.map(u64::from))
    }

    /// Refers `times` more to the block of these entries if there is one.
    fn share(&mut self, entries: &[u32], times: u32, stored: impl Fn(usize) -> u32) -> Option<u32> {
        let same = |number: u32| {
            let first = number as usize * self.len;
            entries.iter().enumerate().all(|(i, &entry)| stored(first + i) == entry)
        };
        self.shared.share(Self::hash(entries.iter().copied()), times, same)
    }

    fn add(&mut self, entries: &[u32], times: u32, number: u32) {
        self.shared.add(Self::hash(entries.iter().copied()), number, times);
    }

    /// Drops one reference; whether it was the last.
    fn release(&mut self, number: u32, stored: impl Fn(usize) -> u32) -> bool {
        let first = number as usize * self.len;
        self.shared.release(Self::hash((first..first + self.len).map(stored)), number)
    }
}

/// Puts runs of entries, in order, together to blocks: calls `done` with the first and last of those
/// that are the same, and with their entries. What the runs leave out is read from `before`.
struct Assembly<'a> {
    len: usize,
    block: Option<usize>,
    entries: Vec<u32>,
    before: &'a dyn Fn(usize) -> u32,
}

impl<'a> Assembly<'a> {
    fn new(len: usize, before: &'a dyn Fn(usize) -> u32) -> Self {
        Self { len, block: None, entries: Vec::new(), before }
    }

    fn run(
        &mut self,
        from: usize,
        to: usize,
        entry: u32,
        done: &mut dyn FnMut(usize, usize, &[u32]),
    ) {
        let mut at = from;
        while at <= to {
            let (block, inside) = (at / self.len, at % self.len);
            let whole = (to + 1 - at) / self.len;
            if inside == 0 && whole > 0 {
                self.flush(done);
                self.entries.clear();
                self.entries.resize(self.len, entry);
                done(block, block + whole - 1, &self.entries);
                at += whole * self.len;
                continue;
            }
            if self.block != Some(block) {
                self.flush(done);
                self.block = Some(block);
                let first = block * self.len;
                self.entries.clear();
                self.entries.extend((first..first + self.len).map(self.before));
            }
            let count = (self.len - inside).min(to + 1 - at);
            self.entries[inside..inside + count].fill(entry);
            at += count;
        }
    }

    fn flush(&mut self, done: &mut dyn FnMut(usize, usize, &[u32])) {
        if let Some(block) = self.block.take() {
            done(block, block, &self.entries);
        }
    }
}

struct Writer<F: Form, const TWO: bool> {
    reader: Arc<Reader<F, TWO>>,
    chunks: Chunks<F>,
    room: Extents,
    blocks: Blocks,
    block_room: Extents,
    prefixes: usize,
    /// First and last chunks of the step at hand, and their new entry.
    staged: Vec<(usize, usize, u32)>,
    /// First and last places in the directory of two stages, and their new block.
    staged_blocks: Vec<(usize, usize, u32)>,
    /// Kept for its memory.
    words: Vec<F::Word>,
}

pub(super) fn make<F: Form, const TWO: bool>(
    routes: &dyn Routes<F::Addr>,
    memory: &mut dyn Memory,
) -> Result<Box<dyn Table<F::Addr>>, UpdateError> {
    let split = if TWO { F::split(routes.stats().prefixes) } else { 0 };
    Ok(Box::new(build::<F, TWO>(routes, memory, MAX_WORDS, split)?))
}

/// Builds with a heap of at most `max_words` (tests cannot afford to fill a whole one) and, with two
/// stages, a directory of `split` bits.
fn build<F: Form, const TWO: bool>(
    routes: &dyn Routes<F::Addr>,
    memory: &mut dyn Memory,
    max_words: usize,
    split: u32,
) -> Result<Writer<F, TWO>, UpdateError> {
    let names = Reader::<F, TWO>::NAMES;
    let flat = if TWO { None } else { Some(memory.region(names[DIRECT], 4 << F::K)?) };
    let directory = if TWO { Some(memory.region(names[DIRECTORY], 2 << split)?) } else { None };
    let mut blocks = Blocks { shared: Shared::default(), len: 1 << (F::K - split) };
    let mut made: Vec<u32> = Vec::new();
    let mut chunks = Chunks::<F>::new();
    let mut heap: Vec<F::Word> = Vec::new();
    let mut words = Vec::new();
    let mut needed = 0;
    let mut add_blocks = |from: usize, to: usize, entries: &[u32]| {
        let times = u32::try_from(to + 1 - from).expect("at most 2^16");
        let number = blocks.share(entries, times, |at| made[at]).unwrap_or_else(|| {
            let number = u32::try_from(made.len() / entries.len()).expect("at most 2^16");
            made.extend_from_slice(entries);
            blocks.add(entries, times, number);
            number
        });
        for cell in directory.iter().flat_map(|directory| &directory.u16s()[from..=to]) {
            cell.store(narrow(number), Relaxed);
        }
    };
    // Every chunk is in a run.
    let mut assembly = Assembly::new(1 << (F::K - split), &|_| 0);
    cut::<F>(Prefix::ALL, routes, &mut |from, to, ranges| {
        let entry = match F::encode(ranges, &mut words) {
            None => hit::<F>(ranges[0].1),
            Some(fragments) => {
                chunks.share(fragments, &words, |at| heap[at]).unwrap_or_else(|| {
                    needed += words.len();
                    if needed > max_words {
                        return hit::<F>(0);
                    }
                    let base = u32::try_from(heap.len()).expect("below 2^22");
                    heap.extend_from_slice(&words);
                    chunks.add(fragments, &words, base)
                })
            }
        };
        match &flat {
            None => assembly.run(from, to, entry, &mut add_blocks),
            Some(direct) => {
                direct.u32s()[from..=to].iter().for_each(|slot| slot.store(entry, Relaxed));
            }
        }
    });
    assembly.flush(&mut add_blocks);
    if needed > max_words {
        let (max, got) = (max_words as u64, needed as u64);
        return Err(UpdateError::Limit { what: "words of ranges", max, got });
    }
    // A power of two, as readers mask their indices; the limit may leave the end of it unused.
    let words_held = (heap.len() + heap.len() / 4 + SLACK_WORDS).next_power_of_two();
    let words_held = words_held.min((max_words + 1).next_power_of_two());
    let capacity = words_held.min(max_words);
    let region = memory.region(names[HEAP], words_held * F::WORD_BYTES)?;
    for (at, &word) in heap.iter().enumerate() {
        F::store(&region, at, word);
    }
    let in_range = |n: usize| u32::try_from(n).expect("below 2^22");
    let (direct, block_room) = match flat {
        Some(direct) => (direct, Extents::new(0, 0)),
        None => {
            let used = made.len() / blocks.len;
            let held = (used + used / 4 + SLACK_BLOCKS).next_power_of_two().min(MAX_BLOCKS);
            let region = memory.region(names[DIRECT], held * blocks.len * 4)?;
            for (cell, &entry) in region.u32s().iter().zip(&made) {
                cell.store(entry, Relaxed);
            }
            (region, Extents::new(in_range(held), in_range(used)))
        }
    };
    let head = Counts::new(memory, layout::<F, TWO>())?;
    head.set(SPLIT, split as usize);
    let reader = Reader::new(head, region, direct, directory, split);
    let mut writer = Writer {
        chunks,
        room: Extents::new(in_range(capacity), in_range(heap.len())),
        blocks,
        block_room,
        prefixes: routes.stats().prefixes,
        staged: Vec::new(),
        staged_blocks: Vec::new(),
        words,
        reader: Arc::new(reader.expect("all regions are as long as they must be")),
    };
    writer.count();
    Ok(writer)
}

fn narrow(number: u32) -> u16 {
    u16::try_from(number).expect("at most 2^16 blocks")
}

impl<F: Form, const TWO: bool> Writer<F, TWO> {
    fn count(&mut self) {
        let head = &self.reader.head;
        head.set(PREFIXES, self.prefixes);
        head.set(CHUNKS, self.chunks.shared.len());
        head.set(REFERENCES, self.chunks.total);
        head.set(WORDS, self.room.used() as usize);
        head.set(WAITING, self.room.waiting() as usize);
        head.set(BLOCKS, self.block_room.used() as usize);
        for (at, &count) in self.chunks.tally.iter().enumerate() {
            head.set(TALLY + at, count);
        }
    }

    /// Finds or makes the chunk of these ranges. `None` when there is no room for it.
    fn entry(&mut self, ranges: &Ranges<F>) -> Option<u32> {
        let Some(fragments) = F::encode(ranges, &mut self.words) else {
            return Some(hit::<F>(ranges[0].1));
        };
        let heap = &self.reader.regions[HEAP];
        let found = self.chunks.share(fragments, &self.words, |at| F::load(heap, at));
        if found.is_some() {
            return found;
        }
        let size = u32::try_from(self.words.len()).expect("fewer words than a heap has");
        let base = self.room.take(size)?;
        for (at, &word) in self.words.iter().enumerate() {
            F::store(heap, base as usize + at, word);
        }
        Some(self.chunks.add(fragments, &self.words, base))
    }

    /// Builds the chunks of `touched` aside, and the blocks of their entries. False when there was no
    /// room; then nothing is staged.
    fn stage(&mut self, touched: &[Prefix<F::Addr>], routes: &dyn Routes<F::Addr>) -> bool {
        let mut fits = true;
        for &block in touched {
            cut::<F>(block, routes, &mut |from, to, ranges| match fits
                .then(|| self.entry(ranges))
                .flatten()
            {
                Some(entry) => self.staged.push((from, to, entry)),
                None => fits = false,
            });
        }
        fits = fits && (!TWO || self.stage_blocks());
        if !fits {
            // No reader has seen any of it.
            for (from, to, number) in mem::take(&mut self.staged_blocks) {
                for _ in from..=to {
                    if self.release_block(number) {
                        self.block_room.give((number, 1));
                    }
                }
            }
            for (_, _, entry) in mem::take(&mut self.staged) {
                let heap = &self.reader.regions[HEAP];
                if let Some(block) = self.chunks.release(entry, |at| F::load(heap, at)) {
                    self.room.give(block);
                }
            }
        }
        fits
    }

    fn release_block(&mut self, number: u32) -> bool {
        let stored = self.reader.regions[DIRECT].u32s();
        self.blocks.release(number, |at| stored[at].load(Relaxed))
    }

    fn stage_blocks(&mut self) -> bool {
        let Self { reader, blocks, block_room, staged, staged_blocks, .. } = self;
        let stored = reader.regions[DIRECT].u32s();
        let view = reader.view();
        let mut fits = true;
        let mut add = |from: usize, to: usize, entries: &[u32]| {
            let times = u32::try_from(to + 1 - from).expect("at most 2^16");
            let found = blocks.share(entries, times, |at| stored[at].load(Relaxed));
            let number = found.or_else(|| {
                let number = block_room.take(1).filter(|_| fits)?;
                let first = number as usize * entries.len();
                for (cell, &entry) in stored[first..].iter().zip(entries) {
                    cell.store(entry, Relaxed);
                }
                blocks.add(entries, times, number);
                Some(number)
            });
            match number {
                Some(number) => staged_blocks.push((from, to, number)),
                None => fits = false,
            }
        };
        let before = |chunk: usize| view.entry(chunk);
        let mut assembly = Assembly::new(1 << reader.inside, &before);
        for &(from, to, entry) in staged.iter() {
            assembly.run(from, to, entry, &mut add);
        }
        assembly.flush(&mut add);
        fits
    }

    fn publish_staged(&mut self, grace: &mut dyn Grace) {
        let staged = mem::take(&mut self.staged);
        let heap = &self.reader.regions[HEAP];
        let direct = self.reader.regions[DIRECT].u32s();
        let view = self.reader.view();
        let mut unlinked = Vec::new();
        for &(from, to, entry) in &staged {
            for chunk in from..=to {
                let old = view.entry(chunk);
                unlinked.extend(self.chunks.release(old, |at| F::load(heap, at)));
                // Entries that stay are not written: it would cost their readers a cache miss.
                let changed = direct.get(chunk).filter(|_| !TWO && old != entry);
                if let Some(slot) = changed {
                    // Release: pairs with `View::entry`; the chunk's words were stored before.
                    slot.store(entry, Release);
                }
            }
        }
        let mut unlinked_blocks = Vec::new();
        for (from, to, number) in mem::take(&mut self.staged_blocks) {
            for at in from..=to {
                let cell = &self.reader.regions[DIRECTORY].u16s()[at];
                let old = cell.load(Relaxed);
                if u32::from(old) != number {
                    // Release: pairs with `View::place`; the block's entries were stored before.
                    cell.store(narrow(number), Release);
                }
                if self.blocks.release(old.into(), |at| direct[at].load(Relaxed)) {
                    unlinked_blocks.push((u32::from(old), 1));
                }
            }
        }
        self.room.retire(unlinked, grace);
        self.block_room.retire(unlinked_blocks, grace);
        self.staged = staged;
        self.staged.clear();
    }

    fn reclaim(&mut self, grace: &dyn Grace) {
        self.room.reclaim(grace);
        self.block_room.reclaim(grace);
    }
}

/// The blocks that `changes` touch, none inside another, each at least a chunk.
fn touched<F: Form>(changes: &[Change<F::Addr>]) -> Vec<Prefix<F::Addr>> {
    let changed = changes.iter().filter(|change| change.old != change.new);
    let mut blocks: Vec<_> = changed
        .map(|change| Prefix::masked(change.prefix.addr(), change.prefix.len().min(bits_of::<F>())))
        .collect();
    blocks.sort_unstable();
    blocks.dedup_by(|next, kept| kept.covers(*next));
    blocks
}

impl<F: Form, const TWO: bool> Table<F::Addr> for Writer<F, TWO> {
    fn apply(
        &mut self,
        changes: &[Change<F::Addr>],
        routes: &dyn Routes<F::Addr>,
        grace: &mut dyn Grace,
    ) -> Result<(), UpdateError> {
        Change::greatest_hop(changes, F::MAX_HOP)?;
        let prefixes = Change::prefixes_after(changes, self.prefixes);
        if TWO && F::split(prefixes) != F::split(self.prefixes) {
            return Err(UpdateError::Rebuild);
        }
        self.reclaim(grace);
        if !self.stage(&touched::<F>(changes), routes) {
            return Err(UpdateError::Rebuild);
        }
        self.publish_staged(grace);
        self.reclaim(grace);
        self.prefixes = prefixes;
        self.count();
        Ok(())
    }

    fn publish(&mut self) -> Arc<dyn Lookup<F::Addr>> {
        self.reader.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::super::form::{V4, V6};
    use super::*;
    use crate::lookup::NoReaders;
    use crate::mem::Heap as Memory;
    use crate::oracle::Oracle;
    use crate::routes::RouteStore;
    use crate::testing::{HeldGrace, Rng, Shape, probes, table, toggle};

    /// A reader that took its entries before some steps finishes on the chunks of that moment.
    #[test]
    fn an_entry_outlives_its_chunk() {
        let routes = table::<u32>(Shape::Hostile, 3000, 100, 1);
        let mut store: RouteStore<u32> = routes.iter().copied().collect();
        let mut writer = build::<V4<18>, false>(&store, &mut Memory, MAX_WORDS, 0).unwrap();
        let mut grace = HeldGrace::default();
        let addrs: Vec<u32> = routes.iter().flat_map(|&(prefix, _)| probes(prefix)).collect();
        let mut moments = Vec::new();
        let mut rng = Rng::new(2);
        for _ in 0..20 {
            let view = writer.reader.view();
            let taken = addrs.iter().map(|&addr| (addr, view.entry(V4::<18>::chunk(addr))));
            let taken = taken.map(|(addr, entry)| (addr, entry, view.answer(addr, entry)));
            moments.push(taken.collect::<Vec<_>>());
            let changes = toggle(&mut rng, &routes, &mut store, 8);
            if writer.apply(&changes, &store, &mut grace) == Err(UpdateError::Rebuild) {
                break;
            }
        }
        assert!(moments.len() > 3 && writer.room.waiting() > 100, "{} moments", moments.len());
        let view = writer.reader.view();
        for (moment, taken) in moments.iter().enumerate() {
            for &(addr, entry, want) in taken {
                assert_eq!(view.answer(addr, entry), want, "moment {moment}, {addr:#x}");
            }
        }
    }

    /// Every number of ranges around the places where the form of a chunk changes.
    fn forms<const K: u32>() {
        let short_max = 1 << (24 - K);
        let long_max = V4::<K>::HIT as usize;
        let chunk = 0x0a0a_0a0a & !((1u32 << (32 - K)) - 1);
        let around = |n: usize| n.saturating_sub(3)..=n + 3;
        for count in around(2).chain(around(short_max)).chain(around(long_max)) {
            for step in [1u32, 256] {
                // Each range one step long; the last one runs on to the end of the chunk.
                let len = 32 - u8::try_from(step.trailing_zeros()).unwrap();
                let mut store = RouteStore::<u32>::new();
                store.insert(Prefix::masked(chunk, u8::try_from(K).unwrap()), NextHopId(3));
                let starts = (0..count).map(|i| u32::try_from(i).unwrap() * step);
                for start in starts.filter(|&start| start < 1 << (32 - K)) {
                    let hop = NextHopId(1 + start / step % 2);
                    store.insert(Prefix::masked(chunk | start, len), hop);
                }
                let writer = build::<V4<K>, false>(&store, &mut Memory, MAX_WORDS, 0).unwrap();
                let oracle: Oracle<u32> = store.iter().map(|(p, &hop)| (p, hop)).collect();
                for (prefix, _) in &store {
                    for addr in probes(prefix) {
                        let got = writer.reader.lookup(addr);
                        assert_eq!(got, oracle.lookup(addr), "K {K}, {count} ranges, {addr:#x}");
                    }
                }
            }
        }
    }

    #[test]
    fn every_form_of_a_chunk() {
        forms::<16>();
        forms::<17>();
        forms::<18>();
        forms::<20>();
        forms::<22>();
    }

    #[test]
    fn a_full_heap_is_a_limit_or_a_reason_to_build() {
        let routes = table::<u32>(Shape::Hostile, 3000, 100, 4);
        let mut store: RouteStore<u32> = routes.iter().copied().collect();
        let needed =
            build::<V4<18>, false>(&store, &mut Memory, MAX_WORDS, 0).unwrap().room.used() as usize;
        let refused = build::<V4<18>, false>(&store, &mut Memory, needed - 1, 0).err();
        let (max, got) = (needed as u64 - 1, needed as u64);
        assert_eq!(refused, Some(UpdateError::Limit { what: "words of ranges", max, got }));

        // Few words to spare: some chunks find their place before one does not.
        let mut writer = build::<V4<18>, false>(&store, &mut Memory, needed + 8, 0).unwrap();
        let before: Vec<_> =
            writer.reader.regions[DIRECT].u32s().iter().map(|e| e.load(Relaxed)).collect();
        let (chunks, total) = (writer.chunks.shared.clone(), writer.chunks.total);
        let mut rng = Rng::new(5);
        let changes = toggle(&mut rng, &routes, &mut store, 64);
        let full = writer.apply(&changes, &store, &mut NoReaders);
        assert_eq!(full, Err(UpdateError::Rebuild));
        let after = writer.reader.regions[DIRECT].u32s().iter().map(|e| e.load(Relaxed));
        assert!(after.eq(before));
        assert_eq!((&writer.chunks.shared, writer.chunks.total), (&chunks, total));
        assert_eq!((writer.room.used() as usize, writer.staged.len()), (needed, 0));
    }

    /// The split by the number of prefixes is near the best of all splits, as in FreeBSD.
    #[test]
    fn the_split_is_near_the_best() {
        fn check<F: Form>(count: usize) {
            let routes = table::<F::Addr>(Shape::Internet, count, 100, 6);
            let store: RouteStore<F::Addr> = routes.iter().copied().collect();
            let bytes = |split| {
                let writer = build::<F, true>(&store, &mut Memory, MAX_WORDS, split).unwrap();
                writer.reader.bytes()
            };
            let ours = bytes(F::split(store.len()));
            let best = (8..=16).map(bytes).min().unwrap();
            assert!(ours <= best + best / 4, "{count} routes: {ours} bytes, at best {best}");
        }
        for count in [0, 30, 300, 3000, 10_000] {
            check::<V4<20>>(count);
            check::<V6>(count);
        }
    }

    #[test]
    fn equal_blocks_are_one() {
        let mut store = RouteStore::<u32>::new();
        for i in 0..40u32 {
            store.insert(Prefix::masked(i << 20, 24), NextHopId(1));
        }
        let split = V4::<20>::split(store.len());
        let writer = build::<V4<20>, true>(&store, &mut Memory, MAX_WORDS, split).unwrap();
        let head = &writer.reader.head;
        // One chunk 40 times; a block that has it twice, and one that has none.
        assert_eq!((head.get(CHUNKS), head.get(REFERENCES)), (1, 40));
        let tally: Vec<u64> = (0..8).map(|at| head.get(TALLY + at)).collect();
        assert_eq!(tally, [1, 2, 0, 0, 40, 80, 0, 0]);
        assert_eq!((split, head.get(BLOCKS)), (11, 2));
    }
}
