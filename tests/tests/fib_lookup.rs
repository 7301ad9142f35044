//! FreeBSD's lookup test module (sys/tests/fib_lookup) on the shipped tables: what readers find is
//! what the RIB has, for random addresses and around every prefix, whichever algorithm answers.
//!
//! Differs from `run_inet_random` and `run_inet_scan`: borders of the default route are scanned too, and
//! the scan is made again after a part of the routes went.

use std::net::IpAddr;
use std::time::Instant;

use fingerpost_lpm::testing::Rng;
use fingerpost_lpm::{Addr, NextHopId, registry};
use fingerpost_route::source::{SourceSpec, file, find};
use fingerpost_route::{
    AnyPrefix, Control, ControlOptions, Forwarding, MAIN_TABLE, Operation, Paths, Reader, RouteKey,
    SourceId, Target,
};
use fingerpost_tests::tables;

/// Addresses looked up in one pin, as the module does.
const TOGETHER: usize = 64;
const RANDOM: usize = 200_000;
const SEED: u64 = 0x6669_625f_6c6f_6f6b;

struct Lab {
    control: Control,
    source: SourceId,
    reader: Reader<Forwarding>,
    now: Instant,
}

/// The shipped table of a family, and a default route.
fn lab(name: &str, default: &str) -> Lab {
    let mut control = Control::new(ControlOptions {
        v4: registry::v4().collect(),
        v6: registry::v6().collect(),
        connected_from_addresses: true,
    })
    .expect("there is memory");
    let source = control.add_source("file", 20);
    let kind = find("file").expect("the file source is in the registry");
    let mut open = (kind.open)(&SourceSpec::default()).expect("it opens");
    let path = tables::shipped().join(name);
    file::feed(open.as_mut(), &path, &mut |event| control.handle(source, event))
        .expect("the table is shipped");
    let now = Instant::now();
    let default = AnyPrefix::parse(default).expect("a prefix");
    let key = RouteKey { table: MAIN_TABLE, prefix: default, metric: 0 };
    control
        .put_route(source, key, Operation::ADD, &Target::Blackhole, None, None)
        .expect("it is new");
    control.commit_now(now).expect("some algorithm holds it");
    let reader = control.reader();
    Lab { control, source, reader, now }
}

trait Family: Addr {
    fn ask(forwarding: &Forwarding, addrs: &[Self], out: &mut [NextHopId]);
    fn prefixes(control: &Control) -> Vec<(AnyPrefix, Self, Self)>;
}

impl Family for u32 {
    fn ask(forwarding: &Forwarding, addrs: &[Self], out: &mut [NextHopId]) {
        forwarding.v4_of(0).lookup_batch(addrs, out);
    }
    fn prefixes(control: &Control) -> Vec<(AnyPrefix, Self, Self)> {
        let all = control.rib_v4().iter();
        all.map(|(p, _)| (AnyPrefix::V4(p), p.first(), p.last())).collect()
    }
}

impl Family for u128 {
    fn ask(forwarding: &Forwarding, addrs: &[Self], out: &mut [NextHopId]) {
        forwarding.v6_of(0).lookup_batch(addrs, out);
    }
    fn prefixes(control: &Control) -> Vec<(AnyPrefix, Self, Self)> {
        let all = control.rib_v6().iter();
        all.map(|(p, _)| (AnyPrefix::V6(p), p.first(), p.last())).collect()
    }
}

impl Lab {
    /// Looks up all, 64 at a time, and compares each answer with the RIB's.
    fn check<A: Family>(&mut self, addrs: impl Iterator<Item = A>, what: &str) -> usize {
        let mut together = Vec::with_capacity(TOGETHER);
        let mut out = [NextHopId::NONE; TOGETHER];
        let mut checked = 0;
        let mut addrs = addrs.peekable();
        while addrs.peek().is_some() {
            together.clear();
            together.extend(addrs.by_ref().take(TOGETHER));
            let forwarding = self.reader.pin();
            A::ask(forwarding, &together, &mut out);
            for (&addr, &got) in together.iter().zip(&out) {
                let addr: IpAddr = addr.to_ip();
                let found = self.control.lookup_route(MAIN_TABLE, addr);
                let want = found.as_ref().map_or(NextHopId::NONE, |f| f.candidates[0].hop);
                let actions = [got, want].map(|hop| forwarding.hops.action(hop, 0));
                assert!(
                    got == want && actions[0] == actions[1],
                    "{what}: {addr}: {got:?}, {found:?}"
                );
            }
            checked += together.len();
        }
        checked
    }

    fn scan<A: Family>(&mut self, what: &str) {
        let prefixes = A::prefixes(&self.control);
        let edges = prefixes
            .iter()
            .flat_map(|&(_, first, last)| [first.prev(), first, first.next(), last, last.next()]);
        assert_eq!(self.check(edges, what), prefixes.len() * 5);
    }

    fn all<A: Family>(&mut self, algorithms: &[Option<&str>]) {
        println!("seed {SEED:#x}");
        let mut random = Rng::new(SEED);
        for &name in algorithms {
            self.control.pin_algorithm(A::FAMILY, name).expect("it is in the registry");
            self.control.commit_now(self.now).expect("it holds the table");
            let what = name.unwrap_or("auto");
            let keys: Vec<A> = (0..RANDOM).map(|_| random.addr()).collect();
            assert_eq!(self.check(keys.into_iter(), what), RANDOM);
            self.scan::<A>(what);
        }
        let prefixes = A::prefixes(&self.control);
        let before = prefixes.len();
        for (prefix, ..) in prefixes.into_iter().step_by(7) {
            let key = RouteKey { table: MAIN_TABLE, prefix, metric: 0 };
            self.control.delete_route(self.source, key, &Paths::All).expect("it was there");
        }
        self.control.commit_now(self.now).expect("less than before");
        assert!(A::prefixes(&self.control).len() < before);
        self.scan::<A>("after a seventh went");
    }
}

#[test]
fn readers_and_rib_agree_v4() {
    let mut lab = lab("v4-tier1-nh496.txt.xz", "0.0.0.0/0");
    let shown = [None, Some("dxr"), Some("dir24_8"), Some("radix_lockless")];
    lab.all::<u32>(&shown);
}

#[test]
fn readers_and_rib_agree_v6() {
    let mut lab = lab("v6-tier1-nh496.txt.xz", "::/0");
    let shown = [None, Some("dxr"), Some("bsearch"), Some("radix_lockless")];
    lab.all::<u128>(&shown);
}
