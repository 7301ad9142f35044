//! Which interface is driven how, followed as interfaces come, go and change.
//!
//! An interface that can carry forwarded packets gets a classifier and, for each worker, AF_XDP sockets
//! on its share of the queues, or a share of one queue. One that cannot, or may not, stays with the
//! kernel, and routes that leave by it go out through a packet socket.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use fingerpost_io::afxdp::{self, Waker};
use fingerpost_io::frames_held;
use fingerpost_io::xdp::forward::reasons::LeftAlone;
use fingerpost_io::xdp::forward::{Asked, Forwarder, Reads, Received, Used};
use fingerpost_io::xdp::presence::{Pulse, Watch};
use fingerpost_io::xdp::{self, Classifier, LocalAddresses};
use fingerpost_lpm::UpdateError;
use fingerpost_packet::device::DeviceError;
use fingerpost_packet::feature::{FeatureSettings, urpf};
use fingerpost_packet::graph::NodeCounters;
use fingerpost_packet::worker::Command;
use fingerpost_packet::{Pool, WorkerCounters};
use fingerpost_route::fib::KernelLookup;
use fingerpost_route::{Control, LinkState};

use opening::{Ready, follow, ring_of};

use super::RunOptions;
use super::egress::{StandIns, confirm};
use super::nonstop::Survival;
use super::obstacles::Marks;
use super::own_addrs;
use super::takeover::{self, Findings};
use super::vlans::Vlans;
use super::xdp_features::Asker;
use crate::config::{Mode, in_kernel};

mod opening;

/// A worker thread as the control side knows it.
pub(super) struct WorkerHandle {
    pub(super) commands: Sender<Command>,
    pub(super) waker: Waker,
    pub(super) pool: Pool,
    pub(super) counters: Arc<WorkerCounters>,
    /// Of the elements of its graph.
    pub(super) nodes: Arc<[NodeCounters]>,
    pub(super) thread: Option<std::thread::JoinHandle<()>>,
    /// Whether its thread ended by a panic, or without a command to stop.
    pub(super) failed: bool,
}

impl WorkerHandle {
    pub(super) fn tell(&self, command: Command) {
        // A worker that is gone was told to stop, or failed and said so.
        let _ = self.commands.send(command);
        self.waker.wake();
    }

    /// Whether its thread has ended, and nobody has noticed yet.
    pub(super) fn has_ended(&self) -> bool {
        self.thread.as_ref().is_some_and(std::thread::JoinHandle::is_finished)
    }

    /// Waits for the end of its thread. Returns the words of a panic, and counts what was inside the worker then.
    pub(super) fn join(&mut self) -> Option<String> {
        let panic = self.thread.take()?.join().err()?;
        self.failed = true;
        self.counters.fail();
        let words = panic.downcast_ref::<&str>().map(|words| (*words).to_owned());
        let words = words.or_else(|| panic.downcast_ref::<String>().cloned());
        Some(words.unwrap_or_else(|| "it panicked".to_owned()))
    }
}

/// For workers to give a port back: one that is gone never will.
const LONGEST_CLOSING: Duration = Duration::from_secs(2);

/// How often drivers are asked what they take.
const OUTLETS_EVERY: Duration = Duration::from_millis(250);

/// How an interface is driven at the moment.
struct Open {
    port: u16,
    /// As it was when that was decided.
    state: LinkState,
    drive: Drive,
    /// In words, for people.
    mode: String,
}

enum Drive {
    /// Frames of so many queues come to us. Dropping the last holder of the link detaches the program.
    Afxdp { classifier: Arc<Classifier>, queues: u32, _link: Arc<xdp::Link> },
    /// The kernel has it; we only send.
    Kernel,
}

/// What is known of an interface, for reports.
#[derive(Clone, Debug, serde::Serialize)]
pub(crate) struct InterfaceReport {
    pub(crate) name: String,
    pub(crate) port: u16,
    /// `xdp`, `afxdp` or `kernel`.
    pub(crate) path: &'static str,
    pub(crate) mode: String,
    /// What the kernel does to forwarded packets of it: for that it stays with the kernel, as a whole or with the packets
    /// of a family, or is taken over in spite of it.
    pub(crate) policy: Option<String>,
    /// What would let packets leave by it in XDP, where that alone is in the way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) remedy: Option<String>,
    /// Frames left to the kernel by the classifier.
    pub(crate) punted: u64,
    /// Frames handed to the workers' sockets.
    pub(crate) redirected: u64,
    /// Frames dropped in XDP, since no worker would have looked at their sources.
    pub(crate) held_back: u64,
}

/// Name of an interface, and how it would be driven or why it stays with the kernel.
pub(crate) type Plan = (String, Result<Mode, String>);

/// All interfaces.
pub(crate) struct Interfaces {
    pub(super) options: RunOptions,
    pub(super) findings: Findings,
    /// Something changed that decides how interfaces are driven, besides their state.
    pub(super) surveyed: bool,
    pub(super) marks: Marks,
    local: Arc<LocalAddresses>,
    /// How often the host's addresses had changed when the classifiers were told of them.
    local_as_of: Option<u64>,
    /// Has the kernel forward at once where this process is killed.
    _watch: Option<Watch>,
    /// Forwards in the drivers, if that is wanted and can be.
    pub(super) forwarder: Option<Forwarder>,
    /// What goes on without this process.
    survival: Survival,
    /// When a link that was found was let go, the last time.
    freed: Option<Instant>,
    looked_at_outlets: Option<Instant>,
    open: BTreeMap<u32, Open>,
    stand_ins: StandIns,
    /// Ports that workers were told to give back: how many have yet to do so, and when they were told.
    closing: BTreeMap<u16, (usize, Instant)>,
    pub(super) vlans: Vlans,
    /// Counts of interfaces that were closed.
    closed: Seen,
    /// How the interfaces were driven, once all are given back.
    last: Vec<InterfaceReport>,
    pub(super) notices: Vec<String>,
    /// Why an interface could not be had for want of a privilege, the latest.
    pub(super) refused: Option<String>,
}

impl Interfaces {
    pub(super) fn new(
        options: &RunOptions,
        findings: Findings,
        survival: Survival,
    ) -> Result<Self, xdp::XdpError> {
        let local = Arc::new(LocalAddresses::new()?);
        let watched = own_addrs::watch(&local);
        let watched = watched.err().map(|error| format!("the host's addresses: {error}"));
        let watch = local.watch();
        let late = |error| format!("after a crash the kernel forwards some 100 ms late: {error}");
        let late = watch.as_ref().err().map(late);
        let notices = watched.into_iter().chain(late).collect();
        Ok(Self {
            options: options.clone(),
            findings,
            surveyed: false,
            marks: Marks::default(),
            local,
            local_as_of: None,
            _watch: watch.ok(),
            forwarder: None,
            survival,
            freed: None,
            looked_at_outlets: None,
            open: BTreeMap::new(),
            stand_ins: StandIns::default(),
            closing: BTreeMap::new(),
            vlans: Vlans::default(),
            closed: Seen::default(),
            last: Vec::new(),
            notices,
            refused: None,
        })
    }

    /// A heartbeat for each worker, where the kernel can read it: before any interface is opened.
    pub(super) fn pulses(&mut self, workers: usize) -> Vec<Option<Pulse>> {
        match self.local.pulses(workers) {
            Ok(pulses) => pulses.into_iter().map(Some).collect(),
            Err(error) => {
                let words = "a process that is stopped keeps its frames from the kernel";
                self.notices.push(format!("{words}: {error}"));
                (0..workers).map(|_| None).collect()
            }
        }
    }

    /// Forwards in the drivers too, if the path allows it and a driver can: from the next commit on the
    /// tables lie where its programs can read them. These hash flows from `flow_seed`.
    pub(super) fn share(
        &mut self,
        control: &mut Control,
        flow_seed: u64,
    ) -> Result<(), UpdateError> {
        if !self.options.path.in_driver() || !self.any_driver_forwards(control) {
            return Ok(());
        }
        let (cap, heartbeat) = (self.options.config.xdp.memory.0, self.survival.heartbeat());
        match Forwarder::surviving(flow_seed, cap, heartbeat) {
            Ok(forwarder) => {
                control.share(forwarder.shared(), Box::new(forwarder.clone()))?;
                self.forwarder = Some(forwarder);
            }
            Err(error) => self.notices.push(format!("no forwarding in drivers: {error}")),
        }
        Ok(())
    }

    /// The first interfaces, all at once: those that still forward what the last daemon told them have their
    /// ways out before any of them gets its new program.
    pub(super) fn begin(&mut self, control: &Control, workers: &[WorkerHandle]) {
        self.sync_vlans(control);
        if let Some(forwarder) = &self.forwarder {
            let mut asker = Asker::new().ok();
            for link in self.survival.found() {
                let known = control.links().find(|(l, _, state)| *l == link && state.up);
                let Some((_, port, state)) = known else { continue };
                if self.plan(link, state).is_ok() && forwarder.add_device(port, link).is_ok() {
                    let hardware = state.kind.is_empty();
                    forwarder.open_outlet(port, takes(&mut asker, link, hardware));
                }
            }
        }
        self.sync(control, workers);
        self.survival.settled(&mut self.notices);
    }

    /// Whether it is worth a look: some interface may have a program that forwards, and says that its
    /// driver lets it.
    fn any_driver_forwards(&self, control: &Control) -> bool {
        let Ok(mut asker) = Asker::new() else { return true };
        control.links().any(|(link, _, state)| {
            !state.loopback
                && matches!(self.plan(link, state), Ok(Mode::Auto | Mode::Xdp))
                && asker.of(link).is_ok_and(|features| features.forward)
        })
    }

    /// What the programs in the drivers left to the graph or the kernel, or dropped, by reason.
    pub(super) fn left_in_drivers(&self) -> Vec<(LeftAlone, u64)> {
        let counted = self.forwarder.as_ref().and_then(|forwarder| forwarder.left_alone().ok());
        counted.unwrap_or_default()
    }

    /// What the programs in the drivers saw, by the port that it came in by.
    pub(super) fn received_in_drivers(&self) -> BTreeMap<u16, Received> {
        self.forwarder.as_ref().map(Forwarder::received).unwrap_or_default()
    }

    /// Forwarding in the drivers, if any does.
    pub(super) fn forwarder(&self) -> Option<&Forwarder> {
        self.forwarder.as_ref()
    }

    /// The same, for auditors to ask.
    pub(super) fn asked(&self) -> Option<&dyn KernelLookup> {
        self.forwarder().map(|forwarder| forwarder as &dyn KernelLookup)
    }

    /// The lookup of IPv4 addresses by the drivers' programs, if any driver forwards.
    pub(super) fn asked_v4(&self, fib: u16) -> Option<Asked> {
        self.forwarder.as_ref()?.asked_v4(fib).ok()?
    }

    /// The same of IPv6 addresses.
    pub(super) fn asked_v6(&self, fib: u16) -> Option<Asked> {
        self.forwarder.as_ref()?.asked_v6(fib).ok()?
    }

    /// What the drivers sent by a port.
    pub(super) fn sent_in_drivers(&self, port: u16) -> Used {
        self.forwarder.as_ref().map_or_else(Used::default, |forwarder| forwarder.sent(port))
    }

    /// What the drivers forwarded, by adjacency.
    pub(super) fn forwarded(&self) -> Vec<Used> {
        self.forwarder.as_ref().and_then(|forwarder| forwarder.used().ok()).unwrap_or_default()
    }

    /// Follows what drivers take from programs, now and then: that of a veth depends on its other end.
    pub(super) fn look_at_outlets(&mut self, now: Instant) {
        if self.looked_at_outlets.is_none_or(|at| now.duration_since(at) >= OUTLETS_EVERY) {
            self.looked_at_outlets = Some(now);
            self.check_outlets();
        }
    }

    fn check_outlets(&mut self) {
        let Some(forwarder) = &self.forwarder else { return };
        let mut asker = Asker::new().ok();
        let mut turned = Vec::new();
        for (&link, open) in &self.open {
            // Only what was taken in is a device that programs know.
            let known = forwarder.reads(open.port).is_some();
            let (before, now) = (
                forwarder.is_open(open.port),
                known && takes(&mut asker, link, open.state.kind.is_empty()),
            );
            forwarder.open_outlet(open.port, now);
            let remedy = self.remedy(open);
            if now && !before {
                turned.push(format!("{}: packets leave by it in XDP", open.state.name));
            } else if let (true, Some(remedy)) = (before && !now, remedy) {
                turned.push(format!("{}: nothing leaves by it in XDP: {remedy}", open.state.name));
            }
        }
        self.notices.extend(turned);
    }

    /// What would let packets leave by an interface in XDP, where its driver takes none; `None` where it takes
    /// them, or nothing leaves in XDP at all.
    fn remedy(&self, open: &Open) -> Option<String> {
        let forwarder = self.forwarder.as_ref()?;
        let driven = matches!(open.drive, Drive::Afxdp { .. });
        if !driven || forwarder.is_open(open.port) || forwarder.reads(open.port)?.is_err() {
            return None;
        }
        Some(match &*open.state.kind {
            "veth" => {
                "its peer has neither GRO nor an XDP program: `ethtool -K PEER gro on`, where \
                       PEER is the other end"
                    .to_owned()
            }
            _ => "its driver takes no packets from XDP programs".to_owned(),
        })
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
        let queues = self.usable(control).filter_map(|state| afxdp::queues(&state.name).ok());
        queues.max().map_or(1, |most| most.max(1) as usize)
    }

    /// The frame size that all usable interfaces need, in bytes, and how many frames each of so many workers may have in
    /// their rings.
    pub(crate) fn frames(&self, control: &Control, workers: usize) -> (u16, u32) {
        let needed = |state: &LinkState| {
            let queues = afxdp::queues(&state.name).map_or(1, |queues| queues.max(1) as usize);
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
                let open = self.open.get(link).is_some_and(|open| open.port == *port);
                !state.loopback && state.up && !open && !self.stand_ins.has(*port)
            })
            .map(|(link, port, state)| (link, port, state.name.clone()))
            .collect();
        for (link, port, name) in &without {
            let put = self.stand_ins.put(*port, (name, *link), workers);
            self.notices.extend(put.err().map(|error| error.to_string()));
        }
    }

    /// Takes AF_XDP sockets out of use that receive nothing more. Until workers gave them back the queues are taken.
    fn retire(&mut self, link: u32, port: u16, name: &str, workers: &[WorkerHandle]) {
        self.closing.insert(port, (workers.len(), Instant::now()));
        let replaced = self.stand_ins.replace(port, (name, link), workers);
        self.notices.extend(replaced.err().map(|error| error.to_string()));
    }

    /// Opens what is new, closes what is gone, follows what changed, and tells the classifiers what is local.
    ///
    /// Of all that is new every interface can send before the first one receives: nothing that comes in by one finds
    /// its egress closed.
    pub(super) fn sync(&mut self, control: &Control, workers: &[WorkerHandle]) {
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
                !state.loopback && state.up && closed
            })
            .map(|(link, port, state)| (link, port, state.clone()))
            .collect();
        if new.is_empty() {
            return;
        }
        self.looked_at_outlets = None;
        let ready: Vec<Ready> = new.iter().filter_map(|new| self.prepare(new, workers)).collect();
        if !ready.is_empty() {
            confirm(workers);
        }
        for ready in ready {
            self.receive(ready, workers);
        }
        for (link, _, state) in new {
            let ours =
                matches!(self.open.get(&link), Some(Open { drive: Drive::Afxdp { .. }, .. }));
            self.report_features(&state.name, ours);
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
        let left: Vec<u16> =
            self.stand_ins.ports().filter(|port| !there.iter().any(|(_, p)| p == port)).collect();
        for port in left {
            self.remove(port, workers);
        }
    }

    /// Interfaces that changed: what a socket or a program was made for is brought up to date in place; where that
    /// cannot be, or the interface is to be driven otherwise, it is given back to the kernel.
    fn follow_changed(&mut self, control: &Control, workers: &[WorkerHandle]) {
        let surveyed = std::mem::take(&mut self.surveyed);
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
            let (port, name) = (open.port, open.state.name.clone());
            if let Some(forwarder) = &self.forwarder {
                forwarder.remove_port(port);
            }
            // Where it fails the frames of its queues are lost with its sockets.
            if let Err(error) = leave_all(&classifier, queues) {
                self.notices.push(format!("{name}: {error}"));
            }
            self.closed += seen;
            self.notices.push(format!("{name}: given back to the kernel: {reason}"));
            links.push((*link, port, name, _link));
        }
        if links.is_empty() {
            return;
        }
        xdp::wait_for_programs();
        for (link, port, name, attached) in links {
            self.retire(link, port, &name, workers);
            self.survival.let_go(link, &mut self.notices);
            // The program goes with it.
            drop(attached);
        }
    }

    /// A worker's port failed, and left: its interface goes back to the kernel until something about it changes.
    pub(super) fn failed(&mut self, port: u16, error: &DeviceError, workers: &[WorkerHandle]) {
        let found = self.open.iter().find(|(_, open)| open.port == port);
        match found.map(|(&link, open)| (link, matches!(open.drive, Drive::Afxdp { .. }))) {
            Some((link, true)) => self.release(&[(link, error.to_string())], workers),
            // The next link message says what became of it.
            Some((_, false)) => {}
            None => self.stand_ins.forget(port),
        }
    }

    /// The port of an interface whose frames come to us, and what sends them.
    pub(super) fn classifier(&self, link: u32) -> Option<(u16, &Classifier)> {
        match self.open.get(&link)? {
            Open { port, drive: Drive::Afxdp { classifier, .. }, .. } => Some((*port, classifier)),
            Open { drive: Drive::Kernel, .. } => None,
        }
    }

    /// Whether frames of an interface come to us, or are forwarded in the driver of the one that it is on.
    pub(super) fn takes(&self, link: u32, port: u16) -> bool {
        self.classifier(link).is_some() || matches!(self.vlans.get(port), Some(Ok(_)))
    }

    /// Logs features that do not hold for an interface since the kernel forwards there; and, where we forward and the
    /// configuration has no uRPF for it, the reverse-path filter of the kernel that holds no longer.
    fn report_features(&mut self, name: &str, ours: bool) {
        if !ours {
            return self.report_not_applied(name);
        }
        if self.options.config.features.of::<urpf::Settings>().has(name) {
            return;
        }
        if let Some(filter) = takeover::reverse_path_filter(name) {
            self.notices.push(format!(
                "{name}: the kernel's reverse-path filter ({filter}) does not hold for what is forwarded here: configure \
                 urpf = \"{filter}\", or \"off\", for it"
            ));
        }
    }

    /// Logs features that the configuration has for an interface by name, and that the kernel does not apply there.
    fn report_not_applied(&mut self, name: &str) {
        for (row, settings) in self.options.config.features.each() {
            if let Some((words, _)) = settings.unlike_usual(name) {
                let (feature, why) = (row.name, in_kernel(row, name));
                self.notices.push(format!("{feature} ({words}) of {name} does not hold: {why}"));
            }
        }
    }

    /// The configuration has these features from now on.
    pub(super) fn set_features(&mut self, features: FeatureSettings) {
        self.options.config.features = features;
        for open in self.open.values() {
            if let Drive::Afxdp { classifier, .. } = &open.drive
                && let Err(error) = classifier.hold(self.holds(&open.state.name))
            {
                self.notices.push(format!("{}: {error}", open.state.name));
            }
        }
        let kernel = |open: &&Open| matches!(open.drive, Drive::Kernel);
        let names: Vec<String> =
            self.open.values().filter(kernel).map(|open| open.state.name.clone()).collect();
        names.iter().for_each(|name| self.report_not_applied(name));
    }

    /// Follows which addresses are the host's own.
    pub(super) fn sync_local(&mut self, control: &Control) {
        let now = Some(control.address_changes());
        if self.local_as_of == now && !self.local.has_early() {
            return;
        }
        self.local_as_of = now;
        if let Err(error) = self.local.set(control.local_addresses()) {
            self.notices.push(format!("local addresses: {error}"));
        }
    }

    fn close(&mut self, link: u32, workers: &[WorkerHandle]) {
        let Some(open) = self.open.remove(&link) else { return };
        if let Some(forwarder) = &self.forwarder {
            forwarder.remove_port(open.port);
        }
        self.survival.let_go(link, &mut self.notices);
        self.closed += open.counts();
        self.notices.push(format!("{}: closed", open.state.name));
        self.remove(open.port, workers);
    }

    /// Workers give a port back; until they did its queues are taken.
    fn remove(&mut self, port: u16, workers: &[WorkerHandle]) {
        self.stand_ins.forget(port);
        for worker in workers {
            worker.tell(Command::RemovePort(port));
        }
        self.closing.insert(port, (workers.len(), Instant::now()));
    }

    /// A worker has given a port back.
    pub(super) fn closed(&mut self, port: u16) {
        if let Some((left, _)) = self.closing.get_mut(&port) {
            *left = left.saturating_sub(1);
            if *left == 0 {
                self.closing.remove(&port);
            }
        }
    }

    fn is_closing(&self, port: u16) -> bool {
        let told = self.closing.get(&port);
        told.is_some_and(|(_, told)| told.elapsed() < LONGEST_CLOSING)
    }

    /// What is forwarded in the driver of a port, or why nothing is; `None` where that was not tried.
    fn forwards(&self, port: u16) -> Option<Result<&'static str, String>> {
        Some(match self.forwarder.as_ref()?.reads(port)? {
            Ok(Reads { v4: true, v6: true }) => Ok("IPv4 and IPv6"),
            Ok(Reads { v4: true, v6: false }) => Ok("IPv4"),
            Ok(Reads { v4: false, v6: true }) => Ok("IPv6"),
            Ok(_) => Err("it reads the tables of neither family".into()),
            Err(why) => Err(why),
        })
    }

    /// By which path an interface's packets go, and in words how.
    fn ways(&self, open: &Open) -> (&'static str, String) {
        let forwards = self.forwards(open.port);
        if let (Drive::Kernel, Some(tagged)) = (&open.drive, self.vlans.get(open.port)) {
            return tagged
                .as_ref()
                .map_or_else(|why| ("kernel", why.clone()), |tagged| tagged.ways(forwards));
        }
        match (&open.drive, forwards) {
            (Drive::Kernel, _) => ("kernel", open.mode.clone()),
            (Drive::Afxdp { .. }, None) => ("afxdp", open.mode.clone()),
            (Drive::Afxdp { .. }, Some(Ok(what))) => {
                let is_open =
                    |open: &Open| self.forwarder.as_ref().is_some_and(|f| f.is_open(open.port));
                match self.remedy(open) {
                    None => {
                        let how =
                            format!("{what} forwarded in the driver, the rest by {}", open.mode);
                        ("xdp", how)
                    }
                    // What comes in by it may leave by others.
                    Some(remedy) if self.open.values().any(is_open) => {
                        let how = format!(
                            "{what} received in XDP, the rest by {}; nothing leaves by it in XDP: {remedy}",
                            open.mode
                        );
                        ("xdp", how)
                    }
                    Some(remedy) => {
                        ("afxdp", format!("{}; nothing leaves by it in XDP: {remedy}", open.mode))
                    }
                }
            }
            (Drive::Afxdp { .. }, Some(Err(why))) => {
                ("afxdp", format!("{}; the driver does not forward: {why}", open.mode))
            }
        }
    }

    /// What happened since the last call, a line each.
    pub(crate) fn take_notices(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notices)
    }

    /// How each interface is driven.
    pub(crate) fn report(&self) -> Vec<InterfaceReport> {
        if self.open.is_empty() {
            return self.last.clone();
        }
        self.open
            .iter()
            .map(|(&link, open)| {
                let Seen { punted, redirected, held_back } = open.counts();
                let (path, mut mode) = self.ways(open);
                let policy = self.mark(link).map(str::to_owned);
                if let (Drive::Afxdp { .. }, Some(policy)) = (&open.drive, &policy) {
                    mode += &format!("; {policy}");
                }
                InterfaceReport {
                    name: open.state.name.clone(),
                    port: open.port,
                    path,
                    mode,
                    policy,
                    remedy: self.remedy(open),
                    punted,
                    redirected,
                    held_back,
                }
            })
            .collect()
    }

    /// Frames that the classifiers left to the kernel, on interfaces past and present.
    pub(crate) fn punted(&self) -> u64 {
        self.closed.punted + self.open.values().map(|open| open.counts().punted).sum::<u64>()
    }

    /// Frames that the classifiers dropped for want of a worker, on interfaces past and present.
    pub(super) fn held_back(&self) -> u64 {
        self.closed.held_back + self.open.values().map(|open| open.counts().held_back).sum::<u64>()
    }

    /// Whether the kernel must not forward what an interface receives, since it does not apply the interface's features.
    pub(super) fn holds(&self, name: &str) -> bool {
        self.options.config.features.guards(name)
    }

    /// For how long drivers forward on when this process ends now; `None` when they do not.
    pub(super) fn survives(&self) -> Option<Duration> {
        self.forwarder.as_ref().and(self.survival.lasts())
    }

    /// Leaves the frames of all interfaces to the kernel: what lies in the rings afterwards is all that will. After a failure
    /// (`failed`) frames whose sources are looked at are dropped instead, and stay so after the end of this process.
    pub(super) fn quiesce(&mut self, failed: bool) {
        let mut notices = Vec::new();
        for (&link, open) in &self.open {
            let Drive::Afxdp { classifier, queues, _link: attached } = &open.drive else {
                continue;
            };
            let name = &open.state.name;
            let left = if failed && classifier.holds() {
                notices.push(match self.survival.hold(link, attached) {
                    Ok(()) => format!(
                        "{name}: drops what it would forward until a daemon takes it over, or `fingerpost release`: features of it must apply"
                    ),
                    Err(why) => format!(
                        "{name}: goes back to the kernel, which forwards without its features: {why}"
                    ),
                });
                classifier.clear_sockets(*queues)
            } else {
                leave_all(classifier, *queues)
            };
            notices.extend(left.err().map(|error| format!("{name}: {error}")));
        }
        self.notices.extend(notices);
        xdp::wait_for_programs();
    }

    /// Takes all programs off, so that the kernel has its frames back; those that are to survive stay.
    pub(crate) fn detach(&mut self) {
        self.last = self.report();
        for open in self.open.values() {
            self.closed += open.counts();
        }
        let survives = self.survives().is_some();
        for open in std::mem::take(&mut self.open).into_values() {
            if let Some(forwarder) = &self.forwarder
                && !survives
            {
                forwarder.remove_port(open.port);
            }
        }
    }
}

/// Whether a driver takes what programs send.
fn takes(asker: &mut Option<Asker>, link: u32, hardware: bool) -> bool {
    match asker {
        Some(asker) => asker.of(link).is_ok_and(|features| features.take),
        // The kernel cannot say. Hardware that runs programs takes what they send.
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

/// What options and configuration say of a link: how it is to be driven, or why it stays with the kernel.
pub(super) fn chosen(options: &RunOptions, state: &LinkState) -> Result<Mode, String> {
    let RunOptions { config, only, path, .. } = options;
    if !only.is_empty() && !only.contains(&state.name) {
        return Err("not named by --only".into());
    }
    match config.mode(&state.name).ok_or("not named in the configuration")? {
        Mode::Kernel => Err("the configuration says so".into()),
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

/// Frames that a classifier has seen.
#[derive(Clone, Copy, Default)]
struct Seen {
    /// Frames left to the kernel.
    punted: u64,
    /// Frames given to sockets.
    redirected: u64,
    /// Frames dropped for want of a worker.
    held_back: u64,
}

impl std::ops::AddAssign for Seen {
    fn add_assign(&mut self, more: Self) {
        self.punted += more.punted;
        self.redirected += more.redirected;
        self.held_back += more.held_back;
    }
}

impl Open {
    fn counts(&self) -> Seen {
        match &self.drive {
            Drive::Afxdp { classifier, .. } => classifier.counts().map_or_else(
                |_| Seen::default(),
                |c| Seen { punted: c.passed, redirected: c.redirected, held_back: c.held_back },
            ),
            Drive::Kernel => Seen::default(),
        }
    }
}
