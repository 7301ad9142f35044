//! `fingerpost-lab demo`: a router forwards a full table at full rate, and what arrives is checked.

use std::io::{self, Write};
use std::time::Duration;

use clap::Args;

use fingerpost_lab::demo::{self, DemoReport};

mod cluster;

use super::command::{Command, Exit, Failure, parsed};
use super::output::{Output, Report, message};

pub(super) const COMMAND: Command = Command {
    name: "demo",
    summary: "Forward at full rate through a full table, and check what arrives",
    examples: "Examples:
  $ fingerpost-lab demo
  $ fingerpost-lab demo --seconds 10 --json
  $ fingerpost-lab demo cluster

As root it makes two network namespaces, runs `fingerpost` in one, and sends and checks packets in the
other. Without root it runs the same graph between ports of memory. Nothing outside is touched, and
nothing stays behind.",
    arguments: |command| {
        let command = command.args_conflicts_with_subcommands(true);
        Arguments::augment_args(command).subcommand(cluster::command())
    },
    run: |matches, output| match matches.subcommand() {
        Some(("cluster", matches)) => cluster::run(matches, output),
        _ => run(&parsed(matches)?, output),
    },
};

#[derive(Args, Debug)]
struct Arguments {
    /// Duration of the traffic
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,
}

fn run(arguments: &Arguments, output: &mut Output) -> Result<(), Failure> {
    let time = Duration::from_secs(arguments.seconds);
    let report = Demo(demo::run(time, &|line| message(line))?);
    output.print(&report)?;
    match report.0.faults()[..] {
        [] => Ok(()),
        ref faults => Err(Failure::new(Exit::Differences, faults.join("; "))),
    }
}

/// The results, printable.
#[derive(serde::Serialize)]
#[serde(transparent)]
struct Demo(DemoReport);

impl Report for Demo {
    fn text(&self, to: &mut dyn Write) -> io::Result<()> {
        let dropped: u64 = self.0.dropped.values().sum();
        writeln!(to, "mode        {} on {}", self.0.mode, self.0.cpu)?;
        writeln!(
            to,
            "routes      {} IPv4 in {} ({:.2} bytes a prefix), {} IPv6 in {} ({:.2} bytes a prefix)",
            self.0.routes_v4,
            self.0.algorithm_v4,
            self.0.bytes_per_prefix_v4,
            self.0.routes_v6,
            self.0.algorithm_v6,
            self.0.bytes_per_prefix_v6,
        )?;
        writeln!(to, "loaded in   {:.0} ms", self.0.load_ms)?;
        writeln!(to, "offered     {}", self.0.offered)?;
        writeln!(
            to,
            "packets     {} in, {} out, {dropped} dropped, {} held",
            self.0.packets_in, self.0.packets_out, self.0.held
        )?;
        writeln!(to, "in XDP      {} of them", self.0.forwarded_xdp)?;
        for (reason, count) in &self.0.dropped {
            writeln!(to, "  dropped   {count} {reason}")?;
        }
        writeln!(
            to,
            "arrived     {}, {} checked in full, {} wrong ({} next hops)",
            self.0.arrived, self.0.verified, self.0.wrong, self.0.next_hops_used
        )?;
        writeln!(to, "rate        {:.3} Mpps over {:.1} s", self.0.mpps, self.0.seconds)?;
        writeln!(to, "in graph    {:.1} ns a packet", self.0.ns_per_packet)
    }
}
