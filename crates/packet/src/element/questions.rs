//! Addresses of a batch that are asked for together, and where in the batch they stand.

use fingerpost_lpm::NextHopId;

use crate::buf::BATCH;
use crate::route_table::Family;

/// Those of one family.
pub(super) struct Questions<A> {
    pub(super) len: usize,
    pub(super) addrs: Box<[A; BATCH]>,
    /// The packets' places in the batch.
    pub(super) places: Box<[u16; BATCH]>,
    pub(super) answers: Box<[NextHopId; BATCH]>,
}

impl<A: Family> Questions<A> {
    pub(super) fn new() -> Self {
        Self {
            len: 0,
            addrs: Box::new([A::default(); BATCH]),
            places: Box::new([0; BATCH]),
            answers: Box::new([NextHopId::NONE; BATCH]),
        }
    }

    #[inline(always)]
    #[allow(clippy::cast_possible_truncation, reason = "a batch has 256 packets")]
    pub(super) fn push(&mut self, addr: A, place: usize) {
        self.addrs[self.len] = addr;
        self.places[self.len] = place as u16;
        self.len += 1;
    }
}
