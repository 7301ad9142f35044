//! Static routes for the kernel's tables: how to add and delete one under a protocol number, and to find those of it.
//!
//! Source: rtnetlink(7); `fib_table_insert` and `fib_table_delete` (net/ipv4/fib_trie.c), `fib6_add_rt2node` and
//! `ip6_route_del` (net/ipv6). No request touches a route of another protocol: one that adds is refused where there is a
//! route of that prefix, metric and table, whoever set it, and one that deletes names the protocol. So a changed route is
//! deleted and added: for some microseconds the kernel has none.

use core::net::IpAddr;

use super::route::{
    HOP_ON_LINK, NEW, RTA_DST, RTA_GATEWAY, RTA_METRICS, RTA_MULTIPATH, RTA_OIF, RTA_PRIORITY,
    RTA_TABLE, RTA_VIA, RTAX_MTU, Route, SCOPE_LINK, SCOPE_UNIVERSE, kind,
};
use super::{F_ACK, F_CREATE, F_EXCL, Malformed, Request, aligned, family_of, route};
use crate::event::{Path, RouteKey, RouteUpdate, Target};

/// Metric that the kernel gives an IPv6 route without one (`IP6_RT_PRIO_USER`).
const METRIC_V6: u32 = 1024;
/// `RT_SCOPE_NOWHERE`: a route of any scope is deleted.
const SCOPE_ANY: u8 = 255;
/// Largest weight of a hop: one byte, of the weight minus one.
const MOST_WEIGHT: u32 = 256;

/// Key of a route in the kernel: IPv6 has no metric 0.
pub fn key(key: &RouteKey) -> RouteKey {
    let metric = if key.prefix.family() == 6 && key.metric == 0 { METRIC_V6 } else { key.metric };
    RouteKey { metric, ..*key }
}

/// Request for the routes of a family that `protocol` set, of all tables. A kernel before 4.20 replies with all routes.
pub fn dump(family: u8, protocol: u8, seq: u32) -> Vec<u8> {
    Request::dump(route::GET, seq).fixed(&[family, 0, 0, 0, 0, protocol, 0, 0, 0, 0, 0, 0]).finish()
}

/// Request to add a route, refused (EEXIST) where there is one of its key. `None` for a target that a route of the kernel
/// cannot have.
pub fn add(update: &RouteUpdate, protocol: u8, seq: u32) -> Option<Vec<u8>> {
    let (kind, paths) = (kind_of(&update.target)?, paths(&update.target));
    let direct = matches!(paths, [Path { gateway: None, .. }]);
    let scope = if direct { SCOPE_LINK } else { SCOPE_UNIVERSE };
    let flags = if let [path] = paths { hop_flags(path) } else { 0 };
    let request = Request::query(NEW, F_ACK | F_CREATE | F_EXCL, seq);
    let mut request = keyed(request, &key(&update.key), [protocol, scope, kind], flags);
    if update.mtu > 0 {
        let mtu = Request::new(0, 0, 0).attr(RTAX_MTU, &u32::from(update.mtu).to_ne_bytes());
        request = request.attr(RTA_METRICS, mtu.body());
    }
    Some(match paths {
        [] => request.finish(),
        [path] => hop(request, path, update).finish(),
        _ => {
            let most = paths.iter().map(|path| path.weight).max().unwrap_or(1);
            let divisor = most.div_ceil(MOST_WEIGHT).max(1);
            let mut hops = Vec::new();
            for path in paths {
                let link = path.link.unwrap_or(0).to_ne_bytes();
                // The link is in the head of the hop.
                let inner = hop(Request::new(0, 0, 0), &Path { link: None, ..*path }, update);
                let len = u16::try_from(8 + inner.body().len()).expect("a hop is some bytes");
                let weight = path.weight.div_ceil(divisor).clamp(1, MOST_WEIGHT) - 1;
                let weight = u8::try_from(weight).expect("at most 255");
                hops.extend(len.to_ne_bytes());
                hops.extend([hop_flags(path).to_le_bytes()[0], weight]);
                hops.extend(link);
                hops.extend(inner.body());
                hops.resize(aligned(hops.len()), 0);
            }
            request.attr(RTA_MULTIPATH, &hops).finish()
        }
    })
}

/// Request to delete the route of this key that `protocol` set, whatever it does.
pub fn delete(of: &RouteKey, protocol: u8, seq: u32) -> Vec<u8> {
    keyed(Request::query(route::DEL, F_ACK, seq), &key(of), [protocol, SCOPE_ANY, 0], 0).finish()
}

/// Whether a route of the kernel is as `update` would be added: a link that the kernel chose counts as none.
///
/// # Errors
/// [`Malformed`] for hops that cannot be read.
pub fn is_same(update: &RouteUpdate, found: &Route<'_>) -> Result<bool, Malformed> {
    let plain = found.object.is_none() && found.tos == 0 && found.src_len == 0;
    if !plain
        || Some(found.kind) != kind_of(&update.target)
        || found.mtu.unwrap_or(0) != u32::from(update.mtu)
    {
        return Ok(false);
    }
    let paths = paths(&update.target);
    if paths.is_empty() {
        return Ok(true);
    }
    let hops = found.hops().collect::<Result<Vec<_>, _>>()?;
    let most = paths.iter().map(|path| path.weight).max().unwrap_or(1);
    let divisor = most.div_ceil(MOST_WEIGHT).max(1);
    let same = |path: &Path| {
        hops.iter().any(|hop| {
            let weight = paths.len() == 1 || hop.weight == path.weight.div_ceil(divisor);
            let link = path.link.is_none() || path.link == hop.link;
            weight && link && path.gateway == hop.gateway && !hop.encap
        })
    };
    Ok(hops.len() == paths.len() && paths.iter().all(same))
}

fn kind_of(target: &Target) -> Option<u8> {
    match target {
        Target::Path(_) | Target::Paths(_) => Some(kind::UNICAST),
        Target::Blackhole => Some(kind::BLACKHOLE),
        Target::Unreachable => Some(kind::UNREACHABLE),
        Target::Prohibit => Some(kind::PROHIBIT),
        Target::Throw => Some(kind::THROW),
        Target::Ranked(_) | Target::Object(_) | Target::Local => None,
    }
}

fn paths(target: &Target) -> &[Path] {
    match target {
        Target::Path(path) => core::slice::from_ref(path),
        Target::Paths(paths) => paths,
        _ => &[],
    }
}

/// A gateway whose link is named is taken to be on it, as in our own tables.
fn hop_flags(path: &Path) -> u32 {
    if path.gateway.is_some() && path.link.is_some() { HOP_ON_LINK } else { 0 }
}

/// The head of a message, and the key of its route.
fn keyed(request: Request, of: &RouteKey, [protocol, scope, kind]: [u8; 3], flags: u32) -> Request {
    let addr = of.prefix.addr();
    let head = [
        [family_of(addr), of.prefix.len(), 0, 0],
        [u8::try_from(of.table).unwrap_or(0), protocol, scope, kind],
        flags.to_ne_bytes(),
    ];
    request
        .fixed(head.as_flattened())
        .ip(RTA_DST, addr)
        .attr(RTA_TABLE, &of.table.to_ne_bytes())
        .attr(RTA_PRIORITY, &of.metric.to_ne_bytes())
}

/// Link and gateway of a path.
fn hop(mut request: Request, path: &Path, update: &RouteUpdate) -> Request {
    if let Some(link) = path.link {
        request = request.attr(RTA_OIF, &link.to_ne_bytes());
    }
    match path.gateway {
        None => request,
        Some(gateway) if gateway.is_ipv4() == update.key.prefix.addr().is_ipv4() => {
            request.ip(RTA_GATEWAY, gateway)
        }
        Some(gateway) => request.attr(RTA_VIA, &via(gateway)),
    }
}

/// A gateway of the other family, as an attribute has it.
pub(super) fn via(gateway: IpAddr) -> Vec<u8> {
    let mut via = u16::from(family_of(gateway)).to_ne_bytes().to_vec();
    match gateway {
        IpAddr::V4(addr) => via.extend(addr.octets()),
        IpAddr::V6(addr) => via.extend(addr.octets()),
    }
    via
}

#[cfg(test)]
mod tests {
    use super::super::Messages;
    use super::*;
    use crate::event::{AnyPrefix, MAIN_TABLE};
    use crate::netlink::{IPV4, IPV6};

    fn path(gateway: &str, link: Option<u32>, weight: u32) -> Path {
        Path { gateway: gateway.parse().ok(), link, weight }
    }

    #[test]
    fn what_is_added_is_read_again_and_is_the_same() {
        let targets = [
            Target::Blackhole,
            Target::Unreachable,
            Target::Prohibit,
            Target::Path(path("2001:db8::9", Some(7), 1)),
            Target::Path(path("", Some(7), 1)),
            Target::Paths(vec![path("2001:db8::9", Some(7), 300), path("2001:db8::8", None, 900)]),
        ];
        for prefix in ["10.9.0.0/16", "2001:db8:9::/48", "0.0.0.0/0"] {
            for (mtu, target) in
                [0, 1400].into_iter().flat_map(|mtu| targets.iter().map(move |t| (mtu, t)))
            {
                let prefix = AnyPrefix::parse(prefix).unwrap();
                let key = RouteKey { table: 1000, prefix, metric: 0 };
                let update = RouteUpdate { mtu, ..RouteUpdate::new(key, target.clone()) };
                let bytes = add(&update, 103, 5).unwrap();
                let message = Messages::new(&bytes).next().unwrap().unwrap();
                assert_eq!((message.flags & F_EXCL, message.seq), (F_EXCL, 5));
                let found = Route::parse(&message).unwrap().unwrap();
                assert_eq!(is_same(&update, &found), Ok(true), "{update:?} {found:?}");
                assert_eq!((found.table, found.protocol), (1000, 103));
                let metric = if prefix.family() == 6 { METRIC_V6 } else { 0 };
                assert_eq!((found.prefix, found.metric), (prefix, metric));
                let weights: Vec<u32> = found.hops().map(|hop| hop.unwrap().weight).collect();
                assert!(weights.len() < 2 || weights == [75, 225], "{weights:?}");
                for other in targets.iter().filter(|other| *other != target) {
                    let other = RouteUpdate { mtu, ..RouteUpdate::new(key, other.clone()) };
                    assert_eq!(is_same(&other, &found), Ok(false), "{other:?} {found:?}");
                }
            }
        }
    }

    #[test]
    fn what_is_deleted_and_listed_is_of_one_protocol() {
        let prefix = AnyPrefix::parse("10.9.0.0/16").unwrap();
        let bytes = delete(&RouteKey { table: MAIN_TABLE, prefix, metric: 7 }, 103, 5);
        let message = Messages::new(&bytes).next().unwrap().unwrap();
        let found = Route::parse(&message).unwrap().unwrap();
        assert_eq!((found.table, found.metric, found.protocol), (MAIN_TABLE, 7, 103));
        assert_eq!((found.kind, found.hops().count()), (0, 0));
        for family in [IPV4, IPV6] {
            let bytes = dump(family, 103, 5);
            let message = Messages::new(&bytes).next().unwrap().unwrap();
            assert_eq!((message.body[0], message.body[5]), (family, 103));
        }
        let object = RouteUpdate::new(RouteKey { table: 1, prefix, metric: 0 }, Target::Object(1));
        assert_eq!(add(&object, 103, 5), None);
    }
}
