//! The program of an internal interface against the reference, frame by frame, and what several CPUs and the loss of
//! tables do to it.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};

use fingerpost_packet::cases::Built;
use fingerpost_route::{Adjacency, KernelReader, Mac};
use proptest::prelude::Rng;
use proptest::test_runner::{RngAlgorithm, TestRng};

use super::reference::{Done, HEADER, Link, Node};
use super::*;
use crate::xdp::forward::{CAP_BYTES, Forwarder, Received, Vlan};
use crate::xdp::{Classifier, LocalAddresses, Mode, XDP_DROP, XDP_PASS, XDP_REDIRECT, testing};

const SETTINGS: FabricSettings = FabricSettings { node: 3, cluster: 7, ethertype: 0x88b5 };
/// Members: the table has lines for the numbers below.
const NODES: usize = 8;
const EPOCH: u8 = 1;
const HOUR_NS: u64 = 3_600_000_000_000;

/// Ports: the internal one, an external one, one that is closed, one without a device, and a VLAN interface.
const INTERNAL: u16 = 40;
const OPEN: u16 = 41;
const CLOSED: u16 = 42;
const GONE: u16 = 43;
const TAGGED: u16 = 44;
const VLAN_ID: u16 = 100;

struct Lab {
    forwarder: Forwarder,
    topology: Built,
    fabric: Arc<Fabric>,
    classifier: Arc<Classifier>,
    socket: OwnedFd,
}

/// Words of a node, made in the memory that programs share.
fn words(forwarder: &Forwarder) -> FabricWords {
    let mut memory = forwarder.shared().memory.make();
    FabricWords {
        links: memory.region("links", NODES * 64).unwrap(),
        outputs: memory.region("outputs", 64 * 4).unwrap(),
        nodes: memory.region("nodes", NODES * 4).unwrap(),
    }
}

impl Lab {
    fn new() -> Self {
        let forwarder = Forwarder::new(0, CAP_BYTES).unwrap();
        let topology = Built::of_cases_shared(&forwarder.shared());
        let (near, _) = testing::veth("i0", "i1", 1);
        let (out, _) = testing::veth("o0", "o1", 1);
        let local = LocalAddresses::new().unwrap();
        let classifier = Classifier::load(testing::mac("i0"), &local, 2048).unwrap();
        let link = Arc::new(classifier.attach(near, Mode::Native).unwrap());
        let classifier = Arc::new(classifier);
        let fabric = Arc::new(Fabric::new(SETTINGS, words(&forwarder)).unwrap());
        let socket = testing::xdp_socket();
        let add = |classifier: &Arc<Classifier>| {
            forwarder.add_fabric_port(INTERNAL, near, classifier.clone(), link, fabric.clone())
        };
        add(&classifier).unwrap();
        for port in [OPEN, CLOSED] {
            forwarder.add_device(port, out).unwrap();
        }
        for port in [INTERNAL, OPEN, GONE] {
            forwarder.open_egress(port, true);
        }
        let mac = Mac([2, 0, 0, 0, 9, 9]);
        let vlan = Vlan { port: TAGGED, parent: OPEN, ifindex: out, id: VLAN_ID, mac };
        forwarder.set_vlans(vec![vlan]).unwrap();
        Self { forwarder, topology, fabric, classifier, socket }
    }

    fn open_socket(&self, open: bool) {
        if open {
            self.classifier.set_socket(0, self.socket.as_fd()).unwrap();
        } else {
            self.classifier.clear_sockets(1).unwrap();
        }
    }

    fn count(&self, end: FabricEnd) -> u64 {
        self.fabric.counts()[end as usize].1
    }

    fn set_link(&self, node: usize, link: &Link) {
        let flags = u64::from(link.usable) | u64::from(link.there) << 1;
        let word = u64::from(link.port) | flags << 16;
        let values = [
            link.busy_all,
            link.busy_transit,
            word,
            link.ns_per_byte,
            link.limit_ns,
            link.dropped_transit,
            0,
            link.bytes,
        ];
        let cells = &self.fabric.words().links.u64s()[node * 8..node * 8 + 8];
        cells.iter().zip(values).for_each(|(cell, value)| cell.store(value, Relaxed));
    }

    fn link(&self, node: usize) -> Link {
        let word = |at: usize| self.fabric.words().links.u64s()[node * 8 + at].load(Relaxed);
        Link {
            busy_all: word(0),
            busy_transit: word(1),
            port: u16::try_from(word(2) & 0xffff).unwrap(),
            usable: word(2) >> 16 & 1 == 1,
            there: word(2) >> 17 & 1 == 1,
            ns_per_byte: word(3),
            limit_ns: word(4),
            dropped_transit: word(5),
            bytes: word(7),
        }
    }
}

/// A good frame of that phase to an egress node, by an adjacency index, with a packet of so many bytes.
fn frame(output: u16, phase: u8, index: u32, packet_bytes: usize) -> Vec<u8> {
    let mut frame = vec![2, SETTINGS.cluster, 0, 3];
    frame.extend(output.to_be_bytes());
    frame.extend([2, SETTINGS.cluster, 0, 9, phase, EPOCH]);
    frame.extend(SETTINGS.ethertype.to_be_bytes());
    frame.extend((index << 8).to_be_bytes());
    frame.extend((0..packet_bytes).map(|at| if at == 0 { 0x45 } else { at as u8 }));
    frame
}

fn action(end: FabricEnd) -> i32 {
    match end {
        FabricEnd::Transit | FabricEnd::Output => XDP_REDIRECT,
        FabricEnd::Probe => XDP_PASS,
        end if end < FabricEnd::External => XDP_REDIRECT,
        _ => XDP_DROP,
    }
}

/// Random and mutated frames, with links and adjacencies of every kind: frames, links and counters come out alike.
#[test]
fn the_program_agrees_with_the_reference() {
    testing::in_namespace(|| {
        let mut lab = Lab::new();
        lab.forwarder.follow(&lab.topology.forwarding);
        let both = FabricReads { transits: true, delivers: true };
        assert_eq!(lab.forwarder.fabric_reads(INTERNAL), Some(Ok(both)));
        let program = lab.forwarder.tester(INTERNAL).unwrap();

        // Adjacencies from 100 on, and one behind the table, each under its place and 1.
        let hops = lab.topology.forwarding.hops.clone();
        let ports = [OPEN, CLOSED, GONE, TAGGED, 4096, OPEN, OPEN];
        for (at, port) in (0..).zip(ports) {
            let mtu = [1500, 1500, 1500, 1500, 1500, 40, 0][at as usize];
            let (dst, src) = (Mac([4, 1, 2, 3, 4, at as u8]), Mac([6, 5, 4, 3, 2, 1]));
            hops.set_adjacency(100 + at, Adjacency { dst, src, port, mtu });
        }
        let outputs: Vec<u32> = [0].into_iter().chain(101..108).chain([60_000, u32::MAX]).collect();
        let all = lab.fabric.words().outputs.u32s();
        let outputs: Vec<u32> = (0..all.len()).map(|at| *outputs.get(at).unwrap_or(&0)).collect();
        all.iter().zip(&outputs).for_each(|(cell, word)| cell.store(*word, Relaxed));
        let accepted = &lab.fabric.words().nodes.u32s()[usize::from(SETTINGS.node)];
        // What lies above the low 8 bits means nothing here.
        accepted.store(0xabcd_0000 | u32::from(EPOCH), Relaxed);

        let mut random = TestRng::from_seed(RngAlgorithm::ChaCha, &[9; 32]);
        let mut below = |n: usize| (random.next_u64() % n as u64) as usize;
        let mut now = 0;
        let mut seen: BTreeMap<FabricEnd, u64> = BTreeMap::new();
        let mut received = Received::default();
        let mut sent: BTreeMap<u16, (u64, u64)> = BTreeMap::new();
        let mut used: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
        for round in 0..30_000 {
            let node = below(NODES);
            let busy = |at: usize| [0, now + HOUR_NS, now + 3 * HOUR_NS][at];
            let link = Link {
                busy_all: busy(below(3)),
                busy_transit: busy([0, 0, 1, 2][below(4)]),
                port: [OPEN, OPEN, INTERNAL, CLOSED, GONE, 5000][below(6)],
                usable: below(6) > 0,
                there: below(6) > 0,
                ns_per_byte: [0, 1 << 16, 52_429, 1 << 30][below(4)],
                limit_ns: [0, 2 * HOUR_NS, 2 * HOUR_NS, 2 * HOUR_NS][below(4)],
                dropped_transit: 5,
                bytes: 1000,
            };
            for other in 0..NODES {
                let free = Link { busy_all: 0, busy_transit: 0, ..lab.link(other) };
                lab.set_link(other, if other == node { &link } else { &free });
            }
            if round % 100 == 0 {
                lab.open_socket(round % 300 > 0);
            }
            let own = below(2) == 0;
            let output = if own { SETTINGS.node } else { u16::try_from(node).unwrap() };
            let index = u32::try_from(below(11)).unwrap();
            let packet_bytes = [20, 40, 41, 60, 1500, 1501][below(6)];
            let mut sample = frame(output, 1 + u8::from(own && below(2) == 0), index, packet_bytes);
            sample[HEADER] = [0x45, 0x45, 0x60, 0x4f][below(4)];
            sample[11] = EPOCH.wrapping_sub([0, 0, 0, 1, 1, 2, 0xff][below(7)] as u8);
            for _ in 0..[0, 0, 0, 1, 2, 6][below(6)] {
                let at = if below(4) > 0 { below(HEADER + 1) } else { below(sample.len()) };
                sample[at] = [0, 1, 2, 3, 7, 0xff, below(256) as u8][below(7)];
            }
            if below(16) == 0 {
                sample.truncate(14 + below(8));
            }
            if below(50) == 0 {
                sample.iter_mut().for_each(|byte| *byte = below(256) as u8);
            }

            let links = || -> Vec<Link> { (0..NODES).map(|node| lab.link(node)).collect() };
            let before = links();
            let counted = lab.fabric.counts();
            let answer = program.test(&sample).unwrap();
            let after = links();
            // The clock that the program saw, where a link has it.
            for (old, new) in before.iter().zip(&after) {
                let cost = (old.ns_per_byte * sample.len() as u64) >> 16;
                for (old, new) in
                    [(old.busy_transit, new.busy_transit), (old.busy_all, new.busy_all)]
                {
                    if old == 0 && new > 0 {
                        let seen = new - cost;
                        assert!(now == 0 || (now..now + HOUR_NS / 2).contains(&seen), "{seen}");
                        now = seen;
                    }
                }
            }
            let mut reference = Node {
                settings: SETTINGS,
                links: before,
                outputs: outputs.clone(),
                epoch: EPOCH,
                adjacency: &|index| hops.adjacency(index),
                egress: &|port| match port {
                    INTERNAL | OPEN | GONE => Some(None),
                    TAGGED => Some(Some(VLAN_ID)),
                    _ => None,
                },
                device: &|port| port != GONE,
                socket: round % 300 >= 100,
            };
            let Done { end, frame, sent: by } = reference.receive(&sample, now);
            let what = format!("round {round}: {end:?}, {link:?}, {sample:02x?}");
            assert_eq!(answer.action.cast_signed(), action(end), "{what}");
            assert_eq!(answer.frame, frame, "{what}");
            assert_eq!(reference.links, after, "{what}");
            for (old, new) in counted.iter().zip(lab.fabric.counts()) {
                assert_eq!(new.1 - old.1, u64::from(new.0 == end), "{:?}, {what}", new.0);
            }
            *seen.entry(end).or_default() += 1;
            if (FabricEnd::Probe..FabricEnd::External).contains(&end) {
                received.left += 1;
            } else {
                received.packets += 1;
                received.bytes += sample.len() as u64;
            }
            if let Some((port, adjacency)) = by {
                let add = |count: &mut (u64, u64)| {
                    *count = (count.0 + 1, count.1 + frame.len() as u64);
                };
                add(sent.entry(port).or_default());
                adjacency.into_iter().for_each(|index| add(used.entry(index).or_default()));
            }
        }
        let missing: Vec<_> = FabricEnd::ALL
            .iter()
            .filter(|end| **end != FabricEnd::NoTable && seen.get(end).is_none_or(|n| *n < 20))
            .collect();
        assert!(missing.is_empty(), "{missing:?} of {seen:?}");
        println!("{seen:?}");
        assert_eq!(lab.forwarder.received()[&INTERNAL], received);
        for port in 0..100 {
            let of = lab.forwarder.sent(port);
            assert_eq!((of.packets, of.bytes), sent.get(&port).copied().unwrap_or_default());
        }
        for (index, of) in (0..).zip(lab.forwarder.used().unwrap()) {
            assert_eq!((of.packets, of.bytes), used.get(&index).copied().unwrap_or_default());
        }
    });
}

/// Without tables, frames for this node go to the socket; with links in other memory, those for other nodes as well.
#[test]
fn what_a_program_cannot_read_goes_to_the_socket() {
    testing::in_namespace(|| {
        let mut lab = Lab::new();
        lab.open_socket(true);
        let reads = |lab: &Lab| lab.forwarder.fabric_reads(INTERNAL).unwrap().unwrap();
        assert_eq!(reads(&lab), FabricReads { transits: true, delivers: false });
        let usable = Link {
            busy_all: 0,
            busy_transit: 0,
            port: OPEN,
            usable: true,
            there: true,
            ns_per_byte: 0,
            limit_ns: 0,
            dropped_transit: 0,
            bytes: 0,
        };
        lab.set_link(5, &usable);
        let ends = |lab: &Lab| {
            let before = lab.fabric.counts();
            let program = lab.forwarder.tester(INTERNAL).unwrap();
            for sample in [frame(3, 2, 1, 40), frame(5, 1, 1, 40)] {
                assert_eq!(program.test(&sample).unwrap().action.cast_signed(), XDP_REDIRECT);
            }
            let after = lab.fabric.counts();
            let grown = before.iter().zip(after).filter(|(old, new)| new.1 > old.1);
            grown.map(|(_, new)| new.0).collect::<Vec<_>>()
        };
        assert_eq!(ends(&lab), [FabricEnd::Transit, FabricEnd::NoTable]);
        lab.forwarder.follow(&lab.topology.forwarding);
        lab.fabric.words().nodes.u32s()[3].store(EPOCH.into(), Relaxed);
        assert_eq!(reads(&lab), FabricReads { transits: true, delivers: true });
        assert_eq!(ends(&lab), [FabricEnd::Transit, FabricEnd::Lookup]);

        // In ordinary memory.
        let mut heap = fingerpost_lpm::Heap;
        let mut region = |bytes| fingerpost_lpm::Memory::region(&mut heap, "x", bytes).unwrap();
        let elsewhere =
            FabricWords { links: region(512), outputs: region(256), nodes: region(256) };
        lab.fabric = Arc::new(Fabric::new(SETTINGS, elsewhere).unwrap());
        let (near, _) = testing::veth("j0", "j1", 1);
        let link = Arc::new(lab.classifier.attach(near, Mode::Native).unwrap());
        let (classifier, fabric) = (lab.classifier.clone(), lab.fabric.clone());
        lab.forwarder.add_fabric_port(INTERNAL, near, classifier, link, fabric).unwrap();
        assert_eq!(reads(&lab), FabricReads::default());
        assert_eq!(ends(&lab), [FabricEnd::NoTable]);
        // A node whose number is beyond the table delivers nothing.
        let settings = FabricSettings { node: 3000, ..SETTINGS };
        lab.fabric = Arc::new(Fabric::new(settings, words(&lab.forwarder)).unwrap());
        let (near, _) = testing::veth("k0", "k1", 1);
        let link = Arc::new(lab.classifier.attach(near, Mode::Native).unwrap());
        let (classifier, fabric) = (lab.classifier.clone(), lab.fabric.clone());
        lab.forwarder.add_fabric_port(INTERNAL, near, classifier, link, fabric).unwrap();
        assert_eq!(reads(&lab), FabricReads { transits: true, delivers: false });

        let before = lab.forwarder.received()[&INTERNAL];
        lab.forwarder.remove_port(INTERNAL);
        assert_eq!(lab.forwarder.fabric_reads(INTERNAL), None);
        assert_eq!(lab.forwarder.received()[&INTERNAL], before, "counts stay");
    });
}

/// Two CPUs that charge one link lose nothing of its time.
#[test]
fn no_charge_is_lost_between_cpus() {
    testing::in_namespace(|| {
        const ROUNDS: u64 = 5_000;
        let mut lab = Lab::new();
        lab.forwarder.follow(&lab.topology.forwarding);
        let sample = frame(5, 1, 0, 82);
        let busy = u64::MAX >> 2;
        let link = Link {
            busy_all: busy,
            busy_transit: 0,
            port: OPEN,
            usable: true,
            there: true,
            ns_per_byte: 100 << 16,
            limit_ns: u64::MAX >> 1,
            dropped_transit: 0,
            bytes: 0,
        };
        lab.set_link(5, &link);
        let program = lab.forwarder.tester(INTERNAL).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| (0..ROUNDS).for_each(|_| drop(program.test(&sample).unwrap())));
            }
        });
        let cost = 100 * sample.len() as u64;
        let after = lab.link(5);
        assert_eq!(lab.count(FabricEnd::Transit), 2 * ROUNDS);
        assert_eq!(after.busy_all, busy + 2 * ROUNDS * cost);
        assert_eq!(after.bytes, 2 * ROUNDS * sample.len() as u64);
    });
}
