//! `ClusterTransit`: internal frames of other nodes, by the first 18 bytes of the frame.
//!
//! Source: RouteBricks, SOSP 2009: a node after the input reads no IP header.
//! Cost:   one cache line a packet; the words of a link once a batch.
//!
//! Outputs: packets of the outside pass by output 0; `own` has what the host sends on the fabric interface, `out` packets
//! in phase 2 with their egress port, `output` packets whose output node this is. Internal frames on external ports and
//! others on internal ports are dropped.

use std::sync::Arc;

use fingerpost_packet::frame::wire::Ether;
use fingerpost_packet::frame::{Batch, DropReason, Note};
use fingerpost_packet::graph::{Context, Element, ElementClass, Made};
use fingerpost_packet::language::ClassSpec;
use fingerpost_route::Reader;

use super::NETWORK;
use crate::fabric::{Charges, Class, Fabric, NodeCounts, PortRole, Settings};
use crate::frame::{FrameClass, FrameError, Header, forward_in_phase_2};
use crate::rule::{Members, Refusal, Step, forward};

pub(super) const CLASS: ElementClass = ElementClass {
    spec: ClassSpec::new("ClusterTransit", "1/4", "h/h", "x/x")
        .outputs(&["pass", "own", "out", "output"]),
    summary: "sends packets of other cluster nodes on, without reading their IP headers",
    configure: |setup| {
        setup.args.finish()?;
        let fabric = super::state(setup)?;
        Ok(Made::new(move |instance| ClusterTransit {
            members: fabric.reader(),
            counts: fabric.counts.add(instance),
            charges: Charges::default(),
            fabric: fabric.clone(),
        }))
    },
};

const OWN: u16 = 1;
const OUT: u16 = 2;
const OUTPUT: u16 = 3;

/// Frames ahead whose first line is prefetched.
const AHEAD: usize = 4;

struct ClusterTransit {
    fabric: Arc<Fabric>,
    members: Reader<Members>,
    counts: Arc<NodeCounts>,
    charges: Charges,
}

impl ClusterTransit {
    /// What becomes of a frame that arrived on an internal port.
    #[inline]
    fn internal(&mut self, i: usize, batch: &mut Batch) -> Result<u16, DropReason> {
        let (fabric, frame) = (&*self.fabric, batch.bytes(i));
        let Settings { cluster, node, ethertype, .. } = fabric.settings;
        let header = Header::parse(frame, ethertype).map_err(|error| match error {
            FrameError::EtherType => DropReason::FabricExternal,
            FrameError::Short if Ether::of(frame).is_none_or(|ether| ether.kind() != ethertype) => {
                DropReason::FabricExternal
            }
            _ => DropReason::FabricMalformed,
        })?;
        if header.class == FrameClass::Probe {
            // Who answers probes has seen it before.
            return Err(DropReason::Consumed);
        }
        if header.cluster != cluster || header.hop != node {
            return Err(DropReason::FabricNotOurs);
        }
        match forward(self.members.pinned(), node, header.output, header.phase) {
            Step::Output => Ok(OUTPUT),
            Step::Drop(Refusal::Phase) => Err(DropReason::FabricPhase),
            Step::Drop(Refusal::LinkDown) => Err(DropReason::FabricDown),
            Step::Drop(Refusal::UnknownNode) => Err(DropReason::FabricUnknownNode),
            Step::Transit => {
                let port = fabric.links.port(header.output).ok_or(DropReason::FabricDown)?;
                let bytes = batch.frame_len(i) as u64;
                if !self.charges.charge(&fabric.links, header.output, Class::Transit, bytes) {
                    return Err(DropReason::FabricLinkFull);
                }
                forward_in_phase_2(batch.bytes_mut(i), node);
                batch.meta_mut()[i].note = Note::egress(port);
                self.counts.transit.add(1);
                Ok(OUT)
            }
        }
    }
}

impl Element for ClusterTransit {
    fn process(&mut self, _: u16, batch: &mut Batch, cx: &mut Context<'_>) {
        self.members.pin();
        self.charges.begin(self.fabric.link_time(cx.now_ns));
        for i in 0..batch.len() {
            batch.prefetch(i + AHEAD);
            let port = batch.meta()[i].port;
            let outcome = match self.fabric.role(port) {
                PortRole::Internal => self.internal(i, batch),
                PortRole::External => {
                    let ethertype = self.fabric.settings.ethertype;
                    match Ether::of(batch.bytes(i)) {
                        Some(ether) if ether.kind() == ethertype => Err(DropReason::FabricInternal),
                        _ => continue,
                    }
                }
                // What the host sends to all its neighbors there is for no node.
                PortRole::Fabric if batch.bytes(i).first().is_some_and(|byte| byte & 1 != 0) => {
                    Err(DropReason::Multicast)
                }
                PortRole::Fabric => {
                    let meta = &mut batch.meta_mut()[i];
                    (meta.note, meta.network) = (Note::egress(port), NETWORK);
                    Ok(OWN)
                }
            };
            match outcome {
                Ok(output) => batch.output(i, output),
                Err(reason) => batch.discard(i, reason),
            }
        }
        self.charges.end(&self.fabric.links);
    }
}
