//! This router as a node of a cluster: the state of its data plane, its fabric interface, and its probes.
//!
//! Shape:  `Node` is made before the graph, whose elements read its [`Fabric`]; the fabric interface is opened once the
//!         number of workers is known, a queue each; probes start when the internal interfaces have their ports. The host's
//!         kernel has routes to the other members by the fabric interface (`host`, decision 18). With a store, `membership`
//!         has the members and the parameters, `own` what this node announces; the daemon follows them in its turns
//!         (`parameters`).
//! Cost:   a thread for the probes and one for the store; what follows links and members runs when they change.

mod host;
mod in_kernel;
mod kept;
mod membership;
mod own;
mod parameters;
mod ports;
mod status;
mod steps;
mod wanted;

use std::borrow::Cow;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fingerpost_cluster::element;
use fingerpost_cluster::fabric::{self, Fabric, PathSettings, Settings};
use fingerpost_cluster::frame::{FULL_BYTES, FabricAddr, LOOKUP};
use fingerpost_cluster::probe::{self, Local, Probes, Service};
use fingerpost_cluster::rule::{self, MAX_NODES, Members, NodeId, NodeState};
use fingerpost_cluster::store::adopt::Adopted;
use fingerpost_cluster::store::agent;
use fingerpost_cluster::store::member::{Membership, Record};
use fingerpost_cluster::store::parameters::Parameters;
use fingerpost_io::xdp::fabric::{Fabric as Programs, FabricSettings, FabricWords};
use fingerpost_io::{tap, xdp};
use fingerpost_lpm::{Heap, UpdateError};
use fingerpost_packet::device::{DeviceError, Port};
use fingerpost_packet::graph::worker::clock_start;
use fingerpost_packet::router_graph::Addition;
use fingerpost_route::nexthop::NextHops;
use fingerpost_route::{Control, LinkState};

use self::in_kernel::{InKernel, Known};
use self::kept::Kept;
use self::membership::{Joined, View};
use self::own::Own;
pub(super) use self::ports::ClusterPorts;
use self::status::Loads;
use super::ports::Interfaces;
use crate::config::{Cluster, Config, Interface, Mode};
use crate::{privilege, registry};

/// Backlog of the direct link from which the rule looks for an intermediate, in full frames: that of the model.
const THRESHOLD_FRAMES: u64 = 8;

/// Real-time priority of the thread of the probes, where the process may have one.
const PRIORITY: u8 = 1;

/// Intervals of probes for which a node that drains waits before it stops: the others know by then, and no frame of
/// theirs is on a link to it.
const DRAIN_INTERVALS: u32 = 4;

/// How long it waits besides: turns of the others' control threads, and of the routing daemons beside them, which find other
/// egress nodes.
const WITHDRAWAL: Duration = Duration::from_millis(500);

/// Longest that the start of a router waits for its place in the store, above the TTL: the record of a start that crashed
/// is there until then.
const JOIN: Duration = Duration::from_secs(5);

/// Least time between two looks at what this node announces.
const ANNOUNCE: Duration = Duration::from_millis(200);

/// Why this router cannot be a node.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClusterError {
    #[error("the members: {0}")]
    Members(String),
    #[error("the store of the members: {0}")]
    Store(String),
    #[error(
        "this node has no place among the members: {why} (store {kind}, endpoints {endpoints})"
    )]
    Alone { why: String, kind: String, endpoints: String },
    #[error("the thread of the store: {0}")]
    Thread(std::io::Error),
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
    membership: Arc<Membership>,
    /// Where the members come from, unless it is the configuration.
    store: Option<Announcer>,
    /// One more than the greatest number that a member ever had.
    numbers: usize,
    fabric: Arc<Fabric>,
    ports: Arc<ClusterPorts>,
    in_kernel: InKernel,
    probes: Option<Probes>,
    drain: Drain,
    loads: Loads,
}

/// Whether this node carries nothing for other nodes any more, and who wants that.
#[derive(Debug, Default)]
struct Drain {
    /// A command, or the end of the router.
    here: bool,
    /// The parameters of the cluster.
    everywhere: bool,
}

impl Drain {
    fn is_on(&self) -> bool {
        self.here || self.everywhere
    }
}

/// A node's side of the store.
struct Announcer {
    joined: Joined,
    kept: Kept,
    /// Parameters that this node runs by.
    parameters: Adopted,
    /// Interfaces of the configuration; none named: all.
    named: Vec<String>,
    own: Own,
    /// When the own record was looked at last.
    looked: Instant,
    /// The host's kernel does not have it yet.
    changed: bool,
}

impl Node {
    /// A node without ports, whose words lie where XDP programs read them if any do.
    pub(super) fn new(
        whole: &Config,
        config: &Cluster,
        interfaces: &Interfaces,
    ) -> Result<Self, ClusterError> {
        let (membership, store) = match config.has_store() {
            true => join(config, boot()).map(|(members, joined)| (members, Some(joined)))?,
            false => (Arc::new(config.membership().map_err(ClusterError::Members)?), None),
        };
        let own = own(&membership, config);
        let settings = Settings {
            cluster: config.id,
            node: own,
            ethertype: config.ethertype,
            clock_ns: clock_ns(interfaces.kernel_time()?),
        };
        let rates = config.link.iter().filter_map(|link| link.rate_bps().ok().flatten());
        let configured = config.parameters();
        let paths = paths(&configured, configured.mode, rates.min());
        let members = members(&membership, 0);
        let numbers_in_use = members.len();
        let fabric = match interfaces.forwarder() {
            Some(forwarder) => {
                Fabric::new(forwarder.shared().memory.make().as_mut(), settings, paths, members)?
            }
            None => Fabric::new(&mut Heap, settings, paths, members)?,
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
        let store = store.map(|(joined, own, parameters)| {
            fabric.set_epoch(settings.node, own.record().epoch);
            let forwards = |interface: &&Interface| interface.mode != Mode::Kernel;
            let named = whole.interface.iter().filter(forwards);
            let named = named.map(|interface| interface.name.clone()).collect();
            let (looked, changed) = (Instant::now(), true);
            let kept = Kept::new(Arc::clone(&membership));
            Announcer { joined, kept, parameters, named, own, looked, changed }
        });
        let (config, ports) = (config.clone(), Arc::new(ports));
        let mut node = Self {
            in_kernel: InKernel::new(config.interface.clone()),
            config,
            membership,
            store,
            numbers: numbers_in_use,
            fabric,
            ports,
            probes: None,
            drain: Drain::default(),
            loads: Loads::new(),
        };
        node.run_by_parameters();
        Ok(node)
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
            begin: privilege::keep_for_packet_sockets,
        };
        let (fabric, ports) = (self.fabric.clone(), self.ports.clone());
        let has_store = self.store.is_some();
        let weighted = members(&self.membership, self.numbers);
        let probes = Probes::start(settings, weighted, move |table, members| {
            for node in members.all().filter(|&node| node != fabric.settings.node && !has_store) {
                // With a store the epoch goes with the record that is followed: a later one names other indices.
                fabric.set_epoch(node, table.epoch(node));
            }
            ports.follow(members, |node| table.egress(node), |node| table.is_leaving(node));
        });
        let probes = probes.map_err(ClusterError::Probes)?;
        let epoch = self.fabric.epoch(self.fabric.settings.node);
        probes.look(|table| table.set_epoch(epoch));
        self.probes = Some(probes);
        self.announce_drain();
        Ok(())
    }

    fn local(&self) -> Local {
        Local {
            number: self.fabric.settings.node,
            name: self.config.node.clone(),
            boot: self.store.as_ref().map_or_else(boot, |store| store.own.record().boot),
            digest: self.config.digest(),
            members: match self.store {
                Some(_) => 0,
                None => u16::try_from(self.membership.members.len()).unwrap_or(u16::MAX),
            },
            interval_ns: u64::from(self.config.probe_ms) * 1_000_000,
            multiplier: self.config.probe_multiplier,
        }
    }

    /// Whether the fabric interface is known, and the host's kernel has its routes.
    pub(super) fn has_interface(&self) -> bool {
        self.in_kernel.has_interface()
    }

    /// Follows the store, and has the host's kernel reach the other members by the fabric interface once that is there.
    /// Returns messages.
    pub(super) fn follow(&mut self, control: &Control) -> Vec<String> {
        let nodes = self.membership.members.iter().map(|record| record.number);
        self.loads.sample(&self.fabric.links, nodes);
        self.follow_parameters();
        let mut changed = self.follow_members();
        changed |= self.announce(control);
        let own = match &self.store {
            Some(store) => Cow::Borrowed(store.own.record()),
            None => Cow::Owned(Record { number: self.fabric.settings.node, ..Record::default() }),
        };
        let known = Known { membership: &self.membership, own: &own, ports: &self.ports };
        let (messages, is_there) = self.in_kernel.follow(control, &known, changed);
        // What names the indices of a record names its epoch from now on. Under a later epoch, the index of an adjacency
        // that is not known yet to be gone could be another neighbor's.
        if is_there && self.store.is_some() {
            self.others().for_each(|record| self.fabric.set_epoch(record.number, record.epoch));
        }
        messages
    }

    fn others(&self) -> impl Iterator<Item = &Record> {
        let own = self.fabric.settings.node;
        self.membership.members.iter().filter(move |record| record.number != own)
    }

    /// Takes the members that the store has by now. Returns whether they are others.
    fn follow_members(&mut self) -> bool {
        let Some(store) = &mut self.store else { return false };
        let View { membership: stored, lost, .. } = store.joined.view();
        let hold = Duration::from_secs(self.config.hold_s.into());
        // A node that has been without its store for that long is alone, whoever it reaches.
        let alone = lost.is_some_and(|since| since.elapsed() > hold);
        let stays = |number| !alone && !self.in_kernel.is_gone(number);
        let Some(membership) = store.kept.follow(stored, &self.membership, hold, stays) else {
            return false;
        };
        let before = std::mem::replace(&mut self.membership, membership);
        if before.members == self.membership.members {
            return false;
        }
        let of = |membership: &Membership| -> Vec<_> {
            let members = membership.members.iter();
            members.map(|record| (record.number, record.id.clone(), record.weight)).collect()
        };
        if of(&before) != of(&self.membership) {
            self.ports.set_members(numbers_of(&self.membership));
            let weighted = members(&self.membership, self.numbers);
            self.numbers = weighted.len();
            if let Some(probes) = &self.probes {
                let probed: Vec<_> = self.membership.members.iter().map(probed).collect();
                probes.set_members(&probed, weighted);
            }
        }
        true
    }

    /// Lets go of announced indices whose adjacency is gone: in each commit, before the grace period of the adjacency begins.
    pub(super) fn check_announced(&mut self, hops: &NextHops) {
        if let Some(store) = &mut self.store {
            store.own.check(hops, &self.fabric);
        }
    }

    /// Has the store have what this node announces. Returns whether that changes what the host's kernel is to have.
    fn announce(&mut self, control: &Control) -> bool {
        let Some(store) = &mut self.store else { return false };
        if store.looked.elapsed() < ANNOUNCE {
            return std::mem::take(&mut store.changed);
        }
        store.looked = Instant::now();
        let (ports, named) = (&self.ports, &store.named);
        let external = |link: &LinkState| {
            let forwards = named.is_empty() || named.contains(&link.name);
            forwards && !ports.is_fabric(&link.name) && !ports.is_internal(&link.name)
        };
        if store.own.renew(control, &self.fabric, external) {
            let record = store.own.record();
            self.fabric.set_epoch(self.fabric.settings.node, record.epoch);
            if let Some(probes) = &self.probes {
                probes.look(|table| table.set_epoch(record.epoch));
            }
            store.joined.publish(record.clone());
            store.changed = true;
        }
        std::mem::take(&mut store.changed)
    }

    /// Drains this node, or ends that.
    ///
    /// # Errors
    /// When the parameters of the cluster drain it.
    pub(super) fn set_draining(&mut self, draining: bool) -> Result<(), String> {
        if !draining && self.drain.everywhere {
            let id = &self.config.node;
            return Err(format!(
                "the parameters of the cluster drain this node: `fingerpost cluster set state.{id}=active` ends that"
            ));
        }
        self.drain.here = draining;
        self.announce_drain();
        Ok(())
    }

    /// Announces whether this node carries packets for other nodes.
    fn announce_drain(&self) {
        let service = if self.drain.is_on() { Service::Draining } else { Service::Active };
        if let Some(probes) = &self.probes {
            probes.look(|table| table.set_service(service));
        }
    }

    /// Announces that this node is about to stop, and waits until the others have noticed and withdrawn their routes by it.
    /// Workers continue meanwhile.
    pub(super) fn leave(&mut self) {
        self.drain.here = true;
        if let Some(probes) = &self.probes {
            let interval = Duration::from_millis(self.config.probe_ms.into());
            probes.look(|table| table.set_service(Service::Leaving));
            std::thread::sleep(interval * DRAIN_INTERVALS + WITHDRAWAL);
        }
        if let Some(store) = &self.store {
            store.joined.leave();
        }
    }
}

/// A node that has joined: its thread, its record, and the parameters as they were then.
type InStore = (Joined, Own, Adopted);

/// Takes this node's place among the members of a store.
fn join(config: &Cluster, boot: u32) -> Result<(Arc<Membership>, InStore), ClusterError> {
    let store = config.open_store().map_err(ClusterError::Store)?;
    let own = config.own().expect("checked with the configuration");
    let record = Record {
        id: own.id.clone(),
        number: own.number.unwrap_or(0),
        cluster: config.id,
        boot,
        weight: own.weight,
        digest: config.digest(),
        loopback: own.loopback,
        loopback6: own.loopback6,
        ..Record::default()
    };
    let mut own = Own::new(record);
    let ttl = Duration::from_secs(config.ttl_s.into());
    let hold = Duration::from_secs(config.hold_s.into());
    let settings = agent::Settings { ttl, hold, poll: membership::POLL };
    let joined = Joined::start(settings, own.record().clone(), config.parameters(), store);
    let joined = joined.map_err(ClusterError::Thread)?;
    let longest = JOIN + ttl;
    let view = joined.wait(longest);
    if !view.joined {
        let (kind, endpoints) = (config.store.clone(), config.endpoints.join(", "));
        let why = view
            .error
            .unwrap_or_else(|| format!("the store has not answered for {} s", longest.as_secs()));
        return Err(ClusterError::Alone { why, kind, endpoints });
    }
    let number = find(&view.membership, &config.node).map_or(0, |record| record.number);
    own.record_mut().number = number;
    let parameters = view.parameters.expect("a view of an agent has them");
    Ok((view.membership, (joined, own, parameters)))
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

/// Members by number, at least so many, all of them down; numbers that are nobody's have no weight.
fn members(membership: &Membership, least: usize) -> Members {
    let most = membership.members.iter().map(|record| record.number).max().unwrap_or(0);
    let mut weights = vec![0; (usize::from(most) + 1).max(least).min(MAX_NODES)];
    for record in &membership.members {
        weights[usize::from(record.number)] = record.weight;
    }
    let mut members = Members::new(&weights);
    for node in members.all() {
        members.set_node(node, NodeState::Down);
    }
    members
}

/// How paths are chosen by these parameters. The threshold is that of the slowest link with a rate.
fn paths(parameters: &Parameters, mode: fabric::Mode, lowest_rate: Option<u64>) -> PathSettings {
    let threshold =
        lowest_rate.map_or(1, |rate| THRESHOLD_FRAMES * FULL_BYTES * 8_000_000_000 / rate);
    PathSettings {
        mode,
        rule: rule::Settings { rule: parameters.rule, threshold },
        flowlet_ns: u64::from(parameters.flowlet_ms) * 1_000_000,
    }
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
