//! `bench update`: routes withdrawn and announced, each visible to readers on its own.
//!
//! A table is an [`fingerpost_lpm::LpmTable`]: the route store and the structure change together, and what is unlinked
//! waits for readers. `random-pairs` withdraws a random route and announces it again; `stream` replays a
//! recorded file over and over. Both have a run in updates/s and one in us a single update (a clock of
//! its own each). Algorithms and baselines take turns, with the same changes, and are checked at the end.
//!
//! `lookups-during-updates` is the rate of lookups on one core while another one changes the table, as a
//! share of their rate while that core does the same to a table of its own. `withdraw-all` is the bytes
//! that remain when every route is gone.

mod beside;
pub mod changes;
mod outside;
mod writer;

use std::cell::RefCell;
use std::collections::HashMap;
use std::time::Duration;

use anyhow::Result;
use fingerpost_lpm::Algorithm;

use self::changes::{Changes, Recorded};
use self::outside::Outside;
use self::writer::{Latencies, Writer};
use crate::build::kind;
use crate::document::{BenchDocument, Mode, Run, Unit};
use crate::family::Family;
use crate::lookup::check::Questions;
use crate::measure::{Clock, Plan, Turn, alternate_told};
use crate::peer::Row;
use crate::table::{Table, Tables};
use fingerpost_command::progress::Progress;

/// What to measure.
pub struct UpdateOptions {
    /// Route tables.
    pub tables: Tables,
    /// Names of algorithms; none means all.
    pub algorithms: Vec<String>,
    /// Programs of others.
    pub peers: Vec<&'static Row>,
    /// How long each may take to load the table.
    pub load_limit: Duration,
    /// A recorded stream.
    pub recorded: Option<Recorded>,
    /// Measuring time of each run.
    pub seconds: f64,
    /// Samples of each run.
    pub samples: usize,
    /// Seed of the random routes.
    pub seed: u64,
}

/// Pairs drawn: more than a cache holds of what they touch.
const PAIRS: usize = 1 << 16;
/// Prefixes whose edges are looked up at the end.
const EDGES: usize = 50_000;

/// Measures.
///
/// # Errors
/// When there is no table, or none of the algorithms has its family.
pub fn update(options: &UpdateOptions, progress: &mut Progress) -> Result<BenchDocument> {
    let mut runs = Vec::new();
    if let Some(table) = &options.tables.v4 {
        runs.extend(of_family(table, options, progress));
    }
    if let Some(table) = &options.tables.v6 {
        runs.extend(of_family(table, options, progress));
    }
    options.tables.document(runs)
}

fn of_family<A: Family>(
    table: &Table<A>,
    options: &UpdateOptions,
    progress: &mut Progress,
) -> Vec<Run> {
    let mut plan = Plan::new(options.seconds, options.samples);
    plan.clock = Clock::Thread;
    let rows = A::named(&options.algorithms);
    if rows.is_empty() && !options.peers.iter().any(|row| row.family == A::FAMILY) {
        return Vec::new();
    }
    let pairs = changes::random_pairs(table, PAIRS, options.seed);
    let mut runs = turns("random-pairs", table, &rows, &pairs, options, plan, progress);
    let recorded = options.recorded.as_ref().map(|recorded| recorded.changes(table));
    if let Some(recorded) = recorded.filter(|recorded| !recorded.is_empty()) {
        runs.extend(turns("stream", table, &rows, &recorded, options, plan, progress));
    }
    for row in rows {
        progress.stage(&format!("IPv{}: lookups beside {}", A::FAMILY, row.name));
        let mut beside = blank("lookups-during-updates", row, Unit::Share);
        beside::measure(row, table, &pairs, plan, &mut beside);
        runs.push(beside);
        let mut empty = blank("withdraw-all", row, Unit::Bytes);
        writer::withdraw_all(row, table, &mut empty);
        runs.push(empty);
    }
    progress.done();
    runs
}

fn blank<A: Family>(name: &str, row: &Algorithm<A>, unit: Unit) -> Run {
    let mut run = Run::new(name, kind(row), name, unit);
    (run.mode, run.family) = (Mode::Single, Some(A::FAMILY));
    run.algorithm = Some(row.name.to_owned());
    run
}

/// One kind of changes, by all algorithms and peers in turns: two runs each.
fn turns<A: Family>(
    name: &str,
    table: &Table<A>,
    rows: &[&'static Algorithm<A>],
    changes: &Changes<A>,
    options: &UpdateOptions,
    plan: Plan,
    progress: &mut Progress,
) -> Vec<Run> {
    let mut runs = Vec::new();
    let (mut writers, mut latencies) = (Vec::new(), Vec::new());
    for row in rows {
        progress.stage(&format!("IPv{}: building {}", A::FAMILY, row.name));
        let mut run = blank(name, row, Unit::UpdatesPerSecond);
        match Writer::new(row, table, changes) {
            Ok(writer) => {
                writers.push((runs.len(), RefCell::new(writer)));
                latencies.push(RefCell::new(Latencies::default()));
            }
            Err(error) => run.note = error.to_string(),
        }
        runs.push(run);
    }
    let mut outside = Vec::new();
    for &row in options.peers.iter().filter(|row| row.family == A::FAMILY) {
        progress.stage(&format!("IPv{}: starting {}", A::FAMILY, row.name));
        let (run, peer) = Outside::start(row, name, table, changes, options.load_limit);
        outside.extend(peer.map(|peer| (runs.len(), RefCell::new(peer))));
        runs.push(run);
    }

    let failures: RefCell<Vec<(usize, String)>> = RefCell::default();
    let (mut all, mut at) = (Vec::<Turn<'_>>::new(), Vec::new());
    for ((i, writer), latencies) in writers.iter().zip(&latencies) {
        let (i, failures) = (*i, &failures);
        at.push(i);
        all.push(Box::new(move || {
            let taken = writer.borrow_mut().turn(plan, &mut latencies.borrow_mut());
            taken.map_err(|error| failures.borrow_mut().push((i, error.to_string()))).ok()
        }));
    }
    for (i, peer) in &outside {
        let (i, failures) = (*i, &failures);
        at.push(i);
        all.push(Box::new(move || {
            let taken = peer.borrow_mut().turn(plan);
            taken.map_err(|error| failures.borrow_mut().push((i, format!("{error:#}")))).ok()
        }));
    }
    let steps = all.len() * (plan.samples + 1);
    let samples = alternate_told(&mut all, plan.samples, &mut |_, done| {
        progress.step(name, done, steps);
    });
    drop(all);
    progress.done();
    for (samples, &i) in samples.into_iter().zip(&at) {
        runs[i].set_samples(samples.into_iter().map(|ns| 1e9 / ns).collect());
    }
    // What single updates took in the same turns; and are the tables right?
    let questions = after(table, changes);
    let failures: HashMap<usize, String> = failures.into_inner().into_iter().collect();
    for ((i, writer), latencies) in writers.into_iter().zip(latencies) {
        let (writer, latencies) = (writer.into_inner(), latencies.into_inner());
        if let Some(error) = failures.get(&i) {
            runs[i].note.clone_from(error);
            continue;
        }
        writer.describe(&questions, &mut runs[i]);
        let mut single = Run { unit: Unit::Us, ..runs[i].clone() };
        latencies.describe(&mut single);
        runs.push(single);
    }
    for (i, peer) in outside {
        progress.stage(&format!(
            "IPv{}: checking {}",
            A::FAMILY,
            runs[i].algorithm.as_deref().unwrap_or("")
        ));
        match failures.get(&i) {
            Some(error) => runs[i].note.clone_from(error),
            None => {
                let single = peer.into_inner().describe(&questions, &mut runs[i]);
                runs.push(single);
            }
        }
    }
    progress.done();
    runs
}

/// What must come out once all changes were made: the edges of the prefixes that they name.
fn after<A: Family>(table: &Table<A>, changes: &Changes<A>) -> Questions<A> {
    let mut oracle = table.oracle();
    for &(prefix, hop) in changes {
        oracle.set(prefix, hop);
    }
    let named: Vec<_> = changes.iter().map(|&(prefix, hop)| (prefix, hop.0)).collect();
    Questions::edges(&named, EDGES, &oracle)
}

#[cfg(test)]
mod tests;
