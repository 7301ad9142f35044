//! Sampling: what the configuration may have of it, and what the element takes and counts.

use std::sync::Arc;

use super::element::Sampler;
use super::settings::{Protocol, read};
use super::{Queue, Sampled, Sampling};
use crate::feature::Value;
use crate::feature::row::{Given, GivenInterface, State as _, Support};
use crate::frame::Decision;
use crate::graph::{Element as _, Instance};
use crate::testing::{Bench, World, batch, frame_v4, frame_v6};

/// What is read: interfaces with their values, and collectors.
fn given(interfaces: &[(&str, Option<Value>)], collectors: &[&[(&str, Value)]]) -> Given {
    let interface = |(at, (name, value)): (usize, &(&str, Option<Value>))| GivenInterface {
        name: (*name).to_owned(),
        place: format!("interface.{at}.sampling"),
        value: value.clone(),
    };
    let collector = |(at, entries): (usize, &&[(&str, Value)])| {
        let entries = entries.iter().map(|(key, value)| ((*key).to_owned(), value.clone()));
        (format!("collector.{at}"), Value::Table(entries.collect()))
    };
    Given {
        interfaces: interfaces.iter().enumerate().map(interface).collect(),
        items: collectors.iter().enumerate().map(collector).collect(),
    }
}

fn text(text: &str) -> Value {
    Value::Text(text.to_owned())
}

fn usual() -> [(&'static str, Value); 2] {
    [("address", text("192.0.2.1")), ("protocol", text("sflow"))]
}

fn made(rates: &[(&str, i64)], before: Option<&Sampling>) -> Arc<Sampling> {
    let rates: Vec<_> =
        rates.iter().map(|(name, rate)| (*name, Some(Value::Integer(*rate)))).collect();
    let mut mistakes = Vec::new();
    let settings = read(&given(&rates, &[&usual()]), &mut mistakes);
    assert_eq!(mistakes, []);
    let state = settings.make(before.map(|before| before as _)).unwrap().unwrap();
    let any: Arc<dyn std::any::Any + Send + Sync> = state;
    any.downcast().unwrap()
}

#[test]
fn settings_are_read_whole() {
    let full = [
        ("address", text("[2001:db8::1]:9995")),
        ("protocol", text("ipfix")),
        ("agent", text("2001:db8::2")),
        ("counters_s", Value::Integer(5)),
        ("header", Value::Integer(256)),
        ("as_table", text("/nowhere/as.txt")),
    ];
    let given = given(&[("a", Some(Value::Integer(1000))), ("b", None)], &[&usual(), &full]);
    let mut mistakes = Vec::new();
    let settings = read(&given, &mut mistakes);
    assert_eq!(mistakes, []);
    assert_eq!(settings.on("a").unwrap().words, "1 in 1000");
    assert!(settings.on("b").is_none());
    assert_eq!(settings.xdp(Some("a")), Support::Xdp);
    let items: Vec<_> = settings.items().into_iter().map(|item| (item.name, item.words)).collect();
    let want = [
        ("interface a sampling", "1 in 1000"),
        ("collector 192.0.2.1:6343", "sflow, counters every 20 s, header 128"),
        (
            "collector [2001:db8::1]:9995",
            "ipfix, counters every 5 s, header 256, agent 2001:db8::2, AS numbers of /nowhere/as.txt",
        ),
    ];
    assert_eq!(items, want.map(|(name, words)| (name.to_owned(), words.to_owned())));
    assert_eq!(Protocol::Ipfix.name(), "ipfix");
    let place = "collector.1.as_table".to_owned();
    assert_eq!(settings.files(), [(place.clone(), "/nowhere/as.txt".to_owned())]);
    let [wrong] = &settings.check_files()[..] else { panic!("one file cannot be read") };
    assert_eq!(wrong.at, place);
    assert!(wrong.what.starts_with("/nowhere/as.txt: "), "{}", wrong.what);
}

#[test]
fn a_mistake_is_one_message_with_its_place() {
    let rate = |value| vec![("a", Some(value))];
    let good = || rate(Value::Integer(1000));
    let with = |key: &'static str, value: Value| {
        let mut entries: Vec<(&str, Value)> = usual().to_vec();
        entries.retain(|(known, _)| *known != key);
        entries.push((key, value));
        entries
    };
    for (interfaces, collector, place, want) in [
        (good(), None, "interface.0.sampling", "`sampling` needs a collector: add `[[collector]]`"),
        (
            rate(Value::Integer(0)),
            Some(usual().to_vec()),
            "interface.0.sampling",
            "`sampling`: 0 is",
        ),
        (rate(text("1:9")), Some(usual().to_vec()), "interface.0.sampling", "`sampling`: invalid"),
        (
            good(),
            Some(with("address", text("collector"))),
            "collector.0.address",
            "`collector` is no address: write \"192.0.2.1\"",
        ),
        (good(), Some(with("address", text("192.0.2.1:0"))), "collector.0.address", "port 0"),
        (
            good(),
            Some(with("protocol", text("netflow"))),
            "collector.0.protocol",
            "unknown variant `netflow`, expected one of `sflow`, `ipfix`",
        ),
        (good(), Some(with("agent", text("me"))), "collector.0.agent", "`me` is no address"),
        (
            good(),
            Some(with("counters_s", Value::Integer(0))),
            "collector.0.counters_s",
            "`counters_s` is a number from 1 to 3600",
        ),
        (
            good(),
            Some(with("header", Value::Integer(300))),
            "collector.0.header",
            "`header` is a number from 80 to 256",
        ),
        (good(), Some(vec![("protocol", text("sflow"))]), "collector.0", "missing field `address`"),
    ] {
        let collectors: Vec<&[(&str, Value)]> = collector.iter().map(Vec::as_slice).collect();
        let mut mistakes = Vec::new();
        read(&given(&interfaces, &collectors), &mut mistakes);
        let [one] = &mistakes[..] else { panic!("{want}: {mistakes:?}") };
        assert_eq!(one.at, place, "{one:?}");
        assert!(one.what.starts_with(want), "{want}: {one:?}");
    }
    let mut mistakes = Vec::new();
    read(&given(&good(), &[&usual(), &usual()]), &mut mistakes);
    assert_eq!(mistakes[0].what, "collector 192.0.2.1:6343 is given twice");
}

/// Sends packets of ports 0 and 1 through the element, so many batches of 64; returns what was sampled.
fn run(sampling: &Arc<Sampling>, instance: Instance, batches: usize) -> Vec<(u16, usize)> {
    let mut bench = Bench::new(&World::new());
    let mut element = Sampler::new(Some(sampling), instance);
    let mut seen = Vec::new();
    let four = frame_v4("10.0.0.9", "192.0.2.1", 64, 17, &[7; 1000]);
    let six = frame_v6("2001:db8::9", "2001:db8:5::1", 64, 17, &[7; 30]);
    for n in 0..batches {
        let (frame, input) = if n % 2 == 0 { (&four, 0) } else { (&six, 3) };
        let mut batch = batch(&bench.pool, 0, (0..64).map(|_| &frame[..]));
        for (i, meta) in batch.meta_mut().iter_mut().enumerate() {
            meta.port = u16::from(i >= 48);
        }
        element.process(input, &mut batch, &mut bench.context());
        assert!((0..64).all(|i| batch.decision(i) == Decision::Output(input)), "all pass");
        sampling.take(usize::MAX, |sample| {
            assert_eq!(sample.header(), &frame[..frame.len().min(256)]);
            seen.push((sample.port, sample.frame_len as usize));
        });
    }
    seen
}

#[test]
fn one_packet_in_n_of_a_port_is_sampled_and_all_pass() {
    let sampling = made(&[("a", 100)], None);
    sampling.follow(&[(0, "a"), (1, "b")]);
    let seen = run(&sampling, Instance::Worker, 2000);
    // 96,000 packets of port 0: 960 samples, give or take 18 (a third of the variance of independent ones).
    assert!(seen.len().abs_diff(960) < 72, "{}", seen.len());
    assert!(seen.iter().all(|(port, _)| *port == 0));
    let long = seen.iter().filter(|(_, len)| *len == 1034).count();
    assert!(long.abs_diff(seen.len() / 2) < 100, "of both families: {long}");
    let samples = seen.len() as u64;
    assert_eq!(sampling.of("a"), Some((100, Sampled { packets: 96_000, samples, lost: 0 })));
    assert_eq!(run(&sampling, Instance::DryRun, 100), [], "a dry run does not show");
    assert_eq!(sampling.of("a").unwrap().1.packets, 96_000);
}

#[test]
fn samples_that_do_not_fit_are_lost_and_counted() {
    let mut sampling = Arc::into_inner(made(&[("a", 1)], None)).unwrap();
    sampling.queue = Arc::new(Queue::new(10));
    let sampling = Arc::new(sampling);
    sampling.follow(&[(0, "a")]);
    assert_eq!(run(&sampling, Instance::Worker, 1).len(), 10);
    let want = Sampled { packets: 48, samples: 48, lost: 38 };
    assert_eq!(sampling.of("a"), Some((1, want)));
    let cells = format!("{:?}", sampling.rows());
    assert!(cells.contains("Number(48), Number(48), Number(38)"), "{cells}");
}

#[test]
fn another_configuration_continues_counts_and_queue() {
    let first = made(&[("a", 1), ("b", 7)], None);
    first.follow(&[(0, "a"), (1, "b")]);
    run(&first, Instance::Worker, 1);
    let second = made(&[("b", 7), ("a", 2)], Some(&first));
    assert_eq!(second.of("b"), first.of("b"));
    assert_eq!(second.of("a"), Some((2, Sampled { packets: 48, samples: 48, lost: 0 })));
    // A worker still runs the graph before.
    run(&first, Instance::Worker, 1);
    second.go_on_with(&*first);
    assert_eq!(second.of("a").unwrap().1.packets, 96);
    assert!(Arc::ptr_eq(&first.queue, &second.queue));
    // The XDP datapath counts on: what it had counted is not counted twice.
    second.follow(&[(0, "a")]);
    assert_eq!([0, 1].map(|port| second.rate(port)), [2, 0]);
    second.note_xdp(0, Sampled { packets: 1000, samples: 500, lost: 3 });
    let third = made(&[("a", 3)], Some(&second));
    third.go_on_with(&*second);
    assert_eq!(third.of("a"), Some((3, Sampled { packets: 1096, samples: 596, lost: 3 })));
    let none = made(&[], Some(&second));
    assert!(!none.runs(crate::feature::row::FeatureArc::Ingress), "counters alone");
}

/// A port number is used again once its interface is gone, and an interface that comes back has another one.
#[test]
fn counts_of_xdp_are_of_the_interface_that_had_the_port() {
    let sampling = made(&[("a", 100), ("b", 100)], None);
    let counts = |packets| Sampled { packets, samples: packets / 10, lost: 0 };
    sampling.follow(&[(7, "a")]);
    sampling.note_xdp(7, counts(100));
    sampling.note_xdp(8, counts(30));
    sampling.follow(&[(7, "b"), (9, "a"), (8, "x")]);
    for (port, packets) in [(7, 150), (9, 20), (7, 160), (8, 70)] {
        sampling.note_xdp(port, counts(packets));
    }
    let of = |sampling: &Sampling, name| sampling.of(name).unwrap().1;
    assert_eq!((of(&sampling, "a"), of(&sampling, "b")), (counts(120), counts(60)));
    // Another configuration continues.
    let other = made(&[("a", 100), ("b", 50)], Some(&sampling));
    other.follow(&[(7, "b"), (9, "a")]);
    other.note_xdp(7, counts(200));
    assert_eq!((of(&other, "a"), of(&other, "b")), (counts(120), counts(100)));
}
