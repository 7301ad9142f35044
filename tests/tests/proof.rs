//! The long proof, with a short form of it in every test run: each algorithm on each table against the
//! oracle, through random and real updates, and by bytes that nobody chose.
//!
//! | | test run | `cargo xtask soak proof` |
//! |---|---|---|
//! | addresses a table, of every algorithm | 1,000,000 | 100,000,000 |
//! | random updates of an algorithm | 10,000 | 10,000,000 |
//! | of one that builds anew each time | 300 | 10,000 |
//! | random inputs of the fuzz target | 2 seconds | `cargo xtask soak fuzz_lookup SECONDS` |
//!
//! The short form takes a block in eight of an IPv4 table, but the shipped one whole for lookups. Tables: the
//! shipped ones, and those of `FINGERPOST_DATA`. `FINGERPOST_ROWS=dxr18,radix` narrows the algorithms, as
//! a new one wants it. All of them stand on one store and one oracle, and each right answer is worked out
//! once; at most some 2 GiB of structures are asked at a time. Seeds are fixed and named in the message of
//! a failure. The record of the last long form is `docs/benchmarks/proof.md`.

#![allow(clippy::unwrap_used, reason = "these are the helpers of tests")]

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use std::{env, fs, panic, thread};

use fingerpost_lpm::registry::Rows;
use fingerpost_lpm::testing::{
    Fleet, Mismatch, Questions, Refused, Rig, Rng, drive, probes, random_input,
};
use fingerpost_lpm::{
    Addr, Algorithm, Heap, Lookup, NextHopId, NoReaders, Prefix, RouteStore, UpdateError,
};
use fingerpost_route::AnyPrefix;
use fingerpost_route::source::table::{FileHop, TableReader};

const SEED: u64 = 0x5eed_0003;
/// Of structures that are asked in one go.
const GROUP_BYTES: usize = 2 << 30;
/// Questions are worked out, asked of all, and forgotten.
const ROUND: usize = 25_000_000;

/// A route's prefix and next hop.
type Route<A> = (Prefix<A>, NextHopId);

/// Whether the long form is wanted: `cargo xtask soak` sets it.
fn long() -> bool {
    env::var_os("FINGERPOST_SOAK_SECONDS").is_some()
}

/// A table to prove something on.
struct Source {
    name: &'static str,
    folder: PathBuf,
}

fn data() -> PathBuf {
    let beside = || fingerpost_tests::root().join("../shared/data");
    env::var_os("FINGERPOST_DATA").map_or_else(beside, PathBuf::from)
}

fn sources(v4: bool) -> Vec<Source> {
    let (shipped, further): (_, &[_]) = if v4 {
        ("v4-tier1-nh496.txt.xz", &["v4-20151023-pch-as3856.txt.xz"])
    } else {
        ("v6-tier1-nh496.txt.xz", &["v6-20210117-as19653.txt.xz", "v6-20141225-linx-p69.txt.xz"])
    };
    let tables = fingerpost_tests::root().join("testdata/tables");
    let mut sources = vec![Source { name: shipped, folder: tables }];
    // The small one adds shapes, which a hundred million addresses do not.
    let wanted = |name: &&&str| !(long() && name.contains("linx")) && data().join(name).is_file();
    let there = further.iter().filter(wanted);
    sources.extend(there.map(|name| Source { name, folder: data() }));
    if sources.len() <= 1 {
        fingerpost_tests::skip("further real tables (FINGERPOST_DATA)");
    }
    sources
}

/// Reads a table, or a block in eight of an IPv4 one, so that what lies side by side stays so.
fn read<A: Addr>(source: &Source, whole: bool) -> Vec<Route<A>> {
    let mut hops: BTreeMap<FileHop, u32> = BTreeMap::new();
    let mut routes = Vec::new();
    for entry in &mut TableReader::open(&source.folder.join(source.name)).unwrap() {
        let entry = entry.unwrap();
        let next = u32::try_from(hops.len()).unwrap() + 1;
        let hop = NextHopId(*hops.entry(entry.hop).or_insert(next));
        let (addr, len) = match entry.prefix {
            AnyPrefix::V4(prefix) => (u128::from(prefix.addr()), prefix.len()),
            AnyPrefix::V6(prefix) => (prefix.addr(), prefix.len()),
        };
        let prefix = Prefix::<A>::new(A::from_u128(addr), len).unwrap();
        let block = prefix.addr().bits(0, 16);
        // An IPv6 table is small enough, and its blocks are not filled evenly.
        if whole || A::BITS > 32 || block % 8 == 3 || len < 12 {
            routes.push((prefix, hop));
        }
    }
    assert!(routes.len() > 1000, "{}: {} routes", source.name, routes.len());
    routes
}

/// The rows of a family, or those of them that `FINGERPOST_ROWS` names.
fn rows<A: Rows>() -> Vec<&'static Algorithm<A>> {
    let only = env::var("FINGERPOST_ROWS").ok();
    let wanted = |name: &str| only.as_ref().is_none_or(|only| only.split(',').any(|n| n == name));
    A::rows().filter(|row| wanted(row.name)).collect()
}

/// Runs `each` on all of `items`, some side by side.
fn side_by_side<T: Sync>(items: &[T], each: impl Fn(&T) + Sync) {
    let next = AtomicU64::new(0);
    let threads = thread::available_parallelism().map_or(2, usize::from);
    thread::scope(|scope| {
        for _ in 0..threads.min(items.len()) {
            scope.spawn(|| {
                while let Some(item) =
                    items.get(usize::try_from(next.fetch_add(1, Relaxed)).unwrap())
                {
                    each(item);
                }
            });
        }
    });
}

/// A row, and what it built.
type Built<A> = (&'static Algorithm<A>, Arc<dyn Lookup<A>>);

/// Readers that were built, as many at a time as `GROUP_BYTES` lets be.
struct Group<A: Addr> {
    readers: Vec<Built<A>>,
    bytes: usize,
}

fn every_lookup<A: Rows>() {
    let count = if long() { 100_000_000 } else { 1_000_000 };
    for source in sources(A::BITS == 32) {
        let began = Instant::now();
        let shipped = source.folder != data();
        let routes = read::<A>(&source, shipped || long());
        let store: RouteStore<A> = routes.iter().copied().collect();
        let mut group = Group { readers: Vec::new(), bytes: 0 };
        let mut asked = Vec::new();
        for row in rows::<A>() {
            let lookup = match row.build(&store, &mut Heap) {
                Ok(mut table) => table.publish(),
                Err(limit @ UpdateError::Limit { .. }) => {
                    println!("{row:?} on {}: {limit}", source.name);
                    continue;
                }
                Err(error) => panic!("{row:?} on {}: {error}", source.name),
            };
            group.bytes += lookup.regions().iter().map(|region| region.bytes()).sum::<usize>();
            group.readers.push((row, lookup));
            asked.push(row.name);
            if group.bytes > GROUP_BYTES {
                ask(&source, &routes, count, &mut group);
            }
        }
        ask(&source, &routes, count, &mut group);
        println!(
            "{}: {} routes, {count} addresses of each agree, {} s: {}",
            source.name,
            routes.len(),
            began.elapsed().as_secs(),
            asked.join(" ")
        );
        assert!(!asked.is_empty(), "{}: no algorithm took the table", source.name);
    }
}

/// All addresses to all of the group, which is empty then.
fn ask<A: Addr>(source: &Source, routes: &[Route<A>], count: usize, group: &mut Group<A>) {
    let mut left = count;
    let mut round = 0;
    while left > 0 && !group.readers.is_empty() {
        let now = left.min(ROUND);
        let seed = SEED + round;
        let questions = Questions::new(routes, now, seed);
        side_by_side(&group.readers, |(row, lookup)| {
            let answer: Result<u64, Mismatch<A>> = questions.ask_lookup(&**lookup);
            let asked =
                answer.unwrap_or_else(|e| panic!("{row:?}, {}, seed {seed:#x}: {e}", source.name));
            assert_eq!(asked, now as u64);
        });
        left -= now;
        round += 1;
    }
    *group = Group { readers: Vec::new(), bytes: 0 };
}

#[test]
fn proof_of_lookups_v4() {
    every_lookup::<u32>();
}

#[test]
fn proof_of_lookups_v6() {
    every_lookup::<u128>();
}

/// Withdrawals, new routes beside old ones, other next hops, and what was withdrawn again; from a
/// full table to none. Those that build anew each time apart from the others.
fn every_update<A: Rows>() {
    let source = &sources(A::BITS == 32)[0];
    let routes = read::<A>(source, long());
    let (in_place, builders): (Vec<_>, Vec<_>) =
        rows::<A>().into_iter().partition(|row| changes_in_place(row, &routes[..1000]));
    let (many, few) = if long() { (10_000_000, 10_000) } else { (10_000, 300) };
    updates(source, &routes, &builders, few, if long() { 128 } else { 32 });
    updates(source, &routes, &in_place, many, if long() { 64 } else { 32 });
}

fn changes_in_place<A: Addr>(row: &'static Algorithm<A>, routes: &[Route<A>]) -> bool {
    let mut rig = Rig::new(row, routes).unwrap();
    match rig.apply_in_place(&[(routes[500].0, NextHopId::NONE)], &mut NoReaders) {
        Ok(()) => true,
        Err(UpdateError::Rebuild) => false,
        Err(error) => panic!("{row:?}: {error}"),
    }
}

/// Random steps of up to `most` changes, `count` changes in all.
fn updates<A: Addr>(
    source: &Source,
    routes: &[Route<A>],
    rows: &[&'static Algorithm<A>],
    count: usize,
    most: usize,
) {
    let began = Instant::now();
    let mut fleet = Fleet::new(routes);
    for row in rows {
        match fleet.join(row) {
            Ok(()) => {}
            Err(error @ UpdateError::Limit { .. }) => println!("{row:?}: {error}"),
            Err(error) => panic!("{row:?}: {error}"),
        }
    }
    if fleet.members.is_empty() {
        return;
    }
    let mut rng = Rng::new(SEED);
    let (mut done, mut steps, mut refused) = (0, 0usize, 0);
    let longest = fleet.members.iter().map(|member| member.algorithm.limits.prefix_len).min();
    while done < count {
        let wanted = random_changes(&mut rng, longest.unwrap(), routes, most);
        steps += 1;
        match fleet.apply(&wanted, &mut NoReaders) {
            Ok(()) => done += wanted.len(),
            Err(Refused { member, error }) => {
                let row = fleet.members[member].algorithm;
                let known =
                    matches!(error, UpdateError::Limit { .. }) && !row.limits.note.is_empty();
                assert!(known, "{row:?}, seed {SEED:#x}, step {steps}: {error}");
                refused += 1;
                assert!(refused * 4 < steps + 100, "{row:?}: {error}, again and again");
            }
        }
        // Around each change; alone and told step by step now and then.
        let addrs: Vec<A> = wanted.iter().flat_map(|&(prefix, _)| probes(prefix)).collect();
        let when = format!("seed {SEED:#x}, step {steps}");
        fleet.verify(&addrs, steps.is_multiple_of(16), &when);
        // And all of the table, ten times in all.
        if done / (count / 10) > (done - wanted.len().min(done)) / (count / 10) {
            fleet.verify_all(&when);
            if long() {
                println!("IPv{}: {done} updates, {} s", A::FAMILY, began.elapsed().as_secs());
            }
        }
    }
    let all: Vec<_> = fleet.routes.iter().map(|(prefix, _)| (prefix, NextHopId::NONE)).collect();
    for wanted in all.chunks(10_000) {
        fleet.apply(wanted, &mut NoReaders).unwrap();
    }
    for member in &fleet.members {
        let row = member.algorithm;
        let fresh = Rig::new(row, &[]).unwrap().counters();
        assert_eq!(member.counters(), fresh, "{row:?}: withdrawn");
        let (rebuilds, refused) = (member.rebuilds, member.refused);
        println!("{row:?}: {done} updates in {steps} steps, {rebuilds} built, {refused} refused");
    }
    println!(
        "{}: {} routes, {done} updates of each agree, {} s",
        source.name,
        routes.len(),
        began.elapsed().as_secs()
    );
}

fn random_changes<A: Addr>(
    rng: &mut Rng,
    longest: u8,
    routes: &[Route<A>],
    most: usize,
) -> Vec<Route<A>> {
    let count = rng.below(most) + 1;
    let mut wanted = Vec::with_capacity(count);
    while wanted.len() < count {
        let (prefix, hop) = routes[rng.below(routes.len())];
        // Short ones are as rare in updates, and slow for some.
        if prefix.len() < 12 && !rng.chance(2) {
            continue;
        }
        let other = routes[rng.below(routes.len())].1;
        wanted.push(match rng.below(8) {
            0..3 => (prefix, NextHopId::NONE),
            3..6 => (prefix, hop),
            6 => (prefix, other),
            _ => {
                // A neighbor, or a part of it.
                let len = (prefix.len() + u8::try_from(rng.below(3)).unwrap()).min(longest);
                (Prefix::masked(prefix.last().next(), len), other)
            }
        });
    }
    wanted
}

#[test]
fn proof_of_updates_v4() {
    every_update::<u32>();
}

#[test]
fn proof_of_updates_v6() {
    every_update::<u128>();
}

/// Around each change; alone and told step by step now and then.
fn check<A: Addr>(rig: &Rig<'_, A>, wanted: &[Route<A>], step: usize) {
    let addrs: Vec<A> = wanted.iter().flat_map(|&(prefix, _)| probes(prefix)).collect();
    if step.is_multiple_of(16) {
        rig.verify(&addrs, &format!("seed {SEED:#x}, step {step}"));
        return;
    }
    let mut out = vec![NextHopId::NONE; addrs.len()];
    rig.lookup.lookup_batch(&addrs, &mut out);
    for (&addr, &got) in addrs.iter().zip(&out) {
        let want = rig.oracle.lookup(addr);
        assert_eq!(got, want, "{:?}, seed {SEED:#x}, step {step}: {}", rig.algorithm, addr.to_ip());
    }
}

/// One hour of updates of a route server, on another network's table.
#[test]
fn proof_by_a_real_hour_of_updates() {
    let packed = data().join("update-20141217-linx-p52.txt.xz");
    let source = Source { name: "v4-20151023-pch-as3856.txt.xz", folder: data() };
    if !packed.is_file() {
        return fingerpost_tests::skip("real updates (FINGERPOST_DATA)");
    }
    let unpacked = std::process::Command::new("xz").arg("-dc").arg(&packed).output();
    let Ok(unpacked) = unpacked else { return fingerpost_tests::skip("xz (xz-utils)") };
    let stream = String::from_utf8(unpacked.stdout).unwrap();
    let table = read::<u32>(&source, long());
    let mut hops = BTreeMap::new();
    let mut updates = Vec::new();
    for line in stream.lines() {
        let [_, op, prefix, hop] = line.split(' ').collect::<Vec<_>>()[..] else {
            panic!("{line}")
        };
        let next = NextHopId(u32::try_from(hops.len()).unwrap() + 4000);
        let hop = if op == "w" { NextHopId::NONE } else { *hops.entry(hop).or_insert(next) };
        updates.push((prefix.parse::<Prefix<u32>>().unwrap(), hop));
    }
    assert_eq!((updates.len(), hops.len()), (23_446, 40));
    side_by_side(&rows::<u32>(), |row| {
        let Ok(mut rig) = Rig::new(row, &table) else { return };
        for (step, wanted) in updates.chunks(32).enumerate() {
            // Not made for a stream of changes.
            if rig.rebuilds > 3 {
                break;
            }
            rig.apply(wanted, &mut NoReaders).unwrap();
            check(&rig, wanted, step);
        }
    });
}

/// Where a finding is kept until someone moves it to `fuzz/regressions`.
fn keep(input: &[u8]) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("finding-{}", input.len()));
    fs::File::create(&path).unwrap().write_all(input).unwrap();
    path
}

#[test]
fn fuzz_lookup() {
    const LEAST: u64 = 8;
    let until = Instant::now() + fingerpost_tests::soak(Duration::from_secs(2));
    let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos();
    let seed = if long() { now & u128::from(u64::MAX) } else { 0 };
    let seed = SEED ^ u64::try_from(seed).unwrap();
    let (inputs, failed) = (AtomicU64::new(0), AtomicBool::new(false));
    let found = Mutex::new(None);
    let workers: Vec<u64> =
        (0..thread::available_parallelism().map_or(2, usize::from) as u64).collect();
    side_by_side(&workers, |&worker| {
        let mut rng = Rng::new(seed ^ worker << 32);
        // However busy the machine is, some at least.
        while (Instant::now() < until || inputs.load(Relaxed) < LEAST) && !failed.load(Relaxed) {
            let input = random_input(&mut rng);
            inputs.fetch_add(1, Relaxed);
            if panic::catch_unwind(|| drive(&input)).is_err() {
                failed.store(true, Relaxed);
                *found.lock().unwrap() = Some(input);
            }
        }
    });
    let inputs = inputs.into_inner();
    println!("seed {seed:#x}: {inputs} inputs on every algorithm");
    if let Some(input) = found.into_inner().unwrap() {
        panic!("found something: {}", keep(&input).display());
    }
    assert!(inputs >= LEAST, "{inputs} inputs");
}

#[test]
fn fuzz_regressions() {
    let mut seen = 0;
    for entry in fs::read_dir(fingerpost_tests::root().join("fuzz/regressions")).unwrap() {
        let path = entry.unwrap().path();
        println!("{}", path.display());
        drive(&fs::read(&path).unwrap());
        seen += 1;
    }
    assert!(seen >= 2, "{seen} inputs");
}
