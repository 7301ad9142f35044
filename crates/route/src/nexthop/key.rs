//! What a next hop is: its identity, and the identities of what its packets leave by.
//!
//! Everything here is a plain value with derived equality: what is equal is shared. State (references,
//! contents, slots) is elsewhere.

use core::fmt;
use std::net::IpAddr;
use std::ops::BitOr;

use crate::event::{AnyPrefix, MAIN_TABLE, Path};
use crate::hops::ForwardingAction;

/// What a route names. Together with [`HopAttrs`] the identity of an entry: two routes that name equal
/// ones share one id.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum HopKey {
    /// One path; its weight does not matter while it is alone, but counts again when another one joins.
    Path(Path),
    /// Several, sorted.
    Group(Box<[Path]>),
    /// Several of which the first one that leads anywhere is in use, the best one first.
    Ranked(Box<[Path]>),
    /// A next-hop object, as its source announces it.
    Object {
        /// Number of the source.
        source: u16,
        /// The source's own number of the object.
        id: u32,
    },
    /// Pass to the host.
    Local,
    /// Drop silently.
    Blackhole,
    /// Drop, with ICMP host unreachable.
    Unreachable,
    /// Drop, with ICMP administratively prohibited.
    Prohibit,
    /// Look up in the next table of the policy rules.
    Throw,
}

impl HopKey {
    /// The key of several paths: sorted, equal ones added up, one alone is no group.
    pub fn of_paths(mut paths: Vec<Path>) -> Self {
        for path in &mut paths {
            path.weight = path.weight.max(1);
        }
        paths.sort_unstable();
        paths.dedup_by(|b, a| {
            let same = a.gateway == b.gateway && a.link == b.link;
            if same {
                a.weight = a.weight.saturating_add(b.weight);
            }
            same
        });
        match paths[..] {
            [] => Self::Unreachable,
            [path] => Self::Path(path),
            _ => Self::Group(paths.into()),
        }
    }

    /// The key of alternatives, the best one first: equal ones once, one alone is a path. Weights do not matter.
    pub fn of_ranked(paths: impl IntoIterator<Item = Path>) -> Self {
        let mut ranked: Vec<Path> = Vec::new();
        for path in paths {
            let path = Path { weight: 1, ..path };
            if !ranked.contains(&path) {
                ranked.push(path);
            }
        }
        match ranked[..] {
            [] => Self::Unreachable,
            [path] => Self::Path(path),
            _ => Self::Ranked(ranked.into()),
        }
    }

    /// The paths of a path, group or list of alternatives; none of anything else.
    pub fn paths(&self) -> &[Path] {
        match self {
            Self::Path(path) => std::slice::from_ref(path),
            Self::Group(paths) | Self::Ranked(paths) => paths,
            _ => &[],
        }
    }

    /// Whether packets leave by it at all, so that an MTU matters.
    pub(crate) fn leads_out(&self) -> bool {
        matches!(self, Self::Path(_) | Self::Group(_) | Self::Ranked(_) | Self::Object { .. })
    }

    /// Whether contents depend on the table in which gateways are looked for.
    pub(super) fn recursive(&self) -> bool {
        matches!(self, Self::Object { .. }) || self.paths().iter().any(|path| path.link.is_none())
    }
}

/// What else distinguishes next hops: two routes with the same gateway but other attributes have ids of
/// their own.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct HopAttrs {
    /// Flags of the route itself, among [`HopFlags::OF_ROUTE`].
    pub flags: HopFlags,
    /// Largest IP packet in bytes; 0 for what the link can carry, which is a limit in any case.
    pub mtu: u16,
    /// The route table in which gateways without a link are looked for.
    pub table: u32,
}

impl Default for HopAttrs {
    fn default() -> Self {
        Self { flags: HopFlags::NONE, mtu: 0, table: MAIN_TABLE }
    }
}

/// Flags of a next hop, with FreeBSD's values (`NHF_` in sys/net/route/nhop.h).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct HopFlags(pub u16);

impl HopFlags {
    /// None of them.
    pub const NONE: Self = Self(0);
    /// It is a group.
    pub const MULTIPATH: Self = Self(0x08);
    /// Packets are dropped with an ICMP error.
    pub const REJECT: Self = Self(0x10);
    /// Packets are dropped silently.
    pub const BLACKHOLE: Self = Self(0x20);
    /// Made by an ICMP redirect.
    pub const REDIRECT: Self = Self(0x40);
    /// Flag of a default route.
    pub const DEFAULT: Self = Self(0x80);
    /// Leads to a broadcast address.
    pub const BROADCAST: Self = Self(0x100);
    /// Packets go to a gateway, not to their destination.
    pub const GATEWAY: Self = Self(0x200);
    /// Flag of a route to one address.
    pub const HOST: Self = Self(0x400);
    /// Flags of a route itself; the others follow from where it leads.
    pub const OF_ROUTE: Self = Self(0x40 | 0x80 | 0x100 | 0x400);

    const NAMES: [(Self, &'static str, char); 8] = [
        (Self::MULTIPATH, "multipath", 'M'),
        (Self::REJECT, "reject", 'R'),
        (Self::BLACKHOLE, "blackhole", 'B'),
        (Self::REDIRECT, "redirect", 'D'),
        (Self::DEFAULT, "default", 'd'),
        (Self::BROADCAST, "broadcast", 'b'),
        (Self::GATEWAY, "gateway", 'G'),
        (Self::HOST, "host", 'H'),
    ];

    /// Those of the route to `prefix`: default or host.
    pub fn of_prefix(prefix: AnyPrefix) -> Self {
        match (prefix, prefix.len()) {
            (_, 0) => Self::DEFAULT,
            (AnyPrefix::V4(_), 32) | (AnyPrefix::V6(_), 128) => Self::HOST,
            _ => Self::NONE,
        }
    }

    /// Whether all of `others` are set.
    pub fn contains(self, others: Self) -> bool {
        self.0 & others.0 == others.0
    }

    /// Their names, in the order of their bits.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        Self::NAMES.into_iter().filter(move |row| self.contains(row.0)).map(|row| row.1)
    }

    /// A letter each, as netstat(1) has them: G gateway, H host, R reject, B blackhole, D redirect, b
    /// broadcast; and M group, d default route.
    pub fn letters(self) -> String {
        Self::NAMES.into_iter().filter(|row| self.contains(row.0)).map(|row| row.2).collect()
    }
}

impl BitOr for HopFlags {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl fmt::Display for HopFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, name) in self.names().enumerate() {
            if i > 0 {
                f.write_str(",")?;
            }
            f.write_str(name)?;
        }
        Ok(())
    }
}

impl fmt::Debug for HopFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HopFlags({self})")
    }
}

/// The identity of an adjacency.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct AdjacencyKey {
    /// Kernel index of the link.
    pub link: u32,
    /// The neighbor; `None` on links without link addresses, where there is just one.
    pub neighbor: Option<IpAddr>,
    /// Largest IP packet in bytes that the routes to here allow; 0 for what the link can carry,
    /// which is a limit in any case.
    pub mtu: u16,
}

/// What a packet leaves by, by name: a forwarding action before it has an adjacency.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Exit {
    /// The neighbor of this key.
    Adjacency(AdjacencyKey),
    /// Anything that needs no adjacency.
    ForwardingAction(ForwardingAction),
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    fn path(last: u8, weight: u32) -> Path {
        Path { gateway: Some(IpAddr::from([10, 0, 0, last])), link: Some(1), weight }
    }

    #[test]
    fn equal_paths_add_up_and_one_is_no_group() {
        assert_eq!(
            HopKey::of_paths(vec![path(2, 1), path(1, 2), path(2, 0)]),
            HopKey::Group(Box::new([path(1, 2), path(2, 2)]))
        );
        assert_eq!(HopKey::of_paths(vec![path(1, 0)]), HopKey::Path(path(1, 1)));
        assert_eq!(HopKey::of_paths(vec![path(1, 5)]), HopKey::Path(path(1, 5)));
        assert_eq!(HopKey::of_paths(vec![]), HopKey::Unreachable);
    }

    #[test]
    fn alternatives_keep_their_order_and_one_is_a_path() {
        assert_eq!(
            HopKey::of_ranked([path(2, 1), path(1, 9), path(2, 3)]),
            HopKey::Ranked(Box::new([path(2, 1), path(1, 1)]))
        );
        assert_eq!(HopKey::of_ranked([path(1, 5), path(1, 1)]), HopKey::Path(path(1, 1)));
        assert_eq!(HopKey::of_ranked([]), HopKey::Unreachable);
    }

    #[test]
    fn flags_have_names_and_letters() {
        let flags = HopFlags::GATEWAY | HopFlags::HOST | HopFlags::REDIRECT;
        assert_eq!(flags.0, 0x640);
        assert_eq!(flags.to_string(), "redirect,gateway,host");
        assert_eq!(flags.letters(), "DGH");
        assert_eq!(HopFlags::NONE.to_string(), "");
        let of = |text| HopFlags::of_prefix(AnyPrefix::parse(text).unwrap());
        assert_eq!(of("0.0.0.0/0"), HopFlags::DEFAULT);
        assert_eq!(of("::/0"), HopFlags::DEFAULT);
        assert_eq!(of("10.0.0.1/32"), HopFlags::HOST);
        assert_eq!(of("2001:db8::/32"), HopFlags::NONE);
        assert_eq!(of("2001:db8::1/128"), HopFlags::HOST);
    }
}
