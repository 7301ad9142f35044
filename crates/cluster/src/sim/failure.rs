//! What fails during a run, and what each node knows of it.
//!
//! Source: docs/internals/cluster.md: a node reacts to what it sees alone. Probes end at different times, so each node sees a
//!         loss after the detection time and a jitter of its own.
//! Shape:  members as a node sees them; nodes that see the same share one copy.
//! Cost:   a change clones a copy of the members at most once for each set of failures that some node sees.
//! Limits: 128 failures. A return is seen by all in one slot, after the time that the last of them needs: a link serves
//!         others only when its ends announce it, so that nobody chooses a path that its intermediate refuses.

use std::cmp::Reverse;

use fingerpost_lpm::Rng;

use crate::rule::{Members, NodeId, NodeState};

/// What is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lost {
    /// A node with its ports and its queues.
    Node(NodeId),
    /// A link, in this direction alone.
    Link(NodeId, NodeId),
    /// All links between the nodes below this one and the others: a partition.
    Between(NodeId),
    /// Nothing: the node drains. It takes no traffic at its ports, nodes that see it take none for them, and it is not
    /// chosen as an intermediate.
    Drained(NodeId),
}

/// Failure of a run.
#[derive(Clone, Copy, Debug)]
pub struct Failure {
    /// What is lost.
    pub lost: Lost,
    /// Slot of the loss.
    pub slot: u32,
    /// Slots until the first node may see it.
    pub detection_slots: u32,
    /// Most slots that a node needs beyond that; each draws its own.
    pub jitter_slots: u32,
    /// Slot of its return; `None` for never.
    pub until: Option<u32>,
}

impl Failure {
    /// Slot in which every node sees the return.
    fn returned(&self) -> Option<u32> {
        let after = self.detection_slots.saturating_add(self.jitter_slots).max(1);
        self.until.map(|until| until.saturating_add(after))
    }

    /// Whether this takes the link from `from` to `to` away.
    fn breaks(&self, from: NodeId, to: NodeId) -> bool {
        match self.lost {
            Lost::Node(node) => node == from || node == to,
            Lost::Link(one, other) => (one, other) == (from, to),
            Lost::Between(first) => (from < first) != (to < first),
            Lost::Drained(_) => false,
        }
    }
}

/// Change of the state of the world, or of what a node knows of it. Failures are numbered.
#[derive(Clone, Copy, Debug)]
enum Change {
    /// It stops, or works again.
    Works(usize, bool),
    /// The node sees it.
    Seen(usize, NodeId, bool),
}

/// Members as some nodes see them.
#[derive(Clone, Debug)]
struct View {
    /// Failures that these nodes see, a bit each.
    seen: u128,
    members: Members,
    nodes: usize,
}

/// What works, and what the nodes see of it.
#[derive(Debug)]
pub(super) struct World {
    failures: Vec<Failure>,
    /// The latest first.
    changes: Vec<(u32, Change)>,
    seed: u64,
    nodes: usize,
    /// What nodes see without failures, and the views in use.
    healthy: Members,
    views: Vec<View>,
    view: Vec<usize>,
    /// Failures that each node and link has at present.
    down: Vec<u32>,
    cut: Vec<u32>,
    drained: Vec<u32>,
    /// Failures by which each node drains, a bit each.
    drains: Vec<u128>,
}

impl World {
    /// World in which all works.
    ///
    /// # Panics
    /// When there are more than 128 failures.
    pub(super) fn new(members: Members, failures: &[Failure], seed: u64) -> Self {
        assert!(failures.len() <= 128, "failures: {}, at most 128", failures.len());
        let nodes = members.len();
        let mut world = Self {
            failures: failures.to_vec(),
            changes: Vec::new(),
            seed,
            nodes,
            views: vec![View { seen: 0, members: members.clone(), nodes }],
            healthy: members,
            view: vec![0; nodes],
            down: vec![0; nodes],
            cut: vec![0; if failures.is_empty() { 0 } else { nodes * nodes }],
            drained: vec![0; nodes],
            drains: vec![0; nodes],
        };
        for (index, failure) in failures.iter().enumerate() {
            if let Lost::Drained(node) = failure.lost {
                world.drains[usize::from(node)] |= 1 << index;
            }
            world.changes.push((failure.slot, Change::Works(index, false)));
            if let Some(until) = failure.until {
                world.changes.push((until, Change::Works(index, true)));
            }
            for node in world.healthy.all() {
                let (lost, back) = (world.sees(index, node), world.sees_return(index, node));
                // What is back before a node sees the loss is never lost to it.
                if back.is_none_or(|back| back > lost) {
                    world.changes.push((lost, Change::Seen(index, node, true)));
                    let back = back.map(|back| (back, Change::Seen(index, node, false)));
                    world.changes.extend(back);
                }
            }
        }
        world.changes.sort_by_key(|&(slot, _)| Reverse(slot));
        world
    }

    /// Whether the node is the one that a failure is about: it knows at once.
    fn own(&self, failure: usize, node: NodeId) -> bool {
        match self.failures[failure].lost {
            Lost::Node(lost) | Lost::Drained(lost) => lost == node,
            Lost::Link(..) | Lost::Between(_) => false,
        }
    }

    /// Slot in which a node sees a failure.
    #[allow(clippy::cast_possible_truncation, reason = "below a number of slots")]
    fn sees(&self, index: usize, node: NodeId) -> u32 {
        let failure = &self.failures[index];
        if self.own(index, node) {
            return failure.slot;
        }
        let word = self.seed ^ ((index as u64) << 32) ^ u64::from(node);
        let jitter = Rng::new(word).below(failure.jitter_slots as usize + 1) as u32;
        failure.slot.saturating_add(failure.detection_slots).saturating_add(jitter)
    }

    fn sees_return(&self, index: usize, node: NodeId) -> Option<u32> {
        let failure = &self.failures[index];
        if self.own(index, node) { failure.until } else { failure.returned() }
    }

    /// Makes the changes that are due, and returns the nodes that died by them.
    pub(super) fn advance(&mut self, slot: u32) -> Vec<NodeId> {
        let mut died = Vec::new();
        while let Some((_, change)) = self.changes.pop_if(|&mut (at, _)| at <= slot) {
            match change {
                Change::Seen(index, node, lost) => self.see(index, usize::from(node), lost),
                Change::Works(index, works) => {
                    let failure = self.failures[index];
                    let change =
                        |count: &mut u32| *count = if works { *count - 1 } else { *count + 1 };
                    match failure.lost {
                        Lost::Node(node) => {
                            change(&mut self.down[usize::from(node)]);
                            if !works {
                                died.push(node);
                            }
                        }
                        Lost::Link(..) | Lost::Between(_) => {
                            let links = self
                                .healthy
                                .all()
                                .flat_map(|from| self.healthy.all().map(move |to| (from, to)));
                            let cut = links.zip(&mut self.cut);
                            cut.filter(|((from, to), _)| failure.breaks(*from, *to))
                                .for_each(|(_, count)| change(count));
                        }
                        Lost::Drained(node) => change(&mut self.drained[usize::from(node)]),
                    }
                }
            }
        }
        died
    }

    /// Moves a node to the view that has this failure, or no longer has it.
    fn see(&mut self, index: usize, node: usize, lost: bool) {
        let old = self.view[node];
        let bit = 1u128 << index;
        let seen = if lost { self.views[old].seen | bit } else { self.views[old].seen & !bit };
        self.views[old].nodes -= 1;
        let found = self.views.iter().position(|view| view.seen == seen && view.nodes > 0);
        let at = found.unwrap_or_else(|| {
            let view = View { seen, members: self.members_of(seen), nodes: 0 };
            if let Some(free) = self.views.iter().position(|view| view.nodes == 0) {
                self.views[free] = view;
                return free;
            }
            self.views.push(view);
            self.views.len() - 1
        });
        self.views[at].nodes += 1;
        self.view[node] = at;
    }

    fn members_of(&self, seen: u128) -> Members {
        let mut members = self.healthy.clone();
        let failures =
            || self.failures.iter().enumerate().filter(|(index, _)| seen >> index & 1 == 1);
        for (_, failure) in failures() {
            match failure.lost {
                Lost::Drained(node) => members.set_node(node, NodeState::Draining),
                Lost::Link(from, to) => members.set_link(from, to, false),
                Lost::Between(first) => {
                    for from in self.healthy.all().filter(|&from| from < first) {
                        for to in self.healthy.all().filter(|&to| to >= first) {
                            members.set_link(from, to, false);
                            members.set_link(to, from, false);
                        }
                    }
                }
                Lost::Node(_) => {}
            }
        }
        // A node that drained before it died is down.
        for (_, failure) in failures() {
            if let Lost::Node(node) = failure.lost {
                members.set_node(node, NodeState::Down);
            }
        }
        members
    }

    /// Members as a node sees them.
    #[inline]
    pub(super) fn members(&self, node: usize) -> &Members {
        &self.views[self.view[node]].members
    }

    /// Whether a node sees that another one drains, so that routes no longer lead to its ports.
    #[inline]
    pub(super) fn withdrawn(&self, node: usize, to: NodeId) -> bool {
        self.views[self.view[node]].seen & self.drains[usize::from(to)] != 0
    }

    /// Whether a node takes no traffic at its ports.
    #[inline]
    pub(super) fn silent(&self, node: usize) -> bool {
        self.down[node] > 0 || self.drained[node] > 0
    }

    /// Whether a node is dead.
    #[inline]
    pub(super) fn dead(&self, node: usize) -> bool {
        self.down[node] > 0
    }

    /// Whether a packet on this link is lost.
    #[inline]
    pub(super) fn broken(&self, from: NodeId, to: NodeId) -> bool {
        let (from, to) = (usize::from(from), usize::from(to));
        self.dead(from)
            || self.dead(to)
            || self.cut.get(from * self.nodes + to).is_some_and(|&count| count > 0)
    }

    /// Whether the input of a packet that arrived in slot `born` saw what took the link from `from` to `to` away; for a
    /// node both ends are that node.
    pub(super) fn late(&self, input: NodeId, born: u32, from: NodeId, to: NodeId) -> bool {
        let taken = self.failures.iter().enumerate().filter(|(_, it)| it.breaks(from, to));
        let mut lasting = taken.filter(|(_, it)| it.returned().is_none_or(|back| back > born));
        lasting.any(|(index, _)| born >= self.sees(index, input))
    }

    /// Slots until the last node sees a failure, at most over all of them.
    pub(super) fn detection_slots(&self) -> u32 {
        let nodes = || self.healthy.all();
        let latest = |index: usize| nodes().map(|node| self.sees(index, node)).max().unwrap_or(0);
        let slots = (0..self.failures.len()).map(|index| latest(index) - self.failures[index].slot);
        slots.max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAILURE: Failure = Failure {
        lost: Lost::Node(2),
        slot: 100,
        detection_slots: 50,
        jitter_slots: 20,
        until: Some(1000),
    };

    #[test]
    fn each_node_sees_a_failure_in_a_slot_of_its_own() {
        let mut world = World::new(Members::equal(40), &[FAILURE], 3);
        let mut seen = vec![0; 40];
        for slot in 0..1200 {
            let died = world.advance(slot);
            assert_eq!(died, if slot == 100 { vec![2] } else { vec![] });
            assert_eq!(world.broken(2, 5), (100..1000).contains(&slot), "{slot}");
            for (node, seen) in seen.iter_mut().enumerate() {
                *seen += u32::from(world.members(node).node(2) == NodeState::Down);
            }
            assert!(world.views.len() <= 2, "{} views", world.views.len());
        }
        assert_eq!(seen[2], 900, "a node knows of itself at once");
        seen.remove(2);
        // Seen from 150 to 170 on, until all see the return in slot 1070.
        assert!(seen.iter().all(|slots| (900..=920).contains(slots)), "{seen:?}");
        assert!(seen.iter().any(|&slots| slots != seen[0]));
        assert!((50..=70).contains(&world.detection_slots()));
    }

    #[test]
    fn what_returns_before_it_is_seen_changes_no_view() {
        let short = Failure { until: Some(101), jitter_slots: 0, detection_slots: 0, ..FAILURE };
        let both = [short, Failure { lost: Lost::Drained(2), until: None, ..FAILURE }];
        let mut world = World::new(Members::equal(4), &both, 1);
        world.advance(101);
        assert_eq!(world.members(1).node(2), NodeState::Down);
        assert!(world.silent(2) && !world.dead(2));
        world.advance(400);
        assert_eq!(world.members(1).node(2), NodeState::Draining);
        assert_eq!(world.members(1).node(1), NodeState::Active);
    }
}
