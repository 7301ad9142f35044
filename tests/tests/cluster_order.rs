//! Order of flows across a cluster of real routers: a mix of flows like that of a trace, forced through one input and one
//! output, so that half of it takes intermediate nodes.
//!
//! Source: the measurement of RouteBricks, SOSP 2009, section 6: 5.5 % of sequences reordered without flowlets, 0.15 %
//!         with them, at a delta of 100 ms. `crates/cluster/tests/reordering.rs` has the same in the simulator.

use fingerpost_tests::netns::{Router, conserved};
use fingerpost_tests::rack::{Built, Rack, forwarded_xdp, packets};
use fingerpost_tests::traffic::{Counts, Traffic};

/// Sender and receiver of numbered packets.
const TRANSFER: &str = env!("CARGO_BIN_EXE_transfer");

/// R, in packets of 1,400 bytes a second; internal links have 2R/N.
const RATE: u64 = 3_600;
const LINK: &str = "20.16Mbps";

/// Content of these packets: without the headers, and without those of the internal frame.
const BYTES: usize = 1_354;

/// Largest share of packets that may begin a reordered sequence with the default delta.
const MOST: f64 = 0.0015;

/// Delta of RouteBricks, and that share with it: 1.3 % and less were measured. Whole flows are flowlets then, a hundred of which do
/// not fill three links evenly, so that the largest are sprayed.
const LARGE_MS: u32 = 100;
const MOST_LARGE: f64 = 0.03;

/// What the mix came to with one delta.
#[derive(Debug)]
struct Outcome {
    counts: Counts,
    /// Shares of the packets that arrived.
    sequences: f64,
    reordered: f64,
    /// Shares of the packets that took an intermediate node, and those that were sprayed.
    balanced: f64,
    sprayed: f64,
}

#[allow(clippy::cast_precision_loss, reason = "shares of counts")]
fn forced(delta_ms: u32, seconds: u64) -> Option<Outcome> {
    let keys = format!("flowlet_ms = {delta_ms}");
    let rack = Rack::new(&["ping"], Built { rate: Some(LINK), keys, ..Built::of(4) })?;
    let routers = rack.start_all();
    let addrs = rack.destinations(0, 1, 16);
    let addrs: Vec<&str> = addrs.iter().map(String::as_str).collect();
    let ends = [&*rack.places[0].hosts[0], &*rack.places[1].hosts[0]];
    let before = ["direct", "balanced", "sprayed"].map(|what| packets(&routers[0], what));
    let counts = Traffic::mix(TRANSFER, ends, &addrs, (RATE * 95 / 100, seconds, BYTES)).end();
    let after = ["direct", "balanced", "sprayed"].map(|what| packets(&routers[0], what));
    let [direct, balanced, sprayed] = std::array::from_fn(|i| (after[i] - before[i]) as f64);
    let in_xdp = routers[2..].iter().map(forwarded_xdp).sum::<u64>();
    let outcome = Outcome {
        counts,
        sequences: counts.sequences as f64 / counts.received as f64,
        reordered: counts.reordered as f64 / counts.received as f64,
        balanced: balanced / (direct + balanced),
        sprayed: sprayed / (direct + balanced),
    };
    println!(
        "delta {delta_ms} ms: {outcome:?}, transit in XDP: {in_xdp}, {}",
        rack.faults(&routers)
    );
    routers.into_iter().map(Router::stop).for_each(|report| conserved(&report));
    Some(outcome)
}

/// No delta, the default one, and that of RouteBricks.
#[test]
fn flowlets_keep_the_order_of_a_mix_that_one_pair_carries() {
    for delta_ms in [0, 2, LARGE_MS] {
        let Some(outcome) = forced(delta_ms, 10) else { return };
        let Outcome { counts, sequences, reordered, balanced, sprayed } = outcome;
        assert!(counts.received > 20_000 && counts.lost() * 100 < counts.sent, "{outcome:?}");
        assert!(balanced > 0.2, "the direct link has room for half: {outcome:?}");
        match delta_ms {
            0 => assert!(reordered > sequences && sequences > 10.0 * MOST, "{outcome:?}"),
            LARGE_MS => {
                assert!(sequences <= MOST_LARGE && reordered <= 3.0 * MOST_LARGE, "{outcome:?}");
                assert!((0.01..0.4).contains(&sprayed), "{outcome:?}");
            }
            _ => assert!(sequences <= MOST && reordered < 0.01 && sprayed < 0.02, "{outcome:?}"),
        }
    }
}
