//! Tables of fixed strides, changed in place: what DIR-24-8, SAIL and the IPv6 tries write alike.
//!
//! A first table is indexed by the first bits of an address; a slot of it holds an answer, or the
//! number of a block of 256 slots for the next byte, and so on to the last bit. Answers are pushed
//! down: no lookup looks back.
//!
//! A change takes the new answers from the route store, as they will be after the step, and writes
//! only the slots that differ, each by one release store of its final content. Blocks are filled before
//! a slot refers to them, and used again after a grace period. All blocks of a step are found before
//! the first slot that readers can see is written.
//!
//! Cost: a change to a /p writes the slots it covers in the table where it ends; an ordered walk of the
//! routes in it; and one look at each block above, which is folded if all of it became one answer.

use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::mem;

use crate::addr::{Addr, Prefix};
use crate::intervals::{Serving, sweep_routes};
use crate::lookup::{Change, Grace, Routes};
use crate::toolkit::extents::{Block, Extents};

/// Slots of a block.
pub(crate) const SLOTS: usize = 256;
/// Bits that a block consumes.
const STRIDE: u8 = 8;

/// Content of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Slot {
    /// The answer, as the structure keeps it; 0 is no route.
    Leaf(u32),
    /// Number of the block for the next byte.
    Child(u32),
}

/// How a structure keeps its slots. Level 0 is the first table; slot `s` of block `b` of a level above
/// is cell `b * SLOTS + s` there.
pub(crate) trait Tables<A: Addr> {
    /// Bits that index the first table.
    const FIRST: u8;
    /// Separate spaces from which blocks are taken.
    const ROOMS: usize;
    /// The answer as it is kept.
    fn leaf(route: Serving<A>) -> u32;
    /// Whether two parts with this answer are one. Where not, blocks stay as long as a prefix ends
    /// in them, even if all of it has the same next hop.
    const MERGES: bool;
    /// Whether a block all of whose slots give this answer may become a slot that ends at `end` bits.
    fn folds(leaf: u32, end: u8) -> bool;
    /// Space that the blocks of a level (at least 1) are taken from.
    fn room(level: usize) -> usize;
    /// Reads a slot.
    fn read(&self, level: usize, cell: usize) -> Slot;
    /// Changes a slot by one store, which is ordered after all earlier ones (release).
    fn write(&self, level: usize, cell: usize, slot: Slot);
}

/// The bits consumed by the levels up to `level`.
fn end<A: Addr, T: Tables<A>>(level: usize) -> u8 {
    let bits = usize::from(T::FIRST) + usize::from(STRIDE) * level;
    u8::try_from(bits).expect("a level ends inside an address")
}

/// Number of a slot in its table.
fn slot_of<A: Addr, T: Tables<A>>(level: usize, addr: A) -> usize {
    let slot = match level {
        0 => addr.bits(0, T::FIRST),
        _ => addr.bits(end::<A, T>(level) - STRIDE, STRIDE),
    };
    slot as usize
}

/// Answers as they change along a part of the space: the first holds its first address.
pub(crate) struct Cuts<A: Addr>(Vec<(A, u32)>);

impl<A: Addr> Cuts<A> {
    /// The answers of `part`.
    pub(crate) fn new<T: Tables<A>>(part: Prefix<A>, routes: &dyn Routes<A>) -> Self {
        let mut cuts = Self(Vec::new());
        cuts.fill::<T>(part, routes);
        cuts
    }

    fn fill<T: Tables<A>>(&mut self, part: Prefix<A>, routes: &dyn Routes<A>) {
        let cuts = &mut self.0;
        cuts.clear();
        sweep_routes(part, routes, &mut |start, route| {
            let leaf = T::leaf(route);
            if !T::MERGES || cuts.last().is_none_or(|&(_, last)| last != leaf) {
                cuts.push((start, leaf));
            }
        });
    }

    /// Blocks that each space must hold for these answers: one for each slot inside which they change.
    pub(crate) fn blocks<T: Tables<A>>(&self) -> Vec<usize> {
        let mut blocks = vec![0; T::ROOMS];
        let levels = usize::from((A::BITS - T::FIRST) / STRIDE);
        let mut last = vec![None; levels];
        for &(start, _) in &self.0 {
            for (above, last) in last.iter_mut().enumerate() {
                let slot = Prefix::masked(start, end::<A, T>(above));
                if slot.addr() == start {
                    break;
                }
                if *last != Some(slot) {
                    *last = Some(slot);
                    blocks[T::room(above + 1)] += 1;
                }
            }
        }
        blocks
    }
}

/// Where writes go.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// New memory, all zeros: nobody reads it, and what is 0 need not be written.
    New,
    /// A block that no slot refers to yet.
    Aside,
    /// Slots that readers see: written at the end of the step.
    Live,
}

/// A run of slots to be written.
struct Write {
    level: usize,
    from: usize,
    to: usize,
    slot: Slot,
}

/// The writer of such tables.
pub(crate) struct StrideWriter<A: Addr, T: Tables<A>> {
    tables: Arc<T>,
    rooms: Vec<Extents>,
    /// Writes of the step at hand, blocks taken, blocks unlinked (by space), and slots whose
    /// block was changed inside, deepest first.
    writes: Vec<Write>,
    taken: Vec<(usize, u32)>,
    unlinked: Vec<Vec<Block>>,
    entered: Vec<(usize, usize, u32)>,
    /// Kept for its memory.
    cuts: Cuts<A>,
}

/// No block is left.
pub(crate) struct Full;

impl<A: Addr, T: Tables<A>> StrideWriter<A, T> {
    /// Fills tables that are all zeros and have room for `capacities` blocks; `None` when that is too
    /// little.
    pub(crate) fn new(tables: Arc<T>, capacities: &[u32], cuts: &Cuts<A>) -> Option<Self> {
        let mut tables = Self {
            tables,
            rooms: capacities.iter().map(|&capacity| Extents::new(capacity, 0)).collect(),
            writes: Vec::new(),
            taken: Vec::new(),
            unlinked: vec![Vec::new(); T::ROOMS],
            entered: Vec::new(),
            cuts: Cuts(Vec::new()),
        };
        tables.fill(0, 0, (A::MIN, A::MAX), &cuts.0, Place::New).ok()?;
        tables.taken.clear();
        Some(tables)
    }

    /// The tables.
    pub(crate) fn tables(&self) -> &Arc<T> {
        &self.tables
    }

    /// Blocks in use in a space.
    pub(crate) fn used(&self, room: usize) -> usize {
        self.rooms[room].used() as usize
    }

    /// Blocks of a space that readers may still hold.
    pub(crate) fn waiting(&self, room: usize) -> usize {
        self.rooms[room].waiting() as usize
    }

    /// All of `changes`, or none when blocks run out.
    ///
    /// # Errors
    /// [`Full`]; nothing was changed.
    pub(crate) fn apply(
        &mut self,
        changes: &[Change<A>],
        routes: &dyn Routes<A>,
        grace: &mut dyn Grace,
    ) -> Result<(), Full> {
        self.rooms.iter_mut().for_each(|room| room.reclaim(grace));
        let touched = touched(changes);
        if self.update(0, 0, &touched, routes).is_err() {
            // No reader has seen any of it.
            for (room, block) in self.taken.drain(..) {
                self.rooms[room].give((block, 1));
            }
            self.writes.clear();
            self.entered.clear();
            self.unlinked.iter_mut().for_each(Vec::clear);
            return Err(Full);
        }
        self.taken.clear();
        for Write { level, from, to, slot } in self.writes.drain(..) {
            for cell in from..=to {
                // Slots that stay are not written: it would cost their readers a cache miss.
                if self.tables.read(level, cell) != slot {
                    self.tables.write(level, cell, slot);
                }
            }
        }
        self.fold();
        for (room, unlinked) in self.rooms.iter_mut().zip(&mut self.unlinked) {
            room.retire(mem::take(unlinked), grace);
            room.reclaim(grace);
        }
        Ok(())
    }

    /// Brings the slots of a table that readers see up to date; `touched` lies in it.
    fn update(
        &mut self,
        level: usize,
        table: usize,
        mut touched: &[Prefix<A>],
        routes: &dyn Routes<A>,
    ) -> Result<(), Full> {
        let end = end::<A, T>(level);
        while let Some(&first) = touched.first() {
            let mut part = first;
            let mut group = 1;
            if first.len() > end {
                let slot = Prefix::masked(first.addr(), end);
                let cell = table + slot_of::<A, T>(level, first.addr());
                group = touched.iter().take_while(|prefix| slot.covers(**prefix)).count();
                if let Slot::Child(block) = self.tables.read(level, cell) {
                    let below = block as usize * SLOTS;
                    self.update(level + 1, below, &touched[..group], routes)?;
                    self.entered.push((level, cell, block));
                    touched = &touched[group..];
                    continue;
                }
                // One answer until now: all changes in it are found by one walk.
                part = slot;
            }
            let mut cuts = mem::replace(&mut self.cuts, Cuts(Vec::new()));
            cuts.fill::<T>(part, routes);
            let done = self.fill(level, table, (part.first(), part.last()), &cuts.0, Place::Live);
            self.cuts = cuts;
            done?;
            touched = &touched[group..];
        }
        Ok(())
    }

    /// Gives the slots of `from..=to`, whole slots of one table, the answers of `cuts`.
    fn fill(
        &mut self,
        level: usize,
        table: usize,
        (from, to): (A, A),
        mut cuts: &[(A, u32)],
        place: Place,
    ) -> Result<(), Full> {
        let end = end::<A, T>(level);
        let mut at = from;
        loop {
            let slot_last = Prefix::masked(at, end).last();
            // One answer from `at` to `stop`.
            let stop = match cuts.get(1) {
                Some(&(next, _)) if next <= to => next.prev(),
                _ => to,
            };
            let first = slot_of::<A, T>(level, at);
            let done = if stop >= slot_last {
                let stop_slot = Prefix::masked(stop, end);
                let whole = stop_slot.last() == stop;
                let through = if whole { stop } else { stop_slot.first().prev() };
                let last = slot_of::<A, T>(level, through);
                self.put(level, table + first, table + last, Slot::Leaf(cuts[0].1), place);
                through
            } else {
                let inside = cuts.iter().take_while(|&&(start, _)| start <= slot_last).count();
                self.mixed(level, table + first, (at, slot_last), &cuts[..inside], place)?;
                cuts = &cuts[inside - 1..];
                slot_last
            };
            if done >= to {
                return Ok(());
            }
            at = done.next();
            if cuts.get(1).is_some_and(|&(start, _)| start <= at) {
                cuts = &cuts[1..];
            }
        }
    }

    /// A slot inside which the answer changes.
    fn mixed(
        &mut self,
        level: usize,
        cell: usize,
        range: (A, A),
        cuts: &[(A, u32)],
        place: Place,
    ) -> Result<(), Full> {
        if place == Place::Live
            && let Slot::Child(block) = self.tables.read(level, cell)
        {
            return self.fill(level + 1, block as usize * SLOTS, range, cuts, Place::Live);
        }
        let room = T::room(level + 1);
        let block = self.rooms[room].take(1).ok_or(Full)?;
        self.taken.push((room, block));
        let aside = if place == Place::New { Place::New } else { Place::Aside };
        self.fill(level + 1, block as usize * SLOTS, range, cuts, aside)?;
        self.put(level, cell, cell, Slot::Child(block), place);
        Ok(())
    }

    fn put(&mut self, level: usize, from: usize, to: usize, slot: Slot, place: Place) {
        match place {
            Place::New if slot == Slot::Leaf(0) => {}
            Place::New | Place::Aside => {
                (from..=to).for_each(|cell| self.tables.write(level, cell, slot));
            }
            Place::Live => {
                if usize::from(end::<A, T>(level)) < usize::from(A::BITS) {
                    (from..=to).for_each(|cell| self.unlink(level, cell));
                }
                self.writes.push(Write { level, from, to, slot });
            }
        }
    }

    /// What hangs below a slot is not reached any more once this step is done.
    fn unlink(&mut self, level: usize, cell: usize) {
        if let Slot::Child(block) = self.tables.read(level, cell) {
            if usize::from(end::<A, T>(level + 1)) < usize::from(A::BITS) {
                let below = block as usize * SLOTS;
                (below..below + SLOTS).for_each(|cell| self.unlink(level + 1, cell));
            }
            self.unlinked[T::room(level + 1)].push((block, 1));
        }
    }

    /// Blocks that were changed inside and now give one answer become a slot again.
    fn fold(&mut self) {
        for (level, cell, block) in mem::take(&mut self.entered) {
            let below = block as usize * SLOTS;
            let Slot::Leaf(leaf) = self.tables.read(level + 1, below) else { continue };
            if T::folds(leaf, end::<A, T>(level))
                && (below..below + SLOTS)
                    .all(|cell| self.tables.read(level + 1, cell) == Slot::Leaf(leaf))
            {
                self.tables.write(level, cell, Slot::Leaf(leaf));
                self.unlinked[T::room(level + 1)].push((block, 1));
            }
        }
    }
}

/// The prefixes that `changes` touch, none inside another.
fn touched<A: Addr>(changes: &[Change<A>]) -> Vec<Prefix<A>> {
    let changed = changes.iter().filter(|change| change.old != change.new);
    let mut touched: Vec<_> = changed.map(|change| change.prefix).collect();
    touched.sort_unstable();
    touched.dedup_by(|next, kept| kept.covers(*next));
    touched
}
