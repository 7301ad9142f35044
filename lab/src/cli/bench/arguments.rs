//! Options that several benchmarks share: tables, algorithms, baselines, the folder of results.

use std::fmt::Display;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use fingerpost_lab::peer;
use fingerpost_lab::syn::Syn;
use fingerpost_lab::table::Tables;

use super::super::choice;
use super::super::command::{Exit, Failure};
use super::super::output::message;

/// Who is measured, and on what.
#[derive(Args, Debug)]
pub(super) struct Subjects {
    /// A table of routes; may be given once a family
    #[arg(long, value_name = "FILE", required = true)]
    table: Vec<PathBuf>,
    /// Algorithms (`fingerpost algorithms` lists them), or `all`
    #[arg(long, value_name = "NAME", value_delimiter = ',', default_value = choice::ALL)]
    #[arg(value_parser = choice::names(choice::ALL), hide_possible_values = true)]
    algorithm: Vec<String>,
    /// Programs of others in the same turns: names, `all`, or `none`
    #[arg(long, value_name = "NAME", default_value = "none")]
    #[arg(value_parser = found_by(|names| peer::find(names, 4)))]
    peers: String,
    /// How long each of them may take to load the table; rte_lpm wants minutes for a full one
    #[arg(long, value_name = "S", default_value_t = 60.0, value_parser = seconds)]
    peer_seconds: f64,
    /// Split IPv4 prefixes into more, as the tables SYN1 and SYN2 of Poptrie's evaluation
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=2))]
    syn: Option<u8>,
    /// Samples of each run
    #[arg(long, value_name = "R", default_value_t = 9, value_parser = positive)]
    pub(super) repeat: usize,
    /// Write the document and its drawings there
    #[arg(long, value_name = "DIR")]
    pub(super) out: Option<PathBuf>,
}

impl Subjects {
    /// No names stand for all of them.
    pub(super) fn algorithms(&self) -> Vec<String> {
        let all = self.algorithm.iter().any(|name| name == choice::ALL);
        if all { Vec::new() } else { self.algorithm.clone() }
    }

    /// The tables, split where `--syn` is given.
    pub(super) fn tables(&self) -> Result<Tables, Failure> {
        let mut tables = Tables::load(&self.table)?;
        if let Some(number) = self.syn {
            let syn = if number == 1 { Syn::One } else { Syn::Two };
            let v4 = tables.v4.as_ref().map(|table| syn.split(table));
            let missing = || Failure::new(Exit::Failed, "--syn: no IPv4 table");
            tables.v4 = Some(v4.ok_or_else(missing)?);
        }
        Ok(tables)
    }

    /// How long a peer may take to load the table.
    pub(super) fn load_limit(&self) -> Duration {
        Duration::from_secs_f64(self.peer_seconds)
    }

    /// The rows that `--peers` names; for `all` those that were never built are built.
    pub(super) fn peers(&self) -> Result<Vec<&'static peer::Row>, Failure> {
        let rows: Vec<_> = [peer::find(&self.peers, 4)?, peer::find(&self.peers, 6)?].concat();
        Ok(built(&self.peers, rows))
    }
}

/// The rows that `names` stands for; for `all` those that were never built are built.
pub(super) fn built(names: &str, rows: Vec<&'static peer::Row>) -> Vec<&'static peer::Row> {
    let mut missing: Vec<_> = rows.iter().filter(|row| !row.is_built()).collect();
    missing.dedup_by_key(|row| row.program.name);
    if names == "all" && !missing.is_empty() {
        let programs: Vec<_> = missing.iter().map(|row| row.program.name).collect();
        message(format_args!("building {}", programs.join(", ")));
        if let Err(error) = peer::build(&programs) {
            message(format_args!("{error:#}"));
        }
    }
    rows
}

/// Takes what `find` finds something by, as it is written.
pub(super) fn found_by<T: 'static, E: Display + 'static>(
    find: fn(&str) -> Result<T, E>,
) -> impl Fn(&str) -> Result<String, String> + Clone {
    move |text| find(text).map(|_| text.to_owned()).map_err(|error| error.to_string())
}

/// A count of something.
pub(super) fn positive(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|n| *n > 0).ok_or_else(|| "not a number above 0".into())
}

/// A time of at most a day: clocks cannot count to just any number.
pub(super) fn seconds(text: &str) -> Result<f64, String> {
    const DAY: f64 = 86_400.0;
    match text.parse::<f64>() {
        Ok(number) if number > DAY => Err("more than a day".into()),
        Ok(number) if number > 0.0 => Ok(number),
        _ => Err("not a number above 0".into()),
    }
}
