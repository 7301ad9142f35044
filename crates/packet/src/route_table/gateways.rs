//! Addresses that routes of a graph lead to, each with a small number that a packet carries.
//!
//! A route table of a graph notes the number of its route's gateway in the packet, and an element that finds link
//! addresses reads it there: the destination address annotation of Click, for both families in four bytes. Number 0
//! is no gateway: the packet's own destination is meant.
//!
//! Shape: [`Blocks`], so that readers need no lock. Numbers of gateways of routes are never taken back: a gateway is 16
//! bytes here, and a router has hundreds. An address that an element reads from a packet has a number as well
//! ([`Gateways::number_of_packet`]), but only the last [`MOST_OF_PACKETS`] of these: whoever sends packets chooses them.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Release},
};
use std::sync::{Mutex, MutexGuard, PoisonError};

use fingerpost_lpm::NextHopId;

use super::blocks::Blocks;

/// The gateways of a graph.
#[derive(Debug, Default)]
pub struct Gateways {
    slots: Blocks<Slot>,
    numbers: Mutex<Numbers>,
}

#[derive(Debug, Default)]
struct Numbers {
    by_addr: HashMap<IpAddr, Number>,
    /// Addresses that packets alone have, the oldest first.
    of_packets: VecDeque<IpAddr>,
}

#[derive(Clone, Copy, Debug)]
struct Number {
    id: NextHopId,
    /// No route has it.
    of_packets: bool,
}

/// Addresses that packets may have besides those of routes.
pub const MOST_OF_PACKETS: usize = 1 << 16;

/// An address in halves; one of IPv4 is mapped into IPv6.
#[derive(Debug, Default)]
struct Slot([AtomicU64; 2]);

/// More gateways than there are numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("limit exceeded: {} gateways", Blocks::<Slot>::MOST - 1)]
pub struct TooMany;

/// High half of a slot whose address is being changed: no unicast address begins so.
const CHANGES: u64 = u64::MAX;

impl Slot {
    fn store(&self, addr: IpAddr) {
        let bits = match addr {
            IpAddr::V4(addr) => addr.to_ipv6_mapped(),
            IpAddr::V6(addr) => addr,
        };
        let [a, b, c, d, e, f, g, h] = bits.segments().map(u64::from);
        let (high, low) = (a << 48 | b << 32 | c << 16 | d, e << 48 | f << 32 | g << 16 | h);
        // Release, for the loads of `load`: whoever sees one of these sees those before it.
        self.0[0].store(CHANGES, Release);
        self.0[1].store(low, Release);
        self.0[0].store(high, Release);
    }

    #[inline]
    fn load(&self) -> Option<IpAddr> {
        // Acquire, for the stores of `store`: a low half that is new shows that the high half changed.
        let (high, low) = (self.0[0].load(Acquire), self.0[1].load(Acquire));
        let addr = Ipv6Addr::from_bits(u128::from(high) << 64 | u128::from(low));
        if self.0[0].load(Acquire) != high || high == CHANGES || addr.is_unspecified() {
            return None;
        }
        Some(addr.to_ipv4_mapped().map_or(IpAddr::V6(addr), IpAddr::V4))
    }
}

impl Gateways {
    /// The number of an address, given now or before, for as long as there is a router.
    ///
    /// # Errors
    /// [`TooMany`].
    pub fn number(&self, addr: IpAddr) -> Result<NextHopId, TooMany> {
        let mut numbers = self.numbers();
        let Numbers { by_addr, of_packets } = &mut *numbers;
        if let Some(known) = by_addr.get_mut(&addr) {
            if std::mem::take(&mut known.of_packets) {
                of_packets.retain(|known| *known != addr);
            }
            return Ok(known.id);
        }
        self.new_number(by_addr, addr, false)
    }

    /// The number of an address that a packet has. It is for this packet and those near it: it is another address's after
    /// [`MOST_OF_PACKETS`] others.
    ///
    /// # Errors
    /// [`TooMany`].
    pub fn number_of_packet(&self, addr: IpAddr) -> Result<NextHopId, TooMany> {
        let mut numbers = self.numbers();
        let Numbers { by_addr, of_packets } = &mut *numbers;
        if let Some(known) = by_addr.get(&addr) {
            return Ok(known.id);
        }
        let oldest = match of_packets.len() {
            MOST_OF_PACKETS.. => of_packets.pop_front(),
            _ => None,
        };
        let id = match oldest.and_then(|oldest| by_addr.remove(&oldest)) {
            Some(number) => {
                self.slots.make(number.id.0).ok_or(TooMany)?.store(addr);
                by_addr.insert(addr, number);
                number.id
            }
            None => self.new_number(by_addr, addr, true)?,
        };
        of_packets.push_back(addr);
        Ok(id)
    }

    fn new_number(
        &self,
        by_addr: &mut HashMap<IpAddr, Number>,
        addr: IpAddr,
        of_packets: bool,
    ) -> Result<NextHopId, TooMany> {
        let id = NextHopId(u32::try_from(by_addr.len() + 1).map_err(|_| TooMany)?);
        self.slots.make(id.0).ok_or(TooMany)?.store(addr);
        by_addr.insert(addr, Number { id, of_packets });
        Ok(id)
    }

    fn numbers(&self) -> MutexGuard<'_, Numbers> {
        // Numbers are whole whatever panicked beside them.
        self.numbers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The address of a number; `None` for that of no gateway, and for one that was not given out.
    #[inline]
    pub fn get(&self, number: NextHopId) -> Option<IpAddr> {
        if number.is_none() {
            return None;
        }
        self.slots.get(number.0)?.load()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_dense_and_keep_their_address() {
        let gateways = Gateways::default();
        let of = |n: u32| -> IpAddr {
            if n.is_multiple_of(2) {
                IpAddr::V4(n.into())
            } else {
                IpAddr::V6(Ipv6Addr::from_bits(u128::from(n) << 96 | u128::from(n)))
            }
        };
        for n in 1..3000 {
            assert_eq!(gateways.number(of(n)), Ok(NextHopId(n)));
        }
        for n in 1..3000 {
            assert_eq!(gateways.number(of(n)), Ok(NextHopId(n)));
            assert_eq!(gateways.get(NextHopId(n)), Some(of(n)));
        }
        assert_eq!(gateways.get(NextHopId::NONE), None);
        assert_eq!(gateways.get(NextHopId(3000)), None);
        assert_eq!(gateways.get(NextHopId(u32::MAX)), None);
    }
    #[test]
    fn addresses_of_packets_are_bounded() {
        let gateways = Gateways::default();
        let of = |n: u32| IpAddr::V4(n.into());
        let kept = gateways.number_of_packet(of(7)).unwrap();
        assert_eq!(gateways.number(of(7)), Ok(kept), "a route has it from now on");
        let (most, first) = (u32::try_from(MOST_OF_PACKETS).unwrap(), 1000);
        for n in first..first + 3 * most {
            let number = gateways.number_of_packet(of(n)).unwrap();
            assert!(number.0 <= most + 1, "{number:?}");
            assert_eq!(gateways.get(number), Some(of(n)));
        }
        assert_eq!(gateways.get(kept), Some(of(7)));
        assert_eq!(gateways.number(of(8)), Ok(NextHopId(most + 2)), "one of its own");
    }

    #[test]
    fn an_address_that_changes_is_read_whole_or_not_at_all() {
        let slot = Slot::default();
        let of = |n: u16| IpAddr::V6([n, 0, 0, 0, 0, 0, 0, n].into());
        std::thread::scope(|scope| {
            scope.spawn(|| (1..20_000).for_each(|n| slot.store(of(n))));
            for _ in 0..20_000 {
                if let Some(IpAddr::V6(addr)) = slot.load() {
                    assert_eq!(addr.segments()[0], addr.segments()[7]);
                }
            }
        });
    }
}
