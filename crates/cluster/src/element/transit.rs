//! `ClusterTransit`: internal frames of other nodes, by the first 18 bytes of the frame.
//!
//! Source: RouteBricks, SOSP 2009: a node after the input reads no IP header.
//! Cost:   one cache line a packet, read as two words and a byte, which decide whether it is to be sent on; two words of a
//!         link and a count. The fields of a frame are read one by one only where it is refused.
//!
//! Outputs: packets of the outside pass by output 0; `own` has what the host sends on the fabric interface, `out` packets
//! in phase 2 with their egress port, `output` packets whose egress node this is. Internal frames on external ports and
//! others on internal ports are dropped.

use std::sync::Arc;

use fingerpost_packet::frame::wire::Ether;
use fingerpost_packet::frame::{Batch, DropReason, Meta, Note};
use fingerpost_packet::graph::{Context, Element, ElementClass, Made};
use fingerpost_packet::language::ClassSpec;
use fingerpost_route::Reader;

use super::NETWORK;
use crate::fabric::{Charges, Class, Fabric, NodeCounts, PortRole, Sent, Settings};
use crate::frame::{Arrivals, FrameClass, FrameError, Header};
use crate::rule::{Members, Refusal, Step, forward};

pub(super) const CLASS: ElementClass = ElementClass {
    spec: ClassSpec::new("ClusterTransit", "1/4", "h/h", "x/x")
        .outputs(&["pass", "own", "out", "output"]),
    summary: "sends packets of other cluster nodes on, without reading their IP headers",
    configure: |setup| {
        setup.args.finish()?;
        let fabric = super::state(setup)?;
        let Settings { cluster, node, ethertype, .. } = fabric.settings;
        Ok(Made::new(move |instance| ClusterTransit {
            members: fabric.reader(),
            counts: fabric.counts.add(instance),
            sent: fabric.links.sender(instance),
            charges: Charges::of(instance),
            arrivals: Arrivals::new(cluster, node, ethertype),
            fabric: fabric.clone(),
        }))
    },
};

const PASS: u16 = 0;
const OWN: u16 = 1;
const OUT: u16 = 2;
const OUTPUT: u16 = 3;

struct ClusterTransit {
    fabric: Arc<Fabric>,
    members: Reader<Members>,
    counts: Arc<NodeCounts>,
    sent: Arc<Sent>,
    charges: Charges,
    arrivals: Arrivals,
}

/// Why a frame that arrived on an internal port goes no further: it is not one for this node in a phase that it can be in,
/// or the link to its egress node is not usable.
#[cold]
#[inline(never)]
fn refusal(settings: &Settings, members: &Members, frame: &[u8]) -> DropReason {
    let &Settings { cluster, node, ethertype, .. } = settings;
    let header = match Header::parse(frame, ethertype) {
        Ok(header) => header,
        Err(FrameError::EtherType) => return DropReason::FabricExternal,
        Err(FrameError::Short) if Ether::of(frame).is_none_or(|e| e.kind() != ethertype) => {
            return DropReason::FabricExternal;
        }
        Err(_) => return DropReason::FabricMalformed,
    };
    if header.class == FrameClass::Probe {
        // Who answers probes has seen it before.
        return DropReason::Consumed;
    }
    if header.cluster != cluster || header.hop != node {
        return DropReason::FabricNotOurs;
    }
    match forward(members, node, header.output, header.phase) {
        Step::Drop(Refusal::Phase) => DropReason::FabricPhase,
        Step::Drop(Refusal::UnknownNode) => DropReason::FabricUnknownNode,
        // The link went down after the members were pinned, or there is none.
        Step::Drop(Refusal::LinkDown) | Step::Transit | Step::Output => DropReason::FabricDown,
    }
}

/// What becomes of a packet that did not arrive on an internal port.
#[inline]
fn other(role: PortRole, ethertype: u16, frame: &[u8], meta: &mut Meta) -> Result<u16, DropReason> {
    match role {
        // What the host sends to all its neighbors there is for no node.
        PortRole::Fabric if frame.first().is_some_and(|byte| byte & 1 != 0) => {
            Err(DropReason::Multicast)
        }
        PortRole::Fabric => {
            (meta.note, meta.network) = (Note::egress(meta.port), NETWORK);
            Ok(OWN)
        }
        _ => match Ether::of(frame) {
            Some(ether) if ether.kind() == ethertype => Err(DropReason::FabricInternal),
            _ => Ok(PASS),
        },
    }
}

impl Element for ClusterTransit {
    fn process(&mut self, _: u16, batch: &mut Batch, cx: &mut Context<'_>) {
        let Self { fabric, members, counts, sent, charges, arrivals } = self;
        let (fabric, sent): (&Fabric, &Sent) = (fabric, sent);
        let (settings, links, arrivals) = (&fabric.settings, &fabric.links, *arrivals);
        let (node, members) = (settings.node, members.pin());
        let nodes = members.len();
        charges.begin(fabric.link_time(cx.now_ns));
        // A batch is mostly of one port.
        let mut port = batch.meta().first().map_or(0, |meta| meta.port);
        let mut role = fabric.role(port);
        let mut transit = 0;
        batch.each_ahead(|_, mut packet| {
            if packet.meta.port != port {
                port = packet.meta.port;
                role = fabric.role(port);
            }
            if role != PortRole::Internal {
                match other(role, settings.ethertype, packet.frame, packet.meta) {
                    Ok(output) => packet.output(output),
                    Err(reason) => packet.discard(reason),
                }
                return;
            }
            let Some(arrival) = arrivals.recognize(packet.frame) else {
                return packet.discard(refusal(settings, members, packet.frame));
            };
            let output = arrival.output();
            if output == node {
                return packet.output(OUTPUT);
            }
            let link = links.usable(output).filter(|_| usize::from(output) < nodes);
            let Some(link) = link.filter(|_| arrival.in_phase_1()) else {
                return packet.discard(refusal(settings, members, packet.frame));
            };
            let bytes = packet.frame.len() as u64;
            if !link.rated {
                sent.add(output, bytes);
            } else if !charges.charge(links, output, Class::Transit, bytes) {
                return packet.discard(DropReason::FabricLinkFull);
            }
            arrivals.send_on(arrival, packet.frame);
            packet.meta.note = Note::egress(link.port);
            packet.output(OUT);
            transit += 1;
        });
        counts.transit.add(transit);
        charges.end(links);
    }
}
