//! The writer: chooses the width of entries, then leaves the work to [`StrideWriter`].

use alloc::boxed::Box;
use alloc::sync::Arc;

use super::form::{Form, Narrow, Wide};
use super::{BLOCKS, Counts, FIRST, LOW, NAMES, PREFIXES, Reader, TOP, WAITING, Walk};
use crate::addr::Prefix;
use crate::error::UpdateError;
use crate::lookup::{Change, Grace, Lookup, Routes, Table};
use crate::mem::Memory;
use crate::toolkit::strides::{Cuts, Full, SLOTS, StrideWriter};

/// Blocks kept free beside a quarter of those in use.
const SLACK_BLOCKS: usize = 64;
/// Four-byte entries go back to two only below this, so that a table at the edge stays as it is.
const NARROW_AGAIN: usize = Narrow::MAX_BLOCKS / 4 * 3;

struct Writer<A: Walk, F: Form> {
    plies: StrideWriter<A, Reader<A, F>>,
    prefixes: usize,
    /// Routes whose next hop needs more than two-byte entries have.
    wide: usize,
    /// The greatest next hop that the row holds, in whatever form.
    max_hop: u32,
}

/// Builds a table with entries of one form only.
pub(super) fn make<A: Walk, F: Form>(
    routes: &dyn Routes<A>,
    memory: &mut dyn Memory,
) -> Result<Box<dyn Table<A>>, UpdateError> {
    let cuts = Cuts::new::<Reader<A, F>>(Prefix::ALL, routes);
    Ok(Box::new(build::<A, F>(routes, &cuts, memory, F::MAX_HOP)?))
}

/// Builds a table with two-byte entries while they suffice, else with four.
pub(super) fn make_slim<A: Walk>(
    routes: &dyn Routes<A>,
    memory: &mut dyn Memory,
) -> Result<Box<dyn Table<A>>, UpdateError> {
    // Both forms keep the next hop in the same place.
    let cuts = Cuts::new::<Reader<A, Wide>>(Prefix::ALL, routes);
    let blocks = cuts.blocks::<Reader<A, Wide>>()[0];
    if routes.stats().max_next_hop <= Narrow::MAX_HOP && blocks <= Narrow::MAX_BLOCKS {
        Ok(Box::new(build::<A, Narrow>(routes, &cuts, memory, Wide::MAX_HOP)?))
    } else {
        Ok(Box::new(build::<A, Wide>(routes, &cuts, memory, Wide::MAX_HOP)?))
    }
}

fn build<A: Walk, F: Form>(
    routes: &dyn Routes<A>,
    cuts: &Cuts<A>,
    memory: &mut dyn Memory,
    max_hop: u32,
) -> Result<Writer<A, F>, UpdateError> {
    let used = cuts.blocks::<Reader<A, F>>()[0];
    if used > F::MAX_BLOCKS {
        let (max, got) = (F::MAX_BLOCKS as u64, used as u64);
        return Err(UpdateError::Limit { what: "blocks", max, got });
    }
    // A power of two, as readers mask their indices.
    let blocks = (used + used / 4 + SLACK_BLOCKS).next_power_of_two().min(F::MAX_BLOCKS);
    let width = size_of::<F::Cell>();
    let top = memory.region(NAMES[TOP], width << FIRST)?;
    let low = memory.region(NAMES[LOW], blocks * SLOTS * width)?;
    let head = Counts::new(memory, F::LAYOUT)?;
    let stats = routes.stats();
    let mut wide = 0;
    if stats.max_next_hop > Narrow::MAX_HOP {
        routes.walk(A::MIN, A::MAX, &mut |_, hop| wide += usize::from(hop.0 > Narrow::MAX_HOP));
    }
    let reader = Arc::new(Reader::new(head, top, low, blocks));
    let capacity = u32::try_from(blocks).expect("an entry has at most 31 bits for it");
    let plies = StrideWriter::new(reader, &[capacity], cuts).expect("the blocks were counted");
    let writer = Writer { plies, prefixes: stats.prefixes, wide, max_hop };
    writer.count();
    Ok(writer)
}

impl<A: Walk, F: Form> Writer<A, F> {
    fn count(&self) {
        let head = &self.plies.tables().head;
        head.set(PREFIXES, self.prefixes);
        head.set(BLOCKS, self.plies.used(0));
        head.set(WAITING, self.plies.waiting(0));
    }

    /// Whether the table that `wide` wide next hops leave is one for the other width.
    fn changes_width(&self, wide: usize) -> bool {
        if self.max_hop == F::MAX_HOP && F::LAYOUT != Wide::LAYOUT {
            // There is no other.
            return false;
        }
        if F::LAYOUT == Narrow::LAYOUT {
            wide > 0
        } else {
            wide == 0 && self.plies.used(0) <= NARROW_AGAIN
        }
    }
}

impl<A: Walk, F: Form> Table<A> for Writer<A, F> {
    fn apply(
        &mut self,
        changes: &[Change<A>],
        routes: &dyn Routes<A>,
        grace: &mut dyn Grace,
    ) -> Result<(), UpdateError> {
        Change::greatest_hop(changes, self.max_hop)?;
        let prefixes = Change::prefixes_after(changes, self.prefixes);
        let mut wide = self.wide;
        for change in changes {
            wide += usize::from(change.new.0 > Narrow::MAX_HOP);
            wide -= usize::from(change.old.0 > Narrow::MAX_HOP);
        }
        if self.changes_width(wide) {
            return Err(UpdateError::Rebuild);
        }
        self.plies.apply(changes, routes, grace).map_err(|Full| UpdateError::Rebuild)?;
        (self.prefixes, self.wide) = (prefixes, wide);
        self.count();
        Ok(())
    }

    fn publish(&mut self) -> Arc<dyn Lookup<A>> {
        self.plies.tables().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::super::form::{Lengths4, Lengths6};
    use super::*;
    use crate::lookup::NoReaders;
    use crate::mem::Heap;
    use crate::next_hop_id::NextHopId;
    use crate::routes::RouteStore;
    use crate::testing::{HeldGrace, Rng, Shape, probes, table};
    use alloc::vec::Vec;

    fn entry_bytes(table: &mut dyn Table<u32>) -> u64 {
        let mut found = 0;
        table.publish().stats(&mut |name, count| {
            if name == "entry_bytes" {
                found = count;
            }
        });
        found
    }

    #[test]
    fn the_width_follows_the_table() {
        let mut store = RouteStore::<u32>::new();
        let prefix: Prefix<u32> = "10.0.0.0/8".parse().unwrap();
        let hidden: Prefix<u32> = "10.0.0.0/7".parse().unwrap();
        let mut set = |prefix, hop| {
            let old = store.insert(prefix, NextHopId(hop)).unwrap_or_default();
            (Change { prefix, old, new: NextHopId(hop) }, store.clone())
        };
        let (_, routes) = set(prefix, Narrow::MAX_HOP);
        let mut narrow = make_slim(&routes, &mut Heap).unwrap();
        assert_eq!(entry_bytes(&mut *narrow), 2);
        let (change, routes) = set(hidden, Narrow::MAX_HOP + 1);
        assert_eq!(narrow.apply(&[change], &routes, &mut NoReaders), Err(UpdateError::Rebuild));
        let mut wide = make_slim(&routes, &mut Heap).unwrap();
        assert_eq!(entry_bytes(&mut *wide), 4);
        assert_eq!(wide.publish().lookup(0x0b00_0000), NextHopId(Narrow::MAX_HOP + 1));
        let (change, routes) = set(prefix, 5);
        assert_eq!(wide.apply(&[change], &routes, &mut NoReaders), Ok(()));
        let (change, routes) = set(hidden, 6);
        assert_eq!(wide.apply(&[change], &routes, &mut NoReaders), Err(UpdateError::Rebuild));
        assert_eq!(entry_bytes(&mut *make_slim(&routes, &mut Heap).unwrap()), 2);
    }

    /// One route in each of many /24s, so that each of them needs a block.
    fn blocks(count: usize) -> RouteStore<u32> {
        let addrs = (0..count).map(|n| u32::try_from(n).unwrap() << 8 | 7);
        addrs.map(|addr| (Prefix::host(addr), NextHopId(1))).collect()
    }

    #[test]
    fn blocks_past_the_narrow_ones_take_wide_entries() {
        let mut narrow = make_slim(&blocks(Narrow::MAX_BLOCKS), &mut Heap).unwrap();
        assert_eq!(entry_bytes(&mut *narrow), 2);
        let more = blocks(Narrow::MAX_BLOCKS + 1);
        let prefix = Prefix::host(u32::try_from(Narrow::MAX_BLOCKS).unwrap() << 8 | 7);
        let change = Change { prefix, old: NextHopId::NONE, new: NextHopId(1) };
        assert_eq!(narrow.apply(&[change], &more, &mut NoReaders), Err(UpdateError::Rebuild));
        assert_eq!(narrow.publish().lookup(prefix.addr()), NextHopId::NONE);
        let mut wide = make_slim(&more, &mut Heap).unwrap();
        assert_eq!(entry_bytes(&mut *wide), 4);
        assert_eq!(wide.publish().lookup(prefix.addr()), NextHopId(1));
        let cuts = Cuts::new::<Reader<u32, Narrow>>(Prefix::ALL, &more);
        let refused = build::<u32, Narrow>(&more, &cuts, &mut Heap, Wide::MAX_HOP).err();
        let (max, got) = (Narrow::MAX_BLOCKS as u64, Narrow::MAX_BLOCKS as u64 + 1);
        assert_eq!(refused, Some(UpdateError::Limit { what: "blocks", max, got }));
    }

    /// After some steps, each entry holds the length of the route that gave its answer.
    fn lengths<A: Walk, F: Form>(shift: u32) {
        let routes = table::<A>(Shape::Hostile, 3000, 100, 21);
        let mut store: RouteStore<A> = routes.iter().copied().collect();
        let mut table = make::<A, F>(&store, &mut Heap).unwrap();
        let mut rng = Rng::new(22);
        for _ in 0..20 {
            let changes: Vec<_> = (0..100)
                .map(|_| {
                    let (prefix, hop) = routes[rng.below(routes.len())];
                    let old = store.remove(prefix).unwrap_or_default();
                    let new = if old.is_none() { hop } else { NextHopId::NONE };
                    if !new.is_none() {
                        store.insert(prefix, new);
                    }
                    Change { prefix, old, new }
                })
                .collect();
            table.apply(&changes, &store, &mut NoReaders).unwrap();
        }
        let lookup = table.publish();
        for addr in routes.iter().flat_map(|&(prefix, _)| probes(prefix)) {
            let mut last = 0;
            lookup.explain(addr, &mut |step| last = step.value);
            let len = store.best(addr).map_or(0, |(prefix, _)| prefix.len());
            assert_eq!(last >> shift & 0x3f, u64::from(len) & 0x3f, "{}", addr.to_ip());
        }
    }

    #[test]
    fn entries_keep_lengths() {
        lengths::<u32, Lengths4>(26);
        lengths::<u128, Lengths6>(21);
    }

    /// A reader that took an entry before some steps finds in its block the table of some moment since.
    #[test]
    fn an_entry_outlives_its_block() {
        let prefix: Prefix<u32> = "10.1.2.0/25".parse().unwrap();
        let mut store: RouteStore<u32> = [(prefix, NextHopId(1))].into_iter().collect();
        let cuts = Cuts::new::<Reader<u32, Narrow>>(Prefix::ALL, &store);
        let mut writer = build::<u32, Narrow>(&store, &cuts, &mut Heap, Wide::MAX_HOP).unwrap();
        let mut grace = HeldGrace::default();
        let reader = writer.plies.tables().clone();
        let view = reader.view();
        let entry = Narrow::load(view.top.at(prefix.addr().top()));
        assert!(Narrow::is_extended(entry));
        store.remove(prefix);
        let gone = Change { prefix, old: NextHopId(1), new: NextHopId::NONE };
        writer.apply(&[gone], &store, &mut grace).unwrap();
        // Another block is needed; it must not be the one that the reader holds.
        let other = Prefix::host(0x0b00_0001);
        store.insert(other, NextHopId(2));
        let new = Change { prefix: other, old: NextHopId::NONE, new: NextHopId(2) };
        writer.apply(&[new], &store, &mut grace).unwrap();
        assert_eq!((writer.plies.used(0), writer.plies.waiting(0)), (1, 1));
        let at = |addr: u32| view.low.at(super::super::View::<Narrow>::below(entry, addr, 1));
        assert_eq!(Narrow::hop(Narrow::load(at(prefix.addr() + 1))), NextHopId::NONE);
        grace.release();
        writer.apply(&[], &store, &mut grace).unwrap();
        assert_eq!(writer.plies.waiting(0), 0);
    }
}
