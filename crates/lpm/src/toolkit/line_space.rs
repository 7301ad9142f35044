//! Free space of the heap, by the rule that a block of at most a line never straddles two.
//!
//! The writer's own bookkeeping. Small blocks (up to 8 words) share lines; a line is known by a byte
//! of which words are taken, and stands in the list of the longest gap it has. Longer blocks take
//! whole lines from a [`Extents`]. Taking and giving a small block is a few instructions, because an
//! update does both.

use alloc::vec;
use alloc::vec::Vec;

use crate::mem::LINE_BYTES;
use crate::toolkit::extents::Extents;

/// Words of 8 bytes in a cache line.
pub(crate) const LINE_WORDS: usize = LINE_BYTES / 8;

/// Where the blocks of the heap are. All places and sizes are in words.
#[derive(Debug)]
pub(crate) struct LineSpace {
    lines: Extents,
    /// Which words of a line small blocks have taken.
    taken: Vec<u8>,
    /// The list in which a line stands, and its neighbours there.
    links: Vec<Link>,
    /// First lines of the lists of those whose longest gap is the index.
    heads: [u32; LINE_WORDS + 1],
}

/// A line's place in a list; `list` 0 is none.
#[derive(Clone, Copy, Debug)]
struct Link {
    list: u8,
    next: u32,
    before: u32,
}

/// No line.
const NIL: u32 = u32::MAX;

/// The longest gap of a line, and for each length the first place that has such a gap.
struct Gaps {
    longest: u8,
    first: [u8; LINE_WORDS + 1],
}

/// Gaps by the byte of a line.
#[allow(clippy::cast_possible_truncation, reason = "at most 8")]
static GAPS: [Gaps; 256] = {
    let mut all = [const { Gaps { longest: 0, first: [0; LINE_WORDS + 1] } }; 256];
    let mut taken = 0;
    while taken < 256 {
        let mut length = LINE_WORDS;
        while length > 0 {
            let block = (1 << length) - 1;
            let mut place = LINE_WORDS - length + 1;
            while place > 0 {
                place -= 1;
                if taken & (block << place) == 0 {
                    all[taken].first[length] = place as u8;
                    if all[taken].longest == 0 {
                        all[taken].longest = length as u8;
                    }
                }
            }
            length -= 1;
        }
        taken += 1;
    }
    all
};

#[allow(clippy::cast_possible_truncation, reason = "regions are smaller than 2^32 words")]
impl LineSpace {
    /// A heap of so many words, of which the first `used` are never given out.
    pub(crate) fn new(capacity: usize, used: usize) -> Self {
        let lines = capacity / LINE_WORDS;
        let first = used.div_ceil(LINE_WORDS).min(lines);
        Self {
            lines: Extents::new(lines as u32, first as u32),
            taken: vec![0; lines],
            links: vec![Link { list: 0, next: NIL, before: NIL }; lines],
            heads: [NIL; LINE_WORDS + 1],
        }
    }

    /// Takes a block. `None` when there is no place for it.
    pub(crate) fn take(&mut self, words: usize) -> Option<u32> {
        let place = if words > LINE_WORDS {
            self.lines.take(words.div_ceil(LINE_WORDS) as u32)? * LINE_WORDS as u32
        } else {
            let line = self.line_for(words)?;
            let place = GAPS[usize::from(self.taken[line as usize])].first[words];
            self.taken[line as usize] |= bits(words) << place;
            self.list(line);
            line * LINE_WORDS as u32 + u32::from(place)
        };
        Some(place)
    }

    /// Gives back a block that no reader can hold.
    pub(crate) fn give(&mut self, place: u32, words: usize) {
        let line = place / LINE_WORDS as u32;
        if words > LINE_WORDS {
            self.lines.give((line, words.div_ceil(LINE_WORDS) as u32));
            return;
        }
        let taken = &mut self.taken[line as usize];
        *taken &= !(bits(words) << (place as usize % LINE_WORDS));
        if *taken == 0 {
            self.unlist(line);
            self.lines.give((line, 1));
        } else {
            self.list(line);
        }
    }

    /// A line with a gap of so many words: of those with the tightest, or a new one.
    fn line_for(&mut self, words: usize) -> Option<u32> {
        let line = self.heads[words..].iter().copied().find(|&line| line != NIL);
        line.or_else(|| self.lines.take(1))
    }

    /// Puts a line into the list of its longest gap.
    fn list(&mut self, line: u32) {
        let longest = GAPS[usize::from(self.taken[line as usize])].longest;
        if self.links[line as usize].list == longest {
            return;
        }
        self.unlist(line);
        if longest > 0 {
            let next = core::mem::replace(&mut self.heads[usize::from(longest)], line);
            self.links[line as usize] = Link { list: longest, next, before: NIL };
            if next != NIL {
                self.links[next as usize].before = line;
            }
        }
    }

    fn unlist(&mut self, line: u32) {
        let Link { list, next, before } = self.links[line as usize];
        if list == 0 {
            return;
        }
        self.links[line as usize].list = 0;
        match before {
            NIL => self.heads[usize::from(list)] = next,
            before => self.links[before as usize].next = next,
        }
        if next != NIL {
            self.links[next as usize].before = before;
        }
    }
}

fn bits(words: usize) -> u8 {
    u8::MAX >> (LINE_WORDS - words)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Rng;

    #[test]
    fn blocks_keep_to_their_lines_and_all_comes_back() {
        const CAPACITY: usize = 4096;
        let mut space = LineSpace::new(CAPACITY, 20);
        let mut owner = vec![false; CAPACITY];
        let mut held: Vec<(u32, usize)> = Vec::new();
        let mut rng = Rng::new(1);
        let mut refused = 0;
        for _ in 0..50_000 {
            if rng.chance(53) {
                let most = if rng.chance(90) { 7 } else { 32 };
                let words = rng.below(most) + 2;
                let Some(place) = space.take(words) else {
                    refused += 1;
                    continue;
                };
                let (first, last) = (place as usize, place as usize + words - 1);
                assert!(first >= 24 && last < CAPACITY, "{first}..={last}");
                assert!(first / 8 == last / 8 || (words > 8 && first % 8 == 0));
                assert!(owner[first..=last].iter().all(|&taken| !taken), "taken twice");
                owner[first..=last].fill(true);
                held.push((place, words));
            } else if !held.is_empty() {
                let (place, words) = held.swap_remove(rng.below(held.len()));
                owner[place as usize..place as usize + words].fill(false);
                space.give(place, words);
            }
        }
        assert!(refused > 0, "the test fills the heap");
        held.drain(..).for_each(|(place, words)| space.give(place, words));
        // Whole again: as many lines as there ever were, as one block.
        assert_eq!(space.take(CAPACITY - 24), Some(24));
        assert_eq!(space.take(1), None);
    }

    #[test]
    fn the_tightest_gap_is_taken() {
        let mut space = LineSpace::new(64, 0);
        let (a, b) = (space.take(6).unwrap(), space.take(4).unwrap());
        assert_ne!(a / 8, b / 8, "6 and 4 words do not share a line of 8");
        assert_eq!(space.take(2), Some(a + 6));
        assert_eq!(space.take(3), Some(b + 4));
        space.give(a, 6);
        assert_eq!(space.take(5), Some(a));
    }
}
