//! Scheduling of the calling thread.
//!
//! Source: sched(7): a thread of `SCHED_FIFO` runs before all ordinary ones.
//!
//! Invariants that the unsafe code of this file relies on:
//! 1. The structure passed to the call is the C one and outlives it; thread 0 is the caller.

use std::io;

/// Gives the calling thread a real-time priority, 1 to 99.
///
/// # Errors
/// The kernel's error: `EPERM` without CAP_SYS_NICE, `EINVAL` for another priority.
pub fn real_time(priority: u8) -> io::Result<()> {
    // SAFETY: invariant 1: integers: all bits zero are valid.
    let mut parameter: libc::sched_param = unsafe { std::mem::zeroed() };
    parameter.sched_priority = priority.into();
    let (call, parameter) = (libc::SYS_sched_setscheduler, &raw const parameter);
    // The function of musl's library only fails.
    // SAFETY: invariant 1.
    let done = unsafe { libc::syscall(call, 0, libc::SCHED_FIFO, parameter) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_priority_that_there_is_not_is_an_error() {
        assert!(super::real_time(0).is_err());
        assert!(super::real_time(100).is_err());
    }
}
