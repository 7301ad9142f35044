//! What the bits of DXR's entries and ranges mean: one form for IPv4 and each K, one for IPv6.
//!
//! A range compares as a whole: with all ones in place of the next hop, the key is not below any range
//! that starts at or before it. So a search needs no masks.

use alloc::vec::Vec;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicU16, AtomicU32, AtomicU64};

use crate::addr::Addr;
use crate::head::stamp;
use crate::mem::{Cells, Masked, Region, prefetch};

/// Ranges of one chunk: start inside the chunk, next hop.
pub(super) type Ranges<F> = [(<F as Form>::Addr, u32)];

/// What an entry of the direct table means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    Hit(u32),
    /// The first of the short ranges, and how many there are.
    Short(usize, usize),
    /// The word where the long ranges start, and how many there are.
    Long(usize, usize),
}

pub(super) trait Form: Sized + Send + Sync + 'static {
    type Addr: Addr;
    /// A unit of the heap, 4 or 8 bytes.
    type Word: Copy + Eq + Into<u64> + Send;
    /// A range.
    type Short: Copy + Ord;
    type Long: Copy + Ord;
    /// The heap as readers keep it, and as a batch keeps it in registers.
    type Cells: Send + Sync;
    type Heap<'a>: Copy;

    /// Bits of an address that choose a chunk.
    const K: u32;
    /// Bits of an address.
    const BITS: u8 = <Self::Addr as Addr>::BITS;
    const WORD_BYTES: usize;
    const MAX_HOP: u32;
    const LAYOUT: u64;
    /// The fragments of an entry that is a next hop.
    const HIT: u32;

    /// Number of the K bits that choose a block in the two-stage form.
    fn split(prefixes: usize) -> u32;

    /// At least `mask + 1` words, a power of two.
    fn cells(region: &Region, mask: usize) -> Self::Cells;
    fn heap(cells: &Self::Cells) -> Self::Heap<'_>;
    /// Word `base`, where the count of a long chunk may stand.
    fn first(heap: Self::Heap<'_>, base: usize) -> u64;
    fn short_at(heap: Self::Heap<'_>, index: usize) -> Self::Short;
    /// Range `index` of those that start at word `base`.
    fn long_at(heap: Self::Heap<'_>, base: usize, index: usize) -> Self::Long;
    /// Prefetches the line of word `base`.
    fn prefetch(heap: Self::Heap<'_>, base: usize);

    /// Where a lookup starts.
    fn chunk(addr: Self::Addr) -> usize;
    /// The key as the greatest range that starts at or before it.
    fn short_key(addr: Self::Addr) -> Self::Short;
    fn long_key(addr: Self::Addr) -> Self::Long;
    fn short_hop(range: Self::Short) -> u32;
    fn long_hop(range: Self::Long) -> u32;
    /// Value of a range for `explain`.
    fn short_value(range: Self::Short) -> u64;
    fn long_value(range: Self::Long) -> u64;

    /// `first` reads the first word of the chunk, where its count stands if the entry has no room.
    fn decode(entry: u32, first: impl FnOnce(usize) -> u64) -> Entry;
    /// [`Form::decode`] for entries of short chunks that hold their count, as those of a batch.
    fn plain_short(entry: u32) -> Option<(usize, usize)>;
    /// Words of the chunk of an entry.
    fn size(entry: u32, first: impl FnOnce(usize) -> u64) -> u32;
    /// The words of a chunk as they stand in the heap, and the low part of its entry. `None` when one
    /// next hop serves the whole chunk.
    fn encode(ranges: &Ranges<Self>, words: &mut Vec<Self::Word>) -> Option<u32>;

    fn load(region: &Region, index: usize) -> Self::Word;
    fn store(region: &Region, index: usize, word: Self::Word);
}

/// Count read from the heap: damaged memory may hold anything.
#[inline(always)]
fn narrow(count: u64) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// IPv4, as FreeBSD has it:
///
/// ```text
/// direct entry   31           10 9        0
///                [ base         | fragments ]   M = 2^(23-K) - 1, or 0 for K = 24
///                                               P = 1023 without the bits of M
///     fragments  P ..= 1023   short chunk at word base, of (fragments & M) + 1 words
///                P - 1        long chunk too long for this field: its first word is ranges - 1
///                P - 2        no chunk: base is the next hop
///                ..= P - 3    long chunk at word base, of fragments + 1 words
///
/// long range     u32  [ start, 32 - K bits | next hop, K bits ]
/// short range    u16  [ start >> 8, 24 - K bits | next hop, K - 8 bits ]; an odd list ends twice
/// ```
pub(super) struct V4<const K: u32>;

impl<const K: u32> V4<K> {
    /// Mask of a short chunk's count.
    const M: u32 = if K == 24 { 0 } else { (1 << (23 - K)) - 1 };
    /// The least `fragments` of a short chunk.
    const P: u32 = 1023 & !Self::M;
    const XL: u32 = Self::P - 1;
    /// Next-hop bits of a long range.
    const LONG_HOP: u32 = (1 << K) - 1;
    /// Next-hop bits of a short range.
    #[allow(clippy::cast_possible_truncation, reason = "at most 16 bits")]
    const SHORT_HOP: u16 = ((1u32 << (K - 8)) - 1) as u16;
    /// K = 24 leaves no bits for the start of a short range.
    const SHORT: bool = K < 24;
}

/// The heap, as long ranges and as short ones.
pub(super) struct Cells4 {
    words: Cells<AtomicU32>,
    halves: Cells<AtomicU16>,
}

#[derive(Clone, Copy)]
pub(super) struct Heap4<'a> {
    words: Masked<'a, AtomicU32>,
    halves: Masked<'a, AtomicU16>,
}

impl<const K: u32> Form for V4<K> {
    type Addr = u32;
    type Word = u32;
    type Short = u16;
    type Long = u32;
    type Cells = Cells4;
    type Heap<'a> = Heap4<'a>;

    const K: u32 = K;
    const WORD_BYTES: usize = 4;
    /// Long ranges have K bits for a next hop, direct entries 22.
    const MAX_HOP: u32 = if K < 22 { Self::LONG_HOP } else { (1 << 22) - 1 };
    #[allow(clippy::cast_possible_truncation, reason = "K is at most 24")]
    const LAYOUT: u64 = stamp(b"fpdx", K as u8, 1);
    const HIT: u32 = Self::P - 2;

    /// What trying each split on tables of every size finds, within a quarter: there is a block of its
    /// own for some 32 prefixes. It depends on their number alone, because a new split needs a new
    /// table; above 32,768 it stays.
    fn split(prefixes: usize) -> u32 {
        let blocks = (prefixes >> 5).max(1).ilog2();
        (blocks + K + 1).div_ceil(2).min(16)
    }

    fn cells(region: &Region, mask: usize) -> Cells4 {
        Cells4 { words: Cells::new(region, mask), halves: Cells::new(region, 2 * mask + 1) }
    }
    #[inline(always)]
    fn heap(cells: &Cells4) -> Heap4<'_> {
        Heap4 { words: cells.words.view(), halves: cells.halves.view() }
    }
    #[inline(always)]
    fn first(heap: Heap4<'_>, base: usize) -> u64 {
        heap.words.at(base).load(Relaxed).into()
    }
    #[inline(always)]
    fn short_at(heap: Heap4<'_>, index: usize) -> u16 {
        heap.halves.at(index).load(Relaxed)
    }
    #[inline(always)]
    fn long_at(heap: Heap4<'_>, base: usize, index: usize) -> u32 {
        heap.words.at(base + index).load(Relaxed)
    }
    #[inline(always)]
    fn prefetch(heap: Heap4<'_>, base: usize) {
        prefetch(heap.words.at(base));
    }

    #[inline(always)]
    fn chunk(addr: u32) -> usize {
        (addr >> (32 - K)) as usize
    }
    #[inline(always)]
    #[allow(clippy::cast_possible_truncation, reason = "the upper half was shifted down")]
    fn short_key(addr: u32) -> u16 {
        ((addr << K) >> 16) as u16 | Self::SHORT_HOP
    }
    #[inline(always)]
    fn long_key(addr: u32) -> u32 {
        addr << K | Self::LONG_HOP
    }
    #[inline(always)]
    fn short_hop(range: u16) -> u32 {
        u32::from(range & Self::SHORT_HOP)
    }
    #[inline(always)]
    fn long_hop(range: u32) -> u32 {
        range & Self::LONG_HOP
    }
    fn short_value(range: u16) -> u64 {
        range.into()
    }
    fn long_value(range: u32) -> u64 {
        range.into()
    }

    #[inline(always)]
    fn decode(entry: u32, first: impl FnOnce(usize) -> u64) -> Entry {
        let (base, fragments) = (entry >> 10, entry & 1023);
        if fragments == Self::HIT {
            return Entry::Hit(base);
        }
        let base = base as usize;
        if Self::SHORT && fragments >= Self::P {
            Entry::Short(2 * base, 2 * ((fragments & Self::M) as usize + 1))
        } else if fragments == Self::XL {
            Entry::Long(base + 1, narrow(first(base)) as usize + 1)
        } else {
            Entry::Long(base, fragments as usize + 1)
        }
    }

    #[inline(always)]
    fn plain_short(entry: u32) -> Option<(usize, usize)> {
        (Self::SHORT && entry & 1023 >= Self::P)
            .then(|| (2 * (entry >> 10) as usize, 2 * ((entry & Self::M) as usize + 1)))
    }

    fn size(entry: u32, first: impl FnOnce(usize) -> u64) -> u32 {
        match entry & 1023 {
            fragments if Self::SHORT && fragments >= Self::P => (fragments & Self::M) + 1,
            fragments if fragments == Self::XL => {
                narrow(first((entry >> 10) as usize)).saturating_add(2)
            }
            fragments => fragments + 1,
        }
    }

    fn encode(ranges: &Ranges<Self>, words: &mut Vec<u32>) -> Option<u32> {
        words.clear();
        if ranges.len() == 1 {
            return None;
        }
        let short = Self::SHORT
            && ranges.iter().all(|&(start, hop)| {
                start.is_multiple_of(256) && hop <= u32::from(Self::SHORT_HOP)
            });
        let count = u32::try_from(ranges.len()).expect("a chunk has at most 2^16 addresses");
        if short {
            let half = |&(start, hop): &(u32, u32)| {
                let half = (start >> 8) << (K - 8) | hop;
                u16::try_from(half).expect("24 - K and K - 8 bits").to_ne_bytes()
            };
            for pair in ranges.chunks(2) {
                // In memory order, whatever the machine's: readers see 16-bit integers.
                let ([a, b], [c, d]) = (half(&pair[0]), half(&pair[pair.len() - 1]));
                words.push(u32::from_ne_bytes([a, b, c, d]));
            }
            return Some(Self::P | (count.div_ceil(2) - 1));
        }
        let xl = count > Self::HIT;
        if xl {
            words.push(count - 1);
        }
        words.extend(ranges.iter().map(|&(start, hop)| start << K | hop));
        Some(if xl { Self::XL } else { count - 1 })
    }

    fn load(region: &Region, index: usize) -> u32 {
        region.u32s()[index].load(Relaxed)
    }
    fn store(region: &Region, index: usize, word: u32) {
        region.u32s()[index].store(word, Relaxed);
    }
}

/// IPv6, with K = 24: the same two kinds of ranges, wider.
///
/// ```text
/// direct entry   31           10 9        0
///                [ base         | fragments ]
///     fragments  ..= 1020     short chunk at word base, of fragments + 1 words
///                1021         long chunk: its first word is ranges - 1
///                1022         short chunk too long for this field: its first word is ranges - 1
///                1023         no chunk: base is the next hop
///
/// short range    u64   [ bits 24 to 55 of the start | next hop, 32 ]
/// long range     u128  [ the last 104 bits of the start | next hop, 24 ], as two words, upper first
/// ```
pub(super) struct V6;

const V6_LONG: u32 = 1021;
const V6_XL: u32 = 1022;
const V6_LONG_HOP: u128 = (1 << 24) - 1;

#[allow(clippy::cast_possible_truncation, reason = "each takes a field of its own width")]
impl Form for V6 {
    type Addr = u128;
    type Word = u64;
    type Short = u64;
    type Long = u128;
    type Cells = Cells<AtomicU64>;
    type Heap<'a> = Masked<'a, AtomicU64>;

    const K: u32 = 24;
    const WORD_BYTES: usize = 8;
    /// Direct entries have 22 bits.
    const MAX_HOP: u32 = (1 << 22) - 1;
    const LAYOUT: u64 = stamp(b"fpdx", 6, 1);
    const HIT: u32 = 1023;

    /// Split as for IPv4; few blocks are not uniform, however many prefixes there are.
    fn split(prefixes: usize) -> u32 {
        let blocks = (prefixes >> 5).max(1).ilog2();
        (blocks + 26).div_ceil(2).min(15)
    }

    fn cells(region: &Region, mask: usize) -> Self::Cells {
        Cells::new(region, mask)
    }
    #[inline(always)]
    fn heap(cells: &Self::Cells) -> Self::Heap<'_> {
        cells.view()
    }
    #[inline(always)]
    fn first(heap: Self::Heap<'_>, base: usize) -> u64 {
        heap.at(base).load(Relaxed)
    }
    #[inline(always)]
    fn short_at(heap: Self::Heap<'_>, index: usize) -> u64 {
        heap.at(index).load(Relaxed)
    }
    #[inline(always)]
    fn long_at(heap: Self::Heap<'_>, base: usize, index: usize) -> u128 {
        let word = |at: usize| u128::from(heap.at(at).load(Relaxed));
        word(base + 2 * index) << 64 | word(base + 2 * index + 1)
    }
    #[inline(always)]
    fn prefetch(heap: Self::Heap<'_>, base: usize) {
        prefetch(heap.at(base));
    }

    #[inline(always)]
    fn chunk(addr: u128) -> usize {
        (addr >> 104) as usize
    }
    #[inline(always)]
    fn short_key(addr: u128) -> u64 {
        (addr >> 40) as u64 | 0xffff_ffff
    }
    #[inline(always)]
    fn long_key(addr: u128) -> u128 {
        addr << 24 | V6_LONG_HOP
    }
    #[inline(always)]
    fn short_hop(range: u64) -> u32 {
        range as u32
    }
    #[inline(always)]
    fn long_hop(range: u128) -> u32 {
        (range & V6_LONG_HOP) as u32
    }
    fn short_value(range: u64) -> u64 {
        range
    }
    fn long_value(range: u128) -> u64 {
        (range >> 64) as u64
    }

    #[inline(always)]
    fn decode(entry: u32, first: impl FnOnce(usize) -> u64) -> Entry {
        let (base, fragments) = ((entry >> 10) as usize, entry & 1023);
        let counted = |first: u64| narrow(first) as usize + 1;
        match fragments {
            Self::HIT => Entry::Hit(entry >> 10),
            V6_XL => Entry::Short(base + 1, counted(first(base))),
            V6_LONG => Entry::Long(base + 1, counted(first(base))),
            _ => Entry::Short(base, fragments as usize + 1),
        }
    }

    #[inline(always)]
    fn plain_short(entry: u32) -> Option<(usize, usize)> {
        let fragments = entry & 1023;
        (fragments < V6_LONG).then(|| ((entry >> 10) as usize, fragments as usize + 1))
    }

    fn size(entry: u32, first: impl FnOnce(usize) -> u64) -> u32 {
        match entry & 1023 {
            V6_XL => narrow(first((entry >> 10) as usize)).saturating_add(2),
            V6_LONG => narrow(first((entry >> 10) as usize)).saturating_mul(2).saturating_add(3),
            fragments => fragments + 1,
        }
    }

    fn encode(ranges: &Ranges<Self>, words: &mut Vec<u64>) -> Option<u32> {
        words.clear();
        if ranges.len() == 1 {
            return None;
        }
        let last = ranges.len() - 1;
        if ranges.iter().all(|&(start, _)| start.trailing_zeros() >= 72) {
            let plain = u32::try_from(last).ok().filter(|&last| last < V6_LONG);
            words.extend(plain.is_none().then_some(last as u64));
            let range = |&(start, hop): &(u128, u32)| (start >> 40) as u64 | u64::from(hop);
            words.extend(ranges.iter().map(range));
            return Some(plain.unwrap_or(V6_XL));
        }
        words.push(last as u64);
        for &(start, hop) in ranges {
            let range = start << 24 | u128::from(hop);
            words.extend([(range >> 64) as u64, range as u64]);
        }
        Some(V6_LONG)
    }

    fn load(region: &Region, index: usize) -> u64 {
        region.u64s()[index].load(Relaxed)
    }
    fn store(region: &Region, index: usize, word: u64) {
        region.u64s()[index].store(word, Relaxed);
    }
}
