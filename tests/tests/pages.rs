//! What ten open pages cost forwarding: the time that workers take a packet, in rounds with the pages and without.
//!
//! A real Chromium has the pages. It competes with the router for processors here, as no browser of an operator does, so
//! workers have a real-time priority, and their own clocks count. `cargo xtask soak pages` asserts the ratio; the test has
//! one pair of short rounds with two pages, and asserts that they follow the router.

use std::time::Duration;

use fingerpost_tests::browser::Browser;
use fingerpost_tests::folder::Folder;
use fingerpost_tests::netns::{Line, Router, exec, run};
use fingerpost_tests::soak;
use fingerpost_tests::traffic::Traffic;

const ADDRESS: &str = "http://127.0.0.1:9477";
/// Open pages in a soak, and in the tests.
const PAGES: [usize; 2] = [10, 2];
/// Pairs of rounds likewise.
const PAIRS: [u32; 2] = [5, 1];
/// Views that pages show in turn.
const VIEWS: [&str; 5] = ["overview", "graph", "fib", "packet", "space"];
/// Packets a second.
const RATE: u64 = 50_000;
/// The least share of its rate that forwarding keeps with the pages open.
const KEPT: f64 = 0.98;

/// What a router counted so far.
#[derive(Clone, Copy)]
struct Counts {
    /// Seconds in which workers forwarded, and their packets.
    busy: f64,
    packets: f64,
}

impl Counts {
    fn read(namespace: &str) -> Self {
        let text = run(namespace, &format!("curl -s {ADDRESS}/metrics"));
        let sum = |name: &str| -> f64 {
            let rows = text.lines().filter(|line| line.starts_with(name));
            let values: Vec<f64> =
                rows.filter_map(|row| row.rsplit_once(' ')?.1.parse().ok()).collect();
            assert!(!values.is_empty(), "no {name} in {text}");
            values.iter().sum()
        };
        Self {
            busy: sum("fingerpost_worker_graph_seconds_total")
                + sum("fingerpost_worker_send_seconds_total"),
            packets: sum("fingerpost_worker_receive_packets_total"),
        }
    }
}

/// Time a packet in ns, in a round.
fn round(namespace: &str, length: Duration) -> f64 {
    let before = Counts::read(namespace);
    std::thread::sleep(length);
    let after = Counts::read(namespace);
    let packets = after.packets - before.packets;
    assert!(packets > RATE as f64 * length.as_secs_f64() / 10.0, "{packets} packets in {length:?}");
    (after.busy - before.busy) / packets * 1e9
}

/// Gives the threads of the router's workers a real-time priority, where that may be done.
fn prefer_workers(router: &Router) {
    let pid = router.pid();
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).expect("it runs");
    for thread in threads.filter_map(Result::ok) {
        let id = thread.file_name().to_string_lossy().into_owned();
        let name = std::fs::read_to_string(thread.path().join("comm")).unwrap_or_default();
        if id != pid.to_string() && name.trim() == "fingerpost" {
            let _ = std::process::Command::new("chrt").args(["-r", "-p", "10", &id]).output();
        }
    }
}

#[test]
fn ten_open_pages_cost_forwarding_next_to_nothing() {
    let Some(line) = Line::new(&["chromium", "ping", "curl"]) else { return };
    let at = &line.router;
    let folder = Folder::new(at);
    let text = "[listen]\naddress = \"127.0.0.1:9477\"\n[[source]]\nkind = \"kernel\"\n";
    let path = folder.write("router.toml", text);
    let router = Router::start(at, &format!("{path} --path graph"), 2);
    exec(&line.source, "ping -c 2 -i 0.5 -W 3 10.0.2.2");
    prefer_workers(&router);
    let quick = soak(Duration::ZERO).is_zero();
    let (pages, pairs) = (PAGES[usize::from(quick)], PAIRS[usize::from(quick)]);
    let length = soak(Duration::from_secs(2)) / (2 * pairs);
    // The opening of pages takes its time.
    let seconds = (length.as_secs() + 30) * 2 * u64::from(pairs);
    let transfer = env!("CARGO_BIN_EXE_transfer");
    let mut traffic = Traffic::begin(transfer, &line, &["10.0.2.2"], RATE, seconds);
    let mut browser = Browser::start(at, &folder.path().display().to_string());
    let pages: Vec<String> = (0..pages).map(|_| browser.new_page()).collect();
    let looks = "Number(document.body.dataset.looks ?? 0)";
    let mut ratios = Vec::new();
    for _ in 0..pairs {
        for page in &pages {
            browser.turn_to(page);
            browser.open("about:blank");
        }
        let without = round(at, length);
        let mut before = Vec::new();
        for (page, view) in pages.iter().zip(VIEWS.iter().cycle()) {
            browser.turn_to(page);
            browser.open(&format!("{ADDRESS}/#{view}"));
            browser.wait(&format!("document.querySelector('#view-{view}') && {looks} >= 2"));
            before.push(browser.value(looks).as_f64().expect("a number"));
        }
        let with = round(at, length);
        for (page, before) in pages.iter().zip(before) {
            browser.turn_to(page);
            let more = browser.value(looks).as_f64().expect("a number") - before;
            assert!(more >= 1.0, "a page does not follow the router");
        }
        println!("{without:.0} ns a packet, {with:.0} ns with the pages open");
        ratios.push(without / with);
    }
    assert!(traffic.goes_on(), "rounds without traffic");
    traffic.stop();
    ratios.sort_by(f64::total_cmp);
    let kept = ratios[ratios.len() / 2];
    println!("{kept:.3} of the rate with {} pages open; {ratios:.3?}", pages.len());
    if !quick {
        assert!(kept >= KEPT, "{kept:.3}");
    }
    router.stop();
}
