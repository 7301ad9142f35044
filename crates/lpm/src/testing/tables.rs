//! Tables to build: like those of the Internet, and unlike anything one would meet.

use alloc::vec::Vec;
use std::collections::HashSet;
use std::string::String;

use super::Rng;
use crate::addr::{Addr, Prefix};
use crate::next_hop_id::NextHopId;

/// What a generated table looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Lengths and clustering of a full table of a tier-1 network; neighbours often share a next
    /// hop, and a few next hops carry most of it.
    Internet,
    /// Chains of all lengths, the default route, hosts, both ends of the space, siblings with equal
    /// next hops, and a spot of hosts so dense that it overflows every short form.
    Hostile,
}

/// About `count` routes (`Hostile` has at least some 3,000), each prefix once, by address and then
/// length. Next hops are 1 to `hops`.
pub fn table<A: Addr>(
    shape: Shape,
    count: usize,
    hops: u32,
    seed: u64,
) -> Vec<(Prefix<A>, NextHopId)> {
    let mut rng = Rng::new(seed);
    let prefixes = match shape {
        Shape::Internet => internet(count, &mut rng),
        Shape::Hostile => hostile(count, &mut rng),
    };
    let mut prefixes: Vec<Prefix<A>> =
        prefixes.into_iter().collect::<HashSet<_>>().into_iter().collect();
    prefixes.sort_unstable();
    let mut hop = NextHopId(1);
    let routes = prefixes.into_iter().map(|prefix| {
        // Neighbours share their next hop in 65 of 100 cases, as in real tables.
        if !rng.chance(65) {
            hop = skewed_hop(hops, &mut rng);
        }
        (prefix, hop)
    });
    routes.collect()
}

/// A next hop from 1 to `hops`, the low ones far more often.
pub(super) fn skewed_hop(hops: u32, rng: &mut Rng) -> NextHopId {
    // The product of uniform numbers piles up near 0, about as a Zipf distribution does.
    let top = rng.below(hops as usize) + 1;
    NextHopId(u32::try_from(rng.below(top)).expect("below `hops`") + 1)
}

/// How many prefixes of each length a tier-1 table has (view of the early 2020s, 901,899 and
/// 160,147 routes; data of gaissmai/iprbench). Lengths with next to none share a few.
const LENGTHS_V4: &[(u8, usize)] = &[
    (8, 16),
    (9, 13),
    (10, 38),
    (11, 103),
    (12, 299),
    (13, 581),
    (14, 1203),
    (15, 2100),
    (16, 13490),
    (17, 8235),
    (18, 13798),
    (19, 24870),
    (20, 42611),
    (21, 50750),
    (22, 108_623),
    (23, 96510),
    (24, 537_698),
    (26, 25),
    (29, 25),
    (30, 25),
    (32, 886),
];
const LENGTHS_V6: &[(u8, usize)] = &[
    (20, 30),
    (24, 40),
    (27, 39),
    (28, 193),
    (29, 4371),
    (30, 650),
    (31, 284),
    (32, 22548),
    (33, 2926),
    (34, 2603),
    (35, 1043),
    (36, 5996),
    (37, 880),
    (38, 1617),
    (39, 1377),
    (40, 13418),
    (41, 903),
    (42, 2301),
    (43, 1001),
    (44, 14365),
    (45, 1553),
    (46, 3039),
    (47, 3153),
    (48, 75488),
    (56, 62),
    (64, 184),
    (127, 33),
    (128, 50),
];

/// Blocks that hold the longer prefixes, level by level: a length, and how many per 1,000 routes.
/// Made to match the counts of places that are not uniform in the same two tables.
const POOLS_V4: &[(u8, usize)] = &[(8, 0), (16, 13)];
const POOLS_V6: &[(u8, usize)] = &[(16, 0), (24, 45), (28, 115), (32, 56), (40, 105)];

fn internet<A: Addr>(count: usize, rng: &mut Rng) -> Vec<Prefix<A>> {
    let v4 = A::BITS == 32;
    let (lengths, pools) = if v4 { (LENGTHS_V4, POOLS_V4) } else { (LENGTHS_V6, POOLS_V6) };
    let mut levels: Vec<Vec<Prefix<A>>> = Vec::new();
    for &(len, per_mille) in pools {
        let blocks = match levels.last() {
            None if v4 => {
                (1u128..224).filter(|n| ![10, 127].contains(n)).map(|n| n << 24).collect()
            }
            None => (0..60u128).map(|n| (0x2001 + n * 0x5d) << 112).collect(),
            Some(above) => {
                let want = (count * per_mille / 1000).max(1);
                (0..want).map(|_| inside(above[skewed(above.len(), rng)], len, rng)).collect()
            }
        };
        let blocks: Vec<u128> = blocks;
        levels.push(blocks.into_iter().map(|a| Prefix::masked(A::from_u128(a), len)).collect());
    }
    let total: usize = lengths.iter().map(|&(_, n)| n).sum();
    let mut found = HashSet::with_capacity(count);
    // Some lengths have few places; a draw that hits an old prefix is made again, within reason.
    for _ in 0..count.saturating_mul(20) {
        if found.len() == count {
            break;
        }
        let mut draw = rng.below(total);
        let picked = lengths.iter().find(|&&(_, n)| {
            let here = draw < n;
            draw = draw.wrapping_sub(n);
            here
        });
        let len = picked.map_or(24, |&(len, _)| len);
        let pool = pools.iter().zip(&levels).rev().find(|((above, _), _)| *above < len);
        let pool = pool.map_or(&levels[0], |(_, pool)| pool);
        let block = pool[skewed(pool.len(), rng)];
        let addr = A::from_u128(inside(block, len, rng));
        found.insert(Prefix::masked(addr, len));
    }
    found.into_iter().collect()
}

/// A random prefix of length `len` in `block`, as the bits of its address.
fn inside<A: Addr>(block: Prefix<A>, len: u8, rng: &mut Rng) -> u128 {
    let addr = block.addr() | rng.addr::<A>() & !A::mask(block.len());
    (addr & A::mask(len)).to_u128()
}

/// An index below `bound`, the low ones more often: some blocks are crowded.
fn skewed(bound: usize, rng: &mut Rng) -> usize {
    rng.below(bound).min(rng.below(bound))
}

fn hostile<A: Addr>(count: usize, rng: &mut Rng) -> Vec<Prefix<A>> {
    let mut all = Vec::new();
    let anchors: Vec<A> = [A::MIN, A::MAX].into_iter().chain((0..6).map(|_| rng.addr())).collect();
    for &anchor in &anchors[..4] {
        all.extend((0..=A::BITS).map(|len| Prefix::masked(anchor, len)));
    }
    // Siblings: the other half of each step of a chain.
    for len in 1..=A::BITS {
        let anchor = anchors[usize::from(len) % anchors.len()];
        all.push(Prefix::masked(anchor ^ (A::mask(len) ^ A::mask(len - 1)), len));
    }
    let dense = rng.addr::<A>() & A::mask(A::BITS - 12);
    for i in 0..1024u128 {
        // Every other address, in 2,048 of them; and every /24 (or as far up) in 256 of them.
        all.push(Prefix::host(dense | A::from_u128(2 * i)));
        if i < 256 {
            let block = anchors[4] & A::mask(A::BITS - 16) | A::from_u128(i << 8);
            all.push(Prefix::masked(block, A::BITS - 8));
        }
    }
    while all.len() < count {
        let anchor = anchors[rng.below(anchors.len())];
        let keep = u8::try_from(rng.below(usize::from(A::BITS) + 1)).expect("at most 128");
        let len = u8::try_from(rng.below(usize::from(A::BITS) + 1)).expect("at most 128");
        let addr = anchor & A::mask(keep) | rng.addr::<A>() & !A::mask(keep);
        all.push(Prefix::masked(addr, len));
    }
    all
}

/// Routes of text lines `prefix nexthop`, next hops numbered from 1 in order of first appearance.
///
/// # Errors
/// The first line that is not such a route.
pub fn read_table<A: Addr>(text: &str) -> Result<Vec<(Prefix<A>, NextHopId)>, String> {
    let mut ids = std::collections::HashMap::new();
    let mut routes = Vec::new();
    for line in text.lines() {
        let (prefix, hop) = line.split_once(' ').ok_or(line)?;
        let prefix = prefix.parse().map_err(|_| line)?;
        let fresh = u32::try_from(ids.len() + 1).map_err(|_| line)?;
        routes.push((prefix, NextHopId(*ids.entry(hop).or_insert(fresh))));
    }
    Ok(routes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_internet_has_its_lengths_and_its_crowds() {
        let v4 = table::<u32>(Shape::Internet, 20_000, 496, 1);
        assert_eq!(v4.len(), 20_000);
        let share = |len| v4.iter().filter(|(p, _)| p.len() == len).count() * 100 / v4.len();
        assert!((55..65).contains(&share(24)) && (10..14).contains(&share(22)), "{}", share(24));
        assert!(v4.windows(2).all(|w| w[0].0 < w[1].0));
        let same = v4.windows(2).filter(|w| w[0].1 == w[1].1).count() * 100 / v4.len();
        assert!((60..75).contains(&same), "{same}");
        assert!(v4.iter().all(|(_, hop)| (1..=496).contains(&hop.0)));
        let blocks = |len| v4.iter().map(|(p, _)| p.addr() >> (32 - len)).collect::<HashSet<_>>();
        assert!(blocks(16).len() < 2000, "{}", blocks(16).len());

        let v6 = table::<u128>(Shape::Internet, 20_000, 31, 1);
        assert!(v6.iter().all(|(p, _)| p.addr() >> 125 == 1));
        let crowded: HashSet<_> =
            v6.iter().filter(|(p, _)| p.len() > 32).map(|(p, _)| p.addr() >> 96).collect();
        assert!(crowded.len() < 2500, "{}", crowded.len());
        assert_eq!(v6, table::<u128>(Shape::Internet, 20_000, 31, 1));
        assert_ne!(v6, table::<u128>(Shape::Internet, 20_000, 31, 2));
    }

    #[test]
    fn a_hostile_table_has_every_length_and_both_ends() {
        let v4 = table::<u32>(Shape::Hostile, 4000, 300, 7);
        for len in 0..=32u8 {
            assert!(v4.iter().any(|(p, _)| p.len() == len && p.first() == 0), "{len}");
            assert!(v4.iter().any(|(p, _)| p.len() == len && p.last() == u32::MAX), "{len}");
        }
        let densest = v4.chunk_by(|a, b| a.0.addr() >> 11 == b.0.addr() >> 11).map(<[_]>::len);
        assert!(densest.max() >= Some(1024));
    }

    #[test]
    fn tables_are_read() {
        let routes =
            read_table::<u32>("0.0.0.0/0 1.1.1.1\n10.0.0.0/8 2.2.2.2\n10.0.0.0/9 1.1.1.1\n");
        let hops: Vec<_> = routes.unwrap().iter().map(|(_, hop)| hop.0).collect();
        assert_eq!(hops, [1, 2, 1]);
        assert!(read_table::<u32>("10.0.0.1/8 2.2.2.2").is_err());
    }
}
