//! `fingerpost top`: the running router at a glance, again and again.
//!
//! A picture is the difference of two looks at what the daemon counts, a second apart; the elements are timed
//! meanwhile. A terminal has the tabs of `screen/`; elsewhere a picture is text or JSON. With `--plain` on a terminal each takes
//! the place of the one before, by the two sequences that every terminal knows.

mod graph;
mod screen;

use std::collections::BTreeMap;
use std::io::{self, IsTerminal, Write};
use std::time::Instant;

use clap::{ArgMatches, Args};
use serde::Serialize;

use super::command::{Command, Failure, parsed};
use super::output::{Column, Columns, Output, Report, or_dash};
use crate::api::client::Client;
use crate::api::graph::{ElementStats, GraphQuery, GraphStats};
use crate::api::model::{Fib, Interface, Source, Status};
use crate::cli::at::At;
use crate::cli::at::AtGraph;

pub(super) const COMMAND: Command = Command {
    name: "top",
    summary: "Live view of the running router",
    examples: "Examples:
  $ fingerpost top
  $ fingerpost top --interval 5
  $ fingerpost top --plain
  $ fingerpost top --count 1 --json | jq .interfaces
  $ fingerpost top --control 127.0.0.1:1234

Shows interfaces with packets per second in and out and the kernel's policy for them, workers, \
the elements with the largest share of the processor, drops per second by reason, the lookup \
tables, and route sources. On a terminal: a tab for each, keys sort and filter the rows, ? lists the \
keys. In a pipe, and with --plain or --count, text; --json prints a line per interval. Elements are timed meanwhile, which costs two reads of \
the clock per batch and element. --control shows the workers, elements and drops of a graph of a \
file (`run FILE.click`).",
    arguments: Arguments::augment_args,
    run,
};

/// Elements that are shown.
const SHOWN: usize = 12;
/// Clears the screen and goes to its corner.
const ANEW: &str = "\x1b[2J\x1b[H";

#[derive(Args)]
struct Arguments {
    /// Seconds between two updates
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0)]
    interval: f64,
    /// Exit after this many updates
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    /// Print text, also on a terminal
    #[arg(long)]
    plain: bool,
    #[command(flatten)]
    at: At,
    #[command(flatten)]
    graph: AtGraph,
}

/// Counters and tables of one moment.
struct Look {
    at: Instant,
    interfaces: Vec<Interface>,
    graph: GraphStats,
    sources: Vec<Source>,
}

impl Look {
    fn new(client: &Client, cycles: Option<f64>) -> Result<Self, Failure> {
        let graph = client.get("/v1/graph", &GraphQuery { cycles })?;
        let at = Instant::now();
        let interfaces = client.get("/v1/interfaces", &())?;
        Ok(Self { at, interfaces, graph, sources: client.get("/v1/sources", &())? })
    }
}

/// Drops so far, by element and reason.
fn drops(graph: &GraphStats) -> BTreeMap<(&str, &str), u64> {
    let mut drops = BTreeMap::new();
    for element in &graph.elements {
        for (reason, packets) in &element.reasons {
            *drops.entry((&*element.name, &**reason)).or_default() += packets;
        }
    }
    for (reason, packets) in &graph.drivers.dropped {
        *drops.entry(("(xdp)", &**reason)).or_default() += packets;
    }
    drops
}

/// What was dropped between two looks.
fn drops_between(before: &GraphStats, now: &GraphStats, seconds: f64) -> Vec<Drops> {
    let old = drops(before);
    let row = |((element, reason), total): ((&str, &str), u64)| Drops {
        element: element.to_owned(),
        reason: reason.to_owned(),
        packets: rate(old.get(&(element, reason)).copied().unwrap_or(0), total, seconds),
        total,
    };
    drops(now).into_iter().map(row).collect()
}

/// One picture: its fields are its JSON.
#[derive(Serialize)]
struct Picture {
    /// State of the daemon.
    status: Status,
    /// Seconds between two samples.
    seconds: f64,
    /// Packets per second that the XDP datapath forwarded.
    forwarded_xdp: f64,
    interfaces: Vec<Rates>,
    elements: Vec<Share>,
    drops: Vec<Drops>,
    fibs: Vec<Fib>,
    sources: Vec<SourceRates>,
}

#[derive(Serialize)]
struct SourceRates {
    #[serde(flatten)]
    source: Source,
    updates_per_second: f64,
}

#[derive(Serialize)]
struct Rates {
    name: String,
    up: bool,
    path: String,
    /// Policy of the kernel for its forwarded packets, where that is an obstacle.
    policy: Option<String>,
    /// Packets and bits a second.
    rx_packets: f64,
    rx_bits: f64,
    tx_packets: f64,
    tx_bits: f64,
    punted: f64,
    dropped: f64,
    /// What would let packets leave by it in XDP.
    #[serde(skip_serializing_if = "Option::is_none")]
    remedy: Option<String>,
}

#[derive(Serialize)]
struct Share {
    name: String,
    /// None for all workers together.
    #[serde(skip_serializing_if = "Option::is_none")]
    worker: Option<usize>,
    /// Packets a second.
    packets: f64,
    average_batch: Option<f64>,
    cycles: Option<f64>,
    /// Part of all that elements took, 0 to 1.
    share: Option<f64>,
}

#[derive(Serialize)]
struct Drops {
    element: String,
    reason: String,
    /// Packets a second.
    packets: f64,
    /// Packets so far.
    total: u64,
}

fn run(matches: &ArgMatches, output: &mut Output) -> Result<(), Failure> {
    let Arguments { interval, count, plain, at, graph } = parsed(matches)?;
    let anew = !output.is_json() && io::stdout().is_terminal();
    if let Some(client) = graph.client()? {
        return graph::run(client, interval, count.unwrap_or(u64::MAX), anew, output);
    }
    if anew && !plain && count.is_none() && io::stdin().is_terminal() {
        return screen::run(at, interval);
    }
    let print = &mut |picture: Picture| {
        if anew {
            output.write_all(ANEW.as_bytes())?;
        }
        output.print(&picture)?;
        output.flush()?;
        Ok(true)
    };
    pictures(&at.client()?, interval, count.unwrap_or(u64::MAX), print)
}

/// Passes so many pictures to `each`, one an interval, as long as that returns true.
fn pictures(
    client: &Client,
    interval: f64,
    count: u64,
    each: &mut dyn FnMut(Picture) -> Result<bool, Failure>,
) -> Result<(), Failure> {
    let mut before = Look::new(client, None)?;
    for _ in 0..count {
        let now = Look::new(client, Some(interval))?;
        let (status, fibs) = (client.get("/v1/status", &())?, client.get("/v1/fibs", &())?);
        if !each(Picture::new(&before, &now, status, fibs))? {
            break;
        }
        before = now;
    }
    Ok(())
}

#[allow(clippy::cast_precision_loss, reason = "rates for people")]
fn rate(before: u64, now: u64, seconds: f64) -> f64 {
    now.saturating_sub(before) as f64 / seconds
}

impl Picture {
    fn new(before: &Look, now: &Look, status: Status, fibs: Vec<Fib>) -> Self {
        let seconds = now.at.duration_since(before.at).as_secs_f64().max(1e-3);
        let rate = |before: u64, now: u64| rate(before, now, seconds);
        let of = |now: &Interface| {
            let old = before.interfaces.iter().find(|old| old.index == now.index);
            let rate = |of: fn(&Interface) -> u64| rate(old.map_or(of(now), of), of(now));
            Rates {
                name: now.name.clone(),
                up: now.up,
                path: now.path.clone(),
                policy: now.policy.clone(),
                rx_packets: rate(|i| i.rx_packets),
                rx_bits: rate(|i| i.rx_bytes) * 8.0,
                tx_packets: rate(|i| i.tx_packets),
                tx_bits: rate(|i| i.tx_bytes) * 8.0,
                punted: rate(|i| i.punted),
                dropped: rate(|i| i.dropped.values().sum()),
                remedy: now.remedy.clone(),
            }
        };
        let forwarded = |look: &Look| look.graph.drivers.forwarded;
        let source = |now: &Source| {
            let old = before.sources.iter().find(|old| old.name == now.name);
            let old = old.map_or(now.updates, |old| old.updates);
            SourceRates { source: now.clone(), updates_per_second: rate(old, now.updates) }
        };
        Self {
            status,
            seconds,
            forwarded_xdp: rate(forwarded(before), forwarded(now)),
            interfaces: now.interfaces.iter().map(of).collect(),
            elements: shares(&before.graph, &now.graph, seconds),
            drops: drops_between(&before.graph, &now.graph, seconds),
            fibs,
            sources: now.sources.iter().map(source).collect(),
        }
    }

    /// A line about the daemon.
    fn title(&self) -> String {
        let status = &self.status;
        let workers = match status.workers - status.workers_alive {
            0 => status.workers.to_string(),
            _ => format!("{} of {}", status.workers_alive, status.workers),
        };
        format!(
            "fingerpost {}, process {}, up {:.0} s, {} MiB, {workers} workers, {} IPv4 and {} IPv6 prefixes",
            status.version,
            status.pid,
            status.seconds,
            status.resident_kib >> 10,
            status.routes_v4,
            status.routes_v6
        )
    }
}

/// What elements did between two looks, the dearest first.
#[allow(clippy::cast_precision_loss, reason = "shares for people")]
fn shares(before: &GraphStats, now: &GraphStats, seconds: f64) -> Vec<Share> {
    let all: u64 = now.elements.iter().filter_map(|element| element.ticks).sum();
    let mut elements: Vec<&ElementStats> = now.elements.iter().collect();
    elements.sort_by_key(|element| std::cmp::Reverse((element.ticks, element.packets)));
    let of = |now: &ElementStats| {
        let same = |old: &&ElementStats| old.name == now.name && old.worker == now.worker;
        let old = before.elements.iter().find(same);
        let (packets, batches) = old.map_or((0, 0), |old| (old.packets, old.batches));
        let packets = now.packets.saturating_sub(packets);
        let batches = now.batches.saturating_sub(batches);
        Share {
            name: now.name.clone(),
            worker: Some(now.worker),
            packets: packets as f64 / seconds,
            average_batch: (batches > 0).then(|| packets as f64 / batches as f64),
            cycles: now.cycles,
            share: now.ticks.filter(|_| all > 0).map(|ticks| ticks as f64 / all as f64),
        }
    };
    elements.into_iter().map(of).collect()
}

const ELEMENTS: &[Column<Share>] = &[
    ("element", |row| row.name.clone()),
    ("worker", |row| row.worker.map_or_else(|| "all".to_owned(), |worker| worker.to_string())),
    ("packets/s", |row| whole(row.packets)),
    ("batch", |row| rounded(row.average_batch)),
    ("cycles", |row| rounded(row.cycles)),
    ("share %", |row| rounded(row.share.map(|share| share * 100.0))),
];

const DROPS: &[Column<Drops>] = &[
    ("dropped by", |row| row.element.clone()),
    ("reason", |row| row.reason.clone()),
    ("packets/s", |row| whole(row.packets)),
    ("so far", |row| row.total.to_string()),
];

const SOURCES: &[Column<SourceRates>] = &[
    ("name", |row| row.source.name.clone()),
    ("kind", |row| row.source.kind.clone()),
    ("distance", |row| row.source.distance.to_string()),
    ("routes", |row| row.source.routes.to_string()),
    ("updates/s", |row| whole(row.updates_per_second)),
    ("errors", |row| row.source.errors.to_string()),
    ("resyncs", |row| or_dash(row.source.resyncs)),
    ("lag ms", |row| whole(row.source.lag_ms)),
    ("state", |row| if row.source.in_sync { "in sync" } else { "not in sync" }.to_owned()),
];

/// The elements that take the most.
fn write_elements(elements: &[Share], to: &mut dyn Write) -> io::Result<()> {
    // An element that is only polled takes something, too.
    let busy = |row: &&Share| row.packets > 0.0 || row.share.is_some_and(|share| share > 0.01);
    Columns::of(ELEMENTS, elements.iter().filter(busy).take(SHOWN)).write(to)
}

fn write_drops(drops: &[Drops], to: &mut dyn Write) -> io::Result<()> {
    Columns::of(DROPS, drops).write(to)
}

fn whole(value: f64) -> String {
    format!("{value:.0}")
}

fn rounded(value: Option<f64>) -> String {
    or_dash(value.map(|value| format!("{value:.1}")))
}

fn mega(bits: f64) -> String {
    format!("{:.1}", bits / 1e6)
}

const INTERFACES: &[Column<Rates>] = &[
    ("interface", |row| row.name.clone()),
    ("path", |row| if row.up { row.path.clone() } else { "down".to_owned() }),
    ("in/s", |row| whole(row.rx_packets)),
    ("Mbit/s", |row| mega(row.rx_bits)),
    ("out/s", |row| whole(row.tx_packets)),
    ("Mbit/s", |row| mega(row.tx_bits)),
    ("punted/s", |row| whole(row.punted)),
    ("dropped/s", |row| whole(row.dropped)),
];

const FIBS: &[Column<Fib>] = &[
    ("table", |fib| fib.table.to_string()),
    ("family", |fib| fib.family.to_string()),
    ("algorithm", |fib| fib.algorithm.clone()),
    ("prefixes", |fib| fib.prefixes.to_string()),
    ("bytes", |fib| fib.bytes.to_string()),
    ("pending", |fib| fib.pending.to_string()),
    ("wrong", |fib| fib.mismatch_routes.to_string()),
];

impl Report for Picture {
    fn text(&self, to: &mut dyn Write) -> io::Result<()> {
        writeln!(to, "{}", self.title())?;
        writeln!(to, "forwarded in XDP: {:.0} packets/s\n", self.forwarded_xdp)?;
        Columns::of(INTERFACES, &self.interfaces).write(to)?;
        for row in &self.interfaces {
            if let Some(policy) = &row.policy {
                writeln!(to, "{}: {policy}", row.name)?;
            }
            if let Some(remedy) = &row.remedy {
                writeln!(to, "{}: nothing leaves by it in XDP: {remedy}", row.name)?;
            }
        }
        writeln!(to)?;
        write_elements(&self.elements, to)?;
        writeln!(to)?;
        write_drops(&self.drops, to)?;
        writeln!(to)?;
        Columns::of(FIBS, &self.fibs).write(to)
    }
}
