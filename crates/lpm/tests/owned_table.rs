//! The owned table: the same as a sorted map through any changes, by every algorithm; limits, growth
//! into other algorithms, and readers beside the writer.

#![allow(clippy::unwrap_used, reason = "a test: what fails here fails the test")]

use std::collections::BTreeMap;
use std::iter::repeat;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;

use fingerpost_lpm::oracle::{Naive, Oracle};
use fingerpost_lpm::registry::Rows;
use fingerpost_lpm::testing::{Rng, Shape, probes, table};
use fingerpost_lpm::{LpmTable, NextHopId, Prefix, RouteStore, UpdateError};
use proptest::prelude::*;

/// One call: how many routes, and which.
type Step = Vec<(u128, u8, u32)>;

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let addr = prop_oneof![0u128..8, (0u128..16).prop_map(|a| a << 28 | a << 124), any::<u128>()];
    let len = prop_oneof![0u8..=4, 20u8..=32, 120u8..=128];
    let route = (addr, len, prop_oneof![1 => Just(0), 2 => 1u32..5]);
    let step = prop_oneof![
        3 => proptest::collection::vec(route.clone(), 1..2),
        1 => proptest::collection::vec(route, 2..40),
    ];
    proptest::collection::vec(step, 0..24)
}

fn check<A: Rows>(mut table: LpmTable<A>, steps: &[Step]) {
    let mut model = BTreeMap::<Prefix<A>, NextHopId>::new();
    let mut reader = table.reader();
    let old: Vec<_> = table.iter().map(|(prefix, &hop)| (prefix, hop)).collect();
    for step in steps {
        let wanted: Vec<_> = step
            .iter()
            .map(|&(addr, len, hop)| {
                (Prefix::masked(A::from_u128(addr), len.min(A::BITS)), NextHopId(hop))
            })
            .collect();
        let before = LpmTable::build_with(vec![table.algorithm()], table.routes().clone()).unwrap();
        if let [(prefix, hop)] = wanted[..] {
            let was = model.get(&prefix).copied();
            let got = if hop.is_none() { table.remove(prefix) } else { table.insert(prefix, hop) };
            assert_eq!(got, Ok(was));
        } else if wanted.len() % 2 == 0 {
            table.apply_at_once(&wanted).unwrap();
        } else {
            table.apply(&wanted).unwrap();
        }
        for &(prefix, hop) in &wanted {
            if hop.is_none() {
                model.remove(&prefix)
            } else {
                model.insert(prefix, hop)
            };
        }
        let all: Vec<_> = model.iter().map(|(&prefix, &hop)| (prefix, hop)).collect();
        assert!(table.iter().map(|(prefix, &hop)| (prefix, hop)).eq(all.iter().copied()));
        assert_eq!((table.len(), table.is_empty()), (all.len(), all.is_empty()));
        for change in before.diff(&table) {
            assert_eq!(before.get(change.prefix).unwrap_or_default(), change.old);
            assert_eq!(table.get(change.prefix).unwrap_or_default(), change.new);
            assert!(wanted.iter().any(|&(prefix, _)| prefix == change.prefix));
        }
        let naive = Naive { routes: all };
        for &(prefix, _) in &wanted {
            let addrs = probes(prefix);
            let mut out = [NextHopId::NONE; 6];
            table.lookup_batch(&addrs, &mut out);
            for (addr, batched) in addrs.into_iter().zip(out) {
                let want = naive.lookup(addr);
                let told = table.longest_match(addr).map_or(NextHopId::NONE, |(_, hop)| hop);
                let seen = [table.lookup(addr), batched, told, reader.lookup(addr)];
                assert_eq!(seen, [want; 4], "{table:?}, {}", addr.to_ip());
            }
            reader.lookup_batch(&addrs, &mut out);
            assert_eq!(out.map(|hop| hop.0), addrs.map(|addr| naive.lookup(addr).0));
            assert!(table.covering(prefix).all(|(other, _)| other.covers(prefix)));
            assert!(table.covered(prefix).all(|(other, _)| prefix.covers(other)));
        }
    }
    let now: Vec<_> = table.iter().map(|(prefix, _)| (prefix, NextHopId::NONE)).collect();
    table.apply(&now).unwrap();
    table.apply(&old).unwrap();
    assert!(table.is_empty() && reader.lookup(A::MIN).is_none());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn equals_a_sorted_map_v4(steps in steps()) {
        check(LpmTable::<u32>::new(), &steps);
    }

    #[test]
    fn equals_a_sorted_map_v6(steps in steps()) {
        check(LpmTable::<u128>::new(), &steps);
    }
}

/// A few steps on each row that is small when empty; the suite and the property tests have the rest.
#[test]
fn by_every_algorithm() {
    fn run<A: Rows>() {
        let routes = table::<A>(Shape::Hostile, 3000, 90, 3);
        let mut rng = Rng::new(3);
        let steps: Vec<Step> = (0..12)
            .map(|i| {
                let count = if i % 3 == 0 { 30 } else { 1 };
                let route = |_| routes[rng.below(routes.len())];
                let routes = (0..count).map(route).collect::<Vec<_>>().into_iter();
                routes.map(|(p, hop)| (p.addr().to_u128(), p.len(), hop.0)).collect()
            })
            .collect();
        let mut tried = 0;
        for row in A::rows() {
            let table = LpmTable::<A>::with_algorithm(row.name).unwrap();
            if table.structure().bytes() <= 8 << 20 && row.limits.prefix_len == A::BITS {
                check(table, &steps);
                tried += 1;
            }
        }
        assert!(tried >= 2, "{tried} of IPv{}", A::FAMILY);
    }
    run::<u32>();
    run::<u128>();
    assert!(LpmTable::<u32>::with_algorithm("nonsense").is_err());
}

#[test]
fn it_grows_into_other_algorithms_and_back() {
    let mut table = LpmTable::<u32>::new();
    let first = table.algorithm().name;
    for i in 0..2000u32 {
        table.insert(Prefix::masked(i << 12, 20), NextHopId(i + 1)).unwrap();
    }
    let full = table.algorithm().name;
    assert_ne!(first, full, "one algorithm for nothing and for 2,000 routes");
    let stats = fingerpost_lpm::Routes::stats(table.routes());
    let fitness = |row: &fingerpost_lpm::Algorithm<u32>| (row.fitness)(&stats);
    let best = u32::rows().filter(|row| row.limits.check(&stats).is_ok()).map(fitness).max();
    assert_eq!(Some(fitness(table.algorithm())), best);
    for i in 0..2000u32 {
        assert_eq!(table.lookup(i << 12 | 77), NextHopId(i + 1));
        assert_eq!(table.remove(Prefix::masked(i << 12, 20)), Ok(Some(NextHopId(i + 1))));
        assert_eq!(table.lookup(i << 12 | 77), NextHopId::NONE);
    }
    assert_eq!(table.algorithm().name, first);
}

#[test]
fn limits_are_errors_or_lead_elsewhere() {
    let far = NextHopId(u32::MAX);
    let prefix: Prefix<u32> = "10.0.0.0/8".parse().unwrap();
    let other: Prefix<u32> = "11.0.0.0/8".parse().unwrap();
    let mut pinned = LpmTable::<u32>::with_algorithm("dxr16").unwrap();
    pinned.insert(prefix, NextHopId(7)).unwrap();
    let mut reader = pinned.reader();
    for _ in 0..2 {
        let refused = pinned.insert(prefix, far);
        assert!(matches!(refused, Err(UpdateError::Limit { .. })), "{refused:?}");
        let refused = pinned.apply(&[(other, NextHopId(1)), (prefix, far), (prefix, NextHopId(0))]);
        assert!(matches!(refused, Err(UpdateError::Limit { .. })), "{refused:?}");
        assert_eq!(pinned.iter().collect::<Vec<_>>(), [(prefix, &NextHopId(7))]);
        assert_eq!(
            (pinned.lookup(10 << 24), reader.lookup(10 << 24)),
            (NextHopId(7), NextHopId(7))
        );
        assert!(pinned.lookup(11 << 24).is_none());
    }
    let routes: RouteStore<u32> = [(prefix, far)].into_iter().collect();
    let refused = LpmTable::build_with(vec![u32::row("dxr16").unwrap()], routes.clone());
    assert!(matches!(refused.err(), Some(UpdateError::Limit { .. })));
    // Free to choose, it takes one that holds the next hop.
    let mut free = LpmTable::build_with(
        ["dxr16", "bsearch"].map(|n| u32::row(n).unwrap()).to_vec(),
        RouteStore::new(),
    );
    let free = free.as_mut().unwrap();
    let many = (0..1000u32).map(|i| (Prefix::masked(i << 16, 16), NextHopId(i + 1)));
    free.apply(&many.collect::<Vec<_>>()).unwrap();
    assert_eq!(free.algorithm().name, "dxr16");
    free.insert(prefix, far).unwrap();
    assert_eq!((free.algorithm().name, free.lookup(10 << 24 | 0xff_ffff)), ("bsearch", far));
    assert_eq!(LpmTable::build(routes).unwrap().lookup(10 << 24), far);
}

/// Routes that come or go together.
const STEP: usize = 23;

/// Threads that look up while routes come and go, in place and by new structures; each answer is that of a
/// state the table was in, and what returned is seen.
fn beside_a_writer<A: Rows>(name: &str) {
    let routes = table::<A>(Shape::Internet, 1500, 90, 8);
    let (stay, come) = routes.split_at(700);
    let mut table =
        LpmTable::<A>::build_with(vec![A::row(name).unwrap()], stay.iter().copied().collect())
            .unwrap();
    let addrs: Vec<A> = come.iter().step_by(9).flat_map(|&(prefix, _)| probes(prefix)).collect();
    // What an address may answer: one of the states that the table goes through.
    let mut state: Oracle<A> = stay.iter().copied().collect();
    let mut want: Vec<Vec<_>> = addrs.iter().map(|&addr| vec![state.lookup(addr)]).collect();
    for (wanted, there) in
        come.chunks(STEP).zip(repeat(true)).chain(come.chunks(STEP).zip(repeat(false)))
    {
        for &(prefix, hop) in wanted {
            state.set(prefix, if there { hop } else { NextHopId::NONE });
        }
        for (&addr, want) in addrs.iter().zip(&mut want) {
            let hop = state.lookup(addr);
            if !want.contains(&hop) {
                want.push(hop);
            }
        }
    }
    let done = AtomicBool::new(false);
    let first = table.reader();
    thread::scope(|scope| {
        for number in 0..3 {
            let (mut reader, addrs, want, done) = (first.clone(), &addrs, &want, &done);
            scope.spawn(move || {
                let mut out = vec![NextHopId::NONE; addrs.len()];
                let mut rounds = 0;
                while rounds < 3 || !done.load(SeqCst) {
                    rounds += 1;
                    if number == 0 {
                        reader.lookup_batch(addrs, &mut out);
                    } else {
                        for (&addr, out) in addrs.iter().zip(&mut out) {
                            *out = reader.lookup(addr);
                        }
                    }
                    for (i, hop) in out.iter().enumerate() {
                        assert!(want[i].contains(hop), "{}: {hop:?}", addrs[i].to_ip());
                    }
                }
            });
        }
        let mut reader = table.reader();
        for round in 0..12 {
            for (i, wanted) in come.chunks(STEP).enumerate() {
                let wanted: Vec<_> = wanted
                    .iter()
                    .map(|&(p, hop)| (p, if round % 2 == 0 { hop } else { NextHopId::NONE }))
                    .collect();
                table.apply(&wanted).unwrap();
                let addr = wanted[0].0.first();
                assert_eq!(reader.lookup(addr), table.lookup(addr), "round {round}, {i}");
            }
        }
        done.store(true, SeqCst);
    });
    for (&addr, want) in addrs.iter().zip(want) {
        assert_eq!(table.lookup(addr), want[0]);
    }
}

#[test]
fn readers_beside_a_writer_v4() {
    beside_a_writer::<u32>("dxr16");
    beside_a_writer::<u32>("bsearch");
}

#[test]
fn readers_beside_a_writer_v6() {
    beside_a_writer::<u128>("radix");
}

#[test]
fn what_is_applied_at_once_is_seen_at_once() {
    let mut table = LpmTable::<u32>::new();
    let prefix = |n: u32| Prefix::masked(n << 8, 24);
    let all = |hop: u32| (0..1000).map(|n| (prefix(n), NextHopId(hop))).collect::<Vec<_>>();
    table.apply(&all(1)).unwrap();
    let mut reader = table.reader();
    let held = reader.pin();
    table.apply_at_once(&all(2)[..3]).unwrap();
    assert_eq!([0, 1, 2, 3].map(|n| held.lookup(n << 8 | 7).0), [1; 4], "as it was when it began");
    drop(held);
    assert_eq!([0, 1, 2, 3].map(|n| reader.lookup(n << 8 | 7).0), [2, 2, 2, 1]);
}

#[test]
fn a_reader_outlives_its_table() {
    let mut table = LpmTable::<u32>::new();
    let mut reader = table.reader();
    table.insert(Prefix::ALL, NextHopId(5)).unwrap();
    drop(table);
    assert_eq!((reader.lookup(1), reader.clone().lookup(1)), (NextHopId(5), NextHopId(5)));
}

#[test]
fn saved_tables_answer_the_same() {
    let path = std::env::temp_dir().join(format!("fingerpost-owned-{}", std::process::id()));
    let routes: RouteStore<u32> = table(Shape::Internet, 3000, 90, 5).into_iter().collect();
    let table = LpmTable::build(routes).unwrap();
    table.save(&path).unwrap();
    let saved = fingerpost_lpm::snapshot::Snapshot::load(&path, &mut fingerpost_lpm::Heap).unwrap();
    let lookup = saved.lookup::<u32>().unwrap();
    std::fs::remove_file(&path).unwrap();
    for (prefix, _) in &table {
        for addr in probes(prefix) {
            assert_eq!(lookup.lookup(addr), table.lookup(addr));
        }
    }
}
