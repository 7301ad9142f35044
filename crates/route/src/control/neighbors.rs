//! Neighbors: link addresses into adjacencies, and stations on a link as host routes.
//!
//! A packet to a connected prefix finds a glean forwarding action first: nobody in particular. The worker asks, the
//! control side asks the kernel ([`super::pending`]), and the station that answers, or is silent, becomes a host route with
//! an adjacency of its own, one more route source that yields to every real one. It stands only where the longest other match is
//! that very link's connected prefix; route changes above it are looked at again at each commit.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use fingerpost_lpm::{Addr, Grace, NextHopId, Prefix, Routes};

use super::links::{Link, host_prefix};
use super::pending::Pending;
use super::unconfirmed::Unconfirmed;
use super::{Control, NEIGHBOR, SourceId, Table};
use crate::event::{AnyPrefix, MAIN_TABLE, Mac, NeighborState, Path, RouteKey};
use crate::forwarding::ResolveRequest;
use crate::hops::{Adjacency, ForwardingAction};
use crate::nexthop::{AdjacencyKey, HopAttrs, HopKey, narrower};

/// How long a station that did not answer is remembered as silent, and how often a silent gateway is
/// asked for again.
const HOLD_DOWN: Duration = Duration::from_secs(5);
/// How long the kernel may take to answer at all; its own limit is three probes, a second apart.
pub(super) const LONGEST_QUESTION: Duration = Duration::from_secs(10);

/// The kernel is to find this neighbor, or to confirm it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct NeighborRequest {
    /// Kernel index of the link.
    pub link: u32,
    /// The station.
    pub addr: IpAddr,
}

/// A neighbor, and what is known of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NeighborRow {
    /// Kernel index of the link.
    pub link: u32,
    /// Its address.
    pub addr: IpAddr,
    /// What holds: what a user said, else what the kernel knows.
    pub state: NeighborState,
    /// Said by a user ([`Control::add_neighbor`]).
    pub by_user: bool,
}

/// What is known of neighbors.
#[derive(Debug, Default)]
pub(super) struct Neighbors {
    /// By the kernel.
    known: HashMap<(u32, IpAddr), NeighborState>,
    /// Known once, and deleted by the kernel while next hops use them.
    pub(super) unconfirmed: Unconfirmed,
    /// Said by users; holds before what is known ([`super::permanent`]).
    permanent: HashMap<(u32, IpAddr), Mac>,
    /// All of both. By address, for finding those under a changed prefix.
    by_addr: BTreeMap<(IpAddr, u32), ()>,
    asked: Pending,
    requests: Vec<NeighborRequest>,
    /// Pending resolutions that others replaced.
    forgotten: Vec<NeighborRequest>,
    /// Those whose host route must be looked at at the next commit.
    unsettled: HashSet<(u32, IpAddr)>,
    last_retry: Option<Instant>,
}

impl Neighbors {
    pub(super) fn set(&mut self, link: u32, addr: IpAddr, state: NeighborState) {
        if state == NeighborState::Gone {
            self.known.remove(&(link, addr));
        } else {
            self.known.insert((link, addr), state);
        }
        self.changed(link, addr);
    }

    /// Says, or takes back, a link address; returns what was said before.
    pub(super) fn set_permanent(
        &mut self,
        link: u32,
        addr: IpAddr,
        mac: Option<Mac>,
    ) -> Option<Mac> {
        let key = (link, addr);
        let before = match mac {
            Some(mac) => {
                // Nobody needs to be asked any more, and that we asked is nothing known.
                if self.asked.remove(&key)
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
            self.by_addr.insert((addr, link), ());
        } else {
            self.by_addr.remove(&(addr, link));
        }
        self.unsettled.insert((link, addr));
    }

    /// What the kernel said of it, if that holds.
    pub(super) fn known(&self, link: u32, addr: IpAddr) -> Option<NeighborState> {
        self.known.get(&(link, addr)).copied()
    }

    /// What a user said of it.
    pub(super) fn permanent(&self, link: u32, addr: IpAddr) -> Option<Mac> {
        self.permanent.get(&(link, addr)).copied()
    }

    /// What users said of the neighbors of a link, by address.
    pub(super) fn permanent_on(&self, link: u32) -> Vec<(IpAddr, Mac)> {
        let of_link = self.permanent.iter().filter(|(key, _)| key.0 == link);
        let mut all: Vec<(IpAddr, Mac)> = of_link.map(|(key, &mac)| (key.1, mac)).collect();
        all.sort_unstable();
        all
    }

    /// What holds of it.
    pub(super) fn state(&self, link: u32, addr: IpAddr) -> Option<NeighborState> {
        let said = self.permanent(link, addr).map(NeighborState::Permanent);
        said.or_else(|| self.known.get(&(link, addr)).copied())
    }

    /// The adjacency of a neighbor as it is known; `None` when its link is gone.
    pub(super) fn adjacency(
        &self,
        key: AdjacencyKey,
        links: &BTreeMap<u32, Link>,
    ) -> Option<Adjacency> {
        let Link { port, state, .. } = links.get(&key.link)?;
        let dst = match key.neighbor.map(|addr| self.state(key.link, addr)) {
            None => Mac::default(),
            Some(state) => match state.and_then(NeighborState::mac) {
                Some(mac) => mac,
                None => {
                    let failed = state == Some(NeighborState::Failed);
                    return Some(Adjacency::unresolved(*port, failed));
                }
            },
        };
        let mtu = u16::try_from(state.mtu).unwrap_or(u16::MAX);
        let (src, mtu) = (state.mac.unwrap_or_default(), narrower(mtu, key.mtu));
        Some(Adjacency { dst, src, port: *port, mtu })
    }

    /// Those that are not in `seen` and were not asked for by us.
    pub(super) fn missing(&self, seen: &HashSet<(u32, IpAddr)>) -> Vec<(u32, IpAddr)> {
        let ours = |key: &&(u32, IpAddr)| !seen.contains(key) && !self.asked.contains(key);
        self.known.keys().filter(ours).copied().collect()
    }

    /// The addresses of all that are on a link.
    fn on(&self, link: u32) -> Vec<IpAddr> {
        self.by_addr.keys().filter(|key| key.1 == link).map(|key| key.0).collect()
    }

    fn unsettle_under(&mut self, first: IpAddr, last: IpAddr) {
        let range = (first, 0)..=(last, u32::MAX);
        self.unsettled.extend(self.by_addr.range(range).map(|(&(addr, link), ())| (link, addr)));
    }
}

impl Control {
    pub(super) fn neighbor(&mut self, link: u32, addr: IpAddr, state: NeighborState) {
        let key = (link, addr);
        if state.mac().is_some() {
            self.neighbors.asked.remove(&key);
        }
        let state = match (state, self.neighbors.asked.contains(&key)) {
            // The kernel forgot it while we wait: the question stands.
            (NeighborState::Gone, true) => NeighborState::Incomplete,
            (state, _) => state,
        };
        let state = self.unconfirm(key, state);
        self.neighbors.set(link, addr, state);
        self.fill_neighbor(link, addr);
    }

    /// Writes the adjacencies of a neighbor again.
    pub(super) fn fill_neighbor(&mut self, link: u32, addr: IpAddr) {
        for index in self.hops.adjacencies_of(link, addr).collect::<Vec<_>>() {
            self.fill(index);
        }
    }

    /// Takes what was learned of the neighbors of a link away, and the host routes of all of them, while its
    /// table is still known.
    pub(super) fn forget_neighbors(&mut self, link: u32) {
        let Some(table) = self.links.get(&link).map(|entry| entry.table) else { return };
        for addr in self.neighbors.on(link) {
            self.neighbors.asked.remove(&(link, addr));
            self.neighbors.unconfirmed.remove(&(link, addr));
            self.neighbors.set(link, addr, NeighborState::Gone);
            self.fill_neighbor(link, addr);
            let key = RouteKey { table, prefix: host_prefix(addr), metric: link };
            self.withdraw(SourceId(NEIGHBOR), &key);
        }
    }

    /// Whether the link is up decides whether its neighbors can be reached over it.
    pub(super) fn unsettle_link(&mut self, link: u32) {
        let of_link = self.neighbors.on(link).into_iter();
        self.neighbors.unsettled.extend(of_link.map(|addr| (link, addr)));
    }

    /// A worker holds packets for somebody.
    pub fn ask(&mut self, ask: ResolveRequest, now: Instant) {
        match ask {
            ResolveRequest::Adjacency(index) => {
                let Some(AdjacencyKey { link, neighbor: Some(addr), .. }) =
                    self.hops.adjacency_key(index)
                else {
                    return;
                };
                // It was said a moment ago: the packets have gone on.
                if self.neighbors.permanent(link, addr).is_none() {
                    self.neighbors.requests.push(NeighborRequest { link, addr });
                }
            }
            ResolveRequest::Neighbor { port, addr, ingress } => {
                let Some(link) =
                    self.links.iter().find(|(_, entry)| entry.port == port).map(|(&link, _)| link)
                else {
                    return;
                };
                let key = (link, addr);
                if self.neighbors.permanent(link, addr).is_some() {
                    return;
                }
                if let Some(gone) = self.neighbors.asked.add(key, ingress, now) {
                    self.forget_asked(gone);
                }
                if !self.neighbors.known.contains_key(&key) {
                    self.neighbors.set(link, addr, NeighborState::Incomplete);
                }
                self.neighbors.unsettled.insert(key);
                self.neighbors.requests.push(NeighborRequest { link, addr });
            }
        }
    }

    /// Ends a pending resolution that another one replaced. The kernel is to forget it as well: it has hardly more room, and
    /// keeps a host that does not answer for seconds.
    fn forget_asked(&mut self, (link, addr): (u32, IpAddr)) {
        self.neighbors.set(link, addr, NeighborState::Gone);
        let request = NeighborRequest { link, addr };
        self.neighbors.requests.retain(|other| *other != request);
        self.neighbors.forgotten.push(request);
    }

    /// Every neighbor, by address.
    pub fn neighbors(&self) -> impl Iterator<Item = NeighborRow> + '_ {
        let neighbors = &self.neighbors;
        neighbors.by_addr.keys().filter_map(|&(addr, link)| {
            let by_user = neighbors.permanent(link, addr).is_some();
            Some(NeighborRow { link, addr, state: neighbors.state(link, addr)?, by_user })
        })
    }

    /// Neighbors that the kernel is to find or confirm, since the last call.
    pub fn take_requests(&mut self) -> Vec<NeighborRequest> {
        std::mem::take(&mut self.neighbors.requests)
    }

    /// Neighbors that the kernel is to forget, since the last call. Send these before the requests for others.
    pub fn take_forgotten(&mut self) -> Vec<NeighborRequest> {
        std::mem::take(&mut self.neighbors.forgotten)
    }

    /// Adjacencies that packets left by lately: those that the kernel believes unused are confirmed, as
    /// it does not see our traffic.
    pub fn keep_alive(&mut self, used: impl IntoIterator<Item = u32>) {
        for index in used {
            let Some(AdjacencyKey { link, neighbor: Some(addr), .. }) =
                self.hops.adjacency_key(index)
            else {
                continue;
            };
            if let Some(NeighborState::Stale(_)) = self.neighbors.state(link, addr) {
                if let Some(since) = self.neighbors.unconfirmed.get_mut(&(link, addr)) {
                    since.asked = true;
                }
                self.neighbors.requests.push(NeighborRequest { link, addr });
            }
        }
    }

    /// Looks at host routes of neighbors again, where they or the routes above them changed, and at
    /// questions that took too long. Part of each commit.
    pub(super) fn settle_neighbors(&mut self, now: Instant) {
        self.settle_unconfirmed(now);
        self.expire_questions(now);
        let known = self.neighbors.by_addr.len();
        let fresh = |t: &Table| t.v4.fib.backlog().fresh().len() + t.v6.fib.backlog().fresh().len();
        if self.tables.iter().map(fresh).sum::<usize>() > known {
            let all = self.neighbors.by_addr.keys().map(|&(addr, link)| (link, addr));
            self.neighbors.unsettled.extend(all);
        } else {
            for table in self.tables.iter() {
                for prefix in table.v4.fib.backlog().fresh() {
                    self.neighbors.unsettle_under(prefix.first().to_ip(), prefix.last().to_ip());
                }
                for prefix in table.v6.fib.backlog().fresh() {
                    self.neighbors.unsettle_under(prefix.first().to_ip(), prefix.last().to_ip());
                }
            }
        }
        for (link, addr) in std::mem::take(&mut self.neighbors.unsettled) {
            self.settle(link, addr);
        }
    }

    fn settle(&mut self, link: u32, addr: IpAddr) {
        let asked = self.neighbors.asked.contains(&(link, addr));
        let state = self.neighbors.state(link, addr);
        // One that is silent has a route by which senders are told so. Before that packets wait for the link's prefix.
        let silent = asked && state == Some(NeighborState::Failed);
        let wanted = silent || state.is_some_and(|state| state.mac().is_some());
        let port = self.links.get(&link).map(|entry| entry.port);
        let number = self.links.get(&link).map_or(MAIN_TABLE, |entry| entry.table);
        let table = self.tables.get(number).expect("links are bound to tables that are there");
        let (prefix, covering) = match addr {
            IpAddr::V4(a) => {
                let prefix = Prefix::host(a.to_bits());
                (AnyPrefix::V4(prefix), table.v4.rib.parent(prefix).map(|(_, hop)| hop))
            }
            IpAddr::V6(a) => {
                let prefix = Prefix::host(a.to_bits());
                (AnyPrefix::V6(prefix), table.v6.rib.parent(prefix).map(|(_, hop)| hop))
            }
        };
        // All its packets must be for stations of this link; what it says of their size holds for each.
        let glean = |hop: &NextHopId| match self.hops.content(*hop) {
            [(action, _)] => port.is_some_and(|port| *action == ForwardingAction::Glean(port)),
            _ => false,
        };
        let attached = covering.filter(glean).and_then(|hop| self.hops.attrs(hop));
        // The link is part of the key by way of the metric: two links may know the same address.
        let key = RouteKey { table: number, prefix, metric: link };
        let attached = attached.filter(|_| wanted && super::forwarded(prefix));
        if let Some(HopAttrs { mtu, .. }) = attached {
            let hop = HopKey::Path(Path { gateway: Some(addr), link: Some(link), weight: 1 });
            let present = table.find(prefix, NEIGHBOR, link).map(|c| c.hop);
            let is = present.map(|hop| (self.hops.key(hop), self.mtu_of(hop)));
            if is != Some((Some(&hop), mtu)) {
                self.insert(SourceId(NEIGHBOR), key, &hop, mtu);
            }
        } else {
            self.withdraw(SourceId(NEIGHBOR), &key);
        }
    }

    fn expire_questions(&mut self, now: Instant) {
        let due = self.neighbors.last_retry.is_none_or(|t| now.duration_since(t) >= HOLD_DOWN);
        if !due {
            return;
        }
        self.neighbors.last_retry = Some(now);
        let late: Vec<(u32, IpAddr)> = self
            .neighbors
            .asked
            .iter()
            .filter(|(key, since)| {
                let limit = match self.neighbors.known.get(key) {
                    Some(NeighborState::Failed) => HOLD_DOWN,
                    _ => LONGEST_QUESTION,
                };
                now.duration_since(*since) >= limit
            })
            .map(|(key, _)| key)
            .collect();
        for (link, addr) in late {
            self.neighbors.asked.remove(&(link, addr));
            self.neighbors.set(link, addr, NeighborState::Gone);
        }
        // A silent gateway is asked for until it speaks: nothing else would tell us that it came back.
        for (_, key) in self.hops.adjacencies() {
            let AdjacencyKey { link, neighbor: Some(addr), .. } = key else { continue };
            let state = self.neighbors.state(link, addr);
            if state == Some(NeighborState::Failed) && !self.neighbors.asked.contains(&(link, addr))
            {
                self.neighbors.requests.push(NeighborRequest { link, addr });
            }
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
            // More than one store: nobody may see the half of it.
            table.set_unresolved(index, new.port, false);
            let epoch = self.publisher.retire();
            let start = Instant::now();
            while !self.publisher.passed(epoch) && start.elapsed() < super::LONGEST_GRACE {
                std::thread::yield_now();
            }
        }
        table.set_adjacency(index, new);
    }
}
