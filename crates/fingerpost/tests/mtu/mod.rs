//! The MTU of a route, from the command that sets it to the adjacency that its packets take.

use std::time::{Duration, Instant};

use serde_json::Value;

use super::{Lab, ip};

#[test]
fn a_route_may_have_an_mtu_of_its_own() {
    let Some(lab) = Lab::new("mtu", &[]) else { return };
    let get = |addr: &str| lab.json(&format!("route get {addr}"));
    let mtus = |addr: &str| {
        let answer = get(addr);
        (answer["candidates"][0]["mtu"].clone(), answer["adjacency"]["mtu"].clone())
    };
    // The column of `nexthop show` and of the members of `group show`, by gateway.
    let shown = |what: &str, gateway: &str| {
        let rows = lab.json(&format!("{what} show"));
        let rows = if what == "group" { rows[0]["members"].clone() } else { rows };
        let rows = rows.as_array().unwrap().clone();
        let of = |row: &&Value| row["gateway"] == gateway;
        let mut mtus: Vec<u64> =
            rows.iter().filter(of).map(|r| r["mtu"].as_u64().unwrap()).collect();
        mtus.sort_unstable();
        mtus
    };
    // An adjacency has an MTU once its neighbor is known.
    let until = Instant::now() + Duration::from_secs(5);
    for last in [2, 3] {
        let mac = format!("lladdr 02:00:00:00:00:0{last}");
        ip(&format!("-n {} neigh replace 10.0.1.{last} {mac} dev r0", lab.router));
        while !lab.text("neighbor show").contains(&format!("02:00:00:00:00:0{last}")) {
            assert!(Instant::now() < until, "{}", lab.text("neighbor show"));
        }
    }
    assert_eq!(
        lab.text("route add 192.0.2.0/24 via 10.0.1.2 mtu 1400"),
        "added 192.0.2.0/24: via 10.0.1.2 mtu 1400\n"
    );
    assert_eq!(mtus("192.0.2.9"), (1400.into(), 1400.into()));
    assert!(lab.text("route get 192.0.2.9").contains("MTU 1400"));
    let listed = lab.text("route show --source command");
    assert!(listed.contains("via 10.0.1.2 mtu 1400\n"), "{listed}");
    assert!(shown("nexthop", "10.0.1.2").contains(&1400));
    // Never more than the link carries.
    lab.text("route change 192.0.2.0/24 via 10.0.1.2 mtu 9000");
    assert_eq!(mtus("192.0.2.9"), (9000.into(), 1500.into()));
    assert_eq!(shown("nexthop", "10.0.1.2").last(), Some(&1500));
    // What is appended, and a change of something else, keep it.
    lab.text("route change 192.0.2.0/24 via 10.0.1.2 mtu 1300");
    lab.text("route append 192.0.2.0/24 via 10.0.1.3");
    lab.text("route change 192.0.2.0/24 via 10.0.1.3 weight 3");
    assert_eq!(get("192.0.2.9")["candidates"][0]["mtu"], 1300);
    assert_eq!([shown("group", "10.0.1.2"), shown("group", "10.0.1.3")], [[1300], [1300]]);
    lab.text("route change 192.0.2.0/24 via 10.0.1.3 mtu 0");
    assert_eq!(shown("group", "10.0.1.3"), [1500]);
    lab.text("route replace 192.0.2.0/24 via 10.0.1.2");
    assert_eq!(mtus("192.0.2.9"), (Value::Null, 1500.into()));
    // One of the kernel.
    ip(&format!("-n {} route add 203.0.113.0/24 via 10.0.1.2 mtu 1200", lab.router));
    let until = Instant::now() + Duration::from_secs(5);
    while !lab.run("route get 203.0.113.1").status.success() {
        assert!(Instant::now() < until, "the kernel's route did not come");
    }
    assert_eq!(mtus("203.0.113.1"), (1200.into(), 1200.into()));
    lab.end();
}
