//! Reading all routes of a table while they change: a consistent view, a piece at a time.
//!
//! A snapshot is a place in the order of prefixes and a number: what it gives is what the table held when
//! it was opened, however long the reading takes. Nothing is copied for it but what changes ahead of the
//! reader: the candidates that a prefix had before its first change since the opening.
//!
//! Cost:   nothing on opening; a change ahead of an open reader one entry of an ordered map, once a prefix
//! Limits: [`MOST_OPEN`] snapshots; [`MOST_BEFORE`] changed prefixes of one, [`MOST_IN_ALL`] of all: one that exceeds it is
//!         closed, of all the one with most

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Unbounded};

use fingerpost_lpm::{Addr, Prefix};

use super::objects::{HopView, Objects};
use super::tables::Tables;
use crate::event::AnyPrefix;
use crate::nexthop::NextHops;
use crate::rib::{Candidate, Rib};

/// Changed prefixes that a snapshot remembers: a reader slower than that many changes begins again.
const MOST_BEFORE: usize = if cfg!(test) { 1 << 8 } else { 1 << 20 };
/// Changed prefixes that all snapshots remember, some 200 MB: clients that read slowly cost no more together.
const MOST_IN_ALL: usize = 2 * MOST_BEFORE;
/// Changed prefixes of one snapshot until those of all are summed up.
const SUMMED_EVERY: usize = MOST_IN_ALL / 128;
/// Snapshots open at one time.
const MOST_OPEN: usize = 64;

/// Names an open snapshot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SnapshotId(u64);

/// A route of a snapshot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RouteRow {
    /// Where it leads.
    pub prefix: AnyPrefix,
    /// Source and next hop.
    pub candidate: Candidate,
    /// Its place among the candidates of the prefix; 0 is the best, which forwards.
    pub rank: usize,
}

/// Why a snapshot cannot be opened or read on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SnapshotError {
    /// There is no table of this number.
    #[error("there is no table {0}: a route or an interface makes one")]
    NoTable(u32),
    /// The limit of open snapshots is reached.
    #[error("{} readers go through the routes already: try again when one has finished", MOST_OPEN)]
    TooMany,
    /// More changed ahead of the reader than is remembered.
    #[error("more prefixes changed ahead of the reader than are remembered: begin again")]
    Outrun,
    /// It was closed, or never opened.
    #[error("there is no such snapshot")]
    Unknown,
}

/// One family of one table as it was.
struct View<A: Addr> {
    /// Given so far, in the order of prefixes; `None` for nothing yet.
    given: Option<Prefix<A>>,
    /// Nothing after it is wanted.
    last: Prefix<A>,
    /// What prefixes ahead had before they changed.
    before: BTreeMap<Prefix<A>, Vec<Candidate>>,
}

enum AnyView {
    V4(View<u32>),
    V6(View<u128>),
}

impl AnyView {
    /// Changed prefixes that are remembered.
    fn remembered(&self) -> usize {
        match self {
            Self::V4(view) => view.before.len(),
            Self::V6(view) => view.before.len(),
        }
    }

    fn forget(&mut self, hops: &mut NextHops) {
        match self {
            Self::V4(view) => view.forget(hops),
            Self::V6(view) => view.forget(hops),
        }
    }
}

struct Open {
    id: SnapshotId,
    table: u32,
    view: AnyView,
    outrun: bool,
}

impl Open {
    /// The reader is too slow: it gets an error, and nothing is remembered any more.
    fn outrun(&mut self, hops: &mut NextHops) {
        self.outrun = true;
        self.view.forget(hops);
    }
}

/// All open snapshots.
#[derive(Default)]
pub(super) struct Snapshots {
    open: Vec<Open>,
    last: u64,
}

impl<A: Addr> View<A> {
    fn new(within: Option<Prefix<A>>) -> Self {
        let within = within.unwrap_or(Prefix::ALL);
        let last = Prefix::host(within.last());
        // Just before `within`, which may be held itself. A shorter prefix begins at the same address
        // only where the last bit is not set.
        let given = within.len().checked_sub(1).map(|len| match within.addr().bit(len) {
            true => Prefix::host(within.addr().prev()),
            false => Prefix::masked(within.addr(), len),
        });
        Self { given, last, before: BTreeMap::new() }
    }

    fn ahead(&self, prefix: Prefix<A>) -> bool {
        self.given.is_none_or(|given| prefix > given) && prefix <= self.last
    }

    /// The prefix is about to change.
    fn save(&mut self, prefix: Prefix<A>, rib: &Rib<A>, hops: &mut NextHops) -> bool {
        if !self.ahead(prefix) || self.before.contains_key(&prefix) {
            return true;
        }
        if self.before.len() >= MOST_BEFORE {
            return false;
        }
        let candidates: Vec<Candidate> = rib.of(prefix).collect();
        for candidate in &candidates {
            hops.add_ref(candidate.hop);
        }
        self.before.insert(prefix, candidates);
        true
    }

    fn forget(&mut self, hops: &mut NextHops) {
        for candidate in std::mem::take(&mut self.before).into_values().flatten() {
            hops.release(candidate.hop);
        }
    }

    /// Gives the candidates of up to `most` prefixes; whether there may be more.
    fn read(
        &mut self,
        rib: &Rib<A>,
        most: usize,
        (hops, objects): (&mut NextHops, &Objects),
        any: fn(Prefix<A>) -> AnyPrefix,
        visit: &mut dyn FnMut(HopView<'_>, RouteRow),
    ) -> bool {
        let mut held = rib.prefixes_after(self.given).peekable();
        for _ in 0..most {
            let after = self.given.map_or(Unbounded, Excluded);
            let changed = self.before.range((after, Unbounded)).next().map(|(p, _)| *p);
            let next = match (held.peek().copied(), changed) {
                (Some(a), Some(b)) => a.min(b),
                (Some(a), None) | (None, Some(a)) => a,
                (None, None) => return false,
            };
            if next > self.last {
                return false;
            }
            if held.peek() == Some(&next) {
                held.next();
            }
            match self.before.remove(&next) {
                Some(candidates) => {
                    for (rank, candidate) in candidates.into_iter().enumerate() {
                        let row = RouteRow { prefix: any(next), candidate, rank };
                        visit(HopView::new(hops, objects), row);
                        hops.release(candidate.hop);
                    }
                }
                None => {
                    for (rank, candidate) in rib.of(next).enumerate() {
                        let row = RouteRow { prefix: any(next), candidate, rank };
                        visit(HopView::new(hops, objects), row);
                    }
                }
            }
            self.given = Some(next);
        }
        true
    }
}

impl Snapshots {
    /// Opens a view of one family (4 or 6) of a table, or of the prefixes that `within` covers.
    pub(super) fn open(
        &mut self,
        table: u32,
        family: u8,
        within: Option<AnyPrefix>,
        tables: &Tables,
    ) -> Result<SnapshotId, SnapshotError> {
        if tables.get(table).is_none() {
            return Err(SnapshotError::NoTable(table));
        }
        if self.open.len() >= MOST_OPEN {
            return Err(SnapshotError::TooMany);
        }
        let view = match (within, family) {
            (Some(AnyPrefix::V4(p)), _) => AnyView::V4(View::new(Some(p))),
            (Some(AnyPrefix::V6(p)), _) => AnyView::V6(View::new(Some(p))),
            (None, 4) => AnyView::V4(View::new(None)),
            (None, _) => AnyView::V6(View::new(None)),
        };
        self.last += 1;
        let id = SnapshotId(self.last);
        self.open.push(Open { id, table, view, outrun: false });
        Ok(id)
    }

    /// Visits the routes of up to `most` further prefixes; `false` when these were the last.
    pub(super) fn read(
        &mut self,
        id: SnapshotId,
        most: usize,
        (tables, hops, objects): (&Tables, &mut NextHops, &Objects),
        visit: &mut dyn FnMut(HopView<'_>, RouteRow),
    ) -> Result<bool, SnapshotError> {
        let open = self.open.iter_mut().find(|open| open.id == id);
        let open = open.ok_or(SnapshotError::Unknown)?;
        let table = tables.get(open.table).expect("tables stay");
        let named = (&mut *hops, objects);
        let more = match &mut open.view {
            _ if open.outrun => Err(SnapshotError::Outrun),
            AnyView::V4(view) => Ok(view.read(table.v4().rib(), most, named, AnyPrefix::V4, visit)),
            AnyView::V6(view) => Ok(view.read(table.v6().rib(), most, named, AnyPrefix::V6, visit)),
        };
        if more != Ok(true) {
            self.close(id, hops);
        }
        more
    }

    /// Closes a snapshot, if it is open.
    pub(super) fn close(&mut self, id: SnapshotId, hops: &mut NextHops) {
        let Some(at) = self.open.iter().position(|open| open.id == id) else { return };
        self.open.swap_remove(at).view.forget(hops);
    }

    /// Keeps the candidates of a prefix that is about to change, for the open snapshots ahead of it.
    pub(super) fn save(
        &mut self,
        number: u32,
        prefix: AnyPrefix,
        tables: &Tables,
        hops: &mut NextHops,
    ) {
        let mut grown = false;
        for open in self.open.iter_mut().filter(|open| open.table == number && !open.outrun) {
            let table = tables.get(number).expect("tables stay");
            let saved = match (&mut open.view, prefix) {
                (AnyView::V4(view), AnyPrefix::V4(p)) => view.save(p, table.v4().rib(), hops),
                (AnyView::V6(view), AnyPrefix::V6(p)) => view.save(p, table.v6().rib(), hops),
                _ => true,
            };
            if !saved {
                open.outrun(hops);
            }
            let remembered = open.view.remembered();
            grown |= remembered > 0 && remembered.is_multiple_of(SUMMED_EVERY);
        }
        if grown {
            self.bound(hops);
        }
    }

    /// Closes the snapshots that remember most, until all of them together remember no more than they may.
    fn bound(&mut self, hops: &mut NextHops) {
        while self.open.iter().map(|open| open.view.remembered()).sum::<usize>() > MOST_IN_ALL {
            let most = self.open.iter_mut().max_by_key(|open| open.view.remembered());
            most.expect("some remember something").outrun(hops);
        }
    }
}
