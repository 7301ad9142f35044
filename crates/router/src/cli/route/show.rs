//! `fingerpost route show`: routes, a line each, however many there are.

use std::borrow::Cow;
use std::collections::HashMap;
use std::io::{self, Write};

use clap::Args;
use fingerpost_route::MAIN_TABLE;
use serde::Deserialize;

use super::super::command::{Exit, Failure};
use super::super::output::Output;
use super::get::what_of;
use crate::api::model::Route;
use crate::api::streams::RouteFilter;
use crate::cli::at::At;

pub(super) const EXAMPLES: &str = "Examples:
  $ fingerpost route show
  $ fingerpost route show --longer 10.0.0.0/8 --source kernel
  $ fingerpost route show --nexthop 192.0.2.1 --limit 10
  $ fingerpost route show --nexthop eth0
  $ fingerpost route show --nexthop object:17
  $ fingerpost route show --json | wc -l

Lists the routes of all sources by prefix, as they are when the command starts. `*` marks best \
routes, the ones that packets take. A route is listed if it matches every filter. A route that \
refers to a next-hop object shows the ID of the object and its present paths.

--nexthop takes one of:
  ADDRESS    a gateway
  INTERFACE  an interface (dev:NAME if its name is a number)
  INDEX      a next hop or next-hop group (`nexthop show`, `group show`)
  object:ID  a next-hop object, or a group that has it as a member
A gateway or an interface matches routes that name it, and routes whose next-hop object or \
gateway leads there at present.";

#[derive(Args)]
pub(super) struct Arguments {
    /// Routes of this table, by number, or `main`
    #[arg(long, visible_alias = "table", value_name = "TABLE", value_parser = table)]
    vrf: Option<u32>,
    /// Routes of this source
    #[arg(long, value_name = "NAME")]
    source: Option<String>,
    /// Routes of this prefix and of the prefixes that it covers
    #[arg(long, value_name = "PREFIX", conflicts_with = "covering")]
    longer: Option<String>,
    /// Routes of this prefix and of the prefixes that cover it
    #[arg(long, value_name = "PREFIX")]
    covering: Option<String>,
    /// Routes over this gateway, interface, next hop, next-hop group or next-hop object
    #[arg(long, value_name = "GATEWAY|INTERFACE|INDEX|object:ID")]
    nexthop: Option<String>,
    /// Best routes only
    #[arg(long)]
    best: bool,
    /// Largest number of routes
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
    #[command(flatten)]
    at: At,
}

/// A number, or the name of the one that has a name.
pub(super) fn table(text: &str) -> Result<u32, String> {
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
    let mut printer = Printer::default();
    arguments.at.client()?.lines("/v1/routes", &filter, &mut |lines| {
        if output.is_json() {
            output.write_all(lines)?;
            return Ok(());
        }
        for line in lines.split(|&b| b == b'\n').filter(|line| !line.is_empty()) {
            printer.print(line, output)?;
        }
        Ok(())
    })
}

/// What is kept of lines before: more next hops than a router has.
const MOST_KNOWN: usize = 16_384;

/// Makes text of JSON lines. What routes do repeats a million times in a full table, so it is read once: a line that
/// ends as one before does the same.
#[derive(Default)]
struct Printer {
    /// Routes by the end of their lines, from `"kind"` on.
    known: HashMap<Vec<u8>, String>,
    head: Vec<u8>,
}

/// What differs from route to route.
#[derive(Deserialize)]
struct Head<'a> {
    #[serde(borrow)]
    prefix: Cow<'a, str>,
    #[serde(borrow)]
    source: Cow<'a, str>,
    distance: u8,
    metric: u32,
    best: bool,
}

impl Printer {
    fn print(&mut self, line: &[u8], to: &mut dyn Write) -> Result<(), Failure> {
        let failed = |error| Failure::new(Exit::Failed, format_args!("no route: {error}"));
        // The daemon writes it in this order; of any other order the whole line is new.
        let at = line.windows(KIND.len()).position(|part| part == KIND).unwrap_or(0);
        let (head, tail) = line.split_at(at);
        if at > 0
            && let Some(what) = self.known.get(tail)
        {
            self.head.clear();
            self.head.extend_from_slice(head);
            self.head.push(b'}');
            let head = serde_json::from_slice(&self.head).map_err(failed)?;
            return Ok(text(&head, what, to)?);
        }
        let route: Route = serde_json::from_slice(line).map_err(failed)?;
        let what = what_of(&route);
        let Route { prefix, source, distance, metric, best, .. } = route;
        let head = Head { prefix: prefix.into(), source: source.into(), distance, metric, best };
        text(&head, &what, to)?;
        if at > 0 && self.known.len() < MOST_KNOWN {
            self.known.insert(tail.to_vec(), what);
        }
        Ok(())
    }
}

/// Where what a route does begins in its line.
const KIND: &[u8] = br#","kind":"#;

/// Columns of a fixed width, as nobody knows the widest of a million beforehand.
fn text(route: &Head<'_>, what: &str, to: &mut dyn Write) -> io::Result<()> {
    let mark = if route.best { '*' } else { ' ' };
    let Head { prefix, source, distance, metric, .. } = route;
    let rank = format!("[{distance}/{metric}]");
    writeln!(to, "{mark} {prefix:<18} {source:<8} {rank:<10} {what}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_printed_alike_whether_known_or_not() {
        let line = |prefix: &str, metric: u32| {
            format!(
                r#"{{"prefix":"{prefix}","table":254,"source":"a\u0022,","distance":20,"metric":{metric},"best":true,"kind":"object","object":17,"paths":[{{"gateway":"10.1.0.2","dev":"r0","weight":1}}],"mtu":null,"nexthop":2}}"#
            )
        };
        let other = r#"{"kind":"local","paths":[],"mtu":null,"nexthop":1,"prefix":"10.1.0.1/32","table":254,"source":"host","distance":0,"metric":0,"best":false}"#;
        let mut printer = Printer::default();
        let mut print = |line: &str| {
            let mut text = Vec::new();
            printer.print(line.as_bytes(), &mut text).unwrap();
            String::from_utf8(text).unwrap()
        };
        let want = "via 10.1.0.2 dev r0 object 17\n";
        for (prefix, metric) in [("10.0.0.0/8", 0), ("10.0.0.0/8", 0), ("192.0.2.0/24", 5)] {
            let rank = format!("[20/{metric}]");
            let want = format!("* {prefix:<18} {:<8} {rank:<10} {want}", "a\",");
            assert_eq!(print(&line(prefix, metric)), want);
        }
        let local = "  10.1.0.1/32        host     [0/0]      local\n";
        assert_eq!([print(other), print(other)], [local, local]);
        assert!(printer.print(b"{}", &mut Vec::new()).is_err());
    }
}
