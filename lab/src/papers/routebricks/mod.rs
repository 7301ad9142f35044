//! RouteBricks: one server as a router, by what is done to a packet, by batches, and by who touches it; and a cluster of
//! servers.
//!
//! Source: Dobrescu, Egi, Argyraki, Chun, Fall, Iannaccone, Knies, Manesh, Ratnasamy, "RouteBricks: Exploiting
//! Parallelism to Scale Software Routers", SOSP 2009. Differs: there are no network cards. Packets come from memory and
//! end in memory, and where the paper speaks of descriptors that a card takes at once (kn) it is a ring in shared memory
//! here, whose frames are shown to the other side in such groups.

mod cluster;
mod rig;

use anyhow::Result;

use self::rig::{Bed, Feeding, Lengths, Line, Side, Work};
use super::Paper;
use super::page::{figure, ratio, short, table};
use crate::document::{Kind, Run, Unit};
use crate::measure::{Measured, Plan, Turn, alternate, alternate_told, sample_together};
use crate::table::Table;

/// Bits of the shortest frame as the paper counts them.
const SHORT_BITS: f64 = 64.0 * 8.0;
/// Cores of the paper's server.
const CORES_THERE: f64 = 8.0;

/// The section of one table.
pub(super) fn section(paper: &mut Paper<'_>, of: &Table<u32>) -> Result<()> {
    let name = short(&of.file).to_owned();
    let bed = Bed::new(of, paper.options.seed)?;
    let plan = Plan::new(paper.options.seconds, paper.options.samples);
    let mut runs = work(paper, &bed, &name, plan)?;
    runs.extend(batches(paper, &bed, plan)?);
    runs.extend(placements(paper, &bed, plan)?);
    paper.keep(&name, &mut runs);
    cluster::prediction(paper, &name, of)?;
    // The rest depends on no table: once a page.
    if !paper.text.contains(cluster::HEADING) {
        cluster::section(paper);
    }
    Ok(())
}

fn new_run(name: String, unit: Unit, (checked, wrong): (u64, u64)) -> Run {
    let mut run = Run::new(&name, Kind::Ours, "prefix", unit);
    run.family = Some(4);
    run.set_answers(checked, wrong);
    run
}

/// Millions a second of a run in nanoseconds.
fn millions(run: &Run) -> Option<f64> {
    run.median.map(|ns| 1e3 / ns)
}

/// Minimal forwarding beside routing, short frames beside a mix.
fn work(paper: &mut Paper<'_>, bed: &Bed, name: &str, plan: Plan) -> Result<Vec<Run>> {
    let kinds = [
        ("minimal-64", Work::Minimal, Lengths::Short, Some(9.7)),
        ("minimal-mix", Work::Minimal, Lengths::Mixed, None),
        ("routing-64", Work::Routing, Lengths::Short, Some(6.35)),
        ("routing-mix", Work::Routing, Lengths::Mixed, None),
    ];
    let (mut runs, mut lines) = (Vec::new(), Vec::new());
    for (name, work, lengths, _) in kinds {
        let (line, checked) = Line::checked(bed, work, lengths)?;
        runs.push(new_run(format!("routebricks-{name}"), Unit::NsPerPacket, checked));
        lines.push(line);
    }
    let mut measured: Vec<_> = lines.iter_mut().map(|line| line as &mut dyn Measured).collect();
    for (run, samples) in runs.iter_mut().zip(alternate(&mut measured, plan)) {
        run.set_samples(samples);
    }
    paper.say(&format!(
        "### RouteBricks: what is done to a packet ({name})\n\nThere: one server, two Nehalem with {CORES_THERE} cores \
         together, 256 K routes; 9.7 Gbps of 64-byte frames\nforwarded and 6.35 routed (the processors are the limit), \
         24.6 of real traffic either way (the cards are). Ours: one\ncore, from memory to memory, so that no byte behind \
         the headers is touched and only packets count; the mix is 64, 570\nand 1,518 bytes as 7 to 4 to 1. There, a \
         core's part."
    ));
    let rows: Vec<_> = runs
        .iter()
        .zip(kinds)
        .map(|(run, (name, .., there))| {
            let there = there.map(|gbps: f64| gbps * 1e3 / SHORT_BITS / CORES_THERE);
            vec![
                name.to_owned(),
                figure(there, 2),
                figure(millions(run), 1),
                figure(run.median, 1),
                figure(ratio(run.median, runs[0].median), 2),
            ]
        })
        .collect();
    let headings = ["a core", "there, M/s", "ours, M/s", "ns a packet", "of minimal-64"];
    table(&mut paper.text, &headings, &rows);
    Ok(runs)
}

/// Packets polled at once (kp), and shown to the device at once (kn).
fn batches(paper: &mut Paper<'_>, bed: &Bed, plan: Plan) -> Result<Vec<Run>> {
    let kinds = [(1, 1, Some(1.46)), (32, 1, Some(4.97)), (32, 16, Some(9.77)), (256, 256, None)];
    let mut feedings = Vec::new();
    for (kp, kn, _) in kinds {
        feedings.push(Feeding::new(bed, kp, kn)?);
    }
    let mut measured: Vec<_> =
        feedings.iter_mut().map(|feeding| feeding as &mut dyn Measured).collect();
    let samples = alternate(&mut measured, plan);
    let mut runs = Vec::new();
    for ((feeding, samples), (kp, kn, _)) in feedings.iter().zip(samples).zip(kinds) {
        let name = format!("routebricks-kp{kp}-kn{kn}");
        let mut run = new_run(name, Unit::NsPerPacket, feeding.checked());
        run.set_samples(samples);
        runs.push(run);
    }
    paper.say(
        "### RouteBricks: batches\n\nThere: Gbps of 64-byte minimal forwarding, by packets polled at once (kp) and \
         descriptors a card takes at once (kn).\nOurs: minimal forwarding from ring to ring, both filled and emptied by \
         the same core in batches of 256, which is in the\nfigures; kn is in how many frames a ring's counters move.",
    );
    let first = |at: usize| runs.get(at).and_then(millions);
    let rows: Vec<_> = runs
        .iter()
        .zip(kinds)
        .enumerate()
        .map(|(at, (run, (kp, kn, there)))| {
            vec![
                kp.to_string(),
                kn.to_string(),
                figure(there, 2),
                figure(there.map(|there| there / 1.46), 1),
                figure(millions(run), 1),
                figure(ratio(first(at), first(0)), 1),
            ]
        })
        .collect();
    let headings = ["kp", "kn", "there, Gbps", "times the first", "ours, M/s", "times the first"];
    table(&mut paper.text, &headings, &rows);
    Ok(runs)
}

/// Who touches a packet, and who a queue.
fn placements(paper: &mut Paper<'_>, bed: &Bed, plan: Plan) -> Result<Vec<Run>> {
    paper.say("### RouteBricks: cores and queues");
    if std::thread::available_parallelism().map_or(1, std::num::NonZero::get) < 2 {
        paper.say("skipped: needs two cores");
        return Ok(Vec::new());
    }
    type Build = fn(&Bed, Work) -> Result<Vec<Side>>;
    let kinds: [(&str, Build, Option<f64>); 5] = [
        ("one core for all", Side::alone, Some(1.7)),
        ("two cores, a queue each", Side::parallel, Some(1.7)),
        ("two cores, one after the other", Side::pipeline, Some(1.2)),
        ("two cores share the queue in", Side::shared_in, Some(1.1)),
        ("two cores share the queue out", Side::shared_out, Some(0.7)),
    ];
    let works = [("minimal", Work::Minimal), ("routing", Work::Routing)];
    let mut all = Vec::new();
    for (_, work) in works {
        for (_, build, _) in kinds {
            all.push(build(bed, work)?);
        }
    }
    let mut turns: Vec<Turn<'_>> = Vec::new();
    for sides in &mut all {
        turns.push(Box::new(|| {
            let mut members: Vec<_> = sides.iter_mut().map(Side::measured).collect();
            Some(sample_together(&mut members, plan))
        }));
    }
    let samples = alternate_told(&mut turns, plan.samples, &mut |_, _| ());
    drop(turns);
    let names = works.iter().flat_map(|work| kinds.iter().map(move |kind| (work.0, kind.0)));
    let mut runs = Vec::new();
    for (((work, kind), samples), sides) in names.zip(samples).zip(&all) {
        let name = format!("routebricks-{work}: {kind}");
        let mut run = new_run(name, Unit::Mpps, Side::checked(sides));
        run.threads = sides.len();
        run.set_samples(samples);
        runs.push(run);
    }
    paper.say(
        "There: Gbps of a forwarding path; a packet that goes from core to core, or a queue that two cores take turns \
         at,\ncosts more than the second core brings, and a queue for each core and port brings all of it. Ours: millions \
         of packets a\nsecond of both cores together, by the wall clock; in brackets the part of what as many cores alone \
         would do. One after\nthe other: the first core makes the packets and hands them to the second by a ring that \
         copies.",
    );
    let rows: Vec<_> = kinds
        .iter()
        .enumerate()
        .map(|(at, (kind, _, there))| {
            let mut cells = vec![(*kind).to_owned(), figure(*there, 1)];
            for work in 0..works.len() {
                let (run, alone) = (&runs[work * kinds.len() + at], &runs[work * kinds.len()]);
                #[allow(clippy::cast_precision_loss, reason = "one or two")]
                let as_many = alone.median.map(|one| one * run.threads as f64);
                let share = figure(ratio(run.median, as_many), 2);
                cells.push(format!("{} ({share})", figure(run.median, 1)));
            }
            cells
        })
        .collect();
    table(&mut paper.text, &["", "there, Gbps a path", "minimal", "routing"], &rows);
    Ok(runs)
}
