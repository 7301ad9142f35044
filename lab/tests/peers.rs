//! Every peer that has been built: right answers before and after updates, and turns in all modes.
#![allow(clippy::unwrap_used, reason = "a failure here is a failed test")]

use std::time::Duration;

use fingerpost_command::progress::Progress;
use fingerpost_lab::peer::{self, LOAD_LIMIT, Peer, Row};
use fingerpost_lab::table::{Table, Tables};
use fingerpost_lab::update::changes::Recorded;
use fingerpost_lab::{Answers, Mode, Unit, UpdateOptions, update};
use fingerpost_lpm::oracle::Oracle;
use fingerpost_lpm::testing::{Addresses, Shape, Stream, probes, table};
use fingerpost_lpm::{Addr, NextHopId, Prefix};

const TURN: Duration = Duration::from_millis(5);

/// A table like the Internet's, with a default route, and with routes of length 1 in one half of the
/// space: what an algorithm that takes no default route must still get right.
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

    let mut peer = Peer::start(row, &table, LOAD_LIMIT).unwrap();
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
    // Withdrawals of routes that are there and of some that are not, new routes, and all of it back.
    let mut changes: Vec<_> = Vec::new();
    for &(prefix, hop) in table.routes.iter().step_by(7) {
        changes.extend([(prefix, NextHopId::NONE), (prefix, NextHopId::NONE)]);
        changes.push((prefix, NextHopId(hop)));
    }
    let gone: Vec<_> = table.routes.iter().skip(3).step_by(50).map(|route| route.0).collect();
    changes.extend(gone.iter().map(|&prefix| (prefix, NextHopId::NONE)));
    let new = Prefix::masked(prefixes[100].first(), A::BITS);
    changes.push((new, NextHopId(203)));
    if peer.set_changes(&changes).unwrap().is_none() {
        let updates = peer.update(TURN).unwrap();
        assert!(updates.turn.count > 0 && updates.turn.wall >= TURN / 2, "{}", row.name);
        assert!(!updates.each_ns.is_empty(), "{}", row.name);
        let refused = updates.failed + peer.finish_changes().unwrap();
        for &(prefix, hop) in &changes {
            oracle.set(prefix, hop);
        }
        let want: Vec<_> = keys.iter().map(|&key| oracle.lookup(key)).collect();
        // What it refuses to take back it answers wrong from then on: that is the peer's matter.
        if refused == 0 {
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

/// Why `cargo xtask test` has not built a program.
fn why(name: &str) -> &'static str {
    match name {
        "dpdk" => "cargo xtask test builds it as root on Debian",
        "crates" => "not built by cargo xtask test: minutes of compiling",
        "bart" => "not built by cargo xtask test: modules from Go's proxy",
        _ => "not built by cargo xtask test: packages from PyPI",
    }
}

/// Runs the peers of one program, or prints why not.
fn program(name: &str) {
    if std::env::var_os("FINGERPOST_QUICK").is_some() {
        return println!("skipped: needs time (FINGERPOST_QUICK is set)");
    }
    for row in peer::rows().iter().filter(|row| row.program.name == name) {
        if !row.is_built() {
            return println!("skipped: needs cargo xtask peers {name} ({})", why(name));
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

/// A peer that refuses updates has its figures all the same, with the count beside them.
#[test]
fn what_a_peer_refuses_is_said_beside_its_figures() {
    if std::env::var_os("FINGERPOST_QUICK").is_some() {
        return println!("skipped: needs time (FINGERPOST_QUICK is set)");
    }
    let peers = peer::find("rte_fib,bart,iptrie", 4).unwrap();
    if !peers.iter().all(|row| row.is_built()) {
        return println!("skipped: needs cargo xtask peers ({})", why("bart"));
    }
    // Its fault, and a table besides, so that there is something right to compare.
    let mut routes: Vec<_> =
        (0..200u32).map(|n| (Prefix::masked(n << 20, 12), n % 50 + 1)).collect();
    routes.push(("10.0.0.0/24".parse().unwrap(), 8));
    routes.push(("10.0.0.12/32".parse().unwrap(), 8));
    let file = std::env::temp_dir().join(format!("fingerpost-updates-{}", std::process::id()));
    let lines = "1 w 10.0.0.12/32 0.0.0.0\n2 a 10.0.0.12/32 192.0.2.1\n3 w 10.9.9.0/24 0.0.0.0\n";
    std::fs::write(&file, lines).unwrap();
    let options = UpdateOptions {
        tables: Tables { v4: Some(Table::new("generated", routes)), v6: None },
        algorithms: vec!["radix".into()],
        peers,
        load_limit: LOAD_LIMIT,
        recorded: Some(Recorded::load(&file).unwrap()),
        seconds: 0.05,
        samples: 3,
        seed: 1,
    };
    std::fs::remove_file(&file).unwrap();
    let runs = update(&options, &mut Progress::silent()).unwrap().runs;
    let find = |name: &str, who: &str, unit| {
        let mut found = runs.iter().filter(|run| {
            run.name == name && run.algorithm.as_deref() == Some(who) && run.unit == unit
        });
        found.next().unwrap_or_else(|| panic!("{name} {who} {unit:?}"))
    };
    for name in ["random-pairs", "stream"] {
        for who in ["rte_fib", "bart"] {
            let (rate, single) =
                (find(name, who, Unit::UpdatesPerSecond), find(name, who, Unit::Us));
            assert!(rate.median > Some(1.0) && rate.samples.len() == 3, "{rate:?}");
            assert!(single.median > Some(0.0) && single.max >= single.p99, "{single:?}");
            assert_ne!(rate.answers, Answers::Unchecked);
            assert_eq!(rate.note.contains("refused"), rate.refused > Some(0), "{}", rate.note);
        }
        let bart = find(name, "bart", Unit::UpdatesPerSecond);
        assert_eq!((bart.refused, bart.answers), (Some(0), Answers::Ok), "{bart:?}");
        let iptrie = find(name, "iptrie", Unit::UpdatesPerSecond);
        assert!(iptrie.median.is_none() && iptrie.note.contains("no updates"), "{iptrie:?}");
    }
    let refused = find("random-pairs", "rte_fib", Unit::UpdatesPerSecond);
    assert!(refused.refused > Some(0) && refused.note.contains(" updates"), "{refused:?}");
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
        return println!("skipped: needs cargo xtask peers dpdk ({})", why("dpdk"));
    }
    let failed = |hop| {
        let routes =
            vec![("10.0.0.0/24".parse().unwrap(), 8), ("10.0.0.12/32".parse().unwrap(), hop)];
        let table = Table::<u32>::new("two", routes);
        let mut peer = Peer::start(row, &table, LOAD_LIMIT).unwrap();
        let pairs = table
            .routes
            .iter()
            .flat_map(|&(prefix, hop)| [(prefix, NextHopId::NONE), (prefix, NextHopId(hop))]);
        assert_eq!(peer.set_changes(&pairs.collect::<Vec<_>>()).unwrap(), None);
        peer.update(TURN).unwrap().failed
    };
    assert_eq!(failed(9), 0);
    assert!(failed(8) > 0);
}
