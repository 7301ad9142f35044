//! What this machine can do at best: the loop alone, one load a key, and two loads a key of which the
//! second waits for the first, from a table of as many bytes as a structure has.
//!
//! Keys come from the same array as those of the lookups; the index is the top of a product of the
//! key (so that neighbours part), the loads are of 32 bits. `batch` computes and prefetches groups of
//! 32 before it loads, `single` is a plain loop whose loads the processor overlaps as far as it sees
//! ahead, `dependent` makes each key wait for the value before it.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

use fingerpost_lpm::mem::prefetch;
use fingerpost_lpm::testing::Rng;
use fingerpost_lpm::{Addr, HugePages, Memory, NextHopId, Region};

use crate::document::Mode;

/// What is done with a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loads {
    /// It is read and written down.
    None,
    /// One load.
    One,
    /// Two, one after the other.
    Two,
}

impl Loads {
    /// What documents call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "empty",
            Self::One => "one-load",
            Self::Two => "two-loads",
        }
    }
}

/// A table of random numbers, in memory of the kind that the structures have.
#[derive(Clone, Debug)]
pub struct Words {
    region: Region,
    count: usize,
}

/// Keys whose lines are prefetched before the first is read.
const GROUP: usize = 32;

impl Words {
    /// A table of as many entries as fit in so many bytes, at least one.
    #[allow(clippy::cast_possible_truncation, reason = "any 32 of the bits will do")]
    pub fn new(bytes: u64, seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let count = usize::try_from(bytes / 4).expect("a table in memory").max(1);
        let region = HugePages::new().region("words", count * 4).expect("memory for a table");
        region.u32s().iter().for_each(|word| word.store(rng.word() as u32, Relaxed));
        Self { region, count }
    }

    /// What a loop copies to its registers.
    #[inline(always)]
    fn view(&self) -> View<'_> {
        View(&self.region.u32s()[..self.count])
    }

    /// Loads for each key, by one of the three methods.
    pub fn run<A: Addr>(&self, loads: Loads, mode: Mode, keys: &[A], out: &mut [NextHopId]) {
        self.view().run(loads, mode, keys, out);
    }
}

/// Borrowed [`Words`].
#[derive(Clone, Copy)]
struct View<'a>(&'a [AtomicU32]);

impl View<'_> {
    #[inline(always)]
    fn at(self, place: usize) -> u32 {
        // Relaxed: nobody writes.
        self.0[place].load(Relaxed)
    }

    /// The place of 32 mixed bits.
    #[inline(always)]
    fn place(self, mixed: u32) -> usize {
        // A product of 32 and less than 32 bits: its top half is below the length.
        ((u64::from(mixed) * self.0.len() as u64) >> 32) as usize
    }

    /// What one key yields.
    #[inline(always)]
    fn walk<A: Addr>(self, key: A, loads: Loads) -> u32 {
        match loads {
            Loads::None => mixed(key),
            Loads::One => self.at(self.place(mixed(key))),
            Loads::Two => self.at(self.place(self.at(self.place(mixed(key))))),
        }
    }

    fn run<A: Addr>(self, loads: Loads, mode: Mode, keys: &[A], out: &mut [NextHopId]) {
        // A loop each: a choice within it would be measured too.
        match (loads, mode) {
            (Loads::None, _) => self.each(keys, out, |words, key| words.walk(key, Loads::None)),
            (Loads::One, Mode::Single) => {
                self.each(keys, out, |words, key| words.walk(key, Loads::One));
            }
            (Loads::Two, Mode::Single) => {
                self.each(keys, out, |words, key| words.walk(key, Loads::Two));
            }
            (Loads::One, Mode::Batch) => self.groups_of_one(keys, out),
            (Loads::Two, Mode::Batch) => self.groups_of_two(keys, out),
            (Loads::One, Mode::Dependent) => {
                self.chain(keys, out, |words, key| words.walk(key, Loads::One));
            }
            (Loads::Two, Mode::Dependent) => {
                self.chain(keys, out, |words, key| words.walk(key, Loads::Two));
            }
        }
    }

    #[inline(always)]
    fn each<A: Addr>(self, keys: &[A], out: &mut [NextHopId], walk: impl Fn(Self, A) -> u32) {
        for (&key, out) in keys.iter().zip(out) {
            out.0 = walk(self, key);
        }
    }

    #[inline(always)]
    fn chain<A: Addr>(self, keys: &[A], out: &mut [NextHopId], walk: impl Fn(Self, A) -> u32) {
        let (mask, mut last) = (std::hint::black_box(0), 0);
        for (&key, out) in keys.iter().zip(out) {
            let wait = u128::from(last & mask);
            last = walk(self, key ^ A::from_u128(wait << 64 | wait));
            out.0 = last;
        }
    }

    fn groups_of_one<A: Addr>(self, keys: &[A], out: &mut [NextHopId]) {
        let mut places = [0; GROUP];
        for (keys, out) in keys.chunks(GROUP).zip(out.chunks_mut(GROUP)) {
            for (place, &key) in places.iter_mut().zip(keys) {
                *place = self.place(mixed(key));
                prefetch(&self.0[*place]);
            }
            for (out, &place) in out.iter_mut().zip(&places) {
                out.0 = self.at(place);
            }
        }
    }

    fn groups_of_two<A: Addr>(self, keys: &[A], out: &mut [NextHopId]) {
        let mut places = [0; GROUP];
        for (keys, out) in keys.chunks(GROUP).zip(out.chunks_mut(GROUP)) {
            let places = &mut places[..keys.len()];
            for (place, &key) in places.iter_mut().zip(keys) {
                *place = self.place(mixed(key));
                prefetch(&self.0[*place]);
            }
            for place in places.iter_mut() {
                *place = self.place(self.at(*place));
                prefetch(&self.0[*place]);
            }
            for (out, &place) in out.iter_mut().zip(places.iter()) {
                out.0 = self.at(place);
            }
        }
    }
}

/// 32 bits that hang on all of the key's: a product, folded.
#[inline(always)]
#[allow(clippy::cast_possible_truncation, reason = "both halves are taken")]
fn mixed<A: Addr>(key: A) -> u32 {
    if A::FAMILY == 4 {
        return key.bits(0, 32).wrapping_mul(0x9e37_79b1);
    }
    let key = key.to_u128();
    let folded = (key >> 64) as u64 ^ (key as u64);
    (folded.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_finds_the_same() {
        let keys: Vec<u32> = Rng::new(1).addr::<u32>().to_be_bytes().map(u32::from).to_vec();
        let mut rng = Rng::new(2);
        let keys: Vec<u32> = keys.into_iter().chain((0..100).map(|_| rng.addr())).collect();
        let words = Words::new(4000, 3);
        for loads in [Loads::One, Loads::Two] {
            let want: Vec<_> =
                keys.iter().map(|&key| NextHopId(words.view().walk(key, loads))).collect();
            for mode in [Mode::Single, Mode::Batch, Mode::Dependent] {
                let mut out = vec![NextHopId::NONE; keys.len()];
                words.run(loads, mode, &keys, &mut out);
                assert_eq!(out, want, "{loads:?} {mode:?}");
            }
        }
        let mut places: Vec<_> = keys.iter().map(|&key| words.view().place(mixed(key))).collect();
        places.sort_unstable();
        places.dedup();
        assert!(places.len() > 90 && places.last() < Some(&1000), "{}", places.len());
        assert_eq!(Words::new(0, 1).count, 1);
        let v6 = [1u128 << 127, 1, 3 << 60];
        let mixed: Vec<u32> = v6.iter().map(|&key| super::mixed(key)).collect();
        assert!(mixed[0] != mixed[1] && mixed[1] != mixed[2]);
    }
}
