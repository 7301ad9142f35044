//! `fingerpost route show`: routes, a line each, however many there are.

use std::io::{self, Write};

use clap::Args;
use fingerpost_route::MAIN_TABLE;

use super::super::command::{Exit, Failure};
use super::super::output::Output;
use super::get::what_of;
use crate::api::client::At;
use crate::api::model::Route;
use crate::api::streams::RouteFilter;

pub(super) const EXAMPLES: &str = "Examples:
  $ fingerpost route show
  $ fingerpost route show --longer 10.0.0.0/8 --source kernel
  $ fingerpost route show --nexthop 192.0.2.1 --limit 10
  $ fingerpost route show --nexthop eth0
  $ fingerpost route show --nexthop object:17
  $ fingerpost route show --json | wc -l

Every route of every source, by prefix, as it is at the moment of the question; `*` marks those
that packets take. All filters must hold. A route that names a next-hop object shows what the object
leads to, and its number.

--nexthop is an address for a gateway, a number for the index of a next hop or group (`nexthop show`,
`group show`), object:ID for a next-hop object or a group that has it as a member, and any other word
for an interface (dev:NAME for one whose name is a number). Routes over a gateway or an interface are
those that name it, and those whose object or gateway leads there now.";

#[derive(Args)]
pub(super) struct Arguments {
    /// Of this table, by number; `main` is the usual one
    #[arg(long, visible_alias = "table", value_name = "TABLE", value_parser = table)]
    vrf: Option<u32>,
    /// From this feed
    #[arg(long, value_name = "NAME")]
    source: Option<String>,
    /// Of this prefix and those that it covers
    #[arg(long, value_name = "PREFIX", conflicts_with = "covering")]
    longer: Option<String>,
    /// Of the prefixes that cover this one, itself included
    #[arg(long, value_name = "PREFIX")]
    covering: Option<String>,
    /// Over this gateway, interface, next hop or group (by index), or next-hop object
    #[arg(long, value_name = "GATEWAY|INTERFACE|INDEX|object:ID")]
    nexthop: Option<String>,
    /// Only those that packets take
    #[arg(long)]
    best: bool,
    /// At most so many
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
    #[command(flatten)]
    at: At,
}

/// A number, or the name of the one that has a name.
fn table(text: &str) -> Result<u32, String> {
    match text {
        "main" => Ok(MAIN_TABLE),
        _ => text.parse().map_err(|_| "the number of a table is needed, or `main`".to_owned()),
    }
}

pub(super) fn run(arguments: &Arguments, output: &mut Output) -> Result<(), Failure> {
    let filter = RouteFilter {
        table: arguments.vrf,
        source: arguments.source.clone(),
        longer: arguments.longer.clone(),
        covering: arguments.covering.clone(),
        nexthop: arguments.nexthop.clone(),
        best: arguments.best,
        limit: arguments.limit,
    };
    arguments.at.client()?.lines("/v1/routes", &filter, &mut |lines| {
        if output.is_json() {
            output.write_all(lines)?;
            return Ok(());
        }
        for line in lines.split(|&b| b == b'\n').filter(|line| !line.is_empty()) {
            let route: Route = serde_json::from_slice(line)
                .map_err(|error| Failure::new(Exit::Failed, format_args!("no route: {error}")))?;
            text(&route, output)?;
        }
        Ok(())
    })
}

/// Columns of a fixed width, as nobody knows the widest of a million beforehand.
fn text(route: &Route, to: &mut dyn Write) -> io::Result<()> {
    let mark = if route.best { '*' } else { ' ' };
    let what = what_of(route);
    let Route { prefix, source, distance, metric, .. } = route;
    let rank = format!("[{distance}/{metric}]");
    writeln!(to, "{mark} {prefix:<18} {source:<8} {rank:<10} {what}")
}
