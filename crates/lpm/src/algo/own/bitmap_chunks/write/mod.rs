//! The writer of bitmap chunks: cuts the changed part into /18s, writes their chunks aside, publishes
//! each by one store into the direct table. One change inside a /18 takes a shortcut (`splice.rs`).
//!
//! Nothing a reader sees is touched before all chunks of a step have found their place. The widths of
//! results are chosen when a table is built; a change that needs the wider one requires a rebuild.

mod splice;

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicU16, AtomicU32};

use super::chunks_fast::reach;
use super::draft::{Draft, Drafts, TailDraft, cut, tail_lines};
use super::{
    BASE, CHUNK_WORDS, CHUNKS, Counts, DIRECT, ENTRIES, Entry, HEAP, MAX_HOP, NAMES, PART_SHIFT,
    PARTS, PREFIXES, Reader, SHIFT, SINK_END, SINK_WORDS, SINKS, TAIL, TAIL_HEAD, TAIL_LINES,
    TAILS, WAITING, Width, words_of,
};
use crate::addr::Prefix;
use crate::error::UpdateError;
use crate::intervals::sweep;
use crate::lookup::{Change, Epoch, Grace, Lookup, Routes, Table};
use crate::mem::Memory;
use crate::next_hop_id::NextHopId;
use crate::simd::ones;
use crate::toolkit::extents::Extents;
use crate::toolkit::line_space::{LINE_WORDS, LineSpace};
use crate::toolkit::retired::Retired;

/// Extents for growth beside a quarter of what is in use: 4 KiB of chunks a part, 4 KiB of tails.
const SLACK_WORDS: usize = 1 << 9;
const SLACK_LINES: usize = 1 << 6;
/// Next hops that get sinks beyond those in use.
const SLACK_HOPS: usize = 1 << 6;

/// Memory that was unlinked, or never came to be: a chunk and its words, or a tail and its lines.
#[derive(Clone, Copy)]
enum Block {
    Chunk(u32, u32),
    Tail(u32, u32),
}

/// What stands where in the regions, and which places are free.
struct Places<E: Entry, W: Width> {
    reader: Arc<Reader<E, W>>,
    /// The heap's parts, each with the word where it starts.
    heap: Vec<(u32, LineSpace)>,
    tails: Extents,
    /// Entries that lead to each sink; there are as many sinks as this is long.
    sinks: Vec<u32>,
    sinks_used: usize,
    chunks: usize,
    /// Words of all chunks, those among them that wait.
    words: usize,
    tail_count: usize,
    /// Words of chunks and lines of tails that readers may still hold.
    waiting_words: usize,
    waiting_lines: usize,
    waiting: Retired<Block>,
}

impl<E: Entry, W: Width> Places<E, W> {
    fn bitmap(&self, place: u32) -> u64 {
        self.reader.regions[HEAP].u64s()[place as usize].load(Relaxed)
    }

    /// The results of the chunk at `place`.
    fn results(&self, place: u32) -> impl Iterator<Item = u32> {
        let first = (place as usize + 1) * W::PER_WORD;
        let count = self.bitmap(place).count_ones() as usize;
        W::slice(&self.reader.regions[HEAP])[first..first + count].iter().map(Width::get)
    }

    /// The entry of the /18 with this index.
    fn entry(&self, index: u32) -> u32 {
        E::slice(&self.reader.regions[DIRECT])[index as usize].read()
    }

    /// Where the chunk of an entry starts; `None` when the entry is a sink's.
    fn chunk(&self, index: u32, entry: u32) -> Option<u32> {
        self.hop(entry).is_none().then(|| self.reader.heap.place(entry, index << SHIFT))
    }

    /// Answers inside a /18, in the form of [`cut`].
    fn pieces(&self, index: u32, pieces: &mut Vec<(u32, u32)>) {
        let entry = self.entry(index);
        let Some(place) = self.chunk(index, entry) else {
            pieces.push((0, self.hop(entry).unwrap_or(0)));
            return;
        };
        let mut push = |start: u32, hop: u32| {
            if pieces.last().is_none_or(|&(_, last)| last != hop) {
                pieces.push((start, hop));
            }
        };
        for (slot, result) in ones(self.bitmap(place)).zip(self.results(place)) {
            if result & W::TAIL == 0 {
                push(slot << 8, result);
                continue;
            }
            let region = &self.reader.regions[TAIL];
            let at = (result & !W::TAIL) as usize * LINE_WORDS;
            let words = region.u64s()[at..at + 4].iter().zip(0..);
            let starts =
                words.flat_map(|(word, at)| ones(word.load(Relaxed)).map(move |i| at * 64 + i));
            let hops = &W::slice(region)[(at + TAIL_HEAD) * W::PER_WORD..];
            starts.zip(hops).for_each(|(start, hop)| push(slot << 8 | start, hop.get()));
        }
    }

    /// The one answer of an entry, if it has one.
    fn hop(&self, entry: u32) -> Option<u32> {
        let hop = entry / SINK_WORDS;
        ((hop as usize) < self.sinks.len()).then_some(hop)
    }

    /// The entry with one answer; its sink is written if it was never used. `None` when there is no
    /// place for it.
    fn uniform(&self, hop: u32) -> Option<u32> {
        if hop as usize >= self.sinks.len() {
            return None;
        }
        let place = hop * SINK_WORDS;
        if self.bitmap(place) == 0 {
            let heap = &self.reader.regions[HEAP];
            W::slice(heap)[(place as usize + 1) * W::PER_WORD].put(hop);
            heap.u64s()[place as usize].store(1, Relaxed);
        }
        Some(place)
    }

    /// Writes a tail aside, and returns its number. `None` when there is no room.
    fn write_tail(&mut self, draft: &TailDraft, hops: &[u32]) -> Option<(u32, Block)> {
        let lines = tail_lines::<W>(draft.len());
        let place = self.tails.take(lines)?;
        self.tail_count += 1;
        let region = &self.reader.regions[TAIL];
        let at = place as usize * LINE_WORDS;
        let words = &region.u64s()[at..];
        let (mut before, mut ranks) = (0, 0);
        for (word, &runs) in draft.runs.iter().enumerate() {
            words[word].store(runs, Relaxed);
            ranks |= before << (16 * word);
            before += u64::from(runs.count_ones());
        }
        words[4].store(ranks, Relaxed);
        let results = &W::slice(region)[(at + TAIL_HEAD) * W::PER_WORD..];
        for (to, &hop) in results.iter().zip(&hops[draft.hops..draft.hops + draft.len()]) {
            to.put(hop);
        }
        Some((W::TAIL | place, Block::Tail(place, lines)))
    }

    /// Writes a chunk aside, and returns its entry. Its tails have their numbers.
    #[allow(clippy::cast_possible_truncation, reason = "a chunk has at most 33 words")]
    fn write_chunk(&mut self, index: u32, runs: u64, results: &[u32]) -> Option<(u32, Block)> {
        let size = words_of::<W>(1, results.len());
        let (start, space) = &mut self.heap[(index >> PART_SHIFT) as usize];
        let place = *start + space.take(size)?;
        self.chunks += 1;
        self.words += size;
        let heap = &self.reader.regions[HEAP];
        heap.u64s()[place as usize].store(runs, Relaxed);
        let to = &W::slice(heap)[(place as usize + 1) * W::PER_WORD..];
        for (to, &result) in to.iter().zip(results) {
            to.put(result);
        }
        Some((place - self.reader.heap.base(index), Block::Chunk(place, size as u32)))
    }

    /// Whether the chunk of a /18 gives just these answers already. Tails are never the same.
    fn same(&self, draft: &Draft, drafts: &Drafts) -> bool {
        self.chunk(draft.index, self.entry(draft.index)).is_some_and(|place| {
            self.bitmap(place) == draft.runs
                && self.results(place).eq(drafts.results(draft).iter().copied())
        })
    }

    /// The blocks of what an entry leads to; none where it has one answer.
    #[allow(clippy::cast_possible_truncation, reason = "a chunk has at most 33 words")]
    fn blocks(&self, index: u32, entry: u32, each: &mut dyn FnMut(Block)) {
        let Some(place) = self.chunk(index, entry) else { return };
        let mut results = 0;
        for result in self.results(place) {
            results += 1;
            if result & W::TAIL != 0 {
                each(self.tail_block(result));
            }
        }
        each(Block::Chunk(place, words_of::<W>(1, results) as u32));
    }

    /// The lines of the tail that a result leads to.
    fn tail_block(&self, result: u32) -> Block {
        let tail = result & !W::TAIL;
        let at = tail as usize * LINE_WORDS;
        let runs = &self.reader.regions[TAIL].u64s()[at..at + 4];
        let count = runs.iter().map(|word| word.load(Relaxed).count_ones()).sum::<u32>();
        Block::Tail(tail, tail_lines::<W>(count as usize))
    }

    /// What was just unlinked waits for its readers.
    fn retire(&mut self, epoch: Epoch, block: Block) {
        self.uncount(block);
        match block {
            Block::Chunk(_, words) => self.waiting_words += words as usize,
            Block::Tail(_, lines) => self.waiting_lines += lines as usize,
        }
        self.waiting.push(epoch, block);
    }

    fn uncount(&mut self, block: Block) {
        match block {
            Block::Chunk(..) => self.chunks -= 1,
            Block::Tail(..) => self.tail_count -= 1,
        }
    }

    fn free(&mut self, block: Block) {
        match block {
            Block::Chunk(place, words) => {
                let part = self.heap.partition_point(|&(start, _)| start <= place) - 1;
                let (start, space) = &mut self.heap[part];
                self.words -= words as usize;
                space.give(place - *start, words as usize);
            }
            Block::Tail(place, lines) => self.tails.give((place, lines)),
        }
    }

    /// Frees what has passed its grace period.
    fn reclaim(&mut self, grace: &dyn Grace) {
        let mut passed = None;
        while let Some(block) = self.waiting.pop(grace, &mut passed) {
            match block {
                Block::Chunk(_, words) => self.waiting_words -= words as usize,
                Block::Tail(_, lines) => self.waiting_lines -= lines as usize,
            }
            self.free(block);
        }
    }

    /// Notes that there are `entries` more of a kind, or fewer.
    fn refer(&mut self, entry: u32, entries: u32, more: bool) {
        if let Some(hop) = self.hop(entry) {
            let count = &mut self.sinks[hop as usize];
            let before = *count;
            *count = if more { before + entries } else { before - entries };
            self.sinks_used += usize::from(before == 0 && *count > 0);
            self.sinks_used -= usize::from(before > 0 && *count == 0);
        }
    }
}

struct Writer<E: Entry, W: Width> {
    places: Places<E, W>,
    prefixes: usize,
    /// How many there were when it was built.
    built: usize,
    drafts: Drafts,
    /// First and last entries of the step at hand, and their new value.
    staged: Vec<(u32, u32, u32)>,
    /// What the step has taken, or unlinked.
    blocks: Vec<Block>,
    /// Kept for their memory: what a step touches, and the answers in a /18 before and after it.
    touched: Vec<(Prefix<u32>, Prefix<u32>)>,
    old: Vec<(u32, u32)>,
    new: Vec<(u32, u32)>,
}

pub(super) fn make(
    routes: &dyn Routes<u32>,
    memory: &mut dyn Memory,
) -> Result<Box<dyn Table<u32>>, UpdateError> {
    let mut drafts = Drafts::default();
    cut(Prefix::ALL, routes, &mut |from, to, pieces| drafts.add(from, to, pieces));
    let tail_lines = drafts.tail_lines::<AtomicU16>();
    if routes.stats().max_next_hop >= AtomicU16::TAIL || tail_lines > AtomicU16::TAIL as usize {
        let plan = Plan::new::<AtomicU32, AtomicU32>(routes, &drafts).expect("entries reach all");
        return Ok(Box::new(build::<AtomicU32, AtomicU32>(routes, drafts, &plan, memory)?));
    }
    if let Some(plan) = Plan::new::<AtomicU16, AtomicU16>(routes, &drafts) {
        return Ok(Box::new(build::<AtomicU16, AtomicU16>(routes, drafts, &plan, memory)?));
    }
    let plan = Plan::new::<AtomicU32, AtomicU16>(routes, &drafts).expect("entries reach all");
    Ok(Box::new(build::<AtomicU32, AtomicU16>(routes, drafts, &plan, memory)?))
}

/// How large the parts of the heap will be.
struct Plan {
    sinks: usize,
    /// First word and words of each part.
    parts: [(usize, usize); PARTS],
    words: usize,
    bases: [u32; PARTS],
}

impl Plan {
    /// `None` when entries do not reach all of it.
    #[allow(clippy::cast_possible_truncation, reason = "a heap below 2^32 words")]
    fn new<E: Entry, W: Width>(routes: &dyn Routes<u32>, drafts: &Drafts) -> Option<Self> {
        let hops = routes.stats().max_next_hop as usize + 1;
        let sinks = (hops + hops / 4 + SLACK_HOPS).min(MAX_HOP as usize + 1);
        let sink_end = (sinks * SINK_WORDS as usize).next_multiple_of(LINE_WORDS);
        let most =
            (E::MAX as usize).saturating_add(1).checked_sub(sink_end)? / LINE_WORDS * LINE_WORDS;
        let mut words = sink_end;
        let mut parts = [(0, 0); PARTS];
        for (part, needed) in parts.iter_mut().zip(drafts.chunk_words::<W>()) {
            // The rule that blocks keep to lines costs at most a word in eight.
            let needed = needed * 9 / 8 + LINE_WORDS;
            let wanted = (needed + needed / 4 + SLACK_WORDS).next_multiple_of(LINE_WORDS);
            if needed > most {
                return None;
            }
            *part = (words, wanted.min(most));
            words += part.1;
        }
        let near = E::MAX < u32::MAX;
        let bases = parts.map(|(start, _)| if near { (start - sink_end) as u32 } else { 0 });
        let beyond = if near { E::MAX as usize } else { 0 };
        // As many as an entry may skip from the last base, so that readers need no check.
        let words = words.max(bases[PARTS - 1] as usize + beyond) + reach::<W>();
        Some(Self { sinks, parts, words, bases })
    }
}

fn build<E: Entry, W: Width>(
    routes: &dyn Routes<u32>,
    drafts: Drafts,
    plan: &Plan,
    memory: &mut dyn Memory,
) -> Result<Writer<E, W>, UpdateError> {
    let stats = routes.stats();
    let lines = drafts.tail_lines::<W>();
    let lines = (lines + lines / 4 + SLACK_LINES).next_power_of_two();
    let heap = memory.region(NAMES[HEAP], plan.words * 8)?;
    let tails = memory.region(NAMES[TAIL], lines * LINE_WORDS * 8)?;
    let direct = memory.region(NAMES[DIRECT], ENTRIES * size_of::<E>())?;
    let bases = memory.region(NAMES[BASE], PARTS * 4)?;
    bases.u32s().iter().zip(plan.bases).for_each(|(to, base)| to.store(base, Relaxed));
    let head = Counts::new(memory, Reader::<E, W>::LAYOUT)?;
    head.set(SINK_END, plan.sinks * SINK_WORDS as usize);
    let lines = u32::try_from(lines).unwrap_or(u32::MAX).min(W::TAIL);
    let reader =
        Reader::new(head, [direct, heap, tails, bases]).expect("regions of the requested sizes");
    let space = |(start, words)| {
        (u32::try_from(start).expect("a heap below 2^32 words"), LineSpace::new(words, 0))
    };
    let places = Places {
        reader: Arc::new(reader),
        heap: plan.parts.map(space).into(),
        tails: Extents::new(lines, 0),
        sinks: vec![0; plan.sinks],
        sinks_used: 0,
        chunks: 0,
        words: 0,
        tail_count: 0,
        waiting_words: 0,
        waiting_lines: 0,
        waiting: Retired::default(),
    };
    let mut writer = Writer {
        places,
        prefixes: stats.prefixes,
        built: stats.prefixes,
        drafts,
        staged: Vec::new(),
        blocks: Vec::new(),
        touched: Vec::new(),
        old: Vec::new(),
        new: Vec::new(),
    };
    if !writer.stage(false) {
        // Cannot be: the regions were measured for these drafts.
        return Err(UpdateError::Memory { name: NAMES[HEAP], bytes: plan.words * 8 });
    }
    for (from, to, entry) in core::mem::take(&mut writer.staged) {
        writer.places.refer(entry, to - from + 1, true);
        let direct = E::slice(&writer.places.reader.regions[DIRECT]);
        direct[from as usize..=to as usize].iter().for_each(|slot| slot.publish(entry));
    }
    writer.blocks = Vec::new();
    writer.drafts = Drafts::default();
    writer.count();
    Ok(writer)
}

impl<E: Entry, W: Width> Writer<E, W> {
    fn count(&self) {
        let (head, places) = (&self.places.reader.head, &self.places);
        head.set(PREFIXES, self.prefixes);
        head.set(CHUNKS, places.chunks);
        let (words, lines) = (places.waiting_words, places.waiting_lines);
        // Counted along the way: to ask all parts would read a line of each at every change.
        head.set(CHUNK_WORDS, places.words - words);
        head.set(SINKS, places.sinks_used);
        head.set(TAILS, places.tail_count);
        head.set(TAIL_LINES, places.tails.used() as usize - lines);
        head.set(WAITING, (words + lines * LINE_WORDS) * 8);
    }

    /// Writes all that is drafted aside. False when there was no room; then nothing is taken.
    fn stage(&mut self, compare: bool) -> bool {
        self.staged.clear();
        self.blocks.clear();
        let fits = self.stage_all(compare).is_some();
        if !fits {
            // No reader has seen any of it.
            for block in self.blocks.drain(..) {
                self.places.uncount(block);
                self.places.free(block);
            }
        }
        fits
    }

    fn stage_all(&mut self, compare: bool) -> Option<()> {
        let Self { places, drafts, staged, blocks, .. } = self;
        for &(from, to, hop) in &drafts.uniform {
            staged.push((from, to, places.uniform(hop)?));
        }
        for at in 0..drafts.chunks.len() {
            let end = drafts.chunks.get(at + 1).map_or(drafts.tails.len(), |next| next.tails);
            let draft = &drafts.chunks[at];
            if compare && draft.tails == end && places.same(draft, drafts) {
                continue;
            }
            for tail in &drafts.tails[draft.tails..end] {
                let (number, block) = places.write_tail(tail, &drafts.hops)?;
                drafts.results[tail.result] = number;
                blocks.push(block);
            }
            let results = drafts.results(draft);
            let (entry, block) = places.write_chunk(draft.index, draft.runs, results)?;
            blocks.push(block);
            staged.push((draft.index, draft.index, entry));
        }
        Some(())
    }

    /// Drafts the chunk of a /18 in which only answers inside `part` may have changed: the rest is
    /// taken from the chunk that is there, so only the routes inside `part` are read.
    fn patch(&mut self, part: Prefix<u32>, routes: &dyn Routes<u32>) {
        const INSIDE: u32 = (1 << SHIFT) - 1;
        let index = part.first() >> SHIFT;
        self.old.clear();
        self.places.pieces(index, &mut self.old);
        let (first, after) = (part.first() & INSIDE, (part.last() & INSIDE) + 1);
        let Self { old, new, drafts, .. } = self;
        new.clear();
        let mut push = |start: u32, hop: u32| {
            if new.last().is_none_or(|&(_, last)| last != hop) {
                new.push((start, hop));
            }
        };
        let begin = old.partition_point(|&(start, _)| start < first);
        old[..begin].iter().for_each(|&(start, hop)| push(start, hop));
        sweep(part, routes, &mut |start, NextHopId(hop)| push(start & INSIDE, hop));
        if after <= INSIDE {
            let next = old.partition_point(|&(start, _)| start <= after);
            push(after, old[next - 1].1);
            old[next..].iter().for_each(|&(start, hop)| push(start, hop));
        }
        drafts.add(index, index, new);
    }

    fn publish_staged(&mut self, grace: &mut dyn Grace) {
        let Self { places, staged, blocks, .. } = self;
        blocks.clear();
        let direct = places.reader.regions[DIRECT].clone();
        for (from, to, entry) in staged.drain(..) {
            for index in from..=to {
                let slot = &E::slice(&direct)[index as usize];
                let old = slot.read();
                // Entries that stay are not written: it would cost their readers a cache miss.
                if old == entry {
                    continue;
                }
                places.refer(entry, 1, true);
                places.refer(old, 1, false);
                places.blocks(index, old, &mut |block| blocks.push(block));
                slot.publish(entry);
            }
        }
        if blocks.is_empty() {
            return;
        }
        let epoch = grace.retire();
        blocks.drain(..).for_each(|block| places.retire(epoch, block));
    }
}

/// What `changes` touch: blocks of at least a /18, none inside another, and of each the part in which
/// answers may have changed.
fn touched(changes: &[Change<u32>], blocks: &mut Vec<(Prefix<u32>, Prefix<u32>)>) {
    blocks.clear();
    for change in changes.iter().filter(|change| change.old != change.new) {
        let block = Prefix::masked(change.prefix.addr(), change.prefix.len().min(BLOCK_LEN));
        blocks.push((block, change.prefix));
    }
    if blocks.len() > 1 {
        blocks.sort_unstable();
        blocks.dedup_by(|next, kept| {
            let inside = kept.0.covers(next.0);
            if inside {
                kept.1 = kept.0;
            }
            inside
        });
    }
}

/// Length of a prefix that has an entry of its own.
#[allow(clippy::cast_possible_truncation, reason = "18")]
const BLOCK_LEN: u8 = 32 - SHIFT as u8;

impl<E: Entry, W: Width> Table<u32> for Writer<E, W> {
    fn apply(
        &mut self,
        changes: &[Change<u32>],
        routes: &dyn Routes<u32>,
        grace: &mut dyn Grace,
    ) -> Result<(), UpdateError> {
        let greatest = Change::greatest_hop(changes, MAX_HOP)?;
        if greatest as usize >= self.places.sinks.len() || greatest >= W::TAIL {
            return Err(UpdateError::Rebuild);
        }
        let prefixes = Change::prefixes_after(changes, self.prefixes);
        // Large entries for what may fit small ones by now.
        if E::MAX == u32::MAX && prefixes * 4 < self.built {
            return Err(UpdateError::Rebuild);
        }
        self.places.reclaim(grace);
        self.drafts.clear();
        touched(changes, &mut self.touched);
        let spliced = match self.touched[..] {
            [(_, part)] if part.len() > BLOCK_LEN => self.splice(part, routes, grace),
            _ => None,
        };
        match spliced {
            Some(true) => {}
            Some(false) => return Err(UpdateError::Rebuild),
            None => {
                for at in 0..self.touched.len() {
                    let (block, part) = self.touched[at];
                    if part.len() > BLOCK_LEN {
                        self.patch(part, routes);
                    } else {
                        let drafts = &mut self.drafts;
                        cut(block, routes, &mut |from, to, pieces| drafts.add(from, to, pieces));
                    }
                }
                if !self.stage(true) {
                    return Err(UpdateError::Rebuild);
                }
                self.publish_staged(grace);
            }
        }
        self.places.reclaim(grace);
        self.prefixes = prefixes;
        self.count();
        Ok(())
    }

    fn publish(&mut self) -> Arc<dyn Lookup<u32>> {
        self.places.reader.clone()
    }
}
