//! Instances of elements that stand apart from those of the workers, for dry runs ([`crate::graph::trace::dry_run`]).
//!
//! What the instances of an element make known they share with its handlers and each other: counts that are summed,
//! neighbors that were learned, a file. A dry run changes nothing of that. Elements check here while an instance is
//! made, on a control thread, so that nothing is checked on the path of packets.

use std::cell::Cell;

thread_local! {
    static APART: Cell<bool> = const { Cell::new(false) };
}

/// What `make` makes stands apart.
pub(crate) fn made<T>(make: impl FnOnce() -> T) -> T {
    struct Before(bool);
    impl Drop for Before {
        fn drop(&mut self) {
            APART.set(self.0);
        }
    }
    let _before = Before(APART.replace(true));
    make()
}

/// Whether what is made now does.
pub(crate) fn is_made() -> bool {
    APART.get()
}
