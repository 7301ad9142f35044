//! What the program of an internal interface does to a frame, in plain Rust: the slow, obvious answer that it is tested
//! against, and the place to read the rules.

use super::{FabricEnd, FabricSettings};
use fingerpost_route::Adjacency;

/// Bytes before the IP packet of an internal frame.
pub(super) const HEADER: usize = 18;

/// The link to a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Link {
    pub(super) busy_all: u64,
    pub(super) busy_transit: u64,
    pub(super) port: u16,
    pub(super) usable: bool,
    pub(super) there: bool,
    /// Shifted left by 16.
    pub(super) ns_per_byte: u64,
    pub(super) limit_ns: u64,
    pub(super) dropped_transit: u64,
    pub(super) bytes: u64,
}

/// State that decides about a frame.
pub(super) struct Node<'a> {
    pub(super) settings: FabricSettings,
    pub(super) links: Vec<Link>,
    pub(super) outputs: Vec<u32>,
    /// The accepted epoch of this node's adjacency indices.
    pub(super) epoch: u8,
    pub(super) adjacency: &'a dyn Fn(u32) -> Adjacency,
    /// The tag of packets that leave by a port, if any; `None` where programs may not send.
    pub(super) egress: &'a dyn Fn(u16) -> Option<Option<u16>>,
    /// Whether there is a device to send by.
    pub(super) device: &'a dyn Fn(u16) -> bool,
    /// Whether the queue has a socket.
    pub(super) socket: bool,
}

/// What becomes of a frame at a time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Done {
    pub(super) end: FabricEnd,
    /// The frame afterwards.
    pub(super) frame: Vec<u8>,
    /// The port that it leaves by, with its adjacency unless it is in transit.
    pub(super) sent: Option<(u16, Option<u32>)>,
}

impl Node<'_> {
    /// Decides about one frame, from its Ethernet header on.
    pub(super) fn receive(&mut self, frame: &[u8], now_ns: u64) -> Done {
        let mut done = Done { end: FabricEnd::External, frame: frame.to_vec(), sent: None };
        done.end = self.decide(&mut done, now_ns);
        let to_socket = matches!(
            done.end,
            FabricEnd::NoTable
                | FabricEnd::Stale
                | FabricEnd::Lookup
                | FabricEnd::TooBig
                | FabricEnd::Egress
        );
        if to_socket && !self.socket {
            done.end = FabricEnd::NoSocket;
        }
        done
    }

    fn decide(&mut self, done: &mut Done, now_ns: u64) -> FabricEnd {
        let frame = &mut done.frame;
        if frame.get(12..14) != Some(&self.settings.ethertype.to_be_bytes()) {
            return FabricEnd::External;
        }
        let Some(header) = frame.first_chunk::<HEADER>().copied() else {
            return FabricEnd::Malformed;
        };
        let number = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
        match header[17] {
            0 => {}
            0xff => return FabricEnd::Probe,
            _ => return FabricEnd::Malformed,
        }
        let of_form = header[0] == 2 && header[6] == 2 && header[1] == header[7];
        if !of_form || !(1..=2).contains(&header[10]) {
            return FabricEnd::Malformed;
        }
        if header[1] != self.settings.cluster || number(2) != self.settings.node {
            return FabricEnd::NotOurs;
        }
        let output = number(4);
        if output != self.settings.node {
            if header[10] == 2 {
                return FabricEnd::Phase;
            }
            return self.transit(done, output, now_ns);
        }
        self.output(done, &header)
    }

    fn transit(&mut self, done: &mut Done, output: u16, now_ns: u64) -> FabricEnd {
        let bytes = done.frame.len() as u64;
        let Some(link) = self.links.get_mut(usize::from(output)) else {
            return FabricEnd::UnknownNode;
        };
        if !link.usable || !link.there {
            return FabricEnd::LinkDown;
        }
        if (self.egress)(link.port).is_none() {
            return FabricEnd::Egress;
        }
        let cost = (link.ns_per_byte * bytes) >> 16;
        if cost > 0 {
            if link.busy_transit.saturating_sub(now_ns) + cost > link.limit_ns {
                link.dropped_transit += 1;
                return FabricEnd::LinkFull;
            }
            link.busy_transit = link.busy_transit.max(now_ns) + cost;
            link.busy_all = link.busy_all.max(now_ns) + cost;
        }
        if !(self.device)(link.port) {
            return FabricEnd::Refused;
        }
        link.bytes += bytes;
        done.frame[2..4].copy_from_slice(&output.to_be_bytes());
        done.frame[8..10].copy_from_slice(&self.settings.node.to_be_bytes());
        done.frame[10] = 2;
        done.sent = Some((link.port, None));
        FabricEnd::Transit
    }

    fn output(&self, done: &mut Done, header: &[u8; HEADER]) -> FabricEnd {
        let ethertype: [u8; 2] = match done.frame.get(HEADER).map(|byte| byte >> 4) {
            Some(4) => [8, 0],
            Some(6) => [0x86, 0xdd],
            _ => return FabricEnd::Malformed,
        };
        if header[11] != self.epoch && header[11] != self.epoch.wrapping_sub(1) {
            return FabricEnd::Stale;
        }
        let index = u32::from_be_bytes([0, header[14], header[15], header[16]]);
        let named = self.outputs.get(index as usize).and_then(|word| word.checked_sub(1));
        let Some(named) = named else { return FabricEnd::Lookup };
        let adjacency = (self.adjacency)(named);
        if !adjacency.resolved() {
            return FabricEnd::Lookup;
        }
        if done.frame.len() - HEADER > usize::from(adjacency.mtu) {
            return FabricEnd::TooBig;
        }
        let Some(tag) = (self.egress)(adjacency.port) else { return FabricEnd::Egress };
        if !(self.device)(adjacency.port) {
            return FabricEnd::Refused;
        }
        let mut link = [adjacency.dst.0, adjacency.src.0].concat();
        if let Some(tag) = tag {
            link.extend([0x81, 0]);
            link.extend(tag.to_be_bytes());
        }
        link.extend(ethertype);
        done.frame.splice(..HEADER, link);
        done.sent = Some((adjacency.port, Some(named)));
        FabricEnd::Output
    }
}
