//! Routes of FRR's bgpd by BMP: the best path of its peers, their loss, and a daemon that comes back.
//!
//! Two BIRDs announce routes to a bgpd beside the router, which sends to it what it has from both.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use fingerpost_tests::bird::{Bird, speaker};
use fingerpost_tests::configuration::Configuration;
use fingerpost_tests::frr::Frr;
use fingerpost_tests::netns::{Line, Router, ip};
use fingerpost_tests::patience;
use serde_json::Value;

/// Routes of the first peer; the second one has the later half of them, and as many more.
const ROUTES: u32 = 2_000;

/// Longest time until the routes are those of the peers.
const LONGEST: Duration = Duration::from_secs(60);

const CONFIG: &str = "[[source]]\nkind = \"kernel\"\n[[source]]\nkind = \"bmp\"\nsweep_s = 5\n";

/// Gateway of each prefix.
type Routes = BTreeMap<String, String>;

fn prefixes(numbers: std::ops::Range<u32>) -> impl Iterator<Item = String> {
    numbers.map(|n| format!("100.{}.{}.0/24", 64 + n / 256, n % 256))
}

/// bgpd with both peers, which it reports.
fn bgpd() -> &'static str {
    "router bgp 65000\n bgp router-id 10.255.0.1\n no bgp ebgp-requires-policy\n \
     neighbor 10.0.2.2 remote-as 65001\n neighbor 10.0.2.2 timers connect 1\n \
     neighbor 10.0.1.2 remote-as 65002\n neighbor 10.0.1.2 timers connect 1\n \
     bmp targets fingerpost\n  bmp connect 127.0.0.1 port 11019 min-retry 100 max-retry 1000\n  \
     bmp monitor ipv4 unicast post-policy\n exit\n"
}

/// The peer in the place of the destination.
fn first(line: &Line) -> Bird {
    let sessions = [("10.0.2.2", "10.0.2.1")];
    Bird::start(&line.destination, &speaker(prefixes(0..ROUTES), &sessions))
}

/// The peer in the place of the source, whose paths are longer.
fn second(line: &Line) -> Bird {
    let sessions = [("10.0.1.2", "10.0.1.1")];
    let text = speaker(prefixes(ROUTES / 2..ROUTES * 3 / 2), &sessions)
        .replace("router id 10.255.0.2", "router id 10.255.0.3")
        .replace("as 65001", "as 65002")
        .replace("export all", "export filter { bgp_path.prepend(65002); accept; }");
    Bird::start(&line.source, &text)
}

fn expected(of: [std::ops::Range<u32>; 2]) -> Routes {
    let [first, second] = of;
    let by = |gateway: &'static str| move |prefix: String| (prefix, gateway.to_owned());
    // Those of the first peer replace the others.
    prefixes(second).map(by("10.0.1.2")).chain(prefixes(first).map(by("10.0.2.2"))).collect()
}

fn wait_for(router: &Router, what: &str, want: &Routes) {
    let until = Instant::now() + patience(LONGEST);
    loop {
        let rows: Vec<Value> = router.ask_lines("route show --source bmp");
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let row = |row: &Value| (text(&row["prefix"]), text(&row["paths"][0]["gateway"]));
        let have: Routes = rows.iter().map(row).collect();
        if have == *want {
            return;
        }
        let other = have.iter().find(|(prefix, hop)| want.get(*prefix) != Some(hop));
        assert!(
            Instant::now() < until,
            "{what}: {} routes of {}, {other:?} {:#?}",
            have.len(),
            want.len(),
            router.said()
        );
        std::thread::sleep(Duration::from_millis(200));
    }
}

fn source(router: &Router) -> Value {
    let all: Vec<Value> = router.ask("source show");
    all.into_iter().find(|source| source["name"] == "bmp").unwrap_or(Value::Null)
}

#[test]
fn the_best_paths_of_two_peers_are_the_routes() {
    let Some(line) = Line::new(&["bird", "birdc"]) else { return };
    ip(&format!("-n {} link set lo up", line.router));
    let config = Configuration::new(&line.router, CONFIG);
    let router =
        Router::start(&line.router, &format!("{} --path graph", config.path().display()), 2);
    let mut near = first(&line);
    let _far = second(&line);
    let options: &[&str] = &["-M", "bmp", "-p", "179"];
    let Some(mut frr) = Frr::start(&line.router, "", &[("bgpd", bgpd(), options)]) else { return };

    let (all, half) = (ROUTES, ROUTES / 2);
    wait_for(&router, "both peers", &expected([0..all, half..all + half]));
    assert_eq!(source(&router)["errors"], 0, "{:#?}", source(&router));

    // Its routes go with a peer, and those of the other one take their place.
    near.kill();
    drop(near);
    wait_for(&router, "the second peer", &expected([0..0, half..all + half]));
    let mut near = first(&line);
    wait_for(&router, "both peers again", &expected([0..all, half..all + half]));

    // bgpd is gone: its routes stay. It comes back with fewer, and the others go.
    frr.kill("bgpd");
    near.kill();
    std::thread::sleep(Duration::from_secs(1));
    wait_for(&router, "the routes of before", &expected([0..all, half..all + half]));
    frr.restart("bgpd", bgpd(), options);
    wait_for(&router, "the second peer alone", &expected([0..0, half..all + half]));
    let said = source(&router);
    assert_eq!((&said["resyncs"], &said["in_sync"]), (&1.into(), &true.into()), "{said:#}");
    drop(frr);
    router.stop();
}
