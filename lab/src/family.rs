//! An address family as benches need it.

use fingerpost_lpm::{Algorithm, Rows};
use fingerpost_route::IpFamily;

use crate::trace::Trace;

/// IPv4 or IPv6, with its rows of the registry and its tables.
pub trait Family: Rows + IpFamily {
    /// Its addresses of a trace.
    fn trace(trace: Option<&Trace>) -> &[Self];

    /// Algorithms of this family among `names` (all where there is none), in registry order.
    fn named(names: &[String]) -> Vec<&'static Algorithm<Self>> {
        let wanted = |name| names.is_empty() || names.iter().any(|known| known == name);
        Self::rows().filter(|row| wanted(row.name)).collect()
    }
}

impl Family for u32 {
    fn trace(trace: Option<&Trace>) -> &[Self] {
        trace.map_or(&[], |trace| &trace.v4)
    }
}

impl Family for u128 {
    fn trace(trace: Option<&Trace>) -> &[Self] {
        trace.map_or(&[], |trace| &trace.v6)
    }
}
