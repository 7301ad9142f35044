//! The cases of `testdata/lpm`, on every algorithm: built at once, and route by route on a table that
//! stays, so that each case also finds what the one before left.

#![allow(clippy::unwrap_used, reason = "a test: what fails here fails the test")]

use std::fs;
use std::path::Path;

use fingerpost_lpm::oracle::Naive;
use fingerpost_lpm::testing::Rig;
use fingerpost_lpm::{Addr, Algorithm, NextHopId, NoReaders, Prefix, UpdateError, v4, v6};
use toml::{Table, Value};

struct Case<A: Addr> {
    name: String,
    routes: Vec<(Prefix<A>, NextHopId)>,
    lookups: Vec<(A, NextHopId)>,
}

fn texts<'a>(case: &'a Table, key: &str) -> impl Iterator<Item = (&'a str, NextHopId)> {
    let lines = case[key].as_array().unwrap_or_else(|| panic!("{key} is not a list"));
    lines.iter().map(|line| {
        let (what, hop) = line.as_str().unwrap().split_once(' ').unwrap();
        let hop = if hop == "none" { 0 } else { hop.parse().unwrap() };
        (what, NextHopId(hop))
    })
}

/// All cases of a family, from all files.
fn cases<A: Addr>() -> Vec<Case<A>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/lpm");
    let mut cases = Vec::new();
    for file in fs::read_dir(&folder).unwrap().map(|file| file.unwrap().path()) {
        if file.extension().is_none_or(|extension| extension != "toml") {
            continue;
        }
        let text = fs::read_to_string(&file).unwrap();
        let table: Table = text.parse().unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        for case in table["case"].as_array().unwrap().iter().filter_map(Value::as_table) {
            let known = ["name", "family", "routes", "lookups"];
            assert!(case.keys().all(|key| known.contains(&key.as_str())), "{case:?}");
            if case["family"].as_integer() != Some(i64::from(A::FAMILY)) {
                continue;
            }
            let name = format!("{}: {}", file.file_name().unwrap().display(), case["name"]);
            let addr = |text: &str| A::from_ip(text.parse().unwrap()).unwrap();
            cases.push(Case {
                routes: texts(case, "routes")
                    .map(|(prefix, hop)| {
                        (prefix.parse().unwrap_or_else(|e| panic!("{name}: {e}")), hop)
                    })
                    .collect(),
                lookups: texts(case, "lookups").map(|(text, hop)| (addr(text), hop)).collect(),
                name,
            });
        }
    }
    cases
}

fn check<A: Addr>(rig: &Rig<'_, A>, case: &Case<A>, how: &str) {
    let addrs: Vec<A> = case.lookups.iter().map(|&(addr, _)| addr).collect();
    let mut out = vec![NextHopId::NONE; addrs.len()];
    rig.lookup.lookup_batch(&addrs, &mut out);
    for (&(addr, want), batched) in case.lookups.iter().zip(out) {
        let who = format!("{:?}, {}, {how}: {}", rig.algorithm, case.name, addr.to_ip());
        assert_eq!(rig.lookup.lookup(addr), want, "{who}");
        assert_eq!(batched, want, "{who}, in a batch");
    }
}

/// Whether the row's format has room for the next hops of a case.
fn fits<A: Addr>(row: &Algorithm<A>, case: &Case<A>) -> bool {
    case.routes.iter().all(|&(_, hop)| hop.0 <= row.limits.next_hop)
}

fn run<A: Addr>(rows: impl Iterator<Item = &'static Algorithm<A>> + Clone) {
    let cases = cases::<A>();
    assert!(cases.len() >= 10, "{} cases", cases.len());
    for case in &cases {
        let naive = Naive { routes: case.routes.clone() };
        for &(addr, want) in &case.lookups {
            assert_eq!(naive.lookup(addr), want, "{}: {}", case.name, addr.to_ip());
        }
        for row in rows.clone() {
            if fits(row, case) {
                check(&Rig::new(row, &case.routes).unwrap(), case, "at once");
            } else {
                let refused = Rig::new(row, &case.routes).err();
                assert!(
                    matches!(refused, Some(UpdateError::Limit { .. })),
                    "{row:?}, {}",
                    case.name
                );
            }
        }
    }
    for row in rows {
        let mut rig = Rig::new(row, &[]).unwrap();
        if rig.lookup.bytes() > LARGE_BYTES {
            // Each short prefix rewrites all of it; the conformance suite does that often enough.
            continue;
        }
        for case in cases.iter().filter(|case| fits(row, case)) {
            one_by_one(&mut rig, case.routes.iter().copied());
            check(&rig, case, "in order");
            let withdraw = case.routes.iter().map(|&(prefix, _)| (prefix, NextHopId::NONE));
            one_by_one(&mut rig, withdraw.clone());
            one_by_one(&mut rig, case.routes.iter().rev().copied());
            check(&rig, case, "emptied, then in reverse");
            one_by_one(&mut rig, withdraw);
        }
    }
}

/// An empty table of more than this is not changed route by route here.
const LARGE_BYTES: usize = 4 << 20;

fn one_by_one<A: Addr>(rig: &mut Rig<'_, A>, routes: impl Iterator<Item = (Prefix<A>, NextHopId)>) {
    for route in routes {
        rig.apply(&[route], &mut NoReaders).unwrap();
    }
}

#[test]
fn cases_v4() {
    run(v4());
}

#[test]
fn cases_v6() {
    run(v6());
}
