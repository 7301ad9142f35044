//! Lines about bad packets: those of an element's first one, or of all of them.
//!
//! Source: Click's elements that check headers. All instances of an element share one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use super::console;

/// What an element writes to standard error about bad packets.
#[derive(Clone)]
pub(crate) struct Complaint {
    /// What stands before each reason; `None` where nothing is written.
    heading: Option<Arc<str>>,
    all: bool,
    written: Arc<AtomicBool>,
}

impl Complaint {
    /// About the first packet, or about all.
    pub(crate) fn new(heading: &str, all: bool) -> Self {
        Self { heading: Some(heading.into()), all, written: Arc::default() }
    }

    /// One that is never written.
    pub(crate) fn none() -> Self {
        Self { heading: None, all: false, written: Arc::default() }
    }

    /// A packet is bad for this reason.
    pub(crate) fn about(&self, reason: &str) {
        let Some(heading) = &self.heading else { return };
        // Relaxed: who of two comes first does not matter. Read first, since workers share the line.
        let is_new = || !self.written.load(Relaxed) && !self.written.swap(true, Relaxed);
        if self.all || is_new() {
            console::warn(&format!("{heading}{reason}"));
        }
    }
}
