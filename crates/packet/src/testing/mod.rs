//! What tests of elements and graphs need: a small world to forward in, frames, and somewhere to
//! send them. Public behind the feature `testing`, for elements that live elsewhere.

pub mod frames;
#[cfg(feature = "click")]
pub mod scripts;
#[cfg(feature = "click")]
pub mod summaries;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use fingerpost_lpm::{Addr, Lookup, NextHopId, Region, RouteStore, Step};
use fingerpost_route::{
    Adjacency, AnyPrefix, Forwarding, ForwardingAction, HopTable, Mac, PortInfo, PortTable,
    ResolveRequest,
};

use crate::classes::ELEMENTS;
use crate::frame::counters::Instance;
use crate::frame::counters::WorkerCounters;
use crate::frame::wire::{ETHER_BYTES, EtherMut, IP4_BYTES, IP6_BYTES, Ip4Mut, Ip6Mut, ether};
use crate::frame::{BATCH, Batch, DropReason, Meta, Packet, Pool};
use crate::graph::trace::Trace;
use crate::graph::{
    Context, DryRun, DryRunError, Element, ElementClass, Graph, Inputs, Made, Plan, Round, Setup,
    Transmit,
};
use crate::handler::Handlers;
use crate::language::{Args, Errors, Language, Problems, Sources, Span, Text};

/// The route store as a lookup: slow, and right by its own tests.
pub struct StoreLookup<A: Addr>(pub RouteStore<A>);

impl<A: Addr> Lookup<A> for StoreLookup<A> {
    fn lookup(&self, addr: A) -> NextHopId {
        self.0.longest_match(addr).map_or(NextHopId::NONE, |(_, hop)| *hop)
    }
    fn lookup_batch(&self, addrs: &[A], out: &mut [NextHopId]) {
        for (addr, out) in addrs.iter().zip(&mut out[..addrs.len()]) {
            *out = self.lookup(*addr);
        }
    }
    fn explain(&self, addr: A, _: &mut dyn FnMut(&Step)) -> NextHopId {
        self.lookup(addr)
    }
    fn stats(&self, _: &mut dyn FnMut(&'static str, u64)) {}
    fn regions(&self) -> &[Region] {
        &[]
    }
}

/// MAC of port `n` of a [`World`].
pub fn port_mac(n: u8) -> Mac {
    Mac([2, 0, 0, 0, 0, n])
}

/// MAC of the neighbor behind adjacency `n`.
pub fn neighbor_mac(n: u8) -> Mac {
    Mac([2, 0, 0, 0, 1, n])
}

/// A router with three ports: `10.0.N.1/24`, `2001:db8:N::1/64` and `fe80::N:1` on port N, MTU 1500
/// but for port 2, which has 1280. Routes, next hops and adjacencies are added by the test.
pub struct World {
    /// The tables behind a next hop; changes show at once, as in a running router.
    pub hops: Arc<HopTable>,
    /// The ports.
    pub ports: PortTable,
    v4: RouteStore<u32>,
    v6: RouteStore<u128>,
    next_hop: u32,
    next_slot: u32,
}

impl Default for World {
    fn default() -> Self {
        Self::new()
    }
}

impl World {
    /// Three ports, no routes.
    pub fn new() -> Self {
        let ports = (0..3u8).map(|n| {
            Some(PortInfo {
                name: format!("eth{n}"),
                link: u32::from(n) + 10,
                mac: Some(port_mac(n)),
                mtu: if n == 2 { 1280 } else { 1500 },
                up: true,
                fib: 0,
                v4: vec![(Ipv4Addr::new(10, 0, n, 1), 24)],
                v6: vec![
                    (Ipv6Addr::new(0x2001, 0xdb8, n.into(), 0, 0, 0, 0, 1), 64),
                    (Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, n.into(), 1), 64),
                ],
                ..PortInfo::default()
            })
        });
        let ports: Vec<_> = ports.collect();
        let own = |n: &Option<PortInfo>| n.clone().expect("made above");
        let mut own_v6: Vec<u128> =
            ports.iter().flat_map(|p| own(p).v6).map(|a| a.0.to_bits()).collect();
        own_v6.sort_unstable();
        let table = PortTable {
            own_v4: (0..3).map(|n| 0x0a00_0001 | n << 8).collect(),
            own_v6,
            broadcast_v4: (0..3)
                .flat_map(|n| [0x0a00_0000 | n << 8, 0x0a00_00ff | n << 8])
                .collect(),
            ports,
            ..PortTable::default()
        };
        Self {
            hops: Arc::new(HopTable::new(256, 256, 256).expect("small tables fit")),
            ports: table,
            v4: RouteStore::new(),
            v6: RouteStore::new(),
            next_hop: 1,
            next_slot: 0,
        }
    }

    /// Sets adjacency `index`: resolved, to [`neighbor_mac`]`(index)`, by `port` with its MTU.
    pub fn neighbor(&self, index: u8, port: u16) {
        let info = self.ports.port(port).expect("a port of this world");
        let adjacency = Adjacency {
            dst: neighbor_mac(index),
            src: info.mac.expect("ports of this world have one"),
            port,
            mtu: info.mtu,
        };
        self.hops.set_adjacency(index.into(), adjacency);
    }

    /// A next hop with one forwarding action.
    pub fn hop(&mut self, action: ForwardingAction) -> NextHopId {
        let id = NextHopId(self.next_hop);
        self.next_hop += 1;
        self.hops.set_hop(id, action);
        id
    }

    /// A group over these forwarding actions, a slot each.
    pub fn group(&mut self, actions: &[ForwardingAction]) -> NextHopId {
        let first = self.next_slot;
        for &action in actions {
            self.hops.set_slot(self.next_slot, action);
            self.next_slot += 1;
        }
        let id = NextHopId(self.next_hop);
        self.next_hop += 1;
        self.hops.set_group(id, first, self.next_slot - first);
        id
    }

    /// Adds a route.
    ///
    /// # Panics
    /// On a text that is not a prefix.
    pub fn route(&mut self, prefix: &str, hop: NextHopId) {
        match AnyPrefix::parse(prefix).expect("a prefix") {
            AnyPrefix::V4(prefix) => self.v4.insert(prefix, hop),
            AnyPrefix::V6(prefix) => self.v6.insert(prefix, hop),
        };
    }

    /// A route with a next hop of its own.
    pub fn action(&mut self, prefix: &str, action: ForwardingAction) {
        let hop = self.hop(action);
        self.route(prefix, hop);
    }

    /// All of it, as a worker pins it.
    pub fn forwarding(&self) -> Forwarding {
        Forwarding {
            v4: Arc::new(StoreLookup(self.v4.clone())),
            v6: Arc::new(StoreLookup(self.v6.clone())),
            others: Arc::default(),
            defaults: Arc::default(),
            hops: self.hops.clone(),
            ports: Arc::new(self.ports.clone()),
        }
    }

    /// The next hop that a destination has by the route store.
    pub fn lookup(&self, addr: IpAddr) -> NextHopId {
        match addr {
            IpAddr::V4(a) => self.v4.longest_match(a.to_bits()).map(|m| *m.1),
            IpAddr::V6(a) => self.v6.longest_match(a.to_bits()).map(|m| *m.1),
        }
        .unwrap_or(NextHopId::NONE)
    }
}

/// A frame with an IPv4 header of 20 bytes and a right checksum, addressed to port 0.
pub fn frame_v4(src: &str, dst: &str, ttl: u8, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let parse = |text: &str| text.parse::<Ipv4Addr>().expect("an address").to_bits();
    let mut frame = vec![0; ETHER_BYTES + IP4_BYTES];
    frame.extend_from_slice(payload);
    link_header(&mut frame, ether::TYPE_IP4);
    let mut ip = Ip4Mut::at(&mut frame, ETHER_BYTES).expect("made long enough");
    ip.set_header_len(20);
    ip.set_total_len(u16::try_from(IP4_BYTES + payload.len()).expect("a packet's length"));
    ip.set_id(0x1c46);
    ip.set_ttl(ttl);
    ip.set_protocol(protocol);
    ip.set_src(parse(src));
    ip.set_dst(parse(dst));
    fill_ip4_checksum(&mut frame);
    frame
}

/// A frame with an IPv6 header, addressed to port 0.
pub fn frame_v6(src: &str, dst: &str, hops: u8, next: u8, payload: &[u8]) -> Vec<u8> {
    let parse = |text: &str| text.parse::<Ipv6Addr>().expect("an address").to_bits();
    let mut frame = vec![0; ETHER_BYTES + IP6_BYTES];
    frame.extend_from_slice(payload);
    link_header(&mut frame, ether::TYPE_IP6);
    let mut ip = Ip6Mut::at(&mut frame, ETHER_BYTES).expect("made long enough");
    ip.set_first(0, 0);
    ip.set_payload_len(u16::try_from(payload.len()).expect("a packet's length"));
    ip.set_next_header(next);
    ip.set_hop_limit(hops);
    ip.set_src(parse(src));
    ip.set_dst(parse(dst));
    frame
}

fn link_header(frame: &mut [u8], kind: u16) {
    let mut ether = EtherMut::of(frame).expect("made long enough");
    ether.set_addrs(port_mac(0), Mac([2, 0, 0, 0, 9, 9]));
    ether.set_kind(kind);
}

/// Makes the checksum of the IPv4 header of a frame right, over as many options as it states.
pub fn fill_ip4_checksum(frame: &mut [u8]) {
    frame[ETHER_BYTES + 10..ETHER_BYTES + 12].fill(0);
    let len = usize::from(frame[ETHER_BYTES] & 15) * 4;
    let header = &frame[ETHER_BYTES..(ETHER_BYTES + len).min(frame.len())];
    let words = header.chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(*w.get(1).unwrap_or(&0)));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    let sum = !u16::try_from(sum).expect("folded");
    frame[ETHER_BYTES + 10..ETHER_BYTES + 12].copy_from_slice(&sum.to_be_bytes());
}

/// Packet of `pool` that holds `frame`, received on `port`.
///
/// # Panics
/// When no frame is free, or the frame is too long for one.
pub fn packet(pool: &Pool, port: u16, frame: &[u8]) -> Packet {
    let mut packet = pool.alloc().expect("a free frame");
    assert!(packet.set_len(frame.len()), "a frame of {} bytes does not fit", frame.len());
    packet.bytes_mut().copy_from_slice(frame);
    packet.meta = Meta { port, ..Meta::default() };
    packet
}

/// Batch of frames received on `port`.
pub fn batch<'a>(pool: &Pool, port: u16, frames: impl IntoIterator<Item = &'a [u8]>) -> Box<Batch> {
    let mut batch = Batch::new(pool);
    for frame in frames {
        batch.push(packet(pool, port, frame)).expect("at most a batch full of frames");
    }
    batch
}

/// A transmit that keeps what it gets, and counts it as sent.
#[derive(Default)]
pub struct Sent {
    /// Port, frame and what was known of it.
    pub frames: Vec<(u16, Vec<u8>, Meta)>,
}

#[allow(clippy::cast_possible_truncation, reason = "a note for transmit is a port number")]
impl Transmit for Sent {
    fn transmit(&mut self, batch: &mut Batch) {
        for i in 0..batch.len() {
            let meta = batch.meta()[i];
            self.frames.push((meta.note.egress_port(), batch.bytes(i).to_vec(), meta));
        }
        batch.clear();
    }

    fn room(&mut self, _: u16) -> usize {
        BATCH
    }
}

/// Inputs of an element that has none to pull.
pub struct NoInputs;

impl Inputs for NoInputs {
    fn pull(&mut self, _: u16, _: &mut Batch, _: &mut Context<'_>) {}
}

/// An instance of an element of this class with these arguments, all of its outputs used.
///
/// # Panics
/// When they are wrong.
pub fn element(class: &ElementClass, config: &str) -> Box<dyn Element> {
    made(class, config).make.as_ref()(Instance::Worker)
}

/// What becomes of a batch of frames, whose network header is at this offset, in an element of this class.
///
/// # Panics
/// When the arguments are wrong.
pub fn run(class: &ElementClass, config: &str, network: u8, frames: &[&[u8]]) -> Box<Batch> {
    let bench = &mut Bench::new(&World::new());
    let mut batch = batch(&bench.pool, 0, frames.iter().copied());
    batch.meta_mut().iter_mut().for_each(|meta| meta.network = network);
    element(class, config).process(0, &mut batch, &mut bench.context());
    batch
}

/// What a configuration, which is right, is warned about.
///
/// # Panics
/// Where it is wrong.
pub fn warnings(text: &str) -> Vec<String> {
    let plan = Plan::read("test", text, ELEMENTS).expect("a configuration");
    plan.warnings().iter().map(|report| report.message.clone()).collect()
}

/// Errors of wrong arguments.
///
/// # Panics
/// When they are right.
pub fn refused(class: &ElementClass, config: &str) -> String {
    configured(class, config).map_or_else(|words| words, |made| panic!("{made:?}"))
}

/// What the class makes of these arguments.
///
/// # Panics
/// When they are wrong.
pub fn made(class: &ElementClass, config: &str) -> Made {
    configured(class, config).unwrap_or_else(|words| panic!("{words}"))
}

fn configured(class: &ElementClass, config: &str) -> Result<Made, String> {
    let mut sources = Sources::default();
    let source = sources.add("test", config).expect("a short text");
    let end = u32::try_from(config.len()).expect("a short text");
    let text = Text::of(&sources, Span { source, start: 0, end });
    let mut problems = Problems::default();
    let args = Args::new("e", class.spec.name, &text, &mut problems).ignoring(class.spec.ignored);
    let drivers = crate::device::DRIVERS;
    let made = Setup::alone(args, (1, 8), &Arc::default(), drivers, class.configure);
    made.map_err(|_| problems.errors(&sources).to_string())
}

/// Everything around an element or a graph: counters, frames, resolve requests, a place to send to.
pub struct Bench {
    /// What it forwards by.
    pub forwarding: Forwarding,
    /// Its counters.
    pub counters: WorkerCounters,
    /// Its frames.
    pub pool: Pool,
    /// Its resolve requests.
    pub requests: Vec<ResolveRequest>,
    /// What it sent.
    pub sent: Sent,
    /// What a single element emitted.
    pub emitted: Vec<(u16, Packet)>,
    /// The time, in nanoseconds.
    pub now_ns: u64,
}

impl Bench {
    /// Room for 2,048 frames, at time 1 s.
    pub fn new(world: &World) -> Self {
        Self {
            forwarding: world.forwarding(),
            counters: WorkerCounters::new(4, 256),
            pool: Pool::new(2048, 2048),
            requests: Vec::new(),
            sent: Sent::default(),
            emitted: Vec::new(),
            now_ns: 1_000_000_000,
        }
    }

    /// Round of a graph.
    pub fn round(&mut self) -> Round<'_> {
        Round {
            now_ns: self.now_ns,
            forwarding: &self.forwarding,
            counters: &self.counters,
            flow_seed: 0,
            requests: &mut self.requests,
            transmit: &mut self.sent,
        }
    }

    /// Context of a single element.
    pub fn context(&mut self) -> Context<'_> {
        Context::new(
            self.now_ns,
            &self.forwarding,
            &self.counters,
            &self.pool,
            &mut self.emitted,
            &mut self.requests,
            &mut self.sent,
        )
    }

    /// Lets one element work on frames from `port`, and gives back the batch with its labels.
    pub fn process<'a>(
        &mut self,
        element: &mut dyn Element,
        port: u16,
        frames: impl IntoIterator<Item = &'a [u8]>,
    ) -> Box<Batch> {
        let mut batch = batch(&self.pool, port, frames);
        element.process(0, &mut batch, &mut self.context());
        batch
    }
}

/// A configuration of Click's language at work, with the elements of the registry.
pub struct Rig {
    /// Everything around it.
    pub bench: Bench,
    /// What it was planned to.
    pub plan: Plan,
    /// It runs here.
    pub graph: Graph,
    /// Its handlers.
    pub handlers: Arc<Handlers>,
    classes: &'static [ElementClass],
}

impl Rig {
    /// In a world, where elements look at routes and ports.
    ///
    /// # Panics
    /// When the configuration is wrong.
    pub fn new(world: &World, text: &str) -> Self {
        Self::of(world, text, ELEMENTS)
    }

    /// Rig with other classes.
    ///
    /// # Panics
    /// When the configuration is wrong.
    pub fn of(world: &World, text: &str, classes: &'static [ElementClass]) -> Self {
        let reported = |errors: Errors| -> ! { panic!("\n{errors}") };
        let read =
            Language::new(classes).read("test", text).unwrap_or_else(|errors| reported(errors));
        let plan = Plan::of(&read, classes).unwrap_or_else(|errors| reported(errors));
        let bench = Bench::new(world);
        let handlers = Arc::new(plan.handlers(read));
        plan.installed().install(&handlers);
        Self { graph: Graph::new(&plan, &bench.pool), bench, plan, handlers, classes }
    }

    /// Replaces the configuration, as a worker does between two rounds.
    ///
    /// # Errors
    /// What is wrong with the new one; the old one continues then.
    pub fn replace(&mut self, text: &str) -> Result<(), Errors> {
        let read = Language::new(self.classes).read("test", text)?;
        let plan = Plan::after(Some(&self.plan), &read, self.classes)?;
        let mut graph = Graph::after(&self.plan, &plan, &self.bench.pool);
        std::mem::swap(&mut self.graph, &mut graph);
        self.graph.take_over(&mut graph);
        graph.stop(&mut self.bench.round());
        self.handlers = Arc::new(plan.handlers(read));
        plan.installed().install(&self.handlers);
        self.plan = plan;
        Ok(())
    }

    /// Lets the device that the configuration names receive frames; what was sent since, by device.
    ///
    /// # Panics
    /// When there is no such device.
    pub fn receive(&mut self, device: &str, frames: &[&[u8]]) -> Vec<(String, Vec<u8>)> {
        let at = self.plan.devices().iter().position(|known| known.name == device);
        let port = u16::try_from(at.expect("a device of the configuration")).expect("few");
        let batch = batch(&self.bench.pool, port, frames.iter().copied());
        self.graph.receive(port, batch, &mut self.bench.round());
        self.sent()
    }

    /// Evaluates a frame that the device would receive, apart from the graph that runs.
    ///
    /// # Errors
    /// Why it cannot be.
    ///
    /// # Panics
    /// When there is no such device.
    pub fn dry_run(&self, device: &str, frame: &[u8]) -> Result<Trace, DryRunError> {
        let at = self.plan.devices().iter().position(|known| known.name == device);
        let port = u16::try_from(at.expect("a device of the configuration")).expect("few");
        let dry_run = DryRun {
            plan: &self.plan,
            port,
            forwarding: &self.bench.forwarding,
            flow_seed: 0,
            now_ns: self.bench.now_ns,
            frame_bytes: 2048,
        };
        dry_run.run(frame).map(|(trace, _)| trace)
    }

    /// A round without received packets; what was sent since, by device.
    pub fn poll(&mut self) -> Vec<(String, Vec<u8>)> {
        self.graph.poll(&mut self.bench.round());
        self.sent()
    }

    /// What was sent since, by device. Checks that no frame is lost.
    fn sent(&mut self) -> Vec<(String, Vec<u8>)> {
        let held = self.graph.held().total();
        assert_eq!(
            self.bench.pool.free() + held,
            self.bench.pool.frames(),
            "every frame is somewhere"
        );
        let name = |port: u16| self.plan.devices()[usize::from(port)].name.clone();
        self.bench.sent.frames.drain(..).map(|(port, frame, _)| (name(port), frame)).collect()
    }

    /// Reads a handler.
    ///
    /// # Panics
    /// When it cannot be read.
    pub fn read(&self, handler: &str) -> String {
        self.handlers.read(handler, "").unwrap_or_else(|error| panic!("{handler}: {error}"))
    }

    /// Writes to a handler.
    ///
    /// # Panics
    /// When it cannot be written so.
    pub fn write(&self, handler: &str, text: &str) {
        self.handlers.write(handler, text).unwrap_or_else(|error| panic!("{handler}: {error}"));
    }

    /// Packets dropped for a reason, received and made ones.
    pub fn dropped(&self, reason: DropReason) -> u64 {
        let counters = &self.bench.counters;
        [&counters.dropped, &counters.generated_dropped]
            .map(|of| of[reason as usize].read())
            .iter()
            .sum()
    }
}
