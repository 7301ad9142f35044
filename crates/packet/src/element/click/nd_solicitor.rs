//! Finds the link address of the next hop of IPv6 packets, and puts the Ethernet header before them:
//! `NDSolicitor(2001:db8::1/64, 02:00:00:00:00:01)`.
//!
//! Source: Click's `IP6NDSolicitor`; RFC 4861, 7.2. Ports, waiting and resolution are those of [`super::querier`]: three
//! solicitations, a second apart, to the group of the address. A host is solicited again, by unicast, when it was silent
//! for `POLL_TIMEOUT` (30 seconds), and forgotten after `TIMEOUT` (40); the states STALE, DELAY and PROBE are the time
//! between. A solicited advertisement that is for us makes a new entry, and so does a solicitation for us; others update
//! one that is there, as far as they may override it. Refused are hosts outside of the prefix, where one is given,
//! but for link-local ones.

use std::net::{IpAddr, Ipv6Addr};

use fingerpost_lpm::Prefix;
use fingerpost_route::Mac;

use super::querier::{Given, Heard, Protocol, spec};
use crate::frame::wire::ether::TYPE_IP6;
use crate::frame::wire::ip6::{is_link_local, is_multicast};
use crate::frame::wire::nd::{
    ADVERTISEMENT, ND_BYTES, Nd, OVERRIDE, SOLICITATION, SOLICITED, multicast_mac, solicited_node,
};
use crate::frame::wire::{ETHER_BYTES, Ether, EtherMut, Ip6};
use crate::frame::{DropReason, Packet};
use crate::graph::ElementClass;
use crate::handler::Handler;
use crate::language::Around;

pub(crate) const CLASS: ElementClass = ElementClass {
    spec: spec("NDSolicitor"),
    summary: "finds the link addresses of next hops by neighbor discovery",
    configure: |setup| {
        let own = setup.args.positional::<Around<u128>>("IP");
        let mac = setup.args.positional::<Mac>("ETH");
        let given = Given::read(&mut setup.args);
        setup.args.finish()?;
        let (own, mac) = (own?, mac?);
        let subnet = Some(own.prefix).filter(|prefix| prefix.len() < 128);
        let protocol = ByNd { addr: own.addr, mac, subnet };
        let shown = Ipv6Addr::from_bits(own.addr).to_string();
        let made = given?.made(protocol, setup);
        Ok(made.handler(Handler::read("ipaddr", move || shown.clone())))
    },
};

#[derive(Clone)]
struct ByNd {
    addr: u128,
    mac: Mac,
    /// Where neighbors are, if that is known, beside link-local ones.
    subnet: Option<Prefix<u128>>,
}

impl Protocol for ByNd {
    type Addr = u128;
    type Text = Ipv6Addr;
    const ETHERTYPE: u16 = TYPE_IP6;
    // RFC 4861, 10: REACHABLE_TIME, and with DELAY_FIRST_PROBE_TIME and three probes some 8 seconds more.
    const POLL_NS: u64 = 30_000_000_000;
    const LIFE_NS: u64 = 40_000_000_000;
    const QUERIES: &'static str = "solicitations";
    // RFC 4861, 7.2.2.
    const REPEATS: bool = true;

    fn mac(&self) -> Mac {
        self.mac
    }

    fn destination(frame: &[u8], network: usize) -> Option<u128> {
        Ip6::at(frame, network).map(Ip6::dst)
    }

    fn gateway(addr: IpAddr) -> Option<u128> {
        match addr {
            IpAddr::V4(_) => None,
            IpAddr::V6(addr) => Some(addr.to_bits()),
        }
    }

    fn known(&self, addr: u128) -> Option<Result<Mac, DropReason>> {
        match addr {
            0 => Some(Err(DropReason::MartianDestination)),
            group if is_multicast(group) => Some(Ok(multicast_mac(group))),
            _ => None,
        }
    }

    fn query(&self, target: u128, known: Option<Mac>, packet: &mut Packet) -> bool {
        if !packet.set_len(ETHER_BYTES + ND_BYTES) {
            return false;
        }
        let (dst, to) = match known {
            Some(mac) => (target, mac),
            None => (solicited_node(target), multicast_mac(solicited_node(target))),
        };
        let frame = packet.bytes_mut();
        if let Some(mut ether) = EtherMut::of(frame) {
            ether.set_addrs(to, self.mac);
            ether.set_kind(TYPE_IP6);
        }
        let (kind, link) = (SOLICITATION, Some(self.mac));
        Nd { kind, flags: 0, src: self.addr, dst, target, link }.write(frame, ETHER_BYTES)
    }

    fn hear(&self, frame: &[u8]) -> Option<Heard<u128>> {
        let ether = Ether::of(frame).filter(|ether| ether.kind() == TYPE_IP6)?;
        let nd = Nd::at(frame, ETHER_BYTES)?;
        let heard = match nd.kind {
            ADVERTISEMENT => {
                let solicited = nd.flags & SOLICITED != 0;
                Heard {
                    addr: nd.target,
                    // Who was asked itself need not say it again (RFC 4861, 4.4).
                    mac: nd.link.or(solicited.then_some(ether.src()))?,
                    new: solicited && nd.dst == self.addr,
                    moves: nd.flags & OVERRIDE != 0,
                    confirms: solicited,
                }
            }
            // Who asks for us will want an answer, but has not heard us yet (RFC 4861, 7.2.3).
            _ => {
                let new = nd.target == self.addr;
                Heard { addr: nd.src, mac: nd.link?, new, moves: true, confirms: false }
            }
        };
        let near = |subnet: Prefix<u128>| subnet.contains(heard.addr) || is_link_local(heard.addr);
        let taken = heard.addr == 0 || heard.addr == self.addr;
        (!taken && self.subnet.is_none_or(near)).then_some(heard)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::element::click::nd_advertiser::nd_frame;
    use crate::frame::wire::nd::{ALL_NODES, ROUTER};
    use crate::testing::{Rig, World, frame_v6, refused};

    const SECOND: u64 = 1_000_000_000;
    const OURS: Mac = Mac([2, 0, 0, 0, 0, 1]);
    const NET: u128 = 0x2001_0db8 << 96;
    const US: u128 = NET | 1;

    fn peer(n: u8) -> (u128, Mac) {
        (NET | u128::from(n), Mac([2, 0, 0, 0, 9, n]))
    }

    /// A packet to 2001:db8::`to`, which ends in `n`.
    fn packet(to: u8, n: u8) -> Vec<u8> {
        frame_v6("2001:db8:ff::1", &format!("2001:db8::{to:x}"), 64, 17, &[n])[14..].to_vec()
    }

    fn solicitation(n: u8) -> Vec<u8> {
        let (target, _) = peer(n);
        let dst = solicited_node(target);
        let nd = Nd { kind: SOLICITATION, flags: 0, src: US, dst, target, link: Some(OURS) };
        nd_frame(multicast_mac(dst), OURS, &nd)
    }

    /// Host `n` advertises the link address of `at`.
    fn says(n: u8, at: u8, dst: u128, flags: u8, named: bool) -> Vec<u8> {
        let (target, mac) = (peer(n).0, peer(at).1);
        let link = named.then_some(mac);
        let nd = Nd { kind: ADVERTISEMENT, flags, src: target, dst, target, link };
        nd_frame(OURS, mac, &nd)
    }

    fn rig(config: &str) -> Rig {
        let text = format!(
            "FromDevice(ip) -> q :: NDSolicitor(2001:db8::1/64, 02:00:00:00:00:01{config});
             FromDevice(nd) -> [1] q; q -> ToDevice(out); q [1] -> ToDevice(query); q [2] -> ToDevice(failed)"
        );
        Rig::new(&World::new(), &text)
    }

    /// Where frames went, their destination's last byte, and theirs.
    fn seen(sent: &[(String, Vec<u8>)]) -> String {
        let one =
            |(device, f): &(String, Vec<u8>)| format!("{device}:{:x}:{} ", f[5], f.last().unwrap());
        sent.iter().map(one).collect()
    }

    #[test]
    fn packets_wait_for_the_advertisement() {
        let mut rig = rig("");
        let sent = rig.receive("ip", &[&packet(7, 1), &packet(7, 2), &packet(8, 3)]);
        assert_eq!(sent, [7, 8].map(|n| ("query".to_owned(), solicitation(n))));
        let flags = SOLICITED | OVERRIDE;
        let sent = rig.receive("nd", &[&says(7, 7, US, flags, true)]);
        assert_eq!(seen(&sent), "out:7:1 out:7:2 ");
        assert_eq!(
            (&sent[0].1[6..14], &sent[0].1[14..]),
            (&[2, 0, 0, 0, 0, 1, 0x86, 0xdd][..], &packet(7, 1)[..])
        );
        assert_eq!(seen(&rig.receive("ip", &[&packet(7, 4)])), "out:7:4 ");
        assert_eq!(
            rig.read("q.table"),
            "2001:db8::7 1 02-00-00-00-09-07 0.000000\n2001:db8::8 0 FF-FF-FF-FF-FF-FF 0.000000\n"
        );
        assert_eq!(rig.read("q.ipaddr"), "2001:db8::1");
        // Groups are asked for nothing.
        let group = frame_v6("2001:db8:ff::1", "ff05::1:3", 64, 17, &[5])[14..].to_vec();
        assert_eq!(rig.receive("ip", &[&group])[0].1[..6], [0x33, 0x33, 0, 1, 0, 3]);
        rig.write("q.insert", "2001:db8::99 2:0:0:0:9:99");
        assert_eq!(seen(&rig.receive("ip", &[&packet(0x99, 6)])), "out:99:6 ");
        rig.write("q.delete", "2001:db8::99");
        assert_eq!(rig.receive("ip", &[&packet(0x99, 6)])[0].0, "query");
    }

    #[test]
    fn three_are_sent_and_silence_is_reported() {
        let mut rig = rig("");
        let mut sent = rig.receive("ip", &[&packet(7, 1)]).len();
        for tenth in 1..30 {
            rig.bench.now_ns = SECOND + tenth * SECOND / 10;
            sent += rig.poll().len();
        }
        assert_eq!(sent, 3, "MAX_MULTICAST_SOLICIT");
        rig.bench.now_ns = 4 * SECOND;
        assert_eq!(rig.poll(), [("failed".to_owned(), packet(7, 1))]);
        let text = "FromDevice(ip) -> q :: NDSolicitor(2001:db8::1/64, 2:0:0:0:0:1) -> ToDevice(out); Idle -> [1] q;
            q [1] -> Discard; q [2] -> ICMP6Error(2001:db8::1, unreachable, 3) -> ToDevice(errors)";
        let mut rig = Rig::new(&World::new(), text);
        rig.receive("ip", &[&packet(7, 1)]);
        rig.bench.now_ns = 4 * SECOND;
        let errors = rig.poll();
        assert_eq!(
            (errors.len(), errors[0].0.as_str(), &errors[0].1[40..42]),
            (1, "errors", &[1, 3][..])
        );
    }

    #[test]
    fn a_station_is_asked_itself_and_then_forgotten() {
        let mut rig = rig("");
        rig.receive("ip", &[&packet(7, 1)]);
        rig.receive("nd", &[&says(7, 7, US, SOLICITED | OVERRIDE, true)]);
        rig.poll();
        rig.bench.now_ns = 30 * SECOND;
        assert_eq!(seen(&rig.receive("ip", &[&packet(7, 2)])), "out:7:2 ");
        rig.bench.now_ns = 32 * SECOND;
        rig.poll();
        let sent = rig.receive("ip", &[&packet(7, 3)]);
        assert_eq!(seen(&sent[1..]), "out:7:3 ");
        let (target, mac) = peer(7);
        let nd =
            Nd { kind: SOLICITATION, flags: 0, src: US, dst: target, target, link: Some(OURS) };
        assert_eq!(
            sent[..1],
            [("query".to_owned(), nd_frame(mac, OURS, &nd))],
            "to the station alone"
        );
        // It need not say where it is (RFC 4861, 4.4).
        rig.receive("nd", &[&says(7, 7, US, SOLICITED, false)]);
        rig.bench.now_ns = 61 * SECOND;
        assert_eq!(seen(&rig.receive("ip", &[&packet(7, 4)])), "out:7:4 ");
        rig.bench.now_ns = 75 * SECOND;
        rig.poll();
        assert_eq!(rig.receive("ip", &[&packet(7, 5)]), [("query".to_owned(), solicitation(7))]);
    }

    #[test]
    fn not_everything_is_believed() {
        let (flags, none) = (SOLICITED | OVERRIDE, "");
        let mut rig = rig("");
        let mut hears = |frame: Vec<u8>| {
            rig.receive("nd", &[&frame]);
            rig.read("q.table")
        };
        // Not asked for, for another, of ourselves, from outside, at a group; by way of a router, and damaged.
        assert_eq!(hears(says(7, 7, ALL_NODES, OVERRIDE, true)), none);
        assert_eq!(hears(says(7, 7, NET | 2, flags, true)), none);
        assert_eq!(hears(says(1, 7, US, flags, true)), none);
        let outside =
            Nd { kind: ADVERTISEMENT, flags, src: US, dst: US, target: 5 << 64, link: Some(OURS) };
        assert_eq!(hears(nd_frame(OURS, OURS, &outside)), none);
        let group = Nd { target: NET | 5, link: Some(Mac([0x33; 6])), ..outside };
        assert_eq!(hears(nd_frame(OURS, OURS, &group)), none);
        let mut far = says(7, 7, US, flags, true);
        far[21] = 254;
        assert_eq!(hears(far), none);
        assert_eq!(hears(says(7, 7, US, flags, true)[..80].to_vec()), none);
        // What is link-local is near.
        let router =
            Nd { target: 0xfe80 << 112 | 9, flags: flags | ROUTER, link: Some(OURS), ..outside };
        assert_eq!(hears(nd_frame(OURS, OURS, &router)), "fe80::9 1 02-00-00-00-00-01 0.000000\n");
        rig.write("q.clear", "");
        let mut hears = |frame: Vec<u8>| {
            rig.receive("nd", &[&frame]);
            let table = rig.read("q.table");
            let rest = table.trim_start_matches("2001:db8::7 1 02-00-00-00-09-");
            rest.split(' ').next().unwrap_or_default().to_owned()
        };
        assert_eq!(hears(says(7, 7, US, flags, true)), "07");
        // Another link address: only who says so overrides the known one (RFC 4861, 7.2.5).
        assert_eq!(hears(says(7, 8, ALL_NODES, 0, true)), "07");
        assert_eq!(hears(says(7, 8, US, SOLICITED, true)), "07");
        assert_eq!(hears(says(7, 8, ALL_NODES, OVERRIDE, true)), "08");
        assert_eq!(hears(says(7, 9, US, flags, true)), "09");
    }

    #[test]
    fn who_asks_for_us_is_known_but_not_confirmed() {
        let mut rig = rig("");
        rig.bench.now_ns = 100 * SECOND;
        let (src, mac) = peer(7);
        let dst = solicited_node(US);
        let nd = Nd { kind: SOLICITATION, flags: 0, src, dst, target: US, link: Some(mac) };
        rig.receive("nd", &[&nd_frame(multicast_mac(dst), mac, &nd)]);
        let sent = rig.receive("ip", &[&packet(7, 1)]);
        assert_eq!((sent[0].0.as_str(), seen(&sent[1..]).as_str()), ("query", "out:7:1 "));
        assert!(refused(&CLASS, "10.0.0.1/24, 2:0:0:0:0:1, LIMIT 5").contains("no IPv6 prefix"));
        assert!(refused(&CLASS, "2001:db8::1").contains("argument ETH is missing"));
    }
}
