//! A bond of two links on each side: its members receive for it, packets leave by it, and when the member in use fails the
//! other one has its packets. It takes a machine whose kernel has bonds (`cargo xtask vm bond`).
//!
//! ```text
//! source s0 -- (r0) router bond0 10.0.2.1 = r1, r2 == d0, d1 = bond0 10.0.2.2 destination
//! ```

use std::time::{Duration, Instant};

use fingerpost_tests::netns::{Line, Router, conserved, exec, has_kind, ip, run};
use fingerpost_tests::traffic::Traffic;
use fingerpost_tests::{emulated, patience};
use serde_json::Value;

const TRANSFER: &str = env!("CARGO_BIN_EXE_transfer");
const SECONDS: u64 = 4;
/// Interval at which the kernel looks at the members' links, in milliseconds.
const MIIMON_MS: u64 = 10;
/// Longest time for which packets are lost.
const MOST_OUTAGE: Duration = Duration::from_millis(500);

/// UDP packets a second; fewer where the receiver would not keep up.
fn rate() -> u64 {
    if emulated() { 200 } else { 2_000 }
}

fn bonded() -> Option<Line> {
    let line = Line::new(&["ping", "ethtool"])?;
    let (s, r, d) = (&line.source, &line.router, &line.destination);
    if !has_kind(r, "bond") {
        return None;
    }
    ip(&format!("-n {r} link add r2 type veth peer name d1 netns {d}"));
    for (namespace, members, addrs) in [
        (r, ["r1", "r2"], ["10.0.2.1/24", "fd02::1/64"]),
        (d, ["d0", "d1"], ["10.0.2.2/24", "fd02::2/64"]),
    ] {
        let mode = format!("mode active-backup miimon {MIIMON_MS}");
        ip(&format!("-n {namespace} link add bond0 type bond {mode}"));
        for member in members {
            ip(&format!("-n {namespace} addr flush dev {member}"));
            ip(&format!("-n {namespace} link set {member} down"));
            ip(&format!("-n {namespace} link set {member} master bond0"));
            ip(&format!("-n {namespace} link set {member} up"));
        }
        ip(&format!("-n {namespace} link set bond0 up"));
        ip(&format!("-n {namespace} addr add {} dev bond0", addrs[0]));
        ip(&format!("-n {namespace} addr add {} dev bond0 nodad", addrs[1]));
    }
    ip(&format!("-n {d} route replace default via 10.0.2.1"));
    ip(&format!("-n {d} route replace default via fd02::1"));
    // Veths take what programs send only where the other end has GRO, and checksums are in the packets.
    for (namespace, link) in [(s, "s0"), (d, "d0"), (d, "d1")] {
        run(namespace, &format!("ethtool -K {link} gro on tx off"));
    }
    line.kernel_forwards(true);
    Some(line)
}

fn shown(router: &Router, name: &str) -> Value {
    let rows: Vec<Value> = router.ask("interface show");
    rows.into_iter().find(|row| row["name"] == name).expect("it is shown")
}

fn wait(router: &Router, what: &str, done: impl Fn() -> bool) {
    let begun = Instant::now();
    while !done() {
        let late = begun.elapsed() > patience(Duration::from_secs(10));
        assert!(!late, "waited for {what}: {:#?}", router.said());
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_member_that_fails_leaves_its_packets_to_the_other() {
    for words in ["", "--path graph"] {
        let Some(line) = bonded() else { return };
        let (s, d) = (&line.source, &line.destination);
        let router = Router::start_obeying(&line.router, words, 2);
        let ours = |name: &str| shown(&router, name)["path"] != "kernel";
        let received = |name: &str| shown(&router, name)["rx_packets"].as_u64().unwrap_or(0);
        // The member in use receives for the bond; the other one is the kernel's, which drops what it receives.
        let active = run(&line.router, "cat /sys/class/net/bond0/bonding/active_slave");
        let (used, unused) = if active.trim() == "r1" { ("r1", "r2") } else { ("r2", "r1") };
        wait(&router, "the member in use", || ours(used) && !ours(unused));
        let policy = shown(&router, unused)["policy"].to_string();
        assert!(policy.contains("the bond that it belongs to does not use it"), "{policy}");
        let mode = shown(&router, "bond0")["mode"].to_string();
        assert!(mode.contains("forwarded by its members"), "{mode}");
        for addr in ["10.0.2.2", "fd02::2"] {
            wait(&router, addr, || exec(s, &format!("ping -c 1 -W 1 {addr}")).status.success());
        }
        // Replies arrive by the member, and are forwarded here.
        let before = received(used);
        run(s, "ping -q -c 5 -i 0.1 -W 5 10.0.2.2");
        wait(&router, "the replies", || received(used) >= before + 5);

        let traffic = Traffic::begin(TRANSFER, &line, &["10.0.2.2"], rate(), SECONDS);
        std::thread::sleep(Duration::from_millis(1500));
        let far = if used == "r1" { "d0" } else { "d1" };
        ip(&format!("-n {d} link set {far} down"));
        let counts = traffic.end();
        let outage = Duration::from_secs_f64(counts.lost() as f64 / rate() as f64);
        println!("{words:?}: {far} fails: {counts:?}: {} lost, {outage:.1?}", counts.lost());
        assert!(counts.received > rate() * SECONDS / 2, "{counts:?}");
        assert!(outage <= patience(MOST_OUTAGE), "{counts:?}");
        wait(&router, "the other member", || ours(unused) && !ours(used));
        let before = received(unused);
        run(s, "ping -q -c 5 -i 0.1 -W 5 10.0.2.2");
        wait(&router, "the replies by the other member", || received(unused) >= before + 5);
        let report = router.stop();
        conserved(&report);
        println!("{words:?}: {report}");
        assert_eq!(report["forwarded_xdp"].as_u64() > Some(rate()), words.is_empty(), "{report}");
    }
}
