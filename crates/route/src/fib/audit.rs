//! The auditor: compares the lookups of readers with the longest match in the RIB, all the time.
//!
//! A pass goes through the address space from one end to the other, in windows of some hundred
//! prefixes. The starts and ends of prefixes cut a window into intervals; within one the longest match
//! is the same, so it is searched once, in the RIB's own tree (not with what builders use), and the
//! batch lookup of the table is compared for
//!
//! * the first two and the last two addresses of each interval: so first - 1, first, first + 1, last and
//!   last + 1 of every prefix are among them;
//! * IPv4: an address of each /24 of it, and every address where it cuts a /24. A structure that keeps
//!   an answer a /24 has no entry that is not compared;
//! * IPv6: four random addresses of it, others in each pass;
//!
//! and for a few random addresses a window. A difference is looked up again, one by one, before it
//! counts. Where a change of the address's prefix waits to be applied, either answer is right: it
//! is skipped and counted.
//!
//! A kernel reader, such as the XDP datapath, reads the same memory by code of its own: its lookups are compared
//! for some [`OUTSIDE`] ends of intervals a turn ([`KernelLookup`]), others in each pass.
//!
//! Cost: a search in the RIB an interval (there are about 1.3 a prefix of a full table), and a batch
//! lookup an address; `docs/internals/fib.md` has the measured time of a pass. At a share `s` of a core
//! a pass of cost `t` takes `t / s`, and each address comes by once a pass: what is wrong at one of
//! them is found within that time. A kernel reader costs one system call a turn.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fingerpost_lpm::{Addr, Lookup, NextHopId, Prefix, Rng, Routes};

use super::Backlog;
use crate::event::AnyPrefix;

/// Prefixes a window should have: enough that the search for its beginning does not count, few enough
/// for some tens of microseconds.
const WINDOW: usize = 64;
/// Largest window of IPv4, in bits: its 4096 /24s are some tens of microseconds as well.
const WIDEST_V4: u8 = 20;
/// Random addresses an interval of IPv6, and a window.
const RANDOM: usize = 4;
/// Differences that are kept and looked up again after a repair.
const KEPT: usize = 32;
/// Addresses a batch.
const BATCH: usize = 256;
/// Addresses a turn that are compared with a kernel reader.
const OUTSIDE: usize = 64;

/// The lookups of a kernel reader, for auditors.
pub trait KernelLookup {
    /// Lookup of IPv4 addresses in the present table of a fib; `None` where it reads none.
    fn v4(&self, fib: u16) -> Option<Arc<dyn Lookup<u32>>>;
    /// Lookup of IPv6 addresses.
    fn v6(&self, fib: u16) -> Option<Arc<dyn Lookup<u128>>>;
}

/// An address for which the lookup table and the RIB differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The address.
    pub addr: IpAddr,
    /// The longest prefix of the RIB that holds it.
    pub prefix: Option<AnyPrefix>,
    /// Next hop that the RIB has for it.
    pub rib: NextHopId,
    /// Next hop that readers get.
    pub fib: NextHopId,
    /// The kernel reader gets it; the lookup of other readers may be right.
    pub kernel_reader: bool,
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { addr, prefix, rib, fib, kernel_reader } = self;
        let reader = if *kernel_reader { "the XDP datapath" } else { "readers" };
        match prefix {
            Some(prefix) => {
                write!(f, "{addr}: {prefix} has next hop {}, {reader} got {}", rib.0, fib.0)
            }
            None => write!(f, "{addr}: no route, {reader} got next hop {}", fib.0),
        }
    }
}

/// Work of an auditor so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AuditCounts {
    /// Addresses compared.
    pub checked: u64,
    /// Addresses that were compared with a kernel reader as well.
    pub kernel_reader: u64,
    /// Addresses whose answer differed while a change of theirs was waiting.
    pub skipped: u64,
    /// Turns left out because the whole table was behind.
    pub turns_skipped: u64,
    /// Passes through the whole address space.
    pub passes: u64,
    /// Differences found so far.
    pub mismatches: u64,
    /// Differences that are gone after a repair.
    pub repaired: u64,
    /// Intervals of equal answers that the latest pass saw.
    pub intervals: u64,
    /// How long the latest pass took ...
    pub last_pass: Duration,
    /// ... and how much of a core it used.
    pub last_pass_cost: Duration,
}

/// Result of a comparison of the whole address space.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    /// Addresses compared.
    pub checked: u64,
    /// Those that differ.
    pub mismatches: u64,
    /// The first of them, as many as were wanted.
    pub differences: Vec<Difference>,
    /// How long it took.
    pub took: Duration,
}

/// One table's auditor.
#[derive(Debug)]
pub struct Auditor<A: Addr> {
    /// Where the next window begins.
    cursor: A,
    /// Size of the windows, in bits.
    bits: u8,
    /// When the present pass began, and what it cost and saw so far.
    began: Option<Instant>,
    cost: Duration,
    intervals: u64,
    rng: Rng,
    counts: AuditCounts,
    /// Differences that stand, the first ones.
    known: Vec<(A, Difference)>,
    /// How many of them at most.
    keep: usize,
    found: u64,
    starts: Vec<A>,
    addrs: Vec<A>,
    wants: Vec<NextHopId>,
    /// Whether the window is compared with a kernel reader, and the sample of its intervals for that.
    samples: bool,
    sample: Vec<(A, A, NextHopId)>,
}

impl<A: Addr> Default for Auditor<A> {
    fn default() -> Self {
        Self {
            cursor: A::MIN,
            bits: WIDEST_V4,
            began: None,
            cost: Duration::ZERO,
            intervals: 0,
            rng: Rng::new(0x6175_6469_7400 + u64::from(A::FAMILY)),
            counts: AuditCounts::default(),
            known: Vec::new(),
            keep: KEPT,
            found: 0,
            starts: Vec::new(),
            addrs: Vec::new(),
            wants: Vec::new(),
            samples: false,
            sample: Vec::new(),
        }
    }
}

impl<A: Addr> Auditor<A> {
    /// Compares for as long as `budget`, by `clock`, and at least one window; stops at the end of a
    /// pass, and when there is a difference. The first window is compared with `kernel_reader` as well. `pending`
    /// changes excuse differences.
    pub fn step(
        &mut self,
        routes: &dyn Routes<A>,
        lookup: &dyn Lookup<A>,
        mut kernel_reader: Option<&dyn Lookup<A>>,
        pending: &Backlog<A>,
        budget: Duration,
        clock: &mut dyn FnMut() -> Instant,
    ) -> Turn {
        let start = clock();
        let began = *self.began.get_or_insert(start);
        loop {
            let found = self.found;
            self.samples = kernel_reader.is_some();
            let last = self.window(routes, lookup, pending);
            if let Some(kernel_reader) = kernel_reader.take() {
                self.compare_kernel(routes, kernel_reader, pending);
            }
            let now = clock();
            let spent = now.saturating_duration_since(start);
            if last {
                self.counts.passes += 1;
                self.counts.last_pass = now.saturating_duration_since(began);
                self.counts.last_pass_cost = self.cost + spent;
                self.counts.intervals = std::mem::take(&mut self.intervals);
                self.cost = Duration::ZERO;
                self.began = None;
            }
            let differs = self.found > found;
            if differs || last || spent >= budget {
                if !last {
                    self.cost += spent;
                }
                return Turn { differs, ended: last };
            }
        }
    }

    /// Looks the known differences up again after a repair; returns those that still stand. Those of a kernel
    /// reader are dropped where there is none any more. Where a `pending` change holds the address nothing is found out:
    /// such a difference is kept, and not returned.
    pub fn recheck(
        &mut self,
        routes: &dyn Routes<A>,
        lookup: &dyn Lookup<A>,
        kernel_reader: Option<&dyn Lookup<A>>,
        pending: &Backlog<A>,
    ) -> Vec<Difference> {
        let (before, mut stand) = (self.known.len(), Vec::new());
        self.known.retain(|(addr, known)| {
            let lookup = if known.kernel_reader { kernel_reader } else { Some(lookup) };
            let differs = lookup.is_some_and(|lookup| difference(*addr, routes, lookup).is_some());
            let open = pending.touches(*addr);
            if differs && !open {
                stand.push(*known);
            }
            differs || open
        });
        self.counts.repaired += (before - self.known.len()) as u64;
        stand
    }

    /// Takes over the differences of another auditor that still stand; returns how many of them are new.
    pub(super) fn adopt(
        &mut self,
        other: &Self,
        routes: &dyn Routes<A>,
        lookup: &dyn Lookup<A>,
        pending: &Backlog<A>,
    ) -> usize {
        let before = self.found;
        for &(addr, _) in &other.known {
            let known = self.known.iter().any(|(known, _)| *known == addr);
            if !known && let Some(difference) = difference(addr, routes, lookup) {
                self.differs(addr, difference, pending);
            }
        }
        usize::try_from(self.found - before).expect("no more than the other one knows")
    }

    /// What was done so far.
    pub fn counts(&self) -> AuditCounts {
        self.counts
    }

    /// The first differences that stand at the moment.
    pub fn known(&self) -> impl Iterator<Item = &Difference> {
        self.known.iter().map(|(_, difference)| difference)
    }

    /// Distinct routes among the differences that stand: `fib_mismatch_routes`.
    pub fn mismatch_routes(&self) -> usize {
        distinct(self.known())
    }

    /// Those of them that a kernel reader gets wrongly.
    pub fn mismatch_routes_kernel(&self) -> usize {
        distinct(self.known().filter(|difference| difference.kernel_reader))
    }

    /// Counts a turn that could not be: the whole table is behind.
    pub(super) fn leave_out(&mut self) {
        self.counts.turns_skipped += 1;
    }

    /// Compares the next window; whether it was the last of the pass.
    fn window(
        &mut self,
        routes: &dyn Routes<A>,
        lookup: &dyn Lookup<A>,
        pending: &Backlog<A>,
    ) -> bool {
        let from = self.cursor;
        let to = from | !A::mask(A::BITS - self.bits);
        self.starts.clear();
        let starts = &mut self.starts;
        routes.walk(from, to, &mut |prefix, _| starts.push(prefix.first()));
        self.starts.dedup();
        let widest = if A::FAMILY == 4 { WIDEST_V4 } else { A::BITS };
        let (starts, bits) = (self.starts.len(), self.bits);
        // The next window begins right behind this one, so it may be wider only where it is aligned.
        self.bits = match starts {
            _ if starts > 2 * WINDOW => bits.saturating_sub(1),
            _ if starts < WINDOW && bits < widest => bits + 1,
            _ => bits,
        };
        let (mut x, mut next, mut seen) = (from, 0, 0);
        loop {
            while self.starts.get(next).is_some_and(|start| *start <= x) {
                next += 1;
            }
            let end = self.starts.get(next).map_or(to, |start| start.prev());
            let (end, want) = match routes.best(x) {
                Some((prefix, hop)) => (end.min(prefix.last()), hop),
                None => (end, NextHopId::NONE),
            };
            self.intervals += 1;
            self.probe(x, end, want);
            if self.samples {
                self.choose(x, end, want, seen);
                seen += 1;
            }
            if self.addrs.len() >= BATCH {
                self.compare(routes, lookup, pending);
            }
            if end == to {
                break;
            }
            x = end.next();
        }
        for _ in 0..RANDOM {
            let addr = self.rng.addr();
            self.addrs.push(addr);
            self.wants.push(routes.best(addr).map_or(NextHopId::NONE, |(_, hop)| hop));
        }
        self.compare(routes, lookup, pending);
        self.cursor = to.next();
        to == A::MAX
    }

    /// Lists the addresses to compare in `first..=last`, where `want` is the next hop everywhere.
    fn probe(&mut self, first: A, last: A, want: NextHopId) {
        let before = self.addrs.len();
        self.addrs.push(first);
        if first != last {
            self.addrs.extend([last, first.next(), last.prev()]);
        }
        let (low, high) = (first.to_u128(), last.to_u128());
        if A::FAMILY == 4 {
            let mut at = low;
            while at <= high {
                self.addrs.push(A::from_u128(at));
                let whole = at & 0xff == 0 && at | 0xff <= high;
                at = if whole { (at | 0xff) + 1 } else { at + 1 };
            }
        } else if high - low > 3 {
            for _ in 0..RANDOM {
                // The spread is less than all of the space unless there is no route at all.
                let spread = (high - low).saturating_add(1);
                self.addrs.push(A::from_u128(low + self.rng.wide() % spread));
            }
        }
        self.wants.resize(self.wants.len() + self.addrs.len() - before, want);
    }

    fn compare(&mut self, routes: &dyn Routes<A>, lookup: &dyn Lookup<A>, pending: &Backlog<A>) {
        let mut got = [NextHopId::NONE; BATCH];
        let (mut addrs, mut wants) =
            (std::mem::take(&mut self.addrs), std::mem::take(&mut self.wants));
        for (addrs, wants) in addrs.chunks(BATCH).zip(wants.chunks(BATCH)) {
            let got = &mut got[..addrs.len()];
            lookup.lookup_batch(addrs, got);
            if got == wants {
                continue;
            }
            for ((&addr, want), got) in addrs.iter().zip(wants).zip(got) {
                if want == got {
                    continue;
                }
                let Some(difference) = difference(addr, routes, lookup) else { continue };
                self.differs(addr, difference, pending);
            }
        }
        self.counts.checked += addrs.len() as u64;
        addrs.clear();
        wants.clear();
        (self.addrs, self.wants) = (addrs, wants);
    }

    /// Takes an interval into the sample for a kernel reader, where each interval is with the
    /// same chance.
    fn choose(&mut self, first: A, last: A, want: NextHopId, seen: u64) {
        let interval = (first, last, want);
        if self.sample.len() < OUTSIDE / 2 {
            return self.sample.push(interval);
        }
        let place = usize::try_from(self.rng.word() % (seen + 1)).unwrap_or(usize::MAX);
        if let Some(other) = self.sample.get_mut(place) {
            *other = interval;
        }
    }

    /// Compares a kernel reader at both ends of the intervals of the sample.
    fn compare_kernel(
        &mut self,
        routes: &dyn Routes<A>,
        kernel_reader: &dyn Lookup<A>,
        pending: &Backlog<A>,
    ) {
        let addrs: Vec<A> =
            self.sample.iter().flat_map(|&(first, last, _)| [first, last]).collect();
        let mut got = [NextHopId::NONE; OUTSIDE];
        kernel_reader.lookup_batch(&addrs, &mut got);
        for (place, (&addr, got)) in addrs.iter().zip(got).enumerate() {
            let want = self.sample[place / 2].2;
            if want != got
                && let Some(difference) = difference(addr, routes, kernel_reader)
            {
                self.differs(addr, Difference { kernel_reader: true, ..difference }, pending);
            }
        }
        self.counts.kernel_reader += addrs.len() as u64;
        self.sample.clear();
        self.samples = false;
    }

    /// Counts a difference, unless a change of the address's prefix waits.
    fn differs(&mut self, addr: A, difference: Difference, pending: &Backlog<A>) {
        if pending.touches(addr) {
            self.counts.skipped += 1;
            return;
        }
        self.found += 1;
        self.counts.mismatches += 1;
        let same = |(known, d): &(A, Difference)| {
            *known == addr && d.kernel_reader == difference.kernel_reader
        };
        if self.known.len() < self.keep && !self.known.iter().any(same) {
            self.known.push((addr, difference));
        }
    }
}

/// Result of a turn of the auditor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// There is a difference.
    pub differs: bool,
    /// The pass is complete.
    pub ended: bool,
}

/// Compares everything at once, for a caller that waits; keeps the first `limit` differences.
pub fn verify<A: Addr>(
    routes: &dyn Routes<A>,
    lookup: &dyn Lookup<A>,
    limit: usize,
    clock: &mut dyn FnMut() -> Instant,
) -> Verified {
    let start = clock();
    let mut auditor = Auditor { keep: limit, ..Auditor::default() };
    let pending = Backlog::default();
    while !auditor.window(routes, lookup, &pending) {}
    let AuditCounts { checked, mismatches, .. } = auditor.counts;
    let differences = auditor.known().copied().collect();
    let took = clock().saturating_duration_since(start);
    Verified { checked, mismatches, differences, took }
}

/// Difference at an address, looked up one by one.
fn difference<A: Addr>(
    addr: A,
    routes: &dyn Routes<A>,
    lookup: &dyn Lookup<A>,
) -> Option<Difference> {
    let best = routes.best(addr);
    let rib = best.map_or(NextHopId::NONE, |(_, hop)| hop);
    let mut batched = [NextHopId::NONE];
    lookup.lookup_batch(&[addr], &mut batched);
    let fib = if batched[0] == rib { lookup.lookup(addr) } else { batched[0] };
    let prefix =
        best.and_then(|(p, _): (Prefix<A>, _)| AnyPrefix::new(p.addr().to_ip(), p.len()).ok());
    (fib != rib).then(|| Difference { addr: addr.to_ip(), prefix, rib, fib, kernel_reader: false })
}

/// How many routes these are about.
fn distinct<'a>(differences: impl Iterator<Item = &'a Difference>) -> usize {
    let mut prefixes: Vec<_> = differences.map(|difference| difference.prefix).collect();
    prefixes.sort_unstable();
    prefixes.dedup();
    prefixes.len()
}

/// Share of a core, spent in turns.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Allowance {
    credit_ns: i64,
    last: Option<Instant>,
}

impl Allowance {
    /// What may be spent now at `share_bp` hundredths of a percent: what was earned and not spent, less what was
    /// overdrawn; what a second earns at most. `None` when there is nothing.
    pub(crate) fn at(&mut self, now: Instant, share_bp: u32) -> Option<Duration> {
        let since = self.last.replace(now).unwrap_or(now);
        let second = Duration::from_secs(1);
        let earned = |time: Duration| {
            i64::try_from((time * share_bp / 10_000).as_nanos()).expect("at most a second")
        };
        let elapsed = now.saturating_duration_since(since).min(second);
        self.credit_ns = (self.credit_ns + earned(elapsed)).min(earned(second));
        u64::try_from(self.credit_ns).ok().filter(|ns| *ns > 0).map(Duration::from_nanos)
    }

    /// So much was spent.
    pub(crate) fn spent(&mut self, time: Duration) {
        self.credit_ns -= i64::try_from(time.as_nanos()).unwrap_or(i64::MAX / 2);
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use fingerpost_lpm::testing::{Shape, probes, table};
    use fingerpost_lpm::{Heap, Region, RouteStore, Rows, Step};
    use std::collections::HashSet;
    use std::sync::Arc;

    /// Answers as `inner` does, but for some addresses.
    struct Lies<A: Addr> {
        inner: Arc<dyn Lookup<A>>,
        about: HashSet<A>,
        hop: NextHopId,
    }

    impl<A: Addr> Lookup<A> for Lies<A> {
        fn lookup(&self, addr: A) -> NextHopId {
            if self.about.contains(&addr) { self.hop } else { self.inner.lookup(addr) }
        }
        fn lookup_batch(&self, addrs: &[A], out: &mut [NextHopId]) {
            self.inner.lookup_batch(addrs, out);
            for (addr, out) in addrs.iter().zip(out) {
                *out = if self.about.contains(addr) { self.hop } else { *out };
            }
        }
        fn explain(&self, addr: A, _: &mut dyn FnMut(&Step)) -> NextHopId {
            self.lookup(addr)
        }
        fn stats(&self, _: &mut dyn FnMut(&'static str, u64)) {}
        fn regions(&self) -> &[Region] {
            &[]
        }
    }

    fn build<A: Rows>(routes: &RouteStore<A>) -> Arc<dyn Lookup<A>> {
        A::row("radix").unwrap().build(routes, &mut Heap).unwrap().publish()
    }

    fn routes<A: Rows>(shape: Shape, count: usize) -> RouteStore<A> {
        table::<A>(shape, count, 50, 7).into_iter().collect()
    }

    fn whole<A: Rows>(store: &RouteStore<A>, lookup: &dyn Lookup<A>) -> Verified {
        verify(store, lookup, 5, &mut Instant::now)
    }

    fn agrees<A: Rows>(shape: Shape) {
        let store = routes::<A>(shape, 5000);
        let result = whole(&store, &*build(&store));
        assert_eq!((result.mismatches, result.differences.len()), (0, 0), "{shape:?}");
        assert!(result.checked > 5 * store.len() as u64, "{} of {}", result.checked, store.len());
    }

    #[test]
    fn a_right_table_has_no_differences() {
        for shape in [Shape::Internet, Shape::Hostile] {
            agrees::<u32>(shape);
            agrees::<u128>(shape);
        }
        let empty = RouteStore::<u32>::new();
        assert_eq!(whole(&empty, &*build(&empty)).mismatches, 0);
        let empty = RouteStore::<u128>::new();
        assert_eq!(whole(&empty, &*build(&empty)).mismatches, 0);
    }

    fn lies<A: Rows>(store: &RouteStore<A>, about: impl IntoIterator<Item = A>) -> Lies<A> {
        let about = about.into_iter().collect();
        Lies { inner: build(store), about, hop: NextHopId(777) }
    }

    /// Every wrong address at a border is found in the first pass, each once or more.
    fn finds_borders<A: Rows>() {
        let store = routes::<A>(Shape::Internet, 2000);
        let borders = store.iter().step_by(3).flat_map(|(prefix, _)| probes(prefix));
        let lies = lies(&store, borders);
        let mut auditor = Auditor { keep: usize::MAX, ..Auditor::default() };
        let mut found = HashSet::new();
        let mut last = false;
        while !last {
            last = auditor.window(&store, &lies, &Backlog::default());
            found.extend(auditor.known.drain(..).map(|(addr, _)| addr));
        }
        let missed: Vec<_> = lies.about.difference(&found).collect();
        assert!(missed.is_empty(), "{} of {}: {missed:x?}", missed.len(), lies.about.len());
        assert!(found.is_subset(&lies.about));
    }

    #[test]
    fn a_wrong_answer_at_any_border_is_found_in_one_pass() {
        finds_borders::<u32>();
        finds_borders::<u128>();
    }

    #[test]
    fn a_wrong_slash_24_in_the_middle_of_a_slash_8_is_found_in_one_pass() {
        let hop = NextHopId(1);
        let store: RouteStore<u32> = [("10.0.0.0/8".parse().unwrap(), hop)].into_iter().collect();
        let result = whole(&store, &lies(&store, 0x0a12_3400..=0x0a12_34ff));
        assert_eq!(result.mismatches, 1, "one address of a whole /24 is compared");
        let text = result.differences[0].to_string();
        assert_eq!(text, "10.18.52.0: 10.0.0.0/8 has next hop 1, readers got 777");
    }

    #[test]
    fn every_address_of_a_cut_slash_24_is_compared() {
        let hop = NextHopId(1);
        let store: RouteStore<u32> = [("10.0.0.0/25".parse().unwrap(), hop)].into_iter().collect();
        let lies = lies(&store, 0x0a00_0000..=0x0a00_00ff);
        let mut auditor = Auditor { cursor: 0x0a00_0000, ..Auditor::default() };
        auditor.window(&store, &lies, &Backlog::default());
        // The ends of both intervals are compared a few times.
        assert!((256..=264).contains(&auditor.found), "{}", auditor.found);
    }

    #[test]
    fn differences_are_excused_where_a_change_waits_and_kept_until_repaired() {
        let mut store = routes::<u32>(Shape::Internet, 1000);
        let old = build(&store);
        let prefix: Prefix<u32> = "198.18.0.0/15".parse().unwrap();
        store.insert(prefix, NextHopId(40));
        let mut pending = Backlog::default();
        pending.push(prefix, NextHopId::NONE);
        let mut auditor = Auditor::default();
        let hour = Duration::from_secs(3600);
        let turn = auditor.step(&store, &*old, None, &pending, hour, &mut Instant::now);
        assert_eq!(turn, Turn { differs: false, ended: true });
        assert!(auditor.counts().skipped > 100 && auditor.counts().mismatches == 0);
        let turn = auditor.step(&store, &*old, None, &Backlog::default(), hour, &mut Instant::now);
        assert_eq!(turn, Turn { differs: true, ended: false });
        assert_eq!((auditor.mismatch_routes(), auditor.known().count()), (1, KEPT));
        let none = Backlog::default();
        assert_eq!(auditor.recheck(&store, &*old, None, &none).len(), KEPT);
        // Neither right nor wrong while a change waits.
        assert_eq!(auditor.recheck(&store, &*old, None, &pending), []);
        assert_eq!(auditor.recheck(&store, &*build(&store), None, &pending), []);
        assert_eq!((auditor.known().count(), auditor.counts().repaired), (KEPT, 0));
        assert_eq!(auditor.recheck(&store, &*build(&store), None, &none), []);
        assert_eq!((auditor.mismatch_routes(), auditor.counts().repaired), (0, KEPT as u64));
    }

    /// A pass of cost `t` at a share of 1 % takes 100 `t`, by a clock on which a window takes 20 us.
    #[test]
    fn the_share_is_kept_and_the_time_of_a_pass_follows() {
        let store = routes::<u32>(Shape::Internet, 20_000);
        let lookup = build(&store);
        let mut auditor = Auditor::default();
        let mut allowance = Allowance::default();
        let start = Instant::now();
        let (mut wall, mut spent) = (start, Duration::ZERO);
        let tick = Duration::from_millis(10);
        while auditor.counts().passes == 0 {
            wall += tick;
            let Some(budget) = allowance.at(wall, 100) else { continue };
            let mut used = Duration::ZERO;
            let mut clock = || {
                let now = wall + used;
                used += Duration::from_micros(20);
                now
            };
            auditor.step(&store, &*lookup, None, &Backlog::default(), budget, &mut clock);
            let used = used - Duration::from_micros(20);
            allowance.spent(used);
            spent += used;
        }
        let counts = auditor.counts();
        assert_eq!(counts.last_pass_cost, spent);
        let took = wall - start;
        let due = spent * 100;
        assert!(took + 3 * tick >= due && took <= due + 3 * tick, "{took:?}, {due:?}");
        assert!(counts.last_pass + 5 * tick >= due, "{counts:?}");
    }

    #[test]
    fn an_allowance_is_earned_by_time_and_never_hoarded() {
        let mut allowance = Allowance::default();
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        assert_eq!(allowance.at(at(0), 100), None);
        assert_eq!(allowance.at(at(10), 100), Some(Duration::from_micros(100)));
        allowance.spent(Duration::from_micros(300));
        assert_eq!(allowance.at(at(20), 100), None, "overdrawn");
        assert_eq!(allowance.at(at(40), 100), Some(Duration::from_micros(100)));
        assert_eq!(allowance.at(at(900_000), 100), Some(Duration::from_millis(10)));
        // Nor by calls that spend nothing.
        for ms in 900_000..905_000 {
            allowance.at(at(ms), 100);
        }
        assert_eq!(allowance.at(at(905_000), 100), Some(Duration::from_millis(10)));
        assert_eq!(Allowance::default().at(at(0), 0), None);
    }

    /// A kernel reader that is wrong where the lookup is right is found within a few passes, counted
    /// apart, and looked up again by itself.
    fn finds_a_wrong_kernel_reader<A: Rows>() {
        let store = routes::<A>(Shape::Internet, 500);
        let (right, pending) = (build(&store), Backlog::default());
        let (prefix, _) = store.iter().nth(77).unwrap();
        let (_, hop) = store.best(prefix.first()).unwrap();
        let liar = lies(&store, [prefix.first()]);
        let mut auditor = Auditor::default();
        let turn = |auditor: &mut Auditor<A>, kernel_reader: &dyn Lookup<A>| {
            auditor.step(
                &store,
                &*right,
                Some(kernel_reader),
                &pending,
                Duration::ZERO,
                &mut Instant::now,
            )
        };
        while !turn(&mut auditor, &*right).ended {}
        let counts = auditor.counts();
        assert!(counts.kernel_reader > 100 && counts.mismatches == 0, "{counts:?}");
        while !turn(&mut auditor, &liar).differs {
            assert!(auditor.counts().passes < 200, "{:?}", auditor.counts());
        }
        let known = auditor.known().next().unwrap();
        assert_eq!(
            (known.addr, known.rib, known.kernel_reader),
            (prefix.first().to_ip(), hop, true)
        );
        assert!(known.to_string().ends_with("the XDP datapath got 777"), "{known}");
        assert_eq!((auditor.mismatch_routes(), auditor.mismatch_routes_kernel()), (1, 1));
        let none = Backlog::default();
        assert_eq!(auditor.recheck(&store, &*right, Some(&liar), &none).len(), 1);
        assert_eq!(auditor.recheck(&store, &*right, Some(&*right), &none), []);
    }

    #[test]
    fn a_kernel_reader_that_is_wrong_is_found_out() {
        finds_a_wrong_kernel_reader::<u32>();
        finds_a_wrong_kernel_reader::<u128>();
    }
}
