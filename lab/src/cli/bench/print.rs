//! Bench documents as text: runs that can be compared stand together, the fastest first.

use std::io::{self, Write};
use std::path::Path;

use fingerpost_lab::{Answers, BenchDocument, Kind, Run, Unit, drawings};

use super::super::command::{Exit, Failure};
use super::super::output::{Column, Columns, Output, Report, message, or_dash};

/// Writes files into a folder, which is made where it is missing.
pub(super) fn write(folder: &Path, files: &[(String, String)]) -> Result<(), Failure> {
    let failed = |error: io::Error| {
        Failure::outside(error.kind(), format_args!("{}: {error}", folder.display()))
    };
    std::fs::create_dir_all(folder).map_err(failed)?;
    for (name, text) in files {
        std::fs::write(folder.join(name), text).map_err(failed)?;
    }
    message(format_args!("wrote {} files into {}", files.len(), folder.display()));
    Ok(())
}

/// Prints the document; writes it and its drawings into a folder first, where one is given.
pub(super) fn draw_and_print(
    name: &str,
    document: BenchDocument,
    folder: Option<&Path>,
    output: &mut Output,
) -> Result<(), Failure> {
    if let Some(folder) = folder {
        draw(folder, name, &document)?;
    }
    print(document, output)
}

/// Writes the document as a file, and its drawings.
fn draw(folder: &Path, name: &str, document: &BenchDocument) -> Result<(), Failure> {
    let json = serde_json::to_string_pretty(document).expect("a document is plain data");
    let drawn = drawings(document).into_iter().map(|(file, svg)| (format!("{name}-{file}"), svg));
    let files: Vec<_> =
        std::iter::once((format!("{name}.json"), json + "\n")).chain(drawn).collect();
    write(folder, &files)
}

/// The document; wrong answers are an exit code too.
pub(super) fn print(document: BenchDocument, output: &mut Output) -> Result<(), Failure> {
    let document = Document(document);
    output.print(&document)?;
    let ours = document.0.runs.iter().filter(|run| run.kind != Kind::Peer);
    let wrong: u64 = ours.map(|run| run.wrong).sum();
    if wrong > 0 {
        return Err(Failure::new(Exit::Differences, format_args!("{wrong} answers were wrong")));
    }
    Ok(())
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
        Unit::Us | Unit::Share | Unit::Mpps => 3,
        Unit::UpdatesPerSecond | Unit::Bytes | Unit::Cycles => 0,
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

/// Its name, and how many threads there were where there was more than one.
fn threaded(run: &Run) -> String {
    if run.threads > 1 { format!("{} x{}", run.name, run.threads) } else { run.name.clone() }
}

const PLAIN: &[Column<Run>] = &[
    ("RUN", |run| run.name.clone()),
    ("STREAM", |run| run.algorithm.as_ref().unwrap_or(&run.stream).clone()),
    ("MEDIAN", |run| figure(run.median, digits(run.unit))),
    ("P99", |run| figure(run.p99, digits(run.unit))),
    ("P99.9", |run| figure(run.p999, digits(run.unit))),
    ("MIN", |run| figure(run.min, digits(run.unit))),
    ("MAX", |run| figure(run.max, digits(run.unit))),
    ("UNIT", |run| run.unit.name().into()),
    ("ANSWERS", answers),
    ("NOTE", |run| run.note.clone()),
];

const CEILINGS: &[Column<Run>] = &[
    ("CEILING", threaded),
    ("STREAM", |run| run.stream.clone()),
    ("MODE", |run| run.mode.name().into()),
    ("BYTES", |run| or_dash(run.bytes)),
    ("MEDIAN", |run| figure(run.median, 1)),
    ("MIN", |run| figure(run.min, 1)),
    ("MAX", |run| figure(run.max, 1)),
    ("EFFICIENCY", |run| figure(run.efficiency, 2)),
    ("NOTE", |run| run.note.clone()),
];

impl Document {
    fn plain(&self, to: &mut dyn Write) -> io::Result<()> {
        Columns::of(PLAIN, &self.0.runs).write(to)?;
        self.ratios(to)
    }

    /// Where peers did the same: how many times as fast each of ours is, by the medians.
    fn ratios(&self, to: &mut dyn Write) -> io::Result<()> {
        let who = |run: &Run| run.algorithm.clone().unwrap_or_else(|| run.name.clone());
        let group = |run: &Run| {
            let what = if run.algorithm.is_some() { &run.name } else { &run.stream };
            (run.family, what.clone(), run.destinations, run.unit)
        };
        let measured = || self.0.runs.iter().filter(|run| run.median.is_some());
        let mut groups: Vec<_> = Vec::new();
        for run in measured().filter(|run| run.kind == Kind::Peer) {
            if !groups.contains(&group(run)) {
                groups.push(group(run));
            }
        }
        for wanted in groups {
            let of_group = || measured().filter(|run| group(run) == wanted);
            let peers: Vec<_> = of_group().filter(|run| run.kind == Kind::Peer).collect();
            let (family, what, destinations, unit) = &wanted;
            let family = family.map_or_else(String::new, |family| format!("IPv{family}, "));
            let many = destinations.map_or_else(String::new, |n| format!(", {n} destinations"));
            writeln!(to, "\n{family}{what}{many}, {}: times as good as", unit.name())?;
            let names: Vec<_> = peers.iter().map(|peer| who(peer)).collect();
            let headings: Vec<_> = [""].into_iter().chain(names.iter().map(|n| &n[..])).collect();
            let mut columns = Columns::new(&headings);
            let part = |run: &Run| run.name.starts_with("element:");
            for run in of_group().filter(|run| run.kind != Kind::Peer && !part(run)) {
                let times = peers.iter().map(|peer| {
                    let (ours, theirs) = (run.median?, peer.median?);
                    let more = matches!(unit, Unit::UpdatesPerSecond | Unit::Mpps);
                    Some(if more { ours / theirs } else { theirs / ours })
                });
                let times = times.map(|times| figure(times, 2));
                columns.row(std::iter::once(who(run)).chain(times).collect::<Vec<_>>());
            }
            columns.write(to)?;
        }
        Ok(())
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
        if ceilings.clone().count() > 0 {
            writeln!(to)?;
            Columns::of(CEILINGS, ceilings).write(to)?;
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
            "MACHINE",
            "ANSWERS",
            "NOTE",
        ];
        let mut columns = Columns::new(&headings);
        for run in runs {
            let is_best = best.is_some_and(|best| std::ptr::eq(*best, *run));
            let ratio = run.median.zip(best.and_then(|best| best.median)).map(|(a, b)| a / b);
            columns.row([
                if is_best { "*" } else { "" }.into(),
                threaded(run),
                figure(run.median, 1),
                figure(run.min, 1),
                figure(run.max, 1),
                figure(ratio, 2),
                figure(run.share_two_loads, 2),
                figure(run.lines, 2),
                run.bytes.map_or("-".into(), |bytes| bytes.to_string()),
                figure(run.bytes_per_prefix, 2),
                figure(run.efficiency, 2),
                figure(run.machine_efficiency, 2),
                answers(run),
                run.note.clone(),
            ]);
        }
        columns.write(to)
    }
}
