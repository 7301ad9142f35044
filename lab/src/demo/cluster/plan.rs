//! The plan of the demo's cluster: nodes, addresses and rates, as RB4 has them, or RB8/4 with two external ports a node.
//!
//! ```text
//! host (10.1.0.2) -- (x0 10.1.0.1) node a (192.0.2.1) == int-b, int-c, int-d == node b (x0 10.2.0.1) -- host (10.2.0.2)
//! host (10.1.1.2) -- (x1 10.1.1.1)                                                    (x1 10.2.1.1) -- host (10.2.1.2)
//! ```

use std::fmt;
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
/// Rate R of a node's external ports together, in packets per second, low enough for four nodes and the sender on two cores.
pub(super) const NODE_PPS: u64 = 1_800;
/// Rate R in bit/s of internal frames.
pub(super) const NODE_BPS: u64 = NODE_PPS * FRAME_BYTES as u64 * 8;
/// Rate of an internal link: 2R/N.
pub(super) const LINK_BPS: u64 = 2 * NODE_BPS / NODES as u64;
/// Share of R that the hosts of a node send.
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

/// A host, behind an external port of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Host {
    pub(super) node: usize,
    /// Number of the port at its node.
    pub(super) port: u8,
}

/// All hosts, where each node has so many external ports: those of a node follow each other.
pub(super) fn hosts(ports: u8) -> impl Iterator<Item = Host> {
    (0..NODES).flat_map(move |node| hosts_of(node, ports))
}

/// The hosts of a node.
pub(super) fn hosts_of(node: usize, ports: u8) -> impl Iterator<Item = Host> {
    (0..ports).map(move |port| Host { node, port })
}

impl Host {
    /// Its network, of 24 bits.
    pub(super) fn network(self) -> Ipv4Addr {
        self.at(0)
    }

    /// Address of the external port.
    pub(super) fn port_addr(self) -> Ipv4Addr {
        self.at(1)
    }

    /// Its own address.
    pub(super) fn addr(self) -> Ipv4Addr {
        self.at(2)
    }

    fn at(self, last: u8) -> Ipv4Addr {
        Ipv4Addr::new(10, octet(self.node), self.port, last)
    }

    /// MAC address of the external port.
    pub(super) fn port_mac(self) -> Mac {
        Mac([2, 0xf0, 0, 0, self.port, octet(self.node)])
    }

    /// Its own MAC address.
    pub(super) fn mac(self) -> Mac {
        Mac([2, 0xfe, 0, 0, self.port, octet(self.node)])
    }

    /// Name of the external port at its node.
    pub(super) fn interface(self) -> String {
        format!("x{}", self.port)
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", ID[self.node], self.port)
    }
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
        assert_eq!((NODE_BPS, LINK_BPS), (20_160_000, 10_080_000));
        assert_eq!(others(2).collect::<Vec<_>>(), [0, 1, 3]);
        assert_eq!((number(0), loopback(3).to_string()), (1, "192.0.2.4".to_owned()));
        let last = hosts(super::super::MOST_PORTS).last().expect("eight hosts");
        assert_eq!((hosts(1).count(), hosts(2).count(), last.to_string()), (4, 8, "d1".to_owned()));
        assert_eq!(
            (last.addr().to_string(), last.interface()),
            ("10.4.1.2".to_owned(), "x1".to_owned())
        );
        // The routes of the others stay.
        const { assert!(KILLED >= REFLECTORS) };
        assert!((1.2..1.3).contains(&MOST_LOAD), "{MOST_LOAD}");
        assert!((6_000_000..12_000_000).contains(&THRESHOLD_NS), "{THRESHOLD_NS}");
    }
}
