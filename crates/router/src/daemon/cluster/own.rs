//! The own record of a node: its addresses, connected prefixes and neighbors, and the adjacency indices of these.
//!
//! Source: MPLS labels of egress peer engineering: an index at the egress node names the neighbor there, so that nothing is
//!         looked up a second time.
//! Shape:  an index belongs to a neighbor from its first adjacency to its last; `outputs` of the fabric has the host's
//!         adjacency behind it. Indices are taken in a row from a random one on; the epoch of the first start is random, too:
//!         frames that name indices of an earlier start hit none but by chance.
//! Cost:   a pass over the announced indices a turn of the daemon; one over all adjacencies and addresses five times a second.
//! Limits: 1,000 neighbors; the others are looked up here. Interfaces of VRFs are not announced.
//!
//! When all 65,535 indices were used, those whose neighbor is gone are used again, after the epoch has advanced twice: each
//! advance is a put of the record, and others name the epoch of the record that they follow.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;

use fingerpost_cluster::fabric::{Fabric, MAX_OUTPUTS};
use fingerpost_cluster::store::member::{Neighbor, Record};
use fingerpost_route::nexthop::{AdjacencyKey, NextHops};
use fingerpost_route::{AnyPrefix, Control, LinkState};

/// Most neighbors that a node announces.
const MOST_NEIGHBORS: usize = 1_000;

/// Adjacency indices, each for one neighbor at a time.
#[derive(Debug)]
struct Indices {
    next: u32,
    /// How many were never used.
    fresh: u32,
    /// Low 8 bits are the epoch of the record.
    epoch: u64,
    /// Free ones, with the epoch in which they became that.
    free: VecDeque<(u32, u64)>,
    /// There was none.
    wanted: bool,
}

impl Indices {
    /// All are free; the first and the epoch are taken from a random word.
    fn new(word: u32) -> Self {
        let fresh = u32::try_from(MAX_OUTPUTS - 1).unwrap_or(u32::MAX);
        Self {
            next: 1 + (word >> 8) % fresh,
            fresh,
            epoch: u64::from(word & 0xff),
            free: VecDeque::new(),
            wanted: false,
        }
    }

    fn take(&mut self) -> Option<u32> {
        if self.fresh > 0 {
            self.fresh -= 1;
            let index = self.next;
            self.next = if index as usize + 1 == MAX_OUTPUTS { 1 } else { index + 1 };
            return Some(index);
        }
        let old = self.free.front().filter(|(_, epoch)| self.epoch >= epoch + 2);
        self.wanted |= old.is_none();
        old?;
        self.free.pop_front().map(|(index, _)| index)
    }

    fn give(&mut self, index: u32) {
        self.free.push_back((index, self.epoch));
    }

    /// Advances the epoch, if that is needed to have an index.
    fn advance(&mut self) {
        if std::mem::take(&mut self.wanted) && !self.free.is_empty() {
            self.epoch += 1;
        }
    }

    #[allow(clippy::cast_possible_truncation, reason = "takes the low 8 bits")]
    fn epoch(&self) -> u8 {
        self.epoch as u8
    }
}

/// A neighbor that is announced.
#[derive(Clone, Copy, Debug)]
struct Announced {
    index: u32,
    /// The host's adjacency.
    adjacency: u32,
}

/// The own record, and what it is made from.
#[derive(Debug)]
pub(super) struct Own {
    record: Record,
    indices: Indices,
    neighbors: BTreeMap<AdjacencyKey, Announced>,
}

impl Own {
    /// A record that announces nothing yet.
    pub(super) fn new(record: Record) -> Self {
        let indices = Indices::new(record.boot);
        let record = Record { epoch: indices.epoch(), ..record };
        Self { record, indices, neighbors: BTreeMap::new() }
    }

    /// The record as it was made last.
    pub(super) fn record(&self) -> &Record {
        &self.record
    }

    /// The record, to change what nothing here is about.
    pub(super) fn record_mut(&mut self) -> &mut Record {
        &mut self.record
    }

    /// Lets go of indices whose adjacency is gone or another one's, before packets leave by it.
    pub(super) fn check(&mut self, hops: &NextHops, fabric: &Fabric) {
        self.retain(fabric, |key, announced| {
            let Some(adjacency) = hops.adjacency(*key) else { return false };
            if std::mem::replace(&mut announced.adjacency, adjacency) != adjacency {
                fabric.set_output(announced.index, Some(adjacency));
            }
            true
        });
    }

    /// Lets go of the indices of all neighbors but those that `stays` returns true for.
    fn retain(
        &mut self,
        fabric: &Fabric,
        mut stays: impl FnMut(&AdjacencyKey, &mut Announced) -> bool,
    ) {
        let indices = &mut self.indices;
        self.neighbors.retain(|key, announced| {
            let stays = stays(key, announced);
            if !stays {
                fabric.set_output(announced.index, None);
                indices.give(announced.index);
            }
            stays
        });
    }

    /// Makes the record anew, of what is on `external` interfaces. Returns whether it is another one.
    pub(super) fn renew(
        &mut self,
        control: &Control,
        fabric: &Fabric,
        external: impl Fn(&LinkState) -> bool,
    ) -> bool {
        let links: BTreeSet<u32> = control
            .links()
            .filter(|(_, _, state)| {
                !state.loopback && state.master_kind != "vrf" && external(state)
            })
            .map(|(link, ..)| link)
            .collect();
        self.indices.advance();
        // Those of an interface that is another one's now, such as a VRF's.
        self.retain(fabric, |key, _| links.contains(&key.link));
        self.find_neighbors(control, fabric, &links);
        let addresses = control.addresses().filter(|address| links.contains(&address.link));
        let (mut own, mut prefixes) = (BTreeSet::new(), BTreeSet::new());
        for address in addresses.filter(|address| is_routed(address.addr)) {
            own.insert(address.addr);
            prefixes.extend(connected(address.addr, address.prefix_len));
        }
        let neighbors = self.neighbors.iter().filter_map(|(key, announced)| {
            Some(Neighbor { address: key.neighbor?, adjacency: announced.index })
        });
        let record = Record {
            epoch: self.indices.epoch(),
            addresses: own.into_iter().collect(),
            prefixes: prefixes.into_iter().collect(),
            neighbors: neighbors.collect(),
            ..self.record.clone()
        };
        let changed = record != self.record;
        self.record = record;
        changed
    }

    fn find_neighbors(&mut self, control: &Control, fabric: &Fabric, links: &BTreeSet<u32>) {
        let hops = control.next_hops();
        for (adjacency, key) in hops.adjacencies() {
            // An MTU of its own is that of a route, which the egress node does not know.
            let usual = key.mtu == 0 && key.neighbor.is_some_and(is_routed);
            if !usual
                || !links.contains(&key.link)
                || self.neighbors.contains_key(&key)
                || !hops.table().adjacency(adjacency).resolved()
            {
                continue;
            }
            if self.neighbors.len() >= MOST_NEIGHBORS {
                return;
            }
            let Some(index) = self.indices.take() else { return };
            fabric.set_output(index, Some(adjacency));
            self.neighbors.insert(key, Announced { index, adjacency });
        }
    }
}

/// Whether an address may be that of a destination behind another node.
pub(super) fn is_routed(addr: IpAddr) -> bool {
    let local = match addr {
        IpAddr::V4(addr) => addr.is_link_local(),
        IpAddr::V6(addr) => addr.is_unicast_link_local(),
    };
    !local && !addr.is_loopback() && !addr.is_unspecified() && !addr.is_multicast()
}

/// The prefix that an address is connected to, unless it is the address alone or everything.
fn connected(addr: IpAddr, len: u8) -> Option<AnyPrefix> {
    let network = match addr {
        IpAddr::V4(addr) if (1..32).contains(&len) => {
            IpAddr::V4((addr.to_bits() & (u32::MAX << (32 - len))).into())
        }
        IpAddr::V6(addr) if (1..128).contains(&len) => {
            IpAddr::V6((addr.to_bits() & (u128::MAX << (128 - len))).into())
        }
        _ => return None,
    };
    AnyPrefix::new(network, len).ok()
}

/// Whether a prefix has an address.
pub(super) fn holds(prefix: AnyPrefix, addr: IpAddr) -> bool {
    prefix.addr() == addr || connected(addr, prefix.len()) == Some(prefix)
}

#[cfg(test)]
mod tests {
    use fingerpost_cluster::fabric::{Mode, PathSettings, Settings};
    use fingerpost_cluster::frame::ETHERTYPE;
    use fingerpost_cluster::rule::{self, Members, Rule};
    use fingerpost_lpm::Heap;
    use fingerpost_route::event::{AddressUpdate, LinkUpdate, NeighborState, NeighborUpdate};
    use fingerpost_route::{ControlOptions, Mac, RouteEvent};

    use super::*;

    #[test]
    fn neighbors_of_an_interface_that_is_moved_to_a_vrf_are_not_announced() {
        let settings = Settings { cluster: 1, node: 1, ethertype: ETHERTYPE, clock_ns: 0 };
        let rule = rule::Settings { rule: Rule::Adaptive, threshold: 1000 };
        let paths = PathSettings { mode: Mode::Vlb, rule, flowlet_ns: 2_000_000 };
        let fabric = Fabric::new(&mut Heap, settings, paths, Members::equal(3)).unwrap();
        let (v4, v6) = (fingerpost_lpm::v4().collect(), fingerpost_lpm::v6().collect());
        let options = ControlOptions { v4, v6, connected_from_addresses: true };
        let mut control = Control::new(options).unwrap();
        let kernel = control.add_source("kernel", 0);
        let mac = Some(Mac([2, 0, 0, 0, 0, 7]));
        let plain =
            LinkState { name: "eth0".into(), up: true, mtu: 1500, mac, ..LinkState::default() };
        let link = |control: &mut Control, state: LinkState| {
            let update = LinkUpdate { link: 7, state: Some(state) };
            control.handle(kernel, RouteEvent::Link(update));
            let addr = "10.7.0.1".parse().unwrap();
            let update = AddressUpdate::new(7, addr, 24);
            control.handle(kernel, RouteEvent::Address(update));
            let update = NeighborUpdate {
                link: 7,
                addr: "10.7.0.2".parse().unwrap(),
                state: NeighborState::Reachable(Mac([2, 0, 0, 0, 0, 8])),
            };
            control.handle(kernel, RouteEvent::Neighbor(update));
            control.commit_now(std::time::Instant::now()).unwrap();
        };
        let mut own = Own::new(Record { boot: 1, ..Record::default() });
        link(&mut control, plain.clone());
        assert!(own.renew(&control, &fabric, |_| true));
        let [Neighbor { adjacency, .. }] = own.record().neighbors[..] else {
            panic!("{:?}", own.record().neighbors)
        };
        fabric.set_epoch(1, own.record().epoch);
        assert!(fabric.output(adjacency, own.record().epoch).is_some());
        let master_kind = "vrf".to_owned();
        link(&mut control, LinkState { master: Some(9), master_kind, vrf: Some(5), ..plain });
        own.renew(&control, &fabric, |_| true);
        assert_eq!(own.record().neighbors, []);
        assert_eq!(fabric.output(adjacency, own.record().epoch), None);
    }

    #[test]
    fn an_index_is_used_again_after_two_epochs() {
        let mut indices = Indices::new(0x00ff_fe07);
        let first = indices.epoch();
        let all: BTreeSet<u32> = (1..MAX_OUTPUTS).filter_map(|_| indices.take()).collect();
        assert_eq!((all.len(), all.first(), all.last()), (65_535, Some(&1), Some(&65_535)));
        assert_eq!((indices.take(), indices.epoch()), (None, first));
        // An epoch with nothing that is free would help nobody.
        indices.advance();
        assert_eq!(indices.epoch(), first);
        indices.give(9);
        for epoch in 0..2 {
            assert_eq!((indices.take(), indices.epoch()), (None, first + epoch));
            indices.advance();
        }
        assert_eq!((indices.take(), indices.epoch()), (Some(9), first + 2));
        indices.give(9);
        indices.advance();
        assert_eq!(indices.epoch(), first + 2, "none is wanted");
    }

    #[test]
    fn starts_differ_in_their_first_index() {
        let first = |word| Indices::new(word).take();
        assert_eq!([0, 0x100, 0xffff_ff00].map(first), [Some(1), Some(2), Some(256)]);
    }

    #[test]
    fn prefixes_of_addresses() {
        let prefix = |text: &str, len| connected(text.parse().unwrap(), len).map(|p| p.to_string());
        assert_eq!(prefix("10.1.2.3", 23).as_deref(), Some("10.1.2.0/23"));
        assert_eq!(prefix("fd00::7:1", 112).as_deref(), Some("fd00::7:0/112"));
        assert_eq!([prefix("10.1.2.3", 32), prefix("10.1.2.3", 0)], [None, None]);
        let ten = AnyPrefix::parse("10.1.2.0/23").unwrap();
        let held = |text: &str| holds(ten, text.parse().unwrap());
        assert_eq!(["10.1.3.255", "10.1.4.0", "fd00::1"].map(held), [true, false, false]);
    }
}
