//! Latency of packets: a histogram with a bucket each 1,024 ns.
//!
//! The kernel's side counts into the same buckets, so that reading them is all that is left to do. What took longer than
//! [`BUCKETS`] of them shows only as the longest.

/// Buckets: up to 16 ms, which is more than full rings hold.
pub(super) const BUCKETS: usize = 1 << 14;
/// Nanoseconds of a bucket, as a power of two.
pub(super) const BUCKET_SHIFT: u32 = 10;

/// Times of packets.
#[derive(Clone, Debug, Default)]
pub(super) struct Latency {
    counts: Vec<u64>,
    /// The longest.
    pub(super) max_ns: u64,
}

impl Latency {
    /// Latency of counts by bucket.
    pub(super) fn new(counts: Vec<u64>, max_ns: u64) -> Self {
        Self { counts, max_ns }
    }

    /// One more packet.
    pub(super) fn add(&mut self, ns: u64) {
        self.counts.resize(BUCKETS, 0);
        let bucket = usize::try_from(ns >> BUCKET_SHIFT).unwrap_or(BUCKETS).min(BUCKETS - 1);
        self.counts[bucket] += 1;
        self.max_ns = self.max_ns.max(ns);
    }

    /// Adds those of another.
    pub(super) fn merge(&mut self, other: &Self) {
        self.counts.resize(self.counts.len().max(other.counts.len()), 0);
        self.counts.iter_mut().zip(&other.counts).for_each(|(count, more)| *count += more);
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    /// Packets.
    pub(super) fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Microseconds that `parts` of a thousand packets took at most: the end of their bucket, or the longest of all
    /// where that is less or the bucket is the last.
    #[allow(clippy::cast_precision_loss, reason = "nanoseconds of a run stay below 2^53")]
    pub(super) fn per_mille(&self, parts: u64) -> Option<f64> {
        let wanted = (self.count() * parts).div_ceil(1000).max(1);
        let mut seen = 0;
        for (bucket, count) in (1u64..).zip(&self.counts) {
            seen += count;
            if seen >= wanted {
                let end = if bucket == BUCKETS as u64 { u64::MAX } else { bucket << BUCKET_SHIFT };
                return Some(end.min(self.max_ns) as f64 / 1e3);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_read_from_buckets() {
        let mut latency = Latency::default();
        assert_eq!(latency.per_mille(500), None);
        (0..998).for_each(|_| latency.add(5_000));
        latency.add(900_000);
        let mut other = Latency::default();
        other.add(1 << 40);
        latency.merge(&other);
        assert_eq!((latency.count(), latency.max_ns), (1000, 1 << 40));
        let at = |parts| latency.per_mille(parts).unwrap();
        assert_eq!((at(500), at(998)), (5.12, 5.12));
        assert!((900.0..902.0).contains(&at(999)), "{}", at(999));
        assert!(at(1000) > 1e9, "the longest, not the end of the last bucket");
        assert_eq!(other.per_mille(1), Some((1u64 << 40) as f64 / 1e3));
    }
}
