//! The writer of the radix trie: copies the path to each change, then publishes a new root.
//!
//! Nodes made in a step belong to it alone until its root is stored, so several changes share their
//! copies, and a step that finds no room is undone by forgetting them.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::mem;
use core::sync::atomic::Ordering::{Relaxed, Release};

use super::{
    Cells, Counts, MAX_HOP, NAMES, NIL, NODES, Node, PREFIXES, Reader, TRIE, WAITING, layout,
};
use crate::addr::Prefix;
use crate::error::UpdateError;
use crate::lookup::{Change, Epoch, Grace, Lookup, Routes, Table};
use crate::mem::{Memory, Region};
use crate::next_hop_id::NextHopId;

/// Extents for the copies of some hundred changes that wait for readers.
const SLACK_NODES: usize = 4096;

struct Writer<A: Cells> {
    reader: Arc<Reader<A>>,
    counts: Tally,
    /// The root as the step at hand leaves it.
    root: u32,
    /// Nodes never used yet start here.
    top: u32,
    free: Vec<u32>,
    /// What readers may still walk.
    waiting: VecDeque<(Epoch, Vec<u32>)>,
    /// Nodes made in the step at hand, a bit for each node that is one of them, nodes unlinked.
    made: Vec<u32>,
    fresh: Vec<u64>,
    unlinked: Vec<u32>,
    /// Path to the change at hand: node, and side of its child. Kept for its memory.
    path: Vec<(u32, u32)>,
}

#[derive(Clone, Copy, Default)]
struct Tally {
    prefixes: usize,
    nodes: usize,
}

/// No node is left.
struct Full;

pub(super) fn make<A: Cells>(
    routes: &dyn Routes<A>,
    memory: &mut dyn Memory,
) -> Result<Box<dyn Table<A>>, UpdateError> {
    Ok(Box::new(build(routes, memory)?))
}

fn build<A: Cells>(
    routes: &dyn Routes<A>,
    memory: &mut dyn Memory,
) -> Result<Writer<A>, UpdateError> {
    let prefixes = routes.stats().prefixes;
    // Fewer than 2 N nodes at worst, a quarter more routes, and what waits for readers.
    let capacity = 1 + prefixes * 2 + prefixes / 4 + SLACK_NODES;
    let region = memory.region(NAMES[TRIE], capacity * size_of::<A::Cell>())?;
    let (root, top) = fill(routes, &region);
    let head = Counts::new(memory, layout::<A>())?;
    let nodes = top as usize - 1;
    let writer = Writer {
        reader: Arc::new(Reader::new(head, region)),
        counts: Tally { prefixes, nodes },
        root,
        top,
        free: Vec::new(),
        waiting: VecDeque::new(),
        made: Vec::new(),
        fresh: vec![0; capacity.div_ceil(64)],
        unlinked: Vec::new(),
        path: Vec::new(),
    };
    writer.publish_root();
    writer.count();
    Ok(writer)
}

/// Writes all routes as nodes 1 on. Returns the root, and the first unused node.
fn fill<A: Cells>(routes: &dyn Routes<A>, region: &Region) -> (u32, u32) {
    let cells = A::cells(region);
    let (mut root, mut top) = (NIL, 1);
    let mut add = |node: Node<A>| {
        A::write(&cells[top as usize], &node);
        top += 1;
        top - 1
    };
    // The way to the route before: in order, every new route hangs off it.
    let mut path: Vec<(u32, Prefix<A>)> = Vec::new();
    routes.walk(A::MIN, A::MAX, &mut |prefix, hop| {
        let leaf = add(Node::new(prefix, hop));
        let mut beside = None;
        while let Some(&last) = path.last()
            && !last.1.covers(prefix)
        {
            beside = path.pop();
        }
        // Where two ways part: often at the node above, on whose other side the last one was.
        let fork = beside.map(|(left, other)| (left, prefix.addr().common_len(other.addr())));
        let fork = fork.filter(|&(_, len)| path.last().is_none_or(|(_, over)| len > over.len()));
        let link = fork.map_or((leaf, prefix), |(left, len)| {
            let fork = Prefix::masked(prefix.addr(), len);
            let node = Node::new(fork, NextHopId::NONE).with_child(0, left).with_child(1, leaf);
            (add(node), fork)
        });
        match path.last() {
            None => root = link.0,
            Some(&(above, over)) => {
                let cell = &cells[above as usize];
                let side = prefix.addr().bits(over.len(), 1);
                A::write(cell, &A::read(cell).with_child(side, link.0));
            }
        }
        if link.0 != leaf {
            path.push(link);
        }
        path.push((leaf, prefix));
    });
    (root, top)
}

impl<A: Cells> Writer<A> {
    fn cell(&self, at: u32) -> &A::Cell {
        &A::cells(&self.reader.regions[TRIE])[at as usize]
    }

    fn node(&self, at: u32) -> Node<A> {
        A::read(self.cell(at))
    }

    fn is_fresh(&self, at: u32) -> bool {
        self.fresh[at as usize / 64] >> (at % 64) & 1 == 1
    }

    fn flip_fresh(&mut self, at: u32) {
        self.fresh[at as usize / 64] ^= 1 << (at % 64);
    }

    fn add(&mut self, node: &Node<A>) -> Result<u32, Full> {
        let at = match self.free.pop() {
            Some(at) => at,
            None if (self.top as usize) < A::cells(&self.reader.regions[TRIE]).len() => {
                self.top += 1;
                self.top - 1
            }
            None => return Err(Full),
        };
        A::write(self.cell(at), node);
        self.flip_fresh(at);
        self.made.push(at);
        self.counts.nodes += 1;
        Ok(at)
    }

    /// Takes a node out of the new trie.
    fn discard(&mut self, at: u32) {
        self.counts.nodes -= 1;
        if self.is_fresh(at) {
            self.flip_fresh(at);
            self.free.push(at);
        } else {
            self.unlinked.push(at);
        }
    }

    /// Puts `node` where `at` was: in the same place if no reader can see that.
    fn replace(&mut self, at: u32, node: &Node<A>) -> Result<u32, Full> {
        if self.is_fresh(at) {
            A::write(self.cell(at), node);
            return Ok(at);
        }
        let new = self.add(node)?;
        self.discard(at);
        Ok(new)
    }

    /// Makes the last step of the path refer to `link`, and copies the path as far as needed.
    fn link(&mut self, mut link: u32) -> Result<(), Full> {
        while let Some((at, side)) = self.path.pop() {
            let node = self.node(at);
            if node.child(side) == link {
                return Ok(());
            }
            link = self.replace(at, &node.with_child(side, link))?;
        }
        self.root = link;
        Ok(())
    }

    /// Records the path to `prefix`; returns the first node that is not strictly above it.
    fn descend(&mut self, prefix: Prefix<A>) -> u32 {
        self.path.clear();
        let mut at = self.root;
        while at != NIL {
            let node = self.node(at);
            if node.len >= prefix.len() || !node.holds(prefix.addr()) {
                break;
            }
            let side = prefix.addr().bits(node.len, 1);
            self.path.push((at, side));
            at = node.child(side);
        }
        at
    }

    fn set(&mut self, prefix: Prefix<A>, hop: NextHopId) -> Result<(), Full> {
        let at = self.descend(prefix);
        let new = Node::new(prefix, hop);
        if at == NIL {
            self.counts.prefixes += 1;
            let leaf = self.add(&new)?;
            return self.link(leaf);
        }
        let old = self.node(at);
        if old.prefix() == prefix {
            self.counts.prefixes += usize::from(old.hop == 0);
            let link = self.replace(at, &Node { hop: hop.0, ..old })?;
            return self.link(link);
        }
        self.counts.prefixes += 1;
        let link = if prefix.covers(old.prefix()) {
            self.add(&new.with_child(old.addr.bits(prefix.len(), 1), at))?
        } else {
            let leaf = self.add(&new)?;
            let fork = Prefix::masked(prefix.addr(), prefix.addr().common_len(old.addr));
            let side = prefix.addr().bits(fork.len(), 1);
            let fork = Node::new(fork, NextHopId::NONE);
            self.add(&fork.with_child(side, leaf).with_child(1 - side, at))?
        };
        self.link(link)
    }

    fn unset(&mut self, prefix: Prefix<A>) -> Result<(), Full> {
        let at = self.descend(prefix);
        let node = if at == NIL { return Ok(()) } else { self.node(at) };
        if node.prefix() != prefix || node.hop == 0 {
            return Ok(());
        }
        self.counts.prefixes -= 1;
        let link = match (node.child(0), node.child(1)) {
            (NIL, NIL) => {
                self.discard(at);
                match self.path.pop() {
                    None => NIL,
                    Some((above, side)) => {
                        let fork = self.node(above);
                        if fork.hop == 0 {
                            // Nothing forks here any more.
                            self.discard(above);
                            fork.child(1 - side)
                        } else {
                            self.replace(above, &fork.with_child(side, NIL))?
                        }
                    }
                }
            }
            (child, NIL) | (NIL, child) => {
                self.discard(at);
                child
            }
            _ => self.replace(at, &Node { hop: 0, ..node })?,
        };
        self.link(link)
    }

    fn publish_root(&self) {
        let links = A::links(self.cell(0));
        // A root that stays is not stored: its readers would miss its line.
        if links.load(Relaxed) != u64::from(self.root) {
            // Release: pairs with `Reader::enter`; every node below was written before.
            links.store(u64::from(self.root), Release);
        }
    }

    fn reclaim(&mut self, grace: &dyn Grace) {
        while self.waiting.front().is_some_and(|&(epoch, _)| grace.passed(epoch)) {
            self.free.extend(self.waiting.pop_front().map_or(Vec::new(), |(_, nodes)| nodes));
        }
    }

    fn count(&self) {
        let head = &self.reader.head;
        head.set(PREFIXES, self.counts.prefixes);
        head.set(NODES, self.counts.nodes);
        head.set(WAITING, self.waiting.iter().map(|(_, nodes)| nodes.len()).sum());
    }
}

impl<A: Cells> Table<A> for Writer<A> {
    fn apply(
        &mut self,
        changes: &[Change<A>],
        _: &dyn Routes<A>,
        grace: &mut dyn Grace,
    ) -> Result<(), UpdateError> {
        Change::greatest_hop(changes, MAX_HOP)?;
        self.reclaim(grace);
        let before = (self.counts, self.root);
        let changed = changes.iter().filter(|change| change.old != change.new);
        let mut done = Ok(());
        for change in changed {
            done = match change.new {
                NextHopId::NONE => self.unset(change.prefix),
                hop => self.set(change.prefix, hop),
            };
            if done.is_err() {
                break;
            }
        }
        if done.is_ok() {
            self.publish_root();
        }
        // Published or forgotten: either way the nodes made are no step's own any more.
        for at in mem::take(&mut self.made) {
            if self.is_fresh(at) {
                self.flip_fresh(at);
                if done.is_err() {
                    self.free.push(at);
                }
            }
        }
        let unlinked = mem::take(&mut self.unlinked);
        if done.is_err() {
            (self.counts, self.root) = before;
            return Err(UpdateError::Rebuild);
        }
        if !unlinked.is_empty() {
            self.waiting.push_back((grace.retire(), unlinked));
        }
        self.reclaim(grace);
        self.count();
        Ok(())
    }

    fn publish(&mut self) -> Arc<dyn Lookup<A>> {
        self.reader.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::super::walk;
    use super::*;
    use crate::mem::Heap;
    use crate::routes::RouteStore;
    use crate::testing::{HeldGrace, Rng, Shape, probes, table, toggle};

    /// A reader that took the root before some steps finishes on the table of that moment.
    #[test]
    fn a_walk_sees_one_moment() {
        let routes = table::<u32>(Shape::Hostile, 3000, 100, 1);
        let mut store: RouteStore<u32> = routes.iter().copied().collect();
        let mut writer = build(&store, &mut Heap).unwrap();
        let mut grace = HeldGrace::default();
        let addrs: Vec<u32> = routes.iter().flat_map(|&(prefix, _)| probes(prefix)).collect();
        let mut moments = Vec::new();
        let mut rng = Rng::new(2);
        for _ in 0..20 {
            let (nodes, root) = writer.reader.enter();
            let answers: Vec<_> = addrs.iter().map(|&addr| walk(nodes, root, addr)).collect();
            moments.push((root, answers));
            let changes = toggle(&mut rng, &routes, &mut store, 8);
            assert_eq!(writer.apply(&changes, &store, &mut grace), Ok(()));
        }
        let (nodes, _) = writer.reader.enter();
        for (moment, (root, answers)) in moments.iter().enumerate() {
            for (&addr, &want) in addrs.iter().zip(answers) {
                assert_eq!(walk(nodes, *root, addr), want, "moment {moment}, {addr:#x}");
            }
        }
        assert!(writer.waiting.len() == 20);
    }

    #[test]
    fn a_step_shares_its_copies() {
        let routes = table::<u32>(Shape::Internet, 3000, 100, 3);
        let store: RouteStore<u32> = routes.iter().copied().collect();
        let mut writer = build(&store, &mut Heap).unwrap();
        let change = |at: usize| Change {
            prefix: routes[at].0,
            old: routes[at].1,
            new: NextHopId(routes[at].1.0 + 1),
        };
        let mut copied = |changes: &[Change<u32>]| {
            let mut grace = HeldGrace::default();
            writer.apply(changes, &store, &mut grace).unwrap();
            let copied = writer.waiting.iter().map(|(_, nodes)| nodes.len()).sum::<usize>();
            grace.release();
            writer.reclaim(&grace);
            copied
        };
        let all: Vec<_> = (0..routes.len()).map(change).collect();
        assert!(copied(&all) < 2 * routes.len(), "every node at most once");
        let one = copied(&[change(1500)]);
        assert!((2..32).contains(&one), "{one} nodes on the way");
    }
}
