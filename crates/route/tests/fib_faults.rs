//! Faults in the middle of forwarding: a build fails, memory is refused, a limit is reached, a bit flips.
//!
//! A reader looks up all the time. It gets the next hop of before or of after, the fault is in the log and
//! in the counters, and in the end every answer is that of the routes.
#![cfg(not(loom))]
#![allow(clippy::unwrap_used, reason = "a test's own helpers")]

mod lab;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fingerpost_lpm::testing::{FailingMemory, Shape, table};
use fingerpost_lpm::{
    Addr, Algorithm, Change, Grace, Lookup, Memory, NextHopId, Prefix, Region, Routes, Rows, Step,
    Table, UpdateError,
};
use fingerpost_route::fib::Decision;
use fingerpost_route::fib::{Auditor, FibOptions, FibReport, KernelLookup};
use fingerpost_route::{AnyPrefix, ForwardingAction, MAIN_TABLE};

use lab::Lab;

/// What a wrapped algorithm is to do next; each test has a number of its own.
const GO_ON: u8 = 0;
const NO_MEMORY: u8 = 1;
const REBUILD: u8 = 2;
const LIMIT: u8 = 3;
static BUILD: [AtomicU8; 4] = [const { AtomicU8::new(GO_ON) }; 4];
static APPLY: [AtomicU8; 4] = [const { AtomicU8::new(GO_ON) }; 4];

fn inner() -> &'static Algorithm<u32> {
    u32::row("dxr18").unwrap()
}

/// `dxr18`, with faults.
fn make<const N: usize>(
    routes: &dyn Routes<u32>,
    memory: &mut dyn Memory,
) -> Result<Box<dyn Table<u32>>, UpdateError> {
    let table = match BUILD[N].load(Ordering::SeqCst) {
        NO_MEMORY => (inner().make)(routes, &mut FailingMemory { left: 1 })?,
        LIMIT => return Err(UpdateError::Limit { what: "test", max: 1, got: 2 }),
        _ => (inner().make)(routes, memory)?,
    };
    Ok(Box::new(Faulty::<N>(table)))
}

struct Faulty<const N: usize>(Box<dyn Table<u32>>);

impl<const N: usize> Table<u32> for Faulty<N> {
    fn apply(
        &mut self,
        changes: &[Change<u32>],
        routes: &dyn Routes<u32>,
        grace: &mut dyn Grace,
    ) -> Result<(), UpdateError> {
        match APPLY[N].load(Ordering::SeqCst) {
            NO_MEMORY => Err(UpdateError::Memory { name: "test", bytes: 7 }),
            REBUILD => Err(UpdateError::Rebuild),
            LIMIT => Err(UpdateError::Limit { what: "test", max: 1, got: 2 }),
            _ => self.0.apply(changes, routes, grace),
        }
    }
    fn publish(&mut self) -> Arc<dyn Lookup<u32>> {
        self.0.publish()
    }
}

const fn faulty<const N: usize>(dxr: &Algorithm<u32>) -> Algorithm<u32> {
    Algorithm {
        name: "faulty",
        summary: "",
        source: "",
        origin: dxr.origin,
        limits: dxr.limits,
        fitness: |_| 255,
        make: make::<N>,
        open: None,
        kernel_layout: None,
    }
}

fn row<const N: usize>() -> &'static Algorithm<u32> {
    Box::leak(Box::new(faulty::<N>(inner())))
}

/// A router with some thousand routes whose answers a reader watches.
struct Scene {
    lab: Lab,
    now: Instant,
    stop: Arc<AtomicBool>,
    asked: Arc<AtomicU64>,
    reader: Option<std::thread::JoinHandle<()>>,
}

/// The prefix that changes, from one gateway to the other.
const MOVED: u32 = 0xc633_6400;
const OLD: u32 = 1;
const NEW: u32 = 2;

fn moved() -> AnyPrefix {
    AnyPrefix::V4(Prefix::masked(MOVED, 24))
}

impl Scene {
    fn new(rows: Vec<&'static Algorithm<u32>>) -> Self {
        let mut lab = Lab::new(rows, u128::rows().collect());
        let routes = table::<u32>(Shape::Internet, 3000, 20, 5);
        for (prefix, hop) in &routes {
            // Nothing below or at what moves.
            if !Prefix::masked(MOVED, 24).covers(*prefix) {
                lab.set(AnyPrefix::V4(*prefix), hop.0 + 2);
            }
        }
        lab.set(AnyPrefix::V4(Prefix::masked(0xcb00_7100, 24)), NEW);
        lab.set(moved(), OLD);
        let now = Instant::now();
        lab.commit(now);
        let allowed = [lab.hop_v4(MOVED), lab.hop_v4(0xcb00_7101)];
        assert!(allowed[0] != allowed[1]);
        let addrs: Vec<u32> = routes
            .iter()
            .map(|(prefix, _)| prefix.first())
            .filter(|a| *a >> 8 != MOVED >> 8)
            .collect();
        let stable: Vec<(u32, NextHopId)> =
            addrs.into_iter().map(|addr| (addr, lab.hop_v4(addr))).collect();
        let (stop, asked) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let mut reader = lab.control.reader();
        let (end, count) = (stop.clone(), asked.clone());
        let watch = move || {
            while !end.load(Ordering::Relaxed) {
                for &(addr, hop) in &stable {
                    let forwarding = reader.pin();
                    assert_eq!(forwarding.v4.lookup(addr), hop, "{}", addr.to_ip());
                    let moved = forwarding.v4.lookup(MOVED + 9);
                    assert!(allowed.contains(&moved), "a third answer: {moved:?}");
                }
                count.fetch_add(1, Ordering::Relaxed);
            }
        };
        let reader = Some(std::thread::spawn(watch));
        Self { lab, now, stop, asked, reader }
    }

    /// Lets the reader go round at least once more.
    fn watch(&self) {
        let until = self.asked.load(Ordering::Relaxed) + 2;
        while self.asked.load(Ordering::Relaxed) < until {
            assert!(!self.reader.as_ref().unwrap().is_finished(), "the reader saw a third answer");
            std::thread::yield_now();
        }
    }

    fn report(&self) -> FibReport {
        self.lab.control.fib_reports(self.now).remove(0)
    }

    fn log(&mut self) -> String {
        lines(&self.lab.control.take_decisions())
    }

    /// The change is visible by now, all is as in the routes, and the reader saw nothing else.
    fn check(mut self) {
        self.watch();
        let seen = self.lab.control.forwarding().v4.lookup(MOVED);
        assert_eq!(seen, self.lab.hop_v4(MOVED));
        assert_eq!(seen, self.lab.hop_v4(0xcb00_7101), "it moved");
        let verified = self.lab.control.verify(3, self.now).unwrap();
        for result in verified {
            assert!(result.mismatches == 0 && result.checked > 0, "{result:?}");
        }
        self.stop.store(true, Ordering::Relaxed);
        self.reader.take().unwrap().join().unwrap();
    }
}

/// Decisions as lines.
fn lines(decisions: &[Decision]) -> String {
    decisions.iter().map(|decision| &*decision.text).collect::<Vec<_>>().join("\n")
}

#[test]
fn a_refused_change_is_built_and_refused_memory_waits_with_the_old_answer() {
    let mut scene = Scene::new(vec![row::<0>()]);
    assert_eq!(scene.report().algorithm, "faulty");
    APPLY[0].store(REBUILD, Ordering::SeqCst);
    BUILD[0].store(NO_MEMORY, Ordering::SeqCst);
    scene.lab.set(moved(), NEW);
    assert!(scene.lab.control.commit(scene.now).is_err());
    let before = scene.lab.control.forwarding().v4.lookup(MOVED);
    for _ in 0..6 {
        scene.watch();
        let due = scene.lab.control.next_due().expect("there is a next try");
        assert!(due > scene.now);
        scene.now = due;
        assert!(scene.lab.control.commit(scene.now).is_err());
        assert_eq!(scene.lab.control.forwarding().v4.lookup(MOVED), before);
    }
    let report = scene.report();
    assert_eq!((report.failures_in_row, report.pending), (7, 1));
    assert!(report.counts.failures >= 7, "{report:?}");
    BUILD[0].store(GO_ON, Ordering::SeqCst);
    scene.now = scene.lab.control.next_due().unwrap();
    let done = scene.lab.control.commit(scene.now).unwrap();
    assert_eq!((done.changes, done.pending), (1, 0));
    let log = scene.log();
    assert!(log.contains("faulty paused: no memory for"), "{log}");
    assert!(log.contains("again in 3200 ms"), "{log}");
    scene.check();
}

#[test]
fn a_limit_in_the_middle_of_a_change_takes_the_next_algorithm() {
    let mut scene = Scene::new(vec![row::<1>(), u32::row("bc18").unwrap()]);
    assert_eq!(scene.report().algorithm, "faulty");
    APPLY[1].store(LIMIT, Ordering::SeqCst);
    scene.lab.set(moved(), NEW);
    assert_eq!(scene.lab.control.commit(scene.now).unwrap().pending, 0);
    let report = scene.report();
    assert_eq!((report.algorithm, report.banned), ("bc18", vec!["faulty"]));
    assert_eq!(report.counts.failures, 1);
    let log = scene.log();
    assert!(log.contains("faulty given up: test limit exceeded: need 2, at most 1"), "{log}");
    assert!(log.contains("faulty -> bc18"), "{log}");
    scene.check();
}

#[test]
fn a_change_that_finds_no_memory_takes_the_next_algorithm_for_a_while() {
    let mut scene = Scene::new(vec![row::<2>(), u32::row("radix").unwrap()]);
    APPLY[2].store(NO_MEMORY, Ordering::SeqCst);
    scene.lab.set(moved(), NEW);
    assert_eq!(scene.lab.control.commit(scene.now).unwrap().pending, 0);
    let report = scene.report();
    assert_eq!((report.algorithm, report.banned.len()), ("radix", 0));
    assert!(scene.log().contains("faulty paused: no memory for test: 7 bytes"));
    // It comes back when the pause is over and a look is due.
    scene.now += Duration::from_secs(31);
    scene.lab.commit(scene.now);
    assert_eq!(scene.report().algorithm, "faulty");
    scene.check();
}

/// Flips the lowest bit of the last thing that a lookup of `addr` read.
fn flip<A: Addr>(lookup: &dyn Lookup<A>, addr: A) {
    let mut last = None;
    lookup.explain(addr, &mut |step: &Step| last = Some(*step));
    let step = last.expect("a lookup reads something");
    let region = lookup.regions().iter().find(|r| r.name() == step.region).expect("it is named");
    region.u8s()[step.offset].fetch_xor(1, Ordering::SeqCst);
}

/// One bit of one row's live table flips; the auditor finds and repairs it within one round.
fn a_flipped_bit<A: Rows>(name: &str) {
    let v4 = if A::FAMILY == 4 { name } else { "bc18" };
    let v6 = if A::FAMILY == 6 { name } else { "rl32" };
    let mut lab = Lab::new(vec![u32::row(v4).unwrap()], vec![u128::row(v6).unwrap()]);
    let routes = table::<A>(Shape::Internet, 2000, 20, 9);
    for (prefix, hop) in &routes {
        lab.set(AnyPrefix::new(prefix.addr().to_ip(), prefix.len()).unwrap(), hop.0);
    }
    let mut now = Instant::now();
    lab.commit(now);
    let at = usize::from(A::FAMILY == 6);
    let mut reports = Vec::new();
    // Flips that change no answer at the ends of prefixes are no fault that a reader sees.
    for (prefix, _) in routes.iter().step_by(400) {
        let wrong = {
            let forwarding = lab.control.forwarding();
            match prefix.first().to_ip() {
                std::net::IpAddr::V4(a) => {
                    let before = forwarding.v4.lookup(a.to_bits());
                    flip(&*forwarding.v4, a.to_bits());
                    forwarding.v4.lookup(a.to_bits()) != before
                }
                std::net::IpAddr::V6(a) => {
                    let before = forwarding.v6.lookup(a.to_bits());
                    flip(&*forwarding.v6, a.to_bits());
                    forwarding.v6.lookup(a.to_bits()) != before
                }
            }
        };
        if !wrong {
            continue;
        }
        let before = lab.control.fib_reports(now).remove(at);
        let passes = before.audit.passes;
        let found = loop {
            now += Duration::from_millis(100);
            lab.control.audit(now, None);
            let report = lab.control.fib_reports(now).remove(at);
            // The present pass may be past it; the next one is not.
            if report.audit.mismatches > before.audit.mismatches {
                break report;
            }
            assert!(report.audit.passes <= passes + 1, "{name}: not found in a pass");
        };
        assert!(found.mismatch_routes >= 1 && !found.differences.is_empty());
        assert_eq!(found.counts.distrusted, before.counts.distrusted + 1);
        lab.commit(now);
        let log = lines(&lab.control.take_decisions());
        assert!(log.contains("is built again") && log.contains("readers got"), "{log}");
        assert_eq!(lab.control.verify(1, now).unwrap()[at].mismatches, 0, "{name}: repaired");
        while lab.control.fib_reports(now)[at].audit.repaired == before.audit.repaired {
            now += Duration::from_millis(100);
            lab.control.audit(now, None);
        }
        let after = lab.control.fib_reports(now).remove(at);
        assert_eq!((after.mismatch_routes, after.algorithm), (0, name_of(name)));
        lab.commit(now);
        assert!(lines(&lab.control.take_decisions()).contains("are right again"));
        reports.push(after);
    }
    assert!(!reports.is_empty(), "{name}: no flip changed an answer");
}

fn name_of(name: &str) -> &'static str {
    u32::row(name).map(|r| r.name).or_else(|_| u128::row(name).map(|r| r.name)).unwrap()
}

#[test]
fn a_flipped_bit_in_ipv4_tables_is_found_and_repaired() {
    for name in ["bc18", "dir24_8", "dxr18"] {
        a_flipped_bit::<u32>(name);
    }
}

#[test]
fn a_flipped_bit_in_ipv6_tables_is_found_and_repaired() {
    for name in ["rl32", "tree_bitmap"] {
        a_flipped_bit::<u128>(name);
    }
}

/// Who looks with an auditor of their own, ours being off, hands over what it found.
#[test]
fn what_another_auditor_found_is_repaired_and_stands_until_it_is_looked_up_again() {
    let mut lab = Lab::new(vec![u32::row("dir24_8").unwrap()], u128::rows().collect());
    let off = FibOptions { audit_share_bp: 0, ..FibOptions::default() };
    lab.control.set_fib_options(off).unwrap();
    (1..6).for_each(|n| lab.set(AnyPrefix::V4(Prefix::masked(n << 24, 8)), n));
    let now = Instant::now();
    lab.commit(now);
    lab.control.take_decisions();
    let all_of = |lab: &Lab| {
        let mut auditor = Auditor::default();
        let (rib, fib) = (lab.control.rib_v4(), lab.control.fibs(MAIN_TABLE).unwrap().0);
        while !fib.audit_with(&mut auditor, None, rib, Duration::from_secs(1)) {}
        auditor
    };
    let state = |lab: &Lab| {
        let report = lab.control.fib_reports(now).remove(0);
        (report.mismatch_routes, report.audit.mismatches, report.counts.builds)
    };
    let (v6, none, first) = (Auditor::default(), all_of(&lab), state(&lab));
    assert_eq!((first.0, first.1), (0, 0));
    assert!(
        !lab.control.adopt(MAIN_TABLE, &none, &v6, None) && !lab.control.adopt(7, &none, &v6, None)
    );

    flip(&*lab.control.forwarding().v4, 0x0300_0000_u32);
    let found = all_of(&lab);
    assert!(found.mismatch_routes() == 1 && state(&lab) == first, "reported, and no more");
    assert!(lab.control.adopt(MAIN_TABLE, &found, &v6, None));
    lab.control.audit(now, None);
    lab.commit(now);
    let news = found.known().count() as u64;
    assert_eq!(state(&lab), (1, news, first.2 + 1));
    let log = lines(&lab.control.take_decisions());
    assert!(log.contains("is built again: "), "{log}");
    // It is not found again by who looked before the repair, and gone for who looks now.
    assert!(!lab.control.adopt(MAIN_TABLE, &found, &v6, None));
    assert_eq!(state(&lab), (0, news, first.2 + 1));
    lab.commit(now);
    assert!(lines(&lab.control.take_decisions()).contains("are right again"));
}

/// A reader outside: the table as it was published, read rightly or not.
struct KernelReader {
    table: Arc<dyn Lookup<u32>>,
    wrong: bool,
}

impl KernelLookup for KernelReader {
    fn v4(&self, fib: u16) -> Option<Arc<dyn Lookup<u32>>> {
        assert_eq!(fib, 0);
        Some(if self.wrong { Arc::new(Misread(self.table.clone())) } else { self.table.clone() })
    }
    fn v6(&self, _: u16) -> Option<Arc<dyn Lookup<u128>>> {
        None
    }
}

struct Misread(Arc<dyn Lookup<u32>>);

impl Lookup<u32> for Misread {
    fn lookup(&self, addr: u32) -> NextHopId {
        NextHopId(self.0.lookup(addr).0 + 1)
    }
    fn lookup_batch(&self, addrs: &[u32], out: &mut [NextHopId]) {
        addrs.iter().zip(out).for_each(|(addr, out)| *out = self.lookup(*addr));
    }
    fn explain(&self, addr: u32, _: &mut dyn FnMut(&Step)) -> NextHopId {
        self.lookup(addr)
    }
    fn stats(&self, _: &mut dyn FnMut(&'static str, u64)) {}
    fn regions(&self) -> &[Region] {
        &[]
    }
}

#[test]
fn a_kernel_reader_that_is_wrong_is_counted_apart_and_gets_a_new_table() {
    let mut lab = Lab::new(vec![u32::row("dir24_8").unwrap()], u128::rows().collect());
    (1..6).for_each(|n| lab.set(AnyPrefix::V4(Prefix::masked(n << 24, 8)), n));
    let mut now = Instant::now();
    lab.commit(now);
    lab.control.take_decisions();
    let turns = |lab: &mut Lab, now: &mut Instant, wrong, until: &dyn Fn(&FibReport) -> bool| {
        for _ in 0..1000 {
            *now += Duration::from_millis(100);
            let table = lab.control.forwarding().v4.clone();
            lab.control.audit(*now, Some(&KernelReader { table, wrong }));
            let report = lab.control.fib_reports(*now).remove(0);
            if until(&report) {
                return report;
            }
        }
        panic!("{:?}", lab.control.fib_reports(*now));
    };
    let right = turns(&mut lab, &mut now, false, &|report| report.audit.kernel_reader > 10);
    assert_eq!((right.audit.mismatches, right.mismatch_routes), (0, 0));
    let wrong = turns(&mut lab, &mut now, true, &|report| report.audit.mismatches > 0);
    assert!(wrong.mismatch_routes > 0, "{wrong:?}");
    assert_eq!(wrong.mismatch_routes_kernel, wrong.mismatch_routes);
    lab.commit(now);
    let log = lines(&lab.control.take_decisions());
    assert!(log.contains("is built again") && log.contains("the XDP datapath got"), "{log}");
    let after = turns(&mut lab, &mut now, false, &|report| report.audit.repaired > 0);
    assert_eq!((after.mismatch_routes, after.mismatch_routes_kernel), (0, 0));
    assert_eq!(after.counts.builds, wrong.counts.builds + 1);
    lab.commit(now);
    assert!(lines(&lab.control.take_decisions()).contains("are right again"));
}

/// A table that is behind names next hops that no route has any more: until it has caught up they must
/// mean what they meant.
#[test]
fn an_id_is_not_given_out_again_while_a_table_is_behind() {
    let mut lab = Lab::new(u32::rows().collect(), u128::rows().collect());
    (1..60).for_each(|gateway| lab.gateway(gateway));
    let options = FibOptions { at_once_us: 0, ..FibOptions::default() };
    lab.control.set_fib_options(options).unwrap();
    let mut reader = lab.control.reader();
    let mut gateway = |addr: u32| {
        let forwarding = reader.pin();
        match forwarding.hops.action(forwarding.v4.lookup(addr), 0) {
            ForwardingAction::Adjacency(index) => forwarding.hops.adjacency(index).dst.0[5],
            other => panic!("{} leaves by {other:?}", addr.to_ip()),
        }
    };
    let mut now = Instant::now();
    lab.set(moved(), 1);
    lab.control.commit_now(now).unwrap();
    assert_eq!(gateway(MOVED), 1);
    lab.set(moved(), 2);
    assert_eq!(lab.control.commit(now).unwrap().pending, 1);
    let other = |hop: u32| Prefix::<u32>::masked(0xc800_0000 | hop << 8, 24);
    for hop in 3..60 {
        // New next hops, which would take the id that gateway 1 had.
        lab.set(AnyPrefix::V4(other(hop)), hop);
        now += Duration::from_micros(100);
        assert!(lab.control.commit(now).unwrap().pending > 0);
        assert_eq!(gateway(MOVED), 1, "with {hop}");
    }
    assert!(lab.control.next_hops().waiting() > 0);
    now = lab.control.next_due().unwrap();
    assert_eq!(lab.control.commit(now).unwrap().pending, 0);
    assert_eq!(gateway(MOVED), 2);
    for hop in 3..60 {
        assert_eq!(u32::from(gateway(other(hop).first())), hop);
    }
    lab.commit(now);
    assert_eq!(lab.control.next_hops().waiting(), 0, "caught up, it is given back");
}
