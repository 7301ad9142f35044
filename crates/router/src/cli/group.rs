//! `fingerpost group`: the groups of next hops of a running router.

use std::io::{self, Write};

use clap::{ArgMatches, Args, Subcommand};
use serde::Serialize;

use super::command::{Command, Failure, parsed};
use super::output::{Columns, Output, Report, or_dash};
use crate::api::client::At;
use crate::api::model::Group;

pub(super) const COMMAND: Command = Command {
    name: "group",
    summary: "Groups of next hops of the running router",
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
    /// List groups, and how flows are spread over their members
    #[command(after_help = "Examples:
  $ fingerpost group show
  $ fingerpost group show --json

A group is a line, and a line below it for each member. A member that is down has no slots.")]
    Show(At),
}

fn run(matches: &ArgMatches, output: &mut Output) -> Result<(), Failure> {
    let What::Show(at) = parsed::<Arguments>(matches)?.what;
    let rows: Vec<Group> = at.client()?.get("/v1/groups", &())?;
    Ok(output.print(&Groups(rows))?)
}

#[derive(Serialize)]
struct Groups(Vec<Group>);

impl Report for Groups {
    fn text(&self, to: &mut dyn Write) -> io::Result<()> {
        let mut columns = Columns::new(&[
            "index",
            "type",
            "interface",
            "gateway",
            "weight",
            "slots",
            "use",
            "mtu",
            "references",
        ]);
        for group in &self.0 {
            columns.row([
                group.index.to_string(),
                group.kind.clone(),
                String::new(),
                String::new(),
                "-".to_owned(),
                group.slots.to_string(),
                group.used.to_string(),
                "-".to_owned(),
                group.references.to_string(),
            ]);
            for member in &group.members {
                columns.row([
                    "-".to_owned(),
                    String::new(),
                    or_dash(member.interface.as_ref()),
                    or_dash(member.gateway.as_ref()),
                    member.weight.to_string(),
                    member.slots.to_string(),
                    "-".to_owned(),
                    or_dash(member.mtu),
                    "-".to_owned(),
                ]);
            }
        }
        columns.write(to)
    }
}
