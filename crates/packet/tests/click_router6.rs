//! The IPv6 router of two ports (`examples/graphs/ip6-router-2.click`), packet by packet: neighbor discovery,
//! forwarding and errors.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::Path;

use fingerpost_packet::DropReason;
use fingerpost_packet::frame::wire::checksum::pseudo_v6;
use fingerpost_packet::frame::wire::nd::{
    ADVERTISEMENT, ND_BYTES, Nd, OVERRIDE, ROUTER, SOLICITATION, SOLICITED, multicast_mac,
    solicited_node,
};
use fingerpost_packet::frame::wire::{ETHER_BYTES, Ether, EtherMut, Ip6, ether};
use fingerpost_packet::testing::{Rig, World, frame_v6};
use fingerpost_route::Mac;

const DEVICES: [&str; 2] = ["eth0", "eth1"];
const OURS: [Mac; 2] = [Mac([2, 0, 0, 0, 0, 1]), Mac([2, 0, 0, 0, 0, 2])];
/// Host behind each port.
const PEERS: [Mac; 2] = [Mac([2, 0, 0, 0, 0, 0x11]), Mac([2, 0, 0, 0, 0, 0x22])];
const PEER_TEXT: [&str; 2] = ["2001:db8:1::9", "2001:db8:2::9"];

fn addr(text: &str) -> u128 {
    text.parse::<std::net::Ipv6Addr>().unwrap().to_bits()
}

fn router() -> Rig {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/graphs");
    let text = fs::read_to_string(folder.join("ip6-router-2.click")).unwrap();
    let mut world = World::new();
    world.ports.ports.clear();
    Rig::new(&world, &text)
}

fn nd(dst: Mac, src: Mac, nd: Nd) -> Vec<u8> {
    let mut frame = vec![0; ETHER_BYTES + ND_BYTES];
    let mut header = EtherMut::of(&mut frame).unwrap();
    header.set_addrs(dst, src);
    header.set_kind(ether::TYPE_IP6);
    assert!(nd.write(&mut frame, ETHER_BYTES));
    frame
}

/// The host at a port advertises its address.
fn says(port: usize, who: &str, mac: Mac) -> Vec<u8> {
    let target = addr(who);
    let dst = addr(["2001:db8:1::1", "2001:db8:2::1"][port]);
    let flags = SOLICITED | OVERRIDE;
    nd(
        OURS[port],
        mac,
        Nd { kind: ADVERTISEMENT, flags, src: target, dst, target, link: Some(mac) },
    )
}

/// Frame from the host at a port.
fn from(port: usize, src: &str, dst: &str, hops: u8, len: usize) -> Vec<u8> {
    let mut frame = frame_v6(src, dst, hops, 17, &vec![7; len]);
    EtherMut::of(&mut frame).unwrap().set_addrs(OURS[port], PEERS[port]);
    frame
}

/// Receives a frame, and lets all go that waits in queues.
fn through(rig: &mut Rig, port: usize, frame: &[u8]) -> Vec<(String, Vec<u8>)> {
    let mut sent = rig.receive(DEVICES[port], &[frame]);
    sent.extend(rig.poll());
    sent
}

/// Lets the router learn both hosts.
fn learned() -> Rig {
    let mut rig = router();
    for port in [0, 1] {
        let asked = through(
            &mut rig,
            1 - port,
            &from(1 - port, PEER_TEXT[1 - port], PEER_TEXT[port], 64, 20),
        );
        assert_eq!((asked.len(), asked[0].0.as_str()), (1, DEVICES[port]));
        let question = Nd::at(&asked[0].1, ETHER_BYTES).unwrap();
        assert_eq!((question.kind, question.target), (SOLICITATION, addr(PEER_TEXT[port])));
        let sent = through(&mut rig, port, &says(port, PEER_TEXT[port], PEERS[port]));
        assert_eq!((sent.len(), sent[0].0.as_str()), (1, DEVICES[port]), "what waited");
    }
    rig
}

/// Whether the checksum of an ICMPv6 message is right.
fn is_sound(frame: &[u8]) -> bool {
    let ip = Ip6::at(frame, ETHER_BYTES).unwrap();
    let (src, dst) = (ip.src().to_be_bytes(), ip.dst().to_be_bytes());
    let body = &frame[54..54 + ip.payload_len()];
    pseudo_v6(&src, &dst, 58, u32::try_from(body.len()).unwrap()).bytes(body).finish() == 0
}

#[test]
fn solicitations_are_answered() {
    let mut rig = router();
    for (port, own) in
        [(0, "2001:db8:1::1"), (0, "fe80::1:1"), (1, "2001:db8:2::1"), (1, "fe80::2:1")]
    {
        let (src, target) = (addr(PEER_TEXT[port]), addr(own));
        let dst = solicited_node(target);
        let link = Some(PEERS[port]);
        let ask = nd(
            multicast_mac(dst),
            PEERS[port],
            Nd { kind: SOLICITATION, flags: 0, src, dst, target, link },
        );
        let flags = ROUTER | SOLICITED | OVERRIDE;
        let link = Some(OURS[port]);
        let answer = Nd { kind: ADVERTISEMENT, flags, src: target, dst: src, target, link };
        let sent = through(&mut rig, port, &ask);
        assert_eq!(sent, [(DEVICES[port].to_owned(), nd(PEERS[port], OURS[port], answer))]);
        // Nobody has them at the other port.
        assert!(through(&mut rig, 1 - port, &ask).is_empty());
    }
}

#[test]
fn packets_are_forwarded() {
    let mut rig = learned();
    for port in [0, 1] {
        let other = 1 - port;
        let mut frame = from(port, PEER_TEXT[port], PEER_TEXT[other], 64, 20);
        let sent = through(&mut rig, port, &frame);
        assert_eq!((sent.len(), sent[0].0.as_str()), (1, DEVICES[other]));
        let header = Ether::of(&sent[0].1).unwrap();
        assert_eq!((header.dst(), header.src()), (PEERS[other], OURS[other]));
        frame[21] = 63;
        assert_eq!(sent[0].1[14..], frame[14..]);
        // Padding of a short frame goes no further.
        frame.resize(90, 0xee);
        assert_eq!(through(&mut rig, port, &frame)[0].1.len(), ETHER_BYTES + 60);
    }
    // Beyond the networks: by the gateway, which is known by its link-local address.
    let asked = through(&mut rig, 0, &from(0, PEER_TEXT[0], "2001:db8:99::1", 64, 20));
    assert_eq!(Nd::at(&asked[0].1, ETHER_BYTES).unwrap().target, addr("fe80::fe"));
    let gateway = Mac([2, 0, 0, 0, 0, 0x44]);
    let sent = through(&mut rig, 1, &says(1, "fe80::fe", gateway));
    assert_eq!((Ether::of(&sent[0].1).unwrap().dst(), sent[0].0.as_str()), (gateway, "eth1"));
    // To the router itself, whatever the hop limit.
    assert!(through(&mut rig, 0, &from(0, PEER_TEXT[0], "2001:db8:2::1", 1, 20)).is_empty());
    assert_eq!(rig.read("rest.count"), "1");
}

#[test]
fn the_router_answers_pings() {
    let mut rig = learned();
    let mut ping = frame_v6(PEER_TEXT[0], "2001:db8:2::1", 1, 58, &[128, 0, 0, 0, 1, 2, 3, 4]);
    let (src, dst) = (addr(PEER_TEXT[0]).to_be_bytes(), addr("2001:db8:2::1").to_be_bytes());
    let sum = pseudo_v6(&src, &dst, 58, 8).bytes(&ping[54..]).finish();
    ping[56..58].copy_from_slice(&sum.to_be_bytes());
    let sent = through(&mut rig, 0, &ping);
    assert_eq!((sent.len(), sent[0].0.as_str(), sent[0].1[54]), (1, "eth0", 129));
    assert!(is_sound(&sent[0].1));
    let ip = Ip6::at(&sent[0].1, ETHER_BYTES).unwrap();
    assert_eq!((ip.src(), ip.dst()), (addr("2001:db8:2::1"), addr(PEER_TEXT[0])));
}

#[test]
fn senders_are_told_what_went_wrong() {
    let mut rig = learned();
    let expired = from(0, PEER_TEXT[0], PEER_TEXT[1], 1, 20);
    let long = from(0, PEER_TEXT[0], PEER_TEXT[1], 64, 1361);
    for (frame, kind, word) in [(expired, [3, 0], 0), (long, [2, 0], 1400)] {
        let sent = through(&mut rig, 0, &frame);
        assert_eq!((sent.len(), sent[0].0.as_str()), (1, "eth0"));
        let error = &sent[0].1;
        let ip = Ip6::at(error, ETHER_BYTES).unwrap();
        assert_eq!((ip.src(), ip.dst()), (addr("2001:db8:2::1"), addr(PEER_TEXT[0])));
        assert_eq!((&error[54..56], is_sound(error)), (&kind[..], true));
        assert_eq!(u32::from_be_bytes(error[58..62].try_into().unwrap()), word);
        assert_eq!(error[70..102], frame[22..54], "the addresses of the offender");
    }
    // The largest that fits.
    assert_eq!(through(&mut rig, 0, &from(0, PEER_TEXT[0], PEER_TEXT[1], 64, 1360)).len(), 1);
    assert_eq!([DropReason::TtlExpired, DropReason::TooBig].map(|why| rig.dropped(why)), [1, 1]);
    // Nobody is there: told after three lookups.
    assert_eq!(through(&mut rig, 0, &from(0, PEER_TEXT[0], "2001:db8:2::77", 64, 20)).len(), 1);
    rig.bench.now_ns += 3_000_000_000;
    let sent = [rig.poll(), rig.poll()].concat();
    let reported: Vec<_> = sent.iter().filter(|sent| sent.0 == "eth0").collect();
    assert_eq!((reported.len(), &reported[0].1[54..56]), (1, &[1, 3][..]));
}

#[test]
fn what_has_no_business_beyond_its_link_stays_there() {
    let mut rig = learned();
    // From a link-local source, to one, to a group, as a broadcast, and what is no IPv6.
    let scope = through(&mut rig, 0, &from(0, "fe80::9", PEER_TEXT[1], 64, 20));
    assert!(scope.is_empty(), "whom it came from is not known by a route");
    assert!(through(&mut rig, 0, &from(0, PEER_TEXT[0], "fe80::9", 64, 20)).is_empty());
    assert!(through(&mut rig, 0, &from(0, PEER_TEXT[0], "ff05::1:3", 64, 20)).is_empty());
    let mut broadcast = from(0, PEER_TEXT[0], PEER_TEXT[1], 64, 20);
    broadcast[..6].copy_from_slice(&[0x33, 0x33, 0, 0, 0, 1]);
    let mut other = from(0, PEER_TEXT[0], PEER_TEXT[1], 64, 20);
    other[12..14].copy_from_slice(&[8, 0]);
    for frame in [&broadcast[..], &other, &broadcast[..40], &[]] {
        assert!(through(&mut rig, 0, frame).is_empty());
    }
    assert_eq!([DropReason::LinkBroadcast, DropReason::Scope].map(|why| rig.dropped(why)), [1, 1]);
}
