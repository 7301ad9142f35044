//! `fingerpost trace`: the paths of single packets through the running router.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::time::{Duration, Instant, UNIX_EPOCH};

use clap::{ArgMatches, Args, Subcommand};
use fingerpost_packet::filter::Filter;
use fingerpost_packet::graph::trace::{MOST_PACKETS, Pcapng};

use super::command::{Command, Exit, Failure, parsed, subcommands};
use super::output::{Output, Report, message};
use crate::api::client::Client;
use crate::api::graph::{GraphQuery, GraphStats, PacketTrace, TraceQuery, TraceStep};
use crate::cli::at::{At, AtGraph};
use crate::control::client::ControlClient;

pub(super) const COMMAND: Command = Command {
    name: "trace",
    summary: "Trace packets through the graph of the running router",
    examples: "",
    arguments: subcommands::<What>,
    run,
};

const ADD: &str = "Examples:
  $ fingerpost trace add 10 'dst 10.0.0.0/8 and icmp'
  $ fingerpost trace add 1 udp --seconds 60 --json
  $ fingerpost trace add 100 'dst port 53' --pcapng dns.pcapng
  $ fingerpost trace add 10 udp --control 127.0.0.1:1234

Traces the next N packets that match FILTER, from ingress to egress or drop: each element with \
its output, the fields that it rewrote, the prefix and next hop of the lookup, the drop reason, \
and the ICMP errors and fragments that are made. FILTER is in the language of Click's IPFilter; \
`all` matches every IP packet. --pcapng writes the frames as they arrived and as they left, with \
the path as comments. --control traces in a graph of a file (`run FILE.click`).

Packets that the XDP datapath forwards do not reach the graph; `run --path afxdp` sends all \
packets through it. Exit code 1 if no packet matches within --seconds. A trace costs a filter per \
packet while it runs.";

#[derive(Subcommand)]
enum What {
    /// Trace the next N packets that match FILTER
    #[command(after_help = ADD)]
    Add(Add),
}

#[derive(Args)]
struct Add {
    /// Number of packets, at most 1000
    #[arg(value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST_PACKETS)))]
    packets: u32,
    /// Filter expression, in one argument or several
    #[arg(value_name = "FILTER", required = true, num_args = 1..)]
    filter: Vec<String>,
    /// Longest wait for packets
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0)]
    seconds: f64,
    /// Write the frames to this file
    #[arg(long, value_name = "FILE")]
    pcapng: Option<PathBuf>,
    #[command(flatten)]
    at: At,
    #[command(flatten)]
    graph: AtGraph,
}

/// Interval between two looks at a graph of a file.
const LOOK: Duration = Duration::from_millis(50);
/// Longest time for its workers to hand out their traces.
const ENDING: Duration = Duration::from_millis(500);
/// Longest wait for packets, in seconds: as for the daemon.
const LONGEST_TRACE: f64 = 3600.0;

type Capture = Pcapng<BufWriter<File>>;

fn run(matches: &ArgMatches, output: &mut Output) -> Result<(), Failure> {
    let What::Add(add) = parsed(matches)?;
    let filter = add.filter.join(" ");
    if let Err(error) = Filter::parse(&filter) {
        return Err(Failure::new(Exit::Usage, format_args!("`{filter}`: {error}")));
    }
    let Add { packets, seconds, .. } = &add;
    if !(*seconds > 0.0 && *seconds <= LONGEST_TRACE) {
        let words = format!("--seconds: more than 0 and at most {LONGEST_TRACE}");
        return Err(Failure::new(Exit::Usage, words));
    }
    let graph = add.graph.client()?;
    let client = add.at.client()?;
    let drivers = if graph.is_some() { Vec::new() } else { driven(&client)? };
    let failed = |path: &PathBuf, error: &io::Error| {
        Failure::outside(error.kind(), format_args!("{}: {error}", path.display()))
    };
    let create = |path: &PathBuf| {
        let file = File::create(path).and_then(|file| Pcapng::new(BufWriter::new(file)));
        file.map_err(|error| failed(path, &error))
    };
    let mut capture: Option<Capture> = add.pcapng.as_ref().map(create).transpose()?;
    let question = TraceQuery { packets: *packets, filter, seconds: *seconds };
    let mut found = 0;
    let mut take = |lines: &[u8]| {
        for line in lines.split(|&b| b == b'\n').filter(|line| !line.is_empty()) {
            let trace: PacketTrace = serde_json::from_slice(line)
                .map_err(|error| Failure::new(Exit::Failed, format_args!("no trace: {error}")))?;
            found += 1;
            output.print(&trace)?;
            if let (Some(capture), Some(path)) = (&mut capture, &add.pcapng) {
                write(capture, &trace).map_err(|error| failed(path, &error))?;
            }
        }
        output.flush()?;
        Ok(found)
    };
    match graph {
        Some(graph) => follow(graph, &question, &mut take)?,
        None => client.lines("/v1/trace", &question, &mut |lines| take(lines).map(|_| ()))?,
    }
    if found == *packets {
        return Ok(());
    }
    let words = format!("{found} of {packets} packets matched within {seconds} s");
    let words = match &drivers[..] {
        [] => words,
        all => format!("{words}; packets that {} forward in XDP are not traced", all.join(", ")),
    };
    if found == 0 {
        return Err(Failure::new(Exit::Failed, words));
    }
    message(words);
    Ok(())
}

/// Traces packets of a graph of a file, as its daemon would. `take` is given what was traced, and returns how many there
/// are by then.
fn follow(
    mut graph: ControlClient,
    question: &TraceQuery,
    take: &mut dyn FnMut(&[u8]) -> Result<u32, Failure>,
) -> Result<(), Failure> {
    let TraceQuery { packets, filter, seconds } = question;
    let until = Instant::now() + Duration::from_secs_f64(*seconds);
    graph.write("trace", &format!("{packets} {filter}"))?;
    let (mut found, mut last) = (0, None);
    while found < *packets && last.is_none_or(|at: Instant| at.elapsed() < ENDING) {
        if last.is_none() && Instant::now() >= until {
            // Packets that wait inside are reported then.
            graph.write("trace", "0")?;
            last = Some(Instant::now());
        }
        std::thread::sleep(LOOK);
        found = take(graph.read("trace", &format!("json {}", found + 1))?.as_bytes())?;
    }
    Ok(())
}

/// Interfaces that forward past the graph.
fn driven(client: &Client) -> Result<Vec<String>, Failure> {
    let stats: GraphStats = client.get("/v1/graph", &GraphQuery::default())?;
    Ok(stats.drivers.interfaces)
}

/// Writes the frames of a trace: as they came, or were made, and as they left or ended.
fn write(capture: &mut Capture, trace: &PacketTrace) -> io::Result<()> {
    let time = UNIX_EPOCH + Duration::try_from_secs_f64(trace.time).unwrap_or_default();
    for (number, packet) in trace.packets.iter().enumerate() {
        let mut way = Vec::new();
        for step in trace.steps.iter().filter(|step| usize::from(step.packet) == number) {
            way.push(line(step));
        }
        let way = way.join("\n");
        if number == 0 {
            let comment = format!("trace {}, as it came\n{way}", trace.number);
            capture.frame(&trace.interface, time, &bytes(&packet.frame), &comment)?;
        }
        let (place, ended) = match (&packet.interface, &packet.reason) {
            (Some(interface), _) => (interface, "as it left".to_owned()),
            (None, Some(reason)) => (&trace.interface, format!("dropped: {reason}")),
            (None, None) if packet.fate == "written" => {
                (&trace.interface, "as it was written".to_owned())
            }
            (None, None) => (&trace.interface, "it waits".to_owned()),
        };
        let comment = match number {
            0 => format!("trace {}, {ended}", trace.number),
            _ => format!("trace {}, made by the router, {ended}\n{way}", trace.number),
        };
        capture.frame(place, time, &bytes(&packet.last), &comment)?;
    }
    Ok(())
}

/// Bytes of hexadecimal digits, which the daemon wrote.
fn bytes(digits: &str) -> Vec<u8> {
    let pair = |at: usize| u8::from_str_radix(digits.get(at..at + 2)?, 16).ok();
    (0..digits.len()).step_by(2).map_while(pair).collect()
}

/// A step in a line.
fn line(step: &TraceStep) -> String {
    let mut text = step.element.clone();
    if let Some(name) = &step.output_name {
        text += &format!(" [{name}]");
    } else if let Some(output @ 1..) = step.output {
        text += &format!(" [{output}]");
    }
    if !step.notes.is_empty() {
        text += &format!(": on {}", step.notes.join(", "));
    }
    if let Some(path) = &step.cluster {
        text += &format!(": {path}");
    }
    for route in step.route.iter().chain(&step.vrf_routes) {
        let prefix = route.prefix.as_deref().unwrap_or("no route");
        text += &format!(": {prefix} in table {}, next hop {}", route.table, route.nexthop);
        match &route.adjacency {
            Some(way) => {
                text += &format!(", by {}", way.interface);
                if let Some(neighbor) = &way.neighbor {
                    text += &format!(" to {neighbor}");
                }
                if let Some(mac) = &way.dst_mac {
                    text += &format!(" ({mac})");
                }
            }
            None => text += &format!(", {}", route.action),
        }
    }
    if let Some(found) = &step.found {
        text += &format!(": {}", found.prefix.as_deref().unwrap_or("no route"));
        if let Some(gateway) = &found.gateway {
            text += &format!(" via {gateway}");
        }
    }
    let changes = step.changes.iter();
    let changes: Vec<String> = changes
        .map(|change| match (change.from.as_str(), change.to.as_str()) {
            ("", to) => format!("{} + {to}", change.field),
            (from, "") => format!("{} - {from}", change.field),
            (from, to) => format!("{} {from} -> {to}", change.field),
        })
        .collect();
    if !changes.is_empty() {
        text += &format!(": {}", changes.join(", "));
    }
    match step.does.as_str() {
        "sent" => text += &format!(": sent by {}", step.interface.as_deref().unwrap_or("-")),
        "written" => text += ": written to a file",
        "kept" => text += ": waits",
        "dropped" => {
            let reason = step.reason.as_deref().unwrap_or("-");
            text += &format!(": dropped, {reason}: {}", step.why.as_deref().unwrap_or_default());
        }
        _ => {}
    }
    text
}

impl Report for PacketTrace {
    fn text(&self, to: &mut dyn Write) -> io::Result<()> {
        let Self { number, interface, packets, .. } = self;
        writeln!(to, "{number} by {interface}: {}", packets[0].summary)?;
        for step in &self.steps {
            let indent = if step.packet == 0 { "    " } else { "        " };
            let of = if step.packet == 0 { String::new() } else { format!("{}: ", step.packet) };
            writeln!(to, "{indent}{of}{}", line(step))?;
            for made in &step.made {
                let summary = packets.get(usize::from(*made)).map_or("", |packet| &packet.summary);
                writeln!(to, "        {made}: made of it: {summary}")?;
            }
        }
        if self.cut {
            writeln!(to, "    and more")?;
        }
        Ok(())
    }
}
