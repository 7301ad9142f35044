//! The RIB of one family: every candidate per prefix, the best by distance, then metric.
//!
//! A candidate is named by its source and metric, as in the kernel. The best candidate's next hop
//! stands in the route store itself, so that builders read it without a detour; the candidates of a
//! prefix are a short list in a slab.
//!
//! Cost: one descent in the store for a change; 16 bytes a candidate besides the store's node. What a large
//!       table took is given back as it empties: once three quarters of the candidates' room are unused,
//!       those that are left move into a smaller one, as the store's nodes do later.

use std::num::NonZeroU32;

use fingerpost_lpm::{Addr, Change, Hop, NextHopId, Prefix, PrefixMap, Routes, TableStats};

const END: u32 = u32::MAX;
/// Room for so many candidates, 64 KiB, is not given back. The tests here give back at once.
const SMALL: usize = if cfg!(test) { 8 } else { 4096 };
/// Candidates move into less room when no more than one place in so many is in use: three removals a place
/// paid for the move by then. The store's nodes do so when an eighth is in use: of a full table both moves took 25 ms, in
/// one step of a sweep.
const SPARSE: usize = 4;

/// One source's route to a prefix.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Candidate {
    /// Number of its source.
    pub source: u16,
    /// Administrative distance; lower wins.
    pub distance: u8,
    /// Decides between equal distances; lower wins.
    pub metric: u32,
    /// Where it leads.
    pub hop: NextHopId,
}

impl Candidate {
    fn rank(&self) -> (u8, u32, u16) {
        (self.distance, self.metric, self.source)
    }
}

#[derive(Clone, Copy, Debug)]
struct Node {
    hop: NextHopId,
    metric: u32,
    next: u32,
    source: u16,
    distance: u8,
    /// Number of the source's dump that had it last.
    stamp: u8,
}

/// What the store keeps of a prefix. A next hop of a route is never `NONE`, which leaves the store the
/// value 0 for "no route here": 4 bytes a node.
#[derive(Clone, Copy, Debug)]
struct Best {
    id: NonZeroU32,
    first: u32,
}

impl Best {
    fn new(hop: NextHopId, first: u32) -> Self {
        Self { id: NonZeroU32::new(hop.0).expect("a route has a next hop"), first }
    }
}

impl Hop for Best {
    fn hop(&self) -> NextHopId {
        NextHopId(self.id.get())
    }
}

/// What a change did: the best next hop before and after (`NONE` for none), and the next hop of the
/// candidate that was replaced or removed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Effect {
    /// Best before.
    pub old: NextHopId,
    /// Best now.
    pub new: NextHopId,
    /// Next hop that this candidate had before.
    pub replaced: Option<NextHopId>,
    /// Stamp that it had then.
    pub stamp: Option<u8>,
}

/// What [`Rib::select`] found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Selected<A: Addr> {
    /// The candidates, with their prefixes.
    pub found: Vec<(Prefix<A>, Candidate)>,
    /// Prefixes that were looked at.
    pub looks: usize,
    /// Last visited prefix; `None` at the end of the table.
    pub last: Option<Prefix<A>>,
}

/// All candidates of one family.
pub struct Rib<A: Addr> {
    store: PrefixMap<A, Best>,
    slab: Slab,
    uses: Uses,
}

/// The candidates, in lists.
struct Slab {
    nodes: Vec<Node>,
    free: u32,
    used: usize,
}

/// Number of prefixes of each next hop that is their best, so that the greatest in use is known
/// without a walk of the whole store: the FIB needs it every hundred changes.
#[derive(Default)]
struct Uses {
    counts: Vec<u32>,
    /// The greatest whose count is not 0; 0 when there is none.
    max: usize,
}

impl Uses {
    fn moved(&mut self, old: NextHopId, new: NextHopId) {
        if old == new {
            return;
        }
        if !new.is_none() {
            if self.counts.len() <= new.index() {
                self.counts.resize(new.index() + 1, 0);
            }
            self.counts[new.index()] += 1;
            self.max = self.max.max(new.index());
        }
        if !old.is_none() {
            self.counts[old.index()] -= 1;
            while self.max > 0 && self.counts[self.max] == 0 {
                self.max -= 1;
            }
        }
    }
}

impl<A: Addr> Default for Rib<A> {
    fn default() -> Self {
        let slab = Slab { nodes: Vec::new(), free: END, used: 0 };
        Self { store: PrefixMap::new(), slab, uses: Uses::default() }
    }
}

impl<A: Addr> Rib<A> {
    /// Prefixes with at least one candidate.
    pub fn len(&self) -> usize {
        self.store.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.store.is_empty()
    }

    /// Candidates of all prefixes.
    pub fn candidates(&self) -> usize {
        self.slab.used
    }

    /// Bytes in use.
    pub fn bytes(&self) -> usize {
        self.store.bytes()
            + self.slab.nodes.capacity() * size_of::<Node>()
            + self.uses.counts.capacity() * size_of::<u32>()
    }

    /// Sets the new next hop of each change to the best of its prefix.
    pub fn best_of(&self, changes: &mut [Change<A>]) {
        self.store.get_all(
            changes,
            |change| change.prefix,
            |change, best| {
                change.new = best.map_or(NextHopId::NONE, Hop::hop);
            },
        );
    }

    /// The candidates of a prefix, the best first.
    pub fn of(&self, prefix: Prefix<A>) -> impl Iterator<Item = Candidate> + '_ {
        let mut at = self.store.get(prefix).map_or(END, |best| best.first);
        std::iter::from_fn(move || {
            let node = self.slab.nodes.get(at as usize)?;
            at = node.next;
            Some(node.candidate())
        })
    }

    /// The candidate of a source and metric.
    pub fn find(&self, prefix: Prefix<A>, source: u16, metric: u32) -> Option<Candidate> {
        self.of(prefix).find(|c| c.source == source && c.metric == metric)
    }

    /// Every prefix and its best next hop, parents before children.
    pub fn iter(&self) -> impl Iterator<Item = (Prefix<A>, NextHopId)> + '_ {
        self.store.iter().map(|(prefix, best)| (prefix, best.hop()))
    }

    /// The prefixes that follow `after` in the order of [`Rib::iter`], which need not be held itself;
    /// all of them after `None`.
    pub fn prefixes_after(&self, after: Option<Prefix<A>>) -> impl Iterator<Item = Prefix<A>> + '_ {
        match after {
            Some(prefix) => self.store.iter_after(prefix),
            None => self.store.iter(),
        }
        .map(|(prefix, _)| prefix)
    }

    /// Adds at most `most` prefixes that follow `after`, each with its best next hop, in the order of [`Rib::iter`].
    pub fn copy_after(
        &self,
        after: Option<Prefix<A>>,
        most: usize,
        into: &mut Vec<(Prefix<A>, NextHopId)>,
    ) {
        let found = after.map_or_else(|| self.store.iter(), |after| self.store.iter_after(after));
        into.extend(found.take(most).map(|(prefix, best)| (prefix, best.hop())));
    }

    /// The prefixes that cover `prefix`, itself included, the shortest first.
    pub fn covering(&self, prefix: Prefix<A>) -> impl Iterator<Item = Prefix<A>> + '_ {
        self.store.covering(prefix).map(|(prefix, _)| prefix)
    }

    /// The stamp of the candidate of a source and metric.
    pub fn stamp(&self, prefix: Prefix<A>, source: u16, metric: u32) -> Option<u8> {
        let mut at = self.store.get(prefix)?.first;
        while let Some(node) = self.slab.nodes.get(at as usize) {
            if (node.source, node.metric) == (source, metric) {
                return Some(node.stamp);
            }
            at = node.next;
        }
        None
    }

    /// Adds a candidate, or replaces the one of the same source and metric.
    pub fn insert(&mut self, prefix: Prefix<A>, candidate: Candidate, stamp: u8) -> Effect {
        let Candidate { source, distance, metric, hop } = candidate;
        let node = Node { hop, metric, next: END, source, distance, stamp };
        // One descent for a prefix that is there, which a stream of updates finds more often than not.
        let (old, new, replaced) = if let Some(slot) = self.store.get_mut(prefix) {
            let (old, mut first) = (slot.hop(), slot.first);
            let replaced = self.slab.unlink(&mut first, source, metric);
            self.slab.link(&mut first, node);
            *slot = Best::new(self.slab.nodes[first as usize].hop, first);
            (old, slot.hop(), replaced)
        } else {
            let mut first = END;
            self.slab.link(&mut first, node);
            self.store.insert(prefix, Best::new(hop, first));
            (NextHopId::NONE, hop, None)
        };
        self.uses.moved(old, new);
        Effect {
            old,
            new,
            replaced: replaced.map(|node| node.hop),
            stamp: replaced.map(|node| node.stamp),
        }
    }

    /// Removes the candidate of a source and metric; `None` when there is none.
    pub fn remove(&mut self, prefix: Prefix<A>, source: u16, metric: u32) -> Option<Effect> {
        let slot = self.store.get_mut(prefix)?;
        let (old, mut first) = (slot.hop(), slot.first);
        let replaced = self.slab.unlink(&mut first, source, metric)?;
        let new = match self.slab.nodes.get(first as usize) {
            Some(node) => {
                *slot = Best::new(node.hop, first);
                node.hop
            }
            None => {
                self.store.remove(prefix);
                NextHopId::NONE
            }
        };
        self.uses.moved(old, new);
        if self.slab.is_sparse() {
            self.slab.shrink(self.store.values_mut().map(|best| &mut best.first));
        }
        Some(Effect { old, new, replaced: Some(replaced.hop), stamp: Some(replaced.stamp) })
    }

    /// Sets the stamp of every candidate of a source, in a pass over all candidates.
    pub fn restamp(&mut self, source: u16, new: impl Fn(u8) -> u8) {
        // Free places have no meaning, and are written before they are used.
        for node in self.slab.nodes.iter_mut().filter(|node| node.source == source) {
            node.stamp = new(node.stamp);
        }
    }

    /// Looks at the prefixes that follow `after` in the order of [`Rib::iter`], at no more than `looks` of them and
    /// only until `most` candidates are found for which `select` holds, given their stamp too.
    pub fn select(
        &self,
        after: Option<Prefix<A>>,
        looks: usize,
        most: usize,
        mut select: impl FnMut(&Candidate, u8) -> bool,
    ) -> Selected<A> {
        let mut selected = Selected { found: Vec::new(), looks: 0, last: None };
        let prefixes = match after {
            Some(prefix) => self.store.iter_after(prefix),
            None => self.store.iter(),
        };
        for (prefix, best) in prefixes {
            if selected.looks == looks || selected.found.len() >= most {
                return selected;
            }
            let mut at = best.first;
            while let Some(node) = self.slab.nodes.get(at as usize) {
                let candidate = node.candidate();
                if select(&candidate, node.stamp) {
                    selected.found.push((prefix, candidate));
                }
                at = node.next;
            }
            selected.looks += 1;
            selected.last = Some(prefix);
        }
        // That was all.
        selected.last = None;
        selected
    }
}

impl Slab {
    /// Unlinks from the list that begins at `first`, and frees the node; what it was.
    fn unlink(&mut self, first: &mut u32, source: u16, metric: u32) -> Option<Node> {
        let mut before = END;
        let mut at = *first;
        while let Some(&node) = self.nodes.get(at as usize) {
            if node.source == source && node.metric == metric {
                match self.nodes.get_mut(before as usize) {
                    Some(before) => before.next = node.next,
                    None => *first = node.next,
                }
                self.nodes[at as usize].next = self.free;
                self.free = at;
                self.used -= 1;
                return Some(node);
            }
            (before, at) = (at, node.next);
        }
        None
    }

    /// Links into the list that begins at `first`, by rank.
    fn link(&mut self, first: &mut u32, node: Node) {
        let rank = node.candidate().rank();
        let new = self.alloc(node);
        let (mut at, mut next) = (END, *first);
        while next != END && self.nodes[next as usize].candidate().rank() < rank {
            (at, next) = (next, self.nodes[next as usize].next);
        }
        self.nodes[new as usize].next = next;
        match self.nodes.get_mut(at as usize) {
            Some(node) => node.next = new,
            None => *first = new,
        }
    }

    /// Whether most of its room is unused, and there is enough of it to matter.
    fn is_sparse(&self) -> bool {
        self.nodes.len() > SMALL && self.used * SPARSE <= self.nodes.len()
    }

    /// Moves the lists that begin at `firsts`, which are all there are, into as much room as they need.
    fn shrink<'a>(&mut self, firsts: impl Iterator<Item = &'a mut u32>) {
        // Room for the next changes, as growth leaves it.
        let mut nodes: Vec<Node> = Vec::with_capacity((self.used + self.used / 4).max(SMALL));
        for first in firsts {
            let (mut at, mut before) = (std::mem::replace(first, END), END);
            while let Some(&node) = self.nodes.get(at as usize) {
                let to = u32::try_from(nodes.len()).expect("they were numbered by 32 bits before");
                match nodes.get_mut(before as usize) {
                    Some(before) => before.next = to,
                    None => *first = to,
                }
                nodes.push(node);
                (before, at) = (to, node.next);
            }
        }
        debug_assert_eq!(nodes.len(), self.used, "every candidate in use is in a list");
        (self.nodes, self.free) = (nodes, END);
    }

    fn alloc(&mut self, node: Node) -> u32 {
        self.used += 1;
        if self.free != END {
            let at = self.free;
            self.free = std::mem::replace(&mut self.nodes[at as usize], node).next;
            return at;
        }
        let at = u32::try_from(self.nodes.len()).expect("candidates are numbered by 32 bits");
        if self.nodes.len() == self.nodes.capacity() {
            // As the store of prefixes grows: by what is no great part of a full table.
            self.nodes.reserve_exact((self.nodes.len() / 4).max(64));
        }
        self.nodes.push(node);
        at
    }
}

impl Node {
    fn candidate(&self) -> Candidate {
        let Self { hop, metric, source, distance, .. } = *self;
        Candidate { source, distance, metric, hop }
    }
}

impl<A: Addr> Routes<A> for Rib<A> {
    fn stats(&self) -> TableStats {
        TableStats {
            prefixes: self.store.len(),
            max_next_hop: u32::try_from(self.uses.max).expect("ids are 32 bits"),
            lengths: *self.store.lengths(),
        }
    }
    fn prefixes(&self) -> usize {
        self.store.len()
    }
    fn best(&self, addr: A) -> Option<(Prefix<A>, NextHopId)> {
        Routes::best(&self.store, addr)
    }
    fn parent(&self, prefix: Prefix<A>) -> Option<(Prefix<A>, NextHopId)> {
        Routes::parent(&self.store, prefix)
    }
    fn walk(&self, from: A, to: A, visit: &mut dyn FnMut(Prefix<A>, NextHopId)) {
        self.store.walk(from, to, visit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn candidate(source: u16, distance: u8, metric: u32, hop: u32) -> Candidate {
        Candidate { source, distance, metric, hop: NextHopId(hop) }
    }

    #[test]
    fn a_prefix_without_a_route_costs_no_mark() {
        assert_eq!(size_of::<Option<Best>>(), 8);
    }

    #[test]
    fn the_best_wins_by_distance_then_metric() {
        let mut rib = Rib::<u32>::default();
        let p: Prefix<u32> = "10.0.0.0/8".parse().unwrap();
        let step = |e: Effect| (e.old.0, e.new.0, e.replaced.map(|h| h.0));
        assert_eq!(step(rib.insert(p, candidate(1, 20, 0, 5), 0)), (0, 5, None));
        assert_eq!(step(rib.insert(p, candidate(2, 200, 0, 6), 0)), (5, 5, None));
        assert_eq!(step(rib.insert(p, candidate(1, 20, 9, 7), 0)), (5, 5, None));
        assert_eq!(step(rib.insert(p, candidate(1, 20, 0, 8), 0)), (5, 8, Some(5)));
        assert_eq!(rib.remove(p, 1, 0).map(step), Some((8, 7, Some(8))));
        assert_eq!(rib.remove(p, 1, 0), None);
        assert_eq!(rib.remove(p, 1, 9).map(step), Some((7, 6, Some(7))));
        assert_eq!(rib.remove(p, 2, 0).map(step), Some((6, 0, Some(6))));
        assert!(rib.is_empty() && rib.candidates() == 0);
    }

    /// A full table that comes and goes leaves nothing behind, and what stays of it is still found.
    #[test]
    fn memory_is_given_back_as_routes_go() {
        let fresh = Rib::<u32>::default().bytes();
        let prefix = |n: u32| Prefix::masked(n << 12, 24);
        let (many, some) = (100_000, 1_000);
        let mut rib = Rib::<u32>::default();
        for n in 0..many {
            rib.insert(prefix(n), candidate(1, 20, 0, 1 + n % 100), 0);
            rib.insert(prefix(n), candidate(2, 30, 0, 7), 0);
        }
        let loaded = rib.bytes();
        assert!(loaded > 5 << 20, "{loaded}");
        for n in some..many {
            assert!(rib.remove(prefix(n), 1, 0).is_some() && rib.remove(prefix(n), 2, 0).is_some());
        }
        // Room is four times as large as needed at most, besides a little that is kept.
        let left = rib.bytes() - fresh;
        assert!(left < loaded / 16, "{left} of {loaded}");
        for n in 0..some {
            let want = [candidate(1, 20, 0, 1 + n % 100), candidate(2, 30, 0, 7)];
            assert!(rib.of(prefix(n)).eq(want), "{n}");
        }
        for n in 0..some {
            assert!(rib.remove(prefix(n), 2, 0).is_some() && rib.remove(prefix(n), 1, 0).is_some());
        }
        assert!(rib.is_empty() && rib.candidates() == 0);
        let left = rib.bytes() - fresh;
        assert!(left < 128 << 10, "{left} bytes for nothing");
    }

    #[test]
    fn candidates_and_nodes_of_a_table_that_empties_move_far_apart() {
        let mut rib = Rib::<u32>::default();
        let (count, hop) = (60_000, NextHopId(1));
        let candidate = Candidate { source: 1, distance: 20, metric: 0, hop };
        let prefix = |n: u32| Prefix::masked(n << 8, 24);
        for n in 0..count {
            rib.insert(prefix(n), candidate, 0);
        }
        let rooms = |rib: &Rib<u32>| [rib.slab.nodes.len(), rib.store.bytes()];
        let (mut before, mut moves) = (rooms(&rib), [0; 2]);
        for n in 0..count {
            rib.remove(prefix(n), 1, 0);
            let now = rooms(&rib);
            for at in 0..2 {
                if moves[at] == 0 && now[at] < before[at] / 2 {
                    moves[at] = n;
                }
            }
            before = now;
        }
        let [candidates, nodes] = moves;
        assert!(candidates > 0 && nodes > candidates + count / 20, "{moves:?}");
    }

    proptest! {
        /// Against the obvious: a map from prefix to a sorted map of candidates.
        #[test]
        fn agrees_with_a_plain_map(
            ops in proptest::collection::vec(
                (any::<bool>(), 0u32..4, 30u8..=32, 0u16..3, 0u8..2, 0u32..2, 1u32..9), 1..200)
        ) {
            let mut rib = Rib::<u32>::default();
            let mut plain: BTreeMap<Prefix<u32>, BTreeMap<(u16, u32), Candidate>> = BTreeMap::new();
            let best = |m: Option<&BTreeMap<(u16, u32), Candidate>>| {
                m.and_then(|m| m.values().min_by_key(|c| c.rank())).map_or(NextHopId::NONE, |c| c.hop)
            };
            for (add, addr, len, source, distance, metric, hop) in ops {
                let p = Prefix::masked(addr, len);
                let old = best(plain.get(&p));
                let entry = plain.entry(p).or_default();
                let effect = if add {
                    let c = candidate(source, distance, metric, hop);
                    let replaced = entry.insert((source, metric), c).map(|c| c.hop);
                    let effect = rib.insert(p, c, 0);
                    prop_assert_eq!(effect.replaced, replaced);
                    Some(effect)
                } else {
                    let removed = entry.remove(&(source, metric)).map(|c| c.hop);
                    let effect = rib.remove(p, source, metric);
                    prop_assert_eq!(effect.and_then(|e| e.replaced), removed);
                    effect
                };
                if let Some(effect) = effect {
                    prop_assert_eq!((effect.old, effect.new), (old, best(plain.get(&p))));
                }
                let mut want: Vec<_> = plain[&p].values().copied().collect();
                want.sort_by_key(Candidate::rank);
                prop_assert_eq!(rib.of(p).collect::<Vec<_>>(), want);
                plain.retain(|_, m| !m.is_empty());
                prop_assert_eq!(rib.len(), plain.len());
                prop_assert_eq!(rib.stats(), rib.store.stats());
                prop_assert_eq!(rib.candidates(), plain.values().map(BTreeMap::len).sum::<usize>());
            }
        }
    }
}
