//! Neighbors that the kernel deletes while next hops use them: packets keep leaving by the known link-layer
//! address until the kernel has resolved the neighbor again, or failed to.
//!
//! `ip neigh flush`, a full neighbor table and lost messages of the kernel all delete neighbors that reply
//! as before. The kernel resolves one again with its next packet and queues packets meanwhile; it does not see
//! forwarded packets, so it gets a request where packets used the adjacency lately ([`crate::Control::keep_alive`]).
//!
//! A neighbor that did not reply is reported as failed and stays; a deletion is reported as failed first and as
//! gone a few microseconds later. So a failure counts when it has stood for [`DELETION`].
//!
//! Cost: nothing while nothing is deleted; the uses of adjacencies are read a few times a second meanwhile.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use super::LONGEST_RESOLUTION;
use crate::event::{Mac, NeighborState};

/// Longest time between the two reports of a deletion. Detecting a silent neighbor took the kernel seconds before.
const DELETION: Duration = Duration::from_millis(20);
/// Time that the address of a neighbor is kept by which no packet leaves: until its use would show.
const UNUSED: Duration = Duration::from_secs(5);

/// Times of one unconfirmed neighbor: those of the commits that followed.
#[derive(Clone, Copy, Debug, Default)]
struct Since {
    first: Option<Instant>,
    /// The last report was a failure, and its time.
    failed: Option<Option<Instant>>,
    /// The kernel got a request to resolve it.
    requested: bool,
}

impl Since {
    /// State from now on; `None` while it may still be confirmed.
    fn end(&mut self, now: Instant) -> Option<NeighborState> {
        let first = *self.first.get_or_insert(now);
        let limit = if self.requested { LONGEST_RESOLUTION } else { UNUSED };
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

/// All unconfirmed neighbors.
#[derive(Debug, Default)]
pub(super) struct Unconfirmed(HashMap<(u32, IpAddr), Since>);

impl Unconfirmed {
    /// State of a neighbor after a report of the kernel: one that takes the link-layer address `known` away from next
    /// hops leaves it as stale.
    pub(super) fn report(
        &mut self,
        key: (u32, IpAddr),
        state: NeighborState,
        known: Option<Mac>,
    ) -> NeighborState {
        let Some(mac) = known.filter(|_| state.mac().is_none()) else {
            self.0.remove(&key);
            return state;
        };
        let since = self.0.entry(key).or_default();
        if state == NeighborState::Gone {
            // A request before the deletion counts no more.
            *since = Since::default();
        }
        since.failed = (state == NeighborState::Failed).then(|| since.failed.flatten());
        NeighborState::Stale(mac)
    }

    /// Notes that the kernel got a request to resolve a neighbor.
    pub(super) fn requested(&mut self, key: &(u32, IpAddr)) {
        if let Some(since) = self.0.get_mut(key) {
            since.requested = true;
        }
    }

    pub(super) fn remove(&mut self, key: &(u32, IpAddr)) {
        self.0.remove(key);
    }

    /// Whether a neighbor waits for its use to show.
    pub(super) fn wants_uses(&self) -> bool {
        self.0.values().any(|since| !since.requested)
    }

    /// Removes neighbors that failed, or were not confirmed in time, each with its state from now on.
    pub(super) fn take_expired(&mut self, now: Instant) -> Vec<((u32, IpAddr), NeighborState)> {
        let ended = |(&key, since): (&_, &mut Since)| Some((key, since.end(now)?));
        let ended: Vec<_> = self.0.iter_mut().filter_map(ended).collect();
        ended.iter().for_each(|(key, _)| self.remove(key));
        ended
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::super::super::tests::{Lab, RIGHT, lab, mac, via};
    use super::*;
    use crate::control::NeighborRequest;
    use crate::hops::ForwardingAction;
    use NeighborState::{Failed, Gone, Incomplete, Reachable, Stale};

    const GATEWAY: &str = "10.0.2.9";
    const BEHIND: &str = "192.0.2.1";
    const MS: Duration = Duration::from_millis(1);

    /// A lab with a route over a known gateway, and its adjacency.
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
        fn report(&mut self, state: NeighborState) {
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
                lab.report(state);
                assert!(lab.leave_to(9), "{state:?}");
                lab.after(5 * MS);
                assert!(lab.leave_to(9), "{state:?}, with a commit between the two reports");
            }
            assert!(lab.control.wants_uses());
            lab.control.keep_alive([index]);
            assert_eq!(lab.control.take_requests(), [want]);
            assert!(!lab.control.wants_uses(), "there is a request");
            lab.report(Incomplete);
            lab.after(100 * MS);
            assert!(lab.leave_to(9));
            if round > 0 {
                lab.report(Reachable(mac(9)));
                lab.after(Duration::from_secs(60));
                assert!(lab.leave_to(9) && !lab.control.wants_uses());
            }
        }
        // At another address from now on: at once.
        lab.report(Failed);
        lab.report(Gone);
        lab.report(Reachable(mac(8)));
        assert!(lab.leave_to(8));
        lab.after(Duration::from_secs(60));
        assert!(lab.leave_to(8));
    }

    #[test]
    fn a_neighbor_that_failed_is_used_no_longer() {
        for before in [Reachable(mac(9)), Stale(mac(9))] {
            let (mut lab, index) = routed();
            lab.report(before);
            lab.report(Failed);
            lab.commit();
            lab.after(19 * MS);
            assert!(lab.leave_to(9), "it may be a deletion");
            lab.after(MS);
            assert!(lab.adjacency(BEHIND).failed());
            // One that was deleted and did not answer, after the kernel's three probes.
            lab.report(before);
            assert!(lab.leave_to(9));
            lab.report(Failed);
            lab.report(Gone);
            lab.commit();
            lab.control.keep_alive([index]);
            lab.report(Incomplete);
            lab.after(3000 * MS);
            assert!(lab.leave_to(9));
            lab.report(Failed);
            lab.commit();
            lab.after(20 * MS);
            assert!(lab.adjacency(BEHIND).failed());
        }
    }

    #[test]
    fn an_address_that_is_not_confirmed_is_used_for_a_bounded_time() {
        let (mut lab, index) = routed();
        for (used, limit) in [(false, UNUSED), (true, LONGEST_RESOLUTION)] {
            lab.report(Gone);
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
            lab.report(Reachable(mac(9)));
            lab.commit();
        }
        // One that nothing leads to is forgotten at once.
        lab.withdraw("192.0.2.0/24");
        lab.route("10.0.2.0/28", via("10.0.1.7"));
        lab.commit();
        lab.report(Gone);
        assert!(!lab.control.wants_uses());
        let known = |lab: &Lab| lab.control.neighbors().any(|row| row.link == RIGHT);
        assert!(!known(&lab));
    }
}
