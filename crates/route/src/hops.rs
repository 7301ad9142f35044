//! What a next-hop index means to a packet: three tables linked by index.
//!
//! A lookup returns a [`NextHopId`]; the hop table turns it into a [`ForwardingAction`], for a group through
//! one of its slots; a forwarding action that leaves names an [`Adjacency`]. So the loss of a link changes one
//! adjacency, and a changed group changes its slots: no route is touched. All of it lies in
//! [`Region`]s of plain integers, changed in place by one writer, so that an XDP program can read
//! the same bytes.
//!
//! Shape:  hops        [u64; n], 8 bytes an id: low half a forwarding action, or GROUP | first slot;
//!                     high half the number of slots, 0 for a forwarding action
//!         slots       [u32; m]: a forwarding action each, read by `hash * slots >> 32`
//!         adjacencies [2 x u64; k], 16 bytes each: destination MAC, source MAC, port u16, MTU u16,
//!                     in this order, little endian; the first 12 bytes are an Ethernet header's
//!         neighbors   [2 x u64; k]: the address of the neighbor behind each adjacency, for ICMP redirects
//! Cost:   one read for the hop, one more for a group, one line for the adjacency. The product costs a
//!         packet of a group 1 ns more than `hash & mask` did (Xeon 2.5 GHz), and any number of slots will do
//! Limits: 2^28 adjacencies and slots, 65,535 ports

use std::net::IpAddr;
#[cfg(not(loom))]
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use fingerpost_lpm::{Heap, Memory, NextHopId, UpdateError};

#[cfg(loom)]
use cells::Region;
#[cfg(not(loom))]
use fingerpost_lpm::Region;
#[cfg(loom)]
use loom::sync::atomic::AtomicU64;

use crate::event::Mac;
use crate::mtu::{RouteMtu, narrower};

/// Forwarding action of a packet: one word, kind in the top four bits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ForwardingAction {
    /// There is no route.
    NoRoute,
    /// Leave through the adjacency of this index.
    Adjacency(u32),
    /// The destination itself is on the link of this port: resolve it.
    Glean(u16),
    /// Pass to the host.
    Local,
    /// Drop silently.
    Blackhole,
    /// Drop, with ICMP host unreachable.
    Unreachable,
    /// Drop, with ICMP administratively prohibited.
    Prohibit,
    /// Look the destination up again, as of a packet that arrives at this port: that of a VRF's device. The packet may be as
    /// large as the routes to here allow.
    Vrf(u16, RouteMtu),
}

const KIND_SHIFT: u32 = 28;
const VALUE_MASK: u32 = (1 << KIND_SHIFT) - 1;
/// A lookup in a VRF is a glean with this bit, and the code of its MTU above: XDP programs need not know them, as they leave
/// both to the graph, and a source behind either has a route (uRPF loose).
const IN_VRF: u32 = 1 << 16;
const MTU_SHIFT: u32 = 17;
const GROUP: u32 = 7;

/// The greatest index of an adjacency or a slot.
pub const MAX_INDEX: u32 = VALUE_MASK;

impl ForwardingAction {
    /// The word that stands for it.
    #[inline]
    pub fn encode(self) -> u32 {
        let (kind, value) = match self {
            Self::NoRoute => (0, 0),
            Self::Adjacency(index) => (1, index),
            Self::Glean(port) => (2, u32::from(port)),
            Self::Local => (3, 0),
            Self::Blackhole => (4, 0),
            Self::Unreachable => (5, 0),
            Self::Prohibit => (6, 0),
            Self::Vrf(port, mtu) => {
                (2, u32::from(mtu.encode()) << MTU_SHIFT | IN_VRF | u32::from(port))
            }
        };
        debug_assert!(value <= VALUE_MASK);
        kind << KIND_SHIFT | value
    }

    /// The adjacency that a word names, if it stands for one.
    #[inline]
    pub fn adjacency_of(word: u32) -> Option<u32> {
        (word >> KIND_SHIFT == 1).then_some(word & VALUE_MASK)
    }

    /// A word that no forwarding action has reads as `NoRoute`.
    #[inline]
    #[allow(
        clippy::cast_possible_truncation,
        reason = "the value holds a port, 16 bits, and an MTU, 11 bits"
    )]
    pub fn decode(word: u32) -> Self {
        let value = word & VALUE_MASK;
        match word >> KIND_SHIFT {
            1 => Self::Adjacency(value),
            2 if value & IN_VRF != 0 => {
                Self::Vrf(value as u16, RouteMtu::decode((value >> MTU_SHIFT) as u16))
            }
            2 => Self::Glean(value as u16),
            3 => Self::Local,
            4 => Self::Blackhole,
            5 => Self::Unreachable,
            6 => Self::Prohibit,
            _ => Self::NoRoute,
        }
    }
}

/// What a packet needs to leave. 16 bytes in the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Adjacency {
    /// The neighbor's address.
    pub dst: Mac,
    /// The port's own address.
    pub src: Mac,
    /// Number of the egress port.
    pub port: u16,
    /// Largest IP packet in bytes; 0 while the neighbor's address is not known.
    pub mtu: u16,
}

impl Adjacency {
    /// The neighbor's address is known: packets can leave.
    #[inline]
    pub fn resolved(&self) -> bool {
        self.mtu != 0
    }

    /// One whose neighbor behind `port` is not known yet, or (`failed`) did not reply.
    pub fn unresolved(port: u16, failed: bool) -> Self {
        let dst = if failed { FAILED } else { Mac::default() };
        Self { dst, src: Mac::default(), port, mtu: 0 }
    }

    /// The 14 bytes that go before an IP packet of this EtherType. Meaningless on links without link
    /// addresses, whose packets have no such header.
    pub fn link_header(&self, ethertype: u16) -> [u8; 14] {
        let mut header = [0; 14];
        header[..6].copy_from_slice(&self.dst.0);
        header[6..12].copy_from_slice(&self.src.0);
        header[12..].copy_from_slice(&ethertype.to_be_bytes());
        header
    }

    /// Whether the neighbor did not reply.
    #[inline]
    pub fn failed(&self) -> bool {
        self.mtu == 0 && self.dst == FAILED
    }
}

/// An adjacency as two words: what a packet needs of it is taken out as it is, or copied as a whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PackedAdjacency {
    low: u64,
    high: u64,
}

#[allow(clippy::cast_possible_truncation, reason = "takes the fields of a word")]
impl PackedAdjacency {
    /// Whether the neighbor's address is known.
    #[inline]
    pub fn resolved(self) -> bool {
        self.mtu() != 0
    }

    /// Number of the egress port.
    #[inline]
    pub fn port(self) -> u16 {
        (self.high >> 32) as u16
    }

    /// Largest IP packet in bytes; 0 while the neighbor's address is not known.
    #[inline]
    pub fn mtu(self) -> u16 {
        (self.high >> 48) as u16
    }

    /// The adjacency with an MTU of at most so many bytes, where those are not 0.
    #[must_use]
    pub fn narrowed(self, mtu: u16) -> Self {
        let mtu = u64::from(narrower(self.mtu(), mtu));
        Self { high: self.high & !(0xffff << 48) | mtu << 48, ..self }
    }

    /// The neighbor's address and the port's own, as a frame begins.
    #[inline]
    pub fn link_addrs(self) -> [u8; 12] {
        let mut addrs = [0; 12];
        addrs[..8].copy_from_slice(&self.low.to_le_bytes());
        addrs[8..].copy_from_slice(&(self.high as u32).to_le_bytes());
        addrs
    }
}

/// Stands where a destination MAC would, in an unresolved adjacency whose neighbor is silent.
const FAILED: Mac = Mac([1, 0, 0, 0, 0, 0]);

/// The three tables, for readers; [`HopTable::set_hop`] and its siblings are for the one writer.
#[derive(Clone, Debug)]
pub struct HopTable {
    hops: Region,
    slots: Region,
    adjacencies: Region,
    stations: Region,
}

impl HopTable {
    /// Room for that many ids, slots and adjacencies, all empty.
    ///
    /// # Errors
    /// [`UpdateError::Memory`].
    pub fn new(hops: usize, slots: usize, adjacencies: usize) -> Result<Self, UpdateError> {
        Self::with(&mut Heap, hops, slots, adjacencies)
    }

    /// Room for that many ids, slots and adjacencies in memory of the caller's choice.
    ///
    /// # Errors
    /// [`UpdateError::Memory`].
    pub fn with(
        memory: &mut dyn Memory,
        hops: usize,
        slots: usize,
        adjacencies: usize,
    ) -> Result<Self, UpdateError> {
        Ok(Self {
            hops: cells::region(memory, "hops", hops * 8)?,
            slots: cells::region(memory, "slots", slots * 4)?,
            adjacencies: cells::region(memory, "adjacencies", adjacencies * 16)?,
            // Kernel readers do not need them.
            stations: cells::region(&mut Heap, "neighbors", adjacencies * 16)?,
        })
    }

    /// How many ids, slots and adjacencies fit.
    pub fn capacity(&self) -> (usize, usize, usize) {
        (self.hops.bytes() / 8, self.slots.bytes() / 4, self.adjacencies.bytes() / 16)
    }

    /// The regions, for sharing and for size.
    #[cfg(not(loom))]
    pub fn regions(&self) -> [&Region; 3] {
        [&self.hops, &self.slots, &self.adjacencies]
    }

    /// What a pass over a batch reads, found once for all of it.
    #[inline]
    pub fn view(&self) -> HopView<'_> {
        let (adjacencies, _) = self.adjacencies.u64s().as_chunks();
        HopView { hops: self.hops.u64s(), adjacencies }
    }

    /// What happens to a packet of flow `hash` with next hop `id`.
    #[inline]
    #[allow(clippy::cast_possible_truncation, reason = "takes the two halves of a word")]
    pub fn action(&self, id: NextHopId, hash: u32) -> ForwardingAction {
        let word = self.word(id);
        let (low, count) = (word as u32, word >> 32);
        if count == 0 {
            return ForwardingAction::decode(low);
        }
        let slot = (low & VALUE_MASK) + ((u64::from(hash) * count) >> 32) as u32;
        self.slot(slot)
    }

    /// The forwarding action in a slot; one past the end is `NoRoute`.
    #[inline]
    pub fn slot(&self, slot: u32) -> ForwardingAction {
        // Acquire pairs with the release of `set_slot`: a slot can change in place, and the adjacency that
        // it names by then was written before.
        ForwardingAction::decode(
            self.slots.u32s().get(slot as usize).map_or(0, |w| w.load(Acquire)),
        )
    }

    /// Whether some forwarding action of `id` is as wanted; each slot of a group is looked at until one is.
    pub fn any_action(
        &self,
        id: NextHopId,
        mut wanted: impl FnMut(ForwardingAction) -> bool,
    ) -> bool {
        match self.group(id) {
            Some((first, count)) => (first..first + count).any(|slot| wanted(self.slot(slot))),
            None => wanted(self.action(id, 0)),
        }
    }

    /// First slot and number of slots, when `id` is a group.
    #[allow(clippy::cast_possible_truncation, reason = "takes the two halves of a word")]
    pub fn group(&self, id: NextHopId) -> Option<(u32, u32)> {
        let word = self.word(id);
        (word >> 32 != 0).then_some((word as u32 & VALUE_MASK, (word >> 32) as u32))
    }

    #[inline]
    fn word(&self, id: NextHopId) -> u64 {
        self.view().word(id)
    }

    /// The adjacency of an index; an index past the end is unresolved.
    #[inline]
    pub fn adjacency(&self, index: u32) -> Adjacency {
        let packed = self.view().packed_adjacency(index);
        let [a, b, c, d, e, f, g, h, i, j, k, l] = packed.link_addrs();
        let (dst, src) = (Mac([a, b, c, d, e, f]), Mac([g, h, i, j, k, l]));
        Adjacency { dst, src, port: packed.port(), mtu: packed.mtu() }
    }

    /// The address of the neighbor behind an adjacency; `None` where it has none, or there is no such adjacency.
    #[allow(clippy::cast_possible_truncation, reason = "the low half of an IPv4-mapped address")]
    pub fn neighbor(&self, index: u32) -> Option<IpAddr> {
        let words = self.stations.u64s();
        let at = index as usize * 2;
        let word = |at: usize| words.get(at).map_or(0, |word| word.load(Relaxed));
        // Relaxed: a reader that has the adjacency sees what was written before it was.
        Some(match (word(at), word(at + 1)) {
            (0, 0) => return None,
            (0, low) if low >> 32 == 0xffff => IpAddr::V4((low as u32).into()),
            (high, low) => IpAddr::V6((u128::from(high) << 64 | u128::from(low)).into()),
        })
    }

    /// Writer: who is behind an adjacency, before that can be used. It changes only with a grace period between.
    #[allow(clippy::cast_possible_truncation, reason = "takes the two halves of an address")]
    pub fn set_neighbor(&self, index: u32, addr: Option<IpAddr>) {
        let bits = match addr {
            Some(IpAddr::V4(addr)) => addr.to_ipv6_mapped().to_bits(),
            Some(IpAddr::V6(addr)) => addr.to_bits(),
            None => 0,
        };
        let (words, at) = (self.stations.u64s(), index as usize * 2);
        words[at].store((bits >> 64) as u64, Relaxed);
        words[at + 1].store(bits as u64, Relaxed);
    }

    /// Writer: a single forwarding action.
    pub fn set_hop(&self, id: NextHopId, action: ForwardingAction) {
        self.hops.u64s()[id.index()].store(u64::from(action.encode()), Release);
    }

    /// Writer: a group over `count` slots from `first` on, at least 1, which are filled.
    ///
    /// # Panics
    /// When there are no such slots.
    pub fn set_group(&self, id: NextHopId, first: u32, count: u32) {
        assert!(count >= 1 && first <= VALUE_MASK - count, "a group has slots");
        let word = u64::from(count) << 32 | u64::from(GROUP << KIND_SHIFT | first);
        self.hops.u64s()[id.index()].store(word, Release);
    }

    /// Writer: one slot of a group.
    pub fn set_slot(&self, slot: u32, action: ForwardingAction) {
        self.slots.u32s()[slot as usize].store(action.encode(), Release);
    }

    /// Writer: an adjacency. A change of the neighbor's address alone is one store, so readers see
    /// the old or the new one. Any other change of a resolved adjacency must pass through an
    /// unresolved one and a grace period, or a reader could mix the two.
    pub fn set_adjacency(&self, index: u32, adjacency: Adjacency) {
        let (d, s) = (adjacency.dst.0, adjacency.src.0);
        let low = u64::from_le_bytes([d[0], d[1], d[2], d[3], d[4], d[5], s[0], s[1]]);
        let high = u64::from(u32::from_le_bytes([s[2], s[3], s[4], s[5]]))
            | u64::from(adjacency.port) << 32
            | u64::from(adjacency.mtu) << 48;
        let words = self.adjacencies.u64s();
        let at = index as usize * 2;
        if adjacency.mtu == 0 {
            // Take the permission away before the address.
            words[at + 1].store(high, Release);
            words[at].store(low, Release);
        } else {
            words[at].store(low, Release);
            words[at + 1].store(high, Release);
        }
    }

    /// Writer: the neighbor behind `port` is not known yet, or (`failed`) did not reply.
    pub fn set_unresolved(&self, index: u32, port: u16, failed: bool) {
        self.set_adjacency(index, Adjacency::unresolved(port, failed));
    }

    /// Writer: copies everything into a table with more room.
    pub fn copy_to(&self, other: &Self) {
        let words = [
            (&self.hops, &other.hops),
            (&self.adjacencies, &other.adjacencies),
            (&self.stations, &other.stations),
        ];
        for (from, to) in words {
            for (from, to) in from.u64s().iter().zip(to.u64s()) {
                to.store(from.load(Relaxed), Relaxed);
            }
        }
        for (from, to) in self.slots.u32s().iter().zip(other.slots.u32s()) {
            to.store(from.load(Relaxed), Relaxed);
        }
    }
}

/// Views over atomics that loom watches.
/// The words of hops and adjacencies, borrowed from a [`HopTable`].
#[derive(Clone, Copy, Debug)]
pub struct HopView<'a> {
    hops: &'a [AtomicU64],
    adjacencies: &'a [[AtomicU64; 2]],
}

impl HopView<'_> {
    /// The word that stands for the only forwarding action of `id`; `None` when it is a group.
    #[inline]
    #[allow(clippy::cast_possible_truncation, reason = "the upper half is 0")]
    pub fn only_action(self, id: NextHopId) -> Option<u32> {
        let word = self.word(id);
        (word >> 32 == 0).then_some(word as u32)
    }

    #[inline]
    fn word(self, id: NextHopId) -> u64 {
        // Acquire pairs with the release of `set_group`: a group's slots are filled before it shows.
        self.hops.get(id.index()).map_or(0, |w| w.load(Acquire))
    }

    /// [`HopTable::adjacency`] in the form of the table.
    #[inline]
    pub fn packed_adjacency(self, index: u32) -> PackedAdjacency {
        let Some([low, high]) = self.adjacencies.get(index as usize) else {
            return PackedAdjacency { low: 0, high: 0 };
        };
        // High first: its MTU decides whether the low half can be used. Pairs with `set_adjacency`.
        let high = high.load(Acquire);
        PackedAdjacency { low: low.load(Relaxed), high }
    }
}

#[cfg(loom)]
mod cells {
    use std::sync::Arc;

    use fingerpost_lpm::{Memory, UpdateError};
    use loom::sync::atomic::{AtomicU32, AtomicU64};

    #[derive(Clone, Debug)]
    pub(crate) struct Region {
        u32s: Arc<Vec<AtomicU32>>,
        u64s: Arc<Vec<AtomicU64>>,
    }

    impl Region {
        pub(crate) fn bytes(&self) -> usize {
            self.u32s.len() * 4 + self.u64s.len() * 8
        }
        pub(crate) fn u32s(&self) -> &[AtomicU32] {
            &self.u32s
        }
        pub(crate) fn u64s(&self) -> &[AtomicU64] {
            &self.u64s
        }
    }

    /// A region of this name: slots are read as 32-bit integers, the others as 64-bit ones.
    pub(super) fn region(
        _: &mut dyn Memory,
        name: &'static str,
        bytes: usize,
    ) -> Result<Region, UpdateError> {
        let (u32s, u64s) = if name == "slots" { (bytes / 4, 0) } else { (0, bytes / 8) };
        Ok(Region {
            u32s: Arc::new((0..u32s).map(|_| AtomicU32::new(0)).collect()),
            u64s: Arc::new((0..u64s).map(|_| AtomicU64::new(0)).collect()),
        })
    }
}

#[cfg(not(loom))]
mod cells {
    use super::{Memory, Region, UpdateError};

    pub(super) fn region(
        memory: &mut dyn Memory,
        name: &'static str,
        bytes: usize,
    ) -> Result<Region, UpdateError> {
        memory.region(name, bytes)
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    #[test]
    fn actions_survive_encoding() {
        for action in [
            ForwardingAction::NoRoute,
            ForwardingAction::Adjacency(MAX_INDEX),
            ForwardingAction::Glean(u16::MAX),
            ForwardingAction::Local,
            ForwardingAction::Blackhole,
            ForwardingAction::Unreachable,
            ForwardingAction::Prohibit,
            ForwardingAction::Vrf(0, RouteMtu::NONE),
            ForwardingAction::Vrf(0, RouteMtu::of(68)),
            ForwardingAction::Vrf(u16::MAX, RouteMtu::of(u16::MAX)),
        ] {
            assert_eq!(ForwardingAction::decode(action.encode()), action);
        }
    }

    #[test]
    fn a_neighbor_has_the_address_that_it_was_given() {
        let table = HopTable::new(4, 4, 4).unwrap();
        let addrs = ["192.0.2.1", "fe80::1", "::5"].map(|addr| Some(addr.parse().unwrap()));
        for (index, addr) in (0..).zip(addrs) {
            assert_eq!(table.neighbor(index), None);
            table.set_neighbor(index, addr);
        }
        let larger = HopTable::new(8, 8, 8).unwrap();
        table.copy_to(&larger);
        for (index, addr) in (0..).zip(addrs) {
            assert_eq!((table.neighbor(index), larger.neighbor(index)), (addr, addr));
        }
        table.set_neighbor(1, None);
        assert_eq!(
            (table.neighbor(1), table.neighbor(4), table.neighbor(u32::MAX)),
            (None, None, None)
        );
    }

    #[test]
    fn an_adjacency_is_sixteen_bytes_that_begin_an_ethernet_header() {
        let table = HopTable::new(4, 4, 4).unwrap();
        let adjacency = Adjacency {
            dst: Mac([1, 2, 3, 4, 5, 6]),
            src: Mac([7, 8, 9, 10, 11, 12]),
            port: 0x1234,
            mtu: 1500,
        };
        table.set_adjacency(1, adjacency);
        assert_eq!(table.adjacency(1), adjacency);
        assert!(table.adjacency(1).resolved());
        let bytes: Vec<u8> =
            table.regions()[2].u8s()[16..32].iter().map(|b| b.load(Relaxed)).collect();
        assert_eq!(bytes[..12], [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]);
        let header = adjacency.link_header(0x86dd);
        assert_eq!(header, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 0x86, 0xdd]);
        table.set_unresolved(1, 3, true);
        assert!(table.adjacency(1).failed() && table.adjacency(1).port == 3);
        table.set_unresolved(1, 3, false);
        assert!(!table.adjacency(1).failed() && !table.adjacency(1).resolved());
        assert!(!table.adjacency(999).resolved());
    }

    #[test]
    fn groups_choose_by_hash_and_grow_with_the_table() {
        // An odd number of slots: the last one must be copied too.
        let table = HopTable::new(4, 7, 4).unwrap();
        for slot in 0..5 {
            table.set_slot(2 + slot, ForwardingAction::Adjacency(slot));
        }
        table.set_group(NextHopId(3), 2, 5);
        table.set_hop(NextHopId(1), ForwardingAction::Local);
        let bigger = HopTable::new(64, 64, 64).unwrap();
        table.copy_to(&bigger);
        for table in [table, bigger] {
            assert!(
                table.view().only_action(NextHopId(3)).is_none()
                    && table.view().only_action(NextHopId(1)).is_some()
            );
            assert_eq!(table.group(NextHopId(3)), Some((2, 5)));
            assert_eq!(table.group(NextHopId(1)), None);
            let mut seen = [0; 5];
            for hash in (0..=u32::MAX).step_by(1 << 16) {
                let ForwardingAction::Adjacency(index) = table.action(NextHopId(3), hash) else {
                    panic!()
                };
                seen[index as usize] += 1;
            }
            assert!(seen.iter().all(|n| (13107..=13108).contains(n)), "{seen:?}");
            assert_eq!(table.action(NextHopId(3), u32::MAX), ForwardingAction::Adjacency(4));
            assert_eq!(table.action(NextHopId(1), 9), ForwardingAction::Local);
            assert_eq!(table.action(NextHopId::NONE, 9), ForwardingAction::NoRoute);
            assert_eq!(table.action(NextHopId(1 << 30), 9), ForwardingAction::NoRoute);
        }
    }
}
