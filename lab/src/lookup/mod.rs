//! `bench lookup`: how many lookups a second, of every algorithm alike.
//!
//! Keys are made before ([`Stream`]) and read in order; answers are written to a short buffer and
//! summed. Every run looks up all its keys and the edges of the prefixes first, and is compared with the
//! oracle. Then all runs of a stream take turns ([`crate::measure`]) on one core, by the clock of their
//! thread; programs of others ([`crate::peer`]) among them.
//!
//! `batch` is `Lookup::lookup_batch`, one call through the trait object a batch. `single` is
//! `Lookup::lookup_each` and `dependent` `Lookup::lookup_chain`: loops of single lookups that were
//! compiled together with the algorithm, as outside programs are compiled together with theirs. A call
//! through the trait object for each address is what nobody needs who cares for time.
//!
//! The ceilings ([`ceiling::Words`]) stand in the same turns.

pub mod ceiling;
pub mod check;
mod contest;
mod entries;
pub mod lines;
mod outside;
mod streams;

use std::time::Duration;

use anyhow::{Result, bail};

use self::entries::Contest;
pub use self::streams::Stream;
use crate::document::{BenchDocument, Mode, Run};
use crate::family::Family;
use crate::peer::{LOAD_LIMIT, Row};
use crate::table::{Table, Tables};
use crate::trace::Trace;
use fingerpost_command::progress::Progress;

/// What to measure.
pub struct LookupOptions {
    /// Route tables.
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
    /// Seed of all that is drawn.
    pub seed: u64,
    /// Whether to measure what the machine could do.
    pub ceilings: bool,
    /// Those above 1: every run also with so many threads, which share the structure.
    pub threads: Vec<usize>,
    /// Programs of others.
    pub peers: Vec<&'static Row>,
    /// How long each may take to load the table.
    pub load_limit: Duration,
    /// Addresses of [`Stream::Trace`].
    pub trace: Option<Trace>,
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
            threads: vec![1],
            peers: Vec::new(),
            load_limit: LOAD_LIMIT,
            trace: None,
        }
    }
}

/// Measures.
///
/// # Errors
/// When there is no table, or none of the algorithms has its family.
pub fn lookup(options: &LookupOptions, progress: &mut Progress) -> Result<BenchDocument> {
    let mut runs = Vec::new();
    if let Some(table) = &options.tables.v4 {
        runs.extend(of_family(table, options, progress)?);
    }
    if let Some(table) = &options.tables.v6 {
        runs.extend(of_family(table, options, progress)?);
    }
    options.tables.document(runs)
}

fn of_family<A: Family>(
    table: &Table<A>,
    options: &LookupOptions,
    progress: &mut Progress,
) -> Result<Vec<Run>> {
    let rows = A::named(&options.algorithms);
    let outside = options.peers.iter().any(|row| row.family == A::FAMILY);
    if rows.is_empty() && !outside {
        return Ok(Vec::new());
    }
    let mut contest = Contest::new(table, &rows, options, progress);
    let mut runs = Vec::new();
    for &stream in &options.streams {
        runs.extend(contest.stream(stream, progress));
    }
    if runs.is_empty() {
        bail!("the trace has no IPv{} address", A::FAMILY);
    }
    Ok(runs)
}

#[cfg(test)]
mod tests;
