//! State of requests that take several turns: lists, comparisons, traces.
//!
//! The backend keeps the state under a number; the server holds the number as a [`Session`]. A session that is dropped,
//! finished or not, is closed by the backend in its next turn.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Numbers of sessions that were dropped.
type Dropped = Arc<Mutex<Vec<u64>>>;

/// The requester's handle of a session.
pub(crate) struct Session {
    number: u64,
    dropped: Dropped,
}

impl Session {
    /// Number of the session, for requests that continue it.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.dropped.lock().unwrap_or_else(PoisonError::into_inner).push(self.number);
    }
}

/// The backend's side: the state of each open session.
pub(crate) struct Sessions<T> {
    last: u64,
    open: BTreeMap<u64, T>,
    dropped: Dropped,
}

impl<T> Default for Sessions<T> {
    fn default() -> Self {
        Self { last: 0, open: BTreeMap::new(), dropped: Dropped::default() }
    }
}

impl<T> Sessions<T> {
    /// Opens a session.
    pub(crate) fn open(&mut self, state: T) -> Session {
        self.last += 1;
        self.open.insert(self.last, state);
        Session { number: self.last, dropped: self.dropped.clone() }
    }

    /// Takes the state of a session out; `None` where the session is finished.
    pub(crate) fn take(&mut self, number: u64) -> Option<T> {
        self.open.remove(&number)
    }

    /// Puts the state of a session back for its next turn.
    pub(crate) fn put(&mut self, number: u64, state: T) {
        self.open.insert(number, state);
    }

    /// States of the open sessions.
    pub(crate) fn states(&self) -> impl Iterator<Item = &T> {
        self.open.values()
    }

    /// States of the open sessions, the oldest first, to be changed.
    pub(crate) fn states_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.open.values_mut()
    }

    /// Closes all sessions, and returns their states.
    pub(crate) fn close_all(&mut self) -> Vec<T> {
        std::mem::take(&mut self.open).into_values().collect()
    }

    /// Closes the sessions that were dropped, and returns their states.
    pub(crate) fn close_dropped(&mut self) -> Vec<T> {
        let dropped =
            std::mem::take(&mut *self.dropped.lock().unwrap_or_else(PoisonError::into_inner));
        dropped.into_iter().filter_map(|number| self.open.remove(&number)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_session_is_closed_and_others_stay() {
        let mut sessions = Sessions::default();
        let (first, second) = (sessions.open("first"), sessions.open("second"));
        assert!(sessions.close_dropped().is_empty());
        drop(first);
        assert_eq!(sessions.close_dropped(), ["first"]);
        assert!(sessions.close_dropped().is_empty());
        let state = sessions.take(second.number()).unwrap();
        assert!(sessions.take(second.number()).is_none(), "taken for a turn");
        sessions.put(second.number(), state);
        assert_eq!(sessions.close_all(), ["second"]);
        drop(second);
        assert!(sessions.close_dropped().is_empty(), "closed already");
    }
}
