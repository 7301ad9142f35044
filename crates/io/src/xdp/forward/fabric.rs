//! Internal interfaces of a cluster among the ports of a [`Forwarder`]: their programs send by the same ports, through the
//! same adjacencies, and count there; what they do stands in [`crate::xdp::fabric`].
//!
//! Such a port forwards nothing by address, has no features and no VLAN interfaces. Its program is linked anew where
//! the adjacencies lie in other memory.
//!
//! At a node whose packets all take the direct link, the programs of the other ports send into the cluster: packets whose
//! adjacency is one of the fabric interface ([`Forwarder::enter`]). Without that they are linked without it.

use std::sync::Arc;

use super::{
    FabricPort, Forwarder, NO_TABLES, Names, PORTS, ReceivedCounts, SharedMemory, State, last,
    unlinked,
};
use crate::xdp::bpf::Program;
use crate::xdp::fabric::{Fabric, FabricReads};
use crate::xdp::{Classifier, Link, XdpError, load};

/// Where packets enter the cluster: adjacencies of a port name those of other nodes.
#[derive(Debug)]
pub(super) struct Entrance {
    /// Port of the fabric interface.
    port: u16,
    fabric: Arc<Fabric>,
}

/// Bytes by which the internal header exceeds that of Ethernet.
const EXTRA_BYTES: u16 = 4;

impl State {
    /// Longest packet that may enter the cluster, by the least MTU of the internal interfaces; 0 where none may.
    pub(super) fn longest_entering(&self) -> u16 {
        let (Some(_), Some(forwarding)) = (&self.entrance, &self.forwarding) else { return 0 };
        let mtu = |port: &u16| forwarding.ports.port(*port).map_or(0, |info| info.mtu);
        self.fabric.keys().map(mtu).min().unwrap_or(0).saturating_sub(EXTRA_BYTES)
    }
}

impl Forwarder {
    /// Takes an internal interface of a cluster in. Its link runs the program of `fabric` from here on; what that does
    /// not finish goes to the sockets of the classifier. [`Forwarder::open_egress`] lets packets leave by it, and
    /// [`Forwarder::remove_port`] lets it go.
    ///
    /// # Errors
    /// When the kernel does not take it as a device to send by, or no program of ours in its link.
    pub fn add_fabric_port(
        &self,
        port: u16,
        ifindex: u32,
        classifier: Arc<Classifier>,
        link: Arc<Link>,
        fabric: Arc<Fabric>,
    ) -> Result<(), XdpError> {
        self.add_device(port, ifindex)?;
        let seen = ReceivedCounts::new(port, self.0.epochs.cpus())?;
        let mut state = self.state();
        let before = state.longest_entering();
        let state_of_port = Err(NO_TABLES.into());
        let added = FabricPort { ifindex, classifier, link, fabric, seen, state: state_of_port };
        if let Some(before) = state.fabric.insert(port, added) {
            state.gone.push(before.seen);
        }
        self.relink_fabric(&mut state, port).inspect_err(|_| drop(state.fabric.remove(&port)))?;
        if state.longest_entering() != before {
            self.relink_all(&mut state);
        }
        Ok(())
    }

    /// Has the programs of external interfaces send packets into the cluster: those with an adjacency of the fabric
    /// interface, which has this port, by the direct link to their egress node, with the internal header in place of
    /// the link header. The link is charged for them as for local packets of the graph. Those whose link is down,
    /// takes nothing from XDP, or has too small an MTU are left to the graph, and so are all where the words of
    /// `fabric` are not [shared](Forwarder::shared).
    pub fn enter(&self, port: u16, fabric: Arc<Fabric>) {
        let mut state = self.state();
        state.entrance = Some(Entrance { port, fabric });
        self.relink_all(&mut state);
    }

    /// Has those programs leave the packets to the graph again.
    pub fn close_entrance(&self) {
        let mut state = self.state();
        if state.entrance.take().is_some() {
            self.relink_all(&mut state);
        }
    }

    /// What the program of an internal interface finishes, or why there is none.
    pub fn fabric_reads(&self, port: u16) -> Option<Result<FabricReads, String>> {
        self.state().fabric.get(&port).map(|port| port.state.clone())
    }

    /// Links the programs of all internal interfaces for the present adjacencies.
    pub(super) fn follow_fabric(&self, state: &mut State) {
        for port in state.fabric.keys().copied().collect::<Vec<_>>() {
            let put = self.relink_fabric(state, port);
            self.note_stuck(state, port, put);
        }
    }

    /// Binds what a program of an external interface reads of the cluster. One that is a copy for proofs does not charge.
    pub(super) fn bind_entrance<'a>(names: &mut Names<'a>, state: &'a State, charges: bool) {
        let any = names.any;
        for name in ["links", "nodes", "ends"] {
            names.memory(name, any);
        }
        let numbers =
            ["fabric_port", "node", "nodes_last", "cluster", "ethertype", "internal_longest"];
        numbers.into_iter().for_each(|name| names.number(name, 0));
        names.number("charges", charges.into());
        names.number("enters", 0);
        let Some(Entrance { port, fabric }) = &state.entrance else { return };
        let longest = state.longest_entering();
        let (settings, words) = (fabric.settings(), fabric.words());
        let shared = names.region("links", &words.links) && names.region("nodes", &words.nodes);
        names.memory("ends", fabric.memory());
        names.number("fabric_port", (*port).into());
        names.number("node", settings.node.into());
        names.number("nodes_last", last(&words.links, 64).min(last(&words.nodes, 4)));
        names.number("cluster", settings.cluster.into());
        names.number("ethertype", settings.ethertype.to_be().into());
        names.number("internal_longest", longest.into());
        names.number("enters", (shared && longest > 0).into());
    }

    fn relink_fabric(&self, state: &mut State, port: u16) -> Result<(), XdpError> {
        let Some(internal) = state.fabric.get(&port) else { return Ok(()) };
        internal.link.still_attached()?;
        let made = self.fabric_program(state, internal);
        let put = made.and_then(|(program, reads)| internal.link.replace(&program).map(|()| reads));
        internal.classifier.replaced();
        if let Some(internal) = state.fabric.get_mut(&port) {
            internal.state = put.as_ref().copied().map_err(ToString::to_string);
        }
        put.map(drop)
    }

    /// The program of an internal interface, and what it finishes.
    pub(super) fn fabric_program(
        &self,
        state: &State,
        port: &FabricPort,
    ) -> Result<(Program, FabricReads), XdpError> {
        let inner = &*self.0;
        let mut names = Names::new(&inner.epochs);
        names.memory("egress", &inner.egress);
        names.map("devices", &inner.devices);
        names.memory("sent", inner.sent.memory());
        names.memory("seen", port.seen.memory());
        names.map("sockets", port.classifier.sockets());
        // Without counters of adjacencies nothing is sent through one: any map will do.
        names.map("uses", state.uses.as_ref().unwrap_or(&inner.left));
        let adjacencies = state.forwarding.as_ref().map(|all| all.hops.regions()[2]);
        let adjacencies = adjacencies.filter(|region| SharedMemory::of(region).is_some());
        names.memory("adjacencies", names.any);
        if let Some(region) = adjacencies {
            names.region("adjacencies", region);
        }
        names.number("adjacencies_last", adjacencies.map_or(0, |region| last(region, 16) * 2));

        let fabric = &port.fabric;
        let settings = fabric.settings();
        names.number("node", settings.node.into());
        names.number("cluster", settings.cluster.into());
        names.number("ethertype", settings.ethertype.to_be().into());
        names.memory("ends", fabric.memory());
        let words = fabric.words();
        let links = names.region("links", &words.links);
        let outputs = names.region("outputs", &words.outputs);
        let nodes = names.region("nodes", &words.nodes);
        names.number("links_last", last(&words.links, 64));
        names.number("outputs_last", last(&words.outputs, 4));
        let nodes = nodes && u64::from(settings.node) <= last(&words.nodes, 4);
        let delivers = outputs && nodes && adjacencies.is_some() && state.uses.is_some();
        let reads = FabricReads { transits: links, delivers };
        names.number("transits", reads.transits.into());
        names.number("delivers", reads.delivers.into());
        let bind = |name: &str| names.bound.get(name).copied();
        let code = load::function(crate::xdp::fabric::OBJECT, "fabric", bind);
        let code = code.map_err(|error| unlinked(error.to_string()))?;
        Ok((Program::load("fabric", &code)?, reads))
    }
}

const _: () = assert!(PORTS == 4096, "as fabric.c has it");
