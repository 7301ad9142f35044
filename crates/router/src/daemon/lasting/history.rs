//! Configurations that ran: the newest [`MOST`] of them, each a file of the state folder.

use std::time::SystemTime;

use fingerpost_command::time::rfc3339;

use super::state::StateFolder;
use crate::api::access::Requester;
use crate::api::config::{ConfigEntry, ConfigShown, ConfigState};
use crate::api::model::ConfigText;
use crate::daemon::lasting::json;

/// Configurations that are kept, and bytes of their texts; the running one is kept in any case, and the one before a
/// configuration that waits.
const MOST: usize = 50;
const MOST_BYTES: usize = 16 << 20;
/// Changes that are kept of each, and characters of each change.
const MOST_CHANGES: usize = 20;
const LONGEST_CHANGE: usize = 200;
/// How the names of the files begin.
const PREFIX: &str = "config-";

/// The configurations, the oldest first.
#[derive(Default)]
pub(crate) struct History {
    kept: Vec<ConfigShown>,
    running: u64,
    last: u64,
}

impl History {
    /// Reads what the last run has left; returns messages about what cannot be read.
    pub(super) fn load(&mut self, folder: &StateFolder) -> Vec<String> {
        let mut messages = Vec::new();
        for name in folder.names(PREFIX) {
            let read = folder.read(&name).and_then(|text| {
                let path = folder.path_of(&name);
                let failed = |error| format!("{}: {error}", path.display());
                serde_json::from_str(&text.unwrap_or_default()).map_err(failed)
            });
            match read {
                Ok(shown) => self.kept.push(shown),
                Err(error) => messages.push(format!("{error}: it is left out of the history")),
            }
        }
        self.kept.sort_by_key(|shown: &ConfigShown| shown.entry.number);
        self.last = self.kept.last().map_or(0, |shown| shown.entry.number);
        messages
    }

    /// All of them, the oldest first.
    pub(super) fn all(&self) -> impl Iterator<Item = &ConfigShown> {
        self.kept.iter()
    }

    /// Number of the running one.
    pub(in crate::daemon) fn running(&self) -> u64 {
        self.running
    }

    pub(super) fn set_running(&mut self, number: u64) {
        self.running = number;
    }

    /// Text of the running one.
    pub(in crate::daemon) fn running_text(&self) -> ConfigText {
        let mut all = self.kept.iter();
        let running = all.find(|shown| shown.entry.number == self.running);
        running.map_or_else(
            || ConfigText { file: String::new(), text: String::new() },
            |shown| ConfigText { file: shown.entry.file.clone(), text: shown.text.clone() },
        )
    }

    /// Adds the configuration that a run starts with, unless the last run had the same one.
    pub(super) fn started(&mut self, text: &ConfigText, folder: Option<&StateFolder>) {
        let mut ran = self.kept.iter().rev();
        let last = ran.find(|shown| shown.entry.state != ConfigState::RolledBack);
        if let Some(same) = last.filter(|shown| shown.text == text.text) {
            self.running = same.entry.number;
            return;
        }
        let by = Requester::new(crate::sys::user(), Requester::daemon("").pid);
        let mut shown = ConfigShown::new(text.clone(), by, std::iter::empty());
        shown.entry.state = ConfigState::Started;
        self.add(shown, folder);
    }

    /// Adds a configuration, which runs from now on; returns its number.
    pub(super) fn add(&mut self, mut shown: ConfigShown, folder: Option<&StateFolder>) -> u64 {
        let before = self.running;
        self.last += 1;
        shown.entry.number = self.last;
        self.running = self.last;
        self.kept.push(shown);
        self.write(self.kept.len() - 1, folder);
        let bytes = |kept: &[ConfigShown]| kept.iter().map(|shown| shown.text.len()).sum::<usize>();
        while self.kept.len() > MOST || bytes(&self.kept) > MOST_BYTES {
            let spare = |shown: &ConfigShown| ![self.running, before].contains(&shown.entry.number);
            let Some(oldest) = self.kept.iter().position(spare) else { break };
            let gone = self.kept.remove(oldest);
            if let Some(folder) = folder {
                folder.write(&name(gone.entry.number), None);
            }
        }
        self.running
    }

    /// Notes how a configuration ended that waited for its confirmation.
    pub(super) fn end(
        &mut self,
        number: u64,
        state: ConfigState,
        reason: Option<String>,
        folder: Option<&StateFolder>,
    ) -> ConfigEntry {
        let at = self.kept.iter().position(|shown| shown.entry.number == number);
        let at = at.expect("the one that waits is kept");
        let entry = &mut self.kept[at].entry;
        (entry.state, entry.reason) = (state, reason);
        entry.ended = Some(rfc3339(SystemTime::now()));
        self.write(at, folder);
        self.kept[at].entry.clone()
    }

    /// Ends the wait of all, as that of the last run.
    pub(super) fn end_waiting(&mut self, reason: &str, folder: Option<&StateFolder>) {
        let waits = |shown: &&ConfigShown| shown.entry.state == ConfigState::Waiting;
        let waiting: Vec<u64> =
            self.kept.iter().filter(waits).map(|shown| shown.entry.number).collect();
        for number in waiting {
            self.end(number, ConfigState::RolledBack, Some(reason.to_owned()), folder);
        }
    }

    fn write(&self, at: usize, folder: Option<&StateFolder>) {
        if let Some(folder) = folder {
            // The document of a text of megabytes is written by the folder's thread.
            let shown = self.kept[at].clone();
            folder.write_made(&name(shown.entry.number), move || json(&shown));
        }
    }
}

impl ConfigShown {
    /// A configuration of this moment, not yet in the history.
    pub(in crate::daemon) fn new(
        text: ConfigText,
        by: Requester,
        changes: impl ExactSizeIterator<Item = String>,
    ) -> Self {
        let entry = ConfigEntry {
            number: 0,
            time: rfc3339(SystemTime::now()),
            file: text.file,
            by,
            state: ConfigState::Applied,
            reason: None,
            ended: None,
            running: false,
            seconds_left: None,
            changes: summary(changes),
        };
        Self { entry, text: text.text }
    }
}

/// The first changes, and how many there are more.
fn summary(changes: impl ExactSizeIterator<Item = String>) -> Vec<String> {
    let more = changes.len().saturating_sub(MOST_CHANGES);
    let cut = |mut change: String| {
        if let Some((at, _)) = change.char_indices().nth(LONGEST_CHANGE) {
            change.truncate(at);
            change += "...";
        }
        change
    };
    let first = changes.take(MOST_CHANGES).map(cut);
    first.chain((more > 0).then(|| format!("and {more} more"))).collect()
}

fn name(number: u64) -> String {
    format!("{PREFIX}{number:08}.json")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(bytes: usize) -> ConfigShown {
        let text = ConfigText { file: "r.toml".into(), text: "#".repeat(bytes) };
        let changes = (0..30).map(|n| format!("{n}{}", "x".repeat(300)));
        ConfigShown::new(text, Requester::default(), changes)
    }

    #[test]
    fn the_history_is_bounded_in_count_and_size() {
        let path = std::env::temp_dir().join(format!("fp-history-{}", std::process::id()));
        let folder = StateFolder::find(Some(&path)).unwrap();
        let mut history = History::default();
        for _ in 0..MOST + 3 {
            history.add(shown(10), folder.as_ref());
        }
        let numbers: Vec<u64> = history.all().map(|shown| shown.entry.number).collect();
        assert_eq!(numbers, (4..=MOST as u64 + 3).collect::<Vec<_>>());
        let changes = &history.kept[0].entry.changes;
        assert_eq!((changes.len(), &*changes[20]), (21, "and 10 more"));
        assert_eq!(changes[19].len(), LONGEST_CHANGE + 3);
        for _ in 0..5 {
            history.add(shown(MOST_BYTES / 4), folder.as_ref());
        }
        assert_eq!(history.kept.len(), 4);
        history.add(shown(2 * MOST_BYTES), folder.as_ref());
        let kept: Vec<u64> = history.all().map(|shown| shown.entry.number).collect();
        assert_eq!(kept, [58, 59], "the running one and the one before it");
        drop(folder);
        let folder = StateFolder::find(Some(&path)).unwrap().unwrap();
        std::fs::write(path.join("config-00000001.json"), "{").unwrap();
        let mut again = History::default();
        let said = again.load(&folder);
        assert!(said.len() == 1 && said[0].contains("config-00000001.json: EOF"), "{said:?}");
        assert_eq!(again.kept, history.kept);
        // The same text goes on under its number.
        again.started(&history.running_text(), None);
        assert_eq!((again.running, again.last), (59, 59));
        drop(folder);
        std::fs::remove_dir_all(path).unwrap();
    }
}
