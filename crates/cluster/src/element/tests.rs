//! Nodes of a cluster in one process: their graphs, and a network that carries frames by hop target.

use fingerpost_lpm::Rng;
use fingerpost_packet::frame::DropReason;
use fingerpost_packet::testing::{batch, frame_v4, frame_v6, neighbor_mac, port_mac};

use super::testing::{EXTERNAL, FABRIC, INDEX, INTERNAL, NEIGHBOR, Node, node};
use crate::fabric::Mode;
use crate::frame::{ETHERTYPE, FabricAddr, HEADER_BYTES, Header, LOOKUP};
use crate::rule::{Members, NodeId, NodeState, Phase, Rule};

/// Nodes 0 to n - 1. Behind node k are 198.51.k.0/24 and 2001:db8:k00::/40; its host is 192.0.2.k.
struct Cluster(Vec<Node>);

impl Node {
    /// Frames that it sends once it has received these by a port.
    fn receive(&mut self, port: u16, frames: &[Vec<u8>]) -> Vec<(u16, Vec<u8>)> {
        let frames = batch(&self.bench.pool, port, frames.iter().map(|frame| &frame[..]));
        self.graph.receive(port, frames, &mut self.bench.round());
        let sent = std::mem::take(&mut self.bench.sent.frames);
        sent.into_iter().map(|(port, bytes, _)| (port, bytes)).collect()
    }

    fn dropped(&self, reason: DropReason) -> u64 {
        self.bench.counters.dropped[reason as usize].read()
    }
}

impl Cluster {
    fn new(nodes: usize, mode: Mode, rule: Rule, rate: Option<u64>) -> Self {
        let number = |n| NodeId::try_from(n).unwrap();
        Self((0..nodes).map(|n| node(number(n), nodes, mode, rule, rate)).collect())
    }

    fn members(&self, change: impl Fn(&mut Members)) {
        for node in &self.0 {
            let mut members = node.fabric.reader().pin().clone();
            change(&mut members);
            node.fabric.set_members(members);
        }
    }

    fn pass(&mut self, ns: u64) {
        self.0.iter_mut().for_each(|node| node.bench.now_ns += ns);
    }

    /// Carries frames that a node received through the cluster. What leaves it, by node and port, with the nodes it passed.
    fn carry(&mut self, at: usize, port: u16, frame: &[u8]) -> Vec<(usize, u16, Vec<u8>, usize)> {
        let mut left = vec![(at, port, frame.to_vec(), 1)];
        let mut out = Vec::new();
        while let Some((at, port, frame, passed)) = left.pop() {
            assert!(passed <= 3, "a packet deviates once");
            for (port, frame) in self.0[at].receive(port, &[frame]) {
                if port == INTERNAL {
                    let hop = Header::parse(&frame, ETHERTYPE).unwrap().hop;
                    left.push((hop.into(), INTERNAL, frame, passed + 1));
                } else {
                    out.push((at, port, frame, passed));
                }
            }
        }
        out
    }
}

fn to_node(node: usize, flow: u16, ipv6: bool) -> Vec<u8> {
    let [a, b] = flow.to_be_bytes();
    let payload = [a, b, 0, 53, 0, 18, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10];
    if ipv6 {
        return frame_v6("2001:db8::9", &format!("2001:db8:{node:x}00::5"), 64, 17, &payload);
    }
    frame_v4("10.0.0.9", &format!("198.51.{node}.5"), 64, 17, &payload)
}

#[test]
fn every_node_reaches_every_other_one() {
    for (mode, rule) in [
        (Mode::Direct, Rule::Adaptive),
        (Mode::Vlb, Rule::Vlb),
        (Mode::Vlb, Rule::Fixed),
        (Mode::Vlb, Rule::Adaptive),
    ] {
        let mut cluster = Cluster::new(5, mode, rule, None);
        let mut longest = 0;
        for (at, to) in (0..25).map(|pair| (pair / 5, pair % 5)) {
            for (flow, ipv6) in (0..40).map(|flow| (flow, flow % 2 == 1)) {
                let sent = to_node(to, flow, ipv6);
                let out = cluster.carry(at, EXTERNAL, &sent);
                let [(node, EXTERNAL, frame, passed)] = &out[..] else { panic!("{out:?}") };
                assert_eq!(*node, to);
                longest = longest.max(*passed);
                // Link addresses of the egress node, TTL counted once, all else as it was.
                let mut expected = sent.clone();
                expected[..6].copy_from_slice(&neighbor_mac(NEIGHBOR).0);
                expected[6..12].copy_from_slice(&port_mac(0).0);
                expected[if ipv6 { 21 } else { 22 }] = 63;
                if !ipv6 {
                    fingerpost_packet::testing::fill_ip4_checksum(&mut expected);
                }
                assert_eq!(*frame, expected, "{at} to {to}, {mode:?}, {rule:?}");
            }
        }
        let balanced = matches!((mode, rule), (Mode::Vlb, Rule::Vlb));
        assert_eq!(longest, if balanced { 3 } else { 2 }, "{mode:?}, {rule:?}");
        let counts = |read: fn(&crate::fabric::NodeCounts) -> u64| -> u64 {
            cluster.0.iter().map(|node| node.fabric.counts.sum(read)).sum()
        };
        assert_eq!(counts(|c| c.direct.read() + c.balanced.read()), 20 * 40);
        assert_eq!(counts(|c| c.output.read()), 20 * 40);
        assert_eq!(counts(|c| c.transit.read()), counts(|c| c.balanced.read()));
        for node in &cluster.0 {
            assert_eq!(node.bench.counters.dropped_total(), 0);
            assert_eq!(node.bench.pool.free(), node.bench.pool.frames());
        }
    }
}

#[test]
fn the_packets_of_a_flow_stay_on_their_path() {
    let mut cluster = Cluster::new(8, Mode::Vlb, Rule::Vlb, None);
    for flow in 0..30 {
        let mut hops = std::collections::BTreeSet::new();
        for _ in 0..20 {
            let sent = cluster.0[0].receive(EXTERNAL, &[to_node(5, flow, false)]);
            hops.insert(Header::parse(&sent[0].1, ETHERTYPE).unwrap().hop);
            cluster.pass(500_000);
        }
        assert_eq!(hops.len(), 1, "gaps are shorter than delta");
    }
    let count = |node: &Node| node.fabric.counts.sum(|counts| counts.flowlets.read());
    assert_eq!(count(&cluster.0[0]), 30);
    cluster.pass(5_000_000);
    cluster.0[0].receive(EXTERNAL, &[to_node(5, 3, false)]);
    assert_eq!(count(&cluster.0[0]), 31);
}

#[test]
fn a_node_that_fails_is_passed_by() {
    let mut cluster = Cluster::new(4, Mode::Vlb, Rule::Vlb, None);
    let carried = |cluster: &mut Cluster, to: usize| -> usize {
        (0..200).map(|flow| cluster.carry(0, EXTERNAL, &to_node(to, flow, false)).len()).sum()
    };
    assert_eq!(carried(&mut cluster, 1), 200);
    // Its flowlets would have led over node 2.
    cluster.members(|members| members.set_node(2, NodeState::Down));
    let transit =
        |cluster: &Cluster| cluster.0[2].fabric.counts.sum(|counts| counts.transit.read());
    let before = transit(&cluster);
    assert_eq!(carried(&mut cluster, 1), 200);
    assert!(before > 20 && transit(&cluster) == before);
    assert!(cluster.0[0].fabric.counts.sum(|counts| counts.rechosen.read()) > 20);
    // Its ports are gone with it.
    assert_eq!(carried(&mut cluster, 2), 0);
    assert_eq!(cluster.0[0].dropped(DropReason::FabricDown), 200);
    // A link alone: the pair has two hops.
    cluster.members(|members| members.set_node(2, NodeState::Active));
    cluster.members(|members| {
        members.set_link(0, 1, false);
        members.set_link(1, 0, false);
    });
    assert_eq!(carried(&mut cluster, 1), 200);
}

#[test]
fn a_full_link_drops_local_packets_before_transit() {
    let mut cluster = Cluster::new(3, Mode::Vlb, Rule::Adaptive, Some(1_000_000_000));
    // All links of node 0 are full of its own packets.
    let frames: Vec<_> = (0..2000).map(|flow| to_node(1, flow, false)).collect();
    let sent: usize =
        frames.chunks(200).map(|some| cluster.0[0].receive(EXTERNAL, some).len()).sum();
    let dropped = cluster.0[0].dropped(DropReason::FabricLinkFull);
    assert_eq!(sent as u64 + dropped, 2000);
    assert!(dropped > 500 && sent > 800, "{sent} sent, {dropped} dropped");
    let counts = |cluster: &Cluster, to| cluster.0[0].fabric.links.counts(to);
    assert!([1, 2].iter().all(|&to| counts(&cluster, to).bytes > 25_000), "both links are used");
    // A packet of node 2 on its way to node 1 still passes.
    let header = Header {
        cluster: 9,
        hop: 0,
        output: 1,
        sender: 2,
        phase: Phase::First,
        epoch: 0,
        ethertype: ETHERTYPE,
        adjacency: INDEX,
        class: crate::frame::FrameClass::Data,
    };
    let transit = [&header.bytes()[..], &to_node(1, 1, false)[14..]].concat();
    assert_eq!(cluster.0[0].receive(INTERNAL, &[transit]).len(), 1);
    assert_eq!(counts(&cluster, 1).transit_dropped, 0);
}

#[test]
fn a_frame_of_an_old_epoch_is_looked_up() {
    let mut cluster = Cluster::new(3, Mode::Direct, Rule::Adaptive, None);
    cluster.0[1].fabric.set_epoch(1, 7);
    for ipv6 in [false, true] {
        let out = cluster.carry(0, EXTERNAL, &to_node(1, 1, ipv6));
        let [(1, EXTERNAL, frame, 2)] = &out[..] else { panic!("{out:?}") };
        assert_eq!(frame[if ipv6 { 21 } else { 22 }], 63, "the TTL is counted once");
        assert_eq!(frame[..6], neighbor_mac(NEIGHBOR).0);
    }
    let counts = |read: fn(&crate::fabric::NodeCounts) -> u64| cluster.0[1].fabric.counts.sum(read);
    assert_eq!((counts(|c| c.looked_up.read()), counts(|c| c.output.read())), (2, 0));
    cluster.0[0].fabric.set_epoch(1, 7);
    cluster.carry(0, EXTERNAL, &to_node(1, 1, false));
    assert_eq!(cluster.0[1].fabric.counts.sum(|c| c.output.read()), 1);
}

#[test]
fn the_host_is_reached_from_every_node() {
    let mut cluster = Cluster::new(3, Mode::Vlb, Rule::Adaptive, None);
    let sent = frame_v4("10.0.0.9", "192.0.2.1", 64, 17, &[0, 9, 0, 179, 0, 8, 0, 0]);
    let out = cluster.carry(0, EXTERNAL, &sent);
    let [(1, FABRIC, frame, 2)] = &out[..] else { panic!("{out:?}") };
    assert_eq!(frame[..6], FabricAddr { adjacency: LOOKUP, output: 1 }.mac().0);
    assert_eq!((&frame[12..14], frame[22]), (&[8, 0][..], 63));
    // What the host sends is not forwarded again: its TTL stays.
    let mut own = frame_v4("192.0.2.1", "192.0.2.0", 64, 6, &[0; 20]);
    own[..6].copy_from_slice(&FabricAddr { adjacency: LOOKUP, output: 0 }.mac().0);
    let out = cluster.carry(1, FABRIC, &own);
    let [(0, FABRIC, frame, 2)] = &out[..] else { panic!("{out:?}") };
    assert_eq!((frame[22], &frame[14..]), (64, &own[14..]));
}

#[test]
fn every_frame_that_is_wrong_has_a_reason() {
    let mut cluster = Cluster::new(3, Mode::Vlb, Rule::Adaptive, None);
    let good = cluster.0[0].receive(EXTERNAL, &[to_node(1, 1, false)]).remove(0).1;
    let with = |at: usize, byte: u8| {
        let mut frame = good.clone();
        frame[at] = byte;
        frame
    };
    let plain = to_node(1, 1, false);
    let node = &mut cluster.0[1];
    for (port, frame, reason) in [
        (EXTERNAL, good.clone(), DropReason::FabricInternal),
        (INTERNAL, plain.clone(), DropReason::FabricExternal),
        (INTERNAL, plain[..10].to_vec(), DropReason::FabricExternal),
        (INTERNAL, good[..17].to_vec(), DropReason::FabricMalformed),
        (INTERNAL, with(0, 6), DropReason::FabricMalformed),
        (INTERNAL, with(10, 3), DropReason::FabricMalformed),
        (INTERNAL, with(18, 0x10), DropReason::FabricMalformed),
        // A header of no length, a datagram that ends after its frame, and one that ends in its header.
        (INTERNAL, with(18, 0x40), DropReason::FabricMalformed),
        (INTERNAL, with(20, 0xff), DropReason::FabricMalformed),
        (INTERNAL, with(21, 19), DropReason::FabricMalformed),
        (INTERNAL, good[..20].to_vec(), DropReason::TooShort),
        (INTERNAL, with(3, 2), DropReason::FabricNotOurs),
        (INTERNAL, with(5, 2), DropReason::FabricPhase),
    ] {
        let before = node.dropped(reason);
        assert_eq!(node.receive(port, &[frame]).len(), 0, "{reason:?}");
        assert_eq!(node.dropped(reason), before + 1, "{reason:?}");
    }
    let mut unknown = with(5, 200);
    unknown[10] = 1;
    assert_eq!(node.receive(INTERNAL, &[unknown]).len(), 0);
    assert_eq!(node.dropped(DropReason::FabricUnknownNode), 1);
}

#[test]
fn garbage_on_any_port_is_conserved() {
    let mut cluster = Cluster::new(3, Mode::Vlb, Rule::Adaptive, Some(1_000_000_000));
    let good = cluster.0[0].receive(EXTERNAL, &[to_node(1, 1, false)]).remove(0).1;
    let mut rng = Rng::new(22);
    let node = &mut cluster.0[1];
    let (mut received, mut sent) = (0, 0);
    for round in 0..3000 {
        let mut frame = good.clone();
        for _ in 0..rng.word() % 4 {
            let at = usize::try_from(rng.word()).unwrap() % frame.len();
            frame[at] = rng.word().to_le_bytes()[0];
        }
        if rng.word().is_multiple_of(2) {
            frame.truncate(HEADER_BYTES + usize::try_from(rng.word() % 40).unwrap());
        }
        let port = [INTERNAL, INTERNAL, FABRIC, EXTERNAL][round % 4];
        let frames = batch(&node.bench.pool, port, [&frame[..]]);
        node.graph.receive(port, frames, &mut node.bench.round());
        let frames = node.bench.sent.frames.drain(..);
        sent += frames.filter(|(_, _, meta)| !meta.is_ours()).count() as u64;
        received += 1;
    }
    let counters = &node.bench.counters;
    let held = u64::try_from(node.graph.held().received).unwrap();
    assert!(sent > 100, "{sent}");
    assert_eq!(sent + counters.dropped_total() + held, received);
}

#[test]
fn packets_in_a_routing_loop_expire() {
    let mut cluster = Cluster::new(3, Mode::Direct, Rule::Adaptive, None);
    let payload = [0, 1, 0, 53, 0, 18, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10];
    for frame in [
        frame_v4("10.0.0.9", "203.0.113.5", 8, 17, &payload),
        frame_v6("2001:db8::9", "2001:db8:ff00::5", 8, 17, &payload),
    ] {
        let before: u64 = cluster.0.iter().map(|node| node.dropped(DropReason::TtlExpired)).sum();
        let (mut at, mut port, mut frame, mut crossed) = (0, EXTERNAL, frame, 0);
        loop {
            let mut sent = cluster.0[at].receive(port, &[frame]);
            let Some((INTERNAL, next)) = sent.pop() else { break };
            crossed += 1;
            assert!(crossed < 20, "the loop does not end");
            at = Header::parse(&next, ETHERTYPE).unwrap().hop.into();
            (port, frame) = (INTERNAL, next);
        }
        let expired: u64 = cluster.0.iter().map(|node| node.dropped(DropReason::TtlExpired)).sum();
        assert_eq!((crossed, expired - before), (7, 1), "a hop for each node that looked it up");
    }
}
