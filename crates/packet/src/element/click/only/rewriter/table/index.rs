//! Index from the hash of a key to numbers of flows: extendible hashing in segments of a page.
//!
//! Source: Fagin, Nievergelt, Pippenger, Strong, ACM TODS 4(3), 1979. Shape: a directory of segments by the middle bits
//! of a tag; a segment has 512 slots, probed one after the other from the place that the low bits name. A slot holds
//! the tag (32 bits of the key's hash) and the number of a flow. Cost: a lookup reads the directory and one or two
//! cache lines of a segment. A segment that is full is split in two, with what its slots hold and nothing else: growth
//! never stops for the whole table, apart from the directory, which is copied when it doubles (4 bytes for some 300
//! keys). Memory is not given back. Limits: 2^23 segments.

use fingerpost_lpm::mem::prefetch;

use super::chunks::Chunks;

/// Slots of a segment: a page.
const SLOTS: usize = 512;
const MASK: usize = SLOTS - 1;

/// Bits of a tag that name the place in a segment.
const PLACE_BITS: u32 = SLOTS.trailing_zeros();

/// Slots in use at which a segment is split: longer searches cost more than the memory.
const FULL: u16 = 400;

/// Bits of a tag that are left for the directory.
const MOST_DEPTH: u32 = 32 - PLACE_BITS;

/// Segments of a chunk.
const CHUNK: usize = 16;

/// `tag << 32 | number + 1`; 0 where there is none.
#[derive(Clone, Debug)]
#[repr(align(64))]
struct Slots([u64; SLOTS]);

impl Default for Slots {
    fn default() -> Self {
        Self([0; SLOTS])
    }
}

/// What is known of a segment besides its slots.
#[derive(Clone, Copy, Default, Debug)]
struct Head {
    used: u16,
    /// Bits of the directory that its keys share.
    depth: u8,
}

/// The index.
#[derive(Debug, Default)]
pub(super) struct Index {
    directory: Vec<u32>,
    depth: u32,
    segments: Chunks<Slots, CHUNK>,
    heads: Vec<Head>,
}

#[inline]
fn slot_of(tag: u32, number: u32) -> u64 {
    u64::from(tag) << 32 | (u64::from(number) + 1)
}

#[inline]
#[allow(clippy::cast_possible_truncation, reason = "takes the halves of a slot")]
fn parts(slot: u64) -> (u32, u32) {
    ((slot >> 32) as u32, (slot as u32).wrapping_sub(1))
}

#[inline]
fn place(tag: u32) -> usize {
    tag as usize & MASK
}

impl Index {
    #[inline]
    fn segment(&self, tag: u32) -> Option<usize> {
        let at = (tag >> PLACE_BITS) as usize & ((1 << self.depth) - 1);
        self.directory.get(at).map(|&segment| segment as usize)
    }

    /// The first number with this tag for which `is_it` holds.
    #[inline]
    pub(super) fn find(&self, tag: u32, mut is_it: impl FnMut(u32) -> bool) -> Option<u32> {
        let slots = &self.segments[self.segment(tag)?].0;
        let mut at = place(tag);
        for _ in 0..SLOTS {
            let slot = slots[at];
            if slot == 0 {
                return None;
            }
            let (own, number) = parts(slot);
            if own == tag && is_it(number) {
                return Some(number);
            }
            at = (at + 1) & MASK;
        }
        None
    }

    /// Prefetches the slots of a tag.
    #[inline]
    pub(super) fn prefetch(&self, tag: u32) {
        if let Some(segment) = self.segment(tag) {
            prefetch(&self.segments[segment].0[place(tag)]);
        }
    }

    /// Adds a number under a tag; false where there is no more place.
    pub(super) fn insert(&mut self, tag: u32, number: u32) -> bool {
        if self.directory.is_empty() {
            self.segments.push();
            self.heads.push(Head::default());
            self.directory.push(0);
        }
        while let Some(segment) = self.segment(tag) {
            if self.heads[segment].used < FULL {
                self.heads[segment].used += 1;
                put(&mut self.segments[segment], slot_of(tag, number));
                return true;
            }
            if !self.split(segment, tag) {
                break;
            }
        }
        false
    }

    /// Splits a segment, which holds keys of this tag's; false where the directory is as deep as it can be.
    fn split(&mut self, segment: usize, tag: u32) -> bool {
        let depth = u32::from(self.heads[segment].depth);
        let Ok(new) = u32::try_from(self.segments.len()) else { return false };
        if depth == MOST_DEPTH {
            return false;
        }
        if depth == self.depth {
            self.directory.extend_from_within(..);
            self.depth += 1;
        }
        let other = self.segments.push();
        let depth_now = self.heads[segment].depth + 1;
        self.heads[segment] = Head { used: 0, depth: depth_now };
        self.heads.push(self.heads[segment]);
        // Places of the directory that share the segment's bits, with the next bit set.
        let step = 1 << (depth + 1);
        let first = (tag >> PLACE_BITS) as usize & ((1 << depth) - 1) | 1 << depth;
        for at in (first..self.directory.len()).step_by(step) {
            self.directory[at] = new;
        }
        let slots = std::mem::take(&mut self.segments[segment]);
        for slot in slots.0.into_iter().filter(|&slot| slot != 0) {
            let (tag, _) = parts(slot);
            let to = if tag >> (PLACE_BITS + depth) & 1 == 1 { other } else { segment };
            self.heads[to].used += 1;
            put(&mut self.segments[to], slot);
        }
        true
    }

    /// Removes a number from under its tag.
    pub(super) fn remove(&mut self, tag: u32, number: u32) {
        let Some(segment) = self.segment(tag) else { return };
        let slots = &mut self.segments[segment].0;
        let wanted = slot_of(tag, number);
        let mut at = place(tag);
        while slots[at] != wanted {
            if slots[at] == 0 {
                return;
            }
            at = (at + 1) & MASK;
        }
        // Those behind move up, as far as the places that they began at allow.
        let mut next = (at + 1) & MASK;
        while slots[next] != 0 {
            let begin = place(parts(slots[next]).0);
            if next.wrapping_sub(begin) & MASK >= next.wrapping_sub(at) & MASK {
                slots[at] = slots[next];
                at = next;
            }
            next = (next + 1) & MASK;
        }
        slots[at] = 0;
        self.heads[segment].used -= 1;
    }

    /// Keys in it.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.heads.iter().map(|head| usize::from(head.used)).sum()
    }

    /// Bytes of memory.
    pub(super) fn bytes(&self) -> usize {
        self.segments.bytes()
            + self.directory.capacity() * size_of::<u32>()
            + self.heads.capacity() * size_of::<Head>()
    }
}

/// Puts a slot into a segment that has place.
#[inline]
fn put(slots: &mut Slots, slot: u64) {
    let mut at = place(parts(slot).0);
    while slots.0[at] != 0 {
        at = (at + 1) & MASK;
    }
    slots.0[at] = slot;
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use fingerpost_lpm::Rng;

    use super::*;

    #[test]
    fn numbers_are_found_as_in_a_set() {
        let mut random = Rng::new(3);
        let mut tag = || u32::try_from(random.word() >> 32).unwrap();
        let (mut index, mut model) = (Index::default(), HashSet::new());
        for number in 0..20_000 {
            // Runs of one tag, and tags that differ in few bits.
            let tag = if number % 5 == 0 { (number % 64) << 20 } else { tag() };
            assert!(index.insert(tag, number));
            model.insert((tag, number));
            if number % 3 == 0 {
                let gone = *model.iter().next().unwrap();
                index.remove(gone.0, gone.1);
                model.remove(&gone);
            }
        }
        assert!(index.segments.len() > 30);
        assert_eq!(index.len(), model.len());
        for &(tag, number) in &model {
            assert_eq!(index.find(tag, |found| found == number), Some(number));
            index.remove(tag, number);
            index.remove(tag, number);
            assert_eq!(index.find(tag, |found| found == number), None);
        }
        assert_eq!(index.len(), 0);
    }

    #[test]
    fn one_tag_for_all_is_refused_when_no_bit_is_left() {
        let mut index = Index::default();
        // The top bits are those of the directory: keys that share all 32 cannot be parted.
        let taken = (0..1000).take_while(|&number| index.insert(7, number)).count();
        assert_eq!(taken, usize::from(FULL));
    }
}
