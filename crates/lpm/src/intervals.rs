//! Cuts a part of a table into elementary intervals: the addresses at which the answer changes.
//!
//! Source: the stack sweep that every range-based scheme uses (bsearch, DXR, PlanB).
//! Cost:   one ordered walk of the part, and a stack of the prefixes that are open. N prefixes give
//!         at most 2 N + 1 intervals; neighbours with the same next hop are one.

use alloc::vec::Vec;

use crate::addr::{Addr, Prefix};
use crate::lookup::{Routes, TableStats};
use crate::next_hop_id::NextHopId;

/// A route, or none, that serves a part of the address space.
pub type Serving<A> = Option<(Prefix<A>, NextHopId)>;

/// Routes without the default route, for structures in which next hop 0 stands for it: it
/// changes by one store then.
pub(crate) struct Specific<'a, A: Addr>(pub(crate) &'a dyn Routes<A>);

impl<A: Addr> Routes<A> for Specific<'_, A> {
    fn stats(&self) -> TableStats {
        self.0.stats()
    }
    fn best(&self, addr: A) -> Option<(Prefix<A>, NextHopId)> {
        self.0.best(addr).filter(|(prefix, _)| prefix.len() > 0)
    }
    fn parent(&self, prefix: Prefix<A>) -> Option<(Prefix<A>, NextHopId)> {
        self.0.parent(prefix).filter(|(prefix, _)| prefix.len() > 0)
    }
    fn walk(&self, from: A, to: A, visit: &mut dyn FnMut(Prefix<A>, NextHopId)) {
        self.0.walk(from, to, &mut |prefix, hop| {
            if prefix.len() > 0 {
                visit(prefix, hop);
            }
        });
    }
}

/// Calls `emit` with the start and the next hop of each interval of `block`, in order. The first
/// starts at the block's first address; no two neighbours have the same next hop.
pub fn sweep<A: Addr>(
    block: Prefix<A>,
    routes: &dyn Routes<A>,
    emit: &mut dyn FnMut(A, NextHopId),
) {
    let hop_of = |route: Serving<A>| route.map_or(NextHopId::NONE, |(_, hop)| hop);
    cut(block, routes, hop_of, emit);
}

/// Sweeps like [`sweep`], but cuts wherever another route takes over, whatever its next hop: for structures
/// that keep the length of the prefix beside each answer.
pub fn sweep_routes<A: Addr>(
    block: Prefix<A>,
    routes: &dyn Routes<A>,
    emit: &mut dyn FnMut(A, Serving<A>),
) {
    cut(block, routes, |route| route, emit);
}

/// Neighbours that `label` calls the same are one.
fn cut<A: Addr, T: Copy + PartialEq>(
    block: Prefix<A>,
    routes: &dyn Routes<A>,
    label: impl Fn(Serving<A>) -> T,
    emit: &mut dyn FnMut(A, T),
) {
    let mut edges = Edges { start: block.first(), label: label(None), told: None, emit };
    let mut open: Vec<(A, T)> = Vec::with_capacity(8);
    routes.walk(block.first(), block.last(), &mut |prefix, hop| {
        let inner = label(Some((prefix, hop)));
        if open.is_empty() {
            // What covers the block from outside lasts longer than anything in it, and nobody asks for it
            // where the block is a route itself.
            let outer = if prefix == block { inner } else { label(routes.parent(block)) };
            edges.label = outer;
            open.push((A::MAX, outer));
        }
        close(&mut open, prefix.first(), &mut edges);
        open.push((prefix.last(), inner));
        edges.at(prefix.first(), inner);
    });
    if open.is_empty() {
        edges.label = label(routes.parent(block));
    }
    close(&mut open, block.last(), &mut edges);
    edges.tell();
}

/// Closes the prefixes that end before `before`. The bottom one ends with the space: it stays.
fn close<A: Addr, T: Copy + PartialEq>(
    open: &mut Vec<(A, T)>,
    before: A,
    edges: &mut Edges<'_, A, T>,
) {
    while let [.., (_, outer), (last, _)] = open[..]
        && last < before
    {
        open.pop();
        // `last` is below another address, so this does not wrap.
        edges.at(last.next(), outer);
    }
}

/// Holds the newest edge back, because a longer prefix may start (or a shorter one end) at the same
/// address and overrule it; by then it may equal its left neighbour.
struct Edges<'a, A, T> {
    start: A,
    label: T,
    told: Option<T>,
    emit: &'a mut dyn FnMut(A, T),
}

impl<A: Addr, T: Copy + PartialEq> Edges<'_, A, T> {
    fn at(&mut self, start: A, label: T) {
        if start != self.start {
            self.tell();
            self.start = start;
        }
        self.label = label;
    }

    fn tell(&mut self) {
        if self.told != Some(self.label) {
            self.told = Some(self.label);
            (self.emit)(self.start, self.label);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::routes::RouteStore;

    fn cut(routes: &[(&str, u32)], block: &str) -> Vec<(u32, u32)> {
        let routes: RouteStore<u32> =
            routes.iter().map(|&(p, hop)| (p.parse().unwrap(), NextHopId(hop))).collect();
        let mut all = Vec::new();
        sweep(block.parse().unwrap(), &routes, &mut |start, hop| all.push((start, hop.0)));
        all
    }

    #[test]
    fn empty_and_default_only() {
        assert_eq!(cut(&[], "0.0.0.0/0"), [(0, 0)]);
        assert_eq!(cut(&[("0.0.0.0/0", 7)], "0.0.0.0/0"), [(0, 7)]);
        assert_eq!(cut(&[("0.0.0.0/0", 7)], "10.0.0.0/8"), [(0x0a00_0000, 7)]);
    }

    #[test]
    fn ends_of_the_space() {
        let routes = [("0.0.0.0/32", 1), ("255.255.255.255/32", 2), ("255.255.255.0/24", 3)];
        let want = [(0, 1), (1, 0), (0xffff_ff00, 3), (u32::MAX, 2)];
        assert_eq!(cut(&routes, "0.0.0.0/0"), want);
    }

    #[test]
    fn several_end_at_once() {
        let routes = [("10.0.0.0/8", 1), ("10.128.0.0/9", 2), ("10.255.255.255/32", 3)];
        let want = [(0, 0), (0x0a00_0000, 1), (0x0a80_0000, 2), (0x0aff_ffff, 3), (0x0b00_0000, 0)];
        assert_eq!(cut(&routes, "0.0.0.0/0"), want);
    }

    #[test]
    fn an_overruled_edge_merges_to_the_left() {
        // 10.128/9 and the end of 10/8 meet at 11.0.0.0; 11/8 continues with the hop of 10.128/9.
        let routes = [("10.0.0.0/8", 1), ("10.128.0.0/9", 2), ("11.0.0.0/8", 2)];
        let want = [(0, 0), (0x0a00_0000, 1), (0x0a80_0000, 2), (0x0c00_0000, 0)];
        assert_eq!(cut(&routes, "0.0.0.0/0"), want);
        // A child with its parent's hop is no edge at all.
        assert_eq!(cut(&[("0.0.0.0/0", 1), ("9.0.0.0/8", 1)], "0.0.0.0/0"), [(0, 1)]);
    }

    #[test]
    fn a_block_sees_what_covers_it() {
        let routes = [("10.0.0.0/7", 9), ("10.0.0.0/8", 1), ("10.1.2.0/24", 2), ("10.1.3.0/24", 1)];
        let want = [(0x0a01_0000, 1), (0x0a01_0200, 2), (0x0a01_0300, 1)];
        assert_eq!(cut(&routes, "10.1.0.0/16"), want);
        assert_eq!(cut(&routes, "10.0.0.0/16"), [(0x0a00_0000, 1)]);
        assert_eq!(cut(&routes, "11.0.0.0/8"), [(0x0b00_0000, 9)]);
    }

    #[test]
    fn routes_of_one_next_hop_are_told_apart() {
        let routes: RouteStore<u32> = [("10.0.0.0/8", 1), ("10.0.0.0/9", 1), ("10.128.0.0/9", 1)]
            .map(|(p, hop)| (p.parse().unwrap(), NextHopId(hop)))
            .into_iter()
            .collect();
        let mut all = Vec::new();
        sweep_routes(Prefix::ALL, &routes, &mut |start, route| {
            all.push((start, route.map_or(0, |(prefix, _)| prefix.len())));
        });
        assert_eq!(all, [(0, 0), (0x0a00_0000, 9), (0x0a80_0000, 9), (0x0b00_0000, 0)]);
    }
}
