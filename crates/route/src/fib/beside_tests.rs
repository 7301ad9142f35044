//! Builds by another thread: changes while they run, bursts, and what a kernel reader does ahead.

use std::sync::Mutex;
use std::time::Duration;

use fingerpost_lpm::{Heap, MemoryMaker, Rng, RouteStore};

use super::tests::commit;
use super::*;

/// Jobs that wait until they are run.
#[derive(Clone, Default)]
pub(super) struct Jobs(Arc<Mutex<Vec<Job>>>);

impl Jobs {
    pub(super) fn runner(&self) -> Runner {
        let jobs = self.0.clone();
        Runner::new(move |job| jobs.lock().unwrap().push(job))
    }

    pub(super) fn run(&self) {
        let jobs = std::mem::take(&mut *self.0.lock().unwrap());
        jobs.into_iter().for_each(|job| job());
    }
}

/// A prefix among those of the churn: nested ones, and some alone, about six for each of `places`.
fn some_prefix(rng: &mut Rng, places: usize) -> Prefix<u32> {
    let n = u32::try_from(rng.below(places)).unwrap();
    let len = 20 + u8::try_from(rng.below(8)).unwrap();
    Prefix::masked((20 << 24) + (n << 8), len)
}

fn churn(
    fib: &mut Fib<u32>,
    store: &mut RouteStore<u32>,
    rng: &mut Rng,
    (places, changes): (usize, u32),
) {
    for _ in 0..changes {
        let prefix = some_prefix(rng, places);
        let hop = NextHopId(u32::try_from(rng.below(60)).unwrap());
        let old = if hop.is_none() { store.remove(prefix) } else { store.insert(prefix, hop) };
        if old.unwrap_or_default() != hop {
            fib.note(prefix, old.unwrap_or_default());
        }
    }
}

#[track_caller]
fn answers(fib: &Fib<u32>, store: &RouteStore<u32>, rng: &mut Rng, what: &str) {
    for _ in 0..2000 {
        let addr =
            some_prefix(rng, 4000).first().wrapping_sub(u32::try_from(rng.below(3)).unwrap());
        let want = store.longest_match(addr).map_or(NextHopId::NONE, |(_, hop)| *hop);
        assert_eq!(fib.lookup().lookup(addr), want, "{what}: {addr:#x}");
    }
}

/// Each algorithm takes the place of another one while routes change: before, between and after the pieces of the copy,
/// while it is built, and while it catches up.
#[test]
fn a_table_that_is_built_beside_has_the_changes_since() {
    let mut all_beside = 0;
    for row in fingerpost_lpm::v4() {
        let (jobs, mut rng, mut store) = (Jobs::default(), Rng::new(7), RouteStore::new());
        let first = if row.name == "radix" { "bc18" } else { "radix" };
        let mut fib = Fib::new(fingerpost_lpm::v4());
        fib.pin(Some(first)).unwrap();
        churn(&mut fib, &mut store, &mut rng, (4000, 200_000));
        let mut now = Instant::now();
        commit(&mut fib, &store, now).unwrap();
        fib.build_beside(jobs.runner());
        fib.pin(Some(row.name)).unwrap();
        let (mut steps, mut seen) = (0, 0);
        while fib.algorithm() == first {
            churn(&mut fib, &mut store, &mut rng, (4000, 150));
            now += Duration::from_millis(100);
            let brought = commit(&mut fib, &store, now).unwrap();
            if brought.pending == 0 {
                answers(&fib, &store, &mut rng, row.name);
                seen += 1;
            }
            steps += 1;
            assert!(steps < 1000, "{}: {:?}", row.name, fib.take_decisions());
            // The job runs some commits after it was given.
            if steps % 5 == 0 {
                jobs.run();
            }
        }
        assert!(steps > 3 && seen > 0, "{}: {steps} {seen}", row.name);
        // For one that cannot be changed in place, changes of the table before it waited.
        let FibCounts { builds, beside, .. } = fib.counts();
        assert_eq!(builds, 2, "{}: {:?}", row.name, fib.counts());
        all_beside += beside;
        // What it cannot take in place is built beside again; in the end all is there.
        for _ in 0..100 {
            now += Duration::from_millis(1100);
            commit(&mut fib, &store, now).unwrap();
            jobs.run();
        }
        assert!(fib.caught_up(), "{}: {}", row.name, fib.pending());
        answers(&fib, &store, &mut rng, row.name);
        jobs.run();
    }
    assert!(all_beside > 2, "{all_beside}");
}

#[test]
fn a_burst_of_changes_is_visible_in_pieces_and_at_once_where_a_commit_waits() {
    let (jobs, mut rng, mut store) = (Jobs::default(), Rng::new(8), RouteStore::new());
    let mut fib = Fib::new(fingerpost_lpm::v4().filter(|row| row.name == "bc18"));
    churn(&mut fib, &mut store, &mut rng, (40_000, 300_000));
    let mut now = Instant::now();
    commit(&mut fib, &store, now).unwrap();
    fib.build_beside(jobs.runner());
    for waits in [false, true] {
        churn(&mut fib, &mut store, &mut rng, (40_000, 20_000));
        fib.force();
        fib.set_waits(waits);
        let (mut commits, mut changes) = (0, 0);
        loop {
            let brought = commit(&mut fib, &store, now).unwrap();
            commits += 1;
            changes += brought.changes;
            assert!(waits || brought.changes <= changes && brought.pending < 20_000);
            if brought.pending == 0 {
                break;
            }
            assert!(fib.has_step(now));
            now += Duration::from_millis(1);
        }
        assert_eq!(commits > 3, !waits, "{commits}");
        assert!(changes > 10_000, "{changes}");
        answers(&fib, &store, &mut rng, "burst");
        now += Duration::from_secs(10);
    }
    fib.set_waits(false);
    // A change of most of the table is built beside, and a commit that waits builds by itself.
    for waits in [false, true] {
        let all: Vec<_> = store.iter().map(|(prefix, hop)| (prefix, *hop)).collect();
        for (prefix, hop) in all {
            store.insert(prefix, NextHopId(hop.0 % 60 + 1));
            fib.note(prefix, hop);
        }
        fib.force();
        assert!(commit(&mut fib, &store, now).unwrap().pending > 0);
        fib.set_waits(waits);
        let before = fib.counts();
        while fib.pending() > 0 {
            commit(&mut fib, &store, now).unwrap();
            jobs.run();
        }
        let (after, beside) = (fib.counts(), u64::from(!waits));
        assert_eq!((after.builds - before.builds, after.beside - before.beside), (1, beside));
        answers(&fib, &store, &mut rng, "most of the table");
        fib.set_waits(false);
    }
}

/// A table that a kernel reader prepared for, with the number of its FIB.
type Prepared = (u16, Arc<dyn Lookup<u32>>);

/// Kernel reader that keeps what it prepares for.
#[derive(Default)]
struct Known(Mutex<Vec<Prepared>>);

impl KernelAhead for Known {
    fn prepare_v4(&self, fib: u16, next: Arc<dyn Lookup<u32>>) {
        self.0.lock().unwrap().push((fib, next));
    }

    fn prepare_v6(&self, _: u16, _: Arc<dyn Lookup<u128>>) {
        panic!("this is a table of IPv4");
    }
}

#[test]
fn a_kernel_reader_knows_a_table_before_readers_get_it_however_small() {
    for (places, changes) in [(4, 2), (4, 40), (4000, 150)] {
        let (jobs, mut rng, mut store) = (Jobs::default(), Rng::new(9), RouteStore::new());
        let mut fib = Fib::new(fingerpost_lpm::v4());
        fib.pin(Some("bc18")).unwrap();
        let known = Arc::new(Known::default());
        let (memory, ahead) = (MemoryMaker::new(|| Box::new(Heap)), Some(known.clone() as _));
        fib.share(Shared { memory, reads: |_| true, ahead, fib: 3 });
        fib.build_beside(jobs.runner());
        churn(&mut fib, &mut store, &mut rng, (places, 20));
        let mut now = Instant::now();
        commit(&mut fib, &store, now).unwrap();
        let mut builds = 0;
        for _ in 0..400 {
            let before = fib.counts().beside;
            churn(&mut fib, &mut store, &mut rng, (places, changes));
            if rng.below(20) == 0 {
                fib.pin(Some(["bc18", "dxr18"][rng.below(2)])).unwrap();
            }
            now += Duration::from_millis(100);
            let _ = commit(&mut fib, &store, now);
            if fib.counts().beside > before {
                builds += 1;
                let last = known.0.lock().unwrap().last().cloned().expect("it was built beside");
                assert!(last.0 == 3 && Arc::ptr_eq(&last.1, fib.lookup()), "{places} {changes}");
            }
            if rng.below(3) == 0 {
                jobs.run();
            }
        }
        assert!(builds > 3, "{builds}");
    }
}

/// bsearch takes no changes: each table of it that is built beside lacks those since, which the one before it has.
#[test]
fn a_commit_that_waits_leaves_nothing_to_a_build_that_cannot_catch_up() {
    let (jobs, mut rng, mut store) = (Jobs::default(), Rng::new(10), RouteStore::new());
    let mut fib = Fib::new(fingerpost_lpm::v4());
    let rarely =
        FibOptions { evaluation_changes: 1_000_000, evaluation_s: 3600, ..FibOptions::default() };
    fib.set_options(rarely);
    fib.pin(Some("radix")).unwrap();
    churn(&mut fib, &mut store, &mut rng, (4000, 60_000));
    let mut now = Instant::now();
    commit(&mut fib, &store, now).unwrap();
    fib.build_beside(jobs.runner());
    fib.pin(Some("bsearch")).unwrap();
    fib.force();
    let mut commits = 0;
    while fib.algorithm() == "radix" {
        churn(&mut fib, &mut store, &mut rng, (4000, 20));
        now += Duration::from_millis(10);
        fib.force();
        fib.set_waits(commits > 0);
        let brought = commit(&mut fib, &store, now).unwrap();
        assert!(brought.pending == 0 || commits == 0, "commit {commits}: {brought:?}");
        answers(&fib, &store, &mut rng, "waits");
        jobs.run();
        commits += 1;
        assert!(commits < 1000, "{:?}", fib.take_decisions());
        if !fib.is_building() {
            break;
        }
    }
    assert!(commits > 2, "{commits}");
}

/// A route whose prefix is behind all others in the order of pieces, while more changes come than a piece takes, and while
/// a table is built.
#[test]
fn a_change_is_shown_though_others_come_without_an_end() {
    let (mut fib, mut store, jobs, mut rng) = of_radix(14, (40_000, 300_000));
    let mut now = Instant::now();
    let mut next = NextHopId(61);
    let last = Prefix::masked(240 << 24, 8);
    for built in [false, true, false] {
        if built {
            fib.pin(Some("bc18")).unwrap();
        }
        for burst in [0, 6000, 20_000] {
            churn(&mut fib, &mut store, &mut rng, (40_000, burst));
            let old = store.insert(last, next);
            fib.note(last, old.unwrap_or_default());
            let (mark, mut steps) = (fib.noted(), 0);
            fib.force();
            loop {
                now += Duration::from_millis(10);
                commit(&mut fib, &store, now).unwrap();
                jobs.run();
                if fib.shows(mark) {
                    break;
                }
                steps += 1;
                assert!(steps < 500, "{burst}: {} pending", fib.pending());
                // As sources that wait: on a slow machine a build has no more of them in a step.
                if !fib.holds_sources() {
                    churn(&mut fib, &mut store, &mut rng, (40_000, 5000));
                }
            }
            assert_eq!(fib.lookup().lookup(240 << 24), next, "{burst}");
            churn(&mut fib, &mut store, &mut rng, (40_000, 100));
            assert!(fib.shows(mark) && !fib.shows(fib.noted()));
            next = NextHopId(123 - next.0);
        }
    }
}

/// More changes come than a step catches up with, from sources that wait where they are to.
#[test]
fn a_build_beside_a_storm_ends_and_lacks_a_bounded_number_of_changes() {
    const STORM: u32 = 20_000;
    let (mut fib, mut store, jobs, mut rng) = of_radix(15, (40_000, 300_000));
    let mut now = Instant::now();
    fib.pin(Some("bc18")).unwrap();
    fib.force();
    let (mut commits, mut held, mut most) = (0, 0, 0);
    while fib.algorithm() == "radix" {
        now += Duration::from_millis(10);
        commit(&mut fib, &store, now).unwrap();
        most = most.max(fib.served.beside.lacks());
        if fib.holds_sources() {
            held += 1;
        } else {
            churn(&mut fib, &mut store, &mut rng, (40_000, STORM));
        }
        commits += 1;
        assert!(commits < 20_000, "{} lacks", fib.served.beside.lacks());
        // It is built for as long as the storm takes to have the sources wait.
        if held > 0 || commits > 500 {
            jobs.run();
        }
    }
    assert!(held > 0 && most <= beside::MOST_BEHIND + STORM as usize, "{held} {most}");
    while !fib.caught_up() {
        now += Duration::from_secs(2);
        commit(&mut fib, &store, now).unwrap();
        jobs.run();
    }
    assert!(!fib.holds_sources());
    answers(&fib, &store, &mut rng, "after a storm");
}

#[test]
fn few_prefixes_that_flap_and_few_changes_hold_no_sources() {
    let (mut fib, mut store, jobs, mut rng) = of_radix(19, (40_000, 300_000));
    let mut now = Instant::now();
    fib.pin(Some("bc18")).unwrap();
    fib.force();
    while !fib.served.beside.is_active() || fib.has_step(now) {
        commit(&mut fib, &store, now).unwrap();
    }
    for turn in 0..200 {
        for n in 0..1000 {
            let prefix = Prefix::masked((20 << 24) + (n << 8), 24);
            let old = store.insert(prefix, NextHopId(1 + turn % 2)).unwrap_or_default();
            fib.note(prefix, old);
        }
        now += Duration::from_millis(10);
        commit(&mut fib, &store, now).unwrap();
        assert!(!fib.holds_sources(), "{turn}: {}", fib.served.beside.lacks());
    }
    // Many that it catches up with in many steps, while some come.
    churn(&mut fib, &mut store, &mut rng, (40_000, 60_000));
    commit(&mut fib, &store, now).unwrap();
    jobs.run();
    let mut steps = 0;
    while fib.algorithm() == "radix" {
        churn(&mut fib, &mut store, &mut rng, (40_000, 1));
        now += Duration::from_millis(10);
        commit(&mut fib, &store, now).unwrap();
        jobs.run();
        assert!(!fib.holds_sources(), "{}", fib.served.beside.lacks());
        steps += 1;
        assert!(steps < 10_000);
    }
    assert!(steps > 3, "{steps}");
}

#[test]
fn what_is_still_to_be_copied_is_not_recorded() {
    let (mut fib, mut store, jobs, mut rng) = of_radix(16, (40_000, 300_000));
    let mut now = Instant::now();
    fib.pin(Some("bc18")).unwrap();
    let [first, last] = [Prefix::masked(16 << 24, 8), Prefix::masked(240 << 24, 8)];
    fib.force();
    commit(&mut fib, &store, now).unwrap();
    commit(&mut fib, &store, now).unwrap();
    assert!(fib.is_building());
    for (prefix, lacks) in [(last, 0), (first, 1)] {
        let old = store.insert(prefix, NextHopId(9));
        fib.note(prefix, old.unwrap_or_default());
        fib.force();
        commit(&mut fib, &store, now).unwrap();
        assert_eq!(fib.served.beside.lacks(), lacks, "{prefix}");
    }
    while fib.algorithm() == "radix" {
        now += Duration::from_millis(10);
        commit(&mut fib, &store, now).unwrap();
        jobs.run();
    }
    for prefix in [first, last] {
        assert_eq!(fib.lookup().lookup(prefix.first()), NextHopId(9), "{prefix}");
    }
    answers(&fib, &store, &mut rng, "copied");
}

/// A list of all of them would be one long turn of the writer.
#[test]
fn a_table_that_lacks_very_many_changes_is_built_again() {
    let (mut fib, mut store, jobs, mut rng) = of_radix(17, (40_000, 300_000));
    let mut now = Instant::now();
    fib.pin(Some("bsearch")).unwrap();
    // So many that they are not listed.
    churn(&mut fib, &mut store, &mut rng, (40_000, 150_000));
    fib.force();
    while !fib.served.beside.is_active() || fib.has_step(now) {
        commit(&mut fib, &store, now).unwrap();
    }
    churn(&mut fib, &mut store, &mut rng, (40_000, 100_000));
    while fib.algorithm() == "radix" {
        now += Duration::from_millis(10);
        commit(&mut fib, &store, now).unwrap();
        jobs.run();
    }
    assert_eq!(fib.backlog().listed(), 0);
    assert!(fib.pending() > MOST_LISTED && !fib.caught_up(), "{}", fib.pending());
    while !fib.caught_up() {
        now += Duration::from_secs(2);
        commit(&mut fib, &store, now).unwrap();
        jobs.run();
    }
    answers(&fib, &store, &mut rng, "built again");
}

/// bsearch takes no changes. Of those since its build began some are in the present table, and a burst waits behind them.
#[test]
fn a_table_does_not_take_back_what_the_one_before_it_has() {
    let (mut fib, mut store, jobs, mut rng) = of_radix(18, (40_000, 300_000));
    let mut now = Instant::now();
    fib.pin(Some("bsearch")).unwrap();
    fib.force();
    while !fib.served.beside.is_active() || fib.has_step(now) {
        commit(&mut fib, &store, now).unwrap();
    }
    let (first, hop) = (Prefix::masked(16 << 24, 8), NextHopId(9));
    let old = store.insert(first, hop);
    fib.note(first, old.unwrap_or_default());
    fib.force();
    commit(&mut fib, &store, now).unwrap();
    assert_eq!((fib.lookup().lookup(first.first()), fib.algorithm()), (hop, "radix"));
    // So many that they are not listed.
    churn(&mut fib, &mut store, &mut rng, (40_000, 150_000));
    let mut commits = 0;
    while !fib.caught_up() {
        now += Duration::from_millis(500);
        commit(&mut fib, &store, now).unwrap();
        assert_eq!(fib.lookup().lookup(first.first()), hop, "{}", fib.algorithm());
        jobs.run();
        commits += 1;
        assert!(commits < 1000, "{:?}", fib.take_decisions());
    }
    assert_eq!(fib.algorithm(), "bsearch");
    answers(&fib, &store, &mut rng, "overtaken");
}

#[test]
fn a_piece_of_a_round_has_fewer_changes_where_they_cost_more() {
    let mut fib = Fib::new(fingerpost_lpm::v4());
    let (now, ms) = (Instant::now(), Duration::from_millis(1));
    assert_eq!(fib.piece(Duration::ZERO), MOST_APPLIED);
    let round =
        Round { cost: 400 * ms, changes: 100_000, built: false, refused: false, beside: false };
    fib.batching.done(round, now);
    let (alone, behind_step) = (fib.piece(Duration::ZERO), fib.piece(6 * ms));
    assert!((1400..1600).contains(&alone), "6 ms at 4 us: {alone}");
    assert!((450..550).contains(&behind_step), "2 ms: {behind_step}");
    fib.batching.done(Round { cost: 100_000 * ms, ..round }, now);
    assert_eq!(fib.piece(Duration::ZERO), FEWEST_APPLIED);
    (0..100_000).for_each(|n| fib.note(Prefix::masked(n << 8, 24), NextHopId(1)));
    assert_eq!(fib.piece(Duration::ZERO), 100_000 / PIECES, "a long list");
}

/// A table of `radix` with so many places and changes, whose next structures are built by jobs.
fn of_radix(seed: u64, size: (usize, u32)) -> (Fib<u32>, RouteStore<u32>, Jobs, Rng) {
    let (jobs, mut rng, mut store) = (Jobs::default(), Rng::new(seed), RouteStore::new());
    let mut fib = Fib::new(fingerpost_lpm::v4());
    fib.pin(Some("radix")).unwrap();
    churn(&mut fib, &mut store, &mut rng, size);
    commit(&mut fib, &store, Instant::now()).unwrap();
    fib.build_beside(jobs.runner());
    (fib, store, jobs, rng)
}

/// The daemon polls without a wait while a commit has a step to do.
#[test]
fn a_piece_that_a_build_takes_the_place_of_leaves_no_step() {
    let (mut fib, mut store, jobs, mut rng) = of_radix(11, (40_000, 300_000));
    let mut now = Instant::now();
    churn(&mut fib, &mut store, &mut rng, (40_000, 12_000));
    fib.force();
    commit(&mut fib, &store, now).unwrap();
    assert!(fib.has_step(now) && fib.pending() > 0);
    // So many more that a build is cheaper.
    churn(&mut fib, &mut store, &mut rng, (40_000, 150_000));
    let (mut idle, mut commits) = (0, 0);
    while !fib.caught_up() {
        now += Duration::from_millis(1);
        commits += 1;
        assert!(commits < 3000, "{:?}", fib.take_decisions());
        commit(&mut fib, &store, now).unwrap();
        // A build that runs is looked at later.
        idle += u32::from(!fib.has_step(now) && fib.is_building());
        if idle == 3 {
            jobs.run();
        }
    }
    assert!(idle >= 3 && fib.counts().beside == 1, "{idle} {:?}", fib.counts());
    answers(&fib, &store, &mut rng, "built");
}

/// Who pins an algorithm is answered once nothing is being built: also where that waits for a build of another one.
#[test]
fn a_choice_that_waits_for_a_build_is_part_of_it() {
    let (mut fib, store, jobs, _) = of_radix(13, (4000, 60_000));
    let mut now = Instant::now();
    for name in ["bc18", "bsearch"] {
        fib.pin(Some(name)).unwrap();
        fib.force();
        commit(&mut fib, &store, now).unwrap();
        assert!(fib.is_building());
    }
    let mut used = vec![fib.algorithm()];
    for _ in 0..1000 {
        now += Duration::from_millis(10);
        jobs.run();
        commit(&mut fib, &store, now).unwrap();
        used.push(fib.algorithm());
        if !fib.is_building() {
            break;
        }
    }
    used.dedup();
    assert_eq!(used, ["radix", "bc18", "bsearch"]);
}

#[test]
fn a_table_that_was_begun_in_other_memory_is_not_shared() {
    let (mut fib, store, jobs, _) = of_radix(12, (4000, 60_000));
    let mut now = Instant::now();
    fib.pin(Some("bc18")).unwrap();
    fib.force();
    commit(&mut fib, &store, now).unwrap();
    assert!(fib.is_building());
    let made = Arc::new(Mutex::new(0));
    let count = made.clone();
    let memory = MemoryMaker::new(move || {
        *count.lock().unwrap() += 1;
        Box::new(Heap)
    });
    fib.share(Shared { memory, reads: |_| true, ahead: None, fib: 0 });
    for _ in 0..1000 {
        now += Duration::from_millis(10);
        commit(&mut fib, &store, now).unwrap();
        jobs.run();
    }
    assert!(fib.caught_up() && fib.algorithm() == "bc18");
    assert_eq!(*made.lock().unwrap(), 1);
}
