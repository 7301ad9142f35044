//! Graphs as text: broken files with their errors, examples that are right, and texts of chance.
//!
//! `FINGERPOST_ACCEPT=1` records the errors of the broken files now.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::{Path, PathBuf};

use fingerpost_packet::ELEMENTS;
use fingerpost_packet::language::testing::{check, same_again};
use fingerpost_packet::language::{Configuration, Errors, Language};
use proptest::prelude::*;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(name: &str, text: &str) -> Result<Configuration, Errors> {
    Language::new(ELEMENTS).read(name, text)
}

/// The configurations of a folder, by name.
fn files(folder: &str) -> Vec<(String, PathBuf)> {
    let entries = fs::read_dir(root().join(folder)).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let mut found: Vec<_> = paths
        .filter(|path| path.extension().is_some_and(|extension| extension == "click"))
        .map(|path| (path.file_name().unwrap().to_string_lossy().into_owned(), path))
        .collect();
    found.sort();
    found
}

#[test]
fn broken_files_are_told_apart() {
    let files = files("testdata/graphs/broken");
    assert!(files.len() >= 50, "{} files", files.len());
    let mut wrong = String::new();
    for (name, path) in files {
        let text = fs::read_to_string(&path).unwrap();
        let said = match read(&name, &text) {
            Ok(_) => panic!("{name} is right"),
            Err(errors) => format!("{errors}\n"),
        };
        let beside = path.with_extension("txt");
        if std::env::var_os("FINGERPOST_ACCEPT").is_some() {
            fs::write(&beside, &said).unwrap();
        }
        let expected = fs::read_to_string(&beside).unwrap_or_default();
        if said != expected {
            wrong += &format!("--- {name}, expected:\n{expected}+++ and said:\n{said}");
        }
    }
    let how = "to accept: FINGERPOST_ACCEPT=1 cargo test -p fingerpost-packet --test graphs";
    assert!(wrong.is_empty(), "\n{wrong}{how}");
}

#[test]
fn examples_are_right() {
    let mut seen = Vec::new();
    for (name, path) in files("examples/graphs") {
        let text = fs::read_to_string(&path).unwrap();
        let first = read(&name, &text).unwrap_or_else(|errors| panic!("\n{errors}"));
        same_again(&first, ELEMENTS);
        seen.push(name);
    }
    assert!(seen.contains(&"ip-router-2.click".to_owned()), "{seen:?}");
}

#[test]
fn the_router_of_two_ports_is_wired_as_it_says() {
    let text = fs::read_to_string(root().join("examples/graphs/ip-router-2.click")).unwrap();
    let graph = read("ip-router-2.click", &text).unwrap();
    let element = |name: &str| graph.find(name).unwrap_or_else(|| panic!("no {name}"));
    let leads = |from: &str, output: u32| {
        let from = element(from);
        let wires = graph.connections().iter();
        let wires = wires.filter(|wire| (wire.from as usize, wire.output) == (from, output));
        let ends = wires.map(|wire| {
            let to = &graph.elements()[wire.to as usize];
            format!("{} {}", to.name, wire.input)
        });
        ends.collect::<Vec<_>>().join(", ")
    };
    assert_eq!(leads("rt", 0), "host 0");
    assert_eq!(leads("rt", 1), "out0/DropBroadcasts@1 0");
    assert_eq!(leads("rt", 2), "out1/DropBroadcasts@1 0");
    assert_eq!(leads("in0/Paint@4", 0), "ip 0");
    assert_eq!(leads("in1/ARPResponder@3", 0), "out1/queue 0");
    assert_eq!(leads("in1/sort", 1), "replies 0");
    assert_eq!(leads("replies", 1), "out1/ask 1");
    assert_eq!(leads("out0/ttl", 1), "out0/ICMPError@12 0");
    assert_eq!(leads("out0/ICMPError@12", 0), "rt 0");
    let config = |name: &str| graph.elements()[element(name)].config.as_str().to_owned();
    assert_eq!(config("out0/fragment"), "1500");
    assert_eq!(config("out1/ask"), "203.0.113.1, 02:00:00:00:00:02");
    assert!(config("rt").contains("0.0.0.0/0 203.0.113.254 2"));
}

/// Pieces that files are made of, and some that they are not.
const PIECES: &[&str] = &[
    "Idle",
    "Discard",
    "Counter",
    "Queue",
    "Tee",
    "DecIPTTL",
    "EtherSwitch",
    "a",
    "b",
    "c/d",
    "C",
    "input",
    "output",
    "->",
    "=>",
    "::",
    ";",
    ",",
    "[",
    "]",
    "{",
    "}",
    "|",
    "||",
    "...",
    "(",
    ")",
    "$x",
    "${x}",
    "${x-1}",
    "$",
    "elementclass",
    "define",
    "require",
    "define($x 5)",
    "define($y $x)",
    "(1, $x)",
    "[0]",
    "[0-2]",
    "[1,]",
    "[expired]",
    "\"",
    "'",
    "\\<48>",
    "//",
    "/*",
    "*/",
    "\n",
    "#",
    "# 3 \"f\"\n",
    " ",
    "0",
    "7",
    "1/x",
    "\u{e9}",
    "\u{1f600}",
    "\\",
    "-",
    "require(library b)",
    "KEY $k |",
    "$x |",
    "KEY 5",
    "@2",
];

fn soup() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(PIECES);
    let blank = prop::sample::select(&["", " ", "\n"][..]);
    let pieces = prop::collection::vec((piece, blank), 0..60);
    pieces.prop_map(|list| list.iter().map(|(piece, blank)| format!("{piece}{blank}")).collect())
}

/// A file that is right, or nearly so, with something taken out, put in or repeated.
fn mutated() -> impl Strategy<Value = String> {
    let texts = |folder| -> Vec<String> {
        files(folder).iter().map(|(_, path)| fs::read_to_string(path).unwrap()).collect()
    };
    let select = prop::sample::select::<String>;
    // The few that are right as often as the many that are broken.
    let text =
        prop_oneof![select(texts("testdata/graphs/broken")), select(texts("examples/graphs"))];
    let change = (0..3_u8, any::<prop::sample::Index>(), 0..12_usize, prop::sample::select(PIECES));
    (text, prop::collection::vec(change, 1..6)).prop_map(|(text, changes)| {
        let mut letters: Vec<char> = text.chars().collect();
        for (how, at, len, piece) in changes {
            let at = at.index(letters.len() + 1);
            let end = (at + len).min(letters.len());
            let new: Vec<char> = match how {
                0 => Vec::new(),
                1 => piece.chars().collect(),
                _ => letters[at..end].repeat(3),
            };
            letters.splice(at..end, new);
        }
        letters.into_iter().collect()
    })
}

/// Chains of elements that fit, in compounds and with variables: mostly right.
fn sensible() -> impl Strategy<Value = String> {
    let step = prop::sample::select(
        &["Counter", "Print('$x', \"$x\", $x)", "P", "{ input -> output }", "P2(7)"][..],
    );
    let chain = prop::collection::vec(step, 0..6);
    prop::collection::vec(chain, 1..8).prop_map(|chains| {
        let mut text = "define($x a\"b\"); elementclass P { input -> c :: Counter(/* $x */ $x) -> output }\n\
                        elementclass P2 { $n | input -> t :: Tee; t => output, Discard; Idle($n) }\n"
            .to_owned();
        for chain in chains {
            text += "Idle -> ";
            chain.iter().for_each(|step| text += &format!("{step} -> "));
            text += "Discard;\n";
        }
        text
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_tokens_are_read(text in soup()) {
        check(&text);
    }

    #[test]
    fn any_characters_are_read(text in "\\PC{0,80}") {
        check(&text);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn files_with_changes_are_read(text in mutated()) {
        check(&text);
    }

    #[test]
    fn what_is_right_reads_as_the_same_again(text in sensible()) {
        let graph = read("a.click", &text);
        prop_assert!(graph.is_ok(), "{text}\n{}", graph.unwrap_err());
        same_again(&graph.unwrap(), ELEMENTS);
    }
}
