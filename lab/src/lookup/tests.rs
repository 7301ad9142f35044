//! Lookup benches on small tables: every stream and mode, answers checked, documents as promised.

use super::entries::{machine_efficiencies, rounded, shares};
use super::*;
use crate::document::{Answers, Kind, Unit};
use fingerpost_command::progress::Progress;
use fingerpost_lpm::Prefix;

fn options() -> LookupOptions {
    let v4 = (1..400u32).map(|n| (Prefix::masked(n << 22, 8 + (n % 20) as u8), n % 50 + 1));
    let v6 = (1..100u32).map(|n| (Prefix::masked(0x2001 << 112 | u128::from(n) << 90, 64), n));
    LookupOptions {
        tables: Tables {
            v4: Some(Table::new("v4", v4.collect())),
            v6: Some(Table::new("v6", v6.collect())),
        },
        keys: 5000,
        seconds: 0.003,
        samples: 3,
        ..LookupOptions::default()
    }
}

#[test]
fn every_algorithm_is_measured_in_every_way() {
    let options = LookupOptions {
        streams: vec![Stream::Uniform, Stream::Zipf, Stream::SequentialPrefix],
        ..options()
    };
    let document = lookup(&options, &mut Progress::silent()).unwrap();
    assert_eq!((document.tables.len(), document.table.family), (2, 4));
    let streams = options.streams.len();
    for (family, rows) in [(4, fingerpost_lpm::v4().count()), (6, fingerpost_lpm::v6().count())] {
        let ours: Vec<_> = document
            .runs
            .iter()
            .filter(|run| run.family == Some(family) && run.kind != Kind::Ceiling)
            .collect();
        // One of the streams has one mode, the others two.
        assert_eq!(ours.len(), rows * (2 * streams - 1));
        for run in ours {
            if run.median.is_none() {
                assert!(run.note.contains("exceeded"), "{}: {}", run.name, run.note);
                continue;
            }
            assert_eq!((run.answers, run.wrong), (Answers::Ok, 0), "{} {}", run.name, run.stream);
            assert!(run.median > Some(0.0) && run.samples.len() == 3);
            assert!(
                run.bytes > Some(0) && run.lines >= Some(1.0) && run.share_two_loads > Some(0.0)
            );
            assert_eq!(run.mode == Mode::Dependent, run.stream.starts_with("sequential"));
        }
        let ceilings: Vec<_> = document
            .runs
            .iter()
            .filter(|run| run.family == Some(family) && run.kind == Kind::Ceiling)
            .collect();
        for name in ["empty", "one-load", "two-loads"] {
            assert!(
                ceilings.iter().any(|run| run.name == name && run.median > Some(0.0)),
                "{name}"
            );
        }
    }
}

#[test]
fn what_a_table_exceeds_is_not_measured() {
    let routes = (0..65_536 + 10).map(|n| (Prefix::masked(n << 10, 24), n + 1));
    let options = LookupOptions {
        tables: Tables { v4: Some(Table::new("v4", routes.collect())), v6: None },
        algorithms: vec!["dxr16".into(), "radix".into()],
        streams: vec![Stream::Uniform],
        modes: vec![Mode::Batch],
        ceilings: false,
        ..options()
    };
    let runs = lookup(&options, &mut Progress::silent()).unwrap().runs;
    let found: Vec<_> = runs.iter().map(|run| (&run.name[..], run.median.is_some())).collect();
    assert_eq!(found, [("dxr16", false), ("radix", true)]);
    assert!(runs[0].note.contains("limit exceeded"), "{}", runs[0].note);
    let none = LookupOptions { algorithms: vec!["nothing".into()], ..options };
    assert!(lookup(&none, &mut Progress::silent()).is_err());
}

#[test]
fn several_threads_have_a_run_of_their_own() {
    let options = LookupOptions {
        algorithms: vec!["dxr18".into()],
        streams: vec![Stream::Uniform],
        modes: vec![Mode::Batch],
        threads: vec![1, 2, 3],
        ..options()
    };
    let runs = lookup(&options, &mut Progress::silent()).unwrap().runs;
    let ours: Vec<_> = runs.iter().filter(|run| run.kind == Kind::Published).collect();
    assert_eq!(ours.iter().map(|run| run.threads).collect::<Vec<_>>(), [2, 3, 1]);
    assert!(ours[0].efficiency > Some(0.0) && ours[2].efficiency.is_none());
    assert!(ours[0].machine_efficiency > Some(0.0) && ours[2].machine_efficiency.is_none());
    assert!(ours[0].note.contains("of their cores"), "{}", ours[0].note);
    let ceiling = |name: &str, mode, median, efficiency| {
        let mut run = Run::new(name, Kind::Ceiling, "uniform", Unit::MlookupsPerSecond);
        (run.mode, run.threads, run.bytes) = (mode, 2, Some(rounded(1_000_000)));
        (run.median, run.efficiency) = (Some(median), Some(efficiency));
        run
    };
    let mut result = ours[0].clone();
    (result.bytes, result.machine_efficiency) = (Some(1_000_000), None);
    let mut runs = [
        result,
        ceiling("one-load", Mode::Single, 100.0, 0.7),
        ceiling("one-load", Mode::Batch, 200.0, 0.9),
        ceiling("two-loads", Mode::Batch, 300.0, 0.8),
    ];
    machine_efficiencies(&mut runs);
    assert_eq!(runs[0].machine_efficiency, Some(0.9));
}

#[test]
fn a_trace_has_addresses_of_one_family_or_both() {
    let mut options = LookupOptions {
        algorithms: vec!["radix".into()],
        streams: vec![Stream::Trace],
        modes: vec![Mode::Batch],
        trace: Some(Trace { v4: vec![1 << 22, 5], v6: vec![7] }),
        ceilings: false,
        ..options()
    };
    let runs = lookup(&options, &mut Progress::silent()).unwrap().runs;
    assert!(runs.len() == 2 && runs.iter().all(|run| run.wrong == 0 && run.median.is_some()));
    options.trace = Some(Trace { v4: vec![1], v6: Vec::new() });
    let error = lookup(&options, &mut Progress::silent()).unwrap_err().to_string();
    assert_eq!(error, "the trace has no IPv6 address");
}

#[test]
fn a_result_is_set_beside_the_better_ceiling_of_its_size() {
    let run = |name: &str, kind, mode, bytes, median| {
        let mut run = Run::new(name, kind, "uniform", Unit::MlookupsPerSecond);
        (run.mode, run.bytes, run.median) = (mode, Some(bytes), Some(median));
        run
    };
    let mut runs = [
        run("a", Kind::Ours, Mode::Batch, 1_000_000, 90.0),
        run("a", Kind::Ours, Mode::Batch, 5, 90.0),
        run("two-loads", Kind::Ceiling, Mode::Batch, rounded(1_000_000), 180.0),
        run("two-loads", Kind::Ceiling, Mode::Single, rounded(1_000_000), 100.0),
        run("one-load", Kind::Ceiling, Mode::Batch, rounded(1_000_000), 900.0),
    ];
    shares(&mut runs);
    let shares: Vec<_> = runs.iter().map(|run| run.share_two_loads).collect();
    assert_eq!(shares, [Some(0.5), None, None, None, None]);
    for bytes in [1, 100, 4097, 1 << 20, 1_900_000, 40 << 20] {
        let up = rounded(bytes);
        assert!(up >= bytes && up - bytes <= bytes / 16 + 64, "{bytes} {up}");
    }
}
