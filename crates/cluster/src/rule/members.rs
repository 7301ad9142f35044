//! The members of a cluster as a decision sees them: states of nodes and links, weights, the epoch.
//!
//! Shape:  per node a row of bits for the links that leave it and one for the links that reach it, so that the
//!         intermediates of a pair are the `and` of two rows; 256 KiB at 1,024 nodes. Weights as an alias table.
//! Cost:   a change of state flips bits: a node that fails is not drawn again from that moment on, and the weights of
//!         the others are renormalized by drawing again. Nothing is computed anew.

use fingerpost_lpm::Rng;

use super::alias::Alias;

/// Number of a node, its index among the members.
pub type NodeId = u16;

/// Most members: the simulator's bound; the frame format has room for 65,536.
pub const MAX_NODES: usize = 1024;

/// Draws by weight before the exact search. With half of the nodes down one choice in 256 searches.
const DRAWS: usize = 8;

/// State of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeState {
    /// It carries packets.
    Active,
    /// It carries packets whose path leads over it already, and is not chosen as an intermediate.
    Draining,
    /// It carries nothing.
    Down,
}

/// Members of a cluster, their links and weights.
#[derive(Clone, Debug)]
pub struct Members {
    nodes: usize,
    /// Words of a row of bits.
    words: usize,
    /// Links that are up, a row for each node that they leave.
    leaving: Vec<u64>,
    /// Links that are up, a row for each node that they reach.
    reaching: Vec<u64>,
    /// Nodes that are not down.
    alive: Vec<u64>,
    /// Nodes that may be chosen as an intermediate: active, and with a weight.
    carriers: Vec<u64>,
    states: Vec<NodeState>,
    weights: Vec<u32>,
    alias: Alias,
    epoch: u32,
}

impl Members {
    /// Active members with all links up, each with its share of the transit: the rate of its external ports, or 0 for
    /// a node that carries none.
    ///
    /// # Panics
    /// When there is no member, or more than [`MAX_NODES`].
    pub fn new(weights: &[u32]) -> Self {
        let nodes = weights.len();
        assert!((1..=MAX_NODES).contains(&nodes), "members: {nodes}, 1 to {MAX_NODES}");
        let words = nodes.div_ceil(64);
        let mut members = Self {
            nodes,
            words,
            leaving: vec![0; nodes * words],
            reaching: vec![0; nodes * words],
            alive: vec![0; words],
            carriers: vec![0; words],
            states: vec![NodeState::Active; nodes],
            weights: weights.to_vec(),
            alias: Alias::new(weights),
            epoch: 0,
        };
        for from in members.all() {
            for to in members.all().filter(|&to| to != from) {
                members.set_link(from, to, true);
            }
            members.set_node(from, NodeState::Active);
        }
        members.epoch = 0;
        members
    }

    /// Members of equal weight.
    pub fn equal(nodes: usize) -> Self {
        Self::new(&vec![1; nodes])
    }

    /// Numbers of all members, those that are down among them.
    #[allow(clippy::cast_possible_truncation, reason = "there are at most MAX_NODES")]
    pub fn all(&self) -> impl Iterator<Item = NodeId> + use<> {
        (0..self.nodes).map(|node| node as NodeId)
    }

    /// How many members there are.
    pub fn len(&self) -> usize {
        self.nodes
    }

    /// False: a cluster has at least one member.
    pub fn is_empty(&self) -> bool {
        self.nodes == 0
    }

    /// Number of the last change of a state. Frames carry its low 8 bits.
    pub fn epoch(&self) -> u32 {
        self.epoch
    }

    /// State of a node; one that is no member is down.
    pub fn node(&self, node: NodeId) -> NodeState {
        self.states.get(usize::from(node)).copied().unwrap_or(NodeState::Down)
    }

    /// Changes the state of a node.
    pub fn set_node(&mut self, node: NodeId, state: NodeState) {
        self.states[usize::from(node)] = state;
        let carries = state == NodeState::Active && self.weights[usize::from(node)] > 0;
        set(&mut self.alive, node, state != NodeState::Down);
        set(&mut self.carriers, node, carries);
        self.epoch = self.epoch.wrapping_add(1);
    }

    /// Changes the state of the link from one node to another, in this direction alone.
    pub fn set_link(&mut self, from: NodeId, to: NodeId, up: bool) {
        let words = self.words;
        set(&mut self.leaving[usize::from(from) * words..][..words], to, up);
        set(&mut self.reaching[usize::from(to) * words..][..words], from, up);
        self.epoch = self.epoch.wrapping_add(1);
    }

    /// Whether the link from one node to another is up, whatever their states.
    pub fn link(&self, from: NodeId, to: NodeId) -> bool {
        bit(&self.leaving[usize::from(from) * self.words..][..self.words], to)
    }

    /// Whether packets pass from one node straight to another: both are alive and their link is up.
    #[inline]
    pub fn direct(&self, from: NodeId, to: NodeId) -> bool {
        bit(&self.leaving[usize::from(from) * self.words..][..self.words], to)
            && bit(&self.alive, from)
            && bit(&self.alive, to)
    }

    /// Whether a path by an intermediate works: `up(from, by) && up(by, to)`. A draining node is still one.
    #[inline]
    pub fn usable(&self, from: NodeId, by: NodeId, to: NodeId) -> bool {
        self.direct(from, by) && self.direct(by, to)
    }

    /// Whether a new choice may take the intermediate.
    #[inline]
    pub fn eligible(&self, from: NodeId, by: NodeId, to: NodeId) -> bool {
        bit(&self.carriers, by) && self.usable(from, by, to)
    }

    /// Any member, drawn by weight: it may be down, and it may be an end of the path.
    #[inline]
    pub(super) fn draw(&self, word: u64) -> NodeId {
        self.alias.draw(word)
    }

    /// Eligible intermediate of a pair, drawn by weight among all of them but `not`; `None` where there is none.
    #[inline]
    pub(super) fn intermediate(
        &self,
        from: NodeId,
        to: NodeId,
        not: Option<NodeId>,
        draws: &mut Rng,
    ) -> Option<NodeId> {
        // The rows of bits are of links, which may be up when the node at their end is not.
        if !bit(&self.alive, from) || !bit(&self.alive, to) {
            return None;
        }
        for _ in 0..DRAWS {
            let by = self.draw(draws.word());
            if Some(by) != not && self.eligible(from, by, to) {
                return Some(by);
            }
        }
        self.search(from, to, not, draws.word())
    }

    /// Exact draw: the eligible intermediates are counted by weight, then walked.
    #[cold]
    fn search(&self, from: NodeId, to: NodeId, not: Option<NodeId>, word: u64) -> Option<NodeId> {
        let each = || self.between(from, to, &self.carriers).filter(move |&by| Some(by) != not);
        let weight = |by: NodeId| u64::from(self.weights[usize::from(by)]);
        let mut left = below(word, each().map(weight).sum());
        each().find(|&by| {
            let found = left < weight(by);
            left = left.wrapping_sub(weight(by));
            found
        })
    }

    /// Usable intermediate of a pair where none is eligible, drawn evenly: one that drains or has no weight is better than
    /// no path.
    #[cold]
    pub(super) fn last_resort(&self, from: NodeId, to: NodeId, draws: &mut Rng) -> Option<NodeId> {
        if !bit(&self.alive, from) || !bit(&self.alive, to) {
            return None;
        }
        let each = || self.between(from, to, &self.alive);
        let at = draws.below(each().count());
        each().nth(at)
    }

    /// Nodes of a row that are alive and have a link from one end of a path and one to the other.
    fn between<'a>(
        &'a self,
        from: NodeId,
        to: NodeId,
        row: &'a [u64],
    ) -> impl Iterator<Item = NodeId> + 'a {
        let rows = |node: NodeId| usize::from(node) * self.words;
        let (leaving, reaching) =
            (&self.leaving[rows(from)..][..self.words], &self.reaching[rows(to)..][..self.words]);
        let each = (0..self.words).flat_map(move |at| {
            let mut bits = leaving[at] & reaching[at] & row[at] & self.alive[at];
            std::iter::from_fn(move || {
                let first = (bits != 0).then(|| bits.trailing_zeros() as usize)?;
                bits &= bits - 1;
                NodeId::try_from(at * 64 + first).ok()
            })
        });
        each.filter(move |&by| by != from && by != to)
    }
}

/// A number below `sum`, or 0, by a random word.
#[allow(clippy::cast_possible_truncation, reason = "the product's top half is below the sum")]
fn below(word: u64, sum: u64) -> u64 {
    ((u128::from(word) * u128::from(sum)) >> 64) as u64
}

#[inline]
fn bit(row: &[u64], node: NodeId) -> bool {
    row[usize::from(node / 64)] >> (node % 64) & 1 != 0
}

fn set(row: &mut [u64], node: NodeId, value: bool) {
    let word = &mut row[usize::from(node / 64)];
    *word = *word & !(1 << (node % 64)) | u64::from(value) << (node % 64);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares(members: &Members, from: NodeId, to: NodeId, search: bool) -> Vec<f64> {
        let mut rng = Rng::new(3);
        let mut counts = vec![0.0; members.len()];
        for _ in 0..100_000 {
            let by = match search {
                true => members.search(from, to, None, rng.word()),
                false => members.intermediate(from, to, None, &mut rng),
            };
            counts[usize::from(by.unwrap())] += 1e-5;
        }
        counts
    }

    #[test]
    fn weights_are_renormalized_over_those_that_are_left() {
        let mut members = Members::new(&[1, 1, 4, 2, 2, 0]);
        members.set_node(4, NodeState::Down);
        for search in [false, true] {
            let found = shares(&members, 0, 1, search);
            for (share, expected) in found.iter().zip([0.0, 0.0, 4.0 / 6.0, 2.0 / 6.0, 0.0, 0.0]) {
                assert!((share - expected).abs() < 0.01, "{found:?}");
            }
        }
        members.set_node(4, NodeState::Active);
        assert!((shares(&members, 0, 1, false)[4] - 0.25).abs() < 0.01);
    }

    #[test]
    fn an_intermediate_needs_both_links() {
        let mut members = Members::equal(5);
        let first = members.epoch();
        members.set_link(0, 2, false);
        members.set_link(3, 1, false);
        assert_eq!(members.epoch(), first + 2);
        assert!(
            !members.eligible(0, 2, 1) && !members.eligible(0, 3, 1) && members.eligible(0, 4, 1)
        );
        assert!(members.direct(2, 0), "the other direction is up");
        assert!(members.link(2, 0) && !members.link(0, 2));
        assert_eq!(shares(&members, 0, 1, false).iter().filter(|share| **share > 0.0).count(), 1);
        members.set_node(4, NodeState::Draining);
        assert!(members.usable(0, 4, 1) && !members.eligible(0, 4, 1));
        assert_eq!(members.intermediate(0, 1, None, &mut Rng::new(1)), None);
        assert_eq!(members.last_resort(0, 1, &mut Rng::new(1)), Some(4));
        members.set_node(4, NodeState::Down);
        assert!(!members.usable(0, 4, 1) && !members.direct(0, 4) && !members.direct(4, 0));
        assert_eq!(members.last_resort(0, 1, &mut Rng::new(1)), None);
        assert_eq!(members.node(1_000), NodeState::Down, "no member");
    }

    #[test]
    fn no_path_leads_to_a_node_that_is_down() {
        let mut members = Members::equal(4);
        members.set_node(2, NodeState::Down);
        assert_eq!(members.intermediate(0, 2, None, &mut Rng::new(1)), None);
        assert_eq!(members.intermediate(2, 0, None, &mut Rng::new(1)), None);
    }

    #[test]
    fn rows_of_more_than_a_word() {
        let mut members = Members::equal(MAX_NODES);
        for node in members.all().filter(|node| ![5, 700, 1023].contains(node)) {
            members.set_node(node, NodeState::Down);
        }
        assert_eq!(members.intermediate(5, 700, None, &mut Rng::new(1)), Some(1023));
        assert_eq!(members.intermediate(5, 700, Some(1023), &mut Rng::new(1)), None);
    }
}
