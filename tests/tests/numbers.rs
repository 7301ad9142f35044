//! Interfaces that come and go: more of them than there are port numbers with counters, which are used again.

use std::fmt::Write as _;

use fingerpost_tests::netns::{Line, Router, batch, conserved, ip};
use fingerpost_tests::traffic::Traffic;
use serde_json::Value;

const TRANSFER: &str = env!("CARGO_BIN_EXE_transfer");

/// Port numbers with counters.
const COUNTED: usize = 1024;
/// Interfaces of a batch: veths, which every kernel has.
const BATCH: usize = 300;

fn interfaces(router: &Router) -> Vec<Value> {
    router.ask("interface show")
}

fn find<'a>(all: &'a [Value], name: &str) -> Option<&'a Value> {
    all.iter().find(|row| row["name"] == name)
}

fn number(row: &Value, field: &str) -> u64 {
    row[field].as_u64().unwrap_or_else(|| panic!("no {field}: {row:#}"))
}

/// Waits until the router has so many interfaces of batches.
fn wait(router: &Router, count: usize) {
    for _ in 0..600 {
        let all = interfaces(router);
        let of_batches = |row: &&Value| row["name"].as_str().is_some_and(|n| n.starts_with("many"));
        if all.iter().filter(of_batches).count() == count {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    panic!("never {count} interfaces of a batch");
}

/// Sends over the line; returns packets that were sent, and of these packets that arrived.
fn send(line: &Line) -> [u64; 2] {
    let traffic = Traffic::between(
        TRANSFER,
        [&line.source, &line.destination],
        &["10.0.2.2"],
        (2000, 2, 100),
    );
    let counts = traffic.end();
    [counts.sent, counts.sent - counts.lost()]
}

/// Makes interfaces until one has this number, which was in use before; returns its name, which is that of its other end in the
/// destination's namespace too.
fn link_under(router: &Router, line: &Line, port: u64) -> String {
    for round in 0..=COUNTED.div_ceil(BATCH) {
        let (mut add, mut delete) = (String::new(), String::new());
        for n in 0..BATCH {
            let name = format!("many{round}x{n}");
            let _ = writeln!(
                add,
                "link add {name} type veth peer name {name} netns {}",
                line.destination
            );
            let _ = writeln!(delete, "link del {name}");
        }
        batch(&line.router, &add);
        wait(router, BATCH);
        let all = interfaces(router);
        if let Some(row) = all.iter().find(|row| number(row, "port") == port) {
            return row["name"].as_str().expect("a name").to_owned();
        }
        batch(&line.router, &delete);
        wait(router, 0);
    }
    panic!("number {port} is not used again");
}

#[test]
fn an_interface_under_a_used_number_begins_at_zero() {
    let Some(line) = Line::new(&["ethtool"]) else { return };
    let (r, d) = (&line.router, &line.destination);
    let router = Router::start(r, "--path afxdp", 2);
    send(&line);
    let before = interfaces(&router);
    let old = find(&before, "r1").expect("it is there");
    assert!(number(old, "tx_packets") > 1000, "{old:#}");
    let port = number(old, "port");
    ip(&format!("-n {r} link del r1"));
    let name = link_under(&router, &line, port);
    for (namespace, host) in [(r, 1), (d, 2)] {
        ip(&format!("-n {namespace} addr add 10.0.2.{host}/24 dev {name}"));
        ip(&format!("-n {namespace} link set {name} up"));
    }
    ip(&format!("-n {d} route add default via 10.0.2.1"));
    router.wait_for("to take it over", |said: &[String]| {
        said.iter().any(|line| line.contains(&name))
    });
    let all = interfaces(&router);
    let new = find(&all, &name).expect("it is there");
    assert_eq!(number(new, "port"), port, "{new:#}");
    let first = number(new, "tx_packets");
    assert!(first < 100, "packets of another interface: {new:#}");
    let [sent, arrived] = send(&line);
    let all = interfaces(&router);
    let new = find(&all, &name).expect("it is there");
    assert_eq!(new["path"], "afxdp", "{new:#}");
    let counted = number(new, "tx_packets") - first;
    // Answers of the host of the router's own kernel are not among them.
    assert!((arrived..=sent + 100).contains(&counted), "{counted} of {sent}, {arrived} arrived");
    conserved(&router.stop());
}
