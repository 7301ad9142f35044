//! The MTU of a route, from the event of its source to the packets that leave: what is larger is cut, or
//! its sender gets an ICMP error with the MTU.

#![allow(clippy::unwrap_used, reason = "a test: what fails here fails the test")]

use std::time::Instant;

use fingerpost_packet::frame::wire::{Ip4, Ip6};
use fingerpost_packet::testing::{
    Bench, World, batch, fill_ip4_checksum, frame_v4, frame_v6, port_mac,
};
use fingerpost_packet::{Graph, router_graph};
use fingerpost_route::event::{
    AddressUpdate, LinkState, LinkUpdate, NeighborState, NeighborUpdate, RouteEvent,
};
use fingerpost_route::{
    AnyPrefix, Control, ControlOptions, Forwarding, MAIN_TABLE, Mac, Path, RouteKey, RouteUpdate,
    SourceId, Target,
};

const ETHERNET: usize = 14;
const SENDER_V4: &str = "10.0.0.9";
const SENDER_V6: &str = "2001:db8:0:1::9";

struct Router {
    control: Control,
    source: SourceId,
}

impl Router {
    /// Two links of 1,500 bytes, a host on each: senders on the first, gateways on the second.
    fn new() -> Self {
        let mut control = Control::new(ControlOptions {
            v4: fingerpost_lpm::registry::v4().collect(),
            v6: fingerpost_lpm::registry::v6().collect(),
            connected_from_addresses: true,
        })
        .unwrap();
        let source = control.add_source("test", 0);
        let mut router = Self { control, source };
        for (link, own, stations) in [
            (1, ["10.0.0.1", "2001:db8:0:1::1"], [SENDER_V4, SENDER_V6]),
            (2, ["10.0.1.1", "2001:db8:0:2::1"], ["10.0.1.9", "2001:db8:0:2::9"]),
        ] {
            router.link(link, 1500);
            for (addr, prefix_len) in own.into_iter().zip([24, 64]) {
                let addr = addr.parse().unwrap();
                let update = AddressUpdate::new(link, addr, prefix_len);
                router.say(RouteEvent::Address(update));
            }
            for addr in stations {
                let state = NeighborState::Reachable(Mac([2, 0, 0, 0, 1, 1]));
                let addr = addr.parse().unwrap();
                router.say(RouteEvent::Neighbor(NeighborUpdate { link, addr, state }));
            }
        }
        router
    }

    fn say(&mut self, event: RouteEvent) {
        self.control.handle(self.source, event);
    }

    fn link(&mut self, link: u32, mtu: u32) {
        let mac = Some(port_mac(u8::try_from(link - 1).unwrap()));
        let name = format!("eth{link}");
        let state = Some(LinkState { name, up: true, mtu, mac, ..LinkState::default() });
        self.say(RouteEvent::Link(LinkUpdate { link, state }));
    }

    fn route(&mut self, prefix: &str, gateway: &str, mtu: u16) {
        let prefix = AnyPrefix::parse(prefix).unwrap();
        let key = RouteKey { table: MAIN_TABLE, prefix, metric: 0 };
        let path = Path { gateway: Some(gateway.parse().unwrap()), link: None, weight: 1 };
        self.say(RouteEvent::Route(RouteUpdate {
            mtu,
            ..RouteUpdate::new(key, Target::Path(path))
        }));
    }

    /// What leaves when this frame comes in: port and packet.
    fn forward(&mut self, frame: &[u8]) -> Vec<(u16, Vec<u8>)> {
        self.control.commit_now(Instant::now()).unwrap();
        let mut bench = Bench::new(&World::new());
        bench.forwarding = Forwarding::clone(&self.control.forwarding());
        let mut graph = Graph::new(&router_graph::plan().unwrap(), &bench.pool);
        let packets = batch(&bench.pool, 0, [frame]);
        graph.receive(0, packets, &mut bench.round());
        assert_eq!(graph.held().received, 0, "all stations are known");
        let sent = bench.sent.frames.into_iter();
        sent.map(|(port, frame, _)| (port, frame[ETHERNET..].to_vec())).collect()
    }
}

fn v4(len: usize, may_be_cut: bool) -> Vec<u8> {
    let mut frame = frame_v4(SENDER_V4, "192.0.2.1", 64, 17, &vec![7; len - 20]);
    if !may_be_cut {
        frame[ETHERNET + 6] = 0x40;
        fill_ip4_checksum(&mut frame);
    }
    frame
}

fn v6(len: usize) -> Vec<u8> {
    frame_v6(SENDER_V6, "2001:db8:9::1", 64, 17, &vec![7; len - 40])
}

/// The lengths of fragments that left by the second port, and what they carry in all.
fn fragments(sent: &[(u16, Vec<u8>)]) -> (Vec<usize>, usize) {
    let lens: Vec<usize> = sent.iter().map(|(_, packet)| packet.len()).collect();
    for (port, packet) in sent {
        assert_eq!((*port, Ip4::at(packet, 0).unwrap().total_len()), (1, packet.len()));
    }
    let carried = lens.iter().map(|len| len - 20).sum();
    (lens, carried)
}

/// MTU in the ICMP error to the sender, if it got one.
fn reported(sent: &[(u16, Vec<u8>)]) -> Option<u32> {
    let [(0, packet)] = sent else { return None };
    match packet[0] >> 4 {
        4 => {
            assert_eq!(Ip4::at(packet, 0)?.dst(), 0x0a00_0009);
            let [3, 4, _, _, _, _, a, b] = packet[20..28] else { return None };
            Some(u16::from_be_bytes([a, b]).into())
        }
        _ => {
            let to: std::net::Ipv6Addr = SENDER_V6.parse().unwrap();
            assert_eq!(Ip6::at(packet, 0)?.dst(), to.to_bits());
            let [2, 0, _, _, a, b, c, d] = packet[40..48] else { return None };
            Some(u32::from_be_bytes([a, b, c, d]))
        }
    }
}

#[test]
fn what_is_larger_is_cut_or_its_sender_reported() {
    let mut router = Router::new();
    router.route("192.0.2.0/24", "10.0.1.9", 1000);
    router.route("2001:db8:9::/48", "2001:db8:0:2::9", 1300);
    // 20 bytes of header and a multiple of 8.
    assert_eq!(fragments(&router.forward(&v4(1400, true))), (vec![996, 424], 1380));
    assert_eq!(reported(&router.forward(&v4(1400, false))), Some(1000));
    assert_eq!(reported(&router.forward(&v6(1400))), Some(1300));
    for (frame, len) in [(v4(1000, false), 1000), (v6(1300), 1300)] {
        let sent = router.forward(&frame);
        assert_eq!(sent.iter().map(|(port, p)| (*port, p.len())).collect::<Vec<_>>(), [(1, len)]);
    }
    // The link's limit is below it now.
    router.link(2, 900);
    assert_eq!(fragments(&router.forward(&v4(1400, true))), (vec![900, 520], 1380));
    assert_eq!(reported(&router.forward(&v4(1000, false))), Some(900));
    // Without one of its own the link's counts alone.
    router.link(2, 1500);
    router.route("192.0.2.0/24", "10.0.1.9", 0);
    assert_eq!(fragments(&router.forward(&v4(1500, false))), (vec![1500], 1480));
    router.route("192.0.2.0/24", "10.0.1.9", 9000);
    assert_eq!(reported(&router.forward(&v4(1501, false))), Some(1500));
}

#[test]
fn a_station_has_the_mtu_of_its_connected_route() {
    let mut router = Router::new();
    let key = RouteKey {
        table: MAIN_TABLE,
        prefix: AnyPrefix::parse("192.0.2.0/24").unwrap(),
        metric: 0,
    };
    let path = Path { gateway: None, link: Some(2), weight: 1 };
    let update = RouteUpdate { mtu: 1000, ..RouteUpdate::new(key, Target::Path(path)) };
    router.say(RouteEvent::Route(update));
    let state = NeighborState::Reachable(Mac([2, 0, 0, 0, 1, 2]));
    let addr = "192.0.2.1".parse().unwrap();
    router.say(RouteEvent::Neighbor(NeighborUpdate { link: 2, addr, state }));
    assert_eq!(reported(&router.forward(&v4(1400, false))), Some(1000));
}
