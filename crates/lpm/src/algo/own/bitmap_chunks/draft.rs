//! What a step makes, before it has a place: a part of the table cut into /18s, and what their chunks
//! will hold, in flat lists, so that a whole table can be drafted as well as one change.

use alloc::vec::Vec;

use super::{LINE_WORDS, PART_SHIFT, PARTS, SHIFT, TAIL_HEAD, Width, words_of};
use crate::addr::Prefix;
use crate::intervals::sweep;
use crate::lookup::Routes;
use crate::next_hop_id::NextHopId;

/// Answers inside a /18: where each starts, and the next hop from there on.
pub(super) type Pieces = [(u32, u32)];

/// Cuts a block of at least a /18 and calls `place` for each /18 with several answers, and for each run
/// of /18s with a single one: first, last, pieces.
pub(super) fn cut(
    block: Prefix<u32>,
    routes: &dyn Routes<u32>,
    place: &mut dyn FnMut(u32, u32, &Pieces),
) {
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

/// What a step makes, before it has a place: all in flat lists, so that a whole table can be drafted.
#[derive(Default)]
pub(super) struct Drafts {
    /// Runs of /18s with one answer: first, last, next hop.
    pub(super) uniform: Vec<(u32, u32, u32)>,
    pub(super) chunks: Vec<Draft>,
    pub(super) results: Vec<u32>,
    pub(super) tails: Vec<TailDraft>,
    pub(super) hops: Vec<u32>,
}

/// A chunk to be: which /18, where its answers change, and where its parts start in the lists.
pub(super) struct Draft {
    pub(super) index: u32,
    pub(super) runs: u64,
    pub(super) results: usize,
    pub(super) tails: usize,
}

/// A tail to be; its number will stand at `result`.
pub(super) struct TailDraft {
    pub(super) result: usize,
    pub(super) runs: [u64; 4],
    pub(super) hops: usize,
}

impl TailDraft {
    pub(super) fn len(&self) -> usize {
        self.runs.iter().map(|word| word.count_ones() as usize).sum()
    }
}

impl Drafts {
    pub(super) fn clear(&mut self) {
        self.uniform.clear();
        self.chunks.clear();
        self.results.clear();
        self.tails.clear();
        self.hops.clear();
    }

    pub(super) fn add(&mut self, from: u32, to: u32, pieces: &Pieces) {
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

    pub(super) fn results(&self, draft: &Draft) -> &[u32] {
        &self.results[draft.results..draft.results + draft.runs.count_ones() as usize]
    }

    /// Words of the chunks of each part with results of this width, without what their order wastes.
    pub(super) fn chunk_words<W: Width>(&self) -> [usize; PARTS] {
        let mut parts = [0; PARTS];
        for draft in &self.chunks {
            parts[(draft.index >> PART_SHIFT) as usize] +=
                words_of::<W>(1, draft.runs.count_ones() as usize);
        }
        parts
    }

    /// Lines of all tails with results of this width.
    pub(super) fn tail_lines<W: Width>(&self) -> usize {
        self.tails.iter().map(|tail| tail_lines::<W>(tail.len()) as usize).sum()
    }
}

#[allow(clippy::cast_possible_truncation, reason = "a tail has at most 256 results")]
pub(super) fn tail_lines<W: Width>(results: usize) -> u32 {
    words_of::<W>(TAIL_HEAD, results).div_ceil(LINE_WORDS) as u32
}
