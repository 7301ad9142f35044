//! The external ports, outward: a queue each, served at the rate of its node.

use super::links::SLOT;
use super::queue::{Queue, Slab};
use super::{Config, Fair};

/// External port of a node.
struct Output {
    queue: Queue,
    /// Time that a packet takes.
    period: u64,
    ready: u64,
    worst: u32,
}

/// External ports of all nodes.
pub(super) struct Outputs {
    ports: Vec<Output>,
    limit: u32,
}

impl Outputs {
    /// Idle ports of these rates, in R.
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "rates are positive"
    )]
    pub(super) fn new(config: &Config, rates: &[f64]) -> Self {
        let output = |rate: &f64| Output {
            queue: config.fair.queue(rates.len()),
            period: (SLOT as f64 / rate) as u64,
            ready: 0,
            worst: 0,
        };
        Self { ports: rates.iter().map(output).collect(), limit: config.queue }
    }

    /// Adds a packet to the queue of an output; returns the packet that is dropped for it.
    #[inline]
    pub(super) fn push(&mut self, slab: &mut Slab, at: usize, id: u32) -> Option<u32> {
        let output = &mut self.ports[at];
        let dropped = output.queue.push(slab, id, self.limit);
        output.worst = output.worst.max(output.queue.len());
        dropped
    }

    /// Empties the queue of an output.
    pub(super) fn drain(&mut self, slab: &mut Slab, at: usize, mut dropped: impl FnMut(u32)) {
        while let Some(id) = self.ports[at].queue.pop(slab) {
            dropped(id);
        }
    }

    /// Sends what is due in this slot: `sent` gets each output and packet.
    #[inline]
    pub(super) fn serve(
        &mut self,
        slab: &mut Slab,
        slot: u32,
        mut sent: impl FnMut(&mut Slab, usize, u32),
    ) {
        let now = u64::from(slot) * SLOT;
        for (at, output) in self.ports.iter_mut().enumerate() {
            output.ready = output.ready.max((now + 1).saturating_sub(SLOT));
            if output.ready > now {
                continue;
            }
            let Some(id) = output.queue.pop(slab) else { continue };
            output.ready += output.period;
            sent(slab, at, id);
        }
    }

    /// Longest queue that an output had, in packets.
    pub(super) fn worst(&self) -> u32 {
        self.ports.iter().map(|output| output.worst).max().unwrap_or(0)
    }
}

impl Fair {
    /// Empty queue for the inputs of so many nodes.
    pub(super) fn queue(self, nodes: usize) -> Queue {
        match self {
            Self::Proportional => Queue::proportional(),
            Self::MaxMin => Queue::max_min(nodes),
        }
    }
}
