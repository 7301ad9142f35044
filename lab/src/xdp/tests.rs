//! The short form, on a small table.

use super::*;
use crate::document::{Answers, Kind};
use fingerpost_command::progress::Progress;
use fingerpost_lpm::Prefix;

fn options() -> XdpOptions {
    let v4 = (16..2000u32).map(|n| (Prefix::masked(n << 20, 12 + (n % 13) as u8), n % 20 + 1));
    let v6 = (1..500u128).map(|n| {
        let hop = u32::try_from(n).unwrap() % 20 + 1;
        (Prefix::masked(0x2001 << 112 | n << 84, 32 + (n % 33) as u8), hop)
    });
    XdpOptions {
        tables: Tables {
            v4: Some(Table::new("v4", v4.collect())),
            v6: Some(Table::new("v6", v6.collect())),
        },
        engines: find("all").unwrap(),
        destinations: vec![1000],
        packets: 20_000,
        samples: 1,
        seed: 1,
        features: Vec::new(),
        listed: 2000,
    }
}

#[test]
fn every_engine_forwards_as_the_oracle_says() {
    let options = options();
    let document = xdp(&options, &mut Progress::silent()).unwrap();
    let (wanted, mut measured) = (wanted(&options), 0);
    // Four more where anything could be measured: the input of a cluster, and updates beside packets.
    let more = document.runs.get(wanted.len()..).expect("a run for each that is wanted");
    let (inputs, updates) = more.split_at(2.min(more.len()));
    for (run, name) in inputs.iter().zip(["cluster-input", "cluster-input:graph"]) {
        assert_eq!((&run.name[..], run.unit), (name, Unit::NsPerPacket));
        assert!(run.wrong == 0 && run.median > Some(1.0), "{run:?}");
    }
    for (run, family) in updates.iter().zip([4, 6]) {
        assert_eq!((run.family, run.unit), (Some(family), Unit::UpdatesPerSecond), "{run:?}");
        if run.note != "needs two cores" {
            assert_eq!((run.answers, run.wrong), (Answers::Ok, 0), "{run:?}");
            assert!(run.median > Some(1000.0) && run.note.contains(" 0 builds"), "{run:?}");
        }
    }
    for (run, want) in document.runs.iter().zip(wanted) {
        assert_eq!((&run.name, run.family), (&want.name(), Some(want.family)));
        assert_eq!((run.kind, &run.stream[..]), (want.row.kind, "prefix"));
        if run.note.starts_with("skipped: needs") {
            println!("{}", run.note);
            continue;
        }
        // A worker that had no core meanwhile took too few packets for two looks at the clock.
        if want.row.loses && run.note.ends_with("packets arrived") {
            assert_eq!((run.answers, run.wrong), (Answers::Ok, 0), "{run:?}");
            continue;
        }
        assert_eq!((run.destinations, run.samples.len()), (Some(want.destinations), 1), "{run:?}");
        measured += 1;
        if want.alone {
            assert_eq!((run.unit, run.answers), (Unit::NsPerPacket, Answers::Unchecked));
            assert!(run.median.is_some_and(|ns| ns.abs() < 1e5), "{run:?}");
            continue;
        }
        let answers = if want.row.checked { Answers::Ok } else { Answers::Unchecked };
        assert_eq!((run.unit, run.answers, run.wrong), (Unit::Mpps, answers, 0), "{run:?}");
        assert!(run.median > Some(0.001) && run.note.contains("ns a packet"), "{run:?}");
        let compared = run.note.contains(" of bare-redirect");
        assert_eq!(compared, run.name.starts_with("xdp-cluster-"), "{run:?}");
    }
    assert_eq!(updates.len(), if measured > 0 { 2 } else { 0 });
    println!("{measured} of {} runs", document.runs.len());
}

#[test]
fn features_let_the_packets_pass_that_they_must() {
    let features = features::find("urpf,source-filter,acl10,acl1000").unwrap();
    let options = XdpOptions { engines: find("xdp").unwrap(), features, ..options() };
    let document = xdp(&options, &mut Progress::silent()).unwrap();
    let names: Vec<_> = document.runs.iter().map(|run| &run.name[..]).collect();
    let of = |family: u8| {
        let names = ["", "-urpf", "-source-filter", "-acl10", "-acl1000"]
            .map(|end| format!("xdp-v{family}{end}"));
        let programs = names.clone().map(|name| format!("program:{name}"));
        names.into_iter().chain(programs)
    };
    assert_eq!(names, of(4).chain(of(6)).collect::<Vec<_>>());
    for run in &document.runs {
        if run.note.starts_with("skipped: needs") {
            println!("{}", run.note);
            continue;
        }
        let whole = run.unit == Unit::Mpps;
        let answers = if whole { Answers::Ok } else { Answers::Unchecked };
        assert_eq!((run.answers, run.wrong, run.samples.len()), (answers, 0, 1), "{run:?}");
        assert!(run.median.is_some(), "{run:?}");
    }
}

#[test]
fn engines_are_found_by_name() {
    let names = |text| find(text).unwrap().iter().map(|row| row.name).collect::<Vec<_>>();
    assert_eq!(names("lpm-trie-map,bare-redirect"), ["bare-redirect", "lpm-trie-map"]);
    assert!(names("all").len() > 4);
    let error = find("kernel,none").unwrap_err().to_string();
    assert!(error.contains("no forwarder none") && error.contains("bare-redirect"), "{error}");
    let kinds: Vec<_> = find("all").unwrap().iter().map(|row| row.kind).collect();
    assert!(kinds.contains(&Kind::Ceiling) && kinds.contains(&Kind::Peer));
}

#[test]
fn numbers_of_destinations_have_a_limit() {
    for count in [0, MOST_DESTINATIONS + 1] {
        let options = XdpOptions { destinations: vec![count], ..options() };
        let error = xdp(&options, &mut Progress::silent()).unwrap_err().to_string();
        assert!(error.contains("1 to 65536"), "{error}");
    }
}
