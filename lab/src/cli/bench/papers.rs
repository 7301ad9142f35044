//! `bench papers`: its options.

use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::{ArgMatches, Args};
use fingerpost_command::progress::Progress;
use fingerpost_lab::papers::{SECTIONS, recorded};
use fingerpost_lab::trace::Trace;
use fingerpost_lab::update::changes::Recorded;
use fingerpost_lab::{PapersOptions, papers};

use super::super::command::{Failure, parsed};
use super::super::output::Output;
use super::arguments::{positive, seconds};
use super::print::{print, write};

pub(super) const SUMMARY: &str = "The figures of the papers, beside those of this machine";

/// Real nodes of a cluster that are killed: the bar is for the median of nine.
const FAILURES: usize = 9;

/// Adds its options.
pub(super) fn arguments(command: clap::Command) -> clap::Command {
    Papers::augment_args(command)
}

/// Adds it to the benchmarks.
pub(super) fn command() -> clap::Command {
    arguments(clap::Command::new("papers"))
        .about(SUMMARY)
        .after_help(
            "Examples:
  $ fingerpost-lab bench papers
  $ fingerpost-lab bench papers --tables DIR --seconds 2 --out docs/benchmarks

Of every table `v4*.txt*` of a folder: DXR's tests SEQ, RND and REP, what D20R holds and the lengths
of chunks; FreeBSD's run_lps on a host's and a full table; Poptrie's extensions, rates, traffic
patterns, SYN1 and SYN2; cycles of single lookups, whole and by depth; several threads; updates;
RouteBricks' forwarding, batches and placements. Of every `v6*.txt*`: IPv6. `--out` writes papers.md and its drawings.",
        )
}

#[derive(Args, Debug)]
struct Papers {
    /// Where the page goes; nothing is written unless it is given
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// A folder of tables
    #[arg(long, value_name = "DIR", default_value = "testdata/tables")]
    tables: PathBuf,
    /// Addresses of real traffic: one a line, or the destinations of a pcap file
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// A recorded stream of updates; else `update*.txt*` of the folder
    #[arg(long, value_name = "FILE")]
    stream_file: Option<PathBuf>,
    /// Measuring time of each run
    #[arg(long, value_name = "S", default_value_t = 0.2, value_parser = seconds)]
    seconds: f64,
    /// Samples of each run
    #[arg(long, value_name = "R", default_value_t = 9, value_parser = positive)]
    repeat: usize,
    /// Seed of the addresses
    #[arg(long, value_name = "X", default_value_t = 1)]
    seed: u64,
    /// Addresses of a stream; IPv6 takes half as many
    #[arg(long, value_name = "N", default_value_t = 1 << 21, value_parser = positive)]
    keys: usize,
    /// These sections alone
    #[arg(long, value_name = "NAME,..", value_delimiter = ',', value_parser = PossibleValuesParser::new(SECTIONS.iter().map(|section| section.name)))]
    sections: Vec<String>,
}

/// Measures, writes the page and prints the document.
pub(super) fn run(matches: &ArgMatches, output: &mut Output) -> Result<(), Failure> {
    let arguments: Papers = parsed(matches)?;
    let recorded = match &arguments.stream_file {
        Some(file) => Some(Recorded::load(file)?),
        None => recorded(&arguments.tables)?,
    };
    let options = PapersOptions {
        trace: arguments.trace.as_deref().map(Trace::load).transpose()?,
        recorded,
        tables: arguments.tables,
        seconds: arguments.seconds,
        samples: arguments.repeat,
        seed: arguments.seed,
        keys: arguments.keys,
        sections: arguments.sections,
        failures: FAILURES,
    };
    let made = papers(&options, &mut Progress::new())?;
    if let Some(folder) = &arguments.out {
        write(folder, &made.files)?;
    }
    print(made.document, output)
}
