//! Next hops and groups on the control side: interned, counted, with dense ids that are reused only
//! when no reader can hold them any more.
//!
//! An entry is what a route names ([`HopKey`]): one path, several by weight, a next-hop object of a
//! source, or a verdict. It never changes; another path is another entry. Its *content* is the list of
//! forwarding actions that packets take at the moment, resolved by a [`Resolver`] that knows links and routes
//! (`nexthop/resolve.rs`), and written into the [`HopTable`] in place: when a link fails or a gateway moves,
//! contents change and no route does. What depends on what is noted (`nexthop/depend.rs`), so only entries
//! that a change concerns are resolved again.
//!
//! Cost:   interning is one hash look-up; a change costs microseconds for each entry that depends on it,
//!         however many routes name it
//! Limits: 2^28 slots and adjacencies; a group has at most 256 members, 64 in FreeBSD's mode

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;

use fingerpost_lpm::{Epoch, Grace, Heap, MemoryMaker, NextHopId, UpdateError};

use crate::event::{AnyPrefix, Path};
use crate::group::{Buckets, GroupMode, slot_shares};
use crate::hops::{ForwardingAction, HopTable, MAX_INDEX};
use crate::mtu::RouteMtu;

mod check;
mod depend;
mod key;
#[cfg(test)]
#[cfg(loom)]
mod loom_tests;
mod resolve;
mod rows;
#[cfg(test)]
#[cfg(not(loom))]
mod tests;

pub use check::HopError;
pub use key::{AdjacencyKey, Exit, HopAttrs, HopFlags, HopKey};
pub use resolve::{Found, Resolver};
pub use rows::{HopRow, MemberRow};

use depend::{Dependents, Serial};
use resolve::Needs;

/// Most members of a group, as many as the kernel has of its own.
pub const MAX_MEMBERS: usize = 256;
/// Greatest weight of a member.
pub const MAX_WEIGHT: u32 = 65_535;
/// Most entries by default: FreeBSD's bound for one table.
const MAX_HOPS: u32 = 262_144;
/// Most lists of alternatives, those of twelve peers in any order. A gateway that leads elsewhere has all of its lists
/// resolved again, which must not take long.
pub const MAX_RANKED: usize = if cfg!(test) { 4 } else { 16_384 };

#[derive(Debug)]
struct Entry {
    key: Arc<HopKey>,
    attrs: HopAttrs,
    refs: u32,
    serial: Serial,
    /// Its object is gone: it leads nowhere, and its key finds it no more.
    orphan: bool,
    needs: Needs,
    /// What packets leave by, sorted, and by what weight.
    exits: Vec<(Exit, u32)>,
    /// Forwarding actions of the exits.
    content: Vec<(ForwardingAction, u32)>,
    /// First slot and number of slots, when it is a group.
    slots: Option<(u32, u32)>,
    /// Who has which bucket, through all changes since it was a group first.
    buckets: Option<Box<Buckets<Exit>>>,
    /// Lists of alternatives that it stands for alone, as there were too many.
    shortened: u32,
}

#[derive(Debug)]
enum Retired {
    Hop(u32),
    Slots(u32, u32),
    Adjacency(u32),
}

/// Work so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct HopCounts {
    /// Entries resolved, new ones and again.
    pub resolved: u64,
    /// Resolved entries whose content was another one then.
    pub rewritten: u64,
    /// Times that alternatives were left out, as there were too many lists of them.
    pub shortened: u64,
}

/// Interned next hops, and the writer's side of the [`HopTable`].
#[derive(Debug)]
pub struct NextHops {
    table: Arc<HopTable>,
    /// Where the table lies, and larger ones will.
    memory: MemoryMaker,
    mode: GroupMode,
    max_hops: u32,
    entries: Vec<Option<Entry>>,
    by_key: HashMap<Arc<HopKey>, Vec<(HopAttrs, u32)>>,
    used: usize,
    /// Lists of alternatives among them.
    ranked: usize,
    serial: Serial,
    dependents: Dependents,
    /// Entries that could not be written for want of room: the next refresh tries again.
    unwritten: BTreeSet<u32>,
    free_hops: Vec<u32>,
    free_slots: HashMap<u32, Vec<u32>>,
    next_slot: u32,
    adjacencies: Vec<Option<(AdjacencyKey, u32)>>,
    adjacency_ids: BTreeMap<AdjacencyKey, u32>,
    free_adjacencies: Vec<u32>,
    /// Unlinked; some table may still name it.
    unlinked: Vec<Retired>,
    /// No table names it, but some reader may.
    waiting: VecDeque<(Epoch, Retired)>,
    grown: bool,
    counts: HopCounts,
}

impl NextHops {
    /// Room for that many ids, slots and adjacencies; it grows by itself.
    ///
    /// # Errors
    /// [`UpdateError::Memory`].
    pub fn new(hops: usize, slots: usize, adjacencies: usize) -> Result<Self, UpdateError> {
        Ok(Self {
            table: Arc::new(HopTable::new(hops, slots, adjacencies)?),
            memory: MemoryMaker::new(|| Box::new(Heap)),
            mode: GroupMode::default(),
            max_hops: MAX_HOPS,
            // Id 0 means that there is no route.
            entries: vec![None],
            by_key: HashMap::new(),
            used: 0,
            ranked: 0,
            serial: 0,
            dependents: Dependents::default(),
            unwritten: BTreeSet::new(),
            free_hops: Vec::new(),
            free_slots: HashMap::new(),
            next_slot: 0,
            adjacencies: Vec::new(),
            adjacency_ids: BTreeMap::new(),
            free_adjacencies: Vec::new(),
            unlinked: Vec::new(),
            waiting: VecDeque::new(),
            grown: false,
            counts: HopCounts::default(),
        })
    }

    /// Puts the table into other memory, now and whenever it grows.
    ///
    /// # Errors
    /// [`UpdateError::Memory`]; nothing changed then.
    pub fn share(&mut self, memory: MemoryMaker) -> Result<(), UpdateError> {
        let (hops, slots, adjacencies) = self.table.capacity();
        let moved = HopTable::with(&mut *memory.make(), hops, slots, adjacencies)?;
        self.memory = memory;
        self.replace(moved);
        Ok(())
    }

    /// The table that readers use.
    pub fn table(&self) -> &Arc<HopTable> {
        &self.table
    }

    /// The ids of default routes, which no other route has.
    pub fn defaults(&self) -> Arc<[NextHopId]> {
        let default = |entry: &Entry| entry.attrs.flags.contains(HopFlags::DEFAULT);
        self.used_entries().filter(|(_, entry)| default(entry)).map(|(id, _)| id).collect()
    }

    /// Whether the table was replaced by a larger one since the last call, or default routes have other
    /// ids: that must then be published before any route names a new id.
    pub fn take_grown(&mut self) -> bool {
        std::mem::take(&mut self.grown)
    }

    /// What the next [`NextHops::take_grown`] returns.
    pub fn has_grown(&self) -> bool {
        self.grown
    }

    /// How groups are laid out.
    pub fn mode(&self) -> GroupMode {
        self.mode
    }

    /// Sets the layout of groups, present ones included.
    ///
    /// # Errors
    /// [`UpdateError`] when there is no room for larger groups; those stay as they are, and the next
    /// refresh tries again.
    pub fn set_mode(&mut self, mode: GroupMode) -> Result<(), UpdateError> {
        if self.mode == mode {
            return Ok(());
        }
        self.mode = mode;
        let mut result = Ok(());
        for id in self.ids() {
            let entry = self.entry_mut(id);
            entry.buckets = None;
            if entry.content.len() > 1
                && let Err(error) = self.write(id)
            {
                self.unwritten.insert(id);
                result = result.and(Err(error));
            }
        }
        result
    }

    /// Entries in use.
    pub fn len(&self) -> usize {
        self.used
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// Ids, slots and adjacencies that wait for tables and readers before they can be used again.
    pub fn waiting(&self) -> usize {
        self.waiting.len() + self.unlinked.len()
    }

    /// Work so far.
    pub fn counts(&self) -> HopCounts {
        self.counts
    }

    /// Gateways that are found by their routes: while there are none, changed routes need no refresh.
    pub fn gateways(&self) -> usize {
        self.dependents.gateways()
    }

    /// The id of `key`, made when it is new, with one more reference. What it leads to may come later.
    ///
    /// # Errors
    /// [`HopError`] for a group that cannot be one, or when there is no room; nothing changed then.
    pub fn acquire(
        &mut self,
        key: &HopKey,
        resolver: &dyn Resolver,
    ) -> Result<NextHopId, HopError> {
        self.acquire_as(key, HopAttrs::default(), None, resolver)
    }

    /// The id of `key` with attributes, and with the entry that it replaces, if it does: a new group
    /// begins with that one's buckets, so that the flows of members that stay do not move. Alternatives of which there are
    /// too many lists are the first one alone.
    ///
    /// # Errors
    /// [`NextHops::acquire`] has them.
    pub fn acquire_as(
        &mut self,
        key: &HopKey,
        mut attrs: HopAttrs,
        instead_of: Option<NextHopId>,
        resolver: &dyn Resolver,
    ) -> Result<NextHopId, HopError> {
        attrs.flags = HopFlags(attrs.flags.0 & HopFlags::OF_ROUTE.0);
        if !key.recursive() {
            attrs.table = HopAttrs::default().table;
        }
        if !key.leads_out() {
            attrs.mtu = 0;
        }
        if let Some(id) = self.find_as(key, attrs) {
            self.add_ref(id);
            return Ok(id);
        }
        self.check_shape(key)?;
        if let HopKey::Ranked(paths) = key
            && self.ranked >= MAX_RANKED
        {
            self.counts.shortened += 1;
            let id = self.acquire_as(&HopKey::Path(paths[0]), attrs, instead_of, resolver)?;
            let shortened = &mut self.entry_mut(id.0).shortened;
            *shortened = shortened.saturating_add(1);
            return Ok(id);
        }
        self.has_room()?;
        let id = match self.free_hops.pop() {
            Some(id) => id,
            None => {
                let id = u32::try_from(self.entries.len()).expect("ids are 32 bits");
                self.reserve(id as usize + 1, 0, 0)?;
                self.entries.push(None);
                id
            }
        };
        let groups = matches!(key, HopKey::Group(_) | HopKey::Object { .. });
        let like = instead_of.filter(|_| groups).and_then(|id| self.entry(id));
        let buckets = like.and_then(|like| {
            let mut buckets = like.buckets.clone()?;
            // Another MTU is no other member.
            buckets.rename(|exit| match exit {
                Exit::Adjacency(key) if key.mtu == like.attrs.mtu => key.mtu = attrs.mtu,
                Exit::ForwardingAction(ForwardingAction::Vrf(_, mtu))
                    if *mtu == RouteMtu::of(like.attrs.mtu) =>
                {
                    *mtu = RouteMtu::of(attrs.mtu);
                }
                _ => {}
            });
            Some(buckets)
        });
        self.serial += 1;
        let ranked = matches!(key, HopKey::Ranked(_));
        let key = Arc::new(key.clone());
        let entry = Entry {
            key: key.clone(),
            attrs,
            refs: 1,
            serial: self.serial,
            orphan: false,
            needs: Needs::default(),
            exits: Vec::new(),
            content: Vec::new(),
            slots: None,
            buckets,
            shortened: 0,
        };
        self.entries[id as usize] = Some(entry);
        self.by_key.entry(key).or_default().push((attrs, id));
        self.used += 1;
        self.ranked += usize::from(ranked);
        // Readers learn of it before a table names the id.
        self.grown |= attrs.flags.contains(HopFlags::DEFAULT);
        self.table.set_hop(NextHopId(id), ForwardingAction::Unreachable);
        if let Err(error) = self.refresh_one(id, false, resolver) {
            self.release(NextHopId(id));
            return Err(error.into());
        }
        Ok(NextHopId(id))
    }

    /// One reference more to an id that is in use.
    pub fn add_ref(&mut self, id: NextHopId) {
        self.entry_mut(id.0).refs += 1;
    }

    /// One reference less. With the last one the id is retired: it is reused once tables and readers are
    /// past it.
    pub fn release(&mut self, id: NextHopId) {
        let entry = self.entry_mut(id.0);
        entry.refs -= 1;
        if entry.refs > 0 {
            return;
        }
        let entry = self.entries[id.index()].take().expect("just seen");
        if !entry.orphan {
            let same = self.by_key.get_mut(&entry.key).expect("entries are found by their keys");
            same.retain(|&(_, other)| other != id.0);
            if same.is_empty() {
                self.by_key.remove(&entry.key);
            }
        }
        self.used -= 1;
        self.ranked -= usize::from(matches!(*entry.key, HopKey::Ranked(_)));
        self.grown |= entry.attrs.flags.contains(HopFlags::DEFAULT);
        self.dependents.replace(id.0, &entry.needs, &Needs::default(), |_| 0);
        self.unwritten.remove(&id.0);
        self.unlink(Retired::Hop(id.0));
        if let Some((first, count)) = entry.slots {
            self.unlink(Retired::Slots(first, count));
        }
        for (action, _) in entry.content {
            self.release_action(action);
        }
    }

    /// Orphans the entries of a key whose object is gone: from the next refresh of that object on they lead nowhere, and
    /// a later object of the same number has entries of its own. Returns whether there are any.
    pub fn orphan(&mut self, key: &HopKey) -> bool {
        let Some(ids) = self.by_key.remove(key) else { return false };
        for (_, id) in ids {
            self.entry_mut(id).orphan = true;
        }
        true
    }

    /// Whether the id is of an object that is gone: whatever names it is to be withdrawn.
    pub fn is_orphan(&self, id: NextHopId) -> bool {
        self.entry(id).is_some_and(|entry| entry.orphan)
    }

    /// What the id stands for.
    pub fn key(&self, id: NextHopId) -> Option<&HopKey> {
        Some(&self.entry(id)?.key)
    }

    /// The paths of an id that packets may take: of alternatives the one in use.
    pub fn paths(&self, id: NextHopId) -> &[Path] {
        let Some(entry) = self.entry(id) else { return &[] };
        match &*entry.key {
            HopKey::Ranked(paths) => paths.get(entry.needs.in_use..).map_or(&[], |rest| &rest[..1]),
            key => key.paths(),
        }
    }

    /// The key of an id, to keep for longer than the id is in use.
    pub fn shared_key(&self, id: NextHopId) -> Option<Arc<HopKey>> {
        Some(self.entry(id)?.key.clone())
    }

    /// The attributes of an id.
    pub fn attrs(&self, id: NextHopId) -> Option<HopAttrs> {
        Some(self.entry(id)?.attrs)
    }

    /// The id of a key that is in use, without attributes.
    pub fn find(&self, key: &HopKey) -> Option<NextHopId> {
        self.find_as(key, HopAttrs::default())
    }

    /// The id of a key with these attributes.
    pub fn find_as(&self, key: &HopKey, attrs: HopAttrs) -> Option<NextHopId> {
        let ids = self.by_key.get(key)?;
        ids.iter().find(|(other, _)| *other == attrs).map(|&(_, id)| NextHopId(id))
    }

    /// The ids of a key, with whatever attributes.
    pub fn find_all(&self, key: &HopKey) -> impl Iterator<Item = NextHopId> {
        self.by_key.get(key).into_iter().flatten().map(|&(_, id)| NextHopId(id))
    }

    /// References to the id.
    pub fn refs(&self, id: NextHopId) -> u32 {
        self.entry(id).map_or(0, |entry| entry.refs)
    }

    /// The forwarding actions of an id and their weights.
    pub fn content(&self, id: NextHopId) -> &[(ForwardingAction, u32)] {
        self.entry(id).map_or(&[], |entry| &entry.content)
    }

    /// What packets of an id leave by, by name.
    pub fn exits(&self, id: NextHopId) -> impl Iterator<Item = Exit> {
        self.entry(id).into_iter().flat_map(|entry| entry.exits.iter().map(|&(exit, _)| exit))
    }

    /// Every id in use with its key.
    pub fn iter(&self) -> impl Iterator<Item = (NextHopId, &HopKey)> {
        self.used_entries().map(|(id, entry)| (id, &*entry.key))
    }

    /// The adjacency of a key, if some forwarding action leaves by it.
    pub fn adjacency(&self, key: AdjacencyKey) -> Option<u32> {
        self.adjacency_ids.get(&key).copied()
    }

    /// The adjacencies of a neighbor: next hops with an MTU of their own have others.
    pub fn adjacencies_of(&self, link: u32, neighbor: IpAddr) -> impl Iterator<Item = u32> {
        let key = |mtu| AdjacencyKey { link, neighbor: Some(neighbor), mtu };
        self.adjacency_ids.range(key(0)..=key(u16::MAX)).map(|(_, &index)| index)
    }

    /// The adjacencies of a link.
    pub fn adjacencies_on(&self, link: u32) -> impl Iterator<Item = u32> {
        let first = AdjacencyKey { link, neighbor: None, mtu: 0 };
        let from_here = self.adjacency_ids.range(first..);
        from_here.take_while(move |(key, _)| key.link == link).map(|(_, &index)| index)
    }

    /// The key of an adjacency that is in use.
    pub fn adjacency_key(&self, index: u32) -> Option<AdjacencyKey> {
        Some(self.adjacencies.get(index as usize)?.as_ref()?.0)
    }

    /// Every adjacency in use.
    pub fn adjacencies(&self) -> impl Iterator<Item = (u32, AdjacencyKey)> {
        self.adjacencies.iter().enumerate().filter_map(|(index, a)| {
            let index = u32::try_from(index).expect("indices are 28 bits");
            Some((index, a.as_ref()?.0))
        })
    }

    /// Resolves every entry again.
    ///
    /// # Errors
    /// [`UpdateError`] when there is no room for a larger group; what could be done is done, and the next
    /// refresh of any kind tries the rest again.
    pub fn refresh(&mut self, resolver: &dyn Resolver) -> Result<(), UpdateError> {
        let entries = &self.entries;
        self.dependents.look_up_all(resolver, |found| serial(entries, found));
        self.refresh_these(self.ids(), resolver)
    }

    /// Resolves the entries again that leave by a link, after it went up or down, came or went, or is another kind.
    ///
    /// # Errors
    /// [`NextHops::refresh`] has them.
    pub fn refresh_link(&mut self, link: u32, resolver: &dyn Resolver) -> Result<(), UpdateError> {
        self.refresh_these(self.dependents.of_link(link), resolver)
    }

    /// Resolves the entries again that follow an object of a source, or have it as a member.
    ///
    /// # Errors
    /// [`NextHops::refresh`] has them.
    pub fn refresh_object(
        &mut self,
        source: u16,
        id: u32,
        resolver: &dyn Resolver,
    ) -> Result<(), UpdateError> {
        self.refresh_these(self.dependents.of_object(source, id), resolver)
    }

    /// Resolves the entries again whose gateway leads elsewhere now that the best routes to `changed` are
    /// others, in whatever table. Call it with all of them, also those that changed back, before
    /// [`NextHops::reclaim`].
    ///
    /// # Errors
    /// [`NextHops::refresh`] has them.
    pub fn refresh_routes(
        &mut self,
        mut changed: impl ExactSizeIterator<Item = AnyPrefix>,
        resolver: &dyn Resolver,
    ) -> Result<(), UpdateError> {
        let entries = &self.entries;
        let serial = |found| serial(entries, found);
        let stale = self.dependents.of_routes(&mut changed, resolver, serial);
        self.refresh_these(stale, resolver)
    }

    /// Gives what readers are past back for use. Call it after the tables that named the unlinked ids
    /// were changed, all of them.
    pub fn reclaim(&mut self, grace: &mut dyn Grace) {
        if !self.unlinked.is_empty() {
            let epoch = grace.retire();
            self.waiting.extend(self.unlinked.drain(..).map(|retired| (epoch, retired)));
        }
        while let Some((_, retired)) = self.waiting.pop_front_if(|(epoch, _)| grace.passed(*epoch))
        {
            match retired {
                Retired::Hop(id) => {
                    self.table.set_hop(NextHopId(id), ForwardingAction::NoRoute);
                    self.free_hops.push(id);
                }
                Retired::Slots(first, count) => {
                    self.free_slots.entry(count).or_default().push(first);
                }
                Retired::Adjacency(index) => {
                    self.table.set_unresolved(index, 0, false);
                    self.free_adjacencies.push(index);
                }
            }
        }
    }

    fn entry(&self, id: NextHopId) -> Option<&Entry> {
        self.entries.get(id.index())?.as_ref()
    }

    fn entry_mut(&mut self, id: u32) -> &mut Entry {
        self.entries[id as usize].as_mut().expect("the id is in use")
    }

    fn used_entries(&self) -> impl Iterator<Item = (NextHopId, &Entry)> {
        self.entries.iter().enumerate().filter_map(|(id, entry)| {
            let id = u32::try_from(id).expect("ids are 32 bits");
            Some((NextHopId(id), entry.as_ref()?))
        })
    }

    fn ids(&self) -> Vec<u32> {
        self.used_entries().map(|(id, _)| id.0).collect()
    }

    fn unlink(&mut self, retired: Retired) {
        self.unlinked.push(retired);
    }

    fn has_room(&self) -> Result<(), UpdateError> {
        if self.used >= self.max_hops as usize {
            let got = self.used as u64 + 1;
            return Err(UpdateError::Limit { what: "next hops", max: self.max_hops.into(), got });
        }
        Ok(())
    }

    fn refresh_these(
        &mut self,
        ids: impl IntoIterator<Item = u32>,
        resolver: &dyn Resolver,
    ) -> Result<(), UpdateError> {
        let again = std::mem::take(&mut self.unwritten);
        let ids: BTreeSet<u32> = ids.into_iter().chain(again.iter().copied()).collect();
        let mut ids: Vec<u32> = ids.into_iter().collect();
        // What many routes name moves first: each entry costs about a microsecond.
        ids.sort_by_key(|&id| Reverse(self.refs(NextHopId(id))));
        let mut result = Ok(());
        for id in ids {
            if let Err(error) = self.refresh_one(id, again.contains(&id), resolver) {
                self.unwritten.insert(id);
                result = result.and(Err(error));
            }
        }
        result
    }

    /// Resolves an entry, and writes it when it is not what it was, or could not be written.
    fn refresh_one(
        &mut self,
        id: u32,
        unwritten: bool,
        resolver: &dyn Resolver,
    ) -> Result<(), UpdateError> {
        self.counts.resolved += 1;
        let entry = self.entries[id as usize].as_ref().expect("the id is in use");
        let (exits, needs) = match entry.orphan {
            true => Default::default(),
            false => resolve::resolve(self, &entry.key, entry.attrs, resolver),
        };
        let known = |found| serial(&self.entries, found);
        self.dependents.replace(id, &entry.needs, &needs, known);
        // A new entry has no exits, and reads as unreachable already.
        let same = entry.exits == exits && !unwritten;
        self.entry_mut(id).needs = needs;
        if same {
            return Ok(());
        }
        let content = self.actions(&exits, resolver)?;
        self.counts.rewritten += 1;
        let entry = self.entry_mut(id);
        entry.exits = exits;
        let old = std::mem::replace(&mut entry.content, content);
        let result = self.write(id);
        if result.is_err() {
            // Readers keep the old forwarding actions, which keep their adjacencies for that.
            let entry = self.entry_mut(id);
            let new = std::mem::replace(&mut entry.content, old);
            new.into_iter().for_each(|(action, _)| self.release_action(action));
            return result;
        }
        old.into_iter().for_each(|(action, _)| self.release_action(action));
        Ok(())
    }

    /// The forwarding actions of exits, each holding a reference to its adjacency.
    fn actions(
        &mut self,
        exits: &[(Exit, u32)],
        resolver: &dyn Resolver,
    ) -> Result<Vec<(ForwardingAction, u32)>, UpdateError> {
        let mut actions = Vec::with_capacity(exits.len());
        for &(exit, weight) in exits {
            let action = match exit {
                Exit::ForwardingAction(action) => action,
                Exit::Adjacency(key) => match self.acquire_adjacency(key, resolver) {
                    Ok(index) => ForwardingAction::Adjacency(index),
                    Err(error) => {
                        actions.into_iter().for_each(|(action, _)| self.release_action(action));
                        return Err(error);
                    }
                },
            };
            actions.push((action, weight));
        }
        Ok(actions)
    }

    fn acquire_adjacency(
        &mut self,
        key: AdjacencyKey,
        resolver: &dyn Resolver,
    ) -> Result<u32, UpdateError> {
        if let Some(&index) = self.adjacency_ids.get(&key) {
            self.adjacencies[index as usize].as_mut().expect("keys name adjacencies").1 += 1;
            return Ok(index);
        }
        let index = match self.free_adjacencies.pop() {
            Some(index) => index,
            None => {
                let index = u32::try_from(self.adjacencies.len()).expect("indices are 28 bits");
                self.reserve(0, 0, index as usize + 1)?;
                self.adjacencies.push(None);
                index
            }
        };
        self.adjacencies[index as usize] = Some((key, 1));
        self.adjacency_ids.insert(key, index);
        // Before anything names it: a flow that comes here finds a whole adjacency.
        self.table.set_neighbor(index, key.neighbor);
        self.table.set_adjacency(index, resolver.adjacency(key));
        Ok(index)
    }

    fn release_action(&mut self, action: ForwardingAction) {
        let ForwardingAction::Adjacency(index) = action else { return };
        let slot = &mut self.adjacencies[index as usize];
        let (key, refs) = slot.as_mut().expect("actions name adjacencies in use");
        *refs -= 1;
        if *refs == 0 {
            self.adjacency_ids.remove(key);
            *slot = None;
            self.unlink(Retired::Adjacency(index));
        }
    }

    /// Writes the content of an entry into the table. A reader's flow takes its old forwarding action or its new one: a
    /// slot changes whole, and where there must be another number of them the new ones are filled first.
    fn write(&mut self, id: u32) -> Result<(), UpdateError> {
        let mode = self.mode;
        let entry = self.entry_mut(id);
        let layout = match mode {
            GroupMode::Slots => slots(&entry.content),
            GroupMode::Resilient => buckets(entry),
        };
        let count = u32::try_from(layout.len()).expect("at most some thousand slots");
        let had = entry.slots;
        let first = match (had, &entry.content[..]) {
            // No path at the moment: the sender gets an ICMP error.
            (_, []) => None,
            (_, [_]) => None,
            (Some((first, before)), _) if before == count => Some(first),
            _ => Some(self.take_slots(count)?),
        };
        let hop = NextHopId(id);
        let Some(first) = first else {
            let action = self
                .content(hop)
                .first()
                .map_or(ForwardingAction::Unreachable, |&(action, _)| action);
            self.table.set_hop(hop, action);
            self.leave_slots(id, None);
            return Ok(());
        };
        for (slot, action) in (first..).zip(layout) {
            if self.table.slot(slot) != action {
                self.table.set_slot(slot, action);
            }
        }
        if had != Some((first, count)) {
            self.table.set_group(hop, first, count);
            self.leave_slots(id, Some((first, count)));
        }
        Ok(())
    }

    fn leave_slots(&mut self, id: u32, new: Option<(u32, u32)>) {
        let old = std::mem::replace(&mut self.entry_mut(id).slots, new);
        if let Some((first, count)) = old {
            self.unlink(Retired::Slots(first, count));
        }
    }

    fn take_slots(&mut self, count: u32) -> Result<u32, UpdateError> {
        if let Some(first) = self.free_slots.get_mut(&count).and_then(Vec::pop) {
            return Ok(first);
        }
        let first = self.next_slot;
        self.reserve(0, (first + count) as usize, 0)?;
        self.next_slot += count;
        Ok(first)
    }

    /// Makes room, by a larger table when needed.
    fn reserve(
        &mut self,
        hops: usize,
        slots: usize,
        adjacencies: usize,
    ) -> Result<(), UpdateError> {
        let have = self.table.capacity();
        if hops <= have.0 && slots <= have.1 && adjacencies <= have.2 {
            return Ok(());
        }
        for (what, got) in [("slots", slots), ("adjacencies", adjacencies)] {
            if got > MAX_INDEX as usize {
                return Err(UpdateError::Limit { what, max: MAX_INDEX.into(), got: got as u64 });
            }
        }
        let fit = |need: usize, have: usize| if need > have { need.max(have * 2) } else { have };
        let (hops, slots) = (fit(hops, have.0), fit(slots, have.1));
        let larger =
            HopTable::with(&mut *self.memory.make(), hops, slots, fit(adjacencies, have.2))?;
        self.replace(larger);
        Ok(())
    }

    /// Continues with another table; readers must be given it before any new id.
    fn replace(&mut self, other: HopTable) {
        self.table.copy_to(&other);
        self.table = Arc::new(other);
        self.grown = true;
    }
}

fn serial(entries: &[Option<Entry>], found: Found) -> Serial {
    entries.get(found.hop.index()).and_then(Option::as_ref).map_or(0, |entry| entry.serial)
}

/// The slots of forwarding actions in FreeBSD's order: by ascending weight, each in one piece.
fn slots(content: &[(ForwardingAction, u32)]) -> Vec<ForwardingAction> {
    let mut sorted = content.to_vec();
    sorted.sort_by_key(|&(_, weight)| weight);
    let weights: Vec<u32> = sorted.iter().map(|&(_, weight)| weight).collect();
    if weights.is_empty() {
        return Vec::new();
    }
    let shares = slot_shares(&weights);
    let piece =
        |(&(action, _), &share): (&(ForwardingAction, u32), &u32)| vec![action; share as usize];
    sorted.iter().zip(&shares).flat_map(piece).collect()
}

/// The forwarding actions of an entry's buckets; none while it is no group.
fn buckets(entry: &mut Entry) -> Vec<ForwardingAction> {
    if entry.content.len() < 2 && entry.buckets.is_none() {
        return Vec::new();
    }
    let buckets = entry.buckets.get_or_insert_default();
    buckets.arrange(&entry.exits);
    let (exits, content) = (&entry.exits, &entry.content);
    buckets.lay(|exit| match exits.binary_search_by_key(exit, |&(exit, _)| exit) {
        Ok(at) => content[at].0,
        // An owner that is away: no member's bucket.
        Err(_) => ForwardingAction::Unreachable,
    })
}

/// Whether an address is in a prefix.
fn covers(prefix: AnyPrefix, addr: IpAddr) -> bool {
    match (prefix, addr) {
        (AnyPrefix::V4(prefix), IpAddr::V4(addr)) => prefix.contains(addr.to_bits()),
        (AnyPrefix::V6(prefix), IpAddr::V6(addr)) => prefix.contains(addr.to_bits()),
        _ => false,
    }
}
