//! A worker: one thread that owns one queue of every port, and carries packets through the graph to
//! their end. One core a queue, one core a packet (RouteBricks, SOSP 2009): nothing is shared on the
//! path but what all read.
//!
//! A round takes what every port has, up to a batch each, and empties the transmit queues. A worker
//! that finds nothing for a while sleeps until a port has something, holding nothing that the control
//! side would wait for.

use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, TryRecvError};
use std::time::{Duration, Instant};

use fingerpost_route::{Ask, Forwarding, Reader};

use crate::buf::{BATCH, Batch, FLAG_GENERATED, Pool};
use crate::counters::WorkerCounters;
use crate::device::{DeviceError, Port, Wait};
use crate::drops::DropReason;
use crate::element::Transmit;
use crate::graph::plan::NodeId;
use crate::graph::{Graph, Plan, Round};

/// A transmit queue of this length is emptied before the round is over.
const FLUSH_AT: usize = 64;
/// How often a port that takes nothing is offered a queue that has no room left.
const OFFERS: usize = 64;
/// How long to look again before sleeping: waking costs about as much.
const SPIN: Duration = Duration::from_micros(50);
/// Longest sleep, and the one while packets wait inside for a link address.
const SLEEP: Duration = Duration::from_millis(100);
const SHORT_SLEEP: Duration = Duration::from_millis(1);
/// Questions to the control side that are kept until it takes them.
const MAX_ASKS: usize = 256;

/// What a worker is told from outside. Wake it after sending, or it acts when it next wakes.
pub enum Command {
    /// A port under a number. A port that had the number is closed.
    AddPort(u16, Box<dyn Port>),
    /// Closes the port of a number.
    RemovePort(u16),
    /// Ends what is held, closes all ports and returns.
    Stop,
}

/// What a worker tells.
///
/// Ports that left come along, to be dropped where time does not matter: closing a socket can wait for
/// the kernel.
pub enum Event {
    /// The device failed and its port left.
    PortFailed(u16, DeviceError, Option<Box<dyn Port>>),
    /// A port left as told.
    PortClosed(u16, Option<Box<dyn Port>>),
}

/// What a worker is made of.
pub struct WorkerOptions<'a> {
    /// What it runs.
    pub plan: &'a Plan,
    /// Where received packets enter.
    pub entry: NodeId,
    /// Frames for all its ports and for packets of our own making.
    pub pool: Pool,
    /// What to forward by.
    pub reader: Reader<Forwarding>,
    /// Its counters.
    pub counters: Arc<WorkerCounters>,
    /// What it is told.
    pub commands: Receiver<Command>,
    /// Where it asks for link addresses.
    pub asks: SyncSender<Ask>,
    /// Where it tells what happened.
    pub events: Sender<Event>,
    /// Seed of the flow hash.
    pub flow_seed: u64,
}

/// A worker. Drive it by [`Worker::run`], or round by round.
pub struct Worker {
    graph: Graph,
    entry: NodeId,
    pool: Pool,
    reader: Reader<Forwarding>,
    counters: Arc<WorkerCounters>,
    commands: Receiver<Command>,
    asks_out: SyncSender<Ask>,
    events: Sender<Event>,
    flow_seed: u64,
    asks: Vec<Ask>,
    ports: Ports,
    started: Instant,
}

struct Ports {
    slots: Vec<Option<Slot>>,
    /// Numbers in use, so that a round does not walk holes.
    numbers: Vec<u16>,
    counters: Arc<WorkerCounters>,
    failed: Vec<(u16, DeviceError)>,
    /// Of the batch at hand: packets for each port, kept for its memory.
    planned: Vec<(u16, usize)>,
}

struct Slot {
    port: Box<dyn Port>,
    queue: Box<Batch>,
}

impl Worker {
    /// Without ports; they come by [`Command::AddPort`].
    pub fn new(options: WorkerOptions<'_>) -> Self {
        let counters = options.counters;
        Self {
            graph: Graph::new(options.plan, &options.pool),
            entry: options.entry,
            pool: options.pool,
            reader: options.reader,
            ports: Ports {
                slots: Vec::new(),
                numbers: Vec::new(),
                counters: counters.clone(),
                failed: Vec::new(),
                planned: Vec::new(),
            },
            counters,
            commands: options.commands,
            asks_out: options.asks,
            events: options.events,
            flow_seed: options.flow_seed,
            asks: Vec::with_capacity(MAX_ASKS),
            started: Instant::now(),
        }
    }

    /// Works until told to stop, sleeping by `wait` when there is nothing to do.
    pub fn run(&mut self, wait: &mut dyn Wait) {
        let mut idle_since: Option<Instant> = None;
        let mut fds: Vec<RawFd> = Vec::new();
        loop {
            if self.obey() {
                return;
            }
            if self.round() > 0 {
                idle_since = None;
                continue;
            }
            let since = *idle_since.get_or_insert_with(Instant::now);
            if since.elapsed() < SPIN {
                std::hint::spin_loop();
                continue;
            }
            self.reader.sleep();
            fds.clear();
            self.ports.slots.iter().flatten().for_each(|slot| slot.port.wait_fds(&mut fds));
            let waiting = self.counters.held.read() > 0;
            wait.wait(&fds, if waiting { SHORT_SLEEP } else { SLEEP });
            idle_since = None;
        }
    }

    /// One round over all ports; returns how many packets came in.
    pub fn round(&mut self) -> usize {
        let now_ns = u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let Self { graph, reader, counters, asks, ports, .. } = self;
        let (entry, flow_seed) = (self.entry, self.flow_seed);
        let forwarding = reader.pin();
        let mut taken = 0;
        for at in 0..ports.numbers.len() {
            let mut batch = graph.batch();
            taken += ports.receive(at, &mut batch);
            if batch.is_empty() {
                graph.recycle(batch);
                continue;
            }
            let transmit = &mut *ports;
            let asks = &mut *asks;
            let mut round = Round { now_ns, forwarding, counters, flow_seed, asks, transmit };
            graph.run(entry, 0, batch, &mut round);
        }
        let mut round = Round { now_ns, forwarding, counters, flow_seed, asks, transmit: ports };
        graph.poll(&mut round);
        self.ports.flush_all();
        self.settle(taken);
        taken
    }

    /// Bookkeeping at the end of a round.
    fn settle(&mut self, taken: usize) {
        for ask in self.asks.drain(..) {
            if self.asks_out.try_send(ask).is_err() {
                // The element asks again.
                self.counters.asks_lost.add(1);
            }
        }
        let rounds =
            if taken > 0 { &self.counters.busy_rounds } else { &self.counters.idle_rounds };
        rounds.add(1);
        let held = self.graph.held();
        self.counters.held.set((held.received + self.ports.queued(false)) as u64);
        self.counters.generated_held.set((held.generated + self.ports.queued(true)) as u64);
        for (number, error) in std::mem::take(&mut self.ports.failed) {
            let port = self.ports.remove(number, DropReason::PortDown);
            let _ = self.events.send(Event::PortFailed(number, error, port));
        }
    }

    /// Carries out what came in; whether it was the end.
    fn obey(&mut self) -> bool {
        loop {
            match self.commands.try_recv() {
                Ok(Command::AddPort(number, port)) => self.add_port(number, port),
                Ok(Command::RemovePort(number)) => {
                    let port = self.ports.remove(number, DropReason::PortDown);
                    let _ = self.events.send(Event::PortClosed(number, port));
                }
                Ok(Command::Stop) | Err(TryRecvError::Disconnected) => {
                    self.stop();
                    return true;
                }
                Err(TryRecvError::Empty) => return false,
            }
        }
    }

    /// Ends what is held and closes all ports.
    pub fn stop(&mut self) {
        let Self { graph, reader, counters, asks, ports, .. } = self;
        let (flow_seed, forwarding) = (self.flow_seed, reader.pin());
        let mut round = Round { now_ns: 0, forwarding, counters, flow_seed, asks, transmit: ports };
        graph.stop(&mut round);
        self.ports.flush_all();
        for number in std::mem::take(&mut self.ports.numbers) {
            self.ports.remove(number, DropReason::Shutdown);
        }
        self.settle(0);
        self.reader.sleep();
    }

    /// Its frames.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Adds a port at once; for workers that are driven round by round.
    pub fn add_port(&mut self, number: u16, port: Box<dyn Port>) {
        if let Some(port) = self.ports.remove(number, DropReason::PortDown) {
            let _ = self.events.send(Event::PortClosed(number, Some(port)));
        }
        self.ports.add(number, port, &self.pool);
    }

    /// The counters of the graph's nodes.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// Frames in the rings of its ports.
    pub fn in_rings(&self) -> usize {
        self.ports.slots.iter().flatten().map(|slot| slot.port.in_rings()).sum()
    }
}

impl Ports {
    fn add(&mut self, number: u16, port: Box<dyn Port>, pool: &Pool) {
        let at = usize::from(number);
        if self.slots.len() <= at {
            self.slots.resize_with(at + 1, || None);
        }
        self.slots[at] = Some(Slot { port, queue: Batch::new(pool) });
        self.numbers.push(number);
    }

    fn remove(&mut self, number: u16, reason: DropReason) -> Option<Box<dyn Port>> {
        self.numbers.retain(|&n| n != number);
        let Slot { port, mut queue } = self.slots.get_mut(usize::from(number))?.take()?;
        for meta in queue.meta() {
            self.counters.drop_packet(reason, meta.flags & FLAG_GENERATED != 0);
        }
        queue.clear();
        Some(port)
    }

    /// Takes what the port at this place of the list has; returns how many packets that were.
    fn receive(&mut self, at: usize, batch: &mut Batch) -> usize {
        let number = self.numbers[at];
        let Some(Some(slot)) = self.slots.get_mut(usize::from(number)) else { return 0 };
        if let Err(error) = slot.port.recv(batch) {
            self.failed.push((number, error));
        }
        let count = batch.len();
        for meta in batch.meta_mut() {
            meta.port = number;
        }
        if count > 0 {
            self.counters.packets_in.add(count as u64);
            if let Some(port) = self.counters.ports.get(usize::from(number)) {
                let bytes = (0..count).map(|i| batch.frame_len(i) as u64).sum();
                port.rx_packets.add(count as u64);
                port.rx_bytes.add(bytes);
            }
        }
        count
    }

    fn flush_all(&mut self) {
        for at in 0..self.numbers.len() {
            self.flush(self.numbers[at]);
        }
    }

    /// Offers the queue of a port to its device.
    fn flush(&mut self, number: u16) {
        let Some(Some(slot)) = self.slots.get_mut(usize::from(number)) else { return };
        let count = slot.queue.len();
        if count == 0 {
            return;
        }
        // What leaves is gone from the queue: note before what is to be counted after.
        let mut generated = [false; BATCH];
        let mut bytes = [0u16; BATCH];
        for i in 0..count {
            generated[i] = slot.queue.meta()[i].flags & FLAG_GENERATED != 0;
            bytes[i] = u16::try_from(slot.queue.frame_len(i)).unwrap_or(u16::MAX);
        }
        let result = slot.port.send(&mut slot.queue);
        let sent = count - slot.queue.len();
        let own = generated[..sent].iter().filter(|g| **g).count() as u64;
        self.counters.generated_sent.add(own);
        self.counters.packets_out.add(sent as u64 - own);
        if let Some(port) = self.counters.ports.get(usize::from(number)) {
            port.tx_packets.add(sent as u64);
            port.tx_bytes.add(bytes[..sent].iter().map(|&b| u64::from(b)).sum());
        }
        if let Err(error) = result {
            self.failed.push((number, error));
        }
    }

    fn queued(&self, generated: bool) -> usize {
        let of = |slot: &Slot| {
            let is = |flags: u8| flags & FLAG_GENERATED != 0;
            slot.queue.meta().iter().filter(|meta| is(meta.flags) == generated).count()
        };
        self.slots.iter().flatten().map(of).sum()
    }

    /// Makes room for `count` packets in a port's queue; returns for how many there is.
    fn make_room(&mut self, number: u16, count: usize) -> usize {
        for _ in 0..OFFERS {
            let Some(Some(slot)) = self.slots.get(usize::from(number)) else { return 0 };
            if slot.queue.room() >= count || self.failed.iter().any(|f| f.0 == number) {
                break;
            }
            self.flush(number);
        }
        match self.slots.get(usize::from(number)) {
            Some(Some(slot)) => slot.queue.room(),
            _ => 0,
        }
    }
}

impl Transmit for Ports {
    fn transmit(&mut self, batch: &mut Batch) {
        let count = batch.len();
        // Room is made before packets move, so that the move itself cannot fail.
        let mut planned = std::mem::take(&mut self.planned);
        planned.clear();
        for i in 0..count {
            let number = port_of(batch, i);
            match planned.iter_mut().find(|p| p.0 == number) {
                Some(port) => port.1 += 1,
                None => planned.push((number, 1)),
            }
        }
        for (number, wanted) in &mut planned {
            *wanted = self.make_room(*number, *wanted).min(*wanted);
        }
        for i in 0..count {
            let number = port_of(batch, i);
            let left = planned.iter_mut().find(|p| p.0 == number).expect("counted above");
            if left.1 > 0 {
                left.1 -= 1;
                batch.output(i, number);
            } else if matches!(self.slots.get(usize::from(number)), Some(Some(_))) {
                batch.discard(i, DropReason::TransmitFull);
            } else {
                batch.discard(i, DropReason::PortDown);
            }
        }
        let Self { slots, counters, .. } = self;
        batch.scatter(
            |reason, meta| counters.drop_packet(reason, meta.flags & FLAG_GENERATED != 0),
            |number, put| {
                if let Some(Some(slot)) = slots.get_mut(usize::from(number)) {
                    put(&mut slot.queue);
                }
            },
        );
        for (number, _) in &planned {
            if let Some(Some(slot)) = self.slots.get(usize::from(*number))
                && slot.queue.len() >= FLUSH_AT
            {
                self.flush(*number);
            }
        }
        self.planned = planned;
    }
}

/// The port that a packet's note names.
#[allow(clippy::cast_possible_truncation, reason = "before `transmit` a note holds a port")]
fn port_of(batch: &Batch, i: usize) -> u16 {
    batch.meta()[i].note as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::element::{Context, Element, ElementClass};
    use crate::graph::PlanBuilder;
    use crate::testing::{World, packet};
    use fingerpost_route::Publisher;
    use std::collections::VecDeque;
    use std::sync::Mutex;
    use std::sync::mpsc::{channel, sync_channel};

    /// Sends every packet to the port that its first byte names; marks those with a second byte of 1
    /// as our own.
    struct Steer;
    impl Element for Steer {
        fn process(&mut self, _: u16, batch: &mut Batch, _: &mut Context<'_>) {
            for i in 0..batch.len() {
                let (port, own) = (batch.bytes(i)[0], batch.bytes(i)[1] == 1);
                let meta = &mut batch.meta_mut()[i];
                meta.note = port.into();
                meta.flags |= if own { FLAG_GENERATED } else { 0 };
            }
        }
    }
    static STEER: ElementClass = ElementClass {
        name: "steer",
        summary: "",
        inputs: &["in"],
        outputs: &["out"],
        make: || Box::new(Steer),
    };

    #[derive(Default)]
    struct Wire {
        arriving: VecDeque<Vec<u8>>,
        sent: Vec<Vec<u8>>,
        /// Frames it still takes.
        credit: usize,
        broken: bool,
    }

    struct WirePort(Arc<Mutex<Wire>>);

    impl Port for WirePort {
        fn recv(&mut self, into: &mut Batch) -> Result<usize, DeviceError> {
            let mut wire = self.0.lock().unwrap();
            if wire.broken {
                return Err(DeviceError::Unfit { device: "wire".into(), what: "cut".into() });
            }
            let mut count = 0;
            while into.room() > 0
                && let Some(frame) = wire.arriving.pop_front()
            {
                let pool = into.pool().clone();
                into.push(packet(&pool, 0, &frame)).unwrap();
                count += 1;
            }
            Ok(count)
        }
        fn send(&mut self, from: &mut Batch) -> Result<usize, DeviceError> {
            let mut wire = self.0.lock().unwrap();
            let count = from.len().min(wire.credit);
            wire.credit -= count;
            for i in 0..count {
                wire.sent.push(from.bytes(i).to_vec());
            }
            from.free_front(count);
            Ok(count)
        }
    }

    struct Lab {
        worker: Worker,
        wires: Vec<Arc<Mutex<Wire>>>,
        commands: Sender<Command>,
        events: Receiver<Event>,
        _asks: Receiver<Ask>,
    }

    fn lab() -> Lab {
        let mut builder = PlanBuilder::new();
        builder.node_of("steer", &STEER).unwrap();
        builder.node("out", "transmit").unwrap();
        builder.edge("steer", "out", "out", "in").unwrap();
        let plan = builder.build();
        let (commands, commands_in) = channel();
        let (asks, asks_in) = sync_channel(4);
        let (events, events_in) = channel();
        let mut worker = Worker::new(WorkerOptions {
            plan: &plan,
            entry: plan.find("steer").unwrap(),
            pool: Pool::new(2048, 2048),
            reader: Publisher::new(World::new().forwarding()).reader(),
            counters: Arc::new(WorkerCounters::new(4, 16)),
            commands: commands_in,
            asks,
            events,
            flow_seed: 0,
        });
        let wires: Vec<_> = (0..2)
            .map(|_| Arc::new(Mutex::new(Wire { credit: usize::MAX, ..Wire::default() })))
            .collect();
        for (number, wire) in wires.iter().enumerate() {
            worker.add_port(u16::try_from(number).unwrap(), Box::new(WirePort(wire.clone())));
        }
        Lab { worker, wires, commands, events: events_in, _asks: asks_in }
    }

    impl Lab {
        fn arrive(&self, port: usize, to: u8, own: bool, count: usize) {
            let frames = (0..count).map(|i| vec![to, own.into(), u8::try_from(i % 251).unwrap()]);
            self.wires[port].lock().unwrap().arriving.extend(frames);
        }
        fn dropped(&self, reason: DropReason) -> u64 {
            self.worker.counters.dropped[reason as usize].read()
        }
        /// in = out + dropped + held, and every frame is somewhere.
        fn conserved(&self) {
            let c = &self.worker.counters;
            let own_in = c.generated_sent.read() + c.generated_held.read();
            let kept = c.packets_out.read() + c.dropped_total() + c.held.read();
            assert_eq!(c.packets_in.read(), kept + own_in);
            let held = usize::try_from(c.held.read() + c.generated_held.read()).unwrap();
            assert_eq!(self.worker.pool.free() + held, self.worker.pool.frames());
        }
    }

    #[test]
    fn packets_leave_by_their_port_in_order() {
        let mut lab = lab();
        lab.arrive(0, 1, false, 300);
        lab.arrive(1, 0, true, 10);
        assert_eq!(lab.worker.round(), 266);
        assert_eq!(lab.worker.round(), 44);
        assert_eq!(lab.worker.round(), 0);
        lab.conserved();
        let sent = &lab.wires[1].lock().unwrap().sent;
        assert!(sent.iter().map(|f| usize::from(f[2])).eq((0..300).map(|i| i % 251)));
        let counters = &lab.worker.counters;
        assert_eq!((counters.packets_out.read(), counters.generated_sent.read()), (300, 10));
        assert_eq!(counters.ports[1].tx_bytes.read(), 900);
        assert_eq!(counters.ports[1].rx_packets.read(), 10);
    }

    #[test]
    fn a_port_that_takes_nothing_fills_its_queue_and_then_drops() {
        let mut lab = lab();
        lab.wires[1].lock().unwrap().credit = 0;
        lab.arrive(0, 1, false, 200);
        lab.worker.round();
        lab.conserved();
        assert_eq!(lab.worker.counters.held.read(), 200);
        lab.arrive(0, 1, false, 200);
        lab.worker.round();
        lab.conserved();
        assert_eq!(lab.dropped(DropReason::TransmitFull), 144);
        lab.wires[1].lock().unwrap().credit = usize::MAX;
        lab.worker.round();
        lab.conserved();
        assert_eq!(lab.wires[1].lock().unwrap().sent.len(), 256);
    }

    #[test]
    fn a_port_that_fails_is_closed_and_told() {
        let mut lab = lab();
        lab.wires[1].lock().unwrap().credit = 0;
        lab.arrive(0, 1, false, 20);
        lab.worker.round();
        lab.wires[1].lock().unwrap().broken = true;
        lab.worker.round();
        assert!(matches!(lab.events.try_recv(), Ok(Event::PortFailed(1, _, Some(_)))));
        assert_eq!(lab.dropped(DropReason::PortDown), 20);
        lab.arrive(0, 1, false, 5);
        lab.worker.round();
        assert_eq!(lab.dropped(DropReason::PortDown), 25);
        lab.conserved();
    }

    /// Counts its calls, and tells the worker to stop at the third.
    struct ThreeTimes(u32, Sender<Command>);
    impl Wait for ThreeTimes {
        fn wait(&mut self, _: &[RawFd], timeout: Duration) {
            self.0 += 1;
            assert_eq!(timeout, SHORT_SLEEP, "packets wait inside");
            if self.0 == 3 {
                self.1.send(Command::Stop).unwrap();
            }
        }
    }

    #[test]
    fn an_idle_worker_sleeps_and_stops_when_told() {
        let mut lab = lab();
        lab.wires[1].lock().unwrap().credit = 0;
        lab.arrive(0, 1, false, 7);
        lab.commands.send(Command::RemovePort(9)).unwrap();
        let mut wait = ThreeTimes(0, lab.commands.clone());
        lab.worker.run(&mut wait);
        assert_eq!(wait.0, 3);
        assert_eq!(lab.dropped(DropReason::Shutdown), 7);
        lab.conserved();
        assert_eq!(lab.worker.pool.free(), lab.worker.pool.frames());
    }
}
