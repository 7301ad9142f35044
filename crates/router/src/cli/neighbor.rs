//! `fingerpost neighbor`: the neighbors of a running router, and one that is set by hand.

use std::io::{self, Write};

use clap::{ArgMatches, Args, Subcommand};
use hyper::Method;

use super::command::{Command, Exit, Failure, parsed, subcommands};
use super::list::{self, Listed};
use super::output::{Column, Output, Report, or_dash};
use crate::api::model::{Neighbor, NeighborAction, NeighborChanged};
use crate::api::words::neighbor;
use crate::cli::at::{At, Persist};

pub(super) const COMMAND: Command = Command {
    name: "neighbor",
    summary: "Neighbors of the running router: list, add, delete",
    examples: "",
    arguments: subcommands::<What>,
    run,
};

#[derive(Subcommand)]
enum What {
    #[command(about = Neighbor::ABOUT, after_help = Neighbor::EXAMPLES)]
    Show(At),
    /// Set the link address of a neighbor
    #[command(after_help = ADD)]
    Add(Change),
    /// Delete a neighbor that a command has set
    #[command(visible_alias = "delete", after_help = DEL)]
    Del(Change),
    /// Set or change the link address of a neighbor
    #[command(after_help = REPLACE)]
    Replace(Change),
}

const ADD: &str = "Examples:
  $ fingerpost neighbor add 192.0.2.1 lladdr 02:00:5e:10:00:01 dev eth0
  $ fingerpost neighbor add fe80::1 lladdr 02:00:5e:10:00:01 dev eth0

The entry takes precedence over the kernel's, until it is deleted, its interface is deleted or \
the daemon stops (with --persist the next run has it again). While the interface is down it is suspended. An entry that a command has set \
already is refused.";
const DEL: &str = "Examples:
  $ fingerpost neighbor del 192.0.2.1 dev eth0

The kernel's entry, if any, is used again. Entries of the kernel are deleted with `ip neighbor \
del`.";
const REPLACE: &str = "Examples:
  $ fingerpost neighbor replace 192.0.2.1 lladdr 02:00:5e:10:00:02 dev eth0";

#[derive(Args)]
struct Change {
    /// Address of the neighbor
    #[arg(value_name = "ADDR")]
    addr: String,
    /// lladdr MAC, and dev INTERFACE
    #[arg(value_name = "WORD")]
    words: Vec<String>,
    #[command(flatten)]
    persist: Persist,
    #[command(flatten)]
    at: At,
}

fn run(matches: &ArgMatches, output: &mut Output) -> Result<(), Failure> {
    let (action, change) = match parsed::<What>(matches)? {
        What::Show(at) => return list::show::<Neighbor>(&at, output),
        What::Add(change) => (NeighborAction::Add, change),
        What::Del(change) => (NeighborAction::Delete, change),
        What::Replace(change) => (NeighborAction::Replace, change),
    };
    let body = neighbor(action, &change.addr, &change.words)
        .map_err(|words| Failure::new(Exit::Usage, words))?;
    let path = change.persist.path(Neighbor::PATH);
    let changed: NeighborChanged = change.at.client()?.send(Method::POST, path, &body)?;
    Ok(output.print(&changed)?)
}

impl Listed for Neighbor {
    const PATH: &'static str = "/v1/neighbors";
    const COLUMNS: &'static [Column<Self>] = &[
        ("address", |neighbor| neighbor.addr.clone()),
        ("interface", |neighbor| neighbor.interface.clone()),
        ("mac", |neighbor| or_dash(neighbor.mac.as_ref())),
        ("state", |neighbor| neighbor.state.clone()),
        ("source", |neighbor| neighbor.source.clone()),
    ];
    const ABOUT: &'static str = "List neighbors: address, interface, link address, state, source";
    const EXAMPLES: &'static str = "Examples:
  $ fingerpost neighbor show
  $ fingerpost neighbor show --json

`permanent` entries were set with `fingerpost neighbor add` (source `command`) or in the kernel; \
they are `suspended` while their interface is down.";
}

impl Report for NeighborChanged {
    fn text(&self, to: &mut dyn Write) -> io::Result<()> {
        write!(to, "{} {} dev {}", self.done, self.addr, self.interface)?;
        match &self.now {
            Some(now) => {
                let mac = or_dash(now.mac.as_ref());
                writeln!(to, ": {mac} {} by {}", now.state, now.source)
            }
            None => writeln!(to),
        }
    }
}
