//! Frames in words: what one is, and in what two differ.

use std::fmt::Write as _;
use std::ops::Range;

use fingerpost_lpm::Addr;

use crate::frame::wire::icmp::upper_layer;
use crate::frame::wire::{ETHER_BYTES, Ether, Ip4, Ip6, Ports, ether, protocol};

/// A field that an element rewrote.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Change {
    /// Its name, or the bytes that it stands for: `ttl`, `bytes 60-63`.
    pub field: String,
    /// What stood there.
    pub from: String,
    /// What stands there now.
    pub to: String,
}

/// How the bytes of a field are written.
#[derive(Clone, Copy)]
enum Form {
    Mac,
    Hex,
    Number,
    Address,
}

/// A field by its bytes.
type Field = (&'static str, Range<usize>, Form);

const ETHER: &[Field] = &[
    ("destination mac", 0..6, Form::Mac),
    ("source mac", 6..12, Form::Mac),
    ("ethernet type", 12..14, Form::Hex),
];

const IP4: &[Field] = &[
    ("version and length", 0..1, Form::Hex),
    ("tos", 1..2, Form::Hex),
    ("total length", 2..4, Form::Number),
    ("identification", 4..6, Form::Hex),
    ("fragment", 6..8, Form::Hex),
    ("ttl", 8..9, Form::Number),
    ("protocol", 9..10, Form::Number),
    ("header checksum", 10..12, Form::Hex),
    ("source", 12..16, Form::Address),
    ("destination", 16..20, Form::Address),
];

const IP6: &[Field] = &[
    ("version, class and label", 0..4, Form::Hex),
    ("payload length", 4..6, Form::Number),
    ("next header", 6..7, Form::Number),
    ("hop limit", 7..8, Form::Number),
    ("source", 8..24, Form::Address),
    ("destination", 24..40, Form::Address),
];

const UDP: &[Field] = &[
    ("source port", 0..2, Form::Number),
    ("destination port", 2..4, Form::Number),
    ("udp length", 4..6, Form::Number),
    ("udp checksum", 6..8, Form::Hex),
];

const TCP: &[Field] = &[
    ("source port", 0..2, Form::Number),
    ("destination port", 2..4, Form::Number),
    ("tcp flags", 12..14, Form::Hex),
    ("tcp checksum", 16..18, Form::Hex),
];

const ICMP: &[Field] = &[
    ("icmp type", 0..1, Form::Number),
    ("icmp code", 1..2, Form::Number),
    ("icmp checksum", 2..4, Form::Hex),
];

/// Changes that are listed one by one.
const MOST: usize = 16;

/// In what `after` differs from `before`, by fields as far as they have names.
pub fn changes(before: &[u8], after: &[u8]) -> Vec<Change> {
    let mut found = Vec::new();
    let (mut from, mut to) = (before, after);
    let stripped = before.len().checked_sub(after.len()).filter(|n| before[*n..] == *after);
    let put_on = after.len().checked_sub(before.len()).filter(|n| after[*n..] == *before);
    if let Some(bytes) = stripped.filter(|bytes| *bytes > 0) {
        found.push(reported("front", hex(&before[..bytes]), String::new()));
        return found;
    }
    if let Some(bytes) = put_on.filter(|bytes| *bytes > 0) {
        found.push(reported("front", String::new(), hex(&after[..bytes])));
        return found;
    }
    if before.len() != after.len() {
        found.push(reported("length", before.len().to_string(), after.len().to_string()));
        let both = before.len().min(after.len());
        (from, to) = (&before[..both], &after[..both]);
    }
    let mut named = vec![false; from.len()];
    for (fields, offset) in layout(from) {
        for (name, range, form) in fields {
            let range = range.start + offset..range.end + offset;
            let (Some(old), Some(new)) = (from.get(range.clone()), to.get(range.clone())) else {
                break;
            };
            named[range].fill(true);
            if old != new {
                found.push(reported(name, form.write(old), form.write(new)));
            }
        }
    }
    // What has no name, in stretches.
    let other = |at: &usize| !named[*at] && from[*at] != to[*at];
    let mut at = 0;
    while found.len() < MOST
        && let Some(first) = (at..from.len()).find(other)
    {
        let end = (first..from.len()).find(|at| !other(at)).unwrap_or(from.len());
        at = first;
        let words = format!("bytes {at}-{}", end - 1);
        found.push(reported(&words, hex(&from[at..end]), hex(&to[at..end])));
        at = end;
    }
    found
}

/// The headers of a frame, and where each begins.
fn layout(frame: &[u8]) -> Vec<(&'static [Field], usize)> {
    let mut headers = vec![(ETHER, 0)];
    match Ether::of(frame).map(Ether::kind) {
        Some(ether::TYPE_IP4) => {
            headers.push((IP4, ETHER_BYTES));
            if let Some(ip) = Ip4::at(frame, ETHER_BYTES).filter(|ip| ip.fragment() & 0x1fff == 0) {
                headers.extend(transport(ip.protocol(), ETHER_BYTES + ip.header_len()));
            }
        }
        Some(ether::TYPE_IP6) => {
            headers.push((IP6, ETHER_BYTES));
            if let Some(upper) = upper_layer(&frame[ETHER_BYTES..])
                && upper.fragment.is_none_or(|offset| offset == 0)
            {
                headers.extend(transport(upper.protocol, ETHER_BYTES + upper.at));
            }
        }
        _ => {}
    }
    headers
}

fn transport(number: u8, offset: usize) -> Option<(&'static [Field], usize)> {
    let fields = match number {
        protocol::UDP => UDP,
        protocol::TCP => TCP,
        1 | 58 => ICMP,
        _ => return None,
    };
    Some((fields, offset))
}

fn reported(field: &str, from: String, to: String) -> Change {
    Change { field: field.to_owned(), from, to }
}

impl Form {
    fn write(self, bytes: &[u8]) -> String {
        match self {
            Self::Mac => {
                let parts: Vec<_> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
                parts.join(":")
            }
            Self::Hex => format!("0x{}", hex(bytes)),
            Self::Number => bytes.iter().fold(0_u64, |n, b| n << 8 | u64::from(*b)).to_string(),
            Self::Address => match (<[u8; 4]>::try_from(bytes), <[u8; 16]>::try_from(bytes)) {
                (Ok(v4), _) => std::net::Ipv4Addr::from(v4).to_string(),
                (_, Ok(v6)) => std::net::Ipv6Addr::from(v6).to_string(),
                _ => hex(bytes),
            },
        }
    }
}

/// Bytes as digits, the first ones of many.
fn hex(bytes: &[u8]) -> String {
    const SHOWN: usize = 32;
    let mut text = String::new();
    for byte in bytes.iter().take(SHOWN) {
        let _ = write!(text, "{byte:02x}");
    }
    if bytes.len() > SHOWN { text + ".." } else { text }
}

/// A frame in a line: `10.0.1.2 > 10.0.2.2 udp 1024 > 53 ttl 64, 60 bytes`.
pub fn summary(frame: &[u8]) -> String {
    let bytes = frame.len();
    let Some(ether) = Ether::of(frame) else { return format!("{bytes} bytes, no frame") };
    let network = &frame[ETHER_BYTES..];
    let words = match ether.kind() {
        ether::TYPE_IP4 => Ip4::at(frame, ETHER_BYTES).map(|ip| {
            let transport = network.get(ip.header_len()..).unwrap_or_default();
            // Only the first fragment has the header that the protocol names.
            let first = ip.fragment() & 0x1fff == 0;
            let upper = upper(ip.protocol(), if first { transport } else { &[] });
            let fragment = if ip.is_fragment() { ", a fragment" } else { "" };
            let (src, dst) = (ip.src().to_ip(), ip.dst().to_ip());
            format!("{src} > {dst} {upper} ttl {}{fragment}", ip.ttl())
        }),
        ether::TYPE_IP6 => Ip6::at(frame, ETHER_BYTES).map(|ip| {
            let found = upper_layer(network);
            let (number, at) = found.map_or((ip.next_header(), network.len()), |upper| {
                // A later fragment has no header of what it is a piece of.
                let first = upper.fragment.is_none_or(|offset| offset == 0);
                (upper.protocol, if first { upper.at } else { network.len() })
            });
            let upper = upper(number, network.get(at..).unwrap_or_default());
            let (src, dst) = (ip.src().to_ip(), ip.dst().to_ip());
            format!("{src} > {dst} {upper} hop limit {}", ip.hop_limit())
        }),
        kind => Some(format!("{} > {} type 0x{kind:04x}", ether.src(), ether.dst())),
    };
    let words = words.unwrap_or_else(|| format!("{} > {} cut off", ether.src(), ether.dst()));
    format!("{words}, {bytes} bytes")
}

/// What IP carries.
fn upper(number: u8, transport: &[u8]) -> String {
    let name = match number {
        1 => "icmp",
        protocol::TCP => "tcp",
        protocol::UDP => "udp",
        58 => "icmp6",
        _ => return format!("protocol {number}"),
    };
    match (number, transport, Ports::of(number, transport)) {
        (1 | 58, [kind, code, ..], _) => format!("{name} type {kind} code {code}"),
        (_, _, Some(ports)) => format!("{name} {} > {}", ports.src, ports.dst),
        _ => name.to_owned(),
    }
}
