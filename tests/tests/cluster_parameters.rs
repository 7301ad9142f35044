//! Parameters of a cluster in a real store: changed by any node while packets pass, adopted by all, and kept without the store.
//!
//! The store is in the namespace of the switch, and the nodes reach it by an interface that the routers leave alone.

use std::process::{Command, Output};
use std::time::Duration;

use fingerpost_tests::netns::{Router, exec};
use fingerpost_tests::rack::{Built, Rack, STORE, packets, ping, wait_for, wait_for_links};
use fingerpost_tests::store::{self, Server};
use fingerpost_tests::traffic::Traffic;
use serde_json::Value;

/// Sender and receiver of numbered packets.
const TRANSFER: &str = env!("CARGO_BIN_EXE_transfer");

/// Packets a second.
const RATE: u64 = 1_000;

/// What `cluster set` at a node does.
fn set(rack: &Rack, node: usize, words: &str) -> Output {
    let place = &rack.places[node];
    exec(&place.namespace, &format!("{} cluster set {words} --json", rack.program.display()))
}

/// Changes parameters at a node; the state of the cluster as that has it then.
fn made(rack: &Rack, node: usize, words: &str) -> Value {
    let output = set(rack, node, words);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words}: {said}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// Why a change is refused.
fn refused(rack: &Rack, node: usize, words: &str) -> String {
    let output = set(rack, node, words);
    assert!(!output.status.success(), "{words} is made");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Waits until all nodes have this version of the parameters, and know that of all others.
fn adopted(routers: &[Router], version: u64) {
    for router in routers {
        wait_for(router, &format!("version {version}"), |status| {
            let members = status["members"].as_array().expect("members");
            status["parameters"]["version"] == version
                && status["parameters"]["lagging"].as_array().is_some_and(Vec::is_empty)
                && members.iter().all(|member| member["parameters"] == version)
        });
    }
}

fn all(routers: &[Router], what: &str, done: impl Fn(&Value) -> bool) {
    routers.iter().for_each(|router| wait_for(router, what, &done));
}

/// Puts a value at the key of the parameters by the store's own protocol.
fn put(rack: &Rack, kind: &str, value: &str) {
    let script = match kind {
        "etcd" => format!(
            "body='{{\"key\":\"'$(printf fingerpost/1/parameters | base64)'\",\"value\":\"'$(printf '{value}' | base64 -w0)'\"}}'; \
             exec 3<>/dev/tcp/{STORE}/2379; \
             printf 'POST /v3/kv/put HTTP/1.1\\r\\nHost: s\\r\\nConnection: close\\r\\nContent-Length: %d\\r\\n\\r\\n%s' \
             ${{#body}} \"$body\" >&3; cat <&3"
        ),
        _ => format!(
            "exec 3<>/dev/tcp/{STORE}/4222; \
             printf 'CONNECT {{\"verbose\":false}}\\r\\nPUB $KV.fingerpost_1.parameters {}\\r\\n%s\\r\\nPING\\r\\n' '{value}' >&3; \
             sleep 0.5",
            value.len()
        ),
    };
    let arguments = ["netns", "exec", &*rack.switch, "bash", "-c", &script];
    let output = Command::new("ip").args(arguments).output().expect("ip was found before");
    assert!(output.status.success(), "{output:?}");
}

fn traffic(rack: &Rack, seconds: u64) -> Traffic {
    let ends = [&*rack.places[0].hosts[0], &*rack.places[1].hosts[0]];
    Traffic::between(TRANSFER, ends, &["10.2.0.2"], (RATE, seconds, 24))
}

/// Waits until packets pass: routes come with the records.
fn reached(rack: &Rack) {
    let until = std::time::Instant::now() + fingerpost_tests::patience(Duration::from_secs(20));
    while !ping(&rack.places[0].hosts[0], "10.2.0.2").contains("1 received") {
        assert!(std::time::Instant::now() < until, "no reply");
    }
}

fn change_everything(kind: &'static str, tool: &str) {
    let (rate, keys, store) = (Some("1Gbps"), "ttl_s = 2".to_owned(), Some(kind));
    let built = Built { rate, keys, store, ..Built::of(3) };
    let Some((rack, mut server)) = store::rack(&["ping", tool], built) else { return };
    let mut routers: Vec<Router> = (0..3).map(|node| rack.start(node)).collect();
    all(&routers, "3 members", |status| status["members"].as_array().is_some_and(|m| m.len() == 3));
    routers.iter().for_each(wait_for_links);
    reached(&rack);
    // The first node has put those of its file there.
    adopted(&routers, 1);

    let going = traffic(&rack, 40);
    let status = made(&rack, 0, "rule=fixed flowlet_ms=5");
    assert_eq!(status["parameters"]["version"], 2, "{status:#}");
    assert_eq!((&status["rule"], &status["flowlet_ms"]), (&"fixed".into(), &5.into()));
    adopted(&routers, 2);
    all(&routers, "the rule", |status| status["rule"] == "fixed" && status["flowlet_ms"] == 5);

    // Another node, and a mode.
    made(&rack, 1, "mode=direct");
    all(&routers, "the mode", |status| status["mode"] == "direct");
    let before = packets(&routers[0], "balanced");
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(packets(&routers[0], "balanced"), before, "all take the direct link");
    made(&rack, 2, "mode=vlb rule=vlb flowlet_ms=0");
    all(&routers, "the mode", |status| status["mode"] == "vlb" && status["rule"] == "vlb");
    let transit = packets(&routers[2], "transit");
    wait_for(&routers[2], "transit", |status| {
        status["packets"]["transit"].as_u64() > Some(transit + 50)
    });

    // A node is drained by another one, and not undrained by itself.
    made(&rack, 0, "state.c=draining");
    all(&routers, "the drain", |status| status["members"][2]["state"] == "draining");
    std::thread::sleep(Duration::from_millis(200));
    let transit = packets(&routers[2], "transit");
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(packets(&routers[2], "transit"), transit, "it carries nothing for others");
    let words = format!("{} cluster undrain", rack.program.display());
    let said =
        String::from_utf8_lossy(&exec(&rack.places[2].namespace, &words).stderr).into_owned();
    assert!(said.contains("`fingerpost cluster set state.c=active`"), "{said}");
    made(&rack, 1, "state.c=active weight.c=0");
    all(&routers, "the weight", |status| {
        let c = &status["members"][2];
        c["state"] == "active" && c["weight"] == 0
    });
    made(&rack, 1, "weight.c=configured rate=500Mbps");
    all(&routers, "the rate", |status| {
        let members = status["members"].as_array().expect("members");
        let links = members.iter().map(|member| &member["link"]["rate_bps"]);
        members[2]["weight"] == 1
            && links.filter(|rate| !rate.is_null()).all(|rate| rate == 500_000_000)
    });

    // Two at once: both are made.
    let version =
        made(&rack, 0, "rate=configured")["parameters"]["version"].as_u64().expect("a number");
    std::thread::scope(|scope| {
        let (rack, both) = (&rack, [(0, "flowlet_ms=3"), (1, "rule=adaptive")]);
        let asked = both.map(|(node, words)| scope.spawn(move || made(rack, node, words)));
        asked.into_iter().for_each(|asked| drop(asked.join().expect("made")));
    });
    adopted(&routers, version + 2);
    all(&routers, "both", |status| status["rule"] == "adaptive" && status["flowlet_ms"] == 3);
    let counts = going.end();
    println!("{kind}: {counts:?}");
    assert!(counts.sent > RATE * 30, "{counts:?}");
    assert_eq!(counts.lost(), 0, "{counts:?}\n{}", rack.faults(&routers));

    // What its file has is of no account to a node that starts.
    let config = rack.config_of(2);
    rack.set_config(2, &config.replace("ttl_s = 2", "ttl_s = 2\nrule = \"vlb\"\nflowlet_ms = 9"));
    routers.pop().expect("three").stop();
    routers.push(rack.start(2));
    adopted(&routers, version + 2);
    all(&routers, "those of the store", |status| status["rule"] == "adaptive");

    for (words, want) in [
        ("delta=5ms", "unknown parameter `delta`, known: mode, rule, flowlet_ms, rate"),
        ("rule=fastest", "unknown rule `fastest`, known: vlb, fixed, adaptive"),
        ("state.x=draining", "`state.x`: unknown member `x`, known: a, b, c"),
        ("rule", "`rule`: KEY=VALUE is needed"),
    ] {
        let said = refused(&rack, 0, words);
        assert!(said.contains(want), "{words}: {said}");
    }
    adopted(&routers, version + 2);

    without_the_store(&rack, &mut server, &routers, version + 2);
    nonsense(&rack, kind, &routers, version + 2);
}

fn without_the_store(rack: &Rack, server: &mut Server, routers: &[Router], version: u64) {
    let going = traffic(rack, 8);
    server.stop();
    all(routers, "the loss", |status| status["store"]["state"] == "lost");
    let said = refused(rack, 1, "rule=vlb");
    assert!(said.contains("unreachable") && said.contains("keep their parameters"), "{said}");
    all(routers, "the last ones", |status| {
        status["parameters"]["version"] == version && status["rule"] == "adaptive"
    });
    let counts = going.end();
    assert_eq!(counts.lost(), 0, "{counts:?}\n{}", rack.faults(routers));
    server.start();
    all(routers, "the store", |status| status["store"]["state"] == "in_sync");
    adopted(routers, version);
}

fn nonsense(rack: &Rack, kind: &str, routers: &[Router], version: u64) {
    let going = traffic(rack, 8);
    put(rack, kind, "{\"format\":1,\"version\":99,\"mode\":\"mesh\"}");
    all(routers, "an error", |status| {
        let why = status["parameters"]["error"].as_str();
        why.is_some_and(|why| why.contains("unknown variant `mesh`"))
            && status["parameters"]["version"] == version
            && status["rule"] == "adaptive"
    });
    routers[0].wait_for("one line", |said| {
        let about =
            said.iter().filter(|line| line.contains("the parameters in the store are unreadable"));
        about.count() == 1
    });
    let counts = going.end();
    assert_eq!(counts.lost(), 0, "{counts:?}\n{}", rack.faults(routers));
    made(rack, 2, "flowlet_ms=7");
    adopted(routers, version + 1);
    all(routers, "no error", |status| {
        status["parameters"]["error"].is_null() && status["flowlet_ms"] == 7
    });
}

#[test]
fn parameters_in_etcd_change_while_packets_pass() {
    change_everything("etcd", "etcd");
}

#[test]
fn parameters_in_nats_change_while_packets_pass() {
    change_everything("nats", "nats-server");
}

#[test]
fn a_cluster_without_a_store_refuses_the_command() {
    let Some(rack) = Rack::new(&["ping"], Built::of(2)) else { return };
    let routers = rack.start_all();
    let said = refused(&rack, 0, "rule=fixed");
    assert!(
        said.contains("are in the configuration of its nodes") && said.contains("`store`"),
        "{said}"
    );
    let status: Value = routers[0].ask("cluster status");
    assert!(status["parameters"].is_null() && status["rule"] == "adaptive", "{status:#}");
}
