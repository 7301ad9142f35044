//! The threads that run a graph: each has its own instance of every element, its own frames and counts.
//!
//! A command for all of them goes to each of them. Where order matters it is from the last to the first: of a
//! device whose queue several share the first of them has it, and closes last.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fingerpost_io::afxdp::{PollWait, Waker};
use fingerpost_lpm::registry;
use fingerpost_packet::device::Port;
use fingerpost_packet::frame::counters::Count;
use fingerpost_packet::graph::worker::{Command, Event, Worker, WorkerOptions};
use fingerpost_packet::graph::{Graph, NodeCounters};
use fingerpost_packet::{DropReason, Plan, Pool, WorkerCounters};
use fingerpost_route::{Control, ControlOptions, Forwarding};

use super::ClickError;
use super::ports::Opened;
use crate::{privilege, sys};

/// Ports that are counted, whatever the first configuration has.
pub(super) const COUNTED_PORTS: usize = 256;
/// Nothing in such a graph chooses by flow but for itself.
pub(super) const FLOW_SEED: u64 = 0;
/// Longest time for the workers to end a round and carry out commands.
pub(super) const LONGEST_ANSWER: Duration = Duration::from_secs(30);

/// Interval of checks whether they are all there, while one is waited for.
const LOOK: Duration = Duration::from_millis(100);

/// How many there are, and where.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Places {
    /// So many, wherever the kernel puts them.
    Anywhere(usize),
    /// One on each of these processors, where it stays.
    On(Vec<usize>),
}

impl Places {
    pub(crate) fn count(&self) -> usize {
        match self {
            Self::Anywhere(count) => *count,
            Self::On(cores) => cores.len(),
        }
        .max(1)
    }

    fn core(&self, worker: usize) -> Option<usize> {
        match self {
            Self::Anywhere(_) => None,
            Self::On(cores) => cores.get(worker).copied(),
        }
    }
}

/// One of them, as the control side knows it.
struct Member {
    orders: Orders,
    pool: Pool,
    counters: Arc<WorkerCounters>,
    /// Counters of the elements of its graph.
    nodes: Arc<[NodeCounters]>,
    thread: Option<JoinHandle<()>>,
}

/// Commands to one of them.
#[derive(Clone)]
pub(super) struct Orders {
    commands: Sender<Command>,
    waker: Waker,
}

impl Orders {
    pub(super) fn tell(&self, command: Command) {
        // It may have ended by itself, as one whose thread panicked has: `Workers::stop` reports it.
        let _ = self.commands.send(command);
        self.waker.wake();
    }
}

/// All of them.
pub(super) struct Workers {
    members: Vec<Member>,
    events: Receiver<Event>,
    // Their view of the router's own routes, of which such a router has none.
    control: Control,
    started: Instant,
}

impl Workers {
    /// Starts one for each of the pools, with the ports that it has.
    pub(super) fn start(
        plan: &Plan,
        places: &Places,
        pools: &[Pool],
        opened: Vec<Opened>,
    ) -> Result<Self, ClickError> {
        let control = Control::new(ControlOptions {
            v4: registry::v4().collect(),
            v6: registry::v6().collect(),
            connected_from_addresses: false,
        })
        .expect("tables without routes are built");
        let (started, (told, events)) = (Instant::now(), channel());
        let (requests, _) = sync_channel(1);
        let mut workers = Vec::new();
        for pool in pools {
            let ports = plan.devices().len().max(COUNTED_PORTS);
            let counters = Arc::new(WorkerCounters::new(ports, 1));
            let (wait, waker) = PollWait::new().map_err(ClickError::Thread)?;
            let (commands, from_control) = channel();
            let worker = Worker::new(WorkerOptions {
                plan,
                pool: pool.clone(),
                reader: control.reader(),
                counters: counters.clone(),
                commands: from_control,
                requests: requests.clone(),
                events: told.clone(),
                flow_seed: FLOW_SEED,
            });
            let (pool, nodes) = (pool.clone(), worker.graph().counters());
            let orders = Orders { commands, waker };
            let member = Member { orders, pool, counters, nodes, thread: None };
            workers.push((member, worker, wait));
        }
        for Opened { number, ports, .. } in opened {
            for ((_, worker, _), port) in workers.iter_mut().zip(ports) {
                worker.add_port(number, port);
            }
        }
        // All are there before the first begins, so that nothing is sent to one that is not.
        let mut members = Vec::new();
        for (at, (mut member, worker, wait)) in workers.into_iter().enumerate() {
            let thread = spawn(worker, wait, places.core(at)).map_err(ClickError::Thread)?;
            member.thread = Some(thread);
            members.push(member);
        }
        Ok(Self { members, events, control, started })
    }

    /// When they were made: their clocks began then.
    pub(super) fn started(&self) -> Instant {
        self.started
    }

    /// The routes of the router itself: none.
    pub(super) fn forwarding(&self) -> impl Deref<Target = Forwarding> + Send + Sync + use<> {
        self.control.forwarding()
    }

    /// Their frames.
    pub(super) fn pools(&self) -> Vec<Pool> {
        self.members.iter().map(|member| member.pool.clone()).collect()
    }

    /// What the elements of each count.
    pub(super) fn nodes(&self) -> Vec<Arc<[NodeCounters]>> {
        self.members.iter().map(|member| member.nodes.clone()).collect()
    }

    /// The counters of each.
    pub(super) fn counters(&self) -> impl Iterator<Item = &Arc<WorkerCounters>> {
        self.members.iter().map(|member| &member.counters)
    }

    /// Commands to each.
    pub(super) fn orders(&self) -> Arc<[Orders]> {
        self.members.iter().map(|member| member.orders.clone()).collect()
    }

    /// What all of them counted so.
    pub(super) fn sum(&self, count: impl Fn(&WorkerCounters) -> &Count) -> u64 {
        self.counters().map(|counters| count(counters).read()).sum()
    }

    /// Packets that wait inside.
    pub(super) fn held(&self) -> u64 {
        self.sum(|counters| &counters.held) + self.sum(|counters| &counters.generated_held)
    }

    /// Whether one ended by itself, as one does that panicked.
    pub(super) fn has_ended(&self) -> bool {
        self.members
            .iter()
            .any(|member| member.thread.as_ref().is_some_and(JoinHandle::is_finished))
    }

    /// Next event of one of them, if there is one.
    pub(super) fn event(&self) -> Option<Event> {
        self.events.try_recv().ok()
    }

    /// Gives each its port of a device.
    pub(super) fn add(&self, number: u16, ports: Vec<Box<dyn Port>>) {
        for (member, port) in self.members.iter().zip(ports) {
            member.orders.tell(Command::AddPort(number, port));
        }
    }

    /// Has all of them run another graph between two rounds of each, and returns when all do. Other events
    /// go to `hear`.
    pub(super) fn replace(
        &mut self,
        before: &Plan,
        plan: &Plan,
        hear: &mut dyn FnMut(Event),
    ) -> Result<(), ClickError> {
        // All are made before the first runs: the first worker's first, as elements expect that are its alone.
        let graphs: Vec<_> = self
            .members
            .iter()
            .map(|member| Box::new(Graph::after(before, plan, &member.pool)))
            .collect();
        for (member, graph) in self.members.iter_mut().zip(graphs) {
            member.nodes = graph.counters();
            member.orders.tell(Command::Replace(graph));
        }
        self.wait_for(self.members.len(), &mut |event| match event {
            Event::Replaced(_) => true,
            event => {
                hear(event);
                false
            }
        })
    }

    /// Takes a device from all of them, the last first, and closes it.
    pub(super) fn remove(&self, number: u16, hear: &mut dyn FnMut(Event)) {
        let mut ports = Vec::new();
        for member in self.members.iter().rev() {
            member.orders.tell(Command::RemovePort(number));
            // One that does not answer has ended, and its port with it.
            let _ = self.wait_for(1, &mut |event| match event {
                Event::PortClosed(closed, port) if closed == number => {
                    ports.push(port);
                    true
                }
                event => {
                    hear(event);
                    false
                }
            });
        }
        ports.into_iter().for_each(drop);
    }

    /// Waits until so many answers arrived.
    fn wait_for(
        &self,
        answers: usize,
        is_one: &mut dyn FnMut(Event) -> bool,
    ) -> Result<(), ClickError> {
        let until = Instant::now() + LONGEST_ANSWER;
        let mut left = answers;
        while left > 0 {
            match self.events.recv_timeout(LOOK) {
                Ok(event) => left -= usize::from(is_one(event)),
                // One that ended by itself will not answer.
                Err(_) if self.has_ended() || Instant::now() >= until => {
                    return Err(ClickError::Worker);
                }
                Err(_) => {}
            }
        }
        Ok(())
    }

    /// Ends all of them, the last first; whether one had ended by a fault.
    pub(super) fn stop(&mut self) -> bool {
        let mut crashed = false;
        for member in self.members.iter_mut().rev() {
            member.orders.tell(Command::Stop);
            crashed |= member.thread.take().is_some_and(|thread| thread.join().is_err());
            // Ports close here.
            self.events.try_iter().for_each(drop);
        }
        crashed
    }

    /// Drops by reason, of those counts that `of` gives.
    pub(super) fn dropped(
        &self,
        of: impl Fn(&WorkerCounters) -> &[Count],
    ) -> impl Iterator<Item = (DropReason, u64)> {
        let each = DropReason::ALL.iter().map(move |&why| {
            (why, self.counters().map(|counters| of(counters)[why as usize].read()).sum())
        });
        each.filter(|(_, count)| *count > 0)
    }
}

fn spawn(
    mut worker: Worker,
    mut wait: PollWait,
    core: Option<usize>,
) -> std::io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name("fingerpost".into()).spawn(move || {
        if let Some(core) = core {
            // Without the wanted processor it still forwards.
            let _ = sys::pin(core);
        }
        privilege::keep_nothing();
        worker.run(&mut wait);
    })
}
