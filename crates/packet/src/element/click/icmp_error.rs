//! Sends ICMP errors that a graph has decided on: `ICMPError(10.0.0.1, timeexceeded)`, and `ICMP6Error`.
//!
//! Source: Click's elements of these names, within RFC 1812, 4.3, and RFC 4443. Every packet is dropped, and the error
//! about it leaves by the output, to be looked up like any other. Click's `ICMP6Error` is not followed where it is
//! wrong: the type of the offender is found behind its extension headers, and a packet is quoted up to the least MTU
//! of a link. Errors have a rate only where one is given: `ALL 1200 350` is that of the built-in router. Those of IPv4
//! have Click's TTL, 200, and type of service, 0. An MTU and the offset of a bad option are those that the packet's
//! note has ([`Cause`]), so that they need not be stated twice; `PMTU` is for packets that have none.
//!
//! A redirect names the gateway that the packet goes to. It is sent when sender and gateway are neighbors on the
//! ingress port of the packet (RFC 1812, 5.2.7.2), as far as addresses of ports are known.
//!
//! The error about an IPv4 packet with a source route has the part that was followed as a source route of its own,
//! reversed, unless it is about that option (RFC 1812, 4.3.2.6). Its destination stays the sender, as in Click.
//!
//! What is answered and how errors are written is that of the built-in elements.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use fingerpost_lpm::Prefix;
use fingerpost_route::PortTable;

use crate::element::router::icmp4_error::{compose_v4, may_answer_v4, sign_v4};
use crate::element::router::icmp6_error::{MIN_MTU, compose_v6, may_answer_v6, sign_v6};
use crate::element::router::ip4_options::{END, LOOSE_SOURCE_ROUTE, NOP, STRICT_SOURCE_ROUTE};
use crate::element::support::icmp_errors::{ErrorHeader, Errors};
use crate::element::support::rate_limit::{ErrorClass, ErrorLimits};
use crate::element::support::setting::Setting;
use crate::filter::names::{ICMP_TYPES, ICMP6_TYPES, Names, number};
use crate::frame::wire::icmp::{
    V4_PARAMETER, V4_REDIRECT, V4_TIME_EXCEEDED, V4_UNREACHABLE, V6_PARAMETER, V6_TIME_EXCEEDED,
    V6_TOO_BIG, V6_UNREACHABLE,
};
use crate::frame::wire::{IP4_BYTES, Ip4, Ip4Mut, Ip6};
use crate::frame::{Batch, Cause, DropReason, FLAG_FIX_SOURCE, FLAG_GENERATED, Meta, Packet};
use crate::graph::{Context, Element, ElementClass, Made, Setup};
use crate::language::{Arg, ClassSpec, ConfigError, Value};
use crate::route_table::gateways::Gateways;

pub(crate) const CLASS4: ElementClass = ElementClass {
    spec: spec("ICMPError"),
    summary: "drops IPv4 packets and sends their senders an ICMP error",
    configure: |setup| {
        let src = setup.args.positional::<Ipv4Addr>("SRC");
        let kind = kind(setup, ICMP_TYPES, V4_TYPES, v4_codes);
        let bad = setup.args.optional_arg("BADADDRS")?;
        // What every host takes (RFC 1812, 4.3.2.3).
        let about = About::read(setup, 576);
        let fix = setup.args.keyword("SET_FIX_ANNO");
        // As Click's manual has it.
        let fix_by_manual = setup.args.keyword("USE_FIX_ANNO");
        setup.args.finish()?;
        let (kind, about) = (kind?, about?);
        let fix = fix.and_then(|fix| Ok(fix.or(fix_by_manual?)));
        let bad: Vec<_> = bad
            .iter()
            .flat_map(Arg::words)
            .map(|word| setup.args.read::<Ipv4Addr>(&word, "BADADDRS").map(Ipv4Addr::to_bits))
            .collect();
        let fix: bool = fix?.unwrap_or(true);
        let src = Setting::new(src?);
        let bad: Arc<[u32]> = bad.into_iter().collect::<Result<_, _>>()?;
        let gateways = setup.gateways.clone();
        let shared = (src.clone(), about.clone());
        let made = Made::new(move |_| IcmpError {
            kind,
            errors: Errors::new(&about.limits),
            about: about.clone(),
            family: V4 {
                src: src.clone(),
                bad: bad.clone(),
                flags: if fix { FLAG_FIX_SOURCE } else { 0 },
                gateways: gateways.clone(),
            },
        });
        let (src, about) = shared;
        Ok(src.handled(about.handled(made), "src"))
    },
};

pub(crate) const CLASS6: ElementClass = ElementClass {
    spec: spec("ICMP6Error"),
    summary: "drops IPv6 packets and sends their senders an ICMPv6 error",
    configure: |setup| {
        let src = setup.args.positional::<Ipv6Addr>("SRC");
        let kind = kind(setup, ICMP6_TYPES, V6_TYPES, |_| &[]);
        let bad = setup.list::<Ipv6Addr>("BADADDRS");
        let about = About::read(setup, MIN_MTU);
        setup.args.finish()?;
        let (kind, about, src) = (kind?, about?, src?.to_bits());
        let bad: Arc<[u128]> =
            bad?.unwrap_or_default().into_iter().map(Ipv6Addr::to_bits).collect();
        let shown = about.clone();
        let made = Made::new(move |_| IcmpError {
            kind,
            errors: Errors::new(&about.limits),
            about: about.clone(),
            family: V6 { src, bad: bad.clone() },
        });
        Ok(shown.handled(made))
    },
};

const fn spec(name: &'static str) -> ClassSpec {
    ClassSpec::new(name, "1/1", "h/h", "x/x")
}

/// An error that routers send no more (RFC 6633), and a graph may.
const V4_QUENCH: u8 = 4;

const V4_TYPES: &[u8] = &[V4_UNREACHABLE, V4_QUENCH, V4_REDIRECT, V4_TIME_EXCEEDED, V4_PARAMETER];
const V6_TYPES: &[u8] = &[V6_UNREACHABLE, V6_TOO_BIG, V6_TIME_EXCEEDED, V6_PARAMETER];

/// TTL of errors, in Click.
const TTL: u8 = 200;

/// "Fragmentation needed" of a destination unreachable.
const NEED_FRAGMENT: u8 = 4;

/// What Click calls the codes of a type.
pub(crate) fn v4_codes(kind: u8) -> &'static Names {
    match kind {
        V4_UNREACHABLE => &[
            ("net", 0),
            ("host", 1),
            ("protocol", 2),
            ("port", 3),
            ("needfrag", 4),
            ("srcroutefail", 5),
            ("netunknown", 6),
            ("hostunknown", 7),
            ("isolated", 8),
            ("hostisolated", 8),
            ("netprohibited", 9),
            ("hostprohibited", 10),
            ("tosnet", 11),
            ("nettos", 11),
            ("toshost", 12),
            ("hosttos", 12),
            ("filterprohibited", 13),
            ("hostprecedence", 14),
            ("precedencecutoff", 15),
        ],
        V4_REDIRECT => {
            &[("net", 0), ("host", 1), ("tosnet", 2), ("nettos", 2), ("toshost", 3), ("hosttos", 3)]
        }
        V4_TIME_EXCEEDED => &[("transit", 0), ("reassembly", 1)],
        V4_PARAMETER => &[("erroratptr", 0), ("missingopt", 1), ("length", 2)],
        _ => &[],
    }
}

/// Type and code of an error.
type Kind = (u8, u8);

/// Reads type and code, numbers or names.
fn kind(
    setup: &mut Setup<'_>,
    types: &Names,
    errors: &[u8],
    codes: fn(u8) -> &'static Names,
) -> Result<Kind, ConfigError> {
    let of = |names: &Names, text: &str| {
        number(names, text).and_then(|n| u8::try_from(n).ok()).or_else(|| u8::read(text).ok())
    };
    let arg = setup.args.positional_arg("TYPE")?;
    let code = setup.args.optional_arg("CODE")?;
    let Some(kind) = of(types, arg.raw()).filter(|kind| errors.contains(kind)) else {
        let known = |name: &&(_, u16)| errors.iter().any(|&kind| u16::from(kind) == name.1);
        let names: Vec<_> = types.iter().filter(known).map(|name| name.0).collect();
        let words = format!("TYPE: `{}` is none of {}", arg.raw(), names.join(", "));
        return Err(setup.args.refuse(&arg, &words));
    };
    let Some(arg) = code else { return Ok((kind, 0)) };
    of(codes(kind), arg.raw()).map(|code| (kind, code)).ok_or_else(|| {
        let words = format!("CODE: `{}` is no code of this type", arg.raw());
        setup.args.refuse(&arg, &words)
    })
}

/// Length of an error, and its MTU; number of errors.
#[derive(Clone)]
struct About {
    mtu: Setting<u16>,
    /// 0 for none.
    pmtu: Setting<u16>,
    limits: ErrorLimits,
}

impl About {
    fn read(setup: &mut Setup<'_>, usual: u16) -> Result<Self, ConfigError> {
        let mtu = setup.args.keyword("MTU");
        let pmtu = setup.args.keyword("PMTU");
        let limits = ErrorLimits::read(&mut setup.args, ErrorLimits::NONE);
        Ok(Self {
            mtu: Setting::new(mtu?.unwrap_or(usual)),
            pmtu: Setting::new(pmtu?.unwrap_or(0)),
            limits: limits?,
        })
    }

    fn handled(&self, made: Made) -> Made {
        self.pmtu.handled(self.mtu.handled(made, "mtu"), "pmtu")
    }

    /// The MTU that a packet did not fit.
    fn pmtu(&self, meta: &Meta) -> u16 {
        match meta.note.cause() {
            Some(Cause::TooBig(mtu)) => mtu,
            _ => self.pmtu.get(),
        }
    }
}

/// Where in a packet a bad option begins, if its note holds that.
fn pointer(meta: &Meta) -> u8 {
    match meta.note.cause() {
        Some(Cause::BadOption(at)) => at,
        _ => 0,
    }
}

/// What differs between the families.
trait Family: Send + Sync + 'static {
    /// Why a packet ends that has such an error.
    fn reason(kind: Kind) -> DropReason;
    /// The first 8 bytes of the error; `None` where none may be sent.
    fn header(
        &self,
        kind: Kind,
        packet: &[u8],
        meta: &Meta,
        about: &About,
        cx: &Context<'_>,
    ) -> Option<ErrorHeader>;
    /// Writes the error about a packet; whether it fits.
    fn write(
        &self,
        out: &mut Packet,
        header: ErrorHeader,
        packet: &[u8],
        about: &About,
        id: u16,
    ) -> bool;
    /// Flags of the error.
    fn flags(&self) -> u8;
    fn class(kind: Kind) -> ErrorClass;
}

struct V4 {
    src: Setting<Ipv4Addr>,
    /// Neither answered nor spoken about.
    bad: Arc<[u32]>,
    flags: u8,
    gateways: Arc<Gateways>,
}

struct V6 {
    src: u128,
    bad: Arc<[u128]>,
}

impl Family for V4 {
    fn reason(kind: Kind) -> DropReason {
        match kind {
            (V4_TIME_EXCEEDED, _) => DropReason::TtlExpired,
            (V4_PARAMETER, _) => DropReason::BadOption,
            (V4_UNREACHABLE, NEED_FRAGMENT) => DropReason::TooBig,
            (V4_UNREACHABLE, 0) => DropReason::NoRoute,
            (V4_UNREACHABLE, 1) => DropReason::HostUnreachable,
            (V4_UNREACHABLE, 9 | 10 | 13) => DropReason::Prohibit,
            (V4_UNREACHABLE, _) => DropReason::Unreachable,
            _ => DropReason::Discarded,
        }
    }

    fn class(kind: Kind) -> ErrorClass {
        match kind {
            (V4_TIME_EXCEEDED, _) => ErrorClass::TimeExceeded,
            (V4_PARAMETER, _) => ErrorClass::Parameter,
            (V4_UNREACHABLE, NEED_FRAGMENT) => ErrorClass::TooBig,
            _ => ErrorClass::Unreachable,
        }
    }

    fn header(
        &self,
        kind: Kind,
        packet: &[u8],
        meta: &Meta,
        about: &About,
        cx: &Context<'_>,
    ) -> Option<ErrorHeader> {
        let ip = Ip4::at(packet, 0)?;
        if self.bad.contains(&ip.src()) || self.bad.contains(&ip.dst()) {
            return None;
        }
        let ports = &cx.forwarding.ports;
        if !may_answer_v4(packet, ip, *meta, ports) {
            return None;
        }
        let mut header = [kind.0, kind.1, 0, 0, 0, 0, 0, 0];
        match kind {
            (V4_UNREACHABLE, NEED_FRAGMENT) => {
                header[6..].copy_from_slice(&about.pmtu(meta).to_be_bytes());
            }
            (V4_PARAMETER, 0) => header[4] = pointer(meta),
            // Whoever chose the route does not want another (RFC 1812, 5.2.7.2).
            (V4_REDIRECT, _) if source_route(packet).is_some() => return None,
            (V4_REDIRECT, _) => {
                let gateway = match self.gateways.get(meta.hop.gateway()) {
                    None => ip.dst(),
                    Some(IpAddr::V4(addr)) => addr.to_bits(),
                    Some(IpAddr::V6(_)) => return None,
                };
                if !are_neighbors(ports, meta.port, ip.src(), gateway) {
                    return None;
                }
                header[4..].copy_from_slice(&gateway.to_be_bytes());
            }
            _ => {}
        }
        Some(header)
    }

    fn write(
        &self,
        out: &mut Packet,
        header: ErrorHeader,
        packet: &[u8],
        about: &About,
        id: u16,
    ) -> bool {
        // Identifiers of Click begin with 1.
        let id = id.wrapping_add(1);
        let mut options = [0; MOST_OPTIONS];
        let route = source_route(packet).filter(|(at, route)| !is_about(&header, *at, route));
        let options = match route {
            Some((_, route)) => reversed(route, &mut options),
            None => &[],
        };
        let most = usize::from(about.mtu.get()).saturating_sub(options.len());
        let written = compose_v4(out, 0, header, packet, most, id)
            && (options.is_empty() || insert(out, options));
        if written {
            if let Some(mut ip) = Ip4Mut::at(out.bytes_mut(), 0) {
                ip.set_ttl(TTL);
                ip.set_traffic_class(0);
            }
            sign_v4(out.bytes_mut(), 0, self.src.get().to_bits());
        }
        written
    }

    fn flags(&self) -> u8 {
        self.flags
    }
}

/// Most bytes of options that a header has.
const MOST_OPTIONS: usize = 40;

/// Source route of a packet whose pointer makes sense, and where it begins (RFC 791, 3.1).
fn source_route(packet: &[u8]) -> Option<(usize, &[u8])> {
    let header = packet.get(..Ip4::at(packet, 0)?.header_len())?;
    let mut at = IP4_BYTES;
    loop {
        match *header.get(at)? {
            END => return None,
            NOP => at += 1,
            kind => {
                let len = usize::from(*header.get(at + 1)?);
                let option = header.get(at..at + len).filter(|option| option.len() >= 2)?;
                let pointer = option.get(2).map_or(0, |&pointer| usize::from(pointer));
                let is_route = [LOOSE_SOURCE_ROUTE, STRICT_SOURCE_ROUTE].contains(&kind);
                if is_route && pointer >= 4 && pointer.is_multiple_of(4) && pointer <= len + 1 {
                    return Some((at, option));
                }
                at += len;
            }
        }
    }
}

/// Whether an error points into this option.
fn is_about(header: &ErrorHeader, at: usize, option: &[u8]) -> bool {
    let pointer = usize::from(header[4]);
    header[..2] == [V4_PARAMETER, 0] && (at..at + option.len()).contains(&pointer)
}

/// Source route that leads back over the part of another one before its pointer, padded.
fn reversed<'a>(route: &[u8], options: &'a mut [u8; MOST_OPTIONS]) -> &'a [u8] {
    let len = route[2] - 1;
    let end = usize::from(len);
    options[..3].copy_from_slice(&[route[0], len, 4]);
    let hops = route[3..end].chunks_exact(4).rev();
    for (to, hop) in options[3..].chunks_exact_mut(4).zip(hops) {
        to.copy_from_slice(hop);
    }
    options[end] = END;
    &options[..=end]
}

/// Puts options into a header that has none. Whether they fit.
fn insert(out: &mut Packet, options: &[u8]) -> bool {
    let len = out.bytes().len();
    let (header, total) = (IP4_BYTES + options.len(), len + options.len());
    let sizes = u8::try_from(header).ok().zip(u16::try_from(total).ok());
    let Some((header_len, total_len)) = sizes.filter(|_| out.set_len(total)) else { return false };
    let bytes = out.bytes_mut();
    bytes.copy_within(IP4_BYTES..len, header);
    bytes[IP4_BYTES..header].copy_from_slice(options);
    let Some(mut ip) = Ip4Mut::at(bytes, 0) else { return false };
    ip.set_header_len(header_len);
    ip.set_total_len(total_len);
    true
}

/// Whether two addresses are in one connected prefix of a port, or nothing is known of its prefixes.
fn are_neighbors(ports: &PortTable, port: u16, one: u32, other: u32) -> bool {
    let Some(port) = ports.port(port).filter(|port| !port.v4.is_empty()) else { return true };
    let subnet = |&(addr, len): &(Ipv4Addr, u8)| Prefix::masked(addr.to_bits(), len);
    port.v4.iter().map(subnet).any(|subnet| subnet.contains(one) && subnet.contains(other))
}

impl Family for V6 {
    fn reason(kind: Kind) -> DropReason {
        match kind {
            (V6_TIME_EXCEEDED, _) => DropReason::TtlExpired,
            (V6_PARAMETER, _) => DropReason::BadOption,
            (V6_TOO_BIG, _) => DropReason::TooBig,
            (V6_UNREACHABLE, 0) => DropReason::NoRoute,
            (V6_UNREACHABLE, 1) => DropReason::Prohibit,
            (V6_UNREACHABLE, 2) => DropReason::Scope,
            (V6_UNREACHABLE, 3) => DropReason::HostUnreachable,
            _ => DropReason::Unreachable,
        }
    }

    fn class(kind: Kind) -> ErrorClass {
        match kind.0 {
            V6_TIME_EXCEEDED => ErrorClass::TimeExceeded,
            V6_PARAMETER => ErrorClass::Parameter,
            V6_TOO_BIG => ErrorClass::TooBig,
            _ => ErrorClass::Unreachable,
        }
    }

    fn header(
        &self,
        kind: Kind,
        packet: &[u8],
        meta: &Meta,
        about: &About,
        cx: &Context<'_>,
    ) -> Option<ErrorHeader> {
        let ip = Ip6::at(packet, 0)?;
        if self.bad.contains(&ip.src()) || self.bad.contains(&ip.dst()) {
            return None;
        }
        if !may_answer_v6(packet, ip, *meta, kind.0 == V6_TOO_BIG, &cx.forwarding.ports) {
            return None;
        }
        let mut header = [kind.0, kind.1, 0, 0, 0, 0, 0, 0];
        match kind.0 {
            V6_TOO_BIG => {
                header[6..].copy_from_slice(&about.pmtu(meta).max(MIN_MTU).to_be_bytes());
            }
            V6_PARAMETER => header[7] = pointer(meta),
            _ => {}
        }
        Some(header)
    }

    fn write(
        &self,
        out: &mut Packet,
        header: ErrorHeader,
        packet: &[u8],
        about: &About,
        _: u16,
    ) -> bool {
        let written = compose_v6(out, 0, header, packet, about.mtu.get().into());
        if written {
            sign_v6(out.bytes_mut(), 0, self.src);
        }
        written
    }

    fn flags(&self) -> u8 {
        0
    }
}

struct IcmpError<F> {
    kind: Kind,
    about: About,
    errors: Errors,
    family: F,
}

impl<F: Family> IcmpError<F> {
    /// The error about a packet, if there is to be one.
    fn answer(&mut self, frame: &[u8], meta: &Meta, cx: &Context<'_>) -> Option<Packet> {
        let packet = frame.get(usize::from(meta.network)..).unwrap_or_default();
        let Self { kind, about, errors, family } = self;
        let header = family.header(*kind, packet, meta, about, cx);
        let mut out = errors.write(header, F::class(*kind), cx, |out, header, id| {
            family.write(out, header, packet, about, id)
        })?;
        out.meta =
            Meta { port: meta.port, flags: FLAG_GENERATED | family.flags(), ..Meta::default() };
        errors.sent();
        Some(out)
    }
}

impl<F: Family> Element for IcmpError<F> {
    fn process(&mut self, _: u16, batch: &mut Batch, cx: &mut Context<'_>) {
        for i in 0..batch.len() {
            let meta = batch.meta()[i];
            batch.discard(i, F::reason(self.kind));
            if let Some(packet) = self.answer(batch.bytes(i), &meta, cx) {
                cx.originate(0, packet);
            }
        }
    }

    fn stats(&self, visit: &mut dyn FnMut(&'static str, u64)) {
        self.errors.visit(visit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cases::{Left, Stage};
    use crate::frame::wire::checksum::checksum;
    use crate::frame::{FLAG_COPY, FLAG_LINK_MULTICAST, Note};
    use crate::testing::{element, made, refused};

    const UDP: &str =
        "eth lan.host > lan\nip4 10.1.0.2 > 192.0.2.9 ttl 1 id 7\nudp 4000 > 53\nbytes 20";
    const UDP6: &str =
        "eth lan.host > lan\nip6 2001:db8:1::2 > 2001:db8:9::1 hop 1\nudp 4000 > 53\nbytes 20";

    /// The error about a packet of this text, which comes without its Ethernet header.
    fn answer(
        stage: &mut Stage,
        class: &ElementClass,
        config: &str,
        text: &str,
        change: impl Fn(&mut Meta),
    ) -> Option<Left> {
        let frame = stage.frame(text)[14..].to_vec();
        let mut packet = stage.packet("lan", &frame, Note::default());
        packet.meta.network = 0;
        change(&mut packet.meta);
        let mut left = stage.run(&mut *element(class, config), vec![packet]);
        assert!(left.len() <= 1);
        left.pop()
    }

    #[test]
    fn errors_by_name_and_number() {
        let cases = [
            ("timeexceeded", Cause::TtlExpired, "11/0", DropReason::TtlExpired),
            ("11, reassembly", Cause::TtlExpired, "11/1", DropReason::TtlExpired),
            ("unreachable, host", Cause::TtlExpired, "3/1", DropReason::HostUnreachable),
            ("unreachable", Cause::TtlExpired, "3/0", DropReason::NoRoute),
            ("TYPE 3, CODE filterprohibited", Cause::TtlExpired, "3/13", DropReason::Prohibit),
            ("unreachable, needfrag", Cause::TooBig(1400), "3/4 mtu 1400", DropReason::TooBig),
            ("unreachable, 4, PMTU 576", Cause::TtlExpired, "3/4 mtu 576", DropReason::TooBig),
            ("parameterproblem", Cause::BadOption(22), "12/0 ptr 22", DropReason::BadOption),
            ("sourcequench, USE_FIX_ANNO true", Cause::TtlExpired, "4/0", DropReason::Discarded),
            ("unreachable, isolated", Cause::TtlExpired, "3/8", DropReason::Unreachable),
            ("unreachable, toshost", Cause::TtlExpired, "3/12", DropReason::Unreachable),
        ];
        for (config, cause, message, reason) in cases {
            let mut stage = Stage::default();
            let config = format!("10.1.0.9, {config}");
            let left =
                answer(&mut stage, &CLASS4, &config, UDP, |m| m.note = cause.note()).unwrap();
            let quoted = stage.frame(UDP)[14..].to_vec();
            let want = stage.quoting(
                &format!(
                    "eth lan > lan\nip4 10.1.0.9 > 10.1.0.2 ttl 200 id 1\nicmp {message}\nquote"
                ),
                &quoted,
            );
            assert_eq!(left.frame, want[14..], "{config}");
            let flags = FLAG_GENERATED | FLAG_FIX_SOURCE;
            assert_eq!((left.output, left.meta), (0, Meta { flags, ..Meta::default() }));
            assert_eq!(stage.drops(), [(reason, 1)]);
        }
    }

    #[test]
    fn errors_of_ipv6() {
        let cases = [
            ("timeexceeded", Cause::TtlExpired, "3/0", DropReason::TtlExpired),
            ("unreachable, 4", Cause::TtlExpired, "1/4", DropReason::Unreachable),
            ("packettoobig", Cause::TooBig(1400), "2/0 mtu 1400", DropReason::TooBig),
            ("packettoobig, PMTU 1000", Cause::TtlExpired, "2/0 mtu 1280", DropReason::TooBig),
        ];
        for (config, cause, message, reason) in cases {
            let mut stage = Stage::default();
            let config = format!("2001:db8:1::9, {config}");
            let left =
                answer(&mut stage, &CLASS6, &config, UDP6, |m| m.note = cause.note()).unwrap();
            let quoted = stage.frame(UDP6)[14..].to_vec();
            let want = stage.quoting(
                &format!("eth lan > lan\nip6 2001:db8:1::9 > 2001:db8:1::2 hop 64\nicmp6 {message}\nquote"),
                &quoted,
            );
            assert_eq!(left.frame, want[14..], "{config}");
            assert_eq!((left.meta.flags, left.meta.network), (FLAG_GENERATED, 0));
            assert_eq!(stage.drops(), [(reason, 1)]);
        }
    }

    #[test]
    fn what_may_not_be_answered_is_not() {
        let stage = &mut Stage::default();
        let mut silent = |config: &str, change: fn(&mut Meta)| {
            let config = format!("10.1.0.9, timeexceeded, {config}");
            answer(stage, &CLASS4, &config, UDP, change).is_none()
        };
        assert!(silent("", |m| m.flags = FLAG_GENERATED));
        assert!(silent("", |m| m.flags = FLAG_LINK_MULTICAST));
        assert!(!silent("", |m| m.flags = FLAG_GENERATED | FLAG_COPY), "its sender is a stranger");
        assert!(silent("BADADDRS 10.1.0.255 10.1.0.2", |_| {}));
        assert!(silent("BADADDRS 192.0.2.9", |_| {}));
        assert!(silent("0, 10.1.0.255 10.1.0.2", |_| {}), "in the fourth place");
        assert!(silent("TIME_EXCEEDED 0 0", |_| {}));
        assert!(silent("", |m| m.network = 40), "no header is left");
        let bad = "2001:db8:1::9, timeexceeded, BADADDRS 2001:db8:9::1";
        assert!(answer(stage, &CLASS6, bad, UDP6, |_| {}).is_none());
        assert!(answer(stage, &CLASS6, "::1, packettoobig", UDP6, |m| m.network = 60).is_none());
    }

    #[test]
    fn source_routes_lead_back() {
        let stage = &mut Stage::default();
        let routed = |options: &str| UDP.replace("id 7", &format!("id 7 opts {options}"));
        let mut header = |config: &str, options: &str, at: u8| {
            let config = format!("10.1.0.9, {config}");
            let change = |meta: &mut Meta| meta.note = Cause::BadOption(at).note();
            let left = answer(stage, &CLASS4, &config, &routed(options), change)?;
            let ip = Ip4::at(&left.frame, 0).unwrap();
            assert_eq!((ip.dst(), ip.total_len()), (0x0a01_0002, left.frame.len()));
            let (header, message) = left.frame.split_at(ip.header_len());
            assert_eq!((checksum(header), checksum(message)), (0, 0));
            Some((header[IP4_BYTES..].to_vec(), left.frame.len()))
        };
        // Two of three hops were made; before the option is one that does nothing.
        let loose = "01830f0c0a0000010a0000020a000003";
        let back = vec![131, 11, 4, 10, 0, 0, 2, 10, 0, 0, 1, 0];
        let len = 20 + 12 + 8 + 36 + 28;
        assert_eq!(header("timeexceeded", loose, 0), Some((back.clone(), len)));
        assert_eq!(header("timeexceeded, MTU 60", loose, 0), Some((back.clone(), 60)));
        let strict = header("unreachable", "01890b080a0000010a000002", 0).unwrap().0;
        assert_eq!(strict, [137, 7, 4, 10, 0, 0, 1, 0]);
        // None was made, and pointers that make no sense.
        assert_eq!(header("timeexceeded", "018307040a000001", 0).unwrap().0, [131, 3, 4, 0]);
        for wrong in ["018307050a000001", "018307000a000001", "0183070c0a000001", "0007070483"] {
            assert!(header("timeexceeded", wrong, 0).unwrap().0.is_empty(), "{wrong}");
        }
        // Errors about the option itself, and about another place.
        assert!(header("parameterproblem", loose, 23).unwrap().0.is_empty());
        assert_eq!(header("parameterproblem", loose, 20).unwrap().0, back);
        assert_eq!(header("redirect, host", loose, 0), None);
    }

    #[test]
    fn packets_of_sources_are_answered() {
        let data = r"\<45000020 00000000 4011742a 0a010002 02000002 00010002 000c0000 61626364>";
        for source in ["InfiniteSource(DATA", "RatedSource(DATA", "TimedSource(1ms, DATA"] {
            let text = format!(
                "{source} {data}, LIMIT 1) -> CheckIPHeader(CHECKSUM false) -> ICMPError(9.9.9.9, 3, 0)
                 -> c :: Counter -> ICMPError(9.9.9.9, 3, 0) -> again :: Counter -> Discard"
            );
            let mut rig = crate::testing::Rig::new(&crate::testing::World::new(), &text);
            for _ in 0..3 {
                rig.bench.now_ns += 1_000_000;
                rig.poll();
            }
            let counts = ["c.count", "again.count"].map(|name| rig.read(name));
            assert_eq!(counts, ["1", "0"], "{source}: and none about an error");
        }
    }

    #[test]
    fn a_redirect_names_the_gateway() {
        let stage = &mut Stage::default();
        let gateways = |left: &Option<Left>| left.as_ref().map(|l| l.frame[20..28].to_vec());
        let by_manual = answer(stage, &CLASS4, "1.0.0.1, 11, USE_FIX_ANNO false", UDP, |_| {});
        assert_eq!(by_manual.unwrap().meta.flags, FLAG_GENERATED);
        assert_eq!(stage.drops(), [(DropReason::TtlExpired, 1)]);
        let config = "10.1.0.1, redirect, host, SET_FIX_ANNO false";
        // Both in 10.1.0.0/24 of the port.
        let text = UDP.replace("192.0.2.9", "10.1.0.77");
        let left = answer(stage, &CLASS4, config, &text, |_| {});
        assert_eq!(gateways(&left).unwrap()[..2], [5, 1]);
        assert_eq!(gateways(&left).unwrap()[4..], [10, 1, 0, 77]);
        assert_eq!(left.unwrap().meta.flags, FLAG_GENERATED);
        assert_eq!(stage.drops(), [(DropReason::TtlExpired, 1), (DropReason::Discarded, 1)]);
        // The next hop is nobody's neighbor there.
        assert_eq!(answer(stage, &CLASS4, config, UDP, |_| {}), None);
        // Of a port without addresses nothing is known.
        assert!(answer(stage, &CLASS4, config, UDP, |m| m.port = 99).is_some());
    }

    #[test]
    fn sizes_settings_and_wrong_arguments() {
        let stage = &mut Stage::default();
        let long = UDP.replace("bytes 20", "bytes 1000");
        let mut len = |config: &str| {
            let left =
                answer(stage, &CLASS4, &format!("1.2.3.4, timeexceeded{config}"), &long, |_| {});
            left.unwrap().frame.len()
        };
        assert_eq!((len(""), len(", MTU 100"), len(", MTU 0")), (576, 100, 28));
        let made = made(&CLASS4, "1.2.3.4, timeexceeded");
        assert_eq!(format!("{made:?}").matches("\"src\"").count(), 2, "read and written");
        for (config, words) in [
            ("1.2.3.4", "argument TYPE is missing"),
            ("1.2.3.4, echo", "TYPE: `echo` is none of unreachable, sourcequench, redirect"),
            ("1.2.3.4, unreachable, reassembly", "CODE: `reassembly` is no code of this type"),
            ("1.2.3.4, timeexceeded, BADADDRS x y", "`y` is no IPv4 address"),
        ] {
            let reported = refused(&CLASS4, config);
            assert!(reported.contains(words), "{reported}");
        }
        assert!(refused(&CLASS6, "::1, redirect").contains("`redirect` is none of"));
    }
}
