//! `bench fib`: its options.

use std::path::PathBuf;

use clap::{ArgMatches, Args};
use fingerpost_command::progress::Progress;
use fingerpost_lab::fib::find;
use fingerpost_lab::table::Tables;
use fingerpost_lab::update::changes::Recorded;
use fingerpost_lab::{FibOptions, fib};

use super::super::command::{Failure, parsed};
use super::super::output::Output;
use super::arguments::{found_by, positive, seconds};
use super::print::draw_and_print;

/// Adds it to the benchmarks.
pub(super) fn command() -> clap::Command {
    Fib::augment_args(clap::Command::new("fib"))
        .about("Routes, next hops and the FIB as a whole: from events to what readers see")
        .after_help(
            "Examples:
  $ fingerpost-lab bench fib --table v4.txt.xz --table v6.txt.xz
  $ fingerpost-lab bench fib --table v4.txt.xz --stream-file updates.txt.xz --peers kernel,bird --json

Next hops of the table are found by interior routes, as a border router has them. `load` and
`withdraw-all` are the whole table until a reader sees it come or go; `stream-replay` is the recorded
stream, or random routes withdrawn and announced; `change-to-visible` one route until a reader on
another core sees it; `nexthop-loss` a next hop with 400,000 routes behind it, lost to the interior
protocol or with its link; `lookups-during-updates` what remains of the lookup rate. Peers need root:
they work in a network namespace that goes with the run.",
        )
}

#[derive(Args, Debug)]
struct Fib {
    /// A table of routes; may be given once a family
    #[arg(long, value_name = "FILE", required = true)]
    table: Vec<PathBuf>,
    /// A recorded stream of updates
    #[arg(long, value_name = "FILE")]
    stream_file: Option<PathBuf>,
    /// Other programs at the same jobs: names, `all`, or `none`
    #[arg(long, value_name = "NAME", default_value = "none", value_parser = found_by(find))]
    peers: String,
    /// Measuring time of each run that is a rate
    #[arg(long, value_name = "S", default_value_t = 2.0, value_parser = seconds)]
    seconds: f64,
    /// Samples of each run
    #[arg(long, value_name = "R", default_value_t = 9, value_parser = positive)]
    repeat: usize,
    /// Seed of the random routes
    #[arg(long, value_name = "X", default_value_t = 1)]
    seed: u64,
    /// Write the document and its drawings there
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Measures and prints.
pub(super) fn run(matches: &ArgMatches, output: &mut Output) -> Result<(), Failure> {
    let arguments: Fib = parsed(matches)?;
    let recorded = arguments.stream_file.as_deref().map(Recorded::load).transpose()?;
    let options = FibOptions {
        tables: Tables::load(&arguments.table)?,
        recorded,
        peers: find(&arguments.peers)?,
        seconds: arguments.seconds,
        samples: arguments.repeat,
        seed: arguments.seed,
    };
    let document = fib(&options, &mut Progress::new())?;
    draw_and_print("fib", document, arguments.out.as_deref(), output)
}
