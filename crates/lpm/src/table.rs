//! A table with everything in it: the routes, a structure that answers, and readers beside the writer.
//!
//! The seam of this crate is made for a router, which has its own store, decides itself when to build,
//! and knows when a batch ends. [`LpmTable`] is the same for a program that only wants answers: each
//! change is in the store and in the structure when it returns; a structure that cannot take it in
//! place is built anew, by another algorithm where it must be.
//!
//! Cost: the store's some 45 bytes a route (IPv4) and those of the structure; a change costs what both
//! cost, so microseconds with an algorithm that changes in place.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use crate::addr::{Addr, Prefix};
use crate::error::UpdateError;
use crate::lookup::{Algorithm, Change, Lookup, Routes, Table, TableStats};
use crate::mem::{Memory, MemoryMaker};
use crate::next_hop_id::NextHopId;
use crate::registry::{Rows, Unknown};
use crate::routes::{Covering, Iter, RouteStore};

#[cfg(feature = "std")]
use crate::readers::{LpmReader, Readers};

/// A table that is looked up and changed by one owner, and read by any number of threads.
///
/// Values are [`NextHopId`]s, numbers from 1 on; what they stand for is the program's, as an index into a
/// list of its own.
///
/// ```
/// use fingerpost_lpm::{LpmTable, NextHopId};
/// let ways = ["none", "left", "right"];
/// let mut table = LpmTable::<u128>::new();
/// table.insert("2001:db8::/32".parse()?, NextHopId(1))?;
/// table.insert("2001:db8:1::/48".parse()?, NextHopId(2))?;
/// let addr: std::net::Ipv6Addr = "2001:db8:1::7".parse()?;
/// assert_eq!(ways[table.lookup(addr.to_bits()).index()], "right");
/// table.remove("2001:db8:1::/48".parse()?)?;
/// assert_eq!(ways[table.lookup(addr.to_bits()).index()], "left");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct LpmTable<A: Addr> {
    routes: RouteStore<A>,
    /// Algorithms to choose from; one where the caller named it.
    rows: Vec<&'static Algorithm<A>>,
    algorithm: &'static Algorithm<A>,
    table: Box<dyn Table<A>>,
    lookup: Arc<dyn Lookup<A>>,
    readers: Readers<A>,
    memory: MemoryMaker,
    /// Numbers of routes within which the algorithm is not chosen again.
    settled: core::ops::RangeInclusive<usize>,
}

/// Readers without an operating system: none beside the owner.
#[cfg(not(feature = "std"))]
struct Readers<A>(core::marker::PhantomData<fn(A)>);

#[cfg(not(feature = "std"))]
impl<A: Addr> Readers<A> {
    fn new(_: Arc<dyn Lookup<A>>) -> Self {
        Self(core::marker::PhantomData)
    }
    fn replace(&mut self, _: Arc<dyn Lookup<A>>) {}
}

#[cfg(not(feature = "std"))]
impl<A> crate::lookup::Grace for Readers<A> {
    fn retire(&mut self) -> crate::lookup::Epoch {
        crate::lookup::Epoch(0)
    }
    fn passed(&self, _: crate::lookup::Epoch) -> bool {
        true
    }
}

/// More changes at once than this share of the table are quicker built than applied: in a full table a
/// route took dxr18 some 0.3 us to build and some 6 us to change.
const BUILD_SHARE: usize = 16;
/// Fewer changes than this are never worth a new table.
const BUILD_LEAST: usize = 256;
/// A small table is settled up to here.
const SETTLED_LEAST: usize = 16;

fn memory() -> impl Memory {
    #[cfg(all(feature = "std", target_os = "linux"))]
    return crate::mem::map::HugePages::new();
    #[cfg(not(all(feature = "std", target_os = "linux")))]
    return crate::mem::Heap;
}

impl<A: Rows> LpmTable<A> {
    /// An empty table, for which the registry's fittest algorithm is taken now and again as it grows.
    ///
    /// # Panics
    /// If there is no memory for an empty table.
    pub fn new() -> Self {
        Self::build(RouteStore::new()).expect("some algorithm holds an empty table")
    }

    /// A table of `routes`, by the fittest algorithm.
    ///
    /// # Errors
    /// Of the fittest algorithm, when none takes the routes: a limit, or no memory.
    pub fn build(routes: RouteStore<A>) -> Result<Self, UpdateError> {
        Self::build_with(A::rows().collect(), routes)
    }

    /// An empty table by the algorithm of that name, whatever the table becomes.
    ///
    /// # Errors
    /// [`Unknown`], with the name that was probably meant.
    ///
    /// # Panics
    /// If there is no memory for an empty table.
    pub fn with_algorithm(name: &str) -> Result<Self, Unknown> {
        let row = A::row(name)?;
        let table = Self::build_with(alloc::vec![row], RouteStore::new());
        Ok(table.expect("an algorithm holds an empty table"))
    }
}

impl<A: Rows> Default for LpmTable<A> {
    fn default() -> Self {
        Self::new()
    }
}

impl<A: Addr> LpmTable<A> {
    /// A table of `routes` by the fittest of `rows`, which may be of another crate; by no other if it
    /// is a single one.
    ///
    /// # Errors
    /// As [`LpmTable::build`].
    ///
    /// # Panics
    /// If there are no rows.
    pub fn build_with(
        rows: Vec<&'static Algorithm<A>>,
        routes: RouteStore<A>,
    ) -> Result<Self, UpdateError> {
        let memory = MemoryMaker::new(|| Box::new(memory()));
        let (algorithm, mut table) = fittest(&rows, &routes, &memory)?;
        let lookup = table.publish();
        let settled = settled(routes.len());
        let readers = Readers::new(Arc::clone(&lookup));
        Ok(Self { routes, rows, algorithm, table, lookup, readers, memory, settled })
    }

    /// Sets the next hop of a prefix and returns the one before. [`NextHopId::NONE`] removes it.
    ///
    /// # Errors
    /// A limit of the named algorithm, or of all of them, or no memory; nothing is changed then.
    pub fn insert(
        &mut self,
        prefix: Prefix<A>,
        hop: NextHopId,
    ) -> Result<Option<NextHopId>, UpdateError> {
        let change = self.store(prefix, hop);
        self.carry_out(&[change], false)?;
        Ok(Some(change.old).filter(|old| !old.is_none()))
    }

    /// Removes a prefix and returns its next hop.
    ///
    /// # Errors
    /// No memory, where a new structure was to be built; nothing is changed then.
    pub fn remove(&mut self, prefix: Prefix<A>) -> Result<Option<NextHopId>, UpdateError> {
        self.insert(prefix, NextHopId::NONE)
    }

    /// Sets many prefixes in order, all of them or none; [`NextHopId::NONE`] removes. Quicker than one
    /// after another, and the method to fill a table that readers already have.
    ///
    /// # Errors
    /// As [`LpmTable::insert`].
    pub fn apply(&mut self, wanted: &[(Prefix<A>, NextHopId)]) -> Result<(), UpdateError> {
        let changes: Vec<_> = wanted.iter().map(|&(prefix, hop)| self.store(prefix, hop)).collect();
        let many = changes.len() > (self.routes.len() / BUILD_SHARE).max(BUILD_LEAST);
        self.carry_out(&changes, many)
    }

    /// [`LpmTable::apply`] as one step for readers too: a structure is built aside, whatever could be changed in place, and
    /// takes the other's place, so that no reader finds some of the changes without the rest.
    ///
    /// # Errors
    /// As [`LpmTable::insert`].
    pub fn apply_at_once(&mut self, wanted: &[(Prefix<A>, NextHopId)]) -> Result<(), UpdateError> {
        let changes: Vec<_> = wanted.iter().map(|&(prefix, hop)| self.store(prefix, hop)).collect();
        self.carry_out(&changes, true)
    }

    /// The next hop of exactly this prefix.
    pub fn get(&self, prefix: Prefix<A>) -> Option<NextHopId> {
        self.routes.get(prefix).copied()
    }

    /// The longest prefix that holds `addr`, and its next hop: from the store, so some ten times as
    /// slow as [`LpmTable::lookup`], which knows no prefixes.
    pub fn longest_match(&self, addr: A) -> Option<(Prefix<A>, NextHopId)> {
        self.routes.longest_match(addr).map(|(prefix, &hop)| (prefix, hop))
    }

    /// The next hop of `addr`; [`NextHopId::NONE`] when no prefix covers it.
    pub fn lookup(&self, addr: A) -> NextHopId {
        self.lookup.lookup(addr)
    }

    /// Looks up many addresses, in order; overlaps the cache misses, so some times as fast. Best from 64 on.
    ///
    /// # Panics
    /// If `out` is shorter than `addrs`.
    pub fn lookup_batch(&self, addrs: &[A], out: &mut [NextHopId]) {
        self.lookup.lookup_batch(addrs, out);
    }

    /// Every prefix that covers `prefix`, itself included, the shortest first.
    pub fn covering(&self, prefix: Prefix<A>) -> Covering<'_, A, NextHopId> {
        self.routes.covering(prefix)
    }

    /// Every prefix that `prefix` covers, itself included, by address, then length.
    pub fn covered(&self, prefix: Prefix<A>) -> Iter<'_, A, NextHopId> {
        self.routes.covered(prefix)
    }

    /// Every prefix, by address, then length.
    pub fn iter(&self) -> Iter<'_, A, NextHopId> {
        self.routes.iter()
    }

    /// What differs from here to `new`, by address, then length.
    pub fn diff<'a>(&'a self, new: &'a Self) -> impl Iterator<Item = Change<A>> + 'a {
        let hop = |hop: Option<&NextHopId>| hop.copied().unwrap_or_default();
        let change = move |(prefix, old, new)| Change { prefix, old: hop(old), new: hop(new) };
        self.routes.diff(&new.routes).map(change)
    }

    /// Prefixes held.
    pub fn len(&self) -> usize {
        self.routes.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.routes.is_empty()
    }

    /// The routes themselves.
    pub fn routes(&self) -> &RouteStore<A> {
        &self.routes
    }

    /// What answers at present: counts, bytes, and what a lookup reads.
    pub fn structure(&self) -> &dyn Lookup<A> {
        &*self.lookup
    }

    /// Which algorithm it is.
    pub fn algorithm(&self) -> &'static Algorithm<A> {
        self.algorithm
    }

    /// A reader for another thread; any number of them.
    #[cfg(feature = "std")]
    pub fn reader(&self) -> LpmReader<A> {
        self.readers.reader()
    }

    /// Builds anew by the fittest of `rows`, in memory of this maker; so does each build that follows.
    ///
    /// # Errors
    /// As [`LpmTable::build`]; the table is as it was then.
    ///
    /// # Panics
    /// If there are no rows.
    pub fn share(
        &mut self,
        memory: MemoryMaker,
        rows: Vec<&'static Algorithm<A>>,
    ) -> Result<(), UpdateError> {
        let before = (self.memory.clone(), core::mem::replace(&mut self.rows, rows));
        self.memory = memory;
        let done = self.rebuild();
        if done.is_err() {
            (self.memory, self.rows) = before;
        }
        done
    }

    /// Brings a reader in the kernel to the present structure and to each that follows; memory is reused only after it.
    /// It takes the place of the one before.
    #[cfg(feature = "std")]
    pub fn set_kernel_reader(
        &mut self,
        reader: Box<dyn crate::lookup::KernelReader<Arc<dyn Lookup<A>>>>,
    ) {
        self.readers.set_kernel_reader(reader);
    }

    /// Saves what answers, for [`Snapshot::open`](crate::snapshot::Snapshot::open). The routes are not
    /// in it.
    ///
    /// # Errors
    /// As [`crate::snapshot::save`].
    #[cfg(feature = "std")]
    pub fn save(
        &self,
        path: impl AsRef<std::path::Path>,
    ) -> Result<(), crate::snapshot::SnapshotError> {
        crate::snapshot::save(path, self.algorithm, &*self.lookup)
    }

    fn store(&mut self, prefix: Prefix<A>, new: NextHopId) -> Change<A> {
        let old = if new.is_none() {
            self.routes.remove(prefix)
        } else {
            self.routes.insert(prefix, new)
        };
        Change { prefix, old: old.unwrap_or_default(), new }
    }

    /// Brings the structure up to the store, anew if `anew`, or the store back.
    fn carry_out(&mut self, changes: &[Change<A>], anew: bool) -> Result<(), UpdateError> {
        let in_place = if anew {
            Err(UpdateError::Rebuild)
        } else {
            self.table.apply(changes, &self.routes, &mut self.readers)
        };
        let done = match in_place {
            Ok(()) => {
                self.publish();
                Ok(())
            }
            // What is beyond the only algorithm that is wanted will not be built by it either.
            Err(limit @ UpdateError::Limit { .. }) if self.rows.len() == 1 => Err(limit),
            Err(_) => self.rebuild(),
        };
        if done.is_err() {
            for change in changes.iter().rev() {
                self.store(change.prefix, change.old);
            }
        } else if !self.settled.contains(&self.routes.len()) {
            self.reconsider();
        }
        done
    }

    fn publish(&mut self) {
        let lookup = self.table.publish();
        if !Arc::ptr_eq(&lookup, &self.lookup) {
            self.lookup = Arc::clone(&lookup);
            self.readers.replace(lookup);
        }
    }

    fn rebuild(&mut self) -> Result<(), UpdateError> {
        let (algorithm, table) = fittest(&self.rows, &self.routes, &self.memory)?;
        (self.algorithm, self.table) = (algorithm, table);
        self.settled = settled(self.routes.len());
        self.publish();
        Ok(())
    }

    /// The table is twice or a quarter of what it was: perhaps something else suits it better.
    fn reconsider(&mut self) {
        let stats = self.routes.stats();
        let best = candidates(&self.rows, &stats).next();
        if best.is_some_and(|row| row.name != self.algorithm.name) {
            // If it cannot be had the present one goes on: it holds the table.
            let _ = self.rebuild();
        }
        self.settled = settled(self.routes.len());
    }
}

/// The rows that hold such a table, the fittest first; of equals the first.
fn candidates<A: Addr>(
    rows: &[&'static Algorithm<A>],
    stats: &TableStats,
) -> impl Iterator<Item = &'static Algorithm<A>> {
    let holds = |row: &&&'static Algorithm<A>| row.limits.check(stats).is_ok();
    let mut rows: Vec<_> =
        rows.iter().filter(holds).map(|&row| ((row.fitness)(stats), row)).collect();
    rows.sort_by_key(|&(fitness, _)| core::cmp::Reverse(fitness));
    rows.into_iter().map(|(_, row)| row)
}

type Built<A> = (&'static Algorithm<A>, Box<dyn Table<A>>);

/// Builds by the fittest row that can.
fn fittest<A: Addr>(
    rows: &[&'static Algorithm<A>],
    routes: &RouteStore<A>,
    memory: &MemoryMaker,
) -> Result<Built<A>, UpdateError> {
    let stats = routes.stats();
    let mut refused = None;
    for row in candidates(rows, &stats) {
        match row.build(routes, &mut *memory.make()) {
            Ok(table) => return Ok((row, table)),
            Err(error) => refused = refused.or(Some(error)),
        }
    }
    match refused {
        Some(error) => Err(error),
        // Every row has a limit below this table.
        None => Err(rows
            .iter()
            .find_map(|row| row.limits.check(&stats).err())
            .expect("a table is made of at least one row")),
    }
}

/// The sizes at which `len` routes are still about as many.
fn settled(len: usize) -> core::ops::RangeInclusive<usize> {
    len / 4..=(2 * len).max(SETTLED_LEAST)
}

impl<'a, A: Addr> IntoIterator for &'a LpmTable<A> {
    type Item = (Prefix<A>, &'a NextHopId);
    type IntoIter = Iter<'a, A, NextHopId>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<A: Addr> fmt::Debug for LpmTable<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LpmTable")
            .field("algorithm", &self.algorithm.name)
            .field("prefixes", &self.len())
            .finish_non_exhaustive()
    }
}
