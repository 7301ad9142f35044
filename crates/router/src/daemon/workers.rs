//! The workers as the daemon's thread knows them: their threads, commands, events and counters.

use std::collections::HashMap;
use std::ops::Deref;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel, sync_channel};
use std::time::{Duration, Instant};

use fingerpost_io::afxdp::{self, PollWait, Waker};
use fingerpost_io::xdp::forward::Used;
use fingerpost_packet::graph::NodeCounters;
use fingerpost_packet::graph::worker::{Command, Event, Worker, WorkerOptions};
use fingerpost_packet::{Graph, Plan, Pool, WorkerCounters};
use fingerpost_route::{COUNTED_PORTS, Control, ResolveRequest};

use super::ports::Interfaces;
use crate::api::graph::ElementTimes;
use crate::bell::Bell;
use crate::config::Cores;
use crate::{privilege, sys};

/// How often neighbors in use are confirmed: well within the kernel's 30 s of trust.
const KEEP_ALIVE: Duration = Duration::from_secs(5);
/// The interval while a neighbor may be in use that the kernel deleted: finding out costs a read of all counters.
const KEEP_ALIVE_SOON: Duration = Duration::from_millis(250);
/// Resolve requests of workers that wait for the control side.
const RESOLVE_REQUESTS: usize = 1024;
/// Frames beyond what the ports' rings can hold: batches in progress, and packets that wait for link addresses.
pub(super) const SPARE_FRAMES: u32 = 4096;
/// Interfaces that may come later and still find frames.
const SPARE_PORTS: u32 = 2;
/// Adjacencies that have counters.
const COUNTED_ADJACENCIES: usize = 16_384;

/// One worker.
pub(super) struct WorkerHandle {
    commands: Sender<Command>,
    waker: Waker,
    pub(super) pool: Pool,
    pub(super) counters: Arc<WorkerCounters>,
    /// Counters of the elements of its graph.
    pub(super) nodes: Arc<[NodeCounters]>,
    thread: Option<std::thread::JoinHandle<()>>,
    /// Whether its thread ended by a panic, or without a command to stop.
    failed: bool,
}

impl WorkerHandle {
    /// Sends a command. A worker that is gone was stopped, or its failure was reported.
    pub(super) fn send(&self, command: Command) {
        let _ = self.commands.send(command);
        self.waker.wake();
    }

    /// Whether its thread has ended, and nobody has noticed yet.
    fn has_ended(&self) -> bool {
        self.thread.as_ref().is_some_and(std::thread::JoinHandle::is_finished)
    }

    /// Waits for the end of its thread. Returns the message of a panic, and counts what was inside the worker then.
    fn join(&mut self) -> Option<String> {
        let panic = self.thread.take()?.join().err()?;
        self.failed = true;
        self.counters.fail();
        let message = panic.downcast_ref::<&str>().map(|message| (*message).to_owned());
        let message = message.or_else(|| panic.downcast_ref::<String>().cloned());
        Some(message.unwrap_or_else(|| "it panicked".to_owned()))
    }
}

/// All workers.
pub(super) struct Workers {
    all: Vec<WorkerHandle>,
    requests: Receiver<ResolveRequest>,
    /// Rings for requests about next hops of routes.
    bell: Bell,
    events: Receiver<Event>,
    /// Seed of the flow hash, in workers and XDP programs.
    flow_seed: u64,
    last_keep_alive: Instant,
    /// Packets by adjacency at the last keep-alive.
    used: HashMap<u32, u64>,
    /// End of the timing of elements, while they are timed.
    timed_until: Option<Instant>,
}

impl Deref for Workers {
    type Target = [WorkerHandle];

    fn deref(&self) -> &[WorkerHandle] {
        &self.all
    }
}

impl Workers {
    /// Starts a worker for each core in use, at most as many as the interfaces have queues for.
    ///
    /// # Errors
    /// When a thread or its descriptors cannot be made.
    pub(super) fn start(
        cores: &Cores,
        plan: &Plan,
        flow_seed: u64,
        control: &Control,
        interfaces: &mut Interfaces,
    ) -> std::io::Result<Self> {
        let (requests_in, requests) = sync_channel(RESOLVE_REQUESTS);
        let (bell, ring) = Bell::pair()?;
        let ring = Arc::new(ring);
        let (events_in, events) = channel();
        let (cores, pin) = match cores {
            Cores::List(list) => (list.clone(), true),
            _ => (sys::cores(), false),
        };
        let count = cores.len().min(interfaces.queues(control)).max(1);
        let (frame_bytes, in_rings) = interfaces.frames(control, count);
        let frames = in_rings + SPARE_PORTS * afxdp::frames_needed(afxdp::RING) + SPARE_FRAMES;
        let mut all = Vec::new();
        let pulses = interfaces.pulses(count);
        for (core, pulse) in cores.into_iter().zip(pulses) {
            let pool = Pool::new(frames, frame_bytes);
            let counters = Arc::new(WorkerCounters::new(COUNTED_PORTS.into(), COUNTED_ADJACENCIES));
            let (wait, waker) = PollWait::new()?;
            let (commands, commands_in) = channel();
            let mut worker = Worker::new(WorkerOptions {
                plan,
                pool: pool.clone(),
                reader: control.reader(),
                counters: counters.clone(),
                commands: commands_in,
                requests: requests_in.clone(),
                events: events_in.clone(),
                flow_seed,
            });
            let ring = ring.clone();
            worker.set_bell(Box::new(move || ring.ring()));
            if let Some(pulse) = pulse {
                worker.set_heartbeat(Box::new(pulse));
            }
            let nodes = worker.graph().counters();
            let thread = Some(spawn(worker, wait, pin.then_some(core))?);
            all.push(WorkerHandle {
                commands,
                waker,
                pool,
                counters,
                nodes,
                thread,
                failed: false,
            });
        }
        Ok(Self {
            all,
            requests,
            bell,
            events,
            flow_seed,
            last_keep_alive: Instant::now(),
            used: HashMap::new(),
            timed_until: None,
        })
    }

    /// Seed of the flow hash.
    pub(super) fn flow_seed(&self) -> u64 {
        self.flow_seed
    }

    /// Descriptor for poll: readable when packets wait for the next hop of a route.
    pub(super) fn fd(&self) -> RawFd {
        self.bell.fd()
    }

    /// Resolve requests since the last call.
    pub(super) fn take_requests(&self) -> impl Iterator<Item = ResolveRequest> {
        self.bell.silence();
        self.requests.try_iter()
    }

    /// Next event of a worker.
    pub(super) fn next_event(&self) -> Option<Event> {
        self.events.try_recv().ok()
    }

    /// Workers that have not failed.
    pub(super) fn alive(&self) -> usize {
        self.all.iter().filter(|worker| !worker.failed && !worker.has_ended()).count()
    }

    /// Workers that failed since the last call, a message each.
    pub(super) fn take_failures(&mut self) -> Vec<String> {
        let ended = self.all.iter_mut().enumerate().filter(|(_, worker)| worker.has_ended());
        let failed = ended.map(|(number, worker)| {
            let why = worker.join().unwrap_or_else(|| "it ended".to_owned());
            worker.failed = true;
            format!("worker {number} failed: {why}")
        });
        failed.collect()
    }

    /// Stops all workers, the last one first: what one sends by another's queue is still carried. Returns a message for
    /// each that failed.
    pub(super) fn stop(&mut self) -> Vec<String> {
        let mut messages = Vec::new();
        for (number, worker) in self.all.iter_mut().enumerate().rev() {
            worker.send(Command::Stop);
            let failure = worker.join().map(|why| format!("worker {number} failed: {why}"));
            messages.extend(failure);
        }
        messages
    }

    /// Has all workers run another graph.
    pub(super) fn replace_graph(&mut self, before: &Plan, plan: &Plan) {
        for worker in &mut self.all {
            let graph = Graph::after(before, plan, &worker.pool);
            worker.nodes = graph.counters();
            worker.send(Command::Replace(Box::new(graph)));
        }
    }

    /// Confirms neighbors in use, when that is due.
    pub(super) fn keep_alive(
        &mut self,
        now: Instant,
        control: &mut Control,
        interfaces: &Interfaces,
    ) {
        let every = if control.wants_uses() { KEEP_ALIVE_SOON } else { KEEP_ALIVE };
        if now.duration_since(self.last_keep_alive) >= every {
            self.last_keep_alive = now;
            let used = self.adjacencies_used(control, &interfaces.forwarded());
            control.keep_alive(used);
        }
    }

    /// Adjacencies that packets left by since the last call.
    fn adjacencies_used(&mut self, control: &Control, forwarded: &[Used]) -> Vec<u32> {
        let mut used = Vec::new();
        for (index, _) in control.next_hops().adjacencies() {
            let total = self.adjacency_packets(index, forwarded);
            if self.used.insert(index, total) != Some(total) && total > 0 {
                used.push(index);
            }
        }
        used
    }

    /// Packets that left by an adjacency so far: through workers, and as the XDP programs `forwarded` them.
    pub(super) fn adjacency_packets(&self, index: u32, forwarded: &[Used]) -> u64 {
        let at = index as usize;
        let count =
            |w: &WorkerHandle| w.counters.adjacencies.get(at).map_or(0, |count| count.read());
        let in_xdp = forwarded.get(at).map_or(0, |used| used.packets);
        self.all.iter().map(count).sum::<u64>() + in_xdp
    }

    /// Nanoseconds that workers spent in the graph so far.
    pub(super) fn path_ns(&self) -> u64 {
        self.all.iter().map(|worker| worker.counters.path_ns.read()).sum()
    }

    /// Times elements from now on, for at least this long.
    pub(super) fn begin_timing(&mut self, time: Duration) {
        let until = Instant::now() + time;
        if self.timed_until.is_none() {
            self.all.iter().for_each(|worker| worker.send(Command::Time(true)));
        }
        self.timed_until = Some(self.timed_until.map_or(until, |before| before.max(until)));
    }

    /// Stops timing elements once its time is over.
    pub(super) fn end_timing(&mut self, now: Instant) {
        if self.timed_until.is_some_and(|until| now >= until) {
            self.timed_until = None;
            self.all.iter().for_each(|worker| worker.send(Command::Time(false)));
        }
    }

    /// Packets and clock ticks of all elements so far.
    pub(super) fn times(&self) -> ElementTimes {
        let of = |worker: &WorkerHandle| {
            worker.nodes.iter().map(|node| (node.packets.read(), node.ticks.read())).collect()
        };
        ElementTimes { at: Instant::now(), workers: self.all.iter().map(of).collect() }
    }
}

fn spawn(
    mut worker: Worker,
    mut wait: PollWait,
    core: Option<usize>,
) -> std::io::Result<std::thread::JoinHandle<()>> {
    std::thread::Builder::new().name("fingerpost".into()).spawn(move || {
        if let Some(core) = core {
            // Without the wanted processor it still forwards.
            let _ = sys::pin(core);
        }
        privilege::keep_nothing();
        worker.run(&mut wait);
    })
}
