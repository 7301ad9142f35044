//! Ports of a cluster node: which of them are internal, and by which a member is reached.
//!
//! Shape:  an interface has its port once it is driven; a link to a member has the port of the interface that the probes
//!         choose, or of the first one in the configuration that leads there.
//! Cost:   a lock for a change of a port or of a link; none for a packet.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fingerpost_cluster::fabric::{Fabric, Mode, PortRole};
use fingerpost_cluster::frame::FULL_BYTES;
use fingerpost_cluster::probe::Interface;
use fingerpost_cluster::rule::{Members, NodeId};
use fingerpost_io::xdp;

/// Bytes that may wait for a link: 200 full frames, as in the model of the rule.
const LIMIT_BYTES: u64 = 200 * FULL_BYTES;

/// An internal interface of the configuration.
struct Internal {
    name: String,
    peer: Option<String>,
    rate_bps: Option<u64>,
    /// Its port, while it is driven.
    port: Option<u16>,
    /// Whether it is driven, for the probes: what it receives would go nowhere else.
    ready: Arc<AtomicBool>,
}

/// Ports of a node, shared by what drives interfaces and what probes them.
pub(in crate::daemon) struct ClusterPorts {
    fabric: Arc<Fabric>,
    programs: Arc<xdp::fabric::Fabric>,
    interface: String,
    state: Mutex<State>,
}

struct State {
    internal: Vec<Internal>,
    /// Interface by which each node is reached, as the probes chose it.
    chosen: Vec<Option<usize>>,
    /// Nodes that are about to stop.
    leaving: Vec<NodeId>,
    /// Numbers of the members by id.
    numbers: BTreeMap<String, NodeId>,
    /// Rate of all links, in place of those of the configuration.
    rate_bps: Option<u64>,
}

impl State {
    /// The first internal interface that leads to a node.
    fn usual(&self, node: NodeId) -> Option<&Internal> {
        self.internal.iter().find(|internal| match &internal.peer {
            Some(peer) => self.numbers.get(peer) == Some(&node),
            None => true,
        })
    }

    /// The internal interface by which a node is reached.
    fn link(&self, node: NodeId) -> Option<&Internal> {
        let chosen = self.chosen.get(usize::from(node)).copied().flatten();
        chosen.and_then(|at| self.internal.get(at)).or_else(|| self.usual(node))
    }
}

impl ClusterPorts {
    /// No port is known; `links` are name, peer and rate of the internal interfaces.
    pub(super) fn new(
        fabric: Arc<Fabric>,
        programs: Arc<xdp::fabric::Fabric>,
        interface: String,
        links: impl Iterator<Item = (String, Option<String>, Option<u64>)>,
    ) -> Self {
        let internal = links.map(|(name, peer, rate_bps)| Internal {
            name,
            peer,
            rate_bps,
            port: None,
            ready: Arc::default(),
        });
        let state = State {
            internal: internal.collect(),
            chosen: Vec::new(),
            leaving: Vec::new(),
            numbers: BTreeMap::new(),
            rate_bps: None,
        };
        Self { fabric, programs, interface, state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the programs of all internal interfaces share.
    pub(in crate::daemon) fn programs(&self) -> Arc<xdp::fabric::Fabric> {
        self.programs.clone()
    }

    /// Whether packets go straight to their egress node, so that programs can send them there.
    pub(in crate::daemon) fn is_direct(&self) -> bool {
        self.fabric.paths().mode == Mode::Direct
    }

    /// Whether an interface is the fabric interface.
    pub(in crate::daemon) fn is_fabric(&self, name: &str) -> bool {
        self.interface == name
    }

    /// The fabric interface has this port.
    pub(in crate::daemon) fn set_fabric(&self, port: u16) {
        self.fabric.set_role(port, PortRole::Fabric);
    }

    /// Port of the fabric interface, once it has one.
    pub(in crate::daemon) fn fabric_port(&self) -> Option<u16> {
        self.fabric.fabric_port()
    }

    /// Whether an interface is internal.
    pub(in crate::daemon) fn is_internal(&self, name: &str) -> bool {
        self.state().internal.iter().any(|internal| internal.name == name)
    }

    /// EtherType that an interface takes frames of to drop and count them: that of internal frames, on external interfaces.
    pub(in crate::daemon) fn refused(&self, name: &str) -> Option<u16> {
        (!self.is_internal(name)).then_some(self.fabric.settings.ethertype)
    }

    /// An internal interface is about to receive by this port.
    pub(in crate::daemon) fn open(&self, name: &str, port: u16) {
        let mut state = self.state();
        let Some(at) = state.internal.iter().position(|internal| internal.name == name) else {
            return;
        };
        self.fabric.set_role(port, PortRole::Internal);
        state.internal[at].port = Some(port);
        self.set_links(&state);
    }

    /// An internal interface receives, with its program: the probes may find its links up.
    pub(in crate::daemon) fn receives(&self, port: u16) {
        let state = self.state();
        if let Some(internal) = state.internal.iter().find(|known| known.port == Some(port)) {
            // Relaxed: the thread of the probes sees it with its next interval.
            internal.ready.store(true, Relaxed);
        }
    }

    /// A port is not driven any more.
    pub(in crate::daemon) fn close(&self, port: u16) {
        let mut state = self.state();
        let Some(internal) = state.internal.iter_mut().find(|known| known.port == Some(port))
        else {
            return;
        };
        internal.port = None;
        internal.ready.store(false, Relaxed);
        self.fabric.set_role(port, PortRole::External);
        // Not only with the next interval of the probes.
        self.fabric.links.close(port);
        self.set_links(&state);
    }

    /// These are the members.
    pub(super) fn set_members<'a>(&self, members: impl Iterator<Item = (&'a str, NodeId)>) {
        let mut state = self.state();
        state.numbers = members.map(|(id, number)| (id.to_owned(), number)).collect();
        self.set_links(&state);
    }

    /// All links have this rate; without one, those of the configuration.
    pub(super) fn set_rate(&self, rate_bps: Option<u64>) {
        let mut state = self.state();
        state.rate_bps = rate_bps;
        self.set_links(&state);
    }

    /// Lowest rate of a link that has one, in bit/s.
    pub(super) fn lowest_rate(&self) -> Option<u64> {
        let state = self.state();
        state.rate_bps.or_else(|| state.internal.iter().filter_map(|link| link.rate_bps).min())
    }

    /// The probes found these members, these interfaces for them, and that some are about to stop.
    pub(super) fn follow(
        &self,
        members: &Members,
        egress: impl Fn(NodeId) -> Option<usize>,
        is_leaving: impl Fn(NodeId) -> bool,
    ) {
        let mut state = self.state();
        state.chosen = members.all().map(egress).collect();
        state.leaving = members.all().filter(|&node| is_leaving(node)).collect();
        // Links have their ports before they are usable.
        self.set_links(&state);
        self.fabric.set_members(members.clone());
    }

    /// Calls `with` with the members and those that are about to stop, both as the probes found them at one moment: a node that
    /// stops is about to, and then down.
    pub(super) fn found<T>(&self, with: impl FnOnce(&Members, &[NodeId]) -> T) -> T {
        let state = self.state();
        with(self.fabric.reader().pin(), &state.leaving)
    }

    fn set_links(&self, state: &State) {
        let own = self.fabric.settings.node;
        let nodes = NodeId::try_from(state.chosen.len()).unwrap_or(NodeId::MAX);
        for node in (0..nodes).filter(|&node| node != own) {
            if let Some(internal) = state.link(node)
                && let Some(port) = internal.port
            {
                self.fabric.set_link(node, port, state.rate_bps.or(internal.rate_bps), LIMIT_BYTES);
            }
        }
    }

    /// Rate of the link to a node in bit/s, and the name of its interface.
    pub(super) fn link(&self, node: NodeId) -> Option<(String, Option<u64>)> {
        let state = self.state();
        let internal = state.link(node)?;
        Some((internal.name.clone(), state.rate_bps.or(internal.rate_bps)))
    }

    /// Names of the internal interfaces, in the order of the probes' interfaces.
    pub(super) fn names(&self) -> Vec<String> {
        self.state().internal.iter().map(|internal| internal.name.clone()).collect()
    }

    /// The internal interfaces, for the probes.
    pub(super) fn probed(&self) -> Vec<Interface> {
        let state = self.state();
        let interface = |internal: &Internal| Interface {
            name: internal.name.clone(),
            peer: internal.peer.clone(),
            ready: internal.ready.clone(),
        };
        state.internal.iter().map(interface).collect()
    }
}

#[cfg(test)]
mod tests {
    use fingerpost_cluster::fabric::{PathSettings, Settings};
    use fingerpost_cluster::frame::ETHERTYPE;
    use fingerpost_cluster::rule::{self, NodeState, Rule};
    use fingerpost_io::xdp::fabric::{FabricSettings, FabricWords};
    use fingerpost_io::xdp::testing::can_bpf;
    use fingerpost_lpm::Heap;

    use super::*;

    /// Node 1 of three, which reaches the others by one interface.
    fn ports() -> ClusterPorts {
        let settings = Settings { cluster: 1, node: 1, ethertype: ETHERTYPE, clock_ns: 0 };
        let rule = rule::Settings { rule: Rule::Adaptive, threshold: 1000 };
        let paths = PathSettings { mode: Mode::Vlb, rule, flowlet_ns: 2_000_000 };
        let fabric = Fabric::new(&mut Heap, settings, paths, Members::equal(3)).unwrap();
        let [outputs, nodes] = fabric.regions();
        let links = fabric.links.region().clone();
        let words = FabricWords { links, outputs: outputs.clone(), nodes: nodes.clone() };
        let numbers = FabricSettings { node: 1, cluster: 1, ethertype: ETHERTYPE };
        let programs = xdp::fabric::Fabric::new(numbers, words).unwrap();
        let links = [("in0".to_owned(), None, None)].into_iter();
        let ports = ClusterPorts::new(Arc::new(fabric), Arc::new(programs), "c0".into(), links);
        ports.set_members([("a", 0), ("b", 1), ("c", 2)].into_iter());
        ports
    }

    #[test]
    fn a_port_that_closes_carries_nothing_whatever_the_probes_find_meanwhile() {
        if !can_bpf() {
            return;
        }
        let (ports, members) = (ports(), Members::equal(3));
        let used = |node| ports.fabric.links.usable(node).map(|link| link.port);
        let found = |members: &Members| {
            ports.follow(members, |node| (node != 1).then_some(0), |node| node == 2);
        };
        ports.open("in0", 5);
        found(&members);
        assert_eq!([used(0), used(2)], [Some(5); 2]);
        ports.close(5);
        assert_eq!([used(0), used(2)], [None; 2]);
        // The thread of the probes had found this before.
        found(&members);
        assert_eq!([used(0), used(2)], [None; 2]);
        // The port is back before the probes have noticed anything: they find no change.
        ports.open("in0", 5);
        ports.close(5);
        ports.open("in0", 6);
        assert_eq!([used(0), used(2)], [Some(6); 2]);
        let mut less = members;
        less.set_node(2, NodeState::Down);
        found(&less);
        assert_eq!([used(0), used(2)], [Some(6), None]);
        let found = ports.found(|members, leaving| (members.node(2), leaving.to_vec()));
        assert_eq!(found, (NodeState::Down, vec![2]));
    }

    #[test]
    fn a_node_that_stops_is_about_to_or_down_at_each_moment() {
        if !can_bpf() {
            return;
        }
        let (ports, up) = (ports(), Members::equal(3));
        let mut down = up.clone();
        down.set_node(2, NodeState::Down);
        let follow = |stops: bool| {
            let members = if stops { &up } else { &down };
            ports.follow(members, |_| Some(0), |node| node == 2 && stops);
        };
        follow(false);
        std::thread::scope(|scope| {
            let probes = scope.spawn(|| (0..20_000).for_each(|round| follow(round % 2 == 0)));
            while !probes.is_finished() {
                ports.found(|members, leaving| {
                    assert_eq!(leaving.contains(&2), members.node(2) != NodeState::Down);
                });
            }
        });
    }
}
