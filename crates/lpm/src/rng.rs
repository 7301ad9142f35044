//! The one pseudo-random generator: small, fast, and any seed will do. It is not for secrets.
//!
//! Source: SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).

use crate::addr::{Addr, Prefix};

/// A sequence of pseudo-random numbers.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// Starts a sequence.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    #[inline]
    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// The next 128 bits.
    #[inline]
    pub fn wide(&mut self) -> u128 {
        u128::from(self.word()) << 64 | u128::from(self.word())
    }

    /// A number below `bound`, which is not 0.
    #[inline]
    #[allow(clippy::cast_possible_truncation, reason = "the product's top half is below `bound`")]
    pub fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.word()) * bound as u128) >> 64) as usize
    }

    /// True in `percent` of 100 cases.
    #[inline]
    pub fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// Any address of the family.
    #[inline]
    pub fn addr<A: Addr>(&mut self) -> A {
        A::from_u128(self.wide())
    }

    /// An address of a prefix.
    #[inline]
    pub fn host<A: Addr>(&mut self, prefix: Prefix<A>) -> A {
        prefix.first() | (self.addr::<A>() & !A::mask(prefix.len()))
    }

    /// A number from 0 up to, and without, 1.
    #[inline]
    #[allow(clippy::cast_precision_loss, reason = "53 bits fit exactly")]
    pub fn unit(&mut self) -> f64 {
        (self.word() >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compared with the authors' C program, with seed 1234567.
    #[test]
    fn the_sequence_is_that_of_the_paper() {
        let mut rng = Rng::new(1_234_567);
        let words: [u64; 2] = core::array::from_fn(|_| rng.word());
        assert_eq!(words, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973]);
        assert!((0..1000).all(|_| rng.below(10) < 10 && (0.0..1.0).contains(&rng.unit())));
        let prefix = Prefix::masked(0x0a01_0000_u32, 16);
        assert!((0..1000).all(|_| rng.host(prefix) >> 16 == 0x0a01));
    }
}
