//! The control side as a whole: events of all sources in, one published [`Forwarding`] out.
//!
//! It is plain data without I/O, threads or clocks: the daemon feeds it, calls [`Control::commit`] when
//! a burst of events is in, and carries out its requests ([`Control::take_requests`]).
//!
//! A route: event -> candidate in the RIB ([`crate::rib`]) with an interned next hop
//! ([`crate::nexthop`]) -> when it is the best, a change in the backlog -> at commit the FIB of its family
//! ([`crate::fib`]) -> readers. Links, addresses and neighbors change ports and adjacencies on the side,
//! without touching a route.
//!
//! [`Control`] owns ten parts, each with private state and methods of its own; the functions here and in [`events`],
//! [`routes`], [`action`] and [`query`] show which parts an event, a change, an action and a query touch.

use std::sync::Arc;
use std::time::{Duration, Instant};

use fingerpost_lpm::{Algorithm, KernelReader, UpdateError};

use crate::event::{AnyPrefix, RouteKey};
use crate::fib::{FibOptionError, FibOptions, Reader, Runner, Shared, Subscribe};
use crate::forwarding::{Forwarding, PortTable};
use crate::group::GroupMode;
use crate::nexthop::NextHops;

mod action;
mod events;
mod expiry;
mod interfaces;
mod journal;
mod links;
mod liveness;
mod neighbors;
mod objects;
mod output;
mod paths;
mod query;
mod resolver;
mod routes;
mod snapshot;
mod sources;
mod sweep;
mod tables;

pub use action::{Done, Operation, Outcome, Paths, RouteError};
pub use expiry::Ends;
pub use interfaces::InterfaceSet;
pub use journal::{Gap, Happened, Notice, Requested, Takeover};
pub use links::COUNTED_PORTS;
pub use liveness::NextHopState;
pub use neighbors::{NeighborError, NeighborRequest, NeighborRow};
pub use objects::{HopView, ObjectPath, ObjectView};
pub use query::RouteFound;
pub use snapshot::{RouteRow, SnapshotError, SnapshotId};
pub use sources::{SourceId, SourceLimits, SourceReport};

use expiry::Expiry;
use journal::Journal;
use links::Links;
use neighbors::Neighbors;
use objects::Objects;
use output::Output;
use resolver::resolver;
use snapshot::Snapshots;
use sources::Sources;
use tables::{Family, Tables};

/// Room of the tables behind a next hop: a few hundred next hops are usual, some thousand happen, and
/// growing costs a grace period. 512 KiB, 1 MiB and 256 KiB, touched where they are in use.
const HOPS: usize = 65_536;
const SLOTS: usize = 262_144;
const ADJACENCIES: usize = 16_384;
/// The kernel's table of the host's own addresses.
const LOCAL_TABLE: u32 = 255;

/// Result of a commit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Committed {
    /// Changed best routes that became visible.
    pub changes: usize,
    /// Changed best routes that readers do not see yet, as applying them was put off: a cache of routes
    /// is up to date only when there are none.
    pub pending: usize,
    /// A new value was published, besides changes in place.
    pub published: bool,
    /// Generation that readers see.
    pub generation: u64,
    /// Duration of the commit.
    pub took: Duration,
}

/// A moment in the changes of best routes: [`Control::shows`] compares what readers see with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark(Vec<[u64; 2]>);

/// Everything that decides where packets go.
pub struct Control {
    output: Output,
    tables: Tables,
    hops: NextHops,
    links: Links,
    neighbors: Neighbors,
    objects: Objects,
    sources: Sources,
    expiry: Expiry,
    snapshots: Snapshots,
    journal: Journal,
}

/// Options of a new control side.
pub struct ControlOptions {
    /// IPv4 algorithms to choose among.
    pub v4: Vec<&'static Algorithm<u32>>,
    /// IPv6 algorithms to choose among.
    pub v6: Vec<&'static Algorithm<u128>>,
    /// Connected routes follow from addresses; off when a source has them (the kernel does).
    pub connected_from_addresses: bool,
}

impl Control {
    /// A control side without routes, links or sources.
    ///
    /// # Errors
    /// [`UpdateError::Memory`].
    pub fn new(options: ControlOptions) -> Result<Self, UpdateError> {
        let hops = NextHops::new(HOPS, SLOTS, ADJACENCIES)?;
        let tables = Tables::new(options.v4, options.v6);
        Ok(Self {
            output: Output::new(forwarding(&tables, &hops, PortTable::default())),
            tables,
            hops,
            links: Links::new(options.connected_from_addresses),
            neighbors: Neighbors::default(),
            objects: Objects::default(),
            sources: Sources::default(),
            expiry: Expiry::default(),
            snapshots: Snapshots::default(),
            journal: Journal::default(),
        })
    }

    /// Adds a source; its routes compete at `distance` unless they have their own.
    pub fn add_source(&mut self, name: &str, distance: u8) -> SourceId {
        self.sources.add(name, distance)
    }

    /// Notes the keys of refused routes of a source from now on, for [`Control::take_refusals`]. What such a route was
    /// to replace is withdrawn.
    pub fn note_refusals(&mut self, source: SourceId) {
        self.sources.get_mut(source).note_refusals();
    }

    /// Refuses routes of a source beyond these limits from now on.
    pub fn limit(&mut self, source: SourceId, limits: SourceLimits) {
        self.sources.get_mut(source).limit(limits);
    }

    /// Keys of refused routes of the source since the last call.
    pub fn take_refusals(&mut self, source: SourceId) -> Vec<RouteKey> {
        self.sources.get_mut(source).take_refusals()
    }

    /// A reader for a worker.
    pub fn reader(&self) -> Reader<Forwarding> {
        self.output.reader()
    }

    /// A handle that makes readers elsewhere.
    pub fn subscribe(&self) -> Subscribe<Forwarding> {
        self.output.subscribe()
    }

    /// Shares all that packets need with a kernel reader: tables are
    /// built in its memory from the next commit on, and every publication updates it.
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
        self.output.set_kernel_reader(kernel_reader);
        Ok(())
    }

    /// Replaces the options of the FIBs.
    ///
    /// # Errors
    /// The first option that is out of its range; nothing changed then.
    pub fn set_fib_options(&mut self, options: FibOptions) -> Result<(), FibOptionError> {
        self.tables.set_options(options.validated()?);
        Ok(())
    }

    /// Uses this algorithm for a family (4 or 6) and no other, or (`None`) chooses again, from the next
    /// commit on.
    ///
    /// # Errors
    /// The names that exist.
    pub fn pin_algorithm(
        &mut self,
        family: u8,
        name: Option<&str>,
    ) -> Result<(), Vec<&'static str>> {
        self.tables.pin(family, name)
    }

    /// Sets the layout of groups from now on.
    ///
    /// # Errors
    /// [`UpdateError`] when there is no room for larger groups: those change with the next change that
    /// concerns them.
    pub fn set_group_mode(&mut self, mode: GroupMode) -> Result<(), UpdateError> {
        self.hops.set_mode(mode)
    }

    /// Makes the next commit apply every change, whatever it costs.
    pub fn flush(&mut self) {
        self.tables.force();
    }

    /// A commit that makes everything visible.
    ///
    /// # Errors
    /// [`Control::commit`] has them.
    pub fn commit_now(&mut self, now: Instant) -> Result<Committed, UpdateError> {
        while self.sweeping() {
            self.sweep_step();
        }
        self.commit_whole(now, |_| ())
    }

    /// A commit that makes everything visible but for the withdrawals of a sweep, of which it takes a step as any other. `let_go` is
    /// that of [`Control::commit_with`].
    ///
    /// # Errors
    /// [`Control::commit`] has them.
    pub fn commit_whole(
        &mut self,
        now: Instant,
        let_go: impl FnOnce(&NextHops),
    ) -> Result<Committed, UpdateError> {
        self.flush();
        self.tables.set_waits(true);
        let committed = self.commit_with(now, let_go);
        self.tables.set_waits(false);
        committed
    }

    /// Has large tables built by another thread from now on, and large rounds done in pieces: a commit takes some
    /// milliseconds then, but for [`Control::commit_now`] and [`Control::commit_whole`].
    pub fn build_beside(&mut self, runner: Runner) {
        self.tables.build_beside(runner);
    }

    /// Whether a table is being built by another thread, or is to be.
    pub fn is_building(&self) -> bool {
        self.tables.is_building()
    }

    /// Whether readers see all routes, but for those that a sweep is to withdraw.
    pub fn is_visible(&self) -> bool {
        self.tables.caught_up()
    }

    /// Mark after all best-path changes so far.
    pub fn mark(&self) -> Mark {
        Mark(self.tables.noted())
    }

    /// Whether readers see all routes that there were at a mark, or later ones of their prefixes, but for those that a sweep
    /// is to withdraw; or no later commit can show them.
    pub fn shows(&self, mark: &Mark) -> bool {
        self.tables.shows(&mark.0)
    }

    /// Whether builds beside, or pieces of a round, wait for the next commit.
    pub fn has_steps(&self, now: Instant) -> bool {
        self.tables.has_steps(now)
    }

    /// Whether sources are to wait, and withdrawals of a sweep do: changes come faster than a table that is built beside can
    /// have them. Later commits end that by themselves.
    pub fn holds_sources(&self) -> bool {
        self.tables.hold_sources()
    }

    /// Whether routes wait to be withdrawn that lead nowhere, or that a dump did not repeat: each commit withdraws
    /// some of them, but for those while [`Control::holds_sources`].
    pub fn sweeping(&self) -> bool {
        self.sources.sweep().is_pending()
    }

    /// Whether the next commit withdraws some of them.
    pub fn sweeps(&self) -> bool {
        self.sweeping() && !self.holds_sources()
    }

    /// Time of the next commit that has something to do even without further events.
    pub fn next_due(&self) -> Option<Instant> {
        // While a build has it wait, the steps of the build are due.
        let sweep = self.sources.sweep().due().filter(|_| self.sweeps());
        let parts = [self.tables.next_due(), self.next_expiry(), sweep];
        parts.into_iter().flatten().min()
    }

    /// End of the next path that has one: a commit is due then.
    pub fn next_expiry(&self) -> Option<Instant> {
        self.expiry.next()
    }

    /// Makes what was handled so far visible to readers: at once where that is cheap, else when it is
    /// due ([`crate::fib::batch`]). Then [`Committed::pending`] has how much waits, and
    /// [`Control::next_due`] until when. Of routes that are to be withdrawn all at once (those of a next-hop
    /// object, those that a dump did not repeat) it withdraws some thousand; [`Control::sweeping`] reports whether
    /// more are left.
    ///
    /// # Errors
    /// When no algorithm can hold a table: readers keep the old one, and a later commit tries again.
    pub fn commit(&mut self, now: Instant) -> Result<Committed, UpdateError> {
        self.commit_with(now, |_| ())
    }

    /// A commit in which `let_go` takes adjacencies that are gone out of what readers read besides tables. It is called before
    /// the grace period of their indices begins: no reader that is waited for finds one there, and uses it as another one.
    ///
    /// # Errors
    /// [`Control::commit`] has them.
    pub fn commit_with(
        &mut self,
        now: Instant,
        let_go: impl FnOnce(&NextHops),
    ) -> Result<Committed, UpdateError> {
        let start = Instant::now();
        // In place, before a single route is touched.
        let mut failed = self.refresh_stale().err();
        if self.sweeps() {
            self.sweep_step();
        }
        self.sources.sweep_mut().stepped(now);
        self.expire(now);
        self.settle_neighbors(now);
        // Host routes of neighbors included: each may be the route to a gateway.
        failed = self.refresh_gateways().err().or(failed);
        // Both are taken.
        let mut published = self.hops.take_grown() | self.output.take_outdated();
        if published {
            // Readers must have the new ids and ports before a table names them.
            self.publish();
            self.output.wait_for_readers();
        }
        if self.output.is_overdue(now) {
            self.flush();
        }
        let waits = self.output.is_long_overdue(now);
        if waits {
            self.tables.set_waits(true);
        }
        let applied = self.tables.commit(self.output.grace(), now);
        if waits {
            self.tables.set_waits(false);
        }
        failed = failed.or(applied.failed);
        published |= applied.published;
        self.journal.decide(applied.decisions);
        if applied.published {
            self.publish();
        }
        let_go(&self.hops);
        self.output.reclaim(&mut self.hops, applied.behind, now);
        if let Some(error) = failed {
            return Err(error);
        }
        let (changes, generation) = (applied.changes, self.output.generation());
        let pending = applied.pending + usize::from(self.sweeping());
        if changes > 0 && pending == 0 {
            self.journal.note(journal::Happened::Visible(generation));
        }
        Ok(Committed { changes, pending, published, generation, took: start.elapsed() })
    }

    /// Makes visible what happened to links and next-hop objects since the last call or commit: groups change in
    /// place, before a single route does and however many there are. Costs next to nothing when nothing happened.
    ///
    /// # Errors
    /// [`UpdateError`] when there is no room for larger groups: the next commit tries again.
    pub fn fail_over(&mut self) -> Result<(), UpdateError> {
        if !self.links.is_stale() && !self.objects.is_stale() {
            return Ok(());
        }
        let result = self.refresh_stale();
        if self.hops.has_grown() {
            // It is in a table that readers do not have yet. The commit waits until they have it, before routes
            // name new ids.
            self.publish();
        }
        result
    }

    /// Resolves next hops again whose links or objects changed: costs what the next hops cost that use such a link or
    /// object, and nothing for the routes behind them.
    fn refresh_stale(&mut self) -> Result<(), UpdateError> {
        let (links, objects) = (self.links.take_stale(), self.objects.take_stale());
        let resolver = resolver(&self.links, &self.objects, &self.tables, &self.neighbors);
        let mut failed = None;
        for link in links {
            failed = self.hops.refresh_link(link, &resolver).err().or(failed);
        }
        for (source, id) in objects {
            failed = self.hops.refresh_object(source, id, &resolver).err().or(failed);
        }
        failed.map_or(Ok(()), Err)
    }

    /// Resolves next hops again whose routes to gateways changed since the latest commit. What cannot be
    /// written for want of room is tried again the next time.
    fn refresh_gateways(&mut self) -> Result<(), UpdateError> {
        let resolver = resolver(&self.links, &self.objects, &self.tables, &self.neighbors);
        let mut failed = None;
        for table in self.tables.routes() {
            let v4 = table.v4().fib().backlog().fresh().map(AnyPrefix::V4);
            failed = self.hops.refresh_routes(v4, &resolver).err().or(failed);
            let v6 = table.v6().fib().backlog().fresh().map(AnyPrefix::V6);
            failed = self.hops.refresh_routes(v6, &resolver).err().or(failed);
        }
        failed.map_or(Ok(()), Err)
    }

    fn publish(&mut self) {
        let ports = self.links.port_table(&self.tables);
        self.output.publish(forwarding(&self.tables, &self.hops, ports));
    }
}

/// The value to publish.
fn forwarding(tables: &Tables, hops: &NextHops, ports: PortTable) -> Forwarding {
    let (main, others) = tables.lookups();
    let (defaults, hops) = (hops.defaults(), hops.table().clone());
    let ports = Arc::new(ports);
    Forwarding { v4: main.v4, v6: main.v6, others: others.into(), defaults, hops, ports }
}

/// Whether a route table of ours may hold the prefix: link-local and multicast destinations are not routed.
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
mod resolver_tests;
#[cfg(test)]
#[cfg(not(loom))]
mod sweep_tests;
#[cfg(test)]
#[cfg(not(loom))]
mod tests;
#[cfg(test)]
#[cfg(not(loom))]
mod vrf_tests;
