//! What an element is: a packet step, and what it may use while it works.

use std::any::Any;

use fingerpost_route::{Forwarding, ResolveRequest};

use crate::frame::counters::{NodeCounters, WorkerCounters};
use crate::frame::{Batch, DropReason, FLAG_GENERATED, Packet, Pool};
use crate::graph::trace::Fate;

/// A packet step. One instance a worker; what instances share is an `Arc`.
pub trait Element: Send {
    /// Labels packets with an output or a drop reason; unlabeled ones take output 0. An element keeps a
    /// packet only by [`Batch::take`], so none is lost by forgetting. All packets go to output 0 by default.
    fn process(&mut self, input: u16, batch: &mut Batch, cx: &mut Context<'_>) {
        let _ = (input, batch, cx);
    }
    /// Fills `into` for an output that is pulled, as far as there is room, from what it keeps or from its
    /// own inputs. Only for classes whose output pulls.
    fn pull(
        &mut self,
        output: u16,
        into: &mut Batch,
        inputs: &mut dyn Inputs,
        cx: &mut Context<'_>,
    ) {
        let _ = (output, into, inputs, cx);
    }
    /// Whether an output that is pulled, of a class whose ports are agnostic, pulls from its input at the moment.
    fn pulls(&self, output: u16) -> bool {
        let _ = output;
        true
    }
    /// Timers and sources: called once a round where `Made::polled` is set, with an empty batch. Also where an
    /// input pulls packets and nobody pulls from the element in turn; by default it pulls and processes what comes.
    /// What is put into the batch leaves by its labels, before what is emitted.
    fn poll(&mut self, batch: &mut Batch, inputs: &mut dyn Inputs, cx: &mut Context<'_>) {
        inputs.pull(0, batch, cx);
        self.process(0, batch, cx);
    }
    /// Whether it will make packets when their time has come, though nothing comes in: its worker then sleeps for a
    /// millisecond at most.
    fn keeps_time(&self) -> bool {
        false
    }
    /// Time of its next turn, where it keeps time and knows it: for a clock that may go ahead.
    fn due_ns(&self) -> Option<u64> {
        None
    }
    /// Packets that it takes before it is full, of an element that holds its sources back ([`crate::graph::Made`]).
    fn room(&self) -> usize {
        usize::MAX
    }
    /// Packets that it keeps at the moment.
    fn held(&self) -> Held {
        Held::default()
    }
    /// Named counts of its own.
    fn stats(&self, visit: &mut dyn FnMut(&'static str, u64)) {
        let _ = visit;
    }
    /// The configuration is replaced: gives what the element of the same name and class is to continue with, packets
    /// that it keeps and the like. What it does not give it drops when it is stopped.
    fn hand_over(&mut self) -> Option<Box<dyn Any + Send>> {
        None
    }
    /// Continues with what the one before gave, before any packet comes.
    fn take_over(&mut self, state: Box<dyn Any + Send>) {
        let _ = state;
    }
    /// Drops what it keeps, passing each packet to `cx`, because the worker stops.
    fn stop(&mut self, cx: &mut Context<'_>) {
        let _ = cx;
    }
}

/// An element that leaves packets as they are, or that no packet comes to.
pub(crate) struct Passing;

impl Element for Passing {}

/// The inputs of an element that pull.
pub trait Inputs {
    /// Pulls packets at an input: as many as `into` has room for come, or fewer.
    fn pull(&mut self, input: u16, into: &mut Batch, cx: &mut Context<'_>);
    /// Packets that queues behind the outputs take before all of them are full: for sources, which wait where there is
    /// no room (Click's full notes). Unbounded where a path leads elsewhere.
    fn room(&self) -> usize {
        usize::MAX
    }
}

/// How many packets are kept, received ones and those of our own making apart: the law of
/// [`crate::frame::counters`] holds for each.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Held {
    /// Packets received.
    pub received: usize,
    /// Packets of our own making.
    pub generated: usize,
}

impl Held {
    /// Counts a packet that came to be kept.
    pub fn add(&mut self, generated: bool) {
        *if generated { &mut self.generated } else { &mut self.received } += 1;
    }

    /// Counts a packet that is no longer kept.
    pub fn remove(&mut self, generated: bool) {
        *if generated { &mut self.generated } else { &mut self.received } -= 1;
    }

    /// Both.
    pub fn total(self) -> usize {
        self.received + self.generated
    }
}

impl std::ops::AddAssign for Held {
    fn add_assign(&mut self, other: Self) {
        self.received += other.received;
        self.generated += other.generated;
    }
}

/// What an element may use while it works on a batch.
pub struct Context<'a> {
    /// Time of this round, in nanoseconds of the monotonic clock.
    pub now_ns: u64,
    /// Routes, next hops, adjacencies and ports, pinned for this round.
    pub forwarding: &'a Forwarding,
    /// The worker's counters.
    pub counters: &'a WorkerCounters,
    /// The worker's frames, for packets of our own making.
    pub pool: &'a Pool,
    /// Seed of the flow hash: the same in all workers of a node.
    pub flow_seed: u64,
    /// Number by which the element at work explains what it did with the packet of this batch, for traces of it.
    pub reason: u32,
    /// Counts of the element at work; `None` outside a graph.
    pub(crate) node: Option<&'a NodeCounters>,
    /// Frames of the packets that elements end themselves, while packets are traced.
    pub(crate) ended: Option<&'a mut Vec<(u32, Fate)>>,
    pub(crate) emitted: &'a mut Vec<(u16, Packet)>,
    pub(crate) requests: &'a mut Vec<ResolveRequest>,
    pub(crate) transmit: &'a mut dyn Transmit,
}

impl<'a> Context<'a> {
    /// A context outside a graph, for tests of single elements: emitted packets gather in `emitted`.
    pub fn new(
        now_ns: u64,
        forwarding: &'a Forwarding,
        counters: &'a WorkerCounters,
        pool: &'a Pool,
        emitted: &'a mut Vec<(u16, Packet)>,
        requests: &'a mut Vec<ResolveRequest>,
        transmit: &'a mut dyn Transmit,
    ) -> Self {
        let (flow_seed, node, ended) = (0, None, None);
        Self {
            now_ns,
            forwarding,
            counters,
            pool,
            flow_seed,
            reason: 0,
            node,
            ended,
            emitted,
            requests,
            transmit,
        }
    }

    /// Sends a packet to an output of the present element, after what the batch holds.
    pub fn emit(&mut self, output: u16, packet: Packet) {
        self.emitted.push((output, packet));
    }

    /// Emits a packet of the router's own, which is flagged and counted as such.
    pub fn originate(&mut self, output: u16, mut packet: Packet) {
        packet.meta.flags |= FLAG_GENERATED;
        self.counters.generated.add(1);
        self.emit(output, packet);
    }

    /// Ends a packet that was taken out of a batch or made by the element.
    pub fn drop_packet(&mut self, packet: Packet, reason: DropReason) {
        self.counters.drop_packet(reason, &packet.meta);
        if let Some(node) = self.node {
            node.drop_packet(reason);
        }
        if let Some(ended) = &mut self.ended {
            ended.push((packet.frame_number(), Fate::Dropped(reason)));
        }
        drop(packet);
    }

    /// Ends the packets of a batch, which left the router by other means than a port.
    pub(crate) fn written(&mut self, batch: &mut Batch) {
        let ours = batch.meta().iter().filter(|meta| meta.flags & FLAG_GENERATED != 0).count();
        self.counters.packets_out.add((batch.len() - ours) as u64);
        self.counters.generated_sent.add(ours as u64);
        if let Some(ended) = &mut self.ended {
            ended.extend((0..batch.len()).map(|i| (batch.frame_number(i), Fate::Written)));
        }
        batch.clear();
    }

    /// Sends a resolve request to the control side. It may be lost: send it again later.
    pub fn resolve(&mut self, request: ResolveRequest) {
        self.requests.push(request);
    }

    /// Takes the packets of `batch`, each to the port that its note names, in order; those that cannot go stay, labeled
    /// with the reason.
    pub fn transmit(&mut self, batch: &mut Batch) {
        self.transmit.transmit(batch);
    }

    /// Packets that the queue of a port has room for.
    pub fn transmit_room(&mut self, port: u16) -> usize {
        self.transmit.room(port)
    }

    /// Context for a step of another element inside this one.
    pub(crate) fn of_node<'b>(&'b mut self, node: &'b NodeCounters) -> Context<'b> {
        Context {
            now_ns: self.now_ns,
            forwarding: self.forwarding,
            counters: self.counters,
            pool: self.pool,
            flow_seed: self.flow_seed,
            reason: 0,
            node: Some(node),
            ended: self.ended.as_deref_mut(),
            emitted: self.emitted,
            requests: self.requests,
            transmit: self.transmit,
        }
    }
}

/// Where packets leave a worker: one queue a port, emptied once a round.
pub trait Transmit {
    /// Takes the packets, each to the port that its note names. Those that cannot go stay, labeled with the reason.
    fn transmit(&mut self, batch: &mut Batch);
    /// Packets that it takes for a port without dropping any.
    fn room(&mut self, port: u16) -> usize;
}
