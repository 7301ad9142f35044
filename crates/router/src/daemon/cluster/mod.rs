//! This router as a node of a cluster: the state of its data plane, its fabric interface, and its probes.
//!
//! Shape:  `Node` is made before the graph, whose elements read its [`Fabric`]; the fabric interface is opened once the
//!         number of workers is known, a queue each; probes start when the internal interfaces have their ports. The host's
//!         kernel has routes to the other members by the fabric interface (`host`, decision 18).
//! Cost:   a thread for the probes; what follows links runs when links change.

mod host;
mod ports;
mod status;

use std::collections::BTreeSet;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fingerpost_cluster::element;
use fingerpost_cluster::fabric::{Fabric, Settings};
use fingerpost_cluster::frame::{FabricAddr, LOOKUP};
use fingerpost_cluster::probe::{self, Local, Probes, Service};
use fingerpost_cluster::rule::{self, MAX_NODES, Members, NodeId, NodeState};
use fingerpost_cluster::store::member::{Membership, Record};
use fingerpost_io::xdp::fabric::{Fabric as Programs, FabricSettings, FabricWords};
use fingerpost_io::{tap, xdp};
use fingerpost_lpm::{Heap, UpdateError};
use fingerpost_packet::device::{DeviceError, Port};
use fingerpost_packet::graph::worker::clock_start;
use fingerpost_packet::router_graph::Addition;
use fingerpost_route::Control;

use self::host::{Entry, Host};
pub(super) use self::ports::ClusterPorts;
use self::ports::FRAME_BYTES;
use self::status::Loads;
use super::ports::Interfaces;
use crate::config::Cluster;
use crate::registry;

/// Backlog of the direct link from which the rule looks for an intermediate, in full frames: that of the model.
const THRESHOLD_FRAMES: u64 = 8;

/// Real-time priority of the thread of the probes, where the process may have one.
const PRIORITY: u8 = 1;

/// Intervals of probes for which a node that drains waits before it stops: the others know by then, and have nothing
/// under way to it.
const DRAIN_INTERVALS: u32 = 4;

/// Why this router cannot be a node.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClusterError {
    #[error("the members: {0}")]
    Members(String),
    #[error(transparent)]
    Xdp(#[from] xdp::XdpError),
    #[error("{0}")]
    Memory(#[from] UpdateError),
    #[error("the fabric interface: {0}")]
    Interface(#[from] DeviceError),
    #[error("the kernel does not report the fabric interface, which was just made")]
    Unreported,
    #[error("the probes of internal interfaces: {0}")]
    Probes(std::io::Error),
}

/// A node of a cluster.
pub(super) struct Node {
    config: Cluster,
    membership: Membership,
    fabric: Arc<Fabric>,
    ports: Arc<ClusterPorts>,
    /// What the host's kernel has of the other members, once the fabric interface is known.
    host: Option<Host>,
    probes: Option<Probes>,
    reach: Reach,
    /// Whether it carries nothing for other nodes any more.
    draining: bool,
    loads: Loads,
}

impl Node {
    /// A node without ports, whose words lie where XDP programs read them if any do.
    pub(super) fn new(config: &Cluster, interfaces: &Interfaces) -> Result<Self, ClusterError> {
        let membership = config.membership().map_err(ClusterError::Members)?;
        let own = own(&membership, config);
        let settings = Settings {
            cluster: config.id,
            node: own,
            ethertype: config.ethertype,
            mode: config.mode.mode(),
            rule: rule::Settings { rule: config.rule.rule(), threshold: threshold_ns(config) },
            flowlet_ns: u64::from(config.flowlet_ms) * 1_000_000,
            clock_ns: clock_ns(interfaces.kernel_time()?),
        };
        let members = members(&membership);
        let fabric = match interfaces.forwarder() {
            Some(forwarder) => {
                Fabric::new(forwarder.shared().memory.make().as_mut(), settings, members)?
            }
            None => Fabric::new(&mut Heap, settings, members)?,
        };
        let [outputs, nodes] = fabric.regions();
        let words = FabricWords {
            links: fabric.links.region().clone(),
            outputs: outputs.clone(),
            nodes: nodes.clone(),
        };
        let numbers = FabricSettings { node: own, cluster: config.id, ethertype: config.ethertype };
        let programs = Arc::new(Programs::new(numbers, words)?);
        let fabric = Arc::new(fabric);
        let links = config.link.iter().map(|link| {
            let rate = link.rate_bps().expect("checked with the configuration");
            (link.interface.clone(), link.peer.clone(), rate)
        });
        let ports = ClusterPorts::new(fabric.clone(), programs, config.interface.clone(), links);
        ports.set_members(numbers_of(&membership));
        let (config, ports) = (config.clone(), Arc::new(ports));
        Ok(Self {
            config,
            membership,
            fabric,
            ports,
            host: None,
            probes: None,
            reach: Reach::default(),
            draining: false,
            loads: Loads::new(),
        })
    }

    /// Its ports, for what drives interfaces.
    pub(super) fn ports(&self) -> Arc<ClusterPorts> {
        self.ports.clone()
    }

    /// Its elements, for the built-in graph.
    pub(super) fn addition(&self) -> Addition {
        element::addition(registry::of_node(), self.fabric.clone())
    }

    /// Makes the fabric interface, with a queue for each worker.
    pub(super) fn open(&self, workers: usize) -> Result<Vec<Box<dyn Port>>, ClusterError> {
        let mac = FabricAddr { adjacency: LOOKUP, output: self.fabric.settings.node }.mac();
        Ok(tap::open_queues(&self.config.interface, mac.0, None, workers)?)
    }

    /// Starts the probes.
    pub(super) fn start(&mut self) -> Result<(), ClusterError> {
        let settings = probe::Settings {
            local: self.local(),
            members: self.membership.members.iter().map(probed).collect(),
            interfaces: self.ports.probed(),
            cluster: self.config.id,
            ethertype: self.config.ethertype,
            real_time: Some(PRIORITY),
        };
        let (fabric, ports) = (self.fabric.clone(), self.ports.clone());
        let probes = Probes::start(settings, members(&self.membership), move |table, members| {
            for node in members.all().filter(|&node| node != fabric.settings.node) {
                fabric.set_epoch(node, table.epoch(node));
            }
            ports.follow(members, |node| table.egress(node));
            fabric.set_members(members.clone());
        });
        self.probes = Some(probes.map_err(ClusterError::Probes)?);
        Ok(())
    }

    fn local(&self) -> Local {
        Local {
            number: self.fabric.settings.node,
            name: self.config.node.clone(),
            boot: boot(),
            digest: self.config.digest(),
            members: u16::try_from(self.membership.members.len()).unwrap_or(u16::MAX),
            interval_ns: u64::from(self.config.probe_ms) * 1_000_000,
            multiplier: self.config.probe_multiplier,
        }
    }

    /// Whether the fabric interface is known, and the host's kernel has its routes.
    pub(super) fn has_interface(&self) -> bool {
        self.host.is_some()
    }

    /// Has the host's kernel reach the other members by the fabric interface, once that is there. Returns messages.
    pub(super) fn follow_links(&mut self, control: &Control) -> Vec<String> {
        let nodes = self.membership.members.iter().map(|record| record.number);
        self.loads.sample(&self.fabric.links, nodes);
        let name = &self.config.interface;
        let found = control.links().find(|(_, _, state)| state.name == *name && state.up);
        let Some((link, ..)) = found else {
            // The kernel has deleted the routes of an interface that is down.
            self.host = None;
            return Vec::new();
        };
        let changed = self.reach.follow(&self.fabric);
        let known = self.host.as_ref().is_some_and(|host| host.link() == link);
        if known && !changed {
            return Vec::new();
        }
        let mut host = match self.host.take().filter(|_| known).map_or_else(|| Host::new(link), Ok)
        {
            Ok(host) => host,
            Err(error) => return vec![format!("{name}: {error}")],
        };
        let own = self.fabric.settings.node;
        let refused = host.set(&entries(&self.membership, own, |node| self.reach.is_lost(node)));
        self.host = Some(host);
        refused.into_iter().map(|why| format!("{name}: {why}")).collect()
    }

    /// Announces whether this node carries packets for other nodes.
    pub(super) fn set_draining(&mut self, draining: bool) {
        self.draining = draining;
        let service = if draining { Service::Draining } else { Service::Active };
        if let Some(probes) = &self.probes {
            probes.look(|table| table.set_service(service));
        }
    }

    /// Drains this node, and waits until the others have noticed. Workers continue meanwhile.
    pub(super) fn leave(&mut self) {
        self.set_draining(true);
        if self.probes.is_some() {
            std::thread::sleep(Duration::from_millis(
                u64::from(self.config.probe_ms) * u64::from(DRAIN_INTERVALS),
            ));
        }
    }
}

/// Which members were reached at some time, and which of these no longer are: routing daemons are to take them out of their
/// next hops, and at the start they are to find all of them.
#[derive(Default)]
struct Reach {
    reached: BTreeSet<NodeId>,
    lost: BTreeSet<NodeId>,
}

impl Reach {
    /// Follows the state of the members; returns whether one was lost or came back.
    fn follow(&mut self, fabric: &Fabric) -> bool {
        let mut reader = fabric.reader();
        let members = reader.pin();
        let down = |node: &NodeId| members.node(*node) == NodeState::Down;
        self.reached.extend(members.all().filter(|node| !down(node)));
        let lost: BTreeSet<NodeId> = self.reached.iter().copied().filter(down).collect();
        let changed = lost != self.lost;
        self.lost = lost;
        changed
    }

    fn is_lost(&self, node: NodeId) -> bool {
        self.lost.contains(&node)
    }
}

/// Record of a member.
fn find<'a>(membership: &'a Membership, id: &str) -> Option<&'a Record> {
    membership.members.iter().find(|record| record.id == id)
}

/// Number of this node.
fn own(membership: &Membership, config: &Cluster) -> NodeId {
    find(membership, &config.node).expect("checked with the configuration").number
}

fn probed(record: &Record) -> probe::Member {
    probe::Member { number: record.number, name: record.id.clone() }
}

fn numbers_of(membership: &Membership) -> impl Iterator<Item = (&str, NodeId)> {
    membership.members.iter().map(|record| (&*record.id, record.number))
}

/// Members by number, all of them down; numbers that are nobody's have no weight.
fn members(membership: &Membership) -> Members {
    let most = membership.members.iter().map(|record| record.number).max().unwrap_or(0);
    let mut weights = vec![0; (usize::from(most) + 1).min(MAX_NODES)];
    for record in &membership.members {
        weights[usize::from(record.number)] = record.weight;
    }
    let mut members = Members::new(&weights);
    for node in members.all() {
        members.set_node(node, NodeState::Down);
    }
    members
}

/// Backlog that lets the rule look for an intermediate: of the slowest link with a rate.
fn threshold_ns(config: &Cluster) -> u64 {
    let rates = config.link.iter().filter_map(|link| link.rate_bps().ok().flatten());
    rates.min().map_or(1, |rate| THRESHOLD_FRAMES * FRAME_BYTES * 8_000_000_000 / rate)
}

/// Time of the kernel's clock when the time of workers was 0.
fn clock_ns((kernel_ns, then): (u64, Instant)) -> u64 {
    let since = then.saturating_duration_since(clock_start()).as_nanos();
    kernel_ns.wrapping_sub(u64::try_from(since).unwrap_or(0))
}

/// Random number of a start, never 0.
fn boot() -> u32 {
    let word = RandomState::new().build_hasher().finish();
    #[allow(clippy::cast_possible_truncation, reason = "any 32 of the bits")]
    let low = word as u32;
    low.max(1)
}

/// What the host's kernel is to have of the members: of lost ones no route.
fn entries(
    membership: &Membership,
    own: NodeId,
    is_lost: impl Fn(NodeId) -> bool,
) -> BTreeSet<Entry> {
    let mut entries = BTreeSet::new();
    for record in &membership.members {
        let loopbacks = || {
            let v4 = record.loopback.map(IpAddr::V4);
            v4.into_iter().chain(record.loopback6.map(IpAddr::V6))
        };
        if record.number == own {
            entries.extend(loopbacks().map(Entry::Address));
            continue;
        }
        let mac = |adjacency| FabricAddr { adjacency, output: record.number }.mac().0;
        for addr in loopbacks() {
            entries.insert(Entry::Neighbor { addr, mac: mac(LOOKUP) });
            if !is_lost(record.number) {
                entries.insert(Entry::Route { prefix: (addr, host_len(addr)), via: None });
            }
        }
    }
    entries
}

/// Length of the prefix of one address.
fn host_len(addr: IpAddr) -> u8 {
    if addr.is_ipv4() { 32 } else { 128 }
}
