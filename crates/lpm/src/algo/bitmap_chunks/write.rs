//! The writer of bitmap chunks: cuts the changed part into /18s, writes their chunks aside, publishes
//! each by one store into the direct table.
//!
//! Nothing a reader sees is touched before all chunks of a step have found their place. The widths of
//! results are chosen when a table is built; a change that needs the wider one asks for that.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::sync::atomic::Ordering::{Relaxed, Release};
use core::sync::atomic::{AtomicU16, AtomicU32};

use super::space::Space;
use super::{
    CHUNK_WORDS, CHUNKS, Counts, DIRECT, ENTRIES, HEAP, LINE_WORDS, MAX_HOP, NAMES, PREFIXES,
    Reader, SHIFT, SINK_WORDS, SINKS, TAIL, TAIL_HEAD, TAIL_LINES, TAILS, WAITING, Width, words,
};
use crate::addr::Prefix;
use crate::intervals::sweep;
use crate::lookup::{Change, Epoch, Grace, Lookup, NextHopId, Routes, Table, UpdateError};
use crate::mem::Memory;
use crate::room::Room;

/// Room for growth beside a quarter of what is in use: 64 KiB of chunks, 4 KiB of tails.
const SLACK_WORDS: usize = 1 << 13;
const SLACK_LINES: usize = 1 << 6;
/// Next hops that get sinks beyond those in use.
const SLACK_HOPS: usize = 1 << 6;

/// Answers inside a /18: where each starts, and the next hop from there on.
type Pieces = [(u32, u32)];

/// Cuts a block of at least a /18 and calls `place` for each /18 with several answers, and for each run
/// of /18s with a single one: first, last, pieces.
fn cut(block: Prefix<u32>, routes: &dyn Routes<u32>, place: &mut dyn FnMut(u32, u32, &Pieces)) {
    let mut chunk = block.first() >> SHIFT;
    let mut pieces: Vec<(u32, u32)> = Vec::with_capacity(64);
    let mut close = |pieces: &mut Vec<(u32, u32)>, chunk: u32, to: u32| {
        let last = pieces.last().map_or(0, |&(_, hop)| hop);
        let several = pieces.len() > 1;
        if several {
            place(chunk, chunk, pieces);
        }
        // `to` is one past the run, and past the table at its end.
        if chunk + u32::from(several) < to {
            place(chunk + u32::from(several), to - 1, &[(0, last)]);
        }
        pieces.clear();
        last
    };
    sweep(block, routes, &mut |start, NextHopId(hop)| {
        let inside = start & ((1 << SHIFT) - 1);
        if start >> SHIFT != chunk {
            let last = close(&mut pieces, chunk, start >> SHIFT);
            chunk = start >> SHIFT;
            if inside > 0 {
                pieces.push((0, last));
            }
        }
        pieces.push((inside, hop));
    });
    close(&mut pieces, chunk, (block.last() >> SHIFT) + 1);
}

/// The places of ones, from bit 0 on.
fn ones(mut word: u64) -> impl Iterator<Item = u32> {
    core::iter::from_fn(move || {
        let place = word.trailing_zeros();
        word &= word.wrapping_sub(1);
        (place < 64).then_some(place)
    })
}

/// What a step makes, before it has a place: all in flat lists, so that a whole table can be drafted.
#[derive(Default)]
struct Drafts {
    /// Runs of /18s with one answer: first, last, next hop.
    uniform: Vec<(u32, u32, u32)>,
    chunks: Vec<Draft>,
    results: Vec<u32>,
    tails: Vec<TailDraft>,
    hops: Vec<u32>,
}

/// A chunk to be: which /18, where its answers change, and where its parts start in the lists.
struct Draft {
    index: u32,
    runs: u64,
    results: usize,
    tails: usize,
}

/// A tail to be; its number will stand at `result`.
struct TailDraft {
    result: usize,
    runs: [u64; 4],
    hops: usize,
}

impl TailDraft {
    fn len(&self) -> usize {
        self.runs.iter().map(|word| word.count_ones() as usize).sum()
    }
}

impl Drafts {
    fn clear(&mut self) {
        self.uniform.clear();
        self.chunks.clear();
        self.results.clear();
        self.tails.clear();
        self.hops.clear();
    }

    fn add(&mut self, from: u32, to: u32, pieces: &Pieces) {
        if let [(_, hop)] = *pieces {
            self.uniform.push((from, to, hop));
            return;
        }
        let (results, tails) = (self.results.len(), self.tails.len());
        let runs = self.slots(pieces);
        self.chunks.push(Draft { index: from, runs, results, tails });
    }

    /// Cuts the pieces of a /18 into slots and returns the bitmap of those that start a run.
    fn slots(&mut self, pieces: &Pieces) -> u64 {
        let mut runs = 0;
        let mut before = 0;
        let mut rest = pieces;
        while let [(start, _), ..] = *rest {
            let slot = start >> 8;
            let inside = rest.iter().take_while(|&&(start, _)| start >> 8 == slot).count();
            let (these, after) = rest.split_at(inside);
            let last = these[inside - 1].1;
            runs |= 1 << slot;
            if inside == 1 && start & 255 == 0 {
                self.results.push(last);
            } else {
                self.tail(before, these);
                // What is last in this /24 goes on in the next one, unless that has edges of its own.
                if slot < 63 && after.first().is_none_or(|&(start, _)| start >> 8 > slot + 1) {
                    runs |= 1 << (slot + 1);
                    self.results.push(last);
                }
            }
            (before, rest) = (last, after);
        }
        runs
    }

    fn tail(&mut self, before: u32, pieces: &Pieces) {
        let mut tail =
            TailDraft { result: self.results.len(), runs: [0; 4], hops: self.hops.len() };
        let outer = (pieces[0].0 & 255 != 0).then_some((0, before));
        for (start, hop) in outer.into_iter().chain(pieces.iter().copied()) {
            tail.runs[start as usize >> 6 & 3] |= 1 << (start & 63);
            self.hops.push(hop);
        }
        self.tails.push(tail);
        // Its number is not known yet.
        self.results.push(0);
    }

    fn results(&self, draft: &Draft) -> &[u32] {
        &self.results[draft.results..draft.results + draft.runs.count_ones() as usize]
    }

    /// Words of all chunks with results of this width, without what their order wastes.
    fn chunk_words<W: Width>(&self) -> usize {
        let size = |draft: &Draft| words::<W>(1, draft.runs.count_ones() as usize);
        self.chunks.iter().map(size).sum()
    }

    /// Lines of all tails with results of this width.
    fn tail_lines<W: Width>(&self) -> usize {
        self.tails.iter().map(|tail| tail_lines::<W>(tail.len()) as usize).sum()
    }
}

#[allow(clippy::cast_possible_truncation, reason = "a tail has at most 256 results")]
fn tail_lines<W: Width>(results: usize) -> u32 {
    words::<W>(TAIL_HEAD, results).div_ceil(LINE_WORDS) as u32
}

/// Memory that was unlinked, or never came to be: a chunk and its words, or a tail and its lines.
#[derive(Clone, Copy)]
enum Block {
    Chunk(u32, u32),
    Tail(u32, u32),
}

/// What stands where in the regions, and which places are free.
struct Places<W: Width> {
    reader: Arc<Reader<W>>,
    heap: Space,
    tails: Room,
    /// Entries that lead to each sink; there are as many sinks as this is long.
    sinks: Vec<u32>,
    sinks_used: usize,
    chunks: usize,
    tail_count: usize,
    /// Words of chunks and lines of tails that readers may still hold.
    waiting_words: usize,
    waiting_lines: usize,
    waiting: VecDeque<(Epoch, Block)>,
}

impl<W: Width> Places<W> {
    fn bitmap(&self, place: u32) -> u64 {
        self.reader.regions[HEAP].u64s()[place as usize].load(Relaxed)
    }

    /// The results of the chunk at `place`.
    fn results(&self, place: u32) -> impl Iterator<Item = u32> {
        let first = (place as usize + 1) * W::PER_WORD;
        let count = self.bitmap(place).count_ones() as usize;
        W::slice(&self.reader.regions[HEAP])[first..first + count].iter().map(Width::get)
    }

    /// The answers of the chunk at `place`, as [`cut`] tells them.
    fn pieces(&self, place: u32, pieces: &mut Vec<(u32, u32)>) {
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

    /// The next hop whose sink stands at `place`.
    fn sink_of(&self, place: u32) -> Option<usize> {
        let hop = place as usize / SINK_WORDS;
        (hop < self.sinks.len()).then_some(hop)
    }

    /// The sink of a next hop, written if it was never used. `None` when there is no place for it.
    #[allow(clippy::cast_possible_truncation, reason = "a sink has two words")]
    fn sink(&self, hop: u32) -> Option<u32> {
        if hop as usize >= self.sinks.len() {
            return None;
        }
        let place = hop * SINK_WORDS as u32;
        if self.bitmap(place) == 0 {
            let heap = &self.reader.regions[HEAP];
            heap.u64s()[place as usize].store(1, Relaxed);
            W::slice(heap)[(place as usize + 1) * W::PER_WORD].put(hop);
        }
        Some(place)
    }

    /// Writes a tail aside, and tells its number. `None` when there is no room.
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

    /// Writes a chunk aside; its tails have their numbers.
    #[allow(clippy::cast_possible_truncation, reason = "a chunk has at most 33 words")]
    fn write_chunk(&mut self, runs: u64, results: &[u32]) -> Option<(u32, Block)> {
        let size = words::<W>(1, results.len());
        let place = self.heap.take(size)?;
        self.chunks += 1;
        let heap = &self.reader.regions[HEAP];
        heap.u64s()[place as usize].store(runs, Relaxed);
        let to = &W::slice(heap)[(place as usize + 1) * W::PER_WORD..];
        for (to, &result) in to.iter().zip(results) {
            to.put(result);
        }
        Some((place, Block::Chunk(place, size as u32)))
    }

    /// Whether the chunk at `place` gives just these answers. Tails are never the same.
    fn same(&self, place: u32, draft: &Draft, drafts: &Drafts) -> bool {
        self.bitmap(place) == draft.runs
            && self.results(place).eq(drafts.results(draft).iter().copied())
    }

    /// The blocks of what an entry leads to; none for a sink.
    #[allow(clippy::cast_possible_truncation, reason = "a chunk has at most 33 words")]
    fn blocks(&self, place: u32, each: &mut dyn FnMut(Block)) {
        if self.sink_of(place).is_some() {
            return;
        }
        let mut results = 0;
        for result in self.results(place) {
            results += 1;
            if result & W::TAIL != 0 {
                let tail = result & !W::TAIL;
                let at = tail as usize * LINE_WORDS;
                let runs = &self.reader.regions[TAIL].u64s()[at..at + 4];
                let count = runs.iter().map(|word| word.load(Relaxed).count_ones()).sum::<u32>();
                each(Block::Tail(tail, tail_lines::<W>(count as usize)));
            }
        }
        each(Block::Chunk(place, words::<W>(1, results) as u32));
    }

    fn uncount(&mut self, block: Block) {
        match block {
            Block::Chunk(..) => self.chunks -= 1,
            Block::Tail(..) => self.tail_count -= 1,
        }
    }

    fn free(&mut self, block: Block) {
        match block {
            Block::Chunk(place, words) => self.heap.give(place, words as usize),
            Block::Tail(place, lines) => self.tails.give((place, lines)),
        }
    }

    /// Frees what has passed its grace period.
    fn reclaim(&mut self, grace: &dyn Grace) {
        while let Some(&(epoch, block)) = self.waiting.front()
            && grace.passed(epoch)
        {
            self.waiting.pop_front();
            match block {
                Block::Chunk(_, words) => self.waiting_words -= words as usize,
                Block::Tail(_, lines) => self.waiting_lines -= lines as usize,
            }
            self.free(block);
        }
    }

    /// Notes that `entries` more lead to a place, or fewer.
    fn refer(&mut self, place: u32, entries: u32, more: bool) {
        if let Some(hop) = self.sink_of(place) {
            let count = &mut self.sinks[hop];
            let before = *count;
            *count = if more { before + entries } else { before - entries };
            self.sinks_used += usize::from(before == 0 && *count > 0);
            self.sinks_used -= usize::from(before > 0 && *count == 0);
        }
    }
}

struct Writer<W: Width> {
    places: Places<W>,
    prefixes: usize,
    drafts: Drafts,
    /// Of the step at hand: first and last entry and what they become.
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
    if routes.stats().max_next_hop < AtomicU16::TAIL && tail_lines <= AtomicU16::TAIL as usize {
        Ok(Box::new(build::<AtomicU16>(routes, drafts, memory)?))
    } else {
        Ok(Box::new(build::<AtomicU32>(routes, drafts, memory)?))
    }
}

fn build<W: Width>(
    routes: &dyn Routes<u32>,
    drafts: Drafts,
    memory: &mut dyn Memory,
) -> Result<Writer<W>, UpdateError> {
    let stats = routes.stats();
    let hops = stats.max_next_hop as usize + 1;
    let sinks = (hops + hops / 4 + SLACK_HOPS).min(MAX_HOP as usize + 1);
    // Some ten in a hundred words are lost to the rule that blocks keep to lines.
    let chunks = drafts.chunk_words::<W>() * 11 / 10;
    let words = sinks * SINK_WORDS + chunks + chunks / 4 + SLACK_WORDS;
    let lines = drafts.tail_lines::<W>();
    let lines = (lines + lines / 4 + SLACK_LINES).next_power_of_two();
    // A power of two, as readers mask their indices.
    let heap = memory.region(NAMES[HEAP], words.next_power_of_two() * 8)?;
    let tails = memory.region(NAMES[TAIL], lines * LINE_WORDS * 8)?;
    let direct = memory.region(NAMES[DIRECT], ENTRIES * 4)?;
    let head = Counts::new(memory, W::LAYOUT)?;
    let lines = u32::try_from(lines).unwrap_or(u32::MAX).min(W::TAIL);
    let words = heap.u64s().len();
    let reader = Reader::new(head, direct, heap, tails).expect("regions of the asked sizes");
    let places = Places {
        reader: Arc::new(reader),
        heap: Space::new(words, sinks * SINK_WORDS),
        tails: Room::new(lines, 0),
        sinks: vec![0; sinks],
        sinks_used: 0,
        chunks: 0,
        tail_count: 0,
        waiting_words: 0,
        waiting_lines: 0,
        waiting: VecDeque::new(),
    };
    let mut writer = Writer {
        places,
        prefixes: stats.prefixes,
        drafts,
        staged: Vec::new(),
        blocks: Vec::new(),
        touched: Vec::new(),
        old: Vec::new(),
        new: Vec::new(),
    };
    if !writer.stage(false) {
        // Cannot be: the regions were measured for these drafts.
        return Err(UpdateError::Memory { name: NAMES[HEAP], bytes: words * 8 });
    }
    for (from, to, place) in core::mem::take(&mut writer.staged) {
        writer.places.refer(place, to - from + 1, true);
        let direct = &writer.places.reader.regions[DIRECT].u32s()[from as usize..=to as usize];
        direct.iter().for_each(|entry| entry.store(place, Relaxed));
    }
    writer.blocks = Vec::new();
    writer.drafts = Drafts::default();
    writer.count();
    Ok(writer)
}

impl<W: Width> Writer<W> {
    fn count(&self) {
        let (head, places) = (&self.places.reader.head, &self.places);
        head.set(PREFIXES, self.prefixes);
        head.set(CHUNKS, places.chunks);
        let (words, lines) = (places.waiting_words, places.waiting_lines);
        head.set(CHUNK_WORDS, places.heap.used() - words);
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
            staged.push((from, to, places.sink(hop)?));
        }
        let direct = places.reader.regions[DIRECT].clone();
        for at in 0..drafts.chunks.len() {
            let end = drafts.chunks.get(at + 1).map_or(drafts.tails.len(), |next| next.tails);
            let draft = &drafts.chunks[at];
            if compare && draft.tails == end {
                let old = direct.u32s()[draft.index as usize].load(Relaxed);
                if places.same(old, draft, drafts) {
                    continue;
                }
            }
            for tail in &drafts.tails[draft.tails..end] {
                let (number, block) = places.write_tail(tail, &drafts.hops)?;
                drafts.results[tail.result] = number;
                blocks.push(block);
            }
            let (place, block) = places.write_chunk(draft.runs, drafts.results(draft))?;
            blocks.push(block);
            staged.push((draft.index, draft.index, place));
        }
        Some(())
    }

    /// Drafts the chunk of a /18 in which only answers inside `part` may have changed: the rest is
    /// taken from the chunk that is there, so only the routes inside `part` are asked for.
    fn patch(&mut self, part: Prefix<u32>, routes: &dyn Routes<u32>) {
        const INSIDE: u32 = (1 << SHIFT) - 1;
        let index = part.first() >> SHIFT;
        let place = self.places.reader.regions[DIRECT].u32s()[index as usize].load(Relaxed);
        self.old.clear();
        self.places.pieces(place, &mut self.old);
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
        for (from, to, place) in staged.drain(..) {
            for entry in &direct.u32s()[from as usize..=to as usize] {
                let old = entry.load(Relaxed);
                // Entries that stay are not written: it would cost their readers a cache miss.
                if old == place {
                    continue;
                }
                places.refer(place, 1, true);
                places.refer(old, 1, false);
                places.blocks(old, &mut |block| blocks.push(block));
                // Release: pairs with the readers' acquire; the chunk was written before.
                entry.store(place, Release);
            }
        }
        if blocks.is_empty() {
            return;
        }
        let epoch = grace.retire();
        for block in blocks.drain(..) {
            places.uncount(block);
            match block {
                Block::Chunk(_, words) => places.waiting_words += words as usize,
                Block::Tail(_, lines) => places.waiting_lines += lines as usize,
            }
            places.waiting.push_back((epoch, block));
        }
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

impl<W: Width> Table<u32> for Writer<W> {
    fn apply(
        &mut self,
        changes: &[Change<u32>],
        routes: &dyn Routes<u32>,
        grace: &mut dyn Grace,
    ) -> Result<(), UpdateError> {
        let greatest = changes.iter().map(|change| change.new.0).max().unwrap_or(0);
        if greatest > MAX_HOP {
            let (max, got) = (u64::from(MAX_HOP), u64::from(greatest));
            return Err(UpdateError::Limit { what: "next-hop index", max, got });
        }
        if greatest as usize >= self.places.sinks.len() || greatest >= W::TAIL {
            return Err(UpdateError::Rebuild);
        }
        self.places.reclaim(grace);
        self.drafts.clear();
        touched(changes, &mut self.touched);
        for at in 0..self.touched.len() {
            let (block, part) = self.touched[at];
            if part.len() > BLOCK_LEN {
                self.patch(part, routes);
            } else {
                cut(block, routes, &mut |from, to, pieces| self.drafts.add(from, to, pieces));
            }
        }
        if !self.stage(true) {
            return Err(UpdateError::Rebuild);
        }
        self.publish_staged(grace);
        self.places.reclaim(grace);
        for change in changes {
            self.prefixes += usize::from(change.old.is_none() && !change.new.is_none());
            self.prefixes -= usize::from(!change.old.is_none() && change.new.is_none());
        }
        self.count();
        Ok(())
    }

    fn publish(&mut self) -> Arc<dyn Lookup<u32>> {
        self.places.reader.clone()
    }
}
