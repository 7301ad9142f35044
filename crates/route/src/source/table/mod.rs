//! Route tables in files: text lines or MRT dumps, plain or compressed, read as a stream.
//!
//! Shape: bytes -> [`decompress`] -> [`TableParser`] ([`text`] or [`mrt`], by the first
//! bytes) -> one [`TableEntry`] a route. Memory does not depend on the length of the file: the
//! parser holds one read and the longest line or record.
//!
//! A line or record that makes no sense is counted and skipped; an input that is incomplete inside one gives
//! everything before it, then [`SourceError::Truncated`].
//!
//! Cost: about 60 ns a text line; decompression costs more than reading (xz 5 to 10 times).

pub mod decompress;
mod mrt;
mod text;

use std::io::Read;
use std::net::IpAddr;
use std::path::Path;

use fingerpost_lpm::input::{self, MOST_STREAM_BYTES};

use super::{Rejected, SourceError};
use crate::event::AnyPrefix;

/// One route of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableEntry {
    /// Where it leads.
    pub prefix: AnyPrefix,
    /// Its next hop.
    pub hop: FileHop,
}

/// A next hop as files name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FileHop {
    /// An address, of either family.
    Addr(IpAddr),
    /// Just a number: enough to compare tables and algorithms by, but packets cannot be sent to it.
    Number(u32),
}

impl core::fmt::Display for FileHop {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Addr(addr) => addr.fmt(f),
            Self::Number(number) => number.fmt(f),
        }
    }
}

/// Choice among the peers that a dump has the routes of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PeerChoice {
    /// The first peer that a prefix has.
    #[default]
    First,
    /// One peer: its number in the peer index table, or, in TABLE_DUMP version 1, in the order in which peers appear.
    Number(u16),
    /// The best path, by the rule of [`crate::bgp::ribs`].
    Best,
}

impl core::str::FromStr for PeerChoice {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "first" => Ok(Self::First),
            "best" => Ok(Self::Best),
            _ => text
                .parse()
                .map(Self::Number)
                .map_err(|_| "neither a peer's number, nor `first` or `best`"),
        }
    }
}

/// What a table is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    /// Too few bytes yet.
    Unknown,
    Text,
    Mrt,
}

/// One step of a format's parser over the bytes at hand.
enum Step {
    /// Ends inside a line or record.
    More,
    /// So many bytes are done; what they meant.
    Done(usize, Outcome),
    /// So many bytes are done, and from there on everything is passed over up to `until`.
    Skip(usize, Until, Outcome),
}

/// What a line or record turned out to be.
enum Outcome {
    /// A route.
    Entry(TableEntry),
    /// A route, and paths of it that make no sense, in words.
    Flawed(TableEntry, String),
    /// Nothing that is looked for: a comment, another type of record.
    Nothing,
    /// Nonsense, in words.
    Reject(String),
}

/// Place up to which input is skipped.
#[derive(Clone, Copy, Debug)]
enum Until {
    /// Number of bytes to skip.
    Bytes(u64),
    /// Everything up to the next line feed.
    LineFeed,
}

/// Bytes in, routes out. Any split of the bytes gives the same routes.
///
/// ```
/// use fingerpost_route::source::table::TableParser;
/// let mut parser = TableParser::new("table.txt");
/// parser.feed(b"10.0.0.0/8 192.0.2.1\n2001:db8::/32 19");
/// assert_eq!(parser.next_entry().unwrap().unwrap().hop.to_string(), "192.0.2.1");
/// assert!(parser.next_entry().is_none());
/// parser.feed(b"2\n");
/// assert_eq!(parser.next_entry().unwrap().unwrap().hop.to_string(), "192");
/// ```
#[derive(Debug)]
pub struct TableParser {
    name: String,
    format: Format,
    peer: PeerChoice,
    mrt: mrt::Mrt,
    buf: Vec<u8>,
    /// What lies before is done with.
    start: usize,
    /// What lies behind is room.
    end: usize,
    skip: Option<Until>,
    /// Bytes before `buf[start]`.
    offset: u64,
    /// Lines or records begun so far.
    count: u64,
    /// Records of types that hold no routes.
    other: u64,
    ending: Ending,
    rejected: Rejected,
}

/// How far the end of the input has been dealt with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    /// More may come.
    Open,
    /// All bytes are here.
    Whole,
    /// The rest of the bytes is lost.
    Cut,
    /// The end was reported.
    Reported,
}

/// Bytes that decide the format: an MRT header.
const SNIFF_BYTES: usize = 12;

impl TableParser {
    /// A parser that has seen nothing; `name` is for messages.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            format: Format::Unknown,
            peer: PeerChoice::First,
            mrt: mrt::Mrt::default(),
            buf: Vec::new(),
            start: 0,
            end: 0,
            skip: None,
            offset: 0,
            count: 0,
            other: 0,
            ending: Ending::Open,
            rejected: Rejected::default(),
        }
    }

    /// Takes other routes of an MRT dump than those of the first peer that each prefix has.
    #[must_use]
    pub fn with_peer(mut self, peer: PeerChoice) -> Self {
        self.peer = peer;
        self
    }

    /// More bytes.
    pub fn feed(&mut self, bytes: &[u8]) {
        let room = self.room(bytes.len());
        room[..bytes.len()].copy_from_slice(bytes);
        self.fed(bytes.len());
    }

    /// Room for at least `len` more bytes; [`Self::fed`] takes how many were put there.
    fn room(&mut self, len: usize) -> &mut [u8] {
        self.buf.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        if self.buf.len() - self.end < len {
            self.buf.resize(self.end + len, 0);
        }
        &mut self.buf[self.end..]
    }

    fn fed(&mut self, len: usize) {
        self.end += len;
    }

    /// There are no more bytes.
    pub fn end(&mut self) {
        if self.ending == Ending::Open {
            self.ending = Ending::Whole;
        }
    }

    /// The rest of the bytes is lost: what the last line or record has is not used.
    pub fn cut(&mut self) {
        if self.ending == Ending::Open {
            self.ending = Ending::Cut;
        }
    }

    /// The next route; `None` when more bytes are needed or the end was reported.
    ///
    /// # Errors
    /// [`SourceError::Syntax`] for an input that is no table at all; [`SourceError::Truncated`]
    /// once, at the end, when it is incomplete inside a record. Nothing follows an error.
    pub fn next_entry(&mut self) -> Option<Result<TableEntry, SourceError>> {
        if self.ending == Ending::Reported {
            self.start = self.end;
            return None;
        }
        if self.format == Format::Unknown {
            match self.sniff() {
                Ok(format) => self.format = format,
                Err(error) => {
                    self.start = self.end;
                    self.ending = Ending::Reported;
                    return Some(Err(error));
                }
            }
        }
        while self.passed_over() {
            let bytes = &self.buf[self.start..self.end];
            let step = match self.format {
                Format::Unknown => break,
                Format::Text => text::step(bytes, self.ending == Ending::Whole),
                Format::Mrt => self.mrt.step(bytes, self.peer),
            };
            let (len, skip, outcome) = match step {
                Step::More => break,
                Step::Done(len, outcome) => (len, None, outcome),
                Step::Skip(len, until, outcome) => (len, Some(until), outcome),
            };
            // Before the bytes are counted, so that a place names where the record begins.
            self.count += 1;
            match outcome {
                Outcome::Reject(words) => {
                    self.reject(|| words);
                    self.advance(len, skip);
                }
                Outcome::Nothing => {
                    self.other += 1;
                    self.advance(len, skip);
                }
                Outcome::Entry(entry) => {
                    self.advance(len, skip);
                    return Some(Ok(entry));
                }
                Outcome::Flawed(entry, words) => {
                    self.reject(|| words);
                    self.advance(len, skip);
                    return Some(Ok(entry));
                }
            }
        }
        if self.ending != Ending::Open
            && let Some(entry) = self.mrt.rest()
        {
            return Some(Ok(entry));
        }
        self.report_cut().map(Err)
    }

    /// Lines or records read so far, of all kinds.
    pub fn records(&self) -> u64 {
        self.count
    }

    /// Lines or records that hold no route: comments, other MRT types, further peers.
    pub fn skipped(&self) -> u64 {
        self.other
    }

    /// What made no sense.
    pub fn rejected(&self) -> &Rejected {
        &self.rejected
    }

    /// Where the last line or record was: `line 17` or `record 17`.
    pub fn place(&self) -> String {
        let word = if self.format == Format::Mrt { "record" } else { "line" };
        format!("{word} {}", self.count)
    }

    /// The last entry is of no use to the caller.
    pub(super) fn reject(&mut self, words: impl FnOnce() -> String) {
        let place = self.place();
        self.rejected.add(|| format!("{place}: {}", words()));
    }

    fn advance(&mut self, len: usize, skip: Option<Until>) {
        self.start += len;
        self.offset += len as u64;
        self.skip = skip;
    }

    /// Passes over what is to be skipped; false when that takes more bytes.
    fn passed_over(&mut self) -> bool {
        let Some(until) = self.skip else { return true };
        let bytes = &self.buf[self.start..self.end];
        let (len, rest) = match until {
            Until::Bytes(left) => {
                let len = bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                let left = left - len as u64;
                (len, (left > 0).then_some(Until::Bytes(left)))
            }
            Until::LineFeed => match bytes.iter().position(|&b| b == b'\n') {
                Some(at) => (at + 1, None),
                None => (bytes.len(), Some(Until::LineFeed)),
            },
        };
        self.advance(len, rest);
        rest.is_none()
    }

    fn sniff(&self) -> Result<Format, SourceError> {
        let bytes = &self.buf[self.start..self.end];
        let wrong = |what: String| SourceError::Syntax { place: self.name.clone(), what };
        if let Some(kind) = decompress::Kind::of(bytes) {
            return Err(wrong(format!("compressed ({kind}) where the plain table is expected")));
        }
        match bytes.get(..SNIFF_BYTES) {
            None if self.ending == Ending::Open => Ok(Format::Unknown),
            Some(head) if crate::bgp::mrt::is_header(head) => Ok(Format::Mrt),
            head if head.unwrap_or(bytes).contains(&0) => {
                let what = "neither text (lines `PREFIX NEXTHOP`) nor MRT of a known type";
                Err(wrong(what.into()))
            }
            _ => Ok(Format::Text),
        }
    }

    /// Error of an input that was cut: once, at its end.
    fn report_cut(&mut self) -> Option<SourceError> {
        let left = self.end - self.start;
        let cut = match self.ending {
            Ending::Open | Ending::Reported => return None,
            Ending::Cut => true,
            // Only MRT can leave something; the text parser completes its last line itself.
            Ending::Whole => left > 0 || matches!(self.skip, Some(Until::Bytes(_))),
        };
        self.ending = Ending::Reported;
        self.start = self.end;
        if !cut {
            return None;
        }
        let word = if self.format == Format::Mrt { "record" } else { "line" };
        // Of a record that was being passed over the header is counted already.
        let whole = self.count - u64::from(self.skip.is_some());
        let rest = format!("the {whole} {word}s before are read");
        let at = format!("in {word} {}, behind byte {}", whole + 1, self.offset + left as u64);
        Some(SourceError::Truncated { name: self.name.clone(), at, rest })
    }
}

/// Reads the routes of a file one by one.
///
/// ```no_run
/// # use fingerpost_route::source::table::TableReader;
/// let mut table = TableReader::open("table.txt.xz".as_ref())?;
/// for entry in &mut table {
///     let entry = entry?;
///     println!("{} {}", entry.prefix, entry.hop);
/// }
/// eprintln!("{} lines rejected", table.rejected().count);
/// # Ok::<(), fingerpost_route::source::SourceError>(())
/// ```
pub struct TableReader {
    input: decompress::Decoded,
    parser: TableParser,
    /// Error of the input, reported after everything before it.
    failed: Option<SourceError>,
}

/// Bytes of a read.
const READ_BYTES: usize = 128 << 10;

impl TableReader {
    /// Opens a file of any format and compression; `-` is standard input.
    ///
    /// # Errors
    /// [`SourceError::Io`] when it cannot be opened or its first bytes cannot be read.
    pub fn open(path: &Path) -> Result<Self, SourceError> {
        let name = path.display().to_string();
        match input::open_or_stdin(path, MOST_STREAM_BYTES) {
            Ok(file) => Self::new(name, file),
            Err(error) => Err(SourceError::io(&name, &error)),
        }
    }

    /// Reads any stream of bytes; `name` is for messages.
    ///
    /// # Errors
    /// [`SourceError::Io`] when the first bytes cannot be read.
    pub fn new(
        name: impl Into<String>,
        input: impl Read + Send + 'static,
    ) -> Result<Self, SourceError> {
        let name = name.into();
        let input = decompress::Decoded::new(&name, Box::new(input))?;
        Ok(Self { input, parser: TableParser::new(name), failed: None })
    }

    /// Choice of a peer: [`TableParser::with_peer`].
    #[must_use]
    pub fn with_peer(mut self, peer: PeerChoice) -> Self {
        self.parser = self.parser.with_peer(peer);
        self
    }

    /// Bytes of the input that were read so far, as they are stored.
    pub fn read_bytes(&self) -> u64 {
        self.input.read_bytes()
    }

    /// Number of records: [`TableParser::records`].
    pub fn records(&self) -> u64 {
        self.parser.records()
    }

    /// Number of skipped records: [`TableParser::skipped`].
    pub fn skipped(&self) -> u64 {
        self.parser.skipped()
    }

    /// What made no sense so far.
    pub fn rejected(&self) -> &Rejected {
        self.parser.rejected()
    }
}

impl Iterator for TableReader {
    type Item = Result<TableEntry, SourceError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.parser.next_entry() {
                Some(Err(cut @ SourceError::Truncated { .. })) => {
                    return Some(Err(self.failed.take().unwrap_or(cut)));
                }
                None if self.parser.ending == Ending::Open => {}
                other => return other,
            }
            let room = self.parser.room(READ_BYTES);
            match self.input.read_some(room) {
                Ok(0) => self.parser.end(),
                Ok(len) => self.parser.fed(len),
                Err(error) => {
                    self.parser.cut();
                    // The parser's error of a cut is better: it names line or record.
                    let cut = matches!(error, SourceError::Truncated { .. });
                    self.failed = (!cut).then_some(error);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
