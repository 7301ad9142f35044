//! Builds the tree of PlanB: leaves from left to right, then the inner nodes above them.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering::Relaxed;

use super::{
    Counts, DEEP, DEEP_GROUPS, DEEP_HOPS, DEEP_LOWS, FLIP, GROUPS, HOPS, INTERVALS, KEYS, LAYOUT,
    LOWS, NAMES, PREFIXES, Reader, TREE, shape,
};
use crate::addr::Prefix;
use crate::error::UpdateError;
use crate::intervals::sweep;
use crate::lookup::{Routes, Table};
use crate::mem::{Memory, Region};
use crate::simd::Simd;
use crate::toolkit::unchanging::Unchanging;

/// Half an address where an interval starts, and its answer.
type Starts = Vec<(u64, u32)>;

/// The intervals of a table, those inside a /64 apart.
#[derive(Default)]
struct Intervals {
    /// Leaves by the first half of their start.
    starts: Starts,
    /// Where each group begins among the next, and where the last ends.
    groups: Vec<u32>,
    /// Leaves by the second half of their start.
    lows: Starts,
}

#[allow(clippy::cast_possible_truncation, reason = "the two halves of an address")]
fn halves(addr: u128) -> (u64, u64) {
    ((addr >> 64) as u64, addr as u64)
}

fn cut(routes: &dyn Routes<u128>) -> Intervals {
    let mut all = Intervals::default();
    // The /64 that is cut inside, if the last interval started in one; and the last answer.
    let (mut inside, mut carry) = (None, 0);
    sweep(Prefix::ALL, routes, &mut |start, hop| {
        let (high, low) = halves(start);
        if let Some(deep) = inside.filter(|&deep| deep != high) {
            // The /64 after it goes on with what was last, unless this interval starts there.
            if (high, low) != (deep + 1, 0) {
                all.starts.push((deep + 1, carry));
            }
            inside = None;
        }
        if low > 0 && inside.is_none() {
            let group = u32::try_from(all.groups.len()).expect("fewer groups than routes");
            all.groups.push(u32::try_from(all.lows.len()).expect("fewer than 2^32 intervals"));
            all.lows.push((0, carry));
            // An interval that started with this very /64 now belongs to its group.
            all.starts.pop_if(|last| last.0 == high);
            all.starts.push((high, DEEP | group));
            inside = Some(high);
        }
        if inside.is_some() {
            all.lows.push((low, hop.0));
        } else {
            all.starts.push((high, hop.0));
        }
        carry = hop.0;
    });
    if let Some(next) = inside.and_then(|deep: u64| deep.checked_add(1)) {
        all.starts.push((next, carry));
    }
    all.groups.push(u32::try_from(all.lows.len()).expect("fewer than 2^32 intervals"));
    all
}

pub(super) fn make(
    routes: &dyn Routes<u128>,
    memory: &mut dyn Memory,
) -> Result<Box<dyn Table<u128>>, UpdateError> {
    let reader = build(routes, memory, Simd::detect())?;
    Ok(Box::new(Unchanging { reader: Arc::new(reader), max_hop: super::MAX_HOP }))
}

fn build(
    routes: &dyn Routes<u128>,
    memory: &mut dyn Memory,
    simd: Simd,
) -> Result<Reader, UpdateError> {
    let Intervals { starts, groups, lows } = cut(routes);
    let lines = shape(starts.len()).1 + starts.len().div_ceil(KEYS);
    // Powers of two where readers mask their indices.
    let mut region = |which: usize, bytes: usize| memory.region(NAMES[which], bytes);
    let regions = [
        region(TREE, lines.next_power_of_two() * 64)?,
        region(HOPS, starts.len().next_power_of_two() * 4)?,
        region(DEEP_GROUPS, groups.len() * 4)?,
        region(DEEP_LOWS, lows.len() * 8)?,
        region(DEEP_HOPS, lows.len() * 4)?,
    ];
    let [keys, hops, group_starts, low_keys, low_hops] = &regions;
    plant(&starts, keys);
    for (cell, &(_, hop)) in hops.u32s().iter().zip(&starts) {
        cell.store(hop, Relaxed);
    }
    for (cell, &group) in group_starts.u32s().iter().zip(&groups) {
        cell.store(group, Relaxed);
    }
    for (at, &(low, hop)) in lows.iter().enumerate() {
        low_keys.u64s()[at].store(low, Relaxed);
        low_hops.u32s()[at].store(hop, Relaxed);
    }
    let head = Counts::new(memory, LAYOUT)?;
    head.set(PREFIXES, routes.stats().prefixes);
    head.set(INTERVALS, starts.len());
    head.set(GROUPS, groups.len() - 1);
    head.set(LOWS, lows.len());
    let reader = Reader::new(head, regions, starts.len(), simd);
    Ok(reader.expect("there is at least one interval, and room for it"))
}

/// Writes all keys. Past the last leaf everything is the greatest key.
fn plant(starts: &[(u64, u32)], keys: &Region) {
    let leaf = |index: usize| starts.get(index).map_or(u64::MAX, |&(start, _)| start);
    let cells = keys.u64s();
    let (levels, first_leaf) = shape(starts.len());
    let (mut first, mut nodes) = (0, 1);
    // Leaves below one child of a node of the level at hand.
    let mut below = KEYS * (KEYS + 1).pow(u32::try_from(levels).expect("below 2^5")) / (KEYS + 1);
    for _ in 0..levels {
        for node in 0..nodes {
            for slot in 0..KEYS {
                let key = leaf((node * (KEYS + 1) + slot + 1) * below);
                cells[(first + node) * KEYS + slot].store(key ^ FLIP, Relaxed);
            }
        }
        first += nodes;
        nodes *= KEYS + 1;
        below /= KEYS + 1;
    }
    for index in 0..starts.len().next_multiple_of(KEYS) {
        cells[first_leaf * KEYS + index].store(leaf(index) ^ FLIP, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lookup::Lookup as _;
    use crate::mem::Heap;
    use crate::next_hop_id::NextHopId;
    use crate::oracle::Oracle;
    use crate::routes::RouteStore;
    use crate::testing::{Rng, Shape, probes, table};

    /// Every number of intervals around those at which a line or a level is full, the last of an even
    /// number being the last /64; found by every twin.
    #[test]
    fn trees_of_every_size() {
        let around = |size: u64| size.saturating_sub(2).max(1)..=size + 2;
        let full = [8, 16, 72, 80, 648, 656, 5832].into_iter().flat_map(around);
        for size in full {
            let mut store = RouteStore::<u128>::new();
            // One interval is there; each route in the middle makes two, one at the end one.
            for n in 0..(size - 1) / 2 {
                let high = (2 * n + 1) * (u64::MAX / 16_384);
                store.insert(
                    Prefix::masked(u128::from(high) << 64, 64),
                    NextHopId(u32::try_from(n).unwrap() + 1),
                );
            }
            if size % 2 == 0 {
                store.insert(Prefix::masked(u128::MAX << 64, 64), NextHopId(9_999));
            }
            let intervals = build(&store, &mut Heap, Simd::Scalar).unwrap().head.get(INTERVALS);
            assert_eq!(intervals, size);
            let oracle: Oracle<u128> = store.iter().map(|(p, &hop)| (p, hop)).collect();
            let mut addrs: Vec<u128> = store.iter().flat_map(|(p, _)| probes(p)).collect();
            addrs.extend([0, u128::MAX, u128::MAX - 1, u128::MAX << 64, (u128::MAX << 64) - 1]);
            for simd in Simd::available() {
                let reader = build(&store, &mut Heap, simd).unwrap();
                let mut out = alloc::vec![NextHopId::NONE; addrs.len()];
                reader.lookup_batch(&addrs, &mut out);
                for (&addr, &batched) in addrs.iter().zip(&out) {
                    let want = oracle.lookup(addr);
                    let who = (size, simd.name(), addr.to_be_bytes());
                    assert_eq!((reader.lookup(addr), batched), (want, want), "{who:?}");
                }
            }
        }
    }

    /// The twins find the same places, in a tree and in nonsense.
    #[test]
    fn twins_agree() {
        let mut rng = Rng::new(31);
        let routes = table::<u128>(Shape::Hostile, 4000, 100, 31);
        let store: RouteStore<u128> = routes.iter().copied().collect();
        for damage in [false, true] {
            let readers = Simd::available().map(|simd| build(&store, &mut Heap, simd).unwrap());
            let readers: Vec<_> = readers.collect();
            let seed = rng.word();
            for reader in readers.iter().filter(|_| damage) {
                let mut rng = Rng::new(seed);
                reader.regions[TREE].u64s().iter().for_each(|key| key.store(rng.word(), Relaxed));
            }
            for _ in 0..2000 {
                let (prefix, _) = routes[rng.below(routes.len())];
                let mut keys = [i64::MAX; 32];
                for (lane, addr) in probes(prefix).into_iter().enumerate() {
                    keys[lane] = super::super::key(addr);
                    keys[lane + 8] = super::super::key(rng.addr());
                }
                let want = readers[0].tree.find(&keys);
                for reader in &readers {
                    assert_eq!(reader.find(&keys), want, "{}", reader.simd.name());
                    assert_eq!(reader.find(&[keys[3]]), [want[3]], "{}", reader.simd.name());
                }
            }
        }
    }

    fn starts(routes: &[(&str, u32)]) -> (Starts, Starts) {
        let routes: RouteStore<u128> =
            routes.iter().map(|&(p, hop)| (p.parse().unwrap(), NextHopId(hop))).collect();
        let all = cut(&routes);
        assert_eq!(*all.groups.last().unwrap() as usize, all.lows.len());
        (all.starts, all.lows)
    }

    #[test]
    fn what_is_inside_a_64_stays_there() {
        let high = 0x2001_0db8_0000_0000;
        let (tree, lows) = starts(&[("2001:db8::/64", 1), ("2001:db8::8/125", 2)]);
        assert_eq!(tree, [(0, 0), (high, DEEP), (high + 1, 0)]);
        assert_eq!(lows, [(0, 1), (8, 2), (16, 1)]);
        // A host at the end of one /64, and one at the start of the next.
        let (tree, lows) =
            starts(&[("2001:db8::ffff:ffff:ffff:ffff/128", 1), ("2001:db8:0:1::/128", 2)]);
        assert_eq!(tree, [(0, 0), (high, DEEP), (high + 1, DEEP | 1), (high + 2, 0)]);
        assert_eq!(lows, [(0, 0), (u64::MAX, 1), (0, 2), (1, 0)]);
        // The last /64 of all has none after it.
        let (tree, lows) = starts(&[("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff/128", 1)]);
        assert_eq!(tree, [(0, 0), (u64::MAX, DEEP)]);
        assert_eq!(lows, [(0, 0), (u64::MAX, 1)]);
        let (tree, lows) = starts(&[("::/128", 1)]);
        assert_eq!(tree, [(0, DEEP), (1, 0)]);
        assert_eq!(lows, [(0, 1), (1, 0)]);
    }
}
