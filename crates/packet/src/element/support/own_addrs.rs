//! Addresses of the host itself, checked for every packet.
//!
//! The port table keeps sorted lists; a filter of 4,096 bits in front of them answers nearly every
//! packet with one read, since its addresses are strangers'. It is made again when the table changed.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use fingerpost_route::PortTable;

const BITS: usize = 4096;

/// Filter that [`OwnAddrs`] checks first.
pub type Filter = [u64; BITS / 64];

/// The addresses of one family, behind a filter.
pub(crate) struct OwnAddrs {
    /// Kept, so that no other table can come to lie at its address.
    ports: Arc<PortTable>,
    filter: Box<Filter>,
    /// IPv6 addresses go into the filter; else the IPv4 ones, with the broadcast addresses.
    v6: bool,
}

impl OwnAddrs {
    pub(crate) fn v4() -> Self {
        Self::new(false)
    }

    pub(crate) fn v6() -> Self {
        Self::new(true)
    }

    fn new(v6: bool) -> Self {
        Self { ports: Arc::default(), filter: Box::new([0; BITS / 64]), v6 }
    }

    /// Once a batch: follows a change of the port table.
    #[inline]
    pub(crate) fn follow(&mut self, ports: &Arc<PortTable>) {
        if !Arc::ptr_eq(&self.ports, ports) {
            self.rebuild(ports);
        }
    }

    #[cold]
    fn rebuild(&mut self, ports: &Arc<PortTable>) {
        self.ports = ports.clone();
        *self.filter = if self.v6 { filter_v6(ports) } else { filter_v4(ports) };
    }

    /// `false` for an address that is certainly neither our own nor a connected broadcast address.
    #[inline]
    pub(crate) fn may_be_v4(&self, addr: u32) -> bool {
        let (word, bit) = bit_v4(addr);
        self.filter[word] & bit != 0
    }

    /// Whether it is one, as a bit: 0 or 1.
    #[inline]
    pub(crate) fn bit_of_v4(&self, addr: u32) -> u64 {
        let hash = hash_v4(addr);
        self.filter[(hash >> 58) as usize] >> (hash >> 52 & 63) & 1
    }

    /// `false` for an address that is certainly not our own.
    #[inline]
    pub(crate) fn may_be_v6(&self, addr: u128) -> bool {
        let (word, bit) = bit_v6(addr);
        self.filter[word] & bit != 0
    }

    #[cold]
    pub(crate) fn is_own_v4(&self, addr: u32) -> bool {
        self.ports.own_v4.binary_search(&addr).is_ok()
    }

    /// Whether it is the host's own for packets of an ingress port.
    #[cold]
    pub(crate) fn is_own_v4_at(&self, addr: u32, ingress: u16) -> bool {
        self.is_own_v4(addr) && self.ports.is_own_at(Ipv4Addr::from(addr).into(), ingress)
    }

    /// Whether an IPv6 address is the host's own for packets of an ingress port.
    #[cold]
    pub(crate) fn is_own_v6_at(&self, addr: u128, ingress: u16) -> bool {
        self.is_own_v6(addr) && self.ports.is_own_at(Ipv6Addr::from(addr).into(), ingress)
    }

    #[cold]
    pub(crate) fn is_broadcast(&self, addr: u32) -> bool {
        self.ports.broadcast_v4.binary_search(&addr).is_ok()
    }

    #[cold]
    pub(crate) fn is_own_v6(&self, addr: u128) -> bool {
        self.ports.own_v6.binary_search(&addr).is_ok()
    }
}

/// A bit for each own IPv4 address and each broadcast address.
fn filter_v4(ports: &PortTable) -> Filter {
    filter(ports.own_v4.iter().chain(&ports.broadcast_v4).map(|&addr| bit_v4(addr)))
}

/// A bit for each own IPv6 address.
fn filter_v6(ports: &PortTable) -> Filter {
    filter(ports.own_v6.iter().map(|&addr| bit_v6(addr)))
}

/// A bit for each of these addresses, which are of one family.
pub fn filter_of<'a>(addresses: impl Iterator<Item = &'a IpAddr>) -> Filter {
    filter(addresses.map(|address| match address {
        IpAddr::V4(v4) => bit_v4(v4.to_bits()),
        IpAddr::V6(v6) => bit_v6(v6.to_bits()),
    }))
}

fn filter(bits: impl Iterator<Item = (usize, u64)>) -> Filter {
    let mut filter = [0; BITS / 64];
    bits.for_each(|(word, bit)| filter[word] |= bit);
    filter
}

#[inline]
fn hash_v4(addr: u32) -> u64 {
    u64::from(addr).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[inline]
fn bit_v4(addr: u32) -> (usize, u64) {
    bit(hash_v4(addr))
}

#[inline]
#[allow(clippy::cast_possible_truncation, reason = "takes the two halves")]
fn bit_v6(addr: u128) -> (usize, u64) {
    let (high, low) = ((addr >> 64) as u64, addr as u64);
    bit((high.wrapping_mul(0xbf58_476d_1ce4_e5b9) ^ low).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

/// Six top bits choose the word, six more the bit in it.
#[inline]
#[allow(clippy::cast_possible_truncation, reason = "six bits")]
fn bit(hash: u64) -> (usize, u64) {
    ((hash >> 58) as usize, 1 << (hash >> 52 & 63))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_filter_misses_nothing_and_follows_the_table() {
        let mut addrs = OwnAddrs::v4();
        let table = |own: Vec<u32>, broadcast: Vec<u32>| {
            Arc::new(PortTable { own_v4: own, broadcast_v4: broadcast, ..PortTable::default() })
        };
        let own: Vec<u32> = (0..200).map(|n| 0x0a00_0001 + n * 256).collect();
        addrs.follow(&table(own.clone(), vec![0x0a00_00ff]));
        assert!(own.iter().all(|&a| addrs.may_be_v4(a) && addrs.is_own_v4(a)));
        let same = |&a: &u32| addrs.bit_of_v4(a) == u64::from(addrs.may_be_v4(a));
        assert!((0..10_000u32).map(|n| n.wrapping_mul(0x9e37_79b1)).all(|a| same(&a)));
        assert!(addrs.may_be_v4(0x0a00_00ff) && addrs.is_broadcast(0x0a00_00ff));
        let strangers = (0..100_000u32).filter(|n| addrs.may_be_v4(n.wrapping_mul(0x9e3779b1)));
        assert!(strangers.count() < 10_000, "about 1 in 20 with 200 addresses");
        addrs.follow(&table(vec![7], vec![]));
        assert!(addrs.may_be_v4(7) && !addrs.is_own_v4(own[0]) && !addrs.is_broadcast(7));
        assert!(own.iter().filter(|&&a| addrs.may_be_v4(a)).count() < 3);

        let mut addrs = OwnAddrs::v6();
        let own: Vec<u128> = (0..50).map(|n| 0xfe80 << 112 | n << 64 | n).collect();
        addrs.follow(&Arc::new(PortTable { own_v6: own.clone(), ..PortTable::default() }));
        assert!(own.iter().all(|&a| addrs.may_be_v6(a) && addrs.is_own_v6(a)));
        assert!(!addrs.is_own_v6(1));
    }
}
