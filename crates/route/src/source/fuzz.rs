//! Properties of a source for any bytes: it returns, without a panic, and however the
//! bytes are cut up the result is equal.

use std::io::Cursor;
use std::time::Instant;

use super::table::{TableParser, TableReader};
use super::{SourceSpec, kernel};

/// `bytes` as a table: whole, and one at a time.
pub fn table(bytes: &[u8]) {
    let read = |size: usize| {
        let mut parser = TableParser::new("fuzz");
        let mut said = Vec::new();
        for chunk in bytes.chunks(size) {
            parser.feed(chunk);
            said.extend(core::iter::from_fn(|| parser.next_entry()));
        }
        parser.end();
        said.extend(core::iter::from_fn(|| parser.next_entry()));
        assert!(parser.records() <= bytes.len() as u64 + 1);
        (said, parser.rejected().clone())
    };
    assert_eq!(read(usize::MAX), read(1));
}

/// `bytes` as a table that may be compressed.
pub fn compressed_table(bytes: &[u8]) {
    // A megabyte of routes is enough; compressed zeros would take hours.
    let entries = TableReader::new("fuzz", Cursor::new(bytes.to_vec()));
    entries.into_iter().flatten().take(1 << 16).for_each(drop);
}

/// Feeds `bytes` as messages of the kernel, with every request that follows from them.
pub fn kernel(bytes: &[u8]) {
    let Ok(mut source) = (kernel::KIND.open)(&SourceSpec::default()) else { return };
    let (mut starts, mut ends) = (0, 0);
    // Message by message, as they would come; then all at once.
    let parts = crate::netlink::Messages::new(bytes).flatten().map(|m| 16 + m.body.len());
    let mut rest = bytes;
    for len in parts.collect::<Vec<_>>() {
        let mut out = Vec::new();
        source.output(&mut out);
        assert!(out.len() <= 1);
        let (now, later) = rest.split_at(len.next_multiple_of(4).min(rest.len()));
        rest = later;
        let sink = &mut |event| match event {
            crate::RouteEvent::StartOfTable => starts += 1,
            crate::RouteEvent::EndOfTable => ends += 1,
            _ => {}
        };
        if source.input(now, Instant::now(), sink).is_err() {
            return;
        }
        if now.len() % 7 == 0 {
            source.lost(Instant::now());
        }
    }
    assert!(ends <= starts);
    let _ = source.input(bytes, Instant::now(), &mut |_| {});
}
