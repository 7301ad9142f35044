//! Full tables through `file` and through the kernel: what it takes, and that nothing is missing.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::time::Duration;

use fingerpost_route::AnyPrefix;
use fingerpost_route::source::table::FileHop;
use fingerpost_tests::netns::{Line, Router, batch, conserved, ip, run};
use fingerpost_tests::{soak, tables};

/// The shipped tables of IPv4 and IPv6.
const TABLES: [&str; 2] = ["v4-tier1-nh496.txt.xz", "v6-tier1-nh496.txt.xz"];

/// Text of the report on the load.
fn told(how: &str, report: &serde_json::Value) -> String {
    format!(
        "{how}: {} IPv4 and {} IPv6 routes in {:.0} ms, {:.0} routes/s, {} KiB resident",
        report["routes_v4"],
        report["routes_v6"],
        report["load_ms"].as_f64().unwrap_or_default(),
        report["routes_per_second"].as_f64().unwrap_or_default(),
        report["resident_kib"],
    )
}

#[test]
fn full_tables_load_from_files() {
    let Some(line) = Line::new(&["ping"]) else { return };
    let (r, d) = (&line.router, &line.destination);
    // All next hops of the tables are on the link to the destination, which answers for some.
    ip(&format!("-n {r} route add 10.255.0.0/16 dev r1"));
    ip(&format!("-n {r} route add fd00::/64 dev r1"));
    let file = std::env::temp_dir().join(format!("{r}.toml"));
    let mut config = String::from("[[source]]\nkind = \"kernel\"\n");
    for path in TABLES.map(|name| tables::shipped().join(name)) {
        let _ = write!(
            config,
            "[[source]]\nkind = \"file\"\npath = {:?}\n",
            path.display().to_string()
        );
    }
    std::fs::write(&file, config).expect("the temporary folder can be written");
    let router = Router::start(r, &file.display().to_string(), 2);
    let _ = std::fs::remove_file(&file);
    // 8.8.8.0/24 is in the table; whatever its next hop is, the destination is that, and the address.
    ip(&format!("-n {d} addr add 8.8.8.8/32 dev lo"));
    let want: AnyPrefix = AnyPrefix::parse("8.8.8.0/24").expect("a prefix");
    let entry = tables::entries(TABLES[0]).find(|entry| entry.prefix == want);
    let hop = match entry.expect("the table has it").hop {
        FileHop::Addr(addr) => addr,
        other => panic!("{other:?}"),
    };
    ip(&format!("-n {d} addr add {hop}/32 dev d0"));
    run(&line.source, "ping -c 3 -i 0.3 -W 5 8.8.8.8");
    let report = router.stop();
    conserved(&report);
    println!("{}", told("file", &report));
    assert!(report["routes_v4"].as_u64() >= Some(901_899), "{report}");
    assert!(report["routes_v6"].as_u64() >= Some(160_147), "{report}");
}

/// Part of the tables that the tests load; in a soak all of them (the kernel takes minutes).
#[test]
fn full_tables_load_from_the_kernel() {
    let Some(line) = Line::new(&[]) else { return };
    let share = if soak(Duration::ZERO).is_zero() { 20 } else { 1 };
    let r = &line.router;
    let mut lines = String::new();
    let mut counts = [0u64; 2];
    let mut hops = HashSet::new();
    for (name, family) in TABLES.into_iter().zip([4, 6]) {
        for (n, entry) in tables::entries(name).enumerate() {
            if n % share != 0 {
                continue;
            }
            // Some hundred gateways, all on the link.
            let gateway = n % 200 + 2;
            hops.insert(gateway);
            let gateway = if family == 4 {
                format!("10.0.2.{gateway}")
            } else {
                format!("fd02::{gateway:x}")
            };
            let _ = writeln!(lines, "route add {} via {gateway} dev r1", entry.prefix);
            counts[usize::from(family == 6)] += 1;
        }
    }
    batch(r, &lines);
    let router = Router::start(r, "", 2);
    let report = router.stop();
    println!("{}", told("kernel", &report));
    let kernel = &report["sources"].as_array().expect("sources")[2];
    assert_eq!(kernel["refused"], 0, "{report}");
    // The connected subnets, and nothing less.
    assert!(report["routes_v4"].as_u64() >= Some(counts[0]), "{counts:?}: {report}");
    assert!(report["routes_v6"].as_u64() >= Some(counts[1]), "{counts:?}: {report}");
    assert_eq!(kernel["routes"].as_u64(), Some(counts[0] + counts[1] + 4), "{report}");
}
