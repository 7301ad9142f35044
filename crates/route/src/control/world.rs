//! What contents of next hops are worked out from: links, next-hop objects, routes to gateways.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use fingerpost_lpm::{Routes, UpdateError};

use super::Control;
use super::links::Link;
use super::neighbors::Neighbors;
use super::objects::Objects;
use super::tables::Tables;
use crate::event::{AnyPrefix, ObjectTarget};
use crate::group::GroupMode;
use crate::hops::{Adjacency, ForwardingAction};
use crate::nexthop::{AdjacencyKey, Exit, Found, Resolver};

/// A view of the control side while its next hops are written.
pub(super) struct World<'a> {
    pub(super) links: &'a BTreeMap<u32, Link>,
    pub(super) objects: &'a Objects,
    pub(super) tables: &'a Tables,
    pub(super) neighbors: &'a Neighbors,
}

/// Links and objects that changed since the next hops that depend on them were worked out.
#[derive(Debug, Default)]
pub(super) struct Stale {
    links: BTreeSet<u32>,
    objects: BTreeSet<(u16, u32)>,
}

impl Stale {
    pub(super) fn link(&mut self, link: u32) {
        self.links.insert(link);
    }

    pub(super) fn object(&mut self, source: u16, id: u32) {
        self.objects.insert((source, id));
    }

    fn is_empty(&self) -> bool {
        self.links.is_empty() && self.objects.is_empty()
    }
}

impl Control {
    /// Resolves next hops again whose routes to gateways changed since the latest commit. What cannot be
    /// written for want of room is tried again the next time.
    pub(super) fn refresh_gateways(&mut self) -> Result<(), UpdateError> {
        let world = super::world(&self.links, &self.objects, &self.tables, &self.neighbors);
        let mut failed = None;
        for table in self.tables.iter() {
            let v4 = table.v4.fib.backlog().fresh().map(AnyPrefix::V4);
            failed = self.hops.refresh_routes(v4, &world).err().or(failed);
            let v6 = table.v6.fib.backlog().fresh().map(AnyPrefix::V6);
            failed = self.hops.refresh_routes(v6, &world).err().or(failed);
        }
        failed.map_or(Ok(()), Err)
    }

    /// The same without the routes to gateways: costs what the next hops cost that use such a link or object, and
    /// nothing for the routes behind them.
    pub(super) fn refresh_stale(&mut self) -> Result<(), UpdateError> {
        let stale = std::mem::take(&mut self.stale);
        let world = super::world(&self.links, &self.objects, &self.tables, &self.neighbors);
        let mut failed = None;
        for link in stale.links {
            failed = self.hops.refresh_link(link, &world).err().or(failed);
        }
        for (source, id) in stale.objects {
            failed = self.hops.refresh_object(source, id, &world).err().or(failed);
        }
        failed.map_or(Ok(()), Err)
    }

    /// Makes visible what happened to links and next-hop objects since the last call or commit: groups change in
    /// place, before a single route does and however many there are. Costs next to nothing when nothing happened.
    ///
    /// # Errors
    /// [`UpdateError`] when there is no room for larger groups: the next commit tries again.
    pub fn fail_over(&mut self) -> Result<(), UpdateError> {
        if self.stale.is_empty() {
            return Ok(());
        }
        let result = self.refresh_stale();
        if self.hops.has_grown() {
            // It is in a table that readers do not have yet. That they must have it before routes name new ids is left
            // to the commit, which waits for them.
            self.publish();
        }
        result
    }

    /// Lays groups out in another way from now on.
    ///
    /// # Errors
    /// [`UpdateError`] when there is no room for larger groups: those change with the next thing that
    /// concerns them.
    pub fn set_group_mode(&mut self, mode: GroupMode) -> Result<(), UpdateError> {
        self.hops.set_mode(mode)
    }
}

impl Resolver for World<'_> {
    fn exit(&self, gateway: Option<IpAddr>, link: u32) -> Option<Exit> {
        let entry = self.links.get(&link).filter(|entry| entry.state.up && entry.carrier)?;
        let to = |neighbor| Exit::Adjacency(AdjacencyKey { link, neighbor, mtu: 0 });
        Some(if entry.state.loopback {
            Exit::ForwardingAction(ForwardingAction::Local)
        } else if entry.state.mac.is_none() {
            // One station at the other end: nobody has to be found.
            to(None)
        } else if gateway.is_some() {
            to(gateway)
        } else {
            Exit::ForwardingAction(ForwardingAction::Glean(entry.port))
        })
    }

    fn adjacency(&self, key: AdjacencyKey) -> Adjacency {
        self.neighbors.adjacency(key, self.links).unwrap_or_default()
    }

    fn has_link(&self, link: u32) -> bool {
        self.links.contains_key(&link)
    }

    fn route(&self, table: u32, gateway: IpAddr) -> Option<Found> {
        let table = self.tables.get(table)?;
        Some(match gateway {
            IpAddr::V4(gateway) => {
                let (prefix, hop) = table.v4.rib.best(gateway.to_bits())?;
                Found { prefix: AnyPrefix::V4(prefix), hop }
            }
            IpAddr::V6(gateway) => {
                let (prefix, hop) = table.v6.rib.best(gateway.to_bits())?;
                Found { prefix: AnyPrefix::V6(prefix), hop }
            }
        })
    }

    fn object(&self, source: u16, id: u32) -> Option<&ObjectTarget> {
        self.objects.get(source, id)
    }
}
