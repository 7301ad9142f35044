//! Flows: their text form, their hash, and a packet of each.
//!
//! Used where a packet is made up: `route get --flow`, `why`, and the handler `why` of a graph of a file.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use fingerpost_packet::frame::flow::{hash_v4, hash_v6};
use fingerpost_packet::frame::wire::checksum::checksum;
use fingerpost_packet::frame::wire::{
    ETHER_BYTES, Ether, IP4_BYTES, IP6_BYTES, Ip4, Ip4Mut, Ip6, Ip6Mut, Ports, ether, protocol,
};

/// Source address of a flow to an address alone: an address of documentation, which hardly a host has.
const SOURCE_V4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 254);
const SOURCE_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xfefe, 0xfefe, 0, 0, 0, 0xfefe);

/// Bytes after the IP header: as many as the XDP programs read.
const TRANSPORT: u8 = 26;
const TTL: u8 = 64;

/// A flow: the 5-tuple of its packets, and the IPv6 flow label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Flow {
    pub(crate) src: IpAddr,
    pub(crate) dst: IpAddr,
    pub(crate) protocol: u8,
    pub(crate) ports: Option<Ports>,
    pub(crate) label: u32,
}

/// Names of protocols.
const PROTOCOLS: [(&str, u8); 6] = [
    ("tcp", protocol::TCP),
    ("udp", protocol::UDP),
    ("sctp", protocol::SCTP),
    ("dccp", protocol::DCCP),
    ("icmp", 1),
    ("icmpv6", 58),
];

impl Flow {
    /// Parses `SRC,DST,PROTOCOL[,SPORT,DPORT[,LABEL]]`, a flow to `addr`.
    ///
    /// # Errors
    /// A message that names the wrong part.
    pub(crate) fn parse(text: &str, addr: IpAddr) -> Result<Self, String> {
        let parts: Vec<&str> = text.split(',').map(str::trim).collect();
        let (src, dst, protocol, ports, label) = match parts[..] {
            [src, dst, protocol] => (src, dst, protocol, None, None),
            [src, dst, protocol, sport, dport] => (src, dst, protocol, Some((sport, dport)), None),
            [src, dst, protocol, sport, dport, label] => {
                (src, dst, protocol, Some((sport, dport)), Some(label))
            }
            _ => return Err(format!("`{text}`: SRC,DST,PROTOCOL,SPORT,DPORT is needed")),
        };
        let ip = |text: &str| text.parse::<IpAddr>().map_err(|_| format!("`{text}` is no address"));
        let (src, dst) = (ip(src)?, ip(dst)?);
        if dst != addr {
            return Err(format!("the flow goes to {dst}, not to {addr}"));
        }
        if src.is_ipv4() != dst.is_ipv4() {
            return Err(format!("{src} and {dst} are not of one family"));
        }
        let named = PROTOCOLS.iter().find(|(name, _)| name.eq_ignore_ascii_case(protocol));
        let number = named.map(|(_, number)| *number).or_else(|| protocol.parse().ok());
        let number = number.ok_or_else(|| format!("`{protocol}` is no protocol: tcp, udp, 47"))?;
        let port = |text: &str| text.parse::<u16>().map_err(|_| format!("`{text}` is no port"));
        let ports = match ports {
            Some((src, dst)) => Some(Ports { src: port(src)?, dst: port(dst)? }),
            None => None,
        };
        let label = match label {
            Some(text) => text.parse().map_err(|_| format!("`{text}` is no flow label"))?,
            None => 0,
        };
        Ok(Self { src, dst, protocol: number, ports, label })
    }

    /// Flow hash of its packets in workers with this seed.
    pub(crate) fn hash(self, seed: u64) -> u32 {
        match (self.src, self.dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                hash_v4(seed, src.to_bits(), dst.to_bits(), self.protocol, self.ports)
            }
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                let (src, dst) = (src.to_bits(), dst.to_bits());
                hash_v6(seed, src, dst, self.label, self.protocol, self.ports)
            }
            _ => unreachable!("parsing makes sure that both are of one family"),
        }
    }

    /// Some flow to `addr`, from an address of documentation.
    pub(crate) fn any(addr: IpAddr) -> Self {
        let src = if addr.is_ipv4() { SOURCE_V4.into() } else { SOURCE_V6.into() };
        let ports = Some(Ports { src: 1024, dst: 1024 });
        Self { src, dst: addr, protocol: protocol::UDP, ports, label: 0 }
    }

    /// Whether it is a flow of IPv4.
    pub(crate) fn is_ipv4(&self) -> bool {
        self.dst.is_ipv4()
    }

    /// Packet of the flow, from its IP header on.
    pub(crate) fn packet(&self) -> Vec<u8> {
        let mut transport = [0; TRANSPORT as usize];
        if let Some(ports) = self.ports {
            transport[..2].copy_from_slice(&ports.src.to_be_bytes());
            transport[2..4].copy_from_slice(&ports.dst.to_be_bytes());
        }
        if self.protocol == protocol::UDP {
            transport[4..6].copy_from_slice(&u16::from(TRANSPORT).to_be_bytes());
        }
        match (self.src, self.dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                let mut packet = [&[0; IP4_BYTES][..], &transport].concat();
                let total = u16::try_from(packet.len()).expect("a short packet");
                let mut ip = Ip4Mut::at(&mut packet, 0).expect("there is room for a header");
                ip.set_header_len(20);
                ip.set_total_len(total);
                ip.set_ttl(TTL);
                ip.set_protocol(self.protocol);
                ip.set_src(src.to_bits());
                ip.set_dst(dst.to_bits());
                let sum = checksum(&packet[..IP4_BYTES]);
                Ip4Mut::at(&mut packet, 0).expect("as before").set_checksum(sum);
                packet
            }
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                let mut packet = [&[0; IP6_BYTES][..], &transport].concat();
                let mut ip = Ip6Mut::at(&mut packet, 0).expect("there is room for a header");
                ip.set_first(0, self.label);
                ip.set_payload_len(TRANSPORT.into());
                ip.set_next_header(self.protocol);
                ip.set_hop_limit(TTL);
                ip.set_src(src.to_bits());
                ip.set_dst(dst.to_bits());
                packet
            }
            _ => unreachable!("parsing makes sure that both are of one family"),
        }
    }

    /// Flow of an Ethernet frame; `None` where it holds no IP packet.
    pub(crate) fn of_frame(frame: &[u8]) -> Option<Self> {
        let packet = frame.get(ETHER_BYTES..)?;
        match Ether::of(frame)?.kind() {
            ether::TYPE_IP4 => {
                let ip = Ip4::at(packet, 0)?;
                let transport = packet.get(ip.header_len()..).unwrap_or_default();
                let ports = Ports::of(ip.protocol(), transport).filter(|_| !ip.is_fragment());
                let (src, dst) = (IpAddr::V4(ip.src().into()), IpAddr::V4(ip.dst().into()));
                Some(Self { src, dst, protocol: ip.protocol(), ports, label: 0 })
            }
            ether::TYPE_IP6 => {
                let ip = Ip6::at(packet, 0)?;
                let ports = Ports::of(ip.next_header(), packet.get(40..).unwrap_or_default());
                let (src, dst) = (IpAddr::V6(ip.src().into()), IpAddr::V6(ip.dst().into()));
                let (protocol, label) = (ip.next_header(), ip.flow_label());
                // A label can only be named behind ports.
                let ports =
                    if label == 0 { ports } else { ports.or(Some(Ports { src: 0, dst: 0 })) };
                Some(Self { src, dst, protocol, ports, label })
            }
            _ => None,
        }
    }
}

/// The form that [`Flow::parse`] reads.
impl fmt::Display for Flow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{},{},", self.src, self.dst)?;
        match PROTOCOLS.iter().find(|(_, number)| *number == self.protocol) {
            Some((name, _)) => f.write_str(name)?,
            None => write!(f, "{}", self.protocol)?,
        }
        if let Some(ports) = self.ports {
            write!(f, ",{},{}", ports.src, ports.dst)?;
        }
        if self.label != 0 { write!(f, ",{}", self.label) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fingerpost_packet::frame::flow::{of_ip4, of_ip6};

    fn parse(text: &str) -> Result<Flow, String> {
        let addr = text.split(',').nth(1).unwrap_or("::").trim().parse();
        Flow::parse(text, addr.unwrap_or(IpAddr::from([0; 4])))
    }

    #[test]
    fn a_named_flow_hashes_as_its_packets_do() {
        let flow = parse("10.0.1.2,10.0.2.2,udp,1024,53").unwrap();
        let mut packet = vec![0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0];
        packet.extend([10, 0, 1, 2, 10, 0, 2, 2, 4, 0, 0, 53, 0, 8, 0, 0]);
        assert_eq!(flow.hash(7), of_ip4(7, &packet));
        assert_eq!(parse("10.0.1.2, 10.0.2.2, 17, 1024, 53"), Ok(flow));
        let label = parse("fd01::2,fd02::2,TCP,1,2,7").unwrap();
        assert_ne!(label.hash(7), Flow { label: 0, ..label }.hash(7));
    }

    #[test]
    fn errors_name_what_is_needed() {
        for (text, words) in [
            ("10.0.0.1", "SRC,DST,PROTOCOL,SPORT,DPORT is needed"),
            ("10.0.0.1,10.0.0.2,udp,1", "SRC,DST,PROTOCOL,SPORT,DPORT is needed"),
            ("10.0.0.1,fd00::1,udp,1,2", "are not of one family"),
            ("x,10.0.0.2,udp,1,2", "`x` is no address"),
            ("10.0.0.1,10.0.0.2,ucp,1,2", "`ucp` is no protocol"),
            ("10.0.0.1,10.0.0.2,udp,1,65536", "`65536` is no port"),
            ("fd00::1,fd00::2,udp,1,2,x", "`x` is no flow label"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(words), "{text}: {error}");
        }
        let other = Flow::parse("10.0.0.1,10.0.0.2,6", "10.0.0.3".parse().unwrap()).unwrap_err();
        assert_eq!(other, "the flow goes to 10.0.0.2, not to 10.0.0.3");
    }

    #[test]
    fn packets_are_those_of_their_flow() {
        const SEED: u64 = 7;
        for text in ["10.0.1.2,10.0.2.2,udp,1024,53", "10.0.1.2,10.0.2.2,47"] {
            let flow = Flow::parse(text, "10.0.2.2".parse().unwrap()).unwrap();
            let packet = flow.packet();
            assert_eq!(checksum(&packet[..IP4_BYTES]), 0);
            let want = (flow.hash(SEED), text.to_owned());
            assert_eq!((of_ip4(SEED, &packet), flow.to_string()), want);
        }
        for text in ["fd01::2,fd02::2,tcp,1,2,7", "fd01::2,fd02::2,tcp,1,2"] {
            let flow = Flow::parse(text, "fd02::2".parse().unwrap()).unwrap();
            assert_eq!(of_ip6(SEED, &flow.packet()), flow.hash(SEED));
            assert_eq!(flow.to_string(), text);
        }
        let any = Flow::any("10.0.2.2".parse().unwrap());
        assert_eq!(any.to_string(), "192.0.2.254,10.0.2.2,udp,1024,1024");
    }

    #[test]
    fn the_flow_of_a_frame_is_that_of_its_packet() {
        for text in
            ["10.0.1.2,10.0.2.2,udp,1024,53", "fd01::2,fd02::2,tcp,1,2,7", "10.0.1.2,10.0.2.2,icmp"]
        {
            let dst = text.split(',').nth(1).unwrap().parse().unwrap();
            let flow = Flow::parse(text, dst).unwrap();
            let kind = if dst.is_ipv4() { ether::TYPE_IP4 } else { ether::TYPE_IP6 };
            let frame = [&[0; 12][..], &kind.to_be_bytes(), &flow.packet()].concat();
            assert_eq!(Flow::of_frame(&frame), Some(flow), "{text}");
        }
    }
}
