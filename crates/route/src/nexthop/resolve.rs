//! Resolution of what a route names to what its packets leave by: links, objects and routes to gateways are
//! followed up to the adjacencies.
//!
//! A path without a link is resolved by the route to its gateway, whatever that names; a member of a group
//! that leads to several exits divides its share among them. What leads back to itself leads nowhere.
//! Of alternatives the first one counts by which packets leave; those behind it are not followed.
//! Everything that was followed is noted, so that a change of any of it resolves the entry again.

use std::collections::BTreeMap;
use std::net::IpAddr;

use fingerpost_lpm::NextHopId;

use super::NextHops;
use super::key::{AdjacencyKey, Exit, HopAttrs, HopKey};
use crate::event::{AnyPrefix, ObjectTarget, Path};
use crate::hops::{Adjacency, ForwardingAction};
use crate::mtu::{RouteMtu, narrower};

/// How deep recursive gateways and nested groups are followed.
pub(super) const MAX_DEPTH: usize = 8;
/// Most paths that are followed for one entry: groups of groups of groups can be large without a loop.
const MAX_STEPS: u32 = 16_384;
/// Weights of contents: finer ones are rounded. FreeBSD's bound.
const FINEST: u64 = (1 << 24) - 1;

/// What the control side provides for the resolution of next hops.
pub trait Resolver {
    /// What packets of a path leave by whose link is known. `None` when the link is down or gone.
    fn exit(&self, gateway: Option<IpAddr>, link: u32) -> Option<Exit>;
    /// Adjacency of a neighbor, unresolved while its link address is not known.
    fn adjacency(&self, key: AdjacencyKey) -> Adjacency;
    /// Whether there is such a link, up or down.
    fn has_link(&self, link: u32) -> bool;
    /// The best route of a table to a gateway, for a path without a link.
    fn route(&self, table: u32, gateway: IpAddr) -> Option<Found>;
    /// Target of an object of a source, if it was announced.
    fn object(&self, source: u16, id: u32) -> Option<&ObjectTarget>;
}

/// A route to a gateway.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Found {
    /// Its prefix.
    pub prefix: AnyPrefix,
    /// What it names.
    pub hop: NextHopId,
}

/// What the content of an entry was resolved from.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Needs {
    /// Sorted, as the next ones are.
    pub(super) links: Vec<u32>,
    pub(super) objects: Vec<(u16, u32)>,
    /// Gateways, each with its table, and what was found.
    pub(super) gateways: BTreeMap<(IpAddr, u32), Option<Found>>,
    /// Which of its own alternatives is in use.
    pub(super) in_use: usize,
}

type Exits = Vec<(Exit, u64)>;

/// The exits of an entry, sorted, each once, and what they depend on.
pub(super) fn resolve(
    hops: &NextHops,
    key: &HopKey,
    attrs: HopAttrs,
    resolver: &dyn Resolver,
) -> (Vec<(Exit, u32)>, Needs) {
    let mut walk = Walk {
        hops,
        table: attrs.table,
        mtu: attrs.mtu,
        resolver,
        needs: Needs::default(),
        above: Vec::new(),
        steps: MAX_STEPS,
    };
    let exits = walk.key(key, None);
    let mut needs = walk.needs;
    needs.links.sort_unstable();
    needs.links.dedup();
    needs.objects.sort_unstable();
    needs.objects.dedup();
    (settle(exits), needs)
}

struct Walk<'a> {
    hops: &'a NextHops,
    /// Table of routes to gateways.
    table: u32,
    /// Largest packet that the routes followed so far allow.
    mtu: u16,
    resolver: &'a dyn Resolver,
    needs: Needs,
    /// The keys that are being followed, the outermost first.
    above: Vec<HopKey>,
    steps: u32,
}

impl Walk<'_> {
    /// `via` is the gateway whose route names the key: where that is on a link, the neighbor.
    fn key(&mut self, key: &HopKey, via: Option<IpAddr>) -> Exits {
        if self.above.len() >= MAX_DEPTH || self.above.contains(key) {
            return Vec::new();
        }
        match key {
            HopKey::Local => return action(ForwardingAction::Local),
            HopKey::Blackhole => return action(ForwardingAction::Blackhole),
            HopKey::Unreachable => return action(ForwardingAction::Unreachable),
            HopKey::Prohibit => return action(ForwardingAction::Prohibit),
            HopKey::Throw => return action(ForwardingAction::NoRoute),
            HopKey::Path(_) | HopKey::Group(_) | HopKey::Ranked(_) | HopKey::Object { .. } => {}
        }
        self.above.push(key.clone());
        let exits = match key {
            HopKey::Object { source, id } => self.object(*source, *id, via),
            HopKey::Ranked(paths) => self.first_of(paths, via),
            _ => {
                let paths = key.paths();
                combine(paths.iter().map(|path| (path.weight, self.path(path, via))).collect())
            }
        };
        self.above.pop();
        exits
    }

    /// The exits of the first path that packets leave by; where there is none, of the first one with a verdict.
    fn first_of(&mut self, paths: &[Path], via: Option<IpAddr>) -> Exits {
        let mut verdict = Exits::new();
        for (at, path) in paths.iter().enumerate() {
            let exits = self.path(path, via);
            if exits.iter().any(|(exit, _)| leads_out(exit)) {
                if self.above.len() == 1 {
                    self.needs.in_use = at;
                }
                return exits;
            }
            if verdict.is_empty() {
                verdict = exits;
            }
        }
        verdict
    }

    fn object(&mut self, source: u16, id: u32, via: Option<IpAddr>) -> Exits {
        self.needs.objects.push((source, id));
        match self.resolver.object(source, id) {
            Some(ObjectTarget::Path(path)) => self.path(path, via),
            Some(ObjectTarget::Group(members)) => {
                let mut member = |id| self.key(&HopKey::Object { source, id }, via);
                combine(members.iter().map(|&(id, weight)| (weight, member(id))).collect())
            }
            Some(ObjectTarget::Blackhole) => action(ForwardingAction::Blackhole),
            Some(ObjectTarget::Local) => action(ForwardingAction::Local),
            None => Vec::new(),
        }
    }

    fn path(&mut self, path: &Path, via: Option<IpAddr>) -> Exits {
        let Some(steps) = self.steps.checked_sub(1) else { return Vec::new() };
        self.steps = steps;
        if let Some(link) = path.link {
            return self.link(path.gateway.or(via), link);
        }
        let Some(gateway) = path.gateway else { return Vec::new() };
        let table = self.table;
        let found = self.resolver.route(table, gateway);
        self.needs.gateways.insert((gateway, table), found);
        let hops = self.hops;
        // A route whose object is gone leads nowhere, also when there is another object of that number.
        let found = found.filter(|found| !hops.is_orphan(found.hop));
        let Some((key, attrs)) = found.and_then(|f| hops.key(f.hop).zip(hops.attrs(f.hop))) else {
            return Vec::new();
        };
        // The MTU of the route to the gateway is a limit for this route.
        let mtu = narrower(self.mtu, attrs.mtu);
        let own = std::mem::replace(&mut self.mtu, mtu);
        let exits = self.key(key, Some(gateway));
        self.mtu = own;
        exits
    }

    fn link(&mut self, gateway: Option<IpAddr>, link: u32) -> Exits {
        self.needs.links.push(link);
        match self.resolver.exit(gateway, link) {
            Some(Exit::Adjacency(key)) => {
                let mtu = narrower(self.mtu, key.mtu);
                vec![(Exit::Adjacency(AdjacencyKey { mtu, ..key }), 1)]
            }
            Some(Exit::ForwardingAction(ForwardingAction::Vrf(port, _))) => {
                action(ForwardingAction::Vrf(port, RouteMtu::of(self.mtu)))
            }
            Some(exit) => vec![(exit, 1)],
            None => Vec::new(),
        }
    }
}

fn leads_out(exit: &Exit) -> bool {
    match exit {
        Exit::Adjacency(_) => true,
        Exit::ForwardingAction(action) => {
            matches!(
                action,
                ForwardingAction::Glean(_) | ForwardingAction::Local | ForwardingAction::Vrf(..)
            )
        }
    }
}

fn action(action: ForwardingAction) -> Exits {
    vec![(Exit::ForwardingAction(action), 1)]
}

/// The exits of several parts by weight: each part's share goes to its exits by theirs. Parts without an
/// exit have no share.
fn combine(mut parts: Vec<(u32, Exits)>) -> Exits {
    parts.retain(|(_, exits)| !exits.is_empty());
    if let [(_, exits)] = &mut parts[..] {
        return std::mem::take(exits);
    }
    let total = |exits: &Exits| exits.iter().map(|&(_, weight)| weight).sum::<u64>();
    // What all the totals divide, so that shares stay whole; rounded where that is too much.
    let whole = parts.iter().fold(1, |whole, (_, exits)| {
        let total = total(exits);
        (whole / gcd(whole, total)).saturating_mul(total).min(FINEST)
    });
    let mut all = Vec::new();
    for (weight, exits) in parts {
        let total = total(&exits);
        let weight = u128::from(weight.clamp(1, super::MAX_WEIGHT));
        all.extend(exits.into_iter().map(|(exit, share)| {
            let share = weight * u128::from(share) * u128::from(whole) / u128::from(total);
            (exit, u64::try_from(share).expect("at most the weight in whole parts").max(1))
        }));
    }
    if whole > 1 { reduce(all) } else { all }
}

/// Equal proportions in small numbers.
fn reduce(mut exits: Exits) -> Exits {
    let divisor = exits.iter().fold(0, |divisor, &(_, weight)| gcd(divisor, weight)).max(1);
    let greatest = exits.iter().map(|&(_, weight)| weight / divisor).max().unwrap_or(1);
    let rounding = greatest.div_ceil(FINEST).max(1);
    for (_, weight) in &mut exits {
        *weight = (*weight / divisor / rounding).max(1);
    }
    exits
}

/// Sorts exits, so that equal contents are equal lists, and each exit once.
fn settle(mut exits: Exits) -> Vec<(Exit, u32)> {
    exits.sort_unstable();
    exits.dedup_by(|b, a| {
        let same = a.0 == b.0;
        if same {
            a.1 = a.1.saturating_add(b.1);
        }
        same
    });
    if exits.iter().any(|&(_, weight)| weight > FINEST) {
        exits = reduce(exits);
    }
    let small = |weight| u32::try_from(weight).expect("weights have 24 bits");
    exits.into_iter().map(|(exit, weight)| (exit, small(weight))).collect()
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    fn exits(list: &[(u16, u64)]) -> Exits {
        list.iter()
            .map(|&(port, weight)| (Exit::ForwardingAction(ForwardingAction::Glean(port)), weight))
            .collect()
    }

    #[test]
    fn a_member_divides_its_share_among_its_exits() {
        // Half to 1; the other half to 2 and 3, evenly.
        let parts = vec![(1, exits(&[(1, 1)])), (1, exits(&[(2, 1), (3, 1)]))];
        assert_eq!(combine(parts), exits(&[(1, 2), (2, 1), (3, 1)]));
        // Thirds of a quarter, and the rest; one that has no exit does not count.
        let parts = vec![
            (1, exits(&[(1, 1), (2, 1), (3, 1)])),
            (7, exits(&[])),
            (3, exits(&[(4, 9), (5, 3)])),
        ];
        assert_eq!(combine(parts), exits(&[(1, 4), (2, 4), (3, 4), (4, 27), (5, 9)]));
        // Plain weights stay as they are.
        let parts = vec![(200, exits(&[(1, 1)])), (400, exits(&[(2, 1)]))];
        assert_eq!(combine(parts), exits(&[(1, 200), (2, 400)]));
        assert_eq!(combine(vec![]), exits(&[]));
    }

    #[test]
    fn proportions_survive_great_numbers() {
        let primes = [4093, 4091, 4079, 4073, 4057];
        let parts = primes.iter().map(|&p| (65_535, exits(&[(1, p - 1), (2, 1)]))).collect();
        let settled = settle(combine(parts));
        let [(_, most), (_, least)] = settled[..] else { panic!("{settled:?}") };
        let ratio = f64::from(most) / f64::from(least);
        assert!((4070.0..4090.0).contains(&ratio), "{settled:?}");
    }

    #[test]
    fn equal_exits_are_one() {
        let settled = settle(exits(&[(2, 1), (1, 3), (2, 4)]));
        let want = [(1, 3), (2, 5)]
            .map(|(port, weight)| (Exit::ForwardingAction(ForwardingAction::Glean(port)), weight));
        assert_eq!(settled, want);
    }
}
