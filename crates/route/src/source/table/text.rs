//! Text tables: a line `PREFIX NEXTHOP`, `#` begins a comment, lines are separated by LF or CR LF.

use core::net::{IpAddr, Ipv4Addr};

use super::{FileHop, Outcome, Step, TableEntry, Until};
use crate::event::AnyPrefix;
use fingerpost_lpm::{Addr, Prefix, PrefixError};

/// Two IPv6 addresses take 90 bytes; what is longer is no line of a table.
const LINE_BYTES: usize = 1024;

/// The next line of `bytes`; `whole` when nothing follows them.
pub(super) fn step(bytes: &[u8], whole: bool) -> Step {
    let window = &bytes[..bytes.len().min(LINE_BYTES + 1)];
    match window.iter().position(|&b| b == b'\n') {
        Some(end) => Step::Done(end + 1, line(&bytes[..end])),
        None if bytes.len() > LINE_BYTES => {
            let words = format!("longer than {LINE_BYTES} bytes");
            Step::Skip(LINE_BYTES, Until::LineFeed, Outcome::Reject(words))
        }
        None if whole && !bytes.is_empty() => Step::Done(bytes.len(), line(bytes)),
        None => Step::More,
    }
}

fn line(line: &[u8]) -> Outcome {
    let text = match line.iter().position(|&b| b == b'#') {
        Some(at) => &line[..at],
        None => line,
    };
    let mut fields = text.split(u8::is_ascii_whitespace).filter(|field| !field.is_empty());
    let Some(first) = fields.next() else { return Outcome::Nothing };
    match entry(first, fields.next(), fields.next()) {
        Ok(entry) => Outcome::Entry(entry),
        Err(words) => Outcome::Reject(words),
    }
}

fn entry(first: &[u8], hop: Option<&[u8]>, more: Option<&[u8]>) -> Result<TableEntry, String> {
    let prefix = prefix(first)?;
    let Some(hop) = hop else {
        return Err(format!("no next hop behind {prefix}: an address or a number is needed"));
    };
    if let Some(more) = more {
        return Err(format!("`{}` behind the next hop: nothing may follow it", show(more)));
    }
    let hop = self::hop(hop).ok_or_else(|| {
        format!("`{}` is no next hop: an address or a number is needed", show(hop))
    })?;
    Ok(TableEntry { prefix, hop })
}

fn prefix(field: &[u8]) -> Result<AnyPrefix, String> {
    // The usual case without a detour: four numbers, a slash, a length.
    if let Some((addr, rest)) = v4(field)
        && let Some((b'/', len)) = rest.split_first()
        && let Some(len) = number(len).and_then(|len| u8::try_from(len).ok())
        && let Ok(prefix) = Prefix::new(addr, len)
    {
        return Ok(AnyPrefix::V4(prefix));
    }
    let text = str::from_utf8(field).map_err(|_| format!("`{}` is no prefix", show(field)))?;
    AnyPrefix::parse(text).map_err(|error| match error {
        PrefixError::HostBits => {
            let masked = text.split_once('/').and_then(|(addr, len)| {
                let (addr, len) = (addr.parse().ok()?, len.parse().ok()?);
                Some(match addr {
                    IpAddr::V4(a) => AnyPrefix::V4(Prefix::masked(a.to_bits(), len)),
                    IpAddr::V6(a) => AnyPrefix::V6(Prefix::masked(a.to_bits(), len)),
                })
            });
            let remedy = masked.map(|prefix| format!(" (the prefix is {prefix})"));
            format!("`{}` has bits behind its length{}", show(field), remedy.unwrap_or_default())
        }
        PrefixError::Length { len, max } => {
            format!("`{}`: length {len} exceeds {max}", show(field))
        }
        _ => format!("`{}` is no prefix", show(field)),
    })
}

fn hop(field: &[u8]) -> Option<FileHop> {
    match v4(field) {
        Some((addr, [])) => return Some(FileHop::Addr(Ipv4Addr::from_bits(addr).into())),
        _ if field.contains(&b':') => {
            let addr: IpAddr = str::from_utf8(field).ok()?.parse().ok()?;
            return Some(FileHop::Addr(addr));
        }
        _ => {}
    }
    number(field).map(FileHop::Number)
}

/// An IPv4 address at the start of `bytes`, and what follows it. As strict as the standard
/// library: four decimal numbers without leading zeros.
fn v4(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let (mut addr, mut rest) = (0, bytes);
    for part in 0..4 {
        if part > 0 {
            rest = rest.strip_prefix(b".")?;
        }
        let digits = rest.iter().take(4).take_while(|b| b.is_ascii_digit()).count();
        let value = number(rest.get(..digits)?).filter(|&value| value <= 255)?;
        if digits > 1 && rest[0] == b'0' {
            return None;
        }
        addr = addr << 8 | value;
        rest = &rest[digits..];
    }
    debug_assert_eq!(u32::from_ip(Ipv4Addr::from_bits(addr).into()), Some(addr));
    Some((addr, rest))
}

/// Decimal digits only: no sign, no blank.
fn number(bytes: &[u8]) -> Option<u32> {
    if bytes.is_empty() {
        return None;
    }
    bytes.iter().try_fold(0u32, |value, byte| {
        let digit = byte.is_ascii_digit().then(|| u32::from(byte - b'0'))?;
        value.checked_mul(10)?.checked_add(digit)
    })
}

/// A field as it can be printed: short, and without control characters.
fn show(field: &[u8]) -> String {
    let shown: String = field[..field.len().min(50)].escape_ascii().to_string();
    if field.len() > 50 { shown + "..." } else { shown }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<(String, String), String> {
        match line(text.as_bytes()) {
            Outcome::Entry(entry) | Outcome::Flawed(entry, _) => {
                Ok((entry.prefix.to_string(), entry.hop.to_string()))
            }
            Outcome::Nothing => Err("nothing".into()),
            Outcome::Reject(words) => Err(words),
        }
    }

    #[test]
    fn lines_that_are_routes() {
        for (text, prefix, hop) in [
            ("10.0.0.0/8 192.0.2.1", "10.0.0.0/8", "192.0.2.1"),
            ("\t10.0.0.0/8\t \t192.0.2.1 \r", "10.0.0.0/8", "192.0.2.1"),
            ("0.0.0.0/0 0", "0.0.0.0/0", "0"),
            ("255.255.255.255/32 4294967295", "255.255.255.255/32", "4294967295"),
            ("192.0.2.7 2001:db8::1 # of the other family", "192.0.2.7/32", "2001:db8::1"),
            ("::/0 192.0.2.1", "::/0", "192.0.2.1"),
            ("2001:DB8::/32 fe80::1#x", "2001:db8::/32", "fe80::1"),
        ] {
            assert_eq!(parse(text), Ok((prefix.into(), hop.into())), "{text}");
        }
        assert_eq!(parse("  # 10.0.0.0/8 1"), Err("nothing".into()));
        assert_eq!(parse(" \r"), Err("nothing".into()));
    }

    #[test]
    fn invalid_lines_have_their_reason() {
        for (text, words) in [
            ("10.0.0.0/8", "no next hop behind 10.0.0.0/8: an address or a number is needed"),
            ("10.0.0.0/8 1 2", "`2` behind the next hop: nothing may follow it"),
            ("10.0.0.1/8 1", "`10.0.0.1/8` has bits behind its length (the prefix is 10.0.0.0/8)"),
            ("10.0.0.0/33 1", "`10.0.0.0/33`: length 33 exceeds 32"),
            ("2001:db8::/129 1", "`2001:db8::/129`: length 129 exceeds 128"),
            ("10.0.0/8 1", "`10.0.0/8` is no prefix"),
            ("010.0.0.0/8 1", "`010.0.0.0/8` is no prefix"),
            ("10.0.0.0/+8 1", "`10.0.0.0/+8` is no prefix"),
            ("10.0.0.256/32 1", "`10.0.0.256/32` is no prefix"),
            ("10.0.0.0/8 -1", "`-1` is no next hop: an address or a number is needed"),
            (
                "10.0.0.0/8 4294967296",
                "`4294967296` is no next hop: an address or a number is needed",
            ),
            ("10.0.0.0/8 1.2.3", "`1.2.3` is no next hop: an address or a number is needed"),
            (
                "10.0.0.0/8 1.2.3.4.5",
                "`1.2.3.4.5` is no next hop: an address or a number is needed",
            ),
            ("\x1b[31m 1", "`\\x1b[31m` is no prefix"),
            ("prefix nexthop", "`prefix` is no prefix"),
        ] {
            assert_eq!(parse(text), Err(words.into()), "{text}");
        }
    }

    #[test]
    fn addresses_are_read_as_the_standard_library_reads_them() {
        for text in [
            "0.0.0.0",
            "1.2.3.4",
            "255.255.255.255",
            "01.2.3.4",
            "1.2.3",
            "1..2.3",
            "1.2.3.4444",
            "",
            "a",
        ] {
            let want = text.parse::<Ipv4Addr>().ok().map(Ipv4Addr::to_bits);
            let got = v4(text.as_bytes()).filter(|(_, rest)| rest.is_empty()).map(|(a, _)| a);
            assert_eq!(got, want, "{text}");
        }
    }
}
