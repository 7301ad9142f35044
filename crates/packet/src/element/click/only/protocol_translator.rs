//! Packets of one protocol as packets of the other: `ProtocolTranslator64` makes IPv4 of IPv6, `ProtocolTranslator46`
//! IPv6 of IPv4.
//!
//! Source: Click's elements of these names; RFC 7915, with addresses `::a.b.c.d`: the last four bytes of an IPv6
//! address are the IPv4 address, and twelve zeros are put before one. The TTL stays. Echo requests and replies become
//! those of the other protocol. Differs: other ICMP messages, fragments of IPv4 and extension headers of IPv6 are
//! dropped (RFC 7915 translates some).

use super::checksums::fill_checksums;
use super::each::{class, each};
use crate::frame::wire::checksum::pseudo_v6;
use crate::frame::wire::icmp::{PROTOCOL_ICMP, PROTOCOL_ICMPV6};
use crate::frame::wire::protocol::{TCP, UDP};
use crate::frame::wire::{IP4_BYTES, IP6_BYTES, Ip4, Ip4Mut, Ip6, Ip6Mut};
use crate::frame::{Batch, DropReason, Hop};
use crate::graph::ElementClass;

pub(crate) const TO_V4: ElementClass =
    class("ProtocolTranslator64", "makes IPv4 packets of IPv6 packets", |setup| {
        setup.args.finish()?;
        each(|batch, i| translate(batch, i, to_v4))
    });

pub(crate) const TO_V6: ElementClass =
    class("ProtocolTranslator46", "makes IPv6 packets of IPv4 packets", |setup| {
        setup.args.finish()?;
        each(|batch, i| translate(batch, i, to_v6))
    });

/// Types of echo requests and replies, of ICMP and ICMPv6.
const ECHOES: [(u8, u8); 2] = [(8, 128), (0, 129)];

/// Puts what becomes of a packet in its place.
fn translate(batch: &mut Batch, i: usize, make: fn(&[u8]) -> Option<Vec<u8>>) {
    let network = usize::from(batch.meta()[i].network);
    let Some(made) = batch.bytes(i).get(network..).and_then(make) else {
        return batch.discard(i, DropReason::Unmatched);
    };
    let length = batch.frame_len(i);
    let grown = u16::try_from(made.len().saturating_sub(length)).unwrap_or(u16::MAX);
    if !batch.push_front(i, grown) {
        return batch.discard(i, DropReason::NoBuffer);
    }
    batch.truncate(i, made.len());
    batch.bytes_mut(i).copy_from_slice(&made);
    let meta = &mut batch.meta_mut()[i];
    (meta.network, meta.hop) = (0, Hop::NONE);
}

/// Last four bytes of an IPv6 address.
fn low(addr: u128) -> u32 {
    let [.., a, b, c, d] = addr.to_be_bytes();
    u32::from_be_bytes([a, b, c, d])
}

fn to_v4(packet: &[u8]) -> Option<Vec<u8>> {
    let ip = Ip6::at(packet, 0).filter(|ip| ip.version() == 6)?;
    let payload = packet.get(IP6_BYTES..IP6_BYTES + ip.payload_len())?;
    let protocol = match ip.next_header() {
        PROTOCOL_ICMPV6 => PROTOCOL_ICMP,
        other @ (TCP | UDP) => other,
        _ => return None,
    };
    let mut made = vec![0; IP4_BYTES];
    made.extend(payload);
    if protocol == PROTOCOL_ICMP {
        let kind = made.get_mut(IP4_BYTES)?;
        *kind = ECHOES.iter().find(|(_, v6)| v6 == kind)?.0;
    }
    let total = u16::try_from(made.len()).ok()?;
    let mut header = Ip4Mut::at(&mut made, 0)?;
    header.set_header_len(20);
    header.set_traffic_class(ip.traffic_class());
    header.set_total_len(total);
    header.set_ttl(ip.hop_limit());
    header.set_protocol(protocol);
    header.set_src(low(ip.src()));
    header.set_dst(low(ip.dst()));
    fill_checksums(&mut made);
    Some(made)
}

fn to_v6(packet: &[u8]) -> Option<Vec<u8>> {
    let ip = Ip4::at(packet, 0).filter(|ip| ip.version() == 4 && !ip.is_fragment())?;
    let payload = packet.get(ip.header_len().max(IP4_BYTES)..ip.total_len())?;
    let protocol = match ip.protocol() {
        PROTOCOL_ICMP => PROTOCOL_ICMPV6,
        other @ (TCP | UDP) => other,
        _ => return None,
    };
    let mut made = vec![0; IP6_BYTES];
    made.extend(payload);
    if protocol == PROTOCOL_ICMPV6 {
        let kind = made.get_mut(IP6_BYTES)?;
        *kind = ECHOES.iter().find(|(v4, _)| v4 == kind)?.1;
    }
    let mut header = Ip6Mut::at(&mut made, 0)?;
    header.set_first(ip.traffic_class(), 0);
    header.set_payload_len(u16::try_from(payload.len()).ok()?);
    header.set_next_header(protocol);
    header.set_hop_limit(ip.ttl());
    header.set_src(ip.src().into());
    header.set_dst(ip.dst().into());
    fill_checksum6(&mut made);
    Some(made)
}

/// Fills in the checksum behind an IPv6 header without extensions.
pub(super) fn fill_checksum6(packet: &mut [u8]) -> Option<()> {
    let ip = Ip6::at(packet, 0)?;
    let (protocol, src, dst) = (ip.next_header(), ip.src().to_be_bytes(), ip.dst().to_be_bytes());
    let at = checksum_at6(protocol)?;
    let transport = packet.get_mut(IP6_BYTES..)?;
    transport.get_mut(at..at + 2)?.fill(0);
    let length = u32::try_from(transport.len()).ok()?;
    let sum = pseudo_v6(&src, &dst, protocol, length).bytes(transport).finish();
    let sum = if protocol == UDP && sum == 0 { u16::MAX } else { sum };
    transport[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    Some(())
}

/// Where the checksum of a transport header over IPv6 is.
pub(super) fn checksum_at6(protocol: u8) -> Option<usize> {
    match protocol {
        TCP => Some(16),
        UDP => Some(6),
        PROTOCOL_ICMPV6 => Some(2),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Rig, World, frame_v4};

    #[test]
    fn packets_go_there_and_back() {
        let text = "FromDevice(a) -> Strip(14) -> CheckIPHeader -> ProtocolTranslator46 -> CheckIP6Header -> t :: Tee
            -> ProtocolTranslator64 -> CheckIPHeader -> c :: IPClassifier(udp, icmp); t [1] -> ToDevice(six);
            c [0] -> CheckUDPHeader -> ToDevice(udp); c [1] -> CheckICMPHeader -> ToDevice(icmp)";
        let mut rig = Rig::new(&World::new(), text);
        let mut udp =
            frame_v4("10.0.0.1", "192.0.2.7", 64, 17, &[0, 1, 0, 2, 0, 12, 0, 0, 1, 2, 3, 4]);
        let sent = rig.receive("a", &[&udp]);
        fill_checksums(&mut udp[14..]);
        // IPv6 has no identification.
        assert_eq!((&*sent[0].0, &sent[0].1[12..]), ("udp", &udp[26..]));
        let six = &sent[1].1;
        assert_eq!((Ip6::at(six, 0).unwrap().src(), six.len()), (0x0a00_0001, 52));
        let echo = frame_v4("10.0.0.1", "192.0.2.7", 64, 1, &[8, 0, 0, 0, 0, 1, 0, 2]);
        let sent = rig.receive("a", &[&echo]);
        assert_eq!((&*sent[0].0, sent[1].1[40]), ("icmp", 128));
        let other = frame_v4("10.0.0.1", "192.0.2.7", 64, 1, &[5, 0, 0, 0, 0, 1, 0, 2]);
        assert!(rig.receive("a", &[&other]).is_empty());
    }
}
