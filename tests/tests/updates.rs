//! Routes, next hops and links change while traffic crosses: what did not change is not hurt.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use fingerpost_tests::netns::{Line, Router, batch, conserved, ip, run};
use fingerpost_tests::soak;
use fingerpost_tests::traffic::{Counts, Traffic};

const TRANSFER: &str = env!("CARGO_BIN_EXE_transfer");
/// Packets a second: little enough that a receiver that has to wait for its turn on a busy machine
/// does not run out of socket buffer.
const RATE: u64 = 2_000;
/// What may be lost outside the router beyond what was lost without updates: a busy machine is never
/// equally busy twice. Inside the router nothing may be lost at all.
const SLACK: u64 = 100;
const FLOWS: u32 = 4;

/// Sends for `seconds` while `disturb` runs again and again.
fn traffic(line: &Line, seconds: u64, mut disturb: impl FnMut(u64)) -> Counts {
    let addrs: Vec<String> = (0..FLOWS).map(|i| format!("10.9.{i}.1")).collect();
    let addrs: Vec<&str> = addrs.iter().map(String::as_str).collect();
    let mut traffic = Traffic::begin(TRANSFER, line, &addrs, RATE, seconds);
    let began = Instant::now();
    let mut round = 0;
    while traffic.goes_on() {
        assert!(began.elapsed() < Duration::from_secs(seconds + 30), "the sender hangs");
        disturb(round);
        round += 1;
        std::thread::sleep(Duration::from_millis(50));
    }
    traffic.end()
}

#[test]
fn no_packet_of_an_untouched_route_is_lost_while_others_change() {
    let Some(line) = Line::new(&[]) else { return };
    let (r, d) = (&line.router, &line.destination);
    ip(&format!("-n {d} addr add 10.9.0.1/32 dev lo"));
    for i in 1..FLOWS {
        ip(&format!("-n {d} addr add 10.9.{i}.1/32 dev lo"));
    }
    // The flows go by a route, a route over an object, over a group, and by a more specific one.
    ip(&format!("-n {r} nexthop add id 1 via 10.0.2.2 dev r1"));
    ip(&format!("-n {r} nexthop add id 2 via fd02::2 dev r1"));
    ip(&format!("-n {r} nexthop add id 3 group 1"));
    ip(&format!("-n {r} route add 10.9.0.0/16 via 10.0.2.2"));
    ip(&format!("-n {r} route add 10.9.1.0/24 nhid 1"));
    ip(&format!("-n {r} route add 10.9.2.0/24 nhid 3"));
    ip(&format!("-n {r} link add r9 type veth peer name x9"));
    ip(&format!("-n {r} link set x9 up"));
    ip(&format!("-n {r} addr add 10.0.9.1/24 dev r9"));
    ip(&format!("-n {r} link set r9 up"));
    let router = Router::start(r, "", 4);
    run(&line.source, "ping -c 2 -i 0.1 -W 2 10.9.0.1");
    let seconds = soak(Duration::from_secs(6)).as_secs();
    let quiet = traffic(&line, 2, |_| {});
    let changing = traffic(&line, seconds, |round| {
        // Other routes by the hundred, above and below those in use; objects; a link.
        let mut lines = String::new();
        let action = if round % 2 == 0 { "replace" } else { "del" };
        for i in 0..200 {
            let _ =
                writeln!(lines, "route {action} 172.{}.{i}.0/24 via 10.0.2.2", 16 + round / 2 % 16);
        }
        let _ = writeln!(lines, "route {action} 10.9.128.0/17 via 10.0.2.2");
        let _ = writeln!(lines, "route {action} 10.8.0.0/15 via 10.0.2.2");
        let via = if round % 2 == 0 { "via 10.0.2.2 dev r1" } else { "via 10.0.2.2 dev r1 onlink" };
        let _ = writeln!(lines, "nexthop replace id 1 {via}");
        let _ = writeln!(lines, "link set r9 {}", if round % 2 == 0 { "down" } else { "up" });
        batch(r, &lines);
    });
    let report = router.stop();
    conserved(&report);
    println!("quiet: {quiet:?}; changing: {changing:?}");
    assert_eq!(changing.reordered, 0);
    let of_no_account = ["unresolved", "hold_full"];
    for (reason, count) in report["dropped"].as_object().expect("drops by reason") {
        assert!(
            !of_no_account.contains(&reason.as_str()) || count == 0,
            "{reason}: {count}: {report}"
        );
        assert!(
            ["multicast", "no_route", "port_down", "shutdown", "local"].contains(&reason.as_str())
                || count == 0,
            "dropped by the router: {reason}: {count}"
        );
    }
    // What was lost before the router or after it (a full ring or socket of a busy machine) may not
    // be more than without.
    let (lost, usual) = (changing.lost(), quiet.lost() * (seconds / 2).max(1));
    assert!(lost <= usual + changing.sent / SLACK, "lost {lost}, and {usual} without updates");
}

#[test]
fn changed_routes_take_effect() {
    let Some(line) = Line::new(&["ping"]) else { return };
    let (r, d) = (&line.router, &line.destination);
    ip(&format!("-n {d} addr add 192.0.2.1/32 dev lo"));
    let router = Router::start(r, "", 2);
    let reaches = || {
        std::thread::sleep(Duration::from_millis(150));
        fingerpost_tests::netns::exec(&line.source, "ping -c 1 -W 1 192.0.2.1").status.success()
    };
    assert!(!reaches());
    ip(&format!("-n {r} route add 192.0.2.0/24 via 10.0.2.2"));
    assert!(reaches(), "added");
    ip(&format!("-n {r} route add blackhole 192.0.2.0/25"));
    assert!(!reaches(), "a longer one that drops");
    ip(&format!("-n {r} route del blackhole 192.0.2.0/25"));
    assert!(reaches(), "and its end");
    ip(&format!("-n {r} nexthop add id 7 via 10.0.2.99 dev r1"));
    ip(&format!("-n {r} route replace 192.0.2.0/24 nhid 7"));
    assert!(!reaches(), "to somebody who is not there");
    ip(&format!("-n {r} nexthop replace id 7 via 10.0.2.2 dev r1"));
    assert!(reaches(), "the object moved");
    ip(&format!("-n {r} nexthop del id 7"));
    assert!(!reaches(), "its route went with it");
    ip(&format!("-n {r} route add 192.0.2.0/24 via 10.0.2.2"));
    ip(&format!("-n {r} link set r1 down"));
    assert!(!reaches(), "link down");
    ip(&format!("-n {r} link set r1 up"));
    ip(&format!("-n {r} route replace 192.0.2.0/24 via 10.0.2.2"));
    router.wait_for("to have the link again", |said| {
        said.iter().any(|line| line.contains("r1: taken over"))
    });
    assert!(reaches() || reaches() || reaches(), "link up");
    conserved(&router.stop());
}
