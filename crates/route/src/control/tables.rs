//! Route tables: one RIB and one FIB a family each, the main table first.
//!
//! A route table is named by the kernel's number (the main one is 254). Beside one there may be a table of all its
//! paths ([`super::paths`]), which has a name of its own kind ([`TableId`]) and so no number that a user could take.
//! The packet path names tables by index, a *fib*: 0 for the main table, the others in the order in which they came. A
//! table is never removed, as in FreeBSD, so an index in a packet stays right.

use std::time::{Duration, Instant};

use fingerpost_lpm::{Addr, Algorithm, Grace, NextHopId, Prefix, UpdateError};

use crate::event::{AnyPrefix, MAIN_TABLE, TableId};
use crate::fib::audit::Allowance;
use crate::fib::{
    Brought, Decision, Fib, FibOptions, FibReport, KernelLookup, Pieces, Runner, Shared, Verified,
};
use crate::forwarding::FibLookup;
use crate::rib::{Candidate, Effect, Rib};

/// Most tables: their indexes travel with packets as 16 bits.
const MAX_TABLES: usize = 65_535;
/// Longest turn of an auditor. Without this bound, it could use what it has earned in a second at once.
const LONGEST_AUDIT: Duration = Duration::from_millis(2);

/// One family of one table: its routes and its lookup table.
pub(super) struct Family<A: Addr> {
    rib: Rib<A>,
    fib: Fib<A>,
}

impl<A: Addr> Family<A> {
    fn new(rows: &[&'static Algorithm<A>]) -> Self {
        Self { rib: Rib::default(), fib: Fib::new(rows.iter().copied()) }
    }

    pub(super) fn rib(&self) -> &Rib<A> {
        &self.rib
    }

    pub(super) fn fib(&self) -> &Fib<A> {
        &self.fib
    }

    fn insert(&mut self, prefix: Prefix<A>, candidate: Candidate, stamp: u8) -> Effect {
        let effect = self.rib.insert(prefix, candidate, stamp);
        self.note(prefix, &effect);
        effect
    }

    fn remove(&mut self, prefix: Prefix<A>, source: u16, metric: u32) -> Option<Effect> {
        let effect = self.rib.remove(prefix, source, metric)?;
        self.note(prefix, &effect);
        Some(effect)
    }

    fn note(&mut self, prefix: Prefix<A>, effect: &Effect) {
        if effect.old != effect.new {
            self.fib.note(prefix, effect.old);
        }
    }

    /// Makes changes visible whose time has come.
    fn commit(&mut self, grace: &mut dyn Grace, now: Instant) -> Result<Brought, UpdateError> {
        self.fib.commit(|changes| self.rib.best_of(changes), &self.rib, grace, now)
    }
}

/// One table.
pub(super) struct Table {
    id: TableId,
    v4: Family<u32>,
    v6: Family<u128>,
}

impl Table {
    pub(super) fn id(&self) -> TableId {
        self.id
    }

    /// Number of the route table.
    pub(super) fn number(&self) -> u32 {
        self.id.number()
    }

    pub(super) fn v4(&self) -> &Family<u32> {
        &self.v4
    }

    pub(super) fn v6(&self) -> &Family<u128> {
        &self.v6
    }

    pub(super) fn insert(&mut self, prefix: AnyPrefix, candidate: Candidate, stamp: u8) -> Effect {
        match prefix {
            AnyPrefix::V4(p) => self.v4.insert(p, candidate, stamp),
            AnyPrefix::V6(p) => self.v6.insert(p, candidate, stamp),
        }
    }

    pub(super) fn remove(&mut self, prefix: AnyPrefix, source: u16, metric: u32) -> Option<Effect> {
        match prefix {
            AnyPrefix::V4(p) => self.v4.remove(p, source, metric),
            AnyPrefix::V6(p) => self.v6.remove(p, source, metric),
        }
    }

    /// The stamp of the candidate of a source and metric.
    pub(super) fn stamp(&self, prefix: AnyPrefix, source: u16, metric: u32) -> Option<u8> {
        match prefix {
            AnyPrefix::V4(p) => self.v4.rib.stamp(p, source, metric),
            AnyPrefix::V6(p) => self.v6.rib.stamp(p, source, metric),
        }
    }

    /// The candidates of exactly this prefix, the best first.
    pub(super) fn candidates(&self, prefix: AnyPrefix) -> Vec<Candidate> {
        match prefix {
            AnyPrefix::V4(p) => self.v4.rib.of(p).collect(),
            AnyPrefix::V6(p) => self.v6.rib.of(p).collect(),
        }
    }

    /// The candidate of a source and metric.
    pub(super) fn find(&self, prefix: AnyPrefix, source: u16, metric: u32) -> Option<Candidate> {
        match prefix {
            AnyPrefix::V4(p) => self.v4.rib.find(p, source, metric),
            AnyPrefix::V6(p) => self.v6.rib.find(p, source, metric),
        }
    }

    /// Makes the next commit apply all changes of the prefix's family: an address or a route of the host
    /// itself must work as soon as it is set.
    pub(super) fn force(&mut self, prefix: AnyPrefix) {
        match prefix {
            AnyPrefix::V4(_) => self.v4.fib.force(),
            AnyPrefix::V6(_) => self.v6.fib.force(),
        }
    }

    fn build_beside(&mut self, runner: &Runner) {
        self.v4.fib.build_beside(runner.clone());
        self.v6.fib.build_beside(runner.clone());
    }

    fn share(&mut self, shared: &Shared, fib: usize) {
        let fib = u16::try_from(fib).expect("there are at most 65,535 tables");
        let shared = Shared { fib, ..shared.clone() };
        self.v4.fib.share(shared.clone());
        self.v6.fib.share(shared);
    }

    fn set_options(&mut self, options: FibOptions) {
        self.v4.fib.set_options(options);
        self.v6.fib.set_options(options);
    }

    fn lookup(&self) -> FibLookup {
        FibLookup {
            table: self.id,
            v4: self.v4.fib.lookup().clone(),
            v6: self.v6.fib.lookup().clone(),
        }
    }
}

/// Result of a commit of all tables.
#[derive(Default)]
pub(super) struct Applied {
    pub(super) changes: usize,
    /// There are new lookups to publish.
    pub(super) published: bool,
    /// Changes that are not visible yet.
    pub(super) pending: usize,
    /// Some table does not hold all of its routes.
    pub(super) behind: bool,
    pub(super) failed: Option<UpdateError>,
    pub(super) decisions: Vec<Decision>,
}

/// All tables; the main one always exists.
pub(super) struct Tables {
    all: Vec<Table>,
    v4: Vec<&'static Algorithm<u32>>,
    v6: Vec<&'static Algorithm<u128>>,
    options: FibOptions,
    shared: Option<Shared>,
    runner: Option<Runner>,
    /// Time that auditors may use.
    allowance: Allowance,
    /// Number of the next turn of an auditor: of each table IPv4, then IPv6.
    turn: usize,
}

impl Tables {
    pub(super) fn new(v4: Vec<&'static Algorithm<u32>>, v6: Vec<&'static Algorithm<u128>>) -> Self {
        let mut tables = Self {
            all: Vec::new(),
            v4,
            v6,
            options: FibOptions::default(),
            shared: None,
            runner: None,
            allowance: Allowance::default(),
            turn: 0,
        };
        tables.push(TableId::Routes(MAIN_TABLE));
        tables
    }

    fn push(&mut self, id: TableId) {
        let mut table = Table { id, v4: Family::new(&self.v4), v6: Family::new(&self.v6) };
        table.set_options(self.options);
        if let Some(runner) = &self.runner {
            table.build_beside(runner);
        }
        if let Some(shared) = self.shared.as_ref().filter(|_| is_shared(id)) {
            table.share(shared, self.all.len());
        }
        self.all.push(table);
    }

    /// Shares all FIBs, and those to come, with a kernel reader.
    pub(super) fn share(&mut self, shared: Shared) {
        let tables = self.all.iter_mut().enumerate().filter(|(_, table)| is_shared(table.id));
        tables.for_each(|(fib, table)| table.share(&shared, fib));
        self.shared = Some(shared);
    }

    /// Sets the options of all FIBs, and of those to come.
    pub(super) fn set_options(&mut self, options: FibOptions) {
        self.options = options;
        self.all.iter_mut().for_each(|table| table.set_options(options));
    }

    pub(super) fn main(&self) -> &Table {
        &self.all[0]
    }

    /// Index of a table.
    pub(super) fn fib(&self, id: impl Into<TableId>) -> Option<u16> {
        let id = id.into();
        let at = self.all.iter().position(|table| table.id == id)?;
        Some(u16::try_from(at).expect("there are at most 65,535 tables"))
    }

    /// Index of a table, which is made when there is none; `None` when there are too many.
    pub(super) fn add(&mut self, id: impl Into<TableId>) -> Option<u16> {
        let id = id.into();
        if self.fib(id).is_none() {
            if self.all.len() >= MAX_TABLES {
                return None;
            }
            self.push(id);
        }
        self.fib(id)
    }

    pub(super) fn get(&self, id: impl Into<TableId>) -> Option<&Table> {
        let id = id.into();
        self.all.iter().find(|table| table.id == id)
    }

    pub(super) fn get_mut(&mut self, id: impl Into<TableId>) -> Option<&mut Table> {
        let id = id.into();
        self.all.iter_mut().find(|table| table.id == id)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Table> {
        self.all.iter()
    }

    /// Sets the stamp of every candidate of a source.
    pub(super) fn restamp(&mut self, source: u16, new: impl Fn(u8) -> u8) {
        for table in &mut self.all {
            table.v4.rib.restamp(source, &new);
            table.v6.rib.restamp(source, &new);
        }
    }

    /// Route tables, without the tables of all paths.
    pub(super) fn routes(&self) -> impl Iterator<Item = &Table> {
        self.all.iter().filter(|table| matches!(table.id, TableId::Routes(_)))
    }

    /// Prefixes of a table, IPv4 first.
    pub(super) fn prefixes(&self, id: impl Into<TableId>) -> Vec<AnyPrefix> {
        let Some(table) = self.get(id) else { return Vec::new() };
        let v4 = table.v4.rib.prefixes_after(None).map(AnyPrefix::V4);
        v4.chain(table.v6.rib.prefixes_after(None).map(AnyPrefix::V6)).collect()
    }

    /// Has tables built by another thread from now on.
    pub(super) fn build_beside(&mut self, runner: Runner) {
        self.all.iter_mut().for_each(|table| table.build_beside(&runner));
        self.runner = Some(runner);
    }

    /// Whether commits wait until all is visible, from now on.
    pub(super) fn set_waits(&mut self, waits: bool) {
        for table in &mut self.all {
            table.v4.fib.set_waits(waits);
            table.v6.fib.set_waits(waits);
        }
    }

    /// Whether builds or pieces of a round are left to the next commits.
    pub(super) fn has_steps(&self, now: Instant) -> bool {
        self.all.iter().any(|t| t.v4.fib.has_step(now) || t.v6.fib.has_step(now))
    }

    /// Whether sources are to wait: changes come faster than a table that is being built can have them.
    pub(super) fn hold_sources(&self) -> bool {
        self.all.iter().any(|table| table.v4.fib.holds_sources() || table.v6.fib.holds_sources())
    }

    /// Whether a table is being built by another thread.
    pub(super) fn is_building(&self) -> bool {
        self.all.iter().any(|table| table.v4.fib.is_building() || table.v6.fib.is_building())
    }

    /// Numbers of changes of every FIB so far: of each table IPv4, then IPv6.
    pub(super) fn noted(&self) -> Vec<[u64; 2]> {
        self.all.iter().map(|table| [table.v4.fib.noted(), table.v6.fib.noted()]).collect()
    }

    /// Whether readers see these changes, or no later commit can show them.
    pub(super) fn shows(&self, noted: &[[u64; 2]]) -> bool {
        let mut all = self.all.iter().zip(noted);
        all.all(|(table, [v4, v6])| table.v4.fib.shows(*v4) && table.v6.fib.shows(*v6))
    }

    /// Whether readers see all routes.
    pub(super) fn caught_up(&self) -> bool {
        self.all.iter().all(|table| table.v4.fib.caught_up() && table.v6.fib.caught_up())
    }

    /// Makes the next commit apply all changes.
    pub(super) fn force(&mut self) {
        for table in &mut self.all {
            table.v4.fib.force();
            table.v6.fib.force();
        }
    }

    /// Time of the next commit that has something to do without further changes.
    pub(super) fn next_due(&self) -> Option<Instant> {
        let fibs = self.all.iter().flat_map(|t| [t.v4.fib.next_due(), t.v6.fib.next_due()]);
        fibs.flatten().min()
    }

    /// Makes changes visible whose time has come.
    pub(super) fn commit(&mut self, grace: &mut dyn Grace, now: Instant) -> Applied {
        let mut applied = Applied::default();
        for table in &mut self.all {
            for result in [table.v4.commit(grace, now), table.v6.commit(grace, now)] {
                match result {
                    Ok(brought) => {
                        applied.changes += brought.changes;
                        applied.published |= brought.published;
                    }
                    Err(error) => applied.failed = applied.failed.or(Some(error)),
                }
            }
            applied.pending += table.v4.fib.pending() + table.v6.fib.pending();
            applied.behind |= !table.v4.fib.caught_up() || !table.v6.fib.caught_up();
            applied.decisions.extend(table.v4.fib.take_decisions());
            applied.decisions.extend(table.v6.fib.take_decisions());
        }
        applied
    }

    /// Lookups of the main table, and of the others in the order of their indexes.
    pub(super) fn lookups(&self) -> (FibLookup, Vec<FibLookup>) {
        (self.main().lookup(), self.all.iter().skip(1).map(Table::lookup).collect())
    }

    /// Pins the algorithm of a family (4 or 6) of the main table, or (`None`) lets it be chosen.
    pub(super) fn pin(&mut self, family: u8, name: Option<&str>) -> Result<(), Vec<&'static str>> {
        let main = &mut self.all[0];
        if family == 4 { main.v4.fib.pin(name) } else { main.v6.fib.pin(name) }
    }

    /// State of every FIB: of each table IPv4, then IPv6.
    pub(super) fn reports(&self, now: Instant) -> Vec<FibReport> {
        let both = |t: &Table| [t.v4.fib.report(&t.v4.rib, now), t.v6.fib.report(&t.v6.rib, now)];
        self.all.iter().flat_map(both).collect()
    }

    /// One turn of the auditor of the next FIB, for the share of a core that the time since the last call
    /// earned.
    pub(super) fn audit(&mut self, now: Instant, kernel_reader: Option<&dyn KernelLookup>) {
        let share = self.options.audit_share_bp;
        let Some(budget) = self.allowance.at(now, share) else { return };
        let budget = budget.min(LONGEST_AUDIT);
        let start = Instant::now();
        if self.audit_turn(budget, kernel_reader) {
            self.turn = (self.turn + 1) % (2 * self.all.len());
        }
        self.allowance.spent(start.elapsed());
    }

    /// Whether the turn is over.
    fn audit_turn(&mut self, budget: Duration, kernel_reader: Option<&dyn KernelLookup>) -> bool {
        let clock = &mut Instant::now;
        let at = self.turn / 2;
        let fib = u16::try_from(at).expect("fibs are counted in 16 bits");
        let Table { v4, v6, .. } = &mut self.all[at];
        match self.turn % 2 {
            0 => v4.fib.audit(&v4.rib, &|| kernel_reader?.v4(fib), budget, clock),
            _ => v6.fib.audit(&v6.rib, &|| kernel_reader?.v6(fib), budget, clock),
        }
    }

    /// Compares every FIB with its routes; of each the first `limit` differences.
    pub(super) fn verify(&self, limit: usize) -> Vec<Verified> {
        let both =
            |t: &Table| [t.v4.fib.verify(&t.v4.rib, limit), t.v6.fib.verify(&t.v6.rib, limit)];
        self.all.iter().flat_map(both).collect()
    }

    /// Takes over the differences of other auditors; whether there were any.
    pub(super) fn adopt(
        &mut self,
        id: TableId,
        v4: &crate::fib::Auditor<u32>,
        v6: &crate::fib::Auditor<u128>,
        kernel_reader: Option<&dyn KernelLookup>,
    ) -> bool {
        let Some((fib, table)) = self.fib(id).zip(self.get_mut(id)) else { return false };
        let found = table.v4.fib.adopt(v4, &table.v4.rib, &|| kernel_reader?.v4(fib));
        table.v6.fib.adopt(v6, &table.v6.rib, &|| kernel_reader?.v6(fib)) | found
    }
}

impl<A: Addr> Pieces<A> for Rib<A> {
    fn piece(&self, after: Option<Prefix<A>>, most: usize, into: &mut Vec<(Prefix<A>, NextHopId)>) {
        self.copy_after(after, most, into);
    }
}

/// Whether a kernel reader reads the table: the XDP datapath forwards by best routes and by nothing else.
fn is_shared(id: TableId) -> bool {
    matches!(id, TableId::Routes(_))
}
