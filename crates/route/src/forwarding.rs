//! All that forwarding of packets depends on, published as one value.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use fingerpost_lpm::{Addr, Lookup, NextHopId, Prefix};

use crate::event::{AnyPrefix, Mac, TableId};
use crate::hops::{ForwardingAction, HopTable};
use crate::mtu::narrower;

/// Lookups in VRFs that a packet gets at most: routes that lead further form a loop.
pub const MOST_VRFS: usize = 8;

/// What a worker pins for one batch.
#[derive(Clone)]
pub struct Forwarding {
    /// IPv4 lookup of the main table, fib 0.
    pub v4: Arc<dyn Lookup<u32>>,
    /// IPv6 lookup of the main table.
    pub v6: Arc<dyn Lookup<u128>>,
    /// Fibs 1 and up: the other tables, in the order in which they came.
    pub others: Arc<[FibLookup]>,
    /// Next hops of default routes: no other route names them.
    pub defaults: Arc<[NextHopId]>,
    /// What the answers mean.
    pub hops: Arc<HopTable>,
    /// The ports, and the host's own addresses.
    pub ports: Arc<PortTable>,
}

impl Forwarding {
    /// IPv4 lookup of a fib; that of the main table where there is no such.
    #[inline]
    pub fn v4_of(&self, fib: u16) -> &dyn Lookup<u32> {
        match self.other(fib) {
            Some(other) => &*other.v4,
            None => &*self.v4,
        }
    }

    /// IPv6 lookup of a fib; that of the main table where there is no such.
    #[inline]
    pub fn v6_of(&self, fib: u16) -> &dyn Lookup<u128> {
        match self.other(fib) {
            Some(other) => &*other.v6,
            None => &*self.v6,
        }
    }

    /// Next hop of an address, for packets of an ingress port: of the first of its tables that has one.
    pub fn lookup<A: IpFamily>(&self, ingress: u16, addr: A) -> NextHopId {
        let fibs = self.ports.fibs(ingress, A::INDEX);
        let mut hops = fibs.iter().map(|&fib| A::table(self, fib).lookup(addr));
        hops.find(|&hop| self.is_found(hop)).unwrap_or(NextHopId::NONE)
    }

    /// The forwarding action of a packet to an address whose next hop has this one: where that is a lookup in a VRF,
    /// the action of what it finds; and the smallest MTU of the routes into VRFs and of their devices, 0 for none. `hash` gives
    /// the flow hash where a group is found. `None` where routes lead from VRF to VRF in a loop.
    pub fn follow<A: IpFamily>(
        &self,
        mut action: ForwardingAction,
        addr: A,
        hash: impl Fn() -> u32,
    ) -> Option<(ForwardingAction, u16)> {
        let mut mtu = 0;
        for _ in 0..MOST_VRFS {
            let ForwardingAction::Vrf(port, of_route) = action else { return Some((action, mtu)) };
            let of_device = self.ports.port(port).map_or(0, |info| info.mtu);
            mtu = narrower(mtu, narrower(of_route.bytes(), of_device));
            action = self.action_of(self.lookup(port, addr), &hash);
        }
        (!matches!(action, ForwardingAction::Vrf(..))).then_some((action, mtu))
    }

    /// The lookups that a packet gets in its order, for packets of an ingress port: the first one, and one for each VRF
    /// that routes lead through. In a loop of routes the last one leads to a VRF, too.
    pub fn lookups<A: IpFamily>(
        &self,
        ingress: u16,
        addr: A,
        hash: impl Fn() -> u32,
    ) -> impl Iterator<Item = FoundHop> {
        let found = move |port: u16| {
            let fibs = self.ports.fibs(port, A::INDEX);
            let mut hops = fibs.iter().map(|&fib| (fib, A::table(self, fib).lookup(addr)));
            let found = hops.find(|&(_, hop)| self.is_found(hop));
            let (fib, hop) = found.unwrap_or((fibs[0], NextHopId::NONE));
            FoundHop { fib, hop, action: self.action_of(hop, &hash) }
        };
        let mut next = Some(ingress);
        let all = std::iter::from_fn(move || {
            let found = found(next?);
            next =
                if let ForwardingAction::Vrf(port, _) = found.action { Some(port) } else { None };
            Some(found)
        });
        all.take(1 + MOST_VRFS)
    }

    fn action_of(&self, hop: NextHopId, hash: impl Fn() -> u32) -> ForwardingAction {
        let hash = if self.hops.view().only_action(hop).is_some() { 0 } else { hash() };
        self.hops.action(hop, hash)
    }

    /// Whether packets with this next hop are not looked up in a further table.
    #[inline]
    pub fn is_found(&self, hop: NextHopId) -> bool {
        self.hops.view().only_action(hop) != Some(ForwardingAction::NoRoute.encode())
    }

    /// Whether some flow of a next hop leaves by the port, or (`None`) by any port.
    #[inline]
    pub fn leads_out(&self, hop: NextHopId, port: Option<u16>) -> bool {
        self.hops.any_action(hop, |action| {
            let egress = match action {
                ForwardingAction::Adjacency(index) => {
                    self.hops.view().packed_adjacency(index).port()
                }
                ForwardingAction::Glean(egress) => egress,
                // By a port of another VRF, whichever it is.
                ForwardingAction::Vrf(..) => return port.is_none(),
                _ => return false,
            };
            port.is_none_or(|port| egress == port)
        })
    }

    /// Puts another IPv4 lookup in the place of a fib's.
    pub fn replace_v4(&mut self, fib: u16, with: Arc<dyn Lookup<u32>>) {
        match usize::from(fib).checked_sub(1) {
            None => self.v4 = with,
            Some(at) => {
                if let Some(other) = Arc::make_mut(&mut self.others).get_mut(at) {
                    other.v4 = with;
                }
            }
        }
    }

    /// Puts another IPv6 lookup in the place of a fib's.
    pub fn replace_v6(&mut self, fib: u16, with: Arc<dyn Lookup<u128>>) {
        match usize::from(fib).checked_sub(1) {
            None => self.v6 = with,
            Some(at) => {
                if let Some(other) = Arc::make_mut(&mut self.others).get_mut(at) {
                    other.v6 = with;
                }
            }
        }
    }

    #[inline]
    fn other(&self, fib: u16) -> Option<&FibLookup> {
        self.others.get(usize::from(fib).checked_sub(1)?)
    }
}

/// Result of a lookup.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FoundHop {
    /// The fib that has a route; without one the first fib that was looked in.
    pub fib: u16,
    /// Next hop of the route.
    pub hop: NextHopId,
    /// Its forwarding action for the packet.
    pub action: ForwardingAction,
}

/// IPv4 or IPv6, for code that serves both.
pub trait IpFamily: Addr {
    /// Its place where both are: 0 or 1.
    const INDEX: usize;
    /// A prefix of the family as one of either.
    fn any(prefix: Prefix<Self>) -> AnyPrefix;
    /// A prefix, where it is of the family.
    fn own(prefix: AnyPrefix) -> Option<Prefix<Self>>;
    /// Lookup of a fib; that of the main table where there is no such.
    fn table(forwarding: &Forwarding, fib: u16) -> &dyn Lookup<Self>;
}

impl IpFamily for u32 {
    const INDEX: usize = 0;
    fn any(prefix: Prefix<Self>) -> AnyPrefix {
        AnyPrefix::V4(prefix)
    }
    fn own(prefix: AnyPrefix) -> Option<Prefix<Self>> {
        if let AnyPrefix::V4(prefix) = prefix { Some(prefix) } else { None }
    }
    #[inline]
    fn table(forwarding: &Forwarding, fib: u16) -> &dyn Lookup<Self> {
        forwarding.v4_of(fib)
    }
}

impl IpFamily for u128 {
    const INDEX: usize = 1;
    fn any(prefix: Prefix<Self>) -> AnyPrefix {
        AnyPrefix::V6(prefix)
    }
    fn own(prefix: AnyPrefix) -> Option<Prefix<Self>> {
        if let AnyPrefix::V6(prefix) = prefix { Some(prefix) } else { None }
    }
    #[inline]
    fn table(forwarding: &Forwarding, fib: u16) -> &dyn Lookup<Self> {
        forwarding.v6_of(fib)
    }
}

/// The lookups of one route table.
#[derive(Clone)]
pub struct FibLookup {
    /// Name of the table.
    pub table: TableId,
    /// IPv4 lookup.
    pub v4: Arc<dyn Lookup<u32>>,
    /// IPv6 lookup.
    pub v6: Arc<dyn Lookup<u128>>,
}

/// The ports by their number, and what checks and errors need to know of the host.
#[derive(Clone, Debug, Default)]
pub struct PortTable {
    /// A hole is a port that is gone; numbers are reused late.
    pub ports: Vec<Option<PortInfo>>,
    /// The host's own IPv4 addresses on any interface, sorted: a source that is one is a martian.
    pub own_v4: Vec<u32>,
    /// The host's own IPv6 addresses, sorted.
    pub own_v6: Vec<u128>,
    /// Broadcast and all-zeros addresses of connected IPv4 prefixes shorter than /31, sorted.
    pub broadcast_v4: Vec<u32>,
    /// Packets of some port are looked up elsewhere than in the main table alone.
    pub many: bool,
}

impl PortTable {
    /// The port of a number, if it is there.
    pub fn port(&self, number: u16) -> Option<&PortInfo> {
        self.ports.get(usize::from(number))?.as_ref()
    }

    /// The fibs that IPv4 (0) or IPv6 (1) packets of an ingress port are looked up in, in this order.
    #[inline]
    pub fn fibs(&self, number: u16, family: usize) -> &[u16] {
        let Some(info) = self.port(number) else { return &[0] };
        match &*info.fibs[family] {
            [] => std::slice::from_ref(&info.fib),
            fibs => fibs,
        }
    }

    /// The fibs that IPv4 and IPv6 packets of an ingress port are looked up in first.
    #[inline]
    pub fn first_fibs(&self, number: u16) -> [u16; 2] {
        [0, 1].map(|family| self.fibs(number, family)[0])
    }

    /// Whether one of the host's addresses is its own for packets of an ingress port as well: that of an interface in
    /// another VRF is not.
    pub fn is_own_at(&self, addr: IpAddr, ingress: u16) -> bool {
        let Some(at) = self.port(ingress) else { return true };
        let has = |port: &PortInfo| match addr {
            IpAddr::V4(addr) => port.v4.iter().any(|own| own.0 == addr),
            IpAddr::V6(addr) => port.v6.iter().any(|own| own.0 == addr),
        };
        !self.many || self.ports.iter().flatten().any(|port| port.fib == at.fib && has(port))
    }
}

/// A port as the packet path needs it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PortInfo {
    /// Name of the interface.
    pub name: String,
    /// Kernel index of the interface.
    pub link: u32,
    /// Its own MAC; `None` for a device without Ethernet addresses.
    pub mac: Option<Mac>,
    /// Largest IP packet in bytes.
    pub mtu: u16,
    /// Up, with carrier.
    pub up: bool,
    /// The fib with its own prefixes, which forwards its packets where `fibs` has no others: 0 is the main table, see
    /// [`Forwarding::others`].
    pub fib: u16,
    /// The fibs that its IPv4 and IPv6 packets are looked up in, in their order; empty for `fib` alone.
    pub fibs: [Vec<u16>; 2],
    /// The port of the bond that it belongs to: its packets are that one's, with its tables and addresses.
    pub bond: Option<u16>,
    /// Its IPv4 addresses with the length of their prefix, the primary one first.
    pub v4: Vec<(Ipv4Addr, u8)>,
    /// Its IPv6 addresses, link-local ones too.
    pub v6: Vec<(Ipv6Addr, u8)>,
    /// Its senders may be on the same host and leave partial checksums (veth, TAP).
    pub fill_checksums: bool,
    /// Mode of uRPF for its packets; `None` without uRPF.
    pub urpf: Option<UrpfMode>,
    /// Its packets leave the XDP datapath, for features that only the graph has ([`crate::Control::leave_to_graph`]).
    pub graph_only: bool,
    /// The fib of all paths, not of the best alone, for a feasible check ([`crate::Control::check_sources`]).
    pub paths: u16,
    /// Senders of packets that leave by it again get ICMP redirects.
    pub redirects: bool,
}

/// Mode of uRPF: which routes to its source a packet needs to pass (RFC 3704).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UrpfMode {
    /// The best route to it leads out of the ingress port (2.2).
    Strict,
    /// One of the routes to it does, the best or not (2.3).
    Feasible,
    /// There is a route to it (2.4); the default route need not count (2.5).
    Loose,
}

impl UrpfMode {
    /// Every mode, with its name.
    pub const ALL: [(Self, &'static str); 3] =
        [(Self::Strict, "strict"), (Self::Feasible, "feasible"), (Self::Loose, "loose")];

    /// Its name in configuration and commands.
    pub fn name(self) -> &'static str {
        match self {
            Self::Strict => "strict",
            Self::Feasible => "feasible",
            Self::Loose => "loose",
        }
    }
}

impl fmt::Debug for Forwarding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Forwarding").field("ports", &self.ports).finish_non_exhaustive()
    }
}

/// Request of a worker to the control side: the link address of a neighbor. The result is a changed
/// adjacency, or a host route with one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ResolveRequest {
    /// Packets wait at this unresolved adjacency.
    Adjacency(u32),
    /// Packets wait for a host on the link of a port.
    Neighbor {
        /// The port, by number.
        port: u16,
        /// Address of the host.
        addr: IpAddr,
        /// Ingress port of its packets: pending resolutions are shared among these.
        ingress: u16,
    },
}
