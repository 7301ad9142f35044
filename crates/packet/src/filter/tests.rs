//! Filters against a slow reader of packets and of expressions before they are text.

use super::*;
use proptest::prelude::*;
use std::net::IpAddr;

use crate::frame::wire::ETHER_BYTES;
use crate::testing::{frame_v4, frame_v6};

fn v4(src: &str, dst: &str, protocol: u8, payload: &[u8]) -> Vec<u8> {
    frame_v4(src, dst, 64, protocol, payload)[ETHER_BYTES..].to_vec()
}

fn v6(src: &str, dst: &str, next: u8, payload: &[u8]) -> Vec<u8> {
    frame_v6(src, dst, 64, next, payload)[ETHER_BYTES..].to_vec()
}

/// Ports, and for TCP the rest of a header with these flags.
fn ports(src: u16, dst: u16, flags: u8) -> Vec<u8> {
    let mut bytes = vec![0; 20];
    bytes[..2].copy_from_slice(&src.to_be_bytes());
    bytes[2..4].copy_from_slice(&dst.to_be_bytes());
    bytes[13] = flags;
    bytes
}

/// Which of the packets a filter takes, as a text of 0 and 1.
fn taken(text: &str, packets: &[Vec<u8>]) -> String {
    let filter = Filter::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    packets.iter().map(|packet| if filter.matches(packet) { '1' } else { '0' }).collect()
}

#[test]
fn primitives() {
    let mut options = v4("10.0.0.1", "192.0.2.1", 17, &ports(53, 4000, 0));
    options[0] = 0x46;
    options[2..4].copy_from_slice(&44_u16.to_be_bytes());
    options.splice(20..20, [1, 1, 1, 0]);
    let mut later = v4("10.0.0.1", "192.0.2.1", 17, &ports(53, 53, 0));
    later[7] = 2;
    let mut first = v4("10.0.0.1", "192.0.2.1", 6, &ports(53, 53, 2));
    first[6] = 0x20;
    let mut marked = v4("1.2.3.4", "5.6.7.8", 1, &[8, 0, 0, 0]);
    marked[1] = 0xbb;
    marked[8] = 1;
    let packets = [
        v4("10.0.0.1", "192.0.2.1", 6, &ports(4000, 80, 0x12)),
        options,
        later,
        first,
        marked,
        v6("2001:db8::1", "2001:db8:1::2", 58, &[128, 0, 0, 0]),
        v6("2001:db8::1", "2001:db8:1::2", 17, &ports(53, 53, 0)),
        v6("::1", "2001:db8:1::2", 44, &[&[6, 0, 0, 1, 0, 0, 0, 0][..], &ports(80, 1, 1)].concat()),
        vec![],
        vec![0x15; 60],
    ];
    for (text, want) in [
        ("any", "1111111111"),
        ("-", "1111111111"),
        ("none", "0000000000"),
        ("not all", "0000000000"),
        ("src host 10.0.0.1", "1111000000"),
        ("src 10.0.0.1", "1111000000"),
        ("10.0.0.1", "1111000000"),
        ("host 5.6.7.8", "0000100000"),
        ("host != 5.6.7.8", "1111011111"),
        ("dst net 192.0.0.0/16", "1111000000"),
        ("net 10.0.0.0 mask 255.0.0.0", "1111000000"),
        ("10/8", "1111000000"),
        ("src net 0.0.0.0/0", "1111100000"),
        ("net ::/0", "0000011100"),
        ("src 2001:db8::/64", "0000011000"),
        ("dst 2001:db8:1::2", "0000011100"),
        ("src and dst net 2001:db8::/32", "0000011000"),
        ("src or dst net 2001:db8::/32", "0000011100"),
        ("dst or src host 1.2.3.4 or 10.0.0.1", "1111100000"),
        ("tcp", "1001000100"),
        ("proto udp or 58", "0110011000"),
        ("ip proto icmp", "0000100000"),
        ("ip proto != 17", "1001110100"),
        ("gre or icmp6", "0000010000"),
        ("port 53", "0101001000"),
        ("src port domain", "0101001000"),
        ("src and dst port 53", "0001001000"),
        ("udp port 53", "0100001000"),
        ("tcp dst port http or 53", "1001000000"),
        ("port != 53", "1000000100"),
        ("not port 53", "1010110111"),
        ("src port < 54", "0101001000"),
        ("port >= 4000", "1100000000"),
        // As Click has it, the contrary of `>=` and `>`.
        ("port < 4000", "0001001100"),
        ("port <= 80", "0001001100"),
        ("port < 54", "0001001000"),
        ("src and dst port < 54", "0101001100"),
        ("src or dst port > 53", "1100000100"),
        ("icmp type echo", "0000100000"),
        ("icmp6 type echo or 1", "0000010000"),
        ("icmp type != 3", "0000100000"),
        ("tcp opt syn", "1001000000"),
        ("tcp opt syn and ack", "1000000000"),
        ("tcp opt != fin", "1001000000"),
        ("ip vers 4", "1111100000"),
        ("ip vers = 6", "0000011100"),
        ("ip hl > 5", "0100000000"),
        ("ip tos 0xbb", "0000100000"),
        ("ip dscp 46", "0000100000"),
        ("ip dscp < 46", "1111011100"),
        ("ip ce", "0000100000"),
        ("ip ect", "0000100000"),
        ("ip ttl <= 1", "0000100000"),
        ("ip ttl < 2 or > 64", "0000100000"),
        ("ip ttl 1-63", "0000100000"),
        ("ip dscp ef", "0000100000"),
        ("ip dscp be or ef", "1111111100"),
        ("ip laterfrag", "0010000000"),
        ("port 52-54", "0101001000"),
        ("src and dst port 50-60", "0001001000"),
        ("udp port 1-52 or 53-60", "0100001000"),
        ("dst port 54-79 or 80-80", "1000000000"),
        ("icmp type 0-8", "0000100000"),
        ("tcp established", "1000000000"),
        ("not tcp established", "0111111111"),
        ("ip len 40", "1011000000"),
        ("ip id 0x1c46", "1111100000"),
        ("ip frag", "0011000100"),
        ("ip unfrag", "1100111000"),
        ("ip[6:2] & 0x1fff = 0", "1101100000"),
        ("ip[6:2] & 0x2000 != 0", "0001000000"),
        ("ip[9] 17 or 1", "0110100000"),
        ("ip[16:4] = 0xc0000201", "1111000000"),
        ("not ip[8]&0xf0 = 0x40", "0000111111"),
        ("ip[39] >= 0", "1111000000"),
        ("ip6[6] = 58", "0000010000"),
        ("ip6[40:2] & 0xff > 50", "0000001000"),
        ("tcp[13] & 0x12 = 0x12", "1000000000"),
        ("tcp[13] & 0x12 < 0x12", "0001000100"),
        ("udp[2:2] = 4000 or 53", "0100001000"),
        ("udp[2:2] = 4000 or tcp[2:2] 80 or 53", "1101000000"),
        ("icmp[0] = 8 or icmp6[0] = 128", "0000110000"),
        ("transp[0:2] = 53", "0101001000"),
        ("(tcp or udp) && !(src 10.0.0.1 || port 80)", "0000001000"),
        ("not not tcp", "1001000100"),
        ("tcp and not dst port 80 or icmp", "0001100100"),
        ("tcpudp", "1111001100"),
        ("tcpudp port 53", "0101001000"),
        ("tcpudp port >= 4000", "1100000000"),
        ("tcp syn", "1001000000"),
        ("syn", "1001000000"),
        ("syn and !ack", "0001000000"),
        ("not fin", "1111111011"),
        ("proto tcp and !(syn and !ack)", "1000000100"),
        ("win 0", "1001000100"),
        ("tcp win = 0 dst port 80", "1000000000"),
        ("tcp win > 0", "0000000000"),
        ("tcp dst port 53", "0001000000"),
        ("tcp src host 10.0.0.1 dst port 80", "1000000000"),
        ("src 10.0.0.1 udp dst port 4000", "0100000000"),
        ("dst http", "1000000000"),
        ("icmp echo", "0000100000"),
        ("type echo", "0000100000"),
        ("ttl < 64", "0000100000"),
        ("frag", "0011000100"),
        ("ip host 1.2.3.4", "0000100000"),
        ("src not host 10.0.0.1", "0000111111"),
        ("src or dest 1.2.3.4", "0000100000"),
        ("tcp ? dst port 80 : udp", "1110001000"),
        ("tcp ? dst port 80 : udp ? src port 53 : icmp", "1100101000"),
        ("ip[0] & 0x0f = 0x45", "1011100000"),
        ("ip [9] = 17", "0110000000"),
        ("tcp [13] & 2 != 0", "1001000000"),
        ("ip ttl & 1 = 3", "0000100000"),
        ("src port & 1 = 1", "0101001000"),
        ("src host & 255.0.0.0 = 10.9.9.9", "1111000000"),
        ("ip[0] & 0xf0 > 0x45", "0000000000"),
        ("ip[0] & 0xf0 < 0x45", "1111100000"),
        ("ether host 1:2:3:4:5:6", "0000000000"),
        ("opt syn", "1001000000"),
        ("ip src host 10.0.0.1", "1111000000"),
        ("ip dst tcp port 80", "1000000000"),
        ("not tcp 10.0.0.1", "0110111111"),
        ("src host 9.9.9.9 or tcp 192.0.2.1", "1001000000"),
        ("src port 80 or icmp echo", "0000100100"),
        ("icmp type 3 or tcp http", "1000000100"),
        ("proto != tcpudp", "0000110000"),
    ] {
        assert_eq!(taken(text, &packets), want, "{text}");
    }
}

#[test]
fn conditions_inside_each_other_do_not_double_without_end() {
    let inside = |n: usize| format!("{}tcp{}", "(".repeat(n), " ? udp : icmp)".repeat(n));
    assert!(Condition::parse(&inside(8)).is_ok());
    let error = Condition::parse(&inside(60)).unwrap_err().to_string();
    assert!(error.contains("at most 4096 tests before all `?`"), "{error}");
}

#[test]
fn ethernet_addresses_are_those_before_the_packet() {
    let packet = v4("10.0.0.1", "192.0.2.1", 17, &ports(53, 53, 0));
    let link = [2, 0, 0, 0, 0, 7, 2, 0, 0, 0, 0, 9, 8, 0];
    for (text, want) in [
        ("ether host 2:0:0:0:0:7", true),
        ("ether 2:0:0:0:0:8", false),
        ("dst ether host 2:0:0:0:0:7", true),
        ("src 2:0:0:0:0:7", false),
        ("ether src and dst 2:0:0:0:0:7", false),
        ("src ether != 2:0:0:0:0:8 udp", true),
        ("ether src 2:0:0:0:0:8 or 2:0:0:0:0:9", true),
    ] {
        let condition = Condition::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        let choice = Choice::new([(condition, Some(0))]);
        assert!(choice.reads_link(), "{text}");
        assert_eq!(choice.find_behind(&link, &packet).is_some(), want, "{text}");
    }
    assert!(!Choice::new([(Condition::parse("udp").unwrap(), Some(0))]).reads_link());
}

#[test]
fn errors_say_what_was_expected_and_where() {
    for (text, at, words) in [
        ("", 0, "a primitive, as `src host 10.0.0.1`, `dst port 80` or `icmp`"),
        ("tcp and", 7, "a primitive, as `src host 10.0.0.1`, `dst port 80` or `icmp`"),
        ("bogus", 0, "a primitive, as `src host 10.0.0.1`, `dst port 80` or `icmp`"),
        ("tcp udp", 0, "another word here: it does not go with what follows"),
        ("tcp or udp icmp", 7, "another word here: it does not go with what follows"),
        ("src", 3, "a primitive, as `src host 10.0.0.1`, `dst port 80` or `icmp`"),
        ("host x", 5, "an IPv4 or IPv6 address"),
        ("ip[6:5] = 0", 0, "an offset, and a length of 1 to 4, as `[6:2]`"),
        ("ip[x] = 0", 0, "an offset, and a length of 1 to 4, as `[6:2]`"),
        ("tcp and ip[6", 8, "an offset, and a length of 1 to 4, as `[6:2]`"),
        ("eth[0] = 1", 0, "ip, ip6, tcp, udp, icmp, icmp6 or transp before `[`"),
        ("ip[0] & 0x1ff = 1", 8, "a mask of 1 to 0xff"),
        ("ip[0] & = 1", 8, "a mask of 1 to 0xff"),
        ("ip[0] = 256", 8, "a number up to 255"),
        ("ip[0] &", 7, "a mask of 1 to 0xff"),
        ("ip[0]", 5, "a number"),
        ("tcp ip[0] = 1", 0, "another word here: it does not go with what follows"),
        ("src ip[0] = 1", 0, "a host, net or port behind `src` and `dst`"),
        ("host 10.0.0.0/8", 5, "an IPv4 or IPv6 address"),
        ("net 10.0.0.1", 4, "a prefix, as 10.0.0.0/8 or 2001:db8::/32"),
        ("10.0.0.0/33", 0, "a prefix, as 10.0.0.0/8 or 2001:db8::/32"),
        ("net 10.0.0.0 mask 255.0.255.0", 18, "a mask without holes, as 255.255.0.0"),
        ("net 10.0.0.0 mask", 17, "a mask without holes, as 255.255.0.0"),
        ("port", 4, "a port"),
        ("port = ", 6, "a port"),
        ("port 65536", 5, "a number up to 65535 or a known name"),
        ("dst port htp", 9, "a number up to 65535 or a known name"),
        ("80", 0, "`port`, or a field as `ip ttl`, before a number"),
        ("tcp or 80x", 7, "a number up to 255 or a known name"),
        ("host 1.2.3.4 or 80", 16, "`port`, or a field as `ip ttl`, before a number"),
        ("ip ttl 256", 7, "a number up to 255"),
        ("ip ttl 1-256", 9, "a number up to 255"),
        ("ip ttl 9-8", 7, "the lower number first"),
        ("port > 1-2", 7, "one number behind a relation"),
        ("src tcp established", 0, "a host, net or port behind `src` and `dst`"),
        ("ip dscp af14", 8, "a number up to 63 or a known name"),
        ("ip dscp 64", 8, "a number up to 63 or a known name"),
        ("ip", 2, "one of proto vers hl tos dscp ttl len id frag unfrag laterfrag ect ce"),
        ("ip bogus 3", 3, "one of proto vers hl tos dscp ttl len id frag unfrag laterfrag ect ce"),
        ("src ip frag", 0, "`ip` alone before its flags"),
        ("src ip ttl 3", 0, "a host, net or port behind `src` and `dst`"),
        ("icmp port 3", 0, "another word here: it does not go with what follows"),
        ("echo", 0, "`port` or `icmp type` before a name of both"),
        ("tcp ? udp", 9, "`:` and what holds otherwise"),
        ("ether src 1:2:3", 10, "an Ethernet address, as 02:00:00:00:00:01"),
        ("tcp opt foo", 8, "one of syn ack fin rst psh urg"),
        ("host < 1.2.3.4", 5, "`=` or `!=`: these have no order"),
        ("tcp)", 3, "a `(` before this `)`"),
        ("(tcp", 4, "`and`, `or` or `)`"),
        ("any :", 4, "`and`, `or` or the end"),
        ("tcp & udp", 6, "a field with a number before `&`"),
        ("tcp | udp", 4, "`and`, `or` or the end"),
    ] {
        let error = Filter::parse(text).expect_err(text);
        assert_eq!(error.at, at, "{text}: {error}");
        assert!(error.message.eq(&format!("expected {words}")), "{text}: {error}");
    }
    let deep = |n: usize| format!("{}tcp{}", "(".repeat(n), ")".repeat(n));
    assert!(Filter::parse(&deep(64)).is_ok());
    assert_eq!(Filter::parse(&deep(65)).unwrap_err().at, 64);
    assert!(Filter::parse(&"not ".repeat(100_000)).is_err());
}

/// An expression before it is text.
#[derive(Clone, Debug)]
enum Plain {
    Any(Vec<Plain>),
    All(Vec<Plain>),
    Not(Box<Plain>),
    Net(&'static str, IpAddr, u8, bool),
    Port(&'static str, &'static str, &'static str, u16),
    Proto(&'static str, u8),
    IcmpType(u8),
    TcpFlag(&'static str, u8),
    Number(&'static str, &'static str, u32),
    Word(&'static str),
}

impl Plain {
    fn text(&self) -> String {
        let list = |parts: &[Self], sign: &str, empty: &str| match parts {
            [] => empty.to_owned(),
            _ => format!("({})", parts.iter().map(Self::text).collect::<Vec<_>>().join(sign)),
        };
        match self {
            Self::Any(parts) => list(parts, " or ", "none"),
            Self::All(parts) => list(parts, "&&", "all"),
            Self::Not(part) => format!("!{}", part.text()),
            Self::Net(ends, addr, len, differs) => {
                format!("{ends} net {} {addr}/{len}", if *differs { "!=" } else { "" })
            }
            Self::Port(ends, transport, sign, port) => {
                format!("{ends} {transport} port {sign} {port}")
            }
            Self::Proto(sign, protocol) => format!("ip proto {sign} {protocol}"),
            Self::IcmpType(kind) => format!("icmp type {kind}"),
            Self::TcpFlag(name, _) => format!("tcp opt {name}"),
            Self::Number(field, sign, value) => format!("ip {field} {sign} {value}"),
            Self::Word(word) => (*word).to_owned(),
        }
    }

    fn holds(&self, p: &[u8]) -> bool {
        let number = |have: Option<u32>, sign: &str, value: u32| {
            have.is_some_and(|have| match sign {
                "!=" => have != value,
                "<" => have < value,
                ">" => have > value,
                "<=" => have <= value,
                ">=" => have >= value,
                _ => have == value,
            })
        };
        match self {
            Self::Any(parts) => parts.iter().any(|part| part.holds(p)),
            Self::All(parts) => parts.iter().all(|part| part.holds(p)),
            Self::Not(part) => !part.holds(p),
            Self::Net(ends, addr, len, differs) => {
                let one = |src| address(p, src).is_some_and(|have| lies_in(have, *addr, *len));
                differs ^ both(ends, one(true), one(false))
            }
            Self::Port(ends, transport, sign, port) => {
                let Some((protocol, transport_bytes)) = transport_of(p) else { return false };
                let is = match *transport {
                    "tcp" => protocol == 6,
                    "udp" => protocol == 17,
                    _ => protocol == 6 || protocol == 17,
                };
                if !is || transport_bytes.len() < 4 {
                    return false;
                }
                let port_at = |at: usize| Some(word(transport_bytes, at)?.into());
                let contraries = [("!=", "="), ("<", ">="), ("<=", ">")];
                if let Some((_, other)) = contraries.iter().find(|pair| pair.0 == *sign) {
                    let one = |at| number(port_at(at), other, (*port).into());
                    return !both(ends, one(0), one(2));
                }
                let one = |at| number(port_at(at), sign, (*port).into());
                both(ends, one(0), one(2))
            }
            Self::Proto(sign, want) => number(protocol_of(p).map(Into::into), sign, (*want).into()),
            Self::IcmpType(kind) => transport_of(p)
                .is_some_and(|(protocol, t)| protocol == 1 && t.first() == Some(kind)),
            Self::TcpFlag(_, bit) => transport_of(p).is_some_and(|(protocol, t)| {
                protocol == 6 && t.get(13).is_some_and(|flags| flags & bit != 0)
            }),
            Self::Number(field, sign, value) => number(field_of(p, field), sign, *value),
            Self::Word(word) => match *word {
                "tcp" => protocol_of(p) == Some(6),
                "icmp" => protocol_of(p) == Some(1),
                "ip frag" => fragment_of(p).is_some_and(|f| f.0),
                "ip unfrag" => fragment_of(p).is_some_and(|f| !f.0),
                "ip ce" => field_of(p, "tos").is_some_and(|tos| tos & 3 == 3),
                _ => field_of(p, "tos").is_some_and(|tos| tos & 3 != 0),
            },
        }
    }
}

fn both(ends: &str, src: bool, dst: bool) -> bool {
    match ends {
        "src" => src,
        "dst" => dst,
        "src and dst" => src && dst,
        _ => src || dst,
    }
}

/// 4, 6, or 0 for what has no whole header.
fn family(p: &[u8]) -> u8 {
    match p.first().map(|first| first >> 4) {
        Some(4) if p.len() >= 20 => 4,
        Some(6) if p.len() >= 40 => 6,
        _ => 0,
    }
}

fn word(p: &[u8], at: usize) -> Option<u16> {
    Some(u16::from(*p.get(at)?) << 8 | u16::from(*p.get(at + 1)?))
}

fn address(p: &[u8], src: bool) -> Option<IpAddr> {
    match family(p) {
        4 => {
            let at = if src { 12 } else { 16 };
            Some(IpAddr::from(<[u8; 4]>::try_from(&p[at..at + 4]).unwrap()))
        }
        6 => {
            let at = if src { 8 } else { 24 };
            Some(IpAddr::from(<[u8; 16]>::try_from(&p[at..at + 16]).unwrap()))
        }
        _ => None,
    }
}

fn lies_in(have: IpAddr, prefix: IpAddr, len: u8) -> bool {
    let bits = |addr: IpAddr| match addr {
        IpAddr::V4(addr) => addr.octets().to_vec(),
        IpAddr::V6(addr) => addr.octets().to_vec(),
    };
    let bit = |bytes: &[u8], n: usize| bytes[n / 8] >> (7 - n % 8) & 1;
    let (have, prefix) = (bits(have), bits(prefix));
    have.len() == prefix.len() && (0..usize::from(len)).all(|n| bit(&have, n) == bit(&prefix, n))
}

fn field_of(p: &[u8], field: &str) -> Option<u32> {
    let family = family(p);
    let tos = |p: &[u8]| if family == 4 { p[1] } else { p[0] << 4 | p[1] >> 4 };
    if family == 0 {
        return None;
    }
    Some(match (field, family) {
        ("vers", _) => family.into(),
        ("hl", 4) => (p[0] & 15).into(),
        ("tos", _) => tos(p).into(),
        ("dscp", _) => (tos(p) >> 2).into(),
        ("ttl", 4) => p[8].into(),
        ("ttl", _) => p[7].into(),
        ("len", 4) => word(p, 2)?.into(),
        ("len", _) => u32::from(word(p, 4)?) + 40,
        ("id", 4) => word(p, 4)?.into(),
        _ => return None,
    })
}

/// Where the upper layer is, its protocol, and whether it is a fragment and a later one. Written anew, with
/// recursion, from RFC 8200.
fn walk(
    p: &[u8],
    next: u8,
    at: usize,
    fragment: Option<bool>,
) -> Option<(u8, usize, Option<bool>)> {
    if at > p.len() {
        return None;
    }
    let byte = |n: usize| p.get(at + n).copied();
    match next {
        _ if fragment == Some(true) => Some((next, at, fragment)),
        0 | 43 | 60 => walk(p, byte(0)?, at + 8 + 8 * usize::from(byte(1)?), fragment),
        51 => walk(p, byte(0)?, at + 8 + 4 * usize::from(byte(1)?), fragment),
        44 => walk(p, byte(0)?, at + 8, Some(word(p, at + 2)? >> 3 != 0)),
        _ => Some((next, at, fragment)),
    }
}

/// The packet up to its stated end.
fn stated(p: &[u8]) -> &[u8] {
    let end = match family(p) {
        4 => usize::from(word(p, 2).unwrap()),
        _ => 40 + usize::from(word(p, 4).unwrap()),
    };
    &p[..end.min(p.len())]
}

fn protocol_of(p: &[u8]) -> Option<u8> {
    match family(p) {
        4 => Some(p[9]),
        6 => walk(stated(p), p[6], 40, None).map(|found| found.0),
        _ => None,
    }
}

/// Whether it is a fragment, and whether a later one.
fn fragment_of(p: &[u8]) -> Option<(bool, bool)> {
    match family(p) {
        4 => {
            let word = word(p, 6)?;
            Some((word & 0x3fff != 0, word & 0x1fff != 0))
        }
        6 => {
            let fragment = walk(stated(p), p[6], 40, None).and_then(|found| found.2);
            Some((fragment.is_some(), fragment == Some(true)))
        }
        _ => None,
    }
}

fn transport_of(p: &[u8]) -> Option<(u8, &[u8])> {
    if fragment_of(p)?.1 {
        return None;
    }
    let at = match family(p) {
        4 => Some(usize::from(p[0] & 15) * 4).filter(|len| *len >= 20)?,
        _ => walk(stated(p), p[6], 40, None)?.1,
    };
    Some((protocol_of(p)?, stated(p).get(at..)?))
}

const ADDRS: [&str; 6] =
    ["10.0.0.1", "10.0.0.2", "10.1.0.1", "2001:db8::1", "2001:db8::2", "2001:db8:0:1::1"];

fn plain() -> impl Strategy<Value = Plain> {
    let ends = || prop::sample::select(vec!["", "src", "dst", "src or dst", "src and dst"]);
    let sign = || prop::sample::select(vec!["", "=", "==", "!=", "<", ">", "<=", ">="]);
    let port = || prop::sample::select(vec![0_u16, 1, 53, 80, 65535]);
    let addr = prop::sample::select(ADDRS.to_vec()).prop_map(|a| a.parse::<IpAddr>().unwrap());
    let net = (ends(), addr, 0..=128_u8, any::<bool>()).prop_map(|(ends, addr, len, differs)| {
        let len = if addr.is_ipv4() { len % 33 } else { len };
        Plain::Net(ends, addr, len, differs)
    });
    let fields = vec![
        ("vers", 15),
        ("hl", 15),
        ("tos", 255),
        ("dscp", 63),
        ("ttl", 255),
        ("len", 70),
        ("id", 9),
    ];
    let number = (prop::sample::select(fields), sign(), 0..8_u32, any::<u32>()).prop_map(
        |((field, most), sign, small, any)| {
            Plain::Number(field, sign, if any % 2 == 0 { small } else { any % (most + 1) })
        },
    );
    let transport = prop::sample::select(vec!["", "tcp", "udp"]);
    let flags = vec![("syn", 2), ("ack", 16), ("fin", 1), ("rst", 4), ("psh", 8), ("urg", 32)];
    let words = vec!["tcp", "icmp", "ip frag", "ip unfrag", "ip ce", "ip ect"];
    let leaf = prop_oneof![
        3 => net,
        3 => (ends(), transport, sign(), port())
            .prop_map(|(ends, transport, sign, port)| Plain::Port(ends, transport, sign, port)),
        1 => (prop::sample::select(vec!["", "!="]), prop::sample::select(vec![1_u8, 6, 17, 58]))
            .prop_map(|(sign, protocol)| Plain::Proto(sign, protocol)),
        1 => prop::sample::select(vec![0_u8, 3, 8]).prop_map(Plain::IcmpType),
        1 => prop::sample::select(flags).prop_map(|(name, bit)| Plain::TcpFlag(name, bit)),
        3 => number,
        2 => prop::sample::select(words).prop_map(Plain::Word),
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        let parts = prop::collection::vec(inner.clone(), 0..4);
        prop_oneof![
            parts.clone().prop_map(Plain::Any),
            parts.prop_map(Plain::All),
            inner.prop_map(|part| Plain::Not(Box::new(part))),
        ]
    })
}

/// Packets that are nearly right, cut somewhere, with bytes changed.
fn packet() -> impl Strategy<Value = Vec<u8>> {
    let small = prop::sample::select(vec![0_u8, 1, 2, 4, 5, 8, 53, 80, 255]);
    let changes = prop::collection::vec((0..60_usize, small.clone()), 0..4);
    let payload = prop::collection::vec(small, 0..40);
    let next = prop::sample::select(vec![0_u8, 1, 6, 17, 43, 44, 51, 58, 60]);
    let whole = (0..3_usize, 0..3_usize, any::<bool>(), next, payload).prop_map(
        |(src, dst, six, next, mut payload)| match six {
            true => {
                // A chain of extension headers leads somewhere more often than chance has it.
                if let Some(first) = payload.first_mut().filter(|_| next == 44 || next == 0) {
                    *first = 17;
                }
                v6(ADDRS[3 + src], ADDRS[3 + dst], next, &payload)
            }
            false => v4(ADDRS[src], ADDRS[dst], next, &payload),
        },
    );
    (whole, changes, prop::option::weighted(0.2, 0..60_usize)).prop_map(
        |(mut packet, changes, cut)| {
            for (at, byte) in changes {
                if let Some(at) = packet.get_mut(at) {
                    *at = byte;
                }
            }
            packet.truncate(cut.unwrap_or(usize::MAX));
            packet
        },
    )
}

proptest! {
    #[test]
    fn packets_are_taken_as_a_reader_would(
        plains in prop::collection::vec(plain(), 1..5),
        packets in prop::collection::vec(packet(), 1..20),
    ) {
        let texts: Vec<_> = plains.iter().map(Plain::text).collect();
        let conditions = texts.iter().map(|text| Condition::parse(text).expect(text));
        // Every second one leads to nothing.
        let answers = [Some(0), None, Some(2), None, Some(4)];
        let choice = Choice::new(conditions.zip(answers));
        for packet in packets {
            let first = plains.iter().position(|plain| plain.holds(&packet));
            prop_assert_eq!(choice.find(&packet), first.and_then(|n| answers[n]), "{:?} {:02x?}", texts, packet);
            for (plain, text) in plains.iter().zip(&texts) {
                let filter = Filter::parse(text).unwrap();
                let holds = plain.holds(&packet);
                prop_assert_eq!(filter.matches(&packet), holds, "{} {:02x?}", text, packet);
                let Some((family, key)) = key_of(&packet) else { continue };
                let Boxes { boxes, exact } = Condition::parse(text).unwrap().boxes(family);
                let inside = boxes.iter().any(|one| one.contains(&key));
                prop_assert!(inside == holds || inside && !exact, "{} {:02x?}", text, packet);
            }
        }
    }

    #[test]
    fn any_bytes_are_taken_or_not(
        plain in plain(),
        bytes in prop::collection::vec(any::<u8>(), 0..120),
    ) {
        let filter = Filter::parse(&plain.text()).unwrap();
        prop_assert_eq!(filter.matches(&bytes), plain.holds(&bytes));
    }

    #[test]
    fn any_text_is_read_or_refused_inside_it(
        words in prop::collection::vec(
            prop_oneof![
                prop::sample::select(vec![
                    "src", "dst", "and", "or", "not", "!", "(", ")", "host", "net", "port", "ip",
                    "ttl", "tcp", "icmp", "type", "opt", "syn", "80", "<", "!=", "1.2.3.4", "10/8",
                    "::1", "::/0", "mask", "frag", "&&", "|", "-", "é",
                ]).prop_map(str::to_owned),
                "\\PC{0,4}",
            ],
            0..12,
        ),
    ) {
        let text = words.join(" ");
        if let Err(error) = Filter::parse(&text) {
            prop_assert!(text.is_char_boundary(error.at), "{} of {text:?}", error.at);
            prop_assert!(error.message.starts_with("expected "));
        }
    }
}
