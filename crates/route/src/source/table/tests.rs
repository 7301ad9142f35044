//! Tables in every format, whole, cut up, cut short, compressed and damaged.

use super::*;

fn all(parser: &mut TableParser) -> Vec<String> {
    core::iter::from_fn(|| parser.next_entry())
        .map(|entry| match entry {
            Ok(entry) => format!("{} {}", entry.prefix, entry.hop),
            Err(error) => format!("! {error}"),
        })
        .collect()
}

/// The routes, what was rejected and the error, for one manner of cutting the bytes up.
fn fed(bytes: &[u8], sizes: &mut dyn FnMut() -> usize) -> (Vec<String>, Rejected, u64, u64) {
    let mut parser = TableParser::new("t");
    let (mut rest, mut said) = (bytes, Vec::new());
    while !rest.is_empty() {
        let (now, later) = rest.split_at(sizes().clamp(1, rest.len()));
        parser.feed(now);
        said.extend(all(&mut parser));
        rest = later;
    }
    parser.end();
    said.extend(all(&mut parser));
    assert_eq!(all(&mut parser), Vec::<String>::new(), "nothing follows the end");
    (said, parser.rejected().clone(), parser.records(), parser.skipped())
}

fn record(kind: u16, subtype: u16, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0x53, 0x7e, 0xe0, 0x20];
    bytes.extend(kind.to_be_bytes());
    bytes.extend(subtype.to_be_bytes());
    bytes.extend(u32::try_from(body.len()).unwrap().to_be_bytes());
    bytes.extend(body);
    bytes
}

/// The attributes of one path: origin, then the next hop as given.
fn attributes(kind: u8, next_hop: &[u8]) -> Vec<u8> {
    let len = u8::try_from(next_hop.len()).unwrap();
    [&[0x40, 1, 1, 0, 0x90, kind, 0, len], next_hop].concat()
}

/// A RIB record of version 2 with (peer, attributes) entries.
fn rib(prefix: &[u8], paths: bool, entries: &[(u16, Vec<u8>)]) -> Vec<u8> {
    let mut body = vec![0, 0, 0, 7];
    body.extend(prefix);
    body.extend(u16::try_from(entries.len()).unwrap().to_be_bytes());
    for (peer, attributes) in entries {
        body.extend(peer.to_be_bytes());
        body.extend([0; 4]);
        body.extend(&[0, 0, 0, 9][..if paths { 4 } else { 0 }]);
        body.extend(u16::try_from(attributes.len()).unwrap().to_be_bytes());
        body.extend(attributes);
    }
    body
}

fn sample_mrt() -> Vec<u8> {
    let v6 = "2001:db8::1".parse::<core::net::Ipv6Addr>().unwrap().octets();
    let local = "fe80::1".parse::<core::net::Ipv6Addr>().unwrap().octets();
    let short = [&[16][..], &v6].concat();
    let both = [&[32][..], &v6, &local].concat();
    let full = [&[0, 2, 1, 16][..], &v6, &[0, 32, 0x20, 1, 0x0d, 0xb8]].concat();
    let hop = |last| attributes(3, &[192, 0, 2, last]);
    [
        record(13, 1, &[1; 30]),
        record(13, 2, &rib(&[8, 10], false, &[(5, hop(1)), (7, hop(2))])),
        record(16, 4, &[0; 60]),
        record(13, 8, &rib(&[24, 10, 1, 2], true, &[(7, hop(3))])),
        record(13, 4, &rib(&[32, 0x20, 1, 0x0d, 0xb8], false, &[(5, attributes(14, &short))])),
        record(13, 10, &rib(&[0], true, &[(7, attributes(14, &both))])),
        record(13, 4, &rib(&[16, 0x20, 1], false, &[(5, attributes(14, &full))])),
        record(13, 2, &rib(&[33, 1, 1, 1, 1, 1], false, &[(5, hop(4))])),
        record(13, 2, &rib(&[9, 11, 0xff], false, &[(5, attributes(8, &[0; 4])), (6, hop(5))])),
        record(
            12,
            1,
            &[&[0, 0, 0, 1, 12, 0, 0, 0, 8, 1][..], &[0; 10], &[0, 12], &hop(6)].concat(),
        ),
        record(
            12,
            1,
            &[&[0, 0, 0, 2, 12, 0, 0, 0, 8, 1][..], &[0; 10], &[0, 12], &hop(7)].concat(),
        ),
    ]
    .concat()
}

#[test]
fn mrt_of_both_versions() {
    let (said, rejected, records, skipped) = fed(&sample_mrt(), &mut || usize::MAX);
    assert_eq!(
        said,
        [
            "10.0.0.0/8 192.0.2.1",
            "10.1.2.0/24 192.0.2.3",
            "2001:db8::/32 2001:db8::1",
            "::/0 2001:db8::1",
            "2001::/16 2001:db8::1",
            "11.128.0.0/9 192.0.2.5",
            "12.0.0.0/8 192.0.2.6",
        ]
    );
    assert_eq!((records, skipped, rejected.count), (11, 3, 1));
    assert_eq!(rejected.samples, ["record 8: prefix length beyond the family's"]);

    let mut chosen = TableParser::new("t").with_peer(PeerChoice::Number(7));
    chosen.feed(&sample_mrt());
    assert_eq!(
        all(&mut chosen),
        ["10.0.0.0/8 192.0.2.2", "10.1.2.0/24 192.0.2.3", "::/0 2001:db8::1"]
    );
}

#[test]
fn a_path_that_cannot_be_read_is_passed_over_alone() {
    let broken = vec![0x40, 3, 200, 1];
    let paths = [(5, broken.clone()), (6, attributes(3, &[192, 0, 2, 6]))];
    let file = record(13, 2, &rib(&[8, 10], false, &paths));
    for choice in [PeerChoice::First, PeerChoice::Best] {
        let mut parser = TableParser::new("t").with_peer(choice);
        parser.feed(&file);
        assert_eq!(all(&mut parser), ["10.0.0.0/8 192.0.2.6"], "{choice:?}");
        assert_eq!(parser.rejected().samples, ["record 1: incomplete inside a field"]);
    }
    // None is left.
    let mut parser = TableParser::new("t");
    parser.feed(&record(13, 2, &rib(&[8, 10], false, &[(5, broken)])));
    assert_eq!((all(&mut parser).len(), parser.rejected().count), (0, 1));
}

/// Paths of three peers: which one is chosen, in both versions.
#[test]
fn the_best_path_is_that_of_the_rule() {
    let path = |origin: u8, path: &[u8], hop: u8| {
        let len = u8::try_from(path.len()).unwrap();
        [&[0x40, 1, 1, origin, 0x40, 2, len][..], path, &[0x40, 3, 4, 192, 0, 2, hop]].concat()
    };
    // Two of IPv4 with AS numbers of either length; the last one has the lowest identifier.
    let mut index = vec![0, 0, 0, 1, 0, 1, b'v', 0, 3];
    index.extend([0, 0, 0, 0, 9, 10, 0, 0, 1, 0, 7]);
    index.extend([2, 0, 0, 0, 8, 10, 0, 0, 2, 0, 0, 0, 7]);
    index.extend([&[3, 0, 0, 0, 7][..], &[1; 16], &[0, 0, 0, 7]].concat());
    let one: &[u8] = &[2, 1, 0, 0, 0, 7];
    let two: &[u8] = &[2, 2, 0, 0, 0, 7, 0, 0, 0, 8];
    let entries = |origins: [u8; 3], paths: [&[u8]; 3]| -> Vec<_> {
        (0..3u8)
            .map(|n| (n.into(), path(origins[usize::from(n)], paths[usize::from(n)], n)))
            .collect()
    };
    let generic =
        [&[0, 0, 0, 7, 0, 1, 1][..], &rib(&[8, 13], false, &entries([0; 3], [one; 3]))[4..]];
    let old = |prefix: u8, peer: u8, len: u8, hop: u8| {
        let numbers = [&[2, len][..], &vec![0; usize::from(len) * 2]].concat();
        let head = [&[0, 0, 0, 1, prefix, 0, 0, 0, 8, 1][..], &[0; 4], &[10, 0, 0, peer, 0, 7]];
        let attributes = path(0, &numbers, hop);
        let count = u16::try_from(attributes.len()).unwrap().to_be_bytes();
        record(12, 1, &[&head.concat()[..], &count, &attributes].concat())
    };
    let file = [
        record(13, 1, &index),
        record(13, 2, &rib(&[8, 10], false, &entries([0; 3], [two, one, two]))),
        record(13, 2, &rib(&[8, 11], false, &entries([1, 2, 2], [one; 3]))),
        record(13, 8, &rib(&[8, 12], true, &entries([0; 3], [one; 3]))),
        record(13, 6, &generic.concat()),
        old(14, 1, 2, 21),
        old(14, 2, 1, 22),
        old(15, 2, 1, 25),
        old(15, 1, 1, 26),
    ]
    .concat();
    let chosen = |choice| {
        let mut parser = TableParser::new("t").with_peer(choice);
        parser.feed(&file);
        parser.end();
        let said = all(&mut parser);
        assert_eq!(parser.rejected().count, 0);
        said.iter()
            .map(|line| line.split_once("192.0.2.").unwrap().1.to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(chosen(PeerChoice::Best), ["1", "0", "2", "2", "22", "26"]);
    assert_eq!(chosen(PeerChoice::First), ["0", "0", "0", "0", "21", "25"]);
    assert_eq!(chosen(PeerChoice::Number(1)), ["1", "1", "1", "1", "22", "25"]);
    assert_eq!("best".parse(), Ok(PeerChoice::Best));
    assert_eq!("3".parse(), Ok(PeerChoice::Number(3)));
    assert!("third".parse::<PeerChoice>().is_err());
}

#[test]
fn an_mrt_file_cut_anywhere_gives_what_was_before() {
    let bytes = sample_mrt();
    let whole = fed(&bytes, &mut || usize::MAX).0;
    let mut borders = 0;
    for cut in 1..bytes.len() {
        let (mut said, ..) = fed(&bytes[..cut], &mut || usize::MAX);
        let last = said.pop().unwrap_or_default();
        if last.starts_with("! t: cut short in record") {
            assert!(last.contains(&format!("behind byte {cut}: the ")), "{last}");
        } else if last.starts_with('!') {
            // Too short to look like MRT.
            assert!(cut < 12, "{cut}: {last}");
        } else {
            borders += u32::from(cut >= 12);
            said.extend((!last.is_empty()).then_some(last));
        }
        assert_eq!(said, whole[..said.len()]);
    }
    assert_eq!(borders, 10, "only a cut between records is no cut");
}

#[test]
fn text_with_everything_in_it() {
    let long = format!("10.9.0.0/16 {}1\n", " ".repeat(1100));
    let text = format!(
        "# a table\r\n10.0.0.0/8 192.0.2.1\r\n\n  garbage\n{long}10.1.0.0/16 7\n::/0 ::1 # x\n1.0.0.0/8 9"
    );
    let (said, rejected, records, skipped) = fed(text.as_bytes(), &mut || usize::MAX);
    assert_eq!(said, ["10.0.0.0/8 192.0.2.1", "10.1.0.0/16 7", "::/0 ::1", "1.0.0.0/8 9"]);
    assert_eq!((records, skipped, rejected.count), (8, 2, 2));
    assert_eq!(
        rejected.samples,
        ["line 4: `garbage` is no prefix", "line 5: longer than 1024 bytes"]
    );
    // However it is cut up, even bytewise.
    for size in 1..40 {
        assert_eq!(fed(text.as_bytes(), &mut || size).0, said, "{size} at a time");
    }
    assert_eq!(fed(b"", &mut || 1), (vec![], Rejected::default(), 0, 0));
    assert_eq!(fed(b"::/0 1", &mut || 1).0, ["::/0 1"], "shorter than a header");
}

#[test]
fn what_is_no_table_is_reported() {
    for (bytes, words) in [
        (&b"\x7fELF\x02\x01\x01\0\0\0\0\0"[..], "neither text"),
        (&[0; 64][..], "neither text"),
        (&[0; 3][..], "neither text"),
        (&b"\x1f\x8b\x08\0\0\0\0\0"[..], "compressed (gzip)"),
    ] {
        let (errors, ..) = fed(bytes, &mut || usize::MAX);
        assert!(errors.len() == 1 && errors[0].contains(words), "{errors:?}");
    }
}

#[test]
fn a_cut_line_is_not_used() {
    let mut parser = TableParser::new("t");
    parser.feed(b"10.0.0.0/8 192.0.2.1\n10.1.0.0/16 192.0.2.1");
    parser.cut(); // the next hop may have been 192.0.2.15
    assert_eq!(
        all(&mut parser),
        [
            "10.0.0.0/8 192.0.2.1",
            "! t: cut short in line 2, behind byte 42: the 1 lines before are read"
        ]
    );
}

mod split {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) })]

        #[test]
        fn any_split_gives_the_same(
            sizes in prop::collection::vec(1usize..90, 1..20),
            flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
            mrt in any::<bool>(),
        ) {
            let mut bytes = if mrt {
                sample_mrt()
            } else {
                b"10.0.0.0/8 192.0.2.1\r\nbad\n# c\n10.1.0.0/16 7\n::/0 ::1\n2001:db8::/32 fe80::1".to_vec()
            };
            for (at, byte) in flips {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            crate::source::fuzz::table(&bytes);
            let whole = fed(&bytes, &mut || usize::MAX);
            let mut sizes = sizes.iter().cycle();
            let parts = fed(&bytes, &mut || *sizes.next().unwrap());
            prop_assert_eq!(whole, parts);
        }
    }
}

mod compressed {
    use super::*;
    use std::io::Write;
    use std::process::{Command, Stdio};

    fn read(bytes: Vec<u8>) -> (Vec<String>, u64) {
        let mut table = TableReader::new("t", std::io::Cursor::new(bytes)).unwrap();
        let said = (&mut table)
            .map(|entry| match entry {
                Ok(entry) => format!("{} {}", entry.prefix, entry.hop),
                Err(error) => format!("! {error}"),
            })
            .collect();
        (said, table.records())
    }

    fn lines(count: u32) -> Vec<u8> {
        (0..count)
            .map(|i| format!("10.{}.{}.0/24 {}\n", i >> 8, i & 255, i * 7))
            .collect::<String>()
            .into()
    }

    /// Output of the program of that name; `None` where it is missing.
    fn packed(tool: &str, bytes: &[u8]) -> Option<Vec<u8>> {
        let mut child = Command::new(tool)
            .arg("-c")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .ok()?;
        let (mut stdin, bytes) = (child.stdin.take().unwrap(), bytes.to_vec());
        let writer = std::thread::spawn(move || stdin.write_all(&bytes));
        let output = child.wait_with_output().unwrap();
        writer.join().unwrap().unwrap();
        assert!(output.status.success());
        Some(output.stdout)
    }

    fn samples() -> Vec<(&'static str, Vec<u8>, Vec<u8>)> {
        let (first, second) = (lines(3000), b"2001:db8::/32 5\n".to_vec());
        let mut samples = Vec::new();
        for tool in ["gzip", "bzip2", "xz", "zstd"] {
            match (packed(tool, &first), packed(tool, &second)) {
                (Some(a), Some(b)) => samples.push((tool, a, b)),
                _ => println!("skipped: needs {tool}"),
            }
        }
        samples
    }

    #[test]
    fn members_follow_each_other() {
        for (tool, first, second) in samples() {
            let (said, records) = read([first, second].concat());
            assert_eq!(records, 3001, "{tool}");
            assert_eq!(said[2999], "10.11.183.0/24 20993", "{tool}");
            assert_eq!(said[3000], "2001:db8::/32 5", "{tool}");
        }
        // A frame to skip before and between.
        let mut skip = vec![0x53, 0x2a, 0x4d, 0x18, 4, 0, 0, 0, 1, 2, 3, 4];
        if let Some(frame) = packed("zstd", b"10.0.0.0/8 1\n") {
            skip.extend([&frame[..], &skip.clone(), &frame].concat());
            assert_eq!(read(skip).1, 2);
        }
    }

    #[test]
    fn cut_or_damaged_input_is_distinguished_from_a_whole_one() {
        for (tool, bytes, _) in samples() {
            let whole = read(bytes.clone()).0;
            assert_eq!(whole.len(), 3000, "{tool}");
            for part in 1..8 {
                let cut = bytes.len() * part / 8;
                let (mut said, _) = read(bytes[..cut].to_vec());
                let last = said.pop().unwrap();
                assert!(last.starts_with("! t: cut short in line"), "{tool} {cut}: {last}");
                assert_eq!(said, whole[..said.len()], "{tool} {cut}");
            }
            let mut bad = bytes.clone();
            let middle = bad.len() / 2;
            bad[middle] ^= 0x10;
            bad[middle + 1] ^= 0xff;
            let (said, _) = read(bad);
            for at in (0..bytes.len()).step_by(bytes.len() / 40) {
                let mut bad = bytes.clone();
                bad[at] ^= 0x55;
                crate::source::fuzz::compressed_table(&bad);
            }
            let last = said.last().unwrap();
            // zstd's checksum is not looked at: the damage may pass as other text.
            let told = last.starts_with("! t: damaged") || last.starts_with("! t: cut short");
            assert!(told || tool == "zstd", "{tool}: {last}");
        }
    }

    #[test]
    fn an_input_that_grows_without_measure_is_refused() {
        for tool in ["gzip", "bzip2", "xz", "zstd"] {
            let Some(bytes) = packed(tool, &vec![b'\n'; 16 << 20]) else {
                println!("skipped: needs {tool}");
                continue;
            };
            assert!(bytes.len() < 16 << 10, "{tool}: {} bytes", bytes.len());
            let (said, _) = read(bytes);
            assert_eq!(said, ["! t: decompressed more than 1000 times its size"], "{tool}");
        }
        // One that is long is not too large for that.
        let Some(bytes) = packed("gzip", &lines(200_000)) else { return };
        assert_eq!(read(bytes).1, 200_000);
    }

    #[test]
    fn what_is_no_file_is_not_waited_for() {
        for name in ["/dev/zero", "/dev"] {
            let error = TableReader::open(name.as_ref()).err().unwrap();
            assert!(error.to_string().ends_with("and a regular file is wanted"), "{error}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        let error = TableReader::open("/nonexistent/table".as_ref()).err().unwrap();
        let SourceError::Io { name, kind, .. } = error else { panic!("{error}") };
        assert_eq!((name.as_str(), kind), ("/nonexistent/table", std::io::ErrorKind::NotFound));
    }
}

/// The real tables: what README.md beside them counts must be what is read.
mod real {
    use super::*;
    use crate::source::real::data;

    fn count(name: &str) -> Option<(u64, u64, TableReader, Option<SourceError>)> {
        let mut table = TableReader::open(&data(name)?).unwrap();
        let (mut v4, mut v6, mut failed) = (0, 0, None);
        for entry in &mut table {
            match entry {
                Ok(TableEntry { prefix: AnyPrefix::V4(_), .. }) => v4 += 1,
                Ok(TableEntry { prefix: AnyPrefix::V6(_), .. }) => v6 += 1,
                Err(error) => failed = Some(error),
            }
        }
        Some((v4, v6, table, failed))
    }

    #[test]
    fn text_tables() {
        for (name, want_v4, want_v6) in [
            ("v4-20151023-pch-as3856.txt.xz", 577_706, 0),
            ("v4-tier1-nh496.txt.xz", 901_899, 0),
            ("v6-tier1-nh496.txt.xz", 0, 160_147),
            ("v4-20140513-routeviews-nh496.txt.xz", 512_621, 0),
            ("v6-20141225-linx-p69.txt.xz", 0, 20_440),
            ("v6-20210117-as19653.txt.xz", 0, 105_957),
            ("v6-20210117-as293.txt.xz", 0, 105_363),
        ] {
            let Some((v4, v6, table, failed)) = count(name) else { return };
            assert_eq!((v4, v6, failed), (want_v4, want_v6, None), "{name}");
            assert_eq!(table.rejected().count, 0, "{name}");
        }
    }

    #[test]
    fn mrt_dumps() {
        let Some((v4, v6, table, failed)) = count("mrt/bview.20020722.2337.gz") else { return };
        assert_eq!((table.records(), failed), (115_521, None));
        // Distinct prefixes: the other records are of further peers.
        assert_eq!((v4, v6, table.skipped()), (112_988, 0, 2_533));
        assert_eq!(table.rejected().count, 0);

        // As libbz2 and another MRT reader have it (15,274,550 and 12,132,997 bytes); the list
        // beside the files counts fewer, 8,713 and 6,582.
        for (name, records, family) in [
            ("mrt/rib.20140523.0600_firstMB.bz2", 9_072, 4),
            ("mrt/rib6.20151101.0600_firstMB.bz2", 6_870, 6),
        ] {
            let Some((v4, v6, table, failed)) = count(name) else { return };
            assert_eq!((v4, v6), if family == 4 { (records, 0) } else { (0, records) });
            // The peer index table comes before the routes.
            assert_eq!(table.records(), records + 1);
            assert_eq!((table.skipped(), table.rejected().count), (1, 0));
            let failed = failed.unwrap().to_string();
            let said = format!("cut short in record {}, behind byte ", records + 2);
            assert!(failed.contains(&said), "{failed}");
        }
    }

    #[test]
    fn updates_are_passed_over() {
        let Some((v4, v6, table, failed)) = count("mrt/updates.20160811.1600.gz") else { return };
        assert_eq!((v4, v6, failed), (0, 0, None));
        assert_eq!((table.records(), table.skipped()), (17_406, 17_406));
    }
}
