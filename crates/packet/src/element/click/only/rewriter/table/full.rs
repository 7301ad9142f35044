//! Which blocks of the values of a pattern are taken to the last one, so that nobody looks through them for a free one.
//!
//! Values are ports or addresses. Replies that differ in nothing else are a group, and 64 neighbors of a group are a
//! block. A search that found a whole block taken marks it, and a flow that ends opens its block. So each value of a
//! block is looked at once for all, and at most 128 for each flow that ended, and 64 marked blocks are passed at a
//! step: constant time a flow, also where nearly all are taken.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard};

use super::super::lock;
use super::super::pattern::{Field, FlowId};
use super::Key;

/// Values of a block.
pub(super) const BLOCK_BITS: u32 = 6;

/// Blocks that are marked together: those of all ports.
const WINDOW_BITS: u32 = 10;
const WINDOW: u32 = 1 << WINDOW_BITS;

/// The key of replies without the part that differs, and the window of that.
type Group = (Key, Field, u32);

type Windows = HashMap<Group, [u64; WINDOW as usize / 64]>;

/// The marks of a table.
#[derive(Debug, Default)]
pub(super) struct Full {
    windows: Mutex<Windows>,
    /// Number of present searches and of windows with a mark: 0 where ports are plenty.
    active: AtomicUsize,
}

/// The marks, locked during a search.
pub(super) struct Marks<'a> {
    full: &'a Full,
    windows: MutexGuard<'a, Windows>,
    key: Key,
    field: Field,
}

fn group(key: Key, field: Field, block: u32) -> Group {
    let id = match field {
        Field::Port => FlowId { dport: 0, ..key.id },
        Field::Addr => FlowId { dst: 0, ..key.id },
    };
    (Key { id, ..key }, field, block >> WINDOW_BITS)
}

fn bit(block: u32) -> (usize, u64) {
    let at = block & (WINDOW - 1);
    ((at / 64) as usize, 1 << (at % 64))
}

impl Full {
    /// Begins a search for a value of replies like this one. No flow that ends from now on is missed.
    pub(super) fn search(&self, key: Key, field: Field) -> Marks<'_> {
        let windows = lock(&self.windows);
        // SeqCst, with the load in `is_idle`: who removed a flow before this is seen by the search, who does later sees this.
        self.active.fetch_add(1, SeqCst);
        Marks { full: self, windows, key, field }
    }

    /// Whether there is no mark and no present search.
    pub(super) fn is_idle(&self) -> bool {
        self.active.load(SeqCst) == 0
    }

    /// The value of a flow's replies is free again.
    pub(super) fn open(&self, key: Key) {
        let mut windows = lock(&self.windows);
        for (field, value) in [(Field::Port, key.id.dport.into()), (Field::Addr, key.id.dst)] {
            let block = value >> BLOCK_BITS;
            let group = group(key, field, block);
            let Some(words) = windows.get_mut(&group) else { continue };
            let (word, bit) = bit(block);
            words[word] &= !bit;
            if words.iter().all(|&word| word == 0) {
                windows.remove(&group);
                self.active.fetch_sub(1, SeqCst);
            }
        }
    }
}

impl Marks<'_> {
    /// The first block from this one on that is not marked, in its window, or else where the next window begins.
    pub(super) fn next(&self, block: u32) -> Result<u32, u32> {
        let Some(words) = self.windows.get(&group(self.key, self.field, block)) else {
            return Ok(block);
        };
        let window = block & !(WINDOW - 1);
        let (first, bit) = bit(block);
        // Blocks before it are none that it may be.
        let mut below = bit - 1;
        for (at, &word) in (0..).zip(words).skip(first) {
            let open = !(word | below);
            below = 0;
            if open != 0 {
                return Ok(window + at * 64 + open.trailing_zeros());
            }
        }
        Err(window.saturating_add(WINDOW))
    }

    /// Marks a block, all of whose values were just found taken.
    pub(super) fn mark(&mut self, block: u32) {
        let words = self.windows.entry(group(self.key, self.field, block)).or_insert_with(|| {
            self.full.active.fetch_add(1, SeqCst);
            Default::default()
        });
        let (word, bit) = bit(block);
        words[word] |= bit;
    }
}

impl Drop for Marks<'_> {
    fn drop(&mut self) {
        self.full.active.fetch_sub(1, SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marked_blocks_are_passed_until_they_open() {
        let full = Full::default();
        let key = Key { owner: 1, protocol: 6, id: FlowId::default() };
        let at = |port| Key { id: FlowId { dport: port, ..key.id }, ..key };
        let mut marks = full.search(key, Field::Port);
        assert_eq!((marks.next(5), full.is_idle()), (Ok(5), false));
        (5..1024).for_each(|block| marks.mark(block));
        assert_eq!((marks.next(4), marks.next(5), marks.next(700)), (Ok(4), Err(1024), Err(1024)));
        assert_eq!(marks.next(1024), Ok(1024));
        drop(marks);
        full.open(at(5));
        full.open(at(700 << 6 | 63));
        let marks = full.search(at(9), Field::Port);
        assert_eq!((marks.next(5), marks.next(701)), (Ok(700), Err(1024)));
        drop(marks);
        (5..1024).for_each(|block| full.open(at(block << 6)));
        assert!(full.is_idle());
    }
}
