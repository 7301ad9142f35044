//! Every run on a small table, and the programs of others where they can be had.

use super::*;
use crate::document::Answers;
use crate::table::Table;
use fingerpost_command::progress::Progress;
use fingerpost_lpm::Prefix;

/// Routes of both families, some inside others, on `hops` next hops.
fn options(hops: u32) -> FibOptions {
    // Nothing below 1.0.0.0, which other programs refuse.
    let v4 = (32..2000u32).map(|n| (Prefix::masked(n << 19, 12 + (n % 13) as u8), n % hops + 1));
    let v6 = (1..500u128).map(|n| {
        let hop = u32::try_from(n).unwrap() % hops + 1;
        (Prefix::masked(0x2001 << 112 | n << 84, 32 + (n % 17) as u8), hop)
    });
    FibOptions {
        tables: Tables {
            v4: Some(Table::new("v4", v4.collect())),
            v6: Some(Table::new("v6", v6.collect())),
        },
        recorded: None,
        peers: Vec::new(),
        seconds: 0.02,
        samples: 2,
        seed: 1,
    }
}

/// A requirement of a test that the machine does not meet, printed once as every test prints it.
fn skipped(note: &str) -> bool {
    let missing = note.starts_with("needs ");
    if missing {
        println!("skipped: {note}");
    }
    missing
}

#[test]
fn every_run_has_its_name_and_right_answers() {
    let document = fib(&options(40), &mut Progress::silent()).unwrap();
    let names: Vec<_> = document.runs.iter().map(|run| (run.name.as_str(), run.unit)).collect();
    let want = [
        ("load", Unit::Ms),
        ("withdraw-all", Unit::Ms),
        ("bytes-per-route", Unit::Bytes),
        ("stream-replay", Unit::UpdatesPerSecond),
        ("change-to-visible", Unit::Us),
        ("change-to-visible", Unit::Us),
        ("nexthop-loss", Unit::Us),
        ("nexthop-loss-link", Unit::Us),
        ("lookups-during-updates", Unit::Share),
    ];
    assert_eq!(names, want);
    assert_eq!(document.tables.len(), 2);
    for run in &document.runs {
        if skipped(&run.note) {
            continue;
        }
        assert_eq!((run.answers, run.wrong), (Answers::Ok, 0), "{run:?}");
        assert!(
            run.median > Some(0.0) && run.kind == Kind::Ours && !run.note.is_empty(),
            "{run:?}"
        );
    }
    let [load, ..] = &document.runs[..] else { panic!("{names:?}") };
    assert!(load.samples.len() == 2 && load.note.contains("CPU time"), "{load:?}");
    let visible = &document.runs[4];
    assert!(skipped(&visible.note) || visible.p99 >= visible.median && visible.p99.is_some());
}

#[test]
fn a_recorded_stream_brings_next_hops_of_its_own() {
    let file = std::env::temp_dir().join(format!("fingerpost-fib-stream-{}", std::process::id()));
    // A prefix of the table, one that is new, one that is not there, and one of IPv6.
    let lines = "1 a 1.8.0.0/19 192.0.2.1\n2 a 1.2.3.0/24 192.0.2.9\n3 w 9.9.9.0/24 0.0.0.0\n\
                 4 a 2001:db8::/48 fd00::1\n5 w 1.2.3.0/24 0.0.0.0\n";
    std::fs::write(&file, lines).unwrap();
    let recorded = Recorded::load(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    let options = FibOptions { recorded: Some(recorded), ..options(7) };
    let updates = replay::Updates::of(&options);
    assert_eq!((updates.len(), updates.hops), (5, [9, 10]));
    let plan = Plan::new(options.seconds, options.samples);
    let run = replay::measure(&options, &updates, plan);
    assert_eq!((run.answers, run.wrong), (Answers::Ok, 0), "{run:?}");
    assert!(run.note.starts_with("the recorded stream, 5 updates"), "{}", run.note);
}

#[test]
fn what_cannot_be_made_is_said() {
    let mut options = options(40);
    options.tables = Tables::default();
    assert!(fib(&options, &mut Progress::silent()).is_err());
    let far = vec![(Prefix::masked(0x0101_0000_u32, 16), 70_000)];
    options.tables.v4 = Some(Table::new("v4", far));
    let document = fib(&options, &mut Progress::silent()).unwrap();
    for run in document.runs {
        assert!(run.median.is_none(), "{run:?}");
        assert!(skipped(&run.note) || run.note.contains("next hops: at most"), "{run:?}");
    }
}

#[test]
fn routes_behind_one_next_hop_are_spread() {
    let mut table = options(40).tables.v4.unwrap();
    let all = table.routes.len();
    assert_eq!(visible::put_behind(&mut table, 41), all);
    assert!(table.routes.iter().all(|route| route.1 == 41) && table.nexthops == 41);
}

#[test]
fn peers_are_found_by_name() {
    let names = |text| find(text).map(|found| found.iter().map(|p| p.name).collect::<Vec<_>>());
    assert_eq!(names("all").unwrap(), peers().iter().map(|peer| peer.name).collect::<Vec<_>>());
    assert_eq!((names("none").unwrap(), names("bird").unwrap()), (vec![], vec!["bird"]));
    let error = names("kernel,nobody").unwrap_err().to_string();
    assert!(error.contains("no peer nobody: there are kernel, bird, frr"), "{error}");
    for peer in peers() {
        assert!(!peer.summary.is_empty() && !peer.name.contains([',', ' ']), "{}", peer.name);
    }
}

/// In namespaces, with the real programs.
#[test]
fn peers_do_the_same() {
    if std::env::var_os("FINGERPOST_QUICK").is_some() {
        return println!("skipped: needs namespaces (FINGERPOST_QUICK is set)");
    }
    let mut options = options(40);
    for peer in peers() {
        if peer.name == "frr" {
            // It commits its file line by line, each with a look at all before it.
            options.tables.v4.as_mut().unwrap().thin(30);
            options.tables.v6.as_mut().unwrap().thin(30);
        }
        let updates = replay::Updates::of(&options);
        let runs = (peer.measure)(&options, &updates, &mut Progress::silent());
        if skipped(&runs[0].note) {
            continue;
        }
        for run in &runs {
            assert_eq!((run.name.as_str(), run.kind), (peer.name, Kind::Peer));
            assert!(run.median > Some(0.0) && run.wrong == 0, "{run:?}");
        }
        let jobs: Vec<_> = runs.iter().map(|run| run.stream.as_str()).collect();
        assert!(jobs.contains(&"load"), "{jobs:?}");
        assert!(jobs.contains(&"nexthop-loss") || peer.name == "frr", "{jobs:?}");
    }
}
