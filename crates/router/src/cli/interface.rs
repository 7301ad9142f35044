//! `fingerpost interface`: the interfaces of a running router.

use std::io::{self, Write};

use clap::{ArgMatches, Args, Subcommand};
use serde::Serialize;

use super::command::{Command, Failure, parsed};
use super::output::{Columns, Output, Report, or_dash};
use crate::api::client::At;
use crate::api::model::Interface;

pub(super) const COMMAND: Command = Command {
    name: "interface",
    summary: "Interfaces of the running router",
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
    /// List interfaces: state, addresses, packets, and how each is driven
    #[command(after_help = "Examples:
  $ fingerpost interface show
  $ fingerpost interface show --json")]
    Show(At),
}

fn run(matches: &ArgMatches, output: &mut Output) -> Result<(), Failure> {
    let What::Show(at) = parsed::<Arguments>(matches)?.what;
    let rows: Vec<Interface> = at.client()?.get("/v1/interfaces", &())?;
    Ok(output.print(&Interfaces(rows))?)
}

#[derive(Serialize)]
struct Interfaces(Vec<Interface>);

impl Report for Interfaces {
    fn text(&self, to: &mut dyn Write) -> io::Result<()> {
        let mut columns = Columns::new(&[
            "name",
            "state",
            "mtu",
            "mac",
            "path",
            "received",
            "sent",
            "punted",
            "addresses",
            "mode",
        ]);
        for row in &self.0 {
            columns.row([
                row.name.clone(),
                if row.up { "up" } else { "down" }.to_owned(),
                row.mtu.to_string(),
                or_dash(row.mac.as_ref()),
                row.path.clone(),
                row.rx_packets.to_string(),
                row.tx_packets.to_string(),
                row.punted.to_string(),
                if row.addresses.is_empty() { "-".to_owned() } else { row.addresses.join(",") },
                row.mode.clone(),
            ]);
        }
        columns.write(to)
    }
}
