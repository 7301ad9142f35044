//! `NAME show` of each interface feature that has rows to show: commands made of the registry's rows.

use std::fmt::Write as _;
use std::io::{self, Write};

use clap::{ArgMatches, Args};
use fingerpost_packet::feature::{FEATURES, Feature};
use serde::Serialize;
use serde_json::{Map, Value};

use super::command::{Failure, MadeCommands, parsed};
use super::output::{Columns, Output, Report};
use crate::cli::at::At;

/// A command for each feature with rows to show, but for those that have a row among the commands.
pub(super) const COMMANDS: MadeCommands =
    MadeCommands { all: || features().map(command).collect(), run };

fn features() -> impl Iterator<Item = &'static Feature> {
    let has_row = |name| super::COMMANDS.iter().any(|row| row.name == name);
    FEATURES.iter().filter(move |row| !row.columns.is_empty() && !has_row(row.name))
}

/// The command of a feature, whose one subcommand is `show`.
fn command(row: &Feature) -> clap::Command {
    let command = clap::Command::new(row.name).about(format!("Interface feature: {}", row.summary));
    command.subcommand(show_command(row)).subcommand_required(true)
}

/// The subcommand `show`.
pub(super) fn show_command(row: &Feature) -> clap::Command {
    let mut help = format!(
        "Examples:\n  $ fingerpost {0} show\n  $ fingerpost {0} show --json\n\nColumns:\n",
        row.name
    );
    for column in row.columns {
        let _ = writeln!(help, "  {:<12} {}", column.heading, column.summary);
    }
    let about = format!("List the rows of {} with their counters", row.name);
    // `At` brings a summary of its own, which is not this command's.
    At::augment_args(clap::Command::new("show"))
        .about(about)
        .long_about(None)
        .after_help(help.trim_end().to_owned())
}

fn run(name: &str, matches: &ArgMatches, output: &mut Output) -> Result<(), Failure> {
    let row = features().find(|row| row.name == name).expect("clap knows no others");
    let (_, matches) = matches.subcommand().expect("clap requires `show`");
    show(row, matches, output)
}

/// Prints the rows of a feature.
pub(super) fn show(
    row: &'static Feature,
    matches: &ArgMatches,
    output: &mut Output,
) -> Result<(), Failure> {
    let at: At = parsed(matches)?;
    let rows = at.client()?.get(&format!("/v1/features/{}", row.name), &())?;
    Ok(output.print(&Rows { feature: row, rows })?)
}

#[derive(Serialize)]
#[serde(transparent)]
struct Rows {
    #[serde(skip)]
    feature: &'static Feature,
    rows: Vec<Map<String, Value>>,
}

impl Report for Rows {
    fn text(&self, to: &mut dyn Write) -> io::Result<()> {
        if let ([], Some(section)) = (&*self.rows, self.feature.section) {
            return writeln!(to, "none: the running configuration has no `[[{}]]`", section.name);
        }
        let headings: Vec<&str> =
            self.feature.columns.iter().map(|column| column.heading).collect();
        let mut columns = Columns::new(&headings);
        for row in &self.rows {
            columns.row(self.feature.columns.iter().map(|column| cell(row.get(column.field))));
        }
        columns.write(to)
    }
}

/// A value as a cell of text.
fn cell(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => "-".to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(list)) => {
            list.iter().map(|item| cell(Some(item))).collect::<Vec<_>>().join(",")
        }
        Some(other) => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_feature_without_rows_has_a_line() {
        let feature = FEATURES.iter().find(|row| row.name == "acl").unwrap();
        let rows = Rows { feature, rows: Vec::new() };
        let mut text = Vec::new();
        rows.text(&mut text).unwrap();
        assert_eq!(text, b"none: the running configuration has no `[[acl]]`\n");
        assert_eq!(serde_json::to_string(&rows).unwrap(), "[]");
    }
}
