//! Everything at once, while packets cross: a recorded stream of updates, another configuration every second, and
//! lists of a million routes.
//!
//! Two routers, each between two hosts of its own. The daemon has a full table from a file; the kernel beside it
//! receives a recorded hour of updates within seconds, as a routing daemon would send it, `config apply` exchanges
//! algorithm, fixed routes and group layout, and `route show` is read in a loop. The other runs a graph of a file,
//! which `hotconfig` exchanges.
//!
//! Part of the traffic goes by prefixes that the stream announces and withdraws. They always lead somewhere: a
//! withdrawn one by the route of the full table. So no packet may be missing, whatever happens.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fingerpost_tests::click::{Telnet, router_of_two_ports};
use fingerpost_tests::netns::{Line, Router, batch, command, conserved, ip, run};
use fingerpost_tests::traffic::{Counts, Traffic, overflowed};
use fingerpost_tests::{program, skip, soak, tables};

const TRANSFER: &str = env!("CARGO_BIN_EXE_transfer");
const STREAM: &str = "update-20141217-linx-p52.txt.xz";
/// Packets a second through either router: a small part of what they can, so that those around them can, too.
const RATE: u64 = 2_000;
/// Updates that the kernel receives in one burst; and the time to the next.
const UPDATES: usize = 500;
const BREATH: Duration = Duration::from_millis(50);
/// Where packets go: by a route that nothing changes, by a group, by the full table, and by prefixes that the stream
/// announces and withdraws, up to 155 times.
const FLOWS: [&str; 6] =
    ["10.9.0.1", "10.9.1.1", "8.8.8.8", "64.29.130.1", "185.51.20.1", "117.238.48.1"];
/// IPv4 prefixes, in the one configuration and in the other.
const ALGORITHMS: [&str; 2] = ["dxr18", "bc18"];
/// The share that may be lost before the routers beyond what was lost in quiet: a busy machine is never equally busy
/// twice.
const SLACK: u64 = 500;

/// The stream in the words of `ip -batch`. Its 40 gateways are hosts of the destination.
fn updates(path: &Path) -> Vec<String> {
    let text = tables::text(path);
    let mut gateways: Vec<&str> = Vec::new();
    let update = |line| {
        let words: Vec<&str> = str::split_whitespace(line).collect();
        let [_, action, prefix, gateway] = words[..] else { panic!("no update: {line}") };
        if action == "w" {
            return format!("route del {prefix}\n");
        }
        let known = gateways.iter().position(|known| *known == gateway);
        let number = known.unwrap_or_else(|| {
            gateways.push(gateway);
            gateways.len() - 1
        });
        format!("route replace {prefix} via 10.0.2.{} dev r1\n", number + 2)
    };
    text.lines().map(update).collect()
}

/// Next hops of a table, each once.
fn hops_of(path: &Path) -> Vec<String> {
    let text = tables::text(path);
    let mut hops: Vec<String> =
        text.lines().filter_map(|line| Some(line.split_once(' ')?.1.to_owned())).collect();
    hops.sort_unstable();
    hops.dedup();
    hops
}

/// The daemon's surroundings: every gateway is the destination, and known.
fn build(line: &Line, table: &Path) {
    let (r, d) = (&line.router, &line.destination);
    let shown = ip(&format!("-n {d} -o link show dev d0"));
    let mut words = shown.split_whitespace().skip_while(|word| *word != "link/ether");
    let mac = words.nth(1).expect("an Ethernet device").to_owned();
    let mut lines = String::new();
    for flow in FLOWS {
        let _ = writeln!(lines, "addr add {flow}/32 dev lo");
    }
    batch(d, &lines);
    let mut lines =
        String::from("route add 10.255.0.0/16 dev r1\nroute add 10.9.0.0/24 via 10.0.2.2\n");
    lines += "route add 10.9.1.0/24 nexthop via 10.0.2.2 nexthop via 10.0.2.3\n";
    let stations = (2..64).map(|i| format!("10.0.2.{i}")).chain(hops_of(table));
    for station in stations {
        let _ = writeln!(lines, "neigh replace {station} lladdr {mac} dev r1 nud permanent");
    }
    batch(r, &lines);
}

/// Two configurations that differ in what can be changed while running.
fn configurations(folder: &Path, table: &Path) -> [PathBuf; 2] {
    let one = |name: &str, algorithm: &str, layout: &str, subnet: u8| {
        let routes: Vec<String> =
            (0..200).map(|i| format!("\"198.{subnet}.{i}.0/24 via 10.0.2.2\"")).collect();
        let text = format!(
            "[[source]]\nkind = \"kernel\"\n\
             [[source]]\nkind = \"file\"\npath = {:?}\ndistance = 200\n\
             [[source]]\nkind = \"fixed\"\nroutes = [{}]\n\
             [fib]\nalgorithm_v4 = \"{algorithm}\"\n[groups]\nlayout = \"{layout}\"\n",
            table.display().to_string(),
            routes.join(", "),
        );
        let file = folder.join(name);
        std::fs::write(&file, text).expect("the temporary folder can be written");
        file
    };
    let layouts = ["slots", "resilient"];
    [0, 1].map(|i| one(&format!("{i}.toml"), ALGORITHMS[i], layouts[i], [18, 19][i]))
}

/// Ends with those who look at it.
struct Until(AtomicBool);

impl Until {
    /// Relaxed: it signals the end, and nothing else.
    fn goes_on(&self) -> bool {
        !self.0.load(Ordering::Relaxed)
    }

    fn end(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Does it every second, or when the one before is done; how often, and how long the longest took.
    fn every_second(&self, mut what: impl FnMut(usize)) -> (usize, Duration) {
        let (mut count, mut longest) = (0, Duration::ZERO);
        while self.goes_on() {
            let begun = Instant::now();
            what(count);
            count += 1;
            longest = longest.max(begun.elapsed());
            thread::sleep(Duration::from_secs(1).saturating_sub(begun.elapsed()));
        }
        (count, longest)
    }
}

/// Lists all routes; how many.
fn list(namespace: &str) -> u64 {
    let words = format!("{} route show --json", program().expect("the line was made").display());
    let mut child =
        command(namespace, &words).stdout(Stdio::piped()).spawn().expect("it was found before");
    let lines = BufReader::new(child.stdout.take().expect("it is piped")).split(b'\n');
    let count =
        lines.map(|line| line.expect("it writes")).filter(|line| line.ends_with(b"}")).count();
    assert!(child.wait().expect("it was started").success(), "after {count} routes");
    count as u64
}

/// Traffic through both routers, for so long.
fn traffic(daemon: &Line, graph: &Line, seconds: u64) -> [Counts; 2] {
    let mut one = Traffic::begin(TRANSFER, daemon, &FLOWS, RATE, seconds);
    let mut other = Traffic::begin(TRANSFER, graph, &["10.0.2.2"], RATE, seconds);
    let until = Instant::now() + Duration::from_secs(seconds + 30);
    while one.goes_on() || other.goes_on() {
        assert!(Instant::now() < until, "a sender hangs");
        thread::sleep(Duration::from_millis(50));
    }
    [one.end(), other.end()]
}

#[test]
fn at_once_updates_configurations_and_lists_cost_no_packet() {
    let stream = tables::data().join(STREAM);
    if !stream.is_file() {
        return skip(&format!("{STREAM} (FINGERPOST_DATA)"));
    }
    let Some(line) = Line::new(&["ping"]) else { return };
    let Some(beside) = Line::new(&["ping", "ethtool"]) else { return };
    // No element of Click fills in a checksum that a sender leaves to a card.
    run(&beside.source, "ethtool -K s0 tx off");
    let table = tables::shipped().join("v4-tier1-nh496.txt.xz");
    let updates = updates(&stream);
    build(&line, &table);
    let folder = std::env::temp_dir().join(format!("{}-at-once", line.router));
    std::fs::create_dir_all(&folder).expect("the temporary folder can be written");

    let files = configurations(&folder, &table);
    let router = Router::start(&line.router, &format!("--path graph {}", files[0].display()), 2);
    let (click, socket) = (folder.join("router.click"), folder.join("router.sock"));
    let plain = format!("ControlSocket(UNIX, {});\n{}", socket.display(), router_of_two_ports());
    let between = plain.replacen("-> rt;", "-> between :: Counter -> rt;", 1);
    assert!(between.contains("between"), "the example leads to `rt`");
    std::fs::write(&click, &plain).expect("the temporary folder can be written");
    for link in ["r0", "r1"] {
        ip(&format!("-n {} addr flush dev {link}", beside.router));
    }
    let words = format!("{} --device eth0=afxdp:r0 --device eth1=afxdp:r1", click.display());
    let graph = Router::begin(command, &beside.router, &words);
    graph.wait_for("to listen", |said| said.iter().any(|l| l.contains("control socket")));
    let mut telnet = Telnet(BufReader::new(UnixStream::connect(&socket).expect("it listens")));
    assert_eq!(telnet.line(), "Click::ControlSocket/1.3");
    for addr in FLOWS {
        run(&line.source, &format!("ping -c 1 -W 2 {addr}"));
    }
    run(&beside.source, "ping -c 2 -i 0.1 -W 2 10.0.2.2");

    let seconds = soak(Duration::from_secs(7)).as_secs();
    let quiet_seconds = (seconds / 4).clamp(2, 60);
    let full = || [&line, &beside].map(|line| overflowed(&line.destination));
    let before = full();
    let quiet = traffic(&line, &beside, quiet_seconds);
    let between_both = full();

    let (until, played, listed) =
        (Until(AtomicBool::new(false)), AtomicU64::new(0), AtomicU64::new(0));
    let (least, lists) = (AtomicU64::new(u64::MAX), AtomicU64::new(0));
    let begun = Instant::now();
    let (busy, applied, swapped) = thread::scope(|scope| {
        scope.spawn(|| {
            for some in updates.chunks(UPDATES).cycle().take_while(|_| until.goes_on()) {
                let begun = Instant::now();
                batch(&line.router, &some.concat());
                played.fetch_add(some.len() as u64, Ordering::Relaxed);
                thread::sleep(BREATH.saturating_sub(begun.elapsed()));
            }
        });
        let applied = scope.spawn(|| {
            until.every_second(|round| {
                let which = (round + 1) % 2;
                let words = format!("config apply {}", files[which].display());
                let answer: serde_json::Value = router.ask(&words);
                let changes = answer["changes"].as_array().expect("a list");
                let item = |name| changes.iter().any(|change| change["item"] == name);
                let applied = changes.iter().all(|change| change["applied"] == true);
                assert!(applied && item("fib.algorithm_v4"), "{changes:?}");
                let fibs: Vec<serde_json::Value> = router.ask("fib show");
                assert!(fibs.iter().any(|fib| fib["algorithm"] == ALGORITHMS[which]), "{fibs:?}");
            })
        });
        let swapped = scope.spawn(|| {
            until.every_second(|round| {
                telnet.write_data("hotconfig", if round % 2 == 0 { &between } else { &plain });
            })
        });
        scope.spawn(|| {
            while until.goes_on() {
                let count = list(&line.router);
                listed.fetch_add(count, Ordering::Relaxed);
                least.fetch_min(count, Ordering::Relaxed);
                lists.fetch_add(1, Ordering::Relaxed);
            }
        });
        let mut busy = traffic(&line, &beside, seconds);
        // Where the machine is slow, until the stream has been played once.
        for _ in 0..4 {
            if played.load(Ordering::Relaxed) < updates.len() as u64 {
                let more = traffic(&line, &beside, seconds);
                busy.iter_mut().zip(more).for_each(|(all, more)| all.add(more));
            }
        }
        until.end();
        (busy, applied.join().expect("no panic"), swapped.join().expect("no panic"))
    });
    let (after, lasted) = (full(), begun.elapsed());
    // What packets ask is what the sources said, after all of it.
    let verified: serde_json::Value = router.ask("fib verify");
    let reports = [router.stop(), graph.stop()];
    let _ = std::fs::remove_dir_all(&folder);

    let (played, lists, least) = (played.into_inner(), lists.into_inner(), least.into_inner());
    println!(
        "{:.0} s at once: {played} updates ({:.1} times the stream), {} configurations of the daemon (the longest took \
         {:?}) and {} of the graph ({:?}), {lists} lists of at least {least} routes",
        lasted.as_secs_f64(),
        played as f64 / updates.len() as f64,
        applied.0,
        applied.1,
        swapped.0,
        swapped.1,
    );
    assert_eq!(verified["mismatches"], 0, "{verified}");
    assert!(least >= 901_899 && lists > 0, "{lists} lists, {least} routes");
    assert!(
        applied.0 > 1 && swapped.0 > 1 && played >= updates.len() as u64,
        "too little was done"
    );
    conserved(&reports[0]);
    let rows = reports[0]["interfaces"].as_array().expect("a row each");
    let handed: u64 = rows.iter().filter_map(|row| row["redirected"].as_u64()).sum();
    println!(
        "frames for the daemon that found a full ring: {}",
        handed - reports[0]["packets_in"].as_u64().expect("a number")
    );
    for (at, report) in reports.iter().enumerate() {
        let (quiet, busy) = (quiet[at], busy[at]);
        // What its own socket had no room for has crossed.
        let (quiet_full, busy_full) = (between_both[at] - before[at], after[at] - between_both[at]);
        println!(
            "{}: quiet {quiet:?}, {quiet_full} at a full socket; at once {busy:?}, {busy_full} at a full socket; {}",
            ["daemon", "graph"][at],
            report["dropped"]
        );
        assert_eq!(busy.reordered, 0);
        // Multicast of the hosts is not routed, and an ARP querier consumes the replies; nothing
        // else may end in a router.
        for (reason, count) in report["dropped"].as_object().expect("drops by reason") {
            let ours = !["multicast", "local", "discarded", "not_for_us", "consumed"]
                .contains(&reason.as_str());
            assert!(!ours || *count == 0, "dropped by the router: {reason}: {count}: {report}");
        }
        // Lost before it: a full ring of a busy machine.
        let lost = |counts: Counts, full: u64| counts.lost().saturating_sub(full);
        let (usual, lost) = (lost(quiet, quiet_full), lost(busy, busy_full));
        assert!(usual <= quiet.sent / 50, "{usual} lost in quiet: nothing can be said here");
        let usual = usual * busy.sent.div_ceil(quiet.sent);
        assert!(lost <= usual + busy.sent / SLACK, "lost {lost}, and {usual} in quiet");
    }
}
