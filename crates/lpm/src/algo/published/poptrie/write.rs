//! The writer of Poptrie: makes what a change touches aside, then stores the words that lead there.
//!
//! A change rebuilds the deepest node over it, with new leaves, in a new block of its siblings; one
//! store of the first child in the node above (or of the direct entry) publishes the block. Words that
//! readers can see are kept back until all changes of a step have found room; what the step made can
//! be written in place until then.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Relaxed, Release};
use core::{array, mem};

use super::build::{Cut, Deep, Full, Growing, Part, Said, Space, deep_node, node};
use super::{
    Below, Counts, DIRECT, HIT, INNER, Key, LEAF, LEAVES, MAX_HOP, NAMES, NODES, Node, PREFIXES,
    Reader, SLOTS, STRIDE, WAITING, layout,
};
use crate::addr::Prefix;
use crate::error::UpdateError;
use crate::lookup::{Change, Grace, Lookup, Routes, Table};
use crate::mem::{Cell, Memory, Region};
use crate::toolkit::extents::{Block, Extents};

/// Extents for growth beside a quarter of what is in use.
const SLACK_NODES: usize = 2048;
const SLACK_LEAVES: usize = 16384;

pub(super) fn make<A: Key, const S: u8, const N: usize, const AGG: bool>(
    routes: &dyn Routes<A>,
    memory: &mut dyn Memory,
) -> Result<Box<dyn Table<A>>, UpdateError> {
    Ok(Box::new(build::<A, S, N, AGG>(routes, memory)?))
}

fn build<A: Key, const S: u8, const N: usize, const AGG: bool>(
    routes: &dyn Routes<A>,
    memory: &mut dyn Memory,
) -> Result<Writer<A, S, N, AGG>, UpdateError> {
    let direct = memory.region(NAMES[DIRECT], 4 << S)?;
    let mut cut = Cut::default();
    cut.read::<AGG>(Prefix::ALL, routes);
    let mut space = Growing::<N>::default();
    let mut entries = direct.u32s().iter();
    let mut full = false;
    cut.part(Prefix::ALL).pieces(S, &mut |part| {
        match entry(&part, &mut space) {
            Ok(new) => entries.next().expect("2^S pieces").store(new, Relaxed),
            Err(Full) => full = true,
        };
    });
    if full {
        let (what, max) = ("nodes or leaves", 1 << 31);
        return Err(UpdateError::Limit { what, max, got: max + 1 });
    }
    // Powers of two, as readers mask their indices.
    let held = |used: usize, slack: usize| (used + used / 4 + slack).next_power_of_two();
    let nodes_held = held(space.nodes.len(), SLACK_NODES);
    let leaves_held = held(space.leaves.len(), SLACK_LEAVES);
    let nodes = memory.region(NAMES[NODES], nodes_held * size_of::<Node<N>>())?;
    let leaves = memory.region(NAMES[LEAF], leaves_held * 2)?;
    for (to, from) in nodes.u64s().iter().zip(space.nodes.as_flattened()) {
        to.store(*from, Relaxed);
    }
    for (to, from) in leaves.u16s().iter().zip(&space.leaves) {
        to.store(*from, Relaxed);
    }
    let head = Counts::new(memory, layout::<A, S, N>())?;
    let in_range = |n: usize| u32::try_from(n).expect("at most 2^32 - 1");
    let room = |held: usize, used: usize| Extents::new(in_range(held), in_range(used));
    let writer = Writer {
        space: Live {
            node_room: room(nodes_held, space.nodes.len()),
            leaf_room: room(leaves_held, space.leaves.len()),
            nodes: nodes.clone(),
            leaves: leaves.clone(),
            made: Blocks::default(),
            unlinked: Unlinked::default(),
            words: BTreeMap::new(),
        },
        reader: Arc::new(Reader::new(head, direct, nodes, leaves).expect("neither is empty")),
        prefixes: routes.stats().prefixes,
        entries: BTreeMap::new(),
        cut,
    };
    writer.count();
    Ok(writer)
}

/// The direct entry of a piece of S bits, and all below it.
fn entry<A: Key, const N: usize>(
    part: &Part<'_, A, N>,
    space: &mut impl Space<N>,
) -> Result<u32, Full> {
    match part {
        Part::Leaf(hop) => Ok(HIT | u32::from(*hop)),
        Part::Kept(_) => unreachable!("an entry keeps no node of another"),
        Part::Deep(deep) => {
            let at = space.take_nodes(1)?;
            let root = deep_node(deep, space)?;
            space.put_node(at, root);
            Ok(at)
        }
    }
}

/// Blocks of nodes and of leaves, by where they start.
#[derive(Default)]
struct Blocks {
    nodes: BTreeMap<u32, u32>,
    leaves: BTreeMap<u32, u32>,
}

#[derive(Default)]
struct Unlinked {
    nodes: Vec<Block>,
    leaves: Vec<Block>,
}

/// The space of a table in use, and the step at hand.
struct Live<const N: usize> {
    nodes: Region,
    leaves: Region,
    node_room: Extents,
    leaf_room: Extents,
    /// What the step made: no reader can see it.
    made: Blocks,
    /// What it took out, that readers may still be in.
    unlinked: Unlinked,
    /// The last word of nodes that readers can see, as the step will leave it.
    words: BTreeMap<u32, u64>,
}

impl<const N: usize> Live<N> {
    fn cell(&self, at: u32) -> &[AtomicU64; N] {
        &Cell::slice(&self.nodes)[at as usize]
    }

    fn read(&self, at: u32) -> Node<N> {
        let mut node = Node::load(self.cell(at));
        if let Some(&word) = self.words.get(&at) {
            node.0[N - 1] = word;
        }
        node
    }

    fn is_made(&self, at: u32) -> bool {
        let block = self.made.nodes.range(..=at).next_back();
        block.is_some_and(|(&base, &count)| at - base < count)
    }

    fn set_children(&mut self, at: u32, children: u32) {
        let node = self.read(at).with_children(children);
        if self.is_made(at) {
            self.put_node(at, node);
        } else {
            self.words.insert(at, node.0[N - 1]);
        }
    }

    fn free_nodes(&mut self, base: u32, count: u32) {
        if count == 0 {
            return;
        }
        if self.made.nodes.remove(&base).is_some() {
            self.node_room.give((base, count));
            return;
        }
        // Who is still in them must not be led to what the step may give away again.
        while let Some((&at, _)) = self.words.range(base..base + count).next() {
            self.words.remove(&at);
        }
        self.unlinked.nodes.push((base, count));
    }

    fn free_leaves(&mut self, node: Node<N>) {
        let (base, count) = (node.leaves(), node.leaf_vector().count_ones());
        if count == 0 {
            return;
        }
        if self.made.leaves.remove(&base).is_some() {
            self.leaf_room.give((base, count));
        } else {
            self.unlinked.leaves.push((base, count));
        }
    }

    /// Puts `node` in the place of the child at `at` of node `above`: in a new block of siblings.
    fn place(&mut self, above: u32, at: u32, node: Node<N>) -> Result<(), Full> {
        let parent = self.read(above);
        let (base, count) = (parent.children(), parent.vector().count_ones());
        let new = self.take_nodes(count as usize)?;
        for sibling in 0..count {
            let same = self.read(base + sibling);
            self.put_node(new + sibling, if base + sibling == at { node } else { same });
        }
        self.free_nodes(base, count);
        self.set_children(above, new);
        Ok(())
    }

    /// Takes out all that only `node` leads to.
    fn free_below(&mut self, node: Node<N>) {
        self.free_leaves(node);
        let count = node.vector().count_ones();
        for at in node.children()..node.children() + count {
            self.free_below(self.read(at));
        }
        self.free_nodes(node.children(), count);
    }

    /// Undoes the step.
    fn forget(&mut self) {
        for block in mem::take(&mut self.made.nodes) {
            self.node_room.give(block);
        }
        for block in mem::take(&mut self.made.leaves) {
            self.leaf_room.give(block);
        }
        self.unlinked = Unlinked::default();
        self.words.clear();
    }

    fn reclaim(&mut self, grace: &dyn Grace) {
        self.node_room.reclaim(grace);
        self.leaf_room.reclaim(grace);
    }
}

impl<const N: usize> Space<N> for Live<N> {
    fn take_nodes(&mut self, count: usize) -> Result<u32, Full> {
        take(&mut self.node_room, &mut self.made.nodes, count)
    }
    fn take_leaves(&mut self, count: usize) -> Result<u32, Full> {
        take(&mut self.leaf_room, &mut self.made.leaves, count)
    }
    fn put_node(&mut self, at: u32, node: Node<N>) {
        for (cell, word) in self.cell(at).iter().zip(node.0) {
            cell.store(word, Relaxed);
        }
    }
    fn put_leaf(&mut self, at: u32, hop: u16) {
        self.leaves.u16s()[at as usize].store(hop, Relaxed);
    }
}

fn take(room: &mut Extents, made: &mut BTreeMap<u32, u32>, count: usize) -> Result<u32, Full> {
    if count == 0 {
        return Ok(0);
    }
    let count = u32::try_from(count).expect("a node has at most 64 of each");
    let base = room.take(count).ok_or(Full)?;
    made.insert(base, count);
    Ok(base)
}

struct Writer<A: Key, const S: u8, const N: usize, const AGG: bool> {
    reader: Arc<Reader<A, S, N>>,
    space: Live<N>,
    prefixes: usize,
    /// Direct entries as the step at hand will leave them.
    entries: BTreeMap<usize, u32>,
    /// Kept for its memory.
    cut: Cut<A>,
}

impl<A: Key, const S: u8, const N: usize, const AGG: bool> Writer<A, S, N, AGG> {
    fn count(&self) {
        let head = &self.reader.head;
        head.set(PREFIXES, self.prefixes);
        head.set(INNER, self.space.node_room.used() as usize);
        head.set(LEAVES, self.space.leaf_room.used() as usize);
        let nodes = self.space.node_room.waiting() as usize * size_of::<Node<N>>();
        head.set(WAITING, nodes + self.space.leaf_room.waiting() as usize * 2);
    }

    fn entry(&self, index: usize) -> u32 {
        let seen = || self.reader.regions[DIRECT].u32s()[index].load(Relaxed);
        self.entries.get(&index).copied().unwrap_or_else(seen)
    }

    /// Sets an entry, and takes out what the one before led to.
    fn replace_entry(&mut self, index: usize, new: u32) {
        let old = self.entry(index);
        if old != new {
            self.entries.insert(index, new);
        }
        if old & HIT == 0 {
            self.space.free_below(self.space.read(old));
            self.space.free_nodes(old, 1);
        }
    }

    /// Makes the entries of a block of at most S bits anew.
    fn wide(&mut self, block: Prefix<A>, routes: &dyn Routes<A>) -> Result<(), Full> {
        let mut cut = mem::take(&mut self.cut);
        cut.read::<AGG>(block, routes);
        let mut done = Ok(());
        let mut index = block.addr().top(S);
        cut.part(block).pieces(S, &mut |part| {
            if done.is_ok() {
                done = entry(&part, &mut self.space).map(|new| self.replace_entry(index, new));
            }
            index += 1;
        });
        self.cut = cut;
        done
    }

    /// Makes anew what a block of more than S bits touches.
    fn narrow(&mut self, block: Prefix<A>, routes: &dyn Routes<A>) -> Result<(), Full> {
        let index = block.addr().top(S);
        let root = self.entry(index);
        if root & HIT != 0 {
            return self.wide(Prefix::masked(block.addr(), S), routes);
        }
        // The nodes over the block: for each, where it is, and its first bit.
        let mut way = Vec::with_capacity(A::BITS.div_ceil(STRIDE).into());
        let (mut at, mut from) = (root, S);
        let old = loop {
            let node = self.space.read(at);
            match node.at(block.addr().bits(from, STRIDE)) {
                Below::Node(child) if block.len() > from + STRIDE => {
                    way.push(at);
                    (at, from) = (child, from + STRIDE);
                }
                _ => break node,
            }
        };
        let mut cut = mem::take(&mut self.cut);
        let touched = Prefix::masked(block.addr(), block.len().min(from + STRIDE));
        cut.read::<AGG>(touched, routes);
        let done = self.renew(touched, &cut.part(touched), (at, old, from), way, routes);
        self.cut = cut;
        done
    }

    /// Makes the node at `at` anew, with `deep` in the slots that `touched` covers.
    fn renew(
        &mut self,
        touched: Prefix<A>,
        deep: &Deep<'_, A>,
        (mut at, mut old, mut from): (u32, Node<N>, u8),
        mut way: Vec<u32>,
        routes: &dyn Routes<A>,
    ) -> Result<(), Full> {
        let mut parts = self.parts(old);
        let first = touched.addr().bits(from, STRIDE) as usize;
        let slots = first..first + (SLOTS >> (touched.len() - from));
        let before = parts;
        deep.slots(from, &mut parts[slots.clone()]);
        let leaves =
            |parts: &[Part<'_, A, N>]| parts.iter().all(|part| matches!(part, Part::Leaf(_)));
        // The block of children may stay if no slot has or had one.
        let mut kept = leaves(&before[slots.clone()]) && leaves(&parts[slots.clone()]);
        for part in &before[slots.clone()] {
            if let Part::Kept(node) = part {
                self.space.free_below(*node);
            }
        }
        loop {
            let said = Said::new(&parts);
            let alone = self.alone(&said, Prefix::masked(touched.addr(), from), routes);
            self.space.free_leaves(old);
            if alone.is_some() || !kept {
                self.space.free_nodes(old.children(), old.vector().count_ones());
            }
            let index = touched.addr().top(S);
            match (alone, way.pop()) {
                (Some(hop), None) => {
                    self.space.free_nodes(at, 1);
                    self.entries.insert(index, HIT | u32::from(hop));
                    return Ok(());
                }
                (Some(hop), Some(above)) => {
                    from -= STRIDE;
                    (at, old, kept) = (above, self.space.read(above), false);
                    parts = self.parts(old);
                    parts[touched.addr().bits(from, STRIDE) as usize] = Part::Leaf(hop);
                }
                (None, above) => {
                    let space = &mut self.space;
                    let new = match kept {
                        true => said.node(old.children(), space)?,
                        false => node(&parts, space)?,
                    };
                    match above {
                        Some(above) => self.space.place(above, at, new)?,
                        None => {
                            let root = space.take_nodes(1)?;
                            space.put_node(root, new);
                            space.free_nodes(at, 1);
                            self.entries.insert(index, root);
                        }
                    }
                    return Ok(());
                }
            }
        }
    }

    /// The slots of a node as they are.
    fn parts(&self, node: Node<N>) -> [Part<'static, A, N>; SLOTS] {
        array::from_fn(|slot| match node.at(u32::try_from(slot).expect("below 64")) {
            Below::Node(at) => Part::Kept(self.space.read(at)),
            Below::Leaf(at) => Part::Leaf(self.space.leaves.u16s()[at as usize].load(Relaxed)),
        })
    }

    /// The answer of `block` if there is no need for its node any more.
    fn alone(&self, said: &Said, block: Prefix<A>, routes: &dyn Routes<A>) -> Option<u16> {
        if said.vector != 0 {
            return None;
        }
        if AGG {
            let (first, others) = said.leaves().split_first()?;
            return others.iter().all(|hop| hop == first).then_some(*first);
        }
        let mut cut = Cut::default();
        cut.read::<AGG>(block, routes);
        cut.part(block).leaf()
    }

    fn publish_step(&mut self, grace: &mut dyn Grace) {
        // Release, both: pairs with `View::entry` and `Node::load`; what the words lead to was
        // written before.
        for (at, word) in mem::take(&mut self.space.words) {
            self.space.cell(at)[N - 1].store(word, Release);
        }
        for (index, entry) in mem::take(&mut self.entries) {
            self.reader.regions[DIRECT].u32s()[index].store(entry, Release);
        }
        self.space.made = Blocks::default();
        let unlinked = mem::take(&mut self.space.unlinked);
        self.space.node_room.retire(unlinked.nodes, grace);
        self.space.leaf_room.retire(unlinked.leaves, grace);
    }
}

/// The blocks that `changes` touch, none inside another.
fn touched<A: Key>(changes: &[Change<A>]) -> Vec<Prefix<A>> {
    let changed = changes.iter().filter(|change| change.old != change.new);
    let mut blocks: Vec<_> = changed.map(|change| change.prefix).collect();
    blocks.sort_unstable();
    blocks.dedup_by(|next, kept| kept.covers(*next));
    blocks
}

impl<A: Key, const S: u8, const N: usize, const AGG: bool> Table<A> for Writer<A, S, N, AGG> {
    fn apply(
        &mut self,
        changes: &[Change<A>],
        routes: &dyn Routes<A>,
        grace: &mut dyn Grace,
    ) -> Result<(), UpdateError> {
        Change::greatest_hop(changes, MAX_HOP)?;
        self.space.reclaim(grace);
        for block in touched(changes) {
            let done =
                if block.len() > S { self.narrow(block, routes) } else { self.wide(block, routes) };
            if done.is_err() {
                self.space.forget();
                self.entries.clear();
                return Err(UpdateError::Rebuild);
            }
        }
        self.publish_step(grace);
        self.space.reclaim(grace);
        self.prefixes = Change::prefixes_after(changes, self.prefixes);
        self.count();
        Ok(())
    }

    fn publish(&mut self) -> Arc<dyn Lookup<A>> {
        self.reader.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mem::Heap;
    use crate::next_hop_id::NextHopId;
    use crate::routes::RouteStore;
    use crate::testing::{HeldGrace, Rng, Shape, probes, table, toggle};

    fn store<A: Key>(routes: &[(Prefix<A>, NextHopId)]) -> RouteStore<A> {
        routes.iter().copied().collect()
    }

    fn counts<A: Key>(lookup: &dyn Lookup<A>) -> (u64, u64) {
        let mut found = (0, 0);
        lookup.stats(&mut |name, count| match name {
            "inner_nodes" => found.0 = count,
            "leaves" => found.1 = count,
            _ => {}
        });
        found
    }

    /// Worked out by hand: what each of the paper's extensions leaves of one small table.
    #[test]
    fn extensions_leave_what_they_should() {
        let routes = ["10.0.0.0/8", "10.0.0.0/24", "10.0.1.0/24", "10.0.1.128/25", "10.0.2.0/24"];
        let hops = [1, 2, 3, 3, 1];
        let routes = routes.iter().zip(hops).map(|(p, hop)| (p.parse().unwrap(), NextHopId(hop)));
        let store: RouteStore<u32> = routes.collect();
        // One node of /24s under its direct entry, one for the /25; in it and in the rest of the first
        // every slot is a leaf.
        let basic = build::<u32, 18, 2, false>(&store, &mut Heap).unwrap();
        assert_eq!(counts(&*basic.reader), (2, 63 + 64));
        // Runs: 2, (node), 1; in the node: 3.
        let leaf_vector = build::<u32, 18, 3, false>(&store, &mut Heap).unwrap();
        assert_eq!(counts(&*leaf_vector.reader), (2, 2 + 1));
        // The /25 says what its /24 says: no node; 2, 3, 1.
        let aggregated = build::<u32, 18, 3, true>(&store, &mut Heap).unwrap();
        assert_eq!(counts(&*aggregated.reader), (1, 3));
        // Without a direct table: nodes at 0, 6, 12 and 18; runs 0 1 0, then 1, then 1, then as above.
        let rooted = build::<u32, 0, 3, true>(&store, &mut Heap).unwrap();
        assert_eq!(counts(&*rooted.reader), (4, 2 + 2 + 1 + 3));
    }

    /// The compilation for any CPU and the one with bit counting give equal answers.
    #[test]
    fn both_compilations_agree() {
        let routes = table::<u128>(Shape::Hostile, 3000, 100, 1);
        let writer = build::<u128, 18, 3, true>(&store(&routes), &mut Heap).unwrap();
        let mut plain = build::<u128, 18, 3, true>(&store(&routes), &mut Heap).unwrap().reader;
        Arc::get_mut(&mut plain).unwrap().bits = None;
        let addrs: Vec<u128> = routes.iter().flat_map(|&(prefix, _)| probes(prefix)).collect();
        let batch = |reader: &Reader<u128, 18, 3>| {
            let mut out = alloc::vec![NextHopId::NONE; addrs.len()];
            reader.lookup_batch(&addrs, &mut out);
            out
        };
        assert_eq!(batch(&writer.reader), batch(&plain));
        for &addr in &addrs {
            assert_eq!(writer.reader.lookup(addr), plain.lookup(addr), "{addr:#x}");
        }
    }

    /// A reader that took an entry before some steps comes to the answer of that moment or of one
    /// since: nothing that it reads is used again.
    #[test]
    fn an_entry_outlives_its_nodes() {
        let mut routes = table::<u32>(Shape::Hostile, 3000, 100, 1);
        routes.retain(|(prefix, _)| prefix.len() > 8);
        let mut store = store(&routes);
        let mut writer = build::<u32, 16, 3, true>(&store, &mut Heap).unwrap();
        let mut grace = HeldGrace::default();
        let addrs: Vec<u32> = routes.iter().flat_map(|&(prefix, _)| probes(prefix)).collect();
        let (mut entries, mut answers) = (Vec::new(), Vec::new());
        let mut rng = Rng::new(2);
        for _ in 0..20 {
            let view = writer.reader.view();
            entries.push(addrs.iter().map(|&addr| view.entry(addr)).collect::<Vec<_>>());
            answers.push(addrs.iter().map(|&a| writer.reader.lookup(a)).collect::<Vec<_>>());
            let changes = toggle(&mut rng, &routes, &mut store, 4);
            writer.apply(&changes, &store, &mut grace).unwrap();
        }
        assert!(writer.space.node_room.waiting() > 40, "{}", writer.space.node_room.waiting());
        answers.push(addrs.iter().map(|&a| writer.reader.lookup(a)).collect());
        let view = writer.reader.view();
        for (moment, entries) in entries.iter().enumerate() {
            for (i, (&addr, &entry)) in addrs.iter().zip(entries).enumerate() {
                let got = match entry & HIT {
                    0 => view.descend(entry, addr.after(16)),
                    _ => NextHopId(entry & !HIT),
                };
                let since = &answers[moment..];
                assert!(since.iter().any(|a| a[i] == got), "moment {moment}, {addr:#x}: {got:?}");
            }
        }
    }

    #[test]
    fn a_change_is_local() {
        let routes = table::<u128>(Shape::Internet, 5000, 100, 3);
        let mut store = store(&routes);
        let mut writer = build::<u128, 18, 3, true>(&store, &mut Heap).unwrap();
        let mut grace = HeldGrace::default();
        let long = routes.iter().filter(|(prefix, _)| prefix.len() >= 44);
        let mut changed = 0;
        for &(prefix, old) in long.take(50) {
            let new = NextHopId(old.0 + 1);
            store.insert(prefix, new);
            writer.apply(&[Change { prefix, old, new }], &store, &mut grace).unwrap();
            changed += 1;
        }
        // At most a node, its leaves and its 63 siblings each; in this table far less.
        let waiting = (writer.space.node_room.waiting(), writer.space.leaf_room.waiting());
        assert!((1..=10 * changed).contains(&waiting.0), "{waiting:?} of {changed} changes");
        assert!((1..=40 * changed).contains(&waiting.1), "{waiting:?} of {changed} changes");
    }
}
