//! `fingerpost table`: what is in a table, its other forms, and whether all algorithms agree on it.

mod convert;
mod fetch;
mod info;

use clap::{ArgMatches, Subcommand};

use super::command::{Command, Failure, parsed, subcommands};
use super::lab;
use super::output::Output;

pub(super) const COMMAND: Command = Command {
    name: "table",
    summary: "Statistics of a table file, its conversion, and checks of the algorithms on it",
    examples: "",
    arguments: subcommands::<What>,
    run,
};

#[derive(Subcommand)]
enum What {
    /// Count the routes of a table, their lengths and next hops
    #[command(after_help = info::EXAMPLES)]
    Info(info::Arguments),
    /// Write a table as text or MRT
    #[command(after_help = convert::EXAMPLES)]
    Convert(convert::Arguments),
    /// Fetch tables and updates of route collectors, or any file
    #[command(after_help = fetch::EXAMPLES)]
    Fetch(fetch::Arguments),
    /// Compare algorithms with the oracle: random addresses, and the ends of all prefixes (fingerpost-lab)
    Check(lab::Any),
}

fn run(matches: &ArgMatches, output: &mut Output) -> Result<(), Failure> {
    match parsed::<What>(matches)? {
        What::Info(arguments) => info::run(&arguments, output),
        What::Convert(arguments) => convert::run(&arguments, output),
        What::Fetch(arguments) => fetch::run(&arguments, output),
        What::Check(_) => lab::start(),
    }
}
