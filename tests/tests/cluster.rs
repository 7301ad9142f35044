//! A cluster of routers in network namespaces: one router from outside, and failures of real processes and links.
//!
//! Traffic that must cross a certain node takes the rule `vlb`, which sends it over all nodes alike.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use fingerpost_tests::netns::{Router, conserved, ip, run};
use fingerpost_tests::patience;
use fingerpost_tests::rack::{
    Built, Place, Rack, downs, forwarded_xdp, packets, ping, wait_for, wait_for_links,
};
use fingerpost_tests::traffic::{Counts, Traffic};

/// Sender and receiver of numbered packets.
const TRANSFER: &str = env!("CARGO_BIN_EXE_transfer");

/// Packets a second of the failure tests.
const RATE: u64 = 2_000;

/// Flows of these: destinations behind one node.
const FLOWS: usize = 16;

/// Longest time that a failure may lose packets.
const DETECTION: Duration = Duration::from_millis(50);

/// Four nodes whose traffic crosses all of them.
fn balanced() -> Built {
    Built { keys: "rule = \"vlb\"\nflowlet_ms = 1".to_owned(), ..Built::of(4) }
}

/// Addresses of the host behind node 2, one for each flow from node 1.
fn destinations(rack: &Rack) -> Vec<String> {
    rack.destinations(0, 1, FLOWS)
}

/// Traffic from the host of node 1 to that of node 2 for so many seconds.
fn traffic(rack: &Rack, addrs: &[String], seconds: u64) -> Traffic {
    let addrs: Vec<&str> = addrs.iter().map(String::as_str).collect();
    let ends = [&*rack.places[0].hosts[0], &*rack.places[1].hosts[0]];
    Traffic::between(TRANSFER, ends, &addrs, (RATE, seconds, 24))
}

/// Checks that a failure cost so many packets at most, and that no packet arrived twice, nor one of earlier traffic, whose
/// numbers are the same.
#[track_caller]
fn assert_lost<'a>(
    counts: Counts,
    most: u64,
    rack: &Rack,
    routers: impl IntoIterator<Item = &'a Router>,
) {
    let fine = counts.lost() <= most && counts.twice == 0;
    assert!(fine, "{counts:?}, {most} may be lost\n{}", rack.faults(routers));
}

/// Packets that a failure may cost by itself.
fn most_lost() -> u64 {
    u64::try_from(DETECTION.as_millis()).expect("short") * RATE / 1000
}

/// Packets that one failure may cost where other work delays the threads of probes and workers: the median of several is
/// held to [`most_lost`].
fn most_lost_once() -> u64 {
    most_lost() * 3
}

#[test]
fn four_nodes_of_two_ports_are_one_router_from_outside() {
    let tools = ["ping", "traceroute"];
    let Some(rack) = Rack::new(&tools, Built { ports: 2, ..Built::of(4) }) else { return };
    let routers = rack.start_all();
    let hosts = |place: &Place| (0..).zip(place.hosts.clone()).collect::<Vec<_>>();
    for from in &rack.places {
        for (port, host) in hosts(from) {
            for (n, to) in (1..).zip(&rack.places) {
                for (other, _) in hosts(to) {
                    // Hosts are one hop away, whatever the path through the cluster.
                    if (&from.id, port) != (&to.id, other) {
                        for addr in [format!("10.{n}.{other}.2"), format!("fd00:{n}:{other}::2")] {
                            let said = ping(&host, &addr);
                            assert!(said.contains("ttl=63"), "{} to {addr}: {said}", from.id);
                        }
                    }
                    // Each address of the router answers from each port.
                    let said = ping(&host, &format!("10.{n}.{other}.1"));
                    assert!(said.contains("1 received"), "{} to {}: {said}", from.id, to.id);
                }
                for addr in [format!("192.0.2.{n}"), format!("fd00::{n}")] {
                    let said = ping(&host, &addr);
                    assert!(said.contains("1 received"), "{} to {addr}: {said}", from.id);
                }
            }
        }
    }
    // The cluster is the one hop of traceroute: the port that the packet came in by, of the ingress node.
    for (addr, port) in [("10.3.0.2", "10.1.0.1"), ("fd00:3:0::2", "fd00:1:0::1")] {
        let said = run(&rack.places[0].hosts[0], &format!("traceroute -n -q 1 -w 2 {addr}"));
        let hops: Vec<&str> = said.lines().skip(1).collect();
        let at = |hop: &str| hop.split_whitespace().nth(1).and_then(|at| at.parse::<IpAddr>().ok());
        let hops: Vec<_> = hops.into_iter().map(at).collect();
        assert_eq!(hops, [port.parse().ok(), addr.parse().ok()], "{said}");
    }
    // And that hop reports where a packet ends.
    for addr in ["10.3.0.2", "fd00:3:0::2"] {
        let expired = ping(&rack.places[0].hosts[0], &format!("-t 1 {addr}"));
        assert!(expired.contains("exceeded") || expired.contains("Hop limit"), "{expired}");
    }
    for router in routers {
        router.stop();
    }
}

#[test]
fn a_cut_link_is_avoided() {
    let Some(rack) = Rack::new(&["ping"], Built::of(4)) else { return };
    let routers = rack.start_all();
    let addrs = destinations(&rack);
    let going = traffic(&rack, &addrs, 3);
    std::thread::sleep(Duration::from_secs(1));
    ip(&format!("-n {} link set int-b down", rack.places[0].namespace));
    let counts = going.end();
    println!("cut: {} of {} packets lost", counts.lost(), counts.sent);
    assert_lost(counts, most_lost_once(), &rack, &routers);
    let after = traffic(&rack, &addrs, 2).end();
    assert_lost(after, 0, &rack, &routers);
    assert!(packets(&routers[0], "balanced") > 0, "over the other nodes");
    let said = run(&rack.places[0].namespace, "ip -br link show int-b");
    assert!(said.contains("DOWN"), "{said}");
    ip(&format!("-n {} link set int-b up", rack.places[0].namespace));
    wait_for_links(&routers[0]);
    let direct = packets(&routers[0], "direct");
    let after = traffic(&rack, &addrs, 2).end();
    assert_lost(after, 0, &rack, &routers);
    assert!(packets(&routers[0], "direct") > direct, "by the direct link again");
}

#[test]
fn the_halves_of_a_partition_go_on_and_become_one_again() {
    let Some(rack) = Rack::new(&["ping"], balanced()) else { return };
    let routers = rack.start_all();
    let addrs = destinations(&rack);
    let cut = |state: &str| {
        for (here, there) in [(0, 2), (0, 3), (1, 2), (1, 3)] {
            let (node, peer) = (&rack.places[here].namespace, &rack.places[there].id);
            ip(&format!("-n {node} link set int-{peer} {state}"));
        }
    };
    // Within a half: packets that were on their way over the other one are lost until the failure is detected.
    let going = traffic(&rack, &addrs, 3);
    std::thread::sleep(Duration::from_secs(1));
    cut("down");
    let counts = going.end();
    println!("partition: {} of {} packets lost", counts.lost(), counts.sent);
    assert_lost(counts, most_lost_once(), &rack, &routers);
    let after = traffic(&rack, &addrs, 2).end();
    // The direct link is all that is left: probes that a busy machine delays for too long interrupt it.
    let most =
        if downs(&routers[0], "b") + downs(&routers[1], "a") > 0 { most_lost_once() } else { 0 };
    assert_lost(after, most, &rack, &routers);
    for (from, to) in [(0, 1), (2, 3), (3, 2)] {
        let said = ping(&rack.places[from].hosts[0], &format!("10.{}.0.2", to + 1));
        assert!(said.contains("1 received"), "{from} to {to}: {said}");
    }
    // To the other half: refused at the ingress, and none crosses for ever.
    let said = ping(&rack.places[0].hosts[0], "10.3.0.2");
    assert!(said.contains("0 received"), "{said}");
    let status: serde_json::Value = routers[0].ask("cluster status");
    let members = status["members"].as_array().expect("members");
    let down = members.iter().filter(|member| member["state"] == "down").count();
    assert_eq!(down, 2, "{status:#}");
    cut("up");
    routers.iter().for_each(wait_for_links);
    let said = ping(&rack.places[0].hosts[0], "10.3.0.2");
    assert!(said.contains("1 received"), "{said}");
    let after = traffic(&rack, &addrs, 2).end();
    assert_lost(after, 0, &rack, &routers);
}

#[test]
fn nodes_at_one_switch_take_one_hop_and_a_one_way_link_is_down_at_both_ends() {
    let built = Built { switch: true, keys: "mode = \"direct\"".to_owned(), ..Built::of(3) };
    let Some(rack) = Rack::new(&["ping", "nft", "ethtool"], built) else { return };
    rack.take_in_xdp();
    let routers = rack.start_all();
    let addrs = destinations(&rack);
    let (from, to) = (&*rack.places[0].hosts[0], &*rack.places[1].hosts[0]);
    let before = forwarded_xdp(&routers[0]);
    let counts = traffic(&rack, &addrs, 2).end();
    assert_eq!((counts.lost(), counts.reordered), (0, 0), "{counts:?}");
    assert!(ping(from, "fd00:2:0::2").contains("1 received"));
    let six = Traffic::between(TRANSFER, [from, to], &["[fd00:2:0::2]"], (RATE, 2, 24)).end();
    assert_eq!((six.lost(), six.reordered), (0, 0), "{six:?}");
    // All of it entered the cluster in XDP.
    let (all, in_xdp) = (counts.sent + six.sent, forwarded_xdp(&routers[0]) - before);
    assert!(in_xdp >= all && packets(&routers[0], "direct") >= all, "{in_xdp} of {all} in XDP");
    // Content, order, and one hop counted, there and back.
    for addr in ["10.2.0.2", "fd00:2:0::2"] {
        let words = format!("ping -n -c 20 -i 0.01 -s 1400 -p a53c {addr}");
        let said = run(from, &words);
        let replies: Vec<&str> = said.lines().filter(|line| line.contains("icmp_seq=")).collect();
        assert!(!said.contains("wrong data") && replies.len() == 20, "{said}");
        for (number, reply) in (1..).zip(replies) {
            assert!(reply.contains(&format!("icmp_seq={number} ttl=63 ")), "{said}");
        }
    }
    let status: serde_json::Value = routers[0].ask("cluster status");
    assert_eq!((&status["packets"]["balanced"], packets(&routers[2], "transit")), (&0.into(), 0));
    // The switch passes nothing more from node 1 to node 2: both find the link down, and take the third node.
    let going = traffic(&rack, &addrs, 3);
    std::thread::sleep(Duration::from_secs(1));
    rack.pass_nothing(&[(0, 1)]);
    let counts = going.end();
    println!("one way: {} of {} packets lost", counts.lost(), counts.sent);
    assert_lost(counts, most_lost_once(), &rack, &routers);
    for (router, peer) in [(&routers[0], "b"), (&routers[1], "a")] {
        wait_for(router, "the link that is down", |status| {
            let members = status["members"].as_array().expect("members");
            members.iter().any(|member| member["id"] == peer && member["link"]["up"] == false)
        });
    }
    let after = traffic(&rack, &addrs, 2).end();
    assert_lost(after, 0, &rack, &routers);
    assert!(packets(&routers[2], "transit") > 0);
    routers.into_iter().for_each(|router| conserved(&router.stop()));
}

/// The kernel deletes neighbors and routes of an interface that goes down, in the time of one turn as well.
#[test]
fn a_fabric_interface_that_went_down_gets_its_entries_again() {
    let Some(rack) = Rack::new(&["ping"], Built::of(2)) else { return };
    let routers = rack.start_all();
    routers.iter().for_each(wait_for_links);
    let reached = || ping(&rack.places[0].namespace, "-c 1 -W 1 192.0.2.2").contains("1 received");
    let wait = |what: &str| {
        let until = Instant::now() + patience(Duration::from_secs(20));
        while !reached() {
            assert!(Instant::now() < until, "{what}: {}", rack.faults(&routers));
        }
    };
    wait("at first");
    let at = &rack.places[0].namespace;
    for _ in 0..3 {
        for state in ["down", "up"] {
            ip(&format!("-n {at} link set cluster0 {state}"));
        }
        wait("after it went down");
    }
}

/// `why` at each node of a path, from the frame that the node before sends.
#[test]
fn a_packet_is_explained_from_node_to_node() {
    let Some(rack) = Rack::new(&["ping"], Built::of(3)) else { return };
    let routers = rack.start_all();
    assert!(ping(&rack.places[0].hosts[0], "10.2.0.2").contains("1 received"));
    let why = |node: usize, what: &str| -> (String, String) {
        let answer: serde_json::Value = routers[node].ask(&format!("why {what}"));
        let text = |value: &serde_json::Value| value.as_str().expect("a text").to_owned();
        (text(&answer["verdict"]), text(&answer["dry_run"]["packets"][0]["last"]))
    };
    let before = packets(&routers[0], "direct");
    let (direct, frame) = why(0, "10.2.0.2 --from x0");
    let path = "it is forwarded by int-b; to node b by the direct link int-b: the backlog of the direct link was below";
    assert!(direct.starts_with(path), "{direct}");
    assert_eq!(packets(&routers[0], "direct"), before, "a dry run");
    let left = "it is forwarded by x0; from node a, leaves the cluster here; from node a, which names no adjacency";
    assert_eq!(why(1, &format!("{frame} --from int-a")).0, left);
    // Over the third node.
    ip(&format!("-n {} link set int-b down", rack.places[0].namespace));
    wait_for(&routers[0], "a link that is down", |status| {
        let members = status["members"].as_array().expect("members");
        members.iter().any(|member| member["id"] == "b" && member["link"]["up"] == false)
    });
    let (over, frame) = why(0, "10.2.0.2 --from x0");
    let path = "it is forwarded by int-c; to node b over node c by int-c: the direct link was down";
    assert_eq!(over, path);
    let (transit, frame) = why(2, &format!("{frame} --from int-a"));
    assert_eq!(transit, "it is forwarded by int-b; from node a to node b by int-b");
    let (output, _) = why(1, &format!("{frame} --from int-c"));
    assert_eq!(output, left.replace("node a", "node c"));
}

#[test]
fn frames_of_others_are_dropped_and_counted() {
    let Some(rack) = Rack::new(&["ping", "python3"], Built::of(2)) else { return };
    let routers = rack.start_all();
    // From the far end of an internal link: IP that is in no internal frame, frames of another cluster, and noise.
    let send = "import socket,os\n\
                s=socket.socket(socket.AF_PACKET,socket.SOCK_RAW)\n\
                s.bind(('int-a',0))\n\
                e=bytes.fromhex\n\
                s.send(e('ffffffffffff020000000002')+e('0800')+bytes(46))\n\
                s.send(e('020900010001')+e('020900020200')+e('88b5')+e('00000000')+bytes(40))\n\
                s.send(e('020100010001')+e('020100020200')+e('88b5')+e('00000007')+bytes(40))\n\
                s.send(e('020100010007')+e('020100020200')+e('88b5')+e('00000000')+b'E'+bytes(40))\n";
    // And from a host, at an external interface: an internal frame that would cross the node.
    let outside = "import socket\n\
                   s=socket.socket(socket.AF_PACKET,socket.SOCK_RAW)\n\
                   s.bind(('h0',0))\n\
                   e=bytes.fromhex\n\
                   s.send(e('020100010001')+e('020100020200')+e('88b5')+e('00000000')+b'E'+bytes(40))\n";
    for (namespace, text) in
        [(&rack.places[1].namespace, send), (&rack.places[0].hosts[0], outside)]
    {
        let file = std::env::temp_dir().join(format!("{namespace}.py"));
        std::fs::write(&file, text).expect("the temporary folder");
        run(namespace, &format!("python3 {}", file.display()));
        let _ = std::fs::remove_file(&file);
    }
    wait_for(&routers[0], "counted drops", |status| {
        let drops = status["drops"].as_array().expect("drops");
        let has = |name: &str| drops.iter().any(|drop| drop["reason"] == name);
        let inside = ["fabric_external", "fabric_not_ours", "fabric_malformed", "fabric_phase"];
        inside.iter().chain(&["fabric_internal"]).all(|name| has(name))
    });
    assert!(ping(&rack.places[0].hosts[0], "10.2.0.2").contains("1 received"), "it goes on");
}
