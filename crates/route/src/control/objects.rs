//! Next-hop objects of all sources: what each leads to, and since when.
//!
//! Source: the kernel's next-hop objects (net/ipv4/nexthop.c), which routes name by number. A route keeps nothing but
//! that number, so its paths are looked up here whenever it is shown.

use std::collections::{BTreeSet, HashMap, HashSet};

use super::action::Done;
use super::journal::{Happened, Journal};
use crate::event::{ObjectTarget, Path};
use crate::nexthop::NextHops;

/// An object as its source announced it last.
#[derive(Debug)]
struct Object {
    target: ObjectTarget,
    /// Number of the notice of it.
    since: u64,
}

/// The next-hop objects of all sources.
#[derive(Debug, Default)]
pub(super) struct Objects {
    all: HashMap<(u16, u32), Object>,
    /// Objects that changed since the next hops that depend on them were resolved.
    stale: BTreeSet<(u16, u32)>,
}

/// A next-hop object with the paths that it leads to, its members included.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ObjectView {
    /// It has members: its source made it a group.
    pub group: bool,
    /// It drops packets.
    pub blackhole: bool,
    /// Its packets are for the host.
    pub local: bool,
    /// Its paths; members that were not announced have none.
    pub paths: Box<[ObjectPath]>,
    /// Number of the notice since which all of this holds.
    pub since: u64,
}

/// One path of a next-hop object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ObjectPath {
    /// Number of the object that is this path: a member of a group, or the object itself.
    pub object: u32,
    /// Gateway, link and the weight in the group.
    pub path: Path,
}

impl Objects {
    /// Whether the source has any.
    pub(super) fn any(&self, source: u16) -> bool {
        self.all.keys().any(|(of, _)| *of == source)
    }

    pub(super) fn get(&self, source: u16, id: u32) -> Option<&ObjectTarget> {
        self.all.get(&(source, id)).map(|object| &object.target)
    }

    /// The source's objects that are not in `seen`.
    pub(super) fn missing(&self, source: u16, seen: &HashSet<u32>) -> Vec<u32> {
        self.all.keys().filter(|(s, id)| *s == source && !seen.contains(id)).map(|k| k.1).collect()
    }

    /// What an object leads to, if it was announced.
    fn view(&self, source: u16, id: u32) -> Option<ObjectView> {
        let Object { target, since } = self.all.get(&(source, id))?;
        let mut view = ObjectView {
            group: matches!(target, ObjectTarget::Group(_)),
            blackhole: *target == ObjectTarget::Blackhole,
            local: *target == ObjectTarget::Local,
            paths: Box::default(),
            since: *since,
        };
        view.paths = match target {
            ObjectTarget::Path(path) => [ObjectPath { object: id, path: *path }].into(),
            ObjectTarget::Blackhole | ObjectTarget::Local => Box::default(),
            ObjectTarget::Group(members) => {
                let member = |&(object, weight): &(u32, u32)| {
                    let member = self.all.get(&(source, object))?;
                    view.since = view.since.max(member.since);
                    match member.target {
                        ObjectTarget::Path(path) => {
                            Some(ObjectPath { object, path: Path { weight, ..path } })
                        }
                        // The kernel has such a member only alone.
                        ObjectTarget::Blackhole => {
                            view.blackhole = true;
                            None
                        }
                        ObjectTarget::Local => {
                            view.local = true;
                            None
                        }
                        // Refused when it was announced.
                        ObjectTarget::Group(_) => None,
                    }
                };
                members.iter().filter_map(member).collect()
            }
        };
        Some(view)
    }

    /// Takes an object as its source announced it; a change is a notice.
    pub(super) fn put(
        &mut self,
        source: u16,
        id: u32,
        target: ObjectTarget,
        journal: &mut Journal,
    ) {
        self.stale.insert((source, id));
        if self.get(source, id) == Some(&target) {
            return;
        }
        let old = self.view(source, id).map(Box::new);
        let since = journal.sequence() + 1;
        self.all.insert((source, id), Object { target, since });
        let new = self.view(source, id).map(Box::new);
        let done = if old.is_some() { Done::Changed } else { Done::Added };
        journal.note(Happened::Object { done, source, id, old, new });
    }

    /// Removes an object, which is a notice if there was one.
    pub(super) fn remove(&mut self, source: u16, id: u32, journal: &mut Journal) {
        self.stale.insert((source, id));
        let old = self.view(source, id).map(Box::new);
        if self.all.remove(&(source, id)).is_some() {
            journal.note(Happened::Object { done: Done::Deleted, source, id, old, new: None });
        }
    }

    /// Whether objects changed since the next hops that depend on them were resolved.
    pub(super) fn is_stale(&self) -> bool {
        !self.stale.is_empty()
    }

    /// Objects that changed since the last call.
    pub(super) fn take_stale(&mut self) -> BTreeSet<(u16, u32)> {
        std::mem::take(&mut self.stale)
    }
}

/// Next hops together with the objects that they name, for showing.
#[derive(Clone, Copy)]
pub struct HopView<'a> {
    /// Next hops and groups.
    pub hops: &'a NextHops,
    objects: &'a Objects,
}

impl<'a> HopView<'a> {
    pub(super) fn new(hops: &'a NextHops, objects: &'a Objects) -> Self {
        Self { hops, objects }
    }

    /// What an object of a source leads to, if it was announced.
    pub fn object(&self, source: u16, id: u32) -> Option<ObjectView> {
        self.objects.view(source, id)
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::super::tests::{LEFT, Lab, RIGHT, lab, up};
    use super::*;
    use crate::control::{Notice, Takeover};
    use crate::event::{LinkState, LinkUpdate, NextHopUpdate, RouteEvent, Target};
    use crate::nexthop::HopKey;

    const KERNEL: u16 = 2;

    fn path(gateway: &str, link: u32) -> Path {
        Path { gateway: Some(gateway.parse().unwrap()), link: Some(link), weight: 1 }
    }

    fn put(lab: &mut Lab, id: u32, target: ObjectTarget) {
        lab.event(RouteEvent::NextHop(NextHopUpdate { id, target }));
    }

    fn notices(lab: &Lab, since: u64) -> Vec<Notice> {
        lab.control.notices(since).unwrap().cloned().collect()
    }

    #[test]
    fn an_object_is_shown_with_its_members_and_since_when() {
        let mut lab = lab();
        put(&mut lab, 1, ObjectTarget::Path(path("10.0.1.9", LEFT)));
        put(&mut lab, 3, ObjectTarget::Group(vec![(1, 2), (2, 3)]));
        let view = |lab: &Lab, id| lab.control.hop_view().object(KERNEL, id);
        let member = |object, path, weight| ObjectPath { object, path: Path { weight, ..path } };
        let left = member(1, path("10.0.1.9", LEFT), 2);
        assert_eq!(*view(&lab, 3).unwrap().paths, [left], "one member is not known yet");
        put(&mut lab, 2, ObjectTarget::Path(path("10.0.2.9", RIGHT)));
        let (group, right) = (view(&lab, 3).unwrap(), member(2, path("10.0.2.9", RIGHT), 3));
        assert_eq!(*group.paths, [left, right]);
        assert!(group.group && !group.blackhole);
        assert_eq!(group.since, lab.control.sequence(), "the member is part of it");
        put(&mut lab, 4, ObjectTarget::Blackhole);
        let hole = view(&lab, 4).unwrap();
        assert!(hole.blackhole && !hole.group && hole.paths.is_empty());
        assert_eq!((view(&lab, 3).unwrap(), view(&lab, 9)), (group, None));
        assert_eq!(lab.control.hop_view().object(KERNEL + 1, 1), None, "of another source");
    }

    #[test]
    fn changes_of_objects_are_notices_with_the_time() {
        let mut lab = lab();
        let since = lab.control.sequence();
        let time = UNIX_EPOCH + Duration::from_millis(1_700_000_000_123);
        lab.control.set_time(time);
        put(&mut lab, 1, ObjectTarget::Path(path("10.0.1.9", LEFT)));
        put(&mut lab, 1, ObjectTarget::Path(path("10.0.1.9", LEFT)));
        lab.route("192.0.2.0/24", Target::Object(1));
        put(&mut lab, 1, ObjectTarget::Path(path("10.0.2.9", RIGHT)));
        lab.event(RouteEvent::NextHopGone(1));
        lab.event(RouteEvent::NextHopGone(1));
        lab.commit();
        let seen = notices(&lab, since);
        assert!(seen.iter().all(|notice| notice.time() == time));
        let objects: Vec<_> = (seen.iter())
            .filter_map(|notice| match &notice.what {
                Happened::Object { done, source: KERNEL, id: 1, old, new } => {
                    let of = |view: &Option<Box<ObjectView>>| {
                        view.as_ref().map(|view| view.paths[0].path)
                    };
                    Some((*done, of(old), of(new)))
                }
                _ => None,
            })
            .collect();
        let (left, right) = (Some(path("10.0.1.9", LEFT)), Some(path("10.0.2.9", RIGHT)));
        assert_eq!(
            objects,
            [(Done::Added, None, left), (Done::Changed, left, right), (Done::Deleted, right, None)]
        );
        // Its route names it by number, and went with it.
        let key = HopKey::Object { source: KERNEL, id: 1 };
        let is_of = |notice: &&Notice| {
            matches!(&notice.what, Happened::Route { old, new, .. }
            if old.as_deref().or(new.as_deref()) == Some(&key))
        };
        assert_eq!(seen.iter().filter(is_of).count(), 2);
    }

    #[test]
    fn links_and_takeovers_are_notices() {
        let mut lab = lab();
        let since = lab.control.sequence();
        lab.link(LEFT, up("left"));
        // Nothing that is shown.
        lab.link(LEFT, LinkState { kind: "veth".into(), ..up("left") });
        lab.link(LEFT, LinkState { up: false, ..up("left") });
        lab.control.note_interface("left", Takeover::Closed, "", "down");
        lab.event(RouteEvent::Link(LinkUpdate { link: LEFT, state: None }));
        lab.link(9, up("new"));
        let links: Vec<_> = (notices(&lab, since).iter())
            .filter_map(|notice| match &notice.what {
                Happened::Link { done, name, up, .. } => Some((*done, name.to_string(), *up)),
                Happened::Interface { name, takeover: Takeover::Closed, .. } => {
                    Some((Done::Changed, format!("{name} closed"), false))
                }
                _ => None,
            })
            .collect();
        let left = || "left".to_owned();
        let want = [
            (Done::Changed, left(), false),
            (Done::Changed, left() + " closed", false),
            (Done::Deleted, left(), false),
            (Done::Added, "new".to_owned(), true),
        ];
        assert_eq!(links, want);
    }
}
