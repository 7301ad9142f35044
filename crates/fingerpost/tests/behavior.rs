//! How the commands behave towards pipes, scripts and nonsense, which no recorded output can show.
#![allow(clippy::unwrap_used, reason = "all of this file is a test")]

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use fingerpost_lpm::oracle::Oracle;
use fingerpost_lpm::testing::{Addresses, Rng, Stream};
use fingerpost_lpm::{Addr, NextHopId, Prefix};
use fingerpost_route::AnyPrefix;
use fingerpost_route::source::table::TableReader;
use serde_json::Value;

fn fingerpost(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fingerpost"));
    command.args(args).stdin(Stdio::null());
    command
}

/// Runs with `input` on standard input.
fn fed(args: &[&str], input: impl Into<Vec<u8>>) -> Output {
    let mut command = fingerpost(args);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.into();
    let writer = std::thread::spawn(move || drop(stdin.write_all(&input)));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    output
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// A file of this test run.
fn file(name: &str, bytes: impl AsRef<[u8]>) -> String {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, bytes).unwrap();
    path.to_str().unwrap().to_owned()
}

fn small() -> String {
    concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/tables/small.txt").to_owned()
}

fn shipped(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/tables").join(name)
}

/// A real table that is not part of the repository.
fn real(name: &str) -> Option<String> {
    let folder = std::env::var_os("FINGERPOST_DATA").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data"),
        PathBuf::from,
    );
    if folder.is_dir() {
        return Some(folder.join(name).to_str().unwrap().to_owned());
    }
    println!("skipped: needs real tables (FINGERPOST_DATA)");
    None
}

/// Each line of standard error is a message, and there is no panic among them.
fn only_messages(output: &Output) {
    for line in text(&output.stderr).lines() {
        assert!(line.starts_with("fingerpost: "), "{line}");
    }
}

#[test]
fn a_reader_that_stops_reading_is_no_failure() {
    let table = small();
    let mut command = fingerpost(&["lookup", "--table", &table, "-"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    stdin.write_all(b"10.1.2.3\n").unwrap();
    let mut line = String::new();
    stdout.read_line(&mut line).unwrap();
    assert_eq!(line, "10.1.2.3\t10.1.2.0/24\t192.0.2.1\n");
    drop(stdout);
    // It may still read for a while; what it answers goes nowhere.
    while stdin.write_all(&b"10.1.2.3\n".repeat(10_000)).is_ok() {}
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), ""));
}

#[test]
fn an_output_that_cannot_be_written_is_a_failure() {
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = fingerpost(&["algorithms"]).stdout(full).output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1));
    assert!(said.starts_with("fingerpost: standard output: ") && said.lines().count() == 1);
}

#[test]
fn a_question_is_answered_before_the_next_one_is_asked() {
    let table = small();
    let mut command = fingerpost(&["lookup", "--table", &table, "--json", "-"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap()).lines();
    for (addr, prefix) in [("10.1.2.3", "10.1.2.0/24"), ("2001:db8::1", "2001:db8::/32")] {
        writeln!(stdin, "{addr}").unwrap();
        let answer: Value = serde_json::from_str(&stdout.next().unwrap().unwrap()).unwrap();
        assert_eq!((&answer["addr"], &answer["prefix"]), (&addr.into(), &prefix.into()));
    }
    drop(stdin);
    assert!(stdout.next().is_none() && child.wait().unwrap().success());
}

#[test]
fn an_interrupt_has_its_exit_code() {
    // Who starts a program with the signal ignored means it, and the program inherits that.
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
    if u64::from_str_radix(ignored.trim(), 16).unwrap() & 0b10 != 0 {
        return println!("skipped: needs interrupts, which are ignored here");
    }
    let mut command = fingerpost(&["lookup", "--table", &small(), "-"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap()).lines();
    // Once it answers, it is past its start.
    writeln!(stdin, "10.1.2.3").unwrap();
    assert!(stdout.next().unwrap().unwrap().starts_with("10.1.2.3\t"));
    let kill = format!("kill -INT {}", child.id());
    assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
    assert_eq!(child.wait().unwrap().code(), Some(130));
}

#[test]
fn a_table_beyond_the_limits_is_said_so() {
    // One next hop more than 16 bits name.
    let mut lines = String::new();
    for n in 1..=65_536u32 {
        let prefix = Prefix::<u32>::masked(0x0a00_0000 + (n << 8), 24);
        writeln!(lines, "{prefix} {n}").unwrap();
    }
    let table = file("hops.txt", lines);
    let args = ["--table", &table, "10.0.1.1"];
    let refused =
        fingerpost(&[&["lookup", "--algorithm", "dxr16"], &args[..]].concat()).output().unwrap();
    let said = text(&refused.stderr);
    assert_eq!((refused.status.code(), text(&refused.stdout)), (Some(1), ""));
    assert!(said.contains("limit exceeded") && said.lines().count() == 1, "{said}");

    let answered = fingerpost(&[&["lookup"], &args[..]].concat()).output().unwrap();
    assert_eq!(text(&answered.stdout), "10.0.1.1\t10.0.1.0/24\t1\n");
    assert_eq!((answered.status.code(), text(&answered.stderr)), (Some(0), ""));

    // In a check of all it is no failure, unless it was named.
    let check = |algorithm: &str| {
        let args = ["table", "check", &table, "--count", "20000", "--json", "--algorithm"];
        let output = fingerpost(&args).arg(algorithm).output().unwrap();
        let value: Value = serde_json::from_str(text(&output.stdout)).unwrap();
        let is_dxr16 = |check: &&Value| check["algorithm"] == "dxr16";
        let found = value["checks"].as_array().unwrap().iter().find(is_dxr16).unwrap().clone();
        (output.status.code().unwrap(), found)
    };
    for (algorithm, code) in [("all", 0), ("bsearch,dxr16", 1)] {
        let (exit, found) = check(algorithm);
        assert_eq!((exit, &found["answers"]), (code, &"unbuilt".into()), "{algorithm}");
        assert!(found["note"].as_str().unwrap().contains("limit exceeded"));
    }
}

/// A TABLE_DUMP record (RFC 6396, section 4.2) of one route.
fn record(addr: [u8; 4], len: u8, hop: [u8; 4]) -> Vec<u8> {
    let attributes = [&[0x40, 3, 4][..], &hop].concat();
    let mut body = vec![0, 0, 0, 0];
    body.extend(addr);
    body.extend([len, 1, 0, 0, 0, 0, 192, 0, 2, 99, 0xfd, 0xe8]);
    body.extend([0, u8::try_from(attributes.len()).unwrap()]);
    body.extend(attributes);
    let len = u8::try_from(body.len()).unwrap();
    [&[0, 0, 0, 0, 0, 12, 0, 1, 0, 0, 0, len][..], &body].concat()
}

#[test]
fn a_table_that_is_cut_short_is_used_and_fails() {
    let whole = [
        record([10, 0, 0, 0], 8, [192, 0, 2, 1]),
        record([10, 1, 0, 0], 16, [192, 0, 2, 2]),
        record([10, 1, 2, 0], 24, [192, 0, 2, 3]),
    ]
    .concat();
    let path = file("whole.mrt", &whole);
    let output = fingerpost(&["lookup", "--table", &path, "10.1.2.3"]).output().unwrap();
    assert_eq!(text(&output.stdout), "10.1.2.3\t10.1.2.0/24\t192.0.2.3\n");
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), ""));

    let cut = file("cut.mrt", &whole[..whole.len() - 3]);
    let output = fingerpost(&["lookup", "--json", "--table", &cut, "10.1.2.3"]).output().unwrap();
    let answer: Value = serde_json::from_str(text(&output.stdout)).unwrap();
    assert_eq!(
        (&answer["prefix"], &answer["nexthop"]),
        (&"10.1.0.0/16".into(), &"192.0.2.2".into())
    );
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1));
    assert!(said.contains("cut short in record 3") && said.lines().count() == 1, "{said}");

    let output = fingerpost(&["table", "info", "--json", &cut]).output().unwrap();
    let info: Value = serde_json::from_str(text(&output.stdout)).unwrap();
    assert_eq!((output.status.code(), &info["routes_v4"]), (Some(1), &2.into()));
}

#[test]
fn json_is_of_the_promised_shape() {
    let json = |args: &[&str]| -> Value {
        let output = fingerpost(args).output().unwrap();
        assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
        serde_json::from_str(text(&output.stdout)).unwrap()
    };
    let rows = json(&["algorithms", "--json"]);
    assert!(rows.as_array().unwrap().len() > 3);
    for row in rows.as_array().unwrap() {
        for field in ["name", "summary", "source"] {
            assert!(!row[field].as_str().unwrap().is_empty(), "{field}");
        }
        assert!(["published", "own"].contains(&row["origin"].as_str().unwrap()));
        let families: Vec<_> =
            row["families"].as_array().unwrap().iter().map(|f| f.as_u64().unwrap()).collect();
        assert!([&[4][..], &[6], &[4, 6]].contains(&&families[..]));
        for family in families {
            let limits = &row["limits"][format!("v{family}")];
            assert!(limits["next_hop"].as_u64() > Some(0));
            assert!(limits["prefix_len"].as_u64() <= Some(128));
        }
    }

    let table = small();
    let info = json(&["table", "info", &table, "--json", "--chunks", "8"]);
    assert_eq!(
        (&info["routes_v4"], &info["routes_v6"], &info["nexthops"]),
        (&6.into(), &3.into(), &7.into())
    );
    assert_eq!((&info["lengths_v4"]["24"], &info["lengths_v6"]["48"]), (&1.into(), &1.into()));
    assert_eq!((&info["default_v4"], &info["default_v6"]), (&true.into(), &false.into()));
    assert!(info["chunks"][0]["shares"]["1"].as_f64() > Some(0.9));
    assert_eq!(json(&["table", "info", &table, "--json"])["chunks"], Value::Null);
}

/// A file name that is no UTF-8, where the command takes it and where it is a mistake of usage.
#[test]
fn a_file_name_may_be_any_bytes() {
    let name = OsStr::from_bytes(b"/tmp/fingerpost-\xff-none");
    for (words, code) in [(&["table", "info"][..], 1), (&["table"], 2)] {
        let output = fingerpost(words).arg(name).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{words:?}: {text}");
        assert_eq!(text.lines().count(), 1, "{words:?}: {text}");
    }
}

#[test]
fn nonsense_is_told_and_never_a_panic() {
    let mut rng = Rng::new(42);
    let pieces: [&[u8]; 12] = [
        b"10.0.0.0/8 192.0.2.1\n",
        b"2001:db8::/32 7\n",
        b"10.0.0.0/8",
        b"\0\0\0\0\0\x0d\0\x02\0\0\0\x20",
        b"\0\0\0\0\0\x0c\0\x01\0\0\0\x20",
        b"\x1f\x8b\x08\0",
        b"BZh9",
        b"\xfd7zXZ\0",
        b"\x28\xb5\x2f\xfd",
        b"\n\n#",
        b"\xff\xfe\x80",
        b" / . : - \t",
    ];
    for round in 0..60 {
        let mut bytes = Vec::new();
        for _ in 0..rng.below(12) {
            if rng.chance(60) {
                bytes.extend(pieces[rng.below(pieces.len())]);
            } else {
                bytes.extend((0..rng.below(40)).map(|_| rng.word().to_le_bytes()[0]));
            }
        }
        let table = file("nonsense", &bytes);
        for args in [
            &["lookup", "--table", &table, "10.1.2.3", "2001:db8::1"][..],
            &["table", "info", &table],
        ] {
            let output = fingerpost(args).output().unwrap();
            let code = output.status.code();
            assert!([Some(0), Some(1)].contains(&code), "round {round}: {code:?} {bytes:?}");
            only_messages(&output);
            assert!(code == Some(0) || !output.stderr.is_empty(), "round {round}: {bytes:?}");
        }
        let output = fed(&["lookup", "--table", &small(), "-"], bytes.clone());
        assert!([Some(0), Some(1)].contains(&output.status.code()), "round {round}: {bytes:?}");
        only_messages(&output);
    }
}

/// Looks up `count` addresses of `table` by the program and compares each line with the oracle.
fn agrees<A: Addr>(
    table: &Path,
    count: usize,
    algorithms: &[&str],
    half: fn(AnyPrefix) -> Option<Prefix<A>>,
) {
    let mut oracle = Oracle::<A>::new();
    let (mut prefixes, mut hops) = (Vec::new(), vec![String::new()]);
    for entry in TableReader::open(table).unwrap() {
        let entry = entry.unwrap();
        let prefix = half(entry.prefix).unwrap();
        prefixes.push(prefix);
        hops.push(entry.hop.to_string());
        oracle.set(prefix, NextHopId(u32::try_from(hops.len() - 1).unwrap()));
    }
    let mut asked = String::new();
    for (seed, stream) in
        [Stream::Uniform, Stream::Announced, Stream::Edges].into_iter().enumerate()
    {
        let mut addrs = Addresses::new(stream, &prefixes, seed as u64);
        (0..count / 3).for_each(|_| writeln!(asked, "{}", addrs.draw().to_ip()).unwrap());
    }
    for algorithm in algorithms {
        let args = ["lookup", "--table", table.to_str().unwrap(), "--algorithm", algorithm, "-"];
        let output = fed(&args, asked.clone());
        assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), ""));
        let mut answers = text(&output.stdout).lines();
        for addr in asked.lines() {
            let best = oracle.best(A::from_ip(addr.parse().unwrap()).unwrap());
            let want = match best {
                Some((prefix, hop)) => format!("{addr}\t{prefix}\t{}", hops[hop.index()]),
                None => format!("{addr}\t-\t-"),
            };
            assert_eq!(answers.next(), Some(want.as_str()), "{algorithm}");
        }
        assert_eq!(answers.next(), None);
    }
}

#[test]
fn the_shipped_tables_are_answered_as_the_oracle_does() {
    let v6 = |prefix| if let AnyPrefix::V6(prefix) = prefix { Some(prefix) } else { None };
    agrees::<u128>(&shipped("v6-tier1-nh496.txt.xz"), 60_000, &["auto", "bsearch"], v6);
    // A part of the other: a debug build takes its time.
    let mut part = String::new();
    for entry in TableReader::open(&shipped("v4-tier1-nh496.txt.xz")).unwrap().take(100_000) {
        let entry = entry.unwrap();
        writeln!(part, "{} {}", entry.prefix, entry.hop).unwrap();
    }
    let part = file("part.txt", part);
    let v4 = |prefix| if let AnyPrefix::V4(prefix) = prefix { Some(prefix) } else { None };
    agrees::<u32>(part.as_ref(), 60_000, &["auto", "bsearch", "dxr16", "dxr24"], v4);
}

#[test]
fn a_real_dump_that_is_cut_short_is_used() {
    let Some(path) = real("mrt/rib6.20151101.0600_firstMB.bz2") else { return };
    let output = fingerpost(&["table", "info", "--json", &path]).output().unwrap();
    let info: Value = serde_json::from_str(text(&output.stdout)).unwrap();
    assert_eq!((output.status.code(), &info["routes_v6"]), (Some(1), &6870.into()));
    assert!(text(&output.stderr).contains("cut short in record"), "{}", text(&output.stderr));
}

#[test]
fn a_closed_standard_error_does_no_harm() {
    let table = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/tables/bad.txt");
    let line = format!("{} lookup --table {table} 10.1.2.3 2>&-", env!("CARGO_BIN_EXE_fingerpost"));
    let mut child = Command::new("sh").arg("-c").arg(line).stdout(Stdio::piped()).spawn().unwrap();
    let mut answer = String::new();
    child.stdout.take().unwrap().read_to_string(&mut answer).unwrap();
    assert_eq!(answer, "10.1.2.3\t10.0.0.0/8\t192.0.2.9\n");
    assert!(child.wait().unwrap().success());
}
