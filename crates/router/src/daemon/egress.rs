//! Egress while no AF_XDP socket sends by an interface: a packet socket in each worker stands in.
//!
//! A worker drops a packet whose egress has no port. So every link that is up has one before a route that leaves by it
//! is visible: a packet socket, until AF_XDP sockets take its place, and again before these are closed. The kernel
//! builds the frame then, as it would have without us.

use std::collections::BTreeSet;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use fingerpost_io::af_packet;
use fingerpost_packet::device::{DeviceError, Port};
use fingerpost_packet::graph::worker::Command;

use super::workers::WorkerHandle;

/// Longest wait for workers that carry out commands: one that is gone never does.
const LONGEST_CONFIRMATION: Duration = Duration::from_secs(1);

/// Ports that are packet sockets at present, or queues of the fabric interface of a cluster node.
#[derive(Default)]
pub(super) struct StandIns {
    ports: BTreeSet<u16>,
    /// Queues of the fabric interface, a worker each, until its port is known.
    fabric: Vec<Box<dyn Port>>,
}

impl StandIns {
    /// Keeps the queues of the fabric interface, one for each worker, for [`StandIns::put_fabric`].
    pub(super) fn set_fabric(&mut self, queues: Vec<Box<dyn Port>>) {
        self.fabric = queues;
    }

    /// Puts the queues of the fabric interface at a port of every worker.
    pub(super) fn put_fabric(&mut self, port: u16, workers: &[WorkerHandle]) {
        self.ports.insert(port);
        for (worker, queue) in workers.iter().zip(self.fabric.drain(..)) {
            worker.send(Command::AddPort(port, queue));
        }
        confirm(workers);
    }

    /// Puts a packet socket at a port of every worker.
    pub(super) fn put(
        &mut self,
        port: u16,
        (name, ifindex): (&str, u32),
        workers: &[WorkerHandle],
    ) -> Result<(), DeviceError> {
        // Also where it fails: the next turn would fail in the same way.
        self.ports.insert(port);
        // The owners of queues come first and close last (`share_out`).
        for worker in workers.iter().rev() {
            worker.send(Command::AddPort(port, Box::new(af_packet::open(name, ifindex)?)));
            confirm(std::slice::from_ref(worker));
        }
        Ok(())
    }

    /// Puts a packet socket in the place of ports that receive nothing more: what they have received is forwarded, what
    /// waits to be sent by them is sent, and they are given back.
    pub(super) fn replace(
        &mut self,
        port: u16,
        at: (&str, u32),
        workers: &[WorkerHandle],
    ) -> Result<(), DeviceError> {
        for worker in workers {
            worker.send(Command::Drain(port));
            confirm(std::slice::from_ref(worker));
        }
        self.put(port, at, workers)
    }

    /// Whether the port is a packet socket.
    pub(super) fn has(&self, port: u16) -> bool {
        self.ports.contains(&port)
    }

    /// The port is something else from now on, or gone.
    pub(super) fn forget(&mut self, port: u16) {
        self.ports.remove(&port);
    }

    /// All of them.
    pub(super) fn ports(&self) -> impl Iterator<Item = u16> {
        self.ports.iter().copied()
    }
}

/// Waits until all workers have carried out their commands so far.
pub(super) fn confirm(workers: &[WorkerHandle]) {
    let (confirmed, confirmation) = channel();
    for worker in workers {
        worker.send(Command::Confirm(confirmed.clone()));
    }
    drop(confirmed);
    let until = Instant::now() + LONGEST_CONFIRMATION;
    for _ in workers {
        // Nobody left to confirm, or no time left.
        if confirmation.recv_timeout(until.saturating_duration_since(Instant::now())).is_err() {
            return;
        }
    }
}
