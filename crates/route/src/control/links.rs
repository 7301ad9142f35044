//! Links and the host's addresses: which ports there are, and what is ours.

use std::net::IpAddr;

use fingerpost_lpm::{Addr, Prefix};

use super::action::Done;
use super::watch::Happened;
use super::{Control, HOST, RouteError, SourceId};
use crate::event::{AddressUpdate, AnyPrefix, LinkState, MAIN_TABLE, Path, RouteKey};
use crate::forwarding::{PortInfo, PortTable, ReversePath};
use crate::nexthop::HopKey;

/// Kinds of devices whose other end is on the same host, so that senders leave checksums to a card
/// that does not exist.
const CHECKSUMS_UNFILLED: &[&str] = &["veth", "tun", "tap", "macvlan", "macvtap", "ipvlan"];

/// Metrics that tell the host's own routes apart: its addresses, and its connected prefixes.
const OWN: u32 = 0;
const CONNECTED: u32 = 1;

/// A link and what is on it.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) port: u16,
    /// Number of the route table that its packets ask, and that holds its own prefixes.
    pub(super) table: u32,
    pub(super) state: LinkState,
    /// Not seen without carrier since its latest event ([`Control::set_carrier`]).
    pub(super) carrier: bool,
    pub(super) addresses: Vec<AddressUpdate>,
}

impl Control {
    pub(super) fn link(&mut self, link: u32, state: LinkState) {
        let mut turned = false;
        if let Some(entry) = self.links.get_mut(&link) {
            if entry.state == state && entry.carrier {
                return;
            }
            turned = entry.state.up != state.up;
            let shown = |state: &LinkState| (state.name.clone(), state.up, state.mtu, state.mac);
            let changed = shown(&entry.state) != shown(&state);
            (entry.state, entry.carrier) = (state, true);
            if changed {
                self.note_link(Done::Changed, link);
            }
        } else {
            let port = self.free_port();
            let table = self.bindings.get(&state.name).copied().unwrap_or(MAIN_TABLE);
            let new = Link { port, table, state, carrier: true, addresses: Vec::new() };
            self.links.insert(link, new);
            self.note_link(Done::Added, link);
        }
        self.ports_changed = true;
        self.stale.link(link);
        self.fill_link(link);
        self.unsettle_link(link);
        if turned {
            self.tell_permanent(link);
        }
    }

    /// What was seen of the carrier of a link that is up. A kernel that has much to flush says so only when that is done:
    /// until the next event of the link one without carrier is as good as down.
    pub fn set_carrier(&mut self, link: u32, carrier: bool) {
        let Some(entry) = self.links.get_mut(&link) else { return };
        if entry.carrier != carrier {
            entry.carrier = carrier;
            self.stale.link(link);
            self.unsettle_link(link);
        }
    }

    /// Binds the interface of this name to a route table, which is made when there is none: packets that
    /// come in by it are forwarded by that table, and its own addresses and prefixes go there.
    ///
    /// # Errors
    /// [`RouteError::TooManyTables`].
    pub fn bind_interface(&mut self, name: &str, table: u32) -> Result<(), RouteError> {
        self.add_table(table)?;
        self.bindings.insert(name.to_owned(), table);
        if self.source_checks.get(name) == Some(&ReversePath::Feasible) {
            self.keep_paths(table)?;
        }
        let bound = self.links.iter().find(|(_, entry)| entry.state.name == name);
        let Some((&link, entry)) = bound.filter(|(_, entry)| entry.table != table) else {
            return Ok(());
        };
        let addresses = entry.addresses.clone();
        for &address in &addresses {
            self.address(AddressUpdate { gone: true, ..address });
        }
        self.forget_neighbors(link);
        self.links.get_mut(&link).expect("just seen").table = table;
        // Those that users said stay, in the other table.
        self.unsettle_link(link);
        for address in addresses {
            self.address(address);
        }
        self.ports_changed = true;
        Ok(())
    }

    /// Whether senders of packets that leave by the interface of this name again are told of the shorter way, as they
    /// are unless something else is said.
    pub fn send_redirects(&mut self, name: &str, send: bool) {
        if send {
            self.without_redirects.remove(name);
        } else {
            self.without_redirects.insert(name.to_owned());
        }
        self.ports_changed = true;
    }

    pub(super) fn link_gone(&mut self, link: u32) {
        let Some(entry) = self.links.get(&link) else { return };
        for address in entry.addresses.clone() {
            self.address(AddressUpdate { gone: true, ..address });
        }
        self.forget_neighbors(link);
        self.forget_permanent(link);
        self.note_link(Done::Deleted, link);
        self.links.remove(&link);
        self.ports_changed = true;
        self.stale.link(link);
    }

    fn note_link(&mut self, done: Done, link: u32) {
        let Some(Link { state, .. }) = self.links.get(&link) else { return };
        let LinkState { name, up, mtu, mac, .. } = state;
        let (name, up, mtu, mac) = (name.as_str().into(), *up, *mtu, *mac);
        self.notice(Happened::Link { done, link, name, up, mtu, mac });
    }

    /// Numbers are reused as late as possible: a packet in flight may still name one.
    fn free_port(&mut self) -> u16 {
        loop {
            let port = self.next_port;
            self.next_port = self.next_port.wrapping_add(1) % (u16::MAX - 1);
            if self.links.values().all(|entry| entry.port != port) {
                return port;
            }
        }
    }

    pub(super) fn address(&mut self, update: AddressUpdate) {
        let Some(entry) = self.links.get_mut(&update.link) else { return };
        let known = entry.addresses.iter().position(|a| a.addr == update.addr);
        match (known, update.gone) {
            (None, true) => return,
            (Some(at), true) => {
                entry.addresses.remove(at);
            }
            (Some(at), false) => entry.addresses[at] = update,
            (None, false) => entry.addresses.push(update),
        }
        let table = entry.table;
        self.ports_changed = true;
        self.address_changes += 1;
        // An address or prefix can be on several links of a table: it goes with the last one.
        let same = |a: &&AddressUpdate| a.addr == update.addr;
        let local = self.addresses_of(table).find(same).map(|_| HopKey::Local);
        self.host_route(table, host_prefix(update.addr), OWN, local.as_ref());
        // Of other tables the kernel is not asked.
        if !self.connected_from_addresses && table == MAIN_TABLE {
            return;
        }
        let connected = connected_prefix(&update);
        let same = |a: &&AddressUpdate| connected_prefix(a) == connected;
        let link = self.addresses_of(table).find(same).map(|a| a.link);
        let key =
            link.map(|link| HopKey::Path(Path { gateway: None, link: Some(link), weight: 1 }));
        self.host_route(table, connected, CONNECTED, key.as_ref());
    }

    /// Counts changes of the host's own addresses, for who follows [`Control::local_addresses`].
    pub fn address_changes(&self) -> u64 {
        self.address_changes
    }

    /// What is for the host itself: its addresses, and those that mean all stations of a subnet of theirs. They are
    /// as the last event left them, whatever readers see yet.
    pub fn local_addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.addresses().flat_map(AddressUpdate::local)
    }

    pub(super) fn addresses_of(&self, table: u32) -> impl Iterator<Item = &AddressUpdate> {
        let links = self.links.values().filter(move |entry| entry.table == table);
        links.flat_map(|entry| &entry.addresses)
    }

    fn host_route(&mut self, table: u32, prefix: AnyPrefix, metric: u32, hop: Option<&HopKey>) {
        if !super::forwarded(prefix) {
            return;
        }
        let key = RouteKey { table, prefix, metric };
        match hop {
            Some(hop) => self.insert(SourceId(HOST), key, hop, 0),
            None => self.withdraw(SourceId(HOST), &key),
        }
    }

    /// The ports as readers need them.
    pub(super) fn port_table(&self) -> PortTable {
        let mut table = PortTable::default();
        for (&link, entry) in &self.links {
            let mut info = PortInfo {
                name: entry.state.name.clone(),
                link,
                mac: entry.state.mac,
                mtu: u16::try_from(entry.state.mtu).unwrap_or(u16::MAX),
                up: entry.state.up,
                fib: self.tables.fib(entry.table).unwrap_or(0),
                fill_checksums: CHECKSUMS_UNFILLED.contains(&entry.state.kind.as_str()),
                redirects: !self.without_redirects.contains(&entry.state.name),
                reverse_path: self.source_checks.get(&entry.state.name).copied(),
                filtered: self.filtered.has(&entry.state.name),
                paths: self.paths_of(entry.table).and_then(|n| self.tables.fib(n)).unwrap_or(0),
                ..PortInfo::default()
            };
            let (first, second): (Vec<&AddressUpdate>, Vec<_>) =
                entry.addresses.iter().partition(|address| !address.secondary);
            for address in first.into_iter().chain(second) {
                match address.addr {
                    IpAddr::V4(addr) => {
                        info.v4.push((addr, address.prefix_len));
                        table.own_v4.push(addr.to_bits());
                        if address.prefix_len < 31 {
                            let subnet = Prefix::masked(addr.to_bits(), address.prefix_len);
                            table.broadcast_v4.extend([subnet.first(), subnet.last()]);
                        }
                    }
                    IpAddr::V6(addr) => {
                        info.v6.push((addr, address.prefix_len));
                        table.own_v6.push(addr.to_bits());
                    }
                }
            }
            let at = usize::from(entry.port);
            if table.ports.len() <= at {
                table.ports.resize(at + 1, None);
            }
            table.ports[at] = Some(info);
        }
        for list in [&mut table.own_v4, &mut table.broadcast_v4] {
            list.sort_unstable();
            list.dedup();
        }
        table.own_v6.sort_unstable();
        table.own_v6.dedup();
        table
    }
}

pub(super) fn host_prefix(addr: IpAddr) -> AnyPrefix {
    match addr {
        IpAddr::V4(addr) => AnyPrefix::V4(Prefix::host(addr.to_bits())),
        IpAddr::V6(addr) => AnyPrefix::V6(Prefix::host(addr.to_bits())),
    }
}

fn connected_prefix(address: &AddressUpdate) -> AnyPrefix {
    let len = address.prefix_len;
    match address.addr {
        IpAddr::V4(a) => AnyPrefix::V4(Prefix::masked(a.to_bits(), len.min(<u32 as Addr>::BITS))),
        IpAddr::V6(a) => AnyPrefix::V6(Prefix::masked(a.to_bits(), len.min(<u128 as Addr>::BITS))),
    }
}

/// Whether `addr` means all stations of the subnet of a host's address.
pub(super) fn is_broadcast(address: &AddressUpdate, addr: IpAddr) -> bool {
    match (connected_prefix(address), addr) {
        (AnyPrefix::V4(p), IpAddr::V4(a)) if p.len() < 31 => {
            [p.first(), p.last()].contains(&a.to_bits())
        }
        _ => false,
    }
}

/// Whether `addr` is in the subnet of a host's address.
pub(super) fn holds(address: &AddressUpdate, addr: IpAddr) -> bool {
    match (connected_prefix(address), addr) {
        (AnyPrefix::V4(p), IpAddr::V4(a)) => p.contains(a.to_bits()),
        (AnyPrefix::V6(p), IpAddr::V6(a)) => p.contains(a.to_bits()),
        _ => false,
    }
}
