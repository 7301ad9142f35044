//! Events of sources, and settings of interfaces: what each changes in the parts of the control side.

use super::action::{Done, RouteError};
use super::interfaces::InterfaceSet;
use super::links::{connected_prefix, host_prefix, is_same};
use super::resolver::resolver;
use super::sources::{HOST, SourceId};
use super::{Control, forwarded};
use crate::event::{
    AddressUpdate, AnyPrefix, LinkState, MAIN_TABLE, NeighborState, NextHopUpdate, Path,
    RouteEvent, RouteKey,
};
use crate::forwarding::UrpfMode;
use crate::nexthop::{HopError, HopKey};
use crate::rules::PolicyRules;

/// Metrics that distinguish the host's own routes: its addresses, and its connected prefixes.
const OWN: u32 = 0;
const CONNECTED: u32 = 1;

impl Control {
    /// Takes one event. Nothing of it is visible before the next [`Control::commit`], but for the link
    /// addresses of neighbors, which are at once; and for links and next-hop objects, which
    /// [`Control::fail_over`] makes visible without waiting for the routes.
    pub fn handle(&mut self, source: SourceId, event: RouteEvent) {
        match event {
            RouteEvent::Route(update) => self.route(source, update),
            RouteEvent::Withdraw(key) => {
                self.sources.get_mut(source).count_update();
                self.withdraw(source, &key);
            }
            RouteEvent::NextHop(update) => self.object(source, update),
            RouteEvent::NextHopGone(id) => self.object_gone(source, id),
            RouteEvent::Link(update) => {
                if let Some(dump) = self.sources.get_mut(source).dump() {
                    dump.links.insert(update.link);
                }
                match update.state {
                    Some(state) => self.link(update.link, state),
                    None => self.link_gone(update.link),
                }
            }
            RouteEvent::Address(update) => {
                if let Some(dump) = self.sources.get_mut(source).dump()
                    && !update.gone
                {
                    dump.addresses.insert((update.link, update.addr, connected_prefix(&update)));
                }
                self.address(update);
            }
            RouteEvent::Neighbor(update) => {
                if let Some(dump) = self.sources.get_mut(source).dump()
                    && update.state != NeighborState::Gone
                {
                    dump.neighbors.insert((update.link, update.addr));
                }
                self.neighbor(update.link, update.addr, update.state);
            }
            RouteEvent::Commit(_) => {}
            RouteEvent::StartOfTable => {
                if let Some(renumbered) = self.sources.get_mut(source).begin_dump() {
                    self.tables.restamp(source.0, renumbered);
                }
            }
            RouteEvent::EndOfTable => {
                self.end_of_table(source);
                self.flush();
            }
        }
    }

    fn object(&mut self, source: SourceId, update: NextHopUpdate) {
        // Members may be announced later; a group that can never be one is refused, as the kernel does.
        let resolver = resolver(&self.links, &self.objects, &self.tables, &self.neighbors);
        let checked = self.hops.check_object(source.0, update.id, &update.target, &resolver);
        let entry = self.sources.get_mut(source);
        if let Err(error @ HopError::GroupOfGroups { .. }) = checked {
            return entry.refuse(&error);
        }
        if let Some(dump) = entry.dump() {
            dump.objects.insert(update.id);
        }
        self.objects.put(source.0, update.id, update.target, &mut self.journal);
    }

    /// The kernel does not report which routes go with a next-hop object: they lead nowhere at once, and the
    /// sweep withdraws them.
    fn object_gone(&mut self, source: SourceId, id: u32) {
        self.objects.remove(source.0, id, &mut self.journal);
        if self.hops.orphan(&HopKey::Object { source: source.0, id }) {
            self.sources.sweep_mut().begin();
        }
    }

    /// Removes what the complete dump did not repeat; the sweep withdraws its routes.
    fn end_of_table(&mut self, source: SourceId) {
        let Some(dump) = self.sources.get_mut(source).end_dump() else { return };
        self.sources.sweep_mut().begin();
        for id in self.objects.missing(source.0, &dump.objects) {
            self.object_gone(source, id);
        }
        // A source without any link does not report links at all.
        if dump.links.is_empty() {
            return;
        }
        let links = self.links.iter().map(|(link, _)| link);
        for link in links.filter(|link| !dump.links.contains(link)).collect::<Vec<_>>() {
            self.link_gone(link);
        }
        let addresses: Vec<AddressUpdate> = (self.links.addresses())
            .filter(|a| !dump.addresses.contains(&(a.link, a.addr, connected_prefix(a))))
            .map(|a| AddressUpdate { gone: true, ..*a })
            .collect();
        for update in addresses {
            self.address(update);
        }
        for (link, addr) in self.neighbors.missing(&dump.neighbors) {
            self.neighbor(link, addr, NeighborState::Gone);
        }
    }

    fn link(&mut self, link: u32, state: LinkState) {
        // Where no table can be made for it, it stays where it is.
        let table = self.links.table_of(&state);
        let known = self.add_table(table).is_ok();
        let table = if known { table } else { MAIN_TABLE };
        let Some(change) = self.links.set(link, state, table) else { return };
        if known {
            self.move_link(link, table);
        }
        if let Some(done) = change.done {
            self.note_link(done, link);
        }
        self.output.outdate();
        if change.framing {
            self.fill_link(link);
        }
        self.neighbors.unsettle_link(link);
        if change.turned {
            self.note_permanent(link);
        }
    }

    /// Sets whether a link that is up has carrier. A kernel that has much to flush reports a loss of carrier only after that:
    /// until the next event of the link one without carrier counts as down. Returns
    /// whether that is new.
    pub fn set_carrier(&mut self, link: u32, carrier: bool) -> bool {
        let changed = self.links.set_carrier(link, carrier);
        if changed {
            self.neighbors.unsettle_link(link);
        }
        changed
    }

    fn link_gone(&mut self, link: u32) {
        let Some(entry) = self.links.get(link) else { return };
        for address in entry.addresses().to_vec() {
            self.address(AddressUpdate { gone: true, ..address });
        }
        self.forget_neighbors(link);
        self.forget_permanent(link);
        self.note_link(Done::Deleted, link);
        self.links.remove(link);
        self.output.outdate();
    }

    fn note_link(&mut self, done: Done, link: u32) {
        if let Some(notice) = self.links.notice(done, link) {
            self.journal.note(notice);
        }
    }

    fn address(&mut self, update: AddressUpdate) {
        let Some(table) = self.links.get(update.link).map(super::links::Link::table) else {
            return;
        };
        let known = self.links.get(update.link).and_then(|link| {
            link.addresses().iter().find(|known| is_same(known, &update)).copied()
        });
        if let Some(known) = known
            .filter(|known| !update.gone && connected_prefix(known) != connected_prefix(&update))
        {
            self.address(AddressUpdate { gone: true, ..known });
        }
        if !self.links.set_address(update) {
            return;
        }
        self.output.outdate();
        // An address or prefix can be on several links of a table: it goes with the last one.
        let same = |a: &&AddressUpdate| a.addr == update.addr;
        let local = self.links.addresses_of(table).find(same).map(|_| HopKey::Local);
        self.host_route(table, host_prefix(update.addr), OWN, local.as_ref());
        if !self.links.makes_connected(update.link) {
            return;
        }
        let connected = connected_prefix(&update);
        let same = |a: &&AddressUpdate| !a.no_prefix && connected_prefix(a) == connected;
        let link = self.links.addresses_of(table).find(same).map(|a| a.link);
        let key =
            link.map(|link| HopKey::Path(Path { gateway: None, link: Some(link), weight: 1 }));
        self.host_route(table, connected, CONNECTED, key.as_ref());
    }

    fn host_route(&mut self, table: u32, prefix: AnyPrefix, metric: u32, hop: Option<&HopKey>) {
        if !forwarded(prefix) {
            return;
        }
        let key = RouteKey { table, prefix, metric };
        match hop {
            Some(hop) => self.insert(HOST, key, hop, 0),
            None => self.withdraw(HOST, &key),
        }
    }

    /// Binds the interface of this name to a route table, which is made when there is none: its packets
    /// are forwarded by that table, and its own addresses and prefixes go there.
    ///
    /// # Errors
    /// [`RouteError::TooManyTables`].
    pub fn bind_interface(&mut self, name: &str, table: u32) -> Result<(), RouteError> {
        self.add_table(table)?;
        self.links.settings_mut().bind(name, table);
        if self.links.settings().source_check(name) == Some(UrpfMode::Feasible) {
            self.keep_paths(table)?;
        }
        if let Some((link, _)) = self.links.by_name(name) {
            self.move_link(link, table);
        }
        self.output.outdate();
        Ok(())
    }

    /// Has a link, with its addresses, in a table that exists.
    fn move_link(&mut self, link: u32, table: u32) {
        let Some(entry) = self.links.get(link).filter(|entry| entry.table() != table) else {
            return;
        };
        let addresses = entry.addresses().to_vec();
        for &address in &addresses {
            self.address(AddressUpdate { gone: true, ..address });
        }
        self.forget_neighbors(link);
        self.links.set_table(link, table);
        // Neighbors that users set stay, in the other table.
        self.neighbors.unsettle_link(link);
        for address in addresses {
            self.address(address);
        }
        self.output.outdate();
    }

    /// Looks up the packets of each interface by these policy rules of the kernel from the next commit on, unless it is
    /// bound to a table.
    pub fn set_rules(&mut self, rules: PolicyRules) {
        if self.links.set_rules(rules) {
            self.output.outdate();
        }
    }

    /// Links whose packets policy rules select by more than their interface, each with such a rule in words.
    pub fn complex_rules(&self) -> impl Iterator<Item = (u32, String)> + '_ {
        let rule =
            |entry| [4, 6].into_iter().find_map(|family| self.links.lookups(family, entry).err());
        self.links.iter().filter_map(move |(link, entry)| Some((link, rule(entry)?)))
    }

    /// Checks the sources of packets of the interface of this name from the next commit on, or
    /// (`None`) no longer.
    ///
    /// # Errors
    /// [`RouteError::TooManyTables`], where feasible uRPF needs one.
    pub fn check_sources(&mut self, name: &str, check: Option<UrpfMode>) -> Result<(), RouteError> {
        if check == Some(UrpfMode::Feasible) {
            self.keep_paths(self.links.settings().table(name).unwrap_or(MAIN_TABLE))?;
        }
        self.links.settings_mut().set_source_check(name, check);
        self.output.outdate();
        Ok(())
    }

    /// Leaves the packets of these interfaces, and of no others, to the graph from the next commit on: the XDP datapath
    /// does not forward them.
    pub fn leave_to_graph(&mut self, interfaces: InterfaceSet) {
        if self.links.settings_mut().set_graph_only(interfaces) {
            self.output.outdate();
        }
    }

    /// Sets whether senders of packets that leave by the interface of this name again get ICMP redirects; they do
    /// by default.
    pub fn send_redirects(&mut self, name: &str, send: bool) {
        self.links.settings_mut().set_redirects(name, send);
        self.output.outdate();
    }
}
