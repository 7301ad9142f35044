//! The decision at every node after the input: the output, the link to it, or a drop.
//!
//! Source: RouteBricks, SOSP 2009, section 3: a packet deviates once. The phase in the frame is the loop guard: a packet
//!         of phase 2 that is not at its egress node is dropped, never balanced again.

use super::{Members, NodeId};

/// Phase of a packet on an internal link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The packet is sent to an intermediate.
    First,
    /// The packet is sent to the egress node.
    Second,
}

/// Reason why a node drops an internal packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The packet is in phase 2 and not for this node.
    Phase,
    /// The link to the egress node, or that node, is down.
    LinkDown,
    /// There is no such node.
    UnknownNode,
}

/// What a node does with an internal packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Sends it out of an external port.
    Output,
    /// Sends it to the egress node, in phase 2.
    Transit,
    /// Drops it.
    Drop(Refusal),
}

/// Decides what the node `at` does with a packet of this phase for `to`. It reads no queue and no table of routes.
#[inline]
pub fn forward(members: &Members, at: NodeId, to: NodeId, phase: Phase) -> Step {
    if at == to {
        return Step::Output;
    }
    if usize::from(to) >= members.len() {
        return Step::Drop(Refusal::UnknownNode);
    }
    match phase {
        Phase::Second => Step::Drop(Refusal::Phase),
        Phase::First if members.direct(at, to) => Step::Transit,
        Phase::First => Step::Drop(Refusal::LinkDown),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_deviates_once() {
        let mut members = Members::equal(4);
        assert_eq!(forward(&members, 2, 1, Phase::First), Step::Transit);
        assert_eq!(forward(&members, 2, 1, Phase::Second), Step::Drop(Refusal::Phase));
        assert_eq!(forward(&members, 1, 1, Phase::First), Step::Output);
        assert_eq!(forward(&members, 1, 1, Phase::Second), Step::Output);
        assert_eq!(forward(&members, 1, 9, Phase::First), Step::Drop(Refusal::UnknownNode));
        members.set_link(2, 1, false);
        assert_eq!(forward(&members, 2, 1, Phase::First), Step::Drop(Refusal::LinkDown));
    }
}
