//! A table in a file, read once: text or MRT, see [`super::table`].
//!
//! The source itself takes plain bytes; [`FileReader`] opens, decompresses and carries them.
//!
//! Shape: `StartOfTable`, a `Route` a line or record (metric 0, main table), `EndOfTable` from
//! [`RouteSource::finish`], also where the file was cut short: what is there is the table then.
//!
//! Cost: that of the parser, see there.

use std::path;
use std::time::Instant;

use fingerpost_lpm::input::{self, MOST_STREAM_BYTES};

use super::table::decompress::Decoded;
use super::table::{FileHop, TableEntry, TableParser};
use super::{Rejected, RouteSource, SourceError, SourceKind, SourceSpec, Transport};
use crate::event::{MAIN_TABLE, Path, RouteEvent, RouteKey, RouteUpdate, Target};

pub(super) const KIND: SourceKind = SourceKind {
    name: "file",
    summary: "a table in a file: lines `PREFIX NEXTHOP`, or MRT; plain, gz, bz2, xz or zst",
    transport: Transport::File,
    // A full table is what an eBGP session would have brought.
    distance: 20,
    mirrored: &[],
    open: |spec| Ok(Box::new(FileSource::new(spec))),
};

struct FileSource {
    parser: TableParser,
    started: bool,
    ended: bool,
}

impl FileSource {
    fn new(spec: &SourceSpec) -> Self {
        let parser = TableParser::new(spec.name.clone()).with_peer(spec.peer);
        Self { parser, started: false, ended: false }
    }

    fn drain(&mut self, sink: &mut dyn FnMut(RouteEvent)) -> Result<(), SourceError> {
        if !core::mem::replace(&mut self.started, true) {
            sink(RouteEvent::StartOfTable);
        }
        while let Some(entry) = self.parser.next_entry() {
            let TableEntry { prefix, hop } = entry?;
            let gateway = match hop {
                FileHop::Addr(gateway) => gateway,
                FileHop::Number(number) => {
                    let what = "is a number, packets need an address";
                    self.parser.reject(|| format!("next hop {number} of {prefix} {what}"));
                    continue;
                }
            };
            let path = Path { gateway: Some(gateway), link: None, weight: 1 };
            let key = RouteKey { table: MAIN_TABLE, prefix, metric: 0 };
            sink(RouteEvent::Route(RouteUpdate::new(key, Target::Path(path))));
        }
        Ok(())
    }
}

impl RouteSource for FileSource {
    /// Takes all of `bytes`, however they are cut up.
    fn input(
        &mut self,
        bytes: &[u8],
        _now: Instant,
        sink: &mut dyn FnMut(RouteEvent),
    ) -> Result<usize, SourceError> {
        self.parser.feed(bytes);
        self.drain(sink)?;
        Ok(bytes.len())
    }

    fn finish(&mut self, sink: &mut dyn FnMut(RouteEvent)) -> Result<(), SourceError> {
        self.parser.end();
        let result = self.drain(sink);
        if !core::mem::replace(&mut self.ended, true) {
            sink(RouteEvent::EndOfTable);
        }
        result
    }

    /// The rest of the file is lost: a line that is not whole is not used.
    fn lost(&mut self, _now: Instant) {
        self.parser.cut();
    }

    fn rejected(&self) -> Rejected {
        self.parser.rejected().clone()
    }
}

/// Opens a file, decompresses it and gives it to `source` up to its end.
///
/// # Errors
/// The reason why the file is incomplete; everything before it has reached the sink, and `EndOfTable` too.
pub fn feed(
    source: &mut dyn RouteSource,
    path: &path::Path,
    sink: &mut dyn FnMut(RouteEvent),
) -> Result<(), SourceError> {
    let mut reader = FileReader::open(path)?;
    while reader.step(source, sink) {}
    reader.finish(source, sink)
}

/// An open file, whose bytes a source gets a piece at a time.
pub struct FileReader {
    input: Decoded,
    buf: Vec<u8>,
    failed: Option<SourceError>,
}

impl FileReader {
    /// Opens a file, and finds out how it is compressed.
    ///
    /// # Errors
    /// The reason why it cannot be read.
    pub fn open(path: &path::Path) -> Result<Self, SourceError> {
        let name = path.display().to_string();
        let file =
            input::open(path, MOST_STREAM_BYTES).map_err(|error| SourceError::io(&name, &error))?;
        let input = Decoded::new(&name, Box::new(file))?;
        Ok(Self { input, buf: vec![0; READ_BYTES], failed: None })
    }

    /// Gives the next piece to `source`. Returns whether there is another one.
    pub fn step(&mut self, source: &mut dyn RouteSource, sink: &mut dyn FnMut(RouteEvent)) -> bool {
        match self.input.read_some(&mut self.buf) {
            Ok(0) => return false,
            Ok(len) => self.failed = source.input(&self.buf[..len], Instant::now(), sink).err(),
            Err(error) => {
                source.lost(Instant::now());
                self.failed = Some(error);
            }
        }
        self.failed.is_none()
    }

    /// Completes the input of `source` behind the last piece.
    ///
    /// # Errors
    /// The reason why the file is incomplete.
    pub fn finish(
        self,
        source: &mut dyn RouteSource,
        sink: &mut dyn FnMut(RouteEvent),
    ) -> Result<(), SourceError> {
        match (self.failed, source.finish(sink)) {
            (None, finished) => finished,
            // Both report that it was cut; the source also reports where.
            (Some(SourceError::Truncated { .. }), Err(place)) => Err(place),
            (Some(failed), _) => Err(failed),
        }
    }
}

/// Bytes of a read.
const READ_BYTES: usize = 128 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    fn run(bytes: &[u8], size: usize) -> (Vec<RouteEvent>, Rejected, Result<(), SourceError>) {
        let spec = SourceSpec { name: "t".into(), ..SourceSpec::default() };
        let mut source = (KIND.open)(&spec).unwrap();
        let mut events = Vec::new();
        let now = Instant::now();
        for chunk in bytes.chunks(size) {
            assert_eq!(source.input(chunk, now, &mut |e| events.push(e)), Ok(chunk.len()));
        }
        let end = source.finish(&mut |e| events.push(e));
        (events, source.rejected(), end)
    }

    #[test]
    fn routes_between_start_and_end() {
        let text = b"10.0.0.0/8 192.0.2.1\n10.1.0.0/16 3\nx\n::/0 fe80::1";
        let whole = run(text, usize::MAX);
        assert_eq!(whole.0.len(), 4);
        assert_eq!(whole.0[0], RouteEvent::StartOfTable);
        assert_eq!(whole.0[3], RouteEvent::EndOfTable);
        let RouteEvent::Route(route) = &whole.0[2] else { panic!("{:?}", whole.0) };
        assert_eq!((route.key.table, route.key.metric, route.distance), (MAIN_TABLE, 0, None));
        assert_eq!(
            whole.1.samples,
            [
                "line 2: next hop 3 of 10.1.0.0/16 is a number, packets need an address",
                "line 3: `x` is no prefix",
            ]
        );
        assert_eq!((whole.1.count, &whole.2), (2, &Ok(())));
        for size in 1..50 {
            assert_eq!(run(text, size), whole, "{size} bytes at a time");
        }
    }

    #[test]
    fn a_cut_file_gives_its_routes_and_reports_the_place() {
        let folder = std::env::temp_dir().join(format!("fingerpost-file-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("cut.mrt");
        // One whole record without routes, then half a header.
        let record = [&[0u8; 4][..], &[0, 13, 0, 1, 0, 0, 0, 0]].concat();
        std::fs::write(&path, [&record[..], &record[..6]].concat()).unwrap();
        let mut source = (KIND.open)(&SourceSpec::default()).unwrap();
        let mut events = Vec::new();
        let error = feed(&mut *source, &path, &mut |e| events.push(e)).unwrap_err();
        assert!(error.to_string().contains("cut short in record 2, behind byte 18"), "{error}");
        assert_eq!(events, [RouteEvent::StartOfTable, RouteEvent::EndOfTable]);

        let missing = feed(&mut *source, &folder.join("none"), &mut |_| {}).unwrap_err();
        assert!(matches!(missing, SourceError::Io { .. }));
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_real_table_arrives_whole() {
        let Some(path) = crate::source::real::data("v6-20141225-linx-p69.txt.xz") else { return };
        let mut source = (KIND.open)(&SourceSpec::default()).unwrap();
        let mut routes = 0;
        feed(&mut *source, &path, &mut |e| routes += u32::from(matches!(e, RouteEvent::Route(_))))
            .unwrap();
        assert_eq!((routes, source.rejected().count), (20_440, 0));
    }
}
