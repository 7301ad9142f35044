//! `bench forward`: its options.

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgMatches, Args, ValueEnum};
use fingerpost_command::progress::Progress;
use fingerpost_lab::forward::{Feature, Stream, find_features};
use fingerpost_lab::peer::find_loops;
use fingerpost_lab::table::Tables;
use fingerpost_lab::wire::{MOST_DESTINATIONS, Rows};
use fingerpost_lab::xdp::LEAST_PACKETS;
use fingerpost_lab::{BenchDocument, ForwardOptions, WireOptions, XdpOptions, forward, wire};
use fingerpost_packet::device::BURST;

use super::super::choice;
use super::super::command::{Failure, parsed};
use super::super::output::{Output, message};
use super::arguments::{built, found_by, positive, seconds};
use super::print::print;

/// Adds it to the benchmarks.
pub(super) fn command() -> clap::Command {
    Forward::augment_args(clap::Command::new("forward"))
        .about("The forwarding path between ports of memory: ns a packet on one core")
        .after_help(
            "Examples:
  $ fingerpost-lab bench forward --table v4.txt.xz --table v6.txt.xz
  $ fingerpost-lab bench forward --table v4.txt.xz --destinations 256 --repeat 21 --json
  $ fingerpost-lab bench forward --table v4.txt.xz --peers dpdk
  $ fingerpost-lab bench forward --table v4.txt.xz --filters 3
  $ fingerpost-lab bench forward --table v4.txt.xz --stream prefix --nat 10000000 --click --peers dpdk
  $ fingerpost-lab bench forward --table v4.txt.xz --path xdp --features urpf,source-filter,acl
  $ fingerpost-lab bench forward --table v4.txt.xz --path afxdp,tap,ring --peers testpmd,kernel

64-byte packets from a generator through the built-in router's graph to two sinks. Every destination
crosses once and is compared with the oracle before anything is timed; runs take turns, and the
generator is measured alone as the ceiling. `element:NAME` is what one element of the graph takes,
`element:receive` and `element:send` the ports, in turns of their own. `dpdk` stands for loops of
DPDK that forward the same frames, by rte_lpm (`dpdk-loop`) and rte_fib (`dpdk-loop-fib`);
`dpdk-loop-add` has its table route by route, which takes minutes.

`--path afxdp`, `af_packet`, `tap` and `ring` are the router behind such ports, end to end: on one
core, and traffic on another. Each is offered more than it takes (`afxdp`, Mpps), then parts and
multiples of that (`afxdp:load-0.5`); `afxdp:latency` is the latency at half of it. `testpmd`
and `kernel` stand at the same links. Needs root and two cores.",
        )
}

#[derive(Args, Debug)]
struct Forward {
    /// A table of routes; may be given once a family
    #[arg(long, value_name = "FILE", required = true)]
    table: Vec<PathBuf>,
    /// The algorithm (`fingerpost algorithms` lists them), in the families that it has; `auto` leaves
    /// it to the FIB
    #[arg(long, value_name = "NAME", default_value = choice::AUTO)]
    #[arg(value_parser = choice::names(choice::AUTO), hide_possible_values = true)]
    algorithm: String,
    /// Another one for IPv4
    #[arg(long, value_name = "NAME")]
    #[arg(value_parser = choice::names_of(fingerpost_lpm::v4().map(|row| row.name)), hide_possible_values = true)]
    algorithm_v4: Option<String>,
    /// Another one for IPv6
    #[arg(long, value_name = "NAME")]
    #[arg(value_parser = choice::names_of(fingerpost_lpm::v6().map(|row| row.name)), hide_possible_values = true)]
    algorithm_v6: Option<String>,
    /// Datapath: the router's graph between ports of memory, or inside the kernel (`bench xdp`,
    /// its rows all, drawn over the routes), or end to end between ports of a kind
    #[arg(long, value_delimiter = ',', default_value = "graph")]
    #[arg(value_parser = ["graph", "xdp", "afxdp", "af_packet", "tap", "ring"])]
    path: Vec<String>,
    /// How destinations are drawn
    #[arg(long, value_delimiter = ',', default_values_t = [Streams::Uniform, Streams::Prefix])]
    stream: Vec<Streams>,
    /// Distinct destinations
    #[arg(long, value_name = "N", default_value_t = 65_536, value_parser = positive)]
    destinations: usize,
    /// Packets taken at once
    #[arg(long, value_name = "N", default_value_t = BURST, value_parser = burst)]
    burst: usize,
    /// Routers of others in the same turns: names, `dpdk`, `testpmd`, `kernel`, `all`, or `none`
    #[arg(long, value_name = "NAME", default_value = "none", value_parser = found_by(peers))]
    peers: String,
    /// How long each of them may take to load the table
    #[arg(long, value_name = "S", default_value_t = 60.0, value_parser = seconds)]
    peer_seconds: f64,
    /// Measuring time of each run
    #[arg(long, value_name = "S", default_value_t = 2.0, value_parser = seconds)]
    seconds: f64,
    /// Samples of each run
    #[arg(long, value_name = "R", default_value_t = 9, value_parser = positive)]
    repeat: usize,
    /// Measure the path with so many lists of source prefixes in it as well
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=15))]
    filters: u8,
    /// Prefixes of each list of sources
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = positive)]
    listed: usize,
    /// Measure with each of these interface features on the ingress as well, on the paths `graph` and `xdp`:
    /// urpf (strict), source-filter, acl (10, 1,000 and 10,000 rules) or acl10, acl1000, acl10000, or sampling (1 in 1,000)
    #[arg(long, value_name = "NAMES", default_value = "none", value_parser = found_by(features))]
    features: String,
    /// Measure what a packet costs a node of a cluster as well: `cluster-input`, `cluster-transit`, `cluster-output`;
    /// `cluster-transit:graph` is that without the ports, `cluster-path` a packet over all three nodes beside their sum
    #[arg(long)]
    cluster: bool,
    /// Measure the path with address translation (IPRewriter) as well: with a flow for each destination, and with N mappings
    /// in the table, known ones (`nat-v4-known`) and a new one for each packet (`nat-v4-new`); `nat-v4-shared` has a table for
    /// two workers, of which `nat-v4-beside` has both at work, and `nat-v4-floor` is the path and the cache lines alone that a table cannot leave out
    #[arg(long, value_name = "N", default_value_t = 0)]
    nat: u32,
    /// Measure configurations of Click's users as well: `click-discard`, `click-filter` with six rules, and Click's IP router
    /// without (`click-router`) and with address translation (`click-router-nat`)
    #[arg(long)]
    click: bool,
    /// Seed of the destinations
    #[arg(long, value_name = "X", default_value_t = 1)]
    seed: u64,
    /// Send about so many packets and measure no time: for callgrind, which counts `counted_section`
    #[arg(long, value_name = "N")]
    instructions: Option<u64>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Streams {
    /// Uniform over the routed address space
    Uniform,
    /// Uniform over the routes
    Prefix,
}

impl std::fmt::Display for Streams {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.stream().name())
    }
}

impl Streams {
    fn stream(self) -> Stream {
        match self {
            Self::Uniform => Stream::Uniform,
            Self::Prefix => Stream::Prefix,
        }
    }
}

fn burst(text: &str) -> Result<usize, String> {
    positive(text).ok().filter(|n| *n <= 256).ok_or_else(|| "not a number from 1 to 256".into())
}

/// Features by their names.
fn features(names: &str) -> anyhow::Result<Vec<&'static Feature>> {
    if names == "none" { Ok(Vec::new()) } else { find_features(names) }
}

/// Loops by their names, and who stands at ports.
fn peers(names: &str) -> anyhow::Result<(String, Rows)> {
    match names {
        "none" => return Ok((names.to_owned(), Rows::new())),
        "all" => return Ok((names.to_owned(), fingerpost_lab::wire::peers().to_vec())),
        _ => {}
    }
    let (mut loops, mut rows) = (Vec::new(), Rows::new());
    for name in names.split(',') {
        match fingerpost_lab::wire::peer(name) {
            Some(row) => rows.push(row),
            None => loops.push(name),
        }
    }
    let loops = if loops.is_empty() { "none".to_owned() } else { loops.join(",") };
    find_loops(&loops).map_err(|error| anyhow::anyhow!("{error}, testpmd, kernel"))?;
    Ok((loops, rows))
}

/// The one of these names, those of a family, that an option for both means; `None` leaves the choice to the FIB.
fn known(mut names: impl Iterator<Item = &'static str>, name: &str) -> Option<&'static str> {
    names.find(|known| *known == name)
}

/// Measures and prints.
pub(super) fn run(matches: &ArgMatches, output: &mut Output) -> Result<(), Failure> {
    let arguments: Forward = parsed(matches)?;
    let name = |own: Option<String>| own.unwrap_or_else(|| arguments.algorithm.clone());
    let v4 = known(fingerpost_lpm::v4().map(|row| row.name), &name(arguments.algorithm_v4));
    let v6 = known(fingerpost_lpm::v6().map(|row| row.name), &name(arguments.algorithm_v6));
    let tables = Tables::load(&arguments.table)?;
    let features = self::features(&arguments.features)?;
    let (loops, mut others) = peers(&arguments.peers)?;
    let mut rows = Rows::new();
    for name in arguments.path.iter().filter(|name| !["graph", "xdp"].contains(&name.as_str())) {
        rows.extend(fingerpost_lab::wire::path(name)?);
    }
    rows.append(&mut others);
    let end_to_end = WireOptions {
        tables: tables.clone(),
        rows,
        destinations: arguments.destinations.min(MOST_DESTINATIONS),
        seconds: arguments.seconds,
        samples: arguments.repeat,
        seed: arguments.seed,
        loads: true,
    };
    let in_kernel = XdpOptions {
        tables: tables.clone(),
        // Features are compared with ours alone.
        engines: fingerpost_lab::xdp::find(if features.is_empty() { "all" } else { "xdp" })?,
        destinations: vec![arguments.destinations],
        packets: 2 * LEAST_PACKETS,
        samples: arguments.repeat,
        seed: arguments.seed,
        features: features.clone(),
        listed: arguments.listed,
    };
    let options = ForwardOptions {
        tables,
        algorithm_v4: v4.map(str::to_owned),
        algorithm_v6: v6.map(str::to_owned),
        streams: arguments.stream.iter().map(|s| s.stream()).collect(),
        destinations: arguments.destinations,
        burst: arguments.burst,
        seconds: arguments.seconds,
        samples: arguments.repeat,
        seed: arguments.seed,
        elements: true,
        peers: built(&loops, find_loops(&loops)?),
        load_limit: Duration::from_secs_f64(arguments.peer_seconds),
        filters: arguments.filters.into(),
        listed: arguments.listed,
        features,
        cluster: arguments.cluster,
        mappings: arguments.nat as usize,
        click: arguments.click,
        instructions: arguments.instructions,
    };
    message(format_args!("measuring {}", arguments.path.join(", ")));
    let mut document: Option<BenchDocument> = None;
    let mut ports_done = false;
    for path in &arguments.path {
        let part = match path.as_str() {
            "graph" => forward(&options)?,
            "xdp" => super::xdp::measured(&in_kernel)?,
            // All ports take turns with each other.
            _ if ports_done => continue,
            _ => {
                ports_done = true;
                wire(&end_to_end, &mut Progress::new())?
            }
        };
        match &mut document {
            Some(document) => document.runs.extend(part.runs),
            None => document = Some(part),
        }
    }
    print(document.expect("there is a path, by default"), output)
}
