//! Options of TCP as text: `mss1460;sackok;ts1:2;wscale7;sack1-10`, and a point for none. Others are bytes: `254=1:2`.
//!
//! Source: the manual page of Click's `ToIPSummaryDump`. What only fills space is left out of the text, and
//! a question mark stands for options of which one is damaged.

use super::options;
use crate::language::Value;

const MSS: u8 = 2;
const WINDOW_SCALE: u8 = 3;
const SACK_OK: u8 = 4;
const SACK: u8 = 5;
const TIMESTAMP: u8 = 8;

/// Which options a text has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Shown {
    All,
    /// Those of selective acknowledgments.
    Sack,
    /// All but times.
    Notable,
}

/// Text of options.
pub(super) fn text(bytes: &[u8], shown: Shown) -> String {
    let mut parts = Vec::new();
    let Some(all) = options::each(bytes) else { return options::DAMAGED.into() };
    for (kind, body) in all {
        let long = |at: usize| {
            body.get(at..at + 4).map_or(0, |b| u32::from_be_bytes([b[0], b[1], b[2], b[3]]))
        };
        let left_out = match shown {
            Shown::All => false,
            Shown::Sack => !matches!(kind, SACK | SACK_OK),
            Shown::Notable => kind == TIMESTAMP,
        };
        match (kind, body.len()) {
            _ if left_out => {}
            (MSS, 2) => parts.push(format!("mss{}", u16::from_be_bytes([body[0], body[1]]))),
            (WINDOW_SCALE, 1) => parts.push(format!("wscale{}", body[0])),
            (SACK_OK, 0) => parts.push("sackok".into()),
            (SACK, length) => {
                parts.extend(
                    (0..length / 8).map(|n| format!("sack{}-{}", long(8 * n), long(8 * n + 4))),
                );
            }
            (TIMESTAMP, 8) => parts.push(format!("ts{}:{}", long(0), long(4))),
            _ => parts.push(options::in_bytes(kind, body)),
        }
    }
    options::joined(&parts)
}

/// Options of a text, filled up to whole words; `None` where it is none, or they are too long.
pub(super) fn read(text: &str) -> Option<Vec<u8>> {
    if text == "." {
        return Some(Vec::new());
    }
    let (mut out, mut blocks) = (Vec::new(), Vec::new());
    let flush = |out: &mut Vec<u8>, blocks: &mut Vec<u8>| {
        if !blocks.is_empty() {
            out.extend([SACK, u8::try_from(2 + blocks.len()).unwrap_or(2)]);
            out.append(blocks);
        }
    };
    for part in text.split([';', ',']) {
        let pair = |text: &str| {
            let (first, second) = text.split_once([':', '-'])?;
            Some([u32::read(first).ok()?, u32::read(second).ok()?])
        };
        let block = part.strip_prefix("sack").and_then(pair);
        if let Some(block) = block {
            blocks.extend(block.map(u32::to_be_bytes).concat());
            continue;
        }
        flush(&mut out, &mut blocks);
        if let Some(size) = part.strip_prefix("mss") {
            out.extend([MSS, 4]);
            out.extend(u16::read(size).ok()?.to_be_bytes());
        } else if let Some(shift) = part.strip_prefix("wscale") {
            out.extend([WINDOW_SCALE, 3, u8::read(shift).ok()?]);
        } else if part == "sackok" {
            out.extend([SACK_OK, 2]);
        } else if let Some(times) = part.strip_prefix("ts").and_then(pair) {
            out.extend([TIMESTAMP, 10]);
            out.extend(times.map(u32::to_be_bytes).concat());
        } else if part == "nop" {
            out.push(1);
        } else if part == "eol" {
            out.push(0);
        } else {
            out.extend(options::of_bytes(part)?);
        }
    }
    flush(&mut out, &mut blocks);
    out.resize(out.len().next_multiple_of(4), 0);
    (out.len() <= 40).then_some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_and_written() {
        for given in [
            ".",
            "mss1460;sackok;ts1:2;wscale7",
            "sack1-10",
            "sack1-10;sack1-18;sack18-20",
            "mss1;sack1-2",
        ] {
            assert_eq!(text(&read(given).unwrap(), Shown::All), given);
        }
        assert_eq!(text(&read("nop,sack1:18,nop").unwrap(), Shown::All), "sack1-18");
        assert_eq!(read("mss1460"), Some(vec![2, 4, 5, 180]));
        assert_eq!(
            ["x", "mss", "sack1", "sack1-2;sack1-2;sack1-2;sack1-2;sack1-2"].map(read),
            [None, None, None, None]
        );
        assert_eq!(text(&[2, 40], Shown::All), "?", "it ends behind the header");
        assert_eq!(text(&[1, 3, 1], Shown::Sack), "?", "a length of 1 does not hold itself");
        assert_eq!(read("254=1:2;sackok;98"), Some(vec![254, 4, 1, 2, 4, 2, 98, 2]));
        assert_eq!(["254=", "254=1:x", "256"].map(read), [None, None, None]);
        assert_eq!(text(&[254, 4, 1, 2], Shown::All), "254=1:2");
        let all = read("mss1460;sackok;ts1:2").unwrap();
        assert_eq!(text(&all, Shown::Sack), "sackok");
        assert_eq!(text(&all, Shown::Notable), "mss1460;sackok");
    }
}
