//! A cluster whose members are in a real store: nodes join and leave, the store goes and comes back, and packets leave by
//! adjacencies that the nodes announced there.
//!
//! The store is in the namespace of the switch, and the nodes reach it by an interface that the routers leave alone.

use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use fingerpost_tests::netns::{Router, command};
use fingerpost_tests::rack::{Built, Rack, STORE, packets, ping, wait_for};
use fingerpost_tests::traffic::Traffic;
use fingerpost_tests::{patience, program_of_all_features, skip};

/// Sender and receiver of numbered packets.
const TRANSFER: &str = env!("CARGO_BIN_EXE_transfer");

/// Packets a second.
const RATE: u64 = 1_000;

/// A server of a store. Killed when dropped.
struct Server {
    kind: &'static str,
    namespace: String,
    data: PathBuf,
    child: Option<Child>,
}

impl Server {
    fn new(kind: &'static str, rack: &Rack) -> Self {
        let data = std::env::temp_dir().join(format!("{}.store", rack.switch));
        let namespace = rack.switch.clone();
        let mut server = Self { kind, namespace, data, child: None };
        server.start();
        server
    }

    fn start(&mut self) {
        let data = self.data.display();
        let words = match self.kind {
            "etcd" => format!(
                "etcd --data-dir {data} --listen-client-urls http://{STORE}:2379 --advertise-client-urls \
                 http://{STORE}:2379 --listen-peer-urls http://127.0.0.1:2380 --initial-advertise-peer-urls \
                 http://127.0.0.1:2380 --initial-cluster default=http://127.0.0.1:2380"
            ),
            _ => format!("nats-server --addr {STORE} --port 4222 --jetstream --store_dir {data}"),
        };
        let mut command = command(&self.namespace, &words);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        self.child = Some(command.spawn().expect("the tool was found before"));
    }

    fn stop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
        let _ = std::fs::remove_dir_all(&self.data);
    }
}

/// A rack whose members are in a store, and the store; `None`, with a skip line, where one of both is missing.
fn rack(kind: &'static str, tool: &str, nodes: usize) -> Option<(Rack, Server)> {
    let keys = "ttl_s = 2".to_owned();
    let built = Built { keys, store: Some(kind), ..Built::of(nodes) };
    let mut rack = Rack::new(&["ping", tool], built)?;
    let lacks = |rack: &Rack| rack.check(0).contains("cargo feature");
    if lacks(&rack)
        && let Some(program) = program_of_all_features()
    {
        rack.program = program;
    }
    if lacks(&rack) {
        skip(&format!("a build with the feature {kind}"));
        return None;
    }
    let server = Server::new(kind, &rack);
    Some((rack, server))
}

/// Waits until a node has so many members, with all links up.
fn wait_for_members(router: &Router, count: usize) {
    wait_for(router, &format!("{count} members with links"), |status| {
        let members = status["members"].as_array().expect("members");
        let mut links = members.iter().map(|member| &member["link"]).filter(|link| !link.is_null());
        members.len() == count && links.all(|link| link["up"] == true)
    });
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
    join_and_lose_the_store("nats", "nats-server", 8);
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
