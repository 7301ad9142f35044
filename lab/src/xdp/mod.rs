//! `bench xdp`: forwarding inside the kernel, one core, no packet in user space.
//!
//! A generator in the kernel puts 64-byte packets into one end of a veth pair; at the other end stands
//! the router, as an XDP program or as the kernel itself; by two more pairs they leave, to programs
//! that compare every packet with what must arrive and take the time ([`crate::traffic::meter`]).
//! Everything runs on one core, in namespaces of its own ([`lab`]). The rows are in [`engine`]; the
//! kernel's table and ours are the same. Each turn is at least 2^18 packets, after one pass over all
//! destinations that does not count. What a program costs by itself is a run of its own (`program:`).

pub(crate) mod engine;
pub(crate) mod lab;
mod updates;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use fingerpost_io::xdp::Link;
use fingerpost_lpm::{Addr, NextHopId};
use fingerpost_packet::device::memory::HEADER_BYTES;

use crate::cores::pin;
use crate::document::{BenchDocument, Run, Unit};
use crate::forward::cluster::Input;
use crate::forward::features::{self, Crossing, Feature};
use crate::forward::stream::{self, Stream};
use crate::forward::world;
use crate::measure::{Turn, alternate_told};
use crate::table::{Table, Tables};
use crate::traffic::generator::{Feeder, WORTHWHILE};
use crate::traffic::meter::{Expected, Reading};
use crate::traffic::{Generator, Meter};
use fingerpost_command::progress::Progress;

use engine::{Engine, Frames, Internal, Ours, Row};
use lab::Lab;

pub use engine::{Names, find};

/// What to measure.
#[derive(Clone)]
pub struct XdpOptions {
    /// Route tables.
    pub tables: Tables,
    /// Which rows; those that [`find`] knows.
    pub engines: Names,
    /// How many distinct destinations, drawn from the routes; each number makes runs of its own. A
    /// packet has a number of 16 bits, so at most 65,536.
    pub destinations: Vec<usize>,
    /// Packets of a sample, at least [`LEAST_PACKETS`] for a number that means something.
    pub packets: u32,
    /// Samples of each run.
    pub samples: usize,
    /// Seed of the destinations.
    pub seed: u64,
    /// Interface features, each in a row of its own.
    pub features: Vec<&'static Feature>,
    /// Prefixes of the list of source filters.
    pub listed: usize,
}

/// Least packets: below that the fixed cost of a call shows.
pub const LEAST_PACKETS: u32 = WORTHWHILE;
/// More destinations than that have no number.
pub const MOST_DESTINATIONS: usize = 1 << 16;
/// Packets that warm up what is measured: every destination once.
const WARM: u32 = 1 << 16;
/// Packets of a sample where most of them are lost.
const MANY: u32 = 1 << 21;
/// Time from the last packet sent to the counts being final.
const DRAIN: Duration = Duration::from_millis(500);
/// Time between two reads of them.
const TICK: Duration = Duration::from_millis(1);

/// Packets of one family to so many destinations, and what must become of them.
struct Traffic {
    family: u8,
    frames: Frames,
    templates: Vec<Vec<u8>>,
    generator: RefCell<Generator>,
    meter: Meter,
    /// What identifies the outputs to the meter.
    ends: [[u8; 6]; 2],
}

impl Traffic {
    fn new<A: Addr>(
        lab: &Lab,
        table: &Table<A>,
        count: usize,
        options: &XdpOptions,
    ) -> Result<Self> {
        let seed = options.seed;
        if !options.features.is_empty() {
            let crossing = Crossing::draw(table, Stream::Prefix, count, seed)?;
            let number = |at| u16::try_from(at).expect("destinations are bounded");
            return Self::of(lab, &crossing.destinations, &crossing.headers(number));
        }
        let oracle = table.oracle();
        let found = stream::destinations(table, &oracle, Stream::Prefix, count, seed);
        Self::to(lab, table, &found)
    }

    /// Frames for a node of a cluster, with packets of IPv4.
    fn internal(
        lab: &Lab,
        table: &Table<u32>,
        count: usize,
        seed: u64,
        frames: Frames,
    ) -> Result<Self> {
        let oracle = table.oracle();
        // Of twice as many and some, as half of them may be for others.
        let mut found = stream::destinations(table, &oracle, Stream::Prefix, 3 * count, seed);
        found.retain(|(_, hop)| engine::are_for(frames, *hop));
        found.truncate(count);
        let Internal { templates, meter, ends } = engine::internal(&found, frames)?;
        let generator = lab.outside.inside(|| Ok(Generator::plain(&templates, lab.source)?))?;
        let generator = RefCell::new(generator);
        Ok(Self { family: 4, frames, templates, generator, meter, ends })
    }

    /// To these destinations, each with its next hop.
    fn to<A: Addr>(lab: &Lab, table: &Table<A>, found: &[(A, NextHopId)]) -> Result<Self> {
        ensure!(!found.is_empty(), "{}: no address to forward to", table.file);
        let headers =
            (0..=u16::MAX).zip(found).map(|(number, found)| world::header(found.0, number));
        Self::of(lab, found, &headers.collect::<Vec<_>>())
    }

    fn of<A: Addr>(
        lab: &Lab,
        found: &[(A, NextHopId)],
        headers: &[[u8; HEADER_BYTES]],
    ) -> Result<Self> {
        let len = usize::from(world::frame_len(A::FAMILY));
        let templates: Vec<_> = headers.iter().map(|header| header[..len].to_vec()).collect();
        let mut expected = Vec::new();
        for &(addr, hop) in found {
            expected.push(Expected {
                to: world::hop_mac(A::FAMILY, hop.0).0,
                from: world::link_mac(world::hop_link(hop.0)).0,
                destination: addr.to_ip(),
            });
        }
        let generator = lab.outside.inside(|| Ok(Generator::plain(&templates, lab.source)?))?;
        let meter = Meter::new(&expected, len, world::TTL - 1)?;
        let generator = RefCell::new(generator);
        let ends = [1, 2].map(|at: usize| world::link_mac(world::LINKS[at]).0);
        let (family, frames) = (A::FAMILY, Frames::Packets);
        Ok(Self { family, frames, templates, generator, meter, ends })
    }

    /// Ends at the far ends of the outputs.
    fn ends(&self, lab: &Lab) -> Result<Vec<Link>> {
        lab.outside.inside(|| {
            let pairs = lab.far.iter().zip(self.ends);
            let links = pairs.map(|(&far, end)| self.meter.attach(far, end));
            Ok(links.collect::<Result<_, _>>()?)
        })
    }
}

/// One run: a forwarder with its traffic, and the outcome so far.
struct Subject<'a> {
    lab: &'a Lab,
    engine: &'a dyn Engine,
    traffic: &'a Traffic,
    row: &'static Row,
    alone: bool,
    sent: u64,
    lost: u64,
    wrong: u64,
    failed: Option<String>,
}

impl Subject<'_> {
    /// Takes a sample: million packets a second, or nanoseconds a packet of the program alone.
    fn turn(&mut self, packets: u32) -> Result<f64> {
        let (lab, traffic, engine) = (self.lab, self.traffic, self.engine);
        lab.router.inside(|| {
            // What an engine leaves to the kernel must not arrive as if it had forwarded it.
            lab::set_forwarding(self.row.kernel_table)?;
            if self.alone {
                return engine.alone(&mut |program| {
                    Ok(Feeder::new(&traffic.templates, program)?.time(packets)?)
                });
            }
            let _ends = traffic.ends(lab)?;
            let _engine = engine.attach(&traffic.meter)?;
            let mut generator = traffic.generator.borrow_mut();
            generator.run(WARM.min(packets))?;
            settled(&traffic.meter, u64::MAX)?;
            traffic.meter.reset()?;
            let sent = generator.run(if self.row.loses { packets.max(MANY) } else { packets })?;
            let reading = settled(&traffic.meter, sent)?;
            self.sent += sent;
            self.lost += sent.saturating_sub(reading.arrived);
            self.wrong += reading.wrong;
            let arrived = || format!("{} of {sent} packets arrived", reading.arrived);
            Ok(1e3 / reading.ns_per_packet().with_context(arrived)?)
        })
    }
}

/// Waits until so many packets arrived, or for some time no more.
fn settled(meter: &Meter, sent: u64) -> Result<Reading> {
    let mut reading = meter.read()?;
    let mut since = Instant::now();
    let patience = if sent == u64::MAX { 10 * TICK } else { DRAIN };
    while reading.arrived < sent && since.elapsed() < patience {
        std::thread::sleep(TICK);
        let next = meter.read()?;
        if next.arrived != reading.arrived {
            since = Instant::now();
        }
        reading = next;
    }
    Ok(reading)
}

/// Measures. What may not be done here leaves runs with a note that names the requirement.
///
/// # Errors
/// When there is no table, or a number of destinations that cannot be.
pub fn xdp(options: &XdpOptions, progress: &mut Progress) -> Result<BenchDocument> {
    let with_customers;
    let options = if options.features.is_empty() {
        options
    } else {
        let tables = features::with_customers(&options.tables);
        with_customers = XdpOptions { tables, ..options.clone() };
        &with_customers
    };
    let tables = &options.tables;
    if tables.v4.is_none() && tables.v6.is_none() {
        bail!("no table");
    }
    for &count in &options.destinations {
        ensure!((1..=MOST_DESTINATIONS).contains(&count), "{count} destinations: 1 to 65536");
    }
    // Asked before, since it is the cores that this thread may use.
    let two_cores = std::thread::available_parallelism().is_ok_and(|cores| cores.get() > 1);
    // The thread that sends is kept on one core and goes in and out of namespaces.
    let measured = std::thread::scope(|scope| {
        let work = scope.spawn(|| {
            pin(1);
            measure(options, two_cores, progress)
        });
        work.join().map_err(|_| anyhow::anyhow!("the measuring thread ended"))?
    });
    let runs = measured.unwrap_or_else(|error| {
        let mut runs: Vec<_> = wanted(options).iter().map(Wanted::blank).collect();
        runs.iter_mut().for_each(|run| run.note = format!("skipped: {error:#}"));
        runs
    });
    tables.document(runs)
}

/// A run of the document.
#[derive(Clone, Copy)]
struct Wanted {
    family: u8,
    destinations: usize,
    row: &'static Row,
    /// What ours has on the ingress.
    feature: Option<&'static Feature>,
    /// Whether its program is timed by itself.
    alone: bool,
}

impl Wanted {
    /// What runs with the same one have in common.
    fn engine(&self) -> (&'static str, &'static str, u8) {
        (self.row.name, self.feature.map_or("", |feature| feature.name), self.family)
    }

    fn name(&self) -> String {
        let mut name = self.row.name(self.family);
        if let Some(feature) = self.feature {
            name += &format!("-{}", feature.name);
        }
        if self.alone { format!("program:{name}") } else { name }
    }

    /// Whether it is a node of a cluster, which `cluster-input` is measured beside.
    fn is_internal(&self) -> bool {
        self.row.frames != Frames::Packets
    }

    fn blank(&self) -> Run {
        let unit = if self.alone { Unit::NsPerPacket } else { Unit::Mpps };
        let mut run = Run::new(&self.name(), self.row.kind, Stream::Prefix.name(), unit);
        run.family = Some(self.family);
        run.destinations = Some(self.destinations);
        run
    }
}

/// Every run, in the order of the document.
fn wanted(options: &XdpOptions) -> Vec<Wanted> {
    let mut all = Vec::new();
    let families = [(4, options.tables.v4.is_some()), (6, options.tables.v6.is_some())];
    for (family, _) in families.into_iter().filter(|family| family.1) {
        for &destinations in &options.destinations {
            let plain = options.engines.iter().map(|&row| (row, None));
            let features = options.features.iter().map(|&feature| (&engine::OURS, Some(feature)));
            let rows: Vec<_> = plain.chain(features).collect();
            for (alone, &(row, feature)) in
                [false, true].iter().flat_map(|alone| rows.iter().map(move |row| (*alone, row)))
            {
                if (row.program || !alone) && row.frames.have(family) {
                    all.push(Wanted { family, destinations, row, feature, alone });
                }
            }
        }
    }
    all
}

fn measure(options: &XdpOptions, two_cores: bool, progress: &mut Progress) -> Result<Vec<Run>> {
    let (tables, wanted) = (&options.tables, wanted(options));
    progress.stage("namespaces");
    let mut lab = Lab::new(1)?;
    let mut traffics = Vec::new();
    for &count in &options.destinations {
        if let Some(table) = &tables.v4 {
            traffics.push((count, Traffic::new(&lab, table, count, options)?));
            for frames in [Frames::Input, Frames::Transit, Frames::Output] {
                if options.engines.iter().any(|row| row.frames == frames) {
                    let traffic = Traffic::internal(&lab, table, count, options.seed, frames);
                    traffics.push((count, traffic?));
                }
            }
        }
        if let Some(table) = &tables.v6 {
            traffics.push((count, Traffic::new(&lab, table, count, options)?));
        }
    }
    if options.engines.iter().any(|row| row.kernel_table) {
        progress.stage("the kernel's table");
        lab.fill(tables)?;
    }
    let mut engines = BTreeMap::new();
    for want in &wanted {
        if let Entry::Vacant(place) = engines.entry(want.engine()) {
            progress.stage(&want.name());
            place.insert(lab.router.inside(|| {
                match want.feature {
                    None => (want.row.make)(tables, want.family),
                    Some(feature) => Ours::with_feature(options, want.family, feature)
                        .map(|ours| Box::new(ours) as Box<dyn Engine>),
                }
            }));
        }
    }

    let mut runs: Vec<Run> = wanted.iter().map(Wanted::blank).collect();
    let mut subjects = Vec::new();
    for (number, want) in wanted.iter().enumerate() {
        let kind = (want.destinations, want.family, want.row.frames);
        let mut found = traffics.iter().filter(|(count, t)| (*count, t.family, t.frames) == kind);
        let traffic = &found.next().context("traffic of each kind")?.1;
        match &engines[&want.engine()] {
            Err(error) => runs[number].note = format!("skipped: {error:#}"),
            Ok(engine) => {
                let (lab, engine, Wanted { row, alone, .. }) = (&lab, engine.as_ref(), *want);
                let (sent, lost, wrong, failed) = (0, 0, 0, None);
                let subject =
                    Subject { lab, engine, traffic, row, alone, sent, lost, wrong, failed };
                subjects.push((number, subject));
            }
        }
    }
    let mut names: Vec<_> = subjects.iter().map(|subject| runs[subject.0].name.clone()).collect();
    let mut inputs = Vec::new();
    if let Some(table) = tables.v4.as_ref().filter(|_| wanted.iter().any(Wanted::is_internal)) {
        progress.stage("cluster-input");
        for &count in &options.destinations {
            inputs.push(Input::new(table, count, options.seed, options.samples)?);
        }
    }
    let packets = options.packets;
    let mut turns: Vec<Turn<'_>> = Vec::new();
    for (_, subject) in &mut subjects {
        turns.push(Box::new(|| {
            subject.turn(packets).map_err(|error| subject.failed = Some(format!("{error:#}"))).ok()
        }));
    }
    for input in &mut inputs {
        names.push(input.name().to_owned());
        turns.push(Box::new(|| Some(input.turn())));
    }
    let all = turns.len() * (options.samples + 1);
    let mut samples = alternate_told(&mut turns, options.samples, &mut |i, done| {
        progress.step(&names[i], done, all);
    });
    drop(turns);
    let of_inputs = samples.split_off(subjects.len());
    for ((number, subject), samples) in subjects.iter().zip(samples) {
        finish(&mut runs[*number], subject, samples);
    }
    compare(&mut runs);
    runs.extend(inputs.iter().zip(of_inputs).flat_map(|(input, samples)| input.runs(samples)));
    let ours = options.engines.iter().any(|row| row.name == engine::OURS.name);
    if ours && options.features.is_empty() {
        progress.stage("updates beside packets");
        runs.extend(updates::measure(&lab, options, two_cores));
    }
    progress.done();
    Ok(runs)
}

/// Notes what the rates of a cluster's node are as shares of a bare redirect.
fn compare(runs: &mut [Run]) {
    let is_bare = |run: &&Run| run.name == engine::BARE.name && run.family == Some(4);
    let bare: Vec<Run> = runs.iter().filter(is_bare).cloned().collect();
    for run in runs.iter_mut().filter(|run| run.name.starts_with("xdp-cluster-")) {
        let bare = bare.iter().find(|bare| bare.destinations == run.destinations);
        if let Some(share) = bare.and_then(|bare| run.share_of(bare)) {
            run.note += &format!("; {share:.2} of {}, by turn", engine::BARE.name);
        }
    }
}

/// Fills in what came of a subject.
fn finish(run: &mut Run, subject: &Subject<'_>, samples: Vec<f64>) {
    let row = subject.row;
    let count = subject.traffic.templates.len();
    run.destinations = Some(count);
    run.set_samples(samples);
    if row.checked && !subject.alone {
        // One core drops nothing by itself: what did not arrive was not forwarded.
        let lost = if row.loses { 0 } else { subject.lost };
        run.set_answers(subject.sent - subject.lost + lost, subject.wrong + lost);
    }
    if let Some(why) = &subject.failed {
        run.note.clone_from(why);
        return;
    }
    let bytes = subject.traffic.templates[0].len() + 4;
    let what = match run.median {
        Some(mpps) if !subject.alone => {
            format!("{:.0} ns a packet, generator and sink included", 1e3 / mpps)
        }
        _ => "without input and output".to_owned(),
    };
    run.note = format!("{what}; {count} destinations, {bytes} bytes a frame");
    if subject.lost > 0 {
        run.note += &format!("; {} of {} packets did not arrive", subject.lost, subject.sent);
    }
    if row.kernel_table && subject.lab.refused > 0 {
        run.note += &format!("; the kernel refused {} routes", subject.lab.refused);
    }
}

#[cfg(test)]
mod tests;
