//! What next hops are resolved from: links, next-hop objects, neighbors, routes to gateways.

use std::net::IpAddr;

use fingerpost_lpm::Routes;

use super::links::Links;
use super::neighbors::Neighbors;
use super::objects::Objects;
use super::tables::Tables;
use crate::event::{AnyPrefix, ObjectTarget, VRF};
use crate::hops::{Adjacency, ForwardingAction};
use crate::mtu::RouteMtu;
use crate::nexthop::{AdjacencyKey, Exit, Found, Resolver};

/// A view of the control side's parts while its next hops are written.
pub(super) struct LiveResolver<'a> {
    links: &'a Links,
    objects: &'a Objects,
    tables: &'a Tables,
    neighbors: &'a Neighbors,
}

/// The view of these parts.
pub(super) fn resolver<'a>(
    links: &'a Links,
    objects: &'a Objects,
    tables: &'a Tables,
    neighbors: &'a Neighbors,
) -> LiveResolver<'a> {
    LiveResolver { links, objects, tables, neighbors }
}

impl Resolver for LiveResolver<'_> {
    fn exit(&self, gateway: Option<IpAddr>, link: u32) -> Option<Exit> {
        let entry = self.links.get(link).filter(|entry| entry.is_up())?;
        let to = |neighbor| Exit::Adjacency(AdjacencyKey { link, neighbor, mtu: 0 });
        Some(if entry.state().loopback {
            Exit::ForwardingAction(ForwardingAction::Local)
        } else if entry.state().kind == VRF {
            Exit::ForwardingAction(ForwardingAction::Vrf(entry.port(), RouteMtu::NONE))
        } else if entry.state().mac.is_none() {
            // One host at the other end: there is no neighbor to resolve.
            to(None)
        } else if gateway.is_some() {
            to(gateway)
        } else {
            Exit::ForwardingAction(ForwardingAction::Glean(entry.port()))
        })
    }

    fn adjacency(&self, key: AdjacencyKey) -> Adjacency {
        self.neighbors.adjacency(key, self.links).unwrap_or_default()
    }

    fn has_link(&self, link: u32) -> bool {
        self.links.get(link).is_some()
    }

    fn route(&self, table: u32, gateway: IpAddr) -> Option<Found> {
        let table = self.tables.get(table)?;
        Some(match gateway {
            IpAddr::V4(gateway) => {
                let (prefix, hop) = table.v4().rib().best(gateway.to_bits())?;
                Found { prefix: AnyPrefix::V4(prefix), hop }
            }
            IpAddr::V6(gateway) => {
                let (prefix, hop) = table.v6().rib().best(gateway.to_bits())?;
                Found { prefix: AnyPrefix::V6(prefix), hop }
            }
        })
    }

    fn object(&self, source: u16, id: u32) -> Option<&ObjectTarget> {
        self.objects.get(source, id)
    }
}
