//! The lookup: destinations of a batch in, next hops of a batch out.
//!
//! Addresses are gathered in one array, so that the algorithm can overlap its cache misses; the
//! answers go into the packets' metadata. What they mean is for the next hop to find out.
//!
//! Cost: the algorithm's, and two short loops.

use fingerpost_lpm::NextHopId;

use super::ether_input::AHEAD;
use super::{Context, Element, ElementClass};
use crate::buf::{BATCH, Batch};
use crate::wire::{Ip4, Ip6};

pub(crate) const CLASS4: ElementClass = ElementClass {
    name: "ip4_lookup",
    summary: "finds the next hops of IPv4 destinations",
    inputs: &["in"],
    outputs: &["out"],
    make: || Box::new(Ip4Lookup(Arrays::new())),
};

pub(crate) const CLASS6: ElementClass = ElementClass {
    name: "ip6_lookup",
    summary: "finds the next hops of IPv6 destinations",
    inputs: &["in"],
    outputs: &["out"],
    make: || Box::new(Ip6Lookup(Arrays::new())),
};

/// Questions and answers of one batch.
struct Arrays<A> {
    addrs: Box<[A; BATCH]>,
    hops: Box<[NextHopId; BATCH]>,
}

impl<A: Copy + Default> Arrays<A> {
    fn new() -> Self {
        Self { addrs: Box::new([A::default(); BATCH]), hops: Box::new([NextHopId::NONE; BATCH]) }
    }

    /// `addr` is asked for a frame and where its network header begins. A frame too short to have a
    /// destination gets some answer: the next hop drops it.
    #[inline]
    fn run(
        &mut self,
        batch: &mut Batch,
        addr: impl Fn(&[u8], usize) -> Option<A>,
        lookup: impl FnOnce(&[A], &mut [NextHopId]),
    ) {
        let len = batch.len();
        for i in 0..len {
            batch.prefetch(i + AHEAD);
            let at = usize::from(batch.meta()[i].network);
            self.addrs[i] = addr(batch.bytes(i), at).unwrap_or_default();
        }
        lookup(&self.addrs[..len], &mut self.hops[..len]);
        for (meta, hop) in batch.meta_mut().iter_mut().zip(self.hops.iter()) {
            meta.hop = *hop;
        }
    }
}

struct Ip4Lookup(Arrays<u32>);

impl Element for Ip4Lookup {
    fn process(&mut self, _: u16, batch: &mut Batch, cx: &mut Context<'_>) {
        let addr = |frame: &[u8], at: usize| Some(Ip4::at(frame, at)?.dst());
        self.0.run(batch, addr, |addrs, hops| cx.forwarding.v4.lookup_batch(addrs, hops));
    }
}

struct Ip6Lookup(Arrays<u128>);

impl Element for Ip6Lookup {
    fn process(&mut self, _: u16, batch: &mut Batch, cx: &mut Context<'_>) {
        let addr = |frame: &[u8], at: usize| Some(Ip6::at(frame, at)?.dst());
        self.0.run(batch, addr, |addrs, hops| cx.forwarding.v6.lookup_batch(addrs, hops));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Bench, World, frame_v4, frame_v6};
    use fingerpost_route::Leg;

    #[test]
    fn each_packet_gets_the_hop_of_its_destination() {
        let mut world = World::new();
        let hops: Vec<_> = (0..4).map(|_| world.hop(Leg::Local)).collect();
        world.route("192.0.2.0/24", hops[0]);
        world.route("192.0.2.128/25", hops[1]);
        world.route("2001:db8:5::/48", hops[2]);
        world.route("2001:db8:5::7/128", hops[3]);
        let mut bench = Bench::new(&world);
        let dsts = ["192.0.2.1", "192.0.2.200", "198.51.100.1", "192.0.2.127"];
        let frames = dsts.map(|dst| frame_v4("10.0.0.9", dst, 64, 17, &[]));
        let mut batch = crate::testing::batch(&bench.pool, 0, frames.iter().map(|f| &f[..]));
        batch.meta_mut().iter_mut().for_each(|m| m.network = 14);
        (CLASS4.make)().process(0, &mut batch, &mut bench.context());
        let seen: Vec<_> = batch.meta().iter().map(|m| m.hop).collect();
        assert_eq!(seen, [hops[0], hops[1], NextHopId::NONE, hops[0]]);

        let dsts = ["2001:db8:5::7", "2001:db8:6::1", "2001:db8:5::8"];
        let frames = dsts.map(|dst| frame_v6("2001:db8::9", dst, 64, 17, &[]));
        let mut batch = crate::testing::batch(&bench.pool, 0, frames.iter().map(|f| &f[..]));
        batch.meta_mut().iter_mut().for_each(|m| m.network = 14);
        (CLASS6.make)().process(0, &mut batch, &mut bench.context());
        let seen: Vec<_> = batch.meta().iter().map(|m| m.hop).collect();
        assert_eq!(seen, [hops[3], NextHopId::NONE, hops[2]]);
    }
}
