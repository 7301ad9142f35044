//! Changed prefixes that readers do not see yet, each with the next hop that they do see.
//!
//! Notes come in order; of several of one prefix the first tells what readers know, and what is best by
//! now stands in the RIB. So a prefix that flaps a million times is one entry: when the list has doubled
//! since it was last put in order, it is put in order again, which costs a few comparisons a note.

use fingerpost_lpm::{Addr, Change, NextHopId, Prefix};

/// Below this many notes putting in order is not worth it.
const SMALL: usize = 4096;

/// See the file's header.
#[derive(Debug)]
pub struct Backlog<A: Addr> {
    notes: Vec<(Prefix<A>, NextHopId)>,
    /// Put in order when there are so many.
    limit: usize,
}

impl<A: Addr> Default for Backlog<A> {
    fn default() -> Self {
        Self { notes: Vec::new(), limit: SMALL }
    }
}

impl<A: Addr> Backlog<A> {
    /// The best next hop of `prefix` changed; it was `old`.
    pub fn push(&mut self, prefix: Prefix<A>, old: NextHopId) {
        if self.notes.len() >= self.limit {
            self.tidy();
        }
        self.notes.push((prefix, old));
    }

    /// Takes what `newer` holds.
    pub fn append(&mut self, newer: &mut Self) {
        if self.notes.is_empty() {
            return std::mem::swap(self, newer);
        }
        for &(prefix, old) in &newer.notes {
            self.push(prefix, old);
        }
        newer.clear();
    }

    /// Entries: at least as many as prefixes, and at most about twice as many.
    pub fn len(&self) -> usize {
        self.notes.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.notes.is_empty()
    }

    /// Every note, in no order.
    pub fn iter(&self) -> std::slice::Iter<'_, (Prefix<A>, NextHopId)> {
        self.notes.iter()
    }

    /// Whether a noted prefix holds `addr`: its answer may be that of before.
    pub fn touches(&self, addr: A) -> bool {
        self.notes.iter().any(|(prefix, _)| prefix.first() <= addr && addr <= prefix.last())
    }

    /// Forgets everything, and the room of a large burst.
    pub fn clear(&mut self) {
        self.notes.clear();
        self.notes.shrink_to(SMALL);
        self.limit = SMALL;
    }

    /// What changed in all, by address and length. `best` sets the new next hop of each to what is best now.
    pub fn changes(&mut self, best: impl FnOnce(&mut [Change<A>])) -> Vec<Change<A>> {
        self.tidy();
        let change = |&(prefix, old)| Change { prefix, old, new: NextHopId::NONE };
        let mut changes: Vec<_> = self.notes.iter().map(change).collect();
        best(&mut changes);
        changes.retain(|change| change.old != change.new);
        changes
    }

    /// One note a prefix, the first; in order.
    fn tidy(&mut self) {
        // Stable, so that the first note of a prefix stays the first.
        self.notes.sort_by_key(|(prefix, _)| *prefix);
        self.notes.dedup_by_key(|(prefix, _)| *prefix);
        self.limit = SMALL.max(2 * self.notes.len());
    }
}

impl<'a, A: Addr> IntoIterator for &'a Backlog<A> {
    type Item = &'a (Prefix<A>, NextHopId);
    type IntoIter = std::slice::Iter<'a, (Prefix<A>, NextHopId)>;

    fn into_iter(self) -> Self::IntoIter {
        self.notes.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(n: u32) -> Prefix<u32> {
        Prefix::masked(n << 8, 24)
    }

    fn all(hop: NextHopId) -> impl FnOnce(&mut [Change<u32>]) {
        move |changes| changes.iter_mut().for_each(|change| change.new = hop)
    }

    #[test]
    fn a_prefix_that_flaps_a_million_times_is_one_entry() {
        let mut backlog = Backlog::<u32>::default();
        for i in 0..1_000_000 {
            backlog.push(prefix(7), NextHopId(i));
        }
        assert!(backlog.len() <= SMALL, "{}", backlog.len());
        assert!(backlog.notes.capacity() <= 2 * SMALL, "{}", backlog.notes.capacity());
        let (old, new) = (NextHopId(0), NextHopId(9));
        assert_eq!(backlog.changes(all(new)), [Change { prefix: prefix(7), old, new }]);
        assert_eq!(backlog.changes(all(old)), [], "back where it was");
    }

    #[test]
    fn many_prefixes_keep_what_readers_know() {
        let mut backlog = Backlog::<u32>::default();
        for round in 0..10 {
            for n in 0..5000 {
                backlog.push(prefix(n), NextHopId(round));
            }
        }
        assert!(backlog.len() <= 2 * 5000 + SMALL);
        let changes = backlog.changes(all(NextHopId(99)));
        assert_eq!(changes.len(), 5000);
        assert!(changes.iter().all(|change| change.old == NextHopId(0)));
    }

    #[test]
    fn appended_notes_are_newer() {
        let (mut a, mut b) = (Backlog::default(), Backlog::default());
        a.push(prefix(1), NextHopId(1));
        b.push(prefix(1), NextHopId(2));
        b.push(prefix(2), NextHopId(3));
        a.append(&mut b);
        assert!(b.is_empty());
        assert!(a.touches(0x1ff) && a.touches(0x200) && !a.touches(0x300));
        let olds: Vec<u32> = a.changes(all(NextHopId::NONE)).iter().map(|c| c.old.0).collect();
        assert_eq!(olds, [1, 3]);
        a.clear();
        a.append(&mut b);
        assert!(a.is_empty());
    }
}
