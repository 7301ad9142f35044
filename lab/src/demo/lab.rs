//! The demo's lab: the router's namespace and the one outside, of [`crate::xdp::lab`], with the next hops of the shipped
//! tables as neighbors of the router.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use anyhow::{Context, Result, ensure};
use fingerpost_route::Mac;

use crate::forward::world::{LINKS, link_mac};
use crate::program;
use crate::xdp::lab::Lab;

/// Next hops of the shipped tables, numbered from 1.
pub(super) const NEXT_HOPS: u16 = 496;

/// Interface of the router that frames arrive on.
pub(super) const ROUTER_IN: &str = "r0";
/// Interfaces of the router that frames leave by.
pub(super) const ROUTER_OUT: [&str; 2] = ["r1", "r2"];
/// Link address of the generator.
pub(super) const SOURCE_MAC: Mac = Mac([2, 0xf0, 0, 0, 0, 1]);

/// Link address of an interface of the router: `ROUTER_IN`, then `ROUTER_OUT`.
pub(super) fn port_mac(number: usize) -> Mac {
    link_mac(LINKS[number])
}

/// Link address of a next hop.
pub(super) fn hop_mac(hop: u16) -> Mac {
    let [high, low] = hop.to_be_bytes();
    Mac([2, 0xfe, 0, 0, high, low])
}

/// Index in `ROUTER_OUT` of the interface that leads to a next hop: every other block of 128.
pub(super) fn hop_port(hop: u16) -> usize {
    usize::from(hop >> 7 & 1)
}

/// Address of a next hop, as the shipped tables have it.
pub(super) fn hop_addr(hop: u16, v6: bool) -> IpAddr {
    if v6 {
        IpAddr::V6(Ipv6Addr::from_bits(0xfd00 << 112 | u128::from(hop)))
    } else {
        let [high, low] = hop.to_be_bytes();
        IpAddr::V4(Ipv4Addr::new(10, 255, high, low))
    }
}

/// The namespaces, where `fingerpost` may forward.
pub(super) struct Demo(pub(super) Lab);

impl Demo {
    /// Makes the lab: interfaces up, addresses on, neighbors known.
    ///
    /// # Errors
    /// A missing privilege or program.
    pub(super) fn new() -> Result<Self> {
        let lab = Lab::new(1)?;
        lab.router.batch(|to| {
            for (number, out) in (1..).zip(ROUTER_OUT) {
                writeln!(to, "addr add 198.18.{number}.1/24 dev {out}")?;
                writeln!(to, "addr add 2001:2:0:{number}::1/64 dev {out} nodad")?;
            }
            // The next hops are on the links, but their prefixes have no address of ours: with one, some
            // next hop would be the broadcast address.
            for first in (0..=NEXT_HOPS).step_by(128) {
                let out = ROUTER_OUT[hop_port(first)];
                writeln!(to, "route add {}/25 dev {out} scope link", hop_addr(first, false))?;
                writeln!(to, "route add {}/121 dev {out}", hop_addr(first, true))?;
            }
            for hop in 1..=NEXT_HOPS {
                let (out, mac) = (ROUTER_OUT[hop_port(hop)], hop_mac(hop));
                for v6 in [false, true] {
                    let addr = hop_addr(hop, v6);
                    writeln!(to, "neigh add {addr} lladdr {mac} dev {out} nud permanent")?;
                }
            }
            Ok(())
        })?;
        let mut check = lab.router.command(&program::beside()?.to_string_lossy());
        check.args(["run", "--check"]).stderr(std::process::Stdio::piped());
        let check = check.output().context("fingerpost run --check")?;
        let message = String::from_utf8_lossy(&check.stderr).into_owned();
        /// Exit code of a missing privilege.
        const PERMISSION: i32 = 4;
        ensure!(check.status.code() != Some(PERMISSION), "{}", message.trim());
        Ok(Self(lab))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn next_hops_have_two_ports_and_a_mac_each() {
        let mut ports = [0; 2];
        let mut macs = std::collections::HashSet::new();
        for hop in 1..=NEXT_HOPS {
            ports[hop_port(hop)] += 1;
            assert!(macs.insert(hop_mac(hop)));
        }
        assert!(ports.iter().all(|&n| n > 100), "{ports:?}");
        assert_eq!(hop_addr(300, false).to_string(), "10.255.1.44");
        assert_eq!(hop_addr(300, true).to_string(), "fd00::12c");
    }
}
