//! `fingerpost config save`: run-time changes for the next start, or in a configuration file.

use std::io::{self, Write};
use std::path::PathBuf;

use clap::Args;
use fingerpost_command::save::Saved;
use hyper::Method;

use super::super::command::{Exit, Failure};
use super::super::output::{Output, Report, message};
use crate::api::config::ConfigShown;
use crate::api::saved::{RuntimeChanges, SavedChange};
use crate::cli::at::At;
use crate::config::merged;

pub(super) const SAVE: &str = "Examples:
  $ fingerpost config save
  $ fingerpost config save --to router.toml

Saves routes and neighbors that commands have made, changes of source filters, and algorithms that \
were chosen: the next run of the daemon makes them again, after its configuration. What was saved \
before and is gone now is not saved any more. Routes that expire, graphs that were swapped in and \
drained nodes of a cluster are left out. The daemon needs a state folder (`run --state`).

With --to, a configuration file is written instead that gives the router of this moment: the \
running configuration with these changes in it, without its comments.";

#[derive(Args)]
pub(super) struct Arguments {
    /// Write a configuration file instead
    #[arg(long, value_name = "FILE")]
    to: Option<PathBuf>,
    #[command(flatten)]
    at: At,
}

pub(super) fn run(arguments: &Arguments, output: &mut Output) -> Result<(), Failure> {
    let client = arguments.at.client()?;
    let Some(path) = &arguments.to else {
        let saved: RuntimeChanges = client.send(Method::POST, "/v1/config/save", &())?;
        saved.left_out.iter().for_each(|what| message(format_args!("left out: {what}")));
        return Ok(output.print(&saved)?);
    };
    let running: ConfigShown = client.get("/v1/config", &())?;
    let mut changes: RuntimeChanges = client.get("/v1/config/changes", &())?;
    let read = |line: &String| line.parse::<SavedChange>();
    let read: Result<Vec<_>, String> = changes.lines.iter().map(read).collect();
    let failed = |words| Failure::new(Exit::Failed, words);
    let (text, left_out) = merged(&running.text, &read.map_err(failed)?).map_err(failed)?;
    changes.left_out.extend(left_out);
    let mut file = Saved::create(path)?;
    let heading = format!(
        "# Configuration {} with the run-time changes of the router, by `fingerpost config save --to`.\n",
        running.entry.number
    );
    let written = file.write_all(heading.as_bytes()).and_then(|()| file.write_all(text.as_bytes()));
    written.map_err(|error| file.failed(&error))?;
    file.finish()?;
    changes.left_out.iter().for_each(|what| message(format_args!("left out: {what}")));
    Ok(output.print(&changes)?)
}

impl Report for RuntimeChanges {
    fn text(&self, to: &mut dyn Write) -> io::Result<()> {
        self.lines.iter().try_for_each(|line| writeln!(to, "{line}"))
    }
}
