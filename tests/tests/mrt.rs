//! MRT files of collectors, read by Fingerpost and by an independent parser: the same routes, peer by peer, and the same updates.
//!
//! The files are those of `mrt/` in `FINGERPOST_DATA`; two of them end inside a record.

#![allow(clippy::unwrap_used, reason = "these are the helpers of tests")]

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::Cursor;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use bgpkit_parser::models::{ElemType, MrtMessage, TableDumpV2Message};
use bgpkit_parser::{BgpElem, BgpkitParser};
use fingerpost_route::bgp::mrt::{Message, Records};
use fingerpost_route::bgp::update::Statement;
use fingerpost_route::source::SourceError;
use fingerpost_route::source::table::decompress::Decoded;
use fingerpost_route::source::table::{FileHop, PeerChoice, TableReader};
use fingerpost_tests::tables;

/// A prefix with its next hop, if it has one.
type Said = (String, Option<IpAddr>);

fn file(name: &str) -> Option<PathBuf> {
    let path = tables::data().join("mrt").join(name);
    if !path.exists() {
        println!("skipped: needs {name} (FINGERPOST_DATA)");
        return None;
    }
    Some(path)
}

/// The plain bytes, up to where the file ends or is cut.
fn plain(path: &Path) -> Vec<u8> {
    let mut input = Decoded::new("t", Box::new(File::open(path).unwrap())).unwrap();
    let (mut bytes, mut piece) = (Vec::new(), vec![0; 1 << 16]);
    while let Ok(len @ 1..) = input.read_some(&mut piece) {
        bytes.extend_from_slice(&piece[..len]);
    }
    bytes
}

fn oracle(bytes: &[u8]) -> BgpkitParser<Cursor<Vec<u8>>> {
    BgpkitParser::from_reader(Cursor::new(bytes.to_vec())).disable_warnings()
}

/// Routes that a choice gives, and the message of a file that is cut.
fn read(table: TableReader, choice: PeerChoice) -> (Vec<Said>, Option<String>) {
    let mut reader = table.with_peer(choice);
    let (mut routes, mut cut) = (Vec::new(), None);
    for entry in &mut reader {
        match entry {
            Ok(entry) => {
                let FileHop::Addr(hop) = entry.hop else { panic!("{:?}", entry.hop) };
                routes.push((entry.prefix.to_string(), Some(hop)));
            }
            Err(error @ SourceError::Truncated { .. }) => cut = Some(error.to_string()),
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!(reader.rejected().count, 0, "{:?}", reader.rejected());
    (routes, cut)
}

fn said(elem: &BgpElem) -> Said {
    (elem.prefix.prefix.to_string(), elem.next_hop)
}

/// Entries of a dump by the number of their peer, as the other parser has them.
fn by_peer(bytes: &[u8]) -> BTreeMap<u16, usize> {
    let (mut count, mut old) = (BTreeMap::new(), HashMap::new());
    for record in oracle(bytes).into_record_iter() {
        match record.message {
            MrtMessage::TableDumpV2Message(TableDumpV2Message::RibAfi(rib)) => {
                for entry in rib.rib_entries {
                    *count.entry(entry.peer_index).or_default() += 1;
                }
            }
            MrtMessage::TableDumpMessage(entry) => {
                let next = u16::try_from(old.len()).unwrap();
                *count.entry(*old.entry(entry.peer_ip).or_insert(next)).or_default() += 1;
            }
            _ => {}
        }
    }
    count
}

#[test]
fn dumps_have_the_routes_of_the_oracle() {
    let files = [
        ("bview.20020722.2337.gz", false),
        ("rib.20140523.0600_firstMB.bz2", true),
        ("rib6.20151101.0600_firstMB.bz2", true),
    ];
    for (name, truncated) in files {
        let Some(path) = file(name) else { return };
        let bytes = plain(&path);
        let (first, cut) = read(TableReader::open(&path).unwrap(), PeerChoice::First);
        assert_eq!(cut.is_some(), truncated, "{name}");
        if let Some(cut) = cut {
            assert!(
                cut.contains("cut short in record ") && cut.contains("before are read"),
                "{cut}"
            );
        }
        let mut want: Vec<Said> = oracle(&bytes).into_elem_iter().map(|elem| said(&elem)).collect();
        let entries = want.len();
        want.dedup_by(|later, first| later.0 == first.0);
        assert_eq!(first.len(), want.len(), "{name}: prefixes");
        assert!(first == want, "{name}: {:?}", first.iter().zip(&want).find(|(a, b)| a != b));
        let again = || TableReader::new(name, Cursor::new(bytes.clone())).unwrap();
        let peers = by_peer(&bytes);
        assert_eq!(peers.values().sum::<usize>(), entries);
        for (&peer, &count) in &peers {
            let routes = read(again(), PeerChoice::Number(peer)).0.len();
            assert_eq!(routes, count, "{name}: peer {peer}");
        }
        let best = read(again(), PeerChoice::Best).0;
        assert!(best.iter().map(|route| &route.0).eq(first.iter().map(|route| &route.0)));
        println!("{name}: {} prefixes, {entries} entries, {} peers", first.len(), peers.len());
    }
}

#[test]
fn updates_are_those_of_the_oracle() {
    for name in ["updates.20160811.1600.gz", "updates.et-header.2015.gz"] {
        let Some(path) = file(name) else { return };
        let bytes = plain(&path);
        let mut ours: Vec<Said> = Vec::new();
        for record in Records::new(&bytes) {
            let Some(message) = Message::of(&record.unwrap()).unwrap() else { continue };
            let mut take = |statement| match statement {
                Statement::Announced(prefix, _, attributes) => {
                    ours.push((prefix.to_string(), Some(attributes.next_hop)));
                }
                Statement::Withdrawn(prefix, _) => ours.push((prefix.to_string(), None)),
                Statement::EndOfRib { .. } => {}
            };
            message.statements(&mut take).unwrap();
        }
        let elems = oracle(&bytes).into_elem_iter();
        let mut want: Vec<Said> = elems
            .map(|elem| match elem.elem_type {
                ElemType::ANNOUNCE => said(&elem),
                ElemType::WITHDRAW => (elem.prefix.prefix.to_string(), None),
            })
            .collect();
        ours.sort();
        want.sort();
        assert_eq!(ours.len(), want.len(), "{name}");
        assert!(ours == want, "{name}: {:?}", ours.iter().zip(&want).find(|(a, b)| a != b));
        println!("{name}: {} statements", ours.len());
    }
}
