//! `fingerpost config diff`, `apply`, `confirm` and `rollback`: the running configuration and another one.

use std::io::{self, Write};
use std::path::PathBuf;

use clap::Args;
use fingerpost_lpm::input;
use hyper::Method;
use serde::Serialize;

use super::super::command::{Exit, Failure};
use super::super::output::{Output, Report, message};
use super::history;
use crate::api::config::{
    ConfigApplied, ConfigApply, ConfigEntry, ConfigRollback, LONGEST_CONFIRM_S,
};
use crate::api::model::{ConfigChange, ConfigText};
use crate::cli::at::At;
use crate::config::Config;

pub(super) const DIFF: &str = "Examples:
  $ fingerpost config diff router.toml
  $ fingerpost config diff --history 7
  $ fingerpost config diff router.toml --json

Exit code 5 where something differs. `restart` marks changes that need a restart.";
pub(super) const APPLY: &str = "Examples:
  $ fingerpost config apply router.toml
  $ fingerpost config apply router.toml --confirm 60

Sources, distances, filters and algorithms change at once; new routes are added before old ones \
are deleted. Other changes are listed and need a restart. A file with an error changes nothing, \
nor does one with a source that cannot be opened. Relative paths start at the working directory of \
the daemon.

With --confirm the daemon restores the configuration before by itself, unless `config confirm` \
comes within that time: a change that cuts you off ends by itself. Until then no other \
configuration is applied. If the daemon is restarted meanwhile, the change was not confirmed: with \
a state folder (`run --state`) the configuration before it is used.";
pub(super) const CONFIRM: &str = "Examples:
  $ fingerpost config confirm";
pub(super) const ROLLBACK: &str = "Examples:
  $ fingerpost config rollback
  $ fingerpost config rollback 7
  $ fingerpost config rollback 7 --confirm 60

Without a number the configuration before the one that waits for its confirmation is restored. \
With a number of `config history` that configuration is applied again.";

#[derive(Args)]
pub(super) struct Diff {
    /// Configuration (TOML)
    #[arg(value_name = "FILE", required_unless_present = "history")]
    file: Option<PathBuf>,
    /// A configuration of the history instead, by its number
    #[arg(long, value_name = "N", conflicts_with = "file")]
    history: Option<u64>,
    #[command(flatten)]
    at: At,
}

/// Option of a change that must be confirmed.
#[derive(Args)]
struct Confirm {
    /// Seconds after which the configuration before is restored unless this one is confirmed
    #[arg(long, value_name = "SECONDS",
          value_parser = clap::value_parser!(u32).range(1..=i64::from(LONGEST_CONFIRM_S)))]
    confirm: Option<u32>,
}

#[derive(Args)]
pub(super) struct Apply {
    /// Configuration (TOML)
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    confirm: Confirm,
    #[command(flatten)]
    at: At,
}

#[derive(Args)]
pub(super) struct Rollback {
    /// Number of a configuration of the history
    #[arg(value_name = "NUMBER")]
    number: Option<u64>,
    #[command(flatten)]
    confirm: Confirm,
    #[command(flatten)]
    at: At,
}

fn read(file: &PathBuf) -> Result<ConfigText, Failure> {
    let name = file.display().to_string();
    let text = input::read_text_or_stdin(file)
        .map_err(|error| Failure::outside(error.kind(), format_args!("{name}: {error}")))?;
    Config::former_names_of(file, &text).iter().for_each(message);
    Ok(ConfigText { file: name, text })
}

pub(super) fn diff(arguments: &Diff, output: &mut Output) -> Result<(), Failure> {
    let client = arguments.at.client()?;
    let text = match (&arguments.file, arguments.history) {
        (Some(file), _) => read(file)?,
        (None, number) => history::text_of(&client, number)?,
    };
    let changes = Changes { changes: client.send(Method::POST, "/v1/config/diff", &text)? };
    output.print(&changes)?;
    if changes.changes.is_empty() { Ok(()) } else { Err(Failure::Reported(Exit::Differences)) }
}

pub(super) fn apply(arguments: &Apply, output: &mut Output) -> Result<(), Failure> {
    let ConfigText { file, text } = read(&arguments.file)?;
    let wanted = ConfigApply { file, text, confirm_s: arguments.confirm.confirm };
    let applied: ConfigApplied =
        arguments.at.client()?.send(Method::POST, "/v1/config/apply", &wanted)?;
    waits(&applied);
    Ok(output.print(&applied)?)
}

pub(super) fn confirm(at: &At, output: &mut Output) -> Result<(), Failure> {
    let confirmed: ConfigEntry = at.client()?.send(Method::POST, "/v1/config/confirm", &())?;
    Ok(output.print(&history::Entries(vec![confirmed]))?)
}

pub(super) fn rollback(arguments: &Rollback, output: &mut Output) -> Result<(), Failure> {
    let (number, confirm_s) = (arguments.number, arguments.confirm.confirm);
    if number.is_none() && confirm_s.is_some() {
        let words = "--confirm goes with the number of a configuration: see `config history`";
        return Err(Failure::new(Exit::Usage, words));
    }
    let body = ConfigRollback { number, confirm_s };
    let applied: ConfigApplied =
        arguments.at.client()?.send(Method::POST, "/v1/config/rollback", &body)?;
    waits(&applied);
    Ok(output.print(&applied)?)
}

/// Prints what is to be done about a configuration that waits.
fn waits(applied: &ConfigApplied) {
    if let ConfigApplied { number, confirm_s: Some(seconds), .. } = applied {
        message(format_args!(
            "configuration {number} is rolled back in {seconds} s: `fingerpost config confirm` keeps it"
        ));
    }
}

#[derive(Serialize)]
struct Changes {
    changes: Vec<ConfigChange>,
}

impl Report for Changes {
    fn text(&self, to: &mut dyn Write) -> io::Result<()> {
        self.changes.iter().try_for_each(|change| writeln!(to, "{change}"))
    }
}

impl Report for ConfigApplied {
    fn text(&self, to: &mut dyn Write) -> io::Result<()> {
        self.changes.iter().try_for_each(|change| writeln!(to, "{change}"))
    }
}
