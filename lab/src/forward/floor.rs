//! What translation cannot do without: the path without it, and for each packet one cache line of an index and one of its
//! flow, as many as the table of `IPRewriter` has.
//!
//! The line of the index is any, as a hash has it, and has the number of the flow; that is read and written. Both are
//! prefetched for a round of the path, as early as they are known. Nothing is compared and no packet is changed, so what this
//! costs more than the path is the part of translation that memory alone takes.

use fingerpost_lpm::prefetch_at;
use fingerpost_packet::frame::BATCH;

use super::{Path, ROUNDS};
use crate::measure::Measured;

/// What the run is called.
pub(super) const NAME: &str = "nat-v4-floor";

/// Keys that a line of the index has on average: 13 of 20 places are in use.
const LINE_KEYS: usize = 8 * 13 / 20;

#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line([usize; 8]);

/// A path, and lines beside it.
pub(super) struct Floor {
    path: Path,
    index: Vec<Line>,
    flows: Vec<Line>,
    next: usize,
}

impl Floor {
    pub(super) fn new(path: Path, flows: usize) -> Self {
        let flows = flows.max(BATCH);
        let index = vec![Line([0; 8]); (2 * flows).div_ceil(LINE_KEYS)];
        Self { path, index, flows: vec![Line([0; 8]); flows], next: 0 }
    }

    /// Sends all packets once, as [`Path::pass`].
    pub(super) fn pass(&mut self) {
        let (mut sent, count) = (0, self.path.headers.len() as u64);
        while sent < count {
            sent += self.work().max(1);
        }
    }

    /// The flow of a packet, and the line of the index that has it.
    fn of(&self, packet: usize) -> (usize, usize) {
        // At most one batch behind the end.
        let flow = self.next + packet;
        let flow = if flow < self.flows.len() { flow } else { flow - self.flows.len() };
        // By the golden ratio, so that neighbors are far from each other.
        let hash = (flow as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        (flow, (hash as usize * self.index.len()) >> 32)
    }
}

impl Measured for Floor {
    fn work(&mut self) -> u64 {
        let mut all = 0;
        for _ in 0..ROUNDS {
            let packets = self.path.worker.round();
            for packet in 0..packets {
                prefetch_at(&raw const self.index[self.of(packet).1]);
            }
            for packet in 0..packets {
                let (flow, line) = self.of(packet);
                // Their content is 0, which the compiler does not know.
                prefetch_at(&raw const self.flows[flow + self.index[line].0[7]]);
            }
            for packet in 0..packets {
                let (flow, _) = self.of(packet);
                self.flows[flow].0[0] += 1;
            }
            (self.next, _) = self.of(packets);
            all += packets as u64;
        }
        all
    }
}
