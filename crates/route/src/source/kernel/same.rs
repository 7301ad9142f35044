//! Routes of equal key: the kernel keeps several of one prefix and metric, in order, and uses the
//! first. Two links in one subnet are enough for that.
//!
//! A source can say one route a key, so the others are kept here: only the keys that have several,
//! and the IPv6 routes with several hops, of which one hop may be deleted by itself. What was said
//! before a key became one of several is not stored anywhere; it is the entry `None`.

use std::collections::HashMap;

use super::convert::Said;
use crate::event::{Path, RouteKey, Target};
use crate::nexthop::narrower;

/// What follows for whoever was told the key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// This is the key's route now.
    Say(Said),
    /// It should be, by what was known before the dump that is going on.
    Guess(Said),
    /// Nothing changes.
    Keep,
    /// It has none any more.
    Gone,
    /// Only a new dump can tell.
    Ask,
}

/// Where the kernel put a new route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Put {
    /// Alone: there are no others.
    Alone,
    /// Before the others.
    Before,
    /// Instead of one.
    Instead,
    /// Behind the others.
    Behind,
    /// It was there and has changed in some detail.
    There,
}

#[derive(Debug)]
struct List {
    /// The dump that confirmed all of it, or during which it was made.
    dump: u32,
    /// An IPv6 route of several hops is among them, of which one may be deleted by itself.
    several: bool,
    entries: Vec<Option<Said>>,
}

/// All keys with more than the route that was said.
#[derive(Debug, Default)]
pub(super) struct SameKey {
    lists: HashMap<RouteKey, List>,
    /// Counts the full dumps. What an earlier one told may have vanished without a word.
    dump: u32,
}

impl SameKey {
    /// A full dump begins.
    pub(super) fn begin(&mut self) {
        self.dump = self.dump.wrapping_add(1);
    }

    /// A full dump is complete: what it did not mention is gone.
    pub(super) fn end(&mut self) {
        self.lists.retain(|_, list| list.dump == self.dump);
    }

    /// A line of a dump, the first of its key.
    pub(super) fn first_line(&mut self, key: RouteKey, said: &Said, several: bool) -> Effect {
        self.take(&key);
        let list = self.list(vec![Some(said.clone())], several);
        self.keep(key, list);
        Effect::Say(said.clone())
    }

    /// A further line of the same key, right behind; the first one told of `first`. `joins` where
    /// it shares the packets with the line before.
    pub(super) fn next_line(
        &mut self,
        key: RouteKey,
        first: &Said,
        said: &Said,
        joins: bool,
        several: bool,
    ) -> Effect {
        let known = self.take(&key);
        let mut list = known.unwrap_or_else(|| self.list(vec![Some(first.clone())], false));
        list.several |= several || joins;
        let mut effect = Effect::Keep;
        if joins && let Some(Some(last)) = list.entries.last_mut() {
            *last = joined(last, said);
            if let [Some(only)] = &list.entries[..] {
                effect = Effect::Say(only.clone());
            }
        } else {
            list.entries.push(Some(said.clone()));
        }
        self.keep(key, list);
        effect
    }

    /// A line that tells just what a notification told before. Whether that is all there is to know
    /// of the key; if not, the dump must be repeated.
    pub(super) fn same_line(&mut self, key: &RouteKey) -> bool {
        let now = self.dump;
        self.lists.get_mut(key).is_none_or(|list| {
            if list.entries.len() == 1 {
                list.dump = now;
            }
            list.dump == now
        })
    }

    /// A notification of a new route.
    pub(super) fn added(&mut self, key: RouteKey, said: Said, put: Put, several: bool) -> Effect {
        let Some(mut list) = self.take(&key) else {
            // IPv6 tells of all hops of a route each time that one is added: those are the route.
            let all = v6(&key) && several;
            let this = Some(said.clone());
            let entries = match put {
                Put::Behind if !all => vec![None, this],
                Put::Before => vec![this, None],
                _ => vec![this],
            };
            let first = entries[0].is_some();
            let list = self.list(entries, several);
            self.keep(key, list);
            return if first { Effect::Say(said) } else { Effect::Keep };
        };
        list.several |= several;
        let entries = &mut list.entries;
        let known = entries.iter().position(|e| e.as_ref().is_some_and(|e| overlap(e, &said)));
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
                return Effect::Ask;
            }
            Put::Behind => known.filter(|_| v6(&key)).or(Some(entries.len())),
            Put::There if known.is_some() => known,
            Put::Instead | Put::There => {
                self.keep(key, list);
                return Effect::Ask;
            }
        };
        let at = match at {
            None => {
                entries.insert(0, Some(said.clone()));
                0
            }
            Some(at) if at == entries.len() => {
                entries.push(Some(said.clone()));
                at
            }
            Some(at) => {
                entries[at] = Some(said.clone());
                at
            }
        };
        if entries.len() == 1 {
            (list.dump, list.several) = (self.dump, several);
        }
        self.keep(key, list);
        if at == 0 { Effect::Say(said) } else { Effect::Keep }
    }

    /// A notification of a deleted route, or of deleted hops of one.
    pub(super) fn removed(&mut self, key: RouteKey, deleted: Option<&Said>) -> Effect {
        let Some(mut list) = self.take(&key) else { return Effect::Gone };
        let entries = &mut list.entries;
        // IPv4 routes by the same way may differ in their MTU alone.
        let known = |entry: &Option<Said>| match (entry, deleted) {
            (Some(e), Some(deleted)) => overlap(e, deleted) && (v6(&key) || e.mtu == deleted.mtu),
            _ => false,
        };
        let at =
            entries.iter().position(known).or_else(|| entries.iter().position(Option::is_none));
        let Some(at) = at else {
            self.keep(key, list);
            return Effect::Ask;
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
            Some(Some(first)) if list.dump == self.dump => Effect::Say(first.clone()),
            Some(Some(first)) => Effect::Guess(first.clone()),
            Some(None) => Effect::Ask,
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
                None => Effect::Ask,
            };
            effects.push((key, effect));
        }
        effects
    }

    fn list(&self, entries: Vec<Option<Said>>, several: bool) -> List {
        List { dump: self.dump, several, entries }
    }

    fn take(&mut self, key: &RouteKey) -> Option<List> {
        // Most tables have none: then a full dump need not hash each key.
        if self.lists.is_empty() { None } else { self.lists.remove(key) }
    }

    /// Stores what is more than the one route that was said.
    fn keep(&mut self, key: RouteKey, list: List) {
        let said = match &list.entries[..] {
            [] | [None] => true,
            [Some(_)] => !(list.several && v6(&key)),
            _ => false,
        };
        if !said {
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

/// Weights are not compared: a deleted hop is told without.
fn same_path(a: &Path, b: &Path) -> bool {
    (a.gateway, a.link) == (b.gateway, b.link)
}

/// Whether these are the same route: a hop in common, or the same verdict.
fn overlap(a: &Said, b: &Said) -> bool {
    let (x, y) = (paths(&a.target), paths(&b.target));
    if x.is_empty() || y.is_empty() {
        return a.target == b.target;
    }
    x.iter().any(|path| y.iter().any(|other| same_path(path, other)))
}

/// What is left of a route without some hops.
fn without(said: &Said, deleted: &Said) -> Option<Said> {
    let gone = paths(&deleted.target);
    let keep = |path: &&Path| !gone.iter().any(|other| same_path(path, other));
    of_paths(paths(&said.target).iter().filter(keep).copied().collect(), said.mtu)
}

fn joined(a: &Said, b: &Said) -> Said {
    let paths = [paths(&a.target), paths(&b.target)].concat();
    of_paths(paths, narrower(a.mtu, b.mtu)).expect("each has a hop")
}

fn of_paths(paths: Vec<Path>, mtu: u16) -> Option<Said> {
    let target = match paths[..] {
        [] => return None,
        [path] => Target::Path(Path { weight: 1, ..path }),
        _ => Target::Paths(paths),
    };
    Some(Said { target, mtu })
}
