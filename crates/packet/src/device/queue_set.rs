//! Several queues of a device as one port, for a worker that has them all.

use std::os::fd::RawFd;

use super::{DeviceError, Port};
use crate::frame::Batch;

/// Receives from all of its ports by turns, and sends by the first, so that a flow keeps its order.
#[derive(Debug)]
pub struct QueueSet<P> {
    ports: Vec<P>,
    next: usize,
}

impl<P> Default for QueueSet<P> {
    fn default() -> Self {
        Self { ports: Vec::new(), next: 0 }
    }
}

impl<P: Port> QueueSet<P> {
    /// One more.
    pub fn push(&mut self, port: P) {
        self.ports.push(port);
    }

    /// The one that sends.
    pub fn first(&self) -> Option<&P> {
        self.ports.first()
    }
}

impl<P: Port> Port for QueueSet<P> {
    fn recv(&mut self, into: &mut Batch) -> Result<usize, DeviceError> {
        let count = self.ports.len();
        let mut taken = 0;
        for i in 0..count {
            // Another one first each time, so that a full batch of one does not starve the rest.
            taken += self.ports[(self.next + i) % count].recv(into)?;
        }
        self.next = self.next.wrapping_add(1);
        Ok(taken)
    }

    fn send(&mut self, from: &mut Batch) -> Result<usize, DeviceError> {
        self.ports.first_mut().map_or(Ok(0), |port| port.send(from))
    }

    fn wait_fds(&self, fds: &mut Vec<RawFd>) {
        self.ports.iter().for_each(|port| port.wait_fds(fds));
    }

    fn in_rings(&self) -> usize {
        self.ports.iter().map(Port::in_rings).sum()
    }

    fn mode(&self) -> String {
        self.ports.first().map(Port::mode).unwrap_or_default()
    }

    fn stats(&self, visit: &mut dyn FnMut(&'static str, u64)) {
        for port in &self.ports {
            port.stats(visit);
        }
    }
}
