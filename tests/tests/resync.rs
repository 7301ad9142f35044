//! Messages of the kernel that are lost: all routes are read again, none is missing, and people see why and how long it
//! took.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use fingerpost_tests::netns::{Line, Router, batch, run};
use fingerpost_tests::patience;
use serde_json::Value;

/// Changes of routes, in all.
const CHANGES: usize = 100_000;
/// Changes that the router has no time to read: the messages of ten fill its buffer.
const UNREAD: usize = 1_000;
/// Longest time from the last change to the same routes as the kernel has.
const LONGEST: Duration = Duration::from_secs(60);

/// The network number `i`, a /24.
fn prefix(i: usize) -> String {
    format!("{}.{}.{}.0/24", 20 + i / 65_536, i / 256 % 256, i % 256)
}

/// Gateways of the kernel's routes of the main table, by prefix.
fn of_kernel(namespace: &str) -> BTreeMap<String, String> {
    let text = run(namespace, "ip -o route show");
    let row = |row: &str| {
        let (prefix, rest) = row.split_once(' ')?;
        let gateway = rest.split_once("via ")?.1.split(' ').next()?;
        Some((prefix.to_owned(), gateway.to_owned()))
    };
    text.lines().filter_map(row).collect()
}

/// Those that the router has.
fn of_router(router: &Router) -> BTreeMap<String, String> {
    let rows: Vec<Value> = router.ask_lines("route show --source kernel");
    let row = |row: &Value| {
        let gateway = row["paths"][0]["gateway"].as_str().filter(|_| row["table"] == 254)?;
        let prefix = row["prefix"].as_str().filter(|prefix| !prefix.contains(':'))?;
        Some((prefix.to_owned(), gateway.to_owned()))
    };
    rows.iter().filter_map(row).collect()
}

#[test]
fn no_route_is_missing_when_messages_are_lost() {
    let Some(line) = Line::new(&[]) else { return };
    let config = std::env::temp_dir().join(format!("{}-resync.toml", line.router));
    let text = "[[source]]\nkind = \"kernel\"\nreceive_buffer_kib = 4\n";
    std::fs::write(&config, text).expect("the temporary folder can be written");
    let router = Router::start(&line.router, &format!("{} --path graph", config.display()), 2);
    let kernel = || {
        let rows: Vec<Value> = router.ask("source show");
        rows.into_iter().find(|row| row["name"] == "kernel").expect("it is a source")
    };
    // So small a buffer may be full at the start already.
    let before = kernel()["resyncs"].as_u64();
    // Three fifths are new routes; a fifth of the changes leads some of them elsewhere, and a fifth takes others away.
    let (new, fifth) = (CHANGES * 3 / 5, CHANGES / 5);
    let mut lines = String::new();
    for i in 0..new {
        let _ = writeln!(lines, "route add {} via 10.0.2.2", prefix(i));
    }
    for i in 0..fifth {
        let _ = writeln!(lines, "route replace {} via 10.0.1.2", prefix(3 * i));
        let _ = writeln!(lines, "route del {}", prefix(3 * i + 1));
    }
    assert_eq!(lines.lines().count(), CHANGES);
    // The router does not read the first of them, as when it is busy: a slow machine would not fill its buffer otherwise.
    let (first, rest) =
        lines.split_at(lines.match_indices('\n').nth(UNREAD).expect("a line").0 + 1);
    router.signal("STOP");
    batch(&line.router, first);
    router.signal("CONT");
    batch(&line.router, rest);
    let (changed, want) = (Instant::now(), of_kernel(&line.router));
    assert_eq!(want.len(), new - fifth);
    let same = || kernel()["in_sync"] == true && of_router(&router) == want;
    while !same() {
        let differ = of_router(&router).len().abs_diff(want.len());
        let waited = changed.elapsed();
        assert!(waited < patience(LONGEST), "{differ} routes after {waited:?}: {}", kernel());
        std::thread::sleep(Duration::from_millis(100));
    }
    let row = kernel();
    println!(
        "the same {} routes {:.1?} after the last change: {row}",
        want.len(),
        changed.elapsed()
    );
    assert!(row["resyncs"].as_u64() > before, "{row}");
    assert!(row["resync_ms"].as_f64() > Some(0.0), "{row}");
    assert!(row["resync_reason"].as_str().is_some_and(|why| why.contains("ENOBUFS")), "{row}");
    // In text, too.
    let shown = run(&line.router, &format!("{} source show", program()));
    assert!(shown.contains("resync ms") && shown.contains("ENOBUFS"), "{shown}");
    router.stop();
    let _ = std::fs::remove_file(config);
}

fn program() -> String {
    fingerpost_tests::program().expect("the line was made with it").display().to_string()
}
