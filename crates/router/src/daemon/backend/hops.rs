//! Next hops, groups and adjacencies, as people name them.

use std::net::IpAddr;

use fingerpost_io::xdp::forward::Used;
use fingerpost_lpm::NextHopId;
use fingerpost_route::mtu::narrower;
use fingerpost_route::nexthop::{Exit, HopKey, HopRow, MemberRow};
use fingerpost_route::{ForwardingAction, HopView, ObjectView, Path};

use super::{LinkNames, View};
use crate::api::model::{self, Adjacency, Group, Member, NextHop};

/// What a next hop does, as people read it.
#[derive(Clone)]
pub(super) struct Shown {
    /// Kind, in one word.
    pub(super) kind: &'static str,
    /// Number of the next-hop object that it is.
    pub(super) object: Option<u32>,
    /// Its paths, or those of the object; of alternatives the one in use.
    pub(super) paths: Vec<model::Path>,
}

impl Shown {
    /// Description of an id that is not in use.
    pub(super) fn none() -> Self {
        Self { kind: "none", object: None, paths: Vec::new() }
    }

    pub(super) fn new(key: &HopKey, view: HopView<'_>, names: &LinkNames) -> Self {
        let &HopKey::Object { source, id } = key else {
            // Each entry of a list of alternatives uses the same one, unless their tables differ.
            let paths = match key {
                HopKey::Ranked(all) => {
                    view.hops.find_all(key).next().map_or(&all[..1], |id| view.hops.paths(id))
                }
                _ => key.paths(),
            };
            let paths = paths.iter().map(|path| shown_path(path, None, names)).collect();
            return Self { kind: kind(key), object: None, paths };
        };
        let (kind, paths) = match view.object(source, id) {
            Some(object) if object.blackhole => ("blackhole", Vec::new()),
            Some(object) if object.local && !object.group => ("local", Vec::new()),
            Some(object) => (kind(key), object_paths(&object, names)),
            None => (kind(key), Vec::new()),
        };
        Self { kind, object: Some(id), paths }
    }

    /// The object when the notice of number `sequence` was made: of one that has changed since nothing but its
    /// number is known.
    pub(super) fn at(key: &HopKey, view: HopView<'_>, names: &LinkNames, sequence: u64) -> Self {
        match *key {
            HopKey::Object { source, id }
                if view.object(source, id).is_none_or(|object| object.since > sequence) =>
            {
                Self { kind: kind(key), object: Some(id), paths: Vec::new() }
            }
            _ => Self::new(key, view, names),
        }
    }
}

/// What a key does, in one word.
fn kind(key: &HopKey) -> &'static str {
    match key {
        HopKey::Path(_) | HopKey::Group(_) | HopKey::Ranked(_) => "via",
        HopKey::Object { .. } => "object",
        HopKey::Local => "local",
        HopKey::Blackhole => "blackhole",
        HopKey::Unreachable => "unreachable",
        HopKey::Prohibit => "prohibit",
        HopKey::Throw => "throw",
    }
}

/// What a packet meets, in one word.
pub(super) fn action_word(action: ForwardingAction) -> &'static str {
    match action {
        ForwardingAction::NoRoute => "none",
        ForwardingAction::Adjacency(_) => "adjacency",
        ForwardingAction::Glean(_) => "glean",
        ForwardingAction::Local => "local",
        ForwardingAction::Blackhole => "blackhole",
        ForwardingAction::Unreachable => "unreachable",
        ForwardingAction::Prohibit => "prohibit",
        ForwardingAction::Vrf(..) => "vrf",
    }
}

/// Paths of a next-hop object; each has its ID where it is a member.
pub(super) fn object_paths(object: &ObjectView, names: &LinkNames) -> Vec<model::Path> {
    let member = |number| object.group.then_some(number);
    let paths = object.paths.iter();
    paths.map(|path| shown_path(&path.path, member(path.object), names)).collect()
}

fn shown_path(path: &Path, object: Option<u32>, names: &LinkNames) -> model::Path {
    model::Path {
        gateway: path.gateway.map(|gateway| gateway.to_string()),
        dev: path.link.map(|link| link_name(link, names)),
        weight: path.weight,
        expires: None,
        object,
    }
}

/// The MTU of a route, where it states one.
pub(super) fn stated(mtu: u16) -> Option<u16> {
    (mtu != 0).then_some(mtu)
}

/// A link that is gone has only its number left.
pub(super) fn link_name(link: u32, names: &LinkNames) -> String {
    names.get(&link).cloned().unwrap_or_else(|| format!("link {link}"))
}

impl View<'_> {
    /// Next hops, without groups.
    pub(super) fn next_hop_list(&self) -> Vec<NextHop> {
        let names = self.link_names();
        let view = self.control.hop_view();
        let single = view.hops.rows().filter(|row| !is_group(row.key, row.slots, view));
        let forwarded = self.interfaces.forwarded();
        single.map(|row| self.nexthop(&row, &names, &forwarded)).collect()
    }

    fn nexthop(&self, row: &HopRow<'_>, names: &LinkNames, forwarded: &[Used]) -> NextHop {
        let member = row.members.first();
        let (object, gateway) = match *row.key {
            HopKey::Object { source, id } => {
                let view = self.control.hop_view().object(source, id);
                // That of an interface that is down, too.
                let said = view.and_then(|view| view.paths.first()?.path.gateway);
                (Some(id), member.and_then(neighbor).or(said))
            }
            _ => (None, row.gateway()),
        };
        let kind = match (row.key, gateway) {
            (HopKey::Path(_), Some(IpAddr::V4(_))) => "v4/gw",
            (HopKey::Path(_), Some(IpAddr::V6(_))) => "v6/gw",
            (HopKey::Path(_), None) => "resolve",
            (HopKey::Ranked(_), _) => "ranked",
            (key, _) => kind(key),
        };
        let interface = row.link().map(|link| link_name(link, names));
        NextHop {
            index: row.id.0,
            kind: kind.to_owned(),
            object,
            interface: interface
                .or_else(|| member.and_then(|member| self.interface_of(member, names))),
            gateway: gateway.map(|gateway| gateway.to_string()),
            flags: row.flags.letters(),
            used: self.row_used(row, forwarded),
            mtu: member.and_then(|member| self.mtu_of(row, member)),
            references: row.refs,
            shortened: row.shortened,
        }
    }

    /// Groups and their members.
    pub(super) fn group_list(&self) -> Vec<Group> {
        let names = self.link_names();
        let view = self.control.hop_view();
        let groups = view.hops.rows().filter(|row| is_group(row.key, row.slots, view));
        let forwarded = self.interfaces.forwarded();
        groups.map(|row| self.group(&row, &names, &forwarded)).collect()
    }

    fn group(&self, row: &HopRow<'_>, names: &LinkNames, forwarded: &[Used]) -> Group {
        let shown = Shown::new(row.key, self.control.hop_view(), names);
        Group {
            index: row.id.0,
            kind: row.kind().to_owned(),
            object: shown.object,
            slots: row.slots,
            used: self.row_used(row, forwarded),
            references: row.refs,
            members: self.members_of(row, shown.paths, names),
        }
    }

    /// The members of an id, if it is a group.
    pub(super) fn members(&self, id: NextHopId) -> Option<Vec<Member>> {
        let (names, view) = (self.link_names(), self.control.hop_view());
        let row = view.hops.row(id).filter(|row| is_group(row.key, row.slots, view))?;
        let shown = Shown::new(row.key, view, &names);
        Some(self.members_of(&row, shown.paths, &names))
    }

    /// The members that packets take at the moment, then those of `paths` that none takes.
    fn members_of(
        &self,
        row: &HopRow<'_>,
        paths: Vec<model::Path>,
        names: &LinkNames,
    ) -> Vec<Member> {
        let mut members: Vec<Member> = Vec::new();
        for member in &row.members {
            let gateway = neighbor(member).map(|addr| addr.to_string());
            let interface = self.interface_of(member, names);
            // Without slots one member takes all.
            let share = match row.slots {
                0 => 1.0,
                slots => f64::from(member.slots) / f64::from(slots),
            };
            let is_it = |path: &&model::Path| path.gateway == gateway && path.dev == interface;
            members.push(Member {
                object: paths.iter().find(is_it).and_then(|path| path.object),
                gateway,
                interface,
                weight: member.weight,
                slots: member.slots,
                share,
                mtu: self.mtu_of(row, member),
            });
        }
        // A configured path without an adjacency is down.
        for path in paths {
            let known = |m: &Member| m.gateway == path.gateway && m.interface == path.dev;
            if path.dev.is_some() && !members.iter().any(known) {
                let model::Path { gateway, dev: interface, weight, object, .. } = path;
                let down =
                    Member { gateway, interface, weight, slots: 0, share: 0.0, object, mtu: None };
                members.push(down);
            }
        }
        members
    }

    /// Packets that left by the adjacencies of a next hop or group, each counted once.
    fn row_used(&self, row: &HopRow<'_>, forwarded: &[Used]) -> u64 {
        let adjacency = |member: &MemberRow| match member.action {
            ForwardingAction::Adjacency(index) => Some(index),
            _ => None,
        };
        let mut indices: Vec<u32> = row.members.iter().filter_map(adjacency).collect();
        indices.sort_unstable();
        indices.dedup();
        indices.into_iter().map(|index| self.workers.adjacency_packets(index, forwarded)).sum()
    }

    fn interface_of(&self, member: &MemberRow, names: &LinkNames) -> Option<String> {
        match (member.exit, member.action) {
            (Exit::Adjacency(key), _) => Some(link_name(key.link, names)),
            (_, ForwardingAction::Glean(port)) => {
                Some(self.control.forwarding().ports.port(port)?.name.clone())
            }
            _ => None,
        }
    }

    /// MTU for packets: in an adjacency of the member, of a host that is still to be resolved, or of a VRF.
    fn mtu_of(&self, row: &HopRow<'_>, member: &MemberRow) -> Option<u16> {
        let (link, mtu) = match (member.exit, member.action) {
            (Exit::Adjacency(key), _) => (key.link, key.mtu),
            (_, ForwardingAction::Glean(port)) => {
                (self.control.forwarding().ports.port(port)?.link, row.attrs.mtu)
            }
            (_, ForwardingAction::Vrf(port, mtu)) => {
                (self.control.forwarding().ports.port(port)?.link, mtu.bytes())
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

/// Whether it is shown as a group, however many of its members are up.
pub(super) fn is_group(key: &HopKey, slots: u32, view: HopView<'_>) -> bool {
    let by_key = match *key {
        HopKey::Group(_) => true,
        HopKey::Object { source, id } => view.object(source, id).is_some_and(|o| o.group),
        _ => false,
    };
    slots > 0 || by_key
}

fn neighbor(member: &MemberRow) -> Option<IpAddr> {
    match member.exit {
        Exit::Adjacency(key) => key.neighbor,
        Exit::ForwardingAction(_) => None,
    }
}
