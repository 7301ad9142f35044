//! Documents that the benchmarks print: names, units and shape, which scripts rely on.
#![allow(clippy::unwrap_used, reason = "all of this file is a test")]

use std::process::{Command, Output, Stdio};

use serde_json::Value;

fn lab(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fingerpost-lab"));
    command.args(args).stdin(Stdio::null());
    command
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

fn small() -> String {
    concat!(env!("CARGO_MANIFEST_DIR"), "/../crates/fingerpost/tests/golden/tables/small.txt")
        .to_owned()
}

/// Each line of standard error is a message, and there is no panic among them.
fn only_messages(output: &Output) {
    for line in text(&output.stderr).lines() {
        assert!(line.starts_with("fingerpost-lab: "), "{line}");
    }
}

#[test]
fn every_algorithm_agrees_with_the_oracle() {
    let args = ["table", "check", &small(), "--json", "--count", "1000"];
    let output = lab(&args).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let checks: Value = serde_json::from_str(text(&output.stdout)).unwrap();
    let checks = checks["checks"].as_array().unwrap();
    assert!(checks.iter().all(|check| check["answers"] == "ok" && check["addresses"] == 1000));
    let v4 = fingerpost_lpm::v4().map(|row| (row.name, 4));
    let rows: Vec<_> = v4.chain(fingerpost_lpm::v6().map(|row| (row.name, 6))).collect();
    for (name, family) in &rows {
        let is_it = |check: &&Value| check["algorithm"] == *name && check["family"] == *family;
        assert_eq!(checks.iter().filter(is_it).count(), 1, "{name} IPv{family}");
    }
    assert_eq!(checks.len(), rows.len());
}

#[test]
fn a_bench_document_is_of_the_promised_shape() {
    let args = ["bench", "forward", "--table", &small(), "--path", "graph", "--json"];
    let few = ["--seconds", "0.02", "--repeat", "3", "--destinations", "50", "--seed", "5"];
    let output = lab(&[&args[..], &few].concat()).output().unwrap();
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
    let output = lab(&[&args[..], &few, &streams].concat()).output().unwrap();
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
        let output = lab(&[&args[..], more].concat()).output().unwrap();
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
    let output = lab(&[&args[..], &few].concat()).output().unwrap();
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
fn times_that_no_clock_counts_to_are_refused() {
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
            let output = lab(&args).output().unwrap();
            assert_eq!(output.status.code(), Some(2), "{args:?}");
            only_messages(&output);
        }
    }
}
