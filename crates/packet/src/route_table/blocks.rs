//! A list that grows while others read it: blocks of doubling size that never move, so that readers need no
//! lock. A number is given out when its item is in place.
//!
//! Cost: a read is two loads, and those of the item.

use std::sync::OnceLock;

/// Items in the first block.
const FIRST: u32 = 256;
/// Blocks: 2^24 items.
const BLOCKS: usize = 16;

/// Items by number, from 0.
#[derive(Debug, Default)]
pub(crate) struct Blocks<T> {
    blocks: [OnceLock<Box<[T]>>; BLOCKS],
}

impl<T> Blocks<T> {
    /// How many there can be.
    pub(crate) const MOST: u32 = (FIRST << BLOCKS) - FIRST;

    /// The item of a number; `None` where there is none yet.
    #[inline]
    pub(crate) fn get(&self, number: u32) -> Option<&T> {
        let (block, at) = place(number);
        self.blocks.get(block)?.get()?.get(at)
    }
}

impl<T: Default> Blocks<T> {
    /// The same, made where there is none; `None` from [`Self::MOST`] on.
    pub(crate) fn make(&self, number: u32) -> Option<&T> {
        let (block, at) = place(number);
        let items = self.blocks.get(block)?;
        items.get_or_init(|| (0..FIRST << block).map(|_| T::default()).collect()).get(at)
    }
}

/// Block of a number, and where in it: the first has numbers 0 to 255, the next 256 to 767, and so on.
#[inline]
fn place(number: u32) -> (usize, usize) {
    let block = (number.saturating_add(FIRST) / FIRST).ilog2();
    (block as usize, (number - ((FIRST << block) - FIRST)) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_follow_one_another() {
        assert_eq!((place(0), place(255), place(256)), ((0, 0), (0, 255), (1, 0)));
        assert_eq!((place(767), place(768)), ((1, 511), (2, 0)));
        assert_eq!(place(Blocks::<u8>::MOST - 1).0, BLOCKS - 1);
        assert_eq!(place(Blocks::<u8>::MOST).0, BLOCKS);
        let blocks = Blocks::<u8>::default();
        assert_eq!(
            (blocks.get(256), blocks.make(256), blocks.get(256)),
            (None, Some(&0), Some(&0))
        );
        assert_eq!((blocks.get(0), blocks.make(Blocks::<u8>::MOST)), (None, None));
    }
}
