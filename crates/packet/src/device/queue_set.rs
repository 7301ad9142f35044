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

    /// Nothing where one of them adds nothing: the descriptors of the others do not report what that one waits for.
    fn wait_fds(&self, fds: &mut Vec<RawFd>) {
        let begin = fds.len();
        for port in &self.ports {
            let before = fds.len();
            port.wait_fds(fds);
            if fds.len() == before {
                return fds.truncate(begin);
            }
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A port that adds this descriptor, or none.
    struct Waits(Option<RawFd>);

    impl Port for Waits {
        fn recv(&mut self, _: &mut Batch) -> Result<usize, DeviceError> {
            Ok(0)
        }
        fn send(&mut self, _: &mut Batch) -> Result<usize, DeviceError> {
            Ok(0)
        }
        fn wait_fds(&self, fds: &mut Vec<RawFd>) {
            fds.extend(self.0);
        }
    }

    #[test]
    fn a_port_without_a_descriptor_leaves_the_set_without_any() {
        let waited = |ports: &[Option<RawFd>]| {
            let mut set = QueueSet::default();
            ports.iter().for_each(|&fd| set.push(Waits(fd)));
            let mut fds = vec![7];
            set.wait_fds(&mut fds);
            fds
        };
        assert_eq!(waited(&[Some(8), Some(9)]), [7, 8, 9]);
        for one_without in
            [[None, Some(8), Some(9)], [Some(8), None, Some(9)], [Some(8), Some(9), None]]
        {
            assert_eq!(waited(&one_without), [7], "{one_without:?}");
        }
    }
}
