//! Values that take long to free: lists of millions of prefixes, a hundred thousand routes, a configuration with them.
//!
//! Whoever holds such a value last frees it, which is to be neither a worker nor the daemon's thread.
//!
//! Cost: a thread for each call, which sleeps for [`LONGEST_ROUND`]

use std::time::Duration;

/// Longer than workers need to take over a graph: they leave the old one within a round.
const LONGEST_ROUND: Duration = Duration::from_secs(2);

/// Frees a value in a thread of its own, when no worker holds parts of it any more.
pub(super) fn free_later<T: Send + 'static>(old: T) {
    let last = move || {
        std::thread::sleep(LONGEST_ROUND);
        drop(old);
    };
    // Without a thread it is freed at once.
    let _ = std::thread::Builder::new().name("fingerpost-free".into()).spawn(last);
}
