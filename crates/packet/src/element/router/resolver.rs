//! Keeps packets whose next hop has no link address yet, and requests its resolution.
//!
//! Packets wait by key: an adjacency, or a host on the link of a port with the ingress port of its packets. Their
//! number is bounded, for a key and of all; more are dropped, or take the place of others. The control side gets a
//! resolve request at once and then at most once a second a key (RFC 1122 2.3.2.1). When the address is known, packets
//! go back to the lookup, since their route may have changed meanwhile; when it is known that the host is silent, or
//! after 3 seconds, each goes where an ICMP error is made of it (RFC 1812 3.3.2). A silent neighbor is resolved again
//! as long as packets come for it.
//!
//! Cost: a hash table, for packets that have to wait anyway; nothing is allocated after the start. A
//! round looks at [`TURNS`] keys, in turn.

use std::net::IpAddr;

use fingerpost_lpm::Addr;
use fingerpost_route::{ForwardingAction, ResolveRequest};

use crate::element::support::waiting::{PATIENCE_NS, QUERY_NS, Share, Waiting};
use crate::frame::wire::{Ether, Ip4, Ip6, ether};
use crate::frame::{Batch, Cause, DropReason, flow};
use crate::graph::{Context, Element, ElementClass, Held, Inputs, Made};
use crate::language::ClassSpec;

pub(crate) const CLASS: ElementClass = ElementClass {
    spec: ClassSpec::new("Resolver", "1/4", "h/h", "x/x")
        .outputs(&["ip4", "ip6", "error4", "error6"]),
    summary: "keeps packets until the next hop's link address is known",
    configure: |setup| {
        setup.args.finish()?;
        Ok(Made::new(|_| Resolver::new()).polled())
    },
};

/// Added to the output of a family for packets that cannot be forwarded.
const ERROR: u16 = 2;

/// Packets that a worker keeps.
const PACKETS: u16 = 1024;
/// Keys looked at in a round.
const TURNS: usize = 64;

struct Resolver {
    waiting: Waiting<ResolveRequest>,
}

/// State of a resolution.
enum State {
    Waiting,
    Ready,
    Failed,
}

impl Resolver {
    fn new() -> Self {
        Self { waiting: Waiting::new(PACKETS) }
    }
}

/// Family of a frame's Ethernet type: 0 for IPv4, 1 for IPv6.
fn family(frame: &[u8]) -> u16 {
    u16::from(Ether::of(frame).is_some_and(|ether| ether.kind() == ether::TYPE_IP6))
}

/// What a packet waits for.
fn key(
    action: ForwardingAction,
    frame: &[u8],
    network: usize,
    ingress: u16,
) -> Option<(ResolveRequest, Share)> {
    match action {
        ForwardingAction::Adjacency(index) => {
            Some((ResolveRequest::Adjacency(index), Share::Gateway))
        }
        ForwardingAction::Glean(port) => {
            let addr = if family(frame) == 0 {
                Ip4::at(frame, network)?.dst().to_ip()
            } else {
                Ip6::at(frame, network)?.dst().to_ip()
            };
            Some((ResolveRequest::Neighbor { port, addr, ingress }, Share::Host(ingress)))
        }
        _ => None,
    }
}

/// State of the resolution that a packet waits for, whose network header begins at `network`.
fn state(key: ResolveRequest, frame: &[u8], network: usize, cx: &Context<'_>) -> State {
    let forwarding = cx.forwarding;
    match key {
        ResolveRequest::Adjacency(index) => {
            let adjacency = forwarding.hops.adjacency(index);
            if adjacency.resolved() {
                State::Ready
            } else if adjacency.failed() {
                State::Failed
            } else {
                State::Waiting
            }
        }
        ResolveRequest::Neighbor { addr, ingress, .. } => {
            // A known neighbor is in each table that has the prefix on its link. A group on the way there has the member that
            // the packet's flow takes, which may be the only one that leads to the neighbor.
            let (seed, packet) = (cx.flow_seed, frame.get(network..).unwrap_or(&[]));
            let found = match addr {
                IpAddr::V4(addr) => {
                    let hash = || flow::of_ip4(seed, packet);
                    forwarding.lookups(ingress, addr.to_bits(), hash).last()
                }
                IpAddr::V6(addr) => {
                    let hash = || flow::of_ip6(seed, packet);
                    forwarding.lookups(ingress, addr.to_bits(), hash).last()
                }
            };
            // Whatever else the route says now, the way from the lookup on does it.
            match found.map(|found| found.action) {
                Some(ForwardingAction::Glean(_)) => State::Waiting,
                _ => State::Ready,
            }
        }
    }
}

impl Element for Resolver {
    fn process(&mut self, _: u16, batch: &mut Batch, cx: &mut Context<'_>) {
        for i in 0..batch.len() {
            let meta = batch.meta()[i];
            let action = ForwardingAction::decode(meta.hop.action_word());
            let waits_for = key(action, batch.bytes(i), meta.network.into(), meta.port);
            let Some((key, share)) = waits_for else {
                batch.discard(i, DropReason::Unresolved);
                continue;
            };
            let now_ns = cx.now_ns;
            let drop = &mut |packet| cx.drop_packet(packet, DropReason::HoldFull);
            let Some((wait, due)) = self.waiting.wait(key, share, now_ns, drop) else {
                batch.discard(i, DropReason::HoldFull);
                continue;
            };
            let empty = wait.is_empty();
            if due {
                cx.resolve(key);
            }
            let drop = &mut |packet| cx.drop_packet(packet, DropReason::HoldFull);
            if !self.waiting.has_room(key, drop) {
                batch.discard(i, DropReason::HoldFull);
                continue;
            }
            let network = usize::from(meta.network);
            if empty && matches!(state(key, batch.bytes(i), network, cx), State::Failed) {
                batch.meta_mut()[i].note = Cause::HostUnreachable.note();
                let output = ERROR + family(batch.bytes(i));
                batch.output(i, output);
                continue;
            }
            let packet = batch.take(i);
            self.waiting.keep(key, packet);
        }
    }

    fn poll(&mut self, _: &mut Batch, _: &mut dyn Inputs, cx: &mut Context<'_>) {
        for _ in 0..self.waiting.keys().min(TURNS) {
            let Some((key, wait, first)) = self.waiting.turn_with_first() else { return };
            let Some(first) = first else {
                if cx.now_ns.saturating_sub(wait.queried_ns) >= QUERY_NS {
                    self.waiting.forget();
                }
                continue;
            };
            let mut state = state(key, first.bytes(), first.meta.network.into(), cx);
            if matches!(state, State::Waiting) {
                if cx.now_ns.saturating_sub(wait.since_ns) >= PATIENCE_NS {
                    state = State::Failed;
                } else if wait.is_due(cx.now_ns) {
                    cx.resolve(key);
                }
            }
            match state {
                State::Waiting => {}
                State::Ready => {
                    self.waiting.release(key, |packet| cx.emit(family(packet.bytes()), packet));
                }
                State::Failed => self.waiting.release(key, |mut packet| {
                    packet.meta.note = Cause::HostUnreachable.note();
                    cx.emit(ERROR + family(packet.bytes()), packet);
                }),
            }
        }
    }

    fn held(&self) -> Held {
        self.waiting.held()
    }

    fn stats(&self, visit: &mut dyn FnMut(&'static str, u64)) {
        visit("packets", self.waiting.held().total() as u64);
        visit("keys", self.waiting.keys() as u64);
    }

    fn stop(&mut self, cx: &mut Context<'_>) {
        self.waiting.stop(|packet| cx.drop_packet(packet, DropReason::Shutdown));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::element::support::waiting::{KEYS, PER_KEY};
    use crate::frame::{Decision, FLAG_GENERATED, Hop};
    use crate::testing::{Bench, NoInputs, World, frame_v4, frame_v6};
    use fingerpost_route::{FibLookup, RouteMtu};

    const SECOND: u64 = 1_000_000_000;

    fn frame(n: u8) -> Vec<u8> {
        frame_v4("10.0.0.9", &format!("10.0.1.{n}"), 64, 17, &[n])
    }

    fn put(
        bench: &mut Bench,
        hold: &mut Resolver,
        action: ForwardingAction,
        frame: &[u8],
    ) -> Decision {
        let mut batch = crate::testing::batch(&bench.pool, 0, [frame]);
        batch.meta_mut()[0].network = 14;
        batch.meta_mut()[0].hop = Hop::of_action(action);
        hold.process(0, &mut batch, &mut bench.context());
        batch.decision(0)
    }

    /// Output and last byte of what came out.
    fn poll(bench: &mut Bench, hold: &mut Resolver) -> Vec<(u16, u8)> {
        let mut batch = Batch::new(&bench.pool);
        hold.poll(&mut batch, &mut NoInputs, &mut bench.context());
        assert!(batch.is_empty());
        bench.emitted.drain(..).map(|(out, p)| (out, *p.bytes().last().unwrap())).collect()
    }

    #[test]
    fn packets_wait_in_order_until_the_address_is_known() {
        let world = World::new();
        world.hops.set_unresolved(3, 1, false);
        world.hops.set_unresolved(4, 1, false);
        let (mut bench, mut hold) = (Bench::new(&world), Resolver::new());
        for n in 0..5 {
            let taken = put(&mut bench, &mut hold, ForwardingAction::Adjacency(3), &frame(n));
            assert_eq!(taken, Decision::Taken);
        }
        let v6 = frame_v6("2001:db8::9", "2001:db8:5::1", 64, 17, &[77]);
        put(&mut bench, &mut hold, ForwardingAction::Adjacency(4), &v6);
        assert_eq!(bench.requests, [ResolveRequest::Adjacency(3), ResolveRequest::Adjacency(4)]);
        assert_eq!(poll(&mut bench, &mut hold), []);
        assert_eq!(hold.held().total(), 6);
        world.neighbor(3, 1);
        let want: Vec<_> = (0..5).map(|n| (0, n)).collect();
        assert_eq!(poll(&mut bench, &mut hold), want);
        world.neighbor(4, 1);
        assert_eq!(poll(&mut bench, &mut hold), [(1, 77)]);
        assert_eq!(hold.held().total(), 0);
        assert_eq!(bench.pool.free(), bench.pool.frames());
    }

    #[test]
    fn a_station_on_the_link_is_found_by_its_route() {
        let mut world = World::new();
        world.action("10.0.1.0/24", ForwardingAction::Glean(1));
        let (mut bench, mut hold) = (Bench::new(&world), Resolver::new());
        put(&mut bench, &mut hold, ForwardingAction::Glean(1), &frame(7));
        put(&mut bench, &mut hold, ForwardingAction::Glean(1), &frame(8));
        let request =
            |n| ResolveRequest::Neighbor { port: 1, addr: IpAddr::from([10, 0, 1, n]), ingress: 0 };
        assert_eq!(bench.requests, [request(7), request(8)]);
        assert_eq!(poll(&mut bench, &mut hold), []);
        world.neighbor(3, 1);
        world.action("10.0.1.8/32", ForwardingAction::Adjacency(3));
        bench.forwarding = world.forwarding();
        assert_eq!(poll(&mut bench, &mut hold), [(0, 8)]);
    }

    #[test]
    fn a_station_behind_a_group_is_found_by_the_packets_own_flow() {
        let mut main = World::new();
        main.neighbor(5, 0);
        let members = [ForwardingAction::Adjacency(5), ForwardingAction::Vrf(2, RouteMtu::NONE)];
        let group = main.group(&members);
        main.route("10.0.1.0/24", group);
        let (glean, known) = (main.hop(ForwardingAction::Glean(1)), main.hop(members[0]));
        main.ports.ports[2].as_mut().unwrap().fib = 1;
        main.ports.many = true;
        let mut vrf = World::new();
        vrf.route("10.0.1.0/24", glean);
        let tables = |vrf: &World| {
            let tables = vrf.forwarding();
            [FibLookup { table: 7.into(), v4: tables.v4, v6: tables.v6 }].into()
        };
        let (mut bench, mut hold) = (Bench::new(&main), Resolver::new());
        bench.forwarding.others = tables(&vrf);
        let frame =
            |port: u8| frame_v4("10.0.0.9", "10.0.1.7", 64, 17, &[4, port, 0, 53, 0, 8, 0, 7]);
        let by_vrf =
            |frame: &Vec<u8>| main.hops.action(group, flow::of_ip4(0, &frame[14..])) == members[1];
        let frame = (0..=255).map(frame).find(by_vrf).expect("half of the flows");
        bench.now_ns = SECOND;
        put(&mut bench, &mut hold, ForwardingAction::Glean(1), &frame);
        for tenth in 0..30 {
            bench.now_ns = SECOND + tenth * SECOND / 10;
            assert_eq!(poll(&mut bench, &mut hold), [], "{tenth}");
        }
        vrf.route("10.0.1.7/32", known);
        bench.forwarding.others = tables(&vrf);
        assert_eq!(poll(&mut bench, &mut hold), [(0, 7)]);
    }

    #[test]
    fn silence_is_reported_and_asked_about_once_a_second() {
        let world = World::new();
        world.hops.set_unresolved(3, 1, false);
        let (mut bench, mut hold) = (Bench::new(&world), Resolver::new());
        put(&mut bench, &mut hold, ForwardingAction::Adjacency(3), &frame(1));
        for tenth in 1..30 {
            bench.now_ns = SECOND + tenth * SECOND / 10;
            put(&mut bench, &mut hold, ForwardingAction::Adjacency(3), &frame(2));
            assert_eq!(poll(&mut bench, &mut hold), []);
        }
        assert_eq!(bench.requests.len(), 3, "at 0, 1 and 2 seconds");
        bench.now_ns = 4 * SECOND;
        let out = poll(&mut bench, &mut hold);
        assert_eq!((out.len(), out[0], out[1]), (16, (2, 1), (2, 2)));
        // Failed at once, when that is known; and asked for again.
        world.hops.set_unresolved(3, 1, true);
        bench.now_ns = 5 * SECOND;
        let out = put(&mut bench, &mut hold, ForwardingAction::Adjacency(3), &frame(3));
        assert_eq!((out, bench.requests.len()), (Decision::Output(ERROR), 4));
        put(&mut bench, &mut hold, ForwardingAction::Adjacency(3), &frame(3));
        assert_eq!(bench.requests.len(), 4);
        // What nobody waits for is forgotten.
        bench.now_ns = 7 * SECOND;
        poll(&mut bench, &mut hold);
        assert_eq!(hold.waiting.keys(), 0);
    }

    #[test]
    fn room_is_bounded_by_key_by_packets_and_by_keys() {
        let world = World::new();
        let (mut bench, mut hold) = (Bench::new(&world), Resolver::new());
        bench.pool = crate::Pool::new(4096, 2048);
        let full = Decision::Drop(DropReason::HoldFull);
        for n in 0..20_u8 {
            let out = put(&mut bench, &mut hold, ForwardingAction::Adjacency(200), &frame(n));
            assert_eq!(out == full, u16::from(n) >= PER_KEY, "{n}");
        }
        for index in 0..u32::from(PACKETS) {
            let out =
                put(&mut bench, &mut hold, ForwardingAction::Adjacency(1000 + index), &frame(1));
            let room = index + u32::from(PER_KEY) < u32::from(PACKETS);
            assert_eq!(out == full, !room, "{index}");
        }
        assert_eq!(hold.held().total(), usize::from(PACKETS));
        assert_eq!((hold.waiting.keys(), bench.requests.len()), (KEYS, KEYS));
        hold.stop(&mut bench.context());
        let counters = &bench.counters;
        assert_eq!(counters.dropped[DropReason::Shutdown as usize].read(), PACKETS.into());
        assert_eq!((hold.held().total(), bench.pool.free()), (0, 4096));
    }

    #[test]
    fn a_sweep_takes_room_from_nobody_but_itself() {
        let mut world = World::new();
        world.action("10.0.0.0/16", ForwardingAction::Glean(1));
        let (mut bench, mut hold) = (Bench::new(&world), Resolver::new());
        bench.pool = crate::Pool::new(4096, 2048);
        let request = |bench: &mut Bench,
                       hold: &mut Resolver,
                       action: ForwardingAction,
                       ingress: u16,
                       host: u16| {
            let [upper, lower] = host.to_be_bytes();
            let frame = frame_v4("10.9.0.9", &format!("10.0.{upper}.{lower}"), 64, 17, &[lower]);
            let mut batch = crate::testing::batch(&bench.pool, ingress, [&frame[..]]);
            batch.meta_mut()[0].network = 14;
            batch.meta_mut()[0].hop = Hop::of_action(action);
            hold.process(0, &mut batch, &mut bench.context());
            batch.decision(0)
        };
        let dropped = |bench: &Bench| bench.counters.dropped[DropReason::HoldFull as usize].read();
        // Of another port, before the sweep and in the midst of it.
        for host in 1..=100 {
            assert_eq!(
                request(&mut bench, &mut hold, ForwardingAction::Glean(1), 2, host),
                Decision::Taken
            );
        }
        for host in 1000..6000 {
            bench.now_ns += 200_000;
            assert_eq!(
                request(&mut bench, &mut hold, ForwardingAction::Glean(1), 0, host),
                Decision::Taken
            );
        }
        assert_eq!((bench.requests.len(), hold.held().total(), dropped(&bench)), (5100, 768, 4332));
        assert_eq!(hold.waiting.keys(), 768);
        // Next hops of routes have a quarter for themselves.
        for index in 0..256 {
            let taken = request(&mut bench, &mut hold, ForwardingAction::Adjacency(index), 0, 1);
            assert_eq!(taken, Decision::Taken, "{index}");
        }
        assert_eq!((hold.held().total(), hold.waiting.keys()), (1024, 1024));
        assert_eq!(
            request(&mut bench, &mut hold, ForwardingAction::Adjacency(256), 0, 1),
            Decision::Taken
        );
        // All hosts of the other port are there still, and most of the sweep's latest.
        let waits = |hold: &mut Resolver, ingress, host: u16| {
            let addr = IpAddr::from([10, 0, host.to_be_bytes()[0], host.to_be_bytes()[1]]);
            let mut packets = 0;
            let key = ResolveRequest::Neighbor { port: 1, addr, ingress };
            hold.waiting.release(key, |packet| {
                packets += 1;
                drop(packet);
            });
            packets
        };
        assert_eq!((1..=100).map(|host| waits(&mut hold, 2, host)).sum::<usize>(), 100);
        // The last 30 ms: as long as a host may take to answer.
        let latest: usize = (5850..6000).map(|host| waits(&mut hold, 0, host)).sum();
        assert!(latest >= 140, "{latest} of 150");
        hold.stop(&mut bench.context());
        assert_eq!((hold.held().total(), bench.pool.free()), (0, 4096));
    }

    #[test]
    fn our_own_packets_are_counted_apart() {
        let world = World::new();
        world.hops.set_unresolved(3, 1, false);
        let (mut bench, mut hold) = (Bench::new(&world), Resolver::new());
        let mut packet = crate::testing::packet(&bench.pool, 0, &frame(1));
        packet.meta.flags = FLAG_GENERATED;
        packet.meta.hop = Hop::of_action(ForwardingAction::Adjacency(3));
        let mut batch = Batch::new(&bench.pool);
        batch.push(packet).unwrap();
        hold.process(0, &mut batch, &mut bench.context());
        assert_eq!(hold.held(), Held { received: 0, generated: 1 });
        hold.stop(&mut bench.context());
        assert_eq!(bench.counters.generated_dropped[DropReason::Shutdown as usize].read(), 1);
    }

    #[test]
    fn what_cannot_wait_is_dropped() {
        let world = World::new();
        let (mut bench, mut hold) = (Bench::new(&world), Resolver::new());
        let unresolved = Decision::Drop(DropReason::Unresolved);
        assert_eq!(put(&mut bench, &mut hold, ForwardingAction::NoRoute, &frame(1)), unresolved);
        assert_eq!(
            put(&mut bench, &mut hold, ForwardingAction::Glean(1), &frame(1)[..20]),
            unresolved
        );
    }
}
