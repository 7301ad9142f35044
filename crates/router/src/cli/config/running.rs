//! `fingerpost config diff` and `apply`: a file beside the running configuration.

use std::io::{self, Write};
use std::path::PathBuf;

use clap::Args;
use fingerpost_lpm::input;
use hyper::Method;
use serde::Serialize;

use super::super::command::{Exit, Failure};
use super::super::output::{Output, Report};
use crate::api::model::{ConfigChange, ConfigText};
use crate::cli::at::At;
use crate::config::Config;

pub(super) const DIFF: &str = "Examples:
  $ fingerpost config diff router.toml
  $ fingerpost config diff router.toml --json

Exit code 5 where something differs. `restart` marks changes that need a restart.";
pub(super) const APPLY: &str = "Examples:
  $ fingerpost config apply router.toml

Sources, distances, filters and algorithms change at once; new routes are added before old ones \
are deleted. Other changes are listed and need a restart. A file with an error changes nothing. \
Relative paths start at the working directory of the daemon.";

#[derive(Args)]
pub(super) struct Arguments {
    /// Configuration (TOML)
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    at: At,
}

fn ask(arguments: &Arguments, path: &str) -> Result<Changes, Failure> {
    let file = arguments.file.display().to_string();
    let text = input::read_text_or_stdin(&arguments.file)
        .map_err(|error| Failure::outside(error.kind(), format_args!("{file}: {error}")))?;
    Config::warn_of_former_names(&arguments.file, &text);
    let changes = arguments.at.client()?.send(Method::POST, path, &ConfigText { file, text })?;
    Ok(Changes { changes })
}

pub(super) fn diff(arguments: &Arguments, output: &mut Output) -> Result<(), Failure> {
    let changes = ask(arguments, "/v1/config/diff")?;
    output.print(&changes)?;
    if changes.changes.is_empty() { Ok(()) } else { Err(Failure::Reported(Exit::Differences)) }
}

pub(super) fn apply(arguments: &Arguments, output: &mut Output) -> Result<(), Failure> {
    Ok(output.print(&ask(arguments, "/v1/config/apply")?)?)
}

#[derive(Serialize)]
struct Changes {
    changes: Vec<ConfigChange>,
}

impl Report for Changes {
    fn text(&self, to: &mut dyn Write) -> io::Result<()> {
        self.changes.iter().try_for_each(|change| writeln!(to, "{}", told(change)))
    }
}

/// A change in words, a line without its end.
pub(in crate::cli) fn told(change: &ConfigChange) -> String {
    let ConfigChange { item, from, to, restart, applied } = change;
    let what = match (from, to) {
        (Some(from), Some(new)) => format!("{from} -> {new}"),
        (Some(from), None) => format!("- {from}"),
        (None, Some(new)) => format!("+ {new}"),
        (None, None) => String::new(),
    };
    let state = match (restart, applied) {
        (true, _) => " (needs a restart)",
        (false, true) => " (applied)",
        (false, false) => "",
    };
    format!("{item}: {what}{state}")
}
