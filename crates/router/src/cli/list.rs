//! `NAME show`: the lists that a running router has, a row for each thing.
//!
//! A list is a type of the API and what people see of it ([`Listed`]); requests, printing and the command
//! line are the same for all.

use std::io::{self, Write};

use clap::{ArgMatches, Args};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::command::{Failure, parsed};
use super::output::{Column, Columns, Output, Report};
use crate::cli::at::At;

/// A thing of which the router has a list.
pub(super) trait Listed: Serialize + DeserializeOwned + 'static {
    /// Where the API has the list.
    const PATH: &'static str;
    /// Columns.
    const COLUMNS: &'static [Column<Self>];
    /// Help of `show`, a line.
    const ABOUT: &'static str;
    /// Ends that help: `Examples:`, and what else is to be known.
    const EXAMPLES: &'static str;

    /// A line below all rows.
    fn ending(_: &[Self]) -> Option<String> {
        None
    }

    /// Rows of its parts, to stand below its own.
    fn parts(&self) -> Vec<Vec<String>> {
        Vec::new()
    }
}

/// The options of a command whose one subcommand is `show`.
pub(super) fn arguments<T: Listed>(command: clap::Command) -> clap::Command {
    // `At` brings a summary of its own, which is not this command's.
    let show = At::augment_args(clap::Command::new("show")).about(T::ABOUT).long_about(None);
    command.subcommand(show.after_help(T::EXAMPLES)).subcommand_required(true)
}

/// Runs that command.
pub(super) fn run<T: Listed>(matches: &ArgMatches, output: &mut Output) -> Result<(), Failure> {
    let (_, matches) = matches.subcommand().expect("clap requires `show`");
    show::<T>(&parsed(matches)?, output)
}

/// Requests the list and prints it.
pub(super) fn show<T: Listed>(at: &At, output: &mut Output) -> Result<(), Failure> {
    let rows: Vec<T> = at.client()?.get(T::PATH, &())?;
    Ok(output.print(&List(rows))?)
}

#[derive(Serialize)]
struct List<T>(Vec<T>);

impl<T: Listed> Report for List<T> {
    fn text(&self, to: &mut dyn Write) -> io::Result<()> {
        let mut columns = Columns::headed(T::COLUMNS);
        for row in &self.0 {
            columns.thing(T::COLUMNS, row);
            row.parts().into_iter().for_each(|part| columns.row(part));
        }
        columns.write(to)?;
        T::ending(&self.0).map_or(Ok(()), |line| writeln!(to, "{line}"))
    }
}
