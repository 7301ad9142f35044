//! `fingerpost man`: the manual pages of all commands.

use std::io::{self, Write};
use std::path::PathBuf;

use clap::{ArgMatches, Args};
use serde::Serialize;

use super::command::{Command, Failure, command_line, parsed};
use super::output::{Output, Report};

pub(super) const COMMAND: Command = Command {
    name: "man",
    summary: "Write the manual pages of all commands",
    examples: "Examples:
  $ fingerpost man /usr/local/share/man/man1

A page a command, `fingerpost-run.1`, made of its help; `fingerpost.1` lists them.",
    arguments: Arguments::augment_args,
    run,
};

#[derive(Args)]
struct Arguments {
    /// Folder of the pages, which must be there
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

fn run(matches: &ArgMatches, output: &mut Output) -> Result<(), Failure> {
    let Arguments { folder } = parsed(matches)?;
    clap_mangen::generate_to(command_line(&super::PROGRAM), &folder).map_err(|error| {
        Failure::outside(error.kind(), format_args!("{}: {error}", folder.display()))
    })?;
    Ok(output.print(&Pages { folder })?)
}

/// The JSON of this command.
#[derive(Serialize)]
struct Pages {
    folder: PathBuf,
}

impl Report for Pages {
    fn text(&self, _: &mut dyn Write) -> io::Result<()> {
        Ok(())
    }
}
