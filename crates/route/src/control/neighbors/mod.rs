//! Neighbors: link addresses into adjacencies, and hosts on a link as host routes.
//!
//! A packet to a connected prefix finds a glean forwarding action first. The worker requests a resolution, the
//! control side passes the request to the kernel ([`pending`]), and the host that replies, or is silent, becomes a host route with
//! an adjacency of its own, of one more route source that loses to every other one. It exists only where the longest other match is
//! that very link's connected prefix, which each commit checks for prefixes that changed.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use fingerpost_lpm::{Addr, NextHopId, Prefix, Routes};

mod pending;
mod permanent;
mod unconfirmed;

pub use permanent::NeighborError;

use pending::Pending;
use unconfirmed::Unconfirmed;

use super::links::{Link, Links, host_prefix};
use super::sources::NEIGHBOR;
use super::tables::{Table, Tables};
use super::{Control, forwarded};
use crate::event::{AnyPrefix, Mac, NeighborState, Path, RouteKey};
use crate::forwarding::ResolveRequest;
use crate::hops::{Adjacency, ForwardingAction};
use crate::mtu::narrower;
use crate::nexthop::{AdjacencyKey, HopAttrs, HopKey};

/// Time that a host which did not reply is remembered as silent, and between two requests for a silent
/// gateway.
const HOLD_DOWN: Duration = Duration::from_secs(5);
/// Longest time of a resolution by the kernel; its own limit is three probes, a second apart.
const LONGEST_RESOLUTION: Duration = Duration::from_secs(10);

/// Request to the kernel: resolve this neighbor, or confirm it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct NeighborRequest {
    /// Kernel index of the link.
    pub link: u32,
    /// Its address.
    pub addr: IpAddr,
}

/// A neighbor and its state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NeighborRow {
    /// Kernel index of the link.
    pub link: u32,
    /// Its address.
    pub addr: IpAddr,
    /// State: as a user set it, else as the kernel reports it.
    pub state: NeighborState,
    /// Set by a user ([`Control::add_neighbor`]).
    pub by_user: bool,
}

/// Neighbors of all links.
#[derive(Debug, Default)]
pub(super) struct Neighbors {
    /// States that the kernel reported.
    known: HashMap<(u32, IpAddr), NeighborState>,
    /// Neighbors that the kernel deleted while next hops use them.
    unconfirmed: Unconfirmed,
    /// Link addresses that users set; they win over what is known ([`permanent`]).
    permanent: HashMap<(u32, IpAddr), Mac>,
    /// Both of these by address, for finding neighbors under a changed prefix.
    by_addr: BTreeSet<(IpAddr, u32)>,
    pending: Pending,
    requests: Vec<NeighborRequest>,
    /// Pending resolutions that others replaced.
    forgotten: Vec<NeighborRequest>,
    /// Neighbors whose host route the next commit checks.
    unsettled: HashSet<(u32, IpAddr)>,
    /// Links, with all of whose neighbors the next commit does so: finding them costs a pass over all neighbors, which a
    /// link that fails does not wait for.
    unsettled_links: BTreeSet<u32>,
    last_retry: Option<Instant>,
}

impl Neighbors {
    fn set(&mut self, link: u32, addr: IpAddr, state: NeighborState) {
        if state == NeighborState::Gone {
            self.known.remove(&(link, addr));
        } else {
            self.known.insert((link, addr), state);
        }
        self.changed(link, addr);
    }

    /// Sets, or with `None` deletes, a link address; returns the one before.
    fn set_permanent(&mut self, link: u32, addr: IpAddr, mac: Option<Mac>) -> Option<Mac> {
        let key = (link, addr);
        let before = match mac {
            Some(mac) => {
                // There is nothing left to resolve, and a pending resolution is no knowledge.
                if self.pending.remove(&key)
                    && self.known.get(&key) == Some(&NeighborState::Incomplete)
                {
                    self.known.remove(&key);
                }
                self.permanent.insert(key, mac)
            }
            None => self.permanent.remove(&key),
        };
        self.changed(link, addr);
        before
    }

    fn changed(&mut self, link: u32, addr: IpAddr) {
        if self.state(link, addr).is_some() {
            self.by_addr.insert((addr, link));
        } else {
            self.by_addr.remove(&(addr, link));
        }
        self.unsettled.insert((link, addr));
    }

    /// State that the kernel reported.
    fn known(&self, link: u32, addr: IpAddr) -> Option<NeighborState> {
        self.known.get(&(link, addr)).copied()
    }

    /// Link address that a user set.
    fn permanent(&self, link: u32, addr: IpAddr) -> Option<Mac> {
        self.permanent.get(&(link, addr)).copied()
    }

    /// Link addresses that users set on a link, by address.
    fn permanent_on(&self, link: u32) -> Vec<(IpAddr, Mac)> {
        let of_link = self.permanent.iter().filter(|(key, _)| key.0 == link);
        let mut all: Vec<(IpAddr, Mac)> = of_link.map(|(key, &mac)| (key.1, mac)).collect();
        all.sort_unstable();
        all
    }

    /// Its state.
    pub(super) fn state(&self, link: u32, addr: IpAddr) -> Option<NeighborState> {
        let set = self.permanent(link, addr).map(NeighborState::Permanent);
        set.or_else(|| self.known.get(&(link, addr)).copied())
    }

    /// The adjacency of a neighbor as it is known; `None` when its link is gone.
    pub(super) fn adjacency(&self, key: AdjacencyKey, links: &Links) -> Option<Adjacency> {
        let link = links.get(key.link)?;
        let (port, state) = (link.port(), link.state());
        let dst = match key.neighbor.map(|addr| self.state(key.link, addr)) {
            None => Mac::default(),
            Some(known) => match known.and_then(NeighborState::mac) {
                Some(mac) => mac,
                None => {
                    let failed = known == Some(NeighborState::Failed);
                    return Some(Adjacency::unresolved(port, failed));
                }
            },
        };
        let mtu = u16::try_from(state.mtu).unwrap_or(u16::MAX);
        let (src, mtu) = (state.mac.unwrap_or_default(), narrower(mtu, key.mtu));
        Some(Adjacency { dst, src, port, mtu })
    }

    /// Known neighbors that are not in `seen`, and whose resolution is not pending.
    pub(super) fn missing(&self, seen: &HashSet<(u32, IpAddr)>) -> Vec<(u32, IpAddr)> {
        let missing = |key: &&(u32, IpAddr)| !seen.contains(key) && !self.pending.contains(key);
        self.known.keys().filter(missing).copied().collect()
    }

    /// Addresses of the neighbors of a link.
    fn on(&self, link: u32) -> Vec<IpAddr> {
        self.by_addr.iter().filter(|key| key.1 == link).map(|key| key.0).collect()
    }

    fn unsettle_under(&mut self, first: IpAddr, last: IpAddr) {
        let range = (first, 0)..=(last, u32::MAX);
        self.unsettled.extend(self.by_addr.range(range).map(|&(addr, link)| (link, addr)));
    }

    /// Has the next check cover all neighbors of a link.
    pub(super) fn unsettle_link(&mut self, link: u32) {
        self.unsettled_links.insert(link);
    }

    /// Has this check cover the neighbors of the links that changed since the latest commit.
    fn unsettle_links(&mut self) {
        let links = std::mem::take(&mut self.unsettled_links);
        if !links.is_empty() {
            let on = self.by_addr.iter().filter(|(_, link)| links.contains(link));
            self.unsettled.extend(on.map(|&(addr, link)| (link, addr)));
        }
    }

    /// Has this check cover the neighbors under prefixes that changed since the latest commit.
    fn unsettle_changed(&mut self, tables: &Tables) {
        let v4 = || tables.iter().map(|table| table.v4().fib().backlog());
        let v6 = || tables.iter().map(|table| table.v6().fib().backlog());
        let fresh = v4().map(|b| b.fresh().len()).chain(v6().map(|b| b.fresh().len()));
        if fresh.sum::<usize>() > self.by_addr.len() {
            self.unsettled.extend(self.by_addr.iter().map(|&(addr, link)| (link, addr)));
            return;
        }
        for prefix in v4().flat_map(|backlog| backlog.fresh()) {
            self.unsettle_under(prefix.first().to_ip(), prefix.last().to_ip());
        }
        for prefix in v6().flat_map(|backlog| backlog.fresh()) {
            self.unsettle_under(prefix.first().to_ip(), prefix.last().to_ip());
        }
    }

    /// Passes a request for resolution on to the kernel. `link` is that of the request's port.
    fn request(&mut self, key: (u32, IpAddr), ingress: u16, now: Instant) {
        let (link, addr) = key;
        if self.permanent(link, addr).is_some() {
            return;
        }
        if let Some(replaced) = self.pending.add(key, ingress, now) {
            self.forget(replaced);
        }
        if !self.known.contains_key(&key) {
            self.set(link, addr, NeighborState::Incomplete);
        }
        self.unsettled.insert(key);
        self.requests.push(NeighborRequest { link, addr });
    }

    /// Drops a pending resolution that another one replaced. The kernel must forget it as well: it has hardly more room, and
    /// keeps a host that does not reply for seconds.
    fn forget(&mut self, (link, addr): (u32, IpAddr)) {
        self.set(link, addr, NeighborState::Gone);
        let request = NeighborRequest { link, addr };
        self.requests.retain(|other| *other != request);
        self.forgotten.push(request);
    }

    /// Drops pending resolutions that took too long, and requests silent gateways of `adjacencies` again, from
    /// time to time.
    fn expire_pending(
        &mut self,
        adjacencies: impl Iterator<Item = (u32, AdjacencyKey)>,
        now: Instant,
    ) {
        if self.last_retry.is_some_and(|t| now.duration_since(t) < HOLD_DOWN) {
            return;
        }
        self.last_retry = Some(now);
        let is_late = |&(key, since): &((u32, IpAddr), Instant)| {
            let limit = match self.known.get(&key) {
                Some(NeighborState::Failed) => HOLD_DOWN,
                _ => LONGEST_RESOLUTION,
            };
            now.duration_since(since) >= limit
        };
        let late: Vec<_> = self.pending.iter().filter(is_late).map(|(key, _)| key).collect();
        for (link, addr) in late {
            self.pending.remove(&(link, addr));
            self.set(link, addr, NeighborState::Gone);
        }
        // A silent gateway is requested until it replies: nothing else would show that it came back.
        for (_, key) in adjacencies {
            let AdjacencyKey { link, neighbor: Some(addr), .. } = key else { continue };
            let failed = self.state(link, addr) == Some(NeighborState::Failed);
            if failed && !self.pending.contains(&(link, addr)) {
                self.requests.push(NeighborRequest { link, addr });
            }
        }
    }

    /// Whether a neighbor is to have a host route. A silent one has a route by which packets to it are
    /// answered with an ICMP error; before that packets wait for the link's prefix.
    fn wants_route(&self, link: u32, addr: IpAddr) -> bool {
        let state = self.state(link, addr);
        let silent = state == Some(NeighborState::Failed) && self.pending.contains(&(link, addr));
        silent || state.is_some_and(|state| state.mac().is_some())
    }
}

impl Control {
    /// Takes a state that the kernel reported.
    pub(super) fn neighbor(&mut self, link: u32, addr: IpAddr, state: NeighborState) {
        let (key, neighbors) = ((link, addr), &mut self.neighbors);
        if state.mac().is_some() {
            neighbors.pending.remove(&key);
        }
        let state = match (state, neighbors.pending.contains(&key)) {
            // The kernel forgot it while its resolution is pending: it stays pending.
            (NeighborState::Gone, true) => NeighborState::Incomplete,
            (state, _) => state,
        };
        let known = neighbors.known(link, addr).and_then(NeighborState::mac);
        let used = self.hops.adjacencies_of(link, addr).next().is_some();
        let state = neighbors.unconfirmed.report(key, state, known.filter(|_| used));
        neighbors.set(link, addr, state);
        self.fill_neighbor(link, addr);
    }

    /// Writes the adjacencies of a neighbor again.
    fn fill_neighbor(&mut self, link: u32, addr: IpAddr) {
        for index in self.hops.adjacencies_of(link, addr).collect::<Vec<_>>() {
            self.fill(index);
        }
    }

    /// Forgets the neighbors that were learned on a link, and their host routes.
    pub(super) fn forget_neighbors(&mut self, link: u32) {
        let tables = self.table_numbers();
        for addr in self.neighbors.on(link) {
            self.neighbors.pending.remove(&(link, addr));
            self.neighbors.unconfirmed.remove(&(link, addr));
            self.neighbors.set(link, addr, NeighborState::Gone);
            self.fill_neighbor(link, addr);
            for &table in &tables {
                let key = RouteKey { table, prefix: host_prefix(addr), metric: link };
                self.withdraw(NEIGHBOR, &key);
            }
        }
    }

    fn table_numbers(&self) -> Vec<u32> {
        self.tables.routes().map(Table::number).collect()
    }

    /// Takes a request of a worker that holds packets for an unresolved neighbor.
    pub fn resolve(&mut self, request: ResolveRequest, now: Instant) {
        match request {
            ResolveRequest::Adjacency(index) => {
                let Some(AdjacencyKey { link, neighbor: Some(addr), .. }) =
                    self.hops.adjacency_key(index)
                else {
                    return;
                };
                // A user may have set it a moment ago: the packets have left by then.
                if self.neighbors.permanent(link, addr).is_none() {
                    self.neighbors.requests.push(NeighborRequest { link, addr });
                }
            }
            ResolveRequest::Neighbor { port, addr, ingress } => {
                if let Some(link) = self.links.by_port(port) {
                    self.neighbors.request((link, addr), ingress, now);
                }
            }
        }
    }

    /// Every neighbor, by address.
    pub fn neighbors(&self) -> impl Iterator<Item = NeighborRow> + '_ {
        let neighbors = &self.neighbors;
        neighbors.by_addr.iter().filter_map(|&(addr, link)| {
            let by_user = neighbors.permanent(link, addr).is_some();
            Some(NeighborRow { link, addr, state: neighbors.state(link, addr)?, by_user })
        })
    }

    /// Neighbors that the kernel is to resolve or confirm, since the last call.
    pub fn take_requests(&mut self) -> Vec<NeighborRequest> {
        std::mem::take(&mut self.neighbors.requests)
    }

    /// Neighbors that the kernel is to forget, since the last call. Send these before the requests for others.
    pub fn take_forgotten(&mut self) -> Vec<NeighborRequest> {
        std::mem::take(&mut self.neighbors.forgotten)
    }

    /// Takes the adjacencies that packets left by lately: stale ones are confirmed, as the kernel
    /// does not see forwarded packets.
    pub fn keep_alive(&mut self, used: impl IntoIterator<Item = u32>) {
        for index in used {
            let Some(AdjacencyKey { link, neighbor: Some(addr), .. }) =
                self.hops.adjacency_key(index)
            else {
                continue;
            };
            if let Some(NeighborState::Stale(_)) = self.neighbors.state(link, addr) {
                self.neighbors.unconfirmed.requested(&(link, addr));
                self.neighbors.requests.push(NeighborRequest { link, addr });
            }
        }
    }

    /// Whether the uses of adjacencies are wanted ([`Control::keep_alive`]), as some neighbor was deleted that
    /// packets may leave by.
    pub fn wants_uses(&self) -> bool {
        self.neighbors.unconfirmed.wants_uses()
    }

    /// Checks host routes of neighbors, where the neighbors or the routes above them changed, and
    /// drops resolutions that took too long. Part of each commit.
    pub(super) fn settle_neighbors(&mut self, now: Instant) {
        // The use of neighbors that failed, or were not confirmed in time, is over.
        for ((link, addr), state) in self.neighbors.unconfirmed.take_expired(now) {
            self.neighbors.set(link, addr, state);
            self.fill_neighbor(link, addr);
        }
        self.neighbors.expire_pending(self.hops.adjacencies(), now);
        self.neighbors.unsettle_links();
        self.neighbors.unsettle_changed(&self.tables);
        let tables = self.table_numbers();
        for (link, addr) in std::mem::take(&mut self.neighbors.unsettled) {
            // A prefix on the link may be in any table: what is in another VRF's leaks there.
            tables.iter().for_each(|&table| self.settle(table, link, addr));
        }
    }

    fn settle(&mut self, number: u32, link: u32, addr: IpAddr) {
        let wanted = self.neighbors.wants_route(link, addr);
        let port = self.links.get(link).map(Link::port);
        let table = self.tables.get(number).expect("tables are never removed");
        let (prefix, covering) = match addr {
            IpAddr::V4(a) => {
                let prefix = Prefix::host(a.to_bits());
                (AnyPrefix::V4(prefix), table.v4().rib().parent(prefix).map(|(_, hop)| hop))
            }
            IpAddr::V6(a) => {
                let prefix = Prefix::host(a.to_bits());
                (AnyPrefix::V6(prefix), table.v6().rib().parent(prefix).map(|(_, hop)| hop))
            }
        };
        // All its packets must be for hosts of this link; its MTU holds for each of them.
        let glean = |hop: &NextHopId| match self.hops.content(*hop) {
            [(action, _)] => port.is_some_and(|port| *action == ForwardingAction::Glean(port)),
            _ => false,
        };
        let attached = covering.filter(glean).and_then(|hop| self.hops.attrs(hop));
        // The metric makes the link part of the key: the same address may be on two links.
        let key = RouteKey { table: number, prefix, metric: link };
        let attached = attached.filter(|_| wanted && forwarded(prefix));
        if let Some(HopAttrs { mtu, .. }) = attached {
            let hop = HopKey::Path(Path { gateway: Some(addr), link: Some(link), weight: 1 });
            let present = table.find(prefix, NEIGHBOR.0, link).map(|c| c.hop);
            let is = present.map(|hop| (self.hops.key(hop), self.mtu_of(hop)));
            if is != Some((Some(&hop), mtu)) {
                self.insert(NEIGHBOR, key, &hop, mtu);
            }
        } else {
            self.withdraw(NEIGHBOR, &key);
        }
    }

    /// Writes every adjacency of a link again.
    pub(super) fn fill_link(&mut self, link: u32) {
        for index in self.hops.adjacencies_on(link).collect::<Vec<_>>() {
            self.fill(index);
        }
    }

    fn fill(&mut self, index: u32) {
        let Some(key) = self.hops.adjacency_key(index) else { return };
        let Some(new) = self.neighbors.adjacency(key, &self.links) else { return };
        let table = self.hops.table().clone();
        let old = table.adjacency(index);
        if new.resolved() && old.resolved() && (old.src != new.src || old.port != new.port) {
            // More than one store: no reader may see the half of it.
            table.set_unresolved(index, new.port, false);
            self.output.wait_for_readers();
        }
        table.set_adjacency(index, new);
    }
}
