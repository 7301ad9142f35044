//! The demo of a cluster with its nodes in one process, as a user runs it.
#![allow(clippy::unwrap_used, reason = "all of this file is a test")]

use std::process::{Command, Stdio};

use serde_json::Value;

#[test]
fn four_nodes_in_memory_are_one_router_while_one_is_killed() {
    for ports in ["1", "2"] {
        four_nodes_of(ports);
    }
}

/// Four nodes with so many external ports each.
fn four_nodes_of(ports: &str) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fingerpost-lab"));
    command.args(["demo", "cluster", "--memory", "--json", "--seconds", "4", "--ports", ports]);
    let output = command.stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.lines().all(|line| line.starts_with("fingerpost-lab: ")), "{said}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{said}"));
    println!("{report}");
    let count = |name: &str| report[name].as_u64().unwrap();
    assert_eq!((report["mode"].as_str(), count("nodes")), (Some("memory"), 4));
    assert_eq!(report["ports"].to_string(), ports);
    assert_eq!(count("wrong"), 0, "{report}");
    assert!(count("verified") > 10_000 && count("verified") == count("arrived"), "{report}");
    let lost = ["lost_in_failure", "lost_at_node", "lost_otherwise"].map(count);
    assert_eq!(count("offered"), count("arrived") + lost.iter().sum::<u64>(), "{report}");
    // Three times what is offered in the bound of detection, 50 ms of 4 s: other work may delay the threads of the probes.
    assert!(lost[0] <= count("offered") / 80 * 3, "{report}");
    assert!(report["detection_ms"].as_f64().unwrap() > 0.0, "{report}");
    assert!(report["worst_link"].as_f64().unwrap() <= 1.05, "{report}");
    assert!(report["reordered_sequences"].as_f64().unwrap() < 0.05, "{report}");
}
