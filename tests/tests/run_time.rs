//! What an administrator does to a router that runs: addresses, neighbors and offloads change, and packets do not
//! notice.

use std::io::Write;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use fingerpost_tests::netns::{Line, Router, command, conserved, ip, run};
use fingerpost_tests::patience;
use fingerpost_tests::traffic::{Counts, Traffic, overflowed};
use serde_json::Value;

const TRANSFER: &str = env!("CARGO_BIN_EXE_transfer");

/// Has the peers of the router's veths take what XDP programs send.
fn take_in_xdp(line: &Line) {
    // Checksums that a sender leaves to a card are filled in by the graph.
    run(&line.source, "ethtool -K s0 gro on tx off");
    run(&line.destination, "ethtool -K d0 gro on tx off");
}

fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("it is later").as_secs_f64()
}

/// Times of the lines of `ping -D` that contain `what`.
fn times<'a>(said: &'a str, what: &'a str) -> impl Iterator<Item = f64> + 'a {
    let lines = said.lines().filter(move |line| line.contains(what));
    lines.filter_map(|line| line.strip_prefix('[')?.split(']').next()?.parse().ok())
}

/// Adds an address to the router while a host sends requests to it all the time. In milliseconds after `ip` has returned:
/// when the last error came, and when the first answer.
fn add_address(line: &Line, addr: &str) -> [f64; 2] {
    let more = if addr.contains(':') { " nodad" } else { "" };
    let words = format!("ping -D -n -i 0.001 -c 400 -W 1 {addr}");
    let ping = command(&line.source, &words).stdout(Stdio::piped()).spawn().expect("it was found");
    std::thread::sleep(Duration::from_millis(300));
    let length = if addr.contains(':') { 128 } else { 32 };
    ip(&format!("-n {} addr add {addr}/{length} dev r1{more}", line.router));
    let added = now();
    let said = ping.wait_with_output().expect("it was started").stdout;
    let said = String::from_utf8_lossy(&said);
    let errors = times(&said, "nreachable").last();
    let answer = times(&said, "bytes from ").next();
    let first = answer.unwrap_or_else(|| panic!("no answer from {addr}: {said}"));
    [errors.unwrap_or(f64::NEG_INFINITY), first].map(|time| (time - added) * 1e3)
}

/// Time of the middle one of several addresses of both families. Before that an interface is deleted: what its program held
/// back must not delay what comes later.
fn addresses_are_answered(words: &str) {
    let Some(line) = Line::new(&["ping", "ethtool"]) else { return };
    take_in_xdp(&line);
    let router = &line.router;
    ip(&format!("-n {router} link add x0 type veth peer name x1"));
    ip(&format!("-n {router} link set x0 up"));
    ip(&format!("-n {router} link set x1 up"));
    let running = Router::start(router, words, 4);
    ip(&format!("-n {router} link del x0"));
    running.wait_for("to let x0 go", |said| said.iter().any(|line| line.contains("x0: closed")));
    let addrs =
        ["10.77.0.1", "fd77::1", "10.77.0.2", "fd77::2", "10.77.0.3", "fd77::3", "10.77.0.4"];
    let gaps = addrs.map(|addr| add_address(&line, addr));
    println!("last error and first answer, ms after the address was there: {gaps:.1?}");
    let mut gaps = gaps.map(|[error, answer]| (error, answer));
    gaps.sort_by(|a, b| a.0.total_cmp(&b.0));
    // Pings are a millisecond apart, on a busy machine ten.
    assert!(gaps[3].0 <= 5.0, "{gaps:?}");
    gaps.sort_by(|a, b| a.1.total_cmp(&b.1));
    assert!(gaps[3].1 <= 25.0, "{gaps:?}");
    // One that goes is no longer answered for, and its packets are the router's again.
    ip(&format!("-n {router} addr del 10.77.0.1/32 dev r1"));
    std::thread::sleep(Duration::from_millis(300));
    let words = "ping -n -c 1 -W 1 10.77.0.1";
    let said = command(&line.source, words).output().expect("it was found").stdout;
    assert!(String::from_utf8_lossy(&said).contains("nreachable"));
    conserved(&running.stop());
}

#[test]
fn an_address_that_is_added_is_answered_for_at_once() {
    addresses_are_answered("");
}

#[test]
fn an_address_that_is_added_is_answered_for_at_once_without_xdp() {
    addresses_are_answered("--path afxdp");
}

/// Packets a second across while all neighbors of the router are flushed again and again.
const RATE: u64 = 10_000;

fn flushes(line: &Line) -> Counts {
    run(&line.source, "ping -c 3 -i 0.1 -W 2 10.0.2.2");
    let mut traffic = Traffic::begin(TRANSFER, line, &["10.0.2.2"], RATE, 5);
    let mut flushed = 0;
    while traffic.goes_on() {
        std::thread::sleep(Duration::from_millis(400));
        ip(&format!("-n {} neigh flush dev r{}", line.router, flushed % 2));
        flushed += 1;
    }
    assert!(flushed > 3, "{flushed}");
    traffic.end()
}

/// Neither in the router nor before it, as the kernel does: where a busy machine loses some before the router, it is
/// tried again.
fn flushes_lose_nothing(words: &str, in_xdp: bool) {
    let Some(line) = Line::new(&["ping", "ethtool"]) else { return };
    if in_xdp {
        take_in_xdp(&line);
    }
    for attempt in 0.. {
        let before = overflowed(&line.destination);
        line.kernel_forwards(true);
        let kernel = flushes(&line);
        line.kernel_forwards(false);
        let kernel_lost = kernel.lost() - (overflowed(&line.destination) - before);
        let before = overflowed(&line.destination);
        let router = Router::start(&line.router, words, 2);
        let counts = flushes(&line);
        let lost = counts.lost() - (overflowed(&line.destination) - before);
        let report = router.stop();
        println!("of {} lost {lost}, by the kernel {kernel_lost}", counts.sent);
        conserved(&report);
        let dropped = report["dropped"].as_object().expect("drops by reason");
        assert!(dropped.is_empty(), "{report}");
        if in_xdp {
            let forwarded = report["forwarded_xdp"].as_u64();
            assert!(forwarded > Some(counts.sent / 2), "{report}");
        }
        if lost <= kernel_lost {
            break;
        }
        assert!(attempt < 4, "lost {lost}, by the kernel {kernel_lost}: {report}");
    }
}

#[test]
fn a_neighbor_flush_loses_nothing() {
    flushes_lose_nothing("", true);
}

#[test]
fn a_neighbor_flush_loses_nothing_without_xdp() {
    flushes_lose_nothing("--path afxdp", false);
}

/// A neighbor that is gone in earnest is used for a bounded time, and one that has moved is found.
#[test]
fn a_neighbor_that_moved_or_went_is_noticed() {
    let Some(line) = Line::new(&["ping"]) else { return };
    let router = Router::start(&line.router, "", 2);
    run(&line.source, "ping -c 3 -i 0.1 -W 2 10.0.2.2");
    ip(&format!("-n {} link set d0 address 02:00:00:00:00:77", line.destination));
    ip(&format!("-n {} neigh flush dev r1", line.router));
    let pings = |what: &str, done: &dyn Fn(&str) -> bool| {
        let until = Instant::now() + patience(Duration::from_secs(40));
        loop {
            let words = "ping -n -c 20 -i 0.1 -W 1 10.0.2.2";
            let said = command(&line.source, words).output().expect("it was found").stdout;
            let said = String::from_utf8_lossy(&said);
            if done(&said) {
                return;
            }
            assert!(Instant::now() < until, "{what}: {said}");
        }
    };
    pings("the neighbor that moved is not found", &|said| said.contains("bytes from"));
    let rows: Vec<Value> = router.ask("neighbor show");
    let row = rows.iter().find(|row| row["addr"] == "10.0.2.2").expect("it is known");
    assert_eq!(row["mac"], "02:00:00:00:00:77", "{row}");
    ip(&format!("-n {} addr flush dev d0", line.destination));
    ip(&format!("-n {} neigh flush dev r1", line.router));
    pings("senders are not told", &|said| said.contains("Host Unreachable"));
    conserved(&router.stop());
}

fn row<'a>(rows: &'a [Value], name: &str) -> &'a Value {
    rows.iter().find(|row| row["name"] == name).expect("it is shown")
}

/// Frames and bytes count at ingress and egress, whoever forwarded them.
#[test]
fn interfaces_count_what_xdp_sent() {
    let Some(line) = Line::new(&["ping", "ethtool"]) else { return };
    take_in_xdp(&line);
    let router = Router::start(&line.router, "", 2);
    run(&line.source, "ping -c 200 -i 0.002 -W 2 -s 100 10.0.2.2");
    run(&line.source, "ping -6 -c 100 -i 0.002 -W 2 -s 100 fd02::2");
    let rows: Vec<Value> = router.ask("interface show");
    for name in ["r0", "r1"] {
        let row = row(&rows, name);
        let count = |field: &str| row[field].as_u64().expect("a count");
        // 142 bytes are a frame of IPv4, 162 of IPv6.
        for way in ["rx", "tx"] {
            assert!(count(&format!("{way}_packets")) >= 300, "{row}");
            assert!(count(&format!("{way}_bytes")) >= 200 * 142 + 100 * 162, "{row}");
        }
        assert_eq!((&row["path"], &row["remedy"]), (&"xdp".into(), &Value::Null), "{row}");
    }
    let all = |field: &str| rows.iter().filter_map(|row| row[field].as_u64()).sum::<u64>();
    let report = router.stop();
    conserved(&report);
    let number = |name: &str| report[name].as_u64().expect("a count");
    assert!(number("forwarded_xdp") > 400, "{report}");
    assert_eq!(number("packets_in"), all("rx_packets"), "{rows:#?}");
    assert_eq!(number("packets_out") + number("originated"), all("tx_packets"), "{rows:#?}");
}

/// Where the peer of a veth takes nothing that programs send, no report names packets that leave in XDP, and the remedy
/// is named.
#[test]
fn a_veth_that_sends_nothing_in_xdp_says_what_helps() {
    let Some(line) = Line::new(&["ping", "ethtool"]) else { return };
    let router = Router::start(&line.router, "", 2);
    let shown = |name: &str| {
        let rows: Vec<Value> = router.ask("interface show");
        let row = row(&rows, name);
        let text = |field: &str| row[field].as_str().unwrap_or_default().to_owned();
        (text("path"), text("mode"), text("remedy"))
    };
    let helps = "`ethtool -K PEER gro on`";
    for name in ["r0", "r1"] {
        let (path, mode, remedy) = shown(name);
        assert_eq!(path, "afxdp");
        assert!(!mode.contains("forwarded") && mode.contains(helps), "{mode}");
        assert!(remedy.contains(helps), "{remedy}");
    }
    let said = |what: &str| router.said().iter().any(|line| line.contains(what));
    assert!(!said("forwarded in XDP") && said(helps), "{:#?}", router.said());
    let program = fingerpost_tests::program().expect("the line was made with it");
    let top = run(&line.router, &format!("{} top --count 1 --interval 0.2", program.display()));
    assert!(top.contains("r0: nothing leaves by it in XDP") && top.contains(helps), "{top}");
    // One of the two is helped: it sends what the other one receives.
    run(&line.destination, "ethtool -K d0 gro on");
    router.wait_for("to see that", |said| {
        said.iter().any(|line| line.contains("r1: packets leave by it in XDP"))
    });
    let (path, mode, remedy) = shown("r0");
    assert_eq!(path, "xdp");
    assert!(mode.contains("received in XDP") && mode.contains(helps), "{mode}");
    assert!(remedy.contains(helps), "{remedy}");
    let (path, mode, remedy) = shown("r1");
    assert_eq!((&*path, &*remedy), ("xdp", ""));
    assert!(mode.contains("forwarded in XDP"), "{mode}");
    run(&line.destination, "ethtool -K d0 gro off");
    router.wait_for("to see that", |said| {
        said.iter().any(|line| line.contains("r1: nothing leaves by it in XDP"))
    });
    conserved(&router.stop());
}

/// An interface that is to be driven by AF_XDP alone is no device that programs send by: what leaves by it goes by the
/// graph.
#[test]
fn what_leaves_by_an_interface_without_programs_goes_by_the_graph() {
    let Some(line) = Line::new(&["ping", "ethtool"]) else { return };
    take_in_xdp(&line);
    let path = std::env::temp_dir().join(format!("fingerpost-{}.toml", line.router));
    let mut file = std::fs::File::create(&path).expect("the temporary folder can be written");
    let text = "[[interface]]\nname = \"r0\"\n[[interface]]\nname = \"r1\"\nmode = \"afxdp\"\n";
    file.write_all(text.as_bytes()).expect("it can be written");
    let router = Router::start(&line.router, &path.display().to_string(), 2);
    run(&line.source, "ping -c 5 -i 0.1 -W 2 10.0.2.2");
    run(&line.source, "ping -c 5 -i 0.1 -W 2 -s 100 10.0.2.2");
    let report = router.stop();
    std::fs::remove_file(&path).expect("it was made");
    conserved(&report);
    assert_eq!(report["dropped"].as_object().map(serde_json::Map::len), Some(0), "{report}");
}

/// What is for the router itself is the kernel's, however far it may go.
#[test]
fn packets_to_the_router_do_not_expire() {
    let Some(line) = Line::new(&["ping", "ethtool"]) else { return };
    take_in_xdp(&line);
    let router = Router::start(&line.router, "", 2);
    let pings: Vec<Child> =
        ["ping -t 1 -c 5 -i 0.1 -W 2 10.0.1.1", "ping -6 -t 1 -c 5 -i 0.1 -W 2 fd01::1"]
            .map(|words| command(&line.source, words).stdout(Stdio::null()).spawn().expect("found"))
            .into();
    for mut ping in pings {
        assert!(ping.wait().expect("it was started").success());
    }
    let report = router.stop();
    conserved(&report);
    let left = &report["left_xdp"];
    assert!(left["address"].as_u64() >= Some(10), "{report}");
    assert_eq!(left["expired"], Value::Null, "{report}");
}
