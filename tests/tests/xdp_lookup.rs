//! What the program in the kernel answers is what the RIB has: before, during and after updates in place.
//!
//! The shipped tables lie in maps that the program reads. A recorded hour of updates is replayed, then routes
//! change at random. A short form runs with the other tests; `cargo xtask soak xdp` runs ten million
//! addresses, and makes a million random changes besides the whole hour.

use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fingerpost_io::xdp::forward::{CAP_BYTES, Forwarder, ProgramLookup};
use fingerpost_lpm::testing::Rng;
use fingerpost_lpm::{Addr, Lookup, NextHopId, Prefix, Routes, registry};
use fingerpost_route::source::{SourceSpec, file, find};
use fingerpost_route::{
    AddressUpdate, AnyPrefix, Control, ControlOptions, LinkState, LinkUpdate, MAIN_TABLE, Mac,
    Operation, Path, RouteEvent, RouteKey, SourceId, Target,
};
use fingerpost_tests::{skip, soak, tables};

/// Gateways that changed routes move among.
const GATEWAYS: u32 = 200;
/// Changes that are made visible together.
const ROUND: usize = 500;

struct Lab {
    control: Control,
    /// Routes of the IPv4 table, and of the IPv6 one.
    sources: [SourceId; 2],
    forwarder: Forwarder,
}

/// The shipped tables, shared with a forwarder; `None` without the right to have one.
fn lab() -> Option<Lab> {
    let forwarder = match Forwarder::new(7, CAP_BYTES) {
        Ok(forwarder) => forwarder,
        Err(error) if error.is_refused() => {
            skip("root");
            return None;
        }
        Err(error) => panic!("{error}"),
    };
    let mut control = Control::new(ControlOptions {
        v4: registry::v4().collect(),
        v6: registry::v6().collect(),
        connected_from_addresses: true,
    })
    .expect("there is memory");
    control.share(forwarder.shared(), Box::new(forwarder.clone())).expect("there is memory");
    let source = control.add_source("lab", 0);
    let mac = Some(Mac([2, 0, 0, 0, 0, 1]));
    let state = LinkState { name: "eth0".into(), up: true, mtu: 1500, mac, ..LinkState::default() };
    control.handle(source, RouteEvent::Link(LinkUpdate { link: 2, state: Some(state) }));
    for (addr, prefix_len) in [("10.255.0.1", 16), ("fd00::1", 64)] {
        let addr = addr.parse().expect("an address");
        let update = AddressUpdate::new(2, addr, prefix_len);
        control.handle(source, RouteEvent::Address(update));
    }
    // A source each: the end of a table ends what its source said before.
    let sources = ["v4-tier1-nh496.txt.xz", "v6-tier1-nh496.txt.xz"].map(|name| {
        let source = control.add_source(name, 20);
        let kind = find("file").expect("the file source is in the registry");
        let mut open = (kind.open)(&SourceSpec::default()).expect("it opens");
        let path = tables::shipped().join(name);
        file::feed(open.as_mut(), &path, &mut |event| control.handle(source, event))
            .expect("the table is shipped");
        source
    });
    control.commit_now(Instant::now()).expect("some algorithm holds them");
    Some(Lab { control, sources, forwarder })
}

trait Family: Addr {
    fn asked(forwarder: &Forwarder) -> Arc<ProgramLookup>;
    fn best(control: &Control, addr: Self) -> NextHopId;
    fn prefixes(control: &Control) -> Vec<(AnyPrefix, Self, Self)>;
    fn gateway(number: u32) -> IpAddr;
    /// Whether it is on the lab's own link, whose routes are the host's.
    fn on_link(self) -> bool;
    /// Recorded updates, and whether each announces; none where there is no record.
    fn stream() -> Vec<(AnyPrefix, bool)> {
        Vec::new()
    }
}

impl Family for u32 {
    fn on_link(self) -> bool {
        self >> 16 == 0x0aff
    }
    fn stream() -> Vec<(AnyPrefix, bool)> {
        let path = tables::data().join("update-20141217-linx-p52.txt.xz");
        if !path.exists() {
            skip("real updates (FINGERPOST_DATA); routes change at random all the same");
            return Vec::new();
        }
        let update = |line: &str| {
            let mut words = line.split(' ').skip(1);
            let announced = words.next() == Some("a");
            (AnyPrefix::parse(words.next().unwrap_or_default()).expect("a prefix"), announced)
        };
        tables::text(&path).lines().map(update).collect()
    }

    fn asked(forwarder: &Forwarder) -> Arc<ProgramLookup> {
        forwarder
            .query_program_now(0, 0)
            .expect("the kernel takes the program, which reads the table")
    }
    fn best(control: &Control, addr: Self) -> NextHopId {
        control.rib_v4().best(addr).map_or(NextHopId::NONE, |(_, hop)| hop)
    }
    fn prefixes(control: &Control) -> Vec<(AnyPrefix, Self, Self)> {
        let all = control.rib_v4().iter();
        all.map(|(p, _)| (AnyPrefix::V4(p), p.first(), p.last())).collect()
    }
    fn gateway(number: u32) -> IpAddr {
        u32::to_ip(0x0aff_0002 + number)
    }
}

impl Family for u128 {
    fn on_link(self) -> bool {
        self >> 64 == 0xfd00 << 48
    }
    fn asked(forwarder: &Forwarder) -> Arc<ProgramLookup> {
        forwarder
            .query_program_now(0, 1)
            .expect("the kernel takes the program, which reads the table")
    }
    fn best(control: &Control, addr: Self) -> NextHopId {
        control.rib_v6().best(addr).map_or(NextHopId::NONE, |(_, hop)| hop)
    }
    fn prefixes(control: &Control) -> Vec<(AnyPrefix, Self, Self)> {
        let all = control.rib_v6().iter();
        all.map(|(p, _)| (AnyPrefix::V6(p), p.first(), p.last())).collect()
    }
    fn gateway(number: u32) -> IpAddr {
        u128::to_ip((0xfd00 << 112) + 2 + u128::from(number))
    }
}

/// Compares the program's answers with the RIB's; how many there were.
fn compare<A: Family>(lab: &Lab, asked: &ProgramLookup, addrs: impl Iterator<Item = A>) -> usize {
    let (mut all, mut count) = (addrs.peekable(), 0);
    let mut out = [NextHopId::NONE; 64];
    while all.peek().is_some() {
        let addrs: Vec<A> = all.by_ref().take(64).collect();
        asked.lookup_batch(&addrs, &mut out);
        for (&addr, &got) in addrs.iter().zip(&out) {
            assert_eq!(got, A::best(&lab.control, addr), "{}", addr.to_ip());
        }
        count += addrs.len();
    }
    count
}

fn random<A: Family>(rng: &mut Rng) -> A {
    A::from_u128(u128::from(rng.word()) << 64 | u128::from(rng.word()))
}

/// Random, biased and edge addresses.
fn all_kinds<A: Family>(lab: &Lab, count: usize, rng: &mut Rng) -> usize {
    let asked = A::asked(&lab.forwarder);
    let prefixes = A::prefixes(&lab.control);
    let edges = prefixes
        .iter()
        .step_by((prefixes.len() / count).max(1))
        .flat_map(|&(_, first, last)| [first.prev(), first, first.next(), last, last.next()]);
    let mut checked = compare(lab, &asked, edges);
    let spread: Vec<A> = (0..count / 2).map(|_| random(rng)).collect();
    checked += compare(lab, &asked, spread.into_iter());
    let inside = (0..count / 2).map(|_| {
        let (_, first, last) = prefixes[rng.below(prefixes.len())];
        let (first, last) = (first.to_u128(), last.to_u128());
        let host = random::<A>(rng).to_u128();
        A::from_u128(first + (host & (last - first)))
    });
    let inside: Vec<A> = inside.collect();
    checked + compare(lab, &asked, inside.into_iter())
}

/// Changes routes while the program looks up addresses whose routes do not change.
fn churn<A: Family>(lab: &mut Lab, changes: usize, replayed: usize, rng: &mut Rng) -> Churned {
    let mut stream = A::stream();
    stream.truncate(replayed);
    let recorded: HashSet<AnyPrefix> = stream.iter().map(|&(prefix, _)| prefix).collect();
    let in_stream = |addr: A, len: u8| {
        let around = |len| {
            let prefix = Prefix::masked(addr, len);
            AnyPrefix::new(prefix.addr().to_ip(), len).expect("host bits are clear")
        };
        (len..=A::BITS).any(|len| recorded.contains(&around(len)))
    };
    let mut prefixes = A::prefixes(&lab.control);
    prefixes.retain(|&(_, first, _)| !first.on_link());
    // Every third prefix stays as it is, and with it the addresses that no changed one covers: those
    // that are still found by it when all the others have gone.
    let (keep, change): (Vec<_>, Vec<_>) =
        (prefixes.into_iter().enumerate()).partition(|(i, _)| i % 3 == 0);
    let stable: Vec<(A, NextHopId)> = keep
        .iter()
        .step_by(5)
        .filter_map(|&(_, (prefix, first, _))| {
            let found = lab.control.lookup_route(MAIN_TABLE, first.to_ip())?;
            let alone = found.prefix == prefix && !in_stream(first, prefix.len());
            alone.then(|| (first, found.candidates[0].hop))
        })
        .collect();
    let source = lab.sources[usize::from(A::FAMILY == 6)];
    let (stop, asked_count) = (AtomicBool::new(false), AtomicU64::new(0));
    let forwarder = lab.forwarder.clone();
    let spent = std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut out = [NextHopId::NONE; 64];
            while !stop.load(Ordering::Relaxed) {
                // Made anew now and then, since a table may have been built anew.
                let asked = A::asked(&forwarder);
                for keys in stable.chunks(64) {
                    let addrs: Vec<A> = keys.iter().map(|&(addr, _)| addr).collect();
                    asked.lookup_batch(&addrs, &mut out);
                    for (&(addr, hop), &got) in keys.iter().zip(&out) {
                        assert_eq!(got, hop, "{}, which nobody changed", addr.to_ip());
                    }
                    asked_count.fetch_add(addrs.len() as u64, Ordering::Relaxed);
                }
            }
        });
        // Also when the writer panics.
        let stopping = Stop(&stop);
        let mut spent = Duration::ZERO;
        let mut done = 0;
        let all = stream.len() + changes;
        while done < all && !reader.is_finished() {
            let start = Instant::now();
            for at in done..done + ROUND {
                let (prefix, announced) = stream.get(at).copied().unwrap_or_else(|| {
                    let (_, (prefix, ..)) = change[rng.below(change.len())];
                    (prefix, !rng.chance(20))
                });
                let key = RouteKey { table: MAIN_TABLE, prefix, metric: 0 };
                if !announced {
                    lab.control.handle(source, RouteEvent::Withdraw(key));
                } else {
                    let number = u32::try_from(rng.below(GATEWAYS as usize)).expect("small");
                    let gateway = Some(A::gateway(number));
                    let path = Target::Path(Path { gateway, link: Some(2), weight: 1 });
                    let put =
                        lab.control.put_route(source, key, Operation::REPLACE, &path, None, None);
                    put.expect("a route that can be");
                }
            }
            lab.control.commit_now(Instant::now()).expect("the table holds it");
            spent += start.elapsed();
            done += ROUND;
            if done % (20 * ROUND) == 0 {
                let asked = A::asked(&lab.forwarder);
                let some: Vec<A> = (0..640).map(|_| change[rng.below(change.len())].1.1).collect();
                compare(lab, &asked, some.into_iter());
            }
        }
        while asked_count.load(Ordering::Relaxed) == 0 && !reader.is_finished() {
            std::thread::yield_now();
        }
        drop(stopping);
        reader.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        spent
    });
    let (beside, seconds) = (asked_count.load(Ordering::Relaxed), spent.as_secs_f64());
    Churned { replayed: stream.len(), beside, seconds }
}

/// Has the reader end.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// What [`churn`] did.
struct Churned {
    /// Recorded updates.
    replayed: usize,
    /// Answers compared meanwhile.
    beside: u64,
    /// To make all changes visible, routes and next hops included.
    seconds: f64,
}

fn prove<A: Family>([addresses, changes, replayed]: [usize; 3]) {
    let Some(mut lab) = lab() else { return };
    let mut rng = Rng::new(A::FAMILY.into());
    let before = all_kinds::<A>(&lab, addresses, &mut rng);
    let Churned { replayed, beside, seconds } = churn::<A>(&mut lab, changes, replayed, &mut rng);
    let after = all_kinds::<A>(&lab, addresses, &mut rng);
    println!(
        "IPv{}: {before} answers before, {beside} beside {replayed} recorded and {changes} random \
         changes in {seconds:.2} s, {after} after; {} KiB reserved in maps",
        A::FAMILY,
        lab.forwarder.reserved_bytes() >> 10
    );
    assert!(beside > 0, "the program was asked meanwhile");
    assert!(lab.forwarder.reserved_bytes() <= CAP_BYTES);
}

/// Addresses a family, random changes, recorded ones.
fn sizes() -> [usize; 3] {
    let long = soak(Duration::from_secs(1)) > Duration::from_secs(1);
    if long { [5_000_000, 500_000, usize::MAX] } else { [40_000, 10_000, 10_000] }
}

#[test]
fn xdp_program_and_rib_agree_v4() {
    prove::<u32>(sizes());
}

#[test]
fn xdp_program_and_rib_agree_v6() {
    prove::<u128>(sizes());
}

/// What the shipped tables of both families take: at most 6 bytes a prefix in use beyond next hops, and
/// less than the cap reserved in all.
#[test]
fn both_tables_are_small_in_maps() {
    let Some(lab) = lab() else { return };
    let tables = lab.forwarder.table_memory(0).map(|table| table.expect("programs read it"));
    let prefixes = [lab.control.rib_v4().len(), lab.control.rib_v6().len()];
    let reserved = lab.forwarder.reserved_bytes();
    let (all, used) = (prefixes[0] + prefixes[1], tables[0].used + tables[1].used);
    println!(
        "{tables:?} for {prefixes:?} prefixes: {:.2} bytes each in use, {} KiB reserved in all",
        used as f64 / all as f64,
        reserved >> 10
    );
    assert!(prefixes[0] > 800_000 && prefixes[1] > 100_000);
    assert!(used <= 6 * all, "{used} bytes for {all} prefixes");
    assert!(tables.iter().all(|table| table.used <= table.reserved));
    let of_tables: usize = tables.iter().map(|table| table.reserved).sum();
    assert!(of_tables < reserved && reserved <= lab.forwarder.cap_bytes());
    assert_eq!(lab.forwarder.cap_bytes(), 16 << 20);
}
