//! Finds the link address of the next hop of IPv4 packets, and puts the Ethernet header before them:
//! `ARPQuerier(10.0.0.1/24, 02:00:00:00:00:01)`.
//!
//! Source: Click's `ARPQuerier`; RFC 826, RFC 1122 2.3.2, RFC 5227. Ports, waiting and resolution are those of
//! [`super::querier`]; Click queries more often than the second that RFC 1122 recommends. Addresses are kept for `TIMEOUT` (5 minutes), and confirmed after `POLL_TIMEOUT` (a minute).
//! Only a packet that is for us makes a new entry; any updates one that is there. Refused are senders that no
//! host is: groups, ourselves, and with `ONLINK true` those outside of the prefix that is given. Without it the prefix
//! is that of the broadcast address, as in Click. `TABLE` names an `ARPTable`, which several may share: its bounds and
//! `TIMEOUT` are in effect then.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use fingerpost_lpm::Prefix;
use fingerpost_route::Mac;

use super::querier::{Given, Heard, Protocol, Shared, spec};
use crate::element::support::setting::Setting;
use crate::frame::wire::arp::{ARP_BYTES, Arp, End, REQUEST, write_arp};
use crate::frame::wire::ether::{TYPE_ARP, TYPE_IP4};
use crate::frame::wire::{ETHER_BYTES, EtherMut, Ip4};
use crate::frame::{DropReason, Packet};
use crate::graph::{ElementClass, Setup};
use crate::language::{Around, ConfigError, Value};

pub(crate) const CLASS: ElementClass = ElementClass {
    spec: spec("ARPQuerier"),
    summary: "finds the link addresses of next hops by ARP",
    configure: |setup| {
        let Own { addr: own, mac, net } = own_addresses(setup);
        let given = Given::read(&mut setup.args);
        let broadcast = setup.args.keyword::<Ipv4Addr>("BROADCAST");
        let onlink = setup.args.keyword("ONLINK");
        let named = named(setup);
        setup.args.finish()?;
        let (own, mac, onlink) = (own?, mac?, onlink?.unwrap_or(false));
        // Of two addresses or one there is no broadcast (RFC 3021).
        let net = net.unwrap_or(own.prefix);
        let last = Some(net.last()).filter(|_| net.len() < 31);
        let addr = Setting::new(Ipv4Addr::from_bits(own.addr));
        let broadcast = broadcast?.or(last.map(Ipv4Addr::from_bits)).unwrap_or(Ipv4Addr::BROADCAST);
        let broadcast = Setting::new(broadcast);
        let protocol = ByArp {
            addr: addr.clone(),
            mac,
            subnet: Some(own.prefix).filter(|prefix| onlink && prefix.len() < 32),
            broadcast: broadcast.clone(),
        };
        let made = match named? {
            None => given?.made(protocol, setup),
            Some((table, bounds)) => given?.of_table(bounds).made_with(protocol, setup, table),
        };
        let made = broadcast.handled(made, "broadcast");
        Ok(addr.handled(made, "ipaddr"))
    },
};

/// The table that the element shares with others, and its bounds.
pub(super) type Named = Option<(Arc<Shared<u32>>, Given)>;

#[cfg(feature = "click")]
fn named(setup: &mut Setup<'_>) -> Result<Named, ConfigError> {
    super::only::arp_table::named(setup)
}

#[cfg(not(feature = "click"))]
#[allow(clippy::unnecessary_wraps, reason = "as that of feature `click`")]
fn named(_: &mut Setup<'_>) -> Result<Named, ConfigError> {
    Ok(None)
}

/// Addresses of the router.
struct Own {
    addr: Result<Around<u32>, ConfigError>,
    mac: Result<Mac, ConfigError>,
    /// The prefix that a name stands for besides its address.
    net: Option<Prefix<u32>>,
}

/// Addresses of the router: two arguments, or a name of both.
fn own_addresses(setup: &mut Setup<'_>) -> Own {
    let first = match setup.args.positional_arg("IP") {
        Ok(first) => first,
        Err(error) => {
            return Own { addr: Err(error), mac: setup.args.positional("ETH"), net: None };
        }
    };
    let addr = setup.args.read(&first, "IP");
    let net = Prefix::read(&format!("{}:ipnet", first.raw())).ok();
    let mac = match setup.args.optional("ETH") {
        // Where the name is of no link address, that is missing.
        Ok(None) => first.value().or_else(|_| setup.args.positional("ETH")),
        given => given.map(|mac| mac.expect("it is given")),
    };
    Own { addr, mac, net }
}

#[derive(Clone)]
pub(super) struct ByArp {
    addr: Setting<Ipv4Addr>,
    mac: Mac,
    /// Where all neighbors are, where others are refused.
    subnet: Option<Prefix<u32>>,
    broadcast: Setting<Ipv4Addr>,
}

impl ByArp {
    fn ours(&self) -> End {
        End { mac: self.mac, addr: self.addr.get().to_bits() }
    }
}

impl Protocol for ByArp {
    type Addr = u32;
    type Text = Ipv4Addr;
    const ETHERTYPE: u16 = TYPE_IP4;
    // Click's, both.
    const POLL_NS: u64 = 60_000_000_000;
    const LIFE_NS: u64 = 300_000_000_000;
    const QUERIES: &'static str = "ARP queries";
    const REPEATS: bool = false;

    fn mac(&self) -> Mac {
        self.mac
    }

    fn destination(frame: &[u8], network: usize) -> Option<u32> {
        Ip4::at(frame, network).map(Ip4::dst)
    }

    fn gateway(addr: IpAddr) -> Option<u32> {
        match addr {
            IpAddr::V4(addr) => Some(addr.to_bits()),
            IpAddr::V6(_) => None,
        }
    }

    fn known(&self, addr: u32) -> Option<Result<Mac, DropReason>> {
        match addr.to_be_bytes() {
            [0, 0, 0, 0] => Some(Err(DropReason::MartianDestination)),
            [255, 255, 255, 255] => Some(Ok(Mac([0xff; 6]))),
            _ if self.broadcast.get().to_bits() == addr => Some(Ok(Mac([0xff; 6]))),
            // RFC 1112, 6.4.
            [224..=239, b, c, d] => Some(Ok(Mac([1, 0, 0x5e, b & 0x7f, c, d]))),
            _ => None,
        }
    }

    fn query(&self, addr: u32, known: Option<Mac>, packet: &mut Packet) -> bool {
        if !packet.set_len(ETHER_BYTES + ARP_BYTES) {
            return false;
        }
        let frame = packet.bytes_mut();
        if let Some(mut ether) = EtherMut::of(frame) {
            ether.set_addrs(known.unwrap_or(Mac([0xff; 6])), self.mac);
            ether.set_kind(TYPE_ARP);
        }
        write_arp(frame, ETHER_BYTES, REQUEST, self.ours(), End { mac: Mac([0; 6]), addr })
    }

    fn hear(&self, frame: &[u8]) -> Option<Heard<u32>> {
        let arp = Arp::at(frame, ETHER_BYTES)?;
        let (End { mac, addr }, own) = (arp.sender(), self.ours().addr);
        let near = self.subnet.is_none_or(|subnet| subnet.contains(addr));
        let new = arp.target().addr == own;
        let heard = Heard { addr, mac, new, moves: true, confirms: true };
        (near && addr != 0 && addr != own).then_some(heard)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::element::click::arp_responder::arp_frame;
    use crate::element::click::neighbors::{Neighbor, Neighbors};
    use crate::element::click::querier::{FAILED, Querier, Settings};
    use crate::element::support::waiting::{Bounds, KEYS, PER_KEY};
    use crate::frame::Hop;
    use crate::frame::wire::arp::REPLY;
    use crate::graph::{Element, Exit};
    use crate::route_table::gateways::Gateways;
    use crate::testing::{Bench, Rig, World, batch, frame_v4, refused};

    const SECOND: u64 = 1_000_000_000;
    const OURS: End = End { mac: Mac([2, 0, 0, 0, 0, 1]), addr: 0x0a00_0001 };

    fn peer(n: u8) -> End {
        End { mac: Mac([2, 0, 0, 0, 9, n]), addr: 0x0a00_0000 | u32::from(n) }
    }

    /// A packet to 10.0.0.`to`, which ends in `n`.
    fn packet(to: u8, n: u8) -> Vec<u8> {
        frame_v4("192.0.2.1", &format!("10.0.0.{to}"), 64, 17, &[n])[14..].to_vec()
    }

    fn rig(config: &str, more: &str) -> Rig {
        let text = format!(
            "FromDevice(ip) -> q :: ARPQuerier(10.0.0.1/24, 02:00:00:00:00:01{config});
             FromDevice(arp) -> [1] q; q -> ToDevice(out){more}"
        );
        Rig::new(&World::new(), &text)
    }

    fn request(addr: u32) -> Vec<u8> {
        let mut frame = arp_frame(REQUEST, OURS, End { mac: Mac([0; 6]), addr });
        frame.truncate(42);
        frame
    }

    /// Where frames went, and their last bytes.
    fn seen(sent: &[(String, Vec<u8>)]) -> String {
        sent.iter().map(|(device, frame)| format!("{device}{} ", frame.last().unwrap())).collect()
    }

    #[test]
    fn packets_wait_for_the_answer_in_order() {
        let mut rig = rig("", "; q [1] -> ToDevice(query)");
        let sent = rig.receive("ip", &[&packet(7, 1), &packet(7, 2), &packet(8, 3)]);
        let query = |n| ("query".to_owned(), request(peer(n).addr));
        assert_eq!(sent, [query(7), query(8)]);
        assert_eq!((rig.read("q.length"), rig.read("q.queries")), ("3".into(), "2".into()));
        let sent = rig.receive("arp", &[&arp_frame(REPLY, peer(7), OURS)]);
        assert_eq!(seen(&sent), "out1 out2 ");
        let header = [&peer(7).mac.0[..], &OURS.mac.0, &[8, 0]].concat();
        assert_eq!((&sent[0].1[..14], &sent[0].1[14..]), (&header[..], &packet(7, 1)[..]));
        // Known by now.
        assert_eq!(
            seen(&rig.receive("ip", &[&packet(7, 4), &packet(8, 5), &packet(7, 6)])),
            "out4 out6 "
        );
        assert_eq!(
            rig.read("q.table"),
            "10.0.0.7 1 02-00-00-00-09-07 0.000000\n10.0.0.8 0 FF-FF-FF-FF-FF-FF 0.000000\n"
        );
        assert_eq!((rig.read("q.count"), rig.read("q.responses")), ("2".into(), "1".into()));
        assert_eq!(rig.dropped(DropReason::Consumed), 1);
        rig.graph.stop(&mut rig.bench.round());
        assert_eq!(rig.dropped(DropReason::Shutdown), 2);
    }

    #[test]
    fn silence_ends_the_wait_and_is_remembered() {
        let mut rig = rig("", "; q [1] -> ToDevice(query); q [2] -> ToDevice(failed)");
        rig.receive("ip", &[&packet(7, 1)]);
        for tenth in 1..30 {
            rig.bench.now_ns = SECOND + tenth * SECOND / 10;
            let queries = u64::from(tenth % 10 == 0);
            assert_eq!(rig.poll().len() as u64, queries, "{tenth}");
        }
        rig.bench.now_ns = 4 * SECOND;
        assert_eq!(seen(&rig.poll()), "failed1 ");
        // For some time others do not wait, but it is asked for.
        let sent = rig.receive("ip", &[&packet(7, 2)]);
        assert_eq!(sent.iter().map(|s| s.0.as_str()).collect::<Vec<_>>(), ["failed", "query"]);
        assert_eq!(seen(&rig.receive("ip", &[&packet(7, 3)])), "failed3 ");
        // Until it answers, or long after.
        rig.receive("arp", &[&arp_frame(REPLY, peer(7), OURS)]);
        assert_eq!(seen(&rig.receive("ip", &[&packet(7, 4)])), "out4 ");
        assert_eq!((rig.read("q.drops"), rig.read("q.queries")), ("3".into(), "4".into()));
        rig.bench.now_ns = 10 * SECOND;
        rig.poll();
        rig.write("q.clear", "");
        assert_eq!(rig.receive("ip", &[&packet(7, 5)])[0].0, "query");
        assert_eq!(rig.read("q.length"), "1");
    }

    #[test]
    fn an_address_is_confirmed_and_forgotten() {
        let mut rig = rig(", TIMEOUT 10s, POLL_TIMEOUT 4s", "; q [1] -> ToDevice(query)");
        rig.receive("ip", &[&packet(7, 1)]);
        rig.receive("arp", &[&arp_frame(REPLY, peer(7), OURS)]);
        rig.poll();
        rig.bench.now_ns = 6 * SECOND;
        rig.poll();
        let sent = rig.receive("ip", &[&packet(7, 2), &packet(7, 3)]);
        assert_eq!(seen(&sent[1..]), "out2 out3 ");
        let mut want = request(peer(7).addr);
        want[..6].copy_from_slice(&peer(7).mac.0);
        assert_eq!(sent[..1], [("query".to_owned(), want)], "asked once, and alone");
        rig.bench.now_ns = 11 * SECOND;
        rig.poll();
        let sent = rig.receive("ip", &[&packet(7, 4)]);
        assert_eq!(sent, [("query".to_owned(), request(peer(7).addr))]);
        // Whoever asks for us is heard as well, with another link address.
        let moved = End { mac: Mac([2, 0, 0, 0, 9, 99]), ..peer(7) };
        let sent = rig.receive("arp", &[&arp_frame(REQUEST, moved, OURS)]);
        assert_eq!((seen(&sent).as_str(), &sent[0].1[..6]), ("out4 ", &moved.mac.0[..]));
    }

    #[test]
    fn a_sweep_leaves_known_stations_their_room() {
        let mut rig = rig(", TIMEOUT 10s, POLL_TIMEOUT 4s", "; q [1] -> ToDevice(query)");
        rig.receive("arp", &[&arp_frame(REPLY, peer(7), OURS)]);
        rig.bench.now_ns = 6 * SECOND;
        let nobody = |n: u16| {
            let [upper, lower] = n.to_be_bytes();
            frame_v4("192.0.2.1", &format!("10.9.{upper}.{lower}"), 64, 17, &[])[14..].to_vec()
        };
        let sweep: Vec<Vec<u8>> = (0..1100).map(nobody).collect();
        for some in sweep.chunks(200) {
            let some: Vec<&[u8]> = some.iter().map(Vec::as_slice).collect();
            rig.receive("ip", &some);
        }
        let read = |name| rig.read(name).parse::<u64>().unwrap();
        assert_eq!([read("q.queries"), read("q.length"), read("q.drops")], [1100, 768, 332]);
        let sent = rig.receive("ip", &[&packet(7, 2)]);
        assert_eq!(
            (sent.len(), sent[0].0.as_str(), seen(&sent[1..]).as_str()),
            (2, "query", "out2 ")
        );
        // A second later it is asked again, if it was silent.
        rig.bench.now_ns = 7 * SECOND;
        rig.poll();
        assert_eq!(rig.receive("ip", &[&packet(7, 3)]).len(), 2);
        rig.receive("arp", &[&arp_frame(REPLY, peer(7), OURS)]);
        assert_eq!(rig.receive("ip", &[&packet(7, 4)]).len(), 1);
    }

    #[test]
    fn neighbors_may_be_anywhere_unless_refused() {
        let far = arp_frame(REPLY, End { mac: Mac([2; 6]), addr: 0x0a00_0101 }, OURS);
        for (config, count) in [("", "1"), (", ONLINK true", "0")] {
            let mut rig = rig(config, "");
            rig.receive("arp", &[&far]);
            assert_eq!(rig.read("q.count"), count, "{config}");
        }
    }

    #[test]
    fn not_everything_is_believed() {
        let mut rig = rig(", ONLINK true", "");
        let other = End { mac: Mac([2; 6]), addr: 0x0a00_00aa };
        let from = |mac: [u8; 6], addr| End { mac: Mac(mac), addr };
        let good = arp_frame(REPLY, peer(7), OURS);
        let frames = [
            arp_frame(REPLY, peer(7), other),
            arp_frame(REPLY, from([3, 0, 0, 0, 0, 7], peer(7).addr), OURS),
            arp_frame(REPLY, from([0; 6], peer(7).addr), OURS),
            arp_frame(REPLY, from([2; 6], 0), OURS),
            arp_frame(REPLY, from([2; 6], OURS.addr), OURS),
            arp_frame(REPLY, from([2; 6], 0x0a00_0101), OURS),
            good[..41].to_vec(),
            vec![],
        ];
        for frame in &frames {
            rig.receive("arp", &[frame]);
            assert_eq!(rig.read("q.count"), "0", "{frame:02x?}");
        }
        // What is said to others changes what is known, and no more.
        rig.receive("arp", &[&good]);
        rig.receive("arp", &[&arp_frame(REQUEST, from([6; 6], peer(7).addr), other)]);
        assert_eq!(rig.read("q.table"), "10.0.0.7 1 06-06-06-06-06-06 0.000000\n");
        // But not what somebody wrote by hand.
        rig.write("q.insert", "10.0.0.7 2:0:0:0:0:77");
        rig.receive("arp", &[&good]);
        assert_eq!(rig.read("q.table"), "10.0.0.7 1 02-00-00-00-00-77 0.000000\n");
        rig.write("q.delete", "10.0.0.7");
        assert_eq!(rig.read("q.count"), "0");
        for (handler, text) in
            [("q.insert", "10.0.0.7"), ("q.delete", "10.0.0.7"), ("q.ipaddr", "x")]
        {
            assert!(rig.handlers.write(handler, text).is_err(), "{handler}");
        }
    }

    #[test]
    fn some_addresses_need_no_query() {
        let named = "AddressInfo(me 10.0.0.1/24 2:0:0:0:0:1); FromDevice(a) -> q :: ARPQuerier(me) -> ToDevice(b);
            q [1] -> ToDevice(c); Idle -> [1] q";
        assert_eq!(Rig::new(&World::new(), named).read("q.broadcast"), "10.0.0.255");
        let mut rig = rig(", BROADCAST 10.0.0.77", "");
        let mac = |rig: &mut Rig, dst: &str| {
            let frame = frame_v4("192.0.2.1", dst, 64, 17, &[])[14..].to_vec();
            let sent = rig.receive("ip", &[&frame]);
            sent.first().map(|s| s.1[..6].to_vec())
        };
        assert_eq!(mac(&mut rig, "255.255.255.255"), Some(vec![0xff; 6]));
        assert_eq!(mac(&mut rig, "10.0.0.77"), Some(vec![0xff; 6]));
        assert_eq!(mac(&mut rig, "224.1.2.3"), Some(vec![1, 0, 0x5e, 1, 2, 3]));
        assert_eq!(mac(&mut rig, "239.129.2.3"), Some(vec![1, 0, 0x5e, 1, 2, 3]));
        assert_eq!(mac(&mut rig, "0.0.0.0"), None);
        assert_eq!(rig.dropped(DropReason::MartianDestination), 1);
        assert!(rig.receive("ip", &[&[0x45; 19]]).is_empty());
        assert_eq!(rig.dropped(DropReason::TooShort), 1);
        assert_eq!(rig.read("q.queries"), "0");
        let mut rig = self::rig("", "");
        assert_eq!(mac(&mut rig, "10.0.0.255"), Some(vec![0xff; 6]), "the last of the subnet");
        assert!(refused(&CLASS, "10.0.0.1/33, x, CAPACITY -1").contains("`x` is no Ethernet"));
    }

    #[test]
    fn what_is_known_and_what_waits_outlives_a_configuration() {
        let mut rig = rig("", "");
        rig.receive("ip", &[&packet(7, 1)]);
        rig.receive("arp", &[&arp_frame(REPLY, peer(8), OURS)]);
        let text = "FromDevice(ip) -> q :: ARPQuerier(10.0.0.1/24, 02:00:00:00:00:01);
             FromDevice(arp) -> [1] q; q -> Counter -> ToDevice(out)";
        rig.replace(text).unwrap();
        assert_eq!((rig.read("q.length"), rig.read("q.queries")), ("1".into(), "1".into()));
        assert_eq!(seen(&rig.receive("ip", &[&packet(8, 2)])), "out2 ");
        assert_eq!(seen(&rig.receive("arp", &[&arp_frame(REPLY, peer(7), OURS)])), "out1 ");
        assert_eq!(rig.read("q.length"), "0");
    }

    #[test]
    fn room_is_bounded() {
        let mut rig = rig(", CAPACITY 3, ENTRY_CAPACITY 1", "; q [1] -> Discard");
        let packets: Vec<_> = (0..5).map(|n| packet(7, n)).collect();
        let frames: Vec<&[u8]> = packets.iter().map(Vec::as_slice).collect();
        rig.receive("ip", &frames);
        assert_eq!((rig.read("q.length"), rig.dropped(DropReason::HoldFull)), ("3".into(), 2));
        rig.receive("arp", &[&arp_frame(REPLY, peer(8), OURS), &arp_frame(REPLY, peer(7), OURS)]);
        assert_eq!(
            rig.read("q.table"),
            "10.0.0.7 0 FF-FF-FF-FF-FF-FF 0.000000\n10.0.0.8 1 02-00-00-00-09-08 0.000000\n"
        );
        assert!(rig.handlers.write("q.insert", "10.0.0.9 2:0:0:0:0:9").is_err());
        assert_eq!(rig.read("q.stats"), "3 packets killed\n1 ARP queries sent\n");
    }

    /// An instance of a worker.
    fn instance(table: &Arc<Neighbors<u32>>, gateways: &Arc<Gateways>) -> Querier<ByArp> {
        let protocol = ByArp {
            addr: Setting::new(Ipv4Addr::from_bits(OURS.addr)),
            mac: OURS.mac,
            subnet: None,
            broadcast: Setting::new(Ipv4Addr::BROADCAST),
        };
        let settings = Settings {
            protocol,
            life_ns: ByArp::LIFE_NS,
            poll_ns: ByArp::POLL_NS,
            queries: 1,
            failed: Exit::by(FAILED, DropReason::HostUnreachable),
            gateways: gateways.clone(),
            repeats: true,
            broadcast_poll: false,
        };
        let bounds = Bounds { packets: 16, keys: KEYS, per_key: PER_KEY, quick: false };
        Querier::new(settings, table.clone(), bounds, Arc::default())
    }

    #[test]
    fn the_gateway_is_asked_for_and_workers_learn_from_each_other() {
        let (table, gateways) = (Arc::new(Neighbors::default()), Arc::new(Gateways::default()));
        table.set_capacity(9);
        let [mut one, mut other] = [(); 2].map(|()| instance(&table, &gateways));
        let mut bench = Bench::new(&World::new());
        let frame = frame_v4("192.0.2.1", "198.51.100.9", 64, 17, &[5])[14..].to_vec();
        let mut through = |querier: &mut Querier<ByArp>, gateway: &str, n: u8| {
            let mut frame = frame.clone();
            *frame.last_mut().unwrap() = n;
            let mut batch = batch(&bench.pool, 0, [&frame[..]]);
            let number = gateways.number(gateway.parse().unwrap()).unwrap();
            batch.meta_mut()[0].hop = Hop::of_gateway(number);
            querier.process(0, &mut batch, &mut bench.context());
            let emitted = bench.emitted.drain(..);
            let emitted: Vec<_> =
                emitted.map(|(out, p)| (out, *p.bytes().last().unwrap())).collect();
            (batch.decision(0), emitted)
        };
        use crate::frame::Decision::{Drop, Output, Taken};
        assert_eq!(through(&mut one, "10.0.0.7", 1), (Taken, vec![(1, 7)]));
        assert_eq!(through(&mut other, "2001:db8::1", 1).0, Drop(DropReason::Unresolved));
        let entry = Neighbor { mac: peer(7).mac, heard_ns: SECOND };
        assert!(table.learn(peer(7).addr, entry, SECOND, ByArp::LIFE_NS));
        assert_eq!(through(&mut other, "10.0.0.7", 2), (Output(0), vec![]));
        // What waited comes first.
        assert_eq!(through(&mut one, "10.0.0.7", 3), (Taken, vec![(0, 1), (0, 3)]));
        assert_eq!(one.held().total(), 0);
    }
}
