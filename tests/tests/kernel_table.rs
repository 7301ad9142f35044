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

/// Times of the first and of the last route.
#[derive(Default)]
struct Transfer {
    first: Option<Duration>,
    last: Option<Duration>,
}

impl Transfer {
    fn note(&mut self, began: Instant, has: usize, all: usize) {
        if has > 0 {
            self.first.get_or_insert(began.elapsed());
        }
        if has == all {
            self.last.get_or_insert(began.elapsed());
        }
    }

    fn words(&self) -> String {
        let seconds = |time: Option<Duration>| time.unwrap_or_default().as_secs_f64();
        let (first, last) = (seconds(self.first), seconds(self.last));
        format!("first route after {first:.1} s, last {:.1} s later", last - first)
    }
}

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
        let sources: Vec<Value> = router.ask("source show");
        let routes = sources.iter().find(|source| source["name"] == "kernel");
        let routes = routes.and_then(|source| source["routes"].as_u64()).unwrap_or(0);
        usize::try_from(routes).expect("a count of routes")
    };
    let before = of_kernel();
    let neighbor = bird::speaker(table.iter().cloned(), &SESSIONS);
    let _neighbor = Bird::start(&line.destination, &neighbor);
    let sessions = SESSIONS.map(|(neighbor, own)| (own, neighbor));
    let began = Instant::now();
    let _bird = Bird::start(r, &bird::learner(&sessions));
    let until = began + patience(LONGEST.max(soak(Duration::ZERO)));
    let mut transfer = Transfer::default();
    while transfer.last.is_none() {
        let has = of_kernel().saturating_sub(before);
        transfer.note(began, has, table.len());
        assert!(Instant::now() < until, "{has} of {}: {:#?}", table.len(), router.said());
        std::thread::sleep(Duration::from_millis(100));
    }
    println!("{} routes of BIRD by the kernel: {}", table.len(), transfer.words());

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
