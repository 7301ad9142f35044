//! The lookup table that readers use, and the writer behind it.

use std::any::Any;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fingerpost_lpm::{
    Addr, Algorithm, Change, Grace, HugePages, Lookup, Memory, MemoryMaker, NextHopId, Prefix,
    Region, Routes, Step, Table, UpdateError,
};

use super::before::Waiting;
use super::beside::Beside;

/// Changes of a piece, where there is no room for all at once: old and new stand side by side until readers
/// are past.
const PIECE: usize = 64;
/// Longest wait of a piece for readers: some batches of packets.
const PIECE_GRACE: Duration = Duration::from_micros(500);
/// Longest wait of all pieces. A reader that has no core holds on to what each piece leaves: the next ones find no room,
/// and a build has theirs.
const LONGEST_GRACE: Duration = Duration::from_millis(4);

/// Memory and algorithms of a kernel reader, for all FIBs.
#[derive(Clone)]
pub struct Shared {
    /// Memory that it can read. Without more of it the maker falls back to other memory: the kernel
    /// reader notices that and leaves the table out.
    pub memory: MemoryMaker,
    /// Whether it can read tables of this algorithm.
    pub reads: fn(&str) -> bool,
    /// What it does with a table before readers get it, if anything.
    pub ahead: Option<Arc<dyn KernelAhead>>,
    /// Number of the FIB; the owner of all FIBs sets it.
    pub fib: u16,
}

/// What a kernel reader does with a table that will take the place of the present one, before readers get it. It may take
/// long, and is called by the thread that built the table.
pub trait KernelAhead: Send + Sync {
    /// A table of IPv4 of this FIB.
    fn prepare_v4(&self, fib: u16, next: Arc<dyn Lookup<u32>>);
    /// A table of IPv6 of this FIB.
    fn prepare_v6(&self, fib: u16, next: Arc<dyn Lookup<u128>>);
}

impl Shared {
    /// Has the kernel reader do what it does ahead.
    pub(super) fn prepare<A: Addr>(&self, next: Arc<dyn Lookup<A>>) {
        let Some(ahead) = &self.ahead else { return };
        // The family is known by its type alone.
        let next: &dyn Any = &next;
        if let Some(next) = next.downcast_ref() {
            ahead.prepare_v4(self.fib, Arc::clone(next));
        } else if let Some(next) = next.downcast_ref() {
            ahead.prepare_v6(self.fib, Arc::clone(next));
        }
    }
}

/// The present table; another one replaces it only when it is complete.
pub(super) struct Served<A: Addr> {
    writer: Option<Writer<A>>,
    lookup: Arc<dyn Lookup<A>>,
    /// Kernel reader that shares the table.
    shared: Option<Shared>,
    /// Its successor, while another thread builds it.
    pub(super) beside: Beside<A>,
}

struct Writer<A: Addr> {
    algorithm: &'static Algorithm<A>,
    table: Box<dyn Table<A>>,
}

/// A build that succeeded.
pub(super) struct Built {
    pub(super) took: Duration,
    /// Algorithm of the table before it.
    pub(super) before: Option<&'static str>,
}

impl<A: Addr> Served<A> {
    /// A table without routes, of no algorithm.
    pub(super) fn new() -> Self {
        Self { writer: None, lookup: Arc::new(Nothing), shared: None, beside: Beside::default() }
    }

    /// Builds in memory that a kernel reader can read, from the next build on.
    pub(super) fn share(&mut self, shared: Shared) {
        self.shared = Some(shared);
    }

    /// Kernel reader that shares the tables.
    pub(super) fn shared(&self) -> Option<&Shared> {
        self.shared.as_ref()
    }

    /// Replaces the table by one that was built elsewhere; returns the one before.
    pub(super) fn put(
        &mut self,
        algorithm: &'static Algorithm<A>,
        mut table: Box<dyn Table<A>>,
    ) -> Option<(&'static str, Box<dyn Table<A>>)> {
        self.lookup = table.publish();
        let before = self.writer.replace(Writer { algorithm, table });
        before.map(|writer| (writer.algorithm.name, writer.table))
    }

    pub(super) fn algorithm(&self) -> Option<&'static Algorithm<A>> {
        self.writer.as_ref().map(|writer| writer.algorithm)
    }

    /// Lookup for readers.
    pub(super) fn lookup(&self) -> &Arc<dyn Lookup<A>> {
        &self.lookup
    }

    /// Changes the table in place. `routes` hold the changes that wait for later, too; `waiting` are these, with the next
    /// hops of before. An error leaves the changes applied in part: build then.
    pub(super) fn change(
        &mut self,
        changes: &[Change<A>],
        waiting: &[(Prefix<A>, NextHopId)],
        routes: &dyn Routes<A>,
        grace: &mut dyn Grace,
    ) -> Result<(), UpdateError> {
        let writer = self.writer.as_mut().ok_or(UpdateError::Rebuild)?;
        change(&mut *writer.table, changes, waiting, routes, grace)?;
        self.lookup = writer.table.publish();
        Ok(())
    }

    /// Builds a table of the routes with this algorithm.
    pub(super) fn build(
        &mut self,
        algorithm: &'static Algorithm<A>,
        routes: &dyn Routes<A>,
    ) -> Result<Built, UpdateError> {
        let start = Instant::now();
        let mut memory: Box<dyn Memory> = match &self.shared {
            Some(shared) => shared.memory.make(),
            None => Box::new(HugePages::new()),
        };
        let mut table = algorithm.build(routes, &mut *memory)?;
        self.lookup = table.publish();
        let before = self.writer.replace(Writer { algorithm, table });
        Ok(Built { took: start.elapsed(), before: before.map(|writer| writer.algorithm.name) })
    }
}

/// Changes a table in place; where that finds no room, in pieces, each of which gives back what it took before
/// the next one. An error leaves the pieces before it done.
fn change<A: Addr>(
    table: &mut dyn Table<A>,
    changes: &[Change<A>],
    waiting: &[(Prefix<A>, NextHopId)],
    routes: &dyn Routes<A>,
    grace: &mut dyn Grace,
) -> Result<(), UpdateError> {
    let whole = match waiting {
        [] => table.apply(changes, routes, grace),
        _ => {
            let waiting = Waiting::new(waiting.iter().copied());
            table.apply(changes, &waiting.before(routes, 0), grace)
        }
    };
    if whole != Err(UpdateError::Rebuild) || changes.len() <= PIECE {
        return whole;
    }
    let mut changes = changes.to_vec();
    changes.sort_unstable_by_key(|change| change.prefix);
    let olds = changes.iter().map(|change| (change.prefix, change.old));
    let waiting = Waiting::new(olds.chain(waiting.iter().copied()));
    let mut waited = Duration::ZERO;
    for piece in changes.chunks(PIECE) {
        let last = piece.last().map_or(Prefix::ALL, |change| change.prefix);
        table.apply(piece, &waiting.before(routes, waiting.through(last)), grace)?;
        let (epoch, start) = (grace.retire(), Instant::now());
        let longest = PIECE_GRACE.min(LONGEST_GRACE.saturating_sub(waited));
        while !grace.passed(epoch) && start.elapsed() < longest {
            std::hint::spin_loop();
        }
        waited += start.elapsed();
    }
    Ok(())
}

/// Lookup before the first build: no route.
pub(super) struct Nothing;

impl<A: Addr> Lookup<A> for Nothing {
    fn lookup(&self, _: A) -> NextHopId {
        NextHopId::NONE
    }
    fn lookup_batch(&self, addrs: &[A], out: &mut [NextHopId]) {
        out[..addrs.len()].fill(NextHopId::NONE);
    }
    fn explain(&self, _: A, _: &mut dyn FnMut(&Step)) -> NextHopId {
        NextHopId::NONE
    }
    fn stats(&self, _: &mut dyn FnMut(&'static str, u64)) {}
    fn regions(&self) -> &[Region] {
        &[]
    }
}
