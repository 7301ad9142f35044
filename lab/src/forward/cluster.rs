//! What a packet costs a node of a cluster: input, transit and output, each from memory to memory.
//!
//! The graph is that of the router with the elements of a cluster node. `cluster-input` receives packets of the outside, looks
//! them up and sends them as internal frames; the egress node of a packet is the number of its next hop. `cluster-transit`
//! receives internal frames of phase 1 and sends them on. `cluster-output` receives internal frames with an adjacency index
//! each and sends the packets to their neighbors. Frames are as long as those of `graph-v4`, internal frames 4 bytes longer. IPv4 alone: the generator's header does not hold an IPv6 packet behind an internal header.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use anyhow::{Context, Result, ensure};
use fingerpost_cluster::element::{self, addition};
use fingerpost_cluster::fabric::{Fabric, Mode, PathSettings, PortRole, Settings};
use fingerpost_cluster::frame::{
    ETHERTYPE, EXTRA_BYTES, FrameClass, HEADER_BYTES as FRONT, Header,
};
use fingerpost_cluster::rule::{self, MAX_NODES, Members, NodeId, Phase, Rule};
use fingerpost_lpm::{Heap, Memory, NextHopId};
use fingerpost_packet::device::memory::HEADER_BYTES;
use fingerpost_packet::feature::{FeatureSettings, FeatureStates};
use fingerpost_packet::frame::wire::{ETHER_BYTES, IP4_BYTES, Ip4, checksum::checksum};
use fingerpost_packet::graph::{ElementClass, Plan, Registry};
use fingerpost_packet::router_graph;
use fingerpost_route::{Control, ForwardingAction};

use super::elements::Elements;
use super::stream::Stream;
use super::{ForwardOptions, Headers, Path, Prepared, chain, packets, world};
use crate::document::{Kind, Run, Unit};
use crate::measure;
use crate::table::{Table, Tables};

/// Names of the runs, the input's first.
pub(super) const RUNS: [&str; 3] = ["cluster-input", "cluster-transit", "cluster-output"];

/// Number of the node that is measured. No next hop has it.
pub(crate) const OWN: NodeId = 0;

/// Epoch of all nodes.
const EPOCH: u8 = 0;

static CLASSES: LazyLock<Vec<ElementClass>> =
    LazyLock::new(|| [fingerpost_packet::ELEMENTS, element::ELEMENTS].concat());

/// A node whose links have no rate: nothing is dropped.
pub(crate) fn fabric(memory: &mut dyn Memory) -> Result<Arc<Fabric>> {
    fabric_of(memory, OWN, Members::equal(MAX_NODES), Rule::Adaptive)
}

/// One of these members, whose links have no rate.
pub(super) fn fabric_of(
    memory: &mut dyn Memory,
    node: NodeId,
    members: Members,
    rule: Rule,
) -> Result<Arc<Fabric>> {
    let settings = Settings { cluster: 1, node, ethertype: ETHERTYPE, clock_ns: 0 };
    let paths = PathSettings {
        mode: Mode::Vlb,
        rule: rule::Settings { rule, threshold: 10_000 },
        flowlet_ns: 2_000_000,
    };
    Ok(Arc::new(Fabric::new(memory, settings, paths, members)?))
}

/// The built-in graph with the elements of a cluster node.
pub(crate) fn plan(fabric: &Arc<Fabric>) -> Result<Plan> {
    let states = FeatureStates::make(&FeatureSettings::default(), None)
        .map_err(|errors| anyhow::anyhow!("{}", errors.join("; ")))?;
    let addition = addition(Registry::from(&CLASSES[..]), fabric.clone());
    router_graph::plan_added(None, &states, &addition).map_err(|errors| anyhow::anyhow!("{errors}"))
}

/// The node that a next hop stands for.
pub(crate) fn node(hop: u32) -> Result<NodeId> {
    let number = NodeId::try_from(hop).ok().filter(|&node| usize::from(node) < MAX_NODES);
    number.filter(|&node| node != OWN).context("a table of at most 1,023 next hops")
}

/// Header of an internal frame from node 1 to the node that is measured: of phase 1 to another egress node, of phase 2 to
/// this one.
pub(crate) fn header(output: NodeId, index: u32) -> Header {
    Header {
        cluster: 1,
        hop: OWN,
        output,
        sender: 1,
        phase: if output == OWN { Phase::Second } else { Phase::First },
        epoch: EPOCH,
        ethertype: ETHERTYPE,
        adjacency: index,
        class: FrameClass::Data,
    }
}

/// Its frame with this packet, whose own link header it replaces.
pub(crate) fn internal(header: &Header, packet: &[u8; HEADER_BYTES]) -> [u8; HEADER_BYTES] {
    let mut frame = [0; HEADER_BYTES];
    frame[..FRONT].copy_from_slice(&header.bytes());
    frame[FRONT..].copy_from_slice(&packet[ETHER_BYTES..HEADER_BYTES - usize::from(EXTRA_BYTES)]);
    frame
}

/// Whether the IPv4 header behind an internal header is whole, with this TTL.
fn holds(frame: &[u8], ttl: u8) -> bool {
    let header = frame.get(FRONT..FRONT + IP4_BYTES);
    header.is_some_and(|header| checksum(header) == 0)
        && Ip4::at(frame, FRONT).is_some_and(|ip| ip.ttl() == ttl)
}

/// What the runs take without their ports, beside the input.
pub(super) fn graphs(elements: &[Elements]) -> Vec<Run> {
    let of = |name: &&str| elements.iter().find(|elements| elements.are_of(name));
    let mut runs: Vec<Run> = RUNS.iter().filter_map(of).map(Elements::graph).collect();
    let Some(input) = runs.first().cloned() else { return runs };
    for run in &mut runs {
        if let Some(share) = run.share_of(&input) {
            run.note = format!("without ports; {share:.2} of the input, by turn");
        }
    }
    runs
}

/// What the runs have in common.
pub(super) struct Scene<'a> {
    pub(super) control: &'a Control,
    pub(super) ports: world::Ports,
    pub(super) options: &'a ForwardOptions,
    pub(super) stream: Stream,
    pub(super) found: Vec<(u32, NextHopId)>,
    pub(super) packets: Headers,
}

impl Scene<'_> {
    /// A node whose frames are so much longer than packets of the outside.
    fn path(
        &self,
        fabric: &Arc<Fabric>,
        headers: Vec<[u8; HEADER_BYTES]>,
        extra: u16,
    ) -> Result<Path> {
        let (plan, reader, burst) = (plan(fabric)?, self.control.reader(), self.options.burst);
        let mut path = Path::new(plan, reader, self.ports, 4, headers.into(), burst);
        path.len += extra;
        Ok(path)
    }

    fn run(&self, name: &str, mut path: Path, answers: (u64, u64)) -> (Run, Path) {
        let mut run = self.named(name, answers);
        let (destinations, bytes) = (self.found.len(), path.len + 4);
        run.note =
            format!("{destinations} destinations, {bytes} bytes a frame, generator included");
        path.free_run();
        (run, path)
    }

    /// A run of this name, whose answers were checked.
    pub(super) fn named(&self, name: &str, (checked, wrong): (u64, u64)) -> Run {
        let mut run = Run::new(name, Kind::Ours, self.stream.name(), Unit::NsPerPacket);
        run.family = Some(4);
        run.set_answers(checked, wrong);
        run
    }

    /// Index of the adjacency of each next hop in use, as the forwarding tables of an egress node have it.
    pub(super) fn set_outputs(&self, output: &Fabric) -> Result<()> {
        let mut reader = self.control.reader();
        let forwarding = reader.pin();
        for (addr, hop) in &self.found {
            let found = forwarding.hops.action(forwarding.v4.lookup(*addr), 0);
            let ForwardingAction::Adjacency(index) = found else {
                anyhow::bail!("next hop {hop:?} is {found:?}");
            };
            output.set_output(hop.0, Some(index));
        }
        Ok(())
    }

    /// Whether a frame that leaves by an egress is as the egress node of its destination sends it, with this TTL.
    pub(super) fn leaves(&self, ttl: u8) -> impl Fn(usize, &[u8]) -> bool + Send + Sync + 'static {
        let hops: HashMap<u32, u32> = self.found.iter().map(|(addr, hop)| (*addr, hop.0)).collect();
        move |way, frame| {
            let hop = world::destination::<u32>(frame).and_then(|dst| hops.get(&dst));
            hop.is_some_and(|&hop| {
                let ttl = Ip4::at(frame, ETHER_BYTES).is_some_and(|ip| ip.ttl() == ttl);
                world::egress_of(hop) == way && world::is_to(frame, hop, 4) && ttl
            })
        }
    }

    /// Half of the next hops are neighbors on the fabric interface, and leave by the other port.
    fn input(&self) -> Result<(Run, Path)> {
        let [fabric_port, internal_port] = self.ports.out;
        let input = fabric(&mut Heap)?;
        input.set_role(fabric_port, PortRole::Fabric);
        let (mut own, mut nodes) = (Vec::new(), HashMap::new());
        for ((addr, hop), packet) in self.found.iter().zip(&*self.packets) {
            if world::egress_of(hop.0) == 0 {
                let node = node(hop.0)?;
                input.set_link(node, internal_port, None, 0);
                nodes.insert(*addr, node);
                own.push(*packet);
            }
        }
        ensure!(!own.is_empty(), "no next hop on the first egress");
        let sent = own.len() as u64;
        let mut path = self.path(&input, own, 0)?;
        let checked = path.check_frames(sent, sent, move |way, frame| {
            let header = Header::parse(frame, ETHERTYPE).ok();
            let to = Ip4::at(frame, FRONT).and_then(|ip| nodes.get(&ip.dst()));
            way == 1
                && holds(frame, world::TTL - 1)
                && header.is_some_and(|header| {
                    Some(&header.output) == to
                        && header.hop == header.output
                        && header.sender == OWN
                })
        });
        Ok(self.run(RUNS[0], path, checked))
    }

    fn transit(&self) -> Result<(Run, Path)> {
        let transit = fabric(&mut Heap)?;
        transit.set_role(self.ports.input, PortRole::Internal);
        let mut frames = Vec::new();
        for ((_, hop), packet) in self.found.iter().zip(&*self.packets) {
            let node = node(hop.0)?;
            transit.set_link(node, self.ports.out[world::egress_of(hop.0)], None, 0);
            frames.push(internal(&header(node, 1), packet));
        }
        let sent = frames.len() as u64;
        let mut path = self.path(&transit, frames, EXTRA_BYTES)?;
        let checked = path.check_frames(sent, sent, |way, frame| {
            holds(frame, world::TTL)
                && Header::parse(frame, ETHERTYPE).is_ok_and(|header| {
                    header.hop == header.output
                        && (header.sender, header.phase) == (OWN, Phase::Second)
                        && world::egress_of(header.output.into()) == way
                })
        });
        Ok(self.run(RUNS[1], path, checked))
    }

    /// The ingress node has counted the TTL: here it leaves with the one that it came with.
    fn output(&self) -> Result<(Run, Path)> {
        let output = fabric(&mut Heap)?;
        output.set_role(self.ports.input, PortRole::Internal);
        self.set_outputs(&output)?;
        let frames: Vec<_> = (self.found.iter().zip(&*self.packets))
            .map(|((_, hop), packet)| internal(&header(OWN, hop.0), packet))
            .collect();
        let sent = frames.len() as u64;
        let mut path = self.path(&output, frames, EXTRA_BYTES)?;
        let checked = path.check_frames(sent, sent, self.leaves(world::TTL));
        Ok(self.run(RUNS[2], path, checked))
    }
}

/// Prepares the three runs, and that of a path over all three, with the destinations of the first stream.
pub(super) fn prepare(
    table: &Table<u32>,
    options: &ForwardOptions,
    control: &Control,
    ports: world::Ports,
    prepared: &mut Prepared,
) -> Result<()> {
    let Some(&stream) = options.streams.first() else { return Ok(()) };
    let (found, packets) = packets(table, options, stream)?;
    let scene = Scene { control, ports, options, stream, found, packets };
    prepared.paths.extend([scene.input()?, scene.transit()?, scene.output()?]);
    prepared.chains.push(chain::Chain::new(&scene)?);
    Ok(())
}

/// The run `cluster-input` beside others: what a packet costs at the input, between ports of memory.
pub(crate) struct Input {
    run: Run,
    path: Path,
    elements: Elements,
    plan: measure::Plan,
    /// Keeps the tables.
    _control: Control,
}

impl Input {
    /// Prepares it with so many destinations, drawn over the routes.
    ///
    /// # Errors
    /// When the table has none.
    pub(crate) fn new(
        table: &Table<u32>,
        destinations: usize,
        seed: u64,
        samples: usize,
    ) -> Result<Self> {
        let tables = Tables { v4: Some(table.clone()), v6: None };
        let stream = Stream::Prefix;
        let (control, ports) = world::build(&tables, None, None, None)?;
        let options = ForwardOptions { tables, destinations, seed, ..ForwardOptions::default() };
        let (found, packets) = packets(table, &options, stream)?;
        let scene = Scene { control: &control, ports, options: &options, stream, found, packets };
        let (mut run, path) = scene.input()?;
        run.destinations = Some(destinations);
        let plan = measure::Plan {
            clock: measure::Clock::Thread,
            ..measure::Plan::new(options.seconds, samples)
        };
        let elements = Elements::new(&path, RUNS[0], stream.name());
        Ok(Self { run, path, elements, plan, _control: control })
    }

    /// What it is called.
    pub(crate) fn name(&self) -> &str {
        &self.run.name
    }

    /// A turn; what a packet took.
    pub(crate) fn turn(&mut self) -> f64 {
        let took = measure::sample(&mut self.path, self.plan);
        self.elements.turn(&mut self.path, self.plan);
        took
    }

    /// The run with the samples of its turns, and what it takes without ports.
    pub(crate) fn runs(&self, samples: Vec<f64>) -> [Run; 2] {
        let (mut run, mut graph) = (self.run.clone(), self.elements.graph());
        run.set_samples(samples);
        graph.destinations = run.destinations;
        graph.note = "without ports".to_owned();
        [run, graph]
    }
}
