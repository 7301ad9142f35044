//! A link fails under traffic: for how long packets of a group are lost that went by it, with a table of routes behind.
//!
//! ```text
//!                                  (r1 10.0.2.1) -- (d0 10.0.2.2)
//! source s0 -- (r0 10.0.1.1) router                              destination 10.50.0.1 to 8
//!                                  (r2 10.0.3.1) -- (d1 10.0.3.2)
//! ```
//!
//! Eight flows go by a group of both links, each a packet a millisecond; one link fails, and what the flow has lost that
//! has lost most is the outage in milliseconds. The routes behind it are such that the kernel flushes all of them with the link
//! (by objects: they name the object that fails), or continues with their other hop (by multipath).

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use fingerpost_tests::netns::{Line, Router, batch, exec, ip, run};
use fingerpost_tests::traffic::{Traffic, overflowed};
use fingerpost_tests::{soak, tables};

const TRANSFER: &str = env!("CARGO_BIN_EXE_transfer");
const FLOWS: usize = 8;
/// Rate of all flows together: a packet a millisecond of each.
const RATE: u64 = 8_000;
/// Traffic before the link fails, and in all.
const BEFORE: Duration = Duration::from_millis(600);
const SECONDS: u64 = 2;
/// What is promised: this, and the generator's interval.
const MOST_MS: u64 = 20;
const INTERVAL_MS: u64 = 1;
/// Looks in a row, 100 ms apart, at which no route changed.
const AT_REST: u32 = 15;
/// Runs of a case that a busy receiver may spoil.
const MOST_AGAIN: u32 = 20;
/// For a machine that does other things as well, where the test is one of many.
const SLACK_MS: u64 = 60;

/// Who forwards.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum By {
    Kernel,
    Graph,
    Xdp,
}

/// What the routes name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Routes {
    Objects,
    Multipath,
}

/// How the link fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fails {
    /// Set down at the router.
    Down,
    /// Failure by the other end.
    Carrier,
}

#[derive(Clone, Copy, Debug)]
struct Case {
    by: By,
    routes: Routes,
    fails: Fails,
    count: usize,
}

/// The namespaces with both links.
struct Lab {
    line: Line,
    prefixes: Vec<String>,
}

impl Lab {
    fn new() -> Option<Self> {
        let line = Line::new(&["ping", "ethtool"])?;
        let (s, r, d) = (&line.source, &line.router, &line.destination);
        ip(&format!("-n {r} link add r2 type veth peer name d1 netns {d}"));
        ip(&format!("-n {r} addr add 10.0.3.1/24 dev r2"));
        ip(&format!("-n {d} addr add 10.0.3.2/24 dev d1"));
        ip(&format!("-n {r} link set r2 up"));
        ip(&format!("-n {d} link set d1 up"));
        for flow in flows() {
            ip(&format!("-n {d} addr add {flow}/32 dev lo"));
        }
        // Packets come by the one link and would be answered by the other; and veths take what programs send only where
        // the other end has GRO.
        for (namespace, links) in [(s, &["s0"][..]), (r, &["r0", "r1", "r2"]), (d, &["d0", "d1"])] {
            for link in ["all", "default"].iter().chain(links) {
                run(namespace, &format!("sysctl -qw net.ipv4.conf.{link}.rp_filter=0"));
            }
        }
        for (namespace, link) in [(s, "s0"), (d, "d0"), (d, "d1")] {
            run(namespace, &format!("ethtool -K {link} gro on tx off"));
        }
        // As a router would have it: a hop without carrier is none.
        run(r, "sysctl -qw net.ipv4.conf.all.ignore_routes_with_linkdown=1");
        let routes = tables::entries("v4-tier1-nh496.txt.xz");
        let prefixes = routes.map(|entry| entry.prefix.to_string()).collect();
        Some(Self { line, prefixes })
    }

    /// Every so many'th prefix of the full table.
    fn some(&self, count: usize) -> impl Iterator<Item = &String> {
        let every = self.prefixes.len().checked_div(count).unwrap_or(1).max(1);
        self.prefixes.iter().step_by(every).take(count)
    }

    /// Both links, the group over them, and the routes, which a link that fails takes along if they are by its object;
    /// as they were before it failed, or for the first time.
    fn set_up(&self, case: Case, first: bool) {
        let (r, d) = (&self.line.router, &self.line.destination);
        ip(&format!("-n {d} link set d1 up"));
        ip(&format!("-n {r} link set r2 up"));
        let mut lines = String::new();
        let (group, way) = match case.routes {
            Routes::Objects => {
                lines += "nexthop replace id 1 via 10.0.3.2 dev r2\n\
                          nexthop replace id 2 via 10.0.2.2 dev r1\n\
                          nexthop replace id 10 group 1/2\n";
                ("nhid 10", "nhid 1")
            }
            Routes::Multipath => {
                let hops = "nexthop via 10.0.3.2 dev r2 nexthop via 10.0.2.2 dev r1";
                (hops, hops)
            }
        };
        let _ = writeln!(lines, "route replace 10.50.0.0/24 {group}");
        let gone = first || case.routes == Routes::Objects;
        for prefix in self.some(if gone { case.count } else { 0 }) {
            let _ = writeln!(lines, "route add {prefix} {way}");
        }
        batch(r, &lines);
        for gateway in ["10.0.2.2", "10.0.3.2"] {
            run(r, &format!("ping -c 1 -W 5 {gateway}"));
        }
    }

    /// Until the group uses both links again, with all routes behind it.
    fn settle(&self, case: Case, router: Option<&Router>) {
        let until = Instant::now() + Duration::from_secs(120);
        let wait = |what: &str| {
            assert!(Instant::now() < until, "waited for {what}: {case:?}");
            std::thread::sleep(Duration::from_millis(100));
        };
        if let Some(router) = router {
            // A link that comes up is followed by a dump, and perhaps by a change of every route: what is measured is a
            // failure that finds the daemon at rest.
            let (mut before, mut same) = (serde_json::Value::Null, 0);
            while same < AT_REST {
                let fibs: Vec<serde_json::Value> = router.ask("fib show");
                let has = |fib: &&serde_json::Value| {
                    fib["family"] == 4
                        && fib["prefixes"].as_u64() >= Some(case.count as u64)
                        && fib["pending"] == 0
                };
                let now = fibs.iter().find(has);
                let now = now.map(|fib| serde_json::json!([fib["applied"], fib["builds"]]));
                same = if now.is_some() && now.as_ref() == Some(&before) { same + 1 } else { 0 };
                before = now.unwrap_or_default();
                wait("the routes");
            }
        }
        loop {
            let before = self.arrived();
            for flow in flows() {
                exec(&self.line.source, &format!("ping -c 1 -W 1 {flow}"));
            }
            let after = self.arrived();
            if after[0] > before[0] && after[1] > before[1] {
                break;
            }
            wait("both members");
        }
    }

    /// Packets that have arrived by each link.
    fn arrived(&self) -> [u64; 2] {
        ["d0", "d1"].map(|link| {
            let d = &self.line.destination;
            let count = run(d, &format!("cat /sys/class/net/{link}/statistics/rx_packets"));
            count.trim().parse().expect("a number")
        })
    }

    /// Outages of so many runs, in milliseconds, sorted; until `until`, but one at least.
    fn measure(&self, case: Case, runs: usize, until: Instant) -> Vec<u64> {
        let r = &self.line.router;
        self.line.kernel_forwards(case.by == By::Kernel);
        // By a seed that has flows on both links.
        let file = std::env::temp_dir().join(format!("failover-{r}.toml"));
        std::fs::write(&file, "[groups]\nflow_seed = 0x66696e67657270\n").expect("a file");
        let start = |words: &str| Router::start(r, &format!("{} {words}", file.display()), 3);
        let router = match case.by {
            By::Kernel => None,
            By::Graph => Some(start("--path graph")),
            By::Xdp => Some(start("")),
        };
        let _ = std::fs::remove_file(&file);
        let (mut outages, mut first, mut again) = (Vec::new(), true, 0);
        while outages.len() < runs && (outages.is_empty() || Instant::now() < until) {
            self.set_up(case, first);
            first = false;
            self.settle(case, router.as_ref());
            let full = overflowed(&self.line.destination);
            let flows: Vec<String> = flows().collect();
            let flows: Vec<&str> = flows.iter().map(String::as_str).collect();
            let before = self.arrived();
            let traffic = Traffic::begin(TRANSFER, &self.line, &flows, RATE, SECONDS);
            std::thread::sleep(BEFORE);
            let after = self.arrived();
            assert!(after[1] > before[1] + 100, "no flow went by the link that is to fail");
            match case.fails {
                Fails::Down => ip(&format!("-n {r} link set r2 down")),
                Fails::Carrier => ip(&format!("-n {} link set d1 down", self.line.destination)),
            };
            let counts = traffic.end();
            if overflowed(&self.line.destination) > full {
                // The receiver had no time: that is no loss of the router's.
                println!("{case:?}: a full socket at the receiver, once more");
                again += 1;
                assert!(again < MOST_AGAIN, "the machine is too busy to say anything");
                continue;
            }
            // What a flow lost at its end, because it never came back, shows in the sum alone.
            let each = counts.lost() / FLOWS as u64;
            outages.push(counts.worst.max(each) * INTERVAL_MS);
        }
        if let Some(router) = router {
            let report = router.stop();
            let in_drivers = report["forwarded_xdp"].as_u64();
            assert_eq!(case.by == By::Xdp, in_drivers > Some(1000), "{report}");
        }
        self.clear();
        outages.sort_unstable();
        outages
    }

    /// Restores the state before the first case.
    fn clear(&self) {
        let (r, d) = (&self.line.router, &self.line.destination);
        ip(&format!("-n {d} link set d1 up"));
        ip(&format!("-n {r} link set r2 up"));
        // Routes go with the links that they are by, and so do objects.
        for link in ["r1", "r2"] {
            ip(&format!("-n {r} link set {link} down"));
        }
        for link in ["r1", "r2"] {
            ip(&format!("-n {r} link set {link} up"));
        }
    }
}

/// Addresses of the destination, a flow each.
fn flows() -> impl Iterator<Item = String> {
    (1..=FLOWS).map(|host| format!("10.50.0.{host}"))
}

fn median(outages: &[u64]) -> u64 {
    outages[outages.len() / 2]
}

#[test]
fn failover_of_a_group_does_not_wait_for_the_routes_behind_it() {
    let Some(lab) = Lab::new() else { return };
    let long = soak(Duration::ZERO);
    if long > Duration::ZERO {
        return all(&lab, long);
    }
    for (by, routes, fails) in [
        (By::Graph, Routes::Objects, Fails::Down),
        (By::Xdp, Routes::Objects, Fails::Carrier),
        (By::Xdp, Routes::Multipath, Fails::Down),
    ] {
        let case = Case { by, routes, fails, count: 100_000 };
        let outages = lab.measure(case, 3, Instant::now() + Duration::from_secs(60));
        println!("{case:?}: {outages:?} ms");
        let most = MOST_MS + INTERVAL_MS + SLACK_MS;
        assert!(median(&outages) <= most, "{case:?}: {outages:?} ms, at most {most} in the middle");
    }
}

/// Every case nine times, or as often as there is time for, as a table.
fn all(lab: &Lab, long: Duration) {
    let mut rows = Vec::new();
    for count in [0, 177_000, 901_899] {
        for routes in [Routes::Objects, Routes::Multipath] {
            for fails in [Fails::Down, Fails::Carrier] {
                for by in [By::Xdp, By::Graph, By::Kernel] {
                    rows.push(Case { by, routes, fails, count });
                }
            }
        }
    }
    let began = Instant::now();
    let mut late = Vec::new();
    println!("| routes | named by | the link | forwarded by | runs | median ms | least | most |");
    println!("|---|---|---|---|---|---|---|---|");
    let all = u32::try_from(rows.len()).expect("some dozen");
    for (at, case) in (1..).zip(rows) {
        // A row has its part of the time, and what those before it left.
        let outages = lab.measure(case, 9, began + long * at / all);
        let (least, most) = (outages[0], outages[outages.len() - 1]);
        println!(
            "| {} | {} | {} | {} | {} | {} | {least} | {most} |",
            case.count,
            ["objects", "multipath"][case.routes as usize],
            ["set down", "loses carrier"][case.fails as usize],
            ["the kernel", "graph", "XDP"][case.by as usize],
            outages.len(),
            median(&outages),
        );
        if case.by != By::Kernel && median(&outages) > MOST_MS + INTERVAL_MS {
            late.push((case, outages));
        }
    }
    assert!(late.is_empty(), "more than {MOST_MS} ms: {late:?}");
}
