//! Changes of a store, as an algorithm receives them.

use alloc::vec::Vec;

use super::Rng;
use crate::addr::{Addr, Prefix};
use crate::lookup::Change;
use crate::next_hop_id::NextHopId;
use crate::routes::RouteStore;

/// Sets a route in `store` ([`NextHopId::NONE`] withdraws it), and returns the change.
pub fn set<A: Addr>(store: &mut RouteStore<A>, prefix: Prefix<A>, new: NextHopId) -> Change<A> {
    let old = if new.is_none() { store.remove(prefix) } else { store.insert(prefix, new) };
    Change { prefix, old: old.unwrap_or(NextHopId::NONE), new }
}

/// `count` of `routes` drawn at random, each withdrawn where `store` has it and announced where not.
pub fn toggle<A: Addr>(
    rng: &mut Rng,
    routes: &[(Prefix<A>, NextHopId)],
    store: &mut RouteStore<A>,
    count: usize,
) -> Vec<Change<A>> {
    let mut change = || {
        let (prefix, hop) = routes[rng.below(routes.len())];
        let new = if store.get(prefix).is_none() { hop } else { NextHopId::NONE };
        set(store, prefix, new)
    };
    (0..count).map(|_| change()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_goes_and_what_went_comes_back() {
        let routes: Vec<(Prefix<u32>, _)> =
            (0..9).map(|n| (Prefix::masked(n << 28, 8), NextHopId(n + 1))).collect();
        let mut store = RouteStore::new();
        let changes = toggle(&mut Rng::new(1), &routes, &mut store, 100);
        assert_eq!(changes.len(), 100);
        assert!(changes.iter().all(|c| c.old.is_none() != c.new.is_none()));
        for (prefix, hop) in routes {
            let last = changes.iter().rfind(|change| change.prefix == prefix).unwrap().new;
            assert_eq!(store.get(prefix).copied().unwrap_or_default(), last);
            assert!(last.is_none() || last == hop);
        }
    }
}
