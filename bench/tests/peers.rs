//! Every peer that has been built: right answers before and after updates, and turns in all modes.
#![allow(clippy::unwrap_used, reason = "a failure here is a failed test")]

use std::time::Duration;

use fingerpost_bench::Mode;
use fingerpost_bench::peer::{self, Peer, Row};
use fingerpost_bench::table::Table;
use fingerpost_lpm::oracle::Oracle;
use fingerpost_lpm::testing::{Addresses, Shape, Stream, probes, table};
use fingerpost_lpm::{Addr, NextHopId, Prefix};

const TURN: Duration = Duration::from_millis(5);

/// A table like the Internet's, with a default route, and with routes of length 1 in one half of the
/// space: what an engine that takes no default route must still get right.
fn routes<A: Addr>() -> Vec<(Prefix<A>, u32)> {
    let mut routes: Vec<_> = table::<A>(Shape::Internet, 3000, 200, 7)
        .into_iter()
        .map(|(prefix, hop)| (prefix, hop.0))
        .collect();
    routes.push((Prefix::masked(A::MIN, 0), 201));
    routes.push((Prefix::masked(A::MAX, 1), 202));
    routes
}

fn check<A: Addr>(row: &Row) {
    let table = Table::new("generated", routes::<A>());
    let mut oracle = Oracle::new();
    for &(prefix, hop) in &table.routes {
        oracle.set(prefix, NextHopId(hop));
    }
    let prefixes: Vec<_> = table.routes.iter().map(|route| route.0).collect();
    let mut keys: Vec<A> = prefixes.iter().flat_map(|&prefix| probes(prefix)).collect();
    keys.extend(Addresses::new(Stream::Anywhere, &prefixes, 1).take(5000));
    let want: Vec<_> = keys.iter().map(|&key| oracle.lookup(key)).collect();

    let mut peer = Peer::start(row, &table).unwrap();
    assert_eq!(peer.info().routes, table.routes.len() as u64, "{}", row.name);
    assert_eq!(peer.info().refused, 0, "{}", row.name);
    assert!(!peer.info().version.is_empty(), "{}", row.name);
    assert!(peer.turn(Mode::Batch, TURN).is_err(), "{}: no keys yet", row.name);
    peer.set_keys(&keys).unwrap();
    compare(row, &keys, &want, &peer.answers().unwrap());
    for mode in [Mode::Batch, Mode::Single, Mode::Dependent] {
        let turn = peer.turn(mode, TURN).unwrap();
        assert!(turn.wall >= TURN && turn.count > 0, "{}: {turn:?}", row.name);
    }
    let some: Vec<_> = table.routes.iter().copied().step_by(7).collect();
    if let Some(updates) = peer.update(&some, TURN).unwrap() {
        assert!(updates.turn.count > 0 && updates.turn.wall >= TURN, "{}", row.name);
        // What it refuses to take back it answers wrong from then on: that is the peer's matter.
        if updates.failed == 0 {
            compare(row, &keys, &want, &peer.answers().unwrap());
        }
    }
    peer.bytes().unwrap();
    println!("{} IPv{}: {} keys agree, {:?}", row.name, row.family, keys.len(), peer.info());
}

fn compare<A: Addr>(row: &Row, keys: &[A], want: &[NextHopId], got: &[NextHopId]) {
    let wrong: Vec<_> =
        keys.iter().zip(want).zip(got).filter(|((_, want), got)| want != got).collect();
    assert!(
        wrong.is_empty(),
        "{} IPv{}: {} of {} wrong, first {:?}",
        row.name,
        row.family,
        wrong.len(),
        keys.len(),
        wrong.first()
    );
}

/// Runs the peers of one program, or says why not.
fn program(name: &str) {
    if std::env::var_os("FINGERPOST_QUICK").is_some() {
        return println!("skipped: needs time (FINGERPOST_QUICK is set)");
    }
    for row in peer::rows().iter().filter(|row| row.program.name == name) {
        if !row.is_built() {
            println!("skipped: needs cargo xtask peers {name}");
            return;
        }
        if row.family == 4 { check::<u32>(row) } else { check::<u128>(row) }
    }
}

#[test]
fn dpdk_answers_right() {
    program("dpdk");
}

#[test]
fn bart_answers_right() {
    program("bart");
}

#[test]
fn crates_answers_right() {
    program("crates");
}

#[test]
fn python_answers_right() {
    program("python");
}

/// The one known fault, so that a library without it is noticed: rte_fib gives back room that it had
/// not taken when a route longer than /24 goes away whose next hop is that of the route above it.
#[test]
fn rte_fib_refuses_routes_after_withdrawals() {
    if std::env::var_os("FINGERPOST_QUICK").is_some() {
        return println!("skipped: needs time (FINGERPOST_QUICK is set)");
    }
    let rows = peer::find("rte_fib", 4).unwrap();
    let row = rows.first().unwrap();
    if !row.is_built() {
        return println!("skipped: needs cargo xtask peers dpdk");
    }
    let failed = |hop| {
        let routes =
            vec![("10.0.0.0/24".parse().unwrap(), 8), ("10.0.0.12/32".parse().unwrap(), hop)];
        let table = Table::<u32>::new("two", routes);
        let mut peer = Peer::start(row, &table).unwrap();
        peer.update(&table.routes, TURN).unwrap().unwrap().failed
    };
    assert_eq!(failed(9), 0);
    assert!(failed(8) > 0);
}
