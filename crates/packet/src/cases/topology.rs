//! A fixed surrounding for packets, from a few lines of TOML: ports with addresses, neighbors,
//! routes; and the [`Forwarding`] that follows from it.
//!
//! Built without the route room's machinery: an error there must not hide one here. As the control
//! side does it, a port's addresses give a connected route (glean) and a host route to the host
//! itself (local), and a neighbor gives a host route through its adjacency.

use std::net::IpAddr;
use std::str::FromStr;
use std::sync::Arc;

use fingerpost_lpm::{Addr, Heap, NextHopId, Prefix, PrefixMap};
use fingerpost_route::event::AnyPrefix;
use fingerpost_route::hops::{Adjacency, ForwardingAction, HopTable};
use fingerpost_route::{Forwarding, Mac, MemoryMaker, PortInfo, PortTable, Shared, UrpfMode};
use serde::Deserialize;

/// Contents of a topology file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Topology {
    /// Ports, numbered in this order from 0.
    #[serde(rename = "port")]
    pub ports: Vec<PortSpec>,
    /// Hosts beyond the ports.
    #[serde(default, rename = "neighbor")]
    pub neighbors: Vec<NeighborSpec>,
    /// Routes besides those that follow from the ports and neighbors.
    #[serde(default, rename = "route")]
    pub routes: Vec<RouteSpec>,
    /// Addresses of the host on no port (a loopback's).
    #[serde(default)]
    pub own: Vec<IpAddr>,
}

/// A port of the router.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PortSpec {
    /// What cases call it; also stands for its MAC.
    pub name: String,
    /// Its own MAC.
    pub mac: String,
    /// Largest IP packet in bytes.
    pub mtu: u16,
    /// Its addresses, `ADDR/LEN`, of both families; the first of a family is the primary one.
    #[serde(default)]
    pub addrs: Vec<String>,
    /// Senders behind it leave partial checksums.
    #[serde(default)]
    pub fill_checksums: bool,
    /// No carrier.
    #[serde(default)]
    pub down: bool,
    /// It sends no redirects.
    #[serde(default)]
    pub no_redirects: bool,
    /// uRPF: the name of a [`UrpfMode`].
    pub urpf: Option<String>,
}

/// Host on the link of a port.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NeighborSpec {
    /// What cases and routes call it; also stands for its MAC.
    pub name: String,
    /// Beyond which port.
    pub port: String,
    /// Its addresses.
    pub addrs: Vec<IpAddr>,
    /// Its MAC; without one it is not known yet.
    pub mac: Option<String>,
    /// Resolution failed: it does not answer.
    #[serde(default)]
    pub silent: bool,
    /// Largest IP packet toward it, where it is not the port's.
    pub mtu: Option<u16>,
}

/// A route.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RouteSpec {
    /// Prefixes that it covers.
    pub to: Vec<String>,
    /// Names of neighbors; several share the traffic, a slot each.
    #[serde(default)]
    pub via: Vec<String>,
    /// `blackhole`, `unreachable`, `prohibit`, `local`, or the name of a port whose link the
    /// destinations are on.
    pub kind: Option<String>,
}

/// A topology that stands: everything that a packet meets, and the names that cases use.
pub struct Built {
    /// Topology as written in the file.
    pub topology: Topology,
    /// What the router forwards by.
    pub forwarding: Forwarding,
}

impl Built {
    /// Topology of a file's text.
    ///
    /// # Panics
    /// When it makes no sense; the message names the place.
    pub fn parse(text: &str) -> Self {
        let memory = MemoryMaker::new(|| Box::new(Heap));
        Self::new(read(text), &Shared { memory, reads: |_| true, ahead: None, fib: 0 })
    }

    /// The topology of the packet cases, `testdata/packets/topology.toml`.
    pub fn of_cases() -> Self {
        Self::parse(CASES)
    }

    /// The same, with all that packets need in memory that a reader outside shares, in tables that it
    /// can read.
    pub fn of_cases_shared(shared: &Shared) -> Self {
        Self::new(read(CASES), shared)
    }

    fn new(topology: Topology, shared: &Shared) -> Self {
        let forwarding = Builder::new(&topology, shared).build();
        Self { topology, forwarding }
    }

    /// Number of a port.
    ///
    /// # Panics
    /// When there is none of that name.
    pub fn port(&self, name: &str) -> u16 {
        let at = self.topology.ports.iter().position(|p| p.name == name);
        u16::try_from(at.unwrap_or_else(|| panic!("no port is called {name}"))).expect("few ports")
    }

    /// Name of a port.
    pub fn port_name(&self, port: u16) -> &str {
        self.topology.ports.get(usize::from(port)).map_or("?", |p| &p.name)
    }

    /// A MAC, by the name of a port or neighbor, or as it is.
    ///
    /// # Panics
    /// When it is neither.
    pub fn mac(&self, text: &str) -> Mac {
        let port = self.topology.ports.iter().find(|p| p.name == text).map(|p| p.mac.as_str());
        let neighbor = self.topology.neighbors.iter().find(|n| n.name == text);
        mac(port.or(neighbor.and_then(|n| n.mac.as_deref())).unwrap_or(text))
    }
}

const CASES: &str = include_str!("../../../../testdata/packets/topology.toml");

fn read(text: &str) -> Topology {
    toml::from_str(text).unwrap_or_else(|e| panic!("topology: {e}"))
}

fn mac(text: &str) -> Mac {
    let mut bytes = text.split(':').map(|part| u8::from_str_radix(part, 16));
    let bytes = std::array::from_fn(|_| match bytes.next() {
        Some(Ok(byte)) => byte,
        _ => panic!("{text} is no MAC, port or neighbor"),
    });
    Mac(bytes)
}

fn urpf(name: &str) -> UrpfMode {
    let found = UrpfMode::ALL.iter().find(|(_, known)| *known == name);
    found.unwrap_or_else(|| panic!("topology: unknown uRPF mode {name}")).0
}

/// Parses, or panics with what is wrong.
fn parsed<T: FromStr>(text: &str) -> T {
    text.parse().unwrap_or_else(|_| panic!("topology: what is {text}?"))
}

struct Builder<'a> {
    topology: &'a Topology,
    shared: &'a Shared,
    hops: HopTable,
    next_id: u32,
    next_adjacency: u32,
    v4: PrefixMap<u32, NextHopId>,
    v6: PrefixMap<u128, NextHopId>,
}

impl<'a> Builder<'a> {
    fn new(topology: &'a Topology, shared: &'a Shared) -> Self {
        let hops = HopTable::with(&mut *shared.memory.make(), 256, 256, 256);
        let hops = hops.expect("a few kilobytes");
        let (v4, v6) = (PrefixMap::new(), PrefixMap::new());
        Self { topology, shared, hops, next_id: 1, next_adjacency: 0, v4, v6 }
    }

    fn hop(&mut self, action: ForwardingAction) -> NextHopId {
        let id = self.id();
        self.hops.set_hop(id, action);
        id
    }

    fn id(&mut self) -> NextHopId {
        self.next_id += 1;
        NextHopId(self.next_id - 1)
    }

    fn route(&mut self, prefix: AnyPrefix, id: NextHopId) {
        match prefix {
            AnyPrefix::V4(p) => drop(self.v4.insert(p, id)),
            AnyPrefix::V6(p) => drop(self.v6.insert(p, id)),
        }
    }

    fn host_route(&mut self, addr: IpAddr, id: NextHopId) {
        self.route(any_prefix(addr, if addr.is_ipv4() { 32 } else { 128 }), id);
    }

    fn port_number(&self, name: &str) -> u16 {
        let at = self.topology.ports.iter().position(|p| p.name == name);
        let at = at.unwrap_or_else(|| panic!("topology: no port is called {name}"));
        u16::try_from(at).expect("few ports")
    }

    fn build(mut self) -> Forwarding {
        let local = self.hop(ForwardingAction::Local);
        let mut table = PortTable::default();
        for (number, spec) in (0..).zip(&self.topology.ports) {
            let glean = self.hop(ForwardingAction::Glean(number));
            let mut info = PortInfo {
                name: spec.name.clone(),
                link: u32::from(number) + 1,
                mac: Some(mac(&spec.mac)),
                mtu: spec.mtu,
                up: !spec.down,
                fill_checksums: spec.fill_checksums,
                redirects: !spec.no_redirects,
                urpf: spec.urpf.as_deref().map(urpf),
                ..PortInfo::default()
            };
            for text in &spec.addrs {
                let (addr, len) = text.split_once('/').expect("topology: ADDR/LEN");
                let (addr, len): (IpAddr, u8) = (parsed(addr), parsed(len));
                match addr {
                    IpAddr::V4(v4) => {
                        info.v4.push((v4, len));
                        if len < 31 {
                            let prefix = Prefix::masked(v4.to_bits(), len);
                            table.broadcast_v4.extend([prefix.first(), prefix.last()]);
                        }
                    }
                    IpAddr::V6(v6) => info.v6.push((v6, len)),
                }
                own(&mut table, addr);
                // Link-local prefixes are on every link: no route can say which.
                if !matches!(addr, IpAddr::V6(v6) if v6.is_unicast_link_local()) {
                    self.route(any_prefix(addr, len), glean);
                    self.host_route(addr, local);
                }
            }
            table.ports.push(Some(info));
        }
        for &addr in &self.topology.own {
            own(&mut table, addr);
            self.host_route(addr, local);
        }
        table.own_v4.sort_unstable();
        table.own_v6.sort_unstable();
        table.broadcast_v4.sort_unstable();

        let neighbors = self.topology.neighbors.iter();
        let neighbors: Vec<[u32; 2]> = neighbors.map(|n| self.neighbor(n, &table)).collect();
        let mut slot = 0;
        for route in &self.topology.routes {
            let mut ids = [None; 2];
            for text in &route.to {
                let prefix = AnyPrefix::parse(text)
                    .unwrap_or_else(|e| panic!("topology: route to {text}: {e}"));
                let family = usize::from(matches!(prefix, AnyPrefix::V6(_)));
                let id = ids[family]
                    .unwrap_or_else(|| self.target(route, family, &neighbors, local, &mut slot));
                ids[family] = Some(id);
                self.route(prefix, id);
            }
        }
        Forwarding {
            v4: lookup(fingerpost_lpm::registry::v4(), &self.v4, self.shared),
            v6: lookup(fingerpost_lpm::registry::v6(), &self.v6, self.shared),
            others: Arc::default(),
            defaults: Arc::default(),
            hops: Arc::new(self.hops),
            ports: Arc::new(table),
        }
    }

    /// An adjacency for each of its addresses; those that routes of IPv4 and of IPv6 lead by.
    fn neighbor(&mut self, spec: &NeighborSpec, table: &PortTable) -> [u32; 2] {
        let number = self.port_number(&spec.port);
        let port = table.port(number).expect("a port of the table");
        let mut by = [None; 2];
        for &addr in &spec.addrs {
            let index = self.next_adjacency;
            self.next_adjacency += 1;
            self.hops.set_neighbor(index, Some(addr));
            match &spec.mac {
                Some(text) => self.hops.set_adjacency(
                    index,
                    Adjacency {
                        dst: mac(text),
                        src: port.mac.expect("set above"),
                        port: number,
                        mtu: spec.mtu.unwrap_or(port.mtu),
                    },
                ),
                None => self.hops.set_unresolved(index, number, spec.silent),
            }
            by[usize::from(addr.is_ipv6())].get_or_insert(index);
            if !matches!(addr, IpAddr::V6(v6) if v6.is_unicast_link_local()) {
                let id = self.hop(ForwardingAction::Adjacency(index));
                self.host_route(addr, id);
            }
        }
        let any = by[0].or(by[1]).expect("topology: a neighbor has an address");
        by.map(|index| index.unwrap_or(any))
    }

    fn target(
        &mut self,
        route: &RouteSpec,
        family: usize,
        neighbors: &[[u32; 2]],
        local: NextHopId,
        slot: &mut u32,
    ) -> NextHopId {
        if let Some(kind) = &route.kind {
            let action = match kind.as_str() {
                "local" => return local,
                "blackhole" => ForwardingAction::Blackhole,
                "unreachable" => ForwardingAction::Unreachable,
                "prohibit" => ForwardingAction::Prohibit,
                port => ForwardingAction::Glean(self.port_number(port)),
            };
            return self.hop(action);
        }
        let index = |name: &String| {
            let at = self.topology.neighbors.iter().position(|n| &n.name == name);
            at.unwrap_or_else(|| panic!("topology: no neighbor is called {name}"))
        };
        let via: Vec<usize> = route.via.iter().map(index).collect();
        if let [one] = via[..] {
            return self.hop(ForwardingAction::Adjacency(neighbors[one][family]));
        }
        let id = self.id();
        let count = u32::try_from(via.len()).expect("few neighbors");
        for (at, &neighbor) in (*slot..).zip(&via) {
            self.hops.set_slot(at, ForwardingAction::Adjacency(neighbors[neighbor][family]));
        }
        self.hops.set_group(id, *slot, count);
        *slot += count;
        id
    }
}

fn own(table: &mut PortTable, addr: IpAddr) {
    match addr {
        IpAddr::V4(v4) => table.own_v4.push(v4.to_bits()),
        IpAddr::V6(v6) => table.own_v6.push(v6.to_bits()),
    }
}

fn any_prefix(addr: IpAddr, len: u8) -> AnyPrefix {
    match addr {
        IpAddr::V4(v4) => AnyPrefix::V4(Prefix::masked(v4.to_bits(), len)),
        IpAddr::V6(v6) => AnyPrefix::V6(Prefix::masked(v6.to_bits(), len)),
    }
}

/// The first algorithm of the registry that takes the table, of those that can be read if there are any.
fn lookup<A: Addr>(
    rows: impl Iterator<Item = &'static fingerpost_lpm::Algorithm<A>>,
    routes: &PrefixMap<A, NextHopId>,
    shared: &Shared,
) -> Arc<dyn fingerpost_lpm::Lookup<A>> {
    let mut rows: Vec<_> = rows.collect();
    rows.sort_by_key(|row| !(shared.reads)(row.name));
    let mut built =
        rows.iter().filter_map(|row| row.build(routes, &mut *shared.memory.make()).ok());
    built.next().expect("some algorithm takes a small table").publish()
}
