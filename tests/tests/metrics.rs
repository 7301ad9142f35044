//! `/metrics` by a real Prometheus: it scrapes a router each second that forwards and whose routes change, over `[listen]`.
//!
//! Shown: `promtool` reports nothing about page and rules; every query of the dashboard and every alert's expression
//! returns data; a source that loses its session sets off an alert; no scrape fails, and one takes [`LONGEST_SCRAPE_S`] at
//! most with a large table and 1,000 next hops; and in a minute or more (`cargo xtask soak metrics`), memory does not grow.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use fingerpost_route::{AnyPrefix, MAIN_TABLE, Path as RoutePath, RouteKey, RouteUpdate, Target};
use fingerpost_tests::folder::Folder;
use fingerpost_tests::fpm::Zebra;
use fingerpost_tests::netns::{Line, Router, command, conserved, exec, run};
use fingerpost_tests::rack::{Built, Rack, ping, wait_for_links};
use fingerpost_tests::traffic::Traffic;
use fingerpost_tests::{patience, root, soak, tables};
use serde_json::Value;

const LISTEN: &str = "127.0.0.1:9477";
const PROMETHEUS: &str = "127.0.0.1:9090";
/// Longest scrape, in seconds.
const LONGEST_SCRAPE_S: f64 = 0.05;
/// Next hops of the table.
const NEXT_HOPS: usize = 1000;
/// Routes where the full table is not there.
const ROUTES: usize = 200_000;
/// Routes that change.
const CHANGING: u32 = 2000;

/// A Prometheus that scrapes the router. Killed when dropped.
struct Prometheus<'a> {
    namespace: &'a str,
    folder: &'a Folder,
    child: Child,
}

impl<'a> Prometheus<'a> {
    /// Starts it; alerts wait for a second in place of their minutes.
    fn start(namespace: &'a str, folder: &'a Folder) -> Self {
        let rules = std::fs::read_to_string(rules_path()).expect("it is in the repository");
        let waits = |line: &str| match line.trim_start().starts_with("for: ") {
            true => "        for: 1s".to_owned(),
            false => line.to_owned(),
        };
        let quick: Vec<String> = rules.lines().map(waits).collect();
        folder.write("rules.yml", &(quick.join("\n") + "\n"));
        let config = folder.write(
            "prometheus.yml",
            &format!(
                "global:\n  scrape_interval: 1s\n  scrape_timeout: 1s\n  evaluation_interval: 1s\n\
                 rule_files: [rules.yml]\n\
                 scrape_configs:\n  - job_name: fingerpost\n    static_configs:\n      - targets: [\"{LISTEN}\"]\n"
            ),
        );
        let words = format!(
            "prometheus --config.file={config} --storage.tsdb.path={} --web.listen-address={PROMETHEUS}",
            folder.file("tsdb")
        );
        let log =
            std::fs::File::create(folder.path().join("prometheus.log")).expect("a folder of ours");
        let child = command(namespace, &words).stdout(Stdio::null()).stderr(log).spawn();
        Self { namespace, folder, child: child.expect("it was found before") }
    }

    fn get(&self, path: &str, query: &str) -> Option<Value> {
        let mut curl = command(self.namespace, "curl -s -m 10 -G --data-urlencode");
        curl.arg(format!("query={query}")).arg(format!("http://{PROMETHEUS}/api/v1/{path}"));
        serde_json::from_slice(&curl.output().expect("curl was found before").stdout).ok()
    }

    /// Samples of an expression.
    fn query(&self, query: &str) -> Vec<Value> {
        let answer = self.get("query", query).unwrap_or_else(|| panic!("no answer: {query}"));
        let result = answer["data"]["result"].as_array();
        result.unwrap_or_else(|| panic!("{query}: {answer}")).clone()
    }

    /// The only value of an expression.
    fn number(&self, query: &str) -> f64 {
        let found = self.query(query);
        let [only] = &found[..] else { panic!("{query}: {found:?}") };
        let text = only["value"][1].as_str().expect("values are text");
        text.parse().expect("they are numbers")
    }

    /// Names of the alerts that fire.
    fn firing(&self) -> Vec<String> {
        let answer = self.get("alerts", "").expect("it answers");
        let alerts = answer["data"]["alerts"].as_array().expect("a list");
        let firing = alerts.iter().filter(|alert| alert["state"] == "firing");
        firing
            .map(|alert| alert["labels"]["alertname"].as_str().unwrap_or_default().to_owned())
            .collect()
    }

    /// Waits until this is so.
    fn wait(&self, what: &str, done: impl Fn(&Self) -> bool) {
        let until = Instant::now() + patience(Duration::from_secs(20));
        while !done(self) {
            assert!(Instant::now() < until, "{what}: {}", self.log());
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("prometheus.log")).unwrap_or_default()
    }
}

impl Drop for Prometheus<'_> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn rules_path() -> std::path::PathBuf {
    root().join("contrib/prometheus/fingerpost.rules.yml")
}

/// Queries of a dashboard, as Grafana would send them.
fn dashboard(name: &str) -> Vec<String> {
    fn collect(value: &Value, all: &mut Vec<String>) {
        match value {
            Value::Array(list) => list.iter().for_each(|value| collect(value, all)),
            Value::Object(fields) => {
                for (name, value) in fields {
                    match value.as_str().filter(|_| name == "expr") {
                        Some(query) => all.push(query.to_owned()),
                        None => collect(value, all),
                    }
                }
            }
            _ => {}
        }
    }
    let text = std::fs::read_to_string(root().join("contrib/grafana").join(name));
    let text = text.expect("it is in the repository");
    let dashboard: Value = serde_json::from_str(&text).expect("JSON");
    let mut all = Vec::new();
    collect(&dashboard, &mut all);
    assert_eq!(all.len(), text.matches("\"expr\"").count(), "queries of {name}");
    all.iter().map(|q| q.replace("$instance", ".*").replace("$__rate_interval", "5s")).collect()
}

/// Expressions of the alerts, without their comparisons.
fn alerts() -> Vec<String> {
    let rules = std::fs::read_to_string(rules_path()).expect("it is in the repository");
    let lines = rules.lines().filter_map(|line| line.trim_start().strip_prefix("expr: "));
    let bare = |expr: &str| {
        let signs = [" > ", " < ", " == "];
        let (bare, limit) =
            signs.iter().find_map(|sign| expr.rsplit_once(sign)).expect("a comparison");
        assert!(limit.parse::<f64>().is_ok(), "{expr}: it does not end in a comparison");
        bare.to_owned()
    };
    let all: Vec<String> = lines.map(bare).collect();
    assert_eq!(all.len(), rules.matches("- alert: ").count(), "an expression on one line each");
    all
}

/// Checks a file or a page by `promtool`, which prints what it finds.
fn promtool(words: &str, input: &str) {
    let mut promtool = Command::new("promtool");
    promtool
        .args(words.split(' '))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = promtool.spawn().expect("it was found before");
    let mut stdin = child.stdin.take().expect("it is piped");
    let page = input.to_owned();
    let writer = std::thread::spawn(move || stdin.write_all(page.as_bytes()));
    let output = child.wait_with_output().expect("it was started");
    writer.join().expect("no panic").expect("it reads");
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "promtool {words}: {said}");
    assert!(words != "check metrics" || said.is_empty(), "promtool {words}: {said}");
}

/// Routes over many next hops: the prefixes of the full table where it is there.
fn write_table(path: &Path) -> usize {
    let full = tables::data().join("v4-tier1-nh496.txt.xz");
    let prefixes: Vec<String> = match full.exists() {
        true => tables::read::<u32>(&full).iter().map(|(prefix, _)| prefix.to_string()).collect(),
        false => (0..ROUTES)
            .map(|n| format!("{}.{}.{}.0/24", 64 + n / 65_536, n / 256 % 256, n % 256))
            .collect(),
    };
    let mut text = String::new();
    for (at, prefix) in prefixes.iter().enumerate() {
        let hop = at % NEXT_HOPS;
        writeln!(text, "{prefix} 10.9.{}.{}", hop / 250, 2 + hop % 250).expect("a string");
    }
    std::fs::write(path, text).expect("a folder of ours");
    prefixes.len()
}

/// Sends routes; each goes over another gateway in every turn.
fn send(zebra: &mut Zebra, range: std::ops::Range<u32>, turn: u32) {
    let routes = range.map(|n| {
        let prefix = format!("192.{}.{}.0/24", 168 + n / 256, n % 256);
        let prefix = AnyPrefix::parse(&prefix).expect("a prefix");
        let gateway = Some(format!("10.0.2.{}", 2 + (n + turn) % 8).parse().expect("an address"));
        let key = RouteKey { table: MAIN_TABLE, prefix, metric: 0 };
        let target = Target::Path(RoutePath { gateway, link: None, weight: 1 });
        RouteUpdate::new(key, target)
    });
    zebra.send(&routes.collect::<Vec<_>>());
}

#[test]
fn prometheus_scrapes_a_router_under_load_and_churn() {
    let Some(line) = Line::new(&["curl", "ethtool", "prometheus", "promtool"]) else { return };
    let at = &line.router;
    run(&line.source, "ethtool -K s0 gro on");
    run(&line.destination, "ethtool -K d0 gro on");
    run(at, "ip addr add 10.9.0.1/16 dev r1");
    let folder = Folder::new(at);
    let routes = write_table(&folder.path().join("table.txt"));
    let config = folder.write(
        "router.toml",
        &format!(
            "[listen]\naddress = \"{LISTEN}\"\n[[source]]\nkind = \"kernel\"\n[[source]]\nkind = \"file\"\npath = {:?}\n\
             [[source]]\nkind = \"fpm\"\nlisten = {:?}\nsweep_s = 1\nacknowledge = false\n\
             [[interface]]\nname = \"r0\"\n[[interface]]\nname = \"r1\"\n\
             [[acl]]\nname = \"edge\"\ninterfaces = [\"r0\"]\ndirection = \"in\"\nrules = [\"permit all\"]\n",
            folder.file("table.txt"),
            folder.file("fpm.sock")
        ),
    );
    let router = Router::start(at, &config, 2);
    let seconds = soak(Duration::from_secs(15));
    let mut zebra = Zebra::connect(&folder.path().join("fpm.sock"));
    (0..CHANGING / 200).for_each(|part| send(&mut zebra, part * 200..(part + 1) * 200, 0));
    let prometheus = Prometheus::start(at, &folder);
    let transfer = env!("CARGO_BIN_EXE_transfer");
    // Packets that end at the router: the first interface has drops.
    let ended = exec(&line.source, "ping -c 3 -i 0.2 -W 1 -t 1 10.0.2.2");
    let ended = String::from_utf8_lossy(&ended.stdout);
    assert!(ended.contains("Time to live exceeded"), "{ended}");
    let traffic = Traffic::begin(transfer, &line, &["10.0.2.2"], 2000, seconds.as_secs() + 2);
    let (end, mut resident) = (Instant::now() + seconds, None);
    let half = Instant::now() + seconds / 2;
    for turn in 1.. {
        if Instant::now() >= end {
            break;
        }
        let first = turn * 10 % (CHANGING - 10);
        send(&mut zebra, first..first + 10, turn);
        if Instant::now() >= half && resident.is_none() {
            resident = Some(router.resident_kib());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let grown = router.resident_kib().saturating_sub(resident.expect("half of it has passed"));

    // Page and rules as they are.
    let page = run(at, &format!("curl -s -H accept:text/plain http://{LISTEN}/metrics"));
    promtool("check metrics", &page);
    promtool(&format!("check rules {}", rules_path().display()), "");
    let head = run(at, &format!("curl -s -I http://{LISTEN}/metrics"));
    assert!(head.contains("application/openmetrics-text; version=1.0.0"), "{head}");
    let open = run(at, &format!("curl -s http://{LISTEN}/metrics"));
    assert!(open.ends_with("# EOF\n"), "{open}");

    // What Prometheus has of it.
    let queries = [dashboard("fingerpost.json"), alerts()].concat();
    let empty: Vec<&String> = queries.iter().filter(|q| prometheus.query(q).is_empty()).collect();
    assert!(empty.is_empty(), "no data: {empty:#?}");
    let window = format!("[{}s]", seconds.as_secs().max(10) - 5);
    assert!(prometheus.number(&format!("min_over_time(up{window})")) > 0.5, "{}", prometheus.log());
    let scrapes = prometheus.number(&format!("count_over_time(up{window})"));
    let took = |parts: f64| {
        prometheus.number(&format!("quantile_over_time({parts}, scrape_duration_seconds{window})"))
    };
    let series = prometheus.number("scrape_samples_scraped");
    println!(
        "{routes} routes, {} next hops, {series} samples: {scrapes} scrapes of {:.1} ms (median), {:.1} ms (90 %), {:.1} ms \
         (longest); {grown} KiB more in the second half; {:.1} KiB a page",
        prometheus.number("fingerpost_next_hops"),
        took(0.5) * 1e3,
        took(0.9) * 1e3,
        took(1.0) * 1e3,
        page.len() as f64 / 1024.0,
    );
    assert!(prometheus.number("fingerpost_next_hops") >= NEXT_HOPS as f64);
    assert!(
        prometheus.number("sum(fingerpost_fib_prefixes{routes=\"best\", family=\"4\"})")
            >= routes as f64
    );
    // The machine may be shared with other tests.
    assert!(took(0.9) <= LONGEST_SCRAPE_S, "{} s", took(0.9));
    // Of a few seconds it would show nothing.
    assert!(seconds < Duration::from_secs(60) || grown < 16 << 10, "{grown} KiB more");
    let warned: Vec<String> = prometheus
        .log()
        .lines()
        .filter(|l| l.contains("level=warn") || l.contains("level=error"))
        .map(str::to_owned)
        .collect();
    assert!(warned.is_empty(), "{warned:#?}");
    // Received packets: at least those delivered, at most those of the report.
    let sent = traffic.end();
    assert!(sent.received > 0, "{sent:?}");
    prometheus.wait("the packets", |it| {
        it.number("sum(fingerpost_interface_receive_packets_total{interface=\"r0\"})")
            >= sent.received as f64
    });
    let drops = "sum(fingerpost_interface_dropped_packets_total{interface=\"r0\"})";
    assert!(prometheus.number(drops) >= 3.0, "{}", prometheus.number(drops));
    let full =
        "sum(fingerpost_interface_device_events_total{interface=\"r0\", event=\"rx_ring_full\"})";
    // It is there; a busy machine may have filled a ring.
    prometheus.number(full);
    let counted = prometheus.number("sum(fingerpost_interface_receive_packets_total)");

    // A source that loses its session.
    assert!(!prometheus.firing().iter().any(|name| name == "FingerpostSourceOutOfSync"));
    drop(zebra);
    prometheus
        .wait("an alert", |it| it.firing().iter().any(|name| name == "FingerpostSourceOutOfSync"));
    drop(prometheus);
    let report = router.stop();
    assert!(report["packets_in"].as_f64() >= Some(counted), "{counted}: {report}");
    conserved(&report);
}

#[test]
fn prometheus_scrapes_a_node_of_a_cluster() {
    let built = Built { rate: Some("10Mbps"), ..Built::of(2) };
    let Some(rack) = Rack::new(&["curl", "ping", "prometheus", "promtool"], built) else { return };
    let listen = format!("[listen]\naddress = \"{LISTEN}\"\n");
    rack.set_config(0, &(rack.config_of(0) + &listen));
    let routers = rack.start_all();
    routers.iter().for_each(wait_for_links);
    let folder = Folder::new(&rack.places[0].namespace);
    let prometheus = Prometheus::start(&rack.places[0].namespace, &folder);
    let answered = ping(&rack.places[0].hosts[0], "-c 20 -i 0.2 10.2.0.2");
    assert!(answered.contains(" 0% packet loss"), "{answered}");
    let queries = dashboard("fingerpost-cluster.json");
    prometheus.wait("a sample of each", |it| queries.iter().all(|q| !it.query(q).is_empty()));
    assert!(prometheus.number("fingerpost_cluster_link_up") > 0.5);
    assert!(prometheus.number("sum(fingerpost_cluster_packets_total{action=\"direct\"})") >= 20.0);
}
