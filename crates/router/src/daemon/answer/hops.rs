//! Next hops, groups and adjacencies, as people name them.

use std::net::IpAddr;

use fingerpost_packet::xdp::forward::Used;
use fingerpost_route::nexthop::{Exit, HopKey, HopRow, MemberRow, narrower};
use fingerpost_route::{Leg, Way};

use super::{Daemon, LinkNames};
use crate::api::model::{self, Adjacency, Group, Member, NextHop};

/// What a key does, in one word.
pub(super) fn kind(key: &HopKey) -> &'static str {
    match key {
        HopKey::Way(_) | HopKey::Group(_) => "via",
        HopKey::Object { .. } => "object",
        HopKey::Local => "local",
        HopKey::Blackhole => "blackhole",
        HopKey::Unreachable => "unreachable",
        HopKey::Prohibit => "prohibit",
    }
}

/// What a packet meets, in one word.
pub(super) fn leg_word(leg: Leg) -> &'static str {
    match leg {
        Leg::NoRoute => "none",
        Leg::Adjacency(_) => "adjacency",
        Leg::Glean(_) => "glean",
        Leg::Local => "local",
        Leg::Blackhole => "blackhole",
        Leg::Unreachable => "unreachable",
        Leg::Prohibit => "prohibit",
    }
}

/// The ways of a key.
pub(super) fn ways(key: &HopKey, names: &LinkNames) -> Vec<model::Way> {
    let of = |way: &Way| model::Way {
        gateway: way.gateway.map(|gateway| gateway.to_string()),
        dev: way.link.map(|link| link_name(link, names)),
        weight: way.weight,
        expires: None,
    };
    key.ways().iter().map(of).collect()
}

/// The MTU of a route, where it states one.
pub(super) fn stated(mtu: u16) -> Option<u16> {
    (mtu != 0).then_some(mtu)
}

/// A link that is gone has only its number left.
pub(super) fn link_name(link: u32, names: &LinkNames) -> String {
    names.get(&link).cloned().unwrap_or_else(|| format!("link {link}"))
}

impl Daemon {
    /// Next hops, without groups.
    pub(crate) fn nexthops(&self) -> Vec<NextHop> {
        let names = self.link_names();
        let single = self.control.next_hops().rows().filter(|row| !is_group(row));
        let forwarded = self.interfaces.forwarded();
        single.map(|row| self.nexthop(&row, &names, &forwarded)).collect()
    }

    fn nexthop(&self, row: &HopRow<'_>, names: &LinkNames, forwarded: &[Used]) -> NextHop {
        let member = row.members.first();
        let gateway = match row.key {
            HopKey::Object { .. } => member.and_then(neighbor),
            _ => row.gateway(),
        };
        let kind = match (row.key, gateway) {
            (HopKey::Way(_), Some(IpAddr::V4(_))) => "v4/gw",
            (HopKey::Way(_), Some(IpAddr::V6(_))) => "v6/gw",
            (HopKey::Way(_), None) => "resolve",
            (key, _) => kind(key),
        };
        let interface = row.link().map(|link| link_name(link, names));
        NextHop {
            index: row.id.0,
            kind: kind.to_owned(),
            interface: interface
                .or_else(|| member.and_then(|member| self.interface_of(member, names))),
            gateway: gateway.map(|gateway| gateway.to_string()),
            flags: row.flags.letters(),
            used: self.row_used(row, forwarded),
            mtu: member.and_then(|member| self.mtu_of(row, member)),
            references: row.refs,
        }
    }

    /// Groups and their members.
    pub(crate) fn groups(&self) -> Vec<Group> {
        let names = self.link_names();
        let groups = self.control.next_hops().rows().filter(is_group);
        let forwarded = self.interfaces.forwarded();
        groups.map(|row| self.group(&row, &names, &forwarded)).collect()
    }

    fn group(&self, row: &HopRow<'_>, names: &LinkNames, forwarded: &[Used]) -> Group {
        let mut members: Vec<Member> = Vec::new();
        for member in &row.members {
            members.push(Member {
                gateway: neighbor(member).map(|addr| addr.to_string()),
                interface: self.interface_of(member, names),
                weight: member.weight,
                slots: member.slots,
                mtu: self.mtu_of(row, member),
            });
        }
        // What is configured and is no way out is down.
        for way in ways(row.key, names) {
            let known = |m: &Member| m.gateway == way.gateway && m.interface == way.dev;
            if way.dev.is_some() && !members.iter().any(known) {
                let model::Way { gateway, dev, weight, .. } = way;
                members.push(Member { gateway, interface: dev, weight, slots: 0, mtu: None });
            }
        }
        Group {
            index: row.id.0,
            kind: row.kind().to_owned(),
            slots: row.slots,
            used: self.row_used(row, forwarded),
            references: row.refs,
            members,
        }
    }

    /// Packets that left by the adjacencies of a next hop or group, each counted once.
    fn row_used(&self, row: &HopRow<'_>, forwarded: &[Used]) -> u64 {
        let adjacency = |member: &MemberRow| match member.leg {
            Leg::Adjacency(index) => Some(index),
            _ => None,
        };
        let mut indices: Vec<u32> = row.members.iter().filter_map(adjacency).collect();
        indices.sort_unstable();
        indices.dedup();
        indices.into_iter().map(|index| self.adjacency_used(index, forwarded)).sum()
    }

    fn interface_of(&self, member: &MemberRow, names: &LinkNames) -> Option<String> {
        match (member.exit, member.leg) {
            (Exit::Adjacency(key), _) => Some(link_name(key.link, names)),
            (_, Leg::Glean(port)) => Some(self.control.forwarding().ports.port(port)?.name.clone()),
            _ => None,
        }
    }

    /// As packets meet it: in an adjacency of the member, or of a station that is still to be found.
    fn mtu_of(&self, row: &HopRow<'_>, member: &MemberRow) -> Option<u16> {
        let (link, mtu) = match (member.exit, member.leg) {
            (Exit::Adjacency(key), _) => (key.link, key.mtu),
            (_, Leg::Glean(port)) => {
                (self.control.forwarding().ports.port(port)?.link, row.attrs.mtu)
            }
            _ => return None,
        };
        let (_, _, state) = self.control.links().find(|(other, _, _)| *other == link)?;
        Some(narrower(u16::try_from(state.mtu).unwrap_or(u16::MAX), mtu))
    }

    /// An adjacency as packets find it.
    pub(super) fn adjacency(&self, index: u32) -> Option<Adjacency> {
        let hops = self.control.next_hops();
        let key = hops.adjacency_key(index)?;
        let now = hops.table().adjacency(index);
        let resolved = now.resolved();
        Some(Adjacency {
            index,
            interface: link_name(key.link, &self.link_names()),
            neighbor: key.neighbor.map(|addr| addr.to_string()),
            resolved,
            failed: now.failed(),
            dst_mac: resolved.then(|| now.dst.to_string()),
            src_mac: resolved.then(|| now.src.to_string()),
            mtu: resolved.then_some(now.mtu),
        })
    }
}

fn is_group(row: &HopRow<'_>) -> bool {
    row.slots > 0 || matches!(row.key, HopKey::Group(_))
}

fn neighbor(member: &MemberRow) -> Option<IpAddr> {
    match member.exit {
        Exit::Adjacency(key) => key.neighbor,
        Exit::Leg(_) => None,
    }
}
