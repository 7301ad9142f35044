//! The control side as a whole: events of all sources in, one published [`Forwarding`] out.
//!
//! It is plain data without I/O, threads or clocks: the daemon feeds it, calls [`Control::commit`] when
//! a burst of events is in, and carries out what it asks for ([`Control::take_requests`]).
//!
//! The way of a route: event -> candidate in the RIB ([`crate::rib`]) with an interned next hop
//! ([`crate::nexthop`]) -> when it is the best, a pending change -> at commit the FIB of its family
//! ([`crate::fib`]) -> readers. Links, addresses and neighbors change ports and adjacencies on the side,
//! without touching a route.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fingerpost_lpm::{Algorithm, Grace, KernelReader, NextHopId, UpdateError};

use crate::event::{
    AddressUpdate, AnyPrefix, LinkState, MAIN_TABLE, NeighborState, Path, RouteEvent, RouteKey,
    RouteUpdate, Target,
};
use crate::fib::{FibOptionError, FibOptions, FibReport, Publisher, Reader, Shared, Subscribe};
use crate::forwarding::{FibLookup, Forwarding, PortTable, ReversePath};
use crate::nexthop::{HopAttrs, HopError, HopFlags, HopKey, NextHops, narrower};
use crate::rib::{Candidate, Effect};

mod action;
mod audit;
mod expiry;
mod filtered;
mod links;
mod neighbors;
mod objects;
mod paths;
mod pending;
mod permanent;
mod query;
mod snapshot;
mod sweep;
mod tables;
mod unconfirmed;
mod watch;
mod world;

pub use action::{Done, Operation, Outcome, Paths, RouteError};
pub use expiry::Ends;
pub use filtered::Filtered;
pub use neighbors::{NeighborRequest, NeighborRow};
pub use objects::{HopView, ObjectPath, ObjectView};
pub use permanent::NeighborError;
pub use query::RouteFound;
pub use snapshot::{RouteRow, SnapshotError, SnapshotId};
pub use watch::{Gap, Happened, Notice, Takeover};

use expiry::Expiry;
use links::Link;
use neighbors::Neighbors;
use objects::Objects;
use snapshot::Snapshots;
use sweep::Sweep;
use tables::{Table, Tables};
use watch::Log;
use world::{Stale, World};

/// Room of the tables behind a next hop: a few hundred next hops are usual, some thousand happen, and
/// growing costs a grace period. 512 KiB, 1 MiB and 256 KiB, touched where they are in use.
const HOPS: usize = 65_536;
const SLOTS: usize = 262_144;
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
/// The kernel's table of the host's own addresses.
const LOCAL_TABLE: u32 = 255;
/// Learned neighbors yield to every real route.
const NEIGHBOR_DISTANCE: u8 = 254;

/// A source of routes as the control side knows it.
#[derive(Debug)]
struct Source {
    name: String,
    distance: u8,
    /// Counts dumps, so that what a dump does not say again can be found.
    stamp: u8,
    /// That of the latest dump that was complete.
    ended: u8,
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

impl SourceId {
    /// Its place among [`Control::sources`].
    pub fn index(self) -> usize {
        self.0.into()
    }
}

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
    /// How far its routes are believed unless they say otherwise; lower wins.
    pub distance: u8,
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
    tables: Tables,
    hops: NextHops,
    links: BTreeMap<u32, Link>,
    next_port: u16,
    /// Interfaces, by name, that ask another table than the main one.
    bindings: BTreeMap<String, u32>,
    /// Interfaces, by name, whose packets' sources are checked.
    source_checks: BTreeMap<String, ReversePath>,
    /// Those whose packets' sources are looked up in lists.
    filtered: Filtered,
    /// Interfaces, by name, that send no redirects.
    without_redirects: BTreeSet<String>,
    /// Who puts the routes of tables of paths, once there is one.
    paths: Option<SourceId>,
    ports_changed: bool,
    address_changes: u64,
    neighbors: Neighbors,
    sources: Vec<Source>,
    objects: Objects,
    expiry: Expiry,
    snapshots: Snapshots,
    log: Log,
    /// What changed that contents of next hops depend on.
    stale: Stale,
    /// Routes that are to be withdrawn, some with each commit.
    sweep: Sweep,
    connected_from_addresses: bool,
    audit: audit::Audit,
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
        let tables = Tables::new(options.v4, options.v6);
        let publisher = Publisher::new(forwarding(&tables, &hops, PortTable::default()));
        let mut control = Self {
            publisher,
            generation: 1,
            tables,
            hops,
            links: BTreeMap::new(),
            next_port: 0,
            bindings: BTreeMap::new(),
            source_checks: BTreeMap::new(),
            filtered: Filtered::default(),
            without_redirects: BTreeSet::new(),
            paths: None,
            ports_changed: false,
            address_changes: 0,
            neighbors: Neighbors::default(),
            sources: Vec::new(),
            objects: Objects::default(),
            expiry: Expiry::default(),
            snapshots: Snapshots::default(),
            log: Log::default(),
            stale: Stale::default(),
            sweep: Sweep::default(),
            connected_from_addresses: options.connected_from_addresses,
            audit: audit::Audit::default(),
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
            ended: 0,
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

    /// Shares all that packets need with a reader outside, such as a program in the kernel: tables are
    /// built in its memory from the next commit on, and every publication brings it along.
    ///
    /// # Errors
    /// [`UpdateError::Memory`]; nothing changed then.
    pub fn share(
        &mut self,
        shared: Shared,
        kernel_reader: Box<dyn KernelReader<Forwarding>>,
    ) -> Result<(), UpdateError> {
        self.hops.share(shared.memory.clone())?;
        self.tables.share(shared);
        self.publisher.set_kernel_reader(kernel_reader);
        Ok(())
    }

    /// Takes one event. Nothing of it is visible before the next [`Control::commit`], but for the link
    /// addresses of neighbors, which are at once; and for links and next-hop objects, which
    /// [`Control::fail_over`] makes visible without waiting for the routes.
    pub fn handle(&mut self, source: SourceId, event: RouteEvent) {
        match event {
            RouteEvent::Route(update) => self.route(source, update),
            RouteEvent::Withdraw(key) => self.withdraw(source, &key),
            RouteEvent::NextHop(update) => {
                // What its members are may come later; what can never be is refused, as the kernel does.
                let world = world(&self.links, &self.objects, &self.tables, &self.neighbors);
                let checked = self.hops.check_object(source.0, update.id, &update.target, &world);
                if let Err(error @ HopError::GroupOfGroups { .. }) = checked {
                    return self.refuse(source, &error);
                }
                if let Some(dump) = &mut self.source(source).dump {
                    dump.objects.insert(update.id);
                }
                self.put_object(source.0, update.id, update.target);
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

    fn refuse(&mut self, source: SourceId, why: &dyn std::fmt::Display) {
        let source = self.source(source);
        source.refused += 1;
        source.last_refusal = why.to_string();
    }

    fn route(&mut self, source: SourceId, update: RouteUpdate) {
        let key = update.key;
        // What is for the host itself follows from its addresses.
        if key.table == LOCAL_TABLE || !forwarded(key.prefix) {
            return;
        }
        if let Err(error) = self.add_table(key.table) {
            return self.refuse(source, &error);
        }
        let (mut target, mut mtu) = (update.target, update.mtu);
        if update.append
            && let Target::Path(_) | Target::Paths(_) = target
        {
            let mut paths = match target {
                Target::Path(path) => vec![path],
                Target::Paths(paths) => paths,
                _ => unreachable!("just seen"),
            };
            if let Some(present) = self.present(source, &key) {
                paths.extend(self.paths(present));
                mtu = narrower(mtu, self.mtu_of(present));
            }
            target = Target::Paths(paths);
        }
        self.settle_links(&key, &mut target);
        let hop = self.key_of(source, &target);
        let done = self.try_insert(source, key, update.distance, &hop, mtu);
        match done {
            Ok(_) => self.expiry.forget(source, &key),
            Err(error) => self.refuse(source, &RouteError::NextHop { prefix: key.prefix, error }),
        }
    }

    /// What a target is called among the next hops.
    fn key_of(&self, source: SourceId, target: &Target) -> HopKey {
        let paths = match target {
            Target::Path(path) => vec![*path],
            Target::Paths(paths) => paths.clone(),
            Target::Object(id) => return HopKey::Object { source: source.0, id: *id },
            Target::Local => return HopKey::Local,
            Target::Blackhole => return HopKey::Blackhole,
            Target::Prohibit => return HopKey::Prohibit,
            Target::Unreachable => return HopKey::Unreachable,
        };
        HopKey::of_paths(paths)
    }

    /// The MTU that a route with this next hop states; 0 for none.
    fn mtu_of(&self, hop: NextHopId) -> u16 {
        self.hops.attrs(hop).map_or(0, |attrs| attrs.mtu)
    }

    /// Puts a route of our own sources.
    fn insert(&mut self, source: SourceId, key: RouteKey, hop: &HopKey, mtu: u16) {
        if let Err(error) = self.try_insert(source, key, None, hop, mtu) {
            self.refuse(source, &RouteError::NextHop { prefix: key.prefix, error });
        }
    }

    /// The one way in: makes or replaces the candidate of a source for a prefix of a table that is there.
    /// Links may be announced after their routes.
    fn try_insert(
        &mut self,
        source: SourceId,
        key: RouteKey,
        distance: Option<u8>,
        hop_key: &HopKey,
        mtu: u16,
    ) -> Result<NextHopId, HopError> {
        NextHops::check_family(hop_key, key.prefix)?;
        NextHops::check_mtu(mtu, key.prefix)?;
        let attrs = HopAttrs { flags: HopFlags::of_prefix(key.prefix), mtu, table: key.table };
        // Of a group that takes the place of another one, the flows of common members stay.
        let group = matches!(hop_key, HopKey::Group(_));
        let table = self.tables.get(key.table).filter(|_| group);
        let present = table.and_then(|table| table.find(key.prefix, source.0, key.metric));
        let world = world(&self.links, &self.objects, &self.tables, &self.neighbors);
        let hop = self.hops.acquire_as(hop_key, attrs, present.map(|c| c.hop), &world)?;
        self.save_for_snapshots(key.table, key.prefix);
        let s = &self.sources[usize::from(source.0)];
        let candidate = Candidate {
            source: source.0,
            distance: distance.unwrap_or(s.distance),
            metric: key.metric,
            hop,
        };
        let stamp = s.stamp;
        let forced = source.0 == HOST || s.dump.is_none() && is_direct(hop_key);
        let table = self.tables.get_mut(key.table).expect("who asks looked for it");
        if forced {
            table.force(key.prefix);
        }
        let effect = table.insert(key.prefix, candidate, stamp);
        if effect.replaced.is_none() {
            self.source(source).routes += 1;
        }
        self.note_effect(source, key, &effect, hop);
        self.follow_paths(&key);
        Ok(hop)
    }

    /// The one way out.
    fn withdraw(&mut self, source: SourceId, key: &RouteKey) {
        let Some(table) = self.tables.get(key.table) else { return };
        if table.find(key.prefix, source.0, key.metric).is_none() {
            return;
        }
        self.save_for_snapshots(key.table, key.prefix);
        let table = self.tables.get_mut(key.table).expect("just seen");
        let effect = table.remove(key.prefix, source.0, key.metric).expect("just seen");
        let s = &self.sources[usize::from(source.0)];
        let direct = |hop| self.hops.key(hop).is_some_and(is_direct);
        if source.0 == HOST || s.dump.is_none() && effect.replaced.is_some_and(direct) {
            table.force(key.prefix);
        }
        self.source(source).routes -= 1;
        self.expiry.forget(source, key);
        self.note_effect(source, *key, &effect, NextHopId::NONE);
        self.follow_paths(key);
    }

    fn note_effect(&mut self, source: SourceId, key: RouteKey, effect: &Effect, new: NextHopId) {
        let old = effect.replaced.unwrap_or(NextHopId::NONE);
        if old == new && effect.old == effect.new {
            // Said again: nothing happened, and one reference is too many.
            self.hops.release(old);
            return;
        }
        let done = match (old.is_none(), new.is_none()) {
            (true, _) => Done::Added,
            (false, true) => Done::Deleted,
            (false, false) => Done::Changed,
        };
        let best = effect.old != effect.new;
        let source = source.0;
        let said = [old, new].map(|hop| (self.hops.shared_key(hop), self.mtu_of(hop)));
        if !old.is_none() {
            self.hops.release(old);
        }
        let [(old, old_mtu), (new, new_mtu)] = said;
        let mtus = (old_mtu, new_mtu);
        // Those follow from others, which are told of.
        if tables::is_of_paths(key.table) {
            return;
        }
        self.notice(Happened::Route { done, source, key, old, new, mtus, best });
    }

    /// The kernel does not say which routes go with a next-hop object: they lead nowhere at once, and are found and
    /// withdrawn bit by bit.
    fn object_gone(&mut self, source: SourceId, id: u32) {
        self.take_object(source.0, id);
        if self.hops.orphan(&HopKey::Object { source: source.0, id }) {
            self.sweep.begin();
        }
    }

    /// Removes what the dump that ends here did not say again, routes bit by bit.
    fn end_of_table(&mut self, source: SourceId) {
        let Some(seen) = self.source(source).dump.take() else { return };
        let ended = self.source(source);
        ended.ended = ended.stamp;
        self.sweep.begin();
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

    /// The next commit makes everything visible, whatever it costs.
    pub fn flush(&mut self) {
        self.tables.iter_mut().for_each(Table::flush);
    }

    /// A commit that makes everything visible.
    ///
    /// # Errors
    /// As [`Control::commit`].
    pub fn commit_now(&mut self, now: Instant) -> Result<Committed, UpdateError> {
        self.sweep_all();
        self.flush();
        self.commit(now)
    }

    /// When the next commit has something to do even if nothing more is handled until then.
    pub fn next_due(&self) -> Option<Instant> {
        let fibs = self.tables.iter().flat_map(|t| [t.v4.fib.next_due(), t.v6.fib.next_due()]);
        fibs.chain([self.next_expiry(), self.sweep.due()]).flatten().min()
    }

    /// Other knobs for the FIBs.
    ///
    /// # Errors
    /// The first that is out of its range; nothing changed then.
    pub fn set_fib_options(&mut self, options: FibOptions) -> Result<(), FibOptionError> {
        self.tables.set_options(options.validated()?);
        Ok(())
    }

    /// The state of every FIB: of each table, the main one first, that of IPv4 and that of IPv6.
    pub fn fib_reports(&self, now: Instant) -> Vec<FibReport> {
        let both = |t: &Table| [t.v4.fib.report(&t.v4.rib, now), t.v6.fib.report(&t.v6.rib, now)];
        self.tables.iter().flat_map(both).collect()
    }

    /// Makes what was handled so far visible to readers: at once where that is cheap, else when it is
    /// due ([`crate::fib::batch`]). Then [`Committed::pending`] tells how much waits, and
    /// [`Control::next_due`] until when. Of routes that are to be withdrawn all at once (those of a next-hop
    /// object, those that a dump did not repeat) it withdraws some thousand; [`Control::sweeping`] says whether
    /// more are left.
    ///
    /// # Errors
    /// When no algorithm can hold a table: readers keep the old one, and a later commit tries again.
    pub fn commit(&mut self, now: Instant) -> Result<Committed, UpdateError> {
        let start = Instant::now();
        // In place, before a single route is touched.
        let mut failed = self.refresh_stale().err();
        self.sweep_some(now);
        self.expire(now);
        self.settle_neighbors(now);
        // Host routes of neighbors included: each may be the route to a gateway.
        failed = self.refresh_gateways().err().or(failed);
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
        let (mut changes, mut pending, mut behind) = (0, usize::from(self.sweeping()), false);
        let mut decisions = Vec::new();
        for table in self.tables.iter_mut() {
            let v4 = table.v4.commit(&mut self.publisher, now);
            let v6 = table.v6.commit(&mut self.publisher, now);
            for result in [v4, v6] {
                match result {
                    Ok(brought) => {
                        changes += brought.changes;
                        published |= brought.published;
                    }
                    Err(error) => failed = failed.or(Some(error)),
                }
            }
            pending += table.v4.fib.pending() + table.v6.fib.pending();
            behind |= !table.v4.fib.caught_up() || !table.v6.fib.caught_up();
            decisions.extend(table.v4.fib.take_decisions());
            decisions.extend(table.v6.fib.take_decisions());
        }
        for line in &decisions {
            self.notice(Happened::Decision(line.clone()));
        }
        self.decisions.extend(decisions);
        if published {
            self.publish();
        }
        // A table that is behind still names ids that no route has any more.
        if !behind {
            self.hops.reclaim(&mut self.publisher);
            self.held = None;
        } else if self.hops.waiting() > 0 {
            self.held.get_or_insert(now);
        }
        self.publisher.sweep();
        match failed {
            Some(error) => Err(error),
            None => {
                let generation = self.generation;
                if changes > 0 && pending == 0 {
                    self.notice(Happened::Visible(generation));
                }
                Ok(Committed { changes, pending, published, generation, took: start.elapsed() })
            }
        }
    }

    fn publish(&mut self) {
        let ports = self.port_table();
        self.generation = self.publisher.set(forwarding(&self.tables, &self.hops, ports));
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
        let main = self.tables.main_mut();
        if family == 4 { main.v4.fib.pin(name) } else { main.v6.fib.pin(name) }
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
            distance: s.distance,
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

/// What readers are given.
fn forwarding(tables: &Tables, hops: &NextHops, ports: PortTable) -> Forwarding {
    let FibLookup { v4, v6, .. } = tables.main().lookup();
    let others = tables.iter().skip(1).map(Table::lookup).collect();
    let (defaults, hops) = (hops.defaults(), hops.table().clone());
    Forwarding { v4, v6, others, defaults, hops, ports: Arc::new(ports) }
}

/// Whether what it leads to is on a link of ours, or ourselves.
fn is_direct(hop: &HopKey) -> bool {
    matches!(hop, HopKey::Local | HopKey::Path(Path { gateway: None, .. }))
}

/// What next hops are worked out from.
fn world<'a>(
    links: &'a BTreeMap<u32, Link>,
    objects: &'a Objects,
    tables: &'a Tables,
    neighbors: &'a Neighbors,
) -> World<'a> {
    World { links, objects, tables, neighbors }
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

#[cfg(test)]
#[cfg(not(loom))]
mod action_tests;
#[cfg(test)]
#[cfg(not(loom))]
mod mtu_tests;
#[cfg(test)]
#[cfg(not(loom))]
mod neighbor_tests;
#[cfg(test)]
#[cfg(not(loom))]
mod sweep_tests;
#[cfg(test)]
#[cfg(not(loom))]
mod tests;
#[cfg(test)]
#[cfg(not(loom))]
mod world_tests;
