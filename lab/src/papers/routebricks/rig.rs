//! Workers between ports of memory, alone, in pairs, and with rings between them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};

use anyhow::{Context, Result, ensure};
use fingerpost_io::DRIVERS;
use fingerpost_lpm::{NextHopId, Rng};
use fingerpost_packet::device::memory::{Check, Generator, HEADER_BYTES, Sink};
use fingerpost_packet::device::{BURST, DeviceSpec};
use fingerpost_packet::frame::wire::checksum::checksum;
use fingerpost_packet::frame::wire::{ETHER_BYTES, IP4_BYTES, Ip4Mut};
use fingerpost_packet::frame::{BATCH, Batch, Pool};
use fingerpost_packet::{
    Command, DeviceError, ELEMENTS, Plan as Graph, Port, Worker, WorkerCounters, router_graph,
};
use fingerpost_route::Control;

use crate::forward::stream::{Stream, destinations};
use crate::forward::{FRAMES, ROUNDS, counters, worker_of, world};
use crate::measure::Measured;
use crate::table::{Table, Tables};

/// What the paper calls minimal forwarding: in by one port, out by the other.
const MINIMAL: &str = "FromDevice(in) -> ToDevice(out)";

/// Lengths of frames without the check sequence: 64, 570 and 1518 bytes as 7 to 4 to 1.
const MIX: [u16; 12] = [60, 60, 566, 60, 566, 60, 1514, 60, 566, 60, 566, 60];

/// How many destinations.
const DESTINATIONS: usize = 65_536 / MIX.len() * MIX.len();

/// What is done to a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Work {
    Minimal,
    Routing,
}

/// Which frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Lengths {
    Short,
    Mixed,
}

/// What all rigs share: the routes and the packets.
pub(super) struct Bed {
    control: Control,
    ports: world::Ports,
    found: Vec<(u32, NextHopId)>,
    short: Headers,
    mixed: Headers,
    minimal: Graph,
    routing: Graph,
}

type Headers = Arc<[[u8; HEADER_BYTES]]>;

impl Bed {
    pub(super) fn new(of: &Table<u32>, seed: u64) -> Result<Self> {
        let tables = Tables { v4: Some(of.clone()), v6: None };
        let (control, ports) = world::build(&tables, None, None, None)?;
        let oracle = of.oracle();
        let mut found = destinations(of, &oracle, Stream::Prefix, DESTINATIONS, seed);
        ensure!(!found.is_empty(), "{}: no address to forward to", of.file);
        // As many as the mix has lengths, or several times that.
        let whole = found.len().next_multiple_of(MIX.len());
        found = found.iter().copied().cycle().take(whole).collect();
        let mut flows = Rng::new(seed);
        let mut header = |dst: u32| {
            let [.., a, b] = flows.word().to_be_bytes();
            world::header(dst, u16::from_be_bytes([a, b]))
        };
        let short: Headers = found.iter().map(|found| header(found.0)).collect();
        let lengths = MIX.iter().cycle();
        let mixed = short.iter().zip(lengths).map(|(header, &len)| of_length(*header, len));
        Ok(Self {
            mixed: mixed.collect(),
            short,
            control,
            ports,
            found,
            minimal: Graph::read("minimal", MINIMAL, ELEMENTS)?,
            routing: router_graph::plan()?,
        })
    }

    fn input(&self, work: Work) -> u16 {
        if work == Work::Minimal { 0 } else { self.ports.input }
    }

    fn outputs(&self, work: Work) -> &[u16] {
        if work == Work::Minimal { &[1] } else { &self.ports.out }
    }

    fn headers(&self, lengths: Lengths) -> Headers {
        if lengths == Lengths::Short { self.short.clone() } else { self.mixed.clone() }
    }

    fn generator(&self, pool: &Pool) -> Generator {
        Generator::new(pool, self.short.clone(), world::frame_len(4))
    }

    /// What makes the packets, over and over or once each.
    fn source(&self, pool: &Pool, lengths: Lengths, once: bool) -> Box<dyn Port> {
        let headers = self.headers(lengths);
        let limit = if once { headers.len() as u64 } else { u64::MAX };
        if lengths == Lengths::Short {
            return Box::new(self.generator(pool).limit(limit));
        }
        let generator = Generator::new(pool, headers, MIX.into_iter().max().unwrap_or(0));
        Box::new(Mixed { generator: generator.limit(limit), next: 0 })
    }
}

/// The packet of a flow in a longer frame.
fn of_length(mut header: [u8; HEADER_BYTES], len: u16) -> [u8; HEADER_BYTES] {
    let room = "a header has 64 bytes";
    let mut ip = Ip4Mut::at(&mut header, ETHER_BYTES).expect(room);
    ip.set_total_len(len - 14);
    ip.set_checksum(0);
    let sum = checksum(&header[ETHER_BYTES..ETHER_BYTES + IP4_BYTES]);
    Ip4Mut::at(&mut header, ETHER_BYTES).expect(room).set_checksum(sum);
    header
}

/// A generator whose frames have the lengths of the mix.
struct Mixed {
    generator: Generator,
    next: usize,
}

impl Port for Mixed {
    fn recv(&mut self, into: &mut Batch) -> Result<usize, DeviceError> {
        let first = into.len();
        let count = self.generator.recv(into)?;
        for i in first..first + count {
            into.truncate(i, MIX[self.next].into());
            self.next = (self.next + 1) % MIX.len();
        }
        Ok(count)
    }

    fn send(&mut self, from: &mut Batch) -> Result<usize, DeviceError> {
        self.generator.send(from)
    }
}

/// A worker and what it counts.
pub(super) struct Line {
    worker: Worker,
    counters: Arc<WorkerCounters>,
    /// Kept, since a worker without anybody who could stop it ends.
    _commands: mpsc::Sender<Command>,
}

impl Line {
    fn new(bed: &Bed, work: Work, pool: &Pool) -> Self {
        let plan = if work == Work::Minimal { &bed.minimal } else { &bed.routing };
        let (commands, orders) = mpsc::channel();
        let counters = counters();
        let reader = bed.control.reader();
        let mut worker = worker_of(plan, pool.clone(), reader, counters.clone(), orders);
        worker.set_burst(BURST);
        Self { worker, counters, _commands: commands }
    }

    /// One from memory to memory, after every packet crossed it once: and how many did, and how many of them were
    /// wrong or did not arrive.
    pub(super) fn checked(bed: &Bed, work: Work, lengths: Lengths) -> Result<(Self, (u64, u64))> {
        let pool = Pool::new(FRAMES, 2048);
        let mut line = Self::new(bed, work, &pool);
        let right = Arc::new(AtomicU64::new(0));
        for (way, &port) in bed.outputs(work).iter().enumerate() {
            let check = bed.check(work, way, right.clone());
            line.worker.add_port(port, Box::new(Sink::new().check(1, check)));
        }
        line.worker.add_port(bed.input(work), bed.source(&pool, lengths, true));
        while line.worker.round() > 0 {}
        let count = bed.headers(lengths).len() as u64;
        let wrong = count.saturating_sub(right.load(Relaxed));
        line.worker.add_port(bed.input(work), bed.source(&pool, lengths, false));
        for &port in bed.outputs(work) {
            line.worker.add_port(port, Box::new(Sink::new()));
        }
        Ok((line, (count, wrong)))
    }

    /// In, and what did not come out.
    fn balance(&self) -> (u64, u64) {
        let (came, left) = (self.counters.packets_in.read(), self.counters.packets_out.read());
        (came, came - left.min(came))
    }
}

impl Bed {
    /// Counts frames that are as they must be at that way out.
    fn check(&self, work: Work, way: usize, right: Arc<AtomicU64>) -> Check {
        let hops: HashMap<u32, u32> = self.found.iter().map(|found| (found.0, found.1.0)).collect();
        Box::new(move |frame, _| {
            let hop = world::destination::<u32>(frame).and_then(|dst| hops.get(&dst).copied());
            let fine = hop.is_some_and(|hop| match work {
                Work::Minimal => frame.get(22) == Some(&world::TTL),
                Work::Routing => world::egress_of(hop) == way && world::check::<u32>(frame, hop),
            });
            right.fetch_add(fine.into(), Relaxed);
        })
    }
}

impl Measured for Line {
    fn work(&mut self) -> u64 {
        (0..ROUNDS).map(|_| self.worker.round() as u64).sum()
    }
}

/// The two ends of a ring of shared memory, receiving into these pools.
fn ring(a: &Pool, b: &Pool) -> Result<(Box<dyn Port>, Box<dyn Port>)> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let name = format!("fingerpost-ring-{}-{}", std::process::id(), NUMBER.fetch_add(1, Relaxed));
    let path = std::env::temp_dir().join(name);
    let path = path.to_str().context("the folder of temporary files has no name in UTF-8")?;
    let driver = DRIVERS.iter().find(|row| row.name == "ring").context("there is a driver ring")?;
    let open = |pool: &Pool| -> Result<Box<dyn Port>> {
        let ports = (driver.open)(&DeviceSpec {
            name: path,
            queues: (0, 1),
            pools: std::slice::from_ref(pool),
        })?;
        ports.into_iter().next().context("a ring has one port")
    };
    let (mut first, mut second) = (open(a)?, open(b)?);
    // They meet in their own rounds.
    for (pool, port) in [(a, &mut first), (b, &mut second)] {
        let mut batch = Batch::new(pool);
        let mut met = 0;
        for _ in 0..10_000 {
            port.recv(&mut batch)?;
            port.stats(&mut |name, count| met += u64::from(name == "peers") * count);
            if met > 0 {
                break;
            }
        }
        ensure!(met > 0, "{path}: the other end does not come");
    }
    Ok((first, second))
}

/// A port that shows the other side no more than so many frames at once.
struct Grouped {
    port: Box<dyn Port>,
    most: usize,
    group: Box<Batch>,
}

impl Port for Grouped {
    fn recv(&mut self, into: &mut Batch) -> Result<usize, DeviceError> {
        let (first, wanted) = (into.len(), into.len() + into.room());
        while into.len() < wanted {
            let most = (into.len() + self.most).min(wanted);
            into.set_limit(most);
            if self.port.recv(into)? == 0 || into.len() < most {
                break;
            }
        }
        into.set_limit(wanted.min(BATCH));
        Ok(into.len() - first)
    }

    fn send(&mut self, from: &mut Batch) -> Result<usize, DeviceError> {
        let count = from.len();
        for first in (0..count).step_by(self.most) {
            for i in first..count.min(first + self.most) {
                from.move_to(i, &mut self.group);
            }
            self.port.send(&mut self.group)?;
            // There is room for all that a round brings.
            self.group.clear();
        }
        from.clear();
        Ok(count)
    }
}

/// A worker from ring to ring; the same thread fills the one and empties the other.
pub(super) struct Feeding {
    line: Line,
    feeder: Feeder,
    far: Box<dyn Port>,
    batch: Box<Batch>,
    arrived: u64,
}

impl Feeding {
    pub(super) fn new(bed: &Bed, kp: usize, kn: usize) -> Result<Self> {
        let (outside, pool) = (Pool::new(FRAMES, 2048), Pool::new(FRAMES, 2048));
        let (to, input) = ring(&outside, &pool)?;
        let (far, output) = ring(&outside, &pool)?;
        let mut line = Line::new(bed, Work::Minimal, &pool);
        line.worker.set_burst(kp);
        for (number, port) in [(0, input), (1, output)] {
            let group = Batch::new(&pool);
            line.worker.add_port(number, Box::new(Grouped { port, most: kn, group }));
        }
        let feeder = Feeder { source: bed.generator(&outside), to, batch: Batch::new(&outside) };
        Ok(Self { line, feeder, far, batch: Batch::new(&outside), arrived: 0 })
    }

    /// Packets received, and those of them that did not arrive.
    pub(super) fn checked(&self) -> (u64, u64) {
        let came = self.line.balance().0;
        (came, came - self.arrived.min(came))
    }
}

impl Measured for Feeding {
    fn work(&mut self) -> u64 {
        let mut done = 0;
        for _ in 0..ROUNDS / 16 {
            self.feeder.feed();
            // Until the ring is empty.
            loop {
                let came = self.line.worker.round();
                if came == 0 {
                    break;
                }
                done += came as u64;
            }
            while let Ok(count @ 1..) = self.far.recv(&mut self.batch) {
                self.arrived += count as u64;
                self.batch.clear();
            }
        }
        done
    }
}

/// Makes packets and hands them to a ring.
pub(super) struct Feeder {
    source: Generator,
    to: Box<dyn Port>,
    batch: Box<Batch>,
}

impl Feeder {
    fn feed(&mut self) {
        if self.batch.is_empty() {
            // Neither fails: one is memory, and the other end lives as long as this one.
            let _ = self.source.recv(&mut self.batch);
        }
        let _ = self.to.send(&mut self.batch);
    }
}

impl Measured for Feeder {
    /// Whoever sends them on counts them.
    fn work(&mut self) -> u64 {
        self.feed();
        0
    }
}

/// A port that several workers use by turns.
struct Shared<P>(Arc<Mutex<P>>);

impl<P> Shared<P> {
    fn lock(&self) -> MutexGuard<'_, P> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<P: Port> Port for Shared<P> {
    fn recv(&mut self, into: &mut Batch) -> Result<usize, DeviceError> {
        self.lock().recv(into)
    }

    fn send(&mut self, from: &mut Batch) -> Result<usize, DeviceError> {
        self.lock().send(from)
    }
}

/// What one core does in a placement.
pub(super) enum Side {
    Line(Box<Line>),
    Feeder(Box<Feeder>),
}

impl Side {
    pub(super) fn measured(&mut self) -> &mut (dyn Measured + Send) {
        match self {
            Self::Line(line) => &mut **line,
            Self::Feeder(feeder) => &mut **feeder,
        }
    }

    /// Packets received by all of them, and those that were not sent.
    pub(super) fn checked(sides: &[Self]) -> (u64, u64) {
        let balances = sides.iter().filter_map(|side| match side {
            Self::Line(line) => Some(line.balance()),
            Self::Feeder(_) => None,
        });
        balances.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
    }

    fn line(
        bed: &Bed,
        work: Work,
        pool: &Pool,
        input: Box<dyn Port>,
        output: &dyn Fn() -> Box<dyn Port>,
    ) -> Self {
        let mut line = Line::new(bed, work, pool);
        line.worker.add_port(bed.input(work), input);
        for &port in bed.outputs(work) {
            line.worker.add_port(port, output());
        }
        Self::Line(Box::new(line))
    }

    /// One core does everything.
    pub(super) fn alone(bed: &Bed, work: Work) -> Result<Vec<Self>> {
        let pool = Pool::new(FRAMES, 2048);
        let source = bed.source(&pool, Lengths::Short, false);
        Ok(vec![Self::line(bed, work, &pool, source, &|| Box::new(Sink::new()))])
    }

    /// Two cores, each with queues of its own.
    pub(super) fn parallel(bed: &Bed, work: Work) -> Result<Vec<Self>> {
        let mut sides = Self::alone(bed, work)?;
        sides.extend(Self::alone(bed, work)?);
        Ok(sides)
    }

    /// The first core hands packets to the second.
    pub(super) fn pipeline(bed: &Bed, work: Work) -> Result<Vec<Self>> {
        let (outside, pool) = (Pool::new(FRAMES, 2048), Pool::new(FRAMES, 2048));
        let (to, input) = ring(&outside, &pool)?;
        let feeder = Feeder { source: bed.generator(&outside), to, batch: Batch::new(&outside) };
        let line = Self::line(bed, work, &pool, input, &|| Box::new(Sink::new()));
        Ok(vec![Self::Feeder(Box::new(feeder)), line])
    }

    /// Two cores take from one queue.
    pub(super) fn shared_in(bed: &Bed, work: Work) -> Result<Vec<Self>> {
        let pool = Pool::new(2 * FRAMES, 2048);
        let source = Arc::new(Mutex::new(bed.generator(&pool)));
        let side = || {
            let input = Box::new(Shared(source.clone()));
            Self::line(bed, work, &pool, input, &|| Box::new(Sink::new()))
        };
        Ok(vec![side(), side()])
    }

    /// Two cores put into one queue.
    pub(super) fn shared_out(bed: &Bed, work: Work) -> Result<Vec<Self>> {
        let sink = Arc::new(Mutex::new(Sink::new()));
        let side = || {
            let pool = Pool::new(FRAMES, 2048);
            let source = bed.source(&pool, Lengths::Short, false);
            Self::line(bed, work, &pool, source, &|| Box::new(Shared(sink.clone())))
        };
        Ok(vec![side(), side()])
    }
}
