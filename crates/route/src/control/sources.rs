//! Sources of routes: their names, distances and counts, and the present dump of each.

use std::collections::HashSet;
use std::fmt::Display;
use std::net::IpAddr;

use super::sweep::{Sweep, Withdrawals};
use super::tables::Tables;
use crate::event::{AnyPrefix, RouteKey};
use crate::nexthop::NextHops;

/// Source of the host's own addresses and connected prefixes.
pub(super) const HOST: SourceId = SourceId(0);
/// Source of learned neighbors as host routes.
pub(super) const NEIGHBOR: SourceId = SourceId(1);
/// Distance of learned neighbors: any other route wins.
const NEIGHBOR_DISTANCE: u8 = 254;

/// Number of a source, as [`super::Control::add_source`] returned it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SourceId(pub(super) u16);

impl SourceId {
    /// Index in [`super::Control::sources`].
    pub fn index(self) -> usize {
        self.0.into()
    }
}

/// Work of a source so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceReport {
    /// Its name.
    pub name: String,
    /// Administrative distance of its routes unless they have their own; lower wins.
    pub distance: u8,
    /// Routes that it has in the RIB.
    pub routes: u64,
    /// New routes, replacements and withdrawals that it has sent, also those that changed nothing.
    pub updates: u64,
    /// Complete tables that it has sent: ends of dumps, End-of-RIB markers, ends that were found by the clock.
    pub tables: u64,
    /// A table is being sent, and is not complete.
    pub dumping: bool,
    /// Routes that were refused.
    pub refused: u64,
    /// Error of the latest refused route; empty without one.
    pub last_refusal: String,
}

/// How much a source may set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceLimits {
    /// Most routes of one dump and the changes after it. Those of earlier dumps, which wait to be repeated or withdrawn,
    /// are as many at most.
    pub routes: usize,
    /// Most tables that there are for its routes alone; they stay when these are gone.
    pub tables: usize,
}

/// Stamps have 8 bits, so they are renumbered after so many dumps, completed or abandoned: then none is further than 127
/// from the present one. A storm that overruns a netlink socket abandons thousands of dumps in a second.
const RENUMBER_AFTER: u8 = 100;

/// Whether a stamp is of a dump before this one.
fn is_before(stamp: u8, dump: u8) -> bool {
    (1..128).contains(&dump.wrapping_sub(stamp))
}

/// One source.
#[derive(Debug)]
pub(super) struct Source {
    report: SourceReport,
    /// Number of the present dump, to find what a dump does not repeat.
    stamp: u8,
    /// Number of the latest complete dump.
    ended: u8,
    /// Dumps since the stamps were renumbered.
    dumps: u8,
    /// Contents of the present dump so far.
    dump: Option<Dump>,
    /// Refused routes since they were last taken, of a source that wants to know.
    refusals: Option<Vec<RouteKey>>,
    limits: Option<SourceLimits>,
    /// Routes of the present dump and since.
    present: u64,
    /// Tables that were made for its routes.
    tables: usize,
}

/// Links, addresses, neighbors and objects of a dump.
#[derive(Debug, Default)]
pub(super) struct Dump {
    pub(super) links: HashSet<u32>,
    /// Each with its link and its connected prefix.
    pub(super) addresses: HashSet<(u32, IpAddr, AnyPrefix)>,
    pub(super) neighbors: HashSet<(u32, IpAddr)>,
    pub(super) objects: HashSet<u32>,
}

/// All sources, those of the control side itself first, and the withdrawals that wait.
#[derive(Debug)]
pub(super) struct Sources {
    all: Vec<Source>,
    sweep: Sweep,
}

impl Default for Sources {
    fn default() -> Self {
        let mut sources = Self { all: Vec::new(), sweep: Sweep::default() };
        sources.add("host", 0);
        sources.add("neighbor", NEIGHBOR_DISTANCE);
        sources
    }
}

impl Sources {
    pub(super) fn add(&mut self, name: &str, distance: u8) -> SourceId {
        let id = u16::try_from(self.all.len()).expect("sources are configured one by one");
        let report = SourceReport {
            name: name.to_owned(),
            distance,
            routes: 0,
            updates: 0,
            tables: 0,
            dumping: false,
            refused: 0,
            last_refusal: String::new(),
        };
        self.all.push(Source {
            report,
            stamp: 0,
            ended: 0,
            dumps: 0,
            dump: None,
            refusals: None,
            limits: None,
            present: 0,
            tables: 0,
        });
        SourceId(id)
    }

    pub(super) fn get(&self, id: SourceId) -> &Source {
        &self.all[id.index()]
    }

    pub(super) fn get_mut(&mut self, id: SourceId) -> &mut Source {
        &mut self.all[id.index()]
    }

    pub(super) fn reports(&self) -> impl Iterator<Item = &SourceReport> {
        self.all.iter().map(|source| &source.report)
    }

    /// Withdrawals that wait.
    pub(super) fn sweep(&self) -> &Sweep {
        &self.sweep
    }

    /// Withdrawals that wait, to add to them.
    pub(super) fn sweep_mut(&mut self) -> &mut Sweep {
        &mut self.sweep
    }

    /// Finds the routes of the next step of the sweep.
    pub(super) fn sweep_step(&mut self, tables: &Tables, hops: &NextHops) -> Withdrawals {
        let mut sweep = std::mem::take(&mut self.sweep);
        let withdrawals = sweep.step(tables, hops, self);
        self.sweep = sweep;
        withdrawals
    }
}

impl Source {
    pub(super) fn report(&self) -> &SourceReport {
        &self.report
    }

    pub(super) fn distance(&self) -> u8 {
        self.report.distance
    }

    /// Number of the present dump, kept with each route.
    pub(super) fn stamp(&self) -> u8 {
        self.stamp
    }

    /// The present dump.
    pub(super) fn dump(&mut self) -> Option<&mut Dump> {
        self.dump.as_mut()
    }

    pub(super) fn is_dumping(&self) -> bool {
        self.dump.is_some()
    }

    /// Begins a dump. Where the stamps of routes must be renumbered first, returns the new stamp of each.
    pub(super) fn begin_dump(&mut self) -> Option<impl Fn(u8) -> u8 + use<>> {
        let renumbered = (self.dumps == RENUMBER_AFTER).then(|| {
            let ended = self.ended;
            (self.dumps, self.stamp) = (0, ended);
            move |stamp| if is_before(stamp, ended) { ended.wrapping_sub(1) } else { ended }
        });
        self.dumps += 1;
        self.present = 0;
        self.stamp = self.stamp.wrapping_add(1);
        self.dump = Some(Dump::default());
        self.report.dumping = true;
        renumbered
    }

    /// Completes the present dump; `None` without one.
    pub(super) fn end_dump(&mut self) -> Option<Dump> {
        let dump = self.dump.take()?;
        self.ended = self.stamp;
        self.report.dumping = false;
        self.report.tables += 1;
        Some(dump)
    }

    /// Whether a route with this stamp was missing from a later dump that is complete.
    pub(super) fn is_stale(&self, stamp: u8) -> bool {
        is_before(stamp, self.ended)
    }

    /// Counts a route with the present stamp, in the place of one with this stamp or of none.
    pub(super) fn count_inserted(&mut self, replaced: Option<u8>) {
        self.report.routes += u64::from(replaced.is_none());
        self.present += u64::from(replaced != Some(self.stamp));
    }

    /// Counts a route with this stamp that is gone.
    pub(super) fn count_removed(&mut self, stamp: Option<u8>) {
        self.report.routes -= 1;
        self.present -= u64::from(stamp == Some(self.stamp));
    }

    /// Counts a new or withdrawn route.
    pub(super) fn count_update(&mut self) {
        self.report.updates += 1;
    }

    /// Notes the keys of refused routes from now on.
    pub(super) fn note_refusals(&mut self) {
        self.refusals.get_or_insert_default();
    }

    /// Notes the key of a refused route, if that is wanted.
    pub(super) fn note_refusal(&mut self, key: RouteKey) {
        if let Some(keys) = &mut self.refusals {
            keys.push(key);
        }
    }

    /// Keys of refused routes since the last call.
    pub(super) fn take_refusals(&mut self) -> Vec<RouteKey> {
        self.refusals.as_mut().map(std::mem::take).unwrap_or_default()
    }

    pub(super) fn limit(&mut self, limits: SourceLimits) {
        self.limits = Some(limits);
    }

    /// Why the source may not have a route, which has this stamp if it is there; `None` where it may.
    pub(super) fn full(&self, stamp: impl FnOnce() -> Option<u8>) -> Option<&'static str> {
        let most = self.limits?.routes as u64;
        let (full, crowded) = (self.present >= most, self.report.routes >= most.saturating_mul(2));
        if !full && !crowded {
            return None;
        }
        // What was there before the dump counts once it is repeated.
        let may = match stamp() {
            Some(stamp) => stamp == self.stamp || !full,
            None => false,
        };
        (!may).then_some("a route too many (the limit is max_prefixes)")
    }

    /// Why no further table is made for its routes; `None` where one is.
    pub(super) fn full_of_tables(&self) -> Option<&'static str> {
        let most = self.limits?.tables;
        (self.tables >= most).then_some("a table too many (the limit is max_tables)")
    }

    /// Counts a table that was made for a route of it.
    pub(super) fn count_table(&mut self) {
        self.tables += 1;
    }

    /// Counts a route that cannot be taken.
    pub(super) fn refuse(&mut self, why: &dyn Display) {
        self.report.refused += 1;
        self.report.last_refusal = why.to_string();
    }
}
