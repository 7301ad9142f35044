//! Fields of packets as `AggregateIP` names them: bits of the network header, of the transport header or of the
//! payload.
//!
//! Source: the manual page of Click's `AggregateIP`. A field has a name (`ip src`, `tcp syn`), or is a place:
//! `ip[OFFSET:LENGTH]`, `transp[FIRST-LAST]` or `data[OFFSET]` in bytes, the same between braces in bits. `/N` takes
//! its first bits, `& MASK` those of a mask that has its ones side by side.

use crate::element::click::only::seen::Seen;
use crate::filter::names;
use crate::frame::wire::icmp::PROTOCOL_ICMP;
use crate::frame::wire::protocol::{TCP, UDP};
use crate::language::Value;

/// What a field is in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Header {
    Ip,
    /// The transport header, of a protocol where one is named.
    Transport(Option<u8>),
    /// The payload of TCP or UDP.
    Payload,
}

/// Bits of a header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Field {
    pub(super) header: Header,
    pub(super) offset_bits: usize,
    pub(super) bits: usize,
}

const IN_TCP: Header = Header::Transport(Some(TCP));
const IN_UDP: Header = Header::Transport(Some(UDP));
const IN_ICMP: Header = Header::Transport(Some(PROTOCOL_ICMP));

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
    ("ip rf", Header::Ip, 48, 1),
    ("ip df", Header::Ip, 49, 1),
    ("ip mf", Header::Ip, 50, 1),
    ("ip fragoff", Header::Ip, 51, 13),
    ("ip ttl", Header::Ip, 64, 8),
    ("ip proto", Header::Ip, 72, 8),
    ("ip sum", Header::Ip, 80, 16),
    ("ip src", Header::Ip, 96, 32),
    ("ip dst", Header::Ip, 128, 32),
    ("sport", Header::Transport(None), 0, 16),
    ("dport", Header::Transport(None), 16, 16),
    ("tcp sport", IN_TCP, 0, 16),
    ("tcp dport", IN_TCP, 16, 16),
    ("tcp seq", IN_TCP, 32, 32),
    ("tcp ack", IN_TCP, 64, 32),
    ("tcp hl", IN_TCP, 96, 4),
    ("tcp flags", IN_TCP, 104, 8),
    ("tcp urg", IN_TCP, 106, 1),
    ("tcp ackf", IN_TCP, 107, 1),
    ("tcp psh", IN_TCP, 108, 1),
    ("tcp rst", IN_TCP, 109, 1),
    ("tcp syn", IN_TCP, 110, 1),
    ("tcp fin", IN_TCP, 111, 1),
    ("tcp win", IN_TCP, 112, 16),
    ("tcp sum", IN_TCP, 128, 16),
    ("tcp urp", IN_TCP, 144, 16),
    ("udp sport", IN_UDP, 0, 16),
    ("udp dport", IN_UDP, 16, 16),
    ("udp len", IN_UDP, 32, 16),
    ("udp sum", IN_UDP, 48, 16),
    ("icmp type", IN_ICMP, 0, 8),
    ("icmp code", IN_ICMP, 8, 8),
    ("icmp sum", IN_ICMP, 16, 16),
];

/// A field without its mask.
fn place(text: &str) -> Option<Field> {
    let joined = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if let Some(&(_, header, offset_bits, bits)) = FIELDS.iter().find(|(name, ..)| *name == joined)
    {
        return Some(Field { header, offset_bits, bits });
    }
    let (name, numbers, unit) = match text.split_once('[') {
        Some((name, rest)) => (name, rest.strip_suffix(']')?, 8),
        None => {
            let (name, rest) = text.split_once('{')?;
            (name, rest.strip_suffix('}')?, 1)
        }
    };
    let header = match name.trim() {
        "ip" => Header::Ip,
        "transp" => Header::Transport(None),
        "data" => Header::Payload,
        name => Header::Transport(Some(names::protocol(name)?)),
    };
    let number = |text: &str| u16::read(text.trim()).map(usize::from).ok();
    let (offset, length) = match numbers.split_once([':', ',']) {
        Some((offset, length)) => (number(offset)?, number(length)?),
        None => match numbers.split_once('-') {
            Some((first, last)) => {
                let first = number(first)?;
                (first, (number(last)? + 1).checked_sub(first)?)
            }
            None => (number(numbers)?, 1),
        },
    };
    Some(Field { header, offset_bits: offset * unit, bits: length * unit })
}

impl Value for Field {
    fn read(text: &str) -> Result<Self, String> {
        let wrong =
            || "no field: `ip src`, `ip dst/8`, `tcp sport`, `ip[9]`, `tcp[0:2]`".to_owned();
        let at = text.find(['/', '&']).unwrap_or(text.len());
        let mut field = place(text[..at].trim()).ok_or_else(wrong)?;
        if let Some(prefix) = text[at..].strip_prefix('/') {
            let prefix = usize::read(prefix.trim()).map_err(|_| wrong())?;
            field.bits = field.bits.min(prefix);
        } else if let Some(mask) = text[at..].strip_prefix('&') {
            let mask = u32::read(mask.trim()).map_err(|_| wrong())?;
            let bits = mask.count_ones() as usize;
            let behind = mask.trailing_zeros() as usize;
            if mask.leading_zeros() as usize + bits + behind != 32 || bits + behind > field.bits {
                return Err(format!("no field: {mask:#x} is no mask of {} bits", field.bits));
            }
            field.offset_bits += field.bits - behind - bits;
            field.bits = bits;
        }
        match field.bits {
            1..=32 => Ok(field),
            _ => Err("no field of 1 to 32 bits".into()),
        }
    }
}

impl Field {
    /// Its value in a packet.
    pub(super) fn of(self, seen: &Seen<'_>) -> Option<u32> {
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
            Header::Payload => {
                seen.transport().filter(|(protocol, _)| matches!(*protocol, TCP | UDP))?;
                seen.payload()?
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

    /// How far its value is shifted to stand in the address that it is a part of.
    pub(super) fn shift_in_addr(self) -> usize {
        let end = self.offset_bits + self.bits;
        match self.header {
            Header::Ip if self.offset_bits >= 96 && end <= 128 => 128 - end,
            Header::Ip if self.offset_bits >= 128 && end <= 160 => 160 - end,
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_by_name_and_place() {
        // A SYN from 10.1.2.3, port 80, with DF, TTL 64 and payload "hi".
        let mut ip =
            vec![0x45, 0, 0, 42, 0, 7, 0x40, 0, 64, TCP, 0xab, 0xcd, 10, 1, 2, 3, 192, 0, 2, 7];
        ip.extend([0, 80, 1, 2, 0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x02, 4, 0, 0x12, 0x34, 0, 9]);
        ip.extend(b"hi");
        let value = |text: &str| Field::read(text).unwrap().of(&Seen::bare(&ip, 0));
        for (text, want) in [
            ("ip df", 1),
            ("ip mf", 0),
            ("ip fragoff", 0),
            ("tcp syn", 1),
            ("tcp ackf", 0),
            ("tcp hl", 5),
            ("tcp sum", 0x1234),
            ("tcp urp", 9),
            ("ip src/8", 10),
            ("ip src & 0xFF000000", 10),
            ("ip src & 0x00ff00", 2),
            ("ip[12]", 10),
            ("ip[12, 1]", 10),
            ("ip[12-13]", 0x0a01),
            ("ip{96, 8}", 10),
            ("ip{96-103}", 10),
            ("ip{49}", 1),
            ("ip[8:2] & 0x3F0", 0x00),
            ("transp[2:2]", 0x0102),
            ("data[0:2]", 0x6869),
        ] {
            assert_eq!(value(text), Some(want), "{text}");
        }
        assert_eq!(["udp sum", "icmp sum", "data[1:2]", "tcp[30]"].map(value), [None; 4]);
        for wrong in ["ip src & 0x5", "ip ttl & 0x100", "ip[5-4]", "ip[4", "ip src & 0"] {
            assert!(Field::read(wrong).is_err(), "{wrong}");
        }
        let shift = |text: &str| Field::read(text).unwrap().shift_in_addr();
        assert_eq!(["ip src/8", "ip[13:2]", "ip dst", "ip ttl"].map(shift), [24, 8, 0, 0]);
    }
}
