//! The program in the kernel against the packet cases, the model of the lookups, and the hash of flows.

use std::collections::BTreeMap;

use super::*;
use crate::cases::{Built, cases, diff};
use crate::xdp::{LocalAddresses, XDP_DROP, XDP_PASS, XDP_REDIRECT, lab};

const LONGEST: u16 = 4000;

/// The ports of the packet cases on real interfaces, with a program on each.
struct Lab {
    forwarder: Forwarder,
    topology: Built,
}

impl Lab {
    fn new() -> Self {
        let mut forwarder = Forwarder::new(0, CAP_BYTES).unwrap();
        let topology = Built::of_cases_shared(&forwarder.shared());
        forwarder.follow(&topology.forwarding);
        let local = LocalAddresses::new().unwrap();
        for (number, spec) in (0..).zip(&topology.topology.ports).filter(|(_, spec)| !spec.down) {
            let (near, _) = lab::veth(&format!("p{number}"), &format!("q{number}"), 1);
            let mac = topology.mac(&spec.name);
            let classifier = Arc::new(Classifier::load(mac.0, &local, LONGEST).unwrap());
            let link = Arc::new(classifier.attach(near, Mode::Native).unwrap());
            forwarder.add_port(number, near, classifier, link).unwrap();
        }
        Self { forwarder, topology }
    }
}

#[test]
fn packet_cases_come_out_byte_for_byte() {
    lab::in_namespace(|| {
        let Lab { forwarder, topology } = Lab::new();
        let mut left: BTreeMap<&str, usize> = BTreeMap::new();
        let (mut forwarded, mut dropped, mut failures) = (0, 0, String::new());
        for (name, case) in cases() {
            let port = topology.port(&case.port);
            let program = forwarder.tester(port).unwrap();
            let input = case.input(&topology).unwrap();
            if input.len() < 14 {
                continue;
            }
            let reasons = || forwarder.left_alone().unwrap();
            let before = reasons();
            let used = forwarder.used().unwrap();
            let answer = program.test(&input).unwrap();
            let noted = reasons().iter().zip(&before).find(|(a, b)| a.1 > b.1).map(|(a, _)| a.0);
            match answer.action.cast_signed() {
                XDP_PASS => {
                    assert_eq!(answer.frame, input, "{name}: left alone, but changed");
                    *left.entry(noted.map_or("not_for_us", LeftAlone::name)).or_default() += 1;
                }
                XDP_REDIRECT => {
                    forwarded += 1;
                    let want = case.outputs(&topology).unwrap();
                    let [(port, want)] = &want[..] else {
                        failures += &format!("{name}: forwarded, {} frames wanted\n", want.len());
                        continue;
                    };
                    let difference = diff(want, &answer.frame);
                    if !difference.is_empty() {
                        failures += &format!("{name}:\n{difference}\n");
                    }
                    let after = forwarder.used().unwrap();
                    let index = after.iter().zip(&used).position(|(a, b)| a.packets > b.packets);
                    let index = u32::try_from(index.expect("it was counted")).unwrap();
                    let adjacency = topology.forwarding.hops.adjacency(index);
                    assert_eq!(adjacency.port, *port, "{name}");
                }
                XDP_DROP => {
                    dropped += 1;
                    let want = case.drop_reason().unwrap().map(crate::DropReason::name);
                    assert_eq!(want, noted.map(LeftAlone::name), "{name}");
                }
                other => panic!("{name}: action {other}"),
            }
        }
        println!("{forwarded} forwarded, {dropped} dropped, left alone: {left:?}");
        assert!(failures.is_empty(), "{failures}");
        assert!(forwarded > 20 && dropped > 0, "{forwarded} forwarded, {dropped} dropped");
    });
}
