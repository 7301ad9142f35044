//! Which core a thread works on.

use rustix::thread::{CpuSet, Pid, sched_getaffinity, sched_getcpu, sched_setaffinity};

/// Cores that this thread may use, in order.
pub(crate) fn allowed() -> Vec<usize> {
    let Ok(set) = sched_getaffinity(None) else { return Vec::new() };
    (0..CpuSet::MAX_CPU).filter(|&core| set.is_set(core)).collect()
}

/// Keeps this thread on the n-th of the cores that it may use; where the system refuses, it stays free.
pub(crate) fn pin(n: usize) {
    let allowed = allowed();
    if let Some(&core) = allowed.get(n % allowed.len().max(1)) {
        keep_on(core);
    }
}

/// Keeps this thread on a core. Where the system refuses, it stays free.
pub(crate) fn keep_on(core: usize) {
    keep(None, core);
}

/// Keeps another thread on a core; whether that was done.
pub(crate) fn keep(thread: Option<Pid>, core: usize) -> bool {
    let mut one = CpuSet::new();
    one.set(core);
    sched_setaffinity(thread, &one).is_ok()
}

/// Keeps this thread off the core that it is on; where there is no other, it stays.
pub(crate) fn elsewhere() {
    let mut others = CpuSet::new();
    (0..CpuSet::MAX_CPU).for_each(|core| others.set(core));
    others.unset(sched_getcpu());
    let _ = sched_setaffinity(None, &others);
}
