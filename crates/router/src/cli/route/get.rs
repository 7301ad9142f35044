//! `fingerpost route get`: one address, from the lookup that forwards.

use std::fmt::{Display, Write as _};
use std::io::{self, Write};
use std::net::IpAddr;

use clap::Args;

use super::super::command::{Exit, Failure};
use super::super::output::{Column, Columns, Output, Report, or_dash};
use crate::api::model::RouteQuery;
use crate::api::model::{DriverAnswer, Member, Path, Route, RouteAnswer};
use crate::cli::at::At;

pub(super) const EXAMPLES: &str = "Examples:
  $ fingerpost route get 192.0.2.1
  $ fingerpost route get 2001:db8::1 --explain
  $ fingerpost route get 10.0.2.2 --flow 10.0.1.2,10.0.2.2,udp,1024,53

The answer is that of the lookup structure in use; the routes are those of the RIB. If the two \
disagree, exit code 5; an address without a route, exit code 1.

The members of a group are listed with their share of flows. --flow SRC,DST,PROTOCOL,SPORT,DPORT \
shows the member that a flow takes. --explain adds the memory reads of the lookup, and a dry run \
of such a packet in the XDP datapath.";

#[derive(Args)]
pub(super) struct Arguments {
    /// Destination address
    #[arg(value_name = "ADDR")]
    addr: IpAddr,
    /// Print the memory reads of the lookup, and a dry run in the XDP datapath
    #[arg(long)]
    explain: bool,
    /// Flow whose path is shown
    #[arg(long, value_name = "5-TUPLE")]
    flow: Option<String>,
    /// Route table, by number [default: main]
    #[arg(long, value_name = "N")]
    table: Option<u32>,
    #[command(flatten)]
    at: At,
}

pub(super) fn run(arguments: &Arguments, output: &mut Output) -> Result<(), Failure> {
    let question = RouteQuery {
        addr: arguments.addr.to_string(),
        explain: arguments.explain,
        flow: arguments.flow.clone(),
        table: arguments.table,
    };
    let answer: RouteAnswer = arguments.at.client()?.get("/v1/route", &question)?;
    output.print(&answer)?;
    if !answer.agrees && answer.pending == 0 {
        let words = format_args!(
            "{}: lookup and RIB disagree: `fingerpost fib verify` looks at all of them",
            answer.addr
        );
        return Err(Failure::new(Exit::Differences, words));
    }
    match answer.prefix {
        Some(_) => Ok(()),
        None => Err(Failure::Reported(Exit::Failed)),
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
        if !self.agrees && self.pending > 0 {
            writeln!(to, "  packets do not take it yet: {} changes are pending", self.pending)?;
        }
        Columns::of(CANDIDATES, &self.candidates).write(to)?;
        write!(to, "next hop {}", self.nexthop)?;
        if let Some(group) = &self.group {
            match (group.slot, group.hash) {
                _ if group.slots == 0 => write!(to, ", a group that one member has alone")?,
                (Some(slot), Some(hash)) => {
                    write!(to, ", a group: slot {slot} of {} by hash {hash:#010x}", group.slots)?;
                }
                _ => write!(to, ", a group of {} slots", group.slots)?,
            }
        }
        match (&self.action, &self.adjacency) {
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
            (Some(action), None) => write!(to, ": {action}")?,
            (None, None) => {}
        }
        writeln!(to)?;
        if let Some(group) = &self.group {
            members(&group.members, to)?;
        }
        steps(self, to)?;
        drivers(&self.drivers, to)
    }
}

/// The members of a group, and what share of the flows each has.
fn members(members: &[Member], to: &mut dyn Write) -> io::Result<()> {
    let objects = members.iter().any(|member| member.object.is_some());
    let headings = ["member", "gateway", "interface", "weight", "slots", "share", "object"];
    let shown = if objects { headings.len() } else { headings.len() - 1 };
    let mut columns = Columns::new(&headings[..shown]);
    for (number, member) in members.iter().enumerate() {
        let cells = [
            (number + 1).to_string(),
            or_dash(member.gateway.as_ref()),
            or_dash(member.interface.as_ref()),
            member.weight.to_string(),
            member.slots.to_string(),
            format!("{:.1}%", member.share * 100.0),
            or_dash(member.object),
        ];
        columns.row(cells.into_iter().take(shown));
    }
    columns.write(to)
}

/// What the drivers do, a line for those that do the same.
pub(in crate::cli) fn drivers(answers: &[DriverAnswer], to: &mut dyn Write) -> io::Result<()> {
    for driver in answers {
        write!(to, "in XDP on {}: ", driver.interfaces.join(", "))?;
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
            writeln!(
                to,
                "dry run in XDP: {}, table {}, next hop {hop}",
                driver.packet, driver.table
            )
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

const CANDIDATES: &[Column<Route>] = &[
    ("", |route| if route.best { "best" } else { "" }.to_owned()),
    ("source", |route| route.source.clone()),
    ("distance", |route| route.distance.to_string()),
    ("metric", |route| route.metric.to_string()),
    ("next hop", |route| route.nexthop.to_string()),
    ("what", what_of),
];

/// What a route does, and when it ends.
pub(super) fn what_of(route: &Route) -> String {
    let mut text = what(&route.kind, route.object, &route.paths, route.mtu);
    if let Some(seconds) = route.expires {
        put(&mut text, "expires", seconds);
    }
    text
}

/// Kind, paths, MTU and next-hop object of a route: all but the object in the words of `route add`.
pub(in crate::cli) fn what(
    kind: &str,
    object: Option<u32>,
    paths: &[Path],
    mtu: Option<u16>,
) -> String {
    let mut text = String::new();
    let many = paths.len() > 1;
    for path in paths {
        path.gateway.iter().for_each(|gateway| put(&mut text, "via", gateway));
        path.dev.iter().for_each(|dev| put(&mut text, "dev", dev));
        if many {
            put(&mut text, "weight", path.weight);
        }
        path.expires.iter().for_each(|seconds| put(&mut text, "expires", seconds));
    }
    match text.is_empty() {
        true if !paths.is_empty() => return or_dash(None::<String>),
        // `object` and its ID are complete.
        true if object.is_none() || kind != "object" => text += kind,
        _ => {}
    }
    mtu.iter().for_each(|mtu| put(&mut text, "mtu", mtu));
    object.iter().for_each(|id| put(&mut text, "object", id));
    text
}

/// Adds a word and its value.
fn put(text: &mut String, word: &str, value: impl Display) {
    let gap = if text.is_empty() { "" } else { " " };
    let _ = write!(text, "{gap}{word} {value}");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(gateway: Option<&str>, dev: &str, weight: u32) -> Path {
        let [gateway, dev] = [gateway, Some(dev)].map(|word| word.map(str::to_owned));
        Path { gateway, dev, weight, expires: None, object: None }
    }

    #[test]
    fn routes_are_written_as_they_are_added() {
        let one = [path(Some("10.1.0.2"), "eth1", 1)];
        let two = [path(Some("10.1.0.2"), "eth1", 1), path(None, "eth2", 3)];
        for (kind, object, paths, mtu, want) in [
            ("via", None, &one[..], Some(1400), "via 10.1.0.2 dev eth1 mtu 1400"),
            ("via", None, &two, None, "via 10.1.0.2 dev eth1 weight 1 dev eth2 weight 3"),
            ("object", Some(17), &one, None, "via 10.1.0.2 dev eth1 object 17"),
            ("object", Some(17), &[], Some(1400), "mtu 1400 object 17"),
            ("object", Some(17), &[], None, "object 17"),
            ("blackhole", Some(17), &[], None, "blackhole object 17"),
            ("local", None, &[], None, "local"),
        ] {
            assert_eq!(what(kind, object, paths, mtu), want);
        }
    }

    #[test]
    fn members_of_a_group_are_columns() {
        let member = |last: u8, share, object| Member {
            gateway: Some(format!("10.{last}.0.2")),
            interface: Some(format!("eth{last}")),
            weight: 1,
            slots: if share > 0.0 { 64 } else { 0 },
            share,
            object,
            mtu: None,
        };
        let text = |rows: &[Member]| {
            let mut text = Vec::new();
            members(rows, &mut text).unwrap();
            String::from_utf8(text).unwrap()
        };
        assert_eq!(
            text(&[member(1, 1.0, None)]),
            "member   gateway  interface  weight  slots  share\n     1  10.1.0.2  eth1            1     64  100.0%\n"
        );
        let both = text(&[member(1, 1.0, Some(20)), member(2, 0.0, Some(22))]);
        assert!(both.contains("object\n") && both.ends_with("0  0.0%        22\n"), "{both}");
    }
}
