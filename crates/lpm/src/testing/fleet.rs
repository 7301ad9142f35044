//! Many tables over one store and one oracle: the same changes to all of them, each right answer worked
//! out once. Ten million updates of one row after the other would ask the oracle as often as there are
//! rows.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use super::set;
use crate::addr::{Addr, Prefix};
use crate::lookup::{Algorithm, Change, Grace, Lookup, NextHopId, Table, UpdateError};
use crate::mem::Heap;
use crate::oracle::Oracle;
use crate::routes::RouteStore;

/// Tables that hold the same routes.
pub struct Fleet<A: Addr> {
    /// What each table should hold.
    pub routes: RouteStore<A>,
    /// The same, told independently.
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
    /// How often a change asked to build again.
    pub rebuilds: usize,
    /// How often a change was past a limit.
    pub refused: usize,
}

impl<A: Addr> Member<A> {
    fn take(
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
    /// What the algorithm says.
    pub fn join(&mut self, algorithm: &'static Algorithm<A>) -> Result<(), UpdateError> {
        let mut table = algorithm.build(&self.routes, &mut Heap)?;
        let lookup = table.publish();
        self.members.push(Member { algorithm, table, lookup, rebuilds: 0, refused: 0 });
        Ok(())
    }

    /// Makes every table hold `wanted` (`NONE` withdraws), building again those that ask for it. Where
    /// one refuses, the others take back what they have: then all are as before.
    ///
    /// # Errors
    /// The first that refused, and why.
    ///
    /// # Panics
    /// When the way back is refused too, or store and oracle differ.
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

    /// Asks every table for each address, in batches, and compares with the oracle; with `closely` also
    /// alone and explained.
    ///
    /// # Panics
    /// At the first wrong answer.
    pub fn verify(&self, addrs: &[A], closely: bool, when: &str) {
        let mut wants = vec![NextHopId::NONE; addrs.len()];
        for (want, &addr) in wants.iter_mut().zip(addrs) {
            *want = self.oracle.lookup(addr);
        }
        let mut out = vec![NextHopId(u32::MAX); addrs.len()];
        for Member { algorithm, lookup, .. } in &self.members {
            out.fill(NextHopId(u32::MAX));
            for (addrs, out) in addrs.chunks(256).zip(out.chunks_mut(256)) {
                lookup.lookup_batch(addrs, out);
            }
            for ((&addr, &want), &got) in addrs.iter().zip(&wants).zip(&out) {
                let ip = addr.to_ip();
                assert_eq!(got, want, "{algorithm:?}, {when}: batch, {ip}");
                if closely {
                    assert_eq!(lookup.lookup(addr), want, "{algorithm:?}, {when}: {ip}");
                    let told = lookup.explain(addr, &mut |_| ());
                    assert_eq!(told, want, "{algorithm:?}, {when}: explain, {ip}");
                }
            }
        }
    }

    /// [`Fleet::verify`] at both ends of every present route and behind them.
    pub fn verify_all(&self, when: &str) {
        let mut addrs = Vec::new();
        for (prefix, _) in self.routes.iter() {
            addrs.extend([prefix.first(), prefix.last(), prefix.last().next()]);
            if addrs.len() >= 1 << 16 {
                self.verify(&addrs, false, when);
                addrs.clear();
            }
        }
        self.verify(&addrs, false, when);
    }
}

#[cfg(test)]
mod tests {
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
        fleet.verify_all("taken back");

        fleet.apply(&[wanted[0], wanted[2]], &mut NoReaders).unwrap();
        let addrs: Vec<u32> = wanted.iter().flat_map(|&(prefix, _)| probes(prefix)).collect();
        fleet.verify(&addrs, true, "taken");
        assert_eq!(fleet.oracle.set(prefix, NextHopId::NONE), NextHopId(7));
        fleet.routes.remove(prefix);
        let wrong = std::panic::catch_unwind(core::panic::AssertUnwindSafe(|| {
            fleet.verify(&addrs, false, "another answer is found out");
        }));
        assert!(wrong.is_err());
    }
}
