//! Fills in the transport checksums that senders on the same host leave to a card that is not there.
//!
//! Over a veth or a TAP the kernel hands packets on with checksum offload pending: the field of TCP
//! and UDP holds the sum of the pseudo-header alone, folded and not complemented; SCTP's holds 0. The
//! card would have added the rest; here nobody would, and the receiver beyond the next wire would
//! drop the packet. The frame does not show it itself (that is in the socket buffer), so it is seen by
//! the value.
//!
//! Of whole packets with other contents 1 in 65,536 has that very value by chance. It does no harm: a
//! right checksum equal to the pseudo-header's sum means that all the rest sums to what filling in
//! computes again, the same value. Only damage could be hidden, in 1 of 65,536 damaged packets, which
//! is what the checksum itself lets through.
//!
//! Inside tunnels that a local sender makes (VXLAN, GENEVE, GRE, IP in IP) it is the inner checksum
//! that is left; the outer one, where there is one, already counts the inner as filled in (the
//! kernel's local checksum offload), so it is not touched.
//!
//! Only packets from ports with `fill_checksums` are looked at. Cost where nothing is to do: 15 ns,
//! the header's lines being in the cache already; 80 ns for 1,400 bytes of TCP, 3.7 us for as many of
//! SCTP, whose CRC goes a byte at a time.

use crate::frame::Batch;
use crate::frame::wire::checksum::{Sum, pseudo_v4, pseudo_v6};
use crate::frame::wire::icmp::upper_layer;
use crate::frame::wire::protocol::{SCTP, TCP, UDP};
use crate::frame::wire::{ETHER_BYTES, Ether, IP4_BYTES, IP6_BYTES, Ip4, ether};
use crate::graph::{Context, Element, ElementClass, Made};
use crate::language::ClassSpec;

pub(crate) const CLASS: ElementClass = ElementClass {
    spec: ClassSpec::new("FillChecksum", "1/1", "h/h", "x/x"),
    summary: "fills in checksums that senders on the same host left open",
    configure: |setup| {
        setup.args.finish()?;
        Ok(Made::new(|_| FillChecksum::default()))
    },
};

/// The element.
#[derive(Default)]
struct FillChecksum {
    filled: u64,
}

impl Element for FillChecksum {
    fn process(&mut self, _: u16, batch: &mut Batch, cx: &mut Context<'_>) {
        let ports = &cx.forwarding.ports;
        // A batch mostly comes from one port.
        let mut known = (u16::MAX, false);
        for i in 0..batch.len() {
            let meta = batch.meta()[i];
            if known.0 != meta.port {
                known = (meta.port, ports.port(meta.port).is_some_and(|p| p.fill_checksums));
            }
            if known.1 && fill(&mut batch.bytes_mut(i)[usize::from(meta.network)..], 0) {
                self.filled += 1;
            }
        }
    }

    fn stats(&self, visit: &mut dyn FnMut(&'static str, u64)) {
        visit("filled", self.filled);
    }
}

/// Tunnels in tunnels that are looked into.
const MAX_DEPTH: u8 = 2;

/// IP in IP (RFC 2003).
const IPIP: u8 = 4;
/// IPv6 in IP (RFC 4213, RFC 2473).
const IPV6: u8 = 41;
/// Generic routing encapsulation (RFC 2784, 2890).
const GRE: u8 = 47;

const VXLAN_PORT: u16 = 4789;
const GENEVE_PORT: u16 = 6081;
/// EtherType of an Ethernet frame inside of something.
const TYPE_BRIDGED: u16 = 0x6558;

/// What lies behind the IP headers of a packet.
struct Transport {
    protocol: u8,
    /// Where it begins and ends in the packet.
    at: usize,
    end: usize,
}

/// Fills in what is open in `packet`, which begins with an IP header (checked or not) and may end in
/// padding. Whether there was something.
fn fill(packet: &mut [u8], depth: u8) -> bool {
    let Some((transport, pseudo)) = (match packet.first().map(|b| b >> 4) {
        Some(4) => transport_v4(packet),
        Some(6) => transport_v6(packet),
        _ => None,
    }) else {
        return false;
    };
    let Some(bytes) = packet.get_mut(transport.at..transport.end) else { return false };
    match transport.protocol {
        TCP => fill_sum(bytes, 16, pseudo.map(|sum| sum.fold()), false),
        UDP => {
            fill_sum(bytes, 6, pseudo.map(|sum| sum.fold()), true)
                || (depth < MAX_DEPTH && fill_in_udp(bytes, depth))
        }
        SCTP => fill_crc(bytes),
        IPIP | IPV6 if depth < MAX_DEPTH => fill(bytes, depth + 1),
        GRE if depth < MAX_DEPTH => fill_in_gre(bytes, depth),
        _ => false,
    }
}

/// The transport of an IPv4 packet that is no fragment, and its pseudo-header.
fn transport_v4(packet: &[u8]) -> Option<(Transport, Option<Sum>)> {
    let ip = Ip4::at(packet, 0)?;
    if ip.is_fragment() || ip.header_len() < IP4_BYTES {
        return None;
    }
    let (at, end) = (ip.header_len(), ip.total_len());
    let len = u16::try_from(end.checked_sub(at)?).ok()?;
    let sum = pseudo_v4(ip.src().to_be_bytes(), ip.dst().to_be_bytes(), ip.protocol(), len);
    Some((Transport { protocol: ip.protocol(), at, end }, Some(sum)))
}

/// Transport checksum of IPv6. Behind a routing header there is no pseudo-header: it holds the last address of
/// the route, which is not the header's.
fn transport_v6(packet: &[u8]) -> Option<(Transport, Option<Sum>)> {
    let header: &[u8; IP6_BYTES] = packet.first_chunk()?;
    let end = IP6_BYTES + usize::from(u16::from_be_bytes([header[4], header[5]]));
    let upper = upper_layer(packet.get(..end)?)?;
    if upper.fragment.is_some() {
        return None;
    }
    let len = u32::try_from(end - upper.at).ok()?;
    let (_, addrs) = header.split_at(8);
    let (src, rest) = addrs.split_first_chunk::<16>()?;
    let dst = rest.first_chunk::<16>()?;
    let sum = (!upper.routed).then(|| pseudo_v6(src, dst, upper.protocol, len));
    Some((Transport { protocol: upper.protocol, at: upper.at, end }, sum))
}

/// Fills the checksum field at `field` if it holds the pseudo-header's sum.
fn fill_sum(transport: &mut [u8], field: usize, pseudo: Option<u16>, udp: bool) -> bool {
    let Some(pseudo) = pseudo else { return false };
    let Some(&[a, b]) = transport.get(field..).and_then(|rest| rest.first_chunk()) else {
        return false;
    };
    if u16::from_be_bytes([a, b]) != pseudo {
        return false;
    }
    // The field itself contributes the pseudo-header.
    let sum = Sum::ZERO.bytes(transport).finish();
    // In UDP 0 says that there is no checksum (RFC 768); 0xffff means the same number.
    let sum = if udp && sum == 0 { 0xffff } else { sum };
    transport[field..field + 2].copy_from_slice(&sum.to_be_bytes());
    true
}

/// The inner packet of a VXLAN (RFC 7348) or GENEVE (RFC 8926) datagram, by its port.
fn fill_in_udp(datagram: &mut [u8], depth: u8) -> bool {
    let Some(&[_, _, a, b]) = datagram.first_chunk() else { return false };
    let (kind, header) = match u16::from_be_bytes([a, b]) {
        VXLAN_PORT => (TYPE_BRIDGED, 8),
        GENEVE_PORT => match datagram.get(8..).and_then(|rest| rest.first_chunk()) {
            Some(&[first, _, a, b]) => {
                (u16::from_be_bytes([a, b]), 8 + usize::from(first & 0x3f) * 4)
            }
            None => return false,
        },
        _ => return false,
    };
    datagram.get_mut(8 + header..).is_some_and(|inner| fill_inner(inner, kind, depth))
}

/// The inner packet of GRE, whose flags show which of its optional words are present.
fn fill_in_gre(gre: &mut [u8], depth: u8) -> bool {
    let Some(&[flags, version, a, b]) = gre.first_chunk() else { return false };
    // Version 1 is PPTP's; a routing field (0x40) is long dead.
    if version & 7 != 0 || flags & 0x40 != 0 {
        return false;
    }
    let words = usize::from(flags & 0x80 != 0)
        + usize::from(flags & 0x20 != 0)
        + usize::from(flags & 0x10 != 0);
    let kind = u16::from_be_bytes([a, b]);
    gre.get_mut(4 + words * 4..).is_some_and(|inner| fill_inner(inner, kind, depth))
}

fn fill_inner(inner: &mut [u8], kind: u16, depth: u8) -> bool {
    match kind {
        ether::TYPE_IP4 | ether::TYPE_IP6 => fill(inner, depth + 1),
        TYPE_BRIDGED => {
            let Some(kind) = Ether::of(inner).map(Ether::kind) else { return false };
            matches!(kind, ether::TYPE_IP4 | ether::TYPE_IP6)
                && fill(&mut inner[ETHER_BYTES..], depth + 1)
        }
        _ => false,
    }
}

/// SCTP (RFC 9260, 6.8 and appendix A): CRC32c over the packet with its field 0, least significant
/// byte first. A right one that is 0 is computed again to the same.
fn fill_crc(packet: &mut [u8]) -> bool {
    if packet.get(8..12) != Some(&[0; 4]) {
        return false;
    }
    let crc = crc32c(packet);
    packet[8..12].copy_from_slice(&crc.to_le_bytes());
    true
}

const CRC: [u32; 256] = crc_table();

/// Castagnoli's polynomial, bits reversed.
const fn crc_table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut i = 0;
    while i < 256 {
        #[allow(clippy::cast_possible_truncation, reason = "below 256")]
        let mut crc = i as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 };
            bit += 1;
        }
        table[i] = crc;
        i += 1;
    }
    table
}

fn crc32c(bytes: &[u8]) -> u32 {
    let step = |crc: u32, &byte: &u8| CRC[usize::from(crc.to_le_bytes()[0] ^ byte)] ^ (crc >> 8);
    !bytes.iter().fold(!0, step)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cases::Stage;
    use crate::frame::Note;
    use proptest::prelude::*;

    /// Result for a frame received on `port`, and whether it counts as filled.
    fn go(stage: &mut Stage, port: &str, frame: &[u8]) -> (Vec<u8>, bool) {
        let mut element = FillChecksum::default();
        let packet = stage.packet(port, frame, Note::default());
        let left = stage.run(&mut element, vec![packet]);
        (left[0].frame.clone(), Stage::stat(&element, "filled") == 1)
    }

    /// Each is filled in as the notation fills it in by itself.
    fn is_filled(text: &str) {
        assert!(text.contains("sum partial"));
        let mut stage = Stage::default();
        let (open, whole) = (stage.frame(text), stage.frame(&text.replace("sum partial", "")));
        assert_ne!(open, whole);
        assert_eq!(go(&mut stage, "veth", &open), (whole.clone(), true), "{text}");
        let (again, _) = go(&mut stage, "veth", &whole);
        assert_eq!(again, whole, "{text}");
        assert_eq!(go(&mut stage, "lan", &open), (open, false), "not from that port");
    }

    const V4: &str = "eth veth.app > veth\nip4 10.6.0.2 > 198.51.100.7";
    const V6: &str = "eth veth.app > veth\nip6 2001:db8:6::2 > 2001:db8:100::7";

    #[test]
    fn open_checksums_are_filled_in() {
        for ip in [
            V4.to_owned(),
            format!("{V4} opts 94040000"),
            V6.to_owned(),
            format!("{V6}\nhbh 0104"),
            format!("{V6}\nhbh 0104\nopts 010600000000\nopts 0104"),
        ] {
            for upper in
                ["tcp 1 > 80 sum partial", "udp 1 > 53 sum partial", "sctp 1 > 2 sum partial"]
            {
                for rest in ["", "\nbytes 1", "\nbytes 1400", "\ntext odd\npad 90"] {
                    is_filled(&format!("{ip}\n{upper}{rest}"));
                }
            }
        }
    }

    #[test]
    fn inside_tunnels_too() {
        let inner4 = "ip4 10.99.0.1 > 10.99.0.2\ntcp 1 > 2 sum partial\nbytes 77";
        let inner6 = "ip6 fd00::1 > fd00::2\nudp 1 > 2 sum partial\nbytes 77";
        let ether = "eth 02:00:00:00:00:99 > 02:00:00:00:00:98";
        for inner in [inner4, inner6] {
            let kind = if inner == inner4 { "0800" } else { "86dd" };
            for outer in [V4, V6] {
                is_filled(&format!("{outer}\nudp 5555 > 4789 sum 0\nvxlan\n{ether}\n{inner}"));
                is_filled(&format!(
                    "{outer}\nudp 5555 > 6081 sum 0\nhex 00006558 00000100\n{ether}\n{inner}"
                ));
                is_filled(&format!(
                    "{outer}\nudp 5555 > 6081 sum 0\nhex 0140{kind} 00000100 11223344\n{inner}"
                ));
                is_filled(&format!("{outer}\n{inner}"));
                let proto = if outer == V4 { "proto 47" } else { "next 47" };
                is_filled(&format!("{outer} {proto}\nhex 0000{kind}\n{inner}"));
                is_filled(&format!(
                    "{outer} {proto}\nhex b0006558 00000000 00000007 00000001\n{ether}\n{inner}"
                ));
            }
        }
        // The outer one open, the inner whole.
        is_filled(&format!(
            "{V4}\nudp 5555 > 4789 sum partial\nvxlan\n{ether}\nip4 10.99.0.1 > 10.99.0.2\ntcp 1 > 2\nbytes 77"
        ));
    }

    #[test]
    fn nothing_else_is_touched() {
        let mut stage = Stage::default();
        for text in [
            format!("{V4}\nudp 1 > 53\nbytes 40"),
            format!("{V4}\nudp 1 > 53 sum 0\nbytes 40"),
            format!("{V4}\ntcp 1 > 80 sum 0x1234\nbytes 40"),
            format!("{V4}\nicmp 8/0 sum 0\nbytes 40"),
            // Fragments hold a part of what the sum covers.
            format!("{V4} mf\nudp 1 > 53 sum partial\nbytes 40"),
            format!("{V4} off 8\nudp 1 > 53 sum partial\nbytes 40"),
            format!("{V6}\nfrag off 0 mf\nudp 1 > 53 sum partial\nbytes 40"),
            format!("{V6}\nfrag off 8\nudp 1 > 53 sum partial\nbytes 40"),
            format!("{V6}\nroute 0201000000000000\nudp 1 > 53 sum partial\nbytes 40"),
            // Lengths that lie.
            format!("{V4} len 19\nudp 1 > 53 sum partial\nbytes 40"),
            format!("{V4} len 900\nudp 1 > 53 sum partial\nbytes 40"),
            format!("{V6} len 900\nudp 1 > 53 sum partial\nbytes 40"),
            format!("{V6} len 3\nudp 1 > 53 sum partial\nbytes 40"),
            format!("{V4} ihl 15\nudp 1 > 53 sum partial\nbytes 4"),
            format!("{V4} ihl 4\nudp 1 > 53 sum partial\nbytes 40"),
            // VXLAN with something else inside.
            format!("{V4}\nudp 1 > 4789 sum 0\nvxlan\neth veth > lan type 0x0806\nbytes 40"),
            format!("{V4}\nudp 1 > 4789 sum 0\nvxlan"),
            format!("{V4}\nudp 1 > 6081 sum 0\nhex 3f006558 00000100"),
            format!("{V4} proto 47\nhex 0001880b"),
        ] {
            let frame = stage.frame(&text);
            assert_eq!(go(&mut stage, "veth", &frame), (frame.clone(), false), "{text}");
            for len in 14..frame.len() {
                go(&mut stage, "veth", &frame[..len]);
            }
        }
    }

    #[test]
    fn tunnels_in_tunnels_end() {
        let mut stage = Stage::default();
        let ip = "ip4 10.99.0.1 > 10.99.0.2\n";
        let udp = "udp 1 > 2 sum partial";
        is_filled(&format!("{V4}\n{ip}{udp}"));
        is_filled(&format!("{V4}\n{ip}{ip}{udp}"));
        let frame = stage.frame(&format!("{V4}\n{ip}{ip}{ip}{udp}"));
        assert_eq!(go(&mut stage, "veth", &frame), (frame, false));
    }

    #[test]
    fn zero_is_written_as_ones_in_udp_only() {
        let mut stage = Stage::default();
        for (upper, want) in [("udp 1 > 2 sum partial", 0xffff_u16), ("tcp 1 > 2 sum partial", 0)] {
            let field = if want == 0 { 34 + 16 } else { 34 + 6 };
            // Choose the payload so that all of it sums to 0xffff.
            let mut frame = stage.frame(&format!("{V4}\n{upper}\nhex 0000"));
            let sum = Sum::ZERO.bytes(&frame[34..]).fold();
            let end = frame.len();
            frame[end - 2..].copy_from_slice(&(!sum).to_be_bytes());
            let (filled, _) = go(&mut stage, "veth", &frame);
            assert_eq!(filled[field..field + 2], want.to_be_bytes());
        }
    }

    #[test]
    fn a_right_checksum_that_looks_open_stays() {
        let mut stage = Stage::default();
        let text = format!("{V4}\nudp 1 > 2 sum partial\nhex 0000");
        let mut frame = stage.frame(&text);
        // Payload for which the pseudo-header's sum is the right checksum.
        let pseudo = u16::from_be_bytes([frame[40], frame[41]]);
        let sum = Sum::ZERO.bytes(&frame[34..]).word(pseudo).fold();
        let end = frame.len();
        frame[end - 2..].copy_from_slice(&(!sum).to_be_bytes());
        assert_eq!(go(&mut stage, "veth", &frame).0, frame);
    }

    #[test]
    fn crc_check_value() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        // RFC 3720, B.4: 32 bytes of 0.
        assert_eq!(crc32c(&[0; 32]).to_le_bytes(), [0xaa, 0x36, 0x91, 0x8a]);
    }

    proptest! {
        #[test]
        fn any_packet(bytes in prop::collection::vec(any::<u8>(), 0..200), first in prop::sample::select(vec![0x45_u8, 0x46, 0x60])) {
            let mut packet = bytes.clone();
            if let Some(byte) = packet.first_mut() {
                *byte = first;
            }
            fill(&mut packet, 0);
        }
    }
}
