//! Addresses that routes of a graph lead to, each with a small number that a packet carries.
//!
//! A route table of a graph notes the number of its route's gateway in the packet, and an element that finds link
//! addresses reads it there: the destination address annotation of Click, for both families in four bytes. Number 0
//! is no gateway: the packet's own destination is meant.
//!
//! Shape: [`Blocks`], so that readers need no lock. Numbers are never taken back: a gateway is 16 bytes here, and a
//! router has hundreds.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use fingerpost_lpm::NextHopId;

use super::blocks::Blocks;

/// The gateways of a graph.
#[derive(Debug, Default)]
pub struct Gateways {
    slots: Blocks<Slot>,
    numbers: Mutex<HashMap<IpAddr, u32>>,
}

/// An address in halves; one of IPv4 is mapped into IPv6.
#[derive(Debug, Default)]
struct Slot([AtomicU64; 2]);

/// More gateways than there are numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("limit exceeded: {} gateways", Blocks::<Slot>::MOST - 1)]
pub struct TooMany;

impl Gateways {
    /// The number of an address, given now or before.
    ///
    /// # Errors
    /// [`TooMany`].
    pub fn number(&self, addr: IpAddr) -> Result<NextHopId, TooMany> {
        // A map of numbers is whole whatever panicked beside it.
        let mut numbers = self.numbers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(&number) = numbers.get(&addr) {
            return Ok(NextHopId(number));
        }
        let number = u32::try_from(numbers.len() + 1).map_err(|_| TooMany)?;
        let slot = self.slots.make(number).ok_or(TooMany)?;
        let bits = match addr {
            IpAddr::V4(addr) => addr.to_ipv6_mapped(),
            IpAddr::V6(addr) => addr,
        };
        let [a, b, c, d, e, f, g, h] = bits.segments().map(u64::from);
        let (high, low) = (a << 48 | b << 32 | c << 16 | d, e << 48 | f << 32 | g << 16 | h);
        // Relaxed: nobody has the number yet, and whoever passes it on publishes what was before.
        slot.0[0].store(high, Relaxed);
        slot.0[1].store(low, Relaxed);
        numbers.insert(addr, number);
        Ok(NextHopId(number))
    }

    /// The address of a number; `None` for that of no gateway, and for one that was not given out.
    #[inline]
    pub fn get(&self, number: NextHopId) -> Option<IpAddr> {
        if number.is_none() {
            return None;
        }
        let slot = self.slots.get(number.0)?;
        let (high, low) = (slot.0[0].load(Relaxed), slot.0[1].load(Relaxed));
        let addr = Ipv6Addr::from_bits(u128::from(high) << 64 | u128::from(low));
        if addr.is_unspecified() {
            return None;
        }
        Some(addr.to_ipv4_mapped().map_or(IpAddr::V6(addr), IpAddr::V4))
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
}
