//! Prefixes that changed while a table is built beside.
//!
//! A list, in which a prefix may stand more than once: a set moves all that it holds as it grows, and in a burst of a million
//! routes that would be the longest stall of the writer.

use fingerpost_lpm::{Addr, Prefix};

/// Length up to which repeated prefixes stay in the list.
const MOST_REPEATED: usize = 1 << 20;

/// Changed prefixes, the latest last.
pub(super) struct Changed<A: Addr> {
    list: Vec<Prefix<A>>,
    /// Length at which repeated ones are dropped.
    limit: usize,
}

impl<A: Addr> Default for Changed<A> {
    fn default() -> Self {
        Self { list: Vec::new(), limit: MOST_REPEATED }
    }
}

impl<A: Addr> Changed<A> {
    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Length of the list.
    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    /// Adds prefixes.
    pub(super) fn extend(&mut self, prefixes: impl Iterator<Item = Prefix<A>>) {
        self.list.extend(prefixes);
        if self.list.len() > self.limit {
            tidy(&mut self.list);
            self.limit = MOST_REPEATED.max(2 * self.list.len());
        }
    }

    /// The latest, each once, and the number of places that they take: at most `most`.
    pub(super) fn latest(&self, most: usize) -> (Vec<Prefix<A>>, usize) {
        let places = self.list.len().min(most);
        let mut latest = self.list[self.list.len() - places..].to_vec();
        tidy(&mut latest);
        (latest, places)
    }

    /// Drops so many of the latest places.
    pub(super) fn drop(&mut self, places: usize) {
        self.list.truncate(self.list.len() - places);
    }

    /// All of them, each once.
    pub(super) fn into_prefixes(mut self) -> Vec<Prefix<A>> {
        tidy(&mut self.list);
        self.list
    }
}

fn tidy<A: Addr>(list: &mut Vec<Prefix<A>>) {
    list.sort_unstable();
    list.dedup();
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    #[test]
    fn repeated_prefixes_take_bounded_room() {
        let mut changed = Changed::default();
        let prefix = |n: u32| Prefix::masked(n << 8, 24);
        for n in 0..3_000_000 {
            changed.extend([prefix(n % 3)].into_iter());
        }
        assert!(changed.len() <= MOST_REPEATED);
        let (latest, places) = changed.latest(64);
        assert_eq!((latest, places), (vec![prefix(0), prefix(1), prefix(2)], 64));
        changed.drop(changed.len() - 2);
        assert_eq!(changed.latest(64).1, 2);
        assert_eq!(changed.into_prefixes().len(), 2);
    }
}
