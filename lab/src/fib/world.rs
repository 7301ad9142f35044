//! A router's control side as a border router has it, without a network: some links, an interior protocol
//! that leads to each next hop, and a table of routes whose next hops are found by it.
//!
//! Every next hop of the table is an address of its own that the interior routes reach over a neighbor of
//! its own, so that the link address in the adjacency of an answer identifies the next hop: what a
//! packet does is compared, not a number.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Instant;

use anyhow::{Result, ensure};
use fingerpost_lpm::{Addr, NextHopId, Prefix};
use fingerpost_route::{
    AddressUpdate, AnyPrefix, Control, ControlOptions, Forwarding, LinkState, LinkUpdate,
    MAIN_TABLE, Mac, NeighborState, NeighborUpdate, Path, RouteEvent, RouteKey, RouteUpdate,
    SourceId, Target,
};

use crate::family::Family;

/// Links that lead to next hops; their kernel indices begin at [`FIRST_LINK`].
const LINKS: u32 = 8;
const FIRST_LINK: u32 = 2;
/// A link has a /16 of neighbors, whose first and last some addresses are not theirs.
const MAX_HOPS: u32 = 60_000;

/// Metrics of interior routes: lower wins.
pub(super) const NEAR: u32 = 10;
pub(super) const FAR: u32 = 20;

/// Distances as daemons have them: that of the exterior protocol, and that of the interior one.
const EXTERIOR: u8 = 20;
const INTERIOR: u8 = 110;

/// The link over which the neighbor of that number is reached.
pub(super) fn link(neighbor: u32) -> u32 {
    FIRST_LINK + neighbor % LINKS
}

/// Its address there.
fn neighbor(family: u8, number: u32) -> IpAddr {
    neighbor_on(family, number % LINKS, number)
}

/// The address of a neighbor in the prefix of a link, from 0.
pub(super) fn neighbor_on(family: u8, subnet: u32, number: u32) -> IpAddr {
    if family == 4 {
        Ipv4Addr::from_bits((0xac10 + subnet) << 16 | number).into()
    } else {
        Ipv6Addr::from_bits((0xfd10_u128 << 48 | u128::from(subnet)) << 64 | u128::from(number))
            .into()
    }
}

/// The router's address on a link, and the length of its prefix.
pub(super) fn own(family: u8, subnet: u32) -> (IpAddr, u8) {
    if family == 4 {
        (Ipv4Addr::from_bits((0xac10 + subnet) << 16 | 0xff01).into(), 16)
    } else {
        let bits = (0xfd10_u128 << 48 | u128::from(subnet)) << 64 | 0xffff_0000_0001;
        (Ipv6Addr::from_bits(bits).into(), 64)
    }
}

/// The link address of a neighbor.
pub(super) fn mac(family: u8, number: u32) -> Mac {
    let [a, b, c, d] = number.to_be_bytes();
    Mac([2, family, a, b, c, d])
}

/// The address of a next hop as routes of the table name it.
pub(super) fn gateway(family: u8, hop: u32) -> IpAddr {
    if family == 4 {
        Ipv4Addr::from_bits(0x0aff_0000 | hop).into()
    } else {
        Ipv6Addr::from_bits(0xfd00 << 112 | u128::from(hop)).into()
    }
}

/// Whether an answer there is one of the world's own and not of the table.
pub(super) fn is_ours<A: Addr>(addr: A) -> bool {
    match addr.to_ip() {
        IpAddr::V4(addr) => {
            let [a, b, ..] = addr.octets();
            a == 10 && b == 255 || a == 172 && (16..32).contains(&b)
        }
        IpAddr::V6(addr) => matches!(addr.segments()[0], 0xfd00 | 0xfd10),
    }
}

/// The control side, and who speaks to it.
pub(super) struct World {
    pub(super) control: Control,
    exterior: SourceId,
    interior: SourceId,
}

impl World {
    /// Links and neighbors are up, and interior routes lead to next hops 1 to `hops` (of IPv4 and IPv6),
    /// each over the neighbor of the same number. There are `spare` more neighbors.
    ///
    /// # Errors
    /// When there are more next hops than a link has neighbors, or no memory.
    pub(super) fn new(hops: [u32; 2], spare: u32) -> Result<Self> {
        let most = hops[0].max(hops[1]) + spare;
        ensure!(most <= MAX_HOPS, "{most} next hops: at most {MAX_HOPS} are made");
        let mut control = Control::new(ControlOptions {
            v4: fingerpost_lpm::v4().collect(),
            v6: fingerpost_lpm::v6().collect(),
            connected_from_addresses: true,
        })?;
        let (exterior, interior) =
            (control.add_source("bgp", EXTERIOR), control.add_source("igp", INTERIOR));
        let mut world = Self { control, exterior, interior };
        for subnet in 0..LINKS {
            world.set_link(FIRST_LINK + subnet, true);
            for family in [4, 6] {
                let (addr, prefix_len) = own(family, subnet);
                let link = FIRST_LINK + subnet;
                let update = AddressUpdate::new(link, addr, prefix_len);
                world.control.handle(interior, RouteEvent::Address(update));
            }
        }
        for (family, hops) in [(4, hops[0]), (6, hops[1])] {
            for number in 1..=hops + spare {
                let state = NeighborState::Reachable(mac(family, number));
                let (link, addr) = (link(number), neighbor(family, number));
                let update = NeighborUpdate { link, addr, state };
                world.control.handle(interior, RouteEvent::Neighbor(update));
            }
            for hop in 1..=hops {
                world.lead(family, hop, &[hop], NEAR);
            }
        }
        world.commit()?;
        Ok(world)
    }

    /// The link of a kernel index goes up or down.
    pub(super) fn set_link(&mut self, link: u32, up: bool) {
        let [.., last] = link.to_be_bytes();
        let state = LinkState {
            name: format!("bench{link}"),
            up,
            mtu: 1500,
            mac: Some(Mac([2, 0, 0, 0, 0, last])),
            ..LinkState::default()
        };
        let update = LinkUpdate { link, state: Some(state) };
        self.control.handle(self.interior, RouteEvent::Link(update));
    }

    /// The interior protocol leads to a next hop over these neighbors.
    pub(super) fn lead(&mut self, family: u8, hop: u32, neighbors: &[u32], metric: u32) {
        let mut paths = neighbors.iter().map(|&number| Path {
            gateway: Some(neighbor(family, number)),
            link: Some(link(number)),
            weight: 1,
        });
        let target = match (neighbors.len(), paths.next()) {
            (1, Some(path)) => Target::Path(path),
            (_, first) => Target::Paths(first.into_iter().chain(paths).collect()),
        };
        let key = interior_key(family, hop, metric);
        let update = RouteUpdate::new(key, target);
        self.control.handle(self.interior, RouteEvent::Route(update));
    }

    /// It does no longer.
    pub(super) fn lead_away(&mut self, family: u8, hop: u32, metric: u32) {
        let key = interior_key(family, hop, metric);
        self.control.handle(self.interior, RouteEvent::Withdraw(key));
    }

    /// A route of the table; the next hop `NONE` withdraws it.
    #[inline]
    pub(super) fn set<A: Family>(&mut self, prefix: Prefix<A>, hop: NextHopId) {
        let key = RouteKey { table: MAIN_TABLE, prefix: A::any(prefix), metric: 0 };
        let event = if hop.is_none() {
            RouteEvent::Withdraw(key)
        } else {
            let gateway = Some(gateway(A::FAMILY, hop.0));
            let target = Target::Path(Path { gateway, link: None, weight: 1 });
            RouteEvent::Route(RouteUpdate::new(key, target))
        };
        self.control.handle(self.exterior, event);
    }

    /// Begins or ends a full table of the exterior protocol.
    pub(super) fn mark(&mut self, event: RouteEvent) {
        self.control.handle(self.exterior, event);
    }

    /// What was handled becomes visible now.
    ///
    /// # Errors
    /// When no algorithm holds the table.
    pub(super) fn commit(&mut self) -> Result<()> {
        self.control.commit_now(Instant::now())?;
        Ok(())
    }

    /// What was handled becomes visible when the FIB finds it due.
    ///
    /// # Errors
    /// When no algorithm holds the table.
    #[inline]
    pub(super) fn commit_due(&mut self) -> Result<()> {
        self.control.commit(Instant::now())?;
        Ok(())
    }

    /// Routes that were refused, and why the latest was.
    pub(super) fn refused(&self) -> Option<String> {
        let refused = self.control.sources().filter(|source| source.refused > 0);
        refused.last().map(|s| format!("{} routes refused: {}", s.refused, s.last_refusal))
    }

    /// The algorithms that the FIB chose.
    pub(super) fn algorithms(&self) -> String {
        let (v4, v6) = (self.control.fib_v4().algorithm(), self.control.fib_v6().algorithm());
        format!("{v4}, {v6}")
    }
}

fn interior_key(family: u8, hop: u32, metric: u32) -> RouteKey {
    let prefix = match gateway(family, hop) {
        IpAddr::V4(addr) => AnyPrefix::V4(Prefix::host(addr.to_bits())),
        IpAddr::V6(addr) => AnyPrefix::V6(Prefix::host(addr.to_bits())),
    };
    RouteKey { table: MAIN_TABLE, prefix, metric }
}

/// The link address that a packet to `addr` of flow `hash` is sent to, if it is sent on at all.
#[inline]
pub(super) fn leaves<A: Family>(forwarding: &Forwarding, addr: A, hash: u32) -> Option<Mac> {
    let id = A::table(forwarding, 0).lookup(addr);
    let fingerpost_route::ForwardingAction::Adjacency(index) = forwarding.hops.action(id, hash)
    else {
        return None;
    };
    let adjacency = forwarding.hops.adjacency(index);
    adjacency.resolved().then_some(adjacency.dst)
}

/// Where packets to a next hop must go; to none, nowhere.
pub(super) fn wanted<A: Family>(hop: NextHopId) -> Option<Mac> {
    (!hop.is_none()).then(|| mac(A::FAMILY, hop.0))
}
