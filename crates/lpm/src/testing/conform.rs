//! The conformance suite: what every algorithm must stand, driven by its registry row alone.

use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::thread;

use super::Rng;
use super::forge::harmless;
use super::rig::{FailingMemory, HeldGrace, ReaderGrace, Rig, copy_regions};
use super::streams::{Addresses, Stream, probes};
use super::tables::{Shape, skewed_hop, table};
use crate::addr::{Addr, Prefix};
use crate::error::UpdateError;
use crate::lookup::{Algorithm, Lookup, NoReaders};
use crate::mem::{Heap, Memory};
use crate::next_hop_id::NextHopId;

type Route<A> = (Prefix<A>, NextHopId);

/// One thing that an algorithm must stand.
pub struct Check<A: Addr> {
    /// Names the test.
    pub name: &'static str,
    /// Panics when the algorithm fails.
    pub run: fn(&Algorithm<A>),
}

/// Name of a thread that is meant to panic; a hook may keep quiet about it.
pub const EXPECTED_PANIC: &str = "expected panic";

/// All checks.
pub fn checks<A: Addr>() -> [Check<A>; 11] {
    [
        Check { name: "empty", run: empty },
        Check { name: "edges", run: edges },
        Check { name: "batches", run: batches },
        Check { name: "small_steps", run: small_steps },
        Check { name: "churn", run: churn },
        Check { name: "limits", run: limits },
        Check { name: "refused_memory", run: refused_memory },
        Check { name: "held_readers", run: held_readers },
        Check { name: "reopened", run: reopened },
        Check { name: "damaged", run: damaged },
        Check { name: "concurrent_readers", run: concurrent_readers },
    ]
}

/// Runs every check on one algorithm.
///
/// # Panics
/// At the first that fails.
pub fn conformance<A: Addr>(algorithm: &Algorithm<A>) {
    for check in checks::<A>() {
        (check.run)(algorithm);
    }
}

/// Next hops to use: few, so that short forms apply, or as many as fit and a test needs.
fn hops<A: Addr>(algorithm: &Algorithm<A>, many: bool) -> u32 {
    algorithm.limits.next_hop.min(if many { 70_000 } else { 100 })
}

fn sample<A: Addr>(algorithm: &Algorithm<A>, shape: Shape, seed: u64) -> Vec<Route<A>> {
    let mut routes = table(shape, 3000, hops(algorithm, seed.is_multiple_of(2)), seed);
    routes.retain(|(prefix, _)| prefix.len() <= algorithm.limits.prefix_len);
    routes
}

fn edge_probes<A: Addr>(routes: &[Route<A>]) -> Vec<A> {
    routes.iter().flat_map(|&(prefix, _)| probes(prefix)).collect()
}

fn rig<'a, A: Addr>(algorithm: &'a Algorithm<A>, routes: &[Route<A>]) -> Rig<'a, A> {
    Rig::new(algorithm, routes).expect("a table within the limits builds")
}

fn empty<A: Addr>(algorithm: &Algorithm<A>) {
    let mut rig = rig(algorithm, &[]);
    rig.verify(&[A::MIN, A::MAX, Rng::new(1).addr()], "empty");
    rig.lookup.lookup_batch(&[], &mut []);
    // Nothing to do is done in place, and readers keep what they have.
    let before = Arc::clone(&rig.lookup);
    rig.apply(&[], &mut NoReaders).expect("nothing to do");
    rig.apply(&[(Prefix::ALL, NextHopId::NONE)], &mut NoReaders).expect("nothing there");
    assert!(Arc::ptr_eq(&before, &rig.lookup) && rig.rebuilds == 0, "nothing was changed");
    let counters = rig.counters();
    assert!(counters.contains(&("prefixes", 0)), "{counters:?}");
}

fn edges<A: Addr>(algorithm: &Algorithm<A>) {
    for (shape, seed) in [(Shape::Hostile, 1), (Shape::Hostile, 2), (Shape::Internet, 4)] {
        let routes = sample(algorithm, shape, seed);
        let rig = rig(algorithm, &routes);
        let when = alloc::format!("{shape:?}, seed {seed}");
        rig.verify(&edge_probes(&routes), &when);
        let prefixes: Vec<_> = routes.iter().map(|&(prefix, _)| prefix).collect();
        for stream in [Stream::Uniform, Stream::Anywhere, Stream::Announced] {
            rig.verify(&Addresses::new(stream, &prefixes, seed).take(2000), &when);
        }
        let counters = rig.counters();
        assert!(counters.contains(&("prefixes", routes.len() as u64)), "{counters:?}");
    }
}

fn batches<A: Addr>(algorithm: &Algorithm<A>) {
    let routes = sample(algorithm, Shape::Hostile, 3);
    let rig = rig(algorithm, &routes);
    let prefixes: Vec<_> = routes.iter().map(|&(prefix, _)| prefix).collect();
    let mut addrs = Addresses::new(Stream::Edges, &prefixes, 3).take(300);
    addrs.extend(Addresses::new(Stream::Uniform, &prefixes, 3).take(300));
    let single: Vec<_> = addrs.iter().map(|&addr| rig.lookup.lookup(addr)).collect();
    let canary = NextHopId(0xdead_beef);
    for len in 0..=300 {
        // From both halves: the edges of routes, and addresses that few routes cover.
        for from in [0, 300 - len / 2] {
            let mut out = vec![canary; len + 3];
            rig.lookup.lookup_batch(&addrs[from..from + len], &mut out);
            assert_eq!(out[..len], single[from..from + len], "{algorithm:?}: batch of {len}");
            assert_eq!(out[len..], [canary; 3], "{algorithm:?}: batch of {len} wrote past its end");
        }
    }
    // One by one, and each after the one before: the loops that measurements take.
    let mut out = vec![canary; addrs.len() + 3];
    rig.lookup.lookup_each(&addrs, &mut out);
    assert_eq!((&out[..addrs.len()], &out[addrs.len()..]), (&single[..], &[canary; 3][..]));
    let mut out = vec![canary; addrs.len() + 3];
    rig.lookup.lookup_chain(&addrs, 0, &mut out);
    assert_eq!((&out[..addrs.len()], &out[addrs.len()..]), (&single[..], &[canary; 3][..]));
    // The same address all along, as a flood sends it.
    let mut out = vec![canary; 300];
    rig.lookup.lookup_batch(&[addrs[7]; 300], &mut out);
    assert_eq!(out, vec![single[7]; 300]);
    // In a thread of its own, whose name tells a panic hook that this one is meant.
    let lookup = Arc::clone(&rig.lookup);
    let asked: Vec<A> = addrs[..4].to_vec();
    let short = move || lookup.lookup_batch(&asked, &mut [canary; 3]);
    let short = thread::Builder::new().name(EXPECTED_PANIC.into()).spawn(short);
    assert!(
        short.expect("a thread").join().is_err(),
        "{algorithm:?}: an `out` that is too short is a bug of the caller"
    );
}

/// One change at a time on a few routes, all of it checked after each.
fn small_steps<A: Addr>(algorithm: &Algorithm<A>) {
    let mut rig = rig(algorithm, &[]);
    let mut rng = Rng::new(11);
    let mut routes = sample(algorithm, Shape::Hostile, 5);
    routes.retain(|_| rng.chance(1));
    routes.push((Prefix::host(A::MAX), NextHopId(1)));
    let all = edge_probes(&routes);
    for &route in &routes {
        rig.apply(&[route], &mut NoReaders).expect("a route within the limits");
        rig.verify(&all, "one by one");
    }
    for &(prefix, hop) in &routes {
        let other = NextHopId(if hop.0 == 1 { 2 } else { 1 });
        rig.apply(&[(prefix, other)], &mut NoReaders).expect("a new next hop");
        rig.verify(&all, "next hop changed");
    }
    for &(prefix, _) in routes.iter().rev() {
        rig.apply(&[(prefix, NextHopId::NONE)], &mut NoReaders).expect("a withdrawal");
        rig.verify(&all, "withdrawn one by one");
    }
}

/// A random step: some routes new, some changed, some gone, and now and then the same one twice.
fn step<A: Addr>(rng: &mut Rng, routes: &[Route<A>], hops: u32, most: usize) -> Vec<Route<A>> {
    let count = rng.below(most) + 1;
    let mut wanted: Vec<Route<A>> = Vec::with_capacity(count);
    while wanted.len() < count {
        let (prefix, _) = routes[rng.below(routes.len())];
        // Short prefixes are rare in updates, and slow for some.
        if prefix.len() < 8 && !rng.chance(5) {
            continue;
        }
        let hop = if rng.chance(40) { NextHopId::NONE } else { skewed_hop(hops, rng) };
        wanted.push((prefix, hop));
    }
    wanted
}

fn churn<A: Addr>(algorithm: &Algorithm<A>) {
    let fresh = rig(algorithm, &[]).counters();
    for seed in [6, 7] {
        let routes = sample(algorithm, Shape::Hostile, seed);
        let (start, _) = routes.split_at(routes.len() / 2);
        let mut rig = rig(algorithm, start);
        let mut rng = Rng::new(seed);
        for round in 0..40 {
            let wanted = step(&mut rng, &routes, hops(algorithm, seed == 6), 60);
            rig.apply(&wanted, &mut NoReaders).expect("changes within the limits");
            rig.verify(&edge_probes(&wanted), &alloc::format!("seed {seed}, round {round}"));
        }
        rig.verify(&edge_probes(&routes), "after churn");
        let now: Vec<_> = rig.routes.iter().map(|(prefix, &hop)| (prefix, hop)).collect();
        let rebuilt = self::rig(algorithm, &now);
        assert_eq!(rig.counters(), rebuilt.counters(), "{algorithm:?}: incremental, rebuilt");
        for group in now.chunks(500) {
            let wanted: Vec<_> = group.iter().map(|&(p, _)| (p, NextHopId::NONE)).collect();
            rig.apply(&wanted, &mut NoReaders).expect("withdrawals");
            rig.verify(&edge_probes(&wanted[..20.min(wanted.len())]), "withdrawing");
        }
        assert!(rig.routes.is_empty());
        assert_eq!(rig.counters(), fresh, "{algorithm:?}: everything withdrawn, never filled");
    }
}

fn limits<A: Addr>(algorithm: &Algorithm<A>) {
    let limits = &algorithm.limits;
    let mut routes = sample(algorithm, Shape::Internet, 9);
    routes.truncate(500);
    let max = NextHopId(limits.next_hop);
    let prefix = Prefix::masked(routes[7].0.addr(), limits.prefix_len);
    let mut rig = rig(algorithm, &routes);
    rig.apply(&[(prefix, max)], &mut NoReaders).expect("the greatest next hop fits");
    let mut all = edge_probes(&routes);
    all.extend(probes(prefix));
    rig.verify(&all, "at the limit");

    let mut past = Vec::new();
    if let Some(next_hop) = limits.next_hop.checked_add(1) {
        past.push((prefix, NextHopId(next_hop)));
        past.push((Prefix::ALL, NextHopId(next_hop)));
        past.push((Prefix::ALL, NextHopId(u32::MAX)));
    }
    if limits.prefix_len < A::BITS {
        past.push((Prefix::masked(prefix.addr(), limits.prefix_len + 1), NextHopId(1)));
    }
    let before = rig.counters();
    for &route in &past {
        // Good changes around the bad one must not come through either.
        let wanted = [(routes[1].0, NextHopId(3)), route, (routes[2].0, NextHopId::NONE)];
        let refused = rig.apply(&wanted, &mut NoReaders);
        assert!(
            matches!(refused, Err(UpdateError::Limit { max, got, .. }) if got > max),
            "{algorithm:?}: {route:?} gave {refused:?}"
        );
        rig.verify(&all, "after a refusal");
        assert_eq!(rig.counters(), before, "{algorithm:?}: a refusal changed something");
        let built = Rig::new(algorithm, &[route]);
        assert!(matches!(built.err(), Some(UpdateError::Limit { .. })), "{algorithm:?}: {route:?}");
    }
    rig.apply(&[(prefix, NextHopId(1))], &mut NoReaders).expect("goes on");
    rig.verify(&all, "went on");
}

fn refused_memory<A: Addr>(algorithm: &Algorithm<A>) {
    let routes = sample(algorithm, Shape::Internet, 10);
    let rig = rig(algorithm, &routes);
    let mut given = 0;
    while let Err(error) = algorithm.build(&rig.routes, &mut FailingMemory { left: given }) {
        assert!(matches!(error, UpdateError::Memory { .. }), "{algorithm:?}: {error}");
        given += 1;
        assert!(given < 64, "{algorithm:?} never has enough");
    }
    assert!(given > 0, "{algorithm:?} takes its readers' memory from `memory`");
    rig.verify(&edge_probes(&routes[..100]), "beside failed builds");
}

/// Readers that never pass: answers stay right, and memory does not grow without bound.
fn held_readers<A: Addr>(algorithm: &Algorithm<A>) {
    let routes = sample(algorithm, Shape::Hostile, 12);
    let mut rig = rig(algorithm, &routes);
    let fresh: usize = rig.lookup.regions().iter().map(|region| region.bytes()).sum();
    let mut rng = Rng::new(12);
    let mut grace = HeldGrace::default();
    for round in 0..150 {
        if round == 130 {
            grace.release();
        }
        let wanted = step(&mut rng, &routes, hops(algorithm, true), 30);
        let probes = edge_probes(&wanted);
        let before = rig.counters();
        if let Err(error) = rig.apply_in_place(&wanted, &mut grace) {
            assert_eq!(error, UpdateError::Rebuild, "{algorithm:?}");
            rig.verify(&probes, "a step that found no room");
            assert_eq!(rig.counters(), before, "{algorithm:?}: a step that found no room");
            // Readers that go on may make the room; a table that was refused a step can be asked again.
            if round % 2 == 0 {
                grace.release();
            }
            rig.apply(&wanted, &mut grace).expect("changes within the limits");
            rig.verify(&probes, "the step once more");
        }
        if round % 5 == 0 {
            rig.verify(&probes, "readers hold on");
        }
        let bytes: usize = rig.lookup.regions().iter().map(|region| region.bytes()).sum();
        assert!(bytes <= 4 * fresh, "{algorithm:?}: {fresh} bytes became {bytes}");
    }
    rig.verify(&edge_probes(&routes), "readers held on");
    // What waited is had back with the next change.
    grace.release();
    let (prefix, hop) = routes[routes.len() / 2];
    let other = NextHopId(if hop.0 == 1 { 2 } else { 1 });
    for hop in [other, hop] {
        rig.apply(&[(prefix, hop)], &mut grace).expect("a change");
        grace.release();
    }
    rig.apply(&[], &mut grace).expect("nothing to do");
    let now: Vec<_> = rig.routes.iter().map(|(prefix, &hop)| (prefix, hop)).collect();
    let rebuilt = self::rig(algorithm, &now);
    assert_eq!(rig.counters(), rebuilt.counters(), "{algorithm:?}: something still waits");
}

fn reopened<A: Addr>(algorithm: &Algorithm<A>) {
    let Some(open) = algorithm.open else { return };
    let routes = sample(algorithm, Shape::Hostile, 14);
    let mut rig = rig(algorithm, &routes);
    let wanted = step(&mut Rng::new(14), &routes, hops(algorithm, true), 60);
    rig.apply(&wanted, &mut NoReaders).expect("changes within the limits");
    let before = rig.counters();
    let mut saved = copy_regions(rig.lookup.regions());
    saved.reverse();
    rig.lookup = open(&saved).expect("what was saved opens");
    rig.verify(&edge_probes(&routes), "opened");
    assert_eq!(rig.counters(), before, "{algorithm:?}: saved, opened");
    for missing in 0..saved.len() {
        let mut saved = saved.clone();
        saved.remove(missing);
        assert!(open(&saved).is_err(), "{algorithm:?}: opened without region {missing}");
    }
}

/// Saved bytes come from outside: what was damaged is refused, or answers without harm.
fn damaged<A: Addr>(algorithm: &Algorithm<A>) {
    let Some(open) = algorithm.open else { return };
    let routes = sample(algorithm, Shape::Hostile, 15);
    let rig = rig(algorithm, &routes);
    let all = edge_probes(&routes);
    let harmless = |lookup: &dyn Lookup<A>| harmless(algorithm.name, lookup, &all);
    let saved = copy_regions(rig.lookup.regions());
    for cut in 0..saved.len() {
        for bytes in [0, saved[cut].bytes() / 2] {
            let mut cut_off = saved.clone();
            let short = Heap.region(saved[cut].name(), bytes).expect("memory for a copy");
            for (to, from) in short.u64s().iter().zip(saved[cut].u64s()) {
                to.store(from.load(Relaxed), Relaxed);
            }
            cut_off[cut] = short;
            if let Ok(lookup) = open(&cut_off) {
                harmless(&*lookup);
            }
        }
    }
    let mut rng = Rng::new(15);
    for round in 0..24 {
        let words = saved[round % saved.len()].u32s();
        // One word in so many, from one on; all of them become the same nonsense, or lose a bit.
        let stride = [words.len(), 1 << 10, 1 << 4][rng.below(3)];
        let from = rng.below(stride.min(words.len()));
        let new = [u32::MAX, rng.addr(), 1, u32::try_from(words.len()).expect("a small table")]
            [rng.below(4)];
        let flip = rng.chance(30).then(|| 1 << rng.below(32));
        let hit = || words.iter().skip(from).step_by(stride);
        let old: Vec<u32> = hit().map(|word| word.load(Relaxed)).collect();
        for (word, &old) in hit().zip(&old) {
            word.store(flip.map_or(new, |bit: u32| old ^ bit), Relaxed);
        }
        if let Ok(lookup) = open(&saved) {
            harmless(&*lookup);
        }
        for (word, &old) in hit().zip(&old) {
            word.store(old, Relaxed);
        }
    }
    assert!(open(&saved).is_ok(), "{algorithm:?}: the undamaged copy opens");
}

/// A writer turns one table into another and back while readers look. An answer that belongs to
/// neither is a bug of ordering, or memory used again too early.
fn concurrent_readers<A: Addr>(algorithm: &Algorithm<A>) {
    const READERS: usize = 2;
    const TURNS: usize = 60;
    let routes = sample(algorithm, Shape::Hostile, 16);
    let mut rig = rig(algorithm, &routes);
    let mut rng = Rng::new(16);
    let there = step(&mut rng, &routes, hops(algorithm, false), 120);
    let back: Vec<_> = there
        .iter()
        .map(|&(prefix, _)| (prefix, rig.routes.get(prefix).copied().unwrap_or_default()))
        .collect();
    let mut addrs = edge_probes(&there);
    addrs.extend(edge_probes(&routes[..50]));
    let answers = |rig: &Rig<'_, A>| addrs.iter().map(|&a| rig.oracle.lookup(a)).collect();
    let before: Vec<NextHopId> = answers(&rig);
    rig.apply(&there, &mut NoReaders).expect("changes within the limits");
    let after: Vec<NextHopId> = answers(&rig);

    let mut grace = ReaderGrace::new(READERS);
    let current = Mutex::new(Arc::clone(&rig.lookup));
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for reader in 0..READERS {
            let (addrs, before, after) = (&addrs, &before, &after);
            let (grace, current, done) = (grace.clone(), &current, &done);
            scope.spawn(move || {
                let _leave = Leave(&grace, reader);
                let mut out = vec![NextHopId::NONE; addrs.len()];
                let mut rounds = 0;
                while rounds < 3 || !done.load(SeqCst) {
                    rounds += 1;
                    let lookup = Arc::clone(&current.lock().expect("no reader panics with it"));
                    lookup.lookup_batch(addrs, &mut out);
                    for (i, &addr) in addrs.iter().enumerate() {
                        let single = lookup.lookup(addr);
                        for got in [out[i], single] {
                            assert!(
                                got == before[i] || got == after[i],
                                "{algorithm:?}: {} is {:?}, then {:?}, never {got:?}",
                                addr.to_ip(),
                                before[i],
                                after[i]
                            );
                        }
                    }
                    drop(lookup);
                    grace.quiesce(reader);
                }
            });
        }
        // A writer that panics must not leave the readers waiting.
        let turns = catch_unwind(AssertUnwindSafe(|| {
            for _ in 0..TURNS {
                for wanted in [&back, &there] {
                    rig.apply(wanted, &mut grace).expect("changes within the limits");
                    *current.lock().expect("no reader panics with it") = Arc::clone(&rig.lookup);
                }
            }
        }));
        done.store(true, SeqCst);
        turns.expect("the writer goes through");
    });
    rig.verify(&addrs, "after the readers left");
}

/// A reader that ends, however it ends, holds the writer up no longer.
struct Leave<'a>(&'a ReaderGrace, usize);

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        self.0.leave(self.1);
    }
}
