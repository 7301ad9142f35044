//! Saving run-time changes for the next start, and changes of this run that are made again.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Instant;

use fingerpost_packet::feature::source_filter::{
    Filter, Settings as FilterSettings, SourceFilters,
};
use fingerpost_route::AnyPrefix;
use tracing::{info, warn};

use super::{Daemon, View, neighbors};
use crate::api::backend::{Deleted, Job, Kept};
use crate::api::error::{ApiError, Code};
use crate::api::model::{
    Action, AlgorithmChange, NeighborAction, NeighborChanged, PathChange, Route, RouteChange,
    RouteChanged,
};
use crate::api::saved::{COMMAND_SOURCE, FilterEdit, SavedChange, Subject};
use crate::config::{Config, StaticNeighbor};
use crate::daemon::lasting::{Changes, Placed, edit_again, make_again};

impl Daemon {
    /// Refuses to save without a state folder.
    pub(super) fn check_folder(&self) -> Result<(), ApiError> {
        if self.settings.lasting.has_folder() {
            return Ok(());
        }
        let words =
            "this daemon keeps nothing across restarts: start it with `fingerpost run --state DIR`";
        Err(ApiError::new(Code::Refused, words))
    }

    /// Neighbors that the running configuration sets.
    pub(super) fn configured_neighbors(&self) -> impl Iterator<Item = SavedChange> {
        self.settings.config().neighbor.iter().map(|neighbor| neighbor.placed().1)
    }

    /// Saves these changes, and no others.
    pub(super) fn save_all(&mut self, changes: Vec<SavedChange>) -> Job<()> {
        let lasting = &mut self.settings.lasting;
        lasting.saved.changes = Changes::default();
        changes.into_iter().for_each(|change| lasting.saved.changes.set(change));
        self.write_saved()
    }

    fn write_saved(&self) -> Job<()> {
        let written = self.settings.lasting.write_saved();
        Box::new(move || {
            let unsaved =
                |words| ApiError::new(Code::Unsaved, format!("changed, but not saved: {words}"));
            written.map_or(Ok(()), |written| written().map_err(unsaved))
        })
    }

    /// Saves what became of a change.
    pub(super) fn save_one(&mut self, kept: &Kept) -> Job<()> {
        match kept {
            Kept::Route(change) => {
                let change = SavedChange::Route(change.clone());
                if let Some(Subject::Route(table, prefix, metric)) = change.subject() {
                    let now = self.view().own_route(table, prefix, metric);
                    let now = now.as_ref().and_then(SavedChange::of_route);
                    self.save_instead(&Subject::Route(table, prefix, metric), now);
                }
            }
            Kept::Neighbor(change) => {
                let subject = SavedChange::Neighbor(change.clone()).subject();
                if let Some(Subject::Neighbor(dev, addr)) = subject {
                    let now = self.view().own_neighbor(&dev, addr);
                    self.save_instead(&Subject::Neighbor(dev, addr), now);
                }
            }
            Kept::Algorithm(change) => {
                for change in by_family(change) {
                    self.settings.lasting.saved.changes.set(change);
                }
            }
        }
        self.write_saved()
    }

    /// Deletes a change that waits to be made, or is saved if `persist`, where it is not there at present.
    pub(super) fn delete_unmade(&mut self, kept: &Kept, persist: bool) -> Option<Deleted> {
        let change = match kept {
            Kept::Route(change) if change.action == Action::Delete => {
                SavedChange::Route(change.clone())
            }
            Kept::Neighbor(change) if change.action == NeighborAction::Delete => {
                SavedChange::Neighbor(change.clone())
            }
            _ => return None,
        };
        let subject = change.subject()?;
        let lasting = &self.settings.lasting;
        let saved = lasting.saved.changes.find(&subject).filter(|_| persist);
        let known = lasting.unmade.find(&subject).or(saved)?;
        let (sequence, generation) = (self.control.sequence(), self.progress.generation());
        let done = "deleted".to_owned();
        let deleted = match (&subject, &change, known) {
            (
                Subject::Route(table, prefix, metric),
                SavedChange::Route(RouteChange { paths: named, .. }),
                SavedChange::Route(RouteChange { paths, .. }),
            ) => {
                let is_whole = named.is_empty() || of_paths(named) == of_paths(paths);
                if !is_whole || self.view().own_route(*table, *prefix, *metric).is_some() {
                    return None;
                }
                let candidates = self.view().candidates(*table, *prefix);
                let (prefix, table) = (prefix.to_string(), *table);
                Deleted::Route(RouteChanged {
                    done,
                    prefix,
                    table,
                    sequence,
                    generation,
                    candidates,
                })
            }
            (Subject::Neighbor(dev, addr), ..) => {
                if self.view().own_neighbor(dev, *addr).is_some() {
                    return None;
                }
                let (addr, interface) = (addr.to_string(), dev.clone());
                Deleted::Neighbor(NeighborChanged {
                    done,
                    addr,
                    interface,
                    sequence,
                    generation,
                    now: None,
                })
            }
            _ => return None,
        };
        self.settings.lasting.unmade.forget(&subject);
        Some(deleted)
    }

    fn save_instead(&mut self, subject: &Subject, now: Option<SavedChange>) {
        let lasting = &mut self.settings.lasting;
        lasting.unmade.forget(subject);
        match now {
            Some(change) => lasting.saved.changes.set(change),
            None => lasting.saved.changes.remove(subject),
        }
    }

    /// Notes changes of lists of source filters that a command has made, and saves them if wanted.
    pub(super) fn note_filter_edits(
        &mut self,
        edits: Vec<SavedChange>,
        persist: bool,
    ) -> Option<Job<()>> {
        let configured = self.configured_prefixes(&edits);
        let lasting = &mut self.settings.lasting;
        // A rollback makes the changes of this time again, also those that only take others back.
        let all_count = lasting.is_waiting();
        for edit in edits {
            let is_configured = edit.subject().is_some_and(|subject| configured.contains(&subject));
            if persist {
                lasting.saved.changes.note(edit.clone(), is_configured);
            }
            lasting.present.note(edit, is_configured || all_count);
        }
        persist.then(|| self.write_saved())
    }

    /// Prefixes of these changes that a list of the configuration has, or may have as it is that of a file.
    fn configured_prefixes(&self, edits: &[SavedChange]) -> BTreeSet<Subject> {
        let mut edited: BTreeMap<&str, BTreeSet<AnyPrefix>> = BTreeMap::new();
        for edit in edits {
            let SavedChange::Filter { filter, edit: FilterEdit::Remove(prefix) } = edit else {
                continue;
            };
            edited.entry(filter).or_default().insert(*prefix);
        }
        let filters = self.settings.config().features.of::<FilterSettings>();
        let mut configured = BTreeSet::new();
        for filter in filters.filters() {
            let Some(mut edited) = edited.remove(&*filter.name) else { continue };
            if filter.file.is_none() {
                let listed = filter.prefixes.iter().filter(|prefix| edited.contains(prefix));
                edited = listed.copied().collect();
            }
            let subject = |prefix| Subject::Filter(filter.name.clone(), Some(prefix));
            configured.extend(edited.into_iter().map(subject));
        }
        configured
    }

    /// Notes that a command has chosen an algorithm.
    pub(super) fn note_algorithm(&mut self, change: &AlgorithmChange) {
        for change in by_family(change) {
            self.settings.lasting.present.set(change);
        }
    }

    /// Forgets the changes of commands that end with a change of the configuration: lists that it defines differently.
    pub(super) fn forget_changes(&mut self, new: &Config) {
        for name in redefined(self.settings.config(), new) {
            let _ = self.settings.lasting.present.forget_filter(&name);
        }
    }

    /// Restores what commands had changed before, with what they have changed since in lists that are the same.
    pub(super) fn restore_changes(&mut self, before: Changes) {
        let lasting = &mut self.settings.lasting;
        let since = std::mem::replace(&mut lasting.present, before);
        since.all().cloned().for_each(|change| lasting.present.set(change));
        let lists = |change: &&SavedChange| {
            matches!(
                change,
                SavedChange::Filter { edit: FilterEdit::Add(_) | FilterEdit::Remove(_), .. }
            )
        };
        let edits = lasting.present.all().filter(lists).map(|change| ("rollback", change));
        let filters = self.graph.features.states().of::<SourceFilters>();
        for what in edit_again(filters.as_deref(), edits) {
            warn!(target: "config", "{what}");
        }
    }

    /// Sets the static neighbors of a configuration in the place of those of the running one.
    pub(super) fn change_neighbors(&mut self, new: &Config) {
        let old = std::mem::take(&mut self.settings.config_mut().neighbor);
        for gone in old.iter().filter(|old| new.neighbor.iter().all(|new| !old.is_of(new))) {
            let change = gone.change(NeighborAction::Delete);
            if let Some(subject) = SavedChange::Neighbor(change.clone()).subject() {
                self.settings.lasting.unmade.forget(&subject);
            }
            // It may be gone with its interface, or by a command.
            let _ = neighbors::put(&mut self.control, &change);
        }
        let added = new.neighbor.iter().filter(|new| !old.contains(new));
        self.make(added.map(|added| added.placed().into()).collect());
        self.settings.config_mut().neighbor.clone_from(&new.neighbor);
    }

    /// Neighbors that commands have set and that a change to another configuration sets or deletes.
    pub(super) fn overridden(&self, new: &Config) -> Vec<Placed> {
        let touched = touched(&self.settings.config().neighbor, &new.neighbor);
        if touched.is_empty() {
            return Vec::new();
        }
        let of_running =
            |change: &SavedChange| self.configured_neighbors().any(|set| set == *change);
        let is_touched = |change: &SavedChange| {
            change.subject().is_some_and(|subject| touched.contains(&subject))
        };
        let set = self.view().neighbor_list();
        let set = set.iter().filter_map(SavedChange::of_neighbor);
        let set = set.filter(|change| is_touched(change) && !of_running(change));
        set.map(|change| ("rollback".to_owned(), change).into()).collect()
    }

    /// Makes changes again, and keeps those that cannot be made yet in the place of older ones.
    pub(super) fn make(&mut self, changes: Vec<Placed>) {
        for subject in changes.iter().filter_map(|placed| placed.change.subject()) {
            self.settings.lasting.unmade.forget(&subject);
        }
        let (unmade, messages) = make_again(&mut self.control, self.sources.command, changes);
        messages.iter().for_each(|what| warn!(target: "config", "{what}"));
        self.settings.lasting.unmade.changes.extend(unmade);
    }

    /// Tries again what could not be made, after a change of a link or an address, and now and then.
    pub(in crate::daemon) fn follow_links(&mut self, now: Instant) {
        let waiting = &mut self.settings.lasting.unmade;
        let link_changes = self.control.link_changes() + self.control.address_changes();
        if !waiting.is_due(link_changes, now) {
            return;
        }
        let left = std::mem::take(&mut waiting.changes);
        let before = left.len();
        let (unmade, _) = make_again(&mut self.control, self.sources.command, left);
        if unmade.len() < before {
            let made = before - unmade.len();
            info!(target: "config", made, "{made} routes or neighbors are there now, left out before");
        }
        self.settings.lasting.unmade.changes = unmade;
    }
}

impl View<'_> {
    /// The route of commands with this key.
    fn own_route(&self, table: u32, prefix: AnyPrefix, metric: u32) -> Option<Route> {
        let own = |row: &Route| row.source == COMMAND_SOURCE && row.metric == metric;
        self.candidates(table, prefix).into_iter().find(own)
    }

    /// The change that sets a neighbor as a command has set it.
    fn own_neighbor(&self, dev: &str, addr: IpAddr) -> Option<SavedChange> {
        let (rows, addr) = (self.neighbor_list(), addr.to_string());
        let mut rows = rows.iter().filter(|row| row.interface == dev && row.addr == addr);
        rows.find_map(SavedChange::of_neighbor)
    }
}

/// Subjects of the neighbors that are not the same in both.
fn touched(old: &[StaticNeighbor], new: &[StaticNeighbor]) -> BTreeSet<Subject> {
    let gone = old.iter().filter(|old| !new.contains(old));
    let added = new.iter().filter(|new| !old.contains(new));
    gone.chain(added).filter_map(|neighbor| neighbor.placed().1.subject()).collect()
}

/// Names of the source filters whose lists another configuration defines differently, or does not have.
pub(super) fn redefined(old: &Config, new: &Config) -> Vec<String> {
    let [old, new] = [old, new].map(|config| config.features.of::<FilterSettings>());
    let same = |old: &Filter, new: &Filter| {
        (&old.name, &old.prefixes, &old.file) == (&new.name, &new.prefixes, &new.file)
    };
    let gone = old.filters().filter(|old| !new.filters().any(|new| same(old, new)));
    gone.map(|filter| filter.name.clone()).collect()
}

/// Gateways and interfaces of paths, whatever their order.
fn of_paths(paths: &[PathChange]) -> BTreeSet<(Option<&str>, Option<&str>)> {
    paths.iter().map(|path| (path.gateway.as_deref(), path.dev.as_deref())).collect()
}

/// A choice of an algorithm, for each of its families.
fn by_family(change: &AlgorithmChange) -> impl Iterator<Item = SavedChange> {
    let families = super::fibs::families_of(change).into_iter();
    families.map(|family| {
        SavedChange::Algorithm(AlgorithmChange { family: Some(family), name: change.name.clone() })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_touches_the_neighbors_that_differ() {
        let neighbor = |address: &str, mac: u8| StaticNeighbor {
            address: address.to_owned(),
            lladdr: format!("02:00:5e:10:00:{mac:02x}"),
            interface: "eth0".to_owned(),
        };
        let [one, two, other, three] =
            [("192.0.2.1", 1), ("192.0.2.2", 1), ("192.0.2.2", 2), ("192.0.2.3", 1)]
                .map(|(address, mac)| neighbor(address, mac));
        let of = |old: &[&StaticNeighbor], new: &[&StaticNeighbor]| {
            let [old, new] = [old, new].map(|all| all.iter().copied().cloned().collect::<Vec<_>>());
            let subjects = touched(&old, &new).into_iter();
            let addr = |subject| match subject {
                Subject::Neighbor(_, addr) => addr.to_string(),
                other => panic!("{other:?}"),
            };
            subjects.map(addr).collect::<Vec<_>>()
        };
        assert_eq!(of(&[&one, &two], &[&one, &two]), [""; 0]);
        assert_eq!(of(&[&one, &two], &[&one, &other]), ["192.0.2.2"]);
        assert_eq!(of(&[&one, &two], &[&two, &three]), ["192.0.2.1", "192.0.2.3"]);
        assert_eq!(of(&[&one], &[]), ["192.0.2.1"]);
    }
}
