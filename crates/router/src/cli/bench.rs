//! `fingerpost bench`: the only place of the program that knows of benchmarks.

use std::io::{self, Write};
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use fingerpost_bench::forward::Stream;
use fingerpost_bench::table::Tables;
use fingerpost_bench::{Answers, BenchDocument, ForwardOptions, Unit, forward};

use super::choice;
use super::command::{Command, Exit, Failure, parsed};
use super::output::{Columns, Output, Report, message};

pub(super) const COMMAND: Command = Command {
    name: "bench",
    summary: "Measure, after checking the answers",
    examples: "Examples:
  $ fingerpost bench forward --table testdata/tables/v4-tier1-nh496.txt.xz
  $ fingerpost bench forward --table v4.txt.xz --table v6.txt.xz --stream prefix --json",
    arguments: |command| {
        let command = command.subcommand_required(true).arg_required_else_help(false);
        command.subcommand(
            Forward::augment_args(clap::Command::new("forward"))
                .about("The forwarding path between ports of memory: ns a packet on one core")
                .after_help(
                    "Examples:
  $ fingerpost bench forward --table v4.txt.xz --table v6.txt.xz
  $ fingerpost bench forward --table v4.txt.xz --destinations 256 --repeat 21 --json

64-byte packets from a generator through the built-in router's graph to two sinks. Every destination
crosses once and is compared with the oracle before anything is timed; runs take turns, and the
generator is measured alone as the ceiling.",
                ),
        )
    },
    run: |matches, output| match matches.subcommand() {
        Some(("forward", matches)) => run_forward(parsed(matches)?, output),
        _ => unreachable!("clap requires a benchmark that there is"),
    },
};

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
    #[arg(value_parser = choice::names_of::<u32>(), hide_possible_values = true)]
    algorithm_v4: Option<String>,
    /// Another one for IPv6
    #[arg(long, value_name = "NAME")]
    #[arg(value_parser = choice::names_of::<u128>(), hide_possible_values = true)]
    algorithm_v6: Option<String>,
    /// Which way through the router
    #[arg(long, value_delimiter = ',', default_value = "graph", value_parser = ["graph"])]
    path: Vec<String>,
    /// How destinations are drawn
    #[arg(long, value_delimiter = ',', default_values_t = [Streams::Uniform, Streams::Prefix])]
    stream: Vec<Streams>,
    /// Distinct destinations
    #[arg(long, value_name = "N", default_value_t = 65_536, value_parser = positive)]
    destinations: usize,
    /// Packets taken at once
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = burst)]
    burst: usize,
    /// Measuring time of each run
    #[arg(long, value_name = "S", default_value_t = 2.0)]
    seconds: f64,
    /// Samples of each run
    #[arg(long, value_name = "R", default_value_t = 9, value_parser = positive)]
    repeat: usize,
    /// Of the destinations
    #[arg(long, value_name = "X", default_value_t = 1)]
    seed: u64,
    /// Send about so many packets and measure no time: for callgrind, which counts `counted_section`
    #[arg(long, value_name = "N")]
    instructions: Option<u64>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Streams {
    /// Over the routed address space
    Uniform,
    /// Over the routes
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

fn positive(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|n| *n > 0).ok_or_else(|| "not a number above 0".into())
}

fn burst(text: &str) -> Result<usize, String> {
    positive(text).ok().filter(|n| *n <= 256).ok_or_else(|| "not a number from 1 to 256".into())
}

fn run_forward(arguments: Forward, output: &mut Output) -> Result<(), Failure> {
    if !arguments.seconds.is_finite() || arguments.seconds <= 0.0 {
        return Err(Failure::new(Exit::Usage, "--seconds: not a number above 0"));
    }
    message("reading the tables");
    let name = |own: Option<String>| own.unwrap_or_else(|| arguments.algorithm.clone());
    let v4 = choice::of_family::<u32>(&name(arguments.algorithm_v4));
    let v6 = choice::of_family::<u128>(&name(arguments.algorithm_v6));
    let options = ForwardOptions {
        tables: Tables::load(&arguments.table)?,
        algorithm_v4: v4.map(str::to_owned),
        algorithm_v6: v6.map(str::to_owned),
        streams: arguments.stream.iter().map(|s| s.stream()).collect(),
        destinations: arguments.destinations,
        burst: arguments.burst,
        seconds: arguments.seconds,
        samples: arguments.repeat,
        seed: arguments.seed,
        instructions: arguments.instructions,
    };
    message(format_args!("measuring {}", arguments.path.join(", ")));
    let document = Document(forward(&options)?);
    output.print(&document)?;
    let wrong: u64 = document.0.runs.iter().map(|run| run.wrong).sum();
    if wrong > 0 {
        return Err(Failure::new(Exit::Differences, format_args!("{wrong} answers were wrong")));
    }
    Ok(())
}

/// As the document has it.
fn unit(unit: Unit) -> &'static str {
    match unit {
        Unit::MlookupsPerSecond => "Mlookups/s",
        Unit::NsPerPacket => "ns/packet",
        Unit::Mpps => "Mpps",
        Unit::Us => "us",
        Unit::Ms => "ms",
        Unit::UpdatesPerSecond => "updates/s",
        Unit::Bytes => "bytes",
        Unit::Share => "share",
    }
}

/// The document, printable.
#[derive(serde::Serialize)]
#[serde(transparent)]
struct Document(BenchDocument);

impl Report for Document {
    fn text(&self, to: &mut dyn Write) -> io::Result<()> {
        let machine = &self.0.machine;
        writeln!(to, "{}, {} cores, {}", machine.cpu, machine.cores, machine.rustc)?;
        let mut columns =
            Columns::new(&["RUN", "STREAM", "MEDIAN", "MIN", "MAX", "UNIT", "ANSWERS", "NOTE"]);
        let number = |n: Option<f64>| n.map_or("-".into(), |n| format!("{n:.1}"));
        for run in &self.0.runs {
            let answers = match run.answers {
                Answers::Ok => "ok",
                Answers::Wrong => "wrong",
                Answers::Unchecked => "unchecked",
            };
            columns.row([
                run.name.clone(),
                run.stream.clone(),
                number(run.median),
                number(run.min),
                number(run.max),
                unit(run.unit).into(),
                answers.into(),
                run.note.clone(),
            ]);
        }
        columns.write(to)
    }
}
