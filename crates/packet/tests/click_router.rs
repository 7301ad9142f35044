//! Click's IPv4 router of two and of four ports (`examples/graphs/ip-router-2.click`), packet by packet: ARP,
//! forwarding, errors and redirects; and that of two ports with checks of sources (`scrubbing.click`).
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::Path;

use fingerpost_packet::DropReason;
use fingerpost_packet::frame::wire;
use fingerpost_packet::frame::wire::arp::{ARP_BYTES, Arp, End, REPLY, REQUEST, write_arp};
use fingerpost_packet::frame::wire::ip4::sum_is_valid;
use fingerpost_packet::frame::wire::{ETHER_BYTES, Ether, EtherMut, Ip4, ether};
use fingerpost_packet::testing::{Rig, World, fill_ip4_checksum, frame_v4};
use fingerpost_route::Mac;

/// The router's ports, and a host behind each.
const OURS: [End; 4] = [
    end(1, [198, 51, 100, 1]),
    end(2, [203, 0, 113, 1]),
    end(3, [192, 0, 2, 1]),
    end(4, [198, 18, 0, 1]),
];
const PEERS: [End; 4] = [
    end(0x11, [198, 51, 100, 9]),
    end(0x22, [203, 0, 113, 9]),
    end(0x33, [192, 0, 2, 9]),
    end(0x44, [198, 18, 0, 9]),
];
const DEVICES: [&str; 4] = ["eth0", "eth1", "eth2", "eth3"];

const fn end(n: u8, addr: [u8; 4]) -> End {
    End { mac: Mac([2, 0, 0, 0, 0, n]), addr: u32::from_be_bytes(addr) }
}

fn router(ports: usize) -> Rig {
    example(&format!("ip-router-{ports}.click"))
}

fn example(name: &str) -> Rig {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/graphs");
    let text = fs::read_to_string(folder.join(name)).unwrap();
    let mut world = World::new();
    world.ports.ports.clear();
    Rig::new(&world, &text)
}

fn arp(operation: u16, sender: End, target: End) -> Vec<u8> {
    let mut frame = vec![0; ETHER_BYTES + ARP_BYTES];
    let mut header = EtherMut::of(&mut frame).unwrap();
    let to = if target.mac == Mac([0; 6]) { Mac([0xff; 6]) } else { target.mac };
    header.set_addrs(to, sender.mac);
    header.set_kind(ether::TYPE_ARP);
    assert!(write_arp(&mut frame, ETHER_BYTES, operation, sender, target));
    frame
}

fn text(addr: u32) -> String {
    std::net::Ipv4Addr::from_bits(addr).to_string()
}

/// Frame from the host at a port.
fn from(port: usize, dst: u32, ttl: u8, len: usize) -> Vec<u8> {
    let mut frame = frame_v4(&text(PEERS[port].addr), &text(dst), ttl, 17, &vec![7; len]);
    EtherMut::of(&mut frame).unwrap().set_addrs(OURS[port].mac, PEERS[port].mac);
    frame
}

/// Receives a frame, and lets all go that waits in queues.
fn through(rig: &mut Rig, port: usize, frame: &[u8]) -> Vec<(String, Vec<u8>)> {
    let mut sent = rig.receive(DEVICES[port], &[frame]);
    sent.extend(rig.poll());
    sent
}

/// Lets a router learn all hosts.
fn learned(ports: usize) -> Rig {
    learn(router(ports), ports)
}

fn learn(mut rig: Rig, ports: usize) -> Rig {
    for port in 0..ports {
        let other = (port + 1) % ports;
        let question = through(&mut rig, other, &from(other, PEERS[port].addr, 9, 10));
        assert_eq!(question.len(), 1);
        assert_eq!(question[0].0, DEVICES[port]);
        let asked = Arp::at(&question[0].1, ETHER_BYTES).unwrap();
        assert_eq!((asked.operation(), asked.sender()), (REQUEST, OURS[port]));
        assert_eq!(asked.target().addr, PEERS[port].addr);
        let sent = through(&mut rig, port, &arp(REPLY, PEERS[port], OURS[port]));
        assert_eq!(sent.len(), 1, "what waited");
        assert_eq!(sent[0].0, DEVICES[port]);
    }
    rig
}

#[test]
fn requests_are_answered() {
    let mut rig = router(2);
    for port in [0, 1] {
        let target = End { mac: Mac([0; 6]), addr: OURS[port].addr };
        let sent = through(&mut rig, port, &arp(REQUEST, PEERS[port], target));
        assert_eq!(sent, [(DEVICES[port].to_owned(), arp(REPLY, OURS[port], PEERS[port]))]);
    }
}

#[test]
fn packets_are_forwarded() {
    let mut rig = learned(2);
    for port in [0, 1] {
        let other = 1 - port;
        let mut frame = from(port, PEERS[other].addr, 64, 20);
        let sent = through(&mut rig, port, &frame);
        assert_eq!(sent.len(), 1);
        assert_eq!(sent[0].0, DEVICES[other]);
        let header = Ether::of(&sent[0].1).unwrap();
        assert_eq!((header.dst(), header.src()), (PEERS[other].mac, OURS[other].mac));
        let ip = Ip4::at(&sent[0].1, ETHER_BYTES).unwrap();
        assert_eq!((ip.ttl(), sum_is_valid(ip.raw_sum())), (63, true));
        // Padding of a short frame goes no further.
        frame.resize(80, 0xee);
        assert_eq!(through(&mut rig, port, &frame)[0].1.len(), ETHER_BYTES + 40);
    }
    // Beyond the networks: by the gateway, which is asked for.
    let asked = through(&mut rig, 0, &from(0, 0x0808_0808, 64, 20));
    let gateway = end(0x44, [203, 0, 113, 254]);
    assert_eq!(Arp::at(&asked[0].1, ETHER_BYTES).unwrap().target().addr, gateway.addr);
    let sent = through(&mut rig, 1, &arp(REPLY, gateway, OURS[1]));
    assert_eq!((Ether::of(&sent[0].1).unwrap().dst(), sent[0].0.as_str()), (gateway.mac, "eth1"));
    // To the router itself, whatever the TTL.
    assert!(through(&mut rig, 0, &from(0, OURS[1].addr, 1, 20)).is_empty());
    assert_eq!(rig.read("rest.count"), "4", "and the three ARP replies");
}

#[test]
fn a_scrubbing_router_ends_what_is_wrong_with_sources() {
    let mut rig = learn(example("scrubbing.click"), 2);
    let sent = |rig: &mut Rig, port: usize, src: &str| {
        let mut frame = frame_v4(src, &text(PEERS[1 - port].addr), 64, 17, &[7; 20]);
        EtherMut::of(&mut frame).unwrap().set_addrs(OURS[port].mac, PEERS[port].mac);
        let before = [DropReason::Urpf, DropReason::SourceFilter].map(|why| rig.dropped(why));
        let sent = through(rig, port, &frame);
        let after = [DropReason::Urpf, DropReason::SourceFilter].map(|why| rig.dropped(why));
        match (sent.len(), after[0] - before[0], after[1] - before[1]) {
            (1, 0, 0) => "forwarded",
            (0, 1, 0) => "urpf",
            (0, 0, 1) => "source_filter",
            other => panic!("{src}: {other:?}"),
        }
    };
    for (port, src, want) in [
        (0, "198.51.100.9", "forwarded"),
        (0, "192.0.2.77", "forwarded"),
        (0, "203.0.113.9", "urpf"),
        (0, "8.8.8.8", "urpf"),
        (1, "8.8.8.8", "forwarded"),
        (1, "45.0.9.9", "source_filter"),
        (1, "45.0.2.9", "forwarded"),
        (1, "10.1.1.1", "source_filter"),
        (1, "193.0.0.1", "forwarded"),
        (1, "192.88.99.1", "urpf"),
    ] {
        assert_eq!(sent(&mut rig, port, src), want, "{src}");
    }
    rig.write("lists.add", "attack 9.9.0.0/16");
    rig.write("rt.add", "8.8.8.8/32 3");
    let seen = ["9.9.1.1", "8.8.8.8", "8.8.4.4"].map(|src| sent(&mut rig, 1, src));
    assert_eq!(seen, ["source_filter", "urpf", "forwarded"]);
    let count = rig.read("lists.count");
    assert_eq!(count, "partners 1 40\nattack 3 120\nbogons 1 40\nwatched 1 40\n");
}

#[test]
fn four_ports_reach_each_other() {
    let mut rig = learned(4);
    for port in 0..4 {
        for other in (0..4).filter(|&other| other != port) {
            let sent = through(&mut rig, port, &from(port, PEERS[other].addr, 64, 20));
            let header = Ether::of(&sent[0].1).unwrap();
            assert_eq!((sent.len(), sent[0].0.as_str()), (1, DEVICES[other]));
            assert_eq!((header.dst(), header.src()), (PEERS[other].mac, OURS[other].mac));
        }
    }
    // One port has a smaller MTU than the others.
    let sent = through(&mut rig, 3, &from(3, PEERS[2].addr, 64, 1300));
    let lens: Vec<_> = sent.iter().map(|(_, frame)| frame.len() - ETHER_BYTES).collect();
    assert_eq!(lens, [1276, 64]);
}

#[test]
fn the_router_answers_pings() {
    let mut rig = learned(2);
    let mut ping =
        frame_v4(&text(PEERS[0].addr), &text(OURS[1].addr), 1, 1, &[8, 0, 0, 0, 1, 2, 3, 4]);
    let sum = wire::checksum::checksum(&ping[34..]).to_be_bytes();
    ping[36..38].copy_from_slice(&sum);
    let sent = through(&mut rig, 0, &ping);
    let (device, reply) = &sent[0];
    assert_eq!((sent.len(), device.as_str()), (1, "eth0"));
    let ip = Ip4::at(reply, ETHER_BYTES).unwrap();
    assert_eq!((ip.src(), ip.dst(), ip.ttl()), (OURS[1].addr, PEERS[0].addr, 63));
    assert_eq!((reply[34], wire::checksum::checksum(&reply[34..])), (0, 0));
}

#[test]
fn errors_come_from_the_port_they_leave_by() {
    let mut rig = learned(2);
    let expired = from(0, PEERS[1].addr, 1, 20);
    let mut whole = from(0, PEERS[1].addr, 64, 1580);
    whole[20] = 0x40;
    fill_ip4_checksum(&mut whole);
    for (frame, kind, word) in [(expired, [11, 0], 0), (whole, [3, 4], 1500)] {
        let sent = through(&mut rig, 0, &frame);
        assert_eq!(sent.len(), 1);
        let (device, error) = &sent[0];
        assert_eq!(device, "eth0");
        assert_eq!(Ether::of(error).unwrap().dst(), PEERS[0].mac);
        let ip = Ip4::at(error, ETHER_BYTES).unwrap();
        // Made with the address of the port behind which it happened; sent with that of the way back.
        assert_eq!((ip.src(), ip.dst()), (OURS[0].addr, PEERS[0].addr));
        assert_eq!((ip.ttl(), sum_is_valid(ip.raw_sum())), (199, true));
        assert_eq!(error[34..36], kind);
        assert_eq!(u32::from_be_bytes(error[38..42].try_into().unwrap()), word);
        assert_eq!(wire::checksum::checksum(&error[34..]), 0);
        assert_eq!(error[54..62], frame[26..34], "the addresses of the offender");
    }
    assert_eq!(rig.dropped(DropReason::TtlExpired), 1);
    assert_eq!(rig.dropped(DropReason::TooBig), 1);
}

#[test]
fn what_leaves_where_it_came_in_causes_a_redirect() {
    let mut rig = learned(2);
    // To another station of the same network, which answers to the router as well.
    let other = end(0x33, [198, 51, 100, 33]);
    let asked = through(&mut rig, 0, &from(0, other.addr, 64, 20));
    let redirect = asked.iter().find(|sent| sent.1[12..14] == [8, 0]).expect("a redirect");
    assert_eq!((redirect.0.as_str(), &redirect.1[34..36]), ("eth0", &[5, 1][..]));
    assert_eq!(redirect.1[38..42], other.addr.to_be_bytes(), "go there yourself");
    let sent = through(&mut rig, 0, &arp(REPLY, other, OURS[0]));
    assert_eq!(Ether::of(&sent[0].1).unwrap().dst(), other.mac, "and this once we do");
}

#[test]
fn broadcasts_and_nonsense_go_nowhere() {
    let mut rig = learned(2);
    let mut broadcast = from(0, PEERS[1].addr, 64, 20);
    broadcast[..6].fill(0xff);
    let mut damaged = from(0, PEERS[1].addr, 64, 20);
    damaged[24] ^= 1;
    let mut other = from(0, PEERS[1].addr, 64, 20);
    other[12..14].copy_from_slice(&[0x88, 0xcc]);
    let mut silent = from(0, PEERS[1].addr, 1, 20);
    silent[26..30].copy_from_slice(&[198, 51, 100, 255]);
    fill_ip4_checksum(&mut silent);
    for frame in [&broadcast[..], &damaged, &other, &silent, &broadcast[..30], &[]] {
        assert!(through(&mut rig, 0, frame).is_empty());
    }
    let reasons = [DropReason::LinkBroadcast, DropReason::BadChecksum, DropReason::MartianSource];
    assert_eq!(reasons.map(|reason| rig.dropped(reason)), [1, 1, 1]);
}

#[test]
fn a_large_packet_is_cut() {
    let mut rig = learned(2);
    let sent = through(&mut rig, 0, &from(0, PEERS[1].addr, 64, 1580));
    let lens: Vec<_> = sent.iter().map(|(_, frame)| frame.len() - ETHER_BYTES).collect();
    assert_eq!(lens, [1500, 120]);
    assert!(sent.iter().all(|(device, frame)| device == "eth1" && frame[22] == 63));
}
