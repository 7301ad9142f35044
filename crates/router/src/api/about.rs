//! What a request for a change is about, in words for the log.

use std::fmt::Write;
use std::sync::{Arc, OnceLock};

use serde::Serialize;

use super::cluster::{Drain, ParameterChange};
use super::config::{ConfigApply, ConfigRollback};
use super::log::LogChange;
use super::model::{AlgorithmChange, ConfigText, NeighborChange, RouteChange};
use super::source_filters::{FilterChange, FilterList};
use super::words;

/// Longest subject, in characters.
const LONGEST: usize = 1000;

/// Subject of a request, once its body is read.
#[derive(Clone, Debug, Default)]
pub(super) struct Noted(Arc<OnceLock<String>>);

impl Noted {
    /// Notes the subject of a document: a line without control characters.
    pub(super) fn set(&self, document: &impl About) {
        let words = document.subject();
        let mut line: String =
            words.chars().take(LONGEST).map(|c| if c.is_control() { '?' } else { c }).collect();
        if words.chars().nth(LONGEST).is_some() {
            line += "...";
        }
        // A request has one body.
        let _ = self.0.set(line);
    }

    /// The subject; empty where there is none.
    pub(super) fn take(&self) -> String {
        self.0.get().cloned().unwrap_or_default()
    }
}

/// A document that requests something.
pub(super) trait About {
    /// What the request is about.
    fn subject(&self) -> String;
}

/// Word of a value of an enum in JSON.
fn word(value: &impl Serialize) -> String {
    let value = serde_json::to_value(value).unwrap_or_default();
    value.as_str().unwrap_or_default().to_owned()
}

impl About for RouteChange {
    fn subject(&self) -> String {
        let mut line = format!("{} ", word(&self.action));
        // Writing to a string cannot fail, here and below.
        let _ = words::write_route(self, &mut line);
        if let Some(expires) = self.expires {
            let _ = write!(line, " expires {expires}");
        }
        if self.all {
            line += " all";
        }
        line
    }
}

impl About for NeighborChange {
    fn subject(&self) -> String {
        let mut words = format!("{} {} dev {}", word(&self.action), self.addr, self.dev);
        let _ = self.mac.iter().try_for_each(|mac| write!(words, " lladdr {mac}"));
        words
    }
}

impl About for AlgorithmChange {
    fn subject(&self) -> String {
        let family = self.family.map_or(String::new(), |family| format!("v{family}: "));
        format!("algorithm {family}{}", self.name)
    }
}

impl About for FilterChange {
    fn subject(&self) -> String {
        let mut words = format!("filter {}", self.filter);
        for (what, prefixes) in [("add", &self.add), ("delete", &self.remove)] {
            if !prefixes.is_empty() {
                let shown = prefixes.iter().take(LONGEST).map(String::as_str).collect::<Vec<_>>();
                let _ = write!(words, ", {what} {}: {}", prefixes.len(), shown.join(" "));
            }
        }
        words
    }
}

impl About for FilterList {
    fn subject(&self) -> String {
        format!("filter {}, all of {}", self.filter, self.file)
    }
}

impl About for Drain {
    fn subject(&self) -> String {
        if self.draining { "drain".to_owned() } else { "end of drain".to_owned() }
    }
}

impl About for ParameterChange {
    fn subject(&self) -> String {
        self.set.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
    }
}

impl About for LogChange {
    fn subject(&self) -> String {
        format!("level {}", self.level)
    }
}

impl About for ConfigText {
    fn subject(&self) -> String {
        self.file.clone()
    }
}

impl About for ConfigApply {
    fn subject(&self) -> String {
        self.file.clone()
    }
}

impl About for ConfigRollback {
    fn subject(&self) -> String {
        self.number.map_or(String::new(), |number| format!("number {number}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subjects_are_short_lines() {
        let subject = |document: &dyn Fn(&Noted)| {
            let noted = Noted::default();
            document(&noted);
            noted.take()
        };
        let text = r#"{"action":"add","prefix":"198.51.100.0/24","paths":[{"gateway":"10.0.2.2","weight":3}],"table":7}"#;
        let route: RouteChange = serde_json::from_str(text).unwrap();
        assert_eq!(
            subject(&|noted| noted.set(&route)),
            "add 198.51.100.0/24 via 10.0.2.2 weight 3 table 7"
        );
        let text =
            r#"{"filter":"bogons","add":["10.0.0.0/8","192.0.2.0/24"],"remove":["a\nb\u0085"]}"#;
        let filter: FilterChange = serde_json::from_str(text).unwrap();
        let words = "filter bogons, add 2: 10.0.0.0/8 192.0.2.0/24, delete 1: a?b?";
        assert_eq!(subject(&|noted| noted.set(&filter)), words);
        let many = FilterChange { add: vec!["10.0.0.0/8".to_owned(); 5000], ..filter };
        let words = subject(&|noted| noted.set(&many));
        assert!(words.starts_with("filter bogons, add 5000: 10.") && words.ends_with("..."));
        assert_eq!(words.chars().count(), LONGEST + 3);
        assert_eq!(subject(&|_| ()), "");
    }
}
