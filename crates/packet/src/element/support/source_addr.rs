//! Which of the host's addresses a packet of our own making speaks from.
//!
//! IPv4: an address of the port by which it leaves (RFC 1812, 4.3.2.4); where that port has none, of
//! another (4.3.2.4 names the router-id; Linux calls it an unnumbered interface). IPv6: by the rules of
//! RFC 6724 that apply to a router's errors (RFC 4443, 2.2): scope (2), the egress port before all
//! others (5), longest common prefix (8). The last one does for labels (6) too: unique local addresses
//! (fc00::/7) and global ones (2000::/3) have no bit in common.
//!
//! Cost: a lookup, and a walk over the few addresses of a port. Only for packets that are answered.

use std::net::Ipv6Addr;

use fingerpost_lpm::{Addr, Prefix};
use fingerpost_route::{Forwarding, ForwardingAction, IpFamily, PortTable};

use crate::frame::wire::ip6::{is_link_local, is_multicast};

/// The port by which a packet to `dst` will leave, by the table of the port `from` that caused it; `None` where it will
/// not. `hash` gives the flow hash when several paths lead there.
pub(crate) fn egress<A: IpFamily>(
    forwarding: &Forwarding,
    from: u16,
    dst: A,
    hash: impl Fn() -> u32,
) -> Option<u16> {
    match forwarding.lookups(from, dst, hash).last()?.action {
        ForwardingAction::Adjacency(index) => Some(forwarding.hops.adjacency(index).port),
        ForwardingAction::Glean(port) => Some(port),
        _ => None,
    }
}

/// Our address on `port` toward `dst`.
pub(crate) fn source_v4(ports: &PortTable, port: u16, dst: u32) -> Option<u32> {
    let info = ports.port(port)?;
    let shares = |&&(addr, len): &&(_, u8)| {
        Prefix::masked(std::net::Ipv4Addr::to_bits(addr), len).contains(dst)
    };
    let own = info.v4.iter().find(shares).or(info.v4.first());
    if let Some((addr, _)) = own {
        return Some(addr.to_bits());
    }
    let others = ports.ports.iter().flatten().flat_map(|p| &p.v4).map(|(addr, _)| addr.to_bits());
    let loopback = |addr: &u32| addr >> 24 == 127;
    others.chain(ports.own_v4.iter().copied()).find(|addr| !loopback(addr))
}

/// Our address toward `dst`, which is reached by `port`. A link-local one only if `dst` is one too.
pub(crate) fn source_v6(ports: &PortTable, port: u16, dst: u128) -> Option<u128> {
    let info = ports.port(port)?;
    let on_port = info.v6.iter().map(|(addr, _)| addr.to_bits());
    if is_link_local(dst)
        && let Some(own) = on_port.clone().find(|&addr| is_link_local(addr))
    {
        return Some(own);
    }
    let others = ports.ports.iter().flatten().flat_map(|p| &p.v6).map(|(addr, _)| addr.to_bits());
    best_v6(on_port, dst)
        .or_else(|| best_v6(others, dst))
        .or_else(|| best_v6(ports.own_v6.iter().copied(), dst))
}

/// Address of global scope that is nearest to `dst`; the first of equals.
fn best_v6(addrs: impl Iterator<Item = u128>, dst: u128) -> Option<u128> {
    let unfit = |&addr: &u128| {
        is_link_local(addr) || is_multicast(addr) || addr == Ipv6Addr::LOCALHOST.to_bits()
    };
    let better = |best: u128, addr: u128| {
        if addr.common_len(dst) > best.common_len(dst) { addr } else { best }
    };
    addrs.filter(|addr| !unfit(addr)).reduce(better)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cases::Built;
    use fingerpost_route::PortInfo;
    use std::net::Ipv4Addr;

    fn v4(text: &str) -> u32 {
        text.parse::<Ipv4Addr>().unwrap().to_bits()
    }

    fn v6(text: &str) -> u128 {
        text.parse::<Ipv6Addr>().unwrap().to_bits()
    }

    #[test]
    fn egress_follows_routes() {
        let built = Built::of_cases();
        let to_v4 = |dst| egress(&built.forwarding, 0, v4(dst), || panic!("not a group"));
        assert_eq!(to_v4("198.51.100.9"), Some(built.port("wan")));
        assert_eq!(to_v4("10.1.0.77"), Some(built.port("lan")), "a glean");
        assert_eq!(to_v4("172.20.0.1"), Some(built.port("wan")), "unresolved still has a port");
        for none in ["10.1.0.1", "192.0.2.1", "198.18.1.1", "198.18.3.1"] {
            assert_eq!(to_v4(none), None, "{none}");
        }
        let by_hash = |hash| egress(&built.forwarding, 0, v4("172.23.0.1"), || hash).unwrap();
        assert_eq!(
            [0, 1 << 30, 2 << 30, 3 << 30].map(by_hash),
            ["wan", "wan", "narrow", "ptp"].map(|p| built.port(p))
        );
        let to_v6 = |dst| egress(&built.forwarding, 0, v6(dst), || 0);
        assert_eq!(to_v6("2001:db8:180::1"), Some(built.port("ptp")));
        assert_eq!(to_v6("fe80::a2"), None, "no route can say on which link");
    }

    #[test]
    fn an_address_of_the_same_subnet_then_the_primary_one() {
        let built = Built::of_cases();
        let source = |port, dst| {
            source_v4(&built.forwarding.ports, built.port(port), v4(dst)).map(Ipv4Addr::from)
        };
        let own = |text: &str| Some(text.parse::<Ipv4Addr>().unwrap());
        assert_eq!(source("lan", "10.1.1.2"), own("10.1.1.1"));
        assert_eq!(source("lan", "10.9.9.9"), own("10.1.0.1"));
        assert_eq!(source("ptp", "10.7.0.1"), own("10.7.0.0"));
        assert_eq!(source("bare", "172.18.0.1"), own("10.1.0.1"), "of another port");
        assert_eq!(source_v4(&built.forwarding.ports, 99, 1), None, "the port is gone");
        let mut table = PortTable {
            ports: vec![Some(PortInfo::default())],
            own_v4: vec![v4("127.0.0.1"), v4("192.0.2.7")],
            ..PortTable::default()
        };
        assert_eq!(source_v4(&table, 0, 1), Some(v4("192.0.2.7")), "on no port at all");
        table.own_v4.pop();
        table
            .ports
            .push(Some(PortInfo { v4: vec![(Ipv4Addr::LOCALHOST, 8)], ..PortInfo::default() }));
        assert_eq!(source_v4(&table, 0, 1), None, "never the loopback's");
    }

    #[test]
    fn ipv6_scope_before_port_before_likeness() {
        let built = Built::of_cases();
        let source = |port, dst| {
            source_v6(&built.forwarding.ports, built.port(port), v6(dst)).map(Ipv6Addr::from)
        };
        let own = |text: &str| Some(text.parse::<Ipv6Addr>().unwrap());
        assert_eq!(source("lan", "2001:db8:ffff::9"), own("2001:db8:1::1"));
        assert_eq!(source("lan", "fe80::a2"), own("fe80::1"));
        assert_eq!(source("ptp", "fe80::a2"), own("2001:db8:7::"), "no link-local address there");
        // Nothing but a link-local address on the port: another port's nearest.
        assert_eq!(source("bare", "2001:db8:6::99"), own("2001:db8:6::1"));
        let table = |own: &[&str]| PortTable {
            ports: vec![Some(PortInfo {
                v6: own.iter().map(|a| (a.parse().unwrap(), 64)).collect(),
                ..PortInfo::default()
            })],
            own_v6: vec![v6("::1")],
            ..PortTable::default()
        };
        let source = |own: &[&str], dst| source_v6(&table(own), 0, v6(dst)).map(Ipv6Addr::from);
        let both = ["fd00:1::1", "2001:db8:1::1"];
        assert_eq!(source(&both, "2600::1"), own("2001:db8:1::1"));
        assert_eq!(source(&both, "fd00:9::1"), own("fd00:1::1"));
        assert_eq!(
            source(&["2001:db8:1::1", "2001:db8:2::1"], "2001:db8:2::9"),
            own("2001:db8:2::1")
        );
        assert_eq!(source(&["fe80::1"], "2600::1"), None, "better silent than out of scope");
    }
}
