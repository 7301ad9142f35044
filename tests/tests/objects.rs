//! Routes over next-hop objects, as FRR and `ip nexthop` make them: people see what the objects lead to.
#![allow(clippy::unwrap_used, reason = "all of this file is a test")]

use std::time::{Duration, Instant};

use fingerpost_tests::frr::Frr;
use fingerpost_tests::netns::{Line, Router, ip, run};
use fingerpost_tests::program;
use serde_json::{Value, json};

/// What a command of the program wrote in the router's namespace.
fn fingerpost(line: &Line, words: &str) -> String {
    run(&line.router, &format!("{} {words}", program().unwrap().display()))
}

/// The JSON lines of a command.
fn rows(line: &Line, words: &str) -> Vec<Value> {
    let text = fingerpost(line, &format!("{words} --json"));
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The routes of a list, each once.
fn prefixes(rows: &[Value]) -> Vec<&str> {
    rows.iter().map(|row| row["prefix"].as_str().unwrap()).collect()
}

fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(20);
    while !done() {
        assert!(Instant::now() < until, "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn routes_of_next_hop_objects_are_readable() {
    let Some(line) = Line::new(&[]) else { return };
    let r = &line.router;
    for words in [
        "nexthop add id 17 via 10.0.2.2 dev r1",
        "nexthop add id 18 via 10.0.1.2 dev r0",
        "nexthop add id 24 group 17,3/18,1",
        "nexthop add id 30 blackhole",
        "route add 192.0.2.0/24 nhid 17",
        "route add 198.51.100.0/24 nhid 24",
        "route add 203.0.113.0/24 nhid 30",
        "route add 100.64.0.0/10 via 10.0.2.2",
        "route add 100.128.0.0/10 via 10.0.2.9",
    ] {
        ip(&format!("-n {r} {words}"));
    }
    let router = Router::start(r, "--path graph", 2);

    // Each says where it leads, in text and as JSON.
    let text = fingerpost(&line, "route show --source kernel --best");
    for want in [
        "* 192.0.2.0/24       kernel   [0/0]      via 10.0.2.2 dev r1 object 17\n",
        "* 198.51.100.0/24    kernel   [0/0]      via 10.0.2.2 dev r1 weight 3 via 10.0.1.2 dev r0 weight 1 object 24\n",
        "* 203.0.113.0/24     kernel   [0/0]      blackhole object 30\n",
    ] {
        assert!(text.contains(want), "{text}");
    }
    let all = rows(&line, "route show --longer 192.0.2.0/24");
    assert_eq!((&all[0]["kind"], &all[0]["object"]), (&json!("object"), &json!(17)));
    assert_eq!(all[0]["paths"], json!([{"gateway": "10.0.2.2", "dev": "r1", "weight": 1}]));
    let group = rows(&line, "route show --longer 198.51.100.0/24").remove(0);
    assert_eq!(group["object"], 24);
    let member = |id: u32, gateway: &str, dev: &str, weight: u32| json!({"gateway": gateway, "dev": dev, "weight": weight, "object": id});
    let members = [member(17, "10.0.2.2", "r1", 3), member(18, "10.0.1.2", "r0", 1)];
    assert_eq!(group["paths"], json!(members));

    // They are found by gateway, interface, index and object.
    let found = |words: &str| {
        let rows = rows(&line, &format!("route show --source kernel --nexthop {words}"));
        prefixes(&rows).iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let (one, group_of, plain) = ("192.0.2.0/24", "198.51.100.0/24", "100.64.0.0/10");
    assert_eq!(found("10.0.2.2"), [plain, one, group_of]);
    assert_eq!(found("10.0.1.2"), [group_of]);
    assert_eq!(found("object:17"), [one, group_of]);
    assert_eq!(found("object:24"), [group_of]);
    assert_eq!(found(&all[0]["nexthop"].to_string()), [one]);
    let by_r0 = found("r0");
    assert!(by_r0.contains(&group_of.to_owned()) && !by_r0.contains(&one.to_owned()), "{by_r0:?}");
    assert_eq!(found("dev:r0"), by_r0);
    assert!(found("object:99").is_empty());

    // A group shows its members, without a flow.
    let answer: Value = router.ask("route get 198.51.100.7");
    let shares: Vec<_> = (answer["group"]["members"].as_array().unwrap().iter())
        .map(|m| (m["gateway"].as_str().unwrap(), m["interface"].as_str().unwrap(), &m["object"]))
        .collect();
    assert_eq!(shares, [("10.0.1.2", "r0", &json!(18)), ("10.0.2.2", "r1", &json!(17))]);
    let share = |at: usize| answer["group"]["members"][at]["share"].as_f64().unwrap();
    assert!((share(0) - 0.25).abs() < 0.01 && (share(1) - 0.75).abs() < 0.01, "{answer}");
    let text = fingerpost(&line, "route get 198.51.100.7");
    assert!(text.contains("weight 1 object 24\n") && text.contains(" 75.0%  "), "{text}");
    assert!(fingerpost(&line, "route get 192.0.2.1").contains("via 10.0.2.2 dev r1 object 17\n"));
    assert!(fingerpost(&line, "nexthop show").lines().any(|row| {
        row.split_whitespace().skip(1).take(4).eq(["object", "17", "r1", "10.0.2.2"])
    }));
    let groups: Value = router.ask("group show");
    assert_eq!((&groups[0]["object"], groups.as_array().unwrap().len()), (&json!(24), 1));

    // An object that changes takes its routes along, and is reported with the time.
    let since = rows(&line, "monitor --since 0 --count 1")[0]["sequence"].as_u64().unwrap() - 1;
    let before = fingerpost(&line, "monitor --json --count 1");
    let before: Value = serde_json::from_str(&before).unwrap();
    let last = before["sequence"].as_u64().unwrap();
    ip(&format!("-n {r} nexthop replace id 17 via 10.0.2.9 dev r1"));
    wait_for("the object leads elsewhere", || found("10.0.2.9").contains(&one.to_owned()));
    assert_eq!(found("10.0.2.2"), [plain]);
    ip(&format!("-n {r} nexthop del id 30"));
    let events = |count: u64| {
        let from = fingerpost(&line, "monitor --json --count 1");
        let from: Value = serde_json::from_str(&from).unwrap();
        let there = from["sequence"].as_u64().unwrap() - last;
        rows(&line, &format!("monitor --since {last} --count {}", there.min(count)))
    };
    let of = |rows: &[Value], event: &str| -> Vec<Value> {
        rows.iter().filter(|row| row["event"] == event).cloned().collect()
    };
    wait_for("the object is gone", || of(&events(1000), "object").len() >= 2);
    let objects = of(&events(1000), "object");
    let change = &objects[0];
    assert_eq!((&change["done"], &change["object"]), (&json!("changed"), &json!(17)));
    assert_eq!(change["source"], "kernel");
    let led = |row: &Value, word: &str| row[word]["paths"][0]["gateway"].clone();
    assert_eq!([led(change, "old"), led(change, "new")], [json!("10.0.2.2"), json!("10.0.2.9")]);
    assert_eq!((&objects[1]["done"], &objects[1]["object"]), (&json!("deleted"), &json!(30)));

    // So are links, and what becomes of interfaces.
    ip(&format!("-n {} link set s0 down", line.source));
    wait_for("r0 is down", || of(&events(1000), "link").iter().any(|e| e["up"] == false));
    ip(&format!("-n {} link set s0 up", line.source));
    ip(&format!("-n {r} link add br0 type bridge"));
    ip(&format!("-n {r} link set r0 master br0"));
    wait_for("r0 is released", || {
        of(&events(1000), "interface").iter().any(|e| e["done"] == "released")
    });
    ip(&format!("-n {r} link set r0 nomaster"));
    wait_for("r0 is taken over again", || {
        of(&events(1000), "interface").iter().any(|e| e["done"] == "taken_over")
    });
    let all = events(1000);
    let link = of(&all, "link").into_iter().find(|event| event["interface"] == "r0").unwrap();
    assert_eq!((&link["done"], &link["up"]), (&json!("changed"), &json!(false)));
    let taken = of(&all, "interface").into_iter().find(|e| e["done"] == "taken_over").unwrap();
    assert_eq!((&taken["interface"], &taken["path"]), (&json!("r0"), &json!("afxdp")));

    // Every line has a time, which is that of today.
    let is_time = |text: &str| {
        let shape: String =
            text.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
        shape == "0000-00-00T00:00:00.000Z"
    };
    let day = run(r, "date -u +%Y-%m-%d");
    let today = |text: &str| is_time(text) && text[..4] == day[..4];
    let history = rows(&line, &format!("monitor --since {since} --count 20"));
    for row in all.iter().chain(&history).chain([&before]) {
        assert!(today(row["time"].as_str().unwrap()), "{row}");
    }
    let text = fingerpost(&line, &format!("monitor --since {last} --count {}", all.len()));
    for row in text.lines() {
        assert!(today(row.split_whitespace().nth(1).unwrap()), "{row}");
    }
    assert!(text.contains("changed   object 17 kernel was via 10.0.2.2 dev r1 is via 10.0.2.9"));
    assert!(text.contains("released  interface r0"), "{text}");
    for row in router.said() {
        let (time, rest) = row.split_once(' ').unwrap();
        assert!(today(time) && rest.starts_with("fingerpost: "), "{row}");
    }
    router.stop();
}

#[test]
fn routes_of_frr_are_readable() {
    let Some(line) = Line::new(&[]) else { return };
    let routes = "ip route 192.0.2.0/24 10.0.2.2\n\
                  ip route 198.51.100.0/24 10.0.1.2\nip route 198.51.100.0/24 10.0.2.2\n";
    let Some(frr) = Frr::start(&line.router, "", &[("staticd", routes, &[])]) else { return };
    frr.wait_for_routes("static", 2, Duration::from_secs(20));
    let router = Router::start(&line.router, "--path graph", 2);
    // zebra installs a route by its first next hop, and by both a moment later.
    let until = Instant::now() + Duration::from_secs(10);
    let text = loop {
        let text = fingerpost(&line, "route show --source kernel");
        if text.contains(" weight 1 ") || Instant::now() > until {
            break text;
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    let says = |text: &str, prefix: &str, words: &str| {
        let row = text.lines().find(|row| row.starts_with(&format!("* {prefix} ")));
        let row = row.unwrap_or_else(|| panic!("no {prefix}: {text}")).to_owned();
        assert!(row.contains(words) && row.contains(" object "), "{row}");
    };
    says(&text, "192.0.2.0/24", " via 10.0.2.2 dev r1 ");
    says(&text, "198.51.100.0/24", " via 10.0.1.2 dev r0 weight 1 ");
    says(&text, "198.51.100.0/24", " via 10.0.2.2 dev r1 weight 1 ");
    let found = |words: &str| {
        let rows = rows(&line, &format!("route show --source kernel --nexthop {words}"));
        rows.iter().filter(|row| row["kind"] == "object").count()
    };
    assert_eq!((found("10.0.2.2"), found("10.0.1.2"), found("r1")), (2, 1, 2));
    let answer: Value = router.ask("route get 198.51.100.7");
    let members = answer["group"]["members"].as_array().unwrap();
    assert_eq!(members.len(), 2);
    assert!(members.iter().all(|m| m["share"] == 0.5 && m["object"].is_u64()), "{answer}");

    // A route that comes later is as readable; what goes is gone.
    frr.vtysh(&["conf t", "ip route 203.0.113.0/24 10.0.1.2", "no ip route 192.0.2.0/24 10.0.2.2"]);
    frr.wait_for_routes("static", 2, Duration::from_secs(20));
    wait_for("the change of FRR", || found("10.0.1.2") == 2 && found("10.0.2.2") == 1);
    says(&fingerpost(&line, "route show"), "203.0.113.0/24", " via 10.0.1.2 dev r0 ");
    drop(frr);
    router.stop();
}
