//! Both ends of the frames of a batch: bytes are cut off and come back, and frames grow into free bytes. Invariants are
//! those of `buf/mod.rs`.

use super::{Batch, HEADROOM};

impl Batch {
    /// Cuts the frame of packet `i` down to `len` bytes; longer is left as it is.
    #[inline]
    pub fn truncate(&mut self, i: usize, len: usize) {
        let slot = &mut self.slots[..self.len][i];
        slot.len = slot.len.min(u16::try_from(len).unwrap_or(u16::MAX));
    }

    /// Grows the frame of packet `i` at its end; new bytes hold whatever was there. `false` when there is no room.
    pub fn lengthen(&mut self, i: usize, bytes: usize) -> bool {
        let (frames, most) = (self.pool.0.frames, usize::from(self.pool.0.frame_bytes));
        let slot = &mut self.slots[..self.len][i];
        let grown = usize::from(slot.len).saturating_add(bytes);
        // A hole stays one (invariant 5), and the packet stays in its frame (invariant 3).
        match u16::try_from(grown) {
            Ok(len) if slot.frame != frames && usize::from(slot.start) + grown <= most => {
                slot.len = len;
                true
            }
            _ => false,
        }
    }

    /// Grows the frame of packet `i` at its front into the headroom; `false` when there is no room.
    pub fn push_front(&mut self, i: usize, bytes: u16) -> bool {
        self.slots[..self.len][i].push_front(bytes)
    }

    /// Free bytes in the frame of packet `i`, before the packet and behind it.
    pub fn free_bytes(&self, i: usize) -> (usize, usize) {
        let slot = self.slots[..self.len][i];
        let (start, len) = (usize::from(slot.start), usize::from(slot.len));
        (start, usize::from(self.pool.frame_bytes()).saturating_sub(start + len))
    }

    /// Number of bytes that were cut off the front of packet `i` as it was received; they are still there.
    #[inline]
    pub fn cut_off(&self, i: usize) -> u16 {
        let slot = self.slots[..self.len][i];
        // A hole has none (invariant 5).
        if slot.frame == self.pool.0.frames { 0 } else { slot.start.saturating_sub(HEADROOM) }
    }

    /// Cuts bytes off the front of packet `i`; `false` when there are fewer.
    pub fn pull_front(&mut self, i: usize, bytes: u16) -> bool {
        self.slots[..self.len][i].pull_front(bytes)
    }
}
