//! Checks of a requested next hop, before anything changes.
//!
//! Events of sources come in any order, so what they name may come later and leads nowhere until then.
//! A request of a user fails at once instead.

use std::collections::HashSet;
use std::net::IpAddr;

use fingerpost_lpm::UpdateError;

use super::key::HopKey;
use super::resolve::{MAX_DEPTH, Resolver};
use super::{MAX_MEMBERS, MAX_WEIGHT, NextHops};
use crate::event::{AnyPrefix, MAIN_TABLE, ObjectTarget, Path};
use crate::group::{GroupMode, MAX_SLOTS};

/// Why a next hop is refused. Nothing was changed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HopError {
    /// A path with neither gateway nor link.
    #[error("a path needs a gateway or a device")]
    EmptyPath,
    /// Packets of an IPv6 route cannot be sent to an IPv4 gateway; the reverse is possible (RFC 8950).
    #[error("gateway {gateway} is out of family: an IPv6 route needs an IPv6 gateway")]
    Family {
        /// The IPv4 gateway.
        gateway: IpAddr,
    },
    /// No such link.
    #[error("device {link} is not known")]
    UnknownLink {
        /// Its kernel index.
        link: u32,
    },
    /// No route leads to a gateway that has no link.
    #[error("gateway {gateway}: no route to it in table {table}")]
    NoRoute {
        /// The gateway.
        gateway: IpAddr,
        /// The route table that was searched.
        table: u32,
    },
    /// The route to a gateway leads back to that gateway.
    #[error("gateway {gateway} is reached through itself")]
    Loop {
        /// The gateway.
        gateway: IpAddr,
    },
    /// Too many routes from gateway to gateway.
    #[error("gateway {gateway} is more than {max} routes away")]
    Depth {
        /// The one where it was given up.
        gateway: IpAddr,
        /// Most.
        max: usize,
    },
    /// No object of this number was announced.
    #[error("next hop {id} is not known")]
    UnknownObject {
        /// The number.
        id: u32,
    },
    /// A member of a group is a group, or the group itself.
    #[error("next hop {group}: member {member} is a group itself")]
    GroupOfGroups {
        /// The group.
        group: u32,
        /// Its member.
        member: u32,
    },
    /// Every link carries packets of some size.
    #[error("an MTU of {mtu} bytes is too small: at least {min} are needed")]
    Mtu {
        /// The requested MTU.
        mtu: u16,
        /// The least of the family ([`AnyPrefix::min_mtu`]).
        min: u16,
    },
    /// A group without members.
    #[error("a group needs members")]
    NoMembers,
    /// Too many members.
    #[error("group has {got} members, at most {max}")]
    Members {
        /// Most.
        max: usize,
        /// How many there are.
        got: usize,
    },
    /// A weight beyond 16 bits.
    #[error("weight {weight} of member {member} is over {max}")]
    Weight {
        /// Which, from 1.
        member: usize,
        /// Its weight.
        weight: u32,
        /// Most.
        max: u32,
    },
    /// A member that is there already.
    #[error("member {member} is in the group twice")]
    Twice {
        /// The second one, from 1.
        member: usize,
    },
    /// There is no room for one more.
    #[error("{0}")]
    Room(#[from] UpdateError),
}

impl HopError {
    /// A word for programs, the same in all versions.
    pub fn code(&self) -> &'static str {
        match self {
            Self::EmptyPath => "empty-path",
            Self::Family { .. } => "gateway-family",
            Self::UnknownLink { .. } => "no-such-interface",
            Self::NoRoute { .. } => "gateway-unreachable",
            Self::Loop { .. } => "gateway-loop",
            Self::Depth { .. } => "gateway-too-deep",
            Self::UnknownObject { .. } => "no-such-next-hop",
            Self::GroupOfGroups { .. } => "group-of-groups",
            Self::NoMembers => "no-members",
            Self::Members { .. } => "too-many-members",
            Self::Weight { .. } => "weight-too-large",
            Self::Twice { .. } => "exists",
            Self::Mtu { .. } => "mtu-too-small",
            Self::Room(_) => "table-full",
        }
    }
}

impl NextHops {
    /// Whether a route can name `key`; `at` is the table and prefix of that route, which is taken as there
    /// already where a gateway is looked for.
    ///
    /// # Errors
    /// The first thing that is wrong: of the paths themselves, of what they name, or room.
    pub fn check(
        &self,
        key: &HopKey,
        at: Option<(u32, AnyPrefix)>,
        resolver: &dyn Resolver,
    ) -> Result<(), HopError> {
        let check = Check { hops: self, at, resolver };
        self.check_shape(key)?;
        check.known(key)?;
        check.follow(key, &mut Vec::new(), &mut HashSet::new())?;
        if self.by_key.contains_key(key) { Ok(()) } else { Ok(self.has_room()?) }
    }

    /// Whether a next-hop object can become this.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn check_object(
        &self,
        source: u16,
        id: u32,
        target: &ObjectTarget,
        resolver: &dyn Resolver,
    ) -> Result<(), HopError> {
        let check = Check { hops: self, at: None, resolver };
        match target {
            ObjectTarget::Blackhole | ObjectTarget::Local => Ok(()),
            ObjectTarget::Path(path) => {
                let key = HopKey::Path(*path);
                check.known(&key)?;
                check.follow(&key, &mut Vec::new(), &mut HashSet::new())
            }
            ObjectTarget::Group(members) => check.members(source, id, members),
        }
    }

    /// Whether the paths of `key` can be those of a route to `prefix`.
    ///
    /// # Errors
    /// [`HopError::Family`].
    pub fn check_family(key: &HopKey, prefix: AnyPrefix) -> Result<(), HopError> {
        key.paths().iter().try_for_each(|path| fits(prefix, path))
    }

    /// Whether a route to `prefix` can have this MTU; 0 stands for none.
    ///
    /// # Errors
    /// [`HopError::Mtu`].
    pub fn check_mtu(mtu: u16, prefix: AnyPrefix) -> Result<(), HopError> {
        let min = prefix.min_mtu();
        if (1..min).contains(&mtu) { Err(HopError::Mtu { mtu, min }) } else { Ok(()) }
    }

    /// Checks without a resolver: each path leads somewhere, none is there twice, and neither
    /// weights nor members are too many.
    pub(super) fn check_shape(&self, key: &HopKey) -> Result<(), HopError> {
        if key.paths().iter().any(|path| path.gateway.is_none() && path.link.is_none()) {
            return Err(HopError::EmptyPath);
        }
        let HopKey::Group(paths) = key else { return Ok(()) };
        self.check_size(paths.len(), paths.iter().map(|path| path.weight))?;
        let mut seen = HashSet::new();
        match paths.iter().position(|path| !seen.insert((path.gateway, path.link))) {
            Some(at) => Err(HopError::Twice { member: at + 1 }),
            None => Ok(()),
        }
    }

    fn check_size(&self, got: usize, weights: impl Iterator<Item = u32>) -> Result<(), HopError> {
        let max = match self.mode {
            GroupMode::Slots => MAX_SLOTS as usize,
            GroupMode::Resilient => MAX_MEMBERS,
        };
        if got > max {
            return Err(HopError::Members { max, got });
        }
        for (at, weight) in weights.enumerate() {
            if weight > MAX_WEIGHT {
                return Err(HopError::Weight { member: at + 1, weight, max: MAX_WEIGHT });
            }
        }
        Ok(())
    }
}

/// Whether a route to `prefix` can have this path.
fn fits(prefix: AnyPrefix, path: &Path) -> Result<(), HopError> {
    match (prefix, path.gateway) {
        (AnyPrefix::V6(_), Some(gateway @ IpAddr::V4(_))) => Err(HopError::Family { gateway }),
        _ => Ok(()),
    }
}

struct Check<'a> {
    hops: &'a NextHops,
    at: Option<(u32, AnyPrefix)>,
    resolver: &'a dyn Resolver,
}

impl Check<'_> {
    /// Links and objects are there.
    fn known(&self, key: &HopKey) -> Result<(), HopError> {
        for path in key.paths() {
            self.path(path)?;
        }
        let HopKey::Object { source, id } = *key else { return Ok(()) };
        match self.resolver.object(source, id) {
            None => Err(HopError::UnknownObject { id }),
            Some(ObjectTarget::Path(path)) => self.path(path),
            Some(ObjectTarget::Group(members)) => self.members(source, id, members),
            Some(ObjectTarget::Blackhole | ObjectTarget::Local) => Ok(()),
        }
    }

    fn path(&self, path: &Path) -> Result<(), HopError> {
        match (path.gateway, path.link) {
            (None, None) => return Err(HopError::EmptyPath),
            (_, Some(link)) if !self.resolver.has_link(link) => {
                return Err(HopError::UnknownLink { link });
            }
            _ => {}
        }
        self.at.map_or(Ok(()), |(_, prefix)| fits(prefix, path))
    }

    fn members(&self, source: u16, group: u32, members: &[(u32, u32)]) -> Result<(), HopError> {
        if members.is_empty() {
            return Err(HopError::NoMembers);
        }
        self.hops.check_size(members.len(), members.iter().map(|&(_, weight)| weight))?;
        let mut seen = HashSet::new();
        for (at, &(member, _)) in members.iter().enumerate() {
            if !seen.insert(member) {
                return Err(HopError::Twice { member: at + 1 });
            }
            match self.resolver.object(source, member) {
                _ if member == group => return Err(HopError::GroupOfGroups { group, member }),
                None => return Err(HopError::UnknownObject { id: member }),
                Some(ObjectTarget::Group(_)) => {
                    return Err(HopError::GroupOfGroups { group, member });
                }
                Some(ObjectTarget::Path(path)) => self.path(path)?,
                Some(ObjectTarget::Blackhole | ObjectTarget::Local) => {}
            }
        }
        Ok(())
    }

    /// Follows the routes of gateways; `above` are those that lead here, `done` those that are well.
    fn follow(
        &self,
        key: &HopKey,
        above: &mut Vec<IpAddr>,
        done: &mut HashSet<IpAddr>,
    ) -> Result<(), HopError> {
        for path in self.paths(key) {
            let (Some(gateway), None) = (path.gateway, path.link) else { continue };
            if above.contains(&gateway) {
                return Err(HopError::Loop { gateway });
            }
            if done.contains(&gateway) {
                continue;
            }
            if above.len() >= MAX_DEPTH {
                return Err(HopError::Depth { gateway, max: MAX_DEPTH });
            }
            let table = self.at.map_or(MAIN_TABLE, |at| at.0);
            let found = self.resolver.route(table, gateway);
            let by_itself = self.at.is_some_and(|(_, prefix)| {
                let shorter = found.is_none_or(|found| found.prefix.len() <= prefix.len());
                super::covers(prefix, gateway) && shorter
            });
            if by_itself {
                return Err(HopError::Loop { gateway });
            }
            let found = found.ok_or(HopError::NoRoute { gateway, table })?;
            if let Some(key) = self.hops.key(found.hop) {
                above.push(gateway);
                self.follow(key, above, done)?;
                above.pop();
            }
            done.insert(gateway);
        }
        Ok(())
    }

    /// The paths of a key, also of an object and of its members.
    fn paths(&self, key: &HopKey) -> Vec<Path> {
        let HopKey::Object { source, id } = *key else { return key.paths().to_vec() };
        let path = |target: Option<&ObjectTarget>| match target {
            Some(ObjectTarget::Path(path)) => Some(*path),
            _ => None,
        };
        match self.resolver.object(source, id) {
            Some(ObjectTarget::Group(members)) => members
                .iter()
                .filter_map(|&(id, _)| path(self.resolver.object(source, id)))
                .collect(),
            other => path(other).into_iter().collect(),
        }
    }
}
