//! Two hosts and the program between them, as `fingerpost run` without a file finds them.

use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use fingerpost_tests::netns::{Line, Router, command, conserved, exec, ip, run};
use fingerpost_tests::skip;
use fingerpost_tests::traffic::{Traffic, overflowed};

const TRANSFER: &str = env!("CARGO_BIN_EXE_transfer");

fn said(output: &std::process::Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[test]
fn pings_cross_and_traceroute_shows_the_router() {
    let Some(line) = Line::new(&["ping", "traceroute"]) else { return };
    let router = Router::start(&line.router, "", 2);
    run(&line.source, "ping -c 5 -i 0.1 -W 2 10.0.2.2");
    run(&line.source, "ping -6 -c 5 -i 0.1 -W 2 fd02::2");
    run(&line.destination, "ping -c 2 -i 0.1 -W 2 10.0.1.2");
    // The router itself answers too: that is the kernel's part.
    run(&line.source, "ping -c 2 -i 0.1 -W 2 10.0.2.1");
    for (words, hop) in [
        ("traceroute -n -q 1 -w 2 10.0.2.2", "10.0.1.1"),
        ("traceroute -6 -n -q 1 -w 2 fd02::2", "fd01::1"),
    ] {
        let path = run(&line.source, words);
        let first = path.lines().find(|l| l.trim_start().starts_with("1 ")).unwrap_or_default();
        assert!(first.contains(hop), "{path}");
    }
    let report = router.stop();
    conserved(&report);
    assert!(report["packets_out"].as_u64() > Some(20), "{report}");
    assert_eq!(report["dropped"]["ttl_expired"], 2, "{report}");
}

#[test]
fn who_cannot_be_reached_is_told() {
    let Some(line) = Line::new(&["ping"]) else { return };
    let router = Router::start(&line.router, "", 2);
    let nobody = said(&exec(&line.source, "ping -c 2 -i 0.5 -W 5 10.0.2.77"));
    assert!(nobody.contains("From 10.0.1.1") && nobody.contains("Host Unreachable"), "{nobody}");
    let nowhere = said(&exec(&line.source, "ping -c 1 -W 2 203.0.113.9"));
    assert!(nowhere.contains("Net Unreachable"), "{nowhere}");
    ip(&format!("-n {} route add prohibit 198.51.100.0/24", line.router));
    std::thread::sleep(Duration::from_millis(200));
    let prohibited = said(&exec(&line.source, "ping -c 1 -W 2 198.51.100.9"));
    assert!(prohibited.contains("Packet filtered"), "{prohibited}");
    conserved(&router.stop());
}

/// One byte more than 2^30 in the short form, so that nothing ends on a round number.
fn transfer(from: &str, to: &str, addr: &str, bytes: u64) {
    let receiver: Child = command(to, &format!("{TRANSFER} receive {addr} {bytes}"))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the helper is built with the tests");
    let sent = exec(from, &format!("{TRANSFER} send {addr} {bytes}"));
    let received = receiver.wait_with_output().expect("it was started");
    assert!(
        sent.status.success() && received.status.success(),
        "{}{}",
        said(&sent),
        said(&received)
    );
}

#[test]
fn tcp_arrives_intact_both_ways_with_all_offloads_on() {
    let Some(line) = Line::new(&[]) else { return };
    let router = Router::start(&line.router, "", 2);
    const GB: u64 = 1_000_000_001;
    transfer(&line.source, &line.destination, "10.0.2.2:7001", GB);
    transfer(&line.destination, &line.source, "10.0.1.2:7002", GB);
    transfer(&line.source, &line.destination, "[fd02::2]:7003", GB / 4);
    let report = router.stop();
    conserved(&report);
    assert!(report["packets_in"].as_u64() > Some(1_000_000), "not by the kernel: {report}");
}

#[test]
fn a_smaller_mtu_fragments_or_tells() {
    let Some(line) = Line::new(&["ping"]) else { return };
    ip(&format!("-n {} link set r1 mtu 1280", line.router));
    ip(&format!("-n {} link set d0 mtu 1280", line.destination));
    let router = Router::start(&line.router, "", 2);
    // 1,972 bytes of payload make a datagram of 2,000.
    run(&line.source, "ping -c 3 -i 0.1 -W 2 -M dont -s 1972 10.0.2.2");
    let told = said(&exec(&line.source, "ping -c 1 -W 2 -M do -s 1400 10.0.2.2"));
    assert!(told.contains("From 10.0.1.1") && told.contains("mtu = 1280"), "{told}");
    let told = said(&exec(&line.source, "ping -6 -c 1 -W 2 -M do -s 1400 fd02::2"));
    assert!(
        told.contains("From fd01::1") && told.contains("mtu: 1280") || told.contains("mtu=1280"),
        "{told}"
    );
    // Having been told, hosts get through.
    transfer(&line.source, &line.destination, "10.0.2.2:7004", 1_000_000);
    transfer(&line.source, &line.destination, "[fd02::2]:7005", 1_000_000);
    let report = router.stop();
    conserved(&report);
    assert!(report["dropped"]["too_big"].as_u64() >= Some(2), "{report}");
}

#[test]
fn the_kernel_takes_over_when_the_program_dies() {
    let Some(line) = Line::new(&["ping"]) else { return };
    let router = Router::start(&line.router, "", 2);
    run(&line.source, "ping -c 2 -i 0.1 -W 2 10.0.2.2");
    line.kernel_forwards(true);
    router.kill();
    // Any one of them: the kernel may have to find its neighbors first.
    run(&line.source, "ping -c 5 -i 0.2 -W 2 10.0.2.2");
    run(&line.source, "ping -6 -c 5 -i 0.2 -W 2 fd02::2");
    // And gives way again.
    line.kernel_forwards(false);
    let router = Router::start(&line.router, "", 2);
    run(&line.source, "ping -c 2 -i 0.1 -W 2 10.0.2.2");
    conserved(&router.stop());
    assert!(!exec(&line.source, "ping -c 1 -W 1 10.0.2.2").status.success(), "nobody forwards now");
}

#[test]
fn what_the_kernel_does_to_packets_keeps_its_interfaces() {
    let Some(line) = Line::new(&["nft", "tc"]) else { return };
    line.kernel_forwards(true);
    let program = fingerpost_tests::program().expect("the line was made with it");
    let check = |more: &str| {
        run(&line.router, format!("{} run --check {more}", program.display()).trim_end())
    };
    let all = check("");
    assert!(all.contains("r0 would be taken over") && all.contains("r1 would be"), "{all}");
    let only = check("--only r1");
    assert!(only.contains("r0 stays with the kernel: not named by --only"), "{only}");
    run(&line.router, "tc qdisc add dev r0 clsact");
    run(&line.router, "tc filter add dev r0 ingress u32 match u32 0 0 flowid 1:1");
    let one = check("");
    assert!(one.contains("r0 stays with the kernel") && one.contains("--ignore tc"), "{one}");
    assert!(one.contains("r1 would be taken over"), "{one}");
    run(&line.router, "nft add table inet guard");
    run(&line.router, "nft add chain inet guard fw { type filter hook forward priority 0 ; }");
    run(&line.router, "nft add rule inet guard fw ip daddr 192.0.2.1 drop");
    let none = check("");
    assert!(none.lines().all(|l| l.contains("stays with the kernel")), "{none}");
    assert!(none.contains("guard"), "the rule's place is named: {none}");
    let forced = check("--ignore nftables,tc");
    assert!(forced.lines().all(|l| l.contains("would be taken over")), "{forced}");
}

#[test]
fn an_interface_left_to_the_kernel_is_still_sent_by() {
    let Some(line) = Line::new(&["ping"]) else { return };
    // Frames come in by r1 through the kernel, which then forwards them to r0.
    line.kernel_forwards(true);
    // The kernel reports the carrier of a new veth up to a second late; until then r1 is no egress.
    let until = Instant::now() + Duration::from_secs(5);
    while run(&line.router, "cat /sys/class/net/r1/operstate").trim() != "up" {
        assert!(Instant::now() < until, "r1 has a carrier");
        std::thread::sleep(Duration::from_millis(20));
    }
    let router = Router::start(&line.router, "--only r0", 1);
    run(&line.source, "ping -c 3 -i 0.1 -W 2 10.0.2.2");
    run(&line.source, "ping -6 -c 3 -i 0.1 -W 2 fd02::2");
    let report = router.stop();
    conserved(&report);
    assert!(report["packets_out"].as_u64() >= Some(6), "{report}");
}

#[test]
fn an_interface_that_changes_is_followed_in_place() {
    let Some(line) = Line::new(&["ping"]) else { return };
    let router = Router::start(&line.router, "--path graph", 2);
    run(&line.source, "ping -c 2 -i 0.1 -W 2 10.0.2.2");
    ip(&format!("-n {} link set r0 mtu 1400", line.router));
    ip(&format!("-n {} link set r1 address 02:00:00:00:00:77", line.router));
    run(&line.source, "ping -c 4 -i 0.3 -W 2 10.0.2.2");
    let said = router.said();
    assert_eq!(said.iter().filter(|line| line.contains("taken over: ")).count(), 2, "{said:#?}");
    assert!(!said.iter().any(|line| line.contains("stays with the kernel")), "{said:#?}");
    conserved(&router.stop());
}

#[test]
fn workers_share_the_one_queue_of_an_interface() {
    if std::thread::available_parallelism().is_ok_and(|cores| cores.get() < 2) {
        return skip("two processors");
    }
    let Some(line) = Line::with_queues(&["ping"], [2, 1]) else { return };
    let addrs: Vec<String> = (100..124).map(|host| format!("10.0.2.{host}")).collect();
    for addr in &addrs {
        ip(&format!("-n {} addr add {addr}/32 dev d0", line.destination));
    }
    let router = Router::start(&line.router, "--path graph", 2);
    let taken_over = |name: &str, how: &str| {
        router
            .said()
            .iter()
            .any(|said| said.contains(&format!("{name}: taken over: ")) && said.ends_with(how))
    };
    assert!(taken_over("r0", ", 2 queues"), "{:#?}", router.said());
    assert!(taken_over("r1", " for 2 workers, by flow"), "{:#?}", router.said());
    // Requests leave by it, answers come by it.
    for addr in &addrs {
        run(&line.source, &format!("ping -c 1 -W 2 {addr}"));
    }
    let shares = || -> [u64; 2] {
        let stats: serde_json::Value = router.ask("graph stats");
        let rows = stats["elements"].as_array().expect("a row for each element and worker");
        let lookups = rows.iter().filter(|row| row["class"] == "IP4FIBLookup");
        let mut shares = [0; 2];
        for row in lookups {
            let share = if row["worker"] == 0 { &mut shares[0] } else { &mut shares[1] };
            *share += row["packets"].as_u64().expect("a count");
        }
        shares
    };
    let flows: Vec<&str> = addrs.iter().map(String::as_str).collect();
    for attempt in 0.. {
        let before = [shares().iter().sum(), overflowed(&line.destination)];
        let counts = Traffic::begin(TRANSFER, &line, &flows, 2_000, 2).end();
        let taken = shares().iter().sum::<u64>() - before[0];
        let lost_there = overflowed(&line.destination) - before[1];
        assert_eq!((counts.received + lost_there, counts.reordered), (taken, 0), "{counts:?}");
        // What a busy machine loses before the router is no fault of it.
        if taken == counts.sent {
            break;
        }
        assert!(attempt < 4, "{taken} of {} came to the router", counts.sent);
    }
    let shares = shares();
    assert!(shares.iter().all(|&share| share > 400), "{shares:?}");
    let report = router.stop();
    conserved(&report);
    assert_eq!(report["workers"], 2, "{report}");
}

/// CPU time that a process has used, in milliseconds.
fn cpu_ms(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("it runs");
    // Behind the name, which may hold anything: user and system time are the 12th and 13th, in ticks of 10 ms.
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields).split_whitespace();
    fields.skip(11).take(2).map(|ticks| ticks.parse::<u64>().expect("a number") * 10).sum()
}

/// How long a ping took, in milliseconds.
fn ping_ms(line: &Line) -> f64 {
    let said = run(&line.source, "ping -c 1 -W 2 10.0.2.2");
    let time = said.split("time=").nth(1).and_then(|rest| rest.split(' ').next());
    time.and_then(|time| time.parse().ok()).unwrap_or_else(|| panic!("{said}"))
}

#[test]
fn an_idle_router_costs_next_to_nothing_and_wakes_at_once() {
    let Some(line) = Line::new(&["ping"]) else { return };
    let router = Router::start(&line.router, "--path graph", 2);
    ping_ms(&line);
    std::thread::sleep(Duration::from_millis(500));
    let window = || {
        let before = cpu_ms(router.pid());
        std::thread::sleep(Duration::from_secs(5));
        cpu_ms(router.pid()) - before
    };
    // A machine that is busy otherwise makes the same work dearer: the least of three is the router's own.
    let used = (0..3).map(|_| window()).find(|&used| used < 100).unwrap_or_else(window);
    // A ping is two packets through the router, and two hosts; each finds all of them asleep.
    let mut times: Vec<f64> = (0..9)
        .map(|_| {
            std::thread::sleep(Duration::from_millis(300));
            ping_ms(&line)
        })
        .collect();
    times.sort_by(f64::total_cmp);
    println!("idle: {used} ms of CPU in 5 s; pings after 0.3 s of silence: {times:?} ms");
    assert!(used < 100, "2 % of a core: {used} ms in 5 s");
    assert!(times[4] < 1.0, "{times:?}");
    conserved(&router.stop());
}
