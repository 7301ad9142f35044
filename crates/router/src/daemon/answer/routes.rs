//! `route show`: all routes, a piece at a time, of one moment.

use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use fingerpost_route::nexthop::{HopKey, NextHops};
use fingerpost_route::{
    AnyPrefix, MAIN_TABLE, RouteFound, RouteRow, SnapshotError, SnapshotId, Way,
};

use super::Daemon;
use super::lookup::RowMaker;
use crate::api::error::{ApiError, Code};
use crate::api::model::Route;
use crate::api::streams::RouteFilter;

/// Prefixes a piece: some 100 us of the daemon's thread.
const PIECE: usize = 512;

/// A list of routes under way. Given up half-way, it leaves its snapshots to be closed.
pub(crate) struct Listing {
    filter: Filter,
    table: u32,
    /// Those still to be read, the next one last.
    snapshots: Vec<SnapshotId>,
    /// Routes that may still be given.
    left: u64,
    /// Found at once, to be given first.
    ready: Vec<Route>,
    abandoned: Abandoned,
}

/// Snapshots that nobody reads any more.
pub(crate) type Abandoned = Arc<Mutex<Vec<SnapshotId>>>;

impl Drop for Listing {
    fn drop(&mut self) {
        let mut abandoned = self.abandoned.lock().expect("no panic while holding it");
        abandoned.append(&mut self.snapshots);
    }
}

/// What is wanted, with its names resolved.
struct Filter {
    source: Option<u16>,
    hop: Option<Hop>,
    best: bool,
}

enum Hop {
    Index(u32),
    Gateway(IpAddr),
}

impl Filter {
    fn holds(&self, hops: &NextHops, row: &RouteRow) -> bool {
        let by_hop = || match &self.hop {
            None => true,
            Some(Hop::Index(index)) => row.candidate.hop.0 == *index,
            Some(Hop::Gateway(gateway)) => {
                let over = |way: &Way| way.gateway == Some(*gateway);
                match hops.key(row.candidate.hop) {
                    Some(HopKey::Way(way)) => over(way),
                    Some(HopKey::Group(ways)) => ways.iter().any(over),
                    _ => false,
                }
            }
        };
        (!self.best || row.rank == 0)
            && self.source.is_none_or(|source| row.candidate.source == source)
            && by_hop()
    }
}

fn snapshot_failed(error: SnapshotError) -> ApiError {
    match error {
        SnapshotError::NoTable(_) => ApiError::at(Code::NotFound, "table", error),
        _ => ApiError::new(Code::Refused, error),
    }
}

/// A prefix that a request names.
pub(super) fn prefix(place: &str, text: &str) -> Result<AnyPrefix, ApiError> {
    AnyPrefix::parse(text).map_err(|error| {
        let words = format_args!("`{text}` is no prefix: {error}");
        ApiError::at(Code::BadRequest, place, words)
    })
}

impl Daemon {
    /// Begins a list: what it gives is what there is now.
    pub(crate) fn list_routes(&mut self, filter: &RouteFilter) -> Result<Listing, ApiError> {
        let parsed = |place: &str, text: &Option<String>| {
            text.as_deref().map(|text| prefix(place, text)).transpose()
        };
        let longer = parsed("longer", &filter.longer)?;
        let covering = parsed("covering", &filter.covering)?;
        let source = filter.source.as_deref().map(|name| self.source(name)).transpose()?;
        let hop = filter.nexthop.as_deref().map(|text| {
            let index = text.parse().map(Hop::Index).ok();
            index.or_else(|| text.parse().map(Hop::Gateway).ok()).ok_or_else(|| {
                let words = format_args!("`{text}` is neither an index nor a gateway");
                ApiError::at(Code::BadRequest, "nexthop", words)
            })
        });
        let hop = hop.transpose()?;
        let table = filter.table.unwrap_or(MAIN_TABLE);
        // The last one is read first.
        let families: &[u8] = match longer {
            _ if covering.is_some() => &[],
            Some(AnyPrefix::V4(_)) => &[4],
            Some(AnyPrefix::V6(_)) => &[6],
            None => &[6, 4],
        };
        let mut listing = Listing {
            filter: Filter { source, hop, best: filter.best },
            table,
            snapshots: Vec::new(),
            left: filter.limit.unwrap_or(u64::MAX),
            ready: Vec::new(),
            abandoned: self.abandoned.clone(),
        };
        for &family in families {
            let opened = self.control.open_snapshot(table, family, longer);
            listing.snapshots.push(opened.map_err(snapshot_failed)?);
        }
        if let Some(inner) = covering {
            listing.ready = self.covering(&listing.filter, table, inner)?;
            listing.ready.truncate(usize::try_from(listing.left).unwrap_or(usize::MAX));
        }
        Ok(listing)
    }

    /// The routes of the prefixes that cover `inner`, the shortest first: at most one a length.
    fn covering(
        &self,
        filter: &Filter,
        table: u32,
        inner: AnyPrefix,
    ) -> Result<Vec<Route>, ApiError> {
        if self.control.ribs(table).is_none() {
            return Err(snapshot_failed(SnapshotError::NoTable(table)));
        }
        let (maker, hops) = (RowMaker::new(self), self.control.next_hops());
        let mut routes = Vec::new();
        for RouteFound { prefix, candidates } in self.control.covering(table, inner) {
            for (rank, candidate) in candidates.into_iter().enumerate() {
                if filter.holds(hops, &RouteRow { prefix, candidate, rank }) {
                    routes.push(maker.route(hops, table, prefix, &candidate, rank == 0));
                }
            }
        }
        Ok(routes)
    }

    /// The next piece of a list, and the list while there is more of it.
    ///
    /// # Errors
    /// When more changed than is remembered for a slow reader.
    pub(crate) fn next_routes(
        &mut self,
        mut listing: Listing,
    ) -> Result<(Vec<Route>, Option<Listing>), ApiError> {
        let mut routes = std::mem::take(&mut listing.ready);
        let Some(&snapshot) = listing.snapshots.last() else { return Ok((routes, None)) };
        let maker = RowMaker::new(self);
        let (filter, table, left) = (&listing.filter, listing.table, &mut listing.left);
        let more = self.control.read_snapshot(snapshot, PIECE, &mut |hops, row| {
            if *left > 0 && filter.holds(hops, &row) {
                *left -= 1;
                let RouteRow { prefix, candidate, rank } = row;
                routes.push(maker.route(hops, table, prefix, &candidate, rank == 0));
            }
        });
        let more = more.map_err(snapshot_failed)?;
        if !more {
            // It closed itself.
            listing.snapshots.pop();
        }
        let done = listing.left == 0 || listing.snapshots.is_empty();
        Ok((routes, (!done).then_some(listing)))
    }

    /// Closes the snapshots of lists whose readers left.
    pub(crate) fn close_abandoned(&mut self) {
        let ids = std::mem::take(&mut *self.abandoned.lock().expect("no panic while holding it"));
        for id in ids {
            self.control.close_snapshot(id);
        }
    }
}
