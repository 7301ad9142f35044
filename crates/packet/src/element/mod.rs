//! The registry of elements, and what an element is.

mod discard;
mod drop_cause;
mod ether_input;
mod fill_checksum;
mod hold;
mod icmp4_error;
mod icmp6_error;
mod ip4_fragment;
mod ip4_input;
mod ip4_options;
mod ip6_input;
mod ip_lookup;
mod next_hop;
mod transmit;

pub use icmp4_error::Icmp4Error;
pub use icmp6_error::Icmp6Error;

use fingerpost_route::{Ask, Forwarding};

use crate::buf::{Batch, Packet, Pool};
use crate::counters::WorkerCounters;

/// Every element: graphs, documents and conformance tests loop over these rows.
pub static ELEMENTS: &[ElementClass] = &[
    discard::CLASS,
    drop_cause::CLASS,
    ether_input::CLASS,
    fill_checksum::CLASS,
    hold::CLASS,
    icmp4_error::CLASS,
    icmp6_error::CLASS,
    ip4_fragment::CLASS,
    ip4_input::CLASS,
    ip4_options::CLASS,
    ip6_input::CLASS,
    ip_lookup::CLASS4,
    ip_lookup::CLASS6,
    next_hop::CLASS4,
    next_hop::CLASS6,
    transmit::CLASS,
];

/// Registry row, plain data: all that is known of an element without running it.
#[derive(Debug)]
pub struct ElementClass {
    /// What graphs and counters call it.
    pub name: &'static str,
    /// One line.
    pub summary: &'static str,
    /// Names of its inputs, by number.
    pub inputs: &'static [&'static str],
    /// Names of its outputs, by number.
    pub outputs: &'static [&'static str],
    /// A new instance; each worker has its own.
    pub make: fn() -> Box<dyn Element>,
}

impl ElementClass {
    /// The row of a name.
    pub fn find(name: &str) -> Option<&'static Self> {
        ELEMENTS.iter().find(|class| class.name == name)
    }
}

/// A packet step. One instance a worker; what instances share is an `Arc`.
pub trait Element: Send {
    /// Labels packets with an output or a drop reason; unlabeled ones take output 0. An element keeps a
    /// packet only by [`Batch::take`], so none is lost by forgetting.
    fn process(&mut self, input: u16, batch: &mut Batch, cx: &mut Context<'_>);
    /// Timers and sources: called once a round; new packets leave by [`Context::emit`].
    fn poll(&mut self, cx: &mut Context<'_>) {
        let _ = cx;
    }
    /// Packets that it keeps at the moment.
    fn held(&self) -> Held {
        Held::default()
    }
    /// Named counts of its own.
    fn stats(&self, visit: &mut dyn FnMut(&'static str, u64)) {
        let _ = visit;
    }
    /// Drops what it keeps, telling each packet to `cx`, because the worker stops.
    fn stop(&mut self, cx: &mut Context<'_>) {
        let _ = cx;
    }
}

/// How many packets are kept, received ones and those of our own making apart: the law of
/// [`crate::counters`] holds for each.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Held {
    /// Packets that came in.
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
    pub(crate) emitted: &'a mut Vec<(u16, Packet)>,
    pub(crate) asks: &'a mut Vec<Ask>,
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
        asks: &'a mut Vec<Ask>,
        transmit: &'a mut dyn Transmit,
    ) -> Self {
        let flow_seed = 0;
        Self { now_ns, forwarding, counters, pool, flow_seed, emitted, asks, transmit }
    }

    /// Sends a packet to an output of the present element, after what the batch holds.
    pub fn emit(&mut self, output: u16, packet: Packet) {
        self.emitted.push((output, packet));
    }

    /// The same for a packet of our own making, which is flagged and counted as such.
    pub fn originate(&mut self, output: u16, mut packet: Packet) {
        packet.meta.flags |= crate::buf::FLAG_GENERATED;
        self.counters.generated.add(1);
        self.emit(output, packet);
    }

    /// Ends a packet that was taken out of a batch or made by the element.
    pub fn drop_packet(&mut self, packet: Packet, reason: crate::drops::DropReason) {
        let generated = packet.meta.flags & crate::buf::FLAG_GENERATED != 0;
        self.counters.drop_packet(reason, generated);
        drop(packet);
    }

    /// Asks the control side for a link address. Asking is free to be forgotten: ask again later.
    pub fn ask(&mut self, ask: Ask) {
        self.asks.push(ask);
    }

    /// Takes all packets of `batch`, each to the port that its note names, in order.
    pub fn transmit(&mut self, batch: &mut Batch) {
        self.transmit.transmit(batch);
    }
}

/// Where packets leave a worker: one queue a port, emptied once a round.
pub trait Transmit {
    /// Takes all packets, each to the port that its note names; counts those that cannot leave.
    fn transmit(&mut self, batch: &mut Batch);
}
