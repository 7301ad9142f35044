//! Time and chance as elements and their handlers have them: those of the host, or, with a virtual clock, the same in
//! each run.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use fingerpost_lpm::Rng;

use crate::graph::worker::clock_start;

/// Stands for no virtual time.
const REAL: u64 = u64::MAX;

/// The virtual time, in nanoseconds of the worker's clock.
static VIRTUAL_NS: AtomicU64 = AtomicU64::new(REAL);

/// Numbers that were drawn while time was virtual.
static DRAWN: AtomicU64 = AtomicU64::new(0);

/// Lets time be virtual from now on, and sets it. The process has one clock.
pub fn set_virtual(now_ns: u64) {
    // Relaxed: no other memory depends on it.
    VIRTUAL_NS.store(now_ns.min(REAL - 1), Relaxed);
}

/// The virtual time, if time is virtual.
pub(crate) fn virtual_ns() -> Option<u64> {
    Some(VIRTUAL_NS.load(Relaxed)).filter(|now_ns| *now_ns != REAL)
}

/// Time of the worker's clock.
pub(crate) fn now_ns() -> u64 {
    virtual_ns().unwrap_or_else(|| nanoseconds(clock_start().elapsed()))
}

/// A duration in nanoseconds; the most that there are for a longer one.
pub(crate) fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(any(test, feature = "testing", feature = "click"))]
thread_local! {
    static DRAWN_HERE: std::cell::RefCell<Option<Rng>> = const { std::cell::RefCell::new(None) };
}

/// Lets the random words of this thread be those of a seed.
#[cfg(any(test, feature = "testing", feature = "click"))]
pub(crate) fn seed(seed: u64) {
    DRAWN_HERE.set(Some(Rng::new(seed)));
}

/// A random word: that of this thread's seed, or a secret one.
#[cfg(feature = "click")]
pub(crate) fn random_word() -> u64 {
    DRAWN_HERE.with_borrow_mut(|rng| rng.as_mut().map(Rng::word)).unwrap_or_else(secret_word)
}

/// A random word that nobody can guess, unless time is virtual.
pub(crate) fn secret_word() -> u64 {
    match virtual_ns() {
        None => RandomState::new().build_hasher().finish(),
        Some(_) => Rng::new(DRAWN.fetch_add(1, Relaxed).wrapping_mul(0x2545_f491_4f6c_dd1d)).word(),
    }
}
