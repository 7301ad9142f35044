//! The route store that all builders read: exact, covering and ordered access.
//!
//! Source: Morrison's PATRICIA (JACM 1968), as a binary trie without its back links.
//! Shape:  nodes in one array, linked by u32 indices; a node is a prefix, two children and perhaps
//!         a value. A node without a value has two children, so N prefixes need fewer than 2N nodes.
//!         24 bytes a node for IPv4 and 48 for IPv6 with a value of 4 bytes.
//! Cost:   one step a branching: about 20 in a full IPv4 table, of which changes and what
//!         their queries skip the upper half (`shortcuts.rs`). Ordered walks visit nothing outside their
//!         range but the path to it. No allocation but for growth, and for the move into less room once a
//!         large store has seven eighths of its nodes unused.
//!
//! The root is the prefix of length 0 and is always there, at index 0.

mod shortcuts;
mod walk;

use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use core::mem;

use crate::addr::{Addr, Prefix};
use crate::lookup::{Routes, TableStats};
use crate::mem::prefetch;
use crate::next_hop_id::NextHopId;

use shortcuts::{Shortcut, Shortcuts};
pub use walk::{Covering, Diff, Iter};

/// A value of a [`PrefixMap`] from which an algorithm builds: it names a next hop.
pub trait Hop {
    /// The next hop of the prefix. Never [`NextHopId::NONE`] for a stored value.
    fn hop(&self) -> NextHopId;
}

impl Hop for NextHopId {
    fn hop(&self) -> NextHopId {
        *self
    }
}

/// The plain store: prefix to next hop.
pub type RouteStore<A> = PrefixMap<A, NextHopId>;

/// Prefixes with a value each.
///
/// ```
/// use fingerpost_lpm::{NextHopId, RouteStore};
/// let mut routes = RouteStore::<u32>::new();
/// routes.insert("10.0.0.0/8".parse()?, NextHopId(1));
/// routes.insert("10.1.0.0/16".parse()?, NextHopId(2));
/// let (prefix, hop) = routes.longest_match(0x0a01_0203).unwrap();
/// assert_eq!((prefix.to_string().as_str(), *hop), ("10.1.0.0/16", NextHopId(2)));
/// # Ok::<(), fingerpost_lpm::PrefixError>(())
/// ```
#[derive(Clone)]
pub struct PrefixMap<A: Addr, V> {
    nodes: Vec<Node<A, V>>,
    /// Head of the list of unused nodes, linked by `children[0]`.
    free: u32,
    /// Nodes in that list.
    unused: usize,
    len: usize,
    lengths: [u32; 129],
    shortcuts: Shortcuts,
}

#[derive(Clone)]
struct Node<A, V> {
    addr: A,
    children: [u32; 2],
    value: Option<V>,
    len: u8,
}

/// Length of a node that is not in use: no prefix has it.
const UNUSED: u8 = u8::MAX;
/// No node.
const NIL: u32 = u32::MAX;
const ROOT: u32 = 0;
/// Shortcut of which nothing is known.
const WHOLE: Shortcut = Shortcut { node: ROOT, best: NIL };
/// A waiting right-hand child for each length from 1 to 128, and the node to visit next.
const STACK: usize = 129;
/// Up to so many nodes a store doubles, beyond it grows by a quarter.
const SMALL_NODES: usize = 1 << 14;
/// Room for so many nodes is not given back. The tests of this crate give back at once.
const KEPT_NODES: usize = if cfg!(test) { 64 } else { 4096 };
/// A store moves into less room when no more than one node in so many is in use: what a move costs was then
/// paid for by seven removals a node. Of a full table a quarter took 10 to 25 ms, in one removal.
const SPARSE: usize = 8;
/// Searches side by side: enough to hide a third-level cache, few enough to stay in the first.
const LANES: usize = 16;

/// Where a prefix is: its node, those that lead to it, and the deepest of them for [`Shortcuts`].
struct Found {
    above: u32,
    parent: u32,
    at: u32,
    shortcut: Shortcut,
}

impl<A: Addr, V> Node<A, V> {
    fn new(prefix: Prefix<A>, value: Option<V>) -> Self {
        Self { addr: prefix.addr(), len: prefix.len(), children: [NIL; 2], value }
    }

    fn prefix(&self) -> Prefix<A> {
        Prefix::masked(self.addr, self.len)
    }

    /// Whether `addr` lies in this node's prefix.
    fn holds(&self, addr: A) -> bool {
        (self.addr ^ addr) & A::mask(self.len) == A::MIN
    }

    /// Records a node, which is `at`, on the path to an address.
    #[inline]
    fn pass(&self, at: u32, shortcut: &mut Shortcut) {
        if self.len <= Shortcuts::len::<A>() {
            shortcut.node = at;
            if self.value.is_some() {
                shortcut.best = at;
            }
        }
    }

    /// The child towards `addr`, if this node's prefix is not already a host's.
    fn towards(&self, addr: A) -> u32 {
        if self.len == A::BITS { NIL } else { self.children[usize::from(addr.bit(self.len))] }
    }
}

impl<A: Addr, V> Default for PrefixMap<A, V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<A: Addr, V> PrefixMap<A, V> {
    /// An empty map.
    pub fn new() -> Self {
        Self {
            nodes: vec![Node::new(Prefix::ALL, None)],
            free: NIL,
            unused: 0,
            len: 0,
            lengths: [0; 129],
            shortcuts: Shortcuts::default(),
        }
    }

    /// Prefixes held.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Prefixes of each length; the entries past the family's width are 0.
    pub fn lengths(&self) -> &[u32; 129] {
        &self.lengths
    }

    /// Memory taken, in bytes, room for growth included.
    pub fn bytes(&self) -> usize {
        self.nodes.capacity() * size_of::<Node<A, V>>() + self.shortcuts.bytes() + size_of::<Self>()
    }

    /// Removes everything and gives the memory back.
    pub fn clear(&mut self) {
        *self = Self::new();
    }

    /// The value of exactly this prefix.
    pub fn get(&self, prefix: Prefix<A>) -> Option<&V> {
        self.node(self.find(prefix, |_, _| {})?).value.as_ref()
    }

    /// The value of exactly this prefix, to change.
    pub fn get_mut(&mut self, prefix: Prefix<A>) -> Option<&mut V> {
        let mut shortcut = self.shortcut(prefix);
        let index = self.find(prefix, |at, node| node.pass(at, &mut shortcut))?;
        self.learn(prefix, shortcut);
        self.node_mut(index).value.as_mut()
    }

    /// All values, to change, in no order.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.nodes.iter_mut().filter_map(|node| node.value.as_mut())
    }

    /// Sets the value of a prefix and returns what it replaced.
    pub fn insert(&mut self, prefix: Prefix<A>, value: V) -> Option<V> {
        let mut shortcut = self.shortcut(prefix);
        let mut at = shortcut.node;
        loop {
            let node = self.node_mut(at);
            node.pass(at, &mut shortcut);
            if node.len == prefix.len() {
                let old = node.value.replace(value);
                if old.is_none() {
                    self.count(prefix, true);
                }
                self.learn(prefix, shortcut);
                return old;
            }
            let side = usize::from(prefix.addr().bit(node.len));
            let child = node.children[side];
            let below = if child == NIL { None } else { Some(self.node(child).prefix()) };
            let link = match below {
                None => self.add(Node::new(prefix, Some(value))),
                Some(below) if below.covers(prefix) => {
                    at = child;
                    continue;
                }
                Some(below) if prefix.covers(below) => {
                    let mut node = Node::new(prefix, Some(value));
                    node.children[usize::from(below.addr().bit(prefix.len()))] = child;
                    self.add(node)
                }
                Some(below) => {
                    // Neither covers the other, so they part before the end of either.
                    let fork = prefix.addr().common_len(below.addr());
                    let leaf = self.add(Node::new(prefix, Some(value)));
                    let mut node = Node::new(Prefix::masked(prefix.addr(), fork), None);
                    node.children[usize::from(prefix.addr().bit(fork))] = leaf;
                    node.children[usize::from(below.addr().bit(fork))] = child;
                    self.add(node)
                }
            };
            self.node_mut(at).children[side] = link;
            self.count(prefix, true);
            self.learn(prefix, shortcut);
            return None;
        }
    }

    /// Takes a prefix out and returns its value.
    pub fn remove(&mut self, prefix: Prefix<A>) -> Option<V> {
        let start = self.shortcut(prefix);
        let mut found = self.find_below(start, prefix)?;
        let fork = self.node(found.parent.min(start.node));
        let ends = fork.value.is_none() && self.node(found.at).children == [NIL; 2];
        if start.node != ROOT && found.parent == start.node && ends {
            // What is above has to be linked anew.
            found = self.find_below(WHOLE, prefix)?;
        }
        let Found { above, parent, at, shortcut } = found;
        self.learn(prefix, shortcut);
        let old = self.node_mut(at).value.take()?;
        self.count(prefix, false);
        self.fold(parent, at);
        // A branching without a value that lost a child has nothing left to do.
        if parent != NIL && self.node(parent).value.is_none() {
            self.fold(above, parent);
        }
        let used = self.nodes.len() - self.unused;
        if self.nodes.len() > KEPT_NODES && used * SPARSE <= self.nodes.len() {
            self.shrink();
        }
        Some(old)
    }

    /// The longest prefix that holds `addr`.
    pub fn longest_match(&self, addr: A) -> Option<(Prefix<A>, &V)> {
        let mut best = None;
        self.descend(ROOT, addr, A::BITS, &mut |node| best = Some(node));
        best.map(pair)
    }

    /// [`Self::longest_match`] of each address, in order; `found` is filled anew. Several searches run
    /// side by side, so that their cache misses overlap: in a full IPv4 table that took half the
    /// time for uniform addresses, a third for hosts in random prefixes.
    pub fn longest_matches<'a>(&'a self, addrs: &[A], found: &mut Vec<Option<(Prefix<A>, &'a V)>>) {
        found.clear();
        for addrs in addrs.chunks(LANES) {
            let (mut at, mut best) = ([ROOT; LANES], [NIL; LANES]);
            let mut going = true;
            while going {
                going = false;
                for (lane, &addr) in addrs.iter().enumerate() {
                    // NIL is past the end: a search that is over.
                    let Some(node) = self.nodes.get(at[lane] as usize) else { continue };
                    let holds = node.holds(addr);
                    if holds && node.value.is_some() {
                        best[lane] = at[lane];
                    }
                    at[lane] = if holds { node.towards(addr) } else { NIL };
                    if let Some(node) = self.nodes.get(at[lane] as usize) {
                        prefetch(node);
                    }
                    going |= at[lane] != NIL;
                }
            }
            let best = best[..addrs.len()].iter().map(|&best| self.nodes.get(best as usize));
            found.extend(best.map(|node| node.map(pair)));
        }
    }

    /// Calls `found` for each item with the value of just its prefix. Side by side, as
    /// [`Self::longest_matches`].
    pub fn get_all<T>(
        &self,
        items: &mut [T],
        prefix: impl Fn(&T) -> Prefix<A>,
        mut found: impl FnMut(&mut T, Option<&V>),
    ) {
        let mut prefixes = [Prefix::ALL; LANES];
        for items in items.chunks_mut(LANES) {
            prefixes.iter_mut().zip(&*items).for_each(|(to, item)| *to = prefix(item));
            let ends = self.find_all(&prefixes[..items.len()]);
            for (item, end) in items.iter_mut().zip(ends) {
                found(item, self.nodes.get(end as usize).and_then(|node| node.value.as_ref()));
            }
        }
    }

    /// The longest prefix that covers `prefix` and is strictly shorter.
    pub fn parent(&self, prefix: Prefix<A>) -> Option<(Prefix<A>, &V)> {
        let mut best = None;
        if prefix.len() > 0 {
            let shortcut = self.shortcut(prefix);
            best = self.nodes.get(shortcut.best as usize);
            self.descend(shortcut.node, prefix.addr(), prefix.len() - 1, &mut |node| {
                best = Some(node)
            });
        }
        best.map(pair)
    }

    /// Every prefix that covers `prefix`, itself included, shortest first.
    pub fn covering(&self, prefix: Prefix<A>) -> Covering<'_, A, V> {
        Covering::new(&self.nodes, prefix)
    }

    /// Every prefix whose first address lies in `from..=to`, by address, then length.
    pub fn walk_range(&self, from: A, to: A, visit: &mut dyn FnMut(Prefix<A>, &V)) {
        if from > to {
            return;
        }
        // Straight down to where the range parts: nothing beside the path is in it, and to look there
        // would miss the cache at every step.
        let common = from.common_len(to);
        let mut at = self.shortcut(Prefix::masked(from, common)).node;
        // Above it there may be prefixes that start where the range does.
        if self.node(at).addr == from {
            at = ROOT;
        }
        while let Some(node) = self.nodes.get(at as usize)
            && node.len < common
        {
            if !node.holds(from) {
                return;
            }
            if let Some(value) = node.value.as_ref().filter(|_| node.addr == from) {
                visit(node.prefix(), value);
            }
            at = node.towards(from);
        }
        if at == NIL {
            return;
        }
        let mut stack = [NIL; STACK];
        stack[0] = at;
        let mut height = 1;
        while height > 0 {
            height -= 1;
            let node = self.node(stack[height]);
            if node.addr > to || node.prefix().last() < from {
                continue;
            }
            if let Some(value) = node.value.as_ref().filter(|_| node.addr >= from) {
                visit(node.prefix(), value);
            }
            for child in [node.children[1], node.children[0]] {
                if child != NIL {
                    stack[height] = child;
                    height += 1;
                }
            }
        }
    }

    /// Every prefix that `prefix` covers, itself included, by address, then length.
    pub fn covered(&self, prefix: Prefix<A>) -> Iter<'_, A, V> {
        let mut at = ROOT;
        while at != NIL {
            let node = self.node(at);
            if prefix.covers(node.prefix()) {
                break;
            }
            at = if node.holds(prefix.addr()) { node.towards(prefix.addr()) } else { NIL };
        }
        Iter::new(&self.nodes, at)
    }

    /// Every prefix, by address, then length.
    pub fn iter(&self) -> Iter<'_, A, V> {
        Iter::new(&self.nodes, ROOT)
    }

    /// Every prefix that follows `prefix` in that order, which need not be held itself: continues a
    /// walk that was left there.
    pub fn iter_after(&self, prefix: Prefix<A>) -> Iter<'_, A, V> {
        Iter::after(&self.nodes, prefix)
    }

    /// What differs from here to `new`: each prefix whose value is not the same in both, by address,
    /// then length, with the value here and the value there. Reads both maps once.
    ///
    /// ```
    /// use fingerpost_lpm::{NextHopId, RouteStore};
    /// let old: RouteStore<u32> = [("10.0.0.0/8".parse()?, NextHopId(1))].into_iter().collect();
    /// let mut new = old.clone();
    /// new.insert("10.1.0.0/16".parse()?, NextHopId(2));
    /// let changes: Vec<_> = old.diff(&new).collect();
    /// assert_eq!(changes, [("10.1.0.0/16".parse()?, None, Some(&NextHopId(2)))]);
    /// # Ok::<(), fingerpost_lpm::PrefixError>(())
    /// ```
    pub fn diff<'a>(&'a self, new: &'a Self) -> Diff<'a, A, V>
    where
        V: PartialEq,
    {
        Diff::new(self.iter(), new.iter())
    }

    /// Calls `visit` for each node with a value that holds `addr`, from one of them on, to a length of
    /// `to`.
    #[inline]
    fn descend<'a>(&'a self, from: u32, addr: A, to: u8, visit: &mut dyn FnMut(&'a Node<A, V>)) {
        let mut at = from;
        while at != NIL {
            let node = self.node(at);
            if node.len > to || !node.holds(addr) {
                return;
            }
            if node.value.is_some() {
                visit(node);
            }
            at = node.towards(addr);
        }
    }

    /// A node above `prefix`, as deep as is known at once; the root if nothing is.
    #[inline]
    fn shortcut(&self, prefix: Prefix<A>) -> Shortcut {
        let shortcut = self.shortcuts.guess(prefix.addr());
        let Some(node) = self.nodes.get(shortcut.node as usize) else { return WHOLE };
        let least = prefix.len().min(Shortcuts::len::<A>() + 1);
        if node.len < least && node.holds(prefix.addr()) { shortcut } else { WHOLE }
    }

    /// Records the path to a prefix longer than the slots.
    #[inline]
    fn learn(&mut self, prefix: Prefix<A>, shortcut: Shortcut) {
        if prefix.len() > Shortcuts::len::<A>() {
            self.shortcuts.learn(prefix.addr(), shortcut);
        }
    }

    /// The node of `prefix`, looked for from one above it on.
    fn find_below(&self, start: Shortcut, prefix: Prefix<A>) -> Option<Found> {
        let (mut above, mut parent, mut at, mut shortcut) = (NIL, NIL, start.node, start);
        loop {
            let node = self.node(at);
            if node.len >= prefix.len() || !node.holds(prefix.addr()) {
                let found = Found { above, parent, at, shortcut };
                return (node.prefix() == prefix).then_some(found);
            }
            node.pass(at, &mut shortcut);
            let child = node.towards(prefix.addr());
            if child == NIL {
                return None;
            }
            (above, parent, at) = (parent, at, child);
        }
    }

    /// The node of `prefix`, and what it comes by: only if there is one, that is what is above it.
    #[inline]
    fn find(&self, prefix: Prefix<A>, mut pass: impl FnMut(u32, &Node<A, V>)) -> Option<u32> {
        let mut at = self.shortcut(prefix).node;
        while at != NIL {
            let node = self.node(at);
            pass(at, node);
            if node.len >= prefix.len() {
                return (node.prefix() == prefix).then_some(at);
            }
            // Wrong turns are found at the end: a skipped bit only leads to another prefix.
            at = node.towards(prefix.addr());
        }
        None
    }

    /// The nodes of as many prefixes as there are lanes, or fewer.
    fn find_all(&self, prefixes: &[Prefix<A>]) -> [u32; LANES] {
        let (mut at, mut ends) = ([NIL; LANES], [NIL; LANES]);
        at.iter_mut().zip(prefixes).for_each(|(at, &prefix)| *at = self.shortcut(prefix).node);
        let mut going = true;
        while going {
            going = false;
            for (lane, &prefix) in prefixes.iter().enumerate() {
                let Some(node) = self.nodes.get(at[lane] as usize) else { continue };
                if node.len >= prefix.len() {
                    ends[lane] = if node.prefix() == prefix { at[lane] } else { NIL };
                    at[lane] = NIL;
                    continue;
                }
                at[lane] = node.towards(prefix.addr());
                if let Some(node) = self.nodes.get(at[lane] as usize) {
                    prefetch(node);
                }
                going |= at[lane] != NIL;
            }
        }
        ends
    }

    /// Removes `at` from the path if it has no value and fewer than two children.
    fn fold(&mut self, parent: u32, at: u32) {
        let [left, right] = self.node(at).children;
        if parent == NIL || (left != NIL && right != NIL) {
            return;
        }
        let child = if left == NIL { right } else { left };
        let side = usize::from(self.node(parent).children[1] == at);
        self.node_mut(parent).children[side] = child;
        let gone = self.node(at).prefix();
        self.forget(gone);
        let free = self.free;
        let node = self.node_mut(at);
        (node.children, node.len) = ([free, NIL], UNUSED);
        self.free = at;
        self.unused += 1;
    }

    /// Moves the nodes in use into as much room as they need, in the order of walks.
    fn shrink(&mut self) {
        let used = self.nodes.len() - self.unused;
        // Room for the next changes, as growth leaves it.
        let mut nodes = Vec::with_capacity(used + used / 4);
        #[cfg(all(feature = "std", target_os = "linux"))]
        crate::mem::map::prefer_huge(&mut nodes);
        // Nodes to be moved, and the new parent's link to each.
        let mut stack = vec![(ROOT, NIL, 0)];
        while let Some((at, parent, side)) = stack.pop() {
            let children = self.node(at).children;
            let moved = mem::replace(self.node_mut(at), Node::new(Prefix::ALL, None));
            let to = u32::try_from(nodes.len()).expect("they were numbered by 32 bits before");
            nodes.push(Node { children: [NIL; 2], ..moved });
            if let Some(parent) = nodes.get_mut(parent as usize) {
                parent.children[side] = to;
            }
            let below = (0..2).rev().map(|side| (children[side], to, side));
            stack.extend(below.filter(|(child, _, _)| *child != NIL));
        }
        debug_assert_eq!(nodes.len(), used, "every node in use is below the root");
        (self.nodes, self.free, self.unused) = (nodes, NIL, 0);
        self.shortcuts = Shortcuts::default();
        self.shortcuts.grow(self.nodes.len());
    }

    fn add(&mut self, node: Node<A, V>) -> u32 {
        if self.free == NIL {
            let index = u32::try_from(self.nodes.len()).ok().filter(|&i| i != NIL);
            if self.nodes.len() == self.nodes.capacity() {
                self.grow();
            }
            self.nodes.push(node);
            self.shortcuts.grow(self.nodes.len());
            return index.expect("a store holds fewer than 2^32 - 1 nodes");
        }
        let index = self.free;
        let slot = mem::replace(self.node_mut(index), node);
        self.free = slot.children[0];
        self.unused -= 1;
        index
    }

    /// Room for so many more nodes, in huge pages where there are any: a change touches a handful of
    /// small ones, each of which would miss the address cache.
    fn reserve(&mut self, nodes: usize) {
        self.nodes.reserve(nodes);
        self.spread();
    }

    /// Room for more. Twice as much is what a vector takes by itself, and in a full table that can be
    /// half of all memory that nobody uses; large allocations are moved by their page tables, not copied,
    /// so that growing more often costs little.
    fn grow(&mut self) {
        let len = self.nodes.len();
        self.nodes.reserve_exact(if len < SMALL_NODES { len.max(4) } else { len / 4 });
        self.spread();
    }

    fn spread(&mut self) {
        #[cfg(all(feature = "std", target_os = "linux"))]
        crate::mem::map::prefer_huge(&mut self.nodes);
    }

    /// Forgets the shortcuts through or below this prefix, which are wrong now.
    fn forget(&mut self, prefix: Prefix<A>) {
        let Self { shortcuts, nodes, .. } = self;
        shortcuts.forget(prefix, |node| {
            let node = nodes[node as usize].prefix();
            node.covers(prefix) || prefix.covers(node)
        });
    }

    fn count(&mut self, prefix: Prefix<A>, more: bool) {
        self.forget(prefix);
        let length = &mut self.lengths[usize::from(prefix.len())];
        if more {
            self.len += 1;
            *length += 1;
        } else {
            self.len -= 1;
            *length -= 1;
        }
    }

    #[inline]
    fn node(&self, index: u32) -> &Node<A, V> {
        &self.nodes[index as usize]
    }

    #[inline]
    fn node_mut(&mut self, index: u32) -> &mut Node<A, V> {
        &mut self.nodes[index as usize]
    }
}

fn pair<A: Addr, V>(node: &Node<A, V>) -> (Prefix<A>, &V) {
    (node.prefix(), node.value.as_ref().expect("only nodes with a value are visited"))
}

impl<'a, A: Addr, V> IntoIterator for &'a PrefixMap<A, V> {
    type Item = (Prefix<A>, &'a V);
    type IntoIter = Iter<'a, A, V>;

    fn into_iter(self) -> Iter<'a, A, V> {
        self.iter()
    }
}

impl<A: Addr, V> Extend<(Prefix<A>, V)> for PrefixMap<A, V> {
    fn extend<I: IntoIterator<Item = (Prefix<A>, V)>>(&mut self, items: I) {
        for (prefix, value) in items {
            self.insert(prefix, value);
        }
    }
}

impl<A: Addr, V> FromIterator<(Prefix<A>, V)> for PrefixMap<A, V> {
    fn from_iter<I: IntoIterator<Item = (Prefix<A>, V)>>(items: I) -> Self {
        let mut map = Self::new();
        let items = items.into_iter();
        map.reserve(2 * items.size_hint().0);
        map.extend(items);
        map
    }
}

impl<A: Addr, V: fmt::Debug> fmt::Debug for PrefixMap<A, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl<A: Addr, V: Hop> Routes<A> for PrefixMap<A, V> {
    /// Reads the whole store, for the greatest next hop: milliseconds for a full table.
    fn stats(&self) -> TableStats {
        let hops = self.nodes.iter().filter_map(|node| node.value.as_ref());
        let max_next_hop = hops.map(|value| value.hop().0).max().unwrap_or(0);
        TableStats { prefixes: self.len, max_next_hop, lengths: self.lengths }
    }

    fn prefixes(&self) -> usize {
        self.len
    }

    fn best(&self, addr: A) -> Option<(Prefix<A>, NextHopId)> {
        self.longest_match(addr).map(|(prefix, value)| (prefix, value.hop()))
    }

    fn parent(&self, prefix: Prefix<A>) -> Option<(Prefix<A>, NextHopId)> {
        Self::parent(self, prefix).map(|(prefix, value)| (prefix, value.hop()))
    }

    fn walk(&self, from: A, to: A, visit: &mut dyn FnMut(Prefix<A>, NextHopId)) {
        self.walk_range(from, to, &mut |prefix, value| visit(prefix, value.hop()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum Op {
        Insert(u128, u8, u32),
        Remove(u128, u8),
        Change(u128, u8, u32),
    }

    /// Few bits at either end of the address, so that prefixes nest, meet and touch the ends, and two where
    /// shortcuts end.
    fn raw() -> impl Strategy<Value = (u128, u8)> {
        let bits = (0u128..16, 0u128..16, any::<bool>(), 0u128..4, prop_oneof![Just(16), Just(32)]);
        let addr = bits.prop_map(|(top, low, fill, middle, shortcut)| {
            let addr = top << 124 | low;
            let addr = if fill { addr | (u128::MAX >> 4 & !15) } else { addr };
            addr ^ middle << (127 - shortcut)
        });
        (addr, prop_oneof![0u8..=6, 12u8..=34, 121u8..=128, 0u8..=128])
    }

    fn ops() -> impl Strategy<Value = Vec<Op>> {
        let op = prop_oneof![
            3 => (raw(), any::<u32>()).prop_map(|((a, l), v)| Op::Insert(a, l, v)),
            2 => raw().prop_map(|(a, l)| Op::Remove(a, l)),
            1 => (raw(), any::<u32>()).prop_map(|((a, l), v)| Op::Change(a, l, v)),
        ];
        proptest::collection::vec(op, 0..120)
    }

    /// Raw bits to a prefix of the family: the ends of the space stay its ends.
    fn prefix<A: Addr>(addr: u128, len: u8) -> Prefix<A> {
        let narrow = if A::BITS == 32 { addr >> 96 | addr & 15 } else { addr };
        let len = if A::BITS == 32 { if len > 64 { len - 96.min(len) } else { len } } else { len };
        Prefix::masked(A::from_u128(narrow), len.min(A::BITS))
    }

    fn check<A: Addr>(ops: &[Op]) {
        let mut map = PrefixMap::<A, u32>::new();
        let mut model = BTreeMap::<Prefix<A>, u32>::new();
        let mut seen = vec![Prefix::ALL, Prefix::host(A::MIN), Prefix::host(A::MAX)];
        let mut before = map.clone();
        for (i, op) in ops.iter().enumerate() {
            if i == ops.len() / 2 {
                before = map.clone();
            }
            match *op {
                Op::Insert(addr, len, value) => {
                    let p = prefix(addr, len);
                    seen.push(p);
                    assert_eq!(map.insert(p, value), model.insert(p, value));
                }
                Op::Remove(addr, len) => {
                    let p = prefix(addr, len);
                    seen.push(p);
                    assert_eq!(map.remove(p), model.remove(&p));
                }
                Op::Change(addr, len, value) => {
                    let p = prefix(addr, len);
                    assert_eq!(map.get_mut(p).copied(), model.get(&p).copied());
                    if let Some(slot) = map.get_mut(p) {
                        *slot = value;
                        model.insert(p, value);
                    }
                }
            }
            check_shape(&map, &model);
        }
        let all: Vec<_> = map.iter().map(|(p, &v)| (p, v)).collect();
        assert_eq!(all, model.iter().map(|(&p, &v)| (p, v)).collect::<Vec<_>>());
        check_diff(&before, &map);
        check_diff(&map, &before);
        for &p in &seen {
            check_queries(&map, &model, p, seen[usize::from(p.len()) % seen.len()]);
        }
        // More than a lane each, in no order, some not there.
        let mut asked: Vec<_> = seen.iter().map(|&p| (p, None)).collect();
        asked.extend(seen.iter().map(|p| (Prefix::masked(p.last(), A::BITS), None)));
        map.get_all(&mut asked, |ask| ask.0, |ask, value| ask.1 = value.copied());
        assert!(asked.iter().all(|(p, value)| value.as_ref() == model.get(p)));
        for &p in &seen {
            assert_eq!(map.remove(p), model.remove(&p));
        }
        check_shape(&map, &model);
    }

    /// Carried over to a copy of the old map it makes the new one, and names nothing else.
    fn check_diff<A: Addr>(old: &PrefixMap<A, u32>, new: &PrefixMap<A, u32>) {
        let mut made = old.clone();
        let mut last = None;
        for (prefix, from, to) in old.diff(new) {
            assert!(last < Some(prefix) && from != to, "{prefix}");
            last = Some(prefix);
            let was = match to {
                Some(&value) => made.insert(prefix, value),
                None => made.remove(prefix),
            };
            assert_eq!(was.as_ref(), from, "{prefix}");
        }
        assert!(made.iter().eq(new.iter()));
        assert_eq!(made.diff(new).next(), None);
    }

    fn check_shape<A: Addr>(map: &PrefixMap<A, u32>, model: &BTreeMap<Prefix<A>, u32>) {
        assert_eq!((map.len(), map.is_empty()), (model.len(), model.is_empty()));
        let mut lengths = [0; 129];
        model.keys().for_each(|p| lengths[usize::from(p.len())] += 1);
        assert_eq!(map.lengths(), &lengths);
        let mut unused = 0;
        let mut at = map.free;
        while at != NIL {
            unused += 1;
            at = map.node(at).children[0];
        }
        assert_eq!(unused, map.unused);
        let used = map.nodes.len() - unused;
        assert!(used <= 2 * model.len() + 1, "{used} nodes for {} prefixes", model.len());
        let room = map.nodes.len();
        assert!(room <= KEPT_NODES || room < SPARSE * used, "{room} nodes, {used} used");
    }

    fn check_queries<A: Addr>(
        map: &PrefixMap<A, u32>,
        model: &BTreeMap<Prefix<A>, u32>,
        p: Prefix<A>,
        other: Prefix<A>,
    ) {
        assert_eq!(map.get(p), model.get(&p));
        let addrs = [p.first().prev(), p.first(), p.first().next(), p.last(), p.last().next()];
        let mut found = vec![None; 3];
        // More than once around, and not a multiple of the lanes.
        map.longest_matches(&addrs.repeat(4), &mut found);
        assert_eq!(found.len(), 20);
        for (i, &addr) in addrs.iter().enumerate() {
            let want = model.iter().filter(|(q, _)| q.contains(addr)).max_by_key(|(q, _)| q.len());
            let want = want.map(|(&q, v)| (q, v));
            assert_eq!(map.longest_match(addr), want, "{addr:?}");
            assert_eq!((found[i], found[15 + i]), (want, want), "{addr:?} among others");
        }
        let shorter = model.iter().filter(|(q, _)| q.covers(p) && **q != p);
        let want = shorter.max_by_key(|(q, _)| q.len()).map(|(&q, v)| (q, v));
        assert_eq!(map.parent(p), want, "parent of {p}");
        let collect = |want: &dyn Fn(Prefix<A>) -> bool| {
            model.iter().filter(|(q, _)| want(**q)).map(|(&q, &v)| (q, v)).collect::<Vec<_>>()
        };
        let mut got: Vec<_> = map.covering(p).map(|(q, &v)| (q, v)).collect();
        assert_eq!(got, collect(&|q| q.covers(p)), "covering {p}");
        got = map.covered(p).map(|(q, &v)| (q, v)).collect();
        assert_eq!(got, collect(&|q| p.covers(q)), "covered by {p}");
        got = map.iter_after(p).map(|(q, &v)| (q, v)).collect();
        assert_eq!(got, collect(&|q| q > p), "after {p}");
        let ends = [(p.first(), p.last()), (p.first(), other.last()), (p.last(), other.first())];
        for (from, to) in ends {
            got.clear();
            map.walk_range(from, to, &mut |q, &v| got.push((q, v)));
            let want = collect(&|q| from <= q.first() && q.first() <= to);
            assert_eq!(got, want, "{from:?}..={to:?}");
        }
    }

    proptest! {
        #[test]
        fn equals_a_sorted_map_v4(ops in ops()) {
            check::<u32>(&ops);
        }

        #[test]
        fn equals_a_sorted_map_v6(ops in ops()) {
            check::<u128>(&ops);
        }
    }

    #[test]
    fn a_change_knows_the_way_whatever_came_elsewhere() {
        let mut map = PrefixMap::<u128, u32>::new();
        let prefix: Prefix<u128> = "2001:db8:1::/48".parse().unwrap();
        for deep in ["2001:db8::/32", "2001:db8:1::/48", "2001:db8:2::/48"] {
            map.insert(deep.parse().unwrap(), 1);
        }
        // Short ones that share all slots.
        for n in 0..512 {
            map.insert(Prefix::masked(0x2a << 120 | n << 104, 24), 2);
        }
        assert_eq!(map.node(map.shortcut(prefix).node).prefix(), "2001:db8::/32".parse().unwrap());
        // One above it makes it unknown, the next change finds it again.
        map.insert("2001::/16".parse().unwrap(), 3);
        assert_eq!(map.shortcut(prefix), WHOLE);
        *map.get_mut(prefix).unwrap() = 4;
        assert_eq!(map.node(map.shortcut(prefix).node).prefix(), "2001:db8::/32".parse().unwrap());
    }

    #[test]
    fn nodes_are_small_and_used_again() {
        assert!(size_of::<Node<u32, NextHopId>>() <= 24);
        assert!(size_of::<Node<u128, NextHopId>>() <= 48);
        let mut map = PrefixMap::<u32, NextHopId>::new();
        for round in 0..3 {
            for i in 0..1000u32 {
                map.insert(Prefix::masked(i << 20, 24), NextHopId(i + 1));
            }
            assert_eq!(map.nodes.len(), 2000, "round {round}");
            assert_eq!(Routes::stats(&map).max_next_hop, 1000);
            for i in 0..1000u32 {
                assert_eq!(map.remove(Prefix::masked(i << 20, 24)), Some(NextHopId(i + 1)));
            }
        }
        assert_eq!(Routes::stats(&map), TableStats::default());
        map.clear();
        assert_eq!(map.nodes.len(), 1);
    }

    #[test]
    fn room_is_given_back_and_values_stay() {
        let fresh = PrefixMap::<u32, u32>::new().bytes();
        let prefix = |n: u32| Prefix::masked(n << 12, 24);
        let mut map: PrefixMap<u32, u32> = (0..100_000).map(|n| (prefix(n), n)).collect();
        let full = map.bytes();
        // In no order.
        for n in (0..100_000u32).map(|n| n * 7919 % 100_000).filter(|n| n % 100 != 0) {
            assert_eq!(map.remove(prefix(n)), Some(n));
        }
        assert!(map.bytes() < full / 4, "{} of {full}", map.bytes());
        let left = map.iter().map(|(p, &v)| (p, v));
        assert!(left.eq((0..100_000).step_by(100).map(|n| (prefix(n), n))));
        map.values_mut().for_each(|value| *value += 1);
        for n in (0..100_000).step_by(100) {
            assert_eq!(map.remove(prefix(n)), Some(n + 1));
        }
        assert!(map.bytes() < fresh + (600 << 10), "{} of {fresh}", map.bytes());
    }

    #[test]
    fn the_deepest_trie_fits_the_stack() {
        let deep: PrefixMap<u128, u32> =
            (0..=128).map(|len| (Prefix::masked(u128::MAX, len), u32::from(len))).collect();
        let mut both = deep.clone();
        for len in 1..=128u8 {
            // The sibling at each level: a waiting child at every step of the walk.
            let bit = 1u128 << (128 - u32::from(len));
            both.insert(Prefix::masked(u128::MAX ^ bit, len), 0);
            both.insert(Prefix::masked(bit, len), 0);
            both.insert(Prefix::masked(0, len), 0);
        }
        for map in [&deep, &both] {
            let mut count = 0;
            map.walk_range(0, u128::MAX, &mut |_, _| count += 1);
            assert_eq!(count, map.len());
            assert_eq!(map.iter().count(), map.len());
        }
    }
}
