//! `fingerpost fib`: the lookup tables of a running router.

mod algorithm;
mod show;
mod verify;

use clap::{ArgMatches, Subcommand};

use super::command::{Command, Failure, parsed, subcommands};
use super::list::{self, Listed};
use super::output::Output;
use crate::api::model::Fib;
use crate::cli::at::At;

pub(super) const COMMAND: Command = Command {
    name: "fib",
    summary: "Lookup tables of the running router: algorithms, memory, verification",
    examples: "",
    arguments: subcommands::<What>,
    run,
};

#[derive(Subcommand)]
enum What {
    #[command(about = Fib::ABOUT, after_help = Fib::EXAMPLES)]
    Show(At),
    /// Print the lookup algorithm in use, or use another one
    #[command(after_help = algorithm::EXAMPLES)]
    Algorithm(algorithm::Arguments),
    /// Compare the lookups with the RIB
    #[command(after_help = verify::EXAMPLES)]
    Verify(At),
}

fn run(matches: &ArgMatches, output: &mut Output) -> Result<(), Failure> {
    match parsed::<What>(matches)? {
        What::Show(at) => list::show::<Fib>(&at, output),
        What::Algorithm(arguments) => algorithm::run(&arguments, output),
        What::Verify(at) => verify::run(&at, output),
    }
}
