//! `route show`: all routes, a piece at a time, of one moment.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::net::IpAddr;

use fingerpost_lpm::NextHopId;
use fingerpost_route::nexthop::{AdjacencyKey, Exit, HopKey};
use fingerpost_route::source::words::unknown;
use fingerpost_route::{AnyPrefix, HopView, Path, RouteFound, RouteRow, SnapshotError, SnapshotId};
use tokio::sync::oneshot;

use super::lookup::RowMaker;
use super::{Daemon, View};
use crate::api::error::{ApiError, Code};
use crate::api::model::{self, Route};
use crate::api::session::Session;
use crate::api::streams::{RouteFilter, lines};

/// Prefixes a piece: some 100 us of the daemon's thread.
const PIECE: usize = 512;

/// Lists at one time of clients that may not change anything, each of two snapshots at most: there is room for others.
const MOST_OF_READERS: usize = 24;

/// A list of routes in progress.
pub(in crate::daemon) struct Listing {
    /// The user whose client it is for, if that may not change anything.
    reader: Option<u32>,
    /// Open for its client, which is notified when this is dropped; `None` once it has ended for a later one.
    open: Option<oneshot::Sender<()>>,
    filter: Filter,
    table: u32,
    /// Those still to be read, the next one last.
    snapshots: Vec<SnapshotId>,
    /// Routes that may still be given.
    left: u64,
    /// Found at once, to be given first.
    ready: Vec<Route>,
}

/// What is wanted, with its names resolved.
struct Filter {
    source: Option<u16>,
    hop: Option<Hop>,
    best: bool,
}

/// What routes are to lead over.
enum Hop {
    /// The next hop or group of this index.
    Index(u32),
    /// This next-hop object, or a group that has it as a member.
    Object(u32),
    Gateway(IpAddr),
    /// The link of this number.
    Link(u32),
}

impl Hop {
    /// Whether a next hop is, or leads over, what is wanted: by its paths, or by the present adjacencies.
    fn is_on(&self, id: NextHopId, view: HopView<'_>) -> bool {
        let any_path = |is: &dyn Fn(&Path) -> bool| match view.hops.key(id) {
            Some(&HopKey::Object { source, id }) => view
                .object(source, id)
                .is_some_and(|object| object.paths.iter().any(|path| is(&path.path))),
            _ => view.hops.paths(id).iter().any(is),
        };
        let any_exit = |is: &dyn Fn(AdjacencyKey) -> bool| {
            let mut exits = view.hops.exits(id);
            exits.any(|exit| matches!(exit, Exit::Adjacency(key) if is(key)))
        };
        match *self {
            Self::Index(index) => id.0 == index,
            Self::Object(wanted) => match view.hops.key(id) {
                Some(&HopKey::Object { source, id }) => {
                    let object = view.object(source, id);
                    id == wanted
                        || object.is_some_and(|o| o.paths.iter().any(|path| path.object == wanted))
                }
                _ => false,
            },
            Self::Gateway(addr) => {
                any_path(&|path| path.gateway == Some(addr))
                    || any_exit(&|key| key.neighbor == Some(addr))
            }
            Self::Link(link) => {
                any_path(&|path| path.link == Some(link)) || any_exit(&|key| key.link == link)
            }
        }
    }
}

/// A filter at work; good for one moment, since it remembers what it found out about next hops.
struct Sieve<'a> {
    filter: &'a Filter,
    known: HashMap<NextHopId, bool>,
}

impl<'a> Sieve<'a> {
    fn new(filter: &'a Filter) -> Self {
        Self { filter, known: HashMap::new() }
    }

    fn holds(&mut self, view: HopView<'_>, row: &RouteRow) -> bool {
        let Filter { source, hop, best } = self.filter;
        let id = row.candidate.hop;
        (!best || row.rank == 0)
            && source.is_none_or(|source| row.candidate.source == source)
            && hop
                .as_ref()
                .is_none_or(|hop| *self.known.entry(id).or_insert_with(|| hop.is_on(id, view)))
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
    pub(super) fn open_list(
        &mut self,
        filter: &RouteFilter,
        reader: Option<u32>,
        open: oneshot::Sender<()>,
    ) -> Result<Session, ApiError> {
        let parsed = |place: &str, text: &Option<String>| {
            text.as_deref().map(|text| prefix(place, text)).transpose()
        };
        let longer = parsed("longer", &filter.longer)?;
        let covering = parsed("covering", &filter.covering)?;
        let source = filter.source.as_deref().map(|name| self.view().source(name)).transpose()?;
        let hop = filter.nexthop.as_deref().map(|text| self.view().wanted_hop(text)).transpose()?;
        let table = model::table_or_main(filter.table);
        // The last one is read first.
        let families: &[u8] = match longer {
            _ if covering.is_some() => &[],
            Some(AnyPrefix::V4(_)) => &[4],
            Some(AnyPrefix::V6(_)) => &[6],
            None => &[6, 4],
        };
        if let Some(user) = reader
            && !families.is_empty()
        {
            if self.control.ribs(table).is_none() {
                return Err(snapshot_failed(SnapshotError::NoTable(table)));
            }
            self.make_room(user);
        }
        let mut listing = Listing {
            reader,
            open: Some(open),
            filter: Filter { source, hop, best: filter.best },
            table,
            snapshots: Vec::new(),
            left: filter.limit.unwrap_or(u64::MAX),
            ready: Vec::new(),
        };
        for &family in families {
            match self.control.open_snapshot(table, family, longer) {
                Ok(snapshot) => listing.snapshots.push(snapshot),
                Err(error) => {
                    self.close_list(listing);
                    return Err(snapshot_failed(error));
                }
            }
        }
        if let Some(inner) = covering {
            listing.ready = self.view().covering(&listing.filter, table, inner)?;
            listing.ready.truncate(usize::try_from(listing.left).unwrap_or(usize::MAX));
        }
        Ok(self.requests.lists.open(listing))
    }

    /// Ends a list of those who may only read for one of this user, where there are as many as there may be.
    fn make_room(&mut self, user: u32) {
        let lists = self.requests.lists.states_mut().filter(|list| !list.snapshots.is_empty());
        let mut reading: Vec<(u32, &mut Listing)> =
            lists.filter_map(|list| Some((list.reader?, list))).collect();
        if reading.len() < MOST_OF_READERS {
            return;
        }
        let users: Vec<u32> = reading.iter().map(|(user, _)| *user).collect();
        let Some(at) = gives_way(&users, user) else { return };
        let (_, list) = &mut reading[at];
        list.open = None;
        for snapshot in list.snapshots.drain(..) {
            self.control.close_snapshot(snapshot);
        }
    }
}

/// Which list ends for a new one of `newcomer`, of lists with these users, the oldest first: the oldest one of the user who
/// would have the most.
fn gives_way(users: &[u32], newcomer: u32) -> Option<usize> {
    let of = |user| users.iter().chain([&newcomer]).filter(|&&one| one == user).count();
    (0..users.len()).max_by_key(|&at| (of(users[at]), Reverse(at)))
}

impl View<'_> {
    /// What `--nexthop` means: a number is an index, an address a gateway, any other word an interface, as none of
    /// these has a colon in the place of `object:` and `dev:`.
    fn wanted_hop(&self, text: &str) -> Result<Hop, ApiError> {
        let text = text.trim();
        if let Ok(addr) = text.parse() {
            return Ok(Hop::Gateway(addr));
        }
        if let Ok(index) = text.parse() {
            return Ok(Hop::Index(index));
        }
        let bad = |words: String| ApiError::at(Code::BadRequest, "nexthop", words);
        match text.split_once([':', ' ']) {
            Some(("object", id)) => {
                let id = id.trim().parse();
                id.map(Hop::Object).map_err(|_| bad(format!("`{text}`: object:ID, a number")))
            }
            Some(("dev", name)) => self.link_of(name.trim()).map(Hop::Link),
            _ => self.link_of(text).map(Hop::Link).map_err(|_| {
                let names = self.control.links().map(|(_, _, state)| state.name.as_str());
                let interface = unknown("interface", text, names);
                bad(format!("`{text}` is no gateway, no index and no object:ID; {interface}"))
            }),
        }
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
        let (mut maker, view) = (RowMaker::new(*self), self.control.hop_view());
        let (mut routes, mut sieve) = (Vec::new(), Sieve::new(filter));
        for RouteFound { prefix, candidates } in self.control.covering(table, inner) {
            for (rank, candidate) in candidates.into_iter().enumerate() {
                if sieve.holds(view, &RouteRow { prefix, candidate, rank }) {
                    routes.push(maker.route(view, table, prefix, &candidate, rank == 0));
                }
            }
        }
        Ok(routes)
    }
}

impl Daemon {
    /// Next piece of a list as JSON lines, and whether there are more.
    ///
    /// # Errors
    /// When more changed than is remembered for a slow reader.
    pub(super) fn next_of_list(&mut self, number: u64) -> Result<(Vec<u8>, bool), ApiError> {
        let Some(mut list) = self.requests.lists.take(number) else {
            return Ok((Vec::new(), false));
        };
        if list.open.is_none() {
            let words = format!(
                "there are {MOST_OF_READERS} other lists of those who may only read: try again, and read faster"
            );
            return Err(ApiError::new(Code::Refused, words));
        }
        let mut text = lines(&std::mem::take(&mut list.ready));
        let Some(&snapshot) = list.snapshots.last() else { return Ok((text, false)) };
        let (mut maker, mut sieve) = (RowMaker::new(self.view()), Sieve::new(&list.filter));
        let (table, left) = (list.table, &mut list.left);
        let more = self.control.read_snapshot(snapshot, PIECE, &mut |view, row| {
            if *left > 0 && sieve.holds(view, &row) {
                *left -= 1;
                maker.line(view, table, &row, &mut text);
            }
        });
        match more {
            Ok(true) => {}
            // It closed itself.
            Ok(false) => drop(list.snapshots.pop()),
            Err(error) => {
                self.close_list(list);
                return Err(snapshot_failed(error));
            }
        }
        if list.left == 0 || list.snapshots.is_empty() {
            self.close_list(list);
            return Ok((text, false));
        }
        self.requests.lists.put(number, list);
        Ok((text, true))
    }

    /// Closes the snapshots of a list.
    pub(super) fn close_list(&mut self, list: Listing) {
        for snapshot in list.snapshots {
            self.control.close_snapshot(snapshot);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_user_with_most_lists_gives_way() {
        assert_eq!(gives_way(&[], 1), None);
        assert_eq!(gives_way(&[1, 2, 2, 3], 4), Some(1), "the oldest of user 2");
        assert_eq!(gives_way(&[1, 2, 2, 3], 2), Some(1));
        // With the new one, users 1 and 2 have as many: that of the oldest list.
        assert_eq!(gives_way(&[1, 2, 1, 2, 2, 3], 1), Some(0));
        assert_eq!(gives_way(&[2, 1, 1, 3], 2), Some(0));
        assert_eq!(gives_way(&[3, 2, 1], 4), Some(0), "all have one");
    }
}
