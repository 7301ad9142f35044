//! The plan of the demo's cluster: nodes, addresses and rates, as RB4 has them.
//!
//! ```text
//! host (10.1.0.2) -- (x0 10.1.0.1) node a (192.0.2.1) == int-b, int-c, int-d == node b (10.2.0.1) -- host (10.2.0.2)
//! ```

use std::net::Ipv4Addr;

use fingerpost_cluster::frame::FULL_BYTES;
use fingerpost_cluster::rule::{NodeId, Rule};
use fingerpost_route::Mac;

/// How many nodes.
pub(super) const NODES: usize = 4;
/// Ids of the nodes.
pub(super) const ID: [&str; NODES] = ["a", "b", "c", "d"];
/// Node that is killed: no route reflector.
pub(super) const KILLED: usize = 2;
/// Nodes that reflect routes.
pub(super) const REFLECTORS: usize = 2;

/// Bytes of a packet's internal frame: 14 of an Ethernet header and 4 more before the IP packet.
pub(super) const FRAME_BYTES: usize = 1_400;
/// Bytes of its frame outside.
pub(super) const OUTER_BYTES: usize = FRAME_BYTES - 4;
/// Rate R of an external interface in packets per second, low enough for four nodes and the sender on two cores.
pub(super) const PORT_PPS: u64 = 1_800;
/// Rate R in bit/s of internal frames.
pub(super) const PORT_BPS: u64 = PORT_PPS * FRAME_BYTES as u64 * 8;
/// Rate of an internal link: 2R/N.
pub(super) const LINK_BPS: u64 = 2 * PORT_BPS / NODES as u64;
/// Share of R that each host sends.
pub(super) const LOAD: f64 = 0.9;

/// Backlog from which the rule looks for an intermediate, in nanoseconds: 8 full frames, as `fingerpost run` has it.
pub(super) const THRESHOLD_NS: u64 = 8 * FULL_BYTES * 8_000_000_000 / LINK_BPS;
/// Bytes that may wait for a link.
pub(super) const LIMIT_BYTES: u64 = 200 * FULL_BYTES;
/// Most that a link may carry in a second, in 2R/N: its rate, and a queue that was empty before.
#[allow(clippy::cast_precision_loss, reason = "1.24")]
pub(super) const MOST_LOAD: f64 = 1.0 + (LIMIT_BYTES * 8) as f64 / LINK_BPS as f64;
/// Time between two packets of a flow that ends a flowlet.
pub(super) const FLOWLET_MS: u64 = 2;

/// Number of a node in frames: from 1.
pub(super) fn number(node: usize) -> NodeId {
    NodeId::try_from(node + 1).expect("four nodes")
}

fn octet(node: usize) -> u8 {
    u8::try_from(node + 1).expect("four nodes")
}

/// Address of a node by which the others know it.
pub(super) fn loopback(node: usize) -> Ipv4Addr {
    Ipv4Addr::new(192, 0, 2, octet(node))
}

/// Network address of what is behind a node, of 24 bits.
pub(super) fn behind(node: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, octet(node), 0, 0)
}

/// Address of a node's external port.
pub(super) fn port_addr(node: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, octet(node), 0, 1)
}

/// Address of the host behind a node.
pub(super) fn host_addr(node: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, octet(node), 0, 2)
}

/// Link address of a node's external port.
pub(super) fn port_mac(node: usize) -> Mac {
    Mac([2, 0xf0, 0, 0, 0, octet(node)])
}

/// Link address of the host behind a node.
pub(super) fn host_mac(node: usize) -> Mac {
    Mac([2, 0xfe, 0, 0, 0, octet(node)])
}

/// All nodes but one.
pub(super) fn others(node: usize) -> impl Iterator<Item = usize> {
    (0..NODES).filter(move |&other| other != node)
}

/// Name of a rule in configurations.
pub(super) fn rule_name(rule: Rule) -> &'static str {
    match rule {
        Rule::Vlb => "vlb",
        Rule::Fixed => "fixed",
        Rule::Adaptive => "adaptive",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_have_2r_by_n() {
        assert_eq!((PORT_BPS, LINK_BPS), (20_160_000, 10_080_000));
        assert_eq!(others(2).collect::<Vec<_>>(), [0, 1, 3]);
        assert_eq!((number(0), loopback(3).to_string()), (1, "192.0.2.4".to_owned()));
        // The routes of the others stay.
        const { assert!(KILLED >= REFLECTORS) };
        assert!((1.2..1.3).contains(&MOST_LOAD), "{MOST_LOAD}");
        assert!((6_000_000..12_000_000).contains(&THRESHOLD_NS), "{THRESHOLD_NS}");
    }
}
