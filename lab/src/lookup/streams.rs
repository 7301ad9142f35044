//! Which addresses are looked up: made before anything is timed, and read in order from memory.
//!
//! An array of 2^20 to 2^22 keys is more than the caches of a core hold and than a branch predictor
//! learns, and the processor fetches it ahead; a generator in the loop would cap it near 450 M/s.

use fingerpost_lpm::testing::{Addresses, Rng, Stream as Draw};
use fingerpost_lpm::{Addr, Prefix};

/// How addresses are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Any address alike: of IPv4 all, of IPv6 those in 2000::/3.
    Uniform,
    /// A random host in a random announced prefix.
    Prefix,
    /// Uniform; blocks of 16 addresses are each looked up 8 times (DXR's REP).
    Repeat,
    /// Upwards through the space, in stretches without a gap.
    Ascending,
    /// Drawn as `prefix`, but the n-th prefix (of a random order) comes 1/n times as often.
    Zipf,
    /// Uniform, each waiting for the answer before it (DXR's SEQ).
    Sequential,
    /// Drawn as `prefix`, each waiting for the answer before it.
    SequentialPrefix,
    /// The addresses of a file, over and over.
    Trace,
}

/// Addresses in a block of [`Stream::Repeat`], and how often it comes.
const REPEAT: (usize, usize) = (16, 8);
/// Stretches of [`Stream::Ascending`].
const STRETCHES: usize = 256;

impl Stream {
    /// All of them, in the order of the document.
    pub const ALL: &[Self] = &[
        Self::Uniform,
        Self::Prefix,
        Self::Repeat,
        Self::Ascending,
        Self::Zipf,
        Self::Sequential,
        Self::SequentialPrefix,
        Self::Trace,
    ];

    /// What options and documents call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Uniform => "uniform",
            Self::Prefix => "prefix",
            Self::Repeat => "repeat",
            Self::Ascending => "ascending",
            Self::Zipf => "zipf",
            Self::Sequential => "sequential",
            Self::SequentialPrefix => "sequential-prefix",
            Self::Trace => "trace",
        }
    }

    /// Whether each lookup waits for the one before.
    pub fn dependent(self) -> bool {
        matches!(self, Self::Sequential | Self::SequentialPrefix)
    }

    /// `count` addresses (a trace repeats until there are so many). The same for the same seed.
    pub fn keys<A: Addr>(
        self,
        prefixes: &[Prefix<A>],
        trace: &[A],
        count: usize,
        seed: u64,
    ) -> Vec<A> {
        let draw = |draw| Addresses::new(draw, prefixes, seed);
        match self {
            Self::Uniform | Self::Sequential => draw(Draw::Uniform).take(count),
            Self::Prefix | Self::SequentialPrefix => draw(Draw::Announced).take(count),
            Self::Repeat => {
                let (block, times) = REPEAT;
                let fresh = draw(Draw::Uniform).take(count.div_ceil(times).max(block));
                let blocks = fresh.chunks(block).flat_map(|block| (0..times).map(move |_| block));
                blocks.flatten().copied().take(count).collect()
            }
            Self::Ascending => ascending(prefixes, count),
            Self::Zipf => zipf(prefixes, count, seed),
            Self::Trace => trace.iter().copied().cycle().take(count).collect(),
        }
    }
}

/// Stretches of neighbours, evenly over the space (of IPv6: over the prefixes, since a stretch
/// anywhere else meets none).
fn ascending<A: Addr>(prefixes: &[Prefix<A>], count: usize) -> Vec<A> {
    let each = count.div_ceil(STRETCHES);
    let mut keys = Vec::with_capacity(count);
    for n in 0..STRETCHES {
        let start = if A::FAMILY == 4 || prefixes.is_empty() {
            A::from_u128((n as u128) << (A::BITS - 8))
        } else {
            prefixes[n * prefixes.len() / STRETCHES].first()
        };
        let stretch = std::iter::successors(Some(start), |addr| Some(addr.next()));
        keys.extend(stretch.take(each.min(count - keys.len())));
    }
    keys
}

/// A random host in a prefix of rank n with a probability of 1/n of the first's.
#[allow(clippy::cast_precision_loss, reason = "ranks stay below 2^53")]
fn zipf<A: Addr>(prefixes: &[Prefix<A>], count: usize, seed: u64) -> Vec<A> {
    if prefixes.is_empty() {
        return Addresses::new(Draw::Uniform, prefixes, seed).take(count);
    }
    let mut rng = Rng::new(seed);
    let mut order: Vec<usize> = (0..prefixes.len()).collect();
    for i in (1..order.len()).rev() {
        order.swap(i, rng.below(i + 1));
    }
    let mut sum = 0.0;
    let weight = |rank: usize| {
        sum += 1.0 / (rank + 1) as f64;
        sum
    };
    let sums: Vec<f64> = (0..prefixes.len()).map(weight).collect();
    let total = sums[sums.len() - 1];
    let draw = |_| {
        let at = (rng.word() >> 11) as f64 / (1u64 << 53) as f64 * total;
        let rank = sums.partition_point(|&sum| sum <= at).min(order.len() - 1);
        let prefix = prefixes[order[rank]];
        prefix.addr() | rng.addr::<A>() & !A::mask(prefix.len())
    };
    (0..count).map(draw).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    fn prefixes() -> Vec<Prefix<u32>> {
        (0..200u32).map(|n| Prefix::masked(n << 24 | n << 16, 16)).collect()
    }

    #[test]
    fn streams_are_as_they_say() {
        let prefixes = prefixes();
        let keys = |stream: Stream| stream.keys(&prefixes, &[7, 9], 4096, 3);
        for &stream in Stream::ALL {
            assert_eq!(keys(stream).len(), 4096, "{stream:?}");
            assert_eq!(keys(stream), keys(stream), "{stream:?}: by seed");
        }
        let announced = |addr: u32| prefixes.iter().any(|p| p.contains(addr));
        assert!(keys(Stream::Prefix).into_iter().all(announced));
        assert_eq!(keys(Stream::Sequential), keys(Stream::Uniform));
        assert_eq!(keys(Stream::SequentialPrefix), keys(Stream::Prefix));
        assert_eq!(keys(Stream::Trace)[..4], [7, 9, 7, 9]);

        let repeat = keys(Stream::Repeat);
        assert!(repeat[..128].chunks(16).all(|block| *block == repeat[..16]));
        assert_ne!(repeat[128..144], repeat[..16]);

        let ascending = keys(Stream::Ascending);
        assert!(ascending.windows(2).all(|w| w[0] < w[1]));
        let gaps = ascending.windows(2).filter(|w| w[1] - w[0] > 1).count();
        assert_eq!(gaps, 255);

        let mut counts = HashMap::new();
        for key in keys(Stream::Zipf) {
            assert!(announced(key));
            *counts.entry(key >> 24).or_insert(0) += 1;
        }
        let mut counts: Vec<usize> = counts.into_values().collect();
        counts.sort_unstable();
        // The first of 200 has 1 / H(200) = 17 %, ten times the tenth's.
        assert!((600..800).contains(&counts[counts.len() - 1]), "{counts:?}");
    }

    #[test]
    fn an_empty_table_has_streams_too() {
        for &stream in Stream::ALL {
            let want = if stream == Stream::Trace { 0 } else { 1000 };
            assert_eq!(stream.keys::<u128>(&[], &[], 1000, 1).len(), want, "{stream:?}");
        }
        let v6 = Stream::Uniform.keys::<u128>(&[], &[], 100, 1);
        assert!(v6.iter().all(|addr| addr >> 125 == 1));
    }
}
