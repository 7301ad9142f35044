//! MRT files of collectors, read by Fingerpost and by an independent parser: the same routes, peer by peer, and the same updates.
//!
//! The files are those of `mrt/` in `FINGERPOST_DATA`; two of them end inside a record. Dumps that Fingerpost writes are read by that
//! parser, by `bgpdump`, and by Fingerpost.

#![allow(clippy::unwrap_used, reason = "these are the helpers of tests")]

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::Cursor;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use bgpkit_parser::models::{ElemType, MrtMessage, TableDumpV2Message};
use bgpkit_parser::{BgpElem, BgpkitParser};
use fingerpost_route::AnyPrefix;
use fingerpost_route::bgp::dump::{DumpPath, DumpPeer, DumpWriter};
use fingerpost_route::bgp::mrt::{Message, Records};
use fingerpost_route::bgp::update::Statement;
use fingerpost_route::source::SourceError;
use fingerpost_route::source::table::decompress::Decoded;
use fingerpost_route::source::table::{FileHop, PeerChoice, TableReader};
use fingerpost_tests::configuration::Configuration;
use fingerpost_tests::netns::{Line, Router, exec};
use fingerpost_tests::{patience, program, skip, tables};
use serde_json::Value;

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

/// Temporary folder, deleted when this is dropped.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("fingerpost-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// What a command of the program prints.
fn said_by(program: &Path, words: &[&str]) -> String {
    let output = Command::new(program).args(words).output().unwrap();
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Routes as `bgpdump` reads them, by peer; `None` where it is not installed.
fn bgpdump(file: &str) -> Option<BTreeMap<String, Vec<Said>>> {
    let Ok(output) = Command::new("bgpdump").args(["-m", file]).output() else {
        skip("bgpdump");
        return None;
    };
    let mut routes: BTreeMap<String, Vec<Said>> = BTreeMap::new();
    for line in String::from_utf8(output.stdout).unwrap().lines() {
        let fields: Vec<&str> = line.split('|').collect();
        let [peer, prefix, hop] = [fields[3], fields[5], fields[8]].map(str::to_owned);
        routes.entry(peer).or_default().push((prefix, hop.parse().ok()));
    }
    Some(routes)
}

#[test]
fn a_table_that_is_converted_has_its_routes_once_a_peer() {
    let Some(program) = program() else { return skip("a build of fingerpost") };
    let folder = Folder::new("convert");
    let mut routes = Vec::new();
    for (name, count) in [("v4-tier1-nh496.txt.xz", 5_000), ("v6-tier1-nh496.txt.xz", 2_000)] {
        let text = tables::text(&tables::shipped().join(name));
        let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        routes.extend(lines.iter().take(count).map(|line| (*line).to_owned()));
    }
    let (text, dump) = (folder.file("t.txt"), folder.file("t.mrt.bz2"));
    std::fs::write(&text, routes.join("\n") + "\n").unwrap();
    let convert = ["table", "convert", &text, "--to", "mrt", "--peers", "4", "-o", &dump, "--json"];
    let done: Value = serde_json::from_str(&said_by(&program, &convert)).unwrap();
    assert_eq!((&done["routes_v4"], &done["routes_v6"]), (&5_000.into(), &2_000.into()), "{done}");
    assert_eq!(done["entries"], 28_000);
    let split = |line: &String| {
        let (prefix, hop) = line.split_once(' ').unwrap();
        (prefix.to_owned(), hop.parse().ok())
    };
    let want: Vec<Said> = routes.iter().map(split).collect();
    for choice in (0..4).map(PeerChoice::Number).chain([PeerChoice::First, PeerChoice::Best]) {
        let (read, cut) = read(TableReader::open(dump.as_ref()).unwrap(), choice);
        assert!(read == want && cut.is_none(), "{choice:?}: {} routes", read.len());
    }
    let none = read(TableReader::open(dump.as_ref()).unwrap(), PeerChoice::Number(4)).0;
    assert_eq!(none, [], "a fifth peer");
    let bytes = plain(dump.as_ref());
    let elems: Vec<BgpElem> = oracle(&bytes).into_elem_iter().collect();
    assert!(
        elems.iter().step_by(4).map(said).eq(want.iter().cloned()),
        "as the other parser reads"
    );
    let peers: Vec<String> = elems.iter().take(4).map(|elem| elem.peer_ip.to_string()).collect();
    assert_eq!(peers, ["198.18.0.1", "198.18.0.2", "198.18.0.3", "198.18.0.4"]);
    let back = said_by(&program, &["table", "convert", &dump, "--peer", "2", "--to", "text"]);
    assert!(back.lines().eq(&routes), "and back as text");
    let Some(others) = bgpdump(&dump) else { return };
    assert!(others.keys().eq(&peers));
    assert!(others.values().all(|routes| *routes == want), "as bgpdump reads it");
}

#[test]
fn a_router_exports_what_it_has() {
    let Some(line) = Line::new(&[]) else { return };
    let text = "[[source]]\nkind = \"kernel\"\n[[source]]\nkind = \"fixed\"\nroutes = [\"192.0.2.0/24 via 10.0.2.2\", \
                \"198.51.100.0/24 via 10.0.2.2 via 10.0.1.2\", \"2001:db8::/32 via fd02::2\", \"203.0.113.0/24 blackhole\"]\n";
    let config = Configuration::new(&line.router, text);
    let router = Router::start(&line.router, &config.path().display().to_string(), 2);
    let folder = Folder::new("export");
    let file = folder.file("routes.mrt.gz");
    let done: Value = router.ask(&format!("route export --mrt {file} --source fixed"));
    assert_eq!((&done["routes_v4"], &done["routes_v6"]), (&2.into(), &1.into()), "{done}");
    assert_eq!((&done["paths"], &done["left_out"]), (&4.into(), &1.into()), "{done}");
    let want = |hop: &str| hop.parse::<IpAddr>().ok();
    let (routes, _) = read(TableReader::open(file.as_ref()).unwrap(), PeerChoice::First);
    let prefixes = ["192.0.2.0/24", "198.51.100.0/24", "2001:db8::/32"].map(str::to_owned);
    let (gateway, gateway_v6) = (want("10.0.2.2"), want("fd02::2"));
    assert_eq!(routes[0], (prefixes[0].clone(), gateway));
    assert!(routes.iter().map(|route| &route.0).eq(&prefixes), "{routes:?}");
    assert_eq!(routes[2].1, gateway_v6);
    let mut elems: Vec<Said> =
        oracle(&plain(file.as_ref())).into_elem_iter().map(|e| said(&e)).collect();
    elems.sort();
    let second = (prefixes[1].clone(), want("10.0.1.2"));
    let all = [
        (prefixes[0].clone(), gateway),
        second,
        (prefixes[1].clone(), gateway),
        (prefixes[2].clone(), gateway_v6),
    ];
    assert_eq!(elems, all, "every path of a route");
    // All sources, of which the kernel's routes lead to links.
    let done: Value = router.ask(&format!("route export --mrt {file}"));
    assert!(done["left_out"].as_u64() > Some(1), "{done}");
    let program = program().unwrap();
    let words = format!("{} route export --mrt {file}.xz", program.display());
    assert!(!exec(&line.router, &words).status.success(), "as xz a file is only read");
    assert_eq!(std::fs::read_dir(&folder.0).unwrap().count(), 1, "nothing is left beside it");
    router.stop();
}

/// A record of BGP4MP with AS numbers of four bytes, of the peer 192.0.2.`peer`.
fn recorded(seconds: u32, subtype: u16, peer: u8, content: &[u8]) -> Vec<u8> {
    let session = [0, 0, 251, 244 + peer, 0, 0, 0, 9, 0, 0, 0, 1, 192, 0, 2, peer, 9, 9, 9, 9];
    let body = [&session[..], content].concat();
    let len = u32::try_from(body.len()).unwrap().to_be_bytes();
    let time = (1_000_000 + seconds).to_be_bytes();
    [&time[..], &[0, 16], &subtype.to_be_bytes(), &len, &body].concat()
}

/// An UPDATE message that withdraws a prefix of length 24, or announces it with a next hop.
fn update(seconds: u32, peer: u8, prefix: [u8; 3], hop: Option<[u8; 4]>) -> Vec<u8> {
    let prefix = [&[24][..], &prefix].concat();
    let body = match hop {
        None => [&[0, 4][..], &prefix, &[0, 0]].concat(),
        Some(hop) => {
            let path = [0x40, 1, 1, 0, 0x40, 2, 6, 2, 1, 0, 0, 251, 244, 0x40, 3, 4];
            [&[0, 0, 0, 20][..], &path, &hop, &prefix].concat()
        }
    };
    let len = u16::try_from(19 + body.len()).unwrap().to_be_bytes();
    recorded(seconds, 4, peer, &[&[255; 16][..], &len, &[2], &body].concat())
}

/// Both peers have all of so many prefixes; the paths of the second are longer.
fn dump_of(prefixes: u8) -> Vec<u8> {
    let peer = |n: u8| DumpPeer {
        bgp_id: n.into(),
        addr: [192, 0, 2, n].into(),
        as_number: 64_500 + u32::from(n),
    };
    let path = |peer, as_path, hop: [u8; 4]| DumpPath {
        peer,
        id: 0,
        since: 0,
        origin: 0,
        as_path,
        next_hop: hop.into(),
        med: None,
        local_pref: None,
    };
    let mut dump = DumpWriter::new(Vec::new(), 0, "", &[peer(1), peer(2)]).unwrap();
    for n in 0..prefixes {
        let prefix = AnyPrefix::parse(&format!("100.64.{n}.0/24")).unwrap();
        let paths = [path(0, &[1], [10, 0, 2, 2]), path(1, &[1, 2], [10, 0, 1, 2])];
        dump.prefix(prefix, &paths).unwrap();
    }
    dump.into_inner()
}

#[test]
fn recorded_updates_are_replayed_in_their_time() {
    const PREFIXES: u8 = 50;
    let Some(line) = Line::new(&[]) else { return };
    let folder = Folder::new("replay");
    let cut = update(2, 1, [100, 64, 1], None);
    let first = [update(0, 1, [100, 64, 0], None), cut[..cut.len() - 1].to_vec()].concat();
    let nonsense = recorded(3, 4, 1, &[0; 7]);
    let lost = recorded(6, 5, 1, &[0, 6, 0, 1]);
    let second = [nonsense, lost, update(8, 2, [100, 65, 0], Some([10, 0, 1, 2]))].concat();
    let files = [dump_of(PREFIXES), first, second];
    let names = ["rib.mrt", "updates.1", "updates.2"].map(|name| folder.file(name));
    for (name, bytes) in names.iter().zip(files) {
        std::fs::write(name, bytes).unwrap();
    }
    let [rib, one, two] = &names;
    let text = format!(
        "[[source]]\nkind = \"kernel\"\n[[source]]\nkind = \"mrt\"\npath = \"{rib}\"\nupdates = [\"{one}\", \"{two}\"]\nspeed = 2\n"
    );
    let config = Configuration::new(&line.router, &text);
    let router = Router::start(&line.router, &config.path().display().to_string(), 2);
    let source = || router.source("mrt");
    let until = Instant::now() + patience(Duration::from_secs(20));
    let row = loop {
        let row = source();
        if row["in_sync"] == true || Instant::now() > until {
            break row;
        }
    };
    assert_eq!((&row["kind"], &row["in_sync"]), (&"mrt".into(), &true.into()), "{row}");
    assert!(row["routes"].as_u64() >= Some(PREFIXES.into()), "the table is whole before: {row}");
    router.wait_for("to replay", |said| said.iter().any(|line| line.contains("are replayed, in")));
    let said = router.said();
    let words = |part: &str| said.iter().find(|line| line.contains(part)).unwrap().clone();
    // 8 s at twice the speed.
    let took = words("are replayed, in");
    let seconds = took.split(", in ").nth(1).and_then(|rest| rest.split(' ').next()).unwrap();
    assert!((4.0..15.0).contains(&seconds.parse::<f64>().unwrap()), "{took}");
    assert!(words("updates.1").contains("cut short in record 2: the 1 records before"), "{said:?}");
    let row = source();
    assert_eq!((&row["errors"], &row["in_sync"]), (&1.into(), &false.into()), "ended: {row}");
    assert_eq!(row["messages"], u64::from(PREFIXES) + 5, "{row}");
    let rows: Vec<Value> = router.ask_lines("route show --source mrt");
    assert_eq!(rows.len(), usize::from(PREFIXES) + 1);
    // Only the second peer is left.
    assert!(rows.iter().all(|row| row["paths"][0]["gateway"] == "10.0.1.2"), "{rows:#?}");
    router.stop();
}

#[test]
fn one_peer_is_replayed_as_fast_as_possible_and_again_for_another_one() {
    let Some(line) = Line::new(&[]) else { return };
    let folder = Folder::new("replay-peer");
    let file = folder.file("all.mrt");
    let hour = update(3600, 1, [100, 64, 0], None);
    std::fs::write(
        &file,
        [dump_of(20), update(0, 2, [100, 65, 0], Some([10, 0, 1, 2])), hour].concat(),
    )
    .unwrap();
    let text = |peer: &str| {
        format!(
            "[[source]]\nkind = \"kernel\"\n[[source]]\nkind = \"mrt\"\npath = \"{file}\"\nspeed = \"max\"\npeer = {peer}\n"
        )
    };
    let config = Configuration::new(&line.router, &text("0"));
    let router = Router::start(&line.router, &config.path().display().to_string(), 2);
    let replayed = |times: usize| {
        router.wait_for("to replay", |said| {
            said.iter().filter(|line| line.contains("are replayed, in")).count() == times
        });
        let rows: Vec<Value> = router.ask_lines("route show --source mrt");
        let hops = rows.iter().map(|row| row["paths"][0]["gateway"].as_str().unwrap().to_owned());
        (rows.len(), hops.collect::<std::collections::BTreeSet<_>>())
    };
    let hops = |hop: &str| std::iter::once(hop.to_owned()).collect();
    assert_eq!(replayed(1), (19, hops("10.0.2.2")));
    std::fs::write(config.path(), text("1")).unwrap();
    let _: Value = router.ask(&format!("config apply {}", config.path().display()));
    assert_eq!(replayed(2), (21, hops("10.0.1.2")));
    // The dump alone, as a file.
    let text = text("1").replace("\"mrt\"", "\"file\"").replace("speed = \"max\"\n", "");
    std::fs::write(config.path(), text).unwrap();
    let _: Value = router.ask(&format!("config apply {}", config.path().display()));
    let rows: Vec<Value> = router.ask_lines("route show --source file");
    assert_eq!(rows.len(), 20);
    assert!(rows.iter().all(|row| row["paths"][0]["gateway"] == "10.0.1.2"), "{rows:#?}");
    router.stop();
}
