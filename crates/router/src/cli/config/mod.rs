//! `fingerpost config`: a configuration file, by itself and beside the running router.

mod check;
mod running;

use clap::{ArgMatches, Subcommand};

use super::command::{Command, Failure, parsed, subcommands};
use super::output::Output;

pub(super) use running::told;

pub(super) const COMMAND: Command = Command {
    name: "config",
    summary: "Check a configuration, compare it with the running one, apply it",
    examples: "",
    arguments: subcommands::<What>,
    run,
};

#[derive(Subcommand)]
enum What {
    /// List all errors of a file; needs no running router
    #[command(after_help = check::EXAMPLES)]
    Check(check::Arguments),
    /// List differences from the running configuration
    #[command(after_help = running::DIFF)]
    Diff(running::Arguments),
    /// Apply a file to the running router, as far as that is possible without a restart
    #[command(after_help = running::APPLY)]
    Apply(running::Arguments),
}

fn run(matches: &ArgMatches, output: &mut Output) -> Result<(), Failure> {
    match parsed::<What>(matches)? {
        What::Check(arguments) => check::run(&arguments, output),
        What::Diff(arguments) => running::diff(&arguments, output),
        What::Apply(arguments) => running::apply(&arguments, output),
    }
}
