//! The configurations of `examples/click` print what their comments have, by a virtual clock.
#![cfg(feature = "click")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::Path;

use fingerpost_packet::element::click::only::console::{self, Written};
use fingerpost_packet::testing::{Rig, World};

/// Rounds of a configuration at most.
const MOST_ROUNDS: usize = 1_000_000;
/// Virtual time of a round.
const ROUND_NS: u64 = 100_000;

/// What a configuration writes until it ends.
fn written(text: &str) -> Written {
    console::collect();
    let mut rig = Rig::new(&World::new(), text);
    let ended = (0..MOST_ROUNDS).any(|_| {
        rig.poll();
        rig.bench.now_ns += ROUND_NS;
        rig.plan.is_stopped()
    });
    let written = console::collected();
    assert!(ended, "it does not end: {written:?}");
    written
}

/// The lines of a configuration that have what it writes.
fn expected(text: &str, mark: &str) -> String {
    text.lines()
        .filter_map(|line| line.strip_prefix(mark))
        .map(|line| format!("{line}\n"))
        .collect()
}

#[test]
fn examples_print_what_they_say() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/click");
    let mut count = 0;
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "click") {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        let Written { out, err } = written(&text);
        assert_eq!(out, expected(&text, "// expect "), "{}", path.display());
        // The time of day differs from run to run: no example writes it.
        assert_eq!(err, expected(&text, "// error "), "{}", path.display());
        count += 1;
    }
    assert!(count >= 13, "{count} examples");
}

/// `cargo xtask peers fastclick` compares programs by these: none may lose a packet here.
#[test]
fn configurations_of_the_baselines_count_all_packets() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab/peers/fastclick");
    for name in ["discard", "router", "filter"] {
        let text = fs::read_to_string(folder.join(name).with_extension("click")).unwrap();
        let shorter = text.replace("$LIMIT 1000000", "$LIMIT 1000");
        let Written { out, .. } = written(&(shorter + "DriverManager(pause, print $(end.count));"));
        assert_eq!(out, "1000\n", "{name}");
    }
}

#[test]
fn two_runs_by_one_clock_write_the_same() {
    let text = "Script(init i 0, set i $(add $i 1), print \"$i $(now)\", wait 3ms, goto begin $(lt $i 50), stop)";
    fingerpost_packet::element::click::only::clock::begin(0);
    assert_eq!(written(text), written(text));
}
