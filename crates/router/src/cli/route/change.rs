//! `fingerpost route add`, `del`, `change`, `append`, `replace`: one route, in words.

use std::io::{self, Write};

use clap::Args;
use hyper::Method;

use super::super::command::{Exit, Failure};
use super::super::output::{Output, Report};
use super::get::what_of;
use crate::api::model::{Action, RouteChanged};
use crate::api::words::route;
use crate::cli::at::{At, Persist};

pub(super) const ADD: &str = "Examples:
  $ fingerpost route add 10.0.0.0/8 via 192.0.2.1
  $ fingerpost route add 10.0.0.0/8 via 192.0.2.1 weight 3 via 192.0.2.2 dev eth1
  $ fingerpost route add 2001:db8::/32 via fe80::1 dev eth0 table 10
  $ fingerpost route add 198.51.100.0/24 via 192.0.2.1 mtu 1400
  $ fingerpost route add 203.0.113.0/24 blackhole metric 5 expires 60

PREFIX via GATEWAY [dev D] [weight W] [via ...], or PREFIX dev D, or PREFIX \
blackhole|unreachable|prohibit; then [metric N] [mtu BYTES] [table T] [expires SECONDS]. A route \
that exists already is refused. The MTU is at least 68 for IPv4 and 1280 for IPv6, or 0 for that \
of the link, which is a limit in any case.";
pub(super) const DEL: &str = "Examples:
  $ fingerpost route del 10.0.0.0/8
  $ fingerpost route del 10.0.0.0/8 via 192.0.2.2
  $ fingerpost route del 10.0.0.0/8 all

A route with several paths is deleted with `all`; paths that are named are deleted alone. Only \
routes of commands are deleted: those of another source are deleted with the source.";
pub(super) const CHANGE: &str = "Examples:
  $ fingerpost route change 10.0.0.0/8 via 192.0.2.9
  $ fingerpost route change 10.0.0.0/8 via 192.0.2.2 weight 5
  $ fingerpost route change 10.0.0.0/8 via 192.0.2.2 mtu 1400

A route that does not exist is refused. Of several paths the one over this gateway is changed. \
Without `mtu` the route keeps its MTU.";
pub(super) const APPEND: &str = "Examples:
  $ fingerpost route append 10.0.0.0/8 via 192.0.2.2
  $ fingerpost route append 10.0.0.0/8 via 192.0.2.3 dev eth1 weight 2
  $ fingerpost route append 10.0.0.0/8 via 192.0.2.4 expires 60

Adds paths to a route, or adds the route. A path that exists already is refused.";
pub(super) const REPLACE: &str = "Examples:
  $ fingerpost route replace 10.0.0.0/8 via 192.0.2.2
  $ fingerpost route replace 10.0.0.0/8 prohibit

Adds the route, or replaces all of its paths.";

#[derive(Args)]
pub(super) struct Arguments {
    /// Destination prefix
    #[arg(value_name = "PREFIX")]
    prefix: String,
    /// Paths and attributes
    #[arg(value_name = "WORD")]
    words: Vec<String>,
    #[command(flatten)]
    persist: Persist,
    #[command(flatten)]
    at: At,
}

pub(super) fn run(
    action: Action,
    arguments: &Arguments,
    output: &mut Output,
) -> Result<(), Failure> {
    let change = route(action, &arguments.prefix, &arguments.words)
        .map_err(|words| Failure::new(Exit::Usage, words))?;
    let path = arguments.persist.path("/v1/routes");
    let changed: RouteChanged = arguments.at.client()?.send(Method::POST, path, &change)?;
    Ok(output.print(&changed)?)
}

impl Report for RouteChanged {
    fn text(&self, to: &mut dyn Write) -> io::Result<()> {
        write!(to, "{} {}", self.done, self.prefix)?;
        match self.candidates.first() {
            Some(best) if best.source == "command" => {
                writeln!(to, ": {}", what_of(best))
            }
            Some(best) => {
                let rank = format!("[{}/{}]", best.distance, best.metric);
                let what = what_of(best);
                writeln!(to, "; packets take that of {} {rank}: {what}", best.source)
            }
            None => writeln!(to),
        }
    }
}
