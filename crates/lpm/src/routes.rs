//! The route store that all builders read: exact, covering and ordered access.

use core::marker::PhantomData;

use crate::addr::Addr;
use crate::lookup::NextHopId;

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

/// Prefixes with a value each.
pub struct PrefixMap<A: Addr, V> {
    marker: PhantomData<(A, V)>,
}

/// The plain store: prefix to next hop.
pub type RouteStore<A> = PrefixMap<A, NextHopId>;
