//! The shipped tables, and every algorithm on them against the oracle.
//!
//! 10,000,000 addresses a family, all of them asked of every row: the ends of the prefixes with the
//! addresses before and after them, uniform and prefix-biased ones. A tenth of a million when only the
//! quick layers are wanted. Seeds are fixed and named in the message of a failure.

#![allow(clippy::unwrap_used, reason = "these are the helpers of tests")]

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use fingerpost_lpm::testing::{Mismatch, Questions};
use fingerpost_lpm::{Addr, Algorithm, NextHopId, Prefix, UpdateError};
use fingerpost_route::AnyPrefix;
use fingerpost_route::source::table::{FileHop, TableReader};

const SEED: u64 = 0x5eed_0002;

fn path(name: &str) -> PathBuf {
    fingerpost_tests::root().join("testdata/tables").join(name)
}

/// The routes of a shipped table in their order, next hops numbered from 1 as they come.
fn read<A: Addr>(name: &str, family: fn(AnyPrefix) -> Prefix<A>) -> Vec<(Prefix<A>, NextHopId)> {
    let mut table = TableReader::open(&path(name)).unwrap();
    let mut hops: BTreeMap<FileHop, u32> = BTreeMap::new();
    let mut routes = Vec::new();
    for entry in &mut table {
        let entry = entry.unwrap();
        let next = u32::try_from(hops.len()).unwrap() + 1;
        let hop = *hops.entry(entry.hop).or_insert(next);
        routes.push((family(entry.prefix), NextHopId(hop)));
    }
    assert_eq!(table.rejected().count, 0, "{name}: {:?}", table.rejected());
    assert_eq!(hops.len(), 496, "{name}: next hops");
    routes
}

fn v4(prefix: AnyPrefix) -> Prefix<u32> {
    let AnyPrefix::V4(prefix) = prefix else { panic!("{prefix} in an IPv4 table") };
    prefix
}

fn v6(prefix: AnyPrefix) -> Prefix<u128> {
    let AnyPrefix::V6(prefix) = prefix else { panic!("{prefix} in an IPv6 table") };
    prefix
}

/// Asks every row, unless the table is beyond its limits; returns how many rows answered.
fn ask_all<A: Addr>(
    routes: &[(Prefix<A>, NextHopId)],
    rows: impl Iterator<Item = &'static Algorithm<A>>,
) -> usize {
    let count = if fingerpost_tests::quick() { 100_000 } else { 10_000_000 };
    let questions = Questions::new(routes, count, SEED);
    let mut answered = 0;
    for row in rows {
        match questions.ask(row) {
            Ok(asked) => {
                assert_eq!(asked, count as u64);
                answered += 1;
            }
            Err(Mismatch::Refused(limit @ UpdateError::Limit { .. })) => {
                println!("{row:?}: {limit}")
            }
            Err(wrong) => panic!("{row:?}, seed {SEED:#x}: {wrong}"),
        }
    }
    answered
}

#[test]
fn every_v4_algorithm_agrees_with_the_oracle() {
    let routes = read("v4-tier1-nh496.txt.xz", v4);
    assert_eq!(routes.len(), 901_899);
    assert!(routes.is_sorted_by(|a, b| a.0 < b.0), "by address, then length; none twice");
    let answered = ask_all(&routes, fingerpost_lpm::v4());
    assert!(answered >= 3, "only {answered} algorithms took the table");
}

#[test]
fn every_v6_algorithm_agrees_with_the_oracle() {
    let routes = read("v6-tier1-nh496.txt.xz", v6);
    assert_eq!(routes.len(), 160_147);
    assert!(routes.is_sorted_by(|a, b| a.0 < b.0), "by address, then length; none twice");
    let answered = ask_all(&routes, fingerpost_lpm::v6());
    assert!(answered >= 2, "only {answered} algorithms took the table");
}

#[test]
fn the_tables_are_small_enough_to_ship() {
    let sizes = fs::read_dir(path("")).unwrap().map(|e| e.unwrap().metadata().unwrap().len());
    let bytes: u64 = sizes.sum();
    assert!(bytes < 4_000_000, "{bytes} bytes in testdata/tables");
}
