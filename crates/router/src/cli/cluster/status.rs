//! `fingerpost cluster status`, `drain` and `undrain`: the node that a running router is.

use std::io::{self, Write};

use hyper::Method;

use super::super::command::Failure;
use super::super::output::{Column, Columns, Output, Report, or_dash};
use crate::api::cluster::{
    ClusterDrops, ClusterMember, ClusterParameters, ClusterProbes, ClusterStatus, ClusterStore,
    Drain, MemberLink,
};
use crate::cli::at::At;

pub(super) const EXAMPLES: &str = "Examples:
  $ fingerpost cluster status
  $ fingerpost cluster status --json

`load` is what the link to a member carried in the last second, as a share of its rate; `backlog` is the time \
to send the packets that wait for it. `epoch` is that of the adjacency indexes that a node announces, `parameters` the version \
of the parameters that it has read. A link is up while probes pass in both directions. `transit` counts frames of \
other nodes that this node forwarded.";

pub(super) const DRAIN: &str = "Examples:
  $ fingerpost cluster drain

The other nodes choose no path through a node that drains. It still carries packets of its own external \
interfaces: withdraw their routes before it stops.";

pub(super) const UNDRAIN: &str = "Examples:
  $ fingerpost cluster undrain

The other nodes choose paths through this one again.";

/// Prints the state of the cluster.
pub(super) fn run(at: &At, output: &mut Output) -> Result<(), Failure> {
    let status: ClusterStatus = at.client()?.get("/v1/cluster", &())?;
    Ok(output.print(&status)?)
}

/// Drains the node, or ends that.
pub(super) fn drain(at: &At, draining: bool, output: &mut Output) -> Result<(), Failure> {
    let path = "/v1/cluster/drain";
    let status: ClusterStatus = at.client()?.send(Method::POST, path, &Drain { draining })?;
    Ok(output.print(&status)?)
}

/// A number of the link to a member; none for this node.
fn of_link(member: &ClusterMember, number: impl Fn(&MemberLink) -> String) -> String {
    or_dash(member.link.as_ref().map(number))
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// A rate in the largest unit that keeps it readable.
#[allow(clippy::cast_precision_loss, reason = "a rate for people")]
fn rate(bps: u64) -> String {
    match bps {
        0..1_000_000 => format!("{:.0} kbit/s", bps as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} Mbit/s", bps as f64 / 1e6),
        _ => format!("{:.1} Gbit/s", bps as f64 / 1e9),
    }
}

const MEMBERS: &[Column<ClusterMember>] = &[
    ("member", |member| member.id.clone()),
    ("number", |member| member.number.to_string()),
    ("state", |member| member.state.clone()),
    ("weight", |member| member.weight.to_string()),
    ("epoch", |member| member.epoch.to_string()),
    ("parameters", |member| or_dash(member.parameters.map(|version| version.to_string()))),
    ("interface", |member| of_link(member, |link| link.interface.clone())),
    ("link", |member| of_link(member, |link| if link.up { "up" } else { "down" }.to_owned())),
    ("rate", |member| of_link(member, |link| or_dash(link.rate_bps.map(rate)))),
    ("sent", |member| of_link(member, |link| rate(link.load_bps))),
    ("load", |member| of_link(member, |link| or_dash(link.load.map(percent)))),
    ("backlog", |member| of_link(member, |link| format!("{:.0} us", link.backlog_us))),
    ("dropped", |member| {
        of_link(member, |link| (link.transit_dropped + link.local_dropped).to_string())
    }),
    ("loopbacks", |member| member.loopbacks.join(",")),
];

/// Parameters in a line, with what is to follow and what is wrong.
fn parameters(to: &mut dyn Write, found: &ClusterParameters, in_use: &str) -> io::Result<()> {
    let ClusterParameters { version, flowlet_ms, weights, draining, lagging, .. } = found;
    write!(to, "parameters version {version}: rule {}, flowlet_ms {flowlet_ms}", found.rule)?;
    if let Some(bps) = found.rate_bps {
        write!(to, ", rate {}", rate(bps))?;
    }
    let weights: Vec<_> = weights.iter().map(|(id, weight)| format!("{id} {weight}")).collect();
    for (what, those) in [("weights", &weights), ("draining", draining), ("not read by", lagging)] {
        if !those.is_empty() {
            write!(to, "; {what} {}", those.join(", "))?;
        }
    }
    if found.mode != in_use {
        write!(to, "; mode {} once all members have read them", found.mode)?;
    }
    writeln!(to)?;
    match &found.error {
        Some(why) => writeln!(
            to,
            "the parameters in the store are unreadable: {why}; `cluster set` with any parameter replaces them"
        ),
        None => Ok(()),
    }
}

fn reasons(to: &mut dyn Write, title: &str, all: &[ClusterDrops]) -> io::Result<()> {
    if all.is_empty() {
        return Ok(());
    }
    let each = all.iter().map(|ClusterDrops { reason, packets }| format!("{reason} {packets}"));
    writeln!(to, "{title}: {}", each.collect::<Vec<_>>().join(", "))
}

impl Report for ClusterStatus {
    fn text(&self, to: &mut dyn Write) -> io::Result<()> {
        let Self { node, number, cluster, mode, rule, state, interface, .. } = self;
        writeln!(
            to,
            "node {node} (number {number}) of cluster {cluster}, {state}: mode {mode}, rule {rule}, fabric interface \
             {interface}, failures detected within {:.0} ms",
            self.detection_ms
        )?;
        if let Some(ClusterStore { kind, endpoints, state, lost_for_s, error, announced }) =
            &self.store
        {
            let lost = lost_for_s.map_or(String::new(), |time| format!(" for {time} s"));
            let why = error.as_ref().map_or(String::new(), |why| format!(": {why}"));
            let state = state.replace('_', " ");
            writeln!(
                to,
                "members from {kind} at {}, {state}{lost}{why}; {announced} neighbors announced",
                endpoints.join(", ")
            )?;
        }
        if let Some(found) = &self.parameters {
            parameters(to, found, mode)?;
        }
        if self.probes.late_intervals > 0 {
            let ClusterProbes { late_intervals, most_late_ms, .. } = &self.probes;
            writeln!(
                to,
                "probes: {late_intervals} intervals began so late that links may have been found down ({most_late_ms:.0} ms at most)"
            )?;
        }
        for conflict in &self.conflicts {
            writeln!(to, "conflict: {conflict}")?;
        }
        let mut columns = Columns::headed(MEMBERS);
        self.members.iter().for_each(|member| columns.thing(MEMBERS, member));
        columns.write(to)?;
        let down = |member: &&ClusterMember| member.link.as_ref().is_some_and(|link| !link.up);
        for member in self.members.iter().filter(down) {
            let why = member.link.as_ref().and_then(|link| link.why.as_deref());
            writeln!(to, "link to {}: {}", member.id, why.unwrap_or("no probes yet"))?;
        }
        let p = &self.packets;
        writeln!(
            to,
            "packets: {} direct, {} balanced, {} transit ({}); {} by their adjacency, {} looked up, {} for the host",
            p.direct,
            p.balanced,
            p.transit,
            percent(p.transit_share),
            p.output,
            p.looked_up,
            p.host
        )?;
        writeln!(
            to,
            "flowlets: {}, {} moved by failures, {} packets sprayed by full links; {} of packets changed path within {} ms",
            p.flowlets,
            p.rechosen,
            p.sprayed,
            percent(p.path_change_share),
            self.flowlet_ms
        )?;
        reasons(to, "dropped", &self.drops)?;
        reasons(to, "left to the graph", &self.left_xdp)
    }
}
