//! Typed values of arguments, as Click writes them: what a text means, or in words what it should be.
//!
//! Source: click(5) and the types of Click's configuration parser. Differs: numbers that do not fit
//! their type are refused, never cut.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use fingerpost_lpm::{Addr, Prefix};
use fingerpost_route::Mac;

use super::addresses;
use super::lex::{PieceKind, Pieces, is_directive};

/// Type of an argument.
pub trait Value: Sized {
    /// Reads unquoted text. The error completes "`text` is ...".
    ///
    /// # Errors
    /// What the text should have been, as "no whole number".
    fn read(text: &str) -> Result<Self, String>;
}

/// An address with the prefix around it: `10.0.0.1/24` keeps its host bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Around<A: Addr> {
    /// The address.
    pub addr: A,
    /// What it lies in.
    pub prefix: Prefix<A>,
}

/// A rate, in bytes a second.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Bandwidth {
    /// Bytes a second.
    pub bytes_per_s: u64,
}

/// Takes quotes and comments away: the bytes that an argument stands for.
pub(crate) fn unquote(text: &str) -> Cow<'_, [u8]> {
    let bytes = text.as_bytes();
    let special = |(at, &byte): (usize, &u8)| match byte {
        b'\'' | b'"' | b'\\' => true,
        b'/' => matches!(bytes.get(at + 1), Some(b'/' | b'*')),
        b'#' => is_directive(text, at),
        _ => false,
    };
    // Most arguments are plain, and a route table has a million of them.
    if !bytes.iter().enumerate().any(special) {
        return Cow::Borrowed(bytes);
    }
    let mut out = Vec::with_capacity(text.len());
    for piece in Pieces::new(text, 0) {
        let bytes = &text.as_bytes()[piece.start..piece.end];
        match piece.kind {
            PieceKind::Comment => out.push(b' '),
            PieceKind::Single => out.extend_from_slice(inside(bytes, piece.closed)),
            PieceKind::Double => escapes(inside(bytes, piece.closed), &mut out),
            PieceKind::Hex => escapes(bytes, &mut out),
            _ => out.extend_from_slice(bytes),
        }
    }
    Cow::Owned(out)
}

/// Between quotes, the second of which may be missing.
fn inside(bytes: &[u8], closed: bool) -> &[u8] {
    &bytes[1..bytes.len() - usize::from(closed)]
}

/// What the inside of double quotes stands for.
fn escapes(mut bytes: &[u8], out: &mut Vec<u8>) {
    while let Some((&first, rest)) = bytes.split_first() {
        bytes = rest;
        let (b'\\', Some((&letter, after))) = (first, rest.split_first()) else {
            out.push(first);
            continue;
        };
        bytes = after;
        match letter {
            b'a' => out.push(7),
            b'b' => out.push(8),
            b't' => out.push(b'\t'),
            b'n' => out.push(b'\n'),
            b'v' => out.push(11),
            b'f' => out.push(12),
            b'r' => out.push(b'\r'),
            b'\n' => {}
            b'\r' => bytes = after.strip_prefix(b"\n").unwrap_or(after),
            b'0'..=b'7' => {
                let more = after.iter().take(2).take_while(|b| matches!(b, b'0'..=b'7')).count();
                let digits = &rest[..=more];
                let value = digits.iter().fold(0_u32, |n, b| n * 8 + u32::from(b - b'0'));
                out.push(value.to_le_bytes()[0]);
                bytes = &rest[digits.len()..];
            }
            b'x' if after.first().is_some_and(u8::is_ascii_hexdigit) => {
                let count = after.iter().take_while(|b| b.is_ascii_hexdigit()).count();
                // Of a longer number the last two digits count.
                let value = after[..count].iter().fold(0_u8, |n, &b| (n << 4) | nibble(b));
                out.push(value);
                bytes = &after[count..];
            }
            b'<' => bytes = hex(after, out),
            other => out.push(other),
        }
    }
}

/// Bytes in hexadecimal up to `>`; what follows it. Comments are skipped, and so is a digit without a second one.
fn hex<'a>(mut bytes: &'a [u8], out: &mut Vec<u8>) -> &'a [u8] {
    let mut high = None;
    while let Some((&first, rest)) = bytes.split_first() {
        bytes = match (first, rest.first()) {
            (b'>', _) => return rest,
            (b'/', Some(b'/')) => past(rest, b"\n"),
            (b'/', Some(b'*')) => past(&rest[1..], b"*/"),
            _ => rest,
        };
        if first.is_ascii_hexdigit() {
            high = match high {
                None => Some(nibble(first)),
                Some(high) => {
                    out.push((high << 4) | nibble(first));
                    None
                }
            };
        }
    }
    bytes
}

/// What follows the first occurrence of `end`.
fn past<'a>(bytes: &'a [u8], end: &[u8]) -> &'a [u8] {
    let found = bytes.windows(end.len()).position(|window| window == end);
    found.map_or(&[], |found| &bytes[found + end.len()..])
}

fn nibble(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        _ => (digit | 0x20) - b'a' + 10,
    }
}

impl Value for bool {
    fn read(text: &str) -> Result<Self, String> {
        match text {
            "true" | "yes" | "t" | "y" | "1" => Ok(true),
            "false" | "no" | "f" | "n" | "0" => Ok(false),
            _ => Err("neither `true` nor `false`".into()),
        }
    }
}

/// A whole number, with its sign: decimal, `0x` hexadecimal, `0b` binary, or octal after a zero; `1_000` is 1000.
fn whole(text: &str) -> Option<i128> {
    if (1..=9).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_digit())
        && !text.starts_with('0')
    {
        // The usual number, without the division of wide ones.
        return text.parse::<u32>().ok().map(i128::from);
    }
    let (minus, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let after =
        |prefixes: [&str; 2]| prefixes.iter().find_map(|prefix| digits.strip_prefix(prefix));
    let (digits, radix) = match (after(["0x", "0X"]), after(["0b", "0B"])) {
        (Some(digits), _) => (digits, 16),
        (_, Some(digits)) => (digits, 2),
        _ if digits.len() > 1 && digits.starts_with('0') => (digits, 8),
        _ => (digits, 10),
    };
    let digits = ungrouped(digits, radix)?;
    // `from_str_radix` would take another sign.
    let number =
        i128::from_str_radix(&digits, radix).ok().filter(|_| !digits.starts_with(['+', '-']))?;
    Some(if minus { -number } else { number })
}

/// A number without the underscores between digits of its radix; none where one stands elsewhere.
fn ungrouped(text: &str, radix: u32) -> Option<Cow<'_, str>> {
    if !text.contains('_') {
        return Some(Cow::Borrowed(text));
    }
    let bytes = text.as_bytes();
    let digit = |at: Option<usize>| {
        at.and_then(|at| bytes.get(at)).is_some_and(|byte: &u8| char::from(*byte).is_digit(radix))
    };
    let between = |(at, byte): (usize, &u8)| {
        *byte != b'_' || digit(at.checked_sub(1)) && digit(at.checked_add(1))
    };
    bytes.iter().enumerate().all(between).then(|| Cow::Owned(text.replace('_', "")))
}

macro_rules! integers {
    ($($type:ty)*) => {$(
        impl Value for $type {
            fn read(text: &str) -> Result<Self, String> {
                let number = whole(text).ok_or("no whole number")?;
                Self::try_from(number).map_err(|_| {
                    format!("out of range: {} to {} are possible", Self::MIN, Self::MAX)
                })
            }
        }
    )*};
}
integers!(u8 u16 u32 u64 usize i32 i64);

/// Digits with at most one point, and an exponent behind them: `1.5e6`. Without a sign.
fn real(text: &str) -> Option<f64> {
    let text = ungrouped(text, 10)?;
    let plain = mantissa(&text) > 0 && number_len(&text) == text.len();
    text.parse().ok().filter(|number: &f64| plain && number.is_finite())
}

/// How many bytes are digits, points and underscores.
fn mantissa(text: &str) -> usize {
    text.bytes().take_while(|byte| byte.is_ascii_digit() || matches!(byte, b'.' | b'_')).count()
}

/// How many bytes a number has that a text begins with, its exponent as well.
fn number_len(text: &str) -> usize {
    let len = mantissa(text);
    let Some(exponent) = text[len..].strip_prefix(['e', 'E']) else { return len };
    let sign = usize::from(exponent.starts_with(['+', '-']));
    match exponent[sign..].bytes().take_while(u8::is_ascii_digit).count() {
        0 => len,
        digits => len + 1 + sign + digits,
    }
}

/// The number in front, and the unit behind it.
fn measured(text: &str) -> Option<(f64, &str)> {
    let (number, unit) = text.split_at(number_len(text));
    Some((real(number)?, unit.trim_start()))
}

impl Value for f64 {
    fn read(text: &str) -> Result<Self, String> {
        let (sign, digits) = match text.strip_prefix('-') {
            Some(digits) => (-1.0, digits),
            None => (1.0, text.strip_prefix('+').unwrap_or(text)),
        };
        real(digits).map(|number| sign * number).ok_or_else(|| "no decimal number".into())
    }
}

impl Value for Duration {
    fn read(text: &str) -> Result<Self, String> {
        let unit = |unit: &str| match unit {
            "" | "s" | "sec" => Some(1.0),
            "ms" | "msec" => Some(1e-3),
            "us" | "usec" => Some(1e-6),
            "ns" | "nsec" => Some(1e-9),
            "m" | "min" => Some(60.0),
            "h" | "hr" => Some(3600.0),
            "d" | "day" => Some(86_400.0),
            _ => None,
        };
        let seconds = measured(text).and_then(|(number, rest)| Some(number * unit(rest)?));
        let time = seconds.and_then(|seconds| Self::try_from_secs_f64(seconds).ok());
        let words = || "no time: `5`, `1.5s`, `20 ms`, `3us`, `10ns`, `2min`, `1h`, `1day`".into();
        time.ok_or_else(words)
    }
}

impl Value for Bandwidth {
    fn read(text: &str) -> Result<Self, String> {
        let words = || "no bandwidth: `125000`, `1Mbps` (bits), `125kBps` (bytes)".to_owned();
        let (number, unit) = measured(text).ok_or_else(words)?;
        let (scale, unit) = match unit.as_bytes().first() {
            Some(b'k' | b'K') => (1e3, &unit[1..]),
            Some(b'M') => (1e6, &unit[1..]),
            Some(b'G') => (1e9, &unit[1..]),
            _ => (1.0, unit),
        };
        let bytes = match unit {
            "" | "Bps" | "B/s" => number * scale,
            "bps" | "b/s" | "baud" => number * scale / 8.0,
            _ => return Err(words()),
        };
        // 2^63 is the first of these that `u64` might not hold.
        if bytes >= 9.2e18 {
            return Err("too much: 9.2e18 bytes a second are possible".into());
        }
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "rounded, not negative, and below 2^63"
        )]
        let bytes_per_s = bytes.round() as u64;
        Ok(Self { bytes_per_s })
    }
}

macro_rules! addresses {
    ($($type:ty, $named:expr, $words:literal;)*) => {$(
        impl Value for $type {
            fn read(text: &str) -> Result<Self, String> {
                text.parse().or_else(|_| $named(text).ok_or_else(|| $words.into()))
            }
        }
    )*};
}
addresses! {
    Ipv4Addr, addr, "no IPv4 address";
    Ipv6Addr, addresses::none, "no IPv6 address";
    IpAddr, addresses::none, "no IP address";
    Mac, addresses::mac, "no Ethernet address: `02:00:5e:10:00:01`";
}

/// An address whose numbers may begin with zeros, or that has a name.
fn addr(text: &str) -> Option<Ipv4Addr> {
    let numbers = dotted(text, false).map(|(addr, _)| Ipv4Addr::from_bits(addr));
    numbers.or_else(|| addresses::addr(text))
}

/// `a.b.c.d`, of which the last parts may be left out where `short`.
fn dotted(text: &str, short: bool) -> Option<(u32, u8)> {
    let mut addr = 0;
    let mut parts = 0;
    for part in text.split('.') {
        let digits = matches!(part.len(), 1..=3) && part.bytes().all(|b| b.is_ascii_digit());
        let part: u8 = part.parse().ok().filter(|_| digits)?;
        if parts == 4 {
            return None;
        }
        addr |= u32::from(part) << (24 - 8 * parts);
        parts += 1;
    }
    (short || parts == 4).then_some((addr, u8::try_from(8 * parts).expect("at most 32")))
}

impl Value for Around<u32> {
    fn read(text: &str) -> Result<Self, String> {
        let words = || "no IPv4 prefix: `10.0.0.0/8`, `10/8`, `10.0.0.0/255.0.0.0`".to_owned();
        let (addr, len) = match text.split_once('/') {
            None => match dotted(text, false) {
                Some((addr, _)) => (addr, 32),
                None => addresses::prefix(text).ok_or_else(words)?,
            },
            Some((addr, len)) => {
                let named = || Some((addresses::addr(addr)?.to_bits(), 32));
                let (addr, given) = dotted(addr, true).or_else(named).ok_or_else(words)?;
                let len = match dotted(len, false) {
                    Some((mask, _)) if mask.leading_ones() + mask.trailing_zeros() >= 32 => {
                        u8::try_from(mask.leading_ones()).expect("at most 32")
                    }
                    Some(_) => return Err("no prefix: the mask has holes".into()),
                    None => prefix_len(len, 32).ok_or_else(words)?,
                };
                if len > given && given < 32 {
                    return Err(format!("no prefix: {len} bits of an address of {given}"));
                }
                (addr, len)
            }
        };
        Ok(Self { addr, prefix: Prefix::masked(addr, len) })
    }
}

impl Value for Around<u128> {
    fn read(text: &str) -> Result<Self, String> {
        let words = || "no IPv6 prefix: `2001:db8::/32`".to_owned();
        let (addr, len) = match text.split_once('/') {
            None => (text, 128),
            Some((addr, len)) => {
                (addr, prefix_len(len, 128).or_else(|| mask_len(len)).ok_or_else(words)?)
            }
        };
        let addr = u128::from(addr.parse::<Ipv6Addr>().map_err(|_| words())?);
        Ok(Self { addr, prefix: Prefix::masked(addr, len) })
    }
}

fn prefix_len(text: &str, most: u8) -> Option<u8> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|&len| digits && len <= most)
}

/// Length of an IPv6 prefix that is given as a mask.
fn mask_len(text: &str) -> Option<u8> {
    let mask = text.parse::<Ipv6Addr>().ok()?.to_bits();
    let whole = mask.leading_ones() + mask.trailing_zeros() >= u128::BITS;
    u8::try_from(mask.leading_ones()).ok().filter(|_| whole)
}

/// Host bits are cleared, as Click does.
impl<A: Addr> Value for Prefix<A>
where
    Around<A>: Value,
{
    fn read(text: &str) -> Result<Self, String> {
        Around::read(text).map(|around| around.prefix)
    }
}

impl Value for String {
    fn read(text: &str) -> Result<Self, String> {
        Ok(text.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_are_taken_away() {
        let text = |text: &str| String::from_utf8_lossy(&unquote(text)).into_owned();
        assert_eq!(text("a"), "a");
        assert_eq!(text("1.0.0.0/24"), "1.0.0.0/24");
        assert_eq!(text("a\"b\"c"), "abc");
        assert_eq!(text("'a\\n\"'"), "a\\n\"");
        assert_eq!(text("a/**/b"), "a b");
        assert_eq!(text(r"a\n"), r"a\n", "outside quotes it is a backslash");
        assert_eq!(text("\"'\\q\\\"\""), "'q\"");
        assert_eq!(text("\"a\\\nb\""), "ab");
        assert_eq!(text("\"a\\\r\nb\\\rc\""), "abc");
        assert_eq!(text("a\n# 7 \"f\"\nb\n#c"), "a\n \nb\n#c", "a line directive is white space");
        let bytes = |text: &str| unquote(text).into_owned();
        assert_eq!(bytes(r#""\a\b\t\n\v\f\r\\""#), [7, 8, 9, 10, 11, 12, 13, 92]);
        assert_eq!(bytes(r#""\101\7\0101\400""#), [65, 7, 8, b'1', 0]);
        assert_eq!(bytes(r#""\x41\x141\xg""#), [0x41, 0x41, b'x', b'g']);
        assert_eq!(bytes(r"\<48 45 4c>"), b"HEL");
        assert_eq!(bytes(r"\<48 45>x"), b"HEx");
        assert_eq!(bytes(r#"a"\<4 8>"b"#), b"aHb");
        assert_eq!(bytes(r"\<>"), b"");
    }

    fn bad<T: Value>(texts: &[&str]) {
        for text in texts {
            assert!(T::read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn numbers() {
        for (text, number) in [
            ("0", 0),
            ("12", 12),
            ("0x1F", 31),
            ("010", 8),
            ("+7", 7),
            ("0b101", 5),
            ("1_000_000", 1_000_000),
            ("0xff_ff", 65_535),
            ("0b1_01", 5),
            ("0_17", 15),
        ] {
            assert_eq!(u32::read(text), Ok(number), "{text}");
        }
        bad::<u32>(&[
            "_1", "1_", "1__0", "0x_1", "0b_1", "0_b1", "0b1_2", "0_8", "0b2", "0b", "1e3",
        ]);
        assert_eq!(i32::read("-0x10"), Ok(-16));
        assert_eq!(u8::read("256"), Err("out of range: 0 to 255 are possible".into()));
        assert_eq!(u8::read("x"), Err("no whole number".into()));
        bad::<u32>(&["", "-", "+-1", "--1", "-1", "09", "0x", "1.0", "1 2", "0x+1", "4294967296"]);
        assert_eq!(f64::read("1.5"), Ok(1.5));
        assert_eq!(f64::read("-.5"), Ok(-0.5));
        assert_eq!([f64::read("1e5"), f64::read("-2.5E-1")], [Ok(1e5), Ok(-0.25)]);
        assert_eq!(f64::read("1_000.5"), Ok(1000.5));
        bad::<f64>(&["", ".", "e5", "1e", "1e+", "nan", "inf", "1.2.3", "+-1", "1_.5", "1_e5"]);
        for (text, is) in [("true", true), ("yes", true), ("1", true), ("t", true), ("y", true)] {
            assert_eq!(bool::read(text), Ok(is));
        }
        for text in ["false", "no", "0", "f", "n"] {
            assert_eq!(bool::read(text), Ok(false));
        }
        bad::<bool>(&["", "TRUE", "2", "on"]);
    }

    #[test]
    fn times_and_rates() {
        for (text, ns) in [
            ("5", 5_000_000_000),
            ("1.5s", 1_500_000_000),
            ("1 sec", 1_000_000_000),
            ("20 ms", 20_000_000),
            ("3us", 3000),
            ("10ns", 10),
            ("2min", 120_000_000_000),
            ("2m", 120_000_000_000),
            ("1h", 3_600_000_000_000),
            ("1hr", 3_600_000_000_000),
            ("2d", 172_800_000_000_000),
            ("0.5 day", 43_200_000_000_000),
            ("1.5e3 ms", 1_500_000_000),
            ("1e-3", 1_000_000),
        ] {
            assert_eq!(Duration::read(text), Ok(Duration::from_nanos(ns)), "{text}");
        }
        bad::<Duration>(&["", "s", "-1", "1w", "1e", "1e99", &"9".repeat(400)]);
        for (text, bytes_per_s) in [
            ("125000", 125_000),
            ("8bps", 1),
            ("1Mbps", 125_000),
            ("1.5 kBps", 1500),
            ("1Gbps", 125_000_000),
            ("2K", 2000),
            ("1e6bps", 125_000),
        ] {
            assert_eq!(Bandwidth::read(text), Ok(Bandwidth { bytes_per_s }), "{text}");
        }
        bad::<Bandwidth>(&["", "bps", "1bit", "-1", "1kMbps", &"9".repeat(30)]);
    }

    #[test]
    fn addresses_and_prefixes() {
        let v4 = |text: &str| Prefix::<u32>::read(text).map(|prefix| prefix.to_string());
        assert_eq!(v4("10.1.2.3/8").unwrap(), "10.0.0.0/8");
        assert_eq!(v4("18.26.4/24").unwrap(), "18.26.4.0/24");
        assert_eq!(v4("10/8").unwrap(), "10.0.0.0/8");
        assert_eq!(v4("0/0").unwrap(), "0.0.0.0/0");
        assert_eq!(v4("10.0.0.0/255.255.0.0").unwrap(), "10.0.0.0/16");
        assert_eq!(v4("1.2.3.4").unwrap(), "1.2.3.4/32");
        assert_eq!(v4("0.0.0.0/0.0.0.0").unwrap(), "0.0.0.0/0");
        let bad4 = ["", "10", "10.0.0.0/33", "1.2.3.4.5/8", "256.0.0.0/8", "10/", "10/+8", "10/9"];
        bad::<Prefix<u32>>(&bad4);
        assert_eq!(v4("1.2.3.4/255.0.255.0"), Err("no prefix: the mask has holes".into()));
        let around = Around::<u32>::read("10.0.0.1/24").unwrap();
        assert_eq!((around.addr, around.prefix.to_string()), (0x0a00_0001, "10.0.0.0/24".into()));
        let v6 = |text: &str| Prefix::<u128>::read(text).map(|prefix| prefix.to_string());
        assert_eq!(v6("2001:db8::1/32").unwrap(), "2001:db8::/32");
        assert_eq!(v6("::ffff:1.2.3.4").unwrap(), "::ffff:1.2.3.4/128");
        bad::<Prefix<u128>>(&["", "1.2.3.4/8", "::/129", "::/+1", "::/"]);
        assert_eq!(Mac::read("0:1:2:a-b:4").ok(), None);
        assert_eq!(Mac::read("0-1-2-a-b-4").unwrap().0, [0, 1, 2, 10, 11, 4]);
        assert_eq!(Ipv4Addr::read("1.2.3.4"), Ok(Ipv4Addr::new(1, 2, 3, 4)));
        assert_eq!(Ipv4Addr::read("010.0.00.001"), Ok(Ipv4Addr::new(10, 0, 0, 1)), "decimal");
        bad::<Ipv4Addr>(&["1.2.3", "1.2.3.256", "1.2.3.4/8", "1.2.3.4."]);
        assert_eq!(v6("2001:db8::/ffff:ffff::").unwrap(), "2001:db8::/32");
        bad::<Prefix<u128>>(&["2001:db8::/ffff:0:ffff::", "::/1.2.3.4"]);
        bad::<IpAddr>(&["1.2.3", "x"]);
    }
}
