//! Samples of programs: packets as they arrived, at the rate of their port, and what is lost of them.

use std::sync::Arc;

use fingerpost_lpm::testing::Rng;
use fingerpost_packet::feature::sampling::{Sampled, Sampling};
use fingerpost_packet::sample::HEADER_BYTES;

use super::feature_tests::{every_feature, every_rule, udp};
use super::tests::Lab;
use crate::xdp::{XDP_DROP, XDP_REDIRECT, testing};

fn sampling(lab: &Lab, rates: &[(&str, u32)]) -> Arc<Sampling> {
    let rates: Vec<_> = rates.iter().map(|(name, rate)| ((*name).to_owned(), *rate)).collect();
    let made = Sampling::new(&rates, Vec::new(), None);
    let names = lab.topology.topology.ports.iter().map(|port| &*port.name);
    let ports: Vec<(u16, &str)> = (0..).zip(names).collect();
    fingerpost_packet::feature::row::State::follow(&made, &ports);
    Arc::new(made)
}

/// Sends so many packets to ports in turn; returns how many ended in the programs, and the samples, by port in this order.
fn run(lab: &Lab, names: [&str; 3], packets: usize) -> [(u64, u64); 3] {
    let Lab { forwarder, topology, .. } = lab;
    let (mut rng, mut counts) = (Rng::new(5), [(0, 0); 3]);
    let mut programs = std::collections::BTreeMap::new();
    for n in 0..packets {
        let (at, mut frame) = (n % 3, udp(&mut rng));
        let port = topology.port(names[at]);
        frame[..6].copy_from_slice(&topology.mac(names[at]).0);
        // Padding, also behind what a sample has.
        frame.resize(frame.len() + [0, 3, 400][rng.below(3)], 0);
        let (device, wire) = lab.on_wire(port, &frame, 0);
        let program = programs.entry(device).or_insert_with(|| forwarder.tester(device).unwrap());
        let action = program.test(&wire).unwrap().action.cast_signed();
        let ended = action == XDP_REDIRECT || action == XDP_DROP;
        counts[at].0 += u64::from(ended);
        let taken = forwarder.take_samples(10, |sample| {
            assert!(ended, "what is left is sampled elsewhere");
            assert_eq!((sample.port, sample.frame_len as usize), (port, wire.len()));
            assert_eq!(sample.header(), &wire[..wire.len().min(HEADER_BYTES)]);
        });
        counts[at].1 += taken as u64;
    }
    counts
}

fn samples_of(lab: &Lab) {
    let names = ["lan", "wan", "strict"];
    let none = run(lab, names, 300);
    assert!(none.iter().all(|(ended, samples)| *ended > 30 && *samples == 0), "{none:?}");
    let all = sampling(lab, &[("lan", 7), ("wan", 1)]);
    lab.forwarder.set_sampling(Some(all)).unwrap();
    let [lan, wan, strict] = run(lab, names, 12_000);
    // The first packet of a CPU draws a distance.
    assert!(wan.0 > 1000 && wan.1 <= wan.0 && wan.1 + 64 > wan.0, "{wan:?}");
    assert_eq!(strict.1, 0);
    // Its variance is less: four times the root for chosen packets that are left to the graph.
    let want = lan.0 / 7;
    assert!(lan.1.abs_diff(want) < 4 * want.isqrt(), "{lan:?}");
    let counts = lab.forwarder.sampled();
    for (name, (packets, samples)) in [("lan", lan), ("wan", wan)] {
        let want = Sampled { packets, samples, lost: 0 };
        assert_eq!(counts[&lab.topology.port(name)], want, "{name}");
    }
    lab.forwarder.set_sampling(None).unwrap();
    assert!(run(lab, names, 300).iter().all(|(_, samples)| *samples == 0));
}

#[test]
fn packets_are_sampled_as_they_arrive() {
    testing::in_namespace(|| samples_of(&Lab::new()));
}

#[test]
fn packets_are_sampled_as_they_arrive_with_tags() {
    testing::in_namespace(|| samples_of(&Lab::tagged()));
}

#[test]
fn what_does_not_fit_into_the_ring_is_counted() {
    testing::in_namespace(|| {
        let lab = Lab::new();
        lab.forwarder.set_sampling(Some(sampling(&lab, &[("wan", 1)]))).unwrap();
        let port = lab.topology.port("wan");
        let program = lab.forwarder.tester(port).unwrap();
        let mut rng = Rng::new(5);
        for _ in 0..9000 {
            let mut frame = udp(&mut rng);
            frame[..6].copy_from_slice(&lab.topology.mac("wan").0);
            program.test(&frame).unwrap();
        }
        let counts = lab.forwarder.sampled()[&port];
        assert!(counts.lost > 100 && counts.samples > counts.lost, "{counts:?}");
        let mut taken = 0;
        while lab.forwarder.take_samples(1000, |sample| assert_eq!(sample.port, port)) > 0 {
            taken += 1;
        }
        assert!(taken > 2, "{taken}");
        assert_eq!(lab.forwarder.sampled()[&port], counts);
        let more = lab.forwarder.take_samples(1, |_| ());
        assert_eq!(more, 0);
    });
}

/// All of it in one program, which the verifier takes and which decides as without samples.
#[test]
fn sampling_changes_nothing_that_other_features_do() {
    testing::in_namespace(|| {
        let lab = Lab::tagged();
        let all = sampling(&lab, &[("lan", 3), ("wan", 2), ("strict", 1), ("loose", 65_535)]);
        lab.forwarder.set_sampling(Some(all)).unwrap();
        every_feature(&lab);
        every_rule(&lab);
        assert!(lab.forwarder.take_samples(1, |_| ()) > 0);
    });
}
