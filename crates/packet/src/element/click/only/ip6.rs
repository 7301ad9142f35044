//! IPv6 by the names that Click has: `IP6NDSolicitor`, `IP6NDAdvertiser`, `LookupIP6Route` and `SetIP6DSCP` are
//! elements of ours under another name; `IP6Print` writes packets in words, `IP6Mirror` swaps their ends, `IP6Encap`
//! and `UDPIP6Encap` put headers before them, to the address that a packet's annotation has where `DST` is `DST_ANNO`.
//!
//! Source: Click's elements of these names.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::console;
use super::each::{class, each};
use super::renamed::renamed;
use crate::element::click::front::grow;
use crate::element::click::{nd_advertiser, nd_solicitor, route_lookup, set_ip_dscp};
use crate::element::support::setting::{Setting, value};
use crate::filter::names::{Port, protocol};
use crate::frame::wire::checksum::pseudo_v6;
use crate::frame::wire::protocol::{TCP, UDP};
use crate::frame::wire::{IP6_BYTES, Ip6, Ip6Mut};
use crate::frame::{Batch, DropReason, Hop};
use crate::graph::{ElementClass, Made, Setup};
use crate::handler::Handler;
use crate::language::ConfigError;
use crate::route_table::gateways::Gateways;

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
        let dst = Destination::read(setup);
        let hops = setup.args.keyword::<u8>("HLIM");
        let class = setup.args.keyword::<u8>("CLASS");
        setup.args.finish()?;
        let Some(protocol) = protocol(kind.raw()) else {
            return Err(setup.args.refuse(&kind, "PROTO: no protocol"));
        };
        let (src, dst) = (Addr6::new(src?), dst?);
        let header = header(protocol, hops?.unwrap_or(HOPS), class?.unwrap_or(0));
        let each = src.clone();
        let made = encap(
            &dst,
            move |packet, length, dst| {
                packet[..IP6_BYTES].copy_from_slice(&header);
                put_ends(packet, [each.get(), dst], length);
            },
            40,
        )?;
        Ok(dst.handled(src.handled(made, "src")))
    });

pub(crate) const UDP_ENCAP: ElementClass =
    class("UDPIP6Encap", "puts an IPv6 and a UDP header before packets", |setup| {
        let src = setup.args.positional::<Ipv6Addr>("SRC");
        let sport = setup.args.positional::<Port>("SPORT");
        let dst = Destination::read(setup);
        let dport = setup.args.positional::<Port>("DPORT");
        setup.args.finish()?;
        let (src, dst) = (Addr6::new(src?), dst?);
        let ports = [Setting::new(sport?), Setting::new(dport?)];
        let header = header(UDP, HOPS, 0);
        let (each, each_port) = (src.clone(), ports.clone());
        let made = encap(
            &dst,
            move |packet, length, dst| {
                packet[..IP6_BYTES].copy_from_slice(&header);
                let [src, dst] = put_ends(packet, [each.get(), dst], length);
                let udp = &mut packet[IP6_BYTES..];
                for (bytes, port) in udp.chunks_exact_mut(2).zip(&each_port) {
                    bytes.copy_from_slice(&port.get().0.to_be_bytes());
                }
                udp[4..6].copy_from_slice(&length.to_be_bytes());
                udp[6..8].fill(0);
                let sum = pseudo_v6(&src, &dst, UDP, length.into()).bytes(udp).finish();
                udp[6..8].copy_from_slice(&(if sum == 0 { u16::MAX } else { sum }).to_be_bytes());
            },
            48,
        )?;
        let [sport, dport] = ports;
        let made = dst.handled(src.handled(made, "src"));
        Ok(dport.handled(sport.handled(made, "sport"), "dport"))
    });

/// An address that a handler changes. Relaxed: a packet may have the halves of two addresses while it is changed.
#[derive(Clone)]
struct Addr6(Arc<[AtomicU64; 2]>);

impl Addr6 {
    fn new(addr: Ipv6Addr) -> Self {
        let new = Self(Arc::default());
        new.set(addr);
        new
    }

    fn set(&self, addr: Ipv6Addr) {
        let bits = addr.to_bits();
        for (word, half) in self.0.iter().zip([bits >> 64, bits & u128::from(u64::MAX)]) {
            word.store(u64::try_from(half).expect("half of the bits"), Relaxed);
        }
    }

    fn get(&self) -> u128 {
        let [high, low] = self.0.each_ref().map(|word| u128::from(word.load(Relaxed)));
        high << 64 | low
    }

    /// Adds the handlers that read and write it.
    fn handled(&self, made: Made, name: &'static str) -> Made {
        let (shown, set) = (self.clone(), self.clone());
        made.handler(Handler::read(name, move || Ipv6Addr::from_bits(shown.get()).to_string()))
            .handler(Handler::write(name, move |text| {
                set.set(value(text)?);
                Ok(())
            }))
    }
}

/// Where packets go.
#[derive(Clone)]
enum Destination {
    /// All to this address.
    Fixed(Addr6),
    /// Each to the address of its annotation.
    Annotation(Arc<Gateways>),
}

const DST_ANNO: &str = "DST_ANNO";

impl Destination {
    fn read(setup: &mut Setup<'_>) -> Result<Self, ConfigError> {
        let arg = setup.args.positional_arg("DST")?;
        match arg.raw() {
            DST_ANNO => Ok(Self::Annotation(setup.gateways.clone())),
            _ => setup.args.read(&arg, "DST").map(|addr| Self::Fixed(Addr6::new(addr))),
        }
    }

    /// That of packet `i`: of one without an IPv6 address, the unspecified one.
    fn of(&self, batch: &Batch, i: usize) -> u128 {
        let gateways = match self {
            Self::Fixed(addr) => return addr.get(),
            Self::Annotation(gateways) => gateways,
        };
        let meta = batch.meta()[i];
        match gateways.get(meta.hop.gateway()) {
            Some(IpAddr::V6(addr)) => addr.to_bits(),
            Some(IpAddr::V4(_)) => 0,
            None => Ip6::at(batch.bytes(i), meta.network.into())
                .filter(|ip| ip.version() == 6)
                .map_or(0, Ip6::dst),
        }
    }

    fn handled(&self, made: Made) -> Made {
        match self {
            Self::Fixed(addr) => addr.handled(made, "dst"),
            Self::Annotation(_) => made.handler(Handler::read("dst", || DST_ANNO.to_owned())),
        }
    }
}

/// Hop limit of packets, in Click.
const HOPS: u8 = 250;

fn header(protocol: u8, hops: u8, class: u8) -> [u8; IP6_BYTES] {
    let mut bytes = [0; IP6_BYTES];
    if let Some(mut header) = Ip6Mut::at(&mut bytes, 0) {
        header.set_first(class, 0);
        header.set_next_header(protocol);
        header.set_hop_limit(hops);
    }
    bytes
}

/// Writes addresses and length; what the addresses are.
fn put_ends(packet: &mut [u8], [src, dst]: [u128; 2], length: u16) -> [[u8; 16]; 2] {
    if let Some(mut header) = Ip6Mut::at(packet, 0) {
        header.set_src(src);
        header.set_dst(dst);
        header.set_payload_len(length);
    }
    [src, dst].map(u128::to_be_bytes)
}

/// Grows packets by so many bytes, and writes headers there.
fn encap(
    dst: &Destination,
    write: impl Fn(&mut [u8], u16, u128) + Clone + Send + Sync + 'static,
    bytes: u8,
) -> Result<Made, ConfigError> {
    let dst = dst.clone();
    each(move |batch, i| {
        let dst = dst.of(batch, i);
        if grow(batch, i, bytes) {
            let packet = batch.bytes_mut(i);
            let length = u16::try_from(packet.len() - IP6_BYTES).unwrap_or(u16::MAX);
            write(packet, length, dst);
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
    fn ends_are_changed_by_handlers() {
        let text = "FromDevice(a) -> e :: UDPIP6Encap(fe80::1, 7, fe80::2, 9) -> ToDevice(x);
            FromDevice(b) -> f :: IP6Encap(tcp, fe80::1, fe80::2) -> ToDevice(y)";
        let mut rig = crate::testing::Rig::new(&crate::testing::World::new(), text);
        rig.write("e.src", "fe80::7");
        rig.write("e.dport", "10");
        rig.write("f.dst", "fe80::8");
        assert!(rig.handlers.write("f.src", "1.2.3.4").is_err());
        assert_eq!(
            ["e.src", "e.sport", "e.dport", "f.dst"].map(|name| rig.read(name)),
            ["fe80::7", "7", "10", "fe80::8"]
        );
        let sent = rig.receive("a", &[&[1, 2, 3, 4]]);
        let ip = Ip6::at(&sent[0].1, 0).unwrap();
        let (src, dst) = (ip.src().to_be_bytes(), ip.dst().to_be_bytes());
        assert_eq!((src[15], sent[0].1[43]), (7, 10));
        assert_eq!(pseudo_v6(&src, &dst, UDP, 12).bytes(&sent[0].1[40..]).finish(), 0);
        assert_eq!(rig.receive("b", &[&[1]])[0].1[39], 8);
    }

    #[test]
    fn destinations_are_those_of_annotations() {
        for encap in ["IP6Encap(4, fe80::1, DST_ANNO)", "UDPIP6Encap(fe80::1, 1, DST_ANNO, 5)"] {
            let text =
                format!("FromDevice(a) -> SetIP6Address(fe80::77) -> e :: {encap} -> ToDevice(b)");
            let mut rig = crate::testing::Rig::new(&crate::testing::World::new(), &text);
            let sent = rig.receive("a", &[&[9, 8]]);
            let ip = Ip6::at(&sent[0].1, 0).unwrap();
            assert_eq!(ip.dst(), "fe80::77".parse::<Ipv6Addr>().unwrap().to_bits(), "{encap}");
            assert_eq!(rig.read("e.dst"), "DST_ANNO");
            assert!(rig.handlers.write("e.dst", "::1").is_err(), "it would have no effect");
        }
        let inner = frame_v6("fe80::1", "fe80::2", 64, 17, &[1, 2]);
        let batch = run(&ENCAP, "41, fe80::5, DST_ANNO", 14, &[&inner]);
        assert_eq!(Ip6::at(batch.bytes(0), 0).unwrap().dst() & 0xff, 2, "that of its own header");
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
