//! `bench build`: its options.

use clap::{ArgMatches, Args};
use fingerpost_command::progress::Progress;
use fingerpost_lab::{BuildOptions, build};

use super::super::command::{Failure, parsed};
use super::super::output::Output;
use super::arguments::Subjects;
use super::print::draw_and_print;

/// Adds it to the benchmarks.
pub(super) fn command() -> clap::Command {
    Build::augment_args(clap::Command::new("build"))
        .about("Time from a loaded route store to a table that answers")
        .after_help(
            "Examples:
  $ fingerpost-lab bench build --table v4.txt.xz
  $ fingerpost-lab bench build --table v4.txt.xz --algorithm dxr18 --peers rte_fib --json",
        )
}

#[derive(Args, Debug)]
struct Build {
    #[command(flatten)]
    subjects: Subjects,
}

/// Measures and prints.
pub(super) fn run(matches: &ArgMatches, output: &mut Output) -> Result<(), Failure> {
    let arguments: Build = parsed(matches)?;
    let options = BuildOptions {
        tables: arguments.subjects.tables()?,
        algorithms: arguments.subjects.algorithms(),
        peers: arguments.subjects.peers()?,
        load_limit: arguments.subjects.load_limit(),
        samples: arguments.subjects.repeat,
    };
    let document = build(&options, &mut Progress::new())?;
    draw_and_print("build", document, arguments.subjects.out.as_deref(), output)
}
