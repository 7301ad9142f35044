//! Routes of a cluster by iBGP: two of four nodes are FRR route reflectors, and the sessions cross the fabric.
//!
//! A BIRD behind node 4 announces a table by a session with node 3, so by a port of another node. The nodes keep the next
//! hop as it is, and find the node that it is behind by connected prefixes. `cargo xtask soak reflectors` announces a whole
//! Internet table.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use fingerpost_lpm::Prefix;
use fingerpost_tests::bird::{Bird, speaker};
use fingerpost_tests::frr::Frr;
use fingerpost_tests::netns::Router;
use fingerpost_tests::rack::{Built, Rack};
use fingerpost_tests::traffic::{own_every_address, to_random};
use fingerpost_tests::{skip, soak, tables};

/// Sender and receiver of numbered packets.
const TRANSFER: &str = env!("CARGO_BIN_EXE_transfer");

/// Internet table of the soak.
const TABLE: &str = "v4-tier1-nh496.txt.xz";

/// Flows from each node, each to the first address of a prefix chosen at random.
const FLOWS: usize = 300;

/// Prefixes that the rack uses itself.
const OWN: [&str; 3] = ["10.0.0.0/8", "192.0.2.0/24", "127.0.0.0/8"];

/// bgpd of a node: sessions to the two reflectors, nodes 1 and 2, and one with AS 65100 at `outside`. Next hops stay as they
/// are: each node finds the one that they are behind by its connected prefixes.
fn bgpd(node: usize, nodes: usize, outside: &str) -> String {
    let mut text = format!(
        "router bgp 65000\n bgp router-id 192.0.2.{node}\n no bgp ebgp-requires-policy\n timers bgp 1 30\n \
         neighbor {outside} remote-as 65100\n neighbor {outside} ebgp-multihop 4\n \
         neighbor {outside} update-source 192.0.2.{node}\n"
    );
    let reflects = node <= 2;
    let peers: Vec<usize> =
        (1..=nodes).filter(|&peer| peer != node && (reflects || peer <= 2)).collect();
    for peer in &peers {
        text += &format!(
            " neighbor 192.0.2.{peer} remote-as 65000\n neighbor 192.0.2.{peer} update-source 192.0.2.{node}\n"
        );
    }
    text += " address-family ipv4 unicast\n  redistribute connected route-map outside\n";
    for peer in &peers {
        if reflects && *peer > 2 {
            text += &format!("  neighbor 192.0.2.{peer} route-reflector-client\n");
        }
    }
    text + " exit-address-family\nroute-map outside permit 10\n match interface x0\n"
}

/// Prefixes that the speaker announces: some thousand, or those of an Internet table.
fn prefixes() -> Option<Vec<Prefix<u32>>> {
    if soak(Duration::ZERO).is_zero() {
        let made = (0..2_000).map(|i| Prefix::masked((100 << 24 | 64 << 16) + (i << 8), 24));
        return Some(made.collect());
    }
    let path = tables::data().join(TABLE);
    if !path.exists() {
        skip(TABLE);
        return None;
    }
    let own = OWN.map(|own| own.parse::<Prefix<u32>>().expect("a prefix"));
    let apart = |prefix: &Prefix<u32>| {
        prefix.len() > 0
            && own.iter().all(|own| !own.contains(prefix.addr()) && !prefix.contains(own.addr()))
    };
    let table = tables::read::<u32>(&path);
    Some(table.into_iter().map(|(prefix, _)| prefix).filter(apart).collect())
}

/// Prefixes of the routes that a node has from the kernel, as text.
fn known(router: &Router) -> HashSet<String> {
    #[derive(serde::Deserialize)]
    struct Row {
        prefix: String,
    }
    let rows: Vec<Row> = router.ask_lines("route show");
    rows.into_iter().map(|row| row.prefix).collect()
}

#[test]
fn routes_come_by_route_reflectors_over_the_fabric() {
    let Some(prefixes) = prefixes() else { return };
    let Some(rack) = Rack::new(&["bird"], Built::of(4)) else { return };
    // Routes that the test makes itself would be in FRR's way.
    let routers: Vec<Router> = (0..4).map(|node| rack.start_with(node, 4)).collect();
    let mut reflected = Vec::new();
    for (i, place) in rack.places.iter().enumerate() {
        let outside = if i == 2 { "10.4.0.2" } else { "10.99.0.1" };
        let config = bgpd(i + 1, 4, outside);
        let Some(frr) = Frr::start(&place.namespace, "", &[("bgpd", &config, &[])]) else { return };
        reflected.push(frr);
    }
    let host = &rack.places[3].hosts[0];
    let text = speaker(prefixes.iter().map(Prefix::to_string), &[("10.4.0.2", "192.0.2.3")])
        .replace("as 65001", "as 65100")
        .replace("connect retry time 1;", "multihop; connect retry time 1;");
    let began = Instant::now();
    let _bird = Bird::start(host, &text);
    // The prefixes, and what is connected to the three other nodes.
    let longest = Duration::from_secs(60).max(soak(Duration::ZERO));
    for frr in &reflected {
        frr.wait_for_routes("bgp", prefixes.len() + 3, longest);
    }
    println!(
        "{} prefixes in four kernels after {:.1} s",
        prefixes.len(),
        began.elapsed().as_secs_f64()
    );
    for (router, place) in routers.iter().zip(&rack.places) {
        every_prefix_is_there(router, &place.id, &prefixes, longest);
    }
    println!("in four routers after {:.1} s", began.elapsed().as_secs_f64());

    own_every_address(host, "h0");
    let addrs: Vec<IpAddr> =
        prefixes.iter().map(|prefix| Ipv4Addr::from(prefix.addr() | 1).into()).collect();
    for place in &rack.places[..3] {
        to_random(TRANSFER, [&place.hosts[0], host], &addrs, FLOWS);
    }
}

/// Waits until a node has all prefixes.
fn every_prefix_is_there(router: &Router, id: &str, prefixes: &[Prefix<u32>], longest: Duration) {
    let until = Instant::now() + longest;
    loop {
        let known = known(router);
        let missing = prefixes.iter().filter(|prefix| !known.contains(&prefix.to_string())).count();
        if missing == 0 {
            return;
        }
        assert!(Instant::now() < until, "{id} misses {missing} of {} prefixes", prefixes.len());
        std::thread::sleep(Duration::from_millis(100));
    }
}
