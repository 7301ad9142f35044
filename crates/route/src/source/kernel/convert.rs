//! Meaning of the kernel's messages, one message at a time.

use super::LOCAL_TABLE;
use crate::event::{MAIN_TABLE, NextHopUpdate, ObjectTarget, Path, RouteKey, Target};
use crate::netlink::nexthop::NextHop;
use crate::netlink::route::{
    self, F_CLONED, HOP_DEAD, HOP_LINK_DOWN, Hop, PROTOCOL_KERNEL, PROTOCOL_RA, Route, kind,
};
use crate::netlink::{Malformed, Message};

/// A route of the kernel without its key.
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
    /// `None`: none of its hops can be used, and the kernel passes it by.
    pub(super) body: Option<Body>,
    /// An IPv6 route that shares its packets with others of its key instead of standing behind
    /// them (one hop each, in kernels before 4.11; later ones put all hops into one message).
    pub(super) joins: bool,
    /// It has several hops, of which perhaps only one can be used at the moment.
    pub(super) several: bool,
}

/// Why a route is left out.
pub(super) enum Skip {
    /// It concerns no table that is followed.
    Elsewhere,
    /// Its table is followed, but no event can hold it.
    Unsupported(&'static str, RouteKey),
}

/// Reads a new or deleted route.
///
/// A deleted route has all of its hops, a new one those that can be used. Routes whose packets
/// the kernel encapsulates (MPLS, segment routing) are for the host: it forwards them.
pub(super) fn route(message: &Message<'_>) -> Result<Result<Line, Skip>, Malformed> {
    let Some(route) = Route::parse(message)? else { return Ok(Err(Skip::Elsewhere)) };
    let wanted = match route.table {
        MAIN_TABLE => true,
        // Only what is for the host itself: the addresses, broadcasts, and whatever was added.
        LOCAL_TABLE => matches!(route.kind, kind::LOCAL | kind::BROADCAST | kind::ANYCAST),
        _ => false,
    };
    if !wanted || route.flags & F_CLONED != 0 {
        return Ok(Err(Skip::Elsewhere));
    }
    let key = RouteKey { table: route.table, prefix: route.prefix, metric: route.metric };
    if route.tos != 0 {
        return Ok(Err(Skip::Unsupported("only for a type of service", key)));
    }
    if route.src_len != 0 {
        return Ok(Err(Skip::Unsupported("only for a source prefix", key)));
    }
    let all = message.kind == route::DEL;
    let target = target(&route, all)?;
    let joins = route.prefix.family() == 6
        && !matches!(route.protocol, PROTOCOL_KERNEL | PROTOCOL_RA)
        && matches!(target, Some(Target::Path(Path { gateway: Some(_), .. })));
    let several = route.hops().nth(1).is_some();
    let body = target.map(|target| Body { target, mtu: mtu(&route) });
    Ok(Ok(Line { key, body, joins, several }))
}

/// The kernel takes any number. Of one that is too small it makes the least when it forwards (RFC 8200,
/// section 5), and no packet is longer than 65,535 bytes.
fn mtu(route: &Route<'_>) -> u16 {
    match route.mtu {
        None | Some(0) => 0,
        Some(mtu) => u16::try_from(mtu).unwrap_or(u16::MAX).max(route.prefix.min_mtu()),
    }
}

fn target(route: &Route<'_>, all: bool) -> Result<Option<Target>, Malformed> {
    // With an object, the hops and even the kind are those that it has at the moment.
    if let Some(object) = route.object {
        let mut wrapped = false;
        for hop in route.hops() {
            wrapped |= hop?.encap;
        }
        return Ok(Some(if wrapped { Target::Local } else { Target::Object(object) }));
    }
    match route.kind {
        kind::UNICAST => {}
        kind::LOCAL | kind::BROADCAST | kind::ANYCAST | kind::MULTICAST => {
            return Ok(Some(Target::Local));
        }
        kind::BLACKHOLE => return Ok(Some(Target::Blackhole)),
        kind::PROHIBIT => return Ok(Some(Target::Prohibit)),
        // The rule behind the main table leads to the default one, which is empty.
        kind::UNREACHABLE | kind::THROW => return Ok(Some(Target::Unreachable)),
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
                return Ok(Some(Target::Local));
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
        _ if !more.is_empty() => Some(Target::Paths(more)),
        Some(path) => Some(Target::Path(Path { weight: 1, ..path })),
        None => None,
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
