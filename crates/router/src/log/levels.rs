//! Levels of the log: one for all targets, and others for some.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use fingerpost_route::source::words::unknown;
use serde::Deserialize;
use tracing::Level;
use tracing::level_filters::LevelFilter;

/// Targets of events, each with what is logged there.
pub(crate) static TARGETS: &[(&str, &str)] = &[
    ("cluster", "membership, mode and members of a cluster node"),
    ("config", "configurations that are applied, confirmed, rolled back, saved"),
    ("control", "requests for changes over the control API, with user and process"),
    ("fib", "algorithms that are chosen and why, builds, audits, calibrations"),
    ("graph", "the packet graph and its interface features"),
    ("interface", "ports, XDP programs and VLANs of interfaces"),
    ("nonstop", "non-stop forwarding while the daemon restarts"),
    ("policy", "the kernel's policy for forwarded packets, obstacles"),
    ("run", "start and end of the run, workers, capabilities"),
    ("sampling", "collectors that samples are sent to"),
    ("source", "route sources: sessions, loads, resynchronizations, errors"),
    ("stall", "turns of the control thread that take long"),
    ("takeover", "interfaces that are taken over or returned to the kernel"),
];

const LEVELS: [(&str, LevelFilter); 5] = [
    ("off", LevelFilter::OFF),
    ("error", LevelFilter::ERROR),
    ("warn", LevelFilter::WARN),
    ("info", LevelFilter::INFO),
    ("debug", LevelFilter::DEBUG),
];

/// Name of a level.
pub(crate) fn level_name(level: LevelFilter) -> &'static str {
    LEVELS.iter().find(|(_, known)| *known == level).map_or("debug", |(name, _)| name)
}

/// The least important level that is logged, for all targets and for single ones.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct Levels {
    usual: LevelFilter,
    of: BTreeMap<&'static str, LevelFilter>,
}

impl Default for Levels {
    fn default() -> Self {
        Self { usual: LevelFilter::INFO, of: BTreeMap::new() }
    }
}

impl Levels {
    /// The level of a target.
    pub(crate) fn of(&self, target: &str) -> LevelFilter {
        self.of.get(target).copied().unwrap_or(self.usual)
    }

    /// Sets `LEVEL` of all targets, and `TARGET=LEVEL` of single ones, separated by commas.
    ///
    /// # Errors
    /// The word that is not known.
    pub(crate) fn set(&mut self, text: &str) -> Result<(), String> {
        let (single, all): (Vec<&str>, Vec<&str>) =
            text.split(',').partition(|words| words.contains('='));
        // A level for all holds for the targets that are not named, wherever it stands.
        all.into_iter().chain(single).try_for_each(|words| self.set_one(words))
    }

    fn set_one(&mut self, words: &str) -> Result<(), String> {
        let (target, word) = match words.split_once('=') {
            Some((target, word)) => (Some(target.trim()), word.trim()),
            None => (None, words.trim()),
        };
        let known = LEVELS.iter().find(|(name, _)| *name == word);
        let (_, level) =
            known.ok_or_else(|| unknown("log level", word, LEVELS.map(|(name, _)| name)))?;
        let Some(target) = target else {
            *self = Self { usual: *level, of: BTreeMap::new() };
            return Ok(());
        };
        let known = TARGETS.iter().find(|(name, _)| *name == target);
        let names = TARGETS.iter().map(|(name, _)| *name);
        let (target, _) = known.ok_or_else(|| unknown("log target", target, names))?;
        self.of.insert(target, *level);
        Ok(())
    }

    /// Whether an event is logged. Other crates' events are not: their targets are unknown.
    pub(super) fn wants(&self, target: &str, level: Level) -> bool {
        level <= self.of(target) && TARGETS.iter().any(|(name, _)| *name == target)
    }

    /// The least important level of all targets.
    pub(super) fn most(&self) -> LevelFilter {
        self.of.values().copied().fold(self.usual, LevelFilter::max)
    }
}

impl FromStr for Levels {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut levels = Self::default();
        levels.set(text)?;
        Ok(levels)
    }
}

impl TryFrom<String> for Levels {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl fmt::Display for Levels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(level_name(self.usual))?;
        self.of.iter().try_for_each(|(target, level)| write!(f, ",{target}={}", level_name(*level)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_has_its_level_or_that_of_all() {
        let mut levels: Levels = "fib=debug,warn".parse().unwrap();
        assert_eq!(levels.to_string(), "warn,fib=debug");
        assert!(levels.wants("fib", Level::DEBUG) && !levels.wants("run", Level::INFO));
        assert!(levels.wants("run", Level::WARN) && !levels.wants("hyper::proto", Level::ERROR));
        assert_eq!(levels.most(), LevelFilter::DEBUG);
        levels.set("run=off").unwrap();
        assert!(!levels.wants("run", Level::ERROR));
        levels.set("info").unwrap();
        assert_eq!((levels.to_string(), levels.most()), ("info".to_owned(), LevelFilter::INFO));
        assert_eq!(Levels::default().to_string(), "info");
    }

    #[test]
    fn unknown_words_are_refused_with_the_nearest() {
        for (text, words) in [
            ("inof", "unknown log level `inof`, did you mean `info`?"),
            ("fbi=info", "unknown log target `fbi`, did you mean `fib`?"),
            ("fib=", "unknown log level ``, known: off, error, warn, info, debug"),
            ("", "unknown log level ``, known: off, error, warn, info, debug"),
        ] {
            assert_eq!(text.parse::<Levels>().unwrap_err(), words);
        }
    }
}
