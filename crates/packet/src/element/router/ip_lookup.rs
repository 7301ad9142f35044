//! The lookup: destinations of a batch in, next hops of a batch out.
//!
//! Addresses are gathered in one array, so that the algorithm can overlap its cache misses; the
//! answers go into the packets' metadata. What they mean is for the next hop to find out. Which route
//! table is used depends on the ingress port of a packet; with more than one table a batch is
//! looked up in as many parts as it has tables.
//!
//! Cost: the algorithm's, and two short loops; with further tables another two a table of the batch.

use fingerpost_lpm::{Addr, NextHopId};
use fingerpost_route::{Forwarding, IpFamily};

use crate::frame::wire::{ETHER_BYTES, IP4_BYTES, IP6_BYTES, Ip4, Ip6};
use crate::frame::{BATCH, Batch, Hop};
use crate::graph::{Context, Element, ElementClass, Made};
use crate::language::{ClassSpec, Role};

/// The headers of a packet behind an Ethernet header.
const FRONT4: usize = ETHER_BYTES + IP4_BYTES;
const FRONT6: usize = ETHER_BYTES + IP6_BYTES;

pub(crate) const CLASS4: ElementClass = ElementClass {
    spec: ClassSpec::new("IP4FIBLookup", "1/1", "h/h", "x/x").role(Role::Lookup),
    summary: "finds the next hops of IPv4 destinations",
    configure: |setup| {
        setup.args.finish()?;
        Ok(Made::new(|_| Ip4Lookup(Arrays::new())))
    },
};

pub(crate) const CLASS6: ElementClass = ElementClass {
    spec: ClassSpec::new("IP6FIBLookup", "1/1", "h/h", "x/x").role(Role::Lookup),
    summary: "finds the next hops of IPv6 destinations",
    configure: |setup| {
        setup.args.finish()?;
        Ok(Made::new(|_| Ip6Lookup(Arrays::new())))
    },
};

/// Addresses and answers of one batch, and the places of those of one table of several.
struct Arrays<A> {
    addrs: Box<[A; BATCH]>,
    hops: Box<[NextHopId; BATCH]>,
    places: Vec<usize>,
}

impl<A: Addr + Default> Arrays<A> {
    fn new() -> Self {
        Self {
            addrs: Box::new([A::default(); BATCH]),
            hops: Box::new([NextHopId::NONE; BATCH]),
            places: Vec::with_capacity(BATCH),
        }
    }

    /// `addr` gives the address of a frame from where its network header begins. A frame too short to have a destination
    /// gets some answer: the next hop drops it.
    #[inline]
    fn run(
        &mut self,
        batch: &mut Batch,
        forwarding: &Forwarding,
        addr: impl Fn(&[u8], usize) -> Option<A>,
    ) where
        A: IpFamily,
    {
        if forwarding.ports.many {
            return self.run_tables(batch, forwarding, addr);
        }
        let len = batch.len();
        batch.each(|i, one| {
            self.addrs[i] = addr(one.frame, one.meta.network.into()).unwrap_or_default();
        });
        A::table(forwarding, 0).lookup_batch(&self.addrs[..len], &mut self.hops[..len]);
        for (meta, hop) in batch.meta_mut().iter_mut().zip(self.hops.iter()) {
            meta.hop = Hop::of_next_hop(*hop);
        }
    }

    /// The same, table by table in the order of their numbers, and one by one what the first table has no route for.
    #[cold]
    fn run_tables(
        &mut self,
        batch: &mut Batch,
        forwarding: &Forwarding,
        addr: impl Fn(&[u8], usize) -> Option<A>,
    ) where
        A: IpFamily,
    {
        let fibs = |batch: &Batch, i: usize| forwarding.ports.fibs(batch.meta()[i].port, A::INDEX);
        let mut next = (0..batch.len()).map(|i| fibs(batch, i)[0]).min();
        while let Some(table) = next.take() {
            self.places.clear();
            for i in 0..batch.len() {
                let this = fibs(batch, i)[0];
                if this == table {
                    let at = usize::from(batch.meta()[i].network);
                    self.addrs[self.places.len()] = addr(batch.bytes(i), at).unwrap_or_default();
                    self.places.push(i);
                } else if this > table {
                    next = Some(next.map_or(this, |n: u16| n.min(this)));
                }
            }
            let len = self.places.len();
            A::table(forwarding, table).lookup_batch(&self.addrs[..len], &mut self.hops[..len]);
            for (at, &i) in self.places.iter().enumerate() {
                let (mut hop, port) = (self.hops[at], batch.meta()[i].port);
                if fibs(batch, i).len() > 1 && !forwarding.is_found(hop) {
                    hop = forwarding.lookup(port, self.addrs[at]);
                }
                batch.meta_mut()[i].hop = Hop::of_next_hop(hop);
            }
        }
    }
}

struct Ip4Lookup(Arrays<u32>);

impl Element for Ip4Lookup {
    fn process(&mut self, _: u16, batch: &mut Batch, cx: &mut Context<'_>) {
        let addr = |frame: &[u8], at: usize| match frame.first_chunk::<FRONT4>() {
            // Nearly always, and faster: places are known when it is compiled.
            Some(front) if at == ETHER_BYTES => Some(Ip4::at(front, ETHER_BYTES)?.dst()),
            _ => Some(Ip4::at(frame, at)?.dst()),
        };
        self.0.run(batch, cx.forwarding, addr);
    }
}

struct Ip6Lookup(Arrays<u128>);

impl Element for Ip6Lookup {
    fn process(&mut self, _: u16, batch: &mut Batch, cx: &mut Context<'_>) {
        let addr = |frame: &[u8], at: usize| match frame.first_chunk::<FRONT6>() {
            Some(front) if at == ETHER_BYTES => Some(Ip6::at(front, ETHER_BYTES)?.dst()),
            _ => Some(Ip6::at(frame, at)?.dst()),
        };
        self.0.run(batch, cx.forwarding, addr);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Bench, World, frame_v4, frame_v6};
    use fingerpost_route::{FibLookup, ForwardingAction};

    #[test]
    fn each_packet_gets_the_hop_of_its_destination() {
        let mut world = World::new();
        let hops: Vec<_> = (0..4).map(|_| world.hop(ForwardingAction::Local)).collect();
        world.route("192.0.2.0/24", hops[0]);
        world.route("192.0.2.128/25", hops[1]);
        world.route("2001:db8:5::/48", hops[2]);
        world.route("2001:db8:5::7/128", hops[3]);
        let mut bench = Bench::new(&world);
        let dsts = ["192.0.2.1", "192.0.2.200", "198.51.100.1", "192.0.2.127"];
        let frames = dsts.map(|dst| frame_v4("10.0.0.9", dst, 64, 17, &[]));
        let mut batch = crate::testing::batch(&bench.pool, 0, frames.iter().map(|f| &f[..]));
        batch.meta_mut().iter_mut().for_each(|m| m.network = 14);
        crate::testing::element(&CLASS4, "").process(0, &mut batch, &mut bench.context());
        let seen: Vec<_> = batch.meta().iter().map(|m| m.hop.next_hop()).collect();
        assert_eq!(seen, [hops[0], hops[1], NextHopId::NONE, hops[0]]);

        let dsts = ["2001:db8:5::7", "2001:db8:6::1", "2001:db8:5::8"];
        let frames = dsts.map(|dst| frame_v6("2001:db8::9", dst, 64, 17, &[]));
        let mut batch = crate::testing::batch(&bench.pool, 0, frames.iter().map(|f| &f[..]));
        batch.meta_mut().iter_mut().for_each(|m| m.network = 14);
        crate::testing::element(&CLASS6, "").process(0, &mut batch, &mut bench.context());
        let seen: Vec<_> = batch.meta().iter().map(|m| m.hop.next_hop()).collect();
        assert_eq!(seen, [hops[3], NextHopId::NONE, hops[2]]);
    }
    #[test]
    fn each_port_has_its_table() {
        let (mut main, mut other) = (World::new(), World::new());
        let hops: Vec<_> = (0..3).map(|_| main.hop(ForwardingAction::Local)).collect();
        main.route("192.0.2.0/24", hops[0]);
        main.route("198.51.100.0/24", hops[1]);
        other.route("192.0.2.0/24", hops[2]);
        main.ports.ports[1].as_mut().unwrap().fib = 1;
        main.ports.many = true;
        let mut bench = Bench::new(&main);
        let tables = other.forwarding();
        bench.forwarding.others =
            [FibLookup { table: 7.into(), v4: tables.v4.clone(), v6: tables.v6.clone() }].into();
        let dsts = ["192.0.2.1", "192.0.2.1", "198.51.100.1", "198.51.100.1"];
        let frames = dsts.map(|dst| frame_v4("10.0.0.9", dst, 64, 17, &[]));
        let mut batch = crate::testing::batch(&bench.pool, 0, frames.iter().map(|f| &f[..]));
        for (i, meta) in batch.meta_mut().iter_mut().enumerate() {
            (meta.network, meta.port) = (14, u16::try_from(i % 2).unwrap());
        }
        crate::testing::element(&CLASS4, "").process(0, &mut batch, &mut bench.context());
        let seen: Vec<_> = batch.meta().iter().map(|m| m.hop.next_hop()).collect();
        assert_eq!(seen, [hops[0], hops[2], hops[1], NextHopId::NONE]);
    }

    #[test]
    fn what_a_table_lacks_is_in_the_next() {
        let (mut main, mut other) = (World::new(), World::new());
        let hops: Vec<_> = (0..2).map(|_| main.hop(ForwardingAction::Local)).collect();
        let throw = main.hop(ForwardingAction::NoRoute);
        main.route("192.0.2.0/24", hops[0]);
        main.route("203.0.113.0/24", hops[0]);
        other.route("192.0.2.0/25", hops[1]);
        // Shorter than what it has is no matter: this table sends the packets on.
        other.route("203.0.113.0/28", throw);
        main.ports.ports[0].as_mut().unwrap().fibs[0] = vec![1, 0];
        main.ports.many = true;
        let mut bench = Bench::new(&main);
        let tables = other.forwarding();
        bench.forwarding.others =
            [FibLookup { table: 7.into(), v4: tables.v4.clone(), v6: tables.v6.clone() }].into();
        let dsts = ["192.0.2.1", "192.0.2.200", "203.0.113.1", "198.51.100.1"];
        for (port, want) in [
            (0, [hops[1], hops[0], hops[0], NextHopId::NONE]),
            (1, [hops[0], hops[0], hops[0], NextHopId::NONE]),
        ] {
            let frames = dsts.map(|dst| frame_v4("10.0.0.9", dst, 64, 17, &[]));
            let mut batch = crate::testing::batch(&bench.pool, 0, frames.iter().map(|f| &f[..]));
            batch.meta_mut().iter_mut().for_each(|meta| (meta.network, meta.port) = (14, port));
            crate::testing::element(&CLASS4, "").process(0, &mut batch, &mut bench.context());
            let seen: Vec<_> = batch.meta().iter().map(|meta| meta.hop.next_hop()).collect();
            assert_eq!(seen, want);
        }
    }
}
