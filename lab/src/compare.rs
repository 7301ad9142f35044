//! `bench compare`: two builds of the program in alternation, run by run.
//!
//! A benchmark's documents are read from both programs in turns, the order changing from round to round (before, after,
//! after, before). A run's ratio is taken round by round, so that what slows the machine for longer than a round takes
//! part in both of its sides; what counts is the median of these ratios, and its interval.
//!
//! Source: the interval of a median by order statistics (Conover, Practical Nonparametric Statistics, 3.2): no
//!         distribution is assumed. Of 11 rounds it is from the second least ratio to the second greatest.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use serde::Serialize;

use crate::document::{Answers, BenchDocument, Machine, Run, Unit, percentile};
use fingerpost_command::progress::Progress;

/// A run of both programs, compared.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Compared {
    /// Name of the run.
    pub name: String,
    /// Its stream.
    pub stream: String,
    /// Its mode.
    pub mode: &'static str,
    /// Unit of the medians.
    pub unit: &'static str,
    /// Median of the medians of the first program.
    pub before: f64,
    /// That of the second.
    pub after: f64,
    /// Median of the ratios of speed, after by before: above 1 the second program is faster.
    pub ratio: f64,
    /// Least ratio of the 95 % interval.
    pub low: f64,
    /// Greatest.
    pub high: f64,
    /// Rounds that it is of.
    pub rounds: usize,
}

/// All runs that both programs have.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// What it ran on.
    pub machine: Machine,
    /// Arguments of both programs.
    pub arguments: Vec<String>,
    /// A row for each run, in the order of the documents.
    pub runs: Vec<Compared>,
}

/// Rounds that a 95 % interval needs.
pub const LEAST_ROUNDS: usize = 6;

/// Runs `PROGRAM bench ARGUMENTS --json` of both programs in turns.
///
/// # Errors
/// When a program fails, an answer is wrong, or no run is common to both.
pub fn compare(
    [before, after]: [&Path; 2],
    arguments: &[String],
    rounds: usize,
    progress: &mut Progress,
) -> Result<Comparison> {
    ensure!(rounds >= LEAST_ROUNDS, "{rounds} rounds: an interval needs {LEAST_ROUNDS}");
    let mut documents: [Vec<BenchDocument>; 2] = [Vec::new(), Vec::new()];
    for round in 0..rounds {
        let turns = if round % 2 == 0 { [0, 1] } else { [1, 0] };
        for (turn, which) in turns.into_iter().enumerate() {
            let program = [before, after][which];
            progress.step(&program.display().to_string(), 2 * round + turn, 2 * rounds);
            documents[which].push(document(program, arguments)?);
        }
    }
    progress.done();
    let machine = documents[1][0].machine.clone();
    let runs: Vec<_> = documents[1][0].runs.iter().filter_map(|run| row(run, &documents)).collect();
    ensure!(!runs.is_empty(), "the programs have no run in common");
    Ok(Comparison { machine, arguments: arguments.to_vec(), runs })
}

/// The document of one call.
fn document(program: &Path, arguments: &[String]) -> Result<BenchDocument> {
    let mut command = Command::new(program);
    command.arg("bench").args(arguments).arg("--json").stderr(Stdio::piped());
    let done = command.output().with_context(|| program.display().to_string())?;
    if !done.status.success() {
        let message = String::from_utf8_lossy(&done.stderr);
        let last: Vec<_> = message.lines().rev().take(3).collect();
        bail!("{}: {}: {}", program.display(), done.status, last.join("; "));
    }
    let document: BenchDocument = serde_json::from_slice(&done.stdout)
        .with_context(|| format!("{}: no document", program.display()))?;
    let wrong = document.runs.iter().find(|run| run.answers == Answers::Wrong);
    match wrong {
        Some(run) => bail!("{}: {}: {} wrong answers", program.display(), run.name, run.wrong),
        None => Ok(document),
    }
}

/// What distinguishes a run from the others of its document.
fn key(run: &Run) -> impl PartialEq {
    let words = (run.name.clone(), run.stream.clone(), run.algorithm.clone());
    (words, run.mode, run.threads, run.family, run.destinations, run.unit)
}

/// The row of a run, where both programs have it in every round.
fn row(run: &Run, documents: &[Vec<BenchDocument>; 2]) -> Option<Compared> {
    let median = |document: &BenchDocument| {
        let found = document.runs.iter().find(|other| key(other) == key(run))?;
        found.median.filter(|median| *median > 0.0)
    };
    let of = |which: usize| documents[which].iter().map(median).collect::<Option<Vec<f64>>>();
    let (before, after) = (of(0)?, of(1)?);
    let less_is_better = match run.unit {
        Unit::NsPerPacket | Unit::Us | Unit::Ms | Unit::Bytes | Unit::Cycles => true,
        Unit::MlookupsPerSecond | Unit::Mpps | Unit::UpdatesPerSecond | Unit::Share => false,
    };
    let speed = |(before, after): (&f64, &f64)| {
        if less_is_better { before / after } else { after / before }
    };
    let ratios = sorted(before.iter().zip(&after).map(speed).collect());
    let cut = outside(ratios.len());
    Some(Compared {
        name: run.name.clone(),
        stream: run.stream.clone(),
        mode: run.mode.name(),
        unit: run.unit.name(),
        before: percentile(&sorted(before), 0.5)?,
        after: percentile(&sorted(after), 0.5)?,
        ratio: percentile(&ratios, 0.5)?,
        low: ratios[cut],
        high: ratios[ratios.len() - 1 - cut],
        rounds: ratios.len(),
    })
}

fn sorted(mut numbers: Vec<f64>) -> Vec<f64> {
    numbers.sort_by(f64::total_cmp);
    numbers
}

/// Samples on either side that a 95 % interval of the median leaves out: the most of which the binomial tails are not
/// above 5 %.
fn outside(count: usize) -> usize {
    #[allow(clippy::cast_precision_loss, reason = "a small number")]
    let (count_f, mut term, mut tail, mut cut) =
        (count as f64, 0.5_f64.powi(i32::try_from(count).unwrap_or(i32::MAX)), 0.0, 0);
    for below in 0..count / 2 {
        tail += term;
        if 2.0 * tail > 0.05 {
            break;
        }
        cut = below;
        #[allow(clippy::cast_precision_loss, reason = "a small number")]
        let at = below as f64;
        term *= (count_f - at) / (at + 1.0);
    }
    cut
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::path::PathBuf;

    use super::*;
    use crate::document::{Kind, TableInfo};
    use fingerpost_command::progress::Progress;

    /// A program that prints documents, whose run takes so many ns.
    fn program(name: &str, ns: f64, wrong: u64) -> PathBuf {
        let folder =
            std::env::temp_dir().join(format!("fingerpost-compare-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let mut run = Run::new("path", Kind::Ours, "prefix", Unit::NsPerPacket);
        run.set_samples(vec![ns]);
        run.set_answers(10, wrong);
        let table = TableInfo { file: "x".into(), routes: 1, nexthops: 1, family: 4 };
        let machine = Machine::default();
        let document = BenchDocument { machine, table, tables: Vec::new(), runs: vec![run] };
        let path = folder.join(name);
        let json = serde_json::to_string(&document).unwrap();
        fs::write(
            &path,
            format!("#!/bin/sh\necho \"$@\" >> {0}.calls\necho '{json}'\n", path.display()),
        )
        .unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    #[test]
    fn the_faster_program_has_the_greater_ratio() {
        let (old, new) = (program("old", 100.0, 0), program("new", 80.0, 0));
        let arguments = ["forward".to_owned(), "--x".to_owned()];
        let compared = compare([&old, &new], &arguments, 7, &mut Progress::silent()).unwrap();
        let row = &compared.runs[0];
        assert_eq!((row.before, row.after, row.rounds), (100.0, 80.0, 7));
        assert_eq!((row.ratio, row.low, row.high), (1.25, 1.25, 1.25));
        let calls = fs::read_to_string(old.with_extension("calls")).unwrap();
        assert_eq!(calls, "bench forward --x --json\n".repeat(7));
        let bad = program("bad", 80.0, 1);
        let error =
            compare([&old, &bad], &arguments, 7, &mut Progress::silent()).unwrap_err().to_string();
        assert!(error.contains("wrong answers"), "{error}");
        assert!(compare([&old, &new], &arguments, 5, &mut Progress::silent()).is_err());
        fs::remove_dir_all(old.parent().unwrap()).unwrap();
    }

    #[test]
    fn intervals_leave_out_what_the_binomial_says() {
        // Tables of the sign test: of 11 the second on each side, of 20 the sixth, of 5 there is none.
        assert_eq!([6, 8, 9, 11, 12, 15, 20, 25].map(outside), [0, 0, 1, 1, 2, 3, 5, 7]);
    }
}
