//! What contents of next hops are worked out from: links, next-hop objects, routes to gateways.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::IpAddr;

use fingerpost_lpm::{Addr, NextHopId, Routes};

use super::links::Link;
use crate::event::ObjectTarget;
use crate::hops::Leg;
use crate::nexthop::{AdjacencyKey, Resolver};
use crate::rib::Rib;

/// The next-hop objects of all sources.
#[derive(Debug, Default)]
pub(super) struct Objects(HashMap<(u16, u32), ObjectTarget>);

impl Objects {
    pub(super) fn insert(&mut self, source: u16, id: u32, target: ObjectTarget) {
        self.0.insert((source, id), target);
    }

    pub(super) fn remove(&mut self, source: u16, id: u32) {
        self.0.remove(&(source, id));
    }

    /// The source's objects that are not in `seen`.
    pub(super) fn missing(&self, source: u16, seen: &HashSet<u32>) -> Vec<u32> {
        self.0.keys().filter(|(s, id)| *s == source && !seen.contains(id)).map(|k| k.1).collect()
    }
}

/// A view of the control side while its next hops are written.
pub(super) struct World<'a> {
    pub(super) links: &'a BTreeMap<u32, Link>,
    pub(super) objects: &'a Objects,
    pub(super) v4: &'a Rib<u32>,
    pub(super) v6: &'a Rib<u128>,
}

impl Resolver for World<'_> {
    fn leg(
        &self,
        gateway: Option<IpAddr>,
        link: u32,
        adjacency: &mut dyn FnMut(AdjacencyKey) -> u32,
    ) -> Option<Leg> {
        let entry = self.links.get(&link).filter(|entry| entry.state.up)?;
        Some(if entry.state.loopback {
            Leg::Local
        } else if entry.state.mac.is_none() {
            // One station at the other end: nobody has to be found.
            Leg::Adjacency(adjacency(AdjacencyKey { link, neighbor: None }))
        } else if gateway.is_some() {
            Leg::Adjacency(adjacency(AdjacencyKey { link, neighbor: gateway }))
        } else {
            Leg::Glean(entry.port)
        })
    }

    fn route(&self, gateway: IpAddr) -> Option<NextHopId> {
        let hop = match gateway {
            IpAddr::V4(_) => self.v4.best(u32::from_ip(gateway)?)?.1,
            IpAddr::V6(_) => self.v6.best(u128::from_ip(gateway)?)?.1,
        };
        Some(hop)
    }

    fn object(&self, source: u16, id: u32) -> Option<&ObjectTarget> {
        self.objects.0.get(&(source, id))
    }
}
