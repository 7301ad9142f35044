//! Index from the hash of a key to numbers of flows: extendible hashing in segments of a page.
//!
//! Source: Fagin, Nievergelt, Pippenger, Strong, ACM TODS 4(3), 1979. Shape: a directory of segments by the middle bits
//! of a tag; a segment has 64 cache lines of 8 slots, probed one after the other from the line that the low bits name. A
//! slot holds the tag (32 bits of the key's hash) and the number of a flow; those of a line that are in use are its first
//! ones. Cost: a lookup reads the directory and one cache line of a segment, whose tags it compares all at once; of a
//! segment that is nearly full, some keys are in lines behind their own. A segment that is full is split in two, with what its slots hold and nothing else: growth
//! never stops for the whole table, apart from the directory, which is copied when it doubles (4 bytes for some 300
//! keys). Memory is not given back. Limits: 2^23 segments.

use fingerpost_lpm::mem::prefetch;

use super::chunks::Chunks;

/// Slots of a cache line.
const WIDE: usize = 8;

/// Lines of a segment, which is a page.
const LINES: usize = 64;
const MASK: usize = LINES - 1;

/// Bits of a tag that name the place in a segment.
const PLACE_BITS: u32 = (LINES * WIDE).trailing_zeros();

/// Slots in use at which a segment is split: longer searches cost more than the memory.
const FULL: u16 = 400;

/// Bits of a tag that are left for the directory.
const MOST_DEPTH: u32 = 32 - PLACE_BITS;

/// Segments of a chunk.
const CHUNK: usize = 16;

/// Cache line of slots: tags, and numbers plus 1. Both are 0 where there is none.
#[derive(Clone, Copy, Default, Debug)]
#[repr(C, align(64))]
pub(crate) struct Line {
    tags: [u32; WIDE],
    numbers: [u32; WIDE],
}

impl Line {
    pub(crate) const EMPTY: Self = Self { tags: [0; WIDE], numbers: [0; WIDE] };

    /// Which slots have a tag, a bit each. Those without a number have tag 0.
    #[inline(always)]
    fn having(&self, tag: u32) -> u32 {
        let bits = self.tags.iter().enumerate();
        bits.fold(0, |bits, (at, &own)| bits | u32::from(own == tag) << at)
    }

    /// The number of a tag, 0 where it has none here: of several with the tag, all their bits. No branch depends on where it
    /// is.
    #[inline(always)]
    fn only(&self, tag: u32) -> u32 {
        let slots = self.tags.iter().zip(&self.numbers);
        slots.fold(0, |all, (&own, &number)| all | if own == tag { number } else { 0 })
    }

    #[inline(always)]
    fn is_full(&self) -> bool {
        self.numbers[WIDE - 1] != 0
    }

    fn slots(self) -> impl Iterator<Item = Slot> {
        let slots = self.tags.into_iter().zip(self.numbers);
        slots.map(|(tag, number)| Slot { tag, number }).take_while(|slot| slot.number != 0)
    }

    /// Adds a slot behind the others; false where the line is full.
    fn push(&mut self, slot: Slot) -> bool {
        let Some(at) = self.numbers.iter().position(|&number| number == 0) else { return false };
        (self.tags[at], self.numbers[at]) = (slot.tag, slot.number);
        true
    }

    /// Takes a slot out, into whose place the last one moves.
    fn take(&mut self, at: usize) -> Slot {
        let last = self.numbers.iter().rposition(|&number| number != 0).unwrap_or(at);
        let taken = Slot { tag: self.tags[at], number: self.numbers[at] };
        (self.tags[at], self.numbers[at]) = (self.tags[last], self.numbers[last]);
        (self.tags[last], self.numbers[last]) = (0, 0);
        taken
    }
}

/// A slot in use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Slot {
    tag: u32,
    /// Number of the flow, plus 1.
    number: u32,
}

/// The slots of a segment. Of a key that is not in the line of its tag, all lines from there to its own are full.
#[derive(Clone, Debug)]
struct Slots([Line; LINES]);

impl Default for Slots {
    fn default() -> Self {
        Self([Line::default(); LINES])
    }
}

impl Slots {
    /// Adds a slot; there is place.
    fn put(&mut self, slot: Slot) {
        let mut at = line(slot.tag);
        while !self.0[at].push(slot) {
            at = (at + 1) & MASK;
        }
    }

    /// A slot behind a line that belongs into that or one before it, if the full lines from it on lead to one.
    fn behind(&self, hole: usize) -> Option<(usize, usize)> {
        for step in 1..LINES {
            let at = (hole + step) & MASK;
            let belongs = |slot: Slot| at.wrapping_sub(line(slot.tag)) & MASK >= step;
            if let Some(found) = self.0[at].slots().position(belongs) {
                return Some((at, found));
            }
            if !self.0[at].is_full() {
                break;
            }
        }
        None
    }

    /// Removes a slot; false where it is none of them.
    fn remove(&mut self, slot: Slot) -> bool {
        let begin = line(slot.tag);
        let lines = (0..LINES).map(|step| (begin + step) & MASK);
        let mut found = None;
        for at in lines {
            found = self.0[at].slots().position(|own| own == slot).map(|place| (at, place));
            if found.is_some() || !self.0[at].is_full() {
                break;
            }
        }
        let Some((mut hole, place)) = found else { return false };
        let mut was_full = self.0[hole].is_full();
        self.0[hole].take(place);
        while was_full && let Some((at, place)) = self.behind(hole) {
            was_full = self.0[at].is_full();
            let moved = self.0[at].take(place);
            self.0[hole].push(moved);
            hole = at;
        }
        true
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

/// The line of a tag.
#[inline(always)]
fn line(tag: u32) -> usize {
    (tag as usize / WIDE) & MASK
}

impl Index {
    #[inline(always)]
    fn segment(&self, tag: u32) -> Option<usize> {
        // It has `1 << depth` places, or none.
        let at = (tag >> PLACE_BITS) as usize & self.directory.len().wrapping_sub(1);
        self.directory.get(at).map(|&segment| segment as usize)
    }

    /// The first number with this tag for which `is_it` holds.
    #[inline]
    pub(super) fn find(&self, tag: u32, mut is_it: impl FnMut(u32) -> bool) -> Option<u32> {
        let lines = &self.segments[self.segment(tag)?].0;
        let mut at = line(tag);
        for _ in 0..LINES {
            let line = &lines[at];
            let mut bits = line.having(tag);
            while bits != 0 {
                let number = line.numbers[bits.trailing_zeros() as usize % WIDE];
                if number != 0 && is_it(number - 1) {
                    return Some(number - 1);
                }
                bits &= bits - 1;
            }
            if !line.is_full() {
                return None;
            }
            at = (at + 1) & MASK;
        }
        None
    }

    /// Prefetches the line of a tag, and gives it for [`Self::likely`].
    #[inline(always)]
    pub(super) fn ahead(&self, tag: u32) -> &Line {
        let segment = self.segment(tag).and_then(|segment| self.segments.get(segment));
        let Some(segment) = segment else { return &Line::EMPTY };
        let line = &segment.0[line(tag)];
        prefetch(line);
        line
    }

    /// The number that is most likely that of a tag, by what [`Self::ahead`] gave. A guess: it may be no number at all.
    #[inline(always)]
    pub(super) fn likely(&self, line: &Line, tag: u32) -> Option<u32> {
        match line.only(tag) {
            0 => self.further(line, tag),
            number => Some(number - 1),
        }
    }

    /// The number of a tag that is not in its own line. Apart from [`Self::likely`], so that
    /// only such a tag has its line checked for being full: for others that branch would be mispredicted half the time.
    #[cold]
    #[inline(never)]
    fn further(&self, line: &Line, tag: u32) -> Option<u32> {
        if line.is_full() { self.find(tag, |_| true) } else { None }
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
                self.segments[segment].put(Slot { tag, number: number + 1 });
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
        for slot in slots.0.into_iter().flat_map(Line::slots) {
            let one = slot.tag >> (PLACE_BITS + depth) & 1 == 1;
            let to = if one { other } else { segment };
            self.heads[to].used += 1;
            self.segments[to].put(slot);
        }
        true
    }

    /// Removes a number from under its tag.
    pub(super) fn remove(&mut self, tag: u32, number: u32) {
        let Some(segment) = self.segment(tag) else { return };
        if self.segments[segment].remove(Slot { tag, number: number + 1 }) {
            self.heads[segment].used -= 1;
        }
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
