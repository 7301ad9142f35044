//! `fingerpost log`: what a running router logs.

use std::io::{self, Write};

use clap::{ArgMatches, Args, Subcommand};
use hyper::Method;

use super::command::{Command, Failure, parsed, subcommands};
use super::output::{Column, Columns, Output, Report};
use crate::api::log::{LogChange, LogState, LogTarget};
use crate::cli::at::At;

pub(super) const COMMAND: Command = Command {
    name: "log",
    summary: "Log levels of the running router",
    examples: "",
    arguments: subcommands::<What>,
    run,
};

#[derive(Subcommand)]
enum What {
    /// Print the log level of each target, or change levels until the end of the run
    #[command(after_help = EXAMPLES)]
    Level(Arguments),
}

const EXAMPLES: &str = "Examples:
  $ fingerpost log level
  $ fingerpost log level fib=debug
  $ fingerpost log level info

LEVEL is off, error, warn, info or debug. A level without a target holds for all targets. A \
configuration with other levels that is applied replaces them; [log] of the file keeps them across \
restarts.";

#[derive(Args)]
struct Arguments {
    /// Level of all targets, and others for single targets: `info,fib=debug`
    #[arg(value_name = "LEVEL,..")]
    level: Option<String>,
    #[command(flatten)]
    at: At,
}

fn run(matches: &ArgMatches, output: &mut Output) -> Result<(), Failure> {
    let What::Level(Arguments { level, at }) = parsed(matches)?;
    let client = at.client()?;
    let state: LogState = match level {
        None => client.get("/v1/log", &())?,
        Some(level) => client.send(Method::PUT, "/v1/log/level", &LogChange { level })?,
    };
    Ok(output.print(&state)?)
}

impl Report for LogState {
    fn text(&self, to: &mut dyn Write) -> io::Result<()> {
        let columns: &[Column<LogTarget>] = &[
            ("target", |row| row.target.clone()),
            ("level", |row| row.level.clone()),
            ("what", |row| row.summary.clone()),
        ];
        Columns::of(columns, &self.targets).write(to)?;
        match self.suppressed {
            0 => Ok(()),
            count => writeln!(to, "{count} lines were left out because they repeated"),
        }
    }
}
