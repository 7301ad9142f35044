//! Crashes of all that a route comes from, and of the router, in turn and then at random: FRR by FPM, and BIRD by the
//! kernel.
//!
//! Packets of both families to a destination whose route stays are sent all the time, and every one arrives: XDP
//! forwards while the router is away. So do pings by a route of the daemon in either family while the router, or
//! zebra's connection to it, is what ends. After each crash the router has every route of the daemon and no other.
//! `cargo xtask soak chaos` does the same with whole Internet tables of both families for a given time.

use std::collections::{BTreeMap, HashSet};
use std::net::IpAddr;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fingerpost_lpm::Rng;
use fingerpost_tests::bird::{self, Bird};
use fingerpost_tests::configuration::Configuration;
use fingerpost_tests::frr::Frr;
use fingerpost_tests::lasting::{Lasting, RATE};
use fingerpost_tests::netns::{Router, command, ip, run};
use fingerpost_tests::traffic::{own_every_address, to_random};
use fingerpost_tests::{patience, soak, zebra};
use serde::Deserialize;
use serde_json::Value;

const TRANSFER: &str = env!("CARGO_BIN_EXE_transfer");

/// Routes of BGP in the tests, of IPv4 and of IPv6; a soak has the whole tables.
const ROUTES: [usize; 2] = [40_000, 10_000];

/// Own addresses of the neighbor and those of the router.
const SESSIONS: [(&str, &str); 2] = [("10.0.2.2", "10.0.2.1"), ("fd02::2", "fd02::1")];

/// Addresses behind routes that stay, a traffic each.
const STAYING: [&str; 2] = ["10.9.0.1:7200", "[fd09::1]:7200"];

/// Seconds of each piece of the traffic.
const PIECE_S: u64 = 10;

/// Pings by each route that is kept, 100 a second: until what was not repeated is withdrawn, in the tests and in a
/// soak.
const PINGS: [u32; 2] = [1_200, 2_800];

/// Longest time until the routes are right after a crash; a whole table takes FRR minutes.
const LONGEST: Duration = Duration::from_secs(300);

const ZEBRA: &str = "fpm address 127.0.0.1 port 2620\n";

const BGPD: &str = "router bgp 65000\n bgp router-id 10.255.0.1\n no bgp ebgp-requires-policy\n \
    neighbor 10.0.2.2 remote-as 65001\n neighbor 10.0.2.2 timers connect 1\n \
    neighbor fd02::2 remote-as 65001\n neighbor fd02::2 timers connect 1\n \
    address-family ipv4 unicast\n  no neighbor fd02::2 activate\n exit-address-family\n \
    address-family ipv6 unicast\n  neighbor fd02::2 activate\n exit-address-family\n";

const BGPD_OPTIONS: &[&str] = &["-p", "179"];

const MODULE: &[&str] = &["-M", "dplane_fpm_nl"];

/// What ends at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Crash {
    /// bgpd, or the BIRD beside the router.
    Speaker,
    /// zebra, and bgpd with it, as watchfrr does.
    Zebra,
    /// The neighbor, which comes back with other routes.
    Neighbor,
    /// The TCP connections to the neighbor.
    Session,
    /// The TCP connection of zebra to the router.
    Feed,
    /// The router.
    Router,
}

/// What learns routes beside the router.
enum Daemon {
    Frr(Frr),
    Bird(Bird),
}

impl Crash {
    /// Whether the daemon keeps its routes, so that the router must forward by them all the time.
    const fn keeps_routes(self) -> bool {
        matches!(self, Self::Feed | Self::Router)
    }
}

impl Daemon {
    /// Crashes that it has a part in.
    const fn crashes(&self) -> &'static [Crash] {
        match self {
            Self::Frr(_) => &[
                Crash::Speaker,
                Crash::Zebra,
                Crash::Neighbor,
                Crash::Session,
                Crash::Feed,
                Crash::Router,
            ],
            Self::Bird(_) => &[Crash::Speaker, Crash::Neighbor, Crash::Session, Crash::Router],
        }
    }

    /// Kind of the source by which its routes reach the router.
    const fn source(&self) -> &'static str {
        match self {
            Self::Frr(_) => "fpm",
            Self::Bird(_) => "kernel",
        }
    }
}

struct Lab<'a> {
    lasting: &'a Lasting,
    words: String,
    /// `None` while it is away.
    router: Option<Router>,
    daemon: Daemon,
    neighbor: Bird,
    all: Vec<String>,
    /// Whether the neighbor announces the first nine tenths of the prefixes, or the last ones.
    first: bool,
}

/// Memory of the router with all routes, in KiB, and the number of its process.
struct Size {
    process: u32,
    kib: u64,
}

impl Lab<'_> {
    fn prefixes(all: &[String], first: bool) -> &[String] {
        let tenth = all.len() / 10;
        if first { &all[..all.len() - tenth] } else { &all[tenth..] }
    }

    fn router(&self) -> &Router {
        self.router.as_ref().expect("it was started again")
    }

    /// Addresses of either family behind routes that the neighbor announces at any time.
    fn kept(all: &[String]) -> [IpAddr; 2] {
        let (v4, v6) = zebra::hosts(&all[all.len() / 3..all.len() * 2 / 3]);
        [v4[0], v6[0]]
    }

    /// Begins to ping them.
    fn ping_kept(&self) -> [Child; 2] {
        let pings = Self::kept(&self.all).map(|addr| {
            let words = format!("ping -q -c {} -i 0.01 {addr}", ping_count());
            let mut ping = command(&self.lasting.line.source, &words);
            ping.stdout(Stdio::piped()).spawn().expect("it was found before")
        });
        std::thread::sleep(Duration::from_secs(1));
        pings
    }

    /// Crashes it, and starts it again.
    fn crash(&mut self, crash: Crash) {
        let namespace = &self.lasting.line.router;
        match (crash, &mut self.daemon) {
            (Crash::Speaker, Daemon::Frr(frr)) => {
                frr.kill("bgpd");
                frr.restart("bgpd", BGPD, BGPD_OPTIONS);
            }
            (Crash::Speaker, Daemon::Bird(bird)) => bird.restart(&learner()),
            (Crash::Zebra, Daemon::Frr(frr)) => {
                frr.kill("bgpd");
                frr.kill("zebra");
                // FRR 8.4 would take what it left for routes of bgpd again.
                ip(&format!("-n {namespace} nexthop flush"));
                frr.restart("zebra", ZEBRA, MODULE);
                frr.restart("bgpd", BGPD, BGPD_OPTIONS);
            }
            (Crash::Neighbor, _) => {
                self.first = !self.first;
                self.neighbor.restart(&speaker(Self::prefixes(&self.all, self.first)));
            }
            (Crash::Session, _) => abort(namespace, 179),
            (Crash::Feed, _) => abort(namespace, 2620),
            (Crash::Router, _) => {
                self.router.take().expect("it runs").kill();
                std::thread::sleep(Duration::from_secs(1));
                self.router = Some(self.lasting.start(&self.words));
            }
            (Crash::Zebra, Daemon::Bird(_)) => unreachable!("BIRD has none"),
        }
    }

    /// Routes that the router is to have.
    fn wanted(&self) -> usize {
        Self::prefixes(&self.all, self.first).len()
    }

    /// Waits until the daemon and the router have the neighbor's routes and no others.
    fn converge(&self, after: &str) {
        let until = Instant::now() + patience(LONGEST);
        let kind = self.daemon.source();
        loop {
            let source = self.router().source(kind);
            let routes = usize::try_from(source["routes"].as_u64().unwrap_or(0)).expect("64 bits");
            let there = match self.daemon {
                Daemon::Frr(_) => routes == self.wanted() && source["in_sync"] == true,
                // The kernel has some of its own.
                Daemon::Bird(_) => (self.wanted()..self.wanted() + 100).contains(&routes),
            };
            if there && self.has_what_is_announced() {
                break;
            }
            let said = self.router().said();
            assert!(
                Instant::now() < until,
                "after {after}: {} of {source} {said:#?}",
                self.wanted()
            );
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// Whether the router has every prefix that the neighbor announces, and none that it announced before.
    fn has_what_is_announced(&self) -> bool {
        let rows: Vec<Row> =
            self.router().ask_lines(&format!("route show --source {}", self.daemon.source()));
        let have: HashSet<String> = rows.into_iter().map(|row| row.prefix).collect();
        let announced = Self::prefixes(&self.all, self.first);
        announced.iter().all(|prefix| have.contains(prefix))
            && self.all.iter().filter(|prefix| have.contains(*prefix)).count() == announced.len()
    }

    /// Compares every route with the daemon's, and the lookup structure with the routes.
    fn check(&self) {
        let count = match &self.daemon {
            Daemon::Frr(frr) => zebra::compare(self.router(), frr),
            Daemon::Bird(_) => self.compare_with_kernel(),
        };
        assert_eq!(count, self.wanted());
        // It fails where it finds a difference.
        let _: Value = self.router().ask("fib verify");
    }

    fn compare_with_kernel(&self) -> usize {
        let until = Instant::now() + patience(Duration::from_secs(30));
        loop {
            let text = [4, 6].map(|version| {
                let words = format!("ip -{version} -o route show proto bird");
                run(&self.lasting.line.router, &words)
            });
            let want: BTreeMap<String, String> =
                text.iter().flat_map(|text| text.lines()).map(of_kernel).collect();
            let rows: Vec<Row> = self.router().ask_lines("route show --source kernel");
            let gateway = |row: &Row| row.paths.first().and_then(|path| path.gateway.clone());
            let rows = rows.into_iter().map(|row| (row.prefix.clone(), gateway(&row)));
            // Others than the neighbor's have no gateway, or are for what the line uses itself.
            let have: BTreeMap<String, String> = rows
                .filter_map(|(prefix, gateway)| Some((prefix, gateway?)))
                .filter(|(prefix, _)| !["10.9.0.0/16", "fd09::/64"].contains(&&**prefix))
                .collect();
            if want == have && want.len() == self.wanted() {
                return want.len();
            }
            let other = have.iter().find(|(prefix, hop)| want.get(*prefix) != Some(hop));
            let missing = want.keys().find(|prefix| !have.contains_key(*prefix));
            let (have, want) = (have.len(), want.len());
            assert!(
                Instant::now() < until,
                "{have} of {want}, missing {missing:?}, other {other:?}"
            );
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    fn size(&self) -> Size {
        let router = self.router();
        Size { process: router.pid(), kib: router.resident_kib() }
    }
}

fn ping_count() -> u32 {
    PINGS[usize::from(!soak(Duration::ZERO).is_zero())]
}

/// A row of `route show`.
#[derive(Deserialize)]
struct Row {
    prefix: String,
    #[serde(default)]
    paths: Vec<Path>,
}

#[derive(Deserialize)]
struct Path {
    gateway: Option<String>,
}

/// Prefix and gateway of a row of `ip route show`.
fn of_kernel(line: &str) -> (String, String) {
    let mut words = line.split_whitespace();
    let prefix = words.next().expect("a prefix first").to_owned();
    let host = if prefix.contains(':') { "/128" } else { "/32" };
    let prefix = if prefix.contains('/') { prefix } else { prefix + host };
    words.find(|word| *word == "via");
    (prefix, words.next().unwrap_or_default().to_owned())
}

/// Ends the TCP connections with this port as a lost peer would.
fn abort(namespace: &str, port: u16) {
    let done = run(
        namespace,
        &format!("ss -K -t state established ( sport = :{port} or dport = :{port} )"),
    );
    assert!(done.lines().count() > 1, "no connection at port {port}: {done}");
    // What its end takes away is gone before what comes back is waited for.
    std::thread::sleep(Duration::from_secs(1));
}

/// Configuration of the neighbor.
fn speaker(prefixes: &[String]) -> String {
    bird::speaker(prefixes.iter().cloned(), &SESSIONS)
}

/// Configuration of a BIRD that puts what the neighbor announces into the kernel.
fn learner() -> String {
    bird::learner(&SESSIONS.map(|(neighbor, own)| (own, neighbor)))
}

/// Crashes in turn, then at random while there is time; returns the memory after each.
fn crashes(lab: &mut Lab<'_>, until: Instant) -> Vec<Size> {
    let mut rng = Rng::new(0xc4a5);
    let kinds = lab.daemon.crashes();
    let mut sizes = Vec::new();
    while sizes.len() < kinds.len() || Instant::now() < until {
        let crash = kinds.get(sizes.len()).copied();
        let crash = crash.unwrap_or_else(|| kinds[rng.below(kinds.len())]);
        let name = format!("{crash:?}").to_lowercase();
        let pings = crash.keeps_routes().then(|| lab.ping_kept());
        let began = Instant::now();
        lab.crash(crash);
        lab.converge(&name);
        let took = began.elapsed();
        for pings in pings.into_iter().flatten() {
            let output = pings.wait_with_output().expect("it was started");
            let text = String::from_utf8_lossy(&output.stdout);
            assert!(text.contains(&format!(" {} received", ping_count())), "after {name}: {text}");
        }
        lab.check();
        let size = lab.size();
        println!(
            "{name}: {} routes right after {:.1} s, {} MiB",
            lab.wanted(),
            took.as_secs_f64(),
            size.kib >> 10
        );
        sizes.push(size);
    }
    sizes
}

/// Traffic of both families in pieces until `end`; returns packets sent and packets lost.
fn traffic(lasting: &Lasting, end: &AtomicBool) -> (u64, u64) {
    let (mut sent, mut lost) = (0, 0);
    // Relaxed: one more piece does no harm.
    while !end.load(Ordering::Relaxed) {
        for traffic in STAYING.map(|addr| lasting.traffic_to(addr, RATE / 2, PIECE_S)) {
            let (packets, arrived) = traffic.end();
            if arrived < packets {
                println!("{} of {packets} packets lost", packets - arrived);
            }
            sent += packets;
            lost += packets.saturating_sub(arrived);
        }
    }
    (sent, lost)
}

/// Compares the memory of the router in the last quarter with that in the first, of processes with as many routes.
fn memory_is_flat(sizes: &[Size]) {
    let median = |sizes: &[Size]| {
        let mut all: Vec<u64> = sizes.iter().map(|size| size.kib).collect();
        all.sort_unstable();
        all[all.len() / 2]
    };
    let quarter = sizes.len() / 4;
    let (first, last) = (median(&sizes[..quarter]), median(&sizes[sizes.len() - quarter..]));
    println!("memory: {first} KiB in the first quarter, {last} KiB in the last one");
    let processes =
        sizes.iter().map(|size| size.process).collect::<std::collections::BTreeSet<_>>();
    println!("{} crashes, {} processes of the router", sizes.len(), processes.len());
    assert!(last <= first + first / 50, "{first} to {last} KiB");
}

fn chaos(sources: &str, daemon: impl FnOnce(&str) -> Option<Daemon>) {
    let Some(lasting) = Lasting::new(TRANSFER) else { return };
    let of_soak = soak(Duration::ZERO);
    let [v4, v6] = if of_soak.is_zero() { ROUTES } else { [usize::MAX; 2] };
    let all = zebra::mixed(zebra::announced(v4), zebra::announced6(v6));
    ip(&format!("-n {} link set lo up", lasting.line.router));
    let config = Configuration::new(&lasting.line.router, sources);
    let words = format!("{} --nonstop 60", config.path().display());
    ip(&format!("-n {} addr add fd09::1 dev lo", lasting.line.destination));
    ip(&format!("-n {} route add fd09::/64 via fd02::2", lasting.line.router));
    let router = lasting.start(&words);
    lasting.warm_up();
    // What replies to pings must have the address.
    for addr in Lab::kept(&all) {
        ip(&format!("-n {} addr add {addr} dev lo", lasting.line.destination));
    }
    let neighbor = Bird::start(&lasting.line.destination, &speaker(Lab::prefixes(&all, true)));
    let Some(daemon) = daemon(&lasting.line.router) else { return };
    let mut lab =
        Lab { lasting: &lasting, words, router: Some(router), daemon, neighbor, all, first: true };
    let began = Instant::now();
    lab.converge("the start");
    println!("{} routes after {:.1} s", lab.wanted(), began.elapsed().as_secs_f64());
    lab.check();
    let flows = if of_soak.is_zero() { 100 } else { 10_000 };
    own_every_address(&lasting.line.destination, "d0");
    let (v4, v6) = zebra::hosts(Lab::prefixes(&lab.all, true));
    let between = [lasting.line.source.as_str(), lasting.line.destination.as_str()];
    for hosts in [v4, v6] {
        to_random(TRANSFER, between, &hosts, flows);
    }
    println!("{} random destinations were reached", 2 * flows);

    let end = AtomicBool::new(false);
    let (sizes, (sent, lost)) = std::thread::scope(|scope| {
        let packets = scope.spawn(|| traffic(&lasting, &end));
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            crashes(&mut lab, began + of_soak)
        }));
        end.store(true, Ordering::Relaxed);
        let packets = packets.join().expect("the traffic goes on");
        (done.unwrap_or_else(|failed| std::panic::resume_unwind(failed)), packets)
    });
    println!("{lost} of {sent} packets lost");
    assert!(sent > 0 && lost == 0, "{lost} of {sent} packets to a route that stays were lost");
    if sizes.len() >= 12 {
        memory_is_flat(&sizes);
    }
    drop(lab);
}

#[test]
fn routes_of_frr_by_fpm_survive_every_crash() {
    if !fingerpost_tests::netns::ready(&["bird", "birdc", "ss"]) {
        return;
    }
    let sources = "[[source]]\nkind = \"kernel\"\n[[source]]\nkind = \"fpm\"\nsweep_s = 5\n";
    chaos(sources, |namespace| {
        let bgpd: &[(&str, &str, &[&str])] = &[("bgpd", BGPD, BGPD_OPTIONS)];
        Frr::start_with(namespace, (ZEBRA, MODULE), bgpd).map(Daemon::Frr)
    });
}

#[test]
fn routes_of_bird_by_the_kernel_survive_every_crash() {
    if !fingerpost_tests::netns::ready(&["bird", "birdc", "ss"]) {
        return;
    }
    chaos("[[source]]\nkind = \"kernel\"\n", |namespace| {
        Some(Daemon::Bird(Bird::start(namespace, &learner())))
    });
}
