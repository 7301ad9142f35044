//! `route get --explain`, of the drivers: what their programs do with a packet to the address.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use fingerpost_io::xdp::forward::reasons::LeftAlone;
use fingerpost_io::xdp::forward::{Fate, Forwarder, Tried};
use fingerpost_packet::wire::checksum::checksum;
use fingerpost_packet::wire::{IP4_BYTES, IP6_BYTES, Ip4Mut, Ip6Mut, Ports, protocol};
use fingerpost_route::fib::KernelLookup;

use super::Daemon;
use super::lookup::Flow;
use crate::api::model::DriverAnswer;

/// Where a packet comes from unless a flow is named: addresses of documentation that hardly a host has.
const SOURCE_V4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 254);
const SOURCE_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xfefe, 0xfefe, 0, 0, 0, 0xfefe);

/// Bytes behind the IP header: as many as the programs look at.
const TRANSPORT: u8 = 26;
const TTL: u8 = 64;

impl Daemon {
    /// What the programs that read a table do with a packet to `addr`: of `flow`, or of any. Interfaces by
    /// whose programs it goes alike are together; none where nothing forwards in drivers.
    pub(super) fn in_drivers(
        &self,
        table: u32,
        addr: IpAddr,
        flow: Option<Flow>,
    ) -> Vec<DriverAnswer> {
        let flow = flow.unwrap_or_else(|| Flow::any(addr));
        self.drivers_with(table, addr, flow.to_string(), &flow.packet())
    }

    /// The same with a packet of the asker's, which is called so.
    pub(super) fn drivers_with(
        &self,
        table: u32,
        addr: IpAddr,
        name: String,
        packet: &[u8],
    ) -> Vec<DriverAnswer> {
        let Some(forwarder) = self.interfaces.forwarder() else { return Vec::new() };
        let Some(at) = self.control.tables().iter().position(|id| *id == table.into()) else {
            return Vec::new();
        };
        let fib = u16::try_from(at).expect("tables are counted in 16 bits");
        let nexthop = answered(forwarder, fib, addr);
        let tried = forwarder.tried(fib, packet).unwrap_or_else(|error| {
            vec![Tried { ports: Vec::new(), fate: Err(error.to_string()) }]
        });
        let one = |tried: Tried| {
            let of = |port: &u16| {
                let link = self.control.links().find(|(_, number, _)| number == port);
                link.map_or_else(|| port.to_string(), |(_, _, state)| state.name.clone())
            };
            let counted = |does, why: LeftAlone| {
                (does, None, Some(why.name().to_owned()), Some(why.summary().to_owned()))
            };
            let (does, adjacency, reason, why) = match tried.fate {
                Ok(Fate::Sent(adjacency)) => ("forward", Some(adjacency), None, None),
                Ok(Fate::Dropped(why)) => counted("drop", why),
                Ok(Fate::Left(why)) => counted("leave", why),
                Err(why) => ("none", None, None, Some(why)),
            };
            DriverAnswer {
                interfaces: tried.ports.iter().map(of).collect(),
                table,
                packet: name.clone(),
                nexthop: if does == "none" { None } else { nexthop },
                does: does.to_owned(),
                adjacency: adjacency.and_then(|index| self.adjacency(index)),
                reason,
                why,
            }
        };
        tried.into_iter().map(one).collect()
    }
}

/// What the programs' lookup answers; `None` where they cannot read the table.
fn answered(forwarder: &Forwarder, fib: u16, addr: IpAddr) -> Option<u32> {
    let hop = match addr {
        IpAddr::V4(addr) => forwarder.v4(fib)?.lookup(addr.to_bits()),
        IpAddr::V6(addr) => forwarder.v6(fib)?.lookup(addr.to_bits()),
    };
    Some(hop.0)
}

impl Flow {
    /// Some flow to `addr`.
    pub(crate) fn any(addr: IpAddr) -> Self {
        let src = if addr.is_ipv4() { SOURCE_V4.into() } else { SOURCE_V6.into() };
        let ports = Some(Ports { src: 1024, dst: 1024 });
        Self { src, dst: addr, protocol: protocol::UDP, ports, label: 0 }
    }

    /// Whether it is one of IPv4.
    pub(crate) fn is_ipv4(&self) -> bool {
        self.dst.is_ipv4()
    }

    /// A packet of it.
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use fingerpost_packet::flow::{of_ip4, of_ip6};

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
}
