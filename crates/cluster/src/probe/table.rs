//! All links of a node, and from their probes the states of the nodes and links of the cluster.
//!
//! Shape:  a session for each link and node; for each node the row of links that it last announced. A link between two
//!         other nodes is up when each of them that is a direct neighbor announces it, and at least one is. A node is down
//!         when no link reaches it, neither one of ours nor one of a direct neighbor: paths have two links at most, so that
//!         nothing farther matters.
//! Cost:   a probe that changes nothing costs a comparison of its bitmap. A change costs a pass over the nodes and over the
//!         links of the nodes concerned. Other members are a pass over all of them.
//! Limits: a number of a node is its index in [`Members`], so that numbers are below their [`Members::len`]; a number that
//!         no member has is a node that is down. Numbers of members that left stay, so that a table never shrinks.

use super::packet::{Bits, Probe, Service, mask};
use super::session::{Local, Session};
use crate::rule::{MAX_NODES, Members, NodeId, NodeState};

/// The receiver of a probe to whatever node is there.
pub const ANY: NodeId = 0xffff;

/// A member of the cluster, as the settings have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its number.
    pub number: NodeId,
    /// Its name.
    pub name: String,
}

/// Frames that belong to no session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableCounts {
    /// Probes of a number that no member has.
    pub unknown_node: u64,
    /// Frames of such a number that are no probes.
    pub malformed: u64,
}

/// What is known of a node.
#[derive(Clone, Debug)]
struct Node {
    /// Name of the member; `None` for a number that no member has.
    member: Option<String>,
    service: Service,
    epoch: u8,
    /// Links that it announces, by node number; for this node those that are up.
    up: Vec<u8>,
    /// Whether the links of the node have to be looked at again.
    changed: bool,
}

/// An interface with internal links: one, or one to every member.
#[derive(Clone, Debug)]
struct Link {
    /// Name of the node that it leads to, which need not be a member yet; `None` where all members are reached by it.
    peer: Option<String>,
    sessions: Vec<Session>,
}

impl Link {
    fn leads_to(&self, member: &Member) -> bool {
        self.peer.as_ref().is_none_or(|peer| *peer == member.name)
    }
}

/// All links of a node.
#[derive(Clone, Debug)]
pub struct Table {
    local: Local,
    nodes: Vec<Node>,
    links: Vec<Link>,
    changed: bool,
    counts: TableCounts,
    payload: Vec<u8>,
}

impl Table {
    /// A table in which all others are down. `links` has the interfaces, each with the name of the node that it leads to, be it
    /// a member or not yet; `None` where all members are reached by it.
    ///
    /// # Panics
    /// When a number is [`MAX_NODES`] or more, or a link leads to this node.
    pub fn new(local: Local, members: &[Member], links: &[Option<String>]) -> Self {
        let itself = links.iter().flatten().any(|peer| *peer == local.name);
        assert!(!itself, "a link leads to another member");
        let link = |peer: &Option<String>| Link { peer: peer.clone(), sessions: Vec::new() };
        let links = links.iter().map(link).collect();
        let (counts, payload) = (TableCounts::default(), Vec::new());
        let mut table = Self { local, nodes: Vec::new(), links, changed: true, counts, payload };
        table.set_members(members);
        table
    }

    /// From now on these are the members, this node among them. Links to those that stay keep their state; those to others are down until
    /// probes come. A member with another number is another one.
    ///
    /// # Panics
    /// When a number is [`MAX_NODES`] or more.
    pub fn set_members(&mut self, members: &[Member]) {
        let most = members.iter().map(|member| member.number).max().unwrap_or(0);
        let count = (usize::from(most.max(self.local.number)) + 1).max(self.nodes.len());
        assert!(count <= MAX_NODES, "node number {}, below {MAX_NODES}", count - 1);
        let bytes = count.div_ceil(8);
        let unknown = Node {
            member: None,
            service: Service::Active,
            epoch: 0,
            up: vec![0; bytes],
            changed: true,
        };
        self.nodes.resize(count, unknown.clone());
        let own = self.local.number;
        for (number, node) in (0..).zip(&mut self.nodes) {
            let member = members.iter().find(|member| member.number == number);
            let member = member.map(|member| member.name.clone());
            if node.member != member && number != own {
                // Announcements of the former member with this number do not apply to the new one.
                *node = unknown.clone();
            }
            node.member = member;
            node.up.resize(bytes, 0);
            node.changed = true;
        }
        let others = || members.iter().filter(|member| member.number != own);
        for link in &mut self.links {
            let mut before = std::mem::take(&mut link.sessions);
            let here = others().filter(|member| link.leads_to(member)).map(|member| {
                let known = before.iter().position(|session| session.leads_to(member));
                match known {
                    Some(at) => before.swap_remove(at),
                    None => Session::new(member.number, &member.name),
                }
            });
            link.sessions = here.collect();
        }
        self.refresh();
    }

    /// This node.
    pub fn local(&self) -> &Local {
        &self.local
    }

    /// Changes what this node carries.
    pub fn set_service(&mut self, service: Service) {
        let own = usize::from(self.local.number);
        self.changed |= self.nodes[own].service != service;
        self.nodes[own].service = service;
    }

    /// Changes the epoch of this node's adjacency indices.
    pub fn set_epoch(&mut self, epoch: u8) {
        let own = usize::from(self.local.number);
        self.changed |= self.nodes[own].epoch != epoch;
        self.nodes[own].epoch = epoch;
    }

    /// Adjacency epoch that a node last announced; 0 before that, and for a number that there is not.
    pub fn epoch(&self, node: NodeId) -> u8 {
        self.nodes.get(usize::from(node)).map_or(0, |node| node.epoch)
    }

    /// Whether a node last announced that it is about to stop, and has been reached since.
    pub fn is_leaving(&self, node: NodeId) -> bool {
        self.nodes.get(usize::from(node)).is_some_and(|node| node.service == Service::Leaving)
    }

    /// All sessions, each with the index of its interface.
    pub fn sessions(&self) -> impl Iterator<Item = (usize, &Session)> {
        self.links
            .iter()
            .enumerate()
            .flat_map(|(at, link)| link.sessions.iter().map(move |session| (at, session)))
    }

    /// Interface by which a node is reached directly: the first one that is up.
    pub fn egress(&self, node: NodeId) -> Option<usize> {
        let mut up = self.sessions().filter(|(_, session)| session.is_up());
        up.find(|(_, session)| session.peer() == node).map(|(at, _)| at)
    }

    /// Frames that belong to no session.
    pub fn counts(&self) -> TableCounts {
        self.counts
    }

    /// Takes the payload of a probe that an interface received from the node `sender` to the node `target`. Returns whether
    /// the state of a link of this node has changed: then the next probes are due at once.
    ///
    /// # Panics
    /// When there is no interface of that index.
    pub fn receive(
        &mut self,
        now_ns: u64,
        link: usize,
        (sender, target): (NodeId, NodeId),
        payload: &[u8],
    ) -> bool {
        let (local, link) = (&self.local, &mut self.links[link]);
        let shared = link.peer.is_none();
        let own = sender == local.number;
        // A switch may flood; what is received from our own number concerns us whoever it is for.
        if shared && !own && target != local.number && target != ANY {
            return false;
        }
        let probe = Probe::parse(payload);
        let mut changed = false;
        let mut found = false;
        for session in &mut link.sessions {
            if shared && !own && session.peer() != sender {
                continue;
            }
            found = true;
            changed |= session.receive(local, now_ns, sender, probe.as_ref().map_err(|e| *e));
        }
        if !found {
            match probe {
                Ok(_) => self.counts.unknown_node += 1,
                Err(_) => self.counts.malformed += 1,
            }
            return false;
        }
        let up = link.sessions.iter().any(|session| session.peer() == sender && session.is_up());
        if changed {
            self.refresh();
        }
        if let (Ok(probe), true) = (probe, up) {
            self.learn(sender, &probe);
        }
        changed
    }

    /// Takes what a neighbor announces.
    fn learn(&mut self, sender: NodeId, probe: &Probe<'_>) {
        let count = self.nodes.len();
        let node = &mut self.nodes[usize::from(sender)];
        if (node.service, node.epoch) != (probe.service, probe.epoch) {
            (node.service, node.epoch) = (probe.service, probe.epoch);
            self.changed = true;
        }
        if probe.up.len() == count && probe.up.bytes() == node.up {
            return;
        }
        for other in 0..NodeId::try_from(count).unwrap_or(NodeId::MAX) {
            let (byte, bit) = (&mut node.up[usize::from(other / 8)], mask(other));
            let value = if probe.up.has(other) { *byte | bit } else { *byte & !bit };
            if value != *byte {
                *byte = value;
                node.changed = true;
                self.changed = true;
            }
        }
    }

    /// Brings the row of this node in line with its sessions.
    fn refresh(&mut self) {
        let mut up = vec![0; self.nodes.len().div_ceil(8)];
        for session in self.links.iter().flat_map(|link| &link.sessions) {
            if session.is_up() {
                up[usize::from(session.peer() / 8)] |= mask(session.peer());
            }
        }
        let own = usize::from(self.local.number);
        let before = std::mem::replace(&mut self.nodes[own].up, up);
        for at in 0..self.nodes.len() {
            let changed = (before[at / 8] ^ self.nodes[own].up[at / 8]) & (0x80 >> (at % 8)) != 0;
            self.nodes[at].changed |= changed;
        }
        self.changed = true;
    }

    /// Takes the state of an interface's carrier. Returns whether the state of a link has changed.
    ///
    /// # Panics
    /// When there is no interface of that index.
    pub fn carrier(&mut self, link: usize, carrier: bool) -> bool {
        let mut changed = false;
        for session in &mut self.links[link].sessions {
            changed |= session.carrier(carrier);
        }
        if changed {
            self.refresh();
        }
        changed
    }

    /// Lets time pass, with all frames taken that were received until then. Returns whether the state of a link has changed.
    pub fn expire(&mut self, now_ns: u64) -> bool {
        let mut changed = false;
        for session in self.links.iter_mut().flat_map(|link| &mut link.sessions) {
            changed |= session.expire(&self.local, now_ns);
        }
        if changed {
            self.refresh();
        }
        changed
    }

    /// When [`Table::expire`] next has something to do.
    pub fn deadline_ns(&self) -> Option<u64> {
        self.sessions().filter_map(|(_, session)| session.deadline_ns(&self.local)).min()
    }

    /// Calls `send` with the payload of each probe that is to leave by an interface, and the node that it is for.
    ///
    /// # Panics
    /// When there is no interface of that index.
    pub fn probes(&mut self, link: usize, mut send: impl FnMut(NodeId, &[u8])) {
        let (local, own) = (&self.local, &self.nodes[usize::from(self.local.number)]);
        let count = u16::try_from(self.nodes.len()).expect("at most MAX_NODES");
        for session in &mut self.links[link].sessions {
            let probe = Probe {
                service: own.service,
                members: local.members,
                boot: local.boot,
                sequence: session.next_sequence(),
                digest: local.digest,
                received: session.received(),
                epoch: own.epoch,
                name: &local.name,
                up: Bits::new(count, &own.up),
            };
            self.payload.clear();
            probe.write(&mut self.payload);
            send(session.peer(), &self.payload);
        }
    }

    /// Brings members in line with what is known. Returns whether anything has changed since the last call that a data plane
    /// reads: states, links, adjacency epochs, the interface to a node.
    ///
    /// # Panics
    /// When there are fewer members than node numbers.
    pub fn apply(&mut self, members: &mut Members) -> bool {
        assert!(members.len() >= self.nodes.len(), "a node's number is its index in the members");
        if !std::mem::take(&mut self.changed) {
            return false;
        }
        let reached = self.reached();
        for (number, node) in (0..).zip(&mut self.nodes) {
            // A node that is reached again may have restarted. Reached over a third node only, it sends this one no probes, so
            // the old state would stay.
            if number != self.local.number && !has(&reached, number) {
                node.service = Service::Active;
            }
        }
        for node in members.all() {
            let state = match self.nodes.get(usize::from(node)) {
                Some(known) if known.member.is_some() && has(&reached, node) => match known.service
                {
                    Service::Active => NodeState::Active,
                    Service::Draining | Service::Leaving => NodeState::Draining,
                },
                _ => NodeState::Down,
            };
            if members.node(node) != state {
                members.set_node(node, state);
            }
        }
        let changed: Vec<_> =
            self.nodes.iter_mut().map(|node| std::mem::take(&mut node.changed)).collect();
        for from in members.all() {
            for to in 0..from {
                let concerned = |node: NodeId| changed.get(usize::from(node)).copied();
                if concerned(from) == Some(false) && concerned(to) == Some(false) {
                    continue;
                }
                let up = self.link(from, to);
                for (from, to) in [(from, to), (to, from)] {
                    if members.link(from, to) != up {
                        members.set_link(from, to, up);
                    }
                }
            }
        }
        true
    }

    /// Whether the link between two nodes is up, in both directions or in none.
    fn link(&self, first: NodeId, second: NodeId) -> bool {
        let own = self.local.number;
        let announced = |from: NodeId, to: NodeId| {
            let row = self.nodes.get(usize::from(from)).map(|node| &node.up);
            row.is_some_and(|row| has(row, to))
        };
        match (first == own, second == own) {
            (true, _) => announced(own, second),
            (_, true) => announced(own, first),
            _ => match (announced(own, first), announced(own, second)) {
                (true, true) => announced(first, second) && announced(second, first),
                (true, false) => announced(first, second),
                (false, true) => announced(second, first),
                (false, false) => false,
            },
        }
    }

    /// Nodes that a path of at most two links reaches, this node among them.
    fn reached(&self) -> Vec<u8> {
        let own = self.local.number;
        let mut reached = self.nodes[usize::from(own)].up.clone();
        for (at, node) in self.nodes.iter().enumerate() {
            if self.nodes[usize::from(own)].up[at / 8] & (0x80 >> (at % 8)) != 0 {
                reached.iter_mut().zip(&node.up).for_each(|(to, from)| *to |= from);
            }
        }
        reached[usize::from(own / 8)] |= mask(own);
        reached
    }
}

fn has(row: &[u8], node: NodeId) -> bool {
    row.get(usize::from(node / 8)).is_some_and(|byte| byte & mask(node) != 0)
}

#[cfg(test)]
mod tests {
    use super::super::session::{LinkState, Reason};
    use super::*;
    use fingerpost_lpm::Rng;

    const MS: u64 = 1_000_000;
    const INTERVAL: u64 = 8;

    /// Nodes with a link between each two, in steps of a millisecond.
    struct Net {
        tables: Vec<Table>,
        members: Vec<Members>,
        /// Nodes that run.
        on: Vec<bool>,
        /// Directions in which nothing passes.
        cut: Vec<(NodeId, NodeId)>,
        loss: f64,
        random: Rng,
        now_ms: u64,
        changes: u64,
    }

    fn table(number: NodeId, boot: u32, names: &[String]) -> Table {
        let members: Vec<_> =
            (1..).zip(names).map(|(number, name)| Member { number, name: name.clone() }).collect();
        let name = names[usize::from(number) - 1].clone();
        let (count, interval_ns) = (u16::try_from(names.len()).unwrap(), INTERVAL * MS);
        let (digest, multiplier) = (7, 5);
        let local = Local { number, name, boot, digest, members: count, interval_ns, multiplier };
        let others = members.iter().filter(|member| member.number != number);
        let links: Vec<_> = others.map(|member| Some(member.name.clone())).collect();
        Table::new(local, &members, &links)
    }

    impl Net {
        fn new(nodes: u16) -> Self {
            let names: Vec<_> = (1..=nodes).map(|number| format!("n{number}")).collect();
            let tables: Vec<_> =
                (1..=nodes).map(|number| table(number, u32::from(number), &names)).collect();
            let count = usize::from(nodes);
            let mut net = Self {
                tables,
                members: vec![Members::equal(count + 1); count],
                on: vec![true; count],
                cut: Vec::new(),
                loss: 0.0,
                random: Rng::new(5),
                now_ms: 0,
                changes: 0,
            };
            net.run(3 * INTERVAL);
            net
        }

        /// Index of the interface of a node to another one.
        fn interface(from: NodeId, to: NodeId) -> usize {
            usize::from(if to < from { to } else { to - 1 }) - 1
        }

        fn send(&mut self, from: NodeId, urgent: &mut Vec<NodeId>) {
            for link in 0..self.tables.len() - 1 {
                let mut frame = None;
                let table = &mut self.tables[usize::from(from) - 1];
                table.probes(link, |to, payload| frame = Some((to, payload.to_vec())));
                let Some((to, payload)) = frame else { continue };
                let lost = (self.random.word() as f64) < self.loss * u64::MAX as f64;
                if lost || !self.on[usize::from(to) - 1] || self.cut.contains(&(from, to)) {
                    continue;
                }
                let back = Self::interface(to, from);
                let table = &mut self.tables[usize::from(to) - 1];
                if table.receive(self.now_ms * MS, back, (from, to), &payload) {
                    urgent.push(to);
                }
            }
        }

        fn run(&mut self, ms: u64) {
            let count = u16::try_from(self.tables.len()).unwrap();
            for _ in 0..ms {
                self.now_ms += 1;
                let mut urgent = Vec::new();
                for node in 1..=count {
                    let at = usize::from(node) - 1;
                    if !self.on[at] {
                        continue;
                    }
                    let expired = self.tables[at].expire(self.now_ms * MS);
                    if expired || (self.now_ms + u64::from(node)).is_multiple_of(INTERVAL) {
                        self.send(node, &mut urgent);
                    }
                }
                while let Some(node) = urgent.pop() {
                    self.send(node, &mut urgent);
                }
                for (table, members) in self.tables.iter_mut().zip(&mut self.members) {
                    self.changes += u64::from(table.apply(members));
                }
            }
        }

        /// Runs until a condition holds, and returns after how many milliseconds that was.
        fn until(&mut self, what: impl Fn(&Self) -> bool) -> u64 {
            let start = self.now_ms;
            while !what(self) {
                self.run(1);
                assert!(self.now_ms < start + 500, "no change");
            }
            self.now_ms - start
        }

        fn members(&self, node: NodeId) -> &Members {
            &self.members[usize::from(node) - 1]
        }

        fn all_up(&self) -> bool {
            let nodes = || 1..=u16::try_from(self.tables.len()).unwrap();
            self.members.iter().all(|members| {
                nodes().all(|from| nodes().all(|to| from == to || members.direct(from, to)))
            })
        }
    }

    #[test]
    fn a_node_that_is_killed_is_down_and_comes_back_with_a_new_boot_id() {
        let mut net = Net::new(4);
        assert!(net.all_up());
        assert_eq!(net.members(1).node(0), NodeState::Down, "no member has number 0");
        net.changes = 0;
        net.run(1000);
        assert_eq!(net.changes, 0);
        net.on[2] = false;
        let took = net.until(|net| {
            [1, 2, 4].iter().all(|&node| net.members(node).node(3) == NodeState::Down)
        });
        assert!((36..=45).contains(&took), "{took} ms");
        assert!(!net.members(1).link(2, 3) && net.members(1).direct(1, 4));
        let names: Vec<_> = (1..=4).map(|number| format!("n{number}")).collect();
        net.tables[2] = table(3, 99, &names);
        net.on[2] = true;
        net.until(Net::all_up);
        // Started again within the detection time.
        net.tables[2] = table(3, 100, &names);
        net.run(20);
        let link = net.tables[0].sessions().find(|(_, session)| session.peer() == 3).unwrap().1;
        assert_eq!((link.is_up(), link.counts().downs), (true, 2));
    }

    #[test]
    fn a_one_way_link_is_down_for_all_and_the_nodes_are_not() {
        let mut net = Net::new(4);
        net.cut.push((1, 2));
        let took = net.until(|net| {
            (1..=4).all(|node| !net.members(node).link(1, 2) && !net.members(node).link(2, 1))
        });
        assert!((36..=46).contains(&took), "{took} ms");
        for node in 1..=4 {
            assert!((1..=4).all(|other| net.members(node).node(other) == NodeState::Active));
            assert!(net.members(node).usable(1, 3, 2));
        }
        net.cut.clear();
        net.until(Net::all_up);
    }

    #[test]
    fn a_partition_has_two_halves_that_work() {
        let mut net = Net::new(4);
        for (from, to) in [(1, 3), (1, 4), (2, 3), (2, 4)] {
            net.cut.extend([(from, to), (to, from)]);
        }
        net.run(60);
        for (node, other, far) in [(1, 2, [3, 4]), (3, 4, [1, 2])] {
            assert!(net.members(node).direct(node, other));
            assert!(far.iter().all(|&far| net.members(node).node(far) == NodeState::Down));
        }
        // One link between the halves: its ends reach all, the others those that they reach over one node.
        net.cut.retain(|cut| ![(1, 3), (3, 1)].contains(cut));
        net.run(20);
        assert_eq!(net.members(1).node(4), NodeState::Active);
        assert_eq!(net.members(2).node(3), NodeState::Active);
        assert_eq!(net.members(2).node(4), NodeState::Down, "three links");
        assert!(net.members(2).usable(2, 1, 3));
        net.cut.clear();
        net.until(Net::all_up);
    }

    #[test]
    fn drain_and_epoch_reach_the_others_with_the_next_probe() {
        let mut net = Net::new(4);
        net.tables[1].set_service(Service::Draining);
        net.tables[1].set_epoch(3);
        net.until(|net| {
            (1..=4).all(|node| net.members(node).node(2) == NodeState::Draining)
                && [0, 2, 3].iter().all(|&node: &usize| net.tables[node].epoch(2) == 3)
        });
        assert!(net.members(1).direct(1, 2) && !net.members(1).eligible(1, 2, 3));
        // Out of reach of a direct link it is still known to drain.
        net.cut.extend([(1, 2), (2, 1)]);
        net.until(|net| !net.members(1).direct(1, 2));
        assert_eq!(net.members(1).node(2), NodeState::Draining);
        let leaves = |net: &Net| [0, 2, 3].map(|node: usize| net.tables[node].is_leaving(2));
        assert_eq!(leaves(&net), [false; 3]);
        net.tables[1].set_service(Service::Leaving);
        net.until(|net| leaves(net)[1..] == [true; 2]);
        assert_eq!(net.members(3).node(2), NodeState::Draining);
        net.tables[1].set_service(Service::Active);
        net.cut.clear();
        net.until(Net::all_up);
        assert_eq!(leaves(&net), [false; 3]);
    }

    #[test]
    fn a_node_that_starts_again_is_active_where_only_a_detour_reaches_it() {
        let mut net = Net::new(3);
        net.tables[1].set_service(Service::Leaving);
        net.until(|net| [0, 2].iter().all(|&node: &usize| net.tables[node].is_leaving(2)));
        net.cut.extend([(1, 2), (2, 1)]);
        net.until(|net| !net.members(1).direct(1, 2));
        assert!(net.tables[0].is_leaving(2), "it is reached, and has not stopped yet");
        net.on[1] = false;
        net.until(|net| net.members(1).node(2) == NodeState::Down);
        assert!(!net.tables[0].is_leaving(2));
        let names: Vec<_> = (1..=3).map(|number| format!("n{number}")).collect();
        net.tables[1] = table(2, 99, &names);
        net.on[1] = true;
        net.until(|net| net.members(1).node(2) != NodeState::Down);
        assert_eq!(net.members(1).node(2), NodeState::Active);
        assert!(!net.tables[0].is_leaving(2) && !net.members(1).direct(1, 2));
    }

    #[test]
    fn sixty_four_nodes_with_loss_and_one_killed() {
        let mut net = Net::new(64);
        assert!(net.all_up());
        (net.changes, net.loss) = (0, 0.01);
        net.run(300);
        assert_eq!(net.changes, 0);
        net.on[9] = false;
        let took = net.until(|net| {
            (1..=64).all(|node| node == 10 || net.members(node).node(10) == NodeState::Down)
        });
        assert!((36..=48).contains(&took), "{took} ms");
        assert!(net.members(1).direct(1, 9) && net.members(1).direct(64, 9));
    }

    #[test]
    fn members_come_and_go_and_the_links_of_the_others_stay_up() {
        let mut net = Net::new(3);
        let member = |number: NodeId| Member { number, name: format!("n{number}") };
        let all: Vec<_> = [1, 2, 3, 9].map(member).into();
        let downs = |net: &Net| {
            let tables = net.tables.iter().flat_map(Table::sessions);
            tables.map(|(_, session)| session.counts().downs).sum::<u64>()
        };
        // The new one has no link, and is reached by none of the others; their bitmaps grow at different times.
        net.tables[0].set_members(&all);
        net.members[0] = Members::equal(10);
        net.run(100);
        assert!(net.members(1).direct(1, 2) && net.members(1).direct(2, 3));
        assert_eq!(net.members(1).node(9), NodeState::Down);
        for at in [1, 2] {
            net.tables[at].set_members(&all);
            net.members[at] = Members::equal(10);
        }
        net.run(100);
        assert!((1..=3).all(|node| net.members(node).direct(1, 3)));
        assert_eq!(downs(&net), 0);
        // One that leaves is down at once, whatever it sends.
        net.tables[0].set_members(&[1, 3].map(member));
        net.run(100);
        assert_eq!(net.members(1).node(2), NodeState::Down);
        assert!(net.members(1).direct(1, 3) && !net.members(1).link(1, 2));
        assert_eq!(net.tables[0].sessions().count(), 1);
        net.tables[0].set_members(&all);
        net.run(100);
        assert!((1..=3).all(|node| net.members(node).direct(1, 2)));
    }

    #[test]
    fn a_member_that_takes_the_number_of_one_that_leaves_is_not_about_to_stop() {
        let mut net = Net::new(3);
        net.tables[1].set_service(Service::Leaving);
        net.tables[1].set_epoch(9);
        net.until(|net| net.tables[0].is_leaving(2) && net.tables[0].epoch(2) == 9);
        let member = |number: NodeId, name: &str| Member { number, name: name.to_owned() };
        let members = [member(1, "n1"), member(2, "another"), member(3, "n3")];
        // The third node has not followed yet, and reaches the one before.
        net.tables[0].set_members(&members);
        net.run(1);
        assert!(!net.tables[0].is_leaving(2));
        assert_eq!(net.tables[0].epoch(2), 0);
    }

    proptest::proptest! {
        #[test]
        fn no_frame_panics(
            frames in proptest::collection::vec(
                (0usize..2, proptest::prelude::any::<[u16; 2]>(), 0usize..40, 0u8..255),
                1..40,
            ),
        ) {
            let names: Vec<_> = ["a", "b", "c"].map(String::from).into();
            let (mut table, mut other) = (table(1, 1, &names), table(2, 2, &names));
            let mut members = Members::equal(4);
            for (now, (link, [sender, target], at, value)) in (0..).zip(frames) {
                let mut payload = Vec::new();
                other.probes(0, |_, bytes| payload = bytes.to_vec());
                if let Some(byte) = payload.get_mut(at) {
                    *byte = value;
                }
                let sender = if sender % 2 == 0 { sender } else { 2 };
                table.receive(now * MS, link, (sender, target), &payload);
                table.apply(&mut members);
            }
        }
    }

    #[test]
    fn a_shared_interface_has_a_session_for_each_member() {
        let members = ["a", "b", "c"].map(String::from);
        let members: Vec<_> =
            (1..).zip(members).map(|(number, name)| Member { number, name }).collect();
        let of = |number: NodeId, boot: u32| {
            let (interval_ns, multiplier) = (8 * MS, 5);
            let name = members[usize::from(number) - 1].name.clone();
            let local =
                Local { number, name, boot, digest: 7, members: 3, interval_ns, multiplier };
            Table::new(local, &members, &[None])
        };
        let (mut a, mut b, mut twin) = (of(1, 0xa), of(2, 0xb), of(1, 0xaa));
        // Everything is flooded to everyone.
        let flood = |now: u64, from: &mut Table, to: &mut Table| {
            let sender = from.local().number;
            let mut frames = Vec::new();
            from.probes(0, |target, payload| frames.push((target, payload.to_vec())));
            assert_eq!(frames.len(), 2);
            for (target, payload) in frames {
                to.receive(now * MS, 0, (sender, target), &payload);
            }
        };
        for now in 0..3 {
            flood(now, &mut a, &mut b);
            flood(now, &mut b, &mut a);
        }
        assert_eq!((a.egress(2), a.egress(3), b.egress(1)), (Some(0), None, Some(0)));
        // Another node with our number: neither it nor we have links, and all know why.
        for now in 4..8 {
            flood(now, &mut twin, &mut a);
            flood(now, &mut a, &mut b);
            flood(now, &mut twin, &mut b);
        }
        let why = |table: &Table| table.sessions().next().unwrap().1.state().clone();
        assert_eq!(why(&a), LinkState::Down(Reason::OwnNumber(0xaa)));
        assert_eq!(why(&b), LinkState::Down(Reason::Twice(0xa, 0xaa)));
        assert!(!a.receive(9 * MS, 0, (9, 1), b"no probe"));
        assert_eq!(a.counts().malformed, 1);
        assert_eq!(a.egress(2), None);
    }
}
