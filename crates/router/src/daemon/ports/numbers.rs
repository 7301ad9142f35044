//! Port numbers that interfaces had one after the other: what was counted under a number before its interface got it.
//!
//! The control side gives a number to another link once the former one is gone for a while. Counters only grow, so the counts of
//! that moment are subtracted from all that is shown of the interface.

use std::collections::BTreeMap;

use fingerpost_io::xdp::forward::{Received, Used};

use crate::api::metrics::GraphCounts;

/// Counts under a port number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counted {
    /// Counts of the workers.
    pub(crate) graph: GraphCounts,
    /// Frames that the XDP datapath received.
    pub(crate) received: Received,
    /// Frames that it sent.
    pub(crate) sent: Used,
}

impl Counted {
    /// What was counted since `before`.
    pub(crate) fn since(self, before: &Self) -> Self {
        Self {
            graph: self.graph.since(&before.graph),
            received: self.received.since(&before.received),
            sent: self.sent.since(before.sent),
        }
    }
}

/// The link that has each number, or had it last, and what was counted before.
#[derive(Debug, Default)]
pub(super) struct Numbers(BTreeMap<u16, (u32, Counted)>);

impl Numbers {
    /// Follows the links: `now` is what is counted under a number that another link has by now.
    pub(super) fn follow(
        &mut self,
        links: impl Iterator<Item = (u32, u16)>,
        mut now: impl FnMut(u16) -> Counted,
    ) {
        for (link, port) in links {
            let known = self.0.get(&port).map(|(known, _)| *known);
            if known != Some(link) {
                // Nothing was counted under a number that nobody had.
                let before = if known.is_some() { now(port) } else { Counted::default() };
                self.0.insert(port, (link, before));
            }
        }
    }

    /// What was counted under a number before its link had it.
    pub(super) fn before(&self, port: u16) -> Counted {
        self.0.get(&port).map_or_else(Counted::default, |(_, before)| *before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_begins_at_zero_under_a_number_that_another_one_had() {
        let counted = |packets| {
            let mut counted = Counted::default();
            counted.graph.rx = [packets, 100 * packets];
            counted.received.packets = packets;
            counted.sent = Used { packets, bytes: 60 * packets };
            counted
        };
        let mut numbers = Numbers::default();
        let seen = |numbers: &Numbers, packets| counted(packets).since(&numbers.before(7));
        numbers.follow([(1, 7)].into_iter(), |_| unreachable!("it is nobody else's"));
        numbers.follow([(1, 7), (2, 8)].into_iter(), |_| unreachable!("nothing changed"));
        assert_eq!(seen(&numbers, 5), counted(5));
        numbers.follow([(2, 8)].into_iter(), |_| unreachable!("nobody has it"));
        numbers.follow([(2, 8), (3, 7)].into_iter(), |_| counted(9));
        assert_eq!((seen(&numbers, 9), seen(&numbers, 12)), (Counted::default(), counted(3)));
    }
}
