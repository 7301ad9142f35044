//! The forwarding path from memory to memory: what a packet costs without I/O.
//!
//! A generator port, the graph of the built-in router, two sink ports; 64-byte packets to many distinct
//! destinations; one thread. The generator is measured alone as well (`generator`): a device would have
//! put the packet there. Before anything is timed, every destination crosses once and what arrives is
//! compared with the oracle: egress, MACs, TTL, checksum. Baselines do the same in turns with
//! ours (`outside.rs`); what each element takes is measured in turns of its own (`elements.rs`).

mod chain;
mod click;
pub(crate) mod cluster;
mod elements;
pub(crate) mod features;
mod filters;
mod floor;
mod graphs;
mod ip_router;
mod nat;
mod outside;
pub(crate) mod stream;
pub(crate) mod world;

use std::cell::RefCell;
use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use anyhow::{Result, ensure};
use fingerpost_lpm::{Addr, NextHopId, Rng};
use fingerpost_packet::device::BURST;
use fingerpost_packet::device::memory::{Generator, HEADER_BYTES, Sink};
use fingerpost_packet::frame::counters::WorkerCounters;
use fingerpost_packet::frame::{Batch, Meta, Pool};
use fingerpost_packet::graph::Plan as GraphPlan;
use fingerpost_packet::graph::worker::{Worker, WorkerOptions};
use fingerpost_packet::{Port, router_graph};
use fingerpost_route::{Control, Forwarding, Reader};

pub use features::{Feature, find as find_features};
pub use stream::Stream;

use crate::document::{BenchDocument, Kind, Run, Unit};
use crate::measure::{Clock, Measured, Plan, Turn, alternate_told, sample, sample_beside};
use crate::peer::{LOAD_LIMIT, Row};
use crate::table::{Table, Tables};

use features::{Crossing, Running};

/// What to measure.
#[derive(Clone, Debug)]
pub struct ForwardOptions {
    /// Routes of one family or both.
    pub tables: Tables,
    /// The IPv4 algorithm; `None` leaves the choice to the FIB.
    pub algorithm_v4: Option<String>,
    /// The IPv6 algorithm.
    pub algorithm_v6: Option<String>,
    /// Which destinations.
    pub streams: Vec<Stream>,
    /// How many distinct ones.
    pub destinations: usize,
    /// Packets taken at once.
    pub burst: usize,
    /// Measuring time of each run.
    pub seconds: f64,
    /// Samples of each run, at least 9.
    pub samples: usize,
    /// Seed of the destinations.
    pub seed: u64,
    /// Whether what each element takes is measured too.
    pub elements: bool,
    /// Routers of others, of [`crate::peer::find_loops`].
    pub peers: Vec<&'static Row>,
    /// How long each of them may take to load the table.
    pub load_limit: Duration,
    /// Lists of source prefixes that packets pass besides, in runs of their own.
    pub filters: usize,
    /// Prefixes of each.
    pub listed: usize,
    /// Interface features, each in runs of its own beside those without.
    pub features: Vec<&'static Feature>,
    /// Whether what a packet costs a node of a cluster is measured too.
    pub cluster: bool,
    /// Mappings of the tables of address translation, in runs of their own; 0 for none.
    pub mappings: usize,
    /// Whether short graphs of Click's users, and Click's IP router, are measured too.
    pub click: bool,
    /// Instead of measuring time: sends about that many packets of each run through
    /// [`counted_section`], for callgrind.
    pub instructions: Option<u64>,
}

impl Default for ForwardOptions {
    fn default() -> Self {
        Self {
            tables: Tables::default(),
            algorithm_v4: None,
            algorithm_v6: None,
            streams: Stream::ALL.to_vec(),
            destinations: 65_536,
            burst: BURST,
            seconds: 2.0,
            samples: 9,
            seed: 1,
            elements: true,
            peers: Vec::new(),
            load_limit: LOAD_LIMIT,
            filters: 0,
            listed: 1_000_000,
            features: Vec::new(),
            cluster: false,
            mappings: 0,
            click: false,
            instructions: None,
        }
    }
}

/// Frames of a path's pool: enough for those in use, few enough to stay in the cache, as a device
/// with a small ring would leave them.
pub(crate) const FRAMES: u32 = 512;

/// An odd number of cache lines, as pools of DPDK have it: frames of 2,048 bytes all begin in two of the 64 sets of
/// a first-level cache, which then holds 16 of them.
const FRAME_BYTES: u16 = 2048 + 64;

/// Rounds between two looks at the clock.
pub(crate) const ROUNDS: usize = 64;

pub(crate) fn counters() -> Arc<WorkerCounters> {
    Arc::new(WorkerCounters::new(8, 65_536))
}

pub(crate) fn worker_of(
    plan: &GraphPlan,
    pool: Pool,
    reader: Reader<Forwarding>,
    counters: Arc<WorkerCounters>,
    commands: mpsc::Receiver<fingerpost_packet::Command>,
) -> Worker {
    let (requests, _) = mpsc::sync_channel(1);
    let (events, _) = mpsc::channel();
    Worker::new(WorkerOptions {
        plan,
        pool,
        reader,
        counters,
        commands,
        requests,
        events,
        flow_seed: 0,
    })
}

/// A worker between a generator and two sinks.
struct Path {
    plan: GraphPlan,
    counters: Arc<WorkerCounters>,
    worker: Worker,
    ports: world::Ports,
    pool: Pool,
    headers: Arc<[[u8; HEADER_BYTES]]>,
    family: u8,
    /// Bytes of a frame.
    len: u16,
    /// Kept, since a worker without anybody who could stop it ends.
    _commands: mpsc::Sender<fingerpost_packet::Command>,
}

impl Path {
    fn new(
        plan: GraphPlan,
        reader: Reader<Forwarding>,
        ports: world::Ports,
        family: u8,
        headers: Arc<[[u8; HEADER_BYTES]]>,
        burst: usize,
    ) -> Self {
        Self::of_pool(&Pool::new(FRAMES, FRAME_BYTES), plan, reader, ports, family, headers, burst)
    }

    /// A worker whose frames are of this pool.
    fn of_pool(
        pool: &Pool,
        plan: GraphPlan,
        reader: Reader<Forwarding>,
        ports: world::Ports,
        family: u8,
        headers: Arc<[[u8; HEADER_BYTES]]>,
        burst: usize,
    ) -> Self {
        let pool = pool.clone();
        let (commands, orders) = mpsc::channel();
        let counters = counters();
        let mut worker = worker_of(&plan, pool.clone(), reader, counters.clone(), orders);
        worker.set_burst(burst);
        let len = world::frame_len(family);
        Self { plan, counters, worker, ports, pool, headers, family, len, _commands: commands }
    }

    fn generator(&self) -> Generator {
        Generator::new(&self.pool, self.headers.clone(), self.len)
    }

    /// Makes the sinks only count from now on; the generator never ends.
    fn free_run(&mut self) {
        self.worker.add_port(self.ports.input, Box::new(self.generator()));
        for port in self.ports.out {
            self.worker.add_port(port, Box::new(Sink::new()));
        }
    }

    /// Sends every destination once and looks at all that arrives: how many arrived, and how many of
    /// them were wrong or did not arrive at all.
    fn check<A: Addr>(&mut self, destinations: &[(A, NextHopId)]) -> (u64, u64) {
        self.check_of(destinations, destinations.len() as u64)
    }

    /// Sends so many packets, of which only those to `destinations` may arrive.
    fn check_of<A: Addr>(&mut self, destinations: &[(A, NextHopId)], sent: u64) -> (u64, u64) {
        let left: HashMap<A, u32> = destinations.iter().map(|d| (d.0, d.1.0)).collect();
        let left = Mutex::new(left);
        self.check_frames(sent, destinations.len() as u64, move |way, frame| {
            let mut left = left.lock().expect("one thread");
            let hop = world::destination::<A>(frame).and_then(|dst| left.remove(&dst));
            hop.is_some_and(|hop| world::egress_of(hop) == way && world::check::<A>(frame, hop))
        })
    }

    /// Sends so many packets, of which `count` are to arrive, each as `is_right` wants it of a frame that leaves by an
    /// egress: how many arrived, and how many of them were wrong or did not arrive at all.
    fn check_frames(
        &mut self,
        sent: u64,
        count: u64,
        is_right: impl Fn(usize, &[u8]) -> bool + Send + Sync + 'static,
    ) -> (u64, u64) {
        let watched = self.watch(is_right);
        self.worker.add_port(self.ports.input, Box::new(self.generator().limit(sent)));
        while self.worker.round() > 0 {}
        watched.verdict(count)
    }

    /// Looks at all frames that leave.
    fn watch(
        &mut self,
        is_right: impl Fn(usize, &[u8]) -> bool + Send + Sync + 'static,
    ) -> Watched {
        let (is_right, watched) = (Arc::new(is_right), Watched::default());
        for (way, port) in self.ports.out.into_iter().enumerate() {
            let (is_right, Watched { seen, right }) = (is_right.clone(), watched.clone());
            let look = move |frame: &[u8], _: &Meta| {
                seen.fetch_add(1, Relaxed);
                if is_right(way, frame) {
                    right.fetch_add(1, Relaxed);
                }
            };
            self.worker.add_port(port, Box::new(Sink::new().check(1, Box::new(look))));
        }
        watched
    }
}

/// Frames that left a path, and how many of them were right.
#[derive(Clone, Default)]
struct Watched {
    seen: Arc<AtomicU64>,
    right: Arc<AtomicU64>,
}

impl Watched {
    /// How many arrived, and how many of them were wrong or, of `count`, did not arrive at all.
    fn verdict(&self, count: u64) -> (u64, u64) {
        let (seen, right) = (self.seen.load(Relaxed), self.right.load(Relaxed));
        let wrong = count.saturating_sub(right).max(seen.saturating_sub(right));
        (seen.max(wrong), wrong)
    }
}

impl Path {
    /// Sends all packets once: what the turns of others took out of the caches of the core is there again. A short sample
    /// would measure that they are not, and more so for paths that have fewer turns.
    fn pass(&mut self) {
        let (mut sent, count) = (0, self.headers.len() as u64);
        while sent < count {
            sent += self.work().max(1);
        }
    }
}

impl Measured for Path {
    fn work(&mut self) -> u64 {
        let mut packets = 0;
        for _ in 0..ROUNDS {
            packets += self.worker.round() as u64;
        }
        packets
    }
}

/// Takes packets from a generator and frees them at once.
struct Alone {
    generator: Generator,
    batch: Box<Batch>,
    burst: usize,
}

impl Measured for Alone {
    fn work(&mut self) -> u64 {
        let mut packets = 0;
        for _ in 0..ROUNDS {
            self.batch.set_limit(self.burst);
            packets += self.generator.recv(&mut self.batch).unwrap_or(0) as u64;
            self.batch.clear();
        }
        packets
    }
}

/// The rounds that callgrind is to count (`--toggle-collect='*counted_section*'`): whole rounds until
/// at least `packets` were received. Returns their number.
#[inline(never)]
pub fn counted_section(worker: &mut Worker, packets: u64) -> u64 {
    let mut done = 0;
    while done < packets {
        done += worker.round() as u64;
    }
    done
}

/// A router of another with one stream.
type Loop = outside::Outside<u32>;

/// What is to be measured.
#[derive(Default)]
struct Prepared {
    paths: Vec<(Run, Path)>,
    chains: Vec<(Run, chain::Chain)>,
    floors: Vec<(Run, floor::Floor)>,
    /// Paths that are measured while the second one is at work on another core.
    pairs: Vec<(Run, [Path; 2])>,
    loops: Vec<(Run, RefCell<Loop>)>,
    /// What cannot be, with the reason.
    left_out: Vec<Run>,
    /// Features of the paths: what they hold is there as long as they are measured.
    features: Vec<Running>,
}

/// Prepares routers of others for the destinations of a stream, and the frames to them.
type Loops<'a, A> = dyn FnMut(&str, &[(A, NextHopId)], &[[u8; HEADER_BYTES]], &mut Prepared) + 'a;

/// Draws the destinations of each stream, prepares our path and sends to all of them; `loops` are
/// handed the same frames.
fn prepare<A: Addr>(
    table: &Table<A>,
    options: &ForwardOptions,
    control: &Control,
    ports: world::Ports,
    (algorithm, wanted): (&str, Option<&str>),
    prepared: &mut Prepared,
    loops: &mut Loops<'_, A>,
) -> Result<()> {
    let name = format!("graph-v{}", A::FAMILY);
    if let Some(wanted) = wanted.filter(|wanted| *wanted != algorithm) {
        // The FIB took another one, as it must; that is not what was asked for.
        for stream in &options.streams {
            let mut run = Run::new(&name, Kind::Ours, stream.name(), Unit::NsPerPacket);
            run.family = Some(A::FAMILY);
            run.note = format!("limit exceeded: {wanted} cannot hold the table");
            prepared.left_out.push(run);
        }
        return Ok(());
    }
    for &stream in &options.streams {
        let (found, headers) = packets(table, options, stream)?;
        let (plan, reader) = (router_graph::plan()?, control.reader());
        let mut path = Path::new(plan, reader, ports, A::FAMILY, headers.clone(), options.burst);
        let (checked, wrong) = path.check(&found);
        let mut run = Run::new(&name, Kind::Ours, stream.name(), Unit::NsPerPacket);
        run.family = Some(A::FAMILY);
        run.set_answers(checked, wrong);
        run.note = format!(
            "{} destinations, {algorithm}, {} bytes a frame, generator included",
            found.len(),
            world::frame_len(A::FAMILY) + 4
        );
        path.free_run();
        prepared.paths.push((run, path));
        loops(stream.name(), &found, &headers, prepared);
    }
    Ok(())
}

/// Headers of packets that the generator sends in turn.
type Headers = Arc<[[u8; HEADER_BYTES]]>;

/// Destinations of a stream, and packets to them; with features they come from customers.
fn packets<A: Addr>(
    table: &Table<A>,
    options: &ForwardOptions,
    stream: Stream,
) -> Result<(Vec<(A, NextHopId)>, Headers)> {
    let mut flows = Rng::new(options.seed);
    let mut flow = || {
        let [.., a, b] = flows.word().to_be_bytes();
        u16::from_be_bytes([a, b])
    };
    if !options.features.is_empty() {
        let crossing = Crossing::draw(table, stream, options.destinations, options.seed)?;
        let headers = crossing.headers(|_| flow()).into();
        return Ok((crossing.destinations, headers));
    }
    let oracle = table.oracle();
    let found = stream::destinations(table, &oracle, stream, options.destinations, options.seed);
    ensure!(!found.is_empty(), "{}: no address to forward to", table.file);
    let headers = found.iter().map(|found| world::header(found.0, flow())).collect();
    Ok((found, headers))
}

/// The path with each feature on its ingress, a run for each stream.
fn prepare_features<A: Addr>(
    table: &Table<A>,
    options: &ForwardOptions,
    prepared: &mut Prepared,
) -> Result<()> {
    for feature in &options.features {
        for &stream in &options.streams {
            let crossing = Crossing::draw(table, stream, options.destinations, options.seed)?;
            let (mut control, ports) = world::build(
                &options.tables.only(A::FAMILY),
                options.algorithm_v4.as_deref(),
                options.algorithm_v6.as_deref(),
                None,
            )?;
            let running =
                Running::start(feature, table, &crossing, options.listed, &mut control, ports)?;
            let (found, headers) = packets(table, options, stream)?;
            let plan = router_graph::plan_with(None, &running.states)
                .map_err(|errors| anyhow::anyhow!("{errors}"))?;
            let path = |headers| {
                let (plan, reader) = (plan.clone(), control.reader());
                Path::new(plan, reader, ports, A::FAMILY, headers, options.burst)
            };
            if let Some(refused) = running.refused {
                let arrived = path([refused].into()).check_of::<A>(&[], 1);
                ensure!(arrived == (0, 0), "{}: a packet that it drops arrived", feature.name);
            }
            let mut path = path(headers);
            let (checked, wrong) = path.check(&found);
            let name = format!("graph-v{}-{}", A::FAMILY, feature.name);
            let mut run = Run::new(&name, Kind::Ours, stream.name(), Unit::NsPerPacket);
            run.family = Some(A::FAMILY);
            run.set_answers(checked, wrong);
            run.note = format!("{} destinations, {}", found.len(), running.words);
            path.free_run();
            prepared.paths.push((run, path));
            prepared.features.push(running);
        }
    }
    Ok(())
}

/// Measures the path over memory ports.
///
/// # Errors
/// When there is no table, or no algorithm that holds it.
pub fn forward(options: &ForwardOptions) -> Result<BenchDocument> {
    let with_customers;
    let options = if options.features.is_empty() {
        options
    } else {
        let tables = features::with_customers(&options.tables);
        with_customers = ForwardOptions { tables, ..options.clone() };
        &with_customers
    };
    let tables = &options.tables;
    let (v4, v6) = (options.algorithm_v4.as_deref(), options.algorithm_v6.as_deref());
    let (control, ports) = world::build(tables, v4, v6, None)?;
    let mut prepared = Prepared::default();
    if let Some(table) = &tables.v4 {
        let algorithm = (control.fib_v4().algorithm(), v4);
        let mut loops = |stream: &str,
                         found: &[(u32, NextHopId)],
                         headers: &[[u8; HEADER_BYTES]],
                         prepared: &mut Prepared| {
            for row in options.peers.iter().filter(|row| row.family == 4) {
                match Loop::start(row, table, stream, found, headers, options.load_limit) {
                    (run, Some(at_work)) => prepared.loops.push((run, RefCell::new(at_work))),
                    (run, None) => prepared.left_out.push(run),
                }
            }
        };
        prepare(table, options, &control, ports, algorithm, &mut prepared, &mut loops)?;
        filters::prepare(table, options, &control, ports, &mut prepared)?;
        nat::prepare(table, options, &control, ports, &mut prepared)?;
        click::prepare(table, options, &control, &mut prepared)?;
        ip_router::prepare(table, options, &control, &mut prepared)?;
        prepare_features(table, options, &mut prepared)?;
        if options.cluster {
            cluster::prepare(table, options, &control, ports, &mut prepared)?;
        }
    }
    if let Some(table) = &tables.v6 {
        let algorithm = (control.fib_v6().algorithm(), v6);
        prepare(table, options, &control, ports, algorithm, &mut prepared, &mut |_, _, _, _| ())?;
        filters::prepare(table, options, &control, ports, &mut prepared)?;
        prepare_features(table, options, &mut prepared)?;
    }
    if prepared.paths.is_empty() {
        return tables.document(prepared.left_out);
    }
    let mut runs = match options.instructions {
        Some(packets) => count_instructions(&mut prepared, packets),
        None => measure(&mut prepared, options),
    };
    runs.append(&mut prepared.left_out);
    tables.document(runs)
}

fn count_instructions(prepared: &mut Prepared, packets: u64) -> Vec<Run> {
    let mut runs = Vec::new();
    for (mut run, mut path) in prepared.paths.drain(..) {
        // Once before, so that nothing is done for the first time while it counts.
        path.work();
        let done = counted_section(&mut path.worker, packets);
        run.note = format!("{done} packets in the counted section");
        runs.push(run);
    }
    runs
}

/// Everything in turns: each path, its elements, the routers of others, and the generators alone.
fn measure(prepared: &mut Prepared, options: &ForwardOptions) -> Vec<Run> {
    let plan = Plan { clock: Clock::Thread, ..Plan::new(options.seconds, options.samples) };
    let paths: Vec<(Run, RefCell<Path>)> =
        prepared.paths.drain(..).map(|(run, path)| (run, RefCell::new(path))).collect();
    // Filters and features are elements of their own graphs, beside which the others are the same again.
    let chains: Vec<(Run, RefCell<chain::Chain>)> =
        prepared.chains.drain(..).map(|(run, chain)| (run, RefCell::new(chain))).collect();
    let floors: Vec<(Run, RefCell<floor::Floor>)> =
        prepared.floors.drain(..).map(|(run, floor)| (run, RefCell::new(floor))).collect();
    let pairs: Vec<(Run, RefCell<[Path; 2]>)> =
        prepared.pairs.drain(..).map(|(run, pair)| (run, RefCell::new(pair))).collect();
    let plain = |run: &Run| run.family.is_some_and(|family| run.name == format!("graph-v{family}"));
    let graphs =
        || paths.iter().filter(|(run, _)| plain(run) || cluster::RUNS.contains(&&*run.name));
    let elements: Vec<_> = graphs()
        .map(|(run, path)| {
            let prefix = if plain(run) { "element" } else { &run.name };
            RefCell::new(elements::Elements::new(&path.borrow(), prefix, &run.stream))
        })
        .collect();
    let mut alone = {
        let first = paths[0].1.borrow();
        let (generator, batch) = (first.generator(), Batch::new(&first.pool));
        Alone { generator, batch, burst: options.burst }
    };
    let (mut runs, mut turns): (Vec<Run>, Vec<Turn<'_>>) = (Vec::new(), Vec::new());
    for (run, path) in &paths {
        runs.push(run.clone());
        turns.push(Box::new(move || {
            let mut path = path.borrow_mut();
            path.pass();
            Some(sample(&mut *path, plan))
        }));
    }
    for (run, chain) in &chains {
        runs.push(run.clone());
        turns.push(Box::new(move || Some(sample(&mut *chain.borrow_mut(), plan))));
    }
    for (run, floor) in &floors {
        runs.push(run.clone());
        turns.push(Box::new(move || {
            let mut floor = floor.borrow_mut();
            floor.pass();
            Some(sample(&mut *floor, plan))
        }));
    }
    for (run, pair) in &pairs {
        runs.push(run.clone());
        turns.push(Box::new(move || {
            let [path, other] = &mut *pair.borrow_mut();
            path.pass();
            other.pass();
            let mut busy = || {
                other.work();
                Ok::<_, Infallible>(())
            };
            sample_beside(path, plan, &mut busy).ok()
        }));
    }
    for (run, outside) in &prepared.loops {
        runs.push(run.clone());
        turns.push(Box::new(move || outside.borrow_mut().forward(plan).ok()));
    }
    let ceiling = |name: &str, stream: &str, note: &str| {
        let mut run = Run::new(name, Kind::Ceiling, stream, Unit::NsPerPacket);
        run.note = note.to_owned();
        run
    };
    let note = "makes the packets and frees them: what a device would do";
    runs.push(ceiling("generator", &paths[0].0.stream, note));
    turns.push(Box::new(|| Some(sample(&mut alone, plan))));
    if let Some((run, outside)) = prepared.loops.first() {
        runs.push(ceiling("dpdk-generator", &run.stream, "the generator of the first DPDK loop"));
        turns.push(Box::new(move || outside.borrow_mut().generate(plan).ok()));
    }
    if options.elements {
        for ((_, path), elements) in graphs().zip(&elements) {
            // Their samples stay with the elements.
            turns.push(Box::new(move || {
                elements.borrow_mut().turn(&mut path.borrow_mut(), plan).or(Some(0.0))
            }));
        }
    }
    let samples = alternate_told(&mut turns, plan.samples, &mut |_, _| ());
    drop(turns);
    for (run, samples) in runs.iter_mut().zip(samples) {
        if samples.is_empty() {
            run.note = format!("ended while it was measured; {}", run.note);
        }
        run.set_samples(samples);
    }
    chain::predict(&mut runs);
    nat::compare(&mut runs);
    ip_router::compare(&mut runs);
    if options.elements {
        let elements: Vec<_> = elements.into_iter().map(RefCell::into_inner).collect();
        runs.extend(elements.iter().flat_map(elements::Elements::runs));
        runs.extend(cluster::graphs(&elements));
    }
    runs
}

/// Notes with each run that is to be compared its share of the run `base` of the same stream, turn by turn.
fn note_shares(runs: &mut [Run], base: &str, is_compared: impl Fn(&str) -> bool) {
    for at in 0..runs.len() {
        let plain = runs.iter().find(|run| run.name == base && run.stream == runs[at].stream);
        let Some(plain) = plain.filter(|_| is_compared(&runs[at].name)) else { continue };
        if let Some(share) = runs[at].share_of(plain) {
            runs[at].note = format!("{}; {share:.2} of {base}", runs[at].note);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::Answers;
    use fingerpost_lpm::Prefix;

    pub(super) fn tables() -> Tables {
        let mut random = Rng::new(7);
        let mut v4 = Vec::new();
        let mut v6 = Vec::new();
        for n in 0..2000 {
            let bits = random.word();
            let addr = u32::try_from(bits >> 32).unwrap() >> 1 | 0x0100_0000;
            let len = 8 + u8::try_from(bits % 17).unwrap();
            v4.push((Prefix::masked(addr, len), n % 20 + 1));
            let addr = 1 << 125 | u128::from(bits) << 61;
            v6.push((Prefix::masked(addr, len + 24), n % 20 + 1));
        }
        Tables { v4: Some(Table::new("v4", v4)), v6: Some(Table::new("v6", v6)) }
    }

    #[test]
    fn every_destination_arrives_as_the_oracle_says() {
        let options = ForwardOptions {
            tables: tables(),
            destinations: 1000,
            seconds: 0.01,
            elements: false,
            cluster: true,
            ..ForwardOptions::default()
        };
        let document = forward(&options).unwrap();
        let seen: Vec<_> = document
            .runs
            .iter()
            .map(|run| (&run.name[..], &run.stream[..], run.answers, run.samples.len()))
            .collect();
        let want = [
            ("graph-v4", "uniform", Answers::Ok, 9),
            ("graph-v4", "prefix", Answers::Ok, 9),
            ("cluster-input", "uniform", Answers::Ok, 9),
            ("cluster-transit", "uniform", Answers::Ok, 9),
            ("cluster-output", "uniform", Answers::Ok, 9),
            ("graph-v6", "uniform", Answers::Ok, 9),
            ("graph-v6", "prefix", Answers::Ok, 9),
            ("cluster-path", "uniform", Answers::Ok, 9),
            ("generator", "uniform", Answers::Unchecked, 9),
        ];
        assert_eq!(seen, want);
        assert_eq!((document.tables.len(), document.table.family), (2, 4));
    }

    #[test]
    fn an_algorithm_that_cannot_hold_the_table_is_not_measured() {
        // DXR16 names next hops in 16 bits.
        let routes = (0..65_536 + 10).map(|n| (Prefix::masked(n << 10, 24), n + 1));
        let mut options = ForwardOptions {
            tables: Tables { v4: Some(Table::new("v4", routes.collect())), v6: None },
            algorithm_v4: Some("dxr16".into()),
            destinations: 10,
            seconds: 0.01,
            elements: false,
            ..ForwardOptions::default()
        };
        let document = forward(&options).unwrap();
        assert_eq!(document.runs.len(), 2);
        for run in document.runs {
            assert_eq!((&run.name[..], run.median, run.samples.len()), ("graph-v4", None, 0));
            assert!(run.note.contains("limit exceeded"), "{}", run.note);
        }
        options.tables.v6 = tables().v6;
        let runs = forward(&options).unwrap().runs;
        let measured: Vec<_> =
            runs.iter().map(|run| (&run.name[..], run.median.is_some())).collect();
        let (v4, v6, alone) = ("graph-v4", "graph-v6", "generator");
        assert_eq!(measured, [(v6, true), (v6, true), (alone, true), (v4, false), (v4, false)]);
    }

    #[test]
    fn elements_are_the_parts_of_the_whole() {
        let options = ForwardOptions {
            tables: Tables { v6: None, ..tables() },
            streams: vec![Stream::Prefix],
            destinations: 1000,
            seconds: 0.2,
            ..ForwardOptions::default()
        };
        let runs = forward(&options).unwrap().runs;
        let parts: Vec<_> = runs.iter().filter(|run| run.name.starts_with("element:")).collect();
        if fingerpost_lpm::simd::Ticks::detect().is_none() {
            assert!(parts.is_empty());
            return println!("skipped: needs a processor with a time-stamp counter");
        }
        let find = |name: &str| parts.iter().find(|run| run.name == format!("element:{name}"));
        for name in ["ip4_input", "ip4_lookup", "ip4_next_hop", "transmit", "receive"] {
            let run = find(name).unwrap_or_else(|| panic!("{name}: {parts:?}"));
            assert_eq!((run.samples.len(), run.family, run.kind), (9, Some(4), Kind::Ours));
        }
        assert!(find("ip6_input").is_none() && find("icmp4_error").is_none());
        // What no element and no port took is little; builds without optimization look at the clock for longer.
        let whole = |i: usize| parts.iter().map(|run| run.samples[i]).sum::<f64>();
        let mut left: Vec<f64> = (0..9)
            .map(|i| find("round").map_or(0.0, |round| round.samples[i]) / whole(i))
            .collect();
        left.sort_by(f64::total_cmp);
        assert!(left[4] < 0.5, "{left:?}");
    }

    /// The frames of our generator cross DPDK's loop as the oracle expects, whatever its lookup.
    #[test]
    fn loops_of_others_take_turns_with_ours() {
        let peers = crate::peer::find_loops("dpdk-loop,dpdk-loop-add,dpdk-loop-fib").unwrap();
        if !peers.iter().all(|row| row.is_built()) {
            let why = "cargo xtask test builds it as root on Debian";
            return println!("skipped: needs cargo xtask peers dpdk ({why})");
        }
        let mut tables = tables();
        let v4 = tables.v4.as_mut().unwrap();
        // Longer than /24, below routes and below none; and a default route.
        for n in 0..300 {
            v4.routes
                .push((Prefix::masked(0x0100_0000 | n << 19 | n, 25 + (n % 8) as u8), n % 20 + 1));
        }
        v4.routes.push((Prefix::masked(0, 0), 7));
        *v4 = Table::new("v4", std::mem::take(&mut v4.routes));
        let options = ForwardOptions {
            tables,
            streams: vec![Stream::Prefix],
            // No multiple of a burst.
            destinations: 1001,
            seconds: 0.05,
            elements: false,
            peers,
            ..ForwardOptions::default()
        };
        let runs = forward(&options).unwrap().runs;
        for name in ["dpdk-loop", "dpdk-loop-add", "dpdk-loop-fib"] {
            let run = runs.iter().find(|run| run.name == name).unwrap();
            assert_eq!((run.answers, run.samples.len(), run.family), (Answers::Ok, 9, Some(4)));
            assert!(run.kind == Kind::Peer && run.median > Some(1.0), "{run:?}");
        }
        let alone = runs.iter().find(|run| run.name == "dpdk-generator").unwrap();
        assert!(alone.kind == Kind::Ceiling && alone.median > Some(0.1), "{alone:?}");
    }

    #[test]
    fn the_cost_of_a_node_is_given_without_its_ports() {
        let options = ForwardOptions {
            tables: Tables { v6: None, ..tables() },
            streams: vec![Stream::Prefix],
            destinations: 1000,
            seconds: 0.05,
            cluster: true,
            ..ForwardOptions::default()
        };
        let runs = forward(&options).unwrap().runs;
        if fingerpost_lpm::simd::Ticks::detect().is_none() {
            return;
        }
        for name in cluster::RUNS {
            let of = |part: &str| runs.iter().find(|run| run.name == format!("{name}{part}"));
            let (graph, whole) = (of(":graph").unwrap(), of("").unwrap());
            assert!(graph.median > Some(0.0) && whole.median > Some(0.0), "{graph:?}, {whole:?}");
            assert!(graph.note.contains(" of the input"), "{graph:?}");
            assert!(of(":transmit").is_some() && of(":receive").is_some(), "{name}");
        }
    }

    #[test]
    fn a_wrong_way_is_seen() {
        let tables = tables();
        let (control, ports) = world::build(&tables, None, None, None).unwrap();
        let table = tables.v4.unwrap();
        let oracle = table.oracle();
        let mut found = stream::destinations(&table, &oracle, Stream::Prefix, 100, 3);
        let headers = found.iter().map(|d| world::header(d.0, 1)).collect();
        let plan = router_graph::plan().unwrap();
        let mut path = Path::new(plan, control.reader(), ports, 4, headers, 64);
        assert_eq!(path.check(&found), (100, 0));
        // As if the oracle said something else of three of them.
        for destination in &mut found[10..13] {
            destination.1.0 += 2;
        }
        assert_eq!(path.check(&found), (100, 3));
    }

    #[test]
    fn instructions_take_about_as_many_packets_as_asked() {
        let options = ForwardOptions {
            tables: tables(),
            streams: vec![Stream::Prefix],
            destinations: 100,
            instructions: Some(1000),
            ..ForwardOptions::default()
        };
        let document = forward(&options).unwrap();
        assert!(document.runs.iter().all(|run| run.note.starts_with("1024 packets")));
        assert!(document.runs.iter().all(|run| run.median.is_none()));
    }
}
