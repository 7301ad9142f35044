//! What fails during a run, and when the others notice.

use crate::rule::NodeId;

/// What is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lost {
    /// A node with its ports and its queues.
    Node(NodeId),
    /// A link, in this direction alone.
    Link(NodeId, NodeId),
    /// Nothing: the node drains. It offers no traffic and is not chosen as an intermediate.
    Drained(NodeId),
}

/// Failure of a run.
#[derive(Clone, Copy, Debug)]
pub struct Failure {
    /// What is lost.
    pub lost: Lost,
    /// Slot of the loss.
    pub slot: u32,
    /// Slots until all nodes know.
    pub detection_slots: u32,
    /// Slot of its return; `None` for never.
    pub until: Option<u32>,
}

/// Change of the state of the world, or of what nodes know of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// It stops, or works again.
    Works(Lost, bool),
    /// All nodes know.
    Known(Lost, bool),
}

/// Changes of all failures, the latest first.
pub(super) fn changes(failures: &[Failure]) -> Vec<(u32, Change)> {
    let mut changes = Vec::new();
    for failure in failures {
        let known = failure.slot.saturating_add(failure.detection_slots);
        changes.push((failure.slot, Change::Works(failure.lost, false)));
        changes.push((known, Change::Known(failure.lost, false)));
        if let Some(until) = failure.until {
            changes.push((until, Change::Works(failure.lost, true)));
            changes.push((until.saturating_add(1), Change::Known(failure.lost, true)));
        }
    }
    changes.sort_by_key(|&(slot, _)| std::cmp::Reverse(slot));
    changes
}
