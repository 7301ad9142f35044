//! A part of the address space cut into the slots of a table or chunk, by where its answers change.

use super::super::{LAST_SLOT, STRIDE, words_of};
use crate::addr::Addr;

/// Answers inside a block: where each starts, and the next hop from there on. No two neighbours have
/// the same.
pub(super) type Pieces = [(u128, u32)];

/// What a slot holds.
#[derive(Clone, Copy)]
pub(super) enum Content<'a> {
    /// One next hop.
    Hop(u32),
    /// Several: the one before the first piece, unless that starts where the slot does, and the pieces.
    Deep(u32, &'a Pieces),
}

impl<'a> Content<'a> {
    /// The next hop that it starts with, and the pieces.
    pub(super) fn parts(self) -> (u32, &'a Pieces) {
        match self {
            Self::Hop(hop) => (hop, &[]),
            Self::Deep(carry, pieces) => (carry, pieces),
        }
    }

    /// The words of all chunks of a slot that ends before `bit`.
    pub(super) fn words(self, bit: u8) -> usize {
        let Self::Deep(carry, pieces) = self else { return 0 };
        let (mut runs, mut below) = (0, 0);
        cut(bit, STRIDE, (0, LAST_SLOT), carry, pieces, &mut |_, _, content| {
            runs += 1;
            below += content.words(bit + STRIDE);
            Some(())
        });
        below + words_of(runs)
    }
}

/// Calls `visit` for each run of slots between `first` and `last` that hold the same, in order: the first
/// and last of it. A slot is `stride` bits from `bit` on; one that holds several answers is a run alone.
/// `carry` is the next hop before the first piece. Ends when `visit` gives `None`.
pub(super) fn cut<'a>(
    bit: u8,
    stride: u8,
    (first, last): (u32, u32),
    mut carry: u32,
    pieces: &'a Pieces,
    visit: &mut dyn FnMut(u32, u32, Content<'a>) -> Option<()>,
) -> Option<()> {
    let slot = |start: u128| start.bits(bit, stride);
    let mut at = first;
    for group in pieces.chunk_by(|a, b| slot(a.0) == slot(b.0)) {
        let (start, _) = group[0];
        let here = slot(start);
        if at < here {
            visit(at, here - 1, Content::Hop(carry))?;
        }
        at = here;
        let inside = start.checked_shl(u32::from(bit + stride)).unwrap_or(0);
        if group.len() > 1 || inside != 0 {
            visit(here, here, Content::Deep(carry, group))?;
            at = here + 1;
        }
        carry = group[group.len() - 1].1;
    }
    if at <= last {
        visit(at, last, Content::Hop(carry))?;
    }
    Some(())
}
