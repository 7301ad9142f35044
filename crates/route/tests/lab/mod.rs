//! A control side with a link and some gateways, for tests from outside.
#![allow(clippy::unwrap_used, dead_code, reason = "helpers of tests, each used by some")]

use std::net::IpAddr;
use std::time::Instant;

use fingerpost_lpm::{Addr, Algorithm, NextHopId};
use fingerpost_route::{
    AddressUpdate, AnyPrefix, Control, ControlOptions, LinkState, LinkUpdate, MAIN_TABLE, Mac,
    NeighborState, NeighborUpdate, Path, RouteEvent, RouteKey, RouteUpdate, SourceId, Target,
};

const LINK: u32 = 2;

/// A router with one interface in a large prefix of each family, and one source.
pub(crate) struct Lab {
    pub(crate) control: Control,
    pub(crate) source: SourceId,
}

impl Lab {
    pub(crate) fn new(v4: Vec<&'static Algorithm<u32>>, v6: Vec<&'static Algorithm<u128>>) -> Self {
        let options = ControlOptions { v4, v6, connected_from_addresses: true };
        let mut control = Control::new(options).unwrap();
        let source = control.add_source("test", 20);
        let mut lab = Self { control, source };
        let mac = Some(Mac([2, 0, 0, 0, 0, 1]));
        let state =
            LinkState { name: "eth0".into(), up: true, mtu: 1500, mac, ..LinkState::default() };
        lab.event(RouteEvent::Link(LinkUpdate { link: LINK, state: Some(state) }));
        for (addr, prefix_len) in [("10.255.0.1", 16), ("fd00::1", 64)] {
            let addr = addr.parse().unwrap();
            let update = AddressUpdate::new(LINK, addr, prefix_len);
            lab.event(RouteEvent::Address(update));
        }
        lab
    }

    pub(crate) fn event(&mut self, event: RouteEvent) {
        self.control.handle(self.source, event);
    }

    /// Sets a route over gateway number `hop`, or withdraws it for 0.
    pub(crate) fn set(&mut self, prefix: AnyPrefix, hop: u32) {
        let key = RouteKey { table: MAIN_TABLE, prefix, metric: 0 };
        if hop == 0 {
            return self.event(RouteEvent::Withdraw(key));
        }
        let gateway = match prefix {
            AnyPrefix::V4(_) => gateway_v4(hop),
            AnyPrefix::V6(_) => gateway_v6(hop),
        };
        let path = Path { gateway: Some(gateway), link: Some(LINK), weight: 1 };
        let target = Target::Path(path);
        self.event(RouteEvent::Route(RouteUpdate::new(key, target)));
    }

    /// Makes gateway number `hop` reachable in both families; its link address has the number as its last byte.
    pub(crate) fn gateway(&mut self, hop: u32) {
        let [.., high, low] = hop.to_be_bytes();
        let state = NeighborState::Reachable(Mac([2, 0, 0, 1, high, low]));
        for addr in [gateway_v4(hop), gateway_v6(hop)] {
            self.event(RouteEvent::Neighbor(NeighborUpdate { link: LINK, addr, state }));
        }
    }

    pub(crate) fn hop_v4(&self, addr: u32) -> NextHopId {
        use fingerpost_lpm::Routes;
        self.control.rib_v4().best(addr).map_or(NextHopId::NONE, |(_, hop)| hop)
    }

    pub(crate) fn commit(&mut self, now: Instant) {
        self.control.commit(now).unwrap();
    }
}

fn gateway_v4(hop: u32) -> IpAddr {
    u32::to_ip(0x0aff_0000 + 1 + hop)
}

fn gateway_v6(hop: u32) -> IpAddr {
    u128::to_ip((0xfd00 << 112) + 1 + u128::from(hop))
}
