//! The slow, obvious answer, against which everything else is checked.
//!
//! Shares no code with the route store or with any algorithm. [`Oracle`] keeps a hash map for each
//! prefix length and searches them from the longest to the shortest: less than a microsecond a lookup in
//! a full table. [`Naive`] looks at every route.

use alloc::vec::Vec;
use core::hash::{BuildHasherDefault, Hasher};
use std::collections::HashMap;

use crate::addr::{Addr, Prefix};
use crate::next_hop_id::NextHopId;

/// A hash map for each length, searched from the longest on.
#[derive(Clone)]
pub struct Oracle<A: Addr> {
    /// One a length, 0 to `A::BITS`.
    lengths: Vec<HashMap<A, NextHopId, BuildHasherDefault<Mix>>>,
}

impl<A: Addr> Default for Oracle<A> {
    fn default() -> Self {
        Self::new()
    }
}

impl<A: Addr> Oracle<A> {
    /// No routes.
    pub fn new() -> Self {
        Self { lengths: (0..=A::BITS).map(|_| HashMap::default()).collect() }
    }

    /// Sets a route; [`NextHopId::NONE`] removes it. Returns what was there, or `NONE`.
    pub fn set(&mut self, prefix: Prefix<A>, hop: NextHopId) -> NextHopId {
        let map = &mut self.lengths[usize::from(prefix.len())];
        let old =
            if hop.is_none() { map.remove(&prefix.addr()) } else { map.insert(prefix.addr(), hop) };
        old.unwrap_or(NextHopId::NONE)
    }

    /// The longest prefix that holds `addr`, and its next hop.
    pub fn best(&self, addr: A) -> Option<(Prefix<A>, NextHopId)> {
        for len in (0..=A::BITS).rev() {
            let map = &self.lengths[usize::from(len)];
            if map.is_empty() {
                continue;
            }
            let prefix = Prefix::masked(addr, len);
            if let Some(&hop) = map.get(&prefix.addr()) {
                return Some((prefix, hop));
            }
        }
        None
    }

    /// The next hop of `addr`; [`NextHopId::NONE`] when no prefix covers it.
    pub fn lookup(&self, addr: A) -> NextHopId {
        self.best(addr).map_or(NextHopId::NONE, |(_, hop)| hop)
    }

    /// Routes held.
    pub fn len(&self) -> usize {
        self.lengths.iter().map(HashMap::len).sum()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<A: Addr> FromIterator<(Prefix<A>, NextHopId)> for Oracle<A> {
    fn from_iter<I: IntoIterator<Item = (Prefix<A>, NextHopId)>>(routes: I) -> Self {
        let mut oracle = Self::new();
        for (prefix, hop) in routes {
            oracle.set(prefix, hop);
        }
        oracle
    }
}

/// Multiplies: the default hasher would take most of a check's time.
#[derive(Clone, Copy, Default)]
struct Mix(u64);

impl Hasher for Mix {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&b| self.write_u64(u64::from(b)));
    }
    fn write_u32(&mut self, value: u32) {
        self.write_u64(u64::from(value));
    }
    fn write_u64(&mut self, value: u64) {
        let mixed = (self.0 ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ mixed >> 32;
    }
    #[allow(clippy::cast_possible_truncation, reason = "both halves are taken")]
    fn write_u128(&mut self, value: u128) {
        self.write_u64((value >> 64) as u64);
        self.write_u64(value as u64);
    }
}

/// Every route, looked at each time: for tests of some dozens of routes.
#[cfg(any(test, feature = "testing"))]
#[derive(Clone, Debug, Default)]
pub struct Naive<A: Addr> {
    /// In any order, each prefix once.
    pub routes: Vec<(Prefix<A>, NextHopId)>,
}

#[cfg(any(test, feature = "testing"))]
impl<A: Addr> Naive<A> {
    /// The next hop of `addr`; [`NextHopId::NONE`] when no prefix covers it.
    pub fn lookup(&self, addr: A) -> NextHopId {
        let holding = self.routes.iter().filter(|(prefix, _)| prefix.contains(addr));
        holding.max_by_key(|(prefix, _)| prefix.len()).map_or(NextHopId::NONE, |&(_, hop)| hop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check<A: Addr>(raw: &[(u128, u8, u32)]) {
        let mut oracle = Oracle::<A>::new();
        let mut naive = Naive::<A>::default();
        for &(addr, len, hop) in raw {
            let prefix = Prefix::masked(A::from_u128(addr), len.min(A::BITS));
            let before = naive.routes.iter().position(|&(p, _)| p == prefix);
            let old = before.map_or(NextHopId::NONE, |at| naive.routes.swap_remove(at).1);
            if hop > 0 {
                naive.routes.push((prefix, NextHopId(hop)));
            }
            assert_eq!(oracle.set(prefix, NextHopId(hop)), old);
            assert_eq!(oracle.len(), naive.routes.len());
        }
        for &(addr, len, _) in raw {
            let prefix = Prefix::masked(A::from_u128(addr), len.min(A::BITS));
            for addr in [prefix.first().prev(), prefix.first(), prefix.last(), prefix.last().next()]
            {
                assert_eq!(oracle.lookup(addr), naive.lookup(addr), "{addr:?}");
            }
        }
    }

    proptest! {
        #[test]
        fn oracle_equals_naive(raw in proptest::collection::vec(
            (prop_oneof![0u128..64, (0u128..8).prop_map(|a| a << 29), (0u128..8).prop_map(|a| a << 125)],
             prop_oneof![0u8..=4, 26u8..=32, 124u8..=128], 0u32..4), 0..60)) {
            check::<u32>(&raw);
            check::<u128>(&raw);
        }
    }
}
