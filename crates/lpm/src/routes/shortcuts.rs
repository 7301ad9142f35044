//! Shortcuts into a route store: for a part of the address space a node on the path to it.
//!
//! A full IPv4 table has some 20 branchings above a route, most of which a random change finds in no
//! cache. The first 16 bits of an address (32 for IPv6) name a slot with a node that the last change
//! there passed, from which the next one starts, and the longest prefix with a value that covers it.
//!
//! A node that is in use and covers an address is on the path to it, whatever the slot was written for, so
//! slots may be shared and the store tries what it finds there. What a change of a short prefix makes wrong
//! is forgotten: values that come or go, and nodes that end.
//!
//! Cost: 512 KiB for each store of more than 4096 nodes, and none below.

use alloc::vec;
use alloc::vec::Vec;

use crate::addr::{Addr, Prefix};

/// Slots; IPv4 has one for each /16.
const SLOT_BITS: u32 = 16;
/// Fewer nodes are in the caches anyway. The tests of this crate go by shortcuts at once.
const LEAST_NODES: usize = if cfg!(test) { 2 } else { 4096 };

/// More slots than this under a short prefix are forgotten by forgetting all.
const MOST_KEYS: u32 = 1 << 12;
/// No node.
const NIL: u32 = u32::MAX;

/// Shortcut to an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shortcut {
    /// A node that it comes by.
    pub(super) node: u32,
    /// The node of the longest prefix with a value there or above; `NIL` for none.
    pub(super) best: u32,
}

/// A shortcut for each slot; none while the store is small.
#[derive(Clone, Default)]
pub(super) struct Shortcuts(Vec<Shortcut>);

impl Shortcuts {
    /// The longest prefix that is kept.
    pub(super) const fn len<A: Addr>() -> u8 {
        if A::BITS == 32 { 16 } else { 32 }
    }

    /// The store has so many nodes now.
    #[inline]
    pub(super) fn grow(&mut self, nodes: usize) {
        if nodes > LEAST_NODES && self.0.is_empty() {
            self.0 = vec![UNKNOWN; 1 << SLOT_BITS];
        }
    }

    /// Where to look first for what is at `addr`; a node in use or not, or `NIL`.
    #[inline]
    pub(super) fn guess<A: Addr>(&self, addr: A) -> Shortcut {
        self.0.get(slot::<A>(key(addr))).copied().unwrap_or(UNKNOWN)
    }

    /// Records the path to `addr`.
    #[inline]
    pub(super) fn learn<A: Addr>(&mut self, addr: A, shortcut: Shortcut) {
        if let Some(known) = self.0.get_mut(slot::<A>(key(addr)))
            && *known != shortcut
        {
            *known = shortcut;
        }
    }

    /// A node as short as this came or went, or its value did: all shortcuts below it are unknown. `concerns` returns
    /// whether a node is on such a path: slots are shared, and what others know stays.
    pub(super) fn forget<A: Addr>(&mut self, prefix: Prefix<A>, concerns: impl Fn(u32) -> bool) {
        let Some(more) = Self::len::<A>().checked_sub(prefix.len()) else { return };
        if self.0.is_empty() {
            return;
        }
        match 1u32.checked_shl(more.into()) {
            Some(keys) if keys <= MOST_KEYS => {
                let first = key(prefix.addr());
                for key in first..=first + (keys - 1) {
                    let shortcut = &mut self.0[slot::<A>(key)];
                    if shortcut.node != NIL && concerns(shortcut.node) {
                        *shortcut = UNKNOWN;
                    }
                }
            }
            _ => self.0.fill(UNKNOWN),
        }
    }

    /// Memory taken.
    pub(super) fn bytes(&self) -> usize {
        size_of_val(&self.0[..])
    }
}

const UNKNOWN: Shortcut = Shortcut { node: NIL, best: NIL };

/// The first bits of an address.
#[inline]
fn key<A: Addr>(addr: A) -> u32 {
    addr.bits(0, Shortcuts::len::<A>())
}

#[inline]
fn slot<A: Addr>(key: u32) -> usize {
    if A::BITS == 32 {
        key as usize
    } else {
        // Few of the first bits of IPv6 differ: a product mixes them.
        (key.wrapping_mul(0x9e37_79b1) >> (32 - SLOT_BITS)) as usize
    }
}
