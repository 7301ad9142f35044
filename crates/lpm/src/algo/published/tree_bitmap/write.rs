//! The writer of Tree Bitmap: copies the path to each change, then publishes a new root.
//!
//! Blocks made in a step belong to it alone until its root is stored, so several changes share their
//! copies, and a step that finds no room is undone by giving them back. Nodes keep one form: a node
//! is an end node whenever it can be, and one that holds nothing is taken out.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::marker::PhantomData;
use core::mem;
use core::sync::atomic::Ordering::{Relaxed, Release};

use super::{
    Counts, Form, MAX_HOP, NAMES, NODE_COUNT, NODES, Node, PREFIXES, RESULTS, ROOT, Reader,
    WAITING, layout, rank,
};
use crate::addr::{Addr, Prefix};
use crate::error::UpdateError;
use crate::lookup::{Change, Grace, Lookup, Routes, Table};
use crate::mem::{Cell, Memory, Region};
use crate::next_hop_id::NextHopId;
use crate::toolkit::extents::{Block, Extents};

/// Extents for growth and copies beside a quarter of what is in use.
const SLACK_NODES: usize = 4096;
const SLACK_RESULTS: usize = 4096;

/// No room is left.
struct Full;

/// Where blocks of nodes and of results come from.
trait Space {
    fn take_nodes(&mut self, count: usize) -> Result<u32, Full>;
    fn take_results(&mut self, count: usize) -> Result<u32, Full>;
    fn put_node(&mut self, at: u32, node: &Node);
    fn put_result(&mut self, at: u32, hop: u16);

    fn new_results(&mut self, hops: &[u16]) -> Result<u32, Full> {
        let base = self.take_results(hops.len())?;
        for (at, &hop) in (base..).zip(hops) {
            self.put_result(at, hop);
        }
        Ok(base)
    }

    fn new_nodes(&mut self, nodes: &[Node]) -> Result<u32, Full> {
        let base = self.take_nodes(nodes.len())?;
        for (at, node) in (base..).zip(nodes) {
            self.put_node(at, node);
        }
        Ok(base)
    }
}

/// Where a prefix of `len` bits in the node stands, at `slot` if it had all bits of the stride.
fn place<F: Form>(slot: u32, len: u8) -> u32 {
    (1 << len) - 1 + (slot >> (F::STRIDE - len))
}

/// What a node can hold, counted out.
#[derive(Clone, Copy)]
struct Few<T> {
    items: [T; 64],
    len: usize,
}

impl<T: Copy + Default> Few<T> {
    fn new(items: impl Iterator<Item = T>) -> Self {
        let mut few = Self { items: [T::default(); 64], len: 0 };
        for item in items {
            few.insert(few.len, item);
        }
        few
    }

    fn list(&self) -> &[T] {
        &self.items[..self.len]
    }

    fn insert(&mut self, at: usize, item: T) {
        self.items.copy_within(at..self.len, at + 1);
        self.items[at] = item;
        self.len += 1;
    }

    fn remove(&mut self, at: usize) {
        self.items.copy_within(at + 1..self.len, at);
        self.len -= 1;
    }
}

/// Address, length with the bits before the address counted in, next hop.
type Route<A> = (A, u8, u16);

/// The node at `from` bits of these routes, all of them below it, and everything below.
fn node_of<A: Addr, F: Form>(
    routes: &[Route<A>],
    from: u8,
    space: &mut impl Space,
) -> Result<Node, Full> {
    let end = F::END && routes.iter().all(|&(_, len, _)| len - from <= F::STRIDE);
    let (mut internal, mut external) = (0u64, 0u64);
    let mut hops = [0; 64];
    let mut children = Few { items: [(0, 0); 64], len: 0 };
    let mut at = 0;
    while let Some(&(addr, len, hop)) = routes.get(at) {
        let slot = F::slot(addr, from);
        if len - from < F::STRIDE || end {
            let place = place::<F>(slot, len - from);
            internal |= 1 << place;
            hops[place as usize] = hop;
            at += 1;
        } else {
            // In order, what is below a slot stands together.
            let same = |route: &&Route<A>| F::slot(route.0, from) == slot;
            let after = at + routes[at..].iter().take_while(same).count();
            external |= 1 << slot;
            children.insert(children.len, (at, after));
            at = after;
        }
    }
    let hops = Few::new((0..64).filter(|at| internal >> at & 1 == 1).map(|at| hops[at]));
    let results = space.new_results(hops.list())?;
    let first = space.take_nodes(children.len)?;
    for (at, &(low, high)) in (first..).zip(children.list()) {
        let child = node_of::<A, F>(&routes[low..high], from + F::STRIDE, space)?;
        space.put_node(at, &child);
    }
    Ok(Node { internal, external, children: first, results, end })
}

/// Space of a table that is built: it grows.
#[derive(Default)]
struct Growing {
    nodes: Vec<Node>,
    results: Vec<u16>,
}

impl Space for Growing {
    fn take_nodes(&mut self, count: usize) -> Result<u32, Full> {
        let base = u32::try_from(self.nodes.len()).map_err(|_| Full)?;
        self.nodes.resize(self.nodes.len() + count, Node::default());
        Ok(if count == 0 { 0 } else { base })
    }
    fn take_results(&mut self, count: usize) -> Result<u32, Full> {
        let base = u32::try_from(self.results.len()).map_err(|_| Full)?;
        self.results.resize(self.results.len() + count, 0);
        Ok(if count == 0 { 0 } else { base })
    }
    fn put_node(&mut self, at: u32, node: &Node) {
        self.nodes[at as usize] = *node;
    }
    fn put_result(&mut self, at: u32, hop: u16) {
        self.results[at as usize] = hop;
    }
}

/// One of the two regions of a table in use, as the step at hand sees it.
struct Part {
    room: Extents,
    /// Blocks that the step made: no reader can see them.
    made: BTreeMap<u32, u32>,
    /// Blocks that it took out, that readers may still be in.
    unlinked: Vec<Block>,
}

impl Part {
    fn new(held: usize, used: usize) -> Self {
        let in_range = |n: usize| u32::try_from(n).expect("at most 2^32 - 1");
        let room = Extents::new(in_range(held), in_range(used));
        Self { room, made: BTreeMap::new(), unlinked: Vec::new() }
    }

    fn take(&mut self, count: usize) -> Result<u32, Full> {
        if count == 0 {
            return Ok(0);
        }
        let count = u32::try_from(count).expect("a node has at most 64 of each");
        let base = self.room.take(count).ok_or(Full)?;
        self.made.insert(base, count);
        Ok(base)
    }

    fn free(&mut self, base: u32, count: u32) {
        if count > 0 && self.made.remove(&base).is_some() {
            self.room.give((base, count));
        } else if count > 0 {
            self.unlinked.push((base, count));
        }
    }

    fn is_made(&self, base: u32) -> bool {
        self.made.contains_key(&base)
    }

    fn forget(&mut self) {
        for block in mem::take(&mut self.made) {
            self.room.give(block);
        }
        self.unlinked.clear();
    }

    fn publish(&mut self, grace: &mut dyn Grace) {
        self.made.clear();
        self.room.retire(mem::take(&mut self.unlinked), grace);
    }
}

struct Live<F: Form> {
    node_region: Region,
    result_region: Region,
    nodes: Part,
    results: Part,
    form: PhantomData<F>,
}

impl<F: Form> Space for Live<F> {
    fn take_nodes(&mut self, count: usize) -> Result<u32, Full> {
        self.nodes.take(count)
    }
    fn take_results(&mut self, count: usize) -> Result<u32, Full> {
        self.results.take(count)
    }
    fn put_node(&mut self, at: u32, node: &Node) {
        F::store(&F::Cells::slice(&self.node_region)[at as usize], node);
    }
    fn put_result(&mut self, at: u32, hop: u16) {
        self.result_region.u16s()[at as usize].store(hop, Relaxed);
    }
}

impl<F: Form> Live<F> {
    fn node(&self, at: u32) -> Node {
        F::load(&F::Cells::slice(&self.node_region)[at as usize])
    }

    fn children(&self, node: &Node) -> Few<Node> {
        let count = node.external.count_ones();
        Few::new((node.children..node.children + count).map(|at| self.node(at)))
    }

    fn hops(&self, node: &Node) -> Few<u16> {
        let count = node.internal.count_ones();
        let results = self.result_region.u16s();
        Few::new((node.results..node.results + count).map(|at| results[at as usize].load(Relaxed)))
    }

    /// Copy of a node with other prefixes and results.
    fn with_hops(&mut self, node: Node, internal: u64, hops: &[u16]) -> Result<Node, Full> {
        let results = self.new_results(hops)?;
        self.results.free(node.results, node.internal.count_ones());
        Ok(Node { internal, results, ..node })
    }

    /// Copy of a node with other children.
    fn with_children(&mut self, node: Node, external: u64, all: &[Node]) -> Result<Node, Full> {
        let children = self.new_nodes(all)?;
        self.nodes.free(node.children, node.external.count_ones());
        Ok(Node { external, children, ..node })
    }

    /// `node`, which stands at `from` bits, with `prefix` leading to `hop`, or gone if that is 0.
    fn set<A: Addr>(
        &mut self,
        mut node: Node,
        from: u8,
        prefix: Prefix<A>,
        hop: u16,
    ) -> Result<Node, Full> {
        let len = prefix.len() + F::LEAD - from;
        let slot = F::slot(prefix.addr(), from);
        if len < F::STRIDE || (node.end && len == F::STRIDE) {
            return self.set_here(node, place::<F>(slot, len), hop);
        }
        if node.end {
            if hop == 0 {
                return Ok(node);
            }
            node = self.open(node)?;
        }
        let at = rank(node.external, slot) as usize;
        let old = node.child(slot).map(|child| self.node(child));
        let empty = Node { end: F::END, ..Node::default() };
        let new = self.set(old.unwrap_or(empty), from + F::STRIDE, prefix, hop)?;
        let node = match (old, new.is_empty()) {
            (None, true) => node,
            (None, false) => {
                let mut children = self.children(&node);
                children.insert(at, new);
                self.with_children(node, node.external | 1 << slot, children.list())?
            }
            (Some(_), true) => {
                let mut children = self.children(&node);
                children.remove(at);
                self.with_children(node, node.external & !(1 << slot), children.list())?
            }
            (Some(old), false) if old == new => node,
            (Some(_), false) if self.nodes.is_made(node.children) => {
                self.put_node(node.children + rank(node.external, slot), &new);
                node
            }
            (Some(_), false) => {
                let mut children = self.children(&node);
                children.items[at] = new;
                self.with_children(node, node.external, children.list())?
            }
        };
        // Only where the child changed to one that an end node could hold.
        if F::END && (new.is_empty() || is_root_only(&new)) { self.close(node) } else { Ok(node) }
    }

    fn set_here(&mut self, node: Node, place: u32, hop: u16) -> Result<Node, Full> {
        let mut hops = self.hops(&node);
        let at = rank(node.internal, place) as usize;
        let bit = 1 << place;
        match (node.internal & bit != 0, hop) {
            (false, 0) => Ok(node),
            (false, _) => {
                hops.insert(at, hop);
                self.with_hops(node, node.internal | bit, hops.list())
            }
            (true, 0) => {
                hops.remove(at);
                self.with_hops(node, node.internal & !bit, hops.list())
            }
            (true, _) if hops.items[at] == hop => Ok(node),
            (true, _) => {
                hops.items[at] = hop;
                self.with_hops(node, node.internal, hops.list())
            }
        }
    }

    /// An end node as one that can have children: its longest prefixes become theirs.
    fn open(&mut self, node: Node) -> Result<Node, Full> {
        let shorter = (1 << F::STRIDE) - 1;
        let external = node.internal >> shorter;
        let hops = self.hops(&node);
        let (stay, go) =
            hops.list().split_at((node.internal & ((1 << shorter) - 1)).count_ones() as usize);
        let mut children = Few { items: [Node::default(); 64], len: 0 };
        for &hop in go {
            let results = self.new_results(&[hop])?;
            let child = Node { internal: 1, results, end: true, ..Node::default() };
            children.insert(children.len, child);
        }
        let node = self.with_hops(node, node.internal & ((1 << shorter) - 1), stay)?;
        self.with_children(Node { end: false, ..node }, external, children.list())
    }

    /// Undoes it, if no child has more than the one prefix that the node could hold itself.
    fn close(&mut self, node: Node) -> Result<Node, Full> {
        let children = self.children(&node);
        if !children.list().iter().all(is_root_only) {
            return Ok(node);
        }
        let shorter = (1 << F::STRIDE) - 1;
        let internal = node.internal | node.external << shorter;
        let mut hops = self.hops(&node);
        for child in children.list() {
            hops.insert(hops.len, self.hops(child).items[0]);
            self.results.free(child.results, 1);
        }
        let node = self.with_children(node, 0, &[])?;
        let node = self.with_hops(node, internal, hops.list())?;
        Ok(Node { end: true, ..node })
    }
}

/// Whether a node holds its own prefix and nothing else.
fn is_root_only(node: &Node) -> bool {
    node.internal == 1 && node.external == 0
}

struct Writer<A: Addr, F: Form> {
    reader: Arc<Reader<A, F>>,
    space: Live<F>,
    root: u32,
    prefixes: usize,
}

pub(super) fn make<A: Addr, F: Form>(
    routes: &dyn Routes<A>,
    memory: &mut dyn Memory,
) -> Result<Box<dyn Table<A>>, UpdateError> {
    Ok(Box::new(build::<A, F>(routes, memory)?))
}

fn build<A: Addr, F: Form>(
    routes: &dyn Routes<A>,
    memory: &mut dyn Memory,
) -> Result<Writer<A, F>, UpdateError> {
    let mut all: Vec<Route<A>> = Vec::new();
    routes.walk(A::MIN, A::MAX, &mut |prefix, NextHopId(hop)| {
        let hop = u16::try_from(hop).expect("next hops were checked");
        all.push((prefix.addr(), prefix.len() + F::LEAD, hop));
    });
    let mut made = Growing::default();
    let root = made.take_nodes(1).and_then(|root| {
        let node = node_of::<A, F>(&all, 0, &mut made)?;
        made.put_node(root, &node);
        Ok(root)
    });
    let Ok(root) = root else {
        let max = u64::from(u32::MAX);
        return Err(UpdateError::Limit { what: "nodes or results", max, got: max + 1 });
    };
    // Powers of two, as readers mask their indices.
    let held = |used: usize, slack: usize| (used + used / 4 + slack).next_power_of_two();
    let nodes_held = held(made.nodes.len(), SLACK_NODES);
    let results_held = held(made.results.len(), SLACK_RESULTS);
    let root_region = memory.region(NAMES[ROOT], 4)?;
    let nodes = memory.region(NAMES[NODES], nodes_held * size_of::<F::Cells>())?;
    let results = memory.region(NAMES[RESULTS], results_held * 2)?;
    for (cell, node) in F::Cells::slice(&nodes).iter().zip(&made.nodes) {
        F::store(cell, node);
    }
    for (cell, &hop) in results.u16s().iter().zip(&made.results) {
        cell.store(hop, Relaxed);
    }
    root_region.u32s()[0].store(root, Relaxed);
    let head = Counts::new(memory, layout::<A, F>())?;
    let writer = Writer {
        space: Live {
            node_region: nodes.clone(),
            result_region: results.clone(),
            nodes: Part::new(nodes_held, made.nodes.len()),
            results: Part::new(results_held, made.results.len()),
            form: PhantomData,
        },
        reader: Arc::new(Reader::new(head, root_region, nodes, results).expect("none is empty")),
        root,
        prefixes: all.len(),
    };
    writer.count();
    Ok(writer)
}

impl<A: Addr, F: Form> Writer<A, F> {
    fn count(&self) {
        let (nodes, results) = (&self.space.nodes.room, &self.space.results.room);
        let head = &self.reader.head;
        head.set(PREFIXES, self.prefixes);
        head.set(NODE_COUNT, nodes.used() as usize);
        let waiting = nodes.waiting() as usize * size_of::<F::Cells>();
        head.set(WAITING, waiting + results.waiting() as usize * 2);
    }

    /// The node of the root after these changes.
    fn root_of(&mut self, changes: &[Change<A>]) -> Result<u32, Full> {
        let mut root = self.root;
        for change in changes.iter().filter(|change| change.old != change.new) {
            let hop = u16::try_from(change.new.0).expect("next hops were checked");
            let old = self.space.node(root);
            let new = self.space.set(old, 0, change.prefix, hop)?;
            if new == old {
                continue;
            }
            if self.space.nodes.is_made(root) {
                self.space.put_node(root, &new);
            } else {
                let copy = self.space.new_nodes(&[new])?;
                self.space.nodes.free(root, 1);
                root = copy;
            }
        }
        Ok(root)
    }

    fn reclaim(&mut self, grace: &dyn Grace) {
        self.space.nodes.room.reclaim(grace);
        self.space.results.room.reclaim(grace);
    }
}

impl<A: Addr, F: Form> Table<A> for Writer<A, F> {
    fn apply(
        &mut self,
        changes: &[Change<A>],
        _: &dyn Routes<A>,
        grace: &mut dyn Grace,
    ) -> Result<(), UpdateError> {
        Change::greatest_hop(changes, MAX_HOP)?;
        self.reclaim(grace);
        let Ok(root) = self.root_of(changes) else {
            self.space.nodes.forget();
            self.space.results.forget();
            return Err(UpdateError::Rebuild);
        };
        // A root that stays is not stored: its readers would miss its line.
        if root != self.root {
            self.root = root;
            // Release: pairs with `Reader::view`; everything below was written before.
            self.reader.regions[ROOT].u32s()[0].store(root, Release);
        }
        self.space.nodes.publish(grace);
        self.space.results.publish(grace);
        self.reclaim(grace);
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
    use super::super::{Single, Slots16, Slots64};
    use super::*;
    use crate::mem::Heap;
    use crate::routes::RouteStore;
    use crate::simd::BitOps;
    use crate::testing::{HeldGrace, Rng, Shape, probes, table, toggle};

    fn counts<F: Form>(routes: &[&str]) -> (u64, usize) {
        let routes = routes.iter().map(|p| (p.parse().unwrap(), NextHopId(1)));
        let store: RouteStore<u32> = routes.collect();
        let writer = build::<u32, F>(&store, &mut Heap).unwrap();
        (writer.reader.head.get(NODE_COUNT), writer.reader.bytes() - Counts::BYTES - 4)
    }

    #[test]
    fn nodes_are_as_few_as_they_should() {
        // Everything up to 4 bits in the root, up to 8 in a node below it.
        assert_eq!(counts::<Slots16>(&[]), (1, 12));
        assert_eq!(counts::<Slots16>(&["0.0.0.0/0", "16.0.0.0/4"]), (1, 12 + 2 * 2));
        assert_eq!(counts::<Slots16>(&["16.0.0.0/4", "17.0.0.0/8"]), (2, 2 * 12 + 2 * 2));
        assert_eq!(counts::<Slots16>(&["16.0.0.0/4", "32.0.0.0/5"]), (3, 3 * 12 + 2 * 2));
        assert_eq!(counts::<Slots16>(&["1.2.3.4/32"]), (8, 8 * 12 + 2));
        // No end nodes: the root has one bit, what is 6 bits longer is at the top of a node below.
        assert_eq!(counts::<Slots64>(&["0.0.0.0/0"]), (1, 24 + 2));
        assert_eq!(counts::<Slots64>(&["0.0.0.0/6"]), (2, 2 * 24 + 2));
        assert_eq!(counts::<Slots64>(&["0.0.0.0/7"]), (3, 3 * 24 + 2));
        assert_eq!(counts::<Slots64>(&["1.2.3.0/24", "1.2.2.0/24"]), (5, 5 * 24 + 2 * 2));
        assert_eq!(counts::<Slots64>(&["1.2.3.4/32"]), (7, 7 * 24 + 2));
    }

    /// The compilation for any CPU and the one with bit counting give equal answers.
    #[test]
    fn both_compilations_agree() {
        let routes = table::<u128>(Shape::Hostile, 3000, 100, 1);
        let store: RouteStore<u128> = routes.iter().copied().collect();
        let mut writer = build::<u128, Slots64>(&store, &mut Heap).unwrap();
        let addrs: Vec<u128> = routes.iter().flat_map(|&(prefix, _)| probes(prefix)).collect();
        let ask = |reader: &Reader<u128, Slots64>| {
            let mut out = alloc::vec![NextHopId::NONE; addrs.len()];
            reader.lookup_batch(&addrs, &mut out);
            assert!(addrs.iter().zip(&out).all(|(&addr, &hop)| reader.lookup(addr) == hop));
            out
        };
        let chosen = ask(&writer.reader);
        Arc::get_mut(&mut writer.reader).unwrap().bits = None;
        assert_eq!(ask(&writer.reader), chosen);
    }

    /// A reader that took the root before some steps finishes on the table of that moment.
    #[test]
    fn a_walk_sees_one_moment() {
        let routes = table::<u32>(Shape::Hostile, 3000, 100, 1);
        let mut store: RouteStore<u32> = routes.iter().copied().collect();
        let mut writer = build::<u32, Slots16>(&store, &mut Heap).unwrap();
        let mut grace = HeldGrace::default();
        let addrs: Vec<u32> = routes.iter().flat_map(|&(prefix, _)| probes(prefix)).collect();
        let answers = |reader: &Reader<u32, Slots16>, root: Option<u32>| {
            let mut view = reader.view();
            view.root = root.unwrap_or(view.root);
            let ask = |&addr: &u32| BitOps::run(BitOps::detect(), Single(view, addr));
            (view.root, addrs.iter().map(ask).collect::<Vec<_>>())
        };
        let mut moments = Vec::new();
        let mut rng = Rng::new(2);
        for _ in 0..20 {
            moments.push(answers(&writer.reader, None));
            let changes = toggle(&mut rng, &routes, &mut store, 4);
            writer.apply(&changes, &store, &mut grace).unwrap();
        }
        assert!(writer.space.nodes.room.waiting() > 100);
        for (moment, (root, want)) in moments.iter().enumerate() {
            assert!(answers(&writer.reader, Some(*root)).1 == *want, "moment {moment}");
        }
    }
}
