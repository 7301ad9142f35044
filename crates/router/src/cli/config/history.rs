//! `fingerpost config show` and `history`: the running configuration, and those before it.

use std::io::{self, Write};

use clap::Args;
use serde::Serialize;

use super::super::command::Failure;
use super::super::output::{Columns, Output, Report};
use crate::api::client::Client;
use crate::api::config::{ConfigEntry, ConfigShown, ConfigState};
use crate::api::model::ConfigText;
use crate::cli::at::At;

pub(super) const SHOW: &str = "Examples:
  $ fingerpost config show
  $ fingerpost config show > running.toml

The text of the running configuration behind lines of comments: its number, who applied it, and \
whether it waits for its confirmation.";
pub(super) const HISTORY: &str = "Examples:
  $ fingerpost config history
  $ fingerpost config history 7

Lists the configurations that were applied; `*` marks the running one. With a number, that \
configuration is shown. The last 50 are kept, across restarts where the daemon has a state folder \
(`run --state`).";

#[derive(Args)]
pub(super) struct History {
    /// Number of the configuration to show
    #[arg(value_name = "NUMBER")]
    number: Option<u64>,
    #[command(flatten)]
    at: At,
}

pub(super) fn show(at: &At, output: &mut Output) -> Result<(), Failure> {
    let shown: ConfigShown = at.client()?.get("/v1/config", &())?;
    Ok(output.print(&shown)?)
}

pub(super) fn history(arguments: &History, output: &mut Output) -> Result<(), Failure> {
    let client = arguments.at.client()?;
    match arguments.number {
        Some(number) => Ok(output.print(&get(&client, number)?)?),
        None => Ok(output.print(&Entries(client.get("/v1/config/history", &())?))?),
    }
}

fn get(client: &Client, number: u64) -> Result<ConfigShown, Failure> {
    Ok(client.get(&format!("/v1/config/history/{number}"), &())?)
}

/// Text of a configuration of the history, or of the running one.
pub(super) fn text_of(client: &Client, number: Option<u64>) -> Result<ConfigText, Failure> {
    let ConfigShown { entry, text } = match number {
        Some(number) => get(client, number)?,
        None => client.get("/v1/config", &())?,
    };
    Ok(ConfigText { file: format!("configuration {}", entry.number), text })
}

/// Rows of the history.
#[derive(Serialize)]
#[serde(transparent)]
pub(super) struct Entries(pub(super) Vec<ConfigEntry>);

impl Report for Entries {
    fn text(&self, to: &mut dyn Write) -> io::Result<()> {
        let headings = ["number", "time", "state", "uid", "pid", "command", "file", "changes"];
        let mut columns = Columns::new(&headings);
        for entry in &self.0 {
            let mark = if entry.running { "*" } else { "" };
            let (by, changes) = (&entry.by, entry.changes.join("; "));
            columns.row([
                format!("{}{mark}", entry.number),
                entry.time.clone(),
                state(entry),
                by.uid.to_string(),
                by.pid.to_string(),
                by.command.clone(),
                or_none(&entry.file).to_owned(),
                if changes.is_empty() { "-".to_owned() } else { changes },
            ]);
        }
        columns.write(to)
    }
}

impl Report for ConfigShown {
    fn text(&self, to: &mut dyn Write) -> io::Result<()> {
        let Self { entry, text } = self;
        let ConfigEntry { number, time, by, .. } = entry;
        writeln!(to, "# configuration {number} of {}: {}", or_none(&entry.file), state(entry))?;
        writeln!(to, "# {time} by {by}")?;
        to.write_all(text.as_bytes())?;
        if text.is_empty() || text.ends_with('\n') { Ok(()) } else { writeln!(to) }
    }
}

fn or_none(file: &str) -> &str {
    if file.is_empty() { "-" } else { file }
}

/// State in words.
fn state(entry: &ConfigEntry) -> String {
    let word = match entry.state {
        ConfigState::Started => "started",
        ConfigState::Applied => "applied",
        ConfigState::Waiting => "waiting",
        ConfigState::Confirmed => "confirmed",
        ConfigState::RolledBack => "rolled back",
    };
    match (entry.seconds_left, &entry.reason) {
        (Some(left), _) => format!("{word} for its confirmation, {left} s left"),
        (None, Some(reason)) => format!("{word}: {reason}"),
        (None, None) => word.to_owned(),
    }
}
