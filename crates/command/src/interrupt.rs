//! SIGINT ends a command with its exit code.
//!
//! Invariants that the unsafe code of this file relies on:
//! 1. Every pointer passed to a call points to a live value of the type that the call expects.
//! 2. The signal handler only ends the process, which is safe in a handler.

use std::mem::zeroed;

/// Exit code of an interrupted program, as shells have it: 128 and the number of the signal.
pub(crate) const EXIT: libc::c_int = 128 + libc::SIGINT;

extern "C" fn on_interrupt(_: libc::c_int) {
    // SAFETY: invariant 2.
    unsafe { libc::_exit(EXIT) }
}

/// Makes SIGINT end the program with [`EXIT`], until another handler takes its place. Where the parent process
/// ignores that signal (a background job), it stays ignored.
pub(crate) fn exit_on_interrupt() {
    // SAFETY: all zeroes is a valid action.
    let mut action: libc::sigaction = unsafe { zeroed() };
    // SAFETY: invariant 1.
    unsafe { libc::sigaction(libc::SIGINT, std::ptr::null(), &raw mut action) };
    if action.sa_sigaction != libc::SIG_IGN {
        action.sa_sigaction = on_interrupt as extern "C" fn(libc::c_int) as usize;
        // SAFETY: invariants 1 and 2.
        unsafe { libc::sigaction(libc::SIGINT, &raw const action, std::ptr::null_mut()) };
    }
}
