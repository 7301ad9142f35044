//! Traces of real packets across nodes: ingress, path and its reason at the input, the intermediate that the input names, and
//! the egress node.
//!
//! All interfaces are with AF_XDP: what the XDP datapath forwards is not traced.

use std::process::{Child, Stdio};
use std::time::Duration;

use fingerpost_tests::netns::command;
use fingerpost_tests::rack::{Built, Rack, packets, ping};
use serde_json::Value;

/// Waits for one packet at a node.
fn begin(rack: &Rack, node: usize, filter: &str) -> Child {
    let (place, program) = (&rack.places[node], rack.program.display());
    let mut trace =
        command(&place.namespace, &format!("{program} trace add 1 {filter} --seconds 4 --json"));
    trace.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("ip was found before")
}

/// What the elements of the cluster made of that packet at the node; none where it passed by.
fn end(trace: Child) -> Vec<(String, String)> {
    let output = trace.wait_with_output().expect("it was started");
    let Some(line) = output.stdout.split(|byte| *byte == b'\n').find(|line| !line.is_empty())
    else {
        return Vec::new();
    };
    let trace: Value = serde_json::from_slice(line).expect("a line is JSON");
    let steps = trace["steps"].as_array().expect("steps").iter();
    let of_cluster = steps.filter_map(|step| {
        Some((step["class"].as_str()?.to_owned(), step["cluster"].as_str()?.to_owned()))
    });
    of_cluster.collect()
}

/// Sends one packet from the host of node `a` to this address of that of node `b`.
fn send(rack: &Rack, addr: &str) {
    let said = ping(&rack.places[0].hosts[0], addr);
    assert!(said.contains("1 received"), "{addr}: {said}");
}

/// Sends one packet; what all nodes made of it.
fn traced(rack: &Rack, addr: &str) -> Vec<Vec<(String, String)>> {
    let filter = format!("icmp type 8 and dst host {addr}");
    let filter = filter.as_str();
    let traces: Vec<Child> = (0..4).map(|node| begin(rack, node, filter)).collect();
    std::thread::sleep(fingerpost_tests::patience(Duration::from_millis(1_000)));
    send(rack, addr);
    traces.into_iter().map(end).collect()
}

#[test]
fn a_packet_is_traced_from_its_ingress_to_its_egress() {
    let keys = "rule = \"vlb\"\nflowlet_ms = 10000".to_owned();
    let Some(rack) = Rack::new(&["ping"], Built { keys, ..Built::of(4) }) else { return };
    for node in 0..4 {
        let internal = rack.places.iter().enumerate().filter(|(other, _)| *other != node);
        let names = internal.map(|(_, place)| format!("int-{}", place.id)).chain(["x0".to_owned()]);
        let sections =
            names.map(|name| format!("[[interface]]\nname = \"{name}\"\nmode = \"afxdp\"\n"));
        rack.set_config(node, &(sections.collect::<String>() + &rack.config_of(node)));
    }
    let routers = rack.start_all();
    let addrs = rack.destinations(0, 1, 12);
    let (mut direct, mut balanced) = (0, 0);
    for addr in &addrs {
        if direct > 0 && balanced > 0 {
            break;
        }
        // It begins the flowlet.
        send(&rack, addr);
        let found = traced(&rack, addr);
        let [a, b, ..] = &found[..] else { unreachable!("four nodes") };
        let [(class, path)] = &a[..] else { panic!("{addr}: {found:?}") };
        assert_eq!(class, "ClusterInput", "{found:?}");
        let egress: Vec<&str> = b.iter().map(|(class, _)| &**class).collect();
        assert_eq!(egress, ["ClusterTransit", "ClusterOutput"], "{found:?}");
        // Who sent the frame to the egress node is the ingress node, or the intermediate.
        let sender = |node: &str| format!("from node {node}");
        let kept = "it continues a flowlet, for which drawn by weight";
        if path.starts_with("to node b by the direct link int-b: ") {
            direct += 1;
            assert!(path.contains(kept), "{path}");
            assert!(b[0].1.starts_with(&sender("a")), "{found:?}");
            assert!(found[2].is_empty() && found[3].is_empty(), "{found:?}");
            continue;
        }
        let over = ["c", "d"].into_iter().position(|id| {
            path.starts_with(&format!("to node b over node {id} by int-{id}: {kept}"))
        });
        let over = over.unwrap_or_else(|| panic!("{addr}: {path}"));
        balanced += 1;
        let [transit, other] = [&found[2 + over], &found[3 - over]];
        assert!(other.is_empty(), "{found:?}");
        let [(class, words)] = &transit[..] else { panic!("{found:?}") };
        assert_eq!(class, "ClusterTransit");
        assert_eq!(words, "from node a to node b by int-b", "{found:?}");
    }
    println!("{direct} direct, {balanced} over a third node");
    assert!(direct > 0 && balanced > 0, "{direct} direct, {balanced} over a third node");
    assert!(packets(&routers[1], "looked_up") > 0);

    // A packet that begins its flowlet has the reason of its own choice.
    let first = "10.2.0.250";
    fingerpost_tests::netns::ip(&format!(
        "-n {} addr add {first}/24 dev h0",
        rack.places[1].hosts[0]
    ));
    let found = traced(&rack, first);
    let (_, path) = &found[0][0];
    assert!(path.contains("drawn by weight") && !path.contains("continues"), "{path}");
}
