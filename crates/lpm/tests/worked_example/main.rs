//! The worked example of CONTRIBUTING.md: an algorithm in one file and two lines, and what it gets for
//! that. The document shows parts of the file; they are compared, so that they stay true.

#![allow(clippy::unwrap_used, reason = "a test: what fails here fails the test")]

mod by_length;

use fingerpost_lpm::testing::{Shape, agree, conformance, table};
use fingerpost_lpm::{LpmTable, Module, NextHopId, Prefix};

/// Registry, as in `algo/own/mod.rs`.
static ALGORITHMS: &[Module] = &[by_length::MODULE];

#[test]
fn it_passes_the_suite() {
    for row in ALGORITHMS.iter().flat_map(|module| module.v4) {
        conformance(row);
        let routes = table::<u32>(Shape::Internet, 20_000, 496, 1);
        assert_eq!(agree(row, &routes, 50_000, 1), Ok(50_000));
    }
    assert!(ALGORITHMS.iter().all(|module| module.v6.is_empty()));
}

#[test]
fn it_serves_an_owned_table() {
    let rows = ALGORITHMS.iter().flat_map(|module| module.v4).collect();
    let mut table = LpmTable::build_with(rows, Default::default()).unwrap();
    table.insert(Prefix::masked(10 << 24, 8), NextHopId(7)).unwrap();
    assert_eq!(table.lookup(10 << 24 | 1), NextHopId(7));
    assert_eq!(table.algorithm().name, "by_length");
}

#[test]
fn the_document_shows_this_file() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../CONTRIBUTING.md");
    let document = std::fs::read_to_string(root).unwrap();
    let file = include_str!("by_length.rs");
    // Inside a list, so three blanks further in.
    let plain = |block: &str| {
        block
            .lines()
            .map(|line| line.strip_prefix("   ").unwrap_or(line))
            .collect::<Vec<_>>()
            .join("\n")
    };
    let blocks: Vec<String> = document
        .split("```rust\n")
        .skip(1)
        .map(|rest| plain(rest.split("```").next().unwrap()))
        .collect();
    assert!(blocks.len() >= 3, "{} pieces of code", blocks.len());
    for block in blocks {
        for part in block.split("\n...\n") {
            let part = part.trim_end();
            assert!(!part.is_empty() && file.contains(part), "not in by_length.rs:\n{part}");
        }
    }
}
