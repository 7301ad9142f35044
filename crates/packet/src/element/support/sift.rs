//! The first pass over a batch of what checks packets: nearly all of them are plain, which one condition settles, and the
//! others are noted, to be looked at step by step.

use crate::frame::{Batch, FLAG_LINK_MULTICAST};

/// Cuts plain packets off where they end, by `end` of a frame and where its network header begins; the numbers of
/// the others, and of those sent to a group of hosts, go to `special`.
#[inline(always)]
pub(crate) fn sift(
    batch: &mut Batch,
    special: &mut Vec<usize>,
    end: impl Fn(&[u8], usize) -> Option<usize>,
) {
    batch.each(|i, mut one| match end(one.frame, one.meta.network.into()) {
        Some(end) if one.meta.flags & FLAG_LINK_MULTICAST == 0 => {
            if end != one.frame.len() {
                one.truncate(end);
            }
        }
        _ => special.push(i),
    });
}
