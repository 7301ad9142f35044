//! A packet as elements read it that want more than a header: its IPv4 packet, transport header and payload, and its
//! annotations.

use super::annotations::Annotations;
use crate::frame::Batch;
use crate::frame::wire::icmp::PROTOCOL_ICMP;
use crate::frame::wire::ip4::FRAGMENT_OFFSET;
use crate::frame::wire::protocol::{TCP, UDP};
use crate::frame::wire::{IP4_BYTES, Ip4};

/// A packet, as fields are read from it.
#[derive(Clone, Copy)]
pub(crate) struct Seen<'a> {
    /// The whole frame.
    pub(crate) frame: &'a [u8],
    /// Where the network header is.
    pub(crate) network: usize,
    /// Its color.
    pub(crate) paint: u8,
    /// Its annotations.
    pub(crate) annotations: Annotations,
}

impl<'a> Seen<'a> {
    /// Packet `i` of a batch.
    pub(crate) fn packet(batch: &'a Batch, i: usize) -> Self {
        let meta = batch.meta()[i];
        Self {
            frame: batch.bytes(i),
            network: meta.network.into(),
            paint: meta.paint,
            annotations: Annotations::of(batch, i),
        }
    }

    /// A frame without annotations.
    pub(crate) fn bare(frame: &'a [u8], network: usize) -> Self {
        Self { frame, network, paint: 0, annotations: Annotations::default() }
    }

    /// The packet from its IPv4 header on, as long as it states.
    pub(crate) fn ip(&self) -> Option<&'a [u8]> {
        let packet = self.frame.get(self.network..)?;
        let header = Ip4::at(packet, 0).filter(|header| header.version() == 4)?;
        Some(&packet[..packet.len().min(header.total_len().max(IP4_BYTES))])
    }

    /// Its transport header, of a protocol, where it is no later fragment.
    pub(crate) fn transport(&self) -> Option<(u8, &'a [u8])> {
        let ip = self.ip()?;
        let header = Ip4::at(ip, 0).filter(|header| header.fragment() & FRAGMENT_OFFSET == 0)?;
        ip.get(header.header_len()..).map(|transport| (header.protocol(), transport))
    }

    /// Its transport header, where it is of this protocol.
    pub(crate) fn of(&self, protocol: u8) -> Option<&'a [u8]> {
        self.transport().filter(|(found, _)| *found == protocol).map(|(_, transport)| transport)
    }

    /// What is behind the transport header, or behind the network header.
    pub(crate) fn payload(&self) -> Option<&'a [u8]> {
        let ip = self.ip()?;
        let Some((protocol, transport)) = self.transport() else {
            return ip.get(Ip4::at(ip, 0)?.header_len()..);
        };
        let header = match protocol {
            TCP => usize::from(transport.get(12)? >> 4) * 4,
            UDP | PROTOCOL_ICMP => 8,
            _ => 0,
        };
        Some(transport.get(header..).unwrap_or_default())
    }
}

/// Two bytes of a header.
pub(crate) fn word(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().copied().map(u16::from_be_bytes)
}

/// Four bytes of a header.
pub(crate) fn long(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().copied().map(u32::from_be_bytes)
}
