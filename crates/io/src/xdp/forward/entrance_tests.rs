//! Packets that enter a cluster in XDP: what the program of an external interface makes of them, against what it sends to a
//! neighbor of its own, and what it leaves to the graph.

use fingerpost_lpm::Memory;
use fingerpost_packet::testing::{frame_v4, frame_v6};
use fingerpost_route::{Adjacency, Mac, UrpfMode};

use super::tests::{Lab, conserved};
use super::*;
use crate::xdp::fabric::{FabricSettings, FabricWords};
use crate::xdp::{LocalAddresses, XDP_DROP, XDP_PASS, XDP_REDIRECT, testing};

const SETTINGS: FabricSettings = FabricSettings { node: 0x103, cluster: 7, ethertype: 0x88b5 };
const NODES: u16 = 0x300;
/// An egress node, and an adjacency index there.
const OUTPUT: u16 = 0x205;
const INDEX: u32 = 0x0001_0203;
/// An epoch of that node; what lies above the low 8 bits means nothing.
const EPOCH: u32 = 0xab_fe;

/// Ports besides those of the packet cases: the fabric interface, and an internal one of that MTU.
const FABRIC: u16 = 60;
const INTERNAL: u16 = 61;
const INTERNAL_MTU: u16 = 1400;

/// A word of a link: there is one, and it is usable.
const UP: u64 = 3 << 16;

const PORT: usize = 2;
const NS_PER_BYTE: usize = 3;
const LIMIT: usize = 4;
const DROPPED_LOCAL: usize = 6;
const BYTES: usize = 7;

/// Destinations of the packet cases that have a neighbor each.
const DESTINATIONS: [&str; 2] = ["198.51.100.7", "2001:db8:180::9"];

struct Entry {
    lab: Lab,
    fabric: Arc<Fabric>,
}

fn words(memory: &mut dyn Memory) -> FabricWords {
    FabricWords {
        links: memory.region("links", usize::from(NODES) * 64).unwrap(),
        outputs: memory.region("outputs", 64 * 4).unwrap(),
        nodes: memory.region("nodes", usize::from(NODES) * 4).unwrap(),
    }
}

/// A packet to a destination with so many bytes behind the IP header, by a port of the packet cases.
fn packet(lab: &Lab, port: &str, dst: &str, bytes: usize) -> Vec<u8> {
    let content: Vec<u8> = (1..=u8::MAX).cycle().take(bytes).collect();
    let mut frame = match dst.contains(':') {
        false => frame_v4("10.1.0.2", dst, 64, 17, &content),
        true => frame_v6("2001:db8:1::2", dst, 64, 17, &content),
    };
    frame[..6].copy_from_slice(&lab.topology.mac(port).0);
    frame
}

/// The header of a packet that goes straight to its egress node (`crates/cluster/src/frame.rs`).
fn header(output: u16, index: u32, epoch: u32) -> Vec<u8> {
    let mut header = vec![2, SETTINGS.cluster];
    header.extend([output.to_be_bytes(), output.to_be_bytes()].concat());
    header.extend([2, SETTINGS.cluster]);
    header.extend(SETTINGS.node.to_be_bytes());
    header.extend([2, epoch.to_le_bytes()[0]]);
    header.extend(SETTINGS.ethertype.to_be_bytes());
    header.extend((index << 8).to_be_bytes());
    header
}

/// The address of the fabric interface's neighbor that stands for an adjacency of another node.
fn address(output: u16, index: u32) -> Mac {
    let ([_, a, b, c], [d, e]) = (index.to_be_bytes(), output.to_be_bytes());
    Mac([2, a, b, c, d, e])
}

impl Entry {
    fn new(mut lab: Lab) -> Self {
        let (near, _) = testing::veth("i0", "i1", 1);
        let mut ports = (*lab.topology.forwarding.ports).clone();
        ports.ports.resize(usize::from(INTERNAL) + 1, None);
        let wan = ports.port(lab.topology.port("wan")).cloned().unwrap();
        ports.ports[usize::from(INTERNAL)] = Some(PortInfo { mtu: INTERNAL_MTU, ..wan });
        lab.topology.forwarding.ports = Arc::new(ports);
        let mut memory = lab.forwarder.shared().memory.make();
        let fabric = Arc::new(Fabric::new(SETTINGS, words(memory.as_mut())).unwrap());
        let entry = Self { lab, fabric };
        entry.lab.forwarder.enter(FABRIC, entry.fabric.clone());
        entry.lab.forwarder.clone().follow(&entry.lab.topology.forwarding);
        let local = LocalAddresses::new().unwrap();
        let classifier = Classifier::load(testing::mac("i0"), &local, 2048).unwrap();
        let link = Arc::new(classifier.attach(near, Mode::Native).unwrap());
        let (classifier, fabric) = (Arc::new(classifier), entry.fabric.clone());
        entry.lab.forwarder.add_fabric_port(INTERNAL, near, classifier, link, fabric).unwrap();
        entry.lab.forwarder.open_egress(INTERNAL, true);
        entry
    }

    /// The adjacency that the packets to a destination take. From here on it is one of the fabric interface.
    fn redirect(&self, dst: &str) -> u32 {
        let Lab { forwarder, topology, .. } = &self.lab;
        let evaluated = forwarder.evaluate(0, &packet(&self.lab, "lan", dst, 40)[14..]).unwrap();
        let sent = evaluated.into_iter().find_map(|evaluated| match evaluated.fate {
            Ok(Fate::Sent(index)) => Some(index),
            _ => None,
        });
        let index = sent.expect("it is forwarded");
        self.set(index, address(OUTPUT, INDEX));
        assert_eq!(topology.forwarding.hops.adjacency(index).port, FABRIC);
        index
    }

    fn set(&self, index: u32, dst: Mac) {
        let adjacency = Adjacency { dst, src: Mac([2, 0, 0, 0, 1, 3]), port: FABRIC, mtu: 1500 };
        self.lab.topology.forwarding.hops.set_adjacency(index, adjacency);
    }

    fn link(&self, word: usize) -> &std::sync::atomic::AtomicU64 {
        &self.fabric.words().links.u64s()[usize::from(OUTPUT) * 8 + word]
    }

    /// The link to the egress node is up, without a rate.
    fn open(&self) {
        self.link(PORT).store(UP | u64::from(INTERNAL), Relaxed);
        self.fabric.words().nodes.u32s()[usize::from(OUTPUT)].store(EPOCH, Relaxed);
    }

    /// What the program of a port makes of a frame.
    fn answer(&self, port: &str, frame: &[u8]) -> (i32, Vec<u8>) {
        let (device, frame) = self.lab.on_wire(self.lab.topology.port(port), frame, 3);
        let answer = self.lab.forwarder.tester(device).unwrap().test(&frame).unwrap();
        (answer.action.cast_signed(), answer.frame)
    }

    /// Why the program of `lan` leaves a packet alone, which it does not touch.
    fn left(&self, dst: &str, bytes: usize) -> LeftAlone {
        let frame = packet(&self.lab, "lan", dst, bytes);
        let (before, lines) = (self.lab.forwarder.left_alone().unwrap(), self.line());
        assert_eq!(self.answer("lan", &frame), (XDP_PASS, frame), "{dst}");
        assert_eq!(self.line(), lines, "nothing is charged");
        let after = self.lab.forwarder.left_alone().unwrap();
        after.iter().zip(&before).find(|(a, b)| a.1 > b.1).expect("it is counted").0.0
    }

    fn line(&self) -> Vec<u64> {
        (0..8).map(|word| self.link(word).load(Relaxed)).collect()
    }
}

/// Packets of both families, with padding and without, leave with the internal header, and else as by an ordinary
/// adjacency.
fn packets_have_the_internal_header(lab: Lab, ports: &[&str]) {
    let entry = Entry::new(lab);
    let forwarder = &entry.lab.forwarder;
    entry.open();
    let mut inputs = Vec::new();
    for dst in DESTINATIONS {
        for (port, bytes, padding) in
            ports.iter().flat_map(|port| [(port, 8, 0), (port, 8, 9), (port, 1300, 0)])
        {
            let mut frame = packet(&entry.lab, port, dst, bytes);
            let len = frame.len() - 14;
            frame.resize(frame.len() + padding, 0);
            let (action, out) = entry.answer(port, &frame);
            assert_eq!(action, XDP_REDIRECT, "{dst} by {port}");
            inputs.push((port, dst, frame, out[out.len() - len..].to_vec()));
        }
    }
    let indices = DESTINATIONS.map(|dst| entry.redirect(dst));
    let (used, sent) = (forwarder.used().unwrap(), forwarder.sent(INTERNAL));
    let mut bytes = 0;
    for (at, (port, dst, frame, packet)) in inputs.iter().enumerate() {
        let out = [header(OUTPUT, INDEX, EPOCH), packet.clone()].concat();
        bytes += out.len() as u64;
        assert_eq!(entry.answer(port, frame), (XDP_REDIRECT, out), "{dst} by {port}");
        assert_eq!(entry.fabric.entered(), at as u64 + 1);
    }
    // The same sums in different places.
    let count = inputs.len() as u64;
    assert_eq!((entry.link(BYTES).load(Relaxed), sent), (bytes, Used::default()));
    assert_eq!(forwarder.sent(INTERNAL), Used { packets: count, bytes });
    let after = forwarder.used().unwrap();
    let by: u64 = indices
        .iter()
        .map(|&at| after[at as usize].packets - used.get(at as usize).map_or(0, |u| u.packets))
        .sum();
    assert_eq!(by, count);
    conserved(forwarder);
    // By index 0 to another node.
    entry.set(indices[0], address(OUTPUT + 1, 0));
    let link = &entry.fabric.words().links.u64s()[usize::from(OUTPUT + 1) * 8 + PORT];
    link.store(UP | u64::from(INTERNAL), Relaxed);
    let (port, _, frame, packet) = &inputs[0];
    let out = [header(OUTPUT + 1, 0, 0), packet.clone()].concat();
    assert_eq!(entry.answer(port, frame), (XDP_REDIRECT, out));
}

#[test]
fn packets_of_untagged_interfaces_have_the_internal_header() {
    testing::in_namespace(|| packets_have_the_internal_header(Lab::new(), &["lan"]));
}

#[test]
fn packets_of_vlan_interfaces_have_the_internal_header() {
    testing::in_namespace(|| {
        let lab = Lab::tagged();
        let vlan = lab.vlans[0];
        let name = lab.topology.port_name(vlan.port).to_owned();
        packets_have_the_internal_header(lab, &["lan", &name]);
    });
}

#[test]
fn packets_of_interfaces_with_features_have_the_internal_header() {
    testing::in_namespace(|| {
        let mut lab = Lab::new();
        let lan = usize::from(lab.topology.port("lan"));
        let mut ports = (*lab.topology.forwarding.ports).clone();
        // Sources of the packets are reached somewhere.
        ports.ports[lan].as_mut().unwrap().urpf = Some(UrpfMode::Loose);
        lab.topology.forwarding.ports = Arc::new(ports);
        lab.forwarder.follow(&lab.topology.forwarding.clone());
        packets_have_the_internal_header(lab, &["lan"]);
    });
}

/// What the graph knows better is left to it as it came, and charged nowhere.
#[test]
fn what_cannot_take_the_direct_link_is_left_to_the_graph() {
    testing::in_namespace(|| {
        let entry = Entry::new(Lab::new());
        let forwarder = &entry.lab.forwarder;
        let indices = DESTINATIONS.map(|dst| entry.redirect(dst));
        for (index, dst) in indices.into_iter().zip(DESTINATIONS) {
            let header_bytes = if dst.contains(':') { 40 } else { 20 };
            let longest = usize::from(INTERNAL_MTU) - 4 - header_bytes;
            entry.open();
            let sent = |bytes| entry.answer("lan", &packet(&entry.lab, "lan", dst, bytes)).0;
            assert_eq!(sent(longest), XDP_REDIRECT);
            assert_eq!(entry.left(dst, longest + 1), LeftAlone::TooBig);
            for word in [0, 1 << 16, 2 << 16] {
                entry.link(PORT).store(word | u64::from(INTERNAL), Relaxed);
                assert_eq!(entry.left(dst, 40), LeftAlone::Egress, "{word:x}");
            }
            for port in [u64::from(FABRIC), 4095, 4096, 0xffff] {
                entry.link(PORT).store(UP | port, Relaxed);
                assert_eq!(entry.left(dst, 40), LeftAlone::Egress, "by {port}");
            }
            entry.open();
            forwarder.open_egress(INTERNAL, false);
            assert_eq!(entry.left(dst, 40), LeftAlone::Egress);
            forwarder.open_egress(INTERNAL, true);
            // For this node, for nodes that there are not, and none of a cluster.
            let others = [SETTINGS.node, OUTPUT + 1, NODES, 0xffff];
            let others = others.map(|node| address(node, INDEX));
            let foreign = Mac([6, 0, 0, 1, 2, 5]);
            let own = usize::from(SETTINGS.node) * 8 + PORT;
            entry.fabric.words().links.u64s()[own].store(UP | u64::from(INTERNAL), Relaxed);
            for dst_mac in others.into_iter().chain([foreign]) {
                entry.set(index, dst_mac);
                assert_eq!(entry.left(dst, 40), LeftAlone::Egress, "{dst_mac:?}");
            }
            entry.set(index, address(OUTPUT, INDEX));
            assert_eq!(sent(40), XDP_REDIRECT);
            // The MTU of the internal interface changes, and nothing else does.
            for (mtu, fits) in [(INTERNAL_MTU - 1, false), (INTERNAL_MTU, true)] {
                let mut forwarding = entry.lab.topology.forwarding.clone();
                let mut ports = (*forwarding.ports).clone();
                ports.ports[usize::from(INTERNAL)].as_mut().expect("it was added").mtu = mtu;
                forwarding.ports = Arc::new(ports);
                forwarder.clone().follow(&forwarding);
                assert_eq!(sent(longest) == XDP_REDIRECT, fits, "MTU {mtu}");
            }
        }
        let entered = entry.fabric.entered();
        // Words in other memory, and an entrance by another port.
        let elsewhere = Fabric::new(SETTINGS, words(&mut fingerpost_lpm::Heap)).unwrap();
        forwarder.enter(FABRIC, Arc::new(elsewhere));
        assert_eq!(entry.left(DESTINATIONS[0], 40), LeftAlone::Egress);
        forwarder.enter(FABRIC + 9, entry.fabric.clone());
        assert_eq!(entry.left(DESTINATIONS[0], 40), LeftAlone::Egress);
        forwarder.enter(FABRIC, entry.fabric.clone());
        // In another mode of the cluster, and in this one again.
        let before = entry.fabric.entered();
        forwarder.close_entrance();
        assert_eq!(entry.left(DESTINATIONS[0], 40), LeftAlone::Egress);
        assert_eq!(entry.fabric.entered(), before);
        forwarder.enter(FABRIC, entry.fabric.clone());
        let again = packet(&entry.lab, "lan", DESTINATIONS[0], 40);
        assert_eq!(entry.answer("lan", &again).0, XDP_REDIRECT);
        // Without an internal interface.
        forwarder.remove_port(INTERNAL);
        assert_eq!(entry.left(DESTINATIONS[0], 40), LeftAlone::Egress);
        assert_eq!(entry.fabric.entered(), entered + 1);
        conserved(forwarder);
    });
}

/// Beyond the limit a packet is dropped, like a local one of the graph; the device that is gone drops it too.
#[test]
fn a_link_is_charged_and_full() {
    testing::in_namespace(|| {
        let entry = Entry::new(Lab::new());
        let forwarder = &entry.lab.forwarder;
        entry.redirect(DESTINATIONS[0]);
        entry.open();
        let frame = packet(&entry.lab, "lan", DESTINATIONS[0], 78);
        let bytes = frame.len() as u64 + 4;
        // A second a byte, so that no time passes: two packets fit.
        let second = 1_000_000_000;
        entry.link(NS_PER_BYTE).store(second << 16, Relaxed);
        entry.link(LIMIT).store(bytes * second * 2, Relaxed);
        let send = || entry.answer("lan", &frame).0;
        assert_eq!(
            [send(), send(), send(), send()],
            [1, 1, 0, 0].map(|sent| { if sent == 1 { XDP_REDIRECT } else { XDP_DROP } })
        );
        let busy = entry.line();
        assert_eq!(busy[1], 0, "it is not in transit");
        assert_eq!((busy[DROPPED_LOCAL], busy[BYTES]), (2, 2 * bytes));
        assert_eq!((busy[DROPPED_LOCAL - 1], entry.fabric.entered()), (0, 2));
        let full = |(why, count): &(LeftAlone, u64)| *why == LeftAlone::LinkFull && *count == 2;
        assert!(forwarder.left_alone().unwrap().iter().any(full));
        // In the past: the link is free from now on.
        entry.link(0).store(1, Relaxed);
        assert_eq!(send(), XDP_REDIRECT);
        let now = busy[0] - 2 * bytes * second;
        let again = entry.link(0).load(Relaxed) - bytes * second;
        assert!((now..now + 60 * second).contains(&again), "charged from the time of the clock");
        entry.link(NS_PER_BYTE).store(0, Relaxed);
        assert_eq!(send(), XDP_REDIRECT, "it never fills without a rate");
        forwarder.0.devices.delete(&u32::from(INTERNAL).to_ne_bytes()).unwrap();
        let before = entry.line();
        assert_eq!((send(), entry.fabric.entered(), entry.line()), (XDP_DROP, 4, before));
        conserved(forwarder);
    });
}

#[test]
fn what_becomes_of_a_packet_that_would_enter_is_told_and_charged_nowhere() {
    testing::in_namespace(|| {
        let entry = Entry::new(Lab::new());
        let index = entry.redirect(DESTINATIONS[1]);
        entry.open();
        entry.link(NS_PER_BYTE).store(1 << 16, Relaxed);
        let counts = || (conserved(&entry.lab.forwarder), entry.line(), entry.fabric.entered());
        let before = counts();
        let frame = packet(&entry.lab, "lan", DESTINATIONS[1], 100);
        let evaluated = entry.lab.forwarder.evaluate(0, &frame[14..]).unwrap();
        let lan = entry.lab.topology.port("lan");
        let of_lan = evaluated.into_iter().find(|evaluated| evaluated.ports.contains(&lan));
        assert_eq!(of_lan.unwrap().fate, Ok(Fate::Sent(index)));
        assert_eq!(counts(), before);
    });
}

/// What sends into a cluster is no part of the programs of a router that is no node, or one of another mode.
#[test]
fn programs_without_a_cluster_lack_the_instructions() {
    testing::in_namespace(|| {
        let lab = Lab::new();
        let lan = lab.topology.port("lan");
        let length = |lab: &Lab| lab.forwarder.tester(lan).unwrap().instructions().unwrap();
        let without = length(&lab);
        let entry = Entry::new(lab);
        let with = length(&entry.lab);
        println!("{without} instructions, {with} with a cluster");
        assert!(without + 100 < with, "{without} instructions, {with} with a cluster");
    });
}
