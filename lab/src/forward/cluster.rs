//! What a packet costs a node of a cluster: input, transit and output, each from memory to memory.
//!
//! The graph is that of the router with the elements of a cluster node. `cluster-input` receives packets of the outside, looks
//! them up and sends them as internal frames; the output node of a packet is the number of its next hop. `cluster-transit`
//! receives internal frames of phase 1 and sends them on. `cluster-output` receives internal frames with an adjacency index
//! each and sends the packets to their neighbors. Frames are as long as those of `graph-v4`, internal frames 4 bytes longer. IPv4 alone: the generator's header does not hold an IPv6 packet behind an internal header.

use std::sync::{Arc, LazyLock};

use anyhow::{Context, Result, ensure};
use fingerpost_cluster::element::{self, addition};
use fingerpost_cluster::fabric::{Fabric, Mode, PortRole, Settings};
use fingerpost_cluster::frame::{
    ETHERTYPE, EXTRA_BYTES, FrameClass, HEADER_BYTES as FRONT, Header,
};
use fingerpost_cluster::rule::{self, MAX_NODES, Members, NodeId, Phase, Rule};
use fingerpost_lpm::{Heap, NextHopId};
use fingerpost_packet::device::memory::HEADER_BYTES;
use fingerpost_packet::feature::{FeatureSettings, FeatureStates};
use fingerpost_packet::frame::wire::{ETHER_BYTES, IP4_BYTES, Ip4, checksum::checksum};
use fingerpost_packet::graph::{ElementClass, Plan, Registry};
use fingerpost_packet::router_graph;
use fingerpost_route::{Control, ForwardingAction};

use super::{ForwardOptions, Path, Prepared, packets, world};
use crate::document::{Kind, Run, Unit};
use crate::table::Table;

/// Number of the node that is measured. No next hop has it.
const OWN: NodeId = 0;

/// Epoch of all nodes.
const EPOCH: u8 = 0;

static CLASSES: LazyLock<Vec<ElementClass>> =
    LazyLock::new(|| [fingerpost_packet::ELEMENTS, element::ELEMENTS].concat());

/// A node whose links have no rate: nothing is dropped.
fn fabric() -> Result<Arc<Fabric>> {
    let settings = Settings {
        cluster: 1,
        node: OWN,
        ethertype: ETHERTYPE,
        mode: Mode::Vlb,
        rule: rule::Settings { rule: Rule::Adaptive, threshold: 10_000 },
        flowlet_ns: 2_000_000,
        clock_ns: 0,
    };
    Ok(Arc::new(Fabric::new(&mut Heap, settings, Members::equal(MAX_NODES))?))
}

fn plan(fabric: &Arc<Fabric>) -> Result<Plan> {
    let states = FeatureStates::make(&FeatureSettings::default(), None)
        .map_err(|errors| anyhow::anyhow!("{}", errors.join("; ")))?;
    let addition = addition(Registry::from(&CLASSES[..]), fabric.clone());
    router_graph::plan_added(None, &states, &addition).map_err(|errors| anyhow::anyhow!("{errors}"))
}

/// The node that a next hop stands for.
fn node(hop: u32) -> Result<NodeId> {
    let number = NodeId::try_from(hop).ok().filter(|&node| usize::from(node) < MAX_NODES);
    number.filter(|&node| node != OWN).context("a table of at most 1,023 next hops")
}

/// An internal frame of phase 1 or 2 to the node that is measured.
fn internal(
    packet: &[u8; HEADER_BYTES],
    output: NodeId,
    phase: Phase,
    index: u32,
) -> [u8; HEADER_BYTES] {
    let header = Header {
        cluster: 1,
        hop: OWN,
        output,
        sender: 1,
        phase,
        epoch: EPOCH,
        ethertype: ETHERTYPE,
        adjacency: index,
        class: FrameClass::Data,
    };
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

/// Prepares the three runs with the destinations of the first stream.
pub(super) fn prepare(
    table: &Table<u32>,
    options: &ForwardOptions,
    control: &Control,
    ports: world::Ports,
    prepared: &mut Prepared,
) -> Result<()> {
    let Some(&stream) = options.streams.first() else { return Ok(()) };
    let (found, headers) = packets(table, options, stream)?;
    let mut add = |name: &str, mut path: Path, (checked, wrong): (u64, u64), words: String| {
        let mut run = Run::new(name, Kind::Ours, stream.name(), Unit::NsPerPacket);
        run.family = Some(4);
        run.set_answers(checked, wrong);
        run.note = format!("{} destinations, {words}, generator included", found.len());
        path.free_run();
        prepared.paths.push((run, path));
    };
    let path =
        |fabric: &Arc<Fabric>, headers: Vec<[u8; HEADER_BYTES]>, extra: u16| -> Result<Path> {
            let (plan, reader) = (plan(fabric)?, control.reader());
            let mut path = Path::new(plan, reader, ports, 4, headers.into(), options.burst);
            path.len += extra;
            Ok(path)
        };
    let [fabric_port, internal_port] = ports.out;

    // Half of the next hops are neighbors on the fabric interface, and leave by the other port.
    let input = fabric()?;
    input.set_role(fabric_port, PortRole::Fabric);
    let (mut own, mut nodes) = (Vec::new(), std::collections::HashMap::new());
    for ((addr, hop), header) in found.iter().zip(&*headers) {
        if world::egress_of(hop.0) == 0 {
            let node = node(hop.0)?;
            input.set_link(node, internal_port, None, 0);
            nodes.insert(*addr, node);
            own.push(*header);
        }
    }
    ensure!(!own.is_empty(), "{}: no next hop on the first egress", table.file);
    let sent = own.len() as u64;
    let mut measured = path(&input, own, 0)?;
    let checked = measured.check_frames(sent, sent, move |way, frame| {
        let header = Header::parse(frame, ETHERTYPE).ok();
        let to = Ip4::at(frame, FRONT).and_then(|ip| nodes.get(&ip.dst()));
        way == 1
            && holds(frame, world::TTL - 1)
            && header.is_some_and(|header| {
                Some(&header.output) == to && header.hop == header.output && header.sender == OWN
            })
    });
    let bytes = |extra: u16| format!("{} bytes a frame", world::frame_len(4) + 4 + extra);
    add("cluster-input", measured, checked, bytes(0));

    let transit = fabric()?;
    transit.set_role(ports.input, PortRole::Internal);
    let mut frames = Vec::new();
    for ((_, hop), header) in found.iter().zip(&*headers) {
        let node = node(hop.0)?;
        transit.set_link(node, ports.out[world::egress_of(hop.0)], None, 0);
        frames.push(internal(header, node, Phase::First, 1));
    }
    let sent = frames.len() as u64;
    let mut measured = path(&transit, frames, EXTRA_BYTES)?;
    let checked = measured.check_frames(sent, sent, |way, frame| {
        holds(frame, world::TTL)
            && Header::parse(frame, ETHERTYPE).is_ok_and(|header| {
                let hop = u32::from(header.output);
                header.hop == header.output
                    && (header.sender, header.phase) == (OWN, Phase::Second)
                    && world::egress_of(hop) == way
            })
    });
    add("cluster-transit", measured, checked, bytes(EXTRA_BYTES));

    // The input node has counted the TTL: here it leaves with the one that it came with.
    let output = fabric()?;
    output.set_role(ports.input, PortRole::Internal);
    let mut reader = control.reader();
    let forwarding = reader.pin();
    let adjacency = |hop: NextHopId| match forwarding.hops.action(hop, 0) {
        ForwardingAction::Adjacency(index) => Ok(index),
        other => anyhow::bail!("next hop {hop:?} is {other:?}"),
    };
    let mut frames = Vec::new();
    for ((addr, hop), header) in found.iter().zip(&*headers) {
        let index = adjacency(forwarding.v4.lookup(*addr))?;
        output.set_output(hop.0, Some(index));
        frames.push(internal(header, OWN, Phase::Second, hop.0));
    }
    let hops: std::collections::HashMap<u32, u32> =
        found.iter().map(|(addr, hop)| (*addr, hop.0)).collect();
    let sent = frames.len() as u64;
    let mut measured = path(&output, frames, EXTRA_BYTES)?;
    let checked = measured.check_frames(sent, sent, move |way, frame| {
        let hop = world::destination::<u32>(frame).and_then(|dst| hops.get(&dst));
        hop.is_some_and(|&hop| {
            let ttl = Ip4::at(frame, ETHER_BYTES).is_some_and(|ip| ip.ttl() == world::TTL);
            world::egress_of(hop) == way && world::is_to(frame, hop, 4) && ttl
        })
    });
    add("cluster-output", measured, checked, bytes(EXTRA_BYTES));
    Ok(())
}
