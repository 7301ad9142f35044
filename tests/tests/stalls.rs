//! How long turns of the control thread take while a large table is loaded, changes, is built anew and verified, and while
//! interfaces come and go; and how soon a change is visible beside builds and comparisons. (An interface that comes or goes
//! has the kernel's lock of all interfaces for tens of ms, which requests of the router wait for.)
//!
//! The routes come over FPM, as zebra sends them. The table is one of 50,000 routes; `cargo xtask soak stalls` takes the
//! full one of `FINGERPOST_DATA`.

use std::time::{Duration, Instant};

use fingerpost_route::{AnyPrefix, MAIN_TABLE, Path, RouteKey, RouteUpdate, Target};
use fingerpost_tests::configuration::Configuration;
use fingerpost_tests::fpm::Zebra;
use fingerpost_tests::netns::{Line, Router, ip};
use fingerpost_tests::{patience, soak, tables};
use serde_json::Value;

/// Longest turn, in ms of its own CPU time.
const LONGEST_TURN_MS: f64 = 20.0;
/// Time to visibility that one change of a hundred may exceed, in ms, where the machine is ours: in the soak.
const VISIBLE_P99_MS: f64 = 1.0;
/// Such a time on a shared machine. Changes that wait for a build, or for what it cost, take tenths of a second.
const SHARED_P99_MS: f64 = 50.0;
/// Routes of the table in the tests.
const ROUTES: u32 = 50_000;
/// Routes that change together, some hundred times a second.
const CHANGED: usize = 10;
/// What zebra sends.
struct Table {
    zebra: Zebra,
    routes: Vec<RouteUpdate>,
}

impl Table {
    /// Sends routes, each over the gateway that `turn` makes it have.
    fn send(&mut self, range: impl Iterator<Item = usize>, turn: usize) {
        let routes = range.map(|at| {
            let gateway =
                Some(format!("10.0.2.{}", 2 + (at + turn) % 8).parse().expect("an address"));
            let target = Target::Path(Path { gateway, link: None, weight: 1 });
            RouteUpdate { target, ..self.routes[at].clone() }
        });
        self.zebra.send(&routes.collect::<Vec<_>>());
    }
}

fn status(router: &Router) -> Value {
    let picture: Value = router.ask("top --count 1 --interval 1");
    picture["status"].clone()
}

/// Waits until the router has so many IPv4 routes.
fn wait_for(router: &Router, routes: usize) {
    let until = Instant::now() + patience(Duration::from_secs(120));
    loop {
        let have = status(router)["routes_v4"].as_u64().unwrap_or(0);
        if have >= routes as u64 {
            return;
        }
        assert!(Instant::now() < until, "{have} of {routes}: {:#?}", router.said());
    }
}

/// The routes of the test, or the full table in a soak.
fn table() -> Vec<RouteUpdate> {
    let prefixes: Vec<AnyPrefix> = match soak(Duration::ZERO).is_zero() {
        true => {
            let prefix = |n: u32| format!("{}.{}.{}.0/24", 64 + n / 65_536, n / 256 % 256, n % 256);
            (0..ROUTES).map(|n| AnyPrefix::parse(&prefix(n)).expect("a prefix")).collect()
        }
        false => {
            let routes = tables::read::<u32>(&tables::data().join("v4-tier1-nh496.txt.xz"));
            routes.into_iter().map(|(prefix, _)| AnyPrefix::V4(prefix)).collect()
        }
    };
    let route = |prefix| {
        let key = RouteKey { table: MAIN_TABLE, prefix, metric: 0 };
        RouteUpdate::new(key, Target::Blackhole)
    };
    prefixes.into_iter().map(route).collect()
}

#[test]
fn no_turn_of_the_control_thread_takes_long() {
    let Some(line) = Line::new(&[]) else { return };
    let r = &line.router;
    let socket = std::env::temp_dir().join(format!("{r}-stalls.sock"));
    let config = format!(
        "[[source]]\nkind = \"kernel\"\n[[source]]\nkind = \"fpm\"\nlisten = {:?}\nsweep_s = 1\n\
         acknowledge = false\n",
        socket.display().to_string()
    );
    let config = Configuration::new(r, &config);
    let router = Router::start(r, &config.path().display().to_string(), 2);
    let started = Instant::now();
    let mut zebra = Table { zebra: Zebra::connect(&socket), routes: table() };
    let count = zebra.routes.len();
    zebra.send(0..count, 0);
    wait_for(&router, count);
    let loaded = started.elapsed();
    // The end of the table, found by silence.
    std::thread::sleep(Duration::from_millis(2500));
    let first = status(&router);
    println!("{count} routes in {loaded:.1?}: {}", shown(&first));

    // Changes, a table built anew every second, and comparisons; then interfaces that come and go besides.
    let seconds = soak(Duration::from_secs(8));
    let end = Instant::now() + seconds;
    let half = Instant::now() + seconds / 2;
    let visible = std::thread::scope(|scope| {
        scope.spawn(|| {
            for name in ["dir24_8", "bc18"].iter().cycle() {
                if Instant::now() >= end {
                    break;
                }
                let _: Value = router.ask(&format!("fib algorithm {name} --family 4"));
                let verified: Value = router.ask("fib verify");
                assert_eq!(verified["mismatches"], 0, "{verified}");
                std::thread::sleep(Duration::from_millis(300));
            }
        });
        let visible = scope.spawn(|| {
            std::thread::sleep(half.saturating_duration_since(Instant::now()));
            let visible = status(&router)["visible"].clone();
            for n in 0.. {
                if Instant::now() >= end {
                    break;
                }
                come_and_go(&router, r, n);
            }
            visible
        });
        for turn in 1.. {
            if Instant::now() >= end {
                break;
            }
            zebra.send((0..CHANGED).map(|n| (turn * CHANGED + n * 7919) % count), turn);
            std::thread::sleep(Duration::from_millis(3));
        }
        visible.join().expect("interfaces come and go")
    });
    println!("visible beside builds and comparisons: {visible}");
    // A burst of all routes.
    zebra.send(0..count, 3);
    std::thread::sleep(Duration::from_secs(3));
    // All but one are not repeated by a new session, while commands change others.
    zebra.zebra = Zebra::connect(&socket);
    zebra.send(0..1, 0);
    let end = Instant::now() + patience(Duration::from_secs(60));
    for n in 0..=u8::MAX {
        let _: Value = router.ask(&format!("route replace 203.0.113.{n}/32 blackhole"));
        let left = status(&router)["routes_v4"].as_u64().unwrap_or(0);
        if left < count as u64 / 2 {
            break;
        }
        assert!(Instant::now() < end, "{left} routes: {:#?}", router.said());
        std::thread::sleep(Duration::from_millis(10));
    }
    let last = status(&router);
    println!("after {seconds:?} of churn, builds and comparisons: {}", shown(&last));
    let fibs: Vec<Value> = router.ask("fib show");
    println!("{}", fibs[0]);
    let longest = last["turns"]["cpu"]["longest_ms"].as_f64().expect("a time");
    assert!(longest <= LONGEST_TURN_MS, "{longest} ms: {}", last["turns"]);
    let p99 = visible["p99_ms"].as_f64().expect("a time");
    let most = if soak(Duration::ZERO).is_zero() { SHARED_P99_MS } else { VISIBLE_P99_MS };
    assert!(p99 <= most, "{visible}");
    let verified: Value = router.ask("fib verify");
    assert_eq!(verified["mismatches"], 0, "{verified}");
    router.stop();
}

/// A pair of interfaces comes, both are taken over, and it goes.
fn come_and_go(router: &Router, namespace: &str, n: u32) {
    let names = ["t", "u"].map(|end| format!("{end}{n}"));
    ip(&format!("-n {namespace} link add {} type veth peer name {}", names[0], names[1]));
    for name in &names {
        ip(&format!("-n {namespace} link set {name} up"));
    }
    router.wait_for("to take the new interfaces over", |said| {
        names.iter().all(|name| {
            let taken = format!("{name}: taken over: ");
            said.iter().any(|line| line.contains(&taken))
        })
    });
    std::thread::sleep(Duration::from_millis(100));
    ip(&format!("-n {namespace} link del {}", names[0]));
    router.wait_for("to close them", |said| {
        names.iter().all(|name| said.iter().any(|line| line.contains(&format!("{name}: closed"))))
    });
}

fn shown(status: &Value) -> String {
    format!("{} {}", status["turns"], status["visible"])
}
