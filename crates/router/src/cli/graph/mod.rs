//! `fingerpost graph`: configurations of a packet graph in Click's language, and the graph of a running router.

mod check;
mod show;
mod stats;
mod swap;

use std::path::Path;

use clap::{ArgMatches, Subcommand};
use fingerpost_lpm::input;
use fingerpost_packet::OpenPolicy;
use fingerpost_packet::language::{Configuration, Errors};

use super::command::{Command, Failure, parsed, subcommands};
use super::output::Output;
use crate::click;

pub(super) const COMMAND: Command = Command {
    name: "graph",
    summary: "Check or draw a packet graph in Click's language; counters of the running one",
    examples: "",
    arguments: subcommands::<What>,
    run,
};

#[derive(Subcommand)]
enum What {
    /// List all errors of a configuration
    #[command(after_help = check::EXAMPLES)]
    Check(check::Arguments),
    /// Print a configuration with its compounds expanded, or draw it
    #[command(after_help = show::EXAMPLES)]
    Show(show::Arguments),
    /// Counters of the elements: packets, batches, clock cycles, drops by reason
    #[command(after_help = stats::EXAMPLES)]
    Stats(stats::Arguments),
    /// Run another graph in the running router
    #[command(after_help = swap::EXAMPLES)]
    Swap(swap::Arguments),
}

fn run(matches: &ArgMatches, output: &mut Output) -> Result<(), Failure> {
    match parsed::<What>(matches)? {
        What::Check(arguments) => check::run(&arguments, output),
        What::Show(arguments) => show::run(&arguments, output),
        What::Stats(arguments) => stats::run(&arguments, output),
        What::Swap(arguments) => swap::run(&arguments, output),
    }
}

/// A configuration from a file, or with `-` from standard input. Nothing is opened for it but what is read.
fn read(path: &Path) -> Result<Result<Configuration, Errors>, Failure> {
    let name = path.display().to_string();
    let text = input::read_text_or_stdin(path)
        .map_err(|error| Failure::outside(error.kind(), format_args!("{name}: {error}")))?;
    Ok(click::configuration(&name, &text, &click::Given::default(), &OpenPolicy::check()))
}
