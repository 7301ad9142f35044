//! The runs of one table: built and checked first, then measured stream by stream.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use fingerpost_lpm::oracle::Oracle;
use fingerpost_lpm::{Algorithm, HugePages, Lookup, Origin, pages};

use super::ceiling::{Loads, Words};
use super::check::Questions;
use super::contest::{Contestant, Subject, Team};
use super::outside::{Outside, Shared, turn};
use super::{LookupOptions, Stream, lines};
use crate::document::{Kind, Mode, Run, Unit};
use crate::family::Family;
use crate::measure::{Clock, Plan, Turn, alternate_told, sample};
use crate::peer::Row;
use crate::table::Table;
use fingerpost_command::progress::Progress;

/// Prefixes whose edges are looked up.
const EDGES: usize = 250_000;

/// An algorithm's reader of the table, or why there is none.
struct Built<A: Family> {
    row: &'static Algorithm<A>,
    lookup: Result<Arc<dyn Lookup<A>>, String>,
    huge_share: Option<f64>,
    /// Wrong answers at edges, by mode.
    edges: HashMap<&'static str, u64>,
}

/// A run that is still to be measured, and who does it.
enum Runner<A: Family> {
    Alone(Contestant<A>),
    Team(Team<A>),
    Peer(Shared<A>, Mode),
    /// No contestant: the note has the reason.
    None,
}

/// One table with all that is looked up in it.
pub(super) struct Contest<'a, A: Family> {
    table: &'a Table<A>,
    options: &'a LookupOptions,
    oracle: Oracle<A>,
    edges: Questions<A>,
    built: Vec<Built<A>>,
    outside: Vec<Outside<A>>,
    ceilings: HashMap<u64, Arc<Words>>,
}

impl<'a, A: Family> Contest<'a, A> {
    /// Builds all.
    pub(super) fn new(
        table: &'a Table<A>,
        rows: &[&'static Algorithm<A>],
        options: &'a LookupOptions,
        progress: &mut Progress,
    ) -> Self {
        progress.stage(&format!("IPv{}: computing the expected answers", A::FAMILY));
        let oracle = table.oracle();
        let edges = Questions::edges(&table.routes, EDGES, &oracle);
        let store = table.store();
        let build = |&row: &&'static Algorithm<A>| {
            progress.stage(&format!("IPv{}: building {}", A::FAMILY, row.name));
            let table = row.build(&store, &mut HugePages::new());
            let lookup = table.map(|mut table| table.publish()).map_err(|e| e.to_string());
            Built { row, lookup, huge_share: None, edges: HashMap::new() }
        };
        let built = rows.iter().map(build).collect();
        let start = |&row: &&'static Row| {
            progress.stage(&format!("IPv{}: starting {}", A::FAMILY, row.name));
            Outside::start(row, table, &edges, options.load_limit)
        };
        let wanted = options.peers.iter().filter(|row| row.family == A::FAMILY);
        let outside = wanted.map(start).collect();
        Self { table, options, oracle, edges, built, outside, ceilings: HashMap::new() }
    }

    /// Measures one stream: all its runs in turns.
    pub(super) fn stream(&mut self, stream: Stream, progress: &mut Progress) -> Vec<Run> {
        progress.stage(&format!("IPv{}: checking answers to {}", A::FAMILY, stream.name()));
        let prefixes: Vec<_> = self.table.routes.iter().map(|route| route.0).collect();
        let options = self.options;
        let count = if A::FAMILY == 4 { options.keys } else { options.keys.div_ceil(2) };
        let keys = stream.keys(&prefixes, A::trace(options.trace.as_ref()), count, options.seed);
        if keys.is_empty() {
            return Vec::new();
        }
        let questions = Questions::new(keys, &self.oracle);
        let keys = Arc::new(questions.addrs.clone());
        let modes: &[Mode] = if stream.dependent() { &[Mode::Dependent] } else { &options.modes };

        let mut all = Vec::new();
        for at in 0..self.built.len() {
            all.extend(self.ours(at, stream, modes, &questions, &keys));
        }
        for peer in &mut self.outside {
            for (run, peer) in peer.entries(stream.name(), modes, &questions) {
                let mode = run.mode;
                all.push((run, peer.map_or(Runner::None, |peer| Runner::Peer(peer, mode))));
            }
        }
        if options.ceilings {
            let ceilings = self.ceilings(stream, modes, &keys, &all);
            all.extend(ceilings);
        }
        measure(all, options, progress)
    }

    #[allow(clippy::cast_precision_loss, reason = "sizes stay below 2^53")]
    fn ours(
        &mut self,
        at: usize,
        stream: Stream,
        modes: &[Mode],
        questions: &Questions<A>,
        keys: &Arc<Vec<A>>,
    ) -> Vec<(Run, Runner<A>)> {
        let batch = self.options.batch;
        let built = &mut self.built[at];
        let kind = match built.row.origin {
            Origin::Published => Kind::Published,
            Origin::Own => Kind::Ours,
        };
        let mut all = Vec::new();
        for &mode in modes {
            let mut run = Run::new(built.row.name, kind, stream.name(), Unit::MlookupsPerSecond);
            (run.mode, run.family) = (mode, Some(A::FAMILY));
            let lookup = match &built.lookup {
                Ok(lookup) => lookup,
                Err(note) => {
                    run.note.clone_from(note);
                    all.push((run, Runner::None));
                    continue;
                }
            };
            let at_edges = *built
                .edges
                .entry(mode.name())
                .or_insert_with(|| self.edges.wrong(&**lookup, mode, batch));
            let wrong = questions.wrong(&**lookup, mode, batch) + at_edges;
            run.set_answers((questions.addrs.len() + self.edges.addrs.len()) as u64, wrong);
            run.bytes = Some(lookup.bytes() as u64);
            let routes = self.table.routes.len().max(1);
            run.bytes_per_prefix = Some(lookup.bytes() as f64 / routes as f64);
            run.lines = lines::mean_lines(&**lookup, keys);
            if built.huge_share.is_none() {
                let found = pages(lookup.regions());
                built.huge_share = found.map(|p| p.huge_bytes as f64 / p.bytes.max(1) as f64);
            }
            run.huge_share = built.huge_share;
            let subject = Subject::Lookup(Arc::clone(lookup));
            all.extend(teams(&run, &subject, keys, self.options));
            let alone = Contestant::new(subject, mode, keys, batch);
            all.push((run, Runner::Alone(alone)));
        }
        all
    }

    /// What the machine can do, for each size of a structure.
    fn ceilings(
        &mut self,
        stream: Stream,
        modes: &[Mode],
        keys: &Arc<Vec<A>>,
        others: &[(Run, Runner<A>)],
    ) -> Vec<(Run, Runner<A>)> {
        let ours = others.iter().filter(|(run, _)| run.kind != Kind::Peer);
        let mut sizes: Vec<u64> = ours.filter_map(|(run, _)| run.bytes).map(rounded).collect();
        sizes.sort_unstable();
        sizes.dedup();
        // Both ways to overlap loads: the better one is the ceiling.
        let both = [Mode::Batch, Mode::Single];
        let ways = if modes.contains(&Mode::Dependent) { modes } else { &both };
        let (options, batch, seed) = (self.options, self.options.batch, self.options.seed);
        let mut all = Vec::new();
        let mut add = |loads: Loads, mode, bytes, words: &Arc<Words>| {
            let mut run =
                Run::new(loads.name(), Kind::Ceiling, stream.name(), Unit::MlookupsPerSecond);
            (run.mode, run.family, run.bytes) = (mode, Some(A::FAMILY), bytes);
            run.note = ceiling_note(loads, mode).to_owned();
            let subject = Subject::Ceiling(loads, Arc::clone(words));
            all.extend(teams(&run, &subject, keys, options));
            all.push((run, Runner::Alone(Contestant::new(subject, mode, keys, batch))));
        };
        add(Loads::None, ways[0], None, &Arc::new(Words::new(0, seed)));
        for bytes in sizes {
            let words =
                self.ceilings.entry(bytes).or_insert_with(|| Arc::new(Words::new(bytes, seed)));
            for loads in [Loads::One, Loads::Two] {
                for &mode in ways {
                    add(loads, mode, Some(bytes), words);
                }
            }
        }
        all
    }
}

/// Runs by several threads, for each number that is wanted.
fn teams<A: Family>(
    run: &Run,
    subject: &Subject<A>,
    keys: &Arc<Vec<A>>,
    options: &LookupOptions,
) -> Vec<(Run, Runner<A>)> {
    let several = options.threads.iter().filter(|&&threads| threads > 1);
    let team = |&threads: &usize| {
        let team = Team::new(subject, run.mode, keys, options.batch, threads);
        (Run { threads, ..run.clone() }, Runner::Team(team))
    };
    several.map(team).collect()
}

/// All runs in turns; those that nobody runs stay as they are.
fn measure<A: Family>(
    all: Vec<(Run, Runner<A>)>,
    options: &LookupOptions,
    progress: &mut Progress,
) -> Vec<Run> {
    let mut plan = Plan::new(options.seconds, options.samples);
    plan.clock = Clock::Thread;
    let failures: RefCell<Vec<(usize, String)>> = RefCell::default();
    let (mut runs, mut turns, mut at) = (Vec::new(), Vec::<Turn<'_>>::new(), Vec::new());
    let mut teams = Vec::new();
    for (i, (run, runner)) in all.into_iter().enumerate() {
        runs.push(run);
        let failures = &failures;
        let turn: Turn<'_> = match runner {
            Runner::Alone(mut contestant) => Box::new(move || Some(sample(&mut contestant, plan))),
            Runner::Team(team) => {
                let team = Rc::new(RefCell::new(team));
                teams.push((i, Rc::clone(&team)));
                Box::new(move || Some(team.borrow_mut().sample(plan)))
            }
            Runner::Peer(peer, mode) => Box::new(move || {
                let taken = turn(&mut peer.borrow_mut(), mode, plan);
                taken.map_err(|error| failures.borrow_mut().push((i, format!("{error:#}")))).ok()
            }),
            Runner::None => continue,
        };
        turns.push(turn);
        at.push(i);
    }
    let names: Vec<_> =
        at.iter().map(|&i: &usize| format!("{} {}", runs[i].name, runs[i].stream)).collect();
    let steps = turns.len() * (plan.samples + 1);
    let samples = alternate_told(&mut turns, plan.samples, &mut |i, done| {
        progress.step(&names[i], done, steps);
    });
    drop(turns);
    progress.done();
    for (samples, i) in samples.into_iter().zip(at) {
        runs[i].set_samples(samples.into_iter().map(|ns| 1000.0 / ns).collect());
    }
    for (i, error) in failures.into_inner() {
        runs[i].note = error;
    }
    for (i, team) in teams {
        if let Some((efficiency, note)) = team.borrow().efficiency() {
            runs[i].efficiency = Some(efficiency);
            let apart = if runs[i].note.is_empty() { "" } else { "; " };
            runs[i].note += &format!("{apart}{note}");
        }
    }
    shares(&mut runs);
    machine_efficiencies(&mut runs);
    runs
}

fn ceiling_note(loads: Loads, mode: Mode) -> &'static str {
    match (loads, mode) {
        (Loads::None, _) => "the loop alone: keys read, answers written and summed",
        (_, Mode::Batch) => "groups of 32, prefetched",
        (_, Mode::Single) => "a plain loop, overlapped by the processor",
        (_, Mode::Dependent) => "each key waits for the value before it",
    }
}

/// Up to a sixteenth more, so that structures of nearly one size share their ceilings.
pub(super) fn rounded(bytes: u64) -> u64 {
    let step = (bytes.max(1).next_power_of_two() >> 5).max(64);
    bytes.next_multiple_of(step)
}

/// Sets each result beside the better of the methods to do two loads a key in as many bytes.
pub(super) fn shares(runs: &mut [Run]) {
    let mut best: HashMap<u64, f64> = HashMap::new();
    let two = |run: &&Run| run.kind == Kind::Ceiling && run.name == "two-loads" && run.threads == 1;
    for run in runs.iter().filter(two) {
        if let (Some(bytes), Some(median)) = (run.bytes, run.median) {
            let best = best.entry(bytes).or_insert(0.0);
            *best = best.max(median);
        }
    }
    for run in runs.iter_mut().filter(|run| run.kind != Kind::Ceiling && run.threads == 1) {
        let ceiling = run.bytes.and_then(|bytes| best.get(&rounded(bytes)));
        run.share_two_loads = run.median.zip(ceiling).map(|(median, ceiling)| median / ceiling);
    }
}

/// Sets the efficiency of each result beside that of so many threads with a load a key in as many
/// bytes, by the better of the methods to do it: what the machine loses whatever is looked up.
pub(super) fn machine_efficiencies(runs: &mut [Run]) {
    let mut best: HashMap<(u64, usize), (f64, f64)> = HashMap::new();
    for run in runs.iter().filter(|run| run.kind == Kind::Ceiling && run.name == "one-load") {
        if let (Some(bytes), Some(median), Some(efficiency)) =
            (run.bytes, run.median, run.efficiency)
        {
            let best = best.entry((bytes, run.threads)).or_insert((0.0, 0.0));
            if median > best.0 {
                *best = (median, efficiency);
            }
        }
    }
    for run in runs.iter_mut().filter(|run| run.kind != Kind::Ceiling && run.threads > 1) {
        let machine = run.bytes.and_then(|bytes| best.get(&(rounded(bytes), run.threads)));
        run.machine_efficiency = machine.map(|&(_, efficiency)| efficiency);
    }
}
