//! `fingerpost neighbor`: the neighbors of a running router.

use std::io::{self, Write};

use clap::{ArgMatches, Args, Subcommand};
use serde::Serialize;

use super::command::{Command, Failure, parsed};
use super::output::{Columns, Output, Report, or_dash};
use crate::api::client::At;
use crate::api::model::Neighbor;

pub(super) const COMMAND: Command = Command {
    name: "neighbor",
    summary: "Neighbors of the running router",
    examples: "",
    arguments: |command| Arguments::augment_args(command).arg_required_else_help(false),
    run,
};

#[derive(Args)]
struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// List neighbors: address, interface, link address, state
    #[command(after_help = "Examples:
  $ fingerpost neighbor show
  $ fingerpost neighbor show --json")]
    Show(At),
}

fn run(matches: &ArgMatches, output: &mut Output) -> Result<(), Failure> {
    let What::Show(at) = parsed::<Arguments>(matches)?.what;
    let rows: Vec<Neighbor> = at.client()?.get("/v1/neighbors", &())?;
    Ok(output.print(&Neighbors(rows))?)
}

#[derive(Serialize)]
struct Neighbors(Vec<Neighbor>);

impl Report for Neighbors {
    fn text(&self, to: &mut dyn Write) -> io::Result<()> {
        let mut columns = Columns::new(&["address", "interface", "mac", "state"]);
        for row in &self.0 {
            let mac = or_dash(row.mac.as_ref());
            columns.row([row.addr.clone(), row.interface.clone(), mac, row.state.clone()]);
        }
        columns.write(to)
    }
}
