//! Durations by class: how many took how long.
//!
//! Shape:  counts by duration, four classes to each power of two of microseconds: a class is at most a quarter wider than
//!         its start.
//! Cost:   800 bytes; an addition is some arithmetic.

use std::time::Duration;

/// Classes to a power of two.
const PARTS: usize = 4;
/// Powers of two of microseconds from 2^2: up to 2^26, a minute.
const POWERS: usize = 24;
/// Powers of two of microseconds that end a bucket: 16 us to 17 s.
const BUCKETS: std::ops::RangeInclusive<u32> = 4..=24;

/// Durations so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Durations {
    counts: [u64; POWERS * PARTS],
    count: u64,
    sum: Duration,
    longest: Duration,
}

impl Default for Durations {
    fn default() -> Self {
        let counts = [0; POWERS * PARTS];
        Self { counts, count: 0, sum: Duration::ZERO, longest: Duration::ZERO }
    }
}

impl Durations {
    /// Adds a duration.
    pub fn add(&mut self, time: Duration) {
        self.count += 1;
        self.sum += time;
        self.longest = self.longest.max(time);
        let us = u64::try_from(time.as_micros()).unwrap_or(u64::MAX).max(PARTS as u64);
        let power = us.ilog2();
        let part = usize::try_from(us >> (power - 2) & (PARTS as u64 - 1)).expect("a few");
        let at = (power - 2) as usize * PARTS + part;
        self.counts[at.min(self.counts.len() - 1)] += 1;
    }

    /// Adds all durations of another.
    pub fn add_all(&mut self, other: &Self) {
        self.counts.iter_mut().zip(other.counts).for_each(|(to, from)| *to += from);
        self.count += other.count;
        self.sum += other.sum;
        self.longest = self.longest.max(other.longest);
    }

    /// Number of durations.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Sum of the durations.
    pub fn sum(&self) -> Duration {
        self.sum
    }

    /// Longest duration.
    pub fn longest(&self) -> Duration {
        self.longest
    }

    /// Duration that a share of `parts` in a thousand does not exceed: the end of its class, at most the longest.
    pub fn quantile(&self, parts: u64) -> Duration {
        let rank = (self.count * parts).div_ceil(1000).max(1);
        let mut below = 0;
        let found = self.counts.iter().position(|count| {
            below += count;
            below >= rank
        });
        let Some(at) = found.filter(|_| self.count > 0) else { return Duration::ZERO };
        let end = ((PARTS + at % PARTS + 1) as u64) << (at / PARTS);
        Duration::from_micros(end).min(self.longest)
    }

    /// Durations by powers of two: the end of each bucket in seconds and the number in that bucket alone, the last without
    /// an end.
    pub fn buckets(&self) -> impl Iterator<Item = (f64, u64)> {
        let mut from = 0;
        BUCKETS.map(Some).chain([None]).map(move |power| {
            let to = power.map_or(self.counts.len(), |power| (power - 2) as usize * PARTS);
            let count = self.counts[from..to].iter().sum();
            from = to;
            let end = power.map_or(f64::INFINITY, |power| f64::from(1 << power) / 1e6);
            (end, count)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_within_a_quarter() {
        let mut durations = Durations::default();
        assert_eq!(durations.quantile(990), Duration::ZERO);
        for us in 1..=1000 {
            durations.add(Duration::from_micros(us * 7));
        }
        for (parts, exact) in [(500, 3500), (990, 6930), (1000, 7000)] {
            let found = u64::try_from(durations.quantile(parts).as_micros()).unwrap();
            assert!(found >= exact && found * 4 <= exact * 5, "{parts}: {found}, {exact}");
        }
        durations.add(Duration::from_secs(3600));
        assert_eq!(durations.quantile(1000).as_micros(), 1 << 26, "beyond all classes");
        assert_eq!(durations.count(), 1001);
    }

    #[test]
    fn every_duration_is_in_the_bucket_that_holds_it() {
        let times = [0, 3, 15, 17, 31, 33, 1000, 70_000, 16_777_215, 16_777_217, 90_000_000];
        let mut durations = Durations::default();
        times.iter().for_each(|&us| durations.add(Duration::from_micros(us)));
        let mut twice = durations;
        twice.add_all(&durations);
        assert_eq!((twice.count(), twice.sum()), (22, 2 * durations.sum()));
        let mut start = -1.0;
        for (end, count) in durations.buckets() {
            let those = times.iter().map(|&us| Duration::from_micros(us).as_secs_f64());
            let expected = those.filter(|time| start < *time && *time <= end).count() as u64;
            assert_eq!(count, expected, "{start} to {end}");
            start = end;
        }
        assert!(start.is_infinite());
        assert_eq!(durations.buckets().map(|(_, count)| count).sum::<u64>(), durations.count());
    }
}
