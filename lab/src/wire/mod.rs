//! `bench forward --path afxdp` and other ports: the router end to end, over real devices.
//!
//! Numbered packets, 64 bytes each, go from a generator on one core into the router on another, and what comes out is
//! compared with the oracle packet by packet. Over links ([`ends`]) both ends are programs in the kernel, over rings
//! ([`ring`]) another thread. Programs of others stand at the same place and take turns with ours.
//!
//! Each is first offered more than it takes: what arrives is its capacity. Then parts and multiples of that
//! ([`LOADS`]): how much arrives, whether a packet is missing or comes behind a later one; and at half the capacity how
//! long their latency is.

mod ends;
mod kernel;
mod latency;
mod ours;
mod packets;
mod ring;
pub(crate) mod testpmd;
mod watch;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use fingerpost_route::Control;

use crate::cores;
use crate::document::{BenchDocument, Kind, Run, Unit};
use crate::forward::stream::Stream;
use crate::forward::world::{self, Ports};
use crate::measure::{Turn, alternate_told};
use crate::table::Tables;
use crate::traffic::Generator;
use crate::xdp::lab::Lab;
use fingerpost_command::progress::Progress;

use ends::{Ends, KernelEnds, Load, Outcome};
use latency::Latency;
use packets::{Does, Packets};
use watch::Watch;

/// What to measure.
pub struct WireOptions {
    /// Route tables; those of IPv4 are taken.
    pub tables: Tables,
    /// Who takes turns.
    pub rows: Rows,
    /// Distinct destinations; a packet has a number of 16 bits.
    pub destinations: usize,
    /// Measuring time of each run.
    pub seconds: f64,
    /// Samples of each run.
    pub samples: usize,
    /// Seed of the destinations.
    pub seed: u64,
    /// Whether parts and multiples of the capacity are offered as well.
    pub loads: bool,
}

/// More destinations than that have no number.
pub const MOST_DESTINATIONS: usize = 1 << 16;
/// What is offered, as parts of the capacity.
const LOADS: [f64; 5] = [0.5, 0.9, 1.0, 2.0, 4.0];
/// The load at which latency is taken.
const LATENCY_AT: f64 = 0.5;
/// Short samples see too few packets.
const LEAST: Duration = Duration::from_millis(50);

/// Registry row: something that forwards.
pub struct Row {
    /// What options and documents call it.
    pub name: &'static str,
    /// One line.
    pub summary: &'static str,
    kind: Kind,
    /// Whether it uses the kernel's table.
    kernel_table: bool,
    does: Does,
    /// Starts it, with both ends.
    begin: for<'a> fn(&'a Stand) -> Result<Scene<'a>>,
}

/// Rows of the registry.
pub type Rows = Vec<&'static Row>;

/// Ours, by `--path`.
static PATHS: &[&Row] =
    &[&ours::AFXDP, &ours::AFXDP_TWO, &ours::AF_PACKET, &ours::TAP, &ours::RING];
/// Those of others, by `--peers`.
static PEERS: &[&Row] = &[&testpmd::TESTPMD, &kernel::KERNEL];

/// Paths over ports: `afxdp` stands for one worker and for two.
///
/// # Errors
/// When there is none of that name.
pub fn path(name: &str) -> Result<Rows> {
    let found: Rows = PATHS
        .iter()
        .copied()
        .filter(|row| row.name.strip_suffix("-2-workers").unwrap_or(row.name) == name)
        .collect();
    ensure!(!found.is_empty(), "no path {name}");
    Ok(found)
}

/// Programs of others: `testpmd` or `kernel`, in full or not.
pub fn peer(name: &str) -> Option<&'static Row> {
    PEERS.iter().copied().find(|row| row.name == name || row.name.split('-').next() == Some(name))
}

/// All of them.
pub fn peers() -> &'static [&'static Row] {
    PEERS
}

/// What all turns have in common.
struct Stand {
    /// Labs with a queue a link; and with two, where they are wanted.
    labs: Vec<Lab>,
    packets: Packets,
    control: Control,
    ports: Ports,
    /// Those that may be used: traffic has the first ones, the router the last.
    cores: Vec<usize>,
    scratch: PathBuf,
}

/// Something that forwards, with what is before and behind it.
struct Scene<'a> {
    // Dropped in this order.
    ends: Box<dyn Ends + 'a>,
    forwarder: Box<dyn Forwarder + 'a>,
}

/// Something that forwards until it is dropped.
trait Forwarder {
    /// Ends it; where the time went, if it knows.
    fn end(self: Box<Self>) -> String;
}

impl Stand {
    fn lab(&self, queues: usize) -> Result<&Lab> {
        self.labs.get(queues - 1).context("needs namespaces")
    }

    fn last_core(&self) -> usize {
        self.cores.last().copied().unwrap_or(0)
    }

    /// Ends of the links, outside, for so many queues.
    fn ends(&self, lab: &Lab, does: Does, queues: usize) -> Result<KernelEnds> {
        lab.outside.inside(|| self.ends_on(lab.source, &lab.far, does, queues))
    }

    /// Ends on these links of the present network namespace. What a CPU sends comes by the queue of its number.
    fn ends_on(&self, source: u32, far: &[u32], does: Does, queues: usize) -> Result<KernelEnds> {
        let packets = &self.packets;
        let mut generators = Vec::new();
        for &core in self.cores.iter().take(queues) {
            generators.push((core, Generator::stamped(&packets.templates, source)?));
        }
        let mut watch = Watch::new(packets.meter(does)?, packets.len)?;
        for (&link, output) in far.iter().zip(&world::LINKS[1..]) {
            watch.attach(link, world::link_mac(*output).0)?;
        }
        Ok(KernelEnds::new(generators, watch, packets.templates.len()))
    }
}

/// One of those that take turns, and what came of it so far.
struct Subject {
    row: &'static Row,
    failed: Option<String>,
    told: String,
    /// Outcomes of the capacity, then of each load.
    offers: Vec<Vec<Outcome>>,
}

impl Subject {
    fn new(row: &'static Row) -> Self {
        let offers = vec![Vec::new(); 1 + LOADS.len()];
        Self { row, failed: None, told: String::new(), offers }
    }

    /// Starts it and offers each of `loads`: the number of an offer, and the load.
    fn turn(&mut self, stand: &Stand, loads: &[(usize, Load)]) -> Result<f64> {
        let mut scene = (self.row.begin)(stand)?;
        scene.ends.warm()?;
        let mut mpps = 0.0;
        for &(number, load) in loads {
            let outcome = scene.ends.offer(load)?;
            ensure!(outcome.arrived > 0, "nothing came out");
            mpps = outcome.mpps;
            self.offers[number].push(outcome);
        }
        let told = scene.forwarder.end();
        if loads.len() == 1 {
            self.told = told;
        }
        Ok(mpps)
    }

    /// Millions of packets a second, in the median.
    fn capacity(&self) -> Option<f64> {
        let mut run = self.blank("", Unit::Mpps);
        run.set_samples(self.offers[0].iter().map(|outcome| outcome.mpps).collect());
        run.median
    }

    fn blank(&self, what: &str, unit: Unit) -> Run {
        let name = format!("{}{what}", self.row.name);
        let mut run = Run::new(&name, self.row.kind, Stream::Prefix.name(), unit);
        run.family = Some(4);
        run.threads = if self.row.name.ends_with("-2-workers") { 2 } else { 1 };
        run
    }

    /// What came of one offer. Where more was offered than can be taken, what did not arrive is no fault.
    fn offered(&self, what: &str, number: usize) -> Run {
        let mut run = self.blank(what, Unit::Mpps);
        let outcomes = &self.offers[number];
        run.set_samples(outcomes.iter().map(|outcome| outcome.mpps).collect());
        let sum = |of: fn(&Outcome) -> u64| outcomes.iter().map(of).sum::<u64>();
        run.set_answers(sum(|o| o.arrived), sum(|o| o.wrong));
        run.sent = Some(sum(|o| o.sent));
        run.reordered = Some(sum(|o| o.late));
        run.losses = outcomes.iter().map(|o| o.sent.saturating_sub(o.arrived)).collect();
        let mut rates: Vec<f64> = outcomes.iter().map(|o| o.offered).collect();
        rates.sort_by(f64::total_cmp);
        run.offered = rates.get(rates.len() / 2).copied();
        run.note = format!(
            "offered {:.3} Mpps; {} of {} packets did not arrive, {} late",
            run.offered.unwrap_or(0.0),
            run.losses.iter().sum::<u64>(),
            run.sent.unwrap_or(0),
            run.reordered.unwrap_or(0)
        );
        run
    }

    /// All runs of the document.
    fn runs(&self, options: &WireOptions) -> Vec<Run> {
        let mut capacity = self.offered("", 0);
        if let Some(why) = &self.failed {
            let mut run = self.blank("", Unit::Mpps);
            run.note = format!("skipped: {why}");
            return vec![run];
        }
        capacity.destinations = Some(options.destinations);
        if !self.told.is_empty() {
            capacity.note += &format!("; {}", self.told);
        }
        if self.row.does == Does::Hands {
            capacity.note +=
                "; no lookup: two MACs are written, and all else is checked to be as it was";
        }
        let mut runs = vec![capacity];
        if !options.loads {
            return runs;
        }
        let (mut least, mut latency) = (f64::INFINITY, Latency::default());
        for (number, part) in (1..).zip(LOADS) {
            let run = self.offered(&format!(":load-{part}"), number);
            if part >= 1.0 {
                least = least.min(run.median.unwrap_or(0.0));
            }
            if part == LATENCY_AT {
                self.offers[number].iter().for_each(|outcome| latency.merge(&outcome.latency));
            }
            runs.push(run);
        }
        if let Some(whole) = self.capacity() {
            let mut run = self.blank(":flatness", Unit::Share);
            run.set_samples(vec![least / whole]);
            run.note =
                "the least of what arrived at 1, 2 and 4 times the capacity, as a part of it"
                    .into();
            runs.push(run);
        }
        let mut run = self.blank(":latency", Unit::Us);
        (run.median, run.p99) = (latency.per_mille(500), latency.per_mille(990));
        run.p999 = latency.per_mille(999);
        #[allow(clippy::cast_precision_loss, reason = "nanoseconds of a run")]
        let longest = latency.max_ns as f64 / 1e3;
        run.max = (latency.count() > 0).then_some(longest);
        run.note =
            format!("{} packets at half the capacity, from generator to sink", latency.count());
        runs.push(run);
        runs
    }
}

/// Measures. What cannot be had here leaves a run with a note that names the requirement.
///
/// # Errors
/// When there is no table of IPv4, or a number of destinations that cannot be.
pub fn wire(options: &WireOptions, progress: &mut Progress) -> Result<BenchDocument> {
    ensure!((1..=MOST_DESTINATIONS).contains(&options.destinations), "1 to 65536 destinations");
    ensure!(!options.rows.is_empty(), "no path");
    // The thread that sends is kept on one core and goes in and out of namespaces.
    let measured = std::thread::scope(|scope| {
        let work = scope.spawn(|| measure(options, progress));
        work.join().map_err(|_| anyhow::anyhow!("the measuring thread ended"))?
    });
    let runs = match measured {
        Ok(runs) => runs,
        Err(error) => {
            let skipped = |row: &&'static Row| {
                let mut subject = Subject::new(row);
                subject.failed = Some(format!("{error:#}"));
                subject.runs(options)
            };
            options.rows.iter().flat_map(skipped).collect()
        }
    };
    options.tables.document(runs)
}

fn measure(options: &WireOptions, progress: &mut Progress) -> Result<Vec<Run>> {
    let Some(table) = &options.tables.v4 else { bail!("needs a table of IPv4") };
    let cores = cores::allowed();
    if let Some(&first) = cores.first() {
        cores::keep_on(first);
    }
    progress.stage("namespaces");
    let two = options.rows.iter().any(|row| row.name.ends_with("-2-workers")) && cores.len() >= 4;
    let mut labs = Vec::new();
    for queues in 1..=if two { 2 } else { 1 } {
        labs.push(Lab::new(queues)?);
    }
    if options.rows.iter().any(|row| row.kernel_table) {
        progress.stage("the kernel's table");
        labs[0].fill(&options.tables.only(4))?;
    }
    progress.stage("tables");
    let (control, ports) = world::build(&options.tables.only(4), None, None, None)?;
    let packets = Packets::new(table, options.destinations, options.seed)?;
    let scratch = labs[0].router.file("rings");
    std::fs::create_dir_all(&scratch)?;
    let stand = Stand { labs, packets, control, ports, cores, scratch };

    let mut subjects: Vec<_> = options.rows.iter().map(|row| Subject::new(row)).collect();
    #[allow(clippy::cast_precision_loss, reason = "a small number")]
    let time = Duration::from_secs_f64(options.seconds / options.samples.max(1) as f64).max(LEAST);
    rounds(&stand, &mut subjects, options.samples, progress, "", |_| {
        vec![(0, Load { interval_ns: 0, time })]
    });
    if options.loads {
        let samples = options.samples.saturating_sub(1);
        rounds(&stand, &mut subjects, samples, progress, " loads", |subject| {
            let Some(mpps) = subject.capacity() else { return Vec::new() };
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive")]
            let load =
                |part: f64| Load { interval_ns: (1e3 / (part * mpps)).max(1.0) as u64, time };
            (1..).zip(LOADS.map(load)).collect()
        });
    }
    progress.done();
    Ok(subjects.iter().flat_map(|subject| subject.runs(options)).collect())
}

/// Every subject's turn in each round. Of the capacity the first round does not count; before loads there was that.
fn rounds(
    stand: &Stand,
    subjects: &mut [Subject],
    samples: usize,
    progress: &mut Progress,
    what: &str,
    loads: impl Fn(&Subject) -> Vec<(usize, Load)>,
) {
    let (mut names, mut turns): (Vec<String>, Vec<Turn<'_>>) = (Vec::new(), Vec::new());
    for subject in subjects {
        if subject.failed.is_some() {
            continue;
        }
        names.push(format!("{}{what}", subject.row.name));
        let loads = loads(subject);
        let mut first = loads.len() == 1;
        turns.push(Box::new(move || {
            let result = subject.turn(stand, &loads);
            if std::mem::take(&mut first) {
                loads.iter().for_each(|&(number, _)| subject.offers[number].clear());
            }
            result.map_err(|error| subject.failed = Some(format!("{error:#}"))).ok()
        }));
    }
    let all = names.len() * (samples + 1);
    // The samples are in the outcomes.
    let _ = alternate_told(&mut turns, samples, &mut |i, done| progress.step(&names[i], done, all));
}

#[cfg(test)]
mod tests;
