//! The address space as a picture: the best routes within a prefix, summed up in the cells of a square.
//!
//! A square of order n has 4^n cells, one for each prefix that is 2n bits longer than its own, in the order of addresses; the
//! page draws them along a Hilbert curve. The daemon's thread only copies routes, some thousand at a time, and names those that
//! changed since; sums are made here. A square that is looked at is kept, and shared by all who look at it, so that it follows
//! changes by reading the cells that they are in: a change costs the routes of its cell, and a look at a full table the cells
//! that changed since the last one.
//!
//! ```text
//! response: version u64, is it whole u32, order u32, routes u64, then cells; all little-endian
//! whole:    of each cell    longest u8, covering u8, routes u16, next hop u32
//! else:     of some cells   index u32, and the same
//! ```

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use axum::Extension;
use axum::extract::State;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use fingerpost_route::AnyPrefix;
use serde::Deserialize;
use utoipa::IntoParams;

use super::backend::Requests;
#[cfg(test)]
use super::error::ErrorDocument;
use super::error::{ApiError, Code};
use super::extract::Parameters;
use super::model::table_or_main;

/// Largest order: 65,536 cells, 512 KiB.
const LARGEST_ORDER: u8 = 8;
/// Most squares that are kept: another one takes the place of the one that was wanted longest ago. And the time after which an
/// unused one is dropped.
const MOST_KEPT: usize = 8;
const KEPT: Duration = Duration::from_secs(30);
/// Longest wait for a place while all squares are being read, and the time between two looks.
const LONGEST_WAIT: Duration = Duration::from_secs(5);
const WHILE_READ: Duration = Duration::from_millis(20);
/// Most prefixes that are read one by one; beyond, the whole square is.
const MOST_EXACT: usize = 4096;
/// Time in which all who look at a square get the same.
const FRESH: Duration = Duration::from_millis(200);
/// Length in place of a prefix that is not there.
const NO_PREFIX: u8 = 255;
const OCTETS: &str = "application/octet-stream";

/// A prefix of either family: its address from the left of 128 bits, and its length.
pub(crate) type MapPrefix = (u128, u8);

/// A best route: its prefix, and the index of its next hop or group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MapRoute {
    pub(crate) prefix: MapPrefix,
    pub(crate) hop: u32,
}

/// Prefixes in their order, after one and as long as their addresses are at most the last one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MapRange {
    /// The prefix before the first one of the range; `None` for one that begins with all addresses.
    pub(crate) after: Option<MapPrefix>,
    pub(crate) last: u128,
}

/// Ranges and prefixes to read.
#[derive(Clone, Debug, Default)]
pub(crate) struct MapRead {
    pub(crate) table: u32,
    pub(crate) family: u8,
    /// Ranges whose routes are wanted, the next one last.
    pub(crate) ranges: Vec<MapRange>,
    /// Prefixes whose own routes are wanted.
    pub(crate) exact: Vec<MapPrefix>,
}

/// Result of a [`MapRead`].
#[derive(Debug, Default)]
pub(crate) struct MapFound {
    /// Routes of the ranges that were read, in their order.
    pub(crate) routes: Vec<MapRoute>,
    /// Ranges that are left, the next one last.
    pub(crate) ranges: Vec<MapRange>,
    /// Next hop of each single prefix; 0 where it has no route.
    pub(crate) exact: Vec<u32>,
}

/// Changes of best routes.
#[derive(Debug)]
pub(crate) struct MapChanges {
    /// Prefixes whose best route is another one; `None` where they are not known any more.
    pub(crate) prefixes: Option<Vec<MapPrefix>>,
    /// Number of the latest notice.
    pub(crate) sequence: u64,
}

/// Parameters of `/v1/map`.
#[derive(Clone, Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct MapQuery {
    /// Prefix of the square.
    prefix: String,
    /// Order of the square, 1 to 8: it has 4 to the power of it cells.
    order: u8,
    /// Route table, by number; the main one by default.
    table: Option<u32>,
    /// Version of an earlier response: the response has only the cells that changed since, where they are known.
    since: Option<u64>,
}

/// Square of prefixes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Square {
    table: u32,
    family: u8,
    prefix: MapPrefix,
    order: u8,
}

impl Square {
    fn of(query: &MapQuery) -> Result<Self, ApiError> {
        let bad = |place, words: String| ApiError::at(Code::BadRequest, place, words);
        let parsed = AnyPrefix::parse(&query.prefix);
        let parsed = parsed
            .map_err(|error| bad("prefix", format!("`{}` is no prefix: {error}", query.prefix)))?;
        let (family, addr, len, bits) = match parsed {
            AnyPrefix::V4(prefix) => (4, u128::from(prefix.addr()) << 96, prefix.len(), 32),
            AnyPrefix::V6(prefix) => (6, prefix.addr(), prefix.len(), 128),
        };
        if !(1..=LARGEST_ORDER.min((bits - len) / 2)).contains(&query.order) {
            let words =
                format!("1 to {LARGEST_ORDER}, and cells are prefixes of at most {bits} bits");
            return Err(bad("order", words));
        }
        let table = table_or_main(query.table);
        Ok(Self { table, family, prefix: (addr, len), order: query.order })
    }

    /// Length of the prefix of a cell.
    fn cell_len(&self) -> u8 {
        self.prefix.1 + 2 * self.order
    }

    fn cells(&self) -> usize {
        1 << (2 * self.order)
    }

    /// Cell that an address of the square is in.
    fn cell(&self, addr: u128) -> usize {
        let offset = (addr & !mask(self.prefix.1)) >> (128 - u32::from(self.cell_len()));
        usize::try_from(offset).expect("at most 16 bits")
    }

    fn holds(&self, addr: u128) -> bool {
        addr & mask(self.prefix.1) == self.prefix.0
    }

    /// Prefix of a cell.
    fn of_cell(&self, cell: usize) -> MapPrefix {
        (self.prefix.0 | (cell as u128) << (128 - u32::from(self.cell_len())), self.cell_len())
    }

    /// The square and all prefixes that cover it.
    fn covering(&self) -> Vec<MapPrefix> {
        (0..=self.prefix.1).map(|len| (self.prefix.0 & mask(len), len)).collect()
    }

    fn read(&self, ranges: Vec<MapRange>, exact: Vec<MapPrefix>) -> MapRead {
        MapRead { table: self.table, family: self.family, ranges, exact }
    }
}

fn mask(len: u8) -> u128 {
    if len == 0 { 0 } else { u128::MAX << (128 - u32::from(len)) }
}

/// All prefixes within `prefix`, itself included.
fn within((addr, len): MapPrefix) -> MapRange {
    // Before it in the order: the shorter prefix that begins at its address, or an address before.
    let after = len.checked_sub(1).map(|shorter| match addr & !mask(shorter) {
        0 => (addr, shorter),
        _ => (addr - 1, 128),
    });
    MapRange { after, last: addr | !mask(len) }
}

/// Sums of the routes of a cell: those of prefixes that are within it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sums {
    longest: u8,
    routes: u32,
    /// Next hop of the majority of its routes, where there is one, by the votes of Boyer and Moore.
    hop: u32,
    votes: u32,
}

impl Sums {
    fn add(&mut self, len: u8, hop: u32) {
        self.longest = self.longest.max(len);
        self.routes += 1;
        match self.votes {
            0 => (self.hop, self.votes) = (hop, 1),
            _ if self.hop == hop => self.votes += 1,
            _ => self.votes -= 1,
        }
    }
}

/// A cell as it is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cell {
    longest: u8,
    covering: u8,
    routes: u16,
    hop: u32,
}

impl Cell {
    const EMPTY: Self = Self { longest: NO_PREFIX, covering: NO_PREFIX, routes: 0, hop: 0 };

    fn put(self, to: &mut Vec<u8>) {
        to.extend([self.longest, self.covering]);
        to.extend(self.routes.to_le_bytes());
        to.extend(self.hop.to_le_bytes());
    }
}

/// A square that is kept.
struct Picture {
    square: Square,
    sums: Vec<Sums>,
    /// Routes that cover more than a cell, by their prefix: those around the square as well.
    short: BTreeMap<MapPrefix, u32>,
    /// Cells as they were sent, and the version of each.
    cells: Vec<(Cell, u64)>,
    /// Latest version, which grows, also from one run of the daemon to the next; and the version of the first reading.
    version: u64,
    first: u64,
    /// Notice up to which it is read; `None` before it is.
    sequence: Option<u64>,
    read: Option<Instant>,
}

impl Picture {
    fn new(square: Square) -> Self {
        let cells = square.cells();
        Self {
            square,
            sums: vec![Sums::default(); cells],
            short: BTreeMap::new(),
            cells: vec![(Cell::EMPTY, 0); cells],
            version: 0,
            first: 0,
            sequence: None,
            read: None,
        }
    }

    /// Reads what changed; all of it where that is not known.
    async fn follow(&mut self, requests: &Requests) -> Result<(), ApiError> {
        if self.read.is_some_and(|read| read.elapsed() < FRESH) {
            return Ok(());
        }
        let (square, since) = (self.square, self.sequence);
        let (table, family) = (square.table, square.family);
        let changes = requests.call(move |b| b.map_changes(table, family, since)).await?;
        match changes.prefixes {
            Some(prefixes) if prefixes.is_empty() => {}
            Some(prefixes) => self.read_changes(requests, &prefixes).await?,
            None => self.read_whole(requests).await?,
        }
        (self.sequence, self.read) = (Some(changes.sequence), Some(Instant::now()));
        Ok(())
    }

    async fn read_whole(&mut self, requests: &Requests) -> Result<(), ApiError> {
        let square = self.square;
        self.sequence = None;
        self.sums.fill(Sums::default());
        self.short.clear();
        let range = within(square.prefix);
        self.read_all(requests, square.read(vec![range], square.covering())).await?;
        self.draw();
        Ok(())
    }

    async fn read_changes(
        &mut self,
        requests: &Requests,
        prefixes: &[MapPrefix],
    ) -> Result<(), ApiError> {
        let square = self.square;
        let (mut dirty, mut exact) = (vec![false; square.cells()], Vec::new());
        for &(addr, len) in prefixes {
            if len >= square.cell_len() && square.holds(addr) {
                dirty[square.cell(addr)] = true;
            } else if square.holds(addr) || square.prefix.0 & mask(len) == addr {
                exact.push((addr, len));
            }
        }
        exact.sort_unstable();
        exact.dedup();
        if exact.len() > MOST_EXACT {
            return self.read_whole(requests).await;
        }
        let dirty: Vec<usize> = (0..square.cells()).filter(|&cell| dirty[cell]).collect();
        if dirty.is_empty() && exact.is_empty() {
            return Ok(());
        }
        // What is read halfway is read again as a whole.
        self.sequence = None;
        dirty.iter().for_each(|&cell| self.sums[cell] = Sums::default());
        let ranges = dirty.iter().rev().map(|&cell| within(square.of_cell(cell))).collect();
        self.read_all(requests, square.read(ranges, exact)).await?;
        self.draw();
        Ok(())
    }

    async fn read_all(&mut self, requests: &Requests, mut read: MapRead) -> Result<(), ApiError> {
        loop {
            let exact = read.exact.clone();
            let found = requests.call(move |backend| backend.map_routes(read)).await??;
            for (prefix, hop) in exact.into_iter().zip(found.exact) {
                match hop {
                    0 => self.short.remove(&prefix),
                    hop => self.short.insert(prefix, hop),
                };
            }
            for MapRoute { prefix: (addr, len), hop } in found.routes {
                if len < self.square.cell_len() {
                    self.short.insert((addr, len), hop);
                } else {
                    let cell = self.square.cell(addr);
                    self.sums[cell].add(len, hop);
                }
            }
            if found.ranges.is_empty() {
                return Ok(());
            }
            read = self.square.read(found.ranges, Vec::new());
        }
    }

    /// Cells of the sums, with a new version where they are others than before.
    fn draw(&mut self) {
        let square = self.square;
        let mut covering = vec![(NO_PREFIX, 0); square.cells()];
        // Longer ones lie above shorter ones.
        let mut short: Vec<(&MapPrefix, &u32)> = self.short.iter().collect();
        short.sort_by_key(|((_, len), _)| *len);
        for (&(addr, len), &hop) in short {
            let first = if len <= square.prefix.1 { 0 } else { square.cell(addr) };
            let count = square.cells() >> len.saturating_sub(square.prefix.1).min(2 * square.order);
            covering[first..first + count].fill((len, hop));
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now = u64::try_from(now.as_micros()).unwrap_or(u64::MAX);
        self.version = now.max(self.version + 1);
        if self.first == 0 {
            self.first = self.version;
        }
        for ((cell, version), (sums, (len, hop))) in
            self.cells.iter_mut().zip(self.sums.iter().zip(covering))
        {
            let now = Cell {
                longest: if sums.routes > 0 { sums.longest } else { NO_PREFIX },
                covering: len,
                routes: u16::try_from(sums.routes).unwrap_or(u16::MAX),
                hop: if sums.routes > 0 { sums.hop } else { hop },
            };
            if *cell != now {
                (*cell, *version) = (now, self.version);
            }
        }
    }

    /// Response for a client that has the cells of version `since`.
    fn response(&self, since: Option<u64>) -> Vec<u8> {
        let since = since.filter(|since| (self.first..=self.version).contains(since));
        let whole = u32::from(since.is_none());
        let inside = self.short.keys().filter(|(_, len)| *len >= self.square.prefix.1).count();
        let routes = self.sums.iter().map(|sums| u64::from(sums.routes)).sum::<u64>();
        let mut bytes = Vec::new();
        bytes.extend(self.version.to_le_bytes());
        bytes.extend(whole.to_le_bytes());
        bytes.extend(u32::from(self.square.order).to_le_bytes());
        bytes.extend((routes + inside as u64).to_le_bytes());
        for (number, (cell, version)) in (0_u32..).zip(&self.cells) {
            match since {
                None => cell.put(&mut bytes),
                Some(since) if *version > since => {
                    bytes.extend(number.to_le_bytes());
                    cell.put(&mut bytes);
                }
                Some(_) => {}
            }
        }
        bytes
    }
}

/// A picture, and when it was last wanted.
struct Kept {
    picture: Arc<tokio::sync::Mutex<Picture>>,
    wanted: Instant,
}

/// Squares that are looked at.
#[derive(Clone, Default)]
pub(super) struct Maps(Arc<Mutex<HashMap<Square, Kept>>>);

impl Maps {
    /// The picture of a square.
    ///
    /// # Errors
    /// When all others are being read for long.
    async fn picture(&self, square: Square) -> Result<Arc<tokio::sync::Mutex<Picture>>, ApiError> {
        let begun = Instant::now();
        loop {
            if let Some(picture) = self.place(square) {
                return Ok(picture);
            }
            if begun.elapsed() > LONGEST_WAIT {
                let words = format!("{MOST_KEPT} other prefixes are being read: try again later");
                return Err(ApiError::new(Code::Busy, words));
            }
            tokio::time::sleep(WHILE_READ).await;
        }
    }

    /// The picture of a square, in the place of the one that was wanted longest ago where there is no other; `None` where all are
    /// being read: they are large, so nobody holds more of them.
    fn place(&self, square: Square) -> Option<Arc<tokio::sync::Mutex<Picture>>> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !kept.contains_key(&square) && kept.len() >= MOST_KEPT {
            let unused = kept.iter().filter(|(_, kept)| Arc::strong_count(&kept.picture) == 1);
            let oldest = unused.min_by_key(|(_, kept)| kept.wanted).map(|(&square, _)| square)?;
            kept.remove(&oldest);
        }
        if kept.is_empty() {
            tokio::spawn(self.clone().clean());
        }
        let wanted = Instant::now();
        let new = || Arc::new(tokio::sync::Mutex::new(Picture::new(square)));
        let entry = kept.entry(square).or_insert_with(|| Kept { picture: new(), wanted });
        entry.wanted = wanted;
        Some(entry.picture.clone())
    }

    /// Forgets squares that nobody looks at any more, until none is left.
    async fn clean(self) {
        loop {
            tokio::time::sleep(KEPT).await;
            let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            kept.retain(|_, kept| kept.wanted.elapsed() < KEPT);
            if kept.is_empty() {
                return;
            }
        }
    }
}

/// Best routes within a prefix, summed up in cells: the longest prefix in each, the longest prefix that covers it, the number
/// of routes within it, and the next hop of more than half of them, or of one of them where there is no such. Little-endian bytes: the version (8), whether all cells follow (4), the
/// order (4), the number of routes (8), then cells in the order of addresses: longest (1; 255: none), covering (1; 255: none),
/// routes (2; 65535: that many or more), next hop (4); with `since`, each cell with its index (4) before it.
#[cfg_attr(test, utoipa::path(get, path = "/v1/map", params(MapQuery), responses(
    (status = 200, body = Vec<u8>, content_type = OCTETS), (status = "default", body = ErrorDocument))))]
pub(super) async fn map(
    State(requests): State<Requests>,
    Extension(maps): Extension<Maps>,
    Parameters(query): Parameters<MapQuery>,
) -> Result<Response, ApiError> {
    let picture = maps.picture(Square::of(&query)?).await?;
    let mut picture = picture.lock().await;
    picture.follow(&requests).await?;
    let bytes = picture.response(query.since);
    Ok(([(CONTENT_TYPE, OCTETS), (CACHE_CONTROL, "no-store")], bytes).into_response())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn square(prefix: &str, order: u8) -> Result<Square, ApiError> {
        Square::of(&MapQuery { prefix: prefix.to_owned(), order, table: None, since: None })
    }

    fn v4(addr: [u8; 4], len: u8) -> MapPrefix {
        (u128::from(u32::from_be_bytes(addr)) << 96, len)
    }

    #[test]
    fn squares_have_cells_in_the_order_of_addresses() {
        let all = square("0.0.0.0/0", 8).unwrap();
        assert_eq!((all.cells(), all.cell_len()), (65_536, 16));
        assert_eq!(all.cell(v4([10, 1, 2, 3], 32).0), 0x0A01);
        assert_eq!(all.of_cell(0x0A01), v4([10, 1, 0, 0], 16));
        let part = square("10.0.0.0/8", 4).unwrap();
        assert_eq!((part.cell(v4([10, 255, 0, 0], 16).0), part.covering().len()), (255, 9));
        assert!(!part.holds(v4([11, 0, 0, 0], 8).0));
        let v6 = square("2000::/3", 8).unwrap();
        assert_eq!((v6.family, v6.cell(0x3fff_u128 << 112)), (6, 65_528));
        for (prefix, order, place) in [
            ("10.0.0.1/8", 4, "prefix"),
            ("10.0.0.0", 4, "order"),
            ("10.0.0.0/+8", 4, "prefix"),
            ("10.0.0.0/33", 4, "prefix"),
            ("10.0.0.0/24", 5, "order"),
            ("0.0.0.0/0", 9, "order"),
            ("0.0.0.0/0", 0, "order"),
        ] {
            assert_eq!(
                square(prefix, order).unwrap_err().place.as_deref(),
                Some(place),
                "{prefix}"
            );
        }
    }

    #[test]
    fn a_range_begins_just_before_its_prefix() {
        let range = |prefix| within(prefix).after;
        assert_eq!(range(v4([0, 0, 0, 0], 0)), None);
        assert_eq!(range(v4([10, 0, 0, 0], 8)), Some(v4([10, 0, 0, 0], 7)));
        assert_eq!(range(v4([11, 0, 0, 0], 8)), Some((v4([11, 0, 0, 0], 8).0 - 1, 128)));
    }

    #[test]
    fn cells_are_sums_and_covers_and_versions_name_those_that_changed() {
        let mut picture = Picture::new(square("10.0.0.0/8", 1).unwrap());
        picture.short.extend([(v4([0, 0, 0, 0], 0), 1), (v4([10, 128, 0, 0], 9), 2)]);
        for (len, hop) in [(16, 7), (24, 8), (24, 8)] {
            picture.sums[1].add(len, hop);
        }
        picture.draw();
        let cell = |longest, covering, routes, hop| Cell { longest, covering, routes, hop };
        let cells: Vec<Cell> = picture.cells.iter().map(|(cell, _)| *cell).collect();
        let none = NO_PREFIX;
        let third = cell(none, 9, 0, 2);
        assert_eq!(cells, [cell(none, 0, 0, 1), cell(24, 0, 3, 8), third, third]);
        let whole = picture.response(None);
        assert_eq!((whole.len(), &whole[8..12], whole[16]), (24 + 4 * 8, &[1, 0, 0, 0][..], 4));
        let first = picture.version;
        assert_eq!(picture.response(Some(first)).len(), 24);
        picture.sums[3].add(12, 9);
        picture.draw();
        let delta = picture.response(Some(first));
        assert_eq!((delta.len(), &delta[24..28], delta[28]), (24 + 12, &[3, 0, 0, 0][..], 12));
        for unknown in [first - 1, picture.version + 1] {
            assert_eq!(picture.response(Some(unknown)).len(), whole.len());
        }
    }

    #[test]
    fn another_square_takes_the_place_of_the_one_wanted_longest_ago() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let maps = Maps::default();
            let of = |at: usize| square(&format!("{at}.0.0.0/8"), 1).unwrap();
            let is_kept = |at| maps.0.lock().unwrap().contains_key(&of(at));
            for at in 0..MOST_KEPT {
                assert!(maps.place(of(at)).is_some());
            }
            // All are wanted just now, the first one last.
            assert!(maps.place(of(0)).is_some());
            assert!(maps.picture(of(MOST_KEPT)).await.is_ok());
            assert!(is_kept(0) && !is_kept(1) && is_kept(2) && is_kept(MOST_KEPT));
            // One that is being read stays.
            let read = maps.place(of(2));
            assert!(maps.place(of(1)).is_some());
            assert!(is_kept(2) && !is_kept(3));
            drop(read);
            let squares: Vec<Square> = maps.0.lock().unwrap().keys().copied().collect();
            let all: Vec<_> = squares.into_iter().map(|square| maps.place(square)).collect();
            assert!(all.iter().all(Option::is_some) && maps.place(of(20)).is_none());
        });
    }
}
