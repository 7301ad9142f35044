//! Dependents: the entries to resolve again when a link, an object or a route changes.
//!
//! The route of each gateway that is found by its route is kept, so that of a million
//! changed routes only those matter that lie between the gateway and that route's prefix, and of those
//! only the ones that lead elsewhere now.
//!
//! Cost: one look-up in an ordered set for each thing that changed; for more changed routes than there are
//!       gateways, one route look-up a gateway instead

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use fingerpost_lpm::Addr;

use super::resolve::{Found, Needs, Resolver};
use crate::event::AnyPrefix;

/// So many changed routes a gateway make it cheaper to look each gateway up.
const CHANGES_A_GATEWAY: usize = 4;

/// What an entry was when a gateway's route named it: ids are used again, these numbers are not.
pub(super) type Serial = u64;

#[derive(Debug, Default)]
pub(super) struct Dependents {
    /// Each with the id of an entry that needs it.
    links: BTreeSet<(u32, u32)>,
    objects: BTreeSet<((u16, u32), u32)>,
    gateways: BTreeMap<(IpAddr, u32), Gateway>,
}

#[derive(Debug, Default)]
struct Gateway {
    found: Option<(Found, Serial)>,
    /// Not all users were worked out from `found`.
    mixed: bool,
    users: BTreeSet<u32>,
}

impl Dependents {
    /// Entry `id` needs these things and no longer those.
    pub(super) fn replace(
        &mut self,
        id: u32,
        old: &Needs,
        new: &Needs,
        serial: impl Fn(Found) -> Serial,
    ) {
        if old.links != new.links {
            for &link in &old.links {
                self.links.remove(&(link, id));
            }
            self.links.extend(new.links.iter().map(|&link| (link, id)));
        }
        if old.objects != new.objects {
            for &object in &old.objects {
                self.objects.remove(&(object, id));
            }
            self.objects.extend(new.objects.iter().map(|&object| (object, id)));
        }
        for key in old.gateways.keys().filter(|key| !new.gateways.contains_key(key)) {
            let gateway = self.gateways.get_mut(key).expect("users are noted");
            gateway.users.remove(&id);
            if gateway.users.is_empty() {
                self.gateways.remove(key);
            }
        }
        for (&key, &found) in &new.gateways {
            let found = found.map(|found| (found, serial(found)));
            let gateway = self.gateways.entry(key).or_default();
            if gateway.users.is_empty() {
                gateway.found = found;
            } else {
                gateway.mixed |= leads(gateway.found) != leads(found);
            }
            gateway.users.insert(id);
        }
    }

    /// Entries that leave by a link, or would if it were up.
    pub(super) fn of_link(&self, link: u32) -> Vec<u32> {
        self.links.range((link, 0)..=(link, u32::MAX)).map(|pair| pair.1).collect()
    }

    /// Entries that follow an object.
    pub(super) fn of_object(&self, source: u16, id: u32) -> Vec<u32> {
        let object = (source, id);
        self.objects.range((object, 0)..=(object, u32::MAX)).map(|pair| pair.1).collect()
    }

    /// Gateways that are found by their routes.
    pub(super) fn gateways(&self) -> usize {
        self.gateways.len()
    }

    /// Looks every gateway up again: the caller resolves all entries.
    pub(super) fn look_up_all(
        &mut self,
        resolver: &dyn Resolver,
        serial: impl Fn(Found) -> Serial,
    ) {
        for (key, gateway) in &mut self.gateways {
            gateway.found = resolver.route(key.1, key.0).map(|found| (found, serial(found)));
            gateway.mixed = false;
        }
    }

    /// Entries with a gateway that leads elsewhere since the routes to `changed` are others, in whatever
    /// table. The result is kept: the caller resolves all of them.
    pub(super) fn of_routes(
        &mut self,
        changed: &mut dyn ExactSizeIterator<Item = AnyPrefix>,
        resolver: &dyn Resolver,
        serial: impl Fn(Found) -> Serial,
    ) -> BTreeSet<u32> {
        let mut stale = BTreeSet::new();
        if self.gateways.is_empty() {
            return stale;
        }
        let mut look_up = |key: &(IpAddr, u32), gateway: &mut Gateway| {
            let found = resolver.route(key.1, key.0).map(|found| (found, serial(found)));
            if gateway.mixed || leads(gateway.found) != leads(found) {
                stale.extend(&gateway.users);
            }
            gateway.mixed = false;
            gateway.found = found;
        };
        if changed.len() / CHANGES_A_GATEWAY > self.gateways.len() {
            for (key, gateway) in &mut self.gateways {
                look_up(key, gateway);
            }
            return stale;
        }
        for prefix in changed {
            let (first, last) = bounds(prefix);
            for (key, gateway) in self.gateways.range_mut((first, 0)..=(last, u32::MAX)) {
                let covered = gateway.found.is_some_and(|(f, _)| f.prefix.len() > prefix.len());
                if gateway.mixed || !covered {
                    look_up(key, gateway);
                }
            }
        }
        stale
    }
}

/// Where a gateway's route leads; by which prefix does not matter.
fn leads(found: Option<(Found, Serial)>) -> Option<Serial> {
    found.map(|(_, serial)| serial)
}

fn bounds(prefix: AnyPrefix) -> (IpAddr, IpAddr) {
    match prefix {
        AnyPrefix::V4(p) => (p.first().to_ip(), p.last().to_ip()),
        AnyPrefix::V6(p) => (p.first().to_ip(), p.last().to_ip()),
    }
}
