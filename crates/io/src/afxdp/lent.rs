//! Which frames of the pool are in a port's rings: the book in which the port writes what it lends to
//! the kernel and strikes out what comes back.
//!
//! With it nothing depends on the kernel's word: a descriptor that names a frame which is not lent (a
//! driver's bug) is refused, and when a port closes, whatever is still lent returns to the pool.
//!
//! Shape: one bit a frame of the pool. Cost: about 1 ns a frame, lending and return together.
//!
//! Invariants that the unsafe code of this file relies on:
//! 1. A bit is set exactly while this book has forgotten the frame's `RawFrame`: `lend` sets it,
//!    `reclaim` clears it and mints the frame again, once.

use fingerpost_packet::frame::{Pool, RawFrame};

#[derive(Debug)]
pub(super) struct Lent {
    pool: Pool,
    bits: Box<[u64]>,
    count: usize,
    /// Frame size as a power of two.
    shift: u32,
}

impl Lent {
    /// An empty book for frames of `pool`.
    pub(super) fn new(pool: &Pool) -> Self {
        let bits = vec![0; pool.frames().div_ceil(64)].into();
        Self { pool: pool.clone(), bits, count: 0, shift: pool.frame_bytes().trailing_zeros() }
    }

    /// Frames that are lent.
    #[inline]
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Lends a frame, and returns its offset in the pool's memory, to be put into a ring at once.
    ///
    /// # Panics
    /// When the frame is not of the pool, or is lent: then it had two owners.
    #[inline]
    pub(super) fn lend(&mut self, frame: RawFrame) -> u64 {
        assert!(frame.is_of(&self.pool), "a frame of another pool");
        let offset = frame.offset();
        let (word, bit) = self.place(offset);
        assert!(self.bits[word] & bit == 0, "frame at {offset} is lent twice");
        self.bits[word] |= bit;
        self.count += 1;
        offset
    }

    /// The start of the frame in which `offset` lies, if it is lent; it stays so.
    #[inline]
    pub(super) fn lent(&self, offset: u64) -> Option<u64> {
        let (word, bit) = self.place(offset);
        (self.bits.get(word)? & bit != 0).then_some(offset >> self.shift << self.shift)
    }

    /// Strikes out the frame in which `offset` lies; `None` when it was not lent.
    #[inline]
    pub(super) fn reclaim(&mut self, offset: u64) -> Option<RawFrame> {
        let (word, bit) = self.place(offset);
        let bits = self.bits.get_mut(word)?;
        if *bits & bit == 0 {
            return None;
        }
        *bits &= !bit;
        self.count -= 1;
        // SAFETY: invariant 1: the frame was forgotten by `lend`, and its bit is cleared.
        unsafe { self.pool.claim(offset) }
    }

    #[inline]
    fn place(&self, offset: u64) -> (usize, u64) {
        let number = offset >> self.shift;
        // A word past the end, for an offset that is no frame's, is found out by the caller.
        (usize::try_from(number / 64).unwrap_or(usize::MAX), 1 << (number % 64))
    }
}

/// Gives back to the pool all that is lent: the socket must be closed by now.
impl Drop for Lent {
    fn drop(&mut self) {
        if self.count > 0 {
            let pool = self.pool.clone();
            let frames = pool.frames() as u64;
            pool.give_many((0..frames).filter_map(|number| self.reclaim(number << self.shift)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_back_once() {
        let pool = Pool::new(70, 2048);
        let mut lent = Lent::new(&pool);
        let mut offsets = Vec::new();
        pool.take_raw(70, |frame| offsets.push(lent.lend(frame)));
        assert_eq!((lent.count(), pool.free()), (70, 0));
        assert_eq!(lent.lent(offsets[3] + 300), Some(offsets[3]));
        let frame = lent.reclaim(offsets[3] + 300).unwrap();
        assert_eq!(frame.offset(), offsets[3]);
        assert_eq!((lent.reclaim(offsets[3]), lent.lent(offsets[3])), (None, None));
        assert_eq!((lent.count(), pool.free()), (69, 0));
        pool.give_raw(frame);
        // Past the end, within and beyond the last word.
        for offset in [70 * 2048, 128 * 2048, u64::MAX] {
            assert_eq!((lent.lent(offset), lent.reclaim(offset)), (None, None));
        }
        drop(lent);
        assert_eq!(pool.free(), 70);
        let mut seen: Vec<u64> = Vec::new();
        pool.take_raw(70, |frame| seen.push(frame.offset()));
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 70, "each frame once");
    }

    #[test]
    #[should_panic(expected = "lent twice")]
    fn a_frame_with_two_owners_is_found() {
        let pool = Pool::new(2, 2048);
        let mut lent = Lent::new(&pool);
        let mut frames = Vec::new();
        pool.take_raw(1, |frame| frames.push(frame));
        let offset = lent.lend(frames.pop().unwrap());
        // SAFETY: it does not hold, which is the point.
        lent.lend(unsafe { pool.claim(offset) }.unwrap());
    }
}
