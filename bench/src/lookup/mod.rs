//! `bench lookup`: how many lookups a second, of every algorithm alike.
//!
//! Keys are made before ([`Stream`]) and read in order; answers are written to a short buffer and
//! summed. Every run is asked all its keys and the edges of the prefixes first, and compared with the
//! oracle. Then all runs take turns ([`crate::measure`]) on one core, by the clock of its thread.
//!
//! `batch` is [`Lookup::lookup_batch`], one call through the trait object a batch. `single` is
//! [`Lookup::lookup_each`] and `dependent` [`Lookup::lookup_chain`]: loops of single lookups that were
//! compiled together with the algorithm, as outside programs are compiled together with theirs. A call
//! through the trait object for each address is what nobody needs who cares for time.
//!
//! The ceilings ([`Words`]) stand in the same turns.

pub mod ceiling;
pub mod check;
mod contest;
pub mod lines;
mod streams;

use std::collections::HashMap;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use fingerpost_lpm::oracle::Oracle;
use fingerpost_lpm::{Algorithm, Heap, Lookup, NextHopId, Origin, RouteStore};

use self::ceiling::{Loads, Words};
use self::check::Questions;
use self::contest::{Contestant, Subject};
pub use self::streams::Stream;
use crate::document::{BenchDocument, Kind, Mode, Run, Unit};
use crate::family::Family;
use crate::machine::machine;
use crate::measure::{Clock, Measured, Plan, alternate_told};
use crate::progress::Progress;
use crate::table::{Table, Tables};

/// What to measure.
pub struct LookupOptions {
    /// On which routes.
    pub tables: Tables,
    /// Names of algorithms; none means all. One that a family lacks is not in its runs.
    pub algorithms: Vec<String>,
    /// Which addresses.
    pub streams: Vec<Stream>,
    /// [`Mode::Batch`] and [`Mode::Single`]; dependent streams have a mode of their own.
    pub modes: Vec<Mode>,
    /// Keys of a stream; IPv6 has half as many, twice the bytes.
    pub keys: usize,
    /// Addresses of a batch.
    pub batch: usize,
    /// Measuring time of each run.
    pub seconds: f64,
    /// Samples of each run.
    pub samples: usize,
    /// Of all that is drawn.
    pub seed: u64,
    /// Whether to measure what the machine could do.
    pub ceilings: bool,
}

impl Default for LookupOptions {
    fn default() -> Self {
        Self {
            tables: Tables::default(),
            algorithms: Vec::new(),
            streams: vec![Stream::Uniform, Stream::Prefix],
            modes: vec![Mode::Batch, Mode::Single],
            keys: 1 << 21,
            batch: 64,
            seconds: 2.0,
            samples: 9,
            seed: 1,
            ceilings: true,
        }
    }
}

/// Measures.
///
/// # Errors
/// When there is no table, or none of the algorithms has its family.
pub fn lookup(options: &LookupOptions, progress: &mut dyn Progress) -> Result<BenchDocument> {
    let mut infos = Vec::new();
    let mut runs = Vec::new();
    if let Some(table) = &options.tables.v4 {
        infos.push(table.info());
        runs.extend(of_family(table, options, progress)?);
    }
    if let Some(table) = &options.tables.v6 {
        infos.push(table.info());
        runs.extend(of_family(table, options, progress)?);
    }
    if runs.is_empty() {
        bail!("none of these algorithms has the family of the table");
    }
    let table = infos.first().cloned().context("no table")?;
    let tables = if infos.len() > 1 { infos } else { Vec::new() };
    Ok(BenchDocument { machine: machine(), table, tables, runs })
}

/// A run that is still to be measured.
struct Entry<A: Family> {
    run: Run,
    contestant: Contestant<A>,
}

fn of_family<A: Family>(
    table: &Table<A>,
    options: &LookupOptions,
    progress: &mut dyn Progress,
) -> Result<Vec<Run>> {
    let rows = A::named(&options.algorithms);
    if rows.is_empty() {
        return Ok(Vec::new());
    }
    progress.tell(&format!("IPv{}: asking the oracle", A::FAMILY));
    let mut streams = Streams::new(table, options);
    let (mut entries, mut left_out) = (Vec::new(), Vec::new());
    for row in rows {
        progress.tell(&format!("IPv{}: building and checking {}", A::FAMILY, row.name));
        match build(row, &streams.store) {
            Ok(lookup) => entries.extend(streams.entries(row, &lookup)),
            Err(error) => {
                for run in streams.blank(row) {
                    left_out.push(Run { note: error.to_string(), ..run });
                }
            }
        }
    }
    if options.ceilings {
        let ceilings = streams.ceilings(&entries);
        entries.extend(ceilings);
    }
    let mut plan = Plan::new(options.seconds, options.samples);
    plan.clock = Clock::Thread;
    let names: Vec<String> =
        entries.iter().map(|e| format!("{} {}", e.run.name, e.run.stream)).collect();
    let mut turns: Vec<&mut dyn Measured> =
        entries.iter_mut().map(|e| &mut e.contestant as &mut dyn Measured).collect();
    let all = turns.len() * (options.samples + 1);
    let samples = alternate_told(&mut turns, plan, &mut |i, done| {
        progress.step(&names[i], done, all);
    });
    progress.done();
    let mut runs: Vec<Run> = entries.into_iter().map(|entry| entry.run).collect();
    for (run, samples) in runs.iter_mut().zip(samples) {
        run.set_samples(samples.into_iter().map(|ns| 1000.0 / ns).collect());
    }
    shares(&mut runs);
    runs.extend(left_out);
    Ok(runs)
}

fn build<A: Family>(row: &Algorithm<A>, store: &RouteStore<A>) -> Result<Arc<dyn Lookup<A>>> {
    Ok(row.build(store, &mut Heap)?.publish())
}

/// Keys and right answers of the streams of one table.
struct Streams<'a, A: Family> {
    table: &'a Table<A>,
    options: &'a LookupOptions,
    store: RouteStore<A>,
    edges: Questions<A>,
    /// By the stream whose keys they are.
    keys: Vec<(Stream, Arc<Vec<A>>, Questions<A>)>,
}

/// Prefixes whose edges are asked.
const EDGES: usize = 250_000;

impl<'a, A: Family> Streams<'a, A> {
    fn new(table: &'a Table<A>, options: &'a LookupOptions) -> Self {
        let pairs = || table.routes.iter().map(|&(prefix, hop)| (prefix, NextHopId(hop)));
        let oracle: Oracle<A> = pairs().collect();
        let prefixes: Vec<_> = table.routes.iter().map(|route| route.0).collect();
        let count = if A::FAMILY == 4 { options.keys } else { options.keys.div_ceil(2) };
        let mut keys: Vec<(Stream, Arc<Vec<A>>, Questions<A>)> = Vec::new();
        for stream in options.streams.iter().map(|stream| stream.keys_of()) {
            if keys.iter().all(|(known, ..)| *known != stream) {
                let drawn = stream.keys(&prefixes, &[], count, options.seed);
                let questions = Questions::new(drawn, &oracle);
                keys.push((stream, Arc::new(questions.addrs.clone()), questions));
            }
        }
        let edges = Questions::edges(&table.routes, EDGES, &oracle);
        Self { table, options, store: pairs().collect(), edges, keys }
    }

    /// Streams and modes, in the order of the document.
    fn wanted(&self) -> impl Iterator<Item = (Stream, Mode)> {
        self.options.streams.iter().flat_map(|&stream| {
            let modes: &[Mode] =
                if stream.dependent() { &[Mode::Dependent] } else { &self.options.modes };
            modes.iter().map(move |&mode| (stream, mode))
        })
    }

    fn keys(&self, stream: Stream) -> &(Stream, Arc<Vec<A>>, Questions<A>) {
        let found = self.keys.iter().find(|(known, ..)| *known == stream.keys_of());
        found.expect("made for every stream that is asked for")
    }

    /// The runs of an algorithm, without figures.
    fn blank(&self, row: &Algorithm<A>) -> impl Iterator<Item = Run> {
        let kind = match row.origin {
            Origin::Published => Kind::Published,
            Origin::Own => Kind::Ours,
        };
        self.wanted().map(move |(stream, mode)| {
            let mut run = Run::new(row.name, kind, stream.name(), Unit::MlookupsPerSecond);
            run.mode = mode;
            run.family = Some(A::FAMILY);
            run
        })
    }

    /// The runs of an algorithm, checked.
    #[allow(clippy::cast_precision_loss, reason = "sizes stay below 2^53")]
    fn entries(&self, row: &Algorithm<A>, lookup: &Arc<dyn Lookup<A>>) -> Vec<Entry<A>> {
        let batch = self.options.batch;
        let mut edges: HashMap<&str, u64> = HashMap::new();
        let blank = self.wanted().zip(self.blank(row)).map(|((stream, mode), mut run)| {
            let (_, keys, questions) = self.keys(stream);
            let at_edges = *edges
                .entry(mode.name())
                .or_insert_with(|| self.edges.wrong(&**lookup, mode, batch));
            let wrong = questions.wrong(&**lookup, mode, batch) + at_edges;
            run.set_answers((questions.addrs.len() + self.edges.addrs.len()) as u64, wrong);
            run.bytes = Some(lookup.bytes() as u64);
            let routes = self.table.routes.len().max(1);
            run.bytes_per_prefix = Some(lookup.bytes() as f64 / routes as f64);
            run.lines = lines::mean_lines(&**lookup, keys);
            let subject = Subject::Lookup(Arc::clone(lookup));
            Entry { run, contestant: Contestant::new(subject, mode, keys, batch) }
        });
        blank.collect()
    }

    /// What the machine can do: for each size of a structure, with the keys of the first stream.
    fn ceilings(&mut self, entries: &[Entry<A>]) -> Vec<Entry<A>> {
        let Some((stream, keys, _)) = self.keys.first() else { return Vec::new() };
        let mut sizes: Vec<u64> = entries.iter().filter_map(|e| e.run.bytes).map(rounded).collect();
        sizes.sort_unstable();
        sizes.dedup();
        let mut modes: Vec<Mode> = Vec::new();
        for (_, mode) in self.wanted() {
            // Both ways to overlap loads: the better one is the ceiling.
            let both = [Mode::Batch, Mode::Single];
            let modes_here = if mode == Mode::Dependent { &[mode][..] } else { &both[..] };
            modes.extend(
                modes_here
                    .iter()
                    .filter(|&mode| !modes.contains(mode))
                    .copied()
                    .collect::<Vec<_>>(),
            );
        }
        let mut all = Vec::new();
        for bytes in std::iter::once(0).chain(sizes) {
            let words = Arc::new(Words::new(bytes, self.options.seed));
            let kinds: &[Loads] =
                if bytes == 0 { &[Loads::None] } else { &[Loads::One, Loads::Two] };
            for &loads in kinds {
                for &mode in &modes {
                    if loads == Loads::None && mode != modes[0] {
                        continue;
                    }
                    let mut run = Run::new(
                        loads.name(),
                        Kind::Ceiling,
                        stream.name(),
                        Unit::MlookupsPerSecond,
                    );
                    run.mode = mode;
                    run.family = Some(A::FAMILY);
                    run.bytes = (bytes > 0).then_some(bytes);
                    run.note = ceiling_note(loads, mode).to_owned();
                    let subject = Subject::Ceiling(loads, Arc::clone(&words));
                    let batch = self.options.batch;
                    let contestant = Contestant::new(subject, mode, keys, batch);
                    all.push(Entry { run, contestant });
                }
            }
        }
        all
    }
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
fn rounded(bytes: u64) -> u64 {
    let step = (bytes.max(1).next_power_of_two() >> 5).max(64);
    bytes.next_multiple_of(step)
}

/// Sets each result beside the better of the two ways to do two loads a key in as many bytes.
fn shares(runs: &mut [Run]) {
    let mut best: HashMap<(u64, bool), f64> = HashMap::new();
    for run in runs.iter().filter(|run| run.kind == Kind::Ceiling && run.name == "two-loads") {
        if let (Some(bytes), Some(median)) = (run.bytes, run.median) {
            let best = best.entry((bytes, run.mode == Mode::Dependent)).or_insert(0.0);
            *best = best.max(median);
        }
    }
    for run in runs.iter_mut().filter(|run| run.kind != Kind::Ceiling) {
        let key = run.bytes.map(|bytes| (rounded(bytes), run.mode == Mode::Dependent));
        let ceiling = key.and_then(|key| best.get(&key));
        run.share_two_loads = run.median.zip(ceiling).map(|(median, ceiling)| median / ceiling);
    }
}

#[cfg(test)]
mod tests;
