//! Tree Bitmap: a multibit trie whose nodes keep their own prefixes, not pushed down to leaves.
//!
//! Source: Eatherton, Varghese, Dittia, CCR 2004; nodes of 16 slots as in the Rust crate treebitmap, of
//!         64 as Poptrie's authors compared with. Differs: a change copies the path from the root, as
//!         `radix` does; nodes of 64 keep two indices, not one block of results and children.
//! Shape:  root [u32; 1]: node of the root
//!         nodes [[u32; 3]; n] (16 slots) or [[u64; 3]; n] (64 slots): siblings stand together
//!         results [u16; m]: the next hop of every prefix, those of a node together
//! Cost:   lookup a node for every 4 bits (or for the first bit and every 6 after it), then one result; a
//!         change copies the nodes of its path with their siblings, and one block of results
//! Limits: next hops of 16 bits; 2^32 - 1 nodes
//! Wins:   tables that change all the time and must be compact; no change is worse than another. Weak:
//!         lookups, 5 or 6 dependent nodes in a full IPv4 table
//!
//! ```text
//! 16 slots, word 0   31: end | 30 .. 15: slots | 14 .. 0: prefixes of 0 to 3 bits in the node
//!                    a slot with its bit set has a child; in an end node, which has no children, a
//!                    prefix of 4 bits
//!           word 1   first child          word 2   first result
//! 64 slots, word 0   slots that have a child
//!           word 1   62 .. 0: prefixes of 0 to 5 bits in the node
//!           word 2   [ first child, 32 | first result, 32 ]
//!
//! prefixes stand as in a heap:   bit 0: *   1: 0*   2: 1*   3: 00*   4: 01*   ...
//! ```
//!
//! A node never changes once readers can reach it, so a lookup, or a whole batch, sees one moment: what
//! is found high up and what is missed below belong together.

mod write;

use alloc::sync::Arc;
use core::marker::PhantomData;
use core::sync::atomic::Ordering::{Acquire, Relaxed};
use core::sync::atomic::{AtomicU16, AtomicU32, AtomicU64};

use crate::addr::Addr;
use crate::error::FormatError;
use crate::head::{HEAD, Head, stamp};
use crate::lookup::{Algorithm, Limits, Lookup, Module, Origin, Step, TableStats, check_out};
use crate::mem::{Cell, Cells, Masked, Region, prefetch, region_named};
use crate::next_hop_id::NextHopId;
use crate::one_by_one::{Chain, Each};
use crate::simd::{BitOps, Job};

/// The rows of this file.
pub(super) const MODULE: Module = Module {
    v4: &[row::<_, Slots16>("tree_bitmap"), row::<_, Slots64>("tree_bitmap64")],
    v6: &[row::<_, Slots16>("tree_bitmap"), row::<_, Slots64>("tree_bitmap64")],
};

/// Results are 16 bits.
const MAX_HOP: u32 = 0xffff;

const fn row<A: Addr, F: Form>(name: &'static str) -> Algorithm<A> {
    Algorithm {
        name,
        summary: "multibit trie with the prefixes of each node in a bitmap",
        source: "Eatherton, Varghese, Dittia, CCR 2004",
        origin: Origin::Published,
        limits: Limits { next_hop: MAX_HOP, prefix_len: A::BITS, note: "" },
        fitness,
        make: write::make::<A, F>,
        open: Some(open::<A, F>),
        kernel_layout: None,
    }
}

/// Just below `radix`, which is changed faster and holds more next hops.
fn fitness(_: &TableStats) -> u8 {
    45
}

/// A node as it is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Node {
    /// Which prefixes stand in it.
    internal: u64,
    /// Which slots have a child.
    external: u64,
    /// The first child, and the first result.
    children: u32,
    results: u32,
    /// Prefixes as long as the stride stand in it too, and it has no children.
    end: bool,
}

impl Node {
    /// Result of the longest prefix in the node that holds the slot, if there is one.
    #[inline(always)]
    fn result(&self, mask: u64) -> Option<u32> {
        let held = self.internal & mask;
        let last = held.checked_ilog2()?;
        Some(self.results.wrapping_add(rank(self.internal, last)))
    }

    /// The child of a slot.
    #[inline(always)]
    fn child(&self, slot: u32) -> Option<u32> {
        let is = self.external >> slot & 1 == 1;
        is.then(|| self.children.wrapping_add(rank(self.external, slot)))
    }

    fn is_empty(&self) -> bool {
        self.internal == 0 && self.external == 0
    }
}

/// Set bits below bit `at`, which is at most 63.
#[inline(always)]
fn rank(bits: u64, at: u32) -> u32 {
    (bits & ((1 << at) - 1)).count_ones()
}

/// How nodes of a stride lie in memory.
trait Form: Send + Sync + 'static {
    type Cells: Cell + 'static;
    /// Bits of an address that a node takes.
    const STRIDE: u8;
    /// Zeros thought before each address, so that the root takes fewer bits.
    const LEAD: u8;
    /// Whether there are end nodes.
    const END: bool;
    const LETTERS: &[u8; 4];
    /// Prefixes of a node that cover each slot.
    const MASKS: [u64; 64] = masks(Self::STRIDE, Self::END);
    fn load(cell: &Self::Cells) -> Node;
    fn store(cell: &Self::Cells, node: &Node);

    /// The slot of an address in a node at `from` bits, those before it counted in.
    #[inline(always)]
    fn slot<A: Addr>(addr: A, from: u8) -> u32 {
        match from.checked_sub(Self::LEAD) {
            Some(from) => addr.bits(from, Self::STRIDE),
            None => addr.bits(0, Self::STRIDE - Self::LEAD),
        }
    }
}

const fn masks(stride: u8, end: bool) -> [u64; 64] {
    let mut all = [0; 64];
    let mut slot = 0;
    while slot < 1 << stride {
        let mut len = 0;
        while len < stride || (end && len == stride) {
            all[slot] |= 1 << ((1 << len) - 1 + (slot >> (stride - len)));
            len += 1;
        }
        slot += 1;
    }
    all
}

struct Slots16;

const END: u32 = 1 << 31;

impl Form for Slots16 {
    type Cells = [AtomicU32; 3];
    const STRIDE: u8 = 4;
    const LEAD: u8 = 0;
    const END: bool = true;
    const LETTERS: &[u8; 4] = b"fptb";
    #[inline(always)]
    fn load(cell: &[AtomicU32; 3]) -> Node {
        let [bits, children, results] = cell.each_ref().map(|word| word.load(Relaxed));
        let end = bits & END != 0;
        let internal = u64::from(if end { bits & !END } else { bits & 0x7fff });
        let external = u64::from(if end { 0 } else { bits >> 15 });
        Node { internal, external, children, results, end }
    }
    #[allow(clippy::cast_possible_truncation, reason = "31 bits of prefixes, or 15 and 16 slots")]
    fn store(cell: &[AtomicU32; 3], node: &Node) {
        let bits = (node.internal | node.external << 15) as u32;
        cell[0].store(if node.end { bits | END } else { bits }, Relaxed);
        cell[1].store(node.children, Relaxed);
        cell[2].store(node.results, Relaxed);
    }
}

struct Slots64;

impl Form for Slots64 {
    type Cells = [AtomicU64; 3];
    const STRIDE: u8 = 6;
    /// The root takes one bit, so that a /24 stands in its node beside 62 others; at the top of a node
    /// of its own it took four times the memory.
    const LEAD: u8 = 5;
    const END: bool = false;
    const LETTERS: &[u8; 4] = b"fptc";
    #[inline(always)]
    #[allow(clippy::cast_possible_truncation, reason = "the two halves of a word")]
    fn load(cell: &[AtomicU64; 3]) -> Node {
        let [external, internal, bases] = cell.each_ref().map(|word| word.load(Relaxed));
        let (children, results) = ((bases >> 32) as u32, bases as u32);
        Node { internal, external, children, results, end: false }
    }
    fn store(cell: &[AtomicU64; 3], node: &Node) {
        cell[0].store(node.external, Relaxed);
        cell[1].store(node.internal, Relaxed);
        cell[2].store(u64::from(node.children) << 32 | u64::from(node.results), Relaxed);
    }
}

const fn layout<A: Addr, F: Form>() -> u64 {
    stamp(F::LETTERS, A::FAMILY, 1)
}

/// Words of the head.
const PREFIXES: usize = 0;
const NODE_COUNT: usize = 1;
const WAITING: usize = 2;
type Counts = Head<3>;

/// Where each region stands in `Reader::regions`.
const ROOT: usize = 1;
const NODES: usize = 2;
const RESULTS: usize = 3;
const NAMES: [&str; 4] = [HEAD, "root", "nodes", "results"];
/// Walks side by side: their loads overlap.
const GROUP: usize = 32;

struct Reader<A: Addr, F: Form> {
    head: Counts,
    regions: [Region; 4],
    nodes: Cells<F::Cells>,
    results: Cells<AtomicU16>,
    bits: Option<BitOps>,
    family: PhantomData<A>,
}

/// What a walk needs, from the root of this moment on.
struct View<'a, A, F: Form> {
    root: u32,
    nodes: Masked<'a, F::Cells>,
    results: Masked<'a, AtomicU16>,
    family: PhantomData<A>,
}

impl<A, F: Form> Clone for View<'_, A, F> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<A, F: Form> Copy for View<'_, A, F> {}

impl<A: Addr, F: Form> Reader<A, F> {
    /// Reader of the nodes and results that a mask of all ones reaches. `None` where a region is too short.
    fn new(head: Counts, root: Region, nodes: Region, results: Region) -> Option<Self> {
        let mask = |cells: usize| cells.checked_ilog2().map(|bits| (1 << bits) - 1);
        root.u32s().first()?;
        Some(Self {
            nodes: Cells::new(&nodes, mask(F::Cells::slice(&nodes).len())?),
            results: Cells::new(&results, mask(results.u16s().len())?),
            regions: [head.region().clone(), root, nodes, results],
            head,
            bits: BitOps::detect(),
            family: PhantomData,
        })
    }

    /// Acquire: pairs with the release store that publishes a step; all below the root was written
    /// before it.
    #[inline(always)]
    fn view(&self) -> View<'_, A, F> {
        View {
            root: self.regions[ROOT].u32s()[0].load(Acquire),
            nodes: self.nodes.view(),
            results: self.results.view(),
            family: PhantomData,
        }
    }
}

impl<A: Addr, F: Form> View<'_, A, F> {
    /// Most nodes of a lookup; one more than have a slot, for a prefix that ends with them.
    const DEPTH: u8 = (A::BITS + F::LEAD) / F::STRIDE + 1;

    #[inline(always)]
    fn node(self, at: u32) -> Node {
        F::load(self.nodes.at(at as usize))
    }

    #[inline(always)]
    fn hop(self, result: Option<u32>) -> NextHopId {
        let hop = result.map_or(0, |at| self.results.at(at as usize).load(Relaxed));
        NextHopId(hop.into())
    }
}

struct Single<'a, A, F: Form>(View<'a, A, F>, A);

impl<A: Addr, F: Form> Job for Single<'_, A, F> {
    type Out = NextHopId;
    #[inline(always)]
    fn run(self) -> NextHopId {
        let Self(view, addr) = self;
        let (mut at, mut best) = (view.root, None);
        // Counted, so that damaged memory cannot lead in circles.
        for level in 0..View::<A, F>::DEPTH {
            let slot = F::slot(addr, level * F::STRIDE);
            let node = view.node(at);
            best = node.result(F::MASKS[slot as usize]).or(best);
            match node.child(slot) {
                Some(child) => at = child,
                None => break,
            }
        }
        view.hop(best)
    }
}

struct Batch<'a, A, F: Form> {
    view: View<'a, A, F>,
    addrs: &'a [A],
    out: &'a mut [NextHopId],
}

impl<A: Addr, F: Form> Job for Batch<'_, A, F> {
    type Out = ();
    #[inline(always)]
    fn run(self) {
        let view = self.view;
        for (addrs, out) in self.addrs.chunks(GROUP).zip(self.out.chunks_mut(GROUP)) {
            let (mut at, mut best) = ([view.root; GROUP], [None; GROUP]);
            // Which walks go on; those that ended drop out without a branch.
            let mut walking: [usize; GROUP] = core::array::from_fn(|lane| lane);
            let mut left = addrs.len();
            for level in 0..View::<A, F>::DEPTH {
                let mut kept = 0;
                for turn in 0..left {
                    let lane = walking[turn] % GROUP;
                    let slot = F::slot(addrs[lane], level * F::STRIDE);
                    let node = view.node(at[lane]);
                    best[lane] = node.result(F::MASKS[slot as usize]).or(best[lane]);
                    let child = node.child(slot);
                    at[lane] = child.unwrap_or(at[lane]);
                    prefetch(view.nodes.at(at[lane] as usize));
                    walking[kept] = lane;
                    kept += usize::from(child.is_some());
                }
                left = kept;
                if left == 0 {
                    break;
                }
            }
            for (out, &best) in out.iter_mut().zip(&best) {
                *out = view.hop(best);
            }
        }
    }
}

impl<A: Addr, F: Form> Lookup<A> for Reader<A, F> {
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
        let (mut at, mut best) = (view.root, None);
        let value = u64::from(at);
        step(&Step { region: NAMES[ROOT], offset: 0, value, note: "the root" });
        for level in 0..View::<A, F>::DEPTH {
            let slot = F::slot(addr, level * F::STRIDE);
            let node = view.node(at);
            let found = node.result(F::MASKS[slot as usize]);
            let note = if found.is_some() { "a node with a match" } else { "a node" };
            let offset = at as usize * size_of::<F::Cells>();
            step(&Step { region: NAMES[NODES], offset, value: node.internal, note });
            best = found.or(best);
            let Some(child) = node.child(slot) else { break };
            at = child;
        }
        let hop = view.hop(best);
        if let Some(at) = best {
            let (offset, value) = (at as usize * 2, u64::from(hop.0));
            step(&Step { region: NAMES[RESULTS], offset, value, note: "the longest match" });
        }
        hop
    }

    fn stats(&self, visit: &mut dyn FnMut(&'static str, u64)) {
        visit("prefixes", self.head.get(PREFIXES));
        visit("nodes", self.head.get(NODE_COUNT));
        visit("waiting_bytes", self.head.get(WAITING));
    }

    fn regions(&self) -> &[Region] {
        &self.regions
    }

    fn bytes(&self) -> usize {
        let count = |word| usize::try_from(self.head.get(word)).unwrap_or(usize::MAX);
        let nodes = count(NODE_COUNT).saturating_mul(size_of::<F::Cells>());
        // A result for every prefix.
        let results = count(PREFIXES).saturating_mul(2);
        nodes.saturating_add(results).saturating_add(Counts::BYTES + 4)
    }
}

fn open<A: Addr, F: Form>(saved: &[Region]) -> Result<Arc<dyn Lookup<A>>, FormatError> {
    let head = Counts::open(saved, layout::<A, F>())?;
    let region = |at: usize| region_named(saved, NAMES[at]);
    let reader = Reader::<A, F>::new(head, region(ROOT)?, region(NODES)?, region(RESULTS)?);
    let reader = reader.ok_or(FormatError::Bounds(NAMES[NODES]))?;
    let root = reader.view().root as usize;
    // An index inside a node is masked when it is read.
    if root >= F::Cells::slice(&reader.regions[NODES]).len() {
        return Err(FormatError::Bounds(NAMES[ROOT]));
    }
    Ok(Arc::new(reader))
}
