//! `fingerpost route add`, `del`, `change`, `append`, `replace`: one route, in words.

use std::io::{self, Write};

use clap::Args;
use fingerpost_route::source::line::{Line, LinePath};
use hyper::Method;

use super::super::command::{Exit, Failure};
use super::super::output::{Output, Report};
use super::get::what_of;
use crate::api::model::{Action, PathChange, RouteChange, RouteChanged};
use crate::cli::at::At;

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
    at: At,
}

pub(super) fn run(
    action: Action,
    arguments: &Arguments,
    output: &mut Output,
) -> Result<(), Failure> {
    let change = parse(action, &arguments.prefix, &arguments.words)
        .map_err(|words| Failure::new(Exit::Usage, words))?;
    let changed: RouteChanged = arguments.at.client()?.send(Method::POST, "/v1/routes", &change)?;
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

/// The words of a route. What they mean on this host the daemon knows: which interfaces there are,
/// whether a gateway can be found.
fn parse(action: Action, first: &str, words: &[String]) -> Result<RouteChange, String> {
    let words = std::iter::once(first).chain(words.iter().map(String::as_str));
    let Line { prefix, paths, verdict, metric, mtu, table, expires, all } =
        Line::parse(words, &["expires", "all"])?;
    let path = |path: &LinePath<'_>| PathChange {
        gateway: path.gateway.map(|gateway| gateway.to_string()),
        dev: path.dev.map(str::to_owned),
        weight: path.weight,
    };
    Ok(RouteChange {
        action,
        prefix: prefix.to_string(),
        table,
        metric,
        mtu,
        paths: paths.iter().map(path).collect(),
        kind: verdict.map(str::to_owned),
        expires: expires.map(u64::from),
        all,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(line: &str) -> Result<RouteChange, String> {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        parse(Action::Add, &words[0], &words[1..])
    }

    #[test]
    fn routes_of_every_form() {
        let path = |gateway: Option<&str>, dev: Option<&str>, weight| PathChange {
            gateway: gateway.map(str::to_owned),
            dev: dev.map(str::to_owned),
            weight,
        };
        let route =
            said("10.0.0.0/8 via 192.0.2.1 dev eth0 weight 3 via 2001:DB8::1 metric 7 mtu 1400");
        let route = route.unwrap();
        assert_eq!(
            (route.prefix.as_str(), route.metric, route.table, route.mtu),
            ("10.0.0.0/8", Some(7), None, Some(1400))
        );
        let first = path(Some("192.0.2.1"), Some("eth0"), 3);
        assert_eq!(route.paths, [first, path(Some("2001:db8::1"), None, 1)]);
        let route = said("default via 2001:db8::1 table 10 expires 60").unwrap();
        assert_eq!(
            (route.prefix.as_str(), route.table, route.expires),
            ("::/0", Some(10), Some(60))
        );
        let route = said("192.0.2.0/24 dev eth0").unwrap();
        assert_eq!(route.paths, [path(None, Some("eth0"), 1)]);
        assert_eq!(said("10.1.0.0/16 prohibit").unwrap().kind.as_deref(), Some("prohibit"));
        assert!(said("10.1.0.0/16 all").unwrap().all);
    }

    #[test]
    fn mistakes_name_the_remedy() {
        for (line, words) in [
            ("10.0.0.1/8 via 192.0.2.1", "`10.0.0.1/8` has bits set behind its length"),
            ("10.0.0/8 via 192.0.2.1", "`10.0.0/8` is no prefix"),
            ("10.0.0.0/33 blackhole", "prefix length 33 exceeds 32"),
            ("10.0.0.0/8 vai 192.0.2.1", "unknown word `vai`, did you mean `via`?"),
            ("10.0.0.0/8 via", "incomplete after `via`: a gateway must follow"),
            ("10.0.0.0/8 via eth0", "`eth0` is no gateway"),
            ("10.0.0.0/8 weight 2", "`weight` belongs right behind one `via GATEWAY`"),
            ("10.0.0.0/8 via 192.0.2.1 weight x", "`weight x`: a number from 1 to 65535 is needed"),
            ("10.0.0.0/8 dev a dev b", "`dev` belongs right behind its `via GATEWAY`"),
            ("10.0.0.0/8 blackhole prohibit", "`prohibit` twice"),
            ("10.0.0.0/8 metric 1 metric 2", "`metric` twice"),
            ("default blackhole", "`default` of which family?"),
        ] {
            let got = said(line).unwrap_err();
            assert!(got.contains(words), "{line}: {got}");
        }
    }
}
