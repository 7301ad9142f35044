//! Next-hop objects of a session: groups of groups are made flat, and objects that encapsulate packets are known.
//!
//! Zebra resolves recursive next hops itself and sends groups of plain objects, a group before its members; consumers
//! wish for the recursive form (SONiC#1425), in which a member may be a group. The control side takes flat groups, as the
//! kernel does. So a group is sent with the members of its members, by their shares, and again when one
//! of those changes.
//!
//! Cost: a lookup a member; for a change of a group that is a member itself, the groups that have it in them.
//! Limits: [`MOST`] objects, [`DEEPEST`] groups in one another, [`LARGEST`] members of members; shares are kept to 1 in
//! 65,536.

use std::cell::Cell;
use std::collections::{BTreeSet, HashMap};

use crate::event::{NextHopUpdate, ObjectTarget, RouteEvent};
use crate::netlink::nexthop::NextHop;
use crate::source::rtnetlink;

/// Most objects of a session: hundreds of thousands are unheard of, and each takes some hundred bytes.
pub(super) const MOST: usize = 1 << 20;
/// Most groups in one another.
const DEEPEST: usize = 8;
/// Most members of members that are looked at for one group.
const LARGEST: usize = 4_096;
/// Largest weight of a member of a flat group.
const HEAVIEST: u128 = 65_536;

/// Kind of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Shape {
    Single,
    /// It encapsulates packets, or is not for routes.
    Wraps,
    /// Members with weights from 1, of which some may be groups.
    Group(Vec<(u32, u32)>),
}

/// All objects of a session.
#[derive(Debug, Default)]
pub(super) struct Objects {
    all: HashMap<u32, Shape>,
    /// Groups that an object is a member of, also of one that is not there yet.
    users: HashMap<u32, BTreeSet<u32>>,
    /// Objects that encapsulate packets.
    wrapping: usize,
    /// Members and users that were looked at so far.
    pub(super) looks: Cell<usize>,
}

impl Objects {
    /// Takes an object and sends it, with the groups that it changes.
    ///
    /// # Errors
    /// Why it cannot be used.
    pub(super) fn put(
        &mut self,
        found: &NextHop<'_>,
        sink: &mut dyn FnMut(RouteEvent),
    ) -> Result<(), &'static str> {
        let id = found.id;
        if self.all.len() >= MOST && !self.has(id) {
            return Err("more objects than a session may have");
        }
        let Some(update) = rtnetlink::object(found) else {
            self.set(id, Some(Shape::Wraps));
            // Routes that it has stay, as zebra does not send them again when it changes back.
            sink(RouteEvent::NextHop(NextHopUpdate { id, target: ObjectTarget::Local }));
            return Err("its packets would be encapsulated");
        };
        let ObjectTarget::Group(members) = update.target else {
            let was_group = matches!(self.set(id, Some(Shape::Single)), Some(Shape::Group(_)));
            sink(RouteEvent::NextHop(update));
            if was_group {
                self.send_users(id, sink);
            }
            return Ok(());
        };
        self.set(id, Some(Shape::Group(members)));
        if !self.send(id, sink) {
            self.set(id, None);
            sink(RouteEvent::NextHopGone(id));
            return Err("a group that has itself or too many others in it");
        }
        self.send_users(id, sink);
        Ok(())
    }

    /// Removes an object.
    pub(super) fn remove(&mut self, id: u32) {
        self.set(id, None);
    }

    /// Whether there is an object of this number.
    pub(super) fn has(&self, id: u32) -> bool {
        self.all.contains_key(&id)
    }

    /// Whether packets can follow an object: it is there, and of a group so is a member.
    pub(super) fn leads(&self, id: u32) -> bool {
        self.any(id, &|object| self.all.get(&object) == Some(&Shape::Single))
    }

    /// Whether routes of this object would encapsulate packets.
    pub(super) fn wraps_packets(&self, id: u32) -> bool {
        self.wrapping > 0 && self.any(id, &|object| self.all.get(&object) == Some(&Shape::Wraps))
    }

    /// Whether this holds of an object, or of one that it leads to.
    fn any(&self, id: u32, holds: &dyn Fn(u32) -> bool) -> bool {
        let (mut next, mut at) = (vec![id], 0);
        while let Some(&object) = next.get(at) {
            if holds(object) {
                return true;
            }
            let more = members(self.all.get(&object)).iter().map(|&(member, _)| member);
            self.look(more.len());
            // A flat group is no larger than this.
            next.extend(more.take(LARGEST.saturating_sub(next.len())));
            at += 1;
        }
        false
    }

    /// Sets or removes an object; returns what it was.
    fn set(&mut self, id: u32, shape: Option<Shape>) -> Option<Shape> {
        let wraps = |shape: Option<&Shape>| usize::from(shape == Some(&Shape::Wraps));
        self.wrapping += wraps(shape.as_ref());
        let before = self.all.remove(&id);
        self.wrapping -= wraps(before.as_ref());
        for (member, _) in members(before.as_ref()) {
            // A member may be named twice.
            if let Some(users) = self.users.get_mut(member) {
                users.remove(&id);
                if users.is_empty() {
                    self.users.remove(member);
                }
            }
        }
        for &(member, _) in members(shape.as_ref()) {
            self.users.entry(member).or_default().insert(id);
        }
        if let Some(shape) = shape {
            self.all.insert(id, shape);
        }
        before
    }

    /// Sends a group as it is now; whether it can be made flat.
    fn send(&self, id: u32, sink: &mut dyn FnMut(RouteEvent)) -> bool {
        let Some(Shape::Group(members)) = self.all.get(&id) else { return true };
        let Some(flat) = self.flat(members, DEEPEST, &mut { LARGEST }) else { return false };
        let target = ObjectTarget::Group(flat);
        sink(RouteEvent::NextHop(NextHopUpdate { id, target }));
        true
    }

    /// Groups that have this object in them, at whatever depth, in order.
    pub(super) fn users(&self, id: u32) -> BTreeSet<u32> {
        let (mut found, mut next) = (BTreeSet::new(), vec![id]);
        while let Some(object) = next.pop() {
            let users = self.users.get(&object).into_iter().flatten().copied();
            let new: Vec<u32> =
                users.inspect(|_| self.look(1)).filter(|&user| found.insert(user)).collect();
            next.extend(new);
        }
        // What is in itself is refused when it is sent.
        found.remove(&id);
        found
    }

    /// Sends the groups again that have this one in them.
    fn send_users(&self, id: u32, sink: &mut dyn FnMut(RouteEvent)) {
        for user in self.users(id) {
            if !self.send(user, sink) {
                sink(RouteEvent::NextHopGone(user));
            }
        }
    }

    fn look(&self, count: usize) {
        self.looks.set(self.looks.get() + count);
    }

    /// The single objects of a group with their weights; `None` for a group that is in itself, or too large. Takes what is
    /// looked at from `room`.
    fn flat(
        &self,
        members: &[(u32, u32)],
        depth: usize,
        room: &mut usize,
    ) -> Option<Vec<(u32, u32)>> {
        *room = room.checked_sub(members.len())?;
        self.look(members.len());
        let is_group = |&(id, _): &(u32, u32)| matches!(self.all.get(&id), Some(Shape::Group(_)));
        if !members.iter().any(is_group) {
            return Some(members.to_vec());
        }
        // Each member with its parts and their sum.
        let mut parts = Vec::new();
        for &(id, weight) in members {
            let inner = match self.all.get(&id) {
                Some(Shape::Group(inner)) => self.flat(inner, depth.checked_sub(1)?, room)?,
                _ => vec![(id, 1)],
            };
            let sum: u64 = inner.iter().map(|&(_, weight)| u64::from(weight)).sum();
            parts.push((u64::from(weight), inner, sum.max(1)));
        }
        // Sums are at most some thousand times the heaviest, so 128 bits hold the products of usual groups; shares of
        // others are rounded.
        let common = parts.iter().fold(1_u128, |all, &(_, _, sum)| lcm(all, sum.into()));
        let mut flat: Vec<(u32, u128)> = Vec::new();
        for (weight, inner, sum) in parts {
            for (id, part) in inner {
                let share = u128::from(weight) * u128::from(part) * (common / u128::from(sum));
                match flat.iter_mut().find(|(known, _)| *known == id) {
                    Some((_, all)) => *all += share,
                    None => flat.push((id, share)),
                }
            }
        }
        let divisor = flat.iter().fold(0, |all, &(_, share)| gcd(all, share)).max(1);
        let heaviest = flat.iter().map(|&(_, share)| share / divisor).max().unwrap_or(1);
        let divisor = divisor * heaviest.div_ceil(HEAVIEST).max(1);
        let scaled = |share: u128| {
            u32::try_from((share / divisor).max(1)).expect("at most the heaviest that is allowed")
        };
        Some(flat.into_iter().map(|(id, share)| (id, scaled(share))).collect())
    }
}

fn members(shape: Option<&Shape>) -> &[(u32, u32)] {
    match shape {
        Some(Shape::Group(members)) => members,
        _ => &[],
    }
}

fn gcd(a: u128, b: u128) -> u128 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// The least common multiple, kept below 2^80: a larger one is the larger of both.
fn lcm(a: u128, b: u128) -> u128 {
    let least = a / gcd(a, b) * b;
    if least >> 80 == 0 { least } else { a.max(b) }
}
