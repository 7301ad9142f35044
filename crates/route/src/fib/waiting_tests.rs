//! Changes that flap while others of their block are applied: between the pieces of a round, and between the steps that
//! bring a table that was built beside up to date.

use std::time::Duration;

use fingerpost_lpm::{NoReaders, Rng, RouteStore};

use super::before::Waiting;
use super::beside_tests::Jobs;
use super::tests::best_of;
use super::*;

/// Prefixes of the test's tables: one that covers all others, and these.
const PREFIXES: u32 = 22_000;
/// Those of them that change: fewer than a build is cheaper for, more than a piece takes.
const CHANGING: u32 = 4600;
/// A next hop past the narrow formats of several algorithms, and within the limits of all.
const LARGE: u32 = 40_000;

/// The part of the first 32 bits that holds `bits`.
fn part<A: Addr>(bits: u32, len: u8) -> Prefix<A> {
    Prefix::masked(A::from_u128(u128::from(bits) << (A::BITS - 32)), len)
}

/// A prefix of the table; every fourth one of half of them changes.
fn some_prefix<A: Addr>(n: u32) -> Prefix<A> {
    let len = [24, 26, 23, 25][n as usize / 4 % 4];
    part((20 << 24) + (n << 8), len)
}

fn cover<A: Addr>() -> Prefix<A> {
    part(16 << 24, 5)
}

/// A FIB of this algorithm alone: some are never chosen by themselves.
fn pinned<A: Addr>(row: &'static Algorithm<A>) -> Fib<A> {
    let mut fib = Fib::new([row]);
    fib.pin(Some(row.name)).unwrap();
    fib
}

struct Rig<A: Addr> {
    fib: Fib<A>,
    store: RouteStore<A>,
    jobs: Jobs,
    rng: Rng,
    now: Instant,
}

impl<A: Addr> Rig<A> {
    fn new(algorithm: &'static Algorithm<A>, fib: Fib<A>) -> Self {
        let mut store = RouteStore::new();
        store.insert(cover(), NextHopId(1));
        for n in 0..PREFIXES {
            if n % 8 != 4 {
                store.insert(some_prefix(n), NextHopId(n % 50 + 1));
            }
        }
        let mut rig = Self {
            fib,
            store,
            jobs: Jobs::default(),
            rng: Rng::new(algorithm.name.len() as u64),
            now: Instant::now(),
        };
        rig.commit();
        rig.fib.build_beside(rig.jobs.runner());
        rig
    }

    fn commit(&mut self) -> Brought {
        self.now += Duration::from_millis(1);
        let done = self.fib.commit(best_of(&self.store), &self.store, &mut NoReaders, self.now);
        done.unwrap_or_else(|error| panic!("{}: {error}", self.fib.algorithm()))
    }

    fn set(&mut self, prefix: Prefix<A>, hop: u32) {
        let hop = NextHopId(hop);
        let old = match hop {
            NextHopId::NONE => self.store.remove(prefix),
            hop => self.store.insert(prefix, hop),
        };
        if old.unwrap_or_default() != hop {
            self.fib.note(prefix, old.unwrap_or_default());
        }
    }

    /// Changes the prefix that covers all, and `CHANGING` others.
    fn burst(&mut self) {
        for at in 0..CHANGING {
            let hop = if at % 5 == 0 { 0 } else { at % 50 + 2 };
            self.set(some_prefix(4 * at), hop);
        }
        self.set(cover(), 7);
    }

    /// Some of the burst go back to what they were, or on.
    fn flap(&mut self, changes: usize) {
        for _ in 0..changes {
            let n = 4 * u32::try_from(self.rng.below(CHANGING as usize)).unwrap();
            let before = if n % 8 == 4 { 0 } else { n % 50 + 1 };
            let hop =
                [before, before, n % 7, LARGE][self.rng.below(if n % 9 == 0 { 4 } else { 3 })];
            self.set(some_prefix(n), hop);
        }
    }

    /// The table holds the routes but for the changes that the backlog lists.
    #[track_caller]
    fn is_in_step(&self, name: &str) {
        if self.fib.state.is_listed() {
            let waiting = Waiting::new(self.fib.backlog.notes().iter().copied());
            let verified = self.fib.verify(&waiting.before(&self.store, 0), 1);
            assert_eq!(verified.differences, [], "{name}: {}", verified.mismatches);
        }
    }
}

fn flaps_between_pieces<A: Addr>(rows: impl Iterator<Item = &'static Algorithm<A>>) {
    let mut in_pieces = 0;
    for row in rows {
        let mut rig = Rig::new(row, pinned(row));
        rig.burst();
        rig.fib.force();
        let mut commits = 0;
        while !rig.fib.caught_up() {
            rig.commit();
            if commits < 4 {
                rig.is_in_step(row.name);
            }
            if commits < 6 {
                rig.flap(2000);
                if commits == 2 {
                    rig.set(cover(), 9);
                }
            } else {
                rig.now += Duration::from_secs(2);
            }
            rig.jobs.run();
            commits += 1;
            assert!(commits < 200, "{}: {:?}", row.name, rig.fib.take_decisions());
        }
        rig.is_in_step(row.name);
        in_pieces += u32::from(rig.fib.counts().applied > CHANGING.into());
    }
    assert!(in_pieces > 2, "{in_pieces}");
}

#[test]
fn a_flap_between_the_pieces_of_a_round_is_seen() {
    flaps_between_pieces(fingerpost_lpm::v4());
    flaps_between_pieces(fingerpost_lpm::v6());
}

fn flaps_while_catching_up<A: Addr>(
    rows: impl Fn() -> Box<dyn Iterator<Item = &'static Algorithm<A>>>,
) {
    let mut caught_up = 0;
    for row in rows() {
        let first = if row.name == "radix" { "tree_bitmap" } else { "radix" };
        let mut fib = Fib::new(rows());
        fib.pin(Some(first)).unwrap();
        let mut rig = Rig::new(row, fib);
        rig.fib.pin(Some(row.name)).unwrap();
        let mut commits = 0;
        while rig.fib.counts().beside == 0 {
            rig.commit();
            if commits == 0 {
                rig.burst();
            } else {
                rig.jobs.run();
                // A busy machine takes fewer at each step; it catches up in the end.
                if commits < 100 {
                    rig.flap(300);
                }
            }
            commits += 1;
            assert!(commits < 400, "{}: {:?}", row.name, rig.fib.take_decisions());
        }
        rig.is_in_step(row.name);
        caught_up += u32::from(rig.fib.algorithm() == row.name);
        while !rig.fib.caught_up() {
            rig.now += Duration::from_secs(2);
            rig.commit();
            rig.jobs.run();
            commits += 1;
            assert!(commits < 600, "{}: {:?}", row.name, rig.fib.take_decisions());
        }
        rig.is_in_step(row.name);
    }
    assert!(caught_up > 2, "{caught_up}");
}

#[test]
fn a_flap_between_the_steps_of_catching_up_is_seen() {
    flaps_while_catching_up(|| Box::new(fingerpost_lpm::v4()));
    flaps_while_catching_up(|| Box::new(fingerpost_lpm::v6()));
}

/// A step finds no room for all of its changes, and one of them has a next hop that the table does not hold.
#[test]
fn a_next_hop_past_the_format_of_a_table_waits_with_its_change() {
    for row in fingerpost_lpm::v4() {
        let mut rig = Rig::new(row, pinned(row));
        rig.fib.set_waits(true);
        for n in 0..100 {
            let hop = if n == 80 { LARGE } else { 3 };
            rig.set(some_prefix(n), hop);
        }
        rig.set(cover(), 5);
        rig.fib.force();
        rig.commit();
        assert!(rig.fib.caught_up(), "{}", row.name);
        rig.is_in_step(row.name);
    }
}
