//! A table of BIRD that reaches the router by the kernel: every route of both families, the time it takes, and packets.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use fingerpost_tests::bird::{self, Bird};
use fingerpost_tests::configuration::Configuration;
use fingerpost_tests::netns::{Line, Router, ip, run};
use fingerpost_tests::traffic::{own_every_address, to_random};
use fingerpost_tests::{patience, soak, zebra};
use serde_json::Value;

/// Sender and receiver of numbered packets.
const TRANSFER: &str = env!("CARGO_BIN_EXE_transfer");
/// Routes in the tests; a soak has the whole tables.
const ROUTES: usize = 50_000;
/// Longest time until the router has the table.
const LONGEST: Duration = Duration::from_secs(120);
/// Own addresses of the neighbor, and those of the router.
const SESSIONS: [(&str, &str); 2] = [("10.0.2.2", "10.0.2.1"), ("fd02::2", "fd02::1")];

#[test]
fn a_table_of_bird_by_the_kernel() {
    let Some(line) = Line::new(&["bird", "birdc"]) else { return };
    let r = &line.router;
    ip(&format!("-n {r} link set lo up"));
    let [v4, v6, flows] = match soak(Duration::ZERO).is_zero() {
        true => [ROUTES * 4 / 5, ROUTES / 5, 100],
        false => [usize::MAX, usize::MAX, 5_000],
    };
    let table = zebra::mixed(zebra::announced(v4), zebra::announced6(v6));
    let config = Configuration::new(r, "[[source]]\nkind = \"kernel\"\n");
    let router = Router::start(r, &format!("{} --path graph", config.path().display()), 2);
    let of_kernel = || {
        usize::try_from(router.source("kernel")["routes"].as_u64().unwrap_or(0))
            .expect("a count of routes")
    };
    let before = of_kernel();
    let neighbor = bird::speaker(table.iter().cloned(), &SESSIONS);
    let _neighbor = Bird::start(&line.destination, &neighbor);
    let sessions = SESSIONS.map(|(neighbor, own)| (own, neighbor));
    let began = Instant::now();
    let _bird = Bird::start(r, &bird::learner(&sessions));
    let until = began + patience(LONGEST.max(soak(Duration::ZERO)));
    let mut first = None;
    loop {
        let has = of_kernel().saturating_sub(before);
        first = first.or((has > 0).then(Instant::now));
        if has == table.len() {
            break;
        }
        assert!(Instant::now() < until, "{has} of {}: {:#?}", table.len(), router.said());
        std::thread::sleep(Duration::from_millis(100));
    }
    let (first, last) = (first.expect("a table has routes") - began, began.elapsed());
    println!(
        "{} routes of BIRD by the kernel in {last:.1?}, the first after {first:.1?}",
        table.len()
    );

    // Each as the kernel has it, by its neighbor.
    let rows: Vec<Value> = router.ask_lines("route show --source kernel");
    let gateways: BTreeMap<&str, &str> = rows
        .iter()
        .filter_map(|row| Some((row["prefix"].as_str()?, row["paths"][0]["gateway"].as_str()?)))
        .collect();
    for prefix in &table {
        let wanted = SESSIONS[usize::from(prefix.contains(':'))].0;
        assert_eq!(gateways.get(&**prefix), Some(&wanted), "{prefix}");
    }
    let in_kernel = [4, 6]
        .map(|version| run(r, &format!("ip -{version} -o route show proto bird")).lines().count());
    assert_eq!((gateways.len(), in_kernel.iter().sum()), (table.len(), table.len()));

    own_every_address(&line.destination, "d0");
    let (v4, v6) = zebra::hosts(&table);
    for hosts in [v4, v6] {
        to_random(TRANSFER, [&line.source, &line.destination], &hosts, flows);
    }
    println!("{} random destinations were reached", 2 * flows);
    router.stop();
}
