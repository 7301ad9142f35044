//! The operator's tour: a router between hosts, its routes from FRR or BIRD, and all that happens to it in a year.
//!
//! A neighbor announces a table by two BGP sessions over two links, so that every route has two paths. Each event has
//! its traffic, its loss, and afterwards a comparison of every route with the kernel's. In the tests a part of the
//! table; `cargo xtask soak tour` has all of it, and prints the table of `docs/benchmarks/takeover.md`.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Stdio;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use fingerpost_route::AnyPrefix;
use fingerpost_tests::bird::{self, Bird};
use fingerpost_tests::frr::Frr;
use fingerpost_tests::netns::{Line, Router, command_beside, ip, run};
use fingerpost_tests::traffic::{Traffic, overflowed};
use fingerpost_tests::{program, soak, tables};

const TRANSFER: &str = env!("CARGO_BIN_EXE_transfer");
/// Addresses of the destination, by routes that BGP brings: some flows of each take either path.
const FLOWS: [&str; 4] = ["10.9.0.1", "10.9.0.2", "10.9.1.1", "10.9.1.2"];
/// Own addresses and the neighbor's, on the two links.
const SESSIONS: [(&str, &str); 2] = [("10.0.2.1", "10.0.2.2"), ("10.0.3.1", "10.0.3.2")];
/// Traffic of an event.
const SECONDS: u64 = 3;
/// Longest time for routes to be the kernel's after an event.
const LONGEST_SETTLING: Duration = Duration::from_secs(120);

/// One at a time: two would lose packets to each other.
static ALONE: Mutex<()> = Mutex::new(());

/// Gateways and interfaces of each prefix.
type Paths = BTreeMap<String, BTreeSet<(String, String)>>;

/// Who puts the routes into the kernel.
enum Daemon {
    Frr(Frr),
    Bird(Bird),
}

struct Tour {
    line: Line,
    speaker: Bird,
    daemon: Daemon,
    router: Option<Router>,
    rate: u64,
    rows: Vec<String>,
}

/// What an event may cost.
#[derive(Clone, Copy, PartialEq)]
enum Cost {
    /// Not a packet more than the same traffic without it.
    Nothing,
    /// Packets of the flows that took a path which failed.
    Failover,
}

/// Prefixes of the table, and those of the flows.
fn prefixes() -> Vec<String> {
    let share = if soak(Duration::ZERO).is_zero() { 200 } else { 1 };
    let routes = tables::entries("v4-tier1-nh496.txt.xz").step_by(share);
    let mut prefixes: BTreeSet<String> = routes.map(|entry| entry.prefix.to_string()).collect();
    prefixes.extend(["10.9.0.0/24", "10.9.1.0/24"].map(String::from));
    prefixes.remove("0.0.0.0/0");
    prefixes.into_iter().collect()
}

impl Tour {
    fn new(frr: bool) -> Option<Self> {
        let line = Line::new(&["bird", "birdc", "ethtool", "nft", "ping"])?;
        let (s, r, d) = (&line.source, &line.router, &line.destination);
        ip(&format!("-n {r} link add r2 type veth peer name d2 netns {d}"));
        for (namespace, link, host) in [(r, "r2", 1), (d, "d2", 2)] {
            ip(&format!("-n {namespace} addr add 10.0.3.{host}/24 dev {link}"));
            ip(&format!("-n {namespace} link set {link} up"));
        }
        // One more, that nothing passes.
        ip(&format!("-n {r} link add x0 type veth peer name y0 netns {d}"));
        ip(&format!("-n {r} link set x0 up"));
        ip(&format!("-n {d} link set y0 up"));
        run(s, "ethtool -K s0 gro on tx off");
        for link in ["d0", "d2", "y0"] {
            run(d, &format!("ethtool -K {link} gro on tx off"));
        }
        // Flows by their ports, as the router spreads them.
        run(r, "sysctl -qw net.ipv4.fib_multipath_hash_policy=1");
        for flow in FLOWS {
            ip(&format!("-n {d} addr add {flow}/32 dev lo"));
        }
        line.kernel_forwards(true);
        let prefixes = prefixes();
        let count = prefixes.len();
        let far: Vec<_> = SESSIONS.iter().map(|(own, other)| (*other, *own)).collect();
        let speaker = Bird::start(d, &bird::speaker(prefixes.into_iter(), &far));
        let daemon = if frr {
            let options: &[&str] = &["-p", "179"];
            Daemon::Frr(Frr::start(r, "", &[("bgpd", &bgpd(), options)])?)
        } else {
            Daemon::Bird(Bird::start(r, &bird::learner(&SESSIONS)))
        };
        let rate = if soak(Duration::ZERO).is_zero() { 2_000 } else { 10_000 };
        let tour = Self { line, speaker, daemon, router: None, rate, rows: Vec::new() };
        tour.wait_for_kernel(count);
        for flow in FLOWS {
            run(&tour.line.source, &format!("ping -c 2 -i 0.1 -W 2 {flow}"));
        }
        Some(tour)
    }

    fn r(&self) -> &str {
        &self.line.router
    }

    /// Until the kernel has so many routes of BGP, each by both links.
    fn wait_for_kernel(&self, count: usize) {
        let until = Instant::now() + LONGEST_SETTLING;
        loop {
            let paths = self.of_kernel();
            let both = paths.values().filter(|paths| paths.len() == 2).count();
            if both == count {
                return;
            }
            assert!(Instant::now() < until, "{both} of {count} routes have two paths");
            thread::sleep(Duration::from_millis(500));
        }
    }

    /// Routes of the kernel that a routing daemon put there.
    fn of_kernel(&self) -> Paths {
        let protocol = match self.daemon {
            Daemon::Frr(_) => "186",
            Daemon::Bird(_) => "bird",
        };
        let text = run(self.r(), &format!("ip -4 route show proto {protocol}"));
        let mut paths = Paths::new();
        let mut prefix = String::new();
        for line in text.lines() {
            let mut words = line.split_whitespace();
            if !line.starts_with(char::is_whitespace) {
                let first = words.next().expect("no empty line");
                let whole = if first.contains('/') { "" } else { "/32" };
                prefix = format!("{first}{whole}");
                paths.entry(prefix.clone()).or_default();
            }
            let words: Vec<&str> = words.collect();
            let after = |key: &str| {
                let at = words.iter().position(|word| *word == key)?;
                words.get(at + 1).map(|word| (*word).to_owned())
            };
            if let (Some(gateway), Some(dev)) = (after("via"), after("dev")) {
                paths.get_mut(&prefix).expect("made above").insert((gateway, dev));
            }
        }
        paths
    }

    /// Best routes of the router from the kernel, those of its own links left out.
    fn of_router(&self) -> Paths {
        let program = program().expect("the line was made with it");
        let words = format!("{} route show --best --source kernel --json", program.display());
        let mut child = command_beside(self.r(), &words)
            .stdout(Stdio::piped())
            .spawn()
            .expect("it was found before");
        let out = std::io::BufReader::new(child.stdout.take().expect("it is piped"));
        let mut paths = Paths::new();
        for line in std::io::BufRead::lines(out) {
            let row: serde_json::Value =
                serde_json::from_str(&line.expect("text")).expect("JSON lines");
            let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
            let prefix = text(&row["prefix"]);
            if !matches!(AnyPrefix::parse(&prefix), Ok(AnyPrefix::V4(_))) {
                continue;
            }
            let listed = row["paths"].as_array().expect("a list");
            let set: BTreeSet<_> = listed
                .iter()
                .map(|path| (text(&path["gateway"]), text(&path["dev"])))
                .filter(|(gateway, _)| !gateway.is_empty())
                .collect();
            if !set.is_empty() {
                paths.insert(prefix, set);
            }
        }
        assert!(child.wait().expect("it was started").success());
        paths
    }

    /// Routes that are missing, left over or different, once they had the time to settle.
    fn differences(&self) -> usize {
        let until = Instant::now() + LONGEST_SETTLING;
        loop {
            let (kernel, router) = (self.of_kernel(), self.of_router());
            let different =
                kernel.iter().filter(|(prefix, paths)| router.get(*prefix) != Some(paths));
            let stale = router.keys().filter(|prefix| !kernel.contains_key(*prefix));
            let wrong = different.count() + stale.count();
            if wrong == 0 || Instant::now() > until {
                return wrong;
            }
            thread::sleep(Duration::from_millis(500));
        }
    }

    fn start(&mut self, words: &str) {
        self.router = Some(Router::start_by(command_beside, self.r(), words, 4));
    }

    /// Traffic while `event` happens: how many packets were sent, and how many are missing.
    fn during(&mut self, event: &mut dyn FnMut(&mut Self)) -> (u64, u64) {
        let before = overflowed(&self.line.destination);
        let traffic = Traffic::begin(TRANSFER, &self.line, &FLOWS, self.rate, SECONDS);
        thread::sleep(Duration::from_millis(400));
        event(self);
        let counts = traffic.end();
        (counts.sent, counts.lost() - (overflowed(&self.line.destination) - before))
    }

    /// An event, and what it costs.
    fn event(&mut self, what: &str, cost: Cost, event: &mut dyn FnMut(&mut Self)) {
        let (sent, lost) = self.during(event);
        // What a busy machine loses without any event is of interest only where something was lost.
        let quiet = if lost == 0 { 0 } else { self.during(&mut |_| ()).1 };
        let wrong = self.differences();
        println!("| {what} | {sent} | {lost} | {quiet} | {wrong} |");
        assert_eq!(wrong, 0, "{what}: routes are not the kernel's");
        let most = match cost {
            Cost::Nothing => quiet,
            // A tenth of a second of half of the flows, on a machine that does other things as well.
            Cost::Failover => quiet + self.rate / 20,
        };
        self.rows.push(what.to_owned());
        assert!(lost <= most, "{what}: {lost} of {sent} lost, {quiet} without it");
    }

    fn signal(&self, name: &str) {
        self.router.as_ref().expect("it runs").signal(name);
    }

    /// Waits until the router printed so.
    fn said(&self, words: &str) {
        let router = self.router.as_ref().expect("it runs");
        router.wait_for(words, |said| said.iter().any(|line| line.contains(words)));
    }
}

impl Drop for Tour {
    fn drop(&mut self) {
        drop(self.router.take());
        let words = program().map(|program| format!("{} release", program.display()));
        if let Some(words) = words {
            // Where nothing is left there is nothing to release.
            let _ = command_beside(&self.line.router, &words).output();
        }
    }
}

fn bgpd() -> String {
    let mut text = String::from(
        "router bgp 65000\n bgp router-id 10.255.0.1\n no bgp ebgp-requires-policy\n \
         no bgp network import-check\n",
    );
    for (_, neighbor) in SESSIONS {
        text += &format!(
            " neighbor {neighbor} remote-as 65001\n neighbor {neighbor} timers connect 1\n"
        );
    }
    text + " address-family ipv4 unicast\n  maximum-paths 4\n exit-address-family\n"
}

fn tour(frr: bool) {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(mut tour) = Tour::new(frr) else { return };
    println!(
        "| event | sent | lost | lost without it | routes that differ |\n|---|---|---|---|---|"
    );
    let nonstop = "--nonstop 60";
    tour.event("start", Cost::Nothing, &mut |tour| tour.start(nonstop));
    tour.event("kill -9, and start", Cost::Nothing, &mut |tour| {
        tour.router.take().expect("it runs").kill();
        thread::sleep(Duration::from_millis(300));
        tour.start(nonstop);
    });
    tour.event("SIGTERM, and start", Cost::Nothing, &mut |tour| {
        drop(tour.router.take().expect("it runs").stop());
        thread::sleep(Duration::from_millis(300));
        tour.start(nonstop);
    });
    tour.event("an address is added", Cost::Nothing, &mut |tour| {
        ip(&format!("-n {} addr add 10.77.0.1/24 dev x0", tour.r()));
    });
    tour.event("an MTU changes", Cost::Nothing, &mut |tour| {
        ip(&format!("-n {} link set r1 mtu 1450", tour.r()));
        thread::sleep(Duration::from_millis(300));
        ip(&format!("-n {} link set r1 mtu 1500", tour.r()));
    });
    tour.event("neighbors are flushed", Cost::Nothing, &mut |tour| {
        for _ in 0..3 {
            ip(&format!("-n {} neigh flush dev r1", tour.r()));
            thread::sleep(Duration::from_millis(300));
        }
    });
    tour.event("a firewall rule comes, and goes", Cost::Nothing, &mut |tour| {
        run(tour.r(), "nft add table inet edge");
        let chain = "nft add chain inet edge forward { type filter hook forward priority 0 ; }";
        run(tour.r(), chain);
        run(tour.r(), "nft add rule inet edge forward ip saddr 198.51.100.0/24 drop");
        tour.said("given back to the kernel");
        run(tour.r(), "nft delete table inet edge");
        thread::sleep(Duration::from_millis(1000));
    });
    tour.event("an ip rule comes, and goes", Cost::Nothing, &mut |tour| {
        ip(&format!("-n {} rule add from 198.51.100.0/24 lookup 100", tour.r()));
        thread::sleep(Duration::from_millis(1000));
        ip(&format!("-n {} rule del from 198.51.100.0/24 lookup 100", tour.r()));
        thread::sleep(Duration::from_millis(1000));
    });
    tour.event("an interface joins a bridge, and leaves", Cost::Nothing, &mut |tour| {
        ip(&format!("-n {} link add br0 type bridge", tour.r()));
        ip(&format!("-n {} link set x0 master br0", tour.r()));
        thread::sleep(Duration::from_millis(500));
        ip(&format!("-n {} link set x0 nomaster", tour.r()));
        ip(&format!("-n {} link del br0", tour.r()));
    });
    tour.event("the process is stopped for a second", Cost::Nothing, &mut |tour| {
        tour.signal("STOP");
        thread::sleep(Duration::from_secs(1));
        tour.signal("CONT");
    });
    tour.event("a path's link goes down", Cost::Failover, &mut |tour| {
        ip(&format!("-n {} link set r2 down", tour.r()));
    });
    tour.event("and comes up", Cost::Nothing, &mut |tour| {
        ip(&format!("-n {} link set r2 up", tour.r()));
    });
    // A crash of the neighbor takes its routes away; they come back.
    tour.speaker.kill();
    let wrong = tour.differences();
    println!("| the neighbor's BGP daemon is killed | | | | {wrong} |");
    assert_eq!(wrong, 0);
    let report = tour.router.take().expect("it runs").stop();
    println!("\n{} events; dropped: {}", tour.rows.len(), report["dropped"]);
    // Who puts the routes is there until here.
    let alive = match &tour.daemon {
        Daemon::Frr(frr) => frr.vtysh(&["show version"]),
        Daemon::Bird(bird) => bird.ask("show status"),
    };
    assert!(!alive.is_empty());
}

#[test]
fn routes_from_frr() {
    tour(true);
}

#[test]
fn routes_from_bird() {
    tour(false);
}
