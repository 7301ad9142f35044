//! How long turns of the control thread take while a large table is loaded, changes, is built anew and verified, while
//! interfaces come and go, and while files and static routes of a configuration are applied; and how soon a change is visible beside builds,
//! comparisons and changes without an end. (An interface that comes or goes has the kernel's lock of all interfaces for tens
//! of ms, which requests of the router wait for.)
//!
//! The routes come over FPM, as zebra sends them, and by files. The tables are of 50,000 and 100,000 routes; `cargo xtask
//! soak stalls` takes the full one of `FINGERPOST_DATA`.

use std::fmt::Write as _;
use std::path::Path as FilePath;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fingerpost_route::{AnyPrefix, MAIN_TABLE, Path, RouteKey, RouteUpdate, Target};
use fingerpost_tests::bmp::Monitored;
use fingerpost_tests::configuration::Configuration;
use fingerpost_tests::folder::Folder;
use fingerpost_tests::fpm::Zebra;
use fingerpost_tests::netns::{Line, Router, exec, ip, run};
use fingerpost_tests::{patience, program, soak, soaks, tables};
use serde_json::Value;

/// Longest turn, in ms of its own CPU time.
const LONGEST_TURN_MS: f64 = 20.0;
/// Time to visibility that one change of a hundred may exceed, in ms, where the machine is ours: in the soak.
const VISIBLE_P99_MS: f64 = 1.0;
/// Such a time on a shared machine. Changes that wait for a build, or for what it cost, take tenths of a second.
const SHARED_P99_MS: f64 = 50.0;
/// Routes of the table in the tests, and of tables in files.
const ROUTES: u32 = 50_000;
const IN_FILES: u32 = 100_000;
/// Static routes of two configurations of 100,000 each, which share half of theirs.
const STATIC: u32 = 150_000;
/// Peers that send changes without an end.
const PEERS: usize = 6;
/// Longest time until a route of a command is visible beside changes without an end.
const LONGEST_CHANGE: Duration = Duration::from_secs(2);
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

/// Ends the threads of a test when this is dropped, also where the test fails.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
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

/// So many prefixes, or those of the full table in a soak.
fn prefixes(count: u32) -> Vec<AnyPrefix> {
    if soaks() {
        let routes = tables::read::<u32>(&tables::data().join("v4-tier1-nh496.txt.xz"));
        return routes.into_iter().map(|(prefix, _)| AnyPrefix::V4(prefix)).collect();
    }
    let prefix = |n: u32| format!("{}.{}.{}.0/24", 64 + n / 65_536, n / 256 % 256, n % 256);
    (0..count).map(|n| AnyPrefix::parse(&prefix(n)).expect("a prefix")).collect()
}

/// The routes of the test, or the full table in a soak.
fn table() -> Vec<RouteUpdate> {
    let route = |prefix| {
        let key = RouteKey { table: MAIN_TABLE, prefix, metric: 0 };
        RouteUpdate::new(key, Target::Blackhole)
    };
    prefixes(ROUTES).into_iter().map(route).collect()
}

/// An address of a prefix.
fn address_in(prefix: &AnyPrefix) -> String {
    let text = prefix.to_string();
    text.split_once('/').expect("address and length").0.to_owned()
}

/// The longest prefix that holds an address; `None` where the live lookup has no route for it.
fn found(namespace: &str, address: &str) -> Option<String> {
    let program = program().expect("it runs");
    // It fails where there is no route.
    let answer = exec(namespace, &format!("{} route get {address} --json", program.display()));
    let answer: Value = serde_json::from_slice(&answer.stdout).expect("the answer is JSON");
    // Its route may be withdrawn and still in the lookup table.
    let prefix = answer["prefix"].as_str().unwrap_or("withdrawn");
    (answer["nexthop"] != 0).then(|| prefix.to_owned())
}

/// Asserts that packets to an address follow the route of this prefix.
fn follows(router: &Router, (address, prefix): &(String, String)) {
    let answer: Value = router.ask(&format!("route get {address}"));
    assert!(answer["agrees"] == true && answer["prefix"] == **prefix, "{answer}");
}

/// Asserts that an address has the route of this prefix at every moment of a change.
fn stays_while(namespace: &str, (address, prefix): &(String, String), change: impl FnOnce()) {
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let looks = scope.spawn(|| {
            let mut looks = 0;
            while !ended.load(Ordering::Relaxed) {
                assert_eq!(found(namespace, address).as_ref(), Some(prefix));
                looks += 1;
            }
            looks
        });
        let end = End(&ended);
        change();
        drop(end);
        println!("{} looks meanwhile", looks.join().expect("the route is there"));
    });
}

/// Waits until an address has no route.
fn goes(namespace: &str, address: &str) {
    let until = Instant::now() + patience(Duration::from_secs(60));
    while found(namespace, address).is_some() {
        assert!(Instant::now() < until, "{address}: its route stays");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Asserts that no turn took long so far.
fn no_long_turn(router: &Router, what: &str) {
    let status = status(router);
    println!("{what}: {}", shown(&status));
    let longest = status["turns"]["cpu"]["longest_ms"].as_f64().expect("a time");
    assert!(longest <= LONGEST_TURN_MS, "{what}: {longest} ms: {}", status["turns"]);
}

/// Writes a table as text.
fn write_table(path: &FilePath, prefixes: &[AnyPrefix]) {
    let mut text = String::new();
    for (n, prefix) in prefixes.iter().enumerate() {
        writeln!(text, "{prefix} 10.0.2.{}", 2 + n % 8).expect("memory takes it");
    }
    std::fs::write(path, text).expect("the folder can be written");
}

#[test]
fn a_table_in_a_file_is_applied_and_exchanged_without_a_stall() {
    let Some(line) = Line::new(&[]) else { return };
    let r = &line.router;
    let folder = Folder::new(&format!("{r}-files"));
    let prefixes = prefixes(IN_FILES);
    let third = prefixes.len() / 3;
    // The middle third is in both.
    let parts = [&prefixes[..2 * third], &prefixes[third..]];
    let files = ["first.txt", "second.txt"].map(|name| folder.path().join(name));
    files.iter().zip(parts).for_each(|(path, part)| write_table(path, part));
    let configuration = |name: &str, file: Option<&FilePath>| {
        let source = file.map_or(String::new(), |file| {
            format!("[[source]]\nkind = \"file\"\npath = {:?}\n", file.display().to_string())
        });
        let path = folder.path().join(name);
        let text = format!("[[source]]\nkind = \"kernel\"\n{source}");
        std::fs::write(&path, text).expect("the folder can be written");
        path.display().to_string()
    };
    let empty = configuration("empty.toml", None);
    let router = Router::start(r, &empty, 2);
    let apply = |file: &str| {
        let began = Instant::now();
        let _: Value = router.ask(&format!("config apply {file}"));
        println!("{file} is applied in {:.1?}", began.elapsed());
    };
    let of = |at: usize| (address_in(&prefixes[at]), prefixes[at].to_string());
    let (middle, last) = (of(third + third / 2), of(prefixes.len() - 1));

    apply(&configuration("first.toml", Some(&files[0])));
    // The reply comes once packets follow the table.
    follows(&router, &middle);
    no_long_turn(&router, "a file");

    // Routes that both files have are there at every moment.
    let second = configuration("second.toml", Some(&files[1]));
    stays_while(r, &middle, || {
        apply(&second);
        follows(&router, &last);
    });
    goes(r, &of(0).0);
    no_long_turn(&router, "another file");

    // A file that cannot be read is refused, and the routes stay.
    let unread = configuration("unread.toml", Some(folder.path()));
    let words = format!("{} config apply {unread}", program().expect("it runs").display());
    let refused = exec(r, &words);
    assert!(!refused.status.success(), "{refused:?}");
    let routes = status(&router)["routes_v4"].as_u64().expect("a count");
    assert!(routes >= parts[1].len() as u64, "{routes}");
    follows(&router, &last);
    // It is taken away.
    apply(&empty);
    no_long_turn(&router, "no file");
    let verified: Value = router.ask("fib verify");
    assert_eq!(verified["mismatches"], 0, "{verified}");
    router.stop();
}

#[test]
fn static_routes_are_applied_exchanged_and_rolled_back_without_a_stall() {
    let Some(line) = Line::new(&[]) else { return };
    let r = &line.router;
    let folder = Folder::new(&format!("{r}-static"));
    let mut prefixes = prefixes(STATIC);
    prefixes.truncate(STATIC as usize);
    let third = prefixes.len() / 3;
    // The middle third is in both.
    let [first, second] = [&prefixes[..2 * third], &prefixes[third..]].map(|part| {
        let lines = part.iter().zip((2..10).cycle());
        let lines = lines.map(|(prefix, n)| format!("\"{prefix} via 10.0.2.{n}\",\n"));
        format!("[[source]]\nkind = \"fixed\"\nroutes = [\n{}]\n", lines.collect::<String>())
    });
    let configuration = |name: &str, more: &str| {
        folder.write(name, &format!("[[source]]\nkind = \"kernel\"\n{more}"))
    };
    let file = configuration("router.toml", "");
    let router = Router::start(r, &format!("--state {} {file}", folder.file("state")), 2);
    let apply = |name: &str, more: &str, words: &str| {
        let path = configuration(name, more);
        let began = Instant::now();
        let _: Value = router.ask(&format!("config apply {path}{words}"));
        println!("{name}{words} is applied in {:.1?}", began.elapsed());
    };
    let of = |at: usize| (address_in(&prefixes[at]), prefixes[at].to_string());
    let (only_first, middle, last) = (of(0), of(third + third / 2), of(prefixes.len() - 1));

    apply("first.toml", &first, "");
    // The reply comes once packets follow all of them.
    follows(&router, &only_first);
    follows(&router, &middle);
    no_long_turn(&router, "static routes");

    // Routes that both configurations have are there at every moment.
    stays_while(r, &middle, || {
        apply("second.toml", &second, "");
        follows(&router, &last);
    });
    goes(r, &only_first.0);
    no_long_turn(&router, "other static routes");

    // A source behind the routes that cannot be opened refuses all: the routes stay, and no other is sent.
    let unopened = "[[source]]\nkind = \"fpm\"\nlisten = \"/proc/none/fpm.sock\"\n";
    let refused = configuration("refused.toml", &format!("{first}{unopened}"));
    let words = format!("{} config apply {refused}", program().expect("it runs").display());
    let refused = exec(r, &words);
    assert!(!refused.status.success(), "{refused:?}");
    follows(&router, &last);
    assert_eq!(found(r, &only_first.0), None);
    no_long_turn(&router, "a refused configuration");

    // What is not confirmed is rolled back.
    apply("first.toml", &first, " --confirm 600");
    follows(&router, &only_first);
    no_long_turn(&router, "static routes to confirm");
    let rolled_back: Value = router.ask("config rollback");
    let changes = rolled_back["changes"].as_array().expect("a list");
    assert_eq!(changes.len(), 2 * third, "those of the middle are in both: {}", changes[0]);
    follows(&router, &last);
    goes(r, &only_first.0);
    no_long_turn(&router, "a rollback");

    // The file of the run is read again.
    configuration("router.toml", &first);
    router.signal("HUP");
    router.wait_for("to read the file again", |said| {
        said.iter().any(|line| line.contains("router.toml read again:"))
    });
    follows(&router, &only_first);
    goes(r, &last.0);
    no_long_turn(&router, "a reload");

    apply("empty.toml", "", "");
    goes(r, &middle.0);
    no_long_turn(&router, "no static routes");
    let verified: Value = router.ask("fib verify");
    assert_eq!(verified["mismatches"], 0, "{verified}");
    router.stop();
}

#[test]
fn tables_by_mrt_and_bmp_are_loaded_without_a_stall() {
    let Some(line) = Line::new(&[]) else { return };
    let r = &line.router;
    let folder = Folder::new(&format!("{r}-kinds"));
    let prefixes = prefixes(ROUTES);
    let text = folder.path().join("table.txt");
    write_table(&text, &prefixes);
    let dump = folder.file("table.mrt");
    let program = program().expect("it runs").display().to_string();
    run(r, &format!("{program} table convert {} --to mrt --peers 4 -o {dump}", text.display()));
    let start = |source: &str| {
        let text = format!("[[source]]\nkind = \"kernel\"\n[[source]]\n{source}\n");
        Router::start(r, &folder.write("router.toml", &text), 2)
    };

    let router = start(&format!("kind = \"mrt\"\npath = {dump:?}\nspeed = \"max\""));
    wait_for(&router, prefixes.len());
    no_long_turn(&router, "mrt");
    router.stop();

    let socket = folder.path().join("bmp.sock");
    let router = start(&format!("kind = \"bmp\"\nlisten = {:?}", socket.display().to_string()));
    let mut monitored = Monitored::connect(&socket);
    monitored.up(1);
    for (n, prefix) in (0u8..8).cycle().zip(&prefixes) {
        monitored.announce(1, *prefix, [10, 0, 2, 2 + n].into(), 2);
    }
    wait_for(&router, prefixes.len());
    no_long_turn(&router, "bmp");
    // All of them go with the peer.
    monitored.down(1);
    let until = Instant::now() + patience(Duration::from_secs(60));
    while status(&router)["routes_v4"].as_u64().expect("a count") > prefixes.len() as u64 / 2 {
        assert!(Instant::now() < until, "{:#?}", router.said());
        std::thread::sleep(Duration::from_millis(20));
    }
    no_long_turn(&router, "bmp, and the loss of its peer");
    router.stop();
}

#[test]
fn a_route_is_visible_soon_beside_changes_without_an_end() {
    let Some(line) = Line::new(&[]) else { return };
    let r = &line.router;
    let socket = std::env::temp_dir().join(format!("{r}-endless.sock"));
    let config = format!(
        "[[source]]\nkind = \"kernel\"\n[[source]]\nkind = \"fpm\"\nlisten = {:?}\nacknowledge = false\n",
        socket.display().to_string()
    );
    let config = Configuration::new(r, &config);
    let router = Router::start(r, &config.path().display().to_string(), 2);
    let routes = table();
    let count = routes.len();
    let ended = AtomicBool::new(false);
    let times = std::thread::scope(|scope| {
        // Several peers, each as fast as the router takes its routes: there are always changes that wait.
        for part in routes.chunks(count.div_ceil(PEERS)) {
            let mut zebra = Table { zebra: Zebra::connect(&socket), routes: part.to_vec() };
            let ended = &ended;
            scope.spawn(move || {
                for turn in 0.. {
                    if ended.load(Ordering::Relaxed) {
                        break;
                    }
                    zebra.send(0..zebra.routes.len(), turn);
                }
            });
        }
        let end = End(&ended);
        wait_for(&router, count);
        let change = |n: u8| {
            let began = Instant::now();
            let _: Value = router.ask(&format!("route replace 203.0.113.{n}/32 blackhole"));
            let took = began.elapsed();
            follows(&router, &(format!("203.0.113.{n}"), format!("203.0.113.{n}/32")));
            took
        };
        let mut times: Vec<Duration> = (0..20).map(change).collect();
        drop(end);
        times.sort_unstable();
        times
    });
    let longest = times[times.len() - 1];
    println!(
        "a route beside changes: median {:.1?}, longest {longest:.1?}",
        times[times.len() / 2]
    );
    assert!(longest < patience(LONGEST_CHANGE), "{times:?}");
    no_long_turn(&router, "changes without an end");
    router.stop();
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
    let Table { zebra: before, routes } = zebra;
    // Its seat is free only then.
    drop(before);
    let mut zebra = Table { zebra: Zebra::connect(&socket), routes };
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
    no_long_turn(&router, "all of it");
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
