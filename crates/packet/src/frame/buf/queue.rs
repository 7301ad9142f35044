//! Packets that wait, in order, outside of a batch.

use std::collections::VecDeque;
use std::fmt;

use super::{Batch, Meta, Packet, Pool, Slot};

/// Packets of one pool that wait. They come from batches and go into batches without a look at the pool.
///
/// Frames return to their pool when it is dropped.
pub struct PacketQueue {
    /// Pool of the first packet.
    pool: Option<Pool>,
    packets: VecDeque<(Slot, Meta)>,
}

impl PacketQueue {
    /// An empty queue with room for so many; more room is made when it is needed.
    pub fn with_room(packets: usize) -> Self {
        Self { pool: None, packets: VecDeque::with_capacity(packets) }
    }

    /// Packets in it.
    pub fn len(&self) -> usize {
        self.packets.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// Takes packet `i` out of a batch, as [`Batch::take`] does, to the end of the queue.
    ///
    /// # Panics
    /// When it was taken before, or is of another pool than the packets before it.
    pub fn take(&mut self, batch: &mut Batch, i: usize) {
        let pool = self.pool.get_or_insert_with(|| batch.pool.clone());
        assert!(pool.same(&batch.pool), "a queue holds packets of one pool");
        self.packets.push_back((batch.lift(i), batch.meta[i]));
    }

    /// Takes packet `i` out of a batch, to the front of the queue.
    ///
    /// # Panics
    /// As [`take`](Self::take).
    pub fn take_front(&mut self, batch: &mut Batch, i: usize) {
        self.take(batch, i);
        self.packets.rotate_right(1);
    }

    /// Puts packets into a batch, from the front on, as many as it has room for.
    ///
    /// # Panics
    /// When the batch is for packets of another pool.
    pub fn give(&mut self, into: &mut Batch) {
        let Some(pool) = &self.pool else { return };
        assert!(pool.same(&into.pool), "a batch holds packets of one pool");
        let count = into.room().min(self.packets.len());
        for (slot, meta) in self.packets.drain(..count) {
            into.slots[into.len] = slot;
            into.meta[into.len] = meta;
            into.labels[into.len] = 0;
            into.len += 1;
        }
    }

    /// The first packet.
    pub fn pop(&mut self) -> Option<Packet> {
        let (slot, meta) = self.packets.pop_front()?;
        let pool = self.pool.clone()?;
        Some(Packet { pool, slot, meta })
    }

    /// The last packet.
    pub fn pop_back(&mut self) -> Option<Packet> {
        let (slot, meta) = self.packets.pop_back()?;
        let pool = self.pool.clone()?;
        Some(Packet { pool, slot, meta })
    }
}

impl Drop for PacketQueue {
    fn drop(&mut self) {
        while self.pop().is_some() {}
    }
}

impl fmt::Debug for PacketQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PacketQueue({})", self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::batch;

    #[test]
    fn packets_come_out_as_they_went_in() {
        let pool = Pool::new(16, 2048);
        let mut queue = PacketQueue::with_room(2);
        let mut first = batch(&pool, 3, [&[1_u8][..], &[2], &[3]]);
        (0..3).for_each(|i| queue.take(&mut first, i));
        drop(first);
        assert_eq!((queue.len(), pool.free()), (3, 13));
        let mut into = Batch::new(&pool);
        into.set_limit(2);
        queue.give(&mut into);
        assert_eq!((into.len(), into.bytes(0), into.bytes(1)), (2, &[1][..], &[2][..]));
        assert_eq!(into.meta()[0].port, 3);
        assert_eq!(queue.pop().unwrap().bytes(), [3]);
        assert!(queue.pop().is_none() && queue.is_empty());
        queue.take(&mut into, 1);
        queue.take_front(&mut into, 0);
        assert_eq!(queue.pop_back().unwrap().bytes(), [2]);
        assert_eq!(queue.len(), 1);
        drop((queue, into));
        assert_eq!(pool.free(), 16);
    }

    #[test]
    #[should_panic(expected = "one pool")]
    fn packets_of_another_pool_are_refused() {
        let mut queue = PacketQueue::with_room(2);
        queue.take(&mut batch(&Pool::new(2, 2048), 0, [&[1_u8][..]]), 0);
        queue.take(&mut batch(&Pool::new(2, 2048), 0, [&[1_u8][..]]), 0);
    }
}
