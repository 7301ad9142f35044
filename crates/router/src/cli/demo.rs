//! `fingerpost demo`: the main job in one command.

use std::io::{self, Write};
use std::time::Duration;

use clap::Args;

use super::command::{Command, Exit, Failure, parsed};
use super::output::{Output, Report as Print, message};
use crate::demo::{self, DemoError, DemoReport};

pub(super) const COMMAND: Command = Command {
    name: "demo",
    summary: "Forward at full rate through a full table, and check what arrives",
    examples: "Examples:
  $ fingerpost demo
  $ fingerpost demo --seconds 10 --json

As root it makes a lab of three network namespaces, runs the router in the middle one, sends from
the first and checks in the third. Without root it does the same between ports of memory. Nothing
outside is touched, and nothing stays behind.",
    arguments: Arguments::augment_args,
    run: |matches, output| run(&parsed(matches)?, output),
};

#[derive(Args, Debug)]
struct Arguments {
    /// How long to send
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,
}

fn run(arguments: &Arguments, output: &mut Output) -> Result<(), Failure> {
    let report = demo::run(Duration::from_secs(arguments.seconds), &|line| message(line)).map_err(
        |error| match &error {
            DemoError::Router(inner) if inner.is_permission() => {
                Failure::new(Exit::Permission, error)
            }
            DemoError::Lab(inner) => Failure::outside(inner.kind(), error),
            _ => Failure::new(Exit::Failed, error),
        },
    )?;
    output.print(&report)?;
    match report.faults()[..] {
        [] => Ok(()),
        ref faults => Err(Failure::new(Exit::Differences, faults.join("; "))),
    }
}

impl Print for DemoReport {
    fn text(&self, to: &mut dyn Write) -> io::Result<()> {
        let dropped: u64 = self.dropped.values().sum();
        writeln!(to, "mode        {} on {}", self.mode, self.cpu)?;
        writeln!(
            to,
            "routes      {} IPv4 in {} ({:.2} bytes a prefix), {} IPv6 in {} ({:.2} bytes a prefix)",
            self.routes_v4,
            self.algorithm_v4,
            self.bytes_per_prefix_v4,
            self.routes_v6,
            self.algorithm_v6,
            self.bytes_per_prefix_v6,
        )?;
        writeln!(to, "loaded in   {:.0} ms", self.load_ms)?;
        writeln!(to, "offered     {}", self.offered)?;
        writeln!(
            to,
            "packets     {} in, {} out, {dropped} dropped, {} held",
            self.packets_in, self.packets_out, self.held
        )?;
        writeln!(to, "in drivers  {} of them", self.forwarded_in_drivers)?;
        for (reason, count) in &self.dropped {
            writeln!(to, "  dropped   {count} {reason}")?;
        }
        writeln!(
            to,
            "arrived     {}, of which {} checked in full: {} wrong ({} next hops)",
            self.arrived, self.verified, self.wrong, self.next_hops_used
        )?;
        writeln!(to, "rate        {:.3} Mpps over {:.1} s", self.mpps, self.seconds)?;
        writeln!(to, "in the path {:.1} ns a packet", self.ns_per_packet)
    }
}
