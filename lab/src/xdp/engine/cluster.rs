//! A node of a cluster: the programs of its external and internal interfaces.
//!
//! `xdp-cluster-input` is sent packets of the outside whose next hops are neighbors on the fabric interface, half of all, and
//! sends them by one link as internal frames, as in mode `direct`. `xdp-cluster-transit` is sent internal frames of phase 1 for the nodes that the next hops stand for, as in
//! `bench forward --cluster`, and sends them on; links have no rate. `xdp-cluster-output` is sent frames for this node with an
//! adjacency index each, and sends the packets to their neighbors. IPv4 alone. The output that a frame in transit must leave
//! by stands in its epoch, which this node passes on.

use std::any::Any;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use fingerpost_cluster::fabric::Fabric;
use fingerpost_cluster::frame::{ETHERTYPE, HEADER_BYTES, Header};
use fingerpost_cluster::rule::Phase;
use fingerpost_io::xdp::bpf::Program;
use fingerpost_io::xdp::fabric::{Fabric as Programs, FabricReads, FabricSettings, FabricWords};
use fingerpost_io::xdp::forward::{CAP_BYTES, Forwarder};
use fingerpost_io::xdp::{Classifier, LocalAddresses, Mode};
use fingerpost_lpm::NextHopId;
use fingerpost_route::{Control, Mac};

use super::ours::{Held, LONGEST};
use super::{Engine, Frames, Row};
use crate::document::Kind;
use crate::forward::cluster::{OWN, fabric, header, node};
use crate::forward::world::{self, LINKS, Ports};
use crate::table::Tables;
use crate::traffic::Meter;
use crate::traffic::meter::Expected;

pub(super) const INPUT: Row = Row {
    name: "xdp-cluster-input",
    summary: "the ingress node of a cluster: packets of the outside, looked up and sent as internal frames",
    // It makes frames longer, so that a feeder cannot run it on the same one again.
    program: false,
    frames: Frames::Input,
    make: |tables, _| Ok(Box::new(Node::new(tables, Frames::Input)?)),
    ..TRANSIT
};

pub(super) const TRANSIT: Row = Row {
    name: "xdp-cluster-transit",
    summary: "a node between of a cluster: internal frames on to their egress nodes",
    by_family: false,
    kind: Kind::Ours,
    checked: true,
    loses: false,
    program: true,
    kernel_table: false,
    frames: Frames::Transit,
    make: |tables, _| Ok(Box::new(Node::new(tables, Frames::Transit)?)),
};

pub(super) const OUTPUT: Row = Row {
    name: "xdp-cluster-output",
    summary: "the egress node of a cluster: packets out of internal frames to their neighbors",
    // It shortens frames, so that a feeder cannot run it on the same one again.
    program: false,
    frames: Frames::Output,
    ..TRANSIT
};

/// Number of the egress that stands for the fabric interface at the input; internal frames leave by the other one.
const FABRIC: usize = 0;

/// Adjacency index of all neighbors on the fabric interface: that of their link address (`world::hop_mac`).
const INDEX: u32 = 4 << 16;

/// Destinations whose packets a node is sent, of many.
pub(in crate::xdp) fn are_for(frames: Frames, hop: NextHopId) -> bool {
    frames != Frames::Input || world::egress_of(hop.0) == FABRIC
}

/// Frames for a node, and what must become of them.
pub(in crate::xdp) struct Internal {
    pub(in crate::xdp) templates: Vec<Vec<u8>>,
    pub(in crate::xdp) meter: Meter,
    /// What identifies the outputs to the meter.
    pub(in crate::xdp) ends: [[u8; 6]; 2],
}

/// Frames to these destinations, with their numbers.
pub(in crate::xdp) fn internal(found: &[(u32, NextHopId)], frames: Frames) -> Result<Internal> {
    let (mut templates, mut expected) = (Vec::new(), Vec::new());
    let sent_on = |header: &Header, way| Header {
        hop: header.output,
        sender: OWN,
        phase: Phase::Second,
        epoch: way,
        ..*header
    };
    for (number, &(addr, hop)) in (0..=u16::MAX).zip(found) {
        let way = u8::try_from(world::egress_of(hop.0))?;
        let packet = world::header(addr, number);
        let framed = |header| crate::forward::cluster::internal(header, &packet).to_vec();
        let (template, (to, from)) = match frames {
            Frames::Packets | Frames::Input => {
                let sent = sent_on(&header(node(hop.0)?, INDEX), 0);
                (packet[..usize::from(world::frame_len(4))].to_vec(), addresses(&sent))
            }
            Frames::Transit => {
                let header = Header { epoch: way, ..header(node(hop.0)?, 1) };
                (framed(&header), addresses(&sent_on(&header, way)))
            }
            Frames::Output => {
                let from = world::link_mac(world::hop_link(hop.0));
                (framed(&header(OWN, hop.0)), (world::hop_mac(4, hop.0).0, from.0))
            }
        };
        templates.push(template);
        expected.push(Expected { to, from, destination: std::net::Ipv4Addr::from(addr).into() });
    }
    ensure!(!templates.is_empty(), "no address to forward to");
    let len = usize::from(world::frame_len(4));
    let (meter, ends) = if frames == Frames::Output {
        let meter = Meter::new(&expected, len, world::TTL)?;
        (meter, [1, 2].map(|at: usize| world::link_mac(LINKS[at]).0))
    } else {
        let enters = frames == Frames::Input;
        let index = header(1, if enters { INDEX } else { 1 }).bytes();
        let index = *index[14..].first_chunk().context("a header of 18 bytes")?;
        let meter = Meter::new(&expected, HEADER_BYTES + len - 14, world::TTL - u8::from(enters))?;
        // Of the input by the second link alone, with the epoch that all nodes have.
        let epochs = if enters { [1, 0] } else { [0, 1] };
        let ends = epochs.map(|epoch| addresses(&sent_on(&header(1, 1), epoch)).1);
        (meter.internal(ETHERTYPE, index), ends)
    };
    Ok(Internal { templates, meter, ends })
}

/// The two address fields of an internal frame.
fn addresses(header: &Header) -> ([u8; 6], [u8; 6]) {
    let bytes: [u8; HEADER_BYTES] = header.bytes();
    let field = |at: usize| std::array::from_fn(|byte| bytes[at + byte]);
    (field(0), field(6))
}

struct Node {
    forwarder: Forwarder,
    ports: Ports,
    /// The internal one.
    internal: u16,
    /// Whether packets of the outside enter the cluster.
    enters: bool,
    programs: Arc<Programs>,
    /// Keep the tables.
    _fabric: Arc<Fabric>,
    _control: Control,
}

impl Node {
    fn new(tables: &Tables, frames: Frames) -> Result<Self> {
        let enters = frames == Frames::Input;
        let tables = tables.only(4);
        let forwarder = Forwarder::new(0, CAP_BYTES)?;
        let (control, ports) = world::build(&tables, None, None, Some(&forwarder))?;
        let fabric = fabric(forwarder.shared().memory.make().as_mut())?;
        let hops = tables.v4.as_ref().map_or(0, |table| table.nexthops);
        let mut reader = control.reader();
        let adjacencies = &reader.pin().hops;
        let (_, _, capacity) = adjacencies.capacity();
        let at = (0..u32::try_from(capacity)?)
            .map(|index| (adjacencies.adjacency(index), index))
            .filter(|(adjacency, _)| adjacency.resolved())
            .map(|(adjacency, index)| (adjacency.dst, index))
            .collect::<std::collections::HashMap<Mac, u32>>();
        for hop in 1..=hops {
            let way = if enters { 1 - FABRIC } else { world::egress_of(hop) };
            fabric.set_link(node(hop)?, ports.out[way], None, 0);
            let index = at.get(&world::hop_mac(4, hop)).context("each next hop is a neighbor")?;
            fabric.set_output(hop, Some(*index));
        }
        let [outputs, nodes] = fabric.regions();
        let words = FabricWords {
            links: fabric.links.region().clone(),
            outputs: outputs.clone(),
            nodes: nodes.clone(),
        };
        let settings = &fabric.settings;
        let (node, cluster, ethertype) = (settings.node, settings.cluster, settings.ethertype);
        let programs = Programs::new(FabricSettings { node, cluster, ethertype }, words)?;
        let programs = Arc::new(programs);
        if enters {
            forwarder.enter(ports.out[FABRIC], programs.clone());
        }
        let internal = if enters { ports.out[1 - FABRIC] } else { ports.input };
        let made = Self {
            forwarder,
            ports,
            internal,
            enters,
            programs,
            _fabric: fabric,
            _control: control,
        };
        // Says so now if it cannot.
        drop(made.hold()?);
        Ok(made)
    }

    fn hold(&self) -> Result<Held> {
        let held = Held { forwarder: self.forwarder.clone(), ports: self.ports };
        let local = LocalAddresses::new()?;
        // What leaves by the fabric interface enters the cluster, as it is no port that programs send by.
        let is_fabric = |port: &u16| self.enters && *port == self.ports.out[FABRIC];
        let ports = self.ports.all().into_iter().zip(LINKS);
        for (port, link) in ports.filter(|(port, _)| !is_fabric(port)) {
            let classifier = Arc::new(Classifier::load(world::link_mac(link).0, &local, LONGEST)?);
            let attached = Arc::new(classifier.attach(link, Mode::Native)?);
            if port == self.internal {
                let programs = self.programs.clone();
                self.forwarder.add_fabric_port(port, link, classifier, attached, programs)?;
            } else {
                self.forwarder.add_port(port, link, classifier, attached)?;
            }
            self.forwarder.open_egress(port, true);
        }
        let reads = self.forwarder.fabric_reads(self.internal).context("a port that was added")?;
        let reads = reads.map_err(anyhow::Error::msg)?;
        let all = FabricReads { transits: true, delivers: true };
        ensure!(reads == all, "the program reads {reads:?}");
        Ok(held)
    }
}

impl Engine for Node {
    fn attach(&self, _: &Meter) -> Result<Box<dyn Any>> {
        Ok(Box::new(self.hold()?))
    }

    fn alone(&self, time: &mut dyn FnMut(&Program) -> Result<f64>) -> Result<f64> {
        let _held = self.hold()?;
        time(&self.forwarder.tester(self.ports.input)?)
    }
}
