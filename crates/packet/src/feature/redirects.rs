//! ICMP redirects: the sender of a packet whose next hop is on the link that it came from gets a redirect to that next hop.
//!
//! Source: RFC 792 and RFC 1812 5.2.7.2 (always for a host, never for a network), RFC 4861 8.2 and 4.5. The packet itself
//!         is forwarded as without the feature; the redirect is a packet of our own beside it.
//!
//! A redirect is made when the sender is a host on that link and so is the next hop: IPv4 needs both in one prefix of the
//! port, IPv6 the sender in one of its prefixes or link-local, and a gateway that is known by its link-local address. It
//! quotes the packet as it came, so the element stands before the rewrite of the header. A packet about which no ICMP
//! error may be sent has no redirect either (RFC 1812 4.3.2.7, RFC 4443 2.4); source-routed packets are dropped before.
//!
//! Rates: one a second to a sender about a destination, by a small table in which others may take its place; and a
//! token bucket a family over all.
//!
//! Cost: nothing but for packets that leave by the interface that they arrived on: a hash and a look at the table, and
//! 200 ns for each redirect.

use std::net::IpAddr;
use std::sync::Arc;

use fingerpost_lpm::Prefix;
use fingerpost_route::{Control, ForwardingAction, InterfaceSet, PortInfo, RouteError};

use super::reader::Mistake;
use super::row::{
    Feature, FeatureArc, Given, InUse, Item, Key, Settings as FeatureSettings, Stage, State,
    Support, Use,
};
use super::value::Value;
use crate::element::router::icmp4_error::{compose_v4, may_answer_v4, sign_v4};
use crate::element::router::icmp6_error::{
    MIN_MTU, address_back, may_answer_v6, sign_v6, start_icmpv6,
};
use crate::element::support::rate_limit::{Bucket, Limit};
use crate::element::support::source_addr::source_v4;
use crate::frame::wire::ether::{ETHER_BYTES, TYPE_IP4, TYPE_IP6};
use crate::frame::wire::icmp::{V4_REDIRECT, V6_REDIRECT};
use crate::frame::wire::ip6::is_link_local;
use crate::frame::wire::{EtherMut, IP6_BYTES, Ip4, Ip6};
use crate::frame::{Batch, Meta, Note, Packet};
use crate::graph::{Context, Element, ElementClass, Made};
use crate::language::ClassSpec;

/// The row.
pub(super) const FEATURE: Feature = Feature {
    name: "redirects",
    summary: "sends ICMP redirects to senders of packets that leave by the interface that they arrived on",
    key: Some(Key { name: "redirects", former: None, fields: &[] }),
    section: None,
    read,
    stages: &[Stage { name: "redirects", arc: FeatureArc::Hairpin, after: &[], element: &CLASS }],
    guards: false,
    kernel: "the kernel sends them, by net.ipv4.conf.NAME.send_redirects",
    drop_reasons: &[],
    columns: &[],
};

/// The interfaces with redirects switched off, of those that are named, and all: on unless the configuration has
/// `redirects = false` (a router has to be able to send them, RFC 1812 5.2.7.2).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Settings {
    /// Interfaces that the configuration names; none: all are forwarded for.
    named: Vec<String>,
    /// Those without redirects, and the place.
    off: Vec<(String, String)>,
}

fn read(given: &Given, mistakes: &mut Vec<Mistake>) -> Arc<dyn FeatureSettings> {
    let mut settings = Settings::default();
    for interface in &given.interfaces {
        settings.named.push(interface.name.clone());
        match &interface.value {
            None | Some(Value::Boolean(true)) => {}
            Some(Value::Boolean(false)) => {
                settings.off.push((interface.name.clone(), interface.place.clone()));
            }
            Some(other) => {
                let what =
                    format!("`redirects`: invalid type: {}, expected a boolean", other.describe());
                mistakes.push(Mistake::new(&interface.place, what));
            }
        }
    }
    Arc::new(settings)
}

impl Settings {
    fn off(&self, interface: &str) -> Option<&str> {
        let found = self.off.iter().find(|(name, _)| name == interface);
        found.map(|(_, place)| &**place)
    }
}

impl FeatureSettings for Settings {
    fn is_same(&self, other: &dyn FeatureSettings) -> bool {
        let names = |settings: &Self| -> Vec<String> {
            settings.off.iter().map(|(name, _)| name.clone()).collect()
        };
        let is_same = |other: &Self| self.named == other.named && names(self) == names(other);
        other.of().is_some_and(is_same)
    }

    fn on(&self, interface: &str) -> Option<Use> {
        let off = self.off(interface).is_some();
        (!off).then(|| Use { words: "on".into(), named: false, place: String::new() })
    }

    fn unlike_usual(&self, interface: &str) -> Option<(String, String)> {
        Some(("no `redirects`".to_owned(), self.off(interface)?.to_owned()))
    }

    fn interfaces(&self) -> InterfaceSet {
        if self.named.is_empty() {
            return InterfaceSet::All;
        }
        let on = self.named.iter().filter(|name| self.off(name).is_none());
        InterfaceSet::Some(on.cloned().collect())
    }

    fn xdp(&self, _: Option<&str>) -> Support {
        // The program leaves these packets to the graph.
        Support::Xdp
    }

    fn items(&self) -> Vec<Item> {
        let item =
            |(name, _): &(String, String)| Item::new(format!("interface {name} redirects"), "off");
        self.off.iter().map(item).collect()
    }

    fn bind(
        &self,
        before: Option<&dyn FeatureSettings>,
        control: &mut Control,
    ) -> Result<(), RouteError> {
        let before = before.and_then(|before| before.of::<Self>());
        for (name, _) in before.iter().flat_map(|before| &before.off) {
            control.send_redirects(name, true);
        }
        self.off.iter().for_each(|(name, _)| control.send_redirects(name, false));
        Ok(())
    }

    fn make(&self, _: Option<&dyn State>) -> Result<Option<Arc<dyn State>>, Vec<String>> {
        let used = !self.interfaces().is_empty();
        Ok(used.then(|| Arc::new(InUse(FeatureArc::Hairpin)) as Arc<dyn State>))
    }
}

pub(crate) const CLASS: ElementClass = ElementClass {
    spec: ClassSpec::new("IPRedirects", "2/5", "h/h", "x/x")
        .outputs(&["ip4", "ip6", "lookup4", "lookup6", "link"]),
    summary: "sends ICMP redirects to senders of packets that leave by the interface that they arrived on",
    configure: |setup| {
        let limit = setup.args.keyword("LIMIT");
        setup.args.finish()?;
        let limit = limit?.unwrap_or(LIMIT);
        Ok(Made::new(move |_| IpRedirects { v4: Redirects::new(limit), v6: Redirects::new(limit) }))
    },
};

/// Input of IPv6 packets.
const INPUT6: u16 = 1;
/// Outputs of redirects: to be looked up, and with the link header of a link-local sender.
const LOOKUP4: u16 = 2;
const LOOKUP6: u16 = 3;
const LINK: u16 = 4;

struct IpRedirects {
    v4: Redirects,
    v6: Redirects,
}

impl Element for IpRedirects {
    fn process(&mut self, input: u16, batch: &mut Batch, cx: &mut Context<'_>) {
        for i in 0..batch.len() {
            batch.output(i, input);
            let meta = batch.meta()[i];
            let action = ForwardingAction::decode(meta.hop.action_word());
            let ForwardingAction::Adjacency(index) = action else { continue };
            if !cx.forwarding.ports.port(meta.port).is_some_and(|info| info.redirects) {
                continue;
            }
            let frame = batch.bytes(i);
            if input != INPUT6 {
                if let Some(packet) = self.v4.v4(frame, meta, index, cx) {
                    cx.originate(LOOKUP4, packet);
                }
            } else if let Some((to, mut packet)) = self.v6.v6(frame, meta, index, cx) {
                match to {
                    To::Lookup => cx.originate(LOOKUP6, packet),
                    To::Link(port) => {
                        packet.meta.note = Note::egress(port);
                        cx.originate(LINK, packet);
                    }
                }
            }
        }
    }

    fn stats(&self, visit: &mut dyn FnMut(&'static str, u64)) {
        let sum = |of: fn(&Redirects) -> u64| of(&self.v4) + of(&self.v6);
        visit("redirects", sum(|r| r.sent));
        visit("redirects_suppressed", sum(|r| r.suppressed));
        visit("redirects_forbidden", sum(|r| r.forbidden));
        visit("redirects_no_buffer", sum(|r| r.no_buffer));
    }
}

/// Unless configured otherwise: a host that heeds them needs one for each destination, so this is for many at once.
const LIMIT: Limit = Limit { rate_pps: 100, burst: 50 };

/// Pairs of sender and destination that are remembered at a time.
const REMEMBERED: usize = 256;
/// Time between two redirects to a sender about a destination.
const AGAIN_NS: u64 = 1_000_000_000;

/// The whole of one is at most this long (RFC 1812 4.3.2.3).
const MAX_V4: usize = 576;
/// Code of a redirect for the host, not for the network (RFC 1812 5.2.7.2).
const FOR_HOST: u8 = 1;
/// What shows that it comes from the link itself (RFC 4861 8.1).
const HOP_LIMIT: u8 = 255;
/// Type, code, checksum, four bytes of nothing, target, destination.
const V6_HEADER: usize = 40;
/// Length of an option with an Ethernet address, its two bytes of header included.
const LINK_BYTES: usize = 8;
/// Options: the target's link address, and the packet (RFC 4861 4.6.1, 4.6.3).
const TARGET_LINK: u8 = 2;
const REDIRECTED: u8 = 4;

/// Where a redirect goes.
enum To {
    /// To the sender, by its route.
    Lookup,
    /// Ready to leave by this port: no route leads to a link-local sender.
    Link(u16),
}

/// Redirects of one worker and family.
struct Redirects {
    bucket: Bucket,
    /// Hash of sender and destination, and until when no other redirect is due.
    recent: Box<[(u64, u64); REMEMBERED]>,
    /// Identification of the next redirect.
    id: u16,
    sent: u64,
    suppressed: u64,
    forbidden: u64,
    no_buffer: u64,
}

impl Redirects {
    fn new(limit: Limit) -> Self {
        Self {
            bucket: Bucket::new(limit),
            recent: Box::new([(0, 0); REMEMBERED]),
            id: 0,
            sent: 0,
            suppressed: 0,
            forbidden: 0,
            no_buffer: 0,
        }
    }

    /// Whether a redirect may be sent now.
    #[allow(clippy::cast_possible_truncation, reason = "a place in a table")]
    fn may(&mut self, hash: u64, now_ns: u64) -> bool {
        let place = &mut self.recent[hash as usize % REMEMBERED];
        let recent = place.0 == hash && now_ns < place.1;
        if recent || !self.bucket.has_token(now_ns) {
            self.suppressed += 1;
            return false;
        }
        *place = (hash, now_ns.saturating_add(AGAIN_NS));
        self.bucket.take(now_ns);
        true
    }

    /// The redirect about an IPv4 packet that leaves by the adjacency of this index, if there is to be one.
    fn v4(&mut self, frame: &[u8], meta: Meta, index: u32, cx: &Context<'_>) -> Option<Packet> {
        let ports = &cx.forwarding.ports;
        let info = ports.port(meta.port)?;
        let IpAddr::V4(target) = cx.forwarding.hops.neighbor(index)? else { return None };
        let target = target.to_bits();
        let packet = frame.get(meta.network.into()..)?;
        let ip = Ip4::at(packet, 0)?;
        let src = ip.src();
        let shares = info.v4.iter().any(|&(addr, len)| {
            let subnet = Prefix::masked(addr.to_bits(), len);
            subnet.contains(src) && subnet.contains(target)
        });
        if !shares || src == target {
            return None;
        }
        if !may_answer_v4(packet, ip, meta, ports) {
            self.forbidden += 1;
            return None;
        }
        if !self.may(hash([src.into(), ip.dst().into()]), cx.now_ns) {
            return None;
        }
        let [a, b, c, d] = target.to_be_bytes();
        let header = [V4_REDIRECT, FOR_HOST, 0, 0, a, b, c, d];
        let made = cx.pool.alloc().and_then(|mut made| {
            compose_v4(&mut made, ETHER_BYTES, header, packet, MAX_V4, self.id).then_some(made)
        });
        let Some(mut made) = made else {
            self.no_buffer += 1;
            return None;
        };
        // It shares the sender's subnet: that was seen above.
        let source = source_v4(ports, meta.port, src)?;
        sign_v4(made.bytes_mut(), ETHER_BYTES, source);
        EtherMut::of(made.bytes_mut())?.set_kind(TYPE_IP4);
        made.meta = Meta::generated(meta.port);
        self.id = self.id.wrapping_add(1);
        self.sent += 1;
        Some(made)
    }

    /// The redirect about an IPv6 packet, and where it goes.
    fn v6(
        &mut self,
        frame: &[u8],
        meta: Meta,
        index: u32,
        cx: &Context<'_>,
    ) -> Option<(To, Packet)> {
        let hops = &cx.forwarding.hops;
        let ports = &cx.forwarding.ports;
        let info = ports.port(meta.port)?;
        let IpAddr::V6(target) = hops.neighbor(index)? else { return None };
        let target = target.to_bits();
        let packet = frame.get(meta.network.into()..)?;
        let ip = Ip6::at(packet, 0)?;
        let (src, dst) = (ip.src(), ip.dst());
        if !is_beside(info, src) || src == target || !(is_link_local(target) || target == dst) {
            return None;
        }
        if !may_answer_v6(packet, ip, meta, false, ports) {
            self.forbidden += 1;
            return None;
        }
        let own =
            info.v6.iter().map(|(addr, _)| addr.to_bits()).find(|&addr| is_link_local(addr))?;
        let back = is_link_local(src).then(|| address_back(frame, meta, Some(info)));
        if back == Some(None) || !self.may(hash([src, dst]), cx.now_ns) {
            return None;
        }
        let link = hops.adjacency(index).dst;
        let made = cx
            .pool
            .alloc()
            .and_then(|mut made| compose_v6(&mut made, target, &link.0, packet).then_some(made));
        let Some(mut made) = made else {
            self.no_buffer += 1;
            return None;
        };
        sign_v6(made.bytes_mut(), ETHER_BYTES, own);
        let mut ether = EtherMut::of(made.bytes_mut())?;
        ether.set_kind(TYPE_IP6);
        let mut to_sender = To::Lookup;
        if let Some((to, from)) = back.flatten() {
            ether.set_addrs(to, from);
            to_sender = To::Link(meta.port);
        }
        made.meta = Meta::generated(meta.port);
        self.sent += 1;
        Some((to_sender, made))
    }
}

/// Whether an address is on the link of a port.
fn is_beside(info: &PortInfo, addr: u128) -> bool {
    is_link_local(addr)
        || info.v6.iter().any(|&(own, len)| Prefix::masked(own.to_bits(), len).contains(addr))
}

/// Hash of sender and destination; never 0, the mark of an empty place of the table.
#[allow(clippy::cast_possible_truncation, reason = "takes the halves")]
fn hash(addrs: [u128; 2]) -> u64 {
    let words = addrs.into_iter().flat_map(|addr| [(addr >> 64) as u64, addr as u64]);
    words.fold(1, |state: u64, word| {
        let state = (state ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        state ^ state >> 29
    }) | 1 << 63
}

/// Writes a redirect to `target` about `packet` behind an Ethernet header, but for its source and checksum.
fn compose_v6(made: &mut Packet, target: u128, link: &[u8; 6], packet: &[u8]) -> bool {
    let Some(ip) = Ip6::at(packet, 0) else { return false };
    let before = V6_HEADER + LINK_BYTES + 8;
    let room = usize::from(MIN_MTU) - IP6_BYTES - before;
    // Options are counted in units of 8 bytes.
    let quoted = packet.len().min(IP6_BYTES + ip.payload_len()).min(room) & !7;
    let icmp = start_icmpv6(made, ETHER_BYTES, before + quoted, HOP_LIMIT, ip.src());
    let Some(icmp) = icmp else { return false };
    icmp[..before].fill(0);
    icmp[0] = V6_REDIRECT;
    icmp[8..24].copy_from_slice(&target.to_be_bytes());
    icmp[24..40].copy_from_slice(&ip.dst().to_be_bytes());
    icmp[40..42].copy_from_slice(&[TARGET_LINK, 1]);
    icmp[42..48].copy_from_slice(link);
    icmp[48..50].copy_from_slice(&[REDIRECTED, u8::try_from(1 + quoted / 8).expect("1280 bytes")]);
    icmp[before..].copy_from_slice(&packet[..quoted]);
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Bench, World, frame_v4};

    #[test]
    fn a_redirect_quotes_the_packet_where_the_port_sends_redirects() {
        let mut world = World::new();
        world.neighbor(7, 0);
        world.hops.set_neighbor(7, Some([10, 0, 0, 254].into()));
        let frame = frame_v4("10.0.0.9", "192.0.2.1", 64, 17, &[0; 100]);
        let hop = crate::frame::Hop::of_action(ForwardingAction::Adjacency(7));
        for redirects in [false, true] {
            world.ports.ports[0].as_mut().unwrap().redirects = redirects;
            let mut bench = Bench::new(&world);
            let mut element = crate::testing::element(&CLASS, "LIMIT 1 2");
            for _ in 0..2 {
                let mut batch = crate::testing::batch(&bench.pool, 0, [&frame[..]]);
                let meta = &mut batch.meta_mut()[0];
                (meta.network, meta.hop) = (14, hop);
                element.process(0, &mut batch, &mut bench.context());
                assert_eq!(batch.decision(0), crate::frame::Decision::Output(0), "it passes");
                assert_eq!(batch.bytes(0), frame);
            }
            let outputs: Vec<u16> = bench.emitted.iter().map(|(output, _)| *output).collect();
            assert_eq!(outputs, vec![LOOKUP4; usize::from(redirects)]);
            if let Some((_, packet)) = bench.emitted.first() {
                let (bytes, ip) = (packet.bytes(), Ip4::at(packet.bytes(), 14).unwrap());
                assert_eq!((ip.src(), ip.dst()), (0x0a00_0001, 0x0a00_0009));
                assert_eq!(bytes[34..36], [5, 1]);
                assert_eq!(bytes[38..42], [10, 0, 0, 254]);
                assert_eq!(bytes[42..], frame[14..], "as it came");
            }
            let mut counted = Vec::new();
            element.stats(&mut |name, count| counted.push((name, count)));
            assert_eq!(counted[0], ("redirects", redirects.into()));
            assert_eq!(counted[1], ("redirects_suppressed", redirects.into()));
        }
    }

    #[test]
    fn a_sender_gets_one_redirect_a_second_about_a_destination() {
        let mut redirects = Redirects::new(Limit { rate_pps: 1, burst: 3 });
        let (one, two) = (hash([1, 2]), hash([1, 3]));
        assert_ne!(one, two);
        let may =
            |redirects: &mut Redirects, hash, at_ms: u64| redirects.may(hash, at_ms * 1_000_000);
        assert!(may(&mut redirects, one, 0));
        assert!(!may(&mut redirects, one, 999));
        assert!(may(&mut redirects, two, 999));
        assert!(may(&mut redirects, one, 1000));
        // All together as often as the bucket allows: three at once, then one a second.
        assert!(may(&mut redirects, hash([7, 1]), 1000));
        assert!(!may(&mut redirects, hash([7, 2]), 1000));
        assert_eq!(redirects.suppressed, 2);
    }
}
