//! Free space inside a region that is changed in place, and the space that readers may still hold.
//!
//! The writer's own bookkeeping, in units of whatever the structure counts in: best fit, neighbours
//! joined when space comes back, and a queue of what was unlinked but has not passed its grace
//! period. Cost: two ordered maps of the free blocks, so some 100 ns a block taken or given.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use crate::lookup::{Epoch, Grace};

/// A block: where it starts, and how long it is.
pub(crate) type Block = (u32, u32);

/// The space of one region.
#[derive(Debug, Default)]
pub(crate) struct Extents {
    used: u32,
    waiting: u32,
    by_base: BTreeMap<u32, u32>,
    by_size: BTreeSet<(u32, u32)>,
    queue: VecDeque<(Epoch, Vec<Block>)>,
}

impl Extents {
    /// Space from 0 to `capacity`, of which the first `used` units are taken.
    pub(crate) fn new(capacity: u32, used: u32) -> Self {
        let mut room = Self { used: capacity, ..Self::default() };
        if used < capacity {
            room.give((used, capacity - used));
        }
        room
    }

    /// Units taken and not yet given back or retired.
    pub(crate) fn used(&self) -> u32 {
        self.used
    }

    /// Units that readers may still hold.
    pub(crate) fn waiting(&self) -> u32 {
        self.waiting
    }

    /// Takes the smallest free block that is long enough, from its start. `None` when there is none.
    pub(crate) fn take(&mut self, size: u32) -> Option<u32> {
        let &(found, base) = self.by_size.range((size, 0)..).next()?;
        self.forget((base, found));
        if found > size {
            self.keep((base + size, found - size));
        }
        self.used += size;
        Some(base)
    }

    /// Gives back a block that no reader can hold.
    pub(crate) fn give(&mut self, block: Block) {
        self.used -= block.1;
        self.join(block);
    }

    /// Gives back blocks that were just unlinked, once every reader has gone past this moment.
    pub(crate) fn retire(&mut self, blocks: Vec<Block>, grace: &mut dyn Grace) {
        if !blocks.is_empty() {
            let size: u32 = blocks.iter().map(|&(_, size)| size).sum();
            self.used -= size;
            self.waiting += size;
            self.queue.push_back((grace.retire(), blocks));
        }
    }

    /// Frees what has passed its grace period.
    pub(crate) fn reclaim(&mut self, grace: &dyn Grace) {
        while self.queue.front().is_some_and(|&(epoch, _)| grace.passed(epoch)) {
            for block in self.queue.pop_front().map_or(Vec::new(), |(_, blocks)| blocks) {
                self.waiting -= block.1;
                self.join(block);
            }
        }
    }

    fn join(&mut self, (mut base, mut size): Block) {
        let before = self.by_base.range(..base).next_back().map(|(&b, &s)| (b, s));
        if let Some(left) = before.filter(|&(b, s)| b + s == base) {
            self.forget(left);
            base = left.0;
            size += left.1;
        }
        if let Some(&right) = self.by_base.get(&(base + size)) {
            self.forget((base + size, right));
            size += right;
        }
        self.keep((base, size));
    }

    fn keep(&mut self, (base, size): Block) {
        self.by_base.insert(base, size);
        self.by_size.insert((size, base));
    }

    fn forget(&mut self, (base, size): Block) {
        self.by_base.remove(&base);
        self.by_size.remove(&(size, base));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lookup::NoReaders;
    use crate::testing::{HeldGrace, Rng};
    use alloc::vec;

    #[test]
    fn blocks_never_overlap_and_all_comes_back() {
        const CAPACITY: u32 = 5000;
        let mut room = Extents::new(CAPACITY, 100);
        room.give((0, 100));
        let mut held: Vec<Block> = Vec::new();
        let mut taken = vec![false; CAPACITY as usize];
        let mut rng = Rng::new(1);
        for _ in 0..20_000 {
            if rng.chance(55) {
                let size = u32::try_from(rng.below(60) + 1).unwrap();
                if let Some(base) = room.take(size) {
                    let cells = &mut taken[base as usize..(base + size) as usize];
                    assert!(cells.iter().all(|&taken| !taken));
                    cells.fill(true);
                    held.push((base, size));
                }
            } else if !held.is_empty() {
                let (base, size) = held.swap_remove(rng.below(held.len()));
                taken[base as usize..(base + size) as usize].fill(false);
                if rng.chance(50) {
                    room.give((base, size));
                } else {
                    room.retire(vec![(base, size)], &mut NoReaders);
                    room.reclaim(&NoReaders);
                }
            }
            assert_eq!(room.used(), held.iter().map(|b| b.1).sum());
        }
        assert_eq!(room.waiting(), 0);
        held.drain(..).for_each(|block| room.give(block));
        assert_eq!(room.take(CAPACITY), Some(0));
        assert_eq!(room.take(1), None);
    }

    #[test]
    fn what_readers_hold_is_not_given_again() {
        let mut room = Extents::new(10, 0);
        let mut grace = HeldGrace::default();
        let block = (room.take(10).unwrap(), 10);
        room.retire(vec![block], &mut grace);
        room.reclaim(&grace);
        assert_eq!((room.take(1), room.used(), room.waiting()), (None, 0, 10));
        grace.release();
        room.reclaim(&grace);
        assert_eq!((room.take(10), room.used(), room.waiting()), (Some(0), 10, 0));
    }
}
