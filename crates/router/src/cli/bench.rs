//! `fingerpost bench`: the only place of the program that knows of benchmarks.

use std::io::{self, Write};
use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};
use fingerpost_bench::forward::Stream;
use fingerpost_bench::lookup::Stream as Keys;
use fingerpost_bench::lookup::trace::Trace;
use fingerpost_bench::peer;
use fingerpost_bench::progress::Bar;
use fingerpost_bench::syn::Syn;
use fingerpost_bench::table::Tables;
use fingerpost_bench::update::changes::Recorded;
use fingerpost_bench::{
    Answers, BenchDocument, BuildOptions, ForwardOptions, Kind, LookupOptions, Mode, PapersOptions,
    Run, Unit, UpdateOptions, build, forward, lookup, papers, update,
};

use super::choice;
use super::command::{Command, Exit, Failure, parsed};
use super::output::{Columns, Output, Report, message};

pub(super) const COMMAND: Command = Command {
    name: "bench",
    summary: "Measure, after checking the answers",
    examples: "Examples:
  $ fingerpost bench lookup --table testdata/tables/v4-tier1-nh496.txt.xz
  $ fingerpost bench forward --table v4.txt.xz --table v6.txt.xz --stream prefix --json",
    arguments: |command| {
        let command = command.subcommand_required(true).arg_required_else_help(false);
        let command = command.subcommand(
            Lookup::augment_args(clap::Command::new("lookup"))
                .about("Lookups a second of every algorithm, beside what the machine can do")
                .after_help(
                    "Examples:
  $ fingerpost bench lookup --table v4.txt.xz
  $ fingerpost bench lookup --table v4.txt.xz --algorithm dxr18,radix --stream prefix --mode batch
  $ fingerpost bench lookup --table v6.txt.xz --stream uniform,sequential-prefix --json

Every run is asked all its keys and the edges of the prefixes before anything is timed, and compared
with the oracle; then all runs take turns on one core. Keys are made before and read in order.
`single` and the sequential streams are loops compiled with the algorithm. SHARE is the part of what
this machine does with two dependent loads a key from a table of as many bytes; RATIO is to the best
published scheme or outside program, which is marked `*`.",
                ),
        );
        let command = command
            .subcommand(
                Build::augment_args(clap::Command::new("build"))
                    .about("Time from a loaded route store to a table that answers")
                    .after_help(
                        "Examples:
  $ fingerpost bench build --table v4.txt.xz
  $ fingerpost bench build --table v4.txt.xz --algorithm dxr18 --peers rte_fib --json",
                    ),
            )
            .subcommand(
                Update::augment_args(clap::Command::new("update"))
                    .about("Routes withdrawn and announced, each visible on its own")
                    .after_help(
                        "Examples:
  $ fingerpost bench update --table v4.txt.xz --algorithm radix
  $ fingerpost bench update --table v4.txt.xz --stream-file updates.txt.xz --peers rte_fib --json

Route store and structure change together. `random-pairs` withdraws a random route and announces it
again; `stream` replays a recorded file, lines `TIME OP PREFIX NEXTHOP` with `a` and `w`, over and
over. `lookups-during-updates` is what remains of the lookup rate while another core changes the
table, compared with that core changing a table of its own; `withdraw-all` the bytes that are left.",
                    ),
            );
        let command = command.subcommand(
            Papers::augment_args(clap::Command::new("papers"))
                .about("The figures of the papers, beside those of this machine")
                .after_help(
                    "Examples:
  $ fingerpost bench papers
  $ fingerpost bench papers --tables DIR --seconds 2 --out docs/benchmarks

Of every table `v4*.txt*` and `v6*.txt*` of a folder: DXR's tests SEQ, RND and REP and its lengths
of chunks, FreeBSD's run_lps on a host's and a full table, Poptrie's memory and rates with SYN1 and
SYN2, and IPv6. `--out` writes papers.md and its drawings.",
                ),
        );
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
        Some(("lookup", matches)) => run_lookup(parsed(matches)?, output),
        Some(("build", matches)) => run_build(parsed(matches)?, output),
        Some(("update", matches)) => run_update(parsed(matches)?, output),
        Some(("papers", matches)) => run_papers(parsed(matches)?, output),
        Some(("forward", matches)) => run_forward(parsed(matches)?, output),
        _ => unreachable!("clap requires a benchmark that there is"),
    },
};

#[derive(Args, Debug)]
struct Lookup {
    /// A table of routes; may be given once a family
    #[arg(long, value_name = "FILE", required = true)]
    table: Vec<PathBuf>,
    /// Algorithms (`fingerpost algorithms` lists them), or `all`
    #[arg(long, value_name = "NAME", value_delimiter = ',', default_value = choice::ALL)]
    #[arg(value_parser = choice::names(choice::ALL), hide_possible_values = true)]
    algorithm: Vec<String>,
    /// Which addresses
    #[arg(long, value_delimiter = ',', default_value = "uniform,prefix", value_parser = keys())]
    stream: Vec<Keys>,
    /// How they are asked; the sequential streams always wait for each answer
    #[arg(long, value_delimiter = ',', default_value = "batch,single", value_parser = mode())]
    mode: Vec<Mode>,
    /// Measuring time of each run
    #[arg(long, value_name = "S", default_value_t = 2.0, value_parser = seconds)]
    seconds: f64,
    /// Samples of each run
    #[arg(long, value_name = "R", default_value_t = 9, value_parser = positive)]
    repeat: usize,
    /// Of the addresses
    #[arg(long, value_name = "X", default_value_t = 1)]
    seed: u64,
    /// Addresses of a stream; IPv6 takes half as many
    #[arg(long, value_name = "N", default_value_t = 1 << 21, value_parser = positive)]
    keys: usize,
    /// Addresses of a batch
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = positive)]
    batch: usize,
    /// Programs of others in the same turns: names, `all`, or `none`
    #[arg(long, value_name = "NAME", default_value = "none", value_parser = peers)]
    peers: String,
    /// Measure with so many threads too, which share the structure
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = positive)]
    threads: usize,
    /// Addresses of the stream `trace`: one a line, or the destinations of a pcap file
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Split IPv4 prefixes into more, as the tables SYN1 and SYN2 of Poptrie's evaluation
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=2))]
    syn: Option<u8>,
    /// Leave out what the machine could do at best
    #[arg(long)]
    no_ceilings: bool,
}

#[derive(Args, Debug)]
struct Build {
    /// A table of routes; may be given once a family
    #[arg(long, value_name = "FILE", required = true)]
    table: Vec<PathBuf>,
    /// Algorithms (`fingerpost algorithms` lists them), or `all`
    #[arg(long, value_name = "NAME", value_delimiter = ',', default_value = choice::ALL)]
    #[arg(value_parser = choice::names(choice::ALL), hide_possible_values = true)]
    algorithm: Vec<String>,
    /// Programs of others in the same turns: names, `all`, or `none`
    #[arg(long, value_name = "NAME", default_value = "none", value_parser = peers)]
    peers: String,
    /// Builds of each
    #[arg(long, value_name = "R", default_value_t = 9, value_parser = positive)]
    repeat: usize,
    /// Split IPv4 prefixes into more, as the tables SYN1 and SYN2 of Poptrie's evaluation
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=2))]
    syn: Option<u8>,
}

#[derive(Args, Debug)]
struct Update {
    /// A table of routes; may be given once a family
    #[arg(long, value_name = "FILE", required = true)]
    table: Vec<PathBuf>,
    /// Algorithms (`fingerpost algorithms` lists them), or `all`
    #[arg(long, value_name = "NAME", value_delimiter = ',', default_value = choice::ALL)]
    #[arg(value_parser = choice::names(choice::ALL), hide_possible_values = true)]
    algorithm: Vec<String>,
    /// Programs of others in the same turns: names, `all`, or `none`
    #[arg(long, value_name = "NAME", default_value = "none", value_parser = peers)]
    peers: String,
    /// A recorded stream of updates
    #[arg(long, value_name = "FILE")]
    stream_file: Option<PathBuf>,
    /// Measuring time of each run
    #[arg(long, value_name = "S", default_value_t = 2.0, value_parser = seconds)]
    seconds: f64,
    /// Samples of each run
    #[arg(long, value_name = "R", default_value_t = 9, value_parser = positive)]
    repeat: usize,
    /// Of the random routes
    #[arg(long, value_name = "X", default_value_t = 1)]
    seed: u64,
    /// Split IPv4 prefixes into more, as the tables SYN1 and SYN2 of Poptrie's evaluation
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=2))]
    syn: Option<u8>,
}

#[derive(Args, Debug)]
struct Papers {
    /// Where the page goes; nothing is written unless it is given
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// A folder of tables
    #[arg(long, value_name = "DIR", default_value = "testdata/tables")]
    tables: PathBuf,
    /// Measuring time of each run
    #[arg(long, value_name = "S", default_value_t = 0.2, value_parser = seconds)]
    seconds: f64,
    /// Samples of each run
    #[arg(long, value_name = "R", default_value_t = 9, value_parser = positive)]
    repeat: usize,
    /// Of the addresses
    #[arg(long, value_name = "X", default_value_t = 1)]
    seed: u64,
    /// Addresses of a stream; IPv6 takes half as many
    #[arg(long, value_name = "N", default_value_t = 1 << 21, value_parser = positive)]
    keys: usize,
}

/// No names stand for all of them.
fn algorithms(names: Vec<String>) -> Vec<String> {
    if names.iter().any(|name| name == choice::ALL) { Vec::new() } else { names }
}

fn peers(text: &str) -> Result<String, String> {
    peer::find(text, 4).map_err(|error| error.to_string())?;
    Ok(text.to_owned())
}

/// The rows that `--peers` names; for `all` those that were never built are built.
fn wanted_peers(names: &str) -> Result<Vec<&'static peer::Row>, Failure> {
    let rows: Vec<_> = [peer::find(names, 4)?, peer::find(names, 6)?].concat();
    let mut missing: Vec<_> = rows.iter().filter(|row| !row.is_built()).collect();
    missing.dedup_by_key(|row| row.program.name);
    if names == "all" && !missing.is_empty() {
        let programs: Vec<_> = missing.iter().map(|row| row.program.name).collect();
        message(format_args!("building {}", programs.join(", ")));
        if let Err(error) = peer::build(&programs) {
            message(format_args!("{error:#}"));
        }
    }
    Ok(rows)
}

/// The tables, split where that is asked for.
fn tables(files: &[PathBuf], syn: Option<u8>) -> Result<Tables, Failure> {
    message("reading the tables");
    let mut tables = Tables::load(files)?;
    if let Some(number) = syn {
        let syn = if number == 1 { Syn::One } else { Syn::Two };
        let v4 = tables.v4.as_ref().map(|table| syn.split(table));
        let missing = || Failure::new(Exit::Failed, "--syn: no IPv4 table");
        tables.v4 = Some(v4.ok_or_else(missing)?);
    }
    Ok(tables)
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
    #[arg(long, value_name = "S", default_value_t = 2.0, value_parser = seconds)]
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

fn seconds(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|s: &f64| s.is_finite() && *s > 0.0);
    number.ok_or_else(|| "not a number above 0".into())
}

fn burst(text: &str) -> Result<usize, String> {
    positive(text).ok().filter(|n| *n <= 256).ok_or_else(|| "not a number from 1 to 256".into())
}

fn run_forward(arguments: Forward, output: &mut Output) -> Result<(), Failure> {
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
    print(forward(&options)?, output)
}

fn run_lookup(arguments: Lookup, output: &mut Output) -> Result<(), Failure> {
    if arguments.stream.contains(&Keys::Trace) && arguments.trace.is_none() {
        return Err(Failure::new(Exit::Usage, "the stream trace needs --trace FILE"));
    }
    let trace = arguments.trace.as_deref().map(Trace::load).transpose()?;
    let options = LookupOptions {
        tables: tables(&arguments.table, arguments.syn)?,
        algorithms: algorithms(arguments.algorithm),
        streams: arguments.stream,
        modes: arguments.mode,
        keys: arguments.keys,
        batch: arguments.batch,
        seconds: arguments.seconds,
        samples: arguments.repeat,
        seed: arguments.seed,
        ceilings: !arguments.no_ceilings,
        threads: arguments.threads,
        peers: wanted_peers(&arguments.peers)?,
        trace,
    };
    print(lookup(&options, &mut Bar::new())?, output)
}

fn run_build(arguments: Build, output: &mut Output) -> Result<(), Failure> {
    let options = BuildOptions {
        tables: tables(&arguments.table, arguments.syn)?,
        algorithms: algorithms(arguments.algorithm),
        peers: wanted_peers(&arguments.peers)?,
        samples: arguments.repeat,
    };
    print(build(&options, &mut Bar::new())?, output)
}

fn run_update(arguments: Update, output: &mut Output) -> Result<(), Failure> {
    let recorded = arguments.stream_file.as_deref().map(Recorded::load).transpose()?;
    let options = UpdateOptions {
        tables: tables(&arguments.table, arguments.syn)?,
        algorithms: algorithms(arguments.algorithm),
        peers: wanted_peers(&arguments.peers)?,
        recorded,
        seconds: arguments.seconds,
        samples: arguments.repeat,
        seed: arguments.seed,
    };
    print(update(&options, &mut Bar::new())?, output)
}

fn run_papers(arguments: Papers, output: &mut Output) -> Result<(), Failure> {
    let options = PapersOptions {
        tables: arguments.tables,
        seconds: arguments.seconds,
        samples: arguments.repeat,
        seed: arguments.seed,
        keys: arguments.keys,
    };
    let made = papers(&options, &mut Bar::new())?;
    if let Some(folder) = arguments.out {
        std::fs::create_dir_all(&folder)?;
        for (name, text) in &made.files {
            let file = folder.join(name);
            std::fs::write(&file, text)?;
            message(format_args!("wrote {}", file.display()));
        }
    }
    print(made.document, output)
}

/// The document; wrong answers are an exit code too.
fn print(document: BenchDocument, output: &mut Output) -> Result<(), Failure> {
    let document = Document(document);
    output.print(&document)?;
    let ours = document.0.runs.iter().filter(|run| run.kind != Kind::Peer);
    let wrong: u64 = ours.map(|run| run.wrong).sum();
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
        let lookups = self.0.runs.iter().any(|run| run.unit == Unit::MlookupsPerSecond);
        if lookups { self.lookups(to) } else { self.plain(to) }
    }
}

fn figure(number: Option<f64>, digits: usize) -> String {
    number.map_or("-".into(), |number| format!("{number:.digits$}"))
}

fn digits(unit: Unit) -> usize {
    match unit {
        Unit::Us | Unit::Share => 3,
        Unit::UpdatesPerSecond | Unit::Bytes => 0,
        _ => 1,
    }
}

fn answers(run: &Run) -> String {
    match run.answers {
        Answers::Ok => "ok".into(),
        Answers::Wrong => format!("{} wrong", run.wrong),
        Answers::Unchecked => "unchecked".into(),
    }
}

impl Document {
    fn plain(&self, to: &mut dyn Write) -> io::Result<()> {
        let mut columns =
            Columns::new(&["RUN", "STREAM", "MEDIAN", "MIN", "MAX", "UNIT", "ANSWERS", "NOTE"]);
        for run in &self.0.runs {
            let stream = run.algorithm.as_ref().unwrap_or(&run.stream);
            columns.row([
                run.name.clone(),
                stream.clone(),
                figure(run.median, digits(run.unit)),
                figure(run.min, digits(run.unit)),
                figure(run.max, digits(run.unit)),
                unit(run.unit).into(),
                answers(run),
                run.note.clone(),
            ]);
        }
        columns.write(to)
    }

    /// Runs of one family, stream and mode together, the fastest first.
    fn lookups(&self, to: &mut dyn Write) -> io::Result<()> {
        let group = |run: &Run| (run.family, run.stream.clone(), run.mode);
        let mut groups: Vec<_> = Vec::new();
        for run in self.0.runs.iter().filter(|run| run.kind != Kind::Ceiling) {
            if !groups.contains(&group(run)) {
                groups.push(group(run));
            }
        }
        for (family, stream, mode) in groups {
            let mode_name = mode.name();
            writeln!(to, "\nIPv{}, {stream}, {mode_name}: Mlookups/s", family.unwrap_or(0))?;
            let mut runs: Vec<_> = self.0.runs.iter().collect();
            let wanted = (family, stream, mode);
            runs.retain(|run| run.kind != Kind::Ceiling && group(run) == wanted);
            let speed = |run: &Run| run.median.unwrap_or(0.0);
            runs.sort_by(|a, b| speed(b).total_cmp(&speed(a)));
            self.group(&runs, to)?;
        }
        let ceilings = self.0.runs.iter().filter(|run| run.kind == Kind::Ceiling);
        let mut columns =
            Columns::new(&["CEILING", "STREAM", "MODE", "BYTES", "MEDIAN", "MIN", "MAX", "NOTE"]);
        for run in ceilings.clone() {
            columns.row([
                run.name.clone(),
                run.stream.clone(),
                run.mode.name().into(),
                run.bytes.map_or("-".into(), |bytes| bytes.to_string()),
                figure(run.median, 1),
                figure(run.min, 1),
                figure(run.max, 1),
                run.note.clone(),
            ]);
        }
        if ceilings.count() > 0 {
            writeln!(to)?;
            columns.write(to)?;
        }
        Ok(())
    }

    fn group(&self, runs: &[&Run], to: &mut dyn Write) -> io::Result<()> {
        let rivals = runs.iter().filter(|run| matches!(run.kind, Kind::Published | Kind::Peer));
        let best = rivals
            .filter(|run| run.wrong == 0 && run.threads == 1)
            .find(|run| run.median.is_some());
        let headings = [
            "",
            "RUN",
            "MEDIAN",
            "MIN",
            "MAX",
            "RATIO",
            "SHARE",
            "LINES",
            "BYTES",
            "B/PREFIX",
            "EFFICIENCY",
            "ANSWERS",
            "NOTE",
        ];
        let mut columns = Columns::new(&headings);
        for run in runs {
            let is_best = best.is_some_and(|best| std::ptr::eq(*best, *run));
            let ratio = run.median.zip(best.and_then(|best| best.median)).map(|(a, b)| a / b);
            columns.row([
                if is_best { "*" } else { "" }.into(),
                if run.threads > 1 {
                    format!("{} x{}", run.name, run.threads)
                } else {
                    run.name.clone()
                },
                figure(run.median, 1),
                figure(run.min, 1),
                figure(run.max, 1),
                figure(ratio, 2),
                figure(run.share_two_loads, 2),
                figure(run.lines, 2),
                run.bytes.map_or("-".into(), |bytes| bytes.to_string()),
                figure(run.bytes_per_prefix, 2),
                figure(run.efficiency, 2),
                answers(run),
                run.note.clone(),
            ]);
        }
        columns.write(to)
    }
}
