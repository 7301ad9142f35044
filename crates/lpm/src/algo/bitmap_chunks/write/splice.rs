//! One change inside a /18 that cuts no /24: the runs of its chunk are spliced.
//!
//! Nearly all changes of a full table are of this kind. Of the chunk only the runs of the changed part are
//! made from routes; the others are copied, and the tails behind them stay where they are.

use super::super::draft::ones;
use super::super::{DIRECT, Entry, SHIFT, Width, words_of};
use super::{Block, Writer};
use crate::addr::Prefix;
use crate::intervals::sweep;
use crate::lookup::{Grace, NextHopId, Routes};

/// Slots of a chunk.
const SLOTS: usize = 64;

/// The results of a chunk, by run.
struct Runs {
    bits: u64,
    results: [u32; SLOTS],
    count: usize,
}

impl Runs {
    fn push(&mut self, slot: u32, result: u32) {
        self.bits |= 1 << slot;
        self.results[self.count] = result;
        self.count += 1;
    }

    /// One more run, unless what it says goes on from the run before. A tail never goes on: its result
    /// is no answer's.
    fn push_new(&mut self, slot: u32, result: u32) {
        if self.count == 0 || self.results[self.count - 1] != result {
            self.push(slot, result);
        }
    }

    fn as_slice(&self) -> &[u32] {
        &self.results[..self.count]
    }
}

impl<E: Entry, W: Width> Writer<E, W> {
    /// Makes `part`, which is inside a /18, anew, and publishes it. `None` when it takes more than that:
    /// nothing is done then. Else whether there was room.
    pub(super) fn splice(
        &mut self,
        part: Prefix<u32>,
        routes: &dyn Routes<u32>,
        grace: &mut dyn Grace,
    ) -> Option<bool> {
        let index = part.first() >> SHIFT;
        let place = self.places.chunk(index, self.places.entry(index))?;
        if part.len() > 24 {
            return None;
        }
        self.new.clear();
        let Self { new, places, .. } = self;
        let mut whole = true;
        sweep(part, routes, &mut |start, NextHopId(hop)| {
            whole &= start & 255 == 0;
            new.push((start >> 8 & 63, hop));
        });
        if !whole {
            return None;
        }
        let mut old = Runs { bits: places.bitmap(place), results: [0; SLOTS], count: 0 };
        for (to, result) in old.results.iter_mut().zip(places.results(place)) {
            *to = result;
            old.count += 1;
        }
        let (first, last) = (part.first() >> 8 & 63, part.last() >> 8 & 63);
        let fresh = spliced(&old, first, last, new, W::TAIL);
        if fresh.count == 1 {
            return None;
        }
        if fresh.bits == old.bits && fresh.as_slice() == old.as_slice() {
            return Some(true);
        }
        let Some((entry, _)) = places.write_chunk(index, fresh.bits, fresh.as_slice()) else {
            return Some(false);
        };
        E::slice(&places.reader.regions[DIRECT])[index as usize].publish(entry);
        let epoch = grace.retire();
        for (slot, &result) in ones(old.bits).zip(old.as_slice()) {
            if (first..=last).contains(&slot) && result & W::TAIL != 0 {
                let tail = places.tail_block(result);
                places.retire(epoch, tail);
            }
        }
        let size = u32::try_from(words_of::<W>(1, old.count)).expect("at most 33 words");
        places.retire(epoch, Block::Chunk(place, size));
        Some(true)
    }
}

/// The runs of a chunk that has `new` in its slots `first` to `last`, and what it had in all others.
fn spliced(old: &Runs, first: u32, last: u32, new: &[(u32, u32)], tail: u32) -> Runs {
    let mut runs = Runs { bits: old.bits & ((1 << first) - 1), results: [0; SLOTS], count: 0 };
    runs.count = runs.bits.count_ones() as usize;
    runs.results[..runs.count].copy_from_slice(&old.results[..runs.count]);
    for &(slot, hop) in new {
        runs.push_new(slot, hop);
    }
    if last < 63 {
        // What serves the next slot, from wherever its run started.
        let upto = u64::MAX >> (62 - last);
        let before = (old.bits & upto).count_ones() as usize;
        let next = old.results[before - 1];
        if next & tail != 0 {
            runs.push(last + 1, next);
        } else {
            runs.push_new(last + 1, next);
        }
        let rest = &old.results[before..old.count];
        runs.results[runs.count..runs.count + rest.len()].copy_from_slice(rest);
        runs.count += rest.len();
        runs.bits |= old.bits & !upto;
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Rng;
    use alloc::vec::Vec;

    const TAIL: u32 = 1 << 15;

    /// One result a slot, a tail by its number.
    fn encode(slots: &[u32; SLOTS]) -> Runs {
        let mut runs = Runs { bits: 0, results: [0; SLOTS], count: 0 };
        for (slot, &result) in (0..).zip(slots) {
            if result & TAIL != 0 {
                runs.push(slot, result);
            } else {
                runs.push_new(slot, result);
            }
        }
        runs
    }

    #[test]
    fn a_splice_is_what_would_have_been_made_anew() {
        let mut rng = Rng::new(3);
        for _ in 0..20_000 {
            let mut tails = 0;
            let mut hop = 0;
            let mut slots = [0; SLOTS].map(|_: u32| {
                if rng.chance(30) {
                    hop = u32::from(rng.chance(50)) + u32::from(rng.chance(50));
                }
                let deep = rng.chance(10);
                tails += u32::from(deep);
                if deep { TAIL | tails } else { hop }
            });
            let old = encode(&slots);
            let log = rng.below(6);
            let first = (rng.below(SLOTS) >> log) << log;
            let mut new: Vec<(u32, u32)> = Vec::new();
            for (at, slot) in slots.iter_mut().enumerate().skip(first).take(1 << log) {
                *slot = u32::from(rng.chance(40)) + u32::from(rng.chance(40));
                if new.last().is_none_or(|last| last.1 != *slot) {
                    new.push((u32::try_from(at).unwrap(), *slot));
                }
            }
            let (from, to) = (first, first + (1 << log) - 1);
            let [from, to] = [from, to].map(|slot| u32::try_from(slot).unwrap());
            let got = spliced(&old, from, to, &new, TAIL);
            let want = encode(&slots);
            assert_eq!((got.bits, got.as_slice()), (want.bits, want.as_slice()));
        }
    }
}
