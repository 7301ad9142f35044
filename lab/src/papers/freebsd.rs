//! FreeBSD's `run_lps_rnd` and `run_lps_seq`, on a host's table and on a full one.
//!
//! There a lookup goes through the framework: a call by pointer, then the next hop's own object is read. So
//! does `run_lps` here: a call through the trait object a key, and a line of the next hop it names. Beside
//! it stand the algorithms alone.

use std::cell::RefCell;
use std::sync::Arc;

use anyhow::Result;
use fingerpost_lpm::{HugePages, Lookup};

use super::page::{figure, median, rate, ratio, short, table};
use super::{Paper, published};
use crate::build::kind;
use crate::document::{Mode, Run, Unit};
use crate::family::Family;
use crate::lookup::Stream;
use crate::lookup::check::Questions;
use crate::measure::{Clock, Measured, Plan, Turn, alternate_told, sample};
use crate::table::{Table, Tables};

const NAMES: [&str; 2] = ["run_lps_rnd", "run_lps_seq"];
/// Keys between two looks at the clock.
const TURN: usize = 1 << 14;
/// Prefixes whose edges are looked up.
const EDGES: usize = 50_000;

/// The section of one table.
pub(super) fn section(paper: &mut Paper<'_>, of: &Table<u32>) -> Result<()> {
    let name = short(&of.file).to_owned();
    let host = host();
    let mut through = run_lps(paper, "host", &host);
    let at_host = through.clone();
    let at_bgp = run_lps(paper, &name, of);
    through.extend(at_bgp.iter().cloned());
    paper.runs.extend(through);
    paper.say(&format!(
        "### FreeBSD: run_lps (host table, and {name} as the BGP table)\n\nThere: Ryzen 5 5600X in 2021, linx \
         with 887,957 prefixes and 496 next hops. Ours: a call through the\ntrait object a key, then a line of \
         the next hop, as FreeBSD's framework does. Its SEQ is too low as printed, the\ntime of as many \
         independent lookups is in it; beside it stands 1 / (1/SEQ - 1/RND)."
    ));
    let mut rows = Vec::new();
    for &(there, ours, figures) in published::FREEBSD {
        let mut cells = vec![there.to_owned(), ours.to_owned()];
        for (runs, at) in [(&at_host, 0), (&at_bgp, 2)] {
            let (rnd, seq) = (figures[at], figures[at + 1]);
            cells.extend([rate(median(runs, ours, NAMES[0])), rate(rnd)]);
            cells.extend([
                rate(median(runs, ours, NAMES[1])),
                rate(seq),
                rate(corrected(rnd, seq)),
            ]);
        }
        rows.push(cells);
    }
    let headings = [
        "there",
        "ours",
        "host RND",
        "there",
        "host SEQ",
        "there",
        "corrected",
        "BGP RND",
        "there",
        "BGP SEQ",
        "there",
        "corrected",
    ];
    table(&mut paper.text, &headings, &rows);

    paper.say(
        "Each as so many times dxr on the same machine and table; SEQ there is the corrected one.",
    );
    let base = published::FREEBSD.iter().find(|row| row.1 == "dxr").expect("a row of ours");
    let mut rows = Vec::new();
    for &(there, ours, figures) in published::FREEBSD.iter().filter(|row| row.1 != base.1) {
        let mut cells = vec![there.to_owned()];
        for (runs, at) in [(&at_host, 0), (&at_bgp, 2)] {
            for (t, test) in NAMES.iter().enumerate() {
                let found = |name| median(runs, name, test);
                let of = |row: [Option<f64>; 4]| {
                    if t == 0 { row[at] } else { corrected(row[at], row[at + 1]) }
                };
                cells.push(figure(ratio(found(ours), found(base.1)), 2));
                cells.push(figure(ratio(of(figures), of(base.2)), 2));
            }
        }
        rows.push(cells);
    }
    let headings =
        ["", "host RND", "there", "host SEQ", "there", "BGP RND", "there", "BGP SEQ", "there"];
    table(&mut paper.text, &headings, &rows);
    alone(paper, &name, host, of)
}

/// Time without the framework's part.
fn alone(paper: &mut Paper<'_>, name: &str, host: Table<u32>, of: &Table<u32>) -> Result<()> {
    let names: Vec<_> = published::FREEBSD.iter().map(|row| row.1).collect();
    let streams = [Stream::Uniform, Stream::Sequential];
    let mut found = Vec::new();
    for (name, table) in [("host", host), (name, of.clone())] {
        let tables = Tables { v4: Some(table), v6: None };
        found.push(paper.measure(tables, name, &names, &streams, Mode::Single)?);
    }
    paper.say("The algorithms alone, without that call and that line:");
    let row = |name: &&str| {
        let figures =
            found.iter().flat_map(|runs| streams.map(|s| rate(median(runs, name, s.name()))));
        std::iter::once((*name).to_owned()).chain(figures).collect::<Vec<_>>()
    };
    let rows: Vec<_> = names.iter().map(row).collect();
    table(&mut paper.text, &["ours", "host RND", "host SEQ", "BGP RND", "BGP SEQ"], &rows);
    Ok(())
}

/// What SEQ would have been without the independent lookups in its time.
fn corrected(rnd: Option<f64>, seq: Option<f64>) -> Option<f64> {
    rnd.zip(seq).map(|(rnd, seq)| 1.0 / (1.0 / seq - 1.0 / rnd))
}

/// FreeBSD's host: an address, its network, and a default route.
fn host() -> Table<u32> {
    let route = |text: &str, hop| (text.parse().expect("a prefix"), hop);
    let routes = vec![route("0.0.0.0/0", 1), route("192.0.2.0/24", 2), route("192.0.2.1/32", 3)];
    Table::new("host", routes)
}

/// What a next hop names: a line of its own.
#[derive(Clone)]
#[repr(align(64))]
struct Hop(u64);

/// The framework's loop.
struct Lps<'a> {
    lookup: &'a dyn Lookup<u32>,
    hops: &'a [Hop],
    keys: &'a [u32],
    dependent: bool,
    at: usize,
    sum: u64,
}

impl Measured for Lps<'_> {
    #[allow(clippy::cast_possible_truncation, reason = "masked off")]
    fn work(&mut self) -> u64 {
        if self.at >= self.keys.len() {
            self.at = 0;
        }
        let keys = &self.keys[self.at..self.keys.len().min(self.at + TURN)];
        self.at += keys.len();
        if self.dependent {
            let (mask, mut last) = (std::hint::black_box(0), 0);
            for &key in keys {
                last = self.hops[self.lookup.lookup(key ^ (last as u32 & mask)).index()].0;
                self.sum = self.sum.wrapping_add(last);
            }
        } else {
            for &key in keys {
                self.sum = self.sum.wrapping_add(self.hops[self.lookup.lookup(key).index()].0);
            }
        }
        std::hint::black_box(self.sum);
        keys.len() as u64
    }
}

/// Both tests of all algorithms, in turns; each first looks up its keys and edges, and its sum is compared.
fn run_lps(paper: &mut Paper<'_>, name: &str, of: &Table<u32>) -> Vec<Run> {
    let options = paper.options;
    paper.progress.stage(&format!("{name}: run_lps"));
    let prefixes: Vec<_> = of.routes.iter().map(|route| route.0).collect();
    let keys = Stream::Uniform.keys(&prefixes, &[], options.keys, options.seed);
    let oracle = of.oracle();
    let questions = Questions::new(keys, &oracle);
    let edges = Questions::edges(&of.routes, EDGES, &oracle);
    let hops: Vec<_> = (0..=u64::from(of.nexthops)).map(|hop| Hop(hop + 7)).collect();
    let want: u64 = questions.answers.iter().map(|hop| hops[hop.index()].0).sum();
    let store = of.store();
    let names: Vec<_> = published::FREEBSD.iter().map(|row| row.1.to_owned()).collect();
    let build = |row: &'static fingerpost_lpm::Algorithm<u32>| {
        let built = row.build(&store, &mut HugePages::new()).map(|mut table| table.publish());
        (row, built.map_err(|error| error.to_string()))
    };
    let built: Vec<_> = u32::named(&names).into_iter().map(build).collect();
    let (mut runs, mut all) = (Vec::new(), Vec::new());
    for (t, test) in NAMES.into_iter().enumerate() {
        for (row, lookup) in &built {
            let mut run = Run::new(row.name, kind(row), test, Unit::MlookupsPerSecond);
            run.mode = if t == 0 { Mode::Single } else { Mode::Dependent };
            (run.family, run.note) =
                (Some(4), format!("{name}: a call and a next hop's line a key"));
            match lookup {
                Ok(lookup) => {
                    let lookup: &Arc<dyn Lookup<u32>> = lookup;
                    let (keys, dependent) = (&questions.addrs[..], t == 1);
                    let mut lps =
                        Lps { lookup: &**lookup, hops: &hops, keys, dependent, at: 0, sum: 0 };
                    let mut wrong = edges.wrong(&**lookup, Mode::Single, 64);
                    wrong += questions.wrong(&**lookup, Mode::Single, 64);
                    while lps.at < keys.len() {
                        lps.work();
                    }
                    wrong += u64::from(lps.sum != want);
                    run.set_answers((keys.len() + edges.addrs.len()) as u64, wrong);
                    run.bytes = Some(lookup.bytes() as u64);
                    all.push((runs.len(), RefCell::new(lps)));
                }
                Err(note) => run.note = format!("{name}: {note}"),
            }
            runs.push(run);
        }
    }
    let mut plan = Plan::new(options.seconds, options.samples);
    plan.clock = Clock::Thread;
    let turn = |lps: &RefCell<Lps<'_>>| Some(sample(&mut *lps.borrow_mut(), plan));
    let mut turns: Vec<Turn<'_>> = Vec::new();
    for (_, lps) in &all {
        turns.push(Box::new(move || turn(lps)));
    }
    let steps = turns.len() * (plan.samples + 1);
    let progress = &mut paper.progress;
    let samples = alternate_told(&mut turns, plan.samples, &mut |_, done| {
        progress.step("run_lps", done, steps);
    });
    drop(turns);
    paper.progress.done();
    for (samples, (at, _)) in samples.into_iter().zip(&all) {
        runs[*at].set_samples(samples.into_iter().map(|ns| 1000.0 / ns).collect());
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;
    use fingerpost_lpm::NextHopId;

    #[test]
    fn the_time_of_the_other_test_is_taken_off() {
        // As published of a Ryzen 5 5600X in 2021: 49.0 and 114.0 are 85.9.
        let dxr = corrected(Some(114.0), Some(49.0)).unwrap();
        assert!((dxr - 85.9).abs() < 0.1, "{dxr}");
        assert_eq!(corrected(None, Some(1.0)), None);
    }

    #[test]
    fn every_key_is_asked_once_a_round() {
        let table = host();
        let mut built = fingerpost_lpm::find_v4("radix")
            .unwrap()
            .build(&table.store(), &mut HugePages::new())
            .unwrap();
        let lookup = built.publish();
        let hops: Vec<_> = (0..4).map(Hop).collect();
        let keys = [0x0a00_0001, 0xc000_0207, 0xc000_0201, 0xc000_0201];
        for dependent in [false, true] {
            let mut lps =
                Lps { lookup: &*lookup, hops: &hops, keys: &keys, dependent, at: 0, sum: 0 };
            assert_eq!((lps.work(), lps.sum), (4, 1 + 2 + 3 + 3));
            assert_eq!((lps.work(), lps.sum), (4, 18));
        }
        assert_eq!(lookup.lookup(keys[0]), NextHopId(1));
    }
}
