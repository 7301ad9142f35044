//! How the commands behave towards pipes, scripts and nonsense, which no recorded output can show.
#![allow(clippy::unwrap_used, reason = "all of this file is a test")]

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
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

    let checks = json(&["table", "check", &table, "--json", "--count", "1000"]);
    let checks = checks["checks"].as_array().unwrap();
    assert!(checks.iter().all(|check| check["answers"] == "ok" && check["addresses"] == 1000));
    for row in rows.as_array().unwrap() {
        let found = checks.iter().filter(|check| check["algorithm"] == row["name"]).count();
        assert_eq!(found, row["families"].as_array().unwrap().len(), "{}", row["name"]);
    }
}

#[test]
fn a_bench_document_is_of_the_promised_shape() {
    let args = ["bench", "forward", "--table", &small(), "--path", "graph", "--json"];
    let few = ["--seconds", "0.02", "--repeat", "3", "--destinations", "50", "--seed", "5"];
    let output = fingerpost(&[&args[..], &few].concat()).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    only_messages(&output);
    let document: Value = serde_json::from_str(text(&output.stdout)).unwrap();
    for field in ["cpu", "simd", "huge_pages", "commit", "rustc"] {
        assert!(document["machine"][field].is_string(), "{field}");
    }
    for field in ["cores", "l2_kib", "l3_kib"] {
        assert!(document["machine"][field].is_u64(), "{field}");
    }
    let families: Vec<_> =
        document["tables"].as_array().unwrap().iter().map(|table| &table["family"]).collect();
    assert_eq!(
        (families, &document["table"]["routes"]),
        (vec![&Value::from(4), &6.into()], &6.into())
    );
    for (name, unit) in [("graph-v4", "ns/packet"), ("graph-v6", "ns/packet")] {
        for stream in ["uniform", "prefix"] {
            let runs = document["runs"].as_array().unwrap();
            let is_it = |run: &&Value| run["name"] == name && run["stream"] == stream;
            let run = runs.iter().find(is_it).unwrap();
            assert_eq!((&run["unit"], &run["kind"]), (&unit.into(), &"ours".into()));
            assert_eq!((&run["answers"], &run["wrong"]), (&"ok".into(), &0.into()));
            assert_eq!((&run["mode"], &run["threads"]), (&"batch".into(), &1.into()));
            assert_eq!(run["samples"].as_array().unwrap().len(), 3);
            let figure = |name: &str| run[name].as_f64().unwrap();
            assert!(figure("min") <= figure("median") && figure("median") <= figure("max"));
            assert!(figure("min") > 0.0);
        }
    }
}

#[test]
fn a_document_of_lookups_is_of_the_promised_shape() {
    let args = ["bench", "lookup", "--table", &small(), "--json", "--algorithm", "dxr18,radix"];
    let few = ["--seconds", "0.01", "--repeat", "3", "--keys", "2000", "--seed", "5"];
    let streams = ["--stream", "prefix,sequential-prefix", "--mode", "batch,single"];
    let output = fingerpost(&[&args[..], &few, &streams].concat()).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    only_messages(&output);
    let document: Value = serde_json::from_str(text(&output.stdout)).unwrap();
    let runs = document["runs"].as_array().unwrap();
    let mut found = Vec::new();
    for run in runs {
        assert_eq!(run["unit"], "Mlookups/s");
        assert_eq!((&run["threads"], &run["wrong"]), (&1.into(), &0.into()));
        let figure = |name: &str| run[name].as_f64().unwrap();
        assert!(figure("min") <= figure("median") && figure("median") <= figure("max"));
        assert_eq!(run["samples"].as_array().unwrap().len(), 3);
        if run["kind"] == "ceiling" {
            assert_eq!(run["answers"], "unchecked");
            continue;
        }
        assert_eq!((&run["answers"], &run["kind"]), (&"ok".into(), &"published".into()));
        assert!(figure("bytes") > 0.0 && figure("bytes_per_prefix") > 0.0);
        assert!(figure("lines") >= 1.0 && figure("share_two_loads") > 0.0);
        let word = |name: &str| run[name].as_str().unwrap().to_owned();
        let family = run["family"].as_u64().unwrap();
        found.push(format!("{} {family} {} {}", word("name"), word("stream"), word("mode")));
    }
    let mut want = Vec::new();
    for name in ["dxr18 4", "radix 4", "radix 6"] {
        for how in ["prefix batch", "prefix single", "sequential-prefix dependent"] {
            want.push(format!("{name} {how}"));
        }
    }
    found.sort_unstable();
    want.sort_unstable();
    assert_eq!(found, want);
    for name in ["empty", "one-load", "two-loads"] {
        assert!(runs.iter().any(|run| run["name"] == name && run["kind"] == "ceiling"), "{name}");
    }
}

#[test]
fn builds_and_updates_have_the_promised_names_and_units() {
    let run = |what: &str, more: &[&str]| {
        let args = ["bench", what, "--table", &small(), "--json", "--algorithm", "radix"];
        let output = fingerpost(&[&args[..], more].concat()).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        only_messages(&output);
        let document: Value = serde_json::from_str(text(&output.stdout)).unwrap();
        let runs = document["runs"].as_array().unwrap().iter();
        let seen = runs.filter(|run| run["family"] == 4).map(|run| {
            let median = run["median"].as_f64().is_some_and(|median| median >= 0.0);
            assert!(median || run["note"] == "needs two cores", "{run}");
            format!("{} {} {}", run["name"], run["unit"], run["algorithm"]).replace('"', "")
        });
        seen.collect::<Vec<_>>()
    };
    assert_eq!(run("build", &["--repeat", "2"]), ["radix ms null"]);
    let folder = std::env::temp_dir().join(format!("fingerpost-drawn-{}", std::process::id()));
    run("build", &["--repeat", "1", "--out", folder.to_str().unwrap()]);
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
    let document: Value = serde_json::from_str(&read("build.json")).unwrap();
    assert_eq!(document["runs"][0]["name"], "radix");
    let svg = read("build-v4-routes-batch-ms.svg");
    assert!(svg.starts_with("<svg ") && svg.contains(">radix<"), "{svg}");
    std::fs::remove_dir_all(&folder).unwrap();
    let file = std::env::temp_dir().join(format!("fingerpost-updates-{}", std::process::id()));
    std::fs::write(&file, "1 a 10.9.0.0/16 192.0.2.1\n2 w 10.9.0.0/16 0.0.0.0\n").unwrap();
    let stream = file.to_str().unwrap();
    let few = ["--seconds", "0.01", "--repeat", "2", "--stream-file", stream];
    let want = [
        "random-pairs updates/s radix",
        "random-pairs us radix",
        "stream updates/s radix",
        "stream us radix",
        "lookups-during-updates share radix",
        "withdraw-all bytes radix",
    ];
    assert_eq!(run("update", &few), want);
    std::fs::remove_file(&file).unwrap();
}

#[test]
fn the_page_of_the_papers_is_written_with_its_drawings() {
    let folder = std::env::temp_dir().join(format!("fingerpost-pages-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("v4.txt"), "10.0.0.0/8 1\n10.1.0.0/16 2\n10.1.2.0/24 3\n").unwrap();
    let (tables, out) = (folder.to_str().unwrap(), folder.join("out"));
    let args = ["bench", "papers", "--tables", tables, "--out", out.to_str().unwrap(), "--json"];
    let few = ["--seconds", "0.001", "--repeat", "1", "--keys", "256"];
    let output = fingerpost(&[&args[..], &few].concat()).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    only_messages(&output);
    let document: Value = serde_json::from_str(text(&output.stdout)).unwrap();
    let runs = document["runs"].as_array().unwrap();
    assert!(runs.iter().all(|run| run["wrong"] == 0 && run["note"].is_string()));
    let units: std::collections::BTreeSet<_> =
        runs.iter().map(|run| run["unit"].as_str().unwrap()).collect();
    for unit in ["Mlookups/s", "ms", "updates/s", "us", "bytes"] {
        assert!(units.contains(unit), "{unit}: {units:?}");
    }
    let page = std::fs::read_to_string(out.join("papers.md")).unwrap();
    assert!(page.starts_with("# Papers\n") && page.contains("skipped: needs a trace"), "{page}");
    for line in page.lines().filter_map(|line| line.strip_prefix("![")) {
        let file = line.split_once("](").unwrap().1.trim_end_matches(')');
        let svg = std::fs::read_to_string(out.join(file)).unwrap();
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"), "{file}");
    }
    std::fs::remove_dir_all(&folder).unwrap();
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
    // Times that no clock counts to, and what is no time.
    for word in ["1e30", "1e308", "inf", "86401", "-1", "nan", "soon"] {
        for (option, command) in [
            ("--seconds", "lookup"),
            ("--seconds", "update"),
            ("--seconds", "forward"),
            ("--seconds", "papers"),
            ("--peer-seconds", "lookup"),
            ("--peer-seconds", "build"),
        ] {
            let option = format!("{option}={word}");
            let mut args = vec!["bench", command, &option];
            let table = small();
            if command != "papers" {
                args.extend(["--table", &table]);
            }
            let output = fingerpost(&args).output().unwrap();
            assert_eq!(output.status.code(), Some(2), "{args:?}");
            only_messages(&output);
        }
    }
}

/// Asks the program for `count` addresses of `table` and compares each line with the oracle.
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
