//! FIB of one family: the one writer that keeps a lookup table in step with the RIB.
//!
//! It applies changes in place where the algorithm can, builds where it cannot, and takes the next algorithm
//! where even that fails; the table before keeps answering until its successor is ready. Its [`state`] changes
//! by one function: a table that lacks unlisted changes stays outdated until a build succeeded, and a failed
//! round always has a time of the next one. [`batch`] decides when changes are applied; until then they wait in
//! the [`backlog`]. Every decision is a line with its numbers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use fingerpost_lpm::{
    Addr, Algorithm, Change, Grace, Lookup, NextHopId, Prefix, Routes, TableStats, UpdateError,
};

pub mod audit;
pub mod backlog;
pub mod batch;
mod before;
mod beside;
mod calibrate;
mod changed;
pub mod choose;
mod decision;
pub mod options;
pub mod publish;
mod repair;
pub mod report;
mod served;
mod state;
pub(crate) mod sync;

pub use audit::{AuditCounts, Auditor, Difference, KernelLookup, Verified};
pub use backlog::Backlog;
pub use batch::{Batching, Due, Round};
pub use beside::{Job, Pieces, Runner};
pub use choose::{Choice, Chooser};
pub use decision::{Build, Decision, Severity};
pub use options::{FibOptionError, FibOptions};
pub use publish::{Publisher, Reader, Subscribe};
pub use report::FibReport;
pub use served::{KernelAhead, Shared};

use crate::Durations;
use beside::{Progress, Ready};
use calibrate::Calibration;
use changed::Changed;
use repair::Repair;
use served::Served;
use state::{Event, State};

/// Changes that are a larger share of the table than this are cheaper to build than to apply.
const REBUILD_SHARE: usize = 4;
/// Changes that are listed in any case; beyond both the table will be built, and they are counted instead.
const MOST_LISTED: usize = 65_536;
/// Most changes of a piece of a round, where the rest is left to the next commits.
const MOST_APPLIED: usize = 4096;
/// Fewest of them, however long they take; of a long list one of [`PIECES`], as each piece sorts and copies what waits.
const FEWEST_APPLIED: usize = 256;
/// Most pieces of a list.
const PIECES: usize = 128;
/// Time of such a piece, by what changes cost of late; less after a step of a build, down to a third.
const PIECE_TIME: Duration = Duration::from_millis(6);

/// One family's lookup table and its writer.
pub struct Fib<A: Addr> {
    options: FibOptions,
    chooser: Chooser<A>,
    calibration: Calibration<A>,
    served: Served<A>,
    backlog: Backlog<A>,
    state: State,
    batching: Batching,
    repair: Repair<A>,
    counts: FibCounts,
    decisions: Vec<Decision>,
}

/// Work of a FIB so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FibCounts {
    /// Changes applied in place.
    pub applied: u64,
    /// Tables built.
    pub builds: u64,
    /// Tables of these that another thread built.
    pub beside: u64,
    /// Builds and updates that failed.
    pub failures: u64,
    /// Duration of the latest build.
    pub last_build: Duration,
    /// Durations of all builds.
    pub build_times: Durations,
    /// Rounds in which changes became visible.
    pub rounds: u64,
    /// Most changes in one round.
    pub largest_round: u64,
    /// Duration of the latest round.
    pub last_round: Duration,
    /// Longest time from a change to the end of the round that made it visible.
    pub longest_delay: Duration,
    /// Times that the table was found wrong.
    pub distrusted: u64,
}

/// Result of [`Fib::commit`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Brought {
    /// Changes that became visible.
    pub changes: usize,
    /// There is a new lookup to publish.
    pub published: bool,
    /// Changes that are not visible yet.
    pub pending: usize,
}

/// Method of a round.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Method {
    Nothing,
    InPlace,
    Built,
    /// Built because the algorithm could not change it in place.
    Refused,
    /// A build was begun beside, or there is one: it will have the changes.
    Begun,
}

impl<A: Addr> Fib<A> {
    /// An empty FIB that chooses among `rows`.
    pub fn new(rows: impl IntoIterator<Item = &'static Algorithm<A>>) -> Self {
        let options = FibOptions::default();
        Self {
            options,
            chooser: Chooser::new(rows),
            calibration: Calibration::default(),
            served: Served::new(),
            backlog: Backlog::default(),
            state: State::Unusable,
            batching: Batching::new(options),
            repair: Repair::default(),
            counts: FibCounts::default(),
            decisions: Vec::new(),
        }
    }

    /// Builds in memory that a kernel reader can read, from the next commit on, and prefers algorithms
    /// that it can read. The user's choice stays above that.
    pub fn share(&mut self, shared: Shared) {
        self.chooser.favor(shared.reads);
        // It would be in other memory.
        self.served.beside.cancel();
        self.served.share(shared);
        self.unlist(Event::Invalidated);
    }

    /// Has large tables built by another thread, and large rounds done in pieces, from now on.
    pub fn build_beside(&mut self, runner: Runner) {
        self.served.beside.set_runner(runner);
    }

    /// Whether commits leave nothing to later ones, from now on: no build beside, no pieces.
    pub fn set_waits(&mut self, waits: bool) {
        self.served.beside.waits = waits;
    }

    /// Whether another thread builds a table, or the routes are copied for it, or a choice of an algorithm waits for the end
    /// of such a build.
    pub fn is_building(&self) -> bool {
        let waits = self.served.algorithm().is_some() && self.chooser.is_due();
        self.served.beside.is_active() || waits
    }

    /// Whether a step of a build beside, or a piece of a round, waits for the next commit.
    pub fn has_step(&self, now: Instant) -> bool {
        let is_due = |due: Option<Instant>| due.is_none_or(|due| due <= now);
        let piece = self.served.beside.pieces.1 > 0 && is_due(self.state.due());
        piece || self.served.beside.due().is_some_and(|due| due <= now)
    }

    /// Whether sources are to wait: a table that is built beside lacks very many changes, or they come nearly as fast as it
    /// catches up. It ends with the build, or before.
    pub fn holds_sources(&self) -> bool {
        self.served.beside.holds()
    }

    /// Replaces the options; validate them first.
    pub fn set_options(&mut self, options: FibOptions) {
        self.options = options;
        self.chooser.set_options(options);
        self.batching.set_options(options);
    }

    /// Options in use.
    pub fn options(&self) -> &FibOptions {
        &self.options
    }

    /// Uses this algorithm and no other, or chooses again by fitness (`None` or `auto`), or by calibration
    /// (`measured`), from the next commit on.
    ///
    /// # Errors
    /// The names that exist, when this is none of them.
    pub fn pin(&mut self, name: Option<&str>) -> Result<(), Vec<&'static str>> {
        if !self.chooser.pin(name) {
            return Err(self.chooser.names().collect());
        }
        self.state = self.state.next(Event::Chosen);
        self.calibration.cancel();
        Ok(())
    }

    /// How the algorithm is chosen.
    pub fn choice(&self) -> Choice {
        self.chooser.choice()
    }

    /// Notes that the best next hop of a prefix changed; it was `old`. Nothing is visible before a
    /// [`Fib::commit`], which may let it wait.
    pub fn note(&mut self, prefix: Prefix<A>, old: NextHopId) {
        self.backlog.push(prefix, old);
    }

    /// Changes that readers do not see yet.
    pub fn backlog(&self) -> &Backlog<A> {
        &self.backlog
    }

    /// Whether readers see everything that was noted, once they have the published lookup.
    pub fn caught_up(&self) -> bool {
        self.state.is_listed() && self.backlog.is_empty() && !self.served.beside.is_active()
    }

    /// Number of changes that were noted so far, for [`Fib::shows`].
    pub fn noted(&self) -> u64 {
        self.backlog.noted()
    }

    /// Whether readers see the first `noted` changes, or later ones of their prefixes, once they have the published lookup,
    /// or no algorithm can hold the table. Another table may be built meanwhile.
    pub fn shows(&self, noted: u64) -> bool {
        let settled = self.state.is_listed() && self.backlog.is_empty();
        self.state.failed_rounds() > 0 || settled || self.backlog.shows(noted)
    }

    /// Makes the next commit apply everything that was noted until then: a route of the host itself
    /// changed, or a table is complete.
    pub fn force(&mut self) {
        self.state = self.state.next(Event::Forced);
    }

    /// Changes that readers do not see yet, about: a prefix that changed twice may count twice.
    pub fn pending(&self) -> usize {
        self.backlog.len()
    }

    /// Time of the next commit that has something to do even without further changes.
    pub fn next_due(&self) -> Option<Instant> {
        self.state.due().into_iter().chain(self.served.beside.due()).min()
    }

    /// Makes what was noted visible if its time has come. `routes` hold it already, and `best` sets the new
    /// next hop of each change to the best of exactly its prefix.
    ///
    /// # Errors
    /// When no algorithm could hold the routes: the old table stays, and [`Fib::next_due`] is the time of
    /// the next attempt.
    pub fn commit(
        &mut self,
        best: impl Fn(&mut [Change<A>]),
        routes: &dyn Pieces<A>,
        grace: &mut dyn Grace,
        now: Instant,
    ) -> Result<Brought, UpdateError> {
        let begun = Instant::now();
        self.served.beside.record(self.backlog.fresh());
        let fresh = self.backlog.age();
        if !self.state.is_listed() {
            self.backlog.unlist(0);
        }
        if self.served.beside.is_active() {
            if self.served.beside.waits && !self.state.is_listed() {
                self.served.beside.cancel();
            } else if let Some(brought) = self.step_beside(&best, routes, now) {
                return Ok(brought);
            }
        }
        if self.state.is_paused(now) {
            return Ok(self.deferred());
        }
        let listed = self.backlog.listed();
        if listed > MOST_LISTED && listed > routes.prefixes() / REBUILD_SHARE {
            self.unlist(Event::Unlisted);
        }
        let unbuilt = self.served.algorithm().is_none();
        let at_once = unbuilt || self.chooser.is_due() || self.state.is_urgent();
        if let Due::At(at) = self.batching.offer(fresh, self.pending(), at_once, now) {
            self.state = self.state.next(Event::Deferred(at));
            return Ok(self.deferred());
        }
        let since = self.batching.diverged();
        let start = Instant::now();
        let urgent = self.state.is_urgent();
        let whole = self.served.beside.waits || self.served.beside.runner().is_none();
        let changes = match self.state.is_listed() {
            true if whole => self.backlog.take(usize::MAX, &best),
            true => self.backlog.take(self.piece(start - begun), &best),
            false => Vec::new(),
        };
        let count = changes.len() + self.backlog.unlisted();
        if !self.state.is_listed() {
            self.backlog.clear();
        }
        let before = self.served.lookup().clone();
        let method = self.bring(&changes, routes, grace, now)?;
        let cost = start.elapsed();
        if method == Method::Begun {
            return Ok(self.deferred());
        }
        let published = !Arc::ptr_eq(&before, self.served.lookup());
        let built = matches!(method, Method::Built | Method::Refused);
        // A table that was built has the rest as well.
        let brought = count + if built { self.backlog.len() } else { 0 };
        if built {
            self.backlog.clear();
        }
        let (cost, count) =
            (self.served.beside.pieces.0 + cost, self.served.beside.pieces.1 + brought);
        self.served.beside.pieces = (Duration::ZERO, 0);
        self.backlog.show_taken();
        if !self.backlog.is_empty() {
            let rest = if urgent { Event::Forced } else { Event::Deferred(now) };
            self.state = self.state.next(rest);
            self.served.beside.pieces = (cost, count.max(1));
            return Ok(Brought { changes: brought, published, pending: self.pending() });
        }
        self.backlog.show(self.backlog.noted());
        let refused = method == Method::Refused;
        let round = Round { cost, changes: count, built, refused, beside: false };
        self.batching.done(round, now + cost);
        if count > 0 {
            let waited = since.map_or(Duration::ZERO, |t| now.saturating_duration_since(t));
            self.counts.rounds += 1;
            self.counts.largest_round = self.counts.largest_round.max(count as u64);
            self.counts.last_round = cost;
            self.counts.longest_delay = self.counts.longest_delay.max(waited + cost);
        }
        if self.calibrate(routes, now) {
            self.state = self.state.next(Event::Done { again: Some(now) });
        }
        Ok(Brought { changes: brought, published, pending: 0 })
    }

    /// Number of changes of the next piece of a round, in a commit that took so long already.
    fn piece(&self, spent: Duration) -> usize {
        let time = PIECE_TIME.saturating_sub(spent).max(PIECE_TIME / 3);
        let changes = time.as_nanos() / self.batching.cost_per_change().as_nanos().max(1);
        let fewest = FEWEST_APPLIED.max(self.backlog.listed() / PIECES);
        usize::try_from(changes).unwrap_or(MOST_APPLIED).min(MOST_APPLIED).max(fewest)
    }

    /// Runs the next step of the build beside. Returns what it brought, or what waits for it; `None` where changes go to
    /// the present table meanwhile.
    fn step_beside(
        &mut self,
        best: &dyn Fn(&mut [Change<A>]),
        routes: &dyn Pieces<A>,
        now: Instant,
    ) -> Option<Brought> {
        match self.served.beside.step(routes, best, now) {
            Progress::Working if !self.state.is_listed() && self.served.beside.is_active() => {
                Some(self.deferred())
            }
            Progress::Working => None,
            Progress::Failed(algorithm, error) => {
                self.failed(algorithm, &error, now);
                None
            }
            // The present table has changes that this one cannot take. One that ran out of room has more the next time; for
            // one that takes no changes, or had too many of them, they wait once until it is there. Those that wait already
            // came behind some that readers may have.
            Progress::Ready(algorithm, ready, lacks)
                if !lacks.is_empty()
                    && (self.state.is_listed() || self.served.beside.overtaken) =>
            {
                self.served.beside.discard((ready, lacks));
                if self.served.beside.waits {
                    return None;
                }
                let shared = self.served.shared().cloned();
                let noted = self.backlog.noted();
                let listed = self.state.is_listed();
                if listed && self.served.beside.again(algorithm, shared.clone(), noted, now) {
                    return None;
                }
                self.served.beside.begin(algorithm, shared, noted, now);
                self.unlist(Event::Unlisted);
                Some(self.deferred())
            }
            Progress::Ready(algorithm, ready, lacks) => {
                Some(self.put(algorithm, *ready, lacks, now))
            }
        }
    }

    /// Takes over a table that was built beside, and lists what it lacks; the next table has them where those are too many.
    fn put(
        &mut self,
        algorithm: &'static Algorithm<A>,
        ready: Ready<A>,
        lacks: Changed<A>,
        now: Instant,
    ) -> Brought {
        let (count, lacking) = (self.pending(), lacks.len());
        let unlisted = lacking > MOST_LISTED;
        let mut olds = Vec::new();
        if unlisted {
            self.served.beside.discard(lacks);
        } else {
            let lacks = lacks.into_prefixes().into_iter();
            olds.extend(lacks.map(|prefix| (prefix, ready.hop(prefix))));
        }
        let Ready { table, routes, noted, took, .. } = ready;
        let before = self.served.put(algorithm, table);
        self.note_build(algorithm, before.as_ref().map(|(name, _)| *name), &routes.stats(), took);
        self.counts.beside += 1;
        self.served.beside.discard((before, routes));
        let changes = count.saturating_sub(lacking);
        let since = self.batching.diverged();
        if self.state.is_listed() {
            self.batching.replaced(took);
        } else {
            let (changes, refused) = (changes.max(1), lacking > 0);
            let round = Round { cost: took, changes, built: true, refused, beside: true };
            self.batching.done(round, now);
        }
        let shown = if lacking == 0 { self.backlog.noted() } else { noted };
        self.backlog.show(shown);
        self.finish(changes);
        self.counts.rounds += 1;
        let waited = since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        self.counts.longest_delay = self.counts.longest_delay.max(waited);
        olds.into_iter().for_each(|(prefix, old)| self.backlog.push(prefix, old));
        if unlisted {
            self.state = self.state.next(Event::Unlisted);
            self.backlog.unlist(lacking);
        }
        Brought { changes, published: true, pending: self.pending() }
    }

    /// Notes that the table is in step with the routes, after so many changes.
    fn finish(&mut self, changes: usize) {
        self.backlog.clear();
        self.backlog.clear_unlisted();
        self.served.beside.pieces = (Duration::ZERO, 0);
        self.counts.largest_round = self.counts.largest_round.max(changes as u64);
        self.state = self.state.next(Event::Done { again: None });
    }

    fn deferred(&self) -> Brought {
        Brought { changes: 0, published: false, pending: self.pending() }
    }

    /// Counts the changes that wait, from here on, instead of listing them: the table will be built.
    fn unlist(&mut self, why: Event) {
        self.state = self.state.next(why);
        self.backlog.unlist(0);
    }

    /// Brings the table in step with `routes`, which already hold `changes`, without delay. Returns
    /// whether there is a new lookup to publish; until then the old one stays valid.
    ///
    /// # Errors
    /// When no algorithm could hold the routes: the old table stays, and the next call tries again.
    pub fn apply(
        &mut self,
        changes: &[Change<A>],
        routes: &dyn Pieces<A>,
        grace: &mut dyn Grace,
        now: Instant,
    ) -> Result<bool, UpdateError> {
        let before = self.served.lookup().clone();
        self.served.beside.record(changes.iter().map(|change| change.prefix));
        self.bring(changes, routes, grace, now)?;
        Ok(!Arc::ptr_eq(&before, self.served.lookup()))
    }

    /// One round, and the state after it.
    fn bring(
        &mut self,
        changes: &[Change<A>],
        routes: &dyn Pieces<A>,
        grace: &mut dyn Grace,
        now: Instant,
    ) -> Result<Method, UpdateError> {
        let result = self.try_all(changes, routes, grace, now);
        if !matches!(result, Ok(Method::InPlace | Method::Nothing)) {
            // No piece follows.
            self.served.beside.pieces.1 = 0;
        }
        match &result {
            // A copy of the routes from now on has them.
            Ok(Method::Begun) => {
                self.backlog.unlist(changes.len());
                self.state = self.state.next(Event::Unlisted);
            }
            Ok(_) => {
                self.backlog.clear_unlisted();
                self.state = self.state.next(Event::Done { again: None });
            }
            Err(error) => {
                let pause = choose::pause(self.state.failed_rounds());
                self.state = self.state.next(Event::RoundFailed(now));
                self.backlog.unlist(changes.len());
                let ms = pause.as_millis();
                let line = format!("no algorithm can hold the table: {error}; again in {ms} ms");
                self.decide(Severity::Alarm, &line);
            }
        }
        result
    }

    fn try_all(
        &mut self,
        changes: &[Change<A>],
        routes: &dyn Pieces<A>,
        grace: &mut dyn Grace,
        now: Instant,
    ) -> Result<Method, UpdateError> {
        let current = self.served.algorithm();
        let better = match self.served.beside.is_active() && !self.served.beside.waits {
            // One build at a time.
            true => None,
            false => self.chooser.choose(current, changes.len(), &mut || routes.stats(), now),
        };
        if let Some(algorithm) = better
            && let Ok(true) = self.build(algorithm, routes, now)
        {
            return Ok(Method::Built);
        }
        let listed = self.state.is_listed();
        if changes.is_empty() && listed {
            return Ok(Method::Nothing);
        }
        let mut last = self.chooser.last_error().cloned().unwrap_or(UpdateError::Rebuild);
        let mut tried = false;
        if let Some(algorithm) = self.served.algorithm()
            && !self.chooser.is_banned(algorithm.name)
        {
            tried = true;
            let rebuild =
                !listed || changes.len() > 64 && changes.len() > routes.prefixes() / REBUILD_SHARE;
            let result = match rebuild {
                true => Err(UpdateError::Rebuild),
                false => {
                    // An error may leave some of them applied.
                    self.served.beside.overtaken |= !changes.is_empty();
                    self.served.change(changes, self.backlog.notes(), routes, grace)
                }
            };
            match result {
                Ok(()) => {
                    self.counts.applied += changes.len() as u64;
                    return Ok(Method::InPlace);
                }
                Err(UpdateError::Rebuild) => match self.build(algorithm, routes, now) {
                    Ok(true) => return Ok(if rebuild { Method::Built } else { Method::Refused }),
                    Ok(false) => return Ok(Method::Begun),
                    Err(error) => last = error,
                },
                Err(error) => {
                    self.failed(algorithm, &error, now);
                    last = error;
                }
            }
        }
        // The present algorithm failed: take the best that can hold the routes.
        while let Some(algorithm) = self.chooser.choose(None, 0, &mut || routes.stats(), now) {
            tried = true;
            match self.build(algorithm, routes, now) {
                Ok(true) => return Ok(Method::Built),
                Ok(false) => return Ok(Method::Begun),
                Err(error) => last = error,
            }
        }
        if !tried {
            // A table that nothing holds is worse than one more failure.
            self.chooser.pardon();
        }
        Err(last)
    }

    /// Builds a table, or has it built; whether it is there.
    fn build(
        &mut self,
        algorithm: &'static Algorithm<A>,
        routes: &dyn Pieces<A>,
        now: Instant,
    ) -> Result<bool, UpdateError> {
        if !self.served.beside.waits && self.served.beside.is_active() {
            return Ok(false);
        }
        // A kernel reader takes its time for small tables, too.
        let prepares = self.served.shared().is_some_and(|shared| shared.ahead.is_some());
        let beside =
            self.served.algorithm().is_some() && (prepares || routes.prefixes() >= beside::FEWEST);
        if beside && !self.served.beside.waits && self.served.beside.runner().is_some() {
            let (shared, noted) = (self.served.shared().cloned(), self.backlog.noted());
            self.served.beside.begin(algorithm, shared, noted, now);
            return Ok(false);
        }
        self.served.beside.cancel();
        self.build_now(algorithm, routes, now).map(|()| true)
    }

    fn build_now(
        &mut self,
        algorithm: &'static Algorithm<A>,
        routes: &dyn Routes<A>,
        now: Instant,
    ) -> Result<(), UpdateError> {
        let built = self
            .served
            .build(algorithm, routes)
            .inspect_err(|error| self.failed(algorithm, error, now))?;
        self.note_build(algorithm, built.before, &routes.stats(), built.took);
        Ok(())
    }

    /// Counts a build, and logs it where it is a decision.
    fn note_build(
        &mut self,
        algorithm: &'static Algorithm<A>,
        before: Option<&'static str>,
        stats: &TableStats,
        took: Duration,
    ) {
        self.chooser.built(algorithm.name);
        let chosen = before != Some(algorithm.name) || self.state.failed_rounds() > 0;
        let severity = if chosen { Severity::Choice } else { Severity::Routine };
        let (fitness, prefixes) = ((algorithm.fitness)(stats), stats.prefixes);
        let line = format!(
            "{} -> {}, fitness {fitness}, {prefixes} prefixes, built in {:.1} ms",
            before.unwrap_or("nothing"),
            algorithm.name,
            took.as_secs_f64() * 1e3,
        );
        let build = Build { before, algorithm: algorithm.name, fitness, prefixes, took };
        self.decide(severity, &line).build = Some(build);
        self.counts.builds += 1;
        self.counts.last_build = took;
        self.counts.build_times.add(took);
    }

    fn failed(&mut self, algorithm: &'static Algorithm<A>, error: &UpdateError, now: Instant) {
        self.counts.failures += 1;
        let verdict = self.chooser.failed(algorithm.name, error, now);
        self.decide(Severity::Alarm, &format!("{} {verdict}: {error}", algorithm.name));
    }

    /// Runs the next step of a calibration, if one is wanted; `true` while more steps follow.
    fn calibrate(&mut self, routes: &dyn Routes<A>, now: Instant) -> bool {
        let current = self.algorithm();
        let step = self.calibration.step(&mut self.chooser, &self.options, current, routes, now);
        if let Some(line) = step.decision {
            self.decide(Severity::Choice, &line);
        }
        step.more
    }

    fn decide(&mut self, severity: Severity, line: &str) -> &mut Decision {
        let text = format!("fib v{}: {line}", A::FAMILY);
        self.decisions.push_mut(Decision { family: A::FAMILY, severity, text, build: None })
    }

    /// Lookup for readers.
    pub fn lookup(&self) -> &Arc<dyn Lookup<A>> {
        self.served.lookup()
    }

    /// Name of the algorithm in use; `none` before the first build.
    pub fn algorithm(&self) -> &'static str {
        self.served.algorithm().map_or("none", |algorithm| algorithm.name)
    }

    /// Work so far.
    pub fn counts(&self) -> FibCounts {
        self.counts
    }

    /// Decisions since the last call.
    pub fn take_decisions(&mut self) -> Vec<Decision> {
        std::mem::take(&mut self.decisions)
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod beside_tests;
#[cfg(test)]
#[cfg(not(loom))]
mod tests;
#[cfg(test)]
#[cfg(not(loom))]
mod waiting_tests;
