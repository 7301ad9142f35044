//! `bench papers`: the published figures beside ours, on one page.
//!
//! Other machines and (mostly) other tables: what can be compared is the order of the algorithms and
//! the ratios between them, not the rates. A section is a file here, and each measures what it shows;
//! what it means is written by hand beside the page.

mod cycles;
mod dxr;
mod freebsd;
mod page;
mod poptrie;
mod published;
mod routebricks;
mod threads;
mod updates;

use std::fmt::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use fingerpost_command::plot::{self, Drawing};
use fingerpost_lpm::{Addr, Heap};

use self::page::{grouped, short};
use crate::document::{BenchDocument, Mode, Run};
use crate::family::Family;
use crate::lookup::{LookupOptions, Stream, lookup};
use crate::machine::machine;
use crate::table::{Table, Tables};
use crate::trace::Trace;
use crate::update::changes::Recorded;
use fingerpost_command::progress::Progress;

/// What to measure.
#[derive(Clone, Debug)]
pub struct PapersOptions {
    /// A folder of table files; [`recorded`] finds a stream of updates there.
    pub tables: PathBuf,
    /// Addresses of real traffic.
    pub trace: Option<Trace>,
    /// A recorded stream of updates.
    pub recorded: Option<Recorded>,
    /// Measuring time of each run.
    pub seconds: f64,
    /// Samples of each run.
    pub samples: usize,
    /// Seed of all that is drawn.
    pub seed: u64,
    /// Addresses of a stream.
    pub keys: usize,
    /// Names of [`SECTIONS`]; all where none is named.
    pub sections: Vec<String>,
    /// Real nodes of a cluster that are killed, one after the other.
    pub failures: usize,
}

/// A part of the page, by whose work it is about; each is made for every table of IPv4.
pub struct Section {
    /// What options call it.
    pub name: &'static str,
    measure: fn(&mut Paper<'_>, &Table<u32>) -> Result<()>,
}

/// All of them, in their order on the page.
pub const SECTIONS: &[Section] = &[
    Section { name: "dxr", measure: dxr::sections },
    Section { name: "freebsd", measure: freebsd::section },
    Section { name: POPTRIE, measure: poptrie::sections },
    Section { name: "cycles", measure: cycles::section },
    Section { name: "threads", measure: threads::section },
    Section { name: "updates", measure: updates::section },
    Section { name: "routebricks", measure: routebricks::section },
];

/// The one that has a part for IPv6 as well.
const POPTRIE: &str = "poptrie";

/// What came of it.
#[derive(Clone, Debug)]
pub struct Papers {
    /// Every run that the page shows; its `note` begins with the table that it is of.
    pub document: BenchDocument,
    /// Names and contents: `papers.md` and its drawings.
    pub files: Vec<(String, String)>,
}

/// Measures and writes the page.
///
/// # Errors
/// When the folder holds no table, or one cannot be read.
pub fn papers(options: &PapersOptions, progress: &mut Progress) -> Result<Papers> {
    let (v4, v6) = load(&options.tables)?;
    let machine = machine();
    let named = &options.sections;
    let wanted = |name: &str| named.is_empty() || named.iter().any(|one| one == name);
    let mut paper =
        Paper { options, progress, runs: Vec::new(), files: Vec::new(), text: String::new() };
    paper.say(&format!(
        "# Papers\n\nMade by `fingerpost-lab bench papers`: the published figures (\"there\") beside ours. Millions of \
         lookups a second, one thread,\nunless a table has another unit; medians of {} samples of {:.2} s, runs in \
         turns, thread CPU time, {} keys (IPv6 half as\nmany) read in order. Every answer was compared with the \
         oracle first. Machines and tables differ from those of the\npapers: compare the order and the \
         ratios.\n\nOurs: {}, {} cores, {} KiB second and {} KiB third cache, {}, commit {}.",
        options.samples,
        options.seconds / f64::from(u32::try_from(options.samples.max(1)).unwrap_or(1)),
        grouped(options.keys as u64),
        machine.cpu,
        machine.cores,
        machine.l2_kib,
        machine.l3_kib,
        machine.rustc,
        machine.commit
    ));
    for table in &v4 {
        paper.heading(table);
        for section in SECTIONS.iter().filter(|section| wanted(section.name)) {
            (section.measure)(&mut paper, table)?;
        }
    }
    for table in v6.iter().filter(|_| wanted(POPTRIE)) {
        paper.heading(table);
        poptrie::ipv6(&mut paper, table)?;
    }
    let infos: Vec<_> = v4.iter().map(Table::info).chain(v6.iter().map(Table::info)).collect();
    let mut files = paper.files;
    files.insert(0, ("papers.md".to_owned(), paper.text.trim_end().to_owned() + "\n"));
    let table = infos[0].clone();
    let document = BenchDocument { machine, table, tables: infos, runs: paper.runs };
    Ok(Papers { document, files })
}

/// The first file `update*.txt*` of a folder, read.
///
/// # Errors
/// When the folder or the file cannot be read.
pub fn recorded(folder: &Path) -> Result<Option<Recorded>> {
    let is_it = |name: &str| name.starts_with("update") && name.contains(".txt");
    files(folder, is_it)?.first().map(|file| Recorded::load(file)).transpose()
}

/// Tables of each family, in order of the files.
type Loaded = (Vec<Table<u32>>, Vec<Table<u128>>);

fn load(folder: &Path) -> Result<Loaded> {
    // Tables of text, however they are compressed; what lies beside them is not ours to judge.
    let is_it =
        |name: &str| name.contains(".txt") && (name.starts_with("v4") || name.starts_with("v6"));
    let (mut v4, mut v6) = (Vec::new(), Vec::new());
    for file in files(folder, is_it)? {
        let tables = Tables::load(&[&file])?;
        v4.extend(tables.v4);
        v6.extend(tables.v6);
    }
    let none = !v4.is_empty() || !v6.is_empty();
    ensure!(none, "{}: no table v4*.txt* or v6*.txt*", folder.display());
    Ok((v4, v6))
}

fn files(folder: &Path, is_it: impl Fn(&str) -> bool) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    let mut files = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    files.retain(|file| is_it(&file.file_name().unwrap_or_default().to_string_lossy()));
    files.sort();
    Ok(files)
}

/// What is written and measured so far.
struct Paper<'a> {
    options: &'a PapersOptions,
    progress: &'a mut Progress,
    runs: Vec<Run>,
    files: Vec<(String, String)>,
    text: String,
}

impl Paper<'_> {
    fn say(&mut self, text: &str) {
        writeln!(self.text, "{text}\n").expect("a string takes all");
    }

    fn heading<A: Addr>(&mut self, table: &Table<A>) {
        let (routes, hops) = (table.routes.len() as u64, u64::from(table.nexthops));
        self.say(&format!(
            "## {}\n\n{} prefixes, {} next hops.",
            short(&table.file),
            grouped(routes),
            grouped(hops)
        ));
    }

    /// Bars, in the page and as a file.
    fn bars(
        &mut self,
        name: &str,
        title: &str,
        series: &[&str],
        groups: &[(String, Vec<Option<f64>>)],
    ) {
        self.file(name, plot::bars(title, series, groups));
    }

    /// A drawing, in the page and as a file.
    fn file(&mut self, name: &str, drawing: Drawing) {
        let file = format!("papers-{name}.svg");
        self.say(&format!("![{name}]({file})"));
        self.files.push((file, drawing.to_string()));
    }

    /// Options of lookups alike for all sections.
    fn lookups(&self) -> LookupOptions {
        LookupOptions {
            seconds: self.options.seconds,
            samples: self.options.samples,
            seed: self.options.seed,
            keys: self.options.keys,
            trace: self.options.trace.clone(),
            ceilings: false,
            ..LookupOptions::default()
        }
    }

    /// Runs of some algorithms on a table, kept for the document too. Those that were built without
    /// any of them have none.
    fn measure(
        &mut self,
        tables: Tables,
        of: &str,
        names: &[&str],
        streams: &[Stream],
        mode: Mode,
    ) -> Result<Vec<Run>> {
        let options = LookupOptions {
            tables,
            algorithms: names.iter().map(|&name| name.to_owned()).collect(),
            streams: streams.to_vec(),
            modes: vec![mode],
            ..self.lookups()
        };
        let mut runs = lookup(&options, self.progress)?.runs;
        self.keep(of, &mut runs);
        Ok(runs)
    }

    /// Notes whose runs these are, and puts them into the document.
    fn keep(&mut self, of: &str, runs: &mut [Run]) {
        for run in runs.iter_mut() {
            run.note =
                if run.note.is_empty() { of.to_owned() } else { format!("{of}: {}", run.note) };
        }
        self.runs.extend(runs.iter().cloned());
    }
}

/// Statistics that an algorithm reports of itself; nothing where it cannot hold the table.
fn stats<A: Family>(table: &Table<A>, name: &str) -> Vec<(&'static str, u64)> {
    let mut found = Vec::new();
    for row in A::named(&[name.to_owned()]) {
        if let Ok(mut built) = row.build(&table.store(), &mut Heap) {
            built.publish().stats(&mut |name, value| found.push((name, value)));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::Unit;
    use fingerpost_command::plot::well_formed;
    use fingerpost_command::progress::Progress;

    const TITLES: [&str; 19] = [
        "### DXR: SEQ, RND and REP",
        "### DXR: what D20R holds",
        "### DXR: lengths of chunks",
        "### FreeBSD: run_lps",
        "### Poptrie: its extensions",
        "### Poptrie: compared with other schemes",
        "### Poptrie: real traffic",
        "### Cycles of a lookup",
        "### Several threads",
        "### Updates",
        "### RouteBricks: what is done to a packet",
        "### RouteBricks: batches",
        "### RouteBricks: cores and queues",
        "### RouteBricks: prediction and measurement of a cluster",
        "### RouteBricks: traffic matrices of a cluster",
        "### RouteBricks: order of flows",
        "### RouteBricks: failures",
        "### RouteBricks: failures of real nodes",
        "### Poptrie: IPv6",
    ];

    #[test]
    fn a_page_has_every_section_and_its_drawings() {
        let folder = std::env::temp_dir().join(format!("fingerpost-papers-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(folder.join("v4-small.txt"), "10.0.0.0/8 1\n10.1.0.0/16 2\n").unwrap();
        std::fs::write(folder.join("v6-small.txt"), "2001:db8::/32 1\n").unwrap();
        std::fs::write(folder.join("update-small.txt"), "1 a 11.0.0.0/8 1\n2 w 11.0.0.0/8\n")
            .unwrap();
        std::fs::write(folder.join("README.md"), "not a table").unwrap();
        let mut options = PapersOptions {
            tables: folder.clone(),
            trace: None,
            recorded: recorded(&folder).unwrap(),
            seconds: 0.001,
            samples: 1,
            seed: 1,
            keys: 256,
            sections: Vec::new(),
            // Each takes the time of a demo, which has tests of its own.
            failures: 0,
        };
        assert!(options.recorded.is_some());
        let made = papers(&options, &mut Progress::silent());
        options.trace = Some(Trace { v4: vec![0x0a00_0001], v6: Vec::new() });
        options.recorded = None;
        options.sections = vec!["routebricks".to_owned()];
        let only = papers(&options, &mut Progress::silent()).unwrap().files;
        assert!(only[0].1.contains(TITLES[12]) && !only[0].1.contains(TITLES[0]));
        options.sections.clear();
        let with_trace = papers(&options, &mut Progress::silent()).unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        let made = made.unwrap();

        let page = &made.files[0].1;
        let mut at = 0;
        for title in TITLES {
            let found = page[at..].find(title).unwrap_or_else(|| panic!("{title}:\n{page}"));
            at += found;
        }
        let drawn = &made.files[1..];
        assert!(drawn.len() >= 5, "{}", drawn.len());
        for (name, svg) in drawn {
            assert!(well_formed(svg), "{name}: {svg}");
            assert!(page.contains(&format!("]({name})")), "{name}");
        }
        // A table's rows have as many cells as its heading.
        let cells = |line: &str| line.matches('|').count();
        for (a, b) in page.lines().zip(page.lines().skip(1)) {
            let rows = a.starts_with('|') && b.starts_with('|');
            assert!(!rows || cells(a) == cells(b), "{a}\n{b}");
        }
        assert!(page.contains("skipped: needs a trace"));
        let trace = &with_trace.files[0].1;
        assert!(
            !trace.contains("skipped: needs a trace") && trace.contains("needs a file `update*")
        );

        let runs = &made.document.runs;
        assert!(runs.iter().all(|run| run.wrong == 0));
        let host: Vec<_> = runs.iter().filter(|run| run.stream == "run_lps_seq").collect();
        assert!(host.len() == 10 && host.iter().all(|run| run.median > Some(0.0)), "{host:?}");
        if fingerpost_lpm::simd::Ticks::detect().is_some() {
            let cycles = runs.iter().filter(|run| run.unit == Unit::Cycles);
            assert!(cycles.clone().count() >= 5 && cycles.clone().all(|run| run.median.is_some()));
        }
        assert!(runs.iter().any(|run| run.name == "stream" && run.median > Some(0.0)));
        assert_eq!(made.document.tables.len(), 2);
        assert!(papers(&options, &mut Progress::silent()).is_err());
    }
}
