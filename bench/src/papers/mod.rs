//! `bench papers`: the published figures beside ours, on one page.
//!
//! Other machines and (mostly) other tables: what can be compared is the order of the algorithms and
//! the ratios between them, not the rates.

mod page;
mod published;

use std::fmt::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use fingerpost_lpm::intervals::sweep;
use fingerpost_lpm::{NextHopId, Prefix, RouteStore};

use crate::document::{BenchDocument, Kind, Mode, Run};
use crate::lookup::{LookupOptions, Stream, lookup};
use crate::machine::machine;
use crate::progress::Progress;
use crate::syn::Syn;
use crate::table::{Table, Tables};

/// What to measure.
#[derive(Clone, Debug)]
pub struct PapersOptions {
    /// A folder of table files.
    pub tables: PathBuf,
    /// Measuring time of each run.
    pub seconds: f64,
    /// Samples of each run.
    pub samples: usize,
    /// Of all that is drawn.
    pub seed: u64,
    /// Addresses of a stream.
    pub keys: usize,
}

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
pub fn papers(options: &PapersOptions, progress: &mut dyn Progress) -> Result<Papers> {
    let (v4, v6) = load(&options.tables)?;
    let machine = machine();
    let mut paper =
        Paper { options, progress, runs: Vec::new(), files: Vec::new(), text: String::new() };
    paper.say(&format!(
        "# Papers\n\nMade by `fingerpost bench papers`: the published figures beside ours. Millions of \
         lookups a second, one thread;\nmedians of {} samples of runs in turns. Machines and tables \
         differ: compare the order and the ratios.\n\nOurs: {}, commit {}.",
        options.samples, machine.cpu, machine.commit
    ));
    for table in &v4 {
        paper.dxr(table)?;
        paper.chunks(table);
        paper.freebsd(table)?;
        paper.poptrie(table)?;
    }
    for table in &v6 {
        paper.ipv6(table)?;
    }
    paper.say(
        "## Not here\n\n- Real traffic (Poptrie's WIDE trace): skipped: needs a trace (`bench lookup --stream \
         trace --trace FILE`).\n- Cycles of single lookups by binary radix depth: not measured.\n- Several \
         threads: `bench lookup --threads N`. Updates: `bench update --stream-file FILE`.",
    );
    let infos: Vec<_> = v4.iter().map(Table::info).chain(v6.iter().map(Table::info)).collect();
    let mut files = paper.files;
    files.insert(0, ("papers.md".to_owned(), paper.text));
    let table = infos[0].clone();
    let document = BenchDocument { machine, table, tables: infos, runs: paper.runs };
    Ok(Papers { document, files })
}

/// Of each family, in order of the files.
type Loaded = (Vec<Table<u32>>, Vec<Table<u128>>);

fn load(folder: &Path) -> Result<Loaded> {
    let name = || folder.display().to_string();
    let entries = std::fs::read_dir(folder).with_context(name)?;
    let mut files = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    files.sort();
    // Tables of text, however they are compressed; what lies beside them is not ours to judge.
    files.retain(|file| {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        name.contains(".txt") && (name.starts_with("v4") || name.starts_with("v6"))
    });
    let (mut v4, mut v6) = (Vec::new(), Vec::new());
    for file in files {
        let tables = Tables::load(&[&file])?;
        v4.extend(tables.v4);
        v6.extend(tables.v6);
    }
    ensure!(!v4.is_empty() || !v6.is_empty(), "{}: no table v4*.txt* or v6*.txt*", name());
    Ok((v4, v6))
}

struct Paper<'a> {
    options: &'a PapersOptions,
    progress: &'a mut dyn Progress,
    runs: Vec<Run>,
    files: Vec<(String, String)>,
    text: String,
}

const STREAMS: &[Stream] = &[Stream::Sequential, Stream::Uniform, Stream::Repeat];

fn rate(number: Option<f64>) -> String {
    number.map_or("-".into(), |number| format!("{number:.1}"))
}

fn short(file: &str) -> &str {
    file.rsplit('/').next().unwrap_or(file).trim_end_matches(".xz").trim_end_matches(".txt")
}

impl Paper<'_> {
    fn say(&mut self, text: &str) {
        writeln!(self.text, "{text}\n").expect("a string takes all");
    }

    /// Runs of some algorithms on a table, kept for the document too.
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
            seconds: self.options.seconds,
            samples: self.options.samples,
            seed: self.options.seed,
            keys: self.options.keys,
            ceilings: false,
            ..LookupOptions::default()
        };
        let mut runs = lookup(&options, self.progress)?.runs;
        for run in &mut runs {
            run.note =
                if run.note.is_empty() { of.to_owned() } else { format!("{of}: {}", run.note) };
        }
        self.runs.extend(runs.iter().cloned());
        Ok(runs)
    }

    fn dxr(&mut self, table: &Table<u32>) -> Result<()> {
        let of = short(&table.file).to_owned();
        let names: Vec<_> = published::DXR.iter().map(|row| row.ours).collect();
        let tables = Tables { v4: Some(table.clone()), v6: None };
        let runs = self.measure(tables, &of, &names, STREAMS, Mode::Single)?;
        self.say(&format!(
            "## DXR: SEQ, RND, REP ({of})\n\nPublished (2014, linx, 513,643 prefixes): {}.\nOurs: \
             `sequential`, `uniform` and `repeat`, single lookups, {} prefixes.",
            published::DXR_MACHINES,
            table.routes.len()
        ));
        let (mut rows, mut groups) = (Vec::new(), Vec::new());
        for row in published::DXR {
            let mut cells = vec![row.name.to_owned(), row.ours.to_owned()];
            let mut values = Vec::new();
            for (stream, published) in STREAMS.iter().zip(&row.rates) {
                let found = median(&runs, row.ours, stream.name());
                cells.push(rate(found));
                cells.push(published.map(|n| format!("{n:.1}")).join(" / "));
                values.push(found);
            }
            rows.push(cells);
            groups.push((row.ours.to_owned(), values));
        }
        let headings = ["published", "ours", "SEQ", "there", "RND", "there", "REP", "there"];
        page::table(&mut self.text, &headings, &rows);
        self.draw(&format!("dxr-{of}"), "Mlookups/s", &["SEQ", "RND", "REP"], &groups);
        Ok(())
    }

    fn draw(
        &mut self,
        name: &str,
        title: &str,
        series: &[&str],
        groups: &[(String, Vec<Option<f64>>)],
    ) {
        let file = format!("{name}.svg");
        self.say(&format!("![{name}]({file})"));
        self.files.push((file, page::bars(title, series, groups)));
    }

    fn chunks(&mut self, table: &Table<u32>) {
        let of = short(&table.file).to_owned();
        self.say(&format!(
            "## DXR: lengths of chunks ({of})\n\nShare of all 2^K chunks with so many ranges; below \
             each row of ours the published one (linx, 2014)."
        ));
        let mut rows = Vec::new();
        for (k, published) in (16u8..).zip(&published::CHUNKS) {
            let shares = chunk_shares(table, k);
            let line = |name: String, shares: &[f64]| {
                let cells = shares.iter().map(|share| format!("{share:.5}"));
                std::iter::once(name).chain(cells).collect::<Vec<_>>()
            };
            rows.push(line(format!("{k}"), &shares));
            rows.push(line("there".into(), published));
        }
        let headings = ["K", "1", "2", "3-4", "5-8", "9-16", "17-32", "33-64", "65-128", "129-256"];
        page::table(&mut self.text, &headings, &rows);
    }

    fn freebsd(&mut self, table: &Table<u32>) -> Result<()> {
        let of = short(&table.file).to_owned();
        let names: Vec<_> = published::FREEBSD.iter().map(|row| row.1).collect();
        let host = Tables { v4: Some(host()), v6: None };
        let streams = [Stream::Uniform, Stream::Sequential];
        let at_host = self.measure(host, "host", &names, &streams, Mode::Single)?;
        let tables = Tables { v4: Some(table.clone()), v6: None };
        let at_bgp = self.measure(tables, &of, &names, &streams, Mode::Single)?;
        self.say(&format!(
            "## FreeBSD: run_lps (host table, and {of} as the BGP table)\n\nPublished (2021): Ryzen 5 \
             5600X, linx with 887,957 prefixes, through FreeBSD's own framework; ours without one.\nIts \
             SEQ is too low as printed: the time of as many independent lookups is in it."
        ));
        let mut rows = Vec::new();
        for (name, ours, published) in published::FREEBSD {
            let found = [
                median(&at_host, ours, "uniform"),
                median(&at_host, ours, "sequential"),
                median(&at_bgp, ours, "uniform"),
                median(&at_bgp, ours, "sequential"),
            ];
            let pairs = found.iter().zip(published).flat_map(|(&a, &b)| [rate(a), rate(b)]);
            rows.push([name.to_string(), ours.to_string()].into_iter().chain(pairs).collect());
        }
        let headings = [
            "published",
            "ours",
            "host RND",
            "there",
            "host SEQ",
            "there",
            "BGP RND",
            "there",
            "BGP SEQ",
            "there",
        ];
        page::table(&mut self.text, &headings, &rows);
        Ok(())
    }

    fn poptrie(&mut self, table: &Table<u32>) -> Result<()> {
        let of = short(&table.file).to_owned();
        let names: Vec<_> = published::POPTRIE.iter().map(|row| row.1).collect();
        let mut found = Vec::new();
        let tables = [table.clone(), Syn::One.split(table), Syn::Two.split(table)];
        let sizes = tables.each_ref().map(|table| table.routes.len());
        for table in tables {
            let name = short(&table.file).to_owned();
            let tables = Tables { v4: Some(table), v6: None };
            found.push(self.measure(tables, &name, &names, &[Stream::Uniform], Mode::Single)?);
        }
        self.say(&format!(
            "## Poptrie: memory, rate, SYN1 and SYN2 ({of})\n\nPublished (2015): i7-4770K, a tier-1 \
             table; SYN1 764,847 and SYN2 885,645 routes. Ours: {}, {} and {} routes.",
            sizes[0], sizes[1], sizes[2]
        ));
        let (mut rows, mut groups) = (Vec::new(), Vec::new());
        for (name, ours, mib, published) in published::POPTRIE {
            let bytes = found[0].iter().find(|run| run.name == *ours).and_then(|run| run.bytes);
            #[allow(clippy::cast_precision_loss, reason = "sizes stay below 2^53")]
            let ours_mib = bytes.map(|bytes| bytes as f64 / f64::from(1 << 20));
            let mut cells = vec![
                (*name).to_owned(),
                (*ours).to_owned(),
                ours_mib.map_or("-".into(), |mib| format!("{mib:.2}")),
                format!("{mib:.2}"),
            ];
            let rates: Vec<_> = found.iter().map(|runs| median(runs, ours, "uniform")).collect();
            for (&a, &b) in rates.iter().zip(published) {
                cells.extend([rate(a), rate(b)]);
            }
            rows.push(cells);
            groups.push(((*ours).to_owned(), rates));
        }
        let headings = [
            "published",
            "ours",
            "MiB",
            "there",
            "table",
            "there",
            "SYN1",
            "there",
            "SYN2",
            "there",
        ];
        page::table(&mut self.text, &headings, &rows);
        if rows.iter().any(|cells| cells[1].starts_with("poptrie") && cells[2] == "-") {
            self.say("Poptrie: this program was built without the feature `poptrie`.");
        }
        self.draw(&format!("poptrie-{of}"), "Mlookups/s", &["table", "SYN1", "SYN2"], &groups);
        Ok(())
    }

    fn ipv6(&mut self, table: &Table<u128>) -> Result<()> {
        let of = short(&table.file).to_owned();
        let names: Vec<&str> = fingerpost_lpm::v6().map(|row| row.name).collect();
        let streams = [Stream::Uniform, Stream::Prefix];
        let tables = Tables { v4: None, v6: Some(table.clone()) };
        let runs = self.measure(tables, &of, &names, &streams, Mode::Batch)?;
        self.say(&format!(
            "## IPv6 ({of})\n\n{} prefixes, batches. Poptrie's slides (20,440 prefixes, i7-4770K, uniform in \
             2000::/8): D16R 163.07, D18R 169.91, Poptrie 16 209.84, Poptrie 18 211.32.\nUniform keys \
             meet next to nothing and prove little.",
            table.routes.len()
        ));
        let rows = names.iter().map(|name| {
            let rates = ["uniform", "prefix"].map(|stream| rate(median(&runs, name, stream)));
            let bytes =
                runs.iter().find(|run| run.name == *name).and_then(|run| run.bytes_per_prefix);
            let bytes = bytes.map_or("-".into(), |bytes| format!("{bytes:.2}"));
            std::iter::once((*name).to_owned()).chain(rates).chain([bytes]).collect()
        });
        let rows: Vec<Vec<String>> = rows.collect();
        page::table(&mut self.text, &["", "uniform", "prefix", "bytes a prefix"], &rows);
        Ok(())
    }
}

/// Of the run of that algorithm and stream, if its answers were right.
fn median(runs: &[Run], name: &str, stream: &str) -> Option<f64> {
    let right = |run: &&Run| {
        run.name == name && run.stream == stream && run.wrong == 0 && run.kind != Kind::Ceiling
    };
    runs.iter().find(right)?.median
}

/// FreeBSD's host: an address, its network, and a default route.
fn host() -> Table<u32> {
    let route = |text: &str, hop| (text.parse().expect("a prefix"), hop);
    let routes = vec![route("0.0.0.0/0", 1), route("192.0.2.0/24", 2), route("192.0.2.1/32", 3)];
    Table::new("host", routes)
}

/// Shares of the 2^`k` chunks that have 1, 2, 3 to 4, .. 129 to 256 ranges of different next hops.
#[allow(clippy::cast_precision_loss, reason = "at most 2^22 chunks")]
fn chunk_shares(table: &Table<u32>, k: u8) -> [f64; 9] {
    let pairs = table.routes.iter().map(|&(prefix, hop)| (prefix, NextHopId(hop)));
    let store: RouteStore<u32> = pairs.collect();
    let mut ranges = vec![1u32; 1 << k];
    sweep(Prefix::ALL, &store, &mut |start, _| {
        // A range that starts with its chunk is the one that the chunk has anyway.
        if start & !<u32 as fingerpost_lpm::Addr>::mask(k) != 0 {
            ranges[(start >> (32 - k)) as usize] += 1;
        }
    });
    let mut counts = [0u32; 9];
    for count in ranges {
        let class = count.next_power_of_two().trailing_zeros() as usize;
        counts[class.min(8)] += 1;
    }
    counts.map(|count| f64::from(count) / f64::from(1u32 << k))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::progress::Silent;

    #[test]
    fn chunks_are_counted_by_their_ranges() {
        let route = |text: &str, hop| (text.parse::<Prefix<u32>>().unwrap(), hop);
        let routes =
            vec![route("10.0.0.0/16", 1), route("10.1.128.0/17", 2), route("10.2.1.0/24", 3)];
        let shares = chunk_shares(&Table::new("t", routes), 16);
        let chunks = shares.map(|share| share * 65_536.0);
        assert_eq!(chunks, [65_534.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
    }

    #[test]
    fn a_page_has_every_section_and_its_drawings() {
        let folder = std::env::temp_dir().join(format!("fingerpost-papers-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(folder.join("v4-small.txt"), "10.0.0.0/8 1\n10.1.0.0/16 2\n").unwrap();
        std::fs::write(folder.join("v6-small.txt"), "2001:db8::/32 1\n").unwrap();
        std::fs::write(folder.join("README.md"), "not a table").unwrap();
        let options = PapersOptions {
            tables: folder.clone(),
            seconds: 0.001,
            samples: 1,
            seed: 1,
            keys: 256,
        };
        let made = papers(&options, &mut Silent);
        std::fs::remove_dir_all(&folder).unwrap();
        let made = made.unwrap();
        let names: Vec<_> = made.files.iter().map(|(name, _)| &name[..]).collect();
        assert_eq!(names, ["papers.md", "dxr-v4-small.svg", "poptrie-v4-small.svg"]);
        let page = &made.files[0].1;
        for title in ["## DXR: SEQ", "## DXR: lengths", "## FreeBSD", "## Poptrie", "## IPv6"] {
            assert!(page.contains(title), "{title}");
        }
        assert!(page.contains("skipped: needs a trace"));
        assert!(made.document.runs.iter().all(|run| run.wrong == 0));
        assert_eq!(made.document.tables.len(), 2);
        assert!(papers(&PapersOptions { tables: folder, ..options }, &mut Silent).is_err());
    }
}
