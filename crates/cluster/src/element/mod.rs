//! The registry of elements of a cluster node, and their place in the built-in graph.
//!
//! ```text
//!     FromPorts -> cluster_transit -> EtherInput ...                     packets of the outside
//!                   |  [own]    frames that the host sends to other nodes -> cluster_input
//!                   |  [out]    packets of other nodes, in phase 2 -> ToPorts
//!                   |  [output] -> cluster_output -> the next hop of the adjacency, a lookup, or the host
//!     ... -> cluster_input -> ToPorts                                    packets whose egress is the fabric interface
//! ```

mod hops;
mod input;
mod output;
pub mod reason;
#[cfg(any(test, feature = "testing"))]
#[doc(hidden)]
pub mod testing;
#[cfg(test)]
mod tests;
mod transit;

use std::sync::Arc;

use fingerpost_packet::frame::wire::ETHER_BYTES;
use fingerpost_packet::graph::{ElementClass, Registry, Setup};
use fingerpost_packet::language::ConfigError;
use fingerpost_packet::router_graph::Addition;

use crate::fabric::Fabric;

/// Where the network header begins behind an Ethernet header.
#[allow(clippy::cast_possible_truncation, reason = "14")]
const NETWORK: u8 = ETHER_BYTES as u8;

/// Classes of elements that a cluster node is made of.
pub static ELEMENTS: &[ElementClass] = &[input::CLASS, output::CLASS, transit::CLASS];

/// State of the node whose element this is.
fn state(setup: &mut Setup<'_>) -> Result<Arc<Fabric>, ConfigError> {
    let words = "it is an element of the built-in graph of a cluster node: configure [cluster]";
    setup.state::<Fabric>().ok_or_else(|| setup.args.refuse_all(words))
}

/// Elements of a cluster node in the built-in graph; `registry` has their classes too.
pub fn addition(registry: Registry, fabric: Arc<Fabric>) -> Addition {
    Addition {
        registry,
        elements: &[
            ("cluster_transit", &transit::CLASS),
            ("cluster_output", &output::CLASS),
            ("cluster_input", &input::CLASS),
        ],
        received: "cluster_transit",
        sent: "cluster_input",
        wires: &[
            ("cluster_transit", "own", "cluster_input", 0),
            ("cluster_transit", "out", "transmit", 0),
            ("cluster_transit", "output", "cluster_output", 0),
            ("cluster_output", "action4", "ip4_next_hop", 1),
            ("cluster_output", "action6", "ip6_next_hop", 1),
            ("cluster_output", "lookup4", "ip4_lookup", 0),
            ("cluster_output", "lookup6", "ip6_lookup", 0),
            ("cluster_output", "host", "transmit", 0),
        ],
        state: fabric,
    }
}
