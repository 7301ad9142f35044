//! Reordering of a trace-like mix of flows that one input sends to one output: with flowlets of several gaps, and without.
//!
//! Source: the measurement of RouteBricks, SOSP 2009, section 6: 5.5 % reordered without flowlets, 0.15 % with them.
//! The slot is that of 700-byte packets at 10 Gbit/s, 0.56 us. `cargo xtask soak cluster_delta` prints the table of
//! docs/internals/cluster.md, of runs of more than a second of traffic; the test runs a tenth of it.

use fingerpost_cluster::rule::Rule;
use fingerpost_cluster::sim::{Config, FlowletSettings, Matrix, Mix, Report, SLOT_NS, WINDOW, run};

/// One input to one output at 95 % of R, over links of 2R/N.
fn forced(nodes: usize, delta_ms: Option<f64>, slots: u32) -> Report {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "up to 100 ms")]
    let flowlets = delta_ms
        .map(|ms| FlowletSettings { delta_slots: (ms * 1e6 / SLOT_NS) as u32, entries: 1 << 16 });
    let base = Config::new(Matrix::overload(nodes, &[1.0]), Rule::Adaptive);
    run(&Config { mix: Some(Mix::default()), flowlets, slots, ..base })
}

#[test]
fn cluster_delta_keeps_the_order_of_a_mix() {
    let soak = std::env::var("FINGERPOST_SOAK_SECONDS").is_ok();
    let slots = if soak { 2_000_000 } else { 200_000 };
    let deltas: &[f64] = if soak { &[0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0] } else { &[1.0, 3.0] };
    println!(
        "nodes, delta in ms | % RouteBricks | % RFC 4737 | % of extent 3 | flowlets | % sprayed | worst link | \
         in a window of {WINDOW} slots | Jain of the links | worst queue | p99 in slots"
    );
    for nodes in [4, 8] {
        for delta in std::iter::once(None).chain(deltas.iter().copied().map(Some)) {
            let report = forced(nodes, delta, slots);
            let sprayed = report.sprayed as f64 / report.packets as f64;
            println!(
                "{nodes} {delta:?} | {:.3} | {:.3} | {:.3} | {} | {:.2} | {:.3} | {:.3} | {:.3} | {} | {}",
                report.reordered_sequences * 100.0,
                report.reordered_rfc4737 * 100.0,
                report.extent_3 * 100.0,
                report.flowlets,
                sprayed * 100.0,
                report.worst_link,
                report.worst_window,
                report.link_jain,
                report.worst_queue,
                report.latency.p99,
            );
            assert_eq!(report.drops.sum(), 0, "{report:?}");
            if delta.is_none() {
                assert!(report.reordered_sequences > 0.05, "{report:?}");
            } else {
                assert!(report.reordered_sequences <= 0.0015, "{report:?}");
                assert!(report.reordered_rfc4737 <= 0.0015, "{report:?}");
            }
        }
    }
}
