//! `fingerpost config check`: a file by itself.

use std::io::{self, Write};
use std::path::PathBuf;

use clap::Args;
use fingerpost_lpm::input;
use serde::Serialize;

use super::super::command::{Exit, Failure};
use super::super::output::{Output, Report, message};
use crate::config::{Config, ConfigError};

pub(super) const EXAMPLES: &str = "Examples:
  $ fingerpost config check router.toml
  $ fingerpost config check router.toml --json

Every error is printed with its line. An interface that static routes name and that this host does not have at \
present is a warning: the routes wait for it.";

#[derive(Args)]
pub(super) struct Arguments {
    /// Configuration (TOML)
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

pub(super) fn run(arguments: &Arguments, output: &mut Output) -> Result<(), Failure> {
    let file = &arguments.file;
    let text = input::read_text_or_stdin(file).map_err(|error| {
        Failure::outside(error.kind(), format_args!("{}: {error}", file.display()))
    })?;
    let interfaces = interfaces();
    let read = Config::of_text(file, &text, Some(&interfaces)).inspect(|config| {
        config.former_name_warnings(file).for_each(message);
        config.absent_links(&interfaces).iter().for_each(message);
    });
    let errors = read.and_then(|config| config.check_lists(file, &text)).err().unwrap_or_default();
    let rows = errors.iter().map(Mistake::from).collect();
    output.print(&Checked { file: file.display().to_string(), errors: rows })?;
    if errors.is_empty() {
        return Ok(());
    }
    errors.iter().for_each(message);
    Err(Failure::Reported(Exit::Failed))
}

/// The host's interfaces with their numbers, as the daemon would find them.
fn interfaces() -> Vec<(String, u32)> {
    let Ok(folder) = std::fs::read_dir("/sys/class/net") else { return Vec::new() };
    let number = |entry: std::fs::DirEntry| {
        let index = std::fs::read_to_string(entry.path().join("ifindex")).ok()?;
        Some((entry.file_name().into_string().ok()?, index.trim().parse().ok()?))
    };
    folder.flatten().filter_map(number).collect()
}

/// The JSON of this command.
#[derive(Serialize)]
struct Checked {
    file: String,
    errors: Vec<Mistake>,
}

#[derive(Serialize)]
struct Mistake {
    line: Option<usize>,
    message: String,
}

impl From<&ConfigError> for Mistake {
    fn from(error: &ConfigError) -> Self {
        Self { line: error.line(), message: error.what().to_owned() }
    }
}

impl Report for Checked {
    fn text(&self, to: &mut dyn Write) -> io::Result<()> {
        match self.errors.len() {
            0 => writeln!(to, "{}: ok", self.file),
            1 => writeln!(to, "{}: 1 mistake", self.file),
            many => writeln!(to, "{}: {many} mistakes", self.file),
        }
    }
}
