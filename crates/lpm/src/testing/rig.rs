//! A table with its store and its oracle, kept in step: what a FIB does, as small as it can be.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};

use super::set;
use crate::addr::{Addr, Prefix};
use crate::error::UpdateError;
use crate::lookup::{Algorithm, Change, Epoch, Grace, Lookup, Table};
use crate::mem::{Heap, Memory, Region};
use crate::next_hop_id::NextHopId;
use crate::oracle::Oracle;
use crate::routes::RouteStore;

/// One table under test.
pub struct Rig<'a, A: Addr> {
    /// Which algorithm.
    pub algorithm: &'a Algorithm<A>,
    /// What the table should hold.
    pub routes: RouteStore<A>,
    /// Independent copy of the routes.
    pub oracle: Oracle<A>,
    /// The writer.
    pub table: Box<dyn Table<A>>,
    /// The reader last published.
    pub lookup: Arc<dyn Lookup<A>>,
    /// Number of times that `apply` required a rebuild.
    pub rebuilds: usize,
}

impl<'a, A: Addr> Rig<'a, A> {
    /// Builds a table from the heap.
    ///
    /// # Errors
    /// That of the algorithm.
    pub fn new(
        algorithm: &'a Algorithm<A>,
        routes: &[(Prefix<A>, NextHopId)],
    ) -> Result<Self, UpdateError> {
        let store: RouteStore<A> = routes.iter().copied().collect();
        let mut table = algorithm.build(&store, &mut Heap)?;
        let lookup = table.publish();
        let oracle = routes.iter().copied().collect();
        Ok(Self { algorithm, routes: store, oracle, table, lookup, rebuilds: 0 })
    }

    /// Makes the table hold `wanted` (`NONE` withdraws), rebuilding when it requires that. On an
    /// error store and oracle are as before.
    ///
    /// # Errors
    /// That of the algorithm, but for [`UpdateError::Rebuild`].
    pub fn apply(
        &mut self,
        wanted: &[(Prefix<A>, NextHopId)],
        grace: &mut dyn Grace,
    ) -> Result<(), UpdateError> {
        match self.apply_in_place(wanted, grace) {
            Err(UpdateError::Rebuild) => self.apply_by_building(wanted),
            other => other,
        }
    }

    /// [`Rig::apply`] without rebuilding.
    ///
    /// # Errors
    /// That of the algorithm.
    pub fn apply_in_place(
        &mut self,
        wanted: &[(Prefix<A>, NextHopId)],
        grace: &mut dyn Grace,
    ) -> Result<(), UpdateError> {
        let changes: Vec<_> = wanted.iter().map(|&(prefix, new)| self.set(prefix, new)).collect();
        let result = self.table.apply(&changes, &self.routes, grace);
        self.settle(&changes, result)
    }

    /// [`Rig::apply`] by rebuilding.
    ///
    /// # Errors
    /// That of the algorithm.
    pub fn apply_by_building(
        &mut self,
        wanted: &[(Prefix<A>, NextHopId)],
    ) -> Result<(), UpdateError> {
        self.rebuilds += 1;
        let changes: Vec<_> = wanted.iter().map(|&(prefix, new)| self.set(prefix, new)).collect();
        let built = self.algorithm.build(&self.routes, &mut Heap);
        let result = built.map(|table| self.table = table);
        self.settle(&changes, result)
    }

    fn settle(
        &mut self,
        changes: &[Change<A>],
        result: Result<(), UpdateError>,
    ) -> Result<(), UpdateError> {
        if result.is_ok() {
            self.lookup = self.table.publish();
        } else {
            for change in changes.iter().rev() {
                self.set(change.prefix, change.old);
            }
        }
        result
    }

    fn set(&mut self, prefix: Prefix<A>, new: NextHopId) -> Change<A> {
        let change = set(&mut self.routes, prefix, new);
        let told = self.oracle.set(prefix, new);
        assert_eq!(told, change.old, "store and oracle agree on {prefix}");
        change
    }

    /// Looks each address up alone, explained and in batches, and compares with the oracle.
    ///
    /// # Panics
    /// At the first wrong answer.
    pub fn verify(&self, addrs: &[A], when: &str) {
        let who = (self.algorithm, when);
        let mut out = [NextHopId(u32::MAX); 64];
        for group in addrs.chunks(64) {
            self.lookup.lookup_batch(group, &mut out);
            for (&addr, &batched) in group.iter().zip(&out) {
                let want = self.oracle.best(addr);
                let hop = want.map_or(NextHopId::NONE, |(_, hop)| hop);
                let ip = addr.to_ip();
                assert_eq!(self.lookup.lookup(addr), hop, "{who:?}: {ip}, oracle {want:?}");
                assert_eq!(batched, hop, "{who:?}: batch, {ip}, oracle {want:?}");
                let mut steps = 0;
                let told = self.lookup.explain(addr, &mut |_| steps += 1);
                assert_eq!(told, hop, "{who:?}: explain, {ip}, oracle {want:?}");
                assert!(steps > 0, "{who:?}: explain tells its steps");
            }
        }
    }

    /// Every named count, and the bytes in use.
    pub fn counters(&self) -> Vec<(&'static str, u64)> {
        let mut all = Vec::new();
        self.lookup.stats(&mut |name, count| all.push((name, count)));
        all.push(("bytes", self.lookup.bytes() as u64));
        all
    }
}

/// Copy of the bytes somewhere else, as a saved and re-opened table would be.
///
/// # Panics
/// When the heap is exhausted.
pub fn copy_regions(regions: &[Region]) -> Vec<Region> {
    let copy = |region: &Region| {
        let new = Heap.region(region.name(), region.bytes()).expect("memory for a copy");
        for (to, from) in new.u64s().iter().zip(region.u64s()) {
            to.store(from.load(Relaxed), Relaxed);
        }
        new
    };
    regions.iter().map(copy).collect()
}

/// A heap that gives `left` regions and then no more.
#[derive(Clone, Copy, Debug)]
pub struct FailingMemory {
    /// How many it still gives.
    pub left: usize,
}

impl Memory for FailingMemory {
    fn region(&mut self, name: &'static str, bytes: usize) -> Result<Region, UpdateError> {
        self.left = self.left.checked_sub(1).ok_or(UpdateError::Memory { name, bytes })?;
        Heap.region(name, bytes)
    }
}

/// Readers that hold everything until they are released.
#[derive(Clone, Copy, Debug, Default)]
pub struct HeldGrace {
    now: u64,
    released: u64,
}

impl HeldGrace {
    /// Everything retired so far has passed.
    pub fn release(&mut self) {
        self.released = self.now;
    }
}

impl Grace for HeldGrace {
    fn retire(&mut self) -> Epoch {
        self.now += 1;
        Epoch(self.now)
    }
    fn passed(&self, epoch: Epoch) -> bool {
        epoch.0 <= self.released
    }
}

/// Real readers: each reports its epoch between two batches.
#[derive(Clone, Debug)]
pub struct ReaderGrace {
    shared: Arc<(AtomicU64, Vec<AtomicU64>)>,
}

impl ReaderGrace {
    /// For `readers` readers, numbered from 0, all of which hold on until they speak.
    pub fn new(readers: usize) -> Self {
        let seen = (0..readers).map(|_| AtomicU64::new(0)).collect();
        Self { shared: Arc::new((AtomicU64::new(0), seen)) }
    }

    /// Reader `reader` holds nothing at this moment.
    pub fn quiesce(&self, reader: usize) {
        self.shared.1[reader].store(self.shared.0.load(SeqCst), SeqCst);
    }

    /// Reader `reader` will not come back.
    pub fn leave(&self, reader: usize) {
        self.shared.1[reader].store(u64::MAX, SeqCst);
    }
}

impl Grace for ReaderGrace {
    fn retire(&mut self) -> Epoch {
        Epoch(self.shared.0.fetch_add(1, SeqCst) + 1)
    }
    fn passed(&self, epoch: Epoch) -> bool {
        self.shared.1.iter().all(|seen| seen.load(SeqCst) >= epoch.0)
    }
}
