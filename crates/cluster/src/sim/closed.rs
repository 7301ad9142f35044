//! Loads that formulas predict, for equal nodes without queues.
//!
//! Source: plain VLB, Zhang-Shen and McKeown, 2005: phase 1 loads each link with 1/N of its input's row, phase 2 with 1/N of its
//!         output's column. Direct routing, RouteBricks, SOSP 2009, section 3: R/N of a pair direct, the excess over N - 2.

use super::Matrix;

/// Predicted loads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Loads {
    /// Load of the worst link, in units of R/N.
    pub worst_link: f64,
    /// Transit of the node that has most, in R.
    pub transit: f64,
}

#[allow(clippy::cast_precision_loss, reason = "at most 1,024 nodes")]
fn real(count: usize) -> f64 {
    count as f64
}

impl Loads {
    /// Loads under plain VLB. Packets whose intermediate is an end of their path are no transit.
    pub fn vlb(matrix: &Matrix) -> Self {
        let nodes = matrix.nodes();
        let excess =
            |from: usize, to: usize| if from == to { 0.0 } else { matrix.demand(from, to) };
        // All N nodes are intermediates: the share of each is that of N - 2 others plus both ends.
        Self::spread(nodes, excess, |_, _| 0.0, real(nodes), true)
    }

    /// Loads with R/N of each pair direct and the excess over the N - 2 other nodes.
    pub fn fixed(matrix: &Matrix) -> Self {
        let nodes = matrix.nodes();
        let allowance = 1.0 / real(nodes);
        let demand =
            |from: usize, to: usize| if from == to { 0.0 } else { matrix.demand(from, to) };
        let excess = |from: usize, to: usize| (demand(from, to) - allowance).max(0.0);
        let direct = |from: usize, to: usize| demand(from, to).min(allowance);
        Self::spread(nodes, excess, direct, real(nodes - 2), false)
    }

    /// Loads when `excess` is divided by `parts` over the other nodes, and over both ends with `ends`.
    fn spread(
        nodes: usize,
        excess: impl Fn(usize, usize) -> f64,
        direct: impl Fn(usize, usize) -> f64,
        parts: f64,
        ends: bool,
    ) -> Self {
        let all: Vec<Vec<f64>> =
            (0..nodes).map(|from| (0..nodes).map(|to| excess(from, to)).collect()).collect();
        let rows: Vec<f64> = all.iter().map(|row| row.iter().sum()).collect();
        let columns: Vec<f64> = (0..nodes).map(|to| all.iter().map(|row| row[to]).sum()).collect();
        let sum: f64 = rows.iter().sum();
        let (mut worst_link, mut transit) = (0.0f64, 0.0f64);
        for from in 0..nodes {
            for to in (0..nodes).filter(|&to| to != from) {
                let own = if ends { 0.0 } else { all[from][to] };
                let spread = (rows[from] - own + columns[to] - own) / parts;
                worst_link = worst_link.max((direct(from, to) + spread) * real(nodes));
            }
            transit = transit.max((sum - rows[from] - columns[from]) / parts);
        }
        Self { worst_link, transit }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table of `docs/internals/cluster.md`: worst link under both rules, transit under the fixed one.
    #[test]
    fn a_fixed_allowance_overloads_links_of_twice_its_size() {
        let table = [
            (Matrix::adversarial(8), 3.00, 0.25),
            (Matrix::permutation(8), 2.33, 0.88),
            (Matrix::uniform(8), 1.29, 0.12),
            (Matrix::adversarial(32), 3.00, 0.06),
            (Matrix::permutation(32), 2.07, 0.97),
            (Matrix::uniform(32), 1.06, 0.03),
        ];
        for (matrix, worst_link, transit) in table {
            assert!((Loads::vlb(&matrix).worst_link - 2.0).abs() < 1e-9);
            let fixed = Loads::fixed(&matrix);
            assert!((fixed.worst_link - worst_link).abs() < 0.0051, "{fixed:?}");
            assert!((fixed.transit - transit).abs() < 0.0051, "{fixed:?}");
        }
    }

    /// Transit of VLB is at most R (N - 2) / N, which a permutation reaches.
    #[test]
    fn a_node_processes_at_most_three_rates() {
        for nodes in [4, 8, 32] {
            let limit = 1.0 - 2.0 / real(nodes);
            assert!((Loads::vlb(&Matrix::permutation(nodes)).transit - limit).abs() < 1e-9);
            for seed in 0..20 {
                let loads = Loads::vlb(&Matrix::random(nodes, 4, seed));
                // A node that sends to itself has no other traffic, and at most R (N - 1) / N of transit.
                let limit = limit + 1.0 / real(nodes);
                assert!(loads.transit < limit + 1e-9 && loads.worst_link < 2.0 + 1e-9);
            }
        }
    }
}
