//! Routes of equal key: the kernel keeps several of one prefix and metric, in order, and uses the
//! first. Two links in one prefix are enough for that.
//!
//! A source can announce one route a key, so the others are kept here: only the keys that have several,
//! and the IPv6 routes with several hops, of which one hop may be deleted by itself. A route that was
//! announced before its key had several is not stored anywhere; it is the entry `None`.

use std::collections::HashMap;

use crate::event::{Path, RouteKey, Target};
use crate::mtu::narrower;
use crate::source::rtnetlink::Body;

/// Consequence for the consumer of the key's route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// Announce this as the key's route.
    Announce(Body),
    /// Announce it, as known before the present dump, which must confirm it.
    Assume(Body),
    /// Nothing changes.
    Keep,
    /// It has none any more.
    Gone,
    /// Only a new dump can resolve it.
    Redump,
}

/// Where the kernel put a new route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Put {
    /// Alone: there are no others.
    Alone,
    /// It is before the others.
    Before,
    /// It replaces one.
    Instead,
    /// It is behind the others.
    Behind,
    /// It was there: some detail changed.
    There,
}

#[derive(Debug)]
struct List {
    /// The dump that confirmed all of it, or during which it was made.
    dump: u32,
    /// An IPv6 route of several hops is among them, of which one may be deleted by itself.
    several: bool,
    entries: Vec<Option<Body>>,
}

/// All keys with more than the route that was announced.
#[derive(Debug, Default)]
pub(super) struct Duplicates {
    lists: HashMap<RouteKey, List>,
    /// IPv6 keys with hops that cannot be used, and the dump during which that was last reported: when the others are
    /// deleted the key has a route that was never announced.
    partial: HashMap<RouteKey, u32>,
    /// Number of full dumps. Routes of an earlier one may have vanished silently.
    dump: u32,
}

impl Duplicates {
    /// A full dump begins.
    pub(super) fn begin(&mut self) {
        self.dump = self.dump.wrapping_add(1);
    }

    /// A full dump is complete: what it did not mention is gone.
    pub(super) fn end(&mut self) {
        self.lists.retain(|_, list| list.dump == self.dump);
        self.partial.retain(|_, dump| *dump == self.dump);
    }

    /// Notes that a route of this key has hops that cannot be used.
    pub(super) fn note_partial(&mut self, key: RouteKey) {
        if v6(&key) {
            self.partial.insert(key, self.dump);
        }
    }

    /// A line of a dump, the first of its key.
    pub(super) fn first_line(&mut self, key: RouteKey, body: &Body, several: bool) -> Effect {
        self.take(&key);
        let list = self.list(vec![Some(body.clone())], several);
        self.keep(key, list);
        Effect::Announce(body.clone())
    }

    /// Takes a further line of a key, right behind; the first one had `first`. `joins` where
    /// it shares the packets with the line before.
    pub(super) fn next_line(
        &mut self,
        key: RouteKey,
        first: &Body,
        body: &Body,
        joins: bool,
        several: bool,
    ) -> Effect {
        let known = self.take(&key);
        let mut list = known.unwrap_or_else(|| self.list(vec![Some(first.clone())], false));
        if v6(&key) && list.entries.iter().flatten().any(|known| overlap(known, body)) {
            // IPv6 has a hop once a key: a dump that was overtaken by changes repeats lines.
            self.keep(key, list);
            return Effect::Keep;
        }
        list.several |= several || joins;
        let mut effect = Effect::Keep;
        if joins && let Some(Some(last)) = list.entries.last_mut() {
            *last = joined(last, body);
            if let [Some(only)] = &list.entries[..] {
                effect = Effect::Announce(only.clone());
            }
        } else {
            list.entries.push(Some(body.clone()));
        }
        self.keep(key, list);
        effect
    }

    /// Takes a line that equals an earlier notification. Whether the key has no other route;
    /// if it may, the dump must be repeated.
    pub(super) fn same_line(&mut self, key: &RouteKey) -> bool {
        let now = self.dump;
        self.lists.get_mut(key).is_none_or(|list| {
            if list.entries.len() == 1 {
                list.dump = now;
            }
            list.dump == now
        })
    }

    /// Takes a notification of a new route.
    pub(super) fn added(&mut self, key: RouteKey, body: Body, put: Put, several: bool) -> Effect {
        let Some(mut list) = self.take(&key) else {
            // IPv6 reports all hops of a route each time that one is added: those are the route.
            let all = v6(&key) && several;
            if put == Put::Behind && !all && self.partial.contains_key(&key) {
                // Behind one that was announced, or behind one that was not?
                return Effect::Redump;
            }
            let this = Some(body.clone());
            let entries = match put {
                Put::Behind if !all => vec![None, this],
                Put::Before => vec![this, None],
                _ => vec![this],
            };
            let first = entries[0].is_some();
            let list = self.list(entries, several);
            self.keep(key, list);
            return if first { Effect::Announce(body) } else { Effect::Keep };
        };
        list.several |= several;
        let entries = &mut list.entries;
        let known = entries.iter().position(|e| e.as_ref().is_some_and(|e| overlap(e, &body)));
        let at = match put {
            Put::Alone => {
                entries.clear();
                None
            }
            Put::Before => None,
            // IPv4 replaces the first; IPv6, of several, the first of the same sort.
            Put::Instead if !v6(&key) || entries.len() == 1 => Some(0),
            // Has it been joined to the one that is not known?
            Put::Behind if v6(&key) && several && known.is_none() && entries.contains(&None) => {
                self.keep(key, list);
                return Effect::Redump;
            }
            Put::Behind => known.filter(|_| v6(&key)).or(Some(entries.len())),
            Put::There if known.is_some() => known,
            Put::Instead | Put::There => {
                self.keep(key, list);
                return Effect::Redump;
            }
        };
        let at = match at {
            None => {
                entries.insert(0, Some(body.clone()));
                0
            }
            Some(at) if at == entries.len() => {
                entries.push(Some(body.clone()));
                at
            }
            Some(at) => {
                entries[at] = Some(body.clone());
                at
            }
        };
        if entries.len() == 1 {
            (list.dump, list.several) = (self.dump, several);
        }
        self.keep(key, list);
        if at == 0 { Effect::Announce(body) } else { Effect::Keep }
    }

    /// A notification of a deleted route, or of deleted hops of one.
    pub(super) fn removed(&mut self, key: RouteKey, deleted: Option<&Body>) -> Effect {
        let Some(mut list) = self.take(&key) else { return Effect::Gone };
        let entries = &mut list.entries;
        // IPv4 routes over equal paths may differ in their MTU alone.
        let known = |entry: &Option<Body>| match (entry, deleted) {
            (Some(e), Some(deleted)) => overlap(e, deleted) && (v6(&key) || e.mtu == deleted.mtu),
            _ => false,
        };
        let at =
            entries.iter().position(known).or_else(|| entries.iter().position(Option::is_none));
        let Some(at) = at else {
            self.keep(key, list);
            return Effect::Redump;
        };
        let left = match (&entries[at], deleted) {
            (Some(entry), Some(deleted)) if v6(&key) => without(entry, deleted),
            _ => None,
        };
        match left {
            Some(left) => entries[at] = Some(left),
            None => drop(entries.remove(at)),
        }
        let effect = match entries.first() {
            None => Effect::Gone,
            Some(_) if at > 0 => Effect::Keep,
            Some(Some(first)) if list.dump == self.dump => Effect::Announce(first.clone()),
            Some(Some(first)) => Effect::Assume(first.clone()),
            Some(None) => Effect::Redump,
        };
        self.keep(key, list);
        effect
    }

    /// A next-hop object is gone, and with it the routes that name it: what follows for the keys
    /// that have others.
    pub(super) fn object_gone(&mut self, id: u32) -> Vec<(RouteKey, Effect)> {
        let object = Target::Object(id);
        let named = |list: &List| {
            list.entries.iter().flatten().find(|entry| entry.target == object).cloned()
        };
        let touched = |list: &List| list.entries.first() == Some(&None) || named(list).is_some();
        let keys: Vec<RouteKey> =
            self.lists.iter().filter(|(_, list)| touched(list)).map(|(key, _)| *key).collect();
        let mut effects = Vec::with_capacity(keys.len());
        for key in keys {
            let effect = match named(&self.lists[&key]) {
                Some(gone) => self.removed(key, Some(&gone)),
                None => Effect::Redump,
            };
            effects.push((key, effect));
        }
        effects
    }

    fn list(&self, entries: Vec<Option<Body>>, several: bool) -> List {
        List { dump: self.dump, several, entries }
    }

    fn take(&mut self, key: &RouteKey) -> Option<List> {
        // Most tables have none: then a full dump need not hash each key.
        if self.lists.is_empty() { None } else { self.lists.remove(key) }
    }

    /// Stores what is more than the one route that was announced.
    fn keep(&mut self, key: RouteKey, list: List) {
        let body = match &list.entries[..] {
            [] | [None] => true,
            [Some(_)] => !(list.several && v6(&key)),
            _ => false,
        };
        if !body {
            self.lists.insert(key, list);
        }
    }
}

fn v6(key: &RouteKey) -> bool {
    key.prefix.family() == 6
}

fn paths(target: &Target) -> &[Path] {
    match target {
        Target::Path(path) => core::slice::from_ref(path),
        Target::Paths(paths) => paths,
        _ => &[],
    }
}

/// Compares paths without weights: a deleted hop is reported without one.
fn same_path(a: &Path, b: &Path) -> bool {
    (a.gateway, a.link) == (b.gateway, b.link)
}

/// Whether these are the same route: a hop in common, or the same verdict.
fn overlap(a: &Body, b: &Body) -> bool {
    let (x, y) = (paths(&a.target), paths(&b.target));
    if x.is_empty() || y.is_empty() {
        return a.target == b.target;
    }
    x.iter().any(|path| y.iter().any(|other| same_path(path, other)))
}

/// What is left of a route without some hops.
fn without(body: &Body, deleted: &Body) -> Option<Body> {
    let gone = paths(&deleted.target);
    let keep = |path: &&Path| !gone.iter().any(|other| same_path(path, other));
    of_paths(paths(&body.target).iter().filter(keep).copied().collect(), body.mtu)
}

fn joined(a: &Body, b: &Body) -> Body {
    let paths = [paths(&a.target), paths(&b.target)].concat();
    of_paths(paths, narrower(a.mtu, b.mtu)).expect("each has a hop")
}

fn of_paths(paths: Vec<Path>, mtu: u16) -> Option<Body> {
    let target = match paths[..] {
        [] => return None,
        [path] => Target::Path(Path { weight: 1, ..path }),
        _ => Target::Paths(paths),
    };
    Some(Body { target, mtu })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{AnyPrefix, MAIN_TABLE};

    #[test]
    fn a_line_that_a_dump_repeats_is_no_second_hop() {
        let prefix = AnyPrefix::parse("2001:db8::/32").unwrap();
        let key = RouteKey { table: MAIN_TABLE, prefix, metric: 0 };
        let via = |last: u16| {
            let gateway = std::net::Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, last).into();
            of_paths(vec![Path { gateway: Some(gateway), link: Some(1), weight: 1 }], 0).unwrap()
        };
        let (one, two) = (via(1), via(2));
        let mut duplicates = Duplicates::default();
        duplicates.begin();
        assert_eq!(duplicates.first_line(key, &one, false), Effect::Announce(one.clone()));
        assert_eq!(duplicates.next_line(key, &one, &one, true, false), Effect::Keep);
        let both = joined(&one, &two);
        assert_eq!(duplicates.next_line(key, &one, &two, true, false), Effect::Announce(both));
        assert_eq!(duplicates.next_line(key, &one, &two, true, false), Effect::Keep);
        assert_eq!(duplicates.removed(key, Some(&one)), Effect::Announce(two.clone()));
        assert_eq!(duplicates.removed(key, Some(&two)), Effect::Gone);
    }
}
