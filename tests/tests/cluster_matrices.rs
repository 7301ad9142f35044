//! Traffic matrices over four real nodes whose internal links have 2R/N: under the adaptive rule no link is offered more, and
//! all is delivered; under the fixed allowance of R/N links are overloaded.
//!
//! Source: RouteBricks, SOSP 2009, section 3, for the fixed allowance; `docs/internals/cluster.md` for the model's 0.79 (permutation)
//!         and 0.88 (adversarial) under it. `cargo xtask soak cluster_matrices` tries random admissible matrices for longer.

use std::time::{Duration, Instant};

use fingerpost_cluster::sim::Matrix;
use fingerpost_tests::matrices::{LOAD, NODES, Outcome, Stage, built, hot_spot};
use fingerpost_tests::rack::Rack;
use fingerpost_tests::soak;

/// Sender and receiver of numbered packets.
const TRANSFER: &str = env!("CARGO_BIN_EXE_transfer");

/// Time of a matrix.
const SECONDS: u64 = 3;
const FIXED_SECONDS: u64 = 5;

/// What a link may be offered under the adaptive rule, in 2R/N over [`SECONDS`]: its rate, and a queue of packets that wait for it at
/// the end; a queue is 24 packets at most in the simulator, of 2,700 here.
const MOST_OFFERED: f64 = 1.02;

/// What it is offered at least on the busiest link under the fixed allowance: 1.29 to 1.38 in the simulator.
const OVERLOAD: f64 = 1.15;

/// Delivered under the fixed allowance in the simulator.
const PERMUTATION: f64 = 0.79;
const ADVERSARIAL: f64 = 0.88;

/// How far real nodes may be from these once their queues are full.
const MARGIN: f64 = 0.03;

fn assert_carried(name: &str, matrix: &Matrix, outcome: &Outcome) {
    println!("adaptive, {name}: {}", outcome.summary());
    assert!(outcome.delivered() >= 0.99, "{name}: {outcome:?}");
    assert!(outcome.offered_link <= MOST_OFFERED, "{name}: {outcome:?}");
    // A node that sends to itself has links that others find empty: its transit exceeds R.
    let own = (0..NODES).any(|node| matrix.demand(node, node) > 0.0);
    let most = match name {
        "uniform" => 2.2,
        _ if own => 3.5,
        _ => 3.0,
    };
    assert!(outcome.worst_node <= most, "{name}: {outcome:?}");
}

#[test]
fn no_link_is_offered_more_than_2r_by_n_under_the_adaptive_rule() {
    let Some(rack) = Rack::new(&["ping"], built("adaptive")) else { return };
    let routers = rack.start_all();
    let mut stage = Stage::new(TRANSFER, &rack, &routers);
    let mut try_one = |name: &str, matrix: &Matrix| {
        let outcome = stage.offer(matrix, LOAD, SECONDS);
        assert_carried(name, matrix, &outcome);
    };
    try_one("uniform", &Matrix::uniform(NODES));
    try_one("permutation", &Matrix::permutation(NODES));
    try_one("adversarial", &Matrix::adversarial(NODES));
    try_one("hot spot", &hot_spot());
    let began = Instant::now();
    for seed in 1.. {
        let permutations = 2 + usize::try_from(seed).expect("few") % 4;
        let matrix = Matrix::random(NODES, permutations, seed);
        try_one(&format!("random, {permutations} permutations, seed {seed}"), &matrix);
        if seed >= 2 && began.elapsed() >= soak(Duration::ZERO) {
            break;
        }
    }
}

#[test]
fn links_are_overloaded_under_the_fixed_allowance() {
    let Some(rack) = Rack::new(&["ping"], built("fixed")) else { return };
    let routers = rack.start_all();
    let matrices = [
        ("permutation", Matrix::permutation(NODES), PERMUTATION),
        ("adversarial", Matrix::adversarial(NODES), ADVERSARIAL),
    ];
    let mut stage = Stage::new(TRANSFER, &rack, &routers);
    for (name, matrix, model) in matrices {
        let outcome = stage.offer(&matrix, LOAD, FIXED_SECONDS);
        println!("fixed, {name}: {}", outcome.summary());
        assert!((outcome.steady - model).abs() <= MARGIN, "{name}: {model}, {outcome:?}");
        assert!(outcome.offered_link >= OVERLOAD, "{name}: {outcome:?}");
        // What a link carries is its rate, and a queue of each class, of 200 full frames, that was empty before.
        assert!(outcome.carried_link <= 1.1, "{outcome:?}");
    }
}
