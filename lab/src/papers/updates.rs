//! Builds and updates of a table.

use anyhow::Result;

use super::Paper;
use super::page::{figure, find, grouped, median, short, table};
use crate::document::{Run, Unit};
use crate::table::{Table, Tables};
use crate::{BuildOptions, UpdateOptions, build, update};

const NAMES: [&str; 7] = ["radix", "dir24_8", "dxr16", "dxr18", "poptrie16", "poptrie18", "bc18"];

/// The section of one table.
pub(super) fn section(paper: &mut Paper<'_>, of: &Table<u32>) -> Result<()> {
    let name = short(&of.file).to_owned();
    let (options, names) = (paper.options, NAMES.map(str::to_owned).to_vec());
    let tables = || Tables { v4: Some(of.clone()), v6: None };
    let builds = BuildOptions {
        tables: tables(),
        algorithms: names.clone(),
        peers: Vec::new(),
        load_limit: crate::peer::LOAD_LIMIT,
        samples: options.samples,
    };
    let mut built = build(&builds, paper.progress)?.runs;
    let updates = UpdateOptions {
        tables: tables(),
        algorithms: names,
        peers: Vec::new(),
        load_limit: crate::peer::LOAD_LIMIT,
        recorded: options.recorded.clone(),
        seconds: options.seconds,
        samples: options.samples,
        seed: options.seed,
    };
    let mut updated = update(&updates, paper.progress)?.runs;
    paper.say(&format!(
        "### Updates ({name})\n\nThere: DXR in Click builds linx (513,644 prefixes) in 909.6 ms; PlanB rebuilds \
         about 1 M in 850 ms; Poptrie's\nupdate times stand in its paper only, which was not to be had. \
         Ours: ms from a loaded route store to a table that\nanswers; updates of store and structure together, \
         each visible on its own: random routes withdrawn and announced\nagain, and {}.",
        if options.recorded.is_some() {
            "the recorded stream over and over (what it announces is another table's)"
        } else {
            "no recorded stream (skipped: needs a file `update*.txt*` among the tables)"
        }
    ));
    let one = |name: &str, algorithm: &str, unit: Unit| {
        let right = |run: &&Run| {
            run.name == name
                && run.algorithm.as_deref() == Some(algorithm)
                && run.unit == unit
                && run.wrong == 0
        };
        updated.iter().find(right)
    };
    let thousands = |run: Option<&Run>| figure(run.and_then(|run| run.median).map(|n| n / 1e3), 0);
    let mut rows = Vec::new();
    for name in NAMES.iter().filter(|name| find(&built, name, "routes").is_some()) {
        let mut cells = vec![(*name).to_owned(), figure(median(&built, name, "routes"), 1)];
        for changes in ["random-pairs", "stream"] {
            cells.push(thousands(one(changes, name, Unit::UpdatesPerSecond)));
            let times = one(changes, name, Unit::Us);
            cells.push(figure(times.and_then(|run| run.median), 2));
            cells.push(figure(times.and_then(|run| run.p999), 1));
        }
        let beside = one("lookups-during-updates", name, Unit::Share);
        cells.push(figure(beside.and_then(|run| run.median), 2));
        let left = one("withdraw-all", name, Unit::Bytes).and_then(|run| run.bytes);
        cells.push(left.map_or("-".into(), grouped));
        rows.push(cells);
    }
    let headings = [
        "",
        "build, ms",
        "pairs, K/s",
        "us",
        "99.9 %",
        "stream, K/s",
        "us",
        "99.9 %",
        "lookups beside",
        "bytes when empty",
    ];
    table(&mut paper.text, &headings, &rows);
    paper.say(
        "`lookups beside`: what is left of the lookup rate of another core while the table changes, by its \
         rate while that core\nchanges a table of its own.",
    );
    let groups: Vec<_> = NAMES
        .iter()
        .map(|name| {
            let rate =
                |changes| one(changes, name, Unit::UpdatesPerSecond).and_then(|run| run.median);
            ((*name).to_owned(), vec![rate("random-pairs"), rate("stream")])
        })
        .collect();
    paper.bars(&format!("updates-{name}"), "updates/s", &["random-pairs", "stream"], &groups);
    paper.keep(&name, &mut built);
    paper.keep(&name, &mut updated);
    Ok(())
}
