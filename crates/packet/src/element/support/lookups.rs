//! Addresses of a batch that are looked up together, and their places in the batch.

use fingerpost_lpm::NextHopId;

use crate::frame::wire::ETHER_BYTES;
use crate::frame::{BATCH, Batch};
use crate::route_table::Family;

/// Those of one family.
pub(crate) struct Lookups<A> {
    pub(crate) len: usize,
    pub(crate) addrs: Box<[A; BATCH]>,
    /// The packets' places in the batch, unless all of it is here.
    pub(crate) places: Box<[u16; BATCH]>,
    whole: bool,
    pub(crate) answers: Box<[NextHopId; BATCH]>,
}

impl<A: Family> Lookups<A> {
    pub(crate) fn new() -> Self {
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
    pub(crate) fn fill<const FRONT: usize>(&mut self, batch: &mut Batch, version: u8) -> bool {
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
    pub(crate) fn place(&self, i: usize) -> usize {
        if self.whole { i } else { self.places[i].into() }
    }

    #[inline(always)]
    #[allow(clippy::cast_possible_truncation, reason = "a batch has 256 packets")]
    pub(crate) fn push(&mut self, addr: A, place: usize) {
        self.addrs[self.len] = addr;
        self.places[self.len] = place as u16;
        self.len += 1;
    }

    /// Has none.
    pub(crate) fn clear(&mut self) {
        (self.len, self.whole) = (0, false);
    }
}
