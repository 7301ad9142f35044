//! The end of a run: elements and handlers request it, and elements may decide what a request means.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

/// Shared by all of a plan. Clones share it.
#[derive(Clone, Default, Debug)]
pub struct Ending(Arc<State>);

#[derive(Default, Debug)]
struct State {
    requested: AtomicBool,
    managers: AtomicUsize,
}

// Relaxed, in all of them: whoever looks does so again and again, and no other memory depends on it.
impl Ending {
    /// Requests the end.
    pub fn request(&self) {
        self.0.requested.store(true, Relaxed);
    }

    /// Takes the request, if there is one: for an element that manages the end.
    #[cfg(any(feature = "click", test))]
    pub(crate) fn take(&self) -> bool {
        self.0.requested.swap(false, Relaxed)
    }

    /// One more element decides what a request means.
    #[cfg(any(feature = "click", test))]
    pub(crate) fn manage(&self) {
        self.0.managers.fetch_add(1, Relaxed);
    }

    /// One of them does so no longer.
    #[cfg(any(feature = "click", test))]
    pub(crate) fn leave(&self) {
        self.0.managers.fetch_sub(1, Relaxed);
    }

    /// Whether the run is to end: it was requested, and nobody decides that it means something else.
    pub fn is_reached(&self) -> bool {
        self.0.requested.load(Relaxed) && self.0.managers.load(Relaxed) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manager_takes_requests_until_it_leaves() {
        let ending = Ending::default();
        ending.clone().manage();
        ending.request();
        assert_eq!([ending.is_reached(), ending.take(), ending.take()], [false, true, false]);
        ending.leave();
        assert!(!ending.is_reached());
        ending.request();
        assert!(ending.is_reached());
    }
}
