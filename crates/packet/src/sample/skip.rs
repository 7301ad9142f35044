//! Which packets are sampled: one of N on average, at random distances.
//!
//! Source: sFlow version 5 (sflow.org, July 2004), section 3.1: a count of packets to skip, drawn anew after each sample, whose
//! mean is the sampling rate, so that traffic with a period is not sampled at one phase of it.
//! Shape:  distances are uniform in 1 ..= 2N - 1. The number of samples varies less than with independent choices: a third of
//!         their variance.
//! Cost:   a subtraction a batch, and a random number a sample.

use fingerpost_lpm::Rng;

/// Countdown of one worker to its next sample.
#[derive(Clone, Debug)]
pub struct Skip {
    rate: u32,
    /// Packets up to the next sample, that one included; at least 1.
    left: u64,
    rng: Rng,
}

impl Skip {
    /// A countdown with this sampling rate, at least 1: one sample in `rate` packets on average.
    pub fn new(rate: u32, seed: u64) -> Self {
        let mut skip = Self { rate: rate.max(1), left: 0, rng: Rng::new(seed) };
        skip.left = skip.distance();
        skip
    }

    fn distance(&mut self) -> u64 {
        1 + self.rng.below(2 * self.rate as usize - 1) as u64
    }

    /// The first packet to sample among the next `packets`, counted from 0; `None` passes them all. After a sample, call it
    /// with the packets that follow.
    #[inline]
    pub fn next(&mut self, packets: usize) -> Option<usize> {
        let packets = packets as u64;
        if self.left > packets {
            self.left -= packets;
            return None;
        }
        let at = self.left - 1;
        self.left = self.distance();
        usize::try_from(at).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Samples of so many packets, in batches of some size.
    fn samples(rate: u32, seed: u64, packets: usize, batch: usize) -> Vec<usize> {
        let (mut skip, mut seen) = (Skip::new(rate, seed), Vec::new());
        for begin in (0..packets).step_by(batch) {
            let end = packets.min(begin + batch);
            let mut at = begin;
            while let Some(next) = skip.next(end - at) {
                seen.push(at + next);
                at += next + 1;
            }
        }
        seen
    }

    #[test]
    fn a_rate_of_one_takes_every_packet() {
        assert_eq!(samples(1, 7, 1000, 64), (0..1000).collect::<Vec<_>>());
        assert_eq!(samples(0, 7, 10, 64).len(), 10, "0 is taken as 1");
    }

    #[test]
    fn batches_do_not_matter() {
        let whole = samples(50, 3, 100_000, 100_000);
        assert_eq!(samples(50, 3, 100_000, 1), whole);
        assert_eq!(samples(50, 3, 100_000, 256), whole);
    }

    #[test]
    fn the_rate_is_the_mean_and_no_period_shows() {
        for (rate, packets) in [(2_u32, 200_000_usize), (100, 2_000_000), (1000, 20_000_000)] {
            let seen = samples(rate, u64::from(rate), packets, 256);
            #[allow(clippy::cast_precision_loss, reason = "small numbers")]
            let (got, want) = (seen.len() as f64, packets as f64 / f64::from(rate));
            // Distances of variance (N^2 - N) / 3: that of their number is a third of their mean.
            let sigma = (want / 3.0).sqrt();
            assert!((got - want).abs() < 4.0 * sigma, "1:{rate}: {got} of {want}");
            // Every tenth packet is of another kind: a tenth of the samples are.
            let tenth = seen.iter().filter(|at| **at % 10 == 3).count();
            #[allow(clippy::cast_precision_loss, reason = "small numbers")]
            let off = (tenth as f64 - got / 10.0).abs();
            assert!(off < 5.0 * (got * 0.09).sqrt(), "1:{rate}: {tenth} of {got}");
        }
    }
}
