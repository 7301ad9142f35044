//! What contents of next hops are worked out from: links, next-hop objects, routes to gateways.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::IpAddr;

use fingerpost_lpm::Routes;

use super::links::Link;
use crate::event::{AnyPrefix, ObjectTarget};
use crate::hops::Leg;
use crate::nexthop::{AdjacencyKey, Exit, Found, Resolver};
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
    fn exit(&self, gateway: Option<IpAddr>, link: u32) -> Option<Exit> {
        let entry = self.links.get(&link).filter(|entry| entry.state.up)?;
        let to = |neighbor| Exit::Adjacency(AdjacencyKey { link, neighbor, mtu: 0 });
        Some(if entry.state.loopback {
            Exit::Leg(Leg::Local)
        } else if entry.state.mac.is_none() {
            // One station at the other end: nobody has to be found.
            to(None)
        } else if gateway.is_some() {
            to(gateway)
        } else {
            Exit::Leg(Leg::Glean(entry.port))
        })
    }

    fn has_link(&self, link: u32) -> bool {
        self.links.contains_key(&link)
    }

    fn route(&self, _: u32, gateway: IpAddr) -> Option<Found> {
        Some(match gateway {
            IpAddr::V4(gateway) => {
                let (prefix, hop) = self.v4.best(gateway.to_bits())?;
                Found { prefix: AnyPrefix::V4(prefix), hop }
            }
            IpAddr::V6(gateway) => {
                let (prefix, hop) = self.v6.best(gateway.to_bits())?;
                Found { prefix: AnyPrefix::V6(prefix), hop }
            }
        })
    }

    fn object(&self, source: u16, id: u32) -> Option<&ObjectTarget> {
        self.objects.0.get(&(source, id))
    }
}
