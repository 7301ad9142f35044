//! Files of prefixes: one a line, with or without more about it, plain or compressed.
//!
//! A line begins with a prefix or an address of either family; `#` and `;` begin a comment, as the lists that are handed around
//! have it. A file is taken whole or, with the first line that makes no sense, not at all: half a list of whom to drop
//! is no list. Host bits are cleared, as everywhere in graphs.
//!
//! Cost: some 100 ns a line; memory is that of the prefixes and of one line.

use fingerpost_route::source::table::decompress::Decoded;

use super::{List, read_prefix};
use crate::language::open_policy::OpenPolicy;

/// Prefixes of a file at most: bounds the memory, and the time of the control thread.
const MOST_PREFIXES: usize = 1 << 24;
/// Bytes of a line at most: what is longer is no list of prefixes.
const MOST_LINE: usize = 4096;
/// Bytes read at once.
const READ_BYTES: usize = 1 << 16;

/// The prefixes of a file.
///
/// # Errors
/// What is wrong with it, with its name and the number of the line; with the words there, where the policy shows them.
pub(crate) fn read_file(name: &str, policy: &OpenPolicy) -> Result<List, String> {
    let mut list = List::default();
    read_lines(name, policy, &mut |line| list.line(line)).map(|()| list)
}

/// Has `line` take each line of a file, without comments; lines without words are left out.
///
/// # Errors
/// As [`read_file`], with what `line` finds wrong.
pub(crate) fn read_lines(
    name: &str,
    policy: &OpenPolicy,
    line: &mut dyn FnMut(&str) -> Result<(), String>,
) -> Result<(), String> {
    let file = policy.input(name).map_err(|error| format!("{name}: {error}"))?;
    let input = Decoded::new(name, Box::new(file)).map_err(|error| error.to_string())?;
    read(name, policy.shows_text(), input, line)
}

impl List {
    fn line(&mut self, line: &str) -> Result<(), String> {
        let mut words = line.split_ascii_whitespace();
        let prefix = read_prefix(words.next().unwrap_or_default())?;
        if let Some(more) = words.next() {
            return Err(format!("`{more}` is one word too many: one prefix a line"));
        }
        if self.len() == MOST_PREFIXES {
            return Err(format!("limit exceeded: {MOST_PREFIXES} prefixes"));
        }
        self.push(prefix);
        Ok(())
    }
}

fn read(
    name: &str,
    shown: bool,
    mut input: Decoded,
    line: &mut dyn FnMut(&str) -> Result<(), String>,
) -> Result<(), String> {
    let mut lines = Lines { name, shown, each: line, number: 0, rest: Vec::new() };
    let mut room = vec![0; READ_BYTES];
    loop {
        let len = input.read_some(&mut room).map_err(|error| error.to_string())?;
        if len == 0 {
            let last = std::mem::take(&mut lines.rest);
            return lines.line(&last);
        }
        lines.bytes(&room[..len])?;
    }
}

struct Lines<'a> {
    name: &'a str,
    /// Messages may quote its contents.
    shown: bool,
    each: &'a mut dyn FnMut(&str) -> Result<(), String>,
    number: usize,
    /// The beginning of a line.
    rest: Vec<u8>,
}

impl Lines<'_> {
    fn bytes(&mut self, mut bytes: &[u8]) -> Result<(), String> {
        while let Some(end) = bytes.iter().position(|&byte| byte == b'\n') {
            let line = &bytes[..end];
            if self.rest.is_empty() {
                self.line(line)?;
            } else {
                let mut whole = std::mem::take(&mut self.rest);
                whole.extend_from_slice(line);
                self.line(&whole)?;
            }
            bytes = &bytes[end + 1..];
        }
        if self.rest.len() + bytes.len() > MOST_LINE {
            self.number += 1;
            return Err(self.wrong(&format!("longer than {MOST_LINE} bytes")));
        }
        self.rest.extend_from_slice(bytes);
        Ok(())
    }

    fn line(&mut self, line: &[u8]) -> Result<(), String> {
        self.number += 1;
        let end = line.iter().position(|byte| matches!(byte, b'#' | b';')).unwrap_or(line.len());
        let line = std::str::from_utf8(&line[..end]).map_err(|_| self.wrong("no text"))?;
        if line.trim_ascii().is_empty() {
            return Ok(());
        }
        (self.each)(line).map_err(|words| self.wrong(&words))
    }

    fn wrong(&self, words: &str) -> String {
        let words = if self.shown { words } else { "no line of a list of prefixes" };
        format!("{}:{}: {words}", self.name, self.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(bytes: &[u8]) -> Decoded {
        Decoded::new("x", Box::new(std::io::Cursor::new(bytes.to_vec()))).unwrap()
    }

    fn list(bytes: &[u8]) -> Result<String, String> {
        let mut list = List::default();
        read("x", true, decoded(bytes), &mut |line| list.line(line))?;
        let v4 = list.v4.iter().map(ToString::to_string);
        Ok(v4.chain(list.v6.iter().map(ToString::to_string)).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn lines_are_prefixes_and_comments() {
        let text = b"# a list\n\n 10.0.0.0/8 # ours\r\n192.0.2.1\n1.10.16.9/20 ; SBL256894\n2001:db8::/32\n::1";
        assert_eq!(
            list(text).unwrap(),
            "10.0.0.0/8 192.0.2.1/32 1.10.16.0/20 2001:db8::/32 ::1/128"
        );
        assert_eq!(list(b"").unwrap(), "");
    }

    #[test]
    fn a_line_may_lie_across_two_reads() {
        let mut text = vec![b'\n'; READ_BYTES - 4];
        text.extend_from_slice(b"10.1.0.0/16\n10.2.0.0/16");
        assert_eq!(list(&text).unwrap(), "10.1.0.0/16 10.2.0.0/16");
    }

    #[test]
    fn what_makes_no_sense_is_told_with_its_line() {
        for (text, want) in [
            (&b"10.0.0.0/8\n10.0.0.0/33\n"[..], "x:2: `10.0.0.0/33` is no IPv4 prefix"),
            (b"\n\nhello", "x:3: `hello` is no IPv4 prefix"),
            (b"fe80::/129", "x:1: `fe80::/129` is no IPv6 prefix"),
            (b"10.0.0.0/8 192.0.2.1", "x:1: `192.0.2.1` is one word too many"),
            (b"10.0.0.0/8\n\xff\xfe", "x:2: no text"),
            (&[b'1'; MOST_LINE + 2], "x:1: longer than 4096 bytes"),
        ] {
            let reported = list(text).unwrap_err();
            assert!(reported.starts_with(want), "{reported}");
        }
        // A gzip file that ends in its header.
        assert!(list(&[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3]).unwrap_err().contains("cut short"));
        let mut list = List::default();
        let secret = decoded(b"10.0.0.0/8\nroot:secret\n");
        let reported = read("x", false, secret, &mut |line| list.line(line)).unwrap_err();
        assert_eq!(reported, "x:2: no line of a list of prefixes");
        let read_file = |name| read_file(name, &OpenPolicy::default());
        assert!(read_file("/nowhere/at/all").unwrap_err().starts_with("/nowhere/at/all: "));
        assert!(read_file("/dev/null").unwrap_err().ends_with("a regular file is wanted"));
        // One that somebody has yet to write to.
        let pipe = std::env::temp_dir().join(format!("fingerpost-pipe-{}", std::process::id()));
        let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
        let reported = read_file(pipe.to_str().unwrap()).unwrap_err();
        std::fs::remove_file(&pipe).unwrap();
        assert!(made.success() && reported.contains("is a FIFO"), "{reported}");
    }
}
