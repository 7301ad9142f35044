//! Traffic matrices: which share of R each input offers to each output.
//!
//! Source: the patterns of RouteBricks, SOSP 2009, section 3; random admissible ones are mixtures of permutations, which by
//!         Birkhoff's theorem are all matrices with row and column sums of 1.
//! Shape:  a row an input: a part spread evenly over the other nodes, and a list of outputs with cumulative shares.

use fingerpost_lpm::Rng;

use crate::rule::NodeId;

/// Traffic of one input.
#[derive(Clone, Debug, Default)]
struct Row {
    /// Sum of the row, in R.
    sum: f64,
    /// Part of the sum that all other nodes share.
    even: f64,
    /// Further outputs, each with the cumulative share up to it.
    outputs: Vec<(f64, NodeId)>,
}

impl Row {
    fn add(&mut self, to: usize, share: f64) {
        self.sum += share;
        let before = self.outputs.last().map_or(0.0, |&(share, _)| share);
        self.outputs.push((before + share, node(to)));
    }
}

/// Traffic matrix.
#[derive(Clone, Debug)]
pub struct Matrix(Vec<Row>);

#[allow(clippy::cast_possible_truncation, reason = "a matrix has at most 1,024 nodes")]
fn node(index: usize) -> NodeId {
    index as NodeId
}

#[allow(clippy::cast_precision_loss, reason = "at most 1,024 nodes")]
fn real(count: usize) -> f64 {
    count as f64
}

impl Matrix {
    fn empty(nodes: usize) -> Self {
        assert!((2..=crate::rule::MAX_NODES).contains(&nodes), "nodes: {nodes}, 2 to 1024");
        Self(vec![Row::default(); nodes])
    }

    /// Each input sends R to all other nodes evenly.
    pub fn uniform(nodes: usize) -> Self {
        let mut matrix = Self::empty(nodes);
        for row in &mut matrix.0 {
            (row.sum, row.even) = (1.0, 1.0);
        }
        matrix
    }

    /// Each input sends R to the next node.
    pub fn permutation(nodes: usize) -> Self {
        let mut matrix = Self::empty(nodes);
        for from in 0..nodes {
            matrix.0[from].add((from + 1) % nodes, 1.0);
        }
        matrix
    }

    /// All others send `offered` R in all to node 0, evenly, and the rest of their R to the remaining nodes. It is
    /// admissible up to an offer of 1.
    pub fn hot_spot(nodes: usize, offered: f64) -> Self {
        let mut matrix = Self::uniform(nodes);
        let hot = (offered / real(nodes - 1)).min(1.0);
        for from in 1..nodes {
            let row = &mut matrix.0[from];
            *row = Row::default();
            row.add(0, hot);
            for to in (1..nodes).filter(|&to| to != from) {
                row.add(to, (1.0 - hot) / real(nodes - 2));
            }
        }
        matrix
    }

    /// The admissible matrix under which a fixed allowance of R/N loads link 0 -> 1 with 3R/N: input 0 sends R/N to 1
    /// and the rest to 2, input 3 sends the rest of what output 1 can take. At least four nodes.
    pub fn adversarial(nodes: usize) -> Self {
        assert!(nodes >= 4, "nodes: {nodes}, at least 4");
        let mut matrix = Self::empty(nodes);
        let part = 1.0 / real(nodes);
        matrix.0[0].add(1, part);
        matrix.0[0].add(2, 1.0 - part);
        matrix.0[3].add(1, 1.0 - part);
        matrix
    }

    /// The first inputs offer these shares of R to the last node, the others nothing.
    pub fn overload(nodes: usize, offers: &[f64]) -> Self {
        assert!(offers.len() < nodes, "offers: {}, below {nodes}", offers.len());
        let mut matrix = Self::empty(nodes);
        for (from, &offer) in offers.iter().enumerate() {
            matrix.0[from].add(nodes - 1, offer);
        }
        matrix
    }

    /// Matrix of these demands, in R: a row an input, an entry an output.
    ///
    /// # Panics
    /// When the rows are not as long as there are rows.
    pub fn from_demands(rows: &[Vec<f64>]) -> Self {
        let mut matrix = Self::empty(rows.len());
        for (row, demands) in matrix.0.iter_mut().zip(rows) {
            assert_eq!(demands.len(), rows.len(), "a demand for each output");
            for (to, &demand) in demands.iter().enumerate().filter(|(_, demand)| **demand > 0.0) {
                row.add(to, demand);
            }
        }
        matrix
    }

    /// Random mixture of `permutations` permutations: every row and column has the sum 1. A node may send to itself.
    pub fn random(nodes: usize, permutations: usize, seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let mut matrix = Self::empty(nodes);
        // Exponential weights: their shares are uniform over all mixtures.
        let weights: Vec<f64> = (0..permutations).map(|_| -(1.0 - rng.unit()).ln()).collect();
        let sum: f64 = weights.iter().sum();
        for weight in weights {
            let mut outputs: Vec<usize> = (0..nodes).collect();
            for last in (1..nodes).rev() {
                outputs.swap(last, rng.below(last + 1));
            }
            for (row, to) in matrix.0.iter_mut().zip(outputs) {
                row.add(to, weight / sum);
            }
        }
        matrix
    }

    /// Matrix for nodes of unequal rates, in R: each demand times the smaller rate of its ends, so that an admissible
    /// matrix stays one.
    pub fn scaled(&self, rates: &[f64]) -> Self {
        let demand = |from, to| self.demand(from, to) * rates[from].min(rates[to]);
        let nodes = self.nodes();
        let row = |from| (0..nodes).map(|to| demand(from, to)).collect();
        Self::from_demands(&(0..nodes).map(row).collect::<Vec<_>>())
    }

    /// How many nodes there are.
    pub fn nodes(&self) -> usize {
        self.0.len()
    }

    /// Sum of a row, in R.
    pub fn input(&self, from: usize) -> f64 {
        self.0[from].sum
    }

    /// Demand of a pair, in R.
    pub fn demand(&self, from: usize, to: usize) -> f64 {
        let row = &self.0[from];
        let even = if from == to { 0.0 } else { row.even / real(self.nodes() - 1) };
        let mut before = 0.0;
        let listed = row.outputs.iter().map(|&(until, output)| {
            let share = until - before;
            before = until;
            if usize::from(output) == to { share } else { 0.0 }
        });
        even + listed.sum::<f64>()
    }

    /// Output of a packet of an input, drawn by demand.
    #[inline]
    pub(super) fn draw(&self, from: usize, rng: &mut Rng) -> NodeId {
        let row = &self.0[from];
        let at = if row.outputs.is_empty() { 0.0 } else { rng.unit() * row.sum - row.even };
        if row.outputs.is_empty() || at < 0.0 {
            let other = rng.below(self.nodes() - 1);
            return node(other + usize::from(other >= from));
        }
        let found = row.outputs.partition_point(|&(until, _)| until <= at);
        row.outputs[found.min(row.outputs.len() - 1)].1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sums(matrix: &Matrix) -> (f64, f64) {
        let nodes = matrix.nodes();
        let row = |from| (0..nodes).map(|to| matrix.demand(from, to)).sum::<f64>();
        let column = |to| (0..nodes).map(|from| matrix.demand(from, to)).sum::<f64>();
        let most = |sum: &dyn Fn(usize) -> f64| (0..nodes).map(sum).fold(0.0, f64::max);
        (most(&row), most(&column))
    }

    #[test]
    fn sums_of_rows_and_columns() {
        let near = |(row, column): (f64, f64), most: f64| {
            assert!(row < 1.000_001 && (column - most).abs() < 1e-6, "{row} {column}");
        };
        near(sums(&Matrix::uniform(5)), 1.0);
        near(sums(&Matrix::permutation(5)), 1.0);
        near(sums(&Matrix::adversarial(5)), 1.0);
        near(sums(&Matrix::hot_spot(5, 2.0)), 2.0);
        near(sums(&Matrix::random(5, 7, 3)), 1.0);
        near(sums(&Matrix::overload(5, &[1.0, 1.0, 0.2])), 2.2);
        near(sums(&Matrix::uniform(3).scaled(&[1.0, 0.5, 0.5])), 0.5);
    }

    #[test]
    fn draws_follow_the_demand() {
        for matrix in [Matrix::uniform(4), Matrix::random(4, 5, 1), Matrix::hot_spot(4, 2.0)] {
            let mut rng = Rng::new(2);
            let mut counts = [0.0; 4];
            for _ in 0..100_000 {
                counts[usize::from(matrix.draw(1, &mut rng))] += 1e-5;
            }
            for (to, count) in counts.iter().enumerate() {
                assert!((count - matrix.demand(1, to)).abs() < 0.01, "{to}: {counts:?}");
            }
        }
    }
}
