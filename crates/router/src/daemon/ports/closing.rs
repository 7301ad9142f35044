//! Closing an interface: workers give its port back, and its queues are taken until they did.

use std::time::{Duration, Instant};

use fingerpost_packet::graph::worker::Command;
use tracing::info;

use super::Interfaces;
use crate::daemon::workers::WorkerHandle;

/// Longest wait for workers that return a port: a worker that is gone never does.
const LONGEST_CLOSING: Duration = Duration::from_secs(2);

impl Interfaces {
    pub(super) fn close(&mut self, link: u32, workers: &[WorkerHandle]) {
        let Some(open) = self.open.remove(&link) else { return };
        if let Some(forwarder) = &self.datapath.guard {
            forwarder.remove_port(open.port);
        }
        if let Some(cluster) = &self.datapath.cluster {
            cluster.close(open.port);
        }
        self.nonstop.let_go(link);
        self.history.closed += open.counts();
        self.history.changed = true;
        info!(target: "takeover", interface = open.state.name, "{}: closed", open.state.name);
        self.remove(open.port, workers);
    }

    /// Workers give a port back; until they did its queues are taken.
    pub(super) fn remove(&mut self, port: u16, workers: &[WorkerHandle]) {
        self.egress.stand_ins.forget(port);
        for worker in workers {
            worker.send(Command::RemovePort(port));
        }
        self.egress.closing.insert(port, (workers.len(), Instant::now()));
    }

    /// A worker has given a port back.
    pub(in crate::daemon) fn closed(&mut self, port: u16) {
        if let Some((left, _)) = self.egress.closing.get_mut(&port) {
            *left = left.saturating_sub(1);
            if *left == 0 {
                self.egress.closing.remove(&port);
            }
        }
    }

    pub(super) fn is_closing(&self, port: u16) -> bool {
        let told = self.egress.closing.get(&port);
        told.is_some_and(|(_, told)| told.elapsed() < LONGEST_CLOSING)
    }
}
