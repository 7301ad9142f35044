//! Links and the host's addresses: which ports there are, and which addresses are the host's own.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;

use fingerpost_lpm::{Addr, Prefix};

use super::action::Done;
use super::interfaces::Interfaces;
use super::journal::Happened;
use super::tables::Tables;
use crate::event::{AddressUpdate, AnyPrefix, LinkState, MAIN_TABLE, TableId, VRF};
use crate::forwarding::{PortInfo, PortTable};
use crate::rules::{PolicyRules, Selected};

/// Port numbers that have counters: the lowest ones.
pub const COUNTED_PORTS: u16 = 1024;
/// Numbers that became free last and are not given to a link yet: a packet on its path may still have one.
const RECENT: usize = 64;
/// Port numbers in all; the last ones have meanings of their own.
const ALL_PORTS: u16 = u16::MAX - 1;

/// Kinds of devices whose other end is on the same host, so that senders leave checksums to a NIC
/// that does not exist.
const PARTIAL_CHECKSUMS: &[&str] = &["veth", "tun", "tap", "macvlan", "macvtap", "ipvlan"];

/// A link and what is on it.
#[derive(Debug)]
pub(super) struct Link {
    port: u16,
    table: u32,
    state: LinkState,
    /// Not seen without carrier since its latest event ([`Links::set_carrier`]).
    carrier: bool,
    addresses: Vec<AddressUpdate>,
}

impl Link {
    /// Number of its port.
    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// Number of the route table that holds its own prefixes: the one it is bound to, that of its VRF, or the main one.
    pub(super) fn table(&self) -> u32 {
        self.table
    }

    pub(super) fn state(&self) -> &LinkState {
        &self.state
    }

    /// Whether packets can leave by it.
    pub(super) fn is_up(&self) -> bool {
        self.state.up && self.carrier
    }

    /// The host's addresses on it.
    pub(super) fn addresses(&self) -> &[AddressUpdate] {
        &self.addresses
    }
}

/// Change of a link's state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct LinkChange {
    /// Kind of change, when a notice has it.
    pub(super) done: Option<Done>,
    /// It went up or down.
    pub(super) turned: bool,
    /// The MTU or link address is another: adjacencies have both.
    pub(super) framing: bool,
}

/// Which port numbers links get: of those that have counters as long as one is free, and each as late as possible again.
#[derive(Debug, Default)]
struct Numbers {
    /// The next number with counters that no link had yet.
    fresh: u16,
    /// Free numbers with counters that links had, the one that is free longest first.
    freed: VecDeque<u16>,
    /// Where the search continues among the numbers without counters.
    others: u16,
}

impl Numbers {
    /// A number that is not in use.
    fn next(&mut self, is_used: impl Fn(u16) -> bool) -> u16 {
        if self.fresh < COUNTED_PORTS {
            self.fresh += 1;
            return self.fresh - 1;
        }
        if self.freed.len() > RECENT
            && let Some(port) = self.freed.pop_front()
        {
            return port;
        }
        loop {
            let port = COUNTED_PORTS + self.others;
            self.others = (self.others + 1) % (ALL_PORTS - COUNTED_PORTS);
            if !is_used(port) {
                return port;
            }
        }
    }

    /// The number is not in use any more.
    fn free(&mut self, port: u16) {
        if port < COUNTED_PORTS {
            self.freed.push_back(port);
        }
    }
}

/// All links, by kernel index.
#[derive(Debug)]
pub(super) struct Links {
    all: BTreeMap<u32, Link>,
    numbers: Numbers,
    settings: Interfaces,
    address_changes: u64,
    changes: u64,
    connected_from_addresses: bool,
    /// Links that changed since the next hops that depend on them were resolved.
    stale: BTreeSet<u32>,
    /// The kernel's policy rules.
    rules: PolicyRules,
}

impl Links {
    /// No links. Connected routes follow from addresses where `connected_from_addresses` is set.
    pub(super) fn new(connected_from_addresses: bool) -> Self {
        Self {
            all: BTreeMap::new(),
            numbers: Numbers::default(),
            settings: Interfaces::default(),
            address_changes: 0,
            changes: 0,
            connected_from_addresses,
            stale: BTreeSet::new(),
            rules: PolicyRules::default(),
        }
    }

    pub(super) fn get(&self, link: u32) -> Option<&Link> {
        self.all.get(&link)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &Link)> {
        self.all.iter().map(|(&link, entry)| (link, entry))
    }

    /// Kernel index of the link of a port.
    pub(super) fn by_port(&self, port: u16) -> Option<u32> {
        self.iter().find(|(_, entry)| entry.port == port).map(|(link, _)| link)
    }

    /// Link of this name.
    pub(super) fn by_name(&self, name: &str) -> Option<(u32, &Link)> {
        self.iter().find(|(_, entry)| entry.state.name == name)
    }

    /// Settings of interfaces.
    pub(super) fn settings(&self) -> &Interfaces {
        &self.settings
    }

    /// Settings of interfaces, to change them.
    pub(super) fn settings_mut(&mut self) -> &mut Interfaces {
        &mut self.settings
    }

    /// Number of the route table that holds the prefixes of a link in this state.
    pub(super) fn table_of(&self, state: &LinkState) -> u32 {
        self.settings.table(&state.name).or(state.vrf).unwrap_or(MAIN_TABLE)
    }

    /// Whether addresses on a link make connected routes: where no source has them, as the kernel has for all that
    /// is not bound to another table by name.
    pub(super) fn makes_connected(&self, link: u32) -> bool {
        let bound = |entry: &Link| self.settings.table(&entry.state.name).is_some();
        self.connected_from_addresses || self.get(link).is_some_and(bound)
    }

    /// Sets the policy rules; whether they are others.
    pub(super) fn set_rules(&mut self, rules: PolicyRules) -> bool {
        std::mem::replace(&mut self.rules, rules.clone()) != rules
    }

    /// Tables that packets of a family (4 or 6) of a link are looked up in, or the rule that is more than that.
    pub(super) fn lookups(&self, family: u8, entry: &Link) -> Result<Vec<u32>, String> {
        let LinkState { name, kind, master, vrf, .. } = &entry.state;
        if self.settings.table(name).is_some() {
            return Ok(vec![entry.table]);
        }
        let master = master.and_then(|master| self.get(master));
        let master = master.map_or("", |master| master.state.name.as_str());
        let vrf = vrf.map(|table| (if kind == VRF { name } else { master }, table));
        self.rules.tables(family, Selected { name, vrf })
    }

    /// Sets the state of a link, which is new, in a table that exists, if there is none of this index; `None` when
    /// nothing changed.
    pub(super) fn set(&mut self, link: u32, state: LinkState, table: u32) -> Option<LinkChange> {
        if let Some(entry) = self.all.get_mut(&link) {
            if entry.state == state && entry.carrier {
                return None;
            }
            let turned = entry.state.up != state.up;
            let shown = |state: &LinkState| (state.name.clone(), state.up, state.mtu, state.mac);
            let changed = shown(&entry.state) != shown(&state);
            let framing = (entry.state.mtu, entry.state.mac) != (state.mtu, state.mac);
            (entry.state, entry.carrier) = (state, true);
            self.mark_stale(link);
            return Some(LinkChange { done: changed.then_some(Done::Changed), turned, framing });
        }
        self.mark_stale(link);
        let all = &self.all;
        let port = self.numbers.next(|port| all.values().any(|entry| entry.port == port));
        let new = Link { port, table, state, carrier: true, addresses: Vec::new() };
        self.all.insert(link, new);
        Some(LinkChange { done: Some(Done::Added), turned: false, framing: true })
    }

    /// Sets whether a link that is up has carrier; whether that changed.
    pub(super) fn set_carrier(&mut self, link: u32, carrier: bool) -> bool {
        let Some(entry) = self.all.get_mut(&link) else { return false };
        if entry.carrier == carrier {
            return false;
        }
        entry.carrier = carrier;
        self.mark_stale(link);
        true
    }

    /// Sets the route table of a link.
    pub(super) fn set_table(&mut self, link: u32, table: u32) {
        if let Some(entry) = self.all.get_mut(&link) {
            entry.table = table;
        }
    }

    pub(super) fn remove(&mut self, link: u32) {
        if let Some(entry) = self.all.remove(&link) {
            self.numbers.free(entry.port);
        }
        self.mark_stale(link);
    }

    /// Notice of a link.
    pub(super) fn notice(&self, done: Done, link: u32) -> Option<Happened> {
        let LinkState { name, up, mtu, mac, .. } = &self.all.get(&link)?.state;
        let (name, up, mtu, mac) = (name.as_str().into(), *up, *mtu, *mac);
        Some(Happened::Link { done, link, name, up, mtu, mac })
    }

    /// Adds, replaces or removes an address; whether that is a change.
    pub(super) fn set_address(&mut self, update: AddressUpdate) -> bool {
        let Some(entry) = self.all.get_mut(&update.link) else { return false };
        let known = entry.addresses.iter().position(|known| is_same(known, &update));
        match (known, update.gone) {
            (None, true) => return false,
            (Some(at), true) => {
                entry.addresses.remove(at);
            }
            (Some(at), false) => entry.addresses[at] = update,
            (None, false) => entry.addresses.push(update),
        }
        self.address_changes += 1;
        true
    }

    fn mark_stale(&mut self, link: u32) {
        self.changes += 1;
        self.stale.insert(link);
    }

    /// Number of changes of links so far.
    pub(super) fn changes(&self) -> u64 {
        self.changes
    }

    /// Number of changes of addresses so far.
    pub(super) fn address_changes(&self) -> u64 {
        self.address_changes
    }

    /// The host's addresses on links of a route table.
    pub(super) fn addresses_of(&self, table: u32) -> impl Iterator<Item = &AddressUpdate> {
        let links = self.all.values().filter(move |entry| entry.table == table);
        links.flat_map(|entry| &entry.addresses)
    }

    /// The host's addresses on all links.
    pub(super) fn addresses(&self) -> impl Iterator<Item = &AddressUpdate> {
        self.all.values().flat_map(|entry| &entry.addresses)
    }

    /// Whether links changed since the next hops that depend on them were resolved.
    pub(super) fn is_stale(&self) -> bool {
        !self.stale.is_empty()
    }

    /// Links that changed since the last call.
    pub(super) fn take_stale(&mut self) -> BTreeSet<u32> {
        std::mem::take(&mut self.stale)
    }

    /// The ports as readers need them.
    pub(super) fn port_table(&self, tables: &Tables) -> PortTable {
        let interfaces = &self.settings;
        let mut table = PortTable::default();
        for (link, entry) in self.iter() {
            let name = &entry.state.name;
            let bond = entry.state.master.filter(|_| entry.state.is_in_bond());
            let bond = bond.and_then(|bond| self.get(bond));
            let seen_as = bond.unwrap_or(entry);
            let fib = tables.fib(seen_as.table).unwrap_or(0);
            let fibs = [4, 6].map(|family| {
                // A table that does not exist has no routes; what rules make too hard for a list is the kernel's.
                let lookups = self.lookups(family, seen_as).unwrap_or_default();
                let fibs: Vec<u16> =
                    lookups.iter().filter_map(|&table| tables.fib(table)).collect();
                if fibs == [fib] { Vec::new() } else { fibs }
            });
            let several = fibs.iter().any(|fibs| fibs.len() > 1);
            table.many |= fib > 0 || !fibs.iter().all(Vec::is_empty);
            let urpf = interfaces.source_check(name);
            let mut info = PortInfo {
                name: name.clone(),
                link,
                mac: entry.state.mac,
                mtu: u16::try_from(entry.state.mtu).unwrap_or(u16::MAX),
                up: entry.state.up,
                fib,
                fibs,
                fill_checksums: PARTIAL_CHECKSUMS.contains(&entry.state.kind.as_str()),
                redirects: interfaces.sends_redirects(name),
                urpf,
                // Checks of XDP programs look up in one table, for packets that arrive on the port that replies leave by.
                graph_only: interfaces.is_graph_only(name)
                    || urpf.is_some() && (several || bond.is_some()),
                bond: bond.map(Link::port),
                paths: tables.fib(TableId::Paths(seen_as.table)).unwrap_or(0),
                ..PortInfo::default()
            };
            let (first, second): (Vec<&AddressUpdate>, Vec<_>) =
                seen_as.addresses.iter().partition(|address| !address.secondary);
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

/// The prefix of one address.
pub(super) fn host_prefix(addr: IpAddr) -> AnyPrefix {
    match addr {
        IpAddr::V4(addr) => AnyPrefix::V4(Prefix::host(addr.to_bits())),
        IpAddr::V6(addr) => AnyPrefix::V6(Prefix::host(addr.to_bits())),
    }
}

/// The connected prefix of a host's address.
pub(super) fn connected_prefix(address: &AddressUpdate) -> AnyPrefix {
    let len = address.prefix_len;
    match address.peer.unwrap_or(address.addr) {
        IpAddr::V4(a) => AnyPrefix::V4(Prefix::masked(a.to_bits(), len.min(<u32 as Addr>::BITS))),
        IpAddr::V6(a) => AnyPrefix::V6(Prefix::masked(a.to_bits(), len.min(<u128 as Addr>::BITS))),
    }
}

/// Whether both are one address of a link. The kernel has an address of IPv4 once for each connected prefix, and one of
/// IPv6 once.
pub(super) fn is_same(known: &AddressUpdate, update: &AddressUpdate) -> bool {
    known.addr == update.addr
        && (update.addr.is_ipv6() || connected_prefix(known) == connected_prefix(update))
}

/// Whether `addr` is a broadcast address of the connected prefix of a host's address.
pub(super) fn is_broadcast(address: &AddressUpdate, addr: IpAddr) -> bool {
    match (connected_prefix(address), addr) {
        (AnyPrefix::V4(p), IpAddr::V4(a)) if p.len() < 31 => {
            [p.first(), p.last()].contains(&a.to_bits())
        }
        _ => false,
    }
}

/// Whether `addr` is in the connected prefix of a host's address.
pub(super) fn holds(address: &AddressUpdate, addr: IpAddr) -> bool {
    match (connected_prefix(address), addr) {
        (AnyPrefix::V4(p), IpAddr::V4(a)) => p.contains(a.to_bits()),
        (AnyPrefix::V6(p), IpAddr::V6(a)) => p.contains(a.to_bits()),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_counters_however_many_links_come_and_go() {
        let (mut numbers, mut used) = (Numbers::default(), VecDeque::new());
        let mut freed = VecDeque::new();
        for turn in 0..10 * u32::from(COUNTED_PORTS) {
            let port = numbers.next(|port| used.contains(&port));
            assert!(port < COUNTED_PORTS && !used.contains(&port), "{turn}: {port}");
            assert!(!freed.iter().take(900).any(|known| *known == port), "{turn}: {port} again");
            used.push_back(port);
            if used.len() > 100 {
                // Some stay for long.
                let at = turn as usize % 100;
                let gone = used.remove(at).unwrap();
                numbers.free(gone);
                freed.push_front(gone);
            }
        }
    }

    #[test]
    fn numbers_rest_before_they_are_used_again() {
        let (mut numbers, mut used) = (Numbers::default(), BTreeSet::new());
        for port in 0..COUNTED_PORTS {
            assert_eq!(numbers.next(|port| used.contains(&port)), port);
            used.insert(port);
        }
        for gone in 0..=u16::try_from(RECENT).unwrap() {
            // While all that are free were used just now, links get numbers without counters.
            let next = numbers.next(|port| used.contains(&port));
            assert_eq!(next, COUNTED_PORTS + gone);
            used.insert(next);
            used.remove(&gone);
            numbers.free(gone);
        }
        assert_eq!(numbers.next(|port| used.contains(&port)), 0, "it has rested");
        assert!(numbers.next(|port| used.contains(&port)) > COUNTED_PORTS);
    }
}
