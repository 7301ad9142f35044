//! Names of the files of flows, by a pattern: `flow%03n` is `flow007` for the flow of aggregate 7.
//!
//! Source: the manual page of Click's `ToIPFlowDumps`. `%n` is the aggregate, `%x` and `%X` in hexadecimal digits,
//! `%.0n` to `%.3n` each byte of it, `%.4n` its upper half and `%.5n` its lower one; `%s` and `%d` are the addresses,
//! `%.0s` to `%.3s` each byte of one; `%S` and `%D` are the ports, `%p` is `T` or `U`, and `%%` is `%`. A width stands
//! before a point, and a 0 before a width fills with zeros instead of spaces.

use std::net::Ipv4Addr;

/// What the name of a file may have of a flow.
pub(super) struct Named {
    pub(super) aggregate: u32,
    /// Addresses and ports, source first.
    pub(super) ends: [(Ipv4Addr, u16); 2],
    /// Letter of the protocol.
    pub(super) protocol: char,
}

/// A part of a name.
#[derive(Clone, Debug)]
enum Part {
    Text(String),
    Escape(Escape),
}

#[derive(Clone, Copy, Debug)]
struct Escape {
    letter: char,
    zeros: bool,
    width: usize,
    part: Option<u32>,
}

/// The pattern.
#[derive(Clone, Debug, Default)]
pub(super) struct Pattern(Vec<Part>);

/// Greatest width: names of files have no more bytes.
const MOST_WIDTH: usize = 255;

impl Pattern {
    /// Reads a pattern, or returns what is wrong with it.
    pub(super) fn read(text: &str) -> Result<Self, String> {
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some((before, behind)) = rest.split_once('%') {
            parts.push(Part::Text(before.to_owned()));
            let (escape, length) = Escape::read(behind).ok_or_else(|| {
                let shown: String = behind.chars().take(4).collect();
                format!("OUTPUT_PATTERN: `%{shown}` begins with no escape")
            })?;
            parts.push(match escape.letter {
                '%' => Part::Text("%".into()),
                _ => Part::Escape(escape),
            });
            rest = &behind[length..];
        }
        parts.push(Part::Text(rest.to_owned()));
        Ok(Self(parts))
    }

    /// Name of the file of a flow.
    pub(super) fn name(&self, named: &Named) -> String {
        let part = |part: &Part| match part {
            Part::Text(text) => text.clone(),
            Part::Escape(escape) => escape.text(named),
        };
        self.0.iter().map(part).collect()
    }
}

impl Escape {
    /// The escape that a text begins with behind its `%`, and the length of it.
    fn read(text: &str) -> Option<(Self, usize)> {
        let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
        let zeros = text.starts_with('0');
        let mut at = digits(text);
        let width = if at == 0 { 0 } else { text[..at].parse().ok()? };
        let mut part = None;
        if text[at..].starts_with('.') {
            let count = digits(&text[at + 1..]);
            part = Some(text[at + 1..at + 1 + count].parse().ok()?);
            at += 1 + count;
        }
        let letter = text[at..].chars().next()?;
        let most_part = match letter {
            'n' | 'x' | 'X' => 5,
            's' | 'd' => 3,
            'S' | 'D' | 'p' | '%' if part.is_none() => 0,
            _ => return None,
        };
        let fits = width <= MOST_WIDTH && part.is_none_or(|part| part <= most_part);
        fits.then_some((Self { letter, zeros, width, part }, at + 1))
    }

    fn text(self, named: &Named) -> String {
        let number = |number: u32| match self.letter {
            'x' => format!("{number:x}"),
            'X' => format!("{number:X}"),
            _ => number.to_string(),
        };
        let byte = |value: u32, part: u32| value >> (24 - 8 * part) & 0xff;
        let addr = |at: usize| {
            let addr = named.ends[at].0;
            self.part.map_or_else(|| addr.to_string(), |part| number(byte(addr.to_bits(), part)))
        };
        let text = match self.letter {
            's' => addr(0),
            'd' => addr(1),
            'S' => named.ends[0].1.to_string(),
            'D' => named.ends[1].1.to_string(),
            'p' => named.protocol.to_string(),
            _ => number(match self.part {
                None => named.aggregate,
                Some(4) => named.aggregate >> 16,
                Some(5) => named.aggregate & 0xffff,
                Some(part) => byte(named.aggregate, part),
            }),
        };
        let fill = if self.zeros { "0" } else { " " };
        fill.repeat(self.width.saturating_sub(text.len())) + &text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_parts_of_a_flow() {
        let named = Named {
            aggregate: 0x1203_04ab,
            ends: [(Ipv4Addr::new(1, 2, 3, 40), 5), (Ipv4Addr::new(9, 8, 7, 6), 80)],
            protocol: 'U',
        };
        let name = |text: &str| Pattern::read(text).unwrap().name(&named);
        assert_eq!(name("/tmp/f%n.x"), "/tmp/f302187691.x");
        assert_eq!(name("%.0n %.1n %.2n %.3n %.4n %.5n"), "18 3 4 171 4611 1195");
        assert_eq!(name("%x %X %.3x %.3X %.4x %.5X"), "120304ab 120304AB ab AB 1203 4AB");
        assert_eq!(name("%s %d %.0s %.3s %.1d %S %D %p"), "1.2.3.40 9.8.7.6 1 40 8 5 80 U");
        assert_eq!(name("%012n|%12n|%03.1n|%2n|%%n"), "000302187691|   302187691|003|302187691|%n");
        assert_eq!(name("-"), "-");
        for wrong in ["%", "%q", "%.6n", "%.4s", "%.n", "%.0S", "%.0p", "%999n", "%5", "a%.", "%é"]
        {
            assert!(Pattern::read(wrong).is_err(), "{wrong}");
        }
    }
}
