//! A router to measure: one port in, two out, every next hop of the table a neighbor of its own, half
//! of them on each egress. Built through the control side, as the daemon does it; what it must do is
//! written here once more, from the numbers alone, for the check.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Instant;

use anyhow::{Context, Result, anyhow};
use fingerpost_io::xdp::forward::Forwarder;
use fingerpost_lpm::Addr;
use fingerpost_packet::device::memory::HEADER_BYTES;
use fingerpost_packet::frame::wire::checksum::checksum;
use fingerpost_packet::frame::wire::ether::{TYPE_IP4, TYPE_IP6};
use fingerpost_packet::frame::wire::{
    ETHER_BYTES, Ether, EtherMut, IP4_BYTES, IP6_BYTES, Ip4, Ip4Mut, Ip6, Ip6Mut, protocol,
};
use fingerpost_route::{
    AnyPrefix, Control, ControlOptions, LinkState, LinkUpdate, MAIN_TABLE, Mac, NeighborState,
    NeighborUpdate, Path, RouteEvent, RouteKey, RouteUpdate, Target,
};

use crate::table::{Table, Tables};

/// Kernel indices that the links would have: ingress, and two of egress.
pub(crate) const LINKS: [u32; 3] = [2, 3, 4];

/// TTL or hop limit of the packets that are sent in.
pub(crate) const TTL: u8 = 64;

/// Length of the frames: 64 bytes on the wire, of which 4 are the frame check sequence. The IPv6
/// header and UDP's do not fit into less than 62.
pub(crate) fn frame_len(family: u8) -> u16 {
    if family == 4 { 60 } else { 62 }
}

pub(crate) fn link_mac(link: u32) -> Mac {
    let [.., last] = link.to_be_bytes();
    Mac([2, 0, 0, 0, 0, last])
}

pub(crate) fn hop_mac(family: u8, hop: u32) -> Mac {
    let [a, b, c, d] = hop.to_be_bytes();
    Mac([2, family, a, b, c, d])
}

/// Bit of the next hops behind the ingress.
pub(crate) const BEHIND_INGRESS: u32 = 1 << 20;

pub(crate) fn hop_link(hop: u32) -> u32 {
    if hop & BEHIND_INGRESS != 0 { LINKS[0] } else { LINKS[1 + (hop & 1) as usize] }
}

pub(crate) fn link_name(link: u32) -> String {
    format!("bench{link}")
}

pub(crate) fn hop_addr(family: u8, hop: u32) -> IpAddr {
    if family == 4 {
        Ipv4Addr::from_bits(0x0a00_0000 | hop).into()
    } else {
        Ipv6Addr::from_bits(0xfd00 << 112 | u128::from(hop)).into()
    }
}

/// The path to it.
pub(crate) fn path(family: u8, hop: u32) -> Path {
    Path { gateway: Some(hop_addr(family, hop)), link: Some(hop_link(hop)), weight: 1 }
}

/// Port numbers of the router.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ports {
    pub(crate) input: u16,
    pub(crate) out: [u16; 2],
}

impl Ports {
    /// Port numbers in the order of [`LINKS`].
    pub(crate) fn all(self) -> [u16; 3] {
        let [a, b] = self.out;
        [self.input, a, b]
    }
}

/// Fills a control side with the tables, shared with a forwarder in the kernel if there is one. An
/// algorithm may be named for each family.
pub(crate) fn build(
    tables: &Tables,
    v4: Option<&str>,
    v6: Option<&str>,
    forwarder: Option<&Forwarder>,
) -> Result<(Control, Ports)> {
    let mut control = Control::new(ControlOptions {
        v4: fingerpost_lpm::v4().collect(),
        v6: fingerpost_lpm::v6().collect(),
        connected_from_addresses: true,
    })?;
    for (family, name) in [(4, v4), (6, v6)] {
        control
            .pin_algorithm(family, name)
            .map_err(|known| anyhow!("no such IPv{family} algorithm; there are {known:?}"))?;
    }
    if let Some(forwarder) = forwarder {
        control.share(forwarder.shared(), Box::new(forwarder.clone()))?;
    }
    let source = control.add_source("bench", 20);
    for link in LINKS {
        let state = LinkState {
            name: link_name(link),
            up: true,
            mtu: 1500,
            mac: Some(link_mac(link)),
            ..LinkState::default()
        };
        control.handle(source, RouteEvent::Link(LinkUpdate { link, state: Some(state) }));
    }
    if let Some(table) = &tables.v4 {
        fill(&mut control, source, table, AnyPrefix::V4);
    }
    if let Some(table) = &tables.v6 {
        fill(&mut control, source, table, AnyPrefix::V6);
    }
    control.commit(Instant::now()).context("no algorithm holds the table")?;
    let number = |link| {
        let found = control.links().find(|entry| entry.0 == link);
        found.map(|entry| entry.1).context("a link has a port number")
    };
    let ports = Ports { input: number(LINKS[0])?, out: [number(LINKS[1])?, number(LINKS[2])?] };
    Ok((control, ports))
}

fn fill<A: Addr>(
    control: &mut Control,
    source: fingerpost_route::SourceId,
    table: &Table<A>,
    any: impl Fn(fingerpost_lpm::Prefix<A>) -> AnyPrefix,
) {
    let hops: BTreeSet<u32> =
        (1..=table.nexthops).chain(table.routes.iter().map(|r| r.1)).collect();
    for hop in hops {
        let (link, addr) = (hop_link(hop), hop_addr(A::FAMILY, hop));
        let state = NeighborState::Reachable(hop_mac(A::FAMILY, hop));
        control.handle(source, RouteEvent::Neighbor(NeighborUpdate { link, addr, state }));
    }
    for &(prefix, hop) in &table.routes {
        let path = path(A::FAMILY, hop);
        let key = RouteKey { table: MAIN_TABLE, prefix: any(prefix), metric: 0 };
        let update = RouteUpdate::new(key, Target::Path(path));
        control.handle(source, RouteEvent::Route(update));
    }
}

/// The beginning of a UDP packet to `dst`, received on the ingress port.
pub(crate) fn header<A: Addr>(dst: A, flow: u16) -> [u8; HEADER_BYTES] {
    let mut frame = [0; HEADER_BYTES];
    let room = "a header has 64 bytes";
    let mut ether = EtherMut::of(&mut frame).expect(room);
    ether.set_addrs(link_mac(LINKS[0]), Mac([2, 9, 9, 9, 9, 9]));
    ether.set_kind(if A::FAMILY == 4 { TYPE_IP4 } else { TYPE_IP6 });
    let len = frame_len(A::FAMILY) - 14;
    let transport = if A::FAMILY == 4 {
        let mut ip = Ip4Mut::at(&mut frame, ETHER_BYTES).expect(room);
        ip.set_header_len(20);
        ip.set_total_len(len);
        ip.set_ttl(TTL);
        ip.set_protocol(protocol::UDP);
        ip.set_src(0xc633_6409);
        ip.set_dst(match dst.to_ip() {
            IpAddr::V4(dst) => dst.to_bits(),
            IpAddr::V6(_) => 0,
        });
        let sum = checksum(&frame[ETHER_BYTES..ETHER_BYTES + IP4_BYTES]);
        Ip4Mut::at(&mut frame, ETHER_BYTES).expect(room).set_checksum(sum);
        ETHER_BYTES + IP4_BYTES
    } else {
        let mut ip = Ip6Mut::at(&mut frame, ETHER_BYTES).expect(room);
        ip.set_first(0, 0);
        ip.set_payload_len(len - 40);
        ip.set_next_header(protocol::UDP);
        ip.set_hop_limit(TTL);
        ip.set_src(0x2001_0db8 << 96 | 9);
        ip.set_dst(dst.to_u128());
        ETHER_BYTES + 40
    };
    frame[transport..transport + 2].copy_from_slice(&flow.to_be_bytes());
    frame[transport + 2..transport + 4].copy_from_slice(&9u16.to_be_bytes());
    frame
}

/// Sets the UDP destination port of a header.
pub(crate) fn set_port(header: &mut [u8; HEADER_BYTES], family: u8, port: u16) {
    let at = ETHER_BYTES + if family == 4 { IP4_BYTES } else { IP6_BYTES } + 2;
    header[at..at + 2].copy_from_slice(&port.to_be_bytes());
}

/// Sets the source address of a header, with its checksum.
pub(crate) fn set_source<A: Addr>(frame: &mut [u8; HEADER_BYTES], source: A) {
    let room = "a header has 64 bytes";
    if A::FAMILY == 4 {
        let mut ip = Ip4Mut::at(frame, ETHER_BYTES).expect(room);
        ip.set_src(u32::try_from(source.to_u128()).expect("an IPv4 address"));
        ip.set_checksum(0);
        let sum = checksum(&frame[ETHER_BYTES..ETHER_BYTES + IP4_BYTES]);
        Ip4Mut::at(frame, ETHER_BYTES).expect(room).set_checksum(sum);
    } else {
        Ip6Mut::at(frame, ETHER_BYTES).expect(room).set_src(source.to_u128());
    }
}

/// Whether a frame has the link addresses that it must have when its next hop is `hop`.
pub(crate) fn is_to(frame: &[u8], hop: u32, family: u8) -> bool {
    Ether::of(frame).is_some_and(|ether| {
        ether.dst() == hop_mac(family, hop) && ether.src() == link_mac(hop_link(hop))
    })
}

/// Where a frame that left goes, if it is as it must be when its next hop is `hop`.
pub(crate) fn check<A: Addr>(frame: &[u8], hop: u32) -> bool {
    let link = is_to(frame, hop, A::FAMILY);
    let ip = if A::FAMILY == 4 {
        frame.get(ETHER_BYTES..ETHER_BYTES + IP4_BYTES).is_some_and(|header| {
            checksum(header) == 0
                && Ip4::at(frame, ETHER_BYTES).is_some_and(|ip| ip.ttl() == TTL - 1)
        })
    } else {
        Ip6::at(frame, ETHER_BYTES).is_some_and(|ip| ip.hop_limit() == TTL - 1)
    };
    link && ip
}

/// Index of the egress of a hop.
pub(crate) fn egress_of(hop: u32) -> usize {
    (hop & 1) as usize
}

/// The destination of a frame.
pub(crate) fn destination<A: Addr>(frame: &[u8]) -> Option<A> {
    if A::FAMILY == 4 {
        Some(A::from_u128(Ip4::at(frame, ETHER_BYTES)?.dst().into()))
    } else {
        Some(A::from_u128(Ip6::at(frame, ETHER_BYTES)?.dst()))
    }
}
