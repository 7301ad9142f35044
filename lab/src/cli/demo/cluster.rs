//! `fingerpost-lab demo cluster`: four nodes that act as one router, and one of them is killed.

use std::io::{self, Write};
use std::time::Duration;

use clap::builder::PossibleValuesParser;
use clap::{ArgMatches, Args};
use fingerpost_cluster::rule::Rule;
use fingerpost_lab::demo::cluster::{self, ClusterOptions, ClusterReport};

use super::super::command::{Exit, Failure, parsed};
use super::super::output::{Output, Report, message};

const EXAMPLES: &str = "Examples:
  $ fingerpost-lab demo cluster
  $ fingerpost-lab demo cluster --seconds 30 --rule vlb
  $ fingerpost-lab demo cluster --ports 2
  $ fingerpost-lab demo cluster --memory --json

Four nodes with external ports of rate R in all each and a mesh of internal links of 2R/N; each host sends to all
others. After a third of the time a node is killed, and started again after half of it. Every packet is
checked. As root the nodes are processes in network namespaces, with routes by iBGP where FRR is installed and
members in etcd where it is; without root they are threads over rings of shared memory. Nothing outside is
touched, and nothing stays behind.";

/// Adds it to the demo.
pub(super) fn command() -> clap::Command {
    Arguments::augment_args(clap::Command::new("cluster"))
        .about("Four nodes as one router: traffic between all ports while a node is killed and comes back")
        .after_help(EXAMPLES)
}

#[derive(Args, Debug)]
struct Arguments {
    /// Duration of the traffic
    #[arg(long, value_name = "N", default_value_t = 12, value_parser = clap::value_parser!(u64).range(3..=3600))]
    seconds: u64,
    /// Rule of the path selection
    #[arg(long, value_name = "NAME", default_value = "adaptive")]
    #[arg(value_parser = PossibleValuesParser::new(["vlb", "fixed", "adaptive"]))]
    rule: String,
    /// External ports of each node: 1 as RouteBricks' RB4, 2 as its RB8/4
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=i64::from(cluster::MOST_PORTS)))]
    ports: u8,
    /// Run the nodes in this process, also as root
    #[arg(long)]
    memory: bool,
}

/// Runs it.
pub(super) fn run(matches: &ArgMatches, output: &mut Output) -> Result<(), Failure> {
    let arguments: Arguments = parsed(matches)?;
    let options = ClusterOptions {
        time: Duration::from_secs(arguments.seconds),
        rule: match &*arguments.rule {
            "vlb" => Rule::Vlb,
            "fixed" => Rule::Fixed,
            _ => Rule::Adaptive,
        },
        ports: arguments.ports,
        memory: arguments.memory,
    };
    let report = Cluster(cluster::run(&options, &|line| message(line))?);
    output.print(&report)?;
    match report.0.faults()[..] {
        [] => Ok(()),
        ref faults => Err(Failure::new(Exit::Differences, faults.join("; "))),
    }
}

/// The results, printable.
#[derive(serde::Serialize)]
#[serde(transparent)]
struct Cluster(ClusterReport);

#[allow(clippy::cast_precision_loss, reason = "numbers for people")]
fn mega(bps: u64) -> f64 {
    bps as f64 / 1e6
}

impl Report for Cluster {
    fn text(&self, to: &mut dyn Write) -> io::Result<()> {
        let report = &self.0;
        let ports = report.ports;
        let plural = if ports == 1 { "" } else { "s" };
        let (node, link) = (mega(report.port_bps * u64::from(ports)), mega(report.link_bps));
        writeln!(to, "mode        {}, {} nodes on {}", report.mode, report.nodes, report.cpu)?;
        writeln!(to, "members     {}", report.members)?;
        writeln!(
            to,
            "routes      {}",
            if report.routes == "bgp" { "iBGP, two reflectors" } else { "static" }
        )?;
        writeln!(
            to,
            "rates       R = {node:.2} Mbit/s a node, {ports} external port{plural}, 2R/N = {link:.2} Mbit/s a link, rule {}",
            report.rule
        )?;
        writeln!(to, "offered     {} in {:.1} s", report.offered, report.seconds)?;
        writeln!(
            to,
            "arrived     {}, {} checked in full, {} wrong",
            report.arrived, report.verified, report.wrong
        )?;
        writeln!(
            to,
            "failure     noticed after {:.0} ms, back {:.1} s after its restart",
            report.detection_ms,
            report.return_ms / 1e3
        )?;
        writeln!(
            to,
            "lost        {} between other nodes until then (at most {}), {} from or to the node, {} otherwise",
            report.lost_in_failure,
            report.most_lost(),
            report.lost_at_node,
            report.lost_otherwise
        )?;
        writeln!(to, "worst link  {:.2} of 2R/N in its busiest second", report.worst_link)?;
        writeln!(
            to,
            "order       {:.4} % of the packets begin a reordered sequence",
            report.reordered_sequences * 100.0
        )
    }
}
