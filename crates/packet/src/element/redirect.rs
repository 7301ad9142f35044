//! Redirects: the sender of a packet that left by the link it came from is told of the shorter way.
//!
//! Source: RFC 792 and RFC 1812 5.2.7.2 (always for a host, never for a network), RFC 4861 8.2 and 4.5. The packet goes
//!         on as ever; this is one of our own beside it.
//!
//! A redirect is made when the sender is a station on that link and so is the next hop: IPv4 wants both in one subnet
//! of the port, IPv6 the sender in one of its prefixes or link-local, and a gateway that is known by its link-local
//! address. It quotes the packet as it came, so it is written before that is. What no error may be sent about has no
//! redirect either (RFC 1812 4.3.2.7, RFC 4443 2.4); a source route ends a packet before it gets here.
//!
//! Rates: one a second to a sender about a destination, by a small table in which others may take its place; and a
//! bucket over all.
//!
//! Cost: for a packet that turns back, a hash and a look at the table; 200 ns for each redirect.

use std::net::IpAddr;

use fingerpost_lpm::Prefix;
use fingerpost_route::PortInfo;

use super::Context;
use super::icmp4_error::{compose_v4, may_answer_v4, sign_v4};
use super::icmp6_error::{MIN_MTU, address_back, may_answer_v6, sign_v6};
use crate::buf::{FLAG_GENERATED, Meta, Packet};
use crate::rate_limit::{Bucket, Limit};
use crate::source_addr::source_v4;
use crate::wire::ether::{ETHER_BYTES, TYPE_IP4, TYPE_IP6};
use crate::wire::icmp::{PROTOCOL_ICMPV6, V4_REDIRECT, V6_REDIRECT};
use crate::wire::ip6::is_link_local;
use crate::wire::{EtherMut, IP6_BYTES, Ip4, Ip6, Ip6Mut};

/// Unless told otherwise: a sender that listens needs one for each destination, so this is for many at once.
pub(super) const LIMIT: Limit = Limit { rate_pps: 100, burst: 50 };

/// Who was told: so many at a time.
const TOLD: usize = 256;
/// How long it lasts.
const AGAIN_NS: u64 = 1_000_000_000;

/// The whole of one is at most this long (RFC 1812 4.3.2.3).
const MAX_V4: usize = 576;
/// For the host, not the network (RFC 1812 5.2.7.2).
const FOR_HOST: u8 = 1;
/// What shows that it comes from the link itself (RFC 4861 8.1).
const HOP_LIMIT: u8 = 255;
/// Type, code, checksum, four bytes of nothing, target, destination.
const V6_HEADER: usize = 40;
/// Of an option with an Ethernet address, its two bytes of header included.
const LINK_BYTES: usize = 8;
/// Options: the target's link address, and the packet (RFC 4861 4.6.1, 4.6.3).
const TARGET_LINK: u8 = 2;
const REDIRECTED: u8 = 4;

/// What becomes of one.
pub(super) enum Way {
    /// To the sender, by its route.
    Lookup,
    /// Ready to leave by this port: no route leads to a link-local sender.
    Link(u16),
}

/// Redirects of one worker and family.
pub(super) struct Redirects {
    bucket: Bucket,
    /// Hash of sender and destination, and when it was told.
    told: Box<[(u64, u64); TOLD]>,
    /// Identification of the next one.
    id: u16,
    sent: u64,
    suppressed: u64,
    forbidden: u64,
    no_buffer: u64,
}

impl Redirects {
    pub(super) fn new(limit: Limit) -> Self {
        Self {
            bucket: Bucket::new(limit),
            told: Box::new([(0, 0); TOLD]),
            id: 0,
            sent: 0,
            suppressed: 0,
            forbidden: 0,
            no_buffer: 0,
        }
    }

    pub(super) fn visit(&self, visit: &mut dyn FnMut(&'static str, u64)) {
        visit("redirects", self.sent);
        visit("redirects_suppressed", self.suppressed);
        visit("redirects_forbidden", self.forbidden);
        visit("redirects_no_buffer", self.no_buffer);
    }

    /// Whether a sender may be told now.
    #[allow(clippy::cast_possible_truncation, reason = "a place in a table")]
    fn may(&mut self, hash: u64, now_ns: u64) -> bool {
        let place = &mut self.told[hash as usize % TOLD];
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
    pub(super) fn v4(
        &mut self,
        frame: &[u8],
        meta: Meta,
        index: u32,
        cx: &Context<'_>,
    ) -> Option<Packet> {
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
        made.meta = of_ours(meta);
        self.id = self.id.wrapping_add(1);
        self.sent += 1;
        Some(made)
    }

    /// The same about an IPv6 packet.
    pub(super) fn v6(
        &mut self,
        frame: &[u8],
        meta: Meta,
        index: u32,
        cx: &Context<'_>,
    ) -> Option<(Way, Packet)> {
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
        let mut way = Way::Lookup;
        if let Some((to, from)) = back.flatten() {
            ether.set_addrs(to, from);
            way = Way::Link(meta.port);
        }
        made.meta = of_ours(meta);
        self.sent += 1;
        Some((way, made))
    }
}

/// Whether an address is one of the link of a port.
fn is_beside(info: &PortInfo, addr: u128) -> bool {
    is_link_local(addr)
        || info.v6.iter().any(|&(own, len)| Prefix::masked(own.to_bits(), len).contains(addr))
}

fn of_ours(meta: Meta) -> Meta {
    Meta {
        port: meta.port,
        network: u8::try_from(ETHER_BYTES).expect("14"),
        flags: FLAG_GENERATED,
        ..Meta::default()
    }
}

/// Of sender and destination; never 0, which no place of the table has to begin with.
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
    let start = ETHER_BYTES + IP6_BYTES;
    let before = V6_HEADER + LINK_BYTES + 8;
    let room = usize::from(MIN_MTU) - IP6_BYTES - before;
    // Options are counted in units of 8 bytes.
    let quoted = packet.len().min(IP6_BYTES + ip.payload_len()).min(room) & !7;
    let len = before + quoted;
    if !made.set_len(start + len) {
        return false;
    }
    let bytes = made.bytes_mut();
    bytes[..start + before].fill(0);
    let Some(mut out) = Ip6Mut::at(bytes, ETHER_BYTES) else { return false };
    out.set_first(0, 0);
    out.set_payload_len(u16::try_from(len).expect("a frame is shorter"));
    out.set_next_header(PROTOCOL_ICMPV6);
    out.set_hop_limit(HOP_LIMIT);
    out.set_dst(ip.src());
    let icmp = &mut bytes[start..];
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

    #[test]
    fn a_sender_is_told_once_a_second_of_a_destination() {
        let mut redirects = Redirects::new(Limit { rate_pps: 1, burst: 3 });
        let (one, two) = (hash([1, 2]), hash([1, 3]));
        assert_ne!(one, two);
        let told =
            |redirects: &mut Redirects, hash, at_ms: u64| redirects.may(hash, at_ms * 1_000_000);
        assert!(told(&mut redirects, one, 0));
        assert!(!told(&mut redirects, one, 999));
        assert!(told(&mut redirects, two, 999));
        assert!(told(&mut redirects, one, 1000));
        // All together as often as the bucket allows: three at once, then one a second.
        assert!(told(&mut redirects, hash([7, 1]), 1000));
        assert!(!told(&mut redirects, hash([7, 2]), 1000));
        assert_eq!(redirects.suppressed, 2);
    }
}
