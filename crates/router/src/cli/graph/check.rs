//! `fingerpost graph check`: all that is wrong with a configuration, in one run.

use std::io::{self, Write};
use std::path::PathBuf;

use clap::Args;
use fingerpost_packet::language::{Errors, Place};
use fingerpost_packet::{Plan, language};
use serde::Serialize;

use crate::cli::command::{Exit, Failure};
use crate::cli::output::{Output, Report};
use crate::registry;

pub(super) const EXAMPLES: &str = "Examples:
  $ fingerpost graph check router.click
  $ fingerpost graph check router.click --json | jq -r '.errors[] | \"\\(.line): \\(.message)\"'

Exit code 1 where the file has an error.";

#[derive(Args)]
pub(super) struct Arguments {
    /// Configuration in Click's language
    file: PathBuf,
}

pub(super) fn run(arguments: &Arguments, output: &mut Output) -> Result<(), Failure> {
    let read = super::read(&arguments.file)?;
    let checked = read.and_then(|graph| {
        let warnings = Plan::of(&graph, registry::all())?.warnings().to_vec();
        Ok((graph.elements().len(), graph.connections().len(), warnings))
    });
    let file = arguments.file.display().to_string();
    match checked {
        Ok((elements, connections, warned)) => {
            let warnings = warned.iter().map(Wrong::of).collect();
            let told = Told::Right(Right { file, elements, connections, warned });
            Ok(output.print(&Found { errors: Vec::new(), more: 0, warnings, told })?)
        }
        Err(errors) => {
            output.print(&Found::of(errors))?;
            Err(Failure::Reported(Exit::Failed))
        }
    }
}

/// The JSON of this command.
#[derive(Serialize)]
struct Found {
    errors: Vec<Wrong>,
    /// How many more there are.
    more: usize,
    /// What is right, but may not be meant.
    warnings: Vec<Wrong>,
    #[serde(skip)]
    told: Told,
}

/// The text of this command.
enum Told {
    Right(Right),
    Wrong(Errors),
}

struct Right {
    file: String,
    elements: usize,
    connections: usize,
    warned: Vec<language::Report>,
}

#[derive(Serialize)]
struct Wrong {
    /// The file itself, or a library that it requires.
    file: String,
    line: u32,
    column: u32,
    message: String,
    /// The text that is meant.
    token: String,
    hint: Option<String>,
    /// Other places that have to do with it.
    notes: Vec<Note>,
}

#[derive(Serialize)]
struct Note {
    file: String,
    line: u32,
    column: u32,
    message: String,
}

impl Found {
    fn of(errors: Errors) -> Self {
        let wrong = errors.reports.iter().map(Wrong::of).collect();
        let (more, warnings) = (errors.more, Vec::new());
        Self { errors: wrong, more, warnings, told: Told::Wrong(errors) }
    }
}

impl Wrong {
    fn of(report: &language::Report) -> Self {
        let note = |(place, words): &(Place, String)| Note {
            file: place.file.to_string(),
            line: place.line,
            column: place.column,
            message: words.clone(),
        };
        Self {
            file: report.place.file.to_string(),
            line: report.place.line,
            column: report.place.column,
            message: report.message.clone(),
            token: report.token.clone(),
            hint: report.hint.clone(),
            notes: report.notes.iter().map(note).collect(),
        }
    }
}

impl Report for Found {
    fn text(&self, to: &mut dyn Write) -> io::Result<()> {
        match &self.told {
            Told::Wrong(errors) => writeln!(to, "{errors}"),
            Told::Right(Right { file, elements, connections, warned }) => {
                for report in warned {
                    writeln!(to, "{}: warning: {}", report.place, report.message)?;
                }
                writeln!(to, "{file}: {elements} elements, {connections} connections, no errors")
            }
        }
    }
}
