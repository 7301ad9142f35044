//! Batches of lookups of announced addresses, each by a pin of its own, as a worker does it.

use fingerpost_lpm::testing::{Addresses, Stream};
use fingerpost_lpm::{LpmReader, NextHopId};
use fingerpost_route::{Forwarding, Reader};

use crate::family::Family;
use crate::measure::Measured;
use crate::table::Table;

const KEYS: usize = 1 << 18;
const BATCH: usize = 64;
/// Batches between two looks at the clock.
const AT_ONCE: usize = 64;

/// A reader of a table that changes.
pub(crate) trait Pins<A> {
    /// Looks a batch up by one pin.
    fn look_up(&mut self, keys: &[A], out: &mut [NextHopId]);

    /// Nobody has to wait for it until the next batch.
    fn rest(&mut self) {}
}

impl<A: Family> Pins<A> for LpmReader<A> {
    fn look_up(&mut self, keys: &[A], out: &mut [NextHopId]) {
        self.lookup_batch(keys, out);
    }
}

impl<A: Family> Pins<A> for Reader<Forwarding> {
    fn look_up(&mut self, keys: &[A], out: &mut [NextHopId]) {
        A::table(self.pin(), 0).lookup_batch(keys, out);
    }

    fn rest(&mut self) {
        self.sleep();
    }
}

/// The batches.
pub(crate) struct Batches<A, R> {
    reader: R,
    keys: Vec<A>,
    at: usize,
    sum: u64,
}

impl<A: Family, R: Pins<A>> Batches<A, R> {
    /// Batches of addresses of a table.
    pub(crate) fn new(table: &Table<A>, reader: R) -> Self {
        let prefixes: Vec<_> = table.routes.iter().map(|route| route.0).collect();
        let keys = Addresses::new(Stream::Announced, &prefixes, 5).take(KEYS);
        Self { reader, keys, at: 0, sum: 0 }
    }
}

impl<A: Family, R: Pins<A>> Measured for Batches<A, R> {
    fn work(&mut self) -> u64 {
        let mut out = [NextHopId::NONE; BATCH];
        for _ in 0..AT_ONCE {
            let keys = &self.keys[self.at..self.at + BATCH];
            self.at = (self.at + BATCH) % (self.keys.len() / BATCH * BATCH);
            self.reader.look_up(keys, &mut out);
            self.sum += out.iter().map(|hop| u64::from(hop.0)).sum::<u64>();
        }
        std::hint::black_box(self.sum);
        (AT_ONCE * BATCH) as u64
    }

    fn rest(&mut self) {
        self.reader.rest();
    }
}
