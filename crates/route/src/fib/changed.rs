//! Prefixes that changed while a table is built beside.
//!
//! Lists of parts of the address space, in which a prefix may stand more than once: a set moves all that it holds as it
//! grows, and one list of a million prefixes takes tens of milliseconds to sort. Each of these is sorted by itself, at a length of
//! its own, so that they do not reach it together.
//!
//! Cost:   8 or 32 bytes a place; to sort a list, at most every [`MOST_REPEATED`] prefixes, takes less than a millisecond
//! Limits: about twice as many places as prefixes, or 98,304 where that is more

use fingerpost_lpm::{Addr, Prefix};

/// Number of lists.
const PARTS: usize = 64;
/// Length of a list up to which repeated prefixes stay in it, or twice that: all lists of few prefixes have fewer places than
/// sources wait for ([`MOST_BEHIND`](super::beside::MOST_BEHIND)).
const MOST_REPEATED: usize = 1 << 10;
/// Bits of an address that are the same in neighbors of a list: changes that are applied together are so near each other.
/// A block has few prefixes: the /24 of a /20 and the /64 of a /52, while a /16 of host routes or a /40 would fill one list.
const BLOCK_BITS: [u8; 2] = [20, 52];

/// Changed prefixes.
pub(super) struct Changed<A: Addr> {
    parts: Vec<Part<A>>,
    /// Places of all lists.
    len: usize,
    /// The list that is read next.
    next: usize,
}

/// One list, the latest last.
struct Part<A: Addr> {
    list: Vec<Prefix<A>>,
    /// Length at which repeated ones are dropped.
    limit: usize,
}

impl<A: Addr> Default for Changed<A> {
    fn default() -> Self {
        let part = |at| Part { list: Vec::new(), limit: least(at) };
        Self { parts: (0..PARTS).map(part).collect(), len: 0, next: 0 }
    }
}

impl<A: Addr> Changed<A> {
    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Places that the prefixes take.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Adds prefixes. Returns how many.
    pub(super) fn extend(&mut self, prefixes: impl Iterator<Item = Prefix<A>>) -> usize {
        let mut added = 0;
        for prefix in prefixes {
            added += 1;
            let at = part_of(prefix);
            let part = &mut self.parts[at];
            part.list.push(prefix);
            self.len += 1;
            if part.list.len() > part.limit {
                let before = part.list.len();
                tidy(&mut part.list);
                part.limit = least(at).max(2 * part.list.len());
                self.len -= before - part.list.len();
            }
        }
        added
    }

    /// Some of the prefixes, each once, and the number of places that they take: at most `most`.
    pub(super) fn some(&mut self, most: usize) -> (Vec<Prefix<A>>, usize) {
        if !self.is_empty() {
            while self.parts[self.next].list.is_empty() {
                self.next = (self.next + 1) % PARTS;
            }
        }
        let list = &self.parts[self.next].list;
        let places = list.len().min(most);
        let mut some = list[list.len() - places..].to_vec();
        tidy(&mut some);
        (some, places)
    }

    /// Drops the places that [`Changed::some`] returned last.
    pub(super) fn drop(&mut self, places: usize) {
        let list = &mut self.parts[self.next].list;
        list.truncate(list.len() - places);
        self.len -= places;
    }

    /// All of them, each once.
    pub(super) fn into_prefixes(self) -> Vec<Prefix<A>> {
        let mut all: Vec<_> = self.parts.into_iter().flat_map(|part| part.list).collect();
        tidy(&mut all);
        all
    }
}

/// Length of a list before it is sorted for the first time.
fn least(part: usize) -> usize {
    MOST_REPEATED + MOST_REPEATED * part / PARTS
}

/// The list of a prefix: any block of the address space may have nearly all changes, so blocks are spread.
fn part_of<A: Addr>(prefix: Prefix<A>) -> usize {
    let block_bits = BLOCK_BITS[usize::from(A::FAMILY == 6)];
    let block = prefix.addr().to_u128() >> (A::BITS - block_bits);
    let block = u64::try_from(block).expect("a block has at most 52 bits");
    let spread = block.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - PARTS.ilog2());
    usize::try_from(spread).expect("there are few parts")
}

fn tidy<A: Addr>(list: &mut Vec<Prefix<A>>) {
    list.sort_unstable();
    list.dedup();
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    fn prefix(n: u32) -> Prefix<u32> {
        Prefix::masked(n << 8, 24)
    }

    #[test]
    fn repeated_prefixes_take_bounded_room() {
        let mut changed = Changed::default();
        for n in 0..3_000_000 {
            changed.extend([prefix(n % 3)].into_iter());
        }
        assert!(changed.len() <= 2 * MOST_REPEATED);
        let (some, places) = changed.some(64);
        assert_eq!((some, places), (vec![prefix(0), prefix(1), prefix(2)], 64));
        changed.drop(changed.len() - 2);
        assert_eq!(changed.some(64).1, 2);
        assert_eq!(changed.into_prefixes().len(), 2);
    }

    /// Longest list of these prefixes, each of which comes three times.
    fn longest<A: Addr>(prefixes: impl Iterator<Item = Prefix<A>> + Clone) -> usize {
        let mut changed = Changed::default();
        (0..3).for_each(|_| _ = changed.extend(prefixes.clone()));
        changed.parts.iter().map(|part| part.limit).max().unwrap()
    }

    #[test]
    fn prefixes_of_one_block_fill_no_single_list() {
        let count = 65_536u32;
        // Host routes of 10.1.0.0/16, and each 4th /64 of 2001:db8::/46.
        let v4 = (0..count).map(|n| Prefix::masked((0x0a01 << 16) + n, 32));
        let v6 =
            (0..count).map(|n| Prefix::masked((0x2001_0db8 << 96) + (u128::from(n) << 66), 64));
        let most = count as usize / 4 + 2 * MOST_REPEATED;
        assert!(longest(v4.clone()) <= most, "{}", longest(v4));
        assert!(longest(v6.clone()) <= most, "{}", longest(v6));
    }

    /// What one addition sorts is what it makes wait.
    #[test]
    fn no_list_of_a_burst_is_sorted_as_a_whole() {
        let (mut changed, mut longest, mut sorted) = (Changed::default(), 0, 0);
        let count = 1_000_000u32;
        for round in 0..3 {
            for n in 0..count {
                let before = changed.len();
                // Neighbors last: an order of changes, not of addresses.
                changed.extend([prefix(n.wrapping_mul(7919) % count)].into_iter());
                if changed.len() <= before {
                    sorted += 1;
                    let part = &changed.parts[part_of(prefix(n.wrapping_mul(7919) % count))];
                    longest = longest.max(part.limit);
                }
            }
            assert!(round == 0 || sorted > 0);
        }
        assert!(longest <= 4 * (count as usize / PARTS + MOST_REPEATED), "{longest}");
        let mut left = count;
        while !changed.is_empty() {
            let (some, places) = changed.some(64);
            changed.drop(places);
            left = left.saturating_sub(u32::try_from(some.len()).unwrap());
        }
        assert_eq!(left, 0, "all of them were there");
    }
}
