//! The decision at the input: direct, or by which intermediate.
//!
//! Source: plain VLB and the fixed allowance are RouteBricks, SOSP 2009, section 3. The fixed allowance of R/N loads
//!         links up to 3R/N (docs/internals/cluster.md has the matrix); the adaptive rule keeps 2R/N.
//! Weak:   the choice sees the queues of its own node alone, so that the second link of a path is a guess.

use fingerpost_lpm::Rng;
use serde::{Deserialize, Serialize};

use super::{Members, NodeId};

/// Rule of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Rule {
    /// Plain Valiant load balancing: each packet by a node drawn from all, its ends among them.
    Vlb,
    /// Direct within an allowance of R/N a pair, the rest over the other nodes.
    Fixed,
    /// Direct while the queue is short, else over the shorter of two queues.
    Adaptive,
}

impl Rule {
    /// All rules.
    pub const ALL: [Self; 3] = [Self::Vlb, Self::Fixed, Self::Adaptive];

    /// Its word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Vlb => "vlb",
            Self::Fixed => "fixed",
            Self::Adaptive => "adaptive",
        }
    }
}

/// Settings of the decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Rule in use.
    pub rule: Rule,
    /// Backlog of the direct link from which on the adaptive rule looks at others, in the unit of [`Local::backlog`].
    pub threshold: u64,
}

/// What a decision reads of its own node.
pub trait Local {
    /// Backlog of the link to a node, transit and local packets together. Any unit serves that is equal for all
    /// links; where their rates differ it is the time to drain.
    fn backlog(&self, to: NodeId) -> u64;

    /// Whether the direct allowance toward an output has room. Only the fixed rule reads it; the caller charges it
    /// for each packet that goes direct.
    fn allowance(&self, to: NodeId) -> bool;
}

/// Path of a packet from its ingress node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Path {
    /// The ingress node is the egress node.
    Local,
    /// One link.
    Direct,
    /// Two links, with this node between them.
    By(NodeId),
}

impl Path {
    /// Node that the packet is sent to first, on its path to `to`.
    #[inline]
    pub fn first(self, to: NodeId) -> NodeId {
        match self {
            Self::Local | Self::Direct => to,
            Self::By(node) => node,
        }
    }

    /// Whether the path from `from` to `to` works, whatever a new choice would be.
    #[inline]
    pub fn usable(self, members: &Members, from: NodeId, to: NodeId) -> bool {
        match self {
            Self::Local => from == to,
            Self::Direct => members.direct(from, to),
            Self::By(by) if by == to => members.direct(from, to),
            Self::By(by) => by != from && members.usable(from, by, to),
        }
    }
}

/// Reason of a choice, for traces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// Input and output are one node.
    SameNode,
    /// The node that was drawn is an end of the path.
    DrewEnd,
    /// The node was drawn by weight.
    Drawn,
    /// The direct allowance has room.
    Allowance,
    /// The direct queue is below the threshold.
    ShortQueue,
    /// The queue to the intermediate is shorter than the direct one.
    Shorter,
    /// No queue of the two looked at is shorter than the direct one.
    NoneShorter,
    /// There is no intermediate.
    NoIntermediate,
    /// The direct link is down.
    NoDirect,
}

impl Why {
    /// All reasons, in their order.
    pub const ALL: [Self; 9] = [
        Self::SameNode,
        Self::DrewEnd,
        Self::Drawn,
        Self::Allowance,
        Self::ShortQueue,
        Self::Shorter,
        Self::NoneShorter,
        Self::NoIntermediate,
        Self::NoDirect,
    ];
}

/// Chosen path and its reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// Path from the ingress node.
    pub path: Path,
    /// Reason of the choice.
    pub why: Why,
}

/// Chooses the path of a packet, or of a flowlet, from `from` to `to`; `None` where no path is left.
///
/// `word` is random; the same word, members and queues give the same choice.
#[inline]
pub fn choose(
    settings: &Settings,
    members: &Members,
    from: NodeId,
    to: NodeId,
    local: &impl Local,
    word: u64,
) -> Option<Choice> {
    let choice = |path, why| Some(Choice { path, why });
    if from == to {
        return choice(Path::Local, Why::SameNode);
    }
    let mut draws = Rng::new(word);
    if !members.direct(from, to) {
        let by = match members.intermediate(from, to, None, &mut draws) {
            Some(first) => shorter(members, from, to, first, local, settings, &mut draws),
            None => members.last_resort(from, to, &mut draws)?,
        };
        return choice(Path::By(by), Why::NoDirect);
    }
    match settings.rule {
        Rule::Vlb => {
            let drawn = members.draw(draws.word());
            if drawn == from || drawn == to {
                return choice(Path::Direct, Why::DrewEnd);
            }
            if members.eligible(from, drawn, to) {
                return choice(Path::By(drawn), Why::Drawn);
            }
        }
        Rule::Fixed => {
            if local.allowance(to) {
                return choice(Path::Direct, Why::Allowance);
            }
        }
        Rule::Adaptive => {
            let backlog = local.backlog(to);
            if backlog < settings.threshold {
                return choice(Path::Direct, Why::ShortQueue);
            }
            let Some(first) = members.intermediate(from, to, None, &mut draws) else {
                return choice(Path::Direct, Why::NoIntermediate);
            };
            let by = shorter(members, from, to, first, local, settings, &mut draws);
            if local.backlog(by) < backlog {
                return choice(Path::By(by), Why::Shorter);
            }
            return choice(Path::Direct, Why::NoneShorter);
        }
    }
    match members.intermediate(from, to, None, &mut draws) {
        Some(by) => choice(Path::By(by), Why::Drawn),
        None => choice(Path::Direct, Why::NoIntermediate),
    }
}

/// Node with the shorter queue of `first` and another one; `first` where the rule reads no queues.
#[inline]
fn shorter(
    members: &Members,
    from: NodeId,
    to: NodeId,
    first: NodeId,
    local: &impl Local,
    settings: &Settings,
    draws: &mut Rng,
) -> NodeId {
    if settings.rule != Rule::Adaptive {
        return first;
    }
    match members.intermediate(from, to, Some(first), draws) {
        Some(second) if local.backlog(second) < local.backlog(first) => second,
        _ => first,
    }
}

#[cfg(test)]
mod tests {
    use super::super::NodeState;
    use super::*;

    struct Here {
        backlogs: [u64; 5],
        allowance: bool,
    }

    impl Local for Here {
        fn backlog(&self, to: NodeId) -> u64 {
            self.backlogs[usize::from(to)]
        }
        fn allowance(&self, _: NodeId) -> bool {
            self.allowance
        }
    }

    const EMPTY: Here = Here { backlogs: [0; 5], allowance: false };

    fn settings(rule: Rule) -> Settings {
        Settings { rule, threshold: 8 }
    }

    /// Shares of the first nodes of paths from 0 to 1 among five nodes.
    fn shares(rule: Rule, members: &Members, here: &Here) -> [f64; 5] {
        let mut rng = Rng::new(7);
        let mut shares = [0.0; 5];
        for _ in 0..50_000 {
            let choice = choose(&settings(rule), members, 0, 1, here, rng.word()).unwrap();
            shares[usize::from(choice.path.first(1))] += 1.0 / 50_000.0;
        }
        shares
    }

    fn near(found: [f64; 5], expected: [f64; 5]) {
        let near =
            found.iter().zip(expected).all(|(found, expected)| (found - expected).abs() < 0.01);
        assert!(near, "{found:?}, not {expected:?}");
    }

    #[test]
    fn vlb_draws_all_nodes_and_its_ends_are_direct() {
        near(shares(Rule::Vlb, &Members::equal(5), &EMPTY), [0.0, 0.4, 0.2, 0.2, 0.2]);
        // Unequal: p is r_m / sum(r), and a node without transit has none.
        let members = Members::new(&[2, 2, 1, 5, 0]);
        near(shares(Rule::Vlb, &members, &EMPTY), [0.0, 0.4, 0.1, 0.5, 0.0]);
    }

    #[test]
    fn fixed_is_direct_within_its_allowance() {
        let members = Members::equal(5);
        let third = 1.0 / 3.0;
        near(shares(Rule::Fixed, &members, &EMPTY), [0.0, 0.0, third, third, third]);
        let room = Here { allowance: true, ..EMPTY };
        near(shares(Rule::Fixed, &members, &room), [0.0, 1.0, 0.0, 0.0, 0.0]);
    }

    #[test]
    fn adaptive_leaves_the_direct_link_for_a_shorter_queue_only() {
        let members = Members::equal(5);
        let with = |backlogs| Here { backlogs, allowance: false };
        near(shares(Rule::Adaptive, &members, &with([0, 7, 0, 0, 0])), [0.0, 1.0, 0.0, 0.0, 0.0]);
        near(shares(Rule::Adaptive, &members, &with([0, 8, 8, 9, 8])), [0.0, 1.0, 0.0, 0.0, 0.0]);
        // Two of three are looked at: the longest is never taken, the shortest in two of three cases.
        let third = 1.0 / 3.0;
        let two = with([0, 9, 3, 5, 20]);
        near(shares(Rule::Adaptive, &members, &two), [0.0, 0.0, 2.0 * third, third, 0.0]);
    }

    #[test]
    fn what_is_down_is_not_chosen() {
        for rule in [Rule::Vlb, Rule::Fixed, Rule::Adaptive] {
            let mut members = Members::equal(5);
            members.set_link(0, 1, false);
            members.set_node(2, NodeState::Down);
            members.set_node(3, NodeState::Draining);
            near(shares(rule, &members, &EMPTY), [0.0, 0.0, 0.0, 0.0, 1.0]);
            members.set_link(4, 1, false);
            let by = Choice { path: Path::By(3), why: Why::NoDirect };
            assert_eq!(
                choose(&settings(rule), &members, 0, 1, &EMPTY, 5),
                Some(by),
                "nothing else"
            );
            members.set_node(3, NodeState::Down);
            assert_eq!(choose(&settings(rule), &members, 0, 1, &EMPTY, 5), None);
            members.set_link(0, 1, true);
            near(shares(rule, &members, &EMPTY), [0.0, 1.0, 0.0, 0.0, 0.0]);
            members.set_node(1, NodeState::Down);
            assert_eq!(choose(&settings(rule), &members, 0, 1, &EMPTY, 5), None);
        }
    }

    #[test]
    fn a_node_is_local_to_itself() {
        let choice = choose(&settings(Rule::Vlb), &Members::equal(1), 0, 0, &EMPTY, 1).unwrap();
        assert_eq!(choice, Choice { path: Path::Local, why: Why::SameNode });
    }
}
