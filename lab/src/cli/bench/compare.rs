//! `bench compare`: its options.

use std::io::{self, Write};
use std::path::PathBuf;

use clap::{ArgMatches, Args};
use fingerpost_command::progress::Progress;
use fingerpost_lab::compare::{Comparison, LEAST_ROUNDS, compare};

use super::super::command::{Failure, parsed};
use super::super::output::{Columns, Output, Report, message};

/// Adds it to the benchmarks.
pub(super) fn command() -> clap::Command {
    Compare::augment_args(clap::Command::new("compare"))
        .about("Two builds in alternation: the ratio of their speeds, with its 95 % interval")
        .after_help(
            "Examples:
  $ fingerpost-lab bench compare --before old/fingerpost-lab --after new/fingerpost-lab -- forward --table v4.txt.xz
  $ fingerpost-lab bench compare --before old --after new --rounds 21 -- lookup --table v4.txt.xz --algorithm dxr

Runs `PROGRAM bench ARGUMENTS --json` of both by turns and compares the runs that both have, round by
round. A ratio above 1: the second program is faster.",
        )
}

#[derive(Args, Debug)]
struct Compare {
    /// The program to compare with
    #[arg(long, value_name = "PROGRAM")]
    before: PathBuf,
    /// The program that is compared
    #[arg(long, value_name = "PROGRAM")]
    after: PathBuf,
    /// Rounds; each runs both programs once
    #[arg(long, value_name = "N", default_value_t = 11, value_parser = rounds)]
    rounds: usize,
    /// The benchmark and its options
    #[arg(required = true, last = true, value_name = "ARGUMENTS")]
    arguments: Vec<String>,
}

fn rounds(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|rounds| *rounds >= LEAST_ROUNDS);
    number.ok_or_else(|| format!("not a number of at least {LEAST_ROUNDS}"))
}

/// Measures and prints.
pub(super) fn run(matches: &ArgMatches, output: &mut Output) -> Result<(), Failure> {
    let Compare { before, after, rounds, arguments } = parsed(matches)?;
    message(format_args!("{rounds} rounds of bench {}", arguments.join(" ")));
    let compared = compare([&before, &after], &arguments, rounds, &mut Progress::new())?;
    Ok(output.print(&Printed(compared))?)
}

#[derive(serde::Serialize)]
#[serde(transparent)]
struct Printed(Comparison);

impl Report for Printed {
    fn text(&self, to: &mut dyn Write) -> io::Result<()> {
        writeln!(to, "{}, {} cores", self.0.machine.cpu, self.0.machine.cores)?;
        let headings = ["RUN", "STREAM", "MODE", "BEFORE", "AFTER", "UNIT", "RATIO", "95 %"];
        let mut columns = Columns::new(&headings);
        for run in &self.0.runs {
            columns.row([
                run.name.clone(),
                run.stream.clone(),
                run.mode.to_owned(),
                format!("{:.2}", run.before),
                format!("{:.2}", run.after),
                run.unit.to_owned(),
                format!("{:.3}", run.ratio),
                format!("{:.3} to {:.3}", run.low, run.high),
            ]);
        }
        columns.write(to)
    }
}
