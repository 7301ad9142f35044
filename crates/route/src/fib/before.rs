//! Routes without the changes that still wait: what a table holds once a piece of a round is applied to it.
//!
//! Most algorithms read the answers of every block that a change touches from the routes. From those of now they would
//! take waiting changes along: the table would have a next hop that the backlog does not know of, which stays when its
//! prefix flaps back, and perhaps one that its format does not hold.
//!
//! Cost: a copy of the waiting changes a piece. A search and a walk before the first of them cost one comparison more, others
//! a binary search among them and a comparison a prefix.

use fingerpost_lpm::{Addr, NextHopId, Prefix, Routes, TableStats};

/// Mark of a change that no other one covers.
const NONE: u32 = u32::MAX;

/// Changes that wait, each with the next hop of before, by address and length.
pub(super) struct Waiting<A: Addr> {
    olds: Vec<(Prefix<A>, NextHopId)>,
    /// Longest one that covers each.
    above: Vec<u32>,
}

impl<A: Addr> Waiting<A> {
    /// Sorts them; the first one of a prefix counts.
    pub(super) fn new(olds: impl Iterator<Item = (Prefix<A>, NextHopId)>) -> Self {
        let mut olds: Vec<_> = olds.collect();
        olds.sort_by_key(|(prefix, _)| *prefix);
        olds.dedup_by_key(|(prefix, _)| *prefix);
        let mut above = Vec::with_capacity(olds.len());
        let mut last = NONE;
        for (at, (prefix, _)) in (0..).zip(&olds) {
            while last != NONE && !olds[last as usize].0.covers(*prefix) {
                last = above[last as usize];
            }
            above.push(last);
            last = at;
        }
        Self { olds, above }
    }

    /// Number of changes of prefixes up to this one, by address and length.
    pub(super) fn through(&self, prefix: Prefix<A>) -> usize {
        self.olds.partition_point(|(waiting, _)| *waiting <= prefix)
    }

    /// `routes` as they were before all of these changes but the first `done`.
    pub(super) fn before<'a>(&'a self, routes: &'a dyn Routes<A>, done: usize) -> Before<'a, A> {
        Before { routes, waiting: self, done }
    }
}

/// Routes as they were before some changes.
pub(super) struct Before<'a, A: Addr> {
    routes: &'a dyn Routes<A>,
    waiting: &'a Waiting<A>,
    done: usize,
}

impl<A: Addr> Before<'_, A> {
    /// Whether no change begins before `addr` or there: pieces are in the order of addresses, so this is nearly always so.
    fn is_of_now(&self, addr: A) -> bool {
        self.waiting.olds.get(self.done).is_none_or(|(prefix, _)| prefix.first() > addr)
    }

    /// Longest prefix that holds `addr`, and is shorter than `below` bits: `found` has it of now, and of a shorter one.
    fn longest(
        &self,
        addr: A,
        below: u8,
        mut found: Option<(Prefix<A>, NextHopId)>,
    ) -> Option<(Prefix<A>, NextHopId)> {
        if self.is_of_now(addr) {
            return found;
        }
        let olds = &self.waiting.olds;
        let after = olds.partition_point(|(prefix, _)| prefix.first() <= addr);
        let mut at = after.checked_sub(1);
        // From the longest to the shortest.
        while let Some(place) = at.filter(|place| *place >= self.done) {
            let (prefix, old) = olds[place];
            if prefix.last() >= addr && prefix.len() < below {
                // What is longer than this did not change.
                if found.is_some_and(|(now, _)| now.len() > prefix.len()) {
                    return found;
                }
                if !old.is_none() {
                    return Some((prefix, old));
                }
                if found.is_some_and(|(now, _)| now == prefix) {
                    found = self.routes.parent(prefix);
                }
            }
            at = usize::try_from(self.waiting.above[place]).ok().filter(|above| *above < place);
        }
        found
    }
}

impl<A: Addr> Routes<A> for Before<'_, A> {
    /// Shape of now: what changes a table in place does not need it.
    fn stats(&self) -> TableStats {
        self.routes.stats()
    }

    fn prefixes(&self) -> usize {
        self.routes.prefixes()
    }

    fn best(&self, addr: A) -> Option<(Prefix<A>, NextHopId)> {
        self.longest(addr, u8::MAX, self.routes.best(addr))
    }

    fn parent(&self, prefix: Prefix<A>) -> Option<(Prefix<A>, NextHopId)> {
        self.longest(prefix.first(), prefix.len(), self.routes.parent(prefix))
    }

    fn walk(&self, from: A, to: A, visit: &mut dyn FnMut(Prefix<A>, NextHopId)) {
        if self.is_of_now(to) {
            return self.routes.walk(from, to, visit);
        }
        let olds = &self.waiting.olds[self.done..];
        let begin = olds.partition_point(|(prefix, _)| prefix.first() < from);
        let mut olds = olds[begin..].iter().copied().peekable();
        self.routes.walk(from, to, &mut |prefix, hop| {
            while let Some((gone, old)) = olds.next_if(|(waiting, _)| *waiting < prefix) {
                show(gone, old, visit);
            }
            match olds.next_if(|(waiting, _)| *waiting == prefix) {
                Some((_, old)) => show(prefix, old, visit),
                None => visit(prefix, hop),
            }
        });
        for (gone, old) in olds.take_while(|(waiting, _)| waiting.first() <= to) {
            show(gone, old, visit);
        }
    }
}

/// Visits a prefix that there was.
fn show<A: Addr>(prefix: Prefix<A>, old: NextHopId, visit: &mut dyn FnMut(Prefix<A>, NextHopId)) {
    if !old.is_none() {
        visit(prefix, old);
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use fingerpost_lpm::{Rng, RouteStore};

    /// Nested prefixes of few addresses, so that most of them meet.
    fn some_prefix<A: Addr>(rng: &mut Rng) -> Prefix<A> {
        let len = u8::try_from(rng.below(9)).unwrap();
        let addr = (0..len).fold(A::MIN, |addr, bit| match rng.below(2) {
            0 => addr,
            _ => addr | (A::mask(bit + 1) ^ A::mask(bit)),
        });
        Prefix::masked(addr, len)
    }

    fn some_hop(rng: &mut Rng) -> NextHopId {
        NextHopId(u32::try_from(rng.below(4)).unwrap())
    }

    fn is_what_it_was<A: Addr>() {
        let mut rng = Rng::new(0xbe_f0);
        for round in 0..400 {
            let mut before = RouteStore::<A>::new();
            for _ in 0..rng.below(60) {
                before.insert(some_prefix(&mut rng), NextHopId(1 + some_hop(&mut rng).0));
            }
            let mut now = before.clone();
            let mut olds = Vec::new();
            for _ in 0..rng.below(40) {
                let (prefix, hop) = (some_prefix(&mut rng), some_hop(&mut rng));
                let old = if hop.is_none() { now.remove(prefix) } else { now.insert(prefix, hop) };
                olds.push((prefix, old.unwrap_or_default()));
            }
            let waiting = Waiting::new(olds.into_iter());
            // The first changes are done: there the routes are those of now.
            let done = rng.below(waiting.olds.len() + 1);
            for &(prefix, _) in &waiting.olds[..done] {
                match now.get(prefix).copied() {
                    Some(hop) => before.insert(prefix, hop),
                    None => before.remove(prefix),
                };
            }
            let view = waiting.before(&now, done);
            let all = |routes: &dyn Routes<A>, from, to| {
                let mut all = Vec::new();
                routes.walk(from, to, &mut |prefix, hop| all.push((prefix, hop)));
                all
            };
            assert_eq!(all(&view, A::MIN, A::MAX), all(&before, A::MIN, A::MAX), "round {round}");
            for _ in 0..50 {
                let part = some_prefix::<A>(&mut rng);
                let (from, to) = (part.first(), part.last());
                assert_eq!(all(&view, from, to), all(&before, from, to), "round {round}: {part}");
                for addr in [from, to] {
                    assert_eq!(view.best(addr), before.best(addr), "round {round}: {part}");
                }
                let parent = Routes::parent(&before, part);
                assert_eq!(Routes::parent(&view, part), parent, "round {round}: {part}");
            }
        }
    }

    #[test]
    fn routes_before_changes_are_what_they_were() {
        is_what_it_was::<u32>();
        is_what_it_was::<u128>();
    }
}
