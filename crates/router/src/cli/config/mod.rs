//! `fingerpost config`: a configuration file, by itself and beside the running router.

mod check;
mod history;
mod running;
mod save;

use clap::{ArgMatches, Subcommand};

use super::command::{Command, Failure, parsed, subcommands};
use super::output::Output;
use crate::cli::at::At;

pub(super) const COMMAND: Command = Command {
    name: "config",
    summary: "Check a configuration, compare it with the running one, apply it, go back to an earlier one",
    examples: "",
    arguments: subcommands::<What>,
    run,
};

#[derive(Subcommand)]
enum What {
    /// Print the running configuration
    #[command(after_help = history::SHOW)]
    Show(At),
    /// List all errors of a file; needs no running router
    #[command(after_help = check::EXAMPLES)]
    Check(check::Arguments),
    /// List differences from the running configuration
    #[command(after_help = running::DIFF)]
    Diff(running::Diff),
    /// Apply a file to the running router, as far as that is possible without a restart
    #[command(after_help = running::APPLY)]
    Apply(running::Apply),
    /// Keep the configuration that waits for its confirmation
    #[command(after_help = running::CONFIRM)]
    Confirm(At),
    /// Restore the configuration before the one that waits, or apply an earlier one again
    #[command(after_help = running::ROLLBACK)]
    Rollback(running::Rollback),
    /// Save run-time changes for the next start, or in a configuration file
    #[command(after_help = save::SAVE)]
    Save(save::Arguments),
    /// List the configurations that were applied, or show one
    #[command(after_help = history::HISTORY)]
    History(history::History),
}

fn run(matches: &ArgMatches, output: &mut Output) -> Result<(), Failure> {
    match parsed::<What>(matches)? {
        What::Show(at) => history::show(&at, output),
        What::Check(arguments) => check::run(&arguments, output),
        What::Diff(arguments) => running::diff(&arguments, output),
        What::Apply(arguments) => running::apply(&arguments, output),
        What::Confirm(at) => running::confirm(&at, output),
        What::Rollback(arguments) => running::rollback(&arguments, output),
        What::Save(arguments) => save::run(&arguments, output),
        What::History(arguments) => history::history(&arguments, output),
    }
}
