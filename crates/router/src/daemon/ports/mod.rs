//! Which interface is driven how, followed as interfaces come, go and change.
//!
//! An interface that can carry forwarded packets gets a classifier and, for each worker, AF_XDP sockets
//! on its share of the queues, or a share of one queue. One that cannot, or may not, stays with the
//! kernel, and routes that leave by it go out through a packet socket.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fingerpost_io::xdp::forward::Forwarder;
use fingerpost_io::xdp::presence::{Pulse, Watch};
use fingerpost_io::xdp::{self, Classifier, LocalAddresses};
use fingerpost_io::{afxdp, frames_held, interface};
use fingerpost_lpm::UpdateError;
use fingerpost_packet::device::{DeviceError, Port};
use fingerpost_packet::feature::FeatureSettings;
use fingerpost_packet::frame::counters::PortCounters;
use fingerpost_route::event::BOND;
use fingerpost_route::fib::KernelLookup;
use fingerpost_route::{Control, LinkState};
use numbers::Numbers;
use opening::{Opening, follow, ring_of};
use tracing::{error, info, warn};

use super::cluster::ClusterPorts;
use super::egress::{StandIns, confirm};
use super::nonstop::NonStop;
use super::obstacles::Policy;
use super::takeover::{self, Findings};
use super::vlans::Vlans;
use super::workers::WorkerHandle;
use super::xdp_features::FeatureReader;
use super::{RunOptions, own_addrs};
use crate::config::Mode;

mod closing;
pub(super) mod numbers;
mod opening;
mod report;

pub(crate) use report::InterfaceReport;
use report::Seen;

/// Interval of queries whether drivers send what programs redirect.
const EGRESS_CHECK: Duration = Duration::from_millis(250);

/// How an interface is driven at the moment.
struct Open {
    port: u16,
    /// State of the link when that was decided.
    state: LinkState,
    drive: Drive,
    /// Description, for people.
    mode: String,
}

enum Drive {
    /// Frames of so many queues come to us. Dropping the last holder of the link detaches the program.
    Afxdp { classifier: Arc<Classifier>, queues: u32, _link: Arc<xdp::Link> },
    /// The kernel has it, or has it until what is made for it is taken in ([`Opening::has`]); we only send.
    Kernel,
}

/// Name of an interface, and how it would be driven or why it stays with the kernel.
pub(crate) type Plan = (String, Result<Mode, String>);

/// All interfaces.
pub(crate) struct Interfaces {
    pub(super) options: RunOptions,
    pub(super) policy: Policy,
    local: Local,
    pub(super) datapath: Datapath,
    nonstop: NonStop,
    /// How each interface is driven, by the kernel's index.
    open: BTreeMap<u32, Open>,
    opening: Opening,
    egress: Egress,
    pub(super) vlans: Vlans,
    pub(super) history: History,
}

/// The host's own addresses, as the classifiers have them.
struct Local {
    addresses: Arc<LocalAddresses>,
    /// Number of changes of the host's addresses that the classifiers have.
    as_of: Option<u64>,
    /// Has the kernel forward at once where this process is killed.
    _watch: Option<Watch>,
}

/// The XDP datapath, where it is wanted and a driver can run it.
#[derive(Default)]
pub(super) struct Datapath {
    pub(super) forwarder: Option<Forwarder>,
    /// Programs that apply features to packets to the router itself: those of `forwarder`, or, where XDP forwards
    /// nothing, programs for these packets alone.
    pub(super) guard: Option<Forwarder>,
    /// When the drivers were last checked for whether they send what programs redirect.
    egress_checked: Option<Instant>,
    /// Ports of a cluster node: of its internal interfaces and of the fabric interface.
    cluster: Option<Arc<ClusterPorts>>,
    /// Port of the fabric interface, while programs send packets into the cluster.
    entrance: Option<u16>,
}

/// Ports that are packet sockets, and ports that workers return.
#[derive(Default)]
struct Egress {
    stand_ins: StandIns,
    /// Ports that workers have yet to return: how many workers, and since when.
    closing: BTreeMap<u16, (usize, Instant)>,
}

/// What is left of interfaces that are no longer driven.
#[derive(Default)]
pub(super) struct History {
    /// Counters of interfaces that were closed.
    closed: Seen,
    /// Port numbers that interfaces had one after the other.
    numbers: Numbers,
    /// How the interfaces were driven, once all are returned to the kernel.
    last: Vec<InterfaceReport>,
    /// Why an interface could not be taken over for want of a privilege, the latest.
    refused: Option<String>,
    /// Paths of interfaces may have changed since the last look.
    pub(super) changed: bool,
}

impl Interfaces {
    pub(super) fn new(
        options: &RunOptions,
        findings: Findings,
        nonstop: NonStop,
    ) -> Result<Self, xdp::XdpError> {
        let local = Arc::new(LocalAddresses::new()?);
        if let Err(error) = own_addrs::watch(&local) {
            warn!(target: "interface", "the host's addresses: {error}");
        }
        let watch = local.watch();
        if let Err(error) = &watch {
            warn!(target: "takeover", "after a crash the kernel forwards some 100 ms late: {error}");
        }
        Ok(Self {
            options: options.clone(),
            policy: Policy::new(findings),
            local: Local { addresses: local, as_of: None, _watch: watch.ok() },
            datapath: Datapath::default(),
            nonstop,
            open: BTreeMap::new(),
            opening: Opening::default(),
            egress: Egress::default(),
            vlans: Vlans::default(),
            history: History::default(),
        })
    }

    /// A heartbeat for each worker, where the kernel can read it: before any interface is opened.
    pub(super) fn pulses(&mut self, workers: usize) -> Vec<Option<Pulse>> {
        match self.local.addresses.pulses(workers) {
            Ok(pulses) => pulses.into_iter().map(Some).collect(),
            Err(error) => {
                let words = "a process that is stopped keeps its frames from the kernel";
                warn!(target: "interface", "{words}: {error}");
                (0..workers).map(|_| None).collect()
            }
        }
    }

    /// Starts the XDP datapath, if the path allows it and a driver can run it: from the next commit on the
    /// tables lie where its programs can read them. These hash flows from `flow_seed`.
    pub(super) fn share(
        &mut self,
        control: &mut Control,
        flow_seed: u64,
    ) -> Result<(), UpdateError> {
        if !self.options.path.in_driver() || !self.any_driver_forwards(control) {
            // Without it `interface show` says so.
            self.datapath.guard = Forwarder::only_guards().ok();
            return Ok(());
        }
        let (cap, heartbeat) = (self.options.config.xdp.memory.0, self.nonstop.heartbeat());
        match Forwarder::nonstop(flow_seed, cap, heartbeat) {
            Ok(forwarder) => {
                control.share(forwarder.shared(), Box::new(forwarder.clone()))?;
                self.datapath.guard = Some(forwarder.clone());
                self.datapath.forwarder = Some(forwarder);
            }
            Err(error) => warn!(target: "interface", "no forwarding in XDP: {error}"),
        }
        Ok(())
    }

    /// The kernel's time as programs read it, in nanoseconds, at an instant of this process.
    pub(super) fn kernel_time(&self) -> Result<(u64, Instant), xdp::XdpError> {
        self.local.addresses.kernel_time()
    }

    /// This router is a node of a cluster, with these ports, and these queues of the fabric interface.
    pub(super) fn join(&mut self, ports: Arc<ClusterPorts>, queues: Vec<Box<dyn Port>>) {
        self.datapath.cluster = Some(ports);
        self.egress.stand_ins.set_fabric(queues);
    }

    /// The first interfaces, all at once: those that still forward for the last daemon have their
    /// egress before any of them gets its new program.
    pub(super) fn begin(&mut self, control: &Control, workers: &[WorkerHandle]) {
        self.sync_vlans(control);
        if let Some(forwarder) = &self.datapath.forwarder {
            let mut reader = FeatureReader::new().ok();
            for link in self.nonstop.found() {
                let known = control.links().find(|(l, _, state)| *l == link && state.up);
                let Some((_, port, state)) = known else { continue };
                if self.plan(link, state).is_ok() && forwarder.add_device(port, link).is_ok() {
                    let hardware = state.kind.is_empty();
                    forwarder.open_egress(port, takes(&mut reader, link, hardware));
                }
            }
        }
        self.sync(control, workers);
        self.nonstop.settled();
    }

    /// Whether it is worth a look: some interface may have a program that forwards, and reports that its
    /// driver lets it.
    fn any_driver_forwards(&self, control: &Control) -> bool {
        let Ok(mut reader) = FeatureReader::new() else { return true };
        control.links().any(|(link, _, state)| {
            !state.loopback
                && matches!(self.plan(link, state), Ok(Mode::Auto | Mode::Xdp))
                && reader.of(link).is_ok_and(|features| features.forward)
        })
    }

    /// The programs that apply features to packets to the router itself.
    pub(super) fn guard(&self) -> Option<&Forwarder> {
        self.datapath.guard.as_ref()
    }

    /// The XDP datapath, if any interface uses it.
    pub(super) fn forwarder(&self) -> Option<&Forwarder> {
        self.datapath.forwarder.as_ref()
    }

    /// The XDP datapath, for auditors.
    pub(super) fn asked(&self) -> Option<&dyn KernelLookup> {
        self.forwarder().map(|forwarder| forwarder as &dyn KernelLookup)
    }

    /// Follows what drivers take from programs, now and then: that of a veth depends on its other end.
    pub(super) fn recheck_egress(&mut self, now: Instant) {
        if self.datapath.egress_checked.is_none_or(|at| now.duration_since(at) >= EGRESS_CHECK) {
            self.datapath.egress_checked = Some(now);
            self.check_egress();
        }
    }

    fn check_egress(&mut self) {
        let Some(forwarder) = &self.datapath.forwarder else { return };
        let (mut reader, mut changed) = (FeatureReader::new().ok(), false);
        let made = self.open.iter().filter(|(link, _)| !self.opening.has(**link));
        for (&link, open) in made {
            // Only what was taken in is a device that programs know, and a bond of such.
            let known =
                Self::is_known(forwarder, open.port) || self.knows_bond(forwarder, link, open);
            let (before, now) = (
                forwarder.is_open(open.port),
                known && takes(&mut reader, link, open.state.kind.is_empty()),
            );
            forwarder.open_egress(open.port, now);
            changed |= now != before;
            let remedy = self.remedy(open);
            if now && !before {
                info!(target: "interface", interface = open.state.name, "{}: packets leave by it in XDP", open.state.name);
            } else if let (true, Some(remedy)) = (before && !now, remedy) {
                warn!(target: "interface", interface = open.state.name, "{}: nothing leaves by it in XDP: {remedy}", open.state.name);
            }
        }
        self.history.changed |= changed;
    }

    /// Whether programs may send by an interface: by one that forwards, or an internal one of a cluster.
    fn is_known(forwarder: &Forwarder, port: u16) -> bool {
        forwarder.reads(port).is_some() || forwarder.fabric_reads(port).is_some()
    }

    /// Whether programs may send by a bond: while some member of it forwards. The kernel chooses the member that sends.
    fn knows_bond(&self, forwarder: &Forwarder, link: u32, bond: &Open) -> bool {
        let forwards = |open: &Open| {
            open.state.is_in_bond()
                && open.state.master == Some(link)
                && Self::is_known(forwarder, open.port)
        };
        bond.state.kind == BOND
            && self.open.values().any(forwards)
            && forwarder.add_device(bond.port, link).is_ok()
    }

    pub(super) fn plan(&self, link: u32, state: &LinkState) -> Result<Mode, String> {
        plan(&self.options, state, || self.obstacle(link, state))
    }

    /// What would be done with each link, in words.
    pub(crate) fn preview(
        control: &Control,
        options: &RunOptions,
        findings: &Findings,
    ) -> Vec<Plan> {
        control
            .links()
            .filter(|(_, _, state)| !state.loopback)
            .map(|(link, _, state)| {
                let ignore = &options.config.takeover.ignore;
                let obstacle = || takeover::judge(link, state, findings, ignore).err();
                (state.name.clone(), plan(options, state, obstacle))
            })
            .collect()
    }

    /// How many workers the interfaces can feed: as many as one of them has queues. Of one with fewer, some management
    /// network beside fast ones, they share the queues.
    pub(crate) fn queues(&self, control: &Control) -> usize {
        let queues = self.usable(control).filter_map(|state| interface::queues(&state.name).ok());
        queues.max().map_or(1, |most| most.max(1) as usize)
    }

    /// The frame size that all usable interfaces need, in bytes, and how many frames each of so many workers may have in
    /// their rings.
    pub(crate) fn frames(&self, control: &Control, workers: usize) -> (u16, u32) {
        let needed = |state: &LinkState| {
            let queues = interface::queues(&state.name).map_or(1, |queues| queues.max(1) as usize);
            let own = queues.div_ceil(workers);
            let held = frames_held(workers.div_ceil(queues));
            own * afxdp::frames_needed(ring_of(own)) as usize + held
        };
        let sizes = self.usable(control).filter_map(|state| afxdp::frame_bytes_for(state.mtu));
        let frames: usize = self.usable(control).map(needed).sum();
        (sizes.max().unwrap_or(2048), u32::try_from(frames).unwrap_or(u32::MAX))
    }

    /// The interfaces that are not the kernel's.
    fn usable<'a>(&'a self, control: &'a Control) -> impl Iterator<Item = &'a LinkState> {
        let usable =
            move |link: u32, state: &LinkState| !state.loopback && self.plan(link, state).is_ok();
        let links = control.links().filter(move |(link, _, state)| usable(*link, state));
        links.map(|(_, _, state)| state)
    }

    /// Gives every link that is up an egress: before routes that leave by it are visible.
    pub(super) fn provide(&mut self, control: &Control, workers: &[WorkerHandle]) {
        let without: Vec<(u32, u16, String)> = control
            .links()
            .filter(|(link, port, state)| {
                let is_open = |open: &Open| open.port == *port && !self.opening.has(*link);
                let open = self.open.get(link).is_some_and(is_open);
                !state.loopback && state.up && !open && !self.egress.stand_ins.has(*port)
            })
            .map(|(link, port, state)| (link, port, state.name.clone()))
            .collect();
        for (link, port, name) in &without {
            if let Some(cluster) = &self.datapath.cluster
                && cluster.is_fabric(name)
            {
                cluster.set_fabric(*port);
                self.egress.stand_ins.put_fabric(*port, workers);
                continue;
            }
            let put = self.egress.stand_ins.put(*port, (name, *link), workers);
            if let Err(error) = put {
                warn!(target: "interface", interface = name, "{error}");
            }
        }
        self.follow_mode();
    }

    /// Has programs of external interfaces send packets into the cluster while its mode is `direct`.
    fn follow_mode(&mut self) {
        let (Some(cluster), Some(forwarder)) = (&self.datapath.cluster, &self.datapath.forwarder)
        else {
            return;
        };
        let wanted = cluster.fabric_port().filter(|_| cluster.is_direct());
        if std::mem::replace(&mut self.datapath.entrance, wanted) == wanted {
            return;
        }
        match wanted {
            Some(port) => forwarder.enter(port, cluster.programs()),
            None => forwarder.close_entrance(),
        }
    }

    /// Takes AF_XDP sockets out of use that receive nothing more. Until workers gave them back the queues are taken.
    fn retire(&mut self, link: u32, port: u16, name: &str, workers: &[WorkerHandle]) {
        self.egress.closing.insert(port, (workers.len(), Instant::now()));
        let replaced = self.egress.stand_ins.replace(port, (name, link), workers);
        if let Err(error) = replaced {
            warn!(target: "interface", interface = name, "{error}");
        }
    }

    /// Opens new interfaces, closes deleted ones, follows changes, and updates the local addresses of the classifiers.
    ///
    /// All interfaces that were made meanwhile can send before the first one receives, and those that are still being made
    /// have packet sockets: no packet that arrives on one finds its egress closed.
    pub(super) fn sync(&mut self, control: &Control, workers: &[WorkerHandle]) {
        let mut numbers = std::mem::take(&mut self.history.numbers);
        numbers.follow(control.links().map(|(link, port, _)| (link, port)), |port| {
            for worker in workers {
                let counters = worker.counters.ports.get(usize::from(port));
                counters.into_iter().for_each(PortCounters::forget_device);
            }
            self.counted_in_all(port, workers, &self.received_xdp())
        });
        self.history.numbers = numbers;
        self.sync_local(control);
        self.follow_policy(control);
        self.sync_vlans(control);
        self.close_gone(control, workers);
        self.follow_changed(control, workers);
        self.provide(control, workers);
        let new: Vec<(u32, u16, LinkState)> = control
            .links()
            .filter(|(link, port, state)| {
                let closed = !self.open.contains_key(link) && !self.is_closing(*port);
                !state.loopback && state.up && closed && !self.opening.has(*link)
            })
            .map(|(link, port, state)| (link, port, state.clone()))
            .collect();
        for new in &new {
            self.begin_to_open(new, workers);
        }
        let made = self.opening.take_made();
        if made.is_empty() {
            return;
        }
        self.datapath.egress_checked = None;
        let links: Vec<u32> = made.iter().map(|(link, _)| *link).collect();
        for link in &links {
            // What becomes of it is noted next.
            self.open.remove(link);
        }
        let ready: Vec<_> =
            made.into_iter().filter_map(|made| self.admit(made, control, workers)).collect();
        if !ready.is_empty() {
            confirm(workers);
        }
        for ready in ready {
            self.receive(ready, workers);
        }
        for link in links {
            let Some(open) = self.open.get(&link) else { continue };
            let ours = matches!(open.drive, Drive::Afxdp { .. });
            let name = open.state.name.clone();
            self.report_not_applied(link);
            if ours {
                self.report_kernel_filter(&name);
            }
        }
    }

    fn close_gone(&mut self, control: &Control, workers: &[WorkerHandle]) {
        let there: BTreeSet<(u32, u16)> =
            control.links().map(|(link, port, _)| (link, port)).collect();
        let open = self.open.iter().map(|(&link, open)| (link, open.port));
        let gone: Vec<u32> = open.filter(|at| !there.contains(at)).map(|(link, _)| link).collect();
        for link in gone {
            self.close(link, workers);
        }
        let left: Vec<u16> = self
            .egress
            .stand_ins
            .ports()
            .filter(|port| !there.iter().any(|(_, p)| p == port))
            .collect();
        for port in left {
            self.remove(port, workers);
        }
    }

    /// Interfaces that changed: what a socket or a program was made for is brought up to date in place; where that
    /// cannot be, or the interface is to be driven otherwise, it is given back to the kernel.
    fn follow_changed(&mut self, control: &Control, workers: &[WorkerHandle]) {
        let surveyed = self.policy.take_surveyed();
        let changed: Vec<(u32, LinkState)> = control
            .links()
            .filter(|(link, _, state)| {
                self.open.get(link).is_some_and(|open| surveyed || open.state != **state)
            })
            .map(|(link, _, state)| (link, state.clone()))
            .collect();
        let mut released = Vec::new();
        for (link, state) in changed {
            let planned = self.plan(link, &state);
            let is_opening = self.opening.has(link);
            let Some(open) = self.open.get_mut(&link) else { continue };
            let before = std::mem::replace(&mut open.state, state.clone());
            let reason = match (&open.drive, planned) {
                (Drive::Afxdp { classifier, .. }, Ok(_)) => {
                    match follow(&before, &state, classifier, workers) {
                        Ok(()) => continue,
                        Err(error) => error.to_string(),
                    }
                }
                (Drive::Afxdp { .. }, Err(reason)) => reason,
                // Whether it is still wanted is seen when it is made.
                (Drive::Kernel, _) if is_opening => continue,
                // Opened again, as any that is new; until then its packet socket stands in.
                (Drive::Kernel, Ok(_)) => {
                    self.open.remove(&link);
                    continue;
                }
                (Drive::Kernel, Err(reason)) => {
                    open.mode = reason;
                    continue;
                }
            };
            released.push((link, reason));
        }
        self.release(&released, workers);
    }

    /// Gives interfaces back to the kernel, which has their frames before their sockets are closed; what these have
    /// received is forwarded.
    fn release(&mut self, released: &[(u32, String)], workers: &[WorkerHandle]) {
        let mut links = Vec::new();
        for (link, reason) in released {
            let Some(open) = self.open.get_mut(link) else { continue };
            let seen = open.counts();
            let Drive::Afxdp { classifier, queues, _link } =
                std::mem::replace(&mut open.drive, Drive::Kernel)
            else {
                continue;
            };
            reason.clone_into(&mut open.mode);
            if let Some(cluster) = &self.datapath.cluster {
                cluster.close(open.port);
            }
            let (port, name) = (open.port, open.state.name.clone());
            if let Some(forwarder) = &self.datapath.guard {
                forwarder.remove_port(port);
            }
            // Where it fails the frames of its queues are lost with its sockets.
            if let Err(error) = leave_all(&classifier, queues) {
                warn!(target: "interface", interface = name, "{name}: {error}");
            }
            self.history.closed += seen;
            self.history.changed = true;
            warn!(target: "takeover", interface = name, why = reason, "{name}: given back to the kernel: {reason}");
            links.push((*link, port, name, _link));
        }
        if links.is_empty() {
            return;
        }
        xdp::wait_for_programs();
        for (link, port, name, attached) in links {
            self.retire(link, port, &name, workers);
            self.nonstop.let_go(link);
            // The program goes with it.
            drop(attached);
        }
    }

    /// A worker's port failed, and left: its interface goes back to the kernel until something about it changes.
    pub(super) fn failed(&mut self, port: u16, error: &DeviceError, workers: &[WorkerHandle]) {
        let found = self.open.iter().find(|(_, open)| open.port == port);
        match found.map(|(&link, open)| (link, &open.drive)) {
            Some((link, Drive::Afxdp { .. })) => {
                self.release(&[(link, error.to_string())], workers);
            }
            // The next link message has its state.
            Some((link, Drive::Kernel)) if !self.opening.has(link) => {}
            Some(_) | None => self.egress.stand_ins.forget(port),
        }
    }

    /// The port of an interface whose frames come to us, and what sends them.
    pub(super) fn classifier(&self, link: u32) -> Option<(u16, &Classifier)> {
        match self.open.get(&link)? {
            Open { port, drive: Drive::Afxdp { classifier, .. }, .. } => Some((*port, classifier)),
            Open { drive: Drive::Kernel, .. } => None,
        }
    }

    /// Whether the workers receive the frames of an interface, or the XDP program of its parent forwards them.
    pub(super) fn takes(&self, link: u32, port: u16) -> bool {
        self.classifier(link).is_some() || matches!(self.vlans.get(port), Some(Ok(_)))
    }

    /// The configuration has these features from now on.
    pub(super) fn set_features(&mut self, features: FeatureSettings) {
        self.options.config.features = features;
        for open in self.open.values() {
            if let Drive::Afxdp { classifier, .. } = &open.drive
                && let Err(error) = classifier.hold(self.holds(&open.state.name))
            {
                warn!(target: "interface", interface = open.state.name, "{}: {error}", open.state.name);
            }
        }
        let links: Vec<u32> = self.open.keys().copied().collect();
        links.into_iter().for_each(|link| self.report_not_applied(link));
    }

    /// Follows which addresses are the host's own.
    pub(super) fn sync_local(&mut self, control: &Control) {
        let now = Some(control.address_changes());
        if self.local.as_of == now && !self.local.addresses.has_early() {
            return;
        }
        self.local.as_of = now;
        if let Err(error) = self.local.addresses.set(control.local_addresses()) {
            warn!(target: "interface", "local addresses: {error}");
        }
    }

    /// Whether the kernel must not forward what an interface receives, since it does not apply the interface's features.
    pub(super) fn holds(&self, name: &str) -> bool {
        self.options.config.features.guards(name)
    }

    /// Time for which the XDP programs keep forwarding when this process ends now; `None` when they do not.
    pub(super) fn nonstop(&self) -> Option<Duration> {
        self.datapath.forwarder.as_ref().and(self.nonstop.lasts())
    }

    /// Leaves the frames of all interfaces to the kernel: what lies in the rings afterwards is all that will. After a failure
    /// (`failed`) frames whose sources are looked at are dropped instead, and stay so after the end of this process.
    pub(super) fn quiesce(&mut self, failed: bool) {
        for (&link, open) in &self.open {
            let Drive::Afxdp { classifier, queues, _link: attached } = &open.drive else {
                continue;
            };
            let name = &open.state.name;
            let left = if failed && classifier.holds() {
                match self.nonstop.hold(link, attached) {
                    Ok(()) => error!(
                        target: "takeover", interface = name,
                        "{name}: drops what it would forward until a daemon takes it over, or `fingerpost release`: features of it must apply"
                    ),
                    Err(why) => error!(
                        target: "takeover", interface = name,
                        "{name}: goes back to the kernel, which forwards without its features: {why}"
                    ),
                }
                classifier.clear_sockets(*queues)
            } else {
                leave_all(classifier, *queues)
            };
            if let Err(error) = left {
                warn!(target: "interface", interface = name, "{name}: {error}");
            }
        }
        xdp::wait_for_programs();
    }

    /// Detaches all programs, so that the kernel has its frames back; with non-stop forwarding they stay.
    pub(crate) fn detach(&mut self) {
        self.opening = Opening::default();
        self.history.last = self.report();
        for open in self.open.values() {
            self.history.closed += open.counts();
        }
        let nonstop = self.nonstop().is_some();
        for open in std::mem::take(&mut self.open).into_values() {
            if let Some(forwarder) = &self.datapath.guard
                && !nonstop
            {
                forwarder.remove_port(open.port);
            }
        }
    }
}

/// Whether a driver takes what programs send.
fn takes(reader: &mut Option<FeatureReader>, link: u32, hardware: bool) -> bool {
    match reader {
        Some(reader) => reader.of(link).is_ok_and(|features| features.take),
        // The kernel does not report it. Hardware that runs programs sends what they redirect.
        None => hardware,
    }
}

/// Why a link stays with the kernel, or how it is to be driven.
fn plan(
    options: &RunOptions,
    state: &LinkState,
    obstacle: impl FnOnce() -> Option<String>,
) -> Result<Mode, String> {
    let mode = chosen(options, state)?;
    if state.mac.is_none() {
        return Err("it has no Ethernet addresses, so AF_XDP cannot drive it".into());
    }
    if state.kind == BOND {
        return Err("what it receives is forwarded by its members".into());
    }
    if !state.kind.is_empty() && !DRIVEN_KINDS.contains(&state.kind.as_str()) {
        return Err(format!("a {} has no frames of its own to take", state.kind));
    }
    if afxdp::frame_bytes_for(state.mtu).is_none() {
        return Err(format!("no frame holds its MTU of {} bytes", state.mtu));
    }
    match obstacle() {
        Some(reason) => Err(reason),
        None => Ok(mode),
    }
}

/// Mode of a link by options and configuration, or why it stays with the kernel.
pub(super) fn chosen(options: &RunOptions, state: &LinkState) -> Result<Mode, String> {
    let RunOptions { config, said, path, .. } = options;
    if !said.only.is_empty() && !said.only.contains(&state.name) {
        return Err("not named by --only".into());
    }
    if config.cluster.as_ref().is_some_and(|cluster| cluster.is_fabric(&state.name)) {
        return Err("it is the fabric interface of the cluster".into());
    }
    match config.mode(&state.name).ok_or("not named in the configuration")? {
        Mode::Kernel => Err("by the configuration".into()),
        // The XDP datapath has not all its features: such an interface is the graph's, whatever the path.
        Mode::Auto if config.features.graph_only().has(&state.name) => {
            Ok(if path.in_driver() { Mode::Auto } else { path.mode(Mode::Auto) })
        }
        mode => Ok(path.mode(mode)),
    }
}

/// Kinds of devices, besides hardware, that have receive queues of their own.
const DRIVEN_KINDS: &[&str] = &["veth", "tun"];

/// Leaves all frames of so many queues to the kernel.
fn leave_all(classifier: &Classifier, queues: u32) -> Result<(), xdp::XdpError> {
    classifier.hold(false)?;
    classifier.clear_sockets(queues)
}
