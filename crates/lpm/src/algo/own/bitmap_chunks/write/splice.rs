//! One change inside a /18 that cuts no /24: the runs of its chunk are spliced.
//!
//! Nearly all changes of a full table are of this kind. Of the chunk only the runs of the changed part are
//! made from routes; the others are copied, and the tails behind them stay where they are.

use super::super::{DIRECT, Entry, SHIFT, Width, words_of};
use super::{Block, Writer};
use crate::addr::Prefix;
use crate::intervals::sweep;
use crate::lookup::{Grace, Routes};
use crate::next_hop_id::NextHopId;
use crate::simd::ones;
use crate::toolkit::runs::{Runs, SLOTS, spliced};

impl<E: Entry, W: Width> Writer<E, W> {
    /// Makes `part`, which is inside a /18, anew, and publishes it. `None` when it takes more than that:
    /// nothing is done then. Else whether there was room.
    pub(super) fn splice(
        &mut self,
        part: Prefix<u32>,
        routes: &dyn Routes<u32>,
        grace: &mut dyn Grace,
    ) -> Option<bool> {
        let index = part.first() >> SHIFT;
        let place = self.places.chunk(index, self.places.entry(index))?;
        if part.len() > 24 {
            return None;
        }
        self.new.clear();
        let Self { new, places, .. } = self;
        let mut whole = true;
        sweep(part, routes, &mut |start, NextHopId(hop)| {
            whole &= start & 255 == 0;
            new.push((start >> 8 & 63, hop));
        });
        if !whole {
            return None;
        }
        let mut old = Runs { bits: places.bitmap(place), results: [0; SLOTS], count: 0 };
        for (to, result) in old.results.iter_mut().zip(places.results(place)) {
            *to = result;
            old.count += 1;
        }
        let (first, last) = (part.first() >> 8 & 63, part.last() >> 8 & 63);
        let fresh = spliced(&old, first, last, new, W::TAIL);
        if fresh.count == 1 {
            return None;
        }
        if fresh.bits == old.bits && fresh.as_slice() == old.as_slice() {
            return Some(true);
        }
        let Some((entry, _)) = places.write_chunk(index, fresh.bits, fresh.as_slice()) else {
            return Some(false);
        };
        E::slice(&places.reader.regions[DIRECT])[index as usize].publish(entry);
        let epoch = grace.retire();
        for (slot, &result) in ones(old.bits).zip(old.as_slice()) {
            if (first..=last).contains(&slot) && result & W::TAIL != 0 {
                let tail = places.tail_block(result);
                places.retire(epoch, tail);
            }
        }
        let size = u32::try_from(words_of::<W>(1, old.count)).expect("at most 33 words");
        places.retire(epoch, Block::Chunk(place, size));
        Some(true)
    }
}
