//! `bench lookup`: its options.

use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{ArgMatches, Args};
use fingerpost_command::progress::Progress;
use fingerpost_lab::lookup::Stream as Keys;
use fingerpost_lab::trace::Trace;
use fingerpost_lab::{LookupOptions, Mode, lookup};

use super::super::command::{Exit, Failure, parsed};
use super::super::output::Output;
use super::arguments::{Subjects, positive, seconds};
use super::print::draw_and_print;

/// Adds it to the benchmarks.
pub(super) fn command() -> clap::Command {
    Lookup::augment_args(clap::Command::new("lookup"))
        .about("Lookups a second of every algorithm, beside what the machine can do")
        .after_help(
            "Examples:
  $ fingerpost-lab bench lookup --table v4.txt.xz
  $ fingerpost-lab bench lookup --table v4.txt.xz --algorithm dxr18,radix --stream prefix --mode batch
  $ fingerpost-lab bench lookup --table v6.txt.xz --stream uniform,sequential-prefix --json

Every run looks up all its keys and the edges of the prefixes before anything is timed, and is compared
with the oracle; then all runs take turns on one core. Keys are made before and read in order.
`single` and the sequential streams are loops compiled with the algorithm. SHARE is the part of what
this machine does with two dependent loads a key from a table of as many bytes; RATIO is to the best
published scheme or outside program, which is marked `*`. EFFICIENCY is what threads reach together
as a part of what each reaches alone on its core in the same turn; MACHINE is the same of a plain
load a key from a table of as many bytes: what the machine itself loses.",
        )
}

#[derive(Args, Debug)]
struct Lookup {
    #[command(flatten)]
    subjects: Subjects,
    /// Which addresses
    #[arg(long, value_delimiter = ',', default_value = "uniform,prefix", value_parser = keys())]
    stream: Vec<Keys>,
    /// Modes; the sequential streams always wait for each answer
    #[arg(long, value_delimiter = ',', default_value = "batch,single", value_parser = mode())]
    mode: Vec<Mode>,
    /// Measuring time of each run
    #[arg(long, value_name = "S", default_value_t = 2.0, value_parser = seconds)]
    seconds: f64,
    /// Seed of the addresses
    #[arg(long, value_name = "X", default_value_t = 1)]
    seed: u64,
    /// Addresses of a stream; IPv6 takes half as many
    #[arg(long, value_name = "N", default_value_t = 1 << 21, value_parser = positive)]
    keys: usize,
    /// Addresses of a batch
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = positive)]
    batch: usize,
    /// Measure with so many threads too, which share the structure; several numbers with commas
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1")]
    #[arg(value_parser = positive)]
    threads: Vec<usize>,
    /// Addresses of the stream `trace`: one a line, or the destinations of a pcap file
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Leave out what the machine could do at best
    #[arg(long)]
    no_ceilings: bool,
}

/// Measures and prints.
pub(super) fn run(matches: &ArgMatches, output: &mut Output) -> Result<(), Failure> {
    let arguments: Lookup = parsed(matches)?;
    if arguments.stream.contains(&Keys::Trace) && arguments.trace.is_none() {
        return Err(Failure::new(Exit::Usage, "the stream trace needs --trace FILE"));
    }
    let trace = arguments.trace.as_deref().map(Trace::load).transpose()?;
    let options = LookupOptions {
        tables: arguments.subjects.tables()?,
        algorithms: arguments.subjects.algorithms(),
        streams: arguments.stream,
        modes: arguments.mode,
        keys: arguments.keys,
        batch: arguments.batch,
        seconds: arguments.seconds,
        samples: arguments.subjects.repeat,
        seed: arguments.seed,
        ceilings: !arguments.no_ceilings,
        threads: arguments.threads,
        peers: arguments.subjects.peers()?,
        load_limit: arguments.subjects.load_limit(),
        trace,
    };
    let document = lookup(&options, &mut Progress::new())?;
    draw_and_print("lookup", document, arguments.subjects.out.as_deref(), output)
}

fn keys() -> impl TypedValueParser<Value = Keys> {
    let names = PossibleValuesParser::new(Keys::ALL.iter().map(|stream| stream.name()));
    let known = || Keys::ALL.iter().copied();
    names.map(move |name| known().find(|s| s.name() == name).expect("one of these names"))
}

fn mode() -> impl TypedValueParser<Value = Mode> {
    let names = PossibleValuesParser::new(["batch", "single"]);
    names.map(|name| if name == "batch" { Mode::Batch } else { Mode::Single })
}
