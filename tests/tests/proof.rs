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
//! once; at most some 2 GiB of structures are checked at a time. Seeds are fixed and named in the message of
//! a failure. The record of the last long form is `docs/benchmarks/proof.md`.
//!
//! Updates come in steps of 1 to 256. After each of them every row is checked around all that changed and at
//! places drawn at random, and compared with the store's longest match; after each sixteenth also alone and
//! explained, and the store is compared with the oracle; ten times in all that is done at every edge of
//! the table. A row that answers wrongly is named and leaves, and the others continue.

#![allow(clippy::unwrap_used, reason = "these are the helpers of tests")]

use std::collections::{BTreeMap, VecDeque};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use std::{env, fs, panic, thread};

use fingerpost_command::progress::Progress;
use fingerpost_lpm::registry::Rows;
use fingerpost_lpm::testing::{
    Addresses, Fleet, Mismatch, Questions, Refused, Rig, Rng, Stream, Wrong, drive, probes,
    random_input,
};
use fingerpost_lpm::{
    Addr, Algorithm, Heap, Lookup, NextHopId, NoReaders, Prefix, RouteStore, UpdateError,
};
use fingerpost_tests::tables::{self, Route, data};

const SEED: u64 = 0x5eed_0003;
/// Most memory of structures that are checked in one go.
const GROUP_BYTES: usize = 2 << 30;
/// Probes of a pass: they are computed, looked up in all rows, and forgotten.
const ROUND: usize = 25_000_000;

/// Whether the long form is wanted: `cargo xtask soak` sets it.
fn long() -> bool {
    env::var_os("FINGERPOST_SOAK_SECONDS").is_some()
}

/// A table to prove something on.
struct Source {
    name: &'static str,
    folder: PathBuf,
}

fn sources(v4: bool) -> Vec<Source> {
    let (shipped, further): (_, &[_]) = if v4 {
        ("v4-tier1-nh496.txt.xz", &["v4-20151023-pch-as3856.txt.xz"])
    } else {
        ("v6-tier1-nh496.txt.xz", &["v6-20210117-as19653.txt.xz", "v6-20141225-linx-p69.txt.xz"])
    };
    let mut sources = vec![Source { name: shipped, folder: tables::shipped() }];
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
    let mut routes: Vec<Route<A>> = tables::read(&source.folder.join(source.name));
    // An IPv6 table is small enough, and its blocks are not filled evenly.
    if !whole && A::BITS == 32 {
        routes.retain(|(prefix, _)| prefix.addr().bits(0, 16) % 8 == 3 || prefix.len() < 12);
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

/// Progress of a long proof, several of which run at a time.
fn progress() -> Progress {
    if long() { Progress::lines() } else { Progress::silent() }
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
    let mut progress = progress();
    while left > 0 && !group.readers.is_empty() {
        let now = left.min(ROUND);
        progress.step(&format!("addresses, {}", source.name), count - left, count);
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
    updates(source, &routes, &builders, few, if long() { 4 * MOST } else { MOST / 4 });
    updates(source, &routes, &in_place, many, MOST);
}

/// Changes of a step.
const MOST: usize = 256;
/// Addresses looked up after each step besides those around its changes.
const SAMPLE: usize = 32;
/// Steps of which one is looked at closely.
const CLOSELY: usize = 16;

fn changes_in_place<A: Addr>(row: &'static Algorithm<A>, routes: &[Route<A>]) -> bool {
    let mut rig = Rig::new(row, routes).unwrap();
    match rig.apply_in_place(&[(routes[500].0, NextHopId::NONE)], &mut NoReaders) {
        Ok(()) => true,
        Err(UpdateError::Rebuild) => false,
        Err(error) => panic!("{row:?}: {error}"),
    }
}

/// Takes those that answered wrongly out of the fleet, and reports them; the others continue.
fn expel<A: Addr>(fleet: &mut Fleet<A>, wrong: Vec<Wrong<A>>, when: &str, all: &mut Vec<String>) {
    for wrong in wrong.into_iter().rev() {
        let row = fleet.members.remove(wrong.member).algorithm;
        let told = format!("{row:?}, {when}: {wrong}");
        println!("WRONG: {told}");
        all.push(told);
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
    let longest = fleet.members.iter().map(|member| member.algorithm.limits.prefix_len).min();
    let Some(longest) = longest else { return };
    let prefixes: Vec<_> = routes.iter().map(|route| route.0).collect();
    let mut sample = Addresses::new(Stream::Announced, &prefixes, SEED);
    let mut edges = Addresses::new(Stream::Edges, &prefixes, SEED);
    let mut changes = Changes { rng: Rng::new(SEED), routes, longest, made: VecDeque::new() };
    let (mut done, mut steps, mut refused, mut wrong) = (0, 0usize, 0, Vec::new());
    let mut progress = progress();
    while done < count && !fleet.members.is_empty() {
        let wanted = changes.step(most);
        steps += 1;
        if steps.is_multiple_of(CLOSELY) {
            progress.step(&format!("updates, {}", source.name), done, count);
        }
        let when = format!("seed {SEED:#x}, step {steps}, after {done} updates");
        match fleet.apply(&wanted, &mut NoReaders) {
            Ok(()) => done += wanted.len(),
            Err(Refused { member, error }) => {
                let row = fleet.members[member].algorithm;
                let known =
                    matches!(error, UpdateError::Limit { .. }) && !row.limits.note.is_empty();
                assert!(known, "{row:?}, {when}: {error}");
                refused += 1;
                assert!(refused * 4 < steps + 100, "{row:?}: {error}, again and again");
            }
        }
        // Around each change, and anywhere; alone, and the store itself, now and then.
        let mut addrs: Vec<A> = wanted.iter().flat_map(|&(prefix, _)| probes(prefix)).collect();
        addrs.extend((0..SAMPLE / 2).flat_map(|_| [sample.draw(), edges.draw()]));
        let found = fleet.check(&addrs, steps.is_multiple_of(CLOSELY));
        expel(&mut fleet, found, &when, &mut wrong);
        // And all of the table, ten times in all.
        if done / (count / 10) > (done - wanted.len().min(done)) / (count / 10) {
            let found = fleet.check_all();
            expel(&mut fleet, found, &when, &mut wrong);
        }
    }
    let spent: Vec<_> = fleet.members.iter().map(|member| member.spent).collect();
    let all: Vec<_> = fleet.routes.iter().map(|(prefix, _)| (prefix, NextHopId::NONE)).collect();
    for wanted in all.chunks(10_000) {
        fleet.apply(wanted, &mut NoReaders).unwrap();
    }
    for (member, spent) in fleet.members.iter().zip(spent) {
        let row = member.algorithm;
        let fresh = Rig::new(row, &[]).unwrap().counters();
        assert_eq!(member.counters(), fresh, "{row:?}: withdrawn");
        let (rebuilds, refused) = (member.rebuilds, member.refused);
        println!(
            "{row:?}: {done} updates in {steps} steps, {rebuilds} times built anew, {refused} refused, \
             0 wrong, {:.1} us each",
            spent.as_secs_f64() * 1e6 / done as f64
        );
    }
    println!(
        "{}: {} routes, {done} updates, {} of {} rows agree, {} s",
        source.name,
        routes.len(),
        fleet.members.len(),
        fleet.members.len() + wrong.len(),
        began.elapsed().as_secs()
    );
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// Random changes of a table.
struct Changes<'a, A: Addr> {
    rng: Rng,
    routes: &'a [Route<A>],
    /// The longest prefix that all take.
    longest: u8,
    /// Prefixes that the table did not have, in the order in which they were announced.
    made: VecDeque<Prefix<A>>,
}

impl<A: Addr> Changes<'_, A> {
    /// At least one, at most `most`, few more often than many.
    fn step(&mut self, most: usize) -> Vec<Route<A>> {
        let most = most >> self.rng.below(most.ilog2() as usize + 1);
        let count = self.rng.below(most) + 1;
        let mut wanted = Vec::with_capacity(count);
        while wanted.len() < count {
            wanted.extend(self.draw());
        }
        wanted
    }

    fn draw(&mut self) -> Option<Route<A>> {
        let (prefix, hop) = self.routes[self.rng.below(self.routes.len())];
        // Short ones are as rare in updates, and slow for some.
        if prefix.len() < 12 && !self.rng.chance(2) {
            return None;
        }
        let other = self.routes[self.rng.below(self.routes.len())].1;
        Some(match self.rng.below(16) {
            0..6 => (prefix, NextHopId::NONE),
            6..11 => (prefix, hop),
            11..13 => (prefix, other),
            // They go again, long after they came, or the table would grow by more than it holds.
            _ if self.made.len() > self.routes.len() / 8 => {
                (self.made.pop_front()?, NextHopId::NONE)
            }
            _ => {
                // A neighbor, or a part of it.
                let longer = u8::try_from(self.rng.below(3)).unwrap();
                let len = (prefix.len() + longer).min(self.longest);
                let made = Prefix::masked(prefix.last().next(), len);
                self.made.push_back(made);
                (made, other)
            }
        })
    }
}

#[test]
fn proof_of_updates_v4() {
    every_update::<u32>();
}

#[test]
fn proof_of_updates_v6() {
    every_update::<u128>();
}

/// Probes around each change; alone and with `explain` now and then.
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
    let stream = tables::text(&packed);
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
    let (through, given_up) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let rows = rows::<u32>();
    side_by_side(&rows, |row| {
        let mut rig = match Rig::new(row, &table) {
            Ok(rig) => rig,
            Err(error @ UpdateError::Limit { .. }) => {
                given_up.fetch_add(1, Relaxed);
                return println!("{row:?}: {error}");
            }
            Err(error) => panic!("{row:?}: {error}"),
        };
        for (step, wanted) in updates.chunks(32).enumerate() {
            // Not made for a stream of changes.
            if rig.rebuilds > 3 {
                given_up.fetch_add(1, Relaxed);
                return println!("{row:?}: is built anew");
            }
            rig.apply(wanted, &mut NoReaders).unwrap();
            check(&rig, wanted, step);
        }
        through.fetch_add(1, Relaxed);
    });
    let (through, given_up) = (through.into_inner(), given_up.into_inner());
    println!(
        "{}: {} updates of {through} rows agree, {given_up} not asked",
        source.name,
        updates.len()
    );
    assert_eq!(through + given_up, rows.len());
    // Unless a choice of rows leaves none that changes in place, most do.
    assert!(through > given_up || env::var_os("FINGERPOST_ROWS").is_some(), "{through} rows");
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
