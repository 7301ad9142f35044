//! `bench xdp`: its options.

use std::collections::BTreeSet;
use std::path::PathBuf;

use clap::{ArgMatches, Args};
use fingerpost_command::progress::Progress;
use fingerpost_lab::table::Tables;
use fingerpost_lab::xdp::{LEAST_PACKETS, MOST_DESTINATIONS, find};
use fingerpost_lab::{BenchDocument, XdpOptions, xdp};

use super::super::command::{Failure, parsed};
use super::super::output::{Output, message};
use super::arguments::{found_by, positive};
use super::print::draw_and_print;

/// Adds it to the benchmarks.
pub(super) fn command() -> clap::Command {
    Xdp::augment_args(clap::Command::new("xdp"))
        .about("Forwarding inside the kernel on one core: packets a second")
        .after_help(
            "Examples:
  $ fingerpost-lab bench xdp --table v4.txt.xz --table v6.txt.xz
  $ fingerpost-lab bench xdp --table v4.txt.xz --engine kernel,bare-redirect --destinations 256 --json

64-byte packets from a generator in the kernel over veth pairs, through each forwarder in turn, to
programs that compare every packet with what must arrive and take the time. Needs root: it works in
network namespaces that go with the run. The kernel's own forwarding and the programs that use it
have the same table, which takes half a minute to load.",
        )
}

#[derive(Args, Debug)]
struct Xdp {
    /// A table of routes; may be given once a family
    #[arg(long, value_name = "FILE", required = true)]
    table: Vec<PathBuf>,
    /// What forwards: names, or `all`
    #[arg(long, value_name = "NAME", default_value = "all", value_parser = found_by(find))]
    engine: String,
    /// Distinct destinations; each number makes runs of its own
    #[arg(long, value_name = "N", value_delimiter = ',', default_values_t = [MOST_DESTINATIONS, 256])]
    #[arg(value_parser = destinations)]
    destinations: Vec<usize>,
    /// Packets of a sample; below 262,144 the fixed cost of a call shows
    #[arg(long, value_name = "N", default_value_t = 2 * LEAST_PACKETS)]
    #[arg(value_parser = clap::value_parser!(u32).range(8192..))]
    packets: u32,
    /// Samples of each run
    #[arg(long, value_name = "R", default_value_t = 9, value_parser = positive)]
    repeat: usize,
    /// Seed of the destinations
    #[arg(long, value_name = "X", default_value_t = 1)]
    seed: u64,
    /// Write the document and its drawings there
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

fn destinations(text: &str) -> Result<usize, String> {
    let number = positive(text).ok().filter(|n| *n <= MOST_DESTINATIONS);
    number.ok_or_else(|| format!("not a number from 1 to {MOST_DESTINATIONS}"))
}

/// Measures and prints.
pub(super) fn run(matches: &ArgMatches, output: &mut Output) -> Result<(), Failure> {
    let arguments: Xdp = parsed(matches)?;
    let options = XdpOptions {
        tables: Tables::load(&arguments.table)?,
        engines: find(&arguments.engine)?,
        destinations: arguments.destinations,
        packets: arguments.packets,
        samples: arguments.repeat,
        seed: arguments.seed,
        features: Vec::new(),
        listed: 0,
    };
    let document = measured(&options)?;
    draw_and_print("xdp", document, arguments.out.as_deref(), output)
}

/// Measures, and prints each reason once why runs are missing.
pub(super) fn measured(options: &XdpOptions) -> Result<BenchDocument, Failure> {
    let document = xdp(options, &mut Progress::new())?;
    let notes = document.runs.iter().map(|run| run.note.as_str());
    let skipped: BTreeSet<_> = notes.filter(|note| note.starts_with("skipped: ")).collect();
    skipped.into_iter().for_each(message);
    Ok(document)
}
