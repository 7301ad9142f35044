//! The fields of a summary of IP packets: how each is read from a packet and written into a new one.
//!
//! Source: the manual pages of Click's `ToIPSummaryDump` and `FromIPSummaryDump`.

use std::fmt::Write as _;
use std::net::Ipv4Addr;

use fingerpost_route::Mac;

use super::tcp_options::{self, Shown};
use super::{ip_options, md5};
use crate::element::click::icmp_error::v4_codes;
use crate::element::click::only::annotations::Annotations;
use crate::element::click::only::clock::{SECOND_NS, long_seconds, read_seconds, seconds};
use crate::element::click::only::seen::{Seen, long, word};
use crate::element::support::setting::dashed;
use crate::filter::names;
use crate::frame::wire::Ip4;
use crate::frame::wire::icmp::PROTOCOL_ICMP;
use crate::frame::wire::ip4::{DONT_FRAGMENT, FRAGMENT_OFFSET, MORE_FRAGMENTS};
use crate::frame::wire::protocol::{TCP, UDP};
use crate::language::{Value, unquote};

/// A field.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Field {
    None,
    Timestamp,
    NanoTimestamp,
    Seconds,
    Micros,
    MicrosInAll,
    FirstTimestamp,
    Src,
    Dst,
    Len,
    Proto,
    Id,
    Tos,
    Ttl,
    Sum,
    HeaderLen,
    Frag,
    FragOffset,
    CaptureLen,
    SrcPort,
    DstPort,
    Seq,
    Ack,
    Flags,
    Window,
    Urgent,
    Options,
    UdpLen,
    PayloadLen,
    Payload,
    IcmpType,
    IcmpCode,
    IcmpId,
    IcmpSeq,
    Count,
    Link,
    Direction,
    Aggregate,
    WireLen,
    EthSrc,
    EthDst,
    EthType,
    FirstNano,
    Paint,
    Dscp,
    Ecn,
    TcpOffset,
    Sack,
    NotableOptions,
    IcmpTypeName,
    IcmpCodeName,
    NextMtu,
    IpOptions,
    Md5,
    Md5Digits,
}

use Field::{
    Ack, Aggregate, CaptureLen, Count, Direction, Dscp, Dst, DstPort, Ecn, EthDst, EthSrc, EthType,
    FirstNano, FirstTimestamp, Flags, Frag, FragOffset, HeaderLen, IcmpCode, IcmpCodeName, IcmpId,
    IcmpSeq, IcmpType, IcmpTypeName, Id, IpOptions, Len, Link, Md5, Md5Digits, Micros, MicrosInAll,
    NanoTimestamp, NextMtu, NotableOptions, Options, Paint, Payload, PayloadLen, Proto, Sack,
    Seconds, Seq, Src, SrcPort, Sum, TcpOffset, Timestamp, Tos, Ttl, UdpLen, Urgent, Window,
    WireLen,
};

/// Names of fields; the first of one is how it is written.
const NAMES: &[(&str, Field)] = &[
    ("none", Field::None),
    ("timestamp", Timestamp),
    ("ts", Timestamp),
    ("utimestamp", Timestamp),
    ("ntimestamp", NanoTimestamp),
    ("ts_sec", Seconds),
    ("sec", Seconds),
    ("ts_usec", Micros),
    ("usec", Micros),
    ("ts_usec1", MicrosInAll),
    ("usec1", MicrosInAll),
    ("first_timestamp", FirstTimestamp),
    ("first_ts", FirstTimestamp),
    ("first_utimestamp", FirstTimestamp),
    ("first_ntimestamp", FirstNano),
    ("ip_src", Src),
    ("src", Src),
    ("ip_dst", Dst),
    ("dst", Dst),
    ("ip_len", Len),
    ("len", Len),
    ("length", Len),
    ("ip_proto", Proto),
    ("proto", Proto),
    ("ip_p", Proto),
    ("ip_id", Id),
    ("id", Id),
    ("ip_tos", Tos),
    ("tos", Tos),
    ("ip_dscp", Dscp),
    ("ip_ecn", Ecn),
    ("ip_ttl", Ttl),
    ("ttl", Ttl),
    ("ip_sum", Sum),
    ("ip_hl", HeaderLen),
    ("ip_frag", Frag),
    ("frag", Frag),
    ("ip_fragoff", FragOffset),
    ("fragoff", FragOffset),
    ("ip_opt", IpOptions),
    ("ip_capture_len", CaptureLen),
    ("sport", SrcPort),
    ("dport", DstPort),
    ("tcp_seq", Seq),
    ("tcp_ack", Ack),
    ("tcp_flags", Flags),
    ("tcp_win", Window),
    ("tcp_window", Window),
    ("tcp_urp", Urgent),
    ("tcp_off", TcpOffset),
    ("tcp_opt", Options),
    ("tcp_sack", Sack),
    ("tcp_ntopt", NotableOptions),
    ("udp_len", UdpLen),
    ("payload_len", PayloadLen),
    ("payload_length", PayloadLen),
    ("payload", Payload),
    ("payload_md5", Md5),
    ("payload_md5_hex", Md5Digits),
    ("icmp_type", IcmpType),
    ("icmp_type_name", IcmpTypeName),
    ("icmp_code", IcmpCode),
    ("icmp_code_name", IcmpCodeName),
    ("icmp_nextmtu", NextMtu),
    ("icmp_flowid", IcmpId),
    ("icmp_id", IcmpId),
    ("icmp_seq", IcmpSeq),
    ("icmp_sequence", IcmpSeq),
    ("count", Count),
    ("packets", Count),
    ("pkt_count", Count),
    ("packet_count", Count),
    ("link", Link),
    ("direction", Direction),
    ("aggregate", Aggregate),
    ("agg", Aggregate),
    ("paint", Paint),
    ("wire_len", WireLen),
    ("wire_length", WireLen),
    ("eth_src", EthSrc),
    ("ether_src", EthSrc),
    ("eth_dst", EthDst),
    ("ether_dst", EthDst),
    ("eth_type", EthType),
    ("ether_type", EthType),
];

impl Value for Field {
    fn read(text: &str) -> Result<Self, String> {
        // Words of a name may have spaces between them, within quotes.
        let joined = text.replace(' ', "_");
        let found = NAMES.iter().find(|(name, _)| *name == joined).map(|(_, field)| *field);
        found.ok_or_else(|| "no field of a summary".to_owned())
    }
}

impl Field {
    pub(crate) fn name(self) -> &'static str {
        NAMES.iter().find(|(_, field)| *field == self).map_or("none", |(name, _)| name)
    }
}

impl Seen<'_> {
    /// Text of a field; `None` where the packet does not have it.
    pub(crate) fn text(&self, field: Field) -> Option<String> {
        let a = &self.annotations;
        let mac = |at: usize| {
            let bytes = self.frame.get(at..)?.first_chunk().filter(|_| self.network >= 14)?;
            Some(dashed(Mac(*bytes)))
        };
        let header = || Ip4::at(self.ip()?, 0);
        let number = |number: u16| number.to_string();
        Some(match field {
            Field::None => return None,
            Timestamp => seconds(a.timestamp_ns),
            NanoTimestamp => long_seconds(a.timestamp_ns),
            FirstNano => long_seconds(a.first_ns),
            Seconds => a.timestamp_ns.div_euclid(SECOND_NS).to_string(),
            Micros => (a.timestamp_ns.rem_euclid(SECOND_NS) / 1000).to_string(),
            MicrosInAll => a.timestamp_ns.div_euclid(1000).to_string(),
            FirstTimestamp => seconds(a.first_ns),
            Src => Ipv4Addr::from_bits(header()?.src()).to_string(),
            Dst => Ipv4Addr::from_bits(header()?.dst()).to_string(),
            Len => header()?.total_len().to_string(),
            Proto => match header()?.protocol() {
                TCP => "T".into(),
                UDP => "U".into(),
                PROTOCOL_ICMP => "I".into(),
                other => other.to_string(),
            },
            Id => number(header()?.id()),
            Tos => header()?.traffic_class().to_string(),
            Dscp => (header()?.traffic_class() >> 2).to_string(),
            Ecn => ECN[usize::from(header()?.traffic_class() & 3)].into(),
            Ttl => header()?.ttl().to_string(),
            Sum => number(header()?.checksum()),
            HeaderLen => header()?.header_len().to_string(),
            Frag => match header()?.fragment() {
                bits if bits & FRAGMENT_OFFSET != 0 => "f".into(),
                bits if bits & MORE_FRAGMENTS != 0 => "F".into(),
                bits if bits & DONT_FRAGMENT != 0 => "!".into(),
                _ => ".".into(),
            },
            FragOffset => fragment_offset(header()?.fragment()),
            CaptureLen => self.ip()?.len().to_string(),
            SrcPort | DstPort => {
                let (protocol, transport) = self.transport()?;
                let at = if field == SrcPort { 0 } else { 2 };
                number(word(transport, at).filter(|_| matches!(protocol, TCP | UDP))?)
            }
            Seq => long(self.of(TCP)?, 4)?.to_string(),
            Ack => long(self.of(TCP)?, 8)?.to_string(),
            Flags => flags(word(self.of(TCP)?, 12)? & FLAG_BITS),
            TcpOffset => (self.of(TCP)?.get(12)? >> 4 << 2).to_string(),
            Window => number(word(self.of(TCP)?, 14)?),
            Urgent => number(word(self.of(TCP)?, 18)?),
            Options | Sack | NotableOptions => {
                let tcp = self.of(TCP)?;
                let header = usize::from(tcp.get(12)? >> 4) * 4;
                let shown = match field {
                    Options => Shown::All,
                    Sack => Shown::Sack,
                    _ => Shown::Notable,
                };
                tcp_options::text(tcp.get(20..header).unwrap_or_default(), shown)
            }
            UdpLen => number(word(self.of(UDP)?, 4)?),
            PayloadLen => (self.payload()?.len() + a.extra_length as usize).to_string(),
            Payload => quoted(self.payload()?),
            Md5 => md5::letters(self.payload()?),
            Md5Digits => md5::hex(self.payload()?),
            IpOptions => {
                let header = header()?.header_len();
                ip_options::text(self.ip()?.get(20..header).unwrap_or_default())
            }
            IcmpType => self.of(PROTOCOL_ICMP)?.first()?.to_string(),
            IcmpCode => self.of(PROTOCOL_ICMP)?.get(1)?.to_string(),
            IcmpTypeName => {
                let kind = *self.of(PROTOCOL_ICMP)?.first()?;
                name_of(names::ICMP_TYPES, kind.into()).unwrap_or_else(|| kind.to_string())
            }
            IcmpCodeName => {
                let icmp = self.of(PROTOCOL_ICMP)?;
                let (kind, code) = (*icmp.first()?, *icmp.get(1)?);
                name_of(v4_codes(kind), code.into()).unwrap_or_else(|| code.to_string())
            }
            // Error messages have other things there.
            IcmpId | IcmpSeq => {
                let icmp = self.of(PROTOCOL_ICMP)?;
                let has_id = matches!(icmp.first()?, 0 | 8 | 13..=16);
                number(word(icmp, if field == IcmpId { 4 } else { 6 }).filter(|_| has_id)?)
            }
            NextMtu => {
                let icmp = self.of(PROTOCOL_ICMP)?;
                number(word(icmp, 6).filter(|_| icmp.starts_with(&FRAGMENTATION_NEEDED))?)
            }
            Count => (1 + u64::from(a.extra_packets)).to_string(),
            Link | Paint => self.paint.to_string(),
            Direction => match self.paint {
                0 => ">".into(),
                1 => "<".into(),
                other => other.to_string(),
            },
            Aggregate => a.aggregate.to_string(),
            WireLen => (self.frame.len() + a.extra_length as usize).to_string(),
            EthSrc => mac(6)?,
            EthDst => mac(0)?,
            EthType => format!("{:04X}", word(self.frame, 12).filter(|_| self.network >= 14)?),
        })
    }
}

/// Names of the ECN field's values.
pub(super) const ECN: [&str; 4] = ["no", "ect1", "ect2", "ce"];

/// The word of a header that has the offset of a fragment, as text: an offset in bytes, and marks of its bits.
pub(super) fn fragment_offset(bits: u16) -> String {
    let more = if bits & MORE_FRAGMENTS != 0 { "+" } else { "" };
    let whole = if bits & DONT_FRAGMENT != 0 { "!" } else { "" };
    format!("{}{more}{whole}", (bits & FRAGMENT_OFFSET) * 8)
}

/// The word of such a text, with an offset in units of so many bytes; of a letter as `ip_frag` has it as well.
pub(super) fn read_fragment(text: &str, unit_bytes: u16) -> Option<u16> {
    match text {
        "." => return Some(0),
        "!" => return Some(DONT_FRAGMENT),
        "F" => return Some(MORE_FRAGMENTS),
        // Somewhere behind the first.
        "f" => return Some(100),
        _ => {}
    }
    let offset = text.trim_end_matches(['+', '!']);
    let offset_units = u16::read(offset).ok()? / (8 / unit_bytes);
    let mut bits = Some(offset_units).filter(|offset| *offset <= FRAGMENT_OFFSET)?;
    for mark in text[offset.len()..].bytes() {
        bits |= if mark == b'+' { MORE_FRAGMENTS } else { DONT_FRAGMENT };
    }
    Some(bits)
}

/// Type and code of the ICMP message that has an MTU.
const FRAGMENTATION_NEEDED: [u8; 2] = [3, 4];

fn name_of(names: &names::Names, number: u16) -> Option<String> {
    names.iter().find(|(_, known)| *known == number).map(|(name, _)| (*name).to_owned())
}

/// A number, or the name of one.
fn named(names: Option<&names::Names>, text: &str) -> Option<u8> {
    let known = names.and_then(|names| names::number(names, text));
    known.map_or_else(|| u8::read(text).ok(), |number| u8::try_from(number).ok())
}

/// Letters of TCP's flags, from the lowest on.
const FLAGS: &[u8; 9] = b"FSRPAUECN";

/// Bits that TCP's flags have in the word that begins with its data offset.
const FLAG_BITS: u16 = 0x1ff;

/// Flags as letters; a point for none.
pub(crate) fn flags(bits: u16) -> String {
    let set = FLAGS.iter().enumerate().filter(|(at, _)| bits >> at & 1 != 0);
    let text: String = set.map(|(_, letter)| char::from(*letter)).collect();
    if text.is_empty() { ".".into() } else { text }
}

/// Bytes between double quotes.
pub(super) fn quoted(bytes: &[u8]) -> String {
    let mut text = String::from("\"");
    for &byte in bytes {
        match byte {
            b'"' | b'\\' | b'$' => text.extend(['\\', char::from(byte)]),
            b'\n' => text.push_str("\\n"),
            b'\t' => text.push_str("\\t"),
            b'\r' => text.push_str("\\r"),
            b' '..=b'~' => text.push(char::from(byte)),
            other => {
                // A text takes all.
                let _ = write!(text, "\\{other:03o}");
            }
        }
    }
    text.push('"');
    text
}

/// What a row of a summary has of a packet.
#[derive(Clone, Debug, Default)]
pub(crate) struct Described {
    pub(crate) annotations: Annotations,
    pub(crate) paint: Option<u8>,
    pub(crate) src: u32,
    pub(crate) dst: u32,
    pub(crate) len: Option<u16>,
    pub(crate) proto: Option<u8>,
    id: u16,
    tos: u8,
    ttl: Option<u8>,
    sum: Option<u16>,
    pub(crate) fragment: u16,
    pub(crate) ports: [u16; 2],
    seq: u32,
    ack: u32,
    flags: u16,
    window: u16,
    urgent: u16,
    options: Vec<u8>,
    udp_len: Option<u16>,
    payload_len: Option<u32>,
    pub(crate) payload: Vec<u8>,
    icmp: [u8; 2],
    icmp_rest: [u16; 2],
    has_icmp: bool,
    header_len: Option<u8>,
    ip_options: Vec<u8>,
    /// Whether a field of an IP packet was read.
    is_ip: bool,
    /// Offsets of fragments are in units of 8 bytes.
    pub(super) in_eights: bool,
}

impl Described {
    /// Whether it is an IP packet: of annotations alone comes an empty one.
    pub(crate) fn is_ip(&self) -> bool {
        self.is_ip
    }

    /// Takes the ends of a flow; `None` where they are none.
    pub(crate) fn take_flow(&mut self, flow: &str) -> Option<()> {
        let fields = [Src, SrcPort, Dst, DstPort, Proto];
        let mut words = flow.split_whitespace();
        for field in fields {
            match words.next() {
                Some(word) => self.take(field, word)?,
                None if field == Proto => {}
                None => return None,
            }
        }
        Some(())
    }

    /// Takes a field; `None` where the text does not fit it.
    pub(crate) fn take(&mut self, field: Field, text: &str) -> Option<()> {
        if text == "-" && field != Field::None {
            return Some(());
        }
        let noted = matches!(
            field,
            Field::None
                | Timestamp
                | NanoTimestamp
                | Seconds
                | Micros
                | MicrosInAll
                | FirstTimestamp
                | FirstNano
                | Count
                | Link
                | Paint
                | Direction
                | Aggregate
                | WireLen
                | EthSrc
                | EthDst
                | EthType
        );
        self.take_value(field, text)?;
        self.is_ip |= !noted;
        Some(())
    }

    fn take_value(&mut self, field: Field, text: &str) -> Option<()> {
        match field {
            Field::None
            | CaptureLen
            | WireLen
            | EthSrc
            | EthDst
            | EthType
            | TcpOffset
            | Md5
            | Md5Digits => {}
            IpOptions => self.ip_options = ip_options::read(text)?,
            HeaderLen => {
                let bytes = u8::read(text).ok().filter(|bytes| bytes % 4 == 0)?;
                self.header_len = Some(Some(bytes).filter(|bytes| (20..=60).contains(bytes))?);
            }
            Timestamp | NanoTimestamp => self.annotations.timestamp_ns = read_seconds(text)?,
            Seconds => {
                let part = self.annotations.timestamp_ns.rem_euclid(SECOND_NS);
                self.annotations.timestamp_ns =
                    whole(text)?.checked_mul(SECOND_NS)?.checked_add(part)?;
            }
            Micros => {
                let ns = self.annotations.timestamp_ns;
                let whole = ns.checked_sub(ns.rem_euclid(SECOND_NS))?;
                let part = i64::from(u32::read(text).ok()?) * 1000;
                self.annotations.timestamp_ns = whole.checked_add(part)?;
            }
            MicrosInAll => {
                self.annotations.timestamp_ns = whole(text)?.checked_mul(1000)?;
            }
            FirstTimestamp | FirstNano => self.annotations.first_ns = read_seconds(text)?,
            Src => self.src = Ipv4Addr::read(text).ok()?.to_bits(),
            Dst => self.dst = Ipv4Addr::read(text).ok()?.to_bits(),
            Len => self.len = Some(u16::read(text).ok()?),
            Proto => self.proto = Some(protocol(text)?),
            Id => self.id = u16::read(text).ok()?,
            Tos => self.tos = u8::read(text).ok()?,
            Dscp => {
                let dscp = u8::read(text).ok().filter(|dscp| *dscp < 64)?;
                self.tos = self.tos & 3 | dscp << 2;
            }
            Ecn => {
                let named = ECN.iter().zip(0..).find(|(name, _)| **name == text);
                let ecn = named.map_or_else(|| u8::read(text).ok(), |(_, number)| Some(number));
                self.tos = self.tos & !3 | ecn.filter(|ecn| *ecn < 4)?;
            }
            Ttl => self.ttl = Some(u8::read(text).ok()?),
            Sum => self.sum = Some(u16::read(text).ok()?),
            Frag | FragOffset => {
                let unit_bytes = if self.in_eights { 8 } else { 1 };
                self.fragment = read_fragment(text, unit_bytes)?;
            }
            SrcPort => self.ports[0] = u16::read(text).ok()?,
            DstPort => self.ports[1] = u16::read(text).ok()?,
            Seq => self.seq = u32::read(text).ok()?,
            Ack => self.ack = u32::read(text).ok()?,
            Flags => self.flags = read_flags(text)?,
            Window => self.window = u16::read(text).ok()?,
            Urgent => self.urgent = u16::read(text).ok()?,
            Options | Sack | NotableOptions => self.options = tcp_options::read(text)?,
            UdpLen => self.udp_len = Some(u16::read(text).ok()?),
            PayloadLen => self.payload_len = Some(u32::read(text).ok()?),
            Payload => self.payload = unquote(text).into_owned(),
            IcmpType | IcmpCode => {
                self.icmp[usize::from(field == IcmpCode)] = u8::read(text).ok()?;
                self.has_icmp = true;
            }
            IcmpTypeName => {
                self.icmp[0] = named(Some(names::ICMP_TYPES), text)?;
                self.has_icmp = true;
            }
            IcmpCodeName => {
                self.icmp[1] = named(Some(v4_codes(self.icmp[0])), text)?;
                self.has_icmp = true;
            }
            NextMtu => self.icmp_rest[1] = u16::read(text).ok()?,
            IcmpId => self.icmp_rest[0] = u16::read(text).ok()?,
            IcmpSeq => self.icmp_rest[1] = u16::read(text).ok()?,
            Count => self.annotations.extra_packets = u32::read(text).ok()?.checked_sub(1)?,
            Link | Paint | Direction => {
                self.paint = Some(match text {
                    ">" | "L" => 0,
                    "<" | "R" | "X" => 1,
                    other => u8::read(other).ok()?,
                });
            }
            Aggregate => self.annotations.aggregate = u32::read(text).ok()?,
        }
        Some(())
    }

    /// The packet, of a protocol unless it states one; bytes that it should have and nothing is known of are zeros where
    /// `zero` or where it gets checksums, and an annotation otherwise.
    pub(crate) fn packet(&mut self, usual: u8, zero: bool, checksum: bool) -> Vec<u8> {
        let protocol = self.proto.unwrap_or(if self.has_icmp { PROTOCOL_ICMP } else { usual });
        let header = usize::from(self.header_len.unwrap_or(20)).max(20 + self.ip_options.len());
        let words = u8::try_from(header / 4).unwrap_or(15);
        let mut ip = vec![0x40 | words, self.tos, 0, 0];
        ip.extend(self.id.to_be_bytes());
        ip.extend(self.fragment.to_be_bytes());
        ip.extend([self.ttl.unwrap_or(100), protocol, 0, 0]);
        ip.extend(self.src.to_be_bytes());
        ip.extend(self.dst.to_be_bytes());
        ip.extend(&self.ip_options);
        // Options that end the list.
        ip.resize(header, 0);
        if self.fragment & FRAGMENT_OFFSET == 0 {
            self.transport(protocol, &mut ip);
        }
        ip.extend(&self.payload);
        let wanted = match (self.len, self.payload_len) {
            (Some(len), _) => usize::from(len),
            (None, Some(len)) => ip.len() - self.payload.len() + len as usize,
            (None, None) => ip.len(),
        };
        let total = wanted.clamp(header, 65_535);
        if total < ip.len() && self.len.is_none() {
            ip.truncate(total);
        }
        // A sum is that of all bytes.
        if (zero || checksum) && total > ip.len() {
            ip.resize(total, 0);
        }
        let extra = total.saturating_sub(ip.len());
        self.annotations.extra_length = u32::try_from(extra).unwrap_or(0);
        let stated = u16::try_from(total).unwrap_or(u16::MAX);
        ip[2..4].copy_from_slice(&stated.to_be_bytes());
        if protocol == UDP && self.fragment & FRAGMENT_OFFSET == 0 && ip.len() >= header + 8 {
            let len = self.udp_len.unwrap_or(stated - u16::from(words) * 4);
            ip[header + 4..header + 6].copy_from_slice(&len.to_be_bytes());
        }
        if checksum {
            super::super::checksums::fill_checksums(&mut ip);
        }
        if let Some(sum) = self.sum {
            ip[10..12].copy_from_slice(&sum.to_be_bytes());
        }
        ip
    }

    fn transport(&self, protocol: u8, out: &mut Vec<u8>) {
        match protocol {
            TCP => {
                out.extend(self.ports.map(u16::to_be_bytes).concat());
                out.extend(self.seq.to_be_bytes());
                out.extend(self.ack.to_be_bytes());
                let words = u8::try_from(5 + self.options.len() / 4).unwrap_or(15);
                out.extend((u16::from(words) << 12 | self.flags).to_be_bytes());
                out.extend(self.window.to_be_bytes());
                out.extend([0, 0]);
                out.extend(self.urgent.to_be_bytes());
                out.extend(&self.options);
            }
            UDP => {
                out.extend(self.ports.map(u16::to_be_bytes).concat());
                out.extend([0; 4]);
            }
            PROTOCOL_ICMP => {
                out.extend(self.icmp);
                out.extend([0, 0]);
                out.extend(self.icmp_rest.map(u16::to_be_bytes).concat());
            }
            _ => {}
        }
    }
}

/// A protocol: a letter, a name or a number.
pub(crate) fn protocol(text: &str) -> Option<u8> {
    match text {
        "T" => Some(TCP),
        "U" => Some(UDP),
        "I" => Some(PROTOCOL_ICMP),
        other => names::protocol(other),
    }
}

/// A number that is not below 0: no packet is of a time before 1970, and texts of times have no sign.
fn whole(text: &str) -> Option<i64> {
    u64::read(text).ok().and_then(|number| i64::try_from(number).ok())
}

pub(super) fn read_flags(text: &str) -> Option<u16> {
    if let Ok(bits) = u16::read(text) {
        return Some(bits).filter(|bits| *bits <= FLAG_BITS);
    }
    if text == "." {
        return Some(0);
    }
    text.bytes().try_fold(0, |bits, letter| {
        // Other letters of ECE and CWR.
        let letter = match letter {
            b'X' => b'E',
            b'W' | b'Y' => b'C',
            letter => letter,
        };
        FLAGS.iter().position(|&known| known == letter).map(|at| bits | 1 << at)
    })
}
