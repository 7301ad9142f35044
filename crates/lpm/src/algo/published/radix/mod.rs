//! Radix: a path-compressed binary trie that is changed while readers walk it.
//!
//! Source: Morrison's PATRICIA (JACM 1968), as BSD's radix tree uses it for routes. Differs: a node
//!         carries its prefix, so a walk stops where it leaves the table and never backs up; a
//!         change copies the path from the root and publishes it by one store.
//! Shape:  nodes [[u64; 2]; n] (IPv4) or [[u64; 4]; n] (IPv6); fewer than 2 N for N prefixes
//!
//! ```text
//! word 0     [ right child, 32 | left child, 32 ]     0: none; node 0 is above the root, on its left
//! word 1     [ address (IPv4), 32 | next hop, 24 | length, 8 ]
//! word 2, 3  address, first and second half (IPv6)
//! ```
//!
//! Cost:   lookup one node a branching, about 20 in a full table; a change copies as many
//! Limits: next hops below 2^24
//! Wins:   any table that changes faster than others can follow; the fallback that always works.
//!         Weak: lookups, each step of which may miss
//!
//! A node never changes once readers can reach it. So a lookup, or a whole batch of them, sees the
//! table of one moment: with nodes changed in place it could miss one change and see a later one.

mod write;

use alloc::sync::Arc;
use alloc::vec;
use core::marker::PhantomData;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Acquire, Relaxed};

use crate::addr::{Addr, Prefix};
use crate::error::FormatError;
use crate::head::{HEAD, Head, stamp};
use crate::lookup::{Algorithm, Limits, Lookup, Module, Origin, Step, TableStats, check_out};
use crate::mem::{Region, prefetch, region_named};
use crate::next_hop_id::NextHopId;

/// The rows of this file.
pub(super) const MODULE: Module = Module { v4: &[row::<u32>()], v6: &[row::<u128>()] };

const MAX_HOP: u32 = (1 << 24) - 1;

const fn row<A: Cells>() -> Algorithm<A> {
    Algorithm {
        name: "radix",
        summary: "path-compressed binary trie, changed beside its readers",
        source: "Morrison, JACM 1968; BSD radix tree",
        origin: Origin::Published,
        limits: Limits { next_hop: MAX_HOP, prefix_len: A::BITS, note: "" },
        fitness,
        make: write::make::<A>,
        open: Some(open::<A>),
        kernel_layout: None,
    }
}

/// Better than building anew for each change, worse than anything made for lookups.
fn fitness(_: &TableStats) -> u8 {
    50
}

const fn layout<A: Addr>() -> u64 {
    stamp(b"fprx", A::FAMILY, 1)
}

/// Words of the head.
const PREFIXES: usize = 0;
const NODES: usize = 1;
const WAITING: usize = 2;
type Counts = Head<3>;

const TRIE: usize = 1;
const NAMES: [&str; 2] = [HEAD, "nodes"];
/// Walks side by side: their loads overlap.
const GROUP: usize = 32;

/// No node; also the place above the root.
const NIL: u32 = 0;

/// A node as it is read.
#[derive(Clone, Copy)]
struct Node<A> {
    links: u64,
    hop: u32,
    len: u8,
    addr: A,
}

impl<A: Cells> Node<A> {
    fn new(prefix: Prefix<A>, hop: NextHopId) -> Self {
        Self { links: 0, hop: hop.0, len: prefix.len(), addr: prefix.addr() }
    }

    #[inline(always)]
    #[allow(clippy::cast_possible_truncation, reason = "one of the two halves")]
    fn child(&self, side: u32) -> u32 {
        (self.links >> (32 * side)) as u32
    }

    fn with_child(mut self, side: u32, child: u32) -> Self {
        let shift = 32 * side;
        self.links = self.links & !(u64::from(u32::MAX) << shift) | u64::from(child) << shift;
        self
    }

    /// Whether `addr` lies in this node's prefix.
    #[inline(always)]
    fn holds(&self, addr: A) -> bool {
        self.addr.common_len(addr) >= self.len
    }

    /// The child towards `addr`; a host's node has none on either side.
    #[inline(always)]
    fn towards(&self, addr: A) -> u32 {
        self.child(addr.bits(self.len, 1))
    }

    fn prefix(&self) -> Prefix<A> {
        Prefix::masked(self.addr, self.len)
    }

    #[allow(clippy::cast_possible_truncation, reason = "fields of the word")]
    fn unpack(links: u64, meta: u64, addr: A) -> Self {
        Self { links, hop: meta as u32 >> 8, len: meta as u8, addr }
    }

    fn meta(&self) -> u64 {
        u64::from(self.hop) << 8 | u64::from(self.len)
    }
}

/// How a node of the family lies in memory.
trait Cells: Addr {
    type Cell: Sync + 'static;
    fn cells(region: &Region) -> &[Self::Cell];
    fn read(cell: &Self::Cell) -> Node<Self>;
    fn write(cell: &Self::Cell, node: &Node<Self>);
    /// The word with the links: node 0's is the only one that changes under readers.
    fn links(cell: &Self::Cell) -> &AtomicU64;
}

impl Cells for u32 {
    type Cell = [AtomicU64; 2];
    fn cells(region: &Region) -> &[Self::Cell] {
        region.u64s().as_chunks().0
    }
    #[inline(always)]
    #[allow(clippy::cast_possible_truncation, reason = "the upper half")]
    fn read(cell: &Self::Cell) -> Node<u32> {
        let meta = cell[1].load(Relaxed);
        Node::unpack(cell[0].load(Relaxed), meta, (meta >> 32) as u32)
    }
    fn write(cell: &Self::Cell, node: &Node<u32>) {
        cell[0].store(node.links, Relaxed);
        cell[1].store(u64::from(node.addr) << 32 | node.meta(), Relaxed);
    }
    fn links(cell: &Self::Cell) -> &AtomicU64 {
        &cell[0]
    }
}

impl Cells for u128 {
    type Cell = [AtomicU64; 4];
    fn cells(region: &Region) -> &[Self::Cell] {
        region.u64s().as_chunks().0
    }
    #[inline(always)]
    fn read(cell: &Self::Cell) -> Node<u128> {
        let [links, meta, high, low] = cell.each_ref().map(|word| word.load(Relaxed));
        Node::unpack(links, meta, u128::from(high) << 64 | u128::from(low))
    }
    #[allow(clippy::cast_possible_truncation, reason = "the two halves of an address")]
    fn write(cell: &Self::Cell, node: &Node<u128>) {
        cell[0].store(node.links, Relaxed);
        cell[1].store(node.meta(), Relaxed);
        cell[2].store((node.addr >> 64) as u64, Relaxed);
        cell[3].store(node.addr as u64, Relaxed);
    }
    fn links(cell: &Self::Cell) -> &AtomicU64 {
        &cell[0]
    }
}

struct Reader<A: Cells> {
    head: Counts,
    regions: [Region; 2],
    family: PhantomData<A>,
}

impl<A: Cells> Reader<A> {
    fn new(head: Counts, nodes: Region) -> Self {
        Self { regions: [head.region().clone(), nodes], head, family: PhantomData }
    }

    /// The nodes, and the root of this moment. Acquire: pairs with the release store that publishes
    /// a step; all nodes below the root were written before it.
    #[inline(always)]
    #[allow(clippy::cast_possible_truncation, reason = "the left half")]
    fn enter(&self) -> (&[A::Cell], u32) {
        let nodes = A::cells(&self.regions[TRIE]);
        (nodes, A::links(&nodes[0]).load(Acquire) as u32)
    }
}

#[inline(always)]
fn walk<A: Cells>(nodes: &[A::Cell], mut at: u32, addr: A) -> NextHopId {
    let mut best = 0;
    while at != NIL {
        let node = A::read(&nodes[at as usize]);
        if !node.holds(addr) {
            break;
        }
        best = if node.hop == 0 { best } else { node.hop };
        at = node.towards(addr);
    }
    NextHopId(best)
}

impl<A: Cells> Lookup<A> for Reader<A> {
    fn lookup(&self, addr: A) -> NextHopId {
        let (nodes, root) = self.enter();
        walk::<A>(nodes, root, addr)
    }

    fn lookup_batch(&self, addrs: &[A], out: &mut [NextHopId]) {
        let out = check_out(addrs, out);
        let (nodes, root) = self.enter();
        for (addrs, out) in addrs.chunks(GROUP).zip(out.chunks_mut(GROUP)) {
            out.fill(NextHopId::NONE);
            if root == NIL {
                continue;
            }
            let mut at = [root; GROUP];
            // Which walks go on; those that ended drop out without a branch.
            let mut walking: [usize; GROUP] = core::array::from_fn(|lane| lane);
            let mut left = addrs.len();
            while left > 0 {
                let mut kept = 0;
                for turn in 0..left {
                    let lane = walking[turn];
                    let node = A::read(&nodes[at[lane] as usize]);
                    let inside = node.holds(addrs[lane]);
                    let found = inside && node.hop != 0;
                    out[lane] = if found { NextHopId(node.hop) } else { out[lane] };
                    let next = if inside { node.towards(addrs[lane]) } else { NIL };
                    if let Some(cell) = nodes.get(next as usize) {
                        prefetch(cell);
                    }
                    at[lane] = next;
                    walking[kept] = lane;
                    kept += usize::from(next != NIL);
                }
                left = kept;
            }
        }
    }

    fn explain(&self, addr: A, step: &mut dyn FnMut(&Step)) -> NextHopId {
        let (nodes, mut at) = self.enter();
        let mut best = NextHopId::NONE;
        let region = NAMES[TRIE];
        step(&Step { region, offset: 0, value: u64::from(at), note: "the root" });
        while at != NIL {
            let node = A::read(&nodes[at as usize]);
            let inside = node.prefix().contains(addr);
            let note = match (inside, node.hop) {
                (false, _) => "a node that does not hold the address",
                (true, 0) => "a branching",
                (true, _) => "a route that holds the address",
            };
            let offset = at as usize * size_of::<A::Cell>();
            step(&Step { region, offset, value: node.meta(), note });
            if !inside {
                break;
            }
            if node.hop > 0 {
                best = NextHopId(node.hop);
            }
            at = node.towards(addr);
        }
        best
    }

    fn stats(&self, visit: &mut dyn FnMut(&'static str, u64)) {
        visit("prefixes", self.head.get(PREFIXES));
        visit("nodes", self.head.get(NODES));
        visit("waiting_nodes", self.head.get(WAITING));
    }

    fn regions(&self) -> &[Region] {
        &self.regions
    }

    fn bytes(&self) -> usize {
        let nodes = usize::try_from(self.head.get(NODES)).unwrap_or(usize::MAX);
        let above_root = 1;
        let bytes = nodes.saturating_add(above_root).saturating_mul(size_of::<A::Cell>());
        bytes.saturating_add(Counts::BYTES)
    }
}

/// Lengths that grow along every link are what makes each walk end.
fn open<A: Cells>(saved: &[Region]) -> Result<Arc<dyn Lookup<A>>, FormatError> {
    let head = Counts::open(saved, layout::<A>())?;
    let reader = Reader::<A>::new(head, region_named(saved, NAMES[TRIE])?);
    let bounds = FormatError::Bounds(NAMES[TRIE]);
    if A::cells(&reader.regions[TRIE]).is_empty() {
        return Err(bounds);
    }
    let (nodes, root) = reader.enter();
    let mut seen = vec![false; nodes.len()];
    let mut waiting = vec![(root, None)];
    while let Some((at, above)) = waiting.pop() {
        if at == NIL {
            continue;
        }
        let Some(cell) = nodes.get(at as usize) else { return Err(bounds) };
        let node = A::read(cell);
        if node.len > A::BITS || above.is_some_and(|above| node.len <= above) {
            return Err(bounds);
        }
        if !core::mem::replace(&mut seen[at as usize], true) {
            waiting.extend([0, 1].map(|side| (node.child(side), Some(node.len))));
        }
    }
    Ok(Arc::new(reader))
}
