//! The features of interfaces in the program against the graph: the same packets, the same ends, the same counts.

use std::sync::Arc;

use fingerpost_lpm::testing::Rng;
use fingerpost_route::{Forwarding, PortTable, UrpfMode};

use super::tests::{Lab, conserved};
use super::*;
use crate::xdp::{XDP_DROP, XDP_PASS, XDP_REDIRECT, testing};
use fingerpost_packet::Graph;
use fingerpost_packet::feature::source_filter::{Action, Filter, Row, SourceFilters, prefix, rate};
use fingerpost_packet::feature::{FeatureStates, urpf};
use fingerpost_packet::frame::DropReason;
use fingerpost_packet::router_graph::plan_with;
use fingerpost_packet::testing::{Bench, World, batch, frame_v4, frame_v6};

/// Sources that all kinds of routes and lists have, and some that none has.
const SOURCES: &[&str] = &[
    "10.1.0.2",
    "10.9.0.2",
    "10.10.0.7",
    "172.23.0.9",
    "172.24.0.5",
    "172.25.0.9",
    "198.18.1.1",
    "198.51.100.9",
    "8.8.8.8",
    "9.1.1.1",
    "9.1.1.2",
    "9.1.2.1",
    "2001:db8:1::2",
    "2001:db8:9::2",
    "2001:db8:a::5",
    "2001:db8:c00::7",
    "2001:db8:180::9",
    "2001:db9::1",
    "2001:db9:0:1::1",
    "2a00::1",
];

fn filter(name: &str, action: Action, prefixes: &[&str], interfaces: Option<&[&str]>) -> Filter {
    Filter {
        name: name.to_owned(),
        action,
        file: None,
        prefixes: prefixes.iter().map(|text| prefix(text).unwrap()).collect(),
        interfaces: interfaces.map(|names| names.iter().map(ToString::to_string).collect()),
    }
}

fn filters() -> Vec<Filter> {
    vec![
        filter("bad", Action::Drop, &["9.1.0.0/16", "2001:db9::/48"], Some(&["wan", "strict"])),
        filter("good", Action::Pass, &["9.1.1.2", "172.24.0.0/16"], None),
        filter("seen", Action::Count, &["9.1.1.0/24", "10.0.0.0/8", "::/0"], Some(&["wan", "lan"])),
        filter("some", Action::Limit(rate("1").unwrap()), &["8.0.0.0/8"], Some(&["lan"])),
    ]
}

fn made(lab: &Lab, filters: Vec<Filter>) -> Arc<SourceFilters> {
    let made = SourceFilters::new(filters, None).unwrap();
    follow(lab, &made);
    Arc::new(made)
}

fn follow(lab: &Lab, filters: &SourceFilters) {
    let names = lab.topology.topology.ports.iter().map(|port| &*port.name);
    filters.follow((0..).zip(names));
}

/// The built-in router over the same tables.
struct Router {
    bench: Bench,
    graph: Graph,
}

impl Router {
    fn new(forwarding: &Forwarding, filters: Option<&Arc<SourceFilters>>) -> Self {
        let mut bench = Bench::new(&World::new());
        bench.forwarding = forwarding.clone();
        let mut states = FeatureStates::default().with("urpf", Arc::new(urpf::Running));
        if let Some(filters) = filters {
            states = states.with("source-filter", filters.clone());
        }
        let plan = plan_with(None, &states).unwrap();
        Self { graph: Graph::new(&plan, &bench.pool), bench }
    }

    /// What it sends for a frame, by port, and the reasons by which packets were dropped.
    fn run(&mut self, port: u16, frame: &[u8]) -> (Vec<(u16, Vec<u8>)>, Vec<DropReason>) {
        let count = |router: &Self| {
            let dropped = router.bench.counters.dropped.iter();
            dropped.map(|count| count.read()).collect::<Vec<_>>()
        };
        let before = count(self);
        let frames = batch(&self.bench.pool, port, std::iter::once(frame));
        self.graph.receive(port, frames, &mut self.bench.round());
        let sent = std::mem::take(&mut self.bench.sent.frames);
        let sent = sent.into_iter().map(|(port, frame, _)| (port, frame)).collect();
        let after = count(self);
        let reasons = DropReason::ALL.iter().copied();
        let dropped = reasons.filter(|&reason| after[reason as usize] > before[reason as usize]);
        (sent, dropped.collect())
    }
}

/// Sends packets through programs and graph; how many were sent, dropped by reason, and left.
fn compare(lab: &Lab, filters: Option<&Arc<SourceFilters>>, other: Option<&Arc<SourceFilters>>) {
    let Lab { forwarder, topology, .. } = lab;
    let (mut graph, mut fallback) =
        (Router::new(&topology.forwarding, other), Router::new(&topology.forwarding, filters));
    let mut rng = Rng::new(11);
    let mut programs = std::collections::BTreeMap::new();
    let (mut sent, mut dropped, mut left) = (0, 0, 0);
    for _ in 0..3000 {
        let name = ["lan", "wan", "strict", "loose"][rng.below(4)];
        let (port, src) = (topology.port(name), SOURCES[rng.below(SOURCES.len())]);
        let mut frame = match src.contains(':') {
            true => frame_v6(src, "2001:db8:180::9", 64, 17, &[0; 40]),
            false => {
                let dst = ["198.51.100.7", "172.25.0.9"][rng.below(2)];
                frame_v4(src, dst, 64, 17, &[0; 40])
            }
        };
        frame[..6].copy_from_slice(&topology.mac(name).0);
        let (device, wire) = lab.on_wire(port, &frame, 0);
        let before = forwarder.left_alone().unwrap();
        let program = programs.entry(device).or_insert_with(|| forwarder.tester(device).unwrap());
        let answer = program.test(&wire).unwrap();
        let after = forwarder.left_alone().unwrap();
        let why = after.iter().zip(&before).find(|(a, b)| a.1 > b.1).map(|(a, _)| a.0);
        let want = graph.run(port, &frame);
        let what = format!("{src} by {name}: {why:?}, by the graph {:?}", want.1);
        match answer.action.cast_signed() {
            XDP_REDIRECT => {
                sent += 1;
                // Beside it the graph may send a redirect, where programs send those that turn back.
                let mut wire = want.0.iter().map(|(by, out)| lab.on_wire(*by, out, 0).1);
                assert!(wire.any(|out| out == answer.frame), "{what}");
            }
            XDP_DROP => {
                dropped += 1;
                let reason = why.and_then(LeftAlone::drop_reason);
                assert_eq!(want, (Vec::new(), Vec::from_iter(reason)), "{what}");
            }
            XDP_PASS => {
                left += 1;
                fallback.run(port, &frame);
            }
            other => panic!("{what}: action {other}"),
        }
    }
    println!("{sent} sent, {dropped} dropped, {left} left");
    assert!(sent > 500 && dropped > 300, "{sent} {dropped} {left}");
    conserved(forwarder);
}

/// What both counted, but for what a rate let pass or not.
fn counted(filters: &SourceFilters) -> Vec<(String, u64, u64, u64)> {
    let of = |row: Row| (row.name, row.packets, row.bytes, row.dropped);
    filters.rows().into_iter().map(of).filter(|row| row.0 != "some").collect()
}

/// Program and graph decide alike by routes and by lists, and count on the same lists.
fn every_feature(lab: &Lab) -> [Vec<(String, u64, u64, u64)>; 2] {
    let (here, there) = (made(lab, filters()), made(lab, filters()));
    compare(lab, None, None);
    lab.forwarder.set_source_filters(Some(here.clone()));
    compare(lab, Some(&here), Some(&there));
    let limited = |filters: &SourceFilters| filters.rows().pop().unwrap().packets;
    assert_eq!(limited(&here), limited(&there), "by the graph alone");
    [counted(&here), counted(&there)]
}

#[test]
fn features_do_what_the_graph_does() {
    testing::in_namespace(|| {
        let [here, there] = every_feature(&Lab::new());
        assert_eq!(here, there);
    });
}

/// Bytes differ by those of the tags.
#[test]
fn features_do_what_the_graph_does_with_tags() {
    testing::in_namespace(|| {
        let counts = every_feature(&Lab::tagged()).map(|counts| {
            counts
                .into_iter()
                .map(|(name, packets, _, dropped)| (name, packets, dropped))
                .collect::<Vec<_>>()
        });
        assert_eq!(counts[0], counts[1]);
    });
}

/// Lists change in place, are exchanged, go to other ports, and go away, while programs read them.
#[test]
fn lists_change_under_programs() {
    testing::in_namespace(|| {
        let lab = Lab::new();
        let Lab { forwarder, topology, .. } = &lab;
        let fate = |src: &str, name: &str| {
            let mut frame = frame_v4(src, "172.25.0.9", 64, 17, &[0; 40]);
            frame[..6].copy_from_slice(&topology.mac(name).0);
            let program = forwarder.tester(topology.port(name)).unwrap();
            program.test(&frame).unwrap().action.cast_signed()
        };
        let named = |interfaces: Option<&[&str]>| {
            vec![filter("bad", Action::Drop, &["9.1.0.0/16"], interfaces)]
        };
        let wan = made(&lab, named(Some(&["wan"])));
        forwarder.set_source_filters(Some(wan.clone()));
        assert_eq!(fate("9.1.1.1", "wan"), XDP_DROP);
        assert_eq!(
            wan.edit(0, &[prefix("9.2.0.0/16").unwrap()], &[prefix("9.1.0.0/16").unwrap()]),
            Ok(2)
        );
        assert_eq!((fate("9.1.1.1", "wan"), fate("9.2.1.1", "wan")), (XDP_REDIRECT, XDP_DROP));
        // So many at once are built anew.
        let many: Vec<_> =
            (0..4000).map(|n| prefix(&format!("9.3.{}.{}", n / 16, n % 16)).unwrap()).collect();
        for round in 0..3 {
            assert_eq!(wan.edit(0, &many, &[]), Ok(4000), "{round}");
            assert_eq!((fate("9.3.7.9", "wan"), fate("9.3.7.99", "wan")), (XDP_DROP, XDP_REDIRECT));
            assert_eq!(wan.edit(0, &[], &many), Ok(4000), "{round}");
            assert_eq!(fate("9.3.7.9", "wan"), XDP_REDIRECT);
        }
        let path = std::env::temp_dir().join(format!("fingerpost-lists-{}", std::process::id()));
        std::fs::write(&path, "9.7.0.0/16\n").unwrap();
        assert_eq!(wan.replace(0, &path.display().to_string()), Ok(2));
        std::fs::remove_file(&path).unwrap();
        assert_eq!((fate("9.2.1.1", "wan"), fate("9.7.1.1", "wan")), (XDP_REDIRECT, XDP_DROP));
        // The same lists, and what they counted, for another port.
        let loose = SourceFilters::new(named(Some(&["loose"])), Some(&wan)).unwrap();
        follow(&lab, &loose);
        forwarder.set_source_filters(Some(Arc::new(loose.clone())));
        assert_eq!(fate("9.7.1.1", "wan"), XDP_REDIRECT);
        assert_eq!(fate("9.7.1.1", "loose"), XDP_DROP);
        assert_eq!((loose.rows()[0].packets, loose.rows()[0].dropped), (7, 7));
        // Programs for ports without features are those without.
        let plain = |name: &str| {
            let state = forwarder.state();
            state.ports[&topology.port(name)].features.as_ref().unwrap().is_none()
        };
        assert!(plain("wan") && !plain("loose"));
        forwarder.set_source_filters(None);
        assert!(plain("wan") && plain("lan"));
        conserved(forwarder);
    });
}

/// A check that the graph alone has, and the names that a program without features comes to.
#[test]
fn ports_without_features_run_nothing_of_them() {
    let features = ["ingress", "defaults", "verdicts", "hits", "urpf", "lists"];
    let names = |function: &str| {
        let found = std::cell::RefCell::new(std::collections::BTreeSet::new());
        let bind = |name: &str| {
            found.borrow_mut().insert(name.to_owned());
            Some(Bound::Number(0))
        };
        load::function(OBJECT, function, bind).unwrap();
        found.into_inner()
    };
    let (plain, all) = (names("forward"), names("forward_with_features"));
    for name in features {
        assert!(all.contains(name) && !plain.contains(name), "{name}");
    }
    assert!(
        plain.iter().all(|name| !name.starts_with('s')
            || ["seen", "slots"].contains(&&**name)
            || ["sent", "settings", "seed", "seen_last", "slots_last", "survives"]
                .contains(&&**name)),
        "{plain:?}"
    );
    testing::in_namespace(|| {
        let Lab { mut forwarder, topology, .. } = Lab::new();
        let strict = topology.port("strict");
        assert!(forwarder.reads(strict).unwrap().is_ok());
        let mut ports = PortTable::clone(&topology.forwarding.ports);
        ports.ports[usize::from(strict)].as_mut().unwrap().urpf = Some(UrpfMode::Feasible);
        forwarder.follow(&Forwarding { ports: Arc::new(ports), ..topology.forwarding.clone() });
        let why = forwarder.reads(strict).unwrap().unwrap_err();
        assert!(why.contains("feasible") && forwarder.tester(strict).is_err(), "{why}");
    });
}
