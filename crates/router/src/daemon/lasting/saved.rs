//! Run-time changes that the next start makes again: a file of the state folder, a line a change.
//!
//! They are made after the configuration, in the order of the lines, and before packets are taken. A line that cannot be read or made
//! is named, left out, and kept in the file: what it needs may be there the next time, or later in this run.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use fingerpost_packet::feature::source_filter::SourceFilters;
use fingerpost_route::{AnyPrefix, Control, SourceId};

use super::state::StateFolder;
use crate::api::saved::{FilterEdit, SavedChange, Subject};
use crate::daemon::backend::{change, fibs, neighbors};

/// The file.
const FILE: &str = "saved";
const HEADING: &str = "# Run-time changes, saved by `fingerpost config save` or --persist. A start makes them after its configuration.\n";

/// A change, and where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Placed {
    pub(crate) place: String,
    pub(crate) change: SavedChange,
}

impl From<(String, SavedChange)> for Placed {
    fn from((place, change): (String, SavedChange)) -> Self {
        Self { place, change }
    }
}

/// Changes by their subject.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Changes(BTreeMap<Subject, SavedChange>);

impl Changes {
    /// Adds a change in the place of an earlier one of its subject. A list that is replaced has no earlier changes.
    pub(crate) fn set(&mut self, change: SavedChange) {
        let Some(subject) = change.subject() else { return };
        if let Subject::Filter(name, None) = &subject {
            self.forget_filter(name);
        }
        self.0.insert(subject, change);
    }

    /// Notes a change. One that takes a prefix off a list needs none where the configured list does not have that prefix: so
    /// changes do not grow with all prefixes that were ever on a list.
    pub(crate) fn note(&mut self, change: SavedChange, is_configured: bool) {
        let SavedChange::Filter { filter, edit: FilterEdit::Remove(prefix) } = &change else {
            return self.set(change);
        };
        // What a list has that was read since is not known here.
        let whole = Subject::Filter(filter.clone(), None);
        if is_configured || self.0.contains_key(&whole) {
            return self.set(change);
        }
        self.remove(&Subject::Filter(filter.clone(), Some(*prefix)));
    }

    pub(crate) fn remove(&mut self, subject: &Subject) {
        self.0.remove(subject);
    }

    /// The change of a subject.
    pub(crate) fn find(&self, subject: &Subject) -> Option<&SavedChange> {
        self.0.get(subject)
    }

    /// The changes of this filter are none any more. Returns whether there were any.
    pub(crate) fn forget_filter(&mut self, name: &str) -> bool {
        let before = self.0.len();
        self.0.retain(|subject, _| !matches!(subject, Subject::Filter(known, _) if known == name));
        self.0.len() < before
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &SavedChange> {
        self.0.values()
    }
}

/// Time until changes that could not be made are tried again, as the route to their gateway may be there by then.
const RETRY: Duration = Duration::from_secs(30);

/// Changes that could not be made yet.
#[derive(Debug, Default)]
pub(crate) struct Unmade {
    pub(crate) changes: Vec<Placed>,
    /// Number of changes of links and addresses when they were tried last, and the time of that.
    links_seen: u64,
    tried: Option<Instant>,
}

impl Unmade {
    /// Whether the changes are to be tried again: after a change of a link or an address, and now and then.
    pub(crate) fn is_due(&mut self, link_changes: u64, now: Instant) -> bool {
        if self.changes.is_empty() {
            return false;
        }
        let seen = std::mem::replace(&mut self.links_seen, link_changes) == link_changes;
        let due = !seen || self.tried.is_none_or(|tried| now.duration_since(tried) >= RETRY);
        if due {
            self.tried = Some(now);
        }
        due
    }

    /// The change of a subject.
    pub(crate) fn find(&self, subject: &Subject) -> Option<&SavedChange> {
        let mut changes = self.changes.iter().map(|placed| &placed.change);
        changes.find(|change| change.subject().as_ref() == Some(subject))
    }

    /// Forgets the change of a subject.
    pub(crate) fn forget(&mut self, subject: &Subject) {
        self.changes.retain(|placed| placed.change.subject().as_ref() != Some(subject));
    }
}

/// Content of the file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Saved {
    pub(crate) changes: Changes,
    /// Lines that cannot be read.
    unread: Vec<String>,
}

impl Saved {
    /// Reads the file; returns the changes with their lines, and messages about lines that cannot be read.
    pub(super) fn load(folder: &StateFolder) -> (Self, Vec<Placed>, Vec<String>) {
        let mut saved = Self::default();
        let text = match folder.read(FILE) {
            Ok(text) => text.unwrap_or_default(),
            Err(error) => return (saved, Vec::new(), vec![error]),
        };
        let (mut placed, mut messages) = (Vec::new(), Vec::new());
        for (number, line) in (1..).zip(text.lines()) {
            if line.trim().is_empty() || line.starts_with('#') {
                continue;
            }
            let place = format!("{}:{number}", folder.path_of(FILE).display());
            match line.trim().parse::<SavedChange>() {
                Ok(change) => {
                    saved.changes.set(change.clone());
                    placed.push(Placed { place, change });
                }
                Err(what) => {
                    messages.push(format!("{place}: {what}: the line is left out"));
                    saved.unread.push(line.to_owned());
                }
            }
        }
        (saved, placed, messages)
    }

    /// Has the file written; what this returns waits until that is done.
    pub(super) fn write(
        &self,
        folder: &StateFolder,
    ) -> impl FnOnce() -> Result<(), String> + Send + use<> {
        let text = self.text();
        folder.write_now(FILE, || text)
    }

    /// Has the file written with what the next flush waits for.
    pub(super) fn write_later(&self, folder: &StateFolder) {
        folder.write(FILE, Some(self.text()));
    }

    fn text(&self) -> String {
        let mut text = HEADING.to_owned();
        let changes = self.changes.all().map(ToString::to_string);
        for line in changes.chain(self.unread.iter().cloned()) {
            text += &line;
            text.push('\n');
        }
        text
    }
}

/// Makes routes, neighbors and choices of algorithms again. Returns those that cannot be made yet, with messages: what a route
/// needs may be another one of them.
pub(in crate::daemon) fn make_again(
    control: &mut Control,
    command: SourceId,
    changes: Vec<Placed>,
) -> (Vec<Placed>, Vec<String>) {
    let mut left = changes;
    loop {
        let (before, mut messages) = (left.len(), Vec::new());
        left.retain(|Placed { place, change }| {
            let made = match change {
                SavedChange::Route(change) => change::put(control, command, change, Instant::now())
                    .map(drop)
                    .map_err(|error| error.to_string()),
                SavedChange::Neighbor(change) => {
                    neighbors::put(control, change).map(drop).map_err(|error| error.message)
                }
                SavedChange::Algorithm(change) => {
                    fibs::pin(control, change).map(drop).map_err(|error| error.message)
                }
                SavedChange::Filter { .. } => Ok(()),
            };
            messages.extend(made.as_ref().err().map(|error| format!("{place}: {error}: left out")));
            made.is_err()
        });
        if left.len() == before || left.is_empty() {
            return (left, messages);
        }
    }
}

/// Makes changes of source filters again, all of a filter at once; returns messages about those that cannot be made.
pub(in crate::daemon) fn edit_again<'a>(
    filters: Option<&SourceFilters>,
    changes: impl Iterator<Item = (&'a str, &'a SavedChange)>,
) -> Vec<String> {
    let mut edits: BTreeMap<&str, (&str, [Vec<AnyPrefix>; 2])> = BTreeMap::new();
    let mut messages = Vec::new();
    for (place, change) in changes {
        let SavedChange::Filter { filter, edit } = change else { continue };
        let found = filters.and_then(|filters| Some((filters, filters.find(filter)?)));
        let Some((filters, at)) = found else {
            messages.push(format!("{place}: no source filter `{filter}`: left out"));
            continue;
        };
        let (_, [add, remove]) = edits.entry(filter).or_insert((place, Default::default()));
        match edit {
            // It comes before the prefixes of its filter.
            FilterEdit::Replace(file) => {
                let failed = filters.replace(at, file).err();
                messages.extend(failed.map(|error| format!("{place}: {error}: left out")));
            }
            FilterEdit::Add(prefix) => add.push(*prefix),
            FilterEdit::Remove(prefix) => remove.push(*prefix),
        }
    }
    let Some(filters) = filters else { return messages };
    for (filter, (place, [add, remove])) in edits {
        let at = filters.find(filter).expect("it was found above");
        if let Err(error) = filters.edit(at, &add, &remove) {
            messages.push(format!("{place}: source filter {filter}: {error}: left out"));
        }
    }
    messages
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_change_takes_the_place_of_an_earlier_one() {
        let mut changes = Changes::default();
        for line in [
            "source-filter a add 192.0.2.0/24",
            "source-filter a remove 192.0.2.0/24",
            "source-filter b add 192.0.2.0/24",
            "source-filter a replace list",
            "source-filter a add 198.51.100.0/24",
            "route 10.0.0.0/8 blackhole",
            "route 10.0.0.0/8 prohibit",
            "neighbor 192.0.2.1 lladdr 02:00:00:00:00:01 dev e",
        ] {
            changes.set(line.parse().unwrap());
        }
        let lines: Vec<String> = changes.all().map(ToString::to_string).collect();
        let want = [
            "neighbor 192.0.2.1 lladdr 02:00:00:00:00:01 dev e",
            "route 10.0.0.0/8 prohibit",
            "source-filter a replace list",
            "source-filter a add 198.51.100.0/24",
            "source-filter b add 192.0.2.0/24",
        ];
        assert_eq!(lines, want);
        assert!(changes.forget_filter("a") && !changes.forget_filter("a"));
        assert_eq!(changes.all().count(), 3);
    }

    #[test]
    fn prefixes_that_come_and_go_leave_nothing() {
        let mut changes = Changes::default();
        let note = |changes: &mut Changes, line: &str, is_configured| {
            changes.note(line.parse().unwrap(), is_configured);
            changes.all().map(ToString::to_string).collect::<Vec<_>>()
        };
        let [add, remove] =
            ["add", "remove"].map(|word| format!("source-filter a {word} 192.0.2.1/32"));
        assert_eq!(note(&mut changes, &add, false), [&*add]);
        assert_eq!(note(&mut changes, &remove, false), [""; 0]);
        assert_eq!(note(&mut changes, &remove, true), [&*remove]);
        let list = "source-filter a replace list";
        assert_eq!(note(&mut changes, list, false), [list]);
        assert_eq!(note(&mut changes, &remove, false), [list, &*remove]);
    }

    #[test]
    fn a_line_that_cannot_be_read_is_named_and_kept() {
        let path = std::env::temp_dir().join(format!("fp-saved-{}", std::process::id()));
        let folder = StateFolder::find(Some(&path)).unwrap().unwrap();
        let text = "# old\n\nroute 10.0.0.0/8 blackhole\nrout 1\nalgorithm 4 auto\n";
        std::fs::write(path.join(FILE), text).unwrap();
        let (saved, placed, messages) = Saved::load(&folder);
        assert_eq!(messages.len(), 1);
        let place = format!("{}:4: unknown change `rout`", path.join(FILE).display());
        assert!(messages[0].starts_with(&place), "{messages:?}");
        assert!(placed[1].place.ends_with("saved:5"), "{placed:?}");
        saved.write(&folder)().unwrap();
        let written = std::fs::read_to_string(path.join(FILE)).unwrap();
        let want = "route 10.0.0.0/8 blackhole\nalgorithm 4 auto\nrout 1\n";
        assert_eq!(written, HEADING.to_owned() + want);
        drop(folder);
        std::fs::remove_dir_all(path).unwrap();
    }
}
