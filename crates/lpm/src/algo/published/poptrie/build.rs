//! From sorted intervals to nodes: what a new table and a change have in common.
//!
//! Cost: one ordered walk of the block, then 64 steps a node. Nothing is kept that readers do not
//! use: no binary trie is made.

use alloc::vec::Vec;

use super::{Key, Node, SLOTS, STRIDE};
use crate::addr::{Addr, Prefix};
use crate::intervals::sweep;
use crate::lookup::Routes;
use crate::next_hop_id::NextHopId;

/// No room is left for nodes or leaves.
#[derive(Debug)]
pub(super) struct Full;

/// A block of the address space as a builder reads it.
#[derive(Default)]
pub(super) struct Cut<A> {
    /// Why there must be nodes, in order: address and length. A slot has a node if a mark stands in
    /// it that is greater than the slot's own address and length.
    pub(super) marks: Vec<(A, u8)>,
    /// Elementary intervals: start and next hop.
    pub(super) spans: Vec<(A, u16)>,
}

impl<A: Addr> Cut<A> {
    /// Reads `block`. Aggregated, only a change of the answer makes a node; else any longer route.
    pub(super) fn read<const AGG: bool>(&mut self, block: Prefix<A>, routes: &dyn Routes<A>) {
        self.marks.clear();
        self.spans.clear();
        sweep(block, routes, &mut |start, NextHopId(hop)| {
            self.spans.push((start, u16::try_from(hop).expect("next hops were checked")));
        });
        if AGG {
            // Length 0: a change of the answer at the start of a slot is no reason for a node.
            self.marks.extend(self.spans[1..].iter().map(|&(start, _)| (start, 0)));
        } else {
            routes.walk(block.first(), block.last(), &mut |prefix, _| {
                if prefix.len() > block.len() {
                    self.marks.push((prefix.addr(), prefix.len()));
                }
            });
        }
    }

    pub(super) fn part(&self, block: Prefix<A>) -> Deep<'_, A> {
        Deep { first: block.first(), len: block.len(), marks: &self.marks, spans: &self.spans }
    }
}

/// A part of a cut block.
#[derive(Clone, Copy)]
pub(super) struct Deep<'a, A> {
    first: A,
    len: u8,
    /// Those in the part that are greater than its first address and its length.
    marks: &'a [(A, u8)],
    /// Spans from the one that holds the first address on.
    spans: &'a [(A, u16)],
}

/// What becomes of a slot.
#[derive(Clone, Copy)]
pub(super) enum Part<'a, A, const N: usize> {
    /// One answer.
    Leaf(u16),
    /// A node as it was.
    Kept(Node<N>),
    /// A node to be made.
    Deep(Deep<'a, A>),
}

impl<'a, A: Key> Deep<'a, A> {
    /// The answer where nothing calls for a node.
    pub(super) fn leaf(&self) -> Option<u16> {
        self.marks.is_empty().then(|| self.spans[0].1)
    }

    /// Cuts the part into pieces of `len` bits, in order.
    pub(super) fn pieces<const N: usize>(&self, len: u8, visit: &mut impl FnMut(Part<'a, A, N>)) {
        let (mut marks, mut spans) = (self.marks, self.spans);
        let last = self.first | !A::mask(self.len);
        let mut first = self.first;
        loop {
            let end = first | !A::mask(len);
            while let Some(&(at, _)) = spans.get(1)
                && at <= first
            {
                spans = &spans[1..];
            }
            while let Some(&mark) = marks.first()
                && mark <= (first, len)
            {
                marks = &marks[1..];
            }
            let inside = marks.iter().take_while(|&&(at, _)| at <= end).count();
            visit(if inside == 0 {
                Part::Leaf(spans[0].1)
            } else {
                let (here, after) = marks.split_at(inside);
                marks = after;
                Part::Deep(Deep { first, len, marks: here, spans })
            });
            if end == last {
                return;
            }
            first = end.next();
        }
    }

    /// The slots of the node at `len` bits that this part covers, as if it was `from` on.
    pub(super) fn slots<const N: usize>(&self, len: u8, parts: &mut [Part<'a, A, N>]) {
        let end = (len + STRIDE).min(A::BITS);
        // Past the end of the address there is nothing to tell apart.
        let repeat = 1 << (len + STRIDE - end);
        let mut parts = parts.chunks_mut(repeat);
        self.pieces(end, &mut |part| {
            if let Some(same) = parts.next() {
                same.fill(part);
            }
        });
    }
}

/// Where nodes and leaves are put.
pub(super) trait Space<const N: usize> {
    fn take_nodes(&mut self, count: usize) -> Result<u32, Full>;
    fn take_leaves(&mut self, count: usize) -> Result<u32, Full>;
    fn put_node(&mut self, at: u32, node: Node<N>);
    fn put_leaf(&mut self, at: u32, hop: u16);
}

/// Vectors and leaves of a node with these slots.
pub(super) struct Said {
    pub(super) vector: u64,
    leaf_vector: u64,
    leaves: [u16; SLOTS],
    leaf_count: usize,
}

impl Said {
    pub(super) fn new<A, const N: usize>(parts: &[Part<'_, A, N>; SLOTS]) -> Self {
        let mut said = Self { vector: 0, leaf_vector: 0, leaves: [0; SLOTS], leaf_count: 0 };
        for (slot, part) in parts.iter().enumerate() {
            match *part {
                Part::Leaf(hop) if N == 2 || said.leaves().last() != Some(&hop) => {
                    said.leaf_vector |= 1 << slot;
                    said.leaves[said.leaf_count] = hop;
                    said.leaf_count += 1;
                }
                Part::Leaf(_) => {}
                _ => said.vector |= 1 << slot,
            }
        }
        said
    }

    pub(super) fn leaves(&self) -> &[u16] {
        &self.leaves[..self.leaf_count]
    }

    /// Puts the leaves, and makes the node over these children.
    pub(super) fn node<const N: usize>(
        &self,
        children: u32,
        space: &mut impl Space<N>,
    ) -> Result<Node<N>, Full> {
        let first = space.take_leaves(self.leaf_count)?;
        for (at, &hop) in (first..).zip(self.leaves()) {
            space.put_leaf(at, hop);
        }
        Ok(Node::new(self.vector, self.leaf_vector, children, first))
    }
}

/// Makes the node of these slots, and all below it.
pub(super) fn node<A: Key, const N: usize>(
    parts: &[Part<'_, A, N>; SLOTS],
    space: &mut impl Space<N>,
) -> Result<Node<N>, Full> {
    let said = Said::new(parts);
    let children = space.take_nodes(said.vector.count_ones() as usize)?;
    let node = said.node(children, space)?;
    let inner = parts.iter().filter(|part| !matches!(part, Part::Leaf(_)));
    for (at, part) in (children..).zip(inner) {
        let child = match part {
            Part::Deep(deep) => deep_node(deep, space)?,
            Part::Kept(node) => *node,
            Part::Leaf(_) => unreachable!("leaves are filtered out"),
        };
        space.put_node(at, child);
    }
    Ok(node)
}

/// Makes the node of a part that needs one, and all below it.
pub(super) fn deep_node<A: Key, const N: usize>(
    deep: &Deep<'_, A>,
    space: &mut impl Space<N>,
) -> Result<Node<N>, Full> {
    let mut parts = [Part::Leaf(0); SLOTS];
    deep.slots(deep.len, &mut parts);
    node(&parts, space)
}

/// Space of a table that is built: it grows.
#[derive(Default)]
pub(super) struct Growing<const N: usize> {
    pub(super) nodes: Vec<[u64; N]>,
    pub(super) leaves: Vec<u16>,
}

/// Direct entries have 31 bits for a node; a leaf is counted by 32.
const MAX_NODES: usize = 1 << 31;

impl<const N: usize> Growing<N> {
    fn grow<T: Copy>(cells: &mut Vec<T>, count: usize, zero: T) -> Result<u32, Full> {
        let from = cells.len();
        if from + count > MAX_NODES {
            return Err(Full);
        }
        cells.resize(from + count, zero);
        u32::try_from(from).map_err(|_| Full)
    }
}

impl<const N: usize> Space<N> for Growing<N> {
    fn take_nodes(&mut self, count: usize) -> Result<u32, Full> {
        Self::grow(&mut self.nodes, count, [0; N])
    }
    fn take_leaves(&mut self, count: usize) -> Result<u32, Full> {
        Self::grow(&mut self.leaves, count, 0)
    }
    fn put_node(&mut self, at: u32, node: Node<N>) {
        self.nodes[at as usize] = node.0;
    }
    fn put_leaf(&mut self, at: u32, hop: u16) {
        self.leaves[at as usize] = hop;
    }
}
