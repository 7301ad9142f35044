//! Recorded streams of real daemons and of the kernel: bytes in, events out, however the bytes are cut.
//!
//! `testdata/sources/README.md` has where they are from. `FINGERPOST_ACCEPT=1` writes the events anew.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::event_words::words;
use super::mrt::Speed;
use super::{RouteSource, SourceSpec, file, find};
use crate::event::RouteEvent;

/// Longer than any silence after which a table is complete.
const SILENCE: Duration = Duration::from_secs(60);

fn recording(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/sources").join(name)
}

fn open(kind: &str) -> Box<dyn RouteSource> {
    let spec = SourceSpec { speed: Speed::Max, ..SourceSpec::default() };
    (find(kind).unwrap().open)(&spec).unwrap()
}

/// Events of a stream in pieces of this many bytes, and of the silence after it; then how many bytes were sent back.
fn stream(kind: &str, bytes: &[u8], size: usize) -> Vec<String> {
    let (mut source, now) = (open(kind), Instant::now());
    let (mut said, mut buffer, mut commit) = (Vec::new(), Vec::new(), 0);
    let mut sink = |event: RouteEvent| {
        if let RouteEvent::Commit(number) = event {
            commit = number;
        }
        said.push(words(&event));
    };
    for piece in bytes.chunks(size) {
        buffer.extend_from_slice(piece);
        loop {
            let taken = source.input(&buffer, now, &mut sink).unwrap();
            buffer.drain(..taken);
            // A source of sessions stops behind what took long.
            if source.due().is_none() {
                break;
            }
        }
    }
    assert!(buffer.is_empty(), "{} bytes are left", buffer.len());
    source.tick(now + SILENCE, &mut sink);
    source.finish(&mut sink).unwrap();
    source.visible(commit, &[]);
    let mut out = Vec::new();
    source.output(&mut out);
    said.push(format!("{} bytes sent", out.concat().len()));
    said.push(rejected(source.as_ref()));
    // The routes of a peer that is gone are withdrawn in no particular order.
    for withdrawn in
        said.chunk_by_mut(|a, b| [a, b].iter().all(|line| line.starts_with("withdraw ")))
    {
        withdrawn.sort();
    }
    said
}

fn rejected(source: &dyn RouteSource) -> String {
    let rejected = source.rejected();
    format!("{} rejected {:?}", rejected.count, rejected.samples)
}

/// Compares with what is recorded beside the stream.
fn check(name: &str, said: &[String]) {
    let file = recording(&format!("{name}.txt"));
    let text = said.iter().fold(String::new(), |mut text, line| {
        writeln!(text, "{line}").unwrap();
        text
    });
    if std::env::var_os("FINGERPOST_ACCEPT").is_some() {
        std::fs::write(&file, &text).unwrap();
    }
    let want = std::fs::read_to_string(&file).unwrap_or_default();
    for (number, (line, wanted)) in text.lines().zip(want.lines()).enumerate() {
        assert_eq!(line, wanted, "{name}.txt:{}", number + 1);
    }
    assert_eq!(text.lines().count(), want.lines().count(), "{name}.txt");
}

fn check_stream(kind: &str, name: &str) {
    let bytes = std::fs::read(recording(&format!("{name}.bin"))).unwrap();
    let whole = stream(kind, &bytes, bytes.len());
    for size in [1, 7, 1000] {
        assert_eq!(stream(kind, &bytes, size), whole, "in pieces of {size} bytes");
    }
    check(name, &whole);
}

#[test]
fn zebra_of_frr() {
    check_stream("fpm", "fpm-frr-8.4.4");
}

#[test]
fn bmp_of_frr() {
    check_stream("bmp", "bmp-frr-8.4.4");
}

#[test]
fn bmp_of_gobgp() {
    check_stream("bmp", "bmp-gobgp-3.10.0");
}

#[test]
fn updates_in_mrt() {
    check_stream("mrt", "mrt-updates-frr-8.4.4");
}

/// A file that is read once, and the beginning of a replay.
#[test]
fn a_table_in_mrt() {
    check_stream("mrt", "mrt-table-frr-8.4.4");
    let mut source = open("file");
    let mut said = Vec::new();
    let path = recording("mrt-table-frr-8.4.4.bin");
    file::feed(source.as_mut(), &path, &mut |event| said.push(words(&event))).unwrap();
    let routes = |said: &[String]| {
        let mut routes: Vec<String> =
            said.iter().filter(|line| line.starts_with("route ")).cloned().collect();
        routes.sort_unstable();
        routes
    };
    let bytes = std::fs::read(path).unwrap();
    let replayed = routes(&stream("mrt", &bytes, bytes.len()));
    assert_eq!((routes(&said), replayed.len()), (replayed, 40));
    assert_eq!(source.rejected().count, 0, "{:?}", source.rejected());
}

#[test]
fn netlink_of_a_kernel() {
    let bytes = std::fs::read(recording("kernel-6.18.bin")).unwrap();
    let (mut source, now) = (open("kernel"), Instant::now());
    let (mut said, mut rest) = (Vec::new(), &bytes[..]);
    let request = |source: &mut dyn RouteSource, said: &mut Vec<String>| {
        let mut out = Vec::new();
        source.output(&mut out);
        for request in out {
            said.push(format!("request {}", u16::from_le_bytes([request[4], request[5]])));
        }
    };
    while let Some((len, behind)) = rest.split_first_chunk() {
        let (datagram, behind) = behind.split_at(u32::from_le_bytes(*len) as usize);
        rest = behind;
        request(source.as_mut(), &mut said);
        let taken = source.input(datagram, now, &mut |event| said.push(words(&event)));
        assert_eq!(taken, Ok(datagram.len()));
    }
    request(source.as_mut(), &mut said);
    assert_eq!(said.iter().filter(|line| line.starts_with("request ")).count(), 6, "{said:#?}");
    said.push(rejected(source.as_ref()));
    check("kernel-6.18", &said);
}
