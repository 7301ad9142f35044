//! A node of the demo in this process: its control side, its graph with the elements of a cluster, and its worker.
//!
//! Shape:  two threads: the worker, between the rings of its links and those of its hosts, and the probes. A node that is
//!         killed ends between two rounds and takes with it what it holds.
//! Cost:   the worker sleeps half a millisecond where nothing is received.

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use fingerpost_cluster::fabric::{Fabric, Mode, PathSettings, PortRole, Settings};
use fingerpost_cluster::frame::{ETHERTYPE, FabricAddr, LOOKUP};
use fingerpost_cluster::rule::{self, Members, NodeState, Rule};
use fingerpost_io::DRIVERS;
use fingerpost_lpm::{Heap, Prefix};
use fingerpost_packet::device::DeviceSpec;
use fingerpost_packet::frame::{Batch, Pool};
use fingerpost_packet::{Port, Worker};
use fingerpost_route::{
    AnyPrefix, Control, ControlOptions, ForwardingAction, LinkState, LinkUpdate, MAIN_TABLE, Mac,
    NeighborState, NeighborUpdate, Path as Hop, RouteEvent, RouteKey, RouteUpdate, SourceId,
    Target,
};

use super::plan::{self, Host, NODES, number, others};
use super::probes::{CLUSTER, Probes, Wire};
use super::{LinkView, NodeView};
use crate::forward::{cluster, counters, worker_of};

/// Kernel indices that the interfaces would have: the fabric, the first internal one, and the first external one.
const FABRIC: u32 = 2;
const INTERNAL: u32 = 3;
const EXTERNAL: u32 = 16;
/// Own adjacency index of a node's first host, which the others name in their frames. The next host has the next one.
const HOST: u32 = 1;
/// Frames of a node: all rings hold 2,048.
const FRAMES: u32 = 4096;
/// Sleep of a worker that has nothing to do.
const NAP: Duration = Duration::from_micros(500);

/// When each link was last found up or down, by the number of the other node.
pub(super) type Seen = [Option<(bool, Instant)>; NODES];

/// The node, until it is killed.
pub(super) struct Node {
    own: usize,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    fabric: Arc<Fabric>,
    seen: Arc<Mutex<Seen>>,
    /// Keeps the tables.
    _control: Control,
}

/// A ring of the folder: the node or host that opens it first waits for others to come.
pub(super) fn open_ring(folder: &Path, name: &str, pool: &Pool) -> Result<Box<dyn Port>> {
    let path = folder.join(name);
    let path = path.to_str().context("the folder of temporary files has no name in UTF-8")?;
    let driver = DRIVERS.iter().find(|row| row.name == "ring").context("there is a driver ring")?;
    let pools = std::slice::from_ref(pool);
    let ports = (driver.open)(&DeviceSpec { name: path, queues: (0, 1), pools })?;
    ports.into_iter().next().context("a ring has one port")
}

/// Name of the ring between a node and a host of it.
pub(super) fn host_ring(host: Host) -> String {
    format!("host-{host}")
}

/// Name of the ring between two nodes.
fn link_ring(one: usize, other: usize) -> String {
    let (low, high) = (one.min(other), one.max(other));
    format!("link-{}-{}", plan::ID[low], plan::ID[high])
}

impl Node {
    /// Starts a node whose rings lie in this folder; `boot` numbers the starts.
    ///
    /// # Errors
    /// When a ring or a thread cannot be had.
    pub(super) fn start(
        own: usize,
        boot: u32,
        rule: Rule,
        ports: u8,
        folder: &Path,
    ) -> Result<Self> {
        let control = control(own, ports)?;
        let port = |link: u32| {
            let found = control.links().find(|entry| entry.0 == link);
            found.map(|entry| entry.1).context("a link has a port number")
        };
        let members = members();
        let settings =
            Settings { cluster: CLUSTER, node: number(own), ethertype: ETHERTYPE, clock_ns: 0 };
        let paths = PathSettings {
            mode: Mode::Vlb,
            rule: rule::Settings { rule, threshold: plan::THRESHOLD_NS },
            flowlet_ns: plan::FLOWLET_MS * 1_000_000,
        };
        let fabric = Arc::new(Fabric::new(&mut Heap, settings, paths, members.clone())?);
        fabric.set_role(port(FABRIC)?, PortRole::Fabric);
        let mut reader = control.reader();
        let forwarding = reader.pin();
        for host in plan::hosts_of(own, ports) {
            let hop = forwarding.v4.lookup(u32::from(host.addr()));
            if let ForwardingAction::Adjacency(index) = forwarding.hops.action(hop, 0) {
                fabric.set_output(HOST + u32::from(host.port), Some(index));
            }
        }
        let pool = Pool::new(FRAMES, 2048);
        let graph = cluster::plan(&fabric)?;
        // Nobody sends commands.
        let (_, orders) = mpsc::channel();
        let mut worker = worker_of(&graph, pool.clone(), control.reader(), counters(), orders);
        for host in plan::hosts_of(own, ports) {
            let external = port(EXTERNAL + u32::from(host.port))?;
            worker.add_port(external, open_ring(folder, &host_ring(host), &pool)?);
        }
        let (to_probes, arrived) = mpsc::channel();
        let mut leaving = Vec::new();
        for ((link, other), index) in others(own).enumerate().zip(INTERNAL..) {
            let internal = port(index)?;
            fabric.set_link(number(other), internal, Some(plan::LINK_BPS), plan::LIMIT_BYTES);
            let (to_wire, from_probes) = mpsc::channel();
            leaving.push(to_wire);
            let wire = Wire {
                ring: open_ring(folder, &link_ring(own, other), &pool)?,
                link,
                arrived: to_probes.clone(),
                leaving: from_probes,
                pool: pool.clone(),
                batch: Batch::new(&pool),
            };
            worker.add_port(internal, Box::new(wire));
        }
        drop(to_probes);
        let (stop, seen) = (Arc::new(AtomicBool::new(false)), Arc::default());
        let probes = Probes::new(own, boot, members, arrived, leaving);
        let mut node = Self {
            own,
            stop: stop.clone(),
            threads: Vec::new(),
            fabric: fabric.clone(),
            seen: Arc::clone(&seen),
            _control: control,
        };
        let on_change = move |members: &Members| {
            fabric.set_members(members.clone());
            note(&mut lock(&seen), own, members);
        };
        let of_probes = stop.clone();
        node.thread("probes", move || probes.run(&of_probes, on_change))?;
        node.thread("worker", move || work(&mut worker, &stop))?;
        Ok(node)
    }

    fn thread(&mut self, what: &str, work: impl FnOnce() + Send + 'static) -> Result<()> {
        let name = format!("{what}-{}", plan::ID[self.own]);
        self.threads.push(std::thread::Builder::new().name(name).spawn(work)?);
        Ok(())
    }

    /// Ends the node, as it is; returns when that was.
    pub(super) fn kill(mut self) -> Instant {
        let now = Instant::now();
        self.end();
        now
    }

    fn end(&mut self) {
        // Relaxed: nothing is read by it.
        self.stop.store(true, Relaxed);
        for thread in self.threads.drain(..) {
            // A panic of it was reported by it.
            let _ = thread.join();
        }
    }

    /// When the links to the other nodes were last found up or down.
    pub(super) fn seen(&self) -> Seen {
        *lock(&self.seen)
    }

    /// Its links at this moment.
    pub(super) fn view(&self) -> NodeView {
        let seen = self.seen();
        let link = |node: usize| {
            let bytes = self.fabric.links.counts(number(node)).bytes;
            let up = seen[node].is_some_and(|(up, _)| up);
            (node != self.own).then_some(LinkView { up, bytes })
        };
        NodeView { links: (0..NODES).map(link).collect() }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.end();
    }
}

fn lock(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Notes the links that are up or down since the last change.
fn note(seen: &mut Seen, own: usize, members: &Members) {
    for other in others(own) {
        let up = members.direct(number(own), number(other));
        if seen[other].map(|(up, _)| up) != Some(up) {
            seen[other] = Some((up, Instant::now()));
        }
    }
}

/// All nodes, down until probes come. Number 0 is nobody's.
fn members() -> Members {
    let mut weights = vec![1; NODES + 1];
    weights[0] = 0;
    let mut members = Members::new(&weights);
    for node in members.all() {
        members.set_node(node, NodeState::Down);
    }
    members
}

/// Works until it is stopped. What is held then is lost, as with a process.
fn work(worker: &mut Worker, stop: &AtomicBool) {
    while !stop.load(Relaxed) {
        if worker.round() == 0 {
            std::thread::sleep(NAP);
        }
    }
}

/// Control side of a node: its hosts are neighbors, and packets to those of the others leave by the fabric interface.
fn control(own: usize, ports: u8) -> Result<Control> {
    let mut control = Control::new(ControlOptions {
        v4: fingerpost_lpm::v4().collect(),
        v6: fingerpost_lpm::v6().collect(),
        connected_from_addresses: false,
    })?;
    let us = control.add_source("demo", 1);
    let own_mac = FabricAddr { adjacency: LOOKUP, output: number(own) }.mac();
    let mut interfaces = vec![(FABRIC, "cluster0".to_owned(), own_mac)];
    interfaces.extend(
        plan::hosts_of(own, ports)
            .map(|host| (EXTERNAL + u32::from(host.port), host.interface(), host.port_mac())),
    );
    for (index, other) in (INTERNAL..).zip(others(own)) {
        let last = u8::try_from(index).expect("a small number");
        interfaces.push((index, format!("int-{}", plan::ID[other]), Mac([2, 0, 0, 0, 0, last])));
    }
    for (link, name, mac) in interfaces {
        let state = LinkState { name, up: true, mtu: 1500, mac: Some(mac), ..LinkState::default() };
        control.handle(us, RouteEvent::Link(LinkUpdate { link, state: Some(state) }));
    }
    for host in plan::hosts(ports) {
        let port = u32::from(host.port);
        let (link, mac) = if host.node == own {
            (EXTERNAL + port, host.mac())
        } else {
            (FABRIC, FabricAddr { adjacency: HOST + port, output: number(host.node) }.mac())
        };
        learn(&mut control, us, host, link, mac)?;
    }
    control.commit(Instant::now())?;
    Ok(control)
}

/// A route to the network of a host, by a neighbor on this link.
fn learn(control: &mut Control, us: SourceId, host: Host, link: u32, mac: Mac) -> Result<()> {
    let addr = host.addr().into();
    let state = NeighborState::Reachable(mac);
    control.handle(us, RouteEvent::Neighbor(NeighborUpdate { link, addr, state }));
    let prefix = Prefix::new(u32::from(host.network()), 24).context("24 bits")?;
    let key = RouteKey { table: MAIN_TABLE, prefix: AnyPrefix::V4(prefix), metric: 0 };
    let path = Hop { gateway: Some(addr), link: Some(link), weight: 1 };
    control.handle(us, RouteEvent::Route(RouteUpdate::new(key, Target::Path(path))));
    Ok(())
}
