//! The runs of a chunk of 64 slots: a bit where each starts and what it holds, as writers take them apart
//! and put others in.

/// Slots of a chunk.
pub(crate) const SLOTS: usize = 64;

/// The results of a chunk, by run.
pub(crate) struct Runs {
    pub(crate) bits: u64,
    pub(crate) results: [u32; SLOTS],
    pub(crate) count: usize,
}

impl Runs {
    /// One run.
    pub(crate) fn one(result: u32) -> Self {
        let mut runs = Self { bits: 0, results: [0; SLOTS], count: 0 };
        runs.push(0, result);
        runs
    }

    /// What a slot holds.
    pub(crate) fn at(&self, slot: u32) -> u32 {
        self.results[(self.bits << (63 - slot)).count_ones() as usize - 1]
    }

    pub(crate) fn push(&mut self, slot: u32, result: u32) {
        self.bits |= 1 << slot;
        self.results[self.count] = result;
        self.count += 1;
    }

    /// One more run, unless it continues the run before. A tail never does: its result
    /// is no answer's.
    pub(crate) fn push_new(&mut self, slot: u32, result: u32) {
        if self.count == 0 || self.results[self.count - 1] != result {
            self.push(slot, result);
        }
    }

    pub(crate) fn as_slice(&self) -> &[u32] {
        &self.results[..self.count]
    }
}

/// The runs of a chunk that has `new` in its slots `first` to `last`, and what it had in all others.
pub(crate) fn spliced(old: &Runs, first: u32, last: u32, new: &[(u32, u32)], tail: u32) -> Runs {
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
            for (slot, &result) in (0..).zip(&slots) {
                assert!((from..=to).contains(&slot) || old.at(slot) == result);
            }
            let got = spliced(&old, from, to, &new, TAIL);
            let want = encode(&slots);
            assert_eq!((got.bits, got.as_slice()), (want.bits, want.as_slice()));
        }
    }
}
