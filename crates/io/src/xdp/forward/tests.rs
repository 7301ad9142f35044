//! The program in the kernel against the packet cases, the model of the lookups, and the hash of flows.

use std::collections::{BTreeMap, HashSet};
use std::net::IpAddr;

use fingerpost_lpm::testing::{Shape, table};
use fingerpost_lpm::{Heap, RouteStore, Routes, Rows};
use fingerpost_route::fib::{Auditor, Backlog, KernelLookup};
use fingerpost_route::{ForwardingAction, Mac};

use super::reasons::DROPS;
use super::*;
use crate::xdp::{LocalAddresses, XDP_DROP, XDP_PASS, XDP_REDIRECT, testing};
use fingerpost_packet::DropReason;
use fingerpost_packet::cases::{Built, cases, diff};
use fingerpost_packet::frame::flow;

const LONGEST: u16 = 4000;
/// That of the packet cases.
const SEED: u64 = 0;

/// The ports of the packet cases on real interfaces, with a program on each.
pub(super) struct Lab {
    pub(super) forwarder: Forwarder,
    pub(super) topology: Built,
    /// Ports that are VLAN interfaces on another one.
    pub(super) vlans: Vec<Vlan>,
}

impl Lab {
    pub(super) fn new() -> Self {
        Self::nonstop(None)
    }

    fn nonstop(heartbeat: Option<Arc<Heartbeat>>) -> Self {
        Self::of(heartbeat, false)
    }

    /// A lab with all ports but two on the first one as VLAN interfaces, each with another tag. One behind which
    /// checksums may be open stays as it is.
    pub(super) fn tagged() -> Self {
        Self::of(None, true)
    }

    fn of(heartbeat: Option<Arc<Heartbeat>>, tagged: bool) -> Self {
        let mut forwarder = Forwarder::nonstop(SEED, CAP_BYTES, heartbeat).unwrap();
        let topology = Built::of_cases_shared(&forwarder.shared());
        forwarder.follow(&topology.forwarding);
        let local = LocalAddresses::new().unwrap();
        local.set(own(&topology.forwarding.ports)).unwrap();
        let mut vlans = Vec::new();
        for (number, spec) in (0..).zip(&topology.topology.ports).filter(|(_, spec)| !spec.down) {
            if tagged && number > 0 && !spec.fill_checksums {
                let (mac, ifindex) = (topology.mac(&spec.name), testing::ifindex("p0"));
                vlans.push(Vlan { port: number, parent: 0, ifindex, id: 1000 + 10 * number, mac });
                continue;
            }
            let (near, _) = testing::veth(&format!("p{number}"), &format!("q{number}"), 1);
            let mac = topology.mac(&spec.name);
            let classifier = Arc::new(Classifier::load(mac.0, &local, LONGEST).unwrap());
            let link = Arc::new(classifier.attach(near, Mode::Native).unwrap());
            forwarder.add_port(number, near, classifier, link).unwrap();
            forwarder.open_egress(number, true);
        }
        forwarder.set_vlans(vlans.clone()).unwrap();
        Self { forwarder, topology, vlans }
    }

    /// A port's frame as it is on the wire, and the port with the device. The tag has these bits of priority.
    pub(super) fn on_wire(&self, port: u16, frame: &[u8], priority: u16) -> (u16, Vec<u8>) {
        match self.vlans.iter().find(|vlan| vlan.port == port) {
            Some(vlan) => (vlan.parent, with_tag(frame, 0x8100, priority << 13 | vlan.id)),
            None => (port, frame.to_vec()),
        }
    }

    /// Sends a frame with that tag through the program of the first port, which leaves it alone. Returns why.
    pub(super) fn left(&self, frame: &[u8]) -> LeftAlone {
        let reasons = || self.forwarder.left_alone().unwrap();
        let before = reasons();
        let answer = self.forwarder.tester(0).unwrap().test(frame).unwrap();
        assert_eq!((answer.action.cast_signed(), &answer.frame[..]), (XDP_PASS, frame));
        reasons().iter().zip(&before).find(|(a, b)| a.1 > b.1).expect("it is counted").0.0
    }
}

/// What classifiers leave to the kernel: the host's own addresses and the broadcast addresses.
pub(super) fn own(ports: &PortTable) -> impl Iterator<Item = IpAddr> {
    let v4 = ports.own_v4.iter().chain(&ports.broadcast_v4).map(|&addr| addr.to_ip());
    v4.chain(ports.own_v6.iter().map(|&addr| addr.to_ip()))
}

fn with_tag(frame: &[u8], kind: u16, tag: u16) -> Vec<u8> {
    [&frame[..12], &kind.to_be_bytes(), &tag.to_be_bytes(), &frame[12..]].concat()
}

#[test]
fn packet_cases_come_out_byte_for_byte() {
    testing::in_namespace(|| drop(every_case(&Lab::new())));
}

/// VLAN interfaces, with any priority, untagged ones among them: tags come and go.
#[test]
fn packet_cases_come_out_byte_for_byte_with_tags() {
    testing::in_namespace(|| {
        let ways = every_case(&Lab::tagged());
        println!("tagged when they came, and when they left: {ways:?}");
        assert_eq!(ways.len(), 4);
    });
}

/// Answers how many came with a tag or without, and left so.
fn every_case(lab: &Lab) -> BTreeMap<(bool, bool), usize> {
    let mut ways = BTreeMap::new();
    let mut programs = BTreeMap::new();
    let Lab { forwarder, topology, .. } = lab;
    let mut left: BTreeMap<&str, usize> = BTreeMap::new();
    let (mut forwarded, mut dropped, mut failures) = (0, 0, String::new());
    let mut expected = forwarder.received();
    for (name, case) in cases() {
        let port = topology.port(&case.port);
        let input = case.input(topology).unwrap();
        if input.len() < 14 {
            continue;
        }
        let (device, input) = lab.on_wire(port, &input, (forwarded % 8) as u16);
        let program = programs.entry(device).or_insert_with(|| forwarder.tester(device).unwrap());
        let reasons = || forwarder.left_alone().unwrap();
        let before = reasons();
        let used = forwarder.used().unwrap();
        let sent = |port: u16| forwarder.sent(port).packets;
        let sent_before: Vec<u64> = (0..64).map(sent).collect();
        let answer = program.test(&input).unwrap();
        let noted = reasons().iter().zip(&before).find(|(a, b)| a.1 > b.1).map(|(a, _)| a.0);
        let received = expected.get_mut(&port).unwrap();
        if answer.action.cast_signed() == XDP_PASS {
            received.left += 1;
        } else {
            received.packets += 1;
            received.bytes += input.len() as u64;
        }
        match answer.action.cast_signed() {
            XDP_PASS => {
                assert_eq!(answer.frame, input, "{name}: left alone, but changed");
                *left.entry(noted.map_or("not_for_us", LeftAlone::name)).or_default() += 1;
            }
            XDP_REDIRECT => {
                forwarded += 1;
                let mut want = case.outputs(topology).unwrap();
                // Where a device has VLANs on it the way back is not closed, and nobody is told of a shorter one.
                if want.len() == 2 && !lab.vlans.is_empty() && want[1].0 == port {
                    want.pop();
                }
                let [(port, want)] = &want[..] else {
                    failures += &format!("{name}: forwarded, {} frames wanted\n", want.len());
                    continue;
                };
                let (left_by, want) = lab.on_wire(*port, want, 0);
                *ways
                    .entry((device != topology.port(&case.port), left_by != *port))
                    .or_default() += 1;
                let difference = diff(&want, &answer.frame);
                if !difference.is_empty() {
                    failures += &format!("{name}:\n{difference}\n");
                }
                let after = forwarder.used().unwrap();
                let index = after.iter().zip(&used).position(|(a, b)| a.packets > b.packets);
                let index = u32::try_from(index.expect("it was counted")).unwrap();
                let adjacency = topology.forwarding.hops.adjacency(index);
                assert_eq!(adjacency.port, *port, "{name}");
                let counted = |&port: &u16| sent(port) > sent_before[usize::from(port)];
                assert_eq!((0..64).filter(counted).collect::<Vec<_>>(), [*port], "{name}");
            }
            XDP_DROP => {
                dropped += 1;
                let want = case.drop_reason().unwrap().map(fingerpost_packet::DropReason::name);
                assert_eq!(want, noted.map(LeftAlone::name), "{name}");
                let at = DROPS.iter().position(|reason| Some(*reason) == noted).unwrap();
                expected.get_mut(&port).unwrap().dropped[at] += 1;
            }
            other => panic!("{name}: action {other}"),
        }
    }
    println!("{forwarded} forwarded, {dropped} dropped, left alone: {left:?}");
    assert_eq!(conserved(forwarder), expected);
    assert!(failures.is_empty(), "{failures}");
    assert!(forwarded > 20 && dropped > 0, "{forwarded} forwarded, {dropped} dropped");
    ways
}

/// What is tagged and cannot be done whole is the kernel's, as it came.
#[test]
fn tagged_frames_are_left_alone_for_a_reason() {
    testing::in_namespace(|| {
        let lab = Lab::tagged();
        let Lab { forwarder, topology, vlans } = &lab;
        let (wan, lan) = (&vlans[0], topology.port("lan"));
        let untagged = |mac: Mac, dst: &str| {
            let mut frame = fingerpost_packet::testing::frame_v4("9.1.1.1", dst, 64, 17, &[7; 40]);
            frame[..6].copy_from_slice(&mac.0);
            frame
        };
        let good = untagged(wan.mac, "10.1.0.2");
        let tagged = |frame: &[u8], id: u16| with_tag(frame, 0x8100, id);
        let program = || forwarder.tester(lan).unwrap();
        let action = |frame: &[u8]| program().test(frame).unwrap().action.cast_signed();
        let received = |port: u16| forwarder.received().get(&port).copied().unwrap_or_default();
        let (before, of_lan) = (received(wan.port), received(lan));
        assert_eq!(action(&tagged(&good, wan.id | 0xf000)), XDP_REDIRECT);
        let expected = [
            (tagged(&good, wan.id + 1), LeftAlone::Tag),
            (tagged(&good, 0), LeftAlone::Tag),
            (tagged(&good, 4095), LeftAlone::Tag),
            // Of the interface below, and of another one.
            (tagged(&untagged(topology.mac("lan"), "10.1.0.2"), wan.id), LeftAlone::NotOurs),
            (tagged(&untagged(vlans[1].mac, "10.1.0.2"), wan.id), LeftAlone::NotOurs),
            (good.clone(), LeftAlone::NotOurs),
            (tagged(&tagged(&good, 7), wan.id), LeftAlone::Type),
            (with_tag(&tagged(&good, wan.id), 0x88a8, 7), LeftAlone::NotOurs),
            (with_tag(&untagged(topology.mac("lan"), "10.2.0.2"), 0x88a8, 7), LeftAlone::Type),
            (tagged(&good, wan.id)[..17].to_vec(), LeftAlone::Short),
            (tagged(&good, wan.id)[..18].to_vec(), LeftAlone::Short),
            (tagged(&good, wan.id)[..37].to_vec(), LeftAlone::Short),
            (tagged(&good[..40], wan.id), LeftAlone::Header),
            (tagged(&untagged(wan.mac, "10.1.0.1"), wan.id), LeftAlone::Address),
            (tagged(&untagged(wan.mac, "10.1.0.99"), wan.id), LeftAlone::Verdict),
            (tagged(&untagged(wan.mac, "172.21.0.1"), wan.id), LeftAlone::Unresolved),
        ];
        for (at, (frame, why)) in expected.iter().enumerate() {
            assert_eq!(lab.left(frame), *why, "frame {at}");
        }
        // Counted where it was received: by the VLAN interface, once that is known.
        let after = received(wan.port);
        let size = good.len() as u64 + 4;
        assert_eq!((after.packets, after.bytes), (before.packets + 1, before.bytes + size));
        let by_lan = received(lan).left - of_lan.left;
        assert_eq!((after.left - before.left, by_lan), (9, 7));
        conserved(forwarder);
        // Where the device takes nothing, nothing leaves with a tag either.
        let out = untagged(topology.mac("lan"), "198.51.100.7");
        assert_eq!(action(&out), XDP_REDIRECT);
        forwarder.open_egress(lan, false);
        assert_eq!(lab.left(&out), LeftAlone::Egress);
        forwarder.open_egress(lan, true);
        // It has neither device nor program of its own.
        forwarder.open_egress(wan.port, false);
        forwarder.remove_port(wan.port);
        assert_eq!(action(&out), XDP_REDIRECT);
    });
}

/// VLAN interfaces come and go, and change tables, while programs run.
#[test]
fn vlan_interfaces_come_and_go() {
    testing::in_namespace(|| {
        let mut lab = Lab::tagged();
        let (lan, wan) = (lab.topology.port("lan"), lab.vlans[0]);
        let mac = lab.topology.mac("lan");
        let to = |mac: Mac, dst: &str| {
            let mut frame = fingerpost_packet::testing::frame_v4("9.1.1.1", dst, 64, 17, &[7; 40]);
            frame[..6].copy_from_slice(&mac.0);
            frame
        };
        let inward = with_tag(&to(wan.mac, "10.1.0.2"), 0x8100, wan.id);
        let outward = to(mac, "198.51.100.7");
        let forwards = |lab: &Lab, frame: &[u8]| {
            let answer = lab.forwarder.tester(lan).unwrap().test(frame).unwrap();
            answer.action.cast_signed() == XDP_REDIRECT
        };
        let evaluate = |lab: &Lab| {
            let evaluated = lab.forwarder.evaluate(0, &outward[14..]).unwrap();
            evaluated.into_iter().find(|evaluated| evaluated.ports.contains(&lan)).unwrap().ports
        };
        let both = Reads { v4: true, v6: true };
        assert!(forwards(&lab, &inward) && forwards(&lab, &outward));
        assert_eq!(lab.forwarder.reads(wan.port), Some(Ok(both)));
        assert!(evaluate(&lab).contains(&wan.port), "a packet goes alike by the VLAN interfaces");
        let others: Vec<_> = lab.vlans[1..].to_vec();
        lab.forwarder.set_vlans(others.clone()).unwrap();
        assert_eq!(lab.forwarder.reads(wan.port), None);
        assert_eq!((lab.left(&inward), lab.left(&outward)), (LeftAlone::Tag, LeftAlone::Egress));
        // Another address.
        let moved = Vlan { mac: Mac([2, 0, 0, 0, 9, 9]), ..wan };
        lab.forwarder.set_vlans([&[moved][..], &others].concat()).unwrap();
        assert_eq!(lab.left(&inward), LeftAlone::NotOurs);
        assert!(forwards(&lab, &with_tag(&to(moved.mac, "10.1.0.2"), 0x8100, wan.id)));
        // More of them than there were places for counts.
        let many = (0..300).map(|n| Vlan { port: 1000 + n, id: 2000 + n, ..moved });
        let all: Vec<_> = [wan].into_iter().chain(others).chain(many).collect();
        lab.forwarder.set_vlans(all.clone()).unwrap();
        let received = |lab: &Lab, port: u16| {
            lab.forwarder.received().get(&port).map_or(0, |received| received.packets)
        };
        for vlan in [all[0], all[200]] {
            let before = received(&lab, vlan.port);
            assert!(forwards(&lab, &with_tag(&to(vlan.mac, "10.1.0.2"), 0x8100, vlan.id)));
            assert_eq!(received(&lab, vlan.port), before + 1, "{vlan:?}");
        }
        conserved(&lab.forwarder);
        // One that asks another table is left to the kernel; packets leave by it all the same.
        let mut ports = (*lab.topology.forwarding.ports).clone();
        ports.ports[usize::from(wan.port)].as_mut().unwrap().fib = 1;
        let forwarding = Forwarding { ports: Arc::new(ports), ..lab.topology.forwarding.clone() };
        lab.forwarder.follow(&forwarding);
        assert!(lab.forwarder.reads(wan.port).unwrap().unwrap_err().contains("another routing"));
        assert_eq!(lab.left(&inward), LeftAlone::Tag);
        assert!(forwards(&lab, &outward));
        // None is left: as if there had never been one.
        lab.forwarder.follow(&lab.topology.forwarding);
        assert!(forwards(&lab, &inward));
        lab.forwarder.set_vlans(Vec::new()).unwrap();
        assert_eq!((lab.left(&inward), lab.left(&outward)), (LeftAlone::Tag, LeftAlone::Egress));
        let max = lab.forwarder.set_vlans(vec![Vlan { port: 5000, ..wan }, wan]);
        assert_eq!(max.unwrap_err().to_string(), "port limit exceeded: need 5001, at most 4096");
        assert!(forwards(&lab, &inward) && forwards(&lab, &outward), "the others stand");
    });
}

/// In = out + dropped by reason + left by reason: the three are counted in different places. Answers what arrived
/// in, by port.
pub(super) fn conserved(forwarder: &Forwarder) -> BTreeMap<u16, Received> {
    let received = forwarder.received();
    let sum = |of: &dyn Fn(&Received) -> u64| received.values().map(of).sum::<u64>();
    let (ended, left) = (sum(&|r| r.packets), sum(&|r| r.left));
    let used = forwarder.used().unwrap();
    let out: u64 = used.iter().map(|used| used.packets).sum();
    let by_port: Vec<Used> =
        (0..u16::try_from(PORTS).unwrap()).map(|port| forwarder.sent(port)).collect();
    for of in [|used: &Used| used.packets, |used: &Used| used.bytes] {
        let sum = |all: &[Used]| all.iter().map(of).sum::<u64>();
        assert_eq!(sum(&by_port), sum(&used), "by port and by adjacency");
    }
    let reasons = forwarder.left_alone().unwrap();
    let of = |drop: bool| {
        let is = |(why, _): &&(LeftAlone, u64)| why.drop_reason().is_some() == drop;
        reasons.iter().filter(is).map(|(_, count)| count).sum::<u64>()
    };
    assert_eq!((ended, left), (out + of(true), of(false)), "{received:?}, {out} out, {reasons:?}");
    received
}

/// Whatever becomes of a packet, it counts at its ingress port, however often the counts are read.
#[test]
fn what_comes_in_ends_somewhere() {
    testing::in_namespace(|| {
        let Lab { forwarder, topology, .. } = Lab::new();
        let frame = |dst: &str| {
            let mut frame = fingerpost_packet::testing::frame_v4("9.1.1.1", dst, 64, 17, &[7; 40]);
            frame[..6].copy_from_slice(&topology.mac("lan").0);
            frame.extend([0; 5]);
            frame
        };
        let (lan, wan) = (topology.port("lan"), topology.port("wan"));
        let program = forwarder.tester(lan).unwrap();
        let mut expected = forwarder.received();
        for (dst, action, dropped) in [
            ("198.51.100.7", XDP_REDIRECT, None),
            ("198.18.1.1", XDP_DROP, Some(LeftAlone::Blackhole)),
            ("8.8.8.8", XDP_PASS, None),
            ("198.51.100.9", XDP_DROP, Some(LeftAlone::Refused)),
        ] {
            if dst == "198.51.100.9" {
                // The way out goes just now: what was about to be sent is dropped, and was not sent.
                forwarder.0.devices.delete(&u32::from(wan).to_ne_bytes()).unwrap();
            }
            let frame = frame(dst);
            assert_eq!(program.test(&frame).unwrap().action.cast_signed(), action, "{dst}");
            let received = expected.get_mut(&lan).unwrap();
            if action == XDP_PASS {
                received.left += 1;
            } else {
                received.packets += 1;
                received.bytes += frame.len() as u64;
            }
            for (count, reason) in received.dropped.iter_mut().zip(DROPS) {
                *count += u64::from(dropped == Some(*reason));
            }
            assert_eq!(conserved(&forwarder), expected, "{dst}");
        }
        let refused = |(why, count): &(LeftAlone, u64)| *why == LeftAlone::Refused && *count == 1;
        assert!(forwarder.left_alone().unwrap().iter().any(refused));
        assert_eq!(LeftAlone::Refused.drop_reason().map(DropReason::name), Some("port_down"));
        forwarder.remove_port(lan);
        assert_eq!(conserved(&forwarder), expected);
    });
}

/// A program that may outlive the daemon checks first whether it did.
#[test]
fn without_a_beat_packets_are_the_kernels() {
    testing::in_namespace(|| {
        let heartbeat = Arc::new(Heartbeat::new(std::time::Duration::from_secs(60)).unwrap());
        let Lab { forwarder, topology, .. } = Lab::nonstop(Some(heartbeat.clone()));
        let (_, case) = cases().into_iter().find(|(file, _)| file == "ip4_forward.toml").unwrap();
        let input = case.input(&topology).unwrap();
        let program = forwarder.tester(topology.port(&case.port)).unwrap();
        let away = || {
            let reasons = forwarder.left_alone().unwrap();
            reasons.iter().find(|(reason, _)| *reason == LeftAlone::Away).unwrap().1
        };
        let before = program.test(&input).unwrap();
        assert_eq!((before.action.cast_signed(), before.frame), (XDP_PASS, input.clone()));
        assert_eq!(away(), 1);
        heartbeat.beat().unwrap();
        assert_eq!(program.test(&input).unwrap().action.cast_signed(), XDP_REDIRECT);
        assert_eq!(away(), 1);
    });
}

#[test]
fn what_becomes_of_a_packet_is_told_and_leaves_no_trace() {
    testing::in_namespace(|| {
        let Lab { forwarder, topology, .. } = Lab::new();
        let counts = || (conserved(&forwarder), forwarder.used().unwrap());
        let before = counts();
        let evaluate = |dst: &str, bytes: usize| {
            let frame = match dst.contains(':') {
                false => {
                    fingerpost_packet::testing::frame_v4("9.1.1.1", dst, 64, 17, &vec![7; bytes])
                }
                true => fingerpost_packet::testing::frame_v6(
                    "2001:db9::1",
                    dst,
                    64,
                    17,
                    &vec![7; bytes],
                ),
            };
            let evaluated = forwarder.evaluate(0, &frame[14..]).unwrap();
            // One of them fills checksums.
            let (veth, all) = (topology.port("veth"), topology.topology.ports.len() - 1);
            // Two have sources checked, and let none of these in; what has no source to check is left either way.
            let checks = ["strict", "loose"].map(|name| vec![topology.port(name)]);
            let (checked, evaluated): (Vec<_>, Vec<_>) =
                evaluated.into_iter().partition(|evaluated| checks.contains(&evaluated.ports));
            assert_eq!(checked.len(), 2);
            let all = all - checked.len();
            let address = Ok(Fate::Left(LeftAlone::Address));
            let dropped = Ok(Fate::Dropped(LeftAlone::Urpf));
            for checked in checked {
                assert!(checked.fate == dropped || checked.fate == address, "{:?}", checked.fate);
            }
            let (fills, not): (Vec<_>, Vec<_>) =
                evaluated.into_iter().partition(|evaluated| evaluated.ports == [veth]);
            assert_eq!((fills.len(), not.len(), not[0].ports.len()), (1, 1, all - 1));
            assert_eq!(fills[0].fate, not[0].fate);
            not[0].fate.clone()
        };
        for (dst, neighbor) in [("198.51.100.7", "wan.gw"), ("2001:db8:180::9", "ptp.gw")] {
            let Ok(Fate::Sent(index)) = evaluate(dst, 100) else { panic!("{dst} is forwarded") };
            let adjacency = topology.forwarding.hops.adjacency(index);
            assert_eq!(adjacency.dst, topology.mac(neighbor), "{dst}");
        }
        for (dst, bytes, fate) in [
            ("198.18.1.1", 100, Fate::Dropped(LeftAlone::Blackhole)),
            ("10.1.0.1", 100, Fate::Left(LeftAlone::Address)),
            ("fe80::1", 100, Fate::Left(LeftAlone::Address)),
            ("198.51.100.7", 1481, Fate::Left(LeftAlone::TooBig)),
            ("172.21.0.1", 100, Fate::Left(LeftAlone::Unresolved)),
            ("8.8.8.8", 100, Fate::Left(LeftAlone::Verdict)),
        ] {
            assert_eq!(evaluate(dst, bytes), Ok(fate), "{dst}");
        }
        forwarder.open_egress(topology.port("wan"), false);
        assert_eq!(evaluate("198.51.100.7", 100), Ok(Fate::Left(LeftAlone::Egress)));
        assert_eq!(counts(), before);
        assert_eq!(forwarder.evaluate(7, &[0x45; 40]).unwrap(), []);
    });
}

/// A bit of a map flips that only programs read: the auditor finds it by them.
#[test]
fn an_auditor_finds_a_damaged_map() {
    testing::in_namespace(|| {
        let mut forwarder = Forwarder::new(SEED, CAP_BYTES).unwrap();
        let routes = table::<u32>(Shape::Internet, 2000, 20, 9);
        let store: RouteStore<u32> = routes.iter().copied().collect();
        let row = u32::row("bc18").unwrap();
        let shared = row.build(&store, &mut *forwarder.shared().memory.make()).unwrap().publish();
        let own = row.build(&store, &mut Heap).unwrap().publish();
        let cases = Built::of_cases_shared(&forwarder.shared());
        forwarder.follow(&Forwarding { v4: shared.clone(), ..cases.forwarding });
        let asked = KernelLookup::v4(&forwarder, 0).expect("programs read it");
        let kept = KernelLookup::v4(&forwarder, 0).unwrap();
        assert!(Arc::ptr_eq(&asked, &kept) && KernelLookup::v6(&forwarder, 0).is_some());
        let (mut auditor, pending) = (Auditor::default(), Backlog::default());
        let turn = |auditor: &mut Auditor<u32>| {
            let clock = &mut std::time::Instant::now;
            auditor.step(&store, &*own, Some(&*asked), &pending, Default::default(), clock)
        };
        while !turn(&mut auditor).ended {}
        assert!(auditor.counts().kernel_reader > 2000 && auditor.counts().mismatches == 0);
        let (prefix, _) = routes[routes.len() / 2];
        let mut last = None;
        shared.explain(prefix.first(), &mut |step| last = Some(*step));
        let step = last.unwrap();
        let region = shared.regions().iter().find(|region| region.name() == step.region).unwrap();
        region.u8s()[step.offset].fetch_xor(1, Relaxed);
        while !turn(&mut auditor).differs {
            assert!(auditor.counts().passes < 200, "{:?}", auditor.counts());
        }
        assert!(auditor.known().all(|difference| difference.kernel_reader));
        assert_eq!(own.lookup(prefix.first()), store.best(prefix.first()).unwrap().1);
    });
}

#[test]
fn what_turns_back_is_left_where_senders_are_told() {
    testing::in_namespace(|| {
        let Lab { mut forwarder, topology, .. } = Lab::new();
        let lan = topology.port("lan");
        let mut frame =
            fingerpost_packet::testing::frame_v4("10.1.0.2", "172.25.0.9", 64, 17, &[7; 40]);
        frame[..6].copy_from_slice(&topology.mac("lan").0);
        let action = |forwarder: &Forwarder| {
            let answer = forwarder.tester(lan).unwrap().test(&frame).unwrap();
            answer.action.cast_signed()
        };
        let of = |redirects| {
            let mut ports = PortTable::clone(&topology.forwarding.ports);
            ports.ports[usize::from(lan)].as_mut().unwrap().redirects = redirects;
            Forwarding { ports: Arc::new(ports), ..topology.forwarding.clone() }
        };
        assert_eq!(action(&forwarder), XDP_PASS);
        forwarder.follow(&of(false));
        assert_eq!(action(&forwarder), XDP_REDIRECT);
        forwarder.open_egress(lan, false);
        assert_eq!(action(&forwarder), XDP_PASS);
        forwarder.open_egress(lan, true);
        assert_eq!(action(&forwarder), XDP_REDIRECT);
        forwarder.follow(&of(true));
        forwarder.open_egress(lan, true);
        assert_eq!(action(&forwarder), XDP_PASS);
        // By another port it goes on as ever.
        let (wan, mut away) = (topology.port("wan"), frame.clone());
        away[..6].copy_from_slice(&topology.mac("wan").0);
        let answer = forwarder.tester(wan).unwrap().test(&away).unwrap();
        assert_eq!(answer.action.cast_signed(), XDP_REDIRECT);
    });
}

/// What arrives on a port whose filters are not known is the graph's.
#[test]
fn ports_with_unknown_filters_are_left_to_the_graph() {
    testing::in_namespace(|| {
        let Lab { mut forwarder, topology, .. } = Lab::new();
        let wan = topology.port("wan");
        let of = |filtered| {
            let mut ports = PortTable::clone(&topology.forwarding.ports);
            ports.ports[usize::from(wan)].as_mut().unwrap().graph_only = filtered;
            Forwarding { ports: Arc::new(ports), ..topology.forwarding.clone() }
        };
        assert!(forwarder.reads(wan).unwrap().is_ok());
        for _ in 0..2 {
            forwarder.follow(&of(true));
            let why = forwarder.reads(wan).unwrap().unwrap_err();
            assert!(
                why.contains("runs only in the graph") && forwarder.tester(wan).is_err(),
                "{why}"
            );
            forwarder.follow(&of(false));
            assert!(forwarder.reads(wan).unwrap().is_ok() && forwarder.tester(wan).is_ok());
        }
    });
}

/// Packets of a family that the classifier of their port leaves to the kernel are no program's, those of the other are.
#[test]
fn a_family_that_is_left_is_not_forwarded() {
    testing::in_namespace(|| {
        let Lab { forwarder, topology, .. } = Lab::new();
        let (lan, mac) = (topology.port("lan"), topology.mac("lan").0);
        let mut frames = [
            fingerpost_packet::testing::frame_v4("10.1.0.2", "198.51.100.7", 64, 17, &[7; 40]),
            fingerpost_packet::testing::frame_v6(
                "2001:db8:1::2",
                "2001:db8:180::9",
                64,
                17,
                &[7; 40],
            ),
        ];
        for frame in &mut frames {
            frame[..6].copy_from_slice(&mac);
        }
        for (v4, v6) in [(false, false), (true, false), (false, true), (true, true), (false, false)]
        {
            let state = forwarder.state();
            state.ports[&lan].classifier.leave(Families { v4, v6 }).unwrap();
            drop(state);
            forwarder.families_changed(lan).unwrap();
            assert_eq!(forwarder.reads(lan), Some(Ok(Reads { v4: !v4, v6: !v6 })));
            for (frame, left) in frames.iter().zip([v4, v6]) {
                let answer = forwarder.tester(lan).unwrap().test(frame).unwrap();
                let want = if left { XDP_PASS } else { XDP_REDIRECT };
                assert_eq!(answer.action.cast_signed(), want, "{v4} {v6} {frame:02x?}");
            }
        }
        // What becomes of a packet depends on the port that it comes in by.
        forwarder.state().ports[&lan].classifier.leave(Families { v4: true, v6: false }).unwrap();
        forwarder.families_changed(lan).unwrap();
        let packet =
            fingerpost_packet::testing::frame_v4("9.1.1.1", "198.51.100.7", 64, 17, &[7; 40]);
        let evaluated = forwarder.evaluate(0, &packet[14..]).unwrap();
        let fate = |port| {
            evaluated.iter().find(|evaluated| evaluated.ports.contains(&port)).unwrap().fate.clone()
        };
        assert_eq!(fate(lan), Ok(Fate::Left(LeftAlone::NoTable)));
        // By this one its table is read: it would turn back.
        assert_eq!(fate(topology.port("wan")), Ok(Fate::Left(LeftAlone::Egress)));
    });
}

/// Both paths choose the same slot of a group with weights 3:1, whatever the flow.
#[test]
fn groups_are_shared_out_as_in_the_graph() {
    testing::in_namespace(|| {
        const FLOWS: u32 = 100_000;
        let Lab { forwarder, topology, .. } = Lab::new();
        let (hops, lan) = (&topology.forwarding.hops, topology.mac("lan").0);
        let program = forwarder.tester(topology.port("lan")).unwrap();
        let groups = [
            topology.forwarding.v4.lookup(0xac17_0000),
            topology.forwarding.v6.lookup(0x2001_0db8_0c00 << 80),
        ];
        let mut rng = fingerpost_lpm::testing::Rng::new(3);
        for (v6, group) in [false, true].into_iter().zip(groups) {
            let (first, 4) = hops.group(group).unwrap() else { panic!("a group of four slots") };
            let (most, few) = (hops.slot(first), hops.slot(first + 1));
            (0..4).for_each(|slot| hops.set_slot(first + slot, if slot == 2 { few } else { most }));
            let mut taken = [0_u32; 2];
            for _ in 0..FLOWS {
                let payload: Vec<u8> = rng.word().to_be_bytes().repeat(2);
                let protocol = [6, 17, 132, 50][rng.below(4)];
                let frame = |src: &str, dst: &str| match v6 {
                    false => fingerpost_packet::testing::frame_v4(src, dst, 64, protocol, &payload),
                    true => fingerpost_packet::testing::frame_v6(src, dst, 64, protocol, &payload),
                };
                let part = rng.word();
                let (a, b, c) = (part & 0xff, part >> 8 & 0xff, part >> 16 & 0xffff);
                let mut frame = match v6 {
                    false => frame(&format!("9.{a}.{b}.1"), &format!("172.23.{a}.{b}")),
                    true => {
                        frame(&format!("2001:db9::{c:x}"), &format!("2001:db8:c00::{a:x}{b:02x}"))
                    }
                };
                frame[..6].copy_from_slice(&lan);
                let hash = match v6 {
                    false => flow::of_ip4(SEED, &frame[14..]),
                    true => flow::of_ip6(SEED, &frame[14..]),
                };
                let action = hops.action(group, hash);
                let ForwardingAction::Adjacency(index) = action else { panic!("{action:?}") };
                let answer = program.test(&frame).unwrap();
                assert_eq!(answer.action.cast_signed(), XDP_REDIRECT);
                assert_eq!(answer.frame[..6], hops.adjacency(index).dst.0, "{frame:02x?}");
                taken[usize::from(action == few)] += 1;
            }
            let share = f64::from(taken[1]) / f64::from(FLOWS);
            assert!((0.24..0.26).contains(&share), "one in four, not {share}");
        }
    });
}

/// Neither by its source nor by its destination is a packet taken for one of the host itself by chance, and each
/// of the host's addresses is the host's, whatever the TTL.
#[test]
fn only_the_hosts_own_packets_are_left_as_such() {
    const FOREIGN: [usize; 2] = [1_000_000, 250_000];
    testing::in_namespace(|| {
        let Lab { forwarder, topology, .. } = Lab::new();
        let (lan, mac) = (topology.port("lan"), topology.mac("lan").0);
        let program = forwarder.tester(lan).unwrap();
        let own: HashSet<IpAddr> = own(&topology.forwarding.ports).collect();
        let left = |why: LeftAlone| {
            let reasons = forwarder.left_alone().unwrap();
            reasons.iter().find(|(reason, _)| *reason == why).unwrap().1
        };
        let test = |frame: &[u8]| program.test(frame).unwrap().action.cast_signed();
        let frame = |src: IpAddr, dst: IpAddr, ttl: u8| {
            let (src, dst) = (src.to_string(), dst.to_string());
            let mut frame = match dst.contains(':') {
                false => fingerpost_packet::testing::frame_v4(&src, &dst, ttl, 17, &[7; 40]),
                true => fingerpost_packet::testing::frame_v6(&src, &dst, ttl, 17, &[7; 40]),
            };
            frame[..6].copy_from_slice(&mac);
            frame
        };
        let mut rng = fingerpost_lpm::testing::Rng::new(7);
        // Addresses in a frame that is made once: to write them as text takes longer than the program.
        let foreign: [IpAddr; 2] = ["9.1.1.1".parse().unwrap(), "2001:db9::1".parse().unwrap()];
        for (foreign, count) in foreign.into_iter().zip(FOREIGN) {
            let mut frame = frame(foreign, foreign, 64);
            let before = left(LeftAlone::Address);
            for _ in 0..count {
                match foreign {
                    IpAddr::V4(_) => {
                        // From 1.0.0.0 to 126.255.255.255.
                        let mut half = || u32::try_from(rng.word() >> 32).expect("half a word");
                        let pair = [(); 2].map(|()| half() % (126 << 24) + (1 << 24));
                        if pair.iter().any(|addr| own.contains(&addr.to_ip())) {
                            continue;
                        }
                        frame[26..30].copy_from_slice(&pair[0].to_be_bytes());
                        frame[30..34].copy_from_slice(&pair[1].to_be_bytes());
                        frame[24..26].fill(0);
                        let sum =
                            fingerpost_packet::frame::wire::checksum::checksum(&frame[14..34]);
                        frame[24..26].copy_from_slice(&sum.to_be_bytes());
                    }
                    IpAddr::V6(_) => {
                        for at in [22, 30, 38, 46] {
                            frame[at..at + 8].copy_from_slice(&rng.word().to_be_bytes());
                        }
                        (frame[22], frame[38]) = (0x20, 0x2a);
                    }
                }
                test(&frame);
            }
            assert_eq!(left(LeftAlone::Address), before, "{foreign}");
        }
        let addresses = own.iter().filter(|addr| addr.is_ipv6() || forwardable(addr));
        let mut asked = 0;
        for &addr in addresses {
            let other = if addr.is_ipv4() { foreign[0] } else { foreign[1] };
            for ttl in [64, 1] {
                for (src, dst) in [(other, addr), (addr, other)] {
                    let before = (left(LeftAlone::Address), left(LeftAlone::Expired));
                    assert_eq!(test(&frame(src, dst, ttl)), XDP_PASS);
                    let after = (left(LeftAlone::Address), left(LeftAlone::Expired));
                    assert_eq!(after, (before.0 + 1, before.1), "{src} {dst} {ttl}");
                    asked += 1;
                }
            }
        }
        assert!(asked > 40, "{asked}");
        // Of others it is the end.
        for other in foreign {
            let before = left(LeftAlone::Expired);
            assert_eq!(test(&frame(other, other, 1)), XDP_PASS);
            assert_eq!(left(LeftAlone::Expired), before + 1);
        }
        conserved(&forwarder);
    });
}

/// What an address must be for the rules before the look at the host's own.
fn forwardable(addr: &IpAddr) -> bool {
    matches!(addr, IpAddr::V4(v4) if !v4.is_link_local() && !v4.is_loopback())
}

/// The program of an interface that is deleted cannot be replaced and runs no longer: memory is used again all the
/// same, at once.
#[test]
fn an_interface_that_is_deleted_holds_nothing_back() {
    testing::in_namespace(|| {
        let Lab { mut forwarder, topology, .. } = Lab::new();
        let (lan, wan) = (topology.port("lan"), topology.port("wan"));
        testing::ip(&format!("link del p{wan}"));
        // Another table for one of the ports means new programs for all.
        let mut ports = PortTable::clone(&topology.forwarding.ports);
        ports.ports[usize::from(lan)].as_mut().unwrap().redirects ^= true;
        forwarder.follow(&Forwarding { ports: Arc::new(ports), ..topology.forwarding.clone() });
        forwarder.mark(Epoch(1));
        assert!(KernelReader::passed(&forwarder, Epoch(1)));
        forwarder.remove_port(wan);
        forwarder.mark(Epoch(2));
        assert!(KernelReader::passed(&forwarder, Epoch(2)));
        assert!(forwarder.reads(lan).unwrap().is_ok());
    });
}
