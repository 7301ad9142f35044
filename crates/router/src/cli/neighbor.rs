//! `fingerpost neighbor`: the neighbors of a running router, and one that is set by hand.

use std::io::{self, Write};
use std::net::IpAddr;

use clap::{ArgMatches, Args, Subcommand};
use fingerpost_route::Mac;
use fingerpost_route::source::line::once;
use fingerpost_route::source::words::unknown;
use hyper::Method;

use super::command::{Command, Exit, Failure, parsed, subcommands};
use super::list::{self, Listed};
use super::output::{Column, Output, Report, or_dash};
use crate::api::model::{Neighbor, NeighborAction, NeighborChange, NeighborChanged};
use crate::cli::at::At;

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
the daemon stops. While the interface is down it is suspended. An entry that a command has set \
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
    at: At,
}

fn run(matches: &ArgMatches, output: &mut Output) -> Result<(), Failure> {
    let (action, change) = match parsed::<What>(matches)? {
        What::Show(at) => return list::show::<Neighbor>(&at, output),
        What::Add(change) => (NeighborAction::Add, change),
        What::Del(change) => (NeighborAction::Delete, change),
        What::Replace(change) => (NeighborAction::Replace, change),
    };
    let body = parse(action, &change.addr, &change.words)
        .map_err(|words| Failure::new(Exit::Usage, words))?;
    let changed: NeighborChanged = change.at.client()?.send(Method::POST, Neighbor::PATH, &body)?;
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

/// The words behind an address. Which interfaces there are the daemon knows.
fn parse(action: NeighborAction, addr: &str, words: &[String]) -> Result<NeighborChange, String> {
    let addr: IpAddr = addr.parse().map_err(|_| {
        format!("`{addr}` is no address: one of IPv4 or IPv6 is needed, its interface behind `dev`")
    })?;
    let (mut mac, mut dev) = (None, None);
    let mut words = words.iter().map(String::as_str);
    while let Some(word) = words.next() {
        let slot = match word {
            "lladdr" if action == NeighborAction::Delete => {
                return Err("`lladdr` is not needed: the address and `dev` are enough".into());
            }
            "lladdr" => &mut mac,
            "dev" => &mut dev,
            other => return Err(unknown("word", other, ["lladdr", "dev"])),
        };
        let value = words.next().ok_or_else(|| format!("what is the `{word}`? it must follow"))?;
        once(word, slot, value.to_owned())?;
    }
    let dev = dev.ok_or("on which interface? `dev INTERFACE` is needed")?;
    let mac = match mac {
        None if action == NeighborAction::Delete => None,
        None => return Err("where is it? `lladdr MAC` is needed".into()),
        Some(text) => {
            let mac: Mac =
                text.parse().map_err(|error| format!("`{text}` is no link address: {error}"))?;
            Some(mac.to_string())
        }
    };
    Ok(NeighborChange { action, addr: addr.to_string(), dev, mac })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(action: NeighborAction, line: &str) -> Result<NeighborChange, String> {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        parse(action, &words[0], &words[1..])
    }

    #[test]
    fn neighbors_of_every_form() {
        let want = NeighborChange {
            action: NeighborAction::Add,
            addr: "2001:db8::1".into(),
            dev: "eth0".into(),
            mac: Some("02:00:5e:10:00:01".into()),
        };
        for line in [
            "2001:DB8::1 lladdr 02-00-5E-10-00-01 dev eth0",
            "2001:db8::1 dev eth0 lladdr 2:0:5e:10:0:1",
        ] {
            assert_eq!(said(NeighborAction::Add, line).as_ref(), Ok(&want), "{line}");
        }
        let gone = said(NeighborAction::Delete, "192.0.2.1 dev eth0").unwrap();
        assert_eq!((gone.addr.as_str(), gone.mac), ("192.0.2.1", None));
    }

    #[test]
    fn mistakes_name_the_remedy() {
        for (line, words) in [
            ("192.0.2 lladdr 2:0:0:0:0:1 dev e", "`192.0.2` is no address"),
            ("fe80::1%e lladdr 2:0:0:0:0:1", "its interface behind `dev`"),
            ("192.0.2.1 lladdr 2:0:0:0:0:1", "on which interface?"),
            ("192.0.2.1 dev e", "where is it? `lladdr MAC` is needed"),
            ("192.0.2.1 lladdr 2:0:0:0:1 dev e", "`2:0:0:0:1` is no link address: six bytes"),
            ("192.0.2.1 lladdr", "what is the `lladdr`?"),
            ("192.0.2.1 dev a dev b", "`dev` twice"),
            ("192.0.2.1 ladr 2:0:0:0:0:1", "unknown word `ladr`, did you mean `lladdr`?"),
        ] {
            let got = said(NeighborAction::Replace, line).unwrap_err();
            assert!(got.contains(words), "{line}: {got}");
        }
        let got = said(NeighborAction::Delete, "192.0.2.1 lladdr 2:0:0:0:0:1 dev e").unwrap_err();
        assert!(got.contains("is not needed"), "{got}");
    }
}
