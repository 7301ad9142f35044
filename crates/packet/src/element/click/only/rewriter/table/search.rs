//! A value of a pattern that no other flow has.

use super::full::BLOCK_BITS;
use super::{Key, Session};
use crate::element::click::only::rewriter::pattern::Values;

/// Values that are looked at one by one, before blocks are passed that have none.
const NEAR: u64 = 16;

/// Most values that one search looks at. Blocks that it found full are marked, so the next one begins behind them.
const MOST: u32 = 4096;

impl Session<'_> {
    /// A value whose replies are no other flow's; `None` where none is left, or none is found in time. Who calls it is
    /// the [`super::Table::maker`] of such flows.
    pub(crate) fn free_value(&mut self, key: &Key, values: &Values, now_ns: u64) -> Option<u32> {
        let count = u64::from(values.high - values.low) + 1;
        for step in 0..count.min(NEAR) {
            let at = (values.begin + step) % count;
            let value = values.low + u32::try_from(at).unwrap_or(0);
            if self.is_free(key, values, value, now_ns) {
                return Some(value);
            }
        }
        if count <= NEAR {
            return None;
        }
        self.release();
        self.searches = true;
        let found = self.far_value(key, values, now_ns);
        self.searches = false;
        if !self.freed.is_empty() {
            self.release();
            let freed = std::mem::take(&mut self.freed);
            freed.into_iter().for_each(|key| self.table.full.open(key));
        }
        found
    }

    #[inline]
    fn is_free(&mut self, key: &Key, values: &Values, value: u32, now_ns: u64) -> bool {
        #[cfg(test)]
        {
            self.looks += 1;
        }
        self.find(&values.reply_key(key, value), now_ns).is_none()
    }

    /// A value by blocks, from the one where it begins on.
    fn far_value(&mut self, key: &Key, values: &Values, now_ns: u64) -> Option<u32> {
        let table = self.table;
        let mut marks = table.full.search(values.reply_key(key, values.low), values.field);
        let (first, last) = (values.low >> BLOCK_BITS, values.high >> BLOCK_BITS);
        let count = u64::from(values.high - values.low) + 1;
        let start = (values.low + u32::try_from(values.begin % count).unwrap_or(0)) >> BLOCK_BITS;
        let mut left = MOST;
        for blocks in [start..last + 1, first..start] {
            let mut next = blocks.start;
            while next < blocks.end {
                left = left.checked_sub(1)?;
                let block = match marks.next(next) {
                    Ok(block) if block < blocks.end => block,
                    Ok(_) => break,
                    Err(window) => {
                        next = window;
                        continue;
                    }
                };
                let (begin, end) =
                    (block << BLOCK_BITS, block << BLOCK_BITS | ((1 << BLOCK_BITS) - 1));
                for value in begin.max(values.low)..=end.min(values.high) {
                    left = left.saturating_sub(1);
                    if self.is_free(key, values, value, now_ns) {
                        return Some(value);
                    }
                }
                // Of a block in part only its part is known.
                if begin >= values.low && end <= values.high {
                    marks.mark(block);
                }
                next = block + 1;
            }
        }
        None
    }
}
