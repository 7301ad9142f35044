//! Neighbors that the kernel deletes while next hops use them: packets keep leaving by the known link-layer
//! address until the kernel has resolved the neighbor again, or failed to.
//!
//! `ip neigh flush`, a full neighbor table and a kernel that lost messages to us all delete neighbors that answer
//! as before. The kernel resolves one again with its next packet and queues packets meanwhile; it does not see
//! ours, so it is asked where packets used the adjacency lately ([`Control::keep_alive`]).
//!
//! A neighbor that did not answer is reported as failed and stays; a deletion is reported as failed first and as
//! gone a few microseconds later. So a failure counts when it has stood for [`DELETION`].
//!
//! Cost: nothing while nothing is deleted; the uses of adjacencies are read a few times a second meanwhile.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use super::Control;
use super::neighbors::LONGEST_QUESTION;
use crate::event::NeighborState;

/// Between the two reports of a deletion, at most. Detecting a neighbor that is silent took the kernel seconds before.
const DELETION: Duration = Duration::from_millis(20);
/// For so long the address of a neighbor is kept by which no packet leaves: until its use would show.
const UNUSED: Duration = Duration::from_secs(5);

/// Neighbors whose link-layer address is in use although the kernel no longer has it.
pub(super) type Unconfirmed = HashMap<(u32, IpAddr), Since>;

/// For how long one is unconfirmed. Times are those of the commits that followed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Since {
    first: Option<Instant>,
    /// The last report said that it failed, and when that was.
    failed: Option<Option<Instant>>,
    /// The kernel was asked to resolve it.
    pub(super) asked: bool,
}

impl Since {
    /// What holds from now on; `None` while it may be confirmed still.
    fn end(&mut self, now: Instant) -> Option<NeighborState> {
        let first = *self.first.get_or_insert(now);
        let limit = if self.asked { LONGEST_QUESTION } else { UNUSED };
        match &mut self.failed {
            Some(failed) => {
                let failed = *failed.get_or_insert(now);
                let over = now.saturating_duration_since(failed) >= DELETION;
                over.then_some(NeighborState::Failed)
            }
            None => {
                let over = now.saturating_duration_since(first) >= limit;
                over.then_some(NeighborState::Gone)
            }
        }
    }
}

impl Control {
    /// What a report of the kernel means for packets: one that takes the link-layer address away from next hops
    /// leaves it as stale.
    pub(super) fn unconfirm(
        &mut self,
        (link, addr): (u32, IpAddr),
        state: NeighborState,
    ) -> NeighborState {
        let known = self.neighbors.known(link, addr).and_then(NeighborState::mac);
        let used = self.hops.adjacencies_of(link, addr).next().is_some();
        let unconfirmed = &mut self.neighbors.unconfirmed;
        let Some(mac) = known.filter(|_| used && state.mac().is_none()) else {
            unconfirmed.remove(&(link, addr));
            return state;
        };
        let since = unconfirmed.entry((link, addr)).or_default();
        if state == NeighborState::Gone {
            // What was asked for is deleted, too.
            *since = Since::default();
        }
        since.failed = (state == NeighborState::Failed).then(|| since.failed.flatten());
        NeighborState::Stale(mac)
    }

    /// Whether the uses of adjacencies are wanted ([`Control::keep_alive`]), as some neighbor was deleted that
    /// packets may leave by.
    pub fn wants_uses(&self) -> bool {
        self.neighbors.unconfirmed.values().any(|since| !since.asked)
    }

    /// Ends the use of neighbors that failed, or were not confirmed in time. Part of each commit.
    pub(super) fn settle_unconfirmed(&mut self, now: Instant) {
        let ends = |(&key, since): (&_, &mut Since)| Some((key, since.end(now)?));
        let over: Vec<_> = self.neighbors.unconfirmed.iter_mut().filter_map(ends).collect();
        for ((link, addr), state) in over {
            self.neighbors.unconfirmed.remove(&(link, addr));
            self.neighbors.set(link, addr, state);
            self.fill_neighbor(link, addr);
        }
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::super::tests::{Lab, RIGHT, lab, mac, via};
    use super::*;
    use crate::control::NeighborRequest;
    use crate::hops::ForwardingAction;
    use NeighborState::{Failed, Gone, Incomplete, Reachable, Stale};

    const GATEWAY: &str = "10.0.2.9";
    const BEHIND: &str = "192.0.2.1";
    const MS: Duration = Duration::from_millis(1);

    /// With a route over a known gateway, and its adjacency.
    fn routed() -> (Lab, u32) {
        let mut lab = lab();
        lab.route("192.0.2.0/24", via(GATEWAY));
        lab.neighbor(RIGHT, GATEWAY, Reachable(mac(9)));
        lab.commit();
        let ForwardingAction::Adjacency(index) = lab.action(BEHIND) else {
            panic!("not an adjacency")
        };
        (lab, index)
    }

    impl Lab {
        fn says(&mut self, state: NeighborState) {
            self.neighbor(RIGHT, GATEWAY, state);
        }
        fn after(&mut self, time: Duration) {
            self.now += time;
            self.commit();
        }
        /// Whether packets leave, to this address.
        fn leave_to(&mut self, last: u8) -> bool {
            let adjacency = self.adjacency(BEHIND);
            adjacency.resolved() && adjacency.dst == mac(last)
        }
    }

    #[test]
    fn a_neighbor_that_is_flushed_is_used_until_it_is_resolved_again() {
        let (mut lab, index) = routed();
        assert!(!lab.control.wants_uses());
        let want = NeighborRequest { link: RIGHT, addr: GATEWAY.parse().unwrap() };
        // Again and again, also while it is being resolved.
        for round in 0..3 {
            for state in [Failed, Gone] {
                lab.says(state);
                assert!(lab.leave_to(9), "{state:?}");
                lab.after(5 * MS);
                assert!(lab.leave_to(9), "{state:?}, with a commit between the two reports");
            }
            assert!(lab.control.wants_uses());
            lab.control.keep_alive([index]);
            assert_eq!(lab.control.take_requests(), [want]);
            assert!(!lab.control.wants_uses(), "it is asked for");
            lab.says(Incomplete);
            lab.after(100 * MS);
            assert!(lab.leave_to(9));
            if round > 0 {
                lab.says(Reachable(mac(9)));
                lab.after(Duration::from_secs(60));
                assert!(lab.leave_to(9) && !lab.control.wants_uses());
            }
        }
        // At another address from now on: at once.
        lab.says(Failed);
        lab.says(Gone);
        lab.says(Reachable(mac(8)));
        assert!(lab.leave_to(8));
        lab.after(Duration::from_secs(60));
        assert!(lab.leave_to(8));
    }

    #[test]
    fn a_neighbor_that_failed_is_used_no_longer() {
        for before in [Reachable(mac(9)), Stale(mac(9))] {
            let (mut lab, index) = routed();
            lab.says(before);
            lab.says(Failed);
            lab.commit();
            lab.after(19 * MS);
            assert!(lab.leave_to(9), "it may be a deletion");
            lab.after(MS);
            assert!(lab.adjacency(BEHIND).failed());
            // One that was deleted and did not answer, after the kernel's three probes.
            lab.says(before);
            assert!(lab.leave_to(9));
            lab.says(Failed);
            lab.says(Gone);
            lab.commit();
            lab.control.keep_alive([index]);
            lab.says(Incomplete);
            lab.after(3000 * MS);
            assert!(lab.leave_to(9));
            lab.says(Failed);
            lab.commit();
            lab.after(20 * MS);
            assert!(lab.adjacency(BEHIND).failed());
        }
    }

    #[test]
    fn an_address_that_nobody_confirms_is_used_for_a_bounded_time() {
        let (mut lab, index) = routed();
        for (used, limit) in [(false, UNUSED), (true, LONGEST_QUESTION)] {
            lab.says(Gone);
            lab.commit();
            if used {
                lab.control.keep_alive([index]);
            }
            lab.after(limit - MS);
            assert!(lab.leave_to(9));
            lab.after(MS);
            let adjacency = lab.adjacency(BEHIND);
            assert!(!adjacency.resolved() && !adjacency.failed(), "packets wait for an answer");
            assert!(!lab.control.wants_uses());
            lab.says(Reachable(mac(9)));
            lab.commit();
        }
        // One that nothing leads to is forgotten at once.
        lab.withdraw("192.0.2.0/24");
        lab.route("10.0.2.0/28", via("10.0.1.7"));
        lab.commit();
        lab.says(Gone);
        assert!(!lab.control.wants_uses());
        let known = |lab: &Lab| lab.control.neighbors().any(|row| row.link == RIGHT);
        assert!(!known(&lab));
    }
}
