//! Samples of packets, and the two protocols that report them to collectors.
//!
//! A worker or the XDP datapath takes a [`Sample`]: where the packet arrived, its length and its first bytes. The control side
//! adds what the route table has of it, which makes a [`FlowSample`], and an [`Exporter`] writes that into datagrams:
//! [`sflow`] (sFlow version 5) or [`ipfix`] (IPFIX, RFC 7011). All of it is plain data: sockets and clocks are the caller's.
//!
//! Limits: what becomes of a packet is what its route does. One that an ACL, a source filter, a policer or uRPF drops is
//!         reported with the egress interface of its route.

use std::net::IpAddr;

use crate::frame::wire::ether::{TAG_BYTES, TYPE_SERVICE_VLAN, TYPE_VLAN};
use crate::frame::wire::{ETHER_BYTES, Ether, Ip4, Ip6};

pub mod ipfix;
pub mod sflow;
mod skip;

pub use skip::Skip;

/// Most bytes of a packet that a sample has.
pub const HEADER_BYTES: usize = 256;

/// Bytes of a datagram to a collector: it fits into an Ethernet frame with every header of IPv6.
const DATAGRAM_BYTES: usize = 1400;

/// A packet as it was sampled.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sample {
    /// Port that it arrived at.
    pub port: u16,
    /// Bytes of the frame, link header included.
    pub frame_len: u32,
    /// Bytes of `header` in use.
    pub header_len: u16,
    /// Beginning of the frame.
    pub header: [u8; HEADER_BYTES],
}

impl Sample {
    /// A sample of a frame that arrived at a port.
    pub fn of(port: u16, frame: &[u8]) -> Self {
        let len = frame.len().min(HEADER_BYTES);
        let mut header = [0; HEADER_BYTES];
        header[..len].copy_from_slice(&frame[..len]);
        let frame_len = u32::try_from(frame.len()).unwrap_or(u32::MAX);
        let header_len = u16::try_from(len).expect("at most HEADER_BYTES");
        Self { port, frame_len, header_len, header }
    }

    /// Beginning of the frame.
    pub fn header(&self) -> &[u8] {
        self.header.get(..self.header_len.into()).unwrap_or(&self.header)
    }
}

/// Offset and EtherType of the network header of a frame, behind its VLAN tags.
pub fn network(frame: &[u8]) -> Option<(usize, u16)> {
    let (mut at, mut kind) = (ETHER_BYTES, Ether::of(frame)?.kind());
    while [TYPE_VLAN, TYPE_SERVICE_VLAN].contains(&kind) {
        kind = u16::from_be_bytes(*frame.get(at + 2..)?.first_chunk()?);
        at += TAG_BYTES;
    }
    Some((at, kind))
}

/// Source and destination of the IP packet in a frame.
pub fn addresses(frame: &[u8]) -> Option<(IpAddr, IpAddr)> {
    let (at, _) = network(frame)?;
    match frame.get(at)? >> 4 {
        4 => Ip4::at(frame, at).map(|ip| (v4(ip.src()), v4(ip.dst()))),
        6 => Ip6::at(frame, at).map(|ip| (v6(ip.src()), v6(ip.dst()))),
        _ => None,
    }
}

fn v4(addr: u32) -> IpAddr {
    IpAddr::V4(addr.into())
}

fn v6(addr: u128) -> IpAddr {
    IpAddr::V6(addr.into())
}

/// An interface that samples its packets, as a report of one sample has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sampler {
    /// Kernel index of the interface.
    pub link: u32,
    /// Sampling rate: one packet in so many.
    pub rate: u32,
    /// Packets that could have been sampled so far.
    pub packets: u64,
    /// Samples that were taken so far, lost ones included.
    pub samples: u64,
    /// Samples that were lost so far.
    pub lost: u64,
}

/// What became of a sampled packet, by the route table at the time of the report.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Egress {
    /// It is not known.
    Unknown,
    /// It left by the interface of this kernel index.
    Link(u32),
    /// It was for the router itself.
    Host,
    /// It was dropped, for a reason by sFlow's numbers: up to 255 the code of an ICMP "destination unreachable".
    Dropped(u16),
}

impl Egress {
    /// Dropped since its TTL or hop limit was used up.
    pub const EXPIRED: Self = Self::Dropped(257);
    /// Dropped without a reason that has a number.
    pub const NO_REASON: Self = Self::Dropped(256);
}

/// What the route table has of a sampled packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Routed {
    /// Address of the next hop; that of the packet's destination where it is on a link.
    pub next_hop: IpAddr,
    /// Length of the prefix that the source is in; 0 without a route.
    pub source_len: u8,
    /// Length of the prefix that the destination is in; 0 without a route.
    pub destination_len: u8,
    /// The AS numbers of source and destination, 0 where one is not known; `None` without a table of them.
    pub as_numbers: Option<[u32; 2]>,
}

/// A sample with all that is reported of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlowSample<'a> {
    /// Who took it.
    pub sampler: Sampler,
    /// Beginning of the frame.
    pub header: &'a [u8],
    /// Bytes of the frame, link header included.
    pub frame_len: u32,
    /// Where it went.
    pub egress: Egress,
    /// Its route; `None` for a packet without addresses, or without a route.
    pub routed: Option<Routed>,
}

/// Counters of an interface, for a report at an interval.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CounterSample {
    /// Kernel index of the interface.
    pub link: u32,
    /// Bits a second; 0 where that is not known.
    pub speed: u64,
    /// It is up, with carrier.
    pub up: bool,
    /// Bytes and packets received.
    pub received: [u64; 2],
    /// Bytes and packets sent.
    pub sent: [u64; 2],
    /// What it samples, where it does.
    pub sampler: Option<Sampler>,
}

/// Time of a report.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Now {
    /// Milliseconds since the program started.
    pub uptime_ms: u32,
    /// Milliseconds since 1970.
    pub unix_ms: u64,
}

impl Now {
    fn unix_s(self) -> u32 {
        // Until 2106, as the protocol has it (RFC 7011 3.1).
        u32::try_from(self.unix_ms / 1000).unwrap_or(u32::MAX)
    }
}

/// Receives each datagram that is ready to be sent.
pub type Send<'a> = &'a mut dyn FnMut(&[u8]);

/// Writes samples into the datagrams of a protocol. A datagram is handed over when the next sample does not fit into it, or
/// by [`Exporter::flush`].
pub trait Exporter: std::marker::Send {
    /// Adds a sample of a packet.
    fn flow(&mut self, sample: &FlowSample<'_>, now: Now, send: Send<'_>);

    /// Adds counters of an interface.
    fn counters(&mut self, sample: &CounterSample, now: Now, send: Send<'_>);

    /// Hands over what is begun.
    fn flush(&mut self, now: Now, send: Send<'_>);
}

/// Appends to a datagram, in network order.
trait Put {
    fn u8(&mut self, value: u8);
    fn u16(&mut self, value: u16);
    fn u32(&mut self, value: u32);
    fn u64(&mut self, value: u64);
    /// The low half of a count, where the protocol has counts of 32 bits, which wrap around.
    fn low(&mut self, value: u64);
}

impl Put for Vec<u8> {
    fn u8(&mut self, value: u8) {
        self.push(value);
    }

    fn u16(&mut self, value: u16) {
        self.extend(value.to_be_bytes());
    }

    fn u32(&mut self, value: u32) {
        self.extend(value.to_be_bytes());
    }

    fn u64(&mut self, value: u64) {
        self.extend(value.to_be_bytes());
    }

    fn low(&mut self, value: u64) {
        self.extend(&value.to_be_bytes()[4..]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{frame_v4, frame_v6};

    #[test]
    fn addresses_are_found_behind_tags() {
        let plain = frame_v4("10.0.0.9", "192.0.2.1", 64, 17, &[0; 30]);
        let want = ("10.0.0.9".parse().unwrap(), "192.0.2.1".parse().unwrap());
        assert_eq!(addresses(&plain), Some(want));
        let mut tagged = plain.clone();
        tagged.splice(12..12, [0x88, 0xa8, 0, 5, 0x81, 0, 0, 7]);
        assert_eq!(addresses(&tagged), Some(want));
        assert_eq!(network(&tagged), Some((22, 0x0800)));
        let six = frame_v6("2001:db8::9", "2001:db8:5::1", 64, 17, &[0; 30]);
        let want = ("2001:db8::9".parse().unwrap(), "2001:db8:5::1".parse().unwrap());
        assert_eq!(addresses(&six), Some(want));
        // What is cut has none.
        assert_eq!(addresses(&plain[..30]), None);
        assert_eq!(addresses(&tagged[..16]), None);
        assert_eq!(addresses(&six[..50]), None);
        assert_eq!(addresses(&[]), None);
    }

    #[test]
    fn a_sample_has_the_beginning_of_its_frame() {
        let long = frame_v4("10.0.0.9", "192.0.2.1", 64, 17, &[7; 1000]);
        let sample = Sample::of(3, &long);
        assert_eq!((sample.port, sample.frame_len, sample.header()), (3, 1034, &long[..256]));
        let short = frame_v4("10.0.0.9", "192.0.2.1", 64, 17, &[7; 10]);
        assert_eq!(Sample::of(3, &short).header(), short);
    }
}
