//! `fingerpost cluster plan`: how many servers a capacity takes, how they are linked and what each processes.
//!
//! Source: RouteBricks; the arithmetic is in `fingerpost_cluster::plan`. Cost: none to speak of; the wiring of the
//! greatest cluster is some millions of lines.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use clap::Args;
use fingerpost_cluster::plan::{
    self, AfterFailures, CAPACITIES, Cores, Cycles, FAN_OUT, Plan, PlanError, Processing, Rate,
    Request, Topology, table,
};
use fingerpost_lpm::input;
use serde::{Deserialize, Serialize};

use crate::cli::command::{Exit, Failure};
use crate::cli::output::{Columns, Output, Report};

pub(super) const EXAMPLES: &str = "Examples:
  $ fingerpost cluster plan --capacity 320G --port 10G
  $ fingerpost cluster plan --capacity 1.28T --port 10G --ports-per-server 2 --failures 1 --json
  $ fingerpost cluster plan --capacity 800G --port 100G --cycles 200,60,60 --clock 3G --cores 24
  $ fingerpost cluster plan --capacity 400G --port 100G --bench forward.json --packet-bytes 700
  $ fingerpost cluster plan --capacity 640G --port 10G --nic 8x1G,6x10G --wiring
  $ fingerpost cluster plan --table --fan-out 48

A cluster is a mesh where each server has an internal port for each other, and a k-ary n-fly beyond. Rates are those \
of Valiant load balancing: any traffic fits that no external port has too much of. The table is that of the \
RouteBricks lecture, for ports of 10G.";

#[derive(Args)]
pub(super) struct Arguments {
    /// Rate of all external ports together: 320G, 1.28T, or bits per second
    #[arg(long, value_name = "RATE", required_unless_present = "table", requires = "port")]
    capacity: Option<Rate>,
    /// Rate of an external port
    #[arg(long, value_name = "RATE", requires = "capacity")]
    port: Option<Rate>,
    /// External ports of a server
    #[arg(long, value_name = "N", default_value_t = 1, requires = "capacity")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    ports_per_server: u32,
    /// Internal ports of a server
    #[arg(long, value_name = "F", default_value_t = FAN_OUT)]
    #[arg(value_parser = clap::value_parser!(u32).range(2..=65_536))]
    fan_out: u32,
    /// Rate of an internal port; without it that of an external one
    #[arg(long, value_name = "RATE", requires = "capacity")]
    link: Option<Rate>,
    /// Kinds of NIC for internal ports, each PORTSxRATE; the kind with the fewest servers is planned
    #[arg(long, value_name = "NIC", value_delimiter = ',', requires = "capacity")]
    #[arg(conflicts_with_all = ["fan_out", "link"])]
    nic: Vec<Nic>,
    /// NICs of a server, one of them for the external ports
    #[arg(long, value_name = "N", default_value_t = 7, requires = "nic")]
    #[arg(value_parser = clap::value_parser!(u32).range(2..=1024))]
    nics: u32,
    /// Failed servers that the links have room for
    #[arg(long, value_name = "K", default_value_t = 0, requires = "capacity")]
    failures: u32,
    /// Rate that a server processes; a packet counts once for each time that it passes the server
    #[arg(long, value_name = "RATE", requires = "capacity")]
    #[arg(conflicts_with_all = ["cycles", "bench"])]
    server: Option<Rate>,
    /// Cycles per packet: INPUT,TRANSIT,OUTPUT, or one number for all
    #[arg(long, value_name = "CYCLES", value_delimiter = ',', num_args = 1, requires = "capacity")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    #[arg(conflicts_with = "bench")]
    cycles: Vec<u64>,
    /// Document of `bench forward --json` whose runs have the cost: `cluster-input`, `cluster-transit` and
    /// `cluster-output`, or `graph-v4` for all
    #[arg(long, value_name = "FILE", requires = "capacity")]
    bench: Option<PathBuf>,
    /// Clock of a core, in Hz; with --bench, of the machine that was measured and of the servers
    #[arg(long, value_name = "HZ", default_value = "3G")]
    clock: Rate,
    /// Cores of a server; without it the plan has as many as it takes
    #[arg(long, value_name = "N", requires = "capacity")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=65_536))]
    cores: Option<u64>,
    /// Bytes of a packet, CRC included
    #[arg(long, value_name = "BYTES", default_value_t = 64)]
    #[arg(value_parser = clap::value_parser!(u64).range(64..=9_216))]
    packet_bytes: u64,
    /// Power of a server; 300 W is that of RouteBricks' RB8/4
    #[arg(long, value_name = "W", default_value_t = 300)]
    watts: u32,
    /// Also list the servers that are linked
    #[arg(long, requires = "capacity")]
    wiring: bool,
    /// Print the sizing table of the RouteBricks lecture instead of a plan
    #[arg(long, conflicts_with = "capacity")]
    table: bool,
}

/// A kind of NIC: `8x1G`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Nic {
    ports: u32,
    rate: Rate,
}

impl FromStr for Nic {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let words = || "no kind of NIC: ports and their rate, such as `8x1G`".to_owned();
        let (ports, rate) = text.split_once('x').ok_or_else(words)?;
        let ports = ports.parse().ok().filter(|ports| (1..=64).contains(ports));
        Ok(Self { ports: ports.ok_or_else(words)?, rate: rate.parse()? })
    }
}

pub(super) fn run(arguments: &Arguments, output: &mut Output) -> Result<(), Failure> {
    let (Some(capacity), Some(port)) = (arguments.capacity, arguments.port) else {
        return Ok(output.print(&Sizes::new(arguments.fan_out))?);
    };
    let request = Request {
        capacity,
        port,
        ports_per_server: arguments.ports_per_server,
        fan_out: arguments.fan_out,
        link: arguments.link.unwrap_or(port),
        failures: arguments.failures,
        processing: processing(arguments)?,
    };
    let kinds = arguments.nic.iter().map(|nic| Request {
        fan_out: nic.ports * (arguments.nics - 1),
        link: nic.rate,
        ..request
    });
    let kinds: Vec<Request> =
        if arguments.nic.is_empty() { vec![request] } else { kinds.collect() };
    let (request, plan) = fewest_servers(&kinds).map_err(failure)?;
    Ok(output.print(&Planned::new(&request, &plan, arguments))?)
}

/// The plan with the fewest servers, of several kinds of NIC; the first of equal ones. The last error where none is.
fn fewest_servers(kinds: &[Request]) -> Result<(Request, Plan), PlanError> {
    let mut plans = Vec::new();
    let mut error = PlanError::Zero;
    for request in kinds {
        match Plan::new(request) {
            Ok(plan) => plans.push((*request, plan)),
            Err(reason) => error = reason,
        }
    }
    plans.into_iter().min_by_key(|(_, plan)| plan.wiring.servers()).ok_or(error)
}

/// A request that contradicts itself is a mistake of usage; one that nothing fulfils has failed.
fn failure(error: PlanError) -> Failure {
    let usage = matches!(error, PlanError::Zero | PlanError::NotMultiple { .. });
    Failure::new(if usage { Exit::Usage } else { Exit::Failed }, error)
}

/// What a server processes, as far as the options have it.
fn processing(arguments: &Arguments) -> Result<Option<Processing>, Failure> {
    if let Some(rate) = arguments.server {
        return Ok(Some(Processing::Rate(rate)));
    }
    let clock_hz = arguments.clock.0;
    let cycles = match (&arguments.bench, &arguments.cycles[..]) {
        (Some(file), _) => measured(file, clock_hz)?,
        (None, []) if arguments.cores.is_none() => return Ok(None),
        (None, &[all]) => Cycles { input: all, transit: all, output: all },
        (None, &[input, transit, output]) => Cycles { input, transit, output },
        (None, []) => return Err(usage("--cores needs --cycles or --bench")),
        (None, _) => {
            return Err(usage("--cycles takes one number, or three: INPUT,TRANSIT,OUTPUT"));
        }
    };
    let (cores, packet_bytes) = (arguments.cores, arguments.packet_bytes);
    Ok(Some(Processing::Measured { cycles, clock_hz, cores, packet_bytes }))
}

fn usage(words: &str) -> Failure {
    Failure::new(Exit::Usage, words)
}

/// What is read of a bench document.
#[derive(Deserialize)]
struct Document {
    runs: Vec<Run>,
}

#[derive(Deserialize)]
struct Run {
    name: String,
    unit: String,
    median: Option<f64>,
    #[serde(default)]
    answers: String,
}

/// Cycles per packet of the runs of a bench document.
fn measured(file: &Path, clock_hz: u64) -> Result<Cycles, Failure> {
    let name = file.display();
    let text = input::read_text(file)
        .map_err(|error| Failure::outside(error.kind(), format_args!("{name}: {error}")))?;
    let document: Document = serde_json::from_str(&text)
        .map_err(|error| Failure::new(Exit::Failed, format_args!("{name}: {error}")))?;
    let cost = |run: &str| {
        let cost = cycles(&document.runs, run, clock_hz);
        cost.or_else(|| cycles(&document.runs, "graph-v4", clock_hz)).ok_or_else(|| {
            let words = format_args!("{name}: no run `{run}` or `graph-v4` with right answers");
            Failure::new(Exit::Failed, words)
        })
    };
    Ok(Cycles {
        input: cost("cluster-input")?,
        transit: cost("cluster-transit")?,
        output: cost("cluster-output")?,
    })
}

/// Cycles per packet of the median of a run, rounded up; none where it has no number or its answers are wrong.
fn cycles(runs: &[Run], name: &str, clock_hz: u64) -> Option<u64> {
    let run = runs.iter().find(|run| run.name == name && run.answers != "wrong")?;
    let median = run.median.filter(|median| *median > 0.0)?;
    let cycles = match run.unit.as_str() {
        "ns/packet" => median * clock_hz as f64 / 1e9,
        "Mpps" => clock_hz as f64 / (median * 1e6),
        _ => return None,
    };
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "positive, and a conversion saturates"
    )]
    let cycles = cycles.ceil() as u64;
    Some(cycles)
}

/// The JSON of a plan.
#[derive(Serialize)]
struct Planned {
    /// Servers in all.
    servers: u64,
    /// Servers with external ports.
    port_servers: u64,
    /// `mesh` or `fly`.
    topology: &'static str,
    /// Stages of the k-ary n-fly, n; 1 is a mesh.
    stages: u32,
    /// Servers of the next stage that a server reaches, k; in a mesh all of them.
    degree: u64,
    /// External ports.
    ports: u64,
    port_gbps: f64,
    ports_per_server: u32,
    capacity_gbps: f64,
    /// Internal full-duplex links in all.
    links: u64,
    /// Greatest rate of one, in one direction, also after `failures`.
    link_gbps: f64,
    /// Rate of the internal ports.
    link_port_gbps: f64,
    /// Parallel links of two linked servers.
    links_per_pair: u64,
    /// Internal ports that a server uses, of `fan_out`.
    links_per_server: u64,
    fan_out: u32,
    /// Failures that the links have room for.
    failures: u32,
    /// Rates that a server processes.
    processing_gbps: Processed,
    /// Cycles per packet that cores were computed of.
    #[serde(skip_serializing_if = "Option::is_none")]
    cycles: Option<CyclesUsed>,
    /// Cores that a server takes.
    #[serde(skip_serializing_if = "Option::is_none")]
    cores: Option<CoresTaken>,
    /// What the busiest server processes at worst, as a multiple of what it can; 1 when all fits.
    oversubscription: f64,
    after_failures: Vec<Left>,
    watts: u64,
    watts_per_gbps: f64,
    /// Servers that are linked, in a k-ary n-fly from the first to the second.
    #[serde(skip_serializing_if = "Option::is_none")]
    wiring: Option<Vec<(u64, u64)>>,
}

#[derive(Serialize)]
struct Processed {
    /// Rate of a server with ports under uniform traffic.
    uniform: f64,
    /// Rate of a server with ports under the worst admissible matrix.
    worst: f64,
    /// Rate of a server without ports.
    transit: f64,
}

#[derive(Serialize)]
struct CyclesUsed {
    input: u64,
    transit: u64,
    output: u64,
}

#[derive(Serialize)]
struct CoresTaken {
    uniform: u64,
    worst: u64,
    transit: u64,
}

/// What failures leave.
#[derive(Serialize)]
struct Left {
    failed: u64,
    capacity_gbps: f64,
    link_gbps: f64,
    /// Part of the capacity that is left which the links carry whatever the matrix.
    carried: f64,
}

impl From<&AfterFailures> for Left {
    fn from(row: &AfterFailures) -> Self {
        Self {
            failed: row.failed,
            capacity_gbps: row.external.gbps(),
            link_gbps: row.link.gbps(),
            carried: row.carried,
        }
    }
}

impl Planned {
    fn new(request: &Request, plan: &Plan, arguments: &Arguments) -> Self {
        let wiring = &plan.wiring;
        let watts = wiring.servers() * u64::from(arguments.watts);
        let cycles = match request.processing {
            Some(Processing::Measured { cycles: Cycles { input, transit, output }, .. }) => {
                Some(CyclesUsed { input, transit, output })
            }
            _ => None,
        };
        let cores = |Cores { uniform, worst, transit }| CoresTaken { uniform, worst, transit };
        Self {
            servers: wiring.servers(),
            port_servers: wiring.port_servers,
            topology: wiring.topology().name(),
            stages: wiring.stages,
            degree: wiring.degree,
            ports: plan.ports,
            port_gbps: request.port.gbps(),
            ports_per_server: request.ports_per_server,
            capacity_gbps: request.capacity.gbps(),
            links: wiring.links(),
            link_gbps: plan.link.gbps(),
            link_port_gbps: request.link.gbps(),
            links_per_pair: wiring.parallel,
            links_per_server: wiring.server_links(),
            fan_out: request.fan_out,
            failures: request.failures,
            processing_gbps: Processed {
                uniform: plan.load.uniform.gbps(),
                worst: plan.load.worst.gbps(),
                transit: plan.load.transit.gbps(),
            },
            cycles,
            cores: plan.cores.map(cores),
            oversubscription: plan.oversubscription(),
            after_failures: plan.after_failures.iter().map(Left::from).collect(),
            watts,
            watts_per_gbps: watts as f64 / request.capacity.gbps(),
            wiring: arguments.wiring.then(|| wiring.pairs().collect()),
        }
    }
}

/// A number with at most three decimals.
fn short(number: f64) -> String {
    let text = format!("{number:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

impl Report for Planned {
    fn text(&self, to: &mut dyn Write) -> io::Result<()> {
        let fly = self.topology == Topology::Fly.name();
        let fabric = if fly {
            format!(
                "{}-ary {}-fly, {} servers a stage",
                self.degree, self.stages, self.port_servers
            )
        } else {
            "mesh".to_owned()
        };
        let Processed { uniform, worst, transit } = self.processing_gbps;
        let mut lines = vec![
            ("servers", format!("{}, {} with external ports", self.servers, self.port_servers)),
            ("topology", fabric),
            (
                "external ports",
                format!(
                    "{} of {} Gbps, {} a server",
                    self.ports,
                    short(self.port_gbps),
                    self.ports_per_server
                ),
            ),
            (
                "links",
                format!(
                    "{} of {} Gbps, {} a server of {}, {} a pair",
                    self.links,
                    short(self.link_port_gbps),
                    self.links_per_server,
                    self.fan_out,
                    self.links_per_pair
                ),
            ),
            ("load of a link", format!("{} Gbps at most", short(self.link_gbps))),
            ("processing", format!("{} Gbps a server, {} at most", short(uniform), short(worst))),
        ];
        if fly {
            lines.push(("in transit", format!("{} Gbps a server at most", short(transit))));
        }
        if let Some(CoresTaken { uniform, worst, transit }) = &self.cores {
            let transit = if fly { format!(", {transit} in transit") } else { String::new() };
            lines.push(("cores", format!("{uniform} a server, {worst} at most{transit}")));
        }
        lines.push(("oversubscription", short(self.oversubscription)));
        let power = format!("{} W, {} a Gbps", self.watts, short(self.watts_per_gbps));
        lines.push(("power", power));
        for (name, value) in lines {
            writeln!(to, "{name:<17} {value}")?;
        }
        writeln!(to)?;
        let mut columns = Columns::new(&["FAILED", "CAPACITY GBPS", "LINK GBPS", "CARRIED"]);
        for row in &self.after_failures {
            columns.row([
                row.failed.to_string(),
                short(row.capacity_gbps),
                short(row.link_gbps),
                short(row.carried),
            ]);
        }
        columns.write(to)?;
        if let Some(wiring) = &self.wiring {
            writeln!(to)?;
            for (from, other) in wiring {
                writeln!(to, "{from}\t{other}")?;
            }
        }
        Ok(())
    }
}

/// The JSON of the sizing table.
#[derive(Serialize)]
struct Sizes {
    fan_out: u32,
    port_gbps: f64,
    capacities_gbps: [f64; CAPACITIES.len()],
    rows: Vec<SizesRow>,
}

#[derive(Serialize)]
struct SizesRow {
    name: &'static str,
    ports_per_server: u32,
    servers: [u64; CAPACITIES.len()],
    stages: [u32; CAPACITIES.len()],
}

impl Sizes {
    fn new(fan_out: u32) -> Self {
        let rows = table(fan_out).map(|row| SizesRow {
            name: row.name,
            ports_per_server: row.ports_per_server,
            servers: row.servers,
            stages: row.stages,
        });
        Self {
            fan_out,
            port_gbps: plan::PORT.gbps(),
            capacities_gbps: CAPACITIES.map(Rate::gbps),
            rows: rows.into(),
        }
    }
}

impl Report for Sizes {
    fn text(&self, to: &mut dyn Write) -> io::Result<()> {
        let capacities = CAPACITIES.map(|rate| {
            let text = rate.to_string();
            let (number, unit) = text.split_at(text.len() - 1);
            format!("{number} {unit}")
        });
        let mut headings = vec!["external capacity"];
        headings.extend(capacities.iter().map(String::as_str));
        let mut columns = Columns::new(&headings);
        for row in &self.rows {
            let name = format!("{}, s = {}", row.name, row.ports_per_server);
            columns.row([name].into_iter().chain(row.servers.iter().map(ToString::to_string)));
        }
        columns.write(to)?;
        let fan_out = self.fan_out;
        writeln!(to, "\nMesh up to {fan_out} servers with ports, k-ary n-fly beyond")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_of_nic_are_read() {
        assert_eq!("8x1G".parse(), Ok(Nic { ports: 8, rate: Rate(1_000_000_000) }));
        for text in ["", "8", "x1G", "0x1G", "65x1G", "8x", "8x0G", "-1x1G"] {
            assert!(text.parse::<Nic>().is_err(), "{text}");
        }
    }

    #[test]
    fn costs_are_read_of_runs_in_either_unit() {
        let run = |name: &str, unit: &str, median, answers: &str| Run {
            name: name.to_owned(),
            unit: unit.to_owned(),
            median,
            answers: answers.to_owned(),
        };
        let runs = [
            run("graph-v4", "ns/packet", Some(20.1), "ok"),
            run("cluster-transit", "Mpps", Some(30.0), "ok"),
            run("cluster-output", "ns/packet", Some(5.0), "wrong"),
            run("cluster-input", "ns/packet", None, "unchecked"),
            run("load", "ms", Some(1.0), "ok"),
        ];
        let cost = |name| cycles(&runs, name, 3_000_000_000);
        assert_eq!((cost("graph-v4"), cost("cluster-transit")), (Some(61), Some(100)));
        for name in ["cluster-output", "cluster-input", "load", "other"] {
            assert_eq!(cost(name), None, "{name}");
        }
    }
}
