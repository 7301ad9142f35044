//! A table that is changed, and what each change took.

use std::time::Instant;

use fingerpost_lpm::{Algorithm, LpmTable, NextHopId, RouteStore, UpdateError};

use super::changes::Changes;
use crate::document::{Mode, Run};
use crate::family::Family;
use crate::lookup::check::Questions;
use crate::measure::Plan;
use crate::table::Table;

/// A table, and the changes that it goes through over and over.
pub(super) struct Writer<'a, A: Family> {
    pub(super) table: LpmTable<A>,
    changes: &'a Changes<A>,
    at: usize,
}

impl<'a, A: Family> Writer<'a, A> {
    pub(super) fn new(
        row: &'static Algorithm<A>,
        table: &Table<A>,
        changes: &'a Changes<A>,
    ) -> Result<Self, UpdateError> {
        let table = LpmTable::build_with(vec![row], table.store())?;
        Ok(Self { table, changes, at: 0 })
    }

    /// The next change, visible when it returns.
    #[inline]
    pub(super) fn step(&mut self) -> Result<(), UpdateError> {
        let (prefix, hop) = self.changes[self.at];
        self.at = if self.at + 1 == self.changes.len() { 0 } else { self.at + 1 };
        self.table.insert(prefix, hop)?;
        Ok(())
    }

    /// Nanoseconds an update, over half of a sample; in the other half each one is timed by itself.
    #[allow(clippy::cast_precision_loss, reason = "counts stay below 2^53")]
    pub(super) fn turn(
        &mut self,
        plan: Plan,
        latencies: &mut Latencies,
    ) -> Result<f64, UpdateError> {
        // The clock of a thread is a call to the system: not for every update.
        const BETWEEN: usize = 64;
        let start = plan.clock.now();
        let (mut done, mut elapsed) = (0u64, plan.clock.now() - start);
        while elapsed < plan.sample / 2 {
            let first = Instant::now();
            for _ in 0..BETWEEN {
                self.step()?;
                done += 1;
                // An algorithm that builds anew each time is not asked 64 times.
                if first.elapsed() > plan.sample {
                    break;
                }
            }
            elapsed = plan.clock.now().saturating_sub(start);
        }
        let rate = elapsed.as_nanos() as f64 / done as f64;
        let start = Instant::now();
        let mut last = start;
        while last - start < plan.sample / 2 {
            self.step()?;
            let now = Instant::now();
            latencies.0.push((now - last).as_nanos() as f64 / 1000.0);
            last = now;
        }
        Ok(rate)
    }

    /// Makes the rest of the changes, and checks.
    pub(super) fn describe(mut self, questions: &Questions<A>, run: &mut Run) {
        let mut result = Ok(());
        let rest = self.changes[self.at..].to_vec();
        if self.at > 0 {
            result = self.table.apply(&rest);
        }
        if let Err(error) = result {
            run.note = error.to_string();
        }
        let lookup = self.table.structure();
        let wrong = questions.wrong(lookup, Mode::Batch, 64);
        run.set_answers(questions.addrs.len() as u64, wrong);
        run.bytes = Some(lookup.bytes() as u64);
    }
}

/// What single updates took, in us.
#[derive(Default)]
pub(super) struct Latencies(Vec<f64>);

impl Latencies {
    /// Takes more of them, in us.
    pub(super) fn extend(&mut self, more: impl Iterator<Item = f64>) {
        self.0.extend(more);
    }

    /// The figures of all, and a few of them.
    pub(super) fn describe(mut self, run: &mut Run) {
        const KEPT: usize = 1000;
        if self.0.is_empty() {
            return;
        }
        let note =
            format!("{} updates, each timed; samples are every n-th by length", self.0.len());
        let step = self.0.len().div_ceil(KEPT);
        self.0.sort_by(f64::total_cmp);
        run.set_samples(self.0.clone());
        run.samples = self.0.into_iter().step_by(step).collect();
        if run.note.is_empty() {
            run.note = note;
        }
    }
}

/// Withdraws everything; the run is the bytes that remain, beside those of a table that never held any.
#[allow(clippy::cast_precision_loss, reason = "sizes stay below 2^53")]
pub(super) fn withdraw_all<A: Family>(row: &'static Algorithm<A>, table: &Table<A>, run: &mut Run) {
    let withdrawn: Changes<A> =
        table.routes.iter().map(|&(prefix, _)| (prefix, NextHopId::NONE)).collect();
    let gone = || -> Result<(usize, usize), UpdateError> {
        let mut writer = Writer::new(row, table, &withdrawn)?;
        // In pieces small enough that none is a reason to build anew.
        for piece in withdrawn.chunks(64) {
            writer.table.apply(piece)?;
        }
        let empty = LpmTable::build_with(vec![row], RouteStore::new())?;
        Ok((writer.table.structure().bytes(), empty.structure().bytes()))
    };
    // What builds anew at every change would take hours here, and its bytes prove nothing.
    let left = match in_place(row, table) {
        Ok(true) => gone(),
        Ok(false) => {
            run.note = "is built anew at every change".to_owned();
            return;
        }
        Err(error) => Err(error),
    };
    match left {
        Ok((left, empty)) => {
            run.set_samples(vec![left as f64]);
            run.bytes = Some(left as u64);
            run.note = format!("a table that held nothing has {empty}");
        }
        Err(error) => run.note = error.to_string(),
    }
}

/// Whether a withdrawal is done in place.
fn in_place<A: Family>(row: &'static Algorithm<A>, table: &Table<A>) -> Result<bool, UpdateError> {
    use fingerpost_lpm::{Change, Heap, NoReaders};
    let Some(&(prefix, hop)) = table.routes.last() else { return Ok(true) };
    let mut store = table.store();
    let mut built = row.build(&store, &mut Heap)?;
    store.remove(prefix);
    let change = Change { prefix, old: NextHopId(hop), new: NextHopId::NONE };
    match built.apply(&[change], &store, &mut NoReaders) {
        Ok(()) => Ok(true),
        Err(UpdateError::Rebuild) => Ok(false),
        Err(error) => Err(error),
    }
}
