//! The writer of DXR: cuts the changed part into chunks, shares equal ones, publishes entries.
//!
//! A chunk is written into free space and stays as it is until no entry refers to it and every reader
//! has gone on. Nothing a reader sees is touched before all chunks of a step have found their place;
//! then each entry changes by one store.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::mem;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{Relaxed, Release};

use super::{
    CHUNKS, Counts, DIRECT, Format, HEAP, NAMES, PREFIXES, REFERENCES, Reader, WAITING, WORDS,
};
use crate::addr::Prefix;
use crate::intervals::sweep;
use crate::lookup::{Change, Grace, Lookup, NextHopId, Routes, Table, UpdateError};
use crate::mem::Memory;
use crate::room::{Block, Room};

/// Words that entries can address.
const MAX_WORDS: usize = (1 << 22) - 1;
/// Room for growth beside a quarter of the words in use: 64 KiB.
const SLACK_WORDS: usize = 1 << 14;

/// Ranges of one chunk: start inside the chunk, next hop.
type Ranges = [(u32, u32)];

/// The words of a chunk as they stand in the heap, and the low part of its entry. `None` when one
/// next hop serves the whole chunk.
fn encode<const K: u32>(ranges: &Ranges, words: &mut Vec<u32>) -> Option<u32> {
    words.clear();
    if ranges.len() == 1 {
        return None;
    }
    let short = Format::<K>::SHORT
        && ranges.iter().all(|&(start, hop)| start % 256 == 0 && hop <= Format::<K>::SHORT_HOP);
    let count = u32::try_from(ranges.len()).expect("a chunk has at most 2^16 addresses");
    if short {
        let half = |&(start, hop): &(u32, u32)| {
            let half = (start >> 8) << (K - 8) | hop;
            u16::try_from(half).expect("24 - K and K - 8 bits").to_ne_bytes()
        };
        for pair in ranges.chunks(2) {
            // In memory order, whatever the machine's: readers see 16-bit integers.
            let ([a, b], [c, d]) = (half(&pair[0]), half(&pair[pair.len() - 1]));
            words.push(u32::from_ne_bytes([a, b, c, d]));
        }
        return Some(Format::<K>::P | (count.div_ceil(2) - 1));
    }
    let xl = count > Format::<K>::HIT;
    if xl {
        words.push(count - 1);
    }
    words.extend(ranges.iter().map(|&(start, hop)| start << K | hop));
    Some(if xl { Format::<K>::XL } else { count - 1 })
}

/// Where chunks are kept: a vector while a table is built, the readers' region afterwards.
trait Heap {
    fn word(&self, index: usize) -> u32;
}

impl Heap for Vec<u32> {
    fn word(&self, index: usize) -> u32 {
        self[index]
    }
}

impl Heap for &[AtomicU32] {
    fn word(&self, index: usize) -> u32 {
        self[index].load(Relaxed)
    }
}

/// Words of the chunk of an entry.
fn size<const K: u32>(entry: u32, heap: &impl Heap) -> u32 {
    match entry & 1023 {
        fragments if Format::<K>::SHORT && fragments >= Format::<K>::P => {
            (fragments & Format::<K>::M) + 1
        }
        fragments if fragments == Format::<K>::XL => heap.word((entry >> 10) as usize) + 2,
        fragments => fragments + 1,
    }
}

/// Which chunks exist, and how many entries refer to each. Found by content.
#[derive(Default)]
struct Chunks {
    /// (Hash of the content, entry) to references. Equal hashes stand side by side.
    references: BTreeMap<(u32, u32), u32>,
    /// All references together.
    total: usize,
}

impl Chunks {
    fn hash(fragments: u32, words: impl Iterator<Item = u32>) -> u32 {
        // FNV's prime; the content is compared anyway.
        words.fold(fragments, |hash, word| {
            let mixed = (hash ^ word).wrapping_mul(0x0100_0193);
            mixed ^ mixed >> 15
        })
    }

    /// Refers to a chunk of this content if there is one.
    fn share(&mut self, hash: u32, fragments: u32, words: &[u32], heap: &impl Heap) -> Option<u32> {
        let same_hash = self.references.range_mut((hash, 0)..=(hash, u32::MAX));
        for (&(_, entry), references) in same_hash {
            let base = (entry >> 10) as usize;
            // An equal `fragments` means an equal size, or that the first word tells it.
            if entry & 1023 == fragments
                && words.iter().enumerate().all(|(i, &word)| heap.word(base + i) == word)
            {
                *references += 1;
                self.total += 1;
                return Some(entry);
            }
        }
        None
    }

    fn add(&mut self, hash: u32, entry: u32) {
        self.references.insert((hash, entry), 1);
        self.total += 1;
    }

    /// Drops one reference; the block of the chunk if it was the last.
    fn release<const K: u32>(&mut self, entry: u32, heap: &impl Heap) -> Option<Block> {
        if entry & 1023 == Format::<K>::HIT {
            return None;
        }
        let base = entry >> 10;
        let size = size::<K>(entry, heap);
        let words = (base..base + size).map(|index| heap.word(index as usize));
        let key = (Self::hash(entry & 1023, words), entry);
        let references = self.references.get_mut(&key).expect("an entry's chunk is counted");
        *references -= 1;
        self.total -= 1;
        if *references > 0 {
            return None;
        }
        self.references.remove(&key);
        Some((base, size))
    }
}

/// Cuts a block of the address space (at least one chunk) and calls `place` for each chunk that has
/// several ranges, and for each run of chunks that one next hop serves: first chunk, last, ranges.
fn cut<const K: u32>(
    block: Prefix<u32>,
    routes: &dyn Routes<u32>,
    place: &mut dyn FnMut(u32, u32, &Ranges),
) {
    let shift = Format::<K>::SHIFT;
    let mut chunk = block.first() >> shift;
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    let mut next = |ranges: &mut Vec<(u32, u32)>, to: u32| {
        let carry = ranges.last().map_or(0, |&(_, hop)| hop);
        if ranges.len() > 1 {
            place(chunk, chunk, ranges);
            chunk += 1;
        }
        // `to` is one past the last chunk of the run, and past the table at its end.
        if chunk < to {
            place(chunk, to - 1, &[(0, carry)]);
        }
        chunk = to;
        ranges.clear();
        carry
    };
    let mut at = chunk_of::<K>(block.first());
    sweep(block, routes, &mut |start, NextHopId(hop)| {
        let inside = start & ((1 << shift) - 1);
        if start >> shift != at {
            at = start >> shift;
            let carry = next(&mut ranges, at);
            if inside > 0 {
                ranges.push((0, carry));
            }
        }
        ranges.push((inside, hop));
    });
    next(&mut ranges, chunk_of::<K>(block.last()) + 1);
}

fn chunk_of<const K: u32>(addr: u32) -> u32 {
    addr >> Format::<K>::SHIFT
}

fn hit<const K: u32>(hop: u32) -> u32 {
    hop << 10 | Format::<K>::HIT
}

struct Writer<const K: u32> {
    reader: Arc<Reader<K>>,
    chunks: Chunks,
    room: Room,
    prefixes: usize,
    /// Of the step at hand: first and last chunk, and their new entry.
    staged: Vec<(u32, u32, u32)>,
    /// Kept for its memory.
    words: Vec<u32>,
}

pub(super) fn make<const K: u32>(
    routes: &dyn Routes<u32>,
    memory: &mut dyn Memory,
) -> Result<Box<dyn Table<u32>>, UpdateError> {
    Ok(Box::new(build::<K>(routes, memory, MAX_WORDS)?))
}

/// Builds with a heap of at most `max_words`: tests cannot afford to fill a whole one.
fn build<const K: u32>(
    routes: &dyn Routes<u32>,
    memory: &mut dyn Memory,
    max_words: usize,
) -> Result<Writer<K>, UpdateError> {
    let direct = memory.region(NAMES[DIRECT], 4 << K)?;
    let entries = &direct.u32s()[..1 << K];
    let mut chunks = Chunks::default();
    let mut heap: Vec<u32> = Vec::new();
    let mut words = Vec::new();
    let mut needed = 0;
    cut::<K>(Prefix::ALL, routes, &mut |from, to, ranges| {
        let Some(fragments) = encode::<K>(ranges, &mut words) else {
            let entry = hit::<K>(ranges[0].1);
            for slot in &entries[from as usize..=to as usize] {
                slot.store(entry, Relaxed);
            }
            return;
        };
        let hash = Chunks::hash(fragments, words.iter().copied());
        let entry = chunks.share(hash, fragments, &words, &heap).or_else(|| {
            needed += words.len();
            let base = u32::try_from(heap.len()).ok().filter(|_| needed <= max_words)?;
            heap.extend_from_slice(&words);
            let entry = base << 10 | fragments;
            chunks.add(hash, entry);
            Some(entry)
        });
        entries[from as usize].store(entry.unwrap_or(0), Relaxed);
    });
    if needed > max_words {
        let (max, got) = (max_words as u64, needed as u64);
        return Err(UpdateError::Limit { what: "words of ranges", max, got });
    }
    // A power of two, as readers mask their indices; the limit may leave the end of it unused.
    let words_held = (heap.len() + heap.len() / 4 + SLACK_WORDS).next_power_of_two();
    let words_held = words_held.min((max_words + 1).next_power_of_two());
    let capacity = words_held.min(max_words);
    let region = memory.region(NAMES[HEAP], words_held * 4)?;
    for (to, &from) in region.u32s().iter().zip(&heap) {
        to.store(from, Relaxed);
    }
    let head = Counts::new(memory, Format::<K>::LAYOUT)?;
    let in_range = |n: usize| u32::try_from(n).expect("below 2^22");
    let mut writer = Writer {
        chunks,
        room: Room::new(in_range(capacity), in_range(heap.len())),
        prefixes: routes.stats().prefixes,
        staged: Vec::new(),
        words,
        reader: Arc::new(Reader::new(head, direct, region, words_held - 1)),
    };
    writer.count();
    Ok(writer)
}

impl<const K: u32> Writer<K> {
    fn count(&mut self) {
        let head = &self.reader.head;
        head.set(PREFIXES, self.prefixes);
        head.set(CHUNKS, self.chunks.references.len());
        head.set(REFERENCES, self.chunks.total);
        head.set(WORDS, self.room.used() as usize);
        head.set(WAITING, self.room.waiting() as usize);
    }

    /// Finds or makes the chunk of these ranges. `None` when there is no room for it.
    fn entry(&mut self, ranges: &Ranges) -> Option<u32> {
        let Some(fragments) = encode::<K>(ranges, &mut self.words) else {
            return Some(hit::<K>(ranges[0].1));
        };
        let heap = self.reader.regions[HEAP].u32s();
        let hash = Chunks::hash(fragments, self.words.iter().copied());
        if let Some(entry) = self.chunks.share(hash, fragments, &self.words, &heap) {
            return Some(entry);
        }
        let size = u32::try_from(self.words.len()).expect("a chunk has at most 2^16 + 1 words");
        let base = self.room.take(size)?;
        for (to, &from) in heap[base as usize..].iter().zip(&self.words) {
            to.store(from, Relaxed);
        }
        let entry = base << 10 | fragments;
        self.chunks.add(hash, entry);
        Some(entry)
    }

    /// Builds the chunks of `blocks` aside. False when there was no room; then nothing is staged.
    fn stage(&mut self, blocks: &[Prefix<u32>], routes: &dyn Routes<u32>) -> bool {
        let mut fits = true;
        for &block in blocks {
            cut::<K>(block, routes, &mut |from, to, ranges| match fits
                .then(|| self.entry(ranges))
                .flatten()
            {
                Some(entry) => self.staged.push((from, to, entry)),
                None => fits = false,
            });
        }
        if !fits {
            // No reader has seen any of it.
            for (_, _, entry) in mem::take(&mut self.staged) {
                let heap = self.reader.regions[HEAP].u32s();
                if let Some(block) = self.chunks.release::<K>(entry, &heap) {
                    self.room.give(block);
                }
            }
        }
        fits
    }

    fn publish_staged(&mut self, grace: &mut dyn Grace) {
        let heap = self.reader.regions[HEAP].u32s();
        let direct = &self.reader.regions[DIRECT].u32s()[..1 << K];
        let mut unlinked = Vec::new();
        for (from, to, entry) in self.staged.drain(..) {
            for slot in &direct[from as usize..=to as usize] {
                let old = slot.load(Relaxed);
                // Entries that stay are not written: it would cost their readers a cache miss.
                if old != entry {
                    // Release: pairs with `View::entry`; the chunk's words were stored before.
                    slot.store(entry, Release);
                }
                unlinked.extend(self.chunks.release::<K>(old, &heap));
            }
        }
        self.room.retire(unlinked, grace);
    }
}

/// The blocks that `changes` touch, none inside another, each at least a chunk.
fn touched<const K: u32>(changes: &[Change<u32>]) -> Vec<Prefix<u32>> {
    let chunk = u8::try_from(K).expect("K is at most 24");
    let changed = changes.iter().filter(|change| change.old != change.new);
    let mut blocks: Vec<_> = changed
        .map(|change| Prefix::masked(change.prefix.addr(), change.prefix.len().min(chunk)))
        .collect();
    blocks.sort_unstable();
    blocks.dedup_by(|next, kept| kept.covers(*next));
    blocks
}

impl<const K: u32> Table<u32> for Writer<K> {
    fn apply(
        &mut self,
        changes: &[Change<u32>],
        routes: &dyn Routes<u32>,
        grace: &mut dyn Grace,
    ) -> Result<(), UpdateError> {
        let greatest = changes.iter().map(|change| change.new.0).max().unwrap_or(0);
        if greatest > Format::<K>::MAX_HOP {
            let (max, got) = (u64::from(Format::<K>::MAX_HOP), u64::from(greatest));
            return Err(UpdateError::Limit { what: "next-hop index", max, got });
        }
        self.room.reclaim(grace);
        if !self.stage(&touched::<K>(changes), routes) {
            return Err(UpdateError::Rebuild);
        }
        self.publish_staged(grace);
        self.room.reclaim(grace);
        for change in changes {
            self.prefixes += usize::from(change.old.is_none() && !change.new.is_none());
            self.prefixes -= usize::from(!change.old.is_none() && change.new.is_none());
        }
        self.count();
        Ok(())
    }

    fn publish(&mut self) -> Arc<dyn Lookup<u32>> {
        self.reader.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lookup::NoReaders;
    use crate::mem::Heap as Memory;
    use crate::oracle::Oracle;
    use crate::routes::RouteStore;
    use crate::testing::{HeldGrace, Rng, Shape, probes, table};

    /// Changes some of `routes` back and forth.
    fn step(
        rng: &mut Rng,
        routes: &[(Prefix<u32>, NextHopId)],
        store: &mut RouteStore<u32>,
    ) -> Vec<Change<u32>> {
        let mut change = || {
            let (prefix, hop) = routes[rng.below(routes.len())];
            let old = store.remove(prefix).unwrap_or_default();
            let new = if old.is_none() { hop } else { NextHopId::NONE };
            if !new.is_none() {
                store.insert(prefix, new);
            }
            Change { prefix, old, new }
        };
        (0..8).map(|_| change()).collect()
    }

    /// A reader that took its entries before some steps finishes on the chunks of that moment.
    #[test]
    fn an_entry_outlives_its_chunk() {
        let routes = table::<u32>(Shape::Hostile, 3000, 100, 1);
        let mut store: RouteStore<u32> = routes.iter().copied().collect();
        let mut writer = build::<18>(&store, &mut Memory, MAX_WORDS).unwrap();
        let mut grace = HeldGrace::default();
        let addrs: Vec<u32> = routes.iter().flat_map(|&(prefix, _)| probes(prefix)).collect();
        let mut moments = Vec::new();
        let mut rng = Rng::new(2);
        for _ in 0..20 {
            let view = writer.reader.view();
            let taken = addrs.iter().map(|&addr| (addr, view.entry(addr)));
            let taken = taken.map(|(addr, entry)| (addr, entry, view.answer(addr, entry)));
            moments.push(taken.collect::<Vec<_>>());
            let changes = step(&mut rng, &routes, &mut store);
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

    #[test]
    fn a_hash_is_not_the_content() {
        let heap: Vec<u32> = (0..16).collect();
        let mut chunks = Chunks::default();
        chunks.add(7, 3);
        chunks.add(7, 8 << 10 | 3);
        assert_eq!(chunks.share(7, 3, &[8, 9, 10, 11], &heap), Some(8 << 10 | 3));
        assert_eq!(chunks.share(7, 3, &[0, 1, 2, 3], &heap), Some(3));
        assert_eq!(chunks.share(7, 3, &[0, 1, 2, 4], &heap), None);
        assert_eq!(chunks.share(7, 2, &[0, 1, 2], &heap), None);
        assert_eq!(chunks.share(8, 3, &[0, 1, 2, 3], &heap), None);
    }

    /// Every number of ranges around the places where the form of a chunk changes.
    fn forms<const K: u32>() {
        let short_max = 1 << (24 - K);
        let long_max = Format::<K>::HIT as usize;
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
                let writer = build::<K>(&store, &mut Memory, MAX_WORDS).unwrap();
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
        let needed = build::<18>(&store, &mut Memory, MAX_WORDS).unwrap().room.used() as usize;
        let refused = build::<18>(&store, &mut Memory, needed - 1).err();
        let (max, got) = (needed as u64 - 1, needed as u64);
        assert_eq!(refused, Some(UpdateError::Limit { what: "words of ranges", max, got }));

        // Few words to spare: some chunks find their place before one does not.
        let mut writer = build::<18>(&store, &mut Memory, needed + 8).unwrap();
        let before: Vec<_> =
            writer.reader.regions[DIRECT].u32s().iter().map(|e| e.load(Relaxed)).collect();
        let (chunks, total) = (writer.chunks.references.clone(), writer.chunks.total);
        let mut rng = Rng::new(5);
        let changes: Vec<_> = (0..8).flat_map(|_| step(&mut rng, &routes, &mut store)).collect();
        let full = writer.apply(&changes, &store, &mut NoReaders);
        assert_eq!(full, Err(UpdateError::Rebuild));
        let after = writer.reader.regions[DIRECT].u32s().iter().map(|e| e.load(Relaxed));
        assert!(after.eq(before));
        assert_eq!((&writer.chunks.references, writer.chunks.total), (&chunks, total));
        assert_eq!((writer.room.used() as usize, writer.staged.len()), (needed, 0));
    }
}
