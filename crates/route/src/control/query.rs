//! Queries of the control side: routes, next hops, sources, notices and snapshots, for commands and audits.
//!
//! Source: FreeBSD's `fib4_lookup_rt` and `fib6_lookup_rt` (sys/netinet/in_fib.c), which search the RIB
//! itself and return the route as well as its next hop. Differs: any table, all candidates of the prefix.

use std::net::IpAddr;
use std::time::{Instant, SystemTime};

use fingerpost_lpm::{Addr, Prefix, Routes, UpdateError};

use super::expiry::Ends;
use super::journal::{Gap, Happened, Notice, Requested, Takeover};
use super::objects::HopView;
use super::routes::key_of;
use super::snapshot::{RouteRow, SnapshotError, SnapshotId};
use super::sources::{NEIGHBOR, SourceId, SourceReport};
use super::{Control, Family, LOCAL_TABLE, forwarded};
use crate::event::{
    AddressUpdate, AnyPrefix, LinkState, NextHopUpdate, RouteKey, RouteUpdate, TableId,
};
use crate::fib::{Auditor, Decision, Fib, FibReport, KernelLookup, Verified};
use crate::forwarding::Forwarding;
use crate::nexthop::NextHops;
use crate::rib::{Candidate, Rib};

/// A prefix of the RIB with its candidates.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RouteFound {
    /// The prefix.
    pub prefix: AnyPrefix,
    /// Its candidates, the best first, which forwards.
    pub candidates: Vec<Candidate>,
}

impl Control {
    /// The route of packets to an address by the RIB: the longest prefix of a table that holds it.
    /// `None` where there is no such table.
    pub fn lookup_route(&self, table: u32, addr: IpAddr) -> Option<RouteFound> {
        let table = self.tables.get(table)?;
        let prefix = match addr {
            IpAddr::V4(a) => AnyPrefix::V4(table.v4().rib().best(a.to_bits())?.0),
            IpAddr::V6(a) => AnyPrefix::V6(table.v6().rib().best(a.to_bits())?.0),
        };
        Some(RouteFound { prefix, candidates: table.candidates(prefix) })
    }

    /// The longest prefix of a table by which an address is routed; host routes of neighbors do not count, since they
    /// come and go within a connected prefix.
    pub fn routed_prefix(&self, table: impl Into<TableId>, addr: IpAddr) -> Option<AnyPrefix> {
        fn longest<A: Addr>(rib: &Rib<A>, addr: A) -> Option<Prefix<A>> {
            let learned = |candidate: Candidate| candidate.source == NEIGHBOR.0;
            let covering = rib.covering(Prefix::host(addr));
            covering.filter(|prefix| !rib.of(*prefix).all(learned)).last()
        }
        let table = self.tables.get(table)?;
        Some(match addr {
            IpAddr::V4(a) => AnyPrefix::V4(longest(table.v4().rib(), a.to_bits())?),
            IpAddr::V6(a) => AnyPrefix::V6(longest(table.v6().rib(), a.to_bits())?),
        })
    }

    /// The prefixes of a table that cover `prefix`, itself included, the shortest first.
    pub fn covering(&self, table: u32, prefix: AnyPrefix) -> Vec<RouteFound> {
        let Some(table) = self.tables.get(table) else { return Vec::new() };
        let found = |prefix| RouteFound { prefix, candidates: table.candidates(prefix) };
        let (v4, v6) = (table.v4().rib(), table.v6().rib());
        match prefix {
            AnyPrefix::V4(p) => v4.covering(p).map(|p| found(AnyPrefix::V4(p))).collect(),
            AnyPrefix::V6(p) => v6.covering(p).map(|p| found(AnyPrefix::V6(p))).collect(),
        }
    }

    /// The candidates of exactly this prefix in a table, the best first.
    pub fn candidates(&self, table: u32, prefix: AnyPrefix) -> Vec<Candidate> {
        self.tables.get(table).map_or(Vec::new(), |table| table.candidates(prefix))
    }

    /// Whether a route of this key is taken at all: routes to the host itself follow from its addresses, and link-local and
    /// multicast destinations are not routed.
    pub fn takes(key: &RouteKey) -> bool {
        key.table != LOCAL_TABLE && forwarded(key.prefix)
    }

    /// Whether the RIB has a route of a source as this update has it, for comparisons with what the source has. Costs a
    /// search of the prefix.
    pub fn has_route(&self, source: SourceId, update: &RouteUpdate) -> bool {
        let Some(present) = self.present(source, &update.key) else { return false };
        let mut target = update.target.clone();
        self.settle_links(&update.key, &mut target);
        let want = key_of(source, update.key.prefix, &target);
        let mtu = if want.leads_out() { update.mtu } else { 0 };
        !self.hops.is_orphan(present)
            && self.hops.key(present) == Some(&want)
            && self.mtu_of(present) == mtu
    }

    /// Whether the RIB has any route of a source with this key.
    pub fn has_key(&self, source: SourceId, key: &RouteKey) -> bool {
        self.present(source, key).is_some()
    }

    /// Whether a source has next-hop objects.
    pub fn has_objects(&self, source: SourceId) -> bool {
        self.objects.any(source.0)
    }

    /// Whether a source has a next-hop object as this update has it.
    pub fn has_object(&self, source: SourceId, update: &NextHopUpdate) -> bool {
        self.objects.get(source.0, update.id) == Some(&update.target)
    }

    /// Names of the tables, the main one first: an index here is a fib.
    pub fn tables(&self) -> Vec<TableId> {
        self.tables.iter().map(super::tables::Table::id).collect()
    }

    /// The IPv4 and IPv6 routes of a table, if there is such a table.
    pub fn ribs(&self, table: impl Into<TableId>) -> Option<(&Rib<u32>, &Rib<u128>)> {
        self.tables.get(table).map(|table| (table.v4().rib(), table.v6().rib()))
    }

    /// The IPv4 and IPv6 FIBs of a table, if there is such a table.
    pub fn fibs(&self, table: impl Into<TableId>) -> Option<(&Fib<u32>, &Fib<u128>)> {
        self.tables.get(table).map(|table| (table.v4().fib(), table.v6().fib()))
    }

    fn main(&self) -> (&Family<u32>, &Family<u128>) {
        (self.tables.main().v4(), self.tables.main().v6())
    }

    /// IPv4 routes of the main table.
    pub fn rib_v4(&self) -> &Rib<u32> {
        self.main().0.rib()
    }

    /// IPv6 routes of the main table.
    pub fn rib_v6(&self) -> &Rib<u128> {
        self.main().1.rib()
    }

    /// IPv4 FIB of the main table.
    pub fn fib_v4(&self) -> &Fib<u32> {
        self.main().0.fib()
    }

    /// IPv6 FIB of the main table.
    pub fn fib_v6(&self) -> &Fib<u128> {
        self.main().1.fib()
    }

    /// State of every FIB: of each table IPv4, then IPv6, the main table first.
    pub fn fib_reports(&self, now: Instant) -> Vec<FibReport> {
        self.tables.reports(now)
    }

    /// One turn of the auditor of the next FIB, for the share of a core that the time since the
    /// last call earned. Call it between commits; the next one builds wrong tables again. A
    /// kernel reader is audited too, if there is one.
    pub fn audit(&mut self, now: Instant, kernel_reader: Option<&dyn KernelLookup>) {
        self.tables.audit(now, kernel_reader);
    }

    /// Makes everything visible and compares all lookups with the routes: a result a FIB,
    /// in the order of [`Control::fib_reports`], with the first `limit` differences each. Takes as long
    /// as a pass of the auditor on a whole core.
    ///
    /// # Errors
    /// [`Control::commit`] has them.
    pub fn verify(&mut self, limit: usize, now: Instant) -> Result<Vec<Verified>, UpdateError> {
        self.commit_now(now)?;
        Ok(self.tables.verify(limit))
    }

    /// Takes over the differences that other auditors found in a table ([`Fib::adopt`]).
    /// Whether there were any; the next commit builds the table again.
    pub fn adopt(
        &mut self,
        table: impl Into<TableId>,
        v4: &Auditor<u32>,
        v6: &Auditor<u128>,
        kernel_reader: Option<&dyn KernelLookup>,
    ) -> bool {
        self.tables.adopt(table.into(), v4, v6, kernel_reader)
    }

    /// Next hops and groups.
    pub fn next_hops(&self) -> &NextHops {
        &self.hops
    }

    /// Next hops together with the objects that they name.
    pub fn hop_view(&self) -> HopView<'_> {
        HopView::new(&self.hops, &self.objects)
    }

    /// Every link with its port number and state.
    pub fn links(&self) -> impl Iterator<Item = (u32, u16, &LinkState)> {
        self.links.iter().map(|(link, entry)| (link, entry.port(), entry.state()))
    }

    /// The host's own addresses.
    pub fn addresses(&self) -> impl Iterator<Item = &AddressUpdate> {
        self.links.addresses()
    }

    /// Number of changes of the host's own addresses, for users of [`Control::local_addresses`].
    pub fn address_changes(&self) -> u64 {
        self.links.address_changes()
    }

    /// Addresses of packets for the host itself: its own, and the broadcast addresses of their prefixes. They are
    /// as the last event left them, whether visible to readers or not.
    pub fn local_addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.addresses().flat_map(AddressUpdate::local)
    }

    /// Work of the sources so far.
    pub fn sources(&self) -> impl Iterator<Item = SourceReport> + '_ {
        self.sources.reports().cloned()
    }

    /// Work of one source.
    pub fn source(&self, id: SourceId) -> &SourceReport {
        self.sources.get(id).report()
    }

    /// Ends of all paths that have one.
    pub fn ends(&self) -> Ends {
        self.expiry.ends()
    }

    /// The published value.
    pub fn forwarding(&self) -> impl std::ops::Deref<Target = Forwarding> + Clone + use<> {
        self.output.value()
    }

    /// Sets the time of notices from now on.
    pub fn set_time(&mut self, now: SystemTime) {
        self.journal.set_time(now);
    }

    /// Notes a change of an interface that its driver reports. `mode` is the mode or the reason.
    pub fn note_interface(
        &mut self,
        name: &str,
        takeover: Takeover,
        path: &'static str,
        mode: &str,
    ) {
        let (name, mode) = (name.into(), mode.into());
        self.journal.note(Happened::Interface { name, takeover, path, mode });
    }

    /// Notes a request of a user for a change.
    pub fn note_request(&mut self, requested: Requested) {
        self.journal.note(Happened::Request(Box::new(requested)));
    }

    /// Notes what was done with a configuration.
    pub fn note_configuration(&mut self, number: u64, done: &'static str, text: &str) {
        self.journal.note(Happened::Configuration { number, done, text: text.into() });
    }

    /// Number of the latest notice; 0 before the first.
    pub fn sequence(&self) -> u64 {
        self.journal.sequence()
    }

    /// The notices after number `since`, the oldest first.
    ///
    /// # Errors
    /// [`Gap`] when some of them are no longer kept, or `since` is of another run's time: it lies ahead.
    pub fn notices(&self, since: u64) -> Result<impl Iterator<Item = &Notice>, Gap> {
        self.journal.after(since)
    }

    /// Decisions since the last call.
    pub fn take_decisions(&mut self) -> Vec<Decision> {
        self.journal.take_decisions()
    }

    /// Opens a view of the routes that a table holds at this moment: one family (4 or 6), all prefixes or
    /// those that `within` covers. Close it, or read it to its end.
    ///
    /// # Errors
    /// [`SnapshotError::NoTable`] and [`SnapshotError::TooMany`].
    pub fn open_snapshot(
        &mut self,
        table: u32,
        family: u8,
        within: Option<AnyPrefix>,
    ) -> Result<SnapshotId, SnapshotError> {
        self.snapshots.open(table, family, within, &self.tables)
    }

    /// Visits the routes of up to `most` further prefixes, in order. `false` when these were the last: the
    /// snapshot is closed then. Next-hop objects lead to the paths of this moment.
    ///
    /// # Errors
    /// [`SnapshotError`]; the snapshot is closed then.
    pub fn read_snapshot(
        &mut self,
        id: SnapshotId,
        most: usize,
        visit: &mut dyn FnMut(HopView<'_>, RouteRow),
    ) -> Result<bool, SnapshotError> {
        let parts = (&self.tables, &mut self.hops, &self.objects);
        self.snapshots.read(id, most, parts, visit)
    }

    /// Closes a snapshot, if it is open.
    pub fn close_snapshot(&mut self, id: SnapshotId) {
        self.snapshots.close(id, &mut self.hops);
    }
}
