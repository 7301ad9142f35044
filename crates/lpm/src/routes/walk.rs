//! Walks through a route store: in order, up from a prefix, and beside another store.
//!
//! Cost: a step of any of them touches a few nodes; nothing but a short stack is allocated.

use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Ordering;
use core::iter::Peekable;

use super::{NIL, Node, ROOT, pair};
use crate::addr::{Addr, Prefix};

/// Prefixes of a [`PrefixMap`](super::PrefixMap), by address, then length.
#[derive(Clone)]
pub struct Iter<'a, A: Addr, V> {
    nodes: &'a [Node<A, V>],
    stack: Vec<u32>,
}

impl<'a, A: Addr, V> Iter<'a, A, V> {
    /// `from` and all below it; `NIL` for none.
    pub(super) fn new(nodes: &'a [Node<A, V>], from: u32) -> Self {
        Self { nodes, stack: if from == NIL { Vec::new() } else { vec![from] } }
    }

    /// All that follows `prefix` in the order, whether it is there or not.
    pub(super) fn after(nodes: &'a [Node<A, V>], prefix: Prefix<A>) -> Self {
        let mut stack = Vec::new();
        let mut at = ROOT;
        while let Some(node) = nodes.get(at as usize) {
            if !node.prefix().covers(prefix) {
                if node.prefix() > prefix {
                    stack.push(at);
                }
                break;
            }
            let [left, right] = node.children;
            if node.len == prefix.len() {
                stack.extend([right, left].into_iter().filter(|&child| child != NIL));
                break;
            }
            if prefix.addr().bit(node.len) {
                at = right;
            } else {
                stack.extend((right != NIL).then_some(right));
                at = left;
            }
        }
        Self { nodes, stack }
    }
}

impl<'a, A: Addr, V> Iterator for Iter<'a, A, V> {
    type Item = (Prefix<A>, &'a V);

    fn next(&mut self) -> Option<Self::Item> {
        while let Some(at) = self.stack.pop() {
            let node = &self.nodes[at as usize];
            let [left, right] = node.children;
            self.stack.extend([right, left].into_iter().filter(|&child| child != NIL));
            if let Some(value) = &node.value {
                return Some((node.prefix(), value));
            }
        }
        None
    }
}

/// Prefixes that cover another one, the shortest first.
#[derive(Clone)]
pub struct Covering<'a, A: Addr, V> {
    nodes: &'a [Node<A, V>],
    at: u32,
    prefix: Prefix<A>,
}

impl<'a, A: Addr, V> Covering<'a, A, V> {
    pub(super) fn new(nodes: &'a [Node<A, V>], prefix: Prefix<A>) -> Self {
        Self { nodes, at: ROOT, prefix }
    }
}

impl<'a, A: Addr, V> Iterator for Covering<'a, A, V> {
    type Item = (Prefix<A>, &'a V);

    fn next(&mut self) -> Option<Self::Item> {
        while let Some(node) = self.nodes.get(self.at as usize) {
            let above = node.len <= self.prefix.len() && node.holds(self.prefix.addr());
            self.at = if above { node.towards(self.prefix.addr()) } else { NIL };
            if above && node.value.is_some() {
                return Some(pair(node));
            }
        }
        None
    }
}

/// Prefixes whose values differ between two maps, by address, then length: the value in the old map
/// and the value in the new one.
pub struct Diff<'a, A: Addr, V> {
    old: Peekable<Iter<'a, A, V>>,
    new: Peekable<Iter<'a, A, V>>,
}

impl<'a, A: Addr, V> Diff<'a, A, V> {
    pub(super) fn new(old: Iter<'a, A, V>, new: Iter<'a, A, V>) -> Self {
        Self { old: old.peekable(), new: new.peekable() }
    }
}

impl<'a, A: Addr, V: PartialEq> Iterator for Diff<'a, A, V> {
    type Item = (Prefix<A>, Option<&'a V>, Option<&'a V>);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let first = match (self.old.peek(), self.new.peek()) {
                (None, None) => return None,
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some((old, _)), Some((new, _))) => old.cmp(new),
            };
            let old = if first.is_le() { self.old.next() } else { None };
            let new = if first.is_ge() { self.new.next() } else { None };
            let prefix = old.or(new)?.0;
            let (old, new) = (old.map(|(_, value)| value), new.map(|(_, value)| value));
            if old != new {
                return Some((prefix, old, new));
            }
        }
    }
}
