//! Opening an interface: its program and AF_XDP sockets first, the frames that it receives last.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fingerpost_io::afxdp::{self, AfxdpPort};
use fingerpost_io::interface;
use fingerpost_io::share_out;
use fingerpost_io::xdp::{self, Classifier};
use fingerpost_packet::Pool;
use fingerpost_packet::device::{DeviceError, Port};
use fingerpost_packet::graph::worker::Command;
use fingerpost_route::LinkState;
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

/// An interface that can send, and receives nothing yet: its program leaves all frames to the kernel.
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
}

impl Interfaces {
    /// Has an interface send by AF_XDP, if it is to; one that is not stays with the kernel.
    pub(super) fn prepare(
        &mut self,
        (link, port, state): &(u32, u16, LinkState),
        workers: &[WorkerHandle],
    ) -> Option<Ready> {
        let (link, port) = (*link, *port);
        let planned = self.plan(link, state);
        let mut found = self.nonstop.take(link).map(Arc::new);
        if found.is_some() && !matches!(planned, Ok(Mode::Auto | Mode::Xdp | Mode::Afxdp)) {
            self.let_go_of_found(link);
            found = None;
        }
        let adopted = found.is_some();
        let opened = planned.and_then(|mode| {
            self.open_afxdp((link, port), state, (mode, found), workers).map_err(|error| {
                let why = error.to_string();
                if error.is_permission() {
                    self.history.refused = Some(format!("{}: {why}", state.name));
                }
                why
            })
        });
        match opened {
            Ok(ready) => Some(ready),
            Err(reason) => {
                self.refuse((link, port), state, adopted, reason);
                None
            }
        }
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
        self.changed = true;
        let open = Open { port, state: state.clone(), drive: Drive::Kernel, mode: reason };
        self.open.insert(link, open);
    }

    fn open_afxdp(
        &mut self,
        (link, port): (u32, u16),
        state: &LinkState,
        (mode, found): (Mode, Option<Arc<xdp::Link>>),
        workers: &[WorkerHandle],
    ) -> Result<Ready, OpenError> {
        let frame = frame_len(workers);
        fits(state.mtu, frame)?;
        let mac = state.mac.expect("planned only with an address");
        let classifier = Arc::new(Classifier::load(mac.0, &self.local.addresses, frame)?);
        classifier.leave(self.left(link, state).families)?;
        let cluster = self.datapath.cluster.as_ref();
        classifier.take(cluster.and_then(|cluster| cluster.refused(&state.name)))?;
        let adopted = found.is_some();
        let attached = match found {
            Some(found) => found,
            None => Arc::new(self.attach(link, &classifier, mode)?),
        };
        let queues = interface::queues(&state.name).map_err(OpenError::Queues)?;
        let ring = ring_of((queues as usize).div_ceil(workers.len()));
        let mut sockets: Vec<AfxdpPort> = Vec::new();
        for queue in 0..queues {
            let at = queue as usize % workers.len();
            sockets.push(afxdp::open(&afxdp::Spec {
                name: &state.name,
                ifindex: link,
                queue,
                pool: &workers[at].pool,
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
        if (queues as usize) < workers.len() {
            said += &format!(" for {} workers, by flow", workers.len());
        }
        let pools: Vec<Pool> = workers.iter().map(|worker| worker.pool.clone()).collect();
        self.egress.stand_ins.forget(port);
        for (worker, end) in workers.iter().zip(share_out(&state.name, sockets, &pools)?) {
            worker.send(Command::AddPort(port, end));
        }
        let (state, how) = (state.clone(), format!("AF_XDP, {said}"));
        Ok(Ready { link, port, state, mode, classifier, attached, adopted, sockets: handles, how })
    }

    /// Has the frames of an interface come to us, now that what comes in can leave.
    pub(super) fn receive(&mut self, ready: Ready, workers: &[WorkerHandle]) {
        let received = self.let_in(&ready);
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
        self.changed = true;
        let (path, mode) = self.path_and_mode(&open);
        info!(target: "takeover", interface = open.state.name, path, mode, "{}: taken over: {mode}", open.state.name);
        self.open.insert(link, open);
    }

    fn let_in(&self, ready: &Ready) -> Result<(), OpenError> {
        let Ready { link, port, mode, classifier, attached, .. } = ready;
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
        if let Some(forwarder) = &self.datapath.forwarder
            && matches!(mode, Mode::Auto | Mode::Xdp)
        {
            forwarder.add_port(*port, *link, classifier.clone(), attached.clone())?;
            self.nonstop.keep(*link, attached)?;
        } else if let Some(guard) = &self.datapath.guard {
            guard.guard_port(*port, *link, classifier.clone(), attached.clone())?;
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

    /// Attaches a program to an interface, which one that was just let go may hold for a moment.
    fn attach(
        &self,
        link: u32,
        classifier: &Classifier,
        mode: Mode,
    ) -> Result<xdp::Link, xdp::XdpError> {
        loop {
            let attached = match mode {
                Mode::Afxdp | Mode::Xdp => classifier.attach(link, xdp::Mode::Native),
                Mode::Generic => classifier.attach(link, xdp::Mode::Generic),
                Mode::Auto | Mode::Kernel => classifier.attach_best(link),
            };
            let held = matches!(&attached, Err(xdp::XdpError::Attach { source, .. })
                if matches!(source.raw_os_error(), Some(libc::EBUSY | libc::EEXIST)));
            if !held || self.nonstop.freed.is_none_or(|at| at.elapsed() > LONGEST_FREEING) {
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
            Self::Forward(_) | Self::Mtu(_) | Self::Socket(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_of_many_queues_are_shorter() {
        assert_eq!([1, 2, 3, 4, 16, 1000].map(ring_of), [4096, 2048, 1024, 1024, 256, 256]);
    }
}
