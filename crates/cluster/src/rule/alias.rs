//! A draw by weights in constant time.
//!
//! Source: Walker's alias method in Vose's form (IEEE Transactions on Software Engineering 17, 1991).
//! Shape:  one column a member: a 32-bit threshold, its own number below it and another number above it.
//! Cost:   one random word and one read a draw; building is linear.

/// Column of the table.
#[derive(Clone, Copy, Debug)]
struct Column {
    /// Own number below this, `other` from it on.
    threshold: u32,
    other: u16,
}

/// Table that draws numbers below its length, each in proportion to its weight.
#[derive(Clone, Debug)]
pub(super) struct Alias(Vec<Column>);

impl Alias {
    /// Table of these weights. Where all are 0 each number is equally likely.
    #[allow(
        clippy::cast_possible_truncation,
        reason = "members are at most 65,535, shares below 2^32"
    )]
    pub(super) fn new(weights: &[u32]) -> Self {
        let sum: u64 = weights.iter().map(|&weight| u64::from(weight)).sum();
        let len = weights.len() as u64;
        let mut columns: Vec<Column> =
            (0..weights.len()).map(|n| Column { threshold: u32::MAX, other: n as u16 }).collect();
        if sum == 0 {
            return Self(columns);
        }
        // A share of exactly `sum` fills a column.
        let mut shares: Vec<u64> = weights.iter().map(|&weight| u64::from(weight) * len).collect();
        let (mut small, mut large): (Vec<usize>, Vec<usize>) =
            (0..shares.len()).partition(|&n| shares[n] < sum);
        while let (Some(&less), Some(&more)) = (small.last(), large.last()) {
            small.pop();
            let threshold = (u128::from(shares[less]) << 32) / u128::from(sum);
            columns[less] = Column { threshold: threshold as u32, other: more as u16 };
            shares[more] -= sum - shares[less];
            if shares[more] < sum {
                large.pop();
                small.push(more);
            }
        }
        Self(columns)
    }

    /// Number drawn by a random word: its upper half picks the column, its lower half the side.
    #[inline]
    #[allow(
        clippy::cast_possible_truncation,
        reason = "halves of the word, and a number below the length"
    )]
    pub(super) fn draw(&self, word: u64) -> u16 {
        let at = (((word >> 32) * self.0.len() as u64) >> 32) as usize;
        let column = self.0[at];
        // A full column names itself on both sides.
        if (word as u32) < column.threshold { at as u16 } else { column.other }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fingerpost_lpm::Rng;

    fn shares(weights: &[u32]) -> Vec<f64> {
        let (alias, mut rng) = (Alias::new(weights), Rng::new(1));
        let mut counts = vec![0u32; weights.len()];
        for _ in 0..200_000 {
            counts[usize::from(alias.draw(rng.word()))] += 1;
        }
        counts.iter().map(|&count| f64::from(count) / 200_000.0).collect()
    }

    #[test]
    fn draws_are_in_proportion() {
        for weights in
            [&[1, 1, 1, 1][..], &[10, 10, 2], &[0, 3, 0, 1], &[7], &[u32::MAX, 1, u32::MAX]]
        {
            let sum: f64 = weights.iter().map(|&weight| f64::from(weight)).sum();
            for (share, &weight) in shares(weights).iter().zip(weights) {
                assert!((share - f64::from(weight) / sum).abs() < 0.005, "{weights:?}: {share}");
                assert!(weight > 0 || *share == 0.0, "{weights:?} draws a weight of 0");
            }
        }
    }

    #[test]
    fn no_weights_are_equal_weights() {
        assert!(shares(&[0, 0]).iter().all(|share| (share - 0.5).abs() < 0.01));
    }
}
