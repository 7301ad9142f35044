//! A cluster among what does not belong to it: nodes that have the number, the name or the address of another one, a node of
//! another version, a store of nonsense. Each has a message of its own, and forwarding continues.

use std::path::PathBuf;
use std::process::{Child, Stdio};

use fingerpost_tests::faults::{RATE, reach, wait_for_members};
use fingerpost_tests::netns::{Router, command};
use fingerpost_tests::rack::{Built, Rack, STORE, packets, ping, wait_for, wait_for_links};
use fingerpost_tests::store;
use fingerpost_tests::traffic::Traffic;
use serde_json::Value;

/// Sender and receiver of numbered packets.
const TRANSFER: &str = env!("CARGO_BIN_EXE_transfer");

/// Traffic from the host of one node to that of another, for so many seconds.
fn traffic(rack: &Rack, from: usize, to: usize, seconds: u64) -> Traffic {
    let ends = [from, to].map(|node| &*rack.places[node].hosts[0]);
    let addr = format!("10.{}.0.2", to + 1);
    Traffic::between(TRANSFER, ends, &[&addr], (RATE, seconds, 24))
}

/// Checks that none of it is lost.
#[track_caller]
fn assert_whole<'a>(going: Traffic, rack: &Rack, routers: impl IntoIterator<Item = &'a Router>) {
    let counts = going.end();
    assert!(
        counts.lost() == 0 && counts.twice == 0 && counts.sent > RATE / 2,
        "{counts:?}\n{}",
        rack.faults(routers)
    );
}

/// Waits until a node reports a link to a member as down, with these words.
fn wait_for_words(router: &Router, peer: &str, words: &str) {
    wait_for(router, words, |status| {
        let members = status["members"].as_array().expect("members");
        members.iter().any(|member| {
            let link = &member["link"];
            member["id"] == peer
                && link["up"] == false
                && link["why"].as_str().is_some_and(|why| why.contains(words))
        })
    });
}

#[test]
fn two_nodes_of_one_name_are_named_and_the_others_forward() {
    let Some(rack) = Rack::new(&["ping"], Built::of(4)) else { return };
    // The third node calls itself by the name of the second, whose number it gives away: 3 is `b` and 2 is `c` for it.
    let mut config = rack.config_of(2).replacen("node = \"c\"", "node = \"b\"", 1);
    for (id, number) in [("a", 1), ("b", 3), ("c", 2), ("d", 4)] {
        let member = format!("[[cluster.member]]\nid = \"{id}\"\n");
        assert!(config.contains(&member), "{config}");
        config = config.replace(&member, &format!("{member}number = {number}\n"));
    }
    let config = config.replace("peer = \"b\"", "peer = \"c\"");
    rack.set_config(2, &config);
    let routers = [0, 1, 3].map(|node| rack.start(node));
    assert!(ping(&rack.places[0].hosts[0], "10.2.0.2").contains("1 received"));
    assert!(ping(&rack.places[0].hosts[0], "10.4.0.2").contains("1 received"));
    assert!(ping(&rack.places[1].hosts[0], "10.4.0.2").contains("1 received"));
    let going = [(0, 1), (3, 0)].map(|(from, to)| traffic(&rack, from, to, 3));
    let third = rack.start_with(2, 4);
    wait_for_words(&routers[0], "c", "node 3 has the name \"b\" and another one in our settings");
    wait_for_words(&routers[1], "c", "node 3 has our name");
    wait_for_words(&third, "c", "node 2 has our name");
    for going in going {
        assert_whole(going, &rack, &routers);
    }
    assert_whole(traffic(&rack, 1, 3, 1), &rack, &routers);
    for (router, peers) in routers.iter().zip([["b", "d"], ["a", "d"], ["a", "b"]]) {
        let status: Value = router.ask("cluster status");
        for member in status["members"].as_array().expect("members") {
            let id = member["id"].as_str().expect("an id");
            assert!(!peers.contains(&id) || member["link"]["downs"] == 0, "{status:#}");
        }
    }
    third.stop();
}

/// At a switch, the number of a node is its address: frames to it reach one of the two or the other.
#[test]
fn two_nodes_of_one_address_are_named_and_the_others_forward() {
    let built = Built { switch: true, keys: "mode = \"direct\"".to_owned(), ..Built::of(4) };
    let Some(rack) = Rack::new(&["ping", "ethtool"], built) else { return };
    rack.take_in_xdp();
    let routers = [0, 1, 3].map(|node| rack.start(node));
    for router in &routers {
        wait_for(router, "links to the two others", |status| {
            let members = status["members"].as_array().expect("members").iter();
            members.filter(|member| member["link"]["up"] == true).count() == 2
        });
    }
    assert!(ping(&rack.places[0].hosts[0], "10.4.0.2").contains("1 received"));
    assert!(ping(&rack.places[0].hosts[0], "10.2.0.2").contains("1 received"));
    let going = traffic(&rack, 0, 3, 3);
    // The third node believes to be the second one.
    rack.set_config(2, &rack.config_of(2).replacen("node = \"c\"", "node = \"b\"", 1));
    let third = rack.start_with(2, 2);
    wait_for_words(&routers[0], "b", "two nodes have this number (boot ids ");
    wait_for_words(&routers[2], "b", "two nodes have this number (boot ids ");
    wait_for_words(&routers[1], "a", "another node has our number (its boot id is ");
    wait_for_words(&third, "a", "another node has our number (its boot id is ");
    assert_whole(going, &rack, &routers);
    assert_whole(traffic(&rack, 3, 0, 1), &rack, &routers);
    let status: Value = routers[0].ask("cluster status");
    assert_eq!(status["members"][3]["link"]["downs"], 0, "{status:#}");
    // Without the other one it is as before.
    third.stop();
    for router in &routers {
        wait_for(router, "links to the two others", |status| {
            let members = status["members"].as_array().expect("members").iter();
            members.filter(|member| member["link"]["up"] == true).count() == 2
        });
    }
    assert_whole(traffic(&rack, 0, 1, 1), &rack, &routers);
}

/// Runs a Python program in a namespace until it is dropped.
struct Script(Child, PathBuf);

impl Script {
    fn start(namespace: &str, text: &str) -> Self {
        let file = std::env::temp_dir().join(format!("{namespace}.py"));
        std::fs::write(&file, text).expect("the temporary folder");
        let mut command = command(namespace, &format!("python3 {}", file.display()));
        let child = command.stdout(Stdio::null()).spawn().expect("the tool was found before");
        Self(child, file)
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
        let _ = std::fs::remove_file(&self.1);
    }
}

#[test]
fn a_node_of_another_version_is_named_and_the_others_forward() {
    let Some(rack) = Rack::new(&["ping", "python3"], Built::of(3)) else { return };
    let routers = [0, 1].map(|node| rack.start(node));
    assert!(ping(&rack.places[0].hosts[0], "10.2.0.2").contains("1 received"));
    let going = traffic(&rack, 0, 1, 3);
    // Probes of a later version of the program, to the first node.
    let later = "import socket,time\n\
                 s=socket.socket(socket.AF_PACKET,socket.SOCK_RAW)\n\
                 s.bind(('int-a',0))\n\
                 e=bytes.fromhex\n\
                 while True:\n \
                 s.send(e('020100010001')+e('020100030200')+e('88b5')+e('000000ff')+b'\\x02'+bytes(60))\n \
                 time.sleep(0.008)\n";
    let script = Script::start(&rack.places[2].namespace, later);
    let words = "version 2 of the probe, this node has version 1";
    wait_for_words(&routers[0], "c", words);
    assert_whole(traffic(&rack, 1, 0, 1), &rack, &routers);
    // A node of this version takes its place.
    drop(script);
    let third = rack.start(2);
    [&routers[0], &routers[1], &third].into_iter().for_each(wait_for_links);
    assert_whole(going, &rack, &routers);
    assert!(ping(&rack.places[0].hosts[0], "10.3.0.2").contains("1 received"));
}

#[test]
fn a_store_of_nonsense_is_one_clear_error_and_forwarding_continues() {
    let built = Built { keys: "ttl_s = 4".to_owned(), store: Some("etcd"), ..Built::of(3) };
    let tools = ["ping", "etcd", "python3", "curl"];
    let Some((rack, mut server)) = store::rack(&tools, built) else { return };
    let routers: Vec<Router> = (0..3).map(|node| rack.start(node)).collect();
    routers.iter().for_each(|router| wait_for_members(router, 3));
    reach(&rack, 0, 1);
    reach(&rack, 1, 2);
    reach(&rack, 2, 0);
    let going = [(0, 1), (1, 2)].map(|(from, to)| traffic(&rack, from, to, 6));

    // Records of another version, and of none, beside the good ones.
    server.put("fingerpost/1/member/d", "{\"version\":2}");
    server.put("fingerpost/1/member/e", "nonsense");
    for router in &routers {
        wait_for(router, "records that are none", |status| {
            let conflicts = status["conflicts"].as_array().expect("conflicts");
            let words = |what: &str| {
                conflicts.iter().filter(|c| c.as_str().is_some_and(|c| c.contains(what))).count()
            };
            let version =
                "the record of d is unreadable: it has version 2, this program reads version 1";
            (words(version), words("the record of e is unreadable: ")) == (1, 1)
        });
    }

    // In the place of the store, something that answers everything with a page.
    server.stop();
    let page = format!(
        "import socketserver\n\
         class Page(socketserver.BaseRequestHandler):\n \
         def handle(self):\n  \
         while self.request.recv(65536):\n   \
         self.request.sendall(b'HTTP/1.1 200 OK\\r\\nContent-Length: 13\\r\\n\\r\\n<h1>hello</h1')\n\
         class Server(socketserver.ThreadingTCPServer):\n \
         allow_reuse_address=True\n \
         daemon_threads=True\n\
         Server(('{STORE}',2379),Page).serve_forever()\n"
    );
    let script = Script::start(&rack.switch, &page);
    for router in &routers {
        wait_for(router, "an answer that is none", |status| {
            let error = status["store"]["error"].as_str().unwrap_or_default();
            status["store"]["state"] == "lost"
                && error.contains("nonsense")
                && error.contains(STORE)
        });
        let status: Value = router.ask("cluster status");
        println!("{}", status["store"]);
        assert_eq!(status["members"].as_array().expect("members").len(), 3, "{status:#}");
        let said = router.said();
        let about: Vec<&String> = said.iter().filter(|line| line.contains(STORE)).collect();
        assert!(about.len() <= 1, "{about:#?}");
    }
    assert_whole(traffic(&rack, 2, 0, 1), &rack, &routers);
    drop(script);
    server.start();
    for router in &routers {
        wait_for(router, "the store", |status| {
            status["store"]["state"] == "in_sync" && status["store"]["error"].is_null()
        });
    }
    for going in going {
        assert_whole(going, &rack, &routers);
    }
    assert!(packets(&routers[1], "output") > RATE, "{}", rack.faults(&routers));
}
