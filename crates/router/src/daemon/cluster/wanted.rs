//! What the host's kernel is to have of the other members of a cluster, and which of these are lost.
//!
//! Source: decision 18.
//! Shape:  a function from the membership to the entries of [`super::host`], and the members that were reached at some time
//!         and are not now.
//! Cost:   a pass over all that the members announce, when that or a member's state has changed.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use fingerpost_cluster::fabric::Fabric;
use fingerpost_cluster::frame::{FabricAddr, LOOKUP};
use fingerpost_cluster::rule::{NodeId, NodeState};
use fingerpost_cluster::store::member::{Membership, Record};
use fingerpost_route::AnyPrefix;

use super::host::Entry;
use super::own;

/// Which members were reached at some time, and which of these no longer are: routing daemons are to take them out of their
/// next hops, and at the start they are to find all of them.
#[derive(Default)]
pub(super) struct Reach {
    reached: BTreeSet<NodeId>,
    lost: BTreeSet<NodeId>,
}

impl Reach {
    /// Follows the state of the members; returns whether one was lost or came back.
    pub(super) fn follow(&mut self, fabric: &Fabric) -> bool {
        let mut reader = fabric.reader();
        let members = reader.pin();
        let down = |node: &NodeId| members.node(*node) == NodeState::Down;
        self.reached.extend(members.all().filter(|node| !down(node)));
        let lost: BTreeSet<NodeId> = self.reached.iter().copied().filter(down).collect();
        let changed = lost != self.lost;
        self.lost = lost;
        changed
    }

    /// Whether a member was reached and is not now.
    pub(super) fn is_lost(&self, node: NodeId) -> bool {
        self.lost.contains(&node)
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
