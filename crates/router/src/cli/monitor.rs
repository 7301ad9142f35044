//! `fingerpost monitor`: what happens to routes, next hops, links and neighbors, as it happens.

use std::io::{self, Write};

use clap::{ArgMatches, Args};

use super::command::{Command, Exit, Failure, parsed};
use super::output::Output;
use super::route::what;
use crate::api::model::{Event, EventKind, Hop};
use crate::api::streams::EventFilter;
use crate::cli::at::At;

pub(super) const COMMAND: Command = Command {
    name: "monitor",
    summary: "Report changes of routes, links and neighbors of the running router as they happen",
    examples: "Examples:
  $ fingerpost monitor
  $ fingerpost monitor --json --since 1234

Each line has a sequence number and a time (UTC). --since continues after a sequence number; the \
last 65,536 lines are kept. `gap` reports that older lines are lost: list the routes, then \
continue.

The lines report routes, next-hop objects, links, interfaces that are taken over or returned to \
the kernel, and neighbors that commands have set. When a next-hop object changes, the routes that \
refer to it change without lines of their own. `visible` reports that packets see every change \
before that line.",
    arguments: Arguments::augment_args,
    run,
};

#[derive(Args)]
struct Arguments {
    /// Continue after this sequence number [default: the latest]
    #[arg(long, value_name = "SEQ")]
    since: Option<u64>,
    /// Exit after this many lines
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
    write!(to, "{:>8} {} ", event.sequence, event.time)?;
    match &event.what {
        EventKind::Start => writeln!(to, "start"),
        EventKind::Gap { oldest } => {
            writeln!(to, "gap       events before {oldest} are lost: list the routes anew")
        }
        EventKind::Route { done, prefix, table, metric, source, best, old, new } => {
            write!(to, "{done:<9} {prefix} {source} metric {metric} table {table}")?;
            was_and_is(old.as_ref(), new.as_ref(), to)?;
            writeln!(to, "{}", if *best { " *" } else { "" })
        }
        EventKind::Object { done, object, source, old, new } => {
            write!(to, "{done:<9} object {object} {source}")?;
            was_and_is(old.as_ref(), new.as_ref(), to)?;
            writeln!(to)
        }
        EventKind::Link { done, interface, index, up, mtu, mac } => {
            let state = if *up { "up" } else { "down" };
            let mac = mac.as_deref().map_or(String::new(), |mac| format!(" lladdr {mac}"));
            writeln!(to, "{done:<9} link {interface} index {index} {state} mtu {mtu}{mac}")
        }
        EventKind::Interface { done, interface, path, mode } => {
            let done = match done.as_str() {
                "taken_over" => "taken",
                done => done,
            };
            let path = path.as_deref().map_or(String::new(), |path| format!(" path {path}"));
            let mode = if mode.is_empty() { String::new() } else { format!(": {mode}") };
            writeln!(to, "{done:<9} interface {interface}{path}{mode}")
        }
        EventKind::Neighbor { done, addr, interface, mac, state } => {
            let state = state.as_deref().map_or(String::new(), |state| format!(" {state}"));
            writeln!(to, "{done:<9} neighbor {addr} lladdr {mac} dev {interface}{state}")
        }
        EventKind::Request { by, request, error } => {
            let error =
                error.as_deref().map_or(String::new(), |error| format!(" refused: {error}"));
            writeln!(to, "request   {request} by {by}{error}")
        }
        EventKind::Configuration { number, done, text } => {
            writeln!(to, "{:<9} configuration {number} {text}", done.replace('_', " "))
        }
        EventKind::Visible { generation } => writeln!(to, "visible   generation {generation}"),
        EventKind::Decision { text } => writeln!(to, "decision  {text}"),
    }
}

/// What something led to before and does now.
fn was_and_is(old: Option<&Hop>, new: Option<&Hop>, to: &mut dyn Write) -> io::Result<()> {
    for (word, hop) in [("was", old), ("is", new)] {
        if let Some(Hop { kind, object, paths, mtu }) = hop {
            write!(to, " {word} {}", what(kind, *object, paths, *mtu))?;
        }
    }
    Ok(())
}
