//! IPv4 headers before packets: `IPEncap(PROTOCOL, SRC, DST)`, `UDPIPEncap(SRC, SPORT, DST, DPORT)`,
//! `ICMPIPEncap(SRC, DST)`, and `DynamicUDPIPEncap`, whose ports are the next ones after `INTERVAL` packets each (0: never).
//!
//! Source: Click's elements of these names. The TTL is 250 (`TTL`), the type of service that of `TOS` or `DSCP`; each
//! packet has an identification of its own. `ECT` (`true`, or 2 for the other value) and `CE` set the bits of
//! congestion. `DST_ANNO` in the place of `DST` is the destination that the packet's annotation has. `CHECKSUM false`
//! leaves the checksum of UDP out. The network header is the new one. Each worker counts the packets of an `INTERVAL` of
//! its own, and changes the ports of all.

use std::net::Ipv4Addr;
use std::sync::Arc;

use crate::element::click::front::grow;
use crate::element::click::icmp_error::v4_codes;
use crate::element::click::only::address_anno::gone_by;
use crate::element::click::only::checksums::fill_checksums;
use crate::element::support::setting::Setting;
use crate::filter::names::{ICMP_TYPES, Port, number, protocol};
use crate::frame::wire::icmp::PROTOCOL_ICMP;
use crate::frame::wire::protocol::UDP;
use crate::frame::{Batch, Hop};
use crate::graph::{Context, Element, ElementClass, LiveArg, Made, Setup};
use crate::handler::Handler;
use crate::language::{ClassSpec, ConfigError, Value};
use crate::route_table::gateways::Gateways;

pub(crate) const IP: ElementClass = ElementClass {
    spec: spec("IPEncap"),
    summary: "puts an IPv4 header before packets",
    configure: |setup| {
        let kind = setup.args.positional_arg("PROTO")?;
        let src = setup.args.positional::<Ipv4Addr>("SRC");
        let dst = destination(setup);
        let header = Header::read(setup);
        setup.args.finish()?;
        let text = kind.raw();
        let Some(protocol) = protocol(text) else {
            return Err(setup.args.refuse(&kind, &format!("PROTO: `{text}` is no protocol")));
        };
        made(Header { protocol, ..header? }, src?, dst?, (Vec::new(), None), true)
    },
};

pub(crate) const UDP_IP: ElementClass = ElementClass {
    spec: spec("UDPIPEncap"),
    summary: "puts an IPv4 and a UDP header before packets",
    configure: |setup| {
        let src = setup.args.positional::<Ipv4Addr>("SRC");
        let sport = setup.args.positional::<Port>("SPORT");
        let dst = destination(setup);
        let dport = setup.args.positional::<Port>("DPORT");
        let checksum = setup.args.optional("CHECKSUM");
        let header = Header::read(setup);
        setup.args.finish()?;
        let ports = Some([Setting::new(sport?), Setting::new(dport?)]);
        let checksum = checksum?.unwrap_or(true);
        let header = Header { protocol: UDP, ..header? };
        Ok(made(header, src?, dst?, (vec![0; 8], ports), checksum)?.live(&[
            LiveArg { handler: "src", keyword: "SRC" },
            LiveArg { handler: "sport", keyword: "SPORT" },
            LiveArg { handler: "dst", keyword: "DST" },
            LiveArg { handler: "dport", keyword: "DPORT" },
        ]))
    },
};

pub(crate) const DYNAMIC: ElementClass = ElementClass {
    spec: spec("DynamicUDPIPEncap"),
    summary: "puts an IPv4 and a UDP header before packets, with other ports after so many",
    configure: |setup| {
        let src = setup.args.positional::<Ipv4Addr>("SRC");
        let sport = setup.args.positional::<Port>("SPORT");
        let dst = setup.args.positional::<Ipv4Addr>("DST");
        let dport = setup.args.positional::<Port>("DPORT");
        let checksum = setup.args.optional("CHECKSUM");
        let interval = setup.args.optional::<u32>("INTERVAL");
        setup.args.finish()?;
        let ports = Some([Setting::new(sport?), Setting::new(dport?)]);
        let (checksum, interval) = (checksum?.unwrap_or(true), interval?.unwrap_or(0));
        let header = Header { protocol: UDP, ttl: TTL, tos: 0, dont_fragment: false, interval };
        made(header, src?, Destination::Fixed(dst?), (vec![0; 8], ports), checksum)
    },
};

pub(crate) const ICMP_IP: ElementClass = ElementClass {
    spec: spec("ICMPIPEncap"),
    summary: "puts an IPv4 and an ICMP header before packets",
    configure: |setup| {
        let src = setup.args.positional::<Ipv4Addr>("SRC");
        let dst = destination(setup);
        let kind = setup.args.optional_arg("TYPE")?;
        let code = setup.args.optional_arg("CODE")?;
        let id = setup.args.keyword::<u16>("IDENTIFIER");
        let seq = setup.args.keyword::<u16>("SEQUENCE");
        let header = Header::read(setup);
        setup.args.finish()?;
        let kind = match kind {
            None => 8,
            Some(arg) => {
                let named =
                    number(ICMP_TYPES, arg.raw()).and_then(|number| u8::try_from(number).ok());
                match named.or_else(|| u8::read(arg.raw()).ok()) {
                    Some(kind) => kind,
                    None => return Err(setup.args.refuse(&arg, "TYPE: no type of ICMP")),
                }
            }
        };
        let code = match code {
            None => 0,
            Some(arg) => match code_of(kind, arg.raw()) {
                Some(code) => code,
                None => return Err(setup.args.refuse(&arg, "CODE: no code of this type")),
            },
        };
        let mut icmp = vec![kind, code, 0, 0];
        icmp.extend([id?.unwrap_or(0), seq?.unwrap_or(0)].map(u16::to_be_bytes).concat());
        made(Header { protocol: PROTOCOL_ICMP, ..header? }, src?, dst?, (icmp, None), true)
    },
};

/// Code of a type of ICMP, a name or a number.
fn code_of(kind: u8, text: &str) -> Option<u8> {
    let named = number(v4_codes(kind), text).and_then(|number| u8::try_from(number).ok());
    named.or_else(|| u8::read(text).ok())
}

const fn spec(name: &'static str) -> ClassSpec {
    ClassSpec::new(name, "1/1", "a/a", "x/x")
}

/// TTL of packets, in Click.
const TTL: u8 = 250;

/// What all headers have.
struct Header {
    protocol: u8,
    ttl: u8,
    tos: u8,
    dont_fragment: bool,
    /// Packets after which the ports are others; 0 for never.
    interval: u32,
}

impl Header {
    fn read(setup: &mut Setup<'_>) -> Result<Self, ConfigError> {
        let ttl = setup.args.keyword("TTL");
        let tos = setup.args.keyword::<u8>("TOS");
        let dscp = setup.args.keyword::<Dscp>("DSCP");
        let df = setup.args.keyword("DF");
        let ect = setup.args.keyword::<Ect>("ECT");
        let ce = setup.args.keyword::<bool>("CE");
        let (tos, dscp, ect, ce) = (tos?, dscp?, ect?, ce?);
        if tos.is_some() && (dscp.is_some() || ect.is_some() || ce.is_some()) {
            return Err(setup
                .args
                .refuse_all("give TOS, or DSCP, ECT and CE, which are parts of it"));
        }
        let congestion = match ce {
            Some(true) => 3,
            _ => ect.map_or(0, |ect| ect.0),
        };
        let dscp = dscp.map(|dscp| dscp.0 << 2);
        Ok(Self {
            protocol: 0,
            ttl: ttl?.unwrap_or(TTL),
            tos: tos.or(dscp).unwrap_or(0) | congestion,
            dont_fragment: df?.unwrap_or(false),
            interval: 0,
        })
    }
}

/// Differentiated services code point.
struct Dscp(u8);

impl Value for Dscp {
    fn read(text: &str) -> Result<Self, String> {
        let dscp = u8::read(text).ok().filter(|&dscp| dscp < 64);
        dscp.map(Self).ok_or_else(|| "no DSCP: 0 to 63".into())
    }
}

/// The bits of a transport that knows of congestion: of its two values the first is `true`.
struct Ect(u8);

impl Value for Ect {
    fn read(text: &str) -> Result<Self, String> {
        match text {
            "2" => Ok(Self(2)),
            _ => bool::read(text).map(|on| Self(on.into())),
        }
    }
}

/// Where packets go.
enum Destination {
    /// All to this address.
    Fixed(Ipv4Addr),
    /// Each to the address of its annotation.
    Annotation(Arc<Gateways>),
}

const DST_ANNO: &str = "DST_ANNO";

fn destination(setup: &mut Setup<'_>) -> Result<Destination, ConfigError> {
    let arg = setup.args.positional_arg("DST")?;
    match arg.raw() {
        DST_ANNO => Ok(Destination::Annotation(setup.gateways.clone())),
        _ => setup.args.read(&arg, "DST").map(Destination::Fixed),
    }
}

fn made(
    header: Header,
    src: Ipv4Addr,
    dst: Destination,
    (transport, ports): (Vec<u8>, Option<[Setting<Port>; 2]>),
    checksum: bool,
) -> Result<Made, ConfigError> {
    let (dst, by_annotation) = match dst {
        Destination::Fixed(dst) => (dst, None),
        Destination::Annotation(gateways) => (Ipv4Addr::UNSPECIFIED, Some(gateways)),
    };
    let (src, dst) = (Setting::new(src), Setting::new(dst));
    let is_fixed = by_annotation.is_none();
    let mut bytes = vec![0x45, header.tos, 0, 0, 0, 0];
    bytes.extend([if header.dont_fragment { 0x40 } else { 0 }, 0, header.ttl, header.protocol]);
    bytes.extend([0; 10]);
    bytes.extend(transport);
    let made = Made::new({
        let (src, dst, ports) = (src.clone(), dst.clone(), ports.clone());
        move |instance| Encap {
            bytes: bytes.clone(),
            src: src.clone(),
            dst: dst.clone(),
            by_annotation: by_annotation.clone(),
            ports: ports.clone(),
            checksum,
            // A packet that is only evaluated is none of them.
            interval: if instance.is_dry_run() { 0 } else { header.interval },
            sent: 0,
            id: 0,
        }
    });
    let made = match &ports {
        Some([sport, dport]) => dport.handled(sport.handled(made, "sport"), "dport"),
        None => made,
    };
    let made = src.handled(made, "src");
    Ok(match is_fixed {
        true => dst.handled(made, "dst"),
        false => made.handler(Handler::read("dst", || DST_ANNO.to_owned())),
    })
}

struct Encap {
    /// The headers, without lengths, addresses, identification and checksums.
    bytes: Vec<u8>,
    src: Setting<Ipv4Addr>,
    dst: Setting<Ipv4Addr>,
    /// Gateways by number, where each packet goes to the address of its annotation.
    by_annotation: Option<Arc<Gateways>>,
    /// Those of UDP.
    ports: Option<[Setting<Port>; 2]>,
    checksum: bool,
    interval: u32,
    /// Packets since the ports changed.
    sent: u32,
    id: u16,
}

impl Encap {
    /// Notes that a packet has its headers.
    fn count(&mut self) {
        let Some(ports) = self.ports.as_ref().filter(|_| self.interval > 0) else { return };
        self.sent += 1;
        if self.sent >= self.interval {
            self.sent = 0;
            ports.iter().for_each(|port| port.change(|port| Port(port.0.wrapping_add(1))));
        }
    }
}

impl Element for Encap {
    fn process(&mut self, _: u16, batch: &mut Batch, _: &mut Context<'_>) {
        let length = u8::try_from(self.bytes.len()).unwrap_or(u8::MAX);
        for i in 0..batch.len() {
            let dst = match &self.by_annotation {
                None => self.dst.get(),
                Some(gateways) => gone_by(gateways, batch, i).unwrap_or(Ipv4Addr::UNSPECIFIED),
            };
            if !grow(batch, i, length) {
                continue;
            }
            let packet = batch.bytes_mut(i);
            packet[..self.bytes.len()].copy_from_slice(&self.bytes);
            let total = u16::try_from(packet.len()).unwrap_or(u16::MAX);
            packet[2..4].copy_from_slice(&total.to_be_bytes());
            packet[4..6].copy_from_slice(&self.id.to_be_bytes());
            packet[12..16].copy_from_slice(&self.src.get().octets());
            packet[16..20].copy_from_slice(&dst.octets());
            self.id = self.id.wrapping_add(1);
            if let Some([sport, dport]) = &self.ports {
                packet[20..22].copy_from_slice(&sport.get().0.to_be_bytes());
                packet[22..24].copy_from_slice(&dport.get().0.to_be_bytes());
                packet[24..26].copy_from_slice(&(total - 20).to_be_bytes());
            }
            // Of what others wrote behind the header nothing is changed.
            if self.bytes.len() > 20 {
                fill_checksums(packet);
                if !self.checksum {
                    packet[26..28].fill(0);
                }
            } else {
                fill_checksums(&mut packet[..20]);
            }
            let meta = &mut batch.meta_mut()[i];
            (meta.network, meta.hop) = (0, Hop::NONE);
            self.count();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::wire::checksum::checksum;
    use crate::testing::{Rig, World, refused, run};

    #[test]
    fn headers_come_before_packets() {
        let batch = run(&IP, "tcp, 1.0.0.1, 2.0.0.2", 0, &[&[9, 8]]);
        let want = [0x45, 0, 0, 22, 0, 0, 0, 0, 250, 6];
        assert_eq!(
            (&batch.bytes(0)[..10], &batch.bytes(0)[12..]),
            (&want[..], &[1, 0, 0, 1, 2, 0, 0, 2, 9, 8][..])
        );
        assert_eq!(checksum(&batch.bytes(0)[..20]), 0);
        let batch = run(&UDP_IP, "1.0.0.1, 7, 2.0.0.2, 9, TTL 3, DSCP 10", 0, &[&[9, 8]]);
        assert_eq!(
            (batch.bytes(0)[1], batch.bytes(0)[8], &batch.bytes(0)[20..26]),
            (40, 3, &[0, 7, 0, 9, 0, 10][..])
        );
        let batch = run(&ICMP_IP, "1.0.0.1, 2.0.0.2, TYPE 3, CODE 1", 0, &[&[9, 8]]);
        assert_eq!((batch.frame_len(0), &batch.bytes(0)[20..22]), (30, &[3, 1][..]));
        assert_eq!(checksum(&batch.bytes(0)[20..]), 0);
        for (config, code) in [("unreachable, port", 3), ("redirect, tosnet", 2), ("11, 1", 1)] {
            let batch = run(&ICMP_IP, &format!("1.0.0.1, 2.0.0.2, {config}"), 0, &[&[9, 8]]);
            assert_eq!(batch.bytes(0)[21], code, "{config}");
        }
        assert!(refused(&ICMP_IP, "1.0.0.1, 2.0.0.2, echo, port").contains("no code of this type"));
        let text = "FromDevice(a) -> u :: UDPIPEncap(1.0.0.1, 7, 2.0.0.2, 9, ECT true) -> CheckIPHeader -> CheckUDPHeader -> ToDevice(b)";
        let mut rig = Rig::new(&World::new(), text);
        rig.write("u.dport", "258");
        let sent = &rig.receive("a", &[&[9, 8]])[0].1;
        assert_eq!(
            (sent[1], &sent[20..24], rig.read("u.sport")),
            (1, &[0, 7, 1, 2][..], "7".into())
        );
        rig.write("u.config", "1.0.0.3, 8, 2.0.0.4, 9, ECT true");
        let sent = &rig.receive("a", &[&[9, 8]])[0].1;
        assert_eq!(sent[12..24], [1, 0, 0, 3, 2, 0, 0, 4, 0, 8, 0, 9]);
        for (config, tos) in [
            ("", 0),
            ("ECT false", 0),
            ("ECT true", 1),
            ("ECT 2, DSCP 10", 42),
            ("CE true, ECT true", 3),
            ("TOS 37", 37),
        ] {
            let batch = run(&IP, &format!("tcp, 1.0.0.1, 2.0.0.2, {config}"), 0, &[&[9, 8]]);
            assert_eq!(batch.bytes(0)[1], tos, "{config}");
        }
        for rest in ["DSCP 1", "ECT false", "CE true"] {
            let words = refused(&IP, &format!("tcp, 1.0.0.1, 2.0.0.2, TOS 1, {rest}"));
            assert!(words.contains("parts of it"), "{words}");
        }
        assert!(refused(&IP, "tcp, 1.0.0.1, 2.0.0.2, DSCP 64").contains("0 to 63"));
        assert!(refused(&IP, "x, 1.0.0.1, 2.0.0.2").contains("`x` is no protocol"));
    }

    #[test]
    fn ports_change_after_an_interval() {
        let text = "FromDevice(a) -> u :: DynamicUDPIPEncap(1.0.0.1, 65535, 2.0.0.2, 9, INTERVAL 2)
            -> CheckIPHeader -> CheckUDPHeader -> ToDevice(b)";
        let mut rig = Rig::new(&World::new(), text);
        rig.dry_run("a", &[9, 8]).unwrap();
        let sent = rig.receive("a", &[&[9, 8][..]; 5]);
        let ports: Vec<_> = sent.iter().map(|(_, packet)| &packet[20..24]).collect();
        let (first, second) = ([255_u8, 255, 0, 9], [0, 0, 0, 10]);
        assert_eq!(ports, [first, first, second, second, [0, 1, 0, 11]]);
        let batch =
            run(&DYNAMIC, "1.0.0.1, 7, 2.0.0.2, 9, false, 0", 0, &[&[9, 8], &[9, 8], &[9, 8]]);
        assert!((0..3).all(|i| batch.bytes(i)[20..28] == [0, 7, 0, 9, 0, 10, 0, 0]));
        assert!(refused(&DYNAMIC, "1.0.0.1, 7, 2.0.0.2, 9, INTERVAL -1").contains("INTERVAL"));
    }

    #[test]
    fn destinations_are_those_of_annotations() {
        for encap in [
            "IPEncap(4, 1.0.0.1, DST_ANNO)",
            "UDPIPEncap(1.0.0.1, 1, DST_ANNO, 5)",
            "ICMPIPEncap(1.0.0.1, DST_ANNO)",
        ] {
            let text =
                format!("FromDevice(a) -> SetIPAddress(5.6.7.8) -> e :: {encap} -> ToDevice(b)");
            let mut rig = Rig::new(&World::new(), &text);
            assert_eq!(rig.receive("a", &[&[9, 8]])[0].1[16..20], [5, 6, 7, 8], "{encap}");
            assert_eq!(rig.read("e.dst"), "DST_ANNO");
            assert!(rig.handlers.write("e.dst", "1.2.3.4").is_err(), "it would have no effect");
        }
        assert!(refused(&IP, "4, 1.0.0.1, DST").contains("DST: `DST` is no IPv4 address"));
    }
}
