//! `fingerpost route get`: one address, from the lookup that forwards.

use std::io::{self, Write};
use std::net::IpAddr;

use clap::Args;

use super::super::command::{Exit, Failure};
use super::super::output::{Columns, Output, Report, or_dash};
use crate::api::client::At;
use crate::api::model::{DriverAnswer, Route, RouteAnswer, Way};
use crate::api::server::RouteQuestion;

pub(super) const EXAMPLES: &str = "Examples:
  $ fingerpost route get 192.0.2.1
  $ fingerpost route get 2001:db8::1 --explain
  $ fingerpost route get 10.0.2.2 --flow 10.0.1.2,10.0.2.2,udp,1024,53

The answer is that of the structure which forwards; the routes are those of the RIB. Should the two
disagree, that is said, and the exit code is 5. An address without a route exits with 1.
--flow SRC,DST,PROTOCOL,SPORT,DPORT tells which member of a group a flow takes.
With --explain such a packet, or any other to ADDR, is tried on the programs in the drivers as well.";

#[derive(Args)]
pub(super) struct Arguments {
    /// Which address
    #[arg(value_name = "ADDR")]
    addr: IpAddr,
    /// Tell each read of the lookup, and what the drivers do
    #[arg(long)]
    explain: bool,
    /// Of which flow
    #[arg(long, value_name = "5-TUPLE")]
    flow: Option<String>,
    /// In this table, by number
    #[arg(long, value_name = "N")]
    table: Option<u32>,
    #[command(flatten)]
    at: At,
}

pub(super) fn run(arguments: &Arguments, output: &mut Output) -> Result<(), Failure> {
    let question = RouteQuestion {
        addr: arguments.addr.to_string(),
        explain: arguments.explain,
        flow: arguments.flow.clone(),
        table: arguments.table,
    };
    let answer: RouteAnswer = arguments.at.client()?.get("/v1/route", &question)?;
    output.print(&answer)?;
    if !answer.agrees {
        let words = format_args!(
            "{}: lookup and RIB disagree: `fingerpost fib verify` looks at all of them",
            answer.addr
        );
        return Err(Failure::new(Exit::Differences, words));
    }
    match answer.prefix {
        Some(_) => Ok(()),
        None => Err(Failure::Told(Exit::Failed)),
    }
}

impl Report for RouteAnswer {
    fn text(&self, to: &mut dyn Write) -> io::Result<()> {
        let Some(prefix) = &self.prefix else {
            writeln!(to, "{} has no route (table {}, {})", self.addr, self.table, self.algorithm)?;
            steps(self, to)?;
            return drivers(&self.drivers, to);
        };
        writeln!(to, "{} by {prefix} (table {}, {})", self.addr, self.table, self.algorithm)?;
        let mut columns = Columns::new(&["", "source", "distance", "metric", "next hop", "what"]);
        for route in &self.candidates {
            columns.row([
                if route.best { "best" } else { "" }.to_owned(),
                route.source.clone(),
                route.distance.to_string(),
                route.metric.to_string(),
                route.nexthop.to_string(),
                what_of(route),
            ]);
        }
        columns.write(to)?;
        write!(to, "next hop {}", self.nexthop)?;
        if let Some(group) = &self.group {
            match (group.slot, group.hash) {
                (Some(slot), Some(hash)) => {
                    write!(to, ", a group: slot {slot} of {} by hash {hash:#010x}", group.slots)?;
                }
                _ => write!(to, ", a group of {} slots: --flow tells which", group.slots)?,
            }
        }
        match (&self.leg, &self.adjacency) {
            (_, Some(a)) => {
                write!(to, ": adjacency {} by {}", a.index, a.interface)?;
                if let Some(neighbor) = &a.neighbor {
                    write!(to, " to {neighbor}")?;
                }
                match (&a.dst_mac, a.mtu) {
                    (Some(mac), Some(mtu)) => write!(to, " ({mac}), MTU {mtu}")?,
                    _ if a.failed => write!(to, ", which does not answer")?,
                    _ => write!(to, ", not resolved yet")?,
                }
            }
            (Some(leg), None) => write!(to, ": {leg}")?,
            (None, None) => {}
        }
        writeln!(to)?;
        steps(self, to)?;
        drivers(&self.drivers, to)
    }
}

/// What the drivers do, a line for those that do the same.
pub(in crate::cli) fn drivers(answers: &[DriverAnswer], to: &mut dyn Write) -> io::Result<()> {
    for driver in answers {
        write!(to, "in the driver of {}: ", driver.interfaces.join(", "))?;
        match (&driver.adjacency, &driver.why) {
            (Some(a), _) => {
                write!(to, "forwarded by adjacency {} by {}", a.index, a.interface)?;
            }
            (None, why) => {
                let does = match driver.does.as_str() {
                    "drop" => "dropped",
                    "leave" => "left to the graph or the kernel",
                    "none" => "no program",
                    _ => "forwarded",
                };
                let reason =
                    driver.reason.as_ref().map_or(String::new(), |name| format!(" ({name})"));
                let why = why.as_ref().map_or(String::new(), |why| format!(": {why}"));
                write!(to, "{does}{reason}{why}")?;
            }
        }
        writeln!(to)?;
    }
    match answers.iter().find(|driver| driver.nexthop.is_some()) {
        Some(driver) => {
            let hop = or_dash(driver.nexthop);
            writeln!(to, "tried there: {}, table {}, next hop {hop}", driver.packet, driver.table)
        }
        None => Ok(()),
    }
}

fn steps(answer: &RouteAnswer, to: &mut dyn Write) -> io::Result<()> {
    if answer.steps.is_empty() {
        return Ok(());
    }
    let mut columns = Columns::new(&["step", "region", "offset", "value", "meaning"]);
    for (number, step) in answer.steps.iter().enumerate() {
        columns.row([
            (number + 1).to_string(),
            step.region.clone(),
            step.offset.to_string(),
            format!("{:#x}", step.value),
            step.note.clone(),
        ]);
    }
    columns.write(to)
}

/// What a route does, and when it ends.
pub(super) fn what_of(route: &Route) -> String {
    let what = what(&route.kind, &route.ways, route.mtu);
    match route.expires {
        Some(seconds) => format!("{what} expires {seconds}"),
        None => what,
    }
}

/// Kind, ways and MTU of a route, in the words of `route add`.
pub(in crate::cli) fn what(kind: &str, ways: &[Way], mtu: Option<u16>) -> String {
    let mtu = mtu.map_or(String::new(), |mtu| format!(" mtu {mtu}"));
    if ways.is_empty() {
        return kind.to_owned() + &mtu;
    }
    let many = ways.len() > 1;
    let mut text = String::new();
    for way in ways {
        for (word, value) in [
            ("via", way.gateway.clone()),
            ("dev", way.dev.clone()),
            ("weight", many.then(|| way.weight.to_string())),
            ("expires", way.expires.map(|seconds| seconds.to_string())),
        ] {
            if let Some(value) = value {
                let gap = if text.is_empty() { "" } else { " " };
                text += &format!("{gap}{word} {value}");
            }
        }
    }
    if text.is_empty() { or_dash(None::<String>) } else { text + &mtu }
}
