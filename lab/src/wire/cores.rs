//! Which core does what: traffic is made and ends on the first ones, the router has the last ones.

use rustix::thread::{CpuSet, Pid, sched_getaffinity, sched_setaffinity};

/// Those that this thread may use, in order.
pub(super) fn allowed() -> Vec<usize> {
    let Ok(set) = sched_getaffinity(None) else { return Vec::new() };
    (0..CpuSet::MAX_CPU).filter(|&core| set.is_set(core)).collect()
}

/// Keeps this thread on a core. Where the system refuses, it stays free.
pub(super) fn keep_on(core: usize) {
    keep(None, core);
}

/// Keeps another thread on a core; whether that was done.
pub(super) fn keep(thread: Option<Pid>, core: usize) -> bool {
    let mut one = CpuSet::new();
    one.set(core);
    sched_setaffinity(thread, &one).is_ok()
}
