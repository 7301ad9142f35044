//! `FastUDPSource(RATE, LIMIT, LENGTH, SRCETH, SRCIP, SPORT, DSTETH, DSTIP, DPORT)` makes the same UDP packet again and
//! again, in an Ethernet frame; `FastUDPSourceIP6` is the same for IPv6.
//!
//! Source: Click's elements of these names. `LENGTH` counts the Ethernet header and its checksum, and is 60 at least. A
//! rate of 0 is as fast as they are pulled, a limit below 0 none. `CHECKSUM` and `ACTIVE` are true unless given;
//! `INTERVAL` changes nothing.

use std::net::{Ipv4Addr, Ipv6Addr};

use fingerpost_route::Mac;

use super::checksums::fill_checksums;
use crate::element::click::source;
use crate::element::support::allowance::{Allowance, Rate};
use crate::filter::names::Port;
use crate::frame::wire::checksum::pseudo_v6;
use crate::frame::wire::ether::TYPE_IP6;
use crate::frame::wire::protocol::UDP;
use crate::frame::wire::{ETHER_BYTES, EtherMut, IP4_BYTES, IP6_BYTES, Ip6Mut};
use crate::graph::{ElementClass, Made, Setup};
use crate::language::{ClassSpec, ConfigError, Value};

pub(crate) const V4: ElementClass = ElementClass {
    spec: ClassSpec::new("FastUDPSource", "0/1", "h/a", "x/y"),
    summary: "makes the same UDP packet again and again",
    configure: |setup| configure::<Ipv4Addr>(setup, ["SRCIP", "DSTIP"], IP4_BYTES, v4),
};

pub(crate) const V6: ElementClass = ElementClass {
    spec: ClassSpec::new("FastUDPSourceIP6", "0/1", "h/a", "x/y"),
    summary: "makes the same UDP packet over IPv6 again and again",
    configure: |setup| configure::<Ipv6Addr>(setup, ["SRCIP6", "DSTIP6"], IP6_BYTES, v6),
};

/// Bytes of the checksum that a link adds.
const CRC_BYTES: usize = 4;

struct Ends<A> {
    addrs: [A; 2],
    ports: [u16; 2],
    checksum: bool,
}

fn configure<A: Value>(
    setup: &mut Setup<'_>,
    names: [&'static str; 2],
    header_bytes: usize,
    write: fn(&mut [u8], &Ends<A>),
) -> Result<Made, ConfigError> {
    let rate = setup.args.positional::<u32>("RATE");
    let limit = setup.args.positional::<i64>("LIMIT");
    let length = setup.args.positional::<usize>("LENGTH");
    let src_mac = setup.args.positional::<Mac>("SRCETH");
    let src = setup.args.positional::<A>(names[0]);
    let sport = setup.args.positional::<Port>("SPORT");
    let dst_mac = setup.args.positional::<Mac>("DSTETH");
    let dst = setup.args.positional::<A>(names[1]);
    let dport = setup.args.positional::<Port>("DPORT");
    let checksum = setup.args.optional("CHECKSUM");
    let interval = setup.args.optional::<u32>("INTERVAL");
    let active = setup.args.optional("ACTIVE");
    setup.args.finish()?;
    interval?;
    let ends = Ends {
        addrs: [src?, dst?],
        ports: [sport?.0, dport?.0],
        checksum: checksum?.unwrap_or(true),
    };
    let length = length?;
    if !(60..=1518).contains(&length) {
        return Err(setup.args.refuse_all("LENGTH: 60 to 1518 are possible"));
    }
    let mut frame = vec![0; (length - CRC_BYTES).max(ETHER_BYTES + header_bytes + 8)];
    if let Some(mut ether) = EtherMut::of(&mut frame) {
        ether.set_addrs(dst_mac?, src_mac?);
    }
    write(&mut frame, &ends);
    let (limit, active) = (u32::try_from(limit?).ok(), active?.unwrap_or(true));
    let rate = match rate? {
        0 => None,
        rate => Some(Allowance::of(Rate::of_packets(rate.into()))),
    };
    Ok(source::of_bytes(setup, &frame, limit, active, rate))
}

fn v4(frame: &mut [u8], ends: &Ends<Ipv4Addr>) {
    frame[12..14].copy_from_slice(&[8, 0]);
    let ip = &mut frame[ETHER_BYTES..];
    let length = u16::try_from(ip.len()).unwrap_or(u16::MAX);
    ip[0] = 0x45;
    ip[2..4].copy_from_slice(&length.to_be_bytes());
    // Click's TTL.
    (ip[8], ip[9]) = (250, UDP);
    ip[12..16].copy_from_slice(&ends.addrs[0].octets());
    ip[16..20].copy_from_slice(&ends.addrs[1].octets());
    ip[20..22].copy_from_slice(&ends.ports[0].to_be_bytes());
    ip[22..24].copy_from_slice(&ends.ports[1].to_be_bytes());
    ip[24..26].copy_from_slice(&(length - 20).to_be_bytes());
    fill_checksums(ip);
    if !ends.checksum {
        ip[26..28].fill(0);
    }
}

fn v6(frame: &mut [u8], ends: &Ends<Ipv6Addr>) {
    if let Some(mut ether) = EtherMut::of(frame) {
        ether.set_kind(TYPE_IP6);
    }
    let ip = &mut frame[ETHER_BYTES..];
    let length = u16::try_from(ip.len() - IP6_BYTES).unwrap_or(u16::MAX);
    if let Some(mut header) = Ip6Mut::at(ip, 0) {
        header.set_first(0, 0);
        header.set_payload_len(length);
        header.set_next_header(UDP);
        header.set_hop_limit(250);
        header.set_src(ends.addrs[0].to_bits());
        header.set_dst(ends.addrs[1].to_bits());
    }
    let udp = &mut ip[IP6_BYTES..];
    udp[..2].copy_from_slice(&ends.ports[0].to_be_bytes());
    udp[2..4].copy_from_slice(&ends.ports[1].to_be_bytes());
    udp[4..6].copy_from_slice(&length.to_be_bytes());
    // UDP over IPv6 always has one.
    let [src, dst] = ends.addrs.map(|addr| addr.octets());
    let sum = pseudo_v6(&src, &dst, UDP, length.into()).bytes(udp).finish();
    udp[6..8].copy_from_slice(&(if sum == 0 { u16::MAX } else { sum }).to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Rig, World, refused};

    #[test]
    fn the_packet_is_valid() {
        let text = "s :: FastUDPSource(0, 300, 60, 2:0:0:0:0:1, 10.0.0.1, 5, 2:0:0:0:0:2, 10.0.0.2, 6) -> Strip(14)
            -> CheckIPHeader -> CheckUDPHeader -> ToDevice(x);
            t :: FastUDPSourceIP6(1000, -1, 80, 2:0:0:0:0:1, fe80::1, 5, 2:0:0:0:0:2, fe80::2, 6) -> ToDevice(y)";
        let mut rig = Rig::new(&World::new(), text);
        let mut sent = rig.poll();
        sent.extend(rig.poll());
        let count = |device: &str| sent.iter().filter(|(to, _)| to == device).count();
        assert_eq!((count("x"), count("y"), rig.read("s.count")), (300, 20, "300".into()));
        let ip6 = &sent.iter().find(|(to, _)| to == "y").unwrap().1;
        assert_eq!(
            (ip6.len(), &ip6[12..15], &ip6[54..58]),
            (76, &[0x86, 0xdd, 0x60][..], &[0, 5, 0, 6][..])
        );
        let ip4 = &sent.iter().find(|(to, _)| to == "x").unwrap().1;
        assert_eq!(ip4.len(), 60 - CRC_BYTES - ETHER_BYTES);
        rig.write("t.rate", "5");
        assert!(
            refused(&V4, "1, 1, 40, 2:0:0:0:0:1, 10.0.0.1, 5, 2:0:0:0:0:2, 10.0.0.2, 6")
                .contains("60 to 1518")
        );
    }
}
