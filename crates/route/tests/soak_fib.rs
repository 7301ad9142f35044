//! Readers look up while routes change and algorithms are switched: each result is that of before or after.
//!
//! A short form runs with the ordinary tests; `cargo xtask soak fib` runs it for ten minutes. One writer
//! plays a recorded update stream and random churn (nested prefixes, withdrawals, gateways that come and
//! go so that ids are given out again) into a real control side, and switches to the next algorithm of
//! the registry every second. Two readers look watched addresses up, down to the link address of the
//! gateway. For each of those the writer publishes what they may get: from just before a change
//! is handed over both answers, from when it is visible the new one only.
#![cfg(not(loom))]
#![allow(clippy::unwrap_used, reason = "a test's own helpers")]

mod lab;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fingerpost_lpm::testing::{Rng, probes};
use fingerpost_lpm::{Addr, NextHopId, Prefix, RouteStore, Routes, Rows};
use fingerpost_route::source::table::decompress::Decoded;
use fingerpost_route::{AnyPrefix, Forwarding, ForwardingAction, Reader};

use lab::Lab;

/// Gateways in use at a time, and how many there are in all: the ones in use move on.
const GATEWAYS: u32 = 40;
const ALL_GATEWAYS: u32 = 900;
/// Watched addresses a family, and what is kept of the history of each.
const WATCHED: usize = 256;
const KEPT: u32 = 64;
/// Changes of a round at most.
const ROUND: usize = 100;

/// Results that readers may get for one address: values `floor..count` of its history.
struct Key<A> {
    addr: A,
    values: [AtomicU32; KEPT as usize],
    floor: AtomicU32,
    count: AtomicU32,
}

impl<A: Addr> Key<A> {
    fn new(addr: A, value: u32) -> Self {
        let values = [const { AtomicU32::new(0) }; KEPT as usize];
        values[0].store(value, Ordering::Relaxed);
        Self { addr, values, floor: AtomicU32::new(0), count: AtomicU32::new(1) }
    }

    fn latest(&self) -> u32 {
        let count = self.count.load(Ordering::Relaxed);
        self.values[((count - 1) % KEPT) as usize].load(Ordering::Relaxed)
    }

    /// Adds a result that is right as well from now on.
    fn begin(&self, value: u32) {
        let count = self.count.load(Ordering::Relaxed);
        self.values[(count % KEPT) as usize].store(value, Ordering::Relaxed);
        // Release: who sees the count sees the value.
        self.count.store(count + 1, Ordering::Release);
    }

    /// Makes the latest result the only right one from now on.
    fn end(&self) {
        self.floor.store(self.count.load(Ordering::Relaxed) - 1, Ordering::Release);
    }

    /// Whether `value` was right at some time since the floor was `floor`; `None` when too much happened.
    fn allows(&self, floor: u32, value: u32) -> Option<bool> {
        let count = self.count.load(Ordering::Acquire);
        let mut found = false;
        for at in floor..count {
            found |= self.values[(at % KEPT) as usize].load(Ordering::Relaxed) == value;
        }
        let whole = self.count.load(Ordering::Acquire) < floor + KEPT;
        whole.then_some(found)
    }
}

/// What writer and readers share.
struct Shared {
    v4: Vec<Key<u32>>,
    v6: Vec<Key<u128>>,
    /// Generation that readers must have before their results are checked.
    generation: AtomicU64,
    stop: AtomicBool,
    checked: AtomicU64,
    /// Answers that were not compared: the reader held an older value, or slept through too much.
    passed_over: AtomicU64,
}

fn v4_of(forwarding: &Forwarding, addrs: &[u32], out: &mut [NextHopId]) {
    forwarding.v4.lookup_batch(addrs, out);
}

fn v6_of(forwarding: &Forwarding, addrs: &[u128], out: &mut [NextHopId]) {
    forwarding.v6.lookup_batch(addrs, out);
}

/// The gateway that a packet would go to, by its link address; 0 without a route.
fn gateway(forwarding: &Forwarding, hop: NextHopId) -> u32 {
    match forwarding.hops.action(hop, 0) {
        ForwardingAction::NoRoute => 0,
        ForwardingAction::Adjacency(index) => {
            let mac = forwarding.hops.adjacency(index).dst.0;
            u32::from(mac[4]) << 8 | u32::from(mac[5])
        }
        other => panic!("unexpected {other:?}"),
    }
}

fn read<A: Addr>(
    shared: &Shared,
    keys: &[Key<A>],
    reader: &mut Reader<Forwarding>,
    ask: fn(&Forwarding, &[A], &mut [NextHopId]),
) {
    for keys in keys.chunks(32) {
        let floors: Vec<u32> = keys.iter().map(|k| k.floor.load(Ordering::Acquire)).collect();
        let generation = shared.generation.load(Ordering::Acquire);
        let addrs: Vec<A> = keys.iter().map(|key| key.addr).collect();
        let mut hops = vec![NextHopId::NONE; keys.len()];
        let forwarding = reader.pin().clone();
        // While the writer puts a value down, a pin keeps the one that the reader has.
        let stale = reader.generation() < generation;
        ask(&forwarding, &addrs, &mut hops);
        for ((key, floor), hop) in keys.iter().zip(floors).zip(&hops) {
            let got = gateway(&forwarding, *hop);
            match key.allows(floor, got) {
                _ if stale => shared.passed_over.fetch_add(1, Ordering::Relaxed),
                None => shared.passed_over.fetch_add(1, Ordering::Relaxed),
                Some(right) => {
                    let now = key.latest();
                    assert!(
                        right,
                        "{}: a third answer, gateway {got}; now {now}",
                        key.addr.to_ip()
                    );
                    shared.checked.fetch_add(1, Ordering::Relaxed)
                }
            };
        }
    }
}

/// One family of the writer: the expected state, independent of the control side.
struct Side<A: Rows> {
    model: RouteStore<A>,
    /// Prefixes to churn, and those that the recorded stream names.
    pool: Vec<Prefix<A>>,
    stream: Vec<(Prefix<A>, u32)>,
    at: usize,
    names: Vec<&'static str>,
}

impl<A: Rows> Side<A> {
    fn new(routes: Vec<(Prefix<A>, u32)>, stream: Vec<(Prefix<A>, u32)>, rng: &mut Rng) -> Self {
        let mut pool: Vec<Prefix<A>> =
            (0..600).map(|_| routes[rng.below(routes.len())].0).collect();
        for at in 0..300 {
            // Above and below others, and in a row with them.
            let prefix = pool[at];
            pool.push(Prefix::masked(prefix.first(), prefix.len().saturating_sub(3)));
            let longer = (prefix.len() + 2).min(A::BITS);
            pool.push(Prefix::masked(prefix.first(), longer));
            pool.push(Prefix::masked(prefix.last(), longer));
        }
        pool.sort_unstable();
        pool.dedup();
        pool.retain(|prefix| prefix.len() >= 8);
        let model = routes.into_iter().map(|(prefix, hop)| (prefix, NextHopId(hop))).collect();
        Self { model, pool, stream, at: 0, names: A::rows().map(|row| row.name).collect() }
    }

    fn expect(&self, addr: A) -> u32 {
        self.model.best(addr).map_or(0, |(_, hop)| hop.0)
    }

    fn keys(&self, rng: &mut Rng) -> Vec<Key<A>> {
        let stream = self.stream.iter().map(|(prefix, _)| *prefix);
        let named: Vec<Prefix<A>> = stream.chain(self.pool.iter().copied()).collect();
        let draw = |_| {
            let addrs = probes(named[rng.below(named.len())]);
            let addr = addrs[rng.below(addrs.len())];
            Key::new(addr, self.expect(addr))
        };
        (0..WATCHED).map(draw).collect()
    }

    /// Some changes, none of which concern a watched address that an earlier one does: of each address
    /// there is one before and one after.
    fn round(
        &mut self,
        lab: &mut Lab,
        keys: &[Key<A>],
        first_gateway: u32,
        rng: &mut Rng,
    ) -> usize {
        let mut taken = vec![false; keys.len()];
        let mut changes = 0;
        for _ in 0..1 + rng.below(ROUND) {
            let fresh = 1
                + (first_gateway + u32::try_from(rng.below(GATEWAYS as usize)).unwrap())
                    % ALL_GATEWAYS;
            let (prefix, hop) = if rng.chance(50) {
                self.at = (self.at + 1) % self.stream.len();
                let (prefix, hop) = self.stream[self.at];
                (prefix, if hop == 0 { 0 } else { fresh })
            } else {
                let prefix = self.pool[rng.below(self.pool.len())];
                (prefix, if rng.chance(30) { 0 } else { fresh })
            };
            let concerned: Vec<usize> =
                (0..keys.len()).filter(|&at| prefix.contains(keys[at].addr)).collect();
            if concerned.iter().any(|&at| taken[at]) {
                continue;
            }
            concerned.iter().for_each(|&at| taken[at] = true);
            match hop {
                0 => self.model.remove(prefix),
                hop => self.model.insert(prefix, NextHopId(hop)),
            };
            lab.set(AnyPrefix::new(prefix.addr().to_ip(), prefix.len()).unwrap(), hop);
            changes += 1;
        }
        // Before a commit nothing of it can be seen, and from then on both answers can.
        for key in keys {
            let value = self.expect(key.addr);
            if value != key.latest() {
                key.begin(value);
            }
        }
        changes
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn text(path: &Path) -> Option<String> {
    let mut decoded = Decoded::new("table", Box::new(File::open(path).ok()?)).unwrap();
    let (mut bytes, mut part) = (Vec::new(), vec![0; 1 << 16]);
    loop {
        match decoded.read_some(&mut part).unwrap() {
            0 => return Some(String::from_utf8(bytes).unwrap()),
            len => bytes.extend(&part[..len]),
        }
    }
}

/// Every `step`th route of a shipped table; neighbors keep their next hops, among 40.
fn routes<A: Addr>(name: &str, step: usize) -> Vec<(Prefix<A>, u32)> {
    let path = root().join("testdata/tables").join(name);
    let text = text(&path).expect("the tables are shipped");
    let route = |line: &str| {
        let (prefix, hop) = line.split_once(' ').unwrap();
        let sum: u32 = hop.bytes().map(u32::from).sum();
        let parsed: Result<Prefix<A>, _> = prefix.parse();
        (parsed.unwrap(), 1 + sum % GATEWAYS)
    };
    text.lines().step_by(step).map(route).collect()
}

/// The recorded hour of updates; where it is not, changes of every hundredth route instead.
fn stream(routes: &[(Prefix<u32>, u32)]) -> Vec<(Prefix<u32>, u32)> {
    let folder = std::env::var_os("FINGERPOST_DATA")
        .map_or_else(|| root().join("../shared/data"), PathBuf::from);
    let Some(text) = text(&folder.join("update-20141217-linx-p52.txt.xz")) else {
        println!("skipped: needs real updates (FINGERPOST_DATA); shipped routes flap instead");
        return flaps(routes);
    };
    let update = |line: &str| {
        let mut words = line.split(' ').skip(1);
        let hop = u32::from(words.next().unwrap() == "a");
        (words.next().unwrap().parse().unwrap(), hop)
    };
    text.lines().map(update).collect()
}

fn flaps<A: Addr>(routes: &[(Prefix<A>, u32)]) -> Vec<(Prefix<A>, u32)> {
    let some = routes.iter().step_by(100).map(|(prefix, _)| *prefix);
    let both: Vec<_> = some.flat_map(|prefix| [(prefix, 0), (prefix, 1)]).collect();
    both
}

/// Resident bytes of this process, in KiB.
fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// What was handed over is visible now; waits as long as the FIB lets it wait.
fn settle(lab: &mut Lab) {
    loop {
        let now = Instant::now();
        if lab.control.commit(now).unwrap().pending == 0 {
            return;
        }
        let due = lab.control.next_due().expect("what is pending is due");
        std::thread::sleep(due.saturating_duration_since(now).min(Duration::from_millis(20)));
    }
}

#[test]
fn fib_soak_gives_the_answer_of_before_or_after_and_never_a_third() {
    let wanted = std::env::var("FINGERPOST_SOAK_SECONDS").ok().and_then(|s| s.parse().ok());
    let long = wanted.is_some();
    let lasts = Duration::from_secs(wanted.unwrap_or(8));
    let (step, period) = if long { (16, 1000) } else { (40, 250) };
    let seed = 0x50a4;
    let mut rng = Rng::new(seed);
    let mut lab = Lab::new(u32::rows().collect(), u128::rows().collect());
    (1..=ALL_GATEWAYS).for_each(|gateway| lab.gateway(gateway));
    let table = routes::<u32>("v4-tier1-nh496.txt.xz", step);
    let updates = stream(&table);
    let mut v4 = Side::new(table, updates, &mut rng);
    let table = routes::<u128>("v6-tier1-nh496.txt.xz", step);
    let updates = flaps(&table);
    let mut v6 = Side::new(table, updates, &mut rng);
    for (prefix, hop) in v4.model.iter() {
        lab.set(AnyPrefix::V4(prefix), hop.0);
    }
    for (prefix, hop) in v6.model.iter() {
        lab.set(AnyPrefix::V6(prefix), hop.0);
    }
    settle(&mut lab);
    let shared = Shared {
        v4: v4.keys(&mut rng),
        v6: v6.keys(&mut rng),
        generation: AtomicU64::new(0),
        stop: AtomicBool::new(false),
        checked: AtomicU64::new(0),
        passed_over: AtomicU64::new(0),
    };
    let start = Instant::now();
    let (mut rounds, mut changes, mut switches, mut held) = (0_u64, 0, 0, Vec::new());
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..2)
            .map(|_| {
                let (shared, mut reader) = (&shared, lab.control.reader());
                scope.spawn(move || {
                    while !shared.stop.load(Ordering::Relaxed) {
                        read(shared, &shared.v4, &mut reader, v4_of);
                        read(shared, &shared.v6, &mut reader, v6_of);
                    }
                })
            })
            .collect();
        let mut switch = start;
        while start.elapsed() < lasts && readers.iter().all(|reader| !reader.is_finished()) {
            let now = Instant::now();
            if now >= switch {
                switch = now + Duration::from_millis(period);
                if switches % v4.names.len() == 0 {
                    held.push(resident_kib());
                }
                let (a, b) = (switches % v4.names.len(), switches % v6.names.len());
                lab.control.pin_algorithm(4, Some(v4.names[a])).unwrap();
                lab.control.pin_algorithm(6, Some(v6.names[b])).unwrap();
                switches += 1;
            }
            let first = u32::try_from(start.elapsed().as_millis() / 250).unwrap();
            changes += v4.round(&mut lab, &shared.v4, first, &mut rng);
            changes += v6.round(&mut lab, &shared.v6, first, &mut rng);
            // Now and then as the FIB likes it, mostly at once: that is more changes.
            if rng.chance(90) {
                lab.control.flush();
            }
            settle(&mut lab);
            let generation = lab.control.commit(Instant::now()).unwrap().generation;
            shared.generation.store(generation, Ordering::Release);
            shared.v4.iter().for_each(Key::end);
            shared.v6.iter().for_each(Key::end);
            lab.control.audit(Instant::now(), None);
            rounds += 1;
        }
        shared.stop.store(true, Ordering::Relaxed);
        readers.into_iter().for_each(|reader| reader.join().unwrap());
    });
    let checked = shared.checked.load(Ordering::Relaxed);
    let passed_over = shared.passed_over.load(Ordering::Relaxed);
    for (result, report) in
        lab.control.verify(3, Instant::now()).unwrap().iter().zip(lab.control.fib_reports(start))
    {
        assert_eq!(result.mismatches, 0, "{:?}", result.differences);
        assert_eq!(report.audit.mismatches, 0, "seed {seed:#x}");
    }
    println!(
        "{} s, seed {seed:#x}: {rounds} rounds, {changes} changes, {switches} switches, {checked} \
         answers compared, {passed_over} passed over; resident KiB at the first algorithm: {held:?}",
        lasts.as_secs()
    );
    assert!(
        rounds > 20 && checked > 10_000 && passed_over < checked,
        "{rounds} {checked} {passed_over}"
    );
    // Once round all algorithms warms up; the same algorithm serves whenever it is measured.
    if let [_, _, warm, .., last] = held[..] {
        assert!(last < warm + warm / 10 + 16 * 1024, "grew from {warm} to {last} KiB");
    }
}
