//! A cluster as one router from outside, beyond what `cluster.rs` shows: the path MTU, and BGP sessions of both families by
//! any port of nodes with two.

use std::time::{Duration, Instant};

use fingerpost_tests::bird::{Bird, speaker};
use fingerpost_tests::frr::Frr;
use fingerpost_tests::netns::{Router, ip, run};
use fingerpost_tests::rack::{Built, Rack, ping};

#[test]
fn the_path_mtu_behind_another_node_is_found() {
    let Some(rack) = Rack::new(&["ping"], Built::of(3)) else { return };
    let _routers = rack.start_all();
    let (from, to) = (&*rack.places[0].hosts[0], &rack.places[1]);
    ip(&format!("-n {} link set x0 mtu 1300", to.namespace));
    ip(&format!("-n {} link set h0 mtu 1300", to.hosts[0]));
    // Each is the node that the narrow link is at.
    for (addr, node) in [("10.2.0.2", "192.0.2.2"), ("fd00:2:0::2", "fd00::2")] {
        let until = Instant::now() + Duration::from_secs(10);
        loop {
            let said = ping(from, &format!("-M do -s 1400 {addr}"));
            if said.contains("mtu = 1300") || said.contains("mtu=1300") {
                assert!(said.contains(&format!("From {node} ")), "{said}");
                break;
            }
            assert!(Instant::now() < until, "{said}");
        }
        let route = run(from, &format!("ip route get {addr}"));
        assert!(route.contains("mtu 1300"), "{route}");
    }
    // What may be fragmented is: by that node with IPv4, by the host with IPv6.
    for words in [
        "-M do -s 1200 10.2.0.2",
        "-M dont -s 1450 10.2.0.2",
        "-M do -s 1200 fd00:2:0::2",
        "-M want -s 1400 fd00:2:0::2",
    ] {
        let said = ping(from, words);
        assert!(said.contains("1 received"), "{words}: {said}");
    }
}

/// bgpd of a node with sessions of both families to these hosts, whose AS is 65100, and which connect.
fn bgpd(node: usize, outside: &[(String, String)]) -> String {
    let mut text = format!(
        "router bgp 65000\n bgp router-id 192.0.2.{node}\n no bgp ebgp-requires-policy\n timers bgp 1 30\n \
         no bgp default ipv4-unicast\n"
    );
    for (host, family) in outside {
        let source = if family == "ipv6" { "fd00::" } else { "192.0.2." };
        text += &format!(
            " neighbor {host} remote-as 65100\n neighbor {host} ebgp-multihop 4\n \
             neighbor {host} update-source {source}{node}\n neighbor {host} passive\n \
             address-family {family} unicast\n  neighbor {host} activate\n exit-address-family\n"
        );
    }
    text
}

/// Every host of every port has a session of each family with a node that it is not connected to.
#[test]
fn bgp_sessions_of_both_families_come_by_any_port() {
    const NODES: usize = 3;
    const PORTS: usize = 2;
    let built = Built { ports: PORTS, ..Built::of(NODES) };
    let Some(rack) = Rack::new(&["bird", "ping"], built) else { return };
    let _routers: Vec<Router> = rack.start_all();
    let (mut frrs, mut birds) = (Vec::new(), Vec::new());
    for (i, place) in rack.places.iter().enumerate() {
        // Hosts of the next node, by both of its ports.
        let n = (i + 1) % NODES + 1;
        let addrs = |port: usize| {
            [(format!("10.{n}.{port}.2"), "ipv4"), (format!("fd00:{n}:{port}::2"), "ipv6")]
        };
        let outside = (0..PORTS).flat_map(addrs).map(|(host, family)| (host, family.to_owned()));
        let config = bgpd(i + 1, &outside.collect::<Vec<_>>());
        let Some(frr) = Frr::start(&place.namespace, "", &[("bgpd", &config, &[])]) else { return };
        frrs.push(frr);
    }
    for (i, place) in rack.places.iter().enumerate() {
        let (n, node) = (i + 1, (i + NODES - 1) % NODES + 1);
        for (port, host) in place.hosts.iter().enumerate() {
            let own = [format!("10.{n}.{port}.2"), format!("fd00:{n}:{port}::2")];
            let nodes = [format!("192.0.2.{node}"), format!("fd00::{node}")];
            let prefixes = [format!("100.{n}.{port}.0/24"), format!("fd64:{n}:{port}::/48")];
            let sessions = [(&*own[0], &*nodes[0]), (&*own[1], &*nodes[1])];
            let text = speaker(prefixes.into_iter(), &sessions)
                .replace("router id 10.255.0.2", &format!("router id {}", own[0]))
                .replace("as 65001", "as 65100")
                .replace("connect retry time 1;", "multihop; connect retry time 1;");
            birds.push(Bird::start(host, &text));
        }
    }
    let until = Instant::now() + Duration::from_secs(30);
    for (i, frr) in frrs.iter().enumerate() {
        let n = (i + 1) % NODES + 1;
        for port in 0..PORTS {
            for (family, prefix) in [
                ("ipv4", format!("100.{n}.{port}.0/24")),
                ("ipv6", format!("fd64:{n}:{port}::/48")),
            ] {
                let words = format!("show bgp {family} unicast {prefix}");
                loop {
                    let said = frr.vtysh(&[&words]);
                    if said.contains("65100") && said.contains("best") {
                        break;
                    }
                    let sessions = frr.vtysh(&["show bgp summary"]);
                    assert!(Instant::now() < until, "node {}, {prefix}: {said}\n{sessions}", i + 1);
                    std::thread::sleep(Duration::from_millis(100));
                }
            }
        }
    }
}
