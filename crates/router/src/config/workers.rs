//! The section `[workers]`: the threads that forward.

use std::fmt;

use serde::Deserialize;

/// The worker threads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Workers {
    /// Processors that run a worker each, by number; `auto`: at most as many workers as the interfaces have queues.
    pub(crate) cores: Cores,
}

/// Processors that forward.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(untagged, expecting = "`cores`: \"auto\", or a list of processors is needed")]
pub(crate) enum Cores {
    #[serde(skip)]
    #[default]
    Auto,
    /// `"auto"`, spelled out.
    Word(CoresWord),
    /// Processors, by number.
    List(Vec<usize>),
}

impl fmt::Display for Cores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::List(list) => {
                let words: Vec<String> = list.iter().map(ToString::to_string).collect();
                f.write_str(&words.join(", "))
            }
            Self::Auto | Self::Word(_) => f.write_str("auto"),
        }
    }
}

/// The one word that may stand for a list of processors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum CoresWord {
    Auto,
}
