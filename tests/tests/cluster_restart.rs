//! Nodes of a cluster start again: all of them, one after the other, without a lost packet; and one whose new adjacency indices
//! another node does not know yet.

use std::thread;
use std::time::Duration;

use fingerpost_tests::faults::{FLOWS, Fault, RATE, Trial};
use fingerpost_tests::netns::Router;
use fingerpost_tests::rack::{Built, Rack, packets, wait_for, wait_for_links};
use fingerpost_tests::store;
use fingerpost_tests::traffic::Traffic;

/// Sender and receiver of numbered packets.
const TRANSFER: &str = env!("CARGO_BIN_EXE_transfer");

/// Restarts two nodes by drain, one after the other, while traffic between the two others crosses them.
fn restart(rack: &Rack, routers: &mut [Option<Router>], nodes: [usize; 2], [from, to]: [usize; 2]) {
    let addrs = rack.destinations(from, to, FLOWS);
    let addrs: Vec<&str> = addrs.iter().map(String::as_str).collect();
    let ends = [from, to].map(|node| &*rack.places[node].hosts[0]);
    let mut going = Traffic::between(TRANSFER, ends, &addrs, (RATE, 9, 24));
    for node in nodes {
        let router = routers[node].take().expect("it runs");
        wait_for(&router, "transit", |status| status["packets"]["transit"].as_u64() > Some(100));
        let status: serde_json::Value = router.ask("cluster drain");
        assert_eq!(status["state"], "draining");
        thread::sleep(Duration::from_millis(500));
        let before = packets(&router, "transit");
        thread::sleep(Duration::from_millis(300));
        assert_eq!(packets(&router, "transit"), before, "nothing crosses a drained node");
        router.stop();
        let router = rack.start(node);
        wait_for_links(&router);
        routers[node] = Some(router);
    }
    assert!(going.goes_on(), "the restarts took longer than the traffic");
    let counts = going.end();
    println!("nodes {nodes:?} started again: {counts:?}");
    assert!(
        counts.lost() == 0 && counts.twice == 0,
        "{counts:?}\n{}",
        rack.faults(routers.iter().flatten())
    );
}

#[test]
fn a_rolling_restart_of_all_nodes_by_drain_loses_no_packet() {
    let keys = "rule = \"vlb\"\nflowlet_ms = 1".to_owned();
    let Some(rack) = Rack::new(&["ping"], Built { keys, ..Built::of(4) }) else { return };
    let mut routers: Vec<Option<Router>> = rack.start_all().into_iter().map(Some).collect();
    restart(&rack, &mut routers, [2, 3], [0, 1]);
    restart(&rack, &mut routers, [0, 1], [2, 3]);
}

/// The restarted node announces indices of another epoch in the store; a node that is cut off it names those of before, and
/// the restarted one looks the destinations of its packets up.
#[test]
fn frames_of_a_stale_epoch_are_looked_up_and_delivered() {
    let built = Trial::built(Some("etcd"));
    let Some((rack, server)) = store::rack(&["ping", "ethtool", "etcd"], built) else { return };
    let mut trial = Trial::new(TRANSFER, rack, Some(server));
    let cost = trial.cost(Fault::Stale, Duration::ZERO);
    assert!(cost.counts.sent > RATE, "{cost:?}");
}
