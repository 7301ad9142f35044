//! The seam: what an algorithm reads, what it answers, and the row by which it is known.
//!
//! Reader ([`Lookup`]) and writer ([`Table`]) are two types because an update needs state that a
//! lookup must not drag through the cache. Callers hand over batches, so a trait object costs one
//! call a batch.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::fmt;

use crate::addr::{Addr, Prefix};
use crate::error::{FormatError, UpdateError};
use crate::kernel_layout::KernelLayout;
use crate::mem::{Memory, Region};
use crate::next_hop_id::NextHopId;
use crate::one_by_one::{Chain, Each};
use crate::simd::Job;

/// Grace periods: when a writer may reuse what it unlinked.
pub trait Grace {
    /// Everything unlinked before this call may be used again once the returned epoch has passed.
    fn retire(&mut self) -> Epoch;
    /// Whether every reader has gone past `epoch`.
    fn passed(&self, epoch: Epoch) -> bool;
}

/// A reader that is no thread of this process: a program in the kernel, over the same memory.
///
/// It pins no value, so the writer brings it to each new one; it announces no epoch, so the writer marks
/// what it has begun and checks later whether that is over.
pub trait KernelReader<T>: Send {
    /// Brings it to `value`. What it begins after the return sees nothing older, or it has ceased to read.
    fn follow(&mut self, value: &T);
    /// Notes what it has begun and not ended, for [`KernelReader::passed`] of this `epoch`.
    fn mark(&mut self, epoch: Epoch);
    /// Whether all is over that it had begun when `epoch` was marked.
    fn passed(&self, epoch: Epoch) -> bool;
}

/// A moment after which no reader holds what was unlinked before it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Epoch(pub u64);

/// For a table without concurrent readers: everything may be used again at once.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoReaders;

impl Grace for NoReaders {
    fn retire(&mut self) -> Epoch {
        Epoch(0)
    }
    fn passed(&self, _: Epoch) -> bool {
        true
    }
}

/// One read of a lookup, for [`Lookup::explain`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Which region was read.
    pub region: &'static str,
    /// Offset of the read, in bytes.
    pub offset: usize,
    /// What stood there.
    pub value: u64,
    /// What it meant.
    pub note: &'static str,
}

/// Readers: shared by every core; each lookup sees a change whole or not at all.
pub trait Lookup<A: Addr>: Send + Sync {
    /// [`NextHopId::NONE`] when no prefix covers `addr`.
    fn lookup(&self, addr: A) -> NextHopId;
    /// Same answers, in order; overlaps the cache misses.
    ///
    /// # Panics
    /// If `out` is shorter than `addrs`.
    fn lookup_batch(&self, addrs: &[A], out: &mut [NextHopId]);
    /// [`Self::lookup`] of each address, in order: one by one, as a caller that links the algorithm itself
    /// would, without a call through the trait object for each. For measurements; leave it as it is, unless
    /// a single lookup is compiled for other instructions than this loop ([`crate::simd::BitOps`]): then
    /// run the same loop with those, as `poptrie` does.
    ///
    /// # Panics
    /// If `out` is shorter than `addrs`.
    fn lookup_each(&self, addrs: &[A], out: &mut [NextHopId]) {
        Each { addrs, out: check_out(addrs, out), one: |addr| self.lookup(addr) }.run();
    }
    /// The same, but none can start before the one before it is answered: that answer, `mask`ed, goes
    /// into the next address. With a `mask` of 0 that the compiler does not know, the answers are those
    /// of `addrs`. For measurements; to be left as it is with the same exception.
    ///
    /// # Panics
    /// If `out` is shorter than `addrs`.
    fn lookup_chain(&self, addrs: &[A], mask: u32, out: &mut [NextHopId]) {
        Chain { addrs, mask, out: check_out(addrs, out), one: |addr| self.lookup(addr) }.run();
    }
    /// [`Self::lookup`] with each step (region, offset, value read).
    fn explain(&self, addr: A, step: &mut dyn FnMut(&Step)) -> NextHopId;
    /// Named counts of what the structure holds.
    fn stats(&self, visit: &mut dyn FnMut(&'static str, u64));
    /// What lookups can touch, and what saving writes (not the writer's own state).
    fn regions(&self) -> &[Region];
    /// Bytes in use of those that lookups can touch, without room kept for growth.
    fn bytes(&self) -> usize {
        self.regions().iter().map(Region::bytes).sum()
    }
}

/// The part of `out` that a batch of `addrs` fills.
///
/// # Panics
/// If `out` is shorter than `addrs`, as [`Lookup::lookup_batch`] promises.
#[inline]
pub fn check_out<'a, A: Addr>(addrs: &[A], out: &'a mut [NextHopId]) -> &'a mut [NextHopId] {
    assert!(out.len() >= addrs.len(), "room for {} answers to {}", out.len(), addrs.len());
    &mut out[..addrs.len()]
}

/// A changed best route: what the store held before, and what it holds now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change<A: Addr> {
    /// The prefix.
    pub prefix: Prefix<A>,
    /// Before; `NONE` when the prefix is new.
    pub old: NextHopId,
    /// Now; `NONE` when the prefix is gone.
    pub new: NextHopId,
}

impl<A: Addr> Change<A> {
    /// The greatest next hop that changes bring, which a structure's format must hold.
    ///
    /// # Errors
    /// [`UpdateError::Limit`] beyond `max`.
    pub fn greatest_hop(changes: &[Self], max: u32) -> Result<u32, UpdateError> {
        let greatest = changes.iter().map(|change| change.new.0).max().unwrap_or(0);
        if greatest > max {
            let (max, got) = (u64::from(max), u64::from(greatest));
            return Err(UpdateError::Limit { what: "next-hop index", max, got });
        }
        Ok(greatest)
    }

    /// How many prefixes there are after changes of a table of `before`.
    pub fn prefixes_after(changes: &[Self], before: usize) -> usize {
        // What neither was nor is counts in both.
        let added = changes.iter().filter(|change| change.old.is_none()).count();
        let gone = changes.iter().filter(|change| change.new.is_none()).count();
        before + added - gone
    }
}

/// The writer: one owner, keeps whatever makes the next update cheap.
pub trait Table<A: Addr>: Send {
    /// All of `changes` or none. `routes` already holds them.
    ///
    /// # Errors
    /// [`UpdateError`]; the structure then still answers as before the call.
    fn apply(
        &mut self,
        changes: &[Change<A>],
        routes: &dyn Routes<A>,
        grace: &mut dyn Grace,
    ) -> Result<(), UpdateError>;
    /// The present state for readers; the same `Arc` when nothing changed or it changed in place.
    fn publish(&mut self) -> Arc<dyn Lookup<A>>;
}

/// Route store as a builder reads it.
pub trait Routes<A: Addr> {
    /// The shape of the table.
    fn stats(&self) -> TableStats;
    /// Number of prefixes: that of [`Self::stats`], without visiting each.
    fn prefixes(&self) -> usize {
        self.stats().prefixes
    }
    /// The longest prefix that holds `addr`, and its next hop.
    fn best(&self, addr: A) -> Option<(Prefix<A>, NextHopId)>;
    /// The longest prefix that covers `prefix` and is strictly shorter.
    fn parent(&self, prefix: Prefix<A>) -> Option<(Prefix<A>, NextHopId)>;
    /// Every prefix whose first address lies in `from..=to`, by address, then length: parents before
    /// children.
    fn walk(&self, from: A, to: A, visit: &mut dyn FnMut(Prefix<A>, NextHopId));
}

/// The shape of a table, from which algorithms claim their fitness.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableStats {
    /// Prefixes in the table.
    pub prefixes: usize,
    /// The greatest next-hop index in use; 0 in an empty table.
    pub max_next_hop: u32,
    /// Prefixes of each length.
    pub lengths: [u32; 129],
}

impl Default for TableStats {
    fn default() -> Self {
        Self { prefixes: 0, max_next_hop: 0, lengths: [0; 129] }
    }
}

impl TableStats {
    /// The longest length in use; 0 in an empty table.
    pub fn longest(&self) -> u8 {
        let longest = self.lengths.iter().rposition(|&n| n > 0).unwrap_or(0);
        u8::try_from(longest).expect("lengths has 129 entries")
    }
}

/// Whether an algorithm is a faithful form of a known scheme or our own design.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A faithful form of a published scheme.
    Published,
    /// Our own.
    Own,
}

/// What a structure can hold; a table that exceeds it is never built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The greatest next-hop index.
    pub next_hop: u32,
    /// The longest prefix.
    pub prefix_len: u8,
    /// Any further limit, in words; empty when there is none.
    pub note: &'static str,
}

impl Limits {
    /// Checks a table's shape.
    ///
    /// # Errors
    /// [`UpdateError::Limit`], naming the limit that is exceeded.
    pub fn check(&self, stats: &TableStats) -> Result<(), UpdateError> {
        let limit = |what, max, got| {
            if got > max { Err(UpdateError::Limit { what, max, got }) } else { Ok(()) }
        };
        limit("next-hop index", u64::from(self.next_hop), u64::from(stats.max_next_hop))?;
        limit("prefix length", u64::from(self.prefix_len), u64::from(stats.longest()))
    }
}

/// A builder: makes a table of all `routes`, its readers' memory taken from `memory`.
pub type Build<A> = fn(&dyn Routes<A>, &mut dyn Memory) -> Result<Box<dyn Table<A>>, UpdateError>;

/// A reader over the bytes of a saved or shared table, as [`Lookup::regions`] listed them.
pub type Open<A> = fn(&[Region]) -> Result<Arc<dyn Lookup<A>>, FormatError>;

/// Registry row, plain data: all that is known of an algorithm without running it.
pub struct Algorithm<A: Addr> {
    /// What options and records call it.
    pub name: &'static str,
    /// One line.
    pub summary: &'static str,
    /// Paper, program or author.
    pub source: &'static str,
    /// Published or our own.
    pub origin: Origin,
    /// What it can hold.
    pub limits: Limits,
    /// Its claim for a table shape, 0 (never) to 255.
    pub fitness: fn(&TableStats) -> u8,
    /// Makes a table. Call [`Algorithm::build`], which checks the limits first.
    pub make: Build<A>,
    /// Opens saved regions, where the layout allows it.
    pub open: Option<Open<A>>,
    /// Layout by which the XDP datapath reads its tables, where it can.
    pub kernel_layout: Option<&'static KernelLayout>,
}

impl<A: Addr> Algorithm<A> {
    /// Checks the limits, then builds.
    ///
    /// # Errors
    /// [`UpdateError`]; nothing is kept.
    pub fn build(
        &self,
        routes: &dyn Routes<A>,
        memory: &mut dyn Memory,
    ) -> Result<Box<dyn Table<A>>, UpdateError> {
        self.limits.check(&routes.stats())?;
        (self.make)(routes, memory)
    }
}

impl<A: Addr> fmt::Debug for Algorithm<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Algorithm({}, IPv{})", self.name, A::FAMILY)
    }
}

/// What an algorithm's file exports: one row a variant, a slice empty where it lacks the family.
pub struct Module {
    /// IPv4 rows.
    pub v4: &'static [Algorithm<u32>],
    /// IPv6 rows.
    pub v6: &'static [Algorithm<u128>],
}
