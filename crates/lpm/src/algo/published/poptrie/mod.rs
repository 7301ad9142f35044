//! Poptrie: a 64-way trie whose nodes count bits to find a child or an answer.
//!
//! Source: Asai, Ohara, SIGCOMM 2015; IPv6, aggregation and direct pointing as there. Differs: blocks
//!         are cut to size (no buddy pools); a change copies one block of nodes and publishes it by
//!         one store; what is unlinked waits for its readers.
//! Shape:  direct [u32; 2^S]: indexed by the first S bits of the address (S = 0: one entry, the root)
//!         nodes [[u64; 2 or 3]; n]: 16 bytes basic, 24 with a leaf vector; siblings stand together
//!         leaves [u16; m]: next hops, those of a node together
//! Cost:   lookup: entry, a node per 6 bits, a leaf; IPv4 with S = 18 has at most 3 nodes. A change
//!         writes the node over it, its leaves and its siblings; one of a /p with p <= S writes the
//!         2^(S-p) entries and all below them
//! Limits: next hops of 16 bits; 2^31 nodes
//! Wins:   lookups of uniform IPv4 addresses and of IPv6. Weak: announced addresses, three dependent
//!         reads for most of them. Patents are known: off unless feature `poptrie` is on, and chosen
//!         only by name
//!
//! ```text
//! direct entry   31: 1  [ next hop, 31 ]          31: 0  [ node, 31 ]
//! node, word 0   vector: bit i (from the least) is set if slot i has a node below it
//!       word 1   leaf vector: bit i is set if slot i is a leaf and differs from the leaf before it
//!                (left out of the basic form, where every slot without a node has a leaf)
//!       last     [ first child node, 32 | first leaf, 32 ]
//! ```
//!
//! Slots past the end of the address repeat the last real one, so 6 bits are read at every node. The
//! rows are the paper's: basic, with leaf vectors, and with routes aggregated as well (no node where
//! all below has one answer), each with S of 0, 16 and 18.

mod build;
mod write;

use alloc::sync::Arc;
use core::sync::atomic::Ordering::{Acquire, Relaxed};
use core::sync::atomic::{AtomicU16, AtomicU32, AtomicU64};

use crate::addr::Addr;
use crate::error::FormatError;
use crate::head::{HEAD, Head, stamp};
use crate::lookup::{Algorithm, Limits, Lookup, Module, Origin, Step, check_out};
use crate::mem::{Cells, Masked, Region, prefetch, region_named};
use crate::next_hop_id::NextHopId;
use crate::one_by_one::{Chain, Each};
use crate::simd::{BitOps, Job};

/// The rows of this file. What the extensions bring is a table of IPv4 in the paper.
pub(super) const MODULE: Module = Module {
    v4: &[
        row::<_, 0, 3, true>("poptrie", AGGREGATED),
        row::<_, 16, 3, true>("poptrie16", AGGREGATED),
        row::<_, 18, 3, true>("poptrie18", AGGREGATED),
        row::<_, 0, 3, false>("poptrie_leafvec", LEAF_VECTOR),
        row::<_, 16, 3, false>("poptrie16_leafvec", LEAF_VECTOR),
        row::<_, 18, 3, false>("poptrie18_leafvec", LEAF_VECTOR),
        row::<_, 0, 2, false>("poptrie_basic", BASIC),
        row::<_, 16, 2, false>("poptrie16_basic", BASIC),
        row::<_, 18, 2, false>("poptrie18_basic", BASIC),
    ],
    v6: &[
        row::<_, 0, 3, true>("poptrie", AGGREGATED),
        row::<_, 16, 3, true>("poptrie16", AGGREGATED),
        row::<_, 18, 3, true>("poptrie18", AGGREGATED),
    ],
};

const BASIC: &str = "64-way trie by counted bits, a leaf for every slot";
const LEAF_VECTOR: &str = "64-way trie by counted bits, runs of equal leaves stored once";
const AGGREGATED: &str = "64-way trie by counted bits, equal leaves and equal routes stored once";

const fn row<A: Key, const S: u8, const N: usize, const AGG: bool>(
    name: &'static str,
    summary: &'static str,
) -> Algorithm<A> {
    Algorithm {
        name,
        summary,
        source: "Asai, Ohara, SIGCOMM 2015",
        origin: Origin::Published,
        limits: Limits { next_hop: MAX_HOP, prefix_len: A::BITS, note: "" },
        // Never by itself: see the header.
        fitness: |_| 0,
        make: write::make::<A, S, N, AGG>,
        open: Some(open::<A, S, N>),
        kernel_layout: None,
    }
}

/// Bits of an address that a node takes.
const STRIDE: u8 = 6;
/// Leaves are 16 bits.
const MAX_HOP: u32 = 0xffff;
/// Slots of a node.
const SLOTS: usize = 64;
/// A direct entry that is a next hop.
const HIT: u32 = 1 << 31;

const fn layout<A: Addr, const S: u8, const N: usize>() -> u64 {
    let form = if N == 3 { 0x40 } else { 0 } | if A::FAMILY == 6 { 0x80 } else { 0 };
    stamp(b"fppt", form | S, 1)
}

/// Words of the head.
const PREFIXES: usize = 0;
const INNER: usize = 1;
const LEAVES: usize = 2;
const WAITING: usize = 3;
type Counts = Head<4>;

/// Where each region stands in `Reader::regions`.
const DIRECT: usize = 1;
const NODES: usize = 2;
const LEAF: usize = 3;
const NAMES: [&str; 4] = [HEAD, "direct", "nodes", "leaves"];

/// An address from which bits are taken off at its start.
trait Key: Addr {
    /// The first six bits.
    fn slot(self) -> u32;
    /// The rest after the first `count` bits.
    fn after(self, count: u8) -> Self;
    /// The first `count` bits.
    fn top(self, count: u8) -> usize;
}

macro_rules! key {
    ($t:ty) => {
        impl Key for $t {
            #[inline(always)]
            #[allow(clippy::cast_possible_truncation, reason = "six bits")]
            fn slot(self) -> u32 {
                (self >> (<$t>::BITS - u32::from(STRIDE))) as u32
            }
            #[inline(always)]
            fn after(self, count: u8) -> Self {
                self << count
            }
            #[inline(always)]
            #[allow(clippy::cast_possible_truncation, reason = "at most 18 bits")]
            fn top(self, count: u8) -> usize {
                // A shift by the whole width is not defined.
                if count == 0 { 0 } else { (self >> (<$t>::BITS - u32::from(count))) as usize }
            }
        }
    };
}

key!(u32);
key!(u128);

/// A node as it is read: vector, leaf vector if N is 3, bases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Node<const N: usize>([u64; N]);

impl<const N: usize> Node<N> {
    fn new(vector: u64, leaf_vector: u64, children: u32, leaves: u32) -> Self {
        let mut words = [0; N];
        words[0] = vector;
        words[1] = leaf_vector;
        // In the basic form this takes the place of the leaf vector.
        words[N - 1] = u64::from(children) << 32 | u64::from(leaves);
        Self(words)
    }

    #[inline(always)]
    fn load(cell: &[AtomicU64; N]) -> Self {
        let mut words = [0; N];
        for (word, cell) in words[..N - 1].iter_mut().zip(cell) {
            *word = cell.load(Relaxed);
        }
        // Acquire: pairs with the release store by which a change replaces the children. The other
        // words of a node never change while a reader can reach it.
        words[N - 1] = cell[N - 1].load(Acquire);
        Self(words)
    }

    #[inline(always)]
    fn vector(self) -> u64 {
        self.0[0]
    }

    /// Where a leaf starts; the basic form stores one for each slot without a node.
    #[inline(always)]
    fn leaf_vector(self) -> u64 {
        if N == 3 { self.0[1] } else { !self.0[0] }
    }

    #[inline(always)]
    fn children(self) -> u32 {
        (self.0[N - 1] >> 32) as u32
    }

    #[inline(always)]
    #[allow(clippy::cast_possible_truncation, reason = "the lower half")]
    fn leaves(self) -> u32 {
        self.0[N - 1] as u32
    }

    fn with_children(mut self, children: u32) -> Self {
        self.0[N - 1] = u64::from(children) << 32 | u64::from(self.leaves());
        self
    }

    /// What slot `slot` refers to.
    #[inline(always)]
    fn at(self, slot: u32) -> Below {
        // The bits up to the slot's own, that one on top.
        let up_to = |bits: u64| bits << (!slot & 63);
        let inner = up_to(self.vector());
        // Wrapping, as damaged memory may say anything.
        if inner >> 63 == 1 {
            Below::Node(self.children().wrapping_add(inner.count_ones()).wrapping_sub(1))
        } else {
            let before = up_to(self.leaf_vector()).count_ones();
            Below::Leaf(self.leaves().wrapping_add(before).wrapping_sub(1))
        }
    }
}

/// What a slot refers to: the index of a node, or of a leaf.
#[derive(Clone, Copy)]
enum Below {
    Node(u32),
    Leaf(u32),
}

struct Reader<A: Key, const S: u8, const N: usize> {
    head: Counts,
    regions: [Region; 4],
    direct: Cells<AtomicU32>,
    nodes: Cells<[AtomicU64; N]>,
    leaves: Cells<AtomicU16>,
    bits: Option<BitOps>,
    family: core::marker::PhantomData<A>,
}

/// The arrays of a reader, as a batch keeps them in registers.
struct View<'a, A, const S: u8, const N: usize> {
    direct: Masked<'a, AtomicU32>,
    nodes: Masked<'a, [AtomicU64; N]>,
    leaves: Masked<'a, AtomicU16>,
    family: core::marker::PhantomData<A>,
}

impl<A, const S: u8, const N: usize> Clone for View<'_, A, S, N> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<A, const S: u8, const N: usize> Copy for View<'_, A, S, N> {}

impl<A: Key, const S: u8, const N: usize> Reader<A, S, N> {
    /// Most nodes of a lookup.
    const DEPTH: u8 = (A::BITS - S).div_ceil(STRIDE);

    /// Nodes and leaves of which the first 2^k, as many as there are, can be reached.
    fn new(head: Counts, direct: Region, nodes: Region, leaves: Region) -> Option<Self> {
        let mask = |cells: usize| cells.checked_ilog2().map(|bits| (1 << bits) - 1);
        let node_cells: &[[AtomicU64; N]] = crate::mem::Cell::slice(&nodes);
        Some(Self {
            direct: Cells::new(&direct, (1 << S) - 1),
            nodes: Cells::new(&nodes, mask(node_cells.len())?),
            leaves: Cells::new(&leaves, mask(leaves.u16s().len())?),
            regions: [head.region().clone(), direct, nodes, leaves],
            head,
            bits: BitOps::detect(),
            family: core::marker::PhantomData,
        })
    }

    #[inline(always)]
    fn view(&self) -> View<'_, A, S, N> {
        View {
            direct: self.direct.view(),
            nodes: self.nodes.view(),
            leaves: self.leaves.view(),
            family: core::marker::PhantomData,
        }
    }
}

impl<'a, A: Key, const S: u8, const N: usize> View<'a, A, S, N> {
    /// The entry of an address. Acquire: pairs with the release store that publishes what it names.
    #[inline(always)]
    fn entry(self, addr: A) -> u32 {
        self.direct.at(addr.top(S)).load(Acquire)
    }

    #[inline(always)]
    fn node(self, at: u32) -> &'a [AtomicU64; N] {
        self.nodes.at(at as usize)
    }

    #[inline(always)]
    fn leaf(self, at: u32) -> NextHopId {
        NextHopId(u32::from(self.leaves.at(at as usize).load(Relaxed)))
    }

    /// The answer below node `at`, which takes the first bits of `key`.
    #[inline(always)]
    fn descend(self, mut at: u32, mut key: A) -> NextHopId {
        // Counted, so that damaged memory cannot lead in circles.
        for _ in 0..Reader::<A, S, N>::DEPTH {
            match Node::load(self.node(at)).at(key.slot()) {
                Below::Leaf(leaf) => return self.leaf(leaf),
                Below::Node(node) => at = node,
            }
            key = key.after(STRIDE);
        }
        NextHopId::NONE
    }
}

/// One lookup.
struct Single<'a, A, const S: u8, const N: usize>(View<'a, A, S, N>, A);

impl<A: Key, const S: u8, const N: usize> Job for Single<'_, A, S, N> {
    type Out = NextHopId;
    #[inline(always)]
    fn run(self) -> NextHopId {
        let Self(view, addr) = self;
        let entry = view.entry(addr);
        if entry & HIT == 0 { view.descend(entry, addr.after(S)) } else { NextHopId(entry & !HIT) }
    }
}

/// Keys that go through the stages together.
const GROUP: usize = 64;

struct Batch<'a, A, const S: u8, const N: usize> {
    view: View<'a, A, S, N>,
    addrs: &'a [A],
    out: &'a mut [NextHopId],
}

impl<A: Key, const S: u8, const N: usize> Job for Batch<'_, A, S, N> {
    type Out = ();
    #[inline(always)]
    fn run(self) {
        for (addrs, out) in self.addrs.chunks(GROUP).zip(self.out.chunks_mut(GROUP)) {
            self.view.group(addrs, out);
        }
    }
}

impl<A: Key, const S: u8, const N: usize> View<'_, A, S, N> {
    /// Looks all entries up, then level by level the nodes of those that continue.
    #[inline(always)]
    fn group(self, addrs: &[A], out: &mut [NextHopId]) {
        let (mut at, mut keys) = ([0; GROUP], [A::MIN; GROUP]);
        for (lane, (&addr, out)) in addrs.iter().zip(out.iter_mut()).enumerate() {
            let entry = self.entry(addr);
            *out = NextHopId(entry & !HIT);
            at[lane] = entry;
            keys[lane] = addr.after(S);
        }
        let mut going = [0u8; GROUP];
        let mut left = 0;
        #[allow(clippy::cast_possible_truncation, reason = "a group has 64 lanes")]
        for (lane, &entry) in at[..addrs.len()].iter().enumerate() {
            going[left % GROUP] = lane as u8;
            let goes = entry & HIT == 0;
            left += usize::from(goes);
        }
        for &lane in &going[..left] {
            prefetch(self.node(at[usize::from(lane)]));
        }
        for _ in 0..Reader::<A, S, N>::DEPTH {
            let mut kept = 0;
            for turn in 0..left {
                let lane = usize::from(going[turn]) % GROUP;
                match Node::load(self.node(at[lane])).at(keys[lane].slot()) {
                    Below::Leaf(leaf) => out[lane] = self.leaf(leaf),
                    Below::Node(node) => {
                        prefetch(self.node(node));
                        at[lane] = node;
                        keys[lane] = keys[lane].after(STRIDE);
                        going[kept] = going[turn];
                        kept += 1;
                    }
                }
            }
            left = kept;
        }
        for &lane in &going[..left] {
            out[usize::from(lane)] = NextHopId::NONE;
        }
    }
}

impl<A: Key, const S: u8, const N: usize> Lookup<A> for Reader<A, S, N> {
    fn lookup(&self, addr: A) -> NextHopId {
        BitOps::run(self.bits, Single(self.view(), addr))
    }

    fn lookup_batch(&self, addrs: &[A], out: &mut [NextHopId]) {
        let out = check_out(addrs, out);
        BitOps::run(self.bits, Batch { view: self.view(), addrs, out });
    }

    fn lookup_each(&self, addrs: &[A], out: &mut [NextHopId]) {
        let out = check_out(addrs, out);
        let view = self.view();
        BitOps::run(self.bits, Each { addrs, out, one: |addr| Single(view, addr).run() });
    }

    fn lookup_chain(&self, addrs: &[A], mask: u32, out: &mut [NextHopId]) {
        let out = check_out(addrs, out);
        let view = self.view();
        BitOps::run(self.bits, Chain { addrs, mask, out, one: |addr| Single(view, addr).run() });
    }

    fn explain(&self, addr: A, step: &mut dyn FnMut(&Step)) -> NextHopId {
        let view = self.view();
        let entry = view.entry(addr);
        let hit = entry & HIT != 0;
        let note = if hit { "direct entry: a next hop" } else { "direct entry: a node" };
        let offset = addr.top(S) * 4;
        step(&Step { region: NAMES[DIRECT], offset, value: u64::from(entry), note });
        if hit {
            return NextHopId(entry & !HIT);
        }
        let (mut at, mut key) = (entry, addr.after(S));
        for _ in 0..Self::DEPTH {
            let node = Node::load(view.node(at));
            let offset = at as usize * size_of::<Node<N>>();
            let below = node.at(key.slot());
            let note = match below {
                Below::Node(_) => "a node: its vector names a child",
                Below::Leaf(_) => "a node: its vector names a leaf",
            };
            step(&Step { region: NAMES[NODES], offset, value: node.vector(), note });
            match below {
                Below::Node(node) => at = node,
                Below::Leaf(leaf) => {
                    let hop = view.leaf(leaf);
                    let offset = leaf as usize * 2;
                    let (region, value) = (NAMES[LEAF], u64::from(hop.0));
                    step(&Step { region, offset, value, note: "a leaf" });
                    return hop;
                }
            }
            key = key.after(STRIDE);
        }
        NextHopId::NONE
    }

    fn stats(&self, visit: &mut dyn FnMut(&'static str, u64)) {
        visit("prefixes", self.head.get(PREFIXES));
        visit("inner_nodes", self.head.get(INNER));
        visit("leaves", self.head.get(LEAVES));
        visit("waiting_bytes", self.head.get(WAITING));
    }

    fn regions(&self) -> &[Region] {
        &self.regions
    }

    fn bytes(&self) -> usize {
        let count = |word| usize::try_from(self.head.get(word)).unwrap_or(usize::MAX);
        let nodes = count(INNER).saturating_mul(size_of::<Node<N>>());
        let leaves = count(LEAVES).saturating_mul(2);
        nodes.saturating_add(leaves).saturating_add(Counts::BYTES + (4 << S))
    }
}

fn open<A: Key, const S: u8, const N: usize>(
    saved: &[Region],
) -> Result<Arc<dyn Lookup<A>>, FormatError> {
    let head = Counts::open(saved, layout::<A, S, N>())?;
    let region = |at: usize| region_named(saved, NAMES[at]);
    let (direct, nodes, leaves) = (region(DIRECT)?, region(NODES)?, region(LEAF)?);
    if direct.u32s().len() < 1 << S {
        return Err(FormatError::Bounds(NAMES[DIRECT]));
    }
    let reader = Reader::<A, S, N>::new(head, direct, nodes, leaves);
    let reader = reader.ok_or(FormatError::Bounds(NAMES[NODES]))?;
    // An index inside a node is masked when it is read; it could only be told from the free space
    // around by walking all of the trie.
    let nodes: &[[AtomicU64; N]] = crate::mem::Cell::slice(&reader.regions[NODES]);
    let known = |entry: &AtomicU32| {
        let entry = entry.load(Acquire);
        entry & HIT != 0 || (entry as usize) < nodes.len()
    };
    if reader.regions[DIRECT].u32s()[..1 << S].iter().all(known) {
        Ok(Arc::new(reader))
    } else {
        Err(FormatError::Bounds(NAMES[DIRECT]))
    }
}
