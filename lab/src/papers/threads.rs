//! Several threads that share one structure.

use anyhow::Result;

use super::Paper;
use super::page::{figure, rate, short, table};
use crate::document::{Mode, Run};
use crate::lookup::{LookupOptions, Stream, lookup};
use crate::table::{Table, Tables};

const NAMES: [&str; 6] = ["dir24_8", "dxr16", "dxr18", "poptrie16", "poptrie18", "bc18"];

/// The section of one table.
pub(super) fn section(paper: &mut Paper<'_>, of: &Table<u32>) -> Result<()> {
    let name = short(&of.file).to_owned();
    paper.say(&format!("### Several threads ({name})"));
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    if cores < 2 {
        paper.say("skipped: needs two cores");
        return Ok(());
    }
    let mut counts: Vec<usize> = (1..).map(|n| 1 << n).take_while(|&n| n < cores).collect();
    counts.push(cores);
    let options = LookupOptions {
        tables: Tables { v4: Some(of.clone()), v6: None },
        algorithms: NAMES.map(str::to_owned).to_vec(),
        streams: vec![Stream::Uniform],
        modes: vec![Mode::Single, Mode::Batch],
        threads: counts.clone(),
        ..paper.lookups()
    };
    let mut runs = lookup(&options, paper.progress)?.runs;
    paper.say(
        "There: D16R 490 M/s together on 8 cores (CCR 2012, 417 K prefixes); Poptrie on 1 to 4 cores of an \
         i7-4770K by\ndrawing only, nearly straight. Ours: `uniform`, each thread on a core with keys of its \
         own; in brackets the part of\nwhat each reaches alone.",
    );
    for mode in [Mode::Single, Mode::Batch] {
        let of = |name: &str, threads: usize| {
            let right = |run: &&Run| {
                run.name == name && run.threads == threads && run.mode == mode && run.wrong == 0
            };
            runs.iter().find(right)
        };
        let mut rows = Vec::new();
        for name in NAMES.iter().filter(|name| of(name, 1).is_some()) {
            let mut cells = vec![(*name).to_owned(), rate(of(name, 1).and_then(|run| run.median))];
            cells.extend(counts.iter().map(|&threads| {
                let run = of(name, threads);
                let share = figure(run.and_then(|run| run.efficiency), 2);
                format!("{} ({share})", rate(run.and_then(|run| run.median)))
            }));
            rows.push(cells);
        }
        let many = counts.iter().map(|threads| format!("{threads} threads"));
        let headings: Vec<String> =
            [mode.name().to_owned(), "1 thread".to_owned()].into_iter().chain(many).collect();
        let headings: Vec<&str> = headings.iter().map(String::as_str).collect();
        table(&mut paper.text, &headings, &rows);
    }
    paper.keep(&name, &mut runs);
    Ok(())
}
