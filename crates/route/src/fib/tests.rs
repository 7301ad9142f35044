//! Limits, pins, batches and failures, with algorithms that fail on purpose.

use super::served::Nothing;
use super::*;
use fingerpost_lpm::{
    Epoch, HugePages, Limits, Memory, NoReaders, Origin, Region, RouteStore, Table, TableStats,
};

/// Answers by the store's own search, and fails on purpose: limit at 4 prefixes, or no memory.
fn toy<const MAX: u64>(
    routes: &dyn Routes<u32>,
    memory: &mut dyn Memory,
) -> Result<Box<dyn Table<u32>>, UpdateError> {
    let got = routes.prefixes() as u64;
    if got > MAX {
        return Err(UpdateError::Limit { what: "toy", max: MAX, got });
    }
    memory.region("toy", 64)?;
    Ok(Box::new(Toy))
}

struct Toy;
impl Table<u32> for Toy {
    fn apply(
        &mut self,
        _: &[Change<u32>],
        _: &dyn Routes<u32>,
        _: &mut dyn Grace,
    ) -> Result<(), UpdateError> {
        Err(UpdateError::Rebuild)
    }
    fn publish(&mut self) -> Arc<dyn Lookup<u32>> {
        Arc::new(Nothing)
    }
}

const LIMITS: Limits = Limits { next_hop: 99, prefix_len: 32, note: "" };
static SMALL: Algorithm<u32> = Algorithm {
    name: "small",
    summary: "",
    source: "",
    origin: Origin::Own,
    limits: LIMITS,
    fitness: |stats: &TableStats| if stats.prefixes < 9 { 200 } else { 100 },
    make: toy::<3>,
    open: None,
    kernel_layout: None,
};
static LARGE: Algorithm<u32> =
    Algorithm { name: "large", fitness: |_| 150, make: toy::<1000>, ..SMALL_LIKE };
const SMALL_LIKE: Algorithm<u32> = Algorithm {
    name: "",
    summary: "",
    source: "",
    origin: Origin::Own,
    limits: LIMITS,
    fitness: |_| 0,
    make: toy::<0>,
    open: None,
    kernel_layout: None,
};

fn grow(fib: &mut Fib<u32>, store: &mut RouteStore<u32>, n: u32) -> Result<bool, UpdateError> {
    let prefix = Prefix::host(n);
    store.insert(prefix, NextHopId(n));
    let change = Change { prefix, old: NextHopId::NONE, new: NextHopId(n) };
    fib.apply(&[change], store, &mut NoReaders, Instant::now())
}

/// Decisions as lines.
fn lines(decisions: &[Decision]) -> String {
    decisions.iter().map(|decision| &*decision.text).collect::<Vec<_>>().join("\n")
}

#[test]
fn a_limit_moves_the_table_to_the_next_algorithm() {
    let mut fib = Fib::new([&SMALL, &LARGE]);
    let mut store = RouteStore::new();
    for n in 1..=3 {
        assert_eq!(grow(&mut fib, &mut store, n), Ok(true));
        assert_eq!(fib.algorithm(), "small");
    }
    assert_eq!(grow(&mut fib, &mut store, 4), Ok(true));
    assert_eq!(fib.algorithm(), "large");
    let log = lines(&fib.take_decisions());
    assert!(log.contains("small given up: toy limit exceeded: need 4, at most 3"), "{log}");
    assert!(log.contains("small -> large, fitness 150, 4 prefixes"), "{log}");
}

#[test]
fn a_table_that_nothing_holds_is_an_error_and_the_old_answer_stays() {
    let mut fib = Fib::new([&SMALL]);
    let mut store = RouteStore::new();
    for n in 1..=3 {
        grow(&mut fib, &mut store, n).unwrap();
    }
    let before = fib.lookup().clone();
    assert!(matches!(grow(&mut fib, &mut store, 4), Err(UpdateError::Limit { .. })));
    assert!(Arc::ptr_eq(&before, fib.lookup()));
    assert_eq!(fib.pin(Some("nonsense")), Err(vec!["small"]));
    store.remove(Prefix::host(4));
    fib.pin(Some("small")).unwrap();
    assert_eq!(fib.apply(&[], &store, &mut NoReaders, Instant::now()), Ok(true));
}

#[test]
fn a_pin_wins_over_fitness_and_is_given_up_only_when_it_cannot_hold_the_table() {
    let mut fib = Fib::new([&SMALL, &LARGE]);
    fib.pin(Some("large")).unwrap();
    let mut store = RouteStore::new();
    grow(&mut fib, &mut store, 1).unwrap();
    assert_eq!(fib.algorithm(), "large");
    fib.pin(Some("small")).unwrap();
    grow(&mut fib, &mut store, 2).unwrap();
    assert_eq!(fib.algorithm(), "small");
    grow(&mut fib, &mut store, 3).unwrap();
    grow(&mut fib, &mut store, 4).unwrap();
    assert_eq!(fib.algorithm(), "large");
}

/// Routes side by side change in one round, more than the part of the table where they lie has room for twice.
#[test]
fn neighbors_that_change_together_are_changed_in_pieces() {
    let row = fingerpost_lpm::v4().find(|row| row.name == "bc18").unwrap();
    let neighbor = |n: u32| Prefix::masked(12 << 24 | n << 8, 24);
    let mut store = RouteStore::new();
    for n in 0..40_000 {
        store.insert(Prefix::masked(64 << 24 | n << 8, 24), NextHopId(n % 50 + 1));
    }
    for n in 0..8192 {
        store.insert(neighbor(n), NextHopId(n % 50 + 1));
    }
    let mut fib = Fib::new([row]);
    fib.apply(&[], &store, &mut NoReaders, Instant::now()).unwrap();
    let mut alone = row.build(&store, &mut HugePages::new()).unwrap();
    let changes: Vec<Change<u32>> = (0..8192)
        .map(|n| {
            let (prefix, new) = (neighbor(n), NextHopId((n + 7) % 50 + 1));
            Change { prefix, old: store.insert(prefix, new).unwrap(), new }
        })
        .collect();
    let all = alone.apply(&changes, &store, &mut NoReaders);
    assert_eq!(all, Err(UpdateError::Rebuild), "there is room for all at once: no test");
    assert_eq!(fib.apply(&changes, &store, &mut NoReaders, Instant::now()), Ok(false));
    assert_eq!((fib.counts().builds, fib.counts().applied), (1, 8192));
    for n in 0..8192 {
        let addr = neighbor(n).first() | 9;
        assert_eq!(fib.lookup().lookup(addr), NextHopId((n + 7) % 50 + 1));
    }
}

/// Readers that are never past, with the number of waits for them.
#[derive(Default)]
struct Stuck {
    epoch: u64,
    /// The epoch that was looked at last, how often in a row, and how many were looked at often.
    looks: std::cell::Cell<(u64, u32, u32)>,
}

impl Grace for Stuck {
    fn retire(&mut self) -> Epoch {
        self.epoch += 1;
        Epoch(self.epoch)
    }

    fn passed(&self, epoch: Epoch) -> bool {
        let (last, row, waits) = self.looks.get();
        let row = if last == epoch.0 { row + 1 } else { 1 };
        self.looks.set((epoch.0, row, waits + u32::from(row == 20)));
        false
    }
}

#[test]
fn pieces_do_not_wait_long_for_readers_that_are_stuck() {
    let row = fingerpost_lpm::v4().find(|row| row.name == "bc18").unwrap();
    let neighbor = |n: u32| Prefix::masked(12 << 24 | n << 8, 24);
    let mut store = RouteStore::new();
    for n in 0..48_192u32 {
        store.insert(neighbor(n), NextHopId(n % 50 + 1));
    }
    let mut fib = Fib::new([row]);
    fib.apply(&[], &store, &mut NoReaders, Instant::now()).unwrap();
    let changes: Vec<Change<u32>> = (0..8192)
        .map(|n| {
            let (prefix, new) = (neighbor(n), NextHopId((n + 7) % 50 + 1));
            Change { prefix, old: store.insert(prefix, new).unwrap(), new }
        })
        .collect();
    let mut grace = Stuck::default();
    fib.apply(&changes, &store, &mut grace, Instant::now()).unwrap();
    let waits = grace.looks.get().2;
    assert!((1..=10).contains(&waits), "{waits} waits");
    for n in 0..8192 {
        assert_eq!(fib.lookup().lookup(neighbor(n).first()), NextHopId((n + 7) % 50 + 1));
    }
}

fn note(fib: &mut Fib<u32>, store: &mut RouteStore<u32>, n: u32, hop: u32) {
    let old = store.insert(Prefix::host(n), NextHopId(hop)).unwrap_or_default();
    fib.note(Prefix::host(n), old);
}

pub(super) fn commit(
    fib: &mut Fib<u32>,
    store: &RouteStore<u32>,
    now: Instant,
) -> Result<Brought, UpdateError> {
    fib.commit(best_of(store), store, &mut NoReaders, now)
}

pub(super) fn best_of<A: Addr>(store: &RouteStore<A>) -> impl Fn(&mut [Change<A>]) {
    |changes| {
        store.get_all(
            changes,
            |change| change.prefix,
            |change, hop| {
                change.new = hop.copied().unwrap_or_default();
            },
        );
    }
}

/// Never at once, so that batches can be seen.
const PATIENT: FibOptions = FibOptions {
    bucket_time_ms: 50,
    bucket_change_threshold_rate: 500,
    max_sync_delay_ms: 1000,
    evaluation_changes: 100,
    evaluation_s: 30,
    hysteresis_percent: 5,
    cpu_share_percent: 10,
    at_once_us: 0,
    calibration_ms: 2000,
    calibration_mib: 1024,
    audit_share_bp: 100,
};

#[test]
fn changes_wait_for_their_bucket_and_are_counted_until_then() {
    let mut fib = Fib::new([&LARGE]);
    fib.set_options(PATIENT);
    let mut store = RouteStore::new();
    let start = Instant::now();
    let at = |ms| start + Duration::from_millis(ms);
    note(&mut fib, &mut store, 1, 1);
    let first = commit(&mut fib, &store, at(0)).unwrap();
    assert_eq!((first.changes, first.published), (1, true), "a first table is built at once");
    note(&mut fib, &mut store, 1, 2);
    note(&mut fib, &mut store, 1, 3);
    let waiting = Brought { changes: 0, published: false, pending: 2 };
    assert_eq!(commit(&mut fib, &store, at(1)), Ok(waiting));
    assert_eq!((fib.next_due(), fib.caught_up()), (Some(at(51)), false));
    assert_eq!(commit(&mut fib, &store, at(50)), Ok(waiting));
    let report = fib.report(&store, at(50));
    assert_eq!((report.pending, report.behind), (2, Some(Duration::from_millis(49))));
    assert_eq!(report.due_in, Some(Duration::from_millis(1)));
    let done = commit(&mut fib, &store, at(51)).unwrap();
    assert_eq!((done.changes, done.pending), (1, 0), "two changes of one prefix are one");
    assert_eq!((fib.next_due(), fib.caught_up()), (None, true));
    assert!(fib.counts().longest_delay >= Duration::from_millis(50));
    // Forced: at once, with what waited.
    note(&mut fib, &mut store, 2, 2);
    assert_eq!(commit(&mut fib, &store, at(60)).unwrap().pending, 1);
    note(&mut fib, &mut store, 3, 3);
    fib.force();
    assert_eq!(commit(&mut fib, &store, at(61)).unwrap().changes, 2);
    // So is a choice of the user.
    note(&mut fib, &mut store, 4, 3);
    fib.pin(Some("large")).unwrap();
    assert_eq!(commit(&mut fib, &store, at(70)).unwrap().changes, 1);
}

#[test]
fn more_changes_than_are_listed_are_built() {
    let mut fib = Fib::new([&LARGER]);
    fib.set_options(PATIENT);
    let mut store = RouteStore::new();
    let now = Instant::now();
    commit(&mut fib, &store, now).unwrap();
    let many = u32::try_from(MOST_LISTED).unwrap() + 9;
    for n in 0..many {
        note(&mut fib, &mut store, n, 1);
    }
    assert_eq!(commit(&mut fib, &store, now).unwrap().pending, many as usize);
    assert!(!fib.state.is_listed() && fib.backlog.listed() == 0);
    let late = now + Duration::from_secs(1);
    assert_eq!(commit(&mut fib, &store, late).unwrap().changes, many as usize);
    assert!(fib.caught_up());
}

static LARGER: Algorithm<u32> =
    Algorithm { name: "larger", fitness: |_| 150, make: toy::<1_000_000>, ..SMALL_LIKE };

mod faults {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    /// Builds that still fail.
    static FAILS: AtomicU32 = AtomicU32::new(0);

    fn flaky(
        routes: &dyn Routes<u32>,
        memory: &mut dyn Memory,
    ) -> Result<Box<dyn Table<u32>>, UpdateError> {
        let left = |n: u32| n.checked_sub(1);
        if FAILS.fetch_update(Ordering::SeqCst, Ordering::SeqCst, left).is_ok() {
            return Err(UpdateError::Memory { name: "flaky", bytes: 1 });
        }
        toy::<1000>(routes, memory)
    }

    static FLAKY: Algorithm<u32> =
        Algorithm { name: "flaky", fitness: |_| 150, make: flaky, ..SMALL_LIKE };

    /// FreeBSD clears the mark before it tries and arms nothing when it fails, so that nothing happens
    /// until the next change.
    #[test]
    fn a_failed_build_is_tried_again_without_another_change_later_and_later() {
        let mut fib = Fib::new([&FLAKY]);
        let mut store = RouteStore::new();
        let mut now = Instant::now();
        note(&mut fib, &mut store, 1, 1);
        commit(&mut fib, &store, now).unwrap();
        let before = fib.lookup().clone();
        FAILS.store(4, Ordering::SeqCst);
        note(&mut fib, &mut store, 2, 2);
        assert!(commit(&mut fib, &store, now).is_err());
        for doublings in 0..4 {
            assert!(Arc::ptr_eq(&before, fib.lookup()), "the old answer stays");
            assert!(!fib.caught_up());
            let due = fib.next_due().expect("there is always a next try");
            assert_eq!(due - now, Duration::from_millis(50 << doublings));
            let early = commit(&mut fib, &store, due - Duration::from_millis(1)).unwrap();
            assert_eq!((early.changes, early.pending), (0, 1));
            now = due;
            let result = commit(&mut fib, &store, now);
            assert_eq!(result.is_err(), doublings < 3, "{doublings}: {result:?}");
        }
        assert!(fib.caught_up() && fib.next_due().is_none());
        assert_eq!((fib.counts().failures, fib.counts().builds), (4, 2));
        let log = lines(&fib.take_decisions());
        assert!(log.contains("flaky paused: no memory for flaky: 1 bytes"), "{log}");
        assert!(log.contains("again in 400 ms"), "{log}");
        assert!(log.contains("flaky -> flaky"), "the recovery is logged: {log}");
    }

    #[test]
    fn what_is_wrong_again_right_after_its_build_is_given_up() {
        let mut fib = Fib::new([&LARGE, &LARGER]);
        fib.pin(Some("large")).unwrap();
        let mut store = RouteStore::new();
        let now = Instant::now();
        note(&mut fib, &mut store, 1, 1);
        commit(&mut fib, &store, now).unwrap();
        fib.distrust("1.2.3.4 is wrong");
        assert!(!fib.caught_up());
        commit(&mut fib, &store, now).unwrap();
        assert_eq!((fib.algorithm(), fib.counts().builds), ("large", 2));
        fib.distrust("1.2.3.4 is wrong");
        commit(&mut fib, &store, now).unwrap();
        assert_eq!(fib.algorithm(), "larger");
        assert_eq!(fib.report(&store, now).banned, ["large"]);
        fib.pin(Some("large")).unwrap();
        commit(&mut fib, &store, now).unwrap();
        assert_eq!(fib.algorithm(), "large", "a choice of the user lifts bans");
        let log = lines(&fib.take_decisions());
        assert!(log.contains("large given up: freshly built, 1.2.3.4 is wrong"), "{log}");
    }
}

/// Either answer is right then: an algorithm is not given up for it.
#[test]
fn a_repaired_address_with_a_change_that_waits_is_not_wrong() {
    let mut fib = Fib::new(fingerpost_lpm::v4());
    fib.pin(Some("radix")).unwrap();
    fib.set_options(PATIENT);
    let mut store = RouteStore::new();
    let now = Instant::now();
    note(&mut fib, &mut store, 1, 1);
    commit(&mut fib, &store, now).unwrap();
    // The kernel reader has no route, and the right table after the repair.
    let liar: Arc<dyn Lookup<u32>> = Arc::new(Nothing);
    let (turn, clock) = (Duration::from_secs(9), &mut Instant::now);
    fib.audit(&store, &|| Some(liar.clone()), turn, clock);
    assert_eq!((fib.auditor().known().count(), fib.counts().distrusted), (1, 1));
    commit(&mut fib, &store, now).unwrap();
    note(&mut fib, &mut store, 1, 2);
    assert_eq!(commit(&mut fib, &store, now).unwrap().pending, 1);
    let right = fib.lookup().clone();
    fib.audit(&store, &|| Some(right.clone()), turn, clock);
    assert_eq!((fib.counts().distrusted, fib.report(&store, now).banned), (1, vec![]));
    assert_eq!(fib.auditor().counts().repaired, 0);
    fib.force();
    commit(&mut fib, &store, now).unwrap();
    fib.audit(&store, &|| Some(right.clone()), turn, clock);
    assert_eq!((fib.auditor().counts().repaired, fib.auditor().known().count()), (1, 0));
    assert_eq!(fib.counts().distrusted, 1);
}

mod calibration {
    use super::*;
    use fingerpost_lpm::testing::{Shape, table};
    use fingerpost_lpm::{Rows, Step};

    fn settle<A: Rows>(fib: &mut Fib<A>, store: &RouteStore<A>, now: Instant) {
        fib.force();
        fib.commit(best_of(store), store, &mut NoReaders, now).unwrap();
    }

    /// Spends some time on each address before it answers, or answers wrongly.
    struct Bent<const NS: u64>(Arc<dyn Lookup<u32>>);

    impl<const NS: u64> Lookup<u32> for Bent<NS> {
        fn lookup(&self, addr: u32) -> NextHopId {
            if NS == 0 { NextHopId(9999) } else { self.0.lookup(addr) }
        }
        fn lookup_batch(&self, addrs: &[u32], out: &mut [NextHopId]) {
            let start = Instant::now();
            while start.elapsed() < Duration::from_nanos(NS * addrs.len() as u64) {}
            for (addr, out) in addrs.iter().zip(out) {
                *out = self.lookup(*addr);
            }
        }
        fn explain(&self, addr: u32, _: &mut dyn FnMut(&Step)) -> NextHopId {
            self.lookup(addr)
        }
        fn stats(&self, _: &mut dyn FnMut(&'static str, u64)) {}
        fn regions(&self) -> &[Region] {
            self.0.regions()
        }
    }

    struct Inner<const NS: u64>(Box<dyn Table<u32>>);

    impl<const NS: u64> Table<u32> for Inner<NS> {
        fn apply(
            &mut self,
            changes: &[Change<u32>],
            routes: &dyn Routes<u32>,
            grace: &mut dyn Grace,
        ) -> Result<(), UpdateError> {
            self.0.apply(changes, routes, grace)
        }
        fn publish(&mut self) -> Arc<dyn Lookup<u32>> {
            Arc::new(Bent::<NS>(self.0.publish()))
        }
    }

    fn bent<const NS: u64>(
        routes: &dyn Routes<u32>,
        memory: &mut dyn Memory,
    ) -> Result<Box<dyn Table<u32>>, UpdateError> {
        let table = (u32::row("bsearch").unwrap().make)(routes, memory)?;
        Ok(Box::new(Inner::<NS>(table)))
    }

    fn large(
        _: &dyn Routes<u32>,
        memory: &mut dyn Memory,
    ) -> Result<Box<dyn Table<u32>>, UpdateError> {
        memory.region("everything", 1 << 40)?;
        Ok(Box::new(Toy))
    }

    static SLOW: Algorithm<u32> =
        Algorithm { name: "slow", fitness: |_| 250, make: bent::<20_000>, ..SMALL_LIKE };
    static FAST: Algorithm<u32> =
        Algorithm { name: "fast", fitness: |_| 10, make: bent::<1>, ..SMALL_LIKE };
    static WRONG: Algorithm<u32> =
        Algorithm { name: "wrong", fitness: |_| 200, make: bent::<0>, ..SMALL_LIKE };
    static LARGE: Algorithm<u32> =
        Algorithm { name: "large", fitness: |_| 100, make: large, ..SMALL_LIKE };

    #[test]
    fn calibration_takes_the_fastest_that_is_right() {
        let mut fib = Fib::new([&SLOW, &FAST, &WRONG, &super::calibration::LARGE]);
        let routes = table::<u32>(Shape::Internet, 300, 30, 1);
        let mut store: RouteStore<u32> = routes.iter().copied().collect();
        let now = Instant::now();
        settle(&mut fib, &store, now);
        assert_eq!(fib.algorithm(), "slow", "by fitness");
        fib.set_options(FibOptions { calibration_ms: 60_000, ..FibOptions::default() });
        fib.pin(Some("measured")).unwrap();
        let mut steps = 0;
        while fib.algorithm() != "fast" {
            settle(&mut fib, &store, now);
            steps += 1;
            assert!(steps < 9, "{:?}", fib.take_decisions());
        }
        assert_eq!((fib.choice(), fib.next_due()), (Choice::Measured, None));
        let log = lines(&fib.take_decisions());
        for part in [
            "fib v4: calibration on 300 prefixes: slow ",
            "large not built (no memory for",
            ": fast",
        ] {
            assert!(log.contains(part), "{log}");
        }
        assert!(log.contains("wrong wrong (16384 answers)"), "{log}");
        // It stands until the table is another.
        let late = now + Duration::from_secs(100);
        settle(&mut fib, &store, late);
        assert!(fib.take_decisions().is_empty() && fib.algorithm() == "fast");
        // No time for those that are known to be slow to build.
        store.extend(table::<u32>(Shape::Internet, 3000, 30, 2));
        fib.calibration.set_build_cost("slow", 1.0);
        for _ in 0..7 {
            settle(&mut fib, &store, late);
        }
        let log = lines(&fib.take_decisions());
        assert!(log.contains("slow not tried (time)"), "{log}");
        // A pin wins over it.
        fib.pin(Some("slow")).unwrap();
        settle(&mut fib, &store, late);
        assert_eq!((fib.algorithm(), fib.choice()), ("slow", Choice::Pinned("slow")));
    }
}
