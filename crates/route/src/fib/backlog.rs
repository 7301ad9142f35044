//! Backlog: changed prefixes that readers do not see yet, each with the next hop that they do see.
//!
//! The one place where changes wait. Notes come in order; the first one of a prefix has what readers see, and the
//! best next hop of now stands in the RIB. So a prefix that flaps a million times is one entry: when the list has
//! doubled since it was last sorted, or has [`MOST_UNSORTED`] more, it is sorted again. That is a sort of the new ones and a
//! pass over the others, which costs a few comparisons a note and never more than some milliseconds. Changes that will not
//! be applied one by one, because the table will be built, are counted instead.
//!
//! Limits: the list has at most twice as many notes as prefixes, and 16,384 more than those, or 4,096 notes where prefixes are
//! few; besides it each note since the latest commit has a place, however often its prefix flaps.

use fingerpost_lpm::{Addr, Change, NextHopId, Prefix};

/// Number of notes below which sorting is not worth it.
const SMALL: usize = 4096;
/// Number of notes since the list was last sorted from which on it is sorted again: about a millisecond's work.
const MOST_UNSORTED: usize = 16_384;

/// Changes of one family that readers do not see.
#[derive(Debug)]
pub struct Backlog<A: Addr> {
    notes: Vec<(Prefix<A>, NextHopId)>,
    /// Prefixes of the notes since the latest commit, some repeated.
    fresh: Vec<Prefix<A>>,
    /// Notes since the latest commit, repeated prefixes included.
    fresh_notes: usize,
    /// Changes that are counted and no longer listed.
    unlisted: usize,
    /// Length at which the list is sorted.
    limit: usize,
    /// Notes so far, repeated prefixes included.
    noted: u64,
    /// Readers see all notes up to this number, or later ones of their prefixes.
    seen: u64,
    /// The present walk over the list in pieces: its last prefix, and the number of notes at its start.
    walk: Option<(Prefix<A>, u64)>,
    /// What `seen` will be once the piece that was taken last is applied.
    taken: u64,
}

impl<A: Addr> Default for Backlog<A> {
    fn default() -> Self {
        let (notes, fresh) = (Vec::new(), Vec::new());
        let (noted, seen, taken) = (0, 0, 0);
        Self {
            notes,
            fresh,
            fresh_notes: 0,
            unlisted: 0,
            limit: SMALL,
            noted,
            seen,
            walk: None,
            taken,
        }
    }
}

impl<A: Addr> Backlog<A> {
    /// The best next hop of `prefix` changed; it was `old`.
    pub fn push(&mut self, prefix: Prefix<A>, old: NextHopId) {
        if self.notes.len() >= self.limit {
            self.tidy();
        }
        self.notes.push((prefix, old));
        if self.fresh.last() != Some(&prefix) {
            self.fresh.push(prefix);
        }
        self.fresh_notes += 1;
        self.noted += 1;
    }

    /// Number of notes so far.
    pub(super) fn noted(&self) -> u64 {
        self.noted
    }

    /// Whether readers see all notes up to this number, or later ones of their prefixes.
    pub(super) fn shows(&self, number: u64) -> bool {
        self.seen >= number
    }

    /// Readers see all notes up to this number.
    pub(super) fn show(&mut self, number: u64) {
        self.seen = self.seen.max(number);
    }

    /// Readers see what was taken last.
    pub(super) fn show_taken(&mut self) {
        self.show(self.taken);
    }

    /// Changes that readers do not see: at least as many as prefixes, and of listed ones at most about twice as many.
    pub fn len(&self) -> usize {
        self.unlisted + self.notes.len()
    }

    /// Whether readers see everything.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Listed changes with the next hops that readers see: the first one of a prefix counts.
    pub(super) fn notes(&self) -> &[(Prefix<A>, NextHopId)] {
        &self.notes
    }

    /// Changes that are listed.
    pub(super) fn listed(&self) -> usize {
        self.notes.len()
    }

    /// Changes that are not listed.
    pub(super) fn unlisted(&self) -> usize {
        self.unlisted
    }

    /// Prefixes that changed since the latest commit, perhaps repeated.
    pub fn fresh(&self) -> impl ExactSizeIterator<Item = Prefix<A>> + '_ {
        self.fresh.iter().copied()
    }

    /// Marks all notes as known to a commit; returns how many came since the commit before.
    pub(super) fn age(&mut self) -> usize {
        self.fresh.clear();
        self.fresh.shrink_to(SMALL);
        std::mem::take(&mut self.fresh_notes)
    }

    /// Counts the notes, and `more` changes, instead of listing them.
    pub(super) fn unlist(&mut self, more: usize) {
        self.unlisted += self.notes.len() + more;
        self.notes.clear();
        self.walk = None;
        // What was taken last may not be applied.
        self.taken = self.seen;
        self.shrink();
    }

    /// Whether a listed prefix holds `addr`: readers may get the next hop of before for it.
    pub fn touches(&self, addr: A) -> bool {
        self.notes.iter().any(|(prefix, _)| prefix.first() <= addr && addr <= prefix.last())
    }

    /// Forgets the listed changes, and the room of a large burst.
    pub fn clear(&mut self) {
        self.notes.clear();
        self.walk = None;
        self.age();
        self.shrink();
    }

    /// Forgets the count of unlisted changes: the table was built.
    pub(super) fn clear_unlisted(&mut self) {
        self.unlisted = 0;
    }

    /// Takes the next `most` of the listed changes, by address and length: [`Backlog::changes`]. Each call continues behind
    /// the last prefix of the one before, up to the end of the list: no prefix waits for changes that come meanwhile.
    pub(super) fn take(
        &mut self,
        most: usize,
        best: impl FnOnce(&mut [Change<A>]),
    ) -> Vec<Change<A>> {
        self.tidy();
        let walk = self.walk.take().filter(|_| most < self.notes.len());
        let behind = |last| self.notes.partition_point(|(prefix, _)| *prefix <= last);
        let (mut start, mut number) =
            walk.map_or((0, self.noted), |(last, number)| (behind(last), number));
        if start == self.notes.len() {
            self.taken = number;
            (start, number) = (0, self.noted);
        }
        let end = start.saturating_add(most).min(self.notes.len());
        let piece: Vec<_> = self.notes.drain(start..end).collect();
        match piece.last() {
            Some((last, _)) if self.notes.len() > start => self.walk = Some((*last, number)),
            _ => self.taken = number,
        }
        let rest = std::mem::replace(&mut self.notes, piece);
        let changes = self.changes(best);
        self.notes = rest;
        self.shrink();
        changes
    }

    /// Listed changes in sum, by address and length. `best` sets the new next hop of each to the best of now.
    pub fn changes(&mut self, best: impl FnOnce(&mut [Change<A>])) -> Vec<Change<A>> {
        self.tidy();
        let change = |&(prefix, old)| Change { prefix, old, new: NextHopId::NONE };
        let mut changes: Vec<_> = self.notes.iter().map(change).collect();
        best(&mut changes);
        changes.retain(|change| change.old != change.new);
        changes
    }

    fn shrink(&mut self) {
        self.notes.shrink_to(SMALL);
        self.set_limit();
    }

    fn set_limit(&mut self) {
        let length = self.notes.len();
        self.limit = SMALL.max(length + length.min(MOST_UNSORTED));
    }

    /// Sorts the notes and keeps the first one of each prefix.
    fn tidy(&mut self) {
        // Stable, so that the first note of a prefix stays the first; and it finds the part that is sorted.
        self.notes.sort_by_key(|(prefix, _)| *prefix);
        self.notes.dedup_by_key(|(prefix, _)| *prefix);
        self.set_limit();
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
        assert_eq!(backlog.changes(all(old)), [], "unchanged in sum");
    }

    #[test]
    fn many_prefixes_keep_what_readers_see() {
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
    fn a_list_that_grows_is_sorted_in_pieces() {
        let mut backlog = Backlog::<u32>::default();
        let count = 300_000u32;
        for n in 0..count {
            backlog.push(prefix(n.wrapping_mul(7919) % count), NextHopId(1));
            if n % 1000 == 0 {
                let sorted = backlog.notes.windows(2).take_while(|pair| pair[0] < pair[1]).count();
                let unsorted = backlog.notes.len() - sorted;
                assert!(unsorted <= MOST_UNSORTED + 1, "{unsorted} of {}", backlog.notes.len());
            }
        }
        assert_eq!(backlog.changes(all(NextHopId(2))).len(), count as usize);
    }

    #[test]
    fn a_walk_in_pieces_shows_what_was_noted_before_it() {
        let mut backlog = Backlog::<u32>::default();
        (100..200).for_each(|n| backlog.push(prefix(n), NextHopId(1)));
        let (mark, mut pieces) = (backlog.noted(), 0);
        while !backlog.shows(mark) {
            // Changes of lower addresses, more than a piece takes.
            (0..50).for_each(|n| backlog.push(prefix(n), NextHopId(1)));
            let taken = backlog.take(30, all(NextHopId(9)));
            assert!(pieces > 0 || taken[0].prefix == prefix(0));
            assert!(!backlog.shows(mark), "it is not applied yet");
            backlog.show_taken();
            pieces += 1;
        }
        assert_eq!(pieces, 5, "150 changes, 30 at a time");
        assert!(!backlog.is_empty() && !backlog.shows(backlog.noted()));
        backlog.take(usize::MAX, all(NextHopId(9)));
        backlog.show_taken();
        assert!(backlog.is_empty() && backlog.shows(backlog.noted()));
    }

    #[test]
    fn what_was_taken_and_not_applied_is_not_shown() {
        let mut backlog = Backlog::<u32>::default();
        backlog.push(prefix(1), NextHopId(1));
        backlog.take(usize::MAX, all(NextHopId(9)));
        backlog.unlist(1);
        (0..50).for_each(|n| backlog.push(prefix(n), NextHopId(1)));
        backlog.take(30, all(NextHopId(9)));
        backlog.show_taken();
        assert!(!backlog.shows(1));
    }

    #[test]
    fn a_commit_ages_notes_and_what_is_fresh_is_still_listed() {
        let mut backlog = Backlog::default();
        backlog.push(prefix(1), NextHopId(1));
        assert_eq!(backlog.age(), 1);
        backlog.push(prefix(1), NextHopId(2));
        backlog.push(prefix(2), NextHopId(3));
        assert!(backlog.fresh().eq([prefix(1), prefix(2)]));
        assert!(backlog.touches(0x1ff) && backlog.touches(0x200) && !backlog.touches(0x300));
        let olds: Vec<u32> =
            backlog.changes(all(NextHopId::NONE)).iter().map(|c| c.old.0).collect();
        assert_eq!(olds, [1, 3]);
        assert_eq!((backlog.age(), backlog.fresh().len()), (2, 0));
        backlog.push(prefix(4), NextHopId(5));
        backlog.unlist(0);
        assert_eq!((backlog.unlisted(), backlog.listed(), backlog.len()), (3, 0, 3));
        assert!(backlog.fresh().eq([prefix(4)]));
        backlog.clear();
        backlog.clear_unlisted();
        assert!(backlog.is_empty());
    }
}
