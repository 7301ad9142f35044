//! Sends ICMPv6 errors about dropped IPv6 packets: RFC 4443.
//!
//! Every packet comes with [`Cause::note`] as its note and is dropped here, counted by its cause. Unless
//! 2.4 (e) forbids it, or the limiter, a new packet to its source leaves by output 0, to be looked up
//! like any other. No route leads to a link-local source, since every link has its own fe80::/10: an
//! error to one goes back where the packet came from, to the host that sent it, by output 1.
//!
//! Cost: a lookup, a copy of at most 1,280 bytes and a checksum; 220 ns at that length.

use fingerpost_route::{PortInfo, PortTable};

use crate::element::support::icmp_errors::{ErrorHeader, Errors, class, drop_answered};
use crate::element::support::rate_limit::ErrorLimits;
use crate::element::support::source_addr::{egress, source_v6};
use crate::frame::wire::checksum::pseudo_v6;
use crate::frame::wire::ether::{ETHER_BYTES, TYPE_IP6};
use crate::frame::wire::icmp::{
    ERROR_HEADER, PROTOCOL_ICMPV6, V6_TIME_EXCEEDED, V6_TOO_BIG, V6_UNREACHABLE, is_v6_error,
    upper_layer,
};
use crate::frame::wire::ip6::{is_link_local, is_multicast};
use crate::frame::wire::{Ether, EtherMut, IP6_BYTES, Ip6, Ip6Mut};
use crate::frame::{Batch, Cause, FLAG_LINK_MULTICAST, Meta, Note, Packet, flow};
use crate::graph::{Context, Element, ElementClass, Made};
use crate::language::ClassSpec;

pub(crate) const CLASS: ElementClass = ElementClass {
    spec: ClassSpec::new("ICMP6Errors", "1/2", "h/h", "x/x").outputs(&["lookup", "link"]),
    summary: "drops IPv6 packets and sends ICMPv6 errors",
    configure: |setup| {
        let limits = ErrorLimits::read(&mut setup.args, ErrorLimits::default());
        setup.args.finish()?;
        let limits = limits?;
        Ok(Made::new(move |_| Icmp6Error(Errors::new(&limits))))
    },
};

/// Every link carries this much (RFC 8200, 5): the whole error packet is at most this long
/// (RFC 4443, 2.4 c), and a smaller MTU is never reported.
pub(crate) const MIN_MTU: u16 = 1280;

const HOP_LIMIT: u8 = 64;

/// Output to the lookup.
const LOOKUP: u16 = 0;
/// Ready to leave, by the port in the note.
const LINK: u16 = 1;

/// The element.
struct Icmp6Error(Errors);

impl Icmp6Error {
    /// The error about a packet and the output that it takes, if there is to be one.
    fn answer(
        &mut self,
        frame: &[u8],
        meta: Meta,
        cause: Cause,
        cx: &Context<'_>,
    ) -> Option<(u16, Packet)> {
        let ports = &cx.forwarding.ports;
        let offender = frame.get(usize::from(meta.network)..).unwrap_or_default();
        let too_big = matches!(cause, Cause::TooBig(_));
        let ip = Ip6::at(offender, 0);
        let ip = ip.filter(|ip| may_answer_v6(offender, *ip, meta, too_big, ports));
        let header = ip.and_then(|_| message(cause));
        let mut packet = self.0.write(header, class(cause), cx, |packet, header, _| {
            compose_v6(packet, ETHER_BYTES, header, offender, MIN_MTU.into())
        })?;
        let ip = ip?;
        let dst = ip.src();
        let bytes = packet.bytes_mut();
        EtherMut::of(bytes)?.set_kind(TYPE_IP6);
        let port = if is_link_local(dst) {
            Some(meta.port)
        } else {
            // The flow hash of an error depends on what it quotes and not on its source.
            let hash = || flow::of_ip6(cx.flow_seed, &bytes[ETHER_BYTES..]);
            egress(cx.forwarding, meta.port, dst, hash)
        };
        // An error about a packet to one of our own addresses speaks from that one (2.2 a).
        let own = ports.own_v6.binary_search(&ip.dst()).is_ok().then_some(ip.dst());
        let source = own.or_else(|| source_v6(ports, port?, dst));
        let Some((port, source)) = port.zip(source) else {
            self.0.no_source();
            return None;
        };
        sign_v6(bytes, ETHER_BYTES, source);
        packet.meta = Meta::generated(meta.port);
        let mut output = LOOKUP;
        if is_link_local(dst) {
            let back = address_back(frame, meta, ports.port(port));
            let Some((to, from)) = back else {
                self.0.no_source();
                return None;
            };
            EtherMut::of(packet.bytes_mut())?.set_addrs(to, from);
            packet.meta.note = Note::egress(port);
            output = LINK;
        }
        self.0.sent();
        Some((output, packet))
    }
}

impl Element for Icmp6Error {
    fn process(&mut self, _: u16, batch: &mut Batch, cx: &mut Context<'_>) {
        drop_answered(batch, cx, |frame, meta, cause, cx| self.answer(frame, meta, cause, cx));
    }

    fn stats(&self, visit: &mut dyn FnMut(&'static str, u64)) {
        self.0.visit(visit);
    }
}

/// Writes an error about `offender` behind `link` bytes, which become 0: its first 8 bytes, and as much of the
/// offender as a whole of at most `max` bytes has room for. What depends on its source is left open. Whether it fits.
pub(crate) fn compose_v6(
    packet: &mut Packet,
    link: usize,
    header: ErrorHeader,
    offender: &[u8],
    max: usize,
) -> bool {
    let Some(ip) = Ip6::at(offender, 0) else { return false };
    let room = max.saturating_sub(IP6_BYTES + ERROR_HEADER);
    let quoted = offender.len().min(IP6_BYTES + ip.payload_len()).min(room);
    let icmp = start_icmpv6(packet, link, ERROR_HEADER + quoted, HOP_LIMIT, ip.src());
    let Some(icmp) = icmp else { return false };
    icmp[..ERROR_HEADER].copy_from_slice(&header);
    icmp[ERROR_HEADER..].copy_from_slice(&offender[..quoted]);
    true
}

/// Makes a packet of `link` bytes, which become 0, an IPv6 header without a source, and a message of `len` bytes,
/// which is returned; `None` where it does not fit.
pub(crate) fn start_icmpv6(
    packet: &mut Packet,
    link: usize,
    len: usize,
    hop_limit: u8,
    dst: u128,
) -> Option<&mut [u8]> {
    let start = link + IP6_BYTES;
    // A pool's frame has room for more than 1,280 bytes.
    if !packet.set_len(start + len) {
        return None;
    }
    let (head, icmp) = packet.bytes_mut().split_at_mut(start);
    head.fill(0);
    let mut out = Ip6Mut::at(head, link)?;
    out.set_first(0, 0);
    out.set_payload_len(u16::try_from(len).expect("a frame is shorter"));
    out.set_next_header(PROTOCOL_ICMPV6);
    out.set_hop_limit(hop_limit);
    out.set_dst(dst);
    Some(icmp)
}

/// Fills in the source of what [`compose_v6`] wrote, and the checksum, which covers it.
pub(crate) fn sign_v6(frame: &mut [u8], link: usize, source: u128) {
    let Some(mut out) = Ip6Mut::at(frame, link) else { return };
    out.set_src(source);
    let dst = out.view().dst().to_be_bytes();
    let icmp = &mut frame[link + IP6_BYTES..];
    let len = u32::try_from(icmp.len()).expect("a frame is shorter");
    let pseudo = pseudo_v6(&source.to_be_bytes(), &dst, PROTOCOL_ICMPV6, len);
    let sum = pseudo.bytes(icmp).finish();
    icmp[2..4].copy_from_slice(&sum.to_be_bytes());
}

/// The first 8 bytes of the error, its checksum 0; `None` for a cause that IPv6 has no error for.
fn message(cause: Cause) -> Option<ErrorHeader> {
    let (kind, code) = match cause {
        Cause::TtlExpired => (V6_TIME_EXCEEDED, 0),
        Cause::NoRoute => (V6_UNREACHABLE, 0),
        Cause::Prohibit => (V6_UNREACHABLE, 1),
        Cause::Scope => (V6_UNREACHABLE, 2),
        Cause::HostUnreachable => (V6_UNREACHABLE, 3),
        Cause::Unreachable => (V6_UNREACHABLE, 6),
        Cause::TooBig(mtu) => {
            let [a, b] = mtu.max(MIN_MTU).to_be_bytes();
            return Some([V6_TOO_BIG, 0, 0, 0, 0, 0, a, b]);
        }
        Cause::BadOption(_) => return None,
    };
    Some([kind, code, 0, 0, 0, 0, 0, 0])
}

/// RFC 4443, 2.4 (e), and never about a packet of our own making.
pub(crate) fn may_answer_v6(
    packet: &[u8],
    ip: Ip6<'_>,
    meta: Meta,
    too_big: bool,
    ports: &PortTable,
) -> bool {
    let packet = &packet[..packet.len().min(IP6_BYTES + ip.payload_len())];
    if meta.is_ours() {
        return false;
    }
    // Path MTU discovery works for multicast too (e.3).
    let to_many = meta.flags & FLAG_LINK_MULTICAST != 0 || is_multicast(ip.dst());
    if to_many && !too_big {
        return false;
    }
    let src = ip.src();
    if src <= 1 || is_multicast(src) || ports.own_v6.binary_search(&src).is_ok() {
        return false;
    }
    match upper_layer(packet) {
        // A later fragment does not show its type. Errors have at most 1,280 bytes and travel whole.
        Some(upper) if upper.fragment.is_none_or(|offset| offset == 0) => {
            upper.protocol != PROTOCOL_ICMPV6
                || packet.get(upper.at).is_some_and(|&kind| !is_v6_error(kind))
        }
        // What cannot be read is not an error (dataplane practice: the sender is told).
        _ => true,
    }
}

/// Link addresses for a packet back to the host that a frame came from: to, from.
pub(crate) fn address_back(
    frame: &[u8],
    meta: Meta,
    port: Option<&PortInfo>,
) -> Option<(fingerpost_route::Mac, fingerpost_route::Mac)> {
    let from = port?.mac?;
    if usize::from(meta.network) != ETHER_BYTES {
        return None;
    }
    let to = Ether::of(frame)?.src();
    // A frame from a group is nobody's (IEEE 802.3).
    (to.0[0] & 1 == 0).then_some((to, from))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cases::{Left, Stage};
    use crate::frame::FLAG_GENERATED;

    fn element() -> Icmp6Error {
        Icmp6Error(Errors::new(&ErrorLimits::default()))
    }

    const UDP: &str =
        "eth lan.host > lan\nip6 2001:db8:1::2 > 2001:db8:f00::9 hop 1 flow 77\nudp 4000 > 53\n";
    const NO_ETHER: &str = "eth 00:00:00:00:00:00 > 00:00:00:00:00:00\n";

    fn run(stage: &mut Stage, port: &str, text: &str, cause: Cause) -> Option<Left> {
        let frame = stage.frame(text);
        let packet = stage.packet(port, &frame, cause.note());
        let mut left = stage.run(&mut element(), vec![packet]);
        assert!(left.len() <= 1);
        left.pop()
    }

    #[test]
    fn every_cause_has_its_type_and_code() {
        let cases = [
            (Cause::TtlExpired, Some("3/0")),
            (Cause::NoRoute, Some("1/0")),
            (Cause::Prohibit, Some("1/1")),
            (Cause::Scope, Some("1/2")),
            (Cause::HostUnreachable, Some("1/3")),
            (Cause::Unreachable, Some("1/6")),
            (Cause::TooBig(1400), Some("2/0 mtu 1400")),
            (Cause::TooBig(1000), Some("2/0 mtu 1280")),
            (Cause::BadOption(22), None),
        ];
        for (cause, message) in cases {
            let mut stage = Stage::default();
            let text = format!("{UDP}bytes 21");
            let left = run(&mut stage, "lan", &text, cause);
            let quoted = stage.frame(&text)[14..].to_vec();
            let want = message.map(|message| {
                let ip = "ip6 2001:db8:1::1 > 2001:db8:1::2 hop 64";
                stage.quoting(&format!("{NO_ETHER}{ip}\nicmp6 {message}\nquote"), &quoted)
            });
            assert_eq!(left.as_ref().map(|l| l.frame.clone()), want, "{cause:?}");
            assert_eq!(stage.drops(), [(cause.reason(), 1)]);
            assert_eq!(stage.counters.generated.read(), u64::from(message.is_some()));
            if let Some(left) = left {
                assert_eq!((left.output, left.meta.port, left.meta.network), (0, 0, 14));
                assert_eq!(left.meta.flags, FLAG_GENERATED);
            }
        }
    }

    #[test]
    fn the_whole_is_at_most_1280_bytes() {
        let mut stage = Stage::default();
        for (payload, want) in [(0, 96), (1183, 1279), (1184, 1280), (1185, 1280), (1452, 1280)] {
            let text = format!("{UDP}bytes {payload}");
            let left = run(&mut stage, "lan", &text, Cause::TtlExpired).unwrap();
            assert_eq!(left.frame.len(), 14 + want, "{payload} bytes");
            assert_eq!(Ip6::at(&left.frame, 14).unwrap().payload_len(), want - 40);
        }
        // Padding is not quoted.
        let left = run(&mut stage, "lan", &format!("{UDP}pad 90"), Cause::TtlExpired).unwrap();
        assert_eq!(left.frame.len(), 14 + 96);
    }

    #[test]
    fn what_must_not_be_answered() {
        let mut stage = Stage::default();
        let ip =
            |words: &str, upper: &str| format!("eth lan.host > lan\nip6 {words}\n{upper}\nbytes 9");
        let ok = "2001:db8:1::2 > 2001:db8:f00::9";
        let silent = [
            (ip(ok, "icmp6 1/0"), 0),
            (ip(ok, "icmp6 127/0"), 0),
            (ip(ok, "icmp6 137/0"), 0),
            (ip(ok, "hbh 0104\nopts 0104\nicmp6 3/0"), 0),
            (ip(ok, "frag off 0 mf\nicmp6 1/4"), 0),
            (format!("eth lan.host > lan\nip6 {ok} next 58\npad 60"), 0),
            (ip("2001:db8:1::2 > ff0e::1", "udp 1 > 2"), 0),
            (ip(":: > 2001:db8:f00::9", "udp 1 > 2"), 0),
            (ip("::1 > 2001:db8:f00::9", "udp 1 > 2"), 0),
            (ip("ff02::1 > 2001:db8:f00::9", "udp 1 > 2"), 0),
            (ip("2001:db8:2::1 > 2001:db8:f00::9", "udp 1 > 2"), 0),
            (ip(ok, "udp 1 > 2"), FLAG_LINK_MULTICAST),
            (ip(ok, "udp 1 > 2"), FLAG_GENERATED),
        ];
        let mut element = element();
        let mut go = |stage: &mut Stage, text: &str, flags, cause: Cause| {
            let frame = stage.frame(text);
            let mut packet = stage.packet("lan", &frame, cause.note());
            packet.meta.flags = flags;
            stage.run(&mut element, vec![packet]).len()
        };
        for (text, flags) in &silent {
            assert_eq!(go(&mut stage, text, *flags, Cause::TtlExpired), 0, "{text}");
        }
        for text in [
            ip(ok, "icmp6 128/0"),
            ip(ok, "hbh 0104\nicmp6 129/0"),
            ip(ok, "frag off 1448 next 58"),
            // Cut short in the middle of a header: not known to be an error.
            format!("eth lan.host > lan\nip6 {ok}\nhbh 0104 len 9\nudp 1 > 2"),
        ] {
            assert_eq!(go(&mut stage, &text, 0, Cause::TtlExpired), 1, "{text}");
        }
        // Too big is told even to those who send to many; but not about errors or to nobody.
        let big = Cause::TooBig(1400);
        assert_eq!(go(&mut stage, &ip("2001:db8:1::2 > ff0e::1", "udp 1 > 2"), 0, big), 1);
        assert_eq!(go(&mut stage, &ip(ok, "udp 1 > 2"), FLAG_LINK_MULTICAST, big), 1);
        assert_eq!(go(&mut stage, &ip(ok, "icmp6 1/0"), 0, big), 0);
        assert_eq!(go(&mut stage, &ip(":: > ff0e::1", "udp 1 > 2"), 0, big), 0);
        assert_eq!(Stage::stat(&element, "forbidden"), silent.len() as u64 + 2);
    }

    #[test]
    fn the_source_fits_the_destination() {
        let mut stage = Stage::default();
        let mut source = |port: &str, src: &str, dst: &str| {
            let text = format!("eth lan.host > lan\nip6 {src} > {dst}\nudp 1 > 2");
            run(&mut stage, port, &text, Cause::NoRoute)
                .map(|l| std::net::Ipv6Addr::from(Ip6::at(&l.frame, 14).unwrap().src()).to_string())
        };
        let far = "2001:db8:f00::9";
        let mut check = |port, src, dst, want: Option<&str>| {
            assert_eq!(source(port, src, dst).as_deref(), want, "{src} > {dst}");
        };
        check("lan", "2001:db8:1::2", far, Some("2001:db8:1::1"));
        check("lan", "2001:db8:100::2", far, Some("2001:db8:2::1"));
        check("bare", "2001:db8:500::2", far, Some("2001:db8:1::1"));
        check("lan", "2001:db8:100::2", "2001:db8:ffff::1", Some("2001:db8:ffff::1"));
        check("lan", "2001:db8:e04::2", far, None);
        check("lan", "2001:db8:f00::2", far, None);
    }

    #[test]
    fn a_link_local_sender_is_answered_over_its_own_link() {
        let mut stage = Stage::default();
        let text = "eth lan.host > lan\nip6 fe80::a2 > 2001:db8:100::9\nudp 1 > 2";
        let left = run(&mut stage, "lan", text, Cause::Scope).unwrap();
        let quoted = stage.frame(text)[14..].to_vec();
        let want = "eth lan > lan.host\nip6 fe80::1 > fe80::a2\nicmp6 1/2\nquote";
        assert_eq!(left.frame, stage.quoting(want, &quoted));
        assert_eq!((left.output, left.meta.note), (LINK, Note::egress(stage.topology.port("lan"))));
        // From a group address: nobody to answer.
        let text = "eth 03:00:00:00:00:01 > lan\nip6 fe80::a2 > 2001:db8:100::9\nudp 1 > 2";
        assert_eq!(run(&mut stage, "lan", text, Cause::Scope), None);
    }

    #[test]
    fn the_limiter_and_an_empty_pool_are_counted_apart() {
        let mut stage = Stage::default();
        let mut element = element();
        let frame = stage.frame(UDP);
        let mut sent = 0;
        for _ in 0..15 {
            let packets =
                (0..10).map(|_| stage.packet("lan", &frame, Cause::NoRoute.note())).collect();
            sent += stage.run(&mut element, packets).len();
        }
        assert_eq!((sent, Stage::stat(&element, "suppressed")), (100, 50));
        let packet = stage.packet("lan", &frame, Cause::TooBig(1400).note());
        let all: Vec<_> = std::iter::from_fn(|| stage.pool.alloc()).collect();
        assert_eq!(stage.run(&mut element, vec![packet]), []);
        assert_eq!(Stage::stat(&element, "no_buffer"), 1);
        drop(all);
        assert_eq!(stage.pool.free(), stage.pool.frames(), "nothing leaked");
    }
}
