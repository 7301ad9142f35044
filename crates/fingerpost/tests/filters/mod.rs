//! Filters by source of a daemon that forwards: configured, changed and exchanged while packets pass.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::seeing::while_sending;
use super::{Lab, Named, ip};

/// A destination, and the source that the host sends to it from.
const WAYS: [(&str, &str); 3] =
    [("198.51.100.1", "10.0.1.2"), ("198.51.100.9", "10.66.0.9"), ("2001:db8::9", "fd66::9")];

/// A daemon by this configuration, whose host has further addresses to send from.
struct Filtered {
    lab: Lab,
    folder: PathBuf,
}

impl Drop for Filtered {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

const INTERFACE: &str = "[[interface]]\nname = \"r0\"\n";

impl Filtered {
    fn new(name: &str, filters: &str, words: &[&str]) -> Option<Self> {
        let folder = format!("fingerpost-filters-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(folder);
        std::fs::create_dir_all(&folder).unwrap();
        let config = folder.join("router.toml");
        std::fs::write(&config, format!("{INTERFACE}{filters}")).unwrap();
        let config = config.display().to_string();
        let words = [&[&*config], words].concat();
        let Some(lab) = Lab::new(name, &words) else {
            let _ = std::fs::remove_dir_all(&folder);
            return None;
        };
        for (to, from) in WAYS {
            let (len, gateway) = if to.contains(':') { (128, "fd01::1") } else { (32, "10.0.1.1") };
            let nodad = if len == 128 { " nodad" } else { "" };
            if from != "10.0.1.2" {
                ip(&format!("-n {} addr add {from}/{len} dev h0{nodad}", lab.host));
            }
            ip(&format!("-n {} route add {to}/{len} via {gateway} src {from}", lab.host));
        }
        Some(Self { lab, folder })
    }

    /// Writes a file; its name.
    fn file(&self, name: &str, text: &str) -> String {
        let path = self.folder.join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    }

    /// Applies a configuration with these filters.
    fn apply(&self, filters: &str) -> Value {
        let file = self.file("router.toml", &format!("{INTERFACE}{filters}"));
        self.lab.json(&format!("config apply {file}"))
    }

    /// Sends datagrams by each path.
    fn send(&self, each: u32) {
        for (to, _) in WAYS {
            for _ in 0..each {
                send(&self.lab.host, to);
            }
        }
    }

    fn filter(&self, name: &str) -> Value {
        let rows = self.lab.json("source-filter show");
        let row = rows.as_array().unwrap().iter().find(|row| row["name"] == name);
        row.unwrap_or_else(|| panic!("no {name}: {rows}")).clone()
    }

    /// Waits until a filter has counted so many packets, and dropped so many of them.
    fn counted(&self, name: &str, packets: u64, dropped: u64) {
        let until = Instant::now() + Duration::from_secs(10);
        loop {
            let row = self.filter(name);
            if (&row["packets"], &row["dropped"]) == (&json!(packets), &json!(dropped)) {
                return;
            }
            assert!(Instant::now() < until, "{packets} and {dropped} wanted: {row}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// How the interface is driven.
    fn path(&self) -> String {
        let rows = self.lab.json("interface show");
        let row = rows.as_array().unwrap().iter().find(|row| row["name"] == "r0").unwrap();
        row["path"].as_str().unwrap().to_owned()
    }
}

fn send(host: &str, to: &str) {
    let words = format!("echo 1 > /dev/udp/{to}/9");
    let sent = Command::new("ip").args(["netns", "exec", host, "bash", "-c", &words]).output();
    assert!(sent.unwrap().status.success(), "{to}");
}

/// Sent by the last element so far, by all workers.
fn transmitted(lab: &Lab) -> u64 {
    let stats = lab.json("graph stats");
    let rows = stats["elements"].as_array().unwrap().iter();
    rows.filter(|row| row["name"] == "transmit").map(|row| row["packets"].as_u64().unwrap()).sum()
}

/// Interfaces with filters stay on their path: the XDP datapath has the same filters.
#[test]
fn filters_come_change_and_go_while_xdp_forwards() {
    if let Some(router) = Filtered::new("xdp", "", &[]) {
        filters_come_change_and_go(&router, "xdp");
    }
}

#[test]
fn filters_come_change_and_go_while_the_graph_forwards() {
    if let Some(router) = Filtered::new("graph", "", &["--path", "afxdp"]) {
        filters_come_change_and_go(&router, "afxdp");
    }
}

fn filters_come_change_and_go(router: &Filtered, path: &str) {
    let lab = &router.lab;
    let graph = path == "afxdp";
    assert_eq!((lab.json("source-filter show"), router.path()), (json!([]), path.into()));
    let (code, said) = lab.refused("source-filter add attackers 10.0.0.0/8");
    assert!(code == 1 && said.contains("there are no source filters"), "{said}");
    assert_eq!(lab.json("source-filter lookup 10.66.0.9")["does"], "pass");

    // A list that makes no sense is refused with its line, and nothing is changed.
    let list = router.file("list.txt", "# those\n10.66.0.0/16\nhello\n");
    let filter = |action: &str| {
        format!(
            "[[source_filter]]\nname = \"attackers\"\naction = \"{action}\"\nfile = \"{list}\"\n\
             prefixes = [\"fd66::/64\"]\ninterfaces = [\"r0\"]\n\
             [[source_filter]]\nname = \"all\"\naction = \"count\"\nprefixes = [\"0.0.0.0/0\", \"::/0\"]\n"
        )
    };
    let file = router.file("router.toml", &format!("{INTERFACE}{}", filter("drop")));
    let (code, said) = lab.refused(&format!("config apply {file}"));
    assert!(code == 1 && said.contains(&format!("{list}:3: `hello`")), "{said}");
    let check = lab.run(&format!("config check {file}"));
    assert_eq!(check.status.code(), Some(1));
    assert_eq!((lab.json("source-filter show"), router.path()), (json!([]), path.into()));

    // Packets on the list are dropped from then on, by the same path.
    router.file("list.txt", "# those\n10.66.0.0/16\n");
    let changes = router.apply(&filter("drop"));
    let change = &changes["changes"][0];
    assert_eq!(
        (&change["item"], &change["applied"]),
        (&"source-filter attackers".into(), &true.into())
    );
    assert_eq!(change["to"], format!("drop, {list}, 1 prefix, r0"));
    assert_eq!(router.path(), path, "{}", lab.text("interface show"));
    router.send(3);
    router.counted("attackers", 6, 6);
    let row = router.filter("attackers");
    assert_eq!((&row["prefixes_v4"], &row["prefixes_v6"]), (&1.into(), &1.into()), "{row}");
    assert_eq!((&row["action"], &row["interfaces"]), (&"drop".into(), &json!(["r0"])), "{row}");
    // Whatever else the host says is counted by the other one.
    assert!(router.filter("all")["packets"].as_u64() >= Some(9));
    let sent = transmitted(lab);
    router.send(1);
    router.counted("attackers", 8, 8);
    if graph {
        assert!(transmitted(lab) > sent, "others pass");
        let stats = lab.json("graph stats");
        let rows = stats["elements"].as_array().unwrap();
        let row = rows.iter().find(|row| row["name"] == "source_filter").unwrap();
        assert_eq!(row["reasons"]["source_filter"], 8, "{row}");
    }

    // Who asks is told, and nothing is counted for it.
    let on = lab.json("source-filter lookup 10.66.0.9 --from r0");
    assert_eq!(
        (&on["does"], &on["filters"][0]["prefix"]),
        (&"drop".into(), &"10.66.0.0/16".into())
    );
    assert_eq!(lab.json("source-filter lookup fd01::2")["does"], "pass");
    let flow = "--from r0 --flow 10.66.0.9,198.51.100.9,udp,1,2";
    let why = lab.json(&format!("why 198.51.100.9 {flow}"));
    let verdict = why["verdict"].as_str().unwrap();
    assert!(
        why["does"] == "drop"
            && verdict.contains("by source_filter (source_filter)")
            && verdict.contains("It is on: attackers (drop), all (count)."),
        "{verdict}"
    );
    router.counted("attackers", 8, 8);
    let (traces, code) = while_sending(lab, "trace add 1 udp --seconds 30 --json", "198.51.100.1");
    let steps = traces[0]["steps"].as_array().unwrap();
    let step = steps.iter().find(|step| step["element"] == "source_filter").unwrap();
    assert_eq!(
        (code, &step["does"], &step["notes"]),
        (0, &"passed".into(), &json!(["all (count)"]))
    );
    assert!(steps.iter().all(|other| other == step || other.get("notes").is_none()), "{steps:?}");

    // By command: the addresses of a list, one by one and all at once.
    assert_eq!(lab.json("source-filter remove attackers 10.66.0.0/16")["changed"], 1);
    let done = lab.json("source-filter add attackers 10.66.0.9 10.66.0.9/32 203.0.113.0/24");
    assert_eq!((&done["changed"], &done["prefixes_v4"]), (&2.into(), &2.into()));
    router.send(1);
    router.counted("attackers", 10, 10);
    lab.json("source-filter remove attackers 10.66.0.9");
    router.send(1);
    router.counted("attackers", 11, 11);
    let (code, said) = lab.refused("source-filter add atackers 10.0.0.0/8");
    assert!(code == 1 && said.contains("did you mean `attackers`?"), "{said}");
    let (code, said) = lab.refused("source-filter add attackers 10.0.0.0/33");
    assert!(code == 2 && said.contains("`10.0.0.0/33` is no IPv4 prefix"), "{said}");
    let bad = router.file("bad.txt", "10.0.0.0/8\nx\n");
    let (code, said) = lab.refused(&format!("source-filter replace attackers {bad}"));
    assert!(code == 1 && said.contains("bad.txt:2: `x`"), "{said}");
    assert_eq!(router.filter("attackers")["prefixes_v4"], 1);
    let text = lab.text(&format!("source-filter replace attackers {list}"));
    assert_eq!(text, "attackers: 3 changed, 1 IPv4 and 0 IPv6 prefixes\n");
    router.send(1);
    router.counted("attackers", 12, 12);

    // Another action: the list as it is now goes on, and so do the counts.
    let changes = router.apply(&filter("count"));
    assert_eq!(changes["changes"].as_array().unwrap().len(), 1, "{changes}");
    router.send(1);
    router.counted("attackers", 13, 12);

    // Without filters nothing is left of them.
    router.apply("");
    assert_eq!((lab.json("source-filter show"), router.path()), (json!([]), path.into()));
    let stats = lab.json("graph stats");
    let rows = stats["elements"].as_array().unwrap();
    assert!(rows.iter().all(|row| row["name"] != "source_filter"), "{stats}");
    assert_eq!(lab.json("why 198.51.100.9 --from r0")["does"], "forward");
}

#[test]
fn long_lists_are_exchanged_while_packets_pass() {
    const MANY: u32 = 300_000;
    let filters = "[[source_filter]]\nname = \"long\"\naction = \"drop\"\n[[source_filter]]\nname = \"own\"\n\
                   action = \"pass\"\nprefixes = [\"10.0.1.0/24\"]\n";
    let Some(router) = Filtered::new("long", filters, &["--path", "afxdp"]) else { return };
    let lab = &router.lab;
    let mut text = String::from("10.0.0.0/8\nfd66::9\n");
    for n in 0..MANY {
        let [_, a, b, c] = (n << 2).to_be_bytes();
        let _ = writeln!(text, "20.{a}.{b}.{c}/30");
    }
    let list = router.file("long.txt", &text);
    let ended = AtomicBool::new(false);
    let mut sent = 0;
    std::thread::scope(|scope| {
        let exchange = scope.spawn(|| {
            let done = lab.json(&format!("source-filter replace long {list}"));
            ended.store(true, Relaxed);
            done
        });
        while !ended.load(Relaxed) && !exchange.is_finished() {
            send(&lab.host, "198.51.100.1");
            sent += 1;
            // The daemon's thread answers meanwhile.
            assert_eq!(lab.json("route get 198.51.100.1")["prefix"], "198.51.100.0/24");
        }
        assert_eq!(exchange.join().unwrap()["changed"], MANY + 2);
    });
    assert!(sent > 0);
    let until = Instant::now() + Duration::from_secs(10);
    while router.filter("own")["packets"].as_u64() < Some(sent) {
        assert!(Instant::now() < until, "{sent} sent: {}", router.filter("own"));
    }
    assert_eq!(router.filter("own")["dropped"], 0, "who may pass, passes");
    router.send(2);
    // What `own` lets pass is on both.
    let (own, long) = (router.filter("own"), router.filter("long"));
    assert_eq!((&long["prefixes_v4"], &long["prefixes_v6"]), (&(MANY + 1).into(), &1.into()));
    assert!(own["prefixes_v4"] == 1, "{own}");
    let until = Instant::now() + Duration::from_secs(10);
    while router.filter("long")["dropped"] != 4 {
        assert!(Instant::now() < until, "{}", router.filter("long"));
    }
    // A graph that was swapped in has the filters by its own element, or does not have them.
    let built_in = include_str!("../../../packet/src/router.click");
    let with = built_in
        .replace("ip4_input [forward] ->", "ip4_input [forward] -> mine :: IPSourceFilter ->")
        .replace("ip4_input [options] ->", "ip4_input [options] -> [1] mine; mine [1] ->")
        .replace("ip4_input [error] ->", "ip4_input [error] -> [2] mine; mine [2] ->")
        .replace("ip6_input [forward] ->", "ip6_input [forward] -> [3] mine; mine [3] ->")
        .replace("ip6_input [error] ->", "ip6_input [error] -> [4] mine; mine [4] ->");
    let swap = |text: &str| lab.json(&format!("graph swap {}", router.file("swap.click", text)));
    let warned = || lab.said().iter().filter(|line| line.contains("has no IPSourceFilter")).count();
    swap(&with);
    assert_eq!(warned(), 0, "{:?}", lab.said());
    router.send(1);
    let until = Instant::now() + Duration::from_secs(10);
    while router.filter("long")["dropped"] != 6 {
        assert!(Instant::now() < until, "{}", router.filter("long"));
    }
    // Filters that change meanwhile are those of that graph.
    let seen = |name: &str| router.filter(name)["packets"].as_u64().unwrap();
    let before = seen("long");
    router.apply(&filters.replace("\"drop\"", "\"count\""));
    router.send(1);
    let until = Instant::now() + Duration::from_secs(10);
    while seen("long") < before + 3 {
        assert!(Instant::now() < until, "{}", lab.text("source-filter show"));
    }
    assert_eq!(router.filter("long")["dropped"], 6);
    swap(built_in);
    let until = Instant::now() + Duration::from_secs(10);
    while warned() == 0 {
        assert!(Instant::now() < until, "{:?}", lab.said());
    }
}

#[test]
fn a_list_that_is_wrong_at_the_start_is_told() {
    let Some(()) = super::possible() else { return };
    let folder =
        std::env::temp_dir().join(format!("fingerpost-filters-start-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (config, list) = (folder.join("router.toml"), folder.join("list.txt"));
    std::fs::write(&list, "10.0.0.0/8\n10.0.0.0/40\n").unwrap();
    let text = format!(
        "[[source_filter]]\nname = \"a\"\naction = \"drop\"\nfile = \"{}\"\n",
        list.display()
    );
    std::fs::write(&config, text).unwrap();
    let namespace = format!("fpapifilter{}", std::process::id());
    let namespace = Named::new(namespace);
    let words = format!("run {}", config.display());
    let output = super::in_namespace(&namespace, &words).output().unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("list.txt:2: `10.0.0.0/40` is no IPv4 prefix"), "{said}");
}
