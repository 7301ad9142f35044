//! Policers in the built-in router.

use std::sync::Arc;

use fingerpost_route::ForwardingAction;

use super::{FEATURE, Policers, State};
use crate::feature::FeatureStates;
use crate::feature::row::{Cell, Given, GivenInterface};
use crate::feature::value::Value;
use crate::frame::DropReason;
use crate::frame::wire::ip4::sum_is_valid;
use crate::frame::wire::{Ip4, Ip6};
use crate::graph::Graph;
use crate::router_graph::plan_with;
use crate::testing::{Bench, World, batch, frame_v4, frame_v6};

fn item(entries: &[(&str, &str)]) -> (String, Value) {
    let value = |text: &str| text.parse().map_or(Value::Text(text.into()), Value::Integer);
    let entries = entries.iter().map(|(key, text)| ((*key).to_owned(), value(text)));
    ("policer.0".to_owned(), Value::Table(entries.collect()))
}

/// State of these policers, or what is wrong with them.
fn made(items: &[&[(&str, &str)]], before: Option<&dyn State>) -> Result<Arc<dyn State>, String> {
    let interface =
        |name: &str| GivenInterface { name: name.to_owned(), place: String::new(), value: None };
    let given = Given {
        interfaces: vec![interface("lan"), interface("wan")],
        items: items.iter().map(|entries| item(entries)).collect(),
    };
    let mut mistakes = Vec::new();
    let settings = (FEATURE.read)(&given, &mut mistakes);
    match mistakes.first() {
        Some(mistake) => Err(format!("{}: {}", mistake.at, mistake.what)),
        None => Ok(settings.make(before).unwrap().unwrap()),
    }
}

/// A router whose ports are `lan` and `wan`, with routes by `wan`.
struct Router {
    bench: Bench,
    graphs: Vec<Graph>,
}

impl Router {
    fn new(state: Arc<dyn State>, workers: usize) -> Self {
        let mut world = World::new();
        world.neighbor(4, 1);
        world.action("192.0.2.0/24", ForwardingAction::Adjacency(4));
        world.action("2001:db8:5::/48", ForwardingAction::Adjacency(4));
        let mut bench = Bench::new(&world);
        bench.now_ns = 1_000_000_000;
        state.follow(&[(0, "lan"), (1, "wan")]);
        let states = FeatureStates::default().with("policer", state);
        let plan = plan_with(None, &states).unwrap();
        let graphs = (0..workers).map(|_| Graph::new(&plan, &bench.pool)).collect();
        Self { bench, graphs }
    }

    /// Frames that a worker sends of these, which arrive on `lan`.
    fn send(&mut self, worker: usize, frames: &[Vec<u8>]) -> Vec<Vec<u8>> {
        let frames = batch(&self.bench.pool, 0, frames.iter().map(|frame| &frame[..]));
        self.graphs[worker].receive(0, frames, &mut self.bench.round());
        std::mem::take(&mut self.bench.sent.frames).into_iter().map(|sent| sent.1).collect()
    }
}

fn v4(port: u16) -> Vec<u8> {
    let mut payload = [0; 66];
    payload[2..4].copy_from_slice(&port.to_be_bytes());
    frame_v4("10.0.0.9", "192.0.2.1", 64, 17, &payload)
}

fn counts(state: &dyn State) -> Vec<[u64; 3]> {
    let number = |cell: &Cell| match cell {
        Cell::Number(number) => *number,
        other => panic!("{other:?}"),
    };
    state.rows().iter().map(|row| [7, 8, 9].map(|at| number(&row[at]))).collect()
}

#[test]
fn a_rate_holds_however_packets_are_spread_over_workers() {
    for (workers, direction) in [(1, "in"), (2, "in"), (3, "out")] {
        let interface = if direction == "in" { "lan" } else { "wan" };
        let policer = [
            ("name", "customer"),
            ("interface", interface),
            ("direction", direction),
            ("rate", "800kbps"),
            ("burst", "2kB"),
        ];
        let state = made(&[&policer[..]], None).unwrap();
        let mut router = Router::new(state.clone(), workers);
        let mut sent = 0;
        // 100 bytes a packet, ten times the rate, for a second; the first worker has more than its share.
        for step in 0..1_000 {
            router.bench.now_ns += 1_000_000;
            let worker = if step % 3 == 0 { step % workers } else { 0 };
            sent += router.send(worker, &vec![v4(1); 10]).len();
        }
        // 100,000 bytes, the burst, and what the last packet of it may owe.
        assert!((1_000..=1_021).contains(&sent), "{workers} workers: {sent}");
        let dropped = router.bench.counters.dropped[DropReason::Policer as usize].read();
        assert_eq!(dropped, 10_000 - sent as u64, "conservation");
        assert_eq!(counts(&*state), [[10_000, 1_000_000, dropped]]);
        assert_eq!(router.bench.pool.free(), router.bench.pool.frames());
    }
}

#[test]
fn what_exceeds_is_marked_and_stays_right() {
    let policer = [
        ("name", "gold"),
        ("interface", "wan"),
        ("direction", "out"),
        ("rate", "1000"),
        ("burst", "2"),
        ("exceed", "dscp 8"),
    ];
    let state = made(&[&policer[..]], None).unwrap();
    let mut router = Router::new(state.clone(), 1);
    let six = frame_v6("2001:db8::9", "2001:db8:5::1", 64, 17, &[0; 30]);
    let sent = router.send(0, &[v4(1), v4(1), v4(1)]);
    let marks: Vec<u8> = sent.iter().map(|frame| frame[15]).collect();
    assert_eq!(marks, [0, 0, 8 << 2]);
    assert!(sent.iter().all(|frame| sum_is_valid(Ip4::at(frame, 14).unwrap().raw_sum())));
    let sent = router.send(0, &[six]);
    assert_eq!(Ip6::at(&sent[0], 14).unwrap().traffic_class(), 8 << 2);
    assert_eq!(counts(&*state)[0][2], 2);
}

#[test]
fn the_first_policer_that_takes_a_packet_polices_it() {
    let common = [("interface", "lan"), ("direction", "in"), ("burst", "1")];
    let policer = |own: &[(&'static str, &'static str)]| [own, &common[..]].concat();
    let dns = policer(&[("name", "dns"), ("match", "udp dst port 53"), ("rate", "10")]);
    let rest = policer(&[("name", "rest"), ("rate", "1000")]);
    let state = made(&[&dns[..], &rest[..]], None).unwrap();
    let mut router = Router::new(state.clone(), 1);
    assert_eq!(router.send(0, &[v4(53), v4(53), v4(80), v4(80), v4(53)]).len(), 2);
    let counted: Vec<_> = counts(&*state).iter().map(|row| [row[0], row[2]]).collect();
    assert_eq!(counted, [[3, 2], [2, 1]]);
    // Another rate: counts go on, and what has not changed is the same bucket.
    let faster = policer(&[("name", "rest"), ("rate", "2000")]);
    let next = made(&[&dns[..], &faster[..]], Some(&*state)).unwrap();
    next.go_on_with(&*state);
    let counted: Vec<_> = counts(&*next).iter().map(|row| [row[0], row[2]]).collect();
    assert_eq!(counted, [[3, 2], [2, 1]]);
    let same = |state: &Arc<dyn State>, name: &str| {
        let any: &dyn std::any::Any = &**state;
        Arc::as_ptr(any.downcast_ref::<Policers>().unwrap().find(name).unwrap())
    };
    assert!(
        same(&state, "dns") == same(&next, "dns") && same(&state, "rest") != same(&next, "rest")
    );
}

#[test]
fn mistakes_name_their_places() {
    let with = |key: &'static str, text: &'static str| {
        let mut entries = vec![
            ("name", "a"),
            ("interface", "lan"),
            ("direction", "in"),
            ("rate", "8Mbps"),
            ("burst", "64kB"),
        ];
        entries.retain(|(known, _)| *known != key);
        entries.push((key, text));
        made(&[&entries[..]], None).map(|_| ()).unwrap_err()
    };
    for (key, text, want) in [
        (
            "interface",
            "lam",
            "policer.0.interface: unknown interface `lam`, did you mean `lan`?; correct it, or add ",
        ),
        ("direction", "up", "policer.0.direction: unknown variant `up`"),
        ("rate", "fast", "policer.0.rate: `fast` is no rate"),
        ("burst", "100", "policer.0.burst: a burst in bytes is needed"),
        ("burst", "0B", "policer.0.burst: a burst in bytes is needed"),
        ("exceed", "dscp 64", "policer.0.exceed: `dscp 64`: `exceed` is \"drop\""),
        ("match", "tcp prot 1", "policer.0.match: `tcp prot 1`: expected"),
        ("bust", "1", "policer.0.bust: unknown field `bust`"),
    ] {
        let wrong = with(key, text);
        assert!(wrong.starts_with(want), "{key}: {wrong}");
    }
    let twice = [("name", "a"), ("interface", "lan"), ("direction", "in"), ("rate", "1")];
    assert!(made(&[&twice[..], &twice[..]], None).map(|_| ()).unwrap_err().contains("named twice"));
}
