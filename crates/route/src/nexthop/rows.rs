//! Next hops as they are shown: a row each, and a group's members within.

use std::net::IpAddr;

use fingerpost_lpm::NextHopId;

use super::key::{AdjacencyKey, Exit, HopAttrs, HopFlags, HopKey};
use super::{Entry, NextHops};
use crate::event::Path;
use crate::hops::ForwardingAction;

/// A next hop or group, for showing. How many packets took it is counted by adjacency, elsewhere.
#[derive(Clone, Debug)]
pub struct HopRow<'a> {
    /// Its index: what lookups answer.
    pub id: NextHopId,
    /// What routes name.
    pub key: &'a HopKey,
    /// Its attributes.
    pub attrs: HopAttrs,
    /// All flags: those of routes, and those that follow from where it leads.
    pub flags: HopFlags,
    /// Routes that name it.
    pub refs: u32,
    /// Slots in all; 0 unless packets are shared among several members now.
    pub slots: u32,
    /// Lists of alternatives that it stands for alone, as there were too many.
    pub shortened: u32,
    /// The path in use, of a single one or of alternatives.
    pub path: Option<Path>,
    /// Where packets go at the moment: one, several of a group, or none when every path is down.
    pub members: Vec<MemberRow>,
}

/// One member of a next hop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemberRow {
    /// What its packets leave by.
    pub exit: Exit,
    /// Its forwarding action.
    pub action: ForwardingAction,
    /// Its share, in relation to the others.
    pub weight: u32,
    /// How many slots that is.
    pub slots: u32,
}

impl HopRow<'_> {
    /// What kind, in a word: `gateway`, `link`, `group`, `ranked`, `object`, or the verdict.
    pub fn kind(&self) -> &'static str {
        match self.key {
            HopKey::Path(path) if path.gateway.is_some() => "gateway",
            HopKey::Path(_) => "link",
            HopKey::Group(_) => "group",
            HopKey::Ranked(_) => "ranked",
            HopKey::Object { .. } => "object",
            HopKey::Local => "local",
            HopKey::Blackhole => "blackhole",
            HopKey::Unreachable => "unreachable",
            HopKey::Prohibit => "prohibit",
            HopKey::Throw => "throw",
        }
    }

    /// Its gateway, if it is one path over a gateway.
    pub fn gateway(&self) -> Option<IpAddr> {
        self.path?.gateway
    }

    /// The link that all packets leave by at the moment, if it is one.
    pub fn link(&self) -> Option<u32> {
        let link = |member: &MemberRow| match member.exit {
            Exit::Adjacency(AdjacencyKey { link, .. }) => Some(link),
            Exit::ForwardingAction(_) => None,
        };
        let first = self.members.first().and_then(link);
        let own = self.path.and_then(|path| path.link);
        own.or_else(|| first.filter(|_| self.members.iter().all(|member| link(member) == first)))
    }
}

impl NextHops {
    /// A row for each next hop in use, in the order of their indices.
    pub fn rows(&self) -> impl Iterator<Item = HopRow<'_>> {
        self.used_entries().map(|(id, entry)| self.row_of(id, entry))
    }

    /// Key of each, and the number of its slots.
    pub fn keys(&self) -> impl Iterator<Item = (&HopKey, u32)> {
        self.used_entries()
            .map(|(_, entry)| (&*entry.key, entry.slots.map_or(0, |(_, slots)| slots)))
    }

    /// The row of one.
    pub fn row(&self, id: NextHopId) -> Option<HopRow<'_>> {
        Some(self.row_of(id, self.entry(id)?))
    }

    fn row_of<'a>(&self, id: NextHopId, entry: &'a Entry) -> HopRow<'a> {
        let mut members: Vec<MemberRow> = (entry.exits.iter().zip(&entry.content))
            .map(|(&(exit, _), &(action, weight))| MemberRow { exit, action, weight, slots: 0 })
            .collect();
        let (first, slots) = entry.slots.unwrap_or((0, 0));
        for slot in first..first + slots {
            let action = self.table.slot(slot);
            if let Some(member) = members.iter_mut().find(|member| member.action == action) {
                member.slots += 1;
            }
        }
        HopRow {
            id,
            key: &entry.key,
            attrs: entry.attrs,
            flags: entry.attrs.flags | flags(&entry.key, &members),
            refs: entry.refs,
            slots,
            shortened: entry.shortened,
            path: match &*entry.key {
                HopKey::Path(path) => Some(*path),
                HopKey::Ranked(paths) => paths.get(entry.needs.in_use).copied(),
                _ => None,
            },
            members,
        }
    }
}

/// The flags that follow from where packets go.
fn flags(key: &HopKey, members: &[MemberRow]) -> HopFlags {
    let gateway = key.paths().iter().any(|path| path.gateway.is_some())
        || matches!(key, HopKey::Object { .. })
            && members.iter().any(|member| {
                matches!(member.exit, Exit::Adjacency(AdjacencyKey { neighbor: Some(_), .. }))
            });
    let actions = |wanted: &[ForwardingAction]| {
        !members.is_empty() && members.iter().all(|member| wanted.contains(&member.action))
    };
    [
        (HopFlags::GATEWAY, gateway),
        (HopFlags::MULTIPATH, members.len() > 1 || matches!(key, HopKey::Group(_))),
        (HopFlags::BLACKHOLE, actions(&[ForwardingAction::Blackhole])),
        (HopFlags::REJECT, actions(&[ForwardingAction::Unreachable, ForwardingAction::Prohibit])),
    ]
    .into_iter()
    .fold(HopFlags::NONE, |flags, (flag, set)| if set { flags | flag } else { flags })
}
