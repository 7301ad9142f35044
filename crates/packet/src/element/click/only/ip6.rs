//! IPv6 by the names that Click has: `IP6NDSolicitor`, `IP6NDAdvertiser`, `LookupIP6Route` and `SetIP6DSCP` are
//! elements of ours under another name; `IP6Print` writes packets in words, `IP6Mirror` swaps their ends, `IP6Encap`
//! and `UDPIP6Encap` put headers before them.
//!
//! Source: Click's elements of these names.

use std::net::Ipv6Addr;

use super::console;
use super::each::{class, each};
use super::renamed::renamed;
use crate::element::click::front::grow;
use crate::element::click::{nd_advertiser, nd_solicitor, route_lookup, set_ip_dscp};
use crate::filter::names::{Port, protocol};
use crate::frame::wire::checksum::pseudo_v6;
use crate::frame::wire::protocol::{TCP, UDP};
use crate::frame::wire::{IP6_BYTES, Ip6, Ip6Mut};
use crate::frame::{DropReason, Hop};
use crate::graph::{ElementClass, Made};
use crate::language::ConfigError;

pub(crate) const SOLICITOR: ElementClass = renamed("IP6NDSolicitor", &nd_solicitor::CLASS);
pub(crate) const ADVERTISER: ElementClass = renamed("IP6NDAdvertiser", &nd_advertiser::CLASS);
pub(crate) const SET_DSCP: ElementClass = renamed("SetIP6DSCP", &set_ip_dscp::CLASS);
pub(crate) const LOOKUP: ElementClass = renamed("LookupIP6Route", &route_lookup::ANY6);

pub(crate) const PRINT: ElementClass =
    class("IP6Print", "writes IPv6 packets in words to the standard error", |setup| {
        let label = setup.args.optional::<String>("LABEL");
        let bytes = setup.args.keyword::<usize>("NBYTES");
        let contents = setup.args.keyword("CONTENTS");
        setup.args.finish()?;
        let label = label?.filter(|label| !label.is_empty()).map(|label| format!("{label}: "));
        let label = label.unwrap_or_default();
        let most = bytes?.unwrap_or(1500);
        let contents = contents?.unwrap_or(false);
        each(move |batch, i| {
            let packet =
                &batch.bytes(i)[usize::from(batch.meta()[i].network).min(batch.frame_len(i))..];
            let mut line = format!("{label}{}", words(packet));
            if contents {
                for (at, byte) in packet.iter().take(most).enumerate() {
                    let gap = if at % 16 == 0 {
                        "\n  "
                    } else if at % 4 == 0 {
                        " "
                    } else {
                        ""
                    };
                    line += &format!("{gap}{byte:02x}");
                }
            }
            console::warn(&line);
        })
    });

/// A packet in words.
fn words(packet: &[u8]) -> String {
    match Ip6::at(packet, 0).filter(|ip| ip.version() == 6) {
        None => "(not an IPv6 packet)".into(),
        Some(ip) => format!(
            "{} -> {}: plen {}, next {}, hlim {}",
            Ipv6Addr::from_bits(ip.src()),
            Ipv6Addr::from_bits(ip.dst()),
            ip.payload_len(),
            ip.next_header(),
            ip.hop_limit()
        ),
    }
}

pub(crate) const MIRROR: ElementClass =
    class("IP6Mirror", "swaps sources and destinations of IPv6 packets", |setup| {
        setup.args.finish()?;
        each(|batch, i| {
            let network = usize::from(batch.meta()[i].network);
            let packet = batch.bytes_mut(i).get_mut(network..).unwrap_or_default();
            let Some(header) = Ip6::at(packet, 0).filter(|ip| ip.version() == 6) else {
                return batch.discard(i, DropReason::TooShort);
            };
            let has_ports = matches!(header.next_header(), TCP | UDP);
            packet[8..IP6_BYTES].rotate_left(16);
            if let Some(ports) = packet.get_mut(IP6_BYTES..IP6_BYTES + 4).filter(|_| has_ports) {
                ports.rotate_left(2);
            }
            batch.meta_mut()[i].hop = Hop::NONE;
        })
    });

pub(crate) const ENCAP: ElementClass =
    class("IP6Encap", "puts an IPv6 header before packets", |setup| {
        let kind = setup.args.positional_arg("PROTO")?;
        let src = setup.args.positional::<Ipv6Addr>("SRC");
        let dst = setup.args.positional::<Ipv6Addr>("DST");
        let hops = setup.args.keyword::<u8>("HLIM");
        let class = setup.args.keyword::<u8>("CLASS");
        setup.args.finish()?;
        let Some(protocol) = protocol(kind.raw()) else {
            return Err(setup.args.refuse(&kind, "PROTO: no protocol"));
        };
        let header = header(protocol, src?, dst?, hops?.unwrap_or(HOPS), class?.unwrap_or(0));
        encap(
            move |packet, length| {
                packet[..IP6_BYTES].copy_from_slice(&header);
                put_length(packet, length);
            },
            40,
        )
    });

pub(crate) const UDP_ENCAP: ElementClass =
    class("UDPIP6Encap", "puts an IPv6 and a UDP header before packets", |setup| {
        let src = setup.args.positional::<Ipv6Addr>("SRC");
        let sport = setup.args.positional::<Port>("SPORT");
        let dst = setup.args.positional::<Ipv6Addr>("DST");
        let dport = setup.args.positional::<Port>("DPORT");
        setup.args.finish()?;
        let (src, dst) = (src?, dst?);
        let header = header(UDP, src, dst, HOPS, 0);
        let ports = [sport?.0.to_be_bytes(), dport?.0.to_be_bytes()].concat();
        encap(
            move |packet, length| {
                packet[..IP6_BYTES].copy_from_slice(&header);
                put_length(packet, length);
                let udp = &mut packet[IP6_BYTES..];
                udp[..4].copy_from_slice(&ports);
                udp[4..6].copy_from_slice(&length.to_be_bytes());
                udp[6..8].fill(0);
                let sum =
                    pseudo_v6(&src.octets(), &dst.octets(), UDP, length.into()).bytes(udp).finish();
                udp[6..8].copy_from_slice(&(if sum == 0 { u16::MAX } else { sum }).to_be_bytes());
            },
            48,
        )
    });

/// Hop limit of packets, in Click.
const HOPS: u8 = 250;

fn header(protocol: u8, src: Ipv6Addr, dst: Ipv6Addr, hops: u8, class: u8) -> [u8; IP6_BYTES] {
    let mut bytes = [0; IP6_BYTES];
    if let Some(mut header) = Ip6Mut::at(&mut bytes, 0) {
        header.set_first(class, 0);
        header.set_next_header(protocol);
        header.set_hop_limit(hops);
        header.set_src(src.to_bits());
        header.set_dst(dst.to_bits());
    }
    bytes
}

fn put_length(packet: &mut [u8], length: u16) {
    if let Some(mut header) = Ip6Mut::at(packet, 0) {
        header.set_payload_len(length);
    }
}

/// Grows packets by so many bytes, and writes headers there.
fn encap(
    write: impl Fn(&mut [u8], u16) + Clone + Send + Sync + 'static,
    bytes: u8,
) -> Result<Made, ConfigError> {
    each(move |batch, i| {
        if grow(batch, i, bytes) {
            let packet = batch.bytes_mut(i);
            let length = u16::try_from(packet.len() - IP6_BYTES).unwrap_or(u16::MAX);
            write(packet, length);
            let meta = &mut batch.meta_mut()[i];
            (meta.network, meta.hop) = (0, Hop::NONE);
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{frame_v6, run};

    #[test]
    fn ends_change_places_and_classes_are_set() {
        let frame = frame_v6("fe80::1", "fe80::2", 64, 17, &[0, 1, 0, 2, 0, 8, 0, 0]);
        let back = frame_v6("fe80::2", "fe80::1", 64, 17, &[0, 2, 0, 1, 0, 8, 0, 0]);
        assert_eq!(run(&MIRROR, "", 14, &[&frame]).bytes(0)[14..], back[14..]);
        let marked = run(&SET_DSCP, "10", 14, &[&frame]);
        assert_eq!(Ip6::at(marked.bytes(0), 14).unwrap().traffic_class(), 40);
    }

    #[test]
    fn headers_come_before_packets() {
        let batch = run(&UDP_ENCAP, "fe80::1, 7, fe80::2, 9", 0, &[&[1, 2, 3, 4]]);
        let ip = Ip6::at(batch.bytes(0), 0).unwrap();
        assert_eq!((ip.payload_len(), ip.next_header(), ip.hop_limit()), (12, 17, 250));
        let (src, dst) = (ip.src().to_be_bytes(), ip.dst().to_be_bytes());
        assert_eq!(pseudo_v6(&src, &dst, UDP, 12).bytes(&batch.bytes(0)[40..]).finish(), 0);
        let batch = run(&ENCAP, "tcp, fe80::1, fe80::2, HLIM 3", 0, &[&[1, 2, 3, 4]]);
        assert_eq!((batch.frame_len(0), batch.bytes(0)[7]), (44, 3));
    }

    #[test]
    fn packets_are_written_in_words() {
        console::collect();
        let frame = frame_v6("fe80::1", "fe80::2", 64, 17, &[1, 2]);
        run(&PRINT, "v6, CONTENTS true, NBYTES 8", 14, &[&frame, &frame[..20]]);
        let want = "v6: fe80::1 -> fe80::2: plen 2, next 17, hlim 64\n  60000000 00021140\nv6: (not an IPv6 packet)\n  60000000 0002\n";
        assert_eq!(console::collected().err, want);
    }
}
