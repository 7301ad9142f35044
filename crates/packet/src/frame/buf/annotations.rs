//! Annotations that few packets have: 80 bytes at the end of a frame, behind what the packet may fill.
//!
//! Source: Click's annotations of packets, of which [`super::Meta`] has those that routers need. What they mean is known
//! to the elements of Click alone (`element/click/only/annotations.rs`). They travel with the frame and are copied with
//! it. A packet that reaches into them has none; one that did and is shorter again has what it wrote there. Cost: nothing to a packet without them.
//!
//! Invariants that the unsafe code of this file relies on, those of `buf/mod.rs` besides:
//! 1. The slot that [`place`] gives lies in the frame of the packet's own slot, which is borrowed from its one owner as long as
//!    the bytes are.
//! 2. It begins at or behind the end of the packet's bytes, so that no byte is of both.

use super::{Batch, Packet, Pool, Slot};

/// Length of the annotations of a packet.
const BYTES: u16 = 80;

/// Length of the annotations of a packet, as that of an array.
pub const ANNOTATION_BYTES: usize = BYTES as usize;
/// Place of the number of the aggregate in them.
pub(crate) const AGGREGATE_AT: usize = 16;
/// Place of those without a name.
pub(crate) const NUMBERED_AT: usize = 32;

/// Where they lie in the frame of a slot; `None` where the packet reaches into them.
fn place(pool: &Pool, slot: Slot) -> Option<Slot> {
    let start = pool.frame_bytes() - BYTES;
    let end = u32::from(slot.start) + u32::from(slot.len);
    (end <= u32::from(start)).then_some(Slot { frame: slot.frame, start, len: BYTES })
}

/// Annotations of a packet in this slot, if it has any.
fn read<'a>(pool: &'a Pool, slot: &'a Slot, annotated: bool) -> Option<&'a [u8; ANNOTATION_BYTES]> {
    let slot = place(pool, *slot).filter(|_| annotated)?;
    // SAFETY: invariant 1.
    let bytes = unsafe { std::slice::from_raw_parts(pool.slice(slot), slot.len.into()) };
    bytes.first_chunk()
}

/// Annotations of a packet in this slot, zeros where it had none; `None` where there is no room for them.
fn write<'a>(
    pool: &'a Pool,
    slot: &'a mut Slot,
    annotated: &mut bool,
) -> Option<&'a mut [u8; ANNOTATION_BYTES]> {
    let slot = place(pool, *slot)?;
    let start = pool.slice(slot);
    // SAFETY: invariants 1 and 2.
    let bytes = unsafe { std::slice::from_raw_parts_mut(start, slot.len.into()) };
    if !std::mem::replace(annotated, true) {
        bytes.fill(0);
    }
    bytes.first_chunk_mut()
}

impl Packet {
    /// Annotations of the packet, if it has any.
    pub fn annotations(&self) -> Option<&[u8; ANNOTATION_BYTES]> {
        read(&self.pool, &self.slot, self.meta.annotated)
    }

    /// Annotations of the packet, zeros where it had none; `None` where there is no room for them.
    pub fn annotations_mut(&mut self) -> Option<&mut [u8; ANNOTATION_BYTES]> {
        write(&self.pool, &mut self.slot, &mut self.meta.annotated)
    }

    /// Gives another packet, which has the metadata of this one, its annotations.
    pub(crate) fn copy_annotations(&self, copy: &mut Self) {
        give(self.annotations(), copy);
    }
}

fn give(from: Option<&[u8; ANNOTATION_BYTES]>, copy: &mut Packet) {
    copy.meta.annotated = false;
    if let Some(bytes) = from
        && let Some(to) = copy.annotations_mut()
    {
        *to = *bytes;
    }
}

impl Batch {
    /// Annotations of packet `i`, if it has any.
    pub fn annotations(&self, i: usize) -> Option<&[u8; ANNOTATION_BYTES]> {
        read(&self.pool, &self.slots[..self.len][i], self.meta[i].annotated)
    }

    /// Annotations of packet `i`, zeros where it had none; `None` where there is no room for them.
    pub fn annotations_mut(&mut self, i: usize) -> Option<&mut [u8; ANNOTATION_BYTES]> {
        write(&self.pool, &mut self.slots[..self.len][i], &mut self.meta[i].annotated)
    }

    /// Gives a copy of packet `i` its annotations.
    pub(super) fn copy_annotations(&self, i: usize, copy: &mut Packet) {
        give(self.annotations(i), copy);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::batch;

    #[test]
    fn they_stay_with_their_packet() {
        let pool = Pool::new(4, 2048);
        let mut batch = batch(&pool, 0, [&[1_u8][..], &[2]]);
        assert_eq!(batch.annotations(0), None);
        batch.annotations_mut(0).unwrap()[3] = 7;
        assert!(batch.annotations(0).unwrap()[3] == 7 && batch.annotations(1).is_none());
        let copy = batch.copy(0).unwrap();
        batch.annotations_mut(0).unwrap()[3] = 8;
        assert_eq!(copy.annotations().unwrap()[3], 7);
        let mut taken = batch.take(0);
        assert_eq!(taken.annotations().unwrap()[3], 8);
        assert!(taken.set_len(2048 - 256 - 80) && taken.annotations().is_some());
        assert!(taken.set_len(2048 - 256 - 79));
        assert!(taken.annotations().is_none() && taken.annotations_mut().is_none());
        drop(taken);
        let mut fresh = pool.alloc().unwrap();
        assert_eq!(fresh.annotations(), None);
        assert_eq!(fresh.annotations_mut().unwrap()[3], 0);
    }
}
