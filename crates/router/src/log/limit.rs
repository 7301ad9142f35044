//! A bound on lines that repeat: of one text, and of one place in the program, in each second.
//!
//! A peer that comes and goes, or a client that is refused, can make an event as often as it likes. What is left out is counted
//! and reported once the second is over. Lines about changes that users request are all printed.
//!
//! Cost: an entry for each text of a second, at most [`KIND`] for each place.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant};

use tracing::callsite::Identifier;
use tracing::{Level, Metadata};

/// Lines of one text in a second.
const SAME: u32 = 5;
/// Lines of one place in the program in a second.
const KIND: u32 = 200;
const SECOND: Duration = Duration::from_secs(1);

/// Field of lines that are never left out: the subject of a change that somebody requested. Who may not change anything has a
/// bound of its own on them (`daemon/journal.rs`).
pub(super) const KEPT: &str = "subject";

/// Lines of the present second.
pub(super) struct Limit {
    since: Option<Instant>,
    texts: HashMap<u64, u32>,
    kinds: HashMap<Identifier, Kind>,
    hasher: RandomState,
}

/// Lines of one place.
struct Kind {
    printed: u32,
    left_out: u64,
    metadata: &'static Metadata<'static>,
    /// Text of the first one that was left out.
    message: String,
}

/// Lines of one place that were left out.
pub(super) struct Repeated {
    pub(super) level: Level,
    pub(super) target: &'static str,
    pub(super) count: u64,
    /// The first of them.
    pub(super) message: String,
}

impl Default for Limit {
    fn default() -> Self {
        let hasher = RandomState::new();
        Self { since: None, texts: HashMap::new(), kinds: HashMap::new(), hasher }
    }
}

impl Limit {
    /// Whether the present second is over; another one begins then.
    pub(super) fn is_over(&mut self, now: Instant) -> bool {
        let over = self.since.is_none_or(|since| now.saturating_duration_since(since) >= SECOND);
        if over {
            self.since = Some(now);
        }
        over
    }

    /// Whether a line is printed, which counts it.
    pub(super) fn admits(&mut self, metadata: &'static Metadata<'static>, message: &str) -> bool {
        if metadata.fields().field(KEPT).is_some() {
            return true;
        }
        let kind = self.kinds.entry(metadata.callsite()).or_insert_with(|| Kind {
            printed: 0,
            left_out: 0,
            metadata,
            message: String::new(),
        });
        let is_admitted = kind.printed < KIND && {
            let same = self.texts.entry(self.hasher.hash_one(message)).or_default();
            *same += 1;
            *same <= SAME
        };
        if is_admitted {
            kind.printed += 1;
            return true;
        }
        if kind.left_out == 0 {
            message.clone_into(&mut kind.message);
        }
        kind.left_out += 1;
        false
    }

    /// Lines that were left out since the last call, by place.
    pub(super) fn take(&mut self) -> Vec<Repeated> {
        self.texts.clear();
        let kinds = std::mem::take(&mut self.kinds).into_values().filter(|kind| kind.left_out > 0);
        let repeated = |Kind { left_out, metadata, message, .. }: Kind| Repeated {
            level: *metadata.level(),
            target: metadata.target(),
            count: left_out,
            message,
        };
        kinds.map(repeated).collect()
    }
}
