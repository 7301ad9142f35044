//! An address family as benches need it.

use fingerpost_lpm::{Addr, Algorithm};

use crate::trace::Trace;

/// IPv4 or IPv6, with its rows of the registry.
pub trait Family: Addr {
    /// Its algorithms, in registry order.
    fn rows() -> Vec<&'static Algorithm<Self>>;

    /// Its addresses of a trace.
    fn trace(trace: Option<&Trace>) -> &[Self];

    /// Algorithms of this family among `names` (all where there is none), in registry order.
    fn named(names: &[String]) -> Vec<&'static Algorithm<Self>> {
        let mut rows = Self::rows();
        rows.retain(|row| names.is_empty() || names.iter().any(|name| name == row.name));
        rows
    }
}

impl Family for u32 {
    fn rows() -> Vec<&'static Algorithm<Self>> {
        fingerpost_lpm::v4().collect()
    }
    fn trace(trace: Option<&Trace>) -> &[Self] {
        trace.map_or(&[], |trace| &trace.v4)
    }
}

impl Family for u128 {
    fn rows() -> Vec<&'static Algorithm<Self>> {
        fingerpost_lpm::v6().collect()
    }
    fn trace(trace: Option<&Trace>) -> &[Self] {
        trace.map_or(&[], |trace| &trace.v6)
    }
}
