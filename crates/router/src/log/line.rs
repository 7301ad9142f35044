//! A line of the log: text for people, JSON for programs, with a priority where the journal reads it.

use std::os::unix::fs::MetadataExt;
use std::time::SystemTime;

use clap::ValueEnum;
use fingerpost_command::time::rfc3339;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tracing::Level;

/// Form of a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Format {
    /// A line for people, `TIME fingerpost: LEVEL TARGET: MESSAGE`.
    #[default]
    Text,
    /// A JSON object with `time`, `level`, `target`, `message` and the numbers of the event.
    Json,
    /// Fields for the journal of systemd by its own protocol, such as `FINGERPOST_TARGET`; without a journal as `text`.
    Journald,
}

impl Format {
    /// Its word in the configuration.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Json => "json",
            Self::Journald => "journald",
        }
    }
}

/// Reader of the lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Medium {
    /// A terminal, a file or a pipe.
    Stream,
    /// The journal of systemd, which has the time and the name, and reads the priority from `<N>` (sd-daemon(3)).
    Journal,
}

impl Medium {
    /// What reads standard error, found out as in systemd.exec(5): a service may have that variable and write elsewhere.
    pub(super) fn of_stderr() -> Self {
        let named = std::env::var("JOURNAL_STREAM").unwrap_or_default();
        let stream = std::fs::metadata("/proc/self/fd/2");
        match stream.is_ok_and(|stream| named == format!("{}:{}", stream.dev(), stream.ino())) {
            true => Self::Journal,
            false => Self::Stream,
        }
    }
}

/// An event.
pub(super) struct Line<'a> {
    pub(super) level: Level,
    pub(super) target: &'a str,
    pub(super) message: &'a str,
    pub(super) fields: Map<String, Value>,
}

#[derive(Serialize)]
struct Document<'a> {
    time: String,
    level: &'a str,
    target: &'a str,
    message: &'a str,
    #[serde(flatten)]
    fields: &'a Map<String, Value>,
}

impl Line<'_> {
    /// Its text with the end of the line. Quoted text cannot break the line or move the cursor.
    pub(super) fn text(&self, format: Format, medium: Medium, time: SystemTime) -> String {
        let Self { level, target, message, fields } = self;
        let level = super::level_name((*level).into());
        let mut text = match (medium, format) {
            (Medium::Journal, _) => format!("<{}>", priority(self.level)),
            (Medium::Stream, Format::Text | Format::Journald) => {
                format!("{} fingerpost: {level} ", rfc3339(time))
            }
            (Medium::Stream, Format::Json) => String::new(),
        };
        match format {
            Format::Text | Format::Journald => {
                text += target;
                text += ": ";
                text += &escaped(message);
            }
            Format::Json => {
                let document = Document { time: rfc3339(time), level, target, message, fields };
                text += &serde_json::to_string(&document).expect("writing to memory cannot fail");
            }
        }
        text.push('\n');
        text
    }
}

/// A text without control characters: these are written as in Rust.
pub(super) fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() { escaped.extend(c.escape_default()) } else { escaped.push(c) }
    }
    escaped
}

/// Priority of syslog(3).
pub(super) fn priority(level: Level) -> u8 {
    match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        _ => 7,
    }
}
