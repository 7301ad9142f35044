//! `fingerpost route`: the routes of a running router.

mod change;
mod export;
mod get;
mod show;

use clap::{ArgMatches, Subcommand};

use super::command::{Command, Failure, parsed, subcommands};
use super::output::Output;
use crate::api::model::Action;

pub(super) use get::{drivers, what};

pub(super) const COMMAND: Command = Command {
    name: "route",
    summary: "Routes of the running router: look up, list, export, add, delete",
    examples: "",
    arguments: subcommands::<What>,
    run,
};

#[derive(Subcommand)]
enum What {
    /// Route of an address, from the live lookup
    #[command(after_help = get::EXAMPLES)]
    Get(get::Arguments),
    /// List routes, a line each
    #[command(after_help = show::EXAMPLES)]
    Show(show::Arguments),
    /// Write the best routes to a file, as an MRT dump
    #[command(after_help = export::EXAMPLES)]
    Export(export::Arguments),
    /// Add a route
    #[command(after_help = change::ADD)]
    Add(change::Arguments),
    /// Delete a route, or some of its paths
    #[command(visible_alias = "delete", after_help = change::DEL)]
    Del(change::Arguments),
    /// Change the path of a route
    #[command(after_help = change::CHANGE)]
    Change(change::Arguments),
    /// Add paths to a route, or add a route
    #[command(after_help = change::APPEND)]
    Append(change::Arguments),
    /// Add a route, or replace its paths
    #[command(after_help = change::REPLACE)]
    Replace(change::Arguments),
}

fn run(matches: &ArgMatches, output: &mut Output) -> Result<(), Failure> {
    match parsed::<What>(matches)? {
        What::Get(arguments) => get::run(&arguments, output),
        What::Show(arguments) => show::run(&arguments, output),
        What::Export(arguments) => export::run(&arguments, output),
        What::Add(arguments) => change::run(Action::Add, &arguments, output),
        What::Del(arguments) => change::run(Action::Delete, &arguments, output),
        What::Change(arguments) => change::run(Action::Change, &arguments, output),
        What::Append(arguments) => change::run(Action::Append, &arguments, output),
        What::Replace(arguments) => change::run(Action::Replace, &arguments, output),
    }
}
