//! A route table of a graph: changed by handlers on a control thread, read by workers in batches.
//!
//! Source: Click's `IPRouteTable`, the one interface of all its lookup elements. Every algorithm of the registry of
//! `fingerpost_lpm` has this one type; a class of elements is a name and a choice of algorithm. What a prefix leads to,
//! gateway and output, is a path with a small number, since structures hold numbers; paths are interned and never taken
//! back: there are no more than gateways times outputs.
//!
//! Cost: a change is one of the store and one of the structure; many at once are built anew, so a full table loads in
//! the time that reading it takes.

mod blocks;
pub mod gateways;
mod report;
#[cfg(test)]
mod tests;
mod text;

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use fingerpost_lpm::{
    Algorithm, LpmReader, LpmTable, NextHopId, Prefix, RouteStore, Rows, UpdateError,
};
use fingerpost_route::IpFamily;

use crate::frame::wire::{Ip4, Ip6};
use crate::language::{Around, Value};
use blocks::Blocks;
use gateways::{Gateways, TooMany};

pub(crate) use report::Test;
pub(crate) use text::{Removal, Route};

/// Addresses of a family: how they are written, and where packets have them.
pub(crate) trait Family: Rows + IpFamily {
    /// Reads a prefix, host bits cleared.
    fn prefix(text: &str) -> Result<Prefix<Self>, String>;
    /// Destination of the packet whose network header begins there.
    fn dst(frame: &[u8], at: usize) -> Option<Self>;
    /// Its source.
    fn src(frame: &[u8], at: usize) -> Option<Self>;
    /// Any address that may be looked up in a table, out of 64 random bits.
    fn key(random: u64) -> Self;
    /// The table as one of either family.
    fn any_table(table: Arc<RouteTable<Self>>) -> AnyTable;
}

/// A table of either family.
#[derive(Clone)]
pub(crate) enum AnyTable {
    V4(Arc<RouteTable<u32>>),
    V6(Arc<RouteTable<u128>>),
}

/// The route of an address, as text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FoundRoute {
    /// The longest prefix that holds the address.
    pub prefix: String,
    /// Its gateway, where it has one.
    pub gateway: Option<IpAddr>,
}

impl fmt::Debug for AnyTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V4(_) => "an IPv4 table",
            Self::V6(_) => "an IPv6 table",
        })
    }
}

impl AnyTable {
    /// The route of an address; `None` where there is none, or the table is of the other family.
    pub(crate) fn found(&self, addr: IpAddr) -> Option<FoundRoute> {
        match (self, addr) {
            (Self::V4(table), IpAddr::V4(addr)) => table.found(addr.to_bits()),
            (Self::V6(table), IpAddr::V6(addr)) => table.found(addr.to_bits()),
            _ => None,
        }
    }
}

impl Family for u32 {
    fn prefix(text: &str) -> Result<Prefix<Self>, String> {
        Around::read(text).map(|around| around.prefix)
    }
    #[inline]
    fn dst(frame: &[u8], at: usize) -> Option<Self> {
        Some(Ip4::at(frame, at)?.dst())
    }
    #[inline]
    fn src(frame: &[u8], at: usize) -> Option<Self> {
        Some(Ip4::at(frame, at)?.src())
    }
    #[allow(clippy::cast_possible_truncation, reason = "the upper half is as random")]
    fn key(random: u64) -> Self {
        (random >> 32) as Self
    }
    fn any_table(table: Arc<RouteTable<Self>>) -> AnyTable {
        AnyTable::V4(table)
    }
}

impl Family for u128 {
    fn prefix(text: &str) -> Result<Prefix<Self>, String> {
        Around::read(text).map(|around| around.prefix)
    }
    #[inline]
    fn dst(frame: &[u8], at: usize) -> Option<Self> {
        Some(Ip6::at(frame, at)?.dst())
    }
    #[inline]
    fn src(frame: &[u8], at: usize) -> Option<Self> {
        Some(Ip6::at(frame, at)?.src())
    }
    /// In 2000::/3, where addresses are given out.
    fn key(random: u64) -> Self {
        Self::from(random >> 3 | 1 << 61) << 64 | Self::from(random)
    }
    fn any_table(table: Arc<RouteTable<Self>>) -> AnyTable {
        AnyTable::V6(table)
    }
}

/// Where packets of a prefix go.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Path {
    /// Number of the gateway, or that of none.
    pub(crate) gateway: NextHopId,
    /// The output to leave by.
    pub(crate) output: u16,
    /// It is that of the default route. A number of its own marks where nothing longer covers an address, whatever
    /// other routes have the same path.
    pub(crate) default: bool,
}

/// Marks the path of the default route among [`Paths`].
const DEFAULT: u64 = 1 << 63;

/// A change of one prefix.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Change<A: Family> {
    /// Adds a route to a prefix that has none.
    Add(Route<A>),
    /// Sets the route of a prefix, whatever it was.
    Set(Route<A>),
    /// Removes a route.
    Remove(Removal<A>),
}

/// Why a table is not changed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum TableError {
    /// There is a route to the prefix; as text.
    #[error("conflict with existing route `{0}`")]
    Exists(String),
    /// There is none.
    #[error("no route to {0}")]
    Missing(String),
    /// The route to the prefix is another one; as text.
    #[error("the route is `{0}`")]
    Differs(String),
    /// The element has no such output.
    #[error("output {output} is not connected: there are {outputs}")]
    Output { output: u16, outputs: u32 },
    /// The algorithm does not take it.
    #[error("{0}")]
    Refused(UpdateError),
    /// Too many gateways.
    #[error(transparent)]
    Gateways(#[from] TooMany),
}

/// A route table.
pub(crate) struct RouteTable<A: Family> {
    class: &'static str,
    outputs: u32,
    gateways: Arc<Gateways>,
    paths: Paths,
    writer: Mutex<Writer<A>>,
}

/// Places of prefixes in a list; one that is free is taken by the next new prefix, as Click does.
#[derive(Default)]
struct Order<A: Family> {
    places: HashMap<Prefix<A>, usize>,
    free: BTreeSet<usize>,
}

impl<A: Family> Order<A> {
    fn add(&mut self, prefix: Prefix<A>) {
        if !self.places.contains_key(&prefix) {
            let place = self.free.pop_first().unwrap_or(self.places.len());
            self.places.insert(prefix, place);
        }
    }

    fn remove(&mut self, prefix: Prefix<A>) {
        if let Some(place) = self.places.remove(&prefix) {
            self.free.insert(place);
        }
    }
}

struct Writer<A: Family> {
    table: LpmTable<A>,
    /// Where routes are not listed by prefix.
    order: Option<Order<A>>,
    numbers: HashMap<Path, NextHopId>,
    version: u64,
    last: Duration,
    test: Test,
}

/// Paths by number, for workers.
#[derive(Default)]
struct Paths(Blocks<AtomicU64>);

impl Paths {
    fn set(&self, number: u32, path: Path) -> Result<(), TooMany> {
        let slot = self.0.make(number).ok_or(TooMany)?;
        // Relaxed: nobody has the number yet, and the table that gives it out publishes what was before.
        let default = if path.default { DEFAULT } else { 0 };
        slot.store(default | u64::from(path.gateway.0) << 16 | u64::from(path.output), Relaxed);
        Ok(())
    }

    #[inline]
    #[allow(clippy::cast_possible_truncation, reason = "they were put together of these")]
    fn get(&self, number: NextHopId) -> Option<Path> {
        if number.is_none() {
            return None;
        }
        let word = self.0.get(number.0)?.load(Relaxed);
        let (gateway, default) = (NextHopId((word >> 16) as u32), word & DEFAULT != 0);
        Some(Path { gateway, output: word as u16, default })
    }
}

impl<A: Family> RouteTable<A> {
    /// A table by the fittest of `rows`, by no other if it is a single one, with these routes, the later one
    /// where a prefix has several (those are reported by number); `outputs` is how many outputs the element has.
    ///
    /// # Errors
    /// Which of the routes cannot be had and why, or that the algorithm cannot hold them all.
    pub(crate) fn new(
        class: &'static str,
        rows: Vec<&'static Algorithm<A>>,
        outputs: u32,
        gateways: Arc<Gateways>,
        routes: &[Route<A>],
    ) -> Result<(Self, Vec<usize>), (Option<usize>, TableError)> {
        let begin = Instant::now();
        let (paths, mut numbers) = (Paths::default(), HashMap::new());
        let (mut store, mut twice) = (RouteStore::new(), Vec::new());
        let mut last: Option<(Route<A>, NextHopId)> = None;
        for (at, route) in routes.iter().enumerate() {
            // Most routes of a full table lead where the one before leads.
            let same = last
                .filter(|(last, _)| (last.gateway, last.output) == (route.gateway, route.output))
                .filter(|(last, _)| last.is_default() == route.is_default());
            let number = match same {
                Some((_, number)) => number,
                None => number_of(route, outputs, &gateways, &paths, &mut numbers)
                    .map_err(|error| (Some(at), error))?,
            };
            last = Some((*route, number));
            if store.insert(route.prefix, number).is_some() {
                twice.push(at);
            }
        }
        let table = LpmTable::build_with(rows, store)
            .map_err(|error| (None, TableError::Refused(error)))?;
        let (version, test) = (1, Test::default());
        let last = begin.elapsed();
        let writer = Mutex::new(Writer { table, order: None, numbers, version, last, test });
        Ok((Self { class, outputs, gateways, paths, writer }, twice))
    }

    /// Lists routes in the order in which they were added, from these on, and no longer by prefix.
    pub(crate) fn list_as_added(&self, routes: &[Route<A>]) {
        let mut order = Order::default();
        routes.iter().for_each(|route| order.add(route.prefix));
        self.writer().order = Some(order);
    }

    /// Reader for a worker.
    pub(crate) fn reader(&self) -> LpmReader<A> {
        self.writer().table.reader()
    }

    /// What a number that a reader gave stands for.
    #[inline]
    pub(crate) fn path(&self, number: NextHopId) -> Option<Path> {
        self.paths.get(number)
    }

    /// Gateways of the graph.
    pub(crate) fn gateways(&self) -> &Gateways {
        &self.gateways
    }

    /// Carries out all changes, in order, or none; the number of the state that they make.
    ///
    /// # Errors
    /// Which change cannot be carried out, where it is one of them, and why.
    pub(crate) fn apply(&self, changes: &[Change<A>]) -> Result<u64, (Option<usize>, TableError)> {
        let begin = Instant::now();
        let mut guard = self.writer();
        let writer = &mut *guard;
        let mut wanted = Vec::with_capacity(changes.len());
        let mut new: HashMap<Prefix<A>, NextHopId> = HashMap::new();
        for (at, change) in changes.iter().enumerate() {
            let prefix = change.prefix();
            let now = new.get(&prefix).copied().or_else(|| writer.table.get(prefix));
            let now = now.filter(|number| !number.is_none());
            let number =
                self.after(change, now, &mut writer.numbers).map_err(|error| (Some(at), error))?;
            // Further changes are judged by what these make.
            if changes.len() > 1 {
                new.insert(prefix, number);
            }
            wanted.push((prefix, number));
        }
        let refused = |error| (None, TableError::Refused(error));
        writer.table.apply(&wanted).map_err(refused)?;
        if let Some(order) = &mut writer.order {
            for &(prefix, number) in &wanted {
                if number.is_none() { order.remove(prefix) } else { order.add(prefix) }
            }
        }
        writer.version += 1;
        writer.last = begin.elapsed();
        Ok(writer.version)
    }

    /// What a prefix leads to after a change, where it led to `now` before.
    fn after(
        &self,
        change: &Change<A>,
        now: Option<NextHopId>,
        numbers: &mut HashMap<Path, NextHopId>,
    ) -> Result<NextHopId, TableError> {
        let route = match change {
            Change::Add(route) => match now {
                Some(now) => return Err(TableError::Exists(self.text(route.prefix, now))),
                None => route,
            },
            Change::Set(route) => route,
            Change::Remove(removal) => {
                let prefix = removal.prefix;
                let now = now.ok_or_else(|| TableError::Missing(prefix.to_string()))?;
                let is = self.route(prefix, now);
                let same = |output| is.output == output && is.gateway == removal.gateway;
                if removal.output.is_some_and(|output| !same(output)) {
                    return Err(TableError::Differs(is.to_string()));
                }
                return Ok(NextHopId::NONE);
            }
        };
        number_of(route, self.outputs, &self.gateways, &self.paths, numbers)
    }

    /// Removes all routes.
    ///
    /// # Errors
    /// No memory for an empty table.
    pub(crate) fn flush(&self) -> Result<(), TableError> {
        let begin = Instant::now();
        let mut writer = self.writer();
        let all: Vec<_> =
            writer.table.iter().map(|(prefix, _)| (prefix, NextHopId::NONE)).collect();
        writer.table.apply(&all).map_err(TableError::Refused)?;
        if let Some(order) = &mut writer.order {
            *order = Order::default();
        }
        writer.version += 1;
        writer.last = begin.elapsed();
        Ok(())
    }

    /// The route of exactly this prefix.
    #[cfg(test)]
    pub(crate) fn lookup_exact(&self, prefix: Prefix<A>) -> Option<Route<A>> {
        let number = self.writer().table.get(prefix)?;
        Some(self.route(prefix, number))
    }

    /// Path of an address.
    pub(crate) fn lookup(&self, addr: A) -> Option<Path> {
        self.path(self.writer().table.lookup(addr))
    }

    /// The route of an address, as text.
    fn found(&self, addr: A) -> Option<FoundRoute> {
        let (prefix, number) = self.writer().table.longest_match(addr)?;
        let path = self.path(number)?;
        Some(FoundRoute { prefix: prefix.to_string(), gateway: self.gateways.get(path.gateway) })
    }

    /// Every route, by address, then length, or in the order of the class.
    pub(crate) fn dump(&self) -> Vec<Route<A>> {
        let writer = self.writer();
        let routes = writer.table.iter();
        let mut all: Vec<_> = routes.map(|(prefix, &number)| self.route(prefix, number)).collect();
        if let Some(order) = &writer.order {
            all.sort_by_key(|route| order.places.get(&route.prefix).copied());
        }
        all
    }

    fn route(&self, prefix: Prefix<A>, number: NextHopId) -> Route<A> {
        let path = self.path(number).expect("tables hold numbers of paths");
        let gateway = self.gateways.get(path.gateway).and_then(A::from_ip);
        Route { prefix, gateway, output: path.output }
    }

    fn text(&self, prefix: Prefix<A>, number: NextHopId) -> String {
        self.route(prefix, number).to_string()
    }

    fn writer(&self) -> MutexGuard<'_, Writer<A>> {
        // A change is whole or not at all, whatever panicked beside it.
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<A: Family> Change<A> {
    fn prefix(&self) -> Prefix<A> {
        match self {
            Self::Add(route) | Self::Set(route) => route.prefix,
            Self::Remove(removal) => removal.prefix,
        }
    }
}

/// Number of a route's path, given now or before.
fn number_of<A: Family>(
    route: &Route<A>,
    outputs: u32,
    gateways: &Gateways,
    paths: &Paths,
    numbers: &mut HashMap<Path, NextHopId>,
) -> Result<NextHopId, TableError> {
    let Route { gateway, output, .. } = *route;
    if u32::from(output) >= outputs {
        return Err(TableError::Output { output, outputs });
    }
    let gateway = match gateway {
        None => NextHopId::NONE,
        Some(gateway) => gateways.number(gateway.to_ip())?,
    };
    let path = Path { gateway, output, default: route.is_default() };
    if let Some(&number) = numbers.get(&path) {
        return Ok(number);
    }
    let number = u32::try_from(numbers.len() + 1).map_err(|_| TooMany)?;
    paths.set(number, path)?;
    numbers.insert(path, NextHopId(number));
    Ok(NextHopId(number))
}
