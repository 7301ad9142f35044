//! Many tables over one store: the same changes to all of them, each right answer worked out once.
//!
//! Right is the store's own longest match, which shares nothing with a table but the trie that
//! changes it; the store in turn is held against the oracle, which shares nothing with
//! either. Querying the oracle every time took most of ten million updates: a hash map for each length,
//! a cache miss each, where the store's searches run side by side.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use std::time::{Duration, Instant};

use super::set;
use crate::addr::{Addr, Prefix};
use crate::error::UpdateError;
use crate::lookup::{Algorithm, Change, Grace, Lookup, Table};
use crate::mem::Heap;
use crate::next_hop_id::NextHopId;
use crate::oracle::Oracle;
use crate::routes::RouteStore;

/// Tables that hold the same routes.
pub struct Fleet<A: Addr> {
    /// What each table should hold.
    pub routes: RouteStore<A>,
    /// Independent copy of the routes.
    pub oracle: Oracle<A>,
    /// The tables.
    pub members: Vec<Member<A>>,
}

/// One table of a [`Fleet`].
pub struct Member<A: Addr> {
    /// Which algorithm.
    pub algorithm: &'static Algorithm<A>,
    /// The writer.
    pub table: Box<dyn Table<A>>,
    /// The reader last published.
    pub lookup: Arc<dyn Lookup<A>>,
    /// Number of changes that required a rebuild.
    pub rebuilds: usize,
    /// How often a change was past a limit.
    pub refused: usize,
    /// What its changes took, builds included.
    pub spent: Duration,
}

impl<A: Addr> Member<A> {
    fn take(
        &mut self,
        changes: &[Change<A>],
        routes: &RouteStore<A>,
        grace: &mut dyn Grace,
    ) -> Result<(), UpdateError> {
        let start = Instant::now();
        let taken = self.change(changes, routes, grace);
        self.spent += start.elapsed();
        taken
    }

    fn change(
        &mut self,
        changes: &[Change<A>],
        routes: &RouteStore<A>,
        grace: &mut dyn Grace,
    ) -> Result<(), UpdateError> {
        match self.table.apply(changes, routes, grace) {
            Err(UpdateError::Rebuild) => {
                self.rebuilds += 1;
                self.table = self.algorithm.build(routes, &mut Heap)?;
            }
            other => other?,
        }
        self.lookup = self.table.publish();
        Ok(())
    }

    /// The first wrong answer among those to `addrs`, and how it was looked up.
    fn first_wrong(
        &self,
        addrs: &[A],
        wants: &[NextHopId],
        closely: bool,
        out: &mut [NextHopId],
    ) -> Option<(A, NextHopId, NextHopId, &'static str)> {
        out.fill(NextHopId(u32::MAX));
        for (addrs, out) in addrs.chunks(256).zip(out.chunks_mut(256)) {
            self.lookup.lookup_batch(addrs, out);
        }
        let mut asked = addrs.iter().zip(wants).zip(&*out);
        asked.find_map(|((&addr, &want), &got)| {
            let wrong = |got, how| (got != want).then_some((addr, got, want, how));
            let batch = wrong(got, "in a batch");
            if !closely {
                return batch;
            }
            batch
                .or_else(|| wrong(self.lookup.lookup(addr), "alone"))
                .or_else(|| wrong(self.lookup.explain(addr, &mut |_| ()), "explained"))
        })
    }

    /// Every named count, and the bytes in use.
    pub fn counters(&self) -> Vec<(&'static str, u64)> {
        let mut all = Vec::new();
        self.lookup.stats(&mut |name, count| all.push((name, count)));
        all.push(("bytes", self.lookup.bytes() as u64));
        all
    }
}

/// A change that a member did not take, so that none has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Index of the member.
    pub member: usize,
    /// Why.
    pub error: UpdateError,
}

/// The first wrong answer of a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong<A: Addr> {
    /// Index of the member.
    pub member: usize,
    /// Address of the lookup.
    pub addr: A,
    /// Answer of the member.
    pub got: NextHopId,
    /// Answer of the store.
    pub want: NextHopId,
    /// In a batch, alone, or explained.
    pub how: &'static str,
}

impl<A: Addr> fmt::Display for Wrong<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { addr, got, want, how, .. } = self;
        write!(f, "{} gives {} {how}, the store {}", addr.to_ip(), got.0, want.0)
    }
}

impl<A: Addr> Fleet<A> {
    /// The store, the oracle, and no table.
    pub fn new(routes: &[(Prefix<A>, NextHopId)]) -> Self {
        let (routes, oracle) =
            (routes.iter().copied().collect(), routes.iter().copied().collect::<Oracle<A>>());
        Self { routes, oracle, members: Vec::new() }
    }

    /// One more table, of the present routes.
    ///
    /// # Errors
    /// That of the algorithm.
    pub fn join(&mut self, algorithm: &'static Algorithm<A>) -> Result<(), UpdateError> {
        let mut table = algorithm.build(&self.routes, &mut Heap)?;
        let lookup = table.publish();
        self.members.push(Member {
            algorithm,
            table,
            lookup,
            rebuilds: 0,
            refused: 0,
            spent: Duration::ZERO,
        });
        Ok(())
    }

    /// Makes every table hold `wanted` (`NONE` withdraws), rebuilding those that require it. Where
    /// one refuses, the others take back what they have: then all are as before.
    ///
    /// # Errors
    /// The first that refused, and why.
    ///
    /// # Panics
    /// When undoing is refused too, or store and oracle differ.
    pub fn apply(
        &mut self,
        wanted: &[(Prefix<A>, NextHopId)],
        grace: &mut dyn Grace,
    ) -> Result<(), Refused> {
        let changes: Vec<_> = wanted.iter().map(|&(prefix, new)| self.set(prefix, new)).collect();
        for at in 0..self.members.len() {
            let Err(error) = self.members[at].take(&changes, &self.routes, grace) else { continue };
            self.members[at].refused += 1;
            let back: Vec<_> =
                changes.iter().rev().map(|change| self.set(change.prefix, change.old)).collect();
            for member in &mut self.members[..at] {
                let taken = member.take(&back, &self.routes, grace);
                taken.unwrap_or_else(|error| panic!("{:?}: back: {error}", member.algorithm));
            }
            return Err(Refused { member: at, error });
        }
        Ok(())
    }

    fn set(&mut self, prefix: Prefix<A>, new: NextHopId) -> Change<A> {
        let change = set(&mut self.routes, prefix, new);
        let told = self.oracle.set(prefix, new);
        assert_eq!(told, change.old, "store and oracle agree on {prefix}");
        change
    }

    /// Looks each address up in every table, in batches, and compares with the store. With `closely` also
    /// alone and explained, and the store with the oracle. The first wrong answer of each table that
    /// gave one, in the order of the members.
    ///
    /// # Panics
    /// When store and oracle differ.
    pub fn check(&self, addrs: &[A], closely: bool) -> Vec<Wrong<A>> {
        let mut found = Vec::new();
        self.routes.longest_matches(addrs, &mut found);
        let wants: Vec<_> =
            found.iter().map(|best| best.map_or(NextHopId::NONE, |(_, &hop)| hop)).collect();
        if closely {
            for (&addr, &want) in addrs.iter().zip(&wants) {
                assert_eq!(self.oracle.lookup(addr), want, "store and oracle: {}", addr.to_ip());
            }
        }
        let mut out = vec![NextHopId(u32::MAX); addrs.len()];
        let each = self.members.iter().enumerate().filter_map(|(member, asked)| {
            let (addr, got, want, how) = asked.first_wrong(addrs, &wants, closely, &mut out)?;
            Some(Wrong { member, addr, got, want, how })
        });
        each.collect()
    }

    /// [`Fleet::check`] at both ends of every present route and behind them; the store with the oracle
    /// there as well.
    ///
    /// # Panics
    /// When store and oracle differ.
    pub fn check_all(&self) -> Vec<Wrong<A>> {
        assert_eq!(self.routes.len(), self.oracle.len(), "store and oracle");
        let mut all: Vec<Wrong<A>> = Vec::new();
        let mut addrs = Vec::new();
        let mut ask = |addrs: &[A]| {
            for &addr in addrs {
                let want = self.routes.longest_match(addr).map(|(prefix, &hop)| (prefix, hop));
                assert_eq!(self.oracle.best(addr), want, "store and oracle: {}", addr.to_ip());
            }
            for wrong in self.check(addrs, false) {
                if all.iter().all(|known| known.member != wrong.member) {
                    all.push(wrong);
                }
            }
        };
        for (prefix, _) in self.routes.iter() {
            addrs.extend([prefix.first(), prefix.last(), prefix.last().next()]);
            if addrs.len() >= 1 << 16 {
                ask(&addrs);
                addrs.clear();
            }
        }
        ask(&addrs);
        all.sort_by_key(|wrong| wrong.member);
        all
    }
}

#[cfg(test)]
mod tests {
    use alloc::format;
    use alloc::string::ToString as _;

    use super::super::{Shape, probes, table};
    use super::*;
    use crate::NoReaders;
    use crate::registry::Rows;

    #[test]
    fn a_change_that_one_refuses_is_taken_by_none() {
        let routes: Vec<_> = table::<u32>(Shape::Hostile, 3000, 50, 1);
        let mut fleet = Fleet::new(&routes);
        for name in ["bc18", "tree_bitmap", "dxr16"] {
            fleet.join(u32::row(name).unwrap()).unwrap();
        }
        let counts = |fleet: &Fleet<u32>| fleet.members.iter().map(Member::counters).collect();
        let before: Vec<_> = counts(&fleet);
        let (prefix, past) =
            (routes[9].0, NextHopId(fleet.members[2].algorithm.limits.next_hop + 1));
        let wanted = [(routes[3].0, NextHopId::NONE), (prefix, past), (prefix, NextHopId(7))];
        let refused = fleet.apply(&wanted, &mut NoReaders).unwrap_err();
        assert!(matches!(refused.error, UpdateError::Limit { .. }), "{refused:?}");
        let after: Vec<_> = counts(&fleet);
        assert_eq!(before, after);
        assert_eq!(fleet.check_all(), []);

        fleet.apply(&[wanted[0], wanted[2]], &mut NoReaders).unwrap();
        let addrs: Vec<u32> = wanted.iter().flat_map(|&(prefix, _)| probes(prefix)).collect();
        assert_eq!(fleet.check(&addrs, true), []);
        assert!(fleet.members.iter().all(|member| !member.spent.is_zero()));
    }

    #[test]
    fn each_that_answers_wrongly_is_named() {
        let routes: Vec<_> = table::<u32>(Shape::Internet, 30_000, 50, 1);
        let mut fleet = Fleet::new(&routes);
        for name in ["bc18", "radix", "dxr16"] {
            fleet.join(u32::row(name).unwrap()).unwrap();
        }
        // Two of three are told of something else than the store; past the addresses asked together.
        let (prefix, hop) = routes[28_000];
        let other = NextHopId(hop.0 + 1);
        let mut told = fleet.routes.clone();
        let change = set(&mut told, prefix, other);
        for member in [0, 2] {
            fleet.members[member].take(&[change], &told, &mut NoReaders).unwrap();
        }
        let wrong = fleet.check(&[prefix.first()], false);
        let found: Vec<_> = wrong.iter().map(|w| (w.member, w.got, w.want, w.how)).collect();
        assert_eq!(found, [(0, other, hop, "in a batch"), (2, other, hop, "in a batch")]);
        assert!(wrong[0].to_string().ends_with(&format!("in a batch, the store {}", hop.0)));
        let wrong_of = |fleet: &Fleet<u32>| -> Vec<_> {
            fleet.check_all().iter().map(|wrong| (wrong.member, wrong.addr)).collect()
        };
        let wrong = wrong_of(&fleet);
        assert_eq!(wrong.iter().map(|wrong| wrong.0).collect::<Vec<_>>(), [0, 2]);
        // The one that is found first is not the first member.
        let mut told = fleet.routes.clone();
        let change = set(&mut told, Prefix::ALL, other);
        fleet.members[2].take(&[change], &told, &mut NoReaders).unwrap();
        let later = wrong_of(&fleet);
        assert!(later[0] == wrong[0] && later[1].0 == 2 && later[1].1 < wrong[1].1, "{later:?}");
    }

    #[test]
    fn a_store_that_is_wrong_is_found_out() {
        let routes: Vec<_> = table::<u32>(Shape::Internet, 300, 50, 1);
        let mut fleet = Fleet::new(&routes);
        let (prefix, hop) = routes[100];
        fleet.routes.insert(prefix, NextHopId(hop.0 + 1));
        let caught = |check: &dyn Fn()| {
            std::panic::catch_unwind(core::panic::AssertUnwindSafe(check)).is_err()
        };
        assert!(caught(&|| drop(fleet.check(&[prefix.first()], true))));
        assert!(caught(&|| drop(fleet.check_all())));
        fleet.routes.insert(prefix, hop);
        assert_eq!(fleet.check_all(), []);
    }
}
