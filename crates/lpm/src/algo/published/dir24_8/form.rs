//! The four forms of an entry.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicU16, AtomicU32};

use crate::head::stamp;
use crate::intervals::Serving;
use crate::mem::Cell;
use crate::next_hop_id::NextHopId;
use crate::toolkit::strides::Slot;

/// An entry as it lies in memory. All forms give 0 the meaning "no route".
pub(super) trait Form: Send + Sync + 'static {
    /// The atomic integer that holds it.
    type Cell: Cell + Send;
    /// The greatest next hop.
    const MAX_HOP: u32;
    /// Most blocks that an entry can number.
    const MAX_BLOCKS: usize;
    /// Which layout this is.
    const LAYOUT: u64;
    /// Whether parts with the same next hop are one: not where the length of the prefix is kept.
    const MERGES: bool;

    fn load(cell: &Self::Cell) -> u32;
    fn load_relaxed(cell: &Self::Cell) -> u32;
    fn store(cell: &Self::Cell, entry: u32);
    fn is_extended(entry: u32) -> bool;
    /// Number of the block of an extended entry.
    fn block(entry: u32) -> u32;
    /// Next hop of any other entry.
    fn hop(entry: u32) -> NextHopId;
    /// The entry for a block.
    fn extended(block: u32) -> u32;
    /// The entry for an answer. Slim forms keep the next hop alone.
    fn leaf(route: Serving<impl crate::Addr>) -> u32;
    /// Length of the prefix that gave this answer, 0 where the form does not keep it.
    fn depth(entry: u32) -> u8;

    fn slot(entry: u32) -> Slot {
        if Self::is_extended(entry) { Slot::Child(Self::block(entry)) } else { Slot::Leaf(entry) }
    }
    fn entry(slot: Slot) -> u32 {
        match slot {
            Slot::Leaf(entry) => entry,
            Slot::Child(block) => Self::extended(block),
        }
    }
}

/// rte_fib, two bytes: `[ next hop or block, 15 | extended, 1 ]`.
pub(super) struct Narrow;
/// rte_fib, four bytes: `[ next hop or block, 31 | extended, 1 ]`.
pub(super) struct Wide;
/// rte_lpm: `[ length, 6 | extended, 1 | valid, 1 | next hop or block, 24 ]`.
pub(super) struct Lengths4;
/// rte_lpm6: `[ extended, 1 | -, 1 | valid, 1 | length, 8 | next hop or block, 21 ]`. The bit that is
/// free here marks a block in use in rte_lpm6.
pub(super) struct Lengths6;

macro_rules! cell {
    ($cell:ty, $entry:ty) => {
        type Cell = $cell;
        /// Acquire: pairs with the release store of `store`; a block was filled before.
        #[inline(always)]
        fn load(cell: &$cell) -> u32 {
            u32::from(cell.load(Acquire))
        }
        /// Answer of an entry that refers to no block.
        #[inline(always)]
        fn load_relaxed(cell: &$cell) -> u32 {
            u32::from(cell.load(Relaxed))
        }
        #[allow(clippy::cast_possible_truncation, reason = "next hops and blocks are checked")]
        #[inline(always)]
        fn store(cell: &$cell, entry: u32) {
            debug_assert_eq!(u32::from(entry as $entry), entry, "an entry fits its form");
            cell.store(entry as $entry, Release);
        }
    };
}

macro_rules! slim {
    ($form:ty, $cell:ty, $entry:ty, $bits:literal, $variant:literal) => {
        impl Form for $form {
            cell!($cell, $entry);
            const MAX_HOP: u32 = (1 << $bits) - 1;
            const MAX_BLOCKS: usize = 1 << $bits;
            const LAYOUT: u64 = stamp(b"fpd8", $variant, 1);
            const MERGES: bool = true;
            #[inline(always)]
            fn is_extended(entry: u32) -> bool {
                entry & 1 == 1
            }
            #[inline(always)]
            fn block(entry: u32) -> u32 {
                entry >> 1
            }
            #[inline(always)]
            fn hop(entry: u32) -> NextHopId {
                NextHopId(entry >> 1)
            }
            fn extended(block: u32) -> u32 {
                block << 1 | 1
            }
            fn leaf(route: Serving<impl crate::Addr>) -> u32 {
                route.map_or(0, |(_, hop)| hop.0 << 1)
            }
            fn depth(_: u32) -> u8 {
                0
            }
        }
    };
}

slim!(Narrow, AtomicU16, u16, 15, 2);
slim!(Wide, AtomicU32, u32, 31, 4);

macro_rules! lengths {
    ($form:ty, $bits:literal, $valid:literal, $extended:literal, $depth:literal, $variant:literal) => {
        impl Form for $form {
            cell!(AtomicU32, u32);
            const MAX_HOP: u32 = (1 << $bits) - 1;
            const MAX_BLOCKS: usize = 1 << $bits;
            const LAYOUT: u64 = stamp(b"fplp", $variant, 1);
            const MERGES: bool = false;
            #[inline(always)]
            fn is_extended(entry: u32) -> bool {
                entry >> $extended & 1 == 1
            }
            #[inline(always)]
            fn block(entry: u32) -> u32 {
                entry & ((1 << $bits) - 1)
            }
            #[inline(always)]
            fn hop(entry: u32) -> NextHopId {
                NextHopId(entry & ((1 << $bits) - 1))
            }
            fn extended(block: u32) -> u32 {
                block | 1 << $valid | 1 << $extended
            }
            fn leaf(route: Serving<impl crate::Addr>) -> u32 {
                route.map_or(0, |(prefix, hop)| {
                    hop.0 | 1 << $valid | u32::from(prefix.len()) << $depth
                })
            }
            fn depth(entry: u32) -> u8 {
                (entry >> $depth).to_le_bytes()[0]
            }
        }
    };
}

lengths!(Lengths4, 24, 24, 25, 26, 4);
lengths!(Lengths6, 21, 29, 31, 21, 6);
