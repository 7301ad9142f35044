//! `ClusterOutput`: packets whose egress node this is, out of the internal frame and to the adjacency that it names.
//!
//! Source: RouteBricks, SOSP 2009: the egress node looks nothing up.
//! Cost:   one cache line a packet; a search among the host's own addresses for packets without an adjacency.
//!
//! The ingress node has counted the TTL down. It is given back here, since the ordinary path counts once: an ICMP error then
//! quotes the packet as the input received it. Outputs: `action4` and `action6` have the forwarding action of the adjacency
//! in their metadata; `lookup4` and `lookup6` are looked up, since the frame names no adjacency or one of an old epoch;
//! `host` has packets to the host's own addresses, for the fabric interface.

use std::sync::Arc;

use fingerpost_packet::frame::wire::{EtherMut, IP4_BYTES, IP6_BYTES, Ip4, Ip6, ether};
use fingerpost_packet::frame::{Batch, DropReason, Hop, Note};
use fingerpost_packet::graph::{Context, Element, ElementClass, Made};
use fingerpost_packet::language::ClassSpec;
use fingerpost_route::ForwardingAction;

use super::{NETWORK, hops};
use crate::fabric::{Fabric, NodeCounts};
use crate::frame::{EXTRA_BYTES, FabricAddr, HEADER_BYTES, Header, LOOKUP};

pub(super) const CLASS: ElementClass = ElementClass {
    spec: ClassSpec::new("ClusterOutput", "1/5", "h/h", "x/x")
        .outputs(&["action4", "action6", "lookup4", "lookup6", "host"]),
    summary: "takes packets out of internal frames, to the adjacency that these name",
    configure: |setup| {
        setup.args.finish()?;
        let fabric = super::state(setup)?;
        Ok(Made::new(move |instance| ClusterOutput {
            counts: fabric.counts.add(instance),
            fabric: fabric.clone(),
        }))
    },
};

const ACTION: u16 = 0;
const LOOK_UP: u16 = 2;
const HOST: u16 = 4;

struct ClusterOutput {
    fabric: Arc<Fabric>,
    counts: Arc<NodeCounts>,
}

impl ClusterOutput {
    /// Takes packet `i` out of its frame. Returns the output that it leaves by.
    fn output(&self, i: usize, batch: &mut Batch, cx: &Context<'_>) -> Result<u16, DropReason> {
        let settings = &self.fabric.settings;
        let frame = batch.bytes(i);
        let header =
            Header::parse(frame, settings.ethertype).map_err(|_| DropReason::FabricMalformed)?;
        // What was encapsulated was checked, but a frame may be anybody's.
        let (ipv6, own) = match frame[HEADER_BYTES..].first().map(|byte| byte >> 4) {
            Some(4) => {
                let ip = Ip4::at(frame, HEADER_BYTES).ok_or(DropReason::TooShort)?;
                let lengths = ip.header_len()..=frame.len() - HEADER_BYTES;
                if ip.header_len() < IP4_BYTES || !lengths.contains(&ip.total_len()) {
                    return Err(DropReason::FabricMalformed);
                }
                (false, cx.forwarding.ports.own_v4.binary_search(&ip.dst()).is_ok())
            }
            Some(6) => {
                let ip = Ip6::at(frame, HEADER_BYTES).ok_or(DropReason::TooShort)?;
                if IP6_BYTES + ip.payload_len() > frame.len() - HEADER_BYTES {
                    return Err(DropReason::FabricMalformed);
                }
                (true, cx.forwarding.ports.own_v6.binary_search(&ip.dst()).is_ok())
            }
            _ => return Err(DropReason::FabricMalformed),
        };
        batch.pull_front(i, EXTRA_BYTES);
        let meta = &mut batch.meta_mut()[i];
        meta.network = NETWORK;
        let frame = batch.bytes_mut(i);
        let mac = |output| FabricAddr { adjacency: LOOKUP, output }.mac();
        if let Some(mut ether) = EtherMut::of(frame) {
            ether.set_addrs(mac(settings.node), mac(header.sender));
            ether.set_kind(if ipv6 { ether::TYPE_IP6 } else { ether::TYPE_IP4 });
        }
        if own {
            let port = self.fabric.fabric_port().ok_or(DropReason::PortDown)?;
            batch.meta_mut()[i].note = Note::egress(port);
            self.counts.host.add(1);
            return Ok(HOST);
        }
        hops::count_up(frame, ipv6);
        let adjacency = self.fabric.output(header.adjacency, header.epoch);
        let view = cx.forwarding.hops.view();
        if let Some(adjacency) = adjacency.filter(|at| view.packed_adjacency(*at).resolved()) {
            let action = ForwardingAction::Adjacency(adjacency);
            batch.meta_mut()[i].hop = Hop::of_action(action);
            self.counts.output.add(1);
            return Ok(ACTION + u16::from(ipv6));
        }
        self.counts.looked_up.add(1);
        Ok(LOOK_UP + u16::from(ipv6))
    }
}

impl Element for ClusterOutput {
    fn process(&mut self, _: u16, batch: &mut Batch, cx: &mut Context<'_>) {
        for i in 0..batch.len() {
            match self.output(i, batch, cx) {
                Ok(output) => batch.output(i, output),
                Err(reason) => batch.discard(i, reason),
            }
        }
    }
}
