//! `bench build`: how long an algorithm takes from a loaded route store to a table that answers.
//!
//! All algorithms take turns, one build a turn, by the clock of the thread; the built table answers the
//! edges of the prefixes once, and thrown away. A peer reads its routes from a file, which it does not
//! count. The unit is ms.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use anyhow::Result;
use fingerpost_lpm::{Algorithm, HugePages, Origin, RouteStore};

use crate::document::{BenchDocument, Kind, Mode, Run, Unit};
use crate::family::Family;
use crate::lookup::check::Questions;
use crate::measure::{Clock, Turn, alternate_told};
use crate::peer::{Peer, Row};
use crate::table::{Table, Tables};
use fingerpost_command::progress::Progress;

/// What to measure.
pub struct BuildOptions {
    /// Route tables.
    pub tables: Tables,
    /// Names of algorithms; none means all.
    pub algorithms: Vec<String>,
    /// Programs of others.
    pub peers: Vec<&'static Row>,
    /// How long each may take to load the table.
    pub load_limit: Duration,
    /// Builds of each, after a first one that does not count.
    pub samples: usize,
}

/// A baseline that took longer has no further turn: its first time is its only sample.
const PATIENCE_MS: f64 = 3000.0;
/// Prefixes whose edges are looked up.
const EDGES: usize = 50_000;

/// Measures.
///
/// # Errors
/// When there is no table, or none of the algorithms has its family.
pub fn build(options: &BuildOptions, progress: &mut Progress) -> Result<BenchDocument> {
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
    options: &BuildOptions,
    progress: &mut Progress,
) -> Vec<Run> {
    let rows = A::named(&options.algorithms);
    if rows.is_empty() && !options.peers.iter().any(|row| row.family == A::FAMILY) {
        return Vec::new();
    }
    progress.stage(&format!("IPv{}: computing the expected answers", A::FAMILY));
    let oracle = table.oracle();
    let edges = Questions::edges(&table.routes, EDGES, &oracle);
    let store = table.store();
    let runs: RefCell<Vec<Run>> = RefCell::default();
    let mut turns: Vec<Turn<'_>> = Vec::new();
    for row in rows {
        let at = blank(row.name, kind(row), A::FAMILY, &runs);
        let (store, edges, runs) = (&store, &edges, &runs);
        turns.push(Box::new(move || one_build(row, store, edges, &mut runs.borrow_mut()[at])));
    }
    for &row in options.peers.iter().filter(|row| row.family == A::FAMILY) {
        let at = blank(row.name, Kind::Peer, A::FAMILY, &runs);
        let runs = &runs;
        turns.push(Box::new(move || {
            one_start(row, table, options.load_limit, &mut runs.borrow_mut()[at])
        }));
    }
    let steps = turns.len() * (options.samples + 1);
    let samples = alternate_told(&mut turns, options.samples, &mut |_, done| {
        progress.step("builds", done, steps);
    });
    drop(turns);
    progress.done();
    let mut runs = runs.into_inner();
    for (run, samples) in runs.iter_mut().zip(samples) {
        if !samples.is_empty() {
            run.set_samples(samples);
        }
    }
    runs
}

/// Whose an algorithm is.
pub(crate) fn kind<A: Family>(row: &Algorithm<A>) -> Kind {
    match row.origin {
        Origin::Published => Kind::Published,
        Origin::Own => Kind::Ours,
    }
}

fn blank(name: &str, kind: Kind, family: u8, runs: &RefCell<Vec<Run>>) -> usize {
    let mut run = Run::new(name, kind, "routes", Unit::Ms);
    run.family = Some(family);
    let mut runs = runs.borrow_mut();
    runs.push(run);
    runs.len() - 1
}

#[allow(clippy::cast_precision_loss, reason = "sizes stay below 2^53")]
fn one_build<A: Family>(
    row: &Algorithm<A>,
    store: &RouteStore<A>,
    edges: &Questions<A>,
    run: &mut Run,
) -> Option<f64> {
    let start = Clock::Thread.now();
    let built = row.build(store, &mut HugePages::new()).map(|mut table| table.publish());
    let took = Clock::Thread.now().saturating_sub(start);
    let lookup = match built {
        Ok(lookup) => lookup,
        Err(error) => {
            run.note = error.to_string();
            return None;
        }
    };
    if run.bytes.is_none() {
        let wrong = edges.wrong(&*lookup, Mode::Batch, 64);
        run.set_answers(edges.addrs.len() as u64, wrong);
        run.bytes = Some(lookup.bytes() as u64);
        run.bytes_per_prefix = Some(lookup.bytes() as f64 / store.len().max(1) as f64);
    }
    Some(took.as_secs_f64() * 1e3)
}

#[allow(clippy::cast_precision_loss, reason = "sizes stay below 2^53")]
fn one_start<A: Family>(
    row: &'static Row,
    table: &Table<A>,
    limit: Duration,
    run: &mut Run,
) -> Option<f64> {
    let start = Instant::now();
    let peer = match Peer::start(row, table, limit) {
        Ok(peer) => peer,
        Err(error) => {
            run.note = format!("{error:#}");
            return None;
        }
    };
    let (info, waited) = (peer.info(), start.elapsed().as_secs_f64() * 1e3);
    run.bytes = info.bytes;
    run.bytes_per_prefix = info.bytes.map(|bytes| bytes as f64 / table.routes.len().max(1) as f64);
    run.note = format!("{} by the clock of the wall", info.version);
    if info.build_ms.max(waited) > PATIENCE_MS {
        run.note += ", a single build";
        run.set_samples(vec![info.build_ms]);
        return None;
    }
    Some(info.build_ms)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::Answers;
    use fingerpost_command::progress::Progress;
    use fingerpost_lpm::Prefix;

    #[test]
    fn every_algorithm_is_built_or_says_why_not() {
        let routes = (0..65_536 + 10).map(|n| (Prefix::masked(n << 10, 24), n + 1));
        let table = Table::new("v4", routes.collect());
        let options = BuildOptions {
            tables: Tables { v4: Some(table), v6: None },
            algorithms: vec!["dxr16".into(), "radix".into()],
            samples: 2,
            peers: Vec::new(),
            load_limit: crate::peer::LOAD_LIMIT,
        };
        let runs = build(&options, &mut Progress::silent()).unwrap().runs;
        let [dxr, radix] = &runs[..] else { panic!("{runs:?}") };
        assert!(dxr.median.is_none() && dxr.note.contains("limit exceeded"), "{}", dxr.note);
        assert_eq!((radix.samples.len(), radix.answers), (2, Answers::Ok));
        assert!(radix.median > Some(0.0) && radix.bytes > Some(0) && radix.unit == Unit::Ms);
    }
}
