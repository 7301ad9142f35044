//! Cycles of single lookups, whole and by the depth at which a binary trie would end: Poptrie's figures.
//!
//! Each lookup stands alone between fences and readings of the time-stamp counter; what a lookup that does
//! nothing takes is taken off. The counter runs at one rate, so these are cycles of the nominal clock. A lookup
//! alone shows its latency: nothing overlaps, so a rate is not one by these.

use std::sync::Arc;

use anyhow::Result;
use fingerpost_command::plot::{Panel, boxes, curves};
use fingerpost_lpm::simd::Ticks;
use fingerpost_lpm::{Addr, HugePages, Lookup, NextHopId, Prefix, Region, Step};

use super::page::{figure, short, table};
use super::{Paper, published};
use crate::build::kind;
use crate::document::{Mode, Run, Unit};
use crate::family::Family;
use crate::lookup::Stream;
use crate::lookup::check::Questions;
use crate::table::Table;

/// Algorithms of the slides and, for comparison, the BSD trie and our own.
const NAMES: [&str; 7] =
    ["tree_bitmap64", "sail", "dxr16", "dxr18", "poptrie16", "poptrie18", "bc18"];
/// Those whose boxes are drawn.
const DRAWN: [&str; 3] = ["dxr18", "poptrie18", "bc18"];
/// Keys that one looks up before the next has its turn: enough that its own lines are in the caches for most.
const TURN: usize = 1 << 18;
/// A lookup that took more was interrupted.
const MOST: u32 = 10_000;
/// Where the curves end.
const DRAWN_CYCLES: u32 = 400;
/// Samples that a run keeps, every n-th by length.
const KEPT: usize = 1000;
/// A depth with fewer keys has no percentiles.
const FEW: usize = 100;

/// Answers without reading anything: what measuring itself takes.
struct Nothing;

impl Lookup<u32> for Nothing {
    fn lookup(&self, addr: u32) -> NextHopId {
        NextHopId(addr)
    }
    fn lookup_batch(&self, addrs: &[u32], out: &mut [NextHopId]) {
        for (&addr, out) in addrs.iter().zip(out) {
            *out = NextHopId(addr);
        }
    }
    fn explain(&self, addr: u32, _: &mut dyn FnMut(&Step)) -> NextHopId {
        NextHopId(addr)
    }
    fn stats(&self, _: &mut dyn FnMut(&'static str, u64)) {}
    fn regions(&self) -> &[Region] {
        &[]
    }
}

/// One of those that take turns.
struct Timed {
    run: Run,
    lookup: Arc<dyn Lookup<u32>>,
    cycles: Vec<u32>,
}

/// The section of one table.
pub(super) fn section(paper: &mut Paper<'_>, of: &Table<u32>) -> Result<()> {
    let name = short(&of.file).to_owned();
    paper.say(&format!("### Cycles of a lookup ({name})"));
    let Some(ticks) = Ticks::detect() else {
        paper.say("skipped: needs a processor with a time-stamp counter (RDTSCP)");
        return Ok(());
    };
    paper.progress.stage(&format!("{name}: cycles"));
    let prefixes: Vec<_> = of.routes.iter().map(|route| route.0).collect();
    let keys = Stream::Uniform.keys(&prefixes, &[], paper.options.keys, paper.options.seed);
    let oracle = of.oracle();
    let questions = Questions::new(keys, &oracle);
    let (mut timed, refused) = start(&name, of, &questions);
    for keys in questions.addrs.chunks(TURN) {
        for one in &mut timed {
            time(ticks, &*one.lookup, keys, &mut one.cycles);
        }
    }
    let nothing = timed.remove(0);
    let overhead = quantile(&sorted(&nothing.cycles), 0.5);
    for one in &mut timed {
        one.cycles.iter_mut().for_each(|cycles| *cycles = cycles.saturating_sub(overhead));
    }
    let depths: Vec<u8> = {
        let find = Depth::new(&prefixes);
        questions.addrs.iter().map(|&key| find.of(key)).collect()
    };
    paper.say(&format!(
        "{} uniform keys, each lookup alone between fences (LFENCE, RDTSC, LFENCE .. RDTSCP, LFENCE), less \
         the {overhead} cycles\nof a lookup that reads nothing; those above {MOST} cycles, interrupts, are left \
         out. Cycles are the counter's\n({:.2} GHz). There: figures by drawing only.",
        questions.addrs.len(),
        rate_ghz(ticks)
    ));
    whole(paper, &name, &mut timed);
    by_depth(paper, &name, &timed, &depths);
    paper.runs.extend(timed.into_iter().map(|one| one.run));
    paper.runs.extend(refused);
    Ok(())
}

/// Built and checked: first the one that does nothing.
fn start(name: &str, of: &Table<u32>, questions: &Questions<u32>) -> (Vec<Timed>, Vec<Run>) {
    let store = of.store();
    let nothing = Run::new("nothing", crate::document::Kind::Ceiling, "uniform", Unit::Cycles);
    let mut timed = vec![Timed { run: nothing, lookup: Arc::new(Nothing), cycles: Vec::new() }];
    let mut refused = Vec::new();
    for row in u32::named(&NAMES.map(str::to_owned)) {
        let mut run = Run::new(row.name, kind(row), "uniform", Unit::Cycles);
        (run.mode, run.family, run.note) = (Mode::Single, Some(4), format!("{name}: each alone"));
        match row.build(&store, &mut HugePages::new()) {
            Ok(mut table) => {
                let lookup = table.publish();
                let wrong = questions.wrong(&*lookup, Mode::Single, 64);
                run.set_answers(questions.addrs.len() as u64, wrong);
                run.bytes = Some(lookup.bytes() as u64);
                timed.push(Timed { run, lookup, cycles: Vec::new() });
            }
            Err(error) => {
                run.note = format!("{name}: {error}");
                refused.push(run);
            }
        }
    }
    (timed, refused)
}

/// One after the other, each alone.
fn time(ticks: Ticks, lookup: &dyn Lookup<u32>, keys: &[u32], out: &mut Vec<u32>) {
    for &key in keys {
        let (hop, took) = ticks.of(|| lookup.lookup(key));
        std::hint::black_box(hop);
        out.push(u32::try_from(took).unwrap_or(u32::MAX));
    }
}

/// Ticks of the counter in a nanosecond.
#[allow(clippy::cast_precision_loss, reason = "a short time")]
pub(super) fn rate_ghz(ticks: Ticks) -> f64 {
    let start = std::time::Instant::now();
    let (elapsed, took) = ticks.of(|| {
        std::thread::sleep(std::time::Duration::from_millis(20));
        start.elapsed()
    });
    took as f64 / elapsed.as_nanos() as f64
}

fn sorted(cycles: &[u32]) -> Vec<u32> {
    let mut sorted: Vec<u32> = cycles.iter().copied().filter(|&cycles| cycles <= MOST).collect();
    sorted.sort_unstable();
    sorted
}

/// Percentile of sorted numbers, of which there may be none.
#[allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "an index of a list"
)]
fn quantile(sorted: &[u32], part: f64) -> u32 {
    let last = sorted.len().saturating_sub(1);
    sorted.get((part * last as f64) as usize).copied().unwrap_or(0)
}

#[allow(clippy::cast_precision_loss, reason = "counts stay below 2^53")]
fn whole(paper: &mut Paper<'_>, name: &str, timed: &mut [Timed]) {
    let (mut rows, mut drawn) = (Vec::new(), Vec::new());
    for one in timed.iter_mut().filter(|one| one.run.wrong == 0) {
        let sorted = sorted(&one.cycles);
        let count = sorted.len().max(1) as f64;
        let mean = sorted.iter().map(|&n| f64::from(n)).sum::<f64>() / count;
        let parts = [0.25, 0.5, 0.75, 0.95, 0.99].map(|part| quantile(&sorted, part).to_string());
        let cells = [one.run.name.clone(), figure(Some(mean), 1)].into_iter().chain(parts);
        rows.push(cells.collect::<Vec<_>>());
        let step = sorted.len().div_ceil(KEPT).max(1);
        one.run.set_samples(sorted.iter().map(|&n| f64::from(n)).collect());
        one.run.samples = sorted.iter().step_by(step).map(|&n| f64::from(n)).collect();
        let points = (0..=DRAWN_CYCLES).step_by(4).map(|most| {
            let below = sorted.partition_point(|&cycles| cycles <= most);
            (f64::from(most), below as f64 / count)
        });
        drawn.push((one.run.name.clone(), points.collect()));
    }
    table(&mut paper.text, &["cycles", "mean", "25 %", "50 %", "75 %", "95 %", "99 %"], &rows);
    let title = format!("Share of lookups done in so many cycles ({name})");
    let svg = curves(&title, "cycles", f64::from(DRAWN_CYCLES), &drawn);
    paper.file(&format!("cycles-{name}"), svg);
}

#[allow(clippy::cast_precision_loss, reason = "counts stay below 2^53")]
fn by_depth(paper: &mut Paper<'_>, name: &str, timed: &[Timed], depths: &[u8]) {
    let share = |deeper: u8| {
        let count = depths.iter().filter(|&&depth| depth > deeper).count();
        count as f64 / depths.len().max(1) as f64
    };
    let there: Vec<_> = published::DEEPER
        .iter()
        .map(|(kind, over_18, over_24)| {
            format!("{kind} {:.1} % and {:.1} %", over_18 * 100.0, over_24 * 100.0)
        })
        .collect();
    paper.say(&format!(
        "By the depth of the last node that a binary trie of all prefixes has towards the key. Deeper \
         than 18 and 24\nare {:.1} % and {:.1} % of these keys; there {} (WIDE). Medians, of depths with at \
         least {FEW} keys:",
        share(18) * 100.0,
        share(24) * 100.0,
        there.join(", ")
    ));
    let right: Vec<_> = timed.iter().filter(|one| one.run.wrong == 0).collect();
    let (mut rows, mut panels) = (Vec::new(), Vec::<Panel>::new());
    for name in DRAWN.iter().filter(|name| right.iter().any(|one| one.run.name == **name)) {
        panels.push(((*name).to_owned(), Vec::new()));
    }
    for depth in 0..=32u8 {
        let here = |&at: &usize| depths[at] == depth;
        let at: Vec<usize> = (0..depths.len()).filter(here).collect();
        if at.len() < FEW.min(depths.len()) {
            continue;
        }
        let share = at.len() as f64 / depths.len() as f64 * 100.0;
        let mut cells = vec![depth.to_string(), format!("{share:.2} %")];
        for one in &right {
            let of: Vec<u32> = at.iter().map(|&at| one.cycles[at]).collect();
            let of = sorted(&of);
            cells.push(quantile(&of, 0.5).to_string());
            let five = [0.05, 0.25, 0.5, 0.75, 0.95].map(|part| f64::from(quantile(&of, part)));
            if let Some(panel) = panels.iter_mut().find(|panel| panel.0 == one.run.name) {
                panel.1.push((depth.to_string(), five));
            }
        }
        rows.push(cells);
    }
    let names = right.iter().map(|one| &one.run.name[..]);
    let headings: Vec<&str> = ["depth", "keys"].into_iter().chain(names).collect();
    table(&mut paper.text, &headings, &rows);
    let title = format!("Cycles of a lookup by depth ({name}): 5, 25, 50, 75 and 95 %");
    let svg = boxes(&title, "depth in a binary trie", &panels);
    paper.file(&format!("depth-{name}"), svg);
}

/// How deep a binary trie of these prefixes goes towards a key.
struct Depth<'a, A: Addr>(&'a [Prefix<A>]);

impl<'a, A: Addr> Depth<'a, A> {
    /// Depths of prefixes by address, then length.
    fn new(prefixes: &'a [Prefix<A>]) -> Self {
        Self(prefixes)
    }

    /// The two prefixes around the key share the most with it: one whose address lies further off shares
    /// less with the key than one of these.
    fn of(&self, key: A) -> u8 {
        let at = self.0.partition_point(|prefix| prefix.addr() <= key);
        let before = at.checked_sub(1).map(|at| self.0[at]);
        let common = |prefix: &Prefix<A>| {
            let differs = (prefix.addr().to_u128() ^ key.to_u128()) << (128 - u32::from(A::BITS));
            let common = differs.leading_zeros().min(u32::from(A::BITS));
            u8::try_from(common).unwrap_or(A::BITS).min(prefix.len())
        };
        before.iter().chain(self.0.get(at)).map(common).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fingerpost_lpm::testing::Rng;

    #[test]
    fn depth_is_that_of_the_slides() {
        let prefix = |text: &str| text.parse::<Prefix<u32>>().unwrap();
        let prefixes = ["0.0.0.0/0", "0.0.0.0/2", "64.0.0.0/3", "128.0.0.0/1"].map(prefix);
        let depth = Depth::new(&prefixes);
        let keys = [0x0100_0000u32, 0x4100_0000, 0x6100_0000, 0x8100_0000];
        assert_eq!(keys.map(|key| depth.of(key)), [2, 3, 2, 1]);
        assert_eq!(Depth::<u32>::new(&[]).of(7), 0);
    }

    #[test]
    fn depth_agrees_with_a_walk() {
        let mut rng = Rng::new(5);
        let mut prefixes: Vec<Prefix<u32>> = (0..300)
            .map(|_| Prefix::masked(rng.addr::<u32>() & 0x3fff_ffff, 4 + (rng.word() % 29) as u8))
            .collect();
        prefixes.sort_unstable();
        let depth = Depth::new(&prefixes);
        for _ in 0..2000 {
            let key = rng.addr::<u32>() & 0x7fff_ffff;
            let node = |&len: &u8| {
                let path = Prefix::masked(key, len);
                prefixes.iter().any(|p| p.len() >= len && path.contains(p.addr()))
            };
            let want = (0..=32).rev().find(node).unwrap();
            assert_eq!(depth.of(key), want, "{key:#x}");
        }
    }

    #[test]
    fn percentiles_leave_interrupts_out() {
        let cycles = sorted(&[30, 10, 20, 1_000_000]);
        assert_eq!((quantile(&cycles, 0.5), quantile(&cycles, 1.0)), (20, 30));
        assert_eq!(quantile(&[], 0.5), 0);
    }
}
