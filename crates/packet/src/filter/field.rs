//! What filters look at in an IP packet: a word a field, there or not.
//!
//! A field is there when the packet's family and protocol have it, and the packet is long enough. Fields of
//! the transport header are there in whole packets and first fragments only; those behind IPv6 extension
//! headers are found by walking them.

use super::Family;
use super::boxes::{Key, WORDS, word};
use super::program::Loaded;
use crate::frame::wire::icmp::{PROTOCOL_ICMP, PROTOCOL_ICMPV6, upper_layer};
use crate::frame::wire::ip4::FRAGMENT_OFFSET;
use crate::frame::wire::{IP4_BYTES, IP6_BYTES, Ip4, Ip6, Ports, protocol};

/// A field.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Field {
    /// 4 or 6.
    Version,
    /// Length of an IPv4 header, in words of 4 bytes.
    HeaderWords,
    /// DSCP and ECN.
    TrafficClass,
    /// Length of the whole packet, as it states it.
    Len,
    /// A field of IPv4.
    Id,
    /// Or hop limit.
    Ttl,
    /// 1 when it is a fragment, 0 when not.
    Fragment,
    /// 1 when it is a fragment other than the first, 0 when not.
    Later,
    /// The protocol behind extension headers.
    Protocol,
    Src4,
    Dst4,
    /// One of four words, the first of which is 0.
    Src6(u8),
    Dst6(u8),
    /// A field of TCP and UDP.
    SrcPort,
    DstPort,
    /// A field of ICMP and ICMPv6.
    IcmpType,
    /// The byte of flags.
    TcpFlags,
    /// One to four bytes at an offset.
    At(Layer, u16, u8),
}

impl Field {
    /// Whether IPv6 headers alone have it.
    pub(super) fn is_v6(self) -> bool {
        matches!(self, Self::Src6(_) | Self::Dst6(_) | Self::At(Layer::V6, ..))
    }

    /// Whether it is of the Ethernet header.
    pub(super) fn is_link(self) -> bool {
        matches!(self, Self::At(Layer::Link, ..))
    }
}

/// What an offset counts from.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Layer {
    /// The Ethernet header.
    Link,
    /// The IPv4 header.
    V4,
    /// The IPv6 header.
    V6,
    /// The transport header, whatever the protocol.
    Transport,
}

/// A packet, taken apart.
pub(super) struct Headers<'a> {
    ip: Ip<'a>,
    /// The packet without what is behind its stated length.
    packet: &'a [u8],
    protocol: Option<u8>,
    fragment: bool,
    /// A fragment other than the first.
    later: bool,
    /// Empty where there is none.
    transport: &'a [u8],
    /// The Ethernet header, where it is known.
    link: &'a [u8],
}

enum Ip<'a> {
    V4(Ip4<'a>),
    V6(Ip6<'a>),
    Neither,
}

impl<'a> Headers<'a> {
    /// The values of a packet from its IP header on; what is behind its stated length does not count.
    #[inline]
    pub(super) fn of(packet: &'a [u8]) -> Self {
        match packet.first().map_or(0, |first| first >> 4) {
            4 => Ip4::at(packet, 0).map(|ip| Self::v4(ip, packet)),
            6 => Ip6::at(packet, 0).map(|ip| Self::v6(ip, packet)),
            _ => None,
        }
        .unwrap_or(Self {
            ip: Ip::Neither,
            packet: &[],
            protocol: None,
            fragment: false,
            later: false,
            transport: &[],
            link: &[],
        })
    }

    #[inline]
    fn v4(ip: Ip4<'a>, packet: &'a [u8]) -> Self {
        let end = ip.total_len().min(packet.len());
        let later = ip.fragment() & FRAGMENT_OFFSET != 0;
        let first = !later && ip.header_len() >= IP4_BYTES;
        let transport = packet.get(ip.header_len()..end).filter(|_| first).unwrap_or_default();
        let (protocol, fragment) = (Some(ip.protocol()), ip.is_fragment());
        Self {
            ip: Ip::V4(ip),
            packet: &packet[..end],
            protocol,
            fragment,
            later,
            transport,
            link: &[],
        }
    }

    #[inline]
    fn v6(ip: Ip6<'a>, packet: &'a [u8]) -> Self {
        let packet = &packet[..packet.len().min(IP6_BYTES + ip.payload_len())];
        let upper = upper_layer(packet);
        let fragment = upper.and_then(|upper| upper.fragment);
        let later = fragment.is_some_and(|offset| offset != 0);
        let first = upper.filter(|_| !later);
        let transport = first.and_then(|upper| packet.get(upper.at..)).unwrap_or_default();
        let protocol = upper.map(|upper| upper.protocol);
        let fragment = fragment.is_some();
        Self { ip: Ip::V6(ip), packet, protocol, fragment, later, transport, link: &[] }
    }

    /// Headers of this packet behind this Ethernet header.
    #[inline]
    pub(super) fn behind(self, link: &'a [u8]) -> Self {
        Self { link, ..self }
    }

    /// The packet's family and key; `None` without a whole IP header.
    #[inline]
    pub(super) fn key(&self) -> Option<(Family, Key)> {
        let mut key = [0; WORDS];
        let family = match &self.ip {
            Ip::V4(ip) => {
                (key[word::SRC], key[word::DST]) = (ip.src(), ip.dst());
                key[word::TRAFFIC_CLASS] = ip.traffic_class().into();
                key[word::LEN] = u32::try_from(ip.total_len()).ok()?;
                Family::V4
            }
            Ip::V6(ip) => {
                let (src, dst) = (ip.src(), ip.dst());
                (key[word::SRC], key[word::DST]) = (part(src, 0), part(dst, 0));
                for n in 0..3_u8 {
                    key[word::SRC_REST + usize::from(n)] = part(src, n + 1);
                    key[word::DST_REST + usize::from(n)] = part(dst, n + 1);
                }
                key[word::TRAFFIC_CLASS] = ip.traffic_class().into();
                key[word::LEN] = u32::try_from(IP6_BYTES + ip.payload_len()).ok()?;
                Family::V6
            }
            Ip::Neither => return None,
        };
        key[word::PROTOCOL] = self.protocol.map_or(word::NO_PROTOCOL, u32::from);
        (key[word::SRC_PORT], key[word::DST_PORT]) = match (self.ports(), self.icmp_type()) {
            (Some(ports), _) => (ports.src.into(), ports.dst.into()),
            (None, Some(kind)) => (word::ICMP + u32::from(kind), word::NO_PORT),
            (None, None) => (word::NO_PORT, word::NO_PORT),
        };
        let flags = self.tcp_flags().map_or(word::NO_FLAGS, u32::from);
        let fragment = if self.fragment { word::FRAGMENT } else { 0 };
        let later = if self.later { word::LATER } else { 0 };
        key[word::FLAGS] = flags | fragment | later;
        Some((family, key))
    }

    /// A field of it.
    #[inline]
    pub(super) fn load(&self, field: Field) -> Loaded {
        match self.field(field) {
            Some(word) => Loaded { word, there: u32::MAX },
            None => Loaded { word: 0, there: 0 },
        }
    }

    #[inline]
    fn field(&self, field: Field) -> Option<u32> {
        Some(match (field, &self.ip) {
            (Field::At(Layer::Link, at, len), _) => bytes_at(self.link, at, len)?,
            (_, Ip::Neither) => return None,
            (Field::Version, Ip::V4(_)) => 4,
            (Field::Version, Ip::V6(_)) => 6,
            (Field::HeaderWords, Ip::V4(ip)) => u32::try_from(ip.header_len() / 4).ok()?,
            (Field::TrafficClass, Ip::V4(ip)) => ip.traffic_class().into(),
            (Field::TrafficClass, Ip::V6(ip)) => ip.traffic_class().into(),
            (Field::Len, Ip::V4(ip)) => u32::try_from(ip.total_len()).ok()?,
            (Field::Len, Ip::V6(ip)) => u32::try_from(IP6_BYTES + ip.payload_len()).ok()?,
            (Field::Id, Ip::V4(ip)) => ip.id().into(),
            (Field::Ttl, Ip::V4(ip)) => ip.ttl().into(),
            (Field::Ttl, Ip::V6(ip)) => ip.hop_limit().into(),
            (Field::Fragment, _) => self.fragment.into(),
            (Field::Later, _) => self.later.into(),
            (Field::Protocol, _) => self.protocol?.into(),
            (Field::Src4, Ip::V4(ip)) => ip.src(),
            (Field::Dst4, Ip::V4(ip)) => ip.dst(),
            (Field::Src6(n), Ip::V6(ip)) => part(ip.src(), n),
            (Field::Dst6(n), Ip::V6(ip)) => part(ip.dst(), n),
            (Field::SrcPort, _) => self.ports()?.src.into(),
            (Field::DstPort, _) => self.ports()?.dst.into(),
            (Field::IcmpType, _) => self.icmp_type()?.into(),
            (Field::TcpFlags, _) => self.tcp_flags()?.into(),
            (Field::At(Layer::V4, at, len), Ip::V4(_))
            | (Field::At(Layer::V6, at, len), Ip::V6(_)) => bytes_at(self.packet, at, len)?,
            (Field::At(Layer::Transport, at, len), _) => bytes_at(self.transport, at, len)?,
            (
                Field::HeaderWords
                | Field::Id
                | Field::Src4
                | Field::Dst4
                | Field::Src6(_)
                | Field::Dst6(_)
                | Field::At(..),
                _,
            ) => return None,
        })
    }

    #[inline]
    fn ports(&self) -> Option<Ports> {
        let protocol = self.protocol.filter(|p| matches!(*p, protocol::TCP | protocol::UDP))?;
        Ports::of(protocol, self.transport)
    }

    #[inline]
    fn tcp_flags(&self) -> Option<u8> {
        let tcp = self.protocol == Some(protocol::TCP);
        self.transport.get(13).copied().filter(|_| tcp)
    }

    #[inline]
    fn icmp_type(&self) -> Option<u8> {
        let protocol = self.protocol?;
        let icmp = matches!(protocol, PROTOCOL_ICMP | PROTOCOL_ICMPV6);
        self.transport.first().copied().filter(|_| icmp)
    }
}

/// One to four bytes as a number.
fn bytes_at(bytes: &[u8], at: u16, len: u8) -> Option<u32> {
    let at = usize::from(at);
    let bytes = bytes.get(at..at + usize::from(len))?;
    Some(bytes.iter().fold(0, |word, &byte| word << 8 | u32::from(byte)))
}

/// One of the four words of an IPv6 address, the first of which is 0.
#[allow(clippy::cast_possible_truncation, reason = "takes a word of four")]
pub(super) fn part(addr: u128, n: u8) -> u32 {
    (addr >> (96 - 32 * u32::from(n))) as u32
}
