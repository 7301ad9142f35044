//! Aggregates: packets get the number of the group that they belong to. `AggregateIP(FIELD)` takes it from a field of
//! the header, `AggregateLength` from the length, `AggregatePaint` from the color.
//!
//! Source: Click's elements of these names. A field is `ip src`, `ip dst/8`, `tcp sport`, `ip ttl`, or bits of a
//! header: `ip[OFFSET]`, `tcp[OFFSET:BYTES]`, each with `/PREFIX` for its first bits. With `INCREMENTAL true` the new
//! bits are put behind those of the aggregate before. A packet without the field leaves by the second output, where it
//! is used, or is dropped.

mod flow_trace;
pub(crate) mod flows;
mod fragments;
pub(crate) mod picks;

use super::annotations::Annotations;
use super::each::{class, each, sorting};
use super::seen::{Seen, word};
use crate::element::support::byte_anno::ByteAnno;
use crate::filter::names;
use crate::frame::wire::icmp::PROTOCOL_ICMP;
use crate::frame::wire::protocol::{TCP, UDP};
use crate::frame::{Batch, DropReason};
use crate::graph::ElementClass;
use crate::handler::Handler;
use crate::language::Value;

/// Gives packet `i` an aggregate.
fn set(batch: &mut Batch, i: usize, aggregate: u32) {
    let mut annotations = Annotations::of(batch, i);
    annotations.aggregate = aggregate;
    annotations.set(batch, i);
}

/// Header that a field is in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Header {
    Ip,
    /// The transport header, of a protocol where one is named.
    Transport(Option<u8>),
}

/// Bits of a header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Field {
    header: Header,
    offset_bits: usize,
    bits: usize,
}

/// Names of fields: where they are, in bits.
const FIELDS: &[(&str, Header, usize, usize)] = &[
    ("ip vers", Header::Ip, 0, 4),
    ("ip hl", Header::Ip, 4, 4),
    ("ip tos", Header::Ip, 8, 8),
    ("ip dscp", Header::Ip, 8, 6),
    ("ip ecn", Header::Ip, 14, 2),
    ("ip len", Header::Ip, 16, 16),
    ("ip id", Header::Ip, 32, 16),
    ("ip off", Header::Ip, 48, 16),
    ("ip ttl", Header::Ip, 64, 8),
    ("ip proto", Header::Ip, 72, 8),
    ("ip sum", Header::Ip, 80, 16),
    ("ip src", Header::Ip, 96, 32),
    ("ip dst", Header::Ip, 128, 32),
    ("sport", Header::Transport(None), 0, 16),
    ("dport", Header::Transport(None), 16, 16),
    ("tcp sport", Header::Transport(Some(TCP)), 0, 16),
    ("tcp dport", Header::Transport(Some(TCP)), 16, 16),
    ("tcp seq", Header::Transport(Some(TCP)), 32, 32),
    ("tcp ack", Header::Transport(Some(TCP)), 64, 32),
    ("tcp flags", Header::Transport(Some(TCP)), 104, 8),
    ("tcp win", Header::Transport(Some(TCP)), 112, 16),
    ("udp sport", Header::Transport(Some(UDP)), 0, 16),
    ("udp dport", Header::Transport(Some(UDP)), 16, 16),
    ("udp len", Header::Transport(Some(UDP)), 32, 16),
    ("icmp type", Header::Transport(Some(PROTOCOL_ICMP)), 0, 8),
    ("icmp code", Header::Transport(Some(PROTOCOL_ICMP)), 8, 8),
];

impl Value for Field {
    fn read(text: &str) -> Result<Self, String> {
        let wrong =
            || "no field: `ip src`, `ip dst/8`, `tcp sport`, `ip[9]`, `tcp[0:2]`".to_owned();
        let (place, prefix) = match text.split_once('/') {
            None => (text.trim(), None),
            Some((place, prefix)) => {
                (place.trim(), Some(usize::read(prefix.trim()).map_err(|_| wrong())?))
            }
        };
        let joined = place.split_whitespace().collect::<Vec<_>>().join(" ");
        let named = FIELDS.iter().find(|(name, ..)| *name == joined);
        let mut field = match named {
            Some(&(_, header, offset_bits, bits)) => Self { header, offset_bits, bits },
            None => {
                let (header, rest) = place.split_once('[').ok_or_else(wrong)?;
                let numbers = rest.strip_suffix(']').ok_or_else(wrong)?;
                let (offset, bytes) = numbers.split_once(':').unwrap_or((numbers, "1"));
                let number =
                    |text: &str| u16::read(text.trim()).map(usize::from).map_err(|_| wrong());
                let header = match header.trim() {
                    "ip" => Header::Ip,
                    "transp" => Header::Transport(None),
                    name => Header::Transport(Some(names::protocol(name).ok_or_else(wrong)?)),
                };
                Self { header, offset_bits: number(offset)? * 8, bits: number(bytes)? * 8 }
            }
        };
        field.bits = prefix.map_or(field.bits, |prefix| prefix.min(field.bits));
        match field.bits {
            1..=32 => Ok(field),
            _ => Err("no field of 1 to 32 bits".into()),
        }
    }
}

impl Field {
    /// Its value in a packet.
    fn of(self, seen: &Seen<'_>) -> Option<u32> {
        let bytes = match self.header {
            Header::Ip => seen.ip()?,
            Header::Transport(wanted) => {
                let (protocol, transport) = seen.transport()?;
                let fits = match wanted {
                    Some(wanted) => protocol == wanted,
                    None => matches!(protocol, TCP | UDP),
                };
                Some(transport).filter(|_| fits)?
            }
        };
        let mut value = 0_u64;
        let (first, last) = (self.offset_bits / 8, (self.offset_bits + self.bits - 1) / 8);
        for &byte in bytes.get(first..=last)? {
            value = value << 8 | u64::from(byte);
        }
        let behind = (last + 1) * 8 - (self.offset_bits + self.bits);
        u32::try_from(value >> behind & ((1 << self.bits) - 1)).ok()
    }
}

pub(crate) const IP: ElementClass = sorting(
    "AggregateIP",
    &["out", "others"],
    "gives packets the number that a field has",
    |setup| {
        let arg = setup.args.positional_arg("FIELD")?;
        let incremental = setup.args.keyword("INCREMENTAL");
        let unshift = setup.args.keyword("UNSHIFT_IP_ADDR");
        setup.args.finish()?;
        let text = arg.raw().to_owned();
        let field = Field::read(&text)
            .map_err(|words| setup.args.refuse(&arg, &format!("FIELD: `{text}` is {words}")))?;
        let incremental = incremental?.unwrap_or(false);
        // The prefix of an address is itself an address.
        let is_addr = field.header == Header::Ip && matches!(field.offset_bits, 96 | 128);
        let shift = if unshift?.unwrap_or(false) && is_addr { 32 - field.bits } else { 0 };
        let exit = setup.exit(1, DropReason::Unmatched);
        let made = each(move |batch, i| match field.of(&Seen::packet(batch, i)) {
            None => exit.take(batch, i),
            Some(value) if incremental => {
                let before = u64::from(Annotations::of(batch, i).aggregate);
                let [a, b, c, d, ..] = (before << field.bits | u64::from(value)).to_le_bytes();
                set(batch, i, u32::from_le_bytes([a, b, c, d]));
            }
            Some(value) => set(batch, i, value << shift),
        })?;
        let header = match field.header {
            Header::Ip => "ip",
            Header::Transport(_) => "transp",
        };
        Ok(made
            .handler(Handler::read("field", move || text.clone()))
            .handler(Handler::read("header", move || header.to_owned()))
            .handler(Handler::read("bit_offset", move || field.offset_bits.to_string()))
            .handler(Handler::read("bit_length", move || field.bits.to_string())))
    },
);

pub(crate) const LENGTH: ElementClass =
    class("AggregateLength", "gives packets their length as a number", |setup| {
        let ip = setup.args.keyword("IP");
        setup.args.finish()?;
        let ip = ip?.unwrap_or(false);
        each(move |batch, i| {
            let seen = Seen::packet(batch, i);
            let length = match (ip, seen.ip().and_then(|ip| word(ip, 2))) {
                (true, Some(stated)) => u32::from(stated),
                _ => {
                    let extra = Annotations::of(batch, i).extra_length;
                    u32::try_from(batch.frame_len(i)).unwrap_or(u32::MAX).saturating_add(extra)
                }
            };
            set(batch, i, length);
        })
    });

pub(crate) const PAINT: ElementClass =
    class("AggregatePaint", "gives packets their color as a number", |setup| {
        let bits = setup.args.optional::<u32>("BITS");
        let incremental = setup.args.keyword("INCREMENTAL");
        let arg = setup.args.keyword_arg("ANNO")?;
        let anno = ByteAnno::read(setup, arg.as_ref())?;
        setup.args.finish()?;
        let (bits, incremental) = (bits?.unwrap_or(8), incremental?.unwrap_or(false));
        if !(1..=8).contains(&bits) {
            return Err(setup.args.refuse_all("BITS: 1 to 8 are possible"));
        }
        each(move |batch, i| {
            let paint = u32::from(anno.get(batch, i)) & ((1 << bits) - 1);
            let before = Annotations::of(batch, i).aggregate;
            set(batch, i, if incremental { before << bits | paint } else { paint });
        })
    });

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Rig, World, frame_v4, refused, run};

    #[test]
    fn fields_are_numbers() {
        let frame = frame_v4("10.1.2.3", "192.0.2.7", 64, 17, &[0, 53, 1, 2, 0, 8, 0, 0]);
        let number = |config: &str| {
            let batch = run(&IP, config, 14, &[&frame]);
            Annotations::of(&batch, 0).aggregate
        };
        assert_eq!(number("ip src/8"), 10);
        assert_eq!(number("ip src/16, UNSHIFT_IP_ADDR true"), 0x0a01_0000);
        assert_eq!(
            [number("udp dport"), number("ip ttl"), number("ip[9]"), number("udp[0:2]")],
            [258, 64, 17, 53]
        );
        assert_eq!(number("ip hl"), 5);
        let tcp = run(&IP, "tcp sport", 14, &[&frame]);
        assert_eq!(tcp.decision(0), crate::frame::Decision::Output(1));
        assert!(refused(&IP, "ip color").contains("is no field"));
        let text = "FromDevice(a) -> MarkIPHeader(14) -> AggregateIP(ip src/8) -> g :: AggregateIP(ip ttl, INCREMENTAL true)
            -> f :: AggregateFilter(1 2624, deny all); f [0] -> ToDevice(x); f [1] -> ToDevice(y)";
        let mut rig = Rig::new(&World::new(), text);
        assert_eq!(rig.receive("a", &[&frame])[0].0, "y", "10 * 256 + 64");
        assert_eq!((rig.read("g.bit_offset"), rig.read("g.field")), ("64".into(), "ip ttl".into()));
    }

    #[test]
    fn lengths_are_numbers() {
        let frame = frame_v4("10.1.2.3", "192.0.2.7", 64, 17, &[0; 30]);
        assert_eq!(Annotations::of(&run(&LENGTH, "IP true", 14, &[&frame]), 0).aggregate, 50);
        assert_eq!(Annotations::of(&run(&LENGTH, "", 14, &[&frame]), 0).aggregate, 64);
    }
}
