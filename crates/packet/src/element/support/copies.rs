//! Copies of packets, as elements with several outputs send them. They count as packets of our own making.

use std::sync::Arc;

use crate::frame::Batch;
use crate::frame::counters::Count;
use crate::graph::Context;

/// Sender of copies.
pub(crate) struct Copies {
    /// Copies for which there was no frame.
    failed: Arc<Count>,
}

impl Copies {
    /// A sender that counts there what has no frame.
    pub(crate) fn new(failed: Arc<Count>) -> Self {
        Self { failed }
    }

    /// Sends a copy of packet `i` to an output.
    pub(crate) fn send(&self, batch: &Batch, i: usize, output: u16, cx: &mut Context<'_>) {
        match batch.copy(i) {
            Some(packet) => cx.originate(output, packet),
            None => self.failed.add(1),
        }
    }

    /// Sends a copy of each packet to an output.
    pub(crate) fn send_all(&self, batch: &Batch, output: u16, cx: &mut Context<'_>) {
        for i in 0..batch.len() {
            self.send(batch, i, output, cx);
        }
    }
}
