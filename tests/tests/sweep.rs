//! A sweep of a connected prefix beside hosts that have no neighbor entry yet: 5,000 packets a second to random addresses, and pings to
//! hosts that are there. The kernel's own forwarding does the same for comparison.
//!
//! ```text
//! source s0 -- (r0 10.0.1.1) router (r1 10.77.0.1/16, fd02::1/64) -- d0, 120 addresses of each
//! ```

use std::process::Stdio;
use std::thread;
use std::time::Duration;

use fingerpost_tests::netns::{Line, Router, batch, command, conserved, exec, ip, run};

const TRANSFER: &str = env!("CARGO_BIN_EXE_transfer");
/// Packets a second of the sweep.
const RATE: u64 = 5_000;
/// Hosts that are pinged, each once.
const HOSTS: usize = 40;
/// Hosts of these that must reply.
const LEAST: usize = 35;
/// Pings at one time.
const AT_ONCE: usize = 8;

/// The sweep that there is, and the hosts on which it is.
struct Subnet {
    prefix: &'static str,
    host: fn(usize) -> String,
}

const SUBNETS: [Subnet; 2] = [
    Subnet { prefix: "10.77.0.0/16", host: |n| format!("10.77.200.{}", n + 1) },
    Subnet { prefix: "fd02::/64", host: |n| format!("fd02::7700:{}", n + 1) },
];

/// How many of these hosts reply to a ping beside a sweep of their prefix.
fn answered(line: &Line, subnet: &Subnet, hosts: std::ops::Range<usize>) -> usize {
    let words = format!("{TRANSFER} sweep {} {RATE} 60", subnet.prefix);
    let sweep = command(&line.source, &words).stdout(Stdio::null()).spawn();
    let mut sweep = sweep.expect("the helper is built with the tests");
    thread::sleep(Duration::from_secs(2));
    let hosts: Vec<String> = hosts.map(subnet.host).collect();
    let ping =
        |host: &String| exec(&line.source, &format!("ping -c 1 -W 2 {host}")).status.success();
    let mut count = 0;
    for some in hosts.chunks(AT_ONCE) {
        count += thread::scope(|scope| {
            let pings: Vec<_> = some.iter().map(|host| scope.spawn(move || ping(host))).collect();
            pings.into_iter().filter_map(|ping| ping.join().ok()).filter(|found| *found).count()
        });
    }
    assert!(sweep.try_wait().expect("it was started").is_none(), "the sweep went on");
    sweep.kill().expect("it was started");
    let _ = sweep.wait();
    count
}

#[test]
fn unknown_hosts_are_found_beside_a_sweep() {
    let Some(line) = Line::new(&["ping"]) else { return };
    let (r, d) = (&line.router, &line.destination);
    ip(&format!("-n {r} addr add 10.77.0.1/16 dev r1"));
    let addresses = (0..3 * HOSTS).flat_map(|n| SUBNETS.iter().map(move |subnet| (subnet.host)(n)));
    let lines: String = addresses
        .map(|host| match host.contains(':') {
            true => format!("addr add {host}/128 dev d0 nodad\n"),
            false => format!("addr add {host}/32 dev d0\n"),
        })
        .collect();
    batch(d, &lines);
    // Errors about hosts that are not there are no part of this.
    run(&line.source, "sysctl -qw net.ipv4.icmp_ratelimit=1000");
    for subnet in &SUBNETS {
        line.kernel_forwards(true);
        let kernel = answered(&line, subnet, HOSTS..2 * HOSTS);
        line.kernel_forwards(false);
        // What the kernel keeps of its own sweep has no room in ours.
        ip(&format!("-n {r} neigh flush all"));
        thread::sleep(Duration::from_secs(5));
        let router = Router::start(r, "", 2);
        run(&line.source, &format!("ping -c 2 -i 0.2 -W 2 {}", "10.0.2.2"));
        let mut ours = answered(&line, subnet, 0..HOSTS);
        println!("{}: {ours} of {HOSTS} answered, by Linux alone {kernel}", subnet.prefix);
        if ours < LEAST {
            // On a busy machine the test itself may be late: once more, with other hosts.
            ours = answered(&line, subnet, 2 * HOSTS..3 * HOSTS);
            println!("{}: {ours} of {HOSTS} answered the second time", subnet.prefix);
        }
        assert!(ours >= LEAST, "{}: {ours} of {HOSTS}: {:#?}", subnet.prefix, router.said());
        conserved(&router.stop());
    }
}
