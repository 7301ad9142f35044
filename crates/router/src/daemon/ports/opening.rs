//! Opening an interface: its program and AF_XDP sockets first, the frames that it receives last.
//!
//! Programs and sockets take tens of milliseconds, so another thread makes them ([`Order`]). The control thread takes in what
//! was made, where it is still wanted: the interface may have changed or gone meanwhile, and the tables, so that its
//! program is loaded again. Until then packets leave by its packet socket, and those that it receives are the kernel's.
//! Before the first turn, which nothing waits for, all of it happens in the control thread.

use std::collections::BTreeSet;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use fingerpost_io::afxdp::{self, AfxdpPort};
use fingerpost_io::interface;
use fingerpost_io::share_out;
use fingerpost_io::xdp::forward::{Forwarder, ReadyPort};
use fingerpost_io::xdp::{self, Classifier, Families, LocalAddresses};
use fingerpost_packet::Pool;
use fingerpost_packet::device::{DeviceError, Port, Ports};
use fingerpost_packet::graph::worker::Command;
use fingerpost_route::fib::Runner;
use fingerpost_route::{Control, LinkState};
use tracing::{info, warn};

use super::{Drive, Interfaces, Open, leave_all, takes};
use crate::config::Mode;
use crate::daemon::workers::WorkerHandle;
use crate::daemon::xdp_features::FeatureReader;

/// Entries of a receive ring that are worth a queue.
const SHORTEST_RING: u32 = 256;

/// The kernel takes its time to end a link that has no name and no owner any more.
const LONGEST_FREEING: Duration = Duration::from_secs(1);
/// Interval between two looks.
const FREEING: Duration = Duration::from_millis(20);

/// Times that the program of an interface is loaded beside the control thread, for tables that are others by then.
const MOST_TRIES: u32 = 8;

/// Interfaces that are being made: by another thread, once there is one.
pub(super) struct Opening {
    runner: Option<Runner>,
    /// Those that are not made yet.
    links: BTreeSet<u32>,
    made: Vec<Made>,
    to: Sender<Made>,
    from: Receiver<Made>,
}

/// An interface, and what was made for it.
type Made = (u32, Box<Result<Ready, Box<Failed>>>);

/// An interface that could not be made.
pub(super) struct Failed {
    port: u16,
    state: LinkState,
    adopted: bool,
    error: OpenError,
}

/// Result of a job that is yet to come. A job that panics, or that no thread takes, has failed.
struct Pending<F: FnOnce(OpenError) -> Failed> {
    link: u32,
    to: Sender<Made>,
    failed: Option<F>,
}

impl<F: FnOnce(OpenError) -> Failed> Pending<F> {
    fn send(mut self, made: Result<Ready, OpenError>) {
        let Some(failed) = self.failed.take() else { return };
        let made = made.map_err(|error| Box::new(failed(error)));
        // Nobody waits for it once the run ends: then its frames are the kernel's again.
        let _ = self.to.send((self.link, Box::new(made)));
    }
}

impl<F: FnOnce(OpenError) -> Failed> Drop for Pending<F> {
    fn drop(&mut self) {
        if let Some(failed) = self.failed.take() {
            let failed = Box::new(failed(OpenError::Unfinished));
            let _ = self.to.send((self.link, Box::new(Err(failed))));
        }
    }
}

impl Default for Opening {
    fn default() -> Self {
        let (to, from) = channel();
        Self { runner: None, links: BTreeSet::new(), made: Vec::new(), to, from }
    }
}

impl Opening {
    /// Whether an interface is being made.
    pub(super) fn has(&self, link: u32) -> bool {
        self.links.contains(&link)
    }

    /// Those that were made since the last call.
    pub(super) fn take_made(&mut self) -> Vec<Made> {
        self.receive();
        let made = std::mem::take(&mut self.made);
        for (link, _) in &made {
            self.links.remove(link);
        }
        made
    }

    /// Looks for some that were made; returns whether there are any.
    fn receive(&mut self) -> bool {
        self.made.extend(self.from.try_iter());
        !self.made.is_empty()
    }

    /// Has an interface made: `failed` makes the failure of an error.
    fn make(
        &mut self,
        link: u32,
        failed: impl FnOnce(OpenError) -> Failed + Send + 'static,
        make: impl FnOnce() -> Result<Ready, OpenError> + Send + 'static,
    ) {
        self.links.insert(link);
        let result = Pending { link, to: self.to.clone(), failed: Some(failed) };
        let job = move || result.send(make());
        match &self.runner {
            Some(runner) => runner.run(job),
            None => job(),
        }
    }

    /// Drops what was made, where it costs the control thread no time: closing waits for the kernel.
    fn let_go(&self, ready: Ready) {
        match &self.runner {
            Some(runner) => runner.run(move || drop(ready)),
            None => drop(ready),
        }
    }
}

/// What is made of an interface, and what for.
struct Order {
    link: u32,
    port: u16,
    state: LinkState,
    mode: Mode,
    /// The link that was found there.
    found: Option<Arc<xdp::Link>>,
    /// When a link that was found was released.
    freed: Option<Instant>,
    addresses: Arc<LocalAddresses>,
    /// Bytes that the frames of all workers hold.
    frame: u16,
    pools: Vec<Pool>,
    left: Families,
    /// EtherType of frames that the graph drops.
    refused: Option<u16>,
    /// What takes it in, and whether it forwards; `None` for an internal interface of a cluster, and where there is none.
    forwarder: Option<(Forwarder, bool)>,
}

/// An interface that can send once workers have its ports, and receives nothing yet: its program leaves all frames to the
/// kernel.
pub(super) struct Ready {
    link: u32,
    port: u16,
    state: LinkState,
    mode: Mode,
    classifier: Arc<Classifier>,
    attached: Arc<xdp::Link>,
    /// The link was found: it runs what the last daemon put in.
    adopted: bool,
    /// The sockets of its queues.
    sockets: Vec<OwnedFd>,
    /// How they are driven, in words.
    how: String,
    /// The port of each worker.
    ends: Ports,
    /// What the forwarder takes in.
    program: Option<ReadyPort>,
    /// Times that its program was loaded.
    tries: u32,
}

impl Interfaces {
    /// Makes interfaces beside the control thread from now on.
    pub(in crate::daemon) fn open_beside(&mut self, runner: Runner) {
        self.opening.runner = Some(runner);
    }

    /// Whether interfaces were made that wait to be taken in.
    pub(in crate::daemon) fn has_made(&mut self) -> bool {
        self.opening.receive()
    }

    /// Has an interface send by AF_XDP, if it is to; one that is not stays with the kernel.
    pub(super) fn begin_to_open(
        &mut self,
        (link, port, state): &(u32, u16, LinkState),
        workers: &[WorkerHandle],
    ) {
        let (link, port) = (*link, *port);
        let planned = self.plan(link, state);
        let mut found = self.nonstop.take(link).map(Arc::new);
        if found.is_some() && !matches!(planned, Ok(Mode::Auto | Mode::Xdp | Mode::Afxdp)) {
            self.let_go_of_found(link);
            found = None;
        }
        let adopted = found.is_some();
        match planned {
            Ok(mode) => {
                let order = self.order((link, port), state, (mode, found), workers);
                let state = state.clone();
                self.note_opening(link, port, state.clone());
                let failed = move |error| Failed { port, state, adopted, error };
                self.opening.make(link, failed, move || order.make());
            }
            Err(reason) => {
                self.refuse((link, port), state, adopted, reason);
                self.report_not_applied(link);
            }
        }
    }

    /// An interface is being made: it stays with the kernel until it is taken in.
    fn note_opening(&mut self, link: u32, port: u16, state: LinkState) {
        let mode = "it is being taken over".to_owned();
        self.open.insert(link, Open { port, state, drive: Drive::Kernel, mode });
    }

    fn order(
        &self,
        (link, port): (u32, u16),
        state: &LinkState,
        (mode, found): (Mode, Option<Arc<xdp::Link>>),
        workers: &[WorkerHandle],
    ) -> Order {
        let forwards = matches!(mode, Mode::Auto | Mode::Xdp);
        let forwarder = match &self.datapath.forwarder {
            _ if self.is_internal(&state.name) => None,
            Some(forwarder) if forwards => Some((forwarder.clone(), true)),
            _ => self.datapath.guard.clone().map(|guard| (guard, false)),
        };
        Order {
            link,
            port,
            state: state.clone(),
            mode,
            found,
            freed: self.nonstop.freed,
            addresses: self.local.addresses.clone(),
            frame: frame_len(workers),
            pools: workers.iter().map(|worker| worker.pool.clone()).collect(),
            left: self.left(link, state).families,
            refused: self.refused(&state.name),
            forwarder,
        }
    }

    fn is_internal(&self, name: &str) -> bool {
        self.datapath.cluster.as_ref().is_some_and(|cluster| cluster.is_internal(name))
    }

    fn refused(&self, name: &str) -> Option<u16> {
        self.datapath.cluster.as_ref().and_then(|cluster| cluster.refused(name))
    }

    /// Gives workers the ports of an interface that was made, where it is still to be driven so. Where another thread has to
    /// load its program again, that begins.
    pub(super) fn admit(
        &mut self,
        (link, made): Made,
        control: &Control,
        workers: &[WorkerHandle],
    ) -> Option<Ready> {
        let mut ready = match *made {
            Ok(ready) => ready,
            Err(failed) => {
                let Failed { port, state, adopted, error } = *failed;
                let why = error.to_string();
                if error.is_permission() {
                    self.history.refused = Some(format!("{}: {why}", state.name));
                }
                // One that is gone, or other than it was, is not refused for that.
                if control.links().any(|(l, p, now)| (l, p, now) == (link, port, &state)) {
                    self.refuse((link, port), &state, adopted, why);
                }
                return None;
            }
        };
        let now = control.links().find(|(l, port, state)| {
            (*l, *port) == (link, ready.port) && state.up && state.name == ready.state.name
        });
        let now = now.map(|(_, _, state)| state.clone());
        let Some(state) = now.filter(|state| self.plan(link, state).as_ref() == Ok(&ready.mode))
        else {
            self.opening.let_go(ready);
            return None;
        };
        let before = std::mem::replace(&mut ready.state, state);
        if let Err(error) = self.bring_up_to_date(&before, &mut ready, workers) {
            self.refuse((link, ready.port), &ready.state, ready.adopted, error.to_string());
            self.opening.let_go(ready);
            return None;
        }
        if self.opening.runner.is_some() && ready.tries < MOST_TRIES && self.is_stale(&mut ready) {
            ready.tries += 1;
            let forwarder = self.datapath.guard.clone();
            self.note_opening(link, ready.port, ready.state.clone());
            let (port, state, adopted) = (ready.port, ready.state.clone(), ready.adopted);
            let failed = move |error| Failed { port, state, adopted, error };
            self.opening.make(link, failed, move || {
                if let Some(forwarder) = &forwarder {
                    ready.program = ready.program.map(|program| forwarder.make_ready(program));
                }
                Ok(ready)
            });
            return None;
        }
        self.egress.stand_ins.forget(ready.port);
        for (worker, end) in workers.iter().zip(ready.ends.drain(..)) {
            worker.send(Command::AddPort(ready.port, end));
        }
        Some(ready)
    }

    /// Whether the program of an interface is one for other tables than the present ones.
    fn is_stale(&self, ready: &mut Ready) -> bool {
        let (Some(forwarder), Some(program)) = (&self.datapath.guard, ready.program.take()) else {
            return false;
        };
        let (program, is_stale) = forwarder.is_stale(program);
        ready.program = Some(program);
        is_stale
    }

    /// Follows what changed of an interface while it was made.
    fn bring_up_to_date(
        &self,
        before: &LinkState,
        ready: &mut Ready,
        workers: &[WorkerHandle],
    ) -> Result<(), OpenError> {
        follow(before, &ready.state, &ready.classifier, workers)?;
        let left = self.left(ready.link, &ready.state).families;
        if left != ready.classifier.left() {
            ready.classifier.leave(left)?;
        }
        Ok(())
    }

    /// An interface that could not be taken over stays with the kernel.
    fn refuse(
        &mut self,
        (link, port): (u32, u16),
        state: &LinkState,
        adopted: bool,
        reason: String,
    ) {
        if adopted {
            // Its own program could not be put in the place of the old one: then that goes first, and the
            // next turn opens the interface as any other.
            warn!(target: "takeover", interface = state.name, "{}: what was found there is taken off: {reason}", state.name);
            return self.let_go_of_found(link);
        }
        if let Some(forwarder) = &self.datapath.guard {
            forwarder.remove_port(port);
        }
        let name = &state.name;
        match self.vlans.get(port) {
            Some(Ok(tagged)) => {
                let place = tagged.place();
                info!(target: "takeover", interface = name, "{name}: forwarded {place}, else by the kernel");
            }
            vlan => {
                let why = vlan.and_then(|vlan| vlan.as_ref().err()).unwrap_or(&reason);
                info!(target: "takeover", interface = name, why, "{name} stays with the kernel: {why}");
            }
        }
        self.history.changed = true;
        let open = Open { port, state: state.clone(), drive: Drive::Kernel, mode: reason };
        self.open.insert(link, open);
    }

    /// Has the frames of an interface come to us, now that what comes in can leave.
    pub(super) fn receive(&mut self, ready: Ready, workers: &[WorkerHandle]) {
        let mut ready = ready;
        let received = self.let_in(&mut ready);
        let Ready { link, port, state, classifier, attached, adopted, sockets, how, .. } = ready;
        if let Err(error) = received {
            let _ = leave_all(&classifier, u32::try_from(sockets.len()).unwrap_or(u32::MAX));
            xdp::wait_for_programs();
            self.retire(link, port, &state.name, workers);
            drop(attached);
            return self.refuse((link, port), &state, adopted, error.to_string());
        }
        let queues = u32::try_from(sockets.len()).unwrap_or(u32::MAX);
        let drive = Drive::Afxdp { classifier, queues, _link: attached };
        let open = Open { port, state, drive, mode: how };
        if let Some(forwarder) = &self.datapath.forwarder
            && Self::is_known(forwarder, port)
        {
            let hardware = open.state.kind.is_empty();
            forwarder.open_egress(port, takes(&mut FeatureReader::new().ok(), link, hardware));
        }
        self.history.changed = true;
        let (path, mode) = self.path_and_mode(&open);
        info!(target: "takeover", interface = open.state.name, path, mode, "{}: taken over: {mode}", open.state.name);
        self.open.insert(link, open);
    }

    fn let_in(&self, ready: &mut Ready) -> Result<(), OpenError> {
        let program = ready.program.take();
        let Ready { link, port, mode, classifier, attached, .. } = &*ready;
        for (queue, socket) in (0..).zip(&ready.sockets) {
            classifier.set_socket(queue, socket.as_fd())?;
        }
        classifier.hold(self.holds(&ready.state.name))?;
        let cluster = self.datapath.cluster.as_ref();
        if let Some(cluster) = cluster.filter(|cluster| cluster.is_internal(&ready.state.name)) {
            let guard = self.datapath.guard.as_ref().ok_or_else(OpenError::no_programs)?;
            let (classifier, attached) = (classifier.clone(), attached.clone());
            cluster.open(&ready.state.name, *port);
            return guard
                .add_fabric_port(*port, *link, classifier, attached, cluster.programs())
                .inspect(|()| cluster.receives(*port))
                .inspect_err(|_| cluster.close(*port))
                .map_err(Into::into);
        }
        if let (Some(forwarder), Some(program)) = (&self.datapath.guard, program) {
            forwarder.add_ready(program)?;
            if self.datapath.forwarder.is_some() && matches!(mode, Mode::Auto | Mode::Xdp) {
                self.nonstop.keep(*link, attached)?;
            }
        } else if ready.adopted {
            classifier.put(*link, attached, xdp::Functions::default())?;
        }
        if *mode == Mode::Xdp {
            let forwards = self.forwards(*port).unwrap_or(Err("no driver here can".into()));
            forwards.map_err(OpenError::Forward)?;
        }
        Ok(())
    }

    /// The link that was found at an interface ends.
    fn let_go_of_found(&mut self, link: u32) {
        self.nonstop.let_go(link);
        self.nonstop.freed = Some(Instant::now());
    }
}

impl Order {
    /// Loads its program and opens its sockets.
    fn make(self) -> Result<Ready, OpenError> {
        let Self { link, port, ref state, mode, ref pools, .. } = self;
        fits(state.mtu, self.frame)?;
        let mac = state.mac.expect("planned only with an address");
        let classifier = Arc::new(Classifier::load(mac.0, &self.addresses, self.frame)?);
        classifier.leave(self.left)?;
        classifier.take(self.refused)?;
        let adopted = self.found.is_some();
        let attached = match &self.found {
            Some(found) => found.clone(),
            None => Arc::new(self.attach(&classifier)?),
        };
        let queues = interface::queues(&state.name).map_err(OpenError::Queues)?;
        let ring = ring_of((queues as usize).div_ceil(pools.len()));
        let mut sockets: Vec<AfxdpPort> = Vec::new();
        for queue in 0..queues {
            let at = queue as usize % pools.len();
            sockets.push(afxdp::open(&afxdp::Spec {
                name: &state.name,
                ifindex: link,
                queue,
                pool: &pools[at],
                // The first of the same worker.
                shared: sockets.get(at),
                ring,
                attached: &attached,
                zero_copy: mode != Mode::Generic,
            })?);
        }
        let handles = sockets.iter().map(|socket| socket.as_fd().try_clone_to_owned());
        let handles = handles.collect::<Result<_, _>>().map_err(OpenError::Socket)?;
        let mut said = sockets.first().map(AfxdpPort::mode).unwrap_or_default();
        if queues > 1 {
            said += &format!(", {queues} queues");
        }
        if (queues as usize) < pools.len() {
            said += &format!(" for {} workers, by flow", pools.len());
        }
        let ends = share_out(&state.name, sockets, pools)?;
        let program = self.forwarder.as_ref().map(|(forwarder, forwards)| {
            forwarder.ready_port((port, link), classifier.clone(), attached.clone(), *forwards)
        });
        let (program, how) = (program.transpose()?, format!("AF_XDP, {said}"));
        let state = state.clone();
        Ok(Ready {
            link,
            port,
            state,
            mode,
            classifier,
            attached,
            adopted,
            sockets: handles,
            how,
            ends,
            program,
            tries: 1,
        })
    }

    /// Attaches a program to the interface, which one that was just let go may hold for a moment.
    fn attach(&self, classifier: &Classifier) -> Result<xdp::Link, xdp::XdpError> {
        loop {
            let attached = match self.mode {
                Mode::Afxdp | Mode::Xdp => classifier.attach(self.link, xdp::Mode::Native),
                Mode::Generic => classifier.attach(self.link, xdp::Mode::Generic),
                Mode::Auto | Mode::Kernel => classifier.attach_best(self.link),
            };
            let held = matches!(&attached, Err(xdp::XdpError::Attach { source, .. })
                if matches!(source.raw_os_error(), Some(libc::EBUSY | libc::EEXIST)));
            if !held || self.freed.is_none_or(|at| at.elapsed() > LONGEST_FREEING) {
                return attached;
            }
            std::thread::sleep(FREEING);
        }
    }
}

/// Entries of the receive ring of each queue, where a worker has so many of the interface's: of many queues shorter ones,
/// so that all of them hold what one would.
pub(super) fn ring_of(queues: usize) -> u32 {
    let each = queues.next_power_of_two();
    u32::try_from(afxdp::RING as usize / each).unwrap_or(afxdp::RING).max(SHORTEST_RING)
}

/// Bytes that the frames of all workers hold.
fn frame_len(workers: &[WorkerHandle]) -> u16 {
    workers.iter().map(|worker| worker.pool.max_len()).min().unwrap_or(u16::MAX)
}

/// Whether frames of so many bytes hold the packets of an interface.
fn fits(mtu: u32, frame: u16) -> Result<(), OpenError> {
    if u32::from(frame) < mtu + 14 { Err(OpenError::Mtu(mtu)) } else { Ok(()) }
}

/// Brings what a classifier was made for up to date.
pub(super) fn follow(
    before: &LinkState,
    now: &LinkState,
    classifier: &Classifier,
    workers: &[WorkerHandle],
) -> Result<(), OpenError> {
    fits(now.mtu, frame_len(workers))?;
    match now.mac {
        Some(mac) if before.mac != now.mac => Ok(classifier.set_mac(mac.0)?),
        _ => Ok(()),
    }
}

/// Why an interface could not be taken over.
#[derive(Debug, thiserror::Error)]
pub(super) enum OpenError {
    #[error(transparent)]
    Xdp(#[from] xdp::XdpError),
    #[error(transparent)]
    Device(#[from] DeviceError),
    #[error("XDP does not forward on it: {0}")]
    Forward(String),
    #[error("its queues cannot be counted: {0}")]
    Queues(std::io::Error),
    #[error("its sockets cannot be shared: {0}")]
    Socket(std::io::Error),
    #[error(
        "its MTU of {0} bytes is more than the frames of this run hold: restart to take it over"
    )]
    Mtu(u32),
    #[error("the thread that makes its program and sockets has failed: standard error has why")]
    Unfinished,
}

impl OpenError {
    /// The kernel runs no program for internal interfaces.
    fn no_programs() -> Self {
        Self::Forward("it takes no program for internal interfaces".into())
    }

    /// Whether a missing privilege is the cause.
    fn is_permission(&self) -> bool {
        match self {
            Self::Xdp(error) => error.is_permission(),
            Self::Device(error) => error.is_permission(),
            Self::Queues(error) => error.kind() == std::io::ErrorKind::PermissionDenied,
            Self::Forward(_) | Self::Mtu(_) | Self::Socket(_) | Self::Unfinished => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_that_panics_or_is_not_taken_leaves_no_interface_as_being_made() {
        let panics = Runner::new(|job| drop(std::thread::spawn(job).join()));
        for runner in [panics, Runner::new(drop)] {
            let mut opening = Opening { runner: Some(runner), ..Opening::default() };
            let state = LinkState::default();
            let failed = move |error| Failed { port: 3, state, adopted: false, error };
            opening.make(7, failed, || panic!("as wanted"));
            assert!(opening.has(7));
            let made = opening.take_made();
            let [(7, made)] = &made[..] else { panic!("{} made", made.len()) };
            let failed = made.as_ref().as_ref().err().expect("it was not made");
            assert!(failed.port == 3 && matches!(failed.error, OpenError::Unfinished));
            assert!(!opening.has(7));
        }
    }

    #[test]
    fn rings_of_many_queues_are_shorter() {
        assert_eq!([1, 2, 3, 4, 16, 1000].map(ring_of), [4096, 2048, 1024, 1024, 256, 256]);
    }
}
