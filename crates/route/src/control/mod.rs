//! The control side as a whole: events of all sources in, one published [`Forwarding`] out.
//!
//! It is plain data without I/O, threads or clocks: the daemon feeds it, calls [`Control::commit`] when
//! a burst of events is in, and carries out what it asks for ([`Control::take_requests`]).
//!
//! The way of a route: event -> candidate in the RIB ([`crate::rib`]) with an interned next hop
//! ([`crate::nexthop`]) -> when it is the best, a pending change -> at commit the FIB of its family
//! ([`crate::fib`]) -> readers. Links, addresses and neighbors change ports and adjacencies on the side,
//! without touching a route.

use std::collections::{BTreeMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fingerpost_lpm::{Addr, Algorithm, Grace, NextHopId, Prefix, Routes, UpdateError};

use crate::event::{
    AddressUpdate, AnyPrefix, LinkState, MAIN_TABLE, NeighborState, ObjectTarget, RouteEvent,
    RouteKey, RouteUpdate, Target, Way,
};
use crate::fib::{
    Backlog, Brought, Fib, FibOptionError, FibOptions, FibReport, Publisher, Reader, Subscribe,
};
use crate::forwarding::{Forwarding, PortTable};
use crate::hops::Leg;
use crate::nexthop::{HopKey, NextHops};
use crate::rib::{Candidate, Rib};

mod links;
mod neighbors;
mod world;

pub use neighbors::NeighborRequest;

use links::Link;
use neighbors::Neighbors;
use world::{Objects, World};

/// Room of the tables behind a next hop: a few hundred next hops are usual, some thousand happen, and
/// growing costs a grace period. 512 KiB, 256 KiB and 256 KiB.
const HOPS: usize = 65_536;
const SLOTS: usize = 65_536;
const ADJACENCIES: usize = 16_384;
/// Ids that are not reused because a table is behind wait for so long before all tables are made to
/// catch up together: each alone may be ahead at another time.
const LONGEST_HOLD: Duration = Duration::from_secs(1);
/// A worker that does not pin for this long is not forwarding: do not wait for it.
const LONGEST_GRACE: Duration = Duration::from_millis(200);
/// Sources of our own: the host's addresses, and learned neighbors as host routes.
const HOST: u16 = 0;
const NEIGHBOR: u16 = 1;
const FIRST_SOURCE: u16 = 2;
/// Learned neighbors yield to every real route.
const NEIGHBOR_DISTANCE: u8 = 254;

/// One family: its routes and its lookup table.
struct Family<A: Addr> {
    rib: Rib<A>,
    fib: Fib<A>,
    /// Prefixes whose best route changed since the last commit, with what it was then or later.
    pending: Backlog<A>,
}

/// A source of routes as the control side knows it.
#[derive(Debug)]
struct Source {
    name: String,
    distance: u8,
    /// Counts dumps, so that what a dump does not say again can be found.
    stamp: u8,
    /// What the present dump said so far of links, addresses, neighbors and objects.
    dump: Option<Seen>,
    routes: u64,
    refused: u64,
    last_refusal: String,
}

#[derive(Debug, Default)]
struct Seen {
    links: HashSet<u32>,
    addresses: HashSet<(u32, IpAddr)>,
    neighbors: HashSet<(u32, IpAddr)>,
    objects: HashSet<u32>,
}

/// Number of a source, as [`Control::add_source`] gave it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SourceId(u16);

/// What a commit did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Committed {
    /// Changed best routes that became visible.
    pub changes: usize,
    /// Changed best routes that readers do not see yet, as applying them was put off: who keeps what
    /// it was told may believe itself up to date only when there are none.
    pub pending: usize,
    /// Readers were given a new value, not just changes in place.
    pub published: bool,
    /// Generation that readers see.
    pub generation: u64,
    /// How long it took.
    pub took: Duration,
}

/// What a source did so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceReport {
    /// Its name.
    pub name: String,
    /// Routes that it has in the RIB.
    pub routes: u64,
    /// Routes that were refused, and why the latest was.
    pub refused: u64,
    /// In words; empty when none was.
    pub last_refusal: String,
}

/// Everything that decides where packets go.
pub struct Control {
    publisher: Publisher<Forwarding>,
    generation: u64,
    v4: Family<u32>,
    v6: Family<u128>,
    hops: NextHops,
    links: BTreeMap<u32, Link>,
    next_port: u16,
    ports_changed: bool,
    neighbors: Neighbors,
    sources: Vec<Source>,
    objects: Objects,
    /// Contents of next hops must be worked out again.
    refresh: bool,
    /// Some next hop is found by its route.
    recursive: bool,
    connected_from_addresses: bool,
    /// Since when ids wait to be reused because some table may still name them.
    held: Option<Instant>,
    decisions: Vec<String>,
}

/// How to begin.
pub struct ControlOptions {
    /// IPv4 algorithms to choose among.
    pub v4: Vec<&'static Algorithm<u32>>,
    /// IPv6 algorithms to choose among.
    pub v6: Vec<&'static Algorithm<u128>>,
    /// Connected routes follow from addresses; off when a source states them (the kernel does).
    pub connected_from_addresses: bool,
}

impl Control {
    /// Without routes, links or sources.
    ///
    /// # Errors
    /// [`UpdateError::Memory`].
    pub fn new(options: ControlOptions) -> Result<Self, UpdateError> {
        let hops = NextHops::new(HOPS, SLOTS, ADJACENCIES)?;
        let v4 =
            Family { rib: Rib::default(), fib: Fib::new(options.v4), pending: Backlog::default() };
        let v6 =
            Family { rib: Rib::default(), fib: Fib::new(options.v6), pending: Backlog::default() };
        let publisher = Publisher::new(Forwarding {
            v4: v4.fib.lookup().clone(),
            v6: v6.fib.lookup().clone(),
            hops: hops.table().clone(),
            ports: Arc::new(PortTable::default()),
        });
        let mut control = Self {
            publisher,
            generation: 1,
            v4,
            v6,
            hops,
            links: BTreeMap::new(),
            next_port: 0,
            ports_changed: false,
            neighbors: Neighbors::default(),
            sources: Vec::new(),
            objects: Objects::default(),
            refresh: false,
            recursive: false,
            connected_from_addresses: options.connected_from_addresses,
            held: None,
            decisions: Vec::new(),
        };
        control.add_source("host", 0);
        control.add_source("neighbor", NEIGHBOR_DISTANCE);
        Ok(control)
    }

    /// Makes a source known; its routes compete at `distance` unless they say otherwise.
    pub fn add_source(&mut self, name: &str, distance: u8) -> SourceId {
        let id = u16::try_from(self.sources.len()).expect("sources are configured one by one");
        debug_assert!(id >= FIRST_SOURCE || distance == 0 || distance == NEIGHBOR_DISTANCE);
        self.sources.push(Source {
            name: name.to_owned(),
            distance,
            stamp: 0,
            dump: None,
            routes: 0,
            refused: 0,
            last_refusal: String::new(),
        });
        SourceId(id)
    }

    /// A reader for a worker.
    pub fn reader(&self) -> Reader<Forwarding> {
        self.publisher.reader()
    }

    /// Makes readers elsewhere.
    pub fn subscribe(&self) -> Subscribe<Forwarding> {
        self.publisher.subscribe()
    }

    /// Takes one event. Nothing of it is visible before the next [`Control::commit`], but for the link
    /// addresses of neighbors, which are at once.
    pub fn handle(&mut self, source: SourceId, event: RouteEvent) {
        match event {
            RouteEvent::Route(update) => self.route(source, update),
            RouteEvent::Withdraw(key) => self.withdraw(source, &key),
            RouteEvent::NextHop(update) => {
                if let Some(dump) = &mut self.source(source).dump {
                    dump.objects.insert(update.id);
                }
                self.note_recursion(&update.target);
                self.objects.insert(source.0, update.id, update.target);
                self.refresh = true;
            }
            RouteEvent::NextHopGone(id) => self.object_gone(source, id),
            RouteEvent::Link(update) => {
                if let Some(dump) = &mut self.source(source).dump {
                    dump.links.insert(update.link);
                }
                match update.state {
                    Some(state) => self.link(update.link, state),
                    None => self.link_gone(update.link),
                }
            }
            RouteEvent::Address(update) => {
                if let Some(dump) = &mut self.source(source).dump
                    && !update.gone
                {
                    dump.addresses.insert((update.link, update.addr));
                }
                self.address(update);
            }
            RouteEvent::Neighbor(update) => {
                if let Some(dump) = &mut self.source(source).dump
                    && update.state != NeighborState::Gone
                {
                    dump.neighbors.insert((update.link, update.addr));
                }
                self.neighbor(update.link, update.addr, update.state);
            }
            RouteEvent::Commit(_) => {}
            RouteEvent::StartOfTable => {
                let source = self.source(source);
                source.stamp = source.stamp.wrapping_add(1);
                source.dump = Some(Seen::default());
            }
            RouteEvent::EndOfTable => {
                self.end_of_table(source);
                self.flush();
            }
        }
    }

    fn source(&mut self, id: SourceId) -> &mut Source {
        &mut self.sources[usize::from(id.0)]
    }

    fn refuse(&mut self, source: SourceId, key: &RouteKey, why: &str) {
        let source = self.source(source);
        source.refused += 1;
        source.last_refusal = format!("{}: {why}", key.prefix);
    }

    fn route(&mut self, source: SourceId, update: RouteUpdate) {
        let key = update.key;
        if key.table != MAIN_TABLE || !forwarded(key.prefix) {
            return;
        }
        let mut ways = match update.target {
            Target::Way(way) => vec![way],
            Target::Ways(ways) => ways,
            other => {
                let hop = match other {
                    Target::Object(id) => HopKey::Object { source: source.0, id },
                    Target::Local => HopKey::Local,
                    Target::Blackhole => HopKey::Blackhole,
                    Target::Prohibit => HopKey::Prohibit,
                    Target::Unreachable | Target::Way(_) | Target::Ways(_) => HopKey::Unreachable,
                };
                return self.insert(source, key, update.distance, &hop);
            }
        };
        if update.append {
            ways.extend(self.ways_of(source, &key));
        }
        let wrong_family = |way: &Way| {
            matches!((key.prefix, way.gateway), (AnyPrefix::V6(_), Some(IpAddr::V4(_))))
        };
        if ways.iter().any(wrong_family) {
            return self.refuse(source, &key, "an IPv6 route cannot have an IPv4 gateway");
        }
        if ways.iter().any(|way| way.gateway.is_none() && way.link.is_none()) {
            return self.refuse(source, &key, "a way needs a gateway or a device");
        }
        self.recursive |= ways.iter().any(|way| way.link.is_none());
        self.insert(source, key, update.distance, &HopKey::of_ways(ways));
    }

    /// The ways that a route has at present.
    fn ways_of(&self, source: SourceId, key: &RouteKey) -> Vec<Way> {
        let found = match key.prefix {
            AnyPrefix::V4(prefix) => self.v4.rib.find(prefix, source.0, key.metric),
            AnyPrefix::V6(prefix) => self.v6.rib.find(prefix, source.0, key.metric),
        };
        match found.and_then(|c| self.hops.key(c.hop)) {
            Some(HopKey::Way(way)) => vec![*way],
            Some(HopKey::Group(ways)) => ways.to_vec(),
            _ => Vec::new(),
        }
    }

    fn insert(&mut self, source: SourceId, key: RouteKey, distance: Option<u8>, hop_key: &HopKey) {
        let world = World {
            links: &self.links,
            objects: &self.objects,
            v4: &self.v4.rib,
            v6: &self.v6.rib,
        };
        let hop = match self.hops.acquire(hop_key, &world) {
            Ok(hop) => hop,
            Err(error) => return self.refuse(source, &key, &error.to_string()),
        };
        let s = &self.sources[usize::from(source.0)];
        let candidate = Candidate {
            source: source.0,
            distance: distance.unwrap_or(s.distance),
            metric: key.metric,
            hop,
        };
        let stamp = s.stamp;
        if source.0 == HOST || s.dump.is_none() && is_direct(hop_key) {
            self.force(key.prefix);
        }
        let replaced = match key.prefix {
            AnyPrefix::V4(prefix) => self.v4.insert(prefix, candidate, stamp),
            AnyPrefix::V6(prefix) => self.v6.insert(prefix, candidate, stamp),
        };
        match replaced {
            Some(old) => self.hops.release(old),
            None => self.source(source).routes += 1,
        }
        self.fill_fresh();
    }

    fn withdraw(&mut self, source: SourceId, key: &RouteKey) {
        if key.table != MAIN_TABLE {
            return;
        }
        let removed = match key.prefix {
            AnyPrefix::V4(prefix) => self.v4.remove(prefix, source.0, key.metric),
            AnyPrefix::V6(prefix) => self.v6.remove(prefix, source.0, key.metric),
        };
        if let Some(old) = removed {
            let s = &self.sources[usize::from(source.0)];
            if source.0 == HOST || s.dump.is_none() && self.hops.key(old).is_some_and(is_direct) {
                self.force(key.prefix);
            }
            self.hops.release(old);
            self.source(source).routes -= 1;
        }
    }

    /// The kernel does not say which routes go with a next-hop object: find them.
    fn object_gone(&mut self, source: SourceId, id: u32) {
        self.objects.remove(source.0, id);
        self.refresh = true;
        let Some(hop) = self.hops.find(&HopKey::Object { source: source.0, id }) else { return };
        self.remove_where(source, |candidate, _| candidate.hop == hop);
    }

    fn remove_where(&mut self, source: SourceId, select: impl Fn(&Candidate, u8) -> bool) {
        let of_source = |c: &Candidate, stamp: u8| c.source == source.0 && select(c, stamp);
        let v4 = self.v4.rib.select(of_source);
        let v6 = self.v6.rib.select(of_source);
        let v4 = v4.into_iter().map(|(p, c)| (AnyPrefix::V4(p), c.metric));
        let v6 = v6.into_iter().map(|(p, c)| (AnyPrefix::V6(p), c.metric));
        for (prefix, metric) in v4.chain(v6).collect::<Vec<_>>() {
            self.withdraw(source, &RouteKey { table: MAIN_TABLE, prefix, metric });
        }
    }

    /// Removes what the dump that ends here did not say again.
    fn end_of_table(&mut self, source: SourceId) {
        let Some(seen) = self.source(source).dump.take() else { return };
        let current = self.source(source).stamp;
        self.remove_where(source, |_, stamp| stamp != current);
        for id in self.objects.missing(source.0, &seen.objects) {
            self.object_gone(source, id);
        }
        // Only a source that speaks of links at all has a say in which are gone.
        if seen.links.is_empty() {
            return;
        }
        let gone: Vec<u32> =
            self.links.keys().copied().filter(|link| !seen.links.contains(link)).collect();
        for link in gone {
            self.link_gone(link);
        }
        let addresses: Vec<AddressUpdate> = self
            .links
            .iter()
            .flat_map(|(&link, entry)| entry.addresses.iter().map(move |a| (link, *a)))
            .filter(|(link, a)| !seen.addresses.contains(&(*link, a.addr)))
            .map(|(_, a)| AddressUpdate { gone: true, ..a })
            .collect();
        for update in addresses {
            self.address(update);
        }
        for (link, addr) in self.neighbors.missing(&seen.neighbors) {
            self.neighbor(link, addr, NeighborState::Gone);
        }
    }

    fn note_recursion(&mut self, target: &ObjectTarget) {
        self.recursive |= matches!(target, ObjectTarget::Way(Way { link: None, .. }));
    }

    /// The next commit applies what is pending in this family at once: who brings an address or a route
    /// of the host itself up goes on in the belief that it works.
    fn force(&mut self, prefix: AnyPrefix) {
        match prefix {
            AnyPrefix::V4(_) => self.v4.fib.force(),
            AnyPrefix::V6(_) => self.v6.fib.force(),
        }
    }

    /// The next commit makes everything visible, whatever it costs.
    pub fn flush(&mut self) {
        self.v4.fib.force();
        self.v6.fib.force();
    }

    /// A commit that makes everything visible.
    ///
    /// # Errors
    /// As [`Control::commit`].
    pub fn commit_now(&mut self, now: Instant) -> Result<Committed, UpdateError> {
        self.flush();
        self.commit(now)
    }

    /// When the next commit has something to do even if nothing more is handled until then.
    pub fn next_due(&self) -> Option<Instant> {
        [self.v4.fib.next_due(), self.v6.fib.next_due()].into_iter().flatten().min()
    }

    /// Other knobs for the FIBs.
    ///
    /// # Errors
    /// The first that is out of its range; nothing changed then.
    pub fn set_fib_options(&mut self, options: FibOptions) -> Result<(), FibOptionError> {
        let options = options.validated()?;
        self.v4.fib.set_options(options);
        self.v6.fib.set_options(options);
        Ok(())
    }

    /// The state of every FIB.
    pub fn fib_reports(&self, now: Instant) -> Vec<FibReport> {
        vec![self.v4.fib.report(&self.v4.rib, now), self.v6.fib.report(&self.v6.rib, now)]
    }

    /// Makes what was handled so far visible to readers: at once where that is cheap, else when it is
    /// due ([`crate::fib::batch`]). Then [`Committed::pending`] tells how much waits, and
    /// [`Control::next_due`] until when.
    ///
    /// # Errors
    /// When no algorithm can hold a table: readers keep the old one, and a later commit tries again.
    pub fn commit(&mut self, now: Instant) -> Result<Committed, UpdateError> {
        let start = Instant::now();
        let routes_changed = !self.v4.pending.is_empty() || !self.v6.pending.is_empty();
        if self.refresh || self.recursive && routes_changed {
            self.refresh = false;
            let world = World {
                links: &self.links,
                objects: &self.objects,
                v4: &self.v4.rib,
                v6: &self.v6.rib,
            };
            self.hops.refresh(&world)?;
            self.fill_fresh();
        }
        self.settle_neighbors(now);
        let mut published = false;
        if self.hops.take_grown() || std::mem::take(&mut self.ports_changed) {
            // Readers must know the new ids and ports before a table names them.
            self.publish();
            self.wait_for_readers();
            published = true;
        }
        if self.held.is_some_and(|t| now.saturating_duration_since(t) > LONGEST_HOLD) {
            self.flush();
        }
        let v4 = self.v4.commit(&mut self.publisher, now);
        let v6 = self.v6.commit(&mut self.publisher, now);
        let mut changes = 0;
        for result in [&v4, &v6].into_iter().flatten() {
            changes += result.changes;
            published |= result.published;
        }
        if published {
            self.publish();
        }
        self.decisions.extend(self.v4.fib.take_decisions());
        self.decisions.extend(self.v6.fib.take_decisions());
        // A table that is behind still names ids that no route has any more.
        if self.v4.fib.caught_up() && self.v6.fib.caught_up() {
            self.hops.reclaim(&mut self.publisher);
            self.held = None;
        } else if self.hops.waiting() > 0 {
            self.held.get_or_insert(now);
        }
        self.publisher.sweep();
        v4.and(v6)?;
        let pending = self.v4.fib.pending() + self.v6.fib.pending();
        let generation = self.generation;
        Ok(Committed { changes, pending, published, generation, took: start.elapsed() })
    }

    fn publish(&mut self) {
        let ports = self.port_table();
        self.generation = self.publisher.set(Forwarding {
            v4: self.v4.fib.lookup().clone(),
            v6: self.v6.fib.lookup().clone(),
            hops: self.hops.table().clone(),
            ports: Arc::new(ports),
        });
    }

    fn wait_for_readers(&mut self) {
        let epoch = self.publisher.retire();
        let start = Instant::now();
        while !self.publisher.passed(epoch) && start.elapsed() < LONGEST_GRACE {
            std::thread::yield_now();
        }
    }

    /// Uses this algorithm for a family (4 or 6) and no other, or (`None`) chooses again, from the next
    /// commit on.
    ///
    /// # Errors
    /// The names there are.
    pub fn pin_algorithm(
        &mut self,
        family: u8,
        name: Option<&str>,
    ) -> Result<(), Vec<&'static str>> {
        if family == 4 { self.v4.fib.pin(name) } else { self.v6.fib.pin(name) }
    }

    /// IPv4 routes.
    pub fn rib_v4(&self) -> &Rib<u32> {
        &self.v4.rib
    }

    /// IPv6 routes.
    pub fn rib_v6(&self) -> &Rib<u128> {
        &self.v6.rib
    }

    /// The IPv4 table's writer, for its name and counts.
    pub fn fib_v4(&self) -> &Fib<u32> {
        &self.v4.fib
    }

    /// The IPv6 table's writer, for its name and counts.
    pub fn fib_v6(&self) -> &Fib<u128> {
        &self.v6.fib
    }

    /// Next hops and groups.
    pub fn next_hops(&self) -> &NextHops {
        &self.hops
    }

    /// Every link with its port number and state.
    pub fn links(&self) -> impl Iterator<Item = (u32, u16, &LinkState)> {
        self.links.iter().map(|(&link, entry)| (link, entry.port, &entry.state))
    }

    /// The host's own addresses.
    pub fn addresses(&self) -> impl Iterator<Item = &AddressUpdate> {
        self.links.values().flat_map(|entry| &entry.addresses)
    }

    /// The sources and what they did so far.
    pub fn sources(&self) -> impl Iterator<Item = SourceReport> + '_ {
        self.sources.iter().map(|s| SourceReport {
            name: s.name.clone(),
            routes: s.routes,
            refused: s.refused,
            last_refusal: s.last_refusal.clone(),
        })
    }

    /// Decisions since the last call, a line each.
    pub fn take_decisions(&mut self) -> Vec<String> {
        std::mem::take(&mut self.decisions)
    }

    /// What readers see now.
    pub fn forwarding(&self) -> impl std::ops::Deref<Target = Forwarding> + Clone + use<> {
        self.publisher.value()
    }
}

impl<A: Addr> Family<A> {
    fn insert(&mut self, prefix: Prefix<A>, candidate: Candidate, stamp: u8) -> Option<NextHopId> {
        let effect = self.rib.insert(prefix, candidate, stamp);
        self.note(prefix, effect.old, effect.new);
        effect.replaced
    }

    fn remove(&mut self, prefix: Prefix<A>, source: u16, metric: u32) -> Option<NextHopId> {
        let effect = self.rib.remove(prefix, source, metric)?;
        self.note(prefix, effect.old, effect.new);
        effect.replaced
    }

    fn note(&mut self, prefix: Prefix<A>, old: NextHopId, new: NextHopId) {
        if old != new {
            self.pending.push(prefix, old);
        }
    }

    /// Hands the pending changes to the FIB: of each prefix what readers know, and what is best now.
    fn commit(&mut self, grace: &mut dyn Grace, now: Instant) -> Result<Brought, UpdateError> {
        self.fib.note_all(&mut self.pending);
        self.fib.commit(|prefix| self.rib.get(prefix), &self.rib, grace, now)
    }
}

/// Whether what it leads to is on a link of ours, or ourselves.
fn is_direct(hop: &HopKey) -> bool {
    matches!(hop, HopKey::Local | HopKey::Way(Way { gateway: None, .. }))
}

/// Link-local and multicast destinations never go through a routing table of ours.
fn forwarded(prefix: AnyPrefix) -> bool {
    match prefix {
        AnyPrefix::V4(p) => p.len() < 4 || p.addr() >> 28 != 0xe,
        AnyPrefix::V6(p) => {
            (p.len() < 8 || p.addr() >> 120 != 0xff) && (p.len() < 10 || p.addr() >> 118 != 0x3fa)
        }
    }
}

/// The leg of a prefix's covering route, if all its packets take the same.
fn covering_leg<A: Addr>(rib: &Rib<A>, hops: &NextHops, prefix: Prefix<A>) -> Option<Leg> {
    let (_, hop) = rib.parent(prefix)?;
    match hops.content(hop) {
        [(leg, _)] => Some(*leg),
        _ => None,
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests;
