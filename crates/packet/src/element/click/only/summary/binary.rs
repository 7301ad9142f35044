//! Rows of summaries in binary form, as `!binary` begins them: a word with the length of the record, itself included, and
//! then each field in so many bytes, the first ones most significant.
//!
//! Source: the binary form of Click's summaries (the manual page of `ipsumdump`). A length with its highest bit set stands before
//! a line of text. Options have a byte with their length before them, a payload four; what a packet lacks is zeros.

use std::net::Ipv4Addr;

use super::fields::{ECN, Field, fragment_offset, protocol, quoted, read_fragment};
use super::{ip_options, md5, tcp_options};
use crate::language::{Value, unquote};

/// Set in the length of a line of text.
const LINE: u32 = 1 << 31;
/// Bytes of a record at most.
const MOST: usize = 1 << 20;

/// What stands in a file.
pub(super) enum Record {
    Line(String),
    /// Texts of the fields of a packet.
    Row(Vec<String>),
}

/// Form of a field.
enum Form {
    Number(usize),
    /// Two words, the second with so many digits.
    Time(usize),
    Addr,
    Mac,
    /// A letter.
    Letter,
    Protocol,
    IpOptions,
    TcpOptions,
    Payload,
    /// A digest of 16 bytes.
    Digest,
    Nothing,
}

fn form(field: Field) -> Form {
    match field {
        Field::None => Form::Nothing,
        Field::Timestamp | Field::FirstTimestamp => Form::Time(6),
        Field::NanoTimestamp | Field::FirstNano => Form::Time(9),
        Field::MicrosInAll => Form::Number(8),
        Field::Src | Field::Dst => Form::Addr,
        Field::EthSrc | Field::EthDst => Form::Mac,
        Field::Frag | Field::Direction => Form::Letter,
        Field::Proto => Form::Protocol,
        Field::IpOptions => Form::IpOptions,
        Field::Options | Field::Sack | Field::NotableOptions => Form::TcpOptions,
        Field::Payload => Form::Payload,
        Field::Md5 | Field::Md5Digits => Form::Digest,
        Field::Seconds
        | Field::Micros
        | Field::Len
        | Field::Seq
        | Field::Ack
        | Field::PayloadLen
        | Field::CaptureLen
        | Field::UdpLen
        | Field::Count
        | Field::Aggregate
        | Field::WireLen => Form::Number(4),
        Field::Id
        | Field::Sum
        | Field::SrcPort
        | Field::DstPort
        | Field::FragOffset
        | Field::Window
        | Field::Urgent
        | Field::IcmpId
        | Field::IcmpSeq
        | Field::NextMtu
        | Field::EthType => Form::Number(2),
        Field::Tos
        | Field::Dscp
        | Field::Ecn
        | Field::Ttl
        | Field::Flags
        | Field::HeaderLen
        | Field::TcpOffset
        | Field::IcmpType
        | Field::IcmpCode
        | Field::IcmpTypeName
        | Field::IcmpCodeName
        | Field::Link
        | Field::Paint => Form::Number(1),
    }
}

/// Whether a field has this form; those whose text is no number do not.
pub(super) fn has(field: Field) -> bool {
    !matches!(field, Field::IcmpTypeName | Field::IcmpCodeName)
}

/// Adds a record of the texts of fields.
pub(super) fn write(out: &mut Vec<u8>, fields: &[Field], texts: &[Option<String>]) {
    let start = out.len();
    out.extend([0; 4]);
    for (field, text) in fields.iter().zip(texts) {
        write_field(out, *field, text.as_deref());
    }
    let len = u32::try_from(out.len() - start).unwrap_or(0);
    out[start..start + 4].copy_from_slice(&len.to_be_bytes());
}

/// Adds a line of text.
pub(super) fn write_line(out: &mut Vec<u8>, line: &str) {
    let len = u32::try_from(4 + line.len()).unwrap_or(4) & !LINE;
    out.extend((LINE | len).to_be_bytes());
    out.extend(line.bytes());
}

fn number(text: &str) -> u64 {
    u64::read(text).unwrap_or(0)
}

fn write_field(out: &mut Vec<u8>, field: Field, text: Option<&str>) {
    let text = text.unwrap_or_default();
    let short = |bytes: &[u8]| u8::try_from(bytes.len()).unwrap_or(0);
    match form(field) {
        Form::Nothing => {}
        Form::Digest => out.extend(md5::read(text)),
        Form::Number(bytes) => {
            let value = match field {
                Field::Flags => u64::from(super::fields::read_flags(text).unwrap_or(0)),
                Field::FragOffset => u64::from(read_fragment(text, 1).unwrap_or(0)),
                Field::Ecn => {
                    ECN.iter().zip(0..).find(|(name, _)| **name == text).map_or(0, |(_, n)| n)
                }
                Field::EthType => u64::from_str_radix(text, 16).unwrap_or(0),
                _ => number(text),
            };
            out.extend(&value.to_be_bytes()[8 - bytes..]);
        }
        Form::Time(_) => {
            let (seconds, part) = text.split_once('.').unwrap_or((text, ""));
            for word in [seconds, part.trim_start_matches('0')] {
                out.extend(&number(word).to_be_bytes()[4..]);
            }
        }
        Form::Addr => out.extend(Ipv4Addr::read(text).unwrap_or(Ipv4Addr::UNSPECIFIED).octets()),
        Form::Mac => {
            let mut bytes = text.split('-').map(|byte| u8::from_str_radix(byte, 16).unwrap_or(0));
            out.extend((0..6).map(|_| bytes.next().unwrap_or(0)));
        }
        Form::Letter => out.push(text.bytes().next().unwrap_or(0)),
        Form::Protocol => out.push(protocol(text).unwrap_or(0)),
        Form::IpOptions | Form::TcpOptions => {
            let read = match form(field) {
                Form::IpOptions => ip_options::read(text),
                _ => tcp_options::read(text),
            };
            let bytes = read.unwrap_or_default();
            out.push(short(&bytes));
            out.extend(bytes);
        }
        Form::Payload => {
            let bytes = unquote(text);
            out.extend(u32::try_from(bytes.len()).unwrap_or(0).to_be_bytes());
            out.extend(&*bytes);
        }
    }
}

/// Reads a record of these fields; `None` at the end, or where the file is damaged.
pub(super) fn read(input: &mut impl std::io::Read, fields: &[Field]) -> Option<Record> {
    let mut word = [0; 4];
    input.read_exact(&mut word).ok()?;
    let word = u32::from_be_bytes(word);
    let len = usize::try_from(word & !LINE).ok()?.checked_sub(4).filter(|len| *len <= MOST)?;
    let mut bytes = vec![0; len];
    input.read_exact(&mut bytes).ok()?;
    if word & LINE != 0 {
        return Some(Record::Line(String::from_utf8_lossy(&bytes).into_owned()));
    }
    let mut rest = &bytes[..];
    let texts = fields.iter().map(|field| read_field(&mut rest, *field).unwrap_or("-".into()));
    Some(Record::Row(texts.collect()))
}

fn read_field(rest: &mut &[u8], field: Field) -> Option<String> {
    let mut take = |bytes: usize| rest.split_off(..bytes);
    let value =
        |bytes: &[u8]| bytes.iter().fold(0_u64, |value, byte| value << 8 | u64::from(*byte));
    Some(match form(field) {
        Form::Nothing => return None,
        Form::Digest => take(16)?.iter().map(|byte| format!("{byte:02x}")).collect(),
        Form::Number(bytes) => {
            let value = value(take(bytes)?);
            match field {
                Field::Flags => super::fields::flags(u16::try_from(value).ok()?),
                Field::FragOffset => fragment_offset(u16::try_from(value).ok()?),
                Field::Ecn => (*ECN.get(usize::try_from(value).ok()?)?).to_owned(),
                _ => value.to_string(),
            }
        }
        Form::Time(digits) => {
            let (seconds, part) = (value(take(4)?), value(take(4)?));
            format!("{seconds}.{part:0digits$}")
        }
        Form::Addr => Ipv4Addr::from_bits(u32::try_from(value(take(4)?)).ok()?).to_string(),
        Form::Mac => {
            let digits: Vec<_> = take(6)?.iter().map(|byte| format!("{byte:02X}")).collect();
            digits.join("-")
        }
        Form::Letter => char::from(take(1)?[0]).to_string(),
        Form::Protocol => take(1)?[0].to_string(),
        Form::IpOptions | Form::TcpOptions => {
            let len = take(1)?[0].into();
            let bytes = take(len)?;
            match form(field) {
                Form::IpOptions => ip_options::text(bytes),
                _ => tcp_options::text(bytes, tcp_options::Shown::All),
            }
        }
        Form::Payload => {
            let len = usize::try_from(value(take(4)?)).ok()?;
            quoted(take(len)?)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_written_and_read() {
        let rows = [
            ("timestamp", "1.500000", 8),
            ("ntimestamp", "1.000000007", 8),
            ("ts_usec1", "5000000000", 8),
            ("ip_src", "1.2.3.4", 4),
            ("ip_len", "70000", 4),
            ("ip_frag", "F", 1),
            ("ip_proto", "89", 1),
            ("sport", "80", 2),
            ("tcp_flags", "SA", 1),
            ("ip_fragoff", "1480+", 2),
            ("ip_ecn", "ce", 1),
            ("payload_md5_hex", "900150983cd24fb0d6963f7d28e17f72", 16),
            ("tcp_opt", "mss1460", 5),
            ("ip_opt", "rr{1.0.0.1}", 9),
            ("payload", "\"a\\n\"", 6),
            ("eth_src", "02-00-00-00-00-01", 6),
        ];
        let fields: Vec<_> = rows.iter().map(|row| Field::read(row.0).unwrap()).collect();
        let texts: Vec<_> = rows.iter().map(|row| Some(row.1.to_owned())).collect();
        let mut out = Vec::new();
        write(&mut out, &fields, &texts);
        assert_eq!(out.len(), 4 + rows.iter().map(|row| row.2).sum::<usize>());
        let Some(Record::Row(read_again)) = read(&mut &out[..], &fields) else { panic!("a row") };
        let want: Vec<_> = rows.iter().map(|row| row.1.to_owned()).collect();
        assert_eq!(read_again, want);
        let mut line = Vec::new();
        write_line(&mut line, "!xy");
        assert_eq!(line, [&(LINE | 7).to_be_bytes()[..], b"!xy"].concat());
        assert!(matches!(read(&mut &line[..], &[]), Some(Record::Line(text)) if text == "!xy"));
        for damaged in [&[0, 0, 0, 3][..], &[0, 0, 0, 9, 1], &[0, 0], &[0x7f; 4]] {
            assert!(read(&mut &*damaged, &fields).is_none());
        }
    }
}
