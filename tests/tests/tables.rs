//! The shipped tables: what is in them, and the documents' numbers of algorithms on them.
//!
//! That every algorithm answers rightly on them is shown in `proof.rs`.

#![allow(clippy::unwrap_used, reason = "these are the helpers of tests")]

use std::collections::BTreeSet;
use std::fs;

use fingerpost_lpm::registry::Rows;
use fingerpost_lpm::{Addr, Change, Heap, NextHopId, NoReaders, RouteStore, UpdateError};
use fingerpost_tests::tables::{self, Route};

/// The routes of a shipped table.
fn read<A: Addr>(name: &str) -> Vec<Route<A>> {
    let routes = tables::read(&tables::shipped().join(name));
    let hops: BTreeSet<_> = routes.iter().map(|(_, hop)| hop).collect();
    assert_eq!(hops.len(), 496, "{name}: next hops");
    routes
}

#[test]
fn the_v4_table_is_whole_and_in_order() {
    let routes = read::<u32>("v4-tier1-nh496.txt.xz");
    assert_eq!(routes.len(), 901_899);
    assert!(routes.is_sorted_by(|a, b| a.0 < b.0), "by address, then length; none twice");
}

#[test]
fn the_v6_table_is_whole_and_in_order() {
    let routes = read::<u128>("v6-tier1-nh496.txt.xz");
    assert_eq!(routes.len(), 160_147);
    assert!(routes.is_sorted_by(|a, b| a.0 < b.0), "by address, then length; none twice");
}

#[test]
fn the_tables_are_small_enough_to_ship() {
    let sizes =
        fs::read_dir(tables::shipped()).unwrap().map(|e| e.unwrap().metadata().unwrap().len());
    let bytes: u64 = sizes.sum();
    assert!(bytes < 4_000_000, "{bytes} bytes in testdata/tables");
}

/// Numbers of an algorithm in the tour of the library: bytes a prefix on a shipped table, and whether
/// it is changed in place.
fn documented(family: u8) -> Vec<(String, f64, bool)> {
    let tour = fs::read_to_string(fingerpost_tests::root().join("crates/lpm/src/lib.rs")).unwrap();
    let lines = tour.lines().filter_map(|line| line.strip_prefix("//! | `"));
    let rows = lines.filter_map(|line| {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let bytes = cells[if family == 4 { 2 } else { 3 }].parse().ok()?;
        Some((cells[0].trim_end_matches('`').to_owned(), bytes, cells[4] == "in place"))
    });
    rows.collect()
}

fn check_tour<A: Rows>(routes: &[Route<A>]) {
    let mut store: RouteStore<A> = routes.iter().copied().collect();
    let documented = documented(A::FAMILY);
    assert!(documented.len() >= 2, "{} rows in the tour's table", documented.len());
    let mut wrong = Vec::new();
    for (name, want, in_place) in documented {
        let row = A::row(&name).unwrap();
        let mut table = row.build(&store, &mut Heap).unwrap();
        let bytes = table.publish().bytes() as f64 / routes.len() as f64;
        // Half a unit of the last digit shown, and a tenth: a table is asked for a rough number.
        if (bytes - want).abs() > 0.05 + want * 0.1 {
            wrong.push(format!("{name}, IPv{}: {bytes:.2} bytes a prefix, not {want}", A::FAMILY));
        }
        let (prefix, old) = routes[routes.len() / 3];
        let new = NextHopId(old.0 % 400 + 1);
        store.insert(prefix, new);
        let done = table.apply(&[Change { prefix, old, new }], &store, &mut NoReaders);
        store.insert(prefix, old);
        if done != if in_place { Ok(()) } else { Err(UpdateError::Rebuild) } {
            wrong.push(format!("{name}, IPv{}: changed: {done:?}", A::FAMILY));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn the_tour_is_right_about_memory_and_changes() {
    check_tour::<u32>(&read("v4-tier1-nh496.txt.xz"));
    check_tour::<u128>(&read("v6-tier1-nh496.txt.xz"));
}
