//! The FIB of one family: the one writer that keeps a lookup table in step with the RIB.
//!
//! It applies changes in place where the algorithm can, builds anew where it cannot, and goes to the
//! next algorithm where even that fails; what answered before answers on until its successor is ready.
//! The mark that the lookup is behind stays until a build has succeeded, and a failed round always has
//! a time at which it is tried again. When changes are applied is [`batch`]'s decision; until then they
//! wait in a [`backlog`]. Every decision is a line with its numbers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use fingerpost_lpm::{
    Addr, Algorithm, Change, Grace, HugePages, Lookup, Memory, MemoryMaker, NextHopId, Prefix,
    Region, Routes, Step, Table, UpdateError,
};

pub mod audit;
pub mod backlog;
pub mod batch;
pub mod choose;
pub mod measure;
pub mod options;
pub mod publish;
pub mod report;
pub(crate) mod sync;

pub use audit::{AuditCounts, Auditor, Difference, KernelLookup, Verified};
pub use backlog::Backlog;
pub use batch::{Batching, Due, Round};
pub use choose::{Choice, Chooser};
pub use options::{FibOptionError, FibOptions};
pub use publish::{Publisher, Reader, Subscribe};
pub use report::FibReport;

use measure::{BuildCosts, Trial};

/// Changes that are a larger share of the table than this are cheaper to build than to apply.
const REBUILD_SHARE: usize = 4;
/// Changes of a piece, where there is no room for all at once: old and new stand side by side until readers
/// are past.
const PIECE: usize = 64;
/// How long a piece waits for them: some batches of packets.
const PIECE_GRACE: Duration = Duration::from_micros(500);
/// As many changes are listed in any case; beyond both the table will be built, and they are not.
const MOST_LISTED: usize = 65_536;

/// What all FIBs share with a reader outside.
#[derive(Clone)]
pub struct Shared {
    /// Memory that it can read. Where there is no more of it the maker falls back to other memory: the
    /// reader outside sees that and does without.
    pub memory: MemoryMaker,
    /// Whether it can read tables of this algorithm.
    pub reads: fn(&str) -> bool,
}

/// One family's lookup table and its writer.
pub struct Fib<A: Addr> {
    chooser: Chooser<A>,
    /// With whom the table is shared, besides the readers here.
    shared: Option<Shared>,
    options: FibOptions,
    current: Option<Current<A>>,
    lookup: Arc<dyn Lookup<A>>,
    /// The lookup does not show all of the RIB, and what it lacks is not listed: build.
    stale: bool,
    /// What the lookup lacks, unless it is stale.
    backlog: Backlog<A>,
    /// Changes that were not listed because the table will be built.
    missed: usize,
    /// Changes since the last commit.
    fresh: usize,
    /// Do not wait with the next round.
    forced: bool,
    batching: Batching,
    due: Option<Instant>,
    failures_in_row: u32,
    retry_at: Option<Instant>,
    last_error: Option<UpdateError>,
    /// Builds and changes at the time when a distrusted table had been built again, until the auditor
    /// found it right.
    rebuilt_at: Option<(u64, u64)>,
    auditor: Auditor<A>,
    trial: Option<Trial<A>>,
    build_costs: BuildCosts,
    decisions: Vec<String>,
    counts: FibCounts,
}

/// Changes a table in place; where that finds no room, in pieces, each of which gives back what it took before
/// the next one. An error leaves the pieces before it done: the caller builds.
fn change<A: Addr>(
    table: &mut dyn Table<A>,
    changes: &[Change<A>],
    routes: &dyn Routes<A>,
    grace: &mut dyn Grace,
) -> Result<(), UpdateError> {
    let whole = table.apply(changes, routes, grace);
    if whole != Err(UpdateError::Rebuild) || changes.len() <= PIECE {
        return whole;
    }
    for piece in changes.chunks(PIECE) {
        table.apply(piece, routes, grace)?;
        let (epoch, start) = (grace.retire(), Instant::now());
        while !grace.passed(epoch) && start.elapsed() < PIECE_GRACE {
            std::hint::spin_loop();
        }
    }
    Ok(())
}

struct Current<A: Addr> {
    algorithm: &'static Algorithm<A>,
    table: Box<dyn Table<A>>,
}

/// What the writer did so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FibCounts {
    /// Changes applied in place.
    pub applied: u64,
    /// Tables built.
    pub builds: u64,
    /// Builds and updates that failed.
    pub failures: u64,
    /// How long the latest build took.
    pub last_build: Duration,
    /// Rounds in which changes were made visible.
    pub rounds: u64,
    /// Most changes in one round.
    pub largest_round: u64,
    /// How long the latest round took.
    pub last_round: Duration,
    /// Longest time from a change to the end of the round that made it visible.
    pub longest_delay: Duration,
    /// Times that the table was found to answer wrongly.
    pub distrusted: u64,
}

/// What [`Fib::commit`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Brought {
    /// Changes that became visible.
    pub changes: usize,
    /// Readers must be given the new lookup.
    pub published: bool,
    /// Changes that are not visible yet.
    pub pending: usize,
}

/// How a round went.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Method {
    Nothing,
    InPlace,
    Built,
    /// Built because the algorithm could not change it in place.
    Refused,
}

impl<A: Addr> Fib<A> {
    /// Empty, choosing among `rows`.
    pub fn new(rows: impl IntoIterator<Item = &'static Algorithm<A>>) -> Self {
        let options = FibOptions::default();
        Self {
            chooser: Chooser::new(rows),
            shared: None,
            options,
            current: None,
            lookup: Arc::new(Nothing),
            stale: true,
            backlog: Backlog::default(),
            missed: 0,
            fresh: 0,
            forced: false,
            batching: Batching::new(options),
            due: None,
            failures_in_row: 0,
            retry_at: None,
            last_error: None,
            rebuilt_at: None,
            auditor: Auditor::default(),
            trial: None,
            build_costs: BuildCosts::new(),
            decisions: Vec::new(),
            counts: FibCounts::default(),
        }
    }

    /// Builds in memory that a reader outside can read, from the next commit on, and prefers algorithms
    /// that it knows. A choice of the user's stays above that.
    pub fn share(&mut self, shared: Shared) {
        self.chooser.favor(shared.reads);
        self.shared = Some(shared);
        self.give_up_the_list();
    }

    /// Other knobs from now on; validate them first.
    pub fn set_options(&mut self, options: FibOptions) {
        self.options = options;
        self.chooser.set_options(options);
        self.batching.set_options(options);
    }

    /// The knobs.
    pub fn options(&self) -> &FibOptions {
        &self.options
    }

    /// Uses this algorithm and no other, or chooses again by fitness (`None` or `auto`), or by a trial
    /// (`measured`), from the next commit on.
    ///
    /// # Errors
    /// The names there are, when this is none of them.
    pub fn pin(&mut self, name: Option<&str>) -> Result<(), Vec<&'static str>> {
        if !self.chooser.pin(name) {
            return Err(self.chooser.names().collect());
        }
        (self.retry_at, self.trial) = (None, None);
        Ok(())
    }

    /// How the algorithm is chosen.
    pub fn choice(&self) -> Choice {
        self.chooser.choice()
    }

    /// The best next hop of a prefix changed; it was `old`. Nothing is visible before a
    /// [`Fib::commit`], which may let it wait.
    pub fn note(&mut self, prefix: Prefix<A>, old: NextHopId) {
        self.fresh += 1;
        if self.stale {
            self.missed += 1;
        } else {
            self.backlog.push(prefix, old);
        }
    }

    /// Notes all of `newer`, and empties it.
    pub fn note_all(&mut self, newer: &mut Backlog<A>) {
        self.fresh += newer.len();
        if self.stale {
            self.missed += newer.len();
            newer.clear();
        } else {
            self.backlog.append(newer);
        }
    }

    /// Whether readers see everything that was noted, once they have the published lookup.
    pub fn caught_up(&self) -> bool {
        !self.stale && self.pending() == 0
    }

    /// The next commit makes everything visible that was noted until then: a route of the host itself
    /// changed, or a table ended.
    pub fn force(&mut self) {
        self.forced = true;
    }

    /// Changes that readers do not see yet, about: a prefix that changed twice may count twice.
    pub fn pending(&self) -> usize {
        self.missed + self.backlog.len()
    }

    /// When a commit has something to do even if nothing more is noted.
    pub fn next_due(&self) -> Option<Instant> {
        self.due
    }

    /// Makes what was noted visible if its time has come. `routes` hold it already, and `best` sets the new
    /// next hop of each change to the best of exactly its prefix.
    ///
    /// # Errors
    /// When no algorithm could hold the routes: the old table stays, and [`Fib::next_due`] tells when
    /// it is tried again.
    pub fn commit(
        &mut self,
        best: impl FnOnce(&mut [Change<A>]),
        routes: &dyn Routes<A>,
        grace: &mut dyn Grace,
        now: Instant,
    ) -> Result<Brought, UpdateError> {
        let fresh = std::mem::take(&mut self.fresh);
        let forced = std::mem::take(&mut self.forced);
        if let Some(at) = self.retry_at
            && now < at
        {
            return Ok(self.waiting(at));
        }
        let listed = self.backlog.len();
        if listed > MOST_LISTED && listed > routes.prefixes() / REBUILD_SHARE {
            self.give_up_the_list();
        }
        let at_once = forced || self.current.is_none() || self.chooser.asked() || self.urgent();
        match self.batching.offer(fresh, self.pending(), at_once, now) {
            Due::At(at) => return Ok(self.waiting(at)),
            Due::Now | Due::Never => {}
        }
        let since = self.batching.diverged();
        let start = Instant::now();
        let changes = if self.stale { Vec::new() } else { self.backlog.changes(best) };
        let count = changes.len() + self.missed;
        let before = self.lookup.clone();
        let method = self.bring(&changes, routes, grace, now)?;
        let cost = start.elapsed();
        self.backlog.clear();
        let built = matches!(method, Method::Built | Method::Refused);
        let round = Round { cost, changes: count, built, refused: method == Method::Refused };
        self.batching.done(round, now + cost);
        if count > 0 {
            let waited = since.map_or(Duration::ZERO, |t| now.saturating_duration_since(t));
            self.counts.rounds += 1;
            self.counts.largest_round = self.counts.largest_round.max(count as u64);
            self.counts.last_round = cost;
            self.counts.longest_delay = self.counts.longest_delay.max(waited + cost);
        }
        if self.try_out(routes, now) {
            self.due = Some(now);
        }
        let published = !Arc::ptr_eq(&before, &self.lookup);
        Ok(Brought { changes: count, published, pending: 0 })
    }

    fn waiting(&mut self, until: Instant) -> Brought {
        self.due = Some(until);
        Brought { changes: 0, published: false, pending: self.pending() }
    }

    /// So much changed that the table will be built: it need not be told what.
    fn give_up_the_list(&mut self) {
        self.stale = true;
        self.missed += self.backlog.len();
        self.backlog.clear();
    }

    /// Whether the present table must not wait for its successor.
    fn urgent(&self) -> bool {
        self.stale && self.missed == 0
    }

    /// Brings the table in step with `routes`, which already hold `changes`, without waiting. Returns
    /// whether readers must be given a new lookup; until they have it, the old one answers as before.
    ///
    /// # Errors
    /// When no algorithm could hold the routes: the old table stays, and the next call tries again.
    pub fn apply(
        &mut self,
        changes: &[Change<A>],
        routes: &dyn Routes<A>,
        grace: &mut dyn Grace,
        now: Instant,
    ) -> Result<bool, UpdateError> {
        let before = self.lookup.clone();
        self.bring(changes, routes, grace, now)?;
        Ok(!Arc::ptr_eq(&before, &self.lookup))
    }

    /// One round, and what follows from how it ended.
    fn bring(
        &mut self,
        changes: &[Change<A>],
        routes: &dyn Routes<A>,
        grace: &mut dyn Grace,
        now: Instant,
    ) -> Result<Method, UpdateError> {
        let result = self.try_all(changes, routes, grace, now);
        match &result {
            Ok(_) => {
                self.missed = 0;
                self.failures_in_row = 0;
                (self.retry_at, self.due) = (None, None);
            }
            Err(error) => {
                // The mark stays until a build succeeds, and there is always a next try.
                self.missed += changes.len();
                self.stale = true;
                self.backlog.clear();
                let pause = choose::pause(self.failures_in_row);
                self.failures_in_row += 1;
                (self.retry_at, self.due) = (Some(now + pause), Some(now + pause));
                self.decide(&format!(
                    "no algorithm can hold the table: {error}; again in {} ms",
                    pause.as_millis()
                ));
            }
        }
        result
    }

    fn try_all(
        &mut self,
        changes: &[Change<A>],
        routes: &dyn Routes<A>,
        grace: &mut dyn Grace,
        now: Instant,
    ) -> Result<Method, UpdateError> {
        let current = self.current.as_ref().map(|c| c.algorithm);
        let better = self.chooser.choose(current, changes.len(), &mut || routes.stats(), now);
        if let Some(algorithm) = better {
            if self.build(algorithm, routes, now).is_ok() {
                return Ok(Method::Built);
            }
        }
        if changes.is_empty() && !self.stale {
            return Ok(Method::Nothing);
        }
        let mut last = self.last_error.clone().unwrap_or(UpdateError::Rebuild);
        let mut tried = false;
        if let Some(current) = &mut self.current
            && !self.chooser.is_banned(current.algorithm.name)
        {
            tried = true;
            let algorithm = current.algorithm;
            let rebuild = self.stale
                || changes.len() > 64 && changes.len() > routes.prefixes() / REBUILD_SHARE;
            let result = if rebuild {
                Err(UpdateError::Rebuild)
            } else {
                change(&mut *current.table, changes, routes, grace)
            };
            match result {
                Ok(()) => {
                    self.counts.applied += changes.len() as u64;
                    self.lookup = current.table.publish();
                    return Ok(Method::InPlace);
                }
                Err(UpdateError::Rebuild) => match self.build(algorithm, routes, now) {
                    Ok(()) => return Ok(if rebuild { Method::Built } else { Method::Refused }),
                    Err(error) => last = error,
                },
                Err(error) => {
                    self.failed(algorithm, &error, now);
                    last = error;
                }
            }
        }
        // The present one cannot go on: take the best that can.
        self.stale = true;
        while let Some(algorithm) = self.chooser.choose(None, 0, &mut || routes.stats(), now) {
            tried = true;
            match self.build(algorithm, routes, now) {
                Ok(()) => return Ok(Method::Built),
                Err(error) => last = error,
            }
        }
        if !tried {
            // A table that nothing holds is worse than one more failure.
            self.chooser.pardon();
        }
        Err(last)
    }

    fn build(
        &mut self,
        algorithm: &'static Algorithm<A>,
        routes: &dyn Routes<A>,
        now: Instant,
    ) -> Result<(), UpdateError> {
        let start = Instant::now();
        let mut memory: Box<dyn Memory> = match &self.shared {
            Some(shared) => shared.memory.make(),
            None => Box::new(HugePages::new()),
        };
        let mut table = algorithm
            .build(routes, &mut *memory)
            .inspect_err(|error| self.failed(algorithm, error, now))?;
        self.lookup = table.publish();
        let took = start.elapsed();
        self.chooser.built(algorithm.name);
        let was = self.current.replace(Current { algorithm, table }).map(|c| c.algorithm.name);
        if was != Some(algorithm.name) || self.failures_in_row > 0 {
            let stats = routes.stats();
            self.decide(&format!(
                "{} -> {}, fitness {}, {} prefixes, built in {:.1} ms",
                was.unwrap_or("nothing"),
                algorithm.name,
                (algorithm.fitness)(&stats),
                stats.prefixes,
                took.as_secs_f64() * 1e3,
            ));
        }
        self.counts.builds += 1;
        self.counts.last_build = took;
        self.stale = false;
        Ok(())
    }

    fn failed(&mut self, algorithm: &'static Algorithm<A>, error: &UpdateError, now: Instant) {
        self.counts.failures += 1;
        self.last_error = Some(error.clone());
        let name = algorithm.name;
        match error {
            UpdateError::Limit { .. } => {
                self.chooser.ban(name);
                self.decide(&format!("{name} given up: {error}"));
            }
            _ => {
                self.chooser.pause(name, now);
                self.decide(&format!("{name} paused: {error}"));
            }
        }
    }

    /// The table answers wrongly: build it again, at the next commit. If it was built for that very
    /// reason and nothing changed since, the algorithm itself is at fault and is given up.
    pub fn distrust(&mut self, why: &str) {
        let Some(current) = &self.current else { return };
        let name = current.algorithm.name;
        self.counts.distrusted += 1;
        if self.rebuilt_at == Some((self.counts.builds, self.counts.applied)) {
            self.chooser.ban(name);
            self.decide(&format!("{name} given up: freshly built, {why}"));
        } else {
            self.decide(&format!("{name} is built again: {why}"));
        }
        self.rebuilt_at = Some((self.counts.builds + 1, self.counts.applied));
        self.give_up_the_list();
        self.forced = true;
    }

    /// A turn of the auditor; `true` when it is somebody else's turn. A difference is logged and counted,
    /// and orders a rebuild; once that is visible, what was different is asked for again. `kernel_reader` gives
    /// the lookup of a reader outside, if there is one that reads this table.
    pub fn audit(
        &mut self,
        routes: &dyn Routes<A>,
        kernel_reader: &dyn Fn() -> Option<Arc<dyn Lookup<A>>>,
        budget: Duration,
        clock: &mut dyn FnMut() -> Instant,
    ) -> bool {
        if self.stale {
            self.auditor.leave_out();
            return true;
        }
        let kernel_reader = kernel_reader();
        let kernel_reader = kernel_reader.as_deref();
        if !self.look_again(routes, kernel_reader) {
            return true;
        }
        let turn =
            self.auditor.step(routes, &*self.lookup, kernel_reader, &self.backlog, budget, clock);
        if turn.differs {
            self.distrust_what_is_known();
        }
        turn.ended || turn.differs
    }

    /// Asks again for what was wrong before the latest repair; whether all of it is right.
    fn look_again(
        &mut self,
        routes: &dyn Routes<A>,
        kernel_reader: Option<&dyn Lookup<A>>,
    ) -> bool {
        let known = self.auditor.known().count();
        if known == 0 {
            return true;
        }
        let still = self.auditor.recheck(routes, &*self.lookup, kernel_reader);
        if still > 0 {
            let first = self.auditor.known().next().expect("some stand");
            self.distrust(&format!("still wrong, {first}"));
            return false;
        }
        self.rebuilt_at = None;
        self.decide(&format!("{known} addresses that were wrong are right again"));
        true
    }

    fn distrust_what_is_known(&mut self) {
        let found = self.auditor.known().count();
        let first = self.auditor.known().next().expect("one was just found");
        self.distrust(&format!("{found} addresses are wrong, {first}"));
    }

    /// Compares the whole table with `routes`, and keeps the first `limit` differences. Changes that
    /// are not applied yet count as differences.
    pub fn verify(&self, routes: &dyn Routes<A>, limit: usize) -> Verified {
        audit::verify(routes, &*self.lookup, limit, &mut Instant::now)
    }

    /// Lets an auditor of somebody else's compare for as long as `budget`: what it finds is repaired only
    /// when it is handed to [`Fib::adopt`]. `kernel_reader` answers in place of the published lookup: a reader
    /// outside, of the same table. `true` at the end of its pass.
    pub fn audit_with(
        &self,
        auditor: &mut Auditor<A>,
        kernel_reader: Option<&dyn Lookup<A>>,
        routes: &dyn Routes<A>,
        budget: Duration,
    ) -> bool {
        let lookup = kernel_reader.unwrap_or(&*self.lookup);
        auditor.step(routes, lookup, None, &self.backlog, budget, &mut Instant::now).ended
    }

    /// Treats what an auditor of somebody else's found, and what still is so, as a find of our own: it is
    /// counted, logged, and built again by the next commit. Whether there was anything.
    pub fn adopt(
        &mut self,
        other: &Auditor<A>,
        routes: &dyn Routes<A>,
        kernel_reader: &dyn Fn() -> Option<Arc<dyn Lookup<A>>>,
    ) -> bool {
        // What is behind as a whole is built in any case.
        if self.stale || !self.look_again(routes, kernel_reader().as_deref()) {
            return false;
        }
        let news = self.auditor.adopt(other, routes, &*self.lookup, &self.backlog);
        if news > 0 {
            self.distrust_what_is_known();
        }
        news > 0
    }

    /// What the auditor found so far.
    pub fn auditor(&self) -> &Auditor<A> {
        &self.auditor
    }

    fn decide(&mut self, line: &str) {
        self.decisions.push(format!("fib v{}: {line}", A::FAMILY));
    }

    /// What readers should use now.
    pub fn lookup(&self) -> &Arc<dyn Lookup<A>> {
        &self.lookup
    }

    /// Name of the algorithm in use; `none` before the first build.
    pub fn algorithm(&self) -> &'static str {
        self.current.as_ref().map_or("none", |c| c.algorithm.name)
    }

    /// What was done so far.
    pub fn counts(&self) -> FibCounts {
        self.counts
    }

    /// Decisions since the last call, a line each.
    pub fn take_decisions(&mut self) -> Vec<String> {
        std::mem::take(&mut self.decisions)
    }
}

/// The answer before there is a table: no route.
struct Nothing;

impl<A: Addr> Lookup<A> for Nothing {
    fn lookup(&self, _: A) -> NextHopId {
        NextHopId::NONE
    }
    fn lookup_batch(&self, addrs: &[A], out: &mut [NextHopId]) {
        out[..addrs.len()].fill(NextHopId::NONE);
    }
    fn explain(&self, _: A, _: &mut dyn FnMut(&Step)) -> NextHopId {
        NextHopId::NONE
    }
    fn stats(&self, _: &mut dyn FnMut(&'static str, u64)) {}
    fn regions(&self) -> &[Region] {
        &[]
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests;
