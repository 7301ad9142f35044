//! `fingerpost nexthop`: the next hops of a running router.

use std::io::{self, Write};

use clap::{ArgMatches, Args, Subcommand};
use serde::Serialize;

use super::command::{Command, Failure, parsed};
use super::output::{Columns, Output, Report, or_dash};
use crate::api::client::At;
use crate::api::model::NextHop;

pub(super) const COMMAND: Command = Command {
    name: "nexthop",
    summary: "Next hops of the running router",
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
    /// List next hops: index, type, interface, gateway, flags, use, MTU, references
    #[command(after_help = "Examples:
  $ fingerpost nexthop show
  $ fingerpost nexthop show --json

Flags: G gateway, H of a host route, d of a default route, R reject, B blackhole, D redirect,
b broadcast, M group.")]
    Show(At),
}

fn run(matches: &ArgMatches, output: &mut Output) -> Result<(), Failure> {
    let What::Show(at) = parsed::<Arguments>(matches)?.what;
    let rows: Vec<NextHop> = at.client()?.get("/v1/nexthops", &())?;
    Ok(output.print(&NextHops(rows))?)
}

#[derive(Serialize)]
struct NextHops(Vec<NextHop>);

impl Report for NextHops {
    fn text(&self, to: &mut dyn Write) -> io::Result<()> {
        let mut columns = Columns::new(&[
            "index",
            "type",
            "interface",
            "gateway",
            "flags",
            "use",
            "mtu",
            "references",
        ]);
        for row in &self.0 {
            columns.row([
                row.index.to_string(),
                row.kind.clone(),
                or_dash(row.interface.as_ref()),
                or_dash(row.gateway.as_ref()),
                row.flags.clone(),
                row.used.to_string(),
                or_dash(row.mtu),
                row.references.to_string(),
            ]);
        }
        columns.write(to)
    }
}
