//! Which core a thread works on.

use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};

/// Keeps this thread on the n-th of the cores that it may use; where the system refuses, it stays free.
pub(crate) fn pin(n: usize) {
    let Ok(allowed) = sched_getaffinity(None) else { return };
    let mut cores = (0..CpuSet::MAX_CPU).filter(|&core| allowed.is_set(core));
    let count = allowed.count().max(1) as usize;
    if let Some(core) = cores.nth(n % count) {
        let mut one = CpuSet::new();
        one.set(core);
        let _ = sched_setaffinity(None, &one);
    }
}

/// Keeps this thread off the core that it is on; where there is no other, it stays.
pub(crate) fn elsewhere() {
    let mut others = CpuSet::new();
    (0..CpuSet::MAX_CPU).for_each(|core| others.set(core));
    others.unset(sched_getcpu());
    let _ = sched_setaffinity(None, &others);
}
