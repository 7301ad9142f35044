//! What the host's kernel is to have of the other members of a cluster, and which of these are lost.
//!
//! Source: decision 18.
//! Shape:  a function from the membership to the entries of [`super::host`], and the members that are lost: down for a second,
//!         not reached since they joined, or still not reached half a minute after the start.
//! Cost:   a pass over all that the members announce, when that or a member's state has changed.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use fingerpost_cluster::frame::{FabricAddr, LOOKUP};
use fingerpost_cluster::rule::{Members, NodeId, NodeState};
use fingerpost_cluster::store::member::{Membership, Record};
use fingerpost_route::AnyPrefix;

use super::host::Entry;
use super::own;

/// How long a member has to be down before it is lost. Routing daemons withdraw all routes through it then, and set them again
/// when it returns: with a table of the Internet that takes minutes, and an interruption of some tens of milliseconds, as
/// a busy host may cause by itself, must not. Packets take other paths or are dropped meanwhile.
const HOLD: Duration = Duration::from_secs(1);

/// How long a member may be down at the start: interfaces are opened, and some have no carrier for seconds when they get a
/// program.
const START: Duration = Duration::from_secs(30);

/// Which members are not reached, or are about to stop: routing daemons are to take them out of their next hops. At the start they
/// are to find all of them. One that joins is not reached before its links are up: its routes would lead nowhere.
#[derive(Default)]
pub(super) struct Reach {
    /// Members at the last call; `None` before the first one.
    known: Option<BTreeSet<NodeId>>,
    /// Members that are down, each with the time from which it is lost.
    down: BTreeMap<NodeId, Instant>,
    lost: BTreeSet<NodeId>,
}

impl Reach {
    /// Follows the state of the members, and which of them are about to stop; returns whether one was lost or came back.
    pub(super) fn follow(
        &mut self,
        (members, leaving): (&Members, &[NodeId]),
        membership: &Membership,
        now: Instant,
    ) -> bool {
        // The number of a node that has left may be another one's later.
        let known = |node: &NodeId| membership.members.iter().any(|record| record.number == *node);
        let (down, up): (Vec<_>, Vec<_>) =
            members.all().filter(known).partition(|&node| members.node(node) == NodeState::Down);
        let leaving: Vec<_> = up.iter().copied().filter(|node| leaving.contains(node)).collect();
        self.follow_states(&up, &down, &leaving, now)
    }

    fn follow_states(
        &mut self,
        up: &[NodeId],
        down: &[NodeId],
        leaving: &[NodeId],
        now: Instant,
    ) -> bool {
        let members = up.iter().chain(down).copied().collect();
        let before = self.known.replace(members);
        self.down.retain(|node, _| down.contains(node));
        for &node in down {
            let held = match &before {
                None => START,
                Some(before) if before.contains(&node) => HOLD,
                Some(_) => Duration::ZERO,
            };
            self.down.entry(node).or_insert(now + held);
        }
        let lost = self.down.iter().filter(|(_, until)| **until <= now).map(|(&node, _)| node);
        // Those that are about to stop forward until the routes by them are withdrawn.
        let stays = self.lost.iter().filter(|node| down.contains(node));
        let lost: BTreeSet<NodeId> =
            lost.chain(leaving.iter().copied()).chain(stays.copied()).collect();
        let changed = lost != self.lost;
        self.lost = lost;
        changed
    }

    /// Whether a member has been down for long enough, or is about to stop.
    pub(super) fn is_lost(&self, node: NodeId) -> bool {
        self.lost.contains(&node)
    }

    /// Whether a member that is lost is down.
    pub(super) fn is_gone(&self, node: NodeId) -> bool {
        self.is_lost(node) && self.down.contains_key(&node)
    }
}

/// What the host's kernel is to have of the members: for the others their loopbacks, the neighbors behind them by their
/// adjacency, and their prefixes; of lost ones no route. What this node is connected to itself is left out, and of two
/// members that announce one thing the one with the lower number has it.
pub(super) fn entries(
    membership: &Membership,
    own: &Record,
    is_lost: impl Fn(NodeId) -> bool,
) -> BTreeSet<Entry> {
    let mut entries = BTreeSet::new();
    let mut neighbors = BTreeMap::new();
    let mut routes = BTreeMap::new();
    let loopbacks = |record: &Record| {
        let v4 = record.loopback.map(IpAddr::V4);
        v4.into_iter().chain(record.loopback6.map(IpAddr::V6))
    };
    let is_own = |addr: IpAddr| {
        own.addresses.contains(&addr)
            || loopbacks(own).any(|loopback| loopback == addr)
            || own.prefixes.iter().any(|prefix| own::holds(*prefix, addr))
    };
    for record in &membership.members {
        if record.number == own.number {
            entries.extend(loopbacks(record).map(Entry::Address));
            continue;
        }
        let mac = FabricAddr { adjacency: LOOKUP, output: record.number }.mac().0;
        for addr in loopbacks(record) {
            neighbors.insert(addr, mac);
            if !is_lost(record.number) {
                routes.insert((addr, host_len(addr)), None);
            }
        }
    }
    let others = || {
        let members = membership.members.iter();
        members.filter(|record| record.number != own.number && !is_lost(record.number))
    };
    for record in others() {
        for neighbor in &record.neighbors {
            let addr = neighbor.address;
            if !own::is_routed(addr) || is_own(addr) || neighbors.contains_key(&addr) {
                continue;
            }
            let (adjacency, output) = (neighbor.adjacency, record.number);
            neighbors.insert(addr, FabricAddr { adjacency, output }.mac().0);
            routes.insert((addr, host_len(addr)), None);
        }
    }
    for record in others() {
        // IPv6 destinations need a gateway of their family; IPv4 ones do not (RFC 8950).
        let via = |of: IpAddr| {
            loopbacks(record)
                .find(|loopback| loopback.is_ipv4() == of.is_ipv4())
                .or_else(|| loopbacks(record).next().filter(|_| of.is_ipv4()))
        };
        let host = |addr: &IpAddr| AnyPrefix::new(*addr, host_len(*addr)).ok();
        let addresses = record.addresses.iter().filter(|addr| !is_own(**addr)).filter_map(host);
        let prefixes = record.prefixes.iter().copied();
        let prefixes = prefixes.filter(|prefix| !own.prefixes.contains(prefix) && prefix.len() > 0);
        for prefix in prefixes.chain(addresses).filter(|prefix| own::is_routed(prefix.addr())) {
            let key = (prefix.addr(), prefix.len());
            if let Some(via) = via(prefix.addr()) {
                routes.entry(key).or_insert(Some(via));
            }
        }
    }
    entries.extend(neighbors.into_iter().map(|(addr, mac)| Entry::Neighbor { addr, mac }));
    entries.extend(routes.into_iter().map(|(prefix, via)| Entry::Route { via, prefix }));
    entries
}

/// Length of the prefix of one address.
fn host_len(addr: IpAddr) -> u8 {
    if addr.is_ipv4() { 32 } else { 128 }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use fingerpost_cluster::store::member::Neighbor;

    use super::super::kept::Kept;
    use super::*;

    fn record(id: &str, number: NodeId) -> Record {
        let loopback = Some(format!("192.0.2.{number}").parse().unwrap());
        Record { id: id.to_owned(), number, loopback, ..Record::default() }
    }

    fn prefixes(of: &[&str]) -> Vec<AnyPrefix> {
        of.iter().map(|prefix| AnyPrefix::parse(prefix).unwrap()).collect()
    }

    fn neighbor(addr: &str, adjacency: u32) -> Neighbor {
        Neighbor { address: addr.parse().unwrap(), adjacency }
    }

    fn wanted(members: &[Record], lost: &[NodeId]) -> Vec<String> {
        let membership = Membership { members: members.to_vec(), ..Membership::default() };
        let entries = entries(&membership, &members[0], |node| lost.contains(&node));
        entries.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn what_a_member_announces_is_reached_by_it() {
        let b = Record {
            addresses: vec!["10.2.0.1".parse().unwrap()],
            prefixes: prefixes(&["10.2.0.0/24"]),
            neighbors: vec![neighbor("10.2.0.9", 5)],
            ..record("b", 2)
        };
        assert_eq!(
            wanted(&[record("a", 1), b], &[]),
            [
                "address 192.0.2.1",
                "neighbor 10.2.0.9 at 02:00:00:05:00:02",
                "neighbor 192.0.2.2 at 02:00:00:00:00:02",
                "route 10.2.0.9/32",
                "route 192.0.2.2/32",
                "route 10.2.0.0/24 via 192.0.2.2",
                "route 10.2.0.1/32 via 192.0.2.2",
            ]
        );
    }

    #[test]
    fn a_member_is_lost_after_a_second_and_returns_at_once() {
        let (mut reach, start) = (Reach::default(), Instant::now());
        let after = |ms| start + Duration::from_millis(ms);
        assert!(!reach.follow_states(&[1, 2], &[3], &[], start));
        // A short interruption, and another one right after it.
        for (ms, down) in [(10, true), (900, true), (950, false), (960, true), (1_900, true)] {
            let states: [&[NodeId]; 2] = if down { [&[1], &[2, 3]] } else { [&[1, 2], &[3]] };
            assert!(!reach.follow_states(states[0], states[1], &[], after(ms)), "{ms}");
        }
        assert!(reach.follow_states(&[1], &[2, 3], &[], after(1_960)));
        // One that was not there yet is not lost.
        assert_eq!([1, 2, 3].map(|node| reach.is_lost(node)), [false, true, false]);
        assert!(reach.follow_states(&[1, 2], &[3], &[], after(1_961)) && !reach.is_lost(2));
        // One that is about to stop is lost at once, stays so when it has stopped, and is back when it is.
        assert!(reach.follow_states(&[1, 2], &[3], &[2], after(1_970)) && reach.is_lost(2));
        assert!(!reach.follow_states(&[1], &[2, 3], &[], after(1_980)) && reach.is_lost(2));
        assert!(reach.follow_states(&[1, 2], &[3], &[], after(1_990)) && !reach.is_lost(2));
    }

    #[test]
    fn a_member_that_joins_is_lost_until_it_is_reached() {
        let (mut reach, start) = (Reach::default(), Instant::now());
        let after = |ms| start + Duration::from_millis(ms);
        reach.follow_states(&[1, 2], &[], &[], start);
        // It is drained, leaves, and is dropped from the members; it joins before its interfaces are open.
        reach.follow_states(&[1, 2], &[], &[2], after(100));
        reach.follow_states(&[1], &[2], &[], after(200));
        assert!(reach.is_lost(2));
        reach.follow_states(&[1], &[], &[], after(300));
        reach.follow_states(&[1], &[2], &[], after(400));
        assert!(reach.is_lost(2), "no link leads to it yet");
        assert!(reach.follow_states(&[1, 2], &[], &[], after(500)) && !reach.is_lost(2));
    }

    #[test]
    fn a_member_that_the_store_lost_outlives_a_short_interruption_of_its_links() {
        let (mut reach, start) = (Reach::default(), Instant::now());
        let after = |ms| start + Duration::from_millis(ms);
        let membership = |members: &[Record]| {
            Arc::new(Membership { members: members.to_vec(), ..Membership::default() })
        };
        let (all, less) =
            (membership(&[record("a", 1), record("b", 2)]), membership(&[record("a", 1)]));
        let mut kept = Kept::new(all.clone());
        let mut members = all;
        let mut count = |reach: &Reach| {
            let hold = Duration::from_secs(3600);
            if let Some(now) =
                kept.follow(less.clone(), &members, hold, |node| !reach.is_gone(node))
            {
                members = now;
            }
            members.members.len()
        };
        reach.follow_states(&[1, 2], &[], &[], start);
        assert_eq!(count(&reach), 2);
        reach.follow_states(&[1], &[2], &[], after(10));
        assert_eq!(count(&reach), 2, "its links are down for a moment");
        reach.follow_states(&[1, 2], &[], &[], after(60));
        // It is about to stop, and forwards until then.
        reach.follow_states(&[1, 2], &[], &[2], after(70));
        assert_eq!(count(&reach), 2);
        reach.follow_states(&[1], &[2], &[], after(80));
        assert_eq!(count(&reach), 1);
    }

    #[test]
    fn a_member_that_is_not_reached_is_lost_half_a_minute_after_the_start() {
        let (mut reach, start) = (Reach::default(), Instant::now());
        let after = |ms| start + Duration::from_millis(ms);
        reach.follow_states(&[], &[1, 2, 3], &[], start);
        assert!(!reach.follow_states(&[1], &[2, 3], &[], after(29_999)));
        assert!(reach.follow_states(&[1, 2], &[3], &[], after(30_000)));
        assert_eq!([1, 2, 3].map(|node| reach.is_lost(node)), [false, false, true]);
        assert!(reach.follow_states(&[1, 2, 3], &[], &[], after(30_100)) && !reach.is_lost(3));
    }

    #[test]
    fn a_lost_member_keeps_its_neighbor_and_no_route() {
        let b = Record { prefixes: prefixes(&["10.2.0.0/24"]), ..record("b", 2) };
        assert_eq!(
            wanted(&[record("a", 1), b], &[2]),
            ["address 192.0.2.1", "neighbor 192.0.2.2 at 02:00:00:00:00:02"]
        );
    }

    #[test]
    fn what_overlaps_is_left_to_this_node_and_then_to_the_lower_number() {
        let own = Record { prefixes: prefixes(&["10.1.0.0/24"]), ..record("a", 1) };
        let [mut b, mut c] = [record("b", 2), record("c", 3)];
        for other in [&mut b, &mut c] {
            other.prefixes = prefixes(&["10.1.0.0/24", "10.9.0.0/24", "0.0.0.0/0"]);
            other.neighbors = vec![neighbor("10.1.0.7", 4), neighbor("10.9.0.7", 4)];
        }
        let found = wanted(&[own, b, c], &[]);
        let about = |what: &str| found.iter().filter(|entry| entry.contains(what)).count();
        assert_eq!((about("10.1.0."), about("0.0.0.0/0")), (0, 0), "{found:?}");
        assert!(found.contains(&"route 10.9.0.0/24 via 192.0.2.2".to_owned()), "{found:?}");
        assert!(found.contains(&"neighbor 10.9.0.7 at 02:00:00:04:00:02".to_owned()), "{found:?}");
        assert_eq!(about("10.9.0."), 3, "{found:?}");
    }

    #[test]
    fn ipv6_prefixes_need_a_gateway_of_their_family() {
        let both = |six: Option<&str>| Record {
            prefixes: prefixes(&["2001:db8:2::/48"]),
            loopback6: six.map(|addr| addr.parse().unwrap()),
            ..record("b", 2)
        };
        let about = |b: Record| {
            let found = wanted(&[record("a", 1), b], &[]);
            found.into_iter().find(|entry| entry.contains("2001:db8:2::/48"))
        };
        assert_eq!(about(both(None)), None);
        let route = "route 2001:db8:2::/48 via 2001:db8::2";
        assert_eq!(about(both(Some("2001:db8::2"))).as_deref(), Some(route));
    }
}
