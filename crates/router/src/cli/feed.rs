//! `fingerpost feed`: where the routes of a running router come from.

use std::io::{self, Write};

use clap::{ArgMatches, Args, Subcommand};
use serde::Serialize;

use super::command::{Command, Failure, parsed};
use super::output::{Columns, Output, Report, or_dash};
use crate::api::client::At;
use crate::api::model::Feed;

pub(super) const COMMAND: Command = Command {
    name: "feed",
    summary: "Sources of routes of the running router",
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
    /// List sources: distance, routes, refusals, messages
    #[command(after_help = "Examples:
  $ fingerpost feed show
  $ fingerpost feed show --json

`host` are the addresses of this host, `neighbor` the stations found on its links, `command` the
routes of `fingerpost route add`.")]
    Show(At),
}

fn run(matches: &ArgMatches, output: &mut Output) -> Result<(), Failure> {
    let What::Show(at) = parsed::<Arguments>(matches)?.what;
    let rows: Vec<Feed> = at.client()?.get("/v1/feeds", &())?;
    Ok(output.print(&Feeds(rows))?)
}

#[derive(Serialize)]
struct Feeds(Vec<Feed>);

impl Report for Feeds {
    fn text(&self, to: &mut dyn Write) -> io::Result<()> {
        let mut columns = Columns::new(&[
            "name",
            "distance",
            "routes",
            "refused",
            "messages",
            "resyncs",
            "latest refusal",
        ]);
        for row in &self.0 {
            columns.row([
                row.name.clone(),
                row.distance.to_string(),
                row.routes.to_string(),
                row.refused.to_string(),
                or_dash(row.messages),
                or_dash(row.resyncs),
                row.last_refusal.clone(),
            ]);
        }
        columns.write(to)
    }
}
