//! Meaning of route and next-hop messages, one message at a time: of the kernel's, and of those that FRR's zebra sends
//! in its FPM stream, which have the same bodies.

use crate::event::{NextHopUpdate, ObjectTarget, Path, RouteKey, Target};
use crate::netlink::Malformed;
use crate::netlink::nexthop::NextHop;
use crate::netlink::route::{
    HOP_DEAD, HOP_LINK_DOWN, Hop, PROTOCOL_KERNEL, PROTOCOL_RA, Route, kind,
};

/// A route without its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Body {
    pub(super) target: Target,
    /// 0 for the link's.
    pub(super) mtu: u16,
}

/// A route message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) key: RouteKey,
    /// `None`: none of its hops can be used, and the route is passed by.
    pub(super) body: Option<Body>,
    /// An IPv6 route that shares its packets with others of its key instead of standing behind
    /// them (one hop each, in kernels before 4.11; later ones put all hops into one message).
    pub(super) joins: bool,
    /// It has several hops, of which perhaps only one can be used at the moment.
    pub(super) several: bool,
    /// Some of its hops cannot be used at the moment, and are left out.
    pub(super) partial: bool,
    /// Its packets would be encapsulated (MPLS, segment routing): the body has them for the host.
    pub(super) wrapped: bool,
}

/// Why no event can hold a route.
pub(super) struct Unsupported(pub(super) &'static str);

/// The key of a route.
pub(super) fn key(route: &Route<'_>) -> (RouteKey, Result<(), Unsupported>) {
    let key = RouteKey { table: route.table, prefix: route.prefix, metric: route.metric };
    let supported = if route.tos != 0 {
        Err(Unsupported("only for a type of service"))
    } else if route.src_len != 0 {
        Err(Unsupported("only for a source prefix"))
    } else {
        Ok(())
    };
    (key, supported)
}

/// Reads a new or deleted route of that key. `all`: with the hops that cannot be used at the moment, as a deleted
/// route has all of its hops.
pub(super) fn line(route: &Route<'_>, key: RouteKey, all: bool) -> Result<Line, Malformed> {
    let aim = aim(route, all)?;
    let wrapped = matches!(aim, Aim::Wrapped);
    let target = match aim {
        Aim::Target(target) => Some(target),
        Aim::Wrapped => Some(Target::Local),
        Aim::Unusable => None,
    };
    let joins = route.prefix.family() == 6
        && !matches!(route.protocol, PROTOCOL_KERNEL | PROTOCOL_RA)
        && matches!(target, Some(Target::Path(Path { gateway: Some(_), .. })));
    let several = route.hops().nth(1).is_some();
    let used = match &target {
        Some(Target::Paths(paths)) => paths.len(),
        Some(Target::Path(_)) => 1,
        Some(_) => usize::MAX,
        None => 0,
    };
    let partial = used == 0 || several && route.hops().nth(used).is_some();
    let body = target.map(|target| Body { target, mtu: mtu(route) });
    Ok(Line { key, body, joins, several, partial, wrapped })
}

/// What becomes of packets of a route.
enum Aim {
    Target(Target),
    /// They would be encapsulated.
    Wrapped,
    /// None of its hops can be used.
    Unusable,
}

/// The kernel takes any number. Of one that is too small it makes the least when it forwards (RFC 8200,
/// section 5), and no packet is longer than 65,535 bytes.
fn mtu(route: &Route<'_>) -> u16 {
    match route.mtu {
        None | Some(0) => 0,
        Some(mtu) => u16::try_from(mtu).unwrap_or(u16::MAX).max(route.prefix.min_mtu()),
    }
}

fn aim(route: &Route<'_>, all: bool) -> Result<Aim, Malformed> {
    // With an object, the hops and even the kind are those that it has at the moment.
    if let Some(object) = route.object {
        let mut wrapped = false;
        for hop in route.hops() {
            wrapped |= hop?.encap;
        }
        return Ok(if wrapped { Aim::Wrapped } else { Aim::Target(Target::Object(object)) });
    }
    match route.kind {
        kind::UNICAST => {}
        kind::LOCAL | kind::BROADCAST | kind::ANYCAST | kind::MULTICAST => {
            return Ok(Aim::Target(Target::Local));
        }
        kind::BLACKHOLE => return Ok(Aim::Target(Target::Blackhole)),
        kind::PROHIBIT => return Ok(Aim::Target(Target::Prohibit)),
        kind::THROW => return Ok(Aim::Target(Target::Throw)),
        kind::UNREACHABLE => return Ok(Aim::Target(Target::Unreachable)),
        other => return Err(Malformed::Value { what: "route type", value: other.into() }),
    }
    let usable = |hop: &Hop, mask: u8| all || hop.flags & mask == 0;
    let (mut one, mut more) = (None, Vec::new());
    // First the hops with carrier. Where there are none, the kernel uses those without: it does not
    // fall back to a shorter prefix, and so must we not.
    for mask in [HOP_DEAD | HOP_LINK_DOWN, HOP_DEAD] {
        for hop in route.hops() {
            let hop = hop?;
            if hop.encap {
                return Ok(Aim::Wrapped);
            }
            if !usable(&hop, mask) {
                continue;
            }
            let path = Path { gateway: hop.gateway, link: hop.link, weight: hop.weight };
            match one {
                None => one = Some(path),
                Some(first) if more.is_empty() => more.extend([first, path]),
                Some(_) => more.push(path),
            }
        }
        if one.is_some() {
            break;
        }
    }
    Ok(match one {
        _ if !more.is_empty() => Aim::Target(Target::Paths(more)),
        Some(path) => Aim::Target(Target::Path(Path { weight: 1, ..path })),
        None => Aim::Unusable,
    })
}

/// Target of a next-hop object; `None` for objects that are not for routes or that no event can hold.
pub(super) fn object(object: &NextHop<'_>) -> Option<NextHopUpdate> {
    if object.fdb || object.encap {
        return None;
    }
    let target = match object.group() {
        Some(group) => ObjectTarget::Group(group.collect()),
        None if object.blackhole => ObjectTarget::Blackhole,
        None => ObjectTarget::Path(Path { gateway: object.gateway, link: object.link, weight: 1 }),
    };
    Some(NextHopUpdate { id: object.id, target })
}
