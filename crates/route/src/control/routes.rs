//! The two functions that change routes: every event, action and commit changes the RIB by these.

use std::time::Instant;

use fingerpost_lpm::NextHopId;

use super::Control;
use super::action::{Done, RouteError};
use super::expiry;
use super::journal::Happened;
use super::resolver::resolver;
use super::sources::{HOST, SourceId};
use crate::event::{AnyPrefix, Path, RouteKey, RouteUpdate, Target, is_host};
use crate::mtu::narrower;
use crate::nexthop::{HopAttrs, HopError, HopFlags, HopKey, NextHops};
use crate::rib::{Candidate, Effect};

impl Control {
    /// Takes a route as its source has it.
    pub(super) fn route(&mut self, source: SourceId, update: RouteUpdate) {
        let key = update.key;
        self.sources.get_mut(source).count_update();
        if !Self::takes(&key) {
            // Its source is to know that no packet follows it; it is no error.
            self.sources.get_mut(source).note_refusal(key);
            return;
        }
        if let Err(why) = self.admit(source, &key) {
            let source = self.sources.get_mut(source);
            source.note_refusal(key);
            return source.refuse(&why);
        }
        let (mut target, mut mtu) = (update.target, update.mtu);
        if update.append
            && let Target::Path(_) | Target::Paths(_) = target
        {
            let mut paths = match target {
                Target::Path(path) => vec![path],
                Target::Paths(paths) => paths,
                _ => unreachable!("just seen"),
            };
            if let Some(present) = self.present(source, &key) {
                paths.extend(self.paths(present));
                mtu = narrower(mtu, self.mtu_of(present));
            }
            target = Target::Paths(paths);
        }
        self.settle_links(&key, &mut target);
        let hop = key_of(source, key.prefix, &target);
        match self.try_insert(source, key, update.distance, &hop, mtu) {
            Ok(_) => self.expiry.forget(source, &key),
            Err(error) => {
                self.refuse(source, &key, error);
                self.sources.get_mut(source).note_refusal(key);
                // The source has another route in the place of the one before; paths that are added leave it there.
                if !update.append {
                    self.withdraw(source, &key);
                }
            }
        }
    }

    /// Makes the table of a route, where the limits of its source let it have the route.
    fn admit(&mut self, source: SourceId, key: &RouteKey) -> Result<(), String> {
        let limits = self.sources.get(source);
        let is_new = self.tables.get(key.table).is_none();
        let tables = limits.full_of_tables().filter(|_| is_new);
        let stamp = || self.tables.get(key.table)?.stamp(key.prefix, source.0, key.metric);
        let routes = limits.full(stamp);
        if let Some(why) = tables.or(routes) {
            return Err(format!("{}: {why}", key.prefix));
        }
        self.add_table(key.table).map_err(|error| error.to_string())?;
        if is_new {
            self.sources.get_mut(source).count_table();
        }
        Ok(())
    }

    fn refuse(&mut self, source: SourceId, key: &RouteKey, error: HopError) {
        let error = RouteError::NextHop { prefix: key.prefix, error };
        self.sources.get_mut(source).refuse(&error);
    }

    /// The MTU of the routes with this next hop; 0 for the MTU of the link.
    pub(super) fn mtu_of(&self, hop: NextHopId) -> u16 {
        self.hops.attrs(hop).map_or(0, |attrs| attrs.mtu)
    }

    /// Inserts a route of the control side's own sources.
    pub(super) fn insert(&mut self, source: SourceId, key: RouteKey, hop: &HopKey, mtu: u16) {
        if let Err(error) = self.try_insert(source, key, None, hop, mtu) {
            self.refuse(source, &key, error);
        }
    }

    /// Adds or replaces the candidate of a source for a prefix of a table that exists.
    /// Links may be announced after their routes.
    pub(super) fn try_insert(
        &mut self,
        source: SourceId,
        key: RouteKey,
        distance: Option<u8>,
        hop_key: &HopKey,
        mtu: u16,
    ) -> Result<NextHopId, HopError> {
        NextHops::check_family(hop_key, key.prefix)?;
        NextHops::check_mtu(mtu, key.prefix)?;
        let attrs = HopAttrs { flags: HopFlags::of_prefix(key.prefix), mtu, table: key.table };
        // The flows of common members stay when a group replaces another one.
        let group = matches!(hop_key, HopKey::Group(_));
        let table = self.tables.get(key.table).filter(|_| group);
        let present = table.and_then(|table| table.find(key.prefix, source.0, key.metric));
        let resolver = resolver(&self.links, &self.objects, &self.tables, &self.neighbors);
        let hop = self.hops.acquire_as(hop_key, attrs, present.map(|c| c.hop), &resolver)?;
        self.snapshots.save(key.table, key.prefix, &self.tables, &mut self.hops);
        let s = self.sources.get_mut(source);
        let candidate = Candidate {
            source: source.0,
            distance: distance.unwrap_or(s.distance()),
            metric: key.metric,
            hop,
        };
        let forced = source == HOST || !s.is_dumping() && is_direct(key.prefix, hop_key);
        let table = self.tables.get_mut(key.table).expect("the caller made the table");
        if forced {
            table.force(key.prefix);
        }
        let effect = table.insert(key.prefix, candidate, s.stamp());
        s.count_inserted(effect.stamp);
        self.note_effect(source, key, &effect, hop);
        self.follow_paths(key.table, key.prefix);
        Ok(hop)
    }

    /// Removes the candidate of a source for a prefix, if there is one.
    pub(super) fn withdraw(&mut self, source: SourceId, key: &RouteKey) {
        let Some(table) = self.tables.get(key.table) else { return };
        if table.find(key.prefix, source.0, key.metric).is_none() {
            return;
        }
        self.snapshots.save(key.table, key.prefix, &self.tables, &mut self.hops);
        let table = self.tables.get_mut(key.table).expect("just seen");
        let effect = table.remove(key.prefix, source.0, key.metric).expect("just seen");
        let s = self.sources.get_mut(source);
        let direct = |hop| self.hops.key(hop).is_some_and(|hop| is_direct(key.prefix, hop));
        if source == HOST || !s.is_dumping() && effect.replaced.is_some_and(direct) {
            table.force(key.prefix);
        }
        s.count_removed(effect.stamp);
        self.expiry.forget(source, key);
        self.note_effect(source, *key, &effect, NextHopId::NONE);
        self.follow_paths(key.table, key.prefix);
    }

    fn note_effect(&mut self, source: SourceId, key: RouteKey, effect: &Effect, new: NextHopId) {
        let old = effect.replaced.unwrap_or(NextHopId::NONE);
        if old == new && effect.old == effect.new {
            // A repeated route: nothing happened, and one reference is too many.
            self.hops.release(old);
            return;
        }
        let done = match (old.is_none(), new.is_none()) {
            (true, _) => Done::Added,
            (false, true) => Done::Deleted,
            (false, false) => Done::Changed,
        };
        let best = effect.old != effect.new;
        let source = source.0;
        let keys = [old, new].map(|hop| (self.hops.shared_key(hop), self.mtu_of(hop)));
        if !old.is_none() {
            self.hops.release(old);
        }
        let [(old, old_mtu), (new, new_mtu)] = keys;
        let mtus = (old_mtu, new_mtu);
        self.journal.note(Happened::Route { done, source, key, old, new, mtus, best });
    }

    /// Withdraws the next routes of the sweep. Part of each commit.
    pub(super) fn sweep_step(&mut self) {
        for (source, key) in self.sources.sweep_step(&self.tables, &self.hops) {
            self.withdraw(source, &key);
        }
    }

    /// Removes the paths that are due: of each route all of them by one change. Part of each commit.
    pub(super) fn expire(&mut self, now: Instant) {
        while let Some((source, key, due)) = self.expiry.take_due(now) {
            let Some(hop) = self.present(source, &key) else { continue };
            let mut left = self.paths(hop);
            left.retain(|path| !due.contains(&expiry::name(path)));
            if left.is_empty() {
                self.withdraw(source, &key);
                continue;
            }
            let (left, mtu) = (HopKey::of_paths(left), self.mtu_of(hop));
            if let Err(error) = self.try_insert(source, key, None, &left, mtu) {
                self.refuse(source, &key, error);
                self.expiry.retry(source, key, due, now);
            }
        }
    }

    /// Next hop of the route of a source, if there is one.
    pub(super) fn present(&self, source: SourceId, key: &RouteKey) -> Option<NextHopId> {
        let table = self.tables.get(key.table)?;
        Some(table.find(key.prefix, source.0, key.metric)?.hop)
    }

    /// The paths of a next hop; none for one that is not made of paths.
    pub(super) fn paths(&self, hop: NextHopId) -> Vec<Path> {
        match self.hops.key(hop) {
            Some(HopKey::Path(path)) => vec![*path],
            Some(HopKey::Group(paths)) => paths.to_vec(),
            _ => Vec::new(),
        }
    }
}

/// Path of a route to a prefix: that of one address to a link has the address as its gateway.
pub(super) fn settled(prefix: AnyPrefix, path: Path) -> Path {
    let host = prefix.is_address() && is_host(prefix.addr()) && path.link.is_some();
    Path { gateway: path.gateway.or(host.then(|| prefix.addr())), ..path }
}

/// Key of a target among the next hops. A path of one address to a link without a gateway has that address as its gateway:
/// there is one neighbor, which every packet leaves by, and none to be resolved for each destination.
pub(super) fn key_of(source: SourceId, prefix: AnyPrefix, target: &Target) -> HopKey {
    let mut paths = match target {
        Target::Path(path) => vec![*path],
        Target::Paths(paths) => paths.clone(),
        Target::Ranked(paths) => {
            return HopKey::of_ranked(paths.iter().map(|path| settled(prefix, *path)));
        }
        Target::Object(id) => return HopKey::Object { source: source.0, id: *id },
        Target::Local => return HopKey::Local,
        Target::Blackhole => return HopKey::Blackhole,
        Target::Prohibit => return HopKey::Prohibit,
        Target::Throw => return HopKey::Throw,
        Target::Unreachable => return HopKey::Unreachable,
    };
    paths.iter_mut().for_each(|path| *path = settled(prefix, *path));
    HopKey::of_paths(paths)
}

/// Whether it leads to the host itself, or to a prefix on a link.
pub(super) fn is_direct(prefix: AnyPrefix, hop: &HopKey) -> bool {
    match hop {
        HopKey::Local => true,
        HopKey::Path(Path { gateway, .. }) => {
            gateway.is_none_or(|gateway| prefix.is_address() && gateway == prefix.addr())
        }
        _ => false,
    }
}
