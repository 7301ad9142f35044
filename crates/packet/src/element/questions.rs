//! Addresses of a batch that are looked up together, and their places in the batch.

use fingerpost_lpm::NextHopId;

use crate::buf::{BATCH, Batch};
use crate::route_table::Family;
use crate::wire::ETHER_BYTES;

/// Those of one family.
pub(super) struct Questions<A> {
    pub(super) len: usize,
    pub(super) addrs: Box<[A; BATCH]>,
    /// The packets' places in the batch, unless all of it is here.
    pub(super) places: Box<[u16; BATCH]>,
    whole: bool,
    pub(super) answers: Box<[NextHopId; BATCH]>,
}

impl<A: Family> Questions<A> {
    pub(super) fn new() -> Self {
        Self {
            len: 0,
            addrs: Box::new([A::default(); BATCH]),
            places: Box::new([0; BATCH]),
            whole: false,
            answers: Box::new([NextHopId::NONE; BATCH]),
        }
    }

    /// Takes the sources of a whole batch, if all its packets are of this version of IP, right behind an Ethernet
    /// header: what `FRONT` bytes from the beginning of the frame on hold. Otherwise there are none.
    #[inline]
    pub(super) fn fill<const FRONT: usize>(&mut self, batch: &mut Batch, version: u8) -> bool {
        let mut alike = true;
        let addrs = &mut *self.addrs;
        batch.each(|i, one| {
            let front = one.frame.first_chunk::<FRONT>();
            let src = front.and_then(|front| A::src(front, ETHER_BYTES));
            let place = usize::from(one.meta.network) == ETHER_BYTES;
            alike &= place & front.is_some_and(|front| front[ETHER_BYTES] >> 4 == version);
            addrs[i] = src.unwrap_or_default();
        });
        self.len = if alike { batch.len() } else { 0 };
        self.whole = alike;
        alike
    }

    /// Place of the packet of address `i`.
    #[inline(always)]
    pub(super) fn place(&self, i: usize) -> usize {
        if self.whole { i } else { self.places[i].into() }
    }

    #[inline(always)]
    #[allow(clippy::cast_possible_truncation, reason = "a batch has 256 packets")]
    pub(super) fn push(&mut self, addr: A, place: usize) {
        self.addrs[self.len] = addr;
        self.places[self.len] = place as u16;
        self.len += 1;
    }

    /// Has none.
    pub(super) fn clear(&mut self) {
        (self.len, self.whole) = (0, false);
    }
}
