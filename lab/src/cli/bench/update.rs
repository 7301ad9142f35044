//! `bench update`: its options.

use std::path::PathBuf;

use clap::{ArgMatches, Args};
use fingerpost_command::progress::Progress;
use fingerpost_lab::update::changes::Recorded;
use fingerpost_lab::{UpdateOptions, update};

use super::super::command::{Failure, parsed};
use super::super::output::Output;
use super::arguments::{Subjects, seconds};
use super::print::draw_and_print;

/// Adds it to the benchmarks.
pub(super) fn command() -> clap::Command {
    Update::augment_args(clap::Command::new("update"))
        .about("Routes withdrawn and announced, each visible on its own")
        .after_help(
            "Examples:
  $ fingerpost-lab bench update --table v4.txt.xz --algorithm radix
  $ fingerpost-lab bench update --table v4.txt.xz --stream-file updates.txt.xz --peers rte_fib --json

Route store and structure change together. `random-pairs` withdraws a random route and announces it
again; `stream` replays a recorded file over and over: lines `TIME OP PREFIX NEXTHOP` with `a` and
`w`, or MRT updates. Baselines make the same changes; what they refuse is counted in the note.
`lookups-during-updates` is what remains of the lookup rate while another core changes the table,
compared with that core changing a table of its own; `withdraw-all` the bytes that are left.",
        )
}

#[derive(Args, Debug)]
struct Update {
    #[command(flatten)]
    subjects: Subjects,
    /// A recorded stream of updates
    #[arg(long, value_name = "FILE")]
    stream_file: Option<PathBuf>,
    /// Measuring time of each run
    #[arg(long, value_name = "S", default_value_t = 2.0, value_parser = seconds)]
    seconds: f64,
    /// Seed of the random routes
    #[arg(long, value_name = "X", default_value_t = 1)]
    seed: u64,
}

/// Measures and prints.
pub(super) fn run(matches: &ArgMatches, output: &mut Output) -> Result<(), Failure> {
    let arguments: Update = parsed(matches)?;
    let recorded = arguments.stream_file.as_deref().map(Recorded::load).transpose()?;
    let options = UpdateOptions {
        tables: arguments.subjects.tables()?,
        algorithms: arguments.subjects.algorithms(),
        peers: arguments.subjects.peers()?,
        load_limit: arguments.subjects.load_limit(),
        recorded,
        seconds: arguments.seconds,
        samples: arguments.subjects.repeat,
        seed: arguments.seed,
    };
    let document = update(&options, &mut Progress::new())?;
    draw_and_print("update", document, arguments.subjects.out.as_deref(), output)
}
