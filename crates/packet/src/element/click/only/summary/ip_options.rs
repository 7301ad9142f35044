//! Options of IPv4 as text: `rr{10.0.0.1}+2;lsrr{1.0.0.1^1.0.0.2};ts{5,!9}+1++3;148=0:0`, and a point for none.
//!
//! Source: the manual page of Click's `ToIPSummaryDump`; RFC 791. `^` stands before the address that is visited next,
//! `+N` for entries that are free, `++N` for hosts that found none, `!` before a time that is no time of the day.
//! `ts.ip` has addresses with their times, `ts.preip` addresses whose times are still to come. What only fills space is
//! left out, and a question mark stands for options of which one is damaged.

use std::net::Ipv4Addr;

use super::options;
use crate::language::Value;

const RECORD: u8 = 7;
const TIMESTAMP: u8 = 68;
const ROUTES: [(u8, &str); 3] = [(RECORD, "rr"), (131, "lsrr"), (137, "ssrr")];
/// Kinds of time stamps, by the option's flags.
const TIMES: [(u8, &str); 3] = [(0, "ts"), (1, "ts.ip"), (3, "ts.preip")];
/// Set in a time that is none in milliseconds of the day.
const ODD_TIME: u32 = 1 << 31;

/// Text of options.
pub(super) fn text(bytes: &[u8]) -> String {
    let part = |(kind, body): (u8, &[u8])| {
        let known = match body {
            [pointer, entries @ ..] if kind != TIMESTAMP => route(kind, *pointer, entries),
            [pointer, flags, entries @ ..] if kind == TIMESTAMP => times(*pointer, *flags, entries),
            _ => None,
        };
        known.unwrap_or_else(|| options::in_bytes(kind, body))
    };
    let Some(all) = options::each(bytes) else { return options::DAMAGED.into() };
    options::joined(&all.into_iter().map(part).collect::<Vec<_>>())
}

/// How many whole entries of `bytes` lie before the pointer; `None` where it points into one.
fn passed(pointer: u8, first: u8, bytes: usize, entries: usize) -> Option<usize> {
    let before = usize::from(pointer.checked_sub(first)?);
    (before.is_multiple_of(bytes) && before / bytes <= entries).then_some(before / bytes)
}

fn addr(bytes: [u8; 4]) -> String {
    Ipv4Addr::from(bytes).to_string()
}

fn route(kind: u8, pointer: u8, entries: &[u8]) -> Option<String> {
    let (_, name) = ROUTES.iter().find(|(known, _)| *known == kind)?;
    let (addrs, []) = entries.as_chunks::<4>() else { return None };
    let passed = passed(pointer, 4, 4, addrs.len())?;
    if kind == RECORD {
        let list: Vec<_> = addrs[..passed].iter().map(|bytes| addr(*bytes)).collect();
        return Some(format!("{name}{{{}}}{}", list.join(","), free(addrs.len() - passed)));
    }
    let list = |addrs: &[[u8; 4]]| addrs.iter().map(|b| addr(*b)).collect::<Vec<_>>().join(",");
    Some(format!("{name}{{{}^{}}}", list(&addrs[..passed]), list(&addrs[passed..])))
}

fn free(entries: usize) -> String {
    if entries == 0 { String::new() } else { format!("+{entries}") }
}

fn times(pointer: u8, flags: u8, entries: &[u8]) -> Option<String> {
    let (flags, missed) = (flags & 15, flags >> 4);
    let (_, name) = TIMES.iter().find(|(known, _)| *known == flags)?;
    let (words, []) = entries.as_chunks::<4>() else { return None };
    let each = if flags == 0 { 1 } else { 2 };
    if !words.len().is_multiple_of(each) {
        return None;
    }
    let all = words.len() / each;
    let passed = passed(pointer, 5, 4 * each, all)?;
    let time = |bytes: [u8; 4]| {
        let time = u32::from_be_bytes(bytes);
        format!("{}{}", if time & ODD_TIME != 0 { "!" } else { "" }, time & !ODD_TIME)
    };
    let entry = |at: usize| match each {
        1 => time(words[at]),
        _ => format!("{}={}", addr(words[2 * at]), time(words[2 * at + 1])),
    };
    let list: Vec<_> = (0..passed).map(entry).collect();
    let behind = match flags {
        3 => {
            let next: Vec<_> = (passed..all).map(|at| addr(words[2 * at])).collect();
            format!("^{}}}", next.join(","))
        }
        _ => format!("}}{}", free(all - passed)),
    };
    let missed = if missed == 0 { String::new() } else { format!("++{missed}") };
    Some(format!("{name}{{{}{behind}{missed}", list.join(",")))
}

/// Bytes of all options of a header at most.
const MOST: usize = 40;

/// Options of a text, filled up to whole words; `None` where it is none, or they are too long.
pub(super) fn read(text: &str) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    if text == "." {
        return Some(out);
    }
    for part in parts(text) {
        let (name, rest) = part.split_at(part.find(['{', '=']).unwrap_or(part.len()));
        match name {
            "eol" if rest.is_empty() => out.push(0),
            "nop" if rest.is_empty() => out.push(1),
            _ => {
                let list = rest.strip_prefix('{').and_then(|rest| rest.split_once('}'));
                let body = match (list, rest.strip_prefix('=')) {
                    (Some((list, behind)), _) => read_list(name, list, behind)?,
                    (None, Some(bytes)) => {
                        let bytes: Option<Vec<_>> =
                            bytes.split(':').map(|byte| u8::read(byte).ok()).collect();
                        (u8::read(name).ok()?, bytes?)
                    }
                    (None, None) => (u8::read(name).ok()?, Vec::new()),
                };
                let (kind, bytes) = body;
                out.extend([kind, u8::try_from(2 + bytes.len()).ok()?]);
                out.extend(bytes);
            }
        }
    }
    out.resize(out.len().next_multiple_of(4), 0);
    (out.len() <= MOST).then_some(out)
}

/// Options of a text; what separates them separates entries within braces, too.
fn parts(text: &str) -> Vec<&str> {
    let (mut parts, mut start, mut inside) = (Vec::new(), 0, false);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'{' => inside = true,
            b'}' => inside = false,
            b';' | b',' if !inside => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

/// An option with entries: its kind, and what it has.
fn read_list(name: &str, list: &str, behind: &str) -> Option<(u8, Vec<u8>)> {
    let (behind, missed) = match behind.split_once("++") {
        Some((behind, missed)) => (behind, u8::read(missed).ok().filter(|missed| *missed < 16)?),
        None => (behind, 0),
    };
    let free = match behind.strip_prefix('+') {
        Some(free) => usize::read(free).ok().filter(|free| *free <= MOST / 4)?,
        None if behind.is_empty() => 0,
        None => return None,
    };
    let entries = |list: &str| -> Vec<String> {
        list.split(',').filter(|entry| !entry.is_empty()).map(str::to_owned).collect()
    };
    let (passed, next) = list.split_once('^').unwrap_or((list, ""));
    let (passed, next) = (entries(passed), entries(next));
    let addr = |text: &String| Ipv4Addr::read(text).ok().map(|addr| addr.octets().to_vec());
    let mut bytes = Vec::new();
    if let Some((kind, _)) = ROUTES.iter().find(|(_, known)| *known == name) {
        // Without a mark a route is still to be followed, from its first address on.
        let before = if *kind == RECORD || list.contains('^') { passed.len() } else { 0 };
        bytes.push(u8::try_from(4 + 4 * before).ok()?);
        for entry in passed.iter().chain(&next) {
            bytes.extend(addr(entry)?);
        }
        bytes.resize(bytes.len() + 4 * free, 0);
        return (missed == 0).then_some((*kind, bytes));
    }
    let (flags, _) = TIMES.iter().find(|(_, known)| *known == name)?;
    let each = if *flags == 0 { 1 } else { 2 };
    bytes.extend([u8::try_from(5 + 4 * each * passed.len()).ok()?, flags | missed << 4]);
    for entry in &passed {
        let time = match entry.split_once('=') {
            Some((host, time)) if each == 2 => {
                bytes.extend(addr(&host.to_owned())?);
                time
            }
            None if each == 1 => entry,
            _ => return None,
        };
        let odd = if time.starts_with('!') { ODD_TIME } else { 0 };
        let ms = u32::read(time.trim_start_matches('!')).ok().filter(|ms| ms & ODD_TIME == 0)?;
        bytes.extend((ms | odd).to_be_bytes());
    }
    for entry in &next {
        bytes.extend(addr(entry)?);
        bytes.extend([0; 4]);
    }
    bytes.resize(bytes.len() + 4 * each * free, 0);
    Some((TIMESTAMP, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_and_written() {
        for given in [
            ".",
            "rr{}+3",
            "rr{1.0.0.1,1.0.0.2}+2",
            "rr{1.0.0.1}",
            "lsrr{1.0.0.1^1.0.0.2}",
            "ssrr{^1.0.0.1}",
            "ssrr{1.0.0.1^}",
            "ts{1,!10}+1++5",
            "ts.ip{1.0.0.1=7}+1",
            "ts.preip{1.0.0.1=7^1.0.0.2}",
            "148=0:0",
            "rr{1.0.0.1}+1;148=0:0",
            "200",
        ] {
            assert_eq!(text(&read(given).unwrap()), given);
        }
        assert_eq!(read("rr{1.0.0.1}+1"), Some(vec![7, 11, 8, 1, 0, 0, 1, 0, 0, 0, 0, 0]));
        assert_eq!(read("ts{!10}++5"), Some(vec![68, 8, 9, 0x50, 0x80, 0, 0, 10]));
        assert_eq!(text(&read("nop,148=1,lsrr{1.0.0.1}").unwrap()), "148=1;lsrr{^1.0.0.1}");
        for wrong in
            ["x", "rr{x}", "rr{1.0.0.1", "ts{1=2}", "ts.ip{1}", "148=x", "rr{}+11", "rr{}++1"]
        {
            assert_eq!(read(wrong), None, "{wrong}");
        }
        // What makes no sense is shown in bytes, and what does not fit as a question mark.
        assert_eq!(text(&[7, 7, 6, 1, 2, 3, 4]), "7=6:1:2:3:4");
        assert_eq!(
            [&[7, 40][..], &[7, 1], &[200, 2, 7], &[1, 1, 0, 7]].map(text),
            ["?", "?", "?", "."]
        );
    }
}
