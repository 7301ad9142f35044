//! `fingerpost fib algorithm`: which algorithm is used, and the wish for another one.

use std::io::{self, Write};

use clap::Args;
use fingerpost_command::progress::Progress;
use hyper::Method;
use serde::Serialize;

use super::super::choice;
use super::super::command::{Exit, Failure};
use super::super::output::{Columns, Output, Report, message};
use crate::api::model::{AlgorithmChange, Fib};
use crate::cli::at::{At, Persist};

pub(super) const EXAMPLES: &str = "Examples:
  $ fingerpost fib algorithm
  $ fingerpost fib algorithm --family 4 dxr18
  $ fingerpost fib algorithm measured
  $ fingerpost fib algorithm auto

A named algorithm is used as long as it can hold the table, whatever fits better. `auto` leaves \
the choice to the FIB again; `measured` calibrates the candidates on the live table and takes the \
fastest. Forwarding is not interrupted. A warning names the tables that the XDP datapath does not \
read: their packets leave it for the graph.";

/// Has the FIB calibrate the candidates on the live table.
const MEASURED: &str = "measured";

#[derive(Args)]
pub(super) struct Arguments {
    /// Algorithm, `auto` or `measured`; without a name the algorithm in use is printed
    #[arg(value_name = "NAME", value_parser = choice::names_beside(&[choice::AUTO, MEASURED]))]
    name: Option<String>,
    /// Address family [default: both]
    #[arg(long, value_name = "4|6", value_parser = ["4", "6"])]
    family: Option<String>,
    #[command(flatten)]
    persist: Persist,
    #[command(flatten)]
    at: At,
}

pub(super) fn run(arguments: &Arguments, output: &mut Output) -> Result<(), Failure> {
    if arguments.persist.persist && arguments.name.is_none() {
        let words = "--persist goes with the name of an algorithm, or `auto`";
        return Err(Failure::new(Exit::Usage, words));
    }
    let client = arguments.at.client()?;
    let family = arguments.family.as_ref().and_then(|family| family.parse().ok());
    let mut fibs: Vec<Fib> = match &arguments.name {
        None => client.get("/v1/fibs", &())?,
        Some(name) => {
            let mut progress = Progress::new();
            progress.stage(&format!("building {name}"));
            let change = AlgorithmChange { family, name: name.clone() };
            client.send(Method::PUT, arguments.persist.path("/v1/algorithm"), &change)?
        }
    };
    fibs.retain(|fib| family.is_none_or(|family: u8| family == fib.family));
    if let Some(name) = &arguments.name {
        warnings(name, &fibs).iter().for_each(message);
    }
    let rows = fibs.into_iter().map(|fib| Row {
        table: fib.table,
        family: fib.family,
        algorithm: fib.algorithm,
        choice: fib.choice,
    });
    Ok(output.print(&Rows(rows.collect()))?)
}

/// What the choice of `name` means for packets in the XDP datapath.
fn warnings(name: &str, fibs: &[Fib]) -> Vec<String> {
    let mut warnings: Vec<String> = fibs.iter().filter_map(Fib::leaves_xdp).collect();
    if name == MEASURED && fibs.iter().any(|fib| fib.in_xdp == Some(true)) {
        warnings.push(
            "packets of a family leave XDP for the graph if the calibration takes an algorithm whose tables the XDP \
             datapath does not read: `fib show` has the result (in_xdp of the JSON)"
                .to_owned(),
        );
    }
    warnings
}

#[derive(Serialize)]
struct Rows(Vec<Row>);

#[derive(Serialize)]
struct Row {
    table: u32,
    family: u8,
    algorithm: String,
    choice: String,
}

impl Report for Rows {
    fn text(&self, to: &mut dyn Write) -> io::Result<()> {
        let mut columns = Columns::new(&["table", "family", "algorithm", "choice"]);
        for row in &self.0 {
            let (table, family) = (row.table.to_string(), row.family.to_string());
            columns.row([table, family, row.algorithm.clone(), row.choice.clone()]);
        }
        columns.write(to)
    }
}
