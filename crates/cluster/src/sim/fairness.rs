//! How fair the shares of an output are.
//!
//! Source: Jain, Chiu and Hawe, DEC-TR-301, 1984, for the index; max-min shares by filling from the smallest offer on.

/// Jain's index of shares: 1 when all are equal, 1/n when one has everything. Without shares it is 1.
pub fn jain(shares: &[f64]) -> f64 {
    let sum: f64 = shares.iter().sum();
    let squares: f64 = shares.iter().map(|share| share * share).sum();
    if squares == 0.0 {
        return 1.0;
    }
    #[allow(clippy::cast_precision_loss, reason = "at most 1,024 inputs")]
    let count = shares.len() as f64;
    sum * sum / (count * squares)
}

/// Max-min fair shares of a capacity: nobody gets more than offered, and what some leave the others share evenly.
pub fn max_min(offers: &[f64], capacity: f64) -> Vec<f64> {
    let mut order: Vec<usize> = (0..offers.len()).collect();
    order.sort_by(|&one, &other| offers[one].total_cmp(&offers[other]));
    let (mut shares, mut left) = (vec![0.0; offers.len()], capacity);
    for (done, &input) in order.iter().enumerate() {
        #[allow(clippy::cast_precision_loss, reason = "at most 1,024 inputs")]
        let even = left / (order.len() - done) as f64;
        shares[input] = offers[input].min(even);
        left -= shares[input];
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_three_inputs() {
        assert_eq!(max_min(&[10.0, 10.0, 2.0], 10.0), [4.0, 4.0, 2.0]);
        assert_eq!(max_min(&[1.0, 2.0], 10.0), [1.0, 2.0]);
        assert_eq!(jain(&[3.0, 3.0, 3.0]), 1.0);
        assert!((jain(&[1.0, 0.0, 0.0, 0.0]) - 0.25).abs() < 1e-12);
        assert_eq!(jain(&[]), 1.0);
    }
}
