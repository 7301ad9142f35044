//! Does what the lookup's answer means: sends packets on their way with a new link header.
//!
//! One pass over a batch: each hop is turned into a leg, by the flow hash where it is a group; the leg's
//! adjacency says the MTU, and what to write into the packet's header: TTL or hop limit, checksum, MACs.
//! Packets that cannot go on leave by other outputs, with their note set: `error` has a [`Cause`],
//! `fragment` the MTU, `hold` the leg that has no link address.
//!
//! Fragments come back by the second input. The leg of the whole packet was left in their metadata,
//! since their own hash would differ (a fragment has no ports) and with it perhaps the path.
//!
//! Packets of our own making leave with the TTL they were given; fragments count it down like the
//! packet they were cut from.
//!
//! Cost: the hop's word, the adjacency's 16 bytes, and the packet's first line, which is in the cache
//! by now.

use fingerpost_lpm::NextHopId;
use fingerpost_route::{HopTable, Leg, PackedAdjacency};

use super::{Context, Element, ElementClass, Made};
use crate::buf::{BATCH, Batch, FLAG_GENERATED, Meta};
use crate::cause::Cause;
use crate::drops::DropReason;
use crate::flow;
use crate::graph::ClassSpec;
use crate::wire::ip4::DONT_FRAGMENT;
use crate::wire::ip6::is_link_local;
use crate::wire::{ETHER_BYTES, IP4_BYTES, IP6_BYTES, Ip4, Ip4Mut, Ip6, Ip6Mut};

pub(crate) const CLASS4: ElementClass = ElementClass {
    spec: ClassSpec {
        name: "IP4NextHop",
        ports: "2/4",
        processing: "h/h",
        flow: "x/x",
        output_names: &["out", "error", "hold", "fragment"],
    },
    summary: "sends IPv4 packets to their next hop: MTU, TTL, link header",
    configure: |setup| {
        setup.args.finish()?;
        Ok(Made::new(NextHop::<4>::new))
    },
};

pub(crate) const CLASS6: ElementClass = ElementClass {
    spec: ClassSpec {
        name: "IP6NextHop",
        ports: "1/3",
        processing: "h/h",
        flow: "x/x",
        output_names: &["out", "error", "hold"],
    },
    summary: "sends IPv6 packets to their next hop: MTU, hop limit, link header",
    configure: |setup| {
        setup.args.finish()?;
        Ok(Made::new(NextHop::<6>::new))
    },
};

const ERROR: u16 = 1;
const HOLD: u16 = 2;
const FRAGMENT: u16 = 3;

/// Input of fragments.
const FRAGMENTS: u16 = 1;

struct NextHop<const FAMILY: u8> {
    /// Packets of the batch that are to be looked at more closely, and the words of their legs.
    special: Vec<(usize, u32)>,
}

impl<const FAMILY: u8> NextHop<FAMILY> {
    fn new() -> Self {
        Self { special: Vec::with_capacity(BATCH) }
    }

    /// A packet that does not simply go on, or is of our own making.
    #[cold]
    fn send_special(i: usize, leg: u32, input: u16, batch: &mut Batch, cx: &Context<'_>) {
        let verdict = match Leg::adjacency_of(leg) {
            None => elsewhere(Leg::decode(leg)),
            Some(index) => {
                let adjacency = cx.forwarding.hops.view().packed_adjacency(index);
                let meta = batch.meta()[i];
                let count_down = input == FRAGMENTS || meta.flags & FLAG_GENERATED == 0;
                if !adjacency.resolved() {
                    Verdict::Hold
                } else {
                    let verdict = send::<FAMILY>(batch.bytes_mut(i), &meta, adjacency, count_down);
                    if let Verdict::Send = verdict {
                        batch.meta_mut()[i].note = adjacency.port().into();
                        return cx.counters.use_adjacency(index);
                    }
                    verdict
                }
            }
        };
        divert(batch, i, Leg::decode(leg), &verdict);
    }

    /// Which of the legs of a group a packet takes.
    #[cold]
    fn choose(hops: &HopTable, meta: &Meta, frame: &[u8], seed: u64) -> Leg {
        let packet = frame.get(meta.network.into()..).unwrap_or(&[]);
        let hash =
            if FAMILY == 4 { flow::of_ip4(seed, packet) } else { flow::of_ip6(seed, packet) };
        hops.leg(meta.hop, hash)
    }
}

/// What became of a packet.
enum Verdict {
    Send,
    Error(Cause),
    Hold,
    Fragment(u16),
    Drop(DropReason),
}

impl<const FAMILY: u8> Element for NextHop<FAMILY> {
    fn process(&mut self, input: u16, batch: &mut Batch, cx: &mut Context<'_>) {
        let table = &*cx.forwarding.hops;
        let (hops, special) = (table.view(), &mut self.special);
        batch.each(|i, one| {
            // Nearly all legs name an adjacency, and only the others are worth decoding.
            let leg = if input == FRAGMENTS {
                one.meta.hop.0
            } else {
                hops.only_leg(one.meta.hop).unwrap_or_else(|| {
                    Self::choose(table, one.meta, one.frame, cx.flow_seed).encode()
                })
            };
            if let Some(index) = Leg::adjacency_of(leg)
                && let adjacency = hops.packed_adjacency(index)
                && adjacency.resolved()
                && one.meta.flags & FLAG_GENERATED == 0
                && let Verdict::Send = send::<FAMILY>(one.frame, one.meta, adjacency, true)
            {
                one.meta.note = adjacency.port().into();
                cx.counters.use_adjacency(index);
            } else {
                special.push((i, leg));
            }
        });
        while let Some((i, leg)) = self.special.pop() {
            Self::send_special(i, leg, input, batch, cx);
        }
    }
}

/// What becomes of a packet whose leg has no adjacency.
#[cold]
fn elsewhere(leg: Leg) -> Verdict {
    match leg {
        Leg::Adjacency(_) | Leg::Glean(_) => Verdict::Hold,
        Leg::NoRoute => Verdict::Error(Cause::NoRoute),
        Leg::Unreachable => Verdict::Error(Cause::Unreachable),
        Leg::Prohibit => Verdict::Error(Cause::Prohibit),
        Leg::Blackhole => Verdict::Drop(DropReason::Blackhole),
        Leg::Local => Verdict::Drop(DropReason::Local),
    }
}

/// Labels a packet that does not simply go on.
#[cold]
fn divert(batch: &mut Batch, i: usize, leg: Leg, verdict: &Verdict) {
    let meta = &mut batch.meta_mut()[i];
    let output = match *verdict {
        Verdict::Send => return,
        Verdict::Drop(reason) => return batch.discard(i, reason),
        Verdict::Error(cause) => {
            meta.note = cause.note();
            ERROR
        }
        Verdict::Hold => {
            meta.note = leg.encode();
            HOLD
        }
        Verdict::Fragment(mtu) => {
            meta.note = mtu.into();
            meta.hop = NextHopId(leg.encode());
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
) -> Verdict {
    if FAMILY == 4 {
        send_v4(frame, meta, adjacency, count_down)
    } else {
        send_v6(frame, meta, adjacency, count_down)
    }
}

#[inline(always)]
fn send_v4(frame: &mut [u8], meta: &Meta, adjacency: PackedAdjacency, count_down: bool) -> Verdict {
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
    if count_down && let Some(mut ip) = Ip4Mut::at(frame, at) {
        ip.decrement_ttl();
    }
    write_link(frame, adjacency);
    Verdict::Send
}

#[inline(always)]
fn send_v6(frame: &mut [u8], meta: &Meta, adjacency: PackedAdjacency, count_down: bool) -> Verdict {
    let len = frame.len();
    let (ETHER_BYTES, Some(frame)) = (usize::from(meta.network), frame.first_chunk_mut()) else {
        return Verdict::Drop(DropReason::TooShort);
    };
    let frame: &mut [u8; ETHER_BYTES + IP6_BYTES] = frame;
    let (len, at) = (len - ETHER_BYTES, ETHER_BYTES);
    let Some(ip) = Ip6::at(frame, at) else { return Verdict::Drop(DropReason::TooShort) };
    // RFC 4007 9: a packet with a link-local source stays on its link.
    if is_link_local(ip.src()) && adjacency.port() != meta.port {
        return Verdict::Error(Cause::Scope);
    }
    if len > usize::from(adjacency.mtu()) {
        return Verdict::Error(Cause::TooBig(adjacency.mtu()));
    }
    if count_down && ip.hop_limit() <= 1 {
        return Verdict::Error(Cause::TtlExpired);
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
    use crate::buf::Decision;
    use crate::testing::{Bench, World, frame_v4, frame_v6, neighbor_mac, port_mac};
    use crate::wire::ip4::sum_is_valid;

    fn world() -> (World, Vec<NextHopId>) {
        let mut world = World::new();
        world.neighbor(5, 1);
        world.neighbor(6, 2);
        world.neighbor(7, 0);
        world.hops.set_unresolved(8, 1, false);
        let mut hops = vec![NextHopId::NONE];
        for leg in [
            Leg::Adjacency(5),
            Leg::Adjacency(6),
            Leg::Adjacency(7),
            Leg::Adjacency(8),
            Leg::Glean(1),
            Leg::Local,
            Leg::Blackhole,
            Leg::Unreachable,
            Leg::Prohibit,
        ] {
            hops.push(world.hop(leg));
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
        let (batch, bench) = run(&world, &frame, 0, |m| m.hop = hops[1]);
        assert_eq!((batch.decision(0), batch.meta()[0].note), (Decision::Output(0), 1));
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
        let (batch, _) = run(&world, &frame, 0, |m| m.hop = hops[1]);
        let mut want = frame.clone();
        want[..6].copy_from_slice(&neighbor_mac(5).0);
        want[6..12].copy_from_slice(&port_mac(1).0);
        want[21] = 63;
        assert_eq!(batch.bytes(0), want);
    }

    #[test]
    fn what_each_leg_means() {
        let (world, hops) = world();
        let error = |cause: Cause| (Decision::Output(ERROR), Some(cause.note()));
        let hold = |leg: Leg| (Decision::Output(HOLD), Some(leg.encode()));
        let want = [
            error(Cause::NoRoute),
            (Decision::Output(0), Some(1)),
            (Decision::Output(0), Some(2)),
            (Decision::Output(0), Some(0)),
            hold(Leg::Adjacency(8)),
            hold(Leg::Glean(1)),
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
                let (batch, _) = run(&world, &frame, 0, |m| m.hop = *hop);
                assert_eq!(batch.decision(0), want.0, "{hop:?}");
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
    fn packets_that_are_too_big() {
        let (world, hops) = world();
        let seen = |frame: &[u8], hop: NextHopId| {
            let (batch, _) = run(&world, frame, 0, |m| m.hop = hop);
            assert_ne!(batch.decision(0), Decision::Output(0));
            (batch.decision(0), batch.meta()[0].note, batch.meta()[0].hop)
        };
        let mut frame = frame_v4("10.0.0.9", "192.0.2.1", 64, 17, &[0; 1261]);
        let leg = NextHopId(Leg::Adjacency(6).encode());
        assert_eq!(seen(&frame, hops[2]), (Decision::Output(FRAGMENT), 1280, leg));
        frame[14 + 6] = 0x40;
        let too_big = (Decision::Output(ERROR), Cause::TooBig(1280).note(), hops[2]);
        assert_eq!(seen(&frame, hops[2]), too_big);
        let frame = frame_v6("2001:db8::9", "2001:db8:5::1", 64, 17, &[0; 1241]);
        assert_eq!(seen(&frame, hops[2]), too_big);
        for frame in [
            frame_v4("10.0.0.9", "192.0.2.1", 64, 17, &[0; 1260]),
            frame_v6("2001:db8::9", "2001:db8:5::1", 64, 17, &[0; 1240]),
        ] {
            let (batch, _) = run(&world, &frame, 0, |m| m.hop = hops[2]);
            assert_eq!(batch.decision(0), Decision::Output(0), "exactly the MTU fits");
        }
    }

    #[test]
    fn fragments_keep_their_leg_and_count_down() {
        let (world, _) = world();
        let frame = frame_v4("10.0.0.9", "192.0.2.1", 64, 17, &[0; 100]);
        let (batch, _) = run(&world, &frame, FRAGMENTS, |m| {
            m.hop = NextHopId(Leg::Adjacency(6).encode());
            m.flags = FLAG_GENERATED;
        });
        assert_eq!((batch.decision(0), batch.meta()[0].note), (Decision::Output(0), 2));
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
                m.hop = hops[1];
                m.flags = FLAG_GENERATED;
            });
            assert_eq!((batch.decision(0), batch.bytes(0)[at]), (Decision::Output(0), 64));
        }
    }

    #[test]
    fn none_leaves_with_a_ttl_that_is_used_up() {
        let (world, hops) = world();
        for ttl in [0, 1] {
            for frame in [
                frame_v4("10.0.0.9", "192.0.2.1", ttl, 17, &[]),
                frame_v6("2001:db8::9", "2001:db8:5::1", ttl, 17, &[]),
            ] {
                let (batch, _) = run(&world, &frame, 0, |m| m.hop = hops[1]);
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
        let (batch, _) = run(&world, &frame, 0, |m| m.hop = hops[1]);
        assert_eq!(
            (batch.decision(0), batch.meta()[0].note),
            (Decision::Output(ERROR), Cause::Scope.note())
        );
        let (batch, _) = run(&world, &frame, 0, |m| m.hop = hops[3]);
        assert_eq!(batch.decision(0), Decision::Output(0), "in by port 0, out by port 0");
    }

    #[test]
    fn a_group_is_taken_by_flow() {
        let (mut world, _) = world();
        let group = world.group(&[
            Leg::Adjacency(5),
            Leg::Adjacency(6),
            Leg::Adjacency(7),
            Leg::Unreachable,
        ]);
        let mut seen = [0; 4];
        for port in 0..=255 {
            let frame = frame_v4("10.0.0.9", "192.0.2.1", 64, 17, &[4, port, 0, 53, 0, 8, 0, 0]);
            let (batch, _) = run(&world, &frame, 0, |m| m.hop = group);
            let (again, _) = run(&world, &frame, 0, |m| m.hop = group);
            assert_eq!(batch.meta()[0].note, again.meta()[0].note);
            match batch.decision(0) {
                Decision::Output(0) => seen[batch.meta()[0].note as usize] += 1,
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
            let (batch, _) = run(&world, &frame[..30], 0, |m| m.hop = hops[1]);
            assert_eq!(batch.decision(0), Decision::Drop(DropReason::TooShort));
        }
    }
}
