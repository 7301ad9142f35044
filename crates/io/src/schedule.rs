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
    use std::io::ErrorKind;

    #[test]
    fn a_thread_gets_its_priority_or_may_not_have_one() {
        let policy = || {
            let set = super::real_time(1);
            let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
            // The last word that may have blanks is the name, in parentheses; proc(5) counts fields from 1.
            let fields = stat.rsplit_once(')').unwrap().1;
            let policy: i32 = fields.split_whitespace().nth(41 - 3).unwrap().parse().unwrap();
            (set, policy)
        };
        match std::thread::spawn(policy).join().unwrap() {
            (Ok(()), policy) => assert_eq!(policy, libc::SCHED_FIFO),
            (Err(error), _) => assert_eq!(error.kind(), ErrorKind::PermissionDenied),
        }
    }

    #[test]
    fn a_priority_that_there_is_not_is_an_error() {
        assert!(super::real_time(0).is_err());
        assert!(super::real_time(100).is_err());
    }
}
