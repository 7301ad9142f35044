//! Expressions of `IPFilter` and `IPClassifier` against the manual: random ones, on random packets.
//!
//! Source: the manual page of Click's IPClassifier, and what `filter/expression.rs` states beyond it (IPv6, ranges,
//! names of DSCPs). An expression is made as a text and, beside it, as what it means: closures over the fields of a packet that
//! are read here by the RFCs. Nothing of the router's own readers is used. `FINGERPOST_SOAK_SECONDS` is how long new ones are
//! made, after the first thousand.
#![cfg(feature = "click")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::{Duration, Instant};

use fingerpost_lpm::Rng;
use fingerpost_packet::filter::{Choice, Condition};
use fingerpost_packet::testing::{Rig, World};

/// A sequence of numbers, and choices by them.
struct Random(Rng);

impl Random {
    fn word(&mut self) -> u32 {
        u32::try_from(self.0.word() >> 32).unwrap()
    }

    fn below(&mut self, count: usize) -> usize {
        self.0.below(count)
    }

    /// Whether something happens that does so once in `of` times.
    fn once_in(&mut self, of: usize) -> bool {
        self.0.below(of) == 0
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.0.below(from.len())]
    }

    fn byte(&mut self) -> u8 {
        self.word().to_le_bytes()[0]
    }
}

const V4: [&str; 5] = ["10.0.0.1", "10.0.0.2", "10.1.0.1", "192.0.2.1", "255.255.255.255"];
const V6: [&str; 4] = ["2001:db8::1", "2001:db8::2", "2001:db8:0:1::1", "fe80::1"];
const MACS: [[u8; 6]; 3] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 0x2a], [0xff; 6]];
const PORTS: [u16; 9] = [0, 7, 53, 80, 443, 1023, 1024, 40_000, 65_535];
const PORT_NAMES: [(&str, u16); 6] =
    [("echo", 7), ("domain", 53), ("dns", 53), ("www", 80), ("http", 80), ("https", 443)];
const PROTOCOLS: [(&str, u8); 9] = [
    ("icmp", 1),
    ("igmp", 2),
    ("ipip", 4),
    ("tcp", 6),
    ("udp", 17),
    ("gre", 47),
    ("icmp6", 58),
    ("ospf", 89),
    ("sctp", 132),
];
const ICMP_TYPES: [(&str, u8); 5] =
    [("echo-reply", 0), ("unreachable", 3), ("echo", 8), ("timeexceeded", 11), ("timestamp", 13)];
const ICMP6_TYPES: [(&str, u8); 4] =
    [("unreachable", 1), ("echo", 128), ("echo-reply", 129), ("neighborsolicit", 135)];
const FLAGS: [(&str, u8); 6] =
    [("fin", 1), ("syn", 2), ("rst", 4), ("psh", 8), ("ack", 16), ("urg", 32)];
const DSCPS: [(&str, u32); 4] = [("be", 0), ("af41", 34), ("ef", 46), ("cs6", 48)];

/// Fields of the IP header, all their bits, and what is near to what packets have.
const IP_FIELDS: [(&str, u32, &[u32]); 7] = [
    ("vers", 15, &[4, 6]),
    ("hl", 15, &[4, 5, 6, 15]),
    ("tos", 255, &[0, 1, 2, 3, 0xb8, 0xbb]),
    ("dscp", 63, &[0, 34, 46]),
    ("ttl", 255, &[0, 1, 4, 64, 255]),
    ("len", 0xf_ffff, &[20, 40, 44, 60, 80]),
    ("id", 0xffff, &[0, 1, 0x1c46]),
];

/// A packet, taken apart by the RFCs: what is not there is `None`.
#[derive(Default)]
struct Seen<'a> {
    /// The Ethernet header; empty where there is none.
    link: &'a [u8],
    /// 4, 6, or 0 without a whole header.
    family: u8,
    /// From the IP header on, without what is behind its stated length.
    ip: &'a [u8],
    /// The whole header, whatever length it states.
    header: &'a [u8],
    protocol: Option<u8>,
    fragment: bool,
    later: bool,
    /// Nothing for fragments but the first.
    transport: &'a [u8],
}

fn number(bytes: &[u8], at: usize, len: usize) -> Option<u32> {
    let bytes = bytes.get(at..at + len)?;
    Some(bytes.iter().fold(0, |number, &byte| number << 8 | u32::from(byte)))
}

impl<'a> Seen<'a> {
    fn of(link: &'a [u8], packet: &'a [u8]) -> Self {
        let none = Seen { link, ..Seen::default() };
        match packet.first().map(|first| first >> 4) {
            Some(4) if packet.len() >= 20 => {
                let stated = number(packet, 2, 2).unwrap() as usize;
                let ip = &packet[..stated.min(packet.len())];
                let bits = number(packet, 6, 2).unwrap();
                let (later, header) = (bits & 0x1fff != 0, usize::from(packet[0] & 15) * 4);
                let transport = if later || header < 20 { None } else { ip.get(header..) };
                Seen {
                    family: 4,
                    ip,
                    header: packet,
                    protocol: Some(packet[9]),
                    fragment: bits & 0x3fff != 0,
                    later,
                    transport: transport.unwrap_or_default(),
                    ..none
                }
            }
            Some(6) if packet.len() >= 40 => {
                let stated = 40 + number(packet, 4, 2).unwrap() as usize;
                let ip = &packet[..stated.min(packet.len())];
                let mut seen = Seen { family: 6, ip, header: packet, ..none };
                seen.walk();
                seen
            }
            _ => none,
        }
    }

    /// Extension headers of IPv6, one after the other (RFC 8200).
    fn walk(&mut self) {
        let (mut next, mut at) = (self.ip[6], 40);
        loop {
            let length = match next {
                0 | 43 | 60 => number(self.ip, at + 1, 1).map(|length| 8 + 8 * length as usize),
                51 => number(self.ip, at + 1, 1).map(|length| 8 + 4 * length as usize),
                44 => number(self.ip, at + 2, 2).map(|_| 8),
                _ => break,
            };
            // A header that is cut short: what comes behind it is not known.
            let Some(length) = length.filter(|_| at <= self.ip.len()) else { return self.cut() };
            if next == 44 {
                self.fragment = true;
                self.later = number(self.ip, at + 2, 2).unwrap() >> 3 != 0;
            }
            next = self.ip[at];
            at += length;
            if self.later {
                break;
            }
        }
        if at > self.ip.len() {
            return self.cut();
        }
        self.protocol = Some(next);
        self.transport = if self.later { &[] } else { &self.ip[at..] };
    }

    fn cut(&mut self) {
        (self.protocol, self.fragment, self.later) = (None, false, false);
    }

    fn field(&self, name: &str) -> Option<u32> {
        let h = self.header;
        Some(match (name, self.family) {
            (_, 0) => return None,
            ("vers", family) => family.into(),
            ("hl", 4) => (h[0] & 15).into(),
            ("id", 4) => number(h, 4, 2)?,
            ("hl" | "id", _) => return None,
            ("tos", 4) => h[1].into(),
            ("tos", _) => number(h, 0, 2)? >> 4 & 0xff,
            ("dscp", _) => self.field("tos")? >> 2,
            ("ttl", 4) => h[8].into(),
            ("ttl", _) => h[7].into(),
            ("len", 4) => number(h, 2, 2)?,
            ("len", _) => number(h, 4, 2)? + 40,
            _ => unreachable!(),
        })
    }

    fn addr(&self, src: bool) -> Option<&'a [u8]> {
        match (self.family, src) {
            (4, true) => Some(&self.header[12..16]),
            (4, false) => Some(&self.header[16..20]),
            (6, true) => Some(&self.header[8..24]),
            (6, false) => Some(&self.header[24..40]),
            _ => None,
        }
    }

    fn is(&self, protocol: &str) -> bool {
        match protocol {
            "" => true,
            "tcpudp" => matches!(self.protocol, Some(6 | 17)),
            name => {
                let number = PROTOCOLS.iter().find(|known| known.0 == name).unwrap().1;
                self.protocol == Some(number)
            }
        }
    }

    fn port(&self, src: bool) -> Option<u32> {
        // Half of the ports are none.
        let ports = Some(self.transport).filter(|bytes| self.is("tcpudp") && bytes.len() >= 4)?;
        number(ports, if src { 0 } else { 2 }, 2)
    }
}

type Holds = Box<dyn Fn(&Seen<'_>) -> bool>;

/// What an expression means.
enum Tree {
    Leaf(Holds),
    Not(Box<Tree>),
    All(Vec<Tree>),
    Any(Vec<Tree>),
    Choose(Box<[Tree; 3]>),
}

impl Tree {
    fn holds(&self, seen: &Seen<'_>) -> bool {
        match self {
            Self::Leaf(holds) => holds(seen),
            Self::Not(tree) => !tree.holds(seen),
            Self::All(trees) => trees.iter().all(|tree| tree.holds(seen)),
            Self::Any(trees) => trees.iter().any(|tree| tree.holds(seen)),
            Self::Choose(trees) => {
                let [condition, then, otherwise] = &**trees;
                if condition.holds(seen) { then.holds(seen) } else { otherwise.holds(seen) }
            }
        }
    }
}

fn compare(have: u32, sign: &str, value: u32) -> bool {
    match sign {
        "!=" => have != value,
        "<" => have < value,
        ">" => have > value,
        "<=" => have <= value,
        ">=" => have >= value,
        _ => have == value,
    }
}

/// What a number is compared with.
#[derive(Clone, Copy)]
enum Wanted {
    Relation { mask: Option<u32>, sign: &'static str, value: u32 },
    Range(u32, u32),
}

impl Wanted {
    fn holds(self, have: u32) -> bool {
        match self {
            Self::Range(low, high) => (low..=high).contains(&have),
            Self::Relation { mask: None, sign, value } => compare(have, sign, value),
            // "the bits that are compared, of the value as well"
            Self::Relation { mask: Some(mask), sign: sign @ ("" | "=" | "==" | "!="), value } => {
                compare(have & mask, sign, value & mask)
            }
            Self::Relation { mask: Some(mask), sign, value } => compare(have & mask, sign, value),
        }
    }

    /// Whether it holds for both ends where its contrary holds for either.
    fn is_contrary(self) -> bool {
        matches!(self, Self::Relation { sign: "!=" | "<" | "<=", .. })
    }
}

/// Both ends, one of them, or either. Of contraries: where the relation that they are the contrary of does not hold so.
fn ends(direction: &str, contrary: bool, of: impl Fn(bool) -> bool) -> bool {
    match (direction, contrary) {
        ("src", _) => of(true),
        ("dst" | "dest", _) => of(false),
        ("src and dst", false) => of(true) && of(false),
        ("src and dst", true) => of(true) || of(false),
        (_, false) => of(true) || of(false),
        (_, true) => of(true) && of(false),
    }
}

const DIRECTIONS: [&str; 8] =
    ["", "", "src", "dst", "dest", "src or dst", "src and dst", "dst or src"];

/// What is written in the text: `dst or src` and `&&` mean the others.
fn direction_of(words: &'static str) -> &'static str {
    if words == "dst or src" { "src or dst" } else { words }
}

struct Maker {
    random: Random,
    /// Direction of the primitive before, which a bare address takes.
    last: &'static str,
    /// The text ends with a word that may stand before others.
    open: bool,
}

/// A text, what it means, and how tight it is bound: 0 `? :`, 1 `or`, 2 `and`, 3 a factor.
struct Made {
    text: String,
    tree: Tree,
    level: u8,
}

fn leaf(text: impl Into<String>, holds: impl Fn(&Seen<'_>) -> bool + 'static) -> Made {
    let text: String = text.into();
    // Empty words leave spaces.
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    Made { text, tree: Tree::Leaf(Box::new(holds)), level: 3 }
}

impl Maker {
    fn once_in(&mut self, of: usize) -> bool {
        self.random.once_in(of)
    }

    fn written(&mut self, number: u32) -> String {
        match self.random.below(4) {
            0 => format!("{number:#x}"),
            _ => number.to_string(),
        }
    }

    /// A relation, mask or range of numbers up to `all`, near to what packets have; in words and what it means.
    fn wanted(&mut self, all: u32, near: &[u32], names: &[(&str, u32)]) -> (String, Wanted) {
        let some = |maker: &mut Self| match maker.random.below(4) {
            0 => maker.random.word() & all,
            _ => maker.random.pick(near).min(all),
        };
        let value = some(self);
        if self.once_in(6) {
            let other = some(self);
            let (low, high) = (value.min(other), value.max(other));
            return (format!("{low}-{high}"), Wanted::Range(low, high));
        }
        let mask = match self.random.below(5) {
            0 => Some((self.random.word() & all).max(1)),
            _ => None,
        };
        let sign = self.random.pick(&["", "", "=", "==", "!=", "<", ">", "<=", ">="]);
        let (word, value) = match names {
            [_, ..] if self.once_in(3) => {
                let (name, value) = self.random.pick(names);
                (name.to_owned(), value)
            }
            _ => (self.written(value), value),
        };
        let words = match mask {
            Some(mask) => format!("& {} {sign} {word}", self.written(mask)),
            None => format!("{sign} {word}"),
        };
        (words, Wanted::Relation { mask, sign, value })
    }

    /// Further values of the same primitive: `or 443`, `and != 7`.
    fn more(&mut self, all: u32, near: &[u32]) -> Option<(&'static str, String, Wanted)> {
        if !self.once_in(4) {
            return None;
        }
        let (words, wanted) = loop {
            let (words, wanted) = self.wanted(all, near, &[]);
            // A mask stands behind words that state what it masks.
            if matches!(wanted, Wanted::Range(..) | Wanted::Relation { mask: None, .. }) {
                break (words, wanted);
            }
        };
        Some((self.random.pick(&["or", "||", "and", "&&"]), words, wanted))
    }

    /// A primitive of numbers: one relation, or two of which the second takes the words of the first.
    fn numbers(
        &mut self,
        words: &str,
        all: u32,
        near: &[u32],
        names: &[(&str, u32)],
        holds: impl Fn(&Seen<'_>, Wanted) -> bool + 'static,
    ) -> Made {
        let (first, wanted) = self.wanted(all, near, names);
        let text = format!("{words} {first}");
        match self.more(all, near) {
            None => leaf(text, move |seen| holds(seen, wanted)),
            Some((sign, second, other)) => {
                let either = matches!(sign, "or" | "||");
                let made = leaf(format!("{text} {sign} {second}"), move |seen| {
                    let (one, two) = (holds(seen, wanted), holds(seen, other));
                    if either { one || two } else { one && two }
                });
                Made { level: if either { 1 } else { 2 }, ..made }
            }
        }
    }

    /// A prefix or an address: its words, its bytes, and how many of their bits.
    fn prefix(&mut self, whole: bool) -> (String, Vec<u8>, usize) {
        let v4 = self.random.below(3) > 0;
        let text = if v4 { self.random.pick(&V4) } else { self.random.pick(&V6) };
        let bytes = match v4 {
            true => text.parse::<Ipv4Addr>().unwrap().octets().to_vec(),
            false => text.parse::<Ipv6Addr>().unwrap().octets().to_vec(),
        };
        let all = bytes.len() * 8;
        if whole {
            return (text.to_owned(), bytes, all);
        }
        let len = match self.random.below(3) {
            0 => self.random.below(all + 1),
            1 => all / 4,
            _ => all - self.random.below(3),
        };
        if v4 && self.once_in(3) {
            let mask = u32::MAX.checked_shl(u32::try_from(32 - len).unwrap()).unwrap_or(0);
            return (format!("{text} mask {}", Ipv4Addr::from_bits(mask)), bytes, len);
        }
        (format!("{text}/{len}"), bytes, len)
    }

    fn address(&mut self) -> Made {
        let net = self.once_in(2);
        let (value, bytes, len) = self.prefix(!net);
        let words = self.random.pick(&DIRECTIONS);
        let transport = self.random.pick(&["", "", "", "tcp", "udp", "tcpudp", "icmp"]);
        // `A mask M` is one only behind `net`.
        let named = value.contains("mask") || self.once_in(2);
        let kind = if !named {
            ""
        } else if net {
            "net"
        } else {
            "host"
        };
        let before = if self.once_in(8) && named { "ip" } else { "" };
        let sign = self.random.pick(&["", "", "=", "==", "!="]);
        // A value without words of its own takes those of the primitive before it.
        let alone = !named && words.is_empty() && transport.is_empty();
        let inherited = if alone { self.last } else { words };
        self.last = direction_of(inherited);
        let direction = direction_of(inherited);
        let text = format!("{transport} {before} {words} {kind} {sign} {value}");
        let holds = move |seen: &Seen<'_>| {
            let one = |src| {
                let have = seen.addr(src).filter(|have| have.len() == bytes.len());
                let bit = |bytes: &[u8], n: usize| bytes[n / 8] >> (7 - n % 8) & 1;
                have.is_some_and(|have| (0..len).all(|n| bit(have, n) == bit(&bytes, n)))
            };
            seen.is(transport) && (ends(direction, false, one) == (sign != "!="))
        };
        leaf(text, holds)
    }

    fn masked_address(&mut self) -> Made {
        let value: Ipv4Addr = self.random.pick(&V4).parse().unwrap();
        let mask = self.random.pick(&[0xff00_0000, 0x0000_00ff, 0xffff_0000, 1, 0xf0f0_f0f0_u32]);
        let words = self.random.pick(&DIRECTIONS);
        self.last = direction_of(words);
        let direction = self.last;
        let text = format!("{words} host & {} = {value}", Ipv4Addr::from_bits(mask));
        leaf(text, move |seen| {
            let one = |src| {
                let have = seen.addr(src).filter(|have| have.len() == 4);
                have.is_some_and(|have| {
                    number(have, 0, 4).unwrap() & mask == value.to_bits() & mask
                })
            };
            ends(direction, false, one)
        })
    }

    fn ether(&mut self) -> Made {
        let mac = self.random.pick(&MACS);
        let words = self.random.pick(&DIRECTIONS);
        self.last = direction_of(words);
        let direction = self.last;
        let sign = self.random.pick(&["", "=", "!="]);
        let digits = mac.map(|byte| format!("{byte:x}")).join(":");
        let text = match self.random.below(3) {
            0 => format!("ether {words} host {sign} {digits}"),
            1 => format!("{words} ether {sign} {digits}"),
            _ => format!("{words} ether host {sign} {digits}"),
        };
        leaf(text, move |seen| {
            let one = |src| {
                let at = if src { 6 } else { 0 };
                seen.link.get(at..at + 6) == Some(&mac[..])
            };
            ends(direction, false, one) == (sign != "!=")
        })
    }

    fn port(&mut self) -> Made {
        let words = self.random.pick(&DIRECTIONS);
        let transport = self.random.pick(&["", "", "tcp", "udp", "tcpudp"]);
        self.last = direction_of(words);
        let direction = self.last;
        let text = match self.random.below(4) {
            0 => format!("{transport} {words} port"),
            1 => format!("ip {words} {transport} port"),
            _ => format!("{words} {transport} port"),
        };
        let near = PORTS.map(u32::from);
        let names = PORT_NAMES.map(|(name, port)| (name, u32::from(port)));
        self.numbers(&text, 0xffff, &near, &names, move |seen, wanted| {
            let there = seen.port(true).is_some() && seen.is(transport);
            let contrary = wanted.is_contrary();
            there && ends(direction, contrary, |src| wanted.holds(seen.port(src).unwrap()))
        })
    }

    fn proto(&mut self) -> Made {
        self.last = "";
        let (name, protocol) = self.random.pick(&PROTOCOLS);
        match self.random.below(5) {
            0 | 1 => {
                self.open = true;
                leaf(name, move |seen| seen.protocol == Some(protocol))
            }
            2 => {
                let sign = self.random.pick(&["", "=", "!="]);
                let word = self.random.pick(&["proto", "ip proto"]);
                leaf(format!("{word} {sign} tcpudp"), move |seen| {
                    seen.protocol.is_some() && seen.is("tcpudp") == (sign != "!=")
                })
            }
            3 => {
                self.open = true;
                leaf("tcpudp", |seen| seen.is("tcpudp"))
            }
            _ => {
                let near = PROTOCOLS.map(|(_, protocol)| u32::from(protocol));
                let names = PROTOCOLS.map(|(name, protocol)| (name, u32::from(protocol)));
                let (words, wanted) = loop {
                    let (words, wanted) = self.wanted(0xff, &near, &names);
                    // These have no order.
                    if !words.contains(['<', '>']) {
                        break (words, wanted);
                    }
                };
                let word = self.random.pick(&["proto", "ip proto"]);
                leaf(format!("{word} {words}"), move |seen| {
                    seen.protocol.is_some_and(|protocol| wanted.holds(protocol.into()))
                })
            }
        }
    }

    fn icmp(&mut self) -> Made {
        self.last = "";
        let six = self.once_in(3);
        let protocol = if six { "icmp6" } else { "icmp" };
        let names: &[(&'static str, u8)] = if six { &ICMP6_TYPES } else { &ICMP_TYPES };
        let kind =
            move |seen: &Seen<'_>| number(seen.transport, 0, 1).filter(|_| seen.is(protocol));
        if self.once_in(4) {
            let (name, wanted) = self.random.pick(names);
            return leaf(format!("{protocol} {name}"), move |seen| {
                kind(seen) == Some(wanted.into())
            });
        }
        let bare = !six && self.once_in(3);
        let names: Vec<_> = names.iter().map(|&(name, value)| (name, u32::from(value))).collect();
        let near: Vec<_> = names.iter().map(|(_, value)| *value).collect();
        let words = if bare { "type".to_owned() } else { format!("{protocol} type") };
        self.numbers(&words, 0xff, &near, &names, move |seen, wanted| {
            kind(seen).is_some_and(|kind| wanted.holds(kind))
        })
    }

    fn tcp(&mut self) -> Made {
        self.last = "";
        let flags = |seen: &Seen<'_>| number(seen.transport, 13, 1).filter(|_| seen.is("tcp"));
        let of =
            move |seen: &Seen<'_>, flag: u8| flags(seen).is_some_and(|f| f & u32::from(flag) != 0);
        let (name, flag) = self.random.pick(&FLAGS);
        match self.random.below(8) {
            0 => leaf(name, move |seen| of(seen, flag)),
            1 => leaf(format!("tcp {name}"), move |seen| of(seen, flag)),
            2 => leaf(format!("opt {name}"), move |seen| of(seen, flag)),
            3 => leaf(format!("tcp opt {name}"), move |seen| of(seen, flag)),
            4 => leaf(format!("tcp opt != {name}"), move |seen| {
                flags(seen).is_some_and(|flags| flags & u32::from(flag) == 0)
            }),
            5 => {
                let (other, second) = self.random.pick(&FLAGS);
                let made = leaf(format!("tcp opt {name} or {other}"), move |seen| {
                    of(seen, flag) || of(seen, second)
                });
                Made { level: 1, ..made }
            }
            6 => leaf("tcp established", move |seen| of(seen, 16) || of(seen, 4)),
            _ => {
                let words = self.random.pick(&["win", "tcp win"]);
                self.numbers(words, 0xffff, &[0, 1, 512, 65_535], &[], |seen, wanted| {
                    let window = number(seen.transport, 14, 2).filter(|_| seen.is("tcp"));
                    window.is_some_and(|window| wanted.holds(window))
                })
            }
        }
    }

    fn ip_field(&mut self) -> Made {
        self.last = "";
        let (name, all, near) = self.random.pick(&IP_FIELDS);
        let transport = self.random.pick(&["", "", "", "", "tcp", "udp", "icmp6"]);
        let ip = if self.once_in(3) { "" } else { "ip" };
        let names: &[(&str, u32)] = if name == "dscp" { &DSCPS } else { &[] };
        self.numbers(&format!("{transport} {ip} {name}"), all, near, names, move |seen, wanted| {
            seen.is(transport) && seen.field(name).is_some_and(|have| wanted.holds(have))
        })
    }

    fn flag(&mut self) -> Made {
        self.last = "";
        let name = self.random.pick(&["frag", "unfrag", "laterfrag", "ect", "ce"]);
        let ip = if self.once_in(3) { "" } else { "ip" };
        leaf(format!("{ip} {name}"), move |seen| {
            let ecn = seen.field("tos").map(|tos| tos & 3);
            match name {
                "frag" => seen.family != 0 && seen.fragment,
                "unfrag" => seen.family != 0 && !seen.fragment,
                "laterfrag" => seen.family != 0 && seen.later,
                "ect" => ecn.is_some_and(|ecn| ecn != 0),
                _ => ecn == Some(3),
            }
        })
    }

    fn bytes(&mut self) -> Made {
        self.last = "";
        let name = self.random.pick(&["ip", "ip", "ip6", "tcp", "udp", "icmp", "icmp6", "transp"]);
        let len = 1 + self.random.below(4);
        let at = self.random.below(if name == "ip6" { 44 } else { 24 });
        let gap = if self.once_in(5) { " " } else { "" };
        let place = match len {
            1 if self.once_in(2) => format!("{at}"),
            _ => format!("{at}:{len}"),
        };
        let all = u32::MAX >> (32 - 8 * len);
        let near = [0, 1, 2, 4, 8, 17, 53, 80, 0x45, 0x2000, 0x0a00_0001];
        self.numbers(&format!("{name}{gap}[{place}]"), all, &near, &[], move |seen, wanted| {
            let bytes = match name {
                "ip" if seen.family == 4 => seen.ip,
                "ip6" if seen.family == 6 => seen.ip,
                "ip" | "ip6" => &[],
                "transp" => seen.transport,
                name if seen.is(name) => seen.transport,
                _ => &[],
            };
            number(bytes, at, len).is_some_and(|have| wanted.holds(have))
        })
    }

    fn primitive(&mut self) -> Made {
        self.open = false;
        let made = match self.random.below(20) {
            0 => {
                let (text, value) = self.random.pick(&[
                    ("any", true),
                    ("all", true),
                    ("true", true),
                    ("none", false),
                    ("false", false),
                ]);
                leaf(text, move |_| value)
            }
            1..=4 => self.address(),
            5 => self.masked_address(),
            6 => self.ether(),
            7..=9 => self.port(),
            10 | 11 => self.proto(),
            12 | 13 => self.icmp(),
            14 | 15 => self.tcp(),
            16 | 17 => self.ip_field(),
            18 => self.flag(),
            _ => self.bytes(),
        };
        // `src not host A`: what is behind the first word turns the whole round.
        let directed = ["src", "dst"].into_iter().find_map(|word| {
            let rest = made.text.strip_prefix(word)?.strip_prefix(' ')?;
            let rest =
                Some(rest).filter(|rest| !rest.starts_with("or ") && !rest.starts_with("and "));
            Some((word, rest?.to_owned()))
        });
        match directed {
            Some((word, rest)) if made.level == 3 && self.once_in(8) => {
                let text = format!("{word} {} {rest}", self.random.pick(&["not", "!"]));
                Made { text, tree: Tree::Not(Box::new(made.tree)), level: 3 }
            }
            _ => made,
        }
    }

    /// An operand that is bound at least so tight.
    fn operand(&mut self, depth: usize, level: u8) -> Made {
        let made = self.expression(depth);
        if made.level >= level && !self.once_in(6) {
            return made;
        }
        self.open = false;
        Made { text: format!("({})", made.text), level: 3, ..made }
    }

    fn expression(&mut self, depth: usize) -> Made {
        if depth == 0 {
            return self.primitive();
        }
        match self.random.below(9) {
            0..=2 => self.primitive(),
            3 => {
                let made = self.operand(depth - 1, 3);
                let nots: &[&str] =
                    if made.text.starts_with('=') { &["not "] } else { &["not ", "!", "! "] };
                let not = self.random.pick(nots);
                let tree = Tree::Not(Box::new(made.tree));
                Made { text: format!("{not}{}", made.text), tree, level: 3 }
            }
            4 | 5 => {
                let first = self.operand(depth - 1, 3);
                let (mut text, mut trees) = (first.text, vec![first.tree]);
                for _ in 0..1 + self.random.below(2) {
                    // Side by side, unless the word before is one that may stand before others.
                    let joined = if self.open { 2 } else { 3 };
                    let joint = self.random.below(joined);
                    text += [" and ", " && ", " "][joint];
                    let next = self.operand(depth - 1, 3);
                    text += &next.text;
                    trees.push(next.tree);
                }
                Made { text, tree: Tree::All(trees), level: 2 }
            }
            6 | 7 => {
                let first = self.operand(depth - 1, 2);
                let (mut text, mut trees) = (first.text, vec![first.tree]);
                for _ in 0..1 + self.random.below(2) {
                    text += self.random.pick(&[" or ", " || "]);
                    let next = self.operand(depth - 1, 2);
                    text += &next.text;
                    trees.push(next.tree);
                }
                Made { text, tree: Tree::Any(trees), level: 1 }
            }
            _ => {
                let condition = self.operand(depth - 1, 1);
                let then = self.operand(depth - 1, 0);
                let otherwise = self.operand(depth - 1, 0);
                let text = format!("{} ? {} : {}", condition.text, then.text, otherwise.text);
                let trees = Box::new([condition.tree, then.tree, otherwise.tree]);
                Made { text, tree: Tree::Choose(trees), level: 0 }
            }
        }
    }

    /// A packet with its Ethernet header: nearly right, cut somewhere, or with bytes changed.
    fn packet(&mut self) -> Vec<u8> {
        let random = &mut self.random;
        let mut frame = [random.pick(&MACS), random.pick(&MACS)].concat();
        let six = random.once_in(3);
        let next = random.pick(&[1, 6, 6, 6, 17, 17, 58, 47, 2, 132]);
        let mut transport: Vec<u8> =
            (0..random.below(28)).map(|_| random.pick(&[0, 1, 2, 8, 80])).collect();
        if random.below(4) > 0 {
            transport.resize(20 + random.below(8), 0);
            let kind = random.pick(&[0, 3, 8, 11, 13, 1, 128, 129, 135]);
            match next {
                1 | 58 => transport[0] = kind,
                _ => {
                    transport[..2].copy_from_slice(&random.pick(&PORTS).to_be_bytes());
                    transport[2..4].copy_from_slice(&random.pick(&PORTS).to_be_bytes());
                    transport[13] = random.byte() & random.byte();
                    transport[14..16]
                        .copy_from_slice(&random.pick(&[0, 1, 512, 65_535_u16]).to_be_bytes());
                }
            }
        }
        let tos = random.pick(&[0, 1, 2, 3, 0x88, 0xb8, 0xbb]);
        let ttl = random.pick(&[0, 1, 4, 5, 64, 255]);
        if six {
            frame.extend([0x86, 0xdd]);
            let mut behind = transport;
            let mut kind = next;
            for _ in 0..random.pick(&[0, 0, 1, 2]) {
                let (header, bytes): (u8, Vec<u8>) = match random.below(4) {
                    0 => (44, vec![kind, 0, 0, random.pick(&[0, 1, 8, 9]), 0, 0, 0, 1]),
                    1 => (51, [&[kind, 2][..], &[0; 14]].concat()),
                    2 => (43, [&[kind, 1][..], &[0; 14]].concat()),
                    _ => (random.pick(&[0, 60]), [&[kind, 0][..], &[0; 6]].concat()),
                };
                behind = [bytes, behind].concat();
                kind = header;
            }
            let stated = match random.below(6) {
                0 => random.below(60),
                _ => behind.len(),
            };
            frame.extend([0x60 | tos >> 4, tos << 4, 0, 0]);
            frame.extend(u16::try_from(stated).unwrap().to_be_bytes());
            frame.extend([kind, ttl]);
            for _ in 0..2 {
                frame.extend(random.pick(&V6).parse::<Ipv6Addr>().unwrap().octets());
            }
            frame.extend(behind);
        } else {
            frame.extend([8, 0]);
            let options = random.pick(&[0, 0, 0, 4]);
            let words = match random.below(12) {
                0 => random.byte() & 15,
                _ => 5 + options / 4,
            };
            let total = 20 + usize::from(options) + transport.len();
            let stated = match random.below(6) {
                0 => random.below(80),
                _ => total,
            };
            frame.extend([0x40 | words, tos]);
            frame.extend(u16::try_from(stated).unwrap().to_be_bytes());
            frame.extend(random.pick(&[0, 1, 0x1c46_u16]).to_be_bytes());
            let fragment = random.pick(&[0, 0, 0, 0x4000, 0x2000, 0x2005, 5, 0x8000_u16]);
            frame.extend(fragment.to_be_bytes());
            frame.extend([ttl, next, 0, 0]);
            for _ in 0..2 {
                frame.extend(random.pick(&V4).parse::<Ipv4Addr>().unwrap().octets());
            }
            frame.extend(vec![1; options.into()]);
            frame.extend(transport);
        }
        for _ in 0..random.pick(&[0, 0, 1, 3]) {
            let at = 14 + random.below(frame.len() - 14);
            frame[at] = random.byte();
        }
        if random.once_in(5) {
            // A part of a header; the Ethernet header is always there.
            frame.truncate(14 + random.below(frame.len() - 13));
        }
        frame
    }
}

/// Expressions of a round: as many as an element has.
const TOGETHER: usize = 8;
/// Packets of a round.
const PACKETS: usize = 40;

/// Eight expressions and some packets from a seed.
fn check(seed: u64) {
    let random = Random(Rng::new(seed));
    let mut maker = Maker { random, last: "", open: false };
    let made: Vec<Made> = (0..TOGETHER)
        .map(|_| {
            maker.last = "";
            maker.expression(3)
        })
        .collect();
    let frames: Vec<Vec<u8>> = (0..PACKETS).map(|_| maker.packet()).collect();
    let holds: Vec<Vec<bool>> = frames
        .iter()
        .map(|frame| {
            let seen = Seen::of(&frame[..14], &frame[14..]);
            made.iter().map(|made| made.tree.holds(&seen)).collect()
        })
        .collect();
    // Each by itself.
    for (n, made) in made.iter().enumerate() {
        let condition = Condition::parse(&made.text)
            .unwrap_or_else(|error| panic!("seed {seed}: {}: {error}", made.text));
        let choice = Choice::new([(condition, Some(0))]);
        for (frame, holds) in frames.iter().zip(&holds) {
            let found = choice.find_behind(&frame[..14], &frame[14..]).is_some();
            assert_eq!(found, holds[n], "seed {seed}: {}\n{frame:02x?}", made.text);
        }
    }
    // The first of them that holds, in both elements; the last of each pair of outputs gets nothing of `IPFilter`.
    let list = |action: fn(usize) -> String| {
        let lines = made.iter().enumerate().map(|(n, made)| action(n) + &made.text);
        lines.collect::<Vec<_>>().join(", ")
    };
    let sinks = |name: &str, count: usize| {
        (0..count).map(|n| format!("{name} [{n}] -> ToDevice({name}{n});\n")).collect::<String>()
    };
    let actions = |n: usize| match n {
        0 => "allow ".to_owned(),
        n if n % 3 == 1 => "drop ".to_owned(),
        n if n % 3 == 2 => "deny ".to_owned(),
        n => format!("{} ", n / 3),
    };
    let text = format!(
        "FromDevice(a) -> MarkIPHeader(14) -> c :: IPClassifier({});\n{}
         FromDevice(b) -> MarkIPHeader(14) -> f :: IPFilter({});\n{}",
        list(|_| String::new()),
        sinks("c", TOGETHER),
        list(actions),
        sinks("f", TOGETHER / 3 + 1),
    );
    let mut rig = Rig::new(&World::new(), &text);
    for (frame, holds) in frames.iter().zip(&holds) {
        let first = holds.iter().position(|holds| *holds);
        let mut went = |device: &str| rig.receive(device, &[frame]).pop().map(|(to, _)| to);
        assert_eq!(went("a"), first.map(|n| format!("c{n}")), "seed {seed}: {frame:02x?}\n{text}");
        let wanted = first.filter(|n| n % 3 == 0).map(|n| format!("f{}", n / 3));
        assert_eq!(went("b"), wanted, "seed {seed}: {frame:02x?}\n{text}");
    }
}

#[test]
fn click_filters_answer_as_the_manual_states() {
    let begin = Instant::now();
    let soak = std::env::var("FINGERPOST_SOAK_SECONDS").ok().and_then(|text| text.parse().ok());
    let soak = Duration::from_secs(soak.unwrap_or(0));
    let mut rounds = 0;
    while rounds < 125 || begin.elapsed() < soak {
        check(rounds + 1);
        rounds += 1;
    }
    println!("{} expressions, {} answers each", rounds * TOGETHER as u64, PACKETS);
}

/// Answers are of both kinds, and packets have all fields: what is made here finds what it is made for.
#[test]
fn click_filters_are_not_all_alike() {
    let mut maker = Maker { random: Random(Rng::new(7)), last: "", open: false };
    let (mut yes, mut all) = (0, 0);
    for _ in 0..200 {
        let made = maker.expression(3);
        for _ in 0..20 {
            let frame = maker.packet();
            all += 1;
            yes += usize::from(made.tree.holds(&Seen::of(&frame[..14], &frame[14..])));
        }
    }
    assert!((all / 5..all * 4 / 5).contains(&yes), "{yes} of {all}");
}
