//! Destinations: distinct addresses that have a route and may be forwarded.
//!
//! `uniform` draws a route by the share of address space that it covers, `prefix` draws every route
//! alike, so that long prefixes come as often as they are routes; both add random host bits. Uniform
//! over all addresses would mostly measure drops: a third of IPv4 has no route, and nearly all of IPv6.

use std::collections::HashSet;

use fingerpost_lpm::Rng;
use fingerpost_lpm::oracle::Oracle;
use fingerpost_lpm::{Addr, NextHopId};

use crate::table::Table;

/// How destinations are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Uniform over the routed address space.
    Uniform,
    /// Uniform over the routes.
    Prefix,
}

impl Stream {
    /// All of them, in the order of the document.
    pub const ALL: &[Self] = &[Self::Uniform, Self::Prefix];

    /// What options and documents call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Uniform => "uniform",
            Self::Prefix => "prefix",
        }
    }
}

/// Draws up to `count` distinct destinations with their next hops by the oracle. Fewer when the table
/// does not hold so many.
pub(crate) fn destinations<A: Addr>(
    table: &Table<A>,
    oracle: &Oracle<A>,
    stream: Stream,
    count: usize,
    seed: u64,
) -> Vec<(A, NextHopId)> {
    let mut random = Rng::new(seed);
    let mut sums = Vec::with_capacity(table.routes.len());
    let mut sum = 0.0;
    for (prefix, _) in &table.routes {
        sum += match stream {
            Stream::Uniform => (-f64::from(prefix.len())).exp2(),
            Stream::Prefix => 1.0,
        };
        sums.push(sum);
    }
    let (mut seen, mut found) = (HashSet::new(), Vec::new());
    for _ in 0..count.saturating_mul(64) {
        if found.len() == count {
            break;
        }
        let at = random.unit() * sum;
        let at = sums.partition_point(|&s| s <= at).min(table.routes.len().saturating_sub(1));
        let Some((prefix, _)) = table.routes.get(at) else { break };
        let addr = random.host(*prefix);
        let hop = oracle.lookup(addr);
        if !hop.is_none() && forwardable(addr) && seen.insert(addr) {
            found.push((addr, hop));
        }
    }
    found
}

/// Whether a router forwards to this address at all.
pub(super) fn forwardable<A: Addr>(addr: A) -> bool {
    let bits = addr.to_u128();
    if A::FAMILY == 4 {
        let octet = bits >> 24;
        !matches!(octet, 0 | 127) && octet < 224 && bits >> 16 != 0xa9fe
    } else {
        bits >> 125 == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fingerpost_lpm::Prefix;

    #[test]
    fn streams_draw_as_they_say() {
        let route = |text: &str, hop| (text.parse::<Prefix<u32>>().unwrap(), hop);
        let routes = vec![route("10.0.0.0/8", 1), route("10.1.0.0/16", 2), route("127.0.0.0/8", 3)];
        let table = Table::new("x", routes);
        let oracle = table.oracle();
        let draw = |stream| destinations(&table, &oracle, stream, 1000, 1);
        let share = |found: &[(u32, NextHopId)]| found.iter().filter(|d| d.1.0 == 2).count();
        let (uniform, prefix) = (draw(Stream::Uniform), draw(Stream::Prefix));
        assert_eq!((uniform.len(), prefix.len()), (1000, 1000));
        assert!(share(&uniform) < 30, "1 in 256, and as much again");
        assert!((400..600).contains(&share(&prefix)));
        assert!(uniform.iter().all(|d| oracle.lookup(d.0) == d.1 && d.0 >> 24 == 10));
        assert_eq!(draw(Stream::Uniform), uniform, "by seed");
        let host = Table::new("x", vec![route("192.0.2.1/32", 1)]);
        let mut oracle = Oracle::new();
        oracle.set(host.routes[0].0, NextHopId(1));
        assert_eq!(destinations(&host, &oracle, Stream::Prefix, 10, 1).len(), 1);
    }
}
