//! Carries the lookup's answer out: forwards packets with a new link header.
//!
//! One pass over a batch: each hop is turned into a forwarding action, by the flow hash where it is a group; the forwarding action's
//! adjacency holds the MTU, and what to write into the packet's header: TTL or hop limit, checksum, MACs.
//! Packets that cannot be forwarded leave by other outputs, with their note set: `error` has a [`Cause`],
//! `fragment` the MTU, `unresolved` the forwarding action that has no link address.
//!
//! Fragments come back by the second input. The forwarding action of the whole packet was left in their metadata,
//! since their own hash would differ (a fragment has no ports) and with it perhaps the path.
//!
//! A packet that is to leave by the port that it arrived on goes to the output `turn` first, where that is used, with its
//! forwarding action in its metadata and its header as it came: features of that place see it there (`FeatureArc`). It
//! comes back by the last input.
//!
//! A forwarding action that names a VRF has the destination looked up there, among the packets that need a closer look:
//! routes between VRFs cost other packets nothing. A packet that routes between VRFs lead in a loop is dropped (`loop_guard`).
//!
//! Packets of our own making leave with the TTL they were given; fragments count it down like the
//! packet they were cut from.
//!
//! Cost: the hop's word, the adjacency's 16 bytes, and the packet's first line, which is in the cache
//! by now.

use fingerpost_route::{ForwardingAction, HopTable, PackedAdjacency};

use crate::frame::wire::ip4::DONT_FRAGMENT;
use crate::frame::wire::ip6::is_link_local;
use crate::frame::wire::{ETHER_BYTES, IP4_BYTES, IP6_BYTES, Ip4, Ip4Mut, Ip6, Ip6Mut};
use crate::frame::{BATCH, Batch, Cause, DropReason, FLAG_GENERATED, Hop, Meta, Note, flow};
use crate::graph::{Context, Element, ElementClass, Made, Setup};
use crate::language::{ClassSpec, ConfigError};

pub(crate) const CLASS4: ElementClass = ElementClass {
    spec: ClassSpec::new("IP4NextHop", "2-3/4-5", "h/h", "x/x").outputs(&[
        "out",
        "error",
        "unresolved",
        "fragment",
        "turn",
    ]),
    summary: "sends IPv4 packets to their next hop: MTU, TTL, link header",
    configure: configure::<4>,
};

pub(crate) const CLASS6: ElementClass = ElementClass {
    spec: ClassSpec::new("IP6NextHop", "1-2/3-4", "h/h", "x/x").outputs(&[
        "out",
        "error",
        "unresolved",
        "turn",
    ]),
    summary: "sends IPv6 packets to their next hop: MTU, hop limit, link header",
    configure: configure::<6>,
};

fn configure<const FAMILY: u8>(setup: &mut Setup<'_>) -> Result<Made, ConfigError> {
    setup.args.finish()?;
    let turns = setup.outputs > turn::<FAMILY>().into();
    Ok(Made::new(move |_| NextHop::<FAMILY> { special: Vec::with_capacity(BATCH), turns }))
}

const ERROR: u16 = 1;
const UNRESOLVED: u16 = 2;
const FRAGMENT: u16 = 3;

/// Output of packets that are to leave by the port that they arrived on.
const fn turn<const FAMILY: u8>() -> u16 {
    if FAMILY == 4 { 4 } else { 3 }
}

/// Input of such packets when they come back.
const fn turned<const FAMILY: u8>() -> u16 {
    if FAMILY == 4 { 2 } else { 1 }
}

/// Whether packets of an input have their forwarding action in their metadata already: fragments, and packets that
/// turned.
const fn is_decided(input: u16) -> bool {
    input != 0
}

struct NextHop<const FAMILY: u8> {
    /// Packets of the batch that are to be looked at more closely, and the words of their forwarding actions.
    special: Vec<(usize, u32)>,
    /// The output `turn` is used.
    turns: bool,
}

impl<const FAMILY: u8> NextHop<FAMILY> {
    /// Packet that needs more than forwarding, leaves by its ingress port, or is the router's own.
    #[cold]
    fn send_special(
        &mut self,
        i: usize,
        action: u32,
        input: u16,
        batch: &mut Batch,
        cx: &mut Context<'_>,
    ) {
        let (action, mtu) = match ForwardingAction::decode(action) {
            action @ ForwardingAction::Vrf(..) => {
                match Self::follow(action, &batch.meta()[i], batch.bytes(i), cx) {
                    Ok(found) => found,
                    Err(reason) => return batch.discard(i, reason),
                }
            }
            action => (action, 0),
        };
        let verdict = match action {
            ForwardingAction::Adjacency(index) => {
                let mut adjacency = cx.forwarding.hops.view().packed_adjacency(index);
                let meta = batch.meta()[i];
                let count_down = is_decided(input) || meta.flags & FLAG_GENERATED == 0;
                if adjacency.resolved() {
                    adjacency = adjacency.narrowed(mtu);
                    let may_turn = !self.turns || input == turned::<FAMILY>() || meta.is_ours();
                    let frame = batch.bytes_mut(i);
                    let verdict = send::<FAMILY>(frame, &meta, adjacency, count_down, may_turn);
                    if let Verdict::Send = verdict {
                        batch.meta_mut()[i].note = Note::egress(adjacency.port());
                        cx.counters.use_adjacency(index);
                        return;
                    }
                    verdict
                } else {
                    Verdict::Unresolved
                }
            }
            action => elsewhere(action),
        };
        divert::<FAMILY>(batch, i, action, &verdict);
    }

    /// What the lookups in VRFs find that an action leads to, and the MTU of the routes there, 0 for none.
    #[cold]
    fn follow(
        action: ForwardingAction,
        meta: &Meta,
        frame: &[u8],
        cx: &Context<'_>,
    ) -> Result<(ForwardingAction, u16), DropReason> {
        let network = usize::from(meta.network);
        let packet = frame.get(network..).unwrap_or(&[]);
        let followed = if FAMILY == 4 {
            let ip = Ip4::at(frame, network).ok_or(DropReason::TooShort)?;
            cx.forwarding.follow(action, ip.dst(), || flow::of_ip4(cx.flow_seed, packet))
        } else {
            let ip = Ip6::at(frame, network).ok_or(DropReason::TooShort)?;
            cx.forwarding.follow(action, ip.dst(), || flow::of_ip6(cx.flow_seed, packet))
        };
        followed.ok_or(DropReason::LoopGuard)
    }

    /// Which of the forwarding actions of a group a packet takes.
    #[cold]
    fn choose(hops: &HopTable, meta: &Meta, frame: &[u8], seed: u64) -> ForwardingAction {
        let packet = frame.get(meta.network.into()..).unwrap_or(&[]);
        let hash =
            if FAMILY == 4 { flow::of_ip4(seed, packet) } else { flow::of_ip6(seed, packet) };
        hops.action(meta.hop.next_hop(), hash)
    }
}

/// What became of a packet.
enum Verdict {
    Send,
    /// It would leave by the port that it arrived on.
    Turn,
    Error(Cause),
    /// Its next hop has no link address yet.
    Unresolved,
    Fragment(u16),
    Drop(DropReason),
}

impl<const FAMILY: u8> Element for NextHop<FAMILY> {
    fn process(&mut self, input: u16, batch: &mut Batch, cx: &mut Context<'_>) {
        let table = &*cx.forwarding.hops;
        let (hops, special) = (table.view(), &mut self.special);
        batch.each(|i, one| {
            // Nearly all forwarding actions name an adjacency, and only the others are worth decoding.
            let action = if is_decided(input) {
                one.meta.hop.action_word()
            } else {
                hops.only_action(one.meta.hop.next_hop()).unwrap_or_else(|| {
                    Self::choose(table, one.meta, one.frame, cx.flow_seed).encode()
                })
            };
            if let Some(index) = ForwardingAction::adjacency_of(action)
                && let adjacency = hops.packed_adjacency(index)
                && adjacency.resolved()
                && one.meta.flags & FLAG_GENERATED == 0
                && let Verdict::Send = send::<FAMILY>(one.frame, one.meta, adjacency, true, false)
            {
                one.meta.note = Note::egress(adjacency.port());
                cx.counters.use_adjacency(index);
            } else {
                special.push((i, action));
            }
        });
        while let Some((i, action)) = self.special.pop() {
            self.send_special(i, action, input, batch, cx);
        }
    }
}

/// What becomes of a packet whose forwarding action has no adjacency.
#[cold]
fn elsewhere(action: ForwardingAction) -> Verdict {
    match action {
        ForwardingAction::Adjacency(_) | ForwardingAction::Glean(_) => Verdict::Unresolved,
        ForwardingAction::NoRoute => Verdict::Error(Cause::NoRoute),
        ForwardingAction::Unreachable => Verdict::Error(Cause::Unreachable),
        ForwardingAction::Prohibit => Verdict::Error(Cause::Prohibit),
        ForwardingAction::Blackhole => Verdict::Drop(DropReason::Blackhole),
        ForwardingAction::Local => Verdict::Drop(DropReason::Local),
        ForwardingAction::Vrf(..) => Verdict::Drop(DropReason::LoopGuard),
    }
}

/// Labels a packet that needs more than forwarding.
#[cold]
fn divert<const FAMILY: u8>(
    batch: &mut Batch,
    i: usize,
    action: ForwardingAction,
    verdict: &Verdict,
) {
    let meta = &mut batch.meta_mut()[i];
    let output = match *verdict {
        Verdict::Send => return,
        Verdict::Turn => {
            meta.hop = Hop::of_action(action);
            turn::<FAMILY>()
        }
        Verdict::Drop(reason) => return batch.discard(i, reason),
        Verdict::Error(cause) => {
            meta.note = cause.note();
            ERROR
        }
        Verdict::Unresolved => {
            meta.hop = Hop::of_action(action);
            UNRESOLVED
        }
        Verdict::Fragment(mtu) => {
            meta.note = Note::of_mtu(mtu);
            meta.hop = Hop::of_action(action);
            FRAGMENT
        }
    };
    batch.output(i, output);
}

/// Writes the headers of a packet that can leave, and nothing of one that cannot.
#[inline(always)]
fn send<const FAMILY: u8>(
    frame: &mut [u8],
    meta: &Meta,
    adjacency: PackedAdjacency,
    count_down: bool,
    may_turn: bool,
) -> Verdict {
    if FAMILY == 4 {
        send_v4(frame, meta, adjacency, count_down, may_turn)
    } else {
        send_v6(frame, meta, adjacency, count_down, may_turn)
    }
}

#[inline(always)]
fn send_v4(
    frame: &mut [u8],
    meta: &Meta,
    adjacency: PackedAdjacency,
    count_down: bool,
    may_turn: bool,
) -> Verdict {
    let len = frame.len();
    // The link header is written right before the packet: there it must have been.
    let (ETHER_BYTES, Some(frame)) = (usize::from(meta.network), frame.first_chunk_mut()) else {
        return Verdict::Drop(DropReason::TooShort);
    };
    let frame: &mut [u8; ETHER_BYTES + IP4_BYTES] = frame;
    let (len, at) = (len - ETHER_BYTES, ETHER_BYTES);
    let Some(ip) = Ip4::at(frame, at) else { return Verdict::Drop(DropReason::TooShort) };
    if len > usize::from(adjacency.mtu()) {
        return if ip.fragment() & DONT_FRAGMENT != 0 {
            Verdict::Error(Cause::TooBig(adjacency.mtu()))
        } else {
            Verdict::Fragment(adjacency.mtu())
        };
    }
    // The check before the lookup lets packets to our own addresses pass; in another table than that of the address
    // such a packet finds a way out.
    if count_down && ip.ttl() <= 1 {
        return Verdict::Error(Cause::TtlExpired);
    }
    if !may_turn && adjacency.port() == meta.port {
        return Verdict::Turn;
    }
    if count_down && let Some(mut ip) = Ip4Mut::at(frame, at) {
        ip.decrement_ttl();
    }
    write_link(frame, adjacency);
    Verdict::Send
}

#[inline(always)]
fn send_v6(
    frame: &mut [u8],
    meta: &Meta,
    adjacency: PackedAdjacency,
    count_down: bool,
    may_turn: bool,
) -> Verdict {
    let len = frame.len();
    let (ETHER_BYTES, Some(frame)) = (usize::from(meta.network), frame.first_chunk_mut()) else {
        return Verdict::Drop(DropReason::TooShort);
    };
    let frame: &mut [u8; ETHER_BYTES + IP6_BYTES] = frame;
    let (len, at) = (len - ETHER_BYTES, ETHER_BYTES);
    let Some(ip) = Ip6::at(frame, at) else { return Verdict::Drop(DropReason::TooShort) };
    // RFC 4007 9: a packet with a link-local source stays on its link.
    let turns = adjacency.port() == meta.port;
    if is_link_local(ip.src()) && !turns {
        return Verdict::Error(Cause::Scope);
    }
    if len > usize::from(adjacency.mtu()) {
        return Verdict::Error(Cause::TooBig(adjacency.mtu()));
    }
    if count_down && ip.hop_limit() <= 1 {
        return Verdict::Error(Cause::TtlExpired);
    }
    if turns && !may_turn {
        return Verdict::Turn;
    }
    if count_down && let Some(mut ip) = Ip6Mut::at(frame, at) {
        ip.decrement_hop_limit();
    }
    write_link(frame, adjacency);
    Verdict::Send
}

#[inline]
fn write_link(frame: &mut [u8], adjacency: PackedAdjacency) {
    if let Some(addrs) = frame.first_chunk_mut() {
        *addrs = adjacency.link_addrs();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::Decision;
    use crate::frame::wire::ip4::sum_is_valid;
    use crate::testing::{Bench, World, frame_v4, frame_v6, neighbor_mac, port_mac};
    use fingerpost_lpm::NextHopId;
    use fingerpost_route::{FibLookup, RouteMtu};

    fn world() -> (World, Vec<NextHopId>) {
        let mut world = World::new();
        world.neighbor(5, 1);
        world.neighbor(6, 2);
        world.neighbor(7, 0);
        world.hops.set_unresolved(8, 1, false);
        let mut hops = vec![NextHopId::NONE];
        for action in [
            ForwardingAction::Adjacency(5),
            ForwardingAction::Adjacency(6),
            ForwardingAction::Adjacency(7),
            ForwardingAction::Adjacency(8),
            ForwardingAction::Glean(1),
            ForwardingAction::Local,
            ForwardingAction::Blackhole,
            ForwardingAction::Unreachable,
            ForwardingAction::Prohibit,
        ] {
            hops.push(world.hop(action));
        }
        (world, hops)
    }

    fn run(
        world: &World,
        frame: &[u8],
        input: u16,
        set: impl Fn(&mut Meta),
    ) -> (Box<Batch>, Bench) {
        let mut bench = Bench::new(world);
        let mut batch = crate::testing::batch(&bench.pool, 0, [frame]);
        batch.meta_mut()[0].network = 14;
        set(&mut batch.meta_mut()[0]);
        let class = if frame[14] >> 4 == 4 { CLASS4 } else { CLASS6 };
        crate::testing::element(&class, "").process(input, &mut batch, &mut bench.context());
        (batch, bench)
    }

    #[test]
    fn a_packet_is_rewritten_and_nothing_else_changes() {
        let (world, hops) = world();
        let frame = frame_v4("10.0.0.9", "192.0.2.1", 64, 17, &[7; 1480]);
        let (batch, bench) = run(&world, &frame, 0, |m| m.hop = Hop::of_next_hop(hops[1]));
        assert_eq!(
            (batch.decision(0), batch.meta()[0].note),
            (Decision::Output(0), Note::egress(1))
        );
        let out = batch.bytes(0);
        assert_eq!((&out[..6], &out[6..12]), (&neighbor_mac(5).0[..], &port_mac(1).0[..]));
        let ip = Ip4::at(out, 14).unwrap();
        assert_eq!(ip.ttl(), 63);
        assert!(sum_is_valid(ip.raw_sum()));
        let mut want = frame.clone();
        want[..12].copy_from_slice(&out[..12]);
        [want[22], want[24], want[25]] = [63, out[24], out[25]];
        assert_eq!(out, want);
        assert_eq!(bench.counters.adjacencies[5].read(), 1);

        let frame = frame_v6("2001:db8::9", "2001:db8:5::1", 64, 17, &[7; 1460]);
        let (batch, _) = run(&world, &frame, 0, |m| m.hop = Hop::of_next_hop(hops[1]));
        let mut want = frame.clone();
        want[..6].copy_from_slice(&neighbor_mac(5).0);
        want[6..12].copy_from_slice(&port_mac(1).0);
        want[21] = 63;
        assert_eq!(batch.bytes(0), want);
    }

    #[test]
    fn what_each_action_means() {
        let (world, hops) = world();
        let error = |cause: Cause| (Decision::Output(ERROR), Some(cause.note()));
        let unresolved = (Decision::Output(UNRESOLVED), None);
        let want = [
            error(Cause::NoRoute),
            (Decision::Output(0), Some(Note::egress(1))),
            (Decision::Output(0), Some(Note::egress(2))),
            (Decision::Output(0), Some(Note::egress(0))),
            unresolved,
            unresolved,
            (Decision::Drop(DropReason::Local), None),
            (Decision::Drop(DropReason::Blackhole), None),
            error(Cause::Unreachable),
            error(Cause::Prohibit),
        ];
        for frame in [
            frame_v4("10.0.0.9", "192.0.2.1", 64, 17, &[]),
            frame_v6("2001:db8::9", "2001:db8:5::1", 64, 17, &[]),
        ] {
            for (hop, want) in hops.iter().zip(want) {
                // From a port that none of them leaves by.
                let set = |m: &mut Meta| (m.hop, m.port) = (Hop::of_next_hop(*hop), 9);
                let (batch, _) = run(&world, &frame, 0, set);
                assert_eq!(batch.decision(0), want.0, "{hop:?}");
                if batch.decision(0) == Decision::Output(UNRESOLVED) {
                    let action = ForwardingAction::decode(batch.meta()[0].hop.action_word());
                    assert_eq!(action, world.hops.action(*hop, 0));
                }
                if let Some(note) = want.1 {
                    assert_eq!(batch.meta()[0].note, note, "{hop:?}");
                }
                if batch.decision(0) != Decision::Output(0) {
                    assert_eq!(batch.bytes(0), frame, "only packets that leave are written");
                }
            }
        }
    }

    #[test]
    fn a_route_into_a_vrf_is_looked_up_there() {
        let (mut main, hops) = world();
        let into = main.hop(ForwardingAction::Vrf(2, RouteMtu::NONE));
        let group = main.group(&[
            ForwardingAction::Vrf(2, RouteMtu::NONE),
            ForwardingAction::Vrf(2, RouteMtu::NONE),
        ]);
        let of_vrf = main.group(&[ForwardingAction::Adjacency(5), ForwardingAction::Adjacency(5)]);
        main.ports.ports[2].as_mut().unwrap().fib = 1;
        main.ports.many = true;
        let mut vrf = World::new();
        let found = [hops[1], hops[5], hops[6], hops[7], hops[8], hops[9], into, of_vrf];
        for (last, hop) in (1..).zip(found) {
            vrf.route(&format!("192.0.2.{last}/32"), hop);
            vrf.route(&format!("2001:db8:5::{last}/128"), hop);
        }
        // In a table that the packets' own port does not have.
        main.route("192.0.2.0/24", hops[9]);
        main.route("2001:db8:5::/48", hops[9]);
        let mut bench = Bench::new(&main);
        let tables = vrf.forwarding();
        bench.forwarding.others =
            [FibLookup { table: 7.into(), v4: tables.v4.clone(), v6: tables.v6.clone() }].into();
        let error = |cause: Cause| (Decision::Output(ERROR), Some(cause.note()));
        let sent = (Decision::Output(0), Some(Note::egress(1)));
        let drops = |reason| (Decision::Drop(reason), None);
        let want = [
            sent,
            (Decision::Output(UNRESOLVED), None),
            drops(DropReason::Local),
            drops(DropReason::Blackhole),
            error(Cause::Unreachable),
            error(Cause::Prohibit),
            drops(DropReason::LoopGuard),
            sent,
            error(Cause::NoRoute),
        ];
        for (last, want) in (1..).zip(want) {
            for frame in [
                frame_v4("10.0.0.9", &format!("192.0.2.{last}"), 64, 17, &[]),
                frame_v6("2001:db8::9", &format!("2001:db8:5::{last}"), 64, 17, &[]),
            ] {
                for hop in [into, group] {
                    let mut batch = crate::testing::batch(&bench.pool, 0, [&frame[..]]);
                    let meta = &mut batch.meta_mut()[0];
                    (meta.network, meta.hop) = (14, Hop::of_next_hop(hop));
                    let class = if frame[14] >> 4 == 4 { CLASS4 } else { CLASS6 };
                    crate::testing::element(&class, "").process(
                        0,
                        &mut batch,
                        &mut bench.context(),
                    );
                    assert_eq!(batch.decision(0), want.0, "{last}");
                    let meta = batch.meta()[0];
                    assert!(want.1.is_none_or(|note| meta.note == note), "{last}");
                    match want.0 {
                        Decision::Output(0) => {
                            let ttl = if frame[14] >> 4 == 4 { 22 } else { 21 };
                            let out = batch.bytes(0);
                            assert_eq!((&out[..6], out[ttl]), (&neighbor_mac(5).0[..], 63));
                        }
                        Decision::Output(UNRESOLVED) => {
                            let action = ForwardingAction::decode(meta.hop.action_word());
                            assert_eq!(action, ForwardingAction::Glean(1));
                        }
                        _ => assert_eq!(batch.bytes(0), frame),
                    }
                }
            }
        }
    }

    #[test]
    fn packets_that_are_too_big() {
        let (world, hops) = world();
        let seen = |frame: &[u8], hop: NextHopId| {
            let (batch, _) = run(&world, frame, 0, |m| m.hop = Hop::of_next_hop(hop));
            assert_ne!(batch.decision(0), Decision::Output(0));
            (batch.decision(0), batch.meta()[0].note, batch.meta()[0].hop)
        };
        let mut frame = frame_v4("10.0.0.9", "192.0.2.1", 64, 17, &[0; 1261]);
        let action = Hop::of_action(ForwardingAction::Adjacency(6));
        assert_eq!(seen(&frame, hops[2]), (Decision::Output(FRAGMENT), Note::of_mtu(1280), action));
        frame[14 + 6] = 0x40;
        let too_big =
            (Decision::Output(ERROR), Cause::TooBig(1280).note(), Hop::of_next_hop(hops[2]));
        assert_eq!(seen(&frame, hops[2]), too_big);
        let frame = frame_v6("2001:db8::9", "2001:db8:5::1", 64, 17, &[0; 1241]);
        assert_eq!(seen(&frame, hops[2]), too_big);
        for frame in [
            frame_v4("10.0.0.9", "192.0.2.1", 64, 17, &[0; 1260]),
            frame_v6("2001:db8::9", "2001:db8:5::1", 64, 17, &[0; 1240]),
        ] {
            let (batch, _) = run(&world, &frame, 0, |m| m.hop = Hop::of_next_hop(hops[2]));
            assert_eq!(batch.decision(0), Decision::Output(0), "exactly the MTU fits");
        }
    }

    #[test]
    fn the_mtu_of_a_route_into_a_vrf_is_a_limit() {
        let (mut main, hops) = world();
        let into = main.hop(ForwardingAction::Vrf(0, RouteMtu::of(1300)));
        main.ports.ports[0].as_mut().unwrap().fib = 1;
        main.ports.many = true;
        let mut vrf = World::new();
        vrf.route("192.0.2.1/32", hops[1]);
        vrf.route("2001:db8:5::1/128", hops[1]);
        let mut bench = Bench::new(&main);
        let tables = vrf.forwarding();
        bench.forwarding.others =
            [FibLookup { table: 7.into(), v4: tables.v4, v6: tables.v6 }].into();
        let too_big = (Decision::Output(ERROR), Cause::TooBig(1300).note());
        let sent = (Decision::Output(0), Note::egress(1));
        for (more, v4, v6) in
            [(0, sent, sent), (1, (Decision::Output(FRAGMENT), Note::of_mtu(1300)), too_big)]
        {
            for (class, frame, want) in [
                (CLASS4, frame_v4("10.0.0.9", "192.0.2.1", 64, 17, &vec![0; 1280 + more]), v4),
                (
                    CLASS6,
                    frame_v6("2001:db8::9", "2001:db8:5::1", 64, 17, &vec![0; 1260 + more]),
                    v6,
                ),
            ] {
                let mut batch = crate::testing::batch(&bench.pool, 9, [&frame[..]]);
                let meta = &mut batch.meta_mut()[0];
                (meta.network, meta.hop) = (14, Hop::of_next_hop(into));
                crate::testing::element(&class, "").process(0, &mut batch, &mut bench.context());
                assert_eq!((batch.decision(0), batch.meta()[0].note), want);
            }
        }
    }

    #[test]
    fn fragments_keep_their_action_and_count_down() {
        let (world, _) = world();
        let frame = frame_v4("10.0.0.9", "192.0.2.1", 64, 17, &[0; 100]);
        let (batch, _) = run(&world, &frame, 1, |m| {
            m.hop = Hop::of_action(ForwardingAction::Adjacency(6));
            m.flags = FLAG_GENERATED;
        });
        assert_eq!(
            (batch.decision(0), batch.meta()[0].note),
            (Decision::Output(0), Note::egress(2))
        );
        assert_eq!(batch.bytes(0)[22], 63);
    }

    #[test]
    fn our_own_packets_keep_their_ttl() {
        let (world, hops) = world();
        for (frame, at) in [
            (frame_v4("10.0.0.1", "192.0.2.1", 64, 1, &[]), 22),
            (frame_v6("2001:db8::1", "2001:db8:5::1", 64, 58, &[]), 21),
        ] {
            let (batch, _) = run(&world, &frame, 0, |m| {
                m.hop = Hop::of_next_hop(hops[1]);
                m.flags = FLAG_GENERATED;
            });
            assert_eq!((batch.decision(0), batch.bytes(0)[at]), (Decision::Output(0), 64));
        }
    }

    #[test]
    fn a_packet_that_turns_back_is_shown_before_it_is_rewritten() {
        let (world, hops) = world();
        let (v4, v6) = (
            frame_v4("10.0.0.9", "192.0.2.1", 64, 17, &[0; 30]),
            frame_v6("2001:db8::9", "2001:db8:5::1", 64, 17, &[0; 30]),
        );
        let action = Hop::of_action(ForwardingAction::Adjacency(7));
        let fragment = (1, action, FLAG_GENERATED);
        for (frame, turn, turned) in [(&v4, turn::<4>(), turned::<4>()), (&v6, 3, 1)] {
            let (batch, _) = run(&world, frame, 0, |m| m.hop = Hop::of_next_hop(hops[3]));
            assert_eq!(batch.decision(0), Decision::Output(turn));
            assert_eq!((batch.bytes(0), batch.meta()[0].hop), (&frame[..], action));
            let (batch, bench) = run(&world, frame, turned, |m| m.hop = action);
            assert_eq!(
                (batch.decision(0), batch.meta()[0].note),
                (Decision::Output(0), Note::egress(0))
            );
            assert_eq!(bench.counters.adjacencies[7].read(), 1);
        }
        // By another port, of our own making, and longer than the link takes.
        let (batch, _) = run(&world, &v4, 0, |m| m.hop = Hop::of_next_hop(hops[1]));
        assert_eq!(batch.decision(0), Decision::Output(0));
        let (batch, _) =
            run(&world, &v4, fragment.0, |m| (m.hop, m.flags) = (fragment.1, fragment.2));
        assert_eq!(batch.decision(0), Decision::Output(0));
        let long = frame_v4("10.0.0.9", "192.0.2.2", 64, 17, &[0; 1481]);
        let (batch, _) = run(&world, &long, 0, |m| m.hop = Hop::of_next_hop(hops[3]));
        assert_eq!(batch.decision(0), Decision::Output(FRAGMENT));
    }

    #[test]
    fn none_leaves_with_a_ttl_that_is_used_up() {
        let (world, hops) = world();
        for ttl in [0, 1] {
            for frame in [
                frame_v4("10.0.0.9", "192.0.2.1", ttl, 17, &[]),
                frame_v6("2001:db8::9", "2001:db8:5::1", ttl, 17, &[]),
            ] {
                let (batch, _) = run(&world, &frame, 0, |m| m.hop = Hop::of_next_hop(hops[1]));
                assert_eq!(
                    (batch.decision(0), batch.meta()[0].note),
                    (Decision::Output(ERROR), Cause::TtlExpired.note())
                );
            }
        }
    }

    #[test]
    fn a_link_local_source_stays_on_its_link() {
        let (world, hops) = world();
        let frame = frame_v6("fe80::9", "2001:db8:5::1", 64, 17, &[]);
        let (batch, _) = run(&world, &frame, 0, |m| m.hop = Hop::of_next_hop(hops[1]));
        assert_eq!(
            (batch.decision(0), batch.meta()[0].note),
            (Decision::Output(ERROR), Cause::Scope.note())
        );
        let (batch, _) = run(&world, &frame, 0, |m| m.hop = Hop::of_next_hop(hops[3]));
        assert_eq!(batch.decision(0), Decision::Output(turn::<6>()), "in by port 0, out by port 0");
    }

    #[test]
    fn a_group_is_taken_by_flow() {
        let (mut world, _) = world();
        let group = world.group(&[
            ForwardingAction::Adjacency(5),
            ForwardingAction::Adjacency(6),
            ForwardingAction::Adjacency(7),
            ForwardingAction::Unreachable,
        ]);
        let mut seen = [0; 4];
        for port in 0..=255 {
            let frame = frame_v4("10.0.0.9", "192.0.2.1", 64, 17, &[4, port, 0, 53, 0, 8, 0, 0]);
            let set = |m: &mut Meta| (m.hop, m.port) = (Hop::of_next_hop(group), 9);
            let (batch, _) = run(&world, &frame, 0, set);
            let (again, _) = run(&world, &frame, 0, set);
            assert_eq!(batch.meta()[0].note, again.meta()[0].note);
            match batch.decision(0) {
                Decision::Output(0) => seen[usize::from(batch.meta()[0].note.egress_port())] += 1,
                _ => seen[3] += 1,
            }
        }
        assert!(seen.iter().all(|&n| n > 40), "{seen:?}");
    }

    #[test]
    fn frames_without_a_header_are_dropped() {
        let (world, hops) = world();
        for frame in [
            frame_v4("10.0.0.9", "192.0.2.1", 64, 17, &[]),
            frame_v6("2001:db8::9", "2001:db8:5::1", 64, 17, &[]),
        ] {
            let (batch, _) = run(&world, &frame[..30], 0, |m| m.hop = Hop::of_next_hop(hops[1]));
            assert_eq!(batch.decision(0), Decision::Drop(DropReason::TooShort));
        }
    }
}
