//! State of a cluster node that its data plane reads: settings, links, adjacencies of others, members.
//!
//! Shape:  words in regions of [`Memory`], which XDP programs read too: [`Links`]; `outputs`, a word of 32 bits per own
//!         adjacency index (an index of the host's adjacencies and one more; 0 for none); `nodes`, a word of 32 bits per
//!         node whose low 8 bits are its adjacency epoch. Members are a value of [`Publisher`],
//!         which the one writer replaces; [`PathSettings`] are three words.
//! Cost:   a pin of the members and a copy of the settings a batch; a packet reads a few words.
//!
//! An adjacency index is announced to the other nodes, and frames name it. Whoever sets outputs uses an index for another
//! neighbor only after the epoch has advanced twice: a frame of an older epoch has its destination looked up instead.

mod links;

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64};
use std::sync::{Mutex, PoisonError};

use fingerpost_lpm::{Memory, Region, UpdateError};
use fingerpost_packet::frame::counters::{Count, PerWorker};
use fingerpost_route::{Publisher, Reader};
use serde::{Deserialize, Serialize};

pub use links::{Charges, Class, Counts, Links, Sent, Usable};

use crate::frame::LOOKUP;
use crate::rule::{self, MAX_NODES, Members, NodeId, Rule};

/// Most adjacencies that a node announces.
pub const MAX_OUTPUTS: usize = 1 << 16;

/// Whether packets may need a second hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Non-blocking fabric: packets go straight to their egress node.
    Direct,
    /// Mesh or oversubscribed fabric: Valiant load balancing by the rule.
    Vlb,
}

impl Mode {
    /// Both modes.
    pub const ALL: [Self; 2] = [Self::Direct, Self::Vlb];

    /// Its word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Vlb => "vlb",
        }
    }
}

/// What a port is to the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortRole {
    /// It carries packets of the outside.
    External,
    /// It carries internal frames.
    Internal,
    /// It is the fabric interface, where the host's own packets for other nodes come from.
    Fabric,
}

/// Settings of a node, for its whole run.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Cluster that internal frames name.
    pub cluster: u8,
    /// Own number.
    pub node: NodeId,
    /// EtherType of internal frames.
    pub ethertype: u16,
    /// Time of the links when the time of workers was 0, in nanoseconds: XDP programs charge links by the kernel's clock.
    pub clock_ns: u64,
}

/// How a node chooses the paths of packets. It may change while packets are forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathSettings {
    /// Mode of the fabric.
    pub mode: Mode,
    /// Rule of the path choice. Its threshold is in nanoseconds of backlog.
    pub rule: rule::Settings,
    /// Gap that ends a flowlet, in nanoseconds.
    pub flowlet_ns: u64,
}

/// [`PathSettings`] as words: mode and rule in 8 bits each, threshold, flowlet gap.
#[derive(Debug)]
struct PathWords([AtomicU64; 3]);

impl PathWords {
    fn new(paths: PathSettings) -> Self {
        let words = Self([const { AtomicU64::new(0) }; 3]);
        words.set(paths);
        words
    }

    fn set(&self, PathSettings { mode, rule, flowlet_ns }: PathSettings) {
        // Relaxed: each word is right by itself, and a batch may find the old one of another.
        self.0[0].store(mode as u64 | (rule.rule as u64) << 8, Relaxed);
        self.0[1].store(rule.threshold, Relaxed);
        self.0[2].store(flowlet_ns, Relaxed);
    }

    #[inline]
    fn read(&self) -> PathSettings {
        let [kind, threshold, flowlet_ns] = [0, 1, 2].map(|at| self.0[at].load(Relaxed));
        let mode = if kind & 0xff == Mode::Direct as u64 { Mode::Direct } else { Mode::Vlb };
        let rule = Rule::ALL.into_iter().find(|&rule| rule as u64 == kind >> 8);
        let rule = rule::Settings { rule: rule.unwrap_or(Rule::Adaptive), threshold };
        PathSettings { mode, rule, flowlet_ns }
    }
}

/// Counts of the packets of a worker.
#[derive(Debug, Default)]
pub struct NodeCounts {
    /// Packets sent straight to their egress node.
    pub direct: Count,
    /// Packets sent to an intermediate.
    pub balanced: Count,
    /// Packets of other nodes sent on to their egress node.
    pub transit: Count,
    /// Packets that left by the adjacency that their frame named.
    pub output: Count,
    /// Packets that were looked up at their egress node.
    pub looked_up: Count,
    /// Packets passed to the host.
    pub host: Count,
    /// Flowlets begun.
    pub flowlets: Count,
    /// Flowlets whose path failed.
    pub rechosen: Count,
    /// Packets of flowlets whose link was full.
    pub sprayed: Count,
}

/// State of a cluster node.
#[derive(Debug)]
pub struct Fabric {
    /// Settings.
    pub settings: Settings,
    paths: PathWords,
    /// Internal links.
    pub links: Links,
    /// Direct allowances of the fixed rule: half of each link's rate.
    pub allowances: Links,
    /// Counts.
    pub counts: PerWorker<NodeCounts>,
    outputs: Region,
    nodes: Region,
    roles: Box<[AtomicU8]>,
    /// Port of the fabric interface; above all ports where there is none.
    fabric_port: AtomicU32,
    members: Mutex<Publisher<Members>>,
}

impl Fabric {
    /// A node without links, in a cluster of these members, whose links are up as the members state.
    ///
    /// # Errors
    /// [`UpdateError::Memory`].
    ///
    /// # Panics
    /// When the own number is none of the members'.
    pub fn new(
        memory: &mut dyn Memory,
        settings: Settings,
        paths: PathSettings,
        members: Members,
    ) -> Result<Self, UpdateError> {
        assert!(usize::from(settings.node) < members.len(), "the node is a member");
        let links = Links::new(memory, "links", MAX_NODES)?;
        for node in members.all() {
            links.set_usable(node, members.direct(settings.node, node));
        }
        Ok(Self {
            settings,
            paths: PathWords::new(paths),
            links,
            allowances: Links::new(memory, "allowances", MAX_NODES)?,
            counts: PerWorker::default(),
            outputs: memory.region("outputs", MAX_OUTPUTS * 4)?,
            nodes: memory.region("nodes", MAX_NODES * 4)?,
            roles: (0..=u16::MAX).map(|_| AtomicU8::new(0)).collect(),
            fabric_port: AtomicU32::new(u32::MAX),
            members: Mutex::new(Publisher::new(members)),
        })
    }

    /// The words of own adjacency indices and of epochs, for sharing.
    pub fn regions(&self) -> [&Region; 2] {
        [&self.outputs, &self.nodes]
    }

    /// Writer: an internal link to `node` by a port, at a rate in bit/s.
    ///
    /// # Panics
    /// As [`Links::set`].
    pub fn set_link(&self, node: NodeId, port: u16, rate_bps: Option<u64>, limit_bytes: u64) {
        self.links.set(node, port, rate_bps, limit_bytes);
        let half = rate_bps.map(|rate| (rate / 2).max(1000));
        self.allowances.set(node, port, half, limit_bytes);
        self.set_role(port, PortRole::Internal);
    }

    /// Writer: how paths are chosen from the next batch on.
    pub fn set_paths(&self, paths: PathSettings) {
        self.paths.set(paths);
    }

    /// How paths are chosen.
    #[inline]
    pub fn paths(&self) -> PathSettings {
        self.paths.read()
    }

    /// Writer: what a port is to the cluster. Any port is external at first.
    pub fn set_role(&self, port: u16, role: PortRole) {
        if role == PortRole::Fabric {
            self.fabric_port.store(port.into(), Relaxed);
        }
        self.roles[usize::from(port)].store(role as u8, Relaxed);
    }

    /// Time of the links at a time of a worker, both in nanoseconds.
    #[inline]
    pub fn link_time(&self, now_ns: u64) -> u64 {
        self.settings.clock_ns.wrapping_add(now_ns)
    }

    /// What a port is to the cluster.
    #[inline]
    pub fn role(&self, port: u16) -> PortRole {
        // Relaxed: a role is set before the port receives, and is a value by itself.
        match self.roles[usize::from(port)].load(Relaxed) {
            1 => PortRole::Internal,
            2 => PortRole::Fabric,
            _ => PortRole::External,
        }
    }

    /// Port of the fabric interface.
    #[inline]
    pub fn fabric_port(&self) -> Option<u16> {
        u16::try_from(self.fabric_port.load(Relaxed)).ok()
    }

    /// Writer: the members from now on.
    pub fn set_members(&self, members: Members) {
        for node in members.all() {
            self.links.set_usable(node, members.direct(self.settings.node, node));
        }
        self.members.lock().unwrap_or_else(PoisonError::into_inner).set(members);
    }

    /// The members, for a worker that pins them once a batch.
    pub fn reader(&self) -> Reader<Members> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner).reader()
    }

    /// Writer: the adjacency of the host that an own index names, or none.
    ///
    /// # Panics
    /// When the index is 0 or above [`MAX_OUTPUTS`].
    pub fn set_output(&self, index: u32, adjacency: Option<u32>) {
        assert!(index != LOOKUP, "index 0 has the destination looked up");
        let word = adjacency.map_or(0, |adjacency| adjacency + 1);
        self.outputs.u32s()[index as usize].store(word, Release);
    }

    /// Adjacency of the host that an own index names, in a frame of this epoch; `None` has the packet looked up.
    #[inline]
    pub fn output(&self, index: u32, epoch: u8) -> Option<u32> {
        let age = self.epoch(self.settings.node).wrapping_sub(epoch);
        if index == LOOKUP || age > 1 {
            return None;
        }
        // Acquire pairs with the release of `set_output`: the adjacency was written before.
        self.outputs.u32s().get(index as usize)?.load(Acquire).checked_sub(1)
    }

    /// Writer: adjacency epoch of a node.
    pub fn set_epoch(&self, node: NodeId, epoch: u8) {
        if let Some(word) = self.nodes.u32s().get(usize::from(node)) {
            word.store(epoch.into(), Release);
        }
    }

    /// Adjacency epoch of a node; 0 for one that there is not.
    #[inline]
    #[allow(clippy::cast_possible_truncation, reason = "takes the low 8 bits")]
    pub fn epoch(&self, node: NodeId) -> u8 {
        self.nodes.u32s().get(usize::from(node)).map_or(0, |word| word.load(Relaxed) as u8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::ETHERTYPE;
    use crate::rule::NodeState;
    use fingerpost_lpm::Heap;

    fn fabric() -> Fabric {
        let settings = Settings { cluster: 1, node: 1, ethertype: ETHERTYPE, clock_ns: 0 };
        Fabric::new(&mut Heap, settings, PATHS, Members::equal(4)).unwrap()
    }

    const PATHS: PathSettings = PathSettings {
        mode: Mode::Vlb,
        rule: rule::Settings { rule: Rule::Adaptive, threshold: 1000 },
        flowlet_ns: 2_000_000,
    };

    #[test]
    fn path_settings_are_read_as_they_were_set() {
        let fabric = fabric();
        assert_eq!(fabric.paths(), PATHS);
        for mode in Mode::ALL {
            for rule in Rule::ALL {
                let rule = rule::Settings { rule, threshold: u64::MAX };
                let paths = PathSettings { mode, rule, flowlet_ns: 7 };
                fabric.set_paths(paths);
                assert_eq!(fabric.paths(), paths);
            }
        }
    }

    #[test]
    fn a_stale_epoch_has_its_packets_looked_up() {
        let fabric = fabric();
        fabric.set_output(7, Some(0));
        fabric.set_epoch(1, 255);
        let seen = |epoch| fabric.output(7, epoch);
        assert_eq!([255, 254, 253, 0].map(seen), [Some(0), Some(0), None, None]);
        fabric.set_epoch(1, 0);
        assert_eq!([0, 255, 254, 1].map(seen), [Some(0), Some(0), None, None]);
        assert_eq!([0, 8, u32::MAX].map(|index| fabric.output(index, 0)), [None; 3]);
        fabric.set_output(7, None);
        assert_eq!(fabric.output(7, 0), None);
    }

    #[test]
    fn a_reader_sees_new_members_at_its_next_batch() {
        let fabric = fabric();
        let mut reader = fabric.reader();
        let mut members = reader.pin().clone();
        members.set_node(2, NodeState::Down);
        fabric.set_members(members);
        assert_eq!(reader.pinned().node(2), NodeState::Active);
        assert_eq!(reader.pin().node(2), NodeState::Down);
    }

    #[test]
    fn ports_are_external_at_first() {
        let fabric = fabric();
        fabric.set_link(2, 9, None, 0);
        fabric.set_role(3, PortRole::Fabric);
        let roles = [1, 9, 3].map(|port| fabric.role(port));
        assert_eq!(roles, [PortRole::External, PortRole::Internal, PortRole::Fabric]);
    }
}
