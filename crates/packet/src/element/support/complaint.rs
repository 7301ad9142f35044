//! Lines about bad packets: those of an element's first one or first few, or of all of them.
//!
//! Source: Click's elements that check headers. All instances of an element share one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use super::console;

/// What an element writes to standard error about bad packets.
#[derive(Clone)]
pub(crate) struct Complaint {
    /// What stands before each reason; `None` where nothing is written.
    heading: Option<Arc<str>>,
    /// Lines at most; `None` where there is one about each packet.
    most: Option<u32>,
    written: Arc<AtomicU32>,
}

impl Complaint {
    /// About the first packet, or about all.
    pub(crate) fn new(heading: &str, all: bool) -> Self {
        Self::about_first(1, heading, all)
    }

    /// About so many packets, or about all.
    pub(crate) fn about_first(most: u32, heading: &str, all: bool) -> Self {
        let most = Some(most).filter(|_| !all);
        Self { heading: Some(heading.into()), most, written: Arc::default() }
    }

    /// One that is never written.
    pub(crate) fn none() -> Self {
        Self { heading: None, most: None, written: Arc::default() }
    }

    /// A packet is bad for this reason.
    pub(crate) fn about(&self, reason: &str) {
        self.about_with(|| reason);
    }

    /// A packet is bad for a reason that is made only where it is written.
    pub(crate) fn about_with<R: AsRef<str>>(&self, reason: impl FnOnce() -> R) {
        let Some(heading) = &self.heading else { return };
        // Relaxed: who of two comes first does not matter. Read first, since workers share the line.
        let is_new =
            |most| self.written.load(Relaxed) < most && self.written.fetch_add(1, Relaxed) < most;
        if self.most.is_none_or(is_new) {
            console::warn(&format!("{heading}{}", reason().as_ref()));
        }
    }
}
