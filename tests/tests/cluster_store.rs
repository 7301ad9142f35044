//! A cluster whose members are in a real store: nodes join and leave, the store goes and comes back, and packets leave by
//! adjacencies that the nodes announced there.
//!
//! The store is in the namespace of the switch, and the nodes reach it by an interface that the routers leave alone.

use std::time::{Duration, Instant};

use fingerpost_tests::faults::wait_for_members;
use fingerpost_tests::netns::Router;
use fingerpost_tests::rack::{Built, Rack, STORE, packets, ping, wait_for};
use fingerpost_tests::store::{self, Server};
use fingerpost_tests::traffic::Traffic;
use fingerpost_tests::{patience, soaks};

/// Sender and receiver of numbered packets.
const TRANSFER: &str = env!("CARGO_BIN_EXE_transfer");

/// Packets a second.
const RATE: u64 = 1_000;

/// A rack whose members are in a store, and the store; `None`, with a skip line, where one of both is missing.
fn rack(kind: &'static str, tool: &str, nodes: usize) -> Option<(Rack, Server)> {
    let keys = "ttl_s = 2".to_owned();
    store::rack(&["ping", tool], Built { keys, store: Some(kind), ..Built::of(nodes) })
}

/// Waits until a host answers another one: routes come with the records.
fn reached(rack: &Rack, from: usize, addr: &str) {
    let until = Instant::now() + patience(Duration::from_secs(20));
    loop {
        let said = ping(&rack.places[from].hosts[0], addr);
        if said.contains("1 received") {
            return;
        }
        assert!(Instant::now() < until, "{from} to {addr}: {said}");
    }
}

fn traffic(rack: &Rack, seconds: u64) -> Traffic {
    let ends = [&*rack.places[0].hosts[0], &*rack.places[1].hosts[0]];
    Traffic::between(TRANSFER, ends, &["10.2.0.2"], (RATE, seconds, 24))
}

fn state_of_store(router: &Router, want: &str) {
    wait_for(router, want, |status| status["store"]["state"] == want);
}

/// The store is stopped for so many seconds at least.
fn join_and_lose_the_store(kind: &'static str, tool: &str, stopped_s: u64) {
    let Some((rack, mut server)) = rack(kind, tool, 4) else { return };
    let routers: Vec<Router> = (0..3).map(|node| rack.start(node)).collect();
    routers.iter().for_each(|router| wait_for_members(router, 3));
    for from in 0..3 {
        for to in (1..=3).filter(|to| *to != from + 1) {
            reached(&rack, from, &format!("10.{to}.0.2"));
            reached(&rack, from, &format!("fd00:{to}:0::2"));
        }
    }

    // Node 2 has announced the neighbor, so that it looks nothing up.
    let until = Instant::now() + patience(Duration::from_secs(20));
    loop {
        let before = ["output", "looked_up"].map(|what| packets(&routers[1], what));
        let counts = traffic(&rack, 1).end();
        let after = ["output", "looked_up"].map(|what| packets(&routers[1], what));
        let [output, looked_up] = [after[0] - before[0], after[1] - before[1]];
        println!("{kind}: {counts:?}: {output} by their adjacency, {looked_up} looked up");
        if output >= counts.sent && looked_up * 10 < counts.sent {
            break;
        }
        assert!(Instant::now() < until, "{counts:?}: {output} and {looked_up}");
    }

    // Fail-static.
    let going = traffic(&rack, stopped_s);
    server.stop();
    state_of_store(&routers[0], "lost");
    let counts = going.end();
    println!("{kind}, stopped for {stopped_s} s: {counts:?}");
    assert!(counts.sent > RATE * stopped_s * 9 / 10, "{counts:?}");
    assert_eq!(counts.lost(), 0, "{counts:?}\n{}", rack.faults(&routers));
    let status: serde_json::Value = routers[0].ask("cluster status");
    assert!(status["store"]["lost_for_s"].as_u64() > Some(stopped_s / 2), "{status:#}");
    assert!(status["store"]["error"].as_str().is_some_and(|why| why.contains(STORE)), "{status:#}");
    assert_eq!(status["members"].as_array().expect("members").len(), 3);

    let going = traffic(&rack, 8);
    server.start();
    for router in &routers {
        wait_for(router, "the store", |status| {
            status["store"]["state"] == "in_sync" && status["store"]["error"].is_null()
        });
    }
    let counts = going.end();
    assert_eq!(counts.lost(), 0, "{counts:?}");

    // A node that cannot reach the store for three TTLs: the others keep it while its links are up.
    let going = traffic(&rack, 9);
    rack.manage(0, "down");
    state_of_store(&routers[0], "lost");
    std::thread::sleep(Duration::from_secs(6));
    rack.manage(0, "up");
    state_of_store(&routers[0], "in_sync");
    let counts = going.end();
    println!("{kind}, node a cut off it: {counts:?}");
    assert_eq!(counts.lost(), 0, "{counts:?}\n{}", rack.faults(&routers));

    // One more.
    let fourth = rack.start(3);
    for router in routers.iter().chain([&fourth]) {
        wait_for_members(router, 4);
    }
    reached(&rack, 0, "10.4.0.2");
    reached(&rack, 3, "10.1.0.2");
    fourth.stop();
    wait_for_members(&routers[0], 3);

    // A second node of that name.
    let own = "node = \"d\"";
    let config = rack.config_of(3).replace(own, "node = \"b\"");
    let config = config.replace("id = \"d\"", "id = \"b\"").replace("peer = \"b\"", "peer = \"d\"");
    rack.set_config(3, &config);
    let twin = rack.begin(3);
    twin.wait_for("a refusal", |said| {
        said.iter().any(|line| line.contains("another node is named b"))
    });
    let counts = traffic(&rack, 1).end();
    assert_eq!(counts.lost(), 0, "{counts:?}");
}

#[test]
fn nodes_join_by_etcd_and_outlive_it() {
    join_and_lose_the_store("etcd", "etcd", 60);
}

#[test]
fn nodes_join_by_nats_and_outlive_it() {
    // The minute is etcd's; for both: `cargo xtask soak cluster`.
    join_and_lose_the_store("nats", "nats-server", if soaks() { 60 } else { 8 });
}

#[test]
fn a_store_that_is_not_there_is_one_clear_error() {
    let Some((rack, mut server)) = rack("etcd", "etcd", 2) else { return };
    server.stop();
    let router = rack.begin(0);
    router.wait_for("an error", |said| {
        said.iter().any(|line| {
            line.contains("this node has no place among the members")
                && line.contains("unreachable")
                && line.contains(&format!("http://{STORE}:2379"))
        })
    });
}

/// Nodes whose store demands TLS and a password: one that has others than the right ones has no place, in words; with these they
/// join, and stay when the store has started again. `refused` is what is wrong in the configuration of a node, and its words.
fn join_a_store_that_is_secured(
    kind: &'static str,
    tool: &str,
    refused: &[(&str, &str, &'static str)],
) {
    let tools = ["ping", "openssl", "curl", tool];
    let built = Built { keys: "ttl_s = 2".to_owned(), store: Some(kind), ..Built::of(2) };
    let Some((rack, mut server)) = store::rack(&tools, built) else { return };
    let right = server.secure(&rack);
    let wrong = server.folder().join("wrong");
    std::fs::write(&wrong, "wrong\n").expect("the folder is there");
    let mut begun = Vec::new();
    for (node, &(from, to, words)) in refused.iter().enumerate() {
        assert!(right[node].contains(from), "{}", right[node]);
        rack.set_config(node, &right[node].replace(from, to));
        begun.push((rack.begin(node), words));
    }
    for (router, words) in begun {
        router.wait_for(words, |said| {
            let no_place = "this node has no place among the members";
            said.iter().any(|line| line.contains(no_place) && line.contains(words))
        });
    }
    for (node, config) in right.iter().enumerate() {
        rack.set_config(node, config);
    }
    let routers: Vec<Router> = (0..2).map(|node| rack.start(node)).collect();
    routers.iter().for_each(|router| wait_for_members(router, 2));
    reached(&rack, 0, "10.2.0.2");
    let going = traffic(&rack, 3);
    server.stop();
    state_of_store(&routers[0], "lost");
    server.start();
    for router in &routers {
        wait_for(router, "the store", |status| {
            status["store"]["state"] == "in_sync" && status["store"]["error"].is_null()
        });
    }
    let counts = going.end();
    assert_eq!(counts.lost(), 0, "{counts:?}\n{}", rack.faults(&routers));
}

#[test]
fn etcd_with_tls_and_a_password_has_the_members() {
    let refused = [
        ("password\"", "wrong\"", "denies access"),
        ("ca.pem\"", "other.pem\"", "invalid peer certificate"),
    ];
    join_a_store_that_is_secured("etcd", "etcd", &refused);
}

#[test]
fn nats_with_tls_and_a_password_has_the_members() {
    join_a_store_that_is_secured("nats", "nats-server", &[]);
}
