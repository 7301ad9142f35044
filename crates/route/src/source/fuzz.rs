//! Properties of a source for any bytes: it returns, without a panic, and however the
//! bytes are cut up the result is equal.

use std::io::Cursor;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use super::table::{FileHop, PeerChoice, TableEntry, TableParser, TableReader};
use super::{Rejected, SourceKind, SourceSpec, bmp, fpm, kernel, mrt};
use crate::RouteEvent;
use crate::bgp::dump::{DumpPath, DumpPeer, DumpWriter};
use crate::bgp::masked;
use crate::bgp::mrt::{Message, Records};
use crate::bgp::ribs::{Peer, rank};
use crate::bgp::update::{PathAttributes, Statement};
use crate::event::AnyPrefix;

/// `bytes` as a table: whole, and one at a time.
pub fn table(bytes: &[u8]) {
    let read = |size: usize, peer: PeerChoice| {
        let mut parser = TableParser::new("fuzz").with_peer(peer);
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
    for peer in [PeerChoice::First, PeerChoice::Number(1), PeerChoice::Best] {
        assert_eq!(read(usize::MAX, peer), read(1, peer));
    }
}

/// `bytes` as recorded updates, and as the records of a replay: whole, and one at a time.
pub fn updates(bytes: &[u8]) {
    for peer in [PeerChoice::Best, PeerChoice::Number(0)] {
        assert_eq!(replay(bytes, usize::MAX, peer), replay(bytes, 1, peer));
    }
    let mut statements = 0;
    for record in Records::new(bytes).flatten() {
        if let Ok(Some(message)) = Message::of(&record) {
            let mut announced = 0;
            let said = message.statements(&mut |statement| {
                statements += 1;
                announced += u32::from(matches!(statement, Statement::Announced(..)));
            });
            assert!(said.is_ok() || announced == 0, "a message with a mistake announces nothing");
        }
    }
    assert!(statements <= bytes.len());
}

/// What a replay comes to: its events in any order, as the loss of a peer has them, whether it broke off, and what was refused.
fn replay(bytes: &[u8], size: usize, peer: PeerChoice) -> (Vec<String>, bool, Rejected) {
    let spec = SourceSpec { peer, speed: mrt::Speed::Max, ..SourceSpec::default() };
    let Ok(mut source) = (mrt::KIND.open)(&spec) else { unreachable!() };
    let (now, mut buffer, mut said, mut failed) = (Instant::now(), Vec::new(), Vec::new(), false);
    let mut sink = |event: RouteEvent| said.push(format!("{event:?}"));
    for piece in bytes.chunks(size) {
        buffer.extend_from_slice(piece);
        failed = loop {
            match source.input(&buffer, now, &mut sink) {
                Ok(taken) => drop(buffer.drain(..taken)),
                Err(_) => break true,
            }
            // It stops where a peer is lost.
            if source.due().is_none() {
                break false;
            }
        };
        if failed {
            break;
        }
    }
    let _ = source.finish(&mut sink);
    said.sort();
    (said, failed, source.rejected())
}

/// `bytes` as paths of a table dump, which is written and read: for every choice of a peer the routes are those of the paths.
pub fn dump(bytes: &[u8]) {
    const PATH_BYTES: usize = 8;
    let addr = |v6: bool, last: u8| match v6 {
        true => IpAddr::from([0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]),
        false => IpAddr::from([192, 0, 2, last]),
    };
    let peer = |n: u8| DumpPeer {
        bgp_id: u32::from(n ^ 2),
        addr: addr(n % 2 == 1, n),
        as_number: 64_512 + u32::from(n),
    };
    let peers: Vec<_> = (0..4).map(peer).collect();
    let numbers: Vec<u32> = (0..600).collect();
    let mut table: Vec<(AnyPrefix, Vec<DumpPath<'_>>)> = Vec::new();
    for path in bytes.chunks_exact(PATH_BYTES) {
        let &[flags, len, a, b, from, hop, value, as_len] = path else { unreachable!() };
        let has = |bit: u8| flags & 1 << bit != 0;
        if has(0) || table.is_empty() {
            let (v4, v6) = (
                [a, b, len, value],
                u128::from_be_bytes([[a, b, hop, len]; 4].concat().try_into().expect("16 bytes")),
            );
            let prefix = match has(1) {
                true => masked(v6.to_be_bytes().into(), len % 129),
                false => masked(v4.into(), len % 33),
            };
            table.push((prefix.expect("within the family"), Vec::new()));
        }
        let (value, id) = (u32::from(value), if has(2) { u32::from(b) } else { 0 });
        let path = DumpPath {
            peer: u16::from(from % 4),
            id,
            since: value,
            origin: from % 3,
            as_path: &numbers[..2 * usize::from(as_len)],
            next_hop: addr(has(3), hop),
            med: has(4).then_some(value),
            local_pref: has(5).then_some(value),
        };
        table.last_mut().expect("just added").1.push(path);
    }
    let mut dump = DumpWriter::new(Vec::new(), 0, "fuzz", &peers).expect("few peers");
    for (prefix, paths) in &table {
        dump.prefix(*prefix, paths).expect("few paths, of short AS paths");
    }
    let dump = dump.into_inner();
    let of_path = |path: &DumpPath<'_>| {
        let DumpPath { next_hop, local_pref, origin, med, .. } = *path;
        let as_path_len = u32::try_from(path.as_path.len()).expect("few");
        let attributes = PathAttributes { next_hop, local_pref, as_path_len, origin, med };
        let DumpPeer { bgp_id, addr, .. } = peers[usize::from(path.peer)];
        rank(&Peer { addr, bgp_id, external: true }, path.id, &attributes)
    };
    for choice in
        [PeerChoice::First, PeerChoice::Best, PeerChoice::Number(0), PeerChoice::Number(3)]
    {
        let taken = table.iter().filter_map(|(prefix, paths)| {
            let path = match choice {
                PeerChoice::First => paths.first(),
                PeerChoice::Number(number) => paths.iter().find(|path| path.peer == number),
                PeerChoice::Best => paths.iter().min_by_key(|path| of_path(path)),
            };
            path.map(|path| TableEntry { prefix: *prefix, hop: FileHop::Addr(path.next_hop) })
        });
        let table = TableReader::new("fuzz", Cursor::new(dump.clone())).expect("it is in memory");
        let read: Result<Vec<_>, _> = table.with_peer(choice).collect();
        assert_eq!(read, Ok(taken.collect()), "{choice:?}");
    }
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

/// What a session came to: events, whether it broke off, what was refused, and what is to be sent.
type Session = (Vec<RouteEvent>, bool, Rejected, Vec<Vec<u8>>);

/// A session of a source whose peers connect, given `size` bytes at a time; all of it is acknowledged.
fn session(kind: &SourceKind, bytes: &[u8], size: usize) -> Session {
    let Ok(mut source) = (kind.open)(&SourceSpec::default()) else { unreachable!() };
    let (now, mut buffer, mut said, mut out) = (Instant::now(), Vec::new(), Vec::new(), Vec::new());
    let mut commit = 0;
    let mut failed = false;
    for piece in bytes.chunks(size) {
        buffer.extend_from_slice(piece);
        failed = loop {
            match source.input(&buffer, now, &mut |event| said.push(event)) {
                Ok(taken) => drop(buffer.drain(..taken)),
                Err(_) => break true,
            }
            // It stops behind what took long.
            if source.due().is_none() {
                break false;
            }
        };
        if failed {
            break;
        }
    }
    for event in &said {
        if let RouteEvent::Commit(number) = event {
            assert_eq!(*number, commit + 1);
            commit = *number;
        }
    }
    source.visible(commit, &[]);
    source.output(&mut out);
    source.tick(now + Duration::from_secs(100), &mut |event| said.push(event));
    let count = |is: RouteEvent| said.iter().filter(|event| **event == is).count();
    let started = count(RouteEvent::StartOfTable);
    // A router may go over to other routes of it, twice at most.
    let most = if kind.name == bmp::KIND.name { 3 } else { 1 };
    assert!(started.div_ceil(most) == usize::from(!bytes.is_empty()), "{started}");
    assert_eq!(count(RouteEvent::EndOfTable), usize::from(commit > 0));
    (said, failed, source.rejected(), out)
}

/// `bytes` as a session of zebra: whole, and one at a time.
pub fn fpm(bytes: &[u8]) {
    let whole = session(&fpm::KIND, bytes, usize::MAX);
    assert_eq!(whole, session(&fpm::KIND, bytes, 1));
    // What is sent are frames, each no longer than the one that had its route.
    let mut sent = &whole.3.concat()[..];
    while let &[1, 1, high, low, ..] = sent {
        sent = &sent[usize::from(u16::from_be_bytes([high, low]))..];
    }
    assert!(sent.is_empty());
}

/// `bytes` as a session of a BGP router: whole, and one at a time.
pub fn bmp(bytes: &[u8]) {
    // The loss of a peer changes its prefixes in any order.
    let sorted = |size| {
        let (said, failed, rejected, out) = session(&bmp::KIND, bytes, size);
        let mut said: Vec<String> = said.iter().map(|event| format!("{event:?}")).collect();
        said.sort();
        (said, failed, rejected, out)
    };
    assert_eq!(sorted(usize::MAX), sorted(1));
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::real::data;
    use crate::netlink::Request;

    /// Frames of objects and routes with every attribute that is read.
    fn sample() -> Vec<u8> {
        let u32 = |value: u32| value.to_ne_bytes();
        let hop = [&[16, 0, 0, 1][..], &u32(3), &[8, 0, 5, 0, 10, 0, 0, 1]].concat();
        let prefix = |kind, len| {
            Request::query(kind, 0x500, 0)
                .fixed(&[2, len, 0, 0, 254, 186, 0, 1, 0, 0, 0, 0])
                .attr(1, &[10, 0, 0, 0])
                .attr(6, &u32(20))
        };
        let object = |kind, id| Request::query(kind, 0, 0).fixed(&[0; 8]).attr(1, &u32(id));
        let messages = [
            vec![object(104, 7).attr(2, &[8, 0, 0, 0, 2, 0, 0, 0])],
            vec![object(104, 8).attr(5, &u32(3)).attr(6, &[10, 0, 0, 1])],
            vec![object(104, 9).attr(2, &[7, 0, 0, 0, 2, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0])],
            vec![prefix(24, 8).attr(30, &u32(9))],
            vec![prefix(25, 8), prefix(24, 8).attr(9, &[&hop[..], &hop].concat())],
            vec![prefix(24, 16).attr(21, &[1, 0]), object(105, 9), object(104, 9).attr(4, &[])],
            vec![prefix(25, 16), object(105, 7)],
        ];
        let frame = |messages: Vec<Request>| {
            let body: Vec<u8> = messages.into_iter().flat_map(Request::finish).collect();
            let len = u16::try_from(4 + body.len()).unwrap();
            [&[1, 1][..], &len.to_be_bytes(), &body].concat()
        };
        messages.into_iter().flat_map(frame).collect()
    }

    #[test]
    fn truncated_anywhere() {
        let recorded = data("fpm/frr844-static-nonhg.bin").map(|path| std::fs::read(path).unwrap());
        for bytes in [Some(sample()), recorded].into_iter().flatten() {
            (0..=bytes.len()).for_each(|cut| super::fpm(&bytes[..cut]));
        }
        let bytes = super::super::bmp::tests::sample();
        (0..=bytes.len()).for_each(|cut| super::bmp(&bytes[..cut]));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2000) })]

        #[test]
        fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            super::fpm(&bytes);
            super::bmp(&bytes);
        }

        #[test]
        fn mutated_bmp(flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8)) {
            let mut bytes = super::super::bmp::tests::sample();
            for (at, byte) in flips {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            super::bmp(&bytes);
        }

        #[test]
        fn mutated(flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8)) {
            let mut bytes = sample();
            for (at, byte) in flips {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            super::fpm(&bytes);
        }
    }
}
