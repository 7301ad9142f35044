//! What outlasts a change or a run: applied configurations, a change that waits for its confirmation, saved run-time changes.
//!
//! A configuration that must be confirmed is recorded in the state folder before it is applied. While that record is there a
//! start does not use the unconfirmed text, even where the file of the run has it, but the configuration before: also after
//! it was rolled back, as the file still has it then. The record goes when a configuration is confirmed or applied for good, or
//! once a run has started with another text: a start that fails decides nothing.

mod history;
mod saved;
mod state;

use std::time::{Duration, Instant};

use fingerpost_packet::feature::FeatureStates;
use serde::{Deserialize, Serialize};

use crate::api::config::{ConfigEntry, ConfigShown, ConfigState};
use crate::api::error::{ApiError, Code};
use crate::api::model::ConfigText;
use crate::config::Config;
use crate::daemon::route_changes::RouteChanges;

pub(super) use history::History;
pub(crate) use saved::Placed;
pub(super) use saved::{Changes, Saved, Unmade, edit_again, make_again};
pub(crate) use state::StateFolder;

/// File of the record of an unconfirmed configuration.
const UNCONFIRMED: &str = "unconfirmed.json";

/// A configuration that was not confirmed, and the one before it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Unconfirmed {
    text: ConfigText,
    before: ConfigText,
}

/// What is restored unless a configuration is confirmed: as it ran, without reading anything again.
pub(super) struct Before {
    pub(super) config: Config,
    /// States of the features, with the lists that they had read.
    pub(super) states: FeatureStates,
    /// What commands had changed.
    pub(super) changes: Changes,
    /// Neighbors of commands that the change sets or deletes.
    pub(super) neighbors: Vec<Placed>,
    /// Differences of its static routes from those of the other configuration.
    pub(super) routes: RouteChanges,
}

/// A configuration that waits for its confirmation.
struct Waiting {
    number: u64,
    /// Number of the configuration before.
    after: u64,
    seconds: u32,
    until: Instant,
    before: Before,
}

/// Everything that outlasts a change or a run.
#[derive(Default)]
pub(crate) struct Lasting {
    pub(super) history: History,
    waiting: Option<Waiting>,
    unconfirmed: Option<Unconfirmed>,
    folder: Option<StateFolder>,
    /// Changes of source filters and algorithms that commands have made in this run.
    pub(super) present: Changes,
    /// What the state folder has.
    pub(super) saved: Saved,
    pub(super) unmade: Unmade,
}

impl Lasting {
    /// What the last run has left in this folder, the changes that are to be made again, and messages about what cannot be
    /// read.
    pub(crate) fn open(folder: Option<StateFolder>) -> (Self, Vec<Placed>, Vec<String>) {
        let mut lasting = Self::default();
        let Some(folder) = folder else { return (lasting, Vec::new(), Vec::new()) };
        let mut messages = lasting.history.load(&folder);
        let (saved, changes, unread) = Saved::load(&folder);
        lasting.saved = saved;
        messages.extend(unread);
        match folder.read(UNCONFIRMED) {
            Ok(text) => {
                let record = text.map(|text| serde_json::from_str(&text)).transpose();
                match record {
                    Ok(record) => lasting.unconfirmed = record,
                    Err(error) => {
                        let path = folder.path_of(UNCONFIRMED);
                        messages.push(format!("{}: {error}: it is ignored", path.display()));
                    }
                }
            }
            Err(error) => messages.push(error),
        }
        lasting.folder = Some(folder);
        (lasting, changes, messages)
    }

    /// The configuration to start with: that of the file, unless it was not confirmed; then the one before, with a message.
    pub(crate) fn starting(&mut self, file: ConfigText) -> (ConfigText, Option<String>) {
        match self.unconfirmed.clone() {
            Some(Unconfirmed { text, before }) if text.text == file.text => {
                let name = if before.file.is_empty() { "no file" } else { &*before.file };
                let words = format!(
                    "{}: this configuration was not confirmed: the one before it is used ({name}); `config apply {}` \
                     applies it",
                    file.file, file.file
                );
                (before, Some(words))
            }
            _ => {
                // The file goes with the start.
                self.unconfirmed = None;
                (file, None)
            }
        }
    }

    /// Notes with what configuration the run has started. What waited in the last run was not confirmed.
    pub(super) fn started(&mut self, text: &ConfigText) {
        if self.unconfirmed.is_none() {
            self.record(None);
        }
        self.history.end_waiting("the daemon was restarted", self.folder.as_ref());
        self.history.started(text, self.folder.as_ref());
    }

    /// Refuses another change of the configuration while one waits.
    ///
    /// # Errors
    /// What ends the wait.
    pub(super) fn check_waiting(&self, now: Instant) -> Result<(), ApiError> {
        let Some(Waiting { number, until, .. }) = &self.waiting else { return Ok(()) };
        let left = until.saturating_duration_since(now).as_secs();
        let words = format!(
            "configuration {number} waits for its confirmation for {left} s more: `config confirm` keeps it, `config \
             rollback` restores the one before it"
        );
        Err(ApiError::new(Code::Refused, words))
    }

    /// Records a configuration that is about to be applied and must be confirmed. What this returns waits until the record is
    /// written; `None` without a state folder.
    pub(super) fn record_unconfirmed(
        &self,
        text: ConfigText,
    ) -> Option<impl FnOnce() -> Result<(), String> + Send + use<>> {
        let record = Unconfirmed { text, before: self.history.running_text() };
        let folder = self.folder.as_ref()?;
        Some(folder.write_now(UNCONFIRMED, move || json(&record)))
    }

    /// Writes the record of this moment again, where another one was written for a change that was refused.
    pub(super) fn restore_record(&mut self) {
        self.record(self.unconfirmed.clone());
    }

    fn record(&mut self, record: Option<Unconfirmed>) {
        if let Some(folder) = &self.folder {
            folder.write(UNCONFIRMED, record.as_ref().map(json));
        }
        self.unconfirmed = record;
    }

    /// Notes a configuration that was applied, to be confirmed within `seconds` if given. Returns its number.
    pub(super) fn applied(
        &mut self,
        mut entry: ConfigShown,
        confirm: Option<(u32, Before)>,
        now: Instant,
    ) -> u64 {
        let after = self.history.running();
        let texts = confirm.is_some().then(|| Unconfirmed {
            text: ConfigText { file: entry.entry.file.clone(), text: entry.text.clone() },
            before: self.history.running_text(),
        });
        let state = if confirm.is_some() { ConfigState::Waiting } else { ConfigState::Applied };
        entry.entry.state = state;
        let number = self.history.add(entry, self.folder.as_ref());
        match confirm {
            Some((seconds, before)) => {
                let until = now + Duration::from_secs(seconds.into());
                self.waiting = Some(Waiting { number, after, seconds, until, before });
                // It is written already.
                self.unconfirmed = texts;
            }
            None if self.unconfirmed.is_some() => self.record(None),
            None => {}
        }
        number
    }

    /// Whether a configuration waits for its confirmation.
    pub(super) fn is_waiting(&self) -> bool {
        self.waiting.is_some()
    }

    /// Number of the configuration that waits, and the seconds that it has left.
    pub(super) fn waiting(&self, now: Instant) -> Option<(u64, u64)> {
        let Waiting { number, until, .. } = self.waiting.as_ref()?;
        Some((*number, until.saturating_duration_since(now).as_secs()))
    }

    /// Whether the time of a configuration that waits is over; why it is rolled back then.
    pub(super) fn due(&self, now: Instant) -> Option<String> {
        let Waiting { until, seconds, .. } = self.waiting.as_ref()?;
        (*until <= now).then(|| format!("it was not confirmed within {seconds} s"))
    }

    /// Confirms the configuration that waits. Returns it, and what need not be restored any more.
    ///
    /// # Errors
    /// When none waits.
    pub(super) fn confirm(&mut self) -> Result<(ConfigEntry, Before), ApiError> {
        let Waiting { number, before, .. } = self.waiting.take().ok_or_else(none_waits)?;
        self.record(None);
        let folder = self.folder.as_ref();
        let entry = self.history.end(number, ConfigState::Confirmed, None, folder);
        Ok((entry, before))
    }

    /// Ends the wait of a configuration, for this reason. Returns its number, that of the one before, and what is to be
    /// restored. The record stays.
    ///
    /// # Errors
    /// When none waits.
    pub(super) fn roll_back(&mut self, reason: &str) -> Result<(u64, u64, Before), ApiError> {
        let Waiting { number, after, before, .. } = self.waiting.take().ok_or_else(none_waits)?;
        let folder = self.folder.as_ref();
        self.history.end(number, ConfigState::RolledBack, Some(reason.to_owned()), folder);
        self.history.set_running(after);
        Ok((number, after, before))
    }

    /// Whether anything is kept across restarts.
    pub(super) fn has_folder(&self) -> bool {
        self.folder.is_some()
    }

    /// Has the saved changes written; what this returns waits until that is done.
    pub(super) fn write_saved(&self) -> Option<impl FnOnce() -> Result<(), String> + Send + use<>> {
        self.folder.as_ref().map(|folder| self.saved.write(folder))
    }

    /// Forgets the saved changes of source filters, which another configuration defines for good.
    pub(super) fn forget_saved(&mut self, filters: &[String]) {
        let mut gone = false;
        for name in filters {
            gone |= self.saved.changes.forget_filter(name);
        }
        if let Some(folder) = self.folder.as_ref().filter(|_| gone) {
            self.saved.write_later(folder);
        }
    }

    /// Begins a change of the configuration: [`Lasting::flush`] has the errors since.
    pub(super) fn begin(&self) {
        if let Some(folder) = &self.folder {
            folder.begin();
        }
    }

    /// Waits, when it is called, until all of it is written; `None` without a state folder. Fails with the first error since
    /// [`Lasting::begin`] or the last time.
    pub(super) fn flush(&self) -> Option<impl FnOnce() -> Result<(), String> + Send + use<>> {
        self.folder.as_ref().map(StateFolder::flush)
    }

    /// Takes over what was made again at the start from the one before, which had no state folder.
    pub(super) fn take_over(&mut self, before: &mut Self) {
        self.present = std::mem::take(&mut before.present);
        self.unmade = std::mem::take(&mut before.unmade);
    }

    /// Errors of the state folder since the last call.
    pub(super) fn take_errors(&self) -> Vec<String> {
        self.folder.as_ref().map_or_else(Vec::new, StateFolder::take_errors)
    }

    /// Configurations that were applied, the oldest first.
    pub(super) fn entries(&self, now: Instant) -> Vec<ConfigEntry> {
        self.history.all().map(|shown| self.entry(&shown.entry, now)).collect()
    }

    /// The configuration of this number, or the running one.
    ///
    /// # Errors
    /// When it is not in the history.
    pub(super) fn shown(&self, number: Option<u64>, now: Instant) -> Result<ConfigShown, ApiError> {
        let number = number.unwrap_or(self.history.running());
        let mut all = self.history.all();
        let found = all.find(|shown| shown.entry.number == number).ok_or_else(|| {
            let words = format!("no configuration {number} in the history: see `config history`");
            ApiError::at(Code::NotFound, "number", words)
        })?;
        Ok(ConfigShown { entry: self.entry(&found.entry, now), text: found.text.clone() })
    }

    /// An entry as it is at this time.
    fn entry(&self, entry: &ConfigEntry, now: Instant) -> ConfigEntry {
        let waiting = self.waiting(now).filter(|(number, _)| *number == entry.number);
        ConfigEntry {
            running: entry.number == self.history.running(),
            seconds_left: waiting.map(|(_, left)| left),
            ..entry.clone()
        }
    }
}

fn none_waits() -> ApiError {
    let words = "no configuration waits for its confirmation; `config rollback NUMBER` applies one of the history again";
    ApiError::new(Code::Refused, words)
}

fn json(document: &impl Serialize) -> String {
    serde_json::to_string(document).expect("writing to memory cannot fail")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(file: &str, text: &str) -> ConfigText {
        ConfigText { file: file.into(), text: text.into() }
    }

    #[test]
    fn a_text_that_was_not_confirmed_is_not_started_with() {
        let path = std::env::temp_dir().join(format!("fp-lasting-{}", std::process::id()));
        let open = || {
            let (lasting, _, said) = Lasting::open(StateFolder::find(Some(&path)).unwrap());
            assert_eq!(said, [""; 0]);
            lasting
        };
        let (good, bad) = (text("r.toml", "[fib]\n"), text("r.toml", "[groups]\n"));
        let mut run = open();
        assert_eq!(run.starting(good.clone()), (good.clone(), None));
        run.started(&good);
        run.record_unconfirmed(bad.clone()).unwrap()().unwrap();
        // The daemon is killed here.
        std::mem::drop(run);
        let mut run = open();
        let (used, said) = run.starting(bad.clone());
        assert_eq!(used, good);
        assert!(said.unwrap().starts_with("r.toml: this configuration was not confirmed"));
        run.started(&used);
        assert_eq!(run.entries(Instant::now()).len(), 1, "one configuration all the time");
        drop(run);
        // As long as the file has it.
        let mut run = open();
        assert_eq!(run.starting(bad.clone()).0, good);
        drop(run);
        // A start with another text that fails changes nothing.
        let other = text("r.toml", "[xdp]\n");
        let mut run = open();
        assert_eq!(run.starting(other.clone()), (other.clone(), None));
        drop(run);
        assert_eq!(open().starting(bad.clone()).0, good);
        let mut run = open();
        assert_eq!(run.starting(other.clone()), (other.clone(), None));
        run.started(&other);
        drop(run);
        assert_eq!(open().starting(bad.clone()), (bad, None));
        std::fs::remove_dir_all(path).unwrap();
    }
}
