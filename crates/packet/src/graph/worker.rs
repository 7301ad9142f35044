//! A worker: one thread that takes packets from its ports, runs the graph, and sends what comes out.
//!
//! One core a queue, one core a packet (RouteBricks, SOSP 2009): nothing is shared on the path but
//! what all read. A round takes at most a burst from each port; what waited inside comes first, so
//! that it is not overtaken. Routes are pinned for a round. After some rounds without packets the worker sleeps
//! until a port has something, and announces first that it holds no routes, so that the writer of the
//! FIB never waits for it.
//!
//! Between rounds the law of [`crate::frame::counters`] holds: in = out + dropped + held.

use std::fmt;
use std::os::fd::RawFd;
use std::sync::mpsc::{Receiver, Sender, SyncSender, TryRecvError};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use fingerpost_lpm::simd::Ticks;
use fingerpost_route::{Forwarding, Reader, ResolveRequest};

use super::{Graph, Plan, Round};
use crate::device::{BURST, DeviceError, Port, Wait};
use crate::frame::counters::{WorkerCounters, nanoseconds};
use crate::frame::{BATCH, Batch, DropReason, Pool};
use crate::graph::port_set::PortSet;
use crate::graph::trace::Tracer;

/// How long to look again before sleeping: waking costs about as much.
const SPIN_NS: u64 = 50_000;

/// Turns in which a port that leaves is emptied: more packets than any ring holds.
const LAST_TURNS: usize = 1024;
/// Turns without a packet after which a port is empty. One that is shared may receive for other workers alone.
const EMPTY_TURNS: usize = 64;

/// How often ports report the counts of their devices, which may take a system call.
const DEVICES_NS: u64 = 250_000_000;

/// Longest sleep.
const SLEEP: Duration = Duration::from_millis(100);
/// Longest sleep while packets wait inside or are made by the clock, or while a port cannot signal that it has something.
const SHORT_SLEEP: Duration = Duration::from_millis(1);

/// Command to a worker. Wake it after sending, or it acts when it next wakes.
pub enum Command {
    /// Use this port, under this number. A port that had the number is given back, after what it has received is
    /// forwarded; what waits to be sent by the number is sent by the new port.
    AddPort(u16, Box<dyn Port>),
    /// Give the port of this number back, after what it has received is forwarded.
    RemovePort(u16),
    /// Run this graph, which was made to replace the present one ([`Graph::after`]).
    Replace(Box<Graph>),
    /// Count what each element takes from now on, or no longer: [`Worker::set_timed`].
    Time(bool),
    /// Trace packets that are received from now on, or no longer: [`Graph::trace`].
    Trace(Option<Box<Tracer>>),
    /// Forward what the port of this number has received: where it is closed soon and receives nothing more.
    Drain(u16),
    /// Send a message here once all commands before this one are carried out.
    Confirm(Sender<()>),
    /// End what is held, give all ports back, and return.
    Stop,
}

/// Event of a worker.
///
/// Ports that left come along, to be dropped where time does not matter: closing a socket can wait for
/// the kernel.
pub enum Event {
    /// The device failed and its port left.
    PortFailed(u16, DeviceError, Option<Box<dyn Port>>),
    /// A port left as commanded, or because the worker ends; `None` where there was none.
    PortClosed(u16, Option<Box<dyn Port>>),
    /// The graph was replaced by the next one; this is the old one, which keeps nothing.
    Replaced(Box<Graph>),
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PortFailed(number, error, _) => write!(f, "PortFailed({number}, {error})"),
            Self::PortClosed(number, port) => {
                write!(f, "PortClosed({number}, {})", if port.is_some() { "port" } else { "none" })
            }
            Self::Replaced(_) => f.write_str("Replaced"),
        }
    }
}

/// Sleeps a millisecond at most, whatever the ports have: for ports of memory.
#[derive(Clone, Copy, Debug, Default)]
pub struct Nap;

impl Wait for Nap {
    fn wait(&mut self, _: &[RawFd], timeout: Duration) {
        std::thread::sleep(timeout.min(SHORT_SLEEP));
    }
}

/// What a worker is made of.
pub struct WorkerOptions<'a> {
    /// The graph's wiring.
    pub plan: &'a Plan,
    /// Frames for all its ports and for packets of our own making.
    pub pool: Pool,
    /// What to forward by.
    pub reader: Reader<Forwarding>,
    /// Its counters; the control side keeps a clone to read.
    pub counters: Arc<WorkerCounters>,
    /// Commands to it.
    pub commands: Receiver<Command>,
    /// Queue of resolve requests; one that does not fit is counted and forgotten.
    pub requests: SyncSender<ResolveRequest>,
    /// Channel of its events.
    pub events: Sender<Event>,
    /// Seed of the flow hash: the same in all workers of a node.
    pub flow_seed: u64,
}

/// Sign of life of a worker, for whoever must not wait for one that hangs.
pub trait Heartbeat: Send {
    /// Sets the time from which the worker's clock counts.
    fn start_clock(&mut self, start: Instant);
    /// Notes that the worker works, at this time of its clock. Called once a round: returns at once where nothing is due.
    fn beat(&mut self, now_ns: u64);
}

/// One thread's share of the router.
pub struct Worker {
    graph: Graph,
    reader: Reader<Forwarding>,
    counters: Arc<WorkerCounters>,
    commands: Receiver<Command>,
    events: Sender<Event>,
    requests: SyncSender<ResolveRequest>,
    pending: Vec<ResolveRequest>,
    fds: Vec<RawFd>,
    port_set: PortSet,
    flow_seed: u64,
    burst: usize,
    /// Port that is first in the next round.
    first: u16,
    /// Whether the graph had packets of its own to move in the last round.
    active: bool,
    start: Instant,
    /// When ports report the counts of their devices next.
    devices_at_ns: u64,
    /// While it is timed.
    clock: Option<Ticks>,
    heartbeat: Option<Box<dyn Heartbeat>>,
    /// Wakes the control side.
    bell: Option<Box<dyn Fn() + Send>>,
}

/// Beginning of the time of all workers: elements of several share words that hold times, as those of a link do.
static CLOCK: OnceLock<Instant> = OnceLock::new();

/// Instant at which the time of all workers is 0.
pub fn clock_start() -> Instant {
    *CLOCK.get_or_init(Instant::now)
}

impl Worker {
    /// A worker without ports.
    pub fn new(options: WorkerOptions<'_>) -> Self {
        let counters = options.counters;
        Self {
            graph: Graph::new(options.plan, &options.pool),
            reader: options.reader,
            port_set: PortSet::new(counters.clone(), options.pool),
            counters,
            commands: options.commands,
            events: options.events,
            requests: options.requests,
            pending: Vec::new(),
            fds: Vec::new(),
            flow_seed: options.flow_seed,
            burst: BURST,
            first: 0,
            active: false,
            start: clock_start(),
            devices_at_ns: 0,
            clock: None,
            heartbeat: None,
            bell: None,
        }
    }

    /// Beats this heartbeat once a round from now on.
    pub fn set_heartbeat(&mut self, mut heartbeat: Box<dyn Heartbeat>) {
        heartbeat.start_clock(self.start);
        self.heartbeat = Some(heartbeat);
    }

    /// Calls `bell`, which wakes the control side, behind resolve requests of next hops of routes from now on. Packets to many
    /// destinations wait for each of these, and a sweep through a prefix makes none.
    pub fn set_bell(&mut self, bell: Box<dyn Fn() + Send>) {
        self.bell = Some(bell);
    }

    /// The graph, for its counters.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// Whether elements moved packets of their own in the last round.
    pub fn is_active(&self) -> bool {
        self.active
    }

    /// Its ports, for their modes and counts: number and port.
    pub fn ports(&self, mut visit: impl FnMut(u16, &dyn Port)) {
        for (number, port) in self.port_set.ports() {
            visit(number, port);
        }
    }

    /// Takes at most that many packets from a port at once, instead of [`BURST`].
    pub fn set_burst(&mut self, packets: usize) {
        self.burst = packets.clamp(1, BATCH);
    }

    /// Counts from now on, or no longer, the ticks that each element and the ports take. `false` where there
    /// is no clock to count by.
    pub fn set_timed(&mut self, timed: bool) -> bool {
        self.clock = if timed { Ticks::detect() } else { None };
        self.graph.set_clock(self.clock);
        self.clock.is_some() == timed
    }

    /// Adds a port at once, as the command does.
    pub fn add_port(&mut self, number: u16, port: Box<dyn Port>) {
        self.drain(number);
        let old = self.port_set.add(number, port);
        if old.is_some() {
            self.give_back(number, old);
        }
    }

    /// Frames in the rings of its ports.
    pub fn in_rings(&self) -> usize {
        let mut frames = 0;
        self.ports(|_, port| frames += port.in_rings());
        frames
    }

    /// Its frames.
    pub fn pool(&self) -> &Pool {
        self.port_set.pool()
    }

    /// Works until it is stopped, or no sender of commands is left; then drops what it holds. Sleeps by
    /// `wait` when there is nothing to do.
    pub fn run(&mut self, wait: &mut dyn Wait) {
        let mut idle_since_ns = None;
        while !self.obey() {
            let now_ns = self.now_ns();
            if let Some(heartbeat) = &mut self.heartbeat {
                heartbeat.beat(now_ns);
            }
            if now_ns >= self.devices_at_ns {
                self.note_devices();
                self.devices_at_ns = now_ns + DEVICES_NS;
            }
            if self.round_at(now_ns) > 0 || self.active {
                idle_since_ns = None;
            } else if now_ns - *idle_since_ns.get_or_insert(now_ns) < SPIN_NS {
                std::hint::spin_loop();
            } else {
                self.sleep(wait);
                idle_since_ns = None;
            }
        }
        self.stop();
    }

    /// Puts what the ports report of their devices where others can read it.
    fn note_devices(&self) {
        for (number, port) in self.port_set.ports() {
            if let Some(counts) = self.counters.ports.get(usize::from(number)) {
                counts.note_device(port.in_rings(), |visit| port.stats(visit));
            }
        }
    }

    /// One round, for callers that drive it themselves. Returns how many packets were received.
    pub fn round(&mut self) -> usize {
        let now_ns = self.now_ns();
        self.round_at(now_ns)
    }

    fn now_ns(&self) -> u64 {
        nanoseconds(self.start)
    }

    /// One round at a time of the caller's choice, in nanoseconds. Commands are not looked at.
    pub fn round_at(&mut self, now_ns: u64) -> usize {
        let Self { graph, reader, counters, port_set, pending, flow_seed, active, .. } = self;
        let forwarding = reader.pin();
        port_set.begin(now_ns);
        *active = graph.poll(&mut Round {
            now_ns,
            forwarding,
            counters,
            flow_seed: *flow_seed,
            requests: pending,
            transmit: port_set,
        });
        // Those that receive are first in turn: where only some of their packets find room, in a full device or the tokens
        // of a policer, it is not always the same port's.
        let (end, mut received, mut turn) = (self.port_set.end(), 0, None);
        let first = self.first.min(end);
        for number in (first..end).chain(0..first) {
            let some = self.receive(number, now_ns);
            if some > 0 {
                turn.get_or_insert(number + 1);
            }
            received += some;
        }
        self.first = turn.unwrap_or(first);
        let start = self.ticks();
        self.port_set.flush();
        self.counters.send_ticks.add(self.ticks().wrapping_sub(start));
        self.report();
        let held = self.held();
        self.counters.held.set(held.received as u64);
        self.counters.generated_held.set(held.generated as u64);
        let busy = received > 0 || self.active;
        let rounds = if busy { &self.counters.busy_rounds } else { &self.counters.idle_rounds };
        rounds.add(1);
        received
    }

    fn ticks(&self) -> u64 {
        self.clock.map_or(0, Ticks::now)
    }

    /// Takes a burst from one port through the graph, by the routes that are pinned; returns how many packets were received.
    fn receive(&mut self, number: u16, now_ns: u64) -> usize {
        let Self { graph, reader, counters, port_set, pending, flow_seed, clock, .. } = self;
        let Some(port) = port_set.port(number) else { return 0 };
        if !graph.takes(number) {
            if let Err(error) = port.tend() {
                port_set.fail(number, error);
            }
            return 0;
        }
        let ticks = || clock.map_or(0, Ticks::now);
        let mut batch = graph.batch();
        batch.set_limit(self.burst);
        let start = ticks();
        let result = port.recv(&mut batch);
        batch.set_limit(BATCH);
        let received = batch.len();
        if received > 0 {
            count_received(&mut batch, number, counters);
            counters.receive_ticks.add(ticks().wrapping_sub(start));
            let round = &mut Round {
                now_ns,
                forwarding: reader.pinned(),
                counters,
                flow_seed: *flow_seed,
                requests: pending,
                transmit: port_set,
            };
            let (before, sending) = (Instant::now(), counters.send_ns.read());
            graph.receive(number, batch, round);
            // Two looks at the clock a batch: a nanosecond a packet at most.
            let sent = counters.send_ns.read() - sending;
            counters.path_ns.add(nanoseconds(before).saturating_sub(sent));
        } else {
            graph.recycle(batch);
        }
        if let Err(error) = result {
            port_set.fail(number, error);
        }
        received
    }

    /// Forwards what a port has received but nobody has taken yet, so that nothing is lost when it leaves.
    fn drain(&mut self, number: u16) {
        if self.port_set.port(number).is_none() {
            return;
        }
        let now_ns = self.now_ns();
        self.reader.pin();
        self.port_set.begin(now_ns);
        let mut empty = 0;
        for _ in 0..LAST_TURNS {
            empty = if self.receive(number, now_ns) == 0 { empty + 1 } else { 0 };
            self.port_set.flush();
            if empty == EMPTY_TURNS {
                break;
            }
        }
    }

    /// Ends what waits inside: forwards what the ports have received, sends what they still take, drops the rest.
    pub fn stop(&mut self) {
        for number in 0..self.port_set.end() {
            self.drain(number);
        }
        self.end_graph(None);
        self.reader.sleep();
        self.port_set.flush();
        let numbers: Vec<u16> = self.port_set.ports().map(|(number, _)| number).collect();
        for number in numbers {
            let port = self.port_set.remove(number, DropReason::Shutdown);
            self.give_back(number, port);
        }
        self.counters.held.set(0);
        self.counters.generated_held.set(0);
    }

    /// Ends the elements at once: they drop what they keep, and ports are not read any more.
    pub fn end(&mut self) {
        self.end_graph(None);
    }

    /// Between two rounds: no packet is in the graph.
    fn replace(&mut self, mut graph: Box<Graph>) {
        std::mem::swap(&mut self.graph, &mut *graph);
        self.graph.take_over(&mut graph);
        self.graph.set_clock(self.clock);
        self.end_graph(Some(&mut graph));
        // Nobody is left to take it when the router ends.
        let _ = self.events.send(Event::Replaced(graph));
    }

    /// Ends what the present graph keeps, or what one before it kept.
    fn end_graph(&mut self, before: Option<&mut Graph>) {
        let now_ns = self.now_ns();
        let forwarding = self.reader.pin();
        before.unwrap_or(&mut self.graph).stop(&mut Round {
            now_ns,
            forwarding,
            counters: &self.counters,
            flow_seed: self.flow_seed,
            requests: &mut self.pending,
            transmit: &mut self.port_set,
        });
    }

    fn held(&self) -> crate::graph::Held {
        let mut held = self.graph.held();
        held += self.port_set.queued();
        held
    }

    /// Where nobody is left to take a port, it closes here.
    fn give_back(&self, number: u16, port: Option<Box<dyn Port>>) {
        if let Some(counts) = self.counters.ports.get(usize::from(number)) {
            counts.in_rings.set(0);
        }
        let _ = self.events.send(Event::PortClosed(number, port));
    }

    /// Carries out commands; returns whether to end. For callers that drive it themselves.
    pub fn obey(&mut self) -> bool {
        loop {
            match self.commands.try_recv() {
                Ok(Command::AddPort(number, port)) => self.add_port(number, port),
                Ok(Command::RemovePort(number)) => {
                    self.drain(number);
                    let port = self.port_set.remove(number, DropReason::PortDown);
                    self.give_back(number, port);
                }
                Ok(Command::Replace(graph)) => self.replace(graph),
                Ok(Command::Time(timed)) => _ = self.set_timed(timed),
                Ok(Command::Trace(tracer)) => self.graph.trace(tracer),
                Ok(Command::Drain(number)) => self.drain(number),
                // Who no longer waits needs no answer.
                Ok(Command::Confirm(to)) => _ = to.send(()),
                Ok(Command::Stop) | Err(TryRecvError::Disconnected) => return true,
                Err(TryRecvError::Empty) => return false,
            }
        }
    }

    /// Reports events of the round to the control side.
    fn report(&mut self) {
        let mut urgent = false;
        for request in self.pending.drain(..) {
            urgent |= matches!(request, ResolveRequest::Adjacency(_));
            if self.requests.try_send(request).is_err() {
                self.counters.requests_lost.add(1);
            }
        }
        if let Some(bell) = self.bell.as_ref().filter(|_| urgent) {
            bell();
        }
        while let Some((number, error, port)) = self.port_set.failed() {
            let _ = self.events.send(Event::PortFailed(number, error, port));
        }
    }

    fn sleep(&mut self, wait: &mut dyn Wait) {
        self.reader.sleep();
        let soon = self.held().total() > 0 || self.graph.keeps_time();
        let mut timeout = if soon { SHORT_SLEEP } else { SLEEP };
        let fds = &mut self.fds;
        fds.clear();
        for (_, port) in self.port_set.ports() {
            let before = fds.len();
            port.wait_fds(fds);
            if fds.len() == before {
                timeout = SHORT_SLEEP;
            }
        }
        wait.wait(fds, timeout);
    }
}

/// Marks and counts what a port received.
fn count_received(batch: &mut Batch, number: u16, counters: &WorkerCounters) {
    let bytes = batch.total_bytes();
    batch.meta_mut().iter_mut().for_each(|meta| meta.port = number);
    let packets = batch.len() as u64;
    counters.packets_in.add(packets);
    if let Some(port) = counters.ports.get(usize::from(number)) {
        port.rx_packets.add(packets);
        port.rx_bytes.add(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::memory::{Generator, HEADER_BYTES, Sink, link};
    use crate::router_graph;
    use crate::testing::{World, frame_v4};
    use fingerpost_route::{ForwardingAction, Publisher};
    use std::sync::{Mutex, atomic, mpsc};

    /// A worker in the small world, with the other ends of its channels.
    struct Rig {
        worker: Worker,
        pool: Pool,
        counters: Arc<WorkerCounters>,
        commands: mpsc::Sender<Command>,
        events: mpsc::Receiver<Event>,
        requests: mpsc::Receiver<ResolveRequest>,
        _publisher: Publisher<Forwarding>,
    }

    fn rig(world: &World) -> Rig {
        rig_of(world, &router_graph::plan().unwrap())
    }

    fn rig_of(world: &World, plan: &Plan) -> Rig {
        let pool = Pool::new(2048, 2048);
        let publisher = Publisher::new(world.forwarding());
        let counters = Arc::new(WorkerCounters::new(4, 64));
        let (commands, orders) = mpsc::channel();
        let (reported, events) = mpsc::channel();
        let (sender, requests) = mpsc::sync_channel(2);
        let worker = Worker::new(WorkerOptions {
            plan,
            pool: pool.clone(),
            reader: publisher.reader(),
            counters: counters.clone(),
            commands: orders,
            events: reported,
            requests: sender,
            flow_seed: 0,
        });
        Rig { worker, pool, counters, commands, events, requests, _publisher: publisher }
    }

    impl Rig {
        fn add(&mut self, number: u16, port: impl Port + 'static) {
            self.worker.add_port(number, Box::new(port));
        }

        /// In = out + dropped + held, and what is held is what is not in the pool.
        fn check_law(&self) {
            let c = &self.counters;
            let ended = c.packets_out.read() + c.dropped_total() + c.held.read();
            assert_eq!(c.packets_in.read(), ended);
            assert_eq!(self.pool.free() as u64 + c.held.read(), 2048);
        }

        fn dropped(&self, reason: DropReason) -> u64 {
            let all = self.counters.dropped[reason as usize].read();
            let by_port = self.counters.ports.iter().map(|port| port.dropped(reason)).sum();
            assert_eq!(all, by_port, "each was received by a port");
            all
        }
    }

    fn world() -> World {
        let mut world = World::new();
        world.neighbor(4, 1);
        world.neighbor(6, 2);
        world.action("192.0.2.0/24", ForwardingAction::Adjacency(4));
        world.action("198.51.100.0/24", ForwardingAction::Adjacency(6));
        world.action("10.0.1.0/24", ForwardingAction::Glean(1));
        world
    }

    fn headers(dsts: &[&str]) -> Arc<[[u8; HEADER_BYTES]]> {
        dsts.iter()
            .map(|dst| {
                let frame = frame_v4("10.0.0.9", dst, 64, 17, &[0; 26]);
                let mut header = [0; HEADER_BYTES];
                header[..60].copy_from_slice(&frame);
                header
            })
            .collect()
    }

    #[test]
    fn packets_cross_and_are_counted() {
        let mut rig = rig(&world());
        let dsts = headers(&["192.0.2.1", "198.51.100.1", "203.0.113.1"]);
        rig.add(0, Generator::new(&rig.pool, dsts, 60).limit(3000));
        let (one, two) = (Sink::new(), Sink::new());
        let (at_one, at_two) = (one.counters(), two.counters());
        rig.add(1, one);
        rig.add(2, two);
        let mut rounds = 0;
        while rig.worker.round() > 0 {
            rig.check_law();
            rounds += 1;
        }
        assert_eq!(rounds, 3000usize.div_ceil(BURST));
        assert_eq!((at_one.packets.read(), at_two.packets.read()), (1000, 1000));
        assert_eq!(rig.dropped(DropReason::NoRoute), 1000);
        let c = &rig.counters;
        let ports = |n: usize| {
            let port = &c.ports[n];
            [&port.rx_packets, &port.rx_bytes, &port.tx_packets, &port.tx_bytes].map(|c| c.read())
        };
        assert_eq!(ports(0), [3000, 180_000, 0, 0]);
        assert_eq!(ports(1), [0, 0, 1000, 60_000]);
        assert_eq!((c.adjacencies[4].read(), c.adjacencies[6].read()), (1000, 1000));
        assert_eq!((c.busy_rounds.read(), c.idle_rounds.read()), (rounds as u64, 1));
    }

    /// Takes `takes` packets a call; what it took is kept as the identification of each.
    #[derive(Default)]
    struct Slow {
        takes: usize,
        seen: Arc<Mutex<Vec<u64>>>,
        fails: Arc<atomic::AtomicBool>,
    }

    impl Slow {
        fn check(&self) -> Result<(), DeviceError> {
            if self.fails.load(atomic::Ordering::SeqCst) {
                let what = "unplugged".to_owned();
                return Err(DeviceError::Unfit { device: "slow".into(), what });
            }
            Ok(())
        }
    }

    impl Port for Slow {
        fn recv(&mut self, _: &mut Batch) -> Result<usize, DeviceError> {
            Ok(0)
        }
        fn send(&mut self, from: &mut Batch) -> Result<usize, DeviceError> {
            self.check()?;
            let count = from.len().min(self.takes);
            let mut seen = self.seen.lock().unwrap();
            for i in 0..count {
                seen.push(from.bytes(i)[52..60].iter().fold(0, |n, b| n << 8 | u64::from(*b)));
            }
            from.free_front(count);
            Ok(count)
        }
    }

    fn numbered(pool: &Pool, count: u64) -> Generator {
        Generator::new(pool, headers(&["192.0.2.1"]), 60)
            .limit(count)
            .stamp(Box::new(|n, frame| frame[52..60].copy_from_slice(&n.to_be_bytes())))
    }

    #[test]
    fn what_a_port_does_not_take_waits_in_order() {
        let mut rig = rig(&world());
        let slow = Slow { takes: 5, ..Slow::default() };
        let seen = slow.seen.clone();
        rig.add(0, numbered(&rig.pool, 200));
        rig.add(1, slow);
        for _ in 0..100 {
            rig.worker.round();
            rig.check_law();
        }
        assert_eq!(*seen.lock().unwrap(), (0..200).collect::<Vec<_>>());
    }

    #[test]
    fn ports_that_receive_are_first_in_turn() {
        let mut rig = rig(&world());
        let order = Arc::new(Mutex::new(Vec::new()));
        for number in [0, 2, 3] {
            let polled = order.clone();
            let stamp = move |_, _: &mut [u8]| polled.lock().unwrap().push(number);
            let all = Generator::new(&rig.pool, headers(&["203.0.113.1"]), 60);
            rig.add(number, all.stamp(Box::new(stamp)));
        }
        rig.add(1, Sink::new());
        for _ in 0..4 {
            rig.worker.round();
            rig.check_law();
        }
        let order = order.lock().unwrap();
        let order: Vec<u16> = order.chunks(BURST).map(|batch| batch[0]).collect();
        assert_eq!(order, [[0, 2, 3], [2, 3, 0], [3, 0, 2], [0, 2, 3]].concat());
    }

    #[test]
    fn a_stuck_port_costs_its_own_packets_only() {
        let mut rig = rig(&world());
        rig.add(0, numbered(&rig.pool, 400));
        rig.add(1, Slow::default());
        for _ in 0..10 {
            rig.worker.round_at(5);
            rig.check_law();
        }
        assert_eq!((rig.counters.held.read(), rig.dropped(DropReason::TransmitFull)), (256, 144));
        rig.worker.round_at(5 + 2 * 100_000_000);
        assert_eq!((rig.counters.held.read(), rig.dropped(DropReason::TransmitFull)), (0, 400));
        rig.check_law();
    }

    #[test]
    fn a_broken_port_is_closed_and_reported() {
        let mut rig = rig(&world());
        let slow = Slow { takes: BURST, ..Slow::default() };
        let fails = slow.fails.clone();
        rig.add(0, numbered(&rig.pool, 4 * BURST as u64));
        rig.add(1, slow);
        rig.worker.round();
        fails.store(true, atomic::Ordering::SeqCst);
        rig.worker.round();
        match rig.events.try_recv().unwrap() {
            Event::PortFailed(1, error, Some(_)) => {
                assert_eq!(error.to_string(), "slow: unplugged")
            }
            _ => panic!("another event"),
        }
        rig.worker.round();
        rig.check_law();
        assert_eq!(rig.counters.packets_out.read(), BURST as u64);
        assert_eq!(rig.dropped(DropReason::TransmitError), BURST as u64);
        assert_eq!(rig.dropped(DropReason::PortDown), BURST as u64);
    }

    #[test]
    fn stopping_drains_what_is_held() {
        let mut rig = rig(&world());
        rig.add(0, Generator::new(&rig.pool, headers(&["10.0.1.7", "192.0.2.1"]), 60).limit(20));
        rig.add(1, Slow::default());
        rig.worker.round();
        assert_eq!(rig.counters.held.read(), 20);
        assert_eq!(rig.requests.try_iter().count(), 1);
        rig.worker.stop();
        rig.check_law();
        assert_eq!(rig.dropped(DropReason::Shutdown), 20);
        let back = rig.events.try_iter().filter(|e| matches!(e, Event::PortClosed(..))).count();
        assert_eq!(back, 2, "the ports are handed back");
    }

    #[test]
    fn the_bell_rings_for_next_hops_of_routes_alone() {
        let world = world();
        world.hops.set_unresolved(6, 2, false);
        let mut rig = rig(&world);
        let (bell, rung) = mpsc::channel();
        rig.worker.set_bell(Box::new(move || bell.send(()).unwrap()));
        for (dst, rings) in [("10.0.1.7", 0), ("198.51.100.1", 1)] {
            rig.add(0, Generator::new(&rig.pool, headers(&[dst]), 60).limit(1));
            rig.worker.round();
            assert_eq!((rig.requests.try_iter().count(), rung.try_iter().count()), (1, rings));
        }
    }

    #[test]
    fn questions_that_do_not_fit_are_counted() {
        let mut rig = rig(&world());
        let dsts = headers(&["10.0.1.7", "10.0.1.8", "10.0.1.9", "10.0.1.10", "10.0.1.11"]);
        rig.add(0, Generator::new(&rig.pool, dsts, 60).limit(5));
        rig.worker.round();
        assert_eq!((rig.requests.try_iter().count(), rig.counters.requests_lost.read()), (2, 3));
    }

    #[test]
    fn ports_come_and_go_by_command() {
        let mut rig = rig(&world());
        let send = |command| rig.commands.send(command).unwrap();
        send(Command::AddPort(0, Box::new(numbered(&rig.pool, 50))));
        send(Command::AddPort(1, Box::new(Slow::default())));
        assert!(!rig.worker.obey());
        rig.worker.round();
        assert_eq!(rig.counters.held.read(), 50);
        // Replaced: what waited in its queue is sent by the new one, and the old port comes back.
        rig.commands.send(Command::AddPort(1, Box::new(Sink::new()))).unwrap();
        rig.commands.send(Command::RemovePort(0)).unwrap();
        rig.commands.send(Command::RemovePort(9)).unwrap();
        assert!(!rig.worker.obey());
        rig.worker.round();
        rig.check_law();
        assert_eq!((rig.counters.packets_out.read(), rig.counters.dropped_total()), (50, 0));
        let back: Vec<_> = rig.events.try_iter().map(|event| format!("{event:?}")).collect();
        assert_eq!(back, ["PortClosed(1, port)", "PortClosed(0, port)", "PortClosed(9, none)"]);
        rig.commands.send(Command::Stop).unwrap();
        assert!(rig.worker.obey());
    }

    #[test]
    fn a_port_that_leaves_is_emptied_first() {
        let mut rig = rig(&world());
        rig.add(0, numbered(&rig.pool, 3 * BURST as u64));
        let sink = Sink::new();
        let arrived = sink.counters();
        rig.add(1, sink);
        let (confirmed, confirmation) = mpsc::channel();
        rig.commands.send(Command::RemovePort(0)).unwrap();
        rig.commands.send(Command::Confirm(confirmed)).unwrap();
        assert!(!rig.worker.obey());
        confirmation.try_recv().expect("all before it is done");
        assert_eq!(arrived.packets.read(), 3 * BURST as u64);
        // Also where another one takes its place, and at the end.
        rig.add(0, numbered(&rig.pool, BURST as u64));
        rig.add(0, numbered(&rig.pool, 2 * BURST as u64));
        assert_eq!(arrived.packets.read(), 4 * BURST as u64);
        rig.worker.stop();
        assert_eq!((arrived.packets.read(), rig.counters.dropped_total()), (6 * BURST as u64, 0));
        rig.check_law();
    }

    #[test]
    fn what_was_inside_a_worker_that_fails_is_counted() {
        // One packet waits for a link address, others are in the graph.
        let text = router_graph::TEXT.replace("FromPorts ->", "FromPorts -> PanicAfter(25) ->");
        let plan = Plan::read("fails", &text, crate::ELEMENTS).unwrap();
        let mut rig = rig_of(&world(), &plan);
        let dsts = headers(&["192.0.2.1", "10.0.1.7", "203.0.113.1"]);
        rig.add(0, Generator::new(&rig.pool, dsts, 60).limit(100));
        let sink = Sink::new();
        let arrived = sink.counters();
        rig.add(1, sink);
        rig.worker.set_burst(10);
        let Rig { mut worker, pool, counters, commands, .. } = rig;
        let thread = std::thread::spawn(move || worker.run(&mut Nap));
        let failed = thread.join().unwrap_err();
        drop(commands);
        assert!(failed.downcast_ref::<&str>().unwrap().starts_with("PanicAfter"));
        assert_eq!((counters.packets_in.read(), arrived.packets.read()), (30, 7));
        counters.fail();
        let ended = |reason: DropReason| counters.dropped[reason as usize].read();
        let (out, held) = (counters.packets_out.read(), counters.held.read());
        assert_eq!(counters.packets_in.read(), out + counters.dropped_total() + held);
        assert_eq!(held, 0);
        assert_eq!((out, ended(DropReason::NoRoute)), (7, 6));
        assert_eq!(ended(DropReason::NoWorker), 17, "10 in the batch, 7 that waited");
        assert_eq!(pool.free(), 2048);
    }

    #[test]
    fn a_thread_forwards_sleeps_and_ends() {
        let mut rig = rig(&world());
        let outside = Pool::new(64, 2048);
        let (mut here, there) = link(&outside, &rig.pool, 64);
        let sink = Sink::new();
        let arrived = sink.counters();
        rig.add(0, there);
        rig.add(1, sink);
        let mut batch = Batch::new(&outside);
        let Rig { mut worker, counters, commands, events: _events, .. } = rig;
        let thread = std::thread::spawn(move || worker.run(&mut Nap));
        for sent in 1..=3 {
            let frame = frame_v4("10.0.0.9", "192.0.2.1", 64, 17, &[0; 26]);
            batch.push(crate::testing::packet(&outside, 0, &frame)).unwrap();
            here.send(&mut batch).unwrap();
            let start = Instant::now();
            while arrived.packets.read() < sent {
                assert!(start.elapsed() < Duration::from_secs(10), "packet {sent} did not arrive");
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        let device = || counters.ports[1].device();
        let start = Instant::now();
        while device().iter().all(|(_, count)| *count < 3) {
            assert!(start.elapsed() < Duration::from_secs(10), "{:?}", device());
            std::thread::sleep(Duration::from_millis(5));
        }
        // Nobody is left who could stop it otherwise.
        drop(commands);
        thread.join().unwrap();
        assert_eq!(counters.packets_out.read(), 3);
    }
}
