//! Builds beside the writer: the routes are copied a piece at a time, another thread builds a table of the copy, and the
//! changes since are written to it before readers get it.
//!
//! A prefix is in the copy with a next hop that it had while the copy was made. Every prefix that changed since the
//! copy began is recorded by the commit that follows, and written to the copy and the new table with the next hop of then; so a table without
//! recorded prefixes left is in step with the routes. A table that does not take them is handed over with the prefixes that it lacks, if
//! the one before it lacks them as well; after [`TRIES`] builds changes wait so that it does.
//!
//! A step takes longer where changes come in bulk, up to a limit: else a storm that fills the writer's time would let the
//! copy take seconds, and the table lack more at each step than it catches up with. What the limit leaves undone has the
//! sources wait ([`Beside::holds`]): while it catches up it must write [`PROGRESS`] places for each [`PROGRESS`] - 1 that come.
//!
//! Shape:  a list of prefixes and next hops, which the other thread makes a store of; lists of changed prefixes.
//! Cost:   [`STEP`] to [`LONGEST_STEP`], or [`CATCH_UP`] to [`LONGEST_CATCH_UP`], a commit of the writer's thread; 12 bytes a prefix,
//!         and the store while the build runs.
//! Limits: tables of fewer than [`FEWEST`] prefixes are built by the writer, unless a kernel reader prepares for each
//!         ([`KernelAhead`](super::KernelAhead)).

use std::fmt;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::{Duration, Instant};

use fingerpost_lpm::{
    Addr, Algorithm, Change, HugePages, Lookup, Memory, NextHopId, NoReaders, Prefix, RouteStore,
    Routes, Table, UpdateError,
};

use super::Shared;
use super::changed::Changed;

/// Fewest prefixes of a table that is built beside: smaller ones take a millisecond or two.
pub(super) const FEWEST: usize = 8192;
/// Time of a step that copies.
const STEP: Duration = Duration::from_micros(300);
/// Such a time where changes come in bulk: [`COPY_SHARE`] for each of them, which is what they took of the writer's time.
const LONGEST_STEP: Duration = Duration::from_millis(4);
const COPY_SHARE: Duration = Duration::from_micros(1);
/// Time of a step that catches up, unless it can be the last one.
const CATCH_UP: Duration = Duration::from_millis(2);
/// Such a time where changes come in bulk: to catch up with a change takes longer than to take it.
const LONGEST_CATCH_UP: Duration = Duration::from_millis(6);
const CATCH_UP_SHARE: Duration = Duration::from_micros(2);
/// Places of changes from which on sources wait. To catch up with so many takes some tenths of a second. A prefix that
/// changed several times may have two places ([`Changed`]); what sources have sent when they begin to wait comes in addition.
pub(super) const MOST_BEHIND: usize = 131_072;
/// Progress of steps that catch up: of so many places that they write, one is more than what came, or sources wait. So all
/// of them write at most so many times what the first one found.
const PROGRESS: usize = 4;
/// Changes that one step takes in any case, so that a storm does not keep a table waiting.
const FEW: usize = 1024;
/// Prefixes that are copied between two looks at the clock.
const COPIED: usize = 1024;
/// Changes that are applied together: few enough for the room of a structure.
const APPLIED: usize = 64;
/// Builds in a row whose tables do not take the changes since, before these wait for the next one.
const TRIES: u32 = 3;
/// Time between two looks for a build that runs.
const LOOK: Duration = Duration::from_millis(5);

/// Work for another thread.
pub type Job = Box<dyn FnOnce() + Send>;

/// What has another thread work.
#[derive(Clone)]
pub struct Runner(Arc<dyn Fn(Job) + Send + Sync>);

impl fmt::Debug for Runner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Runner")
    }
}

impl Runner {
    /// One that hands each job to `run`, which returns before it is done.
    pub fn new(run: impl Fn(Job) + Send + Sync + 'static) -> Self {
        Self(Arc::new(run))
    }

    /// Has this done elsewhere.
    pub fn run(&self, job: impl FnOnce() + Send + 'static) {
        (self.0)(Box::new(job));
    }
}

/// Routes that can be copied a piece at a time.
pub trait Pieces<A: Addr>: Routes<A> {
    /// Adds at most `most` routes that follow `after` in the order of a walk; the first ones after `None`.
    fn piece(&self, after: Option<Prefix<A>>, most: usize, into: &mut Vec<(Prefix<A>, NextHopId)>);
}

impl<A: Addr> Pieces<A> for RouteStore<A> {
    fn piece(&self, after: Option<Prefix<A>>, most: usize, into: &mut Vec<(Prefix<A>, NextHopId)>) {
        let routes = after.map_or_else(|| self.iter(), |after| self.iter_after(after));
        into.extend(routes.take(most).map(|(prefix, hop)| (prefix, *hop)));
    }
}

/// The present build, if there is one, and what commits leave to later ones.
pub(super) struct Beside<A: Addr> {
    runner: Option<Runner>,
    work: Option<Work<A>>,
    /// Builds in a row that did not take the changes since.
    tries: u32,
    /// Commits leave nothing to later ones.
    pub(super) waits: bool,
    /// The present table had changes in place since the build began: one that lacks changes may lack these.
    pub(super) overtaken: bool,
    /// Cost and changes of the pieces of the present round so far.
    pub(super) pieces: (Duration, usize),
}

struct Work<A: Addr> {
    algorithm: &'static Algorithm<A>,
    shared: Option<Shared>,
    /// Number of changes that were noted before.
    noted: u64,
    /// Prefixes that changed since they were copied.
    changed: Changed<A>,
    /// How many of them came since the last step.
    arrived: usize,
    /// Places of changes that were left when steps of catching up last made progress.
    mark: usize,
    /// Places that they wrote since.
    caught: usize,
    /// Sources are to wait.
    holds: bool,
    stage: Stage<A>,
    due: Instant,
}

enum Stage<A: Addr> {
    Copying(Vec<(Prefix<A>, NextHopId)>),
    Building(Receiver<Result<Box<Ready<A>>, UpdateError>>),
    CatchingUp(Box<Ready<A>>),
    /// The kernel reader prepares for the table once more, which has other memory since it caught up.
    Preparing(Box<Ready<A>>, Receiver<()>),
}

/// A table, and the routes that it has.
pub(super) struct Ready<A: Addr> {
    pub(super) table: Box<dyn Table<A>>,
    pub(super) routes: RouteStore<A>,
    /// The copy has this many changes that were noted, or later ones of their prefixes.
    pub(super) noted: u64,
    pub(super) took: Duration,
    /// Lookup that the kernel reader has prepared for.
    known: Option<Arc<dyn Lookup<A>>>,
    /// Number of preparations.
    preparations: u32,
}

/// Result of a step.
pub(super) enum Progress<A: Addr> {
    /// There is nothing to do, or more to come.
    Working,
    /// The algorithm cannot hold the routes, or there is no memory.
    Failed(&'static Algorithm<A>, UpdateError),
    /// A table that lacks these prefixes, which it cannot take; none, where it can.
    Ready(&'static Algorithm<A>, Box<Ready<A>>, Changed<A>),
}

impl<A: Addr> Default for Beside<A> {
    fn default() -> Self {
        let pieces = (Duration::ZERO, 0);
        Self { runner: None, work: None, tries: 0, waits: false, overtaken: false, pieces }
    }
}

impl<A: Addr> Beside<A> {
    /// Builds elsewhere from now on.
    pub(super) fn set_runner(&mut self, runner: Runner) {
        self.runner = Some(runner);
    }

    pub(super) fn runner(&self) -> Option<&Runner> {
        self.runner.as_ref()
    }

    /// Whether a build is in progress.
    pub(super) fn is_active(&self) -> bool {
        self.work.is_some()
    }

    /// Whether sources are to wait: changes come faster than the table that is being built can have them, or it lacks more than
    /// [`MOST_BEHIND`] places of them.
    pub(super) fn holds(&self) -> bool {
        self.work.as_ref().is_some_and(|work| work.holds)
    }

    /// Places of the changes that the table being built lacks.
    #[cfg(test)]
    pub(super) fn lacks(&self) -> usize {
        self.work.as_ref().map_or(0, |work| work.changed.len())
    }

    /// Has the thread that builds drop this: to return the memory of a table takes milliseconds.
    pub(super) fn discard(&self, what: impl Send + 'static) {
        if let Some(runner) = &self.runner {
            runner.run(move || drop(what));
        }
    }

    /// Time of the next step.
    pub(super) fn due(&self) -> Option<Instant> {
        self.work.as_ref().map(|work| work.due)
    }

    /// Begins a build after `noted` changes, in memory that a kernel reader can read where there is one.
    pub(super) fn begin(
        &mut self,
        algorithm: &'static Algorithm<A>,
        shared: Option<Shared>,
        noted: u64,
        now: Instant,
    ) {
        let (changed, stage) = (Changed::default(), Stage::Copying(Vec::new()));
        let work = Work {
            algorithm,
            shared,
            noted,
            changed,
            arrived: 0,
            mark: usize::MAX,
            caught: 0,
            holds: false,
            stage,
            due: now,
        };
        self.overtaken = false;
        if let Some(before) = self.work.replace(work) {
            self.discard(before);
        }
    }

    /// Begins once more, unless that was tried [`TRIES`] times.
    pub(super) fn again(
        &mut self,
        algorithm: &'static Algorithm<A>,
        shared: Option<Shared>,
        noted: u64,
        now: Instant,
    ) -> bool {
        self.tries += 1;
        if self.tries < TRIES {
            self.begin(algorithm, shared, noted, now);
            return true;
        }
        self.tries = 0;
        false
    }

    /// Drops the present build.
    pub(super) fn cancel(&mut self) {
        if let Some(work) = self.work.take() {
            self.discard(work);
        }
    }

    /// Records changed prefixes, where a build is in progress. Those that are still to be copied are left out: the copy
    /// will have the next hops of then.
    pub(super) fn record(&mut self, prefixes: impl Iterator<Item = Prefix<A>>) {
        let Some(work) = &mut self.work else { return };
        let arrived = match &work.stage {
            Stage::Copying(copy) => {
                let last = copy.last().map(|(prefix, _)| *prefix);
                let mut all = 0;
                let copied = |prefix: &Prefix<A>| {
                    all += 1;
                    last.is_some_and(|last| *prefix <= last)
                };
                work.changed.extend(prefixes.filter(copied));
                all
            }
            _ => work.changed.extend(prefixes),
        };
        work.arrived += arrived;
    }

    /// Runs the next step. `best` sets the next hop of each change to the best of now.
    pub(super) fn step(
        &mut self,
        routes: &dyn Pieces<A>,
        best: &dyn Fn(&mut [Change<A>]),
        now: Instant,
    ) -> Progress<A> {
        let Some((mut work, runner)) = self.work.take().zip(self.runner.as_ref()) else {
            return Progress::Working;
        };
        let arrived = u32::try_from(std::mem::take(&mut work.arrived)).unwrap_or(u32::MAX);
        let start = Instant::now();
        let until = start + COPY_SHARE.saturating_mul(arrived).clamp(STEP, LONGEST_STEP);
        work.stage = match work.stage {
            Stage::Copying(mut copy) => loop {
                if copy.is_empty() {
                    copy.reserve_exact(routes.prefixes());
                }
                let before = copy.len();
                routes.piece(copy.last().map(|(prefix, _)| *prefix), COPIED, &mut copy);
                if copy.len() == before {
                    break Stage::Building(build(
                        runner,
                        work.algorithm,
                        work.shared.clone(),
                        copy,
                        work.noted,
                    ));
                }
                if Instant::now() >= until {
                    break Stage::Copying(copy);
                }
            },
            Stage::Building(result) => match result.try_recv() {
                Ok(Ok(ready)) => Stage::CatchingUp(ready),
                Ok(Err(error)) => return Progress::Failed(work.algorithm, error),
                Err(TryRecvError::Empty) => Stage::Building(result),
                Err(TryRecvError::Disconnected) => {
                    // It panicked, or there is no thread any more: the writer builds, and has the panic itself.
                    self.runner = None;
                    return Progress::Working;
                }
            },
            Stage::CatchingUp(mut ready) => {
                // One that made no progress is followed by the longest.
                let behind = if work.holds { u32::MAX } else { arrived };
                let share = CATCH_UP_SHARE.saturating_mul(behind);
                let until = start + share.clamp(CATCH_UP, LONGEST_CATCH_UP);
                let few = work.changed.len() <= FEW;
                while !work.changed.is_empty() && (few || Instant::now() < until) {
                    let (some, places) = work.changed.some(APPLIED);
                    match ready.catch_up(&some, best) {
                        Ok(()) => {
                            work.changed.drop(places);
                            work.caught += places;
                        }
                        Err(UpdateError::Rebuild) => {
                            return Progress::Ready(work.algorithm, ready, work.changed);
                        }
                        Err(error) => return Progress::Failed(work.algorithm, error),
                    }
                }
                if !work.changed.is_empty() {
                    Stage::CatchingUp(ready)
                } else if let Some((shared, next)) = ready.next_to_prepare(work.shared.as_ref()) {
                    let (sender, receiver) = channel();
                    runner.run(move || {
                        shared.prepare(next);
                        let _ = sender.send(());
                    });
                    Stage::Preparing(ready, receiver)
                } else {
                    self.tries = 0;
                    return Progress::Ready(work.algorithm, ready, work.changed);
                }
            }
            Stage::Preparing(ready, done) => match done.try_recv() {
                Err(TryRecvError::Empty) => Stage::Preparing(ready, done),
                // Without a thread the kernel reader finds out by itself.
                Ok(()) | Err(TryRecvError::Disconnected) => Stage::CatchingUp(ready),
            },
        };
        work.look_back();
        let elsewhere = matches!(work.stage, Stage::Building(_) | Stage::Preparing(..));
        work.due = if elsewhere { now + LOOK } else { now };
        self.work = Some(work);
        Progress::Working
    }
}

impl<A: Addr> Work<A> {
    /// Finds out after a step whether sources are to wait.
    fn look_back(&mut self) {
        let left = self.changed.len();
        if !matches!(self.stage, Stage::CatchingUp(_)) {
            (self.mark, self.caught) = (usize::MAX, 0);
        }
        let is_slow = self.mark.saturating_sub(left) < self.caught / PROGRESS;
        self.holds = left > MOST_BEHIND || is_slow;
        if !self.holds {
            (self.mark, self.caught) = (left, 0);
        }
    }
}

impl<A: Addr> Ready<A> {
    /// Lookup that the kernel reader is to prepare for, at most [`TRIES`] times; `None` where it knows the present one.
    fn next_to_prepare(&mut self, shared: Option<&Shared>) -> Option<(Shared, Arc<dyn Lookup<A>>)> {
        let shared = shared.filter(|shared| shared.ahead.is_some() && self.preparations < TRIES)?;
        let next = self.table.publish();
        if self.known.as_ref().is_some_and(|known| Arc::ptr_eq(known, &next)) {
            return None;
        }
        self.known = Some(next.clone());
        self.preparations += 1;
        Some((shared.clone(), next))
    }

    /// Writes prefixes to the table as they are now. It takes answers from its own routes: those of now hold changes that it
    /// lacks.
    fn catch_up(
        &mut self,
        prefixes: &[Prefix<A>],
        best: &dyn Fn(&mut [Change<A>]),
    ) -> Result<(), UpdateError> {
        let change = |&prefix| Change { prefix, old: self.hop(prefix), new: NextHopId::NONE };
        let mut changes: Vec<Change<A>> = prefixes.iter().map(change).collect();
        best(&mut changes);
        changes.retain(|change| change.old != change.new);
        changes.sort_unstable_by_key(|change| change.prefix);
        for change in &changes {
            self.set(change.prefix, change.new);
        }
        self.table.apply(&changes, &self.routes, &mut NoReaders).inspect_err(|_| {
            for change in &changes {
                self.set(change.prefix, change.old);
            }
        })
    }

    fn set(&mut self, prefix: Prefix<A>, hop: NextHopId) {
        if hop.is_none() {
            self.routes.remove(prefix);
        } else {
            self.routes.insert(prefix, hop);
        }
    }

    /// Next hop that the table has for exactly this prefix.
    pub(super) fn hop(&self, prefix: Prefix<A>) -> NextHopId {
        self.routes.get(prefix).copied().unwrap_or_default()
    }
}

/// Has a table built of a copy.
fn build<A: Addr>(
    runner: &Runner,
    algorithm: &'static Algorithm<A>,
    shared: Option<Shared>,
    copy: Vec<(Prefix<A>, NextHopId)>,
    noted: u64,
) -> Receiver<Result<Box<Ready<A>>, UpdateError>> {
    let (sender, receiver) = channel();
    runner.run(move || {
        let start = Instant::now();
        let routes: RouteStore<A> = copy.into_iter().collect();
        let mut memory: Box<dyn Memory> = match &shared {
            Some(shared) => shared.memory.make(),
            None => Box::new(HugePages::new()),
        };
        let built = algorithm.build(&routes, &mut *memory);
        let ready = built.map(|table| {
            let took = start.elapsed();
            let mut ready = Ready { table, routes, noted, took, known: None, preparations: 0 };
            if let Some((shared, next)) = ready.next_to_prepare(shared.as_ref()) {
                shared.prepare(next);
            }
            Box::new(ready)
        });
        // Nobody waits for a build that was cancelled.
        let _ = sender.send(ready);
    });
    receiver
}
