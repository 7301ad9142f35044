//! Free space in blocks of powers of two, for structures whose blocks must not straddle cache lines.
//!
//! Source: Knowlton's buddy system (CACM 1965). Differs: a block of any size starts where the power of
//!         two that holds it would, and what that has too much is free at once. So nothing is lost to
//!         rounding, a block of at most a line lies in one line, and a longer one starts on one.
//! Shape:  a bitmap of the free blocks of each size, with bitmaps above it that index them; some
//!         two bits a unit, kept by the writer
//! Cost:   taking and giving back are some dozens of instructions: no search, no tree, no allocation
//!
//! A unit is what a structure counts in: here always eight bytes. Of the blocks that are just long enough
//! the one with the lowest address is taken: with the one last given back, a table that was changed
//! 5,000 times had no 16 KiB in one piece while two fifths of its heap were free.

use alloc::vec;
use alloc::vec::Vec;

/// The free blocks of a region of units.
#[derive(Debug)]
pub(crate) struct Buddy {
    orders: Vec<Order>,
    /// Which orders have a free block.
    some: u32,
}

/// The free blocks of one size: a bit each, and on each level above a bit for each word that is not 0.
#[derive(Debug)]
struct Order {
    levels: Vec<Vec<u64>>,
}

impl Order {
    fn new(blocks: usize) -> Self {
        let mut levels = vec![vec![0; blocks.div_ceil(64)]];
        while let Some(below) = levels.last().map(Vec::len).filter(|&words| words > 1) {
            levels.push(vec![0; below.div_ceil(64)]);
        }
        Self { levels }
    }

    fn has(&self, mut block: usize) -> bool {
        let bit = block % 64;
        block /= 64;
        self.levels[0].get(block).is_some_and(|word| word >> bit & 1 == 1)
    }

    fn insert(&mut self, mut block: usize) {
        for level in &mut self.levels {
            let word = &mut level[block / 64];
            let known = *word != 0;
            *word |= 1 << (block % 64);
            if known {
                return;
            }
            block /= 64;
        }
    }

    /// Whether others are left.
    fn remove(&mut self, mut block: usize) -> bool {
        for level in &mut self.levels {
            let word = &mut level[block / 64];
            *word &= !(1 << (block % 64));
            if *word != 0 {
                return true;
            }
            block /= 64;
        }
        false
    }

    /// The lowest. There is one.
    fn first(&self) -> usize {
        let levels = self.levels.iter().rev();
        levels.fold(0, |at, level| at * 64 + level[at].trailing_zeros() as usize)
    }
}

impl Buddy {
    /// All of `units` free; their number is a power of two below 2^31.
    ///
    /// # Panics
    /// If it is not.
    pub(crate) fn new(units: usize) -> Self {
        assert!(units.is_power_of_two() && units < 1 << 31, "a power of two");
        let order = units.ilog2();
        let orders = (0..=order).map(|order| Order::new(units >> order)).collect();
        let mut buddy = Self { orders, some: 0 };
        buddy.push(0, order);
        buddy
    }

    /// Takes a block of `size` units, at least one. `None` when no free block is long enough.
    pub(crate) fn take(&mut self, size: u32) -> Option<u32> {
        let order = size.checked_next_power_of_two()?.ilog2();
        let fit = self.some & u32::MAX.checked_shl(order).unwrap_or(0);
        if fit == 0 {
            return None;
        }
        let mut found = fit.trailing_zeros();
        let block = self.orders[found as usize].first();
        let base = u32::try_from(block << found).expect("units are below 2^31");
        self.remove(base, found);
        while found > order {
            found -= 1;
            self.push(base + (1 << found), found);
        }
        // What is too much: its buddies are in the block, so there is nothing to join.
        let (mut at, end) = (base + size, base + (1 << order));
        while at < end {
            let order = at.trailing_zeros();
            self.push(at, order);
            at += 1 << order;
        }
        Some(base)
    }

    /// Gives back `size` units from `base` on, which were taken (not necessarily together).
    pub(crate) fn give(&mut self, base: u32, size: u32) {
        let (mut at, end) = (base, base + size);
        while at < end {
            let order = at.trailing_zeros().min((end - at).ilog2());
            self.join(at, order);
            at += 1 << order;
        }
    }

    fn join(&mut self, mut at: u32, mut order: u32) {
        loop {
            let other = at ^ 1 << order;
            if !self.orders[order as usize].has((other >> order) as usize) {
                return self.push(at, order);
            }
            self.remove(other, order);
            at &= other;
            order += 1;
        }
    }

    fn push(&mut self, base: u32, order: u32) {
        self.orders[order as usize].insert((base >> order) as usize);
        self.some |= 1 << order;
    }

    fn remove(&mut self, base: u32, order: u32) {
        if !self.orders[order as usize].remove((base >> order) as usize) {
            self.some &= !(1 << order);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Rng;

    #[test]
    fn blocks_never_overlap_keep_to_lines_and_all_comes_back() {
        const UNITS: u32 = 4096;
        let mut buddy = Buddy::new(UNITS as usize);
        let mut taken = vec![false; UNITS as usize];
        let mut held: Vec<(u32, u32)> = Vec::new();
        let mut rng = Rng::new(1);
        let mut refused = 0;
        for _ in 0..50_000 {
            if rng.chance(52) {
                let most = if rng.chance(80) { 9 } else { 300 };
                let size = u32::try_from(rng.below(most) + 1).unwrap();
                let Some(base) = buddy.take(size) else {
                    refused += 1;
                    continue;
                };
                assert!(base / 8 == (base + size - 1) / 8 || base % 8 == 0, "{base}, {size}");
                let cells = &mut taken[base as usize..(base + size) as usize];
                assert!(cells.iter().all(|&taken| !taken));
                cells.fill(true);
                held.push((base, size));
            } else if !held.is_empty() {
                let (base, size) = held.swap_remove(rng.below(held.len()));
                taken[base as usize..(base + size) as usize].fill(false);
                buddy.give(base, size);
            }
        }
        assert!(refused > 100, "{refused}");
        held.drain(..).for_each(|(base, size)| buddy.give(base, size));
        assert_eq!(buddy.take(UNITS + 1), None);
        assert_eq!(buddy.take(UNITS), Some(0));
        assert_eq!(buddy.take(1), None);
    }
}
