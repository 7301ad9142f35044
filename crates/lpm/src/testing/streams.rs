//! Addresses to look up: uniform, in announced prefixes, and at the edges of prefixes.

use alloc::vec::Vec;

use super::Rng;
use crate::addr::{Addr, Prefix};

/// At, before and after both ends of a prefix. Wraps at the ends of the space, which only makes it
/// probe the other end.
pub fn probes<A: Addr>(prefix: Prefix<A>) -> [A; 6] {
    let (first, last) = (prefix.first(), prefix.last());
    [first.prev(), first, first.next(), last.prev(), last, last.next()]
}

/// Which addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Uniform over the space that is routed: all of IPv4, 2000::/3 of IPv6.
    Uniform,
    /// Any address at all; for IPv6 most of them lie outside what is routed.
    Anywhere,
    /// A random host in a random prefix: what real traffic is nearer to.
    Announced,
    /// Addresses beside or at an end of a random prefix.
    Edges,
}

/// An endless stream of addresses.
#[derive(Clone, Debug)]
pub struct Addresses<'a, A: Addr> {
    rng: Rng,
    stream: Stream,
    prefixes: &'a [Prefix<A>],
}

impl<'a, A: Addr> Addresses<'a, A> {
    /// `prefixes` may be empty; then all streams are uniform.
    pub fn new(stream: Stream, prefixes: &'a [Prefix<A>], seed: u64) -> Self {
        Self { rng: Rng::new(seed), stream, prefixes }
    }

    /// The next address.
    pub fn draw(&mut self) -> A {
        let addr: A = self.rng.addr();
        let among = self.prefixes.len();
        match self.stream {
            Stream::Announced if among > 0 => {
                let prefix = self.prefixes[self.rng.below(among)];
                prefix.addr() | addr & !A::mask(prefix.len())
            }
            Stream::Edges if among > 0 => {
                let edges = probes(self.prefixes[self.rng.below(among)]);
                edges[self.rng.below(edges.len())]
            }
            Stream::Anywhere => addr,
            _ if A::BITS == 32 => addr,
            // 2000::/3, the global unicast space that is in use.
            _ => addr & !A::mask(3) | (A::mask(3) ^ A::mask(2)),
        }
    }

    /// The next `count` addresses.
    pub fn take(&mut self, count: usize) -> Vec<A> {
        (0..count).map(|_| self.draw()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_stay_where_they_should() {
        let prefixes: [Prefix<u128>; 2] =
            ["2001:db8::/32".parse().unwrap(), "fe80::1/128".parse().unwrap()];
        let draw = |stream| Addresses::new(stream, &prefixes, 1).take(1000);
        assert!(draw(Stream::Uniform).iter().all(|a| a >> 125 == 1));
        assert!(draw(Stream::Anywhere).iter().any(|a| a >> 125 == 7));
        let announced = draw(Stream::Announced);
        assert!(announced.iter().all(|&a| prefixes.iter().any(|p| p.contains(a))));
        assert!(prefixes.iter().all(|p| announced.iter().any(|&a| p.contains(a))));
        let edges = draw(Stream::Edges);
        assert!(prefixes.iter().flat_map(|&p| probes(p)).all(|p| edges.contains(&p)));
        let host = probes(Prefix::host(u128::MAX));
        assert_eq!(host[2], 0);
        assert_eq!(host[5], 0);
    }
}
