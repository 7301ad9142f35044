//! Neighbors that commands set, change and take back, and the notices that listeners get.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{Lab, ip, rows};

/// FreeBSD's test_rtsock_lladdr.c from outside: entries of users come, change and go, with notices.
#[test]
fn neighbors_are_set_and_taken_back() {
    let Some(lab) = Lab::new("neigh", &[]) else { return };
    let first = lab.json("monitor --count 1")["sequence"].as_u64().unwrap();
    let row = |addr: &str| {
        let rows = lab.json("neighbor show");
        rows.as_array().unwrap().iter().find(|row| row["addr"] == addr).cloned()
    };
    let mac = |addr: &str| lab.json(&format!("route get {addr}"))["adjacency"]["dst_mac"].clone();
    for (addr, far) in
        [("10.0.1.77", "192.0.2.9"), ("fd01::77", "2001:db8:7::9"), ("fe80::77", "2001:db8:8::9")]
    {
        let prefix =
            if addr.contains('.') { "192.0.2.0/24".into() } else { far.replace("::9", "::/48") };
        lab.text(&format!("route add {prefix} via {addr} dev r0"));
        assert_eq!(mac(far), Value::Null);
        let words = |mac: &str| format!("{addr} lladdr {mac} dev r0");
        assert_eq!(
            lab.text(&format!("neighbor add {}", words("02:00:00:00:00:07"))),
            format!("added {addr} dev r0: 02:00:00:00:00:07 permanent by command\n")
        );
        assert_eq!(mac(far), "02:00:00:00:00:07", "packets go there when the command returns");
        if addr != "fe80::77" {
            assert_eq!(mac(addr), "02:00:00:00:00:07", "to the station itself, too");
        }
        let want = json!({"addr": addr, "interface": "r0", "mac": "02:00:00:00:00:07",
            "state": "permanent", "source": "command"});
        assert_eq!(row(addr), Some(want));
        let (code, said) = lab.refused(&format!("neighbor add {}", words("02:00:00:00:00:08")));
        assert!(code == 1 && said.contains("exists on r0, at 02:00:00:00:00:07"), "{said}");
        let changed = lab.json(&format!("neighbor replace {}", words("02:00:00:00:00:08")));
        assert_eq!(
            (&changed["done"], &changed["now"]["mac"]),
            (&"changed".into(), &"02:00:00:00:00:08".into())
        );
        assert_eq!(mac(far), "02:00:00:00:00:08");
    }

    // The kernel's own entry of the same station waits below, and holds again.
    ip(&format!("-n {} neigh add 10.0.1.77 lladdr 02:00:00:00:00:99 dev r0", lab.router));
    ip(&format!("-n {} neigh add 10.0.1.99 lladdr 02:00:00:00:00:99 dev r0", lab.router));
    let until = Instant::now() + Duration::from_secs(5);
    while row("10.0.1.99").is_none() {
        assert!(Instant::now() < until, "the kernel's entry did not come");
    }
    assert_eq!(mac("192.0.2.9"), "02:00:00:00:00:08");
    assert_eq!(
        lab.text("neighbor del 10.0.1.77 dev r0"),
        "deleted 10.0.1.77 dev r0: 02:00:00:00:00:99 permanent by kernel\n"
    );
    assert_eq!(mac("192.0.2.9"), "02:00:00:00:00:99");
    assert_eq!(lab.text("neighbor del fd01::77 dev r0"), "deleted fd01::77 dev r0\n");
    assert_eq!(mac("2001:db8:7::9"), Value::Null);

    // The kernel may learn one of its own meanwhile, from what a host sends of itself.
    let set = || -> Vec<Value> {
        let rows = lab.json("neighbor show");
        let rows = rows.as_array().expect("rows").iter();
        rows.filter(|row| row["state"] == "permanent").cloned().collect()
    };
    let before = set();
    for (words, code, want) in [
        ("add 10.0.1.3 lladdr 2:0:0:0:0:1 dev r9", 1, "unknown interface `r9`, did you mean `r0`?"),
        ("add 10.0.1.3 lladdr 2:0:0:0:0:1 dev lo", 1, "lo has no Ethernet addresses"),
        ("add 10.0.1.3 lladdr 1:0:5e:0:0:1 dev r0", 1, "01:00:5e:00:00:01 is a group's"),
        ("add 10.0.1.3 lladdr 0:0:0:0:0:0 dev r0", 1, "is all zero"),
        ("add 10.0.1.1 lladdr 2:0:0:0:0:1 dev r0", 1, "10.0.1.1 is this host's own"),
        ("add fd01::1 lladdr 2:0:0:0:0:1 dev r0", 1, "fd01::1 is this host's own"),
        ("add 10.0.1.255 lladdr 2:0:0:0:0:1 dev r0", 1, "is no address of a host"),
        ("add ::ffff:10.0.1.3 lladdr 2:0:0:0:0:1 dev r0", 1, "wrong family: write 10.0.1.3"),
        ("replace ff02::1 lladdr 2:0:0:0:0:1 dev r0", 1, "is no address of a host"),
        ("del 10.0.1.3 dev r0", 1, "10.0.1.3: no such neighbor on r0"),
        ("del 10.0.1.99 dev r0", 1, "the kernel's own is for it to delete"),
        ("add 10.0.1.3 dev r0", 2, "where is it? `lladdr MAC` is needed"),
        ("add 10.0.1.3 lladdr 2:0:0:0:0:1", 2, "on which interface?"),
        ("add 10.0.1 lladdr 2:0:0:0:0:1 dev r0", 2, "`10.0.1` is no address"),
    ] {
        let (exit, said) = lab.refused(&format!("neighbor {words}"));
        assert!(exit == code && said.contains(want), "{words}: {exit} {said}");
    }
    let body = |action: &str, addr: &str, mac: &str| {
        format!("{{\"action\":\"{action}\",\"addr\":\"{addr}\",\"dev\":\"r0\"{mac}}}")
    };
    for (body, status, place) in [
        (body("add", "10.0.1.3", ""), 400, "mac"),
        (body("add", "10.0.1.3", ",\"mac\":\"x\""), 400, "mac"),
        (body("add", "10.0.1.3", ",\"mac\":\"ff:ff:ff:ff:ff:ff\""), 400, "mac"),
        (body("add", "10.0.1.3/32", ",\"mac\":\"2:0:0:0:0:1\""), 400, "addr"),
        (body("add", "10.0.1.1", ",\"mac\":\"2:0:0:0:0:1\""), 422, "addr"),
        (body("add", "fe80::77", ",\"mac\":\"2:0:0:0:0:1\""), 409, "addr"),
        (body("delete", "fe80::77", ",\"mac\":\"2:0:0:0:0:1\""), 400, "mac"),
        (body("delete", "10.0.1.3", ""), 404, "addr"),
        (body("remove", "10.0.1.3", ""), 400, "body"),
    ] {
        let (got, answer) = lab.http("POST", "/v1/neighbors", &body);
        assert_eq!((got, &answer["error"]["where"]), (status, &place.into()), "{body}");
    }
    assert_eq!(set(), before, "nothing was changed");

    // Down, up, and gone for good.
    ip(&format!("-n {} link set r0 down", lab.router));
    let wait = |want: Option<&str>| {
        let until = Instant::now() + Duration::from_secs(5);
        while row("fe80::77").as_ref().map(|row| row["state"].as_str().unwrap()) != want {
            assert!(Instant::now() < until, "waited for {want:?}: {:?}", row("fe80::77"));
        }
    };
    wait(Some("suspended"));
    ip(&format!("-n {} link set r0 up", lab.router));
    wait(Some("permanent"));
    ip(&format!("-n {} link del r0", lab.router));
    wait(None);
    // Somebody who listens from the beginning has seen it all.
    let last = lab.json("monitor --count 1")["sequence"].as_u64().unwrap();
    let count = last - first;
    let seen = rows(&lab.text(&format!("monitor --json --since {first} --count {count}")));
    let of = |event: &Value| {
        let word = |field: &str| event[field].as_str().unwrap_or("-").to_owned();
        assert_eq!(event["interface"], "r0");
        ["done", "addr", "mac", "state"].map(word).join(" ")
    };
    let neighbors: Vec<String> =
        seen.iter().filter(|event| event["event"] == "neighbor").map(of).collect();
    let mut want = Vec::new();
    for addr in ["10.0.1.77", "fd01::77", "fe80::77"] {
        want.push(format!("added {addr} 02:00:00:00:00:07 permanent"));
        want.push(format!("changed {addr} 02:00:00:00:00:08 permanent"));
    }
    want.extend(["10.0.1.77", "fd01::77"].map(|a| format!("deleted {a} 02:00:00:00:00:08 -")));
    // The other end of a pair goes down a moment before this one vanishes.
    for words in [
        "changed fe80::77 02:00:00:00:00:08 suspended",
        "changed fe80::77 02:00:00:00:00:08 permanent",
    ] {
        want.push(words.into());
    }
    assert_eq!(neighbors[..want.len()], want);
    assert_eq!(neighbors.last().unwrap(), "deleted fe80::77 02:00:00:00:00:08 -");
    let text = lab.text(&format!("monitor --since {first} --count {count}"));
    let line = " added     neighbor 10.0.1.77 lladdr 02:00:00:00:00:07 dev r0 permanent\n";
    assert!(text.contains(line), "{text}");
    lab.end();
}
