//! `fingerpost monitor`: what happens to routes and neighbors, as it happens.

use std::io::{self, Write};

use clap::{ArgMatches, Args};

use super::command::{Command, Exit, Failure, parsed};
use super::output::Output;
use super::route::what;
use crate::api::client::At;
use crate::api::model::{Event, EventKind, Hop};
use crate::api::streams::EventFilter;

pub(super) const COMMAND: Command = Command {
    name: "monitor",
    summary: "Tell what happens to routes and neighbors of the running router, as it happens",
    examples: "Examples:
  $ fingerpost monitor
  $ fingerpost monitor --json --since 1234

Each line has a number; --since goes on behind one. Some 65,000 are kept: who asks for older ones is
told of the gap, and lists the routes anew. Of neighbors only those are told that commands have set.
`visible` says that packets take all that stands before.",
    arguments: Arguments::augment_args,
    run,
};

#[derive(Args)]
struct Arguments {
    /// Go on behind this number; without it, from now on
    #[arg(long, value_name = "SEQ")]
    since: Option<u64>,
    /// End after so many lines
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    #[command(flatten)]
    at: At,
}

fn run(matches: &ArgMatches, output: &mut Output) -> Result<(), Failure> {
    let Arguments { since, count, at } = parsed(matches)?;
    let mut left = count.unwrap_or(u64::MAX);
    let ended = at.client()?.lines("/v1/events", &EventFilter { since }, &mut |lines| {
        for line in lines.split_inclusive(|&b| b == b'\n') {
            if left == 0 {
                return Err(Failure::Closed);
            }
            left -= 1;
            if output.is_json() {
                output.write_all(line)?;
            } else {
                let event: Event = serde_json::from_slice(line).map_err(|error| {
                    Failure::new(Exit::Failed, format_args!("no event: {error}"))
                })?;
                text(&event, output)?;
            }
        }
        output.flush()?;
        if left == 0 { Err(Failure::Closed) } else { Ok(()) }
    });
    match ended {
        Ok(()) => Err(Failure::new(Exit::Unreachable, "the daemon has ended")),
        Err(failure) => Err(failure),
    }
}

fn text(event: &Event, to: &mut dyn Write) -> io::Result<()> {
    write!(to, "{:>8} ", event.sequence)?;
    match &event.what {
        EventKind::Start => writeln!(to, "start"),
        EventKind::Gap { oldest } => {
            writeln!(to, "gap       events before {oldest} are lost: list the routes anew")
        }
        EventKind::Route { done, prefix, table, metric, source, best, old, new } => {
            write!(to, "{done:<9} {prefix} {source} metric {metric} table {table}")?;
            for (word, hop) in [("was", old), ("is", new)] {
                if let Some(Hop { kind, ways, mtu }) = hop {
                    write!(to, " {word} {}", what(kind, ways, *mtu))?;
                }
            }
            writeln!(to, "{}", if *best { " *" } else { "" })
        }
        EventKind::Neighbor { done, addr, interface, mac, state } => {
            let state = state.as_deref().map_or(String::new(), |state| format!(" {state}"));
            writeln!(to, "{done:<9} neighbor {addr} lladdr {mac} dev {interface}{state}")
        }
        EventKind::Visible { generation } => writeln!(to, "visible   generation {generation}"),
        EventKind::Decision { text } => writeln!(to, "decision  {text}"),
    }
}
