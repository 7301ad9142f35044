//! The short form, on a small table.

use super::*;
use crate::document::Answers;
use fingerpost_command::progress::Progress;
use fingerpost_lpm::Prefix;

fn options(rows: Rows) -> WireOptions {
    let v4 = (16..2000u32).map(|n| (Prefix::masked(n << 20, 12 + (n % 13) as u8), n % 20 + 1));
    WireOptions {
        tables: Tables { v4: Some(crate::table::Table::new("v4", v4.collect())), v6: None },
        rows,
        destinations: 1000,
        seconds: 0.05,
        samples: 1,
        seed: 1,
        loads: false,
    }
}

/// Whether the run was made; prints its requirement where not.
fn made(run: &Run) -> bool {
    if run.note.starts_with("skipped: needs") {
        println!("{}", run.note);
        return false;
    }
    true
}

#[test]
fn every_port_and_every_peer_forwards_as_the_oracle_says() {
    if std::env::var_os("FINGERPOST_QUICK").is_some() {
        return println!("skipped: needs namespaces (FINGERPOST_QUICK is set)");
    }
    let rows: Rows = PATHS.iter().chain(PEERS).copied().collect();
    let document = wire(&options(rows.clone()), &mut Progress::silent()).unwrap();
    assert_eq!(document.runs.len(), rows.len());
    for (run, row) in document.runs.iter().zip(rows) {
        assert_eq!((&run.name[..], run.unit, run.kind), (row.name, Unit::Mpps, row.kind));
        if !made(run) {
            continue;
        }
        assert_eq!((run.answers, run.wrong, run.reordered), (Answers::Ok, 0, Some(0)), "{run:?}");
        assert!(run.samples.len() == 1 && run.median > Some(0.001), "{run:?}");
        println!("{}: {:?} Mpps; {}", run.name, run.median, run.note);
    }
}

#[test]
fn loads_have_runs_of_their_own() {
    if std::env::var_os("FINGERPOST_QUICK").is_some() {
        return println!("skipped: needs namespaces (FINGERPOST_QUICK is set)");
    }
    let document = wire(
        &WireOptions { loads: true, ..options(path("ring").unwrap()) },
        &mut Progress::silent(),
    )
    .unwrap();
    if !made(&document.runs[0]) {
        return;
    }
    let names: Vec<_> = document.runs.iter().map(|run| &run.name[..]).collect();
    let all =
        ["", ":load-0.5", ":load-0.9", ":load-1", ":load-2", ":load-4", ":flatness", ":latency"];
    assert_eq!(names, all.map(|what| format!("ring{what}")));
    for run in &document.runs[1..6] {
        assert_eq!(
            (run.answers, run.reordered, run.losses.len()),
            (Answers::Ok, Some(0), 1),
            "{run:?}"
        );
        assert!(run.offered > Some(0.0) && run.sent > Some(0), "{run:?}");
    }
    let latency = &document.runs[7];
    assert!(latency.median <= latency.p99 && latency.p99 <= latency.p999, "{latency:?}");
    assert!(latency.p999 <= latency.max && latency.median > Some(0.0), "{latency:?}");
}

/// Every fault is seen: another hop, another egress, a number that goes back.
#[test]
fn a_wrong_packet_is_seen() {
    if std::env::var_os("FINGERPOST_QUICK").is_some() {
        return println!("skipped: needs namespaces (FINGERPOST_QUICK is set)");
    }
    let mut options = options(path("afxdp").unwrap());
    options.rows.truncate(1);
    // The router gets routes that the oracle of the packets does not know.
    let table = options.tables.v4.clone().unwrap();
    let mut other = table.clone();
    other.routes.iter_mut().for_each(|route| route.1 = route.1 % 20 + 1);
    let Ok(lab) = Lab::new(1) else { return println!("skipped: needs root") };
    let tables = Tables { v4: Some(other), v6: None };
    let (control, ports) = world::build(&tables, None, None, None).unwrap();
    let packets = Packets::new(&table, 100, 1).unwrap();
    let scratch = lab.router.file("rings");
    let cores = cores::allowed();
    let stand = Stand { labs: vec![lab], packets, control, ports, cores, scratch };
    let mut scene = match (options.rows[0].begin)(&stand) {
        Ok(scene) => scene,
        Err(error) => return println!("skipped: {error:#}"),
    };
    let load = Load { interval_ns: 20_000, time: Duration::from_millis(50) };
    let outcome = scene.ends.offer(load).unwrap();
    assert!(outcome.arrived > 100 && outcome.wrong == outcome.arrived, "{outcome:?}");
}
