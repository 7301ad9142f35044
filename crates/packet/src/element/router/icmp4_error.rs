//! Sends ICMP errors about dropped IPv4 packets: RFC 792 and 1191, within RFC 1812, 4.3.
//!
//! Every packet comes with [`Cause::note`] as its note and is dropped here, counted by its cause. Unless
//! 4.3.2.7 forbids it, or the limiter, a new packet to its source leaves by output 0, to be looked up
//! like any other. It quotes the packet as it lies in the frame: whoever sends packets here must not
//! have changed them but where 4.3.2.3 allows it (updated options).
//!
//! Cost: a lookup, a copy of at most 576 bytes and two checksums; 170 ns at that length, 33 ns for a
//! packet that the limiter keeps silent about.

use fingerpost_route::PortTable;

use crate::element::support::icmp_errors::{ErrorHeader, Errors, class, drop_answered};
use crate::element::support::rate_limit::ErrorLimits;
use crate::element::support::source_addr::{egress, source_v4};
use crate::frame::wire::checksum::checksum;
use crate::frame::wire::ether::{ETHER_BYTES, TYPE_IP4};
use crate::frame::wire::icmp::{
    ERROR_HEADER, PROTOCOL_ICMP, V4_PARAMETER, V4_TIME_EXCEEDED, V4_UNREACHABLE, is_v4_error,
};
use crate::frame::wire::ip4::FRAGMENT_OFFSET;
use crate::frame::wire::{EtherMut, IP4_BYTES, Ip4, Ip4Mut};
use crate::frame::{Batch, Cause, FLAG_LINK_MULTICAST, Meta, Packet, flow};
use crate::graph::{Context, Element, ElementClass, Made};
use crate::language::ClassSpec;

pub(crate) const CLASS: ElementClass = ElementClass {
    spec: ClassSpec::new("ICMP4Errors", "1/1", "h/h", "x/x").outputs(&["lookup"]),
    summary: "drops IPv4 packets and sends ICMP errors",
    configure: |setup| {
        let limits = ErrorLimits::read(&mut setup.args, ErrorLimits::default());
        setup.args.finish()?;
        let limits = limits?;
        Ok(Made::new(move |_| Icmp4Error(Errors::new(&limits))))
    },
};

/// The whole error packet is at most this long (RFC 1812, 4.3.2.3): what every host takes.
const MAX_ERROR: usize = 576;

/// Internetwork control (RFC 1812, 4.3.2.5).
const PRECEDENCE: u8 = 6 << 5;

/// What the errors of a router start with (RFC 1700).
const TTL: u8 = 64;

/// The element.
struct Icmp4Error(Errors);

impl Icmp4Error {
    /// The error about a packet, if there is to be one.
    fn answer(
        &mut self,
        frame: &[u8],
        meta: Meta,
        cause: Cause,
        cx: &Context<'_>,
    ) -> Option<Packet> {
        let offender = frame.get(usize::from(meta.network)..).unwrap_or_default();
        let ip = Ip4::at(offender, 0);
        let ip = ip.filter(|ip| may_answer_v4(offender, *ip, meta, &cx.forwarding.ports));
        let header = ip.and_then(|_| message(cause));
        let mut packet = self.0.write(header, class(cause), cx, |packet, header, id| {
            compose_v4(packet, ETHER_BYTES, header, offender, MAX_ERROR, id)
        })?;
        let dst = ip?.src();
        let bytes = packet.bytes_mut();
        EtherMut::of(bytes)?.set_kind(TYPE_IP4);
        // The flow hash of an error depends on what it quotes and not on its source.
        let hash = || flow::of_ip4(cx.flow_seed, &bytes[ETHER_BYTES..]);
        let source = egress(cx.forwarding, meta.port, dst, hash)
            .and_then(|port| source_v4(&cx.forwarding.ports, port, dst));
        let Some(source) = source else {
            self.0.no_source();
            return None;
        };
        sign_v4(bytes, ETHER_BYTES, source);
        packet.meta = Meta::generated(meta.port);
        self.0.sent();
        Some(packet)
    }
}

impl Element for Icmp4Error {
    fn process(&mut self, _: u16, batch: &mut Batch, cx: &mut Context<'_>) {
        drop_answered(batch, cx, |frame, meta, cause, cx| {
            self.answer(frame, meta, cause, cx).map(|packet| (0, packet))
        });
    }

    fn stats(&self, visit: &mut dyn FnMut(&'static str, u64)) {
        self.0.visit(visit);
    }
}

/// Writes an error about `offender` behind `link` bytes, which become 0: its first 8 bytes, and as much of the
/// offender as a whole of at most `max` bytes has room for. What depends on its source is left open. Whether it fits.
pub(crate) fn compose_v4(
    packet: &mut Packet,
    link: usize,
    header: ErrorHeader,
    offender: &[u8],
    max: usize,
    id: u16,
) -> bool {
    let Some(ip) = Ip4::at(offender, 0) else { return false };
    let (start, room) = (link + IP4_BYTES, max.saturating_sub(IP4_BYTES + ERROR_HEADER));
    let quoted = offender.len().min(ip.total_len()).min(room);
    let total = IP4_BYTES + ERROR_HEADER + quoted;
    // A pool's frame has room for far more than 576 bytes.
    if !packet.set_len(link + total) {
        return false;
    }
    let bytes = packet.bytes_mut();
    bytes[..start].fill(0);
    let Some(mut out) = Ip4Mut::at(bytes, link) else { return false };
    out.set_header_len(20);
    out.set_traffic_class(PRECEDENCE);
    out.set_total_len(u16::try_from(total).expect("a frame is shorter"));
    out.set_id(id);
    out.set_ttl(TTL);
    out.set_protocol(PROTOCOL_ICMP);
    out.set_dst(ip.src());
    let icmp = &mut bytes[start..];
    icmp[..ERROR_HEADER].copy_from_slice(&header);
    icmp[ERROR_HEADER..].copy_from_slice(&offender[..quoted]);
    let sum = checksum(icmp);
    icmp[2..4].copy_from_slice(&sum.to_be_bytes());
    true
}

/// Fills in the source of what [`compose_v4`] wrote, and the checksum of its header.
pub(crate) fn sign_v4(frame: &mut [u8], link: usize, source: u32) {
    let Some(mut out) = Ip4Mut::at(frame, link) else { return };
    out.set_src(source);
    let header = out.view().header_len();
    let sum = checksum(&frame[link..link + header]);
    if let Some(mut out) = Ip4Mut::at(frame, link) {
        out.set_checksum(sum);
    }
}

/// The first 8 bytes of the error, its checksum 0; `None` for a cause that IPv4 has no error for.
fn message(cause: Cause) -> Option<ErrorHeader> {
    let (kind, code) = match cause {
        Cause::TtlExpired => (V4_TIME_EXCEEDED, 0),
        Cause::NoRoute => (V4_UNREACHABLE, 0),
        Cause::HostUnreachable | Cause::Unreachable => (V4_UNREACHABLE, 1),
        Cause::Prohibit => (V4_UNREACHABLE, 13),
        Cause::TooBig(mtu) => {
            let [a, b] = mtu.to_be_bytes();
            return Some([V4_UNREACHABLE, 4, 0, 0, 0, 0, a, b]);
        }
        Cause::BadOption(at) => return Some([V4_PARAMETER, 0, 0, 0, at, 0, 0, 0]),
        Cause::Scope => return None,
    };
    Some([kind, code, 0, 0, 0, 0, 0, 0])
}

/// RFC 1812, 4.3.2.7, and never about a packet of our own making.
pub(crate) fn may_answer_v4(packet: &[u8], ip: Ip4<'_>, meta: Meta, ports: &PortTable) -> bool {
    if meta.is_ours() || meta.flags & FLAG_LINK_MULTICAST != 0 {
        return false;
    }
    if ip.fragment() & FRAGMENT_OFFSET != 0 {
        return false;
    }
    let (src, dst) = (ip.src(), ip.dst());
    if dst >= 0xe000_0000 && (dst < 0xf000_0000 || dst == u32::MAX) || is_broadcast(ports, dst) {
        return false;
    }
    // A source must name one host, and one that is not us: network 0, loopback, multicast, class E.
    let single = src >> 24 != 0 && src >> 24 != 127 && src < 0xe000_0000;
    if !single || is_broadcast(ports, src) || ports.own_v4.binary_search(&src).is_ok() {
        return false;
    }
    if ip.protocol() == PROTOCOL_ICMP {
        // Without its type nobody can say that it is no error.
        return packet
            .get(..ip.total_len().min(packet.len()))
            .and_then(|packet| packet.get(ip.header_len()))
            .is_some_and(|&kind| !is_v4_error(kind));
    }
    true
}

fn is_broadcast(ports: &PortTable, addr: u32) -> bool {
    ports.broadcast_v4.binary_search(&addr).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cases::{Left, Stage};
    use crate::frame::{DropReason, FLAG_GENERATED};

    fn element() -> Icmp4Error {
        Icmp4Error(Errors::new(&ErrorLimits::default()))
    }

    const UDP: &str = "eth lan.host > lan\nip4 10.1.0.2 > 192.0.2.9 ttl 1 id 7\nudp 4000 > 53\n";

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
            (Cause::TtlExpired, Some("11/0")),
            (Cause::NoRoute, Some("3/0")),
            (Cause::HostUnreachable, Some("3/1")),
            (Cause::Unreachable, Some("3/1")),
            (Cause::Prohibit, Some("3/13")),
            (Cause::TooBig(1400), Some("3/4 mtu 1400")),
            (Cause::BadOption(22), Some("12/0 ptr 22")),
            (Cause::Scope, None),
        ];
        for (cause, message) in cases {
            let mut stage = Stage::default();
            let text = format!("{UDP}bytes 20");
            let left = run(&mut stage, "lan", &text, cause);
            let quoted = stage.frame(&text)[14..].to_vec();
            let want = message.map(|message| {
                stage.quoting(
                    &format!(
                        "eth 00:00:00:00:00:00 > 00:00:00:00:00:00\n\
                         ip4 10.1.0.1 > 10.1.0.2 tos 0xc0 ttl 64\nicmp {message}\nquote"
                    ),
                    &quoted,
                )
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
    fn the_whole_is_at_most_576_bytes() {
        let mut stage = Stage::default();
        for (payload, want) in
            [(0, 56), (518, 574), (519, 575), (520, 576), (521, 576), (1472, 576)]
        {
            let text = format!("{UDP}bytes {payload}");
            let left = run(&mut stage, "lan", &text, Cause::TtlExpired).unwrap();
            assert_eq!(left.frame.len(), 14 + want, "{payload} bytes");
            let ip = Ip4::at(&left.frame, 14).unwrap();
            assert_eq!(ip.total_len(), want);
            assert_eq!(checksum(&left.frame[34..]), 0, "right checksum for odd lengths too");
        }
        // Padding is not quoted.
        let left = run(&mut stage, "lan", &format!("{UDP}pad 60"), Cause::TtlExpired).unwrap();
        assert_eq!(left.frame.len(), 14 + 56);
    }

    #[test]
    fn what_must_not_be_answered() {
        let mut stage = Stage::default();
        let ip =
            |words: &str, upper: &str| format!("eth lan.host > lan\nip4 {words}\n{upper}\nbytes 9");
        let ok = "10.1.0.2 > 192.0.2.9";
        let silent = [
            // Errors; what may be one.
            (ip(ok, "icmp 3/1"), 0),
            (ip(ok, "icmp 4/0"), 0),
            (ip(ok, "icmp 5/1"), 0),
            (ip(ok, "icmp 11/0"), 0),
            (ip(ok, "icmp 12/0"), 0),
            (format!("eth lan.host > lan\nip4 {ok} proto 1\npad 60"), 0),
            // Destinations that are no single host.
            (ip("10.1.0.2 > 224.0.0.5", "udp 1 > 2"), 0),
            (ip("10.1.0.2 > 255.255.255.255", "udp 1 > 2"), 0),
            (ip("10.1.0.2 > 10.2.0.255", "udp 1 > 2"), 0),
            (ip("10.1.0.2 > 10.2.0.0", "udp 1 > 2"), 0),
            // Sources that are no single host, or are us.
            (ip("0.1.2.3 > 192.0.2.9", "udp 1 > 2"), 0),
            (ip("127.0.0.1 > 192.0.2.9", "udp 1 > 2"), 0),
            (ip("224.0.0.1 > 192.0.2.9", "udp 1 > 2"), 0),
            (ip("240.0.0.1 > 192.0.2.9", "udp 1 > 2"), 0),
            (ip("255.255.255.255 > 192.0.2.9", "udp 1 > 2"), 0),
            (ip("10.1.0.255 > 192.0.2.9", "udp 1 > 2"), 0),
            (ip("10.2.0.1 > 192.0.2.9", "udp 1 > 2"), 0),
            // Fragments but the first.
            (ip("10.1.0.2 > 192.0.2.9 off 8 proto 17", ""), 0),
            (ip("10.1.0.2 > 192.0.2.9 off 8 mf proto 17", ""), 0),
            // How it arrived.
            (ip(ok, "udp 1 > 2"), FLAG_LINK_MULTICAST),
            (ip(ok, "udp 1 > 2"), FLAG_GENERATED),
        ];
        let mut element = element();
        for (text, flags) in &silent {
            let frame = stage.frame(text);
            let mut packet = stage.packet("lan", &frame, Cause::TtlExpired.note());
            packet.meta.flags = *flags;
            assert_eq!(stage.run(&mut element, vec![packet]), [], "{text}");
        }
        assert_eq!(Stage::stat(&element, "forbidden"), silent.len() as u64);
        // And what may: an echo, a first fragment, a packet with every option bit set in its header.
        for text in [
            ip(ok, "icmp 8/0"),
            ip("10.1.0.2 > 192.0.2.9 mf", "udp 1 > 2 len 999"),
            ip("10.1.0.2 > 192.0.2.9 opts 01010101", "icmp 8/0"),
        ] {
            let frame = stage.frame(&text);
            let packet = stage.packet("lan", &frame, Cause::TtlExpired.note());
            assert_eq!(stage.run(&mut element, vec![packet]).len(), 1, "{text}");
        }
    }

    #[test]
    fn the_address_of_the_port_it_leaves_by() {
        let mut stage = Stage::default();
        let source = |stage: &mut Stage, port: &str, src: &str| {
            let text = format!("eth lan.host > lan\nip4 {src} > 192.0.2.9\nudp 1 > 2\nbytes 4");
            run(stage, port, &text, Cause::NoRoute)
                .map(|l| std::net::Ipv4Addr::from(Ip4::at(&l.frame, 14).unwrap().src()).to_string())
        };
        let mut check = |port, src, want: Option<&str>| {
            assert_eq!(source(&mut stage, port, src).as_deref(), want, "{src}");
        };
        check("lan", "10.1.0.2", Some("10.1.0.1"));
        check("lan", "10.1.1.2", Some("10.1.1.1"));
        check("lan", "198.51.100.9", Some("10.2.0.1"));
        check("bare", "172.18.0.9", Some("10.1.0.1"));
        check("lan", "10.7.0.1", Some("10.7.0.0"));
        check("lan", "172.22.0.1", Some("10.2.0.1"));
        // Nothing leads back: no error.
        check("lan", "192.0.2.8", None);
        check("lan", "198.18.4.1", None);
        assert_eq!(stage.drops(), [(DropReason::NoRoute, 8)]);
    }

    #[test]
    fn a_group_is_followed_to_the_port_that_the_error_takes() {
        let mut stage = Stage::default();
        let mut seen = std::collections::BTreeSet::new();
        for sport in 1..60 {
            let text = format!("eth wan.gw > wan\nip4 172.23.0.1 > 192.0.2.9\nudp {sport} > 2");
            let left = run(&mut stage, "wan", &text, Cause::NoRoute).unwrap();
            let ip = Ip4::at(&left.frame, 14).unwrap();
            let hash = flow::of_ip4(0, &left.frame[14..]);
            let forwarding = &stage.topology.forwarding;
            let port = egress(forwarding, 0, ip.dst(), || hash).unwrap();
            assert_eq!(Some(ip.src()), source_v4(&forwarding.ports, port, ip.dst()));
            seen.insert(port);
        }
        assert_eq!(seen.len(), 3, "wan twice, narrow, ptp");
    }

    #[test]
    fn the_limiter_and_an_empty_pool_are_counted_apart() {
        let mut stage = Stage::default();
        let mut element = element();
        let frame = stage.frame(UDP);
        let mut sent = 0;
        for _ in 0..40 {
            let packets =
                (0..10).map(|_| stage.packet("lan", &frame, Cause::TtlExpired.note())).collect();
            sent += stage.run(&mut element, packets).len();
        }
        assert_eq!((sent, Stage::stat(&element, "suppressed")), (300, 100));
        assert_eq!(Stage::stat(&element, "sent"), 300);
        stage.now_ns += 1_000_000_000;
        let packet = stage.packet("lan", &frame, Cause::TtlExpired.note());
        let all: Vec<_> = std::iter::from_fn(|| stage.pool.alloc()).collect();
        assert_eq!(stage.run(&mut element, vec![packet]), []);
        assert_eq!(Stage::stat(&element, "no_buffer"), 1);
        drop(all);
        assert_eq!(stage.pool.free(), stage.pool.frames(), "nothing leaked");
        assert_eq!(stage.drops(), [(DropReason::TtlExpired, 401)]);
    }
}
